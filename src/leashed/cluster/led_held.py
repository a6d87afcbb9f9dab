"""Rows of the gradients that wait at a policy server, as checkpoints have them: words, which are taken apart by
table and id, joined to what one server would have of several, and spread over others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from leashed import _core

__all__ = ["Held", "Words", "among", "join", "own", "slots", "tables_of", "words_of"]

_LINE = 16  # floats of a line, which each table's gradients are filled up to
_MISSED = 3  # counts of ids without a row
_SPREAD = -1  # in place of a table's server

Words: TypeAlias = "NDArray[np.uint64]"


class Held(NamedTuple):
    """Of a push's rows of one table, as a server's archive has them."""

    missed: NDArray[np.uint64]
    ids: NDArray[np.uint64]
    versions: NDArray[np.uint64]
    there: NDArray[np.uint64]
    gradients: NDArray[np.float32]  # [rows, floats of one]


def slots(words: Words, strides: Sequence[int]) -> Iterator[list[Held]]:
    """What is held of each push, by table.

    Args:
        words: of all pushes that are held.
        strides: by table floats from one gradient of a row to the next.

    Raises:
        ValueError: they are damaged.
    """
    at = 0

    def take(count: int) -> Words:
        nonlocal at
        if count > len(words) - at:
            raise ValueError("what the checkpoint has of rows is damaged; use another one")
        at += count
        return words[at - count : at]

    while at < len(words):
        heads = take(4 * int(take(1)[0])).reshape(-1, 4)
        ids, versions, there = (take(int(take(1)[0])) for _ in range(3))
        if (
            len(heads) != len(strides)
            or len({int(heads[:, 0].sum()), *map(len, (ids, versions, there))}) > 1
        ):
            raise ValueError("what the checkpoint has of rows is damaged; use another one")
        found, first = [], 0
        sizes = [_filled(int(n) * stride) for n, stride in zip(heads[:, 0], strides, strict=True)]
        floats = take(sum(sizes) // 2).view(np.float32)
        for head, stride, size in zip(heads, strides, sizes, strict=True):
            count = int(head[0])
            rows = slice(first, first + count)
            gradients, floats = floats[: count * stride].reshape(count, stride), floats[size:]
            found.append(Held(head[1:], ids[rows], versions[rows], there[rows], gradients))
            first += count
        yield found


def words_of(pushes: Sequence[Sequence[Held]]) -> Words:
    """As ``slots`` reads it."""
    return np.concatenate([np.zeros(0, np.uint64), *map(_of_push, pushes)])


def tables_of(owners: Sequence[int], index: int) -> list[int]:
    """The numbers of the tables of which the server of that index has rows.

    Args:
        owners: of each table the server that has all of it, or -1: it is spread.
        index: of the server.
    """
    return [t for t, owner in enumerate(owners) if owner in (index, _SPREAD)]


def among(
    pushes: Iterable[Sequence[Held]], tables: Sequence[int], strides: Sequence[int]
) -> list[list[Held]]:
    """What a server holds that has rows of these tables, with nothing of each other one.

    Args:
        pushes: as ``slots`` reads them.
        tables: their numbers among all.
        strides: of all.
    """
    nothing = [_nothing(stride) for stride in strides]
    found = []
    for push in pushes:
        mine = dict(zip(tables, push, strict=True))
        found.append([mine.get(t, none) for t, none in enumerate(nothing)])
    return found


def join(each: Sequence[Sequence[Sequence[Held]]]) -> Words:
    """What one server would have, of the same pushes of several."""
    pushes = zip(*each, strict=True)
    return words_of([[_together(of) for of in zip(*push, strict=True)] for push in pushes])


def own(
    pushes: Sequence[Sequence[Held]], placement: _core.RowPlacement, index: int
) -> list[list[Held]]:
    """What the server of that index has of it: of those tables alone of which it has rows."""
    return [
        [
            _own(held, placement, t, index)
            for t, held in enumerate(push)
            if any(placement.shards(t, index))
        ]
        for push in pushes
    ]


def _nothing(stride: int) -> Held:
    none = np.zeros(0, np.uint64)
    return Held(np.zeros(_MISSED, np.uint64), none, none, none, np.zeros((0, stride), np.float32))


def _together(of: Sequence[Held]) -> Held:
    """What all servers have of a table."""
    return Held(
        sum((one.missed for one in of), np.zeros(_MISSED, np.uint64)),
        *(np.concatenate(column) for column in zip(*(one[1:] for one in of), strict=True)),
    )


def _own(held: Held, placement: _core.RowPlacement, table: int, index: int) -> Held:
    """What one server has of it; how many ids have no row is for the server of the last of these, or of id 0."""
    servers = np.array([placement.server(table, int(one)) for one in held.ids], np.int64)
    without = servers[held.there == 0]
    counts = index == (without[-1] if len(without) else placement.server(table, 0))
    mine = servers == index
    return Held(held.missed * np.uint64(counts), *(column[mine] for column in held[1:]))


def _of_push(tables: Sequence[Held]) -> Words:
    heads = [np.append(np.uint64(len(of.ids)), of.missed) for of in tables]
    columns = [
        np.concatenate([of[column] for of in tables]) for column in range(1, len(Held._fields) - 1)
    ]
    floats = np.zeros(sum(_filled(of.gradients.size) for of in tables), np.float32)
    at = 0
    for of in tables:
        floats[at : at + of.gradients.size] = of.gradients.ravel()
        at += _filled(of.gradients.size)
    sized = [np.append(np.uint64(len(column)), column) for column in columns]
    return np.concatenate(
        [[np.uint64(len(tables))], *heads, *sized, floats.view(np.uint64)]
    ).astype(np.uint64)


def _filled(floats: int) -> int:
    return -(-floats // _LINE) * _LINE
