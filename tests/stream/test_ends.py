"""How reading ends: with the interpreter, in a forked process, by an error, by Ctrl-C at a pipe; and
how it goes on, in several threads and after Ctrl-C.
"""

from __future__ import annotations

import gzip
import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from leashed import stream
from leashed.stream.stream import Parts

LABELLED = {"y": stream.Label(), "a": stream.Number()}
TEXT = "y,a\n" + "".join(f"{i % 2},{i}\n" for i in range(200_000))

_SCRIPT = """
import gzip, io, os, sys
from leashed import stream

columns = {"y": stream.Label(), "a": stream.Number()}
parts = stream.csv(sys.argv[1], columns, threads=2, part_bytes=1000).parts(10)
next(parts)
"""


# Row i of which gives i.
_NUMBERED = """
import io, os, signal, sys, threading
import numpy as np
from leashed import stream

N = 3000

def made(file, part_bytes=1000):
    small = {"threads": 2, "part_bytes": part_bytes}
    if sys.argv[1] == "csv":
        return stream.csv(file, {"y": stream.Target(), "a": stream.Number()}, **small)
    return stream.libsvm(file, 1, classes=0, **small)

if sys.argv[1] == "csv":
    content = "y,a\\n" + "".join(f"{i},1\\n" for i in range(N))
else:
    content = "".join(f"{i} 1:1\\n" for i in range(N))
"""


def run(path: Path, code: str) -> subprocess.CompletedProcess[str]:
    return child(_SCRIPT + code, os.fspath(path))


def child(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("kept", ["", "cycle = [parts]; cycle.append(cycle); stream.kept = cycle"])
def test_the_interpreter_may_end_while_files_are_unpacked(tmp_path: Path, kept: str):
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(TEXT.encode(), 1))
    ended = run(path, kept)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_forked_process_leaves_the_stream_to_its_parent(tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_text(TEXT)
    ended = run(
        path,
        """
child = os.fork()
if child == 0:
    try:
        next(parts)
    except ValueError as error:
        print(error)
    del parts
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
assert sum(len(part) for part in parts) == 200_000 - 10
print("read")
""",
    )
    assert ended.returncode == 0, ended.stderr
    forked, read = ended.stdout.splitlines()
    assert "forked" in forked
    assert read == "read"


def test_fewer_threads_read_where_the_system_starts_no_more(tmp_path: Path):
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(TEXT.encode(), 1))
    ended = run(
        path,
        """
import resource

del parts
pages = int(open("/proc/self/statm").read().split()[0])
most = pages * resource.getpagesize() + 2**28  # of which stacks take 2**23 each
resource.setrlimit(resource.RLIMIT_AS, (most, most))
few = stream.csv(sys.argv[1], columns, threads=1000, part_bytes=2**14)  # so that rows fit beside
print(sum(len(part) for part in few.parts()))
""",
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "200000\n", "")


class Failing(io.RawIOBase):
    """Gives all it has, then fails."""

    def __init__(self, content: bytes) -> None:
        self._file = io.BytesIO(content)
        self.views: list[Any] = []

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)
        if not count:
            self.views.append(buffer)
            raise ConnectionResetError("gone")
        return count


def test_an_error_comes_behind_the_rows_before_it_and_whenever_more_are_asked_for():
    for threads in (1, 3):
        file = Failing(b"y,a\n" + b"1,2\n" * 100)
        parts = stream.csv(file, LABELLED, threads=threads, part_bytes=40).parts(10)
        assert [len(next(parts)) for _ in range(10)] == [10] * 10
        depths = []
        for _ in range(3):
            with pytest.raises(ConnectionResetError, match="gone") as told:
                next(parts)
            depths.append(len(told.traceback))
        assert len(set(depths)) == 1
        del told
        # The memory that it was to write to is gone.
        with pytest.raises(ValueError, match="released"):
            file.views[0][0]


def test_an_open_file_stays_open_and_a_pipe_as_it_is():
    content = io.BytesIO(b"y,a\n1,2\n")
    assert len(stream.csv(content, LABELLED).read()) == 1
    assert not content.closed
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as file:
        os.write(writing, b"a line before it\ny,a\n1,2\n")
        assert file.readline() == b"a line before it\n"  # and has the others too
        os.write(writing, b"0,3\n")
        os.close(writing)
        data = stream.csv(file, LABELLED).read()
        assert data.x.ravel().tolist() == [2, 3]
        assert os.get_blocking(reading)


def test_a_file_that_does_not_wait_is_an_error():
    class Waiting(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, _: Any) -> None:
            return None

    with pytest.raises(BlockingIOError, match="make it blocking"):
        stream.csv(Waiting(), LABELLED).read()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_bytes_may_come_one_by_one(pack: Any):
    class Slow(io.BytesIO):
        def readinto(self, buffer: Any) -> int:
            return super().readinto(memoryview(buffer)[:1])

    assert len(stream.csv(Slow(pack(b"y,a\n1,2\n0,3\n")), LABELLED).read()) == 2


def test_a_pipe_without_a_byte_is_an_error_and_not_waited_for(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b""))
    writer.start()
    with pytest.raises(ValueError, match="there is no row in it"):
        stream.csv(pipe, LABELLED).read()
    writer.join()


def test_whole_lines_of_a_pipe_do_not_wait_for_more():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as file:
        parts = stream.csv(file, LABELLED).parts(2)
        os.write(writing, b"y,a\n1,2\n0,3\n1,")
        assert next(parts).x.ravel().tolist() == [2, 3]
        os.write(writing, b"4\n")
        os.close(writing)
        assert next(parts).x.ravel().tolist() == [4]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_ctrl_c_ends_waiting_for_a_pipe_that_somebody_opened(pack: Any):
    reading, writing = os.pipe()
    packed = pack(TEXT[:1000].encode())
    with os.fdopen(reading, "rb") as file:
        os.write(writing, packed[: len(packed) // 2])
        timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))

        def read() -> None:
            timer.start()
            stream.csv(file, LABELLED).read()

        with pytest.raises(KeyboardInterrupt):  # the pipe never ends, so nothing else ends it
            read()
        timer.join()
        assert not file.closed
    os.close(writing)


@pytest.mark.parametrize("kind", ["csv", "libsvm"])
def test_threads_that_share_parts_have_each_row_once(kind: str):
    ended = child(
        _NUMBERED
        + """
parts = made(io.BytesIO(content.encode())).parts(10)
found = [[] for _ in range(4)]

def take(mine):
    for part in parts:
        mine.append(part.y)

threads = [threading.Thread(target=take, args=(mine,)) for mine in found]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
taken = [y for mine in found for y in mine]
assert all((np.diff(y) == 1).all() for y in taken)
assert np.array_equal(np.sort(np.concatenate(taken)), np.arange(N))
""",
        kind,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["csv", "libsvm"])
@pytest.mark.parametrize("wrong", ["source", "gzip", "line"])
def test_each_thread_that_shares_parts_is_told_of_an_error(kind: str, wrong: str):
    ended = child(
        _NUMBERED
        + """
import gzip

class Failing(io.BytesIO):
    def readinto(self, buffer):
        count = super().readinto(buffer)
        if not count:
            raise ConnectionResetError("gone")
        return count

plain = content.encode()
file = {
    "source": lambda: Failing(plain),
    "gzip": lambda: io.BytesIO(gzip.compress(plain)[:-9]),
    "line": lambda: io.BytesIO(plain + b"no,row\\n"),
}[sys.argv[2]]()
parts = made(file).parts(10)
told = []

def take():
    try:
        for part in parts:
            pass
        told.append(None)
    except Exception as error:
        told.append(error)

threads = [threading.Thread(target=take) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(told) == 4 and len({(type(error), str(error)) for error in told}) == 1, told
assert isinstance(told[0], ConnectionResetError if sys.argv[2] == "source" else ValueError), told
""",
        kind,
        wrong,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["csv", "libsvm"])
def test_after_ctrl_c_parts_go_on_where_they_were(kind: str):
    """It comes while a part is waited for, and is looked at when its rows have been taken."""
    ended = child(
        _NUMBERED
        + """
asked = threading.Event()

class Interrupting(io.BytesIO):
    def readinto(self, buffer):
        asked.wait()
        if self.tell() == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return super().readinto(buffer)

parts = made(Interrupting(content.encode()), 1 << 20).parts(10)
try:
    asked.set()
    next(parts)
except KeyboardInterrupt:
    print("interrupted")
assert np.array_equal(np.concatenate([part.y for part in parts]), np.arange(N))
""",
        kind,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted\n", "")


def test_rows_that_were_taken_when_ctrl_c_came_are_in_the_next_part():
    rows = stream.csv(io.BytesIO(TEXT[:1000].encode()), LABELLED, bad="skip")
    interrupts = iter([True, False, True, True])

    def made(taken: Any) -> list[float]:
        if next(interrupts, False):
            signal.raise_signal(signal.SIGINT)
        return [float(value) for value in taken[0].ravel()]

    parts: Parts[list[float]] = Parts(rows.open, 7, made)
    found, interrupted = [], 0
    while True:
        try:
            found.append(next(parts))
        except KeyboardInterrupt:
            interrupted += 1
        except StopIteration:
            break
    assert interrupted == 3
    assert [value for part in found for value in part] == [*range(sum(map(len, found)))]
    assert sum(map(len, found)) == parts.counts.rows


def test_whoever_asks_what_was_read_does_not_wait_for_a_pass_to_begin():
    pytest.importorskip("pyarrow")
    ended = child(
        """
import threading
import pyarrow as pa
from leashed import stream

table = pa.table({"y": [0, 1, 1], "a": [1.0, 2.0, 3.0]})
begins, asked = threading.Event(), threading.Event()
made = []

def source():
    made.append(1)
    if len(made) == 2:
        begins.set()
        assert asked.wait(60)
    return table

rows = stream.arrow(source, {"y": stream.Label(), "a": stream.Number()}, threads=1)
opened = rows.open(passes=2)
opened.native.start()
assert begins.wait(60)
print(opened.counts.rows)
asked.set()
print(sum(len(opened.native.take(2)[3]) for _ in range(3)))
""",
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "3\n6\n", "")
