"""``threads="auto"``."""

from __future__ import annotations

import itertools

import pytest

import leashed as lsh
from leashed.training import threads


@pytest.mark.parametrize(
    ("cores", "expected"),
    [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 4]), (6, [1, 2, 4, 6]), (16, [1, 2, 4, 8, 16])],
)  # fmt: skip
def test_candidates_are_powers_of_two_and_all_cores(cores: int, expected: list[int]) -> None:
    assert threads.candidates(cores) == expected


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({1: 100.0, 2: 190.0, 4: 350.0}, 4),
        ({1: 100.0, 2: 60.0, 4: 70.0}, 1),
        ({1: 100.0, 2: 190.0, 4: 192.0}, 2),
    ],
)
def test_the_fastest_wins_if_it_is_worth_its_threads(
    rates: dict[int, float], expected: int
) -> None:
    assert threads.fastest(list(rates), lambda m: rates[m]) == expected


def test_one_slow_moment_decides_nothing() -> None:
    turn = itertools.count()
    rates = {1: 100.0, 2: 190.0}
    eps = lambda m: 1.0 if next(turn) == 1 else rates[m]
    assert threads.fastest([1, 2], eps) == 2


def test_with_one_candidate_nothing_is_measured() -> None:
    assert threads.fastest([1], lambda _: pytest.fail("measured")) == 1


def test_auto_trains_as_usual() -> None:
    digits = lsh.datasets.synthetic_digits().train
    model = lsh.models.mlp(784, [16], 10)
    result = lsh.train(model, digits, threads="auto", until=lsh.until(updates=100))
    assert result.total_updates == 100
    assert result.config["threads"] in threads.candidates(result.config["cores"])
    alone = lsh.train(
        model, digits, threads="auto", discipline=lsh.Sequential(), until=lsh.until(updates=100)
    )
    assert alone.config["threads"] == 1
