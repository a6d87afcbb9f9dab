"""What damping stale gradients does among thousands of workers: extreme-scale-asgd, Figure 5."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from leashed import modes, staleness
from leashed.rules import Adagrad
from leashed.simulation.virtual_time import simulate
from leashed.staleness import Policy
from leashed.stopping import Until
from leashed.studies import recommender
from leashed.studies.intervals import Interval, interval
from leashed.studies.side_by_side import side_by_side
from leashed.studies.stale import TIMES
from leashed.training.doubts import ends_are_told
from leashed.training.result import TrainResult

__all__ = ["BASELINE", "DAMPING", "Asked", "Curve", "curves"]

BASELINE = 1000
"""Workers of the cluster that staleness is normalised to, the paper's."""

DAMPING: dict[str, Policy] = {
    "none": staleness.none(),
    "linear": staleness.inverse(),
    "printed": staleness.normalized_as_printed(BASELINE),
    "normalised": staleness.normalized(BASELINE),
}
"""No damping, 1/τ (Zhang et al., 2016), eq. 7 to the letter, and as it is read
(docs/readings.md#staleness-and-data-normalisation-swap)."""

_EVALUATIONS = 10
_TESTED = 20_000
_ACCUMULATED = 0.1


@dataclass(frozen=True)
class Asked:
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
    """

    workers: tuple[int, ...] = (1000, 3000)
    updates: int = 30
    times: str = "normal"
    lr: float = 0.01
    batch_size: int = 8
    rows: int = 100_000
    repeats: int = 3
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Curve:
    """One damping on one number of workers.

    Attributes:
        workers, damping: which.
        seconds: float64 [E]; of which a gradient takes 1 in the mean.
        loss: float64 [repeats, E]; of the clicks trained on, at those seconds; NaN after a crash.
        auc: float64 [repeats]; at the end, of another day's clicks; NaN likewise.
        mean_staleness: as the paper counts it, from 1.
    """

    workers: int
    damping: str
    seconds: NDArray[np.float64]
    loss: NDArray[np.float64]
    auc: NDArray[np.float64]
    mean_staleness: float

    def intervals(self) -> list[Interval]:
        """The loss at each evaluation, as a mean over the repeats with its 95% interval."""
        return [interval(list(losses)) for losses in self.loss.T]


def curves(asked: Asked) -> Iterator[Curve]:
    """Train with every damping on every number of workers, one curve after the other."""
    model = recommender.model()
    train, other = recommender.days(asked.rows, 2, asked.seed)
    tested = other[:_TESTED]

    @ends_are_told()
    def run(one: tuple[int, str, int]) -> tuple[TrainResult, float]:
        workers, damping, repeat = one
        result = simulate(
            model,
            train,
            cluster=TIMES[asked.times](workers),
            mode=modes.ASP(),
            until=Until(seconds=float(asked.updates)),
            rule=Adagrad(asked.lr, initial_accumulator=_ACCUMULATED),
            staleness=DAMPING[damping],
            tables=recommender.new_tables(asked.lr, asked.seed + repeat),
            batch_size=asked.batch_size,
            seed=asked.seed + repeat,
            evaluate_every=asked.updates / _EVALUATIONS,
        ).result
        if result.outcome == "crashed":
            return result, math.nan
        return result, model.evaluate(result.parameters, tested, result.tables).auc

    settings = list(product(asked.workers, DAMPING))
    every = [(*setting, repeat) for setting in settings for repeat in range(asked.repeats)]
    results = side_by_side(run, every)
    for workers, damping in settings:
        yield _curve(workers, damping, asked, [next(results) for _ in range(asked.repeats)])


def _curve(
    workers: int, damping: str, asked: Asked, ended: list[tuple[TrainResult, float]]
) -> Curve:
    results = [result for result, _ in ended]
    seconds = np.linspace(0.0, float(asked.updates), _EVALUATIONS + 1)
    return Curve(
        workers,
        damping,
        seconds,
        np.array([_padded(one.loss) for one in results]),
        np.array([tested for _, tested in ended]),
        1.0 + float(np.mean([one.staleness.mean() for one in results])),
    )


def _padded(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """A run that has crashed has fewer evaluations."""
    found = np.full(_EVALUATIONS + 1, np.nan)
    found[: len(series)] = series[: _EVALUATIONS + 1]
    return found
