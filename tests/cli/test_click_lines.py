"""``leashed clicks``."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from leashed import cli
from leashed.datasets import synthetic_click_lines

_ARGUMENTS = ["--rows", "20000", "--seed", "4", "--day", "2", "--drift", "0.2"]


def lines(test: bool = False) -> bytes:
    return b"".join(synthetic_click_lines(20_000, 4, day=2, drift=0.2, test=test))


def test_plain_and_compressed(tmp_path: Path):
    assert cli.main(["clicks", *_ARGUMENTS, "--output", str(tmp_path / "day.tsv")]) == 0
    assert (tmp_path / "day.tsv").read_bytes() == lines()
    for name in ("one.tsv.gz", "other.tsv.gz"):
        arguments = [*_ARGUMENTS, "--test", "--output", str(tmp_path / name)]
        assert cli.main(["clicks", *arguments]) == 0
        assert gzip.decompress((tmp_path / name).read_bytes()) == lines(test=True)
    assert (tmp_path / "one.tsv.gz").read_bytes() == (tmp_path / "other.tsv.gz").read_bytes()
    assert len(list(tmp_path.iterdir())) == 3


def test_through_a_pipe_that_closes_early():
    command = [sys.executable, "-m", "leashed", "clicks", "--rows", "1000000000", "--seed", "4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 1
    assert first == next(synthetic_click_lines(1, 4))
    assert said == b""


def test_what_cannot_be_is_told_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for arguments, message in (
        (["--rows", "0"], "rows must be at least 1"),
        (["--cardinality", str(2**33)], "cardinalities must be at most 2**32"),
        (["--output", str(tmp_path / "none" / "day.tsv")], "its folder does not exist"),
    ):
        assert cli.main(["clicks", *arguments]) == 2
        assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_file_beside_is_its_owners(tmp_path: Path) -> None:
    kept = tmp_path / "day.tsv.part"
    kept.write_text("mine")
    assert cli.main(["clicks", *_ARGUMENTS, "--output", str(tmp_path / "day.tsv")]) == 0
    assert kept.read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 2
