"""scikit-learn's own checks of each estimator, and what they do not ask."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("sklearn", reason="scikit-learn (extra test) is not installed")

from sklearn.utils.estimator_checks import parametrize_with_checks

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
