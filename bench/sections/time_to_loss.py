"""Time to 10% of the initial loss, leashed and PyTorch, each at the best that a search finds.

Both search alike: the step size from 0.1 on, doubled while that helps and else halved. leashed
searches with ``leashed.tune`` (disciplines, threads, batch sizes, step sizes), where a trial is given
up once it has taken 1.5 times the best time so far; PyTorch here (one thread, all threads, Hogwild
over processes; the same batch sizes), where it may take 3 times as long. The best of leashed, and of
PyTorch the best few and the best of each kind, then run in turns, with seeds that were not searched
with, from the same initial parameters.

Both clocks start when the threads may start and are read when the parameters are copied: copies are
kept about every 1 ms at first, later less often, while training goes on, and where the loss was reached is found among them.
PyTorch's copies are all evaluated after the run. leashed's monitor evaluates some beside the
workers, on their time, to know when to stop. PyTorch is spared sampling as well: every process
walks over batches that were cut, in a random order, before its clock started.

Beside that the caller's clock: from the call of ``train`` to its return, with all evaluations, next
to a plain PyTorch loop in one process at its best settings that ends itself in the same way.
"""

from __future__ import annotations

import math
import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

import leashed
from bench import figures
from bench.charts import Bars
from bench.contenders import Cell, Snapshot, Team, torch_contenders
from bench.context import BATCHES, Bench, Record
from bench.figures import Results
from bench.markdown import number, paragraphs, table, thousands
from bench.networks import NETWORKS, Floats
from bench.section import Goal, Parts
from bench.sections.peers import best_peer
from leashed.base.table import MISSING
from leashed.datasets import Dataset
from leashed.training.run import mean_loss

PLACE, TITLE = 70, "Time to a loss"

LOSS_FRACTION = 0.1
_TUNE_SECONDS = 45.0
_SEEDS = 7
_FINALISTS = 3
_FIRST_LR = 0.1
_SLACK = 3.0
_SHORTEST = 0.2
_LONGEST = 5.0
_PARTS = 5


def measure(bench: Bench) -> dict[str, Any]:
    """What each search found and how long it took, and the times of the finals."""
    model = NETWORKS["MLP"]
    start = time.monotonic()
    tuning = leashed.tune(
        model,
        bench.data,
        loss_fraction=LOSS_FRACTION,
        seconds=bench.seconds(_TUNE_SECONDS, least=5.0),
        seed=0,
    )
    tuned = time.monotonic()
    teams = {
        c.name: Team(c, bench.data) for c in torch_contenders(bench.threads) if "MLP" in c.networks
    }
    search = _Search(bench.data, teams)
    for name in teams:
        for batch_size in BATCHES:
            search.climb(Entry(name, batch_size, _FIRST_LR))
    searched = time.monotonic()

    best = tuning.best
    finalists = search.finalists()
    ours: list[float] = []
    theirs: dict[Entry, list[float]] = {entry: [] for entry in finalists}
    loops: dict[Entry, list[float]] = {
        entry: [] for entry in finalists if len(teams[entry.contender].pipes) == 1
    }
    updates: list[int] = []
    returned: list[float] = []
    evaluation = min(_evaluation(bench.data) for _ in range(5))
    for seed in range(1, 1 + bench.times(_SEEDS, least=2)):
        theta = model.init(seed, "he")
        called = time.perf_counter()
        result = leashed.train(
            model,
            bench.data,
            until=leashed.until(loss_fraction=LOSS_FRACTION, seconds=_LONGEST),
            discipline=best.discipline,
            rule=leashed.SGD(best.lr),
            threads=best.threads,
            batch_size=best.batch_size,
            seed=seed,
            init=theta,
        )
        returned.append(time.perf_counter() - called)
        ours.append(result.seconds_to(LOSS_FRACTION))
        updates.append(result.total_updates)
        for entry, times in theirs.items():
            times.append(search.run(entry, seed, max(_SHORTEST, _SLACK * search.trials[entry])))
        for entry, times in loops.items():
            cell = Cell("MLP", entry.batch_size, entry.lr, seed)
            times.append(teams[entry.contender].finish(cell, theta, LOSS_FRACTION, _LONGEST))
    for team in teams.values():
        team.close()
    return {
        "loss_fraction": LOSS_FRACTION,
        "leashed": {
            "discipline": best.discipline.label,
            "threads": best.threads,
            "batch_size": best.batch_size,
            "lr": best.lr,
            "seconds": [_finite(t) for t in ours],
            "updates": updates,
            "returned": returned,
            "evaluation_seconds": evaluation,
            "trials": len(tuning.trials),
            "search_seconds": tuned - start,
        },
        "PyTorch": [
            {**asdict(entry), "seconds": [_finite(t) for t in times]}
            for entry, times in theirs.items()
        ],
        "PyTorch loop": [
            {**asdict(entry), "returned": [_finite(t) for t in times]}
            for entry, times in loops.items()
        ],
        "PyTorch trials": [
            {**asdict(entry), "seconds": _finite(t)} for entry, t in search.trials.items()
        ],
        "PyTorch search_seconds": searched - tuned,
    }


def _evaluation(data: Dataset) -> float:
    """Seconds that one evaluation of the data takes one thread."""
    model = NETWORKS["MLP"]
    theta = model.init(0, "he")
    start = time.perf_counter()
    mean_loss(model, data, theta, 1)
    return time.perf_counter() - start


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None


@dataclass(frozen=True)
class Entry:
    """A setting of PyTorch."""

    contender: str
    batch_size: int
    lr: float


class _Search:
    """PyTorch's trials with seed 0."""

    def __init__(self, data: Dataset, teams: dict[str, Team]) -> None:
        self.data, self.teams = data, teams
        self.trials: dict[Entry, float] = {}

    def finalists(self) -> list[Entry]:
        """The soonest settings, and the soonest of each kind that reached the loss."""
        reached = [e for e, seconds in self.trials.items() if math.isfinite(seconds)]
        reached.sort(key=self.trials.__getitem__)
        kinds = {entry.contender: entry for entry in reversed(reached)}
        return list(dict.fromkeys([*reached[:_FINALISTS], *kinds.values()]))

    def climb(self, first: Entry) -> None:
        """Double the step while that helps; where it never does, halve it while that helps."""
        start = best = self._try(first)
        for factor in (2.0, 0.5):
            here = replace(first, lr=first.lr * factor)
            while (seconds := self._try(here)) < best:
                best = seconds
                here = replace(here, lr=here.lr * factor)
            if best < start:
                return

    def _try(self, entry: Entry) -> float:
        if entry not in self.trials:
            fastest = min(self.trials.values(), default=math.inf)
            limit = min(_LONGEST, max(_SHORTEST, _SLACK * fastest))
            self.trials[entry] = self.run(entry, 0, limit)
        return self.trials[entry]

    def run(self, entry: Entry, seed: int, seconds: float) -> float:
        """Time to the loss; infinite where it was not reached within ``seconds``."""
        model = NETWORKS["MLP"]
        theta = model.init(seed, "he")
        cell = Cell("MLP", entry.batch_size, entry.lr, seed)
        snapshots = self.teams[entry.contender].race(cell, theta, seconds)
        target = LOSS_FRACTION * model.evaluate(theta, self.data)[0]
        return reached(snapshots, lambda copy: _loss(copy, self.data) <= target)


def _loss(theta: Floats, data: Dataset) -> float:
    """Infinite for parameters that are not numbers any more."""
    if not np.isfinite(theta).all():
        return math.inf
    return NETWORKS["MLP"].evaluate(theta, data)[0]


def reached(snapshots: list[Snapshot], there: Callable[[Floats], bool]) -> float:
    """When the loss was first there: a look at some of the copies, then bisection between two."""
    stride = max(1, len(snapshots) // _PARTS)
    begin = 0
    for look in [*range(stride, len(snapshots), stride), len(snapshots) - 1]:
        if there(snapshots[look].theta):
            first = bisect_left(
                range(look), True, lo=begin, key=lambda k: there(snapshots[k].theta)
            )
            return snapshots[first].seconds
        begin = look + 1
    return math.inf


def median_seconds(seconds: Sequence[float | None]) -> float:
    """Of times to a loss; a run that did not get there took infinitely long."""
    return statistics.median(math.inf if s is None else s for s in seconds)


def races(results: Results) -> list[Record]:
    """PyTorch's finals with their medians, the soonest first."""
    found = figures.figures(results, "time_to_loss")
    if not found:
        return []
    return sorted(
        ({**entry, "median": median_seconds(entry["seconds"])} for entry in found["PyTorch"]),
        key=lambda entry: entry["median"],
    )


def returns(results: Results) -> list[Record]:
    """PyTorch's loops by the caller's clock, with their medians, the soonest first."""
    found = figures.figures(results, "time_to_loss")
    entries = found.get("PyTorch loop", []) if found else []
    return sorted(
        ({**entry, "median": median_seconds(entry["returned"])} for entry in entries),
        key=lambda entry: entry["median"],
    )


def race_ratio(results: Results) -> float | None:
    """How many times sooner leashed is there than PyTorch's soonest."""
    theirs = races(results)
    if not theirs:
        return None
    ours = median_seconds(figures.figures(results, "time_to_loss")["leashed"]["seconds"])
    return float(theirs[0]["median"] / ours)


def words(results: Results) -> Parts:
    found = figures.figures(results, "time_to_loss")
    if not found:
        return ()
    ours = found["leashed"]
    mine = (
        f"leashed {ours['discipline']} ×{ours['threads']}, batch {ours['batch_size']}, "
        f"η = {ours['lr']:g}"
    )
    entries = [(mine, median_seconds(ours["seconds"]), ours["seconds"])]
    entries += [
        (f"{e['contender']}, batch {e['batch_size']}, η = {e['lr']:g}", e["median"], e["seconds"])
        for e in races(results)
    ]
    chart = Bars(
        "time_to_loss",
        f"Time to {found['loss_fraction']:.0%} of the initial loss, MLP",
        [name for name, _, _ in entries],
        {"median": [seconds for _, seconds, _ in entries]},
        "seconds",
    )
    rows = [
        [name, number(median), *(MISSING if s is None else number(s) for s in seconds)]
        for name, median, seconds in entries
    ]
    head = ["", "median, s", *(f"seed {k + 1}" for k in range(len(ours["seconds"])))]
    return (
        (
            f"Each seed gives all the same initial parameters (He). leashed was chosen by "
            f"`leashed.tune` in {number(ours['search_seconds'])} s and {ours['trials']} trials, "
            f"PyTorch's settings from {len(found['PyTorch trials'])} trials in "
            f"{number(found['PyTorch search_seconds'])} s, both with seed 0. A clock runs from the "
            "start of the threads to the copy of the parameters at which the loss was first reached; "
            "copies are kept about every 1 ms at first. PyTorch's are all evaluated after the run; leashed's "
            "monitor evaluates some beside the workers."
        ),
        chart,
        table(head, rows),
        _returns(results, mine),
    )


def _returns(results: Results, mine: str) -> str:
    found = figures.figures(results, "time_to_loss")
    ours = found["leashed"]
    if "returned" not in ours:
        return ""
    entries = [(mine, median_seconds(ours["returned"]), ours["returned"])]
    entries += [
        (
            f"{e['contender']}, batch {e['batch_size']}, η = {e['lr']:g}",
            e["median"],
            e["returned"],
        )
        for e in returns(results)
    ]
    both = list(zip(ours["seconds"], ours["returned"], strict=True))
    slack = 4 * ours["evaluation_seconds"]
    within = sum(reached is not None and back <= 1.3 * reached + slack for reached, back in both)
    head = ["from call to return", "median, s", *(f"seed {k + 1}" for k in range(len(both)))]
    return paragraphs(
        "By the caller's clock, from the call to the return, with every evaluation; PyTorch's is a "
        "loop in one process that evaluates when the mean loss of its last five hundred examples says "
        f"so, as leashed does. An evaluation takes one thread "
        f"{number(ours['evaluation_seconds'])} s; {within} of leashed's {len(both)} runs returned "
        "within 1.3 times the time reached and four evaluations.",
        table(
            head,
            [
                [name, number(median), *(MISSING if s is None else number(s) for s in seconds)]
                for name, median, seconds in entries
            ],
        ),
    )


def profile(results: Results) -> str:
    """Updates needed and time an update."""
    found = figures.figures(results, "time_to_loss")
    if not found:
        return ""
    ours = found["leashed"]
    seconds = median_seconds(ours["seconds"])
    updates = statistics.median(ours["updates"])
    rate = best_peer(results, "leashed", "MLP", ours["batch_size"])
    text = (
        f"leashed needed {number(updates)} updates of {ours['batch_size']} examples, "
        f"{number(updates * ours['batch_size'] / results['data']['examples'])} passes over the data, "
        f"in {number(seconds)} s: {thousands(updates * ours['batch_size'] / seconds)} examples/s"
    )
    if rate is not None:
        text += f", beside {thousands(figures.eps(rate))} examples/s of training without a loss to reach"
    theirs = races(results)
    if theirs:
        text += (
            ". What bounds the ratio is theirs over ours in examples/s, times the examples that each "
            "needs."
        )
    return text


GOALS = (
    Goal(
        "time to 10% of the initial loss, times sooner than PyTorch's best",
        2.0,
        race_ratio,
        unit="×",
    ),
)
PROFILES = {"Time to a loss": profile}
