"""Who is dead, and who is in the ring."""

from __future__ import annotations

from leashed.cluster.membership import Membership
from leashed.cluster.messages import Servers


def membership(trainers: int = 2) -> Membership:
    return Membership(trainers, timeout=5.0, grace=10.0, gather=0.2)


def trainers(epoch_of: Membership) -> list[tuple[int, bool]]:
    return [(seat.id, seat.fresh) for seat in epoch_of.epoch.members]


def test_the_first_epoch_waits_for_all_that_are_expected() -> None:
    group = membership(2)
    assert not group.epoch_due(100.0)
    group.join("trainer", 1, "b", 100.0)
    group.join("sync-ps", 0, "s", 100.0)
    assert not group.epoch_due(109.9)
    group.join("trainer", 0, "a", 109.9)
    assert group.epoch_due(109.9)
    group.next_epoch(broken=False)
    assert trainers(group) == [(3, True), (1, True)]
    assert not group.epoch_due(200.0)


def test_or_for_the_grace_to_pass() -> None:
    group = membership(3)
    group.join("trainer", 1, "b", 100.0)
    assert not group.epoch_due(109.9)
    assert group.epoch_due(110.0)


def test_changes_are_gathered() -> None:
    group = membership(1)
    group.join("trainer", 0, "a", 0.0)
    group.next_epoch(broken=False)
    group.join("trainer", 1, "b", 1.0)
    group.join("trainer", 2, "c", 1.1)
    assert not group.epoch_due(1.15)
    assert group.epoch_due(1.25)
    assert group.next_epoch(broken=False).number == 2


def test_fresh_is_who_has_not_trained_yet_not_who_was_in_no_epoch() -> None:
    group = membership(1)
    group.join("trainer", 0, "a", 0.0).settled = 1
    group.next_epoch(broken=False)
    group.join("trainer", 1, "b", 1.0)
    group.next_epoch(broken=False)
    assert trainers(group) == [(1, False), (2, True)]
    group.broke(2, 2.0)  # before the second had anything
    group.next_epoch(broken=group.failed)
    assert trainers(group) == [(1, False), (2, True)]
    assert group.broken == 1
    group.broke(2, 3.0)  # an old one
    assert not group.epoch_due(9.0)


def test_who_has_left_is_in_no_epoch_and_its_end_makes_none() -> None:
    group = membership(2)
    for index in range(2):
        group.join("trainer", index, "a", 0.0)
    group.next_epoch(broken=False)
    group.leave(1, 1.0)
    assert group.epoch_due(1.25)
    group.next_epoch(broken=False)
    assert trainers(group) == [(2, True)]
    group.remove(1, "finished", 2.0, finished=True)
    assert not group.epoch_due(9.0)
    group.remove(2, "its connection closed", 3.0, finished=False)
    assert not group.epoch_due(9.0)  # of nobody


def test_silence_is_death() -> None:
    group = membership()
    for index in range(2):
        group.join("trainer", index, "a", 0.0)
    for now in (1.0, 2.0, 3.0, 4.0, 5.0):
        group.passed(now)
        group.members[2].heard = now
        assert group.silent(now) == []
    assert [m.id for m in group.silent(5.1)] == [1]


def test_a_master_that_was_stopped_blames_nobody() -> None:
    group = membership()
    group.join("trainer", 0, "a", 0.0)
    for now, dead in ((2.0, []), (100.0, []), (102.4, []), (104.0, [1])):  # away from 2 to 100
        group.passed(now)
        assert [m.id for m in group.silent(now)] == dead


def test_and_who_has_given_it_up_may_come_back() -> None:
    group = membership()
    group.join("trainer", 0, "a", 0.0)
    group.passed(2.0)
    assert not group.cut_off(1, 2.0)
    group.passed(100.0)
    assert group.cut_off(1, 101.0)
    for now in range(102, 112, 2):
        group.passed(float(now))
        assert group.silent(float(now)) == []
    assert [m.id for m in group.silent(111.5)] == [1]
    assert not group.cut_off(1, 111.5)


def test_after_a_restart_members_have_the_grace() -> None:
    group = membership()
    group.join("trainer", 0, "a", 0.0)
    group.restarted(50.0)
    assert not group.members[1].connected
    for now in range(50, 61, 2):
        assert group.silent(float(now)) == []
    assert [m.id for m in group.silent(60.1)] == [1]


def test_a_restarted_server_is_news() -> None:
    group = membership()
    group.join("sync-ps", 1, "b:1", 0.0)
    group.join("sync-ps", 0, "a:1", 0.0)
    assert group.servers() == Servers(
        2, {"sync-ps": {0: "a:1", 1: "b:1"}, "embedding-ps": {}, "policy-ps": {}, "reader": {}}
    )
    group.remove(1, "its connection closed", 1.0, finished=False)
    assert group.servers() == Servers(
        3, {"sync-ps": {0: "a:1"}, "embedding-ps": {}, "policy-ps": {}, "reader": {}}
    )
    group.join("sync-ps", 1, "b:2", 2.0)
    assert group.servers() == Servers(
        4, {"sync-ps": {0: "a:1", 1: "b:2"}, "embedding-ps": {}, "policy-ps": {}, "reader": {}}
    )
    assert group.changed is None  # rings have nothing to do with it
