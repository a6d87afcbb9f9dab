"""A small convolutional network with batch normalisation, for SHAT's experiments.

Networks of ``leashed.models`` have convolutions and no batch normalisation, graphs have it and no
convolutions, so this one's gradient comes from outside (:func:`leashed.models.external`), by NumPy:
a convolution of 5 × 5 with stride 2, one of 2 × 2 with stride 2, each followed by batch normalisation
and ReLU, and a dense layer. In evaluation values are normalised by what the evaluated examples come to,
some hundreds at a time: the mean of several models has no running averages of its own.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leashed import models
from leashed.base import checks
from leashed.datasets import Dataset
from leashed.models.external import External

__all__ = ["Normed"]

Floats = NDArray[np.float32]

_KERNEL, _STRIDE, _BORDER = 5, 2, 2
_CHANNELS = (8, 16)
_EPS = np.float32(1e-5)
_AT_ONCE = 500  # examples of an evaluation that are normalised together


class Normed:
    """The network for images of a data set.

    Args:
        data: whose images and classes.

    Attributes:
        model: for ``simulate``; what its evaluation gives is the share of wrong answers.

    Raises:
        ValueError: the data has no images of one channel, or their sides are not multiples of 4.
    """

    def __init__(self, data: Dataset) -> None:
        shape = data.image_shape
        if shape is None or len(shape) != 3 or shape[0] != 1 or shape[1] % 4 or shape[2] % 4:
            raise ValueError(
                f"data {data.name} must have images of one channel whose sides are multiples of 4, for "
                f"model normed, got {shape}"
            )
        _, self._height, self._width = shape
        first, second = _CHANNELS
        cells = (self._height // 4) * (self._width // 4)
        self._shapes: list[tuple[int, ...]] = [
            (_KERNEL * _KERNEL, first),
            (first,),
            (first,),
            (4 * first, second),
            (second,),
            (second,),
            (cells * second, data.classes),
            (data.classes,),
        ]
        self._ends = list(accumulate(math.prod(one) for one in self._shapes))
        wide = self._width + 2 * _BORDER
        rows, columns = (_STRIDE * np.arange(side // 2) for side in shape[1:])
        inside = np.arange(_KERNEL)
        places = (rows[:, None, None, None] + inside[:, None]) * wide
        self._places = (places + columns[:, None, None] + inside).reshape(-1)
        self.model: External = models.external(
            self.gradient,
            dimension=self._ends[-1],
            features=self._height * self._width,
            loss=self.wrong,
            variables=[math.prod(one) for one in self._shapes],
            name="normed",
        )

    def init(self, seed: int) -> Floats:
        """He's initialisation of the weights, scales 1, the rest 0."""
        random = np.random.Generator(np.random.Philox(checks.whole("seed", seed, 0)))
        theta = np.zeros(self._ends[-1], np.float32)
        parts = self._parts(theta)
        for place in (0, 3, 6):
            deviation = math.sqrt(2.0 / parts[place].shape[0])
            parts[place][:] = random.normal(0.0, deviation, parts[place].shape)
        for place in (1, 4):
            parts[place][:] = 1.0
        return theta

    def logits(self, theta: Floats, x: Floats) -> Floats:
        """Of examples, float32 [n, classes]; some hundreds at a time are normalised together."""
        pieces = range(0, len(x), _AT_ONCE)
        found: Floats = np.concatenate(
            [self._forward(theta, x[at : at + _AT_ONCE])[-1] for at in pieces]
        )
        return found

    @np.errstate(all="ignore")
    def wrong(self, theta: Floats, x: Floats, y: NDArray[np.int32]) -> float:
        """The share of examples whose class is not the likeliest; NaN where a logit is none."""
        logits = self.logits(theta, x)
        return float(np.mean(np.argmax(logits, 1) != y)) if np.isfinite(logits).all() else math.nan

    @np.errstate(all="ignore")  # what is no number ends the run
    def gradient(self, theta: Floats, x: Floats, y: NDArray[np.int32], out: Floats) -> float:
        """As ``leashed.models.external`` wants it: the mean cross-entropy."""
        _, scale_1, _, w_2, scale_2, _, w_3, _ = self._parts(theta)
        g = self._parts(out)
        n, each = len(x), np.arange(len(x))
        patches, h_1, r_1, z_1, q, h_2, r_2, z_2, o = self._forward(theta, x)
        o = o - o.max(1, keepdims=True)
        e = np.exp(o)
        total = e.sum(1, keepdims=True)
        p, loss = e / total, float(np.mean(np.log(total[:, 0]) - o[each, y]))
        p[each, y] -= 1
        p /= np.float32(n)
        g[6][:], g[7][:] = z_2.reshape(n, -1).T @ p, p.sum(0)
        d_2, g[4][:], g[5][:] = _backward((p @ w_3.T).reshape(z_2.shape), z_2, h_2, r_2, scale_2)
        g[3][:] = q.T @ d_2
        d_1 = self._apart(d_2 @ w_2.T, n)
        d_1, g[1][:], g[2][:] = _backward(d_1, z_1, h_1, r_1, scale_1)
        g[0][:] = patches.T @ d_1
        return loss

    def _parts(self, theta: Floats) -> list[Floats]:
        starts = [0, *self._ends]
        return [
            theta[start:end].reshape(shape)
            for start, end, shape in zip(starts, self._ends, self._shapes, strict=False)
        ]

    def _forward(self, theta: Floats, x: Floats) -> tuple[Floats, ...]:
        w_1, scale_1, shift_1, w_2, scale_2, shift_2, w_3, b = self._parts(theta)
        n = len(x)
        wide = np.pad(
            x.reshape(n, self._height, self._width), ((0, 0), (_BORDER,) * 2, (_BORDER,) * 2)
        )
        patches = wide.reshape(n, -1).take(self._places, axis=1).reshape(-1, _KERNEL * _KERNEL)
        h_1, r_1 = _normalised(patches @ w_1)
        z_1 = np.maximum(h_1 * scale_1 + shift_1, 0)
        q = self._together(z_1, n)
        h_2, r_2 = _normalised(q @ w_2)
        z_2 = np.maximum(h_2 * scale_2 + shift_2, 0)
        return patches, h_1, r_1, z_1, q, h_2, r_2, z_2, z_2.reshape(n, -1) @ w_3 + b

    def _together(self, z: Floats, n: int) -> Floats:
        """Squares of 2 × 2 as rows."""
        high, wide = self._height // 4, self._width // 4
        squares = z.reshape(n, high, 2, wide, 2, -1).transpose(0, 1, 3, 2, 4, 5)
        return squares.reshape(n * high * wide, -1)

    def _apart(self, q: Floats, n: int) -> Floats:
        """The reverse."""
        high, wide = self._height // 4, self._width // 4
        squares = q.reshape(n, high, wide, 2, 2, -1).transpose(0, 1, 3, 2, 4, 5)
        return squares.reshape(n * high * wide * 4, -1)


def _normalised(a: Floats) -> tuple[Floats, Floats]:
    """Rows less their mean, over their deviation, and one over that."""
    a = a - a.mean(0)
    over = 1 / np.sqrt(np.einsum("ij,ij->j", a, a) / np.float32(len(a)) + _EPS)
    return a * over, over


def _backward(dz: Floats, z: Floats, h: Floats, over: Floats, scale: Floats) -> tuple[Any, ...]:
    """Through ReLU and normalisation: the gradient of what was normalised, of scale and of shift."""
    dz = dz * (z > 0)
    d_scale, d_shift, n = np.einsum("ij,ij->j", dz, h), dz.sum(0), np.float32(len(dz))
    return scale * over * (dz - d_shift / n - h * (d_scale / n)), d_scale, d_shift
