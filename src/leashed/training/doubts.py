"""Warnings of a training that could not go well: of data at another scale than models learn from, of
too large a learning rate, of columns in the place of others.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leashed.base.warning import warn
from leashed.datasets import SparseDataset
from leashed.models._columns import columns_of
from leashed.models.graphs import Graph
from leashed.training.result import TrainResult

__all__ = ["ends_are_told", "warn_of_end", "warn_of_more", "warn_of_sequences", "warn_of_unknown"]

_FAR = 10.0  # times the loss of chance: features from -1 to 1 stay below 2
_LARGE = 10.0  # values beyond which the scale may be what is wrong


_here = threading.local()


@contextmanager
def ends_are_told() -> Iterator[None]:
    """Within it trainings that this thread asks for do not warn of how they began and ended: those of
    studies, which tell it of each.
    """
    before = getattr(_here, "told", False)
    _here.told = True
    try:
        yield
    finally:
        _here.told = before


def warn_of_sequences(model: Any, data: Any) -> None:
    """One warning where a model reads as sequences what has one id a row and a name of its own."""
    if not isinstance(model, Graph):
        return
    known = columns_of(model, data)
    reads = zip(model.readers, model.id_features, strict=True)
    features = {f for node, f in reads if getattr(node, "length", None) is not None}
    single = [
        repr(name)
        for f, name in enumerate(known.ids or ())
        if f in features and f not in known.bags and name is not None
    ]
    if single:
        warn(
            f"model {model.name} reads {', '.join(single)} as sequence{'s' if len(single) > 1 else ''}, "
            "of which each row has one id; where other columns have the histories, give columns in the "
            "order in which the model reads them, and histories as Bags"
        )


def warn_of_more(data: Any, heads: Sequence[str]) -> None:
    """One warning where data that are trained on have other labels beside a model's."""
    has = getattr(data[0] if isinstance(data, tuple) and data else data, "heads", ())
    if others := [repr(head) for head in has if heads and head not in heads]:
        warn(
            f"data's labels {', '.join(others)} are not learned: the model was made for "
            f"{', '.join(heads)}; train a new one for all of them"
        )


def warn_of_unknown(data: Any, heads: Sequence[str]) -> None:
    """One warning where data in memory have labels of which none is known."""
    known = ~np.isnan(data.y).all(axis=0) if heads else ()
    if empty := [repr(head) for head, any_is in zip(heads, known, strict=True) if not any_is]:
        warn(
            f"no row of data has a label {', '.join(empty)} that is known, so that nothing is learned of it; "
            "give rows that have it, or leave it out"
        )


def warn_of_end(result: TrainResult, model: Any, data: Any, weights: Any) -> TrainResult:
    """``result``; one warning where it crashed, where no update was ever made, or where a new model's loss
    began far above chance.

    Args:
        result: what is returned.
        model: what was trained.
        data: the training set, as the model reads it.
        weights: of its examples, or None.
    """
    if getattr(_here, "told", False):
        return result
    # Of a stream nobody evaluates what its last update leads to.
    if result.outcome == "crashed" or not np.isfinite(result.parameters).all():
        rule = result.config["rule"]
        slower = f"lower the learning rate of {rule['name']}"
        slower += f", {lr:g}" if isinstance(lr := rule.get("lr"), (int, float)) else ""
        remedy = " or ".join(filter(None, (_scaled(data), slower)))
        warn(
            f"the training crashed after {result.total_updates:,} updates: a loss, a gradient "
            f"or parameters were not finite; {remedy}"
        )
    elif result.reason == "patience" and not result.total_updates:
        warn(
            f"no update was made in {result.examples:,} examples of passes over the data, since one is of "
            "more gradients than these, or all were left out; give the mode a smaller buffer"
        )
    elif _is_new(result) and 0 < (chance := _chance(model, weights)) < result.initial_loss / _FAR:
        remedy = _scaled(data) or 'begin with smaller parameters, such as init="normal"'
        warn(
            f"the loss began at {result.initial_loss:.3g}, far above {chance:.3g}, which is chance; "
            f"{remedy}"
        )
    return result


def _is_new(result: TrainResult) -> bool:
    return result.config["init"] != "array" and "resumed_at" not in result.config


# Of an output.
_OF_EACH = {
    "log_loss": math.log(2),
    "binary_cross_entropy": math.log(2),
    "hinge": 1.0,
    "modified_huber": 1.0,
}


def _chance(model: Any, weights: NDArray[np.float32] | None) -> float:
    """The loss of a model that knows nothing; 0 where it is not known."""
    if model.loss == "softmax":
        loss = math.log(model.classes)
    elif isinstance(model.loss, str) and model.loss in _OF_EACH:  # not a function's
        loss = model.outputs * _OF_EACH[model.loss]
    else:
        return 0.0
    return loss if weights is None else loss * float(weights.mean(dtype=np.float64))


def _scaled(data: Any) -> str:
    """The remedy where values are large; empty where they are not, or not known."""
    values = data.data if isinstance(data, SparseDataset) else getattr(data, "x", None)
    if values is None or not values.size:
        return ""
    large = float(max(values.max(), -values.min()))
    if large <= _LARGE:
        return ""
    return (
        "bring the features into a range around 1, such as (x - mean) / deviation, or images x / 255 "
        f"(the largest value is {large:g}{_column_of(data, values, large)})"
    )


def _column_of(data: Any, values: NDArray[np.float32], large: float) -> str:
    """Where the largest value lies."""
    if values.ndim != 2 or data.columns.image is not None:
        return ""
    column = int(np.argmax((np.abs(values) == large).any(axis=0)))
    names = data.columns.numbers
    return f", in column {column}" if names is None else f", in {names[column]!r}"
