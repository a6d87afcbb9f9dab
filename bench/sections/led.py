"""What a mode costs over processes: training of a worker whose policy server is another process, beside
one thread that has both; pushes of 1 kB that a policy server takes a second; and for how long nobody
computes where a mode goes over between Sync by all-reduce and GBA.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import leashed
from bench import figures
from bench.commanded import report_of
from bench.context import Bench, Record
from bench.figures import Results
from bench.markdown import number, paragraphs, table, thousands
from bench.section import Goal

PLACE, TITLE = 235, "Modes over processes"

_TURNS = 3
_EPOCHS = {512: 60, 64: 20}  # of a turn
_MODES = ("asp", "sync")
_PROCESS = "one thread"
_WORKS = {
    _PROCESS: ("train",),
    **{
        transport: ("cluster", "up", "--trainers", "1", "--transport", transport)
        for transport in ("tcp", "shm")
    },
}
_FEATURES = 255  # and a bias: 1 kB of parameters
_LANES = 8
_PUSHES = 400_000
_PACE = 0.02  # seconds of a batch, of those who switch
_DIMENSION = 134_794  # of their parameters, the MLP's
_WORKERS = 4
_SWITCHES = 60
_APART = 0.3  # seconds from one to the next


def measure(bench: Bench) -> list[Record]:
    """A record for each mode, batch size and place of the server, and one of pushes."""
    found: dict[tuple[str, int, str], Record] = {}
    for mode in _MODES:
        for batch, epochs in _EPOCHS.items():
            for _ in range(bench.times(_TURNS)):
                for work, words in _WORKS.items():
                    made = {
                        "figure": "training",
                        "mode": mode,
                        "batch": batch,
                        "work": work,
                        "eps": [],
                    }
                    record = found.setdefault((mode, batch, work), made)
                    record["eps"].append(_trained(words, mode, batch, bench.times(epochs)))
    turns = [_served(bench.times(_PUSHES)) for _ in range(bench.times(_TURNS))]
    told: Record = {"figure": "pushes", "bytes": 4 * (_FEATURES + 1), "lanes": _LANES}
    pushes = told | {name: [turn[name] for turn in turns] for name in turns[0]}
    return [*found.values(), pushes, *_switched(bench.times(_SWITCHES, least=4))]


def _trained(kind: Sequence[str], mode: str, batch: int, epochs: int) -> float:
    """Examples per second of a worker of MLP's, evaluated at its two ends alone."""
    words = ["--mode", mode, "--threads", "1", "--batch-size", str(batch), "--lr", "0.05"]
    words += ["--epochs", str(epochs), "--evaluate-every", "3600", "--seed", "1"]
    said = report_of(kind, words)
    if kind[0] == "train":
        return float(said["examples"] / said["elapsed"])
    trainer = said["summaries"]["trainer-0"]
    return float(trainer["examples"] / trainer["seconds"])


def _served(pushes: int) -> dict[str, float]:
    """Of a policy server: pushes a second of its loop's processor time, and of the training's time; a batch
    is one example of a logistic regression, and each push is followed by a grant.
    """
    drawn = np.random.default_rng(1)
    x = drawn.standard_normal((4096, _FEATURES), np.float32)
    data = leashed.datasets.Dataset.from_arrays(x, x[:, 0] > 0, name="drawn")
    with tempfile.TemporaryDirectory() as folder:
        result = leashed.train(
            leashed.models.logistic_regression(_FEATURES, 2),
            data,
            mode=leashed.modes.ASP(),
            rule=leashed.SGD(1e-3),
            threads=_LANES,
            batch_size=1,
            until=leashed.until(epochs=max(1, pushes // len(x))),
            observe=leashed.Observe(every=3600),
            cluster=leashed.cluster.join(policy_servers=1, rank=0, size=1, folder=folder),
        )
        report: dict[str, Any] = json.loads((Path(folder) / "run-0" / "run.json").read_text())
    (server,) = (each for each in report["members"] if each["role"] == "policy-ps")
    counted = server["counters"]
    return {
        "of_its_processor_time": counted["pushes"] / counted["serving_seconds"],
        "of_time": counted["pushes"] / result.elapsed,
    }


class _Paced:
    """Gradients of zeros that take their time, and when each began and ended."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []

    def __call__(self, theta: object, x: object, y: object, out: Any) -> float:  # noqa: ARG002
        began = time.monotonic()
        time.sleep(_PACE)
        out[:] = 0.0
        self.spans.append((began, time.monotonic()))
        return 0.0

    def idle(self, began: float, ended: float) -> float:
        """Seconds for which nobody computed at most, between two moments."""
        longest, at = 0.0, began
        for begin, end in sorted(span for span in self.spans if span[1] > began):
            longest = max(longest, min(begin, ended) - at)
            at = max(at, end)
            if begin > ended:
                break
        return longest


def _switched(switches: int) -> list[Record]:
    """Of each direction the longest time, for each switch, in which none of the workers computed."""
    paced, asked = _Paced(), {"gba": [], "sync": []}
    model = leashed.models.external(
        paced,
        loss=lambda *_: 0.0,
        dimension=_DIMENSION,
        features=8,
        name="paced",
    )
    data = leashed.datasets.Dataset.from_arrays(
        np.zeros((4096, 8), np.float32), np.arange(4096) % 2, name="zeros"
    )
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder, "key")
        key.touch(mode=0o600)
        key.write_bytes(np.random.default_rng().bytes(32))
        over = threading.Event()

        def tell() -> None:
            while len(paced.spans) < 10 * _WORKERS:
                if over.wait(_PACE):
                    return
            for switch in range(switches):
                to = ("gba", "sync")[switch % 2]
                while True:
                    at = time.monotonic()
                    try:
                        leashed.cluster.command(Path(folder, "run-0"), to, key=key)
                    except ConnectionError:  # the report, a second old, does not tell of it yet
                        if over.wait(_PACE):
                            return
                    else:
                        break
                asked[to].append(at)
                if over.wait(_APART):
                    return

        telling = threading.Thread(target=tell)
        telling.start()
        try:
            leashed.train(
                model,
                data,
                mode=leashed.modes.Switching(),
                dense="all-reduce",
                rule=leashed.rules.Momentum(0.01),
                threads=_WORKERS,
                batch_size=8,
                until=leashed.until(seconds=10.0 + _APART * switches),
                observe=leashed.Observe(every=3600),
                cluster=leashed.cluster.join(
                    policy_servers=1, rank=0, size=1, folder=folder, key=key
                ),
            )
        finally:
            over.set()
            telling.join()
    told = {"figure": "switch", "pace": _PACE, "bytes": 4 * _DIMENSION, "workers": _WORKERS}
    return [
        {**told, "to": to, "idle": [paced.idle(at, at + _APART) for at in moments]}
        for to, moments in asked.items()
    ]


def words(results: Results) -> str:
    """All of it."""
    trainings = figures.records(results, "led", figure="training")
    if not trainings:
        return ""
    lines = [
        [
            record["mode"],
            f"{record['batch']}",
            record["work"],
            thousands(statistics.median(record["eps"])),
            f"{statistics.median(_ratios(results, record['mode'], record['batch'], record['work'])):.2f}",
        ]
        for record in trainings
    ]
    (pushes,) = figures.records(results, "led", figure="pushes")
    switches = figures.records(results, "led", figure="switch")
    return paragraphs(
        "An MLP of 784-128-128-10 (540 kB of parameters, which come and go with every batch) trained by one "
        "worker, whose policy server is another process, in turns with one thread that has both.",
        table(["mode", "batch", "", "examples/s", "of one thread"], lines),
        f"A policy server takes {number(statistics.median(pushes['of_its_processor_time']) / 1e3)} thousand "
        f"pushes of {pushes['bytes']:,} bytes, each with the grant behind it, in a second of its loop's "
        f"processor time, and took {number(statistics.median(pushes['of_time']) / 1e3)} thousand a second from "
        f"{pushes['lanes']} workers that share the processors with it.",
        *(_of_switches(switches) if switches else ()),
    )


def _of_switches(records: Sequence[Record]) -> tuple[str, str]:
    first = records[0]
    lines = [
        [
            {"gba": "Sync by all-reduce to GBA", "sync": "GBA to Sync by all-reduce"}[record["to"]],
            f"{len(record['idle'])}",
            *(
                f"{1e3 * value:.1f}"
                for value in (statistics.median(record["idle"]), max(record["idle"]))
            ),
        ]
        for record in records
    ]
    told = (
        f"A run by Switching that is told what to be while it goes on: for how many milliseconds none of "
        f"{first['workers']} workers computed at most, in the {1e3 * _APART:.0f} ms behind each command, where "
        f"a batch takes {1e3 * first['pace']:.0f} ms and parameters have {first['bytes']:,} bytes."
    )
    return told, table(["", "switches", "median, ms", "longest, ms"], lines)


def _ratios(results: Results, mode: str, batch: int, work: str) -> list[float]:
    by = {
        record["work"]: record["eps"]
        for record in figures.records(results, "led", figure="training", mode=mode, batch=batch)
    }
    return [a / b for a, b in zip(by.get(work, ()), by.get(_PROCESS, ()), strict=True)]


def of_one_thread(mode: str, batch: int, work: str, results: Results) -> float | None:
    """Of one thread's examples per second, what a worker with its server elsewhere reaches."""
    found = _ratios(results, mode, batch, work)
    return statistics.median(found) if found else None


def pushes_a_second(results: Results) -> float | None:
    """Thousands of pushes of 1 kB, of the processor time of one loop."""
    found = figures.one(results, "led", "pushes")
    return statistics.median(found["of_its_processor_time"]) / 1e3 if found else None


def idle(to: str, results: Results) -> float | None:
    """Of a batch's time, for how long nobody computes where the mode goes over, in the median."""
    found = figures.records(results, "led", figure="switch", to=to)
    return statistics.median(found[0]["idle"]) / found[0]["pace"] if found else None


GOALS = (
    *(
        Goal(
            f"mode={mode} with its server in another process, {how}, MLP, batch {batch}, of one thread",
            target,
            partial(of_one_thread, mode, batch, work),
        )
        for mode in _MODES
        for work, how, batch, target in (
            ("tcp", "TCP", 512, 0.85),
            ("tcp", "TCP", 64, 0.55),
            ("shm", "shared memory", 512, 0.90),
            ("shm", "shared memory", 64, 0.75),
        )
    ),
    Goal(
        "a policy server's pushes of 1 kB with their grants, thousand a second and loop",
        100.0,
        pushes_a_second,
    ),
    *(
        Goal(
            f"a switch {how}: time without gradients, of a batch's",
            1.0,
            partial(idle, to),
            least=False,
        )
        for to, how in (("gba", "from all-reduce to GBA"), ("sync", "from GBA to all-reduce"))
    ),
)
