"""The scaling benchmark: every algorithm of the Leashed-SGD paper over thread counts and steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterable
from contextlib import nullcontext

import numpy as np

from leashed.datasets import Dataset
from leashed.studies.plan import (
    DISCIPLINES,
    MODELS,
    PRESETS,
    SHORT,
    Plan,
    Setting,
    build_model,
    conditions_of,
)
from leashed.studies.runs import Run
from leashed.studies.single import Apart, train_setting
from leashed.studies.study import differing, digest
from leashed.training.outcome import Progress

__all__ = [
    "DISCIPLINES",
    "MODELS",
    "PRESETS",
    "SHORT",
    "Plan",
    "Setting",
    "build_model",
    "left",
    "run",
]


def run(
    plan: Plan,
    data: Dataset,
    *,
    settings: Iterable[Setting] | None = None,
    started: Callable[[int, Setting], object] | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Generator[Run, None, None]:
    """Run a plan, one setting after the other, and yield each run as it ends.

    An interrupted run (Ctrl-C) is yielded too, as the last.

    Args:
        plan: what to run.
        data: the training set, with pixels from 0 to 1 where the plan asks for 255.
        settings: which of the plan's; default: all.
        started: called before each run with its number, from 0, and its setting.
        progress: called after every evaluation, as in :func:`leashed.train`.

    Raises:
        ValueError: the plan does not fit the data; before the first run.
        ChildProcessError: a process of an isolated plan ended without a result.
    """
    if plan.batch_size > len(data):
        raise ValueError(
            f"batch_size must be at most the {len(data)} examples of the data, "
            f"got {plan.batch_size}"
        )
    for name in plan.model:
        build_model(name, data)
    told = {"digest": digest(data)}
    data = _with_pixels(data, plan.pixels)
    with Apart(plan, data) if plan.isolated else nullcontext() as apart:
        for number, setting in enumerate(plan.settings() if settings is None else settings):
            if started is not None:
                started(number, setting)
            if apart is None:
                result = train_setting(plan, setting, data, progress)
            else:
                result = apart(setting, progress)
            yield Run.of(dataclasses.replace(result, config={**result.config, **told}))
            if result.reason == "interrupted":
                return


def left(plan: Plan, data: Dataset, runs: Iterable[Run]) -> list[Setting]:
    """The settings of a plan that are not among runs which it, or one with others, has led to.

    Interrupted runs do not count.

    Raises:
        ValueError: a run has been made under other conditions, so that it cannot stand beside those
            of the plan; the message says which.
    """
    asked = plan.conditions(data)
    done = set()
    for run in runs:
        differing(conditions_of(run), asked)
        if run.result.reason != "interrupted":
            done.add(Setting.of(run))
    return [setting for setting in plan.settings() if setting not in done]


def _with_pixels(data: Dataset, white: int) -> Dataset:
    if white == 1:
        return data
    if data.x.min() < 0.0 or data.x.max() > 1.0:
        raise ValueError(
            f"pixels {white} needs data from 0 to 1, as the loaders give them; "
            f"{data.name} has {data.x.min():g} to {data.x.max():g}"
        )
    return dataclasses.replace(data, x=data.x * np.float32(white))
