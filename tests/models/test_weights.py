"""Weights of the examples: against plain NumPy, and against examples that occur more than once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import leashed as lsh
from leashed import _core, models
from leashed.models import Conv2d, Dense, MaxPool, Model, ReLU

N, FEATURES = 90, 12

HIDDEN = (Dense(7), ReLU(), Dense(3))
CONVOLVED = (Conv2d(2, 2), ReLU(), MaxPool(2), Dense(3))
NETWORKS = {
    "softmax": Model((FEATURES, 1, 1), HIDDEN),
    "log_loss": Model((FEATURES, 1, 1), HIDDEN, loss="log_loss"),
    "hinge": Model((FEATURES, 1, 1), HIDDEN, loss="hinge"),
    "squared_error": Model((FEATURES, 1, 1), (Dense(1),), loss="squared_error"),
    "convolution": Model((1, 4, 3), CONVOLVED),
}
LINEAR = {
    "logistic": models.logistic_regression(FEATURES),
    "one against the rest": models.logistic_regression(FEATURES, 3),
    "penalty": models.logistic_regression(FEATURES, l2=0.1),
    "hinge": models.linear_svm(FEATURES, 3),
    "softmax": models.softmax_regression(FEATURES, 3),
    "numbers": models.linear_regression(FEATURES),
}

# The penalty has no weight, and reaches columns that are updated in place later.
UNPENALISED = [name for name, model in LINEAR.items() if not model.l2]


def draw(model: Model) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[np.float32]]:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(N, FEATURES)) * (rng.random((N, FEATURES)) < 0.5)
    y = rng.normal(size=N).astype(np.float32)
    if model.classes:
        y = rng.integers(0, model.classes, N).astype(np.int32)
    return x.astype(np.float32), y, rng.integers(0, 4, N).astype(np.float32)


def datasets(model: Model, weights: NDArray[np.float32] | None) -> list[Any]:
    """The same examples dense and sparse."""
    x, y, _ = draw(model)
    indptr = np.concatenate([[0], np.cumsum((x != 0).sum(axis=1))]).astype(np.int64)
    indices = np.nonzero(x)[1].astype(np.int32)
    return [
        lsh.Dataset(x, y, model.classes, weights=weights),
        lsh.SparseDataset(indptr, indices, x[x != 0], FEATURES, y, model.classes, weights=weights),
    ]


def descend(model: Model, data: Any, weights: NDArray[np.float32] | None = None) -> Any:
    """Gradient descent as the definition has it, in float32 like the engine."""
    theta = model.init(0)
    for _ in range(3):
        theta -= 0.25 * model.native.gradient(theta, data.x, data.y, weights)[1]
    return theta


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("isa", _core.available_isas())
def test_an_example_of_weight_two_is_the_example_twice(isa: str, name: str) -> None:
    model = NETWORKS[name]
    x, y, weights = draw(model)
    layers = [layer.choice() for layer in model.layers]
    source = _core.Network(model.input_shape, layers, isa=isa, loss=model.loss)
    theta = model.init(1)
    times = weights.astype(int)
    repeated = np.repeat(x, times, axis=0), np.repeat(y, times)
    share = len(repeated[0]) / N
    loss, gradient = source.gradient(theta, x, y, weights)
    expected_loss, expected = source.gradient(theta, *repeated)
    np.testing.assert_allclose(gradient, share * expected, atol=2e-6)
    assert loss == pytest.approx(share * expected_loss, rel=1e-5)
    evaluated, accuracy = source.evaluate(theta, x, y, weights)
    assert evaluated == pytest.approx(loss, rel=1e-5)
    assert accuracy == source.evaluate(theta, x, y)[1]


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_of_one_change_no_bit(name: str) -> None:
    model = NETWORKS[name]
    x, y, _ = draw(model)
    theta = model.init(1)
    ones = np.ones(N, np.float32)
    plain, weighed = model.native.gradient(theta, x, y), model.native.gradient(theta, x, y, ones)
    assert plain[0] == pytest.approx(weighed[0], rel=1e-6)
    np.testing.assert_array_equal(plain[1], weighed[1])
    evaluated = model.native.evaluate(theta, x, y, ones)
    assert model.native.evaluate(theta, x, y) == pytest.approx(evaluated, rel=1e-12)


def train(model: Model, data: Any, rule: Any, discipline: Any, batch_size: int = 7) -> Any:
    return lsh.train(
        model,
        data,
        until=lsh.until(updates=40),
        rule=rule,
        discipline=discipline,
        threads=1,
        batch_size=batch_size,
    )


@pytest.mark.parametrize("rule", [lsh.SGD(0.25), lsh.Adagrad(0.1)], ids=["SGD", "Adagrad"])
@pytest.mark.parametrize("name", LINEAR)
def test_training_with_weights_of_one_changes_no_bit(name: str, rule: lsh.Rule) -> None:
    model = LINEAR[name]
    weighted = datasets(model, np.ones(N, np.float32))
    for plain, data in zip(datasets(model, None), weighted, strict=True):
        for discipline in (lsh.Sequential(), lsh.Leashed()):
            results = [train(model, each, rule, discipline) for each in (plain, data)]
            np.testing.assert_array_equal(results[0].parameters, results[1].parameters)
            assert results[0].loss[-1] == pytest.approx(results[1].loss[-1], rel=1e-12)


@pytest.mark.parametrize("name", UNPENALISED)
def test_twice_the_weight_at_half_the_step_changes_no_bit(name: str) -> None:
    model = LINEAR[name]
    weighted = datasets(model, np.full(N, 2.0, np.float32))
    for plain, data in zip(datasets(model, None), weighted, strict=True):
        for discipline in (lsh.Sequential(), lsh.Leashed(), lsh.Hogwild()):
            once = train(model, plain, lsh.SGD(0.25), discipline)
            twice = train(model, data, lsh.SGD(0.125), discipline)
            np.testing.assert_array_equal(once.parameters, twice.parameters)
            assert twice.loss[-1] == pytest.approx(2 * once.loss[-1], rel=1e-6)


@pytest.mark.parametrize("rule", [lsh.SGD(0.25), lsh.Adagrad(0.1)], ids=["SGD", "Adagrad"])
@pytest.mark.parametrize("name", UNPENALISED)
def test_updates_in_place_weigh_as_whole_vectors_do(name: str, rule: lsh.Rule) -> None:
    model = LINEAR[name]
    data = datasets(model, draw(model)[2])[1]
    in_place = train(model, data, rule, lsh.Sequential())
    whole = train(model, data, rule, lsh.Leashed())
    assert in_place.config["sparse_updates"]
    assert not whole.config["sparse_updates"]
    np.testing.assert_allclose(in_place.parameters, whole.parameters, atol=2e-5)


@pytest.mark.parametrize("name", UNPENALISED)
def test_a_full_batch_is_weighted_gradient_descent(name: str) -> None:
    model = LINEAR[name]
    weights = draw(model)[2]
    dense, sparse = datasets(model, weights)
    expected = descend(model, dense, weights)
    for data, discipline in [
        (dense, lsh.Sequential()),
        (sparse, lsh.Leashed()),
        (sparse, lsh.Sequential()),
    ]:
        result = lsh.train(
            model,
            data,
            until=lsh.until(updates=3),
            rule=lsh.SGD(0.25),
            discipline=discipline,
            threads=1,
            batch_size=N,
        )
        np.testing.assert_allclose(result.parameters, expected, atol=1e-5)
        assert result.loss[-1] == pytest.approx(model.evaluate(expected, dense)[0], rel=1e-4)


def test_batches_draw_the_weights_of_their_rows() -> None:
    model = NETWORKS["softmax"]
    x, y, weights = draw(model)
    data = lsh.Dataset.from_arrays(x, y, 3, weights=weights)
    theta = model.init(0)
    for k in range(40):
        rows = _core.batch_rows(0, N, 7, k)
        theta -= 0.25 * model.native.gradient(theta, x[rows], y[rows], weights[rows])[1]
    result = train(model, data, lsh.SGD(0.25), lsh.Sequential())
    np.testing.assert_allclose(result.parameters, theta, atol=1e-5)


def test_a_part_of_the_rows_keeps_its_weights() -> None:
    model = LINEAR["logistic"]
    weights = draw(model)[2]
    part = datasets(model, weights)[1].head(10)
    np.testing.assert_array_equal(part.weights, weights[:10])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), r"weights must have one value per example, shape \(4,\), got \(3,\)"),
        (np.ones((4, 1)), "weights must have one value per example"),
        ([1, 2, -1, 1], r"weights\[2\] is -1; every weight must be finite in float32 and not neg"),
        ([1, np.nan, 1, 1], r"weights\[1\] is nan"),
        ([1, 1, 1, 1e300], r"weights\[3\] is 1e\+300"),
    ],
)
def test_weights_that_are_none_are_named(weights: Any, message: str) -> None:
    x = np.eye(4)
    indptr = np.arange(5)
    sparse = lsh.SparseDataset(
        indptr.astype(np.int64),
        np.arange(4, dtype=np.int32),
        np.ones(4, np.float32),
        4,
        np.array([0, 1, 0, 1], np.int32),
        2,
    )
    for make in (
        lambda: lsh.Dataset.from_arrays(x, [0, 1, 0, 1], weights=weights),
        lambda: lsh.Dataset.regression(x, [0, 1, 0, 1], weights=weights),
        lambda: lsh.SparseDataset(
            sparse.indptr, sparse.indices, sparse.data, 4, sparse.y, 2, weights=weights
        ),
    ):
        with pytest.raises(ValueError, match=message):
            make()
    with pytest.raises(TypeError, match="weights has dtype"):
        lsh.Dataset.from_arrays(x, [0, 1, 0, 1], weights=["a"] * 4)


def test_the_core_names_weights_that_are_none() -> None:
    model = LINEAR["logistic"]
    x, y, weights = draw(model)
    theta = model.init(0)
    with pytest.raises(ValueError, match="weights must be one-dimensional, of length 90"):
        model.native.gradient(theta, x, y, weights[:5])
    weights[3] = -1
    with pytest.raises(ValueError, match=r"weights\[3\] is -1"):
        model.native.gradient(theta, x, y, weights)


def test_a_gradient_from_outside_takes_no_weights() -> None:
    model = models.external(lambda *_: 0.0, dimension=2, features=FEATURES)
    x, y, weights = draw(LINEAR["logistic"])
    data = lsh.Dataset.from_arrays(x, y, weights=weights)
    with pytest.raises(ValueError, match="data has weights"):
        lsh.train(model, data, until=lsh.until(updates=1))
    with pytest.raises(ValueError, match="data has weights"):
        model.evaluate(np.zeros(2), data)
