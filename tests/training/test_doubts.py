"""Data at another scale, or of another shape, than models learn from: taken as they should be, refused,
or told once with the remedy.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from warned import once

import leashed as lsh
from leashed.datasets import Bags, ClickDataset, Dataset, SparseDataset, synthetic_digits
from leashed.models import Conv2d, Dense, Model, ReLU

ONCE = lsh.until(epochs=1)
IMAGES = synthetic_digits().train.head(512)
PIXELS = np.round(IMAGES.x.reshape(-1, 28, 28) * 255).astype(np.uint8)


def train(model: Any, data: Any, **given: Any) -> lsh.TrainResult:
    return lsh.train(model, data, **{"until": ONCE, "threads": 1, **given})


def told(model: Any, data: Any, **given: Any) -> tuple[lsh.TrainResult, list[str]]:
    """A result, and what warnings said, each of this file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = train(model, data, **given)
    assert all(w.filename == __file__ and w.category is RuntimeWarning for w in caught)
    return result, [str(w.message) for w in caught]


@pytest.mark.parametrize("shape", [(28, 28), (1, 28, 28)])
def test_images_of_bytes_are_divided_by_255(shape: tuple[int, ...]) -> None:
    images = PIXELS.reshape(-1, *shape)
    data = Dataset.from_arrays(images, IMAGES.y)
    expected = np.divide(PIXELS.reshape(-1, 784), np.float32(255), dtype=np.float32)
    np.testing.assert_array_equal(data.x, expected)
    model = lsh.models.cnn()
    result = train(model, data)
    np.testing.assert_array_equal(
        model.predict(result.parameters, images), model.predict(result.parameters, expected)
    )
    by_shape = Dataset.from_arrays(PIXELS.reshape(-1, 784), IMAGES.y, image_shape=(1, 28, 28))
    np.testing.assert_array_equal(by_shape.x, expected)


def test_what_is_no_image_of_bytes_stays_as_it_is() -> None:
    rows = PIXELS.reshape(-1, 784)
    np.testing.assert_array_equal(Dataset.from_arrays(rows, IMAGES.y).x, rows)
    for dtype in (np.float32, np.int16):
        images = PIXELS.astype(dtype)
        np.testing.assert_array_equal(
            Dataset.from_arrays(images, IMAGES.y).x, rows.astype(np.float32)
        )
    np.testing.assert_array_equal(Dataset.regression(rows, IMAGES.y).x, rows)


def test_bytes_and_floats_are_of_one_scale() -> None:
    model, floats = lsh.models.cnn(), PIXELS.astype(np.float32)
    unit, wide = Dataset.from_arrays(PIXELS, IMAGES.y), Dataset.from_arrays(floats, IMAGES.y)
    within = train(model, unit).parameters
    begun = {"init": model.init() / 100, "rule": lsh.SGD(1e-6)}
    beyond = train(model, wide, **begun).parameters
    remedy = "images of dtype uint8 are divided by 255"
    for refused in (
        lambda: model.predict(within, floats),
        lambda: model.predict(within, PIXELS.reshape(-1, 784)),
        lambda: model.predict(within, floats[:1]),
        lambda: model.evaluate(within, wide),
        lambda: model.predict(beyond, PIXELS),
        lambda: model.evaluate(beyond, unit),
        lambda: train(model, wide, validation=unit, **begun),
        lambda: train(model, unit, validation=wide),
    ):
        with pytest.raises(ValueError, match=remedy):
            refused()
    model.predict(within, np.zeros((1, 28, 28), np.uint8))
    model.predict(beyond, np.zeros((1, 28, 28), np.uint8))
    model.predict(beyond, PIXELS.reshape(-1, 784))


def test_dark_images_tell_no_scale() -> None:
    model, floats = lsh.models.cnn(), PIXELS.astype(np.float32)
    wide = Dataset.from_arrays(floats, IMAGES.y)
    begun = {"init": model.init() / 100, "rule": lsh.SGD(1e-6)}
    theta = train(model, wide, **begun).parameters
    dark = np.minimum(floats[:1], 1)
    one = Dataset.from_arrays(dark, IMAGES.y[:1], 10)
    model.predict(theta, dark)
    model.evaluate(theta, one)
    train(model, wide, validation=one, **begun)
    onward = train(model, one, init=theta, rule=lsh.SGD(0.0)).parameters
    model.predict(onward, floats)
    brighter = np.full((1, 28, 28), 2.0)
    model.predict(train(model, Dataset.from_arrays(PIXELS, IMAGES.y)).parameters, brighter)


COLOURS = np.random.default_rng(0).random((32, 8, 8, 3), np.float32)
LABELS = np.arange(32) % 2


def colourful() -> Model:
    return Model((3, 8, 8), (Conv2d(2, 3), ReLU(), Dense(2)))


def test_channels_that_come_last_are_refused() -> None:
    model, last = colourful(), Dataset.from_arrays(COLOURS, LABELS)
    first = Dataset.from_arrays(COLOURS.transpose(0, 3, 1, 2), LABELS)
    remedy = r"images are \(8, 8, 3\).*takes \(3, 8, 8\).*x\.transpose\(0, 3, 1, 2\)"
    result = train(model, first, batch_size=8)
    for refused in (
        lambda: train(model, last),
        lambda: train(model, first, validation=last, batch_size=8),
        lambda: model.evaluate(result.parameters, last),
        lambda: model.predict(result.parameters, COLOURS),
    ):
        with pytest.raises(ValueError, match=remedy):
            refused()
    model.evaluate(result.parameters, first)
    model.predict(result.parameters, COLOURS.transpose(0, 3, 1, 2))
    model.predict(result.parameters, first.x)


def test_a_network_of_flat_rows_keeps_the_shape_that_it_was_trained_on() -> None:
    model = lsh.models.mlp(192, [4], 2)
    last = Dataset.from_arrays(COLOURS, LABELS)
    result = train(model, last, batch_size=8)
    model.predict(result.parameters, COLOURS)
    model.predict(result.parameters, last.x)
    first = COLOURS.transpose(0, 3, 1, 2)
    with pytest.raises(ValueError, match=r"images are \(3, 8, 8\).*not \(8, 8, 3\)"):
        model.predict(result.parameters, first)
    with pytest.raises(ValueError, match=r"images are \(3, 8, 8\).*not \(8, 8, 3\)"):
        model.evaluate(result.parameters, Dataset.from_arrays(first, LABELS))


def test_one_channel_may_stand_anywhere() -> None:
    model = lsh.models.cnn()
    result = train(model, IMAGES)
    images = IMAGES.x.reshape(-1, 28, 28, 1)
    np.testing.assert_array_equal(
        model.predict(result.parameters, images), model.predict(result.parameters, IMAGES.x)
    )


def test_a_loss_that_begins_far_above_chance_is_told_once() -> None:
    rows = PIXELS.reshape(-1, 784)
    with once("far above 2.3, which is chance; bring the features into a range") as caught:
        train(lsh.models.mlp(784, [16], 10), (rows, IMAGES.y), threads=2)
    message = str(caught[0].message)
    assert message.startswith("the loss began at ")
    assert "far above 2.3, which is chance; bring the features into a range around 1" in message
    assert "images x / 255 (the largest value is 255" in message


@pytest.mark.parametrize("model", ["logistic_regression", "linear_svm", "softmax_regression"])
def test_numbers_in_cents_are_told_by_their_name(model: str) -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=(200, 3))
    x[:, 1] *= 100_000
    y = (x[:, 0] > 0).astype(int)
    made = getattr(lsh.models, model)
    of = made(3, 2)
    result, said = told(of, Dataset.from_arrays(x, y, names=["age", "price", "height"]))
    (message,) = said
    assert result.outcome == "stopped"
    assert f"the largest value is {np.abs(x).max():g}, in 'price'" in message
    _, said = told(of, SparseDataset.from_csr(_csr(x), y), discipline=lsh.Sequential())
    (message,) = said
    assert message.startswith("the loss began at ")


def _csr(x: np.ndarray) -> Any:
    n, features = x.shape

    class Rows:
        indptr, indices = np.arange(n + 1) * features, np.tile(np.arange(features), n)
        data, shape = x.reshape(-1), x.shape

    return Rows()


def test_weights_do_not_make_a_loss_large() -> None:
    weights = np.full(len(IMAGES), 1_000.0)
    data = Dataset.from_arrays(IMAGES.x, IMAGES.y, weights=weights)
    assert told(lsh.models.mlp(784, [16], 10), data, rule=lsh.SGD(1e-6))[1] == []


def test_parameters_of_another_training_are_not_judged_by_their_first_loss() -> None:
    model = lsh.models.mlp(784, [16], 10)
    theta = 1_000 * model.init()
    assert told(model, IMAGES, init=theta, rule=lsh.SGD(0.0))[1] == []


@pytest.mark.parametrize("how", ["discipline", "mode", "simulated", "tables"])
def test_a_crash_is_told_once_with_the_remedy(how: str) -> None:
    random = np.random.default_rng(1)
    x, y = 1e6 * random.normal(size=(200, 3)), random.normal(size=200)
    data, model = Dataset.regression(x, y, names=["a", "b", "c"]), lsh.models.linear_regression(3)
    given: dict[str, Any] = {"rule": lsh.SGD(0.05), "until": lsh.until(epochs=30)}
    if how == "mode":
        given["mode"] = lsh.modes.ASP()
    if how == "tables":
        clicks = ClickDataset.from_arrays(1e30 * x, random.integers(0, 9, (200, 2)), y > 0)
        graph = lsh.models.deepfm(9, 4, 3, (4,), categories=2)
        result, said = told(graph, clicks, **given)
    elif how == "simulated":
        cluster = lsh.simulation.constant(2, 1.0)
        with pytest.warns(RuntimeWarning) as caught:
            result = lsh.simulate(model, data, cluster=cluster, **given).result
        said = [str(w.message) for w in caught]
    else:
        result, said = told(model, data, **given)
    assert result.outcome == "crashed"
    (message,) = said
    assert message.startswith(f"the training crashed after {result.total_updates:,} updates: ")
    assert "bring the features into a range around 1" in message
    assert message.endswith(" or lower the learning rate of SGD, 0.05")
    assert (", in 'b')" in message or ", in 'a')" in message or ", in 'c')" in message) == (
        how != "tables"
    )


def test_a_crash_by_too_large_a_step_alone_names_that_alone() -> None:
    with once(" updates: a loss, a gradient or parameters were not finite; lower") as caught:
        result = train(lsh.models.mlp(784, [16], 10), IMAGES, rule=lsh.SGD(1e30))
    assert result.outcome == "crashed"
    assert str(caught[0].message).endswith("were not finite; lower the learning rate of SGD, 1e+30")


def histories(history: Any) -> ClickDataset:
    random = np.random.default_rng(0)
    ids = {name: random.integers(0, 5, 64) for name in ("user", "item", "category", "advertiser")}
    return ClickDataset.from_arrays(
        random.normal(size=(64, 1)), {**ids, "device": history}, np.arange(64) % 2
    )


def din() -> Any:
    return lsh.models.din(5, 5, 5, 4, attention=(4,), hidden=(4,), longest=3)


def test_a_column_of_one_id_a_row_is_no_history() -> None:
    random = np.random.default_rng(0)
    data = histories(random.integers(0, 5, 64))
    with once("model din reads 'advertiser', 'device' as sequences, of which each row has one id"):
        train(din(), data)
    bags = Bags(random.integers(0, 5, 128), np.arange(65) * 2)
    (message,) = told(din(), histories(bags))[1]
    assert "model din reads 'advertiser' as" in message
    columns = dict(zip(data.names, data.ids, strict=True))
    both = {**columns, "advertiser": bags, "device": bags}
    assert told(din(), ClickDataset.from_arrays(data.x, both, data.y))[1] == []
    plain = np.stack(list(columns.values()), 1)
    assert told(din(), ClickDataset.from_arrays(data.x, plain, data.y))[1] == []


def test_a_column_that_is_no_history_is_told_of_on_the_first_day_alone(tmp_path: Path) -> None:
    data = histories(np.zeros(64, int))
    given: dict[str, Any] = {"folder": tmp_path / "run", "threads": 1, "batch_size": 8}
    with once("as sequences, of which each row has one id"):
        lsh.continual(din(), {"a": data, "b": data}, **given)
    lsh.continual(din(), {"a": data, "b": data, "c": data}, **given)
