"""What a cluster runs: which processes, how they synchronise, and what they train.

A plan is a TOML file with the tables ``[cluster]``, ``[sync]`` and ``[train]``, in which every value
has a default. All processes of a run read the same plan, each from a file on its own
machine. Paths in it are relative to its folder.

    [cluster]
    trainers = 4
    sync_ps = 2

    [sync]
    kind = "easgd:alpha=0.5"
    when = "every:iterations=5"

    [train]
    model = "cnn"
    epochs = 5
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from leashed import _core, sync
from leashed.base import checks
from leashed.base.options import option
from leashed.base.warning import warn
from leashed.cluster import collectives, handed_data, opening, roles
from leashed.cluster.addressing import everywhere, is_local
from leashed.cluster.trainer_place import ahead_of
from leashed.stopping import Until
from leashed.training import abilities, defaults, spelled
from leashed.training.job import RESEARCH, UNTIL, Job, threads_of
from leashed.training.led_mode import (
    SHARDINGS,
    SHARDS,
    check_recorded,
    check_reduced,
    lanes_of,
)
from leashed.training.problems import clicks, sparse
from leashed.training.problems.problem import Problem, problem_of
from leashed.training.request import MAX_SEED, MAX_THREADS
from leashed.training.rows_read import POOLINGS
from leashed.training.sets import drawn, shaped

if TYPE_CHECKING:
    from leashed.cluster.row_index import RowIndex

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "DIGITS",
    "OUTPUTS",
    "ROLES",
    "STDIN",
    "WORDS",
    "Cluster",
    "Plan",
    "Sync",
    "Train",
    "parse",
    "read",
    "write",
]

ROLES = (roles.MASTER, *roles.ROLES)
OUTPUTS = ("first", "average", "best")
DIGITS = "digits"
"""The name of the data set that needs no files."""
STDIN = "-"
"""The name of standard input, which ``leashed cluster up`` reads."""

WORDS = (DIGITS, clicks.WORD)
"""Those that need none."""

_TRANSPORTS = ("auto", "tcp", "shm")
_BACKGROUND = "background"
_PATHS = ("run", "key", "checkpoints", "resume")  # of [cluster]
_OF_ROWS = ("pooling", "embedding_loops", "embedding_mib")
_MOST_PROCESSES = 4096
_MOST_LOOPS = 256
_EPOCHS = 10.0
_EPOCHS_OF_CLICKS = 1.0  # in a second pass they are learnt by heart (training/defaults.py)

T = TypeVar("T")


@dataclass(frozen=True)
class Cluster:
    """The processes of a run.

    Args:
        master: where the master listens, ``HOST:PORT``. Port 0: any that is free, which the others
            learn from the run's folder, so on one machine alone.
        trainers: how many.
        sync_ps: how many sync servers. In the file: as many as are needed, where it is not given.
        embedding_ps: how many embedding servers, for models that read tables.
        policy_ps: how many policy servers, for ``train.mode``. In the file: one, if it is needed, where it
            is not given.
        shards: how the parameters are spread over several of them, ``"layerwise"``, ``"memorywise"`` or
            ``"packed"`` (``leashed.simulation.layerwise`` and the others).
        embedding_loops: threads with which an embedding server serves, each those of some trainers'
            threads. None: a fourth of its machine's processors, which all servers there share, and 1 at
            least.
        embedding_mib: MiB of an embedding server's memory for tables that do not grow, which are placed
            so that they fit. None: as much as they need.
        readers: how many processes read the files of ``train.data`` and send trainers their rows, in the
            order of the files. 0: each trainer has all of the data in memory.
        look_ahead: how many batches ahead rows are asked for while one is computed, without that one's
            updates and those of the batches between: 1, 0, or up to 5, for networks that take longer. With
            ``train.mode`` how many batches each thread has granted, sent or pushed while it computes another,
            of which each is to the mode a worker more. None: 1 with embedding servers, 0 with a mode.
        pooling: where rows are pooled that the model reads so (sums, means, maxima): ``"servers"``:
            embedding servers do, and send pools; ``"rows"``: trainers do; ``"auto"``: of each feature
            the one that takes fewer bytes, found from the first batches.
        run: the folder of what the run writes: logs, journal, report, models.
        key: the file with the key that every connection is opened with, of mode 0600. None: ``key``
            in the run's folder.
        transport: between processes of one machine ``"shm"`` (shared memory), ``"tcp"``, or
            ``"auto"``: shared memory where it can be had.
        backend: what trainers sum with where there are no sync servers: ``"leashed"`` (the own
            ring), ``"direct"`` (all with all) or ``"gloo"`` (torch.distributed).
        beat: seconds between two heartbeats.
        timeout: seconds of silence after which a process is taken for dead.
        grace: seconds for which the others wait for a master that is away.
        restarts: how often one process is started again, at most, after it died.
        name: of this job, which tells it from others with the same key; processes of others are turned
            away.
        min_trainers: with how many trainers the run begins, at least, ``grace`` seconds after the
            first, and goes on; with fewer it fails.
        require_sync: whether the run fails where a trainer is not synchronised for ``patience`` in
            which two rounds of its pace were due, or was not at all at its end.
        patience: seconds that the run waits for a trainer where none is there and batches are left, as
            while the only machine that has some is started anew; and for which ``min_trainers`` and
            ``require_sync`` may be missed.
        keep: seconds between two files (``trainer-0.kept`` in ``run``) of what a trainer has reached,
            from which it goes on when it is started again. ``inf``: none are written.
        snapshot_every: seconds between two snapshots of a server, at least: what its restart
            loses. Nothing is written where nothing has changed, and for a tenth of the time at most.
        checkpoint_every: seconds between two checkpoints of the whole run, of one moment each
            (``checkpoints`` in ``run``), from which it can be resumed with other numbers of processes.
            None: none are taken.
        checkpoints: a folder in whose ``checkpoints`` they are, that all machines see, in place of ``run``.
            None: ``run``, of each process its own where that is on its machine alone.
        resume: the folder of such a one, from which the run goes on. None: it begins.
        ports: the first of the ports on which sync servers, embedding servers and trainers listen: sync
            server k on ``ports`` + k, embedding server k on ``ports`` + ``sync_ps`` + k, readers and
            trainers behind them all. None: each on any that is free.
        prometheus: where the master offers metrics: a port of 127.0.0.1, or ``"HOST:PORT"``. None:
            nowhere.

    Raises:
        TypeError, ValueError: a value is wrong; the message names it.
    """

    master: str = "127.0.0.1:0"
    trainers: int = 2
    sync_ps: int = 1
    embedding_ps: int = 0
    policy_ps: int = 0
    shards: str = SHARDS
    embedding_loops: int | None = None
    embedding_mib: float | None = None
    readers: int = 0
    look_ahead: int | None = None
    pooling: str = "auto"
    run: Path = Path("run")
    key: Path | None = None
    transport: str = "auto"
    backend: str = collectives.OWN
    beat: float = 0.5
    timeout: float = 5.0
    grace: float = 10.0
    restarts: int = 10
    name: str = ""
    min_trainers: int = 1
    require_sync: bool = False
    patience: float = 300.0
    keep: float = 5.0
    snapshot_every: float = 1.0
    checkpoint_every: float | None = None
    checkpoints: Path | None = None
    resume: Path | None = None
    ports: int | None = None
    prometheus: int | str | None = None

    def __post_init__(self) -> None:
        host, port = opening.parse_address(self.master, "cluster.master")
        if port == 0 and not opening.is_loopback(host):
            raise ValueError(
                f"cluster.master must name a port, which other machines can know, got {self.master}"
            )
        for role in roles.ROLES.values():
            count = getattr(self, role.count)
            checks.whole(f"cluster.{role.count}", count, role.least, _MOST_PROCESSES)
        _choice("cluster.shards", self.shards, SHARDINGS)
        if self.policy_ps < 2 and self.shards != SHARDS:
            raise ValueError(
                "cluster.shards is for several policy servers; give cluster.policy_ps, or leave it out"
            )
        if self.embedding_loops is not None:
            checks.whole("cluster.embedding_loops", self.embedding_loops, 1, _MOST_LOOPS)
        if self.embedding_mib is not None:
            checks.real("cluster.embedding_mib", self.embedding_mib, 0.0)
        if self.look_ahead is not None:
            checks.whole("cluster.look_ahead", self.look_ahead, 0, _core.MOST_AHEAD)
            if not self.embedding_ps and not self.policy_ps:
                raise ValueError(
                    "cluster.look_ahead is for embedding servers and modes; give cluster.embedding_ps or "
                    "train.mode, or leave it out"
                )
        _choice("cluster.pooling", self.pooling, POOLINGS)
        if not self.embedding_ps:
            for name in _OF_ROWS:
                if getattr(self, name) != getattr(Cluster, name):
                    raise ValueError(
                        f"cluster.{name} is for embedding servers; give cluster.embedding_ps, or "
                        "leave it out"
                    )
        _choice("cluster.transport", self.transport, _TRANSPORTS)
        collectives.check_launcher("cluster.backend", self.backend)
        checks.real("cluster.beat", self.beat, 0.0)
        if checks.real("cluster.timeout", self.timeout, 0.0) < 3.0 * self.beat:
            raise ValueError(
                f"cluster.timeout must be at least three beats ({3.0 * self.beat:g} s), so that one "
                f"late heartbeat is no death; got {self.timeout:g}"
            )
        checks.real("cluster.grace", self.grace, 0.0)
        checks.whole("cluster.restarts", self.restarts, 0)
        if not isinstance(self.name, str):
            raise TypeError(f"cluster.name must be a text, got {self.name!r}")
        checks.whole("cluster.min_trainers", self.min_trainers, 1, self.trainers)
        checks.flag("cluster.require_sync", self.require_sync)
        checks.real("cluster.patience", self.patience, 0.0)
        if self.keep != math.inf:
            checks.real("cluster.keep", self.keep, 0.0)
        checks.real("cluster.snapshot_every", self.snapshot_every, 0.0)
        if self.checkpoint_every is not None:
            checks.real("cluster.checkpoint_every", self.checkpoint_every, 0.0)
        others = {"master": port}
        if (metrics := self.metrics_address) is not None:
            others["prometheus"] = checks.whole("cluster.prometheus", metrics[1], 1, 65_535)
        if self.ports is not None:
            opening.check_ports("cluster.ports", self.ports, len(self.processes()) - 1, others)
        for name in _PATHS:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _path(f"cluster.{name}", value))

    @property
    def ahead(self) -> int:
        """``look_ahead``, a number where it is None too."""
        return ahead_of(self.look_ahead, self.embedding_ps)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the master."""
        return opening.parse_address(self.master)

    @property
    def known_master(self) -> str | None:
        """The master's address, where that is known before it listens."""
        return self.master if self.address[1] else None

    @property
    def host(self) -> str:
        """The host on which those that are not the master listen."""
        host, _ = self.address
        return host if is_local(self.master) else everywhere(host)

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port where the master offers metrics; None: it does not."""
        if isinstance(self.prometheus, str):
            return opening.parse_address(self.prometheus, "cluster.prometheus")
        return None if self.prometheus is None else ("127.0.0.1", self.prometheus)

    def port(self, role: str, index: int) -> int:
        """Where one that is not the master listens; 0: any that is free."""
        if self.ports is None:
            return 0
        return self.ports + self.processes().index((role, index)) - 1

    @property
    def cuts(self) -> Path:
        """The folder in whose ``checkpoints`` the run's are."""
        return self.checkpoints or self.run

    @property
    def key_file(self) -> Path:
        """The file with the key."""
        return self.run / "key" if self.key is None else self.key

    def read_key(self) -> opening.Key:
        """The key in it.

        Raises:
            OSError, ValueError: it cannot be read, or others can read it.
        """
        return opening.read_key(self.key_file, given=self.key is not None)

    def processes(self) -> list[tuple[str, int]]:
        """Role and index of each, in the order in which they are started."""
        members = (
            (name, index)
            for name, role in roles.ROLES.items()
            for index in range(getattr(self, role.count))
        )
        return [(roles.MASTER, 0), *members]


@dataclass(frozen=True)
class Sync:
    """How trainers synchronise.

    Args:
        kind: the synchroniser, ``NAME:key=value,…`` with a name that ``leashed.sync`` has, or ``"none"``.
            What is not given has its default.
        when: ``"background"``: a thread of its own, as fast as it goes; or in the foreground,
            ``"every:iterations=5"`` or ``"every:seconds=2"``. A gap that changes is a table of gaps by
            the iteration from which each holds: ``{"iterations": {"0": 5, "1000": 30}}``.
        compression: of what goes over the network: ``"none"``, ``"bfloat16"`` or ``"int8"``.

    Raises:
        TypeError, ValueError: a value is wrong; the message names it.
    """

    kind: str = "easgd"
    when: str | Mapping[str, Any] = _BACKGROUND
    compression: str = "none"

    def __post_init__(self) -> None:
        _text("sync.kind", self.kind)
        if isinstance(when := self.when, Mapping) and not any(
            isinstance(gap, Mapping) for gap in when.values()
        ):
            object.__setattr__(self, "when", spelled.with_settings("every", when))
        _choice("sync.compression", self.compression, sync.COMPRESSIONS)
        self.synchroniser()

    @property
    def name(self) -> str:
        """The synchroniser's, without its settings."""
        return self.kind.partition(":")[0]

    def synchroniser(self) -> sync.Synchroniser | None:
        """What is named; None: ``"none"``.

        Raises:
            TypeError, ValueError: there is no such synchroniser, or it has no such setting.
        """
        when = self._timing()
        known: Mapping[str, Callable[..., sync.Synchroniser | None]] = {
            **sync.SYNCHRONISERS,
            "none": _none,
        }
        given: dict[str, Any] = {"compression": self.compression}
        if self.when != _BACKGROUND:  # a preset has a time of its own
            given["when"] = when
        make = spelled.made(known, "sync.kind", self.kind)
        try:
            return make(**given)
        except ValueError as error:
            if str(error).startswith("sync."):
                raise
            raise ValueError(f"sync.{error}") from None

    def _timing(self) -> sync.When:
        if self.when == _BACKGROUND:
            return sync.background()
        name, _, rest = self.when.partition(":") if isinstance(self.when, str) else ("", "", "")
        given: Any = spelled.settings("sync.when", rest) if name == "every" else self.when
        if (
            not isinstance(given, Mapping)
            or len(given) != 1
            or not given.keys() <= {"iterations", "seconds"}
        ):
            raise ValueError(
                'sync.when must be "background", "every:iterations=N" or "every:seconds=S", '
                f"got {self.when!r}"
            )
        ((kind, gap),) = given.items()
        try:
            # The keys of a table of TOML are texts.
            steps = {int(at): each for at, each in gap.items()} if isinstance(gap, Mapping) else gap
            return sync.every(**{kind: steps})
        except (TypeError, ValueError) as error:
            raise type(error)(f"sync.when: {error}") from None


@dataclass(frozen=True, kw_only=True)
class Train(Job):
    """What is trained, as ``leashed train`` has it, and in the same words.

    Args:
        data: ``"digits"`` (synthetic), a folder with the four IDX files of MNIST, or a file of rows.
        threads: worker threads of each trainer.
        batch_size: examples per gradient.
        epochs: passes over the data, of all trainers together.
        seconds: so much time. Of ``epochs`` and the other stop rules, each trainer's own, the first to
            hold ends the run, or this trainer; where none is given it ends after 10 epochs, of a model of
            clicks after one.
        dense: who sums gradients in ``mode``: ``"server"``, the policy server, or, in Sync, the workers
            themselves, ``"all-reduce"``.
        record: a file that takes what the policy server of ``mode`` hears, for ``leashed replay``. None: none.
        output: the model that comes out: the ``"first"`` trainer's, the ``"average"`` of all, or the
            ``"best"`` on the test set.

    Raises:
        TypeError, ValueError: a value is wrong; the message names it.
    """

    data: str = option(
        DIGITS,
        "folder with the four IDX files of MNIST or Fashion-MNIST, plain or .gz, or a file of rows; "
        "a pipe, or - for standard input, whose rows are trained on as they come, or read into the run's folder first",
        metavar="PATH",
    )
    threads: int | str = option(1, 'of each trainer: a number, or "auto"', type=threads_of)
    batch_size: int = option(64, "examples of a gradient")
    epochs: float | None = option(
        None,
        "passes over the data, of all trainers together (default: 10, of a model of clicks 1)",
        group=UNTIL,
    )
    dense: str = option(
        abilities.DENSE[0],
        "who sums gradients in --mode: its policy server, or in Sync the workers themselves",
        choices=abilities.DENSE,
    )
    record: str | None = option(
        None,
        "write what the policy server of --mode hears, for 'leashed replay'",
        metavar="FILE",
        group=RESEARCH,
    )
    output: str = option(
        "first",
        "the model that comes out: the first trainer's, the average of all, or the best on the "
        "test set",
        choices=OUTPUTS,
    )

    def __post_init__(self) -> None:
        given: Any = self.schedule
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise TypeError(f"train.schedule must be a list of texts, got {given!r}")
        schedule = tuple(_text("train.schedule", each) for each in given)
        object.__setattr__(self, "schedule", schedule)
        for name in ("hidden", "bottom", "attention"):
            widths: Any = getattr(self, name)
            if isinstance(widths, str) or not isinstance(widths, Sequence):
                raise TypeError(f"train.{name} must be a list of whole numbers, got {widths!r}")
            widths = tuple(checks.whole(f"train.{name}", each, 1) for each in widths)
            object.__setattr__(self, name, widths)
        days: Any = self.days
        if days is not None:
            if isinstance(days, str) or not days or not self.of_clicks:
                raise ValueError(
                    "train.days must be a list of files, of models of clicks (train.model dlrm and its kin), "
                    f"got {self.days!r} with {self.model}"
                )
            object.__setattr__(self, "days", tuple(days))
        for item in dataclasses.fields(self):
            if (value := getattr(self, item.name)) is not None:
                kind = str(item.type).removesuffix(" | None")
                if (check := _CHECKS.get(kind)) is not None:
                    check(f"train.{item.name}", value)
                if (choices := item.metadata["choices"]) is not None:
                    _choice(f"train.{item.name}", value, tuple(choices))
        if self.threads != "auto":
            checks.whole("train.threads", self.threads, 1, MAX_THREADS)
        checks.whole("train.seed", self.seed, 0, MAX_SEED)
        abilities.check(
            {
                "cluster": True,
                "stream here": self.stream,
            }
        )
        until = self.until(_EPOCHS_OF_CLICKS if self.of_clicks else _EPOCHS)
        assert until is not None
        object.__setattr__(self, "epochs", until.epochs)
        self.choices("train.")

    def problem(self, *, streamed: bool = False) -> Problem:
        """The model, and the data to train on and to test; ``streamed``: with rows to train on that are
        not read yet, in place of those in memory.

        Raises:
            OSError, TypeError, ValueError: a file is missing or wrong, words do not go together, or a
                batch is larger than the training set.
        """
        words = self
        if self.data == STDIN:
            raise ValueError(
                "train.data is standard input, of which leashed cluster up alone makes a file: name a file"
            )
        if self.data == DIGITS:
            words = dataclasses.replace(self, data=None)  # type: ignore[arg-type]
        elif streamed:
            words = copy.copy(self)
            object.__setattr__(words, "stream", True)
        try:
            found = problem_of(words)
        except (TypeError, ValueError) as error:
            raise type(error)(re.sub(r"--([a-z0-9-]+)", _in_plan, str(error))) from None
        found = found._replace(model=shaped(found.model, found.train))  # type: ignore[arg-type]
        if not streamed and self.days is None and self.batch_size > len(found.train):
            raise ValueError(
                f"train.batch_size must be at most the {len(found.train)} examples of the data, "
                f"got {self.batch_size}"
            )
        return found

    def how(self, found: Problem, index: RowIndex | None = None) -> dict[str, Any]:
        """``choices`` for these data: a model of clicks has a rate by how often its ids come there, which
        their index tells where there is one.
        """
        chosen = self.choices("train.")
        if self.of_clicks:
            often = None  # of days, which have one rate
            if index is not None:
                often = None if self.days is not None else index.often
            elif self.days is None:
                often = defaults.seen(found.model, found.train, len(found.train)).often
            chosen["rule"] = self.rule_on(often)
        return chosen

    def choices(self, before: str = "--") -> dict[str, Any]:
        """As of ``Job``, with who sums."""
        return {**super().choices(before), "dense": self.dense}

    def within(self, folder: Path) -> Train:
        """With the files that it names in that folder."""
        paths = {name: getattr(self, name) for name in PATHS}
        there: dict[str, Any] = {
            name: str(folder / path)
            for name, path in paths.items()
            if path not in (None, STDIN, *WORDS)
        }
        return dataclasses.replace(self, **there)

    def batch_of(self, data: Any) -> int:
        """Examples of a gradient over that training set: of a day that has fewer it is all of them."""
        return min(self.batch_size, len(data) or self.batch_size)

    def batches(self, data: Any) -> int | None:
        """Of the whole run, over that training set; None: without end."""
        if self.epochs is None:
            return None
        size = self.batch_of(data)
        whole = Until(epochs=self.epochs).rules(drawn(data, size), size)
        return int(whole["batches"])


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{name} must be a text, got {value!r}")
    return value


def _whole(name: str, value: object) -> object:
    return checks.whole(name, value, int(name != "train.seed"))


_CHECKS: Mapping[str, Callable[[str, Any], object]] = {
    "str": _text,
    "int": _whole,
    "float": checks.real,
    "bool": checks.flag,
}

PATHS = ("data", "test", "schema", "record")
"""Fields of :class:`Train` that are paths."""

ALONE = (*("stream", "patience", "metric"),)
"""Fields of :class:`Train` that a cluster has no use for."""


def _in_plan(option: re.Match[str]) -> str:
    return f"train.{option[1].replace('-', '_')}"


@dataclass(frozen=True)
class Plan:
    """All of it. A synchroniser that needs sync servers must have one.

    Raises:
        TypeError, ValueError: a value is wrong; the message names it.
    """

    cluster: Cluster = field(default_factory=Cluster)
    sync: Sync = field(default_factory=Sync)
    train: Train = field(default_factory=Train)

    def __post_init__(self) -> None:
        if self.cluster.require_sync and self.sync.kind == "none":
            raise ValueError("cluster.require_sync needs a synchroniser, and sync.kind is none")
        if self.cluster.readers:
            self._check_readers()
        if self.train.record is not None and self.train.days is not None:
            raise ValueError(
                "train.record is of one run, and train.days are a run each; leave one of the two out"
            )
        if self.train.of_clicks and self.cluster.embedding_ps == 0 and self.train.mode is None:
            raise ValueError(
                f"cluster.embedding_ps must be at least 1 with train.model {self.train.model}, whose tables "
                "embedding servers hold; or train on one machine"
            )
        if self.cluster.embedding_ps and not self.train.of_clicks:
            raise ValueError(
                f"cluster.embedding_ps must be 0 with train.model {self.train.model}, which reads no tables"
            )
        chosen = self.train.choices("train.")
        abilities.check(
            {
                "embedding servers": self.cluster.embedding_ps > 0,
                "policy servers": self.cluster.policy_ps > 0,
                "several policy servers": self.cluster.policy_ps > 1,
                "evict or wait": abilities.evict_or_wait(
                    {"evict": self.train.evict, "admit_after": self.train.admit_after}
                ),
                "cluster without a policy server": self.cluster.policy_ps == 0,
                "sync": self.sync.synchroniser(),
                "tables": self.train.of_clicks,
                "sparse rows": self.train.model in sparse.MODELS,
                "record": self.train.record,
                # (Servers have what a run of theirs goes on from.)
                "resume": self.cluster.resume if self.train.record else None,
                "checkpoints of the run": self.cluster.checkpoint_every or self.cluster.resume,
                'threads="auto"': self.train.threads == "auto",
                **abilities.of_dense(
                    self.train.dense, chosen["mode"], chosen["staleness"].choice()[0]
                ),
                **abilities.of_mode(chosen["mode"], chosen["staleness"].choice()[0]),
                **abilities.of_discipline(chosen["discipline"], chosen["mode"]),
                **abilities.of_end(self.train),
            }
        )
        if self.cluster.policy_ps > 1:
            mode, rule, staleness = (
                chosen[name].choice() for name in ("mode", "rule", "staleness")
            )
            _core.check_parts(mode[0], rule, staleness)
        if self.cluster.policy_ps and self.train.of_clicks:
            self._check_led_tables()
        if self.cluster.policy_ps and isinstance(self.train.threads, int):
            ahead = self.cluster.ahead
            lanes = lanes_of(self.train.threads, ahead, "train.threads", "cluster.look_ahead")
            if self.train.record is not None:
                check_recorded(lanes * self.cluster.trainers)
            if self.train.dense == abilities.ALL_REDUCE:
                check_reduced(lanes * self.cluster.trainers)
        if servers_of(self.sync) > self.cluster.sync_ps:
            raise ValueError(
                f"cluster.sync_ps must be at least 1 with {self.sync.name}, which needs sync servers; "
                "or choose ma or bmuf"
            )
        if self.train.mode is not None and self.cluster.sync_ps:
            raise ValueError(
                f"cluster.sync_ps must be 0 with train.mode, got {self.cluster.sync_ps}: the policy server has "
                "the parameters, and nobody would come to sync servers; leave it out"
            )
        if self.cluster.sync_ps and not servers_of(self.sync):
            raise ValueError(
                f"cluster.sync_ps must be 0 with sync.kind {self.sync.name}, to which no sync server is of use, "
                f"got {self.cluster.sync_ps}: leave it out"
            )
        made = self.sync.synchroniser()
        if made is not None:
            collectives.check_synchroniser("cluster.backend", self.cluster.backend, made)

    def _check_led_tables(self) -> None:
        if self.train.days is not None:
            raise ValueError(
                f"train.days are not for train.model {self.train.model} with train.mode: a mode's run goes on "
                "with the data that it was begun with; leave them out, or take embedding servers and a "
                "synchroniser"
            )

    def _check_readers(self) -> None:
        of_files = self.train.of_clicks or self.train.model in sparse.MODELS
        if not of_files or (self.train.data in WORDS and self.train.days is None):
            raise ValueError(
                "cluster.readers are for models of clicks and of sparse rows, whose train.data are files; got "
                f"train.model {self.train.model} and train.data {self.train.data}: leave them out"
            )
        if self.train.shuffle is not None:
            raise ValueError(
                "cluster.readers do not go with train.shuffle: rows come in the order of the files; leave one out"
            )
        abilities.check({"stream": True, **abilities.of_end(self.train)})
        if self.train.test is None and self.train.days is None:
            raise ValueError(
                "cluster.readers go with train.test, a file of rows to test: none of train.data is kept back"
            )
        if self.train.epochs is not None and self.train.epochs != int(self.train.epochs):
            raise ValueError(
                f"train.epochs must be whole with cluster.readers, got {self.train.epochs:g}"
            )

    def problem(self) -> Problem:
        """As ``Train.problem``, or as who has started this process has read it; with readers, of a stream.

        Raises:
            OSError, TypeError, ValueError: as there.
        """
        if self.cluster.readers:
            return self.train.problem(streamed=True)
        return handed_data.taken(self.train) or self.train.problem()

    def index(self, problem: Problem) -> RowIndex | None:
        """Where the rows of its files are; None: there are no readers.

        Raises:
            OSError, ValueError: as of ``index_of``.
        """
        if not self.cluster.readers:
            return None
        from leashed.cluster import row_index  # noqa: PLC0415 (it takes a stream)

        if row_index.comes_once(problem.train) and (what := self.again()) is not None:
            raise ValueError(
                f"{what}, and {problem.train.name} is a pipe, which one reader reads, once: leave it out, or "
                "write the rows into a file"
            )
        return row_index.index_of(problem.train, problem.model, self.cluster.run)

    def again(self) -> str | None:
        """What of it has rows read again, which a pipe cannot be, in words; None: nothing."""
        cluster, train = self.cluster, self.train
        wrong = {
            "cluster.readers": cluster.readers if cluster.readers > 1 else None,
            "train.epochs": train.epochs if train.epochs != 1 else None,
            "train.days": train.days,
            "train.mode": train.mode,
            "cluster.checkpoint_every": cluster.checkpoint_every,
            "cluster.resume": cluster.resume,
        }
        return next(
            (f"{what} is {given}" for what, given in wrong.items() if given is not None), None
        )

    def text(self) -> str:
        """The plan as TOML."""
        lines: list[str] = []
        for table in ("cluster", "sync", "train"):
            values = _fields(getattr(self, table))
            lines += [f"[{table}]"]
            lines += [f"{key} = {_toml(value)}" for key, value in values.items()]
            lines += [""]
        return "\n".join(lines)


def servers_of(words: Sync) -> int:
    """How many sync servers there are where nobody says: one, if they are needed at all."""
    made = words.synchroniser()
    return 0 if made is None else int(made.SERVERS)


def sync_beside(mode: object) -> dict[str, str]:
    """Of ``[sync]`` what a mode has it say where nobody does."""
    return {} if mode is None else {"kind": "none"}


def leaders_of(mode: object) -> int:
    """How many policy servers there are where nobody says: one, with a mode."""
    return int(mode is not None)


def parse(text: str, folder: Path) -> Plan:
    """The plan that TOML describes; its paths are relative to ``folder``.

    Raises:
        TypeError, ValueError: it describes none; the message says what is wrong.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"this is no TOML: {error}") from None
    for name, table in tables.items():
        if name not in ("cluster", "sync", "train"):
            raise ValueError(f"{name} is unknown; a plan has the tables cluster, sync and train")
        if not isinstance(table, dict):
            raise TypeError(f"{name} must be a table, got {table!r}")
    mode = tables.get("train", {}).get("mode")
    renewed = _renewed_sync(tables.get("sync", {}))
    words = _filled(Sync, "sync", {"sync": {**sync_beside(mode), **renewed}})
    given = {
        "sync_ps": servers_of(words),
        "policy_ps": leaders_of(mode),
        **tables.get("cluster", {}),
    }
    if given.get("look_ahead") == 1 and not given.get("embedding_ps") and not given["policy_ps"]:
        del given["look_ahead"]  # (Plans that were written before modes had one all say so.)
        warn(
            "cluster.look_ahead = 1: there are neither embedding servers nor a mode; leave out what says nothing"
        )
    cluster = _filled(Cluster, "cluster", {"cluster": given})
    spelled.renew(tables.setdefault("train", {}), warn, "train.")
    train = _filled(Train, "train", tables)
    within = {
        name: folder / path for name in _PATHS if (path := getattr(cluster, name)) is not None
    }
    return Plan(dataclasses.replace(cluster, **within), words, train.within(folder))


def _renewed_sync(table: Mapping[str, Any]) -> dict[str, Any]:
    """``[sync]`` as it is spelled now: settings were fields beside ``kind``, and gaps a table."""
    own = {key: table[key] for key in ("kind", "when", "compression") if key in table}
    settings = {key: value for key, value in table.items() if key not in own}
    kind = _text("sync.kind", own.get("kind", Sync.kind))
    there = spelled.settings("sync.kind", kind.partition(":")[2])
    for key, value in settings.items():
        if not key.isidentifier():
            raise ValueError(f"sync.{key} is unknown: no synchroniser has such a setting")
        if not isinstance(value, bool):
            checks.real(f"sync.{key}", value)
        if key in there:
            raise ValueError(
                f"sync.{key} and sync.kind {kind} both give {key}; give the second alone"
            )
    names = ", sync.".join(settings)
    if settings and kind == "none":
        warn(f'sync.{names}: kind = "none" has no settings; leave out what says nothing')
    elif settings:
        own["kind"] = spelled.with_settings(kind, settings)
        warn(f'sync.{names}: spelled kind = "{own["kind"]}" now')
    if isinstance(when := own.get("when"), Mapping):
        words = Sync(kind="none", when=when).when
        if isinstance(words, str):
            own["when"] = words
            warn(f'sync.when = {_toml(when)} is spelled when = "{words}" now')
    return own


def read(path: str | os.PathLike[str]) -> Plan:
    """The plan in a file.

    Raises:
        OSError: the file cannot be read.
        TypeError, ValueError: it is no plan; the message says what is wrong.
    """
    file = Path(path).absolute()
    try:
        return parse(file.read_text(encoding="utf-8"), file.parent)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path}: {error}") from None


def write(path: str | os.PathLike[str], plan: Plan) -> None:
    """Write a plan to a file."""
    Path(path).write_text(plan.text(), encoding="utf-8")


def _filled(kind: type[T], name: str, tables: Mapping[str, Any]) -> T:
    """A table as its dataclass."""
    known = [item.name for item in dataclasses.fields(kind)]  # type: ignore[arg-type]
    values = tables.get(name, {})
    for key in values:
        if key not in known:
            raise ValueError(f"{name}.{key} is unknown; it may have {', '.join(known)}")
    return kind(**values)


def _fields(table: Any) -> dict[str, Any]:
    """What a table has that is not None, by name."""
    alone = ALONE if isinstance(table, Train) else ()
    names = [item.name for item in dataclasses.fields(table) if item.name not in alone]
    named = {name: getattr(table, name) for name in names}
    return {name: value for name, value in named.items() if value is not None}


def _toml(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "inf"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    if isinstance(value, int):
        return str(value)
    # JSON's strings are TOML's, but for DEL and for letters beyond 16 bits, which JSON escapes in halves.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _none(*, when: sync.When | None = None, compression: str = "none") -> None:
    """No synchroniser: when one would is of no account."""
    del when
    if compression != "none":
        raise ValueError(
            f"sync.compression is of what a synchroniser sends, and there is none, got {compression!r}; leave "
            "it out, or give a kind"
        )


def _choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def _path(name: str, value: Any) -> Path:
    if not isinstance(value, str | Path):
        raise TypeError(f"{name} must be a path, got {value!r}")
    return Path(value)
