"""The core's part of a trainer whose mode a policy server leads."""

from __future__ import annotations

import secrets

from leashed import _core
from leashed.training.led_mode import LedMode, numbered

__all__ = ["SLOTS", "mode_trainer"]

_RANDOM = 24  # bits of a life that are so
SLOTS = 1 << 16
"""Of a trainer, at most: numbers of its lanes."""


def mode_trainer(
    led: LedMode, run: str, trainer: int, member: int, workers: int, patience: float
) -> _core.ModeTrainer:
    """That of a trainer, by its index, of so many worker threads; it has no connections yet.

    Args:
        led: the mode.
        run: the run's name.
        trainer, member: whose; each process is another member of its run, with a larger number.
        workers: how many.
        patience: seconds for which the policy server is waited for.
    """
    return _core.ModeTrainer(
        dimension=len(led.theta),
        lanes=workers,
        run=numbered(run),
        terms=led.terms,
        client=trainer * SLOTS,
        life=member << _RANDOM | secrets.randbits(_RANDOM),
        patience=patience,
    )
