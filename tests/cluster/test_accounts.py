"""Of which account of a run the parameters in a trainer's file are: what counts as used is in them."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from cluster import inside

import leashed as lsh
from leashed.cluster import account_tending
from leashed.cluster.account_tending import AccountTending
from leashed.cluster.member import Member
from leashed.cluster.messages import Account, Epoch, Seat
from leashed.cluster.session import Session
from leashed.files import resuming
from leashed.sync import Position, When

TOTAL, FEW = 200, 5  # batches


def test_no_batch_counts_as_used_that_came_after_the_parameters_were_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = itertools.count()
    used = [0]
    written = []

    def gradient(_: Any, __: Any, ___: Any, out: Any) -> float:
        used[0] = next(calls)  # all before this one
        out[:] = 1
        time.sleep(0.001)
        return 1.0

    def told() -> Position:
        enough = min(used[0] + FEW, TOTAL - 1)
        while used[0] < enough:  # it trains on meanwhile
            time.sleep(0.001)
        return Position(used[0])

    def put(_: resuming.Checkpointer, reached: resuming.Reached) -> None:
        assert reached.run is not None
        written.append((reached.run.batches, reached.training.updates))

    monkeypatch.setattr(Session, "follow", lambda _: told)
    monkeypatch.setattr(resuming.Checkpointer, "_put", put)
    with inside.run(tmp_path, 1, total=TOTAL, batch_size=1) as run:
        lsh.train(
            lsh.models.external(
                gradient, loss=lambda *_: 1.0, dimension=1, features=1, y="float32"
            ),
            (np.ones((TOTAL, 1)), np.zeros(TOTAL)),
            until=lsh.until(epochs=1),
            batch_size=1,
            threads=1,
            checkpoint=lsh.Checkpoint(tmp_path / "kept", every=1e-3),
            cluster=run.cluster(),
        )
    assert len(written) > 2
    assert all(claimed <= updates for claimed, updates in written)


def seats(*ids: int) -> list[Seat]:
    return [Seat(i, i, "", False) for i in ids]


ROUND, NEWEST, ALL = Account(10, []), Account(20, []), 100


@pytest.mark.parametrize(
    ("epochs", "ring", "end", "expected"),
    [
        # (epochs of which it hears, the ring that it is in, whether all batches are used)
        ([seats(1)], {"settled": 1}, False, NEWEST.next),
        ([seats(1, 2)], {"settled": 1}, False, ROUND.next),
        # It is to go on alone, and has yet to have the round in which the other leaves.
        ([seats(1, 2), seats(1)], {"settled": 1}, False, ROUND.next),
        ([seats(1, 2), seats(1)], {"settled": 2}, False, NEWEST.next),
        # It has left: the other trains on.
        ([seats(1, 2), seats(2)], {"settled": 1, "ended": 1, "left": True}, False, ROUND.next),
        ([seats(1), []], {"settled": 1, "ended": 1, "left": True}, False, NEWEST.next),
        # All is used, but maybe not here until the last round.
        ([seats(1, 2)], {"settled": 1}, True, ROUND.next),
        ([seats(1, 2)], {"settled": 1, "ended": 1, "broken": 1, "left": True}, True, ROUND.next),
        ([seats(1, 2), []], {"settled": 1, "ended": 1, "left": True}, True, ALL),
        ([seats(1)], {"settled": 1}, True, ALL),
    ],
)
def test_others_batches_count_once_a_round_has_brought_them(
    epochs: list[list[Seat]], ring: dict[str, Any], end: bool, expected: int
) -> None:
    native = SimpleNamespace(**{"ended": 0, "broken": 0, "left": False, **ring})
    member = SimpleNamespace(id=1, account=NEWEST, welcome=SimpleNamespace(run="it"))
    it = AccountTending(
        cast("Member", member), Position(ROUND.next), None,
        total=ALL, sums=True, parts=1, when=When("background"), workers=1, timeout=1.0,
    )  # fmt: skip
    for number, members in enumerate(epochs, 1):
        member.epoch = Epoch(number, members)
        position = it.position(native, end)
    assert (position.batches, position.run) == (expected, "it")


def test_without_a_round_what_is_kept_of_accounts_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(account_tending.time, "monotonic", lambda: now[0])
    progress = account_tending.Progress(None)
    for heard in range(10_000):
        now[0] += 0.1
        progress(heard, Account(heard, []), {"syncs": 0, "seconds": 0.0})
    assert len(progress._heard) <= 256
    assert progress._heard[0][1] == Account(0, [])
    assert progress(9999, None, {"syncs": 1, "seconds": 5.0})  # it began with that of then
    assert progress.account == Account(9999 - 50 - 1, [])


@pytest.mark.parametrize("parts", [1, 3])
def test_in_parts_an_account_is_in_all_of_them_after_as_many_rounds(
    parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(account_tending.time, "monotonic", lambda: now[0])
    progress = account_tending.Progress(None, parts=parts)
    rounds = 0
    for heard in range(10):
        progress(heard, Account(heard, []), {"syncs": rounds, "seconds": 0.1 * rounds})
        now[0] += 10
        rounds += 1
        assert progress(heard, None, {"syncs": rounds, "seconds": 0.1 * rounds})
        first = heard - (parts - 1)  # by the round of the first part
        assert progress.account == (Account(first, []) if first >= 0 else None)
    progress.begins_anew()  # with the first part
    for _ in range(parts):
        assert progress.account == Account(9 - (parts - 1), [])
        now[0] += 10
        rounds += 1
        progress(9, None, {"syncs": rounds, "seconds": 0.1 * rounds})
    assert progress.account == Account(9, [])
