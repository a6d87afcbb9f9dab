"""Criteo's files: both formats, what is missing, and bad lines by number and reason."""

from __future__ import annotations

import gzip
import importlib
import math
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from stream.lines import COLUMNS, criteo_rows
from stream.lines import write as write_rows

from leashed import _core
from leashed.datasets import criteo

NUMBERS = ["3", "", "-2", *("0" * 10)]
CATEGORIES = ["68fd1e64", "", "FFFFFFFF", "00000000", *(f"{f:08x}" for f in range(22))]
HEADER = ",".join(
    ["Id", "Label", *(f"I{j}" for j in range(1, 14)), *(f"C{f}" for f in range(1, 27))]
)


def line(separator: str = "\t", **changes: str) -> str:
    fields = {"Label": "1"}
    fields |= {f"I{j + 1}": text for j, text in enumerate(NUMBERS)}
    fields |= {f"C{f + 1}": text for f, text in enumerate(CATEGORIES)}
    return separator.join((fields | changes).values())


def write(tmp_path: Path, text: str, name: str = "day.tsv") -> Path:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["train.csv", "day_0.tsv", "day_0.gz"])
def test_both_formats_say_the_same(tmp_path: Path, name: str):
    rows = [line(), line(Label="0", C1="00000001")]
    text = "\n".join(rows) + "\n"
    if name == "train.csv":
        commas = [f"{i},{row}".replace("\t", ",") for i, row in enumerate(rows)]
        text = "\r\n".join([HEADER, *commas])
    data = criteo(write(tmp_path, text, name))
    assert (len(data), data.numbers, data.features, data.skipped) == (2, 13, 26, 0)
    assert data.y.tolist() == [1, 0]
    np.testing.assert_allclose(data.x[0], [np.log(4), 0, 0, *[0] * 10], rtol=1e-6)
    assert data.ids[0, :4].tolist() == [
        2**33 + 0x68FD1E64,
        2 * 2**33 + 2**32,  # missing
        3 * 2**33 + 0xFFFFFFFF,
        4 * 2**33,
    ]
    assert data.ids[1, 0] == 2**33 + 1
    assert data.names[25] == "C26"
    assert data.name == name


def test_a_header_says_the_order(tmp_path: Path):
    names = ["Label", *(f"C{f}" for f in range(26, 0, -1)), *(f"I{j}" for j in range(13, 0, -1))]
    values = ["1", *(f"{f:08x}" for f in range(26, 0, -1)), *(str(j) for j in range(13, 0, -1))]
    data = criteo(write(tmp_path, ",".join(names) + "\n" + ",".join(values)))
    assert (data.ids[0] % 2**33).tolist() == list(range(1, 27))
    np.testing.assert_allclose(data.x[0], np.log1p(np.arange(1, 14)), rtol=1e-6)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (line() + "\t", "41 fields apart by tabs instead of 40"),
        ("1\t2", "2 fields apart by tabs instead of 40"),
        (line(Label="2"), "Label is '2', not 0 or 1"),
        (line(Label=""), "Label is missing, not 0 or 1"),
        (line(Label="1_0"), "Label is '1_0', not 0 or 1"),
        (line(I2="1_000"), "I2 is '1_000', no finite number"),
        (line(I2=" 1"), "I2 is ' 1', no finite number"),
        (line() + "\r\r", "C26 is '00000015\\x0d', not 8 hexadecimal digits"),
        (line(I7="x"), "I7 is 'x', no finite number"),
        (line(I13="nan"), "I13 is 'nan', no finite number"),
        (line(I1="1e999"), "I1 is '1e999', no finite number"),
        (line(C5="123"), "C5 is '123', not 8 hexadecimal digits"),
        (line(C26="0x345678"), "C26 is '0x345678', not 8 hexadecimal digits"),
        (line(C1="é" * 4), "C1 is '\\xc3\\xa9"),
    ],
)
def test_a_bad_line_is_named_or_counted(tmp_path: Path, bad: str, reason: str):
    path = write(tmp_path, f"{line()}\n\n{bad}\n{line()}")
    with pytest.raises(ValueError, match=r"day\.tsv: line 3: .*bad=\"skip\"") as caught:
        criteo(path)
    assert reason in str(caught.value)
    data = criteo(path, bad="skip")
    assert (len(data), data.skipped, data[:1].skipped) == (2, 1, 1)


@pytest.mark.parametrize("first", ["rubbish", "1\t2", "a,b,c"])
@pytest.mark.parametrize("header", [True, False])
def test_a_bad_first_line_does_not_decide_how_fields_are_apart(
    tmp_path: Path, first: str, header: bool
):
    rows = [HEADER, "7," + line(",")] if header else [line()]
    path = write(tmp_path, "\n".join([first, *rows, *rows[-1:]]))
    with pytest.raises(ValueError, match=r"line 1: \d fields apart by .* instead of 40"):
        criteo(path)
    data = criteo(path, bad="skip")
    assert (len(data), data.skipped) == (2, 1)


@pytest.mark.parametrize("how", [{}, {"bad": "skip"}, {"bad": "skip", "rows": 1}])
@pytest.mark.parametrize(
    "text",
    [line(), f"{HEADER}\n7,{line(',')}", f"{HEADER.removeprefix('Id,')}\n{line(',')}"],
    ids=["none", "id", "label"],
)
def test_a_byte_order_mark_is_passed_over(tmp_path: Path, text: str, how: dict[str, Any]):
    path = tmp_path / "day"
    path.write_text(text, encoding="utf-8-sig")
    data = criteo(path, **how)
    np.testing.assert_array_equal(data.ids, criteo(write(tmp_path, text)).ids)
    assert data.skipped == 0


def test_a_line_that_no_memory_holds_is_an_error(tmp_path: Path):
    path = tmp_path / "day.gz"
    with gzip.open(path, "wb", 1) as file:
        for _ in range(65):
            file.write(bytes(1 << 20))
    with pytest.raises(ValueError, match=r"day\.gz: a line is longer than 64 MiB"):
        criteo(path)


def test_the_first_rows_alone(tmp_path: Path):
    path = write(tmp_path, "\n".join([line()] * 5 + ["rubbish"]))
    assert len(criteo(path, 5)) == 5
    assert len(criteo(path, rows=2)) == 2


@pytest.mark.timeout(60)
@pytest.mark.parametrize("bad", ["fail", "skip"])
def test_a_pipe_is_not_closed_before_it_is_read(
    tmp_path: Path, bad: str, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def write() -> None:
        with open(path, "w") as file:  # noqa: PTH123
            file.write(f"{line()}\n{line()}\n")

    monkeypatch.setattr(Path, "open", opened := Mock())
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(write)
        assert len(criteo(path, bad=bad)) == 2
        written.result()
    opened.assert_not_called()


def test_more_rows_than_there_are_take_no_more_lines_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    module, given = importlib.import_module("leashed.datasets.criteo"), list[int]()

    def opened(path, file, text, opened=module._opened):
        given.append(file.getvalue().count(b"\n"))
        return opened(path, file, text)

    monkeypatch.setattr(module, "_AT_ONCE", 8, raising=False)
    monkeypatch.setattr(module, "_opened", opened)
    path = write(tmp_path, "\n".join(["rubbish", *[line()] * 30, ""]))
    data = criteo(path, rows=10**9, bad="skip")
    assert (len(data), data.skipped) == (30, 1)
    assert max(given) == 8


def test_what_is_no_such_file_is_refused(tmp_path: Path):
    cases: list[tuple[str | bytes, str]] = [
        ("", "there is no row"),
        (HEADER, "there is no row"),
        ("Label,I1\n1,2", "its header has no column I2, I3"),
        (gzip.compress(line().encode() * 99, mtime=0)[:-20], "corrupt gzip file"),
    ]
    for content, message in cases:
        path = tmp_path / "file"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(ValueError, match=message):
            criteo(path)
    with pytest.raises(ValueError, match="there is no row"):
        criteo(write(tmp_path, "rubbish"), bad="skip")
    with pytest.raises(FileNotFoundError):
        criteo(tmp_path / "none")
    wrong: list[dict[str, Any]] = [{"bad": "ignore"}, {"rows": 0}]
    for arguments in wrong:
        with pytest.raises(ValueError, match="must be"):
            criteo(path, **arguments)


def plain(path: Path, most: float = math.inf) -> tuple[list[Any], int]:
    """What a file of Criteo's holds, line by line: (y, x, ids) of each row, and bad lines before the last
    that is wanted.
    """
    packed = path.read_bytes()
    content = gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed
    rows: list[Any] = []
    order, separator, count, skipped = None, b"", 0, 0
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for line in (ended.removesuffix(b"\r") for ended in lines):
        if not line:
            continue
        if len(rows) >= most:
            break
        if order is None:
            separator = b"\t" if b"\t" in line else b","
            names = line.split(separator)
            header = b"Label" in names
            known = names if header else [name.encode() for name in COLUMNS]
            if header or len(names) == len(COLUMNS):
                order, count = [known.index(name.encode()) for name in COLUMNS], len(known)
            if header:
                continue
        fields = line.split(separator)
        try:
            if order is None or len(fields) != count:
                raise ValueError
            label, *rest = (fields[place] for place in order)
            numbers, categories = rest[:13], rest[13:]
            if any(re.search(rb"[\s_]", text) for text in (label, *numbers)):
                raise ValueError
            if any(text and not re.fullmatch(rb"[0-9a-fA-F]{8}", text) for text in categories):
                raise ValueError
            y, x = float(label), [float(text or 0) for text in numbers]
            if y not in (0, 1) or not np.isfinite(x).all():
                raise ValueError
        except ValueError:
            skipped += 1
            continue
        ids = [
            (f << 33) + (int(text, 16) if text else 1 << 32) for f, text in enumerate(categories, 1)
        ]
        rows.append((y, np.log1p(np.maximum(x, 0)).astype(np.float32), ids))
    return rows, skipped


GOOD = st.tuples(
    st.sampled_from(["0", "1", "1.0", "+1", "0e5"]),
    st.lists(
        st.just("") | st.integers(-99, 10**12).map(str) | st.floats(-10, 1e300).map(repr),
        min_size=13,
        max_size=13,
    ),
    st.lists(
        st.just("") | st.integers(0, 2**32 - 1).map("{:08x}".format) | st.just("FFFFFFFF"),
        min_size=26,
        max_size=26,
    ),
).map(lambda row: [row[0], *row[1], *row[2]])
SPOILT = st.tuples(
    GOOD,
    st.integers(0, 39),
    st.sampled_from(["", "2", "x", " 1", "nan", "1_0", "1e999", "é", "\r"]),
).map(lambda bad: [*bad[0][: bad[1]], bad[2], *bad[0][bad[1] + 1 :]])
RUBBISH = st.sampled_from([["rubbish"], ["1", "2"], [""], ["Label?"], ["1"] * 41])


@settings(max_examples=examples(60))
@given(
    lines=st.lists(GOOD | GOOD | SPOILT | RUBBISH, max_size=12),
    before=st.lists(RUBBISH, max_size=2),
    header=st.none() | st.permutations(["Id", *COLUMNS]),
    separator=st.sampled_from(["\t", ","]),
    end=st.sampled_from(["\n", "\r\n"]),
    packed=st.booleans(),
    mark=st.booleans(),
    most=st.none() | st.integers(1, 12),
)
def test_the_stream_read_is_what_lines_say(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[list[str]],
    before: list[list[str]],
    header: list[str] | None,
    separator: str,
    end: str,
    packed: bool,
    mark: bool,
    most: int | None,
) -> None:
    if header is not None:
        lines = [
            [*(dict(zip(COLUMNS, row, strict=True)).get(name, "7") for name in header)]
            if len(row) == 40
            else row
            for row in lines
        ]
        lines = [header, *lines]
    text = end.join(separator.join(row) for row in [*before, *lines])
    content = (b"\xef\xbb\xbf" if mark else b"") + text.encode()
    path = tmp_path_factory.getbasetemp() / "drawn"
    path.write_bytes(gzip.compress(content) if packed else content)
    rows, skipped = plain(path, math.inf if most is None else most)
    if not rows:
        with pytest.raises(_core.NoRows, match="drawn: there is no row in it"):
            criteo(path, most, bad="skip")
        return
    read = criteo(path, most, bad="skip")
    y, x, ids = zip(*rows, strict=True)
    np.testing.assert_array_equal(read.y, y)
    np.testing.assert_array_equal(read.x, x)
    np.testing.assert_array_equal(read.ids, np.array(ids, np.uint64))
    assert (read.skipped, read.name) == (skipped, "drawn")
    assert read.number_names == tuple(COLUMNS[1:14])
    if skipped == 0:
        again = criteo(path, most)
        np.testing.assert_array_equal(again.x, read.x)
        np.testing.assert_array_equal(again.ids, read.ids)
    elif most is None:
        with pytest.raises(
            ValueError, match=r'drawn: line \d+: .*; bad="skip" leaves such lines out'
        ):
            criteo(path)


def test_rows_of_several_takes_are_joined(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("leashed.datasets.text._READ", 7)
    rows = criteo_rows(100)
    path = write_rows(tmp_path / "day", rows)
    for most in (None, 1, 7, 8, 14, 99, 100, 1000):
        read, (wanted, _) = criteo(path, most), plain(path, most or math.inf)
        np.testing.assert_array_equal(read.ids, np.array([ids for _, _, ids in wanted], np.uint64))
        np.testing.assert_array_equal(read.x, [x for _, x, _ in wanted])


def test_the_sample_is_read():
    beside = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get("LEASHED_DATA", beside)) / "criteo-sample"
    if not folder.is_dir():
        pytest.skip(f"Criteo's sample is absent: {folder} is not a folder; set LEASHED_DATA")
    data = criteo(folder / "train.tiny.csv")
    assert (len(data), data.skipped, int(data.y.sum())) == (1999, 0, 418)
    np.testing.assert_allclose(data.x[0, :4], [np.log(2), np.log(2), np.log(6), 0], rtol=1e-6)
    assert data.ids[0, 0] == 2**33 + 0x68FD1E64
    assert data.ids[0, 21] == 22 * 2**33 + 2**32
    train, test = data.split(test=500)
    assert (len(train), len(test)) == (1499, 500)
    assert not criteo(folder / "test.tiny.csv").y.any()
