"""Factorisation machines against NumPy in double precision, by the definition: every pair of columns."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference_losses import losses, residuals

import leashed as lsh
from leashed import _core, models
from leashed.datasets import SparseDataset

Array = NDArray[np.float64]

ISAS = _core.available_isas()
LOSSES = ("log_loss", "hinge", "squared_error")
FACTORS = (1, 3, 4, 5, 8, 10, 16, 23)


def outputs(theta: Array, x: Array, k: int) -> Array:
    """By equation 1, pair by pair."""
    columns, bias = theta[:-1].reshape(x.shape[1], 1 + k), theta[-1]
    w, v = columns[:, 0], columns[:, 1:]
    meetings = np.triu(v @ v.T, 1)
    return np.asarray(bias + x @ w + np.einsum("ni,ij,nj->n", x, meetings, x))


def slopes(theta: Array, x: Array, k: int) -> Array:
    """Their derivatives with respect to theta, [n, d]."""
    v = theta[:-1].reshape(x.shape[1], 1 + k)[:, 1:]
    factors = x[:, :, None] * ((x @ v)[:, None, :] - x[:, :, None] * v)
    columns = np.concatenate([x[:, :, None], factors], axis=2)
    return np.hstack([columns.reshape(len(x), -1), np.ones((len(x), 1))])


def gradient(
    theta: Array, x: Array, y: Array, k: int, loss: str, weights: Array | None = None, l2: float = 0
) -> tuple[float, Array]:
    """The mean loss with its penalty, and its slope."""
    weights = np.ones(len(x)) if weights is None else weights
    o = outputs(theta, x, k)[:, None]
    penalised = np.append(theta[:-1], 0.0)
    value = (weights * losses(loss, o, y)).mean() + 0.5 * l2 * (penalised**2).sum()
    r = weights * residuals(loss, o, y)[:, 0] / len(x)
    return float(value), r @ slopes(theta, x, k) + l2 * penalised


def csr_of(
    x: NDArray[np.float32], rng: np.random.Generator, again: bool
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """CSR, columns in any order; `again`: some values in two parts, of the same column."""
    indptr, indices, data = [0], [], []
    for row in x:
        entries = []
        for j in np.flatnonzero(row):
            parts = (0.75, 0.25) if again and rng.random() < 0.5 else (1,)
            entries += [(j, np.float32(part * row[j])) for part in parts]
        for place in rng.permutation(len(entries)):
            indices.append(entries[place][0])
            data.append(entries[place][1])
        indptr.append(len(indices))
    return np.array(indptr, np.int64), np.array(indices, np.int32), np.array(data, np.float32)


def rows_of(
    n: int, features: int, loss: str, seed: int, ones: bool = False
) -> tuple[Array, SparseDataset]:
    """Some of them empty, some with a column twice."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, features)).astype(np.float32)
    if ones:
        x[...] = 1
    x *= rng.random(x.shape) < 0.3
    x[rng.random(n) < 0.1] = 0
    indptr, indices, data = csr_of(x, rng, again=not ones)
    dense = np.zeros(x.shape)
    np.add.at(dense, (np.repeat(np.arange(n), np.diff(indptr)), indices), data)
    values = loss == "squared_error"
    y = rng.normal(size=n).astype(np.float32) if values else rng.integers(0, 2, n, np.int32)
    given = SparseDataset(indptr, indices, data, features, y, 0 if values else 2)
    return dense, given


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("k", FACTORS)
@settings(max_examples=examples(8), deadline=None)
@given(
    features=st.integers(1, 30),
    n=st.integers(1, 140),
    seed=st.integers(0, 2**32 - 1),
    l2=st.sampled_from((0.0, 0.3)),
    ones=st.booleans(),
    weighed=st.booleans(),
    loss=st.sampled_from(("log_loss", "squared_error")),
)
def test_loss_and_gradient_are_those_of_every_pair(
    isa: str,
    k: int,
    features: int,
    n: int,
    seed: int,
    l2: float,
    ones: bool,
    weighed: bool,
    loss: str,
) -> None:
    x, data = rows_of(n, features, loss, seed, ones)
    rng = np.random.default_rng(seed)
    theta = rng.normal(scale=0.5, size=features * (1 + k) + 1).astype(np.float32)
    weights = rng.exponential(size=n).astype(np.float32) if weighed else None
    value, expected = gradient(
        theta.astype(np.float64), x, data.y.astype(np.float64), k, loss, weights, l2
    )
    source = _core.FactorisationMachine(features, k, loss, l2, isa)
    found, got = source.gradient(theta, data.rows, data.y, weights)
    scale = 1 + np.abs(expected).max()
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * scale)
    penalty = 0.5 * l2 * float((theta[:-1].astype(np.float64) ** 2).sum())
    assert found == pytest.approx(value, rel=2e-5, abs=1e-5)
    assert source.evaluate(theta, data.rows, data.y, weights)[0] == pytest.approx(
        value - penalty, rel=2e-5, abs=1e-5 * (1 + penalty)
    )
    if loss == "squared_error":
        o = outputs(theta.astype(np.float64), x, k)
        np.testing.assert_allclose(
            source.predict(theta, data.rows)[:, 0], o, atol=2e-5 * (1 + np.abs(o).max())
        )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("k", [3, 8])
def test_gradients_are_the_losses_slopes(loss: str, k: int) -> None:
    x, data = rows_of(30, 6, loss, 1)
    theta = np.random.default_rng(2).normal(scale=0.5, size=6 * (1 + k) + 1)
    y = data.y.astype(np.float64)

    def total(at: Array) -> float:
        return float(losses(loss, outputs(at, x, k)[:, None], y).mean())

    step = 1e-6
    found = [
        (total(theta + step * e) - total(theta - step * e)) / (2 * step) for e in np.eye(len(theta))
    ]
    got = _core.FactorisationMachine(6, k, loss).gradient(
        theta.astype(np.float32), data.rows, data.y
    )[1]
    np.testing.assert_allclose(got, found, atol=5e-5)


def steps(
    theta: NDArray[np.float32],
    x: Array,
    data: SparseDataset,
    batches: list[NDArray[np.int64]],
    model: models.FactorisationMachine,
    rule: lsh.Rule,
) -> Array:
    """Where SGD or Adagrad come to on these batches."""
    at = theta.astype(np.float64)
    squares = np.zeros_like(at)
    weights = None if data.weights is None else data.weights.astype(np.float64)
    for batch in batches:
        w = None if weights is None else weights[batch]
        g = gradient(
            at, x[batch], data.y[batch].astype(np.float64), model.k, model.loss, w, model.l2
        )
        if isinstance(rule, lsh.SGD):
            at = at - rule.lr * g[1]
        else:
            squares += g[1] ** 2
            at = at - rule.lr * g[1] / (np.sqrt(squares) + 1e-10)
    return at


@pytest.mark.parametrize("discipline", [lsh.Sequential(), lsh.Hogwild(), lsh.Locked()], ids=str)
@pytest.mark.parametrize("rule", [lsh.SGD(0.1), lsh.Adagrad(0.05)], ids=lambda r: r.NATIVE)
@pytest.mark.parametrize("k", [4, 5, 8, 16])
@pytest.mark.parametrize("weighed", [False, True])
def test_fifty_steps_are_numpys(
    discipline: lsh.Discipline, rule: lsh.Rule, k: int, weighed: bool
) -> None:
    """One batch, all rows: which rows a smaller one has is the sampler's affair."""
    x, data = rows_of(60, 25, "log_loss", 3)
    if weighed:
        weights = np.random.default_rng(4).exponential(size=60).astype(np.float32)
        data = SparseDataset(data.indptr, data.indices, data.data, 25, data.y, 2, weights=weights)
    model = models.fm(25, k)
    theta = model.init(5)
    result = lsh.train(
        model,
        data,
        until=lsh.until(updates=50),
        discipline=discipline,
        rule=rule,
        threads=1,
        batch_size=60,
        init=theta,
    )
    assert result.config["sparse_updates"]
    expected = steps(theta, x, data, [np.arange(60)] * 50, model, rule)
    np.testing.assert_allclose(result.parameters, expected, atol=2e-4)


@pytest.mark.parametrize("name", ["SGD", "Adagrad"])
def test_fifty_steps_are_pytorchs(name: str) -> None:
    """Values in two parts, weights, and a gradient that PyTorch finds by itself."""
    torch = pytest.importorskip("torch")
    k, lr = 8, 0.05
    x, data = rows_of(80, 30, "log_loss", 11)
    weights = np.random.default_rng(4).exponential(size=80).astype(np.float32)
    data = SparseDataset(data.indptr, data.indices, data.data, 30, data.y, 2, weights=weights)
    model = models.fm(30, k)
    theta = model.init(2)
    found = lsh.train(
        model,
        data,
        until=lsh.until(updates=50),
        discipline=lsh.Sequential(),
        rule=getattr(lsh, name)(lr),
        batch_size=80,
        init=theta,
    ).parameters

    parameters = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
    optimizer = getattr(torch.optim, name)([parameters], lr=lr)
    rows, y = torch.tensor(x), torch.tensor(data.y, dtype=torch.float64)
    for _ in range(50):
        columns = parameters[:-1].reshape(30, 1 + k)
        factors = columns[:, 1:]
        pairs = (rows @ factors) ** 2 - rows**2 @ factors**2
        o = parameters[-1] + rows @ columns[:, 0] + pairs.sum(dim=1) / 2
        losses = torch.nn.functional.binary_cross_entropy_with_logits(o, y, reduction="none")
        optimizer.zero_grad()
        (torch.tensor(weights, dtype=torch.float64) * losses).mean().backward()
        optimizer.step()
    np.testing.assert_allclose(found, parameters.detach().numpy(), atol=1e-4)


N, FEATURES = 2500, 120


@pytest.fixture(scope="module")
def rows() -> SparseDataset:
    """Two classes, told apart by which columns meet: the columns alone say nothing."""
    rng = np.random.default_rng(0)
    planted = rng.normal(size=(FEATURES, 2))
    indices = (FEATURES * rng.random((N, 14)) ** 1.5).astype(np.int32)
    indptr = np.arange(0, 14 * N + 1, 14, dtype=np.int64)
    data = np.where(rng.random(indices.size) < 0.5, 1, 0.5).astype(np.float32)
    x = np.zeros((N, FEATURES))
    np.add.at(x, (np.repeat(np.arange(N), 14), indices.ravel()), data)
    meetings = ((x @ planted) ** 2).sum(axis=1) - (x**2 @ planted**2).sum(axis=1)
    y = (meetings > np.median(meetings)).astype(np.int32)
    return SparseDataset(indptr, indices.ravel(), data, FEATURES, y, 2)


def train(
    rows: SparseDataset, model: models.FactorisationMachine, **arguments: Any
) -> lsh.TrainResult:
    settings: dict[str, Any] = {
        "discipline": lsh.Sequential(),
        "rule": lsh.SGD(0.1),
        "threads": 1,
        "batch_size": 8,
        **arguments,
    }
    return lsh.train(model, rows, **settings)


@pytest.mark.parametrize("rule", [lsh.SGD(0.05), lsh.Adagrad(0.02)], ids=lambda r: r.NATIVE)
@pytest.mark.parametrize("k", [4, 8, 10, 16])
@pytest.mark.parametrize("batch_size", [1, 7, 100, N])
def test_updates_in_place_are_those_of_whole_vectors(
    rows: SparseDataset, rule: lsh.Rule, k: int, batch_size: int
) -> None:
    """Over a pass's end, whose last batch may be smaller. A batch of all rows has more factors than
    are kept, with any k.
    """
    model = models.fm(FEATURES, k)
    until = lsh.until(updates=min(60, N // batch_size + 20))
    arguments = {"rule": rule, "until": until, "batch_size": batch_size, "init": model.init(3)}
    in_place = train(rows, model, **arguments)
    whole = train(rows, model, **arguments, discipline=lsh.Leashed())
    assert in_place.config["sparse_updates"]
    assert not whole.config["sparse_updates"]
    np.testing.assert_allclose(in_place.parameters, whole.parameters, rtol=1e-4, atol=5e-5)


def test_a_linear_model_cannot_tell_what_every_discipline_learns(
    rows: SparseDataset, discipline: lsh.Discipline
) -> None:
    result = train(
        rows,
        models.fm(FEATURES),
        until=lsh.until(epochs=60),
        discipline=discipline,
        threads=1 if isinstance(discipline, lsh.Sequential) else 2,
        validation=rows,
    )
    linear = lsh.train(
        models.logistic_regression(FEATURES),
        rows,
        until=lsh.until(epochs=60),
        discipline=lsh.Sequential(),
        rule=lsh.SGD(0.1),
        batch_size=8,
    )
    assert result.accuracy[-1] > 0.9 > linear.accuracy[-1]
    assert result.validation_accuracy[-1] == result.accuracy[-1]
    in_place = isinstance(discipline, (lsh.Sequential, lsh.Locked, lsh.Hogwild))
    assert result.config["sparse_updates"] == in_place


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("rule", [lsh.SGD(0.1), lsh.Adagrad(0.1)], ids=lambda r: r.NATIVE)
def test_many_threads_hurt_nothing(rows: SparseDataset, copy: bool, rule: lsh.Rule) -> None:
    result = train(
        rows,
        models.fm(FEATURES),
        until=lsh.until(updates=20_000),
        discipline=lsh.Hogwild(copy=copy),
        rule=rule,
        threads=8,
    )
    assert result.total_updates == 20_000
    assert result.accuracy[-1] > 0.85


def test_one_thread_gives_the_same_bits_under_every_discipline(rows: SparseDataset) -> None:
    kinds = (lsh.Sequential(), lsh.Locked(), lsh.Hogwild(), lsh.Hogwild(copy=False))
    model = models.fm(FEATURES, 5, l2=1e-4)
    runs = [
        train(rows, model, discipline=kind, until=lsh.until(epochs=2), batch_size=3).parameters
        for kind in kinds
    ]
    for run in runs[1:]:
        np.testing.assert_array_equal(run, runs[0])


def test_the_penalty_is_on_weights_and_factors_alike(rows: SparseDataset) -> None:
    """Lazily in place, at once on whole vectors; the columns that no row has keep theirs in place."""
    arguments = {"until": lsh.until(updates=1000), "rule": lsh.SGD(0.1)}

    def parts(l2: float, discipline: lsh.Discipline) -> dict[str, NDArray[np.float32]]:
        model = models.fm(FEATURES, l2=l2)
        result = train(rows, model, discipline=discipline, **arguments)
        assert result.config["sparse_updates"] == isinstance(discipline, lsh.Sequential)
        return model.unflatten(result.parameters)

    free, held = parts(0, lsh.Sequential()), parts(0.01, lsh.Sequential())
    whole = parts(0.01, lsh.Leashed())
    for name in ("weight", "factors"):
        seen = np.isin(np.arange(FEATURES), rows.indices)
        norms = [float(np.linalg.norm(found[name][seen])) for found in (free, held, whole)]
        assert norms[1] < 0.9 * norms[0]
        assert norms[1] == pytest.approx(norms[2], rel=0.05)


def test_a_rate_of_nearly_nothing_changes_nothing(rows: SparseDataset) -> None:
    model = models.fm(FEATURES)
    theta = model.init(1)
    result = train(rows, model, rule=lsh.SGD(1e-45), init=theta, until=lsh.until(epochs=1))
    np.testing.assert_array_equal(result.parameters, theta)


def test_rows_without_any_column_still_teach_the_intercept() -> None:
    y = (np.arange(4000) % 4 == 0).astype(np.int32)
    empty = SparseDataset(
        np.zeros(4001, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 3, y, 2
    )
    for rule in (lsh.SGD(0.1), lsh.Adagrad(0.1)):
        result = train(empty, models.fm(3), rule=rule, until=lsh.until(epochs=10))
        assert result.loss[-1] == pytest.approx(0.5623, abs=0.01)


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
def test_a_step_too_long_is_found(rows: SparseDataset) -> None:
    data = SparseDataset(
        rows.indptr, rows.indices, rows.data, FEATURES, rows.y.astype(np.float32), 0
    )
    result = train(
        data,
        models.fm(FEATURES, loss="squared_error"),
        until=lsh.until(epochs=50),
        rule=lsh.SGD(50.0),
        discipline=lsh.Hogwild(),
        threads=2,
    )
    assert (result.outcome, result.reason) == ("crashed", "not_finite")


@pytest.mark.parametrize("rule", [lsh.SGD(0.1), lsh.Adagrad(0.05), lsh.Adam(0.01)], ids=str)
@pytest.mark.parametrize("l2", [0.0, 1e-3])
def test_a_resumed_run_is_the_uninterrupted_one(
    rows: SparseDataset, rule: lsh.Rule, l2: float, tmp_path: Path
) -> None:
    path = tmp_path / "run.safetensors"
    model = models.fm(FEATURES, 4, l2=l2)
    arguments = {"rule": rule, "batch_size": 16}
    whole = train(rows, model, until=lsh.until(updates=300), **arguments)
    half = train(rows, model, until=lsh.until(updates=177), checkpoint=path, **arguments)
    loaded, theta = lsh.load(path)
    assert loaded == model
    np.testing.assert_array_equal(theta, half.parameters)
    resumed = train(rows, model, until=lsh.until(updates=300), resume=path, **arguments)
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    with pytest.raises(ValueError, match=r"it is of another model .*use leashed.load"):
        train(rows, models.fm(FEATURES, 5), until=lsh.until(updates=300), resume=path, **arguments)


def test_what_it_begins_with() -> None:
    model = models.fm(3000, 10, sigma=0.2)
    parts = model.unflatten(model.init(7))
    assert not parts["weight"].any()
    assert not parts["bias"].any()
    assert parts["factors"].std() == pytest.approx(0.2, rel=0.02)
    np.testing.assert_array_equal(model.init(7), model.init(7))
    assert (model.init(7) != model.init(8)).any()
    assert model.init(0, "normal").std() == pytest.approx(0.01, rel=0.05)
    assert model.dimension == 3000 * 11 + 1
    assert pickle.loads(pickle.dumps(model)) == model
    with pytest.raises(ValueError, match="init must be one of normal, he, glorot, got 'zeros'"):
        model.init(0, "zeros")
    with pytest.raises(ValueError, match=r"parameters must have shape \(33001,\)"):
        model.unflatten(np.zeros(3, np.float32))


def test_predictions_are_probabilities(rows: SparseDataset) -> None:
    model = models.fm(FEATURES, loss="log_loss")
    theta = model.init(0, "normal") * 30
    p = model.predict(theta, rows)
    assert p.shape == (N, 1)
    loss, accuracy = model.evaluate(theta, rows)
    of_label = np.where(rows.y == 1, p[:, 0], 1 - p[:, 0])
    assert loss == pytest.approx(-np.log(of_label).mean(), rel=1e-4)
    assert accuracy == pytest.approx(((p[:, 0] > 0.5) == rows.y).mean(), abs=1e-3)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: models.fm(0), ValueError, "features must be at least 1, got 0"),
        (lambda: models.fm(3, 0), ValueError, "k must be at least 1, got 0"),
        (lambda: models.fm(3, 1.5), TypeError, "k must be"),  # type: ignore[arg-type]
        (lambda: models.fm(3, loss="softmax"), ValueError, "loss must be one of log_loss, hinge"),
        (lambda: models.fm(3, l2=-1.0), ValueError, "l2 must be at least 0"),
        (lambda: models.fm(3, sigma=0.0), ValueError, "sigma must be greater than 0"),
        (lambda: models.fm(3, name=3), TypeError, "name must be a str"),  # type: ignore[arg-type]
        (lambda: models.fm(2**31 - 1, 2**31 - 1), ValueError, "too large for any memory"),
        (lambda: _core.FactorisationMachine(3, 0, "log_loss"), ValueError, "at least 1 factor"),
        (lambda: _core.FactorisationMachine(0, 3, "log_loss"), ValueError, "at least 1 feature"),
        (lambda: _core.FactorisationMachine(3, 2**64 - 1, "log_loss"), ValueError, "too large"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_other_data_are_refused(rows: SparseDataset) -> None:
    dense = lsh.Dataset.from_arrays(np.ones((4, 3)), [0, 1, 0, 1])
    until = lsh.until(epochs=1)
    with pytest.raises(ValueError, match="fm takes sparse rows alone; make them with"):
        lsh.train(models.fm(3), dense, until=until)
    with pytest.raises(ValueError, match="fm takes sparse rows alone; make them with"):
        models.fm(3).evaluate(models.fm(3).init(), dense)
    with pytest.raises(TypeError, match="x must be a Dataset, got ndarray"):
        models.fm(3).predict(models.fm(3).init(), np.ones((4, 3)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="data has 120 features, but the model takes 4"):
        lsh.train(models.fm(4), rows, until=until)
    with pytest.raises(ValueError, match="data has labels, but the loss squared_error takes"):
        lsh.train(models.fm(FEATURES, loss="squared_error"), rows, until=until)


def test_targets_are_words() -> None:
    assert models.fm(9).loss == models.fm(9, target="click").loss == "log_loss"
    for made in (models.fm(9, target="number"), models.ffm([0, 1], target="number")):
        assert (made.loss, made.classes) == ("squared_error", 0)
    for wrong in (5, "classes"):
        with pytest.raises(
            ValueError, match=r'target of fm must be "click" or "number".*one output'
        ):
            models.fm(9, target=wrong)
    with pytest.raises(ValueError, match="loss is what target='number' says; give one of them"):
        models.fm(9, target="number", loss="hinge")
