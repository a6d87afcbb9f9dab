"""One spelling of a name with settings; what was spelled otherwise goes on, and says so."""

from __future__ import annotations

import argparse
import warnings

import pytest
from warned import once

import leashed as lsh
from leashed import cli, modes
from leashed.cli import scaling
from leashed.cli.arguments import add_fields, given
from leashed.training import spelled
from leashed.training.job import Job


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Synthetic digits, few of them."""
    monkeypatch.setattr(
        "leashed.datasets.synthetic_digits",
        lambda digits=lsh.datasets.synthetic_digits: digits(n=256, seed=0),
    )


def parsed(*arguments: str) -> Job:
    parser = argparse.ArgumentParser()
    add_fields(parser, Job)
    return Job(**given(parser.parse_args(arguments), Job))


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("leashed:persistence=1", lsh.Leashed(1)),
        ("leashed:persistence=inf", lsh.Leashed()),
        ("hogwild", lsh.Hogwild()),
        ("hogwild:copy=false", lsh.Hogwild(copy=False)),
        ("synchronous", lsh.Synchronous()),
    ],
)
def test_disciplines(text: str, made: lsh.Discipline) -> None:
    assert spelled.discipline_of(text) == made


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("gba:m=8,iota=4", modes.GBA(m=8, iota=4)),
        ("gba:divide_by_m=true", modes.GBA(divide_by_m=True)),
        ("easgd:alpha=0.5,gap=2", modes.EASGD(0.5, 2)),
        ("asp", modes.ASP()),
    ],
)
def test_modes(text: str, made: lsh.modes.Mode) -> None:
    assert spelled.mode_of(text) == made


def test_several_between_commas() -> None:
    assert spelled.listed("gba:m=8,iota=4, asp,ssp:s=2") == ["gba:m=8,iota=4", "asp", "ssp:s=2"]
    assert spelled.listed("asp") == ["asp"]


OLD = [
    (["--persistence", "2"], "discipline", "leashed:persistence=2"),
    (["--persistence", "inf"], "discipline", "leashed:persistence=inf"),
    (["--discipline", "leashed", "--persistence", "0"], "discipline", "leashed:persistence=0"),
    (["--discipline", "hogwild-direct"], "discipline", "hogwild:copy=false"),
    (["--mode", "gba:m=8:iota=4"], "mode", "gba:m=8,iota=4"),
    (["--mode", "asp", "--term", "30"], "mode", "asp:term=30"),
    (["--mode", "gba:m=8,iota=4", "--term", "0.5"], "mode", "gba:m=8,iota=4,term=0.5"),
]


@pytest.mark.parametrize(("arguments", "name", "now"), OLD)
def test_what_was_spelled_otherwise_is_told_once_and_goes_on(
    arguments: list[str], name: str, now: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = parsed(*arguments)
    assert getattr(job, name) == now
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.endswith(f" is spelled --{name} {now} now\n")
    assert job.choices() == parsed(f"--{name}", now).choices()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--persistence", "some"],
        ["--persistence", "-1"],
        ["--discipline", "leashed:persistence=1:a=3"],
        ["--mode", "gba:m=2:n=4"],
        ["--mode", "gba:m=0:iota=4"],
        ["--mode", "gba:m=0", "--term", "3"],
        ["--mode", "asp", "--term", "-1"],
    ],
)
def test_the_error_of_a_wrong_value_comes_alone(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=r"persistence|'some'|'n'|'m'|term"):
        parsed(*arguments).choices()
    assert capsys.readouterr().err == ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="has no 'a'"):
            spelled.discipline_of("leashed:persistence=1:a=3")
        with pytest.raises(ValueError, match="'m' must be from 1"):
            spelled.mode_of("gba:m=0:iota=4")


def test_every_argument_of_old_is_tried() -> None:
    tried = {word for arguments, *_ in OLD for word in arguments}
    assert {f"--{name}" for name in spelled.OLD} <= tried


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (
            ["--discipline", "leashed:persistence=1", "--persistence", "2"],
            "--persistence 2 and --discipline leashed:persistence=1 both give persistence",
        ),
        (
            ["--mode", "gba:m=2,term=3", "--term", "30"],
            "--term 30 and --mode gba:m=2,term=3 both give term",
        ),
        (["--term", "30"], "--term goes with --mode"),
    ],
)
def test_a_setting_in_both_spellings_is_refused(arguments: list[str], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        parsed(*arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: spelled.discipline_of("locked:m=2"),
            "--discipline locked:m=2: locked has no 'm'; it",
        ),
        (lambda: spelled.mode_of("gba:n=2"), "--mode gba:n=2: gba has no 'n'; it has m, iota"),
        (lambda: spelled.mode_of("ssp"), "--mode ssp: missing"),
        (lambda: spelled.mode_of("gba:m=2,m=3"), "--mode: m is given twice in 'm=2,m=3'"),
        (lambda: spelled.mode_of("gba:term=2,term=3"), "--mode: term is given twice"),
        (lambda: spelled.mode_of("gba:m"), "--mode takes key=value"),
    ],
)
def test_what_is_wrong_is_told_with_what_there_is(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_a_mode_from_python_is_told_too() -> None:
    with once("--mode gba:m=8:iota=2 is spelled --mode gba:m=8,iota=2 now"):
        assert spelled.mode_of("gba:m=8:iota=2") == modes.GBA(m=8, iota=2)


def test_the_papers_names_are_disciplines(capsys: pytest.CaptureFixture[str]) -> None:
    now = scaling._algorithms("sequential,leashed,leashed:persistence=1")
    assert capsys.readouterr().err == ""
    assert scaling._algorithms("SEQ,LSH_psinf,LSH_ps1") == now == ("SEQ", "LSH_ps∞", "LSH_ps1")
    told = "SEQ,LSH_psinf,LSH_ps1 is spelled --algorithm sequential,leashed,leashed:persistence=1"
    assert told in capsys.readouterr().err
    for made in (lsh.Hogwild(copy=False), lsh.Leashed(3), lsh.Locked()):
        assert spelled.discipline_of(spelled.word_of(made)) == made


def test_simulate_takes_both(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["simulate", "--workers", "2", "--epochs", "0.5"]
    assert cli.main([*common, "--modes", "gba:m=2,iota=1,term=30,asp:term=30"]) == 0
    now = capsys.readouterr()
    assert "is spelled" not in now.err
    assert cli.main([*common, "--modes", "gba:m=2:iota=1,asp", "--term", "30"]) == 0
    old = capsys.readouterr()
    assert old.out == now.out
    assert "is spelled --modes gba:m=2,iota=1,asp now" in old.err
    assert "--term 30 is spelled --modes gba:m=2,iota=1,term=30,asp:term=30 now" in old.err


def test_a_plan_and_a_command_have_the_same_fields() -> None:
    """Whatever a cluster takes is an option of its command, and a field of a plan."""
    from leashed.cluster import plan as plans  # noqa: PLC0415 (an extra)

    parser = argparse.ArgumentParser()
    add_fields(parser, plans.Train, leave=plans.ALONE)
    options = set(vars(parser.parse_args([]))) - set(spelled.OLD)
    text = plans.Plan(train=plans.Train(lr=0.5, schedule=("step:every=5",), epochs=1.5)).text()
    assert set(text.split("[train]")[1].replace(" ", "").split("\n")) >= {
        "lr=0.5", 'schedule=["step:every=5"]', "epochs=1.5"
    }  # fmt: skip
    assert options == {item.name for item in plans.dataclasses.fields(plans.Train)} - {*plans.ALONE}
