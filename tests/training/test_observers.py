"""Who looks on at a training's steps, by name: ``Observe.counting``."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

import leashed as lsh
from leashed.report.facts import facts
from leashed.training.progress import describe
from leashed.training.result import TrainResult

MODEL = lsh.models.linear_regression(5)
RNG = np.random.default_rng(0)
X = RNG.standard_normal((64, 5)).astype(np.float32)
Y = X @ np.arange(1, 6, dtype=np.float32)
DATA = lsh.Dataset(X, Y, 0)
LOOKED_AT = lsh.Observe(counting=["gradient_norms"])


def train(**choices):
    return lsh.train(
        MODEL, DATA, **{"until": lsh.until(updates=40), "batch_size": 8, "threads": 2, **choices}
    )


def test_the_norms_are_those_of_the_gradients():
    norms = []

    def gradient(theta, x, y, out):
        away = x @ theta - y
        out[:] = x.T @ away / len(y)
        norms.append(float(np.linalg.norm(out)))
        return float(np.mean(away**2) / 2)

    model = lsh.models.external(gradient, dimension=5, features=5, y="float32", loss=lambda *_: 1.0)
    found = lsh.train(
        model,
        (X, Y),
        until=lsh.until(updates=12),
        batch_size=8,
        discipline=lsh.Sequential(),
        observe=lsh.Observe(counting=["gradient_norms"]),
    ).observed
    assert len(norms) == 12
    assert found == pytest.approx(
        {"gradient_norm": np.mean(norms), "largest_gradient_norm": max(norms)}, rel=1e-5
    )


@pytest.mark.parametrize(
    "how",
    [
        {"discipline": lsh.Sequential(), "threads": 1},
        {"discipline": lsh.Leashed(), "threads": 1},
        {"mode": lsh.modes.ASP(), "threads": 1},
    ],
    ids=lambda how: type(next(iter(how.values()))).__name__,
)
def test_what_is_trained_stays_the_same(how):
    plain, looked_at = train(**how), train(observe=LOOKED_AT, **how)
    np.testing.assert_array_equal(plain.parameters, looked_at.parameters)
    assert plain.observed == {}
    assert looked_at.observed["gradient_norm"] > 0


@pytest.mark.parametrize(
    "discipline", [lsh.Synchronous(), lsh.Locked(), lsh.Hogwild(), lsh.Leashed()]
)
def test_by_several_threads(discipline):
    found = train(discipline=discipline, observe=LOOKED_AT).observed
    assert 0 < found["gradient_norm"] <= found["largest_gradient_norm"]


def test_progress_and_the_result_tell_it():
    told = []
    result = train(observe=lsh.Observe(told.append, counting=["gradient_norms"]))
    assert math.isnan(told[0].observed["gradient_norm"])
    assert told[-1].observed == result.observed
    assert "largest_gradient_norm" in describe(told[-1])
    assert "largest gradient norm" in dict(facts(result))
    again = TrainResult.from_json(result.to_json())
    assert again.observed == result.observed


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("gradient_norms", TypeError, "counting must be a list"),
        ([3], TypeError, "counting must be a list of str, got 3"),
        (["norms"], ValueError, "counting 'norms' is unknown; choose one of gradient_norms"),
        (["gradient_norms:bound=1"], ValueError, "gradient_norms takes no settings"),
        (["gradient_norms"] * 2, ValueError, "counting has gradient_norms twice; leave one"),
    ],
)
def test_bad_input(given, error, message):
    with pytest.raises(error, match=message):
        train(observe=lsh.Observe(counting=given))


def sparse():
    rows = SimpleNamespace(
        indptr=np.arange(65) * 5,
        indices=np.tile(np.arange(5), 64),
        data=X.reshape(-1),
        shape=X.shape,
    )
    return lsh.SparseDataset.from_csr(rows, np.where(Y > 0, 1, 0))


@pytest.mark.parametrize("discipline", [lsh.Sequential(), lsh.Locked(), lsh.Hogwild()])
def test_of_updates_in_place_it_is_told_the_gradients_too(discipline):
    data = sparse()

    def trained(discipline, **how):
        model = lsh.models.logistic_regression(5, l2=1e-3)
        until = lsh.until(updates=40)
        how = {"discipline": discipline, "batch_size": 8, "threads": 1, "until": until, **how}
        return lsh.train(model, data, **how)

    looked_at = trained(discipline, observe=LOOKED_AT)
    np.testing.assert_array_equal(looked_at.parameters, trained(discipline).parameters)
    # Which are rounded otherwise there.
    assert looked_at.observed == pytest.approx(
        trained(lsh.Leashed(), observe=LOOKED_AT).observed, rel=1e-3
    )


def test_in_virtual_time_it_finds_what_it_does_of_a_thread():
    cluster = lsh.simulation.constant(1, 1.0)
    how = {"until": lsh.until(updates=40), "batch_size": 8, "observe": LOOKED_AT}
    played = lsh.simulate(MODEL, DATA, cluster=cluster, discipline=lsh.Leashed(), **how).result
    assert played.observed == train(discipline=lsh.Leashed(), threads=1, observe=LOOKED_AT).observed


@pytest.mark.parametrize(
    "how",
    [
        {"discipline": lsh.Sequential(), "threads": 1},
        {"discipline": lsh.Synchronous(), "threads": 3},
        {"discipline": lsh.Leashed(), "threads": 3},
        {"mode": lsh.modes.ASP(), "threads": 3},
        {"mode": lsh.modes.GBA(m=2, iota=4), "threads": 3},
        {"mode": lsh.modes.LocalSGD(h=16), "threads": 3},
    ],
    ids=lambda how: type(next(iter(how.values()))).__name__,
)
def test_of_a_replay_it_finds_what_it_found_of_the_run(how, tmp_path):
    trace = tmp_path / "run.trace"
    looked_at = lsh.Observe(record=trace, counting=["gradient_norms"])
    run = train(observe=looked_at, **{"until": lsh.until(epochs=5), **how})
    made = lsh.replay(trace, MODEL, DATA, observe=LOOKED_AT)
    assert made.difference == 0
    assert made.observed == run.observed
    assert lsh.replay(trace, MODEL, DATA).observed == {}
    none = lsh.replay(trace, MODEL, DATA, until=0, observe=LOOKED_AT).observed
    assert math.isnan(none["gradient_norm"])


@pytest.mark.parametrize(("l2", "apart"), [(0.0, 0.0), (1e-3, 1e-3)])
def test_of_a_replay_of_updates_in_place_too(tmp_path, l2, apart):
    data = sparse()
    trace = tmp_path / "run.trace"
    model = lsh.models.logistic_regression(5, l2=l2)
    run = lsh.train(
        model,
        data,
        discipline=lsh.Sequential(),
        batch_size=8,
        until=lsh.until(updates=40),
        observe=lsh.Observe(record=trace, counting=["gradient_norms"]),
    )
    made = lsh.replay(trace, model, data, observe=LOOKED_AT)
    assert made.observed == pytest.approx(run.observed, rel=apart, abs=0)


@pytest.mark.parametrize(
    ("observe", "error", "message"),
    [
        (print, TypeError, r"observe must be leashed.Observe\(counting=...\)"),
        (lsh.Observe(print, counting=["gradient_norms"]), ValueError, "leave progress, every"),
        (lsh.Observe(counting=["norms"]), ValueError, "counting 'norms' is unknown"),
    ],
)
def test_bad_input_of_a_replay(observe, error, message):
    with pytest.raises(error, match=message):
        lsh.replay("nowhere.trace", observe=observe)
