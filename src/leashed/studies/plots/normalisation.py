"""Figure 6 of extreme-scale-asgd: AUC over time by what is normalised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from leashed.training.plots.style import COLOURS, style


class Curve(Protocol):
    """As :class:`leashed.studies.normalisation.Curve` has it."""

    @property
    def workers(self) -> int: ...
    @property
    def arm(self) -> str: ...
    @property
    def done(self) -> NDArray[np.float64]: ...
    def intervals(self) -> Sequence[tuple[float, float, float]]: ...


def over_time(found: Sequence[Curve]) -> Figure:
    """A panel for each number of workers; of each arm the mean of the repeats with its 95% interval,
    which may reach beyond the axes.
    """
    sizes = list(dict.fromkeys(one.workers for one in found))
    with style():
        figure = Figure(figsize=(3.8 * len(sizes), 3.0))
        panels = figure.subplots(1, len(sizes), squeeze=False, sharey=True)[0]
        for axes, workers in zip(panels, sizes, strict=True):
            chosen = [one for one in found if one.workers == workers]
            for one, colour in zip(chosen, list(COLOURS.values())[1:], strict=False):
                mean, low, high = np.array(one.intervals()).T
                axes.plot(one.done, mean, color=colour, label=one.arm)
                if np.isfinite(low).all():
                    axes.fill_between(one.done, low, high, color=colour, alpha=0.2, linewidth=0)
            axes.set(title=f"{workers:,} workers", xlabel="share of the clicks")
        means = np.array([[mean for mean, _, _ in one.intervals()] for one in found])
        if np.isfinite(means).any():
            panels[0].set_ylim(np.nanmin(means) - 0.02, np.nanmax(means) + 0.02)
        panels[0].set_ylabel("AUC of other clicks")
        panels[0].legend(title="normalised")
    return figure
