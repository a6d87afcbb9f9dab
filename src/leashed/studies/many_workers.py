"""What the studies share that train a recommender by thousands of asynchronous workers, in virtual
time: extreme-scale-asgd, Figures 5 and 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from leashed import modes
from leashed.base import checks
from leashed.datasets import ClickDataset
from leashed.models.layers import BatchNorm, DataNorm
from leashed.rules import Adagrad
from leashed.simulation.virtual_time import simulate
from leashed.staleness import Policy
from leashed.stopping import Until
from leashed.studies import recommender
from leashed.studies.stale import TIMES
from leashed.studies.study import GoOn, Record, Study, option, unbroken
from leashed.training.options import Init, Observe
from leashed.training.result import TrainResult

__all__ = ["ManyWorkers"]

_EVALUATIONS = 10
_ACCUMULATED = 0.1


@dataclass(frozen=True)
class ManyWorkers(Study):
    """What to train.

    Args:
        workers: numbers of workers.
        updates: of each worker, in the mean.
        times: of ``stale.TIMES``.
        lr: of Adagrad, whose sums begin at 0.1 as TensorFlow's do: from 0 they would undo any damping
            that hardly varies.
        batch_size: clicks of a gradient.
        rows: clicks to train on.
        repeats: runs of each setting, of seeds ``seed``, ``seed + 1`` and so on.
        seed: of the first.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    SIDE_BY_SIDE: ClassVar[bool] = True
    VARIED: ClassVar[str]
    """What is varied beside the workers, by its name in settings."""

    workers: tuple[int, ...] = option((1000, 3000), "numbers of them", checks.whole)
    updates: int = option(30, "of each worker", checks.whole, full=150, command=False)
    times: str = option("normal", "of gradients", choices=TIMES)
    lr: float = option(0.01, "of Adagrad", partial(checks.real, above=0.0))
    batch_size: int = 8
    rows: int = option(100_000, "clicks to train on", checks.whole, full=500_000, command=False)
    repeats: int = option(3, "seeds of each", checks.whole)
    seed: int = option(0, "the first", partial(checks.whole, minimum=0))

    @cached_property
    def days(self) -> list[ClickDataset]:
        """Clicks to train on, and another day's."""
        return recommender.days(self.rows, 2, self.seed)

    @cached_property
    def seconds(self) -> NDArray[np.float64]:
        """float64 [11]; of the evaluations; a gradient takes 1 in the mean."""
        return np.linspace(0.0, float(self.updates), _EVALUATIONS + 1)

    def arms(self) -> Iterable[str]:
        """The values of ``VARIED``."""
        raise NotImplementedError

    def settings(self) -> list[Record]:
        return [
            {"repeat": repeat, "workers": workers, self.VARIED: arm}
            for repeat, workers, arm in product(range(self.repeats), self.workers, self.arms())
        ]

    def train(
        self,
        setting: Record,
        damping: Policy,
        norm: BatchNorm | DataNorm | None,
        go_on: GoOn,
        validation: ClickDataset | None = None,
    ) -> TrainResult:
        """One run, with ASP."""
        seed = self.seed + setting["repeat"]
        result = simulate(
            recommender.model(norm),
            self.days[0],
            validation=validation,
            cluster=TIMES[self.times](setting["workers"]),
            mode=modes.ASP(),
            until=Until(seconds=float(self.updates)),
            rule=Adagrad(self.lr, initial_accumulator=_ACCUMULATED),
            staleness=damping,
            init=Init(tables=recommender.new_tables(self.lr, seed)),
            batch_size=self.batch_size,
            seed=seed,
            observe=Observe(go_on, every=self.updates / _EVALUATIONS, rows=None),
        ).result
        return unbroken(result)

    def padded(self, series: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """float64 [11]; with NaN at its end: a run that has crashed has fewer evaluations."""
        found = np.full(_EVALUATIONS + 1, np.nan)
        found[: len(series)] = series[: _EVALUATIONS + 1]
        return found

    def measured(self, records: Sequence[Record]) -> Iterator[tuple[int, str, Record]]:
        """For each number of workers and arm what was measured, each as float64 [repeats, …]."""
        for workers, arm in product(self.workers, self.arms()):
            mine = [
                one["measured"]
                for one in records
                if (one["setting"]["workers"], one["setting"][self.VARIED]) == (workers, arm)
            ]
            if mine:
                found = {
                    name: np.array([one[name] for one in mine], np.float64) for name in mine[0]
                }
                yield workers, arm, found
