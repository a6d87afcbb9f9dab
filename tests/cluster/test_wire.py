"""Messages come back as they were, in whatever pieces; what is none is told."""

from __future__ import annotations

import json
import os
import random

import msgspec
import pytest

from leashed.cluster import wire
from leashed.cluster.messages import (
    Account,
    Beat,
    Bye,
    Done,
    End,
    Epoch,
    FromMaster,
    Gone,
    Join,
    Lease,
    Placed,
    Rejoin,
    Report,
    Seat,
    Servers,
    ToMaster,
    Welcome,
)
from leashed.cluster.packing import Costs

UP: list[ToMaster] = [
    Join("trainer", 3, "[::1]:7000"),
    Rejoin("run", 7),
    Join("trainer", 3, "[::1]:7000", Rejoin("run", 7)),
    Report(),
    Beat(),
    Report(
        3, 4, True, 3, 2, True, True, [(5, 6)], [(5, 7, 2)], 7, 8, {"loss": 0.25}, {"loss": 0.125}
    ),
]
DOWN: list[FromMaster] = [
    Welcome("run", 1, 0.5, 5.0),
    Welcome("run", 1, 0.5, 5.0, {"sync-ps": Placed(2, Costs(1e-5, 5e-5))}),
    Gone("ü"),
    Lease(1, 2, 3, 4, 5),
    Done([1, 2]),
    Servers(3, {"sync-ps": {0: "a:1", 11: "b:2"}}),
    Epoch(4, [Seat(1, 0, "a:1", True), Seat(2, 1, "b:1", False)]),
    End("x"),
    Bye("y"),
    Beat(),
    Account(7, [(1, 2)]),
]
FUZZ = int(os.environ.get("LEASHED_FUZZ", "3000"))


@pytest.mark.parametrize("size", [1, 3, 7, 1 << 16])
def test_messages_come_back_in_pieces(size: int) -> None:
    up = b"".join(wire.encode(message) for message in UP)
    down = b"".join(wire.encode(message) for message in DOWN)
    to, from_ = wire.to_master(), wire.from_master()
    assert [m for at in range(0, len(up), size) for m in to.feed(up[at : at + size])] == UP
    assert [m for at in range(0, len(down), size) for m in from_.feed(down[at : at + size])] == DOWN


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "little") + body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[1]",
        b"nonsense",
        b"\xff\xff",
        b'{"type":"nothing"}',
        b'{"type":"rejoin","run":"r"}',
        b'{"type":"rejoin","run":"r","id":-1}',
        b'{"type":"rejoin","run":"r","id":1.5}',
        b'{"type":"rejoin","run":"r","id":"1"}',
        b'{"type":"rejoin","run":"","id":1}',
        b'{"type":"rejoin","run":"r","id":99999999999999999999}',
        b'{"type":"rejoin","run":"r","id":1,"more":2}',
        b'{"type":"join","role":"king","index":0,"address":""}',
        b'{"type":"join","role":"trainer","index":65536,"address":""}',
        b'{"type":"join","role":"trainer","index":0,"address":"' + b"a" * 301 + b'"}',
        b'{"type":"join","role":"trainer","index":0,"address":"","before":7}',
        b'{"type":"join","role":"trainer","index":0,"address":"","before":{"run":"r"}}',
        b'{"type":"report","metrics":{"loss":null}}',
        b'{"type":"report","used":[[1]]}',
        b'{"type":"report","used":[' + b"[1,1]," * 4096 + b"[1,1]]}",
        b'{"type":"beat","of":1}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_message_is_told(body: bytes) -> None:
    with pytest.raises(wire.Malformed):
        wire.to_master().feed(frame(body))


def test_a_length_beyond_the_limit_is_refused_before_its_bytes_come() -> None:
    with pytest.raises(wire.Malformed, match="a message of 1048577 bytes; the longest has 1048576"):
        wire.to_master().feed((wire.LONGEST + 1).to_bytes(4, "little"))
    with pytest.raises(ValueError, match="at most 1048576 bytes, got"):
        wire.encode(Bye("x" * wire.LONGEST))


def test_mutated_messages_are_messages_or_malformed_and_nothing_else() -> None:
    random_ = random.Random(3)
    data = b"".join(wire.encode(message) for message in UP)
    malformed = 0
    for _ in range(FUZZ):
        changed = bytearray(data)
        for _ in range(random_.randint(1, 4)):
            changed[random_.randrange(len(changed))] = random_.randrange(256)
        reader = wire.to_master()
        try:
            messages = reader.feed(bytes(changed))
        except wire.Malformed:
            malformed += 1
        else:
            assert all(isinstance(message, Join | Rejoin | Report | Beat) for message in messages)
            assert len(reader._heard) <= len(data)
    assert malformed > FUZZ / 2


def test_it_is_json_that_people_can_read() -> None:
    assert json.loads(wire.encode(UP[1])[4:]) == {"type": "rejoin", "run": "run", "id": 7}
    assert msgspec.json.decode(wire.encode(Beat())[4:]) == {"type": "beat"}
