"""Trained models for programs that serve them without leashed: ONNX, safetensors, Arrow.

``onnx`` writes a whole model, the rows of its tables with it; ``tables`` writes rows alone, for
services that look them up themselves. Both need the extra ``leashed[export]``.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed.base import atomic, checks
from leashed.base.warning import warn
from leashed.datasets.columns import UNKNOWN, Columns
from leashed.files import _onnx_graph, model_file
from leashed.files._onnx_graph import GraphOperations, Net, Rows
from leashed.files.model_file import BuiltIn
from leashed.models._columns import kept
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import Choosing, Graph
from leashed.models.network import Model
from leashed.models.tables import Table
from leashed.models.tables import check as check_tables

__all__ = ["onnx", "tables"]

_ASIDE = 2**30  # bytes, above which constants lie in a file beside: protobuf ends at 2^31
_LARGE = 2**10  # bytes of a constant that lies there
_PAGE = 2**12  # bytes, at multiples of which they begin there, so that they can be mapped
_MOST_IDS = 10**8  # about 14 bytes each, which cannot lie beside
_ROWS = 2**20  # looked up at once


def _extra(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(
            f"{package} is not installed; it comes with: pip install 'leashed[export]'"
        ) from error


def onnx(
    path: str | os.PathLike[str],
    model: BuiltIn,
    parameters: ArrayLike,
    tables: Mapping[str, Table] | None = None,
    statistics: ArrayLike | None = None,
    *,
    bags: Collection[int] = (),
    columns: Columns = UNKNOWN,
) -> None:
    """Write what ``predict`` computes as an ONNX model (operators of version 17).

    Inputs, float32 or int64, for n examples:

    - of a graph ``dense`` [n, features], where it has an ``Input``; of every other model ``x``
      [n, features].
    - ``ids.F`` [n], of each feature F that is ids, one for each example; where a feature is one of
      ``bags``, or is read as a sequence, [n, m] with m ≥ 1 places, and ``lengths.F`` [n] tells how
      many of them are ids. Each counts once: weights of ids are none.

    Its one output is ``prediction`` [n, outputs], as ``predict`` gives it; of a model whose output is
    ``SampledLogits`` or ``InBatchSoftmax`` it is ``user``, the users' vectors [n, dim], and ``tables`` writes the items.
    Of several labels there is beside ``prediction`` an output [n] of each, under its name.

    A table of a fixed size is read by number; of one that grows the ids that have rows now are in
    the model, and what has none reads the value that rows begin with, or 0 where that is drawn at
    random. A model of more than 1 GiB has its large constants in a file beside, NAME.DIGEST.data,
    which has to be where it is. A reader finds the model that was there or the new one, at any
    moment: the file that the one before reads goes with the next export but one to the same path.

    Args:
        path: of the file.
        model: from :mod:`leashed.models`, but field-aware and external ones.
        parameters: [d].
        tables: by name, all that the model reads.
        statistics: [s], as ``TrainResult.statistics``, of a model that normalises.
        bags: features that have any number of ids an example; all that had when ``parameters`` were
            trained.
        columns: what the data's are called, as ``Trained.columns``: inputs have these names then, ids
            ``NAME``, and ``NAME.lengths`` where there may be any number, and numbers ``NAME`` [n], each
            as it stands in the data, of which the model makes what the schema says (a logarithm, what
            stands for NaN). Default: they have none.

    Raises:
        ImportError: onnx is not installed.
        TypeError, ValueError: an argument is wrong or does not fit the model, a feature of ``bags`` is
            missing, or the model cannot be exported; the message names the node.
        OSError: the file cannot be written.
    """
    library = _extra("onnx")
    to = Path(path)
    checks.writable(to)
    bags = _features(bags)
    if not isinstance(model, (Model, FactorisationMachine, Graph)):
        raise TypeError(f"model must be one of leashed.models but external, got {model!r}")
    theta = checks.vector("parameters", parameters, model.dimension)
    parts = model_file.parts(model, theta)
    moments = kept(parameters).moments if columns.moments is None else columns.moments
    net = Net(library, replace(_inputs(model, columns), moments=moments))
    if isinstance(model, Graph):
        _check_bags(model, kept(parameters), bags)
        found = _graph(net, model, parts, tables, statistics, bags)
    elif bags or tables or (statistics is not None and np.size(statistics)):
        raise ValueError(
            f"bags, tables and statistics go with graphs, which {model.name} is not; leave them out"
        )
    elif isinstance(model, Model):
        found = _onnx_graph.of_network(net, model, parts)
    elif model.fields is not None:
        raise ValueError(f"model {model.name} is field-aware, which cannot be exported")
    else:
        found = _onnx_graph.of_factors(net, model, parts)
    sampled = isinstance(model, Graph) and isinstance(model.output, Choosing)
    if model.loss in _onnx_graph.PREDICTIONS:
        found = _onnx_graph.PREDICTIONS[model.loss](net, found)
    outputs = {"user" if sampled else "prediction": (found, ["n", None])}
    heads = columns.heads or kept(parameters).heads
    for k, head in enumerate(heads):
        outputs[head] = (net.op("Gather", found, net.whole(k), axis=1), ["n"])
    if len(outputs) != 1 + len(heads):
        raise ValueError("a label is called 'prediction', as the model's output is; rename it")
    _write(to, library, net, outputs, model.name)


def _inputs(model: BuiltIn, columns: Columns) -> Columns:
    """What inputs are called, if there is a name for each; of sparse rows nobody knows which is which."""
    if isinstance(model, Graph):
        columns = columns.read(model.id_features)
    elif columns.ids is not None or len(columns.numbers or ()) != model.features:
        return UNKNOWN
    return columns


def _features(bags: object) -> set[int]:
    if isinstance(bags, (str, bytes)) or not isinstance(bags, Iterable):
        raise TypeError(f"bags must hold features by number, such as [0, 3], got {bags!r}")
    return {checks.whole("bags", feature, 0) for feature in bags}


def _check_bags(model: Graph, trained: Columns, bags: set[int]) -> None:
    """ValueError where a feature had bags in training, and is to have one id an example; a warning
    where ids had weights.
    """
    reads = zip(model.readers, model.id_features, strict=True)
    sequences = {feature for node, feature in reads if getattr(node, "length", None) is not None}
    trained = trained.read(model.id_features)
    if trained.weighed:
        warn(
            f"ids of features {', '.join(map(str, trained.weighed))}, counted from 0, had weights when "
            f"model {model.name} was trained, which an ONNX model has no input for: there each id "
            "counts once"
        )
    missing = set(trained.bags) - bags - sequences
    if missing:
        raise ValueError(
            f"features {', '.join(map(str, sorted(missing)))}, counted from 0, had any number of ids "
            f"an example when model {model.name} was trained; give bags={sorted(bags | missing)}"
        )


def _graph(
    net: Net,
    model: Graph,
    parts: Mapping[str, NDArray[np.float32]],
    tables: Mapping[str, Table] | None,
    statistics: ArrayLike | None,
    bags: set[int],
) -> str:
    given = {} if tables is None and not model.readers else tables
    check_tables(model.tables, given)
    unknown = bags - set(model.id_features)
    if unknown:
        raise ValueError(
            f"bags must be features that model {model.name} reads, {sorted(set(model.id_features))}, "
            f"got {sorted(unknown)}"
        )
    running = model.running(statistics)
    by_name = {}
    for block in model.native.statistics:
        assert running is not None
        by_name[block.name] = running[block.offset : block.offset + block.size]
    assert given is not None
    used = {node.table for node in model.readers if not isinstance(node, Choosing)}
    ids = sum(
        given[node.table.name].statistics()["rows"]
        for node in model.readers
        if node.table in used and node.table.rows is None
    )
    if ids > _MOST_IDS:
        raise ValueError(
            f"tables that grow have {ids:,} ids for the features that read them, and a model of ONNX "
            f"holds {_MOST_IDS:,}; write rows with export.tables, and look them up beside"
        )
    rows = {spec: rows_of(given[spec.name]) for spec in model.tables if spec in used}
    return GraphOperations(net, model, parts, by_name, rows, bags).output()


def _write(
    path: Path, library: Any, net: Net, found: Mapping[str, tuple[str, list[Any]]], model: str
) -> None:
    """``found``: by the outputs' names what they are of, and their shapes."""
    helper, proto = library.helper, library.TensorProto
    outputs = []
    for name, (of, shape) in found.items():
        if name in net.inputs:
            raise ValueError(f"a column is called {name!r}, as the model's output is; rename it")
        net.nodes.append(helper.make_node("Identity", [of], [name]))
        outputs.append(helper.make_tensor_value_info(name, proto.FLOAT, shape))
    size = sum(array.nbytes for array in net.constants.values())
    size += sum(node.ByteSize() for node in net.nodes)  # ids are in these
    beside = _Beside(path, library, net.constants) if size > _ASIDE else None
    make = library.numpy_helper.from_array if beside is None else beside.tensor
    constants = [make(array, constant) for constant, array in net.constants.items()]
    made = helper.make_model(
        helper.make_graph(net.nodes, model, list(net.inputs.values()), outputs, constants),
        producer_name="leashed",
        ir_version=_onnx_graph.IR,
        opset_imports=[
            helper.make_opsetid("", _onnx_graph.OPSET),
            helper.make_opsetid("ai.onnx.ml", _onnx_graph.OPSET_ML),
        ],
    )
    if beside is None:
        library.checker.check_model(made)
    else:
        atomic.write(beside.path, beside.content())
    named = _named_beside(path)
    atomic.write(path, [made.SerializeToString()])
    for file in _all_beside(path):
        if file not in named and (beside is None or file != beside.path):
            file.unlink()


class _Beside:
    """The file of a model's large constants. Its name tells its content, so that another export's
    never takes its place.

    Attributes:
        path: of the file, in the folder of the model's.
    """

    def __init__(self, model: Path, library: Any, constants: Mapping[str, NDArray[Any]]) -> None:
        self._library = library
        self._places: dict[str, int] = {}
        self._large: list[NDArray[Any]] = []
        end = 0
        for name, array in constants.items():
            if array.nbytes >= _LARGE:
                self._places[name] = end
                self._large.append(array)
                end += array.nbytes + -array.nbytes % _PAGE
        digest = hashlib.sha256()
        for content in self.content():
            digest.update(content)
        self.path = model.with_name(f"{model.name}.{digest.hexdigest()[:16]}.data")

    def tensor(self, array: NDArray[Any], name: str) -> Any:
        """What the model's file has of a constant: a small one itself, of others the place."""
        if name not in self._places:
            return self._library.numpy_helper.from_array(array, name)
        helper, proto = self._library.helper, self._library.TensorProto
        of = helper.np_dtype_to_tensor_dtype(array.dtype)
        told = {
            "location": self.path.name,
            "offset": str(self._places[name]),
            "length": str(array.nbytes),
        }
        tensor = proto(name=name, data_type=of, dims=array.shape, data_location=proto.EXTERNAL)
        for key, value in told.items():
            tensor.external_data.add(key=key, value=value)
        return tensor

    def content(self) -> Iterator[bytes | memoryview]:
        """What is in it, in order."""
        for array in self._large:
            yield array.reshape(-1).view(np.uint8).data
            yield bytes(-array.nbytes % _PAGE)


def _all_beside(model: Path) -> list[Path]:
    """Files of constants of this export and of those before, also what a killed one has left."""
    ours = re.compile(rf"\.?{re.escape(model.name)}\.[0-9a-f]{{16}}\.data(\.\d+\.\d+)?")
    return [file for file in model.parent.iterdir() if ours.fullmatch(file.name)]


def _named_beside(model: Path) -> list[Path]:
    """The file that the model now there reads. It stays through one more export: whoever has opened
    the model a moment ago opens it next.
    """
    files = _all_beside(model)
    if not files or not model.exists():
        return []
    content = model.read_bytes()
    return [file for file in files if file.name.encode() in content]


def rows_of(table: Table) -> Rows:
    """A table's rows now, and those of ids without one."""
    ids = table.ids()
    if table.rows is not None:
        return Rows(_looked_up(table, ids))
    values = np.empty((len(ids) + 1, table.dim), np.float32)
    values[:-1] = _looked_up(table, ids)
    values[-1] = table.init.expected
    return Rows(values, ids)


def _looked_up(table: Table, ids: NDArray[np.int64]) -> NDArray[np.float32]:
    values = np.empty((len(ids), table.dim), np.float32)
    for begin in range(0, len(ids), _ROWS):
        values[begin : begin + _ROWS] = table.lookup(ids[begin : begin + _ROWS])
    return values


def tables(path: str | os.PathLike[str], tables: Mapping[str, Table]) -> None:
    """Write the rows of tables: to one safetensors file where ``path`` ends in ``.safetensors``, with
    tensors ``NAME.rows``, float32 [n, dim], and of tables that grow ``NAME.ids``, int64 [n], the id
    of each row, from the smallest on; else to a folder of Arrow files (IPC, needs pyarrow)
    ``NAME.arrow`` with columns ``id``, int64, and ``row``, a list of ``dim`` float32.

    Ids from 2⁶³ on are written as the negative number of their bits.

    Args:
        path: the file, or a folder, which is made where it is not there.
        tables: by name, as ``TrainResult.tables``.

    Raises:
        ImportError: safetensors or pyarrow is not installed.
        TypeError, ValueError: ``tables`` are none.
        OSError: something cannot be written.
    """
    if not isinstance(tables, Mapping) or not tables:
        raise ValueError(f"tables must be a dict of at least one table by name, got {tables!r}")
    for name, table in tables.items():
        if not isinstance(table, Table):
            raise TypeError(f"tables[{name!r}] must be a Table, got {table!r}")
    to = Path(path)
    check_tables_path(to)
    if to.suffix == ".safetensors":
        library = _extra("safetensors.numpy")
        tensors: dict[str, NDArray[Any]] = {}
        for name, table in tables.items():
            rows = rows_of(table)
            if rows.ids is not None:
                tensors[f"{name}.ids"] = rows.ids
            tensors[f"{name}.rows"] = rows.values[: _count(rows)]
        atomic.write(to, [library.save(tensors)])
        return
    _extra("pyarrow")
    to.mkdir(exist_ok=True)
    for name, table in tables.items():
        atomic.write(to / f"{name}.arrow", [_arrow(rows_of(table))])


def check_tables_path(path: Path) -> None:
    """OSError where ``tables`` could not write there."""
    if path.suffix == ".safetensors":
        checks.writable(path)
    else:
        checks.writable_folder(
            path,
            "is a file, and Arrow files take a folder; name one, or a file that ends in .safetensors",
        )


def _count(rows: Rows) -> int:
    return len(rows.values) if rows.ids is None else len(rows.ids)


def _arrow(rows: Rows) -> memoryview:
    arrow = import_module("pyarrow")
    n = _count(rows)
    ids = np.arange(n) if rows.ids is None else rows.ids
    flat = arrow.array(rows.values[:n].reshape(-1))
    columns = {
        "id": arrow.array(ids),
        "row": arrow.FixedSizeListArray.from_arrays(flat, rows.values.shape[1]),
    }
    sink = arrow.BufferOutputStream()
    made = arrow.table(columns)
    with arrow.ipc.new_file(sink, made.schema) as writer:
        writer.write_table(made)
    return memoryview(sink.getvalue())
