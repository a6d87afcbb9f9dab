"""Sparse rows of text: those of the readers into memory, for any number of threads and any cut."""

from __future__ import annotations

import gzip
import io
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import stream
from leashed.datasets import SparseDataset, read_libffm, read_svmlight

FEATURES = 40
VALUES = ("1", "0", "-2.5", "3e-3", "1e-60", "+4", "123456.789")
LABELS = ("0", "1", "-1", "+1")


def svmlight_lines(count: int, seed: int = 0, labels: tuple[str, ...] = LABELS[2:]) -> list[str]:
    """With what the format allows: comments, empty lines and rows, qid, tabs, columns twice."""
    draw = random.Random(seed)
    lines = []
    for _ in range(count):
        kind = draw.randrange(10)
        if kind == 0:
            lines.append(draw.choice(["", "   ", "# nothing", "\r"]))
            continue
        entries = [f"{draw.randint(1, FEATURES)}:{draw.choice(VALUES)}" for _ in range(kind - 1)]
        query = ["qid:7"] if kind == 5 else []
        line = draw.choice([" ", "\t", "  "]).join([draw.choice(labels), *query, *entries])
        lines.append(line + draw.choice(["", " ", " # told", "\r"]))
    return lines


def write(path: Path, lines: list[str]) -> Path:
    path.write_bytes("\n".join(lines).encode())
    return path


def same(one: SparseDataset, other: SparseDataset) -> None:
    assert (one.features, one.classes) == (other.features, other.classes)
    for part in ("indptr", "indices", "data", "y"):
        np.testing.assert_array_equal(getattr(one, part), getattr(other, part))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("part_bytes", [1, 77, 1 << 20])
def test_libsvm_reads_as_the_reader_into_memory_does(
    tmp_path: Path, threads: int, part_bytes: int
) -> None:
    path = write(tmp_path / "rows.svm", svmlight_lines(400))
    plain = read_svmlight(path, FEATURES, zero_based=False)
    rows = stream.libsvm(path, FEATURES, threads=threads, part_bytes=part_bytes)
    same(rows.read(), plain)
    same(rows.read(17), plain.head(17))
    parts = list(rows.parts(33))
    assert {len(part) for part in parts[:-1]} == {33}
    np.testing.assert_array_equal(np.concatenate([part.data for part in parts]), plain.data)
    np.testing.assert_array_equal(np.concatenate([part.indices for part in parts]), plain.indices)
    lengths = np.concatenate([np.diff(part.indptr) for part in parts])
    np.testing.assert_array_equal(lengths, np.diff(plain.indptr))


@pytest.mark.parametrize("part_bytes", [1, 50, 1 << 20])
def test_libffm_reads_as_the_reader_into_memory_does(tmp_path: Path, part_bytes: int) -> None:
    draw = random.Random(3)
    lines = [
        " ".join(
            [
                draw.choice("01"),
                *(f"{c % 4}:{c}:{draw.choice(VALUES)}" for c in draw.sample(range(30), 5)),
            ]
        )
        for _ in range(200)
    ]
    path = write(tmp_path / "rows.ffm", lines)
    (plain,), fields = read_libffm(path)
    rows = stream.libffm(path, fields, part_bytes=part_bytes, threads=3)
    same(rows.read(), plain)
    wrong = write(tmp_path / "wrong.ffm", ["1 0:0:1", "0 2:1:1", "1 0:99:1"])
    parts = stream.libffm(wrong, fields, bad="skip").parts()
    assert sum(map(len, parts)) == 1
    assert [bad.reason for bad in parts.counts.first_bad] == [
        f"column 1 is of field 2, but fields says {fields[1]}",
        f"column 99 is beyond the {len(fields)} features",
    ]


@pytest.mark.parametrize("part_bytes", [1, 30, 1 << 20])
@pytest.mark.parametrize("threads", [1, 4])
def test_bad_lines_are_left_out_by_number_and_reason(
    tmp_path: Path, threads: int, part_bytes: int
) -> None:
    wrong = {
        "x 1:1": "column 1: expected a finite number for the target",
        "1 0:1": "column 0 occurs, but columns are numbered from 1",
        f"1 2:1 {FEATURES + 1}:1": f"column {FEATURES + 1} is beyond the {FEATURES} features",
        "1 2:1 3": "column 8: expected ':' after the column's number",
        "0 2:nan": "column 5: the value is not finite",
        "0 2:1e39": "column 5: the value is beyond float32",
        "2 1:1": "the label is 2, not 0 or 1, or -1 and 1",
        "0.5 1:1": "the label is 0.5, not 0 or 1, or -1 and 1",
        "1 99999999999:1": "column 3: the column's number is beyond 2147483646",
    }
    draw = random.Random(4)
    lines, good, expected = [], [], []
    for line in svmlight_lines(300, 1):
        if draw.randrange(4) == 0:
            bad = draw.choice(list(wrong))
            expected.append((len(lines) + 1, wrong[bad]))
            lines.append(bad)
        else:
            lines.append(line)
            good.append(line)
    path = write(tmp_path / "rows.svm", lines)
    options: dict[str, Any] = {"threads": threads, "part_bytes": part_bytes}
    rows = stream.libsvm(path, FEATURES, bad="skip", **options)
    same(rows.read(), read_svmlight(write(tmp_path / "good.svm", good), FEATURES, zero_based=False))
    parts = rows.parts(50)
    read = sum(map(len, parts))
    assert (parts.counts.rows, parts.counts.bad) == (read, len(expected))
    assert parts.counts.lines == len(lines)
    assert [(bad.number, bad.reason) for bad in parts.counts.first_bad] == expected[:100]
    number, reason = expected[0]
    with pytest.raises(ValueError, match=re.escape(f"{path}: line {number}: {reason}")):
        stream.libsvm(path, FEATURES, **options).read()


def test_what_a_bad_line_has_begun_does_not_stay(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.svm", ["1 1:1", "1 2:2 3:3 4", "0 5:5", "1 6:6 7:x", "1"])
    data = stream.libsvm(path, 9, bad="skip").read()
    assert data.indptr.tolist() == [0, 1, 2, 2]
    assert data.indices.tolist() == [0, 4]
    assert data.data.tolist() == [1, 5]
    assert data.y.tolist() == [1, 0, 1]


def test_files_follow_each_other_compressed_or_not(tmp_path: Path) -> None:
    lines = svmlight_lines(90)
    plain = read_svmlight(write(tmp_path / "all.svm", lines), FEATURES, zero_based=False)
    write(tmp_path / "day-0.svm", lines[:30])
    (tmp_path / "day-1.svm.gz").write_bytes(gzip.compress("\n".join(lines[30:60]).encode()))
    packed = "\n".join(lines[60:]).encode()
    try:
        zstandard = pytest.importorskip("zstandard")
        (tmp_path / "day-2.svm.zst").write_bytes(zstandard.ZstdCompressor().compress(packed))
    except pytest.skip.Exception:
        (tmp_path / "day-2.svm").write_bytes(packed)
    same(stream.libsvm(str(tmp_path / "day-*"), FEATURES, part_bytes=99).read(), plain)
    opened = stream.libsvm(io.BytesIO((tmp_path / "all.svm").read_bytes()), FEATURES)
    assert not opened.repeatable
    same(opened.read(), plain)


@pytest.mark.parametrize("threads", [1, 3])
def test_windows_are_in_another_order_whoever_reads(tmp_path: Path, threads: int) -> None:
    lines = [f"{n % 2} 1:{n} {1 + n % FEATURES}:1" for n in range(100)]
    path = write(tmp_path / "rows.svm", lines)
    options: dict[str, Any] = {"shuffle": 40, "seed": 5, "part_bytes": 64}
    data = stream.libsvm(path, FEATURES, threads=threads, **options).read()
    order = data.data[data.indptr[:-1]].astype(int)
    assert order.tolist() != list(range(100))
    for begin in (0, 40, 80):
        assert sorted(order[begin : begin + 40]) == list(range(begin, min(begin + 40, 100)))
    assert data.y.tolist() == (order % 2).tolist()
    same(data, stream.libsvm(path, FEATURES, threads=1, **options).read())


def test_targets_are_classes_or_values(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.svm", ["2 1:1", "0", "-0", "1e0 2:1"])
    assert stream.libsvm(path, 3, classes=3).read().y.tolist() == [2, 0, 0, 1]
    values = stream.libsvm(path, 3, classes=0).read()
    assert values.y.dtype == np.float32
    assert values.y.tolist() == [2, 0, 0, 1]
    with pytest.raises(ValueError, match="line 1: the label is 2, not 0 or 1"):
        stream.libsvm(path, 3).read()
    large = write(tmp_path / "large.svm", ["1e39 1:1", "-1 1:1"])
    with pytest.raises(ValueError, match="line 1: the target is beyond float32"):
        stream.libsvm(large, 3, classes=0).read()
    with pytest.raises(ValueError, match="the label is -1, no whole number from 0 below 3"):
        stream.libsvm(write(tmp_path / "minus.svm", ["-1 1:1"]), 3, classes=3).read()


def test_columns_are_numbered_from_0_where_that_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.svm", ["1 0:1 2:3"])
    assert stream.libsvm(path, 3, zero_based=True).read().indices.tolist() == [0, 2]
    with pytest.raises(ValueError, match="column 0 occurs"):
        stream.libsvm(path, 3).read()


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.svm", ["1 1:1"])
    for name, wrong in (
        ("features", {"features": 0}),
        ("zero_based", {"zero_based": 1}),
        ("classes", {"classes": 1}),
        ("classes", {"classes": -1}),
        ("bad", {"bad": "pass"}),
        ("threads", {"threads": 0}),
        ("part_bytes", {"part_bytes": 0}),
    ):
        given: dict[str, Any] = {"features": 3, **wrong}
        with pytest.raises((TypeError, ValueError), match=name):
            stream.libsvm(path, **given)
    for fields in ([0.5], [-1], [[0]], []):
        with pytest.raises((TypeError, ValueError), match="fields"):
            stream.libffm(path, fields)
    with pytest.raises(FileNotFoundError):
        stream.libsvm(tmp_path / "none.svm", 3)
    with pytest.raises(ValueError, match="no row"):
        stream.libsvm(write(tmp_path / "empty.svm", ["# nothing", ""]), 3).read()


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
@pytest.mark.parametrize(
    "model", [lsh.models.logistic_regression(FEATURES), lsh.models.fm(FEATURES)]
)
def test_models_train_part_after_part(tmp_path: Path, model: Any) -> None:
    """As on the parts of what was read into memory."""
    path = write(tmp_path / "rows.svm", svmlight_lines(600))
    plain = read_svmlight(path, FEATURES, zero_based=False)
    theta = expected = model.init(1)
    settings: dict[str, Any] = {"rule": lsh.SGD(0.05), "threads": 1, "batch_size": 10}
    until = lsh.until(epochs=1)
    for number, part in enumerate(stream.libsvm(path, FEATURES).parts(200)):
        theta = lsh.train(model, part, init=theta, until=until, **settings).parameters
        rows = plain[200 * number : 200 * number + len(part)]
        expected = lsh.train(model, rows, init=expected, until=until, **settings).parameters
    np.testing.assert_array_equal(theta, expected)
    assert np.isfinite(theta).all()
    assert not np.array_equal(theta, model.init(1))
