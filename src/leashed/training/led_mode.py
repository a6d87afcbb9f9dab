"""A mode whose server is another process: what that is made from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.base.choice import Choice, from_json, to_json
from leashed.modes import COMMANDS

__all__ = ["COMMANDS", "LedMode", "numbered"]

_BITS = 64


@dataclass(frozen=True, eq=False)
class LedMode:
    """A mode, for its policy server and for its trainers, who must have it alike.

    Attributes:
        mode: with workers, batch size and examples; for the core, as the next two.
        rule: by which its server makes updates.
        staleness: by which it damps gradients.
        theta: what the parameters begin with, float32 [d].
        block_ends: where their variables end.
        workers: of all trainers together.
        trainers: how many there are.
        batch_size: examples of a batch.
        batches: of the whole run; None: without end.
        commands: when, in seconds, and what the mode is told.
    """

    mode: Choice
    rule: Choice
    staleness: Choice
    theta: NDArray[np.float32]
    block_ends: Sequence[int]
    workers: int
    trainers: int
    batch_size: int
    batches: int | None
    commands: Sequence[tuple[float, int]] = ()

    @property
    def terms(self) -> int:
        """A digest of what server and trainers must have alike, but for the model, which is theirs by
        the run's fingerprint.
        """
        return _core.mode_terms(0, len(self.theta), self.mode, self.rule, self.staleness)

    def is_done(self, standing: Mapping[str, Any]) -> bool:
        """Whether all batches are, as a policy server stands."""
        return self.batches is not None and standing["done"] >= self.batches * self.batch_size

    def server(self, run: int, boot: int) -> _core.PolicyServer:
        """Its policy server.

        Args:
            run: as trainers have it.
            boot: a number that no other server's process ever has.

        Raises:
            ValueError: no server takes what the mode's workers have.
        """
        return _core.PolicyServer(
            theta=self.theta,
            block_ends=list(self.block_ends),
            mode=self.mode,
            rule=self.rule,
            staleness=self.staleness,
            workers=self.workers,
            run=run,
            terms=self.terms,
            boot=boot,
        )

    def to_json(self) -> dict[str, Any]:
        """All but what the parameters begin with, as JSON's own types."""
        return {
            "mode": to_json(self.mode),
            "rule": to_json(self.rule),
            "staleness": to_json(self.staleness),
            "block_ends": list(self.block_ends),
            "workers": self.workers,
            "trainers": self.trainers,
            "batch_size": self.batch_size,
            "batches": self.batches,
            "commands": [list(one) for one in self.commands],
        }

    @classmethod
    def of_json(cls, told: Mapping[str, Any], theta: NDArray[np.float32]) -> LedMode:
        """What ``to_json`` was told of, with what the parameters begin with."""
        return cls(
            mode=from_json(told["mode"]),
            rule=from_json(told["rule"]),
            staleness=from_json(told["staleness"]),
            theta=theta,
            block_ends=told["block_ends"],
            workers=told["workers"],
            trainers=told["trainers"],
            batch_size=told["batch_size"],
            batches=told["batches"],
            commands=[(float(seconds), int(argument)) for seconds, argument in told["commands"]],
        )


def numbered(run: str) -> int:
    """The number of a run that has that name, for the core."""
    return int.from_bytes(hashlib.sha256(run.encode()).digest()[: _BITS // 8], "little")
