"""scikit-learn's own checks of each estimator, and what they do not ask."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn (extra test) is not installed")

from sklearn.utils.estimator_checks import parametrize_with_checks

import leashed as lsh
from leashed.sklearn import MLPClassifier, MLPRegressor, SGDClassifier, SGDRegressor

ESTIMATORS = [
    SGDClassifier(),
    SGDClassifier(fit_intercept=False),
    SGDClassifier(loss="log_loss"),
    SGDRegressor(),
    MLPClassifier(),
    MLPRegressor(),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def blobs(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    return rng.normal(size=(n, 5)) + 3 * np.eye(3, 5)[y], np.array(["a", "b", "c"])[y]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("make", [SGDClassifier, MLPClassifier])
def test_classifiers_learn_with_threads(make: Any, threads: int) -> None:
    x, y = blobs()
    model = make(threads=threads, random_state=0).fit(x, y)
    assert model.score(x, y) > 0.9


def test_sparse_and_dense_features_give_nearly_the_same() -> None:
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    x, y = blobs()
    x = np.where(np.abs(x) < 0.5, 0, x)
    dense = SGDClassifier(loss="log_loss", random_state=0).fit(x, y)
    rows = SGDClassifier(loss="log_loss", random_state=0).fit(sparse.csr_array(x), y)
    assert np.mean(dense.predict(x) == rows.predict(sparse.csr_array(x))) > 0.97
    np.testing.assert_allclose(rows.predict_proba(x).sum(axis=1), 1)


def test_disciplines_and_rules_are_taken() -> None:
    x, y = blobs()
    options: dict[str, Any] = {"threads": 2, "discipline": lsh.Leashed(), "rule": lsh.Adam(0.01)}
    for model in (SGDClassifier(**options), MLPClassifier(**options)):
        assert model.fit(x, y).score(x, y) > 0.9
    assert SGDClassifier(**options).get_params()["rule"] == lsh.Adam(0.01)


SPARSE = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])


def rows(x: np.ndarray, sparse: bool) -> Any:
    if not sparse:
        return x
    return pytest.importorskip("scipy.sparse", reason="SciPy is not installed").csr_array(x)


@SPARSE
@pytest.mark.parametrize("rule", [None, lsh.Adagrad(0.3), lsh.Adam(0.01)], ids=str)
@pytest.mark.parametrize(
    "discipline", [lsh.Sequential(), lsh.Locked(), lsh.Hogwild()], ids=lambda kind: kind.label
)
def test_without_an_intercept_it_is_0_and_the_rest_is_fitted(
    discipline: lsh.Discipline, rule: lsh.Rule | None, sparse: bool
) -> None:
    x, y = blobs()
    x += 1  # an intercept would be of use
    threads = 1 if discipline == lsh.Sequential() else 2
    options: dict[str, Any] = {
        "threads": threads,
        "discipline": discipline,
        "rule": rule,
        "random_state": 0,
    }
    for labels in (y, y == "a"):
        model = SGDClassifier(fit_intercept=False, **options).fit(rows(x, sparse), labels)
        assert not model.intercept_.any()
        assert model.coef_.any(axis=1).all()
        # Under Hogwild so few parameters may all be as they were when a thread was interrupted.
        assert discipline == lsh.Hogwild() or model.score(rows(x, sparse), labels) > 0.8
        assert SGDClassifier(**options).fit(rows(x, sparse), labels).intercept_.all()


@SPARSE
def test_without_an_intercept_least_squares_goes_through_the_origin(sparse: bool) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(500, 4)) + 1
    y = x @ [1.0, -2.0, 0.5, 3.0] + 2 + 0.1 * rng.normal(size=500)
    model = SGDRegressor(
        penalty=None,
        fit_intercept=False,
        lr=lsh.schedules.step(0.02, every=2000, factor=0.5),
        batch_size=25,
        max_iter=800,
        tol=None,
        random_state=0,
    ).fit(rows(x, sparse), y)
    expected = np.linalg.lstsq(x, y, rcond=None)[0]
    np.testing.assert_allclose(model.coef_, expected, atol=0.05)
    np.testing.assert_array_equal(model.intercept_, [0])


@SPARSE
@pytest.mark.parametrize(
    "rule",
    [lsh.SGD(lsh.schedules.cosine(0.05, total=800)), lsh.Adagrad(0.1), lsh.Adam(0.01)],
    ids=str,
)
def test_evaluations_between_epochs_change_nothing(rule: lsh.Rule, sparse: bool) -> None:
    x, y = blobs()
    options: dict[str, Any] = {"rule": rule, "max_iter": 23, "random_state": 0}
    once = SGDClassifier(tol=None, **options).fit(rows(x, sparse), y)
    often = SGDClassifier(tol=0.0, n_iter_no_change=5, **options).fit(rows(x, sparse), y)
    assert once.n_iter_ == often.n_iter_ == 23
    np.testing.assert_array_equal(once.parameters_, often.parameters_)


@SPARSE
@pytest.mark.parametrize("make", [SGDClassifier, SGDRegressor, MLPClassifier, MLPRegressor])
def test_a_warm_start_goes_on_where_the_last_fit_ended(make: Any, sparse: bool) -> None:
    if sparse and make in (MLPClassifier, MLPRegressor):
        pytest.skip("perceptrons take no sparse features")
    x, labels = blobs()
    y = labels if make in (SGDClassifier, MLPClassifier) else x[:, 0]
    options: dict[str, Any] = {"max_iter": 1, "tol": None, "random_state": 0}
    cold = make(**options)
    warm = make(warm_start=True, **options)
    first = cold.fit(rows(x, sparse), y).loss_
    losses = [warm.fit(rows(x, sparse), y).loss_ for _ in range(15)]
    assert losses[0] == first
    assert cold.fit(rows(x, sparse), y).loss_ == first
    assert losses[-1] < 0.9 * first
    # As partial_fit does, which differs in how many epochs there are.
    classes = [np.unique(y)] if make in (SGDClassifier, MLPClassifier) else []
    partial = make(**options).partial_fit(rows(x, sparse), y, *classes)
    for _ in range(14):
        partial.partial_fit(rows(x, sparse), y)
    np.testing.assert_array_equal(partial.parameters_, warm.parameters_)


def test_a_warm_start_on_something_else_is_refused() -> None:
    x, y = blobs()
    for make in (SGDClassifier, MLPClassifier):
        model = make(warm_start=True, max_iter=1, tol=None, random_state=0).fit(x, y)
        before = model.parameters_.copy()
        with pytest.raises(ValueError, match="y must have the classes of the last fit"):
            model.fit(x, y == "a")
        with pytest.raises(ValueError, match="X has 4 features"):
            model.fit(x[:, :4], y)
        np.testing.assert_array_equal(model.parameters_, before)
        model.fit(x, y)
    with pytest.raises(ValueError, match="go on with the same layers"):
        model.set_params(hidden_layer_sizes=(7,)).fit(x, y)


def test_an_intercept_that_is_no_longer_fitted_is_dropped() -> None:
    x, y = blobs()
    model = SGDClassifier(warm_start=True, random_state=0).fit(x, y)
    assert model.intercept_.all()
    assert not model.set_params(fit_intercept=False).fit(x, y).intercept_.any()


def test_only_log_loss_has_probabilities() -> None:
    assert not hasattr(SGDClassifier(), "predict_proba")
    assert hasattr(SGDClassifier(loss="log_loss"), "predict_proba")


def test_parameters_that_are_wrong_are_named() -> None:
    x, y = blobs()
    for options, message in (
        ({"loss": "absolute"}, "loss must be 'hinge' or 'log_loss'"),
        ({"penalty": "l3"}, "penalty must be 'l2' or None"),
        ({"alpha": -1.0}, "alpha must be at least 0"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"lr": 0.0}, "lr must be greater than 0"),
    ):
        with pytest.raises(ValueError, match=message):
            SGDClassifier(**options).fit(x, y)
    for name in ("fit_intercept", "warm_start"):
        with pytest.raises(TypeError, match=f"{name} must be True or False, got 1"):
            SGDClassifier(**{name: 1}).fit(x, y)


def test_the_package_itself_imports_no_scikit_learn() -> None:
    code = "import leashed, sys; assert not any(m.startswith('sklearn') for m in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
