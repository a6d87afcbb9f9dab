"""scikit-learn's own checks of each estimator, and what they do not ask."""

from __future__ import annotations

import contextlib
import copy
import pickle
import re
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn (extra test) is not installed")

from sklearn import datasets, linear_model, neural_network
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from warned import once

import leashed as lsh
from leashed.sklearn import MLPClassifier, MLPRegressor, SGDClassifier, SGDRegressor

ESTIMATORS = [
    SGDClassifier(),
    SGDClassifier(fit_intercept=False),
    SGDClassifier(loss="log_loss"),
    SGDClassifier(loss="modified_huber", learning_rate="optimal", n_jobs=1),
    SGDRegressor(),
    SGDRegressor(loss="huber", epsilon=1.35, learning_rate="adaptive"),
    MLPClassifier(),
    MLPRegressor(),
]


# What no solver can have that draws the examples' order: rows that are weighted 0 or twice come at
# other places of the stream than rows that are left out or repeated. As scikit-learn's own SGD.
NOT_EXACT = dict.fromkeys(
    (
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
    ),
    "weights and repetitions are equivalent in expectation, not example by example",
)


# A hyperplane through the origin has as many examples on the one side as on the other, whatever they
# weigh.
NO_INTERCEPT = {"check_class_weight_classifiers": "without an intercept no class wins everywhere"}


def expected_failures(estimator: Any) -> dict[str, str]:
    return NOT_EXACT if getattr(estimator, "fit_intercept", True) else NOT_EXACT | NO_INTERCEPT


# Where one class weighs ten million times what others do, a step of constant size ends where the
# last rows have it: of 30 seeds 3 to 6 fail, whatever draws the rows' order. One of three has to pass.
BY_LUCK = ("check_class_weight_classifiers",)


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_scikit_learns_checks(estimator: Any, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    its = sys.modules["sklearn.utils.estimator_checks"]
    set_seed = its.set_random_state
    with warnings.catch_warnings():  # the checks give few epochs
        warnings.simplefilter("ignore", ConvergenceWarning)
        for seed in (1, 2) if check.func.__name__ in BY_LUCK else ():
            monkeypatch.setattr(its, "set_random_state", lambda e, s=seed: set_seed(e, s))
            with contextlib.suppress(AssertionError):
                check(estimator)
                return
        monkeypatch.setattr(its, "set_random_state", set_seed)
        check(estimator)


def blobs(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    return rng.normal(size=(n, 5)) + 3 * np.eye(3, 5)[y], np.array(["a", "b", "c"])[y]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("make", [SGDClassifier, MLPClassifier])
def test_classifiers_learn_with_threads(make: Any, threads: int) -> None:
    x, y = blobs()
    model = make(threads=threads, tol=1e-3, random_state=0).fit(x, y)
    assert model.score(x, y) > 0.9


def test_sparse_and_dense_features_give_nearly_the_same() -> None:
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    x, y = blobs()
    x = np.where(np.abs(x) < 0.5, 0, x)
    dense = SGDClassifier(loss="log_loss", lr=0.1, random_state=0).fit(x, y)
    rows = SGDClassifier(loss="log_loss", lr=0.1, random_state=0).fit(sparse.csr_array(x), y)
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
    plain = SGDClassifier(tol=None, **options).fit(rows(x, sparse), y)
    with once(
        "max_iter=23 epochs were made before the fit converged; raise max_iter or tol",
        category=ConvergenceWarning,
    ):
        often = SGDClassifier(tol=0.0, n_iter_no_change=23, **options).fit(rows(x, sparse), y)
    assert plain.n_iter_ == often.n_iter_ == 23
    np.testing.assert_array_equal(plain.parameters_, often.parameters_)


@SPARSE
@pytest.mark.parametrize("make", [SGDClassifier, SGDRegressor, MLPClassifier, MLPRegressor])
def test_a_warm_start_goes_on_where_the_last_fit_ended(make: Any, sparse: bool) -> None:
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
    # As many parameters in other layers are no better.
    model = MLPClassifier((2, 3), warm_start=True, max_iter=1, tol=None).fit(x[:, :3], y)
    with pytest.raises(ValueError, match="go on with the same layers"):
        model.set_params(hidden_layer_sizes=(3, 2)).fit(x[:, :3], y)


def test_an_intercept_that_is_no_longer_fitted_is_dropped() -> None:
    x, y = blobs()
    model = SGDClassifier(warm_start=True, random_state=0).fit(x, y)
    assert model.intercept_.all()
    assert not model.set_params(fit_intercept=False).fit(x, y).intercept_.any()


@SPARSE
@pytest.mark.parametrize("rule", [lsh.Momentum(0.05), lsh.Adam(0.05)], ids=str)
def test_an_intercept_that_is_dropped_has_no_momentum(rule: lsh.Rule, sparse: bool) -> None:
    x, y = blobs()
    model = SGDClassifier(rule=rule, random_state=0).partial_fit(rows(x, sparse), y, np.unique(y))
    assert model.intercept_.all()
    model.set_params(fit_intercept=False).partial_fit(rows(x, sparse), y)
    assert not model.intercept_.any()


RULES = pytest.mark.parametrize(
    "rule",
    [lsh.SGD(lsh.schedules.cosine(0.05, total=300)), lsh.Adagrad(0.1), lsh.Adam(0.01)],
    ids=["schedule", "accumulator", "bias correction"],
)


@SPARSE
@RULES
def test_calls_of_partial_fit_are_one_fit(rule: lsh.Rule, sparse: bool) -> None:
    x, y = blobs()
    options: dict[str, Any] = {
        "rule": rule,
        "penalty": None if sparse else "l2",
        "tol": None,
        "random_state": 0,
    }
    whole = SGDClassifier(max_iter=7, **options).fit(rows(x, sparse), y)
    parts = SGDClassifier(**options)
    for _ in range(7):
        parts.partial_fit(rows(x, sparse), y, np.unique(y))
    warm = SGDClassifier(max_iter=3, warm_start=True, **options).fit(rows(x, sparse), y)
    warm.set_params(max_iter=4).fit(rows(x, sparse), y)
    copied = pickle.loads(
        pickle.dumps(SGDClassifier(max_iter=3, **options).fit(rows(x, sparse), y))
    )
    copied.set_params(max_iter=4, warm_start=True).fit(rows(x, sparse), y)
    for other in (parts, warm, copied):
        np.testing.assert_array_equal(other.parameters_, whole.parameters_)
        assert other.t_ == whole.t_ == 7 * 400 // 16
        np.testing.assert_allclose(other.loss_curve_, whole.loss_curve_)


def test_lazy_decay_on_sparse_features_goes_on_but_for_when_it_comes() -> None:
    x, y = blobs()
    options: dict[str, Any] = {"loss": "log_loss", "tol": None, "random_state": 0}
    whole = SGDClassifier(max_iter=5, **options).fit(rows(x, True), y)
    parts = SGDClassifier(**options)
    for _ in range(5):
        parts.partial_fit(rows(x, True), y, np.unique(y))
    np.testing.assert_allclose(parts.parameters_, whole.parameters_, rtol=1e-3, atol=1e-4)


@SPARSE
def test_partial_fit_on_other_rows_goes_on(sparse: bool) -> None:
    x, y = blobs()
    model = SGDClassifier(rule=lsh.Adam(0.01), random_state=0)
    updates = 0
    for part in np.array_split(np.arange(len(y)), [40, 300]):
        model.partial_fit(rows(x[part], sparse), y[part], np.unique(y))
        assert updates < model.t_ <= updates + len(part) // 16 + 1
        updates = model.t_
    assert model.score(rows(x, sparse), y) > 0.8


def test_another_rule_begins_with_a_state_of_its_own() -> None:
    x, y = blobs()
    model = SGDClassifier(rule=lsh.Adam(0.01), random_state=0)
    model.partial_fit(x, y, np.unique(y))
    assert model.t_ == 25
    before = model.parameters_.copy()
    model.set_params(rule=lsh.Adagrad(1e-6)).partial_fit(x, y)
    assert model.t_ == 25
    np.testing.assert_allclose(model.parameters_, before, atol=1e-3)


def ends_after(scores: list[float], tol: float, patience: int) -> int | None:
    """The epoch after which so many in a row have brought no improvement."""
    best, without = -np.inf, 0
    for epoch, score in enumerate(scores, 1):
        without = without + 1 if score < best + tol else 0
        best = max(best, score)
        if without == patience:
            return epoch
    return None


def test_a_fit_ends_as_scikit_learns_does() -> None:
    """The same losses, the same rule: no improvement by tol for so many epochs in a row."""
    x, y = blobs()
    # Of one class against the rest there are three, and tol is for each.
    for make, tol, more in ((SGDClassifier, 3e-2, 0), (MLPClassifier, 1e-2, 1)):
        model = make(tol=1e-2, n_iter_no_change=3, random_state=0).fit(x, y)
        assert model.n_iter_ == len(model.loss_curve_)
        assert model.n_iter_ == ends_after([-loss for loss in model.loss_curve_], tol, 3 + more)
        assert model.best_loss_ == min(model.loss_curve_)
        assert model.validation_scores_ is model.best_validation_score_ is None


@SPARSE
@pytest.mark.parametrize("early", [False, True], ids=["loss", "score"])
def test_epochs_without_a_step_are_no_sign_of_convergence(early: bool, sparse: bool) -> None:
    """A step of four threads takes a batch each, of four epochs, where an epoch has one."""
    x, y = blobs()
    options: dict[str, Any] = {"lr": 0.05, "batch_size": 400, "random_state": 0}
    model = SGDClassifier(
        "log_loss",
        threads=4,
        discipline=lsh.Synchronous(),
        early_stopping=early,
        validation_fraction=0.5,
        **options,
    ).fit(rows(x, sparse), y)
    assert model.n_iter_ == len(model.loss_curve_) == 1 + 4 * (model.t_ - 1)
    judged = model.validation_scores_ if early else [-loss for loss in model.loss_curve_]
    assert len(judged) == model.n_iter_
    assert ends_after(judged[::4], 1e-3 if early else 3e-3, 5) == model.t_
    assert model.t_ > 6
    if not early:  # four gradients on all rows are as good as one
        one = SGDClassifier("log_loss", **options).fit(rows(x, sparse), y)
        assert model.loss_ == pytest.approx(one.loss_, abs=0.02)


@SPARSE
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("make", [SGDClassifier, SGDRegressor, MLPClassifier, MLPRegressor])
def test_the_loss_that_ends_a_fit_is_the_same_however_many_threads_step_together(
    make: Any, threads: int, sparse: bool
) -> None:
    """With the penalty l2, but for sparse features of linear models."""
    perceptron = make in (MLPClassifier, MLPRegressor)
    columnwise = sparse and not perceptron
    if columnwise and threads == 1:
        pytest.skip("decay reaches the columns late")
    x, labels = blobs()
    y = labels if make in (SGDClassifier, MLPClassifier) else x[:, 0]
    model = make(
        alpha=400.0 if perceptron else 1.0,
        rule=lsh.SGD(0.05),
        batch_size=400 if threads == 1 else 200,
        threads=threads,
        discipline=lsh.Synchronous(),
        max_iter=3,
        tol=None,
        random_state=0,
    )
    first = model.set_params(warm_start=True).fit(rows(x, sparse), y)
    loss = first.loss_
    if not columnwise:
        parts = model.coefs_ if perceptron else [model.coef_]
        loss += 0.5 * sum(float(np.square(w).sum()) for w in parts)
    # One thread's gradient finds the loss before its step, several are judged by what is after it.
    found = model.loss_curve_[-1] if threads == 2 else model.fit(rows(x, sparse), y).loss_curve_[3]
    assert found == pytest.approx(loss, rel=1e-5)


@SPARSE
@pytest.mark.parametrize("weighed", [False, True])
def test_the_step_size_on_sparse_features_is_by_default_one_for_their_size(
    sparse: bool, weighed: bool
) -> None:
    x, y = blobs()
    weights = np.arange(400) % 3 if weighed else None
    square = np.average(np.square(x).sum(axis=1), weights=weights)
    for_size = 1 / (1 + square)
    default, same, other = (
        SGDClassifier(lr=lr, max_iter=3, tol=None, random_state=0).fit(rows(x, sparse), y, weights)
        for lr in (None, *((for_size, 0.1) if sparse else (0.1, for_size)))
    )
    np.testing.assert_allclose(default.parameters_, same.parameters_, rtol=1e-4, atol=1e-6)
    assert (default.parameters_ != other.parameters_).any()


def test_the_default_step_size_is_that_of_the_first_call() -> None:
    x, y = blobs()
    going_on = SGDClassifier(random_state=0).partial_fit(x, y, classes=np.unique(y))
    given = SGDClassifier(lr=0.1, random_state=0).partial_fit(x, y, classes=np.unique(y))
    for model in (going_on, given):
        model.partial_fit(rows(x, True), y)
    np.testing.assert_array_equal(going_on.parameters_, given.parameters_)


@pytest.mark.parametrize("given", ["empty", "of weight 0"])
def test_rows_without_a_number_tell_no_default_step_size(given: str) -> None:
    x, y = blobs()
    known, square = np.unique(y), np.square(x).sum(axis=1).mean()
    first, weights, later = 0 * x, None, None
    if given == "of weight 0":  # all but four, which are empty
        first, weights, later = (
            x * (np.arange(400) >= 4)[:, None],
            np.zeros(400),
            np.full(400, 0.01),
        )
        weights[:4] = 1
    models = [SGDClassifier(lr=lr, random_state=0) for lr in (None, 1.0)]
    for model in models:
        model.partial_fit(rows(first, True), y, known, sample_weight=weights)
    default, given_lr = models
    given_lr.set_params(lr=1 / (1 + square))
    for model in models:
        model.partial_fit(rows(x, True), y, sample_weight=later)
        model.partial_fit(rows(10 * x, True), y, sample_weight=later)  # for later calls it stays
    np.testing.assert_allclose(default.parameters_, given_lr.parameters_, rtol=1e-5)


@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
def test_numbers_beside_one_hot_columns_are_learnt_by_default(loss: str) -> None:
    """Numbers are in every row, so that a step that moves seldom columns goes too far in theirs."""
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    rng = np.random.default_rng(0)
    n, ids = 6000, rng.integers(0, 200, 6000)
    numbers = rng.normal(size=(n, 20))
    one_hot = sparse.csr_array((np.ones(n), (np.arange(n), ids)), shape=(n, 200))
    logits = 0.2 * numbers @ rng.normal(size=20) + 0.5 * rng.normal(size=200)[ids]
    y = rng.random(n) < 1 / (1 + np.exp(-logits))
    x = sparse.csr_array(sparse.hstack([numbers, one_hot]))
    peer = linear_model.LogisticRegression(max_iter=1000).fit(x[:3000], y[:3000])
    model = SGDClassifier(loss, random_state=0).fit(x[:3000], y[:3000])
    ours, theirs = (
        lsh.metrics.auc(each.decision_function(x[3000:]), y[3000:]) for each in (model, peer)
    )
    assert ours > theirs - 0.02


def test_a_large_penalty_does_not_make_the_default_step_overshoot() -> None:
    x, y = blobs()
    model = SGDClassifier(alpha=50.0, random_state=0).fit(rows(x, True), y)
    assert np.abs(model.coef_).max() < 1


def test_the_losses_of_epochs_are_those_that_the_gradients_found() -> None:
    x, y = blobs()
    for sparse in (False, True):
        for loss in ("log_loss", "hinge"):
            for labels in (y, y == "a"):
                model = SGDClassifier(
                    loss, penalty=None, lr=1e-9, max_iter=2, tol=None, random_state=0
                ).fit(rows(x, sparse), labels)
                np.testing.assert_allclose(model.loss_curve_, [model.loss_] * 2, rtol=1e-5)


@SPARSE
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch_size", [7, 150, 399, 1000])
@pytest.mark.parametrize("make", [SGDClassifier, SGDRegressor, MLPClassifier, MLPRegressor])
def test_an_epoch_has_each_row_once_whatever_the_batch_size(
    make: Any, batch_size: int, threads: int, sparse: bool
) -> None:
    x, labels = blobs()
    classifies = make in (SGDClassifier, MLPClassifier)
    y = labels if classifies else x[:, 0] ** 3  # losses that differ from row to row
    options: dict[str, Any] = {
        "alpha": 0.0,
        "rule": lsh.SGD(1e-12),  # so that they are the same in each epoch
        "batch_size": batch_size,
        "threads": threads,
        "tol": None,
        "random_state": 0,
    }
    model = make(max_iter=6, **options).fit(rows(x, sparse), y)
    np.testing.assert_allclose(model.loss_curve_, [model.loss_] * 6, rtol=1e-5)
    assert model.t_ == 6 * -(-400 // batch_size)
    # And so has each call of partial_fit, on parts of any size.
    parts = make(**options)
    for part in np.array_split(np.arange(400), [3, 20, 200]):
        known = [np.unique(y)] if classifies else []
        parts.partial_fit(rows(x[part], sparse), y[part], *known)
        assert parts.loss_curve_[-1] == pytest.approx(parts.loss_, rel=1e-5)


@SPARSE
@pytest.mark.parametrize("batch_size", [7, 150, 1000])
def test_an_epoch_has_each_row_once_also_where_threads_step_together(
    batch_size: int, sparse: bool
) -> None:
    x, _ = blobs()
    model = SGDRegressor(
        alpha=0.0,
        rule=lsh.SGD(1e-12),
        batch_size=batch_size,
        threads=3,
        discipline=lsh.Synchronous(),
        tol=1e-3,
        random_state=0,
    ).fit(rows(x, sparse), x[:, 0] ** 3)
    # Where a step has the batches of three epochs, the others tell nothing.
    assert model.n_iter_ == (16 if batch_size == 1000 else 6)
    np.testing.assert_allclose(model.loss_curve_, [model.loss_] * model.n_iter_, rtol=1e-5)


@pytest.mark.parametrize("batch_size", [200, 300])
def test_a_fit_that_goes_on_getting_better_has_not_converged(batch_size: int) -> None:
    x, y = datasets.load_diabetes(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    for seed in range(3):
        model = MLPRegressor(batch_size=batch_size, random_state=seed)
        with pytest.warns(ConvergenceWarning, match="max_iter=200 epochs were made"):
            model.fit(x, y)
        np.testing.assert_array_less(np.diff(model.loss_curve_[::10]), 0)
        assert model.n_iter_ == 200


@SPARSE
@pytest.mark.parametrize("make", [SGDClassifier, SGDRegressor, MLPClassifier, MLPRegressor])
def test_early_stopping_goes_by_the_score_of_examples_held_out(make: Any, sparse: bool) -> None:
    perceptron = make in (MLPClassifier, MLPRegressor)
    x, labels = blobs()
    y = labels if make in (SGDClassifier, MLPClassifier) else x[:, 0] + x[:, 1]
    model = make(
        early_stopping=True, validation_fraction=0.2, n_iter_no_change=4, tol=1e-2, random_state=0
    ).fit(rows(x, sparse), y)
    best = max(model.validation_scores_)
    assert model.n_iter_ == len(model.validation_scores_) == len(model.loss_curve_)
    assert model.n_iter_ == ends_after(model.validation_scores_, 1e-2, 4 + perceptron)
    assert model.best_validation_score_ == best
    assert model.best_loss_ is None
    # 320 of 400 examples were trained on.
    assert model.t_ == model.n_iter_ * 320 // model.batch_size
    # Which these are depends on the random state alone, and on the classes.
    held = model._split(rows(x, sparse), y, None, None)[3]
    assert len(held.y) == 80
    assert perceptron or model._score(held) == model.validation_scores_[-1] or sparse
    if perceptron:  # the parameters are those that scored best
        assert model._score(held) == best
    if make is SGDClassifier:
        shares = [np.mean(held.y == label) for label in "abc"]
        np.testing.assert_allclose(shares, [np.mean(y == label) for label in "abc"], atol=0.02)
    with pytest.raises(ValueError, match="early_stopping must be False with partial_fit"):
        model.partial_fit(rows(x, sparse), y)


def test_too_few_examples_to_hold_some_out() -> None:
    x, y = blobs(12)
    with pytest.raises(ValueError, match="no validation set can be split off 12 examples"):
        SGDClassifier(early_stopping=True, validation_fraction=0.1).fit(x, y)
    with pytest.raises(ValueError, match="validation_fraction must be less than 1"):
        SGDClassifier(early_stopping=True, validation_fraction=1.5).fit(x, y)
    for make in (SGDRegressor, MLPRegressor):
        with pytest.raises(ValueError, match="one example of 8 is held out, which has no R²"):
            make(early_stopping=True).fit(x[:8], x[:8, 0])
    model = SGDClassifier(early_stopping=True, validation_fraction=0.5, random_state=0).fit(x, y)
    held = np.isin(x, model._split(x, y, None, None)[3].x).all(axis=1)
    with pytest.raises(ValueError, match="sample_weight is 0 for the whole validation set"):
        clone(model).fit(x, y, sample_weight=~held)
    with pytest.raises(ValueError, match="all examples that are not held out weigh 0"):
        clone(model).fit(x, y, sample_weight=held)


@SPARSE
@pytest.mark.parametrize("make", [SGDClassifier, SGDRegressor, MLPClassifier, MLPRegressor])
def test_weights_are_repetitions_where_the_order_is_no_matter(make: Any, sparse: bool) -> None:
    x, labels = blobs(60)
    y = labels if make in (SGDClassifier, MLPClassifier) else x[:, 0]
    weights = np.random.default_rng(3).integers(0, 4, 60)
    # One batch holds all examples, so that only rounding tells them apart.
    options: dict[str, Any] = {"max_iter": 30, "tol": None, "batch_size": 10**6, "random_state": 0}
    weighted = make(**options).fit(rows(x, sparse), y, sample_weight=weights)
    again = np.repeat(np.arange(60), weights)
    repeated = make(**options).fit(rows(x[again], sparse), y[again])
    np.testing.assert_allclose(weighted.parameters_, repeated.parameters_, rtol=1e-3, atol=1e-4)
    doubled = make(**options).fit(rows(x, sparse), y, sample_weight=1000.0 * weights)
    if make in (SGDClassifier, SGDRegressor):  # the penalty is the same beside a larger loss
        doubled = make(alpha=0.1, **options).fit(rows(x, sparse), y, sample_weight=1000.0 * weights)
        weighted = make(alpha=1e-4, **options).fit(rows(x, sparse), y, sample_weight=weights)
    np.testing.assert_allclose(doubled.parameters_, weighted.parameters_, rtol=1e-3, atol=1e-4)


def test_weights_of_classes_are_those_of_their_examples() -> None:
    x, y = blobs()
    y = np.where(np.random.default_rng(1).random(400) < 0.9, "a", y)
    counts = {label: np.sum(y == label) for label in np.unique(y)}
    options: dict[str, Any] = {"loss": "log_loss", "max_iter": 20, "tol": None, "random_state": 0}
    plain = SGDClassifier(**options).fit(x, y)
    balanced = SGDClassifier(class_weight="balanced", **options).fit(x, y)
    given = SGDClassifier(
        class_weight={label: 400 / 3 / n for label, n in counts.items()}, **options
    ).fit(x, y)
    weights = np.array([400 / 3 / counts[label] for label in y])
    examples = SGDClassifier(**options).fit(x, y, sample_weight=weights)
    np.testing.assert_allclose(balanced.parameters_, given.parameters_, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(balanced.parameters_, examples.parameters_, rtol=1e-4, atol=1e-6)
    assert np.mean(balanced.predict(x) == "a") < np.mean(plain.predict(x) == "a")


def test_weights_of_classes_that_a_call_does_not_have_are_of_no_matter() -> None:
    x, y = blobs()
    model = SGDClassifier(class_weight={"a": 2.0}, random_state=0)
    model.partial_fit(x[y == "b"], y[y == "b"], classes=np.unique(y))
    model.partial_fit(x, y)
    with pytest.raises(ValueError, match="y has the label 'd', which is none of"):
        model.partial_fit(x, np.where(y == "a", "d", y))


def test_examples_held_out_weigh_as_given_and_not_as_their_classes() -> None:
    x, y = blobs()
    y = np.where(x[:, 0] + np.random.default_rng(0).normal(size=400) > 0, "a", "b")
    options: dict[str, Any] = {"max_iter": 3, "random_state": 0, "early_stopping": True}
    weights = np.random.default_rng(1).random(400)
    model = SGDClassifier(class_weight={"a": 1000.0}, validation_fraction=0.5, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y, sample_weight=weights)
    held = model._split(x, y, weights, weights)[3]
    assert model.validation_scores_[-1] == model.score(held.x, held.y, sample_weight=held.weights)
    assert model.validation_scores_[-1] < 0.7  # nearly all is taken for "a"


def test_weights_are_in_the_first_calls_unit() -> None:
    x, y = blobs()
    options: dict[str, Any] = {"loss": "log_loss", "random_state": 0}
    first = SGDClassifier(**options).partial_fit(x, y, np.unique(y), sample_weight=np.full(400, 3))
    second = copy.deepcopy(first)
    np.testing.assert_array_equal(
        first.partial_fit(x, y).parameters_,
        second.partial_fit(x, y, sample_weight=np.ones(400)).parameters_,
    )


def test_probabilities_of_several_classes_are_shares() -> None:
    x, y = blobs()
    model = SGDClassifier(loss="log_loss", random_state=0).fit(x, y)
    each = 1 / (1 + np.exp(-model.decision_function(x)))
    np.testing.assert_allclose(model.predict_proba(x), each / each.sum(axis=1, keepdims=True))


def test_the_score_of_numbers_held_out_weighs_them() -> None:
    x, _ = blobs()
    y, weights = x[:, 0] ** 2, np.random.default_rng(1).random(400)
    model = SGDRegressor(early_stopping=True, random_state=0).fit(x, y, sample_weight=weights)
    held = model._split(x, y, weights, weights)[3]
    expected = model.score(held.x, held.y, sample_weight=held.weights)
    assert model.validation_scores_[-1] == pytest.approx(expected)


def test_weights_that_are_wrong_are_named() -> None:
    x, y = blobs()
    for weights, message in (
        (np.zeros(400), "must contain at least one non-zero number"),
        (-np.ones(400), "Negative values"),
        (np.ones(3), "sample_weight.shape"),
    ):
        with pytest.raises(ValueError, match=message):
            SGDClassifier().fit(x, y, sample_weight=weights)
    for given, message in (
        ({"d": 1.0}, "class_weight has the label 'd'"),
        ({"a": -1.0}, "class_weight\\['a'\\] must be at least 0, got -1"),
        (dict.fromkeys("abc", 0.0), "the mean of sample_weight times class_weight must be greater"),
        ("even", "class_weight must be a dict, 'balanced' or None, got 'even'"),
    ):
        with pytest.raises(ValueError, match=message):
            SGDClassifier(class_weight=given).fit(x, y)
    for weights, message in (
        (np.full(400, 1e308), "the mean of sample_weight times class_weight must be finite"),
        (np.full(400, 5e-324), "alpha over the mean of the weights must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            SGDClassifier().fit(x, y, sample_weight=weights)
    with pytest.raises(ValueError, match="class_weight must be a dict or None with partial_fit"):
        SGDClassifier(class_weight="balanced").partial_fit(x, y, np.unique(y))


@SPARSE
@pytest.mark.parametrize(
    "discipline", [lsh.Sequential(), lsh.Locked(), lsh.Leashed(), lsh.Hogwild()], ids=str
)
@pytest.mark.parametrize("penalty", ["l1", "elasticnet"])
def test_l1_is_a_cumulative_penalty(penalty: str, discipline: lsh.Discipline, sparse: bool) -> None:
    """Against gradient descent in NumPy: with one batch of all examples there is no order."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(80, 21))
    y = x @ np.where(np.arange(21) < 4, 2.0, 0.0) + 3 + rng.normal(size=80)
    alpha, share, eta = 0.5, 1.0 if penalty == "l1" else 0.4, 0.05
    model = SGDRegressor(
        penalty=penalty,
        alpha=alpha,
        l1_ratio=0.4,
        rule=lsh.SGD(eta),
        batch_size=80,
        max_iter=60,
        tol=None,
        discipline=discipline,
    ).fit(rows(x, sparse), y)
    w, b, total, received = np.zeros(21), 0.0, 0.0, np.zeros(21)
    for _ in range(60):
        residual = x @ w + b - y
        gradient = x.T @ residual / 80 + (1 - share) * alpha * w
        w, b = w - eta * gradient, b - eta * residual.mean()
        total += eta * share * alpha
        before = w
        w = np.where(
            w > 0, np.maximum(w - (total + received), 0), np.minimum(w + (total - received), 0)
        )
        received += w - before
    np.testing.assert_allclose(model.coef_, w, atol=2e-5)
    np.testing.assert_allclose(model.intercept_, [b], atol=2e-5)
    np.testing.assert_array_equal(model.coef_ == 0, w == 0)
    assert 0 < np.sum(model.coef_ == 0) < 21


@SPARSE
def test_l1_finds_the_columns_that_scikit_learn_finds(sparse: bool) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(1000, 40))
    y = (x[:, :3] @ [2.0, -2.0, 1.5] + 0.3 * rng.normal(size=1000)) > 0
    options: dict[str, Any] = {"penalty": "l1", "alpha": 0.02, "random_state": 0}

    def objective(model: Any) -> float:
        outputs = (2 * y - 1) * model.decision_function(rows(x, sparse))
        return float(np.logaddexp(0, -outputs).mean() + 0.02 * np.abs(model.coef_).sum())

    own = linear_model.SGDClassifier(loss="log_loss", **options).fit(rows(x, sparse), y)
    ours = SGDClassifier("log_loss", lr=lsh.schedules.cosine(0.1, total=3000), **options)
    ours.fit(rows(x, sparse), y)
    assert set(np.flatnonzero(ours.coef_)) >= {0, 1, 2}
    assert np.sum(ours.coef_ != 0) <= np.sum(own.coef_ != 0) + 3
    assert objective(ours) < 1.02 * objective(own)


def test_l1_ratios_are_the_other_penalties() -> None:
    x, y = blobs()
    options: dict[str, Any] = {"max_iter": 5, "tol": None, "alpha": 0.01, "random_state": 0}
    for share, penalty in ((0.0, "l2"), (1.0, "l1")):
        mixed = SGDClassifier(penalty="elasticnet", l1_ratio=share, **options).fit(x, y)
        plain = SGDClassifier(penalty=penalty, **options).fit(x, y)
        np.testing.assert_array_equal(mixed.parameters_, plain.parameters_)


def test_losses_that_have_probabilities_have_their_logarithms() -> None:
    x, y = blobs()
    for name in ("predict_proba", "predict_log_proba"):
        assert not hasattr(SGDClassifier(), name)
    for model in (SGDClassifier("log_loss"), SGDClassifier("modified_huber"), MLPClassifier((4,))):
        model.set_params(max_iter=20, tol=None, random_state=0).fit(x, y)
        shares = model.predict_proba(x)
        np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
        np.testing.assert_allclose(np.exp(model.predict_log_proba(x)), shares, rtol=1e-6)


def test_probabilities_of_modified_huber_are_scikit_learns() -> None:
    x, y = blobs()
    for labels in (y, y == "a"):
        options: dict[str, Any] = {"loss": "modified_huber", "random_state": 0}
        own = linear_model.SGDClassifier(**options).fit(x, labels)
        ours = SGDClassifier(**options).fit(x, labels)
        ours.coef_, ours.intercept_ = own.coef_, own.intercept_
        np.testing.assert_allclose(ours.predict_proba(x), own.predict_proba(x), atol=1e-12)


def test_a_fit_that_fails_leaves_the_estimator_as_it_was() -> None:
    x, y = blobs()
    model = SGDClassifier(rule=lsh.Adam(0.01), random_state=0)
    model.partial_fit(x, y, np.unique(y))
    twin = copy.deepcopy(model)
    model.set_params(rule=lsh.SGD(1e30))
    with pytest.raises(ValueError, match="training ran to infinity"):
        model.fit(x[:, :3], y == "a")
    model.set_params(rule=lsh.Adam(0.01))
    np.testing.assert_array_equal(model.predict(x), twin.predict(x))
    np.testing.assert_array_equal(
        model.partial_fit(x, y).parameters_, twin.partial_fit(x, y).parameters_
    )
    unfit = SGDClassifier(lr=1e30)
    with pytest.raises(ValueError, match="training ran to infinity"):
        unfit.fit(x, y)
    with pytest.raises(NotFittedError):
        unfit.predict(x)


def test_steps_take_features_of_every_scale_or_say_so() -> None:
    x, _ = blobs()
    for sparse in (False, True):
        with pytest.raises(ValueError, match="the features' squares are beyond float32; scale"):
            SGDRegressor().fit(rows(x * 1e25, sparse), x[:, 0])
    with pytest.raises(ValueError, match="the features' squares are beyond float32; scale"):
        SGDClassifier().fit(rows(x * 1e25, True), x[:, 0] > 0)
    assert not SGDRegressor(lr=0.0).fit(x, x[:, 0]).coef_.any()


SCALES = "columns of X differ in scale by a factor of"


@SPARSE
@pytest.mark.parametrize("make", [SGDClassifier, SGDRegressor, MLPClassifier, MLPRegressor])
def test_columns_of_scales_far_apart_are_told_once(make: Any, sparse: bool) -> None:
    x, y = blobs()
    x[:, 3] *= 1e-4
    y = y if make in (SGDClassifier, MLPClassifier) else x[:, 0]
    options: dict[str, Any] = {"max_iter": 2, "tol": None, "random_state": 0}
    with pytest.warns(RuntimeWarning, match=f"{SCALES} [1-9]e\\+04.* column 3 ") as told:
        model = make(warm_start=True, **options).fit(rows(x, sparse), y)
    assert len(told) == 1
    assert "sklearn.preprocessing.StandardScaler, or MaxAbsScaler" in str(told[0].message)
    assert told[0].filename == __file__
    model.fit(rows(x, sparse), y)  # what goes on has been told
    model.partial_fit(rows(x, sparse), y)
    known = [np.unique(y)] if make in (SGDClassifier, MLPClassifier) else []
    with pytest.warns(RuntimeWarning, match=SCALES):
        make(**options).partial_fit(rows(x, sparse), y, *known)


def test_columns_of_scales_far_apart_have_their_names() -> None:
    wine = datasets.load_wine()
    model = SGDClassifier(random_state=0, max_iter=1, tol=None)
    with once("columns of X differ in scale by a factor of ") as told:
        model.fit(wine.data, wine.target)
    assert re.search("column 12 has .* column 7 has", str(told[0].message))
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    with pytest.warns(RuntimeWarning, match="'proline' has .* 'nonflavanoid_phenols' has"):
        model.fit(pandas.DataFrame(wine.data, columns=wine.feature_names), wine.target)


def test_numbers_beside_columns_that_are_seldom_there_are_told() -> None:
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    rng = np.random.default_rng(0)
    ids = sparse.csr_array((np.ones(400), np.arange(400), np.arange(401)), shape=(400, 400))
    cents = sparse.csr_array(rng.integers(100, 9999, (400, 1)).astype(float))
    y = rng.integers(0, 2, 400)
    with pytest.warns(RuntimeWarning, match="column 400 has .*, those that are seldom another"):
        SGDClassifier(random_state=0, max_iter=1, tol=None).fit(sparse.hstack([ids, cents]), y)


def columns_alike() -> dict[str, Any]:
    """Of one scale, however it looks."""
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    rng = np.random.default_rng(0)
    seldom = (rng.random((500, 300)) < np.geomspace(1e-3, 0.9, 300)).astype(float)
    words = rng.poisson(np.geomspace(1e-3, 40, 300), (500, 300)).astype(float)
    normal = sparse.random_array(
        (500, 20_000), density=1e-3, rng=rng, data_sampler=lambda size: rng.normal(size=size)
    )
    constant = np.full((500, 2), 1e4 / 3)
    constant[:, 1] = rng.normal(size=500)
    return {
        "one-hot": sparse.csr_array(seldom),
        "one-hot, dense": seldom,
        "one-hot, scaled": StandardScaler(with_mean=False).fit_transform(sparse.csr_array(seldom)),
        "one-hot, centred": StandardScaler().fit_transform(seldom),
        "counts": sparse.csr_array(words),
        "counts, dense": words,
        "normal numbers, few in a column": sparse.csr_array(normal),
        "a constant column, centred": StandardScaler().fit_transform(constant),
        "few rows": rng.random((8, 500)),
        "zeros": np.zeros((500, 3)),
        "numbers beside one-hot": sparse.csr_array(
            sparse.hstack([sparse.csr_array(seldom), rng.normal(size=(500, 20))])
        ),
    }


def test_columns_of_one_scale_bring_no_warning() -> None:
    for x in columns_alike().values():  # warnings are errors
        y = np.arange(x.shape[0]) % 2
        SGDClassifier(random_state=0, max_iter=1, tol=None).fit(x, y)
        if isinstance(x, np.ndarray):
            MLPRegressor((2,), random_state=0, max_iter=1, tol=None).fit(x, y)


def test_parameters_that_are_wrong_are_named() -> None:
    x, y = blobs()
    for options, message in (
        ({"loss": "absolute"}, "loss must be 'hinge', 'log_loss' or 'modified_huber'"),
        ({"penalty": "l3"}, "penalty must be 'l2', 'l1', 'elasticnet' or None"),
        ({"penalty": "elasticnet", "l1_ratio": 1.5}, "l1_ratio must be at most 1"),
        ({"tol": -1.0}, "tol must be at least 0"),
        ({"n_iter_no_change": 0}, "n_iter_no_change must be at least 1"),
        ({"alpha": -1.0}, "alpha must be at least 0"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"lr": -1.0}, "lr must be at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            SGDClassifier(**options).fit(x, y)
    for name in ("fit_intercept", "warm_start", "early_stopping"):
        with pytest.raises(TypeError, match=f"{name} must be True or False, got 1"):
            SGDClassifier(**{name: 1}).fit(x, y)


def alike(sign: bool) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose order is no matter: each has the same gradient."""
    row, signs = np.array([0.7, -0.4, 0.2]), np.where(np.arange(30) % 2, 1.0, -1.0)
    return (signs[:, None] * row, signs) if sign else (np.tile(row, (30, 1)), np.full(30, 2.5))


RATES: list[dict[str, Any]] = [
    {"learning_rate": "constant", "eta0": 0.05},
    {"learning_rate": "invscaling", "eta0": 0.3, "power_t": 0.4},
    {"learning_rate": "invscaling"},
    {"learning_rate": "optimal"},
    {"learning_rate": "adaptive", "eta0": 0.2},
]


@SPARSE
@pytest.mark.parametrize("rate", RATES, ids=str)
@pytest.mark.parametrize("loss", ["hinge", "log_loss", "modified_huber", "squared_error", "huber"])
def test_steps_are_scikit_learns(loss: str, rate: dict[str, Any], sparse: bool) -> None:
    kind = "SGDRegressor" if loss in ("squared_error", "huber") else "SGDClassifier"
    x, y = alike(kind == "SGDClassifier")
    adaptive = rate["learning_rate"] == "adaptive"
    options: dict[str, Any] = {
        "loss": loss,
        "alpha": 0.01,
        "fit_intercept": False,
        "random_state": 0,
        **rate,
        **({"epsilon": 0.4} if loss == "huber" else {}),
        **({"penalty": None} if adaptive or sparse else {}),  # decay of columns comes late
        **({"tol": 1e-3, "max_iter": 1000} if adaptive else {}),
        **({} if adaptive else {"tol": None, "max_iter": 4}),
    }
    own = getattr(linear_model, kind)(**options).fit(rows(x, sparse), y)
    ours = globals()[kind](batch_size=1, **options).fit(rows(x, sparse), y)
    assert ours.n_iter_ == own.n_iter_
    np.testing.assert_allclose(ours.coef_, own.coef_, rtol=2e-4)


@SPARSE
@pytest.mark.parametrize("rate", RATES[:4], ids=str)
@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
def test_steps_of_examples_with_weights_are_scikit_learns(
    loss: str, rate: dict[str, Any], sparse: bool
) -> None:
    kind = "SGDRegressor" if loss == "squared_error" else "SGDClassifier"
    x, y = alike(kind == "SGDClassifier")
    options: dict[str, Any] = {
        "loss": loss,
        "alpha": 0.01,
        "penalty": None if sparse else "l2",  # decay of columns comes late
        "fit_intercept": False,
        "random_state": 0,
        "tol": None,
        "max_iter": 4,
        **rate,
    }
    weights = np.full(30, 0.5)
    if kind == "SGDClassifier":
        options["class_weight"], weights = {-1: 2.0, 1: 2.0}, np.full(30, 1.5)
    own = getattr(linear_model, kind)(**options).fit(rows(x, sparse), y, sample_weight=weights)
    ours = globals()[kind](batch_size=1, **options).fit(rows(x, sparse), y, sample_weight=weights)
    np.testing.assert_allclose(ours.coef_, own.coef_, rtol=2e-4)


def test_optimal_steps_that_overshoot_are_told_with_what_makes_them_smaller() -> None:
    """Of squares the first one, 1 / α^(1/4), where scikit-learn bounds what is squared."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5))
    y = x @ [2.0, -1.0, 0.5, 0.0, 0.0]
    options: dict[str, Any] = {"learning_rate": "optimal", "random_state": 0, "tol": None}
    options["max_iter"] = 50
    with pytest.raises(ValueError, match=r"raise alpha, got 0\.0001, .* begin at 10, or take 'inv"):
        SGDRegressor(**options, batch_size=1).fit(x, y)
    for change in ({"alpha": 1.0}, {"loss": "huber"}, {"learning_rate": "invscaling"}):
        model = SGDRegressor(**{**options, "batch_size": 1, **change}).fit(x, y)
        own = linear_model.SGDRegressor(**{**options, **change}).fit(x, y)
        assert model.score(x, y) == pytest.approx(own.score(x, y), abs=0.1)


def test_huber_is_scikit_learns_of_targets_of_any_size() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    y = 200 + 50 * (x @ [2.0, -1.0, 0.5] + rng.standard_t(2, size=200))
    options: dict[str, Any] = {"loss": "huber", "epsilon": 0.1, "random_state": 0, "max_iter": 50}
    options["tol"] = None
    own = linear_model.SGDRegressor(**options, eta0=0.1).fit(x, y)
    rate: dict[str, Any] = {"learning_rate": "invscaling", "eta0": 0.1, "batch_size": 1}
    ours = SGDRegressor(**options, **rate).fit(x, y)
    np.testing.assert_allclose(ours.coef_, own.coef_, atol=0.05)
    np.testing.assert_allclose(ours.intercept_, own.intercept_, rtol=0.01)


@pytest.mark.parametrize("rate", [{"learning_rate": "invscaling", "eta0": 0.5}, {"average": True}])
def test_calls_of_other_sizes_go_on_after_the_examples_so_far(rate: dict[str, Any]) -> None:
    x, y = alike(True)
    options: dict[str, Any] = {"loss": "log_loss", "random_state": 0, **rate}
    one = SGDClassifier(batch_size=1, **options).partial_fit(x, y, np.unique(y))
    ten = SGDClassifier(batch_size=10, **options).partial_fit(x, y, np.unique(y))
    assert (one.t_, ten.t_) == (30, 3)
    ten.parameters_, ten._iterate = one.parameters_, one._iterate
    ten._progress.states = one._progress.states
    for model in (one, ten):  # a batch of one example, whichever they are made of
        model.partial_fit(x[:1], y[:1])
    np.testing.assert_allclose(ten.coef_, one.coef_, rtol=1e-6)
    assert (one.t_, ten.t_) == (31, 4)


@pytest.mark.parametrize("make", [SGDClassifier, SGDRegressor, MLPClassifier, MLPRegressor])
def test_pickles_of_before_there_were_means_and_units_go_on(make: Any) -> None:
    x, y = alike(True)
    model = make(random_state=0, max_iter=2, tol=None).fit(x, y)
    state = model.__getstate__()
    for name in ("_iterate", "_unit_", "average", "learning_rate", "activation", "class_weight"):
        state.pop(name, None)
    old = make.__new__(make)
    old.__setstate__(state)
    np.testing.assert_array_equal(old.predict(x), model.predict(x))
    np.testing.assert_array_equal(
        old.partial_fit(x, y).parameters_, model.partial_fit(x, y).parameters_
    )


@SPARSE
@pytest.mark.parametrize("average", [True, 1, 40, 1000])
@pytest.mark.parametrize("penalty", [None, "l2"])
@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
def test_means_of_iterates_are_scikit_learns(
    loss: str, penalty: str | None, average: Any, sparse: bool
) -> None:
    kind = "SGDRegressor" if loss == "squared_error" else "SGDClassifier"
    x, y = alike(kind == "SGDClassifier")
    options: dict[str, Any] = {
        "loss": loss,
        "learning_rate": "constant",
        "eta0": 0.05,
        "penalty": penalty,
        "alpha": 0.01,
        "average": average,
        "fit_intercept": False,
        "tol": None,
        "random_state": 0,
    }
    own = getattr(linear_model, kind)(max_iter=3, **options).fit(rows(x, sparse), y)
    ours = globals()[kind](max_iter=3, batch_size=1, **options).fit(rows(x, sparse), y)
    np.testing.assert_allclose(ours.coef_, own.coef_, rtol=2e-4)
    np.testing.assert_array_equal(
        ours.coef_.ravel(), ours.parameters_[: len(ours.coef_.ravel())].astype(float)
    )
    warm = globals()[kind](max_iter=1, batch_size=1, warm_start=True, **options)
    for _ in range(3):
        warm.fit(rows(x, sparse), y)
    np.testing.assert_array_equal(warm.coef_, ours.coef_)
    plain = globals()[kind](max_iter=3, batch_size=1, **{**options, "average": False})
    # (On dense rows: on sparse ones decay of columns comes late.)
    same = np.allclose(plain.fit(x, y).coef_, ours.coef_, rtol=1e-4)
    assert same == (average == 1000)


def test_means_are_scored_with_early_stopping_and_of_sgd_alone() -> None:
    x, y = blobs()
    model = SGDClassifier(
        "log_loss", average=True, early_stopping=True, max_iter=9, tol=None, random_state=0
    ).fit(x, y)
    assert model.best_validation_score_ > 0.9
    with pytest.raises(ValueError, match=r"average is of SGD\(lr\) alone"):
        SGDClassifier(average=True, rule=lsh.Adam(0.1)).fit(x, y)
    with pytest.raises(ValueError, match="average must be False with penalty='l1'"):
        SGDClassifier(average=True, penalty="l1").fit(x, y)
    with pytest.raises(ValueError, match="average must be at least 0"):
        SGDClassifier(average=-1).fit(x, y)


def test_layers_with_nothing_between_are_one_linear_layer() -> None:
    x, y = blobs()
    model = MLPClassifier((5,), activation="identity", max_iter=5, tol=None, random_state=0)
    model.fit(x, y)
    outputs = (x @ model.coefs_[0] + model.intercepts_[0]) @ model.coefs_[1] + model.intercepts_[1]
    shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    np.testing.assert_allclose(
        model.predict_proba(x), shares / shares.sum(axis=1, keepdims=True), atol=1e-5
    )
    model.set_params(activation="relu", warm_start=True)
    with pytest.raises(ValueError, match="activation='relu' are not those of the last fit"):
        model.fit(x, y)
    with pytest.raises(ValueError, match=r"activation must be .* 'tanh' or 'relu', got 'elu'"):
        MLPRegressor(activation="elu").fit(x, x[:, 0])


# Whole batches, so that their order does not matter: scikit-learn's perceptrons make the same steps.
STEPS: dict[str, Any] = {"batch_size": 60, "alpha": 0.3, "random_state": 0}


def _theirs(kind: Any, ours: Any, x: Any, y: Any, classes: Any = None) -> Any:
    """scikit-learn's perceptron of the same parameters, and none that it has learned itself."""
    model = kind(
        hidden_layer_sizes=ours.hidden_layer_sizes,
        activation=ours.activation,
        solver="sgd",
        learning_rate_init=0.1,
        momentum=0,
        **STEPS,
    )
    model.partial_fit(x, y, **({} if classes is None else {"classes": classes}))
    model.coefs_ = [w.astype(np.float64) for w in ours.coefs_]
    model.intercepts_ = [b.astype(np.float64) for b in ours.intercepts_]
    return model


@pytest.mark.parametrize("activation", ["identity", "logistic", "tanh", "relu"])
def test_steps_of_perceptrons_are_those_of_scikit_learn(activation: str) -> None:
    x, y = blobs(60)
    classes = np.unique(y)
    ours = MLPClassifier((7, 5), activation=activation, rule=lsh.SGD(0.1), **STEPS)
    theirs = _theirs(neural_network.MLPClassifier, ours.partial_fit(x, y, classes), x, y, classes)
    for _ in range(5):
        ours.partial_fit(x, y)
        theirs.partial_fit(x, y)
    for name in ("coefs_", "intercepts_"):
        for mine, other in zip(getattr(ours, name), getattr(theirs, name), strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-5)


def _begun_as(ours: Any, x: Any, y: Any, **options: Any) -> Any:
    """scikit-learn's perceptron that begins with the same parameters."""
    first = clone(ours).set_params(lr=1e-30, max_iter=1, tol=None, learning_rate=None).fit(x, y)
    parts = [*zip(first.coefs_, first.intercepts_, strict=True)]

    class Begun(getattr(neural_network, type(ours).__name__)):  # type: ignore[misc]
        def _init_coef(self, fan_in: int, fan_out: int, dtype: Any) -> Any:
            w, b = parts.pop(0)
            assert w.shape == (fan_in, fan_out)
            return w.astype(dtype), b.astype(dtype)

    return Begun(hidden_layer_sizes=ours.hidden_layer_sizes, **options)


@pytest.mark.parametrize("nesterovs", [True, False])
@pytest.mark.parametrize(
    ("rate", "tol"), [("constant", 0.0), ("invscaling", 0.0), ("adaptive", 1e3)]
)
def test_rates_of_perceptrons_are_those_of_scikit_learn(
    rate: str, tol: float, nesterovs: bool
) -> None:
    x, y = blobs(60)
    options: dict[str, Any] = {
        "solver": "sgd",
        "learning_rate": rate,
        "power_t": 0.3,
        "nesterovs_momentum": nesterovs,
        "max_iter": 40,
        "n_iter_no_change": 3,
        "tol": tol,
        **STEPS,
    }
    ours = MLPClassifier((7,), lr=0.2, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = _begun_as(ours, x, y, learning_rate_init=0.2, **options).fit(x, y)
        ours.fit(x, y)
    assert ours.n_iter_ == theirs.n_iter_
    np.testing.assert_allclose(ours.loss_curve_, theirs.loss_curve_, rtol=1e-4)
    for mine, other in zip(ours.coefs_, theirs.coefs_, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-5)
    if rate == "invscaling":  # epochs one by one have the same rates, and the same momentum
        parts = MLPClassifier((7,), lr=0.2, **options)
        for _ in range(ours.n_iter_):
            parts.partial_fit(x, y, np.unique(y))
        np.testing.assert_array_equal(parts.parameters_, ours.parameters_)


@pytest.mark.parametrize(
    "options",
    [
        {"learning_rate": "invscaling", "power_t": 15.0},
        {"learning_rate": "invscaling", "power_t": 1000.0},
        {"learning_rate": "invscaling", "lr": 0.0},
        {"learning_rate": "adaptive", "lr": 1e-60},
    ],
)
def test_steps_that_are_too_small_for_any_number_are_none(options: Any) -> None:
    x, y = blobs(60)
    first = MLPClassifier((7,), solver="sgd", **options, **STEPS).partial_fit(x, y, np.unique(y))
    theta = first.parameters_
    for _ in range(3):
        first.partial_fit(x, y)
    np.testing.assert_allclose(first.parameters_, theta, atol=0.1)


@pytest.mark.parametrize("kind", [SGDClassifier, SGDRegressor, MLPClassifier])
def test_numbers_in_parts_are_their_sums(kind: Any) -> None:
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    x, names = blobs(60)
    y = (names == names[0]).astype(np.float32)
    whole = sparse.csr_array(x)
    parts = sparse.csr_array(
        (np.repeat(whole.data / 2, 2), np.repeat(whole.indices, 2), 2 * whole.indptr), whole.shape
    )
    fitted = kind(max_iter=20, tol=None, **STEPS).fit(whole, y)
    again = kind(max_iter=20, tol=None, **STEPS).fit(parts, y)
    assert parts.nnz == 2 * whole.nnz
    np.testing.assert_array_equal(again.parameters_, fitted.parameters_)
    np.testing.assert_allclose(again.predict(parts), fitted.predict(whole))


def test_momentum_goes_on_at_another_kind_of_rates() -> None:
    x, y = blobs(60)

    def moved(then: str) -> np.ndarray:
        fitted = MLPClassifier((7,), solver="sgd", lr=1e-3, learning_rate="constant", **STEPS)
        for _ in range(5):
            fitted.partial_fit(x, y, np.unique(y))
        return fitted.set_params(learning_rate=then).partial_fit(x, y).parameters_

    np.testing.assert_array_equal(moved("adaptive"), moved("constant"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": ["relu"]}, "activation must be 'identity', "),
        ({"solver": "lbfgs"}, "solver must be 'adam' or 'sgd', got 'lbfgs'"),
        ({"learning_rate": "adaptive"}, "learning_rate='adaptive' needs solver='sgd'"),
        ({"solver": "sgd", "learning_rate": "optimal"}, "learning_rate must be 'constant', 'inv"),
        ({"solver": "sgd", "rule": "adam"}, "leave solver out, or rule"),
        ({"solver": "sgd", "momentum": 1.0}, "momentum must be less than 1"),
        ({"solver": "sgd", "learning_rate": "invscaling", "power_t": -1}, "power_t must be"),
        (
            {"solver": "sgd", "learning_rate": "constant", "lr": lsh.schedules.inverse(0.1)},
            "both say how far steps go",
        ),
    ],
)
def test_rates_of_perceptrons_that_are_none_are_told(options: Any, message: str) -> None:
    x, y = blobs(60)
    with pytest.raises(ValueError, match=message):
        MLPClassifier((3,), **options).fit(x, y)


def several(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    x, y = blobs(n)
    return x, np.column_stack([y == "a", y != "b", x[:, 4] > 0]).astype(int)


@pytest.mark.parametrize("rate", ["constant", "invscaling"])
def test_several_labels_are_learned_in_the_steps_of_scikit_learn(rate: str) -> None:
    x, y = several(60)
    options: dict[str, Any] = {
        "solver": "sgd",
        "learning_rate": rate,
        "power_t": 0.2,
        "max_iter": 30,
        "tol": 0.0,
        **STEPS,
    }
    ours = MLPClassifier((7,), lr=0.3, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = _begun_as(ours, x, y, learning_rate_init=0.3, **options).fit(x, y)
        ours.fit(x, y)
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)
    np.testing.assert_allclose(ours.loss_curve_, theirs.loss_curve_, rtol=1e-4)
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-4)
    np.testing.assert_array_equal(ours.predict(x), theirs.predict(x))
    assert ours.predict(x).dtype == theirs.predict(x).dtype
    assert ours.score(x, y) == theirs.score(x, y) > 0.4


@SPARSE
def test_several_targets_are_learned_in_the_steps_of_scikit_learn(sparse: bool) -> None:
    x, _ = blobs(60)
    y = np.column_stack([x[:, 0], x[:, 1] - x[:, 2], np.sin(x[:, 3])])
    options: dict[str, Any] = {"solver": "sgd", "max_iter": 30, "tol": 0.0, **STEPS}
    ours = MLPRegressor((7,), lr=0.02, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = _begun_as(ours, x, y, learning_rate_init=0.02, **options).fit(x, y)
        ours.fit(rows(x, sparse), y)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), atol=1e-4)
    assert ours.score(x, y) == pytest.approx(theirs.score(x, y), abs=1e-4)
    # Theirs is of the mean over the targets, beside the same penalty.
    assert ours.loss_curve_[-1] > theirs.loss_curve_[-1]
    early = MLPRegressor((20,), early_stopping=True, random_state=0, max_iter=20, tol=1.0)
    assert early.fit(rows(x, sparse), y).predict(rows(x, sparse)).shape == y.shape
    with pytest.raises(ValueError, match="y has 1 numbers a row and had 3 in the last fit"):
        early.partial_fit(x, y[:, 0])


@SPARSE
def test_several_labels_stop_early_and_go_on_to_the_same_bits(sparse: bool) -> None:
    x, y = several()
    x = rows(x, sparse)
    early = MLPClassifier((20,), early_stopping=True, lr=0.02, threads=2, random_state=0)
    early.fit(x, y)
    assert early.best_validation_score_ > 0.8
    assert early.predict_log_proba(x).shape == y.shape
    options: dict[str, Any] = {"tol": None, "batch_size": 17, "random_state": 0}
    whole = MLPClassifier((9,), max_iter=4, **options).fit(x, y)
    parts = MLPClassifier((9,), **options)
    for _ in range(4):
        parts.partial_fit(x, y, [0, 1, 2])
    np.testing.assert_array_equal(parts.parameters_, whole.parameters_)
    with pytest.raises(ValueError, match="y must have the labels"):
        parts.partial_fit(x, y[:, :2])
    with pytest.raises(ValueError, match="y must have the labels"):
        parts.partial_fit(x, y[:, 0])
    with pytest.raises(ValueError, match="class_weight must be None where rows have several"):
        MLPClassifier(class_weight="balanced").fit(x, y)
    with pytest.raises(ValueError, match="y must be a label a row, or of several an indicator"):
        MLPClassifier().fit(x, y + 1)
    warm = MLPClassifier((3,), max_iter=1, tol=None, warm_start=True).fit(x, y)
    with pytest.raises(ValueError, match="y must have as many labels a row as in the last fit"):
        warm.fit(x, y[:, 0])


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_perceptrons_take_sparse_rows_and_make_the_steps_of_dense_ones(form: str) -> None:
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    x, y = blobs(60)
    x = np.where(x > 0, np.round(5 * x), 0).astype(int)
    rows = sparse.coo_array(x).asformat(form)
    options: dict[str, Any] = {"max_iter": 6, "tol": None, "activation": "tanh", **STEPS}
    thick, thin = (MLPClassifier((7, 5), **options).fit(given, y) for given in (x, rows))
    for mine, other in zip(thin.coefs_, thick.coefs_, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(thin.loss_curve_, thick.loss_curve_, rtol=1e-5)
    np.testing.assert_allclose(thin.predict_proba(rows), thick.predict_proba(x), atol=1e-5)
    assert thin.score(rows, y) == thick.score(x, y)
    numbers = x[:, 0] + 0.5
    regressors = [MLPRegressor((7,), **options).fit(given, numbers) for given in (x, rows)]
    np.testing.assert_allclose(regressors[0].predict(x), regressors[1].predict(rows), atol=1e-4)


def test_perceptrons_on_sparse_rows_stop_early_and_go_on_to_the_same_bits() -> None:
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    x, y = blobs(300)
    rows = sparse.csr_array(np.where(x > 0, x, 0))
    early = MLPClassifier((20,), early_stopping=True, lr=0.01, threads=2, random_state=0)
    early.fit(rows, y)
    assert early.best_validation_score_ > 0.8
    options: dict[str, Any] = {"tol": None, "batch_size": 17, "random_state": 0}
    whole = MLPClassifier((9,), max_iter=4, **options).fit(rows, y)
    parts = MLPClassifier((9,), **options)
    for _ in range(4):
        parts.partial_fit(rows, y, np.unique(y))
    np.testing.assert_array_equal(parts.parameters_, whole.parameters_)


def test_weights_behind_sigmoids_begin_as_those_of_scikit_learn() -> None:
    x = np.random.default_rng(0).normal(size=(20, 300))
    spread = {}
    for activation in ("logistic", "tanh"):
        kept = MLPRegressor((200,), activation=activation, lr=1e-30, max_iter=1, tol=None)
        spread[activation] = np.abs(kept.fit(x, x[:, 0]).coefs_[0]).max()
    assert spread["logistic"] == pytest.approx(np.sqrt(2 / 500), rel=1e-3)
    assert spread["tanh"] == pytest.approx(np.sqrt(6 / 500), rel=1e-3)


def test_perceptrons_weigh_classes() -> None:
    x, y = blobs()
    weights = {"a": 5.0, "b": 1.0, "c": 0.5}
    options: dict[str, Any] = {"max_iter": 3, "tol": None, "random_state": 0}
    by_class = MLPClassifier((4,), class_weight=weights, **options).fit(x, y)
    by_row = MLPClassifier((4,), **options).fit(x, y, np.array([weights[label] for label in y]))
    np.testing.assert_array_equal(by_class.parameters_, by_row.parameters_)
    with pytest.raises(ValueError, match="class_weight has the label 'z'"):
        MLPClassifier(class_weight={"z": 1.0}).fit(x, y)


def test_steps_of_batches_go_by_the_examples_so_far() -> None:
    x, y = alike(False)
    options: dict[str, Any] = {"learning_rate": "invscaling", "eta0": 0.1, "penalty": None}
    model = SGDRegressor(batch_size=10, max_iter=2, tol=None, fit_intercept=False, **options)
    w = np.zeros(3)
    for update in range(6):
        w -= 0.1 / (1 + 10 * update) ** 0.25 * (x[0] @ w - y[0]) * x[0]
    np.testing.assert_allclose(model.fit(x, y).coef_, w, rtol=1e-5)


@SPARSE
@pytest.mark.parametrize("penalty", ["l2", "l1", None])
def test_huber_is_of_numbers_in_their_own_units(penalty: str, sparse: bool) -> None:
    """Against gradient descent in NumPy."""
    if sparse and penalty == "l2":
        pytest.skip("decay of columns comes late")
    rng = np.random.default_rng(5)
    x = rng.normal(size=(80, 4))
    y = x @ [2.0, -1.0, 0.0, 0.0] + 3 + rng.standard_t(1, size=80)
    alpha, epsilon, eta = 0.1, 0.3, 0.2
    model = SGDRegressor(
        "huber", epsilon=epsilon, penalty=penalty, alpha=alpha, rule=lsh.SGD(eta), batch_size=80
    ).set_params(max_iter=3000, tol=None)
    model.fit(rows(x, sparse), y)
    w, b = np.zeros(4), 0.0
    for _ in range(3000):
        slope = np.clip(x @ w + b - y, -epsilon, epsilon)
        w = w - eta * (x.T @ slope / 80 + (alpha * w if penalty == "l2" else 0))
        if penalty == "l1":
            w = np.sign(w) * np.maximum(np.abs(w) - eta * alpha, 0)
        b -= eta * slope.mean()
    np.testing.assert_allclose(model.coef_, w, atol=0.01)
    np.testing.assert_allclose(model.intercept_, [b], atol=0.01)
    off = np.abs(x @ model.coef_ + model.intercept_ - y)
    loss = np.where(off <= epsilon, off**2 / 2, epsilon * off - epsilon**2 / 2).mean()
    assert model.loss_ == pytest.approx(loss, rel=1e-4)
    np.testing.assert_allclose(model.predict(rows(x, sparse)), x @ model.coef_ + model.intercept_)
    model.set_params(epsilon=0.5, warm_start=True)
    with pytest.raises(ValueError, match=r"epsilon=0\.5 is of other units than the last fit"):
        model.fit(rows(x, sparse), y)


def test_names_of_scikit_learn_say_the_same() -> None:
    x, y = blobs()
    for make in (SGDClassifier, MLPClassifier):
        options: dict[str, Any] = {"random_state": 0, "max_iter": 3, "tol": None}
        one = make(**options).fit(x, y)
        np.testing.assert_array_equal(
            make(n_jobs=1, **options).fit(x, y).parameters_, one.parameters_
        )
        for jobs in (2, -1, -2, np.int64(2)):
            assert make(n_jobs=jobs, **options).fit(x, y).score(x, y) > 0.3
    rate: dict[str, Any] = {"random_state": 0, "max_iter": 3, "tol": None}
    np.testing.assert_array_equal(
        MLPClassifier(learning_rate_init=0.01, **rate).fit(x, y).parameters_,
        MLPClassifier(lr=0.01, **rate).fit(x, y).parameters_,
    )


def test_n_jobs_is_what_joblib_makes_of_it() -> None:
    joblib = pytest.importorskip("joblib", reason="joblib is not installed")
    assert SGDClassifier()._threads() == 1
    assert SGDClassifier(n_jobs=3)._threads() == 3
    assert SGDClassifier(n_jobs=-1)._threads() == joblib.cpu_count()
    assert SGDClassifier(n_jobs=-1000)._threads() == 1
    with joblib.parallel_config(n_jobs=3):
        assert SGDClassifier()._threads() == 3
        assert SGDClassifier(threads=1)._threads() == 1


@SPARSE
@pytest.mark.parametrize("make", [SGDClassifier, MLPRegressor])
@pytest.mark.parametrize("early", [False, True])
def test_lines_of_epochs_are_printed_and_change_nothing(
    make: Any, early: bool, sparse: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = blobs()
    y = y if make is SGDClassifier else x[:, 0]
    options: dict[str, Any] = {"early_stopping": early, "random_state": 0, "max_iter": 8}
    quiet = make(tol=None, **options).fit(rows(x, sparse), y)
    assert capsys.readouterr().out == ""
    told = make(tol=None, verbose=1, **options).fit(rows(x, sparse), y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    for k, (line, loss) in enumerate(zip(lines, told.loss_curve_, strict=True), 1):
        assert line.startswith(f"Epoch {k}, loss = {loss:.8f}")
        assert ("validation score" in line) == early
    np.testing.assert_array_equal(told.parameters_, quiet.parameters_)


def test_names_that_say_the_same_are_given_once() -> None:
    x, y = blobs()
    rate: dict[str, Any] = {"learning_rate": "constant"}
    for make, options, message in (
        (SGDClassifier, {"n_jobs": 1, "threads": 1}, "threads=1 and n_jobs=1 say the same"),
        (SGDClassifier, {"n_jobs": 0}, "n_jobs must be -1, for all cores, or at least 1, got 0"),
        (SGDClassifier, {"lr": 0.1, **rate}, "learning_rate='constant' and lr both say how far"),
        (
            SGDClassifier,
            {"rule": lsh.Adam(0.1), **rate},
            "learning_rate='constant' and rule both say",
        ),
        (SGDClassifier, {"eta0": 0.1}, "eta0 needs learning_rate"),
        (
            SGDClassifier,
            {"learning_rate": "pa1"},
            "learning_rate must be 'constant', .*, got 'pa1'",
        ),
        (SGDClassifier, {"eta0": 0.1, "learning_rate": "optimal"}, "eta0 is none of"),
        (SGDClassifier, {"alpha": 0, "learning_rate": "optimal"}, "alpha must be greater than 0"),
        (SGDClassifier, {"eta0": 0.0, **rate}, "eta0 must be greater than 0"),
        (SGDClassifier, {"eta0": 1e30, **rate}, "training ran to infinity; .* lower eta0, got 1e"),
        (SGDClassifier, {"verbose": -1}, "verbose must be at least 0"),
        (MLPClassifier, {"lr": 0.1, "learning_rate_init": 0.1}, "say the same; leave one out"),
        (
            MLPClassifier,
            {"rule": lsh.SGD(0.1), "learning_rate_init": 0.1},
            "leave learning_rate_init",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            make(**options).fit(x, y)
    for options, message in (
        ({"loss": "hinge"}, "loss must be 'squared_error' or 'huber'"),
        ({"loss": "huber", "epsilon": 0.0}, "epsilon must be greater than 0"),
        ({"learning_rate": "invscaling", "power_t": -1.0}, "power_t must be at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            SGDRegressor(**options).fit(x, x[:, 0])


def test_the_package_itself_imports_no_scikit_learn() -> None:
    code = "import leashed, sys; assert not any(m.startswith('sklearn') for m in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("make", [SGDClassifier, SGDRegressor, MLPClassifier, MLPRegressor])
def test_an_unknown_setting_is_told_with_the_estimators_own_name(make):
    with pytest.raises(TypeError, match=f"^{make.__name__}"):
        make(nope=1)
