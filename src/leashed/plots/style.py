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
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from leashed.histogram import Histogram

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


def maybe_log(axes: Axes, values: Sequence[float]) -> bool:
    """A logarithmic vertical axis if all values are positive and span more than a factor of 20.

    Returns:
        Whether the axis is logarithmic now.
    """
    finite = [v for v in values if math.isfinite(v)]
    wide = bool(finite) and min(finite) > 0.0 and max(finite) > 20.0 * min(finite)
    if wide:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(PLAIN)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    return wide


def shares(histogram: Histogram) -> NDArray[np.float64]:
    """float64 [bins]; the counts as shares of their sum."""
    return np.asarray(histogram.counts / max(1, histogram.total), dtype=np.float64)
