"""Networks in plain NumPy and double precision, written from the definitions of their layers.

Independent of the engine: it knows the layers' dataclasses and the order of parameters that they
document, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leashed.models import Conv2d, Dense, Layer, MaxPool, ReLU, Sigmoid, Tanh

Array = NDArray[np.float64]
# Takes dL/d(output), gives dL/d(input) and the parts of dL/dθ in the order of the parameters.
Backward = Callable[[Array], tuple[Array, list[Array]]]


class Parameters:
    """Cuts θ into the layers' arrays, in order."""

    def __init__(self, theta: Array) -> None:
        self.theta = theta
        self.used = 0

    def take(self, *shape: int) -> Array:
        size = int(np.prod(shape))
        part = self.theta[self.used : self.used + size].reshape(shape)
        self.used += size
        return part


class Margin:
    """How far the inputs of max(0, ·) and of max(·, ·) stay from where their derivatives jump."""

    def __init__(self) -> None:
        self.smallest = np.inf

    def see(self, distances: Array) -> None:
        # Below 1e-12 lie exact ties, such as two windows that hold the same maximum or a unit that
        # an earlier ReLU has set to 0: both sides of the jump have the same gradient there.
        apart = distances[distances > 1e-12]
        if apart.size:
            self.smallest = min(self.smallest, float(apart.min()))


def dense(x: Array, w: Array, b: Array) -> tuple[Array, Backward]:
    """out[n, j] = b[j] + Σ_i x[n, i] w[i, j]; x is flattened."""
    flat = x.reshape(len(x), -1)

    def backward(d: Array) -> tuple[Array, list[Array]]:
        return (d @ w.T).reshape(x.shape), [flat.T @ d, d.sum(axis=0)]

    return flat @ w + b, backward


def conv2d(x: Array, w: Array, b: Array, stride: int, padding: int) -> tuple[Array, Backward]:
    """out[n, f, y, x] = b[f] + Σ_cij w[f, c, i, j] in[n, c, s y + i − p, s x + j − p].

    The input is 0 outside its borders.
    """
    _, _, height, width = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    kernel_h, kernel_w = w.shape[2:]
    out_h = (height + 2 * padding - kernel_h) // stride + 1
    out_w = (width + 2 * padding - kernel_w) // stride + 1

    def seen(i: int, j: int) -> tuple[slice, slice, slice, slice]:
        """What weight (i, j) meets: one input value for each output."""
        whole = slice(None)
        rows = slice(i, i + stride * (out_h - 1) + 1, stride)
        columns = slice(j, j + stride * (out_w - 1) + 1, stride)
        return whole, whole, rows, columns

    out = np.tile(b[None, :, None, None], (len(x), 1, out_h, out_w))
    for i in range(kernel_h):
        for j in range(kernel_w):
            out += np.einsum("fc,nchw->nfhw", w[:, :, i, j], padded[seen(i, j)])

    def backward(d: Array) -> tuple[Array, list[Array]]:
        d_padded = np.zeros_like(padded)
        d_w = np.zeros_like(w)
        for i in range(kernel_h):
            for j in range(kernel_w):
                d_w[:, :, i, j] = np.einsum("nfhw,nchw->fc", d, padded[seen(i, j)])
                d_padded[seen(i, j)] += np.einsum("fc,nfhw->nchw", w[:, :, i, j], d)
        d_x = d_padded[:, :, padding : padding + height, padding : padding + width]
        return d_x, [d_w, d.sum(axis=(0, 2, 3))]

    return out, backward


def max_pool(x: Array, size: int, stride: int, margin: Margin) -> tuple[Array, Backward]:
    """out[n, c, y, x] = max_ij in[n, c, s y + i, s x + j].

    The derivative goes to the first of the largest.
    """
    out_h = (x.shape[2] - size) // stride + 1
    out_w = (x.shape[3] - size) // stride + 1
    out = np.empty((*x.shape[:2], out_h, out_w))
    winners: list[tuple[int, int, NDArray[np.intp]]] = []
    for y in range(out_h):
        for z in range(out_w):
            window = x[:, :, stride * y : stride * y + size, stride * z : stride * z + size]
            values = window.reshape(*x.shape[:2], -1)
            out[:, :, y, z] = values.max(axis=-1)
            winners.append((y, z, values.argmax(axis=-1)))
            margin.see(out[:, :, y, z, None] - values)

    def backward(d: Array) -> tuple[Array, list[Array]]:
        d_x = np.zeros_like(x)
        n, c = np.indices(x.shape[:2])
        for y, z, k in winners:
            d_x[n, c, stride * y + k // size, stride * z + k % size] += d[:, :, y, z]
        return d_x, []

    return out, backward


def relu(x: Array, margin: Margin) -> tuple[Array, Backward]:
    """max(0, x), with derivative 0 at 0."""
    margin.see(np.abs(x))
    return np.maximum(x, 0.0), lambda d: (d * (x > 0), [])


def tanh(x: Array) -> tuple[Array, Backward]:
    out = np.tanh(x)
    return out, lambda d: (d * (1 - out**2), [])


def sigmoid(x: Array) -> tuple[Array, Backward]:
    """1 / (1 + e^−x)."""
    out = 1 / (1 + np.exp(-x))
    return out, lambda d: (d * out * (1 - out), [])


def softmax(logits: Array) -> Array:
    """exp(z_j) / Σ_k exp(z_k)."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def cross_entropy(logits: Array, y: NDArray[np.integer]) -> tuple[float, Array]:
    """The mean over the batch of −log softmax(z)[y], and its derivative by the logits."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    rows = np.arange(len(y))
    d = softmax(logits)
    d[rows, y] -= 1.0
    return float(-log_probabilities[rows, y].mean()), d / len(y)


@dataclass(frozen=True)
class Network:
    """The layers on inputs of a shape (channels, height, width)."""

    input_shape: tuple[int, int, int]
    layers: Sequence[Layer]

    def _forward(self, theta: Array, x: Array, margin: Margin) -> tuple[Array, list[Backward]]:
        parameters = Parameters(np.asarray(theta, np.float64))
        values = np.asarray(x, np.float64).reshape(len(x), *self.input_shape)
        backwards = []
        for layer in self.layers:
            match layer:
                case Dense(outputs):
                    inputs = values[0].size
                    w, b = parameters.take(inputs, outputs), parameters.take(outputs)
                    values, backward = dense(values, w, b)
                case Conv2d(filters, kernel, stride, padding):
                    w = parameters.take(filters, values.shape[1], kernel, kernel)
                    values, backward = conv2d(values, w, parameters.take(filters), stride, padding)
                case MaxPool(size, stride):
                    values, backward = max_pool(values, size, stride or size, margin)
                case ReLU():
                    values, backward = relu(values, margin)
                case Tanh():
                    values, backward = tanh(values)
                case Sigmoid():
                    values, backward = sigmoid(values)
            backwards.append(backward)
        assert parameters.used == len(theta)
        logits = values.reshape(len(values), -1)
        return logits, [lambda d: (d.reshape(values.shape), []), *backwards[::-1]]

    def logits(self, theta: Array, x: Array) -> Array:
        return self._forward(theta, x, Margin())[0]

    def loss(self, theta: Array, x: Array, y: NDArray[np.integer]) -> float:
        return cross_entropy(self.logits(theta, x), y)[0]

    def margin(self, theta: Array, x: Array) -> float:
        """Values nearer to a kink than float32's rounding may fall on its other side there."""
        margin = Margin()
        self._forward(theta, x, margin)
        return margin.smallest

    def gradient(self, theta: Array, x: Array, y: NDArray[np.integer]) -> tuple[float, Array]:
        """Loss and dL/dθ."""
        logits, backwards = self._forward(theta, x, Margin())
        loss, d = cross_entropy(logits, y)
        parts: list[Array] = []
        for backward in backwards:
            d, own = backward(d)
            parts = [*own, *parts]
        return loss, np.concatenate([part.ravel() for part in parts])
