"""Workers of virtual time that come and go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from leashed.base import checks

__all__ = ["Failing", "Member", "members_of"]

Member = tuple[float, int, str]  # when, who, and which of these
KINDS = ("leave", "crash", "join")


@dataclass(frozen=True)
class Failing:
    """Crashes by chance, of every worker by itself, in seconds, exponentially distributed.

    Args:
        mean_between: for how long a worker is there before it crashes.
        mean_down: and then away, before it joins again.
    """

    mean_between: float
    mean_down: float

    def __post_init__(self) -> None:
        checks.real("mean_between", checks.seconds("mean_between", self.mean_between), 0.0)
        checks.seconds("mean_down", self.mean_down)


def members_of(changes: Iterable[Member], workers: int) -> tuple[Member, ...]:
    """The changes in their order of time.

    Raises:
        TypeError, ValueError: one is not such a change, or of somebody who cannot make it then, or
            they leave nobody.
    """
    given = [_member(one, workers) for one in changes]
    given.sort(key=lambda one: one[0])
    there: dict[int, bool] = {}
    last: dict[int, int] = {}
    for seconds, worker, kind in given:
        ns = round(1e9 * seconds)
        if last.get(worker) == ns and kind != "join":
            raise ValueError(
                f"changes must be at moments of their own: worker {worker} cannot join and {kind} at "
                f"{seconds:g} s"
            )
        last[worker] = ns
        if there.get(worker, kind != "join") == (kind == "join"):
            state = "there already" if kind == "join" else "not there"
            raise ValueError(
                f"changes must fit each other: worker {worker} is {state} when it is to {kind} at "
                f"{seconds:g} s"
            )
        there[worker] = kind == "join"
    if len(there) == workers and not any(there.values()):
        raise ValueError(
            f"changes must leave somebody who goes on; after {given[-1][0]:g} s nobody is there"
        )
    return tuple(given)


def _member(change: Member, workers: int) -> Member:
    if not isinstance(change, tuple) or len(change) != 3:
        raise TypeError(f'changes must be such as (10.0, 3, "leave"), got {change!r}')
    seconds, worker, kind = change
    if kind not in KINDS:
        raise ValueError(f"changes must say {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {kind!r}")
    number = checks.whole("changes: a worker's number", worker, 0, workers - 1)
    return checks.seconds("changes: seconds", seconds), number, kind
