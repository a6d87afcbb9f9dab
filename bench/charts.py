"""The page's bar charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from leashed.training.plots.style import style

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#777777")
_WIDTH = 8.0  # inches


@dataclass(frozen=True)
class Bars:
    """Groups of horizontal bars.

    Attributes:
        name: of its file.
        title: above the chart.
        groups: the names down the left side.
        series: by name in the legend, a value for each group; None and infinity leave a gap.
        axis: what the numbers are.
        stacked: whether a group's bars are parts of one.
        line: a number to mark, and what it is.
        marks: likewise, one for each group.
    """

    name: str
    title: str
    groups: Sequence[str]
    series: Mapping[str, Sequence[float | None]]
    axis: str
    stacked: bool = False
    line: tuple[float, str] | None = None
    marks: Sequence[float | None] = ()


def draw(bars: Bars, path: Path) -> None:
    """Save a chart as SVG."""
    rows = len(bars.groups) * (1 if bars.stacked else len(bars.series))
    # Text as text: as outlines it is most of the file.
    with style(), rc_context({"svg.fonttype": "none"}):
        figure = Figure(figsize=(_WIDTH, 1.2 + 0.14 * rows + 0.12 * len(bars.groups)))
        axes = figure.subplots()
        _bars(axes, bars)
        if bars.line is not None:
            axes.axvline(bars.line[0], color="black", linewidth=1.0, label=bars.line[1])
        for place, mark in enumerate(bars.marks):
            if mark is not None:
                axes.vlines(
                    mark,
                    place - 0.45,
                    place + 0.45,
                    color="black",
                    linewidth=1.4,
                    label="_nolegend_" if place else "goal",
                )
        axes.set_yticks(range(len(bars.groups)), bars.groups)
        axes.set_ylim(len(bars.groups) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(bars.axis)
        axes.set_title(bars.title, loc="left")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        figure.savefig(path, format="svg", metadata={"Date": None})


def _bars(axes: Axes, bars: Bars) -> None:
    height = 0.8 if bars.stacked else 0.8 / len(bars.series)
    ends = [0.0] * len(bars.groups)
    for k, (name, values) in enumerate(bars.series.items()):
        shift = 0.0 if bars.stacked else (k - (len(bars.series) - 1) / 2) * height
        lengths = [value if value and math.isfinite(value) else 0.0 for value in values]
        axes.barh(
            [place + shift for place in range(len(bars.groups))],
            lengths,
            height,
            left=ends if bars.stacked else None,
            color=_COLOURS[k % len(_COLOURS)],
            label=name,
        )
        if bars.stacked:
            ends = [end + length for end, length in zip(ends, lengths, strict=True)]
