"""How good predicted clicks are: AUC, log loss, normalised entropy, calibration.

Functions of whole arrays, exact; and ``ClickMetrics``, which takes them in parts, in memory that does
not grow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _check, _core

__all__ = [
    "ClickMetrics",
    "Values",
    "auc",
    "calibration",
    "log_loss",
    "normalised_entropy",
    "undo_downsampling",
]


def auc(scores: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> float:
    """The area under the ROC curve: the probability that of a click and a non-click, drawn by
    weight, the click has the higher score. A tie counts half.

    Args:
        scores: [n], probabilities, logits or whatever rises with them; infinite ones are allowed.
        labels: [n], 0 or 1.
        weights: [n], finite and not negative. Default: 1 each.

    Returns:
        From 0 to 1; NaN where the clicks or the non-clicks weigh nothing, since there is no pair.

    Raises:
        TypeError: An argument is no array of numbers.
        ValueError: Lengths differ, there is no row, a score is NaN, a label is neither 0 nor 1, or
            a weight is wrong.
    """
    score = _scores("scores", scores)
    clicks, others = _weighed(labels, weights, len(score))
    order = np.argsort(score, kind="stable")
    score, clicks, others = score[order], clicks[order], others[order]
    last = np.append(score[1:] != score[:-1], True)  # of its ties
    up_to = np.cumsum(others)[last]
    clicks_at = np.diff(np.cumsum(clicks)[last], prepend=0.0)
    below = np.append(0.0, up_to[:-1])
    pairs = clicks.sum() * up_to[-1]
    return min(1.0, float(clicks_at @ (below + up_to) / 2 / pairs)) if pairs else math.nan


def log_loss(
    probabilities: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """The weighted mean of −y ln p − (1 − y) ln(1 − p).

    Args:
        probabilities: [n], from 0 to 1; one that is certain and wrong makes the loss infinite.
        labels, weights: As for ``auc``.

    Returns:
        In nats; NaN where all weights are 0.

    Raises:
        TypeError, ValueError: As for ``auc``, and where a probability is outside 0 to 1.
    """
    p = _probabilities(probabilities)
    clicks, others = _weighed(labels, weights, len(p))
    return _log_loss(p, clicks, others)


def normalised_entropy(
    probabilities: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """The log loss over the entropy of the share of clicks (He et al., "Practical lessons from
    predicting clicks on ads at Facebook", ADKDD 2014): 1 is what the best constant reaches, and
    less is better.

    Args:
        probabilities, labels, weights: As for ``log_loss``.

    Returns:
        NaN where all labels are the same: their entropy is 0.

    Raises:
        TypeError, ValueError: As for ``log_loss``.
    """
    p = _probabilities(probabilities)
    clicks, others = _weighed(labels, weights, len(p))
    if not (clicks.any() and others.any()):
        return math.nan
    total = clicks.sum() + others.sum()
    shares = np.array([clicks.sum(), others.sum()]) / total  # either may be next to nothing
    return float(_log_loss(p, clicks, others) / -(shares @ np.log(shares)))


def calibration(
    probabilities: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Clicks expected over clicks: 1.1 where 10 % too many are expected.

    Args:
        probabilities, labels, weights: As for ``log_loss``.

    Returns:
        NaN where there is no click.

    Raises:
        TypeError, ValueError: As for ``log_loss``.
    """
    p = _probabilities(probabilities)
    clicks, others = _weighed(labels, weights, len(p))
    return float(p @ (clicks + others) / clicks.sum()) if clicks.any() else math.nan


def undo_downsampling(probabilities: ArrayLike, negatives: float) -> NDArray[np.float64]:
    """What a model that was trained on ``leashed.datasets.downsample(data, negatives)`` predicts for
    rows of which none was left out: p ÷ (p + (1 − p) ÷ negatives) (He et al., "Practical lessons
    from predicting clicks on ads at Facebook", 2014, section 6.3).

    Args:
        probabilities: [n], from 0 to 1.
        negatives: The probability with which rows that were not clicked were kept, above 0, at most
            1.

    Returns:
        [n], in the same order.

    Raises:
        TypeError, ValueError: As for ``log_loss``, or ``negatives`` is out of range.
    """
    p = _probabilities(probabilities)
    negatives = _check.real("negatives", negatives, 0.0)
    if negatives > 1:
        raise ValueError(f"negatives must be at most 1, got {negatives:g}")
    return negatives * p / (negatives * p + (1 - p))


@dataclass(frozen=True)
class Values:
    """Metrics of the rows so far; NaN as the functions of their names say.

    Attributes:
        rows: How many there were.
        auc: To within ``auc_error``.
        auc_error: The exact AUC is no further away than this.
        log_loss: In nats.
        normalised_entropy: Log loss over the entropy of the share of clicks.
        calibration: Clicks expected over clicks.
    """

    rows: int
    auc: float
    auc_error: float
    log_loss: float
    normalised_entropy: float
    calibration: float


class ClickMetrics:
    """Metrics of a stream of logits and labels, in 1 MiB however long it is.

    The AUC is made from counts of clicks and non-clicks in 2¹⁶ bins of the logits, 128 for each
    power of two: pairs within a bin count as ties, so that it is off by at most
    ½ Σ_b p_b n_b / (P N), which is told beside it.

        metrics = lsh.metrics.ClickMetrics()
        for logits, labels in batches:
            metrics.add(logits, labels)
        print(metrics.values().auc)

    One of these is for one thread; ``merge`` adds those of others.
    """

    def __init__(self) -> None:
        self._native = _core.ClickMetrics()

    def add(self, logits: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> None:
        """Count rows in.

        Args:
            logits: [n], ln(p / (1 − p)); taken as float32, infinite ones are allowed.
            labels, weights: As for ``auc``; weights are taken as float32.

        Raises:
            TypeError, ValueError: As for ``auc``; then nothing has been counted.
        """
        score = _scores("logits", logits)
        if not len(score) and not len(np.atleast_1d(labels)):
            return
        with np.errstate(over="ignore"):
            single = score.astype(np.float32)
            weighed = (
                None
                if weights is None
                else np.ascontiguousarray(_check.numeric("weights", weights), np.float32)
            )
        _weighed(labels, weighed, len(score))
        self._native.add(single, np.ascontiguousarray(labels, np.int32), weighed)

    def merge(self, other: ClickMetrics) -> None:
        """Add what another one has counted."""
        if not isinstance(other, ClickMetrics):
            raise TypeError(f"other must be ClickMetrics, got {type(other).__name__}")
        self._native.merge(other._native)

    def values(self) -> Values:
        """The metrics of all rows so far."""
        return Values(**self._native.values())


def _scores(name: str, values: ArrayLike) -> NDArray[np.float64]:
    array = _check.numeric(name, values)
    if array.ndim != 1:
        raise ValueError(f"{name} must have shape [n], got {array.shape}; flatten it with .ravel()")
    scores = array.astype(np.float64)
    if np.isnan(scores).any():
        raise ValueError(f"{name}[{int(np.argmax(np.isnan(scores)))}] is NaN; leave such rows out")
    return scores


def _probabilities(values: ArrayLike) -> NDArray[np.float64]:
    p = _scores("probabilities", values)
    wrong = (p < 0) | (p > 1)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(
            f"probabilities[{first}] is {p[first]:g}, outside 0 to 1; of logits take "
            "1 / (1 + np.exp(-logits))"
        )
    return p


def _weighed(
    labels: ArrayLike, weights: ArrayLike | None, rows: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The weight of each row where it is a click, and where it is none; else 0."""
    y = _check.numeric("labels", labels)
    if y.shape != (rows,) or not rows:
        raise ValueError(f"labels must have one value for each score, at least 1, got {y.shape}")
    wrong = (y != 0) & (y != 1)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(f"labels[{first}] is {y[first]}; a label is 0, or 1 for a click")
    w = np.ones(rows) if weights is None else _check.numeric("weights", weights).astype(np.float64)
    if w.shape != (rows,):
        raise ValueError(f"weights must have one value for each score, {rows}, got shape {w.shape}")
    wrong = ~(np.isfinite(w) & (w >= 0))
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(f"weights[{first}] is {w[first]}; a weight is finite and not negative")
    return np.where(y == 1, w, 0.0), np.where(y == 1, 0.0, w)


def _log_loss(
    p: NDArray[np.float64], clicks: NDArray[np.float64], others: NDArray[np.float64]
) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = np.where(clicks > 0, -np.log(p), 0.0) * clicks
        losses += np.where(others > 0, -np.log1p(-p), 0.0) * others
    total = (clicks + others).sum()
    return float(losses.sum() / total) if total else math.nan
