"""Thousands of schedules of everything that can go wrong, driving the master's and members' logic."""

from __future__ import annotations

import copy
import os
from collections import Counter

import msgspec
import pytest
from cluster.fake import RUN, Chances, Line, World, words_of
from hypothesis import given, settings
from hypothesis import strategies as st

from leashed.cluster import wire
from leashed.cluster.measures import counted
from leashed.cluster.messages import FINISHED, Bye
from leashed.cluster.state import Terms

MANY = int(os.environ.get("LEASHED_SCHEDULES", "40"))
LONG = 600.0  # seconds of the world's time, by which every run has long ended

chance = st.sampled_from([0.0, 0.0, 0.02, 0.1, 0.3])
rate = st.sampled_from([0.0, 0.0, 0.02, 0.05, 0.2])
chances = st.builds(
    Chances,
    lost=chance, doubled=chance, overtaken=chance, cut=rate, killed=rate, stopped=rate,
    all_killed=rate, shut_down=rate, unlike=rate, master_killed=rate, master_stopped=rate, round_fails=chance,
    disk=st.sampled_from([0.0, 0.0, 0.02, 1.0, 8.0]),
)  # fmt: skip


# What the run is: as rank 0 tells it, a sync server, or whoever comes first.
told_first = st.sampled_from([RUN, words_of("sync-ps", RUN), {}])


def terms(trainers: int, total: int | None, told: dict[str, str] = RUN) -> Terms:
    return Terms(total=total, batch_size=4, trainers=trainers, fingerprint=told)


@settings(max_examples=MANY)
@given(
    seed=st.integers(0, 2**32), trainers=st.integers(1, 8), total=st.integers(1, 400), bad=chances,
    told=told_first,
)  # fmt: skip
def test_every_run_ends_with_every_batch_complete_once(
    seed: int, trainers: int, total: int, bad: Chances, told: dict[str, str]
) -> None:
    world = World(seed, terms(trainers, total, told), bad)
    world.run(LONG)
    assert world.over is not None, "a deadlock"
    assert world.master is not None
    ledger = world.master.state.ledger
    assert ledger.complete == total
    assert ledger.outstanding == ledger.free == 0
    assert set(world.trained) == set(range(total))
    twice = sum(world.trained.values()) - total
    assert twice <= ledger.again
    counters = counted(world.master.standing(world.now), "trainer").values()
    used = sum(each["batches_used"] for each in counters)
    assert used <= total + ledger.again
    # (Where all are killed, the master is now and then.)
    if not (bad.overtaken or bad.master_killed or bad.all_killed or bad.shut_down):
        assert used >= total
    if not any(
        (bad.overtaken, bad.master_killed, bad.all_killed, bad.shut_down, bad.stopped, bad.cut,
         bad.lost, bad.master_stopped)
    ):  # fmt: skip
        assert used == total  # of who is killed, what it had told last is what the ledger has
    if not any(
        (bad.cut, bad.killed, bad.all_killed, bad.stopped, bad.lost, bad.overtaken,
         bad.master_stopped)
    ):  # fmt: skip
        assert twice == 0 or bad.master_killed or bad.shut_down


def test_a_first_word_that_the_last_one_has_overtaken_is_no_new_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the answer to the last one is lost: what it has used would count twice."""
    world = World(0, terms(2, 40), Chances())
    process, carry = world.processes[0], world.carry
    world.told_to_end.append(process)  # so that the run goes on without it
    first, answer = wire.encode(process.standing.hello()), wire.encode(Bye(FINISHED))
    lost: list[bytes] = []

    def carried(line: Line, way: str, data: bytes) -> None:
        if line.process is process and data == answer and not lost:
            lost.append(data)
            world.after(0.0, lambda: world.deliver(line, "up", first))
        else:
            carry(line, way, data)

    monkeypatch.setattr(world, "carry", carried)
    world.run(LONG)
    assert lost
    assert world.over is not None
    assert world.master is not None
    counters = counted(world.master.standing(world.now), "trainer").values()
    assert sum(each["batches_used"] for each in counters) == 40
    assert len(process.ids) == 1


@settings(max_examples=MANY // 2)
@given(seed=st.integers(0, 2**32), trainers=st.integers(1, 8), bad=chances, told=told_first)
def test_all_come_to_agree_on_the_newest_epoch_and_servers(
    seed: int, trainers: int, bad: Chances, told: dict[str, str]
) -> None:
    world = World(seed, terms(trainers, None, told), bad, servers=2)
    world.run(bad.troubles_end + 30)
    assert world.over is None
    assert world.master is not None
    state = world.master.state
    members = state.membership.members
    newest = state.membership.epoch
    assert sorted((m.role, m.index) for m in members.values()) == sorted(
        [("trainer", index) for index in range(trainers)] + [("sync-ps", 0), ("sync-ps", 1)]
    )
    assert [seat.index for seat in newest.members] == list(range(trainers))
    assert max(world.epochs) == newest.number
    assert len(world.master.board.lines) == len(world.processes)
    for process in world.processes:
        standing = process.standing
        assert standing.welcome is not None
        assert standing.welcome.id in members
        if process.role == "trainer":
            assert standing.epoch == newest
            assert standing.servers == state.membership.servers()
            assert list(standing.servers.addresses["sync-ps"]) == [0, 1]


@settings(max_examples=MANY // 2)
@given(
    seed=st.integers(0, 2**32),
    trainers=st.integers(1, 8),
    total=st.integers(1, 400),
    unlike=st.sampled_from([0.1, 0.5]),
    told=told_first,
)
def test_who_differs_is_told_in_what_and_disturbs_nobody(
    seed: int, trainers: int, total: int, unlike: float, told: dict[str, str]
) -> None:
    """Whenever it comes, also first: what the run is, its first members say, unless it is given."""
    world = World(seed, terms(trainers, total, told), Chances(unlike=unlike))
    world.run(LONG)
    assert world.over is not None, "a deadlock"
    assert world.master is not None
    state = world.master.state
    assert state.ledger.complete == total
    assert state.ledger.again == state.ledger.late == state.membership.broken == 0
    assert set(world.trained.values()) == {1}
    for process in world.everybody.values():
        differs = any(world.agreed.get(n, word) != word for n, word in process.words.items())
        assert len(process.ids) <= 1
        assert not (differs and process.ids)
        # A member at once, or told, unless another has its place, or the run was over by then.
        if process.alive and world.now - process.started > 1.0:
            assert process.ids


@settings(max_examples=MANY // 2)
@given(seed=st.integers(0, 2**32), bad=chances, told=told_first)
def test_the_journal_tells_a_new_master_what_the_old_one_knew(
    seed: int, bad: Chances, told: dict[str, str]
) -> None:
    world = World(seed, terms(4, 300, told), bad)
    for until in (5.0, 12.0, 25.0):
        world.run(until)
        if world.master is None:
            continue
        was, is_ = world.replayed(), world.master.state
        mine, yours = was.ledger, is_.ledger
        for name in ("total", "next", "back", "tickets", "again", "late", "taken"):
            assert getattr(mine, name) == getattr(yours, name)
        assert list(mine.held) == list(yours.held)
        # What was used of a lease that is not complete, its member tells again.
        whole = [each.complete - sum(h.used for h in each.held.values()) for each in (mine, yours)]
        assert whole[0] == whole[1]
        assert list(was.membership.members) == list(is_.membership.members)
        assert was.membership.past == is_.membership.past
        assert was.membership.epoch == is_.membership.epoch
        assert was.membership.servers() == is_.membership.servers()
        assert was.summaries == is_.summaries
        assert was.fingerprint == is_.fingerprint
        snapshot = msgspec.json.decode(msgspec.json.encode(is_), type=type(is_))
        assert snapshot == is_


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_goes_the_same_way(seed: int) -> None:
    """The master's logic is a value: the same events lead to the same."""
    bad = Chances(lost=0.1, killed=0.1, stopped=0.1, overtaken=0.1)
    world = World(seed, terms(3, 200), bad)
    world.run(4.0)
    assert world.master is not None
    before = copy.deepcopy(world.master)
    twin = copy.deepcopy(world.master)
    world.master.tick(world.now + 0.5)
    assert msgspec.json.encode(twin.state) == msgspec.json.encode(before.state)
    twin.tick(world.now + 0.5)
    assert twin.take() == world.master.take()
    assert msgspec.json.encode(twin.state) == msgspec.json.encode(world.master.state)


def test_the_world_is_as_bad_as_it_says() -> None:
    """Otherwise the tests above would show nothing."""
    bad = Chances(
        lost=0.1, doubled=0.1, overtaken=0.1, cut=0.1, killed=0.1, stopped=0.1,
        all_killed=0.1, unlike=0.1, master_killed=0.1, master_stopped=0.1, round_fails=0.1,
    )  # fmt: skip
    happened: Counter[str] = Counter()
    again = late = broken = first = 0
    for seed in range(10):
        world = World(seed, terms(4, 400, {} if seed % 2 else RUN), bad)
        world.run(LONG)
        assert world.master is not None
        first += any(world.agreed[name] != word for name, word in RUN.items())
        happened += world.happened
        again += world.master.state.ledger.again
        late += world.master.state.ledger.late
        broken += world.master.state.membership.broken
    troubles = (
        "master killed",
        "master stopped",
        "killed",
        "all killed",
        "stopped",
        "cut",
        "turned away",
    )
    for what in troubles:
        assert happened[what] > 5, what
    assert 0 < first < 10, "what the run is, was said by one that others took for another thing"
    assert again > 0
    assert broken > 0
    assert late > 0
