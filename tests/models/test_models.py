"""Models: builders, initialisation, parameters by name, predictions, errors."""

from __future__ import annotations

import re

import numpy as np
import pytest

import leashed as lsh
from leashed import Dataset, Model, models
from leashed.models import Conv2d, Dense, MaxPool, ReLU


@pytest.mark.parametrize(
    ("model", "dimension"),
    [
        (models.mlp(784, [128, 128, 128], 10), 134_794),  # leashed-sgd, Table II
        (models.cnn(), 27_354),  # Table III
        (models.lenet(), 61_706),
        (models.mlp(5, [], 3), 18),
    ],
    ids=["mlp", "cnn", "lenet", "linear"],
)
def test_builders_have_their_published_dimension(model: Model, dimension: int) -> None:
    assert model.dimension == dimension
    assert sum(part.size for part in model.unflatten(model.init()).values()) == dimension


def test_shapes_follow_the_layers() -> None:
    model = models.cnn()
    assert (model.features, model.classes) == (784, 10)
    shapes = {name: part.shape for name, part in model.unflatten(model.init()).items()}
    assert shapes == {
        "0.weight": (4, 1, 3, 3), "0.bias": (4,),
        "3.weight": (8, 4, 3, 3), "3.bias": (8,),
        "6.weight": (200, 128), "6.bias": (128,),
        "8.weight": (128, 10), "8.bias": (10,),
    }  # fmt: skip


def test_models_are_values() -> None:
    assert models.cnn() == models.cnn()
    assert models.cnn() != models.lenet()
    assert hash(models.lenet()) == hash(models.lenet())
    with pytest.raises(AttributeError):
        models.cnn().name = "other"  # type: ignore[misc]


def test_operations_are_counted() -> None:
    # Forward, gradient of W, gradient of x; the first layer needs none of the latter.
    dense = models.mlp(784, [128], 10)
    assert dense.flops_per_example == pytest.approx(2 * (2 * 784 * 128 + 3 * 128 * 10), rel=0.01)
    assert models.cnn().flops_per_example > 2 * 2 * 4 * 26 * 26 * 9


@pytest.mark.parametrize("scheme", models.INITIALISATIONS)
def test_initial_parameters_depend_on_the_seed_alone(scheme: str) -> None:
    model = models.lenet()
    first, again, other = (model.init(seed, scheme) for seed in (7, 7, 8))
    assert first.dtype == np.float32
    assert first.shape == (model.dimension,)
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.9


def test_normal_is_over_the_whole_vector() -> None:
    theta = models.mlp(784, [128] * 3, 10).init(0, "normal")
    assert theta.std() == pytest.approx(0.01, rel=0.01)
    assert theta.mean() == pytest.approx(0, abs=1e-4)
    assert np.abs(models.mlp(784, [128] * 3, 10).unflatten(theta)["0.bias"]).max() > 0.01


@pytest.mark.parametrize("scheme", models.INITIALISATIONS)
def test_a_bias_that_is_not_trained_stays_0(scheme: str, digits: Dataset) -> None:
    model = Model((784, 1, 1), (Dense(16, bias=False), ReLU(), Dense(10)))
    theta = model.init(0, scheme)
    assert not model.unflatten(theta)["0.bias"].any()
    for rule in (lsh.Adam(1e-3, weight_decay=0.1), lsh.Momentum(0.01)):
        result = lsh.train(
            model, digits, rule=rule, init=theta, threads=2, until=lsh.until(updates=50)
        )
        parts = model.unflatten(result.parameters)
        assert not parts["0.bias"].any()
        assert parts["2.bias"].all()
        assert np.isfinite(result.parameters).all()


@pytest.mark.parametrize("scheme", ["he", "glorot"])
def test_he_and_glorot_scale_with_the_fans(scheme: str) -> None:
    model = models.lenet()
    fans = {
        "0.weight": (25, 150), "3.weight": (150, 400),
        "6.weight": (400, 120), "8.weight": (120, 84), "10.weight": (84, 10),
    }  # fmt: skip
    for name, part in model.unflatten(model.init(1, scheme)).items():
        if name.endswith(".bias"):
            assert not part.any()
            continue
        fan_in, fan_out = fans[name]
        variance = 2 / fan_in if scheme == "he" else 2 / (fan_in + fan_out)
        # Of n values the standard deviation is known to about 1/√(2n): allow five of these.
        assert part.std() == pytest.approx(np.sqrt(variance), rel=5 / np.sqrt(2 * part.size)), name
        if scheme == "glorot":
            assert np.abs(part).max() <= np.float32(np.sqrt(6 / (fan_in + fan_out)))


def test_the_initial_loss_is_that_of_chance(digits: Dataset) -> None:
    for model in (models.mlp(784, [128] * 3, 10), models.cnn()):
        loss, _ = model.evaluate(model.init(0, "normal"), digits)
        assert loss == pytest.approx(np.log(10), abs=0.01)


def test_unflatten_gives_views() -> None:
    model = models.mlp(4, [3], 2)
    theta = np.arange(model.dimension, dtype=np.float32)
    parts = model.unflatten(theta)
    np.testing.assert_array_equal(parts["0.weight"], np.arange(12).reshape(4, 3))
    np.testing.assert_array_equal(parts["0.bias"], [12, 13, 14])
    parts["2.bias"][:] = -1
    np.testing.assert_array_equal(theta[-2:], [-1, -1])
    with pytest.raises(ValueError, match=r"parameters must have shape \(23,\)"):
        model.unflatten(theta[:-1])


def test_predict_takes_rows_images_and_one_example(digits: Dataset) -> None:
    model = models.cnn()
    theta = model.init()
    rows = digits.x[:5]
    wanted = model.predict(theta, rows)
    assert wanted.shape == (5, 10)
    assert wanted.dtype == np.float32
    np.testing.assert_allclose(wanted.sum(axis=1), 1, rtol=1e-5)
    for x in (
        rows.reshape(5, 28, 28),
        rows.reshape(5, 1, 28, 28),
        rows.astype(np.float64),
        np.asfortranarray(rows),
        rows.tolist(),
        np.repeat(rows, 2, axis=0)[::2],
    ):
        np.testing.assert_array_equal(model.predict(theta, x), wanted)
    np.testing.assert_allclose(model.predict(theta, rows[0]), wanted[:1], rtol=1e-4)
    assert model.predict(theta, np.zeros((0, 784))).shape == (0, 10)


def test_predict_and_evaluate_agree(digits: Dataset) -> None:
    model = models.mlp(784, [32], 10)
    theta = model.init(1)
    probabilities = model.predict(theta, digits.x)
    loss, accuracy = model.evaluate(theta, digits)
    assert accuracy == pytest.approx((probabilities.argmax(axis=1) == digits.y).mean(), abs=2e-3)
    of_label = probabilities[np.arange(len(digits)), digits.y]
    assert loss == pytest.approx(-np.log(of_label).mean(), rel=1e-4)


@pytest.mark.parametrize(
    ("shape", "layers", "message"),
    [
        ((1, 8, 8), (Dense(4), Conv2d(2, 3)), "layer 1: Conv2d cannot follow Dense"),
        ((1, 8, 8), (Dense(4), ReLU(), MaxPool(2)), "layer 2: MaxPool cannot follow Dense"),
        ((1, 4, 4), (Conv2d(2, 3), Conv2d(2, 3)), "layer 1: .*kernel of 3 x 3 is larger .*2 x 2"),
        ((1, 4, 4), (Conv2d(2, 3), MaxPool(3), Dense(2)), "layer 1: .*window of 3 x 3"),
        ((1, 40, 40), (MaxPool(16), Dense(2)), "layer 0: .*at most 15"),
        ((1, 4, 4), (), "at least one layer"),
        ((1, 4, 4), (MaxPool(2), ReLU()), "with parameters"),
        ((0, 4, 4), (Dense(2),), "input_shape must be at least 1"),
        ((4, 4), (Dense(2),), "input_shape must be .channels, height, width"),
    ],
)
def test_layers_that_do_not_fit_are_named(
    shape: tuple[int, int, int], layers: tuple[models.Layer, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Model(shape, layers)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (Dense, "outputs"),
        (lambda n: Conv2d(n, 3), "filters"),
        (lambda n: Conv2d(3, n), "kernel"),
        (lambda n: Conv2d(3, 3, stride=n), "stride"),
        (lambda n: Conv2d(3, 3, padding=n), "padding"),
        (MaxPool, "size"),
        (lambda n: MaxPool(2, n), "stride"),
        (lambda n: models.mlp(n, [2], 2), "inputs"),
        (lambda n: models.mlp(2, [n], 2), "a width of hidden"),
        (lambda n: models.mlp(2, [], n), "classes"),
        (lambda n: models.cnn((n, 28, 28)), "input_shape"),
        (lambda n: models.lenet(classes=n), "outputs"),
    ],
)
def test_sizes_that_are_no_whole_numbers_are_named(make: object, name: str) -> None:
    for wrong, error in ((-1, ValueError), (1.5, TypeError), (True, TypeError), ("3", TypeError)):
        with pytest.raises(error, match=rf"^{name} must be"):
            make(wrong)  # type: ignore[operator]
    for huge in (2**40, 2**63, 2**64, 10**30):
        with pytest.raises(ValueError, match=re.escape(name)):
            make(huge)  # type: ignore[operator]
    if name != "padding":
        with pytest.raises(ValueError, match=f"^{name} must be at least 1, got 0"):
            make(0)  # type: ignore[operator]


def test_a_bias_is_there_or_not() -> None:
    with pytest.raises(TypeError, match="bias must be True or False, got 0"):
        Dense(3, bias=0)  # type: ignore[arg-type]


def test_a_network_too_large_to_count_is_refused() -> None:
    with pytest.raises(ValueError, match=r"layer 0: .* too large"):
        Model((1, 2**20, 2**20), (Dense(2**30), Dense(2**30)))


def test_something_else_than_a_layer_is_refused() -> None:
    with pytest.raises(TypeError, match=r"layers must be Dense, .* or \w+, got 'relu'"):
        Model((1, 4, 4), (Dense(3), "relu"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="layers must be"):
        Model((1, 4, 4), (Dense,))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hidden", "why"),
    [
        ([128, "a"], "a width of hidden must be a whole number, got 'a'"),
        ([0], "a width of hidden must be at least 1, got 0"),
        (128, r"hidden must be the widths of the hidden layers, such as \[128, 128\], got 128"),
    ],
    ids=str,
)
def test_what_is_no_width_is_told_by_its_name(hidden: object, why: str) -> None:
    with pytest.raises((TypeError, ValueError), match=why):
        models.mlp(784, hidden, 10)  # type: ignore[arg-type]
