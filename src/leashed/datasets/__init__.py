"""Data to train on: MNIST-like folders, synthetic digits, arrays of your own.

    data = leashed.datasets.synthetic_digits()           # needs no files
    data = leashed.datasets.mnist("folder")              # four IDX files
    data = leashed.datasets.Dataset.from_arrays(x, y)    # yours
    data = leashed.datasets.SparseDataset.from_csr(x, y) # SciPy's CSR matrices
    data = leashed.datasets.read_svmlight("file")        # svmlight (libsvm) files

Nothing here uses the network except ``download``.
"""

from leashed.datasets.dataset import Dataset, Split
from leashed.datasets.digits import synthetic_digits
from leashed.datasets.idx import read_idx, write_idx
from leashed.datasets.mnist import download, fashion_mnist, mnist
from leashed.datasets.sparse import SparseDataset, read_svmlight

__all__ = [
    "Dataset",
    "SparseDataset",
    "Split",
    "download",
    "fashion_mnist",
    "mnist",
    "read_idx",
    "read_svmlight",
    "synthetic_digits",
    "write_idx",
]
