"""Criteo's files: both formats, what is missing, and bad lines by number and reason."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
        (line(Label=""), "Label is '', not 0 or 1"),
        (line(Label="1_0"), "Label is '1_0', not 0 or 1"),
        (line(I2="1_000"), "I2 is '1_000', no finite number"),
        (line(I2=" 1"), "I2 is ' 1', no finite number"),
        (line() + "\r\r", "C26 is '00000015\\r', not 8 hexadecimal digits"),
        (line(I7="x"), "I7 is 'x', no finite number"),
        (line(I13="nan"), "I13 is 'nan', no finite number"),
        (line(I1="1e999"), "I1 is '1e999', no finite number"),
        (line(C5="123"), "C5 is '123', not 8 hexadecimal digits"),
        (line(C26="0x345678"), "C26 is '0x345678', not 8 hexadecimal digits"),
        (line(C1="é" * 4), "C1 is 'Ã©Ã©Ã©Ã©', not 8 hexadecimal digits"),
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


@pytest.mark.parametrize("header", [True, False])
def test_a_byte_order_mark_is_passed_over(tmp_path: Path, header: bool):
    text = f"{HEADER}\n7,{line(',')}" if header else line()
    path = tmp_path / "day"
    path.write_text(text, encoding="utf-8-sig")
    np.testing.assert_array_equal(criteo(path).ids, criteo(write(tmp_path, text)).ids)


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
