"""SHAT's experiments in virtual time: accuracy by how workers mix, by the slowest of them, and the
throughput of a server in shards (shat, Table 2 and Figures 4 to 6).

A small convolutional network with batch normalisation, as the paper's have it, stands in for ResNet-50
and VGG-16; LeNet, without it, is the other choice. Momentum 0.9, weight decay 10⁻⁴, a warm-up and a tenth
of η towards the end, at the same shares of a run, are the paper's. Its η = 0.01 n is one of a sweep, since
each way of mixing may want another.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed import _core, models, modes, schedules, simulation
from leashed.base import checks
from leashed.base.table import MISSING, Table, number
from leashed.datasets import Dataset, Split
from leashed.models.external import External
from leashed.models.network import Model
from leashed.modes import Mode
from leashed.rules import Momentum
from leashed.simulation.virtual_time import Cluster, Simulation
from leashed.stopping import Until
from leashed.studies.intervals import interval
from leashed.studies.normed import Normed
from leashed.studies.sharded import NETS, SHARDINGS, Throughput, imbalance, rate
from leashed.studies.side_by_side import side_by_side
from leashed.studies.study import GoOn, Part, Record, Study, option, revived, unbroken
from leashed.training.doubts import ends_are_told
from leashed.training.options import Observe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CLUSTERS", "METHODS", "PAPER", "Asked", "Trained", "best", "train_all"]

METHODS: dict[str, Mode] = {
    "ENSEMBLE": modes.Ensemble(),
    "ASP": modes.ASP(),
    "SHAT-root": modes.SHATRoot(),
    "SHAT": modes.SHAT(),
    "SHAT, log₂": modes.SHAT(base=2),
    "AR-SGD": modes.AllReduce(),
}
"""Table 2's, SHAT with a binary logarithm too, and AR-SGD: a mean of all gradients at every step."""

CLUSTERS: dict[str, tuple[float, ...]] = {"HO": (), "HE0": (2,), "HE1": (10,), "HE2": (100,)}
"""How many times as long a gradient takes the first worker (section 4.3)."""

HETEROGENEOUS = ("ASP", "SHAT")
"""Who trains on the clusters with a slow worker; Figure 5 has SHAT alone."""

MODELS = ("normed", "lenet")
"""With batch normalisation, and without."""

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
_WATCHED = 2000  # test examples of a curve; what is judged at the end is judged by all
_ROWS = 256  # of the training set that is evaluated, since its loss is not told


@dataclass(frozen=True, eq=False)
class Trained:
    """One run.

    Attributes:
        method: of ``METHODS``.
        cluster: of ``CLUSTERS``.
        workers: n.
        lr: η is so much times n.
        seed: of the run.
        accuracy: on the test set at the end, of the global model; of ENSEMBLE that of the mean of its
            models' probabilities. NaN where the run met NaN.
        own_accuracy: the mean of the workers' own models' accuracies, by the first examples; NaN
            without own models.
        seconds: float64 [E]; virtual time of each evaluation.
        epochs: float64 [E]; passes over the data by then.
        over_time: float64 [E]; test accuracy then, of the global model, by the first examples.
        elapsed: virtual seconds.
        alpha: the mean weight of the global model (eq. 4).
        rho: its ρ of eq. 1, α/η at η = ``lr`` n.
        distance: Σ ‖wⁱ - w̃‖² at the end (the second term of eq. 1 is ρ/2 of it); NaN without own
            models.
    """

    method: str
    cluster: str
    workers: int
    lr: float
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


_NOTE = (
    "A small network stands in for ResNet-50 and VGG-16. In all tables but the sweep each method has the "
    "step with which its mean accuracy with equal workers is the best. Accuracy of the test set: of the "
    "global model; of ENSEMBLE that of the mean of its models' probabilities; of SHAT, log₂ with the binary logarithm "
    "in eq. 4. AR-SGD is a synchronous mean. 95% intervals over seeds; (k crashed): runs that met "
    "NaN, which no mean counts. Differences are of the same seeds. At n = 2 the natural logarithm "
    "gives α = 0 (s/log n ≥ 1.44): SHAT is ENSEMBLE there, beside a server that takes gradients and "
    "whose model nobody takes."
)


@dataclass(frozen=True)
class Asked(Study):
    """What to train.

    Args:
        workers: numbers of workers n of Table 2 and Figure 4.
        slowed: n of Figure 5.
        epochs: of each run.
        repeats: runs of each setting, of seeds ``seed``, ``seed + 1`` and so on.
        lr: η is so much times n, each in turn; the paper's is 0.01.
        model: ``"normed"`` has batch normalisation, ``"lenet"`` has not.
        momentum: of the server and of the workers' own steps.
        batch_size: examples of a gradient.
        evaluations: of each run, about.
        seed: of the first.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    NAME: ClassVar[str] = "shat"
    TITLE: ClassVar[str] = "SHAT: how workers mix with the server's model"
    HELP: ClassVar[str] = (
        "how workers mix with the server's model: SHAT's Table 2 and Figures 4 to 6"
    )
    DESCRIPTION: ClassVar[str] = (
        "Train a small network in virtual time with 2 to 16 workers whose models are their own, or the "
        "server's, or a mixture (SHAT), with equal workers and with a slow one, for several seeds, on "
        "as many threads as there are cores."
    )
    DATA: ClassVar[bool] = True
    SIDE_BY_SIDE: ClassVar[bool] = True

    workers: tuple[int, ...] = option(
        (4, 8, 16),
        "numbers of them",
        partial(checks.whole, minimum=2),
        full=(2, 4, 8, 16),
        short=(4, 8),
    )
    slowed: int = 8
    epochs: float = option(
        3.0, "of each run", partial(checks.real, above=0.0), full=50.0, short=1.0
    )
    repeats: int = option(5, "seeds of each setting", checks.whole, full=11, short=1)
    lr: tuple[float, ...] = option(
        (0.0001, 0.0003, 0.001, 0.003, 0.01),
        "η is so much times n, each in turn; the paper's is 0.01",
        partial(checks.real, above=0.0),
    )
    model: str = option("normed", "with batch normalisation, or without", choices=MODELS)
    momentum: float = option(0.9, "of all rules", partial(checks.real, above=0.0, allow=True))
    batch_size: int = option(32, "examples of a gradient", checks.whole)
    evaluations: int = option(8, "of each run", checks.whole, full=25, command=False)
    seed: int = option(0, "the first", partial(checks.whole, minimum=0))

    def settings(self) -> list[Record]:
        of_each: list[Record] = [
            {"method": one.method, "cluster": one.cluster, "n": one.workers, "lr": one.lr}
            for one in settings(dataclasses.replace(self, repeats=1))
        ]
        of_each += [
            {"net": net, "sharding": sharding, "n": n}
            for net, sharding, n in product(NETS, SHARDINGS, (1, *self.workers))
        ]
        return [{"repeat": repeat, **one} for repeat in range(self.repeats) for one in of_each]

    @classmethod
    def of(cls, records: Sequence[Any]) -> Asked:
        settings = [record["setting"] for record in records if "net" in record["setting"]]
        workers = dict.fromkeys(setting["n"] for setting in settings if setting["n"] > 1)
        return dataclasses.replace(super().of(records), workers=tuple(workers) or cls.workers)

    def measure(self, setting: Record, data: Split, go_on: GoOn) -> Any:
        n, seed = setting["n"], self.seed + setting["repeat"]
        if "net" in setting:
            return {"rate": rate(setting["net"], setting["sharding"], n, seed)}
        one = _Setting(setting["method"], setting["cluster"], n, setting["lr"], seed)
        return _train(self, _net(self.model, data.train), data, one, go_on)

    def parts(self, records: Sequence[Record]) -> list[Part]:
        swept = [revived(Trained, r["measured"]) for r in records if "method" in r["setting"]]
        runs, found = best(swept), _throughputs(records)
        compared = [run for run in runs if run.method in HETEROGENEOUS]

        def over_epochs() -> Figure:
            from leashed.studies.plots import shat  # noqa: PLC0415 (matplotlib is optional)

            return shat.over_epochs(compared)

        def over_time() -> Figure:
            from leashed.studies.plots import shat  # noqa: PLC0415

            return shat.over_time([run for run in compared if run.workers == self.slowed])

        def speedups() -> Figure:
            from leashed.studies.plots import shat  # noqa: PLC0415

            return shat.speedups(found)

        return [
            Part(
                "Table 2: accuracy",
                _accuracies(self, runs),
                "",
                over_epochs,
                "Figure 4: test accuracy of the global model over passes over the data, equal "
                "workers. Lines: means over seeds; bands: the least and the largest.",
            ),
            Part("Above ASP", _above(self, runs)),
            Part("The sweep over η", _sweep(self, swept)),
            Part("Eq. 1: the weight of the global model", _weights(self, runs)),
            Part(
                "Figure 5: a slow worker",
                _slow(self, runs),
                "",
                over_time,
                f"Figure 5: test accuracy over virtual time with {self.slowed} workers, of which the "
                "first takes 2 (HE0), 10 (HE1) and 100 (HE2) times as long.",
            ),
            Part(
                "Figure 6: speedup by sharding",
                _speedups(found),
                "",
                speedups,
                "Figure 6: updates per second over those of one worker with one server. A gradient "
                "takes a second; what a push takes one server is in the table, and each of four "
                "takes its share of it.",
            ),
            Part("", None, _NOTE),
        ]


@dataclass(frozen=True)
class _Setting:
    method: str
    cluster: str
    workers: int
    lr: float
    seed: int


def settings(asked: Asked) -> list[_Setting]:
    """Of all runs, in the order of the tables."""
    seeds = range(asked.seed, asked.seed + asked.repeats)
    homogeneous = [
        _Setting(method, "HO", n, lr, seed)
        for n in dict.fromkeys((*asked.workers, asked.slowed))
        for method in METHODS
        for lr in asked.lr
        for seed in seeds
        if n in asked.workers or method in HETEROGENEOUS
    ]
    return homogeneous + [
        _Setting(method, cluster, asked.slowed, lr, seed)
        for cluster in CLUSTERS
        if cluster != "HO"
        for method in HETEROGENEOUS
        for lr in asked.lr
        for seed in seeds
    ]


def train_all(asked: Asked, data: Split) -> Iterator[Trained]:
    """Every run, in the order of ``settings``, on as many threads as there are cores."""
    net = _net(asked.model, data.train)
    return side_by_side(lambda one: _train(asked, net, data, one, lambda _: None), settings(asked))


class _Net(NamedTuple):
    """What is trained: how it begins, by seed, and what it says of each class, by parameters."""

    model: Model | External
    init: Callable[[int], Any]
    says: Callable[[Any, Dataset], NDArray[np.float32]]


def _net(name: str, given: Dataset) -> _Net:
    if name == "normed":
        net = Normed(given)
        return _Net(net.model, net.init, lambda theta, data: _softmax(net.logits(theta, data.x)))
    if given.image_shape is None:
        raise ValueError(f"data {given.name} has no image_shape, which LeNet needs")
    model = models.lenet(given.image_shape, given.classes)
    return _Net(model, lambda _: "he", lambda theta, data: model.predict(theta, data.x))


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    e = np.exp(logits - logits.max(1, keepdims=True))
    shares: NDArray[np.float32] = e / e.sum(1, keepdims=True)
    return shares


@ends_are_told()
def _train(
    asked: Asked,
    net: _Net,
    data: Split,
    setting: _Setting,
    go_on: GoOn,
) -> Trained:
    n, mode = setting.workers, METHODS[setting.method]
    reduces = setting.method == "AR-SGD"
    cluster = _cluster(n).slower(CLUSTERS[setting.cluster])
    updates = asked.epochs * len(data.train) / asked.batch_size / (n if reduces else 1)
    eta = setting.lr * n
    played = simulation.simulate(
        net.model,
        Split(data.train, data.test.head(_WATCHED)),
        cluster=cluster,
        mode=mode,
        until=Until(epochs=asked.epochs),
        rule=Momentum(_schedule(eta, updates), momentum=asked.momentum, weight_decay=1e-4),
        batch_size=asked.batch_size,
        seed=setting.seed,
        init=net.init(setting.seed),
        observe=Observe(go_on, every=_lasts(asked, data, setting) / asked.evaluations, rows=_ROWS),
    )
    passes = asked.batch_size * (n if reduces else 1) / len(data.train)  # of an update
    return _judged(net, data.test, setting, played, eta, passes)


def _cluster(n: int) -> Cluster:
    """Of equal workers."""
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
    net: _Net, test: Dataset, setting: _Setting, played: Simulation, eta: float, passes: float
) -> Trained:
    result = unbroken(played.result)
    external = isinstance(net.model, External)  # which evaluates the share of wrong answers
    over_time = 1.0 - result.validation_loss if external else result.validation_accuracy
    accuracy, own, distance = math.nan, math.nan, math.nan
    if result.outcome != "crashed":
        said, watched = net.says(result.parameters, test), test.head(_WATCHED)
        if played.models is not None:
            if setting.method == "ENSEMBLE":
                said = np.mean([net.says(one, test) for one in played.models], axis=0)
            each = [net.says(one, watched) for one in played.models]
            own = float(np.mean([_right(one, watched) for one in each]))
            apart = played.models.astype(np.float64) - result.parameters
            distance = float(np.sum(apart**2))
        accuracy = _right(said, test)
    alpha = _mean_weight(METHODS[setting.method], setting.workers, result.staleness.counts)
    return Trained(
        setting.method,
        setting.cluster,
        setting.workers,
        setting.lr,
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


def _right(said: NDArray[np.float32], test: Dataset) -> float:
    """The share of right answers; NaN where what is said is no number."""
    right = float(np.mean(np.argmax(said, axis=1) == test.y))
    return right if np.isfinite(said).all() else math.nan


def _mean_weight(mode: Mode, n: int, counts: NDArray[np.int64]) -> float:
    """Of eq. 4, over updates that so many others came between."""
    name, numbers = mode.choice()
    own = {key: float(value) for key, value in numbers.items() if isinstance(value, float)}
    machine = _core.PolicyMachine(name, {**own, "workers": n, "batch": 1, "examples": 0})
    weights = [machine.weight(n, c) for c in range(len(counts))]
    return float(np.dot(weights, counts) / max(1, counts.sum()))


Value = Callable[[Trained], float]


def _of(runs: Sequence[Trained], method: str, workers: int, cluster: str = "HO") -> list[Trained]:
    return [
        run for run in runs if (run.method, run.workers, run.cluster) == (method, workers, cluster)
    ]


def best(runs: Sequence[Trained]) -> list[Trained]:
    """Of each method and number of workers the runs with the step that is the best with equal workers:
    whose mean accuracy is the highest, a run that met NaN counting as 0.
    """
    steps: dict[tuple[str, int], dict[float, list[float]]] = {}
    for run in runs:
        if run.cluster == "HO":
            of = steps.setdefault((run.method, run.workers), {}).setdefault(run.lr, [])
            of.append(0.0 if math.isnan(run.accuracy) else run.accuracy)
    chosen = {
        key: max(each, key=lambda lr: sum(each[lr]) / len(each[lr])) for key, each in steps.items()
    }
    return [run for run in runs if run.lr == chosen.get((run.method, run.workers))]


def _sweep(asked: Asked, runs: Sequence[Trained]) -> Table:
    """Accuracy with equal workers at every step, and SHAT's difference to ASP at the same one."""
    rows = []
    for n, lr in product(asked.workers, asked.lr):
        of = {method: [run for run in _of(runs, method, n) if run.lr == lr] for method in METHODS}
        apart = [
            shat.accuracy - asp.accuracy
            for shat, asp in zip(of.get("SHAT", []), of.get("ASP", []), strict=False)
            if not math.isnan(shat.accuracy - asp.accuracy)
        ]
        row = [
            f"{n}",
            f"{lr:g}",
            *(_shown(of[method], lambda run: run.accuracy) for method in METHODS),
        ]
        rows.append([*row, interval(apart).text() if apart else MISSING])
    return Table(["n", "η/n", *METHODS, "SHAT − ASP"], rows)


def _shown(runs: Sequence[Trained], value: Value, digits: int = 4) -> str:
    """Mean ± half the interval, of the runs that have a value."""
    values = [found for run in runs if not math.isnan(found := value(run))]
    crashed = sum(math.isnan(run.accuracy) for run in runs)
    note = f" ({crashed} crashed)" if crashed else ""
    return (interval(values).text(digits) if values else MISSING) + note


def _accuracies(asked: Asked, runs: Sequence[Trained]) -> Table:
    return Table(
        ["n", *METHODS, "ENSEMBLE's own"],
        [
            [str(n)]
            + [_shown(_of(runs, method, n), lambda run: run.accuracy) for method in METHODS]
            + [_shown(_of(runs, "ENSEMBLE", n), lambda run: run.own_accuracy)]
            for n in asked.workers
        ],
    )


def _above(asked: Asked, runs: Sequence[Trained]) -> Table:
    """Differences of the same seed, beside the paper's."""
    others = [method for method in METHODS if method != "ASP"]
    rows = []
    for n in asked.workers:
        asp = [run.accuracy for run in _of(runs, "ASP", n)]
        row = [str(n)]
        for method in others:
            pairs = zip(_of(runs, method, n), asp, strict=True)
            apart = [run.accuracy - base for run, base in pairs]
            known = [one for one in apart if not math.isnan(one)]
            row.append(interval(known).text() if known else MISSING)
        printed = PAPER.get(n, ())
        row += [f"{shat - asp:+.4f}" for _, asp, _, shat in printed] or [MISSING] * 2
        rows.append(row)
    return Table(["n", *others, "the paper's SHAT: ResNet-50", "VGG-16"], rows)


def _sound(runs: Sequence[Trained]) -> list[Trained]:
    """Without those that met NaN."""
    return [run for run in runs if not math.isnan(run.accuracy)]


def _mean(values: Iterable[float], digits: int = 3) -> str:
    found = list(values)
    return number(sum(found) / len(found), digits) if found else MISSING


def _weights(asked: Asked, runs: Sequence[Trained]) -> Table:
    rows = []
    for n in asked.workers:
        for method in METHODS:
            chosen = _sound(_of(runs, method, n))
            rows.append(
                [
                    method,
                    str(n),
                    _mean(run.alpha for run in chosen),
                    _mean(run.rho for run in chosen),
                    _shown(chosen, lambda run: run.distance, 1),
                    _shown(chosen, lambda run: run.own_accuracy),
                ]
            )
    header = [
        "method",
        "n",
        "mean α",
        "ρ = α/η",
        "Σ ‖w − w̃‖²",
        "accuracy of the workers' own models",
    ]
    return Table(header, rows)


def _slow(asked: Asked, runs: Sequence[Trained]) -> Table:
    n = asked.slowed
    return Table(
        ["method", "cluster", "accuracy", "mean α", "virtual time"],
        [
            [
                method,
                cluster,
                _shown(chosen, lambda run: run.accuracy),
                _mean(run.alpha for run in _sound(chosen)),
                _mean((run.elapsed for run in _sound(chosen)), 4),
            ]
            for method in HETEROGENEOUS
            for cluster in CLUSTERS
            if (chosen := _of(runs, method, n, cluster))
        ],
    )


def _speedups(found: Sequence[Throughput]) -> Table:
    workers = list(dict.fromkeys(one.workers for one in found))
    rows = []
    for net, (_, update) in NETS.items():
        unit = next(one for one in found if one.net == net).rates.mean()
        for name in SHARDINGS:
            rates = [one.rates for one in found if (one.net, one.sharding) == (net, name)]
            rows.append(
                [net, number(update), name, number(imbalance(net, name))]
                + [interval([float(rate / unit) for rate in same]).text(2) for same in rates]
            )
    header = ["net", "a push", "sharding", "largest shard over the mean"]
    return Table([*header, *(f"n = {n}" for n in workers)], rows)


def _throughputs(records: Sequence[Record]) -> list[Throughput]:
    rates: dict[tuple[str, str, int], list[float]] = {}
    for record in records:
        if "net" in (setting := record["setting"]):
            one = rates.setdefault((setting["net"], setting["sharding"], setting["n"]), [])
            one.append(record["measured"]["rate"])
    return [Throughput(*key, np.array(values)) for key, values in rates.items()]
