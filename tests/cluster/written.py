"""The embedded digits as MNIST's files: a process reads them sooner than it draws them."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from leashed.datasets import Split, synthetic_digits, write_idx


def digits(folder: Path) -> Path:
    """The folder, with the files in it; they are written where they are not there yet."""
    if folder.exists():
        return folder
    folder.mkdir()
    for name, data in zip(("train", "t10k"), _drawn(), strict=True):
        images = np.rint(data.x * 255).astype(np.uint8).reshape(-1, 28, 28)
        write_idx(folder / f"{name}-images-idx3-ubyte", images)
        write_idx(folder / f"{name}-labels-idx1-ubyte", data.y.astype(np.uint8))
    return folder


def rows(path: Path, seed: int, count: int = 400, columns: int = 30) -> None:
    """Sparse rows in the libsvm format, whose labels a plane and pairs of columns tell."""
    of = np.random.default_rng(7)
    plane, factors = of.normal(size=columns), of.normal(size=(columns, 2))
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        there = np.sort(rng.choice(columns, 6, replace=False))
        values = rng.normal(size=6)
        both = values @ factors[there]
        told = values @ plane[there] + 0.2 * (both @ both)
        named = " ".join(f"{k + 1}:{value:.4f}" for k, value in zip(there, values, strict=True))
        lines.append(f"{1 if told > 0 else -1} {named}\n")
    path.write_text("".join(lines), encoding="utf-8")


@functools.cache
def _drawn() -> Split:
    return synthetic_digits()
