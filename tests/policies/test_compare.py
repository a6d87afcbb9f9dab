"""What compares machines with oracles finds a machine that is wrong, and shows it small."""

from __future__ import annotations

import sys
from copy import deepcopy
from typing import Any

import pytest
from policies import compare, oracles
from policies.schedules import ALGORITHMS, LONGEST, Cluster, draw
from policies.server import Action, Batch, Server

from leashed import _core


class Played:
    """An oracle in a machine's place: with numbers of its own, and kinds in another order."""

    def __init__(self, oracle: Server) -> None:
        self.oracle = oracle

    def on(self, kind: str, now: int, node: int, ticket: int, *told: int) -> list[Action]:
        actions = deepcopy(self.oracle.on(kind, now, node, max(ticket - 1000, 0), *told))
        for action in actions:
            if action["kind"] == "grant":
                lease = action["lease"]
                action["lease"] = tuple(lease._replace(ticket=lease.ticket + 1000))
            elif action["kind"] == "hold":
                action["slot"] += 7
            elif action["kind"] == "apply":
                action["slots"] = [(slot + 7, weight) for slot, weight in action["slots"]]
            elif action["kind"] in ("drop", "exchange"):
                action["ticket"] = max(action["ticket"] + 1000, 1000)
        return actions

    def copy(self) -> Played:
        return type(self)(deepcopy(self.oracle))


class Backwards(Played):
    """Serves who has the highest number first."""

    def on(self, kind: str, now: int, node: int, ticket: int, *told: int) -> list[Action]:
        self.oracle.served_first = list(range(99, -1, -1))
        return super().on(kind, now, node, ticket, *told)


class NoCopy(Played):
    def copy(self) -> Played:
        return self


class WrongTokens(oracles.Gba):
    """As printed: ⌊i/K⌋, here with K = 5."""

    def token(self) -> int:
        return self.number // 5


class LateIota(oracles.Gba):
    def decay(self, token: int) -> int:
        return 0 if self.k - token >= self.iota else 1


class FreshTokenAgain(oracles.Gba):
    """What is handed out again gets the token of now."""

    def take(self) -> Batch | None:
        batch = super().take()
        return None if batch is None else batch | {"token": self.k}


class CountsArrivals(oracles.HopBw):
    def close(self) -> None:
        if len(self.held) >= max(1, len(self.members) - self.b3):
            self.apply_all()


class OneMore(oracles.Ssp):
    def may_start(self, node: int) -> bool:
        return self.ahead(node) <= self.s + 1


class JoinsAtZero(oracles.Ssp):
    def joined(self, node: int) -> None:
        self.clock[node] = 0


class Forgets(oracles.Asp):
    """A batch that comes back is lost."""

    def give_back(self, batches: list[Batch]) -> None:
        super().give_back(batches)
        self.returned = []


class ByArrival(oracles.Bsp):
    def apply(self, kept: list[Batch], divisor: int) -> None:
        super().apply(kept, divisor)
        self.actions[-1]["slots"] = [(batch["slot"], 1.0) for batch in kept]


class ZeroesFirst(oracles.Shat):
    def pushed(self, batch: Batch) -> None:
        super().pushed(batch)
        self.told[batch["node"]] = 0


class SwitchesAtOnce(oracles.Switching):
    def may_start(self, node: int) -> bool:
        return self.mode != oracles.SYNC or super().may_start(node)


class Timid(oracles.Dssp):
    """Gives half of the extra iterations."""

    def controller(self, node: int) -> int:
        return super().controller(node) // 2


WRONG = [
    ("gba", WrongTokens),
    ("gba", LateIota),
    ("gba", FreshTokenAgain),
    ("hop_bw", CountsArrivals),
    ("ssp", OneMore),
    ("ssp", JoinsAtZero),
    ("asp", Forgets),
    ("bsp", ByArrival),
    ("shat", ZeroesFirst),
    ("switching", SwitchesAtOnce),
    ("dssp", Timid),
]


@pytest.mark.parametrize("played", [Played, Backwards])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_machine_with_other_numbers_is_the_same(algorithm: str, played: type[Played]) -> None:
    def make(name: str, arguments: dict[str, Any]) -> Played:
        return played(ALGORITHMS[name].oracle(**arguments))

    assert compare.compare(algorithm, range(10), 0, make) is None


@pytest.mark.parametrize(("algorithm", "wrong"), WRONG, ids=lambda x: getattr(x, "__name__", x))
def test_a_wrong_machine_is_found(algorithm: str, wrong: type[Server]) -> None:
    for i in range(300):
        if found := compare.play(
            draw(algorithm, f"0 {i}"), lambda _, arguments: Played(wrong(**arguments))
        ):
            assert "but the machine" in found.why or "AssertionError" in found.why
            return
    raise AssertionError("not found in 300 schedules")


def test_a_copy_that_is_none_is_found() -> None:
    def make(name: str, arguments: dict[str, Any]) -> Played:
        return NoCopy(ALGORITHMS[name].oracle(**arguments))

    assert compare.compare("asp", range(20), 0, make) is not None


def test_what_fails_is_shown_small() -> None:
    def make(_name: str, arguments: dict[str, Any]) -> Played:
        return Played(CountsArrivals(**arguments))

    found = compare.compare("hop_bw", range(300), 0, make)
    assert found is not None
    assert len(found.schedule.happenings) <= 3
    assert len(found.events) < 60
    assert "but the machine" in str(found)


def test_a_machine_that_fails_is_told_of() -> None:
    def make(_name: str, _arguments: dict[str, Any]) -> Played:
        raise ValueError("b3 must be small")

    found = compare.compare("hop_bw", range(1), 0, make)
    assert found is not None
    assert "b3 must be small" in str(found)


def test_without_a_machine_the_command_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(_core, "PolicyMachine", raising=False)
    monkeypatch.setattr(sys, "argv", ["compare.py", "--schedules", "1"])
    assert compare.main() == 2
    assert "PolicyMachine" in capsys.readouterr().out


@pytest.mark.parametrize(("wrong", "code"), [(False, 0), (True, 1)])
def test_the_command_tells_which_differ(
    wrong: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def make(name: str, arguments: dict[str, Any]) -> Played:
        oracle = ALGORITHMS[name].oracle
        return Played((Forgets if wrong and name == "asp" else oracle)(**arguments))

    monkeypatch.setattr(_core, "PolicyMachine", make, raising=False)
    given = "compare.py --schedules 60 --seed 3 --only asp --only bsp"
    monkeypatch.setattr(sys, "argv", given.split())
    assert compare.main() == code
    told = capsys.readouterr().out
    assert told.count("the same actions") == 2 - wrong
    assert ("but the machine" in told) == wrong


def test_schedules_reach_what_is_rare() -> None:
    found = set()
    for algorithm in ("gba", "hop_bw", "dssp", "switching"):
        for i in range(60):
            schedule = draw(algorithm, f"rare {i}")
            oracle, cluster = schedule.oracle(), Cluster(schedule)
            for _ in range(LONGEST):
                for event in (step := cluster.next()):
                    k, version = getattr(oracle, "k", 0), oracle.version
                    actions = oracle.on(*event)
                    cluster.take(event.now_ns, actions)
                    found |= {a["why"] for a in actions if a["kind"] == "drop"}
                    found |= {f"{a['kind']} at {event.kind}" for a in actions}
                    if getattr(oracle, "k", 0) > k and oracle.version == version:
                        found.add("an empty buffer")
                    if isinstance(oracle, oracles.Dssp) and any(oracle.extra.values()):
                        found.add("extra iterations")
                    if isinstance(oracle, oracles.Switching) and oracle.mode != oracle.wanted:
                        found.add("a switch that waits")
                if not step:
                    break
    assert found >= {
        "late",
        "stale",
        "straggler",
        "an empty buffer",
        "extra iterations",
        "a switch that waits",
        "grant at wake",
        "grant at leave",
        "grant at command",
        "apply at leave",
    }
