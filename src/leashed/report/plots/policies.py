"""Staleness policies drawn: ρ over τ, as Figure 2 of extreme-scale-asgd."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from leashed import staleness
from leashed.base import checks
from leashed.staleness import Policy
from leashed.training.plots.style import COLOURS, style

__all__ = ["FIGURE_2", "decay_factors"]

FIGURE_2 = {
    "Linear": staleness.inverse(),
    "Linear1K": staleness.normalized(1000, 1),
    "Linear500": staleness.normalized(500, 1),
}
"""The three settings of the paper's figure."""


def decay_factors(
    policies: Sequence[Policy] | dict[str, Policy] | None = None, up_to: int = 3000
) -> Figure:
    """The factor that a gradient is multiplied by, over its staleness (extreme-scale-asgd,
    Figure 2).

    Staleness is drawn as leashed counts it, from 0; the paper's counts from 1. A policy that
    measures staleness while training is drawn as it is before the first update.

    Args:
        policies: those to draw, by label or by the names given. Default: the paper's three, no
            normalisation ("Linear") and staleness normalised to 1,000 and to 500 workers.
        up_to: the largest staleness drawn, at least 1.

    Raises:
        TypeError, ValueError: a policy or ``up_to`` is none.
    """
    up_to = checks.whole("up_to", up_to)
    named = FIGURE_2 if policies is None else policies
    if not isinstance(named, dict):
        named = {staleness.of("policies", policy).label: policy for policy in named}
    tau = np.unique(np.linspace(0, up_to, min(up_to + 1, 2000)).astype(np.int64))
    with style():
        figure = Figure(figsize=(7.0, 4.2))
        axes = figure.subplots()
        colours = list(COLOURS.values())[1:]
        for k, (name, policy) in enumerate(named.items()):
            axes.plot(
                tau,
                staleness.of(name, policy).factor(tau),
                label=name,
                color=colours[k % len(colours)],
                linestyle=("-", "--", "-.", ":")[k // len(colours) % 4],
            )
        axes.set(
            title="Decay factor of a gradient",
            xlabel="staleness τ [updates]",
            ylabel="ρ(τ)",
            xlim=(0, up_to),
        )
        axes.set_ylim(bottom=0.0)
        axes.legend()
    return figure
