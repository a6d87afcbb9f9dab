"""SGD on the MLP in NumPy at its best: whole batches as matrix products written into arrays that
are there already, walking over batches that were cut once. A CNN would need its convolutions
written as loops or as matrices unrolled by hand, which nobody would train with.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bench.networks import NETWORKS, Floats
from leashed.datasets import Dataset

WARM_UP = 10


class Trainer:
    """The MLP trained at one batch size, some seconds at a time.

    Args:
        data: the training set.
        batch_size: examples per step.
        memory: holds the parameters, in leashed's order.
        lr: the step size.
    """

    def __init__(self, data: Dataset, batch_size: int, memory: Floats, lr: float = 0.01) -> None:
        model = NETWORKS["MLP"]
        self.batch_size, self.lr = batch_size, np.float32(lr)
        self.parameters = memory[: model.dimension]
        self.gradient = np.empty_like(self.parameters)
        self.weights, self.biases = _layers(list(model.unflatten(self.parameters).values()))
        self.d_weights, self.d_biases = _layers(list(model.unflatten(self.gradient).values()))
        self.outputs = [np.empty((batch_size, len(b)), np.float32) for b in self.biases]
        self.d_outputs = [np.empty_like(out) for out in self.outputs]
        self.rows = np.arange(batch_size)
        whole = len(data) // batch_size
        self.batches: Iterator[tuple[Floats, NDArray[np.int32]]] = itertools.cycle(
            [
                (data.x[k * batch_size :][:batch_size], data.y[k * batch_size :][:batch_size])
                for k in range(whole)
            ]
        )
        for _ in range(WARM_UP):
            self.step()

    def step(self) -> None:
        """θ ← θ − η g on the next batch."""
        x, y = next(self.batches)
        last = len(self.weights) - 1
        value = x
        for i, out in enumerate(self.outputs):
            np.matmul(value, self.weights[i], out=out)
            np.add(out, self.biases[i], out=out)
            if i < last:
                np.maximum(out, 0.0, out=out)
            value = out

        d_out = self.d_outputs[last]
        np.subtract(value, value.max(axis=1, keepdims=True), out=d_out)
        np.exp(d_out, out=d_out)
        d_out /= d_out.sum(axis=1, keepdims=True)
        d_out[self.rows, y] -= 1.0
        d_out /= self.batch_size
        for i in range(last, -1, -1):
            below = self.outputs[i - 1] if i else x
            np.matmul(below.T, d_out, out=self.d_weights[i])
            np.sum(d_out, axis=0, out=self.d_biases[i])
            if i:
                d_below = self.d_outputs[i - 1]
                np.matmul(d_out, self.weights[i].T, out=d_below)
                d_below *= below > 0.0
                d_out = d_below
        self.gradient *= self.lr
        self.parameters -= self.gradient

    def train(self, end: float) -> float:
        """Train until that moment of ``time.perf_counter``; examples per second."""
        start = now = time.perf_counter()
        examples = 0
        while now < end:
            self.step()
            examples += self.batch_size
            now = time.perf_counter()
        return examples / (now - start) if examples else 0.0


def _layers(parts: list[Floats]) -> tuple[list[Floats], list[Floats]]:
    return parts[0::2], parts[1::2]
