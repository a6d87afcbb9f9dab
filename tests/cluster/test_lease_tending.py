"""How many batches a trainer asks for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from leashed.cluster import lease_tending
from leashed.cluster.lease_tending import LeaseTending
from leashed.cluster.member import Member
from leashed.cluster.messages import Lease


class Leases:
    """As the core's; workers use up what is left where a test says so."""

    def __init__(self) -> None:
        self.resting, self.unclaimed = 0, 0

    def give(self, _: int, __: int, count: int) -> None:
        self.unclaimed += count
        self.resting = 0

    def left(self) -> int:
        return self.unclaimed

    def used(self) -> list[tuple[int, int]]:
        return []

    def astray(self) -> int:
        return 0


class Trainer:
    """A trainer's leases, and whom it asks for more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.asked, self._ticket = 0.0, list[int](), 0
        monkeypatch.setattr(lease_tending, "time", SimpleNamespace(monotonic=lambda: self.now))
        member = SimpleNamespace(want=self.asked.append, heard_at=0.0)
        self.tending = LeaseTending(cast(Member, member), None, 1, lockstep=False)
        self.leases = Leases()
        self.tending.leases = cast(Any, self.leases)

    def answered(self) -> None:
        """What was asked for last comes."""
        self._ticket += 1
        self.tending.given(Lease(self._ticket, 0, self.asked[-1], 1, self._ticket))

    def starve(self) -> None:
        """All batches are used, and the worker waits for more."""
        self.leases.unclaimed, self.leases.resting = 0, 1


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    return Trainer(monkeypatch)


def test_who_waits_for_a_lease_asks_for_twice_as_many_next_at_once(trainer: Trainer) -> None:
    trainer.tending.fetch()
    for _ in range(5):
        trainer.starve()
        trainer.answered()
        trainer.tending.fetch()
    assert trainer.asked == [2, 4, 8, 16, 32, 64]
    trainer.leases.unclaimed = 10  # it had not come to an end by then
    trainer.answered()
    trainer.tending.fetch()
    assert len(trainer.asked) == 6
    trainer.leases.unclaimed = 31
    trainer.tending.fetch()
    assert trainer.asked[6:] == [64]


def test_who_is_woken_late_asks_for_no_more(trainer: Trainer) -> None:
    """On a busy machine: of leases that it has not yet seen it got twice as many each time, without an end."""
    trainer.tending.fetch()
    trainer.starve()
    for _ in range(40):
        trainer.answered()
        trainer.leases.resting = 1  # though there are batches
        trainer.tending.fetch()
    assert set(trainer.asked) == {2, 4}


def test_who_does_not_wait_asks_for_as_many_as_before(trainer: Trainer) -> None:
    trainer.tending.fetch()
    for _ in range(5):
        trainer.leases.unclaimed = 0  # the last one is under way
        trainer.answered()
        trainer.tending.fetch()
        assert trainer.leases.left() == 2
        trainer.leases.unclaimed = 0
        trainer.tending.fetch()
    assert set(trainer.asked) == {2}


def test_what_was_asked_for_in_want_is_forgotten_where_the_rate_is_less(trainer: Trainer) -> None:
    trainer.tending.fetch()
    for _ in range(5):
        trainer.starve()
        trainer.answered()
        trainer.tending.fetch()
    for _ in range(10):
        trainer.now += 1.0
        trainer.answered()
        trainer.leases.unclaimed = 0
        trainer.tending.fetch()
    assert trainer.asked[-1] == 2


def test_a_pause_of_all_is_no_want(trainer: Trainer) -> None:
    trainer.tending.fetch()
    trainer.starve()
    trainer.answered()
    trainer.tending.fetch(pauses=True)
    assert trainer.asked == [2]
    trainer.leases.unclaimed = 0
    trainer.tending.fetch(pauses=True)
    assert trainer.asked == [2, 2]
