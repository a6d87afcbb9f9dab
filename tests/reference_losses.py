"""The losses of rows and their slopes in NumPy, as models.Model defines them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def losses(loss: str, o: Array, y: Array) -> Array:
    """The loss of every row, by that definition."""
    if loss == "squared_error":
        return 0.5 * (o[:, 0] - y) ** 2
    if loss == "huber":
        off = np.abs(o[:, 0] - y)
        return np.where(off <= 1, 0.5 * off**2, off - 0.5)
    if loss == "softmax":
        high = o.max(axis=1, keepdims=True)
        log_sum = np.log(np.exp(o - high).sum(axis=1)) + high[:, 0]
        return log_sum - o[np.arange(len(o)), y.astype(int)]
    if loss == "binary_cross_entropy":
        return np.where(np.isnan(y), 0.0, np.logaddexp(0, o) - np.nan_to_num(y) * o).sum(axis=1)
    z = y[:, None] if o.shape[1] == 1 else y[:, None] == np.arange(o.shape[1])
    if loss == "log_loss":
        return (np.logaddexp(0, o) - z * o).sum(axis=1)
    if loss == "modified_huber":
        margin = (2.0 * z - 1) * o
        return np.where(margin < -1, -4 * margin, np.maximum(0, 1 - margin) ** 2).sum(axis=1)
    return np.maximum(0, 1 - (2.0 * z - 1) * o).sum(axis=1)


def residuals(loss: str, o: Array, y: Array) -> Array:
    """Their derivatives with respect to o."""
    if loss == "squared_error":
        return o - y[:, None]
    if loss == "huber":
        return np.clip(o - y[:, None], -1, 1)
    if loss == "binary_cross_entropy":
        return np.where(np.isnan(y), 0.0, 1 / (1 + np.exp(-o)) - np.nan_to_num(y))
    hit = y[:, None] == (1 if o.shape[1] == 1 else np.arange(o.shape[1]))
    if loss == "softmax":
        e = np.exp(o - o.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True) - hit
    if loss == "log_loss":
        return 1 / (1 + np.exp(-o)) - hit
    sign = np.where(hit, 1.0, -1.0)
    if loss == "modified_huber":
        return -sign * np.clip(2 * (1 - sign * o), 0, 4)
    return np.where(sign * o < 1, -sign, 0.0)
