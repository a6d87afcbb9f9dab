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

from leashed.studies import analysis
from leashed.studies.runs import ALGORITHMS, Run
from leashed.training.histogram import Histogram, TimeDistribution

_BASELINES = ("ASYNC", "HOG")


@dataclass(frozen=True)
class SectionIV:
    """The paper's analysis of the retry loop for measured values of its three parameters.

    Attributes:
        m: threads.
        T_c: seconds to compute a gradient.
        T_u: seconds in the retry loop over gradients published.
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
    """All repeats of one setting of a study: a step size, a batch size, an algorithm, m threads.

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
    def repeats(self) -> list[Cell]:
        """Each run as a cell of its own, for what is told of every repeat."""
        return [Cell((run,)) for run in self.runs]

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
        """How many runs had each outcome at this precision, by :meth:`Run.outcome`'s names."""
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
    def vectors_in_use(self) -> NDArray[np.float64]:
        """float64; parameter vectors and gradients in use, at each evaluation while workers ran."""
        return np.concatenate([run.result.live_vectors[1:-1] for run in self.runs]).astype(float)

    @property
    def resident_bytes(self) -> NDArray[np.float64]:
        """float64; resident memory of the process, at each evaluation while workers ran."""
        return np.concatenate([run.result.memory_bytes[1:-1] for run in self.runs]).astype(float)

    @property
    def in_loop(self) -> float:
        """The mean number of threads in the retry loop as measured, by Little's law.

        The time that all threads together spent in the loop, over the time that passed.
        """
        elapsed = sum(run.result.elapsed for run in self.runs)
        return self.update_seconds.total / elapsed if elapsed > 0.0 else math.nan

    @property
    def attempt_seconds(self) -> TimeDistribution:
        """Time of one attempt to update and publish (Figure 9's T_u): of each gradient's attempts
        the mean. Empty where the results do not have it.
        """
        return reduce(add, (run.result.attempt_seconds for run in self.runs))

    @property
    def published_seconds(self) -> float:
        """T_u of section IV: time in the retry loop over gradients published; NaN without any.

        Then n/T_u is the rate at which gradients are published, and n(1 + γ)/T_u (eq. 6) exactly
        that at which threads leave the loop.
        """
        published = sum(run.result.total_updates for run in self.runs)
        return self.update_seconds.total / published if published else math.nan

    @property
    def section_iv(self) -> SectionIV | None:
        """The analysis of section IV from this cell's T_c, T_u and γ; None if they are missing."""
        computing, publishing = self.gradient_seconds.mean(), self.published_seconds
        if not (computing > 0.0 and publishing > 0.0):
            return None
        return SectionIV(self.threads, computing, publishing, self.gamma)


@dataclass(frozen=True)
class Saving:
    """Memory of a Leashed algorithm beside that of ASYNC and HOG with as many threads.

    Attributes:
        cell: of the Leashed algorithm.
        vectors: mean number of parameter vectors and gradients in use.
        resident: mean resident memory in bytes.
        baseline_vectors: the mean over ASYNC and HOG of what ``vectors`` is; NaN without them.
        baseline_resident: the same of ``resident``.
    """

    cell: Cell
    vectors: float
    resident: float
    baseline_vectors: float
    baseline_resident: float

    @property
    def of_bound(self) -> float:
        """The share of the 2m + 1 vectors of Algorithms 2 and 4 that was not in use."""
        return 1.0 - self.vectors / (2 * self.cell.threads + 1)

    @property
    def of_vectors(self) -> float:
        """The share of the vectors of ASYNC and HOG, as measured, that was not in use."""
        return 1.0 - self.vectors / self.baseline_vectors

    @property
    def of_resident(self) -> float:
        """The share of the resident memory with ASYNC and HOG that was not taken."""
        return 1.0 - self.resident / self.baseline_resident


def mean_savings(found: Sequence[Saving]) -> tuple[float, float, float]:
    """The means of ``of_bound``, ``of_vectors`` and ``of_resident`` over more than one thread."""
    parallel = [s for s in found if s.cell.threads > 1]
    if not parallel:
        return (math.nan, math.nan, math.nan)
    rows = [(s.of_bound, s.of_vectors, s.of_resident) for s in parallel]
    bound, vectors, resident = np.mean(rows, axis=0)
    return (float(bound), float(vectors), float(resident))


def savings(group: Sequence[Cell]) -> list[Saving]:
    """The savings of memory of every Leashed cell of a group in which step and batch are fixed."""

    def mean(together: Iterable[NDArray[np.float64]]) -> float:
        means = [float(values.mean()) for values in together if values.size]
        return float(np.mean(means)) if means else math.nan

    found = []
    for cell in group:
        if cell.leashed and cell.vectors_in_use.size:
            base = [c for c in group if c.threads == cell.threads and c.algorithm in _BASELINES]
            found.append(
                Saving(
                    cell,
                    mean([cell.vectors_in_use]),
                    mean([cell.resident_bytes]),
                    mean(c.vectors_in_use for c in base),
                    mean(c.resident_bytes for c in base),
                )
            )
    return found


def _known(values: Iterable[float]) -> NDArray[np.float64]:
    return np.array([v for v in values if not math.isnan(v)], dtype=np.float64)


def thread_rates(run: Run) -> NDArray[np.float64]:
    """float64 [m]; updates per second of each thread. Empty where the result does not count them
    per thread.
    """
    counts = run.result.worker_updates.astype(np.float64)
    return counts / run.result.elapsed if run.result.elapsed > 0.0 else np.empty(0)


def model_order(model: str) -> tuple[bool, str]:
    """Key that sorts models by name, the paper's MLP first."""
    return (model != "mlp", model)


def algorithm_order(algorithm: str) -> tuple[int, str]:
    """Key that sorts the paper's algorithms in its order, and others after them by name."""
    known = algorithm in ALGORITHMS
    return (ALGORITHMS.index(algorithm) if known else len(ALGORITHMS), algorithm)


def study_key(run: Run) -> tuple[object, ...]:
    """What the runs of one study share: the model, the preset, the regime (the data, what white is,
    initialisation) and the precisions asked for.
    """
    config = run.result.config
    regime = (config.get("data"), config.get("pixels"), config.get("init"))
    return (run.model, run.preset, regime, run.fractions)


def study_order(run: Run) -> tuple[object, ...]:
    """Key that sorts runs by study: the paper's MLP first, then by preset."""
    _, preset, regime, asked = study_key(run)
    return (*model_order(run.model), preset or "", str(regime), asked)


def cells(runs: Iterable[Run]) -> list[Cell]:
    """The runs by setting: ordered by study, step, batch size, algorithm and threads."""

    def order(run: Run) -> tuple[object, ...]:
        algorithm = algorithm_order(run.algorithm)
        return (*study_order(run), run.lr, run.batch_size, *algorithm, run.threads)

    groups: dict[object, list[Run]] = {}
    for run in sorted(runs, key=order):
        key = (*study_key(run), run.lr, run.batch_size, run.algorithm, run.threads)
        groups.setdefault(key, []).append(run)
    return [Cell(tuple(group)) for group in groups.values()]


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

    As in the paper (S1) it is the one that performs best: at which most runs reach the precision
    of the overview, then that with the least median time of those which do; among equals the one
    with the most runs, and then the smallest step.
    """
    if not runs:
        return []
    fraction = overview_fraction(runs)
    groups: dict[tuple[float, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.lr, run.batch_size), []).append(run)

    def merit(key: tuple[float, int]) -> tuple[int, float, int, float, int]:
        group = groups[key]
        times = np.empty(0)
        if fraction is not None:
            times = _known(run.result.seconds_to(fraction) for run in group)
        median = float(np.median(times)) if times.size else math.inf
        return (times.size, -median, len(group), -key[0], -key[1])

    return groups[max(groups, key=merit)]
