"""When a training run ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from leashed.base import checks

__all__ = ["Until", "until"]

_MOST_EPOCHS = 1e6


@dataclass(frozen=True)
class Until:
    """Stop rules, of which the first to hold ends the run; at least one must be given.

    Losses are those of the whole training set, evaluated from a snapshot while training runs.

    Args:
        loss_fraction: ε-convergence: the loss is at most this share of the initial loss (0 to 1).
            Of several, the smallest ends the run; when each was reached is found as exactly.
        loss: the loss is at most this.
        updates: exactly so many updates are published (with ``Synchronous``: steps).
        epochs: so many passes over the training set are drawn, rounded up to whole batches (with
            ``Synchronous``: to whole steps); fractions allowed.
        seconds: so much time has passed since the threads started.
        divergence: the loss is at least this many times the initial loss (greater than 1).

    Raises:
        TypeError: a rule is not a number.
        ValueError: a rule is out of its range, or none is given.
    """

    loss_fraction: float | Sequence[float] | None = None
    loss: float | None = None
    updates: int | None = None
    epochs: float | None = None
    seconds: float | None = None
    divergence: float | None = None

    def __post_init__(self) -> None:
        if all(getattr(self, f.name) is None for f in fields(self)):
            names = ", ".join(f.name for f in fields(self))
            raise ValueError(f"until needs at least one stop rule: {names}")
        if self.loss_fraction is not None:
            given = self.loss_fraction
            several = list(given) if isinstance(given, (list, tuple, np.ndarray)) else [given]
            if not several:
                raise ValueError("loss_fraction must hold at least one share of the initial loss")
            for share in several:
                if checks.real("loss_fraction", share, 0.0) >= 1.0:
                    raise ValueError(
                        "loss_fraction must be less than 1 (a share of the initial loss), "
                        f"got {share}"
                    )
            shares = sorted({float(share) for share in several}, reverse=True)  # type: ignore[arg-type]
            object.__setattr__(
                self, "loss_fraction", tuple(shares) if len(shares) > 1 else shares[0]
            )
        if self.loss is not None:
            checks.real("loss", self.loss)
        if self.updates is not None:
            checks.whole("updates", self.updates, maximum=2**53)
        if self.epochs is not None and checks.real("epochs", self.epochs, 0.0) > _MOST_EPOCHS:
            raise ValueError(f"epochs must be at most {_MOST_EPOCHS:g}, got {self.epochs:g}")
        if self.seconds is not None:
            checks.real("seconds", self.seconds, 0.0)
        if self.divergence is not None:
            checks.real("divergence", self.divergence, 1.0)

    @property
    def loss_fractions(self) -> tuple[float, ...]:
        """The shares of the initial loss asked for, largest first."""
        given = self.loss_fraction
        if given is None:
            return ()
        return tuple(given) if isinstance(given, Sequence) else (given,)

    @property
    def milestones(self) -> list[float]:
        """Those of them that do not end the run."""
        return [float(share) for share in self.loss_fractions[:-1]]

    def rules(self, examples: int, batch_size: int) -> dict[str, float]:
        """The rules that are given, with epochs turned into batches."""
        rules = {
            f.name: float(getattr(self, f.name))
            for f in fields(self)
            if getattr(self, f.name) is not None and f.name not in {"epochs", "loss_fraction"}
        }
        if self.loss_fractions:
            rules["loss_fraction"] = float(self.loss_fractions[-1])
        if self.epochs is not None:
            rules["batches"] = float(max(1, batches_in(self.epochs, examples, batch_size)))
        return rules


def batches_in(epochs: float, examples: int, batch_size: int) -> int:
    """How many batches so many passes over so many examples are, rounded up."""
    return math.ceil(epochs * examples / batch_size)


until = Until
