"""How many threads are in the retry loop at once: leashed-sgd, section IV, against what is counted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leashed import simulation
from leashed.base.machine import cores
from leashed.datasets import Dataset
from leashed.disciplines import Leashed
from leashed.models.network import Model
from leashed.rules import SGD
from leashed.simulation.virtual_time import Costs, Simulation
from leashed.stopping import Until
from leashed.studies import analysis
from leashed.training.result import TrainResult, gamma
from leashed.training.train import train

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


@dataclass(frozen=True)
class Contention:
    """What to count.

    Args:
        threads: numbers of threads m.
        persistence: bounds T_p.
        costs: T_c and T_u of one thread, in seconds.
        updates: of each run, for every thread.
        repeats: runs of each setting, of seeds ``seed``, ``seed + 1`` and so on.
        seed: of the first.
        real: also on real threads, where there is a core for each.
    """

    costs: Costs
    threads: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    persistence: tuple[float, ...] = (math.inf, 1, 0)
    updates: int = 20
    repeats: int = 5
    seed: int = 0
    real: bool = True


def study(asked: Contention, model: Model, data: Dataset) -> Iterator[Point]:
    """Count, one point after the other.

    In virtual time gradients take exponentially distributed times, as the rates of eq. 4 suppose,
    and every attempt to update takes T_u. On real threads both are what they are.
    """
    for persistence in asked.persistence:
        for m in asked.threads:
            discipline = Leashed(persistence=persistence)
            played = [
                simulation.simulate(
                    model,
                    data,
                    cluster=simulation.exponential(
                        m, asked.costs.compute, update=asked.costs.update
                    ),
                    until=Until(updates=asked.updates * m),
                    discipline=discipline,
                    rule=SGD(0.01),
                    batch_size=_BATCH,
                    seed=asked.seed + repeat,
                )
                for repeat in range(asked.repeats)
            ]
            yield _played(asked, m, persistence, played)
            if asked.real and m <= cores():
                yield _counted(
                    m,
                    persistence,
                    [
                        train(
                            model,
                            data,
                            until=Until(seconds=0.5),
                            discipline=discipline,
                            rule=SGD(0.01),
                            threads=m,
                            seed=asked.seed + repeat,
                        )
                        for repeat in range(asked.repeats)
                    ],
                )


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
