"""Files of tables, read apart."""

from __future__ import annotations

import struct
from pathlib import Path

_END = 2**32 - 1


def rows_in(path: Path) -> dict[int, bytes]:
    """Version, times and all floats of each row that an id has."""
    content = path.read_bytes()
    (described,) = struct.unpack_from("I", content, 12)
    (floats,) = struct.unpack_from("Q", content, 16)
    size = 16 + 4 * floats
    at, rows = 48 + described + 4, {}
    while (count := struct.unpack_from("I", content, at)[0]) != _END:
        for begin in range(at + 8, at + 8 + count * size, size):
            (row,) = struct.unpack_from("Q", content, begin)
            rows[row] = content[begin + 8 : begin + size]
        at += 8 + count * size
    return rows
