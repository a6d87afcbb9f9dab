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


def test_the_package_itself_imports_no_scikit_learn() -> None:
    code = "import leashed, sys; assert not any(m.startswith('sklearn') for m in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
