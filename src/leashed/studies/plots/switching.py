"""Figures 1 and 6 of gba: throughput over a day, and accuracy after a switch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from leashed.training.plots.style import COLOURS, style

_DASHES = ("-", "--", ":", "-.", (0, (1, 3)))
_MARKS = ("o", "s", "^", "D", "v", "P")


def day(eps: Mapping[str, NDArray[np.float64]], load: NDArray[np.float64]) -> Figure:
    """Throughput of each mode over the hours, over the largest of all, and the cluster's load over
    its largest.
    """
    most = max(float(one.max()) for one in eps.values())
    with style():
        figure = Figure(figsize=(7.0, 4.0))
        axes = figure.subplots()
        axes.fill_between(np.arange(len(load)), load / load.max(), color="#dddddd", label="load")
        looks = zip(list(COLOURS.values())[1:], _DASHES, strict=False)
        for (mode, series), (colour, dashes) in zip(eps.items(), looks, strict=False):
            middles = np.arange(len(series)) + 0.5
            axes.plot(middles, series / most, color=colour, linestyle=dashes, label=mode)
        axes.set(xlabel="hour", ylabel="examples per second, load (largest: 1)")
        axes.set_xlim(0.0, len(load) - 1.0)
        axes.set_ylim(0.0, 1.05)
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def switches(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float, float]]]], base: int
) -> Figure:
    """AUC of the next day after each day, as mean, low and high: a panel for each direction, a line
    for each mode, the switch between ``base`` days and the others. A mode that is much worse than all
    others leaves the axes, so that these can be told apart.
    """
    with style():
        figure = Figure(figsize=(5.5 * len(panels), 4.2))
        every = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, (title, lines) in zip(every, panels.items(), strict=True):
            looks = zip(list(COLOURS.values())[1:], _MARKS, strict=False)
            for (mode, days), (colour, mark) in zip(lines.items(), looks, strict=False):
                mean, low, high = np.array(days).T
                at = 1.0 + np.arange(len(mean))
                axes.plot(at, mean, color=colour, marker=mark, markersize=4, label=mode)
                if np.isfinite(low).all():
                    axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.axvline(base + 0.5, color="#777777", linestyle=":")
            axes.set(title=title, xlabel="day")
            axes.set_xticks(at)
        every[0].set_ylim(*_range(panels))
        every[0].set_ylabel("AUC of the next day")
        every[0].legend(fontsize="small")
    return figure


def _range(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float, float]]]],
) -> tuple[float, float]:
    """Of the means, without those of one mode that would take more than half of it."""
    lows: dict[str, float] = {}
    high = 0.0
    for lines in panels.values():
        for mode, days in lines.items():
            means = [mean for mean, _, _ in days if np.isfinite(mean)]
            lows[mode] = min([*means, lows.get(mode, 1.0)])
            high = max([*means, high])
    least, *others = sorted(lows.values())
    high = max(high, least)
    low = others[0] if others and others[0] - least > high - others[0] else least
    margin = 0.1 * max(high - low, 1e-3)
    return low - margin, high + margin


def halves(
    lines: Mapping[tuple[str, str, str], Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]],
) -> Figure:
    """AUC over the share of the clicks, a panel for each mode before the switch, a line for each arm:
    means over seeds, at every 5%.
    """
    shares = np.linspace(0.05, 1.0, 20)
    with style():
        figure = Figure(figsize=(9.0, 3.6))
        panels = dict.fromkeys(before for before, _, _ in lines)
        every = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, before in zip(every, panels, strict=True):
            arms = {arm[1:]: of_seeds for arm, of_seeds in lines.items() if arm[0] == before}
            looks = zip(list(COLOURS.values())[1:], _MARKS, strict=False)
            for (arm, of_seeds), (colour, mark) in zip(arms.items(), looks, strict=False):
                mean = np.mean([np.interp(shares, *series) for series in of_seeds], axis=0)
                label = f"{arm[0]}, set {arm[1]}"
                axes.plot(shares, mean, color=colour, marker=mark, markersize=3, label=label)
            axes.axvline(0.5, color="#777777", linestyle=":")
            axes.set(title=f"from {before}", xlabel="share of the clicks")
            axes.legend(fontsize="small")
        every[0].set_ylabel("AUC")
    return figure


def batches(aucs: Mapping[int, Sequence[float]]) -> Figure:
    """AUC by the global batch: means, the least and the largest over seeds."""
    with style():
        figure = Figure(figsize=(5.0, 3.4))
        axes = figure.subplots()
        means = np.array([np.mean(one) for one in aucs.values()])
        ends = np.array([(min(one), max(one)) for one in aucs.values()]).T
        axes.errorbar(list(aucs), means, np.abs(ends - means), marker="o", capsize=4)
        axes.set_xscale("log", base=2)
        axes.set(xlabel="clicks of a global batch", ylabel="AUC")
    return figure


def norms(found: Mapping[str, NDArray[np.float64]]) -> Figure:
    """Distributions of the norms, a line for each."""
    with style():
        figure = Figure(figsize=(5.5, 3.4))
        axes = figure.subplots()
        edges = np.linspace(0.0, max(float(one.max()) for one in found.values()), 60)
        for name, one in found.items():
            axes.hist(one, list(edges), density=True, histtype="step", label=name)
        axes.set(xlabel="L2 norm of an update's gradient", ylabel="density")
        axes.legend(fontsize="small")
    return figure
