import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from leashed.datasets import Dataset, Split, synthetic_digits


@pytest.fixture(scope="module")
def digits() -> Split:
    return synthetic_digits(4000, seed=0, test=1000)


def test_images_look_like_mnist_to_the_engine(digits: Split) -> None:
    for data, n in ((digits.train, 4000), (digits.test, 1000)):
        assert data.x.shape == (n, 784)
        assert data.image_shape == (1, 28, 28)
        assert data.classes == 10
        assert (np.bincount(data.y) == n // 10).all()
        assert (data.x.min(), data.x.max()) == (0, 1)
        levels = data.x * 255
        np.testing.assert_allclose(levels, np.rint(levels), atol=1e-4)
        assert data.x.mean() == pytest.approx(0.16, abs=0.01)


@pytest.mark.parametrize("n", [1, 7, 199, 200, 201, 613])
def test_an_image_depends_on_seed_and_index_alone(digits: Split, n: int) -> None:
    train, test = synthetic_digits(n, seed=0, test=n)
    np.testing.assert_array_equal(train.x, digits.train.x[:n])
    np.testing.assert_array_equal(train.y, digits.train.y[:n])
    np.testing.assert_array_equal(test.x, digits.test.x[:n])
    np.testing.assert_array_equal(test.y, digits.test.y[:n])


def test_seeds_and_the_two_parts_differ(digits: Split) -> None:
    other = synthetic_digits(200, seed=2**64 - 1, test=1)
    assert other.train.name == "synthetic_digits(seed=18446744073709551615)/train"
    images = np.concatenate([digits.train.x, digits.test.x, other.train.x])
    assert len(np.unique(images, axis=0)) == len(images)
    assert (other.train.y != digits.train.y[:200]).any()


def test_the_stream_is_the_one_that_was_published(digits: Split) -> None:
    """Rounding may move a pixel by 1/255 between machines, nothing else may."""
    assert digits.train.y[:12].tolist() == [2, 0, 4, 9, 3, 2, 9, 1, 1, 3, 5, 7]
    ink = (digits.train.x[:6] * 255).sum(axis=1)
    np.testing.assert_allclose(ink, [44049, 49260, 40022, 37488, 34921, 37717], atol=20)


def test_every_class_is_drawn_in_several_ways(digits: Split) -> None:
    x, y = digits.train.x, digits.train.y
    for label in range(10):
        assert x[y == label].std(axis=0).mean() > 0.1


def test_a_thousand_images_take_a_fraction_of_a_second() -> None:
    start = time.process_time()
    synthetic_digits(1000, seed=1, test=1)
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n": 0}, ValueError, "n must be at least 1"),
        ({"n": -1}, ValueError, "n must be at least 1"),
        ({"test": 0}, ValueError, "test must be at least 1"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
        ({"seed": 2**64}, ValueError, "seed must be at most"),
        ({"n": 10.0}, TypeError, "n must be a whole number"),
        ({"seed": None}, TypeError, "seed must be a whole number"),
        ({"test": "5"}, TypeError, "test must be a whole number"),
        ({"n": True}, TypeError, "n must be a whole number"),
    ],
)
def test_bad_arguments_are_named(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        synthetic_digits(**arguments)


def accuracy(split: Split, hidden: int | None, epochs: int = 12, step: float = 0.1) -> float:
    """Test accuracy of softmax regression, or of one hidden ReLU layer, after plain SGD."""
    generator = np.random.default_rng(0)
    sizes = [784, 10] if hidden is None else [784, hidden, 10]
    weights = [
        (generator.standard_normal((a, b)) * np.sqrt(2 / a)).astype(np.float32)
        for a, b in pairwise(sizes)
    ]
    biases = [np.zeros(b, np.float32) for b in sizes[1:]]

    def forward(x: np.ndarray) -> list[np.ndarray]:
        outputs = [x, x @ weights[0] + biases[0]]
        if hidden is not None:
            outputs[1] = np.maximum(outputs[1], 0)
            outputs.append(outputs[1] @ weights[1] + biases[1])
        return outputs

    train: Dataset = split.train
    for _ in range(epochs):
        for batch in np.split(generator.permutation(len(train)), len(train) // 50):
            outputs = forward(train.x[batch])
            scores = np.exp(outputs[-1] - outputs[-1].max(axis=1, keepdims=True))
            error = scores / scores.sum(axis=1, keepdims=True)
            error[np.arange(len(batch)), train.y[batch]] -= 1
            error /= len(batch)
            for layer in reversed(range(len(weights))):
                below = error @ weights[layer].T * (outputs[layer] > 0)
                weights[layer] -= step * (outputs[layer].T @ error)
                biases[layer] -= step * error.sum(axis=0)
                error = below
    return float((forward(split.test.x)[-1].argmax(axis=1) == split.test.y).mean())


def test_a_linear_model_stays_clearly_behind_an_mlp(digits: Split) -> None:
    linear, mlp = accuracy(digits, None), accuracy(digits, 128)
    assert 0.6 < linear < 0.86
    assert mlp > 0.9
    assert mlp - linear > 0.08
