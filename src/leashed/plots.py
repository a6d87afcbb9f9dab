"""Drawing with matplotlib: the style shared by all figures, and the picture of one run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

try:
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter
except ImportError as error:
    raise ImportError("plots need matplotlib: pip install leashed[plot]") from error

if TYPE_CHECKING:
    from leashed.histogram import Histogram
    from leashed.result import TrainResult

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
_MARKERS = {
    "SEQ": "x",
    "SYNC": "v",
    "ASYNC": "s",
    "HOG": "D",
    "LSH_ps∞": "o",
    "LSH_ps1": "^",
    "LSH_ps0": "P",
}
_OTHER = "#777777"

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


def marker(algorithm: str) -> str:
    """Its marker."""
    return _MARKERS.get(algorithm, ".")


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
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    return wide


def shares(histogram: Histogram) -> NDArray[np.float64]:
    """float64 [bins]; the counts as shares of their sum."""
    return np.asarray(histogram.counts / max(1, histogram.total), dtype=np.float64)


def result_figure(result: TrainResult) -> Figure:
    """One run: loss, accuracy, examples per second over time, and the staleness distribution."""
    with style():
        figure = Figure(figsize=(9.0, 6.0))
        (loss, accuracy), (eps, staleness) = figure.subplots(2, 2)
        blue, orange = COLOURS["LSH_ps∞"], COLOURS["HOG"]

        loss.plot(result.seconds, result.loss, color=blue)
        loss.set(title="Loss", xlabel="time [s]", ylabel="mean training loss")
        maybe_log(loss, list(result.loss))

        accuracy.plot(result.seconds, 100.0 * result.accuracy, color=blue, label="training")
        if not np.isnan(result.validation_accuracy).all():
            accuracy.plot(
                result.seconds,
                100.0 * result.validation_accuracy,
                color=orange,
                linestyle="--",
                label="validation",
            )
            accuracy.legend()
        accuracy.set(title="Accuracy", xlabel="time [s]", ylabel="correct [%]")

        eps.plot(result.seconds[1:], result.eps[1:], color=blue, drawstyle="steps-pre")
        eps.set(title="Throughput", xlabel="time [s]", ylabel="examples per second")
        eps.set_ylim(bottom=0.0)

        share = shares(result.staleness)
        staleness.bar(np.arange(share.size), 100.0 * share, color=blue, width=0.9)
        staleness.set(
            title=f"Staleness (mean {result.staleness.mean():.2f})",
            xlabel="τ [updates]",
            ylabel="share of the updates [%]",
            xlim=(-0.6, max(4.0, _upper(result.staleness)) + 0.6),
        )
        for axes in (loss, accuracy, eps):
            axes.set_xlim(left=0.0)
        figure.suptitle(f"{result.outcome} ({result.reason}) after {result.elapsed:.3g} s")
    return figure


def _upper(histogram: Histogram) -> float:
    upper = histogram.quantile(0.999)
    return 0.0 if math.isnan(upper) else upper
