"""Hands the data that who starts a run's processes has read on to them: they are read once, and lie in memory
once for all processes of a machine.

They lie in a file that is in memory and has no name, whose descriptor the processes inherit. What is no
array is pickled; arrays lie behind it, and who takes them has them read-only where they are.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import pickle
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leashed.training.problems.problem import Problem

__all__ = ["VARIABLE", "hand_on", "taken"]

VARIABLE = "LEASHED_DATA_HANDED_ON"
"""The environment's variable with the descriptor."""

_ALIGNED = 64  # bytes, on which each array begins
_CLOSED_BY_EXEC = 1  # MFD_CLOEXEC
_WORD = 8  # bytes of each number ahead of all: how many arrays, bytes of what is pickled, bytes of each array


def hand_on(words: object, problem: Problem) -> int:
    """The descriptor of such a file; ``words``: of a plan, which this problem is of.

    Raises:
        MemoryError, OSError: there is no room, or the system has no such files.
        RecursionError: a model is too deep to be pickled.
    """
    arrays: list[pickle.PickleBuffer] = []
    head = pickle.dumps((words, problem), protocol=5, buffer_callback=arrays.append)
    parts: list[bytes | memoryview] = [head, *(array.raw() for array in arrays)]
    sizes = [len(arrays), *(memoryview(part).nbytes for part in parts)]
    file = _new_file()
    try:
        with open(file, "wb", closefd=False) as written:
            written.write(b"".join(size.to_bytes(_WORD, "little") for size in sizes))
            for begin, part in zip(_begins(sizes[1:]), parts, strict=True):
                written.seek(begin)
                written.write(part)
    except BaseException:
        os.close(file)
        raise
    return file


def taken(words: object) -> Problem | None:
    """What was handed on to this process, if that is what such a plan asks for; None: nothing, or another."""
    all_ = _inherited()
    if all_ is None:
        return None
    count = int.from_bytes(all_[:_WORD], "little")
    ahead = all_[_WORD : _WORD * (count + 2)]
    sizes = [int.from_bytes(ahead[at : at + _WORD], "little") for at in range(0, len(ahead), _WORD)]
    head, *arrays = (
        all_[begin : begin + size] for begin, size in zip(_begins(sizes), sizes, strict=True)
    )
    of, problem = pickle.loads(head, buffers=arrays)  # noqa: S301 (this program has made it)
    return problem if of == words else None


@cache
def _inherited() -> memoryview | None:
    """The file's bytes. What this process starts has no such descriptor, and is told of none."""
    told = os.environ.pop(VARIABLE, None)
    return None if told is None else memoryview(mmap.mmap(int(told), 0, access=mmap.ACCESS_READ))


def _new_file() -> int:
    # By the C library: Pythons that were built for older ones, as uv's and conda's are, have no os.memfd_create.
    made = ctypes.CDLL(None, use_errno=True).memfd_create(b"leashed-data", _CLOSED_BY_EXEC)
    if made < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    try:  # not 0 to 2, which are free where a service closes them, and are others in the processes
        return fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(made)


def _begins(sizes: list[int]) -> list[int]:
    """Where what is pickled and each array begins, by their bytes."""
    at, begins = _WORD * (len(sizes) + 1), []
    for size in sizes:
        at = -(-at // _ALIGNED) * _ALIGNED
        begins.append(at)
        at += size
    return begins
