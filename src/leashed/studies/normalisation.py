"""What normalising a mini-batch does among thousands of workers: extreme-scale-asgd, Figure 6."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product, takewhile
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed import staleness
from leashed.base import checks
from leashed.base.table import MISSING, Table
from leashed.models.graphs import Applied, Graph, Input, Node
from leashed.models.layers import DataNorm, ReLU
from leashed.studies.damping import BASELINE
from leashed.studies.intervals import Course
from leashed.studies.many_workers import MODELS, ManyWorkers
from leashed.studies.side_by_side import as_they_end
from leashed.studies.study import GoOn, Part, Record, option
from leashed.training.doubts import ends_are_told
from leashed.training.options import Init
from leashed.training.result import TrainResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ARMS", "Arm", "Asked", "Curve", "curves", "normalised"]


class Arm(NamedTuple):
    """Where data are normalised.

    Attributes:
        numbers: those that the model reads.
        before: each ReLU, as Algorithm 1 is printed.
        behind: each ReLU, what the next dense layer reads.
    """

    numbers: bool = False
    before: bool = False
    behind: bool = False


_PLAIN = "none"
ARMS: dict[str, Arm] = {
    _PLAIN: Arm(),
    "input": Arm(numbers=True),
    "before ReLU": Arm(before=True),
    "each layer": Arm(numbers=True, behind=True),
}
"""In all of them staleness is normalised, as in the figure."""

_SWEEP = 3  # of the trial's clicks one third


def normalised(graph: Graph, arm: Arm) -> Graph:
    """The graph with data normalisation where an arm has it."""
    made: dict[Node, Node] = {}
    for node in graph.nodes:
        new = copy.copy(node)
        object.__setattr__(new, "inputs", tuple(made[one] for one in node.inputs))
        relu = isinstance(node, Applied) and isinstance(node.layer, ReLU)
        if relu and arm.before:
            new = new.inputs[0] >> DataNorm() >> ReLU()
        if (relu and arm.behind) or (isinstance(node, Input) and arm.numbers):
            new = new >> DataNorm()
        made[node] = new
    return Graph(made[graph.output], graph.loss, graph.name, graph.l2)


@dataclass(frozen=True, eq=False)
class Curve(Course):
    """One arm with one number of workers.

    Attributes:
        workers, arm: which.
        rate: of Adagrad.
        auc: float64 [repeats, E]; of other clicks, after each tenth of the run; NaN after a crash.
        near_zero: share of the batches' means that counted as ±0.001, over values and repeats; 0
            where no data is normalised.
    """

    workers: int
    arm: str
    rate: float
    auc: NDArray[np.float64]
    near_zero: float


_HEADER = ["workers", "normalised", "η", "AUC half-way", "at the end", "against none"]
_HEADER += ["means near 0"]


@dataclass(frozen=True)
class Asked(ManyWorkers):
    """What to train, as of ``ManyWorkers``, after a sweep of the rate; means are of a gradient's clicks.

    Args:
        updates: of each worker, each of clicks that no other has.
    """

    NAME: ClassVar[str] = "normalisation"
    TITLE: ClassVar[str] = "Data normalisation among many workers"
    HELP: ClassVar[str] = "data normalisation among many workers"
    DESCRIPTION: ClassVar[str] = (
        "Train with thousands of workers in virtual time, with stale gradients damped and with "
        "mini-batches normalised at one place or another, or nowhere: Figure 6 of extreme-scale-asgd."
    )
    VARIED: ClassVar[str] = "arm"

    batch_size: int = option(32, "clicks of a gradient", partial(checks.whole, minimum=2))
    updates: int = option(300, "of a worker, in the mean", checks.whole, short=15, command=False)

    @property
    def rows(self) -> int:
        return max(map(self.seen, self.workers))

    def seen(self, workers: int) -> int:
        """Clicks that so many workers train on."""
        return self.updates * workers * self.batch_size

    def arms(self) -> Iterable[str]:
        return ARMS

    def settings(self) -> list[Record]:
        trial = [
            {"repeat": repeat, "workers": workers, "arm": arm}
            for repeat, workers, arm in product(range(self.repeats), self.workers, ARMS)
        ]
        return self.swept() + trial

    def swept(self) -> list[Record]:
        """The settings of the sweep, each with its ``lr``."""
        return [
            {"repeat": 0, "workers": workers, "arm": arm, "lr": lr}
            for workers, arm, lr in product(self.workers, ARMS, self.lr)
        ]

    def conditions(self, data: Any) -> Record:
        return {**super().conditions(data), "lr": list(self.lr)}  # another sweep, other rates

    def runs(
        self,
        records: Sequence[Any],
        data: Any,
        begin: Callable[[Any], bool],
        progress: Callable[[Any], object],  # noqa: ARG002
    ) -> Iterator[Any]:
        for sweep in (True, False):
            left = [one for one in self.left(records, data) if ("lr" in one) == sweep]

            def measured(setting: Record, go_on: GoOn) -> Record:
                rate = setting["lr"] if "lr" in setting else self.rate(setting, records)
                return {**self.measure({**setting, "rate": rate}, data, go_on), "rate": rate}

            for setting, found in as_they_end(measured, takewhile(begin, left)):
                yield self.record(setting, data, found)
            if any("lr" in one for one in self.left(records, data)):
                return

    def rate(self, setting: Record, records: Sequence[Record]) -> float:
        """The best of the arm's own among as many workers, after a third of the clicks."""
        mine = (setting["workers"], setting["arm"])
        ends = {
            lr: float(found["auc"][0, -1])
            for lr in self.lr
            for workers, arm, found in self.measured(records, lr)
            if (workers, arm) == mine
        }
        return max(ends, key=lambda lr: np.nan_to_num(ends[lr]))

    @ends_are_told()
    def measure(self, setting: Record, data: Any, go_on: GoOn) -> Record:  # noqa: ARG002
        seen = self.seen(setting["workers"]) // (_SWEEP if "lr" in setting else 1)
        clicks = self.clicks(setting["repeat"]).train[:seen]
        model = normalised(self.graph(), ARMS[setting["arm"]])
        init = Init(tables=self.tables(setting["repeat"], setting["rate"]))
        damping = staleness.normalized(BASELINE)
        rate = setting["rate"]
        result = self.train(setting, rate, model, clicks, damping, init, go_on)
        return {"auc": self.course(result), "near_zero": _near_zero(result)}

    def curves(self, records: Sequence[Record]) -> list[Curve]:
        """One for each number of workers and arm."""
        return [
            Curve(workers, arm, float(one["rate"][0]), one["auc"], float(one["near_zero"].mean()))
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
        return [
            Part(self.TITLE, self.table(found), self._note(), drawn, caption),
            Part("The sweep of the rate", self.sweep_table(records)),
        ]

    def table(self, found: Sequence[Curve]) -> Table:
        """A row for each curve."""
        return Table(_HEADER, [_row(curve, found) for curve in found])

    def sweep_table(self, records: Sequence[Record]) -> Table:
        """The AUC at the end of the sweep's runs."""
        swept = {
            lr: {(n, arm): one for n, arm, one in self.measured(records, lr)} for lr in self.lr
        }
        rows = [
            [f"{workers:,}", arm]
            + [f"{swept[lr][workers, arm]['auc'][0, -1]:.4f}" for lr in self.lr]
            for workers, arm in product(self.workers, ARMS)
            if all((workers, arm) in swept[lr] for lr in self.lr)
        ]
        return Table(["workers", "normalised", *(f"η = {lr:g}" for lr in self.lr)], rows)

    def _note(self) -> str:
        return (
            f"Trained: {MODELS[self.model].words}, {self.ids:,} ids of each feature; "
            f"{self.updates:,} gradients a worker of {self.batch_size} clicks, each click once, by ASP with "
            f"Adagrad. Staleness is normalised to {BASELINE:,} workers everywhere. Data: DataNorm of the "
            "numbers read, before each ReLU, or of what each dense layer reads, by the mini-batch's own "
            "means; for evaluation one running average of all workers' batches. η: of each arm the best "
            "of the sweep, one seed and a third of the clicks. AUC of other clicks: means ± half the "
            "95% interval over the seeds; against none: of the same seeds. Means near 0: counted as "
            "±0.001."
        )


def curves(asked: Asked) -> Iterator[Curve]:
    """Train every arm on every number of workers, one curve after the other."""
    yield from asked.curves(asked.all())


def _row(curve: Curve, found: Sequence[Curve]) -> list[str]:
    known = curve.intervals()
    plain = next(one for one in found if (one.workers, one.arm) == (curve.workers, _PLAIN))
    return [
        f"{curve.workers:,}",
        curve.arm,
        f"{curve.rate:g}",
        known[len(known) // 2].text(),
        known[-1].text(),
        MISSING if curve is plain else curve.against(plain).text(),
        f"{curve.near_zero:.1%}",
    ]


def _near_zero(ended: TrainResult) -> float:
    told = ended.config.get("statistics")
    if told is None:
        return 0.0
    return float(told["near_zero"] / max(1, told["batches"] * len(ended.statistics)))
