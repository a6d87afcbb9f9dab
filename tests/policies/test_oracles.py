"""The oracles among themselves, and against what the papers say of them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from policies import oracles
from policies.audit import Audit
from policies.oracles import GBA, SYNC
from policies.schedules import ALGORITHMS, LONGEST, Cluster, Event, Happening, Schedule, draw
from policies.server import Action, Lease, Server

History = list[tuple[Event, list[Action]]]


def play(schedule: Schedule, oracle: Server | None = None) -> tuple[History, Audit]:
    """All events and answers of a schedule, with its books, which must be in order."""
    oracle = schedule.oracle() if oracle is None else oracle
    cluster, books = Cluster(schedule), Audit(schedule.arguments["term_ns"])
    history: History = []
    while (step := cluster.next()) and len(history) < LONGEST:
        for event in step:
            actions = oracle.on(*event)
            books.take(event, actions)
            cluster.take(event.now_ns, actions)
            history.append((event, actions))
    if len(history) < LONGEST:
        assert not cluster.waiting(), f"nobody moves any more:\n{schedule}"
        over = any(action["kind"] == "end" for _, actions in history for action in actions)
        books.finish(schedule.arguments["examples"], over=over)
    return history, books


def updates(history: History) -> list[tuple[int, float, list[int]]]:
    """Of every update its version, its divisor and the batches in it."""
    batch: dict[int, int] = {}  # by ticket
    slots: dict[int, int] = {}
    found = []
    for event, actions in history:
        for action in actions:
            if action["kind"] == "grant":
                batch[action["lease"].ticket] = action["lease"].number
            elif action["kind"] == "hold":
                slots[action["slot"]] = batch[event.ticket]
            elif action["kind"] == "apply":
                numbers = [slots[slot] for slot, _ in action["slots"]]
                found.append((action["version"], action["divisor"], numbers))
    return found


def kinds(actions: list[Action]) -> list[str]:
    return [action["kind"] for action in actions]


def granted(actions: list[Action]) -> dict[int, int]:
    """Node → number of its batch."""
    return {a["node"]: a["lease"].number for a in actions if a["kind"] == "grant"}


class Hand:
    """Events by hand: each worker has at most one batch out."""

    def __init__(self, oracle: Server) -> None:
        self.oracle = oracle
        self.now = 0
        self.lease: dict[int, Lease] = {}

    def __call__(self, kind: str, node: int = 0, **told: int) -> list[Action]:
        if kind == "push":
            told = {"ticket": self.lease[node].ticket} | told
        actions = self.oracle.on(kind, self.now, node, **told)
        self.lease |= {a["node"]: a["lease"] for a in actions if a["kind"] == "grant"}
        return actions


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_batch_is_lost_or_applied_twice_and_nobody_waits_for_ever(algorithm: str) -> None:
    for i in range(40):
        play(draw(algorithm, f"books {i}"))


@pytest.mark.parametrize("algorithm", ["sync", "hop_bw"])
def test_a_barrier_has_no_staleness(algorithm: str) -> None:
    for i in range(20):
        assert not any(play(draw(algorithm, f"stale {i}"))[1].staleness)


def test_sync_drops_nothing_that_comes_in_time() -> None:
    for i in range(40):
        history, _ = play(draw("sync", f"drops {i}"))
        assert {a["why"] for _, actions in history for a in actions if a["kind"] == "drop"} <= {
            "late"
        }


@pytest.mark.parametrize(
    ("algorithm", "bound"), [("ssp", "s"), ("hop_bs", "b1"), ("dssp", "upper")]
)
def test_who_computes_is_never_further_ahead_than_the_bound(algorithm: str, bound: str) -> None:
    furthest = 0
    for i in range(60):
        schedule = draw(algorithm, f"bound {i}")
        oracle = schedule.oracle()
        assert isinstance(oracle, oracles.Ssp)
        cluster = Cluster(schedule)
        for _ in range(LONGEST):
            for event in (step := cluster.next()):
                cluster.take(event.now_ns, oracle.on(*event))
                ahead = [oracle.ahead(one["node"]) for one in oracle.out.values()]
                assert max(ahead, default=0) <= schedule.arguments[bound]
                if schedule.arguments[bound] >= 3:
                    furthest = max([furthest, *ahead])
            if not step:
                break
    assert furthest >= 3


def test_ssp_of_0_is_a_barrier_of_clocks() -> None:
    for i in range(20):
        schedule = draw("ssp", f"clocks {i}")
        schedule = replace(
            schedule,
            arguments=schedule.arguments | {"s": 0, "term_ns": 0},
            happenings=tuple(h for h in schedule.happenings if h.kind == "data_end"),
        )
        clocks = dict.fromkeys(range(schedule.arguments["workers"]), 0)
        for event, actions in play(schedule)[0]:
            if event.kind == "push":
                clocks[event.node] += 1
            assert all(clocks[node] == min(clocks.values()) for node in granted(actions))


def same(one: Schedule, other: Schedule) -> None:
    """The same answers but for what is told with a batch."""
    first, second = play(one)[0], play(other)[0]
    assert [event for event, _ in first] == [event for event, _ in second]

    def bare(history: History) -> list[Any]:
        for _, actions in history:
            for action in actions:
                if action["kind"] == "grant":
                    action["lease"] = action["lease"]._replace(token=0)
        return [actions for _, actions in history]

    assert bare(first) == bare(second)


def test_algorithms_that_meet_are_the_same_on_any_schedule() -> None:
    def other(schedule: Schedule, algorithm: str, **own: Any) -> Schedule:
        shared = {
            name: schedule.arguments[name] for name in ("workers", "batch", "examples", "term_ns")
        }
        return replace(schedule, algorithm=algorithm, arguments=shared | own)

    for i in range(20):
        base = draw("asp", f"meet {i}")
        same(base, other(base, "bsp", b2=1))
        same(base, other(base, "gba", m=1, iota=oracles.FRESH))
        same(base, other(base, "ssp", s=10**9))
        same(other(base, "bsp", b2=3), other(base, "gba", m=3, iota=oracles.FRESH))
        same(other(base, "ssp", s=2), other(base, "dssp", lower=2, upper=2))
        same(other(base, "ssp", s=2), other(base, "hop_bs", b1=2, m=1))
        same(other(base, "bsp", b2=3), other(base, "hop_bs", b1=10**9, m=3))
        same(other(base, "sync"), other(base, "hop_bw", b3=0))


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("ties", [0, 1, 2])
def test_gba_and_bsp_with_equal_workers_are_sync(workers: int, ties: int) -> None:
    shared = {"workers": workers, "batch": 3, "examples": 100, "term_ns": 0}
    durations = ((100,),) * workers
    sync, bsp, gba = (
        updates(play(Schedule(name, shared | own, durations, ties=ties))[0])
        for name, own in (
            ("sync", {}),
            ("bsp", {"b2": workers}),
            ("gba", {"m": workers, "iota": 0}),
        )
    )
    assert sync == bsp == gba
    assert [len(numbers) for _, _, numbers in sync[:-1]] == [workers] * (len(sync) - 1)


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a not in ("switching", "easgd")])
def test_one_worker_is_sequential(algorithm: str) -> None:
    own = {
        "bsp": {"b2": 1},
        "ssp": {"s": 2},
        "dssp": {"lower": 0, "upper": 3},
        "hop_bs": {"b1": 0, "m": 1},
        "hop_bw": {"b3": 4},
        "gba": {"m": 1, "iota": 0},
    }.get(algorithm, {})
    shared = {"workers": 1, "batch": 4, "examples": 30, "term_ns": 0}
    history, books = play(Schedule(algorithm, shared | own, ((7, 3, 5),)))
    assert updates(history) == [(i + 1, 1.0, [i]) for i in range(8)]
    assert not any(books.staleness)
    counts = [one.count for one in books.leases.values()]
    assert counts == [4] * 7 + [2]


def test_gba_leaves_out_what_is_more_than_iota_behind() -> None:
    hand = Hand(oracles.Gba(m=2, iota=1, workers=3, batch=1))
    assert granted(hand("pull", 0) + hand("pull", 1) + hand("pull", 2)) == {0: 0, 1: 1, 2: 2}
    assert [hand.lease[w].token for w in range(3)] == [0, 0, 1]
    for step in range(2):  # worker 0 is slow: batches 1 to 4 make two updates
        assert kinds(hand("push", 1)) == ["hold"]
        assert kinds(hand("push", 2)) == ["hold", "apply"]
        assert hand.oracle.version == step + 1
        hand("pull", 1)
        hand("pull", 2)
    # k = 2, and batch 0 has token 0: two behind.
    (hold,) = hand("push", 0)
    *_, drop, apply = hand("push", 1)
    assert drop == {"kind": "drop", "ticket": 1, "why": "stale"}
    assert apply["divisor"] == 1.0
    assert [slot for slot, _ in apply["slots"]] != [hold["slot"]]
    assert apply["version"] == 3


def test_gba_can_divide_by_m() -> None:
    for divide_by_m, divisor in ((False, 1.0), (True, 2.0)):
        hand = Hand(oracles.Gba(m=2, iota=0, divide_by_m=divide_by_m, workers=3, batch=1))
        for node in range(3):
            hand("pull", node)
        hand("push", 1)
        hand("push", 2)
        hand("pull", 1)
        hand("push", 0)
        assert hand("push", 1)[-1]["divisor"] == divisor


def test_a_buffer_of_which_nothing_is_kept_moves_k_and_not_the_parameters() -> None:
    oracle = oracles.Gba(m=1, iota=0, workers=3, batch=1)
    hand = Hand(oracle)
    for node in range(3):
        hand("pull", node)
    assert kinds(hand("push", 2)) == ["hold", "apply"]  # token 2, ahead of k = 0: fresh
    assert kinds(hand("push", 0)) == ["hold", "drop"]  # k = 1, token 0
    assert (oracle.k, oracle.version) == (2, 1)
    hand("push", 1)
    assert hand("pull", 0)[0]["version"] == 1


def test_tokens_repeat_m_times() -> None:
    _, books = play(Schedule(
        "gba", {"workers": 2, "batch": 1, "examples": 20, "term_ns": 0, "m": 3, "iota": 1}, ((2,), (3,))
    ))  # fmt: skip
    tokens = [one.token for one in sorted(books.leases.values(), key=lambda one: one.number)]
    assert tokens == [i // 3 for i in range(20)]


def test_the_last_buffer_is_applied_though_it_is_not_full() -> None:
    arguments = {"workers": 2, "batch": 1, "examples": 5, "term_ns": 0, "m": 4, "iota": 1}
    history, _ = play(Schedule("gba", arguments, ((2,), (3,))))
    assert updates(history) == [(1, 4.0, [0, 1, 2, 3]), (2, 1.0, [4])]


def test_a_dead_workers_batch_goes_to_the_front_with_the_step_as_its_token() -> None:
    oracle = oracles.Gba(m=1, iota=4, workers=3, batch=2, term_ns=10)
    hand = Hand(oracle)
    for node in range(3):
        hand("pull", node)
    first = dict(hand.lease)
    hand.now = 9
    hand("push", 2)
    hand.now = 10
    assert hand("wake") == []
    assert granted(hand("pull", 2)) == {2: 0}
    again = hand.lease[2]
    assert (first[0].token, oracle.k) == (0, 1)
    assert again == first[0]._replace(ticket=again.ticket, token=1)
    assert again.ticket != first[0].ticket
    (late,) = hand("push", 0, ticket=first[0].ticket)
    assert late == {"kind": "drop", "ticket": first[0].ticket, "why": "late"}
    assert granted(hand("pull", 0)) == {0: 1}
    assert hand.lease[0].token == 1  # its own: the step is no further
    assert granted(hand("pull", 1)) == {1: 3}


def test_a_batch_that_is_computed_again_is_not_stale() -> None:
    oracle = oracles.Gba(m=1, iota=0, workers=2, batch=1)
    hand = Hand(oracle)
    hand("pull", 0)
    hand("pull", 1)
    for _ in range(5):
        hand("push", 1)
        hand("pull", 1)
    hand("leave", 0)
    hand("push", 1)
    assert granted(hand("pull", 1)) == {1: 0}
    assert kinds(hand("push", 1)) == ["hold", "apply"]


def test_a_push_before_the_wake_up_is_in_time() -> None:
    hand = Hand(oracles.Asp(workers=1, batch=1, term_ns=10))
    hand("pull")
    hand.now = 12
    assert kinds(hand("push")) == ["hold", "apply"]
    assert hand("wake") == []


def test_who_leaves_gives_back_and_the_parked_get_it() -> None:
    hand = Hand(oracles.Asp(workers=2, batch=3, examples=4))
    hand("pull", 0)
    hand("pull", 1)
    assert hand.lease[1][1:] == (1, 3, 1, 0)
    hand("push", 1)
    assert hand("pull", 1) == []  # parked: batch 0 may come back
    assert granted(hand("leave", 0)) == {1: 0}
    assert [a["kind"] for a in hand("push", 1) + hand("pull", 1)] == ["hold", "apply", "end"]


def test_hop_bw_ignores_the_slowest() -> None:
    hand = Hand(oracles.HopBw(b3=1, workers=3, batch=1))
    for node in range(3):
        hand("pull", node)
    assert kinds(hand("push", 0)) == ["hold"]
    assert hand("pull", 0) == []
    closing = hand("push", 1)
    assert kinds(closing) == ["hold", "apply", "grant"]
    assert closing[1]["divisor"] == 2.0
    (drop,) = hand("push", 2)
    assert drop["why"] == "straggler"
    assert granted(hand("pull", 2)) == {2: 4}


def test_who_has_left_does_not_stand_for_who_is_awaited() -> None:
    hand = Hand(oracles.Sync(workers=3, batch=1))
    for node in range(3):
        hand("pull", node)
    hand("push", 0)
    assert kinds(hand("leave", 0)) == []
    assert kinds(hand("push", 1)) == ["hold"]
    closing = hand("push", 2)
    assert closing[1]["divisor"] == 3.0


def test_b3_of_all_workers_takes_the_first() -> None:
    hand = Hand(oracles.HopBw(b3=9, workers=2, batch=1))
    hand("pull", 0)
    hand("pull", 1)
    assert kinds(hand("push", 1)) == ["hold", "apply"]
    assert hand("push", 0)[0]["why"] == "straggler"


def test_dssp_lets_the_fastest_meet_the_slowest() -> None:
    """Batches of 10 against batches of 25, at lower = 1, worked out by hand.

    At 20 and at 35 the fast worker is 2 ahead, and nothing can be predicted of the slow one, which
    has not pushed twice: it waits until 25 and until 50. At 60, its interval being 25 with the wait
    in it, its pushes 60, 85, 110 come equally close to 75 and 100: one extra. At 70 it will meet
    the slow one's push at 100, with its third from now: three extra.
    """
    arguments = {"workers": 2, "batch": 1, "examples": 0, "term_ns": 0, "lower": 1, "upper": 9}
    end = (Happening(95, "data_end"),)
    history, _ = play(Schedule("dssp", arguments, ((10,), (25,)), end))
    starts = [event.now_ns for event, actions in history if 0 in granted(actions)]
    assert starts == [0, 10, 25, 50, 60, 70, 80, 90]


@pytest.mark.parametrize(
    ("its", "room", "extra"),
    [
        ((60, 85), 8, 1),  # at 110
        ((40, 70), 8, 0),  # at 100
        ((50, 90), 8, 3),  # at 130
        ((50, 90), 2, 2),  # as near to 130 as the bound lets it
        ((60, 75), 1, 0),  # 105 is as far from 100 as from 110
        ((90,), 8, 0),  # nothing to predict from
    ],
)
def test_the_controller(its: tuple[int, ...], room: int, extra: int) -> None:
    """For a worker that has pushed at 90 and at 100, and is 1 ahead."""
    oracle = oracles.Dssp(lower=0, upper=room, workers=2, batch=1)
    oracle.clock = {0: 3, 1: 2}
    oracle.pushes = {0: [90, 100], 1: list(its)}
    assert oracle.controller(0) == extra


def test_dssp_never_asks_for_more_than_is_left() -> None:
    oracle = oracles.Dssp(lower=0, upper=4, workers=2, batch=1)
    oracle.clock = {0: 7, 1: 2}
    oracle.pushes = {0: [90, 100], 1: [0, 90]}
    assert oracle.controller(0) == 0


def test_shats_counters() -> None:
    """Three workers push as 0, 1, 0, 0, 2: c of the sender, lines 16 to 23 by hand."""
    hand = Hand(oracles.Shat(workers=3, batch=1))
    for node in range(3):
        (grant,) = hand("pull", node)
        assert (grant["n"], grant["c"]) == (3, 0)
    told = []
    for node in (0, 1, 0, 0, 2):
        _, apply, grant = hand("push", node)
        told.append((grant["c"], grant["version"], apply["divisor"]))
    assert told == [(0, 1, 1.0), (1, 2, 1.0), (1, 3, 1.0), (0, 4, 1.0), (4, 5, 1.0)]


def test_shats_counters_are_differences_of_two_counts() -> None:
    for i in range(20):
        schedule = draw("shat", f"counts {i}")
        total = 0
        last: dict[int, int] = {}
        expected: dict[int, int] = {}
        for event, actions in play(schedule)[0]:
            applied = "apply" in kinds(actions)
            if applied:
                expected[event.node] = total - last.get(event.node, 0)
                total += 1
                last[event.node] = total
            for action in actions:
                if action["kind"] == "grant" and applied and action["node"] == event.node:
                    assert action["c"] == expected[event.node]
                elif action["kind"] == "grant" and event.kind == "pull":
                    last[event.node] = total  # it has come, or come back: its c is 0
            if event.kind == "join":
                last[event.node] = total


def test_shat_counts_who_is_there() -> None:
    hand = Hand(oracles.Shat(workers=2, batch=1))
    hand("pull", 0)
    hand("pull", 1)
    hand("push", 1)
    hand("leave", 1)
    hand("join", 2)
    assert hand("pull", 2)[0]["n"] == 2
    hand("push", 0)
    assert hand("push", 2)[-1] == {
        "kind": "grant", "node": 2, "lease": hand.lease[2], "version": 3, "n": 2, "c": 1,
    }  # fmt: skip


def test_shat_mixes_after_the_last_push_too() -> None:
    hand = Hand(oracles.Shat(workers=2, batch=1, examples=2))
    hand("pull", 0)
    hand("pull", 1)
    assert kinds(hand("push", 0)) == ["hold", "apply"]  # 1 may still leave: it waits
    *_, first, end, second, end_too = hand("push", 1)
    assert [a["node"] for a in (first, end, second, end_too)] == [0, 0, 1, 1]
    assert kinds([first, end, second, end_too]) == ["grant", "end"] * 2
    assert [(a["version"], a["n"], a["c"], a["lease"].count) for a in (first, second)] == [
        (2, 2, 0, 0),
        (2, 2, 1, 0),
    ]
    assert kinds(hand("pull", 0)) == ["end"]


def test_easgd_mixes_after_the_last_push_too() -> None:
    hand = Hand(oracles.Easgd(alpha=0.5, gap=1, workers=1, batch=4, examples=4))
    hand("pull")
    assert kinds(hand("push")) == ["exchange", "grant", "end"]
    assert kinds(hand("pull")) == ["end"]


def test_hop_bs_bounds_the_gap_and_steps_by_m() -> None:
    hand = Hand(oracles.HopBs(b1=1, m=3, workers=2, batch=1))
    hand("pull", 0)
    hand("pull", 1)
    assert kinds(hand("push", 0) + hand("pull", 0)) == ["hold", "grant"]
    assert kinds(hand("push", 0) + hand("pull", 0)) == ["hold"]  # 2 ahead: it waits
    _, apply, granted_now = hand("push", 1)
    assert (apply["divisor"], apply["version"]) == (3.0, 1)
    assert granted_now["node"] == 0


def test_switching_closes_the_last_buffer_with_nothing_out() -> None:
    for i in range(60):
        schedule = draw("switching", f"switch {i}")
        oracle = schedule.oracle()
        assert isinstance(oracle, oracles.Switching)
        cluster, mode = Cluster(schedule), oracle.mode
        for _ in range(LONGEST):
            for event in (step := cluster.next()):
                before = len(oracle.held)
                actions = oracle.on(*event)
                cluster.take(event.now_ns, actions)
                if oracle.mode != mode:
                    mode = oracle.mode
                    fresh = [a for a in actions if a["kind"] == "grant"]
                    assert len(oracle.out) == len(fresh)
                    if mode == SYNC and event.kind == "push":
                        assert before == oracle.m - 1
            if not step:
                break


def test_without_staleness_switching_is_sync() -> None:
    rng = random.Random(5)
    for workers in (1, 3, 4):
        commands = tuple(
            Happening(50 * i, "command", argument=rng.choice([SYNC, GBA])) for i in range(40)
        )
        shared = {"workers": workers, "batch": 2, "examples": 2 * workers * 18 + 1, "term_ns": 0}
        own = {"gba_batch": 2, "m": workers, "iota": 0}
        durations = ((100,),) * workers
        plain = updates(play(Schedule("sync", shared, durations))[0])
        switched = Schedule("switching", shared | own, durations, commands)
        assert updates(play(switched)[0]) == plain


def test_a_switch_keeps_the_global_batch() -> None:
    """4 workers of 6 examples against M = 8 of 3: every update is 24 examples, none twice."""
    commands = tuple(
        Happening(at, "command", argument=mode)
        for at, mode in ((250, GBA), (900, SYNC), (1300, GBA), (1310, SYNC))
    )
    arguments = {
        "workers": 4, "batch": 6, "examples": 24 * 20, "term_ns": 0,
        "gba_batch": 3, "m": 8, "iota": 1000,
    }  # fmt: skip
    durations = ((100, 90), (110, 80), (70,), (130,))
    history, books = play(Schedule("switching", arguments, durations, commands))
    size = {one.number: one.count for one in books.leases.values()}
    assert {sum(size[i] for i in numbers) for _, _, numbers in updates(history)} == {24}
    assert {size[i] for _, _, numbers in updates(history) for i in numbers} == {3, 6}
