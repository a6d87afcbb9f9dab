"""Rows that come through pipes: they are files of the run's folder before anything is started."""

from __future__ import annotations

import errno
import gzip
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cluster.test_readers import begun, criteo_lines, report_of, up
from cluster.test_up import outlives

import leashed as lsh
from leashed import cli
from leashed.cli import cluster as command
from leashed.cluster import piped
from leashed.cluster import plan as plans
from leashed.cluster.row_index import kept_in
from leashed.datasets.files import name_of

ROWS = 3000


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The plans of runs, which are not run."""
    found: list[Any] = []

    def train(plan: Any, *_: object, **__: object) -> int:
        found.append(plan)
        return 0

    monkeypatch.setattr(command, "_train", train)
    return found


def fed(path: Path, content: bytes, pause: float = 0.0) -> threading.Thread:
    """Somebody who writes that to a new pipe, in pieces that are no whole lines."""
    os.mkfifo(path)

    def write() -> None:
        with path.open("wb", buffering=0) as pipe:
            for at in range(0, len(content), 50_001):
                pipe.write(content[at : at + 50_001])
                time.sleep(pause)

    feeding = threading.Thread(target=write, daemon=True)
    feeding.start()
    return feeding


def through(folder: Path, data: str, *more: str) -> list[str]:
    asked: list[str] = up(folder, *more, rows=1)
    asked[asked.index("--data") + 1] = data
    return asked


@pytest.mark.parametrize("readers", ["0", "1"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_what_comes_through_a_pipe_is_a_file_of_the_run(
    tmp_path: Path, planned: list[Any], readers: str, pack: Any
) -> None:
    content = pack(criteo_lines(ROWS))
    feeding = fed(tmp_path / "pipe", content, pause=0.01)
    asked = through(tmp_path, str(tmp_path / "pipe"), "--readers", readers)
    if readers == "0":  # the last fifth is kept back
        at = asked.index("--test")
        del asked[at : at + 2]
    assert cli.main(asked) == 0
    feeding.join()
    (plan,) = planned
    assert Path(plan.train.data).parent == tmp_path / "run"
    assert Path(plan.train.data).read_bytes() == content
    assert {path.suffix for path in (tmp_path / "run").iterdir()} <= {".piped", ".index", ".lock"}
    if readers == "1":
        assert kept_in(tmp_path / "run").rows == ROWS


def test_rows_to_test_may_come_through_one_too(tmp_path: Path, planned: list[Any]) -> None:
    asked = up(tmp_path, "--readers", "1", rows=300)
    content = criteo_lines(200, 9)
    fed(tmp_path / "pipe", content)
    asked[asked.index("--test") + 1] = str(tmp_path / "pipe")
    assert cli.main(asked) == 0
    assert Path(planned[0].train.test).read_bytes() == content


@pytest.fixture
def given_stdin() -> Iterator[Callable[[bytes], None]]:
    """What standard input has is set by it."""
    before = os.dup(0)

    def given(content: bytes) -> None:
        end, own = os.pipe()
        os.dup2(end, 0)
        os.close(end)
        os.write(own, content)
        os.close(own)

    yield given
    os.dup2(before, 0)
    os.close(before)


def test_half_a_line_at_the_end_is_told_by_its_number(
    tmp_path: Path,
    given_stdin: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given_stdin(criteo_lines(20)[:-130])
    assert cli.main(through(tmp_path, "-", "--readers", "1")) == 2
    assert "data.piped: line 20" in capsys.readouterr().err


def test_bad_lines_are_left_out_and_counted(
    tmp_path: Path, given_stdin: Any, planned: list[Any]
) -> None:
    given_stdin(criteo_lines(20)[:-130])
    assert cli.main(through(tmp_path, "-", "--readers", "1", "--bad", "skip")) == 0
    counts = kept_in(planned[0].cluster.run).counts
    assert (counts.rows, counts.bad, counts.first_bad[0].number) == (19, 1, 20)


def test_an_empty_pipe_is_told(
    tmp_path: Path,
    given_stdin: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given_stdin(b"")
    assert cli.main(through(tmp_path, "-", "--readers", "1")) == 2
    assert "standard input has ended without a row" in capsys.readouterr().err
    assert list((tmp_path / "run").iterdir()) == []


def test_a_full_disk_is_told_with_what_helps(
    tmp_path: Path,
    given_stdin: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    given_stdin(b"1\n")
    asked = through(tmp_path, "-", "--readers", "1")
    monkeypatch.setattr(piped, "shutil", SimpleNamespace(copyfileobj=full))
    assert cli.main(asked) != 0
    told = capsys.readouterr().err
    assert "No space left on device; give --run a folder with room" in told
    assert list((tmp_path / "run").iterdir()) == []


def test_a_wrong_file_to_test_is_told_before_the_pipe_is_read(
    tmp_path: Path,
    given_stdin: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given_stdin(b"1\n")
    asked = through(tmp_path, "-", "--readers", "1")
    (tmp_path / "t.tsv").unlink()
    assert cli.main(asked) == 2
    assert "t.tsv" in capsys.readouterr().err
    assert os.read(0, 10) == b"1\n"


def test_a_process_that_is_started_alone_reads_no_standard_input(tmp_path: Path) -> None:
    text = '[cluster]\nreaders = 1\nembedding_ps = 1\n[train]\nmodel = "dlrm"\ndata = "-"\ntest = "t.tsv"\n'
    with pytest.raises(ValueError, match=r"train\.data is standard input.*name a file"):
        plans.parse(text, tmp_path).problem()


def test_parquet_is_told_by_its_beginning(tmp_path: Path, given_stdin: Any) -> None:
    given_stdin(b"PAR1 and more")
    (tmp_path / "run").mkdir()
    text = f'[cluster]\nrun = "{tmp_path / "run"}"\n[train]\ndata = "-"\n'
    there = piped.kept(plans.parse(text, tmp_path))
    assert there.train.data == str(tmp_path / "run" / "data.parquet")


@pytest.mark.parametrize(
    ("content", "name"), [(b"PAR1 and no more", "data.parquet"), (b"1\t2\n", "data.piped")]
)
def test_a_copy_stays_where_no_run_comes_of_it(
    tmp_path: Path,
    given_stdin: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: bytes,
    name: str,
) -> None:
    """The pipe has it no more."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    given_stdin(content)
    asked = through(tmp_path, "-", "--readers", "1")
    at = asked.index("--run")
    del asked[at : at + 2]
    assert cli.main(asked) == 2
    (folder,) = (tmp_path / "temporary").iterdir()
    assert (folder / name).read_bytes() == content
    assert f"its logs are in {folder}" in capsys.readouterr().err


@pytest.mark.parametrize("named", [["--data", "{}/*.csv"], ["--days", "{}/a.csv", "{}/b.csv"]])
def test_several_pipes_without_a_reader_are_refused(
    tmp_path: Path, named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each trainer read them, and waited for what others had."""
    for name in "ab":
        os.mkfifo(tmp_path / f"{name}.csv")
    asked = through(tmp_path, "-")
    at = asked.index("--data")
    asked[at : at + 2] = [each.format(tmp_path) for each in named]
    assert cli.main(asked) == 2
    assert "a.csv is a pipe, which can be read once, and each trainer" in capsys.readouterr().err


@pytest.mark.parametrize("readers", ["0", "1"])
def test_several_pipes_with_rows_to_test_are_refused(
    tmp_path: Path, readers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command read them, and trainers waited for rows."""
    os.mkfifo(tmp_path / "p-0.tsv")
    asked = up(tmp_path, "--readers", readers, rows=300)
    asked[asked.index("--test") + 1] = str(tmp_path / "p-*.tsv")
    assert cli.main(asked) == 2
    told = (
        "p-0.tsv is a pipe, which can be read once, and each trainer reads all files to test: name"
    )
    assert told in capsys.readouterr().err


def of_sparse_rows(folder: Path, data: str, *more: str) -> list[str]:
    (folder / "t.libsvm").write_bytes(SPARSE)
    words = ["cluster", "up", "--model", "logistic_regression", "--readers", "1", "--data", data]
    words += ["--test", str(folder / "t.libsvm"), "--run", str(folder / "run"), "--features", "60"]
    return [*words, *more]


SPARSE = b"".join(
    f"{1 if k % 3 == 1 else -1} {1 + k % 7}:1 {10 + k % 50}:0.5\n".encode() for k in range(1200)
)


def test_a_pipe_whose_format_nothing_tells_is_refused_before_it_is_read(
    tmp_path: Path, given_stdin: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    given_stdin(SPARSE)
    assert cli.main(of_sparse_rows(tmp_path, "-")) == 2
    assert "the name of standard input does not tell its format" in capsys.readouterr().err
    assert os.read(0, len(SPARSE)) == SPARSE


def test_a_copy_is_of_the_format_that_the_name_of_the_pipe_tells(
    tmp_path: Path, planned: list[Any]
) -> None:
    fed(tmp_path / "rows.libsvm", SPARSE)
    asked = of_sparse_rows(tmp_path, str(tmp_path / "rows.libsvm"), "--epochs", "2")
    assert cli.main(asked) == 0
    assert planned[0].train.format == "libsvm"
    assert Path(planned[0].train.data).read_bytes() == SPARSE


@pytest.mark.process
def test_sparse_rows_of_a_pipe_train_to_the_bits_of_a_file(tmp_path: Path) -> None:
    alone = ["--trainers", "1", "--sync", "none", "--epochs", "1", "--format", "libsvm"]
    of_file = tmp_path / "file"
    of_file.mkdir()
    asked = of_sparse_rows(of_file, str(of_file / "t.libsvm"), *alone)
    assert cli.main(asked) == 0
    fed(tmp_path / "pipe", SPARSE, pause=0.5)
    assert cli.main(of_sparse_rows(tmp_path, str(tmp_path / "pipe"), *alone)) == 0
    assert report_of(tmp_path)["read"] == {"rows": 1200, "ended": True, "used": 1200}
    mine, other = ((f / "run" / "output.safetensors").read_bytes() for f in (of_file, tmp_path))
    assert mine == other


@pytest.mark.parametrize(
    ("path", "told"),
    [("/proc/12/fd/0", "standard input"), ("/proc/12/fd/63", "/dev/fd/63"), ("/proc/12/a", None)],
)
def test_what_another_process_has_open_is_called_as_it_was_given(
    path: str, told: str | None
) -> None:
    assert name_of(Path(path)) == (told or path)


@pytest.mark.parametrize("readers", ["0", "1"])
def test_closed_standard_input_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readers: str, capsys: Any
) -> None:
    """Also where rows would be taken as they come."""
    monkeypatch.setattr(sys, "stdin", None)
    assert cli.main(through(tmp_path, "-", "--readers", readers)) == 2
    assert "--data is standard input, which is closed: pipe rows into it" in capsys.readouterr().err


def test_what_comes_through_a_socket_is_a_file_of_the_run(
    tmp_path: Path, planned: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    before, (mine, its) = os.dup(0), socket.socketpair()
    with mine, its:
        os.dup2(its.fileno(), 0)
        mine.sendall(criteo_lines(20))
        mine.shutdown(socket.SHUT_WR)
        try:
            assert cli.main(through(tmp_path, "-", "--readers", "1", "--epochs", "1")) == 0
        finally:
            os.dup2(before, 0)
            os.close(before)
    assert Path(planned[0].train.data).read_bytes() == criteo_lines(20)
    assert "it is a socket, which no other process can open" in capsys.readouterr().err


@pytest.mark.process
def test_ctrl_c_ends_waiting_for_a_silent_pipe(tmp_path: Path) -> None:
    asked = through(tmp_path, "-", "--readers", "1")
    with subprocess.Popen(
        [sys.executable, "-m", "leashed", *asked],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        assert b"read to its end" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.process
def test_a_run_over_a_pipe_is_the_run_over_the_file(tmp_path: Path) -> None:
    more = ["--trainers", "1", "--readers", "1", "--look-ahead", "0", "--sync", "none"]
    of_file = tmp_path / "file"
    of_file.mkdir()
    assert cli.main(up(of_file, *more, "--epochs", "2", rows=ROWS)) == 0
    of_pipe = tmp_path / "pipe"
    of_pipe.mkdir()
    feeding = fed(of_pipe / "rows", criteo_lines(ROWS), pause=0.02)
    assert cli.main(through(of_pipe, str(of_pipe / "rows"), *more, "--epochs", "2")) == 0
    feeding.join()
    assert report_of(of_pipe)["ledger"]["total"] == report_of(of_file)["ledger"]["total"] == 94
    test = lsh.stream.criteo(of_file / "t.tsv").read()
    mine, other = (
        lsh.load(folder / "run" / "output").predict(test) for folder in (of_file, of_pipe)
    )
    np.testing.assert_array_equal(mine, other)


@pytest.mark.process(1)
@pytest.mark.parametrize("name", ["reader-0", "trainer-1"])
def test_a_run_over_a_pipe_outlives_a_kill(tmp_path: Path, name: str) -> None:
    """Each batch once: the pipe is not read again."""
    more = ["--trainers", "2", "--readers", "1", "--epochs", "60"]
    feeding = fed(tmp_path / "rows", criteo_lines(6000))
    outlives(through(tmp_path, str(tmp_path / "rows"), *more), tmp_path / "run", name, begun)
    feeding.join()
    report = report_of(tmp_path)
    assert {key for key, times in report["restarts"].items() if times} == {name}
