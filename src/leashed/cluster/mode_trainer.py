"""The core's part of a trainer whose mode a policy server leads."""

from __future__ import annotations

from leashed import _core
from leashed.cluster.lives import SLOTS, life
from leashed.training.led_mode import LedMode, numbered

__all__ = ["mode_trainer"]


def mode_trainer(
    led: LedMode,
    run: str,
    trainer: int,
    member: int,
    workers: int,
    at_once: int,
    patience: float,
) -> _core.ModeTrainer:
    """That of a trainer, by its index, of so many worker threads; it has no connections yet.

    Args:
        led: the mode.
        run: the run's name.
        trainer, member: whose; each process is another member of its run, with a larger number.
        workers: how many.
        at_once: how many of them compute at once.
        patience: seconds for which the policy server is waited for.
    """
    return _core.ModeTrainer(
        dimension=len(led.theta),
        lanes=workers,
        at_once=at_once,
        run=numbered(run),
        terms=led.terms,
        client=trainer * SLOTS,
        life=life(member),
        patience=patience,
        mode=led.mode[0],
        shards=[list(shard) for shard in led.shards],
        tables=list(led.tables),
        placement=led.placement,
        reduces=led.reduces,
    )
