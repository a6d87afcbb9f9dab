"""Threads in the retry loop, counted beside section IV."""

from __future__ import annotations

import math

import pytest

import leashed as lsh
from leashed.cli import main
from leashed.simulation import Costs
from leashed.studies.contention import Contention, study

DATA = lsh.datasets.synthetic_digits(300, test=10).train
MODEL = lsh.models.softmax_regression(784, 10)


def test_without_a_second_attempt_it_is_the_paper_s() -> None:
    asked = Contention(Costs(4e-3, 1e-4, 0), threads=(128,), persistence=(0,), real=False)
    (point,) = study(asked, MODEL, DATA)
    # While all threads are at work: with those that leave one by one at the end it is 0.94 of n*.
    assert point.n.mean() == pytest.approx(point.fixed_point, rel=0.025)
    assert point.staleness.mean() == 0
    assert point.gamma.mean() > 0.1
    assert len(point.moments) == len(point.over_time) == len(point.expected())
    assert point.over_time[0] == 0


def test_updates_of_more_threads_than_fit_queue_up() -> None:
    asked = Contention(Costs(1e-3, 1e-4, 0), threads=(32,), persistence=(math.inf,), real=False)
    (point,) = study(asked, MODEL, DATA)
    assert point.n.mean() > 2 * point.fixed_point
    assert point.staleness.mean() == pytest.approx(point.tries.mean())


def test_real_threads_stand_beside() -> None:
    asked = Contention(Costs(1e-3, 1e-4, 0), threads=(1,), persistence=(0,), repeats=2)
    virtual, real = study(asked, MODEL, DATA)
    assert not virtual.real
    assert real.real
    assert real.fixed_point < 1
    assert len(real.moments) == 0


def test_wrong_costs(capsys) -> None:
    assert main(["bench", "contention", "--costs", "1"]) == 2
    assert "costs must be two numbers" in capsys.readouterr().err
    assert main(["bench", "contention", "--costs", "1,-1"]) == 2
    assert "costs must be above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--costs", "1,1,1"], "--costs goes with --virtual"),
        (["--virtual", "--costs", "1,1"], "costs must be three numbers"),
        (["--virtual", "--costs", "0,1,1"], "costs must have a T_c above 0"),
        (["--virtual", "--seconds", "1"], "--seconds is of real threads; with --virtual --cap"),
        (["--virtual", "--costs", "1,1,1", "--cap", "0"], "cap must be greater than 0"),
        (["--cap", "1"], "--cap goes with --virtual"),
        (["--virtual", "--model", "mlp,lenet", "--costs", "1,1,1"], "costs must be three numbers"),
    ],
)
def test_wrong_virtual_plans(arguments, message, capsys) -> None:
    assert main(["bench", "scaling", "--threads", "2", *arguments]) == 2
    assert message in capsys.readouterr().err
