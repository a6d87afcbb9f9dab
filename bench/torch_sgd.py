"""SGD in PyTorch as fast as its eager mode goes: the peer's side of ``peers.py``.

The data is cut into batches once, and training walks over these batches: no sampling, no copying.
Gradients come from ``torch.autograd.grad`` and are not accumulated; the update is one in-place
``torch._foreach_add_`` without a graph.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

SHAPES = {
    "mlp": [(128, 784), (128,), (128, 128), (128,), (128, 128), (128,), (10, 128), (10,)],
    "cnn": [(4, 1, 3, 3), (4,), (8, 4, 3, 3), (8,), (128, 200), (128,), (10, 128), (10,)],
}
WARM_UP = 10

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


def parameters(network: str, seed: int = 0) -> list[torch.Tensor]:
    """Weights N(0, 0.05), as leaves that require gradients."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.normal(0.0, 0.05, shape, generator=generator).requires_grad_()
        for shape in SHAPES[network]
    ]


class Trainer:
    """One network trained at one batch size, some seconds at a time.

    Args:
        network: ``"mlp"`` or ``"cnn"``.
        x: float32 [n, 784].
        y: whole numbers [n].
        batch_size: examples per step.
        weights: what to train, possibly in shared memory.
        channels_last: convolutions in that memory format, pooling before ReLU.
    """

    def __init__(
        self,
        network: str,
        x: NDArray[np.float32],
        y: NDArray[np.int32],
        batch_size: int,
        weights: list[torch.Tensor],
        channels_last: bool = False,
    ) -> None:
        self.forward: Forward = mlp if network == "mlp" else cnn
        self.weights = weights
        self.batch_size = batch_size
        whole = len(x) // batch_size * batch_size
        inputs = torch.from_numpy(x[:whole])
        if network == "cnn":
            inputs = inputs.view(-1, 1, 28, 28)
        batches = list(inputs.split(batch_size))
        if channels_last:
            self.forward = cnn_pool_first
            batches = [b.contiguous(memory_format=torch.channels_last) for b in batches]
        labels = torch.from_numpy(y[:whole].astype(np.int64)).split(batch_size)
        self.batches: Iterator[tuple[torch.Tensor, torch.Tensor]] = itertools.cycle(
            zip(batches, labels, strict=True)
        )
        for _ in range(WARM_UP):
            self.step()

    def step(self, lr: float = 0.01) -> None:
        """θ ← θ − η g on the next batch."""
        x, y = next(self.batches)
        loss = F.cross_entropy(self.forward(x, *self.weights), y)
        gradients = torch.autograd.grad(loss, self.weights)
        with torch.no_grad():
            torch._foreach_add_(self.weights, gradients, alpha=-lr)

    def train(self, seconds: float) -> float:
        """Train for so long; examples per second."""
        start = time.perf_counter()
        examples, elapsed = 0, 0.0
        while elapsed < seconds:
            self.step()
            examples += self.batch_size
            elapsed = time.perf_counter() - start
        return examples / elapsed
