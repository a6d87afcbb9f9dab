"""The style that all figures share: colours, lines and axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from leashed.base.table import number
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


_FEWEST = 5  # values, of fewer none is an outlier
_SHARE = 0.1  # of the values, at most, that are outliers
_FAR = 6.0  # interquartile ranges from the quartiles on, where they begin
_STRETCHED = 5.0  # times, from which an axis is held
_BEYOND = "beyond"


def finish(figure: Figure) -> Figure:
    """To be called when all is drawn: a point without neighbours, through which no line goes, gets a
    dot; a panel without anything says so; and an axis that a few values would stretch is held at the
    others, and tells how many are beyond.
    """
    for axes in figure.axes:
        if not axes.axison:
            continue
        for line in axes.lines:
            _dot(line)
        if not _has_anything(axes):
            told: Any = {
                "transform": axes.transAxes,
                "ha": "center",
                "va": "center",
                "color": "#777777",
            }
            axes.text(0.5, 0.5, "nothing was measured", **told)
        _hold(axes)
    return figure


def _dot(line: Line2D) -> None:
    x, y = (np.asarray(values, np.float64) for values in line.get_data())
    known = np.isfinite(x) & np.isfinite(y)
    if line.get_marker() not in {"None", None, "", " "} or not known.any():
        return
    beside = np.zeros(known.size, np.bool_)
    beside[1:] |= known[:-1]
    beside[:-1] |= known[1:]
    alone = np.flatnonzero(known & ~beside)
    if np.ptp(x[known]) == 0.0 and np.ptp(y[known]) == 0.0:
        alone = np.flatnonzero(known)[:1]
    if alone.size:
        line.set(marker="o", markersize=4.0, markevery=alone.tolist())


def _has_anything(axes: Axes) -> bool:
    drawn = any(values.size for values in _heights(axes))
    return bool(drawn or axes.patches or axes.collections or axes.images or axes.texts)


def _heights(axes: Axes) -> Iterator[NDArray[np.float64]]:
    """Of what lines go through, where it is known."""
    for line in axes.lines:
        if line.get_transform() == axes.transData:
            values = np.asarray(line.get_ydata(), np.float64)
            yield values[np.isfinite(values)]


def _marks(axes: Axes) -> list[float]:
    """Where ``axhline`` drew."""
    across = axes.get_yaxis_transform(which="grid")
    lines = [line for line in axes.lines if line.get_transform() == across]
    heights = [float(y) for line in lines for y in np.asarray(line.get_ydata(), np.float64)]
    return [y for y in heights if math.isfinite(y)]


def _hold(axes: Axes) -> None:
    """Of panels that share the axis all together. Lines across them, as of a theory, stay in sight."""
    together = axes.get_shared_y_axes().get_siblings(axes)
    if any(text.get_gid() == _BEYOND for each in together for text in each.texts):
        return
    log = axes.get_yscale() == "log"
    values = np.concatenate([np.empty(0), *(v for each in together for v in _heights(each))])
    values = values[values > 0.0] if log else values
    ends = held(np.log10(values) if log else values)
    if ends is None:
        return
    low, high = (10.0**end if log else end for end in ends)
    marks = [y for each in together for y in _marks(each) if y > 0.0 or not log]
    low, high = min([low, *marks]), max([high, *marks])
    from_zero = not log and axes.get_ylim()[0] == 0.0 <= low
    for beyond, mark, at, worst in (
        (values[values > high], "▲", 0.98, values.max()),
        (values[values < low], "▼", 0.02, values.min()),
    ):
        if beyond.size:
            axes.text(
                0.99,
                at,
                f"{mark} {beyond.size} beyond, to {number(float(worst))}",
                transform=axes.transAxes,
                ha="right",
                va="top" if beyond[0] > high else "bottom",
                fontsize="x-small",
                color="#555555",
                gid=_BEYOND,
            )
    axes.set_ylim(0.0 if from_zero else low, high)


def held(values: NDArray[np.float64]) -> tuple[float, float] | None:
    """The ends of an axis that a few outliers would stretch, with room beside the other values; None:
    it is not stretched.
    """
    if values.size < _FEWEST:
        return None
    first, third = np.quantile(values, (0.25, 0.75))
    spread = _FAR * max(third - first, 1e-3 * abs(third), 1e-12)
    near = values[(values >= first - spread) & (values <= third + spread)]
    few = values.size - near.size <= max(2.0, _SHARE * values.size)
    room = max(0.05 * float(np.ptp(near)), 1e-3 * abs(float(near.max())), 1e-12)
    low, high = float(near.min()) - room, float(near.max()) + room
    if not few or near.size == values.size or np.ptp(values) <= _STRETCHED * (high - low):
        return None
    return low, high


def staleness_end(histogram: Histogram) -> tuple[float, int]:
    """Where an axis of staleness ends, at 4 or later, and how many counts lie beyond: few, where one
    or some would stretch it.
    """
    counts = np.asarray(histogram.counts)
    beyond = counts.sum() - np.cumsum(counts)  # after each
    few = int(np.argmax(beyond <= max(1.0, 0.005 * counts.sum()))) if counts.size else 0
    end = max(4, few)
    if histogram.max() <= 2 * end:
        return float(max(4, histogram.max())), 0
    return float(end), int(beyond[end])


def tell_staleness_beyond(axes: Axes, beyond: int, highest: int) -> None:
    """Of an axis that ends before the highest staleness."""
    if beyond:
        told = f"▶ {beyond:,} beyond, to {highest:,}"
        place: Any = {"transform": axes.transAxes, "ha": "right", "va": "top"}
        axes.text(0.99, 0.98, told, fontsize="x-small", **place)


def shares(histogram: Histogram) -> NDArray[np.float64]:
    """float64 [bins]; the counts as shares of their sum."""
    return np.asarray(histogram.counts / max(1, histogram.total), dtype=np.float64)
