"""Readers' files at their edges, the folder of their index, and readers that send nothing."""

from __future__ import annotations

import gzip
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cluster.test_readers import BAGS, bag_lines, criteo_lines, up
from cluster.test_up_days import DAYS, told, written

from leashed import _core, cli, stream
from leashed.cli import cluster as command
from leashed.cluster import batch_wire, row_index
from leashed.cluster.remote_batches import BatchTending, SentStream
from leashed.cluster.row_index import index_of

PATIENCE = 60.0


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("first", [b"1\tno\n", b"no\n", b"\x00\xff\n"])
def test_a_bad_first_line_is_one_line(tmp_path: Path, first: bytes, pack: Any) -> None:
    """It tells nothing of how the lines behind it are written."""
    lines = criteo_lines(100).splitlines(keepends=True)
    (tmp_path / "a.tsv").write_bytes(pack(b"".join([first, *lines])))
    skipping = stream.criteo(tmp_path / "a.tsv", bad="skip")
    opened = skipping.open()
    opened.read(None)
    index = index_of(skipping, None, tmp_path / "run")
    assert index.counts == opened.counts
    assert (index.rows, [bad.number for bad in index.counts.first_bad]) == (100, [1])


def test_a_bad_line_behind_the_names_is_one_line(tmp_path: Path) -> None:
    names, *lines = bag_lines(40).replace(b"\n\n", b"\n").splitlines(keepends=True)
    (tmp_path / "a.csv").write_bytes(b"".join([names, b"no\n", *lines]))
    index = index_of(stream.csv(tmp_path / "a.csv", BAGS, bad="skip"), None, tmp_path / "run")
    assert (index.rows, [bad.number for bad in index.counts.first_bad]) == (40, [2])


def test_rows_that_are_not_shuffled_are_not_asked_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(up(tmp_path, "--readers", "1", "--shuffle", "100")) == 2
    assert "--readers do not go with --shuffle" in capsys.readouterr().err


@pytest.mark.parametrize("named", [False, True])
def test_the_index_is_in_the_folder_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, named: bool
) -> None:
    """Also where that is none that the command names."""
    asked = up(tmp_path, "--readers", "1", rows=200)
    if not named:
        at = asked.index("--run")
        del asked[at : at + 2]
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    found: list[bool] = []

    def train(plan: Any, *_: object, **__: object) -> int:
        found.append((plan.cluster.run / row_index.FILE).exists())
        return 0

    monkeypatch.setattr(command, "_train", train)
    assert cli.main(asked) == 0
    assert found == [True]
    assert list((tmp_path / "here").iterdir()) == []


def test_a_reader_that_says_hello_and_sends_nothing_is_not_waited_for_for_ever(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.tsv").write_bytes(criteo_lines(300))
    rows = stream.criteo(tmp_path / "a.tsv")
    index = index_of(rows, None, tmp_path / "run")
    sent = SentStream(rows, index, 1)
    sent.asked_by(32, 1)
    sent.open()
    closing = threading.Event()
    here: list[socket.socket] = []  # its ends, which stay open

    def connect(*_: object) -> socket.socket:
        ours, theirs = socket.socketpair()
        here.append(ours)
        ours.sendall(batch_wire.hello(index))
        return theirs

    connecting = SimpleNamespace(connect=connect, closing=closing, timeout=0.1)
    tending = BatchTending(sent, connecting, 1, 0.5)  # type: ignore[arg-type]
    try:
        tending.told({0: "somewhere"})
        tending.expect(0, 2)
        assert sent.native is not None
        with ThreadPoolExecutor(1) as pool:
            taken = pool.submit(sent.native.take, 0, 32)
            with pytest.raises(_core.Error, match=r"no reader has sent any rows for 0\.5 s"):
                taken.result(PATIENCE)
    finally:
        closing.set()
        tending.close()
        for each in here:
            each.close()


def test_a_day_without_its_checkpoint_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which the next one would begin with; whatever its report says."""
    words = written(tmp_path, 300, 2)
    run = tmp_path / "run"

    def train(plan: Any, *_: object, **__: object) -> int:
        plan.cluster.run.joinpath("run.json").write_text('{"state": "ended", "output": ""}')
        return 0

    monkeypatch.setattr(command, "_train", train)
    for _ in range(2):  # nor where the report was there before
        asked = ["cluster", "up", *words, "--embedding-servers", "1", "--run", str(run)]
        assert cli.main(asked) != 0
        assert f"{DAYS[0]} has ended without a checkpoint of its end" in capsys.readouterr().err
        assert told(run) == []
        (run / DAYS[0] / "run.json").unlink()
