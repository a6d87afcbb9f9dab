"""SHAT's experiments in virtual time: accuracy by how workers mix, by the slowest of them, and the
throughput of a server in shards (shat, Table 2 and Figures 4 to 6).

LeNet stands in for ResNet-50 and VGG-16. Momentum 0.9, weight decay 10⁻⁴, a warm-up and a tenth of η
towards the end, at the same shares of a run, are the paper's. Its η = 0.01 n is not: LeNet, which has no
batch normalisation, learns nothing with it where 8 workers each make updates of their own.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leashed import _core, models, modes, schedules, simulation
from leashed.base.machine import cores
from leashed.datasets import Dataset, Split
from leashed.models.network import Model
from leashed.modes import Mode
from leashed.rules import Momentum
from leashed.simulation.virtual_time import Cluster, Simulation
from leashed.stopping import Until
from leashed.training.doubts import ends_are_told

__all__ = ["CLUSTERS", "METHODS", "PAPER", "Asked", "Trained", "train_all"]

METHODS: dict[str, Mode] = {
    "ENSEMBLE": modes.Ensemble(),
    "ASP": modes.ASP(),
    "SHAT-root": modes.SHATRoot(),
    "SHAT": modes.SHAT(),
    "SHAT, log₂": modes.SHAT(base=2),
    "AR-SGD": modes.Sync(),
}
"""Table 2's, SHAT with a binary logarithm too, and AR-SGD: a mean of all gradients at every step."""

CLUSTERS: dict[str, tuple[float, ...]] = {"HO": (), "HE0": (2,), "HE1": (10,), "HE2": (100,)}
"""How many times as long a gradient takes the first worker (section 4.3)."""

HETEROGENEOUS = ("ASP", "SHAT", "SHAT, log₂")
"""Who trains on the clusters with a slow worker; Figure 5 has SHAT alone."""

PAPER = {  # ENSEMBLE, ASP, SHAT-root, SHAT
    2: ((0.9319, 0.9332, 0.9384, 0.9399), (0.9012, 0.9209, 0.9242, 0.9238)),
    4: ((0.9112, 0.9315, 0.9329, 0.9382), (0.8821, 0.9171, 0.9223, 0.9228)),
    8: ((0.8910, 0.9182, 0.9293, 0.9311), (0.8247, 0.9071, 0.9128, 0.9226)),
    16: ((0.8491, 0.9019, 0.9113, 0.9311), (0.7002, 0.8687, 0.9081, 0.9209)),
}
"""Table 2, by workers: of ResNet-50 and of VGG-16."""

# Seconds; the gradient's is the unit. Ours, since the paper gives none: nearly equal workers.
_COMPUTE, _DEVIATION = 1.0, 0.05
_TRANSFER = 0.05  # of a model or a gradient over one link
_UPDATE = 0.01  # of the server, for a push
# Of the paper's 250 epochs: 20 of warm-up, a tenth of η from the 150th on.
_WARMUP, _DROP = 20 / 250, 150 / 250


@dataclass(frozen=True)
class Asked:
    """What to train.

    Args:
        workers: numbers of workers n of Table 2 and Figure 4.
        slowed: n of Figure 5.
        epochs: of each run.
        repeats: runs of each setting, of seeds ``seed``, ``seed + 1`` and so on.
        lr: η is so much times n; the paper's is 0.01.
        momentum: of the server and of the workers' own steps.
        batch_size: examples of a gradient.
        evaluations: of each run, about.
        seed: of the first.
    """

    workers: tuple[int, ...] = (2, 4, 8, 16)
    slowed: int = 8
    epochs: float = 8.0
    repeats: int = 5
    lr: float = 0.0001
    momentum: float = 0.9
    batch_size: int = 32
    evaluations: int = 8
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Trained:
    """One run.

    Attributes:
        method: of ``METHODS``.
        cluster: of ``CLUSTERS``.
        workers: n.
        seed: of the run.
        accuracy: on the test set at the end, of the global model; of ENSEMBLE that of the mean of its
            models' probabilities. NaN where the run met NaN.
        own_accuracy: the mean of the workers' own models' accuracies; NaN without own models.
        seconds: float64 [E]; virtual time of each evaluation.
        epochs: float64 [E]; passes over the data by then.
        over_time: float64 [E]; test accuracy then, of the global model.
        elapsed: virtual seconds.
        alpha: the mean weight of the global model (eq. 4).
        rho: its ρ of eq. 1, α/η at the largest η.
        distance: Σ ‖wⁱ - w̃‖² at the end (the second term of eq. 1 is ρ/2 of it); NaN without own
            models.
    """

    method: str
    cluster: str
    workers: int
    seed: int
    accuracy: float
    own_accuracy: float
    seconds: NDArray[np.float64]
    epochs: NDArray[np.float64]
    over_time: NDArray[np.float64]
    elapsed: float
    alpha: float
    rho: float
    distance: float


@dataclass(frozen=True)
class _Setting:
    method: str
    cluster: str
    workers: int
    seed: int


def settings(asked: Asked) -> list[_Setting]:
    """Of all runs, in the order of the tables."""
    seeds = range(asked.seed, asked.seed + asked.repeats)
    homogeneous = [
        _Setting(method, "HO", n, seed)
        for n in dict.fromkeys((*asked.workers, asked.slowed))
        for method in METHODS
        for seed in seeds
        if n in asked.workers or method in HETEROGENEOUS
    ]
    return homogeneous + [
        _Setting(method, cluster, asked.slowed, seed)
        for cluster in CLUSTERS
        if cluster != "HO"
        for method in HETEROGENEOUS
        for seed in seeds
    ]


def train_all(asked: Asked, data: Split) -> Iterator[Trained]:
    """Every run, in the order of ``settings``, on as many threads as there are cores. Who breaks off,
    by Ctrl-C or by closing the iterator, waits until the runs under way come to their next evaluation.
    """
    given = data.train
    if given.image_shape is None:
        raise ValueError(f"data {given.name} has no image_shape, which LeNet needs")
    model = models.lenet(given.image_shape, given.classes)
    ended = threading.Event()

    def one(setting: _Setting) -> Trained:
        return _train(asked, model, data, setting, ended)

    with ThreadPoolExecutor(cores()) as executor:
        runs = [executor.submit(one, setting) for setting in settings(asked)]
        try:
            for run in runs:
                yield run.result()
        finally:
            ended.set()
            executor.shutdown(cancel_futures=True)


@ends_are_told()
def _train(
    asked: Asked, model: Model, data: Split, setting: _Setting, ended: threading.Event
) -> Trained:
    def go_on(_: object) -> None:
        if ended.is_set():
            raise KeyboardInterrupt

    n, mode = setting.workers, METHODS[setting.method]
    reduces = setting.method == "AR-SGD"
    cluster = _cluster(n, reduces).slower(CLUSTERS[setting.cluster])
    updates = asked.epochs * len(data.train) / asked.batch_size / (n if reduces else 1)
    eta = asked.lr * n
    played = simulation.simulate(
        model,
        data,
        cluster=cluster,
        mode=mode,
        until=Until(epochs=asked.epochs),
        rule=Momentum(_schedule(eta, updates), momentum=asked.momentum, weight_decay=1e-4),
        batch_size=asked.batch_size,
        seed=setting.seed,
        evaluate_every=_lasts(asked, data, setting) / asked.evaluations,
        progress=go_on,
    )
    passes = asked.batch_size * (n if reduces else 1) / len(data.train)  # of an update
    return _judged(model, data.test, setting, played, eta, passes)


def _cluster(n: int, reduces: bool) -> Cluster:
    """Of equal workers. A ring's all-reduce takes every link 2 (n - 1)/n times the gradient, half of
    it on each way of a push, and there is no server.
    """
    if reduces:
        return simulation.normal(n, _COMPUTE, _DEVIATION, copy=_TRANSFER * (n - 1) / n)
    return simulation.normal(n, _COMPUTE, _DEVIATION, update=_UPDATE, copy=_TRANSFER)


def _schedule(eta: float, updates: float) -> schedules.Schedule:
    dropping = schedules.step(eta, every=max(1, round(_DROP * updates)))
    return schedules.warmup(dropping, steps=max(1, round(_WARMUP * updates)))


def _lasts(asked: Asked, data: Split, setting: _Setting) -> float:
    """About how long a run is: all workers get on at their own paces, or all at the slowest one's."""
    slow = CLUSTERS[setting.cluster]
    step = _COMPUTE + 2 * _TRANSFER
    if setting.method == "AR-SGD":
        rate = setting.workers / max(step, *(one * step for one in slow), step)
    else:
        rate = (setting.workers - len(slow) + sum(1.0 / one for one in slow)) / step
    return asked.epochs * len(data.train) / asked.batch_size / rate


def _judged(
    model: Model, test: Dataset, setting: _Setting, played: Simulation, eta: float, passes: float
) -> Trained:
    result = played.result
    over_time = result.validation_accuracy
    accuracy, own, distance = float(over_time[-1]), math.nan, math.nan
    if result.outcome == "crashed":
        accuracy = math.nan
    elif played.models is not None:
        if setting.method == "ENSEMBLE":
            said = sum(model.predict(one, test.x) for one in played.models)
            accuracy = float(np.mean(np.argmax(said, axis=1) == test.y))
        own = float(np.mean([model.evaluate(one, test)[1] for one in played.models]))
        apart = played.models.astype(np.float64) - result.parameters
        distance = float(np.sum(apart**2))
    alpha = _mean_weight(METHODS[setting.method], setting.workers, result.staleness.counts)
    return Trained(
        setting.method,
        setting.cluster,
        setting.workers,
        setting.seed,
        accuracy,
        own,
        result.seconds,
        np.asarray(result.updates * passes, np.float64),
        over_time,
        result.elapsed,
        alpha,
        alpha / eta,
        distance,
    )


def _mean_weight(mode: Mode, n: int, counts: NDArray[np.int64]) -> float:
    """Of eq. 4, over updates that so many others came between."""
    name, numbers = mode.choice()
    own = {key: float(value) for key, value in numbers.items() if isinstance(value, float)}
    machine = _core.PolicyMachine(name, {**own, "workers": n, "batch": 1, "examples": 0})
    weights = [machine.weight(n, c) for c in range(len(counts))]
    return float(np.dot(weights, counts) / max(1, counts.sum()))
