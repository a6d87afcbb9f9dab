"""``leashed bench shadowsync``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leashed import cli
from leashed.cli import shadowsync

FIGURE_5 = [
    *("bench", "shadowsync", "--trainers", "2", "--servers", "1", "--gaps", "5"),
    *("--threads", "1", "--pace", "0.005", "--dimension", "100", "--scale", "0.05"),
]
QUALITY = [
    *("--trainers", "2", "--threads", "1", "--examples", "160", "--repeats", "1"),
    *("--gaps", "5", "--kinds", "easgd"),
]


def test_figure_5_ends_with_its_tables_and_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    output, plot = tmp_path / "f.jsonl", tmp_path / "f.svg"
    command = [*FIGURE_5, "--output", str(output), "--plot", str(plot)]
    assert cli.main([*command, "--minutes", "1e-6"]) == 3
    assert "2 of 3 runs are left" in capsys.readouterr().err
    assert cli.main([*command, "--resume"]) == 0
    told = capsys.readouterr()
    assert "2 runs left of 3" in told.err
    for words in ("paced", "S-EASGD, 1 sync server", "predicted EPS"):
        assert words in told.out
    assert len([json.loads(line) for line in output.read_text().splitlines()]) == 3
    assert plot.stat().st_size > 0
    assert cli.main(command) == 2
    assert "--resume" in capsys.readouterr().err
    assert cli.main([*command, "--resume", "--pace", "0.1"]) == 2
    assert "pace" in capsys.readouterr().err


def test_figure_5_and_table_2_are_played_in_virtual_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    played = ["--virtual", "--threads", "2", "--examples", "160", "--passes", "1"]
    plot = tmp_path / "f.svg"
    figure = ["--trainers", "2", "--servers", "1", "--gaps", "5", "--plot", str(plot)]
    assert cli.main(["bench", "shadowsync", *played, *figure]) == 0
    assert "Virtual time" in capsys.readouterr().out
    assert plot.stat().st_size > 0
    table = ["--table2", "--trainers", "2", "--gaps", "5", "--repeats", "1"]
    assert cli.main(["bench", "shadowsync", *played, *table, "--model", "mlp"]) == 0
    assert "FR-EASGD-5" in capsys.readouterr().out
    assert cli.main(["bench", "shadowsync", *played, *table]) == 0
    assert "FR-EASGD-5" in capsys.readouterr().out
    grid = [*table[1:], "--sweep", "--kinds", "bmuf"]
    grid += ["--alpha", "0.5", "--eta", "0.5", "--momentum", "0"]
    assert cli.main(["bench", "shadowsync", *played, *grid]) == 0
    assert "best bmuf: alpha=0.5, eta=0.5, momentum=0" in capsys.readouterr().out
    for wrong in (
        ["--virtual", "--sweep", "--full"],
        ["--full"],
        ["--passes", "2"],
        ["--virtual", "--eta", "1"],
    ):
        assert cli.main(["bench", "shadowsync", *wrong]) == 2
        assert wrong[-2 if wrong[-1][0] != "-" else -1] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        (["--figure6", "--threads", "2"], "S-BMUF, α = 0.6"),
        (["--figure7", "--threads", "2", "--eta", "0.5"], "η = 0.5"),
        (["--figure8", "--threads", "1,2"], "examples/s, by threads"),
        (["--table2b", "--threads", "2", "--alpha", "0.3", "--gaps", "5"], "best replica"),
    ],
)
def test_figures_6_to_8_and_table_2_b_are_played(
    figure: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench", "shadowsync", *figure, "--trainers", "2", "--examples", "800", "--short"]
    assert cli.main([*command, "--repeats", "1"]) == 0
    assert words in capsys.readouterr().out


@pytest.mark.parametrize("virtual", [False, True])
def test_short_runs_take_ten_minutes_at_most(virtual: bool) -> None:
    for name in shadowsync._VIRTUAL if virtual else shadowsync._STUDIES:
        given = ["bench", "shadowsync", f"--{name}", *(["--virtual"] if virtual else []), "--short"]
        assert shadowsync._study(cli._parser().parse_args(given)).seconds() <= 600


def test_table_2_prints_its_runs_as_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "shadowsync", "--table2", *QUALITY, "--varying", "3/1"]
    assert cli.main([*command, "--json-lines"]) == 0
    told = capsys.readouterr()
    records = [json.loads(line) for line in told.out.splitlines()]
    assert [r["setting"]["sync"] for r in records] == ["none", "easgd", "easgd", "easgd"]
    assert [r["setting"]["gap"] for r in records] == [None, None, 5, [3, 1]]
    assert all(r["conditions"]["examples"] == 160 for r in records)
    assert "FR-EASGD-5" in told.err
    assert "3/1, by a worker's iterations: from 0 on 3, from 2 on 1" in told.err


def test_the_sweep_prints_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "shadowsync", "--sweep", *QUALITY, "--alpha", "0.5"]) == 0
    assert "best easgd: alpha=0.5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--table2", "--pace", "1"], "--pace does not go with --table2"),
        (["--table2", "--plot", "x.png"], "--plot does not go with --table2"),
        (["--table2", "--trainers", "1,2"], "--trainers takes one number"),
        (["--table2", "--varying", "5/x"], "--varying: '5/x' is no list of gaps in turn"),
        (["--sweep", "--varying", "5/1"], "--varying does not go with --sweep"),
        (["--table2", "--alpha", "0.5"], "--alpha does not go with --table2"),
        (["--lr", "0.1"], "--lr does not go with --figure5"),
        (["--data", "x"], "--data does not go with --figure5"),
        (["--table2", "--data", "x", "--examples", "10"], "--examples does not go with --data"),
        (["--resume"], "--output"),
        (["--scale", "0"], "scale"),
        (["--table2", "--sweep"], "not allowed with"),
        (["--short", "--scale", "0.5"], "--short excludes"),
        (["--figure6", "--full"], "--full does not go with --figure6"),
        (["--figure6", "--gaps", "5"], "--gaps does not go with --figure6"),
        (["--figure8", "--data", "x"], "--data does not go with --model dlrm"),
        (["--table2", "--model", "dlrm"], "model must be one of"),
        (["--virtual", "--model", "cnn"], "model must be one of mlp, dlrm"),
        (["--virtual", "--model", "dlrm"], "model must be mlp"),
    ],
)
def test_what_does_not_go_together_is_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = cli.main(["bench", "shadowsync", *arguments])
    except SystemExit as exit_:
        status = exit_.code
    assert status == 2
    assert complaint in capsys.readouterr().err
