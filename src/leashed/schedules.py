"""Learning-rate schedules: η as a function of t, the number of updates applied so far.

A rule takes one in place of its ``lr``; the native core evaluates it once per update. They compose:

    lr = schedules.warmup(schedules.cosine(0.1, total=20_000), steps=500)
    leashed.train(..., rule=leashed.Momentum(lr))

Under ``Leashed`` t is that of the very vector replaced, under ``Hogwild`` the shared counter's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _core
from leashed.base import checks
from leashed.base.choice import Setting

__all__ = ["Schedule", "constant", "cosine", "inverse", "scaled", "step", "warmup"]


@dataclass(frozen=True)
class Schedule:
    """A learning rate that changes while training goes on; made by the functions below.

    Attributes:
        name: which function made it.
        settings: its numbers, and the schedule that it changes, if any.
    """

    name: str
    settings: tuple[tuple[str, float | Schedule], ...]

    @property
    def base(self) -> float:
        """The learning rate that everything else multiplies."""
        values = dict(self.settings)
        inner = values.get("schedule", values.get("lr"))
        return inner.base if isinstance(inner, Schedule) else float(inner or 0.0)

    def setting(self) -> Setting:
        """What the native core makes it from."""
        if self.name == "constant":
            return self.base
        values: dict[str, Setting] = {
            name: value.setting() if isinstance(value, Schedule) else value
            for name, value in self.settings
        }
        return self.name, values

    def at(self, t: ArrayLike, workers: int = 1) -> NDArray[np.float64]:
        """η before updates number ``t``, as the native core evaluates it.

        Args:
            t: whole numbers from 0, of any shape.
            workers: threads; ``scaled`` multiplies by them.

        Returns:
            float64, shaped as ``t``.

        Raises:
            TypeError, ValueError: ``t`` holds something else.
        """
        times = np.asarray(t)
        if times.dtype.kind not in "iu":
            raise TypeError(f"t must hold whole numbers, got dtype {times.dtype}")
        if times.size and times.min() < 0:
            raise ValueError(f"t must be at least 0, got {times.min()}")
        workers = checks.whole("workers", workers)
        flat = np.ascontiguousarray(times.ravel(), dtype=np.uint64)
        values = _core.schedule_values(("schedule", {"lr": self.setting()}), flat, workers)
        return np.asarray(values, np.float64).reshape(times.shape)

    def config(self) -> dict[str, Any]:
        """Its name and settings, as JSON's own types."""
        return {
            "name": self.name,
            **{k: v.config() if isinstance(v, Schedule) else v for k, v in self.settings},
        }


def of_config(told: Mapping[str, Any]) -> Schedule:
    """The schedule whose ``config`` that is."""
    settings = {name: value for name, value in told.items() if name != "name"}
    return Schedule(
        told["name"],
        tuple((k, of_config(v) if isinstance(v, Mapping) else v) for k, v in settings.items()),
    )


def constant(lr: float) -> Schedule:
    """η at every t; a plain number is the same.

    Raises:
        TypeError, ValueError: ``lr`` is not a number from 0.
    """
    return Schedule("constant", (("lr", checks.rate("lr", lr)),))


def step(lr: float, *, every: int, factor: float = 0.1) -> Schedule:
    """η · factor^⌊t / every⌋.

    Args:
        lr: η at first.
        every: updates between two changes.
        factor: above 0.

    Raises:
        TypeError, ValueError: an argument is not such a number.
    """
    return Schedule(
        "step",
        (
            ("lr", checks.rate("lr", lr)),
            ("every", float(checks.whole("every", every))),
            ("factor", checks.real("factor", factor, 0.0)),
        ),
    )


def inverse(lr: float, *, power: float = 0.5, steps: float = 1.0) -> Schedule:
    """η (1 + t / steps)^−power.

    Args:
        lr: η at first.
        power: from 0; with 0.5 η falls as 1/√t, with 1 as 1/t.
        steps: above 0: updates after which η is at 2^−power.

    Raises:
        TypeError, ValueError: an argument is not such a number.
    """
    return Schedule(
        "inverse",
        (
            ("lr", checks.rate("lr", lr)),
            ("power", checks.real("power", power, 0.0, allow=True)),
            ("steps", checks.real("steps", steps, 0.0)),
        ),
    )


def cosine(lr: float, *, total: int, final: float = 0.0) -> Schedule:
    """η' + (η − η')(1 + cos(π t / total)) / 2 with η' = ``final``, and η' from ``total`` on.

    Args:
        lr: η at first.
        total: updates.
        final: from 0.

    Raises:
        TypeError, ValueError: an argument is not such a number.
    """
    return Schedule(
        "cosine",
        (
            ("lr", checks.rate("lr", lr)),
            ("total", float(checks.whole("total", total))),
            ("final", checks.real("final", final, 0.0, allow=True)),
        ),
    )


def warmup(schedule: float | Schedule, *, steps: int, start: float = 0.0) -> Schedule:
    """Another schedule times start + (1 − start)(t + 1) / steps, for the first ``steps`` updates.

    Args:
        schedule: what is warmed up to; its own t goes on from the run's beginning.
        steps: updates; from the last of them on the factor is 1.
        start: from 0 to 1.

    Raises:
        TypeError, ValueError: an argument is not such a number or schedule.
    """
    begin = checks.real("start", start, 0.0, allow=True)
    if begin > 1.0:
        raise ValueError(f"start must be at most 1, got {begin:g}")
    steps = checks.whole("steps", steps)
    return Schedule(
        "warmup", (("schedule", of(schedule)), ("steps", float(steps)), ("start", begin))
    )


def scaled(schedule: float | Schedule) -> Schedule:
    """Another schedule times the number of worker threads: linear scaling, for ``Synchronous``,
    whose batch grows with the threads.

    Raises:
        TypeError, ValueError: ``schedule`` is neither a number from 0 nor a schedule.
    """
    return Schedule("scaled", (("schedule", of(schedule)),))


def of(lr: Any) -> Schedule:
    """``lr`` as a schedule: itself, or a constant.

    Raises:
        TypeError, ValueError: it is neither a schedule nor a number from 0.
    """
    return lr if isinstance(lr, Schedule) else constant(lr)


def setting(lr: float | Schedule) -> Setting:
    """What the native core makes the learning rate from."""
    return of(lr).setting()
