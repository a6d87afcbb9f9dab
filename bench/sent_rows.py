"""Text to trainers: rows that a reader parses and sends, beside rows that a process reads by itself.

python -m bench.sent_rows [--rows 400000] [--turns 5] > bench/results/sent_rows.jsonl

Of Criteo's format and of CSV (a label, 13 numbers, 26 hashed words), turn by turn, so that a busy machine
is so for both, from the first batch on: one process that takes all rows of the file in order with one thread that parses, and a
reader process with one thread that parses, whose rows another process receives over TCP and takes in
order. Prints as JSON lines examples a second of both, the median of the turns' ratios (goal: 0.75) and
processor microseconds an example. Three threads want a processor each: on a busy machine the ratio is that
of how long processes wait for one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import resource
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench import machine
from leashed import stream
from leashed.cluster.reader import Rows, serve
from leashed.cluster.remote_batches import BatchTending, sent
from leashed.cluster.row_index import files_of, index_of

_BATCH = 512
_LEASE = 64  # batches that are known beforehand
_WHOSE = ("of the reader", "of the trainer", "in process")


def write(path: Path, kind: str, rows: int, seed: int = 1) -> Any:
    """A file of that kind, and the stream of it, with one thread that parses."""
    drawn = np.random.default_rng(seed)
    label = drawn.integers(0, 2, rows)
    numbers = drawn.integers(0, 5000, (rows, 13))
    ids = np.minimum(drawn.zipf(1.2, (rows, 26)), 2**31)
    names = ["label", *(f"i{j}" for j in range(13)), *(f"c{j}" for j in range(26))]
    apart, form = ("\t", "{:08x}") if kind == "criteo" else (",", "w{:x}")
    with path.open("w") as file:
        if kind == "csv":
            file.write(",".join(names) + "\n")
        for row in range(rows):
            fields = [str(label[row]), *map(str, numbers[row]), *map(form.format, ids[row])]
            file.write(apart.join(fields) + "\n")
    if kind == "criteo":
        return stream.criteo(path, threads=1)
    columns: dict[str, Any] = {"label": stream.Label()}
    columns |= {name: stream.Number(log=True) for name in names[1:14]}
    columns |= {name: stream.Hashed(buckets=1 << 20) for name in names[14:]}
    return stream.csv(path, columns, threads=1)


def processor() -> float:
    """Seconds that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Turn(NamedTuple):
    """Seconds, those of a processor here and in the reader's process, and rows."""

    seconds: float
    processor: float
    rows: int
    reader: float = 0.0


def in_process(rows: Any) -> Turn:
    """Of reading a file here."""
    native = rows.open().native
    native.start()
    count = len(native.take(_BATCH)[3])
    begun, used = time.perf_counter(), processor()
    while taken := len(native.take(_BATCH)[3]):
        count += taken
    native.end()
    return Turn(time.perf_counter() - begun, processor() - used, count)


def reader(rows: Any, folder: Path, link: Any) -> None:
    """A process that reads: accepts one connection after another, until it is told to end."""
    index = index_of(rows, None, folder)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link.send(listener.getsockname())
        while link.recv():
            begun = processor()
            there, _ = listener.accept()
            with contextlib.closing(Rows(index, files_of(rows, None), 1)) as served:
                serve(served, there, "trainer")
            link.send(processor() - begun)


class _Connecting:
    """As ``BatchTending`` has it, to one address."""

    timeout = 60.0

    def __init__(self, address: tuple[str, int]) -> None:
        self.closing = threading.Event()
        self._address = address

    def connect(self, *_: object) -> socket.socket:
        made = socket.create_connection(self._address)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made


def through_reader(rows: Any, index: Any, link: Any, address: Any) -> Turn:
    """Of rows that the other process reads."""
    link.send(True)
    count, begun, used = 0, 0.0, 0.0
    given = sent(rows, index, 1)
    given.asked_by(_BATCH, 1)
    native: Any = given.open().native
    connecting: Any = _Connecting(address)
    tending = BatchTending(given, connecting, 1, 60.0)
    tending.told({0: "there"})
    batches = -(-index.rows // _BATCH)
    for batch in range(batches):
        if batch % (_LEASE // 2) == 0:
            first = batch + _LEASE // 2 if batch else 0
            tending.expect(first, _LEASE if not batch else _LEASE // 2)
        count += len(native.take(batch * _BATCH, _BATCH)[3])
        if batch == 0:
            begun, used = time.perf_counter(), processor()
    seconds, mine = time.perf_counter() - begun, processor() - used
    connecting.closing.set()
    tending.close()
    return Turn(seconds, mine, count, link.recv())


def measure(kind: str, rows: int, turns: int) -> dict[str, Any]:
    """Both, turn by turn."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        given = write(folder / "rows", kind, rows)
        index = index_of(given, None, folder / "run")
        here, there = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=reader, args=(given, folder / "run", there)
        )
        process.start()
        address = here.recv()
        found = []
        for _ in range(turns):
            alone, over = in_process(given), through_reader(given, index, here, address)
            assert alone.rows == over.rows == rows, (alone, over)
            found.append((alone, over))
        here.send(False)
        process.join()
    return {
        "file": kind,
        "rows": rows,
        "turns": turns,
        "machine": machine.describe(),
        "load": round(os.getloadavg()[0], 1),
        "in process": rows / statistics.median(alone.seconds for alone, _ in found),
        "through a reader": rows / statistics.median(over.seconds for _, over in found),
        "ratio": statistics.median(alone.seconds / over.seconds for alone, over in found),
        "µs in process": 1e6 * statistics.median(alone.processor for alone, _ in found) / rows,
        "µs of the reader": 1e6 * statistics.median(over.reader for _, over in found) / rows,
        "µs of the trainer": 1e6 * statistics.median(over.processor for _, over in found) / rows,
    }


def words(criteo: dict[str, Any], csv: dict[str, Any]) -> str:
    """What docs/cluster.md says of both."""
    of = criteo["machine"]

    def times(record: dict[str, Any]) -> list[str]:
        return [f"{record[f'µs {whose}']:.2f}" for whose in _WHOSE]

    reader, trainer, alone = times(criteo)
    return (
        f"{criteo['rows']:,} rows, one thread that parses, medians of {criteo['turns']} turns, on "
        f"{of['cores']} processors of an {machine.named(of)} at a load of {criteo['load']:.0f}): a trainer has "
        f"{criteo['ratio']:.2f} times the examples a second of Criteo's format that a process has that "
        f"reads the file by itself, and {csv['ratio']:.2f} times of CSV. Processor time of an example is "
        f"{reader} µs of the reader and {trainer} µs of the trainer, where one process takes {alone} µs, "
        "and of CSV {} and {} for {}.".format(*times(csv))
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Text to trainers through a reader.")
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--turns", type=int, default=5)
    asked = parser.parse_args()
    for kind in ("criteo", "csv"):
        print(json.dumps(measure(kind, asked.rows, asked.turns), ensure_ascii=False), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
