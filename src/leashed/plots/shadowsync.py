"""Figure 5 of shadowsync: examples per second over the number of trainers."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from leashed.plots.style import COLOURS, style

__all__ = ["scaling"]

_LINE = 150  # characters below the panels
_MARKS = ("o", "s", "^", "D", "v")


def scaling(
    ways: Mapping[str, Mapping[int, float]],
    servers: Mapping[str, Mapping[int, float]],
    plateaus: Mapping[str, float],
    told: str,
) -> Figure:
    """Two panels: every way to synchronise, and the most frequent one with more sync servers.

    Args:
        ways: examples per second by the number of trainers, for each curve of the first panel.
        servers: the same for the second.
        plateaus: the predicted plateau of curves, drawn as a dashed line beside them.
        told: how it was measured.
    """
    with style():
        figure = Figure(figsize=(10.0, 4.4))
        left, right = figure.subplots(1, 2, sharey=True)
        looks = {name: k for k, name in enumerate(dict.fromkeys([*ways, *servers]))}
        _panel(left, "EPS, by the way of synchronisation", ways, plateaus, looks)
        _panel(right, "EPS, by the number of sync servers", servers, plateaus, looks)
        left.set_ylabel("examples per second")
        figure.supxlabel(textwrap.fill(told, _LINE), fontsize="x-small", color="#555555")
    return figure


def _panel(
    axes: Axes,
    title: str,
    curves: Mapping[str, Mapping[int, float]],
    plateaus: Mapping[str, float],
    looks: Mapping[str, int],
) -> None:
    colours = list(COLOURS.values())[1:]
    for name, curve in curves.items():
        k = looks[name]
        colour = colours[k % len(colours)]
        axes.plot(
            list(curve),
            list(curve.values()),
            label=name,
            color=colour,
            marker=_MARKS[k % len(_MARKS)],
            markersize=4,
        )
        if name in plateaus:
            axes.axhline(plateaus[name], color=colour, linestyle="--", linewidth=0.9)
    axes.set(title=title, xlabel="trainers")
    axes.set_xlim(left=0.0)
    axes.set_ylim(bottom=0.0)
    if curves:
        axes.legend(fontsize="small", title="dashed: predicted", title_fontsize="x-small")
