"""The scaling benchmark: every algorithm of the Leashed-SGD paper over thread counts and steps."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from leashed import _check, models
from leashed.datasets import Dataset
from leashed.disciplines import Discipline, Hogwild, Leashed, Locked, Sequential, Synchronous
from leashed.models import INITIALISATIONS, Model
from leashed.rules import SGD
from leashed.runs import ALGORITHMS, Run
from leashed.stopping import Until
from leashed.train import MAX_SEED, MAX_THREADS, Progress, train

__all__ = ["DISCIPLINES", "MODELS", "PRESETS", "Plan", "Setting", "build_model", "run"]

DISCIPLINES: dict[str, Discipline] = {
    discipline.label: discipline
    for discipline in (
        Sequential(),
        Synchronous(),
        Locked(),
        Hogwild(),
        Leashed(),
        Leashed(persistence=1),
        Leashed(persistence=0),
    )
}
"""The paper's algorithms by their names, and SYNC."""

MODELS = ("mlp", "cnn", "lenet")

_NO_PARAMETERS = np.empty(0, dtype=np.float32)


def build_model(name: str, data: Dataset) -> Model:
    """The named network for a data set: ``mlp`` (Table II), ``cnn`` (Table III) or ``lenet``.

    Raises:
        ValueError: the name is unknown, or the network needs images and ``data`` has none.
    """
    if name == "mlp":
        return models.mlp(data.features, [128, 128, 128], data.classes)
    if name not in MODELS:
        raise ValueError(f"model must be one of {', '.join(MODELS)}, got {name!r}")
    if data.image_shape is None:
        raise ValueError(f"model {name} needs images, but {data.name} has no image_shape")
    build = models.cnn if name == "cnn" else models.lenet
    return build(data.image_shape, data.classes)


@dataclass(frozen=True)
class Setting:
    """One run of a plan."""

    model: str
    algorithm: str
    threads: int
    lr: float
    repeat: int

    def __str__(self) -> str:
        return (
            f"{self.model} {self.algorithm} m={self.threads} η={self.lr:g} repeat {self.repeat + 1}"
        )


@dataclass(frozen=True)
class Plan:
    """What a benchmark runs: all combinations of models, threads, steps and algorithms.

    ``SEQ`` runs with one thread only, whatever ``threads`` holds.

    Args:
        model: names of networks.
        threads: numbers of threads m.
        epsilon: precisions ε, as fractions of the initial loss; a run ends at the smallest, and
            the times to the others are read off its evaluations.
        lr: step sizes η.
        repeats: runs of each combination; the k-th has the seed ``seed + k``.
        batch_size: examples per gradient.
        seconds: after which a run counts as diverged.
        seed: of the first repeat.
        init: initialisation, as for :func:`leashed.train`. The paper's is ``"normal"``, from which
            most of the time to ε goes into leaving a plateau; the presets have it.
        evaluate_every: seconds between evaluations of the loss; None: the engine's choice.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    model: tuple[str, ...] = ("mlp",)
    threads: tuple[int, ...] = (1, 2, 8)
    epsilon: tuple[float, ...] = (0.5,)
    lr: tuple[float, ...] = (0.05,)
    repeats: int = 3
    batch_size: int = 512
    seconds: float = 60.0
    seed: int = 0
    init: str = "he"
    evaluate_every: float | None = None

    def __post_init__(self) -> None:
        for name in ("model", "threads", "epsilon", "lr"):
            values = tuple(dict.fromkeys(getattr(self, name)))
            if not values:
                raise ValueError(f"{name} must not be empty")
            object.__setattr__(self, name, values)
        for model in self.model:
            if model not in MODELS:
                raise ValueError(f"model must be among {', '.join(MODELS)}, got {model!r}")
        for m in self.threads:
            _check.whole("threads", m, maximum=MAX_THREADS)
        for fraction in self.epsilon:
            if not 0.0 < _check.real("epsilon", fraction) < 1.0:
                raise ValueError(f"epsilon must lie between 0 and 1, got {fraction:g}")
        for lr in self.lr:
            _check.step("lr", lr)
        _check.whole("repeats", self.repeats)
        _check.whole("batch_size", self.batch_size)
        _check.real("seconds", self.seconds, 0.0)
        _check.whole("seed", self.seed, 0, MAX_SEED - self.repeats)
        if self.init not in INITIALISATIONS:
            raise ValueError(f"init must be one of {', '.join(INITIALISATIONS)}, got {self.init!r}")
        if self.evaluate_every is not None:
            _check.real("evaluate_every", self.evaluate_every, 0.0)

    def capped(self, most: int) -> tuple[Plan, tuple[int, ...]]:
        """The plan without the thread counts above ``most``, and those that were cut.

        Raises:
            ValueError: none would be left.
        """
        _check.whole("max_threads", most)
        kept = tuple(m for m in self.threads if m <= most)
        cut = tuple(m for m in self.threads if m > most)
        if not kept:
            raise ValueError(
                f"max_threads {most} cuts all thread counts of the plan: "
                f"{', '.join(str(m) for m in cut)}"
            )
        return dataclasses.replace(self, threads=kept), cut

    def settings(self) -> list[Setting]:
        """All runs, repeat by repeat, so that a machine that drifts treats all settings alike."""
        return [
            Setting(model, algorithm, m, lr, repeat)
            for repeat in range(self.repeats)
            for model in self.model
            for lr in self.lr
            for algorithm in ALGORITHMS
            for m in ((1,) if algorithm == "SEQ" else self.threads)
        ]


_paper = partial(Plan, init="normal")

PRESETS: dict[str, Plan] = {
    "S1": _paper(
        threads=(1, 2, 4, 8, 16, 24, 34, 56, 68),
        lr=(0.01, 0.03, 0.05, 0.07, 0.09),
        repeats=11,
    ),
    "S2": _paper(threads=(16,), epsilon=(0.5, 0.1, 0.05, 0.025), repeats=11),
    "S3": _paper(model=("cnn",), threads=(16,), epsilon=(0.75, 0.5, 0.25, 0.1), repeats=11),
    "S4": _paper(threads=(24, 34, 68), epsilon=(0.75, 0.5, 0.25, 0.1), repeats=11),
    "S5": _paper(model=("mlp", "cnn"), threads=(16, 24, 34), repeats=11),
}
"""The steps of the paper's Table I."""


def run(
    plan: Plan,
    data: Dataset,
    *,
    started: Callable[[int, Setting], object] | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Iterator[Run]:
    """Run a plan, one setting after the other, and yield each run as it ends.

    The results come without their parameters, so that keeping them does not add to the memory
    that later runs measure. An interrupted run (Ctrl-C) is yielded too, as the last.

    Args:
        plan: what to run.
        data: the training set.
        started: called before each run with its number, from 0, and its setting.
        progress: called after every evaluation, as in :func:`leashed.train`.

    Raises:
        ValueError: the plan does not fit the data; before the first run.
    """
    if plan.batch_size > len(data):
        raise ValueError(
            f"batch_size must be at most the {len(data)} examples of the data, "
            f"got {plan.batch_size}"
        )
    networks = {name: build_model(name, data) for name in plan.model}
    until = Until(loss_fraction=min(plan.epsilon), seconds=plan.seconds)
    for number, setting in enumerate(plan.settings()):
        if started is not None:
            started(number, setting)
        _forget_memory()
        result = train(
            networks[setting.model],
            data,
            until=until,
            discipline=DISCIPLINES[setting.algorithm],
            rule=SGD(setting.lr),
            threads=setting.threads,
            batch_size=plan.batch_size,
            seed=plan.seed + setting.repeat,
            init=plan.init,
            evaluate_every=plan.evaluate_every,
            progress=progress,
        )
        config = {**result.config, "fractions": list(plan.epsilon), "repeat": setting.repeat}
        yield Run.of(dataclasses.replace(result, config=config, parameters=_NO_PARAMETERS))
        if result.reason == "interrupted":
            return


def _forget_memory() -> None:
    """Gives freed memory back to the system and starts its peak anew.

    So the memory that a run reports is not that of the runs before it in the same process. Where
    the system cannot do it, that is what it reports.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except (OSError, AttributeError):
        pass
