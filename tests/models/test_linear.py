"""Linear models and heads: dense and sparse against plain NumPy, and against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference_losses import losses, residuals

import leashed as lsh
from leashed import _core, models
from leashed.models import LOSSES, Dense, Model, ReLU

ISAS = _core.available_isas()
Array = NDArray[np.float64]

OF_VALUES = (
    "squared_error",
    "huber",
)  # losses of rows that give numbers; of the others rows have classes


def csr(x: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """The parts of a dense matrix in CSR form, the columns of each row in falling order."""
    rows = [np.flatnonzero(row)[::-1] for row in x]
    indptr = np.cumsum([0] + [len(row) for row in rows]).astype(np.int64)
    indices = np.concatenate(rows).astype(np.int32)
    data = np.concatenate([x[i, row] for i, row in enumerate(rows)]).astype(np.float32)
    return indptr, indices, data


def draw(loss: str, outputs: int, features: int, rows: int, seed: int):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, features)) * (rng.random((rows, features)) < 0.4)
    theta = rng.normal(size=(features + 1) * outputs)
    classes = 2 if outputs == 1 else outputs
    y = rng.normal(size=rows) if loss in OF_VALUES else rng.integers(0, classes, rows)
    dtype = np.float32 if loss in OF_VALUES else np.int32
    if loss == "binary_cross_entropy":  # of which some labels are not known
        y, dtype = rng.choice([0.0, 1.0, np.nan], (rows, outputs), p=(0.4, 0.4, 0.2)), np.float32
    return x.astype(np.float32), theta.astype(np.float32), y.astype(dtype)


CASES = [
    ("softmax", 2),
    ("softmax", 5),
    ("log_loss", 1),
    ("log_loss", 3),
    ("binary_cross_entropy", 2),
    ("binary_cross_entropy", 5),
    ("hinge", 1),
    ("hinge", 4),
    ("modified_huber", 1),
    ("modified_huber", 3),
    ("squared_error", 1),
    ("huber", 1),
]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("loss", "outputs"), CASES)
@settings(max_examples=examples(30))
@given(
    features=st.integers(1, 40),
    rows=st.integers(1, 150),
    seed=st.integers(0, 2**32 - 1),
    l2=st.sampled_from((0.0, 0.3)),
    bias=st.booleans(),
    weighed=st.booleans(),
)
def test_dense_and_sparse_agree_with_numpy(
    isa: str,
    loss: str,
    outputs: int,
    features: int,
    rows: int,
    seed: int,
    l2: float,
    bias: bool,
    weighed: bool,
) -> None:
    x, theta, y = draw(loss, outputs, features, rows, seed)
    w = theta[:-outputs].reshape(features, outputs).astype(np.float64)
    o = x.astype(np.float64) @ w + theta[-outputs:]
    if loss == "hinge":  # away from where the slope jumps
        sign = 2.0 * (y[:, None] == (1 if outputs == 1 else np.arange(outputs))) - 1
        x = x[(np.abs(1 - sign * o) > 1e-4).all(axis=1)]
        y = y[(np.abs(1 - sign * o) > 1e-4).all(axis=1)]
        o = x.astype(np.float64) @ w + theta[-outputs:]
        if len(y) == 0:
            return
    weights = np.random.default_rng(seed).exponential(size=len(y)).astype(np.float32)
    given = weights if weighed else None
    count = weights.astype(np.float64) if weighed else np.ones(len(y))
    r = count[:, None] * residuals(loss, o, y.astype(np.float64)) / len(y)
    expected = np.concatenate([(x.T.astype(np.float64) @ r + l2 * w).ravel(), bias * r.sum(axis=0)])
    value = (count * losses(loss, o, y.astype(np.float64))).mean()
    scale = 1 + np.abs(expected).max()

    layers = [Dense(outputs, bias).choice()]
    dense = _core.Network((features, 1, 1), layers, isa=isa, loss=loss, l2=l2)
    sparse = _core.SparseLinear(features, outputs, loss, l2, isa, bias)
    rows_ = _core.SparseRows(*csr(x), features) if x.any() else None
    for source, given_x in ((dense, x), (sparse, rows_)):
        if given_x is None:
            continue
        got, gradient = source.gradient(theta, given_x, y, given)
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-5 * scale)
        assert got == pytest.approx(value + 0.5 * l2 * (w**2).sum(), rel=1e-5, abs=1e-5 * scale)
        assert source.evaluate(theta, given_x, y, given)[0] == pytest.approx(
            value, rel=1e-5, abs=1e-5 * scale
        )


@pytest.mark.parametrize(("loss", "outputs"), CASES)
def test_gradients_are_the_losses_slopes(loss: str, outputs: int) -> None:
    x, theta, y = draw(loss, outputs, 6, 30, 1)
    w = theta.astype(np.float64)

    def total(at: Array) -> float:
        o = x.astype(np.float64) @ at[:-outputs].reshape(6, outputs) + at[-outputs:]
        return float(losses(loss, o, y.astype(np.float64)).mean())

    step = 1e-6
    slopes = [(total(w + step * e) - total(w - step * e)) / (2 * step) for e in np.eye(len(theta))]
    native = Model((6, 1, 1), (Dense(outputs),), loss=loss).native
    np.testing.assert_allclose(native.gradient(theta, x, y)[1], slopes, atol=2e-5)


def test_hidden_layers_take_every_loss() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 3)).astype(np.float32)
    for loss in LOSSES:
        outputs = 2 if loss in ("softmax", "binary_cross_entropy") else 1
        model = Model((3, 1, 1), (Dense(5), ReLU(), Dense(outputs)), loss=loss)
        y = (x[:, 0] > 0).astype(np.int32) if model.classes else x[:, 0]
        y = (x[:, :2] > 0).astype(np.float32) if model.heads else y
        theta = model.init(3)
        value, gradient = model.native.gradient(theta, x, np.ascontiguousarray(y))
        lower, _ = model.native.gradient(theta - 1e-2 * gradient, x, np.ascontiguousarray(y))
        assert lower < value


@pytest.mark.parametrize(
    ("model", "classes"),
    [
        (models.linear_regression(4), 0),
        (models.logistic_regression(4), 2),
        (models.logistic_regression(4, 3), 3),
        (models.linear_svm(4), 2),
        (models.linear_svm(4, 3), 3),
        (models.softmax_regression(4, 2), 2),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_linear_model_learns_dense_and_sparse_data(model: Model, classes: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(600, 4)).astype(np.float32)
    scores = x @ rng.normal(size=(4, max(classes, 2)))
    if classes:
        dense: lsh.Dataset = lsh.Dataset.from_arrays(x, scores.argmax(axis=1), classes)
        sparse = lsh.SparseDataset(*csr(x), 4, dense.y, classes)
    else:
        dense = lsh.Dataset.regression(x, scores[:, 0])
        sparse = lsh.SparseDataset(*csr(x), 4, dense.y, 0)

    def train(data: lsh.Dataset | lsh.SparseDataset, threads: int) -> lsh.Result:
        return lsh.train(
            model,
            data,
            until=lsh.until(epochs=30),
            discipline=lsh.Hogwild(),
            rule=lsh.SGD(0.1),
            threads=threads,
            batch_size=8,
        )

    def has_learnt(result: lsh.Result) -> bool:
        return bool(result.accuracy[-1] > 0.93 if classes else result.loss[-1] < 1e-3)

    for data in (dense, sparse):
        result = train(data, 1)
        assert has_learnt(result)
        assert np.isnan(result.accuracy[-1]) == (not classes)
        predicted = model.predict(result.parameters, data if data is sparse else x)
        assert predicted.shape == (600, model.outputs)
        # Of two threads one may sleep through most of these few milliseconds, in the middle of an
        # update, and put back what was there before.
        assert any(has_learnt(train(data, 2)) for _ in range(3))


@pytest.mark.parametrize("sparse", [False, True])
def test_several_numbers_a_row_are_learned_and_judged(sparse: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4)).astype(np.float32)
    y = x @ rng.normal(size=(4, 3)) + 1
    model = Model((4, 1, 1), (Dense(3),), loss="squared_error")
    data: lsh.Dataset | lsh.SparseDataset = lsh.Dataset.regression(x, y)
    if sparse:
        data = lsh.SparseDataset(*csr(x), 4, y.astype(np.float32), 0)
    trained = lsh.train(
        model, data, rule=lsh.SGD(0.1), until=lsh.until(epochs=30), threads=1, batch_size=30
    ).model
    said = trained.predict(data)
    assert said.shape == y.shape
    np.testing.assert_allclose(said, y, atol=0.01)
    scipy = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    np.testing.assert_allclose(trained.predict(scipy.csr_array(x)), said, atol=1e-5)
    judged = trained.evaluate(data)
    assert judged.mse == pytest.approx(np.square(said - y).mean(), rel=1e-3)
    assert judged.loss == pytest.approx(1.5 * judged.mse, rel=1e-3)


def test_losses_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="loss must be one of softmax"):
        Model((3, 1, 1), (Dense(1),), loss="absolute")
    with pytest.raises(ValueError, match="huber takes a last layer with 1 output"):
        Model((3, 1, 1), (Dense(2),), loss="huber")
    with pytest.raises(ValueError, match="l2 must be at least 0"):
        models.logistic_regression(3, l2=-1.0)
    data = lsh.Dataset.regression(np.ones((4, 3)), np.ones(4))
    two = lsh.Dataset.regression(np.ones((4, 3)), np.ones((4, 2)))
    for outputs, numbers in ((2, data), (1, two), (3, two)):
        with pytest.raises(ValueError, match=r"numbers a row, but the model, .* takes"):
            lsh.train(
                Model((3, 1, 1), (Dense(outputs),), loss="squared_error"),
                numbers,
                until=lsh.until(epochs=1),
            )
    with pytest.raises(ValueError, match="data has numbers, but the loss log_loss takes labels"):
        lsh.train(models.logistic_regression(3), data, until=lsh.until(epochs=1))
    labelled = lsh.Dataset.from_arrays(np.ones((4, 3)), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="data has labels, but the loss squared_error takes"):
        lsh.train(models.linear_regression(3), labelled, until=lsh.until(epochs=1))
    with pytest.raises(ValueError, match="y is NaN, infinite or beyond float32 at index 1"):
        lsh.Dataset.regression(np.ones((2, 3)), [1.0, np.nan])


def test_a_label_that_is_not_known_is_left_out_of_its_output_alone() -> None:
    x, theta, y = draw("binary_cross_entropy", 3, 6, 40, 1)
    native = Model((6, 1, 1), (Dense(3),), loss="binary_cross_entropy").native
    total, gradient = native.gradient(theta, x, y)
    parts = []
    for k in range(3):
        known = ~np.isnan(y[:, k])
        alone = Model((6, 1, 1), (Dense(1),), loss="log_loss").native
        own = np.ascontiguousarray(np.append(theta[k:18:3], theta[18 + k]))
        label = y[known, k].astype(np.int32)
        loss, part = alone.gradient(own, np.ascontiguousarray(x[known]), label)
        share = known.mean()
        parts.append(loss * share)
        np.testing.assert_allclose(gradient[k:18:3], part[:-1] * share, atol=1e-6)
        np.testing.assert_allclose(gradient[18 + k], part[-1] * share, atol=1e-6)
    assert total == pytest.approx(sum(parts), rel=1e-5)


def test_binary_cross_entropy_says_the_same_as_pytorch() -> None:
    torch = pytest.importorskip("torch")
    x, theta, y = draw("binary_cross_entropy", 4, 6, 50, 2)
    y = np.nan_to_num(y)
    outputs = torch.tensor(x @ theta[:24].reshape(6, 4) + theta[24:], dtype=torch.float64)
    mean = torch.nn.BCEWithLogitsLoss()(outputs, torch.tensor(y, dtype=torch.float64))
    native = Model((6, 1, 1), (Dense(4),), loss="binary_cross_entropy").native
    assert native.evaluate(theta, x, y)[0] == pytest.approx(4 * float(mean), rel=1e-5)


def test_a_head_alone_is_log_loss() -> None:
    with pytest.raises(ValueError, match=r"takes a last layer with 2 outputs or more.*log_loss"):
        Model((3, 1, 1), (Dense(1),), loss="binary_cross_entropy")
