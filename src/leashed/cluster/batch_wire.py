"""What a trainer and a reader say to each other: which rows, and their columns as they lie in memory.

A reader begins with a digest of its index. A request is (first row, rows). An answer is a head (status,
sections), the sections' sizes, and these, one array after another: of each part of a file x, single ids,
of each bag offsets, ids and maybe their weights, y, and weights where rows have some. All is little-endian.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed.cluster.receiving import exactly, fill
from leashed.cluster.row_index import RowIndex

__all__ = [
    "MOST_ROWS",
    "Layout",
    "RefusedError",
    "UsedError",
    "ask",
    "asked",
    "check_hello",
    "hello",
    "receive",
    "refuse",
    "send",
    "used",
]

MOST_ROWS = 1 << 16
"""Of a request."""

_MOST_BYTES = 256 << 20  # of an answer
_MOST_TOLD = 4096  # bytes of why there is none
_MAGIC = b"leashed rows 1\0\0"
_HELLO = struct.Struct("<16s64s")
_ASKED = struct.Struct("<QQ")
_HEAD = struct.Struct("<II")
_GIVEN, _REFUSED, _USED = 0, 1, 2


class RefusedError(ValueError):
    """The reader cannot send such rows, now or later."""


class UsedError(LookupError):
    """Rows that come once are used, and not kept any more: whoever asks has lost the lease of them."""


class Layout(NamedTuple):
    """What rows are made of.

    Attributes:
        numbers: of a row.
        bags: of each feature whether a row has any number of its ids.
        classes: of labels; 0: there are numbers.
        values: labels or numbers of a row.
        weights: whether a row has one.
        columns: of sparse rows, whose one bag has their columns, each with a value: how many there are;
            0: rows are not sparse.
        distinct: whether no sparse row has a column twice.
    """

    numbers: int
    bags: tuple[bool, ...]
    classes: int
    values: int
    weights: bool
    columns: int = 0
    distinct: bool = False


def hello(index: RowIndex) -> bytes:
    """What a reader begins with."""
    return _HELLO.pack(_MAGIC, index.digest.encode())


def check_hello(link: socket.socket, index: RowIndex) -> None:
    """ValueError where a reader has other rows."""
    magic, digest = _HELLO.unpack(exactly(link, _HELLO.size))
    told = digest.rstrip(b"\0").decode(errors="replace")
    if magic != _MAGIC or told != index.digest:
        raise ValueError(f"it has {told}, and the run {index.digest}")


def ask(link: socket.socket, first: int, count: int) -> None:
    """Ask for rows."""
    link.sendall(_ASKED.pack(first, count))


def asked(link: socket.socket) -> tuple[int, int] | None:
    """What is asked for next, (first, count); None: nothing any more."""
    if not (begun := link.recv(_ASKED.size)):
        return None
    first, count = _ASKED.unpack(begun + exactly(link, _ASKED.size - len(begun)))
    return first, count


def refuse(link: socket.socket, why: str) -> None:
    """There is no answer, and why."""
    _tell(link, _REFUSED, why)


def used(link: socket.socket, why: str) -> None:
    """There is no answer, as of ``UsedError``."""
    _tell(link, _USED, why)


def _tell(link: socket.socket, status: int, why: str) -> None:
    told = why.encode()[:_MOST_TOLD]
    link.sendall(_HEAD.pack(status, 1) + struct.pack("<Q", len(told)) + told)


def send(link: socket.socket, parts: Sequence[Any]) -> None:
    """An answer: the rows of each part of a file; a refusal, where it would be too long."""
    sections: list[memoryview] = []
    for x, ids, bags, y, weights in parts:
        arrays = [x, ids]
        for own_ids, offsets, *of_ids in bags:
            arrays += [offsets, own_ids, *of_ids]
        arrays += [y] if weights is None else [y, weights]
        sections += [
            memoryview(np.ascontiguousarray(each).data).cast("B") for each in map(_flat, arrays)
        ]
    sizes = [len(section) for section in sections]
    if sum(sizes) > _MOST_BYTES:
        refuse(
            link,
            f"rows that are asked for at once have {sum(sizes):,} bytes, more than {_MOST_BYTES:,}: "
            "give a smaller batch_size, or train without readers",
        )
        return
    link.sendall(_HEAD.pack(_GIVEN, len(sections)) + struct.pack(f"<{len(sizes)}Q", *sizes))
    for section in sections:
        link.sendall(section)


def receive(link: socket.socket, count: int, layout: Layout) -> Any:
    """An answer of so many rows: (x, single ids, bags, y, weights).

    Raises:
        OSError: the connection ends.
        RefusedError: the reader refuses, and why.
        UsedError: the reader does not keep them any more.
        ValueError: it is no such answer; no memory was asked for by what it says.
    """
    status, number = _HEAD.unpack(exactly(link, _HEAD.size))
    each = _sections(layout)
    if status in (_REFUSED, _USED) and number == 1:
        (size,) = struct.unpack("<Q", exactly(link, 8))
        if size > _MOST_TOLD:
            raise ValueError(f"it refuses in {size:,} bytes")
        kind = RefusedError if status == _REFUSED else UsedError
        raise kind(exactly(link, size).decode(errors="replace"))
    if status != _GIVEN or number == 0 or number % each or number // each > count:
        raise ValueError(f"it answers with status {status} and {number:,} sections")
    sizes = struct.unpack(f"<{number}Q", exactly(link, 8 * number))
    if sum(sizes) > _MOST_BYTES:
        raise ValueError(f"its answer has {sum(sizes):,} bytes, more than {_MOST_BYTES:,}")
    parts = []
    rows = 0
    for begin in range(0, number, each):
        part, own = _part(link, sizes[begin : begin + each], layout, count - rows)
        rows += own
        parts.append(part)
    if rows != count:
        raise ValueError(f"its answer has {rows:,} rows, and {count:,} were asked for")
    return parts[0] if len(parts) == 1 else _joined(parts)


def _sections(layout: Layout) -> int:
    return 3 + _of_bag(layout) * sum(layout.bags) + layout.weights


def _of_bag(layout: Layout) -> int:
    """Sections of a bag: offsets, ids, and of sparse rows their values."""
    return 3 if layout.columns else 2


def _part(link: socket.socket, sizes: Sequence[int], layout: Layout, most: int) -> tuple[Any, int]:
    """Rows of a part, and how many. Sizes are held against each other before anything is read."""
    of_y = sizes[-1 - layout.weights]
    rows = of_y // (4 * layout.values)
    single = len(layout.bags) - sum(layout.bags)
    each = _of_bag(layout)
    bags = sizes[2 : 2 + each * sum(layout.bags)]
    expected = [4 * layout.numbers * rows, 8 * single * rows, 4 * layout.values * rows]
    if (
        not 0 < rows <= most
        or [sizes[0], sizes[1], of_y] != expected
        or any(size != 8 * (rows + 1) for size in bags[::each])
        or any(size % 8 for size in bags[1::each])
        or (
            each == 3
            and any(2 * own != ids for ids, own in zip(bags[1::3], bags[2::3], strict=True))
        )
        or (layout.weights and sizes[-1] != 4 * rows)
    ):
        raise ValueError(f"its sections of {list(sizes)} bytes are not those of rows")
    given = iter(sizes)
    x = _array(link, next(given), np.float32).reshape(rows, layout.numbers)
    ids = _array(link, next(given), np.uint64).reshape(rows, single)
    found = []
    for _ in range(sum(layout.bags)):
        offsets = _array(link, next(given), np.int64)
        own_ids = _array(link, next(given), np.uint64)
        of_ids = (_array(link, next(given), np.float32),) if layout.columns else ()
        found.append((own_ids, offsets, *of_ids))
    y = _array(link, next(given), np.int32 if layout.classes else np.float32)
    if layout.values > 1:
        y = y.reshape(rows, layout.values)
    weights = _array(link, next(given), np.float32) if layout.weights else None
    return (x, ids, found, y, weights), rows


def _joined(parts: Sequence[Any]) -> Any:
    x, ids, bags, y, weights = zip(*parts, strict=True)
    together = []
    for several in zip(*bags, strict=True):
        own_ids, own_offsets, *of_ids = zip(*several, strict=True)
        before = np.cumsum([0, *map(len, own_ids)])
        offsets = [own_offsets[0]]
        offsets += [o[1:] + at for o, at in zip(own_offsets[1:], before[1:], strict=False)]
        values = map(np.concatenate, of_ids)
        together.append((np.concatenate(own_ids), np.concatenate(offsets), *values))
    own = None if weights[0] is None else np.concatenate(weights)
    return np.concatenate(x), np.concatenate(ids), together, np.concatenate(y), own


def _flat(array: NDArray[Any]) -> NDArray[Any]:
    return array.reshape(-1)


def _array(link: socket.socket, size: int, dtype: Any) -> NDArray[Any]:
    array = np.empty(size // np.dtype(dtype).itemsize, dtype)
    if size:
        fill(link, memoryview(array.data).cast("B"))
    return array
