"""
The native core; the package leashed checks what goes in and explains it.
"""

from __future__ import annotations
import collections.abc
import numpy
import numpy.typing
import typing

__all__: list[str] = [
    "ClickGenerator",
    "ClickMetrics",
    "ClickRows",
    "Engine",
    "Error",
    "ExternalModel",
    "ExternalRowsSource",
    "ExternalSource",
    "FRAGMENT",
    "FactorisationMachine",
    "FieldAwareMachine",
    "GradientSource",
    "Graph",
    "HistoryGenerator",
    "Leases",
    "MOST_AHEAD",
    "MOST_MEMBERS",
    "ModeTrainer",
    "Network",
    "NoRows",
    "ParameterBlock",
    "ParameterVector",
    "PartServer",
    "PolicyMachine",
    "PolicyServer",
    "Pulse",
    "PythonSource",
    "Read",
    "RemoteRows",
    "Resumption",
    "RowCalls",
    "RowPlacement",
    "RowServer",
    "RowServersPlan",
    "RowStream",
    "RowsAway",
    "RuleState",
    "SentRows",
    "ServedTable",
    "SharedVector",
    "SparseLinear",
    "SparseModel",
    "SparseNetwork",
    "SparseRows",
    "StandardisedSource",
    "StatisticBlock",
    "StreamedRows",
    "SyncServer",
    "Table",
    "Trace",
    "TrackedSource",
    "TrainerSync",
    "TrainersPlan",
    "Training",
    "VirtualTime",
    "Watch",
    "available_isas",
    "batch",
    "batch_rows",
    "check_parts",
    "decide_alike",
    "default_isa",
    "losses",
    "mean_loss",
    "mode_terms",
    "number_moments",
    "observers",
    "open_arrow",
    "open_delimited",
    "open_rows",
    "open_svmlight",
    "profile_exchange",
    "profile_rows",
    "replay",
    "schedule_values",
    "sharding",
    "simulate",
    "staleness_factors",
    "time_bin_edges",
    "train",
    "train_mode",
]

class Error(ValueError):
    pass

class NoRows(Error):
    pass

class RowsAway(Error):
    pass

class PolicyMachine:
    """
    A mode of training as a state machine: events in, actions out, and time only as an argument.
    """
    def __init__(
        self,
        name: str,
        arguments: collections.abc.Mapping[str, typing.SupportsFloat | typing.SupportsIndex],
    ) -> None: ...
    def copy(self) -> PolicyMachine: ...
    def on(
        self,
        kind: str,
        now_ns: typing.SupportsInt | typing.SupportsIndex,
        node: typing.SupportsInt | typing.SupportsIndex,
        ticket: typing.SupportsInt | typing.SupportsIndex = 0,
        version: typing.SupportsInt | typing.SupportsIndex = 0,
        argument: typing.SupportsInt | typing.SupportsIndex = 0,
    ) -> list:
        """
        What an event is answered with, in order.
        """
    def rule(self) -> dict:
        """
        What its workers do, as data.
        """
    def weight(
        self,
        n: typing.SupportsInt | typing.SupportsIndex,
        c: typing.SupportsInt | typing.SupportsIndex,
    ) -> float:
        """
        The weight of what is granted: of n nodes, after c updates by others.
        """

class ParameterBlock:
    @property
    def fan_in(self) -> int: ...
    @property
    def fan_out(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def shape(self) -> list[int]: ...

class StatisticBlock:
    @property
    def name(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def size(self) -> int: ...

class GradientSource:
    @property
    def block_ends(self) -> list[int]:
        """
        Where the parameters' variables end.
        """
    @property
    def dimension(self) -> int: ...
    @property
    def features(self) -> int: ...
    @property
    def features_of_tables(self) -> list[int]:
        """
        Of each feature of ids the table that it reads, by its place among the source's.
        """
    @property
    def statistics(self) -> list[StatisticBlock]: ...

class Network(GradientSource):
    def __init__(
        self,
        input: typing.Annotated[
            collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], "FixedSize(3)"
        ],
        layers: collections.abc.Sequence[tuple[str, dict]],
        isa: str | None = None,
        loss: str = "softmax",
        l2: typing.SupportsFloat | typing.SupportsIndex = 0.0,
    ) -> None: ...
    def evaluate(
        self,
        theta: numpy.typing.NDArray[numpy.float32],
        x: numpy.typing.NDArray[numpy.float32],
        y: numpy.ndarray,
        weights: numpy.typing.NDArray[numpy.float32] | None = None,
        threads: typing.SupportsInt | typing.SupportsIndex | None = None,
    ) -> tuple[float, float]: ...
    def gradient(
        self,
        theta: numpy.typing.NDArray[numpy.float32],
        x: numpy.typing.NDArray[numpy.float32],
        y: numpy.ndarray,
        weights: numpy.typing.NDArray[numpy.float32] | None = None,
    ) -> tuple[float, numpy.typing.NDArray[numpy.float32]]: ...
    def predict(
        self, theta: numpy.typing.NDArray[numpy.float32], x: numpy.typing.NDArray[numpy.float32]
    ) -> numpy.typing.NDArray[numpy.float32]: ...
    @property
    def classes(self) -> int: ...
    @property
    def flops_per_example(self) -> float: ...
    @property
    def gives_logits(self) -> bool:
        """
        Whether its outputs are logits, each of a label of its own.
        """
    @property
    def outputs(self) -> int: ...
    @property
    def parameters(self) -> list[ParameterBlock]: ...
    @property
    def values(self) -> int:
        """
        Of 0 classes: how many numbers a row gives.
        """

class Read:
    def __enter__(self) -> numpy.typing.NDArray[numpy.float32]:
        """
        The latest parameters, float32 [d].
        """
    def __exit__(self, kind: typing.Any, error: typing.Any, traceback: typing.Any) -> None: ...
    @property
    def t(self) -> int:
        """
        Version of the vector entered last.
        """

class ParameterVector:
    def __init__(
        self,
        theta: numpy.typing.NDArray[numpy.float32],
        workers: typing.SupportsInt | typing.SupportsIndex,
        readers: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def read(self) -> Read: ...
    def update(
        self,
        gradient: numpy.typing.NDArray[numpy.float32],
        lr: typing.SupportsFloat | typing.SupportsIndex,
        persistence: typing.SupportsFloat | typing.SupportsIndex,
        t_read: typing.SupportsInt | typing.SupportsIndex,
    ) -> typing.Any: ...
    @property
    def capacity(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def live(self) -> int: ...
    @property
    def t(self) -> int: ...

class ClickRows:
    def __init__(
        self,
        x: numpy.typing.NDArray[numpy.float32],
        columns: collections.abc.Sequence[
            tuple[
                typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
                typing.Annotated[numpy.typing.ArrayLike, numpy.int64] | None,
                typing.Annotated[numpy.typing.ArrayLike, numpy.float32] | None,
            ]
        ],
        most: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex | None] = [],
        drawn: collections.abc.Sequence[
            tuple[
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                bool,
            ]
        ] = [],
    ) -> None: ...
    @property
    def features(self) -> int: ...
    @property
    def numbers(self) -> int: ...
    @property
    def rows(self) -> int: ...

class ClickGenerator:
    LARGEST_CARDINALITY: typing.ClassVar[int] = 281474976710656
    NUMBERS: typing.ClassVar[int] = 13
    def __init__(
        self,
        seed: typing.SupportsInt | typing.SupportsIndex,
        cardinalities: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        exponent: typing.SupportsFloat | typing.SupportsIndex,
        drift: typing.SupportsFloat | typing.SupportsIndex,
        delay: typing.SupportsFloat | typing.SupportsIndex,
        day: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def fill(
        self,
        test: bool,
        first: typing.SupportsInt | typing.SupportsIndex,
        x: numpy.typing.NDArray[numpy.float32],
        ids: numpy.typing.NDArray[numpy.uint64],
        labels: numpy.typing.NDArray[numpy.int32],
        hidden: numpy.typing.NDArray[numpy.float32],
        threads: typing.SupportsInt | typing.SupportsIndex,
    ) -> None:
        """
        Writes rows first, first + 1, … of the day.
        """
    def lines(
        self,
        test: bool,
        first: typing.SupportsInt | typing.SupportsIndex,
        rows: typing.SupportsInt | typing.SupportsIndex,
        threads: typing.SupportsInt | typing.SupportsIndex,
    ) -> bytes:
        """
        The same rows as lines of Criteo's text; every id must be below 2**32.
        """

class HistoryGenerator:
    def __init__(
        self,
        seed: typing.SupportsInt | typing.SupportsIndex,
        users: typing.SupportsInt | typing.SupportsIndex,
        items: typing.SupportsInt | typing.SupportsIndex,
        categories: typing.SupportsInt | typing.SupportsIndex,
        longest: typing.SupportsInt | typing.SupportsIndex,
        exponent: typing.SupportsFloat | typing.SupportsIndex,
        drift: typing.SupportsFloat | typing.SupportsIndex,
        day: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def fill(
        self,
        test: bool,
        first: typing.SupportsInt | typing.SupportsIndex,
        users: numpy.typing.NDArray[numpy.uint64],
        items: numpy.typing.NDArray[numpy.uint64],
        before: numpy.typing.NDArray[numpy.uint64],
        lengths: numpy.typing.NDArray[numpy.int64],
        labels: numpy.typing.NDArray[numpy.int32],
        hidden: numpy.typing.NDArray[numpy.float32],
        threads: typing.SupportsInt | typing.SupportsIndex,
    ) -> None:
        """
        Writes rows first, first + 1, ….
        """

class ClickMetrics:
    def __init__(self, kept: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def add(
        self,
        logits: numpy.typing.NDArray[numpy.float32],
        labels: numpy.typing.NDArray[numpy.int32],
        weights: numpy.typing.NDArray[numpy.float32] | None = None,
        users: numpy.typing.NDArray[numpy.uint64] | None = None,
    ) -> None: ...
    def merge(self, other: ClickMetrics) -> None: ...
    def values(self) -> dict: ...

class ServedTable:
    """
    Rows that threads read and update.
    """
    @staticmethod
    def bytes_per_row(
        *,
        dim: typing.SupportsInt | typing.SupportsIndex,
        rule: tuple[str, dict],
        staleness: tuple[str, dict],
        versions: bool,
    ) -> int:
        """
        Of a table that would be made so.
        """
    def ids(self) -> numpy.typing.NDArray[numpy.int64]:
        """
        Of a table that grows: those that have a row, in no order.
        """
    def lookup(self, ids: numpy.typing.NDArray[numpy.int64]) -> tuple:
        """
        (values [n, dim], versions [n])
        """
    def reach_steps(self, steps: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        At least so many are made.
        """
    def refusals(self) -> tuple[int, int]:
        """
        (asked, refused)
        """
    def statistics(self) -> dict: ...
    def update(
        self,
        ids: numpy.typing.NDArray[numpy.int64],
        gradients: numpy.typing.NDArray[numpy.float32],
        versions: numpy.typing.NDArray[numpy.uint32] | None = None,
    ) -> dict:
        """
        What became of each distinct id.
        """

class Table(ServedTable):
    """
    And files of them.
    """
    @staticmethod
    def description_of(path: str) -> str:
        """
        What a file was saved with.
        """
    def __init__(
        self,
        *,
        name: str,
        dim: typing.SupportsInt | typing.SupportsIndex,
        rows: typing.SupportsInt | typing.SupportsIndex,
        max_bytes: typing.SupportsInt | typing.SupportsIndex,
        initial: tuple[str, dict],
        rule: tuple[str, dict],
        staleness: tuple[str, dict],
        admit_after: typing.SupportsInt | typing.SupportsIndex,
        evict: str,
        seed: typing.SupportsInt | typing.SupportsIndex,
        number: typing.SupportsInt | typing.SupportsIndex,
        versions: bool,
        shards: collections.abc.Sequence[bool] | None = None,
    ) -> None: ...
    def begins(self) -> tuple[int, int]:
        """
        (seed, number) of what rows begin with now.
        """
    def in_place(self) -> numpy.typing.NDArray[numpy.float32]:
        """
        Of a fixed table: its rows [rows, dim], where they lie.
        """
    def load(
        self,
        parts: collections.abc.Sequence[
            tuple[
                collections.abc.Sequence[str],
                str,
                collections.abc.Sequence[bool] | None,
                typing.SupportsInt | typing.SupportsIndex,
            ]
        ],
        shards: collections.abc.Sequence[bool] | None = None,
        begins: tuple[
            typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex
        ]
        | None = None,
    ) -> None:
        """
        parts: each (paths, description, shards, capacity), None: all; 0: as here. begins: (seed, number) of the files, where others'.
        """
    def save(self, path: str, description: str) -> None: ...
    def save_changes(self, path: str, description: str, quiet: bool, flush: bool = True) -> int: ...
    def save_touched(self, path: str, description: str, quiet: bool, flush: bool = True) -> int: ...
    def save_tracked(self, path: str, description: str, quiet: bool, flush: bool = True) -> int: ...
    def track(self) -> int: ...
    def tracks(self) -> bool: ...

class Graph(GradientSource):
    def __init__(
        self,
        nodes: collections.abc.Sequence[
            tuple[str, dict, collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]]
        ],
        tables: collections.abc.Sequence[tuple[str, typing.SupportsInt | typing.SupportsIndex]],
        isa: str | None = None,
        loss: str = "log_loss",
        l2: typing.SupportsFloat | typing.SupportsIndex = 0.0,
    ) -> None: ...
    def evaluate(
        self,
        theta: numpy.typing.NDArray[numpy.float32],
        x: numpy.typing.NDArray[numpy.float32] | None,
        y: numpy.ndarray,
        columns: collections.abc.Sequence[
            tuple[
                typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
                typing.Annotated[numpy.typing.ArrayLike, numpy.uint32] | None,
                typing.Annotated[numpy.typing.ArrayLike, numpy.float32] | None,
            ]
        ],
        tables: collections.abc.Sequence[typing.Annotated[numpy.typing.ArrayLike, numpy.float32]],
        weights: numpy.typing.NDArray[numpy.float32] | None = None,
    ) -> tuple[float, float]: ...
    def evaluate_rows(
        self,
        theta: numpy.typing.NDArray[numpy.float32],
        x: typing.Any,
        y: numpy.ndarray,
        tables: collections.abc.Sequence[ServedTable],
        weights: numpy.typing.NDArray[numpy.float32] | None = None,
        threads: typing.SupportsInt | typing.SupportsIndex | None = None,
        statistics: numpy.typing.NDArray[numpy.float32] | None = None,
        logits: numpy.typing.NDArray[numpy.float32] | None = None,
    ) -> tuple: ...
    def gradient(
        self,
        theta: numpy.typing.NDArray[numpy.float32],
        x: numpy.typing.NDArray[numpy.float32] | None,
        y: numpy.ndarray,
        columns: collections.abc.Sequence[
            tuple[
                typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
                typing.Annotated[numpy.typing.ArrayLike, numpy.uint32] | None,
                typing.Annotated[numpy.typing.ArrayLike, numpy.float32] | None,
            ]
        ],
        tables: collections.abc.Sequence[typing.Annotated[numpy.typing.ArrayLike, numpy.float32]],
        weights: numpy.typing.NDArray[numpy.float32] | None = None,
        seed: typing.SupportsInt | typing.SupportsIndex = 0,
        place: typing.SupportsInt | typing.SupportsIndex = 0,
    ) -> tuple: ...
    def predict(
        self,
        theta: numpy.typing.NDArray[numpy.float32],
        x: numpy.typing.NDArray[numpy.float32] | None,
        columns: collections.abc.Sequence[
            tuple[
                typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
                typing.Annotated[numpy.typing.ArrayLike, numpy.uint32] | None,
                typing.Annotated[numpy.typing.ArrayLike, numpy.float32] | None,
            ]
        ],
        tables: collections.abc.Sequence[typing.Annotated[numpy.typing.ArrayLike, numpy.float32]],
    ) -> numpy.typing.NDArray[numpy.float32]: ...
    def predict_rows(
        self,
        theta: numpy.typing.NDArray[numpy.float32],
        x: typing.Any,
        tables: collections.abc.Sequence[ServedTable],
        statistics: numpy.typing.NDArray[numpy.float32] | None = None,
    ) -> numpy.typing.NDArray[numpy.float32]: ...
    @property
    def classes(self) -> int: ...
    @property
    def features_of_tables(self) -> list[int]: ...
    @property
    def flops_per_example(self) -> float: ...
    @property
    def gives_logits(self) -> bool:
        """
        Whether its outputs are logits, each of a label of its own.
        """
    @property
    def outputs(self) -> int: ...
    @property
    def parameters(self) -> list[ParameterBlock]: ...
    @property
    def values(self) -> int:
        """
        Of 0 classes: how many numbers a row gives.
        """

class TrackedSource(GradientSource):
    def __init__(
        self,
        source: GradientSource,
        workers: typing.SupportsInt | typing.SupportsIndex,
        values: numpy.typing.NDArray[numpy.float32] | None = None,
        batches: typing.SupportsInt | typing.SupportsIndex = 0,
        least: typing.SupportsInt | typing.SupportsIndex = 0,
    ) -> None: ...
    def running(self) -> tuple[numpy.typing.NDArray[numpy.float32], int, int]: ...

class ExternalModel(GradientSource):
    def logits(
        self,
        theta: numpy.typing.NDArray[numpy.float32],
        x: ClickRows,
        tables: collections.abc.Sequence[ServedTable],
    ) -> numpy.typing.NDArray[numpy.float32]:
        """
        [rows, 1].
        """

class ExternalSource(ExternalModel):
    """
    Gradients from a native function, by the contract of leashed.h.
    """
    def __init__(
        self,
        *,
        gradient: typing.SupportsInt | typing.SupportsIndex,
        gradient_data: typing.SupportsInt | typing.SupportsIndex,
        loss: typing.SupportsInt | typing.SupportsIndex,
        loss_data: typing.SupportsInt | typing.SupportsIndex,
        dimension: typing.SupportsInt | typing.SupportsIndex,
        features: typing.SupportsInt | typing.SupportsIndex,
        workspace_bytes: typing.SupportsInt | typing.SupportsIndex,
        targets: bool,
        variable_ends: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
    ) -> None: ...

class ExternalRowsSource(ExternalModel):
    """
    Gradients from a native function that reads rows of tables, by the contract of leashed.h.
    """
    def __init__(
        self,
        *,
        gradient: tuple[
            typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex
        ],
        loss: tuple[
            typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex
        ],
        logits: tuple[
            typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex
        ],
        dimension: typing.SupportsInt | typing.SupportsIndex,
        features: typing.SupportsInt | typing.SupportsIndex,
        workspace_bytes: typing.SupportsInt | typing.SupportsIndex,
        variable_ends: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        tables: collections.abc.Sequence[tuple[str, typing.SupportsInt | typing.SupportsIndex]],
        features_of_tables: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
    ) -> None: ...

class PythonSource(ExternalModel):
    """
    Gradients from a Python callable.
    """
    def __init__(
        self,
        *,
        gradient: typing.Any,
        loss: typing.Any,
        dimension: typing.SupportsInt | typing.SupportsIndex,
        features: typing.SupportsInt | typing.SupportsIndex,
        targets: bool,
        variable_ends: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        logits: typing.Any = None,
        tables: collections.abc.Sequence[
            tuple[str, typing.SupportsInt | typing.SupportsIndex]
        ] = [],
        features_of_tables: collections.abc.Sequence[
            typing.SupportsInt | typing.SupportsIndex
        ] = [],
    ) -> None: ...

class Leases:
    """
    Batch numbers that a training is handed while it runs.
    """
    def __init__(self) -> None: ...
    def apart(self) -> list[tuple[int, int, int]]:
        """
        (ticket, first from the lease's first, count) of those used behind one that is not.
        """
    def astray(self) -> int:
        """
        Batches used of what was taken back, before or since, that used() had not told.
        """
    def end(self, beyond: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        No more will come; the whole run has batches [0, beyond).
        """
    def give(
        self,
        ticket: typing.SupportsInt | typing.SupportsIndex,
        first: typing.SupportsInt | typing.SupportsIndex,
        count: typing.SupportsInt | typing.SupportsIndex,
    ) -> None:
        """
        Batches [first, first + count) are this training's.
        """
    def left(self) -> int:
        """
        Batches given and not claimed.
        """
    def revoke(self) -> None:
        """
        Takes back what is not claimed.
        """
    def use(self, place: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Training on the one claimed there is over.
        """
    def used(self) -> list[tuple[int, int]]:
        """
        (ticket, batches used without a gap) of each lease of which that has changed.
        """
    @property
    def resting(self) -> int:
        """
        Workers that wait for batches, having done all of their steps.
        """

class Pulse:
    """
    Sends a connection's messages, and beats while nobody does.
    """
    def __init__(
        self,
        socket: typing.SupportsInt | typing.SupportsIndex,
        beat: bytes,
        longest: typing.SupportsFloat | typing.SupportsIndex,
    ) -> None:
        """
        socket stays the caller's, and open until close(); nobody else sends on it. longest: seconds after a message for which beats go at most.
        """
    def close(self) -> None:
        """
        No more beats.
        """
    def send(
        self,
        message: bytes,
        seconds: typing.SupportsFloat | typing.SupportsIndex,
        again: typing.SupportsFloat | typing.SupportsIndex,
    ) -> bool:
        """
        From then on beats go whenever nothing was sent for `again` seconds. False: it did not go in time, and nothing more does. True where the connection has ended: reading tells.
        """

class SyncServer:
    """
    Holds fragments of w^PS; a thread serves trainers.
    """
    def __init__(
        self,
        fragments: collections.abc.Sequence[
            tuple[
                typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex
            ]
        ],
    ) -> None:
        """
        fragments: (index, length in floats) of each.
        """
    def adopt(
        self,
        socket: typing.SupportsInt | typing.SupportsIndex,
        checked: bool,
        transport: str = "tcp",
    ) -> None:
        """
        transport: tcp, shm or auto; with another than tcp it waits for the other side.
        """
    def counters(self) -> dict:
        """
        What was counted; kernel_in and kernel_out, where all went over TCP.
        """
    def restore(
        self,
        values: numpy.typing.NDArray[numpy.float32],
        present: collections.abc.Sequence[bool],
        changes: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def snapshot(self) -> tuple[numpy.typing.NDArray[numpy.float32], list[bool], int]:
        """
        (values of all fragments, which are there, changes that are in them).
        """

class TrainerSync:
    """
    A trainer's synchronisation with others.
    """
    def __init__(
        self,
        *,
        machine: tuple[str, dict],
        pace: str,
        starts: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        gaps: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
        dimension: typing.SupportsInt | typing.SupportsIndex,
        owner: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        servers: typing.SupportsInt | typing.SupportsIndex,
        parts: typing.SupportsInt | typing.SupportsIndex,
        timeout: typing.SupportsFloat | typing.SupportsIndex,
        custom: typing.Any,
        workers: typing.SupportsInt | typing.SupportsIndex,
        compression: str = "none",
        goes_on: bool = False,
        states: numpy.typing.NDArray[numpy.float32] | None = None,
        within: numpy.typing.NDArray[numpy.float64] | None = None,
    ) -> None:
        """
        goes_on: theta is as the servers know it, and stays as it is. states, within: of another, at rest.
        """
    def adopt(
        self,
        slot: typing.SupportsInt | typing.SupportsIndex,
        server: typing.SupportsInt | typing.SupportsIndex,
        socket: typing.SupportsInt | typing.SupportsIndex,
        checked: bool,
        transport: str = "tcp",
        patience: typing.SupportsFloat | typing.SupportsIndex = 0.0,
    ) -> bool:
        """
        With patience, in seconds: False where the server does not answer within it.
        """
    def counters(self) -> dict:
        """
        What was counted; kernel_in and kernel_out, where all went over TCP.
        """
    def form(
        self,
        epoch: typing.SupportsInt | typing.SupportsIndex,
        rank: typing.SupportsInt | typing.SupportsIndex,
        fresh: collections.abc.Sequence[bool],
        previous: typing.SupportsInt | typing.SupportsIndex,
        next: typing.SupportsInt | typing.SupportsIndex,
        checked: bool,
        transport: str = "tcp",
    ) -> None:
        """
        A later ring to change over to; of one member, without sockets.
        """
    def form_direct(
        self,
        epoch: typing.SupportsInt | typing.SupportsIndex,
        rank: typing.SupportsInt | typing.SupportsIndex,
        fresh: collections.abc.Sequence[bool],
        sockets: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        checked: bool,
        transport: str = "tcp",
    ) -> None:
        """
        The same, of several members that are all connected with each other: the sockets by rank, of this one -1.
        """
    def form_over(
        self,
        epoch: typing.SupportsInt | typing.SupportsIndex,
        rank: typing.SupportsInt | typing.SupportsIndex,
        fresh: collections.abc.Sequence[bool],
        collective: typing.Any,
    ) -> None:
        """
        The same, of several members that sum with what is given: leashed.cluster.meeting has what it offers.
        """
    def hold(self, holds: bool) -> None:
        """
        While all workers wait: nothing is exchanged with servers, or is again.
        """
    def missing(self, servers: typing.SupportsInt | typing.SupportsIndex) -> list[tuple[int, int]]:
        """
        (slot, server) of the connections to be made.
        """
    @property
    def at_rest(self) -> bool:
        """
        Of workers that all wait: whether nothing is under way.
        """
    @property
    def broken(self) -> int:
        """
        The newest epoch of which a round has broken here.
        """
    @property
    def ended(self) -> int:
        """
        The epoch whose ring has ended here; a later one is wanted.
        """
    @property
    def left(self) -> bool:
        """
        Whether this trainer wants to be in no ring any more, and is in none.
        """
    @property
    def settled(self) -> int:
        """
        The epoch in which this trainer last was in a round with the others.
        """
    @property
    def slots(self) -> int:
        """
        Threads that need a connection with each server.
        """
    @property
    def states(self) -> numpy.typing.NDArray[numpy.float32]:
        """
        Of one at rest, float32: what trainers that sum have together beside theta, w^global and its velocity, one behind the other.
        """
    @property
    def within(self) -> numpy.typing.NDArray[numpy.float64]:
        """
        Likewise, of each worker that synchronises by itself: its iterations, those since its last round, seconds since then, whose turn it is of the parts; float64 [workers, 4]. In the background with servers the turn alone, float64 [1, 4].
        """
    @property
    def workers_ended(self) -> bool:
        """
        Whether there is nothing more to train: not where workers come and go.
        """

class RowPlacement:
    """
    Which of several servers has the row of an id.
    """
    def __init__(
        self,
        tables: collections.abc.Sequence[tuple[bool, typing.SupportsInt | typing.SupportsIndex]],
        shards: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
    ) -> None:
        """
        tables: whether each grows, and the server that has all of it, or -1: spread. shards: of each of 256 the server that has it of tables that are spread.
        """
    def server(
        self,
        table: typing.SupportsInt | typing.SupportsIndex,
        id: typing.SupportsInt | typing.SupportsIndex,
    ) -> int:
        """
        Which one has the row of an id.
        """
    def shards(
        self,
        table: typing.SupportsInt | typing.SupportsIndex,
        server: typing.SupportsInt | typing.SupportsIndex,
    ) -> list[bool]:
        """
        Which of a table's 256 shards the server has.
        """

class RowServer:
    """
    Holds rows of tables; threads serve trainers.
    """
    def __init__(
        self,
        tables: collections.abc.Sequence[Table],
        numbers: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        placement: RowPlacement,
        index: typing.SupportsInt | typing.SupportsIndex,
        boot: typing.SupportsInt | typing.SupportsIndex,
        loops: typing.SupportsInt | typing.SupportsIndex = 1,
    ) -> None:
        """
        tables: those of which the server has rows; numbers: of these in the placement. boot: a number that no other server's process ever has. loops: threads that serve.
        """
    def adopt(
        self,
        socket: typing.SupportsInt | typing.SupportsIndex,
        checked: bool,
        transport: str = "tcp",
    ) -> None:
        """
        transport: tcp, shm or auto; with another than tcp it waits for the other side.
        """
    def applied(self) -> list[tuple[int, int, int, int, int, int]]:
        """
        Of each (client, its life, number of its last push that is applied, what became of that and those before it, as bits, how many pushes its rows have, and of how many examples).
        """
    def counters(self) -> dict:
        """
        What was counted; kernel_in and kernel_out, where all went over TCP.
        """
    def expire(self) -> None:
        """
        Lets go of what trainers had looked up already when this was called last, and have neither pushed nor dropped.
        """
    def quiet(self, f: collections.abc.Callable) -> None:
        """
        Calls f() while nobody is served.
        """
    def restore(
        self,
        applied: collections.abc.Sequence[
            tuple[
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
            ]
        ],
        pushes: typing.SupportsInt | typing.SupportsIndex,
    ) -> None:
        """
        Before any connection: the tables have these, and so many pushes in all.
        """

class RemoteRows:
    """
    Rows that embedding servers hold, for a training's workers and evaluations.
    """
    def __init__(
        self,
        *,
        tables: collections.abc.Sequence[
            tuple[
                str,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
            ]
        ],
        features: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        placement: RowPlacement,
        servers: typing.SupportsInt | typing.SupportsIndex,
        workers: typing.SupportsInt | typing.SupportsIndex,
        readers: typing.SupportsInt | typing.SupportsIndex,
        client: typing.SupportsInt | typing.SupportsIndex,
        life: typing.SupportsInt | typing.SupportsIndex,
        timeout: typing.SupportsFloat | typing.SupportsIndex,
        patience: typing.SupportsFloat | typing.SupportsIndex,
        look_ahead: typing.SupportsInt | typing.SupportsIndex = 1,
        poolings: collections.abc.Sequence[str | None] = [],
        pooling: str = "auto",
        apart: bool = False,
    ) -> None:
        """
        tables: (name, dim, rows, or 0 where it grows) of each; features: of each its table. client: the first thread's number, behind which are as many others' as there are slots; life: a number that no other process ever has, and none before it a larger one. timeout: seconds of silence after which a connection is given up; patience: those for which a server is waited for. poolings: of each feature sum, mean or max, or None where its rows are read; empty: None of each. pooling: where those are pooled, at servers, in rows that are read, or auto, where that is fewer bytes. apart: workers make calls (RowCalls), each of a table of its own.
        """
    def adopt(
        self,
        slot: typing.SupportsInt | typing.SupportsIndex,
        server: typing.SupportsInt | typing.SupportsIndex,
        socket: typing.SupportsInt | typing.SupportsIndex,
        checked: bool,
        transport: str = "tcp",
        patience: typing.SupportsFloat | typing.SupportsIndex = 0.0,
    ) -> bool:
        """
        With patience, in seconds: False where the server does not answer within it.
        """
    def counters(self) -> dict:
        """
        What was counted; kernel_in and kernel_out, where all went over TCP.
        """
    def expect(self) -> None:
        """
        A server that is not reached yet has told that it will be: patience begins anew.
        """
    def forsake(self) -> None:
        """
        Nobody has these rows any more: a training by them ends as one that is interrupted.
        """
    def missing(self, servers: typing.SupportsInt | typing.SupportsIndex) -> list[tuple[int, int]]:
        """
        (slot, server) of the connections to be made.
        """
    @property
    def forsaken(self) -> bool: ...
    @property
    def pooled(self) -> list[bool] | None:
        """
        Of each feature whether servers pool it; None: not decided yet.
        """
    @property
    def settled(self) -> bool:
        """
        Whether all workers wait for batches, and all that they have pushed is applied.
        """
    @property
    def slots(self) -> int:
        """
        Threads that need a connection with each server.
        """

class RowCalls:
    """
    Look-ups and updates of one table by one thread.
    """
    def __init__(
        self, rows: RemoteRows, worker: typing.SupportsInt | typing.SupportsIndex
    ) -> None: ...
    def ask(self, ids: numpy.typing.NDArray[numpy.int64]) -> int:
        """
        The look-up's number.
        """
    def finish(self) -> dict:
        """
        Waits until all updates are applied; what became of them.
        """
    def keeps(self, number: typing.SupportsInt | typing.SupportsIndex) -> bool:
        """
        Whether that look-up is not over.
        """
    def leave(self) -> None: ...
    def look(self, ids: numpy.typing.NDArray[numpy.int64]) -> numpy.typing.NDArray[numpy.float32]:
        """
        [n, dim], for who only reads.
        """
    def update(
        self,
        number: typing.SupportsInt | typing.SupportsIndex,
        gradients: numpy.typing.NDArray[numpy.float32],
    ) -> dict:
        """
        What became of updates before; that look-up is over.
        """
    def values(
        self, number: typing.SupportsInt | typing.SupportsIndex
    ) -> numpy.typing.NDArray[numpy.float32]:
        """
        [n, dim], of its ids.
        """

class Engine:
    def __init__(
        self,
        theta: numpy.typing.NDArray[numpy.float32],
        discipline: tuple[str, dict],
        rule: tuple[str, dict],
        staleness: tuple[str, dict],
        workers: typing.SupportsInt | typing.SupportsIndex,
        readers: typing.SupportsInt | typing.SupportsIndex,
        variable_ends: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        check_finite: bool,
        states: collections.abc.Sequence[typing.Annotated[numpy.typing.ArrayLike, numpy.float32]],
        t: typing.SupportsInt | typing.SupportsIndex,
        synchronisation: TrainerSync | None = None,
    ) -> None: ...
    def _begin(self) -> None: ...
    def _counters(self) -> dict: ...
    def _may_close(self) -> None: ...
    def _memory(self) -> typing.Any: ...
    def _push_pieces(
        self,
        pieces: collections.abc.Sequence[
            tuple[
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
            ]
        ],
        t: typing.SupportsInt | typing.SupportsIndex | None = None,
    ) -> typing.Any: ...
    def _read_for_torch(self) -> Read: ...
    def _state(self) -> tuple: ...
    def _take(
        self, leases: Leases, seconds: typing.SupportsFloat | typing.SupportsIndex
    ) -> typing.Any: ...
    def close(self) -> None:
        """
        Refuse reads and pushes from here on, and end the synchronisation; views stay valid.
        """
    def push(
        self, gradient: typing.Any, *, t: typing.SupportsInt | typing.SupportsIndex | None = None
    ) -> typing.Any:
        """
        Apply a gradient, float32 [d], under the rule, the discipline and the staleness policy.
        """
    def push_sparse(
        self,
        indices: typing.Any,
        values: typing.Any,
        *,
        t: typing.SupportsInt | typing.SupportsIndex | None = None,
    ) -> typing.Any:
        """
        Apply a gradient that is ``values`` (float32 [n]) at ``indices`` (int64 [n], ascending) and zero elsewhere; only under Hogwild.
        """
    def read(self) -> Read:
        """
        A context manager that gives the latest parameters as a read-only float32 [d] array, with their version in the attribute ``t``.
        """
    @property
    def dimension(self) -> int:
        """
        d, the number of parameters.
        """
    @property
    def live(self) -> int:
        """
        Parameter vectors in use.
        """
    @property
    def t(self) -> int:
        """
        Updates applied so far.
        """
    @property
    def workers(self) -> int:
        """
        Threads that may push.
        """

class RuleState:
    """
    A vector with an update rule's state.
    """
    def __init__(
        self, rule: tuple[str, dict], theta: numpy.typing.NDArray[numpy.float32]
    ) -> None: ...
    def memory(
        self, k: typing.SupportsInt | typing.SupportsIndex
    ) -> numpy.typing.NDArray[numpy.float32]:
        """
        The same, where it lies.
        """
    def set_rule(self, rule: tuple[str, dict]) -> None: ...
    def update(self, gradient: numpy.typing.NDArray[numpy.float32]) -> None: ...
    def update_pieces(
        self,
        places: collections.abc.Sequence[
            tuple[
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
            ]
        ],
    ) -> None:
        """
        A gradient of some parameters: (address, begin, end, updates) of each piece.
        """
    def vector(
        self, k: typing.SupportsInt | typing.SupportsIndex
    ) -> numpy.typing.NDArray[numpy.float32]:
        """
        A copy of theta (0) or of state k.
        """
    @property
    def t(self) -> int:
        """
        Updates applied.
        """
    @t.setter
    def t(self, arg1: typing.SupportsInt | typing.SupportsIndex) -> None: ...

class SharedVector:
    @staticmethod
    def attach(name: str, choices: collections.abc.Callable) -> SharedVector: ...
    @staticmethod
    def clean(name: str) -> bool:
        """
        Removes what nobody uses any more; false where there is nothing of the kind.
        """
    @staticmethod
    def create(
        *,
        name: str,
        theta: numpy.typing.NDArray[numpy.float32],
        participants: typing.SupportsInt | typing.SupportsIndex,
        in_place: bool,
        description: str,
        rule: tuple[str, dict],
        staleness: tuple[str, dict],
        persistence: typing.SupportsFloat | typing.SupportsIndex,
    ) -> SharedVector: ...
    @staticmethod
    def path(name: str) -> str:
        """
        The file of that name; raises Error where it is no name.
        """
    def close(self) -> None: ...
    def push(
        self,
        gradient: numpy.typing.NDArray[numpy.float32],
        t_read: typing.SupportsInt | typing.SupportsIndex,
    ) -> tuple: ...
    def read(self) -> tuple[numpy.typing.NDArray[numpy.float32], int]: ...
    def reap(self) -> None: ...
    def state(self) -> tuple[numpy.typing.NDArray[numpy.float32], int]: ...
    @property
    def closed(self) -> bool: ...
    @property
    def length(self) -> int: ...
    @property
    def live(self) -> int: ...
    @property
    def participants(self) -> int: ...
    @property
    def pids(self) -> list[int]: ...
    @property
    def t(self) -> int: ...

class SparseRows:
    def __init__(
        self,
        indptr: numpy.typing.NDArray[numpy.int64],
        indices: numpy.typing.NDArray[numpy.int32],
        data: numpy.typing.NDArray[numpy.float32],
        features: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def prepare(self, seed: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Makes the copy that training with this seed works on.
        """
    @property
    def features(self) -> int: ...
    @property
    def rows(self) -> int: ...

class SparseModel(GradientSource):
    def evaluate(
        self,
        theta: numpy.typing.NDArray[numpy.float32],
        x: SparseRows,
        y: numpy.ndarray,
        weights: numpy.typing.NDArray[numpy.float32] | None = None,
        threads: typing.SupportsInt | typing.SupportsIndex | None = None,
    ) -> tuple[float, float]: ...
    def gradient(
        self,
        theta: numpy.typing.NDArray[numpy.float32],
        x: SparseRows,
        y: numpy.ndarray,
        weights: numpy.typing.NDArray[numpy.float32] | None = None,
    ) -> tuple[float, numpy.typing.NDArray[numpy.float32]]: ...
    def predict(
        self, theta: numpy.typing.NDArray[numpy.float32], x: SparseRows
    ) -> numpy.typing.NDArray[numpy.float32]: ...
    def training_order(
        self, x: SparseRows, seed: typing.SupportsInt | typing.SupportsIndex
    ) -> tuple[numpy.typing.NDArray[numpy.int64], list[int]]:
        """
        A training on these rows with that seed, or on a stream (None), has parameters in another order: of each place the one in the model's, int64 [d], and where its variables end.
        """

class SparseLinear(SparseModel):
    def __init__(
        self,
        features: typing.SupportsInt | typing.SupportsIndex,
        outputs: typing.SupportsInt | typing.SupportsIndex,
        loss: str,
        l2: typing.SupportsFloat | typing.SupportsIndex = 0.0,
        isa: str | None = None,
        trains_bias: bool = True,
    ) -> None: ...

class SparseNetwork(SparseModel):
    def __init__(
        self,
        network: Network,
        loss: str,
        l2: typing.SupportsFloat | typing.SupportsIndex = 0.0,
        isa: str | None = None,
    ) -> None: ...

class FactorisationMachine(SparseModel):
    def __init__(
        self,
        features: typing.SupportsInt | typing.SupportsIndex,
        k: typing.SupportsInt | typing.SupportsIndex,
        loss: str,
        l2: typing.SupportsFloat | typing.SupportsIndex = 0.0,
        isa: str | None = None,
    ) -> None: ...

class FieldAwareMachine(SparseModel):
    def __init__(
        self,
        fields: numpy.typing.NDArray[numpy.uint16],
        k: typing.SupportsInt | typing.SupportsIndex,
        loss: str,
        l2: typing.SupportsFloat | typing.SupportsIndex = 0.0,
        isa: str | None = None,
    ) -> None: ...

class SentRows:
    """
    Rows that others read and send: what is asked of them, and what has come.
    """
    def __init__(
        self,
        *,
        numbers: typing.SupportsInt | typing.SupportsIndex,
        bags: collections.abc.Sequence[bool],
        classes: bool,
        values: typing.SupportsInt | typing.SupportsIndex,
        weights: bool,
        columns: typing.SupportsInt | typing.SupportsIndex,
        distinct_columns: bool,
        rows: typing.SupportsInt | typing.SupportsIndex,
        passes: typing.SupportsInt | typing.SupportsIndex,
        at_once: typing.SupportsInt | typing.SupportsIndex,
        room: typing.SupportsInt | typing.SupportsIndex,
        stripe: typing.SupportsInt | typing.SupportsIndex,
        readers: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def end(self) -> None:
        """
        There are no more rows.
        """
    def expect(
        self,
        first: typing.SupportsInt | typing.SupportsIndex,
        count: typing.SupportsInt | typing.SupportsIndex,
    ) -> None:
        """
        Positions are going to be taken.
        """
    def fail(self, why: str) -> None:
        """
        No more comes; whoever waits is told.
        """
    def forget(self) -> None:
        """
        None is any more, but by who waits.
        """
    def give(
        self,
        span: tuple[
            typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex
        ],
        arrays: tuple,
        classes: typing.SupportsInt | typing.SupportsIndex,
    ) -> None:
        """
        A span has come: (x, single ids, bags, y, weights) as of RowStream.take, labels below `classes`.
        """
    def head(self, count: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def know(self, rows: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        There are so many rows, which was not known (rows=0).
        """
    def lost(
        self,
        span: tuple[
            typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex
        ],
    ) -> bool:
        """
        A span does not come, and is asked for again; whether somebody waits for it.
        """
    def row(self, position: typing.SupportsInt | typing.SupportsIndex) -> int:
        """
        The row of a position.
        """
    def start(self, first: typing.SupportsInt | typing.SupportsIndex = 0) -> None: ...
    def take(
        self,
        first: typing.SupportsInt | typing.SupportsIndex,
        count: typing.SupportsInt | typing.SupportsIndex,
    ) -> tuple:
        """
        Those rows, as RowStream.take gives them; waits for them.
        """
    def wanted(
        self,
        readers: collections.abc.Sequence[bool],
        seconds: typing.SupportsFloat | typing.SupportsIndex,
    ) -> tuple[int, int] | None:
        """
        (first, count) of what is to be asked of those readers, which is asked for then; waits so many seconds. None: there is nothing.
        """
    @property
    def held(self) -> int:
        """
        Rows that are there or asked for.
        """
    @property
    def stopped(self) -> bool: ...

class RowStream:
    """
    Rows that are read while they are used.
    """
    def counts(self) -> dict:
        """
        What was read so far.
        """
    def end(self) -> None:
        """
        Stops reading. There are no more rows then.
        """
    def head(self, count: typing.SupportsInt | typing.SupportsIndex) -> RowStream | None:
        """
        A stream of copies of the first rows, so many at most, again and again; these stay where they are. None: there are none.
        """
    def known(
        self,
        most: typing.SupportsInt | typing.SupportsIndex,
        seconds: typing.SupportsFloat | typing.SupportsIndex,
    ) -> int | None:
        """
        How many rows there are, or `most` where these are fewer; waits so many seconds until that is known. None: it is not.
        """
    def moments(
        self, row: typing.SupportsInt | typing.SupportsIndex | None = None
    ) -> tuple[int, list[float], list[float]]:
        """
        (rows, means, sums of squares) by which that row is standardised; by default the one behind those that were taken.
        """
    def next(
        self, count: typing.SupportsInt | typing.SupportsIndex, made: collections.abc.Callable
    ) -> typing.Any:
        """
        made(the next rows), which are one at least; where it, or a signal's handler, raises, the next call has them. StopIteration: there are no more.
        """
    def read_here(self) -> None:
        """
        In place of start: reads all rows, of a stream of one pass, by this thread alone.
        """
    def standardise(
        self,
        which: collections.abc.Sequence[bool],
        begun: tuple[
            typing.SupportsInt | typing.SupportsIndex,
            collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
            collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
        ],
    ) -> None:
        """
        Numbers, of the columns that `which` says, by their running means and variances, begun with (rows, means, sums of squares). Before start.
        """
    def start(self, first: typing.SupportsInt | typing.SupportsIndex = 0) -> None:
        """
        Before rows are asked for; another call changes nothing.
        """
    def take(self, count: typing.SupportsInt | typing.SupportsIndex) -> tuple:
        """
        The next rows, each once, whichever thread asks: x, single ids [n, features], bags as (ids, offsets), y, weights. An error is raised whenever rows behind it are asked for.
        """

class StreamedRows:
    """
    A stream as a model reads it.
    """
    @typing.overload
    def __init__(
        self,
        stream: RowStream,
        features: collections.abc.Sequence[
            tuple[
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex | None,
            ]
        ],
        users: typing.SupportsInt | typing.SupportsIndex | None = None,
    ) -> None: ...
    @typing.overload
    def __init__(
        self,
        stream: SentRows,
        features: collections.abc.Sequence[
            tuple[
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex | None,
            ]
        ],
        users: typing.SupportsInt | typing.SupportsIndex | None = None,
    ) -> None: ...

class StandardisedSource(GradientSource):
    def __init__(self, source: GradientSource, rows: StreamedRows) -> None: ...

class Training:
    """
    What is trained on what: `discipline` is one, or a mode, and with the rule and the staleness policy a name and its settings.
    """
    def __init__(
        self,
        *,
        source: typing.Any,
        theta: numpy.typing.NDArray[numpy.float32],
        x: typing.Any,
        y: numpy.ndarray,
        weights: numpy.typing.NDArray[numpy.float32] | None = None,
        validation_x: typing.Any | None = None,
        validation_y: numpy.ndarray | None = None,
        discipline: tuple[str, dict],
        rule: tuple[str, dict],
        staleness: tuple[str, dict],
        workers: typing.SupportsInt | typing.SupportsIndex,
        batch_size: typing.SupportsInt | typing.SupportsIndex,
        seed: typing.SupportsInt | typing.SupportsIndex,
        tables: collections.abc.Sequence[ServedTable] = [],
        record: tuple[str, str, typing.Annotated[numpy.typing.ArrayLike, numpy.float32]]
        | None = None,
        metrics: tuple[
            typing.Annotated[numpy.typing.ArrayLike, numpy.uint64] | None,
            typing.SupportsInt | typing.SupportsIndex,
        ]
        | None = None,
        observers: collections.abc.Sequence[tuple[str, dict]] = [],
    ) -> None: ...

class Watch:
    """
    When a run ends, and who is told of it meanwhile.
    """
    def __init__(
        self,
        *,
        until: collections.abc.Mapping[str, typing.SupportsFloat | typing.SupportsIndex],
        milestones: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex] = [],
        evaluate_every: typing.SupportsFloat | typing.SupportsIndex = ...,
        progress: collections.abc.Callable | None = None,
        checkpoint: collections.abc.Callable | None = None,
        checkpoint_every: typing.SupportsFloat | typing.SupportsIndex = ...,
        checkpoint_updates: typing.SupportsInt | typing.SupportsIndex = 0,
        saving: collections.abc.Callable | None = None,
        judge: collections.abc.Callable | None = None,
        keep: collections.abc.Callable | None = None,
        wanted: collections.abc.Callable | None = None,
    ) -> None: ...

class Resumption:
    """
    What a run goes on from.
    """
    def __init__(
        self,
        *,
        vectors: numpy.typing.NDArray[numpy.float32],
        last_updates: numpy.typing.NDArray[numpy.float32],
        updates: typing.SupportsInt | typing.SupportsIndex,
        batches: typing.SupportsInt | typing.SupportsIndex,
        initial_loss: typing.SupportsFloat | typing.SupportsIndex,
        staleness: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        behind: numpy.typing.NDArray[numpy.float32],
        shrink: tuple[
            typing.SupportsFloat | typing.SupportsIndex,
            collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
            typing.SupportsInt | typing.SupportsIndex,
        ],
        mode: tuple[
            typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
            typing.Annotated[numpy.typing.ArrayLike, numpy.float32],
        ]
        | None = None,
    ) -> None: ...
    @property
    def batches(self) -> int: ...
    @property
    def behind(self) -> numpy.typing.NDArray[numpy.float32]:
        """
        Theta without the decay that it has yet to get, [d]; empty: it has all.
        """
    @property
    def initial_loss(self) -> float: ...
    @property
    def last_updates(self) -> numpy.typing.NDArray[numpy.float32]:
        """
        Norm of each variable's last update, with a stage-aware staleness policy.
        """
    @property
    def mode(
        self,
    ) -> tuple[numpy.typing.NDArray[numpy.uint64], numpy.typing.NDArray[numpy.float32]]:
        """
        By a mode, what its server and its workers have beside all this: numbers, uint64 [n], and vectors of the parameters' length, one after another; empty: there is no mode.
        """
    @property
    def running(self) -> tuple[numpy.typing.NDArray[numpy.float32], int, int] | None:
        """
        Running statistics, as of TrackedSource.running; None: the source has none.
        """
    @property
    def shrink(self) -> tuple[float, list[float], int]:
        """
        How far that decay has come.
        """
    @property
    def staleness(self) -> list[int]:
        """
        What the staleness policy has gathered.
        """
    @property
    def updates(self) -> int: ...
    @property
    def vectors(self) -> numpy.typing.NDArray[numpy.float32]:
        """
        Theta and the rule's states, [1 + S, d].
        """

class PolicyServer:
    """
    Leads a mode; a thread serves its workers.
    """
    def __init__(
        self,
        *,
        theta: numpy.typing.NDArray[numpy.float32],
        block_ends: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        mode: tuple[str, dict],
        rule: tuple[str, dict],
        staleness: tuple[str, dict],
        workers: typing.SupportsInt | typing.SupportsIndex,
        run: typing.SupportsInt | typing.SupportsIndex,
        terms: typing.SupportsInt | typing.SupportsIndex,
        boot: typing.SupportsInt | typing.SupportsIndex,
        record: tuple[
            str,
            str,
            typing.Annotated[numpy.typing.ArrayLike, numpy.float32] | None,
            collections.abc.Sequence[
                collections.abc.Sequence[
                    tuple[
                        typing.SupportsInt | typing.SupportsIndex,
                        typing.SupportsInt | typing.SupportsIndex,
                    ]
                ]
            ],
            collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        ]
        | None = None,
        begun: tuple[Resumption, typing.SupportsInt | typing.SupportsIndex] | None = None,
        tables: collections.abc.Sequence[Table] = [],
        followers: typing.SupportsInt | typing.SupportsIndex = 0,
        reduces: bool = False,
        updates: typing.SupportsInt | typing.SupportsIndex | None = None,
        served: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64] | None = None,
        ever: numpy.typing.NDArray[numpy.uint64] | None = None,
        journal: str | None = None,
        line: typing.SupportsInt | typing.SupportsIndex = 0,
        again: typing.SupportsInt | typing.SupportsIndex = 0,
        shards: collections.abc.Sequence[
            collections.abc.Sequence[
                tuple[
                    typing.SupportsInt | typing.SupportsIndex,
                    typing.SupportsInt | typing.SupportsIndex,
                ]
            ]
        ] = [],
    ) -> None:
        """
        theta: to begin with, float32 [d]; block_ends: where its variables end. workers: lanes that may come. run, terms: as trainers have them; boot: a number that no other server's process ever has. record: a file that what it hears is written to, its header, and of several servers all parameters, what each has of them, and of each table which one has all of its rows, or 2³² − 1. begun: to go on from, what take() of another one gave. tables: that gradients are of too, in the order of the model. followers: servers behind it, of several, of which each has a part of the parameters, as theta is one. reduces: while the mode is in Sync workers sum among themselves. updates: so many end the run. served: of one that is started again in its own run, beside begun what keep() gave, uint64. ever: pushes that the mode was ever told of, and their examples, uint64 [2], which it counts on; with it nobody is told the end before let_end(). journal: of the first of several, what the names of the files begin with to which all is written that it hears; line: of one that is started again, the first line that is not in begun, as keep() gave it; again: how many processes of it there were in its run before, of which the journal is then. shards: of several servers whose workers sum what each has of the parameters, as [begin, end).
        """
    def adopt(
        self,
        socket: typing.SupportsInt | typing.SupportsIndex,
        checked: bool,
        transport: str = "tcp",
    ) -> None:
        """
        transport: tcp, shm or auto; with another than tcp it waits for the other side.
        """
    def command(self, argument: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Tells the mode, as its commands say.
        """
    def counters(self) -> dict:
        """
        What was counted; kernel_in and kernel_out, where all went over TCP.
        """
    def end_record(self, waits: bool) -> str | None:
        """
        The record ends here, with the parameters and rows of now. Returns why it ended before; empty: it did not, or there is none. waits: for servers behind it, which are asked what they have of what it has heard; None: not all have said it, and it goes on.
        """
    def hold(self, holds: bool) -> None:
        """
        Whether what the mode grants goes to nobody.
        """
    def keep(
        self, batch_size: typing.SupportsInt | typing.SupportsIndex
    ) -> tuple[
        tuple[
            Resumption,
            int,
            tuple[int, int],
            list[int],
            int,
            list[int],
            list[tuple[int, int]],
            list[tuple[int, int]],
        ],
        numpy.typing.NDArray[numpy.uint64],
        int,
    ]:
        """
        At any moment at which workers alone have no updates what take() gives, and for one that is started again in the same run what it is to be given beside as served, and as line.
        """
    def kept(self, line: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        What goes before that line of the journal is kept.
        """
    def let_end(self) -> None:
        """
        That all is trained is kept: whoever waits to hear of the end is told.
        """
    def let_go(
        self,
        first: typing.SupportsInt | typing.SupportsIndex,
        clients: typing.SupportsInt | typing.SupportsIndex,
    ) -> None:
        """
        Of a process that is gone or hangs, by its lanes' numbers: others have its leases.
        """
    def let_go_absent(self) -> None:
        """
        Nodes of what it goes on from for which nobody has come are gone.
        """
    def quiet(self, f: collections.abc.Callable) -> None:
        """
        Calls f() while nobody is served.
        """
    def standing(self) -> dict:
        """
        Updates, and how many of them workers alone have, examples of leases that are done, what the mode has decided, and why it serves nobody any more (empty: it does), all of one moment.
        """
    def stay_home(self, stays: bool) -> None:
        """
        Whether parameters that workers have come, and no round begins.
        """
    def sync_journal(self) -> None:
        """
        What was written to the journal is to outlast a power cut; where that cannot be done it is given up.
        """
    def take(
        self,
        commands: collections.abc.Sequence[
            tuple[
                typing.SupportsFloat | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
            ]
        ],
        batch_size: typing.SupportsInt | typing.SupportsIndex,
    ) -> tuple[
        Resumption,
        int,
        tuple[int, int],
        list[int],
        int,
        list[int],
        list[tuple[int, int]],
        list[tuple[int, int]],
    ]:
        """
        While it holds and is at rest its state, how many nodes there are, which words of the mode's are of rows that it holds, [begin, end), by slot one more than the number of the batch that it holds, 0: of nothing, lines of the log of those behind it, by table floats from one gradient of a row to the next, the batches that are not done, as number and examples, and of one that follows those that it has had, as first and last number. commands: that are still to come, in so many seconds, and what they say.
        """
    @property
    def at_rest(self) -> bool:
        """
        That no worker has a lease, as far as it was told.
        """
    @property
    def is_home(self) -> bool:
        """
        That they have come, and stay where they are to.
        """
    @property
    def parameters(self) -> numpy.typing.NDArray[numpy.float32]:
        """
        A copy, float32 [d].
        """

class ModeTrainer:
    """
    A trainer of a mode that a policy server leads.
    """
    def __init__(
        self,
        *,
        dimension: typing.SupportsInt | typing.SupportsIndex,
        lanes: typing.SupportsInt | typing.SupportsIndex,
        run: typing.SupportsInt | typing.SupportsIndex,
        terms: typing.SupportsInt | typing.SupportsIndex,
        client: typing.SupportsInt | typing.SupportsIndex,
        life: typing.SupportsInt | typing.SupportsIndex,
        patience: typing.SupportsFloat | typing.SupportsIndex,
        tables: collections.abc.Sequence[
            tuple[
                str,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
            ]
        ] = [],
        mode: str = "",
        shards: collections.abc.Sequence[
            collections.abc.Sequence[
                tuple[
                    typing.SupportsInt | typing.SupportsIndex,
                    typing.SupportsInt | typing.SupportsIndex,
                ]
            ]
        ] = [],
        reduces: bool = False,
        placement: RowPlacement | None = None,
        at_once: typing.SupportsInt | typing.SupportsIndex = 0,
    ) -> None:
        """
        lanes: worker threads, of which at_once compute at once; 0: all. client: the first one's number, behind which are as many others' as there are slots; life: a number that no other process ever has, and none before it a larger one. patience: seconds for which the server is waited for. tables: (name, dim, rows, or 0 where it grows) of each whose rows the servers have; placement: of several servers which one has which. shards: of several servers what each has of the parameters, as [begin, end); mode: its name. reduces: as the server has it.
        """
    def adopt(
        self,
        slot: typing.SupportsInt | typing.SupportsIndex,
        server: typing.SupportsInt | typing.SupportsIndex,
        socket: typing.SupportsInt | typing.SupportsIndex,
        checked: bool,
        transport: str = "tcp",
        patience: typing.SupportsFloat | typing.SupportsIndex = 0.0,
    ) -> bool:
        """
        With patience, in seconds: False where the server does not answer within it.
        """
    def adopt_sum(
        self,
        lane: typing.SupportsInt | typing.SupportsIndex,
        client: typing.SupportsInt | typing.SupportsIndex,
        socket: typing.SupportsInt | typing.SupportsIndex,
        checked: bool,
        called: bool,
        transport: str = "tcp",
    ) -> None:
        """
        The connection of a lane with another one; called: by this one.
        """
    def counters(self) -> dict:
        """
        What was counted; kernel_in and kernel_out, where all went over TCP.
        """
    def end(self) -> None:
        """
        The run is over for this trainer: what waits for the server waits no more.
        """
    def missing(self, servers: typing.SupportsInt | typing.SupportsIndex) -> list[tuple[int, int]]:
        """
        (slot, server) of the connections to be made.
        """
    @property
    def ended(self) -> bool:
        """
        Whether the server has said that all is trained.
        """
    @property
    def slots(self) -> int:
        """
        Threads that need a connection with each server.
        """
    @property
    def wanted(self) -> list[tuple[int, int]]:
        """
        Of an all-reduce, (lane, client) of each other lane, by its number, that is to be called.
        """

class PartServer:
    """
    A policy server behind the first; a thread serves its workers.
    """
    def __init__(
        self,
        *,
        theta: numpy.typing.NDArray[numpy.float32],
        mode: tuple[str, dict],
        rule: tuple[str, dict],
        staleness: tuple[str, dict],
        workers: typing.SupportsInt | typing.SupportsIndex,
        run: typing.SupportsInt | typing.SupportsIndex,
        terms: typing.SupportsInt | typing.SupportsIndex,
        boot: typing.SupportsInt | typing.SupportsIndex,
        server: typing.SupportsInt | typing.SupportsIndex,
        tables: collections.abc.Sequence[Table] = [],
        begun: tuple[Resumption, typing.SupportsInt | typing.SupportsIndex] | None = None,
        leads: bool = False,
        served: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64] | None = None,
        ever: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64] | None = None,
        again: bool = False,
        reduces: bool = False,
        recorded: bool = False,
    ) -> None:
        """
        theta: its part, float32. mode, and the others: as of PolicyServer; server: its number, from 1. tables: of which it has rows, in the order of the model. begun: its part of a state; leads: of servers that decide by themselves, that is of the mode of the first. served, ever: as of PolicyServer, but for when the end is told; again: it was started again, and asks the first; before it has heard, it must be handed no lane. reduces: as of PolicyServer. recorded: the first is, and asks it at the end.
        """
    def adopt(
        self,
        socket: typing.SupportsInt | typing.SupportsIndex,
        checked: bool,
        transport: str = "tcp",
    ) -> None:
        """
        As of PolicyServer.
        """
    def counters(self) -> dict:
        """
        What was counted; kernel_in and kernel_out, where all went over TCP.
        """
    def follow(
        self,
        socket: typing.SupportsInt | typing.SupportsIndex,
        checked: bool,
        transport: str = "tcp",
    ) -> None:
        """
        Takes a connection to the first server over.
        """
    def keep(
        self,
    ) -> tuple[
        tuple[
            Resumption,
            int,
            tuple[int, int],
            list[int],
            int,
            list[int],
            list[tuple[int, int]],
            list[tuple[int, int]],
        ],
        numpy.typing.NDArray[numpy.uint64],
        tuple[int, int],
    ]:
        """
        As of PolicyServer, its part; and pushes of whose parts something has become, and their examples.
        """
    def kept(self, position: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        What keep() gave with that line of the log is kept: nobody asks for those before it.
        """
    def let_go(
        self,
        first: typing.SupportsInt | typing.SupportsIndex,
        clients: typing.SupportsInt | typing.SupportsIndex,
    ) -> None:
        """
        As of PolicyServer.
        """
    def quiet(self, f: collections.abc.Callable) -> None:
        """
        Calls f() while nobody is served.
        """
    def standing(self) -> dict:
        """
        Updates, lines of the first server's log that are carried out, what its mode has decided, and why it serves nobody any more (empty: it does), all of one moment.
        """
    def take(
        self,
    ) -> tuple[
        Resumption,
        int,
        tuple[int, int],
        list[int],
        int,
        list[int],
        list[tuple[int, int]],
        list[tuple[int, int]],
    ]:
        """
        While it is at rest its part of what PolicyServer.take gives.
        """
    @property
    def asks(self) -> bool:
        """
        Whether it was started again, and has not heard yet what it has to know.
        """
    @property
    def at_rest(self) -> bool:
        """
        That all is carried out that the first has heard, once that was at rest.
        """
    @property
    def end_known(self) -> bool:
        """
        Whether the first has what it asks for at the end of a run that is recorded.
        """
    @property
    def follows(self) -> bool:
        """
        Whether it has a connection to the first server.
        """
    @property
    def parameters(self) -> numpy.typing.NDArray[numpy.float32]:
        """
        A copy of its part, float32.
        """

class Trace:
    """
    The record of a training, every page checked.
    """
    def __init__(self, path: str) -> None: ...
    @property
    def ended(self) -> bool:
        """
        Whether it has the training's end.
        """
    @property
    def header(self) -> bytes:
        """
        What the recording training's caller gave.
        """
    @property
    def start(self) -> numpy.typing.NDArray[numpy.float32]:
        """
        What the training began with, as its caller gave it.
        """

class RowServersPlan:
    """
    Embedding servers of virtual time.
    """
    def __init__(
        self,
        *,
        count: typing.SupportsInt | typing.SupportsIndex,
        bandwidth: typing.SupportsFloat | typing.SupportsIndex,
        latency: typing.SupportsFloat | typing.SupportsIndex,
        batch: typing.SupportsFloat | typing.SupportsIndex,
        row: typing.SupportsFloat | typing.SupportsIndex,
        look_ahead: typing.SupportsInt | typing.SupportsIndex,
        servers_of_tables: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
    ) -> None: ...

class TrainersPlan:
    """
    Trainers of virtual time, and how they synchronise.
    """
    def __init__(
        self,
        *,
        count: typing.SupportsInt | typing.SupportsIndex,
        machine: tuple[str, dict] | None,
        pace: str,
        starts: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        gaps: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
        servers: typing.SupportsInt | typing.SupportsIndex,
        parts: typing.SupportsInt | typing.SupportsIndex,
        bandwidth: typing.SupportsFloat | typing.SupportsIndex,
        latency: typing.SupportsFloat | typing.SupportsIndex,
        compression: str,
        mean: bool,
        rows: RowServersPlan | None = None,
    ) -> None: ...

class VirtualTime:
    """
    How long what takes, and what happens meanwhile.
    """
    def __init__(
        self,
        *,
        compute: tuple[str, dict],
        update: tuple[str, dict],
        copy: tuple[str, dict],
        commands: collections.abc.Sequence[
            tuple[
                typing.SupportsFloat | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
            ]
        ] = [],
        network: tuple[str, dict] | None = None,
        changes: collections.abc.Sequence[
            tuple[
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsFloat | typing.SupportsIndex,
            ]
        ] = [],
        failing: tuple[
            typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex
        ] = (0.0, 0.0),
        detection: typing.SupportsFloat | typing.SupportsIndex = ...,
        trainers: TrainersPlan | None = None,
        shards: collections.abc.Sequence[
            collections.abc.Sequence[
                tuple[
                    typing.SupportsInt | typing.SupportsIndex,
                    typing.SupportsInt | typing.SupportsIndex,
                ]
            ]
        ] = [],
        servers_of_tables: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [],
    ) -> None: ...

def available_isas() -> list[str]:
    """
    Instruction-set levels of this build that this CPU can run, slowest first.
    """

def batch(
    values: numpy.ndarray,
    seed: typing.SupportsInt | typing.SupportsIndex,
    batch_size: typing.SupportsInt | typing.SupportsIndex,
    k: typing.SupportsInt | typing.SupportsIndex,
) -> numpy.ndarray:
    """
    A copy of the rows that batch k has, of a C-contiguous array of any type.
    """

def batch_rows(
    seed: typing.SupportsInt | typing.SupportsIndex,
    rows: typing.SupportsInt | typing.SupportsIndex,
    batch_size: typing.SupportsInt | typing.SupportsIndex,
    k: typing.SupportsInt | typing.SupportsIndex,
) -> list[int]:
    """
    Row numbers of batch k: a function of (seed, k) alone.
    """

def check_parts(mode: str, rule: tuple[str, dict], staleness: tuple[str, dict]) -> None:
    """
    Raises ValueError where no several policy servers, each with a part of the parameters, can train so.
    """

def decide_alike(mode: str) -> bool:
    """
    Whether several policy servers of that mode decide all as the first, rather than each by itself.
    """

def default_isa() -> str:
    """
    The level in use: the last available one, or what the environment variable LEASHED_ISA names.
    """

def losses() -> list[str]:
    """
    Names of the losses there are.
    """

def mean_loss(
    source: GradientSource,
    theta: numpy.typing.NDArray[numpy.float32],
    x: typing.Any,
    y: numpy.ndarray,
    tables: collections.abc.Sequence[ServedTable] = [],
) -> float:
    """
    The mean loss over all rows.
    """

def mode_terms(
    model: typing.SupportsInt | typing.SupportsIndex,
    dimension: typing.SupportsInt | typing.SupportsIndex,
    mode: tuple[str, dict],
    rule: tuple[str, dict],
    staleness: tuple[str, dict],
) -> int:
    """
    A digest of what a policy server and its trainers must have alike.
    """

def number_moments(
    x: numpy.typing.NDArray[numpy.float32],
    begun: tuple[
        typing.SupportsInt | typing.SupportsIndex,
        collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
        collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
    ],
) -> tuple[int, list[float], list[float]]:
    """
    (rows, means, sums of squares) of x [n, columns] and what rows before came to.
    """

def observers() -> dict[str, list[str]]:
    """
    The observers there are, and the settings of each.
    """

def open_arrow(
    *,
    columns: collections.abc.Sequence[
        tuple[
            str,
            str,
            bool,
            typing.SupportsFloat | typing.SupportsIndex | None,
            tuple[
                str,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex | None,
                collections.abc.Sequence[str],
            ]
            | None,
            str,
        ]
    ],
    classes: typing.SupportsInt | typing.SupportsIndex,
    name: str,
    open: collections.abc.Callable,
    again: bool,
    threads: typing.SupportsInt | typing.SupportsIndex,
    places: typing.SupportsInt | typing.SupportsIndex,
    passes: typing.SupportsInt | typing.SupportsIndex,
    skip_bad: bool,
    window: typing.SupportsInt | typing.SupportsIndex,
    seed: typing.SupportsInt | typing.SupportsIndex,
) -> RowStream:
    """
    Rows of columns that come by the Arrow C stream interface.
    """

def open_delimited(
    *,
    columns: collections.abc.Sequence[
        tuple[
            str,
            str,
            bool,
            typing.SupportsFloat | typing.SupportsIndex | None,
            tuple[
                str,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex | None,
                collections.abc.Sequence[str],
            ]
            | None,
            str,
        ]
    ],
    separators: str,
    header: str,
    names: collections.abc.Sequence[str],
    quotes: bool,
    classes: typing.SupportsInt | typing.SupportsIndex,
    files: collections.abc.Sequence[str],
    open: collections.abc.Callable,
    again: bool,
    part_bytes: typing.SupportsInt | typing.SupportsIndex,
    threads: typing.SupportsInt | typing.SupportsIndex,
    places: typing.SupportsInt | typing.SupportsIndex,
    passes: typing.SupportsInt | typing.SupportsIndex,
    skip_bad: bool,
    window: typing.SupportsInt | typing.SupportsIndex,
    seed: typing.SupportsInt | typing.SupportsIndex,
    target: str = "",
) -> RowStream:
    """
    Rows of text files; `target`: without what they are to give, which is called so.
    """

def open_rows(
    numbers: typing.SupportsInt | typing.SupportsIndex,
    features: typing.SupportsInt | typing.SupportsIndex,
    classes: typing.SupportsInt | typing.SupportsIndex,
    name: str,
    open: collections.abc.Callable,
    again: bool,
    places: typing.SupportsInt | typing.SupportsIndex,
    passes: typing.SupportsInt | typing.SupportsIndex,
    window: typing.SupportsInt | typing.SupportsIndex,
    seed: typing.SupportsInt | typing.SupportsIndex,
) -> RowStream:
    """
    Rows of the batches that open() iterates over, each x [n, numbers], ids [n, features] and y [n]: labels below `classes`, or of 0 classes numbers.
    """

def open_svmlight(
    *,
    first: typing.SupportsInt | typing.SupportsIndex,
    features: typing.SupportsInt | typing.SupportsIndex,
    fields: typing.Annotated[numpy.typing.ArrayLike, numpy.int32] | None,
    classes: typing.SupportsInt | typing.SupportsIndex,
    files: collections.abc.Sequence[str],
    open: collections.abc.Callable,
    again: bool,
    part_bytes: typing.SupportsInt | typing.SupportsIndex,
    threads: typing.SupportsInt | typing.SupportsIndex,
    places: typing.SupportsInt | typing.SupportsIndex,
    passes: typing.SupportsInt | typing.SupportsIndex,
    skip_bad: bool,
    window: typing.SupportsInt | typing.SupportsIndex,
    seed: typing.SupportsInt | typing.SupportsIndex,
    distinct_columns: bool,
    tells_fields: bool,
) -> RowStream:
    """
    Rows of svmlight files; of libffm's where there are fields, of each column, or [] for any. distinct_columns: a column that comes again in a row is added to where it came first. tells_fields: ids of libffm's are field << 32 | column.
    """

def profile_exchange(
    here: typing.SupportsInt | typing.SupportsIndex,
    there: typing.SupportsInt | typing.SupportsIndex,
    transport: str,
    floats: typing.SupportsInt | typing.SupportsIndex,
) -> float:
    """
    Seconds of a sync server's processor time for one exchange of a fragment, over the two ends of a connection.
    """

def profile_rows(
    here: typing.SupportsInt | typing.SupportsIndex,
    there: typing.SupportsInt | typing.SupportsIndex,
    transport: str,
    tables: collections.abc.Sequence[Table],
    ids: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
    examples: typing.SupportsInt | typing.SupportsIndex,
) -> dict:
    """
    What a batch's rows cost, looked up and pushed, over the two ends of a connection: seconds of processor time of a server of these tables, and of the thread that asks it. ids: uint64 [batches, tables, examples].
    """

def replay(
    trace: Trace,
    training: Training,
    mode: bool,
    until: typing.SupportsInt | typing.SupportsIndex,
    resume: Resumption | None,
    looks_up: bool = False,
    shards: collections.abc.Sequence[
        collections.abc.Sequence[
            tuple[
                typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex
            ]
        ]
    ] = [],
    servers_of_tables: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [],
) -> dict:
    """
    Makes a recorded training again, by a mode where its `discipline` is one, and returns what trace/replayed.h calls Replayed, as a dict. looks_up: whether the record has when rows of tables were looked up. shards: of several servers what each had of the parameters; servers_of_tables: and of each table which one had all of its rows, or 2³² − 1.
    """

def schedule_values(
    choice: tuple[str, dict],
    t: numpy.typing.NDArray[numpy.uint64],
    workers: typing.SupportsInt | typing.SupportsIndex,
) -> numpy.typing.NDArray[numpy.float64]:
    """
    The schedule 'lr' of the choice at each t.
    """

def sharding(
    kind: str,
    shards: typing.SupportsInt | typing.SupportsIndex,
    ends: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
    costs: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
) -> tuple[list[list[tuple[int, int]]], float]:
    """
    What each of so many servers holds of parts that end at `ends`, as spans of parameters, and how uneven that is.
    """

def simulate(
    training: Training,
    watch: Watch,
    time: VirtualTime,
    mode: bool,
    record: typing.Any = None,
    looks_up: bool = False,
) -> dict:
    """
    Trains in virtual time, by a mode where the training's `discipline` is one, and returns what train does, and how many workers were in their updates: for how many seconds each number, and when it changed. record: of a training by that mode, by which it goes; looks_up: as of replay.
    """

def staleness_factors(
    choice: tuple[str, dict],
    tau: numpy.typing.NDArray[numpy.float64],
    last_update: typing.SupportsFloat | typing.SupportsIndex,
) -> numpy.typing.NDArray[numpy.float64]:
    """
    The policy's factor at each staleness.
    """

def time_bin_edges() -> numpy.typing.NDArray[numpy.float64]:
    """
    Edges in seconds of the bins of gradient_seconds and update_seconds.
    """

def train(
    training: Training,
    watch: Watch,
    resume: Resumption | None = None,
    recorded_passes: typing.SupportsInt | typing.SupportsIndex = 0,
    leases: Leases | None = None,
    synchronisation: TrainerSync | None = None,
    rows: RemoteRows | None = None,
) -> dict:
    """
    Trains and returns what engine/result.h calls TrainResult, as a dict.
    """

def train_mode(
    training: Training,
    watch: Watch,
    commands: collections.abc.Sequence[
        tuple[
            typing.SupportsFloat | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex
        ]
    ],
    resume: Resumption | None = None,
    elsewhere: ModeTrainer | None = None,
) -> dict:
    """
    Trains by a mode on threads and returns what train does, and what the mode decided. elsewhere: whose server is not in this process.
    """

FRAGMENT: int = 16320
MOST_AHEAD: int = 5
MOST_MEMBERS: int = 256
__version__: str = "0.1.0"
