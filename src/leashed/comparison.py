"""The paper's comparison: runs of one setting taken together, and the table of all settings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import analysis
from leashed.histogram import Histogram, TimeDistribution
from leashed.runs import ALGORITHMS, Run


@dataclass(frozen=True)
class SectionIV:
    """The paper's analysis of the retry loop for measured values of its three parameters.

    Attributes:
        m: threads.
        T_c: seconds to compute a gradient.
        T_u: seconds of one attempt to update and publish.
        gamma: gradients dropped over gradients published.
    """

    m: int
    T_c: float
    T_u: float
    gamma: float

    @property
    def fixed_point(self) -> float:
        """n* (below eq. 4)."""
        return analysis.fixed_point(self.m, self.T_c, self.T_u)

    @property
    def fixed_point_persistence(self) -> float:
        """n*_γ (eq. 7)."""
        return analysis.fixed_point_persistence(self.m, self.T_c, self.T_u, self.gamma)

    @property
    def relaxation(self) -> float:
        """The time in seconds after which n(t) has come 63% closer to its fixed point."""
        return 1.0 / (1.0 / self.T_c + (1.0 + self.gamma) / self.T_u)

    def occupancy(self, t: ArrayLike) -> NDArray[np.float64]:
        """n(t) from n(0) = 0, when every thread begins with a gradient (eqs. 4 to 6)."""
        return analysis.occupancy(t, self.m, self.T_c, self.T_u, gamma=self.gamma)


@dataclass(frozen=True, eq=False)
class Cell:
    """All repeats of one setting: a model, a step size, a batch size, an algorithm and m threads.

    Attributes:
        runs: the repeats, at least one.
    """

    runs: tuple[Run, ...]

    @property
    def algorithm(self) -> str:
        """The paper's name of the discipline."""
        return self.runs[0].algorithm

    @property
    def threads(self) -> int:
        """Worker threads m."""
        return self.runs[0].threads

    @property
    def model(self) -> str:
        """Name of the network."""
        return self.runs[0].model

    @property
    def lr(self) -> float:
        """Step size η."""
        return self.runs[0].lr

    @property
    def batch_size(self) -> int:
        """Examples per gradient."""
        return self.runs[0].batch_size

    @property
    def leashed(self) -> bool:
        """Whether the algorithm has the retry loop that section IV analyses."""
        return self.algorithm.startswith("LSH")

    def seconds_to(self, fraction: float) -> NDArray[np.float64]:
        """float64 [converged runs]; the times to ε-convergence."""
        return _known(run.result.seconds_to(fraction) for run in self.runs)

    def updates_to(self, fraction: float) -> NDArray[np.float64]:
        """float64 [converged runs]; the updates to ε-convergence."""
        return _known(run.result.updates_to(fraction) for run in self.runs)

    def outcomes(self, fraction: float) -> Counter[str]:
        """How many runs converged, diverged, crashed and were interrupted at this precision."""
        return Counter(run.outcome(fraction) for run in self.runs)

    @property
    def crashed(self) -> int:
        """Runs that ended in NaN or Inf, whatever they reached before."""
        return sum(run.result.outcome == "crashed" for run in self.runs)

    @property
    def seconds_per_update(self) -> NDArray[np.float64]:
        """float64 [runs with an update]; wall-clock time per update, all threads together."""
        return np.array(
            [
                run.result.elapsed / run.result.total_updates
                for run in self.runs
                if run.result.total_updates
            ]
        )

    @property
    def eps(self) -> float:
        """Median over the runs of the mean examples per second."""
        return float(np.median([run.result.mean_eps for run in self.runs]))

    @property
    def staleness(self) -> Histogram:
        """τ of all updates of all runs."""
        return reduce(add, (run.result.staleness for run in self.runs))

    @property
    def staleness_compute(self) -> Histogram:
        """τᶜ of all updates of all runs."""
        return reduce(add, (run.result.staleness_compute for run in self.runs))

    @property
    def staleness_schedule(self) -> Histogram:
        """τˢ of all updates of all runs."""
        return reduce(add, (run.result.staleness_schedule for run in self.runs))

    @property
    def gradient_seconds(self) -> TimeDistribution:
        """T_c over all runs."""
        return reduce(add, (run.result.gradient_seconds for run in self.runs))

    @property
    def update_seconds(self) -> TimeDistribution:
        """T_u over all runs."""
        return reduce(add, (run.result.update_seconds for run in self.runs))

    @property
    def gamma(self) -> float:
        """Gradients dropped over gradients published, over all runs."""
        return analysis.gamma(
            sum(run.result.dropped for run in self.runs),
            sum(run.result.total_updates for run in self.runs),
        )

    @property
    def peak_vectors(self) -> int:
        """Most parameter vectors and gradients allocated at once in any run."""
        return max(run.result.peak_vectors for run in self.runs)

    @property
    def peak_memory_bytes(self) -> int:
        """Most resident memory of any run."""
        return max(run.result.peak_memory_bytes for run in self.runs)

    @property
    def in_loop(self) -> float:
        """The mean number of threads in the retry loop as measured, by Little's law.

        The time that all threads together spent in the loop, over the time that passed.
        """
        elapsed = sum(run.result.elapsed for run in self.runs)
        return self.update_seconds.total / elapsed if elapsed > 0.0 else math.nan

    @property
    def attempt_seconds(self) -> float:
        """T_u of section IV: mean time of one attempt to update and publish; NaN without any.

        ``update_seconds`` counts the time from entering the retry loop to leaving it, over all
        attempts; a gradient published after k failed attempts took k + 1, a dropped one k.
        """
        tries = reduce(add, (run.result.tries for run in self.runs))
        failed = int(np.arange(tries.counts.size) @ tries.counts)
        attempts = failed + sum(run.result.total_updates for run in self.runs)
        return self.update_seconds.total / attempts if attempts else math.nan

    @property
    def section_iv(self) -> SectionIV | None:
        """The analysis of section IV from this cell's T_c, T_u and γ; None if they are missing."""
        computing, attempting = self.gradient_seconds.mean(), self.attempt_seconds
        if not (computing > 0.0 and attempting > 0.0):
            return None
        return SectionIV(self.threads, computing, attempting, self.gamma)


def _known(values: Iterable[float]) -> NDArray[np.float64]:
    return np.array([v for v in values if not math.isnan(v)], dtype=np.float64)


def model_order(model: str) -> tuple[bool, str]:
    """Key that sorts models by name, the paper's MLP first."""
    return (model != "mlp", model)


def algorithm_order(algorithm: str) -> tuple[int, str]:
    """Key that sorts the paper's algorithms in its order, and others after them by name."""
    known = algorithm in ALGORITHMS
    return (ALGORITHMS.index(algorithm) if known else len(ALGORITHMS), algorithm)


def cells(runs: Iterable[Run]) -> list[Cell]:
    """The runs by setting: ordered by model (MLP first), step, batch size, algorithm, threads."""
    groups: dict[tuple[str, float, int, str, int], list[Run]] = {}
    for run in runs:
        key = (run.model, run.lr, run.batch_size, run.algorithm, run.threads)
        groups.setdefault(key, []).append(run)

    def order(key: tuple[str, float, int, str, int]) -> tuple[object, ...]:
        model, lr, batch_size, algorithm, threads = key
        return (*model_order(model), lr, batch_size, *algorithm_order(algorithm), threads)

    return [Cell(tuple(groups[key])) for key in sorted(groups, key=order)]


def fractions(runs: Iterable[Run]) -> tuple[float, ...]:
    """Every precision ε that some run was asked for, largest first."""
    return tuple(sorted({f for run in runs for f in run.fractions}, reverse=True))


def overview_fraction(runs: Iterable[Run]) -> float | None:
    """The precision of the overview figures: the paper's 50%, else the largest; None without."""
    asked = fractions(runs)
    if not asked:
        return None
    return 0.5 if 0.5 in asked else asked[0]


def yardstick(runs: Sequence[Run]) -> list[Run]:
    """The runs at one step size and batch size, for the figures that hold both fixed.

    As in the paper (S1) it is the setting at which most runs reach their precision; among equals
    the one with the most runs, and then the smallest step.
    """
    if not runs:
        return []
    groups: dict[tuple[float, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.lr, run.batch_size), []).append(run)

    def merit(key: tuple[float, int]) -> tuple[int, int, float, int]:
        group = groups[key]
        fraction = overview_fraction(group)
        reached = 0 if fraction is None else sum(r.outcome(fraction) == "converged" for r in group)
        return (reached, len(group), -key[0], -key[1])

    return groups[max(groups, key=merit)]
