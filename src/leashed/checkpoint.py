"""Models and their parameters in files.

The format is safetensors (8-byte length, JSON header, raw tensors), with the architecture in the
header's metadata. Nothing is pickled.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _check
from leashed.models import Conv2d, Dense, Layer, MaxPool, Model, ReLU

__all__ = ["load", "save"]

_FORMAT = "leashed.model"
_VERSION = 1
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
    header: dict[str, Any] = {
        "__metadata__": {
            "format": _FORMAT,
            "version": str(_VERSION),
            "name": model.name,
            "input_shape": json.dumps(model.input_shape),
            "layers": json.dumps(
                [{"kind": type(layer).__name__, **asdict(layer)} for layer in model.layers]
            ),
        }
    }
    offset = 0
    for name, part in model.unflatten(theta).items():
        header[name] = {
            "dtype": "F32",
            "shape": list(part.shape),
            "data_offsets": [offset, offset + part.nbytes],
        }
        offset += part.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    _write_atomically(
        Path(path), len(text).to_bytes(8, "little") + text + theta.astype("<f4").tobytes()
    )


def _write_atomically(path: Path, content: bytes) -> None:
    # Opened by name, not by tempfile, for the permissions that any new file gets.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def load(path: str | os.PathLike[str]) -> tuple[Model, NDArray[np.float32]]:
    """Read what ``save`` wrote: the model and its parameters, float32 [d].

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is truncated, altered, of another kind or of a newer version.
    """
    content = Path(path).read_bytes()
    try:
        header, data = _split(content)
        model = _model(header["__metadata__"])
        return model, _parameters(model, header, data)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        reason = f"its header lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"cannot load {path}: {reason}") from error


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
    if int(metadata["version"]) != _VERSION:
        raise ValueError(
            f"its format version is {metadata['version']}, this release reads {_VERSION}; "
            "upgrade leashed"
        )
    layers = []
    for fields in json.loads(metadata["layers"]):
        layers.append(_KINDS[fields.pop("kind")](**fields))
    return Model(tuple(json.loads(metadata["input_shape"])), tuple(layers), metadata["name"])


def _parameters(model: Model, header: dict[str, Any], data: bytes) -> NDArray[np.float32]:
    if len(data) != 4 * model.dimension:
        raise ValueError(
            f"it should hold {4 * model.dimension} bytes of parameters, not {len(data)}"
        )
    theta = np.empty(model.dimension, np.float32)
    spans = []
    for name, part in model.unflatten(theta).items():
        tensor = header[name]
        if tensor["dtype"] != "F32" or tensor["shape"] != list(part.shape):
            raise ValueError(
                f"{name} is {tensor['dtype']} {tensor['shape']}, the layers need F32 "
                f"{list(part.shape)}"
            )
        begin, end = tensor["data_offsets"]
        if end - begin != part.nbytes:
            raise ValueError(f"{name} has {end - begin} bytes, its shape needs {part.nbytes}")
        spans.append((begin, end))
        part[...] = np.frombuffer(data[begin:end], "<f4").reshape(part.shape)
    spans.sort()
    if [begin for begin, _ in spans] != [0, *(end for _, end in spans[:-1])]:
        raise ValueError("its tensors overlap or leave gaps")
    return _check.vector("parameters", theta)
