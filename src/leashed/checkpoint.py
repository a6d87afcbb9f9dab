"""Models, their parameters and what else a run has reached, in files.

The format is safetensors (8-byte length, JSON header, raw tensors), with the architecture, the run
and a checksum of everything in the header's metadata. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _check
from leashed.models import Conv2d, Dense, Layer, MaxPool, Model, ReLU

__all__ = ["load", "save"]

_FORMAT = "leashed.model"
_VERSION = 2  # of the format; 1 had no checksum
_KINDS: dict[str, type[Layer]] = {k.__name__: k for k in (Dense, Conv2d, MaxPool, ReLU)}
_MAX_HEADER = 100_000_000


def save(path: str | os.PathLike[str], model: Model, parameters: ArrayLike) -> None:
    """Write a model and its parameters [d] to ``path``, atomically.

    A reader finds the old file or the whole new one.

    Raises:
        TypeError, ValueError: ``parameters`` does not fit the model.
        OSError: the file cannot be written.
    """
    if not isinstance(model, Model):
        raise TypeError(f"model must come from leashed.models, got {type(model).__name__}")
    theta = _check.vector("parameters", parameters, model.dimension)
    write(path, model, model.unflatten(theta))


def write(
    path: str | os.PathLike[str],
    model: Model,
    tensors: dict[str, NDArray[np.float32]],
    metadata: dict[str, str] | None = None,
) -> None:
    """Write a model, float32 tensors by name, and further metadata to ``path``, atomically."""
    header: dict[str, Any] = {
        "__metadata__": {
            "format": _FORMAT,
            "version": str(_VERSION),
            "name": model.name,
            "input_shape": json.dumps(model.input_shape),
            "loss": model.loss,
            "l2": json.dumps(model.l2),
            "layers": json.dumps(
                [{"kind": type(layer).__name__, **asdict(layer)} for layer in model.layers]
            ),
            **(metadata or {}),
        }
    }
    offset = 0
    parts = [np.ascontiguousarray(tensor, "<f4") for tensor in tensors.values()]
    for name, part in zip(tensors, parts, strict=True):
        header[name] = {
            "dtype": "F32",
            "shape": list(part.shape),
            "data_offsets": [offset, offset + part.nbytes],
        }
        offset += part.nbytes
    data = [part.reshape(-1).view(np.uint8).data for part in parts]
    header["__metadata__"]["checksum"] = checksum(header, data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    _write_atomically(Path(path), [len(text).to_bytes(8, "little") + text, *data])


def checksum(header: dict[str, Any], data: Iterable[bytes | memoryview]) -> str:
    """SHA-256 of a header, its own checksum left out, and of the tensors' bytes."""
    metadata = {k: v for k, v in header["__metadata__"].items() if k != "checksum"}
    digest = hashlib.sha256(
        json.dumps({**header, "__metadata__": metadata}, sort_keys=True).encode()
    )
    for part in data:
        digest.update(part)
    return digest.hexdigest()


def _write_atomically(path: Path, content: Iterable[bytes | memoryview]) -> None:
    # Opened by name, not by tempfile, for the permissions that any new file gets.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with temporary.open("xb") as file:
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name, too, survives a loss of power
    finally:
        os.close(folder)


def load(path: str | os.PathLike[str]) -> tuple[Model, NDArray[np.float32]]:
    """Read what ``save`` wrote: the model and its parameters, float32 [d].

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is truncated, altered, of another kind or of a newer version.
    """
    model, tensors, _ = read(path)
    theta = np.empty(model.dimension, np.float32)
    for name, part in model.unflatten(theta).items():
        part[...] = tensors[name]
    return model, theta


def read(
    path: str | os.PathLike[str],
) -> tuple[Model, dict[str, NDArray[np.float32]], dict[str, str]]:
    """Read what ``write`` wrote: the model, tensors by name, among them the model's parameters, and
    the metadata. Everything is finite. Raises what ``load`` does.
    """
    content = Path(path).read_bytes()
    try:
        header, data = _split(content)
        metadata = header.pop("__metadata__")
        model = _model(metadata)
        tensors = _tensors(model, header, data)
        if metadata["version"] != "1":
            expected = checksum({**header, "__metadata__": metadata}, [data])
            if metadata["checksum"] != expected:
                raise ValueError("its checksum is not that of its content; use an unaltered copy")
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        reason = f"its header lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"cannot load {path}: {reason}") from error
    return model, tensors, metadata


def _split(content: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(len(content) - 8, _MAX_HEADER):
        raise ValueError("it is truncated or not a safetensors file")
    header = json.loads(content[8 : 8 + length])
    if not (isinstance(header, dict) and isinstance(header.get("__metadata__"), dict)):
        raise ValueError("its header lacks '__metadata__'")  # noqa: TRY004 (a fault of the file)
    return header, content[8 + length :]


def _model(metadata: dict[str, str]) -> Model:
    if metadata["format"] != _FORMAT:
        raise ValueError("it holds no leashed model")
    if not 1 <= int(metadata["version"]) <= _VERSION:
        raise ValueError(
            f"its format version is {metadata['version']}, this release reads 1 to {_VERSION}; "
            "upgrade leashed"
        )
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


def _tensors(model: Model, header: dict[str, Any], data: bytes) -> dict[str, NDArray[np.float32]]:
    tensors = {}
    spans = []
    for name, tensor in header.items():
        shape, (begin, end) = tensor["shape"], tensor["data_offsets"]
        if tensor["dtype"] != "F32":
            raise ValueError(f"{name} is {tensor['dtype']}, leashed keeps F32")
        size = 4 * math.prod(shape)
        if not 0 <= begin <= end <= len(data) or end - begin != size:
            raise ValueError(f"{name} has {end - begin} bytes, its shape needs {size}")
        spans.append((begin, end))
        values = np.frombuffer(data[begin:end], "<f4").astype(np.float32)
        if not np.isfinite(values).all():
            raise ValueError(f"{name} holds values that are not finite")
        tensors[name] = values.reshape(shape)
    for block in model.native.parameters:
        if tensors[block.name].shape != tuple(block.shape):
            raise ValueError(
                f"{block.name} is {list(tensors[block.name].shape)}, the layers need "
                f"{list(block.shape)}"
            )
    spans.sort()
    ends = [end for _, end in spans]
    if [begin for begin, _ in spans] != [0, *ends[:-1]] or ends[-1] != len(data):
        raise ValueError("its tensors overlap or leave gaps")
    return tensors
