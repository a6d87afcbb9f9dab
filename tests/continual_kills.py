"""Days of clicks are trained on in a process that is killed again and again, and begun again.

    python tests/continual_kills.py [--days 5] [--kills 20] [--rows 1500] [--stream] [--incremental]
                                    [--steps]

Each kill is a kill -9 at a random moment: while a day is scored, trained on, saved, or while the
journal is written; with --steps as many kills before and after steps of writing, apart evenly over
all of them, each of another run, and no file may be left that the run does not name. At the end parameters, running statistics, rows with their states, and what the
days' predictions came to must be those of a process that nobody killed, to the bit.
"""

from __future__ import annotations

import argparse
import json
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
from leashed.files import folders
from leashed.models import DataNorm
from leashed.training.days import Journal

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
        checkpoint=lsh.Checkpoint(updates=20, incremental=incremental),
        observe=lsh.Observe(metrics=lsh.metrics.progressive()),
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
    restored = lsh.load(folder / "state")
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


def watch_writes(last: int, told: Path | None = None) -> None:
    """Kill this process at that step of writing, counted from 1; of 0 keep their number in a file."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if told is not None:
            told.write_text(str(count))
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def between(write: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any, **named: Any) -> Any:
            step()
            result = write(*given, **named)
            step()
            return result

        return watched

    for owner, name in (
        (folders, "_saved"),
        (os, "fsync"),
        (Path, "unlink"),
        (Path, "replace"),
    ):
        setattr(owner, name, between(getattr(owner, name)))


def play_steps(days: int, kills: int, rows: int, stream: bool, incremental: bool) -> int:
    """Of how many steps of writing so many were the last of a process."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        paths = write_days(home, days, rows)
        ended(fork(lambda: train(paths, home / "whole", stream)))
        whole = state(home / "whole", home / "rows")

        def killed(run: Path, last: int, told: Path | None = None) -> int:
            def work() -> None:
                watch_writes(last, told)
                train(paths, run, stream, incremental)

            return os.waitpid(fork(work), 0)[1]

        assert killed(home / "counted", 0, home / "steps") == 0
        steps = int((home / "steps").read_text())
        for kill in range(kills):
            last = 1 + kill * steps // kills
            run = home / f"killed{last}"
            assert killed(run, last) == signal.SIGKILL
            ended(fork(lambda run=run: train(paths, run, stream, incremental)))  # type: ignore[misc]
            assert state(run, home / "rows") == whole, f"not the same state after step {last}"
            assert {path.name for path in run.iterdir()} == {"days.json", "state"}, f"step {last}"
            manifest = json.loads((run / "state" / "manifest.json").read_text())
            tables = manifest["tables"].values()
            files = [manifest["model"], *tables, *(c for t in tables for c in t.get("changes", ()))]
            named = {"manifest.json", *(file["file"] for file in files)}
            assert {path.name for path in (run / "state").iterdir()} == named, f"step {last}"
    return steps


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=5)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--stream", action="store_true", help="days are streams, not in memory")
    parser.add_argument("--incremental", action="store_true", help="write what has changed")
    parser.add_argument("--steps", action="store_true", help="kill between steps of writing")
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    if given.steps:
        steps = play_steps(given.days, given.kills, given.rows, given.stream, given.incremental)
        print(f"{given.kills} kills in {steps} steps of writing; the same bits")
        return
    where = play(given.days, given.kills, given.rows, given.stream, given.incremental, given.seed)
    print(f"{len(where)} kills: {', '.join(where)}; the same bits")


if __name__ == "__main__":
    main()
