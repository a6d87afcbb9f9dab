"""How many threads are in the retry loop at once: leashed-sgd, section IV, against what is counted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from leashed import models, simulation
from leashed.base import checks
from leashed.base.machine import cores
from leashed.base.table import Table, number, spread
from leashed.datasets import Dataset
from leashed.disciplines import Leashed
from leashed.models.network import Model
from leashed.rules import SGD
from leashed.simulation.virtual_time import Costs, Simulation
from leashed.stopping import Until
from leashed.studies import analysis
from leashed.studies.study import Data, GoOn, Part, Record, Study, option, revived, unbroken
from leashed.training.result import TrainResult, gamma
from leashed.training.train import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Contention", "Point", "study"]

_REACHES = 8.0  # relaxations, after which n has come to its fixed point
_BATCH = 16


@dataclass(frozen=True, eq=False)
class Point:
    """Some threads under one persistence bound.

    Attributes:
        threads: m.
        persistence: T_p; infinite: no bound.
        real: counted on real threads; False: in virtual time.
        compute: T_c, seconds.
        update: T_u of one attempt, seconds.
        n: float64 [repeats]; threads in the loop, as a mean over a run.
        gamma: float64 [repeats]; dropped gradients over published ones.
        staleness: float64 [repeats]; mean τˢ.
        tries: float64 [repeats]; mean failed attempts of a gradient.
        moments: float64 [k]; seconds after all have begun to compute; empty where not played.
        over_time: float64 [k]; n then, as a mean over the repeats.
    """

    threads: int
    persistence: float
    real: bool
    compute: float
    update: float
    n: NDArray[np.float64]
    gamma: NDArray[np.float64]
    staleness: NDArray[np.float64]
    tries: NDArray[np.float64]
    moments: NDArray[np.float64]
    over_time: NDArray[np.float64]

    @property
    def fixed_point(self) -> float:
        """n*, below eq. 4."""
        return analysis.fixed_point(self.threads, self.compute, self.update)

    @property
    def fixed_point_persistence(self) -> float:
        """n*_γ, eq. 7, of the γ that was counted."""
        return analysis.fixed_point_persistence(
            self.threads, self.compute, self.update, float(self.gamma.mean())
        )

    def expected(self) -> NDArray[np.float64]:
        """n(t) of eqs. 5 and 6 at ``moments``."""
        return analysis.occupancy(
            self.moments, self.threads, self.compute, self.update, gamma=float(self.gamma.mean())
        )


_HEADER = ["m", "T_p", "time", "n", "n*", "n*_γ", "τˢ", "γ", "failed attempts"]
_NOTE = (
    "n: threads in the retry loop, as a mean over a run; n* and n*_γ: its fixed points without and "
    "with the γ that was counted (leashed-sgd, eqs. 4 and 7), which also estimates the mean of τˢ. "
    "Intervals: the least and the largest of the repeats. In virtual time gradients take "
    "exponentially distributed times; that threads slow each other down is not played. On real threads "
    "it is a small model's own T_c and T_u, which n* is computed of."
)


@dataclass(frozen=True)
class Contention(Study):
    """What to count.

    In virtual time gradients take exponentially distributed times, as the rates of eq. 4 suppose,
    and every attempt to update takes T_u. On real threads both are what they are.

    Args:
        threads: numbers of threads m.
        persistence: bounds T_p.
        costs: T_c and T_u of one thread, in seconds.
        updates: of each run, for every thread, as long as none is given up.
        repeats: runs of each setting, of seeds ``seed``, ``seed + 1`` and so on.
        seed: of the first.
        real: also on real threads, where there is a core for each.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    NAME: ClassVar[str] = "contention"
    TITLE: ClassVar[str] = "Threads in the retry loop"

    costs: Costs
    threads: tuple[int, ...] = option((1, 2, 4, 8, 16, 32, 64, 128, 256), "m", checks.whole)
    persistence: tuple[float, ...] = option((math.inf, 1, 0), "bounds T_p")
    updates: int = 20
    repeats: int = option(5, "runs of each", checks.whole, short=2)
    seed: int = option(0, "the first", partial(checks.whole, minimum=0))
    real: bool = True

    def conditions(self, data: Data) -> Record:
        return {**super().conditions(data), "repeats": self.repeats}

    @classmethod
    def of(cls, records: Sequence[Any]) -> Contention:
        settings = [record["setting"] for record in records]
        conditions = records[0]["conditions"]
        same = {name: conditions[name] for name in ("updates", "repeats", "seed", "real")}
        return cls(
            Costs(**conditions["costs"]),
            tuple(dict.fromkeys(setting["threads"] for setting in settings)),
            tuple(dict.fromkeys(float(setting["persistence"]) for setting in settings)),
            **same,
        )

    def settings(self) -> list[Record]:
        return [
            {"persistence": f"{persistence:g}", "threads": m, "time": when}
            for persistence in self.persistence
            for m in self.threads
            for when in ("virtual", "real")
            if when == "virtual" or (self.real and m <= cores())
        ]

    def measure(self, setting: Record, data: Dataset, go_on: GoOn) -> Record:  # noqa: ARG002
        point = self.point(setting, models.softmax_regression(data.features, data.classes), data)
        return {**vars(point), "persistence": setting["persistence"]}

    def point(self, setting: Record, model: Model, data: Dataset) -> Point:
        """What is counted in one setting, with any model, since n depends on T_c over T_u alone."""
        m, persistence = setting["threads"], float(setting["persistence"])
        seeds = range(self.seed, self.seed + self.repeats)
        how: Record = {"discipline": Leashed(persistence=persistence), "rule": SGD(0.01)}
        if setting["time"] == "real":
            until = Until(seconds=0.5)
            return _counted(
                m,
                persistence,
                [
                    unbroken(train(model, data, until=until, threads=m, seed=seed, **how))
                    for seed in seeds
                ],
            )
        cluster = simulation.exponential(m, self.costs.compute, update=self.costs.update)
        # By the clock: where updates are counted, threads leave one by one at the end.
        each = max(self.costs.compute + self.costs.update, m * self.costs.update)
        until = Until(seconds=self.updates * each)
        played = [
            simulation.simulate(
                model, data, cluster=cluster, until=until, batch_size=_BATCH, seed=seed, **how
            )
            for seed in seeds
        ]
        for one in played:
            unbroken(one.result)
        return _played(self, m, persistence, played)

    def parts(self, records: Sequence[Record]) -> list[Part]:
        points = []
        for record in records:
            measured = record["measured"]
            measured = {**measured, "persistence": float(measured["persistence"])}
            points.append(revived(Point, measured))

        def drawn() -> Figure:
            from leashed.studies.plots import contention  # noqa: PLC0415 (matplotlib is optional)

            return contention.over_time(points)

        caption = (
            "n over time, as a mean over the repeats (solid), and by eqs. 5 and 6 of leashed-sgd "
            "(dashed), after all threads have begun to compute."
        )
        table = Table(_HEADER, [_row(point) for point in points])
        return [Part(self.TITLE, table, _NOTE, drawn, caption)]


def study(asked: Contention, model: Model, data: Dataset) -> Iterator[Point]:
    """Count, one point after the other."""
    for setting in asked.settings():
        yield asked.point(setting, model, data)


def _row(point: Point) -> list[str]:
    return [
        str(point.threads),
        number(point.persistence) if math.isinf(point.persistence) else f"{point.persistence:g}",
        "real" if point.real else "virtual",
        spread(list(point.n)),
        number(point.fixed_point),
        number(point.fixed_point_persistence),
        spread(list(point.staleness)),
        spread(list(point.gamma)),
        spread(list(point.tries)),
    ]


def _played(asked: Contention, m: int, persistence: float, played: Sequence[Simulation]) -> Point:
    costs = asked.costs
    until = min(
        _REACHES / (1.0 / costs.compute + 1.0 / costs.update),
        *(one.result.elapsed for one in played),
    )
    moments = np.linspace(0.0, until, 200)
    levels = []
    for one in played:
        at = np.searchsorted(one.updating_moments, moments, side="right") - 1
        levels.append(np.where(at < 0, 0, one.updating[at]))
    return _point(
        m,
        persistence,
        False,
        (costs.compute, costs.update),
        [one.result for one in played],
        [one.mean_updating for one in played],
        (moments, np.mean(levels, axis=0)),
    )


def _counted(m: int, persistence: float, results: Sequence[TrainResult]) -> Point:
    none = np.empty(0)
    return _point(
        m,
        persistence,
        True,
        (
            float(np.mean([one.gradient_seconds.mean() for one in results])),
            float(np.mean([one.attempt_seconds.mean() for one in results])),
        ),
        results,
        [one.breakdown["update"] / one.elapsed for one in results],
        (none, none),
    )


def _point(
    m: int,
    persistence: float,
    real: bool,
    costs: tuple[float, float],
    results: Sequence[TrainResult],
    n: Sequence[float],
    series: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> Point:
    return Point(
        m,
        persistence,
        real,
        *costs,
        np.array(n),
        np.array([gamma(one.dropped, one.total_updates) for one in results]),
        np.array([one.staleness_schedule.mean() for one in results]),
        np.array([one.tries.mean() for one in results]),
        *series,
    )
