"""Threads in the retry loop over time, beside section IV of leashed-sgd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from leashed.training.plots.style import COLOURS, style


class Counted(Protocol):
    """As :class:`leashed.studies.contention.Point` has it."""

    @property
    def threads(self) -> int: ...
    @property
    def persistence(self) -> float: ...
    @property
    def moments(self) -> NDArray[np.float64]: ...
    @property
    def over_time(self) -> NDArray[np.float64]: ...
    def expected(self) -> NDArray[np.float64]: ...


def over_time(points: Sequence[Counted]) -> Figure:
    """A panel for each persistence bound; a line for each of up to five numbers of threads."""
    played = [point for point in points if len(point.moments)]
    bounds = list(dict.fromkeys(point.persistence for point in played))
    with style():
        figure = Figure(figsize=(5.0 * len(bounds), 4.0))
        panels = figure.subplots(1, len(bounds), squeeze=False)[0]
        for axes, bound in zip(panels, bounds, strict=True):
            chosen = [point for point in played if point.persistence == bound][-5:]
            for point, colour in zip(chosen, list(COLOURS.values())[1:], strict=False):
                milliseconds = 1e3 * point.moments
                axes.plot(milliseconds, point.over_time, color=colour, label=f"m = {point.threads}")
                axes.plot(milliseconds, point.expected(), color=colour, linestyle="--")
            axes.set(title=f"T_p = {bound:g}", xlabel="time [ms]", ylabel="threads in the loop")
            axes.set_yscale("symlog", linthresh=1.0)
            axes.set_ylim(bottom=0.0)
            axes.legend()
    return figure
