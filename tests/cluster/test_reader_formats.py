"""Readers of libsvm, libffm and Parquet files."""

from __future__ import annotations

import contextlib
import gzip
import random
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.sending import sending
from cluster.test_readers import begun, report_of, same
from cluster.test_up import outlives

import leashed as lsh
from leashed import _core, cli, stream
from leashed.cluster import batch_wire, remote_batches, row_groups, row_parts, row_text
from leashed.cluster.reader import Rows, serve
from leashed.cluster.remote_batches import sent
from leashed.cluster.row_index import files_of, index_of

SEED = 5
COLUMNS = 40
FIELDS = [j % 4 for j in range(COLUMNS)]


def sparse_lines(rows: int, *, fields: bool = False, seed: int = SEED) -> bytes:
    """Half of the labels follow from column 3."""
    drawn = random.Random(seed)
    lines = []
    for row in range(rows):
        columns = sorted(drawn.sample(range(1, COLUMNS), drawn.randrange(1, 8)))
        label = "+1" if (3 in columns) != (drawn.random() < 0.1) else "-1"
        tell = [f"{FIELDS[j]}:{j}" if fields else f"{j + 1}" for j in columns]
        lines.append(" ".join([label, *(f"{each}:{drawn.random():.3f}" for each in tell)]))
        if row % 50 == 7:
            lines.append("" if fields else "# nothing")
    return ("\n".join(lines) + "\n").encode()


SCHEMA: dict[str, Any] = {
    "clicked": stream.Label(),
    "price": stream.Number(),
    "city": stream.Hashed(buckets=50),
    "seen": stream.Hashed(buckets=60, between=" "),
    "weight": stream.Weight(),
}


def write_parquet(
    path: Path, rows: int, *, seed: int = SEED, group: int = 130, **more: Any
) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    drawn = random.Random(seed)
    cities = [drawn.randrange(40) for _ in range(rows)]
    table = {
        "clicked": [city % 2 for city in cities],
        "price": [drawn.random() for _ in range(rows)],
        "city": [f"c{city}" for city in cities],
        "seen": [
            " ".join(f"i{drawn.randrange(90)}" for _ in range(drawn.randrange(4))) for _ in cities
        ],
        "weight": [1.0 + row % 3 for row in range(rows)],
        "not_read": list(range(rows)),
    }
    parquet.write_table(pa.table({**table, **more}), path, row_group_size=group)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_text, "_PART", 5_000)
    monkeypatch.setattr(row_groups, "_PART", 50)


def made(kind: str, folder: Path, pack: Any = bytes, **how: Any) -> Any:
    """A stream of two files."""
    if kind == "parquet":
        write_parquet(folder / "a.parquet", 400)
        write_parquet(folder / "b.parquet", 77, seed=6)
        return stream.parquet([folder / "a.parquet", folder / "b.parquet"], SCHEMA, **how)
    fields = kind == "libffm"
    files = [folder / f"a.{kind}", folder / f"b.{kind}"]
    for file, rows in zip(files, (400, 77), strict=True):
        file.write_bytes(pack(sparse_lines(rows, fields=fields, seed=rows)))
    return stream.libffm(files, FIELDS, **how) if fields else stream.libsvm(files, COLUMNS, **how)


KINDS = ["libsvm", "libffm", "parquet"]


@contextlib.contextmanager
def served(rows: Rows) -> Iterator[socket.socket]:
    """A trainer's end of a connection to a reader."""
    here, there = socket.socketpair()
    thread = threading.Thread(target=serve, args=(rows, there, "trainer-0"), daemon=True)
    thread.start()
    batch_wire.check_hello(here, rows.index)
    yield here
    here.close()
    thread.join(10)
    assert not thread.is_alive()
    rows.close()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("kind", KINDS)
def test_any_rows_are_those_of_the_stream(tmp_path: Path, kind: str, pack: Any):
    if kind == "parquet" and pack is not bytes:
        pytest.skip("Parquet packs by itself")
    rows = made(kind, tmp_path, pack)
    index = index_of(rows, None, tmp_path / "run")
    opened = rows.open()
    x, ids, own, y, weigh = opened.read(None)
    assert index.counts == opened.counts
    assert len(index.parts) > 2
    given = sent(rows, index, 1)
    given.open()
    drawn = random.Random(SEED)
    with served(Rows(index, files_of(rows, None), 2)) as link:
        for _ in range(40):
            first = drawn.randrange(index.rows)
            end = first + drawn.randrange(1, index.rows - first + 1)
            batch_wire.ask(link, first, end - first)
            cut = [
                (
                    i[o[first] : o[end]],
                    o[first : end + 1] - o[first],
                    *(v[o[first] : o[end]] for v in more),
                )
                for i, o, *more in own
            ]
            expected = (x[first:end], ids[first:end], cut, y[first:end])
            found = batch_wire.receive(link, end - first, given.layout)
            same(found, (*expected, None if weigh is None else weigh[first:end]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", ["fail", "skip"])
def test_bad_rows_are_named_as_one_process_names_them(tmp_path: Path, kind: str, bad: str):
    made(kind, tmp_path)
    if kind == "parquet":
        prices = [None if row in (60, 290) else 1.0 for row in range(300)]
        write_parquet(tmp_path / "b.parquet", 300, price=prices)
        rows = stream.parquet(sorted(tmp_path.glob("*.parquet")), SCHEMA, bad=bad)
    else:
        lines = sparse_lines(300, fields=kind == "libffm").splitlines(keepends=True)
        lines[60], lines[290] = b"1 no\n", b"1 1000:1\n"
        (tmp_path / f"b.{kind}").write_bytes(b"".join(lines))
        files = sorted(tmp_path.glob(f"*.{kind}"))
        rows = (
            stream.libffm(files, FIELDS, bad=bad)
            if kind == "libffm"
            else stream.libsvm(files, COLUMNS, bad=bad)
        )
    opened = rows.open()
    if bad == "fail":
        with pytest.raises(ValueError, match="leaves such") as told:
            opened.read(None)
        with pytest.raises(ValueError, match="leaves such") as found:
            index_of(rows, None, tmp_path / "run")
        assert str(found.value) == str(told.value)
        return
    expected = opened.read(None)
    index = index_of(rows, None, tmp_path / "run")
    assert index.counts == opened.counts
    assert index.counts.bad == 2
    with contextlib.closing(Rows(index, files_of(rows, None), 1)) as read:
        found = [part[3] for part in read.read(0, index.rows)]
    np.testing.assert_array_equal(np.concatenate(found), expected[3])


def test_parquet_is_counted_by_its_end_where_nothing_is_to_be_known_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    schema = {**SCHEMA, "price": stream.Number(scale=None), "city": stream.Id()}
    write_parquet(
        tmp_path / "a.parquet", 300, city=[None if row == 70 else row for row in range(300)]
    )
    rows = stream.parquet(tmp_path / "a.parquet", schema)
    with monkeypatch.context() as patched:
        patched.setattr(row_groups, "_rows", None)
        index = index_of(rows, None, tmp_path / "run")
    assert index.rows == 300
    with pytest.raises(ValueError, match=r"row 71: ") as told:
        rows.read()
    read = Rows(index, files_of(rows, None), 1)
    assert len(read.read(0, 50)[0][3]) == 50
    with pytest.raises(ValueError, match=r"row 71: ") as found:
        read.read(40, 100)
    assert str(found.value) == str(told.value)
    read.close()


def test_what_the_end_of_a_parquet_file_tells_of_its_row_groups_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(row_parts, "_ENDS", 8)
    digests = []
    for price in (1.5, 2.5):
        write_parquet(tmp_path / "a.parquet", 300, price=[*[1.0] * 100, price, *[1.0] * 199])
        rows = stream.parquet(
            tmp_path / "a.parquet", {**SCHEMA, "price": stream.Number(scale=None)}
        )
        index = index_of(rows, None, tmp_path / f"run-{price}")
        digests.append(index.digest)
    assert digests[0] != digests[1]


def test_columns_beside_those_that_are_read_may_be_of_any_type(tmp_path: Path):
    """Of which no value of Python's is that is least: dates beyond its years, halves, nanoseconds."""
    pa = pytest.importorskip("pyarrow")
    far = pa.array([1 << 40] * 300, pa.timestamp("s"))
    half = pa.array(np.ones(300, np.float16))
    fine = pa.array([1] * 300, pa.timestamp("ns"))
    write_parquet(tmp_path / "a.parquet", 300, far=far, half=half, fine=fine, none=pa.nulls(300))
    rows = stream.parquet(tmp_path / "a.parquet", {**SCHEMA, "price": stream.Number(scale=None)})
    assert index_of(rows, None, tmp_path / "run").rows == 300


def test_truncated_and_damaged_parquet_is_told_by_name(tmp_path: Path):
    write_parquet(tmp_path / "a.parquet", 300)
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(content[:-50])
    rows = stream.parquet(tmp_path / "a.parquet", SCHEMA)
    with pytest.raises(ValueError, match=r"a\.parquet is no whole Parquet file"):
        index_of(rows, None, tmp_path / "run")
    (tmp_path / "a.parquet").write_bytes(content[:4] + bytes(3000) + content[3004:])
    with pytest.raises(ValueError, match=r"a\.parquet is no whole Parquet file"):
        index_of(rows, None, tmp_path / "run")
    assert not (tmp_path / "run" / "rows.index").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_changes_during_a_run_is_refused_by_name(tmp_path: Path, kind: str):
    rows = made(kind, tmp_path)
    index = index_of(rows, None, tmp_path / "run")
    read = Rows(index, files_of(rows, None), 1)
    path = tmp_path / f"b.{kind}"
    path.write_bytes(path.read_bytes()[:-100])
    given = sent(rows, index, 1)
    given.open()
    told = rf"b\.{kind} has changed since its rows were counted"
    with served(read) as link:
        batch_wire.ask(link, index.rows - 3, 3)
        with pytest.raises(batch_wire.RefusedError, match=told):
            batch_wire.receive(link, 3, given.layout)


def test_the_first_rows_of_a_row_group_are_gone_on_from(tmp_path: Path):
    write_parquet(tmp_path / "a.parquet", 1000, group=500)
    rows = stream.parquet(tmp_path / "a.parquet", SCHEMA)
    files = files_of(rows, None)
    index = index_of(rows, None, tmp_path / "run")
    opened = files.open(0, index.files[0])
    begun: list[int] = []
    of = opened._parts.of
    opened._parts.of = lambda *place: begun.append(place[1]) or of(*place)
    for first in [*range(0, 300, 50), 500, 550, 300, 350, 100]:
        assert opened.read(first, 50).num_rows == 50
    assert begun == [0, 1, 0]
    opened.close()


SPARSE = batch_wire.Layout(0, (True,), 2, 1, weights=False, columns=10)
GOOD = [0, 0, 24, 24, 12, 8]  # of two rows: x, single ids, offsets, columns, values, labels


@pytest.mark.parametrize(
    "sizes",
    [GOOD[:5], [*GOOD[:4], 24, 8], [*GOOD[:3], 1 << 50, 1 << 49, 8], [*GOOD[:2], 16, *GOOD[3:]]],
)
def test_an_answer_that_is_none_of_sparse_rows_is_refused(sizes: list[int]):
    here, there = socket.socketpair()
    here.sendall(struct.pack("<II", 0, len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes))
    here.close()
    with pytest.raises(ValueError, match=r"answer|sections"):
        batch_wire.receive(there, 2, SPARSE)
    there.close()


def test_columns_that_there_are_not_are_refused():
    native = _core.SentRows(
        numbers=0,
        bags=[True],
        classes=True,
        values=1,
        weights=False,
        columns=10,
        distinct_columns=False,
        rows=2,
        passes=1,
        at_once=2,
        room=2,
        stripe=2,
        readers=1,
    )
    native.expect(0, 2)
    span = native.wanted([True], 0.0)
    assert span == (0, 2)
    x, single, labels = (
        np.empty((2, 0), np.float32),
        np.empty((2, 0), np.uint64),
        np.zeros(2, np.int32),
    )
    offsets, values = np.array([0, 1, 2]), np.ones(2, np.float32)
    for columns in ([3, 10], [1 << 60, 0]):
        bag = (np.array(columns, np.uint64), offsets, values)
        with pytest.raises(ValueError, match="columns that there are not"):
            native.give(span, (x, single, [bag], labels, None), 2)
    with pytest.raises(ValueError, match="other features"):
        native.give(span, (x, single, [(np.zeros(2, np.uint64), offsets)], labels, None), 2)
    native.give(
        span, (x, single, [(np.array([3, 9], np.uint64), offsets, values)], labels, None), 2
    )
    assert native.take(0, 2)[2][0][0].tolist() == [3, 9]


def trained(model: Any, data: Any) -> lsh.TrainResult:
    return lsh.train(
        model,
        data,
        rule=lsh.Adagrad(0.05),
        discipline=lsh.Sequential(),
        batch_size=64,
        until=lsh.until(epochs=2),
    )


@pytest.mark.parametrize("kind", [*KINDS, "twice"])
def test_rows_that_are_sent_train_to_the_bits_of_rows_that_are_read(tmp_path: Path, kind: str):
    if kind == "parquet":
        write_parquet(tmp_path / "a.parquet", 1000)
        schema = {**SCHEMA, "price": stream.Number(scale=None)}
        rows: Any = stream.parquet(tmp_path / "a.parquet", schema)
        model: Any = lsh.models.dlrm(dim=4).shaped(rows)
    else:
        rows = made("libffm" if kind == "libffm" else "libsvm", tmp_path)
        model = lsh.models.ffm(FIELDS, 2) if kind == "libffm" else lsh.models.fm(COLUMNS, 2)
        if kind == "twice":
            (tmp_path / "a.libsvm").write_bytes(b"1 3:1 4:1 3:0.5\n-1 4:1 5:2 5:3 4:1\n" * 100)
    index = index_of(rows, model, tmp_path / "run")
    given = sent(rows, index, 1)
    read = Rows(index, files_of(rows, model), 1)
    with sending(given, read):
        found = trained(model, given)
    alone = trained(model, rows)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    for name, table in (alone.tables or {}).items():
        ids = np.sort(table.ids())
        np.testing.assert_array_equal(found.tables[name].lookup(ids), table.lookup(ids))


def up(folder: Path, kind: str, *more: str, rows: int = 6000) -> list[str]:
    given = ["cluster", "up", "--run", str(folder / "run"), "--readers", "1"]
    files = [folder / f"a.{kind}", folder / f"t.{kind}"]
    given += ["--data", str(files[0]), "--test", str(files[1]), *more]
    if kind == "parquet":
        for file, many, seed in ((files[0], rows, 1), (files[1], 1000, 2)):
            write_parquet(file, many, seed=seed, group=1500)
        given += ["--model", "dlrm", "--dim", "4", "--table-mib", "4", "--embedding-servers", "1"]
        return [*given, "--label", "clicked"]
    for file, many in zip(files, (rows, 1000), strict=True):
        file.write_bytes(sparse_lines(many, fields=kind == "libffm", seed=many))
    return [*given, "--model", "ffm" if kind == "libffm" else "fm", "--lr", "0.3", "--epochs", "3"]


@pytest.mark.process(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_with_readers_of_such_files_trains(tmp_path: Path, kind: str):
    assert cli.main(up(tmp_path, kind, "--trainers", "2")) == 0
    report = report_of(tmp_path)
    assert report["ledger"]["again"] == 0


@pytest.mark.process(1)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["reader-0", "trainer-1"])
def test_a_reader_or_a_trainer_that_is_killed_comes_back(tmp_path: Path, kind: str, name: str):
    asked = [*up(tmp_path, kind, "--trainers", "2"), "--epochs", "60"]
    outlives(asked, tmp_path / "run", name, begun)
    report = report_of(tmp_path)
    assert {key for key, times in report["restarts"].items() if times} == {name}


def test_of_long_rows_fewer_are_asked_for_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a smaller batch_size is a remedy where an answer would have too many bytes."""
    drawn = random.Random(SEED)
    values = " ".join(f"{j}:{drawn.random():.3f}" for j in range(1, 400))
    (tmp_path / "a.libsvm").write_text("".join(f"{k % 2} {values}\n" for k in range(300)))
    rows = stream.libsvm(tmp_path / "a.libsvm", 400)
    index = index_of(rows, None, tmp_path / "run")
    monkeypatch.setattr(batch_wire, "_MOST_BYTES", 1 << 18)
    monkeypatch.setattr(remote_batches, "_BYTES", 1 << 18)
    given = sent(rows, index, 1)
    given.asked_by(4, 1)
    given.open()
    native = given.native
    assert native is not None
    native.expect(0, 300)
    with served(Rows(index, files_of(rows, None), 2)) as link:
        first, count = native.wanted([True], 0.0)
        assert count % 4 == 0
        batch_wire.ask(link, native.row(first), count)
        arrays = batch_wire.receive(link, count, given.layout)
    assert len(arrays[3]) == count


def test_a_part_that_memory_lacked_for_is_parsed_again(tmp_path: Path) -> None:
    rows = made("libsvm", tmp_path)
    files = files_of(rows, None)
    parse, fails = files.parse, [MemoryError()]

    def lacking(*given: Any) -> Any:
        if fails:
            raise fails.pop()
        return parse(*given)

    files.parse = lacking  # type: ignore[method-assign]
    with contextlib.closing(Rows(index_of(rows, None, tmp_path / "run"), files, 1)) as served_:
        with pytest.raises(MemoryError):
            served_.read(0, 1)
        assert len(served_.read(0, 1)[0][3]) == 1
