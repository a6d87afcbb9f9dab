"""Every example runs, as a user would run it, and warns of nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*command: object, folder: Path | None = None) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "error", *map(str, command)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_threads() -> None:
    assert "mean staleness" in run(EXAMPLES / "threads.py", "--threads", 2)


def test_numba_logistic_regression() -> None:
    pytest.importorskip("numba", reason="Numba is optional")
    assert "converged" in run(EXAMPLES / "numba_logistic_regression.py", "--threads", 2)


def test_cython_model(tmp_path: Path) -> None:
    pytest.importorskip("Cython", reason="Cython is optional")
    pytest.importorskip("setuptools", reason="setuptools builds the Cython model")
    folder = shutil.copytree(EXAMPLES / "cython_model", tmp_path / "model")
    run("setup.py", "build_ext", "--inplace", folder=folder)
    assert "converged" in run("train.py", folder=folder)


def test_torch_cnn() -> None:
    pytest.importorskip("torch", reason="PyTorch is an optional extra")
    assert "by threads" in run(EXAMPLES / "torch_cnn.py", "--threads", 2, "--examples", 2000)


def test_sklearn_pipeline() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is an optional extra")
    assert "test accuracy" in run(EXAMPLES / "sklearn_pipeline.py", "--threads", 2)


def test_recommender(tmp_path: Path) -> None:
    few = ("--days", 3, "--rows", 2000, "--folder", tmp_path / "home")
    first = run(EXAMPLES / "recommender.py", *few)
    assert first.count("by the model of the day before") == 2
    again = run(EXAMPLES / "recommender.py", *few)
    assert again.splitlines()[0] == "done, 3 days"
    assert again.count("clicked with probability") == 5
