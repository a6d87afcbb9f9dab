"""What waits for the disk, and in which order."""

from __future__ import annotations

import random

from leashed.cluster.messages import Beat, Bye, Done
from leashed.cluster.outbox import Outbox
from leashed.cluster.state import Settled
from leashed.cluster.switchboard import Close, Output, Send

BEAT = Send(1, Beat())
BYE = Send(1, Bye("over"))


def test_without_a_change_before_it_nothing_waits() -> None:
    outbox = Outbox()
    assert outbox.put(Output([], [BYE, BEAT, Close(1)])) == [BYE, BEAT, Close(1)]
    assert outbox.group() == []


def test_beats_alone_go_out_while_the_disk_is_busy() -> None:
    outbox = Outbox()
    assert outbox.put(Output([Settled(1, 1)], [BEAT, BYE])) == [BEAT]
    assert outbox.group() == [Settled(1, 1)]
    assert outbox.put(Output([], [BEAT, Close(1)])) == [BEAT]  # which does not tell of the change
    assert outbox.put(Output([Settled(2, 1)], [])) == []
    assert outbox.put(Output([Settled(3, 1)], [BYE])) == []
    assert outbox.written() == [BYE]
    assert outbox.group() == [Settled(2, 1), Settled(3, 1)]  # together
    assert outbox.written() == [Close(1), BYE]
    assert outbox.put(Output([], [BYE])) == [BYE]


def test_all_goes_out_once_in_order_and_behind_its_changes() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        outbox = Outbox()
        decided = disk = 0
        needs: list[tuple[int, int]] = []  # number of the message, changes before it
        out: list[int] = []
        group = 0

        def carried_out(
            actions: list[Send | Close], out: list[int] = out, needs: list[tuple[int, int]] = needs
        ) -> None:
            for action in actions:
                assert isinstance(action, Send)
                assert isinstance(action.message, Done)
                (number,) = action.message.tickets
                assert needs[number][1] <= disk  # noqa: B023
                out.append(number)

        for _ in range(rng.randrange(1, 30)):
            count = rng.choice([0, 0, 1, 2])
            changes = [Settled(1, decided + k) for k in range(count)]
            decided += count
            actions: list[Send | Close] = []
            for _ in range(rng.randrange(3)):
                actions.append(Send(rng.randrange(3), Done([len(needs)])))
                needs.append((len(needs), decided))
            carried_out(outbox.put(Output(list(changes), actions)))
            if group and rng.random() < 0.3:
                disk, group = disk + group, 0
                carried_out(outbox.written())
            if not group:
                group = len(outbox.group())
        while group:
            disk, group = disk + group, 0
            carried_out(outbox.written())
            group = len(outbox.group())
        assert disk == decided
        assert out == list(range(len(needs)))
