"""Figure 5 and Table 2 of shadowsync in virtual time, at the paper's numbers of trainers and threads,
and the sweep.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from leashed import models
from leashed.base.table import MISSING, Table, number
from leashed.cluster.shadowsync.played import DLRM, Played
from leashed.cluster.shadowsync.quality import ALONE, Pass, Sweep, Table2, synchroniser_of
from leashed.cluster.shadowsync.scaling import NONE, Scaling, synchroniser
from leashed.datasets import Split
from leashed.stopping import batches_in
from leashed.studies.study import GoOn, Record

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["VirtualFigure5", "VirtualSweep", "VirtualTable2", "VirtualTable2b"]

_LOSSES = ("train_loss", "eval_loss")


def _word(arm: str) -> str:
    return "no synchronisation" if arm == NONE else arm


@dataclass(frozen=True, kw_only=True)
class VirtualFigure5(Played, Scaling):
    """Examples per second and losses over the number of trainers.

    Args: as of ``Scaling`` and ``Played``. ``bandwidth`` is by default what makes FR-EASGD-5 with two
        servers stop at 14 trainers, as in the paper.
    """

    NAME: ClassVar[str] = "virtual-figure5"

    trainers: tuple[int, ...] = (5, 8, 11, 14, 17, 20)
    servers: tuple[int, ...] = (2, 4)
    gaps: tuple[int, ...] = (5, 30)
    threads: int = 24
    batch_size: int = 4
    repeats: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model == DLRM:
            raise ValueError("model must be mlp here, whose parameters several servers can hold")

    @property
    def length(self) -> int:
        return models.mlp(784, [self.hidden], 10).dimension

    def full(self) -> VirtualFigure5:
        """Every number of trainers from 5 to 20, five seeds each."""
        return dataclasses.replace(self, trainers=tuple(range(5, 21)), repeats=5)

    def measure(self, setting: Record, data: Split | None, go_on: GoOn) -> Record:  # noqa: ARG002
        assert data is not None
        sync, servers = synchroniser(setting["sync"]), setting["servers"]
        return self.play(
            data, setting["trainers"], servers, sync, setting["repeat"], threads=self.threads
        )

    @property
    def told(self) -> str:
        return (
            f"Virtual time: {self.threads} Hogwild threads a trainer, a gradient of {self.batch_size} "
            f"examples takes {1e3 * self.pace:g} ms on average, exponentially distributed; "
            f"{number(4 * self.length / 1e3)} kB of parameters, links of {number(self.bandwidth / 1e6)} "
            f"MB/s each way; {self.passes:g} passes over the data in each run."
        )

    def tables(self, records: Sequence[Record]) -> list[Table]:
        return [*super().tables(records), self._losses(records)]

    def losses(self, records: Sequence[Record], name: str) -> dict[str, dict[int, float]]:
        """A loss by the number of trainers, of every arm with the first number of servers."""
        found: dict[str, dict[int, list[float]]] = {}
        for record in records:
            setting, loss = record["setting"], record["measured"][name]
            if setting["servers"] == self.servers[0] and loss is not None:
                curve = found.setdefault(_word(setting["sync"]), {})
                curve.setdefault(setting["trainers"], []).append(loss)
        return {
            arm: {n: math.fsum(values) / len(values) for n, values in sorted(curve.items())}
            for arm, curve in found.items()
        }

    def loss_panels(self, records: Sequence[Record]) -> dict[str, dict[str, dict[int, float]]]:
        return {name.replace("_", " "): self.losses(records, name) for name in _LOSSES}

    def _losses(self, records: Sequence[Record]) -> Table:
        counts = sorted({record["setting"]["trainers"] for record in records})
        header = ["loss of the first replica, by trainers", *map(str, counts)]
        rows = [
            [
                f"{name.removesuffix('_loss')}, {arm}",
                *(f"{curve[n]:.4f}" if n in curve else MISSING for n in counts),
            ]
            for name in _LOSSES
            for arm, curve in self.losses(records, name).items()
        ]
        return Table(header, rows)


@dataclass(frozen=True, kw_only=True)
class PlayedPass(Played, Pass):
    """What Table 2 and the sweep share."""

    threads: int = 24
    repeats: int = 5

    def iterations(self, examples: int) -> int:
        batches = batches_in(self.passes, examples, self.batch_size)
        return batches // (self.trainers * self.threads)

    def measure(self, setting: Record, data: Split | None, go_on: GoOn) -> Record:  # noqa: ARG002
        assert data is not None
        sync = synchroniser_of(setting, self.iterations(len(data.train)))
        trainers = 1 if setting["sync"] == ALONE else self.trainers
        return self.play(
            data, trainers, self.servers, sync, setting["repeat"], threads=self.threads
        )


@dataclass(frozen=True, kw_only=True)
class VirtualTable2(PlayedPass, Table2):
    """The sync gap's effect on the losses: Table 2(a), 11 trainers and one sync server.

    Args: as of ``Table2`` and ``Played``. ``bandwidth`` is by default what makes S-EASGD's gap the
        paper's 5.21. ``alpha``: elastic parameters α, with each of which all have their arms, since
        the paper publishes none.
    """

    NAME: ClassVar[str] = "virtual-table2"
    LOSSES: ClassVar[dict[str, str]] = {
        **Table2.LOSSES,
        "mean of replicas": "eval_loss_mean",
        "best replica": "eval_loss_best",
    }

    model: str = DLRM
    examples: int = 300_000
    passes: float = 1.0
    kinds: tuple[str, ...] = ("easgd",)
    varying: tuple[tuple[int, ...], ...] = ()
    trainers: int = 11
    bandwidth: float = 5.6e7
    alpha: tuple[float, ...] = (0.3, 0.9)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.alpha:
            raise ValueError("alpha must not be empty")
        if len(set(self.alpha)) < len(self.alpha):
            raise ValueError(f"alpha must have each number once, got {self.alpha}")
        for arm in self.arms():
            synchroniser_of(arm, self.iterations(self.examples))

    def arms(self) -> list[Record]:
        return [
            {
                **arm,
                "settings": {**arm["settings"], **({"alpha": alpha} if arm["settings"] else {})},
            }
            for alpha in self.alpha
            for arm in super(VirtualTable2, self).arms()
            if arm["settings"] or alpha == self.alpha[0]
        ]

    def full(self) -> Self:
        """All synchronisers, and gaps that vary over time."""
        return dataclasses.replace(
            self, kinds=Table2.kinds, varying=Table2.varying, repeats=2 * self.repeats
        )

    @property
    def told(self) -> str:
        return (
            f"Virtual time: {self.passes:g} passes by {self.trainers} trainers of {self.threads} "
            f"Hogwild threads each ({ALONE}: by one trainer alone) of {self.trained}; "
            f"{self.servers} sync servers behind links of {number(self.bandwidth / 1e6)} MB/s each "
            "way; losses of the first replica, of clicks also of the mean of all and of the best on "
            "others, means ± half the 95% interval over the seeds. Examples/s: of virtual seconds."
        )


@dataclass(frozen=True, kw_only=True)
class VirtualTable2b(VirtualTable2):
    """Table 2(b): 20 trainers, whose reading is what they wait for.

    Args: as of ``VirtualTable2``. The paper's six sync servers are one here, of six times the
        bandwidth, since the parameters are one fragment; ``reading`` is what makes S-EASGD's gap
        the paper's 1.008 with it.
    """

    NAME: ClassVar[str] = "virtual-table2b"

    trainers: int = 20
    bandwidth: float = 3.36e8
    reading: float = 0.012


@dataclass(frozen=True, kw_only=True)
class VirtualSweep(PlayedPass, Sweep):
    """The grid of the synchronisers' numbers, where the machine's load is no part of the result.

    Args: as of ``Sweep`` and ``Played``. ``bandwidth`` is by default what makes a trainer's rounds in
        the background about twice as frequent as at the gap of 30, as the paper's BMUF has them.
    """

    NAME: ClassVar[str] = "virtual-sweep"

    model: str = "mlp"
    eta: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)
    threads: int = 2
    batch_size: int = 16
    passes: float = 1.0
    bandwidth: float = 1e6
    examples: int = 20_000

    @property
    def told(self) -> str:
        """How it is measured, in words."""
        return (
            f"Virtual time: evaluation loss of the first replica after {self.passes:g} passes over "
            f"{self.examples:,} examples by {self.trainers} trainers of {self.threads} threads each, a "
            f"gradient of {self.batch_size} examples takes {1e3 * self.pace:g} ms on average, "
            f"exponentially distributed; links of {number(self.bandwidth / 1e6)} MB/s each way; "
            f"η = {self.lr:g}; means ± half the 95% interval over the seeds; the best of each kind first."
        )
