"""What SWAP does over days of training: extreme-scale-asgd, Figures 4 and 7."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from leashed.base import checks
from leashed.base.table import Table, number
from leashed.disciplines import Sequential
from leashed.files import checkpoint
from leashed.models import tables
from leashed.rules import SWAP, Adagrad, RMSprop, Rule
from leashed.stopping import Until
from leashed.studies import recommender
from leashed.studies.intervals import Course
from leashed.studies.study import GoOn, Part, Record, Study, option
from leashed.training.doubts import ends_are_told
from leashed.training.options import Init, Observe
from leashed.training.train import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["LEAST_PERIOD", "OPTIMIZERS", "Asked", "Curve", "curves"]

_PAPERS = 14
"""T (1 − λ) in the paper: its period of 1.4·10⁷ steps, and the λ of 0.999999 of the other decay."""

LEAST_PERIOD = _PAPERS + 1
"""Steps; with fewer that λ is none."""


_PARTS = 4  # of a day, after which the squares are looked at


@dataclass(frozen=True, eq=False)
class Curve(Course):
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


@dataclass(frozen=True)
class Asked(Study):
    """What to train.

    Args:
        model: of ``recommender.MODELS``.
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

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    NAME: ClassVar[str] = "swap"
    TITLE: ClassVar[str] = "SWAP over days"
    HELP: ClassVar[str] = "days of training with SWAP and without"
    DESCRIPTION: ClassVar[str] = (
        "Train day after day on clicks whose model drifts, with Adagrad, with Adagrad-SWAP and with "
        "squares that decay at each step, and test on the day that follows: Figures 7 and 4 of "
        "extreme-scale-asgd."
    )
    SIDE_BY_SIDE: ClassVar[bool] = True

    model: str = option("ecommerce", "what is trained", choices=recommender.MODELS)
    days: int = option(10, "that follow each other", checks.whole)
    rows: int = option(
        51_200, "clicks of a day", checks.whole, full=256_000, short=12_800, command=False
    )
    drift: float = option(
        0.1,
        "share of the hidden model that is drawn anew each day",
        partial(checks.real, above=0.0, allow=True),
    )
    batch_size: int = 64
    periods: int = option(1, "of SWAP, in a day", checks.whole)
    decay: float = 0.8
    lr: float = option(0.03, "of Adagrad", partial(checks.real, above=0.0))
    decayed_lr: float = option(0.003, "where each step decays", partial(checks.real, above=0.0))
    repeats: int = option(5, "seeds of each", checks.whole, short=2)
    seed: int = option(0, "the first", partial(checks.whole, minimum=0))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.period < LEAST_PERIOD:
            raise ValueError(
                f"periods must be at most {self.steps // LEAST_PERIOD} in a day of {self.steps} "
                f"steps: the decay at each step to compare with takes periods of {LEAST_PERIOD}, got "
                f"{self.periods}"
            )

    @property
    def steps(self) -> int:
        """Of a day."""
        return -(-self.rows // self.batch_size)

    @property
    def period(self) -> int:
        """T, in steps."""
        return max(1, self.steps // self.periods)

    def settings(self) -> list[Record]:
        return [
            {"repeat": repeat, "optimizer": name}
            for repeat, name in product(range(self.repeats), OPTIMIZERS)
        ]

    def measure(self, setting: Record, data: Any, go_on: GoOn) -> Record:  # noqa: ARG002
        rule = OPTIMIZERS[setting["optimizer"]](self)
        auc, accumulated = _run(rule, self, self.seed + setting["repeat"], go_on)
        return {"auc": auc, "accumulator": accumulated}

    def curves(self, records: Sequence[Record]) -> list[Curve]:
        """One for each optimizer."""
        days = np.arange(1, _PARTS * self.days + 1) / _PARTS
        found: list[Curve] = []
        for name in OPTIMIZERS:
            mine = [r["measured"] for r in records if r["setting"]["optimizer"] == name]
            if mine:
                auc, accumulated = (
                    np.array([one[key] for one in mine], np.float64)
                    for key in ("auc", "accumulator")
                )
                found.append(Curve(name, auc, days, accumulated))
        return found

    def parts(self, records: Sequence[Record]) -> list[Part]:
        found = self.curves(records)

        def drawn() -> Figure:
            from leashed.studies.plots import swap  # noqa: PLC0415 (matplotlib is optional)

            return swap.days(found)

        caption = "AUC of the next day and the accumulator over time (extreme-scale-asgd, Figures 7 and 4)."
        days = (f"day {day + 1}" for day in range(self.days))
        header = ["optimizer", *days, "accumulator", "at the end"]
        rows = [
            [
                one.optimizer,
                *(day.text() for day in one.intervals()),
                number(float(one.accumulator[:, 0].mean())),
                number(float(one.accumulator[:, -1].mean())),
            ]
            for one in found
        ]
        return [Part(self.TITLE, Table(header, rows), self._note(found), drawn, caption)]

    def _note(self, found: Sequence[Curve]) -> str:
        ahead = ", ".join(f"{one.optimizer} {one.against(found[0]).text()}" for one in found[1:])
        return (
            f"Trained: {recommender.MODELS[self.model].words}, {self.rows:,} clicks a day in batches of "
            f"{self.batch_size}, of which {self.drift:.0%} of the hidden model is drawn anew each day. "
            f"SWAP: T = {self.period:,} steps, λ₀ = {self.decay:g}; the decay at each step has the "
            "paper's T (1 − λ) = 14. AUC: of the day after the one named, means ± half the 95% "
            "interval over the seeds. On the last day, against Adagrad on the same clicks: "
            f"{ahead}. Accumulator: mean over the dense parameters, after a quarter of the first day."
        )


OPTIMIZERS: dict[str, Callable[[Asked], Rule]] = {
    "Adagrad": lambda asked: Adagrad(asked.lr),
    "Adagrad-SWAP": lambda asked: SWAP(Adagrad(asked.lr), asked.period, asked.decay),
    "decay at each step": lambda asked: RMSprop(asked.decayed_lr, alpha=1 - _PAPERS / asked.period),
}
"""Adagrad, Algorithm 2, and v ← λv + (1 − λ)g² (Zeiler, 2012)."""


def curves(asked: Asked) -> Iterator[Curve]:
    """Train with every optimizer, one curve after the other."""
    yield from asked.curves(asked.all())


def _run(rule: Rule, asked: Asked, seed: int, go_on: GoOn) -> tuple[list[float], list[float]]:
    """Day after day, each from what the day before has left in a checkpoint."""
    of = recommender.MODELS[asked.model]
    model, days = of.graph(), of.days(asked.rows, asked.days + 1, seed, asked.drift)
    trained = tables.of(model.tables, rule=rule, seed=seed)
    auc: list[float] = []
    accumulated: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "yesterday"
        for day in range(asked.days):
            for part in range(1, _PARTS + 1):
                go_on(day)
                with ends_are_told():
                    result = train(
                        model,
                        days[day],
                        until=Until(epochs=day + part / _PARTS),
                        discipline=Sequential(),
                        rule=rule,
                        init=Init(tables=trained),
                        batch_size=asked.batch_size,
                        seed=seed,
                        observe=Observe(every=1e6, rows=None),
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
