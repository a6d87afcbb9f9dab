"""The best state of a run: judged after each pass over the data on the validation set, kept, and in the
end given in place of the last one.

A state is of one moment, while no worker makes a step: parameters, the rule's states, running
statistics, in memory; rows of tables in the folder of the run's checkpoint, or in one of its own where
the system has temporary files, which goes with the run however that ends; where that was killed, when
the next one begins that makes such a folder.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leashed import _core
from leashed.base import leftovers
from leashed.base.table import number
from leashed.datasets.moments import Moments
from leashed.files import folders, resuming
from leashed.models._running import Running, averaged
from leashed.models.tables import Table
from leashed.stopping import Until, metrics_of

__all__ = ["Best", "Keeper", "check"]


_MOST_STILL = 1000  # passes without an update, from which on each counts


@dataclass(frozen=True)
class Best:
    """The evaluation whose state is what came of a run.

    Attributes:
        metric: by which states were compared, on the validation set.
        value: what it was.
        passes: whole ones over the data, of this run, before it; 0: the first had not ended.
        updates: published by then.
        seconds: since training began.
    """

    metric: str
    value: float
    passes: int
    updates: int
    seconds: float

    def __str__(self) -> str:
        after = f"after pass {self.passes}" if self.passes else "before the first pass has ended"
        return f"{self.metric.replace('_', ' ')} {number(self.value)} {after}"


def check(until: Until, model: Any, heads: Sequence[str], validates: bool) -> None:
    """ValueError where it cannot be judged."""
    if until.patience is None:
        return
    if not validates:
        raise ValueError(
            "until.patience judges by validation, which is not given; give validation=, a set like data "
            "that is not trained on"
        )
    known = metrics_of(model, heads)
    if until.metric not in known:
        raise ValueError(
            f"metric {until.metric} is none of {model.name}'s, which are {', '.join(known)}; give one of "
            "these"
        )


@contextmanager
def _temporary() -> Iterator[Path]:
    within = leftovers.make()
    try:
        yield within / "best"
    finally:
        shutil.rmtree(within / "best", ignore_errors=True)
        leftovers.leave(within)


class Keeper:
    """Judges a run's evaluations, and keeps the best state.

    Args:
        until: with patience.
        model: what is trained.
        told: what a result says was asked for.
        tables: that the model reads, by name.
        writer: what takes checkpoints; it is given the best state whenever there is a better one. None:
            there are none.
        stack: what is left in the end.
        at: what numbers of a stream come to when so many batches have been used; None: there is none.
        heads: the names of the model's labels, where these are several.

    Attributes:
        best: None before the first evaluation.
        moments: what ``at`` tells of its state.
    """

    def __init__(
        self,
        until: Until,
        model: Any,
        told: dict[str, Any],
        tables: Mapping[str, Table],
        writer: resuming.Checkpointer | resuming.Kept | None,
        stack: ExitStack,
        at: Callable[[int], Moments | None] | None,
        heads: Sequence[str] = (),
    ) -> None:
        assert until.metric is not None
        self._name, self._metric = until.metric, metrics_of(model, heads)[until.metric]
        self._patience = until.patience
        self._tables = tables
        if self._tables and writer is None:
            folder = stack.enter_context(_temporary())
            writer = stack.enter_context(
                resuming.Checkpointer(folder, model, told, tables, paused=True)
            )
        self._writer = writer
        self._passes = 0
        self._worse = 0  # passes since the best
        self._candidate: Best | None = None
        self._kept: _core.Resumption | None = None
        self._is_last = False  # of those that were judged
        self._at = at
        self._judged = -1  # the updates of the state that was judged last
        self._still = 0  # passes that have left it as it is
        self.best: Best | None = None
        self.moments: Moments | None = None

    def judge(self, now: Mapping[str, Any], passed: bool) -> tuple[bool, bool]:
        """Whether a state is the best so far, and whether there have been enough that were not.

        Args:
            now: an evaluation.
            passed: whether a pass has just ended.
        """
        value = self._metric.value(now)
        if self.best is None and math.isnan(value):
            raise ValueError(
                f"metric {self._name} of validation is no number, as where all its labels are alike; "
                "give another set, or another metric"
            )
        self._passes += passed
        moved = self._judged != now["updates"]
        self._judged = now["updates"]
        self._still = 0 if moved else self._still + 1
        self._is_last = self.best is None or self._metric.better(value, self.best.value)
        if self._is_last:
            self._candidate = Best(self._name, value, self._passes, now["updates"], now["seconds"])
            return True, False
        # Several passes may end within one update, which leads to one state; but one has to come.
        self._worse += moved or self._still > _MOST_STILL
        return False, self._patience is not None and self._worse >= self._patience

    def keep(self, reached: _core.Resumption) -> None:
        """This state, which has just been judged. OSError where rows cannot be written."""
        if self._writer is not None:
            self._writer(reached)
        if isinstance(self._writer, resuming.Checkpointer) and self._tables:
            self._writer.require(reached.updates)
        self.moments = None if self._at is None else self._at(reached.batches)
        self._kept, self.best, self._worse = reached, self._candidate, 0

    def restore(self, outcome: dict[str, Any]) -> Running | None:
        """Makes the best state what came of a run; its running statistics. Nobody uses the tables."""
        assert self._kept is not None
        ended_so = self._is_last and self._kept.updates == outcome["updates"]
        if self._tables and not ended_so:
            assert isinstance(self._writer, resuming.Checkpointer)
            folders.opened(self._writer.path).load(self._tables)
        outcome["parameters"] = self._kept.vectors[0].copy()
        return averaged(self._kept.running)
