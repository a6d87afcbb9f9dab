"""What is trained on, and what is evaluated beside it, as a model reads them."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _core
from leashed import stream as streams
from leashed.base.target import Labels
from leashed.base.warning import warn
from leashed.datasets import Bags, ClickDataset, ClickSplit, Dataset, SparseDataset, Split
from leashed.datasets.columns import UNKNOWN, Columns, arrange
from leashed.datasets.moments import Moments
from leashed.datasets.sparse import is_csr
from leashed.models._columns import columns_of
from leashed.models._fits import check_fits, check_labels
from leashed.models._reads import check_stream
from leashed.models.external import External, Samples
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import Graph
from leashed.models.network import Model
from leashed.modes import Mode
from leashed.stopping import Until, batches_in
from leashed.stream.batches import is_table
from leashed.training.recordings import AnyModel

__all__ = [
    "AnyData",
    "AnyStream",
    "Clicks",
    "Head",
    "Set",
    "Streamed",
    "batches_of",
    "check_passes",
    "drawn",
    "head_of",
    "is_sparse",
    "mean_batch_of",
    "rows_of",
    "sets_of",
    "shaped",
    "source_of",
    "training_of",
    "warn_of_bad",
]

AnyData: TypeAlias = (
    "Dataset | SparseDataset | ClickDataset | Samples | Split | ClickSplit | AnyStream"
    " | tuple[Any, ArrayLike] | str | os.PathLike[str] | Any"
)
AnyStream: TypeAlias = "streams.Stream | streams.SparseStream"


Head: TypeAlias = "tuple[Any, NDArray[Any], NDArray[np.float32] | None]"


Set: TypeAlias = "Dataset | SparseDataset | Samples | Clicks | Streamed"


class Clicks:
    """Clicks as a model that reads tables reads them.

    Attributes:
        dataset: the clicks as they were given, numbers and all.
    """

    def __init__(
        self,
        model: Graph | External,
        data: ClickDataset,
        name: str,
        dataset: ClickDataset | None = None,
    ) -> None:
        self._model, self._data = model, data
        self.dataset = data if dataset is None else dataset
        self.rows = model.rows(data, name)
        if isinstance(model, Graph):
            check_labels(model, data, name)
        self.y, self.weights, self.name = data.y, data.weights, data.name
        self.x, self.columns = data.x, data.columns

    @property
    def id_arrays(self) -> list[NDArray[Any] | None]:
        """What ids there are, and how they belong to rows."""
        if not isinstance(self._data.ids, tuple):
            return [self._data.ids]
        found: list[NDArray[Any] | None] = []
        for ids in self._data.ids:
            found += [ids.ids, ids.offsets, ids.weights] if isinstance(ids, Bags) else [ids]
        return found

    def __len__(self) -> int:
        return len(self.y)

    def standardised(self, moments: Moments) -> Clicks:
        """The same with numbers standardised by what they came to."""
        return Clicks(self._model, self._data.standardised(moments), self.name, self.dataset)

    def head(self, rows: int) -> Clicks:
        return Clicks(self._model, self._data.head(rows), self.name)


class Streamed:
    """A stream as a model reads it.

    Attributes:
        begun: what its numbers, which are standardised as they come, came to before; None: they stay as
            they are.
        fixed: by what they are standardised before they come; None: they are not.
    """

    def __init__(
        self,
        model: Model | Graph | FactorisationMachine,
        stream: streams.Stream | streams.SparseStream,
    ) -> None:
        self._stream, self.name = stream, stream.name
        self.columns = Columns.of(stream)
        self.sparse = isinstance(stream, streams.SparseStream)
        self._distinct = isinstance(model, FactorisationMachine)
        self._features: list[tuple[int, int | None]] = []
        self._users: int | None = None
        self.passes = 1
        self.begun: Moments | None = None
        self.fixed: Moments | None = None
        if isinstance(stream, streams.SparseStream):
            _check_columns(model, stream)
        elif not stream.labelled:
            raise ValueError(
                "data must have labels to be trained on; give the stream, not .unlabelled()"
            )
        else:
            self._read(model, stream)
        _check_classes(model, stream)

    def _read(self, model: Model | Graph | FactorisationMachine, stream: streams.Stream) -> None:
        _ = model.native
        if isinstance(model, Graph) and len(model.readers) > len(model.embeddings):
            raise ValueError(
                f"data must be in memory for model {model.name}, whose loss compares items; "
                "stream.read() reads it"
            )
        specs = [node.table for node in model.embeddings] if isinstance(model, Graph) else []
        lengths = [node.length for node in model.embeddings] if isinstance(model, Graph) else []
        numbers = model.id_features if isinstance(model, Graph) else ()
        check_stream(stream, model.features, specs, numbers)
        self._features = list(zip(numbers, lengths, strict=True))

    def __len__(self) -> int:
        return 0

    @property
    def sent(self) -> Any:
        """The stream, where others read it and send its rows; else None."""
        return self._stream if getattr(self._stream, "digest", None) else None

    @property
    def digest(self) -> str | None:
        """Of all rows, where these are known."""
        return None if self.sent is None else str(self.sent.digest)

    @property
    def comes_once(self) -> bool:
        """Whether others read it, and can do so once."""
        return self.sent is not None and bool(self.sent.index.once)

    @property
    def counted(self) -> int | None:
        """How many rows there are, where that is known."""
        if self.sent is None or self.comes_once:
            return None
        return int(self.sent.index.rows)

    @property
    def described(self) -> dict[str, Any]:
        """What a run that goes on has to have again."""
        from leashed.training.days import log_files  # noqa: PLC0415 (seldom asked for)

        files = [asdict(file) for file in log_files(self._stream.files)]
        return {"files": files, "order": self._stream.order}

    def open(self, epochs: float | None, threads: int, first: int = 0) -> None:
        """Rows before ``first`` have been used."""
        self._first = first
        if epochs is None:
            self.passes = 0 if self._stream.repeatable else 1
        else:
            self.passes = int(epochs)
        if self.passes > 1 and not self._stream.repeatable:
            raise ValueError(f"{self.name} can be read once; epochs must be 1, got {epochs:g}")
        if isinstance(self._stream, streams.SparseStream):
            self._opened = self._stream.open(
                self.passes, beside=threads, distinct_columns=self._distinct
            )
        else:
            self._opened = self._stream.open(self.passes, beside=threads)
        if self.begun is not None:
            self._opened.native.standardise(self.begun.which, self.begun.native)

    def moments(self, rows: int | None = None) -> Moments | None:
        """What numbers come to by which they are standardised behind so many rows that this run, and what
        it went on from, have used, by default all that were taken; None: they stay as they are.
        """
        if self.begun is None:
            return self.fixed
        return self.begun.now(self._opened.native.moments(rows))

    @property
    def used(self) -> int:
        """The rows that what it went on from had used."""
        return self._first

    @property
    def counts(self) -> streams.ReadCounts:
        return self._opened.counts

    def tell_users(self, feature: object) -> None:
        """Rows are to tell whose they are."""
        if isinstance(self._stream, streams.SparseStream):
            raise TypeError(
                f"gauc is not for {self.name}, whose sparse rows do not tell whose they are; leave it "
                "out, or read them into memory with stream.read() and give an array"
            )
        if not isinstance(feature, str):
            raise TypeError(
                "gauc must name a feature of the stream, whose rows are not known beforehand, got "
                f"{type(feature).__name__}"
            )
        self._users = self._stream.single(feature)

    @property
    def rows(self) -> _core.StreamedRows:
        return self._as_read(self._opened.native)

    def head(self, rows: int) -> _core.StreamedRows | None:
        """The first rows that are to be trained on, again and again; they come then all the same.
        None: there is none, or reading it fails.
        """
        native = self._opened.native
        native.start(self._first)
        found = native.head(rows)
        return None if found is None else self._as_read(found)

    def _as_read(self, native: _core.RowStream) -> _core.StreamedRows:
        return _core.StreamedRows(native, self._features, self._users)

    def end(self) -> None:
        """Nothing is read any more."""
        self._opened.native.end()

    def lost(self) -> int:
        """How many rows are gone where it ends before any was trained on."""
        self.end()
        return 0 if self._stream.repeatable else self.counts.rows


def _check_columns(
    model: Model | Graph | FactorisationMachine, stream: streams.SparseStream
) -> None:
    _ = model.sparse
    if stream.features != model.features:
        raise ValueError(
            f"data has {stream.features} features, but the model takes {model.features}"
        )
    if isinstance(model, FactorisationMachine) and not stream.has_fields(model.fields):
        raise ValueError(
            f"data has columns of other fields than model {model.name}; make both of the same fields"
        )


def _check_classes(
    model: Model | Graph | FactorisationMachine, stream: streams.Stream | streams.SparseStream
) -> None:
    if getattr(model, "heads", 0) or getattr(stream, "heads", ()):
        check_labels(model, stream, "data")
        return
    if (model.classes == 0) != (stream.classes == 0):
        made = (
            "the stream's classes=0 and classes=2"
            if isinstance(stream, streams.SparseStream)
            else "stream.Target() and stream.Label()"
        )
        raise ValueError(
            f"data has {'numbers' if stream.classes == 0 else 'labels'}, but the loss {model.loss} "
            f"takes {'numbers' if model.classes == 0 else 'labels'}; {made} make the one and the "
            "other"
        )
    if stream.classes > model.classes:
        raise ValueError(
            f"data has labels up to {stream.classes - 1}, but the model knows {model.classes} classes"
        )


def check_passes(until: Until) -> None:
    """Of a stream."""
    if until.epochs is not None and until.epochs != int(until.epochs):
        raise ValueError(f"until.epochs must be whole for streams, got {until.epochs:g}")


def head_of(data: Set, rows: int | None = None) -> Head:
    """The examples, or the first so many, what they are to give and their weights, for the native
    core.
    """
    if isinstance(data, Streamed):
        return data.rows if rows is None else data.head(rows), np.empty(0, np.int32), None
    if isinstance(data, (SparseDataset, Clicks)):
        part = data if rows is None or rows >= len(data) else data.head(rows)
        return part.rows, part.y, part.weights
    weights = None if isinstance(data, Samples) else data.weights
    return data.x[:rows], data.y[:rows], None if weights is None else weights[:rows]


def training_of(
    source: Any,
    theta: NDArray[np.float32],
    examples: Head,
    validation: Head | None = None,
    **given: Any,
) -> _core.Training:
    """For the core, of what ``head_of`` gives of the training set and of the validation set."""
    x, y, weights = examples
    tested = (None, None, None) if validation is None else validation
    return _core.Training(
        source=source,
        theta=theta,
        x=x,
        y=y,
        weights=weights,
        validation_x=tested[0],
        validation_y=tested[1],
        **given,
    )


def rows_of(
    model: AnyModel,
    data: Any,
    validation: Any,
    *,
    label: Labels | None,
    columns: Any,
    bad: str | None,
    shuffle: int | None,
    seed: int,
) -> tuple[Any, Any]:
    """Of a table or the path of one its rows: of files a stream where the model reads ids, else in
    memory. Other data as they are.

    Raises:
        ValueError: one of these arguments is given for data that are no table, neither ``label`` nor
            ``columns`` for one, or ``shuffle`` for rows in memory; and what ``stream.table`` raises.
    """
    if not is_table(data):
        given = {"label": label, "columns": columns, "bad": bad, "shuffle": shuffle}
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"{name} goes with data that are a DataFrame, another table or a path; "
                    + _SAID_BY.get(name, "{} says itself what its columns are").format(
                        type(data).__name__
                    )
                )
        if is_table(validation):
            raise TypeError(
                "validation must be of what data are, a table or a path only where they are"
            )
        return data, validation
    of_ids = isinstance(model, Graph) and bool(model.tables or model.made_by)
    if not of_ids and not isinstance(model, (Graph, Model)):
        raise TypeError(
            f"data must be read for model {getattr(model, 'name', model)}, which takes no table: "
            "leashed.stream.table(data, label=...).read()"
        )
    target = None
    if isinstance(model, Graph) and columns is None:
        # Of heads without names labels of any name.
        named = isinstance(getattr(model.made_by, "target", None), tuple)
        target = "click" if model.heads and not named else model.target
    streamed = of_ids and isinstance(data, (str, os.PathLike))
    if shuffle is not None and not streamed:
        raise ValueError(
            "shuffle goes with the path of files that are read while a model of ids is trained; rows in "
            "memory are drawn in an order of the seed anyway, so leave it out"
        )
    how: dict[str, Any] = {"bad": "fail" if bad is None else bad}
    order: dict[str, Any] = {} if shuffle is None else {"shuffle": shuffle, "seed": seed}
    rows = streams.table(data, columns, label=label, ids=of_ids, target=target, **how, **order)
    if is_table(validation):
        validation = _read(streams.table(validation, rows.schema, **how))
    return rows if streamed else _read(rows), validation


_SAID_BY = {
    "bad": "streams are made with it, as leashed.stream.parquet(path, bad=...)",
    "shuffle": "streams are made with it, as leashed.stream.parquet(path, shuffle=...), and rows in memory "
    "are drawn in an order of the seed anyway",
}


def _read(rows: streams.Stream) -> Any:
    """In memory; which rows were left out is said."""
    data, counts = rows.read_counted()
    warn_of_bad(rows.name, counts)
    return data


def warn_of_bad(name: str, counts: streams.ReadCounts) -> None:
    """Where rows were left out."""
    if counts.bad:
        first = counts.first_bad[0]
        warn(
            f"{counts.bad:,} of {counts.rows + counts.bad:,} rows of {name} are left out, the first of "
            f"them {first.number:,} of {first.file}: {first.reason}"
        )


def shaped(model: AnyModel, data: Any) -> AnyModel:
    """The model for the data's shape, where it follows from it."""
    if not isinstance(model, Graph):
        return model
    return model.shaped(data.train if isinstance(data, (Split, ClickSplit)) else data)


def sets_of(
    model: AnyModel, data: Any, validation: Any, known: Columns = UNKNOWN
) -> tuple[Set, Set | None]:
    """The training and validation sets, as ``model`` reads them, of the same columns in the order in
    which they are known, or in that of data.
    """
    data = arrange(known, data)
    if validation is not None:
        first = data[0] if isinstance(data, tuple) and data else data
        validation = arrange(columns_of(model, first), validation, "validation")
    train_set, test_set = _sets_of(model, data, validation)
    if test_set is not None:
        known = columns_of(model, train_set)
        known.agreed(columns_of(model, test_set), "validation", "of data")
    return train_set, test_set


def _sets_of(model: AnyModel, data: Any, validation: Any) -> tuple[Set, Set | None]:
    if isinstance(data, (streams.Stream, streams.SparseStream)):
        return _streaming_sets(model, data, validation)
    if isinstance(model, (Graph, External)) and model.tables:
        if isinstance(data, ClickSplit):
            data, validation = data.train, data.test if validation is None else validation
        return (
            Clicks(model, data, "data"),
            None if validation is None else Clicks(model, validation, "validation"),
        )
    if isinstance(model, External):
        if isinstance(data, Split):
            data, validation = data.train, data.test if validation is None else validation
        checked = None if validation is None else model.samples("validation", validation)
        return model.samples("data", data), checked
    if not isinstance(model, (Model, FactorisationMachine, Graph)):
        raise TypeError(f"model must come from leashed.models, got {type(model).__name__}")
    data, validation = _datasets(data, validation)
    check_fits(model, data, "data")
    if validation is not None:
        _check_kinds(validation, sparse=isinstance(data, SparseDataset))
        check_fits(model, validation, "validation")
    return data, validation


def _streaming_sets(
    model: AnyModel, data: streams.Stream | streams.SparseStream, validation: Any
) -> tuple[Set, Set | None]:
    if not isinstance(model, (Model, Graph, FactorisationMachine)):
        raise TypeError(
            "data must be in memory for external models; stream.read() reads it, got "
            f"{type(model).__name__}"
        )
    if isinstance(validation, (streams.Stream, streams.SparseStream)):
        raise TypeError("validation must be in memory; stream.read() reads it")
    validation = _of_arrays(validation)
    if validation is None:
        return Streamed(model, data), None
    if isinstance(model, Graph) and model.tables:
        return Streamed(model, data), Clicks(model, validation, "validation")
    streamed = Streamed(model, data)
    _check_kinds(validation, sparse=streamed.sparse)
    check_fits(model, validation, "validation")
    return streamed, validation


def _check_kinds(validation: object, *, sparse: bool) -> None:
    if isinstance(validation, SparseDataset) != sparse:
        raise TypeError("validation must be sparse where data is, and dense where it is dense")


def _datasets(
    data: Any, validation: Any
) -> tuple[Dataset | SparseDataset, Dataset | SparseDataset | None]:
    data, validation = _of_arrays(data), _of_arrays(validation)
    if validation is not None and not isinstance(validation, (Dataset, SparseDataset)):
        raise TypeError(
            "validation must be a Dataset, a SparseDataset or a pair of arrays, got "
            f"{type(validation).__name__}"
        )
    if isinstance(data, Split):
        return data.train, data.test if validation is None else validation
    if not isinstance(data, (Dataset, SparseDataset)):
        raise TypeError(
            "data must be a Dataset, a SparseDataset, a Split or a pair of arrays, or a Stream, got "
            f"{type(data).__name__}; leashed.datasets and leashed.stream read files"
        )
    return data, validation


def _of_arrays(given: Any) -> Any:
    """The data set that a pair of arrays is; whatever else is given as it is."""
    if not isinstance(given, tuple) or isinstance(given, Split) or len(given) != 2:
        return given
    return SparseDataset.from_csr(*given) if is_csr(given[0]) else Dataset.from_arrays(*given)


def is_sparse(data: Set) -> bool:
    """Whether its rows are."""
    return isinstance(data, SparseDataset) or (isinstance(data, Streamed) and data.sparse)


def source_of(model: AnyModel, data: Set) -> _core.GradientSource:
    """The model as the core has it."""
    if is_sparse(data) and not isinstance(model, External):
        return model.sparse
    return model.native


def batches_of(data: Set, batch_size: int, epochs: int) -> int:
    """How many batches so many epochs are, none of which reaches from one into the next: of sparse
    rows, and of all in ``train_passes``.
    """
    return epochs * batches_in(1, len(data), batch_size)


def mean_batch_of(data: Set, batch_size: int, mode: Mode | None) -> float:
    """Examples of a batch: those of a pass over sparse rows end with it, but by a mode."""
    if isinstance(data, SparseDataset) and mode is None:
        return len(data) / batches_of(data, batch_size, 1)
    return float(batch_size)


def drawn(data: Set, batch_size: int) -> int:
    """The examples of an epoch, with those that the last batch of a pass over sparse rows, which may
    be smaller than the others, would have to be as large.
    """
    if isinstance(data, SparseDataset):
        return batches_of(data, batch_size, 1) * batch_size
    return len(data)
