"""Every batch is granted, used, and complete exactly once."""

from __future__ import annotations

import copy

import pytest
from cluster.fake import check_ledger
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from leashed.cluster.ledger import Ledger
from leashed.cluster.messages import Account


def test_leases_follow_each_other_and_add_up() -> None:
    ledger = Ledger(10)
    first, second = ledger.grant(1, 4, 1), ledger.grant(2, 99, 1)
    assert first is not None
    assert second is not None
    assert (first.first, first.count, second.first, second.count) == (0, 4, 4, 6)
    assert ledger.grant(3, 1, 1) is None
    assert (ledger.complete, ledger.outstanding, ledger.free) == (0, 10, 0)
    assert not ledger.use(1, first.ticket, 3)
    assert not ledger.use(1, first.ticket, 2)  # of before
    assert (ledger.complete, ledger.outstanding) == (3, 7)
    assert ledger.use(1, first.ticket, 4)
    assert ledger.use(1, first.ticket, 4)  # again
    assert ledger.use(2, second.ticket, 6)
    assert ledger.done
    assert ledger.tickets == 2


def test_what_the_dead_held_goes_first_and_is_counted() -> None:
    ledger = Ledger(None)
    for member in (1, 2, 1):
        ledger.grant(member, 5, 1)
    ledger.use(1, 1, 2)
    ledger.use(1, 3, 1)
    ledger.take_back(1, dead=True)
    assert ledger.back == [(2, 3), (11, 4)]
    assert ledger.again == 7
    assert ledger.free is None
    ledger.take_back(2, dead=False)
    assert ledger.back == [(2, 8), (11, 4)]
    assert ledger.again == 7
    spans = [ledger.grant(3, 6, 1) for _ in range(4)]
    assert [(s.first, s.count) for s in spans if s] == [(2, 6), (8, 2), (11, 4), (15, 6)]


def test_who_leads_all_goes_back_to_what_it_has_kept() -> None:
    ledger = Ledger.after(20, Account(4, []))
    ledger.grant(1, 16, 1)
    ledger.use(1, 1, 9)
    with pytest.raises(ValueError, match="8 batches were never complete"):
        ledger.undo(8)  # it has leases
    ledger.take_back(1, dead=False)
    assert ledger.complete == 13
    ledger.undo(8)
    assert (ledger.complete, ledger.free, ledger.undone) == (8, 12, 5)
    ledger.undo(0)  # the beginning
    assert (ledger.complete, ledger.free, ledger.undone) == (4, 16, 9)
    ledger.undo(20)  # more than was told of
    assert (ledger.complete, ledger.free, ledger.undone) == (20, 0, 9)
    with pytest.raises(ValueError, match="21 batches were never complete, of 20"):
        ledger.undo(21)


def test_late_reports_are_counted_once_and_change_nothing() -> None:
    ledger = Ledger(10)
    ledger.grant(1, 5, 1)
    ledger.take_back(1, dead=True)
    again = ledger.grant(2, 5, 1)
    before = ledger.complete, ledger.outstanding
    for _ in range(2):
        assert ledger.use(1, 1, 5)
        assert ledger.use(1, 2, 5)  # another's
        assert ledger.use(1, 77, 5)  # nobody's
    assert (ledger.complete, ledger.outstanding) == before
    assert ledger.late == 1
    assert again is not None
    assert ledger.use(2, again.ticket, 5)


def test_more_than_there_is_cannot_be_used() -> None:
    ledger = Ledger(10)
    ledger.grant(1, 5, 1)
    before = copy.deepcopy(ledger)
    with pytest.raises(ValueError, match="lease 1 has 5 batches, 6 are said to be used"):
        ledger.use(1, 1, 6)
    assert ledger == before


@pytest.mark.parametrize(
    "apart",
    [[(1, 4, 2)], [(1, 0, 1)], [(1, 3, 1), (1, 3, 1)], [(1, 3, 1), (1, 2, 1)]],
    ids=["too far", "used before", "twice", "descending"],
)
def test_what_cannot_be_used_apart_is_refused(apart: list[tuple[int, int, int]]) -> None:
    ledger = Ledger(10)
    ledger.grant(1, 5, 1)
    ledger.use(1, 1, 1)
    before = copy.deepcopy(ledger)
    with pytest.raises(ValueError, match="lease 1 has 5 batches, 1 of them used, and not"):
        ledger.take_back(1, dead=False, apart=apart)
    assert ledger == before
    ledger.take_back(1, dead=False, apart=[(1, 2, 1), (1, 4, 1), (7, 0, 9)])
    assert (ledger.complete, ledger.back) == (3, [(1, 1), (3, 1)])


def test_a_run_goes_on_with_what_an_account_says_is_not_used() -> None:
    before = Ledger(20)
    for member in (1, 2, 1):
        before.grant(member, 4, 1)
    before.use(1, 1, 3)
    before.use(1, 3, 1)
    before.take_back(2, dead=True)
    account = before.account
    assert (account.next, account.open, account.used) == (12, [(3, 5), (9, 3)], before.complete)
    ledger = Ledger.after(20, account)
    check_ledger(ledger)
    assert (ledger.complete, ledger.resumed, ledger.free, ledger.again) == (4, 4, 16, 0)
    spans = [ledger.grant(1, 9, 1) for _ in range(3)]
    assert [(s.first, s.count) for s in spans if s] == [(3, 5), (9, 3), (12, 8)]
    shorter = Ledger.after(10, account)
    check_ledger(shorter)
    assert (shorter.complete, shorter.back, shorter.next) == (4, [(3, 5), (9, 1)], 10)
    assert Ledger.after(3, account).done
    assert Ledger.after(None, account).account == account
    assert Ledger.after(20, None) == Ledger(20)


class Ledgers(RuleBasedStateMachine):
    """Beside a ledger that keeps the state of every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 60
        self.ledger = Ledger(self.total)
        self.batches = ["free"] * self.total
        self.again = self.lost = 0

    @rule(member=st.integers(1, 4), batches=st.integers(1, 20))
    def grant(self, member: int, batches: int) -> None:
        held = self.ledger.grant(member, batches, 1)
        first_free = self.batches.index("free") if "free" in self.batches else None
        if held is None:
            assert first_free is None
            return
        assert held.first == first_free
        assert 0 < held.count <= batches
        for batch in range(held.first, held.first + held.count):
            assert self.batches[batch] == "free"
            self.batches[batch] = f"held by {member}"

    @rule(member=st.integers(1, 4), ticket=st.integers(1, 12), used=st.integers(0, 8))
    def use(self, member: int, ticket: int, used: int) -> None:
        held = self.ledger.held.get(ticket)
        if held and held.member == member:
            used = min(used, held.count)
            for batch in range(held.first, held.first + used):
                self.batches[batch] = "complete"
        self.ledger.use(member, ticket, used)

    @rule(member=st.integers(1, 4), dead=st.booleans(), used=st.sets(st.integers(0, 59)))
    def take_back(self, member: int, dead: bool, used: set[int]) -> None:
        apart = [] if dead else self.apart(member, used)
        self.ledger.take_back(member, dead=dead, apart=apart)
        for batch, state in enumerate(self.batches):
            if state == f"held by {member}":
                self.batches[batch] = "free"
                self.again += dead

    @rule(used=st.sets(st.integers(0, 59)))
    def restore(self, used: set[int]) -> None:
        """To parameters that may have what is not known to be used any more."""
        for member in range(1, 5):
            self.take_back(member, dead=True, used=set())
        self.lost += sum(
            state == "complete" and batch not in used for batch, state in enumerate(self.batches)
        )
        known = range(self.ledger.next)
        self.ledger.restore(Account(len(known), [(b, 1) for b in known if b not in used]))
        self.batches = [
            "complete" if batch in known and batch in used else "free"
            for batch in range(self.total)
        ]

    def apart(self, member: int, used: set[int]) -> list[tuple[int, int, int]]:
        """Of a member's batches those used, which are complete from here on."""
        found = []
        for held in self.ledger.held.values():
            for batch in range(held.first + held.used, held.first + held.count):
                if held.member == member and batch in used:
                    self.batches[batch] = "complete"
                    found.append((held.ticket, batch - held.first, 1))
        return found

    @invariant()
    def adds_up(self) -> None:
        check_ledger(self.ledger)
        ledger = self.ledger
        assert ledger.complete == self.batches.count("complete")
        assert ledger.free == self.batches.count("free")
        assert ledger.outstanding == self.total - ledger.complete - ledger.free
        assert ledger.again == self.again
        assert ledger.lost == self.lost
        assert ledger.done == (ledger.complete == self.total)


TestLedgers = Ledgers.TestCase
TestLedgers.settings = settings(max_examples=100, stateful_step_count=40)
