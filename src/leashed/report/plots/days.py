"""How good the predictions of days were that a model was trained on one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from leashed.metrics import Classified, Errors, Values
from leashed.training.plots.style import COLOURS, style


class Day(Protocol):
    """As :class:`leashed.training.days.Day` has it."""

    @property
    def name(self) -> str: ...
    @property
    def yesterday(self) -> Values | Errors | Classified | None: ...
    @property
    def progressive(self) -> Values | None: ...


_SHOWN: dict[type, tuple[tuple[str, str], tuple[str, str]]] = {
    Errors: (("rmse", "RMSE"), ("r2", "R²")),
    Classified: (("accuracy", "accuracy"), ("log_loss", "log loss")),
    Values: (("auc", "AUC"), ("normalised_entropy", "normalised entropy")),
}
_MOST_NAMES = 12  # along an axis


def by_day(days: Sequence[Day]) -> Figure:
    """On the left the AUC of each day's rows, by the model of the day before and as each batch was
    found before it was trained on; on the right their normalised entropy. Of numbers RMSE and R², of
    classes accuracy and log loss.
    """
    kinds = {type(day.yesterday) for day in days}
    kind = next((one for one in _SHOWN if one in kinds), Values)
    with style():
        figure = Figure(figsize=(10.0, 4.0))
        left, right = figure.subplots(1, 2)
        for axes, (name, label) in zip((left, right), _SHOWN[kind], strict=True):
            _draw(axes, days, name)
            axes.set(xlabel="day", ylabel=label)
        if left.get_legend_handles_labels()[0]:
            left.legend(fontsize="small")
    return figure


def _draw(axes: Axes, days: Sequence[Day], name: str) -> None:
    looks = zip(
        (("yesterday", "by the day before's model"), ("progressive", "while trained on")),
        list(COLOURS.values())[1:],
        ("o", "s"),
        strict=False,
    )
    at = np.arange(len(days))
    for (which, label), colour, mark in looks:
        values = [getattr(getattr(day, which), name, np.nan) for day in days]
        if np.isfinite(values).any():
            axes.plot(at, values, color=colour, marker=mark, markersize=4, label=label)
    few = at[:: -(-len(days) // _MOST_NAMES)] if len(days) else at
    axes.set_xticks(few, [days[k].name for k in few], rotation=30, ha="right")
    axes.set_xlim(-0.5, max(0.5, len(days) - 0.5))
