"""Step sizes by scikit-learn's names: ``learning_rate``, ``eta0`` and ``power_t`` as schedules."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from leashed import schedules
from leashed.base import checks
from leashed.schedules import Schedule

__all__ = ["ETA0", "NAMES", "of_epochs", "rates"]

NAMES = ("constant", "optimal", "invscaling", "adaptive")
ETA0 = 0.01  # where none is given
_LEAST = 1e-6  # which "adaptive" does not divide any more


def rates(
    name: str, eta0: float | None, power_t: float, alpha: float, examples: float
) -> Iterator[float | Schedule]:
    """The step sizes that a fit has one after the other, each until there is no improvement any
    more; more than one with ``"adaptive"``.

    Args:
        name: of ``NAMES``.
        eta0: η₀; None: 0.01.
        power_t: the exponent of ``"invscaling"``.
        alpha: α, which ``"optimal"`` goes by.
        examples: per update; scikit-learn's t counts examples.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """
    if name not in NAMES:
        listed = ", ".join(f"{known!r}" for known in NAMES[:-1])
        raise ValueError(f"learning_rate must be {listed} or {NAMES[-1]!r}, got {name!r}")
    if name == "optimal":
        if eta0 is not None:
            raise ValueError(
                "eta0 is none of learning_rate='optimal', which goes by alpha; leave it out"
            )
        if not alpha > 0:
            raise ValueError("alpha must be greater than 0 with learning_rate='optimal'")
        first = math.sqrt(1.0 / math.sqrt(alpha))
        return iter([schedules.inverse(first, power=1.0, steps=1.0 / (first * alpha * examples))])
    first = ETA0 if eta0 is None else checks.real("eta0", eta0, 0.0)
    if name == "invscaling":
        power = checks.real("power_t", power_t, 0.0, allow=True)
        return iter([schedules.inverse(first, power=power, steps=1.0 / examples)])
    return iter([first]) if name == "constant" else _falling(first)


def of_epochs(
    name: str, first: float, power_t: float, examples: int, begun: int
) -> Iterator[float]:
    """The step sizes of a perceptron: with ``"invscaling"`` each for an epoch, of which t, the
    examples before it, is ``begun`` and grows by ``examples``; else each until there is no
    improvement any more.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """
    if name == "adaptive":
        return _falling(first)
    if name == "constant":
        return iter([first])
    if name != "invscaling":
        raise ValueError(
            f"learning_rate must be 'constant', 'invscaling' or 'adaptive', got {name!r}"
        )
    power = checks.real("power_t", power_t, 0.0, allow=True)
    return (first * (1 + begun + k * examples) ** -power for k in itertools.count())


def _falling(eta: Any) -> Iterator[float]:
    yield eta
    while eta > _LEAST:
        eta /= 5.0
        yield eta
