"""``leashed train`` with models of clicks."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from table_files import rows_in

import leashed as lsh
from leashed import cli
from leashed.files import folders
from leashed.training.problems.clicks import MODELS

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
    for word in (
        "AUC",
        "hidden model's own",
        "above)",
        "norm. entropy",
        "row updates",
        "row staleness",
    ):
        assert word in told
    result = json.loads(out.read_text())
    assert 0 < result["validation_auc"][-1] < 1
    tables = result["config"]["tables"]
    assert sum(table["applied"] for table in tables.values()) > 2000
    assert {table["rows"] for table in tables.values()} == {100_000}


def test_a_file_s_ids_are_of_tables_that_grow(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--data", str(file), "--epochs", "4", "--rule", "adagrad", "--lr", "0.05"]
    report = tmp_path / "report.html"
    arguments += [
        "--table-mib",
        "1",
        "--evict",
        "age",
        "--stage-aware",
        "1",
        "--report",
        str(report),
    ]
    assert train(*arguments, "--staleness", "inverse", "--batch-size", "16") == 0
    told = capsys.readouterr().out
    assert "160 examples" in told
    assert "hidden" not in told
    assert "admitted" in told
    page = report.read_text()
    for word in ("dlrm over time", "<h3>Tables</h3>", "hit rate", ">c25</td>", "AUC"):
        assert word in page


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--data", "nowhere.csv"], "nowhere.csv"),
        (["--data", "{file}", "--rows", "10"], "--rows goes with --data clicks"),
        (["--evict", "age"], "tables that grow"),
        (["--data", "{file}", "--table-mib", "-1"], "--table-mib must be above 0"),
        (["--data", "{file}", "--table-mib", "0.001"], "max_bytes"),
        (["--model", "din", "--data", "{file}"], "--model din attends to what was chosen before"),
        (["--rows", "0"], "rows must be"),
        (["--rows", "100", "--dropout", "1"], "dropout must be below 1"),
        (["--model", "mlp", "--dropout", "0.1"], "--dropout goes with --model dlrm"),
        (["--rows", "100", "--report", "no/folder.html"], "no/folder.html"),
        (["--rows", "100", "--save", "{file}"], "a model with tables takes a folder"),
        (["--rows", "100", "--checkpoint", "{file}"], "a model with tables takes a folder"),
        (
            ["--rows", "100", "--checkpoint-every", "1"],
            "--checkpoint-every goes with --checkpoint",
        ),
        (
            ["--rows", "100", "--checkpoint-updates", "0"],
            "--checkpoint-updates goes with --checkpoint",
        ),
        (["--rows", "100", "--evaluate-every", "0"], "--evaluate-every must be greater than 0"),
        (
            ["--rows", "100", "--checkpoint", "x", "--checkpoint-every", "0"],
            "--checkpoint-every must be greater than 0",
        ),
        (["--rows", "100", "--resume", "nowhere"], "no checkpoint is complete in this folder"),
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


def settings(file: Path) -> list[str]:
    return ["--data", str(file), "--rule", "adagrad", "--batch-size", "16", "--table-mib", "0.1"]


@pytest.mark.parametrize("option", ["--save", "--checkpoint"])
@pytest.mark.parametrize("wrong", [["--batch-size", "0"], ["--data", "none.csv"]], ids=" ".join)
def test_what_is_refused_leaves_no_folder(option: str, wrong: list[str], tmp_path: Path) -> None:
    assert train(option, str(tmp_path / "kept"), "--data", "clicks", *wrong) == 2
    assert not (tmp_path / "kept").exists()


def test_a_run_goes_on_from_its_folder(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, halves, folder = tmp_path / "whole", tmp_path / "halves", str(tmp_path / "run")
    command = [*settings(file), "--threads", "1"]
    assert train(*command, "--updates", "20", "--save", str(whole)) == 0
    assert train(*command, "--updates", "10", "--checkpoint", folder) == 0
    again = ["--resume", folder, "--checkpoint", folder, "--checkpoint-every", "0.01"]
    assert train(*command, "--updates", "20", *again, "--save", str(halves)) == 0
    loaded = []
    for path in (whole, halves):
        model, theta = lsh.load(path)
        loaded.append((theta, [rows_in(path / f"1.table{i}") for i in range(26)]))
        assert model.name == "dlrm"
    np.testing.assert_array_equal(loaded[0][0], loaded[1][0])
    assert loaded[0][1] == loaded[1][1]
    capsys.readouterr()
    assert train(*command, "--updates", "30", "--resume", folder, "--evict", "age") == 2
    assert "evict of table c0 was None and is age" in capsys.readouterr().err
    assert train(*command, "--updates", "30", "--resume", str(file)) == 2
    assert "name the folder with the tables" in capsys.readouterr().err


def test_ctrl_c_keeps_the_state_reached(file: Path, tmp_path: Path) -> None:
    folder, command = tmp_path / "run", [*settings(file), "--seconds"]
    more: list[Any] = ["60", "--json-lines", "--checkpoint", folder]
    process = subprocess.Popen(
        [sys.executable, "-m", "leashed", "train", "--model", "dlrm", *command, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    updates = json.loads(out.splitlines()[-1])["total_updates"]
    assert folders.opened(folder).exact
    output = tmp_path / "result.json"
    assert train(*command, "0.05", "--resume", str(folder), "--output", str(output)) == 0
    assert json.loads(output.read_text())["config"]["resumed_at"] == updates
