import gzip
import re
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from leashed.datasets import read_idx, write_idx

DTYPES = ["u1", "i1", "i2", "i4", "f4", "f8"]
IMAGE = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 10, 20, 30, 40, 50, 60])


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("idx") / "file"


def packed(content: bytes) -> bytes:
    """By gzip, without the time: tests are named by it."""
    return gzip.compress(content, mtime=0)


def read(file: Path, content: bytes) -> np.ndarray:
    file.write_bytes(content)
    return read_idx(file)


@pytest.mark.parametrize("name", ["plain", "packed.gz"])
@given(
    array=hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_side=4, min_side=0))
)
def test_what_is_written_is_read(
    name: str, array: np.ndarray, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("round") / name
    write_idx(path, array)
    back = read_idx(path)
    assert back.dtype == array.dtype
    assert back.dtype.isnative
    assert back.shape == array.shape
    np.testing.assert_array_equal(back, array)


def test_the_bytes_are_those_of_the_format(file: Path) -> None:
    np.testing.assert_array_equal(read(file, IMAGE), [[10, 20, 30], [40, 50, 60]])
    signed = struct.pack(">HBBI2h", 0, 0x0B, 1, 2, -2, 256)
    assert read(file, signed).tolist() == [-2, 256]
    write_idx(file, np.array([[10, 20, 30], [40, 50, 60]], np.uint8))
    assert file.read_bytes() == IMAGE


def test_gzip_is_told_by_content_and_not_by_name(file: Path) -> None:
    assert read(file, gzip.compress(IMAGE)).shape == (2, 3)
    named = file.with_name("plain.gz")
    assert read(named, IMAGE).shape == (2, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated: 0 bytes"),
        (IMAGE[:3], "truncated: 3 bytes"),
        (IMAGE[:9], "truncated: the header ends"),
        (IMAGE[:-1], "truncated: dimensions (2, 3) need 6 bytes, got 5"),
        (IMAGE + b"!", "bytes left over"),
        (b"PK" + IMAGE[2:], "not an IDX file"),
        (bytes([0, 0, 10, 1, 0, 0, 0, 0]), "unknown IDX type 0x0a"),
        (bytes([0, 0, 8, 33]) + bytes(4 * 33), "33 dimensions"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12, "absurd dimensions"),
        (bytes([0, 0, 8, 4]) + bytes(4) + b"\xff" * 12, "absurd dimensions"),
        (bytes([0, 0, 8, 1]) + b"\xff" * 4, "more than the file can hold"),
        (packed(IMAGE[:-1]), "truncated: dimensions"),
        (packed(IMAGE + b"!"), "bytes left over"),
        (packed(b"")[:5], "corrupt gzip"),
        (packed(IMAGE)[:-9], "corrupt gzip"),
        (packed(IMAGE)[:-8] + bytes(8), "corrupt gzip"),
        (packed(IMAGE) + b"tail", "corrupt gzip"),
        (b"\x1f\x8b", "corrupt gzip"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(file: Path, content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=f"{re.escape(str(file))}: .*{re.escape(message)}"):
        read(file, content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (packed(IMAGE[:8] + struct.pack(">I", 2**30) + bytes(64)), "can hold"),
        (packed(IMAGE + bytes(64 << 20)), "bytes left over"),
    ],
    ids=["header announces too much", "decompression bomb"],
)
def test_no_file_makes_the_reader_allocate_without_measure(
    file: Path, content: bytes, message: str
) -> None:
    file.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message):
            read_idx(file)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def only_value_errors(file: Path, content: bytes) -> None:
    try:
        array = read(file, content)
    except ValueError as error:
        assert str(file) in str(error)  # noqa: PT017
    else:
        assert array.nbytes <= 1032 * len(content)


@given(content=st.binary(max_size=64))
@settings(max_examples=examples(250))
def test_random_bytes_raise_nothing_but_value_errors(file: Path, content: bytes) -> None:
    only_value_errors(file, content)


@given(
    code=st.sampled_from([0x08, 0x09, 0x0B, 0x0C, 0x0D, 0x0E]),
    ndim=st.integers(0, 255),
    rest=st.binary(max_size=64),
    compressed=st.booleans(),
)
@settings(max_examples=examples(250))
def test_random_headers_raise_nothing_but_value_errors(
    file: Path, code: int, ndim: int, rest: bytes, compressed: bool
) -> None:
    content = bytes([0, 0, code, ndim % 5 if ndim < 200 else ndim]) + rest
    only_value_errors(file, gzip.compress(content) if compressed else content)


@given(compressed=st.booleans(), data=st.data())
@settings(max_examples=examples(250))
def test_mutations_of_a_valid_file_raise_nothing_but_value_errors(
    file: Path, compressed: bool, data: st.DataObject
) -> None:
    content = bytearray(gzip.compress(IMAGE, mtime=0) if compressed else IMAGE)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(content)))
    only_value_errors(file, bytes(content[:end]) + data.draw(st.binary(max_size=8)))


@pytest.mark.parametrize("compressed", [False, True])
def test_every_truncation_is_refused(file: Path, compressed: bool) -> None:
    content = gzip.compress(IMAGE) if compressed else IMAGE
    for end in range(len(content)):
        with pytest.raises(ValueError, match=r"truncated|corrupt"):
            read(file, content[:end])


def test_a_missing_file_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_idx(tmp_path / "nowhere")


@pytest.mark.parametrize("dtype", ["?", "u2", "i8", "u4", "f2", "c8", "U1", "O"])
def test_types_that_idx_lacks_are_not_written(tmp_path: Path, dtype: str) -> None:
    with pytest.raises(TypeError, match="IDX cannot hold"):
        write_idx(tmp_path / "file", np.zeros(3, dtype))
    assert not (tmp_path / "file").exists()
