"""The style that all figures share: colours, lines and axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from leashed.training.histogram import Histogram

COLOURS = {
    "SEQ": "#000000",
    "SYNC": "#CC79A7",
    "ASYNC": "#E69F00",
    "HOG": "#D55E00",
    "LSH_ps∞": "#0072B2",
    "LSH_ps1": "#56B4E9",
    "LSH_ps0": "#009E73",
}
"""Okabe and Ito's palette, which every kind of colour vision tells apart."""

_DASHES = {"SEQ": ":", "SYNC": "-.", "ASYNC": "--", "HOG": (0, (5, 1))}
_OTHER = "#777777"

PLAIN = FuncFormatter(lambda value, _: f"{value:g}")
"""Labels of logarithmic axes: numbers, not powers of ten."""

_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "font.size": 10.0,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "leashed",
}


def style() -> AbstractContextManager[None]:
    """Within it figures are built and saved in the style they share."""
    return rc_context(_STYLE)


def colour(algorithm: str) -> str:
    """The colour of an algorithm in every figure."""
    return COLOURS.get(algorithm, _OTHER)


def dashes(algorithm: str) -> Any:
    """Its line style: Leashed solid, the others each with dashes of their own."""
    return _DASHES.get(algorithm, "-")


def patches(algorithms: Sequence[str]) -> list[Patch]:
    """Legend entries for boxes."""
    return [Patch(facecolor=colour(a), edgecolor="black", label=a) for a in algorithms]


def lines(algorithms: Sequence[str]) -> list[Line2D]:
    """Legend entries for lines."""
    return [
        Line2D([], [], color=colour(a), linestyle=dashes(a), linewidth=1.8, label=a)
        for a in algorithms
    ]


_WIDE = 20.0
_LABEL = 0.06  # of the axes' height, which a small label takes
_TICKS = 8


class _LogTicks(LogLocator):
    """1, 2 and 5 times the powers of ten, or only those, or every k-th of them: always a few."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        if not 0.0 < vmin < vmax < math.inf:
            return []
        low, high = math.floor(math.log10(vmin)), math.ceil(math.log10(vmax))
        decades = [10.0**k for k in range(low, high + 1)]
        every = 1 + (len(decades) - 1) // _TICKS
        for ticks in ([f * d for d in decades for f in (1.0, 2.0, 5.0)], decades):
            if sum(vmin <= tick <= vmax for tick in ticks) <= _TICKS:
                return ticks
        return decades[::every]


def maybe_log(axes: Axes, values: Sequence[float]) -> bool:
    """A logarithmic vertical axis if all values are positive and span more than a factor of 20.

    Returns:
        Whether the axis is logarithmic now.
    """
    finite = [v for v in values if math.isfinite(v)]
    wide = bool(finite) and min(finite) > 0.0 and max(finite) > _WIDE * min(finite)
    if wide:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(PLAIN)
        axes.yaxis.set_major_locator(_LogTicks())
        axes.yaxis.set_minor_formatter(NullFormatter())
    return wide


def time_axis(axes: Axes, ends: Sequence[float]) -> bool:
    """A horizontal axis from 0 to the last of ``ends``, which no run exceeds.

    Where the ends span more than a factor of 20 it is linear up to half of the first and
    logarithmic from there on, so that short runs beside long ones are seen.

    Returns:
        Whether it is logarithmic in part.
    """
    known = [t for t in ends if math.isfinite(t) and t > 0.0]
    if not known:
        return False
    first, last = min(known), max(known)
    wide = last > _WIDE * first
    if wide:
        axes.set_xscale("symlog", linthresh=0.5 * first, linscale=0.5)
        ticks = _LogTicks().tick_values(0.5 * first, last)
        axes.xaxis.set_major_locator(FixedLocator([0.0, *(t for t in ticks if t >= 0.5 * first)]))
        axes.xaxis.set_major_formatter(PLAIN)
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(0.0, (1.1 if wide else 1.03) * last)
    return wide


def side_labels(axes: Axes, heights: dict[str, float]) -> None:
    """Grey lines across the axes, labelled at their right, where no label covers another.

    Args:
        axes: where; its vertical limits stay as they are with these lines.
        heights: by label.
    """
    for height in heights.values():
        axes.axhline(height, color="#999999", linewidth=0.7, zorder=0)
    axes.set_ylim(axes.get_ylim())
    free = -1.0
    for label, height in sorted(heights.items(), key=lambda item: item[1]):
        at = axes.transLimits.transform(axes.transScale.transform((0.0, height)))[1]
        free = max(float(at), free + _LABEL)
        axes.annotate(
            label,
            (1.0, float(at)),
            xytext=(1.03, free),
            xycoords="axes fraction",
            fontsize="x-small",
            color="#555555",
            ha="left",
            va="center",
            arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.6},
        )


def shares(histogram: Histogram) -> NDArray[np.float64]:
    """float64 [bins]; the counts as shares of their sum."""
    return np.asarray(histogram.counts / max(1, histogram.total), dtype=np.float64)
