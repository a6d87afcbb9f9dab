"""Models, their parameters and what else a run has reached, in files.

The format is safetensors (8-byte length, JSON header, raw tensors), with the architecture (of an
external model its description), the run and a checksum of everything in the header's metadata.
Nothing is pickled.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed.base import atomic, checks
from leashed.datasets.columns import Columns
from leashed.files import folders
from leashed.models import _columns, _graph_json
from leashed.models._reads import TableSpec
from leashed.models.external import Description, External
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import Graph
from leashed.models.layers import LAYERS
from leashed.models.network import Model
from leashed.models.tables import Table
from leashed.models.tables import check as check_tables

__all__ = ["load", "load_statistics", "save"]

_FORMAT = "leashed.model"
# Of the format; 6 had no normalisation, 5 no external models that read tables and no field-aware factorisation machines,
# 4 no graphs, 3 no factorisation machines, 2 no external models, 1 no checksum.
_VERSION = 7
_KINDS = {kind.__name__: kind for kind in LAYERS}
_TYPES = {"F32": "<f4", "U64": "<u8"}  # U64: of what a run has beside parameters
_MAX_HEADER = 100_000_000
STATISTICS = "statistics"  # the tensor of a model's running ones
_MOST_DESCRIBED = _MAX_HEADER - 1_000_000  # the rest is for tensors' places and the run's settings

BuiltIn = Model | FactorisationMachine | Graph
AnyModel = TypeVar("AnyModel", Model, FactorisationMachine, Graph, External)


def save(
    path: str | os.PathLike[str],
    model: BuiltIn | External,
    parameters: ArrayLike,
    tables: Mapping[str, Table] | None = None,
    statistics: ArrayLike | None = None,
) -> None:
    """Write a model and its parameters [d] to ``path``, atomically.

    A reader finds the old file or the whole new one. Of an external model its description is
    written: name, dimension, features, y, variables and ids.

    Args:
        path: the file; with ``tables`` a folder, which is made where it is not there.
        model: from :mod:`leashed.models`.
        parameters: [d].
        tables: by name, all that the model reads: their rows and states are written too. Of a model
            that reads none they are left out.
        statistics: float32 [s], as ``TrainResult.statistics``, of a model with ``BatchNorm`` or
            ``DataNorm``; ``load_statistics`` reads them.

    Raises:
        TypeError, ValueError: ``parameters``, ``tables`` or ``statistics`` does not fit the model,
            tables are missing, or a file cannot hold the model's description.
        OSError: the file cannot be written, or the folder has something else in it.
    """
    _require_model(model)
    tensors = parts(model, checks.vector("parameters", parameters, model.dimension))
    if statistics is not None and np.size(statistics):
        wanted = model.statistics if isinstance(model, Graph) else 0
        if not wanted:
            raise ValueError(f"statistics must be left out, since model {model.name} has none")
        tensors[STATISTICS] = checks.vector("statistics", statistics, wanted)
    told = columns_told(_columns.kept(parameters))
    if tables is None and isinstance(model, (Graph, External)) and model.tables:
        raise ValueError(
            f"tables must be given, since model {model.name} reads their rows: leashed.save(folder, "
            "model, result.parameters, result.tables, result.statistics)"
        )
    if tables is None:
        write(path, model, tensors, told)
        return
    folder, given = Path(path), _tables_of(model, tables)
    folders.prepare(folder)
    folders.write(folder, given, lambda file: write(file, model, tensors, told), exact=True)


def _require_model(model: object) -> None:
    if not isinstance(model, (Model, FactorisationMachine, Graph, External)):
        raise TypeError(f"model must come from leashed.models, got {type(model).__name__}")


def _tables_of(model: object, tables: Mapping[str, Table]) -> dict[str, Table]:
    """Those of a model, in its order."""
    described = model.tables if isinstance(model, (Graph, External)) else ()
    check_tables(described, tables)
    return {one.name: tables[one.name] for one in described}


def shapes(model: BuiltIn | External | Description) -> dict[str, tuple[int, ...]]:
    """Of the tensors that parameters are made of, by name, in order."""
    if isinstance(model, FactorisationMachine):
        return model.shapes
    if isinstance(model, (Model, Graph)):
        return {block.name: tuple(block.shape) for block in model.native.parameters}
    return {"parameters": (model.dimension,)}


def parts(
    model: BuiltIn | External, vector: NDArray[np.float32], prefix: str = ""
) -> dict[str, NDArray[np.float32]]:
    """The tensors, by name, of a vector [d]."""
    of = shapes(model)
    ends = np.cumsum([math.prod(shape) for shape in of.values()])
    pieces = np.split(vector, ends[:-1])
    return {
        prefix + name: piece.reshape(shape)
        for (name, shape), piece in zip(of.items(), pieces, strict=True)
    }


def whole(
    model: BuiltIn | External | Description,
    tensors: dict[str, NDArray[np.float32]],
    prefix: str = "",
) -> NDArray[np.float32]:
    """The vector [d] of what ``parts`` gave."""
    return np.concatenate([tensors[prefix + name].ravel() for name in shapes(model)])


def write(
    path: str | os.PathLike[str],
    model: BuiltIn | External,
    tensors: Mapping[str, NDArray[Any]],
    metadata: dict[str, str] | None = None,
) -> None:
    """Write a model, float32 or uint64 tensors by name, and further metadata to ``path``, atomically."""
    header: dict[str, Any] = {
        "__metadata__": {
            **description(model),
            **(metadata or {}),
        }
    }
    offset = 0
    kinds = ["U64" if tensor.dtype == np.uint64 else "F32" for tensor in tensors.values()]
    contents = [
        np.ascontiguousarray(tensor, _TYPES[kind])
        for kind, tensor in zip(kinds, tensors.values(), strict=True)
    ]
    for name, kind, part in zip(tensors, kinds, contents, strict=True):
        header[name] = {
            "dtype": kind,
            "shape": list(part.shape),
            "data_offsets": [offset, offset + part.nbytes],
        }
        offset += part.nbytes
    data = [part.reshape(-1).view(np.uint8).data for part in contents]
    header["__metadata__"]["checksum"] = checksum(header, data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    atomic.write(Path(path), [len(text).to_bytes(8, "little") + text, *data])


def columns_told(columns: Columns) -> dict[str, str]:
    """What a file's metadata tell of the columns that parameters were trained on."""
    told = columns.to_json()
    return {"columns": json.dumps(told)} if told else {}


def columns_in(metadata: Mapping[str, str]) -> Columns:
    """And what they have told; of files written before there were any, nothing."""
    return Columns.from_json(json.loads(metadata.get("columns", "{}")))


def description(model: BuiltIn | External) -> dict[str, str]:
    """What files hold of a model beside parameters; ``described`` reads it. ValueError where it is
    more than they can hold.
    """
    told = {
        "format": _FORMAT,
        "version": str(_VERSION),
        "name": model.name,
        **_described(model),
    }
    if (size := sum(map(len, told.values()))) > _MOST_DESCRIBED:
        raise ValueError(
            f"model {model.name} cannot be in a file: to describe it (of a field-aware machine, the "
            f"field of each column) takes {size:,} bytes of a header of {_MAX_HEADER:,}; hash its "
            "columns to fewer"
        )
    return told


def _described(model: BuiltIn | External) -> dict[str, str]:
    """All of a model's metadata but its name."""
    if isinstance(model, External):
        fields = asdict(model.description)
        del fields["name"]
        if not fields["ids"]:
            del fields["ids"]
        return {"external": json.dumps(fields)}
    if isinstance(model, FactorisationMachine):
        settings = asdict(model)
        del settings["name"]
        return {"factorisation": json.dumps(settings, separators=(",", ":"))}
    if isinstance(model, Graph):
        return {
            "loss": model.loss,
            "l2": json.dumps(model.l2),
            "graph": json.dumps(_graph_json.to_json(model)),
        }
    layers = [{"kind": type(layer).__name__, **asdict(layer)} for layer in model.layers]
    return {
        "input_shape": json.dumps(model.input_shape),
        "loss": model.loss,
        "l2": json.dumps(model.l2),
        "layers": json.dumps(layers),
    }


def checksum(header: dict[str, Any], data: Iterable[bytes | memoryview]) -> str:
    """SHA-256 of a header, its own checksum left out, and of the tensors' bytes."""
    from hashlib import sha256  # noqa: PLC0415 (seldom asked for)

    metadata = {k: v for k, v in header["__metadata__"].items() if k != "checksum"}
    digest = sha256(json.dumps({**header, "__metadata__": metadata}, sort_keys=True).encode())
    for part in data:
        digest.update(part)
    return digest.hexdigest()


@overload
def load(
    path: str | os.PathLike[str], model: None = None, tables: Mapping[str, Table] | None = None
) -> tuple[BuiltIn, NDArray[np.float32]]: ...


@overload
def load(
    path: str | os.PathLike[str], model: AnyModel, tables: Mapping[str, Table] | None = None
) -> tuple[AnyModel, NDArray[np.float32]]: ...


def load(
    path: str | os.PathLike[str],
    model: BuiltIn | External | None = None,
    tables: Mapping[str, Table] | None = None,
) -> tuple[BuiltIn | External, NDArray[np.float32]]:
    """Read what ``save`` or a checkpoint holds: the model and its parameters, float32 [d].

    Args:
        path: the file; of a model with tables the folder, or the file of its parameters.
        model: what the file must be of. An external model has to be given, since no file holds its
            gradient; layers are in the file.
        tables: by name, all that the model reads: get the folder's rows and states in place of what
            is there. ``leashed.tables.of(model.tables, ...)`` makes new ones, and so does
            ``leashed.restore(path)`` by itself. Nobody may use them meanwhile. A folder is not read
            without them, but the file of its parameters.

    Raises:
        FileNotFoundError: there is no such file; IsADirectoryError: it is a folder without a model.
        ValueError: the file is truncated, altered, of another kind, of a newer version, of another
            model or other tables than those given, or of an external model and none was given; the
            message has its description. Or it is a folder, and no tables are given. No table has
            changed.
        OSError: of a folder in which a run writes checkpoints, the next one came each time before one
            was read; tables may have changed.
    """
    if tables is None and not folders.is_one(path):
        return _loaded(path, model, None, None)
    return folders.read(path, lambda folder: _loaded(path, model, tables, folder))


def _loaded(
    path: str | os.PathLike[str],
    model: BuiltIn | External | None,
    tables: Mapping[str, Table] | None,
    folder: folders.Opened | None,
) -> tuple[BuiltIn | External, NDArray[np.float32]]:
    found, tensors, metadata = read(path if folder is None else folder.model)
    theta = whole(found, tensors)
    _columns.keep(theta, columns_in(metadata))
    if model is not None:
        _require_model(model)
        if wrong := mismatch(found, model):
            raise ValueError(f"cannot load {path}: {wrong}")
    elif isinstance(found, Description):
        raise ValueError(
            f"cannot load {path}: its model is external, and no file holds a gradient; give the "
            f"model: leashed.load(path, {found})"
        )
    else:
        model = found
    if folder is not None and tables is None and folder.described_tables:
        raise ValueError(
            f"cannot load {path}: its model {model.name} reads tables, whose rows are there too; give "
            "tables=leashed.tables.of(model.tables, rule=rule), which get them, or "
            "leashed.restore(path) makes model, parameters and tables"
        )
    if folder is not None and tables is not None:
        given = _tables_of(model, tables)
        folder.require(given)
        folder.check()
        folder.load(given)
    return model, theta


def load_statistics(path: str | os.PathLike[str]) -> NDArray[np.float32]:
    """What a model with ``BatchNorm`` or ``DataNorm`` normalises by, float32 [s], as it is in a file
    or folder of ``save`` or of a checkpoint.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, as for ``load``, or holds none.
    """
    _, tensors, _ = read_model(path)
    if STATISTICS not in tensors:
        raise ValueError(
            f"{path} holds no statistics; its model has none, or it was saved without them"
        )
    return tensors[STATISTICS]


def mismatch(found: BuiltIn | Description, model: BuiltIn | External) -> str | None:
    """What speaks against a file of ``found`` where ``model`` is wanted, and the remedy."""
    here = model.description if isinstance(model, External) else model
    if found == here or (isinstance(found, Graph) and _as_graph(found) == _as_graph(model)):
        return None
    if not isinstance(found, Description):
        remedy = "use the model that leashed.restore(path) gives"
    elif isinstance(here, Description):
        was, now = vars(found), vars(here)
        changed = [
            f"{key} was {was[key]!r} and is {now[key]!r}" for key in was if was[key] != now[key]
        ]
        return f"of the external model {', '.join(changed)}; give the same"
    else:
        remedy = f"use {found}"
    return f"it is of another model ({found.name}, d = {found.dimension:,}); {remedy}"


def _as_graph(model: BuiltIn | External) -> dict[str, str] | None:
    """What makes two graphs the same."""
    return {"name": model.name, **_described(model)} if isinstance(model, Graph) else None


def read(
    path: str | os.PathLike[str],
) -> tuple[BuiltIn | Description, dict[str, NDArray[np.float32]], dict[str, str]]:
    """Read what ``write`` wrote: the model, tensors by name, among them the model's parameters, and
    the metadata. Parameters are finite; of what a run has beside them infinite sums may be. Raises
    what ``load`` does of the file itself.
    """
    file = Path(path)
    if file.is_dir():
        inside = file / "state"  # of what ``continual`` keeps
        hint = f"name {inside}" if folders.is_one(inside) else "name what was saved"
        raise IsADirectoryError(errno.EISDIR, f"has no model itself; {hint}", str(file))
    content = file.read_bytes()
    try:
        header, data = _split(content)
        metadata = header.pop("__metadata__")
        model = described(metadata)
        tensors = _tensors(model, header, data)
        if metadata["version"] != "1":
            expected = checksum({**header, "__metadata__": metadata}, [data])
            if metadata["checksum"] != expected:
                raise ValueError("its checksum is not that of its content; use an unaltered copy")
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        reason = f"its header lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"cannot load {path}: {reason}") from error
    return model, tensors, metadata


def read_model(
    path: str | os.PathLike[str],
) -> tuple[BuiltIn | Description, dict[str, NDArray[np.float32]], dict[str, str]]:
    """As ``read``; of a folder with tables the model's file."""
    if folders.is_one(path):
        return folders.read(path, lambda folder: read(folder.model))
    return read(path)


def _split(content: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(len(content) - 8, _MAX_HEADER):
        raise ValueError("it is truncated or not a safetensors file")
    header = json.loads(content[8 : 8 + length])
    if not (isinstance(header, dict) and isinstance(header.get("__metadata__"), dict)):
        raise ValueError("its header lacks '__metadata__'")  # noqa: TRY004 (a fault of the file)
    return header, content[8 + length :]


def described(metadata: Mapping[str, str]) -> BuiltIn | Description:
    """The model that ``description`` was given; KeyError, TypeError or ValueError if none was."""
    if metadata["format"] != _FORMAT:
        raise ValueError("it holds no leashed model")
    if not 1 <= int(metadata["version"]) <= _VERSION:
        raise ValueError(
            f"its format version is {metadata['version']}, this release reads 1 to {_VERSION}; "
            "upgrade leashed"
        )
    if "external" in metadata:
        settings = json.loads(metadata["external"])
        ids = tuple(TableSpec(**fields) for fields in settings.pop("ids", ()))
        return Description(metadata["name"], ids=ids, **settings)
    if "factorisation" in metadata:
        settings = json.loads(metadata["factorisation"])
        return FactorisationMachine(name=metadata["name"], **settings)
    if "graph" in metadata:
        graph, l2 = json.loads(metadata["graph"]), json.loads(metadata["l2"])
        return _graph_json.from_json(graph, metadata["name"], metadata["loss"], l2)
    layers = []
    for fields in json.loads(metadata["layers"]):
        layers.append(_KINDS[fields.pop("kind")](**fields))
    return Model(
        tuple(json.loads(metadata["input_shape"])),
        tuple(layers),
        metadata["name"],
        metadata.get("loss", "softmax"),  # the one that models of version 1 had
        json.loads(metadata.get("l2", "0")),
    )


def _tensors(
    model: BuiltIn | Description, header: dict[str, Any], data: bytes
) -> dict[str, NDArray[np.float32]]:
    tensors = {}
    spans = []
    for name, tensor in header.items():
        shape, (begin, end) = tensor["shape"], tensor["data_offsets"]
        if tensor["dtype"] not in _TYPES:
            raise ValueError(f"{name} is {tensor['dtype']}, leashed keeps F32 and U64")
        kind = np.dtype(_TYPES[tensor["dtype"]])
        size = kind.itemsize * math.prod(shape)
        if not 0 <= begin <= end <= len(data) or end - begin != size:
            raise ValueError(f"{name} has {end - begin} bytes, its shape needs {size}")
        spans.append((begin, end))
        tensors[name] = (
            np.frombuffer(data[begin:end], kind).astype(kind.newbyteorder("=")).reshape(shape)
        )
    for name, shape in shapes(model).items():
        if tensors[name].dtype != np.float32:
            raise ValueError(f"{name} is U64, the model needs F32")
        if not np.isfinite(tensors[name]).all():
            raise ValueError(f"{name} holds values that are not finite")
        if tensors[name].shape != shape:
            raise ValueError(
                f"{name} is {list(tensors[name].shape)}, the model needs {list(shape)}"
            )
    spans.sort()
    ends = [end for _, end in spans]
    if [begin for begin, _ in spans] != [0, *ends[:-1]] or ends[-1] != len(data):
        raise ValueError("its tensors overlap or leave gaps")
    return tensors
