"""Data to train on: MNIST-like folders, synthetic digits, arrays of your own.

    data = leashed.datasets.synthetic_digits()           # needs no files
    data = leashed.datasets.mnist("folder")              # four IDX files
    data = leashed.datasets.Dataset.from_arrays(x, y)    # yours
    data = leashed.datasets.SparseDataset.from_csr(x, y) # SciPy's CSR matrices
    data = leashed.datasets.read_svmlight("file")        # svmlight (libsvm) files
    (train, test), fields = leashed.datasets.read_libffm("train.ffm", "test.ffm")
    data = leashed.datasets.synthetic_clicks()           # numbers, ids and clicks; no files
    data = leashed.datasets.next_items(Bags(items, offsets))  # what users chose next
    data = leashed.datasets.criteo("train.csv")          # Criteo's, as CSV or TSV
    data = leashed.datasets.ClickDataset.from_arrays(x, ids, y)

Nothing here uses the network except ``download``.
"""

from typing import TYPE_CHECKING

from leashed.base.room import offer

if TYPE_CHECKING:
    from leashed.datasets.clicks import *
    from leashed.datasets.criteo import *
    from leashed.datasets.dataset import Dataset as Dataset
    from leashed.datasets.dataset import Split as Split
    from leashed.datasets.digits import synthetic_digits as synthetic_digits
    from leashed.datasets.downsampling import *
    from leashed.datasets.hashing import *
    from leashed.datasets.idx import read_idx as read_idx
    from leashed.datasets.idx import write_idx as write_idx
    from leashed.datasets.mnist import download as download
    from leashed.datasets.mnist import fashion_mnist as fashion_mnist
    from leashed.datasets.mnist import mnist as mnist
    from leashed.datasets.next_items import *
    from leashed.datasets.sparse import *
    from leashed.datasets.synthetic_clicks import *
    from leashed.datasets.synthetic_histories import synthetic_histories as synthetic_histories

offer(
    __name__,
    {
        "clicks": "Bags ClickDataset ClickSplit",
        "criteo": "criteo",
        "dataset": "Dataset Split",
        "digits": "synthetic_digits",
        "downsampling": "downsample",
        "hashing": "hashed",
        "idx": "read_idx write_idx",
        "mnist": "download fashion_mnist mnist",
        "next_items": "next_items",
        "sparse": "SparseDataset read_libffm read_svmlight",
        "synthetic_clicks": "synthetic_click_lines synthetic_clicks",
        "synthetic_histories": "synthetic_histories",
    },
)
