"""Figures 5 to 8 of shadowsync: examples per second, and losses, over the number of trainers or of
threads.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from leashed.training.plots.style import COLOURS, style

__all__ = ["panels", "scaling"]

_LINE = 150  # characters below the panels
_MARKS = ("o", "s", "^", "D", "v")


def scaling(
    ways: Mapping[str, Mapping[int, float]],
    servers: Mapping[str, Mapping[int, float]],
    plateaus: Mapping[str, float],
    told: str,
    losses: Mapping[str, Mapping[str, Mapping[int, float]]] | None = None,
) -> Figure:
    """Panels for every way to synchronise, for the most frequent one with more sync servers, and for
    each of the losses.

    Args:
        ways: examples per second by the number of trainers, for each curve of the first panel.
        servers: the same for the second.
        plateaus: the predicted plateau of curves, drawn as a dashed line beside them.
        told: how it was measured.
        losses: for each title, of curves by the number of trainers.
    """
    below = losses or {}
    with style():
        figure = Figure(figsize=(10.0, 8.0 if below else 4.4))
        rows = figure.subplots(2 if below else 1, 2, squeeze=False)
        left, right = rows[0]
        right.sharey(left)
        looks = {name: k for k, name in enumerate(dict.fromkeys([*ways, *servers]))}
        for axes, (title, curves) in zip(rows[-1] if below else (), below.items(), strict=True):
            own = {name: looks[first] for name, first in zip(curves, ways, strict=False)}
            _panel(axes, title, curves, {}, own)
            axes.set_ylim(auto=True)
        _panel(left, "EPS, by the way of synchronisation", ways, plateaus, looks)
        _panel(right, "EPS, by the number of sync servers", servers, plateaus, looks)
        left.set_ylabel("examples per second")
        figure.supxlabel(textwrap.fill(told, _LINE), fontsize="x-small", color="#555555")
    return figure


def panels(curves: Mapping[str, Mapping[str, Mapping[int, float]]], across: str) -> Figure:
    """A panel for each title, side by side, of curves by what varies, which ``across`` names; losses
    do not begin at 0.
    """
    with style():
        figure = Figure(figsize=(4.0 * len(curves), 3.6))
        for axes, (title, arms) in zip(
            figure.subplots(1, len(curves)), curves.items(), strict=True
        ):
            _panel(axes, title, arms, {}, {name: k for k, name in enumerate(arms)})
            axes.set_xlabel(across)
            if "loss" in title:
                axes.set_ylim(auto=True)
                axes.relim()
                axes.autoscale(axis="y")
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
        told = "dashed: predicted" if plateaus.keys() & curves.keys() else None
        axes.legend(fontsize="small", title=told, title_fontsize="x-small")
