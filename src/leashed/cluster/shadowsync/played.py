"""A run of shadowsync's trainers in virtual time: gradients are real, what they take and what the
links carry is not.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from leashed import models
from leashed.base import checks
from leashed.base.machine import cores
from leashed.cluster.shadowsync.quality import by_bytes
from leashed.cluster.shadowsync.timed import Timed
from leashed.datasets import ClickDataset, ClickSplit, Dataset, Split
from leashed.disciplines import Hogwild
from leashed.models.graphs import Graph
from leashed.models.network import Model
from leashed.rules import SGD, Adagrad
from leashed.simulation.embedding import EmbeddingServers
from leashed.simulation.virtual_time import Cluster, Simulation, TrainerCounts, simulate
from leashed.stopping import Until
from leashed.studies import recommender
from leashed.studies.study import Record, unbroken
from leashed.sync import Synchroniser
from leashed.training.run import mean_loss

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["DLRM", "Played"]

DLRM = "dlrm"
"""The paper's model, on clicks."""

_UPDATE = 0.05  # of a gradient's time: what an update takes, and a copy
_RATE = 8_500.0  # iterations per second of ours, about, evaluations included


@dataclass(frozen=True, kw_only=True)
class Played(Timed):
    """What all need to know.

    Args:
        model: ``"mlp"``, a network on digits by SGD, or ``"dlrm"``, on clicks by Adagrad: its tables'
            rows, the paper's embedding servers', are one copy that all trainers share.
        hidden: width of the network's hidden layer.
        passes: over the data, by all trainers together.
        pace: mean of a gradient's time, which is exponentially distributed, in virtual seconds; an
            update and a copy of the parameters take a twentieth of it.
        reading: mean of the time for which a worker waits for a batch, likewise.
        latency: of a message, in seconds.
        bandwidth: of each server's link, bytes per second each way; under MA and BMUF of each
            trainer's.
        lr: step size.
        examples: of the digits or clicks that are drawn where no data are given.
        seed: of the first repeat.
    """

    NETWORKS: ClassVar[tuple[str, ...]] = ("mlp", DLRM)

    model: str = "mlp"
    hidden: int = 64
    passes: float = 4.0
    pace: float = 0.02
    reading: float = 0.0
    latency: float = 5e-5
    bandwidth: float = 4e8
    lr: float = 0.05
    examples: int = 60_000
    seed: int = 0
    batch_size: int = 4

    def __post_init__(self) -> None:
        if self.model not in self.NETWORKS:
            raise ValueError(f"model must be one of {', '.join(self.NETWORKS)}, got {self.model!r}")
        super().__post_init__()
        checks.whole("hidden", self.hidden)
        checks.whole("examples", self.examples)
        checks.whole("seed", self.seed, 0)
        checks.step("lr", self.lr)
        checks.seconds("reading", self.reading)
        for name in ("passes", "pace", "latency", "bandwidth"):
            checks.real(name, getattr(self, name), 0.0)

    @property
    def iteration(self) -> float:
        """Seconds of a worker's, on average."""
        return self.reading + (1.0 + 2.0 * _UPDATE) * self.pace

    def scaled(self, scale: float) -> Self:
        """With shorter runs."""
        return dataclasses.replace(self, passes=self.passes * scale)

    def seconds(self) -> float:
        iterations = self.passes * self.examples / self.batch_size
        return len(self.settings()) * iterations / _RATE

    def network(self, data: Any) -> Model | Graph:
        """The model."""
        if self.model == DLRM:
            return recommender.MODELS[DLRM].graph()
        return models.mlp(data.features, [self.hidden], data.classes)

    def rows(self, trainers: int) -> EmbeddingServers | None:  # noqa: ARG002 (of who has some)
        """Embedding servers of so many trainers; None: rows are where they are used."""
        return None

    @property
    def trained(self) -> str:
        """What is, and what a gradient takes, in words."""
        name = (
            "an MLP on digits"
            if self.model != DLRM
            else f"{recommender.MODELS[DLRM].words}, on clicks"
        )
        read = (
            f" after a batch has been waited for, {1e3 * self.reading:g} ms" if self.reading else ""
        )
        return (
            f"{name}; a gradient of {self.batch_size} examples takes {1e3 * self.pace:g} ms on average, "
            f"exponentially distributed{read}; η = {self.lr:g}"
        )

    def play(
        self,
        data: Any,
        trainers: int,
        servers: int,
        sync: Synchroniser | None,
        repeat: int,
        *,
        threads: int,
        **fleet: Any,
    ) -> Record:
        """One run, and what is counted of it; ``fleet`` as of ``Cluster.trainers``."""
        crew = Cluster(
            threads,
            ("exponential", {"mean": self.pace}),
            update=_UPDATE * self.pace,
            copy=_UPDATE * self.pace,
            fetch=self.reading,
        )
        model = self.network(data.train)
        links = {"bandwidth": self.bandwidth, "latency": self.latency} | fleet
        played = simulate(
            model,
            data,
            cluster=crew.trainers(trainers, servers=servers, rows=self.rows(trainers), **links),
            sync=sync,
            until=Until(epochs=self.passes),
            discipline=Hogwild(),
            rule=Adagrad(self.lr) if self.model == DLRM else SGD(self.lr),
            batch_size=self.batch_size,
            seed=self.seed + repeat,
        )
        return _told(played, model, data, trainers * threads)


def _told(
    played: Simulation, model: Model | Graph, data: Split | ClickSplit, workers: int
) -> Record:
    result, counts = unbroken(played.result), played.trainers
    assert counts is not None
    # While batches last; afterwards workers run out one by one.
    done = result.gradients - workers
    eps = done * result.config["batch_size"] / counts.drawn if done > 0 else result.mean_eps
    moved = {"bytes_in": counts.bytes_out, "bytes_out": counts.bytes_in}  # by the servers
    return {
        "train_loss": result.final_loss,
        **_evaluated(played, model, data),
        "eval_accuracy": float(result.validation_accuracy[-1]),
        "eps": eps,
        "gap": counts.sync_gap,
        **by_bytes(result.gradients, moved, model.dimension),
        "syncs": int(counts.syncs.sum()),
        "failed": 0,
        "staleness": result.staleness.mean(),
        **_of_rows(counts, result.gradients),
    }


def _of_rows(counts: TrainerCounts, gradients: int) -> Record:
    """Of embedding servers: seconds that a batch has waited for its rows, and its bytes."""
    if not counts.row_bytes_out:
        return {}
    moved = counts.row_bytes_out + counts.row_bytes_in
    return {
        "row_wait": float(counts.row_seconds.sum()) / gradients,
        "row_bytes": moved / gradients,
    }


def _evaluated(played: Simulation, model: Model | Graph, data: Split | ClickSplit) -> Record:
    """Of the first replica; of clicks also of the mean of all, and of the one that has the least loss
    on the first half of the test clicks: all are told of the other half.
    """
    result, test = played.result, data.test
    if isinstance(test, Dataset):
        assert isinstance(model, Model)
        return {"eval_loss": mean_loss(model, test, result.parameters, cores())}
    assert isinstance(model, Graph)
    half = len(test) // 2

    def loss(theta: NDArray[np.float32], clicks: ClickDataset) -> float:
        return model.evaluate(theta, clicks, result.tables).loss

    replicas = [result.parameters] if played.models is None else list(played.models)
    mean: NDArray[np.float32] = np.stack(replicas).mean(axis=0)
    best = min(replicas, key=lambda theta: loss(theta, test[:half]))
    found = {"eval_loss": replicas[0], "eval_loss_mean": mean, "eval_loss_best": best}
    return {name: loss(theta, test[half:]) for name, theta in found.items()}
