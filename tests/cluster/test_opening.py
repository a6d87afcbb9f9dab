"""How connections begin: what is let in, and above all what is not."""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import queue
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leashed.cluster import listening, opening
from leashed.cluster.handshake import ANSWER, CLAIM, GREETING
from leashed.cluster.opening import (
    Answering,
    Asking,
    Key,
    Listener,
    Peer,
    Refused,
    connect,
    make_key,
    parse_address,
    read_key,
)

KEY = Key(b"k" * 32, given=False)
OTHER = Key(b"o" * 32, given=False)
# LEASHED_FUZZ: how many handshakes, as values and through sockets; a hundred thousand by hand.
FUZZ = int(os.environ.get("LEASHED_FUZZ", "3000"))
THROUGH_SOCKETS = int(os.environ.get("LEASHED_FUZZ", "300"))
ROOM = 16 << 20  # bytes that a process may grow by


def asking(key: Key = KEY, purpose: str = "control") -> Asking:
    return Asking(key, "trainer", "trainer-0", purpose)


class Door:
    """A listener, and what came through."""

    def __init__(self, key: Key = KEY, host: str = "127.0.0.1") -> None:
        self.came: queue.SimpleQueue[tuple[socket.socket, Peer]] = queue.SimpleQueue()
        self.listener = Listener(host, 0, key, "master", lambda *got: self.came.put(got))

    def raw(self) -> socket.socket:
        """A connection that has said nothing yet."""
        return socket.create_connection((self.listener.host, self.listener.port), timeout=10)

    def honest(self, key: Key = KEY) -> socket.socket:
        return connect(
            self.listener.address, key, role="trainer", name="trainer-0", purpose="control",
            deadline=10,
        )  # fmt: skip

    def close(self) -> None:
        self.listener.close()
        with contextlib.suppress(queue.Empty):
            while True:
                self.came.get_nowait()[0].close()


@pytest.fixture
def door() -> Iterator[Door]:
    door = Door()
    yield door
    door.close()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    gc.collect()  # what tests before left in cycles would go in this one
    before = open_descriptors()
    yield
    assert open_descriptors() == before
    assert not [t for t in threading.enumerate() if t.name == "leashed-listener"]


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resident() -> int:
    """Bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def heard_until_end(connection: socket.socket) -> bytes:
    heard = b""
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(4096):
            heard += more
    return heard


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_both_ends_know_each_other_and_nothing_more_is_read(door: Door) -> None:
    with door.honest() as client:
        server, peer = door.came.get(timeout=10)
        assert (peer.role, peer.name, peer.purpose) == ("trainer", "trainer-0", "control")
        assert parse_address(peer.address) == client.getsockname()
        with server:
            client.sendall(b"to the server")
            server.sendall(b"to the client")
            assert server.recv(100) == b"to the server"
            assert client.recv(100) == b"to the client"
            assert server.gettimeout() is None
            assert client.gettimeout() is None
            assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert server.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert door.listener.refused == 0


def test_both_ends_ask_whether_a_silent_host_is_there(door: Door) -> None:
    with door.honest() as client, door.came.get(timeout=10)[0] as server:
        for end in (client, server):
            assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


def test_what_a_client_sends_right_behind_its_proof_is_not_read(door: Door) -> None:
    with door.raw() as client:
        hand = asking()
        claim = hand.claim(client.recv(GREETING))
        client.sendall(claim + b"behind")
        server, _ = door.came.get(timeout=10)
        with server:
            assert hand.check(client.recv(ANSWER)) == "master"
            assert server.recv(100) == b"behind"


def test_another_key_is_told_and_gets_no_byte(door: Door) -> None:
    with pytest.raises(Refused, match=r"holds another key .*same key file\)"):
        door.honest(OTHER)
    with door.raw() as client:
        greeting = client.recv(GREETING)
        client.sendall(asking(OTHER).claim(greeting))
        assert heard_until_end(client) == b""
    wait_until(lambda: door.listener.refused == 2)
    assert door.came.empty()


def test_a_replayed_proof_gets_no_byte(door: Door) -> None:
    with door.raw() as first:
        claim = asking().claim(first.recv(GREETING))
        first.sendall(claim)
        door.came.get(timeout=10)[0].close()
    with door.raw() as second:
        second.recv(GREETING)
        second.sendall(claim)
        assert heard_until_end(second) == b""
    assert door.came.empty()


def test_a_reflected_proof_gets_no_byte(door: Door) -> None:
    """What the server says, sent back to it; and a server that sends back what the client says."""
    with door.raw() as client:
        greeting = client.recv(GREETING)
        client.sendall((greeting * 5)[:CLAIM])
        assert heard_until_end(client) == b""
    hand = asking()
    claim = hand.claim(Answering(KEY, "master").greeting)
    for answer in (claim[-ANSWER:], claim[:ANSWER]):
        with pytest.raises(Refused):
            hand.check(answer)


def test_an_impostor_is_told_and_gets_nothing_after_the_claim() -> None:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as impostor:

        def pretend() -> None:
            connection, _ = impostor.accept()
            with connection:
                answering = Answering(OTHER, "master")
                connection.sendall(answering.greeting)
                heard.append(connection.recv(4096))
                connection.sendall(b"\1" * ANSWER)
                heard.append(heard_until_end(connection))

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(Refused, match="does not prove that it holds the key"):
            connect(
                f"127.0.0.1:{impostor.getsockname()[1]}", KEY, role="trainer", name="n",
                purpose="control", deadline=10,
            )  # fmt: skip
        thread.join()
    assert len(heard[0]) == CLAIM
    assert heard[1] == b""


@pytest.mark.parametrize("part", [b"trainer\0", b"trainer-0", b"control"])
def test_role_name_and_purpose_are_under_the_proof(part: bytes) -> None:
    answering = Answering(KEY, "master")
    claim = asking().claim(answering.greeting)
    answering.answer(claim, "here:1")
    with pytest.raises(Refused):
        answering.answer(claim.replace(part, part.swapcase(), 1), "here:1")


def test_the_servers_role_is_under_its_proof() -> None:
    answering, hand = Answering(KEY, "master"), asking()
    answer, _ = answering.answer(hand.claim(answering.greeting), "here:1")
    assert hand.check(answer) == "master"
    with pytest.raises(Refused):
        hand.check(answer.replace(b"master", b"mister"))


def test_an_answer_to_another_claim_proves_nothing() -> None:
    answering, first, second = Answering(KEY, "master"), asking(), asking()
    answer, _ = answering.answer(first.claim(answering.greeting), "here:1")
    second.claim(answering.greeting)
    with pytest.raises(Refused):
        second.check(answer)


def test_other_versions_and_other_programs_are_told() -> None:
    greeting = Answering(KEY, "master").greeting
    with pytest.raises(Refused, match="opens by version 9, this release by 1"):
        asking().claim(b"leashed\x09" + greeting[8:])
    with pytest.raises(Refused, match="is no leashed process"):
        asking().claim(b"HTTP/1.1 400 Bad Request".ljust(GREETING))


def test_mutated_claims_prove_nothing() -> None:
    """As values, so many of them are quick."""
    random_ = random.Random(1)
    answering = Answering(KEY, "master")
    for _ in range(FUZZ):
        claim = asking(purpose=random_.choice(["control", "result"])).claim(answering.greeting)
        assert answering.answer(claim, "here:1")[0]
        with pytest.raises(Refused):
            answering.answer(mutated(claim, random_), "here:1")


def mutated(data: bytes, random_: random.Random) -> bytes:
    changed = bytearray(data)
    kind = random_.randrange(4)
    if kind == 0:  # bits
        for _ in range(random_.randint(1, 8)):
            changed[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
    elif kind == 1:  # noise
        at = random_.randrange(len(data))
        changed[at:] = random_.randbytes(len(data) - at)
    elif kind == 2:  # moved
        at = random_.randrange(1, len(data))
        changed = changed[at:] + changed[:at]
    else:  # all of it
        changed = bytearray(random_.randbytes(len(data)))
    if changed == data:
        changed[0] ^= 1
    return bytes(changed)


def test_strangers_at_the_door_get_no_byte(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    """Mutated, truncated, too long and in pieces, through real sockets."""
    caplog.set_level(logging.WARNING)  # pytest would keep a line for each
    random_ = random.Random(2)
    before = resident()
    for turn in range(THROUGH_SOCKETS):
        with door.raw() as client:
            client.settimeout(10)
            claim = asking().claim(client.recv(GREETING, socket.MSG_WAITALL))
            data = spoilt(claim, turn, random_)
            with contextlib.suppress(OSError):
                while data:
                    size = random_.randint(1, len(data))
                    client.sendall(data[:size])
                    data = data[size:]
                client.shutdown(socket.SHUT_WR)
            assert heard_until_end(client) == b""
    wait_until(lambda: door.listener.refused == THROUGH_SOCKETS)
    assert not door.listener._half_open
    with door.honest():
        door.came.get(timeout=10)[0].close()
    assert door.came.empty()
    assert resident() - before < ROOM


def spoilt(data: bytes, turn: int, random_: random.Random) -> bytes:
    """Mutated; every third also cut off, every third with more behind it."""
    data = mutated(data, random_)
    if turn % 3 == 0:
        return data[: random_.randrange(len(data))]
    if turn % 3 == 1:
        return data + random_.randbytes(random_.randrange(5000))
    return data


def test_strangers_who_are_called_get_no_byte_after_the_claim() -> None:
    """A server that spoils its greeting, its answer, or what it heard."""
    random_ = random.Random(3)
    before = resident()
    beyond = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as impostor:

        def pretend() -> None:
            for turn in range(THROUGH_SOCKETS):
                connection, _ = impostor.accept()
                connection.settimeout(10)
                with connection, contextlib.suppress(OSError):
                    answering = Answering(KEY, "master")
                    if turn % 2 == 0:
                        connection.sendall(spoilt(answering.greeting, turn // 2, random_))
                    else:
                        connection.sendall(answering.greeting)
                        claim = connection.recv(CLAIM, socket.MSG_WAITALL)
                        answer, _ = answering.answer(claim, "here:1")
                        said = random_.choice([answer, claim[:ANSWER], claim[-ANSWER:]])
                        connection.sendall(spoilt(said, turn // 2, random_))
                    connection.shutdown(socket.SHUT_WR)
                    beyond.extend(heard_until_end(connection)[CLAIM if turn % 2 == 0 else 0 :])

        thread = threading.Thread(target=pretend, daemon=True)
        thread.start()
        address = f"127.0.0.1:{impostor.getsockname()[1]}"
        for _ in range(THROUGH_SOCKETS):
            with pytest.raises((Refused, ConnectionResetError)):
                connect(address, KEY, role="trainer", name="n", purpose="control", deadline=10)
        thread.join()
    assert not beyond
    assert resident() - before < ROOM


def test_a_flood_that_never_speaks_keeps_nobody_out(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "_HALF_OPEN", 20)
    with contextlib.ExitStack() as flood:
        for _ in range(100):
            flood.enter_context(door.raw())
            assert len(door.listener._half_open) <= 20
        for _ in range(5):
            with door.honest():
                door.came.get(timeout=10)[0].close()
        wait_until(lambda: door.listener.refused >= 80)
        assert len(door.listener._half_open) <= 20


def test_a_listener_whose_thread_ends_before_it_is_woken_is_closed(door: Door) -> None:
    wake = door.listener._wake

    class Late:
        close = wake.close

        def send(self, data: bytes) -> int:
            wake.send(data)
            door.listener._thread.join()
            return wake.send(data)

    door.listener._wake = Late()


def test_who_speaks_too_slowly_is_cut_off(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_TIME_TO_PROVE", 0.2)
    with door.raw() as client:
        claim = asking().claim(client.recv(GREETING, socket.MSG_WAITALL))
        with contextlib.suppress(OSError):
            for byte in claim:
                client.sendall(bytes([byte]))
                time.sleep(0.01)
        assert heard_until_end(client) == b""
    assert door.listener.refused == 1
    assert door.came.empty()


def test_no_descriptors_left_is_no_end(
    door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not for who has been accepted, and is about to prove itself, either."""
    real = door.listener._socket

    class Full:
        times = 0

        def accept(self) -> tuple[socket.socket, tuple[str, int]]:
            if door.listener._half_open:
                self.times += 1
                raise OSError(24, "Too many open files")
            return real.accept()

    full = Full()
    monkeypatch.setattr(door.listener, "_accept_some", lambda: accept_by(door.listener, full, real))
    for _ in range(3):
        with door.honest():
            door.came.get(timeout=10)[0].close()
    assert full.times >= 3
    assert door.listener.refused == 0
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "Too many open files" in caplog.text


def test_who_is_silent_makes_room_where_no_descriptors_are_left(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "_SILENT", 0.0)
    real = door.listener._socket
    shortage = threading.Event()

    class Full:
        def accept(self) -> tuple[socket.socket, tuple[str, int]]:
            if shortage.is_set():
                shortage.clear()
                raise OSError(24, "Too many open files")
            return real.accept()

    full = Full()
    monkeypatch.setattr(door.listener, "_accept_some", lambda: accept_by(door.listener, full, real))
    with door.raw() as silent:
        assert len(silent.recv(GREETING, socket.MSG_WAITALL)) == GREETING
        shortage.set()
        with door.raw(), pytest.raises(ConnectionResetError):
            silent.recv(1)
        assert door.listener.refused == 1


@pytest.mark.parametrize("want", ["time", "places", "descriptors"])
def test_a_want_of_the_listener_is_told_from_another_key(
    want: str, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a reset: who is told so comes again."""
    monkeypatch.setattr(listening, "_SILENT", 0.0)
    if want == "time":
        monkeypatch.setattr(listening, "_TIME_TO_PROVE", 0.2)
    with door.raw() as client:
        assert len(client.recv(GREETING, socket.MSG_WAITALL)) == GREETING
        monkeypatch.setattr(listening, "_HALF_OPEN", 1)
        if want == "descriptors":
            error = OSError(errno.EMFILE, "Too many open files")
            monkeypatch.setattr(
                door.listener, "_accept_some", lambda: door.listener._wait_for_room(error)
            )
        another = contextlib.nullcontext() if want == "time" else door.raw()
        with another, pytest.raises(ConnectionResetError):
            client.recv(1)
    with socket.create_server(("127.0.0.1", 0)) as full:

        def break_off() -> None:
            connection, _ = full.accept()
            connection.sendall(Answering(KEY, "master").greeting)
            connection.recv(CLAIM, socket.MSG_WAITALL)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

        thread = threading.Thread(target=break_off)
        thread.start()
        address = opening.format_address(*full.getsockname())
        with pytest.raises(ConnectionResetError, match=r"has no descriptors left, .* its log says"):
            connect(address, KEY, role="trainer", name="n", purpose="control", deadline=20)
        thread.join()


def accept_by(listener: Listener, full: object, real: socket.socket) -> None:
    listener._socket = full  # type: ignore[assignment]
    try:
        Listener._accept_some(listener)
    finally:
        listener._socket = real


def test_a_callback_that_fails_closes_that_connection_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def accept(connection: socket.socket, peer: Peer) -> None:
        if peer.purpose == "bad":
            raise ValueError("no such purpose")
        connection.close()

    with Listener("127.0.0.1", 0, KEY, "master", accept) as listener:
        for purpose in ("bad", "good"):
            with connect(
                listener.address, KEY, role="trainer", name="n", purpose=purpose, deadline=10
            ) as client:
                assert heard_until_end(client) == b""
    assert "no such purpose" in caplog.text


def test_a_silent_server_is_given_up_at_the_deadline() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(TimeoutError, match=r"did not prove itself within 0\.1 s"),
    ):
        connect(
            f"127.0.0.1:{silent.getsockname()[1]}", KEY, role="trainer", name="n", purpose="p",
            deadline=0.1,
        )  # fmt: skip


def test_nobody_there_is_refused_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            connect(
                f"127.0.0.1:{taken.getsockname()[1]}", KEY, role="trainer", name="n", purpose="p",
                deadline=10,
            )  # fmt: skip


def test_closing_is_prompt_with_connections_half_open() -> None:
    door = Door()
    with door.raw() as client:
        client.recv(GREETING)
        door.close()
        door.close()
        assert heard_until_end(client) == b""
    with pytest.raises(ConnectionRefusedError):
        door.raw()


def test_ipv6() -> None:
    try:
        door = Door(host="::1")
    except OSError:
        pytest.skip("there is no IPv6 here")
    assert door.listener.address.startswith("[::1]:")
    with door.honest():
        server, peer = door.came.get(timeout=10)
        server.close()
        assert peer.address.startswith("[::1]:")
    door.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "example.org"])
def test_other_machines_are_let_in_by_a_key_file_only(host: str) -> None:
    with pytest.raises(ValueError, match=r"host .* give it as key_file; or listen on 127"):
        Listener(host, 0, KEY, "master", lambda *_: None)


def test_with_a_key_file_any_address_will_do() -> None:
    with Listener("0.0.0.0", 0, Key(b"k" * 32, given=True), "master", lambda *_: None) as listener:
        assert listener.host == "0.0.0.0"


def test_a_port_in_use_is_told(door: Door) -> None:
    """With the name of what gives another."""
    where = rf"cannot listen at {door.listener.address}: .* in use; .*, or give another: "
    for role, name in (("master", "master in a plan's"), ("trainer", "--ports of leashed")):
        with pytest.raises(OSError, match=where + name) as error:
            Listener("127.0.0.1", door.listener.port, KEY, role, lambda *_: None)
        assert error.value.errno == errno.EADDRINUSE


def test_a_key_is_written_once_and_for_this_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    made = make_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(made.secret) == 32
    assert not made.given
    assert read_key(path) == Key(made.secret, given=True)
    assert read_key(path, given=False) == made
    assert made.secret.hex() not in repr(made)
    assert str(made.secret) not in repr(made)
    with pytest.raises(FileExistsError, match="never overwritten"):
        make_key(path)
    assert read_key(path).secret == made.secret


def test_key_files_that_are_no_secret_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key"
    make_key(path)
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(PermissionError, match=r"others can read or write.*chmod 600"):
            read_key(path)
    path.chmod(0o600)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(PermissionError, match=r"of user .*; copy it"):
            read_key(path)
    for content in (b"", b"x" * 31, b"x" * 1025):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="must hold 32 to 1024 bytes"):
            read_key(path)
    with pytest.raises(ValueError, match="regular file"):
        read_key(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_key(tmp_path / "none")


@pytest.mark.parametrize("address", ["[::1]:7000", "10.0.0.1:1", "host.example:65535"])
def test_addresses_come_back(address: str) -> None:
    assert opening.format_address(*parse_address(address)) == address


@pytest.mark.parametrize(
    "address", ["", "host", ":7000", "host:", "host:x", "host:65536", "::1:7000", "h:-1", "h:٣"]
)
def test_no_addresses(address: str) -> None:
    with pytest.raises(ValueError, match=r"master .*|master: an IPv6"):
        parse_address(address, "master")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"role": ""}, ValueError, "role must be 1 to 16"),
        ({"role": "r" * 17}, ValueError, "role must be 1 to 16"),
        ({"name": "n\0"}, ValueError, "name must be 1 to 64 printable"),
        ({"purpose": "é"}, ValueError, "purpose must be 1 to 16 printable ASCII"),
        ({"purpose": 3}, TypeError, "purpose must be a str"),
        ({"address": 3}, TypeError, "address must be a str"),
    ],
)
def test_wrong_arguments(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    given = {"role": "trainer", "name": "n", "purpose": "p", "address": "127.0.0.1:1", **arguments}
    with pytest.raises(error, match=message):
        connect(given.pop("address"), KEY, deadline=1, **given)  # type: ignore[arg-type]
