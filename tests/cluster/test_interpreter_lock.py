"""Somebody holds a process's interpreter for long: rows are looked up and pushed all the same."""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster import faults
from cluster.test_remote_rows import EXAMPLES, Servers, same_bits, watch

from leashed import _core
from leashed.cluster import outcome
from leashed.cluster.measures import counted
from leashed.cluster.row_files import joined

SECONDS = 4.0

# What a process of a run has in the place of its site's own: once batches are used, a thread that lets
# nobody else have the interpreter.
_HOLDS = f"""
import ctypes, json, sys, threading, time
from pathlib import Path

def hold(folder, name):
    while True:
        try:
            used = json.loads((folder / "run.json").read_text())["ledger"]["complete"]
        except (OSError, ValueError):
            used = 0
        if used > 0:
            break
        time.sleep(0.02)
    ctypes.PyDLL(None).usleep({int(SECONDS * 1e6)})
    (folder / ("held-" + name)).write_text(str(used))

words = sys.orig_argv
if "leashed.cluster.role" in words:
    role, index = words[words.index("--plan") - 1], words[words.index("--index") + 1]
    if role in ("trainer", "embedding-ps"):
        folder = Path(words[words.index("--plan") + 1]).parent
        threading.Thread(target=hold, args=(folder, role + "-" + index), daemon=True).start()
"""


def test_pushes_go_on_while_somebody_has_the_interpreter() -> None:
    """Of the trainer and of the servers, which are in this process: with the same bits."""
    example = EXAMPLES["dlrm"]()
    servers = Servers(example, 2)
    rows = servers.rows(1, 0)
    servers.join(rows)
    updates = 4000
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(_core.train, example.training(1, []), watch(updates), rows=rows)
        while (before := rows.counters()["settled"]) == 0:
            pass
        ctypes.PyDLL(None).usleep(1_000_000)
        assert rows.counters()["settled"] > before
        result = training.result()
    told = rows.counters()
    assert told["settled"] == 2 * updates
    assert told["lost"] == told["cuts"] == told["unsettled"] == 0
    same_bits(example, servers, result, updates)


def trained(folder: Path) -> tuple[Any, ...]:
    """What a run of one trainer and two servers comes to, and its report."""
    words = faults.clicks(folder.parent, batch_size=64, discipline="sequential")
    plan = faults.make_plan(
        folder, "none", "background", epochs=1200.0, trainers=1, sync_ps=0, embedding_ps=2, look_ahead=0,
        timeout=SECONDS * 3 / 4, train=words,
    )  # fmt: skip
    played = faults.play(plan, [])
    model, run = plan.train.problem().model, played.report["run"]
    rows = joined(folder, model.tables, 2, run)  # type: ignore[union-attr]
    (replica,) = outcome.replicas(folder, run, model.dimension).values()
    return replica.parameters, rows.tables, played.report


@pytest.mark.process
@pytest.mark.long
def test_processes_whose_interpreter_is_held_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than a silent one is waited for: nobody is taken for dead, and the bits are the same."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    alone, tables, _ = trained(tmp_path / "a" / "run")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(_HOLDS)
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", path.rstrip(os.pathsep))
        found, held, report = trained(tmp_path / "b" / "run")
    for name in ("trainer-0", "embedding-ps-0", "embedding-ps-1"):
        used = int((tmp_path / "b" / "run" / f"held-{name}").read_text())
        assert used < report["ledger"]["total"]
    assert all(m["finished"] or m["gone"] is None for m in report["members"])
    assert report["ledger"]["again"] == 0
    (told,) = counted(report, "trainer").values()
    assert told["row_pushes"] == report["ledger"]["total"]
    assert told["row_settled"] == 2 * told["row_pushes"]
    assert told["row_lost"] == told["row_cuts"] == told["row_unsettled"] == 0
    np.testing.assert_array_equal(found, alone)
    for name, table in tables.items():
        ids = np.sort(table.ids())
        np.testing.assert_array_equal(np.sort(held[name].ids()), ids)
        np.testing.assert_array_equal(held[name].lookup(ids), table.lookup(ids))
