"""What SWAP does over days of training: extreme-scale-asgd, Figures 4 and 7."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leashed.disciplines import Sequential
from leashed.files import checkpoint
from leashed.models import tables
from leashed.rules import SWAP, Adagrad, RMSprop, Rule
from leashed.stopping import Until
from leashed.studies import recommender
from leashed.studies.intervals import Interval, interval
from leashed.studies.side_by_side import side_by_side
from leashed.training.doubts import ends_are_told
from leashed.training.train import train

__all__ = ["LEAST_PERIOD", "OPTIMIZERS", "Asked", "Curve", "curves"]

_PAPERS = 14
"""T (1 − λ) in the paper: its period of 1.4·10⁷ steps, and the λ of 0.999999 of the other decay."""

LEAST_PERIOD = _PAPERS + 1
"""Steps; with fewer that λ is none."""


@dataclass(frozen=True)
class Asked:
    """What to train.

    Args:
        days: that follow each other, at least 1; each is trained on once, and the next one tested on.
        rows: clicks of a day.
        drift: share of the hidden model that is drawn anew each day.
        batch_size: clicks of a gradient.
        periods: of SWAP, in a day.
        decay: λ₀, the paper's.
        lr: of Adagrad, with SWAP and without.
        decayed_lr: where every step decays, so that squares are averaged and not added up.
        repeats: runs of each, of seeds ``seed``, ``seed + 1`` and so on.
        seed: of the first.
    """

    days: int = 10
    rows: int = 51_200
    drift: float = 0.1
    batch_size: int = 64
    periods: int = 1
    decay: float = 0.8
    lr: float = 0.03
    decayed_lr: float = 0.003
    repeats: int = 5
    seed: int = 0

    @property
    def steps(self) -> int:
        """Of a day."""
        return -(-self.rows // self.batch_size)

    @property
    def period(self) -> int:
        """T, in steps."""
        return max(1, self.steps // self.periods)


OPTIMIZERS: dict[str, Callable[[Asked], Rule]] = {
    "Adagrad": lambda asked: Adagrad(asked.lr),
    "Adagrad-SWAP": lambda asked: SWAP(Adagrad(asked.lr), asked.period, asked.decay),
    "decay at each step": lambda asked: RMSprop(asked.decayed_lr, alpha=1 - _PAPERS / asked.period),
}
"""Adagrad, Algorithm 2, and v ← λv + (1 − λ)g² (Zeiler, 2012)."""

_PARTS = 4  # of a day, after which the squares are looked at


@dataclass(frozen=True, eq=False)
class Curve:
    """One optimizer.

    Attributes:
        optimizer: which.
        auc: float64 [repeats, days]; after each day, of the clicks of the next.
        days: float64 [E]; when the accumulators were looked at.
        accumulator: float64 [repeats, E]; mean over the dense parameters, with a decay at each step
            of the averaged squares.
    """

    optimizer: str
    auc: NDArray[np.float64]
    days: NDArray[np.float64]
    accumulator: NDArray[np.float64]

    def by_day(self) -> list[Interval]:
        """The AUC of each day over the repeats, with its 95% interval."""
        return [interval(list(values)) for values in self.auc.T]

    def against(self, other: Curve) -> Interval:
        """How much better the last day's AUC is than another's on the same clicks."""
        return interval(list(self.auc[:, -1] - other.auc[:, -1]))


def curves(asked: Asked) -> Iterator[Curve]:
    """Train with every optimizer, one curve after the other."""

    def run(one: tuple[str, int]) -> tuple[list[float], list[float]]:
        optimizer, repeat = one
        return _run(OPTIMIZERS[optimizer](asked), asked, asked.seed + repeat)

    every = [(name, repeat) for name in OPTIMIZERS for repeat in range(asked.repeats)]
    results = side_by_side(run, every)
    days = np.arange(1, _PARTS * asked.days + 1) / _PARTS
    for name in OPTIMIZERS:
        ended = [next(results) for _ in range(asked.repeats)]
        auc, accumulated = zip(*ended, strict=True)
        yield Curve(name, np.array(auc), days, np.array(accumulated))


def _run(rule: Rule, asked: Asked, seed: int) -> tuple[list[float], list[float]]:
    """Day after day, each from what the day before has left in a checkpoint."""
    model = recommender.model()
    days = recommender.days(asked.rows, asked.days + 1, seed, asked.drift)
    trained = tables.of(model.tables, rule=rule, seed=seed)
    auc: list[float] = []
    accumulated: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "yesterday"
        for day in range(asked.days):
            for part in range(1, _PARTS + 1):
                with ends_are_told():
                    result = train(
                        model,
                        days[day],
                        until=Until(epochs=day + part / _PARTS),
                        discipline=Sequential(),
                        rule=rule,
                        tables=trained,
                        batch_size=asked.batch_size,
                        seed=seed,
                        evaluate_every=1e6,
                        checkpoint=kept,
                        resume=kept if accumulated else None,
                    )
                recommender.require_finite(result, *_crash(rule, day))
                accumulated.append(_squares(kept))
            auc.append(model.evaluate(result.parameters, days[day + 1], trained, 1).auc)
    return auc, accumulated


def _crash(rule: Rule, day: int) -> tuple[str, str]:
    option = "--decayed-lr" if isinstance(rule, RMSprop) else "--lr"
    return f"training with {type(rule).__name__} on day {day + 1}", f"give a smaller {option}"


def _squares(kept: Path) -> float:
    """The mean of what the rule has accumulated for the dense parameters."""
    return float(checkpoint.read_model(kept).states[0].mean(dtype=np.float64))
