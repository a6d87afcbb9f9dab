"""DLRM's rows at embedding servers: what asking, answering, pushing and updating take beside what has to
be done, and beside torch.distributed.rpc; and trainings of two trainers with two servers beside one
process with two threads. Everybody takes turns.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial

from bench import dlrm, figures
from bench.commanded import report_of
from bench.context import Bench, Record, installed
from bench.figures import Results
from bench.markdown import number, paragraphs, table, thousands
from bench.section import Goal

PLACE, TITLE = 175, "Rows at embedding servers"

_BATCHES = (128, 512)
_WAITED = (64, 512)  # batches of whose waits for rows there is a goal
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
_AHEAD = (0, 1, 2)
_WAITING = {
    f"{ahead} ahead": (*_TRAININGS["tcp"], "--threads", "1", "--look-ahead", str(ahead))
    for ahead in _AHEAD
}


def measure(bench: Bench) -> list[Record]:
    """A record for each batch size and kind of work on rows, and one for each training."""
    found = []
    for batch in _BATCHES:
        found += _served(bench, batch)
        found += [
            {"figure": "training", "batch": batch, "work": name, "eps": [one[0] for one in turns]}
            for name, turns in _trainings(bench, batch, _TRAININGS).items()
        ]
    for batch in _WAITED:
        found += [
            {
                "figure": "waits",
                "batch": batch,
                "work": name,
                "eps": [one[0] for one in turns],
                "waits": [one[1] for one in turns],
            }
            for name, turns in _trainings(bench, batch, _WAITING).items()
        ]
    return found


def _trainings(
    bench: Bench, batch: int, works: Mapping[str, Sequence[str]]
) -> dict[str, list[tuple[float, float]]]:
    """Of each, in turns, what _trained returns."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(bench.times(_TURNS)):
        for name, words in works.items():
            found[name].append(_trained(words, batch, bench.times(_EPOCHS)))
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


def _trained(kind: Sequence[str], batch: int, epochs: int) -> tuple[float, float]:
    """Examples per second of a training, evaluated at its two ends alone; and for what share of their time
    the trainers, of one thread each, have waited for rows, and for pushes to be applied.
    """
    words = ["--model", "dlrm", "--data", "clicks", "--batch-size", str(batch)]
    words += ["--epochs", str(epochs), "--evaluate-every", "3600", "--seed", "1"]
    said = report_of(kind, words)
    if kind[0] == "train":
        return float(said["examples"] / said["elapsed"]), 0.0
    trainers = [each for member, each in said["summaries"].items() if member.startswith("trainer")]
    return (
        float(sum(each["examples"] / each["seconds"] for each in trainers)),
        float(sum(each["row_seconds"] + each["row_settling"] for each in trainers))
        / float(sum(each["seconds"] for each in trainers)),
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
    waits = [
        [
            f"{record['batch']}",
            record["work"],
            thousands(statistics.median(record["eps"])),
            f"{statistics.median(record['waits']):.1%}",
        ]
        for record in figures.records(results, "rows", figure="waits")
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
        *(_of_waits(waits) if waits else ()),
    )


def _of_waits(lines: list[list[str]]) -> tuple[str, str]:
    told = (
        "The share of their time for which two trainers, with two embedding servers over TCP, wait for rows and "
        "for their pushes, by how many batches ahead they ask for rows."
    )
    return told, table(["batch", "rows are asked for", "examples/s", "waits"], lines)


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


def waiting(batch: int, results: Results) -> float | None:
    """Of trainers' time, what they wait for rows and pushes with a look-ahead of 1."""
    found = figures.records(results, "rows", figure="waits", batch=batch, work="1 ahead")
    return statistics.median(found[0]["waits"]) if found else None


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
    *(
        Goal(
            f"DLRM, 2 trainers and 2 embedding servers, waits for rows, batch {batch}, of trainers' time",
            0.10,
            partial(waiting, batch),
            least=False,
        )
        for batch in _WAITED
    ),
)
