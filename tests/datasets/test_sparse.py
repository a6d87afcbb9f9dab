"""Sparse data: what is let in, what is refused and how, and the svmlight parser."""

from __future__ import annotations

import gzip
import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import leashed as lsh
from leashed import stream
from leashed.datasets import SparseDataset, read_libffm, read_svmlight


def matrix(**changes: Any) -> SimpleNamespace:
    """[[0, 1, 0], [2, 0, 3]], as SciPy would have it."""
    parts = {
        "indptr": np.array([0, 1, 3], np.int32),
        "indices": np.array([1, 0, 2], np.int32),
        "data": np.array([1.0, 2.0, 3.0]),
        "shape": (2, 3),
    }
    return SimpleNamespace(**parts | changes)


def test_csr_matrices_are_converted() -> None:
    data = SparseDataset.from_csr(matrix(), [0, 1])
    assert (len(data), data.features, data.classes) == (2, 3, 2)
    assert (data.indptr.dtype, data.indices.dtype) == (np.int64, np.int32)
    assert data.data.dtype == np.float32
    assert not data.data.flags.writeable
    assert data.head(1).indptr.tolist() == [0, 1]
    assert SparseDataset.regression(matrix(), [0.5, 1.5]).classes == 0


def test_scipy_matrices_are_taken() -> None:
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    dense = np.array([[0, 1, 0], [2, 0, 3]], np.float64)
    for make in (sparse.csr_matrix, sparse.csr_array):
        data = SparseDataset.from_csr(make(dense), [0, 1])
        assert data.data.tolist() == [1, 2, 3]
    with pytest.raises(TypeError, match=r"scipy\.sparse\.csr_array"):
        SparseDataset.from_csr(sparse.csc_matrix(dense), [0, 1])


def test_columns_that_repeat_or_are_unsorted_add_up() -> None:
    model = lsh.models.linear_regression(3)
    theta = np.array([1, 10, 100, 0], np.float32)
    twice = matrix(indices=np.array([1, 2, 2], np.int32))
    data = SparseDataset.regression(twice, [0, 0])
    assert model.predict(theta, data).ravel().tolist() == [10, 500]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"indices": np.array([1, -1, 2])}, ValueError, "indices has -1, outside 0 to 2"),
        ({"indices": np.array([1, 3, 2])}, ValueError, "indices has 3, outside 0 to 2"),
        ({"indices": np.array([1.0, 0, 2])}, TypeError, "indices must be a one-dimensional array"),
        ({"indptr": np.array([0, 2, 1])}, ValueError, "at row 1"),
        ({"indptr": np.array([1, 1, 3])}, ValueError, "indptr must start with 0"),
        ({"indptr": np.array([0, 1, 2])}, ValueError, "indptr must end with the number of entries"),
        ({"indptr": np.array([0, 1, 9])}, ValueError, "at row 1"),
        ({"data": np.array([1.0, np.nan, 3])}, ValueError, "data is NaN.* in row 1 .column 0"),
        ({"data": np.array([1.0, 1e300, 3])}, ValueError, "beyond float32 in row 1"),
        ({"data": np.array([1.0, 2.0])}, ValueError, "indices must be one-dimensional, of length"),
        ({"data": np.array(["a", "b", "c"])}, TypeError, "data has dtype"),
        ({"indptr": np.array([0])}, ValueError, "x has no row; pass at least one"),
        ({"indptr": np.array([0, 3])}, ValueError, r"y must be one entry per row, shape \(1,\)"),
        ({"shape": (2, 2**40)}, ValueError, "features must be at most"),
    ],
    ids=str,
)
def test_broken_matrices_are_named(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        SparseDataset.from_csr(matrix(**changes), [0, 1])


def test_what_is_no_matrix_is_refused() -> None:
    with pytest.raises(TypeError, match="x must be a matrix in CSR form"):
        SparseDataset.from_csr(np.ones((2, 3)), [0, 1])
    with pytest.raises(ValueError, match="y has the label -1"):
        SparseDataset.from_csr(matrix(), [-1, 1])
    with pytest.raises(TypeError, match="data must be a one-dimensional float32 array"):
        SparseDataset(
            np.array([0, 1], np.int64),
            np.array([0], np.int32),
            np.array([1.0]),  # type: ignore[arg-type]
            1,
            np.array([0], np.int32),
            2,
        )


def write(folder: Path, text: str) -> Path:
    path = folder / "rows.txt"
    path.write_text(text, "ascii")
    return path


def test_files_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, "-1 1:0.5 3:2\n# nothing\n1 2:1\n")
    data = read_svmlight(path)
    assert data.y.tolist() == [0, 1]
    assert data.indices.tolist() == [0, 2, 1]
    assert data.features == 3
    assert read_svmlight(path, 10, zero_based=True).indices.tolist() == [1, 3, 2]
    assert read_svmlight(path, regression=True).y.tolist() == [-1, 1]
    assert read_svmlight(write(tmp_path, "2 0:1\n0 5:1")).classes == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1:1\n1 2;3", r"rows\.txt: line 2: column 4: expected ':'"),
        ("1 1:1 2:x", r"line 1: column 9: expected a finite number"),
        ("", "there is no row in it"),
        ("0.5 1:1", "pass regression=True"),
        ("1 1:1\n3 -4:1", "line 2: column 3"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_svmlight(write(tmp_path, text))


def test_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        read_svmlight(tmp_path / "absent")
    with pytest.raises(ValueError, match="Is a directory"):
        read_svmlight(tmp_path)
    with pytest.raises(ValueError, match="features must be at least that, got 2"):
        read_svmlight(write(tmp_path, "1 3:1"), 2)
    with pytest.raises(ValueError, match="pass zero_based=True"):
        read_svmlight(write(tmp_path, "1 0:1"), zero_based=False)


def test_libffm_files_are_read_together(tmp_path: Path) -> None:
    train, test = tmp_path / "train", tmp_path / "test"
    train.write_text("1 0:0:0.5 2:3:2\n-1 2:3:1 # a comment\n\n1\n", "ascii")
    test.write_text("-1 1:5:1\n", "ascii")
    (first, second), fields = read_libffm(train, test)
    assert fields.tolist() == [0, 0, 0, 2, 0, 1]
    assert (first.features, second.features) == (6, 6)
    assert first.y.tolist() == [1, 0, 1]
    assert first.indptr.tolist() == [0, 2, 3, 3]
    assert first.indices.tolist() == [0, 3, 3]
    assert first.data.tolist() == [0.5, 2, 1]
    assert second.y.tolist() == [0]
    (again,), same = read_libffm(test, fields=fields, regression=True)
    assert same.tolist() == fields.tolist()
    assert again.y.tolist() == [-1]
    model = lsh.models.ffm(fields)
    assert model.predict(model.init(), second).shape == (1, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 0:1:1\n1 1;2", r"rows\.txt: line 2: column 4: expected ':' after the field's number"),
        ("1 1:1", "line 1: column 6: expected ':' after the column's number"),
        ("1 -1:1:1", "line 1: column 3: expected a field's number"),
        ("1 1:x:1", "line 1: column 5: expected a column's number"),
        ("1 2147483647:1:1", "line 1: column 3: the field's number is beyond 2147483646"),
        ("", "there is no row in it"),
        ("1 0:4:1\n0 2:4:1 3:1:1", "row 0 column 4 is of field 0, elsewhere of field 2; give the"),
        ("0.5 0:1:1", "pass regression=True"),
    ],
)
def test_broken_libffm_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_libffm(write(tmp_path, text))


def test_libffm_files_of_other_columns_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "1 0:2:1")
    with pytest.raises(ValueError, match="column 2 occurs, but fields has 2 columns; read the"):
        read_libffm(path, fields=[0, 0])
    with pytest.raises(ValueError, match="column 2 is of field 0, elsewhere of field 1"):
        read_libffm(path, fields=[0, 0, 1])
    with pytest.raises(TypeError, match="fields must be a one-dimensional array of integers"):
        read_libffm(path, fields=[0.5])


TOKENS = st.sampled_from(
    [b"1", b"-1", b"0:1", b"3:0.5", b"7:-1e-3", b"qid:2", b"#", b"\n", b" ", b"\t", b"\r\n", b":",
     b"nan", b"inf", b"1e999", b"1e-999", b"+", b"-", b".", b"2147483647:1", b"\x00", b"\xff"]
)  # fmt: skip


@given(st.lists(TOKENS, max_size=40).map(b" ".join) | st.binary(max_size=60))
def test_no_text_breaks_the_parser(text: bytes) -> None:
    try:
        rows = stream.libsvm(io.BytesIO(text), 2**31 - 1, zero_based=True, classes=0).read()
    except ValueError as error:
        assert re.search(r": line \d+: column|no row in it|: corrupt ", str(error))  # noqa: PT017
        return
    assert len(rows.indptr) == len(rows.y) + 1
    assert rows.indptr[-1] == len(rows.indices) == len(rows.data)
    assert np.isfinite(rows.y).all()
    assert np.isfinite(rows.data).all()
    assert (rows.indices >= 0).all()


@given(
    st.lists(
        st.tuples(
            st.floats(allow_nan=False, allow_infinity=False, width=32),
            st.lists(
                st.tuples(st.integers(0, 2**31 - 2), st.floats(allow_nan=False, width=32)),
                max_size=5,
            ),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_what_is_written_is_read(rows: list[tuple[float, list[tuple[int, float]]]]) -> None:
    rows = [(t, [(c, v) for c, v in entries if np.isfinite(v)]) for t, entries in rows]
    lines = [" ".join([repr(t), *(f"{c}:{v!r}" for c, v in entries)]) for t, entries in rows]
    text = io.BytesIO("\n".join(lines).encode())
    found = stream.libsvm(text, 2**31 - 1, zero_based=True, classes=0).read()
    assert found.y.tolist() == [t for t, _ in rows]
    assert np.diff(found.indptr).tolist() == [len(entries) for _, entries in rows]
    assert found.indices.tolist() == [c for _, entries in rows for c, _ in entries]
    assert found.data.tolist() == [v for _, entries in rows for _, v in entries]


def test_a_packed_file_is_read_and_a_label_too_large_to_be_told_apart_is_none(
    tmp_path: Path,
) -> None:
    text = "1 1:0.5 3:2\n0 2:1\n"
    (tmp_path / "rows.svm.gz").write_bytes(gzip.compress(text.encode()))
    packed, plain = read_svmlight(tmp_path / "rows.svm.gz"), read_svmlight(write(tmp_path, text))
    assert packed.indices.tolist() == plain.indices.tolist()
    assert packed.y.tolist() == [1, 0]
    with pytest.raises(ValueError, match="label beyond 16777215"):
        read_svmlight(write(tmp_path, "16777217 1:1\n0 1:1\n"))
