"""What the scaling benchmark runs: networks, algorithms, threads, steps, and the paper's presets."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any

from leashed._core import default_isa
from leashed.base import checks
from leashed.base.machine import cores, cpu_model
from leashed.datasets import Dataset
from leashed.disciplines import Discipline, Hogwild, Leashed, Locked, Sequential, Synchronous
from leashed.models._parameters import INITIALISATIONS
from leashed.simulation.virtual_time import Costs
from leashed.studies.runs import ALGORITHMS, Run
from leashed.studies.study import digest
from leashed.training.problems.problem import NETWORKS as MODELS
from leashed.training.problems.problem import build_model
from leashed.training.request import MAX_SEED, MAX_THREADS

__all__ = [
    "DISCIPLINES",
    "MODELS",
    "PIXELS",
    "PRESETS",
    "SHORT",
    "Plan",
    "Setting",
    "build_model",
]

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

PIXELS = (1, 255)
"""What white may be."""


@dataclass(frozen=True)
class Setting:
    """One run of a plan."""

    model: str
    algorithm: str
    threads: int
    lr: float
    repeat: int

    @classmethod
    def of(cls, run: Run) -> Setting:
        """That of a run which a plan has led to."""
        repeat = run.result.config["repeat"]
        return cls(run.model, run.algorithm, run.threads, run.lr, repeat)

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
        algorithm: the paper's names of disciplines, of ``ALGORITHMS``.
        threads: numbers of threads m.
        epsilon: precisions ε, as fractions of the initial loss; a run ends at the smallest, and
            the times to all of them are found alike.
        lr: step sizes η.
        repeats: runs of each combination; the k-th has the seed ``seed + k``.
        batch_size: examples per gradient.
        seconds: most per run on real threads. What it ends is unfinished, or has diverged where its
            loss did not fall.
        cap: most per run in virtual time, in T_c, whatever its threads: with more of them a run makes
            more gradients.
        seed: of the first repeat.
        init: initialisation, as for :func:`leashed.train`. The paper's is ``"normal"``, from which
            most of the time to ε goes into leaving a plateau; the presets have it.
        pixels: what white is: 1, as the loaders give it, or 255. The presets have 255.
        evaluate_every: seconds between evaluations of the loss; None: the engine's choice.
        isolated: each run in a process of its own, whose memory has no history of others.
        costs: for each model seconds of T_c, T_u and of a copy, by one thread: the runs are then in
            virtual time, with gradients' times normally distributed around T_c, with a standard
            deviation of a twentieth. Empty: on real threads.
        preset: the step of Table I that the plan is made from, or None.
        short: whether it is made from that step's short form.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    model: tuple[str, ...] = ("mlp",)
    algorithm: tuple[str, ...] = ALGORITHMS
    threads: tuple[int, ...] = (1, 2, 8)
    epsilon: tuple[float, ...] = (0.5,)
    lr: tuple[float, ...] = (0.05,)
    repeats: int = 3
    batch_size: int = 512
    seconds: float = 60.0
    cap: float = 250.0
    seed: int = 0
    init: str = "he"
    pixels: int = 1
    evaluate_every: float | None = None
    isolated: bool = False
    costs: tuple[tuple[float, float, float], ...] = ()
    preset: str | None = None
    short: bool = False

    def __post_init__(self) -> None:
        for name in ("model", "algorithm", "threads", "epsilon", "lr"):
            values = tuple(dict.fromkeys(getattr(self, name)))
            if not values:
                raise ValueError(f"{name} must not be empty")
            object.__setattr__(self, name, values)
        for model in self.model:
            if model not in MODELS:
                raise ValueError(f"model must be among {', '.join(MODELS)}, got {model!r}")
        for algorithm in self.algorithm:
            if algorithm not in ALGORITHMS:
                raise ValueError(
                    f"algorithm must be among {', '.join(ALGORITHMS)}, got {algorithm!r}"
                )
        for m in self.threads:
            checks.whole("threads", m, maximum=MAX_THREADS)
        for fraction in self.epsilon:
            if not 0.0 < checks.real("epsilon", fraction) < 1.0:
                raise ValueError(f"epsilon must lie between 0 and 1, got {fraction:g}")
        for lr in self.lr:
            checks.step("lr", lr)
        checks.whole("repeats", self.repeats)
        checks.whole("batch_size", self.batch_size)
        checks.real("seconds", self.seconds, 0.0)
        checks.real("cap", self.cap, 0.0)
        checks.whole("seed", self.seed, 0, MAX_SEED - self.repeats)
        if self.init not in INITIALISATIONS:
            raise ValueError(f"init must be one of {', '.join(INITIALISATIONS)}, got {self.init!r}")
        if self.pixels not in PIXELS:
            raise ValueError(f"pixels must be 1 or 255 (what white is), got {self.pixels!r}")
        if self.evaluate_every is not None:
            checks.real("evaluate_every", self.evaluate_every, 0.0)
        object.__setattr__(self, "costs", tuple(tuple(each) for each in self.costs))
        if self.costs and len(self.costs) != len(self.model):
            raise ValueError(
                f"costs must be of each of the {len(self.model)} models, got {len(self.costs)}"
            )
        for each in self.costs:
            if not Costs(*each).compute > 0.0:
                raise ValueError(f"costs must have a T_c above 0, got {each}")
        if self.preset not in (None, *_STEPS):
            raise ValueError(f"preset must be one of {', '.join(_STEPS)}, got {self.preset!r}")
        if self.short and self.preset is None:
            raise ValueError("short goes with a preset, one of " + ", ".join(_STEPS))

    def capped(self, most: int) -> tuple[Plan, tuple[int, ...]]:
        """The plan without the thread counts above ``most``, and those that were cut.

        Raises:
            ValueError: none would be left.
        """
        checks.whole("max_threads", most)
        kept = tuple(m for m in self.threads if m <= most)
        cut = tuple(m for m in self.threads if m > most)
        if not kept:
            raise ValueError(
                f"max_threads {most} cuts all thread counts of the plan: "
                f"{', '.join(str(m) for m in cut)}"
            )
        return dataclasses.replace(self, threads=kept), cut

    def costs_of(self, model: str) -> Costs | None:
        """Those of a model; None on real threads."""
        return Costs(*self.costs[self.model.index(model)]) if self.costs else None

    def settings(self) -> list[Setting]:
        """All runs, repeat by repeat, so that a machine that drifts treats all settings alike."""
        return [
            Setting(model, algorithm, m, lr, repeat)
            for repeat in range(self.repeats)
            for model in self.model
            for lr in self.lr
            for algorithm in self.algorithm
            for m in ((1,) if algorithm == "SEQ" else self.threads)
        ]

    def departures(self) -> list[str]:
        """In what the plan departs from its preset, in words; empty without one."""
        if self.preset is None:
            return []
        full = PRESETS[self.preset]
        told = []
        for name, symbol in _LISTS.items():
            here, there = getattr(self, name), getattr(full, name)
            for word, values in (
                ("without", [v for v in there if v not in here]),
                ("with", [v for v in here if v not in there]),
            ):
                if values:
                    told.append(f"{word} {symbol}{', '.join(str(v) for v in values)}")
        if self.repeats != full.repeats:
            told.append(f"repeats {self.repeats} instead of {full.repeats}")
        if self.costs and self.cap != full.cap:
            told.append(f"at most {self.cap:g} T_c a run instead of {full.cap:g}")
        if not self.costs and self.seconds != full.seconds:
            told.append(f"at most {self.seconds:g} s a run instead of {full.seconds:g} s")
        for name in ("batch_size", "seed", "init", "pixels", "evaluate_every", "isolated"):
            here, there = getattr(self, name), getattr(full, name)
            if here != there:
                told.append(f"{name} {here} instead of {there}")
        return told

    def stamp(self, setting: Setting) -> dict[str, Any]:
        """What the ``config`` of a setting's result has besides what ``leashed.train`` writes."""
        return {
            "fractions": list(self.epsilon),
            "seconds": self.seconds,
            "cap": self.cap if self.costs else None,
            "repeat": setting.repeat,
            "pixels": self.pixels,
            "evaluate_every": self.evaluate_every,
            "isolated": self.isolated,
            "costs": [list(each) for each in self.costs],
            "preset": self.preset,
            "short": self.short,
            "departures": self.departures(),
        }

    def conditions(self, data: Dataset) -> dict[str, Any]:
        """What runs here that belong together have in common, by name."""
        return {
            "preset": self.preset,
            "short": self.short,
            "data": data.name,
            "examples": len(data),
            "digest": digest(data),
            "pixels": self.pixels,
            "init": self.init,
            "batch_size": self.batch_size,
            "epsilon": sorted(self.epsilon, reverse=True),
            "seconds": self.seconds,
            "cap": self.cap if self.costs else None,
            "seed": self.seed,
            "evaluate_every": self.evaluate_every,
            "isolated": self.isolated,
            "costs": [list(each) for each in self.costs],
            "cpu": cpu_model(),
            "cores": cores(),
            "isa": default_isa(),
        }


def conditions_of(run: Run) -> dict[str, Any]:
    """As :meth:`Plan.conditions`, of a run; None for what its result does not say."""
    config = run.result.config
    plain = ("preset", "short", "data", "examples", "digest", "pixels", "init", "batch_size")
    after = ("evaluate_every", "isolated")
    machine = ("cpu", "cores", "isa")
    seed, repeat = config.get("seed"), config.get("repeat")
    return {
        **{name: config.get(name) for name in plain},
        "epsilon": list(run.fractions),
        "seconds": config.get("seconds", config["until"].get("seconds")),
        "seed": None if seed is None or repeat is None else seed - repeat,
        "cap": config.get("cap"),
        **{name: config.get(name) for name in after},
        "costs": config.get("costs", []),
        **{name: config.get(name) for name in machine},
    }


_STEPS = ("S1", "S2", "S3", "S4", "S5")
_LISTS = {"model": "", "algorithm": "", "threads": "m = ", "epsilon": "ε = ", "lr": "η = "}

_paper = partial(Plan, init="normal", pixels=255, lr=(0.005,), repeats=11, seconds=600.0)

PRESETS: dict[str, Plan] = {
    "S1": _paper(
        preset="S1",
        threads=(1, 2, 4, 8, 16, 24, 34, 56, 68),
        # The table's, and a tenth of them: what the text's 0.005 makes of the table's 0.05.
        lr=(0.001, 0.003, 0.005, 0.007, 0.009, 0.01, 0.03, 0.05, 0.07, 0.09),
        seconds=120.0,
    ),
    "S2": _paper(preset="S2", threads=(16,), epsilon=(0.5, 0.1, 0.05, 0.025), cap=2500.0),
    "S3": _paper(
        preset="S3",
        model=("cnn",),
        threads=(16,),
        epsilon=(0.75, 0.5, 0.25, 0.1),
        seconds=1800.0,
        cap=1000.0,
    ),
    "S4": _paper(preset="S4", threads=(24, 34, 68), epsilon=(0.75, 0.5, 0.25, 0.1)),
    "S5": _paper(
        preset="S5",
        model=("mlp", "cnn"),
        threads=(16, 24, 34),
        epsilon=(0.5, 0.1),
        seconds=120.0,
        isolated=True,
    ),
}
"""The steps of the paper's Table I. ``docs/papers.md`` says which of it is whose."""


def _shortened(preset: str, **changes: Any) -> Plan:
    algorithms = tuple(
        name for name in ALGORITHMS if name != "SYNC"
    )  # the slowest; not the paper's
    return dataclasses.replace(PRESETS[preset], short=True, algorithm=algorithms, **changes)


# All runs at their longest take 9 minutes, which leaves one for what is around them.
SHORT: dict[str, Plan] = {
    "S1": _shortened(
        "S1", threads=(2, 8, 16), lr=(0.005, 0.01, 0.05), repeats=2, seconds=5.5, cap=220.0
    ),
    "S2": _shortened("S2", repeats=3, seconds=30.0, cap=600.0),
    "S3": _shortened("S3", seconds=8.0, cap=250.0),
    "S4": _shortened("S4", repeats=2, seconds=16.0, cap=100.0),
    "S5": _shortened("S5", repeats=2, seconds=7.0, cap=100.0),
}
"""The same in ten minutes: fewer of everything, and less time for each."""
