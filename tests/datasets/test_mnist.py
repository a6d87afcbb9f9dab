import gzip
import hashlib
import importlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from leashed.datasets import download, fashion_mnist, mnist, read_idx, write_idx

FILES = {
    "train-images-idx3-ubyte": np.arange(24, dtype=np.uint8).reshape(4, 2, 3),
    "train-labels-idx1-ubyte": np.array([0, 9, 3, 3], np.uint8),
    "t10k-images-idx3-ubyte": np.full((2, 2, 3), 255, np.uint8),
    "t10k-labels-idx1-ubyte": np.array([1, 2], np.uint8),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    for number, (name, array) in enumerate(FILES.items()):
        write_idx(folder / (name + (".gz" if number % 2 else "")), array)
    return folder


def test_real_mnist_is_read(mnist_folder: Path) -> None:
    train, test = mnist(mnist_folder)
    assert train.name == "mnist/train"
    for data in (train, test):
        assert data.x.shape == (10_000, 784)
        assert data.image_shape == (1, 28, 28)
        assert data.classes == 10
        assert (data.x.min(), data.x.max()) == (0, 1)
        assert np.bincount(data.y).min() > 800
    assert test.y[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert test.x.mean() == pytest.approx(0.1325, abs=1e-4)


def test_real_mnist_survives_a_round_trip(mnist_folder: Path, tmp_path: Path) -> None:
    images = read_idx(mnist_folder / "t10k-images-idx3-ubyte.gz")
    write_idx(tmp_path / "copy", images)
    np.testing.assert_array_equal(read_idx(tmp_path / "copy"), images)


@pytest.mark.parametrize(("read", "name"), [(mnist, "mnist"), (fashion_mnist, "fashion_mnist")])
def test_a_folder_of_plain_and_packed_files_is_read(folder: Path, read: object, name: str) -> None:
    train, test = {mnist: mnist, fashion_mnist: fashion_mnist}[read](folder)  # type: ignore[index]
    assert (train.name, test.name) == (f"{name}/train", f"{name}/test")
    np.testing.assert_array_equal(
        train.x, np.arange(24, dtype="f4").reshape(4, 6) / np.float32(255)
    )
    assert train.y.tolist() == [0, 9, 3, 3]
    assert (test.x == 1).all()
    assert train.image_shape == (1, 2, 3)
    assert train.classes == 10


def test_a_missing_folder_is_named_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        mnist(tmp_path / "nowhere")
    for part in (*FILES, "nowhere is not a folder", "leashed.datasets.download(", "'mnist'"):
        assert part in str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    for path in folder.glob(f"{name}*"):
        path.unlink()
    with pytest.raises(FileNotFoundError, match=f"has no {name}"):
        fashion_mnist(folder)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("train-labels-idx1-ubyte", np.zeros(3, "u1"), "4 images but .* 3 labels"),
        ("train-labels-idx1-ubyte", np.full(4, 10, "u1"), "label 10, outside 0 to 9"),
        ("train-labels-idx1-ubyte", np.zeros(4, "i4"), "does not hold labels"),
        ("train-labels-idx1-ubyte", np.zeros((4, 1), "u1"), "does not hold labels"),
        ("train-images-idx3-ubyte", np.zeros((4, 6), "u1"), "does not hold images"),
        ("train-images-idx3-ubyte", np.zeros((4, 2, 3), "f4"), "does not hold images"),
        ("t10k-images-idx3-ubyte", np.zeros((2, 3, 3), "u1"), r"\(1, 2, 3\), test images"),
        ("t10k-images-idx3-ubyte", np.zeros((2, 0, 3), "u1"), "is empty"),
    ],
)
def test_files_that_do_not_fit_are_refused(
    folder: Path, name: str, array: np.ndarray, message: str
) -> None:
    for path in folder.glob(f"{name}*"):
        path.unlink()
    write_idx(folder / name, array)
    with pytest.raises(ValueError, match=message):
        mnist(folder)


def test_a_corrupt_file_is_named(folder: Path) -> None:
    (folder / "t10k-images-idx3-ubyte").write_bytes(b"<!DOCTYPE html>")
    with pytest.raises(ValueError, match="t10k-images-idx3-ubyte: not an IDX file"):
        mnist(folder)


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """A server of small files whose checksums are the expected ones; its address and folder."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    served = tmp_path / "served"
    served.mkdir()
    checksums = {}
    for name, array in FILES.items():
        path = served / f"{name}.gz"
        write_idx(path, array)
        checksums[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    module = importlib.import_module("leashed.datasets.mnist")
    monkeypatch.setitem(vars(module)["_SHA256"], "mnist", checksums)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(served)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", served
    server.shutdown()
    thread.join()
    server.server_close()


def test_download_fetches_what_mnist_reads(mirror: tuple[str, Path], tmp_path: Path) -> None:
    url, served = mirror
    folder = tmp_path / "made" / "here"
    assert download(folder, base_url=url) == folder
    assert mnist(folder).train.y.tolist() == [0, 9, 3, 3]
    assert sorted(p.name for p in folder.iterdir()) == sorted(p.name for p in served.iterdir())


def test_download_keeps_what_is_there(mirror: tuple[str, Path], tmp_path: Path) -> None:
    url, served = mirror
    folder = tmp_path / "folder"
    download(folder, base_url=url)
    for path in served.iterdir():
        path.unlink()
    download(folder, base_url=url)


@pytest.mark.parametrize("damage", ["flipped", "shortened", "page"])
def test_a_damaged_download_is_refused_and_leaves_nothing(
    mirror: tuple[str, Path], tmp_path: Path, damage: str
) -> None:
    url, served = mirror
    victim = served / "train-images-idx3-ubyte.gz"
    good = victim.read_bytes()
    victim.write_bytes(
        {"flipped": good[:-1] + b"\1", "shortened": good[:-1], "page": b"<html>"}[damage]
    )
    assert victim.read_bytes() != good
    folder = tmp_path / "folder"
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte.gz is not the published mnist"):
        download(folder, base_url=url)
    assert not folder.exists()


def test_an_unreachable_server_is_named(mirror: tuple[str, Path], tmp_path: Path) -> None:
    url, served = mirror
    (served / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(OSError, match=r"cannot fetch http://127.0.0.1.*404"):
        download(tmp_path / "folder", base_url=url)
    assert not list((tmp_path / "folder").glob(".*"))
    with pytest.raises(OSError, match=r"cannot fetch http://127.0.0.1:9/"):
        download(tmp_path / "other", base_url="http://127.0.0.1:9")


def test_download_leaves_files_of_yours_alone(mirror: tuple[str, Path], tmp_path: Path) -> None:
    mine = tmp_path / "t10k-images-idx3-ubyte.gz"
    mine.write_bytes(gzip.compress(b"mine"))
    with pytest.raises(FileExistsError, match="move it away"):
        download(tmp_path, base_url=mirror[0])
    assert gzip.decompress(mine.read_bytes()) == b"mine"


def test_download_refuses_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="which must be one of 'mnist', 'fashion_mnist'"):
        download(tmp_path, "cifar")
    with pytest.raises(ValueError, match="base_url must begin with"):
        download(tmp_path, base_url="file:///etc")
