"""The files in which a checkpoint has what one of several policy servers has saved: its part, which is joined to
those of the others (``led_parts``), and of servers that decide by themselves what is its own alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.base import atomic
from leashed.cluster.led_held import Words

__all__ = ["Own", "Part", "Taken", "name_of", "own_of", "put", "put_own", "read", "read_own"]


class Taken(NamedTuple):
    """What the core gives of a server.

    Attributes:
        state: of it.
        nodes: how many there were.
        rows: which words of the mode's are of rows that are held, as [begin, end).
        held: by slot one more than the number of the batch whose gradient waits whole; 0: none does.
        position: how many lines of the first server's log are carried out.
        strides: by table that it has rows of, floats from one gradient of a row to the next.
        unfinished: of the first the batches that are not done, as number and examples.
        had: where servers decide by themselves, of one behind the first the batches that it has had, as first
            and last number.
    """

    state: _core.Resumption
    nodes: int
    rows: tuple[int, int]
    held: list[int]
    position: int
    strides: list[int]
    unfinished: list[tuple[int, int]]
    had: list[tuple[int, int]]


class Part(NamedTuple):
    """What one server has saved, as of ``Taken``."""

    vectors: NDArray[np.float32]
    words: Words
    mode: NDArray[np.float32]  # [vectors, parameters]
    held: NDArray[np.uint64]
    unfinished: NDArray[np.uint64]  # [batches, 2]
    had: NDArray[np.uint64]  # [spans, 2]
    updates: int
    batches: int
    nodes: int
    rows: tuple[int, int]
    position: int
    strides: list[int]


class Own(NamedTuple):
    """What one goes on from whose mode decides by itself, beside parameters and the rule's state."""

    words: Words
    mode: NDArray[np.float32]
    updates: int
    nodes: int


def name_of(index: int) -> str:
    """The file of a server's part, until it is joined."""
    return f"policy-ps-{index}.part"


def own_of(index: int) -> str:
    """The file of what is its own."""
    return f"policy-ps-{index}.own"


def put(path: Path, taken: Taken) -> None:
    """Write what a server has taken.

    Raises:
        OSError: it cannot be written.
    """
    state = taken.state
    words, vectors = state.mode
    numbers = [state.updates, state.batches, taken.nodes, *taken.rows, taken.position]
    _put(
        path,
        np.asarray(state.vectors),
        np.asarray(words, np.uint64),
        np.asarray(vectors, np.float32),
        np.asarray(taken.held, np.uint64),
        np.asarray(taken.unfinished, np.uint64).reshape(-1, 2),
        np.asarray(taken.had, np.uint64).reshape(-1, 2),
        np.asarray(taken.strides, np.int64),
        np.asarray(numbers, np.int64),
    )


def read(path: Path) -> Part:
    """What was written.

    Raises:
        OSError: it cannot be read.
        ValueError: it is none.
    """
    vectors, words, mode, held, unfinished, had, strides, numbers = _read(path, 8)
    updates, batches, nodes, begin, end, position = numbers.tolist()
    return Part(
        vectors,
        words,
        mode.reshape(-1, vectors.shape[1]),
        held,
        unfinished,
        had,
        updates,
        batches,
        nodes,
        (begin, end),
        position,
        strides.tolist(),
    )


def put_own(path: Path, part: Part) -> None:
    """Write what is a server's own.

    Raises:
        OSError: it cannot be written.
    """
    _put(path, part.words, part.mode.ravel(), np.asarray([part.updates, part.nodes], np.int64))


def read_own(path: Path) -> Own:
    """What was written.

    Raises:
        OSError: it cannot be read.
        ValueError: it is none.
    """
    words, mode, numbers = _read(path, 3)
    updates, nodes = numbers.tolist()
    return Own(words, mode, updates, nodes)


def _put(path: Path, *arrays: NDArray[Any]) -> None:
    with atomic.opened(path) as file:
        for each in arrays:
            np.save(file, each, allow_pickle=False)


def _read(path: Path, arrays: int) -> Sequence[NDArray[Any]]:
    with path.open("rb") as file:
        return [np.load(file, allow_pickle=False) for _ in range(arrays)]
