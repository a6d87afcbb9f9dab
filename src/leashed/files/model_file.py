"""The file that a model is kept in: what it says, written and read.

It is safetensors (8-byte length, JSON header, raw tensors), with the architecture (of an external
model its description), the run and a checksum of everything in the header's metadata. Nothing is
pickled. What other files of leashed are, by how they begin, is told where one is not such a file.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed.base import atomic
from leashed.datasets.columns import Columns
from leashed.models import _graph_json
from leashed.models._reads import TableSpec
from leashed.models.external import Description, External
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import Graph
from leashed.models.layers import LAYERS
from leashed.models.network import Model

__all__ = [
    "BEHIND",
    "LAST_UPDATES",
    "MODE",
    "STATISTICS",
    "BuiltIn",
    "Content",
    "checksum",
    "columns_told",
    "described",
    "description",
    "inside",
    "mismatch",
    "parts",
    "read",
    "shapes",
    "state",
    "whole",
    "write",
]

_FORMAT = "leashed.model"
# Of the format; 6 had no normalisation, 5 no external models that read tables and no field-aware factorisation machines,
# 4 no graphs, 3 no factorisation machines, 2 no external models, 1 no checksum.
_VERSION = 8
_KINDS = {kind.__name__: kind for kind in LAYERS}
_MAX_HEADER = 100_000_000
# Tensors beside the parameters, of which ``behind.`` stands before each name.
STATISTICS, LAST_UPDATES, BEHIND = "statistics", "last_updates", "behind."
MODE = ("mode.numbers", "mode.vectors")
_TYPES = {"F32": "<f4", "U64": "<u8"}  # U64: of what a run has beside parameters
_MOST_DESCRIBED = _MAX_HEADER - 1_000_000  # the rest is for tensors' places and the run's settings

# What ``continual`` and a cluster's run keep in their folders.
_INSIDE = ("state", "state.safetensors", "output.safetensors", "output")
# Other files that leashed writes, by how they begin: what they are, and what reads them.
_OTHERS = {
    b"lshtable": "it has rows of a table; name the folder that it lies in, or give it to Table.load",
    b"LEASHEDV": "it is a shared vector; leashed.SharedVector.attach(name) takes part in it",
    b"LSHT": "it is the record of a run; leashed.replay(path) makes the run again",
    b"\x93NUMPY": "it has arrays of NumPy's, as a sync server's snapshot has; numpy.load reads it",
    b"{": "it is JSON; leashed.TrainResult.from_json reads a result's, and a manifest or a journal is "
    "read with the folder that it lies in",
}

BuiltIn = Model | FactorisationMachine | Graph


class Content(NamedTuple):
    """What a file says.

    Attributes:
        model: that it is of; of an external one the description.
        tensors: float32, and uint64 of what a mode has beside the parameters, by name.
        metadata: the header's.
    """

    model: BuiltIn | Description
    tensors: dict[str, NDArray[Any]]
    metadata: dict[str, str]

    @property
    def parameters(self) -> NDArray[np.float32]:
        """[d], finite."""
        return whole(self.model, self.tensors)

    @property
    def states(self) -> NDArray[np.float32]:
        """What the run's rule keeps beside the parameters, [S, d]."""
        first, found = next(iter(shapes(self.model))), list[NDArray[np.float32]]()
        while state(len(found) + 1) + first in self.tensors:
            found.append(whole(self.model, self.tensors, state(len(found) + 1)))
        return np.stack(found) if found else np.empty((0, self.model.dimension), np.float32)

    @property
    def statistics(self) -> NDArray[np.float32] | None:
        """[s], what the model normalises by; None: there are none."""
        return self.tensors.get(STATISTICS)

    @property
    def columns(self) -> Columns:
        """Of the data that it was trained on; of files written before there were any, nothing."""
        return Columns.from_json(json.loads(self.metadata.get("columns", "{}")))

    @property
    def run(self) -> dict[str, Any] | None:
        """What the run was asked for, and its counters; None: it is of no run. ValueError where it
        cannot be read.
        """
        if "run" not in self.metadata:
            return None
        run = json.loads(self.metadata["run"])
        if not isinstance(run, dict):
            raise ValueError("its run is no JSON object")  # noqa: TRY004 (a fault of the file)
        return run


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


def state(k: int) -> str:
    """What stands before the names of the rule's k-th state, from 1."""
    return f"state.{k}."


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


def mismatch(found: BuiltIn | Description, model: BuiltIn | External) -> str | None:
    """What speaks against a file of ``found`` where ``model`` is wanted, and the remedy."""
    here = model.description if isinstance(model, External) else model
    if found == here or (isinstance(found, Graph) and _as_graph(found) == _as_graph(model)):
        return None
    if not isinstance(found, Description):
        remedy = "use leashed.load(path).model"
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


def read(path: str | os.PathLike[str]) -> Content:
    """Read what ``write`` wrote. Parameters are finite; of what a run has beside them infinite sums
    may be.

    Raises:
        FileNotFoundError: there is no such file; IsADirectoryError: it is a folder.
        ValueError: it is truncated, altered, of another kind or of a newer version.
    """
    file = Path(path)
    if file.is_dir():
        hint = inside(file) or "what was saved"
        raise IsADirectoryError(errno.EISDIR, f"has no model itself; name {hint}", str(file))
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
    return Content(model, tensors, metadata)


def inside(folder: Path) -> Path | None:
    """Where a folder that is of a run of several days, or of a cluster, has what was trained."""
    return next((folder / name for name in _INSIDE if (folder / name).exists()), None)


def _split(content: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(len(content) - 8, _MAX_HEADER):
        kinds = (
            told
            for begin, told in _OTHERS.items()
            if begin in (content[: len(begin)], content[8:12])
        )
        raise ValueError(next(kinds, "it is truncated or not a safetensors file"))
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
) -> dict[str, NDArray[Any]]:
    tensors: dict[str, NDArray[Any]] = {}
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
            np.frombuffer(data[begin:end], kind).reshape(shape).astype(kind.newbyteorder("="))
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
