"""Figure 5 and Table 2 of shadowsync in virtual time, at the paper's numbers of trainers and threads,
and the sweep: gradients are real, what they take and what the links carry is not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from leashed import models
from leashed.base import checks
from leashed.base.machine import cores
from leashed.base.table import MISSING, Table, number
from leashed.cluster.shadowsync.quality import (
    ALONE,
    Pass,
    Sweep,
    Table2,
    by_bytes,
    synchroniser_of,
)
from leashed.cluster.shadowsync.scaling import NONE, Scaling, synchroniser
from leashed.cluster.shadowsync.timed import Timed
from leashed.datasets import Dataset, Split
from leashed.disciplines import Hogwild
from leashed.models.network import Model
from leashed.rules import SGD
from leashed.simulation.virtual_time import Cluster, Simulation, simulate
from leashed.stopping import Until, batches_in
from leashed.studies.study import GoOn, Record, unbroken
from leashed.sync import Synchroniser
from leashed.training.run import mean_loss

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["VirtualFigure5", "VirtualSweep", "VirtualTable2"]

_UPDATE = 0.05  # of a gradient's time: what an update takes, and a copy
_RATE = 8_500.0  # iterations per second of ours, about, evaluations included
_LOSSES = ("train_loss", "eval_loss")


@dataclass(frozen=True, kw_only=True)
class Played(Timed):
    """What both need to know.

    Args:
        hidden: width of the network's hidden layer.
        passes: over the data, by all trainers together.
        pace: mean of a gradient's time, which is exponentially distributed, in virtual seconds; an
            update and a copy of the parameters take a twentieth of it.
        latency: of a message, in seconds.
        bandwidth: of each server's link, bytes per second each way; under MA and BMUF of each
            trainer's.
        lr: step size.
        examples: of the digits that are drawn where no data are given.
        seed: of the first repeat.
    """

    hidden: int = 64
    passes: float = 4.0
    pace: float = 0.02
    latency: float = 5e-5
    bandwidth: float = 4e8
    lr: float = 0.05
    examples: int = 60_000
    seed: int = 0
    threads: int = 24
    batch_size: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("hidden", self.hidden)
        checks.whole("examples", self.examples)
        checks.whole("seed", self.seed, 0)
        checks.step("lr", self.lr)
        for name in ("passes", "pace", "latency", "bandwidth"):
            checks.real(name, getattr(self, name), 0.0)

    def scaled(self, scale: float) -> Self:
        """With shorter runs."""
        return dataclasses.replace(self, passes=self.passes * scale)

    def seconds(self) -> float:
        iterations = self.passes * self.examples / self.batch_size
        return len(self.settings()) * iterations / _RATE

    def network(self, data: Dataset) -> Model:
        """The model."""
        return models.mlp(data.features, [self.hidden], data.classes)

    def play(
        self, data: Split, trainers: int, servers: int, sync: Synchroniser | None, repeat: int
    ) -> Record:
        """One run, and what is counted of it."""
        crew = Cluster(
            self.threads,
            ("exponential", {"mean": self.pace}),
            update=_UPDATE * self.pace,
            copy=_UPDATE * self.pace,
        )
        model = self.network(data.train)
        played = simulate(
            model,
            data,
            cluster=crew.trainers(
                trainers, servers=servers, bandwidth=self.bandwidth, latency=self.latency
            ),
            sync=sync,
            until=Until(epochs=self.passes),
            discipline=Hogwild(),
            rule=SGD(self.lr),
            batch_size=self.batch_size,
            seed=self.seed + repeat,
        )
        return _told(played, model, data, trainers * self.threads)


def _told(played: Simulation, model: Model, data: Split, workers: int) -> Record:
    result, counts = unbroken(played.result), played.trainers
    assert counts is not None
    # While batches last; afterwards workers run out one by one.
    done = result.gradients - workers
    eps = done * result.config["batch_size"] / counts.drawn if done > 0 else result.mean_eps
    moved = {"bytes_in": counts.bytes_out, "bytes_out": counts.bytes_in}  # by the servers
    return {
        "train_loss": result.final_loss,
        "eval_loss": mean_loss(model, data.test, result.parameters, cores()),
        "eval_accuracy": float(result.validation_accuracy[-1]),
        "eps": eps,
        "gap": counts.sync_gap,
        **by_bytes(result.gradients, moved, model.dimension),
        "syncs": int(counts.syncs.sum()),
        "failed": 0,
        "staleness": result.staleness.mean(),
    }


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
    repeats: int = 1

    @property
    def length(self) -> int:
        return models.mlp(784, [self.hidden], 10).dimension

    def full(self) -> VirtualFigure5:
        """Every number of trainers from 5 to 20, five seeds each."""
        return dataclasses.replace(self, trainers=tuple(range(5, 21)), repeats=5)

    def measure(self, setting: Record, data: Split | None, go_on: GoOn) -> Record:  # noqa: ARG002
        assert data is not None
        sync = synchroniser(setting["sync"])
        return self.play(data, setting["trainers"], setting["servers"], sync, setting["repeat"])

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

    repeats: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model != "mlp":
            raise ValueError(f"model must be mlp in virtual time, got {self.model!r}")

    def iterations(self, examples: int) -> int:
        batches = batches_in(self.passes, examples, self.batch_size)
        return batches // (self.trainers * self.threads)

    def measure(self, setting: Record, data: Split | None, go_on: GoOn) -> Record:  # noqa: ARG002
        assert data is not None
        sync = synchroniser_of(setting, self.iterations(len(data.train)))
        trainers = 1 if setting["sync"] == ALONE else self.trainers
        return self.play(data, trainers, self.servers, sync, setting["repeat"])


@dataclass(frozen=True, kw_only=True)
class VirtualTable2(PlayedPass, Table2):
    """The sync gap's effect on the losses.

    Args: as of ``Table2`` and ``Played``.
    """

    NAME: ClassVar[str] = "virtual-table2"

    kinds: tuple[str, ...] = ("easgd",)
    varying: tuple[tuple[int, ...], ...] = ()
    trainers: int = 11

    def full(self) -> VirtualTable2:
        """All synchronisers, and gaps that vary over time."""
        return dataclasses.replace(
            self, kinds=Table2.kinds, varying=Table2.varying, repeats=2 * self.repeats
        )

    @property
    def told(self) -> str:
        return (
            f"Virtual time: {self.passes:g} passes by {self.trainers} trainers of {self.threads} "
            f"Hogwild threads each ({ALONE}: by one trainer alone), a gradient of {self.batch_size} "
            f"examples takes {1e3 * self.pace:g} ms on average, exponentially distributed; "
            f"{self.servers} sync servers behind links of {number(self.bandwidth / 1e6)} MB/s each "
            f"way; η = {self.lr:g}; losses of the first replica, means ± half the 95% interval over "
            "the seeds. Examples/s: of virtual seconds."
        )


@dataclass(frozen=True, kw_only=True)
class VirtualSweep(PlayedPass, Sweep):
    """The grid of the synchronisers' numbers, where the machine's load is no part of the result.

    Args: as of ``Sweep`` and ``Played``. ``bandwidth`` is by default what makes a trainer's rounds in
        the background about twice as frequent as at the gap of 30, as the paper's BMUF has them.
    """

    NAME: ClassVar[str] = "virtual-sweep"

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
