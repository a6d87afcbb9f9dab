"""A PyTorch CNN, trained by a loop that one line changes, then by threads on one vector.

python examples/torch_cnn.py [--threads 2] [--examples 4000]
"""

import argparse

import torch
from torch import nn

import leashed as lsh
import leashed.torch


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        nn.Conv2d(1, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 10),
    )


def accuracy(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return float((module(x).argmax(1) == y).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--examples", type=int, default=4000)
    options = parser.parse_args()

    torch.manual_seed(0)
    digits, test = lsh.datasets.synthetic_digits(n=options.examples)
    x, y = torch.tensor(digits.x).view(-1, 28, 28), torch.tensor(digits.y).long()
    test_x, test_y = torch.tensor(test.x).view(-1, 28, 28), torch.tensor(test.y).long()

    module = cnn()
    optimizer = lsh.torch.Optimizer(module.parameters(), lsh.Adam(2e-3))  # the line
    for rows in torch.randperm(len(x)).split(32):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
        optimizer.step()
    print(f"one pass in a loop: accuracy {accuracy(module, test_x, test_y):.3f}")

    result = lsh.torch.fit(
        module,
        nn.functional.cross_entropy,
        (x, y),
        rule=lsh.Adam(2e-3),
        threads=options.threads,
        batch_size=32,
        until=lsh.until(epochs=4),
    )
    final = accuracy(module, test_x, test_y)
    print(
        f"then {result.updates} updates by threads: accuracy {final:.3f}, "
        f"mean staleness {result.staleness.mean():.2f}"
    )
    assert final > 0.8


if __name__ == "__main__":
    main()
