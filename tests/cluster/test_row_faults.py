"""Runs with rows at embedding servers of which processes of all roles are killed, stopped and cut off."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from cluster import faults, row_faults

from leashed.cluster import outcome
from leashed.cluster.measures import Counters, counted
from leashed.cluster.supervisor import OVER, Supervisor, command


@pytest.mark.process(1)
@pytest.mark.parametrize("kind", row_faults.FORMATS)
def test_3_faults_in_a_row(kind: str, tmp_path: Path) -> None:
    """``python tests/cluster/row_faults.py --faults 500`` for more."""
    first = row_faults.FORMATS.index(kind)
    assert row_faults.attempts(3, 1 + first, tmp_path, mean=0.5, first=first) == 0


@pytest.mark.process
def test_trainers_and_embedding_servers_are_killed_together(tmp_path: Path) -> None:
    """``python tests/cluster/row_faults.py --together --faults 100`` for more."""
    assert row_faults.attempts(4, 3, tmp_path, mean=0.5, pairs=True) == 0


@pytest.mark.process
@pytest.mark.parametrize("kind", ["easgd", pytest.param("ma", marks=pytest.mark.long)])
def test_of_a_trainer_that_goes_on_when_it_is_taken_for_dead_each_push_is_counted(
    kind: str, tmp_path: Path
) -> None:
    """It pushes what others train too, until it hears of that: nothing lacks, and what was trained twice is
    in the rows as often as the ledger says. On a fast machine the other has trained all before it is back:
    the run does not end, as the master waits for it for ``grace`` seconds.
    """
    plan = row_faults.make_plan(tmp_path / "run", epochs=120.0, kind=kind)
    stopped = faults.Fault("trainer-1", 3.0)
    played = faults.play(plan, [(-0.05, stopped)])
    found = row_faults.check(played)
    ledger = played.report["ledger"]
    assert stopped.time, "the run was over before the trainer could be stopped"
    assert ledger["again"] >= max(1, ledger["twice"])
    assert found.lacks(120) == 0
    assert found.pushes == [ledger["total"] + ledger["twice"]] * row_faults.SERVERS
    was, came = [m for m in played.report["members"] if (m["role"], m["index"]) == ("trainer", 1)]
    assert was["why"] == f"silent for {plan.cluster.timeout:g} s"
    assert came["finished"]
    log = (plan.cluster.run / "trainer-1.log").read_text()
    assert "joined anew, as the master had taken it for dead (silent for 1.5 s)" in log
    assert "give a longer timeout" in log


@pytest.mark.process
def test_a_trainer_that_comes_back_when_the_run_is_over_ends(tmp_path: Path) -> None:
    """Though its threads wait for rows of servers that have ended with the run: for ``patience`` they did."""
    plan = row_faults.make_plan(tmp_path / "run", epochs=60.0, grace=3.0)
    folder = plan.cluster.run
    supervisor = Supervisor(
        plan.cluster.processes(), command(folder / "plan.toml"), folder, plan.cluster.restarts
    )
    with supervisor:
        while not faults.trains(folder, "trainer-1"):
            supervisor.step()
            assert supervisor.running("master"), (
                "the run was over before the trainer could be stopped"
            )
        stopped = supervisor.pids()["trainer-1"]
        os.kill(stopped, signal.SIGSTOP)
        while supervisor.running("master") or supervisor.running("embedding-ps"):
            supervisor.step()
            time.sleep(0.02)
        os.kill(stopped, signal.SIGCONT)
        while supervisor.running("trainer"):
            supervisor.step()
            time.sleep(0.02)
    assert supervisor.statuses("trainer") == [0, OVER]
    log = (folder / "trainer-1.log").read_text()
    assert "the run ended before its training did (the run in " in log
    assert "1 of 2 have finished" in log


class Look(NamedTuple):
    """At a server while a run goes on.

    Attributes:
        resident: bytes of memory.
        told: what it counts.
    """

    resident: int
    told: Counters


def look(folder: Path, servers: dict[int, int]) -> dict[int, Look]:
    """At all embedding servers of which something is told, by their process ids."""
    found = {}
    told = counted(outcome.read_report(folder) or {"members": []}, "embedding-ps")
    for index, counters in told.items():
        pages = int(Path(f"/proc/{servers[index]}/statm").read_text().split()[1])
        found[index] = Look(pages * os.sysconf("SC_PAGE_SIZE"), counters)
    return found


PATIENCE = 2.0


@pytest.mark.process
def test_a_trainer_that_hangs_for_good_holds_rows_for_a_term_and_no_memory(tmp_path: Path) -> None:
    """Of tables that evict and hold the rows of one trainer's batches, but not of two: its rows are in
    the way of the other until they are let go, and then every id of that gets one.
    """
    batch = 448  # of a table of 600 rows a server: two batches of one trainer have 448 there
    rows = 12 * batch
    words = row_faults.written(tmp_path / "rows", rows)
    del words["test"]  # a part of the rows is kept back
    plan = row_faults.make_plan(
        tmp_path / "run", epochs=1e6, patience=PATIENCE, snapshot_every=1.0, readers=0,
        grace=5.0, train={**words, "batch_size": batch, "table_mib": 1 / 8, "evict": "age"},
    )  # fmt: skip
    folder = plan.cluster.run
    supervisor = Supervisor(plan.cluster.processes(), command(folder / "plan.toml"), folder)
    looks: dict[int, list[Look]] = {index: [] for index in range(row_faults.SERVERS)}

    def until(done: Callable[[list[Look]], bool]) -> None:
        """Looks at all servers, until that is so of what is seen of each."""
        while not all(map(done, looks.values())):
            time.sleep(0.05)
            supervisor.step()
            assert supervisor.running("master"), outcome.read_report(folder)
            there = {k: supervisor.pids().get(f"embedding-ps-{k}", 0) for k in looks}
            for index, one in look(folder, there).items() if all(there.values()) else ():
                if not looks[index] or looks[index][-1].told != one.told:
                    looks[index].append(one)

    with supervisor:
        until(lambda each: bool(each) and each[-1].told.get("row_asked", 0.0) > 10 * rows)
        held = {index: each[-1] for index, each in looks.items()}
        os.kill(supervisor.pids()["trainer-1"], signal.SIGSTOP)
        until(lambda each: each[-1].told["expired"] >= 1)
        let_go = {index: len(each) - 1 for index, each in looks.items()}
        asked = {index: each[-1].told["row_asked"] for index, each in looks.items()}
        # By then it is so for each id that the other asks for.
        until(lambda each: each[-1].told["row_asked"] > max(asked.values()) + 10 * rows)
        first = {index: each[-1].told for index, each in looks.items()}
        begun = max(told["row_asked"] for told in first.values())
        until(lambda each: each[-1].told["row_asked"] > begun + 90 * rows)
    for index, each in looks.items():
        begin, end = first[index], each[-1].told

        def share(name: str, begin: Counters = begin, end: Counters = end) -> float:
            asked = end["row_asked"] - begin["row_asked"]
            return (end[f"row_{name}"] - begin[f"row_{name}"]) / asked

        before = [held[index], *each[: let_go[index]]]
        assert end["row_refused"] > 0
        assert share("refused") < 0.05  # (those to go are found by sampling)
        assert share("evicted") > 0.3
        assert end["payload_bytes"] <= max(one.told["payload_bytes"] for one in before)
        assert max(one.resident for one in each) < held[index].resident + 2**24
