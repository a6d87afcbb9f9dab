"""Text as rows: the same as the plain reader's for any number of threads and wherever it is cut."""

from __future__ import annotations

import gzip
import io
import os
import random
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stream.lines import COLUMNS, criteo_line, criteo_rows, write

import leashed as lsh
from leashed import datasets, stream
from leashed.datasets.files import open_file

LABELLED = {"y": stream.Label(), "a": stream.Number()}


def same(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(one.y, other.y)
    np.testing.assert_array_equal(one.ids, other.ids)
    np.testing.assert_array_equal(one.x, other.x)


def csv(tmp_path: Path, text: str, columns: Any = None, **options: Any) -> stream.Stream:
    path = tmp_path / "rows.csv"
    path.write_bytes(text.encode())
    return stream.csv(path, LABELLED if columns is None else columns, **options)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("separator", ["\t", ","])
def test_criteo_reads_as_the_plain_reader_does(tmp_path: Path, separator: str, end: str):
    rows = criteo_rows(500)
    path = write(tmp_path / "day.tsv", rows, separator, end)
    plain = datasets.criteo(path)
    for threads in (1, 2, 5):
        for part_bytes in (1, 77, 4096, 1 << 20):
            read = stream.criteo(path, threads=threads, part_bytes=part_bytes).read()
            same(read, plain)


def test_a_header_says_the_order_and_a_last_line_needs_no_newline(tmp_path: Path):
    order = random.Random(1).sample(range(40), 40)
    rows = [["Id", *(COLUMNS[i] for i in order)]]
    rows += [["7", *(row[i] for i in order)] for row in criteo_rows(50)]
    path = write(tmp_path / "day.csv", rows, ",")
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    same(stream.criteo(path).read(), datasets.criteo(path))


@pytest.mark.parametrize("part_bytes", [1, 300, 1 << 20])
@pytest.mark.parametrize("threads", [1, 3])
def test_bad_lines_are_left_out_by_number_and_reason(tmp_path: Path, threads: int, part_bytes: int):
    draw = random.Random(2)
    rows, expected = [], []
    for number in range(1, 301):
        row = criteo_line(draw)
        kind = draw.randrange(8)
        if kind == 0:
            row[0], reason = "2", "Label is '2', not 0 or 1"
        elif kind == 1:
            row[3], reason = "abc", "I3 is 'abc', no finite number"
        elif kind == 2:
            row[20], reason = "xyzw1234", "C7 is 'xyzw1234', not 8 hexadecimal digits"
        elif kind == 3:
            row, reason = row[:39], "39 fields apart by tabs instead of 40"
        elif kind == 4:
            row, reason = [*row, "x"], "41 fields apart by tabs instead of 40"
        elif kind == 5 and number > 1:
            row, reason = [""], ""
        else:
            reason = ""
        rows.append(row)
        if reason:
            expected.append((number, reason))
    path = write(tmp_path / "day.tsv", rows)
    options = {"threads": threads, "part_bytes": part_bytes}
    parts = stream.criteo(path, bad="skip", **options).parts(64)
    x = np.concatenate([part.x for part in parts])
    plain = datasets.criteo(path, bad="skip")
    np.testing.assert_array_equal(x, plain.x)
    counts = parts.counts
    assert (counts.rows, counts.lines, counts.bad) == (len(plain), 300, len(expected))
    assert [(bad.number, bad.reason) for bad in counts.first_bad] == expected[:100]
    assert {bad.file for bad in counts.first_bad} == {str(path)}
    assert counts.bytes == path.stat().st_size
    number, reason = expected[0]
    with pytest.raises(ValueError, match=f"line {number}: ") as raised:
        stream.criteo(path, **options).read()
    assert reason in str(raised.value)
    assert 'bad="skip"' in str(raised.value)
    good = stream.criteo(path, **options).read(number - 1) if number > 1 else None
    assert good is None or len(good) == number - 1


def test_files_follow_each_other_compressed_or_not(tmp_path: Path):
    rows = criteo_rows(90)
    write(tmp_path / "day-0.tsv", rows[:30])
    plain = write(tmp_path / "all.tsv", rows)
    whole = plain.read_bytes()
    lines = whole.splitlines(keepends=True)
    (tmp_path / "day-1.tsv.gz").write_bytes(
        gzip.compress(b"".join(lines[30:40])) + gzip.compress(b"".join(lines[40:60]))
    )
    write(tmp_path / "day-2.tsv", rows[60:])
    reference = datasets.criteo(plain)
    pattern = str(tmp_path / "day-*")
    same(stream.criteo(pattern, part_bytes=500, threads=3).read(), reference)
    files = [tmp_path / f"day-{n}.tsv{'.gz' if n == 1 else ''}" for n in range(3)]
    same(stream.criteo(files).read(), reference)
    same(stream.criteo(io.BytesIO(whole)).read(), reference)
    same(stream.criteo(io.BytesIO(gzip.compress(whole))).read(), reference)


def test_a_header_begins_each_file_and_lines_count_from_it(tmp_path: Path):
    (tmp_path / "a.csv").write_text("y,a\n1,2\n0,3\n")
    (tmp_path / "b.csv").write_text("a,y\n4,1\n\nx,0\n")
    parts = stream.csv([tmp_path / "a.csv", tmp_path / "b.csv"], LABELLED, bad="skip").parts()
    (data,) = parts
    assert data.x.ravel().tolist() == [2, 3, 4]
    assert data.y.tolist() == [1, 0, 1]
    (bad,) = parts.counts.first_bad
    assert (bad.file, bad.number) == (str(tmp_path / "b.csv"), 4)
    assert parts.counts.lines == 7


@pytest.mark.parametrize("part_bytes", [1, 4, 5, 100])
def test_lines_count_alike_where_a_part_is_a_header_alone(tmp_path: Path, part_bytes: int):
    parts = csv(tmp_path, "y,a\n1,2\nx,3\n", part_bytes=part_bytes, bad="skip").parts()
    assert sum(len(part) for part in parts) == 1
    assert (parts.counts.lines, parts.counts.first_bad[0].number) == (3, 3)
    for header, lines in (("y,a\n", 1), ("y,a", 1), ("\n\ny,a", 3)):
        (tmp_path / "header.csv").write_text(header)
        files = [tmp_path / "rows.csv", tmp_path / "header.csv"]
        parts = stream.csv(files, LABELLED, part_bytes=part_bytes, bad="skip").parts()
        assert sum(len(part) for part in parts) == 1
        assert parts.counts.lines == 3 + lines


def test_a_column_that_a_header_has_twice_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="its header has column a more than once"):
        csv(tmp_path, "y,a,a\n1,2,3\n").read()
    assert len(csv(tmp_path, "y,a,b,b\n1,2,3,4\n").read()) == 1


def test_names_of_files_need_be_no_text(tmp_path: Path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv"))
    path.write_text("y,a\n1,2\nx,3\n")
    parts = stream.csv(path, LABELLED, bad="skip").parts()
    assert sum(len(part) for part in parts) == 1
    assert parts.counts.first_bad[0].file == f"{tmp_path}/\\xff.csv"


def test_columns_become_what_the_schema_says(tmp_path: Path):
    columns = {
        "w": stream.Weight(),
        "price": stream.Number(log=True, missing=-1),
        "age": stream.Number(),
        "item": stream.Id(missing=9, offset=100),
        "city": stream.Hashed(buckets=1000, seed=3),
        "device": stream.Vocabulary(["phone", "desk, top", "é"]),
        "seen": stream.Id(between="|"),
        "y": stream.Label(),
    }
    text = (
        "y,other,price,age,item,city,device,seen,w\n"
        '1,"a ""b"", c",,1.5e1,7,Wien,"desk, top",3|4|5,0.5\n'
        "0,x,-3,+2,,,é,,0\n"
        "1,x,1e2,-0.25,-1,Wien,tablet,8,3\n"
    )
    data = csv(tmp_path, text, columns).read()
    assert data.y.tolist() == [1, 0, 1]
    np.testing.assert_allclose(data.x, [[-1, 15], [0, 2], [np.log(101), -0.25]], rtol=1e-7)
    assert data.weights.tolist() == [0.5, 0, 3]
    item, city, device, seen = data.ids
    assert item.tolist() == [107, 9, 99]  # −1 is 2⁶⁴ − 1
    assert city[0] == city[2] == hashed(b"Wien", 3) % 1000
    assert city[1] == hashed(b"", 3) % 1000
    assert device.tolist() == [1, 2, 3]
    assert seen.ids.tolist() == [3, 4, 5, 8]
    assert seen.offsets.tolist() == [0, 3, 3, 4]
    assert data.names == ("item", "city", "device", "seen")


def hashed(word: bytes, seed: int) -> int:
    mask = 2**64 - 1
    h = 0xCBF29CE484222325 ^ seed
    for byte in word:
        h = ((h ^ byte) * 0x100000001B3) & mask
    h = ((h ^ h >> 33) * 0xFF51AFD7ED558CCD) & mask
    h = ((h ^ h >> 33) * 0xC4CEB9FE1A85EC53) & mask
    return h ^ h >> 33


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0.0),
        ("-0", -0.0),
        ("123456789012345678901234567890", 1.2345678901234568e29),
        ("0.1", 0.1),
        ("16777217", 16777216.0),
        ("3.4028234e38", 3.4028234e38),
        ("1e-400", 0.0),
        ("0." + "0" * 400 + "1", 0.0),
        ("5.", 5.0),
        (".5", 0.5),
        ("9007199254740993", 9007199254740993.0),
        ("1E3", 1000.0),
    ],
)
def test_numbers_are_read_to_the_nearest(tmp_path: Path, text: str, value: float):
    data = csv(tmp_path, f"y,a\n1,{text}\n").read()
    assert data.x[0, 0].tobytes() == np.float32(value).tobytes()


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1",
        "1 ",
        "nan",
        "inf",
        "1e39",
        "1" + "0" * 400 + "e-1",
        "--1",
        "+-1",
        "1,5"[:1] + "x",
        "0x1",
        "1e",
        ".",
    ],
)
def test_no_number_is_a_bad_line(tmp_path: Path, text: str):
    with pytest.raises(ValueError, match=r"line 2: a is .*no finite number"):
        csv(tmp_path, f"y,a\n1,{text}\n").read()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('1,"2', "a quoted field does not end"),
        ('1,"2"x', "a quoted field does not end"),
        ("1", "1 fields apart by commas instead of 2"),
        ('1,"2",3', "3 fields"),
        ("1.5,2", "y is '1.5', not 0 or 1"),
        ("1_0,2", "y is '1_0', not 0 or 1"),
        ("nan,2", "y is 'nan', not 0 or 1"),
        (",2", "y is missing, not 0 or 1"),
        ("-1,2", "y is '-1', not 0 or 1"),
        ("1,\x80\x07", r"a is '\\xc2\\x80\\x07', no finite number"),
    ],
)
def test_a_bad_line_says_why(tmp_path: Path, line: str, reason: str):
    with pytest.raises(ValueError, match=f"rows.csv: line 3: {reason}"):
        csv(tmp_path, f"y,a\n0,1\n{line}\n").read()


def test_a_label_is_a_whole_number_however_it_is_written(tmp_path: Path):
    """As floats are that other libraries write, and as Arrow's and svmlight's are."""
    labels = ["1.0", "0.0", "1", "+1", "01", "1e0", "0.1e1", "-0", "1.", "0e9"]
    told = [1, 0, 1, 1, 1, 1, 1, 0, 1, 0]
    text = "y,a\n" + "".join(f"{label},2\n" for label in labels)
    assert csv(tmp_path, text).read().y.tolist() == told
    columns = {"y": stream.Label(classes=11), "a": stream.Number()}
    ten = csv(tmp_path, "y,a\n10.0,2\n1e1,2\n10,2\n", columns).read()
    assert ten.y.tolist() == [10] * 3
    (tmp_path / "rows.svm").write_text("".join(f"{label} 1:1\n" for label in labels))
    assert stream.libsvm(tmp_path / "rows.svm", 1).read().y.tolist() == told
    assert datasets.read_svmlight(tmp_path / "rows.svm").y.tolist() == told
    rows = criteo_rows(len(labels))
    day = write(tmp_path / "day.tsv", [[y, *row[1:]] for y, row in zip(labels, rows, strict=True)])
    assert stream.criteo(day).read().y.tolist() == told
    assert datasets.criteo(day).y.tolist() == told


@pytest.mark.parametrize("field", [0, 1, 13])
@pytest.mark.parametrize(
    "text",
    [
        "1_0",
        "1_000",
        " 1",
        "1 ",
        "1\x0b",
        "nan",
        "inf",
        "-infinity",
        "1e999",
        "0x1",
        "1e",
        ".",
        "+-1",
    ],
)
def test_what_is_no_number_is_none_to_any_reader(tmp_path: Path, field: int, text: str):
    rows = criteo_rows(3)
    rows[1][field] = text
    path = write(tmp_path / "day.tsv", rows)
    name = COLUMNS[field]
    for read in (datasets.criteo, lambda file: stream.criteo(file).read()):
        with pytest.raises(ValueError, match=rf"line 2: {name} is '.*', (no finite number|not 0)"):
            read(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0." + "0" * 400 + "1", 0.0), ("1e-400", 0.0), ("1" + "0" * 400 + "e-400", 1.0)],
)
def test_a_number_beyond_doubles_is_small_or_none_to_any_reader(
    tmp_path: Path, text: str, value: float
):
    path = tmp_path / "rows.svm"
    path.write_text(f"1 1:{text}\n")
    assert datasets.read_svmlight(path).data.tolist() == [value]
    assert stream.libsvm(path, 1).read().data.tolist() == [value]
    path.write_text(f"1 1:1{'0' * 400}e-1\n")
    with pytest.raises(ValueError, match="expected a finite number for the value"):
        datasets.read_svmlight(path)
    with pytest.raises(ValueError, match="expected a finite number for the value"):
        stream.libsvm(path, 1).read()


@pytest.mark.parametrize("text", ["", "\n\n", "y,a\n", "\ufeff"])
def test_a_file_without_rows_is_an_error(tmp_path: Path, text: str):
    with pytest.raises(ValueError, match=r"rows\.csv: "):
        csv(tmp_path, text).read()


def test_what_is_no_such_file_is_said_before_it_is_read(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        stream.criteo(tmp_path / "none.tsv")
    with pytest.raises(FileNotFoundError, match="no file matches"):
        stream.criteo(str(tmp_path / "day-*.tsv"))
    (tmp_path / "weeks").mkdir()
    for folder in (tmp_path / "weeks", str(tmp_path / "week*")):
        with pytest.raises(IsADirectoryError, match=r"weeks is a folder; name the files in it"):
            stream.criteo(folder)
    with pytest.raises(ValueError, match="its header has no column a"):
        csv(tmp_path, "y,b\n1,2\n").read()


@pytest.mark.parametrize(
    "make",
    [
        stream.criteo,
        lambda file: stream.csv(file, LABELLED),
        lambda file: stream.libsvm(file, 3),
        lambda file: stream.libffm(file, [0, 1, 2]),
    ],
    ids=["criteo", "csv", "libsvm", "libffm"],
)
def test_open_files_that_give_no_bytes_are_refused(tmp_path: Path, make: Any):
    path = tmp_path / "rows.csv"
    path.write_text("y,a\n0,1\n")
    remedy = r"path is a file open in text mode; open it with open\(\.\.\., 'rb'\)"
    with path.open(encoding="utf-8") as file, pytest.raises(TypeError, match=remedy):
        make(file)
    with pytest.raises(TypeError, match=remedy):
        make(io.StringIO("y,a\n0,1\n"))
    with tempfile.NamedTemporaryFile("w+") as file, pytest.raises(TypeError, match=remedy):
        make(file)
    with path.open("ab") as file, pytest.raises(ValueError, match=r"rows\.csv, open for writing"):
        make(file)
    with pytest.raises(ValueError, match=r"rows\.csv, which is closed; open it with mode 'rb'"):
        make(file)


@pytest.mark.parametrize(
    "read",
    [
        datasets.criteo,
        datasets.read_idx,
        datasets.read_svmlight,
        datasets.read_libffm,
        stream.schema,
    ],
)
@pytest.mark.parametrize("mode", ["r", "rb"])
def test_what_takes_a_path_refuses_an_open_file(tmp_path: Path, read: Any, mode: str):
    path = tmp_path / "rows"
    path.touch()
    with path.open(mode) as file, pytest.raises(TypeError, match="path must be the path of a file"):
        read(file)


@pytest.mark.parametrize(
    "columns",
    [
        {"a": stream.Number()},
        {"y": stream.Label()},
        {"y": stream.Label(), "z": stream.Target(), "a": stream.Number()},
        {"y": stream.Label(), "a": stream.Number(), "v": stream.Weight(), "w": stream.Weight()},
    ],
)
def test_a_schema_says_what_it_lacks(tmp_path: Path, columns: Any):
    with pytest.raises(ValueError, match="columns must have"):
        csv(tmp_path, "y,a\n1,2\n", columns)


def test_what_is_missing_is_a_float32():
    with pytest.raises(ValueError, match="missing must be at most"):
        stream.Number(missing=1e39)


@pytest.mark.parametrize("cut", [3, 40, -9, -1])
def test_a_damaged_gzip_file_is_an_error(tmp_path: Path, cut: int):
    path = tmp_path / "day.tsv.gz"
    packed = gzip.compress(write(tmp_path / "day.tsv", criteo_rows(200)).read_bytes())
    path.write_bytes(packed[:cut])
    with pytest.raises(ValueError, match=r"day.tsv.gz: corrupt gzip file"):
        stream.criteo(path).read()


def test_frames_of_zstd_follow_each_other_and_a_damaged_one_is_an_error(tmp_path: Path):
    zstandard = pytest.importorskip("zstandard")
    rows = criteo_rows(200)
    plain = write(tmp_path / "all.tsv", rows)
    lines = plain.read_bytes().splitlines(keepends=True)
    pack = zstandard.ZstdCompressor().compress
    skipped = b"\x5a\x2a\x4d\x18\x03\0\0\0abc"
    one, other = pack(b"".join(lines[:77])), pack(b"".join(lines[77:]))
    path = tmp_path / "day.tsv.zst"
    for packed in (one + other, skipped + one + skipped + other + skipped):
        path.write_bytes(packed)
        same(stream.criteo(path, part_bytes=3000).read(), datasets.criteo(plain))
    for packed in (one[:-1], one + other[:20], one + b"no frame", one[:50] + b"x" + one[51:]):
        path.write_bytes(packed)
        with pytest.raises(ValueError, match=r"day.tsv.zst: corrupt zstd file|line \d+: "):
            stream.criteo(path).read()


def zstd_packed(content: bytes) -> list[bytes]:
    """In frames of each kind: of one segment or not, with a checksum, of blocks that end anywhere."""
    zstandard = pytest.importorskip("zstandard")
    packed = []
    for settings in ({}, {"write_checksum": True}, {"write_content_size": False}, {"level": 19}):
        packed.append(zstandard.ZstdCompressor(**settings).compress(content))
        packer = zstandard.ZstdCompressor(**settings).compressobj()
        blocks = [
            packer.compress(content[at : at + 999])
            + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
            for at in range(0, len(content), 999)
        ]
        packed.append(b"".join(blocks) + packer.flush())
    return packed


def unpacked(path: Path, size: int = 1 << 16) -> bytes:
    opened: Any = open_file(path, lambda: False)
    buffer, found = memoryview(bytearray(size)), []
    while count := opened.readinto(buffer):
        found.append(bytes(buffer[:count]))
    return b"".join(found)


def test_every_kind_of_zstd_frame_is_unpacked(tmp_path: Path):
    draw = random.Random(4)
    path = tmp_path / "packed"
    contents = [b"", b"1", b"1,2\n" * 90_000, draw.randbytes(9_000), b"\0" * 300_000]
    contents.append(b"".join(draw.randbytes(50) + b"abc" * 50 for _ in range(900)))
    for content in contents:
        kinds = zstd_packed(content)
        for packed in kinds:
            path.write_bytes(packed)
            assert unpacked(path) == content
        path.write_bytes(b"".join(kinds))
        assert unpacked(path, 7_000) == content * len(kinds)


def test_a_zstd_file_that_ends_early_is_an_error_wherever_it_does(tmp_path: Path):
    path = tmp_path / "packed"
    for packed in zstd_packed(b"1,2\n" * 700):
        for end in range(5, len(packed)):
            path.write_bytes(packed[:end])
            with pytest.raises(ValueError, match="packed: corrupt zstd file: it ends before"):
                unpacked(path)


@pytest.mark.parametrize("pack", ["gzip", "zstd"])
def test_what_unpacks_to_much_takes_little_memory(tmp_path: Path, pack: str):
    size = 32 << 20
    line = b"1,2\n"
    packed = (
        gzip.compress(line * (size // 4)) if pack == "gzip" else zstd_packed(line * (size // 4))[0]
    )
    assert len(packed) < size // 500
    path = tmp_path / "packed"
    path.write_bytes(packed)
    del packed
    opened: Any = open_file(path, lambda: False)
    buffer, found = memoryview(bytearray(1 << 16)), 0
    tracemalloc.start()
    try:
        while count := opened.readinto(buffer):
            found += count
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == size
    assert peak < 4 << 20


def test_a_shuffled_window_has_its_rows_in_another_order(tmp_path: Path):
    text = "y,a\n" + "".join(f"1,{i}\n" for i in range(250))

    def read(**options: Any) -> list[int]:
        data = csv(tmp_path, text, **options).read()
        return [int(v) for v in data.x.ravel()]

    shuffled = read(shuffle=100, seed=5)
    for begin, end in ((0, 100), (100, 200), (200, 250)):
        window = shuffled[begin:end]
        assert sorted(window) == list(range(begin, end))
        assert window != list(range(begin, end))
    assert read(shuffle=100, seed=5, threads=3, part_bytes=10) == shuffled
    assert read(shuffle=100, seed=6) != shuffled


def test_a_long_line_is_read_and_one_too_long_is_an_error(tmp_path: Path):
    columns = {"y": stream.Label(), "seen": stream.Id(between=" ")}
    ids = " ".join(str(i) for i in range(300_000))
    data = csv(tmp_path, f"y,seen\n1,{ids}\n0,5\n", columns, part_bytes=100).read()
    assert data.ids[0].offsets.tolist() == [0, 300_000, 300_001]
    with pytest.raises(ValueError, match="longer than 64 MiB"):
        csv(tmp_path, "y,a\n1," + "1" * (65 << 20)).read()


def test_random_bytes_are_errors_and_no_crash(tmp_path: Path):
    draw = random.Random(3)
    good = write(tmp_path / "good.tsv", criteo_rows(20)).read_bytes()
    path = tmp_path / "day.tsv"
    for _ in range(300):
        text = bytearray(good)
        for _ in range(draw.randrange(1, 40)):
            at = draw.randrange(len(text))
            kind = draw.randrange(3)
            if kind == 0:
                text[at] = draw.choice(b'\t\n\r,"\x00\xff0a')
            elif kind == 1:
                del text[at : at + draw.randrange(300)]
            else:
                text[at:at] = bytes(draw.choices(b'\t\n"0af.-', k=5))
        path.write_bytes(text)
        counts = []
        for part_bytes, threads in ((1 << 20, 1), (draw.randrange(1, 500), 3)):
            parts = stream.criteo(path, bad="skip", part_bytes=part_bytes, threads=threads).parts()
            try:
                rows = sum(len(part) for part in parts)
            except ValueError:
                rows = -1
            counts.append((rows, parts.counts))
        assert counts[0] == counts[1]


def test_every_name_is_public():
    assert lsh.stream is stream
