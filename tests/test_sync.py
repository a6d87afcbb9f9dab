"""What synchronisers are told, and refuse; what they do is tested where they do it."""

from __future__ import annotations

import numpy as np
import pytest

import leashed as lsh
from leashed import sync


@pytest.mark.parametrize(
    ("made", "choice"),
    [
        (sync.EASGD(alpha=0.25), ("easgd", {"alpha": 0.25, "symmetric": 0.0})),
        (sync.EASGD(alpha=1, symmetric=True), ("easgd", {"alpha": 1.0, "symmetric": 1.0})),
        (sync.MA(alpha=0), ("ma", {"alpha": 0.0, "difference": 0.0})),
        (sync.MA(difference=True), ("ma", {"alpha": 0.3, "difference": 1.0})),
        (
            sync.BMUF(alpha=0.5, eta=2, momentum=0.25, nesterov=True, difference=True),
            (
                "bmuf",
                {"alpha": 0.5, "eta": 2.0, "momentum": 0.25, "nesterov": 1.0, "difference": 1.0},
            ),
        ),
        (
            sync.diloco(iterations=7),
            (
                "bmuf",
                {"alpha": 1.0, "eta": 0.7, "momentum": 0.9, "nesterov": 1.0, "difference": 0.0},
            ),
        ),
    ],
)
def test_what_reaches_the_core(made: sync.Synchroniser, choice: object) -> None:
    assert made.choice() == choice
    assert made.custom() is None


def test_names_are_the_papers() -> None:
    assert sync.EASGD().label == "S-EASGD"
    assert sync.EASGD(when=sync.every(iterations=5)).label == "FR-EASGD-5"
    assert sync.MA(when=sync.every(seconds=60)).label == "FR-MA-60s"
    varying = sync.every(iterations={2000: 30, 0: 100})
    assert varying.gaps == {0: 100, 2000: 30}
    assert sync.BMUF(when=varying).label == "FR-BMUF-100/30"
    assert set(sync.SYNCHRONISERS) == {"easgd", "ma", "bmuf", "diloco"}


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: sync.EASGD(alpha=1.5), ValueError, "alpha must be from 0 to 1"),
        (lambda: sync.EASGD(alpha=float("nan")), ValueError, "alpha"),
        (lambda: sync.EASGD(symmetric=1), TypeError, "symmetric must be True or False"),
        (lambda: sync.MA(alpha="half"), TypeError, "alpha must be a number"),
        (lambda: sync.MA(difference=1), TypeError, "difference must be True or False"),
        (lambda: sync.BMUF(difference=0.5), TypeError, "difference must be True or False"),
        (lambda: sync.BMUF(eta=0), ValueError, "eta"),
        (lambda: sync.BMUF(momentum=1), ValueError, "momentum must be from 0 to below 1"),
        (lambda: sync.MA(parts=0), ValueError, "parts must be at least 1"),
        (lambda: sync.MA(when="background"), TypeError, r"when must be background\(\)"),
        (lambda: sync.MA(compression="gzip"), ValueError, "compression must be one of"),
        (sync.every, ValueError, "either iterations or seconds"),
        (lambda: sync.every(5, 5.0), ValueError, "either iterations or seconds"),
        (lambda: sync.every(iterations=0), ValueError, "iterations must be at least 1"),
        (lambda: sync.every(iterations=2.5), TypeError, "iterations must be a whole number"),
        (lambda: sync.every(seconds=-1), ValueError, "seconds"),
        (lambda: sync.every(iterations={5: 5}), ValueError, "from iteration 0 on"),
    ],
)
def test_what_is_wrong_is_named(make: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()  # type: ignore[operator]


def test_one_of_ones_own() -> None:
    class Half(sync.Synchroniser):
        def mix(self, theta, other, members):  # type: ignore[no-untyped-def]
            theta += (other - theta) / members

    class FromServers(Half):
        SERVERS = True
        alpha = 0.25

    assert Half().choice() == ("custom_mean", {})
    assert FromServers().choice() == ("custom_servers", {"alpha": 0.25})
    theta, other = np.zeros(2, np.float32), np.ones(2, np.float32)
    Half().custom()(theta, other, 2)
    np.testing.assert_array_equal(theta, 0.5)
    assert Half(when=sync.every(iterations=3)).label == "FR-Half-3"
    with pytest.raises(TypeError, match="needs a method mix"):
        sync.Synchroniser().custom()


def test_train_says_what_goes_with_what() -> None:
    data = lsh.datasets.synthetic_digits(n=64, test=1).train
    mlp = lsh.models.mlp(784, [4], 10)
    until = lsh.until(epochs=1)
    with pytest.raises(TypeError, match=r"cluster must come from leashed.cluster.join\(\)"):
        lsh.train(mlp, data, until=until, cluster=3)  # type: ignore[arg-type]
