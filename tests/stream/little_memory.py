"""A gzip stream that is larger than memory trains in a control group.

    python tests/stream/little_memory.py --gigabytes 20 --memory 2

Another process makes the clicks, plants a bad line now and then, compresses and writes them into a
pipe while they are read. Printed and judged: rows, the numbers of the bad lines, the peak of memory,
and that the first part trains to the same bits as from plain text. Without the right to make a control
group (version 1 or 2) memory is measured alone, and it is said.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import resource
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import leashed as lsh
from leashed import stream

EVERY = 10_007  # a bad line after so many rows
BAD = b"this is no row\n"
_LINE = 240  # bytes of a row, about
_MEMBERS = "cgroup.procs"
_FIRST = 100_000  # rows that are trained on from plain text too


def chunks(rows: int) -> Iterator[bytes]:
    """The text of so many rows with the bad lines between them."""
    left = EVERY
    for lines in lsh.datasets.synthetic_click_lines(rows):
        rest = memoryview(lines)
        while rest:
            end = _behind(rest, left)
            part, rest = rest[:end], rest[end:]
            left -= bytes(part).count(b"\n")
            yield bytes(part)
            if left == 0:
                yield BAD
                left = EVERY


def _behind(text: memoryview, lines: int) -> int:
    """Where that many lines end, or all of them."""
    places = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    return int(places[lines - 1]) + 1 if len(places) >= lines else len(text)


def feed(pipe: str, rows: int) -> None:
    """Compresses them into the pipe."""
    packer = zlib.compressobj(1, wbits=31)
    with open(pipe, "wb") as file:  # noqa: PTH123
        file.writelines(packer.compress(chunk) for chunk in chunks(rows))
        file.write(packer.flush())


def expected_bad(rows: int) -> list[int]:
    """The numbers of the bad lines."""
    return [(k + 1) * (EVERY + 1) for k in range(rows // EVERY)]


def confine(memory: int) -> Path | None:
    """This process into a control group of so many bytes, if it may make one."""
    for root, limit in (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
    ):
        group = Path(root) / f"leashed-{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
        if not (group / limit).exists():  # of the other version
            with contextlib.suppress(OSError):
                group.rmdir()
            continue
        try:
            (group / limit).write_text(str(memory))
            (group / _MEMBERS).write_text(str(os.getpid()))
        except OSError:
            group.rmdir()
            continue
        return group
    return None


def release(group: Path) -> None:
    """Out of it, and it goes."""
    (group.parent / _MEMBERS).write_text(str(os.getpid()))
    with contextlib.suppress(OSError):  # a process of it may still be ending
        group.rmdir()


def train(data: stream.Stream, threads: int, **changes: Any) -> lsh.TrainResult:
    """A small DLRM on growing tables."""
    model = lsh.models.dlrm(None, 8, 13, bottom=(16, 8), top=(16,), categories=26)
    arguments: dict[str, Any] = {
        "until": lsh.until(epochs=1),
        "observe": lsh.Observe(every=1e6),
        **changes,
    }
    return lsh.train(
        model, data, rule=lsh.Adagrad(0.02), threads=threads, batch_size=512, **arguments
    )


def through_pipe(rows: int, threads: int) -> lsh.TrainResult:
    """Trained while another process makes the rows."""
    with tempfile.TemporaryDirectory() as folder:
        pipe = os.fspath(Path(folder) / "clicks.tsv.gz")
        os.mkfifo(pipe)
        feeder = multiprocessing.get_context("spawn").Process(target=feed, args=(pipe, rows))
        feeder.start()
        try:
            return train(stream.criteo(pipe, bad="skip"), threads)
        finally:
            feeder.terminate()
            feeder.join()


def problems(result: lsh.TrainResult, rows: int) -> list[str]:
    """What is not as it was to be."""
    reading, bad = result.config["reading"], expected_bad(rows)
    told = [number for _, number, _ in reading["first_bad"]]
    found = []
    if (reading["rows"], reading["bad"], result.examples) != (rows, len(bad), rows):
        found.append(f"{reading['rows']} rows and {reading['bad']} bad lines were read")
    if told != bad[: len(told)] or len(told) != min(100, len(bad)):
        found.append(f"bad lines are told as {told[:5]}, …")
    return found


def same_bits(rows: int) -> bool:
    """Whether one thread comes to the same from the pipe and from plain text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clicks.tsv"
        path.write_bytes(b"".join(chunks(rows)))
        whole: Any = stream.criteo(path, bad="skip")
        piped, plain = through_pipe(rows, 1), train(whole, 1)
        ids = np.unique(whole.read().ids)
    tables = zip(piped.tables.values(), plain.tables.values(), strict=True)
    return np.array_equal(piped.parameters, plain.parameters) and all(
        np.array_equal(a.lookup(ids), b.lookup(ids)) for a, b in tables
    )


def main() -> int:
    """Judges it; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of text (default: 1)")
    parser.add_argument("--memory", type=float, default=2.0, help="gigabytes (default: 2)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    rows = int(options.gigabytes * 1e9 / _LINE)
    bits = same_bits(min(rows, _FIRST))
    group = confine(int(options.memory * 1e9))
    told = f"control group: {group}"
    print(
        told if group else "NO CONTROL GROUP may be made here: memory is measured alone", flush=True
    )
    try:
        result = through_pipe(rows, options.threads)
    finally:
        if group:
            release(group)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = problems(result, rows)
    if not bits:
        found.append("the first part does not train to the bits from plain text")
    if peak > options.memory * 1e9:
        found.append("more memory was used than there was to be")
    reading = result.config["reading"]
    print(f"{reading['bytes'] / 1e9:.2f} GB of text, {rows:,} rows, {reading['bad']:,} bad lines")
    print(f"{peak / 1e9:.2f} GB of memory at most, {result.elapsed:.0f} s")
    print("\n".join(found) or "as it was to be")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
