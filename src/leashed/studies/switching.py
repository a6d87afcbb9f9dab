"""Modes of training on a cluster that others use too, and switches between them: gba, section 5.

Throughput comes from long runs of a model of two parameters, since it does not depend on gradients;
accuracy, drops and staleness from careers: days of clicks, one after another, each by a mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed import models, modes, simulation
from leashed.base import checks
from leashed.datasets import ClickDataset
from leashed.modes import Mode
from leashed.rules import SGD, Adagrad, Adam, Rule
from leashed.simulation.virtual_time import Cluster, Simulation, simulate
from leashed.stopping import Until
from leashed.studies import recommender
from leashed.studies.side_by_side import side_by_side
from leashed.studies.study import GoOn, option, unbroken
from leashed.training.doubts import ends_are_told
from leashed.training.options import Init, Observe
from leashed.training.result import Histogram

__all__ = [
    "DAILY",
    "MODES",
    "STATES",
    "Career",
    "Day",
    "Hours",
    "Rate",
    "Setting",
    "after_sync",
    "careers",
    "crash",
    "hours",
    "plans",
    "rates",
    "to_sync",
]

MODES: dict[str, Callable[[int], Mode]] = {
    "Sync": lambda _: modes.Sync(),
    "Async": lambda _: modes.ASP(),
    "Hop-BS": lambda _: modes.HopBS(b1=2),
    "BSP": lambda n: modes.BSP(b2=max(1, n // 5)),
    "Hop-BW": lambda n: modes.HopBW(b3=n // 4),
    "GBA": lambda _: modes.GBA(iota=4),
}
"""Of the paper's Tables 2 and 3, for so many workers, with the numbers of its Table 1: b2 of a hundred
workers, b3 of four hundred."""

DAILY: dict[str, Callable[[int], Mode]] = {
    "Sync": MODES["Sync"],
    "Async": MODES["Async"],
    "SwarmSGD": lambda _: modes.Swarm(h=1),
    "Prague": lambda n: modes.Prague(group=min(4, n)),
    "GBA": MODES["GBA"],
}
"""Of the paper's Figure 1, and GBA."""

STATES = {"vacant": 0.05, "busy": 0.3, "strained": 1.0}
"""The cluster's load, as of ``Cluster.under``; ours."""

_WINDOWS = 20


@dataclass(frozen=True)
class Setting:
    """Workers and data that all modes share.

    Args:
        workers: n; their gradients make a global batch.
        batch_size: clicks of a gradient.
        compute: seconds of a gradient on a vacant cluster.
        every: seconds for which a worker's machine is shared with the same others.
        rows: clicks of a day.
        drift: between days, as of ``datasets.synthetic_clicks``.
        base: days before the switch.
        days: after it.
        lr: of Adam, for the dense parameters in every mode but Async.
        async_lr: of Adagrad, for these in Async.
        rows_lr: of Adagrad, for the rows of tables in every mode.
        repeats: runs of each, of seeds ``seed``, ``seed + 1`` and so on.
        seed: of the first.
    """

    workers: int = option(100, "n", partial(checks.whole, minimum=2))
    batch_size: int = option(16, "clicks of a gradient", checks.whole)
    compute: float = 0.1
    every: float = 5.0
    rows: int = option(100_000, "clicks of a day", checks.whole, full=400_000)
    drift: float = 0.1
    base: int = 2
    days: int = 3
    lr: float = option(0.005, "of Adam", partial(checks.real, above=0.0))
    async_lr: float = option(0.01, "of Adagrad, in Async", partial(checks.real, above=0.0))
    rows_lr: float = option(
        0.02, "of Adagrad, for the rows of tables", partial(checks.real, above=0.0)
    )
    repeats: int = option(5, "seeds of each", checks.whole, full=11)
    seed: int = option(0, "the first", partial(checks.whole, minimum=0))

    def cluster(self, state: str) -> Cluster:
        """In one of ``STATES``."""
        alone = simulation.normal(self.workers, self.compute, 0.05 * self.compute)
        return alone.under(STATES[state], every=self.every)

    def rule(self, mode: str) -> Rule:
        """Of that mode, for the dense parameters."""
        return Adagrad(self.async_lr) if mode == "Async" else Adam(self.lr)

    @property
    def seeds(self) -> range:
        """Of the repeats."""
        return range(self.seed, self.seed + self.repeats)


class Hours(NamedTuple):
    """Throughput over a day.

    Attributes:
        mode: of ``DAILY``.
        eps: float64 [24]; examples per second in each hour.
    """

    mode: str
    eps: NDArray[np.float64]


class Rate(NamedTuple):
    """Throughput in a state of the cluster.

    Attributes:
        state, mode: which.
        eps: float64 [repeats, windows]; examples per second of all workers.
        local: float64 [repeats, n]; of each worker over the whole run.
    """

    state: str
    mode: str
    eps: NDArray[np.float64]
    local: NDArray[np.float64]


class Career(NamedTuple):
    """What a model goes through.

    Attributes:
        seed: of batches, durations and first parameters; the clicks are the same for all.
        plan: mode and state of the cluster of each day.
    """

    seed: int
    plan: tuple[tuple[str, str], ...]


class Day(NamedTuple):
    """A day of a career.

    Attributes:
        mode: of ``MODES``.
        auc: of the day after, before this one and after it.
        gradients: pushed.
        dropped: of them.
        staleness: updates between pull and application, of those applied.
        data_staleness: steps between token and application, of those applied.
    """

    mode: str
    auc: tuple[float, float]
    gradients: int
    dropped: int
    staleness: Histogram
    data_staleness: Histogram


def _timed(
    mode: Mode, cluster: Cluster, setting: Setting, window: float, windows: int, seed: int
) -> Simulation:
    """With a model of two parameters, evaluated at the end of each window of so many seconds."""
    batch_size = setting.batch_size
    x = np.arange(batch_size, dtype=np.float32)[:, None] % 2
    return simulate(
        models.logistic_regression(1),
        (x, x[:, 0].astype(np.int64)),
        cluster=cluster,
        mode=mode,
        until=Until(seconds=window * windows),
        rule=SGD(1e-6),
        batch_size=batch_size,
        seed=seed,
        observe=Observe(every=window, rows=None),
    )


def hour_by_hour(setting: Setting, name: str, compute: float = 20.0) -> Hours:
    """Figure 1 of one mode: a day of ``simulation.day``, in which a gradient takes ``compute`` seconds
    alone.
    """
    cluster = simulation.day(setting.workers, compute)
    played = _timed(DAILY[name](setting.workers), cluster, setting, 3600.0, 24, setting.seed)
    return Hours(name, played.result.eps[1:25])


def hours(setting: Setting, compute: float = 20.0) -> Iterator[Hours]:
    """Figure 1."""
    return side_by_side(lambda name: hour_by_hour(setting, name, compute), DAILY)


def rate(setting: Setting, state: str, name: str, seeds: Sequence[int]) -> Rate:
    """One mode in one state of the cluster."""
    mode, cluster = MODES[name](setting.workers), setting.cluster(state)
    played = [_timed(mode, cluster, setting, setting.every, _WINDOWS, seed) for seed in seeds]
    eps = np.array([one.result.eps[1 : _WINDOWS + 1] for one in played])
    pushed = [one.mode.worker_examples / one.result.elapsed for one in played if one.mode]
    return Rate(state, name, eps, np.array(pushed))


def rates(setting: Setting) -> Iterator[Rate]:
    """Table 2, and the local rates of Table 3: every mode in every state of the cluster."""
    return side_by_side(lambda one: rate(setting, *one, setting.seeds), product(STATES, MODES))


def plans(setting: Setting) -> list[Career]:
    """From Sync to each mode and from each to Sync while the cluster is busy, and a day of each in the
    other states.
    """
    found = []
    for seed in setting.seeds:
        found += [after_sync(setting, seed, mode, "busy", setting.days) for mode in MODES]
        found += [to_sync(setting, seed, mode) for mode in MODES if mode != "Sync"]
        found += [
            after_sync(setting, seed, mode, state, 1)
            for state in STATES
            for mode in MODES
            if state != "busy"
        ]
    return found


def after_sync(setting: Setting, seed: int, mode: str, state: str, days: int) -> Career:
    """Days by Sync, then ``days`` by that mode."""
    return Career(seed, (("Sync", "busy"),) * setting.base + ((mode, state),) * days)


def to_sync(setting: Setting, seed: int, mode: str) -> Career:
    """Days by that mode, then by Sync."""
    return Career(seed, ((mode, "busy"),) * setting.base + (("Sync", "busy"),) * setting.days)


def careers(setting: Setting, asked: Sequence[Career]) -> Iterator[list[Day]]:
    """Each career's days, one career after the other."""
    longest = max(len(career.plan) for career in asked)
    clicks = recommender.days(setting.rows, longest + 1, setting.seed, setting.drift)
    return side_by_side(lambda one: career_of(setting, one, clicks), asked)


@ends_are_told()
def career_of(
    setting: Setting,
    career: Career,
    clicks: Sequence[ClickDataset],
    go_on: GoOn = lambda _: None,
) -> list[Day]:
    """A career's days. The rule of the dense parameters begins anew every day, those of rows go on.

    Args:
        setting: workers and data.
        career: what to go through.
        clicks: of each of its days, and of the one after.
        go_on: is called at evaluations.
    """
    model, found = recommender.model(), []
    theta = model.init(career.seed)
    tables = recommender.new_tables(setting.rows_lr, career.seed)
    for number, (mode, state) in enumerate(career.plan):
        played = simulate(
            model,
            clicks[number],
            validation=clicks[number + 1],
            cluster=setting.cluster(state),
            mode=MODES[mode](setting.workers),
            until=Until(epochs=1),
            rule=setting.rule(mode),
            batch_size=setting.batch_size,
            seed=career.seed + number,
            init=Init(theta, tables),
            observe=go_on,
        )
        recommender.require_finite(unbroken(played.result), *crash(mode, state))
        theta = played.result.parameters
        found.append(_day(mode, played))
    return found


def crash(mode: str, state: str) -> tuple[str, str]:
    """What ``recommender.require_finite`` is to say of a training."""
    option = "--async-lr" if mode == "Async" else "--lr"
    return f"training by {mode} on a {state} cluster", f"give a smaller {option} or --rows-lr"


def _day(mode: str, played: Simulation) -> Day:
    result = played.result
    assert played.mode is not None
    return Day(
        mode,
        (float(result.validation_auc[0]), float(result.validation_auc[-1])),
        result.gradients,
        result.dropped,
        result.staleness,
        Histogram(played.mode.data_staleness),
    )
