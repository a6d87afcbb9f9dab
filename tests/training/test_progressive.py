"""Metrics of rows before they are trained on, and GAUC: against plain references."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from made_clicks import clicks, shared, small

import leashed as lsh
from leashed.cli import main
from leashed.metrics import ClickMetrics, Values, auc, gauc, log_loss, progressive

N, BATCH = 400, 16


def plain_gauc(scores: Any, labels: Any, users: Any, weights: Any) -> float:
    """User by user, over all pairs."""
    total = weighed = 0.0
    for user in set(users):
        own = [i for i in range(len(users)) if users[i] == user]
        pairs = won = 0.0
        for i in own:
            for j in own:
                if labels[i] and not labels[j]:
                    w = weights[i] * weights[j]
                    pairs += w
                    won += w * (scores[i] > scores[j]) + w * (scores[i] == scores[j]) / 2
        if pairs:
            weight = sum(weights[i] for i in own)
            total += weight
            weighed += weight * won / pairs
    return weighed / total if total else math.nan


def drawn(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scores with ties, labels, users of very different numbers of rows, weights, some 0."""
    rng = np.random.default_rng(seed)
    users = rng.zipf(1.5, n) % 50 - 3
    scores = np.round(rng.normal(0.1 * (users % 7), 1, n), 1).astype(np.float32)
    labels = (rng.uniform(size=n) < 1 / (1 + np.exp(-scores))).astype(np.int32)
    return scores, labels, users, rng.integers(0, 3, n) / 2


@pytest.mark.parametrize("weighted", [False, True])
def test_gauc_is_the_mean_over_users(weighted: bool) -> None:
    for n in (1, 2, 30, 600):
        scores, labels, users, weights = drawn(n, n)
        w = weights if weighted else None
        expected = plain_gauc(scores, labels, users, weights if weighted else np.ones(n))
        stream = ClickMetrics(kept=n)
        stream.add(scores, labels, w, users)
        assert gauc(scores, labels, users, w) == pytest.approx(expected, nan_ok=True)
        assert gauc(scores, labels, [f"u{u}" for u in users], w) == pytest.approx(
            expected, nan_ok=True
        )
        values = stream.values()
        assert values.gauc == pytest.approx(expected, nan_ok=True)
        assert values.user_share == 1
        assert values.gauc_error == 0 or math.isnan(expected)


def test_of_more_rows_than_are_kept_some_users_tell() -> None:
    rng = np.random.default_rng(5)
    users = rng.integers(0, 5000, 60_000)
    scores = rng.normal(size=60_000) + rng.normal(size=5000)[users]
    labels = rng.uniform(size=60_000) < 1 / (1 + np.exp(-2 * scores + users % 3))
    exact = gauc(scores.astype(np.float32), labels, users)
    streams = [ClickMetrics(kept=8000) for _ in range(2)]
    for i, begin in enumerate(range(0, 60_000, 2000)):
        rows = slice(begin, begin + 2000)
        streams[i % 2].add(scores[rows], labels[rows], users=users[rows])
    streams[0].merge(streams[1])
    values = streams[0].values()
    assert values.user_share in (1 / 8, 1 / 16)
    assert 0 < values.gauc_error < 0.02
    assert abs(values.gauc - exact) < 2 * values.gauc_error
    assert abs(values.auc - exact) > values.gauc_error  # which is another measure


def test_a_million_scores_are_within_the_bound_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    rng = np.random.default_rng(1)
    scores = rng.normal(-1, 2, 10**6).astype(np.float32)
    scores[::2] = np.round(scores[::2], 1)  # ties
    labels = (rng.uniform(size=10**6) < 1 / (1 + np.exp(-scores))).astype(np.int32)
    stream = ClickMetrics()
    for begin in range(0, 10**6, 10_000):
        stream.add(scores[begin : begin + 10_000], labels[begin : begin + 10_000])
    values = stream.values()
    expected = metrics.roc_auc_score(labels, scores)
    assert abs(values.auc - expected) <= values.auc_error
    assert values.auc_error < 2e-3
    assert auc(scores, labels) == pytest.approx(expected, abs=1e-12)


def _clicks(**how: Any) -> tuple[Any, Any]:
    graph = small()
    return graph, clicks(graph, N, **how)


def _dense() -> tuple[Any, Any]:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(N, 5)).astype(np.float32)
    data = lsh.datasets.Dataset.from_arrays(
        x, x[:, 0] + rng.normal(size=N) > 0, weights=rng.integers(0, 3, N)
    )
    layers = (lsh.models.Dense(8), lsh.models.ReLU(), lsh.models.Dense(1))
    return lsh.models.Model((5, 1, 1), layers, loss="log_loss"), data


def _sparse(make: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, 12)) * (rng.uniform(size=(N, 12)) < 0.4)
    offsets = np.append(0, np.cumsum((x != 0).sum(1)))
    y = (x[:, 0] - x[:, 1] + rng.normal(size=N) > 0).astype(np.int32)
    data = lsh.datasets.SparseDataset(
        offsets, np.nonzero(x)[1].astype(np.int32), x[x != 0].astype(np.float32), 12, y, 2
    )
    return make(12), data


def cases() -> list[Any]:
    field_of = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    return [
        pytest.param(_clicks, {}, id="graph"),
        pytest.param(_dense, {}, id="network"),
        pytest.param(_dense, {"mode": lsh.modes.GBA(m=2)}, id="network, by a mode"),
        *(
            pytest.param(lambda make=make: _sparse(make), {"discipline": discipline}, id=name)
            for name, make, discipline in (
                ("linear", lsh.models.logistic_regression, lsh.Hogwild()),
                ("linear, whole", lsh.models.logistic_regression, lsh.Leashed()),
                ("fm", lambda n: lsh.models.fm(n, 4), lsh.Hogwild(copy=False)),
                (
                    "ffm",
                    lambda _: lsh.models.ffm(field_of, 2),
                    lsh.Hogwild(),
                ),
            )
        ),
    ]


def run(model: Any, data: Any, **changes: Any) -> lsh.TrainResult:
    arguments: dict[str, Any] = {
        "until": lsh.until(epochs=1),
        "rule": lsh.SGD(0.1),
        "threads": 1,
        "batch_size": BATCH,
        "seed": 3,
    }
    return lsh.train(model, data, **{**arguments, **changes})


@pytest.mark.parametrize(("make", "how"), cases())
def test_bits_are_the_same_with_and_without(make: Any, how: dict[str, Any]) -> None:
    model, data = make()
    users = np.arange(N) % 9
    plain = run(model, data, **how)
    counted = run(model, data, observe=lsh.Observe(metrics=progressive(gauc=users)), **how)
    assert np.array_equal(plain.parameters, counted.parameters)
    for name in plain.tables:
        ids = np.arange(12)
        assert np.array_equal(plain.tables[name].lookup(ids), counted.tables[name].lookup(ids))
    assert plain.metrics is None
    assert counted.metrics is not None
    assert counted.metrics.total[-1].rows == N


@pytest.mark.parametrize(("make", "how"), cases())
def test_of_parameters_that_stay_it_is_their_validation(make: Any, how: dict[str, Any]) -> None:
    model, data = make()
    users = np.arange(N) % 9
    result = run(
        model,
        data,
        rule=lsh.SGD(1e-30),
        observe=lsh.Observe(metrics=progressive(gauc=users)),
        threads=2,
        **how,
    )
    if result.tables:
        p = model.predict(result.parameters, data, result.tables)
    elif isinstance(data, lsh.datasets.SparseDataset):
        p = model.predict(result.parameters, data)
    else:
        p = model.predict(result.parameters, data.x)
    p = np.asarray(p, np.float64).ravel()
    assert result.metrics is not None
    total = result.metrics.total[-1]
    assert total.rows == N
    assert abs(total.auc - auc(p, data.y, data.weights)) <= total.auc_error + 1e-6
    assert total.log_loss == pytest.approx(log_loss(p, data.y, data.weights), rel=1e-4)
    assert total.gauc == pytest.approx(gauc(p, data.y, users, data.weights), abs=2e-3)
    assert abs(result.auc[-1] - total.auc) <= 2 * total.auc_error + 1e-6


@pytest.mark.parametrize("threads", [1, 3])
def test_windows_are_parts_of_the_whole(threads: int) -> None:
    graph = shared()
    data = clicks(graph, 2000, kind="bags")
    seen: list[lsh.train.Progress] = []  # type: ignore[name-defined]
    result = run(
        graph,
        data,
        until=lsh.until(epochs=5),
        rule=lsh.Adagrad(0.1),
        threads=threads,
        observe=lsh.Observe(seen.append, metrics=progressive(gauc=np.arange(2000) % 30)),
    )
    scored = result.metrics
    assert scored is not None
    assert sum(one.rows for one in scored.window) == scored.total[-1].rows == result.examples
    assert [one.rows for one in scored.total] == np.cumsum([w.rows for w in scored.window]).tolist()
    assert all(one.rows % BATCH == 0 for one in scored.window)
    assert scored.total[-1].auc > 0.6
    assert scored.total[-1].users == 30
    told = [now.total for now in seen if now.total is not None]
    assert told == list(scored.total)
    again = lsh.TrainResult.from_json(result.to_json())
    assert again.metrics is not None
    assert again.metrics.windows() == scored.windows()
    assert isinstance(again.metrics.total[-1], Values)
    assert "progressive AUC" in repr(result)


def test_a_feature_tells_the_user_and_a_label_alone_nothing() -> None:
    graph, data = _clicks(kind="bags")
    column = data.ids[0]
    result = run(graph, data, observe=lsh.Observe(metrics=progressive(gauc="C1")))
    assert result.metrics is not None
    assert 0 < result.metrics.total[-1].users <= len(np.unique(column))
    clicked = lsh.datasets.ClickDataset.from_arrays(
        data.x, dict(zip(data.names, data.ids, strict=True)), np.ones(N)
    )
    only = run(graph, clicked, observe=lsh.Observe(metrics=progressive(gauc="C1")))
    assert only.metrics is not None
    last = only.metrics.total[-1]
    assert math.isnan(last.auc)
    assert math.isnan(last.gauc)
    assert last.users == 0
    assert math.isfinite(last.log_loss)


def test_what_cannot_be_counted_is_named() -> None:
    graph, data = _clicks(kind="bags")
    for metrics, error, message in (
        (True, TypeError, "metrics must be leashed.metrics.progressive"),
        (progressive(gauc="user"), ValueError, "has no feature 'user'; choose one of C1"),
        (progressive(gauc=data.names[-1]), TypeError, "any number of ids"),
        (progressive(gauc=[0.5] * N), TypeError, "users must be whole numbers"),
        (progressive(gauc=[1, 2]), ValueError, "one for each of the 400 rows"),
    ):
        with pytest.raises(error, match=message):
            run(graph, data, observe=lsh.Observe(metrics=metrics))
    with pytest.raises(ValueError, match="kept must be"):
        progressive(kept=0)
    dense = lsh.datasets.synthetic_digits(200, test=50)
    with pytest.raises(ValueError, match="one output with the loss log_loss"):
        run(lsh.models.mlp(784, [8], 10), dense, observe=lsh.Observe(metrics=progressive()))
    model, given = _dense()
    with pytest.raises(TypeError, match="names a feature of a ClickDataset"):
        run(model, given, observe=lsh.Observe(metrics=progressive(gauc="C1")))
    with pytest.raises(ValueError, match="users must be given with each add"):
        ClickMetrics().add([0.1], [1], users=[1])
    with pytest.raises(ValueError, match="users must be given with each add"):
        ClickMetrics(kept=5).add([0.1], [1])
    with pytest.raises(ValueError, match="other must know users"):
        ClickMetrics(kept=5).merge(ClickMetrics())
    with pytest.raises(ValueError, match="users must have one for each score"):
        gauc([0.1], [1], [1, 2])


def test_the_command_line_tells_them(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    page = tmp_path / "page.html"
    arguments = ["train", "--model", "dlrm", "--rows", "2000", "--epochs", "1", "--gauc", "C3"]
    assert main([*arguments, "--json-lines", "--report", str(page)]) == 0
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[-2]["total"]["rows"] == lines[-1]["metrics"][-1]["total"]["rows"] > 0
    assert "GAUC" in err
    assert "before they were trained on" in page.read_text("utf-8")
