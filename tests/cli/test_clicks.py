"""``leashed train`` with models of clicks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leashed import cli
from leashed.cli.clicks import MODELS

HEADER = ",".join(
    ["Id", "Label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
)


def train(*arguments: str) -> int:
    return cli.main(["train", "--model", "dlrm", "--threads", "2", *arguments])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [
        ",".join(
            [
                str(i),
                str(i % 3 % 2),
                *(str(i % (j + 2)) for j in range(13)),
                *(f"{i % (j + 3):08x}" for j in range(26)),
            ]
        )
        for i in range(200)
    ]
    path = tmp_path / "clicks.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


@pytest.mark.parametrize("model", MODELS)
def test_every_model_trains_on_clicks_from_the_seed(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "result.json"
    arguments = ["--rows", "2000", "--epochs", "1", "--rule", "adagrad", "--output", str(out)]
    assert cli.main(["train", "--model", model, "--data", "clicks", *arguments]) == 0
    told = capsys.readouterr().out
    for word in ("AUC", "hidden model's own", "norm. entropy", "tables", "row staleness"):
        assert word in told
    result = json.loads(out.read_text())
    assert 0 < result["validation_auc"][-1] < 1
    tables = result["config"]["tables"]
    assert sum(table["applied"] for table in tables.values()) > 2000
    assert {table["rows"] for table in tables.values()} == {100_000}


def test_a_file_s_ids_are_of_tables_that_grow(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--data", str(file), "--epochs", "4", "--rule", "adagrad", "--lr", "0.05"]
    assert train(*arguments, "--table-mib", "1", "--evict", "age", "--batch-size", "16") == 0
    told = capsys.readouterr().out
    assert "160 examples" in told
    assert "hidden" not in told
    assert "admitted" in told


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--data", "nowhere.csv"], "nowhere.csv"),
        (["--data", "{file}", "--rows", "10"], "--rows goes with --data clicks"),
        (["--evict", "age"], "tables that grow"),
        (["--data", "{file}", "--table-mib", "-1"], "--table-mib must be above 0"),
        (["--data", "{file}", "--table-mib", "0.001"], "max_bytes"),
        (["--rows", "0"], "rows must be"),
        (["--rows", "100", "--save", "x.safetensors"], "--save is not for models of clicks"),
        (["--rows", "100", "--checkpoint", "x"], "checkpoint is not for models"),
        (["--rows", "100", "--threads", "auto"], "threads is not for models"),
        (["--rows", "100", "--rule", "momentum"], "Momentum would have to move rows"),
        (["--model", "mlp", "--data", "clicks"], "--data clicks goes with --model dlrm"),
    ],
)
def test_what_does_not_go_is_told(
    arguments: list[str], complaint: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [a.format(file=file) for a in arguments]
    assert train(*given) == 2
    assert complaint in capsys.readouterr().err
