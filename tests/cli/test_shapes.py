"""Shapes of models on the command line, and of all that data may have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import cli, models
from leashed.training.job import Job
from leashed.training.problems import clicks

COLUMNS = {
    "dlrm": models.dlrm,
    "deepfm": models.deepfm,
    "dcn": models.dcn,
    "wide_deep": models.wide_deep,
}
HAS = {
    "dlrm": {"dim", "hidden", "bottom"},
    "deepfm": {"dim", "hidden"},
    "wide_deep": {"dim", "hidden"},
    "dcn": {"dim", "hidden", "cross"},
    "din": {"dim", "hidden", "attention", "longest"},
    "dien": {"dim", "hidden", "longest"},
    "ecommerce": {"dim", "hidden", "attention", "longest"},
}
VALUES: dict[str, Any] = {
    "dim": 8,
    "hidden": (12, 6),
    "bottom": (9, 8),
    "cross": 2,
    "attention": (7,),
    "longest": 4,
}


@pytest.mark.parametrize("name", HAS)
def test_each_has_the_options_of_its_shape(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train", "--model", name, "--help"])
    told = capsys.readouterr().out
    assert {option for option in VALUES if f"--{option} " in told} == HAS[name]
    for option, value in VALUES.items():
        words = Job(model=name, **{"dim": 8, option: value})
        if option in HAS[name]:
            clicks.build(name, words)
            continue
        has = ", ".join(f"--{one}" for one in VALUES if one in HAS[name])
        with pytest.raises(
            ValueError, match=f"--{option} is not for --model {name}, which has {has}"
        ):
            clicks.build(name, words)


@pytest.mark.parametrize("name", HAS)
def test_they_make_the_shape(name: str) -> None:
    given = {option: VALUES[option] for option in HAS[name]}
    graph = clicks.build(name, Job(model=name, **given))
    assert {table.dim for table in graph.tables if not table.name.startswith("w")} == {8}
    plain = clicks.build(name, Job(model=name))
    assert graph.dimension < plain.dimension


def test_networks_and_sparse_models_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    for model in ("mlp", "logistic_regression"):
        assert cli.main(["train", "--model", model, "--dim", "4"]) == 2
        assert "--dim goes with --model dlrm" in capsys.readouterr().err


def test_networks_have_the_hidden_layers_that_are_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    words = ["train", "--model", "mlp", "--updates", "1", "--save", str(path)]
    assert cli.main([*words, "--hidden", "7,5"]) in (0, 1)
    model, _ = lsh.load(path)
    assert [layer.outputs for layer in model.layers[::2]] == [7, 5, 10]
    assert cli.main(["train", "--model", "lenet", "--hidden", "7"]) == 2
    assert "--hidden goes with --model mlp, dlrm" in capsys.readouterr().err


def data_of(numbers: int, categories: int, rows: int = 64) -> lsh.datasets.ClickDataset:
    draw = np.random.default_rng(0)
    return lsh.datasets.ClickDataset.from_arrays(
        draw.normal(size=(rows, numbers)).astype(np.float32),
        draw.integers(0, 50, (rows, categories)).astype(np.uint64),
        draw.integers(0, 2, rows).astype(np.int32),
    )


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("dim", [1, 8])
@pytest.mark.parametrize(
    ("numbers", "categories"), [(0, 1), (0, 2), (1, 1), (3, 1), (0, 60), (13, 40)]
)
def test_any_numbers_and_categories_train(
    name: str, dim: int, numbers: int, categories: int
) -> None:
    data = data_of(numbers, categories)
    result = lsh.train(COLUMNS[name](dim=dim), data, until=lsh.until(updates=4), threads=1)
    assert np.isfinite(result.model.predict(data)).all()
