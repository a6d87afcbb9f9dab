"""What a trainer and a reader hear of each other, with bytes changed: it is refused, or it is rows."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from leashed import _core
from leashed.cluster import batch_wire, reader

# LEASHED_FUZZ: how many frames; ten million by hand.
FUZZ = int(os.environ.get("LEASHED_FUZZ", "50000"))
MOST_IDS = 8  # of a part
REFUSED = (ValueError, OSError, RuntimeError, batch_wire.UsedError)
LAYOUTS = {
    "dense": batch_wire.Layout(2, (False, True), 2, 1, weights=False),
    "sparse": batch_wire.Layout(0, (True,), 2, 1, weights=False, columns=MOST_IDS, distinct=True),
}
ROWS = 300  # of the index
MOST = 8  # of an answer


class Link:
    """A connection that has all that is ever heard in it, and keeps what is said."""

    def __init__(self, heard: bytes = b"") -> None:
        self._heard, self.said = memoryview(heard), bytearray()

    def recv(self, size: int) -> bytes:
        found, self._heard = bytes(self._heard[:size]), self._heard[size:]
        return found

    def recv_into(self, to: memoryview) -> int:
        found = self.recv(len(to))
        to[: len(found)] = found
        return len(found)

    def sendall(self, data: Any) -> None:
        self.said += data


def changed(random_: random.Random, data: bytes) -> bytes:
    """None, one or some bytes, a word of them, or the end."""
    found = bytearray(data)
    for _ in range(random_.randrange(4)):
        at = random_.randrange(len(found))
        match random_.randrange(5):
            case 0:
                found[at] = random_.randrange(256)
            case 1:
                found[at] ^= 1 << random_.randrange(8)
            case 2:
                word = random_.choice((0, 1, 7, 8, 1 << 20, 1 << 31, 1 << 63, 2**64 - 1))
                found[at & ~7 : (at & ~7) + 8] = struct.pack("<Q", word)
            case 3:
                found += random_.randbytes(random_.randrange(1, 9))
            case _:
                del found[max(1, at) :]
    return bytes(found)


def part(random_: random.Random, rows: int, layout: batch_wire.Layout) -> Any:
    """As a reader has it of a part of a file."""
    lengths = [random_.randrange(3) for _ in range(rows)]
    offsets = np.cumsum([0, *lengths], dtype=np.int64)
    bag = np.arange(offsets[-1], dtype=np.uint64)
    values = (bag.astype(np.float32),) if layout.columns else ()
    x = np.arange(layout.numbers * rows, dtype=np.float32).reshape(rows, layout.numbers)
    single = len(layout.bags) - sum(layout.bags)
    ids = np.arange(single * rows, dtype=np.uint64).reshape(rows, single)
    return x, ids, [(bag, offsets, *values)], np.arange(rows, dtype=np.int32) % 2, None


def answers(random_: random.Random, layout: batch_wire.Layout) -> Iterator[tuple[int, bytes]]:
    """Of so many rows, in one part or two."""
    while True:
        parts = [
            part(random_, random_.randrange(1, MOST // 2), layout)
            for _ in range(random_.choice((1, 2)))
        ]
        said = Link()
        batch_wire.send(said, parts)  # type: ignore[arg-type]
        if random_.randrange(8) == 0:
            said = Link()
            batch_wire.refuse(said, "a file has changed")  # type: ignore[arg-type]
        yield sum(len(each[3]) for each in parts), bytes(said.said)


@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_trainer_takes_rows_or_refuses_what_it_hears(kind: str) -> None:
    layout = LAYOUTS[kind]
    random_ = random.Random(1)
    sent = _core.SentRows(
        numbers=layout.numbers, bags=list(layout.bags), classes=True, values=1, weights=False,
        columns=layout.columns, distinct_columns=layout.distinct, rows=ROWS, passes=1,
        at_once=MOST, room=4 * MOST, stripe=1 << 16, readers=1,
    )  # fmt: skip
    taken = refused = 0
    for _, (count, answer) in zip(range(FUZZ), answers(random_, layout), strict=False):
        heard = changed(random_, answer)
        sent.expect(0, count)
        span = sent.wanted([True], 0.0)
        assert span == (0, count)
        try:
            found = batch_wire.receive(Link(heard), count, layout)  # type: ignore[arg-type]
            sent.give(span, found, 2)
        except REFUSED:
            assert heard != answer or answer[0] == 1, "what was right is refused"
            sent.lost(span)
            refused += 1
        else:
            x, ids, ((own, offsets, *values),), y, _ = found
            assert (len(x), len(ids), len(offsets), len(y)) == (count, count, count + 1, count)
            if layout.columns:
                assert len(values[0]) == len(own)
                assert (own < layout.columns).all()
            assert ((y == 0) | (y == 1)).all()
            taken += 1
        sent.forget()
        assert sent.held == 0
    assert taken > FUZZ // 10
    assert refused > FUZZ // 10


def test_a_reader_sends_rows_that_there_are_or_refuses_what_it_hears() -> None:
    random_ = random.Random(2)
    rows = SimpleNamespace(rows=ROWS)
    given = refused = 0
    for _ in range(FUZZ):
        said = Link()
        for _ in range(random_.randrange(1, 4)):
            first = random_.randrange(ROWS)
            batch_wire.ask(said, first, random_.randrange(1, ROWS - first + 1))  # type: ignore[arg-type]
        heard = changed(random_, bytes(said.said))
        try:
            for first, count in reader._asked(rows, Link(heard)):  # type: ignore[arg-type]
                assert 0 <= first < first + count <= ROWS
                given += 1
        except REFUSED:
            assert heard != said.said, "what was right is refused"
            refused += 1
    assert given > FUZZ // 10
    assert refused > FUZZ // 10
