"""Days that a model was trained on one after another, in a table and in lines."""

from __future__ import annotations

import math
from collections.abc import Sequence

from leashed.base.table import MISSING, Table, found, number
from leashed.metrics import Classified, Errors, Values
from leashed.training.days import Day, Scores, first_of

__all__ = ["NOTE", "line", "table"]

NOTE = (
    "AUC, its greatest error, normalised entropy and calibration: of the day's rows as the model of "
    "the day before predicts them. progressive: of each batch before it was trained on (of a day "
    "that was begun again, since then). clicks: the share of the rows with label 1, by weight. loss: "
    "of files the mean over the rows, in the batches as progressive has them; of days in memory of all "
    "rows at the day's end. EPS: examples per second of training. table rows: that ids have at the "
    "day's end. Of numbers and classes RMSE, MAE, R², accuracy and log loss stand in place of AUC and what "
    "goes with it, of those rows too; of several labels AUC and what goes with it are means, and the AUC of "
    "each stands behind. ids refused: of the distinct ids of batches those that got no row, for want of room. "
    "best pass: after which the state was taken that patience= kept. "
    "What follows is what observers have found."
)


_CLICKS = {
    "auc": "AUC",
    "auc_error": "±",
    "normalised_entropy": "norm. entropy",
    "calibration": "calibration",
}
_NUMBERS = {"rmse": "RMSE", "mae": "MAE", "r2": "R²"}
_CLASSES = {"accuracy": "accuracy", "log_loss": "log loss"}


def table(days: Sequence[Day]) -> Table:
    """A row for each day."""
    scores = _scores(days)
    of_clicks = scores is _CLICKS
    header = ["day", "examples", "bad lines", *(["clicks"] if of_clicks else []), "updates", "loss"]
    header += scores.values()
    if of_clicks:
        header += ["progressive AUC", "progressive norm. entropy"]
    header += ["EPS", "table rows"]
    users = any(_gauc(day.yesterday) != MISSING for day in days)
    if users:
        header.insert(header.index("calibration") + 1, "GAUC")
    heads = list(dict.fromkeys(head for day in days for head in _heads(day.yesterday)))
    header += [f"AUC of {head}" for head in heads]
    refused = any(day.refused for day in days)
    if refused:
        header.append("ids refused")
    judged = any(day.best for day in days)
    if judged:
        header.append("best pass")
    observed = list(dict.fromkeys(name for day in days for name in day.observed))
    header += [name.replace("_", " ") for name in observed]
    rows = []
    for day in days:
        row = [day.name, f"{day.examples:,}", f"{day.bad:,}"]
        row += [_share(day.click_share)] if of_clicks else []
        row += [f"{day.updates:,}", number(day.loss)]
        row += [_of(day.yesterday, name) for name in scores]
        row += [_gauc(day.yesterday)] if users else []
        if of_clicks:
            row += [_of(day.progressive, "auc"), _of(day.progressive, "normalised_entropy")]
        row += [MISSING if math.isnan(day.eps) else f"{day.eps:,.0f}", f"{day.rows:,}"]
        row += [_of(_heads(day.yesterday).get(head), "auc") for head in heads]
        row += [f"{day.refused:.2%}"] if refused else []
        row += [str(day.best.passes) if day.best else MISSING] if judged else []
        rows.append([*row, *(found(day.observed.get(name, math.nan)) for name in observed)])
    return Table(header, rows)


def line(day: Day) -> str:
    """A day in a line."""
    parts = [day.name, f"{day.examples:,} examples"]
    if day.bad:
        parts.append(f"{day.bad:,} bad lines")
    if day.yesterday is not None:
        name, value = first_of(day.yesterday)
        told = f"{name} {value:.4f}"
        if isinstance(day.yesterday, Values):
            told += f"{_each(day.yesterday)}  NE {day.yesterday.normalised_entropy:.4f}"
        parts.append(f"{told} by the day before's model")
    if day.progressive is not None:
        parts.append(f"progressive AUC {day.progressive.auc:.4f}{_each(day.progressive)}")
    if day.refused:
        parts.append(f"{day.refused:.2%} of ids refused a row")
    if not math.isnan(day.eps):
        parts.append(f"{day.eps:,.0f} EPS")
    if day.best is not None:
        parts.append(f"best {day.best}")
    parts += [f"{name} {found(value)}" for name, value in day.observed.items()]
    return "  ".join(parts)


def _share(share: float) -> str:
    return MISSING if math.isnan(share) else f"{number(100 * share)}%"


def _scores(days: Sequence[Day]) -> dict[str, str]:
    """What the rows of days were judged by, and what it is called."""
    found: set[type] = {type(day.yesterday) for day in days}
    return _NUMBERS if Errors in found else _CLASSES if Classified in found else _CLICKS


def _heads(scores: Scores | None) -> dict[str, Values]:
    return scores.heads if isinstance(scores, Values) else {}


def _each(values: Values) -> str:
    told = [f"{head} {one.auc:.4f}" for head, one in values.heads.items()]
    return f" ({', '.join(told)})" if told else ""


def _gauc(values: Scores | None) -> str:
    return _of(values, "gauc")


def _of(values: Scores | None, name: str) -> str:
    return MISSING if values is None else number(getattr(values, name, math.nan), 4)
