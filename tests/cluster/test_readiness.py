"""A server that is still being made is waited for, as long as it says so."""

from __future__ import annotations

import os
import socket
import threading
import time
from concurrent.futures import CancelledError, Future
from types import SimpleNamespace
from typing import Any

import pytest
from cluster import inside

from leashed.cluster import server_tending
from leashed.cluster.connecting import Connecting
from leashed.cluster.opening import Listener, Peer
from leashed.cluster.readiness import await_made, tell_made
from leashed.cluster.server_tending import ROWS, ServerTending
from leashed.cluster.serving import Made, accepting

SLOTS = 3


class Native:
    """Of one server, with which it has connections."""

    slots = SLOTS

    def __init__(self) -> None:
        self.there: set[int] = set()
        self.expected = 0

    def missing(self, _: int) -> list[tuple[int, int]]:
        return [(slot, 0) for slot in range(SLOTS) if slot not in self.there]

    def adopt(self, slot: int, _: int, link: int, *__: Any) -> bool:
        os.close(link)
        self.there.add(slot)
        return True

    def expect(self) -> None:
        self.expected += 1


def test_a_server_that_is_being_made_is_waited_for_by_one_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However long it takes; it was given up after five seconds, again and again."""
    monkeypatch.setattr(server_tending, "_PROBING", 0.5)
    made: Made = Future()
    accept, accepted = accepting(made, ROWS, "tcp"), []

    def accepts(link: socket.socket, peer: Peer) -> None:
        accepted.append(peer)
        accept(link, peer)

    native, closing = Native(), threading.Event()
    with Listener("127.0.0.1", 0, inside.KEY, "embedding-ps", accepts) as listener:
        connecting = Connecting("trainer-0", "0123", inside.KEY, inside.PATIENCE, closing)
        servers = ServerTending("embedding-ps", ROWS, connecting, 1, "tcp", Native.expect)
        servers.told({0: listener.address})
        while native.expected < 20:
            servers.tend(native)
            time.sleep(0.01)
        (why,) = servers.amiss().values()
        assert why.endswith("is not reached: it says that it still makes or reads what it serves")
        assert len(accepted) <= SLOTS
        (said,) = (each for each in caplog.messages if "is waited for" in each)
        assert said.startswith(f"embedding server 0 at {listener.address} is waited for")
        serves = SimpleNamespace(adopt=lambda link, *_: os.close(link))
        made.set_result(("0123", serves))
        while native.missing(1):
            servers.tend(native)
            time.sleep(0.01)
        while servers.amiss():
            servers.tend(native)


def test_who_waits_for_a_server_ends_with_its_run() -> None:
    made: Made = Future()
    native, closing = Native(), threading.Event()
    with Listener(
        "127.0.0.1", 0, inside.KEY, "embedding-ps", accepting(made, ROWS, "tcp")
    ) as listener:
        connecting = Connecting("trainer-0", "0123", inside.KEY, inside.PATIENCE, closing)
        servers = ServerTending("embedding-ps", ROWS, connecting, 1, "tcp", Native.expect)
        servers.told({0: listener.address})
        servers.tend(native)
        while native.expected == 0:
            time.sleep(0.01)
        closing.set()
        while servers._under_way:
            time.sleep(0.01)
        made.cancel()
    assert not native.there


@pytest.mark.parametrize("how", ["silent", "gone"])
def test_a_server_that_says_nothing_is_not_waited_for(how: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if how == "gone":
            theirs.close()
        with pytest.raises(OSError, match="timed out" if how == "silent" else "has ended"):
            await_made(ours, 0.1, lambda: None)


def test_what_is_not_made_any_more_ends_the_connection() -> None:
    made: Future[int] = Future()
    ours, theirs = socket.socketpair()
    said: list[bool] = []

    def tell() -> None:
        with theirs, pytest.raises(CancelledError):
            tell_made(theirs, made)

    teller = threading.Thread(target=tell)
    teller.start()

    def making() -> None:
        said.append(True)
        made.cancel()

    with ours, pytest.raises(ConnectionError, match="it has ended the connection"):
        await_made(ours, inside.PATIENCE, making)
    teller.join()
    assert said
