"""Which discipline, number of threads, batch size and step size reach a loss soonest here."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from leashed import disciplines, modes
from leashed.base import checks, words
from leashed.base.machine import cores
from leashed.base.table import Table, duration
from leashed.datasets import ClickSplit, SparseDataset, Split
from leashed.disciplines import Discipline, Hogwild, Leashed, Locked, Sequential, Synchronous
from leashed.modes import Mode
from leashed.rules import RULES, SGD, Rule, check_rule
from leashed.staleness import Policy
from leashed.stopping import Until
from leashed.studies.study import Data, Part, Record, Study, left, option
from leashed.training import abilities, defaults
from leashed.training.doubts import ends_are_told
from leashed.training.job import RULE, Job, threads_of
from leashed.training.options import Init, Observe
from leashed.training.problems.clicks import make_tables
from leashed.training.recordings import AnyModel
from leashed.training.result import TrainResult
from leashed.training.sets import AnyData, Streamed, is_sparse, sets_of, shaped
from leashed.training.spelled import DISCIPLINE_WORDS, discipline_of, mode_of, word_of
from leashed.training.train import train

__all__ = ["Candidate", "Search", "Trial", "Tuning", "trial_of", "tune"]

BATCH_SIZES = (16, 64, 512)
LOSS_FRACTION, _OF_CLICKS = 0.1, 0.75  # whose loss stays not far below chance
_FIRST_LR = 0.1
_SLACK = 1.5  # a trial may take so many times the best time so far
_SHORTEST = 0.2  # seconds that every trial may take
_NOTHING = 0.05  # seconds in which none is begun again
_SEMIFINALISTS, _SEEDS = 9, 2  # one seed alone chooses by luck
_FINALISTS = 3

Trained: TypeAlias = "Callable[[Candidate, int, Until], TrainResult]"
"""A candidate's run from a seed."""


@dataclass(frozen=True)
class Candidate:
    """A choice that ``tune`` compares, of a discipline or of a mode."""

    discipline: Discipline | None
    threads: int
    batch_size: int
    lr: float
    mode: Mode | None = None

    @property
    def name(self) -> str:
        """The discipline's, or the mode's."""
        return repr(self.mode) if self.discipline is None else self.discipline.label

    @property
    def how(self) -> dict[str, Any]:
        """As arguments of ``train``, but for the rule."""
        names = ("discipline", "mode", "threads", "batch_size")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        return (
            f"{self.name}, {self.threads} thread{'s' if self.threads > 1 else ''}, "
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
    model: AnyModel,
    data: AnyData,
    *,
    loss_fraction: float | None = None,
    seconds: float = 60.0,
    threads: int | None = None,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    seed: int = 0,
    init: str | None = None,
    discipline: Discipline | str | None = None,
    mode: Mode | str | None = None,
    rule: Callable[[float], Rule] | str | None = None,
    lr: float | None = None,
    staleness: Policy | str | None = None,
    progress: Callable[[Trial], object] | None = None,
) -> Tuning:
    """Find the choice with the least time to ε-convergence on this machine, within a budget.

    First the step size, doubled or halved while that helps, for each batch size under
    ``Leashed()`` on all threads, of sparse rows under ``Hogwild()``; then every discipline and number
    of threads at the best of these, each with the steps beside it; then the nine soonest with two more
    seeds, and the three soonest of these with others, until the budget is spent. A trial ends early
    once it has taken 1.5 times the best time so far. Each begins with new parameters and new tables.

    Args:
        model: as of :func:`leashed.train`.
        data: likewise, in memory, without a test set.
        loss_fraction: ε, the share of the initial loss to reach (0 to 1). Default: 0.1, of models of
            clicks 0.75.
        seconds: the budget for all trials together.
        threads: the most threads to try. Default: the processors this process may use.
        batch_sizes: those to try; those larger than the data are left out.
        seed: of the first trials; the finalists run with the next ones too.
        init: initialisation, as for :func:`leashed.train`.
        discipline: that alone is tried. Default: those of the paper are compared.
        mode: in place of a discipline.
        rule: makes a rule of a step size, such as ``leashed.rules.Adam``, or its word, as
            ``"adam:beta1=0.8"``. Default: ``SGD``, of models of clicks ``Adagrad``.
        lr: the first step size to try. Default: 0.1 of ``SGD``, else the rule's own.
        staleness: as for :func:`leashed.train`.
        progress: called after every trial.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
        RuntimeError: no trial reached ε within the budget.
    """
    training = data.train if isinstance(data, (Split, ClickSplit)) else data
    model = shaped(model, training)
    read, _ = sets_of(model, training, None)
    of_clicks = defaults.is_of_clicks(model)
    make, first = _made(rule, of_clicks=of_clicks)
    share = _share(loss_fraction, of_clicks=of_clicks)
    abilities.check(
        {"stream": isinstance(read, Streamed), **abilities.of_end(Until(loss_fraction=share))}
    )
    search = _Search(
        share,
        checks.real("seconds", seconds, 0.0),
        _sizes(batch_sizes, len(read)),
        cores() if threads is None else checks.whole("threads", threads),
        seed,
        given=_given(discipline, mode),
        sparse=is_sparse(read),
        lr=first if lr is None else checks.rate("lr", lr),
    )

    def trained(candidate: Candidate, seed: int, until: Until) -> TrainResult:
        its = {"rule": make(candidate.lr), "staleness": staleness, "seed": seed, "init": init}
        return train(model, training, until=until, **its, **candidate.how)  # type: ignore[arg-type]

    for candidate, its_seed in search:
        trial = search.run(trained, candidate, its_seed)
        if progress is not None:
            progress(trial)
    return search.found()


def _share(loss_fraction: float | None, *, of_clicks: bool) -> float:
    if loss_fraction is None:
        return _OF_CLICKS if of_clicks else LOSS_FRACTION
    return loss_fraction


def _made(rule: object, *, of_clicks: bool) -> tuple[Callable[[float], Rule], float]:
    """What makes a rule of a step size, and where the search for that begins.

    Raises:
        TypeError, ValueError: ``rule`` is no such thing, nor a word.
    """
    if isinstance(rule, str):
        if "lr" in words.settings("rule", rule.partition(":")[2]):
            raise ValueError(
                f"rule {rule!r} has an lr, which is searched for; give lr= to begin with"
            )
        kind = RULES[type(check_rule(rule)).__name__.lower()]
        return words.made(RULES, "rule", rule), _first_lr(kind, of_clicks=of_clicks)
    make = type(defaults.rule(of_clicks=of_clicks)) if rule is None else rule
    if isinstance(make, Rule) or not callable(make):
        raise TypeError(f"rule must make one of a step size, as leashed.rules.SGD, got {rule!r}")
    return make, _first_lr(rule, of_clicks=of_clicks)


def _first_lr(rule: object, *, of_clicks: bool) -> float:
    """Where the search for the step size of a kind of rule begins; None: the default."""
    default = defaults.rule(of_clicks=of_clicks)
    if rule is None and not isinstance(default, SGD):
        assert isinstance(default.lr, float)
        return default.lr
    return _FIRST_LR if rule is SGD else float(getattr(rule, "LR", _FIRST_LR))


def _given(
    discipline: Discipline | str | None, mode: Mode | str | None
) -> Discipline | Mode | None:
    """What alone is tried, if that is said.

    Raises:
        TypeError, ValueError: it is none, or both are given.
    """
    mode = None if mode is None else modes.of(mode)
    discipline = None if discipline is None else disciplines.of(discipline)
    abilities.check({**abilities.of_mode(mode), "discipline": discipline})
    return discipline if mode is None else mode


def _sizes(batch_sizes: Sequence[int], examples: int) -> list[int]:
    sizes = [n for n in (checks.whole("batch_sizes", n) for n in batch_sizes) if n <= examples]
    if not sizes:
        raise ValueError(f"batch_sizes must hold one of at most {examples} examples")
    return sizes


def _ways(given: Discipline | Mode | None, most: int) -> Iterator[tuple[Discipline | Mode, int]]:
    """What is tried, with how many threads."""
    several = sorted({most, most // 2} - {0, 1}, reverse=True)
    if isinstance(given, Mode):  # one worker alone waits for nobody
        yield from ((given, m) for m in several or [1])
        return
    if given is not None:
        yield from ((given, m) for m in (*several, 1))
        return
    for m in several:
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


def _by(way: Discipline | Mode, threads: int, batch_size: int, lr: float) -> Candidate:
    if isinstance(way, Mode):
        return Candidate(None, threads, batch_size, lr, way)
    return Candidate(way, threads, batch_size, lr)


class _Search:
    """The trials so far, and the clock. Iterated over it gives what to try next, with its seed; each
    is to be followed by ``run`` or ``know``.
    """

    def __init__(
        self,
        loss_fraction: float,
        seconds: float,
        sizes: Sequence[int],
        most: int,
        seed: int,
        *,
        given: Discipline | Mode | None = None,
        sparse: bool = False,
        lr: float = _FIRST_LR,
    ) -> None:
        self.loss_fraction, self.seconds = loss_fraction, seconds
        self.sizes, self.seed = sizes, seed
        self.given, self.lr = given, lr
        self.most = 1 if isinstance(given, Sequential) else most
        # (Only there sparse rows are updated in place.)
        self.lead = given or (Hogwild() if sparse else Leashed())
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
            yield from self._climb(_by(self.lead, self.most, size, self.lr), seed)
        if self.best is None:
            return
        lead = self.best.candidate
        for way, m in _ways(self.given, self.most):
            for factor in (1.0, 2.0, 0.5):
                yield from self._try(_by(way, m, lead.batch_size, lead.lr * factor), seed)
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

    def found(self) -> Tuning:
        """The best; RuntimeError where none reached ε."""
        ranking = self.ranking()
        if not ranking:
            raise RuntimeError(
                f"no trial reached {self.loss_fraction:g} of the initial loss in {self.seconds:g} s; "
                "give more seconds or a larger loss_fraction"
            )
        return Tuning(ranking[0], self.median(ranking[0]), tuple(self.trials))

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
    def run(self, trained: Trained, candidate: Candidate, seed: int) -> Trial:
        """Run a trial."""
        left = self.seconds - self.spent
        limit = left if self.best is None else max(_SLACK * self.best.seconds, _SHORTEST)
        until = Until(
            loss_fraction=self.loss_fraction,
            seconds=max(min(limit, left), 1e-6),
            divergence=4.0,
        )
        result = trained(candidate, seed, until)
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


_NO_STREAM = "trials train on the rows again and again; "
_ENDS = "a trial ends at --loss-fraction, or when it has taken longer than others; leave it out"
NOT_TUNED = {
    "stream": f"{_NO_STREAM}leave it out, and --data is read into memory",
    "days": f"{_NO_STREAM}give --data one of the files",
    **dict.fromkeys(("loss", "updates", "epochs", "divergence", "patience", "metric"), _ENDS),
}
"""Fields of a job that a search takes no value of, with the reason and the remedy."""
_TOLD = ("data", "model", "threads", "seed", "init")  # in conditions in any case


def _most(name: str, value: object) -> None:
    if value == "auto":
        raise ValueError(f'{name} "auto" is not for tune, which tries numbers itself; leave it out')


@dataclass(frozen=True, kw_only=True)
class Search(Study, Job):
    """``tune`` as a study, of a job in words: its settings are found one after the other, from what
    those before have come to. ``seconds`` may be more when it is gone on with. What is trained on is
    a ``Problem``, of ``problem_of``.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    NAME: ClassVar[str] = "tune"
    TITLE: ClassVar[str] = "What reaches a loss soonest"

    discipline: str | None = option(
        None,
        f"that alone is tried: one of {', '.join(DISCIPLINE_WORDS)} (default: those of the paper are "
        "compared)",
        metavar="NAME[:...]",
    )
    threads: int | None = option(
        None, "the most to try (default: all processors)", _most, type=threads_of
    )
    lr: float | None = option(
        None,
        f"the first step size to try (default: {_FIRST_LR:g} of sgd, else the rule's own)",
        group=RULE,
    )
    loss_fraction: float | None = option(
        None,
        "ε, the share of the initial loss to reach "
        f"(default: {LOSS_FRACTION:g}; {_OF_CLICKS:g} of models of clicks)",
    )
    seconds: float = option(60.0, "budget")
    batch_sizes: tuple[int, ...] = option(BATCH_SIZES, "those to try", command=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, why in NOT_TUNED.items():
            given = getattr(self, name)
            if given is not None and given is not False:
                raise ValueError(f"--{name} is not for tune: {why}")
        checks.real("seconds", self.seconds, 0.0)

    @property
    def share(self) -> float:
        """ε."""
        return _share(self.loss_fraction, of_clicks=self.of_clicks)

    def conditions(self, data: Data) -> Record:
        """Of the words of a job those that are not the default, as of before there were others."""
        found = super().conditions(data)
        for item in dataclasses.fields(Job):
            unsaid = item.name not in _TOLD and getattr(self, item.name) == item.default
            if unsaid or item.name in ("seconds", "test"):
                found.pop(item.name, None)
        if self.schedule:
            found["schedule"] = self.schedule
        return {**found, "loss_fraction": self.share, "batch_sizes": self.batch_sizes}

    @classmethod
    def of(cls, records: Sequence[Record]) -> Search:
        known = {item.name for item in dataclasses.fields(cls)} - {"data"}
        made: Record = records[0]["conditions"]
        words: Record = {name: made[name] for name in made.keys() & known}
        several = {name: tuple(value) for name, value in words.items() if isinstance(value, list)}
        return cls(**{**words, **several})

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
        data: Any,
        begin: Callable[[Record], bool],
        progress: Callable[[Any], object],  # noqa: ARG002
    ) -> Iterator[Record]:
        def trained(candidate: Candidate, seed: int, until: Until) -> TrainResult:
            words = dataclasses.replace(self, lr=candidate.lr, seed=seed)
            how = {**words.choices(), **candidate.how}
            tables = make_tables(data.model, words, how["rule"], how["staleness"])
            how["init"] = Init(self.init, tables)
            observe = Observe(**self.evaluations())
            return train(data.model, data.train, until=until, observe=observe, **how)

        search = self._search(data)
        for candidate, seed in search.after(records):
            setting = _setting(candidate, seed)
            if not begin(setting):
                return
            trial = search.run(trained, candidate, seed)
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
        search = _Search(self.share, self.seconds, (), 1, self.seed)
        search.trials = [trial_of(record) for record in records]
        return search.found()

    def job(self, best: Candidate) -> Job:
        """What ``leashed train`` is to be told."""
        words = {item.name: getattr(self, item.name) for item in dataclasses.fields(Job)}
        how = {**best.how, "mode": self.mode, "lr": best.lr, "loss_fraction": self.share}
        how["discipline"] = None if best.discipline is None else word_of(best.discipline)
        return Job(**{**words, **how, "seconds": None})

    def parts(self, records: Sequence[Record]) -> list[Part]:
        trials = [trial_of(record) for record in records]
        rows = []
        for candidate in dict.fromkeys(trial.candidate for trial in trials):
            mine = sorted(trial.seconds for trial in trials if trial.candidate == candidate)
            middle = statistics.median(mine)
            reached = sum(map(math.isfinite, mine))
            rows.append((middle, [str(candidate), f"{reached} of {len(mine)}", _soon(middle)]))
        rows.sort(key=lambda row: row[0])
        note = f"Time to {self.share:g} of the initial loss: the median of the trials."
        header = ["choice", "trials that got there", "time"]
        return [Part(self.TITLE, Table(header, [row for _, row in rows]), note)]

    def text(self, records: Sequence[Record]) -> str:
        """The best, and the command that trains so."""
        try:
            found = self.tuning(records)
        except RuntimeError:  # which the command tells
            return ""
        return f"\n{duration(found.seconds):>12}  {found.best} (median)\n{self.job(found.best).command()}"

    def _search(self, data: Any) -> _Search:
        how = self.choices()  # or an error
        rule = self.rule and RULES[self.rule.partition(":")[0]]
        return _Search(
            self.share,
            self.seconds,
            _sizes(self.batch_sizes, len(data.train)),
            cores() if self.threads is None else checks.whole("threads", self.threads),
            self.seed,
            given=_given(how["discipline"], how["mode"]),
            sparse=isinstance(data.train, SparseDataset),
            lr=_first_lr(rule, of_clicks=self.of_clicks) if self.lr is None else self.lr,
        )


def _soon(seconds: float) -> str:
    return duration(seconds) if math.isfinite(seconds) else "not reached"


def _setting(candidate: Candidate, seed: int) -> Record:
    return {
        "discipline": candidate.name,
        "threads": candidate.threads,
        "batch_size": candidate.batch_size,
        "lr": candidate.lr,
        "seed": seed,
    }


def trial_of(record: Record) -> Trial:
    """The trial of a record of ``Search``."""
    setting, measured, asked = (record[name] for name in ("setting", "measured", "conditions"))
    known: list[Discipline | Mode] = [Leashed(), *(way for way, _ in _ways(None, 2))]
    if "mode" in asked:
        known.append(mode_of(asked["mode"]))
    if "discipline" in asked:
        known.append(discipline_of(asked["discipline"]))
    all_of = (_by(way, *(setting[n] for n in ("threads", "batch_size", "lr"))) for way in known)
    candidate = next(one for one in all_of if one.name == setting["discipline"])
    seconds = math.inf if measured["seconds"] is None else measured["seconds"]
    return Trial(candidate, setting["seed"], seconds, measured["outcome"], measured["elapsed"])
