"""Trainings in virtual time: real gradients and updates by one thread, whose durations are drawn."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _core
from leashed.base import checks
from leashed.base.choice import Choice, Setting
from leashed.datasets import ClickDataset, ClickSplit, Dataset, SparseDataset, Split
from leashed.disciplines import Discipline, Hogwild, Leashed, Locked, Sequential, Synchronous
from leashed.models._running import running
from leashed.models.external import External, Samples
from leashed.models.graphs import Graph
from leashed.models.network import Model
from leashed.modes import (
    ADPSGD,
    DPSGD,
    AllReduce,
    GoSGD,
    Mode,
    ModeCounts,
    Prague,
    Swarm,
)
from leashed.rules import Rule
from leashed.simulation.embedding import EmbeddingServers
from leashed.simulation.membership import KINDS, Failing, Member, members_of
from leashed.simulation.network import Network
from leashed.simulation.sharding import Sharding, layerwise, memorywise, packed
from leashed.staleness import Policy
from leashed.stopping import Until
from leashed.sync import Synchroniser
from leashed.training import request
from leashed.training.doubts import warn_of_end, warn_of_sequences, warn_of_unknown
from leashed.training.histogram import Histogram
from leashed.training.options import Init, Observe, options
from leashed.training.outcome import Progress, result_of, told_by
from leashed.training.recordings import AnyModel
from leashed.training.result import TrainResult
from leashed.training.sets import AnyStream, head_of
from leashed.training.train import train

__all__ = [
    "Cluster",
    "Costs",
    "ModeCounts",
    "Network",
    "Shard",
    "Sharding",
    "Simulation",
    "TrainerCounts",
    "Trainers",
    "constant",
    "day",
    "exponential",
    "heavy_tail",
    "layerwise",
    "measure",
    "memorywise",
    "normal",
    "packed",
    "rates",
    "simulate",
    "trace",
]

MAX_WORKERS = 32_000
OUTPUTS = ("first", "mean")
_MOST_SECONDS = checks.MOST_SECONDS
_LEAST_SECONDS = 1e-9
_MEASURED = 50  # updates for each cost
_SERVERLESS = (AllReduce, Swarm, GoSGD, ADPSGD, DPSGD, Prague)


@dataclass(frozen=True)
class Costs:
    """What one thread takes, in seconds: ``compute`` for a gradient (T_c), ``update`` for a pass over
    the parameters that updates them (T_u), and ``copy`` for one that copies them.
    """

    compute: float
    update: float
    copy: float

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            checks.seconds(item.name, getattr(self, item.name))


@dataclass(frozen=True)
class Cluster:
    """Workers of virtual time: how many, and what a gradient, an update and a copy take them.

    Made by :func:`constant`, :func:`normal`, :func:`exponential`, :func:`rates`,
    :func:`heavy_tail`, :func:`trace` and :func:`day`.

    Args:
        workers: how many; 1 to 32,000.
        compute: what a gradient takes, as the core is told.
        update: seconds of an attempt to update, T_u.
        copy: seconds of a copy of the parameters, where the discipline makes one.
        fetch: seconds in the mean until a worker has its batch and reads the parameters, drawn as a
            gradient's are and slowed down with them: of a cycle the share between a pull and its push
            is the gradient's mean over that of both.
        network: of ``over``.
        failures: of ``failing``.
        changes: of ``members``.
    """

    workers: int
    compute: Choice
    update: float = 0.0
    copy: float = 0.0
    fetch: float = 0.0
    network: Network | None = None
    failures: Failing | None = None
    changes: tuple[Member, ...] = ()

    def __post_init__(self) -> None:
        checks.whole("workers", self.workers, maximum=MAX_WORKERS)
        for name in ("update", "copy", "fetch"):
            checks.seconds(name, getattr(self, name))
        if self.fetch > 0.0 and _mean(self.compute[1]) == 0.0:
            raise ValueError(
                "fetch is drawn as a gradient's time is: give a gradient some, or leave fetch out"
            )
        if self.network is None:
            return
        if self.copy > 0.0:
            raise ValueError(
                "copy is not for clusters with a network, which says what transfers take"
            )
        if len(self.network.slower) > self.workers:
            raise ValueError(
                f"slower must be of at most the {self.workers} workers, got {len(self.network.slower)}"
            )

    def slower(self, factors: Sequence[float]) -> Cluster:
        """The cluster whose first workers take so many times as long for a gradient.

        SHAT's heterogeneous clusters HE0, HE1 and HE2 are ``slower([2])``, ``slower([10])`` and
        ``slower([100])``.

        Raises:
            TypeError, ValueError: a factor is not above 0, or there are more than workers.
        """
        given = np.array([checks.real("factors", one, 0.0) for one in factors], np.float64)
        if len(given) > self.workers:
            raise ValueError(
                f"factors must be of at most the {self.workers} workers, got {len(given)}"
            )
        return self._with("factors", {"slower": given})

    def under(
        self, load: float | Sequence[tuple[float, float]], *, every: float | None = None
    ) -> Cluster:
        """The cluster while others use it too: at a load L a gradient takes 1 + L times as long in
        the mean.

        Args:
            load: L from 0, or pairs (seconds, L) of which the first is at 0 and each later than the
                one before: L changes evenly from one to the next, and the last moment is the first
                again, so that a day repeats.
            every: the others' work is spread unevenly: each worker bears x times the load, x
                exponentially distributed of mean 1 and drawn anew every so many seconds. Default:
                all bear the same.

        Raises:
            TypeError, ValueError: a load or a time is no such number, or a gradient would take more
                than 10⁶ seconds.
        """
        points = [(0.0, load)] if isinstance(load, (int, float)) else list(load)
        if not points or not all(isinstance(one, tuple) and len(one) == 2 for one in points):
            raise TypeError(f"load must be a number, or pairs (seconds, load), got {load!r}")
        moments = np.array([checks.seconds("load", seconds) for seconds, _ in points])
        if moments[0] != 0 or (np.diff(moments) < _LEAST_SECONDS).any():
            raise ValueError(
                "load must begin at 0 seconds and go on with later ones, got "
                f"{', '.join(f'{one:g}' for one in moments)}"
            )
        loads = [checks.real("load", one, 0.0, allow=True) for _, one in points]
        settings: dict[str, Setting] = {"load_seconds": moments, "load": np.array(loads)}
        if every is not None and checks.seconds("every", every) < _LEAST_SECONDS:
            raise ValueError(f"every must be at least {_LEAST_SECONDS:g} seconds, got {every:g}")
        return self._with("load", {**settings, "load_every": 0.0 if every is None else every})

    def _with(self, argument: str, more: dict[str, Setting]) -> Cluster:
        name, given = self.compute
        settings = {**given, **more}
        longest = (
            _mean(settings)
            * float(np.max(np.asarray(settings.get("slower", 1.0)), initial=0.0))
            * (1.0 + float(np.max(np.asarray(settings.get("load", 0.0)))))
        )
        if longest > _MOST_SECONDS:
            raise ValueError(
                f"{argument} must leave a gradient at most {_MOST_SECONDS:g} seconds, got {longest:g}"
            )
        return dataclasses.replace(self, compute=(name, settings))

    def over(self, network: Network) -> Cluster:
        """The cluster whose transfers go over links, where they wait for each other; for modes.

        Raises:
            TypeError, ValueError: no network, or ``copy`` is given as well.
        """
        if not isinstance(network, Network):
            raise TypeError(f"network must be leashed.simulation.Network(...), got {network!r}")
        return dataclasses.replace(self, network=network)

    def failing(self, mean_between: float, mean_down: float) -> Cluster:
        """The cluster each of whose workers crashes by chance and returns; for modes.

        Times are exponentially distributed and drawn from the seed. Nobody is told of a crash:
        ``simulate`` needs its ``term`` or its ``detection``.

        Args:
            mean_between: seconds that a worker is there before it crashes.
            mean_down: seconds that it is away then.

        Raises:
            TypeError, ValueError: a time is not above 0 (``mean_down``: negative).
        """
        return dataclasses.replace(self, failures=Failing(mean_between, mean_down))

    def members(self, changes: Iterable[Member]) -> Cluster:
        """The cluster whose workers come and go as given; for modes.

        Args:
            changes: (seconds, worker, what), where what is ``"leave"``, which the server is told,
                ``"crash"``, which nobody is, or ``"join"``. Whose first change is to join is not
                there at the beginning. With ``failing`` as well, who leaves while it is away stays
                away, and who joins then is back at once.

        Raises:
            TypeError, ValueError: a change is none, or does not fit the others; the message says
                which. Somebody must be there in the end.
        """
        return dataclasses.replace(self, changes=members_of(changes, self.workers))

    def trainers(
        self,
        count: int,
        *,
        servers: int = 1,
        bandwidth: float = math.inf,
        latency: float = 0.0,
        output: str = "first",
        saturated: float = math.inf,
        rows: EmbeddingServers | None = None,
    ) -> Trainers:
        """So many trainers, each with these workers and a replica of the parameters (shadowsync).

        Args:
            count: how many; all workers together are at most 32,000.
            servers: sync servers, where the synchroniser uses them.
            bandwidth: bytes per second each way, of each sync server's link; under ``MA`` and
                ``BMUF`` of each trainer's. Default: no limit.
            latency: seconds each way, of each message; in a ring of each of its steps.
            output: the model that is evaluated and comes out: the ``"first"`` trainer's replica, as
                in the paper, or the ``"mean"`` of all.
            saturated: threads, at least 1, at which the bandwidth of a trainer's memory is used up:
                with m times as many a gradient takes m times as long, and what ``fetch`` takes does
                too (shadowsync, section 4.4, where it is 24). Default: no end.
            rows: embedding servers that hold the rows of the model's tables. Default: they are
                where they are used, and take no time.

        Raises:
            TypeError, ValueError: an argument is wrong; the message names it.
        """
        return Trainers(
            self, count, servers, bandwidth, latency, output, saturated=saturated, rows=rows
        )


@dataclass(frozen=True)
class Trainers:
    """Trainers of virtual time; made by :meth:`Cluster.trainers`, which explains the attributes."""

    cluster: Cluster
    count: int
    servers: int = 1
    bandwidth: float = math.inf
    latency: float = 0.0
    output: str = "first"
    factors: tuple[float, ...] = ()
    saturated: float = math.inf
    rows: EmbeddingServers | None = None

    def __post_init__(self) -> None:
        checks.whole("count", self.count)
        if self.count * self.cluster.workers > MAX_WORKERS:
            raise ValueError(
                f"count must leave at most {MAX_WORKERS:,} workers in all, got {self.count} trainers "
                f"of {self.cluster.workers}"
            )
        checks.whole("servers", self.servers, maximum=MAX_WORKERS)
        if self.bandwidth != math.inf:
            checks.real("bandwidth", self.bandwidth, 0.0)
        checks.seconds("latency", self.latency)
        if self.saturated != math.inf:
            checks.real("saturated", self.saturated, 1.0, allow=True)
        if self.output not in OUTPUTS:
            raise ValueError(f"output must be one of {', '.join(OUTPUTS)}, got {self.output!r}")

    def slower(self, factors: Sequence[float]) -> Trainers:
        """With the first trainers so many times as slow: all workers of each, for a gradient.

        Raises:
            TypeError, ValueError: a factor is not above 0, or there are more than trainers.
        """
        given = tuple(checks.real("factors", one, 0.0) for one in factors)
        if len(given) > self.count:
            raise ValueError(
                f"factors must be of at most the {self.count} trainers, got {len(given)}"
            )
        return dataclasses.replace(self, factors=given)

    @property
    def workers(self) -> Cluster:
        """All workers, trainer by trainer."""
        every, n = self.count * self.cluster.workers, self.cluster.workers
        found = dataclasses.replace(self.cluster, workers=every)
        own = np.ones(n)
        given = np.asarray(self.cluster.compute[1].get("slower", ()), np.float64)
        own[: len(given)] = given
        of_trainers = np.ones(self.count)
        of_trainers[: len(self.factors)] = self.factors
        factors = np.outer(of_trainers, own).ravel() * max(1.0, n / self.saturated)
        return found if (factors == 1.0).all() else found.slower(factors.tolist())


def constant(
    workers: int, seconds: float, *, update: float = 0.0, copy: float = 0.0, fetch: float = 0.0
) -> Cluster:
    """Every gradient takes ``seconds``."""
    return Cluster(
        workers,
        ("constant", {"seconds": checks.seconds("seconds", seconds)}),
        update=update,
        copy=copy,
        fetch=fetch,
    )


def normal(
    workers: int,
    mean: float,
    deviation: float,
    *,
    update: float = 0.0,
    copy: float = 0.0,
    fetch: float = 0.0,
) -> Cluster:
    """A gradient takes a normally distributed time, in seconds; what would be negative takes none."""
    settings: dict[str, Setting] = {
        "mean": checks.seconds("mean", mean),
        "deviation": checks.seconds("deviation", deviation),
    }
    return Cluster(workers, ("normal", settings), update=update, copy=copy, fetch=fetch)


def exponential(
    workers: int, mean: float, *, update: float = 0.0, copy: float = 0.0, fetch: float = 0.0
) -> Cluster:
    """Each worker's gradients come as a Poisson process, ``mean`` seconds apart."""
    return Cluster(
        workers, ("exponential", {"mean": checks.seconds("mean", mean)}), update, copy, fetch
    )


def rates(
    workers: int,
    mean: float,
    spread: float,
    *,
    update: float = 0.0,
    copy: float = 0.0,
    fetch: float = 0.0,
) -> Cluster:
    """Each worker's gradients come as a Poisson process whose rate is drawn once for each worker.

    The rates are those of the staleness analysis of extreme-scale-asgd: normally distributed around
    1/``mean``, with a standard deviation of ``spread`` times that; none is below a twentieth of it.
    """
    settings: dict[str, Setting] = {
        "mean": checks.seconds("mean", mean),
        "spread": checks.real("spread", spread, 0.0, allow=True),
    }
    return Cluster(workers, ("rates", settings), update, copy, fetch)


def heavy_tail(
    workers: int,
    mean: float = 1.0,
    shape: float = 2.5,
    *,
    update: float = 0.0,
    copy: float = 0.0,
    fetch: float = 0.0,
) -> Cluster:
    """A gradient takes a time of Lomax's distribution of that ``mean`` in seconds and that ``shape``,
    above 1: the smaller, the more often one takes very long. At 2 and below the variance is infinite.
    """
    settings: dict[str, Setting] = {
        "mean": checks.seconds("mean", mean),
        "shape": checks.real("shape", shape, 1.0),
    }
    return Cluster(workers, ("heavy_tail", settings), update, copy, fetch)


def trace(
    workers: int, seconds: ArrayLike, *, update: float = 0.0, copy: float = 0.0, fetch: float = 0.0
) -> Cluster:
    """Gradients take the ``seconds`` given, float [any], one after the other and again from the
    beginning; each worker begins at another place.
    """
    given = np.asarray(seconds, np.float64)
    if given.ndim != 1 or len(given) == 0 or not ((given >= 0) & (given <= _MOST_SECONDS)).all():
        raise ValueError(
            f"seconds must be a list of durations from 0 to {_MOST_SECONDS:g}, at least one"
        )
    return Cluster(workers, ("trace", {"seconds": given}), update, copy, fetch)


_HOUR = 3600.0
# The loads of the hours from midnight on, as shares of the busiest.
_MORNING = (0.3, 0.2, 0.1, 0.05, 0.05, 0.1, 0.2, 0.35, 0.55, 0.75, 0.9, 0.95)
_BY_HOUR = (*_MORNING, 0.85, 0.8, 0.85, 0.9, 0.95, 1.0, 1.0, 0.95, 0.9, 0.75, 0.6, 0.45, 0.3)


def day(
    workers: int,
    mean: float,
    *,
    busiest: float = 1.0,
    every: float = 900.0,
    update: float = 0.0,
    copy: float = 0.0,
    fetch: float = 0.0,
) -> Cluster:
    """A day of a cluster that others use too, after gba's Figure 1: from midnight on, nearly vacant at
    night and at its busiest in the evening. It repeats. The hours' loads are ours.

    On a vacant cluster a gradient takes a normally distributed time with a standard deviation of a
    twentieth of ``mean``, in seconds.

    Args:
        busiest: the load of the busiest hour, as of :meth:`Cluster.under`.
        every: seconds for which a worker's machine is shared with the same others.
    """
    busiest = checks.real("busiest", busiest, 0.0, allow=True)
    alone = normal(
        workers, mean, 0.05 * checks.seconds("mean", mean), update=update, copy=copy, fetch=fetch
    )
    hours = [(hour * _HOUR, share * busiest) for hour, share in enumerate(_BY_HOUR)]
    return alone.under(hours, every=every)


def measure(
    model: Model | External,
    data: Dataset | Samples | Split,
    *,
    rule: Rule | str | None = None,
    batch_size: int | None = None,
    seed: int = 0,
) -> Costs:
    """What a gradient, an update and a copy take here, by one thread: of some dozen each the median,
    in which a moment without the processor does not count, and of copies the mean.

    Args:
        model, data, rule, batch_size, seed: as of :func:`leashed.train`.

    Raises:
        TypeError, ValueError: as there.
    """

    def short(discipline: Discipline) -> TrainResult:
        return train(
            model,
            data,
            until=Until(updates=_MEASURED),
            discipline=discipline,
            rule=rule,
            threads=1,
            batch_size=batch_size,
            seed=seed,
            observe=Observe(every=_MOST_SECONDS),
        )

    published, copied = short(Leashed()), short(Locked())
    return Costs(
        compute=published.gradient_seconds.quantile(0.5),
        update=published.attempt_seconds.quantile(0.5),
        copy=copied.breakdown["read"] / copied.gradients,
    )


@dataclass(frozen=True, eq=False)
class TrainerCounts:
    """What trainers did, and what their synchronisation moved.

    Attributes:
        iterations: int64 [trainers]; gradients computed by each.
        syncs: int64 [trainers]; rounds of each. In the foreground with sync servers those of its
            workers together.
        seconds: float64 [trainers]; in them: of the shadow thread, or of the workers together that
            exchange with servers; with ``MA`` and ``BMUF`` from the trainer's entering a round on.
        bytes_out: sent by all trainers; with sync servers with the headers of frames.
        bytes_in: received by them.
        sync_gap: the average sync gap, shadowsync's eq. 2, its first form: iterations over syncs;
            NaN without any.
        sync_gap_by_bytes: its second form, by the bytes sent over those of the parameters, 4 each.
        syncs_per_second: of all trainers.
        drawn: the second in which the last batch was begun; from there on workers run out of them.
        row_seconds: float64 [trainers]; for which the workers of each have waited for rows of embedding
            servers.
        row_bytes_out, row_bytes_in: to and from embedding servers, with the headers of frames.
    """

    iterations: NDArray[np.int64]
    syncs: NDArray[np.int64]
    seconds: NDArray[np.float64]
    bytes_out: int
    bytes_in: int
    sync_gap: float
    sync_gap_by_bytes: float
    syncs_per_second: float
    drawn: float
    row_seconds: NDArray[np.float64]
    row_bytes_out: int
    row_bytes_in: int


@dataclass(frozen=True, eq=False)
class Shard:
    """What one of several servers holds and has done.

    Attributes:
        spans: parameters [begin, end) of the vector.
        updates: to them.
        staleness: of the updates of these parameters, in such updates, counted from 0.
        applied, stale, straggler, late: examples, as of ``ModeCounts``; what this one decided.
        missing: examples of batches that the first server has had and this one has not, since their
            worker was gone before its part of them got here (or the run ended before). A batch
            counts once at each server, so at the end of the data those that are not late, with what
            is missing, are all examples.
    """

    spans: tuple[tuple[int, int], ...]
    updates: int
    staleness: Histogram
    applied: int
    stale: int
    straggler: int
    late: int
    missing: int


@dataclass(frozen=True, eq=False)
class Simulation:
    """A training in virtual time.

    Attributes:
        result: what :func:`leashed.train` returns of a real one; its seconds are virtual, its memory
            is what the simulation took. ``config["virtual"]`` has the cluster.
        updating_seconds: float64 [workers + 1]; for how long 0, 1, … workers were in their updates at
            once (under ``Leashed`` in the retry loop: n_t of leashed-sgd's section IV); empty with a
            mode.
        updating_moments: float64 [k]; when that number changed, of the first 65,536 changes.
        updating: int64 [k]; and to what.
        events: what was played, one after the other.
        mode: what a mode decided; None under a discipline.
        trainers: what each of several did; None where there is no ``Cluster.trainers``.
        shards: what each server holds and has done, in the order of ``shards``; one without them, none
            under a discipline. Those that hold nothing are left out.
        models: float32 [workers, d]; the workers' own models at the end, of a mode that has such
            (EASGD, SHAT, peers and their kin); of several trainers float32 [trainers, d], their
            replicas; None with others.
    """

    result: TrainResult
    updating_seconds: NDArray[np.float64]
    updating_moments: NDArray[np.float64]
    updating: NDArray[np.int64]
    events: int
    mode: ModeCounts | None = None
    trainers: TrainerCounts | None = None
    models: NDArray[np.float32] | None = None
    shards: tuple[Shard, ...] = ()

    @property
    def mean_updating(self) -> float:
        """The number of workers in their updates, as a mean over the time; NaN where none passed."""
        total = self.updating_seconds.sum()
        if total == 0.0:
            return math.nan
        return float(self.updating_seconds @ np.arange(len(self.updating_seconds)) / total)


def simulate(
    model: AnyModel,
    data: Dataset
    | SparseDataset
    | Samples
    | Split
    | ClickDataset
    | ClickSplit
    | AnyStream
    | tuple[Any, ArrayLike],
    *,
    cluster: Cluster | Trainers,
    until: Until,
    discipline: Discipline | str | None = None,
    mode: Mode | str | None = None,
    sync: Synchroniser | None = None,
    rule: Rule | str | None = None,
    staleness: Policy | str | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    init: str | ArrayLike | Init | None = None,
    validation: Any = None,
    observe: Observe | Callable[[Progress], object] | None = None,
    detection: float | None = None,
    shards: Sharding | None = None,
    **old: Any,
) -> Simulation:
    """Train ``model`` on ``data`` as :func:`leashed.train` does, in virtual time.

    One thread plays all workers. Gradients and updates are the real ones, by the discipline's own
    code, and so are staleness, failed attempts and dropped gradients; only what they take is drawn.
    That threads slow each other down, in caches and memory, is not played. Under ``Hogwild``
    copies and updates go on in 64 parts while others' do, so views are torn at that grain. The same
    seed gives the same bits on one instruction-set level, whatever else the machine does. Ctrl-C
    returns the state reached.

    Args:
        cluster: how many workers, and what their work takes.
        until: when to stop; its seconds are virtual ones.
        discipline: default ``Leashed()``. Under ``Synchronous`` an update begins when the slowest
            worker has its gradient. ``Hogwild(copy=False)``, which reads all the while, is not played.
        mode: of ``leashed.modes``, in place of a discipline: workers that pull from a server and push
            to it, or meet each other. ``cluster.copy`` is then what a transfer takes each way, unless
            the cluster has a network, and ``cluster.update`` what the server takes for each push, one
            after the other (peers each for themselves). ``result.total_updates`` counts the server's
            (of peers, those of all models); a lease's local steps are parts of a batch. Stage-aware
            staleness policies are not played. Of models over tables, modes whose workers send models
            (``easgd``, ``local_sgd``, peers) are refused; under ``SHAT``, ``SHATRoot`` and
            ``Ensemble`` rows are shared by all, and each push updates its own, as in ``ASP``.
        sync: how the replicas of ``Cluster.trainers`` are kept in sync, of ``leashed.sync``, in the
            background or at a fixed rate (shadowsync, Algorithms 2 to 4). Default: they train apart.
            Batches are drawn, and updates and epochs counted, by all trainers together. Under
            ``MA`` and ``BMUF`` compression is not played, and no ``mix`` of one's own anywhere.
        shards: ``layerwise(n)``, ``memorywise(n)`` or ``packed(n)``: the parameters on n servers, of
            every mode but those of peers, each with a queue, a link, versions and staleness of its
            own, which takes its share of ``cluster.update`` for its part of a push, by the
            parameters that it holds. What a worker has pulled may be of different versions.
            ``result.total_updates`` counts those that all have made, ``result.staleness`` the
            updates of each, ``simulation.mode`` the examples of the first, whose leases are the
            workers', and ``simulation.shards`` those of each. Rules with ``clip_norm`` and staleness
            policies that adapt are refused with several. Default: one server.
        observe: as of ``leashed.train``, but that ``every`` is in virtual seconds: default, at the
            beginning and at the end alone; where a loss ends the run, it must be given.
        detection: seconds until the server knows of a worker that has crashed, of a mode. Default:
            never, so that only the mode's ``term`` brings its batch back.
        model, data, rule, staleness, batch_size, seed, init, validation, old: as of
            :func:`leashed.train`. Rows are copied when a worker reads the parameters and updated when
            it updates them; with a mode, those of an update's gradients as one, with their mean.
            Sparse rows are never updated in place: each update is of all parameters. Of a stream the
            rows that workers have are kept until they have pushed.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """
    if not isinstance(cluster, (Cluster, Trainers)):
        raise TypeError(
            f"cluster must be leashed.simulation.constant(...) or another of it, got {cluster!r}"
        )
    if isinstance(cluster, Trainers):
        trainers, crew, workers = cluster, cluster.workers, cluster.cluster.workers
    else:
        trainers, crew, workers = None, cluster, cluster.workers
    given = options(init, mode, observe, None, None, old, ("init", "mode", "observe"))
    asked = request.asked(
        model,
        data,
        validation,
        until=until,
        discipline=discipline,
        mode=given.mode,
        rule=rule,
        staleness=staleness,
        workers=lambda discipline: _checked(crew, workers, discipline),
        batch_size=batch_size,
        seed=seed,
        init=given.init,
        observe=given.observe,
        also={
            "virtual time": True,
            "cluster of trainers": trainers,
            "network": crew.network,
            "failing": crew.failures,
            "members": crew.changes or None,
            "shards": shards,
            "detection": detection,
        },
    )
    _check_sync(sync, trainers)
    _check_rows(trainers, asked.discipline, model)
    check_shards(shards, asked.mode)
    _check_rounds(sync, trainers, asked.discipline, crew.update, model.dimension)
    term = None if given.mode is None else given.mode.term
    _check_members(crew, term, detection)
    until, every = asked.until, asked.observe.every
    losses = (until.loss, until.loss_fraction, until.divergence)
    if every is None and any(loss is not None for loss in losses):
        raise ValueError(
            "observe.every must be given where a loss ends the run, in virtual seconds"
        )
    durations = [crew.update, crew.copy, *_means(crew)]
    if until.updates is None and until.epochs is None and not any(durations):
        raise ValueError("until needs updates or epochs where nothing takes time")
    request.check_dense_part(model)

    refusals, streamed = asked.refusals(), asked.streamed
    warn_of_sequences(model, asked.train_set)
    if streamed is None:
        warn_of_unknown(asked.train_set, asked.columns.heads)
    else:
        streamed.open(until.epochs, 1)
    asked.wait()
    source, examples = asked.source(1), head_of(asked.train_set)
    validating = None if asked.test_set is None else head_of(asked.test_set)
    training = asked.training(source, examples, workers, validating, observers=asked.observers)
    virtual = _core.VirtualTime(
        compute=_drawn(crew),
        update=("constant", {"seconds": crew.update}),
        copy=("constant", {"seconds": crew.copy}),
        commands=[] if given.mode is None else given.mode.commands(),
        network=None if crew.network is None else crew.network.choice(),
        changes=[(KINDS.index(kind), worker, seconds) for seconds, worker, kind in crew.changes],
        failing=(0.0, 0.0) if crew.failures is None else dataclasses.astuple(crew.failures),
        detection=math.inf if detection is None else detection,
        trainers=None if trainers is None else _plan_of(trainers, sync, model),
        shards=[] if shards is None else shards.spans(model),
        servers_of_tables=[] if shards is None else shards.servers_of_tables(model),
    )
    with asked.report(refusals) as report:
        watch = _core.Watch(
            until=asked.rules,
            evaluate_every=math.inf if every is None else every,
            progress=report,
        )
        outcome = _core.simulate(training, watch, virtual, given.mode is not None)
    compute, settings = crew.compute
    config = asked.config()
    config["virtual"] = {
        "compute": compute,
        **{k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in settings.items()},
        "update": crew.update,
        "copy": crew.copy,
        **({"fetch": crew.fetch} if crew.fetch else {}),
        **_beyond(crew, term, detection),
    }
    if shards is not None:
        config["virtual"]["shards"] = dataclasses.asdict(shards)
    if trainers is not None:
        config["sync"] = None if sync is None else sync.label
        config["virtual"]["trainers"] = {
            name: getattr(trainers, name)
            for name in ("count", "servers", "bandwidth", "latency", "output")
        }
        if trainers.saturated != math.inf:
            config["virtual"]["trainers"]["saturated"] = trainers.saturated
        if trainers.rows is not None:
            config["virtual"]["embedding_servers"] = dataclasses.asdict(trainers.rows)
    if asked.tables:
        config["tables"] = told_by(asked.tables)
    refusals.look()
    if streamed is not None:
        config["reading"] = streamed.counts.config()
    result = result_of(
        outcome,
        asked.mean_batch,
        config,
        asked.tables,
        running(source),
        streamed=streamed,
        architecture=model,
    )
    warn_of_end(result, model, asked.train_set, examples[2])
    counts = None if trainers is None else _counted(outcome, model.dimension)
    replicas = crew.workers if trainers is None else trainers.count
    return simulation_of(result, outcome, replicas, counts)


def simulation_of(
    result: TrainResult,
    outcome: dict[str, Any],
    replicas: int,
    trainers: TrainerCounts | None = None,
) -> Simulation:
    """Of what the core tells, with so many models where there are several."""
    return Simulation(
        result=result,
        updating_seconds=outcome["updating_seconds"],
        updating_moments=outcome["updating_moments"],
        updating=outcome["updating"].astype(np.int64),
        events=outcome["events"],
        mode=result.mode,
        trainers=trainers,
        models=_models(outcome, replicas),
        shards=tuple(
            Shard(tuple(spans), updates, Histogram(staleness), **counts)
            for spans, updates, staleness, counts in outcome.get("shards", ())
        ),
    )


def _checked(crew: Cluster, workers: int, discipline: Discipline) -> int:
    if isinstance(discipline, Hogwild) and not discipline.copy:
        raise ValueError("discipline Hogwild(copy=False) reads all the while; take Hogwild()")
    if isinstance(discipline, Sequential) and workers != 1:
        raise ValueError(f"cluster must have 1 worker with Sequential, got {workers}")
    return crew.workers


def _check_sync(sync: Synchroniser | None, trainers: Trainers | None) -> None:
    if sync is None:
        return
    if not isinstance(sync, Synchroniser):
        raise TypeError(f"sync must come from leashed.sync, got {sync!r}")
    if trainers is None:
        raise ValueError("sync needs a cluster of trainers: cluster.trainers(2)")
    if sync.choice()[0].startswith("custom") or sync.custom() is not None:
        raise TypeError(f"sync {sync.label} has a mix of its own, which virtual time does not play")
    if sync.compression != "none" and not sync.SERVERS:
        raise ValueError(
            f"sync {sync.label}: compression is played with sync servers alone; take none, or EASGD"
        )
    instant = trainers.bandwidth == math.inf and trainers.latency == 0.0
    if instant and sync.when.kind == "background":
        raise ValueError(
            "cluster's trainers need a bandwidth or a latency where they synchronise in the "
            "background, or rounds would take no time and never end"
        )


def _check_rows(trainers: Trainers | None, discipline: Discipline, model: AnyModel) -> None:
    if trainers is None or trainers.rows is None:
        return
    if not isinstance(trainers.rows, EmbeddingServers):
        raise TypeError(f"rows must be simulation.EmbeddingServers(...), got {trainers.rows!r}")
    if not isinstance(model, (Graph, External)) or not model.tables:
        raise ValueError(f"rows: {model.name} reads no tables that embedding servers could hold")
    if isinstance(discipline, Synchronous):
        raise ValueError(  # noqa: TRY004 (it is one, and none that this takes)
            "rows: Synchronous updates all workers' rows at once, which embedding servers do not; "
            "take Hogwild, Leashed or Locked"
        )


def _check_rounds(
    sync: Synchroniser | None,
    trainers: Trainers | None,
    discipline: Discipline,
    update: float,
    dimension: int,
) -> None:
    """A round's mix takes no time, so an update of Leashed that one always comes between never ends."""
    if sync is None or trainers is None or sync.when.kind != "background":
        return
    # Of servers there and back, of a ring each of its steps (a trainer alone has no rounds); the
    # bytes of one.
    steps, shares = (
        (2, trainers.servers) if sync.SERVERS else (2 * (trainers.count - 1), trainers.count)
    )
    least = steps * (trainers.latency + 4.0 * dimension / shares / trainers.bandwidth)
    if isinstance(discipline, Leashed) and steps and least <= update:
        raise ValueError(
            f"cluster: a round of the background takes {least:g} s and an update {update:g} s, which no "
            "update of Leashed would get through; take more latency, less bandwidth, or Hogwild"
        )


def _plan_of(trainers: Trainers, sync: Synchroniser | None, model: AnyModel) -> _core.TrainersPlan:
    gaps = {} if sync is None else sync.when.gaps
    rows = None
    if trainers.rows is not None:
        assert isinstance(model, (Graph, External))
        rows = trainers.rows.plan(model)
    return _core.TrainersPlan(
        count=trainers.count,
        machine=None if sync is None else sync.choice(),
        pace="background" if sync is None else sync.when.kind,
        starts=list(gaps),
        gaps=[float(gap) for gap in gaps.values()],
        servers=trainers.servers,
        parts=1 if sync is None else sync.parts,
        bandwidth=trainers.bandwidth,
        latency=trainers.latency,
        compression="none" if sync is None else sync.compression,
        mean=trainers.output == "mean",
        rows=rows,
    )


def _counted(outcome: dict[str, Any], dimension: int) -> TrainerCounts:
    iterations = outcome["trainer_iterations"].astype(np.int64)
    syncs = outcome["rounds"].astype(np.int64)
    total, rounds = int(iterations.sum()), int(syncs.sum())
    vectors = outcome["bytes_out"] / (4 * dimension)
    elapsed = outcome["elapsed"]
    return TrainerCounts(
        iterations=iterations,
        syncs=syncs,
        seconds=outcome["round_seconds"],
        bytes_out=outcome["bytes_out"],
        bytes_in=outcome["bytes_in"],
        sync_gap=total / rounds if rounds else math.nan,
        sync_gap_by_bytes=total / vectors if vectors else math.nan,
        syncs_per_second=rounds / elapsed if elapsed else math.nan,
        drawn=outcome["drawn"],
        row_seconds=outcome["row_waits"],
        row_bytes_out=outcome["row_bytes_out"],
        row_bytes_in=outcome["row_bytes_in"],
    )


def _check_members(cluster: Cluster, term: float | None, detection: float | None) -> None:
    if detection is not None:
        checks.seconds("detection", detection)
    crashes = cluster.failures is not None or any(kind == "crash" for _, _, kind in cluster.changes)
    if crashes and term is None and detection is None:
        raise ValueError(
            "the mode's term or detection must be given where workers crash, or their batches never come back"
        )


def _beyond(cluster: Cluster, term: float | None, detection: float | None) -> dict[str, Any]:
    """What only some clusters have."""
    given = {
        "network": None if cluster.network is None else dataclasses.asdict(cluster.network),
        "failing": None if cluster.failures is None else dataclasses.asdict(cluster.failures),
        "members": list(cluster.changes) or None,
        "term": term,
        "detection": detection,
    }
    return {name: value for name, value in given.items() if value is not None}


def check_shards(shards: Sharding | None, mode: Mode | None) -> None:
    """TypeError or ValueError where a mode cannot be played with these."""
    if shards is None:
        return
    if not isinstance(shards, Sharding):
        raise TypeError(f"shards must be layerwise(n) or another of simulation, got {shards!r}")
    if shards.shards > 1 and isinstance(mode, _SERVERLESS):
        raise TypeError(f"shards must be 1 with {mode!r}, whose workers have no server")


def _models(outcome: dict[str, Any], workers: int) -> NDArray[np.float32] | None:
    given: NDArray[np.float32] = outcome.get("models", np.empty(0, np.float32))
    return given.reshape(workers, -1) if given.size else None


def _mean(settings: dict[str, Setting]) -> float:
    given = settings.get("mean", settings.get("seconds", 0.0))
    return float(np.max(np.asarray(given, np.float64)))


def _drawn(cluster: Cluster) -> Choice:
    """What the core draws from; ``fetch`` by how many times a gradient's mean it is."""
    name, settings = cluster.compute
    if not cluster.fetch:
        return cluster.compute
    mean = np.mean(np.asarray(settings.get("mean", settings.get("seconds")), np.float64))
    return name, {**settings, "fetch": cluster.fetch / float(mean)}


def _means(cluster: Cluster) -> list[float]:
    """What of a gradient's time may be above 0."""
    _, settings = cluster.compute
    given = [settings.get(name, 0.0) for name in ("mean", "deviation", "seconds")]
    return [float(np.max(np.asarray(value, np.float64))) for value in given]
