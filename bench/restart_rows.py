r"""How long a trainer waits for its rows where their embedding server, with so many rows, all of which have
been updated, is killed: from kill -9 to the first batch whose rows the one that is started in its place has looked up, from its snapshot.

    python -m bench.restart_rows [--rows 10000000] [--dim 16] [--rule adagrad] [--kills 3] \
        > bench/results/restart_rows.jsonl

It prints a line of JSON: seconds of each kill, bytes of the snapshot, the machine and its load.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import leashed as lsh
from bench import machine

_BATCH = 512
_QUIET = 5.0  # seconds of training between two kills


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--rule", default="adagrad")
    parser.add_argument("--kills", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measured(Path(folder) / "run", options)))


def measured(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """As it is printed."""
    begun: list[float] = []

    def gradient(theta: Any, x: Any, _: Any, rows: Any, out: Any) -> float:
        begun.append(time.monotonic())
        out[:] = theta - x.mean()
        rows.gradients[0][:] = rows.values[0][:] + 1.0
        return 1.0

    random = np.random.default_rng(1)
    ids = random.permutation(options.rows)[:, np.newaxis]  # a pass updates all
    data = lsh.datasets.ClickDataset.from_arrays(
        np.zeros((len(ids), 1), np.float32), ids, np.arange(len(ids)) % 2
    )
    spec = lsh.models.TableSpec("rows", options.dim, options.rows)
    model = lsh.models.external(gradient, dimension=1, features=1, ids=[spec], name="rows")
    home = folder / "run-0"
    waited: list[float] = []
    failed: list[BaseException] = []
    over = threading.Event()

    def kill() -> None:
        try:
            _until(lambda: len(begun) * _BATCH > options.rows)
            for _ in range(2):  # the second has begun since
                last = _named(home)
                _until(lambda last=last: _named(home) != last)
            for _ in range(options.kills):
                time.sleep(_QUIET)
                server = _server(home)
                killed = time.monotonic()
                os.kill(server, signal.SIGKILL)
                _until(lambda server=server: _is_gone(server))
                # (One batch may have had its rows.)
                needs = len(begun) + 1
                _until(lambda needs=needs: len(begun) > needs)
                waited.append(begun[needs] - killed)
        except BaseException as error:  # noqa: BLE001 (raised below)
            failed.append(error)
        over.set()

    killer = threading.Thread(target=kill)
    killer.start()

    def stop(_: Any) -> None:
        if over.is_set():
            raise InterruptedError

    cluster = lsh.cluster.join(
        rank=0, size=1, servers=0, embedding_servers=1, look_ahead=0, folder=folder,
        rendezvous="127.0.0.1",
    )  # fmt: skip
    with contextlib.suppress(InterruptedError):  # by stop()
        lsh.train(
            model, data, rule=options.rule, batch_size=_BATCH, threads=1, cluster=cluster,
            until=lsh.until(seconds=3600), observe=lsh.Observe(stop, every=1.0, rows=256),
        )  # fmt: skip
    killer.join()
    if failed:
        raise failed[0]
    return {
        "rows": options.rows,
        "dim": options.dim,
        "rule": options.rule,
        "seconds": [round(each, 2) for each in waited],
        "bytes": sum(path.stat().st_size for path in (home / "embedding-ps-0").iterdir()),
        "machine": machine.describe(),
        "load": round(os.getloadavg()[0], 1),
    }


def words(record: dict[str, Any]) -> str:
    """What docs/cluster.md says of it."""
    *first, last = (f"{each:.1f}" for each in sorted(record["seconds"]))
    of = record["machine"]
    return (
        f"took {', '.join(first)} and {last} s (`python -m bench.restart_rows`; {of['cores']} processors "
        f"of an {machine.named(of)}, a load of {record['load']:.0f})"
    )


def _named(home: Path) -> int:
    """When the server's newest snapshot was named, in nanoseconds; 0: there is none."""
    try:
        return (home / "embedding-ps-0" / "manifest.json").stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _server(home: Path) -> int:
    """Its process."""
    wanted = ["leashed.cluster.child", "embedding-ps", str(home), "0"]
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = each.read_bytes().decode().rstrip("\0").split("\0")
        except OSError:
            continue
        if words[-4:] == wanted:
            return int(each.parent.name)
    raise ChildProcessError(f"no embedding server runs in {home}")


def _is_gone(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return True
    return state in "ZX"


def _until(true: Any) -> None:
    end = time.monotonic() + 300
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("the run does not go on")
        time.sleep(0.005)


if __name__ == "__main__":
    main()
