"""Where all trainers die that had a run's parameters: what is reported as done is in what comes out."""

from __future__ import annotations

import math
import os
import signal
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cluster import faults
from cluster.fake import RUN, Chances, Process, World
from hypothesis import given, settings
from hypothesis import strategies as st

from leashed.cluster.messages import (
    Account,
    Epoch,
    Kept,
)
from leashed.cluster.state import Change, EpochMade, Joined, Removed, Terms
from leashed.cluster.supervisor import Supervisor, command, supervise

MANY = int(os.environ.get("LEASHED_SCHEDULES", "40"))
LONG = 600.0  # seconds of the world's time, by which every run has long ended
ROUND, KEEP = 0.3, 1.5  # seconds between two rounds, and between two files


@dataclass
class Summing:
    """What a trainer knows of its rounds."""

    begun: bool = False
    common: set[int] = field(default_factory=set)  # what all had after the last
    of: Account | None = None  # what was known to be used before it
    ended: bool = False  # before it, it knew that there are no more batches
    kept_at: float = 0.0
    together: int = 0  # the epoch in which it has taken what the others have


class Sums(World):
    """Trainers that sum with each other in rounds, and keep files of what they have.

    Attributes:
        gone: batches that may count as used, and went with a replica, since the last round before.
        went: those that ever did, also before the run has gone back: a file may be of then.
        handed_in: batches that are in the parameters that were.
        files: by index, what was kept last, and what is in it.
        restored, lost: as they are to be told.
        decided: what the master has, but for what was told of leases that are held.
        ids: members by id.
    """

    def __init__(self, seed: int, terms: Terms, chances: Chances, *, keeps: bool) -> None:
        self.gone: set[int] = set()
        self.went: set[int] = set()
        self.handed_in: set[int] = set()
        self.files: dict[int, tuple[Kept, set[int]]] = {}
        self.rounds: dict[int, Summing] = {}
        self.restored = self.lost = 0
        self.ids: dict[int, Process] = {}
        self._voided = 0  # leases up to this count for nothing any more
        self._keeps = keeps
        super().__init__(seed, terms, chances, servers=0)
        self.round()

    def of(self, process: Process) -> Summing:
        return self.rounds.setdefault(process.name, Summing())

    def begun_with(self, role: str, index: int) -> dict[str, Any]:
        kept = self.files.get(index)
        return {"summing": role == "trainer", "kept": kept and kept[0]}

    def live(self, process: Process) -> None:
        if not self.of(process).begun:
            self.of(process).begun = True
            if (kept := self.files.get(process.index)) is not None:
                process.content |= kept[1]
                self.of(process).common |= kept[1]
        super().live(process)

    def kill_all(self) -> None:
        super().kill_all()
        for index in list(self.files):
            if self.random.random() < 0.2:  # with its machine
                del self.files[index]

    def end(self, process: Process) -> None:
        self.lose(process)
        super().end(process)

    def lose(self, process: Process, kept: Iterable[int] = ()) -> None:
        """What only its replica had, is in none any more."""
        own = process.content.difference(self.of(process).common, kept)
        self.gone |= {batch for batch in own if process.under.get(batch, 0) > self._voided}
        self.went |= self.gone

    def train(self, process: Process) -> None:
        if self.of(process).together:
            super().train(process)

    def may_end(self, process: Process) -> bool:
        """It leaves by a round, in which it has what all others have."""
        return self.of(process).ended

    def settle(self, process: Process, epoch: Epoch) -> None:
        """Only by a round."""

    def round(self) -> None:
        self.after(ROUND, self.round)
        if not self.epochs:
            return
        epoch = self.epochs[max(self.epochs)]
        by_id = {p.standing.welcome.id: p for p in self.processes if p.standing.welcome}
        ring = [by_id.get(seat.id) for seat in epoch.members]
        if not all(p and self.awake(p) and p.standing.epoch == epoch for p in ring):
            return
        here = [p for p in ring if p is not None]
        if any(self.of(p).together != epoch.number for p in here):
            fresh = [seat.fresh for seat in epoch.members]
            root = here[fresh.index(False) if False in fresh else 0]
            for process, new in zip(here, fresh, strict=True):
                if new and process is not root:
                    self.lose(process, root.content)
                    process.content = set(root.content)
                    process.standing.kept = None
                self.of(process).together = epoch.number
        whole = set().union(*(p.content for p in here))
        for process in here:
            mine = self.of(process)
            process.content, mine.common = set(whole), set(whole)
            mine.of = process.standing.account
            mine.ended = process.standing.ended
            process.standing.settled(epoch.number)
            if mine.of is None:
                continue
            process.standing.kept = Kept("run", mine.of.next, mine.of.open)
            if self._keeps and self.now >= mine.kept_at + KEEP:
                mine.kept_at = self.now
                self.files[process.index] = process.standing.kept, set(whole)

    # What the ledger makes of it.

    def start_master(self) -> None:
        self.decided = self.replay(self.written)
        super().start_master()

    def recorded(self, change: Change) -> None:
        super().recorded(change)
        before = used(self.decided.ledger.account) if isinstance(change, EpochMade) else set()
        self.decided.apply(change)
        if isinstance(change, Joined):
            self.ids[change.id] = self.everybody[change.address]
        elif isinstance(change, Removed):
            process = self.ids[change.id]
            self.lose(process)  # should it live, it takes over what the others have
            if change.summary is not None:
                self.handed_in |= process.content
        elif isinstance(change, EpochMade):
            if change.restored is not None:
                self.goes_back(change, before)
            ring = [self.ids[seat.id].content for seat in self.decided.membership.epoch.members]
            have = self.handed_in.union(self.gone, *ring)
            assert used(self.decided.ledger.account) <= have, "done, and in nobody's parameters"

    def goes_back(self, change: EpochMade, before: set[int]) -> None:
        """Exactly to what is in what they go on with, but for what had gone with a replica."""
        assert change.restored is not None
        now = used(change.restored)
        assert now == used(self.decided.ledger.account)
        self.restored += 1
        self.lost += len(before - now)
        self.happened["restored from a file" if change.by else "begun anew"] += 1
        if change.by:
            missing = now - self.ids[change.by].content
            assert missing <= self.went, "of other parameters"
            self.gone = (self.gone & now) | missing
        else:
            assert not now
            self.gone.clear()
        for mine in self.rounds.values():  # what is trained again is no more what all had
            mine.common &= now
        self._voided = self.decided.ledger.tickets


def used(account: Account) -> set[int]:
    spans = (range(first, first + count) for first, count in account.open)
    return set(range(account.next)).difference(*spans)


chance = st.sampled_from([0.0, 0.0, 0.02, 0.1])
rate = st.sampled_from([0.0, 0.0, 0.02, 0.05])
chances = st.builds(
    Chances,
    lost=chance, doubled=chance, cut=rate, killed=rate, stopped=rate, master_killed=rate,
    master_stopped=rate, all_killed=st.sampled_from([0.02, 0.1, 0.2]), unlike=rate, shut_down=rate,
)  # fmt: skip


@settings(max_examples=MANY, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    trainers=st.integers(1, 5),
    total=st.integers(50, 800),
    bad=chances,
    keeps=st.booleans(),
    told=st.sampled_from([RUN, {}]),
)
def test_what_is_complete_is_in_the_parameters(
    seed: int, trainers: int, total: int, bad: Chances, keeps: bool, told: dict[str, str]
) -> None:
    terms = Terms(total=total, batch_size=4, trainers=trainers, fingerprint=told)
    world = Sums(seed, terms, bad, keeps=keeps)
    world.run(LONG)
    assert world.over is not None, "a deadlock"
    assert world.master is not None
    ledger = world.master.state.ledger
    assert ledger.complete == total
    have = world.handed_in
    assert set(range(total)) - have <= world.gone, "done, and in nobody's parameters"
    assert (ledger.restored, ledger.lost) == (world.restored, world.lost)
    if not world.happened["all killed"] and not world.gone:
        assert have == set(range(total))
    again = sum(world.trained.values()) - total
    assert again <= ledger.again + ledger.lost


def test_runs_go_back_to_what_was_kept_and_to_the_beginning() -> None:
    """Otherwise the test above would show nothing."""
    happened: Counter[str] = Counter()
    for seed in range(10):
        terms = Terms(total=400, batch_size=4, trainers=3)
        bad = Chances(killed=0.02, all_killed=0.2, shut_down=0.1)
        world = Sums(seed, terms, bad, keeps=seed % 2 == 0)
        world.run(LONG)
        happened += world.happened
    for what in (
        "all killed", "master killed", "restored from a file", "begun anew", "shut down",
        "handed in before",
    ):  # fmt: skip
        assert happened[what] > 3, what


@pytest.mark.process(1)
@pytest.mark.parametrize(
    ("kind", "kept", "killed"),
    [("ma", True, True), ("bmuf", True, True), ("ma", False, True), ("ma", True, False)],
)
def test_all_trainers_are_gone_at_once(kind: str, kept: bool, killed: bool, tmp_path: Path) -> None:
    """Killed, or because the master stands still for longer than its grace."""
    plan = faults.make_plan(
        tmp_path / "run", kind, "background", epochs=40.0, trainers=2,
        keep=0.3 if kept else math.inf,
    )  # fmt: skip
    of = command(tmp_path / "run" / "plan.toml")
    supervisor = Supervisor(plan.cluster.processes(), of, tmp_path / "run", restarts=5)
    files = [tmp_path / "run" / f"trainer-{index}.kept" for index in range(2)]
    reached: list[int] = []

    def look() -> None:
        report = faults.outcome.read_report(tmp_path / "run")
        if reached and not killed:
            counts = supervisor.counts()
            master = supervisor.pids().get("master")
            if master and all(counts[f"trainer-{index}"] for index in range(2)):
                os.kill(master, signal.SIGCONT)
        if reached or report is None or report["ledger"]["complete"] < 700:
            return
        if kept and not all(file.exists() for file in files):
            return
        reached.append(report["ledger"]["complete"])
        pids = supervisor.pids()
        if not killed:
            os.kill(pids["master"], signal.SIGSTOP)
            return
        for index in range(2):
            os.kill(pids[f"trainer-{index}"], signal.SIGKILL)

    with supervisor:
        supervise(supervisor, plan.cluster.timeout, look)
    report = faults.outcome.read_report(tmp_path / "run")
    assert report is not None
    assert reached, "too fast"
    assert report["state"] == "ended"
    ledger = report["ledger"]
    words = "were trained anew" if ledger["lost"] else "went on from what one had kept"
    assert words in report["reason"]
    assert ledger["complete"] == ledger["total"]
    assert ledger["restored"] == 1
    assert ledger["lost"] < ledger["total"] if kept else ledger["lost"] >= reached[0]
    trained = sum(
        member["counters"].get("batches_used", 0.0)
        for member in report["members"]
        if member["role"] == "trainer" and member["finished"]
    )
    # Those who were there at the end have all but what was kept.
    assert trained >= (ledger["lost"] if kept else ledger["total"])
    assert not any(file.exists() for file in files)
    model, _, test = plan.train.problem()
    found = faults.outcome.replicas(tmp_path / "run", report["run"], model.dimension)
    for replica in found.values():
        assert model.evaluate(replica.parameters, test)[1] > 0.9
