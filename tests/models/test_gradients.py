"""Losses and gradients of random networks, against plain NumPy and against finite differences.

At every instruction-set level that this machine has; the reference is in double precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import reference
from drawing import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from leashed import Dataset, Model, _core, models
from leashed.models import Conv2d, Dense, Layer, MaxPool, ReLU, Sigmoid, Tanh
from leashed.models.layers import native_layer

ISAS = _core.available_isas()

# Rounding of float32 (6e-8) summed over at most some thousand terms, against the norm of what is
# compared.
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Problem:
    model: Model
    theta: NDArray[np.float32]
    x: NDArray[np.float32]
    y: NDArray[np.int32]

    @property
    def reference(self) -> reference.Network:
        return reference.Network(self.model.input_shape, self.model.layers)

    def native(self, isa: str) -> _core.Network:
        layers = [layer.choice() for layer in self.model.layers]
        return _core.Network(self.model.input_shape, layers, isa=isa)

    def __repr__(self) -> str:
        return f"Problem({self.model}, batch {len(self.x)})"


def problem(model: Model, batch: int, seed: int) -> Problem:
    """He's weights, biases that are not 0, inputs of which half are 0 as in images."""
    rng = np.random.default_rng(seed)
    theta = model.init(seed)
    theta += rng.normal(0, 0.1, theta.size).astype(np.float32)
    x = rng.uniform(-1, 1, (batch, model.features)) * rng.integers(0, 2, (batch, model.features))
    y = rng.integers(0, model.classes, batch).astype(np.int32)
    made = Problem(model, theta, x.astype(np.float32), y)
    assume(made.reference.margin(theta, x) > 1e-5)
    return made


SIZES = st.integers(1, 40) | st.sampled_from((15, 16, 17, 31, 32, 33, 48, 64, 65))
BATCHES = st.integers(1, 20) | st.sampled_from((31, 32, 33, 48, 63, 64, 65))
SEEDS = st.integers(0, 2**32 - 1)


BEHIND: tuple[tuple[Layer, ...], ...] = ((), (ReLU(),), (Tanh(),), (Sigmoid(),))


def _dense_tail(draw: st.DrawFn, classes: int) -> list[Layer]:
    layers: list[Layer] = []
    for width in draw(st.lists(SIZES, max_size=3)):
        layers += [Dense(width), *draw(st.sampled_from(BEHIND))]
    return [*layers, Dense(classes)]


@st.composite
def dense_problems(draw: st.DrawFn) -> Problem:
    layers = _dense_tail(draw, draw(st.integers(2, 20)))
    model = Model((draw(SIZES), 1, 1), tuple(layers))
    return problem(model, draw(BATCHES), draw(SEEDS))


@st.composite
def spatial_problems(draw: st.DrawFn) -> Problem:
    """Convolutions, pools and activations in any order that fits, mostly with dense layers behind."""
    channels, height, width = shape = (
        draw(st.integers(1, 3)), draw(st.integers(1, 14)), draw(st.integers(1, 14)),
    )  # fmt: skip
    layers: list[Layer] = []
    kinds = st.sampled_from((Conv2d, MaxPool, ReLU, Tanh, Sigmoid))
    for kind in draw(st.lists(kinds, min_size=1, max_size=5)):
        if kind is Conv2d:
            padding = draw(st.integers(0, 2))
            kernel = draw(st.integers(1, min(5, height + 2 * padding, width + 2 * padding)))
            stride = draw(st.integers(1, 3))
            channels = draw(st.integers(1, 9))
            layers.append(Conv2d(channels, kernel, stride, padding))
            height = (height + 2 * padding - kernel) // stride + 1
            width = (width + 2 * padding - kernel) // stride + 1
        elif kind is MaxPool:
            size = draw(st.integers(1, min(4, height, width)))
            stride = draw(st.none() | st.integers(1, 4))  # below size: windows overlap
            layers.append(MaxPool(size, stride))
            height = (height - size) // (stride or size) + 1
            width = (width - size) // (stride or size) + 1
        else:
            layers.append(kind())
    has_parameters = any(isinstance(layer, Conv2d) for layer in layers)
    if not has_parameters or channels * height * width < 2 or draw(st.integers(0, 4)):
        layers += _dense_tail(draw, draw(st.integers(2, 12)))
    return problem(Model(shape, tuple(layers)), draw(BATCHES), draw(SEEDS))


PROBLEMS = pytest.mark.parametrize(
    "problems", [dense_problems(), spatial_problems()], ids=["dense", "spatial"]
)
LEVELS = pytest.mark.parametrize("isa", ISAS)


def assert_close(model: Model, got: NDArray[np.floating], wanted: NDArray[np.floating]) -> None:
    assert got.dtype == np.float32
    assert got.shape == wanted.shape
    # Terms that cancel leave their rounding; the derivatives by the logits are of the order of 1, and so
    # is each of the hundreds of inputs that a layer behind a convolution may have.
    rounding = 0.3 * TOLERANCE * max(float(np.linalg.norm(wanted)), 1.0)
    blocks = model.native.parameters
    for block in blocks:
        part = slice(block.offset, block.offset + math.prod(block.shape))
        error = float(np.linalg.norm(got[part] - wanted[part]))
        allowed = TOLERANCE * float(np.linalg.norm(wanted[part])) + rounding
        assert error <= allowed, f"{block.name}: {error:.2e} off, {allowed:.2e} allowed"


@st.composite
def sparse_problems(draw: st.DrawFn) -> tuple[Model, int, int]:
    layers: list[Layer] = []
    for width in draw(st.lists(SIZES, min_size=1, max_size=3)):
        layers += [Dense(width, bias=draw(st.booleans())), *draw(st.sampled_from(BEHIND))]
    layers.append(Dense(draw(st.integers(2, 20))))
    l2 = draw(st.sampled_from((0.0, 0.3)))
    return Model((draw(SIZES), 1, 1), tuple(layers), l2=l2), draw(BATCHES), draw(SEEDS)


@LEVELS
@settings(max_examples=examples(60))
@given(drawn=sparse_problems())
def test_what_is_found_of_sparse_rows_is_what_is_found_of_dense_ones(
    isa: str, drawn: tuple[Model, int, int]
) -> None:
    model, n, seed = drawn
    rng = np.random.default_rng(seed)
    entries = rng.integers(0, 6, n)  # some rows have none
    indptr = np.append(0, np.cumsum(entries))
    columns = rng.integers(0, model.features, indptr[-1]).astype(np.int32)  # some come twice
    values = rng.normal(size=indptr[-1]).astype(np.float32)
    x = np.zeros((n, model.features), np.float32)
    np.add.at(x, (np.repeat(np.arange(n), entries), columns), values)
    y = rng.integers(0, model.classes, n).astype(np.int32)
    theta = rng.normal(0, 0.5, model.dimension).astype(np.float32)
    assume(reference.Network(model.input_shape, model.layers).margin(theta, x) > 1e-5)
    weights = rng.random(n).astype(np.float32)
    layers = [native_layer(layer) for layer in model.layers]
    network = _core.Network(model.input_shape, layers, isa=isa, l2=model.l2)
    sparse = _core.SparseNetwork(network, "softmax", model.l2, isa=isa)
    rows = _core.SparseRows(indptr, columns, values, model.features)
    found, gradient = sparse.gradient(theta, rows, y, weights)
    wanted, expected = network.gradient(theta, x, y, weights)
    assert found == pytest.approx(wanted, rel=1e-5)
    assert_close(model, gradient, expected)
    np.testing.assert_allclose(sparse.predict(theta, rows), network.predict(theta, x), atol=1e-5)
    assert sparse.evaluate(theta, rows, y)[0] == pytest.approx(
        network.evaluate(theta, x, y)[0], rel=1e-5
    )


@LEVELS
@PROBLEMS
@settings(max_examples=examples(60))
@given(data=st.data())
def test_loss_and_gradient_equal_the_reference(
    isa: str, problems: st.SearchStrategy[Problem], data: st.DataObject
) -> None:
    p = data.draw(problems)
    loss, gradient = p.native(isa).gradient(p.theta, p.x, p.y)
    wanted_loss, wanted = p.reference.gradient(p.theta, p.x, p.y)
    assert loss == pytest.approx(wanted_loss, rel=TOLERANCE, abs=1e-6)
    assert_close(p.model, gradient, wanted)


@LEVELS
@PROBLEMS
@settings(max_examples=examples(25))
@given(data=st.data())
def test_gradient_equals_finite_differences(
    isa: str, problems: st.SearchStrategy[Problem], data: st.DataObject
) -> None:
    p = data.draw(problems)
    _, gradient = p.native(isa).gradient(p.theta, p.x, p.y)
    norm = float(np.linalg.norm(gradient))
    random = np.random.default_rng(0).normal(size=gradient.size)
    for direction in (random, gradient.astype(np.float64)):
        unit = direction / max(float(np.linalg.norm(direction)), 1e-30)
        step = 1e-7 * unit
        theta = p.theta.astype(np.float64)
        rise = p.reference.loss(theta + step, p.x, p.y) - p.reference.loss(theta - step, p.x, p.y)
        assert gradient @ unit == pytest.approx(rise / 2e-7, abs=TOLERANCE * max(norm, 1.0))


@LEVELS
@PROBLEMS
@settings(max_examples=examples(25))
@given(data=st.data())
def test_predict_and_evaluate_equal_the_reference(
    isa: str, problems: st.SearchStrategy[Problem], data: st.DataObject
) -> None:
    p = data.draw(problems)
    logits = p.reference.logits(p.theta, p.x)
    probabilities = p.native(isa).predict(p.theta, p.x)
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities, reference.softmax(logits), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)

    loss, accuracy = p.native(isa).evaluate(p.theta, p.x, p.y)
    assert loss == pytest.approx(p.reference.loss(p.theta, p.x, p.y), rel=TOLERANCE, abs=1e-6)
    best_two = np.sort(logits, axis=1)[:, -2:]
    clear = best_two[:, 1] - best_two[:, 0] > 1e-4
    right = logits.argmax(axis=1) == p.y
    assert abs(accuracy - right.mean()) <= (~clear).mean() + 1e-12


@LEVELS
@PROBLEMS
@settings(max_examples=examples(10))
@given(data=st.data())
def test_the_mean_is_over_the_batch(
    isa: str, problems: st.SearchStrategy[Problem], data: st.DataObject
) -> None:
    p = data.draw(problems)
    native = p.native(isa)
    loss, gradient = native.gradient(p.theta, p.x, p.y)
    single = [native.gradient(p.theta, p.x[i : i + 1], p.y[i : i + 1]) for i in range(len(p.x))]
    assert loss == pytest.approx(np.mean([one for one, _ in single]), rel=TOLERANCE, abs=1e-6)
    mean = np.mean([one for _, one in single], axis=0, dtype=np.float64)
    # Single gradients may cancel in the mean, their rounding errors do not; nor do those of the
    # probabilities in a gradient, which may cancel to nothing in each single one.
    scale = max(float(np.linalg.norm(one)) for _, one in single)
    assert float(np.linalg.norm(gradient - mean)) <= TOLERANCE * scale + 1e-6


@LEVELS
@pytest.mark.parametrize(
    "build", [models.cnn, models.lenet, lambda: models.mlp(784, [128] * 3, 10)]
)
@pytest.mark.parametrize("batch", [1, 16, 37, 64])
def test_the_builders_gradients_equal_the_reference(isa: str, build: object, batch: int) -> None:
    model: Model = build()  # type: ignore[operator]
    rng = np.random.default_rng(batch)
    theta = model.init(batch)
    x = rng.uniform(0, 1, (batch, model.features)).astype(np.float32)
    y = rng.integers(0, 10, batch).astype(np.int32)
    p = Problem(model, theta, x, y)
    loss, gradient = p.native(isa).gradient(theta, x, y)
    wanted_loss, wanted = p.reference.gradient(theta, x, y)
    assert loss == pytest.approx(wanted_loss, rel=TOLERANCE, abs=1e-6)
    # So many units that some lie within rounding of a kink: a looser bound over the whole vector.
    assert float(np.linalg.norm(gradient - wanted)) <= 1e-2 * float(np.linalg.norm(wanted))


@LEVELS
@pytest.mark.parametrize("size", [1e3, 1e30])
def test_the_loss_is_stable_for_huge_logits(isa: str, size: float) -> None:
    model = models.mlp(3, [], 4)
    theta = np.zeros(model.dimension, np.float32)
    model.unflatten(theta)["0.bias"][:] = [0, size, -size, size / 2]
    p = Problem(model, theta, np.ones((2, 3), np.float32), np.array([1, 0], np.int32))
    loss, gradient = p.native(isa).gradient(theta, p.x, p.y)
    assert loss == pytest.approx(size / 2)
    np.testing.assert_allclose(model.unflatten(gradient)["0.bias"], [-0.5, 0.5, 0, 0])
    np.testing.assert_array_equal(p.native(isa).predict(theta, p.x), [[0, 1, 0, 0]] * 2)


@LEVELS
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(
    "model",
    [
        models.mlp(20, [17], 5),
        models.cnn((1, 10, 10), 5),
        Model((2, 6, 6), (ReLU(), Conv2d(3, 2), MaxPool(3, 1), Dense(4))),
        Model((1, 4, 4), (Conv2d(2, 3), ReLU())),
    ],
    ids=["mlp", "cnn", "overlapping", "conv only"],
)
def test_a_parameter_that_is_not_finite_gives_a_loss_that_is_not(
    isa: str, value: float, model: Model
) -> None:
    p = Problem(
        model,
        model.init(0),
        np.full((3, model.features), 0.5, np.float32),
        np.zeros(3, np.int32),
    )
    native = p.native(isa)
    for name in model.unflatten(p.theta):
        for where in (slice(None), 0, -1):
            theta = p.theta.copy()
            model.unflatten(theta)[name].flat[where] = value
            if where == slice(None) or math.isnan(value):
                loss, _ = native.gradient(theta, p.x, p.y)
                assert not math.isfinite(loss), (name, where)
                assert not math.isfinite(native.evaluate(theta, p.x, p.y)[0]), (name, where)


def test_levels_agree_on_a_whole_data_set(digits: Dataset) -> None:
    model = models.cnn()
    theta = model.init(3)
    layers = [layer.choice() for layer in model.layers]
    losses, accuracies = zip(
        *(
            _core.Network(model.input_shape, layers, isa=isa).evaluate(theta, digits.x, digits.y)
            for isa in ISAS
        ),
        strict=True,
    )
    assert losses == pytest.approx([losses[0]] * len(ISAS), rel=TOLERANCE)
    assert accuracies == pytest.approx([accuracies[0]] * len(ISAS), abs=2e-3)


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="v9"):
        _core.Network((1, 1, 1), [Dense(2).choice()], isa="v9")
