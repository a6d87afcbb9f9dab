"""SGD in PyTorch as fast as its eager mode goes.

The data is cut into batches once, and training walks over these batches: no sampling, no copying.
Gradients come from ``torch.autograd.grad`` and are not accumulated; the update is one in-place
``torch._foreach_add_`` without a graph.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from bench.networks import Floats, torch_parameters
from leashed.datasets import Dataset

WARM_UP = 10
HEARD = 512  # examples, whose mean loss says when to look

Forward = Callable[..., torch.Tensor]


def mlp(x: torch.Tensor, *p: torch.Tensor) -> torch.Tensor:
    """leashed-sgd, Table II."""
    for k in range(0, 6, 2):
        x = F.relu(F.linear(x, p[k], p[k + 1]))
    return F.linear(x, p[6], p[7])


def cnn(x: torch.Tensor, *p: torch.Tensor) -> torch.Tensor:
    """leashed-sgd, Table III."""
    for k in range(0, 4, 2):
        x = F.max_pool2d(F.relu(F.conv2d(x, p[k], p[k + 1])), 2)
    x = F.relu(F.linear(x.flatten(1), p[4], p[5]))
    return F.linear(x, p[6], p[7])


def cnn_pool_first(x: torch.Tensor, *p: torch.Tensor) -> torch.Tensor:
    """The same function with ReLU on the pooled values, which is faster in some settings."""
    for k in range(0, 4, 2):
        x = F.relu(F.max_pool2d(F.conv2d(x, p[k], p[k + 1]), 2))
    x = F.relu(F.linear(x.flatten(1), p[4], p[5]))
    return F.linear(x, p[6], p[7])


class Trainer:
    """One network trained at one batch size, some seconds at a time.

    Args:
        network: ``"MLP"`` or ``"CNN"``.
        data: the training set.
        batch_size: examples per step.
        memory: holds the parameters, possibly shared with other processes.
        lr: the step size.
        channels_last: convolutions in that memory format, pooling before ReLU.
        order: the rows of the data in the order in which to walk over them; default: as they lie.
    """

    def __init__(
        self,
        network: str,
        data: Dataset,
        batch_size: int,
        memory: Floats,
        lr: float = 0.01,
        channels_last: bool = False,
        order: NDArray[np.int64] | None = None,
    ) -> None:
        self.forward: Forward = mlp if network == "MLP" else cnn
        self.weights = [
            torch.from_numpy(w).requires_grad_() for w in torch_parameters(network, memory)
        ]
        self.batch_size, self.lr = batch_size, lr
        self.all = torch.from_numpy(data.x), torch.from_numpy(data.y.astype(np.int64))
        whole = len(data) // batch_size * batch_size
        rows = np.arange(whole) if order is None else order[:whole]
        inputs = torch.from_numpy(data.x[rows])
        if network == "CNN":
            inputs = inputs.view(-1, 1, 28, 28)
        batches = list(inputs.split(batch_size))
        if channels_last:
            self.forward = cnn_pool_first
            batches = [b.contiguous(memory_format=torch.channels_last) for b in batches]
        labels = torch.from_numpy(data.y[rows].astype(np.int64)).split(batch_size)
        self.batches: Iterator[tuple[torch.Tensor, torch.Tensor]] = itertools.cycle(
            zip(batches, labels, strict=True)
        )
        for _ in range(WARM_UP):
            self.step()

    def step(self) -> torch.Tensor:
        """θ ← θ − η g on the next batch; its loss before."""
        x, y = next(self.batches)
        loss = F.cross_entropy(self.forward(x, *self.weights), y)
        gradients = torch.autograd.grad(loss, self.weights)
        with torch.no_grad():
            torch._foreach_add_(self.weights, gradients, alpha=-self.lr)
        return loss.detach()

    def loss(self) -> float:
        """The mean over the data, of features as they lie."""
        x, y = self.all
        with torch.no_grad():
            return float(F.cross_entropy(self.forward(x, *self.weights), y))

    def finish(self, fraction: float, most: float) -> float:
        """Train until the loss is that share of the initial one; the seconds from call to return.

        As leashed does: where the mean loss of the last five hundred examples is as low, all data is
        evaluated; where that was too early, again when the mean has fallen by what it was below the
        loss, and not at once. Infinite where it takes more than ``most`` seconds.
        """
        start = looked = time.perf_counter()
        target = fraction * self.loss()
        evaluation = time.perf_counter() - start
        weight = min(1.0, self.batch_size / HEARD)
        above = 1.0
        mean = float(self.step())
        while (now := time.perf_counter()) - start < most:
            mean += weight * (float(self.step()) - mean)
            if mean * above <= target and now - looked >= 0.25 * evaluation:
                loss = self.loss()
                if loss <= target:
                    return time.perf_counter() - start
                above = min(max(loss / mean, 1.0), 2.0)
                looked = time.perf_counter()
        return math.inf

    def train(self, end: float) -> float:
        """Train until that moment of ``time.perf_counter``; examples per second."""
        start = now = time.perf_counter()
        examples = 0
        while now < end:
            self.step()
            examples += self.batch_size
            now = time.perf_counter()
        return examples / (now - start) if examples else 0.0
