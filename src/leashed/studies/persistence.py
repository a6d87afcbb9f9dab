"""Where the persistence bound pays: leashed-sgd, Figures 3, 4, 5 and 8, over T_c ÷ T_u.

How much threads disturb each other depends on how many updates fall into a gradient's time, m T_u ÷ T_c,
and not on the machine. So the same training is played at several ratios, numbers of threads and steps;
time is counted in T_c, and so is the limit of each run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from leashed import models, simulation
from leashed.base import checks
from leashed.base.table import MISSING, Table, number, spread
from leashed.datasets import Dataset, Split
from leashed.rules import SGD
from leashed.stopping import Until
from leashed.studies.plan import DISCIPLINES
from leashed.studies.study import GoOn, Part, Record, Study, option, revived, unbroken
from leashed.training.doubts import ends_are_told
from leashed.training.options import Observe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ALGORITHMS", "BOUNDED", "Asked", "Cell", "Ended", "cells"]

ALGORITHMS = ("ASYNC", "HOG", "LSH_ps∞", "LSH_ps1", "LSH_ps0")
"""The paper's asynchronous ones."""

BOUNDED = ("LSH_ps1", "LSH_ps0")
"""Those with a persistence bound."""

_HALF = 0.5  # of the initial loss: what a run is to come to
_COPY = 0.37  # of T_u: a copy of the MLP's parameters, as one thread takes for both when idle
_DEVIATION = 0.05  # of T_c
_WHITE = 255  # what white is, as in the presets
_HIDDEN = (128, 128, 128)


@dataclass(frozen=True, eq=False)
class Ended:
    """One run. Losses are shares of the initial one.

    Attributes:
        half: T_c until the loss was half; NaN where it never was.
        updates: published until then; NaN likewise.
        least: the lowest loss.
        last: the loss at the end; NaN after a crash.
        staleness: mean of the published gradients.
        dropped: gradients dropped over all.
        interval: T_c from one published update to the next, times m.
        dispersion: variance of the threads' updates over their mean: at most 1 where chance says whose
            each is, more where some threads get ahead.
        seconds: float64 [E]; T_c of each evaluation.
        loss: float64 [E]; at those.
    """

    half: float
    updates: float
    least: float
    last: float
    staleness: float
    dropped: float
    interval: float
    dispersion: float
    seconds: NDArray[np.float64]
    loss: NDArray[np.float64]


@dataclass(frozen=True)
class Asked(Study):
    """What to train.

    Args:
        threads: numbers of threads m.
        ratio: T_c ÷ T_u.
        lr: step sizes η.
        repeats: runs of each setting, of seeds ``seed``, ``seed + 1`` and so on.
        cap: T_c of a run, whatever the threads. It ends earlier when it is at half of its initial loss.
        batch_size: examples of a gradient; the paper's is 512.
        rows: of the training set that evaluations are of.
        seed: of the first.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    NAME: ClassVar[str] = "persistence"
    TITLE: ClassVar[str] = "Where the persistence bound pays"
    HELP: ClassVar[str] = "where Leashed-SGD's persistence bound pays, over T_c ÷ T_u"
    DESCRIPTION: ClassVar[str] = (
        "Train the Leashed-SGD paper's MLP in virtual time under every asynchronous discipline, over "
        "T_c ÷ T_u, numbers of threads and step sizes, until the loss is half or the run's limit, "
        "counted in T_c, is over."
    )
    DATA: ClassVar[bool] = True
    SIDE_BY_SIDE: ClassVar[bool] = True

    threads: tuple[int, ...] = option((16, 34, 68), "m", checks.whole)
    ratio: tuple[float, ...] = option(
        (60.0, 30.0, 20.0, 15.0, 8.0),
        "T_c over T_u",
        partial(checks.real, above=0.0),
        short=(60.0, 15.0, 8.0),
    )
    lr: tuple[float, ...] = option((0.005,), "step sizes", checks.step)
    repeats: int = option(5, "seeds of each setting", checks.whole, short=1)
    cap: float = option(300.0, "T_c of a run", partial(checks.real, above=0.0), short=100.0)
    batch_size: int = option(128, "examples of a gradient; the paper's is 512", checks.whole)
    rows: int = option(2560, "of the training set, for evaluations", checks.whole, command=False)
    seed: int = option(0, "the first", partial(checks.whole, minimum=0))

    def settings(self) -> list[Record]:
        names = ("repeat", "threads", "ratio", "lr", "algorithm")
        return [
            dict(zip(names, values, strict=True))
            for values in product(
                range(self.repeats), self.threads, self.ratio, self.lr, ALGORITHMS
            )
        ]

    @ends_are_told()
    def measure(self, setting: Record, data: Split, go_on: GoOn) -> Ended:
        train, m, update = _whitened(data.train), setting["threads"], 1.0 / setting["ratio"]
        played = simulation.simulate(
            models.mlp(train.features, _HIDDEN, train.classes),
            train,
            cluster=simulation.normal(m, 1.0, _DEVIATION, update=update, copy=_COPY * update),
            discipline=DISCIPLINES[setting["algorithm"]],
            rule=SGD(setting["lr"]),
            batch_size=self.batch_size,
            seed=self.seed + setting["repeat"],
            init="normal",
            until=Until(loss_fraction=_HALF, seconds=self.cap),
            observe=Observe(go_on, every=max(1.0, 32.0 / m), rows=self.rows),
        )
        result = unbroken(played.result)
        loss = np.asarray(result.loss, np.float64) / result.initial_loss
        published = result.total_updates
        return Ended(
            result.seconds_to(_HALF),
            result.updates_to(_HALF),
            float(np.nanmin(loss)),
            math.nan if result.outcome == "crashed" else float(loss[-1]),
            result.staleness.mean(),
            result.dropped / max(1, result.dropped + published),
            m * result.elapsed / max(1, published),
            float(np.var(result.worker_updates)) / max(1.0, float(np.mean(result.worker_updates))),
            np.asarray(result.seconds, np.float64),
            loss,
        )

    def parts(self, records: Sequence[Record]) -> list[Part]:
        found = cells(records)

        def map_of_ratios() -> Figure:
            from leashed.studies.plots import persistence  # noqa: PLC0415 (matplotlib is optional)

            return persistence.paying(found)

        def over_time() -> Figure:
            from leashed.studies.plots import persistence  # noqa: PLC0415

            return persistence.over_time(found)

        return [
            Part(
                self.TITLE,
                Table(_HEADER, [one.row() for one in found]),
                _NOTE,
                map_of_ratios,
                "The lowest share of the initial loss that a run came to within its limit, means over "
                "the seeds; the line is where the bound's best is below the others' best.",
            ),
            Part(
                "Loss over time",
                note="Of every run, in the report's figure.",
                drawn=over_time,
                caption="Shares of the initial loss over T_c (leashed-sgd, Figure 5); a line a seed.",
            ),
        ]


@dataclass(frozen=True, eq=False)
class Cell:
    """The runs of one setting, a seed each."""

    threads: int
    ratio: float
    lr: float
    algorithm: str
    runs: tuple[Ended, ...]

    @property
    def reached(self) -> list[float]:
        """T_c to half of the initial loss, of the runs that came to it."""
        return [run.half for run in self.runs if not math.isnan(run.half)]

    @property
    def median(self) -> float:
        """T_c to half, of all runs; infinite where most never came to it."""
        return float(
            np.median([math.inf if math.isnan(run.half) else run.half for run in self.runs])
        )

    @property
    def least(self) -> float:
        """The lowest loss, a mean over the runs."""
        return float(np.mean([run.least for run in self.runs]))

    def row(self) -> list[str]:
        """Of the study's table."""
        lasts = [run.last for run in self.runs if not math.isnan(run.last)]
        updates = [run.updates for run in self.runs if not math.isnan(run.updates)]
        return [
            self.algorithm,
            str(self.threads),
            f"{self.ratio:g}",
            f"{self.lr:g}",
            f"{len(self.reached)}/{len(self.runs)}",
            spread(self.reached),
            spread(updates) if updates else MISSING,
            spread([run.least for run in self.runs]),
            spread(lasts),
            str(len(self.runs) - len(lasts)),
            number(float(np.mean([run.staleness for run in self.runs]))),
            number(float(np.mean([run.dropped for run in self.runs]))),
            number(float(np.mean([run.interval for run in self.runs]))),
        ]


_HEADER = [
    "algorithm",
    "m",
    "T_c ÷ T_u",
    "η",
    "at 50%",
    "T_c to 50%",
    "updates to 50%",
    "lowest share of the loss",
    "last",
    "crashed",
    "mean staleness",
    "dropped",
    "T_c an update × m",
]
_NOTE = (
    "MLP of 134,794 parameters at MNIST's size, pixels 0…255, from N(0, 0.01), in virtual time: "
    "gradients take T_c, normally distributed with a deviation of a twentieth; a copy takes 0.37 T_u. "
    "Medians (least–most) over the seeds; runs that came to 50% end there."
)


def cells(records: Sequence[Record]) -> list[Cell]:
    """One for each setting of records, in their order."""
    runs: dict[tuple[Any, ...], list[Ended]] = {}
    for record in records:
        setting = record["setting"]
        key = tuple(setting[name] for name in ("threads", "ratio", "lr", "algorithm"))
        runs.setdefault(key, []).append(revived(Ended, record["measured"]))
    return [
        Cell(threads, ratio, lr, algorithm, tuple(of))
        for (threads, ratio, lr, algorithm), of in runs.items()
    ]


def _whitened(data: Dataset) -> Dataset:
    return dataclasses.replace(data, x=data.x * np.float32(_WHITE))
