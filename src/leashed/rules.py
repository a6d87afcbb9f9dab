"""Update rules: how a gradient changes the parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from leashed import _check

__all__ = ["SGD", "Rule"]


@dataclass(frozen=True)
class Rule(ABC):
    """Base of the rules below; not one itself."""

    @abstractmethod
    def choice(self) -> tuple[str, dict[str, float]]:
        """The native rule's name and numbers."""


@dataclass(frozen=True)
class SGD(Rule):
    """Stochastic gradient descent, θ ← θ − η g (leashed-sgd, eq. 1).

    Args:
        lr: the step size η, greater than 0.

    Raises:
        TypeError: ``lr`` is not a number.
        ValueError: ``lr`` is NaN, infinite, zero or negative, or so small or large that
            it is zero or infinite as a float32.
    """

    lr: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", _check.step("lr", self.lr))

    def choice(self) -> tuple[str, dict[str, float]]:
        return "sgd", {"lr": self.lr}
