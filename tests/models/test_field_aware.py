"""Field-aware factorisation machines against NumPy in double precision, pair by pair."""

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
from leashed.files import model_file

Array = NDArray[np.float64]

ISAS = _core.available_isas()


def parts(theta: Array, fields: NDArray[Any], k: int) -> tuple[Array, Array]:
    """Weights and factors [features, fields, k]."""
    records = theta[:-1].reshape(len(fields), -1)
    return records[:, 0], records[:, 1:].reshape(len(fields), -1, k)


def outputs(theta: Array, x: Array, fields: NDArray[Any], k: int) -> Array:
    """By Juan et al.'s equation 4, with a linear part."""
    w, v = parts(theta, fields, k)
    meetings = v[:, fields]  # of i and j: the factors of i for the field of j
    pairs = np.triu((meetings * meetings.transpose(1, 0, 2)).sum(axis=2), 1)
    return np.asarray(theta[-1] + x @ w + np.einsum("ni,ij,nj->n", x, pairs, x))


def slopes(theta: Array, x: Array, fields: NDArray[Any], k: int) -> Array:
    """Their derivatives with respect to theta, [n, d]."""
    v = parts(theta, fields, k)[1]
    by_factor = np.zeros((len(x), *v.shape))
    for i in range(len(fields)):
        for j in range(len(fields)):
            if i != j:
                by_factor[:, i, fields[j]] += (x[:, i] * x[:, j])[:, None] * v[j, fields[i]]
    columns = np.concatenate([x[:, :, None], by_factor.reshape(*x.shape, -1)], axis=2)
    return np.hstack([columns.reshape(len(x), -1), np.ones((len(x), 1))])


def rows_of(
    n: int, fields: NDArray[Any], loss: str, seed: int, ones: bool = False
) -> tuple[Array, SparseDataset]:
    """Columns in any order; some rows empty, some with a column twice, or of one field only."""
    rng = np.random.default_rng(seed)
    indptr, indices = [0], []
    for row in range(n):
        length = rng.integers(0, 2 * len(fields)) * (row % 7 > 0)
        of_one = np.flatnonzero(fields == fields[0])
        found = rng.choice(of_one if row % 5 == 1 else len(fields), length, replace=True)
        indices.extend(np.unique(found) if ones else found)
        indptr.append(len(indices))
    data = np.ones(len(indices)) if ones else rng.normal(size=len(indices))
    x = np.zeros((n, len(fields)))
    given = data.astype(np.float32)
    np.add.at(x, (np.repeat(np.arange(n), np.diff(indptr)), np.array(indices, np.int32)), given)
    values = loss == "squared_error"
    y = rng.normal(size=n).astype(np.float32) if values else rng.integers(0, 2, n, np.int32)
    arrays = np.array(indptr, np.int64), np.array(indices, np.int32), given
    return x, SparseDataset(*arrays, len(fields), y, 0 if values else 2)


def fields_of(count: int, features: int, seed: int) -> NDArray[np.uint16]:
    """Some of which may be of no column."""
    fields = np.random.default_rng(seed).integers(0, count, features).astype(np.uint16)
    fields[-1] = count - 1
    return fields


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("k", [1, 3, 4, 5, 8, 16, 23])
@settings(max_examples=examples(8), deadline=None)
@given(
    count=st.sampled_from((1, 2, 5, 12, 70)),
    features=st.integers(1, 25),
    n=st.integers(1, 70),
    seed=st.integers(0, 2**32 - 1),
    l2=st.sampled_from((0.0, 0.3)),
    ones=st.booleans(),
    loss=st.sampled_from(("log_loss", "squared_error")),
)
def test_loss_and_gradient_are_those_of_every_pair(
    isa: str, k: int, count: int, features: int, n: int, seed: int, l2: float, ones: bool, loss: str
) -> None:
    fields = fields_of(count, features, seed)
    x, data = rows_of(n, fields, loss, seed, ones)
    rng = np.random.default_rng(seed)
    source = _core.FieldAwareMachine(fields, k, loss, l2, isa)
    theta = rng.normal(scale=0.3, size=source.dimension).astype(np.float32)
    exact = theta.astype(np.float64)
    weights = rng.exponential(size=n).astype(np.float32)
    o = outputs(exact, x, fields, k)
    y = data.y.astype(np.float64)
    penalised = np.append(exact[:-1], 0.0)
    r = weights * residuals(loss, o[:, None], y)[:, 0] / n
    expected = r @ slopes(exact, x, fields, k) + l2 * penalised
    value = (weights * losses(loss, o[:, None], y)).mean()
    found, got = source.gradient(theta, data.rows, data.y, weights)
    scale = 1 + np.abs(expected).max() + np.abs(x).max() ** 2
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * scale)
    penalty = 0.5 * l2 * (penalised**2).sum()
    assert found == pytest.approx(value + penalty, rel=2e-5, abs=1e-5)
    assert source.evaluate(theta, data.rows, data.y, weights)[0] == pytest.approx(
        value, rel=2e-5, abs=1e-5
    )
    if loss == "squared_error":
        atol = 2e-5 * (1 + np.abs(o).max())
        np.testing.assert_allclose(source.predict(theta, data.rows)[:, 0], o, atol=atol)


@pytest.mark.parametrize("loss", ["log_loss", "hinge", "squared_error"])
def test_gradients_are_the_losses_slopes(loss: str) -> None:
    fields, k = np.array([2, 0, 0, 1, 2, 1], np.uint16), 3
    x, data = rows_of(30, fields, loss, 1)
    source = _core.FieldAwareMachine(fields, k, loss)
    theta = np.random.default_rng(2).normal(scale=0.4, size=source.dimension)
    y = data.y.astype(np.float64)

    def total(at: Array) -> float:
        return float(losses(loss, outputs(at, x, fields, k)[:, None], y).mean())

    step = 1e-6
    found = [
        (total(theta + step * e) - total(theta - step * e)) / (2 * step) for e in np.eye(len(theta))
    ]
    got = source.gradient(theta.astype(np.float32), data.rows, data.y)[1]
    np.testing.assert_allclose(got, found, atol=1e-4)


@pytest.mark.parametrize("name", ["SGD", "Adagrad"])
@pytest.mark.parametrize(("k", "batch_size"), [(4, 80), (3, 80), (8, 1)])
def test_fifty_steps_are_pytorchs(name: str, k: int, batch_size: int) -> None:
    """With a gradient that PyTorch finds by itself; of one row, the same fifty times, too."""
    torch = pytest.importorskip("torch")
    fields, lr = fields_of(6, 30, 3), 0.05
    x, data = rows_of(batch_size + 2, fields, "log_loss", 11)
    x, data = (
        x[2:],
        SparseDataset(  # the first has no column, the second of one field only
            data.indptr[2:] - data.indptr[2],
            data.indices[data.indptr[2] :],
            data.data[data.indptr[2] :],
            30,
            data.y[2:],
            2,
        ),
    )
    model = models.ffm(fields, k)
    theta = model.init(2)
    found = lsh.train(
        model,
        data,
        until=lsh.until(updates=50),
        discipline=lsh.Sequential(),
        rule=getattr(lsh, name)(lr),
        batch_size=batch_size,
        init=theta,
    )
    assert found.config["sparse_updates"]

    parameters = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
    optimizer = getattr(torch.optim, name)([parameters], lr=lr)
    rows, y = torch.tensor(x), torch.tensor(data.y, dtype=torch.float64)
    of_field = torch.tensor(fields.astype(np.int64))
    for _ in range(50):
        records = parameters[:-1].reshape(30, -1)
        meetings = records[:, 1:].reshape(30, -1, k)[:, of_field]
        pairs = torch.triu((meetings * meetings.transpose(0, 1)).sum(dim=2), 1)
        o = parameters[-1] + rows @ records[:, 0] + ((rows @ pairs) * rows).sum(dim=1)
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(o, y).backward()
        optimizer.step()
    np.testing.assert_allclose(found.parameters, parameters.detach().numpy(), atol=1e-4)


@pytest.mark.parametrize("make", [lambda f: models.fm(len(f)), models.ffm], ids=["fm", "ffm"])
@pytest.mark.parametrize("discipline", [lsh.Sequential(), lsh.Leashed()], ids=str)
@pytest.mark.parametrize("batch_size", [1, 4])
def test_what_meets_nothing_learns_no_factors(
    make: Any, discipline: lsh.Discipline, batch_size: int
) -> None:
    """Not even of rounding, which Adagrad would enlarge to whole steps. One value of two is 0."""
    rng = np.random.default_rng(0)
    model = make(np.arange(6) // 2)
    first = rng.integers(0, 3, 60)
    indices = np.stack([2 * first, 2 * first + 1], axis=1).ravel().astype(np.int32)
    data = np.where(np.arange(120) % 2, np.float32(0.3), np.float32(0))
    rows = SparseDataset(
        np.arange(0, 121, 2, dtype=np.int64), indices, data, 6, rng.integers(0, 2, 60, np.int32), 2
    )
    theta = model.init(0)
    result = lsh.train(
        model,
        rows,
        until=lsh.until(epochs=3),
        discipline=discipline,
        rule=lsh.Adagrad(0.1),
        threads=1,
        batch_size=batch_size,
        init=theta,
    )
    before, after = model.unflatten(theta), model.unflatten(result.parameters)
    np.testing.assert_array_equal(after["factors"], before["factors"])
    assert (after["weight"] != before["weight"]).any()


N, FEATURES, FIELDS = 2000, 60, 6


@pytest.fixture(scope="module")
def fields() -> NDArray[np.int64]:
    return np.arange(FEATURES) % FIELDS


@pytest.fixture(scope="module")
def rows() -> SparseDataset:
    """A column of each field; two classes, told apart by which columns of fields 0 and 1, and of 2
    and 3, meet.
    """
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, FEATURES // FIELDS, (N, FIELDS))
    indices = (chosen * FIELDS + np.arange(FIELDS)).astype(np.int32)
    planted = rng.normal(size=(FEATURES, FIELDS, 2))
    met = sum(
        (planted[indices[:, a], b] * planted[indices[:, b], a]).sum(axis=1)
        for a, b in ((0, 1), (2, 3))
    )
    indptr = np.arange(0, FIELDS * N + 1, FIELDS, dtype=np.int64)
    data = np.where(rng.random(indices.size) < 0.5, 1, 0.5).astype(np.float32)
    y = (met > np.median(met)).astype(np.int32)
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
@pytest.mark.parametrize("k", [4, 8, 10])
@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_updates_in_place_are_those_of_whole_vectors(
    rows: SparseDataset, fields: NDArray[np.int64], rule: lsh.Rule, k: int, batch_size: int
) -> None:
    model = models.ffm(fields, k)
    arguments = {
        "rule": rule,
        "until": lsh.until(updates=60),
        "batch_size": batch_size,
        "init": model.init(3),
    }
    in_place = train(rows, model, **arguments)
    whole = train(rows, model, **arguments, discipline=lsh.Leashed())
    assert in_place.config["sparse_updates"]
    assert not whole.config["sparse_updates"]
    np.testing.assert_allclose(in_place.parameters, whole.parameters, rtol=1e-4, atol=5e-5)


def test_every_discipline_learns(
    rows: SparseDataset, fields: NDArray[np.int64], discipline: lsh.Discipline
) -> None:
    result = train(
        rows,
        models.ffm(fields),
        until=lsh.until(epochs=60),
        discipline=discipline,
        threads=1 if isinstance(discipline, lsh.Sequential) else 2,
    )
    assert result.accuracy[-1] > 0.9
    in_place = isinstance(discipline, (lsh.Sequential, lsh.Locked, lsh.Hogwild))
    assert result.config["sparse_updates"] == in_place


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("rule", [lsh.SGD(0.1), lsh.Adagrad(0.1)], ids=lambda r: r.NATIVE)
def test_many_threads_hurt_nothing(
    rows: SparseDataset, fields: NDArray[np.int64], copy: bool, rule: lsh.Rule
) -> None:
    arguments = {"discipline": lsh.Hogwild(copy=copy), "rule": rule, "threads": 8}
    result = train(rows, models.ffm(fields), until=lsh.until(updates=20_000), **arguments)
    assert result.total_updates == 20_000
    assert result.accuracy[-1] > 0.85


def test_one_thread_gives_the_same_bits_under_every_discipline(
    rows: SparseDataset, fields: NDArray[np.int64]
) -> None:
    kinds = (lsh.Sequential(), lsh.Locked(), lsh.Hogwild(), lsh.Hogwild(copy=False))
    model = models.ffm(fields, 5, l2=1e-4)
    runs = [
        train(rows, model, discipline=kind, until=lsh.until(epochs=2), batch_size=3).parameters
        for kind in kinds
    ]
    for run in runs[1:]:
        np.testing.assert_array_equal(run, runs[0])


@pytest.mark.parametrize("rule", [lsh.SGD(0.1), lsh.Adagrad(0.05), lsh.Adam(0.01)], ids=str)
def test_a_resumed_run_is_the_uninterrupted_one(
    rows: SparseDataset, fields: NDArray[np.int64], rule: lsh.Rule, tmp_path: Path
) -> None:
    path = tmp_path / "run.safetensors"
    model = models.ffm(fields, 4)
    arguments = {"rule": rule, "batch_size": 16}
    whole = train(rows, model, until=lsh.until(updates=300), **arguments)
    half = train(rows, model, until=lsh.until(updates=177), checkpoint=path, **arguments)
    loaded, theta = lsh.load(path)
    assert loaded == model
    np.testing.assert_array_equal(theta, half.parameters)
    resumed = train(rows, model, until=lsh.until(updates=300), resume=path, **arguments)
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    other = models.ffm(fields[::-1].copy(), 4)
    with pytest.raises(ValueError, match=r"it is of another model .*use leashed.load"):
        train(rows, other, until=lsh.until(updates=300), resume=path, **arguments)


def test_one_of_so_many_columns_that_no_file_can_describe_it_is_refused_before_training(
    rows: SparseDataset, fields: NDArray[np.int64], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_file, "_MOST_DESCRIBED", 2 * rows.features)
    model, path = models.ffm(fields, 4), tmp_path / "file"
    with pytest.raises(ValueError, match="model ffm cannot be in a file: to describe it"):
        lsh.save(path, model, model.init(1))
    with pytest.raises(ValueError, match="hash its columns to fewer"):
        train(rows, model, until=lsh.until(seconds=60), checkpoint=path)
    assert not path.exists()


def test_what_it_is() -> None:
    model = models.ffm([0, 3, 1], 5, sigma=0.2)
    assert model.dimension == 3 * (1 + 4 * 5) + 1
    found = model.unflatten(model.init(7))
    assert found["factors"].shape == (3, 4, 5)
    assert not found["weight"].any()
    assert found["factors"].all()
    assert pickle.loads(pickle.dumps(model)) == model
    assert model != models.ffm([0, 3, 2], 5, sigma=0.2)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: models.ffm([]), ValueError, r"fields must be one for each column, .* got \(0,\)"),
        (lambda: models.ffm([[0, 1]]), ValueError, "fields must be one for each column"),
        (lambda: models.ffm([0.5]), TypeError, "fields must be whole numbers, got float64"),
        (lambda: models.ffm(["a"]), TypeError, "fields must hold real numbers"),  # type: ignore[arg-type]
        (lambda: models.ffm([0, -1]), ValueError, "fields must be from 0 to 65535, got -1"),
        (lambda: models.ffm([65536]), ValueError, "fields must be from 0 to 65535, got 65536"),
        (lambda: models.ffm([0], 0), ValueError, "k must be at least 1, got 0"),
        (lambda: models.ffm([0], loss="softmax"), ValueError, "loss must be one of log_loss"),
        (lambda: models.ffm([65535] * 70_000, 2**31 - 1), ValueError, "too large for any memory"),
        (
            lambda: models.FactorisationMachine(3, fields=(0, 1)),
            ValueError,
            r"fields must be one for each column, shape \(3,\), got \(2,\)",
        ),
    ],
)
def test_what_cannot_be_is_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
