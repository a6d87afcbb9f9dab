"""MNIST and Fashion-MNIST: folders of four IDX files, and their download."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leashed.datasets.dataset import Dataset, Split
from leashed.datasets.idx import read_idx

_CLASSES = 10
_TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
_TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

_URLS = {
    "mnist": "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "fashion_mnist": (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
    ),
}
# SHA-256 of the published files, as in tensorflow/datasets' url_checksums.
_SHA256 = {
    "mnist": {
        "train-images-idx3-ubyte.gz": (
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
        ),
        "train-labels-idx1-ubyte.gz": (
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
        ),
        "t10k-images-idx3-ubyte.gz": (
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
        ),
        "t10k-labels-idx1-ubyte.gz": (
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
        ),
    },
    "fashion_mnist": {
        "train-images-idx3-ubyte.gz": (
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"
        ),
        "train-labels-idx1-ubyte.gz": (
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"
        ),
        "t10k-images-idx3-ubyte.gz": (
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"
        ),
        "t10k-labels-idx1-ubyte.gz": (
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"
        ),
    },
}
_MAX_DOWNLOAD = 64 << 20
_TIMEOUT = 60.0


def mnist(path: str | os.PathLike[str]) -> Split:
    """Read MNIST (handwritten digits) from a folder; nothing is downloaded.

    The folder holds train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
    t10k-labels-idx1-ubyte, each plain or with ".gz". Any number of images will do, so a cut of the
    set reads as well. Pixels are divided by 255.

    Returns:
        ``Split(train, test)`` with x in [0, 1], 10 classes and image_shape (1, 28, 28).

    Raises:
        FileNotFoundError: The folder, or one of the four files, is missing.
        ValueError: A file is corrupt, or is not what its name says.
    """
    return _read_folder(Path(path), "mnist")


def fashion_mnist(path: str | os.PathLike[str]) -> Split:
    """Read Fashion-MNIST (articles of clothing) from a folder, as ``mnist`` does."""
    return _read_folder(Path(path), "fashion_mnist")


def download(
    folder: str | os.PathLike[str], which: str = "mnist", base_url: str | None = None
) -> Path:
    """Fetch the four published files of MNIST (11 MB) or Fashion-MNIST (31 MB) into a folder.

    Only this call ever uses the network. Every file is checked against its published SHA-256
    before it appears in the folder. Files that are there already are kept and not fetched again.

    Args:
        folder: Where to; made if it is missing.
        which: "mnist" or "fashion_mnist".
        base_url: A mirror that serves the same files. Default: the usual public one.

    Returns:
        The folder, ready for ``mnist`` or ``fashion_mnist``.

    Raises:
        ValueError: ``which`` or ``base_url`` is unknown, or a fetched file fails its checksum and
            is discarded.
        FileExistsError: The folder has another file of that name; it is left alone.
        OSError: The server cannot be reached, or the folder not written.
    """
    if which not in _SHA256:
        raise ValueError(f"which must be one of {', '.join(map(repr, _SHA256))}, got {which!r}")
    base_url = _URLS[which] if base_url is None else base_url
    if not base_url.startswith(("https://", "http://")):
        raise ValueError(f"base_url must begin with https:// or http://, got {base_url!r}")
    folder = Path(folder)
    for name, checksum in _SHA256[which].items():
        target = folder / name
        if target.exists():
            if _sha256(target.read_bytes()) != checksum:
                raise FileExistsError(
                    f"{target} exists and is not the published {which} file; move it away, or "
                    "download into another folder"
                )
            continue
        url = f"{base_url.rstrip('/')}/{name}"
        content = _fetch(url)
        if _sha256(content) != checksum:
            raise ValueError(
                f"{url} is not the published {which} file: SHA-256 {_sha256(content)} instead of "
                f"{checksum}; nothing was written"
            )
        _write_whole(target, content)
    return folder


def _read_folder(folder: Path, which: str) -> Split:
    train_x, train_y = (_find(folder, name, which) for name in _TRAIN)
    test_x, test_y = (_find(folder, name, which) for name in _TEST)
    train = _read_pair(train_x, train_y, f"{which}/train")
    test = _read_pair(test_x, test_y, f"{which}/test")
    if train.image_shape != test.image_shape:
        raise ValueError(
            f"{folder}: training images are {train.image_shape}, test images {test.image_shape}"
        )
    return Split(train, test)


def _find(folder: Path, name: str, which: str) -> Path:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    what = f"has no {name}[.gz]" if folder.is_dir() else "is not a folder"
    raise FileNotFoundError(
        f"{folder} {what}; a {which} folder holds {', '.join(_TRAIN + _TEST)}, each plain or .gz. "
        f"leashed.datasets.download({str(folder)!r}, {which!r}) fetches them; "
        "leashed.datasets.synthetic_digits() needs no files"
    )


def _read_pair(images_path: Path, labels_path: Path, name: str) -> Dataset:
    images, labels = read_idx(images_path), read_idx(labels_path)
    _check_kind(images_path, images, 3, "images")
    _check_kind(labels_path, labels, 1, "labels")
    if len(images) != len(labels):
        raise ValueError(
            f"{images_path} has {len(images)} images but {labels_path} has {len(labels)} labels"
        )
    if images.size == 0:
        raise ValueError(f"{images_path} is empty: dimensions {images.shape}")
    if labels.max() >= _CLASSES:
        raise ValueError(f"{labels_path} has the label {labels.max()}, outside 0 to {_CLASSES - 1}")
    x = np.divide(images, np.float32(255), dtype=np.float32)
    return Dataset.from_arrays(x, labels, classes=_CLASSES, name=name)


def _check_kind(path: Path, values: NDArray[Any], ndim: int, what: str) -> None:
    if values.dtype != np.uint8 or values.ndim != ndim:
        raise ValueError(
            f"{path} does not hold {what}: expected uint8 with {ndim} dimension(s), got "
            f"{values.dtype} with {values.ndim}"
        )


def _fetch(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:  # noqa: S310
            content: bytes = response.read(_MAX_DOWNLOAD + 1)
    except (OSError, http.client.HTTPException) as error:
        raise OSError(f"cannot fetch {url}: {error}") from error
    return content


def _write_whole(target: Path, content: bytes) -> None:
    """Write under another name, then rename: a file of this name is never a part of itself."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
