"""Update rules: how a gradient changes the parameters."""

from __future__ import annotations

from dataclasses import dataclass

from leashed import _check

__all__ = ["SGD", "Rule"]


@dataclass(frozen=True)
class Rule:
    """Base of the rules below; not one itself."""

    def choice(self) -> tuple[str, dict[str, float]]:
        """The native rule's name and numbers."""
        raise NotImplementedError


@dataclass(frozen=True)
class SGD(Rule):
    """Stochastic gradient descent, θ ← θ − η g (leashed-sgd, eq. 1).

    Args:
        lr: the step size η, greater than 0.

    Raises:
        TypeError: ``lr`` is not a number.
        ValueError: ``lr`` is NaN, infinite, zero or negative.
    """

    lr: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", _check.real("lr", self.lr, 0.0))

    def choice(self) -> tuple[str, dict[str, float]]:
        return "sgd", {"lr": self.lr}
