"""What damping stale gradients does among thousands of workers: extreme-scale-asgd, Figure 5."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from leashed import modes, staleness
from leashed.base import checks
from leashed.base.table import Table, number
from leashed.datasets import ClickDataset
from leashed.rules import Adagrad
from leashed.simulation.virtual_time import simulate
from leashed.staleness import Policy
from leashed.stopping import Until
from leashed.studies import recommender
from leashed.studies.intervals import Interval, interval
from leashed.studies.recommender import NAME, padded
from leashed.studies.stale import TIMES
from leashed.studies.study import Part, Record, Study, option
from leashed.training.doubts import ends_are_told

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


_HEADER = ["workers", "damping", "mean τ", "loss at first", "half-way", "at the end", "AUC"]
_NOTE = (
    f"Trained: {NAME}, by ASP with Adagrad. Damping, of τ counted from 1: linear 1/τ; printed and "
    f"normalised leave up to {BASELINE:,} alone and make it 1/τ² and ({BASELINE:,}/τ)² above. Loss of "
    "the clicks trained on, AUC of another day's: means ± half the 95% interval over the seeds."
)


@dataclass(frozen=True)
class Asked(Study):
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

    NAME: ClassVar[str] = "damping"
    TITLE: ClassVar[str] = "Damping among many workers"
    SIDE_BY_SIDE: ClassVar[bool] = True

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

    def settings(self) -> list[Record]:
        return [
            {"repeat": repeat, "workers": workers, "damping": damping}
            for repeat, workers, damping in product(range(self.repeats), self.workers, DAMPING)
        ]

    @ends_are_told()
    def measure(
        self,
        setting: Record,
        data: object,  # noqa: ARG002
        go_on: Callable[[object], None],
    ) -> Record:
        model, (train, other) = recommender.model(), self.days
        seed = self.seed + setting["repeat"]
        result = simulate(
            model,
            train,
            cluster=TIMES[self.times](setting["workers"]),
            mode=modes.ASP(),
            until=Until(seconds=float(self.updates)),
            rule=Adagrad(self.lr, initial_accumulator=_ACCUMULATED),
            staleness=DAMPING[setting["damping"]],
            tables=recommender.new_tables(self.lr, seed),
            batch_size=self.batch_size,
            seed=seed,
            evaluate_every=self.updates / _EVALUATIONS,
            progress=go_on,
        ).result
        auc = math.nan
        if result.outcome != "crashed":
            auc = model.evaluate(result.parameters, other[:_TESTED], result.tables).auc
        return {
            "loss": padded(result.loss, _EVALUATIONS + 1),
            "auc": auc,
            "staleness": result.staleness.mean(),
        }

    def curves(self, records: Sequence[Record]) -> list[Curve]:
        """One for each number of workers and damping."""
        found: list[Curve] = []
        for workers, damping in product(self.workers, DAMPING):
            mine = [
                record["measured"]
                for record in records
                if (record["setting"]["workers"], record["setting"]["damping"])
                == (workers, damping)
            ]
            if mine:
                found.append(
                    Curve(
                        workers,
                        damping,
                        np.linspace(0.0, float(self.updates), _EVALUATIONS + 1),
                        np.array([one["loss"] for one in mine], np.float64),
                        np.array([one["auc"] for one in mine], np.float64),
                        1.0 + float(np.mean([one["staleness"] for one in mine])),
                    )
                )
        return found

    def parts(self, records: Sequence[Record]) -> list[Part]:
        found = self.curves(records)

        def drawn() -> Figure:
            from leashed.studies.plots import damping  # noqa: PLC0415 (matplotlib is optional)

            return damping.over_time(found)

        caption = (
            "Loss over time (extreme-scale-asgd, Figure 5), with its 95% interval over the seeds."
        )
        return [
            Part(self.TITLE, Table(_HEADER, [_row(one) for one in found]), _NOTE, drawn, caption)
        ]


def curves(asked: Asked) -> Iterator[Curve]:
    """Train with every damping on every number of workers, one curve after the other."""
    yield from asked.curves(asked.all())


def _row(curve: Curve) -> list[str]:
    losses = curve.intervals()
    return [
        f"{curve.workers:,}",
        curve.damping,
        number(curve.mean_staleness, 4),
        number(losses[0].mean, 4),
        losses[len(losses) // 2].text(),
        losses[-1].text(),
        interval(list(curve.auc)).text(),
    ]
