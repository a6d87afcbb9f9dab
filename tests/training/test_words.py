"""Rules, disciplines, modes and policies by their words, in Python as on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import modes, staleness
from leashed.base import words

MODEL = lsh.models.mlp(784, [4], 10)
GIVEN: dict[str, Any] = {"until": lsh.until(updates=8), "batch_size": 16, "threads": 1}
OF: dict[str, tuple[str, Any]] = {
    "rule": ("adam:lr=0.01,beta1=0.8", lsh.Adam(0.01, 0.8)),
    "rule by default": ("adagrad", lsh.Adagrad(0.01)),
    "discipline": ("leashed:persistence=1", lsh.Leashed(1)),
    "mode": ("gba:m=1,iota=2", modes.GBA(m=1, iota=2)),
    "staleness": ("power:k=2", staleness.power(2)),
}


@pytest.fixture(scope="module")
def digits() -> lsh.datasets.Dataset:
    return lsh.datasets.synthetic_digits(n=120, seed=0).train


def same(one: lsh.TrainResult, other: lsh.TrainResult) -> None:
    """What was asked for, and what came of it."""
    for name in ("rule", "discipline", "staleness", "mode"):
        assert one.config.get(name) == other.config.get(name)
    np.testing.assert_array_equal(one.parameters, other.parameters)


@pytest.mark.parametrize("kind", OF)
def test_a_word_trains_as_the_class_does(kind: str, digits: lsh.datasets.Dataset) -> None:
    name, (word, made) = kind.partition(" ")[0], OF[kind]
    by_word = lsh.train(MODEL, digits, **GIVEN, **{name: word})
    same(by_word, lsh.train(MODEL, digits, **GIVEN, **{name: made}))


@pytest.mark.parametrize("kind", OF)
def test_and_in_virtual_time(kind: str, digits: lsh.datasets.Dataset) -> None:
    name, (word, made) = kind.partition(" ")[0], OF[kind]
    given = {"until": GIVEN["until"], "cluster": lsh.simulation.constant(1, 1.0)}
    by_word = lsh.simulate(MODEL, digits, **given, **{name: word})
    same(by_word.result, lsh.simulate(MODEL, digits, **given, **{name: made}).result)


def test_engines_and_tables_take_them() -> None:
    engine = lsh.Engine(
        np.zeros(3), rule="momentum:lr=0.5", discipline="hogwild", staleness="inverse"
    )
    with engine:
        assert engine.rule == lsh.Momentum(0.5)
        assert engine.discipline == lsh.Hogwild()
        assert engine.staleness == staleness.inverse()
    table = lsh.Table(dim=2, rows=3, rule="adam:lr=0.5", staleness="inverse")
    assert (table.rule, table.staleness) == (lsh.Adam(0.5), staleness.inverse())


def test_shared_vectors_take_them() -> None:
    with lsh.SharedVector.create(
        "words", np.zeros(3), rule="adagrad", discipline="hogwild"
    ) as vector:
        assert vector.config["rule"] == lsh.Adagrad(0.01).config()


def test_estimators_take_them(digits: lsh.datasets.Dataset) -> None:
    sklearn = pytest.importorskip("leashed.sklearn")
    x, y = digits.x, digits.y
    fitted = [
        sklearn.SGDClassifier(rule=rule, discipline=way, max_iter=2, tol=None, random_state=0).fit(
            x, y
        )
        for rule, way in (("adam:lr=0.01", "locked"), (lsh.Adam(0.01), lsh.Locked()))
    ]
    np.testing.assert_array_equal(fitted[0].coef_, fitted[1].coef_)


def test_tune_takes_them(digits: lsh.datasets.Dataset) -> None:
    found = lsh.tune(
        MODEL,
        digits,
        seconds=1.0,
        loss_fraction=0.9,
        batch_sizes=(16,),
        rule="adam",
        discipline="locked",
    )
    assert isinstance(found.best.discipline, lsh.Locked)
    with pytest.raises(ValueError, match="has an lr, which is searched for; give lr= to begin"):
        lsh.tune(MODEL, digits, seconds=1.0, rule="adam:lr=0.1")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "rule": ({"rule": "adma"}, "rule 'adma' is unknown; choose one of sgd, momentum, .*adam"),
    "setting": ({"rule": "sgd:beta1=1"}, "rule sgd:beta1=1: sgd has no 'beta1'; it has lr, weight"),
    "value": ({"rule": "sgd:lr=fast"}, "rule: lr is 'fast', neither a number nor true or false"),
    "discipline": ({"discipline": "hogwyld"}, "discipline 'hogwyld' is unknown; choose one of seq"),
    "mode": ({"mode": "sspp"}, "mode 'sspp' is unknown; choose one of sync, all_reduce, bsp"),
    "staleness": ({"staleness": "power"}, "staleness power: .*k"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_word_tells_those_there_are(kind: str, digits: lsh.datasets.Dataset) -> None:
    given, told = WRONG[kind]
    with pytest.raises(ValueError, match=f"^{told}"):
        lsh.train(MODEL, digits, **GIVEN, **given)


def test_what_is_neither_is_told() -> None:
    call: Callable[..., Any] = lsh.Engine
    with pytest.raises(TypeError, match=r"discipline must be Leashed\(\) or another"):
        call(np.zeros(2), discipline=3)
    with pytest.raises(TypeError, match="rule must be SGD"):
        call(np.zeros(2), rule=3)


def test_what_is_given_goes_before_what_the_word_says() -> None:
    made = words.made({"adam": lsh.Adam}, "rule", "adam:lr=0.5")
    assert (made(), made(lr=0.25)) == (lsh.Adam(0.5), lsh.Adam(0.25))


@pytest.mark.parametrize("way", [{}, {"mode": "asp"}])
def test_a_batch_larger_than_the_data_is_all_of_it(
    way: dict[str, Any], digits: lsh.datasets.Dataset
) -> None:
    few, given = digits.head(20), {"until": lsh.until(epochs=3), "threads": 1, **way}
    result = lsh.train(MODEL, few, batch_size=64, **given)
    assert (result.config["batch_size"], result.total_updates) == (20, 3)
    np.testing.assert_array_equal(
        result.parameters, lsh.train(MODEL, few, batch_size=20, **given).parameters
    )
