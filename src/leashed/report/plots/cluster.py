"""The picture of a run of several trainers over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from leashed.training.plots.style import COLOURS, maybe_log

__all__ = ["Series", "draw"]

Series = tuple[Sequence[float], Sequence[float]]
"""Seconds, and what was measured then."""

_PALETTE = list(COLOURS.values())
_MOST_NAMED = 10  # lines in a legend


def draw(
    eps: Mapping[str, Series], gap: Mapping[str, Series], members: Mapping[str, Series]
) -> Figure:
    """Examples per second and sync gap of each trainer, and the members of each role, over time.
    To be called within ``style()``.
    """
    figure = Figure(figsize=(9.0, 8.0))
    rates, gaps, counts = figure.subplots(3, 1, sharex=True)
    _lines(rates, eps, "steps-pre")
    rates.set(title="Throughput", ylabel="examples per second")
    rates.set_ylim(bottom=0.0)
    _lines(gaps, gap, "default")
    gaps.set(title="Average sync gap", ylabel="iterations per synchronisation")
    if not maybe_log(gaps, [value for _, values in gap.values() for value in values]):
        gaps.set_ylim(bottom=0.0)
    _lines(counts, members, "steps-post")
    counts.set(title="Members", ylabel="processes", xlabel="time [s]")
    counts.set_ylim(bottom=0.0)
    counts.yaxis.set_major_locator(MaxNLocator(integer=True))
    counts.set_xlim(left=0.0)
    return figure


def _lines(axes: Axes, named: Mapping[str, Series], drawstyle: str) -> None:
    for number, (name, (seconds, values)) in enumerate(named.items()):
        axes.plot(
            seconds,
            values,
            color=_PALETTE[number % len(_PALETTE)],
            linestyle=("-", "--", "-.", ":")[number // len(_PALETTE) % 4],
            drawstyle=drawstyle,
            label=name,
        )
    if 0 < len(named) <= _MOST_NAMED:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
