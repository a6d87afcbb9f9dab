"""What a member makes of what it is told."""

from __future__ import annotations

import pytest

from leashed.cluster.messages import Account, Epoch, Gone, Seat, Welcome
from leashed.cluster.standing import Standing


def welcomed(member: int, *, summing: bool = True) -> Standing:
    standing = Standing("trainer", 0, "here", summing=summing)
    assert standing.hear(welcome(member)) is not None
    return standing


def welcome(member: int, run: str = "run") -> Welcome:
    return Welcome(run, member, 0.5, 5.0)


def epoch(number: int, member: int, *, fresh: bool, restored: int = 0) -> Epoch:
    return Epoch(number, [Seat(member, 0, "here", fresh), Seat(9, 1, "there", False)], restored)


def test_an_old_welcome_that_comes_late_is_not_news() -> None:
    standing = welcomed(3)
    standing.hear(Gone("silent for 5 s"))
    assert standing.hear(welcome(5)) is not None
    standing.hear(epoch(1, 5, fresh=False))
    assert standing.hear(welcome(3)) is None
    assert standing.welcome is not None
    assert standing.welcome.id == 5
    assert standing.epoch is not None
    assert standing.hear(welcome(1, "another")) is not None


@pytest.mark.parametrize(
    ("fresh", "summing", "restored", "forgets"),
    [
        (True, True, 0, True),
        (False, True, 0, False),
        (True, False, 0, False),
        (False, False, 1, True),
    ],
)
def test_of_whose_parameters_an_account_is(
    fresh: bool, summing: bool, restored: int, forgets: bool
) -> None:
    """Who takes what another has believes a master that knows of less than the one before."""
    standing = welcomed(3, summing=summing)
    much, little = Account(17, [(1, 16)]), Account(17, [(0, 17)], restored)
    standing.hear(much)
    standing.hear(epoch(1, 3, fresh=fresh, restored=restored))
    assert standing.account == (None if forgets else much)
    standing.hear(little)
    assert standing.account == (little if forgets else much)
