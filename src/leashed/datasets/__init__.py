"""Data to train on: MNIST-like folders, synthetic digits, arrays of your own.

    data = leashed.datasets.synthetic_digits()           # needs no files
    data = leashed.datasets.mnist("folder")              # four IDX files
    data = leashed.datasets.Dataset.from_arrays(x, y)    # yours

Nothing here uses the network except ``download``.
"""

from leashed.datasets.dataset import Dataset, Split
from leashed.datasets.digits import synthetic_digits
from leashed.datasets.idx import read_idx, write_idx
from leashed.datasets.mnist import download, fashion_mnist, mnist

__all__ = [
    "Dataset",
    "Split",
    "download",
    "fashion_mnist",
    "mnist",
    "read_idx",
    "synthetic_digits",
    "write_idx",
]
