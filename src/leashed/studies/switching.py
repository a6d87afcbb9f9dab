"""Modes of training on a cluster that others use too, and switches between them: gba, section 5.

Throughput comes from long runs of a model of two parameters, since it does not depend on gradients;
accuracy, drops and staleness from careers: days of clicks, one after another, each by a mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed import models, modes, simulation
from leashed.base import checks
from leashed.datasets import ClickDataset
from leashed.models.graphs import Graph
from leashed.models.tables import Table
from leashed.modes import Mode
from leashed.rules import SGD, Adagrad, Adam, Rule
from leashed.simulation.virtual_time import Cluster, Simulation, simulate
from leashed.stopping import Until
from leashed.studies import recommender
from leashed.studies.side_by_side import side_by_side
from leashed.studies.study import GoOn, Study, option, unbroken
from leashed.training.doubts import ends_are_told
from leashed.training.options import Init, Observe
from leashed.training.result import Histogram

__all__ = [
    "DAILY",
    "MODES",
    "PUSHES",
    "SHARES",
    "STALE",
    "STATES",
    "SYNC_OF_ALL",
    "Career",
    "Day",
    "Hours",
    "Model",
    "Rate",
    "Setting",
    "Shared",
    "after_sync",
    "careers",
    "crash",
    "hours",
    "plans",
    "rated",
    "rates",
    "staleness",
    "timed",
    "to_sync",
    "trained",
]

MODES: dict[str, Callable[[int], Mode]] = {
    "Sync": lambda _: modes.AllReduce(),
    "Async": lambda _: modes.ASP(),
    "Hop-BS": lambda _: modes.HopBS(b1=2),
    "BSP": lambda n: modes.BSP(b2=max(1, n // 5)),
    "Hop-BW": lambda n: modes.HopBW(b3=n // 4),
    "GBA": lambda _: modes.GBA(iota=4),
}
"""Of the paper's Tables 2 and 3, for so many workers, with the numbers of its Table 1: b2 of a hundred
workers, b3 of four hundred. Sync has no server, and the few fast workers of ``Setting.crew``."""

SYNC_OF_ALL = "Sync of all"
"""As Sync, by the workers of the other modes, whose batches are theirs."""

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

PUSHES = (0.0, 0.0005, 0.001, 0.00125, 0.0015, 0.002)
"""Seconds that the servers take for a push: the sweep in which Sync is set beside Async."""

SHARES = (1.0, 0.5, 0.3, 0.25, 0.2, 0.15, 0.1)
"""Of a cycle between a pull and its push: the rest of it a worker fetches its batch."""

STALE = {
    "Hop-BS": modes.HopBS(b1=2),
    "GBA": modes.GBA(iota=4),
    "BSP": modes.BSP(b2=50),
}
"""Of the paper's Table 3, with the numbers of its private task, which has ``STALE_WORKERS``."""

STALE_WORKERS = 400

_WINDOWS = 20


@dataclass(frozen=True)
class Setting:
    """Workers and data that all modes share.

    Args:
        workers: n of every mode but Sync; their gradients make a global batch.
        batch_size: clicks of a gradient of theirs.
        sync_workers: of Sync, as the paper's Table 1 has it: few, with batches so much larger that
            theirs make a global batch too, and so much faster that a gradient takes as long.
        push: seconds that the servers take for a push, one after the other; of Sync each worker's own
            update.
        transfer: seconds of a model or a gradient over one link, each way; of Sync over a ring.
        model: of ``recommender.MODELS``.
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
    sync_workers: int = option(25, "of Sync: few and fast, with larger batches", checks.whole)
    push: float = option(0.0015, "seconds of the servers for a push", checks.seconds)
    transfer: float = option(0.002, "seconds of a gradient over a link", checks.seconds)
    model: str = option("deepfm", "what is trained", choices=recommender.MODELS)
    compute: float = 0.1
    every: float = 5.0
    rows: int = option(100_000, "clicks of a day", checks.whole, full=400_000, short=50_000)
    drift: float = 0.1
    base: int = 2
    days: int = 3
    lr: float = option(0.005, "of Adam", partial(checks.real, above=0.0))
    async_lr: float = option(0.04, "of Adagrad, in Async", partial(checks.real, above=0.0))
    rows_lr: float = option(
        0.02, "of Adagrad, for the rows of tables", partial(checks.real, above=0.0)
    )
    repeats: int = option(5, "seeds of each", checks.whole, full=11, short=1)
    seed: int = option(0, "the first", partial(checks.whole, minimum=0))

    def crew(self, mode: str) -> tuple[int, int]:
        """Workers of that mode, and clicks of a gradient."""
        if mode != "Sync":
            return self.workers, self.batch_size
        return self.sync_workers, self.workers * self.batch_size // self.sync_workers

    def cluster(self, mode: str, state: str, share: float = 1.0) -> Cluster:
        """Of that mode, in one of ``STATES``, where gradients are so much of a cycle."""
        alone = simulation.normal(
            self.crew(mode)[0],
            share * self.compute,
            0.05 * share * self.compute,
            update=self.push,
            copy=self.transfer,
            fetch=(1.0 - share) * self.compute,
        )
        return alone.under(STATES[state], every=self.every)

    def graph(self) -> Graph:
        """What is trained."""
        return recommender.MODELS[self.model].graph()

    def days_of(self, rows: int, count: int, drift: float = 0.0) -> list[ClickDataset]:
        """So many days of ``rows`` clicks each, between which what makes people click drifts."""
        return recommender.MODELS[self.model].days(rows, count, self.seed, drift)

    def tables(self, seed: int) -> dict[str, Table]:
        """New ones of it, trained by Adagrad whatever the mode."""
        return recommender.new_tables(self.rows_lr, seed, self.graph())

    def rule(self, mode: str) -> Rule:
        """Of that mode, for the dense parameters."""
        return Adagrad(self.async_lr) if mode == "Async" else Adam(self.lr)

    @property
    def seeds(self) -> range:
        """Of the repeats."""
        return range(self.seed, self.seed + self.repeats)


@dataclass(frozen=True)
class Shared(Setting, Study):
    """A study of such workers and data."""

    def __post_init__(self) -> None:
        super().__post_init__()
        step = self.workers * self.batch_size
        if step % self.sync_workers:
            raise ValueError(
                f"sync_workers must divide the {step} clicks of a global batch, got "
                f"{self.sync_workers}"
            )
        if self.rows < 10 * step:
            raise ValueError(
                f"rows must be at least {10 * step}, ten global batches of {self.workers} workers and "
                f"{self.batch_size} clicks, got {self.rows}"
            )


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
        push: seconds of the servers for one.
        eps: float64 [repeats, windows]; examples per second of all workers.
        local: float64 [repeats, n]; of each worker over the whole run.
    """

    state: str
    mode: str
    push: float
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


def mode_of(setting: Setting, name: str) -> Mode:
    """By its name in ``MODES``, ``DAILY`` or ``SYNC_OF_ALL``."""
    made = {**DAILY, **MODES, SYNC_OF_ALL: MODES["Sync"]}[name]
    return made(setting.crew(name)[0])


def timed(
    mode: Mode, batch_size: int, cluster: Cluster, window: float, windows: int, seed: int
) -> Simulation:
    """With a model of two parameters, evaluated at the end of each window of so many seconds."""
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
    alone, and pushes and transfers as much longer.
    """
    longer = compute / setting.compute
    workers, batch_size = setting.crew(name)
    cluster = simulation.day(
        workers,
        compute,
        update=longer * setting.push,
        copy=longer * setting.transfer,
    )
    played = timed(mode_of(setting, name), batch_size, cluster, 3600.0, 24, setting.seed)
    return Hours(name, played.result.eps[1:25])


def hours(setting: Setting, compute: float = 20.0) -> Iterator[Hours]:
    """Figure 1."""
    return side_by_side(lambda name: hour_by_hour(setting, name, compute), DAILY)


def rate(setting: Setting, state: str, name: str, seeds: Sequence[int]) -> Rate:
    """One mode in one state of the cluster."""
    cluster, mode = setting.cluster(name, state), mode_of(setting, name)
    batch_size = setting.crew(name)[1]
    played = [timed(mode, batch_size, cluster, setting.every, _WINDOWS, seed) for seed in seeds]
    eps = np.array([one.result.eps[1 : _WINDOWS + 1] for one in played])
    pushed = [one.mode.worker_examples / one.result.elapsed for one in played if one.mode]
    return Rate(state, name, setting.push, eps, np.array(pushed))


def rated(setting: Setting) -> list[tuple[str, str, float]]:
    """State, mode and push of Table 2, and of the sweep of what a push costs."""
    table = [(state, mode, setting.push) for state, mode in product(STATES, MODES)]
    sweep = product(STATES, ("Sync", SYNC_OF_ALL, "Async"), PUSHES)
    return list(dict.fromkeys([*table, *sweep]))


def rates(setting: Setting) -> Iterator[Rate]:
    """Table 2, the local rates of Table 3, and the sweep."""

    def one(asked: tuple[str, str, float]) -> Rate:
        state, name, push = asked
        return rate(replace(setting, push=push), state, name, setting.seeds)

    return side_by_side(one, rated(setting))


def staleness(setting: Setting, state: str, name: str, share: float, seed: int) -> Histogram:
    """Table 3's, of the gradients applied, of one of ``STALE``, where nothing but a gradient and its
    batch take time.
    """
    free = Setting(
        STALE_WORKERS, push=0.0, transfer=0.0, compute=setting.compute, every=setting.every
    )
    played = timed(STALE[name], 2, free.cluster(name, state, share), setting.every, 4, seed)
    return played.result.staleness


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
    clicks = setting.days_of(setting.rows, longest + 1, setting.drift)
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
    going, found = Model(setting.graph().init(career.seed), setting.tables(career.seed)), []
    for number, (mode, state) in enumerate(career.plan):
        played = trained(
            setting, going, mode, state, clicks[number : number + 2], career.seed + number, go_on
        )
        found.append(_day(mode, played))
    return found


class Model:
    """What goes on from one training to the next: parameters, and tables with their rules' states."""

    def __init__(self, theta: NDArray[np.float32], tables: Mapping[str, Table]) -> None:
        self.theta = theta
        self.tables = tables


def trained(
    setting: Setting,
    going: Model,
    mode: str,
    state: str,
    clicks: Sequence[ClickDataset],
    seed: int,
    observe: Observe | GoOn = lambda _: None,
    rule: Rule | None = None,
) -> Simulation:
    """A pass over the first of ``clicks``, judged by the second; ``going`` is what came of it.

    Raises:
        ValueError: what is trained is no longer finite.
    """
    played = simulate(
        setting.graph(),
        clicks[0],
        validation=clicks[1],
        cluster=setting.cluster(mode, state),
        mode=mode_of(setting, mode),
        until=Until(epochs=1),
        rule=setting.rule(mode) if rule is None else rule,
        batch_size=setting.crew(mode)[1],
        seed=seed,
        init=Init(going.theta, going.tables),
        observe=observe,
    )
    recommender.require_finite(unbroken(played.result), *crash(mode, state))
    going.theta = played.result.parameters
    return played


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
