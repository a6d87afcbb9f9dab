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
from leashed.base.table import Table, number
from leashed.disciplines import Sequential
from leashed.rules import Adagrad
from leashed.staleness import Policy
from leashed.stopping import Until
from leashed.studies.intervals import Course, Interval, difference
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

_PLAIN = "none"
DAMPING: dict[str, Policy] = {
    _PLAIN: staleness.none(),
    "linear": staleness.inverse(),
    "printed": staleness.normalized_as_printed(BASELINE),
    "normalised": staleness.normalized(BASELINE),
    "normalised, trans": staleness.stage_aware(staleness.normalized(BASELINE)),
}
"""No damping, 1/τ (Zhang et al., 2016), eq. 7 to the letter, as it is read
(docs/readings.md#staleness-and-data-normalisation-swap), and so with eq. 5's trans of eq. 6, whose λ of
1 is ours."""

_WARM = 0.03  # of one worker, and of rows throughout


@dataclass(frozen=True, eq=False)
class Curve(Course):
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

    def gained(self) -> Interval:
        """The AUC at the end less that at first."""
        return difference(self.auc[:, -1], self.auc[:, 0])


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
        (0.002, 0.003, 0.005),
        "of Adagrad, swept",
        partial(checks.real, above=0.0),
        short=(0.002, 0.005),
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

    def settings(self) -> list[Record]:
        return [
            {"repeat": repeat, "lr": lr, "workers": workers, "damping": name}
            for repeat, lr, workers, name in product(
                range(self.repeats), self.lr, self.workers, DAMPING
            )
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
        clicks_after = clicks.train[self.warm : last]
        result = self.train(setting, setting["lr"], model, clicks_after, policy, init, go_on)
        return {"auc": self.course(result), "staleness": result.staleness.mean()}

    def curves(self, records: Sequence[Record]) -> list[Curve]:
        """One for each rate, number of workers and damping."""
        return [
            Curve(workers, damping, lr, one["auc"], 1.0 + float(one["staleness"].mean()))
            for lr in self.lr
            for workers, damping, one in self.measured(records, lr)
        ]

    def held(self, found: Sequence[Curve]) -> list[float]:
        """The rates at which the fewest workers hold without damping: the mean AUC at the end is not
        below that at first.
        """
        few = min(self.workers)
        plain = [one for one in found if (one.workers, one.damping) == (few, _PLAIN)]
        return [one.rate for one in plain if one.gained().mean >= 0]

    def parts(self, records: Sequence[Record]) -> list[Part]:
        found = self.curves(records)
        rate = max(self.held(found), default=min(self.lr))

        def drawn() -> Figure:
            from leashed.studies.plots import damping  # noqa: PLC0415 (matplotlib is optional)

            return damping.over_time([one for one in found if one.rate == rate])

        caption = (
            f"AUC over time (extreme-scale-asgd, Figure 5) at η = {rate:g}, the largest at which the "
            "fewest workers hold without damping, with its 95% interval over the seeds."
        )
        return [Part(self.TITLE, self.table(found), self._note(), drawn, caption)]

    def table(self, found: Sequence[Curve]) -> Table:
        """A row for each number of workers and damping."""
        few = min(self.workers)
        plain = {one.rate: one for one in found if (one.workers, one.damping) == (few, _PLAIN)}
        rows: dict[tuple[int, str], list[str]] = {}
        for one in found:
            begun = [f"{one.workers:,}", one.damping, number(one.mean_staleness, 4)]
            row = rows.setdefault((one.workers, one.damping), begun)
            gain = one.against(plain[one.rate]) if one.rate in plain else None
            more = "" if gain is None or one is plain[one.rate] else f" ({gain.text()})"
            row.append(f"{one.intervals()[-1].text()}{more}")
        rates = dict.fromkeys(one.rate for one in found)
        header = ["workers", "damping", "mean τ", *(f"η = {rate:g}" for rate in rates)]
        return Table(header, list(rows.values()))

    def _note(self) -> str:
        return (
            f"Trained: {MODELS[self.model].words}, {self.ids:,} ids of each feature; {self.warm:,} clicks "
            f"by one worker, then {self.updates} updates of {self.batch_size} clicks of each worker in "
            "the mean, by ASP with Adagrad, rows at 0.03 as before. Damping, of τ counted from 1: linear "
            f"1/τ; printed and normalised leave up to {BASELINE:,} alone and make it 1/τ² and "
            f"({BASELINE:,}/τ)² above; trans: eq. 5. AUC of other clicks at the end: means ± half the 95% "
            f"interval over the seeds; in brackets against {min(self.workers):,} without damping, of the "
            "same seeds and rate."
        )


def curves(asked: Asked) -> Iterator[Curve]:
    """Train with every damping on every number of workers at every rate, one curve after the other."""
    yield from asked.curves(asked.all())
