"""Learning-rate schedules, as the native core evaluates them, against their formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import leashed as lsh
from leashed import schedules

times = st.lists(st.integers(0, 10**7), min_size=1, max_size=20)
rates = st.floats(1e-6, 1e3)
counts = st.integers(1, 10**6)


@given(times, rates, counts, st.floats(0.01, 1.0))
def test_step(t: list[int], lr: float, every: int, factor: float) -> None:
    found = schedules.step(lr, every=every, factor=factor).at(t)
    np.testing.assert_allclose(found, [lr * factor ** (i // every) for i in t], rtol=1e-9)


@given(times, rates, st.floats(0.0, 2.0), st.floats(1e-2, 1e6))
def test_inverse(t: list[int], lr: float, power: float, steps: float) -> None:
    found = schedules.inverse(lr, power=power, steps=steps).at(t)
    np.testing.assert_allclose(found, [lr * (1 + i / steps) ** -power for i in t], rtol=1e-9)


@given(times, rates, counts, st.floats(0.0, 1.0))
def test_cosine(t: list[int], lr: float, total: int, final: float) -> None:
    found = schedules.cosine(lr, total=total, final=final).at(t)
    wanted = [final + (lr - final) * (1 + math.cos(math.pi * min(i / total, 1.0))) / 2 for i in t]
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


@given(times, rates, counts, st.floats(0.0, 1.0))
def test_warmup_of_any_schedule(t: list[int], lr: float, steps: int, start: float) -> None:
    then = schedules.step(lr, every=1000, factor=0.5)
    found = schedules.warmup(then, steps=steps, start=start).at(t)
    factors = [start + (1 - start) * min((i + 1) / steps, 1.0) for i in t]
    np.testing.assert_allclose(found, np.array(factors) * then.at(t), rtol=1e-9)


@given(times, rates, st.integers(1, 1000))
def test_scaled_multiplies_by_the_workers(t: list[int], lr: float, workers: int) -> None:
    np.testing.assert_allclose(schedules.scaled(lr).at(t, workers), lr * workers)
    both = schedules.warmup(schedules.scaled(lr), steps=5)
    np.testing.assert_allclose(both.at([4, 5, 6], workers), lr * workers)


def test_edges() -> None:
    warm = schedules.warmup(0.5, steps=4)
    np.testing.assert_allclose(warm.at([0, 1, 2, 3, 4]), [0.125, 0.25, 0.375, 0.5, 0.5])
    cosine = schedules.cosine(1.0, total=2, final=0.25)
    np.testing.assert_allclose(cosine.at([[0, 1], [2, 3]]), [[1.0, 0.625], [0.25, 0.25]])
    step = schedules.step(1.0, every=3, factor=0.5)
    np.testing.assert_array_equal(step.at(range(7)), [1, 1, 1, 0.5, 0.5, 0.5, 0.25])
    assert schedules.constant(0.25).at(7) == 0.25
    for nothing in (
        schedules.constant(0),
        schedules.step(0, every=2),
        schedules.inverse(0),
        schedules.cosine(0.0, total=5),
        schedules.warmup(0.0, steps=3),
        schedules.scaled(0),
    ):
        np.testing.assert_array_equal(nothing.at(range(7), workers=4), np.zeros(7))
    assert schedules.warmup(schedules.scaled(schedules.constant(0.1)), steps=2).base == 0.1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: schedules.constant(-1e-9), ValueError, "lr must be at least 0"),
        (lambda: schedules.step(0.1, every=0), ValueError, "every must be at least 1"),
        (lambda: schedules.step(0.1, every=1, factor=0), ValueError, "factor must be greater"),
        (lambda: schedules.inverse(0.1, power=-1), ValueError, "power must be at least 0"),
        (lambda: schedules.inverse(0.1, steps=0), ValueError, "steps must be greater than 0"),
        (lambda: schedules.cosine(0.1, total=1.5), TypeError, "total must be a whole number"),
        (lambda: schedules.cosine(0.1, total=1, final=-1), ValueError, "final must be at least 0"),
        (lambda: schedules.warmup("0.1", steps=1), TypeError, "lr must be a number"),
        (lambda: schedules.warmup(0.1, steps=0), ValueError, "steps must be at least 1"),
        (lambda: schedules.warmup(0.1, steps=1, start=2), ValueError, "start must be at most 1"),
        (lambda: schedules.scaled(None), TypeError, "lr must be a number"),
        (lambda: schedules.constant(0.1).at(-1), ValueError, "t must be at least 0"),
        (lambda: schedules.constant(0.1).at(0.5), TypeError, "t must hold whole numbers"),
        (lambda: lsh.SGD(schedules), TypeError, "lr must be a number"),
    ],
)
def test_wrong_arguments_are_named(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
