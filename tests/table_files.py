"""Files of tables, read apart."""

from __future__ import annotations

import struct
from pathlib import Path

_END = 2**32 - 1
_HEADER = 48


def rows_in(path: Path) -> dict[int, bytes]:
    """Version, times and all floats of each row that an id has."""
    content = path.read_bytes()
    (described,) = struct.unpack_from("I", content, 12)
    (floats,) = struct.unpack_from("Q", content, 16)
    size = 16 + 4 * floats
    at, rows = _HEADER + described + 4, {}
    while (count := struct.unpack_from("I", content, at)[0]) != _END:
        for begin in range(at + 8, at + 8 + count * size, size):
            (row,) = struct.unpack_from("Q", content, begin)
            rows[row] = content[begin + 8 : begin + size]
        at += 8 + count * size
    return rows


def header_in(path: Path) -> bytes:
    """All but the rows: steps, and the time and the period that theirs are compared with."""
    content = path.read_bytes()
    (described,) = struct.unpack_from("I", content, 12)
    return content[: _HEADER + described]


def shard_of(number: int, *, grows: bool) -> int:
    """Of an id, among the 256 by which servers share a table (row_placement.h)."""
    if grows:
        for times in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            number = (number ^ number >> 33) * times % 2**64
        number ^= number >> 33
    return number % 256
