"""Days of clicks are trained on in a process that is killed again and again, and begun again.

    python tests/continual_kills.py [--days 5] [--kills 20] [--rows 1500] [--stream] [--incremental]

Each kill is a kill -9 at a random moment: while a day is scored, trained on, saved, or while the
journal is written. At the end parameters, running statistics, rows with their states, and what the
days' predictions came to must be those of a process that nobody killed, to the bit.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from table_files import rows_in

import leashed as lsh
from leashed.days import Journal
from leashed.models import DataNorm

CARDINALITY = 200
BATCH = 16


def write_days(folder: Path, days: int, rows: int) -> list[Path]:
    """Of as many rows each but for a few, so that last batches are short ones."""
    paths = [folder / f"day-{day}.tsv" for day in range(days)]
    for day, path in enumerate(paths):
        lines = lsh.datasets.synthetic_click_lines(
            rows + 7 * day, 3, day=day, drift=0.1, cardinalities=CARDINALITY, threads=1
        )
        path.write_bytes(b"".join(lines))
    return paths


def train(
    paths: list[Path], folder: Path, stream: bool, incremental: bool = False
) -> lsh.Continual:
    """One thread, with a checkpoint every few updates."""
    model = lsh.models.dlrm(None, 4, bottom=(8, 4), top=(8,), norm=DataNorm())

    def day(path: Path) -> Callable[[], Any]:
        return lambda: lsh.stream.criteo(path) if stream else lsh.datasets.criteo(path)

    return lsh.continual(
        model,
        {path.name: day(path) for path in paths},
        folder=folder,
        rule=lsh.SWAP(lsh.Adagrad(0.05), period=50),
        threads=1,
        batch_size=BATCH,
        checkpoint_updates=20,
        incremental=incremental,
        metrics=lsh.metrics.progressive(),
    )


def fork(work: Callable[[], object]) -> int:
    """A child that does the work and ends."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
        os._exit(0)
    except BaseException:  # noqa: BLE001 (a child of fork must not return)
        traceback.print_exc()
    os._exit(1)


def ended(pid: int) -> None:
    """Waits for a child that nobody kills."""
    assert os.waitpid(pid, 0)[1] == 0


def state(folder: Path, scratch: Path) -> list[Any]:
    """Parameters, running statistics, rows of all tables with their states, and what was told of each
    day.
    """
    restored = lsh.restore(folder / "state")
    rows = []
    for table in restored.tables.values():
        table.save(scratch)
        rows.append(rows_in(scratch))
    journal = Journal(folder / "days.json")
    assert journal.today is None
    days = [(day.name, day.updates, day.examples, day.yesterday) for day in journal.done]
    assert restored.statistics is not None
    return [restored.parameters.tobytes(), restored.statistics.tobytes(), rows, days]


def play(
    days: int, kills: int, rows: int, stream: bool, incremental: bool, seed: int | None = None
) -> list[str]:
    """Where each kill fell. Where a process was done before its kill, the days begin anew."""
    rng = random.Random(seed)
    where: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        paths = write_days(home, days, rows)
        begun = time.monotonic()
        ended(fork(lambda: train(paths, home / "whole", stream)))
        longest = (time.monotonic() - begun) / days
        whole = state(home / "whole", home / "rows")

        def check(run: Path) -> None:
            assert state(run, home / "rows") == whole, "not the state of the run nobody killed"

        rounds = 0
        while len(where) < kills:
            run = home / f"killed{rounds}"
            pid = fork(lambda run=run: train(paths, run, stream, incremental))  # type: ignore[misc]
            time.sleep(rng.uniform(0.0, longest))
            os.kill(pid, signal.SIGKILL)
            if os.waitpid(pid, 0)[1] == 0:
                check(run)
                rounds += 1
                continue
            journal = Journal(run / "days.json")
            where.append("between days" if journal.today is None else journal.today.name)
        last = home / f"killed{rounds}"
        ended(fork(lambda: train(paths, last, stream, incremental)))
        check(last)
    return where


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=5)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--stream", action="store_true", help="days are streams, not in memory")
    parser.add_argument("--incremental", action="store_true", help="write what has changed")
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    where = play(given.days, given.kills, given.rows, given.stream, given.incremental, given.seed)
    print(f"{len(where)} kills: {', '.join(where)}; the same bits")


if __name__ == "__main__":
    main()
