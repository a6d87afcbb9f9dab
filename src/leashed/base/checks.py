"""Checks of arguments: each error names the argument and the remedy."""

from __future__ import annotations

import errno
import math
import numbers
import operator
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_SECONDS = 1e6


def whole(name: str, value: Any, minimum: int = 1, maximum: int | None = None) -> int:
    """``value`` as an int; TypeError where it is no whole number, ValueError where out of range."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}") from None
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {number}")
    if maximum is not None and number > maximum:
        raise ValueError(f"{name} must be at most {maximum}, got {number}")
    return number


def flag(name: str, value: Any) -> bool:
    """``value``, which is True or False; TypeError otherwise."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


def size(name: str, value: Any, minimum: int = 1) -> int:
    """``value`` as a size of the core's: a whole number below 2³¹."""
    return whole(name, value, minimum, 2**31 - 1)


def real(
    name: str, value: Any, above: float = -math.inf, *, infinite: bool = False, allow: bool = False
) -> float:
    """``value`` as a float above ``above`` (or equal to it, with ``allow``), never NaN."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isnan(number) or (math.isinf(number) and not infinite):
        raise ValueError(f"{name} must be finite, got {number}")
    if number < above or (number == above and not allow and above > -math.inf):
        raise ValueError(
            f"{name} must be {'at least' if allow else 'greater than'} {above:g}, got {number:g}"
        )
    return number


def seconds(name: str, value: Any) -> float:
    """``value`` as a time in seconds, from 0 to ``MOST_SECONDS``."""
    given = real(name, value, 0.0, allow=True)
    if given > MOST_SECONDS:
        raise ValueError(f"{name} must be at most {MOST_SECONDS:g} seconds, got {given:g}")
    return given


def rate(name: str, value: Any) -> float:
    """``value`` as a learning rate: from 0, and not infinite as a float32."""
    number = real(name, value, 0.0, allow=True)
    largest = float(np.finfo(np.float32).max)
    if number > largest:
        raise ValueError(f"{name} must be at most {largest:.3g} (float32), got {number:g}")
    return number


def step(name: str, value: Any) -> float:
    """``value`` as a size: positive, and neither 0 nor infinite as a float32."""
    number = real(name, value, 0.0)
    limits = np.finfo(np.float32)
    if not float(limits.tiny) <= number <= float(limits.max):
        raise ValueError(
            f"{name} must lie between {limits.tiny:.3g} and {limits.max:.3g} (float32), "
            f"got {number:g}"
        )
    return number


def numeric(name: str, value: Any) -> NDArray[Any]:
    """``value`` as an array of booleans, whole or real numbers."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} cannot be read as an array: {error}") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    return array


def vector(name: str, value: Any, length: int | None = None) -> NDArray[np.float32]:
    """``value`` as a contiguous float32 vector, finite, of the given length."""
    array = numeric(name, value)
    if array.ndim != 1:
        raise ValueError(
            f"{name} must be one-dimensional, got shape {array.shape}; flatten it with .ravel()"
        )
    if length is not None and len(array) != length:
        raise ValueError(f"{name} must have length {length}, got {len(array)}")
    if not len(array):
        raise ValueError(f"{name} must not be empty")
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(single).all():
        first = int(np.flatnonzero(~np.isfinite(single))[0])
        raise ValueError(f"{name}[{first}] is {single[first]}; every value must be finite")
    return single


def path(value: Any) -> Path:
    """``value`` as the path of a file; TypeError where it is an open file, or anything else."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(
            f"path must be the path of a file, got {type(value).__name__}; of an open file give the "
            "name"
        )
    return Path(value)


def writable(path: Path | None) -> None:
    """OSError where a file at ``path`` could not be written; asked before hours of work, not after.

    None is fine: nothing is to be written.
    """
    if path is None:
        return
    folder = path.parent
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, "its folder does not exist", str(path))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; name a file", str(path))
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise PermissionError(errno.EACCES, "cannot be written", str(path))


def writable_folder(folder: Path, of_a_file: str) -> None:
    """OSError where ``folder`` could not be made, or nothing put into it; ``of_a_file`` is said where it
    is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, of_a_file, str(folder))
    if not folder.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "its folder does not exist", str(folder))
    if not os.access(folder if folder.exists() else folder.parent, os.W_OK):
        raise PermissionError(errno.EACCES, "cannot be written", str(folder))


def drawable(path: Path | None) -> None:
    """As ``writable``, of a file with figures; ImportError where what draws them is missing."""
    writable(path)
    if path is not None:
        plotting()


def plotting() -> None:
    """ImportError where figures cannot be drawn."""
    try:
        import matplotlib as mpl  # noqa: F401, PLC0415 (optional)
    except ImportError as error:
        raise ImportError(
            "figures need matplotlib, which is not installed; it comes with: pip install "
            "'leashed[plot]'"
        ) from error
