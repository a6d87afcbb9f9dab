"""Training on sparse rows: every discipline, in place where it can be, and what is refused."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import models
from leashed.datasets import SparseDataset, read_svmlight

N, FEATURES = 2000, 300


@pytest.fixture(scope="module")
def rows() -> SparseDataset:
    rng = np.random.default_rng(0)
    planted = rng.normal(size=FEATURES)
    indices = np.minimum(rng.zipf(1.3, (N, 8)) - 1, FEATURES - 1).astype(np.int32)
    y = (planted[indices].sum(axis=1) > 0).astype(np.int32)
    indptr = np.arange(0, 8 * N + 1, 8, dtype=np.int64)
    return SparseDataset(indptr, indices.ravel(), np.ones(8 * N, np.float32), FEATURES, y, 2)


def dense(rows: SparseDataset) -> np.ndarray:
    x = np.zeros((len(rows), rows.features))
    np.add.at(x, (np.repeat(np.arange(len(rows)), np.diff(rows.indptr)), rows.indices), rows.data)
    return x


@pytest.fixture(scope="module")
def many_rows() -> SparseDataset:
    """So many that a pass over them takes some hundredths of a second."""
    n, entries = 400_000, 16
    indices = np.random.default_rng(0).integers(0, FEATURES, n * entries, dtype=np.int32)
    indptr = np.arange(0, entries * n + 1, entries, dtype=np.int64)
    data = np.ones(n * entries, np.float32)
    return SparseDataset(indptr, indices, data, FEATURES, (indices[::entries] % 2), 2)


@pytest.mark.parametrize("call", ["evaluate", "predict"])
@pytest.mark.parametrize("sparse", [True, False])
def test_signals_are_handled_while_many_rows_are_judged(
    many_rows: SparseDataset, call: str, sparse: bool
) -> None:
    model = models.logistic_regression(FEATURES)
    data = many_rows
    if not sparse:
        model = models.mlp(64, [64], 2)
        data = lsh.Dataset.from_arrays(np.ones((100_000, 64)), np.zeros(100_000, np.int32), 2)
    theta = model.init(0)
    calls: list[int] = []
    handler = signal.signal(signal.SIGALRM, lambda *_: calls.append(0))
    try:
        for _ in range(100):  # where this thread stands still while the others judge
            calls.clear()
            begin = time.process_time()
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            if call == "evaluate":
                model.evaluate(theta, data)
            else:
                model.predict(theta, data if sparse else data.x)
            signal.setitimer(signal.ITIMER_REAL, 0)
            # Handled afterwards, several are one. What a fast machine has done in no time needs no
            # look.
            if len(calls) > 1 or time.process_time() - begin < 0.04:
                break
        else:
            pytest.fail("no signal was handled in time")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


def test_python_goes_on_while_a_sparse_gradient_is_computed(many_rows: SparseDataset) -> None:
    model = models.logistic_regression(FEATURES)
    theta = model.init(0)
    ended = threading.Event()
    ticks: list[float] = []

    def tick() -> None:
        while not ended.wait(0.0005):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    within = False
    try:
        while not within:  # who ticks may stand still for a whole gradient
            begin = time.monotonic()
            model.sparse.gradient(theta, many_rows.rows, many_rows.y)
            end = time.monotonic()
            a_bit = (end - begin) / 10
            within = any(begin + a_bit < t < end - a_bit for t in ticks)
    finally:
        ended.set()
        thread.join()


def test_every_discipline_learns(rows: SparseDataset, discipline: lsh.Discipline) -> None:
    result = lsh.train(
        models.logistic_regression(FEATURES),
        rows,
        until=lsh.until(epochs=20),
        discipline=discipline,
        rule=lsh.SGD(0.5),
        batch_size=8,
        threads=1 if isinstance(discipline, lsh.Sequential) else 2,
        validation=rows,
    )
    assert result.accuracy[-1] > 0.8
    assert result.validation_accuracy[-1] == result.accuracy[-1]
    in_place = isinstance(discipline, (lsh.Sequential, lsh.Locked, lsh.Hogwild))
    assert result.config["sparse_updates"] == in_place
    assert result.examples == pytest.approx(20 * N, abs=2 * 8)


@pytest.mark.parametrize("rule", [lsh.SGD(0.3), lsh.Adagrad(0.1)], ids=lambda r: r.NATIVE)
@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
def test_updates_in_place_are_those_of_whole_vectors(
    rows: SparseDataset, rule: lsh.Rule, loss: str
) -> None:
    model = models.Model((FEATURES, 1, 1), (models.Dense(1),), loss=loss)
    theta = np.random.default_rng(3).normal(size=FEATURES + 1).astype(np.float32)

    def train(discipline: lsh.Discipline) -> lsh.TrainResult:
        return lsh.train(
            model,
            rows,
            until=lsh.until(updates=40),
            discipline=discipline,
            rule=rule,
            threads=1,
            batch_size=100,
            init=theta,
        )

    in_place, whole = train(lsh.Sequential()), train(lsh.Leashed())
    assert in_place.config["sparse_updates"]
    assert not whole.config["sparse_updates"]
    np.testing.assert_allclose(in_place.parameters, whole.parameters, atol=2e-5)


def test_a_full_batch_is_gradient_descent(rows: SparseDataset) -> None:
    x, y = dense(rows), rows.y.astype(np.float64)
    w, b = np.zeros(FEATURES), 0.0
    for _ in range(30):
        r = (1 / (1 + np.exp(-(x @ w + b))) - y) / N
        w, b = w - 0.5 * x.T @ r, b - 0.5 * r.sum()
    result = lsh.train(
        models.logistic_regression(FEATURES),
        rows,
        until=lsh.until(epochs=30),
        discipline=lsh.Sequential(),
        rule=lsh.SGD(0.5),
        batch_size=N,
        init=np.zeros(FEATURES + 1),
    )
    np.testing.assert_allclose(result.parameters, [*w, b], atol=1e-5)


@pytest.mark.parametrize("decay", [0.5, 0.999, 1.0, 1.5, 1.999])
def test_a_strong_penalty_is_that_of_dense_data(rows: SparseDataset, decay: float) -> None:
    """Each step multiplies the weights by 1 - decay: from 1 on nothing that has a logarithm."""
    x, y = dense(rows), rows.y.astype(np.float64)
    w, b = np.full(FEATURES, 0.1), 0.0
    for _ in range(20):
        r = (1 / (1 + np.exp(-(x @ w + b))) - y) / N
        w, b = w - 0.5 * (x.T @ r + decay / 0.5 * w), b - 0.5 * r.sum()

    def train(discipline: lsh.Discipline, batch_size: int) -> lsh.TrainResult:
        return lsh.train(
            models.logistic_regression(FEATURES, l2=decay / 0.5),
            rows,
            until=lsh.until(epochs=20),
            discipline=discipline,
            rule=lsh.SGD(0.5),
            batch_size=batch_size,
            threads=1,
            init=np.append(np.full(FEATURES, 0.1), 0.0),
        )

    for discipline in (lsh.Sequential(), lsh.Locked(), lsh.Hogwild()):
        full = train(discipline, N)
        np.testing.assert_allclose(full.parameters, [*w, b], rtol=1e-3, atol=2e-5)
    whole, sparse = train(lsh.Leashed(), 8), train(lsh.Sequential(), 8)
    np.testing.assert_allclose(sparse.parameters, whole.parameters, atol=1e-6)


def test_rows_without_any_column_still_teach_the_intercept(discipline: lsh.Discipline) -> None:
    y = (np.arange(4000) % 4 == 0).astype(np.int32)
    empty = SparseDataset(
        np.zeros(4001, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 3, y, 2
    )
    result = lsh.train(
        models.logistic_regression(3),
        empty,
        until=lsh.until(epochs=10),
        discipline=discipline,
        rule=lsh.SGD(0.1),
        batch_size=8,
        threads=1 if isinstance(discipline, lsh.Sequential) else 2,
    )
    assert result.loss[-1] == pytest.approx(0.5623, abs=0.01)


def test_the_penalty_gives_the_penalised_optimum(rows: SparseDataset) -> None:
    x, y = dense(rows), rows.y.astype(np.float64)
    w, b = np.zeros(FEATURES), 0.0
    for _ in range(1200):
        r = (1 / (1 + np.exp(-(x @ w + b))) - y) / N
        w, b = w - 0.5 * (x.T @ r + 0.01 * w), b - 0.5 * r.sum()
    result = lsh.train(
        models.logistic_regression(FEATURES, l2=0.01),
        rows,
        until=lsh.until(epochs=1200),
        discipline=lsh.Sequential(),
        rule=lsh.SGD(0.5),
        batch_size=N,
        init=np.zeros(FEATURES + 1),
    )
    assert result.config["sparse_updates"]
    np.testing.assert_allclose(result.parameters, [*w, b], atol=0.02)


@pytest.mark.parametrize("copy", [True, False])
def test_many_threads_hurt_nothing(rows: SparseDataset, copy: bool) -> None:
    for seed in range(5):
        result = lsh.train(
            models.logistic_regression(FEATURES),
            rows,
            until=lsh.until(updates=20_000),
            discipline=lsh.Hogwild(copy=copy),
            rule=lsh.SGD(0.2),
            threads=16,
            batch_size=2,
            seed=seed,
        )
        assert result.total_updates == 20_000
        assert result.accuracy[-1] > 0.8


def test_one_thread_gives_the_same_bits_again(rows: SparseDataset) -> None:
    runs = [
        lsh.train(
            models.linear_svm(FEATURES, l2=1e-4),
            rows,
            until=lsh.until(epochs=3),
            discipline=discipline,
            threads=1,
            batch_size=3,
        ).parameters
        for discipline in (lsh.Sequential(), lsh.Locked(), lsh.Hogwild(), lsh.Hogwild(copy=False))
    ]
    for run in runs[1:]:
        np.testing.assert_array_equal(run, runs[0])


@pytest.mark.parametrize(
    "options",
    [
        {"rule": lsh.Adam(0.01)},
        {"rule": lsh.SGD(0.1, clip_norm=1.0)},
        {"rule": lsh.SGD(0.1, weight_decay=0.1)},
        {"staleness": lsh.staleness.inverse()},
    ],
    ids=str,
)
def test_what_concerns_every_parameter_is_done_to_whole_vectors(
    rows: SparseDataset, options: dict[str, object]
) -> None:
    result = lsh.train(
        models.logistic_regression(FEATURES),
        rows,
        until=lsh.until(updates=300),
        discipline=lsh.Hogwild(),
        threads=2,
        **options,  # type: ignore[arg-type]
    )
    assert not result.config["sparse_updates"]
    assert result.loss[-1] < result.loss[0]


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
def test_a_step_too_long_is_found(rows: SparseDataset) -> None:
    regression = SparseDataset(
        rows.indptr, rows.indices, rows.data, FEATURES, rows.y.astype(np.float32), 0
    )
    result = lsh.train(
        models.linear_regression(FEATURES),
        regression,
        until=lsh.until(epochs=200),
        discipline=lsh.Hogwild(),
        rule=lsh.SGD(100.0),
        threads=2,
    )
    assert result.outcome == "crashed"
    assert result.reason == "not_finite"


@pytest.mark.parametrize("discipline", ["sequential", "leashed", "hogwild", "synchronous"])
def test_networks_learn_from_sparse_rows_and_say_the_same_of_dense_ones(
    rows: SparseDataset, discipline: str
) -> None:
    model = models.mlp(FEATURES, [17, 5], 2)
    threads = 1 if discipline == "sequential" else 2
    result = lsh.train(
        model,
        rows,
        until=lsh.until(epochs=15),
        discipline=discipline,
        rule=lsh.Adam(0.01),
        threads=threads,
        seed=1,
    )
    assert max(result.accuracy) > 0.95  # a thread that was held up may do harm at the end
    assert not result.config["sparse_updates"]
    theta = result.parameters
    same = lsh.Dataset.from_arrays(dense(rows), rows.y)
    np.testing.assert_allclose(model.predict(theta, rows), model.predict(theta, same), atol=1e-5)
    found, wanted = model.evaluate(theta, rows), model.evaluate(theta, same)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_threads_that_meet_at_a_parameter_without_moments_do_not_throw_it_far(
    rows: SparseDataset,
) -> None:
    """The first gradients of a rare column come while another thread is at its parameters: with m of
    the one and v of the other they became tens of thousands, in 1 run of 25.
    """
    for seed in range(150):
        result = lsh.train(
            models.mlp(FEATURES, [17, 5], 2), rows, until=lsh.until(epochs=2), discipline="hogwild",
            rule=lsh.Adam(0.01), threads=2, batch_size=8, seed=seed,
        )  # fmt: skip
        assert np.abs(result.parameters).max() < 4  # 1.4, and 2.6 at most


def test_a_network_on_sparse_rows_goes_on_to_the_same_bits(
    rows: SparseDataset, tmp_path: Path
) -> None:
    model = models.mlp(FEATURES, [9], 2)
    path = tmp_path / "run"

    def train(epochs: int, **options: Any) -> lsh.TrainResult:
        return lsh.train(
            model, rows, until=lsh.until(epochs=epochs), rule=lsh.Adam(0.01), threads=1, **options
        )

    whole = train(4)
    train(2, checkpoint=lsh.Checkpoint(path))
    np.testing.assert_array_equal(train(4, resume=path).parameters, whole.parameters)


def test_models_that_take_no_sparse_rows_are_named(rows: SparseDataset) -> None:
    for layers in (
        (models.ReLU(), models.Dense(2)),
        (models.Dense(3), models.Dense(2), models.Tanh()),
        (models.Conv2d(1, 1), models.Dense(2)),
    ):
        with pytest.raises(ValueError, match="which only models of dense layers do"):
            lsh.train(models.Model((FEATURES, 1, 1), layers), rows, until=lsh.until(epochs=1))
    with pytest.raises(ValueError, match="data has 300 features, but the model takes 4"):
        lsh.train(models.logistic_regression(4), rows, until=lsh.until(epochs=1))
    with pytest.raises(TypeError, match="validation must be sparse where data is"):
        lsh.train(
            models.logistic_regression(FEATURES),
            rows,
            until=lsh.until(epochs=1),
            validation=lsh.Dataset.from_arrays(np.ones((2, FEATURES)), [0, 1]),
        )


def test_mushrooms_are_told_apart() -> None:
    beside = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get("LEASHED_DATA", beside)) / "mushroom"
    if not folder.is_dir():
        pytest.skip(f"MUSHROOM IS ABSENT: {folder} is not a folder, so nothing was tested on it")
    train = read_svmlight(folder / "agaricus_train.txt", zero_based=True)
    test = read_svmlight(folder / "agaricus_test.txt", train.features, zero_based=True)
    result = lsh.train(
        models.logistic_regression(train.features),
        train,
        until=lsh.until(epochs=10),
        discipline=lsh.Hogwild(),
        rule=lsh.SGD(0.5),
        threads=2,
        batch_size=8,
        validation=test,
    )
    assert result.validation_accuracy[-1] > 0.98


def test_a_rate_without_bound_keeps_runs_in_place_where_there_is_no_penalty(
    rows: SparseDataset,
) -> None:
    growing = lsh.schedules.step(0.01, every=1000, factor=1.01)
    for l2, in_place in ((0.0, True), (1e-4, False)):
        result = lsh.train(
            models.logistic_regression(FEATURES, l2=l2),
            rows,
            discipline=lsh.Sequential(),
            threads=1,
            rule=lsh.SGD(growing),
            batch_size=10,
            until=lsh.until(epochs=1),
        )
        assert result.config["sparse_updates"] is in_place
