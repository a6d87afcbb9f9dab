"""Distributions of staleness, as Figure 3 of extreme-scale-asgd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from leashed.training.plots.style import COLOURS, style

_BINS = 120


class Counted(Protocol):
    """As :class:`leashed.studies.stale.Counted` has it."""

    @property
    def workers(self) -> int: ...
    @property
    def times(self) -> str: ...
    @property
    def counts(self) -> NDArray[np.int64]: ...


def distributions(found: Sequence[Counted]) -> Figure:
    """A panel for each kind of times; a histogram for each number of workers."""
    kinds = list(dict.fromkeys(one.times for one in found))
    with style():
        figure = Figure(figsize=(4.5 * len(kinds), 3.5))
        panels = figure.subplots(1, len(kinds), squeeze=False)[0]
        for axes, kind in zip(panels, kinds, strict=True):
            chosen = [one for one in found if one.times == kind]
            for one, colour in zip(chosen, list(COLOURS.values())[1:], strict=False):
                values = np.arange(len(one.counts))
                most = values[np.searchsorted(np.cumsum(one.counts), 0.999 * one.counts.sum())]
                axes.hist(
                    values,
                    bins=np.linspace(0, most, _BINS),
                    weights=one.counts,
                    histtype="step",
                    color=colour,
                    label=f"{one.workers:,} workers",
                )
            axes.set(title=f"times: {kind}", xlabel="staleness τ [updates]", ylabel="updates")
            axes.legend()
    return figure
