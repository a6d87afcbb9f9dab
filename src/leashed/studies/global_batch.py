"""GBA with other workers and batches after a switch from Sync: gba, Figures 7 and 8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from leashed.base import checks
from leashed.base.table import MISSING, Table, number
from leashed.datasets import ClickDataset
from leashed.studies.intervals import difference, interval
from leashed.studies.study import GoOn, Part, Record, option
from leashed.studies.switching import Model, Shared, mode_of, timed, trained
from leashed.training.doubts import ends_are_told

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Batches", "aucs", "throughput"]

Crew = tuple[int, int]

PUSHES = (0.0, 0.0002, 0.0005, 0.0015)
"""Seconds of the servers for a push, at which Figure 7's throughput is looked at."""

_STATE = "busy"
_NOTE = (
    "AUC of the next day, mean over the days by GBA after those by Sync; differences from the arm with "
    "Sync's global batch and as many workers as asked for, seed by seed, ± half the 95% interval. A gradient "
    "takes as much time for each click whoever computes it. Hyper-parameters are Sync's. The cluster is busy."
)
_RATES_NOTE = "Examples per second over those of the fewest workers, where the servers take so long for a push."


@dataclass(frozen=True)
class Batches(Shared):
    """What ``leashed bench global-batch`` asks, as of ``switching.Setting``.

    Args:
        counts: workers of GBA, whose global batch stays (Figure 7).
        batches: clicks of a gradient of ``workers`` workers of GBA (Figure 8).

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    NAME: ClassVar[str] = "global-batch"
    TITLE: ClassVar[str] = "GBA's workers and batches"
    HELP: ClassVar[str] = "other workers and batches of GBA: Figures 7 and 8 of the GBA paper"
    DESCRIPTION: ClassVar[str] = (
        "Switch from Sync to GBA in virtual time with more workers and the same global batch, and with "
        "other global batches."
    )
    SIDE_BY_SIDE: ClassVar[bool] = True

    counts: tuple[int, ...] = option(
        (25, 50, 100, 200), "workers of the same global batch", partial(checks.whole, minimum=2)
    )
    batches: tuple[int, ...] = option(
        (4, 8, 16, 32, 64), "clicks of a gradient, of other global batches", checks.whole
    )
    push: float = option(0.0005, "seconds of the servers for a push", checks.seconds)
    rows: int = option(100_000, "clicks of a day", full=400_000, short=50_000)
    repeats: int = option(5, "seeds of each", checks.whole, full=11, short=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        step = self.workers * self.batch_size
        for n in self.counts:
            if step % n:
                raise ValueError(f"counts must divide the {step} clicks of a global batch, got {n}")

    @cached_property
    def clicks(self) -> list[ClickDataset]:
        """Of the days, and of the one after."""
        return self.days_of(self.rows, self.base + self.days + 1, self.drift)

    def settings(self) -> list[Record]:
        counts = dict.fromkeys([self.workers, *self.counts])
        asked: list[Record] = [{"counts": n} for n in counts]
        asked += [{"batches": batch} for batch in self.batches if batch != self.batch_size]
        asked += [{"counts": n, "charge": push} for n, push in product(counts, PUSHES)]
        return [{"repeat": repeat, **one} for repeat in range(self.repeats) for one in asked]

    def crew_of(self, setting: Record) -> Crew:
        """Workers, and clicks of a gradient."""
        if "batches" in setting:
            return self.workers, setting["batches"]
        return setting["counts"], self.workers * self.batch_size // setting["counts"]

    def measure(self, setting: Record, data: Any, go_on: GoOn) -> Any:  # noqa: ARG002
        seed, (workers, batch) = self.seed + setting["repeat"], self.crew_of(setting)
        crew = replace(
            self,
            workers=workers,
            batch_size=batch,
            compute=self.compute * batch / self.batch_size,
            push=setting.get("charge", self.push),
            sync_workers=1,
            counts=(),
        )
        if "charge" in setting:
            cluster = crew.cluster("GBA", _STATE)
            played = timed(mode_of(crew, "GBA"), batch, cluster, self.every, 10, seed)
            return {"eps": played.result.examples / played.result.elapsed}
        return {"auc": self._days(crew, seed, go_on)}

    @ends_are_told()
    def _days(self, crew: Batches, seed: int, go_on: GoOn) -> list[float]:
        going, found = Model(self.graph().init(seed), self.tables(seed)), []
        for day in range(self.base + self.days):
            clicks = self.clicks[day : day + 2]
            of, mode = (self, "Sync") if day < self.base else (crew, "GBA")
            played = trained(of, going, mode, _STATE, clicks, seed + day, go_on)
            found.append(float(played.result.validation_auc[-1]))
        return found[self.base :]

    def parts(self, records: Sequence[Record]) -> list[Part]:
        step = self.workers * self.batch_size
        own = (self.workers, self.batch_size)
        found = aucs(self, records)

        def drawn() -> Figure:
            from leashed.studies.plots import switching  # noqa: PLC0415 (matplotlib is optional)

            of = {n * batch: found[n, batch] for n, batch in sorted(found) if n == self.workers}
            return switching.batches(of)

        figure7 = [one for one in found if one[0] * one[1] == step]
        figure8 = [one for one in found if one[0] == self.workers]
        return [
            Part(
                "More workers, the same global batch (Figure 7)", _table(found, figure7, own), _NOTE
            ),
            Part("Throughput (Figure 7)", _rates(throughput(records)), _RATES_NOTE),
            Part(
                "Other global batches (Figure 8)",
                _table(found, figure8, own),
                "",
                drawn,
                "AUC by the global batch (gba, Figure 8): means over seeds, the least and the largest.",
            ),
        ]


def aucs(asked: Batches, records: Sequence[Record]) -> dict[Crew, list[float]]:
    """Mean over the days by GBA, of each seed, by workers and clicks of a gradient."""
    found: dict[Crew, list[float]] = {}
    for record in records:
        setting, measured = record["setting"], record["measured"]
        if "charge" not in setting:
            found.setdefault(asked.crew_of(setting), []).append(float(np.mean(measured["auc"])))
    return found


def throughput(records: Sequence[Record]) -> dict[tuple[int, float], float]:
    """Examples per second, mean over seeds, by workers and seconds of a push."""
    found: dict[tuple[int, float], list[float]] = {}
    for record in records:
        setting, measured = record["setting"], record["measured"]
        if "charge" in setting:
            found.setdefault((setting["counts"], setting["charge"]), []).append(measured["eps"])
    return {key: float(np.mean(of)) for key, of in found.items()}


def _table(found: dict[Crew, list[float]], crews: Sequence[Crew], own: Crew) -> Table:
    rows = []
    for n, batch in sorted(crews):
        rows.append(
            [
                str(n),
                str(batch),
                str(n * batch),
                interval(found[n, batch]).text(),
                MISSING if (n, batch) == own else difference(found[n, batch], found[own]).text(5),
            ]
        )
    return Table(["workers", "batch", "global batch", "AUC", "difference"], rows)


def _rates(found: dict[tuple[int, float], float]) -> Table:
    counts, pushes = sorted({n for n, _ in found}), sorted({push for _, push in found})
    rows = [
        [f"{1000 * push:g} ms", *(number(found[n, push] / found[counts[0], push]) for n in counts)]
        for push in pushes
    ]
    return Table(["push", *(f"{n:g} workers" for n in counts)], rows)
