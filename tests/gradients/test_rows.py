"""Gradients from outside that read rows of tables, in Python, C, Numba and Cython: they follow the
graph of the same model.
"""

from __future__ import annotations

import ctypes
import gc
import signal
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_clicks import ROWS, clicks
from numpy.typing import NDArray
from rows_models import (
    IDS,
    ITEM,
    ITEMS,
    OTHER,
    OTHERS,
    Array,
    D,
    c_function,
    c_library,
    external,
    graph,
    numba_gradient,
    python_gradient,
    python_logits,
    python_loss,
)

import leashed as lsh
from leashed import gradients, staleness
from leashed.datasets import Bags, ClickDataset
from leashed.models import BatchRows, External, TableSpec, tables

BATCH, SEED = 8, 5
GRAPH = graph()
LABELS = NDArray[np.int32]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return c_library(tmp_path_factory.mktemp("rows"))


@pytest.fixture(params=["python", "c", "numba"])
def model(request: pytest.FixtureRequest, library: ctypes.CDLL) -> External:
    if request.param == "python":
        return external(python_gradient, loss=python_loss, logits=python_logits)
    if request.param == "c":
        f = c_function(library)
        return external(f, loss=f, logits=f, workspace_bytes=8)
    pytest.importorskip("numba", reason="Numba is optional")
    return external(numba_gradient(), logits=c_function(library))


def run(model: Any, data: ClickDataset, **changes: Any) -> lsh.TrainResult:
    arguments: dict[str, Any] = {
        "until": lsh.until(updates=50),
        "rule": lsh.SGD(0.1),
        "threads": 1,
        "batch_size": BATCH,
        "seed": SEED,
    }
    if "init" not in changes:
        rule = changes.get("rule", lsh.SGD(0.1))
        made = tables.of(GRAPH.tables, rule=rule, init=tables.normal(0.4), seed=SEED)
        arguments["init"] = lsh.Init(GRAPH.init(SEED), made)
    return lsh.train(model, data, **{**arguments, **changes})


def everything(result: lsh.TrainResult) -> list[Any]:
    rows = [table.lookup(np.arange(ROWS)) for table in result.tables.values()]
    return [result.parameters, *rows]


def check_close(got: lsh.TrainResult, wanted: lsh.TrainResult, atol: float = 1e-4) -> None:
    for one, other in zip(everything(got), everything(wanted), strict=True):
        np.testing.assert_allclose(one, other, atol=atol, rtol=0)


@pytest.mark.parametrize("kind", ["one", "bags", "weights"])
@pytest.mark.parametrize("rule", [lsh.SGD(0.1), lsh.Adagrad(0.05)], ids=["sgd", "adagrad"])
def test_it_follows_the_graph_for_50_steps(model: External, rule: lsh.Rule, kind: str) -> None:
    data = clicks(GRAPH, 300, kind)
    for updates in (1, 2, 50):
        wanted = run(GRAPH, data, rule=rule, until=lsh.until(updates=updates))
        got = run(model, data, rule=rule, until=lsh.until(updates=updates), validation=data)
        check_close(got, wanted)
        np.testing.assert_allclose(got.loss[[0, -1]], wanted.loss[[0, -1]], atol=1e-4)
        for ours, theirs in zip(got.tables.values(), wanted.tables.values(), strict=True):
            assert ours.statistics() == theirs.statistics()
    np.testing.assert_allclose(got.validation_auc[-1], got.auc[-1])
    np.testing.assert_allclose(got.auc[-1], wanted.auc[-1], atol=1e-3)


def test_synchronous_threads_follow_the_graphs(model: External) -> None:
    """Every row's gradients folded in the workers' order."""
    data = clicks(GRAPH, 300, "weights")
    settings: dict[str, Any] = {"discipline": lsh.Synchronous(), "threads": 3}
    got = run(model, data, **settings)
    check_close(got, run(GRAPH, data, **settings))
    for one, other in zip(everything(got), everything(run(model, data, **settings)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("threads", [1, 3])
def test_it_trains_under_every_discipline(
    library: ctypes.CDLL, discipline: lsh.Discipline, threads: int
) -> None:
    if isinstance(discipline, lsh.Sequential) and threads > 1:
        pytest.skip("one thread alone")
    f = c_function(library)
    data = clicks(GRAPH, 400, "bags")
    for model in (external(f, logits=f), external(python_gradient, logits=python_logits)):
        result = run(
            model,
            data,
            discipline=discipline,
            threads=threads,
            rule=lsh.Adagrad(0.1),
            until=lsh.until(epochs=10),
        )
        assert result.loss[-1] < 0.7 * result.loss[0]
        assert result.auc[-1] > 0.85
        assert all(t.statistics()["applied"] > 0 for t in result.tables.values())


def test_rows_have_a_policy_of_their_own(library: ctypes.CDLL) -> None:
    data = clicks(GRAPH, 400)
    result = run(
        external(c_function(library)),
        data,
        threads=3,
        staleness=staleness.cutoff(0),
        until=lsh.until(epochs=10),
    )
    assert all(t.statistics()["excluded"] == 0 for t in result.tables.values())


def test_growing_tables_and_none_but_ids(library: ctypes.CDLL) -> None:
    """A model without numbers, over a table that grows, of which ids come that are negative."""
    spec = TableSpec("grows", 4)

    def gradient(theta: Array, x: Array, y: LABELS, rows: BatchRows, out: Array) -> float:
        assert x.shape == (len(y), 0)
        o = rows.values[0][rows.places[0]].sum(1) + theta[0]
        slope = ((0.5 + 0.5 * np.tanh(o / 2)) - y).astype(np.float32) / len(y)
        out[0] = slope.sum()
        np.add.at(rows.gradients[0], rows.places[0], slope[:, None])
        return float(np.mean(np.logaddexp(0, o) - y * o))

    random = np.random.default_rng(0)
    ids = random.integers(-(2**63), 2**63, 20)[random.integers(0, 20, 400)]
    data = ClickDataset.from_arrays(None, ids[:, None], ids % 2)
    model = external(gradient, dimension=1, features=0, ids=[spec])
    result = run(model, data, init=lsh.Init("he", tables=None), rule=lsh.Adagrad(0.3), threads=2)
    assert result.loss[-1] < 0.5 * result.loss[0]
    assert result.tables["grows"].statistics()["rows"] == 22


def test_evaluate_and_predict_read_only(model: External) -> None:
    data = clicks(GRAPH, 600, "weights")
    result = run(GRAPH, data)
    before = [t.statistics() for t in result.tables.values()]
    theta = result.parameters
    wanted = GRAPH.evaluate(theta, data, result.tables)
    assert model.evaluate(theta, data, result.tables) == pytest.approx(wanted.loss, abs=1e-5)
    predicted = model.predict(theta, data, result.tables)
    assert predicted.dtype == np.float32
    np.testing.assert_allclose(predicted, GRAPH.predict(theta, data, result.tables), atol=1e-5)
    assert [t.statistics() for t in result.tables.values()] == before


def test_counts_tell_the_distinct_rows(library: ctypes.CDLL) -> None:
    data = clicks(GRAPH, 30)
    new = tables.of(GRAPH.tables, init=tables.constant(1.0))
    read = external(c_function(library), loss=c_function(library, "rows_read"))
    items = len(np.unique(data.ids[:, :2]))  # type: ignore[index]
    others = len(np.unique(data.ids[:, 2]))  # type: ignore[index]
    assert read.evaluate(np.zeros(D), data, new) == items * ITEM + others * OTHER


def test_what_a_callable_is_given() -> None:
    data = clicks(GRAPH, 60, "bags")
    seen = 0

    def look(theta: Array, x: Array, y: LABELS, rows: BatchRows, out: Array) -> float:
        nonlocal seen
        n = len(y)
        seen += n == BATCH
        assert (theta.shape, x.shape, out.shape) == ((D,), (n, 3), (D,))
        assert [v.shape[1] for v in rows.values] == [ITEM, OTHER]
        assert [g.shape for g in rows.gradients] == [v.shape for v in rows.values]
        for f, spec in enumerate(IDS):
            offsets, entries = rows.offsets[f], rows.offsets[f][-1]
            assert (offsets[0], offsets.shape) == (0, (n + 1,))
            assert (np.diff(offsets) >= 0).all()
            assert rows.places[f].shape == rows.weights[f].shape == (entries,)
            count = len(rows.values[IDS.index(spec) // 2])
            assert not entries or 0 <= rows.places[f].min() <= rows.places[f].max() < count
            assert (rows.weights[f] == 1).all()
        # Each row once, and each of them for some entry.
        assert len(np.unique(np.concatenate(rows.places[:2]))) == len(rows.values[0])
        assert len(np.unique(rows.values[0], axis=0)) == len(rows.values[0])
        for array in (*rows.values, *rows.places, *rows.offsets, *rows.weights):
            assert not array.flags.writeable
        for gradient in rows.gradients:
            assert gradient.flags.writeable
            assert not gradient.any()
        return python_gradient(theta, x, y, rows, out)

    run(external(look), data)
    assert seen == 50


def test_what_it_keeps_stays_as_it_was(concurrent: lsh.Discipline) -> None:
    kept: list[Any] = []
    lock = threading.Lock()

    def keep(theta: Array, x: Array, y: LABELS, rows: BatchRows, out: Array) -> float:
        loss = python_gradient(theta, x, y, rows, out)
        parts = [theta, out, *(a for field in rows for a in field)]
        # Views of parts, of some fields alone, and whole rows: each keeps what it shows.
        some = [part[: len(part) // 2] for part in parts[len(kept) % 3 :: 3]]
        with lock:
            kept.append((some, [part.copy() for part in some]))
        return loss

    data = clicks(GRAPH, 300, "weights")
    result = run(external(keep), data, discipline=concurrent, threads=2)
    gc.collect()
    assert len(kept) > 50
    for some, was in kept:
        for part, copy in zip(some, was, strict=True):
            np.testing.assert_array_equal(part, copy)
    if isinstance(concurrent, lsh.Synchronous):
        wanted = run(GRAPH, data, discipline=concurrent, threads=2)
        check_close(result, wanted)


def test_memory_serves_the_next_call_where_nothing_was_kept() -> None:
    addresses = set()

    def look(theta: Array, x: Array, y: LABELS, rows: BatchRows, out: Array) -> float:
        addresses.add(rows.values[0].ctypes.data)
        return python_gradient(theta, x, y, rows, out)

    run(external(look, loss=python_loss), clicks(GRAPH, 60))
    assert len(addresses) < 10


class Oops(Exception):
    pass


@pytest.mark.parametrize("which", ["gradient", "loss", "logits"])
def test_an_exception_ends_the_run_with_its_traceback(
    discipline: lsh.Discipline, which: str
) -> None:
    """Also where others wait at a barrier."""
    calls = 0

    def later(f: Callable[..., Any]) -> Callable[..., Any]:
        def fails(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > 20:
                raise Oops(which)
            return f(*arguments)

        return fails

    functions: dict[str, Any] = {
        "gradient": python_gradient,
        "loss": python_loss,
        "logits": python_logits,
    }
    functions[which] = later(functions[which])
    with pytest.raises(Oops, match=which) as caught:
        run(
            external(functions.pop("gradient"), **functions),
            clicks(GRAPH, 100),
            discipline=discipline,
            threads=1 if isinstance(discipline, lsh.Sequential) else 3,
            until=lsh.until(seconds=60),
            observe=lsh.Observe(every=0.005),
        )
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "fails"


def wrong_gradient(change: Callable[[BatchRows, Array], Any]) -> Callable[..., float]:
    def gradient(theta: Array, x: Array, y: LABELS, rows: BatchRows, out: Array) -> float:
        loss = python_gradient(theta, x, y, rows, out)
        if len(x) == BATCH:
            change(rows, out)
        return loss

    return gradient


def set_nan(rows: BatchRows, _: Array) -> None:
    rows.gradients[1][0, 3] = np.nan


def set_infinite(rows: BatchRows, _: Array) -> None:
    rows.gradients[0][-1, 0] = np.inf


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
@pytest.mark.parametrize("change", [set_nan, set_infinite])
def test_a_row_gradient_that_is_not_finite_ends_the_run(
    change: Callable[[BatchRows, Array], Any], discipline: lsh.Discipline
) -> None:
    result = run(
        external(wrong_gradient(change), loss=python_loss),
        clicks(GRAPH, 100),
        discipline=discipline,
        threads=1 if isinstance(discipline, lsh.Sequential) else 3,
    )
    assert (result.outcome, result.reason) == ("crashed", "not_finite")
    assert result.total_updates == 0
    for table in result.tables.values():
        assert np.isfinite(table.lookup(np.arange(ROWS))).all()
        assert table.statistics()["applied"] == 0


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
def test_a_native_loss_that_is_nan_ends_the_run(library: ctypes.CDLL) -> None:
    result = run(external(c_function(library)), clicks(GRAPH, 100), rule=lsh.SGD(1e30), threads=2)
    assert (result.outcome, result.reason) == ("crashed", "not_finite")


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
@pytest.mark.parametrize("threads", [1, 3])
def test_a_native_row_gradient_that_is_nan_ends_the_run_before_a_row_has_it(
    library: ctypes.CDLL, threads: int
) -> None:
    result = run(external(c_function(library, "bad_row")), clicks(GRAPH, 100), threads=threads)
    assert (result.outcome, result.reason) == ("crashed", "not_finite")
    for table in result.tables.values():
        assert np.isfinite(table.lookup(np.arange(ROWS))).all()
        assert table.statistics()["applied"] == 0


WRONG: dict[str, tuple[Callable[[BatchRows, Array], Any], type[Exception], str]] = {
    "another shape": (
        lambda rows, _: rows.gradients[0].__iadd__(np.ones((1, ITEM + 1), np.float32)),
        ValueError,
        "could not be broadcast",
    ),
    "assigned": (
        lambda rows, _: setattr(rows, "gradients", ()),
        AttributeError,
        "can't set attribute",
    ),
    "read-only": (
        lambda rows, _: rows.values[0].__setitem__(0, 1),
        ValueError,
        "read-only",
    ),
    "a place beyond": (
        lambda rows, _: rows.values[0][len(rows.values[0])],
        IndexError,
        "out of bounds",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_callable_does_wrong_is_told(name: str) -> None:
    change, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        run(external(wrong_gradient(change)), clicks(GRAPH, 100), threads=2)


def test_a_gradient_that_was_not_written_is_named() -> None:
    def forgets(theta: Array, x: Array, y: LABELS, rows: BatchRows, out: Array) -> float:
        out[:2] = 0
        return 1.0

    with pytest.raises(ValueError, match=r"gradient has not written out\[2\]; it must fill"):
        run(external(forgets, loss=python_loss), clicks(GRAPH, 100))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (lambda o: o[:, None], ValueError, r"shape \(100,\); it returned shape \(100, 1\)"),
        (lambda o: o[1:], ValueError, r"shape \(100,\); it returned shape \(99,\)"),
        (lambda _: 1.0, ValueError, r"shape \(100,\); it returned shape \(\)"),
        (lambda _: None, TypeError, "array of numbers, one for each example; it returned None"),
        (lambda o: ["a"] * len(o), TypeError, "array of numbers.*; it returned list"),
        (lambda o: o * 1j, TypeError, "array of numbers.*; it returned ndarray"),
    ],
)
def test_logits_of_another_shape_are_named(
    given: Any, error: type[Exception], message: str
) -> None:
    data = clicks(GRAPH, 100)
    wrong = external(python_gradient, logits=lambda *rest: given(python_logits(*rest)))
    new = tables.of(GRAPH.tables)
    with pytest.raises(error, match=message):
        wrong.predict(GRAPH.init(), data, new)
    with pytest.raises(error, match=message):
        run(wrong, data)


def test_logits_may_be_of_any_real_dtype() -> None:
    data = clicks(GRAPH, 100)
    new = tables.of(GRAPH.tables)
    for dtype, value in ((np.float64, 0.25), (np.int64, 2), (bool, 1)):
        model = external(
            python_gradient, logits=lambda _t, x, _r, d=dtype, v=value: np.full(len(x), v, d)
        )
        np.testing.assert_allclose(
            model.predict(GRAPH.init(), data, new), 1 / (1 + np.exp(-value)), rtol=1e-6
        )


def test_ctrl_c_ends_it(model: External) -> None:
    def progress(now: lsh.Progress) -> None:
        if now.updates:
            signal.raise_signal(signal.SIGINT)

    data = clicks(GRAPH, 100)
    result = run(model, data, threads=2, until=lsh.until(seconds=60), observe=progress)
    assert (result.outcome, result.reason) == ("stopped", "interrupted")
    assert run(model, data, init=lsh.Init(tables=result.tables)).total_updates == 50


def test_ctrl_c_ends_a_prediction() -> None:
    calls = 0

    def logits(_theta: Array, x: Array, _rows: BatchRows) -> Array:
        nonlocal calls
        calls += 1
        if calls == 2:
            signal.raise_signal(signal.SIGINT)
        return np.zeros(len(x), np.float32)

    data = clicks(GRAPH, 20_000)
    new = tables.of(GRAPH.tables)
    with pytest.raises(KeyboardInterrupt):
        external(python_gradient, logits=logits).predict(GRAPH.init(), data, new)
    assert calls < 20


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"ids": ["items"]}, TypeError, r"ids\[0\] must be a TableSpec, got 'items'"),
        ({"ids": ITEMS}, TypeError, "ids must be a sequence of TableSpec"),
        ({"ids": [ITEMS, TableSpec("items", 7)]}, ValueError, "two tables are called 'items'"),
        ({"y": "float32"}, ValueError, 'y must be "int32" with ids'),
        ({"features": -1}, ValueError, "features must be at least 0"),
        ({"features": 0, "ids": ()}, ValueError, "features must be at least 1"),
        ({"ids": (), "logits": len}, ValueError, "logits is for models that read tables"),
        ({"logits": 3}, TypeError, r"logits must be a function f\(theta, x, rows\) -> logits"),
        ({"loss": gradients.c_type(rows=True)(lambda *_: 1.0)}, TypeError, "loss must be a Python"),
        (
            {"logits": gradients.c_type(rows=True)(lambda *_: 1.0)},
            TypeError,
            "logits must be a Python callable, as gradient is",
        ),
        (
            {"gradient": gradients.c_type()(lambda *_: 1.0)},
            TypeError,
            r"restype and argtypes are not those of float \(.*c_type\(rows=True\)",
        ),
    ],
)
def test_a_wrong_model_is_named(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        external(**{"gradient": python_gradient, **changes})


def test_a_capsules_name_is_the_headers(library: ctypes.CDLL) -> None:
    library.signature.restype = ctypes.c_char_p
    assert library.signature().decode() == gradients._c_signature("int32", rows=True)
    with pytest.raises(ValueError, match='y must be "int32" with rows'):
        gradients.c_type("float32", rows=True)


def test_a_cfunc_of_the_dense_type_is_refused_by_name() -> None:
    numba = pytest.importorskip("numba", reason="Numba is optional")
    dense = numba.cfunc(gradients.signature())(lambda t, x, i, y, n, g, w, u: np.float32(0))  # noqa: ARG005
    with pytest.raises(TypeError, match=r"signature\(rows=True\)"):
        external(dense)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"data": (np.ones((9, 3)), np.ones(9))}, TypeError, "data must be a ClickDataset where"),
        ({"validation": 3}, TypeError, "validation must be a ClickDataset where"),
        ({"cluster": object()}, ValueError, "cluster without embedding servers is not for"),
        ({"init": lsh.Init(tables={})}, ValueError, "tables must be items, others; got none"),
        ({"rule": lsh.Momentum(0.1), "init": "he"}, TypeError, "Momentum would have to move"),
    ],
)
def test_a_wrong_argument_is_named(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    arguments = {"data": clicks(GRAPH, 60), **changes}
    with pytest.raises(error, match=message):
        run(external(python_gradient), **arguments)


@pytest.mark.parametrize("how", [{"discipline": lsh.Sequential()}, {"mode": lsh.modes.ASP()}])
def test_virtual_time_plays_one_worker_as_a_thread(model: External, how: dict[str, Any]) -> None:
    data = clicks(GRAPH, 300)
    wanted = run(model, data, discipline=lsh.Sequential())
    played = lsh.simulate(
        model,
        data,
        cluster=lsh.simulation.constant(1, 1.0),
        until=lsh.until(updates=50),
        rule=lsh.SGD(0.1),
        batch_size=BATCH,
        seed=SEED,
        init=lsh.Init(
            GRAPH.init(SEED),
            tables=tables.of(GRAPH.tables, rule=lsh.SGD(0.1), init=tables.normal(0.4), seed=SEED),
        ),
        **how,
    )
    check_close(played.result, wanted, atol=0.0)


def test_wrong_data_is_named() -> None:
    model = external(python_gradient, logits=python_logits)
    data, theta, new = clicks(GRAPH, 60), GRAPH.init(), tables.of(GRAPH.tables)
    weighed = ClickDataset.from_arrays(data.x, data.ids, data.y, weights=np.ones(60))
    few = ClickDataset.from_arrays(data.x, data.ids[:, :2], data.y)  # type: ignore[index]
    ids = np.array(data.ids, np.int64)
    ids[7, 2] = ROWS
    beyond = ClickDataset.from_arrays(data.x, ids, data.y)
    numbers = ClickDataset.from_arrays(None, data.ids, data.y)  # type: ignore[arg-type]
    for wrong, message in (
        (weighed, "data has weights, which leashed does not hand to a gradient from outside"),
        (few, "data has 2 features that are ids, but the model reads number 2"),
        (beyond, f"data's C3 has id {ROWS}, outside 0 to {ROWS - 1} of table others"),
        (numbers, "data has 0 numbers, but the model takes 3"),
    ):
        for call in (
            lambda: model.evaluate(theta, wrong, new),  # noqa: B023
            lambda: model.predict(theta, wrong, new),  # noqa: B023
            lambda: run(model, wrong),  # noqa: B023
        ):
            with pytest.raises(ValueError, match=message):
                call()
    with pytest.raises(TypeError, match="tables must map names to"):
        model.evaluate(theta, data)
    with pytest.raises(ValueError, match="tables must be items, others; got none"):
        model.predict(theta, data, {})
    with pytest.raises(ValueError, match=r"predicts nothing; make it with logits="):
        external(python_gradient).predict(theta, data, new)
    dense = lsh.models.external(python_gradient, dimension=2, features=2)
    with pytest.raises(TypeError, match="reads no tables, and takes no rows"):
        dense.rows(data)


def test_what_the_data_has_more_is_not_read() -> None:
    data = clicks(GRAPH, 60)
    more = np.column_stack([data.ids, np.full(60, 10**9)])  # type: ignore[arg-type]
    wider = ClickDataset.from_arrays(data.x, more, data.y)
    for got, wanted in zip(
        everything(run(external(python_gradient), wider)),
        everything(run(external(python_gradient), data)),
        strict=True,
    ):
        np.testing.assert_array_equal(got, wanted)


def test_bags_that_are_all_empty_train_the_rest(model: External) -> None:
    empty = Bags([], np.zeros(61, np.int64))
    one = clicks(GRAPH, 60)
    columns = {f"C{f + 1}": empty for f in range(3)}
    data = ClickDataset.from_arrays(one.x, columns, one.y)
    result = run(model, data)
    check_close(result, run(GRAPH, data))
    assert all(t.statistics()["asked"] == 0 for t in result.tables.values())


@pytest.mark.parametrize("discipline", [lsh.Synchronous(), lsh.Leashed(), lsh.Hogwild()])
def test_a_resumed_run_is_the_uninterrupted_one(
    model: External, discipline: lsh.Discipline, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    settings: dict[str, Any] = {"rule": lsh.Adagrad(0.05), "discipline": discipline}
    data = clicks(GRAPH, 100, "bags")
    whole = run(model, data, **settings)
    run(model, data, **settings, until=lsh.until(updates=20), checkpoint=path)
    resumed = run(model, data, **settings, resume=path)
    assert resumed.config["resumed_exact"]
    for got, wanted in zip(everything(resumed), everything(whole), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_saved_and_loaded(tmp_path: Path) -> None:
    model = external(python_gradient, name="mine")
    data = clicks(GRAPH, 60)
    result = run(model, data)
    lsh.save(tmp_path / "saved", model, result.parameters, result.tables)
    with pytest.raises(ValueError, match="its model is external") as caught:
        lsh.load(tmp_path / "saved")
    call = str(caught.value).partition("leashed.load(")[2].partition(", ")[2][:-1]
    made = eval(call, {"leashed": lsh, "gradient": python_gradient})
    assert made.description == model.description
    new = tables.of(made.tables, rule=lsh.SGD(0.1), init=tables.normal(0.4), seed=SEED)
    loaded, theta = lsh.load(tmp_path / "saved", made, new)
    assert loaded is made
    np.testing.assert_array_equal(theta, result.parameters)
    for name, table in new.items():
        ids = np.arange(ROWS)
        np.testing.assert_array_equal(table.lookup(ids), result.tables[name].lookup(ids))
    other = external(python_gradient, name="mine", ids=(ITEMS, OTHERS, OTHERS))
    with pytest.raises(ValueError, match=r"ids was \(TableSpec\(name='items', dim=6.*; give the"):
        lsh.load(tmp_path / "saved", other)
    with pytest.raises(ValueError, match="ids was"):
        lsh.load(tmp_path / "saved", external(python_gradient, name="mine", ids=(), features=3))
