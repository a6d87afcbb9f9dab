"""Rows that are read while they are trained on, in an order drawn from the seed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import leashed as lsh
from leashed import cli
from leashed.training.job import Job
from leashed.training.problems.problem import problem_of


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.tsv"
    path.write_bytes(b"".join(lsh.datasets.synthetic_click_lines(300, 0, cardinalities=50)))
    return path


def test_a_stream_is_shuffled_by_the_seed(log: Path) -> None:
    words = {"model": "dlrm", "data": str(log), "stream": True}
    plain = problem_of(Job(**words)).train
    assert plain.order == {"shuffle": 0}
    mixed = problem_of(Job(**words, shuffle=100, seed=3)).train
    assert mixed.order == {"shuffle": 100, "seed": 3}
    assert not np.array_equal(mixed.read().x, plain.read().x)


def test_sparse_rows_too(tmp_path: Path) -> None:
    rows = tmp_path / "rows.svm"
    rows.write_text("".join(f"{k % 2} 1:{k}\n" for k in range(50)))
    words = {"model": "logistic_regression", "data": str(rows), "stream": True, "features": 1}
    assert problem_of(Job(**words, shuffle=10)).train.order == {"shuffle": 10, "seed": 0}


def test_days_are_shuffled_each(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["train", "--model", "dlrm", "--days", str(log), "--no-progress", "--threads", "1"]
    losses = []
    for name, more in (("plain", []), ("mixed", ["--shuffle", "100"])):
        folder = ["--checkpoint", str(tmp_path / name)]
        assert cli.main([*asked, *folder, *more, "--json-lines"]) == 0
        lines = capsys.readouterr().out.splitlines()
        losses.append(
            json.dumps([json.loads(line).get("loss") for line in lines if line.startswith("{")])
        )
    assert losses[0] != losses[1]


def test_without_a_stream_it_is_told(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--model", "dlrm", "--data", str(log), "--shuffle", "9"]) == 2
    assert "--shuffle goes with --stream or --days" in capsys.readouterr().err
