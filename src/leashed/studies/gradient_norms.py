"""How large the gradients of an update are, and how often an id gets one: gba, Figures 3 and 4."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from leashed.base import checks
from leashed.base.table import MISSING, Table, number
from leashed.datasets import ClickDataset
from leashed.modes import BSP
from leashed.rules import SGD
from leashed.simulation.virtual_time import simulate
from leashed.stopping import Until
from leashed.studies import recommender
from leashed.studies.intervals import interval
from leashed.studies.study import GoOn, Part, Record, option, unbroken
from leashed.studies.switching import MODES, Model, Shared, trained
from leashed.training.doubts import ends_are_told
from leashed.training.options import Init, Observe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EDGES", "Norms", "norms", "occurrences"]

EDGES = (0.0, 0.001, 0.01, 0.1, 0.5, 1.0)
"""Of the shares of batches in which an id is: each class has its upper one."""

_LR = 0.01
_STATE = "busy"
_NOTE = (
    "L2 norm of the dense parameters' gradient of an update, the mean of several workers': its mean over "
    "updates and their standard deviation, ± half the 95% interval over seeds. Sync is a few workers with "
    "large batches, BSP an update of as many gradients as there are workers. From a model of a day by Sync "
    "on, by SGD, whose steps tell the gradients."
)
_IDS_NOTE = (
    "Shares of the ids that are in the day's clicks, by the share of its batches that they are in, and the "
    "mean share. Synthetic clicks draw ids by Zipf's law; the paper's are its own."
)


@dataclass(frozen=True)
class Norms(Shared):
    """What ``leashed bench gradient-norms`` asks, as of ``switching.Setting``.

    Args:
        batches: clicks of a gradient of BSP.
        updates: whose gradients are looked at, in each run.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    NAME: ClassVar[str] = "gradient-norms"
    TITLE: ClassVar[str] = "Gradients of an update, and the ids that it has"
    HELP: ClassVar[str] = "norms of aggregated gradients, and skewed ids: Figures 3 and 4 of GBA"
    DESCRIPTION: ClassVar[str] = (
        "Look at the norms of the gradients of an update of Sync and of BSP with several batch sizes, and at "
        "the batches that ids are in."
    )
    SIDE_BY_SIDE: ClassVar[bool] = True

    batches: tuple[int, ...] = option((4, 8, 16, 32), "clicks of a gradient of BSP", checks.whole)
    updates: int = option(40, "whose gradients are looked at", checks.whole, short=12)
    repeats: int = option(5, "seeds of each", checks.whole, full=11, short=2)

    @cached_property
    def clicks(self) -> list[ClickDataset]:
        """Of the day before, of that which is looked at, and of a last one."""
        return self.days_of(self.rows, 3)

    def settings(self) -> list[Record]:
        asked: list[Record] = [{"mode": "Sync"}]
        asked += [{"mode": "BSP", "batches": batch} for batch in self.batches]
        step = self.workers * self.batch_size
        ids: list[Record] = [
            {"repeat": 0, "ids": batch} for batch in dict.fromkeys([*self.batches, step])
        ]
        return ids + [{"repeat": r, **one} for r in range(self.repeats) for one in asked]

    def measure(self, setting: Record, data: Any, go_on: GoOn) -> Any:  # noqa: ARG002
        if "ids" in setting:
            return {"shares": _counted(occurrences(self.clicks[1], setting["ids"]))}
        return {"norms": self._norms(setting, self.seed + setting["repeat"], go_on)}

    @ends_are_told()
    def _norms(self, setting: Record, seed: int, go_on: GoOn) -> list[float]:
        going = Model(self.graph().init(seed), self.tables(seed))
        trained(self, going, "Sync", _STATE, self.clicks[:2], seed, go_on)
        thetas = [going.theta]
        thetas += [
            self._steps(going, setting, seed, updates, go_on)
            for updates in range(1, self.updates + 1)
        ]
        steps = np.diff(np.array(thetas, np.float64), axis=0) / _LR
        return [float(one) for one in np.linalg.norm(steps, axis=1)]

    def _steps(
        self, going: Model, setting: Record, seed: int, updates: int, go_on: GoOn
    ) -> NDArray[np.float32]:
        """After so many: of one seed the beginning of a longer training is a shorter one."""
        mode = setting["mode"]
        batch = setting.get("batches", self.crew("Sync")[1])
        made = MODES["Sync"](self.sync_workers) if mode == "Sync" else BSP(b2=self.workers)
        played = simulate(
            self.graph(),
            self.clicks[1],
            cluster=replace(self, push=0.0).cluster(mode, _STATE),
            mode=made,
            until=Until(updates=updates),
            rule=SGD(_LR),
            batch_size=batch,
            seed=seed + 1000,
            init=Init(going.theta, copy.deepcopy(dict(going.tables))),
            observe=Observe(go_on, rows=1),
        )
        return np.array(unbroken(played.result).parameters)

    def parts(self, records: Sequence[Record]) -> list[Part]:
        found = norms(records)

        def drawn() -> Figure:
            from leashed.studies.plots import switching  # noqa: PLC0415 (matplotlib is optional)

            return switching.norms({_name(*key): np.ravel(one) for key, one in found.items()})

        own = found["Sync", None]
        rows = [
            [
                _name(mode, batch),
                str(self.workers * (self.batch_size if batch is None else batch)),
                *(_over_seeds(of, one) for of in (np.mean, np.std)),
                MISSING if mode == "Sync" else number(float(one.mean() / own.mean())),
            ]
            for (mode, batch), one in found.items()
        ]
        header = ["mode", "clicks of an update", "mean norm", "deviation", "of Sync's mean"]
        caption = "Norms of the gradients of updates (gba, Figure 3), all seeds together."
        return [
            Part("Gradients of an update (Figure 3)", Table(header, rows), _NOTE, drawn, caption),
            Part("Batches that ids are in (Figure 4)", _ids(records), _IDS_NOTE),
        ]


Key = tuple[str, int | None]


def norms(records: Sequence[Record]) -> dict[Key, NDArray[np.float64]]:
    """Of each mode, and batch of BSP, float64 [repeats, updates]."""
    found: dict[Key, list[list[float]]] = {}
    for record in records:
        setting = record["setting"]
        if "mode" in setting:
            key = (setting["mode"], setting.get("batches"))
            found.setdefault(key, []).append(record["measured"]["norms"])
    return {key: np.array(of) for key, of in found.items()}


def occurrences(clicks: ClickDataset, batch: int) -> NDArray[np.float64]:
    """Of each id of each feature that is in the clicks the share of batches that it is in."""
    steps = len(clicks) // batch
    found = []
    for ids, click in recommender.columns(clicks[: steps * batch]):
        pairs = np.unique(ids * steps + click // batch)
        counts = np.bincount(pairs // steps)
        found.append(counts[counts > 0] / steps)
    return np.concatenate(found)


def _counted(shares: NDArray[np.float64]) -> list[float]:
    """Shares of the ids in each class of ``EDGES``, and the mean of their shares of batches."""
    classes = np.searchsorted(EDGES[1:-1], shares)
    counts = np.bincount(classes, minlength=len(EDGES) - 1)
    return [*(counts / len(shares)).tolist(), float(shares.mean())]


def _name(mode: str, batch: int | None) -> str:
    return mode if batch is None else f"{mode}-{batch}"


def _over_seeds(of: Any, found: NDArray[np.float64]) -> str:
    return interval([float(of(one)) for one in found]).text()


def _ids(records: Sequence[Record]) -> Table:
    rows = [
        [
            str(record["setting"]["ids"]),
            *(f"{100 * one:.2f}%" for one in record["measured"]["shares"]),
        ]
        for record in records
        if "ids" in record["setting"]
    ]
    return Table(["batch", *(f"to {100 * edge:g}%" for edge in EDGES[1:]), "mean share"], rows)
