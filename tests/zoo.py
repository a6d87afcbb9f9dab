"""A small training of every model, which is saved in one process and goes on in another.

``python zoo.py FOLDER`` is the other process: it says of each model there what it predicts, how it is
judged, what it exports and what training on leads to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import leashed as lsh
from leashed import datasets, models
from leashed.datasets import Bags, ClickDataset, Dataset, SparseDataset

ROWS = 256
CHOICES: dict[str, Any] = {"threads": 1, "batch_size": 32, "rule": lsh.Adagrad(0.02)}
NOT_EXPORTED = ("ffm", "external")

Made = tuple[Any, Any, Any]
"""A model, what it is trained on, and what is predicted."""


def _numbers(count: int = 6) -> NDArray[np.float32]:
    return np.random.default_rng(1).normal(size=(ROWS, count)).astype(np.float32)


def _classes(make: Callable[[], Any], classes: int = 2) -> Made:
    y = np.random.default_rng(2).integers(0, classes, ROWS)
    data = Dataset.from_arrays(_numbers(), y, names=[f"n{j}" for j in range(6)])
    return make(), data, data


def _regression() -> Made:
    data = Dataset.regression(_numbers(), _numbers().sum(1))
    return models.linear_regression(6), data, data


def _images(make: Callable[..., Any]) -> Made:
    images = datasets.synthetic_digits(ROWS, test=ROWS)
    return make(images.train.image_shape, 10), images.train, images.test


def _clicks(make: Callable[..., Any], **given: Any) -> Made:
    clicks = datasets.synthetic_clicks(ROWS, test=ROWS, cardinalities=50)
    return make(50, **given), clicks.train, clicks.test


def _growing(make: Callable[..., Any]) -> Made:
    """Ids that have no row read another value in ONNX, so none are asked for."""
    _, train, _ = _clicks(make)
    return make(), train, train


def _hashed(make: Callable[[int], Any]) -> Made:
    clicks = datasets.synthetic_clicks(ROWS, test=ROWS, cardinalities=50)
    rows = [datasets.hashed(each, 6) for each in (clicks.train, clicks.test)]
    return make(rows[0].features), *rows


def _histories(make: Callable[..., Any]) -> Made:
    histories = datasets.synthetic_histories(ROWS, test=ROWS, users=50, items=100)
    return make(50, 100, 100), histories.train, histories.test


def _next_items(**given: Any) -> Made:
    random = np.random.default_rng(3)
    lengths = random.integers(3, 6, 60)
    items = Bags(random.integers(0, 20, lengths.sum()), np.append(0, np.cumsum(lengths)))
    split = datasets.next_items(items)
    return models.youtube_dnn(20, 4, (), negatives=5, **given), split.train, split.test


def _logits(theta: Any, x: Any, rows: Any) -> Any:
    first, second = (rows.values[t][rows.places[t]] for t in range(2))
    return x @ theta + (first * second).sum(1)


def _gradient(theta: Any, x: Any, y: Any, rows: Any, out: Any) -> float:
    found = _logits(theta, x, rows)
    slope = (1 / (1 + np.exp(-found)) - y) / len(y)
    out[:] = slope @ x
    for t in range(2):
        other = rows.values[1 - t][rows.places[1 - t]]
        np.add.at(rows.gradients[t], rows.places[t], slope[:, None] * other)
    return float(np.mean(np.logaddexp(0, found) - y * found))


def _external(rows: int) -> Any:
    ids = [models.TableSpec(name, 4, rows) for name in ("first", "second")]
    return models.external(_gradient, dimension=13, features=13, ids=ids, logits=_logits)


MADE: dict[str, Callable[[], Made]] = {
    "cnn": lambda: _images(models.cnn),
    "dcn": lambda: _clicks(models.dcn),
    "deepfm": lambda: _clicks(models.deepfm),
    "dien": lambda: _histories(models.dien),
    "din": lambda: _histories(models.din),
    "dlrm": lambda: _clicks(models.dlrm),
    "dlrm, growing": lambda: _growing(models.dlrm),
    "dlrm, normalised": lambda: _clicks(models.dlrm, norm=models.BatchNorm()),
    "ecommerce": lambda: _histories(models.ecommerce),
    "external": lambda: _clicks(_external),
    "ffm": lambda: _hashed(lambda columns: models.ffm(np.arange(columns) % 3, 2)),
    "fm": lambda: _hashed(lambda columns: models.fm(columns, 2)),
    "lenet": lambda: _images(models.lenet),
    "linear_regression": _regression,
    "linear_svm": lambda: _classes(lambda: models.linear_svm(6)),
    "logistic_regression": lambda: _hashed(models.logistic_regression),
    "mlp": lambda: _classes(lambda: models.mlp(6, [8], 3), 3),
    "softmax_regression": lambda: _classes(lambda: models.softmax_regression(6, 3), 3),
    "wide_deep": lambda: _clicks(models.wide_deep),
    "youtube_dnn": _next_items,
}
"""By the name of the function in ``models``; a variant behind a comma."""


def trained(name: str) -> tuple[lsh.TrainResult, Any, Any]:
    model, data, test = MADE[name]()
    return lsh.train(model, data, until=lsh.until(epochs=1), **CHOICES), data, test


def says(trained: Any, data: Any, test: Any, path: Path) -> dict[str, NDArray[Any]]:
    """All that can be asked of what was trained, its export at ``path`` included; tables are trained
    on where they lie.
    """
    judged = list(trained.evaluate(test).to_json().values())
    said = {"predicted": trained.predict(test), "judged": np.array(judged, float)}
    if trained.model.name == "youtube_dnn":
        said["best"] = trained.top_items(test, 5)
    if trained.model.name not in NOT_EXPORTED:
        said["exported"] = _exported(trained, test, path)
    on = trained.train(data, until=lsh.until(epochs=1), **CHOICES)
    return said | {"trained on": on.parameters, "predicted then": on.model.predict(test)}


def _exported(trained: Any, test: Any, path: Path) -> NDArray[np.float32]:
    """What a program without leashed says."""
    import onnxruntime  # noqa: PLC0415 (an extra)

    trained.export(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    given = dict(_inputs(test))
    (said,) = session.run(None, {each.name: given[each.name] for each in session.get_inputs()})
    return said


def _inputs(test: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    if isinstance(test, SparseDataset):
        x = np.zeros((len(test), test.features), np.float32)
        rows = np.repeat(np.arange(len(test)), np.diff(test.indptr))
        np.add.at(x, (rows, test.indices), test.data)
        yield "x", x
        return
    yield from (("x", test.x), ("dense", test.x))
    if not isinstance(test, ClickDataset):
        yield from ((f"n{j}", column) for j, column in enumerate(test.x.T))
        return
    for f, name in enumerate(test.names):
        column = test.ids[f] if isinstance(test.ids, tuple) else test.ids[:, f]
        if isinstance(column, Bags):
            lengths = np.diff(column.offsets)
            yield f"{name}.lengths", lengths
            places = np.zeros((len(test), lengths.max()), np.int64)
            places[np.arange(lengths.max()) < lengths[:, None]] = column.ids
            yield name, places
        else:
            yield name, np.asarray(column).astype(np.int64)


def _elsewhere(folder: Path) -> None:
    for name, make in MADE.items():
        model, data, test = make()
        at = folder / name
        known = lsh.load(at, model if name == "external" else None)
        np.savez(f"{at}.npz", **says(known, data, test, Path(f"{at}.there.onnx")))


if __name__ == "__main__":
    _elsewhere(Path(sys.argv[1]))
