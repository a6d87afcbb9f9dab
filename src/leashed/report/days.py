"""Days that a model was trained on one after another, in a table and in lines."""

from __future__ import annotations

import math
from collections.abc import Sequence

from leashed.base.table import MISSING, Table, found, number
from leashed.metrics import Values
from leashed.training.days import Day

__all__ = ["NOTE", "line", "table"]

NOTE = (
    "AUC, its greatest error, normalised entropy and calibration: of the day's rows as the model of "
    "the day before predicts them. progressive: of each batch before it was trained on (of a day "
    "that was begun again, since then). clicks: the share of the rows with label 1, by weight. loss: "
    "of files the mean over the rows, in the batches as progressive has them; of days in memory of all "
    "rows at the day's end. EPS: examples per second of training. table rows: that ids have at the "
    "day's end. ids refused: of the distinct ids of batches those that got no row, for want of room. "
    "What follows is what observers have found."
)


def table(days: Sequence[Day]) -> Table:
    """A row for each day."""
    header = ["day", "examples", "bad lines", "clicks", "updates", "loss", "AUC", "±"]
    header += ["norm. entropy", "calibration", "progressive AUC", "progressive norm. entropy"]
    header += ["EPS", "table rows"]
    users = any(_gauc(day.yesterday) != MISSING for day in days)
    if users:
        header.insert(header.index("calibration") + 1, "GAUC")
    refused = any(day.refused for day in days)
    if refused:
        header.append("ids refused")
    observed = list(dict.fromkeys(name for day in days for name in day.observed))
    header += [name.replace("_", " ") for name in observed]
    rows = []
    for day in days:
        row = [day.name, f"{day.examples:,}", f"{day.bad:,}", _share(day.click_share)]
        row += [f"{day.updates:,}", number(day.loss)]
        row += [*_scored(day.yesterday), *([_gauc(day.yesterday)] if users else [])]
        row += [_of(day.progressive, "auc"), _of(day.progressive, "normalised_entropy")]
        row += [MISSING if math.isnan(day.eps) else f"{day.eps:,.0f}", f"{day.rows:,}"]
        row += [f"{day.refused:.2%}"] if refused else []
        rows.append([*row, *(found(day.observed.get(name, math.nan)) for name in observed)])
    return Table(header, rows)


def line(day: Day) -> str:
    """A day in a line."""
    parts = [day.name, f"{day.examples:,} examples"]
    if day.bad:
        parts.append(f"{day.bad:,} bad lines")
    if day.yesterday is not None:
        parts.append(
            f"AUC {day.yesterday.auc:.4f}  NE {day.yesterday.normalised_entropy:.4f} by the day "
            "before's model"
        )
    if day.progressive is not None:
        parts.append(f"progressive AUC {day.progressive.auc:.4f}")
    if day.refused:
        parts.append(f"{day.refused:.2%} of ids refused a row")
    if not math.isnan(day.eps):
        parts.append(f"{day.eps:,.0f} EPS")
    parts += [f"{name} {found(value)}" for name, value in day.observed.items()]
    return "  ".join(parts)


def _share(share: float) -> str:
    return MISSING if math.isnan(share) else f"{number(100 * share)}%"


def _scored(values: Values | None) -> list[str]:
    names = ("auc", "auc_error", "normalised_entropy", "calibration")
    return [_of(values, name) for name in names]


def _gauc(values: Values | None) -> str:
    return _of(values, "gauc")


def _of(values: Values | None, name: str) -> str:
    return MISSING if values is None else number(getattr(values, name), 4)
