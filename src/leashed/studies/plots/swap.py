"""Figures 7 and 4 of extreme-scale-asgd: AUC day by day, and what the rules have accumulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from leashed.training.plots.style import COLOURS, style


class Curve(Protocol):
    """As :class:`leashed.studies.swap.Curve` has it."""

    @property
    def optimizer(self) -> str: ...
    @property
    def days(self) -> NDArray[np.float64]: ...
    @property
    def accumulator(self) -> NDArray[np.float64]: ...
    def intervals(self) -> Sequence[tuple[float, float, float]]: ...


def days(found: Sequence[Curve]) -> Figure:
    """On the left the AUC of each next day, with its 95% interval over the seeds; on the right the
    mean accumulator of the dense parameters.
    """
    with style():
        figure = Figure(figsize=(9.0, 3.5))
        left, right = figure.subplots(1, 2)
        for one, colour in zip(found, list(COLOURS.values())[1:], strict=False):
            mean, low, high = np.array(one.intervals()).T
            day = np.arange(1, len(mean) + 1)
            left.plot(day, mean, color=colour, marker=".", label=one.optimizer)
            if np.isfinite(low).all():
                left.fill_between(day, low, high, color=colour, alpha=0.2, linewidth=0)
            right.plot(one.days, one.accumulator.mean(0), color=colour, label=one.optimizer)
        left.set(xlabel="days trained on", ylabel="AUC of the next day")
        right.set(xlabel="days trained on", ylabel="mean accumulator", yscale="log")
        left.legend()
        right.legend()
    return figure
