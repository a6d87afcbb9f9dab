"""Which discipline, number of threads, batch size and step size reach a loss soonest here."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from leashed.base import checks
from leashed.base.machine import cores
from leashed.datasets import Dataset, Split
from leashed.disciplines import Discipline, Hogwild, Leashed, Locked, Sequential, Synchronous
from leashed.models.network import Model
from leashed.rules import SGD
from leashed.stopping import Until
from leashed.training.doubts import ends_are_told
from leashed.training.train import train

__all__ = ["Candidate", "Trial", "Tuning", "tune"]

BATCH_SIZES = (16, 64, 512)
_FIRST_LR = 0.1
_SLACK = 1.5  # a trial may take so many times the best time so far
_SHORTEST = 0.2  # seconds that every trial may take
_SEMIFINALISTS, _SEEDS = 9, 2  # one seed alone chooses by luck
_FINALISTS = 3


@dataclass(frozen=True)
class Candidate:
    """A choice that ``tune`` compares."""

    discipline: Discipline
    threads: int
    batch_size: int
    lr: float

    def __str__(self) -> str:
        return (
            f"{self.discipline.label}, {self.threads} thread{'s' if self.threads > 1 else ''}, "
            f"batch {self.batch_size}, η = {self.lr:g}"
        )


@dataclass(frozen=True)
class Trial:
    """One run of a candidate.

    Attributes:
        candidate: what ran.
        seed: of the run.
        seconds: time to ε; infinite where the run did not get there.
        outcome: of the run, as in ``TrainResult``.
        elapsed: time the run took.
    """

    candidate: Candidate
    seed: int
    seconds: float
    outcome: str
    elapsed: float


@dataclass(frozen=True)
class Tuning:
    """What ``tune`` found.

    Attributes:
        best: the candidate with the least median time to ε.
        seconds: that median.
        trials: everything tried, in order.
    """

    best: Candidate
    seconds: float
    trials: tuple[Trial, ...] = field(repr=False)


def tune(
    model: Model,
    data: Dataset | Split,
    *,
    loss_fraction: float = 0.1,
    seconds: float = 60.0,
    threads: int | None = None,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    seed: int = 0,
    init: str = "he",
    progress: Callable[[Trial], object] | None = None,
) -> Tuning:
    """Find the choice with the least time to ε-convergence on this machine, within a budget.

    First the step size, doubled or halved while that helps, for each batch size under
    ``Leashed()`` on all threads; then every discipline and number of threads at the best of
    these, each with the steps beside it; then the nine soonest with two more seeds, and the three
    soonest of these with others, until the budget is spent. A trial ends early once it has taken
    1.5 times the best time so far.

    Args:
        model: the network.
        data: the training set; of a ``Split``, its ``train``.
        loss_fraction: ε, the share of the initial loss to reach (0 to 1).
        seconds: the budget for all trials together.
        threads: the most threads to try. Default: the processors this process may use.
        batch_sizes: those to try; those larger than the data are left out.
        seed: of the first trials; the finalists run with the next ones too.
        init: initialisation, as for :func:`leashed.train`.
        progress: called after every trial.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
        RuntimeError: no trial reached ε within the budget.
    """
    training = data.train if isinstance(data, Split) else data
    most = cores() if threads is None else checks.whole("threads", threads)
    sizes = [n for n in (checks.whole("batch_sizes", n) for n in batch_sizes) if n <= len(training)]
    if not sizes:
        raise ValueError(f"batch_sizes must hold one of at most {len(training)} examples")
    search = _Search(
        model,
        training,
        loss_fraction,
        init,
        time.monotonic() + checks.real("seconds", seconds, 0.0),
        progress,
    )
    for size in sizes:
        search.climb(Candidate(Leashed(), most, size, _FIRST_LR), seed)
    if search.best is not None:
        lead = search.best.candidate
        for discipline, m in _disciplines(most):
            for factor in (1.0, 2.0, 0.5):
                search.run(Candidate(discipline, m, lead.batch_size, lead.lr * factor), seed)
        semifinalists = search.ranking()[:_SEMIFINALISTS]
        for _ in range(_SEEDS):
            seed += 1
            for candidate in semifinalists:
                search.run(candidate, seed)
        finalists = search.ranking()[:_FINALISTS]
        while search.time_left():
            seed += 1
            for candidate in finalists:
                search.run(candidate, seed)
    ranking = search.ranking()
    if not ranking:
        raise RuntimeError(
            f"no trial reached {loss_fraction:g} of the initial loss in {seconds:g} s; "
            "give more seconds or a larger loss_fraction"
        )
    return Tuning(ranking[0], search.median(ranking[0]), tuple(search.trials))


def _disciplines(most: int) -> Iterator[tuple[Discipline, int]]:
    for m in sorted({most, most // 2} - {0, 1}, reverse=True):
        for discipline in (
            Leashed(),
            Leashed(1),
            Leashed(0),
            Hogwild(),
            Hogwild(copy=False),
            Locked(),
            Synchronous(),
        ):
            yield discipline, m
    yield Sequential(), 1


class _Search:
    """The trials so far, and the clock."""

    def __init__(
        self,
        model: Model,
        data: Dataset,
        loss_fraction: float,
        init: str,
        deadline: float,
        progress: Callable[[Trial], object] | None,
    ) -> None:
        self.model, self.data, self.loss_fraction, self.init = model, data, loss_fraction, init
        self.deadline, self.progress = deadline, progress
        self.trials: list[Trial] = []
        self.interrupted = False

    @property
    def best(self) -> Trial | None:
        """The soonest trial, or None where none reached ε."""
        reached = [t for t in self.trials if math.isfinite(t.seconds)]
        return min(reached, key=lambda t: t.seconds, default=None)

    def time_left(self) -> bool:
        return not self.interrupted and time.monotonic() < self.deadline

    def median(self, candidate: Candidate) -> float:
        return statistics.median(t.seconds for t in self.trials if t.candidate == candidate)

    def ranking(self) -> list[Candidate]:
        """The candidates that reached ε at every trial, those tried most first, then the soonest."""
        reached = {t.candidate for t in self.trials} - {
            t.candidate for t in self.trials if not math.isfinite(t.seconds)
        }
        tries = {c: sum(t.candidate == c for t in self.trials) for c in reached}
        return sorted(reached, key=lambda c: (-tries[c], self.median(c)))

    def climb(self, first: Candidate, seed: int) -> None:
        """Double the step while that helps; where it never does, halve it while that helps."""
        start = best = self.run(first, seed)
        for factor in (2.0, 0.5):
            here = dataclasses.replace(first, lr=first.lr * factor)
            while self.time_left() and (seconds := self.run(here, seed)) < best:
                best = seconds
                here = dataclasses.replace(here, lr=here.lr * factor)
            if best < start:
                return

    @ends_are_told()
    def run(self, candidate: Candidate, seed: int) -> float:
        """Time to ε; infinite where it is not reached in time. The same trial is not run twice."""
        for trial in self.trials:
            if (trial.candidate, trial.seed) == (candidate, seed):
                return trial.seconds
        left = self.deadline - time.monotonic()
        if self.interrupted or left <= 0:
            return math.inf
        limit = left if self.best is None else max(_SLACK * self.best.seconds, _SHORTEST)
        result = train(
            self.model,
            self.data,
            discipline=candidate.discipline,
            rule=SGD(candidate.lr),
            threads=candidate.threads,
            batch_size=candidate.batch_size,
            seed=seed,
            init=self.init,
            until=Until(loss_fraction=self.loss_fraction, seconds=min(limit, left), divergence=4.0),
        )
        self.interrupted = result.reason == "interrupted"
        seconds = result.seconds_to(self.loss_fraction)
        trial = Trial(
            candidate,
            seed,
            math.inf if math.isnan(seconds) else seconds,
            result.outcome,
            result.elapsed,
        )
        self.trials.append(trial)
        if self.progress is not None:
            self.progress(trial)
        return trial.seconds
