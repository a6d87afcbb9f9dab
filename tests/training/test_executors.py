"""Executors against each other: threads under a discipline, a mode's threads, virtual time and replays of
one worker come to the same bits on any data, also through a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matrix
import numpy as np
import pytest
from numpy.typing import NDArray

import leashed as lsh
from leashed import modes, simulation

ALL = lsh.until(epochs=2)
HALF = lsh.until(updates=20)
SEQ: dict[str, Any] = {"discipline": lsh.Sequential(), "threads": 1}
ASP: dict[str, Any] = {"mode": modes.ASP(), "threads": 1}
Problem = Callable[[], tuple[Any, Any]]


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Problem]:
    return matrix.problems(tmp_path_factory.mktemp("problems"))


def train(problem: Problem, until: lsh.Until = ALL, **given: Any) -> lsh.TrainResult:
    rule = lsh.Adagrad(0.05)
    return lsh.train(*problem(), until=until, rule=rule, batch_size=matrix.BATCH, **given)


def resumed(problem: Problem, folder: Path, **how: Any) -> lsh.TrainResult:
    train(problem, HALF, checkpoint=folder / "half", **how)
    return train(problem, resume=folder / "half", **how)


def played(problem: Problem, **how: Any) -> lsh.TrainResult:
    how.pop("threads")
    return lsh.simulate(
        *problem(), until=ALL, rule=lsh.Adagrad(0.05), batch_size=matrix.BATCH,
        cluster=simulation.constant(1, 1.0), **how,
    ).result  # fmt: skip


def replayed(problem: Problem, folder: Path, **how: Any) -> lsh.Replay:
    train(problem, observe=lsh.Observe(record=folder / "record"), **how)
    made = lsh.replay(folder / "record", *problem())
    assert made.difference == 0
    return made


EXECUTORS: dict[str, Callable[[Problem, Path], Any]] = {
    "asp": lambda problem, _: train(problem, **ASP),
    "asp, resumed": lambda problem, folder: resumed(problem, folder, **ASP),
    "asp, replayed": lambda problem, folder: replayed(problem, folder, **ASP),
    "sequential, resumed": lambda problem, folder: resumed(problem, folder, **SEQ),
    "sequential, replayed": lambda problem, folder: replayed(problem, folder, **SEQ),
    "virtual": lambda problem, _: played(problem, **SEQ),
    "virtual asp": lambda problem, _: played(problem, **ASP),
}


def bits(result: Any) -> list[NDArray[np.float32]]:
    """Of parameters and rows."""
    return [result.parameters, *(t.lookup(np.arange(12)) for t in result.tables.values())]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    "problem",
    ["dense", "sparse", "fm", "tables", "stream", "stream of clicks", "stream of sparse rows", "external"],
)  # fmt: skip
def test_one_worker_has_the_bits_of_sequential(
    problems: dict[str, Problem], problem: str, executor: str, tmp_path: Path
) -> None:
    wanted = train(problems[problem], **SEQ)
    if wanted.config["sparse_updates"] and not executor.startswith("sequential"):
        # What is updated in place is rounded otherwise, here and there.
        wanted = train(problems[problem], discipline=lsh.Leashed(), threads=1)
    if executor == "sequential, replayed" and wanted.config["sparse_updates"]:
        pytest.skip("updates in place are not recorded")
    for found, other in zip(
        bits(EXECUTORS[executor](problems[problem], tmp_path)), bits(wanted), strict=True
    ):
        np.testing.assert_array_equal(found, other)
