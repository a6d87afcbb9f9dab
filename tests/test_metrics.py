"""Metrics of clicks against scikit-learn's and plain NumPy; what cannot be told is NaN."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import leashed as lsh
from leashed.metrics import ClickMetrics, auc, calibration, log_loss, normalised_entropy


def drawn(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits with ties, labels that go with them, weights of which some are 0."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-1, 1.5, n).astype(np.float32)
    logits[::3] = np.round(logits[::3])
    labels = (rng.uniform(size=n) < sigmoid(logits)).astype(np.int32)
    return logits, labels, rng.integers(0, 4, n) / 2


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits.astype(np.float64)))


@pytest.mark.parametrize("weighted", [False, True])
def test_auc_and_log_loss_are_those_of_scikit_learn(weighted: bool):
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    for n in (2, 3, 50, 5000):
        logits, labels, weights = drawn(n, n)
        labels[:2] = 0, 1
        weights[:2] = 1
        w = weights if weighted else None
        expected = metrics.roc_auc_score(labels, logits, sample_weight=w)
        assert auc(logits, labels, w) == pytest.approx(expected, abs=1e-12)
        p = sigmoid(logits)
        expected = metrics.log_loss(labels, p, sample_weight=w)
        assert log_loss(p, labels, w) == pytest.approx(expected, rel=1e-9)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans(), st.integers(0, 3)), min_size=1))
def test_auc_is_the_share_of_pairs_in_order(rows: list[tuple[int, bool, int]]):
    won = pairs = 0.0
    for a, click, w in rows:
        for b, other, v in rows:
            if click and not other:
                pairs += w * v
                won += w * v * (1 if a > b else 0.5 if a == b else 0)
    scores, labels, weights = zip(*rows, strict=True)
    got = auc(scores, labels, weights)
    assert got == pytest.approx(won / pairs) if pairs else math.isnan(got)


def test_entropy_and_calibration_are_their_definitions():
    logits, labels, _ = drawn(1000)
    p, y = sigmoid(logits), labels.mean()
    entropy = -y * np.log(y) - (1 - y) * np.log(1 - y)
    loss = -np.mean(labels * np.log(p) + (1 - labels) * np.log(1 - p))
    assert log_loss(p, labels) == pytest.approx(loss)
    assert normalised_entropy(p, labels) == pytest.approx(loss / entropy)
    assert normalised_entropy(np.full(1000, y), labels) == pytest.approx(1)

    assert calibration(p, labels) == pytest.approx(p.sum() / labels.sum())


@pytest.mark.parametrize("rare", [1e-3, 1e-17, 1e-30])
def test_the_entropy_of_a_share_that_rounds_to_one(rare: float):
    for click in (0, 1):
        labels, weights = np.array([1 - click, click]), np.array([1, rare], np.float32)
        share = float(weights[1]) / (1 + float(weights[1]))
        entropy = -share * math.log(share) - (1 - share) * math.log1p(-share)
        found = ClickMetrics()
        found.add([0.0, 0.0], labels, weights)
        expected = pytest.approx(math.log(2) / entropy, rel=1e-6)
        assert found.values().normalised_entropy == expected
        assert normalised_entropy([0.5, 0.5], labels, weights) == expected


def test_the_stream_says_the_same_and_keeps_to_its_bound():
    for weighted in (False, True):
        logits, labels, weights = drawn(20_000)
        w = weights if weighted else None
        parts = [ClickMetrics() for _ in range(3)]
        for i, part in enumerate(parts):
            for begin in range(i * 1000, 20_000, 3000):
                rows = slice(begin, begin + 1000)
                part.add(logits[rows], labels[rows], None if w is None else w[rows])
        for part in parts[1:]:
            parts[0].merge(part)
        values = parts[0].values()
        p = sigmoid(logits)
        assert values.rows == 20_000
        assert abs(values.auc - auc(logits, labels, w)) <= values.auc_error + 1e-12
        assert values.auc_error < 0.01
        assert values.log_loss == pytest.approx(log_loss(p, labels, w))
        assert values.normalised_entropy == pytest.approx(normalised_entropy(p, labels, w))
        assert values.calibration == pytest.approx(calibration(p, labels, w))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 1000, 30_000])
def test_the_stream_is_row_by_row_arithmetic(n: int, weighted: bool):
    rng = np.random.default_rng(n)
    logits = (rng.normal(size=n) * 10.0 ** rng.integers(-30, 3, n)).astype(np.float32)
    logits[rng.uniform(size=n) < 0.1] = 0
    logits[:3] = [np.finfo(np.float32).max, -300, 1e-45][:n]
    labels = (rng.uniform(size=n) < 0.3).astype(np.int32)
    weights = rng.integers(0, 4, n) / 2
    stream = ClickMetrics()
    for rows in np.split(np.arange(n), np.sort(rng.integers(0, n, 5))):  # some have none
        stream.add(logits[rows], labels[rows], weights[rows] if weighted else None)
    values = stream.values()

    w = weights if weighted else np.ones(n)
    z = logits.astype(np.float64)
    small = np.exp(-np.abs(z))
    losses = np.maximum(np.where(labels, -z, z), 0) + np.log1p(small)
    clicks, expected = (w * labels).sum(), (w * np.where(z < 0, small, 1) / (1 + small)).sum()
    assert values.rows == n
    if w.sum():
        assert values.log_loss == pytest.approx((w * losses).sum() / w.sum(), rel=1e-9, abs=0)
    if clicks:
        assert values.calibration == pytest.approx(expected / clicks, rel=1e-9, abs=0)
    if 0 < clicks < w.sum():
        assert abs(values.auc - auc(logits, labels, w)) <= values.auc_error + 1e-12


def test_one_label_alone_leaves_nothing_to_compare():
    p = [0.1, 0.5]
    for y in ([0, 0], [1, 1]):
        assert math.isnan(auc(p, y))
        assert math.isnan(normalised_entropy(p, y))
        stream = ClickMetrics()
        stream.add(p, y)
        values = stream.values()
        assert math.isnan(values.auc)
        assert math.isnan(values.normalised_entropy)
        assert math.isfinite(values.log_loss)
    assert math.isnan(calibration(p, [0, 0]))
    assert calibration(p, [1, 1]) == pytest.approx(0.3)
    assert math.isnan(log_loss(p, [0, 1], [0, 0]))
    nothing = ClickMetrics()
    nothing.add([], [])
    assert nothing.values().rows == 0
    assert math.isnan(nothing.values().log_loss)


def test_certainty_is_right_or_infinitely_wrong():
    assert log_loss([1, 0], [1, 0]) == 0
    assert log_loss([1, 0], [0, 1]) == math.inf
    assert log_loss([1, 0.5], [0, 1], [0, 1]) == pytest.approx(math.log(2))
    assert auc([math.inf, -math.inf, math.inf], [1, 0, 0]) == 0.75
    stream = ClickMetrics()
    stream.add([math.inf, -math.inf], [0, 1])
    assert stream.values().log_loss == math.inf


def test_more_rows_than_a_float_counts():
    stream = ClickMetrics()
    stream.add(np.ones(1000), np.ones(1000, np.int32))
    for _ in range(17):
        stream.merge(stream)  # 2¹⁷ · 1000
    stream.add([2.0, 0.0], [0, 0])
    values = stream.values()
    assert values.rows == 2**17 * 1000 + 2
    assert values.auc == 0.5
    n = 2**25
    scores = np.zeros(n, np.float32)
    labels = np.ones(n, np.int8)
    scores[-1], labels[-1] = 1, 0
    labels[0] = 0
    assert auc(scores, labels) == pytest.approx(0.25, abs=1e-12)


def test_threads_have_streams_of_their_own_at_once():
    logits, labels, _ = drawn(10_000)
    streams = [ClickMetrics() for _ in range(4)]

    def work(stream: ClickMetrics) -> None:
        for begin in range(0, 10_000, 500):
            stream.add(logits[begin : begin + 500], labels[begin : begin + 500])

    threads = [threading.Thread(target=work, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({stream.values() for stream in streams}) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([0.5, math.nan], [0, 1]), ValueError, r"\w+\[1\] is NaN"),
        (([0.5], [0, 1]), ValueError, "labels must have one value for each score"),
        (([], []), ValueError, "labels must have one value for each score, at least 1"),
        (([[0.5, 0.5]], [0]), ValueError, r"must have shape \[n\]"),
        (([0.5, 0.5], [0, 2]), ValueError, r"labels\[1\] is 2"),
        (([0.5, 0.5], [0, 0.5]), ValueError, r"labels\[1\] is 0\.5"),
        (([0.5, 0.5], [0, math.nan]), ValueError, r"labels\[1\] is nan"),
        ((["a"], [0]), TypeError, "real numbers"),
        (([0.5], [0], [1, 2]), ValueError, "weights must have one value"),
        (([0.5], [0], [math.nan]), ValueError, r"weights\[0\] is nan"),
        (([0.5], [0], [-1]), ValueError, r"weights\[0\] is -1"),
    ],
)
@pytest.mark.parametrize("metric", [auc, log_loss, normalised_entropy, calibration, "stream"])
def test_bad_input_is_named(metric: Any, arguments: Any, error: type[Exception], message: str):
    stream = ClickMetrics()
    if metric == "stream" and not len(arguments[0]):
        return  # a part of a stream may be empty
    with pytest.raises(error, match=message):
        (stream.add if metric == "stream" else metric)(*arguments)
    assert stream.values().rows == 0


def test_probabilities_are_told_from_logits():
    for metric in (log_loss, normalised_entropy, calibration):
        with pytest.raises(ValueError, match=r"probabilities\[1\] is 1.5, outside 0 to 1"):
            metric([0.5, 1.5], [0, 1])
    with pytest.raises(TypeError, match="other must be ClickMetrics"):
        ClickMetrics().merge(3)  # type: ignore[arg-type]
    assert lsh.metrics.auc is auc


def test_users_of_large_weights_do_not_swallow_others():
    # Of the light user every pair is in order, of the heavy one none.
    scores, labels, users = [0.1, 0.9, 0.9, 0.1], [0, 1, 0, 1], [1, 1, 0, 0]
    heavy = 1e30
    weights = [1, 1, heavy, heavy]
    for first, w in ((users, weights), ([0, 0, 1, 1], weights)):
        assert lsh.metrics.gauc(scores, labels, first, w) == pytest.approx(1 / heavy, rel=1e-9)
    # Another one who clicks alone counts nowhere.
    found = lsh.metrics.gauc([*scores[:2], 0.5], [0, 1, 1], [1, 1, 0], [1, 1, heavy])
    assert found == pytest.approx(1)
