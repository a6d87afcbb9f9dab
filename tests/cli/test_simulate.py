"""``leashed simulate``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leashed import modes
from leashed.cli import main
from leashed.cli.simulate import parse_modes

PAGE = (Path(__file__).parents[2] / "docs" / "modes.md").read_text(encoding="utf-8")
SMALL = ["--epochs", "0.1", "--workers", "4"]


def test_every_mode_is_a_row(capsys) -> None:
    words = (
        "sync,all_reduce,bsp,asp,ssp:s=1,dssp:lower=0,upper=2,hop_bs,hop_bw:b3=1,easgd:alpha=0.5,local_sgd:h=2,"
        "gba:iota=1,switching,automatic,shat,shat_root,ensemble,swarm:h=1,go_sgd:p=0.5,ad_psgd,d_psgd,"
        "prague:group=2"
    )
    assert main(["simulate", *SMALL, "--modes", words]) == 0
    rows = capsys.readouterr().out
    for mode in parse_modes(words):
        assert repr(mode) in rows


def test_the_pages_commands_run(capsys) -> None:
    commands = re.findall(r"^\$ leashed (simulate .*)$", PAGE, re.MULTILINE)
    assert commands
    for command in commands:
        assert main([*command.split(), *SMALL]) == 0
        assert "ASP()" in capsys.readouterr().out


def test_a_mode_that_crashes_is_told_of_in_its_row_alone(capsys) -> None:
    words = ["--epochs", "1", "--workers", "20", "--lr", "100", "--modes", "sync,asp"]
    assert main(["simulate", *words]) == 0
    row = re.search(r"ASP\(\).*", capsys.readouterr().out)
    assert row
    assert "NaN" in row[0] or "–" in row[0]


@pytest.mark.parametrize("model", ["logistic_regression", "fm"])
def test_files_of_sparse_rows_are_played(model, tmp_path, capsys) -> None:
    """Of a stream the rows are those of the file in memory, but for the fifth that is to test."""
    path = tmp_path / "rows.svm"
    path.write_text("".join(f"{i % 2} {1 + i % 2}:1 {3 + i % 5}:0.5\n" for i in range(500)))
    common = ["simulate", "--model", model, "--data", str(path), "--workers", "3"]
    common += ["--modes", "asp,shat,local_sgd:h=2", "--batch-size", "8"]
    assert main(common) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[2].startswith("ASP()")
    assert float(table[2].split()[-1].rstrip("%")) > 90
    assert main([*common, "--stream"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert [row.split("(")[0] for row in table[2:5]] == ["ASP", "SHAT", "LocalSGD"]
    assert all(row.split()[-1] == "–" for row in table[2:5])  # nothing to test
    assert main([*common, "--stream", "--test", str(path)]) == 0
    assert float(capsys.readouterr().out.splitlines()[2].split()[-1].rstrip("%")) > 90


def test_files_of_clicks_are_played_as_streams_too(tmp_path, capsys) -> None:
    for day in range(2):
        path = tmp_path / f"day-{day}.tsv"
        arguments = ["--rows", "300", "--day", str(day), "--cardinality", "50"]
        assert main(["clicks", *arguments, "--output", str(path)]) == 0
    capsys.readouterr()
    common = ["simulate", "--model", "dlrm", "--workers", "2", "--modes", "asp,gba", "--rule"]
    common += ["adagrad", "--batch-size", "8", "--data", str(tmp_path / "day-*.tsv"), "--stream"]
    assert main(common) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[2].startswith("ASP()")
    assert " 75 " in rows[2]  # updates, of 600 rows


def test_links_and_failures_are_options(capsys) -> None:
    links = ["--bandwidth", "1e6", "--server-bandwidth", "4e6", "--latency", "0.001"]
    failures = ["--fail", "0.5", "--down", "0.1", "--detection", "0.05", "--term", "10"]
    modes = ["--modes", "sync,asp,swarm:h=1", "--epochs", "0.3"]
    assert main(["simulate", *SMALL, *modes]) == 0
    bare = capsys.readouterr().out
    assert main(["simulate", *SMALL, *modes, *links, *failures]) == 0
    played = capsys.readouterr().out
    assert "lost" in played
    for row, slower in zip(bare.splitlines()[2:5], played.splitlines()[2:5], strict=True):
        assert row.split("(")[0] == slower.split("(")[0]
        assert row != slower


def test_parameters_are_spread_over_servers(capsys) -> None:
    few = [*SMALL, "--epochs", "0.02"]
    arguments = [*few, "--bandwidth", "1e6", "--modes", "asp"]
    assert main(["simulate", *arguments]) == 0
    one = capsys.readouterr().out
    for shards in ("memorywise", "layerwise", "packed"):
        assert main(["simulate", *arguments, "--servers", "2", "--shards", shards]) == 0
        two = capsys.readouterr().out
        assert "Of several servers" in two
        assert one.splitlines()[2] != two.splitlines()[2]
    assert main(["simulate", *few, "--servers", "2"]) == 0
    assert "Swarm" not in capsys.readouterr().out


def test_modes_are_words() -> None:
    assert parse_modes("gba:m=8,iota=2, asp,go_sgd:p=0.25") == [
        modes.GBA(m=8, iota=2),
        modes.ASP(),
        modes.GoSGD(p=0.25),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--modes", "gbx"], "--modes 'gbx' is unknown; choose one of sync"),
        (["--modes", "gba:n=2"], "--modes gba:n=2: gba has no 'n'; it has m, iota"),
        (["--modes", "gba:m=x"], "--modes: m is 'x', neither a number"),
        (["--modes", "ssp"], "--modes ssp: "),
        (["--workers", "0"], "workers must be at least 1"),
        (["--servers", "0"], "servers must be at least 1"),
        (["--shards", "packed"], "--shards goes with several --servers"),
        (["--servers", "2", "--modes", "asp,swarm:h=1"], "shards must be 1 with Swarm"),
        (["--slow", "2"], "slow must be at most 1"),
        (["--compute", "-1"], "mean must be at least 0"),
        (["--fetch", "-1"], "fetch must be at least 0"),
        (["--bandwidth", "0"], "bandwidth must be greater than 0"),
        (["--latency", "0.1", "--transfer", "0.1"], "copy is not for clusters with a network"),
        (["--slower", "nan"], "factors must be finite"),
        (["--down", "-1"], "mean_down must be at least 0"),
        (["--fail", "0"], "mean_between must be greater than 0"),
        (["--fail", "1", "--modes", "asp:term=0"], "term must be greater than 0"),
        (["--times", "heavy_tail", "--slow", "1", "--slower", "0"], "factors must be greater"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str, capsys) -> None:
    assert main(["simulate", *SMALL, *arguments]) == 2
    assert message in capsys.readouterr().err
