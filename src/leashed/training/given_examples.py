"""Examples in whatever form people have them, as a model that was trained takes them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from leashed import _core, stream
from leashed.datasets import ClickDataset, Dataset, SparseDataset
from leashed.datasets.columns import arrange
from leashed.datasets.fields import Schema
from leashed.datasets.sparse import is_csr
from leashed.files.checkpoint import Loaded
from leashed.models.external import External
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import Graph
from leashed.stream.batches import arrow
from leashed.training.problems import files, sparse
from leashed.training.problems.files import parts_of as parts_of_stream
from leashed.training.problems.problem import ProblemWords
from leashed.training.spelled import data_of

__all__ = ["by_schema", "of_files", "parts_of"]


def parts_of(found: Loaded[Any], data: Any, *, labels: bool = True) -> Iterator[Any]:
    """Examples part after part, so that no length needs memory, each as ``found.model`` takes it.

    Args:
        found: what was trained.
        data: as ``Trained`` tells.
        labels: whether they have to be there.

    Raises:
        OSError: a file cannot be read.
        TypeError, ValueError: they are of no such form, or lack a column; the message names it.
    """
    if isinstance(data, (str, os.PathLike)):
        return of_files(found, os.fspath(data), labels=labels)
    if isinstance(data, stream.SparseStream):
        return parts_of_stream(data, None)
    if isinstance(data, stream.Stream):
        if labels and not data.labelled:
            raise ValueError(
                "data must have labels to be judged by; give the stream, not .unlabelled()"
            )
        rows = _arranged(found, data)
        return parts_of_stream(rows if labels else rows.unlabelled(), None)
    if isinstance(data, Mapping):
        data = arrow("a dict of columns").table(dict(data))
    if hasattr(data, "__arrow_c_stream__"):
        if (columns := _schema(found)) is not None:
            rows = stream.table(data, columns.columns)
            rows = rows if labels else rows.unlabelled()
            return (_arranged(found, part) for part in parts_of_stream(rows, None))
        if not hasattr(data, "__array__"):
            data = arrow("a table").table(data)
    return iter([_in_memory(found, data, labels=labels)])


def _arranged(found: Loaded[Any], data: Any) -> Any:
    known = found.columns.read(getattr(found.model, "id_features", ()))
    return arrange(known, data)


def _in_memory(found: Loaded[Any], data: Any, *, labels: bool) -> Any:
    model: Any = found.model
    if isinstance(data, (Dataset, SparseDataset, ClickDataset)):
        return data if isinstance(data, SparseDataset) else _arranged(found, data)
    if isinstance(model, External):
        return data
    if isinstance(model, Graph) and model.readers:
        raise TypeError(
            f"data must be a ClickDataset for model {model.name}, a stream, a data frame or a path, got "
            f"{type(data).__name__}; what was trained on arrays takes ClickDataset.from_arrays(x, ids, y)"
        )
    if labels:
        if not isinstance(data, tuple) or len(data) != 2 or hasattr(data, "_fields"):
            raise TypeError(
                "data must be a Dataset or a pair (x, y) to evaluate, a stream or a path, got "
                f"{type(data).__name__}"
            )
        return _with_targets(model, *_arranged(found, data))
    if not is_csr(data):
        return _arranged(found, data)
    if not data.shape[0]:
        raise _core.NoRows("data has no row; give one at least")
    return _with_targets(model, data, np.zeros((data.shape[0], *_several(model))))


def _several(model: Any) -> tuple[int, ...]:
    """(k,) of a model of k numbers a row, where that is not one."""
    outputs = getattr(model, "outputs", 1)
    return (outputs,) if model.classes == 0 and outputs > 1 else ()


def _with_targets(model: Any, x: Any, y: Any) -> Dataset | SparseDataset:
    if getattr(model, "heads", 0) and not is_csr(x):
        return Dataset.from_arrays(x, y)
    if model.classes == 0:
        return (SparseDataset if is_csr(x) else Dataset).regression(x, y)
    made = SparseDataset.from_csr if is_csr(x) else Dataset.from_arrays
    labels = np.asarray(y)
    known = labels.dtype.kind in "biuf" and not (labels >= model.classes).any()
    return made(x, y, model.classes if known else None)  # what is unknown the model itself refuses


def _schema(found: Loaded[Any]) -> Schema | None:
    """What the columns of a frame become; None: they are numbers, which NumPy reads."""
    known = found.columns
    if known.schema is None:
        return None
    unread = {*known.schema.ids} - {
        *(known.read(getattr(found.model, "id_features", ())).ids or ())
    }
    return Schema({n: c for n, c in known.schema.columns.items() if n not in unread})


def of_files(
    found: Loaded[Any],
    path: str | None,
    words: ProblemWords | None = None,
    most: int | None = None,
    *,
    labels: bool = True,
) -> Iterator[Any]:
    """The rows of files, or the first so many, part after part.

    Args:
        found: what was trained.
        path: of a file, a pattern, or a folder of MNIST's, whose test set is taken; None: the test set
            of the digits that ``leashed train`` has by default.
        words: how they are read. Default: as those that the model was trained on.
        most: rows at most.
        labels: whether they have to be there.
    """
    model: Any = found.model
    words = ProblemWords() if words is None else words
    if path is not None and by_schema(found):
        rows = _rows(found, path, words)
        return parts_of_stream(_arranged(found, rows if labels else rows.unlabelled()), most)
    if path is not None and (
        isinstance(model, FactorisationMachine) or not sparse.named(path).is_dir()
    ):
        return _sparse(found, path, words, most)
    data = data_of(path).test
    return iter([data if most is None else data.head(most)])


def by_schema(found: Loaded[Any]) -> bool:
    """Whether the model reads files by a schema, its own or Criteo's: of clicks, and those of numbers that
    were trained so, but for machines, which take sparse rows alone.
    """
    model, schema = found.model, found.columns.schema
    if isinstance(model, FactorisationMachine):
        return False
    of_numbers = schema is not None and not schema.ids
    return (isinstance(model, Graph) and bool(model.readers)) or of_numbers


def _rows(found: Loaded[Any], path: str, words: ProblemWords) -> stream.Stream:
    rows = files.stream_of(path, words, found.columns.schema)
    of_ids = isinstance(found.model, Graph) and bool(found.model.readers)
    if of_ids and not rows.features:
        raise TypeError(f"{path} has no ids; the schema must name some for a model of clicks")
    return rows


def _sparse(
    found: Loaded[Any], path: str, words: ProblemWords, most: int | None
) -> Iterator[SparseDataset]:
    model: Any = found.model
    file = sparse.named(path)
    fmt = sparse.format_of(file, words.format, words.schema)
    if fmt in ("criteo", "csv"):
        return sparse.hashed_parts(file, words, model.features, most)
    _ = model.sparse
    fields = model.fields if isinstance(model, FactorisationMachine) else None
    rows = sparse.stream_of(str(file), fmt, words, model.features, model.classes, fields)
    return parts_of_stream(rows, most)
