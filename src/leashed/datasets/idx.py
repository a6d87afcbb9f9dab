"""The IDX format of MNIST's files: a header, then the values in row-major order, big-endian.

    offset  bytes  meaning
    0       2      0
    2       1      type: 08 uint8, 09 int8, 0B int16, 0C int32, 0D float32, 0E float64
    3       1      number of dimensions r
    4       4·r    the dimensions, unsigned
    4+4r           the values

A header is believed only as far as the file can hold what it announces, so a corrupt one never
makes the reader allocate more than the file is worth.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed.base import checks

_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: "i2", 0x0C: "i4", 0x0D: "f4", 0x0E: "f8"}
_CODES = {name: code for code, name in _DTYPES.items()}
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_DIMENSIONS = 32
_MAX_DEFLATE_RATIO = 1032
_BLOCK = 1 << 20


def read_idx(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Read an IDX file, plain or compressed by gzip (told by its content, not by its name).

    Returns:
        An array of the file's shape and type, in the machine's byte order.

    Raises:
        ValueError: The file is no IDX file, is truncated, has bytes left over, announces more
            than it can hold, or is corrupt as a gzip file. The message names the file.
        FileNotFoundError: There is no such file.
    """
    path = checks.path(path)
    try:
        with path.open("rb") as file:
            stored = os.fstat(file.fileno()).st_size
            compressed = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            if not compressed:
                return _parse(file, capacity=stored)
            with gzip.GzipFile(fileobj=file) as stream:
                return _parse(cast("IO[bytes]", stream), capacity=stored * _MAX_DEFLATE_RATIO)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: corrupt gzip file: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def write_idx(path: str | os.PathLike[str], array: ArrayLike) -> None:
    """Write an array as an IDX file, compressed when the name ends in ".gz".

    Args:
        path: The file; it is replaced if it exists.
        array: Of dtype uint8, int8, int16, int32, float32 or float64, at most 32 dimensions.

    Raises:
        TypeError: IDX has no such type.
        ValueError: A dimension of 2³² or more.
    """
    array = np.asarray(array)
    code = _CODES.get(array.dtype.str[1:])
    if code is None:
        raise TypeError(
            f"array has dtype {array.dtype}, which IDX cannot hold; convert it to uint8, int8, "
            "int16, int32, float32 or float64"
        )
    if any(side >= 2**32 for side in array.shape):
        raise ValueError(f"array has a dimension of 2**32 or more: {array.shape}")
    header = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    content = header + array.astype(array.dtype.newbyteorder(">")).tobytes()
    path = Path(path)
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def _parse(stream: IO[bytes], capacity: int) -> NDArray[Any]:
    """Read one array; ``capacity`` bounds the bytes that the stream can deliver."""
    start = _read(stream, 4)
    if len(start) < 4:
        raise ValueError(f"truncated: {len(start)} bytes are no IDX header")
    zero, code, ndim = struct.unpack(">HBB", start)
    if zero != 0:
        raise ValueError(f"not an IDX file: it begins with {start[:2].hex()}, not 0000")
    if code not in _DTYPES:
        raise ValueError(f"unknown IDX type 0x{code:02x}")
    if ndim > _MAX_DIMENSIONS:
        raise ValueError(f"{ndim} dimensions, more than {_MAX_DIMENSIONS}")
    sides = _read(stream, 4 * ndim)
    if len(sides) < 4 * ndim:
        raise ValueError(f"truncated: the header ends before its {ndim} dimensions")
    shape = struct.unpack(f">{ndim}I", sides)
    dtype = np.dtype(">" + _DTYPES[code])
    expected = math.prod(shape) * dtype.itemsize
    if math.prod(filter(None, shape)) * dtype.itemsize > np.iinfo(np.intp).max:
        raise ValueError(f"absurd dimensions {shape}")
    if expected > capacity:
        raise ValueError(
            f"truncated or corrupt: dimensions {shape} need {expected} bytes, more than the file "
            "can hold"
        )
    content = _read(stream, expected)
    if len(content) < expected:
        raise ValueError(f"truncated: dimensions {shape} need {expected} bytes, got {len(content)}")
    if stream.read(1):
        raise ValueError(f"bytes left over after the {expected} of dimensions {shape}")
    values = np.frombuffer(content, dtype)
    return values.astype(dtype.newbyteorder("="), copy=False).reshape(shape)


def _read(stream: IO[bytes], count: int) -> bytearray:
    """Up to ``count`` bytes, taking memory only as they arrive."""
    content = bytearray()
    while len(content) < count:
        block = stream.read(min(count - len(content), _BLOCK))
        if not block:
            break
        content += block
    return content
