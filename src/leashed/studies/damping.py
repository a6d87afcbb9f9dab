"""What damping stale gradients does among thousands of workers: extreme-scale-asgd, Figure 5."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from leashed import staleness
from leashed.base.table import Table, number
from leashed.staleness import Policy
from leashed.studies import recommender
from leashed.studies.intervals import Interval, interval
from leashed.studies.many_workers import ManyWorkers
from leashed.studies.recommender import NAME
from leashed.studies.study import GoOn, Part, Record
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

_TESTED = 20_000


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
class Asked(ManyWorkers):
    """What to train, as of ``ManyWorkers``."""

    NAME: ClassVar[str] = "damping"
    TITLE: ClassVar[str] = "Damping among many workers"
    VARIED: ClassVar[str] = "damping"

    def arms(self) -> Iterable[str]:
        return DAMPING

    @ends_are_told()
    def measure(self, setting: Record, data: Any, go_on: GoOn) -> Record:  # noqa: ARG002
        result, auc = self.train(setting, DAMPING[setting["damping"]], None, go_on), math.nan
        if result.outcome != "crashed":
            tested = self.days[1][:_TESTED]
            auc = recommender.model().evaluate(result.parameters, tested, result.tables).auc
        staleness = result.staleness.mean()
        return {"loss": self.padded(result.loss), "auc": auc, "staleness": staleness}

    def curves(self, records: Sequence[Record]) -> list[Curve]:
        """One for each number of workers and damping."""
        return [
            Curve(
                workers,
                damping,
                self.seconds,
                one["loss"],
                one["auc"],
                1.0 + float(one["staleness"].mean()),
            )
            for workers, damping, one in self.measured(records)
        ]

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
