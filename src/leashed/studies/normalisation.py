"""What normalising a mini-batch does among thousands of workers: extreme-scale-asgd, Figure 6."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed import modes, staleness
from leashed.models.layers import BatchNorm, DataNorm
from leashed.rules import Adagrad
from leashed.simulation.virtual_time import simulate
from leashed.staleness import Policy
from leashed.stopping import Until
from leashed.studies import recommender
from leashed.studies.damping import BASELINE
from leashed.studies.intervals import Interval, interval
from leashed.studies.side_by_side import side_by_side
from leashed.studies.stale import TIMES
from leashed.training.doubts import ends_are_told
from leashed.training.result import TrainResult

__all__ = ["ARMS", "Arm", "Asked", "Curve", "curves"]


class Arm(NamedTuple):
    """What is done against stale gradients.

    Attributes:
        damping: of them.
        norm: before each ReLU (Algorithm 1).
    """

    damping: Policy
    norm: BatchNorm | DataNorm | None


ARMS: dict[str, Arm] = {
    "none": Arm(staleness.none(), None),
    "staleness": Arm(staleness.normalized(BASELINE), None),
    "staleness + data": Arm(staleness.normalized(BASELINE), DataNorm()),
    "staleness + batch (ours)": Arm(staleness.normalized(BASELINE), BatchNorm()),
    "data alone (ours)": Arm(staleness.none(), DataNorm()),
}
"""The figure's are the second and the third: the paper never normalises data solely
(docs/readings.md#staleness-and-data-normalisation-swap). Batch normalisation in its place, and what
is left without staleness normalisation, are ours."""

_EVALUATIONS = 10
_TESTED = 10_000
_ACCUMULATED = 0.1


@dataclass(frozen=True)
class Asked:
    """What to train.

    Args:
        workers: numbers of workers.
        updates: of each worker, in the mean.
        times: of ``stale.TIMES``.
        lr: of Adagrad, whose sums begin at 0.1 as for the study of damping.
        batch_size: clicks of a gradient, which its means are of.
        rows: clicks to train on.
        repeats: runs of each setting, of seeds ``seed``, ``seed + 1`` and so on.
        seed: of the first.
    """

    workers: tuple[int, ...] = (1000, 3000)
    updates: int = 30
    times: str = "normal"
    lr: float = 0.003
    batch_size: int = 32
    rows: int = 100_000
    repeats: int = 3
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Curve:
    """One arm with one number of workers.

    Attributes:
        workers, arm: which.
        seconds: float64 [E]; of which a gradient takes 1 in the mean.
        auc: float64 [repeats, E]; of another day's clicks, at those seconds; NaN after a crash.
        near_zero: share of the batches' means that counted as ±0.001, over values and repeats; 0
            where no data is normalised.
    """

    workers: int
    arm: str
    seconds: NDArray[np.float64]
    auc: NDArray[np.float64]
    near_zero: float

    def intervals(self) -> list[Interval]:
        """The AUC at each evaluation, as a mean over the repeats with its 95% interval."""
        return [interval(list(values)) for values in self.auc.T]

    def against(self, other: Curve) -> Interval:
        """How much better the AUC at the end is than another's of the same seeds."""
        return interval(list(self.auc[:, -1] - other.auc[:, -1]))


def curves(asked: Asked) -> Iterator[Curve]:
    """Train every arm on every number of workers, one curve after the other."""
    train, other = recommender.days(asked.rows, 2, asked.seed)

    @ends_are_told()
    def run(one: tuple[int, str, int]) -> TrainResult:
        workers, arm, repeat = one
        return simulate(
            recommender.model(ARMS[arm].norm),
            train,
            validation=other[:_TESTED],
            cluster=TIMES[asked.times](workers),
            mode=modes.ASP(),
            until=Until(seconds=float(asked.updates)),
            rule=Adagrad(asked.lr, initial_accumulator=_ACCUMULATED),
            staleness=ARMS[arm].damping,
            tables=recommender.new_tables(asked.lr, asked.seed + repeat),
            batch_size=asked.batch_size,
            seed=asked.seed + repeat,
            evaluate_every=asked.updates / _EVALUATIONS,
        ).result

    settings = list(product(asked.workers, ARMS))
    every = [(*setting, repeat) for setting in settings for repeat in range(asked.repeats)]
    results = side_by_side(run, every)
    for workers, arm in settings:
        yield _curve(workers, arm, asked, [next(results) for _ in range(asked.repeats)])


def _curve(workers: int, arm: str, asked: Asked, ended: list[TrainResult]) -> Curve:
    return Curve(
        workers,
        arm,
        np.linspace(0.0, float(asked.updates), _EVALUATIONS + 1),
        np.array([_padded(one.validation_auc) for one in ended]),
        float(np.mean([_near_zero(one) for one in ended]))
        if isinstance(ARMS[arm].norm, DataNorm)
        else 0.0,
    )


def _near_zero(ended: TrainResult) -> float:
    told = ended.config["statistics"]
    return float(told["near_zero"] / max(1, told["batches"] * len(ended.statistics)))


def _padded(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """A run that has crashed has fewer evaluations."""
    found = np.full(_EVALUATIONS + 1, np.nan)
    found[: len(series)] = series[: _EVALUATIONS + 1]
    return found
