"""Models that read tables under every discipline, with growing tables, and to an early end."""

from __future__ import annotations

import signal
import threading
from typing import Any

import numpy as np
import pytest
from made_clicks import ROWS, clicks, shared, small

import leashed as lsh
from leashed.datasets import Bags, ClickDataset
from leashed.models import Dense, Embedding, Graph, TableSpec, tables

BATCH, SEED = 16, 3


def run(graph: Graph, data: ClickDataset, **changes: Any) -> lsh.TrainResult:
    arguments: dict[str, Any] = {
        "until": lsh.until(epochs=2),
        "rule": lsh.Adagrad(0.1),
        "threads": 1,
        "batch_size": BATCH,
        "seed": SEED,
    }
    return lsh.train(graph, data, **{**arguments, **changes})


def everything(result: lsh.TrainResult) -> list[Any]:
    rows = [table.lookup(np.arange(ROWS)) for table in result.tables.values()]
    return [result.parameters, *rows]


def distinct(data: ClickDataset, features: list[int], seed: int, batches: int) -> int:
    """Distinct ids of the batches of a run, of a table that these features read."""
    assert isinstance(data.ids, np.ndarray)
    return sum(
        len(np.unique(data.ids[np.ix_(lsh._core.batch_rows(seed, len(data), BATCH, k), features)]))
        for k in range(batches)
    )


def accounted(told: dict[str, int]) -> int:
    return sum(told[name] for name in tables.RowUpdate._fields)


@pytest.mark.parametrize("make", [small, shared])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_loss_falls(discipline: lsh.Discipline, threads: int, make: Any) -> None:
    if isinstance(discipline, lsh.Sequential) and threads > 1:
        pytest.skip("one thread alone")
    graph = make()
    data = clicks(graph, kind="weights" if make is shared else "one")
    result = run(graph, data, discipline=discipline, threads=threads, until=lsh.until(epochs=10))
    assert result.loss[-1] < 0.7 * result.loss[0]
    assert result.auc[-1] > 0.85


def test_one_thread_gives_the_same_bits_under_every_discipline(
    discipline: lsh.Discipline,
) -> None:
    graph = shared()
    data = clicks(graph, kind="bags")
    expected = everything(run(graph, data, discipline=lsh.Sequential()))
    for got, wanted in zip(
        everything(run(graph, data, discipline=discipline)), expected, strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("rule", [lsh.SGD(0.1), lsh.Adagrad(0.1), lsh.Adam(0.01)])
def test_synchronous_gives_the_same_bits_with_several_threads(rule: lsh.Rule) -> None:
    graph = shared()
    data = clicks(graph, kind="weights")
    settings = {"discipline": lsh.Synchronous(), "threads": 3, "rule": rule}
    first = everything(run(graph, data, **settings))
    for _ in range(5):
        for got, wanted in zip(everything(run(graph, data, **settings)), first, strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_synchronous_with_equal_batches_makes_the_step_of_one() -> None:
    """And with others one step on the mean: three threads on the thirds of what one thread has."""
    graph = shared()
    one = clicks(graph, 1, "weights")
    bags = dict(zip(one.names, one.ids, strict=True))
    for name, given in bags.items():
        if isinstance(given, Bags):
            offsets = np.arange(41) * len(given.ids)
            weights = None if given.weights is None else np.tile(given.weights, 40)
            bags[name] = Bags(np.tile(given.ids, 40), offsets, weights)
        else:
            bags[name] = np.tile(given, 40)
    data = ClickDataset.from_arrays(np.tile(one.x, (40, 1)), bags, np.tile(one.y, 40))
    until = lsh.until(updates=20)
    alone = everything(run(graph, data, until=until, rule=lsh.SGD(0.1)))
    together = everything(
        run(
            graph,
            data,
            until=until,
            rule=lsh.SGD(0.1),
            discipline=lsh.Synchronous(),
            threads=3,
        )
    )
    for got, wanted in zip(together, alone, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_synchronous_makes_one_step_of_the_mean_of_its_batches() -> None:
    graph = small()
    data = clicks(graph, 96)
    until, rule = lsh.until(updates=1), lsh.SGD(0.5)
    rows = np.concatenate([lsh._core.batch_rows(SEED, 96, BATCH, k) for k in range(3)])
    whole = data.take(rows)
    single = everything(run(graph, whole, until=until, rule=rule, batch_size=3 * BATCH))
    got = everything(
        run(graph, data, until=until, rule=rule, discipline=lsh.Synchronous(), threads=3)
    )
    for one, wanted in zip(got, single, strict=True):
        np.testing.assert_allclose(one, wanted, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 3])
def test_every_gradient_pushes_its_rows(discipline: lsh.Discipline, threads: int) -> None:
    """Also those that were dropped."""
    if threads > 1 and isinstance(discipline, (lsh.Sequential, lsh.Synchronous)):
        pytest.skip("one thread alone, or rows that are folded")
    graph = small()
    data = clicks(graph, 480)
    result = run(graph, data, discipline=discipline, threads=threads, until=lsh.until(epochs=20))
    assert result.gradients == 20 * 480 // BATCH
    assert result.gradients == result.total_updates + result.dropped
    for feature, table in enumerate(result.tables.values()):
        told = table.statistics()
        assert told["applied"] == distinct(data, [feature], SEED, result.gradients)
        assert accounted(told) == told["applied"]
        if threads == 1:
            assert (told["staleness"], told["stalest"]) == (0, 0)


def test_a_policy_that_leaves_a_gradient_out_leaves_its_rows_in() -> None:
    graph = small()
    data = clicks(graph, 480)
    until = lsh.until(epochs=20)
    new = tables.of(graph.tables, rule=lsh.SGD(0.1))  # whose rows have no policy
    result = run(
        graph,
        data,
        threads=3,
        until=until,
        staleness=lsh.staleness.cutoff(0),
        init=lsh.Init(tables=new),
    )
    for feature, table in enumerate(result.tables.values()):
        told = table.statistics()
        assert told["applied"] == distinct(data, [feature], SEED, result.gradients)


@pytest.mark.filterwarnings("ignore:table .* is full:RuntimeWarning")
@pytest.mark.parametrize("threads", [1, 3])
def test_a_growing_table_stays_below_its_limit_and_accounts_for_every_row(threads: int) -> None:
    graph = small(rows=None)
    data = clicks(graph, 3000, rows=20_000)
    limit = 60_000
    for evict in (None, "age", "norm"):
        for admit_after in (1, 2):
            new = tables.of(
                graph.tables,
                rule=lsh.Adagrad(0.1),
                max_bytes=limit,
                evict=evict,
                admit_after=admit_after,
            )
            result = run(
                graph, data, threads=threads, init=lsh.Init(tables=new), until=lsh.until(epochs=4)
            )
            batches = result.gradients
            for feature, table in enumerate(result.tables.values()):
                told = table.statistics()
                assert accounted(told) == distinct(data, [feature], SEED, batches)
                assert told["bytes"] <= told["most_bytes"] <= limit
                assert told["rows"] <= told["capacity"]
                assert told["rows"] - 2 == told["admitted"] - told["evicted"]
                assert (told["deferred"] > 0) <= (threads > 1)
                if evict is None:
                    assert told["evicted"] == 0
                    assert told["refused"] > 0 or told["deferred"] > 0
                else:
                    # Nothing is refused before something was evicted. Fewer ids than would fill the
                    # table come through only where a thread that was not running had the lock.
                    assert told["evicted"] > 0 or (told["refused"] == 0 and told["deferred"] > 0)
                assert (told["unadmitted"] > 0) == (admit_after > 1)
            assert np.isfinite(result.loss[-1])


def test_ids_beyond_a_sequences_length_are_not_looked_up() -> None:
    items = TableSpec("items", 4)
    graph = Graph(Embedding(items, "sequence", length=2) >> Dense(1))
    n = 64
    ids = np.arange(1, 5 * n + 1, dtype=np.uint64)
    data = ClickDataset.from_arrays(
        None, {"C1": Bags(ids, np.arange(0, 5 * n + 1, 5))}, np.arange(n) % 2
    )
    given = tables.of(graph.tables, rule=lsh.SGD(0.1), max_bytes=2**22)
    run(graph, data, until=lsh.until(epochs=1), init=lsh.Init(tables=given))
    told = given["items"].statistics()
    assert told["asked"] == 2 * n
    assert told["rows"] == 2 * n + 2  # and the two ids that always have one


def test_two_trainings_share_a_table() -> None:
    graph, other = small(), shared(8)
    table = lsh.Table(rows=ROWS, dim=8, rule=lsh.SGD(0.01), name="both")
    results: dict[str, lsh.TrainResult] = {}

    def work(name: str, model: Graph, shared: str, own: str, seed: int) -> None:
        given = {shared: table, own: lsh.Table(rows=ROWS, dim=8, rule=lsh.SGD(0.01))}
        results[name] = run(
            model,
            clicks(model, 480),
            init=lsh.Init(tables=given),
            threads=2,
            seed=seed,
            until=lsh.until(epochs=10),
        )

    threads = [
        threading.Thread(target=work, args=("a", graph, "c0", "c1", 1)),
        threading.Thread(target=work, args=("b", other, "items", "other", 2)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = table.statistics()
    assert {r.gradients for r in results.values()} == {300}
    assert accounted(told) == told["applied"]
    one = clicks(graph, 480)
    two = clicks(other, 480)
    assert told["applied"] == distinct(one, [0], 1, 300) + distinct(two, [0, 1, 2], 2, 300)
    assert np.isfinite(table.lookup(np.arange(ROWS))).all()


def test_tables_given_again_go_on() -> None:
    graph = small()
    data = clicks(graph)
    once = run(graph, data, until=lsh.until(updates=40), rule=lsh.SGD(0.1))
    first = run(graph, data, until=lsh.until(updates=40), rule=lsh.SGD(0.1))
    again = run(
        graph, data, init=lsh.Init(first.parameters, tables=first.tables), rule=lsh.SGD(0.1)
    )
    assert again.tables == first.tables
    assert again.loss[0] == once.loss[-1]
    assert again.loss[-1] < again.loss[0]
    assert again.config["tables"]["c0"]["applied"] > once.config["tables"]["c0"]["applied"]


def test_a_table_given_again_goes_on_with_its_steps() -> None:
    """Schedules, bias corrections and SWAP's periods go by the steps of the table."""
    graph = small()
    data = clicks(graph)
    rule = lsh.SGD(lsh.schedules.step(0.1, every=4, factor=1e-20))
    until = lsh.until(updates=4)
    new = tables.of(graph.tables, rule=rule)
    first = everything(run(graph, data, init=lsh.Init(tables=new), until=until, rule=lsh.SGD(0.1)))
    assert {table.statistics()["steps"] for table in new.values()} == {4}
    second = everything(run(graph, data, init=lsh.Init(tables=new), until=until, rule=lsh.SGD(0.1)))
    assert {table.statistics()["steps"] for table in new.values()} == {8}
    for got, wanted in zip(second[1:], first[1:], strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-12)


def test_swaps_periods_go_on_where_a_table_is_given_again() -> None:
    """Modulo 2¹⁶: to begin at 0 again would be to come after 64,000 more, and forget all."""
    graph = small()
    data = clicks(graph)
    swap = lsh.SWAP(lsh.Adagrad(1e-6), 1, 0.999)
    new = tables.of(graph.tables, rule=swap, init=tables.zeros())
    ids = np.arange(ROWS)
    run(graph, data, init=lsh.Init(tables=new), until=lsh.until(updates=1100), rule=lsh.SGD(0.01))
    before = [table.lookup(ids) for table in new.values()]
    run(graph, data, init=lsh.Init(tables=new), until=lsh.until(updates=1), rule=lsh.SGD(0.01))
    for table, old in zip(new.values(), before, strict=True):
        # A first step of Adagrad is as long as its rate; one after many is far shorter.
        assert np.abs(table.lookup(ids) - old).max() < 0.5e-6


def test_ctrl_c_ends_it_and_tables_stay_usable() -> None:
    graph = small(rows=None)
    data = clicks(graph)

    def progress(now: lsh.Progress) -> None:
        if now.updates:
            signal.raise_signal(signal.SIGINT)

    result = run(graph, data, threads=2, until=lsh.until(seconds=60), observe=progress)
    assert (result.outcome, result.reason) == ("stopped", "interrupted")
    usable(graph, data, result)


@pytest.mark.parametrize("threads", [1, 3])
def test_seconds_end_it_and_tables_stay_usable(threads: int) -> None:
    graph = small(rows=None)
    data = clicks(graph)
    for discipline in (lsh.Synchronous(), lsh.Leashed()):
        until = lsh.until(seconds=0.05)
        result = run(graph, data, threads=threads, until=until, discipline=discipline)
        assert result.reason == "seconds"
        usable(graph, data, result)


def usable(graph: Graph, data: ClickDataset, result: lsh.TrainResult) -> None:
    for table in result.tables.values():
        before = table.lookup([1])
        table.update([1], np.ones((1, table.dim)))
        assert (table.lookup([1]) != before).any()
    assert np.isfinite(graph.evaluate(result.parameters, data, result.tables).loss)
    assert run(graph, data, init=lsh.Init(tables=result.tables)).reason == "epochs"


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
@pytest.mark.parametrize("threads", [1, 3])
def test_a_rate_that_is_too_large_ends_as_a_crash(discipline: lsh.Discipline, threads: int) -> None:
    if isinstance(discipline, lsh.Sequential) and threads > 1:
        pytest.skip("one thread alone")
    graph = small()
    data = clicks(graph)
    result = run(
        graph,
        data,
        discipline=discipline,
        threads=threads,
        rule=lsh.SGD(1e30),
        until=lsh.until(epochs=1000),
    )
    assert (result.outcome, result.reason) == ("crashed", "not_finite")


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
@pytest.mark.parametrize("label", [0, 1])
def test_an_infinite_logit_ends_as_a_crash(label: int) -> None:
    """Also one that is right: of label 1 the loss would be 0."""
    graph = small()
    data = clicks(graph)
    alike = ClickDataset.from_arrays(data.x, data.ids, np.full(len(data), label), data.names)
    new = tables.of(graph.tables, rule=lsh.SGD(0.1), init=tables.constant(1.0))
    init = np.full(graph.dimension, 1e38, np.float32)
    assert np.unique(graph.predict(init, alike, new)).tolist() == [1.0]
    result = run(graph, alike, init=lsh.Init(init, tables=new))
    assert (result.outcome, result.reason) == ("crashed", "not_finite")


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
def test_a_weight_that_becomes_nan_ends_as_a_crash() -> None:
    graph = shared()
    data = clicks(graph, kind="weights")
    assert isinstance(data.ids, tuple)
    given = data.ids[2]
    assert isinstance(given, Bags)
    assert given.weights is not None
    weights = given.weights.copy()
    columns = dict(zip(data.names, data.ids, strict=True))
    columns["C3"] = Bags(given.ids, given.offsets, weights)
    shares = ClickDataset.from_arrays(data.x, columns, data.y)

    def progress(_: lsh.Progress) -> None:
        weights[:] = np.nan

    result = run(graph, shares, threads=2, until=lsh.until(seconds=60), observe=progress)
    assert (result.outcome, result.reason) == ("crashed", "not_finite")
    weights[:] = 1
    assert run(graph, shares).reason == "epochs"


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
def test_a_row_that_is_nan_ends_as_a_crash() -> None:
    graph = small()
    data = clicks(graph)
    new = tables.of(graph.tables, rule=lsh.SGD(1e38), init=tables.constant(1e38))
    result = run(graph, data, init=lsh.Init(tables=new), until=lsh.until(epochs=100))
    assert (result.outcome, result.reason) == ("crashed", "not_finite")


@pytest.mark.parametrize(("n", "batch_size"), [(1, 1), (5, 5), (5, 1), (7, 3)])
def test_few_examples_and_features_that_are_all_empty(n: int, batch_size: int) -> None:
    items = lsh.models.TableSpec("items", 4, ROWS)
    graph = Graph(lsh.models.Embedding(items) >> lsh.models.Dense(1))
    some = Bags(np.arange(n - 1), np.minimum(np.arange(n + 1), n - 1))
    none = Bags(np.zeros(0, np.uint64), np.zeros(n + 1, np.int64))
    for given in (some, none):
        data = ClickDataset.from_arrays(None, {"a": given}, np.arange(n) % 2)
        for threads, discipline in ((1, lsh.Leashed()), (3, lsh.Synchronous()), (3, lsh.Locked())):
            result = run(graph, data, batch_size=batch_size, threads=threads, discipline=discipline)
            assert np.isfinite(result.loss[-1])
            assert (result.tables["items"].statistics()["applied"] > 0) == (len(given.ids) > 0)
            assert graph.predict(result.parameters, data, result.tables).shape == (n, 1)


def test_a_loss_that_is_asked_for_ends_it(discipline: lsh.Discipline) -> None:
    graph = small()
    data = clicks(graph)
    threads = 1 if isinstance(discipline, lsh.Sequential) else 2
    until = lsh.until(loss_fraction=0.6, seconds=240.0)
    result = run(graph, data, discipline=discipline, threads=threads, until=until)
    assert (result.outcome, result.reason) == ("converged", "loss_fraction")
    assert result.loss.min() <= 0.6 * result.loss[0]


def test_two_outputs_have_no_logit_and_what_was_found_is_written() -> None:
    items = lsh.models.TableSpec("items", 4, ROWS)
    graph = Graph(lsh.models.Embedding(items) >> lsh.models.Dense(2), "softmax")
    result = run(graph, clicks(graph))
    assert np.isnan(result.auc).all()
    assert result.accuracy[-1] > 0.5
    assert graph.predict(result.parameters, clicks(graph), result.tables).shape == (400, 2)
    again = lsh.TrainResult.from_json(result.to_json())
    np.testing.assert_array_equal(again.loss, result.loss)
    assert again.config["tables"] == result.config["tables"]
    assert not again.tables


def test_numbers_are_no_labels() -> None:
    items = lsh.models.TableSpec("items", 4, ROWS)
    graph = Graph(lsh.models.Embedding(items) >> lsh.models.Dense(1), "squared_error")
    with pytest.raises(ValueError, match="data has labels, but the loss squared_error takes"):
        run(graph, clicks(graph))
