"""Programs that stand for roles: they keep a run's folder as the real ones do, and train nothing.

``command`` starts them, in the place of the supervisor's. A trainer hands in parameters of its own
making as its result; the master ends when all have. A file ``fail-NAME`` in the run's folder lets a
process fail once. They start in no time: of leashed only the master imports more than its tie.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TERMS = {"batch_size": 50, "parameters": 1000, "trainers": 2}


def member(
    number: int,
    role: str,
    index: int,
    gone: float | None = None,
    counters: dict[str, float] | None = None,
    counted: float | None = None,
    **others: Any,
) -> dict[str, Any]:
    """``counted``: when it told its counters; default: where it has gone, then."""
    why = None if gone is None else "finished"
    told = gone if counted is None else counted
    return {
        "id": number, "role": role, "index": index, "address": "", "joined": 1.0 + index,
        "gone": gone, "why": why, "finished": gone is not None, "before": 0,
        "counters": counters or {}, "counted": told if counters else None, **others,
    }  # fmt: skip


def trainer(examples: float, **others: float) -> dict[str, float]:
    counters = {
        "examples": examples, "updates": examples / 50, "batches_used": examples / 50,
        "syncs": examples / 500, "sync_failed": 1.0, "sync_seconds": 0.25,
        "bytes_out": 4000.0 * examples / 500, "bytes_in": 4000.0 * examples / 250,
        "transfers_out": examples / 500, "transfers_in": examples / 250,
        "staleness_mean": 1.5,
    }  # fmt: skip
    return {**counters, **others}


def exported(report: dict[str, Any]) -> dict[tuple[str, ...], float]:
    """What Prometheus is told of a run, by name and labels; where that is not installed the test is skipped."""
    import pytest  # noqa: PLC0415 (roles start in no time)

    pytest.importorskip(
        "prometheus_client", reason="NOT TESTED: prometheus-client is not installed"
    )
    from leashed.cluster.prometheus import Exporter  # noqa: PLC0415

    with Exporter("127.0.0.1", 0) as exporter:
        exporter(report)
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in exporter.collect()
            for sample in family.samples
        }


SERVER = {
    "exchanges": 30.0, "whole": 10.0, "bytes_in": 40e3, "bytes_out": 80e3, "lost": 0.0,
    "serving_seconds": 0.5, "kernel_in": 40e3, "kernel_out": 79e3,
}  # fmt: skip


def report(
    seconds: float = 11.0, state: str = "ended", examples: float = 3000.0, **others: Any
) -> dict[str, Any]:
    """As in run.json: trainer 0 for 10 s, trainer 1 for 8 s. ``examples``: of trainer 0."""
    ended = state == "ended"
    return {
        "run": "0123", "state": state, "reason": "complete" if ended else None,
        "seconds": seconds, "terms": TERMS,
        "ledger": {
            "total": 100, "complete": 100 if ended else 40, "outstanding": 0, "free": 0,
            "granted": 9, "again": 0, "late": 0,
        },
        "epoch": 1, "epochs_broken": 0, "malformed": 0,
        "members": [
            member(1, "trainer", 0, 11.0 if ended else None, trainer(examples), seconds),
            member(2, "trainer", 1, 10.0 if ended else None, trainer(2000.0), min(seconds, 10.0)),
            member(3, "sync-ps", 0, None, SERVER, seconds),
        ],
        "summaries": {f"trainer-{k}": trainer(2000.0) for k in range(2)} if ended else {},
        **others,
    }  # fmt: skip


def _write(path: Path, text: str) -> None:
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_text(text)
    beside.replace(path)


def _over(file: Path) -> bool:
    return file.exists() and json.loads(file.read_text())["state"] == "ended"


def command(file: Path) -> Callable[[str, int], list[str]]:
    """What starts a role, by its name and index, with the plan in that file."""
    from leashed.cluster import plan as plans  # noqa: PLC0415
    from leashed.cluster import supervisor  # noqa: PLC0415

    plan = plans.read(file)
    cluster = plan.cluster
    if not (cluster.run / "wait").exists():
        model = plan.train.problem().model
        for index in range(cluster.trainers):
            model.init(index).astype("<f4").tofile(cluster.run / f"trainer-{index}.made")

    def of(role: str, index: int) -> list[str]:
        name = supervisor.name_of(role, index)
        given = (supervisor.__file__, role, name, cluster.run, cluster.key_file, cluster.trainers)
        return [sys.executable, __file__, *map(str, given)]

    return of


def _tie(file: str) -> None:
    """As the roles are, without what else their package imports."""
    spec = importlib.util.spec_from_file_location("supervisor", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.tie()


def main(role: str, name: str, folder: Path, key: Path, trainers: int) -> None:
    assert key.stat().st_mode & 0o777 == 0o600
    (folder / f"{name}.pid").write_text(str(os.getpid()))
    if (folder / f"fail-{name}").exists():
        (folder / f"fail-{name}").unlink()
        sys.exit(5)
    print(name, "is here", flush=True)
    if role == "sync-ps":
        while not _over(folder / "run.json"):
            time.sleep(0.05)
        return
    if role == "trainer":
        if (folder / "wait").exists():
            time.sleep(600)
        shutil.copyfile(folder / f"{name}.made", folder / f"{name}.part")
        (folder / f"{name}.part").replace(folder / f"{name}.done")
        return
    import numpy as np  # noqa: PLC0415
    from handing import hand_in  # noqa: PLC0415 (beside this program)

    from leashed.cluster import history  # noqa: PLC0415

    with history.Recorder(folder) as record:
        for second in range(10_000):
            now = report(float(second), "running", 50.0 * second)
            record(now)
            _write(folder / "run.json", json.dumps(now))
            if len(list(folder.glob("trainer-*.done"))) == trainers:
                break
            time.sleep(0.05)
        for each in folder.glob("trainer-*.done"):
            hand_in(folder, each.stem, np.fromfile(each, "<f4"))
        now = report()
        record(now)
        _write(folder / "run.json", json.dumps(now))


if __name__ == "__main__":
    _tie(sys.argv[1])
    role, name, folder, key, trainers = sys.argv[2:]
    main(role, name, Path(folder), Path(key), int(trainers))
