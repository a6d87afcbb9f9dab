"""Readers: rows of files by their numbers, what a trainer is sent of them, and runs with readers."""

from __future__ import annotations

import gzip
import json
import random
import socket
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.sending import sending
from cluster.test_up import outlives

import leashed as lsh
from leashed import cli, stream
from leashed.cluster import batch_wire, row_index, row_parts, row_text
from leashed.cluster.measures import counted
from leashed.cluster.reader import Rows, serve
from leashed.cluster.remote_batches import SentStream
from leashed.cluster.row_index import files_of, index_of

SEED = 7


def criteo_lines(rows: int, seed: int = SEED) -> bytes:
    drawn = random.Random(seed)
    lines = []
    for _ in range(rows):
        ids = [f"{drawn.randrange(40):08x}" for _ in range(26)]
        counts = [str(drawn.randrange(5)) if drawn.random() < 0.9 else "" for _ in range(13)]
        clicked = int(ids[0], 16) % 2 if drawn.random() < 0.9 else drawn.randrange(2)
        lines.append("\t".join([str(clicked), *counts, *ids]))
    return ("\n".join(lines) + "\n").encode()


BAGS = {
    "clicked": stream.Label(),
    "price": stream.Number(),
    "city": stream.Id(),
    "seen": stream.Id(between=" "),
    "weight": stream.Weight(),
}


def bag_lines(rows: int) -> bytes:
    drawn = random.Random(SEED)
    lines = ["clicked,price,city,seen,weight"]
    for i in range(rows):
        seen = " ".join(str(drawn.randrange(100)) for _ in range(drawn.randrange(4)))
        lines.append(f"{i % 2},{i}.5,{drawn.randrange(50)},{seen},{1 + i % 3}")
    return ("\n\n".join(lines[:50]) + "\n" + "\n".join(lines[50:])).encode()


def same(found: Any, expected: Any) -> None:
    for mine, other in zip(found, expected, strict=True):
        if isinstance(mine, list):
            for one, two in zip(mine, other, strict=True):
                same(one, two)
        elif mine is None:
            assert other is None
        else:
            np.testing.assert_array_equal(mine, other)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_text, "_PART", 5_000)


def made(kind: str, folder: Path, pack: Any = bytes) -> Any:
    """A stream of two files."""
    if kind == "bags":
        (folder / "a.csv").write_bytes(pack(bag_lines(400)))
        (folder / "b.csv").write_bytes(pack(bag_lines(77)))
        return stream.csv([folder / "a.csv", folder / "b.csv"], BAGS)
    (folder / "a.tsv").write_bytes(pack(criteo_lines(300)))
    (folder / "b.tsv").write_bytes(pack(criteo_lines(111, 8)))
    return stream.criteo([folder / "a.tsv", folder / "b.tsv"])


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kind", ["criteo", "bags"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_any_rows_are_those_of_the_stream(tmp_path: Path, kind: str, pack: Any):
    rows = made(kind, tmp_path, pack)
    index = index_of(rows, None, tmp_path / "run")
    opened = rows.open()
    whole = opened.read(None)
    assert index.counts == opened.counts
    assert len(index.parts) > 2
    sent = Rows(index, files_of(rows, None), 2)
    here, there = socket.socketpair()
    thread = threading.Thread(target=serve, args=(sent, there, "trainer-0"), daemon=True)
    thread.start()
    weights = kind == "bags"
    bags = (False, True) if kind == "bags" else (False,) * 26
    layout = batch_wire.Layout(rows.numbers, bags, 2, 1, weights)
    batch_wire.check_hello(here, index)
    drawn = random.Random(SEED)
    for _ in range(40):
        first = drawn.randrange(index.rows)
        count = drawn.randrange(1, index.rows - first + 1)
        batch_wire.ask(here, first, count)
        found = batch_wire.receive(here, count, layout)
        x, ids, own, y, weigh = whole
        end = first + count
        cut = [(i[o[first] : o[end]], o[first : end + 1] - o[first]) for i, o in own]
        same(
            found,
            (
                x[first:end],
                ids[first:end],
                cut,
                y[first:end],
                None if weigh is None else weigh[first:end],
            ),
        )
    here.close()
    thread.join(10)
    assert not thread.is_alive()
    sent.close()


@pytest.mark.usefixtures("small_parts")
def test_an_index_is_kept_and_made_again_where_a_file_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rows = made("criteo", tmp_path)
    first = index_of(rows, None, tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr(row_text.TextRows, "count", None)
        assert index_of(rows, None, tmp_path / "run") == first
    with (tmp_path / "b.tsv").open("ab") as file:
        file.write(criteo_lines(10))
    second = index_of(rows, None, tmp_path / "run")
    assert second.rows == first.rows + 10
    assert second.digest != first.digest
    (tmp_path / "run" / row_index.FILE).write_text("{}")
    assert index_of(rows, None, tmp_path / "run") == second


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_who_goes_on_with_other_rows_in_the_midst_of_a_file_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Any
):
    """Of the same size, and the same at both ends."""
    monkeypatch.setattr(row_parts, "_ENDS", 16)
    lines = criteo_lines(300).splitlines(keepends=True)
    digests = []
    for at in (b"0", b"1"):
        lines[150] = at + lines[150][1:]
        (tmp_path / "a.tsv").write_bytes(pack(b"".join(lines)))
        rows = stream.criteo(tmp_path / "a.tsv")
        digests.append(index_of(rows, None, tmp_path / f"run-{at.decode()}").digest)
    assert digests[0] != digests[1]


@pytest.mark.usefixtures("small_parts")
def test_a_part_whose_rows_are_all_sent_goes_and_comes_again(tmp_path: Path):
    rows = made("criteo", tmp_path)
    index = index_of(rows, None, tmp_path / "run")
    read = Rows(index, files_of(rows, None), 1)
    parts = len(index.parts)
    for _ in range(2):
        for first in range(0, index.rows, 10):
            read.read(first, min(10, index.rows - first))
        assert read._parsed == read._sizes == read._left == {}
    assert read.counters()["parts_parsed"] == 2 * parts
    read.read(0, 10)
    read.close()


@pytest.mark.usefixtures("small_parts")
def test_a_file_that_changes_during_a_run_is_refused_by_name(tmp_path: Path):
    rows = made("criteo", tmp_path)
    index = index_of(rows, None, tmp_path / "run")
    sent = Rows(index, files_of(rows, None), 1)
    path = tmp_path / "b.tsv"
    path.write_bytes(path.read_bytes()[:-100])
    here, there = socket.socketpair()
    threading.Thread(target=serve, args=(sent, there, "trainer-0"), daemon=True).start()
    batch_wire.check_hello(here, index)
    batch_wire.ask(here, index.rows - 3, 3)
    layout = batch_wire.Layout(13, (False,) * 26, 2, 1, weights=False)
    with pytest.raises(
        batch_wire.RefusedError, match=r"b\.tsv has changed since its rows were counted"
    ):
        batch_wire.receive(here, 3, layout)
    here.close()
    sent.close()


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_bad_lines_are_named_as_one_process_names_them(tmp_path: Path, pack: Any):
    lines = criteo_lines(200).splitlines(keepends=True)
    lines[150] = b"1\tno\n"
    lines[170] = b"x" + lines[170]
    (tmp_path / "a.tsv").write_bytes(pack(b"".join(lines)))
    with pytest.raises(ValueError, match="line 151") as told:
        stream.criteo(tmp_path / "a.tsv").read()
    with pytest.raises(ValueError, match="line 151") as found:
        index_of(stream.criteo(tmp_path / "a.tsv"), None, tmp_path / "run")
    assert str(found.value) == str(told.value)
    skipping = stream.criteo(tmp_path / "a.tsv", bad="skip")
    opened = skipping.open()
    opened.read(None)
    index = index_of(skipping, None, tmp_path / "run")
    assert index.counts == opened.counts
    assert [bad.number for bad in index.counts.first_bad] == [151, 171]


def test_a_damaged_gzip_file_is_told_by_name(tmp_path: Path):
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(criteo_lines(300))[:-20])
    with pytest.raises(ValueError, match=r"a\.tsv\.gz: corrupt gzip file"):
        index_of(stream.criteo(tmp_path / "a.tsv.gz"), None, tmp_path / "run")


@pytest.mark.parametrize("asked", [(0, 0), (0, 1 << 40), (1 << 63, 5), (299, 2)])
def test_who_asks_for_rows_that_are_not_there_is_closed(tmp_path: Path, asked: tuple[int, int]):
    (tmp_path / "a.tsv").write_bytes(criteo_lines(300))
    rows = stream.criteo(tmp_path / "a.tsv")
    sent = Rows(index_of(rows, None, tmp_path / "run"), files_of(rows, None), 1)
    here, there = socket.socketpair()
    threading.Thread(target=serve, args=(sent, there, "trainer-0"), daemon=True).start()
    batch_wire.check_hello(here, sent.index)
    here.sendall(struct.pack("<QQ", *asked))
    assert here.recv(1) == b""  # (it has counted before it closes)
    here.close()
    assert sent.counters()["refused"] == 1
    sent.close()


LAYOUT = batch_wire.Layout(2, (False, True), 2, 1, weights=False)
GOOD = [16, 16, 24, 8, 8]  # of two rows: x, single ids, offsets, ids, labels


@pytest.mark.parametrize(
    ("status", "sizes"),
    [
        (0, []),
        (0, [16]),
        (0, [1 << 60, *GOOD[1:]]),
        (0, [16, 16, 24, 1 << 50, 8]),
        (0, [16, 16, 24, 9, 8]),
        (0, [16, 16, 16, 8, 8]),
        (0, [16, 24, 24, 8, 8]),
        (0, [24, 24, 32, 8, 12]),
        (0, [8, 8, 16, 8, 4]),
        (0, [0, 0, 8, 0, 0]),
        (1, [1 << 40]),
        (2, GOOD),
    ],
)
def test_an_answer_that_is_none_is_refused_before_memory_is_asked_for(
    status: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
):
    here, there = socket.socketpair()
    here.sendall(struct.pack("<II", status, len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes))
    here.sendall(bytes(200))
    here.close()
    asked: list[int] = []
    plain = batch_wire.exactly
    monkeypatch.setattr(batch_wire, "exactly", lambda link, n: asked.append(n) or plain(link, n))
    with pytest.raises((ValueError, OSError)):
        batch_wire.receive(there, 2, LAYOUT)
    assert max(asked) <= 4096
    there.close()


PLAIN = {
    "clicked": stream.Label(),
    "price": stream.Number(scale=None),
    "city": stream.Hashed(buckets=50),
    "seen": stream.Hashed(buckets=60),
}


def plain_lines(rows: int) -> bytes:
    drawn = random.Random(SEED)
    lines = ["clicked,price,city,seen"]
    for _ in range(rows):
        city = drawn.randrange(40)
        lines.append(f"{city % 2},{drawn.random():.3f},{city},{drawn.randrange(60)}")
    return "\n".join(lines).encode()


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("epochs", [1, 3])
def test_rows_that_are_sent_train_to_the_bits_of_rows_that_are_read(tmp_path: Path, epochs: int):
    (tmp_path / "a.csv").write_bytes(plain_lines(1000))
    rows = stream.csv(tmp_path / "a.csv", PLAIN)
    index = index_of(rows, None, tmp_path / "run")
    model = lsh.models.dlrm(dim=4).shaped(rows)

    def trained(data: Any) -> lsh.TrainResult:
        return lsh.train(
            model,
            data,
            rule=lsh.Adagrad(0.05),
            discipline=lsh.Sequential(),
            batch_size=64,
            until=lsh.until(epochs=epochs),
        )

    sent = SentStream(rows, index, 1)
    read = Rows(index, files_of(rows, None), 1)
    with sending(sent, read):
        found = trained(sent)
    alone = trained(rows)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    for name, table in alone.tables.items():
        ids = np.sort(table.ids())
        np.testing.assert_array_equal(found.tables[name].lookup(ids), table.lookup(ids))


def up(folder: Path, *more: str, rows: int = 6000, pack: Any = bytes) -> list[str]:
    (folder / "a.tsv").write_bytes(pack(criteo_lines(rows)))
    (folder / "t.tsv").write_bytes(criteo_lines(1000, 9))
    given = ["--data", str(folder / "a.tsv"), "--test", str(folder / "t.tsv"), "--dim", "4"]
    given += ["--table-mib", "4", "--run", str(folder / "run"), "--embedding-servers", "1"]
    return ["cluster", "up", "--model", "dlrm", *given, *more]


def report_of(folder: Path, run: str = "run") -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / run / "run.json").read_text())
    assert report["state"] == "ended"
    ledger = report["ledger"]
    assert ledger["complete"] == ledger["total"]
    assert ledger["outstanding"] == ledger["free"] == 0
    return report


@pytest.mark.process
def test_a_run_with_readers_trains(tmp_path: Path):
    asked = up(tmp_path, "--trainers", "2", "--readers", "2", pack=gzip.compress)
    assert cli.main(asked) == 0
    report = report_of(tmp_path)
    assert report["ledger"]["total"] == 94
    assert report["ledger"]["again"] == 0
    assert report["test_auc"] > 0.8
    trainers = counted(report, "trainer").values()
    assert sum(each["rows_received"] for each in trainers) >= 6000


@pytest.mark.process(1)
@pytest.mark.parametrize("name", ["reader-0", "trainer-1"])
def test_a_reader_or_a_trainer_that_is_killed_comes_back(tmp_path: Path, name: str):
    asked = up(tmp_path, "--trainers", "2", "--readers", "1", "--epochs", "60")
    outlives(asked, tmp_path / "run", name, begun)
    report = report_of(tmp_path)
    assert {key for key, times in report["restarts"].items() if times} == {name}


def begun(folder: Path) -> bool:
    """Whether batches have been used."""
    try:
        report = json.loads((folder / "run.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(report["ledger"]["complete"] > 20)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--model", "mlp"], "--readers are for models of clicks"),
        (["--data", "clicks"], "--readers are for models of clicks"),
        (["--epochs", "0.5"], "epochs must be whole"),
    ],
)
def test_what_readers_do_not_read_is_refused(
    tmp_path: Path, more: list[str], told: str, capsys: pytest.CaptureFixture[str]
):
    assert cli.main([*up(tmp_path, "--readers", "1"), *more]) == 2
    assert told in capsys.readouterr().err
