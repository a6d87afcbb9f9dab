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


@functools.cache
def _drawn() -> Split:
    return synthetic_digits()
