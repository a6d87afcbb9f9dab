"""Models over tables in virtual time, under disciplines and modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_clicks import ROWS, clicks, shared, small
from reference_servers import aggregate_rows
from simulation.test_simulated_modes import ALL, ALONE

import leashed as lsh
from leashed import _core, modes, simulation
from leashed.datasets import ClickDataset
from leashed.models import Graph, tables

BATCH, SEED = 16, 3
PUSHING = [mode for mode in ALL if mode.PUSHES_GRADIENTS]
RULES = [lsh.SGD(0.1), lsh.Adagrad(0.1), lsh.Adam(0.01)]
SWAP = lsh.SWAP(lsh.Adagrad(0.1), period=3, decay=0.5)


def play(graph: Graph, data: ClickDataset, cluster: Any, **changes: Any) -> lsh.Simulation:
    arguments: dict[str, Any] = {
        "until": lsh.until(epochs=2),
        "rule": lsh.Adagrad(0.1),
        "batch_size": BATCH,
        "seed": SEED,
    }
    return lsh.simulate(graph, data, cluster=cluster, **{**arguments, **changes})


def trained(graph: Graph, data: ClickDataset, **changes: Any) -> lsh.TrainResult:
    arguments: dict[str, Any] = {
        "until": lsh.until(epochs=2),
        "rule": lsh.Adagrad(0.1),
        "threads": 1,
        "discipline": lsh.Sequential(),
        "batch_size": BATCH,
        "seed": SEED,
    }
    return lsh.train(graph, data, **{**arguments, **changes})


def everything(result: lsh.TrainResult) -> list[Any]:
    found = []
    for table in result.tables.values():
        values, versions = table.lookup(np.arange(ROWS), versions=True)
        found += [values, versions]
    return [result.parameters, *found]


def same(one: lsh.TrainResult, other: lsh.TrainResult) -> None:
    for got, wanted in zip(everything(one), everything(other), strict=True):
        np.testing.assert_array_equal(got, wanted)


def asked(result: lsh.TrainResult) -> int:
    return sum(table.statistics()["asked"] for table in result.tables.values())


def accounted(result: lsh.TrainResult) -> int:
    return result.rows["folded"] + sum(result.rows[name] for name in tables.RowUpdate._fields)


@pytest.mark.parametrize("rule", [*RULES, SWAP], ids=repr)
@pytest.mark.parametrize(
    "discipline", [lsh.Sequential(), lsh.Leashed(), lsh.Hogwild(), lsh.Locked()], ids=repr
)
def test_one_worker_under_a_discipline_has_the_bits_of_sequential(discipline, rule) -> None:
    graph = shared()
    data = clicks(graph, kind="weights")
    alone = trained(graph, data, rule=rule)
    played = play(graph, data, simulation.exponential(1, 1.0), discipline=discipline, rule=rule)
    same(played.result, alone)
    assert played.result.rows == alone.rows
    np.testing.assert_array_equal(played.result.row_staleness, alone.row_staleness)
    assert played.result.auc[-1] == alone.auc[-1]
    assert played.result.normalised_entropy[-1] == pytest.approx(alone.normalised_entropy[-1])


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("mode", [mode for mode in ALONE if mode.PUSHES_GRADIENTS], ids=repr)
def test_one_worker_of_a_mode_has_the_bits_of_sequential(mode, rule) -> None:
    graph = shared()
    data = clicks(graph, kind="bags")
    alone = trained(graph, data, rule=rule)
    played = play(graph, data, simulation.exponential(1, 1.0), mode=mode, rule=rule).result
    same(played, alone)
    assert played.rows == alone.rows
    assert [t.statistics()["steps"] for t in played.tables.values()] == [
        t.statistics()["steps"] for t in alone.tables.values()
    ]


def test_one_worker_has_the_bits_of_sequential_with_tables_that_grow() -> None:
    graph = shared(rows=None)
    data = clicks(graph, kind="bags")
    runs = []
    for run in (trained, play):
        made = tables.of(graph.tables, rule=lsh.Adagrad(0.1), max_bytes=2**20, admit_after=2)
        given = {"init": lsh.Init(tables=made)}
        if run is play:
            runs.append(play(graph, data, simulation.constant(1, 1.0), **given).result)
        else:
            runs.append(trained(graph, data, **given))
    same(*runs)
    assert runs[0].rows == runs[1].rows
    assert runs[0].rows["unadmitted"] > 0


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("mode", [modes.GBA(), modes.BSP(), modes.HopBW(b3=0)], ids=repr)
def test_equal_workers_make_it_sync(mode, rule) -> None:
    graph = shared()
    data = clicks(graph, kind="weights")
    cluster = simulation.constant(3, 1.0)
    sync = play(graph, data, cluster, mode=modes.Sync(), rule=rule).result
    other = play(graph, data, cluster, mode=mode, rule=rule).result
    same(sync, other)
    assert sync.rows == other.rows
    assert sync.rows["folded"] > 0
    assert sync.rows["stalest"] == 0


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_sync_makes_the_row_updates_of_synchronous(rule) -> None:
    """Whose workers fold rows in their order as the server does."""
    graph = shared()
    data = clicks(graph, 384, kind="weights")
    settings = {"rule": rule, "until": lsh.until(updates=16)}
    sync = play(graph, data, simulation.constant(3, 1.0), mode=modes.Sync(), **settings).result
    real = trained(graph, data, discipline=lsh.Synchronous(), threads=3, **settings)
    assert sync.total_updates == real.total_updates == 16
    for got, wanted in zip(everything(sync), everything(real), strict=True):
        np.testing.assert_allclose(got, wanted, atol=2e-6)


@pytest.mark.parametrize("mode", PUSHING, ids=repr)
def test_every_row_gradient_is_counted(mode) -> None:
    graph = shared()
    data = clicks(graph, kind="weights")
    cluster = simulation.heavy_tail(6, 1e-3, 1.5, update=1e-5, copy=1e-4)
    played = play(graph, data, cluster, mode=mode)
    result, counts = played.result, played.mode
    dropped = counts.late + counts.stale + counts.straggler
    if dropped:
        assert accounted(result) < asked(result)
    else:
        assert accounted(result) == asked(result)
    assert result.row_staleness.sum() == result.rows["applied"]
    assert np.isfinite(result.final_loss)
    again = play(graph, data, cluster, mode=mode).result
    same(result, again)


@pytest.mark.parametrize("discipline", [lsh.Leashed(0), lsh.Leashed(), lsh.Hogwild(), lsh.Locked()])
def test_many_workers_under_a_discipline(discipline) -> None:
    """Also gradients that are dropped push their rows, and what was read is what they are of."""
    graph = small()
    data = clicks(graph, kind="one")
    cluster = simulation.exponential(40, 1.0, update=0.1, copy=0.1)
    settings = {"discipline": discipline, "until": lsh.until(epochs=20)}
    result = play(graph, data, cluster, **settings).result
    assert accounted(result) == result.rows["applied"] == asked(result)
    if discipline == lsh.Leashed(0):
        assert result.dropped > 0
    assert result.rows["stalest"] > 10
    assert result.validation_auc.size == len(result.auc)
    assert result.auc[-1] > result.auc[0]
    same(result, play(graph, data, cluster, **settings).result)


def test_a_row_is_as_stale_as_its_own_updates() -> None:
    """Four equal asynchronous workers that all read one row: at one moment they push one after the
    other, and then pull.
    """
    graph = lsh.models.dlrm(ROWS, 4, 1, bottom=(4,), top=(4,), categories=1)
    ids = np.zeros((4, 1), np.int64)
    data = ClickDataset.from_arrays(np.ones((4, 1), np.float32), ids, np.array([0, 1, 0, 1]))
    result = play(
        graph,
        data,
        simulation.constant(4, 1.0),
        mode=modes.ASP(),
        batch_size=1,
        until=lsh.until(updates=40),
    ).result
    assert result.rows["applied"] == 40
    assert list(result.row_staleness) == [10, 10, 20]  # 0; 1; 2 and 3


def test_an_update_of_several_is_as_stale_as_the_stalest_and_has_their_mean() -> None:
    """Two workers, one twice as slow: bsp of 2."""
    x = np.ones((6, 1), np.float32)
    graph = lsh.models.dlrm(ROWS, 4, 1, bottom=(4,), top=(4,), categories=1)
    data = ClickDataset.from_arrays(x, np.zeros((6, 1), np.int64), np.array([0, 1, 0, 1, 1, 0]))
    played = play(
        graph,
        data,
        simulation.constant(2, 1.0).slower([2.5]),
        mode=modes.BSP(b2=2),
        batch_size=1,
        until=lsh.until(updates=2),
        rule=lsh.SGD(0.5),
    )
    rows = played.result.rows
    assert rows["applied"] == 2
    assert rows["folded"] == 2
    # The slow one pushes on the row before the first update.
    assert list(played.result.row_staleness) == [1, 1]


@pytest.mark.parametrize("containing", [False, True])
@pytest.mark.parametrize(
    "mode", [modes.Sync, modes.GBA, modes.BSP, modes.Switching], ids=lambda kind: kind.NAME
)
def test_rows_are_divided_by_the_batches_that_contain_their_id(mode, containing) -> None:
    """One update of four batches, beside what ASP makes of the same one after the other: four equal
    workers have all begun at the start.
    """
    graph = shared(rows=100)
    data = clicks(graph, 4 * BATCH, kind="weights", rows=100)
    ids = np.arange(100)

    def rows(mode: modes.Mode | None, updates: int) -> dict[str, Any]:
        made = tables.of(graph.tables, rule=lsh.SGD(1.0), seed=SEED)
        if mode is not None:
            until = lsh.until(updates=updates)
            play(
                graph,
                data,
                simulation.constant(4, 1.0),
                mode=mode,
                until=until,
                init=lsh.Init(tables=made),
            )
        return {name: table.lookup(ids, versions=True) for name, table in made.items()}

    begun, updated = rows(None, 0), rows(mode(divide_by_containing=containing), 1)
    one_by_one = [begun, *(rows(modes.ASP(), updates) for updates in (1, 2, 3, 4))]
    for name, (values, _) in begun.items():
        batches = {
            k: {id_: v[id_] - w[id_] for id_ in ids if versions[id_] != before[id_]}
            for k in range(4)
            for (v, before), (w, versions) in [(one_by_one[k][name], one_by_one[k + 1][name])]
        }
        assert 0 < len(batches[0].keys() & batches[1].keys()) < len(batches[0])
        summed = aggregate_rows(batches, "containing" if containing else "kept")
        for id_ in ids:
            wanted = values[id_] - summed.get(id_, 0.0)
            np.testing.assert_allclose(updated[name][0][id_], wanted, atol=2e-6)


def test_staleness_policies_damp_rows_one_by_one() -> None:
    graph = small()
    data = clicks(graph)
    cluster = simulation.exponential(8, 1.0)
    for mode in (modes.ASP(), modes.BSP(b2=2)):
        plain = play(graph, data, cluster, mode=mode)
        damped = play(graph, data, cluster, mode=mode, staleness=lsh.staleness.inverse())
        assert plain.result.rows == damped.result.rows
        assert not np.array_equal(everything(plain.result)[1], everything(damped.result)[1])
        cut = play(graph, data, cluster, mode=mode, staleness=lsh.staleness.cutoff(0)).result
        assert cut.rows["excluded"] > 0
        assert cut.rows["stalest"] == 0
        assert accounted(cut) == asked(cut)


def test_what_a_mode_drops_drops_its_rows() -> None:
    graph = small()
    data = clicks(graph)
    cluster = simulation.constant(4, 1.0).slower([5.0])
    played = play(graph, data, cluster, mode=modes.HopBW(b3=1), until=lsh.until(epochs=4))
    assert played.mode.straggler > 0
    pushed = data.ids.shape[1] * 4 * len(data)  # entries; fewer distinct rows
    assert accounted(played.result) < asked(played.result) < pushed


@pytest.mark.filterwarnings("ignore:table .* is full:RuntimeWarning")
def test_rows_of_batches_that_are_under_way_are_not_evicted() -> None:
    graph = shared(rows=None)
    data = clicks(graph, 4000, kind="bags", rows=5000)
    made = tables.of(graph.tables, rule=lsh.SGD(0.1), max_bytes=2**16, evict="age")
    result = play(
        graph,
        data,
        simulation.exponential(30, 1.0),
        mode=modes.GBA(m=4),
        init=lsh.Init(tables=made),
    ).result
    assert result.rows["late"] == 0
    assert accounted(result) <= asked(result)
    assert all(t.statistics()["bytes"] <= 2**16 for t in made.values())
    assert all(t.statistics()["evicted"] > 0 for t in made.values())
    assert np.isfinite(result.final_loss)


@pytest.mark.filterwarnings("ignore:table .* is full:RuntimeWarning")
def test_workers_that_crash_take_their_rows_with_them() -> None:
    graph = shared(rows=None)
    data = clicks(graph, 2000, kind="bags", rows=3000)
    made = tables.of(graph.tables, rule=lsh.SGD(0.1), max_bytes=2**17, evict="age")
    cluster = simulation.exponential(8, 1.0).failing(mean_between=10.0, mean_down=2.0)
    played = play(graph, data, cluster, mode=modes.ASP(), init=lsh.Init(tables=made), detection=1.0)
    assert played.mode.lost > 0
    assert played.mode.applied == 2 * 2000
    assert accounted(played.result) < asked(played.result)
    assert all(t.statistics()["evicted"] > 0 for t in made.values())


def test_more_workers_than_tables_have_seats() -> None:
    graph = small()
    result = play(
        graph,
        clicks(graph, 2000),
        simulation.exponential(1500, 1.0),
        mode=modes.ASP(),
        batch_size=1,
        until=lsh.until(updates=3000),
    ).result
    assert result.total_updates == 3000
    assert result.rows["stalest"] > 50


def test_tables_go_on() -> None:
    graph = small()
    data = clicks(graph)
    made = tables.of(graph.tables, rule=lsh.Adam(0.01), seed=SEED)
    settings = {"mode": modes.ASP(), "rule": lsh.Adam(0.01)}
    begin = lsh.Init(tables=made)
    first = play(graph, data, simulation.constant(2, 1.0), init=begin, **settings).result
    steps = {name: table.statistics()["steps"] for name, table in made.items()}
    assert set(steps.values()) == {first.total_updates}
    second = play(
        graph, data, simulation.constant(2, 1.0), init=lsh.Init(first.parameters, made), **settings
    ).result
    assert second.loss[0] == pytest.approx(first.loss[-1])
    assert {t.statistics()["steps"] for t in made.values()} == {2 * first.total_updates}


@pytest.mark.parametrize("mode", ALL, ids=repr)
def test_modes_whose_workers_send_models_are_refused(mode) -> None:
    name, settings = mode.choice()
    job = {"workers": 4, "batch": BATCH, "examples": 64}
    sends = _core.PolicyMachine(name, {**settings, **job}).rule()["sends"]
    assert (sends == "gradient") == mode.PUSHES_GRADIENTS
    if mode.PUSHES_GRADIENTS:
        return
    graph = small()
    with pytest.raises(ValueError, match="is not for modes whose workers send models"):
        play(graph, clicks(graph), simulation.constant(4, 1.0), mode=mode)


@pytest.mark.parametrize("discipline", [lsh.Hogwild(), lsh.Leashed(), lsh.Synchronous()], ids=str)
def test_trainers_have_replicas_of_the_parameters_and_share_the_rows(discipline) -> None:
    graph = small()
    trainers = simulation.exponential(2, 1.0, update=0.01).trainers(3, latency=0.1)
    settings = {"sync": lsh.sync.MA(when=lsh.sync.every(2)), "discipline": discipline}
    played = play(graph, clicks(graph), trainers, **settings)
    result = played.result
    assert played.models.shape == (3, graph.dimension)
    np.testing.assert_array_equal(played.models[0], result.parameters)
    assert (played.models[0] != played.models[1]).any()
    assert {t.statistics()["steps"] for t in result.tables.values()} == {result.total_updates}
    assert result.final_loss < result.initial_loss
    same(result, play(graph, clicks(graph), trainers, **settings).result)


def test_a_trainer_alone_has_the_rows_of_a_run_without() -> None:
    graph, crew = small(), simulation.exponential(3, 1.0, update=0.01)
    data = clicks(graph)
    alone = play(graph, data, crew.trainers(1))
    same(alone.result, play(graph, data, crew).result)
    assert alone.models is None


def test_wrong_tables() -> None:
    graph = small()
    with pytest.raises(ValueError, match="tables"):
        play(graph, clicks(graph), simulation.constant(2, 1.0), init=lsh.Init(tables={}))


def test_transfers_weigh_the_rows_of_their_batch() -> None:
    dim, bandwidth = 8, 1e6
    graph = small(dim=dim)
    links = simulation.Network(bandwidth)
    cluster = simulation.constant(1, 1e-3).over(links)
    result = play(graph, clicks(graph), cluster, mode=modes.ASP()).result
    touched = sum(result.rows[name] for name in tables.RowUpdate._fields)
    parameters = 4 * graph.dimension * result.total_updates
    each_way = (parameters + (4 * dim + 8) * touched) / bandwidth
    assert result.elapsed == pytest.approx(1e-3 * result.total_updates + 2.0 * each_way, rel=1e-5)
