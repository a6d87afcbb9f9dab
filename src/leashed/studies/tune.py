"""Which discipline, number of threads, batch size and step size reach a loss soonest here."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from leashed.base import checks
from leashed.base.machine import cores
from leashed.base.table import Table, duration
from leashed.datasets import Dataset, Split
from leashed.disciplines import Discipline, Hogwild, Leashed, Locked, Sequential, Synchronous
from leashed.models._parameters import INITIALISATIONS
from leashed.models.network import Model
from leashed.rules import SGD
from leashed.stopping import Until
from leashed.studies.study import Data, Part, Record, Study, left, option
from leashed.training.doubts import ends_are_told
from leashed.training.problems.problem import NETWORKS, build_model
from leashed.training.train import train

__all__ = ["Candidate", "Search", "Trial", "Tuning", "trial_of", "tune"]

BATCH_SIZES = (16, 64, 512)
_FIRST_LR = 0.1
_SLACK = 1.5  # a trial may take so many times the best time so far
_SHORTEST = 0.2  # seconds that every trial may take
_NOTHING = 0.05  # seconds in which none is begun again
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
    sizes = _sizes(batch_sizes, len(training))
    search = _Search(loss_fraction, init, checks.real("seconds", seconds, 0.0), sizes, most, seed)
    for candidate, its_seed in search:
        trial = search.run(model, training, candidate, its_seed)
        if progress is not None:
            progress(trial)
    ranking = search.ranking()
    if not ranking:
        raise RuntimeError(_unreached(loss_fraction, seconds))
    return Tuning(ranking[0], search.median(ranking[0]), tuple(search.trials))


def _unreached(loss_fraction: float, seconds: float) -> str:
    return (
        f"no trial reached {loss_fraction:g} of the initial loss in {seconds:g} s; "
        "give more seconds or a larger loss_fraction"
    )


def _sizes(batch_sizes: Sequence[int], examples: int) -> list[int]:
    sizes = [n for n in (checks.whole("batch_sizes", n) for n in batch_sizes) if n <= examples]
    if not sizes:
        raise ValueError(f"batch_sizes must hold one of at most {examples} examples")
    return sizes


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
    """The trials so far, and the clock. Iterated over it gives what to try next, with its seed; each
    is to be followed by ``run`` or ``know``.
    """

    def __init__(
        self,
        loss_fraction: float,
        init: str,
        seconds: float,
        sizes: Sequence[int],
        most: int,
        seed: int,
    ) -> None:
        self.loss_fraction, self.init, self.seconds = loss_fraction, init, seconds
        self.sizes, self.most, self.seed = sizes, most, seed
        self.trials: list[Trial] = []
        self.interrupted = False
        self._before, self._since = 0.0, time.monotonic()

    @property
    def spent(self) -> float:
        """Seconds of the budget."""
        return self._before + time.monotonic() - self._since

    def __iter__(self) -> Iterator[tuple[Candidate, int]]:
        seed = self.seed
        for size in self.sizes:
            yield from self._climb(Candidate(Leashed(), self.most, size, _FIRST_LR), seed)
        if self.best is None:
            return
        lead = self.best.candidate
        for discipline, m in _disciplines(self.most):
            for factor in (1.0, 2.0, 0.5):
                yield from self._try(
                    Candidate(discipline, m, lead.batch_size, lead.lr * factor), seed
                )
        semifinalists = self.ranking()[:_SEMIFINALISTS]
        for _ in range(_SEEDS):
            seed += 1
            for candidate in semifinalists:
                yield from self._try(candidate, seed)
        finalists = self.ranking()[:_FINALISTS]
        while finalists and self.time_left():
            seed += 1
            for candidate in finalists:
                yield from self._try(candidate, seed)

    @property
    def best(self) -> Trial | None:
        """The soonest trial, or None where none reached ε."""
        reached = [t for t in self.trials if math.isfinite(t.seconds)]
        return min(reached, key=lambda t: t.seconds, default=None)

    def time_left(self) -> bool:
        return not self.interrupted and self.spent < self.seconds

    def median(self, candidate: Candidate) -> float:
        return statistics.median(t.seconds for t in self.trials if t.candidate == candidate)

    def ranking(self) -> list[Candidate]:
        """The candidates that reached ε at every trial, those tried most first, then the soonest."""
        reached = {t.candidate for t in self.trials} - {
            t.candidate for t in self.trials if not math.isfinite(t.seconds)
        }
        tries = {c: sum(t.candidate == c for t in self.trials) for c in reached}
        return sorted(reached, key=lambda c: (-tries[c], self.median(c)))

    def _climb(self, first: Candidate, seed: int) -> Generator[tuple[Candidate, int], None, None]:
        """Double the step while that helps; where it never does, halve it while that helps."""
        start = best = yield from self._try(first, seed)
        for factor in (2.0, 0.5):
            here = dataclasses.replace(first, lr=first.lr * factor)
            while self.time_left() and (seconds := (yield from self._try(here, seed))) < best:
                best = seconds
                here = dataclasses.replace(here, lr=here.lr * factor)
            if best < start:
                return

    def _try(
        self, candidate: Candidate, seed: int
    ) -> Generator[tuple[Candidate, int], None, float]:
        """Time to ε; infinite where it is not reached in time. The same trial is not run twice."""
        for trial in self.trials:
            if (trial.candidate, trial.seed) == (candidate, seed):
                return trial.seconds
        if not self.time_left():
            return math.inf
        yield candidate, seed
        return self.trials[-1].seconds

    def know(self, trial: Trial, spent: float) -> None:
        """Take a trial that was run before, when the search had spent so many seconds in all."""
        self.trials.append(trial)
        self._before, self._since = spent, time.monotonic()

    def after(self, records: Sequence[Record]) -> Iterator[tuple[Candidate, int]]:
        """What to try next, after the trials of records, which are taken in its order."""
        known = {
            (one.candidate, one.seed): (one, record["measured"]["spent"])
            for record in records
            for one in [trial_of(record)]
        }
        for asked in self:
            if asked in known:
                self.know(*known[asked])
            else:
                yield asked

    @ends_are_told()
    def run(self, model: Model, data: Dataset, candidate: Candidate, seed: int) -> Trial:
        """Run a trial."""
        left = self.seconds - self.spent
        limit = left if self.best is None else max(_SLACK * self.best.seconds, _SHORTEST)
        result = train(
            model,
            data,
            discipline=candidate.discipline,
            rule=SGD(candidate.lr),
            threads=candidate.threads,
            batch_size=candidate.batch_size,
            seed=seed,
            init=self.init,
            until=Until(
                loss_fraction=self.loss_fraction,
                seconds=max(min(limit, left), 1e-6),
                divergence=4.0,
            ),
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
        return trial


@dataclass(frozen=True)
class Search(Study):
    """``tune`` as a study, of a network by its name: its settings are found one after the other, from
    what those before have come to. ``seconds`` may be more when it is gone on with.

    Args:
        model: of ``scaling.MODELS``.
        loss_fraction, seconds, threads, batch_sizes, seed, init: as of ``tune``.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    NAME: ClassVar[str] = "tune"
    TITLE: ClassVar[str] = "What reaches a loss soonest"

    model: str = option("mlp", "what is trained", choices=NETWORKS)
    loss_fraction: float = option(0.1, "ε, the share of the initial loss to reach")
    seconds: float = option(60.0, "budget")
    threads: int | None = option(None, "the most to try (default: all processors)")
    batch_sizes: tuple[int, ...] = option(BATCH_SIZES, "those to try", command=False)
    seed: int = option(0, "of the first trials")
    init: str = option("he", "initialisation", choices=INITIALISATIONS)

    def conditions(self, data: Data) -> Record:
        found = super().conditions(data)
        del found["seconds"]
        return {**found, "batch_sizes": self.batch_sizes}

    @classmethod
    def of(cls, records: Sequence[Record]) -> Search:
        made = records[0]["conditions"]
        names = ("model", "loss_fraction", "threads", "seed", "init")
        return cls(**{name: made[name] for name in names}, batch_sizes=tuple(made["batch_sizes"]))

    def settings(self) -> list[Record]:
        """None of them is known before the first has ended."""
        return []

    def words(self, setting: Record) -> str:
        threads = f"{setting['threads']} thread{'s' if setting['threads'] > 1 else ''}"
        return (
            f"{setting['discipline']}, {threads}, batch {setting['batch_size']}, "
            f"η = {setting['lr']:g}, seed {setting['seed']}"
        )

    def runs(
        self,
        records: Sequence[Record],
        data: Dataset,
        begin: Callable[[Record], bool],
        progress: Callable[[Any], object],  # noqa: ARG002
    ) -> Iterator[Record]:
        search, model = self._search(data), build_model(self.model, data)
        for candidate, seed in search.after(records):
            setting = _setting(candidate, seed)
            if not begin(setting):
                return
            trial = search.run(model, data, candidate, seed)
            if search.interrupted:
                raise KeyboardInterrupt
            measured = {"seconds": trial.seconds, "outcome": trial.outcome}
            measured |= {"elapsed": trial.elapsed, "spent": search.spent}
            yield self.record(setting, data, measured)

    def left(self, records: Iterable[Record], data: Data) -> list[Record]:
        """The next trial; nothing where the budget is spent."""
        records = list(records)
        left(self, data, records)  # or ValueError
        search = self._search(data)
        following = next(iter(search.after(records)), None)
        # (The time that the last record tells has passed on since, while it was kept.)
        if following is None or self.seconds - search.spent < _NOTHING:
            return []
        return [_setting(*following)]

    def rest(self, left: Sequence[Record], records: Sequence[Record]) -> str:
        spent = max((record["measured"]["spent"] for record in records), default=0.0)
        return f"{max(0.0, self.seconds - spent) if left else 0:.1f} of {self.seconds:g} s are left"

    def shown(self, records: Sequence[Record]) -> list[Record]:
        return list(records)

    def tuning(self, records: Sequence[Record]) -> Tuning:
        """What records come to; RuntimeError where none reached ε."""
        search = _Search(self.loss_fraction, self.init, self.seconds, (), 1, self.seed)
        search.trials = [trial_of(record) for record in records]
        ranking = search.ranking()
        if not ranking:
            raise RuntimeError(_unreached(self.loss_fraction, self.seconds))
        return Tuning(ranking[0], search.median(ranking[0]), tuple(search.trials))

    def parts(self, records: Sequence[Record]) -> list[Part]:
        trials = [trial_of(record) for record in records]
        rows = []
        for candidate in dict.fromkeys(trial.candidate for trial in trials):
            mine = sorted(trial.seconds for trial in trials if trial.candidate == candidate)
            middle = statistics.median(mine)
            reached = sum(map(math.isfinite, mine))
            rows.append((middle, [str(candidate), f"{reached} of {len(mine)}", _soon(middle)]))
        rows.sort(key=lambda row: row[0])
        note = f"Time to {self.loss_fraction:g} of the initial loss: the median of the trials."
        header = ["choice", "trials that got there", "time"]
        return [Part(self.TITLE, Table(header, [row for _, row in rows]), note)]

    def text(self, records: Sequence[Record]) -> str:
        """The best."""
        try:
            found = self.tuning(records)
        except RuntimeError:  # which the command tells
            return ""
        return f"\n{duration(found.seconds):>12}  {found.best} (median)"

    def _search(self, data: Any) -> _Search:
        most = cores() if self.threads is None else checks.whole("threads", self.threads)
        sizes = _sizes(self.batch_sizes, len(data))
        return _Search(self.loss_fraction, self.init, self.seconds, sizes, most, self.seed)


def _soon(seconds: float) -> str:
    return duration(seconds) if math.isfinite(seconds) else "not reached"


def _setting(candidate: Candidate, seed: int) -> Record:
    return {
        "discipline": candidate.discipline.label,
        "threads": candidate.threads,
        "batch_size": candidate.batch_size,
        "lr": candidate.lr,
        "seed": seed,
    }


def trial_of(record: Record) -> Trial:
    """The trial of a record of ``Search``."""
    setting, measured = record["setting"], record["measured"]
    kinds = [Leashed(), *(discipline for discipline, _ in _disciplines(2))]
    candidate = Candidate(
        next(kind for kind in kinds if kind.label == setting["discipline"]),
        *(setting[name] for name in ("threads", "batch_size", "lr")),
    )
    seconds = math.inf if measured["seconds"] is None else measured["seconds"]
    return Trial(candidate, setting["seed"], seconds, measured["outcome"], measured["elapsed"])
