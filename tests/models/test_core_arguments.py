"""What the native core is told by name and remedy, instead of ending the process: every entry that
takes sizes, with none, and labels that no output stands for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from leashed import _core, models

FEATURES = 3
NONE = np.zeros((0, FEATURES), np.float32)
X = np.ones((4, FEATURES), np.float32)
LABELS = np.array([0, 1, 0, 1], np.int32)
VALUES = np.ones(4, np.float32)
OFFSETS = np.arange(5, dtype=np.int64)
COLUMNS = np.array([0, 1, 2, 0], np.int32)

MODEL = models.logistic_regression(FEATURES)
THETA = np.zeros(MODEL.dimension, np.float32)
SPARSE = _core.SparseRows(OFFSETS, COLUMNS, VALUES, FEATURES)
NO_ROWS = _core.SparseRows(OFFSETS[:1], COLUMNS[:0], VALUES[:0], FEATURES)


def python_source(
    dimension: int = 2, features: int = FEATURES, targets: bool = False
) -> _core.PythonSource:
    return _core.PythonSource(
        gradient=lambda *_: 0.0,
        loss=None,
        dimension=dimension,
        features=features,
        targets=targets,
        variable_ends=[],
    )


def external_source(dimension: int = 2, features: int = FEATURES) -> _core.ExternalSource:
    return _core.ExternalSource(
        gradient=0,
        gradient_data=0,
        loss=0,
        loss_data=0,
        dimension=dimension,
        features=features,
        workspace_bytes=0,
        targets=False,
        variable_ends=[],
    )


def rows_source(dimension: int = 2, of_tables: tuple[int, ...] = (0,)) -> _core.PythonSource:
    tables = [("one", 4)]
    return _core.PythonSource(
        gradient=lambda *_: 0.0,
        loss=None,
        dimension=dimension,
        features=3,
        targets=False,
        variable_ends=[],
        tables=tables,
        features_of_tables=of_tables,
    )


def native_rows_source(dimension: int = 2, of_tables: tuple[int, ...] = (0,)) -> object:
    none, tables = (0, 0), [("one", 4)]
    return _core.ExternalRowsSource(
        gradient=none,
        loss=none,
        logits=none,
        dimension=dimension,
        features=3,
        workspace_bytes=0,
        variable_ends=[],
        tables=tables,
        features_of_tables=of_tables,
    )


CLICKS = _core.ClickRows(X, [(LABELS.astype(np.uint64), None, None)])
NO_CLICKS = _core.ClickRows(NONE, [(np.zeros(0, np.uint64), None, None)])


def train(
    source: Any = MODEL.native,
    x: Any = X,
    y: Any = LABELS,
    validation: tuple[Any, Any] = (None, None),
    threads: int = 1,
    batch_size: int = 2,
) -> Any:
    training = _core.Training(
        source=source,
        theta=np.zeros(source.dimension, np.float32),
        x=x,
        y=y,
        validation_x=validation[0],
        validation_y=validation[1],
        discipline=("sequential", {}),
        rule=("sgd", {"lr": ("constant", {"lr": 0.1})}),
        staleness=("none", {}),
        workers=threads,
        batch_size=batch_size,
        seed=0,
    )
    return _core.train(training, _core.Watch(until={"updates": 2}))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MODEL.native.gradient(THETA, NONE, LABELS[:0]), "x must have at least one row"),
        (lambda: MODEL.native.evaluate(THETA, NONE, LABELS[:0]), "x must have at least one row"),
        (lambda: MODEL.sparse.gradient(THETA, NO_ROWS, LABELS[:0]), "x must have at least one row"),
        (lambda: MODEL.sparse.evaluate(THETA, NO_ROWS, LABELS[:0]), "x must have at least one row"),
        (
            lambda: _core.mean_loss(python_source(), np.zeros(2, np.float32), NONE, LABELS[:0]),
            "x must have at least one row",
        ),
        (lambda: python_source(dimension=0), "dimension must be at least 1, got 0"),
        (lambda: python_source(features=0), "features must be at least 1, got 0"),
        (lambda: external_source(dimension=0), "dimension must be at least 1, got 0"),
        (lambda: external_source(features=0), "features must be at least 1, got 0"),
        (lambda: rows_source(dimension=0), "dimension must be at least 1, got 0"),
        (lambda: native_rows_source(dimension=0), "dimension must be at least 1, got 0"),
        (lambda: rows_source(of_tables=(0, 1)), "a feature is of a table that there is not"),
        (lambda: native_rows_source(of_tables=(1,)), "a feature is of a table that there is not"),
        (lambda: train(rows_source(), NO_CLICKS, LABELS[:0]), "x must have at least one row"),
        (lambda: train(rows_source(), CLICKS), "tables must be the 1 that the source reads, got 0"),
        (
            lambda: _core.mean_loss(rows_source(), np.zeros(2, np.float32), CLICKS, LABELS),
            "a feature is of a table that there is not",
        ),
        (
            lambda: rows_source().logits(np.zeros(2, np.float32), CLICKS, []),
            "source gives no logits",
        ),
        (lambda: _core.Network((0, 1, 1), [("relu", {})]), "the input shape is empty"),
        (lambda: _core.Network((1, 1, 1), [("dense", {"outputs": 0})]), "layer 0: Dense needs"),
        (lambda: _core.SparseLinear(0, 1, "log_loss"), "needs at least 1 feature and 1 output"),
        (lambda: _core.SparseNetwork(MODEL.native, "softmax"), "at least two dense layers"),
        (lambda: _core.SparseLinear(1, 0, "log_loss"), "needs at least 1 feature and 1 output"),
        (lambda: _core.SparseLinear(2**40, 2**40, "softmax"), "too large for any memory"),
        (lambda: _core.SparseLinear(2**63, 2, "softmax"), "too large for any memory"),
        (lambda: _core.SparseLinear(3, 2, "huber"), "takes a last layer with 1 output"),
        (lambda: _core.batch_rows(0, 0, 2, 0), "rows must be at least 1, got 0"),
        (lambda: _core.batch_rows(0, 4, 0, 0), "batch_size must be at least 1, got 0"),
        (lambda: _core.batch(NONE, 0, 2, 0), "rows of values must be at least 1, got 0"),
        (lambda: _core.batch(X, 0, 0, 0), "batch_size must be at least 1, got 0"),
        (lambda: train(batch_size=0), "batch_size must be at least 1, got 0"),
        (lambda: train(MODEL.sparse, SPARSE, batch_size=0), "batch_size must be at least 1"),
        (lambda: train(threads=0), "workers must be at least 1, got 0"),
        (lambda: train(x=NONE, y=LABELS[:0]), "x must have at least one row"),
        (lambda: train(MODEL.sparse, NO_ROWS, LABELS[:0]), "x must have at least one row"),
        (lambda: train(validation=(NONE, LABELS[:0])), "x must have at least one row"),
    ],
)
def test_nothing_is_refused_by_name(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_of_no_rows_nothing_is_predicted() -> None:
    assert MODEL.native.predict(THETA, NONE).shape == (0, 1)
    assert MODEL.sparse.predict(THETA, NO_ROWS).shape == (0, 1)


@pytest.mark.parametrize("label", [-1, 2, 2**31 - 1])
def test_labels_that_no_output_stands_for_are_refused(label: int) -> None:
    wrong = np.array([0, 1, label, 1], np.int32)
    message = rf"y\[2\] is {label}, outside 0\.\.1"
    for call in (
        lambda: MODEL.native.gradient(THETA, X, wrong),
        lambda: MODEL.native.evaluate(THETA, X, wrong),
        lambda: MODEL.sparse.gradient(THETA, SPARSE, wrong),
        lambda: MODEL.sparse.evaluate(THETA, SPARSE, wrong),
        lambda: train(y=wrong),
        lambda: train(MODEL.sparse, SPARSE, wrong),
        lambda: train(validation=(X, wrong)),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_numbers_and_labels_are_not_taken_for_each_other() -> None:
    numbers = models.linear_regression(FEATURES)
    for source, x, y, message in (
        (MODEL.native, X, VALUES, "y must be an int32 array"),
        (MODEL.sparse, SPARSE, VALUES, "y must be an int32 array"),
        (numbers.native, X, LABELS, "y must be a float32 array"),
        (numbers.sparse, SPARSE, LABELS, "y must be a float32 array"),
    ):
        for call in (source.gradient, source.evaluate):
            with pytest.raises(TypeError, match=message):
                call(THETA, x, y)
        with pytest.raises(TypeError, match=message):
            train(source, x, y)
    for wrong, targets, message in (
        (VALUES, False, "y must be an int32 array"),
        (LABELS, True, "y must be a float32 array"),
    ):
        source = python_source(targets=targets)
        with pytest.raises(TypeError, match=message):
            _core.mean_loss(source, np.zeros(2, np.float32), X, wrong)
        with pytest.raises(TypeError, match=message):
            train(source, X, wrong)
    with pytest.raises(TypeError, match="x must be SparseRows where source is a SparseModel"):
        _core.mean_loss(MODEL.sparse, THETA, X, LABELS)
