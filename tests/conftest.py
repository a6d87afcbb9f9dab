"""What tests of more than one file share."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

# Tests run in several processes: one BLAS thread each, since those that wait spin. Before NumPy.
for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

import pytest
from hypothesis import settings

import leashed as lsh

if TYPE_CHECKING:
    from model_checker import Checker

# A shell that starts the tests in the background has them ignore Ctrl-C, which some of them send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Pytest's importlib mode leaves the path alone. Here lie reference.py and factories.py, beside this
# folder the benchmarks, which are no part of the package.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from drawing import examples

# Deadlines measure the machine, not the code.
settings.register_profile("leashed", max_examples=examples(), deadline=None, print_blob=True)
settings.load_profile("leashed")

CONCURRENT = (
    lsh.Synchronous(),
    lsh.Locked(),
    lsh.Hogwild(),
    lsh.Hogwild(copy=False),
    lsh.Leashed(),
    lsh.Leashed(1),
    lsh.Leashed(0),
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of ``few(n)`` and ``process(n)`` with their parameters the first n run always, and those behind them are
    long.
    """
    tests: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("few") or item.get_closest_marker("process")
        if mark is not None and mark.args:
            test = item.nodeid.partition("[")[0]
            tests[test] += 1
            if tests[test] > mark.args[0]:
                item.add_marker(pytest.mark.long)


@pytest.fixture
def checker(tmp_path: Path) -> Checker:
    """Of the models in ``models/``."""
    from model_checker import Checker  # noqa: PLC0415 (it lies here, on the path by now)

    return Checker(tmp_path)


def _label(discipline: lsh.Discipline) -> str:
    return discipline.label


@pytest.fixture(params=CONCURRENT, ids=_label)
def concurrent(request: pytest.FixtureRequest) -> lsh.Discipline:
    """Every discipline for several threads."""
    return request.param


@pytest.fixture(params=(lsh.Sequential(), *CONCURRENT), ids=_label)
def discipline(request: pytest.FixtureRequest) -> lsh.Discipline:
    return request.param


@pytest.fixture(scope="session")
def digits() -> lsh.Dataset:
    """1,000 images, 28×28, ten classes."""
    return lsh.datasets.synthetic_digits(n=1000, seed=0).train


@pytest.fixture(scope="session")
def mnist_folder() -> Path:
    """Real MNIST, which lies beside the project, never inside it."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("LEASHED_DATA", beside)) / "mnist"
    if not folder.is_dir():
        pytest.skip(
            f"REAL MNIST IS ABSENT: {folder} is not a folder, so nothing was tested on it; "
            "set LEASHED_DATA to a folder that holds mnist/"
        )
    return folder
