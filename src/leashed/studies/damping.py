"""What damping stale gradients does among thousands of workers: extreme-scale-asgd, Figure 5."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from leashed import staleness
from leashed.base import checks
from leashed.base.table import MISSING, Table, number
from leashed.disciplines import Sequential
from leashed.rules import Adagrad
from leashed.staleness import Policy
from leashed.stopping import Until
from leashed.studies.intervals import Interval, interval
from leashed.studies.many_workers import MODELS, ManyWorkers
from leashed.studies.study import GoOn, Part, Record, option, unbroken
from leashed.training.doubts import ends_are_told
from leashed.training.options import Init, Observe
from leashed.training.train import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["BASELINE", "DAMPING", "Asked", "Curve", "curves"]

BASELINE = 1000
"""Workers of the cluster that staleness is normalised to, the paper's."""

_NORMALISED = "normalised"
DAMPING: dict[str, Policy] = {
    "none": staleness.none(),
    "linear": staleness.inverse(),
    "printed": staleness.normalized_as_printed(BASELINE),
    _NORMALISED: staleness.normalized(BASELINE),
    "normalised, trans": staleness.stage_aware(staleness.normalized(BASELINE)),
}
"""No damping, 1/τ (Zhang et al., 2016), eq. 7 to the letter, as it is read
(docs/readings.md#staleness-and-data-normalisation-swap), and so with eq. 5's trans of eq. 6, whose λ of
1 is ours."""

_WARM = 0.03  # of one worker, and of rows throughout


@dataclass(frozen=True, eq=False)
class Curve:
    """One damping on one number of workers.

    Attributes:
        workers, damping: which.
        rate: of Adagrad.
        auc: float64 [repeats, E]; of other clicks, after each tenth of the run; NaN after a crash.
        mean_staleness: as the paper counts it, from 1.
    """

    workers: int
    damping: str
    rate: float
    auc: NDArray[np.float64]
    mean_staleness: float

    @property
    def done(self) -> NDArray[np.float64]:
        """float64 [E]; the share of the run at each evaluation."""
        return np.linspace(0.0, 1.0, self.auc.shape[1])

    def intervals(self) -> list[Interval]:
        """The AUC at each evaluation, as a mean over the repeats with its 95% interval."""
        return [interval(list(values)) for values in self.auc.T]

    def against(self, other: Curve) -> Interval:
        """How much better the AUC at the end is than another's of the same seeds."""
        return interval(list(self.auc[:, -1] - other.auc[:, -1]))


_HEADER = ["workers", "damping", "η", "mean τ", "AUC at first", "half-way", "at the end"]
_HEADER += [f"against {BASELINE:,} without"]


@dataclass(frozen=True)
class Asked(ManyWorkers):
    """What to train, as of ``ManyWorkers``.

    Args:
        warm: clicks that one worker is trained on before.
        updates: of each worker, in the mean.
    """

    NAME: ClassVar[str] = "damping"
    TITLE: ClassVar[str] = "Damping among many workers"
    VARIED: ClassVar[str] = "damping"

    lr: tuple[float, ...] = option(
        (0.001, 0.002, 0.003, 0.005, 0.01), "of Adagrad, swept", partial(checks.real, above=0.0)
    )
    batch_size: int = 8
    warm: int = option(200_000, "clicks before", checks.whole, short=50_000, command=False)
    updates: int = option(12, "of each worker", checks.whole, command=False)
    ids: int = option(100_000, "of each feature", checks.whole, command=False)

    @property
    def rows(self) -> int:
        return self.warm + self.updates * max(self.workers) * self.batch_size

    def arms(self) -> Iterable[str]:
        return DAMPING

    def conditions(self, data: Any) -> Record:
        by = {"fewest": min(self.workers), "seeds": self.repeats}  # the rate is told by these
        return {**super().conditions(data), **by}

    def swept(self) -> list[Record]:
        few = min(self.workers)
        return [
            {"repeat": repeat, "workers": few, "damping": "none", "lr": lr}
            for repeat, lr in product(range(self.repeats), self.lr)
        ]

    def rate(self, setting: Record, records: Sequence[Record]) -> float:  # noqa: ARG002
        """The largest at which the fewest workers hold without damping: they end no lower than they
        began, in the mean over the seeds. Where they hold at none, the smallest.
        """
        holds = [lr for lr, auc in self.sweep(records) if auc[:, -1].mean() >= auc[:, 0].mean()]
        return max(holds, default=min(self.lr))

    def sweep(self, records: Sequence[Record]) -> list[tuple[float, NDArray[np.float64]]]:
        """The AUC of each rate without damping, float64 [repeats, E]."""
        return [
            (lr, found["auc"]) for lr in sorted(self.lr) for *_, found in self.measured(records, lr)
        ]

    @ends_are_told()
    def measure(self, setting: Record, data: Any, go_on: GoOn) -> Record:  # noqa: ARG002
        clicks, model, rows = (
            self.clicks(setting["repeat"]),
            self.graph(),
            self.tables(setting["repeat"], _WARM),
        )
        before = unbroken(
            train(
                model,
                clicks.train[: self.warm],
                until=Until(epochs=1),
                discipline=Sequential(),
                threads=1,
                rule=Adagrad(_WARM),
                init=Init(tables=rows),
                seed=self.seed + setting["repeat"],
                observe=Observe(go_on, every=1e6, rows=1),
            )
        )
        last = self.warm + self.updates * setting["workers"] * self.batch_size
        init = Init(before.parameters, tables=rows)
        policy = DAMPING[setting["damping"]]
        result = self.train(setting, model, clicks.train[self.warm : last], policy, init, go_on)
        return {"auc": self.course(result), "staleness": result.staleness.mean()}

    def curves(self, records: Sequence[Record]) -> list[Curve]:
        """One for each number of workers and damping."""
        return [
            Curve(
                workers,
                damping,
                float(one["rate"][0]),
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
            "AUC over time (extreme-scale-asgd, Figure 5), with its 95% interval over the seeds."
        )
        return [
            Part(self.TITLE, self.table(found), self._note(), drawn, caption),
            Part("The sweep of the rate", self.sweep_table(records)),
        ]

    def table(self, found: Sequence[Curve]) -> Table:
        """A row for each curve."""
        few = min(self.workers)
        plain = next((one for one in found if (one.workers, one.damping) == (few, "none")), None)
        return Table(_HEADER, [_row(one, plain) for one in found])

    def sweep_table(self, records: Sequence[Record]) -> Table:
        """What the fewest workers came to at each rate."""
        rows = [
            [f"{lr:g}", interval(list(auc[:, 0])).text(), interval(list(auc[:, -1])).text()]
            for lr, auc in self.sweep(records)
        ]
        few = f"{min(self.workers):,} without damping: η"
        return Table([few, "AUC at first", "at the end"], rows)

    def _note(self) -> str:
        return (
            f"Trained: {MODELS[self.model].words}, {self.ids:,} ids of each feature; {self.warm:,} clicks "
            f"by one worker, then {self.updates} updates of {self.batch_size} clicks of each worker in "
            "the mean, by ASP with Adagrad, rows at 0.03 as before. η: the largest of the sweep at which the fewest workers end "
            "no lower than they began. Damping, of τ counted from 1: linear 1/τ; printed and normalised "
            f"leave up to {BASELINE:,} alone and make it 1/τ² and ({BASELINE:,}/τ)² above; trans: eq. 5. "
            "AUC of other clicks: means ± half the 95% interval over the seeds; against: of the same "
            "seeds."
        )


def curves(asked: Asked) -> Iterator[Curve]:
    """Train with every damping on every number of workers, one curve after the other."""
    yield from asked.curves(asked.all())


def _row(curve: Curve, plain: Curve | None) -> list[str]:
    known = curve.intervals()
    return [
        f"{curve.workers:,}",
        curve.damping,
        f"{curve.rate:g}",
        number(curve.mean_staleness, 4),
        known[0].text(),
        known[len(known) // 2].text(),
        known[-1].text(),
        MISSING if plain is None or curve is plain else curve.against(plain).text(),
    ]
