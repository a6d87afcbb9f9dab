"""SHAT's Figures 4 to 6: accuracy over epochs and over time, and speedup by sharding."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from leashed.training.plots.style import COLOURS, style

_POINTS = 60
_COLOURS = list(COLOURS.values())[1:]


class Trained(Protocol):
    """As :class:`leashed.studies.shat.Trained` has it."""

    @property
    def method(self) -> str: ...
    @property
    def cluster(self) -> str: ...
    @property
    def workers(self) -> int: ...
    @property
    def seconds(self) -> NDArray[np.float64]: ...
    @property
    def epochs(self) -> NDArray[np.float64]: ...
    @property
    def over_time(self) -> NDArray[np.float64]: ...


class Throughput(Protocol):
    """As :class:`leashed.studies.sharded.Throughput` has it."""

    @property
    def net(self) -> str: ...
    @property
    def sharding(self) -> str: ...
    @property
    def workers(self) -> int: ...
    @property
    def rates(self) -> NDArray[np.float64]: ...


def over_epochs(runs: Sequence[Trained]) -> Figure:
    """Figure 4: a panel for each method, a line for each number of workers."""
    return _panels(
        [run for run in runs if run.cluster == "HO"],
        lambda run: f"n = {run.workers}",
        lambda run: run.epochs,
        "epochs",
    )


def over_time(runs: Sequence[Trained]) -> Figure:
    """Figure 5: a panel for each method, a line for each cluster."""
    return _panels(
        runs, lambda run: run.cluster, lambda run: run.seconds, "virtual time [gradients' seconds]"
    )


def speedups(found: Sequence[Throughput]) -> Figure:
    """Figure 6: a panel for each net, a line for each sharding; speedup over one worker with one
    server.
    """
    nets = list(dict.fromkeys(one.net for one in found))
    with style():
        figure = Figure(figsize=(4.6 * len(nets), 4.0))
        panels = figure.subplots(1, len(nets), squeeze=False)[0]
        for axes, net in zip(panels, nets, strict=True):
            here = [one for one in found if one.net == net]
            unit = here[0].rates.mean()
            names = list(dict.fromkeys(one.sharding for one in here))
            for name, colour in zip(names, _COLOURS, strict=False):
                same = [one for one in here if one.sharding == name]
                axes.plot(
                    [one.workers for one in same],
                    [one.rates.mean() / unit for one in same],
                    marker="o",
                    color=colour,
                    label=name,
                )
            axes.set(title=net, xlabel="workers", ylabel="speedup")
            axes.legend(title="sharding")
    return figure


def _panels(
    runs: Sequence[Trained],
    label: Callable[[Trained], str],
    at: Callable[[Trained], NDArray[np.float64]],
    xlabel: str,
) -> Figure:
    methods = list(dict.fromkeys(run.method for run in runs))
    with style():
        figure = Figure(figsize=(4.6 * len(methods), 4.0))
        panels = figure.subplots(1, len(methods), squeeze=False, sharey=True)[0]
        for axes, method in zip(panels, methods, strict=True):
            chosen = [run for run in runs if run.method == method]
            labels = list(dict.fromkeys(label(run) for run in chosen))
            for name, colour in zip(labels, itertools.cycle(_COLOURS), strict=False):
                same = [run for run in chosen if label(run) == name]
                _line(axes, [(at(run), run.over_time) for run in same], name, colour)
            axes.set(title=method, xlabel=xlabel)
        panels[0].set_ylabel("test accuracy")
        panels[-1].legend(loc="lower right")
    return figure


def _line(
    axes: Axes,
    series: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
    name: str,
    colour: str,
) -> None:
    """The mean of runs as long as all go on, and between which values they are."""
    until = min(float(x[-1]) for x, _ in series)
    x = np.linspace(0.0, until, _POINTS)
    values = np.array([np.interp(x, *one) for one in series])
    axes.plot(x, values.mean(axis=0), color=colour, label=name)
    axes.fill_between(
        x, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, linewidth=0
    )
