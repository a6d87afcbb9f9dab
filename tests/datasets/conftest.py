"""Where the tests find real data: it lies beside the project, never inside it."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def mnist_folder() -> Path:
    beside = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get("LEASHED_DATA", beside)) / "mnist"
    if not folder.is_dir():
        pytest.skip(
            f"REAL MNIST IS ABSENT: {folder} is not a folder, so nothing was tested on it; "
            "set LEASHED_DATA to a folder that holds mnist/"
        )
    return folder
