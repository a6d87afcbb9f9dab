"""Several policy servers of which each decides by itself: what waits at one of them need not wait at another. For
who goes on on other servers than there were, what all of them have is kept, and the mode's state is the
first's; what is let go by that is counted, in examples. On the same servers each goes on with its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed.cluster import led_held
from leashed.cluster.led_part import Part

__all__ = ["LetGo", "shared"]

# What the core's archive has of a slot for a gradient that waits, before what it has of rows: so many words, of
# which one is of how many examples it is, one its ticket (0: the slot is free), and one whether it was lost on
# the way, and counts as missing.
_SLOT, _EXAMPLES, _TICKET, _LOST = 6, 2, 3, 5


class LetGo(NamedTuple):
    """What a run does that goes on on other servers.

    Attributes:
        examples: of gradients that waited at some servers and not at all, of which nobody makes an update.
        again: of batches that are to be trained of which some servers have made updates before.
    """

    examples: int
    again: int


def shared(parts: Sequence[Part]) -> tuple[list[Part], LetGo]:
    """The parts with those gradients alone that wait at all servers, in the order of the first, at which the
    others are lost on the way; and what that comes to.

    Args:
        parts: of all servers, the first before.

    Raises:
        ValueError: one is damaged.
    """
    common = set.intersection(*(set(_waiting(part)) for part in parts))
    order = [number for number in parts[0].held.tolist() if number in common]
    own = len(parts[0].mode) - len(_waiting(parts[0]))
    found = [_with(part, order, own) for part in parts]
    slots = _slots(found[0])
    slots[(slots[:, _TICKET] > 0) & ~np.isin(parts[0].held, order), _LOST] = 1
    return found, _let_go(parts, common)


def _waiting(part: Part) -> list[int]:
    """One more than the numbers of batches whose gradients wait there whole, by slot."""
    return [number for number in part.held.tolist() if number > 0]


def _slots(part: Part) -> NDArray[np.uint64]:
    """The words of what waits, [slots, words], in place."""
    begin = part.rows[0]
    if begin < _SLOT * len(part.held):
        raise ValueError("what the checkpoint has of waiting gradients is damaged; use another one")
    return part.words[begin - _SLOT * len(part.held) : begin].reshape(-1, _SLOT)


def _with(part: Part, order: Sequence[int], own: int) -> Part:
    """The part with these gradients, in that order, and so many vectors of workers' own models."""
    waiting = _waiting(part)
    at = [waiting.index(number) for number in order]
    begin, end = part.rows
    rows = led_held.words_of([])
    if part.strides:
        pushes = list(led_held.slots(part.words[begin:end], part.strides))
        if len(pushes) != len(waiting):
            raise ValueError("what the checkpoint has of rows is damaged; use another one")
        rows = led_held.words_of([pushes[i] for i in at])
    # (They begin anew: a server to which one more worker has come has more of them.)
    models = np.zeros((own, part.mode.shape[1]), np.float32)
    those = part.mode[len(waiting) :][:own]
    models[: len(those)] = those
    return part._replace(
        words=np.concatenate([part.words[:begin], rows, part.words[end:]]),
        mode=np.concatenate([part.mode[at], models]),
        rows=(begin, begin + len(rows)),
    )


def _let_go(parts: Sequence[Part], common: set[int]) -> LetGo:
    unfinished = {int(number) + 1: int(count) for number, count in parts[0].unfinished}
    apart = {
        number: int(count)
        for part in parts
        for number, count in zip(part.held.tolist(), _slots(part)[:, _EXAMPLES], strict=True)
        if number > 0 and number not in common and number not in unfinished
    }
    again = sum(
        count
        for number, count in unfinished.items()
        if any(_had(part, number - 1) and number not in part.held for part in parts[1:])
    )
    return LetGo(sum(apart.values()), again)


def _had(part: Part, number: int) -> bool:
    """Whether the server behind the first has had that batch."""
    first, last = part.had[:, 0], part.had[:, 1]
    return bool(((first <= number) & (number <= last)).any())
