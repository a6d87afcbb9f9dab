"""What files unpack to, from any place: beside their bytes in memory."""

from __future__ import annotations

import gc
import gzip
import os
import random
import zlib
from pathlib import Path
from typing import Any

import pytest

from leashed.datasets import unpacked
from leashed.datasets.unpacked import Unpacked

SEED = 5


def text(count: int) -> bytes:
    drawn = random.Random(SEED)
    return b"".join(b"%d\t%x\n" % (i, drawn.getrandbits(32)) for i in range(count))


def framed(content: bytes) -> bytes:
    """By zstd, in frames of some length."""
    zstandard = pytest.importorskip("zstandard")
    step = 70_001
    frames = [content[first : first + step] for first in range(0, len(content), step)]
    return b"".join(zstandard.compress(frame) for frame in frames)


def members(content: bytes) -> bytes:
    half = len(content) // 2
    return gzip.compress(content[:half]) + b"\0" * 100 + gzip.compress(content[half:], 1)


PACKERS = {"plain": bytes, "gzip": gzip.compress, "members": members, "zstd": framed}


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("most", [1, 4, 256])
def test_bytes_of_any_place_are_those_of_what_it_unpacks_to(
    tmp_path: Path, packer: str, most: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(unpacked, "_STEP", 10_000)
    monkeypatch.setattr(unpacked, "_MOST", most)
    monkeypatch.setattr(unpacked, "_PACKED", 1_000)
    monkeypatch.setattr(unpacked, "_PASSED", 7_000)
    content = text(30_000)
    path = tmp_path / "file"
    path.write_bytes(PACKERS[packer](content))
    file = Unpacked(path)
    assert file.packed == (packer != "plain")
    drawn = random.Random(SEED)
    for _ in range(100):
        first = drawn.randrange(len(content) + 10)
        count = drawn.choice([0, 1, 5_000, len(content)])
        assert file.read(first, count) == content[first : first + count]
    file.close()


@pytest.mark.parametrize(("packer", "passed"), [("gzip", 20_000), ("zstd", 90_000)])
def test_going_back_unpacks_from_a_place_nearby(
    tmp_path: Path, packer: str, passed: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(unpacked, "_STEP", 10_000)
    monkeypatch.setattr(unpacked, "_PASSED", 5_000)
    content = text(30_000)
    path = tmp_path / "file"
    path.write_bytes(PACKERS[packer](content))
    file = Unpacked(path)
    assert file.read(0, len(content)) == content
    counted: list[int] = []
    whole = Unpacked._next

    def counting(self: Unpacked, end: int, most: int):
        for found in whole(self, end, most):
            counted.append(len(found))
            yield found

    monkeypatch.setattr(Unpacked, "_next", counting)
    for first in (250_000, 120_000, 300_000, 0):
        counted.clear()
        assert file.read(first, 100) == content[first : first + 100]
        assert sum(counted) <= passed + 100
    file.close()


def test_places_that_are_kept_are_few_of_a_long_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(unpacked, "_STEP", 1_000)
    monkeypatch.setattr(unpacked, "_MOST", 8)
    content = text(30_000)
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(content))
    file = Unpacked(path)
    for first in range(0, len(content), 900):
        assert file.read(first, 900) == content[first : first + 900]
        assert len(file._kept) <= 8
    file.close()


@pytest.mark.parametrize("packer", ["gzip", "members", "zstd"])
def test_a_damaged_file_is_told_by_name_and_again(tmp_path: Path, packer: str):
    packed = PACKERS[packer](text(20_000))
    path = tmp_path / "file"
    path.write_bytes(packed[:-3])
    file = Unpacked(path)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"file: corrupt (gzip|zstd) file: it ends before"):
            file.read(0, 1 << 30)
    assert file.read(0, 2) == b"0\t"
    file.close()
    if packer == "zstd":  # whose frames need not have a checksum
        return
    middle = len(packed) // 3
    path.write_bytes(packed[:middle] + random.Random(SEED).randbytes(100) + packed[middle + 100 :])
    file = Unpacked(path)
    with pytest.raises(ValueError, match=r"file: corrupt (gzip|zstd) file: "):
        file.read(0, 1 << 30)
    file.close()


def test_what_stands_behind_a_member_must_be_one(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(b"1\n") + b"more")
    file = Unpacked(path)
    with pytest.raises(ValueError, match="file: corrupt gzip file: "):
        file.read(0, 10)
    file.close()


def test_a_member_whose_end_comes_out_in_pieces_is_read_whole(tmp_path: Path):
    content = b"x" * 100_000
    path = tmp_path / "file"
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    path.write_bytes(packer.compress(content) + packer.flush())
    file = Unpacked(path)
    assert b"".join(file.read(first, 7) for first in range(0, len(content), 7)) == content
    assert file.read(len(content), 1) == b""
    file.close()


def test_a_pipe_and_a_missing_file_are_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is no regular file"):
        Unpacked(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        Unpacked(tmp_path / "none")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_part_of_it_as_a_file_is_there_as_long_as_somebody_reads_that(tmp_path: Path, pack: Any):
    content = bytes(range(256)) * 40
    (tmp_path / "a").write_bytes(pack(content))
    part = Unpacked(tmp_path / "a").at(1000, 3000)  # of which nobody else has the whole
    gc.collect()
    assert part.read(1500) + part.read() == content[1000:4000]
    assert part.read() == b""
    assert Unpacked(tmp_path / "a").at(len(content) - 5, 100).read() == content[-5:]
