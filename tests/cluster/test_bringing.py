"""Rows that rank 0 does not see are brought to it, whole, or who has them is told why not."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from warned import once

from leashed.cluster import bringing, joined_output, sent_files
from leashed.cluster.children import saved
from leashed.cluster.opening import Key, Listener, connect
from leashed.cluster.receiving import exactly
from leashed.cluster.session import Reached
from leashed.files.folders import MANIFEST

KEY = Key(b"k" * 32, given=True)
RUN = "run-of-test"
FILES = {MANIFEST: b"{}", "1.table0": b"x" * 3_000_000, "1.changes0": b""}


def rows(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    saved(folder).touch()
    return folder


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def receiving(wanted: Path, **given: Any) -> Iterator[tuple[bringing.Bringing, str]]:
    port = free_port()
    of = {"run": RUN, "wanted": {1: wanted}, "timeout": 5.0, **given}
    with bringing.Bringing("127.0.0.1", port, KEY, **of) as rank_0:
        while rank_0._listener is None:
            time.sleep(0.01)
        yield rank_0, f"127.0.0.1:{port}"


def send(folder: Path, address: str, seconds: float = 10.0, run: str = RUN) -> None:
    bringing.send(folder, 1, run, address, KEY, seconds)


def test_all_files_come_or_none(tmp_path: Path) -> None:
    there, here = rows(tmp_path / "there" / "embedding-ps-1"), tmp_path / "here" / "embedding-ps-1"
    with receiving(here) as (rank_0, address):
        assert rank_0.wait(0.0) == [here]
        send(there, address)
        assert rank_0.wait(0.0) == []
    assert {path.name: path.read_bytes() for path in here.iterdir()} == FILES
    assert saved(here).exists()
    assert [path.name for path in here.parent.iterdir() if path.name.endswith("coming")] == []


def test_rank_0_listens_as_soon_as_the_master_has_gone(tmp_path: Path) -> None:
    there, here = rows(tmp_path / "there"), tmp_path / "here"
    saved(there).unlink()
    with (
        Listener("127.0.0.1", 0, KEY, "master", lambda link, _: link.close()) as master,
        bringing.Bringing("127.0.0.1", master.port, KEY, RUN, {1: here}, 5.0) as rank_0,
    ):
        with pytest.raises(OSError, match="a master listens at"):
            send(there, master.address, 0.3)
        master.close()
        send(there, master.address)
        assert rank_0.wait(0.0) == []
    assert not saved(here).exists()


def test_a_port_that_somebody_else_has_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with bringing.Bringing("127.0.0.1", port, KEY, RUN, {1: tmp_path / "here"}, 5.0) as rank_0:
            assert rank_0.wait(0.3) == [tmp_path / "here"]
    (told,) = caplog.messages
    assert f"could not be brought here: somebody else has port {port}" in told


def test_who_comes_from_another_run_is_not_let_in(tmp_path: Path) -> None:
    there, here = rows(tmp_path / "there"), tmp_path / "here"
    with receiving(here) as (rank_0, address):
        with pytest.raises(ConnectionError):
            send(there, address, 1.0, run="another")
        assert rank_0.wait(0.0) == [here]


def test_a_disk_that_is_full_is_told_to_who_has_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = rows(tmp_path / "there"), tmp_path / "here"
    monkeypatch.setattr(sent_files, "_free", lambda _: 2_999_999)
    full = r"rank 0 does not write them to .*here: .*No space left"
    with receiving(here) as (_, address), pytest.raises(OSError, match=full):
        send(there, address)
    assert not here.exists()


@pytest.mark.parametrize(
    "told",
    [
        {"files": [["../key", 1]], "saved": True},
        {"files": [["/etc/key", 1]], "saved": True},
        {"files": [["..", 1]], "saved": True},
        {"files": [["a", -1]], "saved": True},
        {"files": [["a", 1.5]], "saved": True},
        {"files": [[1, 1]], "saved": True},
        {"files": [["a"]], "saved": True},
        {"files": 3, "saved": True},
        {"files": [], "saved": "yes"},
        [],
        None,
    ],
)
def test_what_is_no_list_of_files_is_refused(told: object, tmp_path: Path) -> None:
    here = tmp_path / "deep" / "here"
    head = json.dumps(told).encode()
    with receiving(here) as (_, address):
        said = answer(address, struct.pack("<I", len(head)) + head + b"x")
    assert "something else comes than " in said
    assert not here.exists()
    assert not list(tmp_path.rglob("key"))


@pytest.mark.parametrize("data", [b"", b"\xff\xff\xff\xff", b"\x05\0\0\0{{{{{", b"\x09\0\0\0{}"])
def test_what_is_cut_or_no_head_leaves_nothing(data: bytes, tmp_path: Path) -> None:
    with receiving(tmp_path / "here") as (_, address):
        assert "rank 0 does not write them" in answer(address, data)
    assert not (tmp_path / "here").exists()


def test_files_that_end_too_early_are_not_taken(tmp_path: Path) -> None:
    here = tmp_path / "here"
    head = json.dumps({"files": [["a", 2], ["b", 2]], "saved": True}).encode()
    with receiving(here) as (_, address):
        said = answer(address, struct.pack("<I", len(head)) + head + b"aab")
        assert "closed the connection in the middle" in said
        assert not here.exists()
        send(rows(tmp_path / "there"), address)
    assert {path.name for path in here.iterdir()} == set(FILES)


def answer(address: str, data: bytes) -> str:
    link = connect(
        address, KEY, role="embedding-ps", name=f"embedding-ps-1@{RUN}", purpose="rows", deadline=10.0
    )  # fmt: skip
    with link:
        link.sendall(data)
        link.shutdown(socket.SHUT_WR)
        while not isinstance(said := reply(link), str):
            pass
        return said


def reply(link: socket.socket) -> Any:
    """What is said next."""
    (length,) = struct.unpack("<I", exactly(link, 4))
    return json.loads(exactly(link, length))


def test_a_disk_that_fills_up_meanwhile_is_told_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = rows(tmp_path / "there"), tmp_path / "here"
    (tmp_path / "here.coming").mkdir()
    (tmp_path / "here.coming" / "1.table0").mkdir()
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    with (
        receiving(here) as (_, address),
        pytest.raises(OSError, match="rank 0 does not write them"),
    ):
        send(there, address)
    assert not here.exists()


def test_nobody_waits_for_a_rank_0_that_does_not_come(tmp_path: Path) -> None:
    with pytest.raises(ConnectionRefusedError):
        send(rows(tmp_path / "there"), f"127.0.0.1:{free_port()}", 0.2)


def test_rows_that_did_not_reach_rank_0_are_told_of(tmp_path: Path) -> None:
    reached = Reached(RUN, None, np.zeros(1, np.float32), None)
    there = rows(tmp_path / "embedding-ps-1")
    with once("rank 0 has not got the rows of embedding server ") as told:
        joined_output.send(tmp_path, 1, reached, f"127.0.0.1:{free_port()}", KEY, 0.1)
    assert (
        f"{there}; copied to one machine with those of the others, lsh.cluster.tables_of("
        in str(told[0].message)
    )


def begin(address: str, head: object) -> socket.socket:
    """A sender that has told what comes, and was let."""
    link = connect(
        address, KEY, role="embedding-ps", name=f"embedding-ps-1@{RUN}", purpose="rows", deadline=10.0
    )  # fmt: skip
    text = json.dumps(head).encode()
    link.sendall(struct.pack("<I", len(text)) + text)
    assert isinstance(reply(link), list)
    return link


def test_rows_that_still_come_are_waited_for(tmp_path: Path) -> None:
    here = tmp_path / "here"
    size = 8 << 20
    with receiving(here) as (rank_0, address):

        def slowly() -> None:
            with begin(address, {"files": [["a", size]], "saved": True}) as link:
                for _ in range(8):
                    time.sleep(0.2)
                    link.sendall(bytes(size // 8))
                assert reply(link) == ""

        sender = threading.Thread(target=slowly)
        sender.start()
        assert rank_0.wait(0.8) == []
        sender.join()
    assert (here / "a").stat().st_size == size


def test_what_is_there_in_part_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parameters of a policy server are put beside its folder before that is there."""
    here = tmp_path / "here"
    rename = Path.rename

    def slowly(path: Path, target: Path) -> Path:
        if path.suffix == ".coming":
            time.sleep(0.3)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", slowly)
    with receiving(here) as (rank_0, address):

        def sends() -> None:
            files = [[MANIFEST, 1], ["here.npz", 1]]
            with begin(address, {"files": files, "saved": False}) as link:
                link.sendall(b"ab")
                assert reply(link) == ""

        sender = threading.Thread(target=sends)
        sender.start()
        assert rank_0.wait(10.0) == []
        assert here.exists()
        sender.join()


def test_half_of_what_comes_takes_no_room_of_the_disk(tmp_path: Path) -> None:
    here = tmp_path / "here"
    with receiving(here) as (rank_0, address):
        begin(address, {"files": [["a", 2 << 20], ["b", 2]], "saved": True}).close()
        while rank_0._coming:  # another is refused while the first may still send
            time.sleep(0.01)
        send(rows(tmp_path / "there"), address)
        assert here.exists()
    with receiving(tmp_path / "other") as (_, address):
        link = begin(address, {"files": [["a", 2], ["b", 2]], "saved": True})
        link.sendall(b"aab")
        link.shutdown(socket.SHUT_WR)
        assert reply(link)
        link.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "here", "here.saved", "there", "there.saved",
    ]  # fmt: skip


def test_of_two_who_send_the_same_rows_the_first_is_heard(tmp_path: Path) -> None:
    there, here = rows(tmp_path / "there"), tmp_path / "here"
    with receiving(here) as (_, address):
        with begin(address, {"files": [["a", 2]], "saved": False}) as first:
            first.sendall(b"a")
            with pytest.raises(OSError):  # noqa: PT011 (as the connection happens to end)
                send(there, address, 1.0)
            first.sendall(b"b")
            assert reply(first) == ""
        with pytest.raises(OSError):  # noqa: PT011
            send(there, address, 1.0)
    assert {path.name: path.read_bytes() for path in here.iterdir()} == {"a": b"ab"}
    assert not saved(here).exists()
