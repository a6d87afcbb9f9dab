"""Where the persistence bound pays: a map over T_c ÷ T_u and threads, and loss over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from leashed.training.plots.style import PLAIN, colour, dashes, finish, lines, style

_HIGHEST = 1.2  # of a share of the loss that is shown


class Ended(Protocol):
    """As :class:`leashed.studies.persistence.Ended` has it."""

    @property
    def seconds(self) -> NDArray[np.float64]: ...
    @property
    def loss(self) -> NDArray[np.float64]: ...


class Cell(Protocol):
    """As :class:`leashed.studies.persistence.Cell` has it."""

    @property
    def threads(self) -> int: ...
    @property
    def ratio(self) -> float: ...
    @property
    def lr(self) -> float: ...
    @property
    def algorithm(self) -> str: ...
    @property
    def runs(self) -> Sequence[Ended]: ...
    @property
    def least(self) -> float: ...


def paying(found: Sequence[Cell]) -> Figure:
    """A panel for each number of threads: the lowest share of the loss over T_c ÷ T_u, a line for
    each algorithm, at the first step size.
    """
    found = [one for one in found if one.lr == found[0].lr]
    threads, algorithms = _of(found)
    with style():
        figure = Figure(figsize=(3.2 * len(threads), 3.0))
        panels = figure.subplots(1, len(threads), squeeze=False, sharey=True)[0]
        for axes, m in zip(panels, threads, strict=True):
            for name in algorithms:
                chosen = sorted(
                    (one for one in found if (one.threads, one.algorithm) == (m, name)),
                    key=lambda one: one.ratio,
                )
                ratios = [one.ratio for one in chosen]
                axes.plot(
                    ratios,
                    [one.least for one in chosen],
                    color=colour(name),
                    linestyle=dashes(name),
                    marker="o",
                    markersize=3.5,
                )
            axes.set(title=f"m = {m}", xlabel="T_c ÷ T_u", xscale="log")
            axes.set_xticks(sorted({one.ratio for one in found}))
            axes.xaxis.set_major_formatter(PLAIN)
            axes.minorticks_off()
        panels[0].set_ylabel("lowest share of the initial loss")
        panels[-1].legend(
            handles=lines(algorithms), fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0)
        )
    return finish(figure)


def over_time(found: Sequence[Cell]) -> Figure:
    """A panel for each number of threads and T_c ÷ T_u: shares of the loss over T_c, a line a run."""
    found = [one for one in found if one.lr == found[0].lr]
    threads, algorithms = _of(found)
    ratios = list(dict.fromkeys(one.ratio for one in found))
    with style():
        figure = Figure(figsize=(2.6 * len(ratios), 2.2 * len(threads)))
        panels = figure.subplots(
            len(threads), len(ratios), squeeze=False, sharey=True, sharex="row"
        )
        for row, m in zip(panels, threads, strict=True):
            for axes, ratio in zip(row, ratios, strict=True):
                for one in found:
                    if (one.threads, one.ratio) == (m, ratio):
                        for run in one.runs:
                            axes.plot(
                                run.seconds,
                                np.minimum(run.loss, _HIGHEST),
                                color=colour(one.algorithm),
                                linestyle=dashes(one.algorithm),
                                linewidth=0.8,
                            )
                axes.set(title=f"m = {m}, T_c ÷ T_u = {ratio:g}", ylim=(0.4, _HIGHEST))
            row[0].set_ylabel("share of the loss")
        for axes in panels[-1]:
            axes.set_xlabel("T_c")
        panels[0][-1].legend(
            handles=lines(algorithms), fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0)
        )
    return finish(figure)


def _of(found: Sequence[Cell]) -> tuple[list[int], list[str]]:
    return (
        list(dict.fromkeys(one.threads for one in found)),
        list(dict.fromkeys(one.algorithm for one in found)),
    )
