"""Rules, schedules and staleness policies on the command line."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

import leashed as lsh
from leashed import cli, rules, schedules, staleness
from leashed.cli.arguments import add_fields, given
from leashed.studies import combinations
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
    ("arguments", "rule"),
    [
        ([], lsh.SGD(0.05)),
        (["--lr", "0.2"], lsh.SGD(0.2)),
        (["--rule", "sgd:weight_decay=0.1,decoupled=true"], lsh.SGD(0.05, weight_decay=0.1, decoupled=True)),
        (["--rule", "momentum"], lsh.Momentum(0.01)),
        (["--rule", "nesterov:momentum=0.5"], lsh.Nesterov(0.01, 0.5)),
        (["--rule", "adam:beta1=0.8,clip_norm=1"], lsh.Adam(0.001, 0.8, clip_norm=1)),
        (["--rule", "adamw", "--lr", "0.01"], lsh.AdamW(0.01)),
        (["--lr", "0"], lsh.SGD(0.0)),
        (["--rule", "adagrad:lr=0.03"], lsh.Adagrad(0.03)),
        (
            ["--rule", "adagrad:lr=0.03", "--schedule", "cosine:total=9"],
            lsh.Adagrad(schedules.cosine(0.03, total=9)),
        ),
        (["--rule", "adam:amsgrad=true,maximize=true"], lsh.Adam(0.001, amsgrad=True, maximize=True)),
        (["--rule", "rmsprop:centered=true"], lsh.RMSprop(0.001, centered=True)),
        (["--rule", "momentum:dampening=0.1"], lsh.Momentum(0.01, dampening=0.1)),
        (
            ["--rule", "adagrad", "--swap", "period=10,decay=0.5"],
            lsh.SWAP(lsh.Adagrad(0.01), 10, 0.5),
        ),
        (
            ["--rule", "adagrad", "--swap", "period=10,as_printed=true"],
            lsh.SWAP(lsh.Adagrad(0.01), 10, as_printed=True),
        ),
        (
            ["--lr", "0.1", "--schedule", "cosine:total=100", "--schedule", "warmup:steps=5"],
            lsh.SGD(schedules.warmup(schedules.cosine(0.1, total=100), steps=5)),
        ),
    ],
)  # fmt: skip
def test_rules(arguments: list[str], rule: lsh.Rule) -> None:
    assert spelled.rule_of(parsed(*arguments)) == rule


@pytest.mark.parametrize("name", rules.RULES)
def test_every_rule_has_a_name_there(name: str) -> None:
    kind = rules.RULES[name]
    assert spelled.rule_of(parsed("--rule", name)) == kind(kind.LR)
    assert getattr(lsh, kind.__name__) is kind
    assert kind.__name__ in lsh.__all__
    assert kind.__name__ in combinations.RULES


@pytest.mark.parametrize(
    ("arguments", "policy"),
    [
        ([], staleness.none()),
        (["--staleness", "inverse"], staleness.inverse()),
        (["--staleness", "power:k=2"], staleness.power(2)),
        (["--staleness", "normalized:mu=10,k=1"], staleness.normalized(10, 1)),
        (["--staleness", "cutoff:iota=4", "--stage-aware", "2"], staleness.stage_aware(staleness.cutoff(4), 2)),
        (["--staleness", "fleet"], staleness.fleet()),
    ],
)  # fmt: skip
def test_policies(arguments: list[str], policy: staleness.Policy) -> None:
    assert spelled.staleness_of(parsed(*arguments)) == policy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rule", "magic"], "--rule 'magic' is unknown; choose one of sgd"),
        (
            ["--rule", "adam:beta=1"],
            "--rule adam:beta=1: adam has no 'beta'; it has lr, beta1, beta2",
        ),
        (["--rule", "adam:beta1"], "--rule takes key=value,..., not 'beta1'"),
        (["--rule", "adam:beta1=high"], "--rule: beta1 is 'high', neither a number"),
        (["--rule", "adam:beta1=1"], "beta1 must be less than 1"),
        (
            ["--rule", "adam:lr=1", "--lr", "2"],
            "--lr 2 and --rule adam:lr=1 both give lr; give one",
        ),
        (["--lr", "-1"], "lr must be at least 0"),
        (["--rule", "nesterov:dampening=0.5"], "dampening must be 0 with Nesterov"),
        (["--rule", "momentum", "--swap", "period=5"], "wrap .*Adagrad, .*Adam"),
        (["--schedule", "cosine"], "--schedule cosine: .*total"),
        (["--schedule", "cosine:total=9", "--schedule", "step:every=2"], "lr must be a number"),
        (["--staleness", "slow"], "--staleness 'slow' is unknown; choose one of cutoff"),
        (["--staleness", "power"], "--staleness power: .*'k'"),
        (["--staleness", "inverse", "--stage-aware", "-1"], "lam must be greater than 0"),
    ],
)
def test_wrong_arguments_are_one_line_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "--updates", "1", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(error)


def test_train_takes_them_and_the_summary_tells(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--rule", "adam:beta1=0.8", "--schedule", "step:every=5", "--staleness", "inverse"]
    assert cli.main(["train", "--updates", "10", "--batch-size", "8", *arguments]) == 0
    out = capsys.readouterr().out
    assert "Adam, " in out
    assert "beta1 0.8" in out
    assert "inverse" in out


def test_figure_2_is_drawn(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    path = f"{tmp_path}/figure-2.svg"
    assert cli.main(["policies", "-o", path]) == 0
    assert cli.main(["policies", "power:k=2", "cutoff:iota=4", "--up-to", "10", "-o", path]) == 0
    assert cli.main(["policies", "power", "-o", path]) == 2
    assert "policy power: " in capsys.readouterr().err


def test_figure_2_shows_what_the_paper_says() -> None:
    pytest.importorskip("matplotlib")
    from leashed.report.plots.policies import decay_factors  # noqa: PLC0415

    (axes,) = decay_factors(up_to=2000).axes
    lines = {line.get_label(): line.get_xydata() for line in axes.lines}
    assert list(lines) == ["Linear", "Linear1K", "Linear500"]
    for name, mu in (("Linear", 1), ("Linear1K", 1000), ("Linear500", 500)):
        x, y = lines[name].T
        np.testing.assert_allclose(y, np.minimum(1.0, mu / (x + 1)))


def test_combinations_are_trained_and_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(combinations, "POLICIES", (staleness.none(), staleness.inverse()))
    monkeypatch.setattr(combinations, "DISCIPLINES", (lsh.Sequential(), lsh.Leashed()))
    arguments = ["--rules", "Adam,SWAP(SGD)", "--threads", "2", "--seconds", "30"]
    assert cli.main(["bench", "combinations", *arguments]) == 0
    out = capsys.readouterr().out
    assert "4 of 4 runs got there" in out
    assert "| policy | SEQ | LSH_ps∞ |" in out
    assert "## SWAP(SGD)" not in out
    assert "| SWAP(SGD) | SWAP decays accumulated squared gradients, which SGD does not keep" in out
    assert cli.main(["bench", "combinations", "--rules", "magic"]) == 2
