"""Options that belong together are one value, and what they were called before goes on working."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from warned import once

import leashed as lsh
from leashed import modes
from leashed.training.options import OLD

DATA = lsh.datasets.synthetic_digits(n=200, seed=0).train
MODEL = lsh.models.mlp(784, [4], 10)
CLICKS = lsh.datasets.synthetic_clicks(400, seed=0).train
CLICK_MODEL = lsh.models.dlrm(None, 4, bottom=(4,), top=(4,))
LOGISTIC = lsh.models.logistic_regression(784)
BINARY = (DATA.x, (DATA.y > 4).astype(np.int32))


def train(**given: Any) -> lsh.TrainResult:
    choices = {"until": lsh.until(updates=12), "batch_size": 16, "threads": 1, **given}
    data = choices.pop("data", DATA)
    return lsh.train(choices.pop("model", MODEL), data, **choices)


def new_tables() -> dict[str, lsh.Table]:
    return lsh.tables.of(CLICK_MODEL.tables, rule=lsh.SGD(0.1), seed=3)


def both(name: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The argument of before, and what it is now, with what both need."""
    kept, record = folder / "kept", folder / "record"
    clicks = {"model": CLICK_MODEL, "data": CLICKS}
    logistic = {"model": LOGISTIC, "data": BINARY}
    progressive = lsh.metrics.progressive()
    place = Alone()
    return {
        "tables": (
            {**clicks, "tables": new_tables()},
            {**clicks, "init": lsh.Init(tables=new_tables())},
        ),
        "term": ({"mode": modes.ASP(), "term": 5.0}, {"mode": modes.ASP(term=5.0)}),
        "progress": ({"progress": str}, {"observe": str}),
        "evaluate_every": ({"evaluate_every": 9.0}, {"observe": lsh.Observe(every=9.0)}),
        "metrics": (
            {**logistic, "metrics": progressive},
            {**logistic, "observe": lsh.Observe(metrics=progressive)},
        ),
        "record": ({"record": record}, {"observe": lsh.Observe(record=record)}),
        "checkpoint_every": (
            {"checkpoint": kept, "checkpoint_every": 9.0},
            {"checkpoint": lsh.Checkpoint(kept, every=9.0)},
        ),
        "checkpoint_updates": (
            {"checkpoint": kept, "checkpoint_updates": 5},
            {"checkpoint": lsh.Checkpoint(kept, updates=5)},
        ),
        "incremental": (
            {**clicks, "checkpoint": kept, "checkpoint_updates": 5, "incremental": True},
            {**clicks, "checkpoint": lsh.Checkpoint(kept, updates=5, incremental=True)},
        ),
        "sync": (
            {"cluster": place, "sync": lsh.sync.MA()},
            {"cluster": lsh.sync.Synced(place, lsh.sync.MA())},
        ),
    }[name]


class Joined(Exception):
    """With that synchroniser."""


class Alone:
    """A cluster that tells how it is to be kept in sync."""

    def session(self, _: int, synchroniser: object, **__: Any) -> None:
        raise Joined(synchroniser)


def outcome(given: dict[str, Any]) -> list[Any]:
    try:
        result = train(**given)
    except Joined as joined:
        return [repr(joined)]
    left_out = {"reading", "tables"}
    told = {name: value for name, value in result.config.items() if name not in left_out}
    scored = None if result.metrics is None else result.metrics.total
    return [result.parameters.tobytes(), told, scored]


@pytest.mark.parametrize("name", OLD)
def test_an_argument_of_before_is_what_it_has_become(name: str, tmp_path: Path) -> None:
    before, now = both(name, tmp_path)
    with pytest.warns(DeprecationWarning, match="is a part of") as told:
        found = outcome(before)
    said = [str(one.message) for one in told]
    assert sum(f"the argument {name} is a part of" in one for one in said) == 1
    assert {one.filename for one in told} == {__file__}
    assert found == outcome(now)


def test_an_argument_of_before_is_told_of_once() -> None:
    model, data = lsh.models.logistic_regression(2), (np.eye(2), np.arange(2))
    given = {"until": lsh.until(epochs=3), "threads": 2, "evaluate_every": 0.001}
    with once("the argument evaluate_every is a part of observe=", category=DeprecationWarning):
        lsh.train(model, data, **given)


@pytest.mark.parametrize("name", OLD)
def test_nothing_is_given_twice(name: str, tmp_path: Path) -> None:
    before, now = both(name, tmp_path)
    if name == "incremental":
        before.pop("checkpoint_updates")
    with pytest.raises(ValueError, match=f"{name} is a part of .* given too; leave one"):
        train(**{**before, **now})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"checkpoint_every": 9.0},
            r"checkpoint_every is a part of .*lsh.Checkpoint.*give checkpoint",
        ),
        ({"term": 9.0}, "term is a part of the mode.* give mode as well"),
        ({"sync": lsh.sync.MA()}, r"sync is a part of .*join\(sync=...\).* give cluster as well"),
    ],
)
def test_what_is_a_part_of_nothing(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": 3, "term": 9.0}, "mode must be ASP"),
        ({"cluster": Alone(), "sync": 3}, "sync must come from leashed.sync"),
        ({"cluster": "here", "sync": lsh.sync.MA()}, "cluster must come from leashed.cluster"),
    ],
)
def test_what_it_is_a_part_of_is_none(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        train(**given)


def test_a_cluster_has_a_synchroniser_or_none() -> None:
    place = Alone()
    place.sync = 3  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"sync must come from leashed\.sync"):
        train(cluster=place)


def test_what_is_not_asked_for_is_told_and_nothing_else() -> None:
    with pytest.warns(DeprecationWarning, match="evaluate_every"):
        assert train(evaluate_every=None).total_updates == 12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: train(evaluate_evry=1.0),
            "no argument evaluate_evry; did you mean evaluate_every",
        ),
        (lambda: train(epochs=3), r"no argument epochs; did you mean until=leashed.until\(epochs="),
        (lambda: train(checkpiont="x"), "no argument checkpiont; did you mean checkpoint"),
        (lambda: train(quite_else=1.0), "no argument quite_else$"),
        (
            lambda: lsh.simulate(
                MODEL,
                DATA,
                cluster=lsh.simulation.constant(1, 1.0),
                until=lsh.until(updates=1),
                checkpoint_every=1.0,
            ),
            "no argument checkpoint_every$",
        ),
    ],
)
def test_what_is_no_argument(call: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: lsh.Observe(every=0), ValueError, r"observe\.every must be greater than 0"),
        (lambda: lsh.Observe(every=math.nan), ValueError, r"observe\.every must be finite"),
        (lambda: lsh.Observe(every="1s"), TypeError, r"observe\.every must be a number"),
        (lambda: lsh.Observe(1), TypeError, "progress must be callable"),
        (lambda: lsh.Checkpoint("x", every=0), ValueError, r"checkpoint\.every must be greater"),
        (
            lambda: lsh.Checkpoint("x", updates=0),
            ValueError,
            r"checkpoint\.updates must be at least 1",
        ),
        (
            lambda: lsh.Checkpoint("x", updates=2.5),
            TypeError,
            r"checkpoint\.updates must be a whole",
        ),
        (lambda: lsh.Checkpoint("x", incremental=1), TypeError, r"checkpoint\.incremental"),
        (lambda: train(checkpoint=lsh.Checkpoint(every=1.0)), ValueError, r"checkpoint\.path"),
        (lambda: modes.ASP(term=0), ValueError, "term must be"),
        (lambda: modes.SHAT(term=1e9), ValueError, "term must be at most"),
        (lambda: modes.GBA(term="long"), TypeError, "term must be a number"),
    ],
)
def test_values_that_are_wrong(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_what_was_pickled_before_observers_has_found_nothing() -> None:
    heard: list[lsh.Progress] = []
    result = train(observe=heard.append)
    for made in (result, heard[0]):
        state = {name: value for name, value in vars(made).items() if name != "observed"}
        before = object.__new__(type(made))
        before.__setstate__(state)
        assert before.observed == {}


def test_a_term_is_told_where_it_is_given() -> None:
    assert repr(modes.ASP()) == "ASP()"
    assert repr(modes.GBA(term=2.0)) == "GBA(term=2.0)"
    assert repr(modes.EASGD(0.5)) == "EASGD(alpha=0.5, gap=1)"
