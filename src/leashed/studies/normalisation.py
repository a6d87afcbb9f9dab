"""What normalising a mini-batch does among thousands of workers: extreme-scale-asgd, Figure 6."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed import staleness
from leashed.base import checks
from leashed.base.table import MISSING, Table
from leashed.models.layers import BatchNorm, DataNorm
from leashed.staleness import Policy
from leashed.studies.damping import BASELINE
from leashed.studies.intervals import Interval, interval
from leashed.studies.many_workers import ManyWorkers
from leashed.studies.recommender import NAME
from leashed.studies.study import GoOn, Part, Record, option
from leashed.training.doubts import ends_are_told
from leashed.training.result import TrainResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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

_TESTED = 10_000


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


_STALENESS = "staleness"
_HEADER = [
    "workers",
    "normalised",
    "AUC half-way",
    "at the end",
    "against staleness",
    "means near 0",
]


@dataclass(frozen=True)
class Asked(ManyWorkers):
    """What to train, as of ``ManyWorkers``; means are of a gradient's clicks."""

    NAME: ClassVar[str] = "normalisation"
    TITLE: ClassVar[str] = "Data normalisation among many workers"
    HELP: ClassVar[str] = "data normalisation among many workers"
    DESCRIPTION: ClassVar[str] = (
        "Train with thousands of workers in virtual time, with stale gradients damped or not and with "
        "mini-batches normalised or not: Figure 6 of extreme-scale-asgd."
    )
    VARIED: ClassVar[str] = "arm"

    lr: float = option(0.003, "of Adagrad", partial(checks.real, above=0.0))
    batch_size: int = option(32, "clicks of a gradient", partial(checks.whole, minimum=2))

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("batch_size", self.batch_size, 2, self.rows)

    def arms(self) -> Iterable[str]:
        return ARMS

    @ends_are_told()
    def measure(self, setting: Record, data: Any, go_on: GoOn) -> Record:  # noqa: ARG002
        arm = ARMS[setting["arm"]]
        result = self.train(setting, *arm, go_on, self.days[1][:_TESTED])
        near_zero = _near_zero(result) if isinstance(arm.norm, DataNorm) else 0.0
        return {"auc": self.padded(result.validation_auc), "near_zero": near_zero}

    def curves(self, records: Sequence[Record]) -> list[Curve]:
        """One for each number of workers and arm."""
        return [
            Curve(workers, arm, self.seconds, one["auc"], float(one["near_zero"].mean()))
            for workers, arm, one in self.measured(records)
        ]

    def parts(self, records: Sequence[Record]) -> list[Part]:
        found = self.curves(records)

        def drawn() -> Figure:
            from leashed.studies.plots import normalisation  # noqa: PLC0415 (matplotlib is optional)

            return normalisation.over_time(found)

        caption = (
            "AUC over time (extreme-scale-asgd, Figure 6), with its 95% interval over the seeds."
        )
        table = Table(_HEADER, [_row(curve, found) for curve in found])
        return [Part(self.TITLE, table, self._note(), drawn, caption)]

    def _note(self) -> str:
        return (
            f"Trained: {NAME}, by ASP with Adagrad at {self.lr:g}, {self.updates} gradients of each "
            f"worker in the mean, each of {self.batch_size} clicks. Staleness: normalised to a thousand "
            "workers. Data, batch: DataNorm or BatchNorm before each ReLU, by the mini-batch's own "
            "means; for evaluation one running average of all workers' batches, in the order in which "
            "they fall due. AUC: of another day's clicks, means ± half the 95% interval over the seeds; "
            "against staleness normalisation alone, of the same seeds. Means near 0: counted as ±0.001."
        )


def curves(asked: Asked) -> Iterator[Curve]:
    """Train every arm on every number of workers, one curve after the other."""
    yield from asked.curves(asked.all())


def _row(curve: Curve, found: Sequence[Curve]) -> list[str]:
    known = curve.intervals()
    plain = next(one for one in found if (one.workers, one.arm) == (curve.workers, _STALENESS))
    return [
        f"{curve.workers:,}",
        curve.arm,
        known[len(known) // 2].text(),
        known[-1].text(),
        MISSING if curve is plain else curve.against(plain).text(),
        f"{curve.near_zero:.1%}",
    ]


def _near_zero(ended: TrainResult) -> float:
    told = ended.config["statistics"]
    return float(told["near_zero"] / max(1, told["batches"] * len(ended.statistics)))
