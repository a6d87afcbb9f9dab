"""How stale gradients are among thousands of workers: extreme-scale-asgd, Figure 3, counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from leashed import models, modes, simulation
from leashed.base import checks
from leashed.base.table import MISSING, Table, number
from leashed.rules import SGD
from leashed.simulation.virtual_time import Cluster
from leashed.stopping import Until
from leashed.studies.study import GoOn, Part, Record, Study, option, revived

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PAPER", "TIMES", "Counted", "Counting", "count", "shares"]

_BEFORE = 10  # updates of each worker that do not count yet

TIMES: dict[str, Callable[..., Cluster]] = {
    "exponential": lambda n, share=1.0: simulation.exponential(n, share, fetch=1.0 - share),
    "rates": lambda n, share=1.0: simulation.rates(n, share, 0.1, fetch=1.0 - share),
    "normal": lambda n, share=1.0: simulation.normal(n, share, 0.05 * share, fetch=1.0 - share),
}
"""How long a cycle takes, in seconds of which the mean is 1, and of it a gradient that share (default:
1), which is the time between a pull and its push: the paper's Poisson processes, of equal rates and of
rates drawn once (a standard deviation of a tenth), and nearly constant ones (of a twentieth); the
deviations are ours."""

PAPER = {1000: (875.0, 4770.0), 3000: (2090.0, 11300.0)}
"""Mean and variance that it measured, by its number of workers."""


def shares(workers: int) -> list[float]:
    """Of a cycle that a gradient takes: all of it, and what makes the mean that the paper measured of
    so many workers.
    """
    measured = [PAPER[workers][0]] if workers in PAPER else []
    return [1.0, *(round((mean - 1.0) / (workers - 1.0), 4) for mean in measured)]


@dataclass(frozen=True, eq=False)
class Counted:
    """Staleness of updates as the paper counts it, from 1.

    Attributes:
        workers: n.
        times: of ``TIMES``.
        share: of a cycle, that a gradient takes.
        counts: int64 [largest + 1]; updates of staleness 0, 1, ….
    """

    workers: int
    times: str
    share: float
    counts: NDArray[np.int64]

    @property
    def mean(self) -> float:
        """E(τ); the paper's theory says n, that of a share s 1 + s (n - 1)."""
        return float(np.arange(len(self.counts)) @ self.counts / self.counts.sum())

    @property
    def variance(self) -> float:
        """Of exponential times n (n - 1): their staleness is geometric."""
        squares = (np.arange(len(self.counts)) - self.mean) ** 2
        return float(squares @ self.counts / self.counts.sum())


def count(workers: int, times: str, updates: int, seed: int = 0, share: float = 1.0) -> Counted:
    """Make so many updates with ASP in virtual time, of a model of two parameters, since staleness does
    not depend on gradients, after as many as let every worker push some times.
    """
    x = np.array([[0.0], [1.0]], np.float32)
    played = [
        simulation.simulate(
            models.logistic_regression(1),
            (x, np.array([0, 1])),
            cluster=TIMES[times](workers, share),
            mode=modes.ASP(),
            until=Until(updates=several),
            rule=SGD(1e-6),
            batch_size=1,
            seed=seed,
        ).result.staleness.counts
        for several in (_BEFORE * workers, _BEFORE * workers + updates)
    ]
    counts = played[1].copy()
    counts[: len(played[0])] -= played[0]
    return Counted(workers, times, share, np.concatenate([[0], counts]))


_HEADER = ["workers", "times", "share", "mean τ", "in theory", "in the paper", "variance"]
_HEADER += ["its theory", "the paper's"]
_NOTE = (
    "τ as the paper counts it, from 1. Share: of a cycle, between a pull and its push; the rest is "
    "fetching. Theory: E(τ) = 1 + s (n − 1), whatever the rates; the variance n(n − 1) is that of "
    "exponential times of equal rates and s = 1. The paper's are what it measured."
)


@dataclass(frozen=True)
class Counting(Study):
    """What to count.

    Args:
        workers: numbers of workers.
        updates: by all of them.
        seed: of the durations.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    NAME: ClassVar[str] = "staleness"
    TITLE: ClassVar[str] = "Staleness among many workers"
    SIDE_BY_SIDE: ClassVar[bool] = True

    workers: tuple[int, ...] = option((1000, 3000), "numbers of them", checks.whole)
    updates: int = option(260_000, "by all workers", checks.whole, short=65_000)
    seed: int = option(0, "of the durations", partial(checks.whole, minimum=0))

    def settings(self) -> list[Record]:
        return [
            {"workers": n, "times": times, "share": share}
            for n, times in product(self.workers, TIMES)
            for share in shares(n)
        ]

    def measure(self, setting: Record, data: Any, go_on: GoOn) -> Counted:  # noqa: ARG002
        return count(**setting, updates=self.updates, seed=self.seed)

    def parts(self, records: Sequence[Record]) -> list[Part]:
        found = [revived(Counted, record["measured"]) for record in records]

        def drawn() -> Figure:
            from leashed.studies.plots import stale  # noqa: PLC0415 (matplotlib is optional)

            return stale.distributions(found)

        caption = (
            "Updates by their staleness (extreme-scale-asgd, Figure 3), for each number of workers "
            "and each kind of times."
        )
        return [
            Part(self.TITLE, Table(_HEADER, [_row(one) for one in found]), _NOTE, drawn, caption)
        ]


def counts_of(workers: tuple[int, ...], updates: int, seed: int) -> Iterator[Counted]:
    """Every number of workers with every kind of times."""
    for record in Counting(workers, updates, seed).all():
        yield revived(Counted, record["measured"])


def _row(counted: Counted) -> list[str]:
    n = counted.workers
    mean, variance = (number(value) for value in PAPER[n]) if n in PAPER else (MISSING, MISSING)
    exponential = counted.times == "exponential" and counted.share == 1.0
    return [
        f"{n:,}",
        counted.times,
        f"{counted.share:g}",
        number(counted.mean, 4),
        number(1.0 + counted.share * (n - 1), 4),
        mean,
        number(counted.variance),
        number(float(n * (n - 1))) if exponential else MISSING,
        variance,
    ]
