"""Time to 10% of the initial loss, leashed and PyTorch, each at the best that a search finds.

Both search alike: the step size from 0.1 on, doubled while that helps and else halved; a trial is
given up once it has taken 1.5 times the best time so far. leashed searches with ``leashed.tune``
(disciplines, threads, batch sizes, step sizes); PyTorch here (one thread, all threads, Hogwild over
processes; the same batch sizes). The best of leashed and the best few of PyTorch then run in turns,
with seeds that were not searched with, from the same initial parameters.

Both clocks start when the threads may start and are read when the parameters are copied: copies are
kept about every 5 ms while training goes on, and where the loss was reached is found among them.
PyTorch's copies are all evaluated after the run. leashed's monitor evaluates some beside the
workers, on their time, to know when to stop. PyTorch is spared sampling as well: every process
walks over batches that were cut, in a random order, before its clock started.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import leashed
from bench.context import BATCHES, Bench, Record
from bench.contenders import Cell, Snapshot, Team, torch_contenders
from bench.networks import NETWORKS, Floats
from leashed.datasets import Dataset

LOSS_FRACTION = 0.1
_TUNE_SECONDS = 45.0
_SEEDS = 7
_FINALISTS = 3
_FIRST_LR = 0.1
_SLACK = 1.5
_SHORTEST = 0.2
_LONGEST = 5.0
_PARTS = 8


def measure(bench: Bench) -> dict[str, Any]:
    """What each search found and how long it took, and the times of the finals."""
    model = NETWORKS["MLP"]
    start = time.monotonic()
    tuning = leashed.tune(
        model, bench.data, loss_fraction=LOSS_FRACTION, seconds=bench.seconds(_TUNE_SECONDS), seed=0
    )
    tuned = time.monotonic()
    teams = {c.name: Team(c, bench.data) for c in torch_contenders(bench.threads) if "MLP" in c.networks}
    search = _Search(bench.data, teams)
    for name in teams:
        for batch_size in BATCHES:
            search.climb(Entry(name, batch_size, _FIRST_LR))
    searched = time.monotonic()

    best = tuning.best
    finalists = search.ranking()[:_FINALISTS]
    ours: list[float] = []
    theirs: dict[Entry, list[float]] = {entry: [] for entry in finalists}
    updates: list[int] = []
    for seed in range(1, 1 + bench.times(_SEEDS, least=2)):
        result = leashed.train(
            model,
            bench.data,
            until=leashed.until(loss_fraction=LOSS_FRACTION, seconds=_LONGEST),
            discipline=best.discipline,
            rule=leashed.SGD(best.lr),
            threads=best.threads,
            batch_size=best.batch_size,
            seed=seed,
            init=model.init(seed, "he"),
        )
        ours.append(result.seconds_to(LOSS_FRACTION))
        updates.append(result.total_updates)
        for entry, times in theirs.items():
            times.append(search.run(entry, seed))
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
            "trials": len(tuning.trials),
            "search_seconds": tuned - start,
        },
        "PyTorch": [
            {**asdict(entry), "seconds": [_finite(t) for t in times]}
            for entry, times in theirs.items()
        ],
        "PyTorch trials": [
            {**asdict(entry), "seconds": _finite(t)} for entry, t in search.trials.items()
        ],
        "PyTorch search_seconds": searched - tuned,
    }


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

    def ranking(self) -> list[Entry]:
        """The settings that reached the loss, the soonest first."""
        reached = [e for e, seconds in self.trials.items() if math.isfinite(seconds)]
        return sorted(reached, key=self.trials.__getitem__)

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
            self.trials[entry] = self.run(entry, 0)
        return self.trials[entry]

    def run(self, entry: Entry, seed: int) -> float:
        """Time to the loss; infinite where it was not reached in time."""
        model = NETWORKS["MLP"]
        theta = model.init(seed, "he")
        fastest = min(self.trials.values(), default=math.inf)
        limit = min(_LONGEST, max(_SLACK * fastest, _SHORTEST)) if seed == 0 else _LONGEST
        if seed != 0:
            limit = min(_LONGEST, max(4.0 * self.trials[entry], _SHORTEST))
        cell = Cell("MLP", entry.batch_size, entry.lr, seed)
        snapshots = self.teams[entry.contender].race(cell, theta, limit)
        target = LOSS_FRACTION * model.evaluate(theta, self.data)[0]
        return _reached(snapshots, lambda copy: _loss(copy, self.data) <= target)


def _loss(theta: Floats, data: Dataset) -> float:
    """Infinite for parameters that are not numbers any more."""
    with_numbers = bool((abs(theta) < 1e18).all())
    return NETWORKS["MLP"].evaluate(theta, data)[0] if with_numbers else math.inf


def _reached(snapshots: list[Snapshot], there: Any) -> float:
    """When the loss was first there: every eighth part of the copies is looked at, then bisected."""
    stride = max(1, len(snapshots) // _PARTS)
    begin = 0
    for end in [*range(stride, len(snapshots), stride), len(snapshots) - 1]:
        if there(snapshots[end].theta):
            while begin < end:
                middle = (begin + end) // 2
                if there(snapshots[middle].theta):
                    end = middle
                else:
                    begin = middle + 1
            return snapshots[end].seconds
        begin = end
    return math.inf


def records(section: dict[str, Any]) -> list[Record]:
    """PyTorch's finals with their medians, the soonest first; runs that never arrived count as
    infinitely long.
    """

    def median(entry: Record) -> float:
        return statistics.median(math.inf if t is None else t for t in entry["seconds"])

    return sorted(
        ({**entry, "median": median(entry)} for entry in section["PyTorch"]),
        key=lambda entry: entry["median"],
    )
