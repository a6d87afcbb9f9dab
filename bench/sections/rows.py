"""DLRM's rows at embedding servers: what asking, answering, pushing and updating take beside what has to
be done, and beside torch.distributed.rpc; and trainings of two trainers with two servers beside one
process with two threads. Everybody takes turns.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from bench import dlrm, figures
from bench.context import Bench, Record, installed
from bench.figures import Results
from bench.markdown import number, paragraphs, table, thousands
from bench.section import Goal

PLACE, TITLE = 175, "Rows at embedding servers"

_BATCHES = (128, 512)
_TURNS = 3
_SECONDS = 8.0  # of a turn
_EPOCHS = 32  # so that what each run has once, first snapshots among it, is as in a run that lasts
_RPC = "torch.distributed.rpc"
_PROCESS = "one process"
_TRAININGS = {
    _PROCESS: ("train", "--threads", "2"),
    **{
        transport: (
            *("cluster", "up", "--trainers", "2", "--embedding-servers", "2", "--sync", "none"),
            *("--transport", transport),
        )
        for transport in ("tcp", "shm")
    },
}


def measure(bench: Bench) -> list[Record]:
    """A record for each batch size and kind of work on rows, and one for each training."""
    found = []
    for batch in _BATCHES:
        found += _served(bench, batch)
        turns = [
            {name: _trained(name, batch, bench.times(_EPOCHS)) for name in _TRAININGS}
            for _ in range(bench.times(_TURNS))
        ]
        found += [
            {"figure": "training", "batch": batch, "work": name, "eps": [t[name] for t in turns]}
            for name in _TRAININGS
        ]
    return found


def _served(bench: Bench, batch: int) -> list[Record]:
    seconds = bench.seconds(_SECONDS, least=1.0)
    sizes = (dlrm.TABLES, dlrm.ROWS, dlrm.EXPONENT, batch)
    works: dict[str, Record] = {}
    for _ in range(bench.times(_TURNS)):
        turn = bench.run("bench_remote_rows", seconds, *sizes)
        if installed("torch"):
            turn.append({"work": _RPC, **_rpc(batch, seconds)})
        for said in turn:
            work = works.setdefault(
                said["work"], {"figure": "served", "batch": batch, "work": said["work"]}
            )
            for name in (
                *("examples_per_second", "cpu_us_per_example"),
                *("of_what_has_to_be_done", "of_its_processor_time"),
            ):
                if name in said:
                    work.setdefault(name, []).append(said[name])
    return list(works.values())


def _rpc(batch: int, seconds: float) -> Record:
    command = [sys.executable, "-m", "bench.torch_rows", str(batch), str(seconds)]
    done = subprocess.run(command, check=True, capture_output=True, encoding="utf-8")
    said: Record = json.loads(done.stdout.splitlines()[-1])
    return said


def _trained(name: str, batch: int, epochs: int) -> float:
    """Examples per second of a training, evaluated at its two ends alone."""
    words = ["--model", "dlrm", "--data", "clicks", "--batch-size", str(batch)]
    words += ["--epochs", str(epochs), "--evaluate-every", "3600", "--seed", "1"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "run", "run.json")
        where = ["--output", str(report)] if name == _PROCESS else ["--run", str(report.parent)]
        report.parent.mkdir(exist_ok=name == _PROCESS)
        command = [sys.executable, "-m", "leashed", *_TRAININGS[name], *words, *where]
        subprocess.run(command, check=True, capture_output=True)
        said = json.loads(report.read_text())
    if name == _PROCESS:
        return float(said["examples"] / said["elapsed"])
    return float(
        sum(
            each["examples"] / each["seconds"]
            for member, each in said["summaries"].items()
            if member.startswith("trainer")
        )
    )


_WORKS = {
    "raw": "the bytes alone, blocking sockets",
    "in_process": "the work alone, in one process",
    "tcp": "served over TCP, one batch ahead",
    "tcp_no_look_ahead": "served over TCP, none ahead",
    "shm": "served through shared memory, one ahead",
    _RPC: f"{_RPC}, one ahead",
}


def _figure(results: Results, batch: int, work: str, name: str) -> list[float]:
    found = figures.records(results, "rows", figure="served", batch=batch, work=work)
    return list(found[0].get(name, ())) if found else []


def words(results: Results) -> str:
    """Both tables."""
    records = figures.records(results, "rows", figure="served")
    if not records:
        return ""

    def share(record: Record, name: str) -> str:
        return f"{statistics.median(record[name]):.2f}" if name in record else ""

    lines = [
        [
            f"{record['batch']}",
            _WORKS[record["work"]],
            thousands(statistics.median(record["examples_per_second"])),
            number(statistics.median(record["cpu_us_per_example"])),
            share(record, "of_what_has_to_be_done"),
            share(record, "of_its_processor_time"),
        ]
        for record in records
    ]
    trainings = [
        [
            f"{record['batch']}",
            record["work"] if record["work"] == _PROCESS else f"cluster, {record['work']}",
            thousands(statistics.median(record["eps"])),
            f"{statistics.median(_ratios(results, record['batch'], record['work'])):.2f}",
        ]
        for record in figures.records(results, "rows", figure="training")
    ]
    return paragraphs(
        "Rows of DLRM's 26 tables, looked up, pushed and updated by Adagrad, by one trainer's thread "
        "and one server's, of batches that nobody computes: beside the time that the same bytes over "
        "blocking sockets, and the same work on the same tables in one process, take one after the "
        "other in the same turns; and what torch.distributed.rpc takes for the same, two processes.",
        table(
            [
                "batch",
                "",
                "examples/s",
                "processor time, µs",
                "of both, time",
                "of both, processor",
            ],
            lines,
        ),
        "DLRM trained by two trainers with two embedding servers, each trainer's parameters its own, "
        "beside one process with two threads: all on this machine's processors. Servers write snapshots as "
        "by default, and one process writes none.",
        table(["batch", "", "examples/s", "of one process"], trainings),
    )


def served(work: str, batch: int, results: Results) -> float | None:
    """Of the rate that what has to be done allows, what is reached."""
    found = _figure(results, batch, work, "of_what_has_to_be_done")
    return statistics.median(found) if found else None


def over_rpc(name: str, batch: int, results: Results) -> float | None:
    """How many times as good as torch.distributed.rpc, turn by turn."""
    ours, theirs = (_figure(results, batch, work, name) for work in ("tcp", _RPC))
    if not ours or not theirs:
        return None
    more = [a / b for a, b in zip(ours, theirs, strict=True)]
    ratio = statistics.median(more)
    return ratio if name == "examples_per_second" else 1 / ratio


def _ratios(results: Results, batch: int, work: str) -> list[float]:
    by = {
        record["work"]: record["eps"]
        for record in figures.records(results, "rows", figure="training", batch=batch)
    }
    if work not in by or _PROCESS not in by:
        return []
    return [a / b for a, b in zip(by[work], by[_PROCESS], strict=True)]


def of_one_process(transport: str, batch: int, results: Results) -> float | None:
    """Of one process's examples per second, what two trainers with two servers reach."""
    found = _ratios(results, batch, transport)
    return statistics.median(found) if found else None


GOALS = (
    *(
        Goal(
            f"rows at a server over TCP, batch {batch}, of what bytes and work allow",
            target,
            partial(served, "tcp", batch),
        )
        for batch, target in ((512, 0.85), (128, 0.75))
    ),
    *(
        Goal(
            f"rows at a server over TCP, batch 512, {what} over torch.distributed.rpc's",
            8.0,
            partial(over_rpc, name, 512),
            unit="×",
        )
        for name, what in (
            ("examples_per_second", "examples/s"),
            ("cpu_us_per_example", "examples by processor time"),
        )
    ),
    *(
        Goal(
            f"DLRM, 2 trainers and 2 embedding servers, {how}, batch {batch}, of one process",
            target,
            partial(of_one_process, transport, batch),
        )
        for transport, how, batch, target in (
            ("tcp", "TCP", 512, 0.75),
            ("tcp", "TCP", 128, 0.65),
            ("shm", "shared memory", 512, 0.85),
        )
    ),
)
