"""Models over tables by a mode, on threads."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from made_clicks import clicks, shared, small
from rows_models import external, graph, python_gradient, python_loss
from simulation.test_simulated_modes import ALL, ALONE
from simulation.test_simulated_tables import (
    PUSHING,
    RULES,
    SEED,
    accounted,
    asked,
    play,
    same,
    trained,
)

import leashed as lsh
from leashed import modes, simulation
from leashed.cli import main
from leashed.models import tables


def by_mode(model: Any, data: Any, mode: modes.Mode, threads: int, **changes: Any) -> Any:
    return trained(model, data, mode=mode, threads=threads, discipline=None, **changes)


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("mode", [mode for mode in ALONE if mode.PUSHES_GRADIENTS], ids=repr)
def test_one_thread_has_the_bits_of_sequential(mode, rule) -> None:
    model = shared()
    data = clicks(model, kind="bags")
    alone = trained(model, data, rule=rule)
    result = by_mode(model, data, mode, 1, rule=rule)
    same(result, alone)
    assert result.rows == alone.rows
    assert result.auc[-1] == alone.auc[-1]
    np.testing.assert_array_equal(result.row_staleness, alone.row_staleness)


@pytest.mark.parametrize("mode", PUSHING, ids=repr)
def test_every_row_gradient_is_counted(mode) -> None:
    model = shared()
    data = clicks(model, 800, kind="weights")
    result = by_mode(model, data, mode, 3)
    counts = result.mode
    assert counts.worker_examples.sum() == 2 * len(data)
    if counts.stale + counts.straggler:
        assert accounted(result) < asked(result)
    else:
        assert accounted(result) == asked(result)
    assert result.row_staleness.sum() == result.rows["applied"] > 0
    assert result.final_loss < result.initial_loss
    assert set(result.tables) == set(result.config["tables"]) == {"items", "other"}


@pytest.mark.parametrize("mode", PUSHING, ids=repr)
def test_the_time_of_rows_is_told_apart(mode) -> None:
    """As for disciplines: their updates are no part of the parameters', and all are of the run."""
    model = shared()
    begun = time.monotonic()
    result = by_mode(model, clicks(model, 800, kind="weights"), mode, 3)
    most = 3 * (time.monotonic() - begun)
    assert result.breakdown["rows"] > 0
    assert result.breakdown["read"] > 0
    assert result.breakdown["update"] == pytest.approx(result.update_seconds.total, rel=1e-6)
    assert min(result.breakdown.values()) >= 0
    assert sum(result.breakdown.values()) <= most


@pytest.mark.parametrize("containing", [False, True])
def test_sync_has_the_bits_of_virtual_time(containing) -> None:
    """Who is first in a round makes no difference to what is summed, nor in which order."""
    model = shared()
    data = clicks(model, 384, kind="weights")
    mode = modes.Sync(divide_by_containing=containing)
    settings = {"rule": lsh.Adam(0.01), "until": lsh.until(updates=16)}
    played = play(model, data, simulation.constant(3, 1.0), mode=mode, **settings).result
    result = by_mode(model, data, mode, 3, **settings)
    same(result, played)
    assert result.rows == played.rows


@pytest.mark.filterwarnings("ignore:table .* is full:RuntimeWarning")
def test_tables_that_grow_and_evict() -> None:
    model = shared(rows=None)
    data = clicks(model, 4000, kind="bags", rows=5000)
    made = tables.of(model.tables, rule=lsh.SGD(0.1), max_bytes=2**16, evict="age")
    result = by_mode(
        model, data, modes.GBA(m=4), 3, init=lsh.Init(tables=made), observe=lsh.Observe(every=0.005)
    )
    assert all(t.statistics()["evicted"] > 0 for t in made.values())
    assert all(t.statistics()["bytes"] <= 2**16 for t in made.values())
    assert np.isfinite(result.final_loss)
    assert result.tables == made


def test_validation_metrics_and_staleness_are_those_of_every_training() -> None:
    model = small()
    data = clicks(model, 2000)
    split = lsh.datasets.ClickSplit(data, clicks(model, 400, seed=1))
    result = by_mode(
        model,
        split,
        modes.ASP(),
        2,
        staleness=lsh.staleness.cutoff(0),
        observe=lsh.Observe(metrics=lsh.metrics.progressive()),
        until=lsh.until(epochs=4),
    )
    assert result.validation_auc[-1] > 0.6
    assert result.metrics.total[-1].auc > 0.6
    assert result.rows["stalest"] == 0
    assert accounted(result) == asked(result)


def test_an_exception_leaves_the_tables_usable() -> None:
    calls = itertools.count(1)

    def fails(*arguments: Any) -> float:
        if next(calls) == 7:
            raise ArithmeticError("boom")
        return python_gradient(*arguments)

    model = external(fails, loss=python_loss)
    data = clicks(graph(), 400, kind="weights")
    made = tables.of(model.tables, rule=lsh.SGD(0.1), seed=SEED)
    for mode in (modes.Sync(), modes.GBA(m=3)):
        calls = itertools.count(1)
        with pytest.raises(ArithmeticError, match="boom"):
            by_mode(model, data, mode, 3, init=lsh.Init(tables=made))
    steps = {name: table.statistics()["steps"] for name, table in made.items()}
    result = by_mode(
        external(python_gradient, loss=python_loss),
        data,
        modes.ASP(),
        3,
        init=lsh.Init(tables=made),
    )
    for name, table in made.items():
        assert table.statistics()["steps"] == steps[name] + result.total_updates


@pytest.mark.parametrize("mode", [modes.Sync(), modes.ASP()], ids=repr)
def test_an_interrupt_ends_it(mode) -> None:
    began = threading.Event()

    def slow(*arguments: Any) -> float:
        began.set()
        time.sleep(0.01)
        return python_gradient(*arguments)

    def interrupt() -> None:
        began.wait()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    data = clicks(graph(), 400, kind="weights")
    # Ctrl-C within the loss would be raised by it.
    given = {"until": lsh.until(updates=1_000_000), "observe": lsh.Observe(every=1e6)}
    result = by_mode(external(slow, loss=python_loss), data, mode, 3, **given)
    thread.join()
    assert result.reason == "interrupted"


@pytest.mark.parametrize("mode", [mode for mode in ALL if not mode.PUSHES_GRADIENTS], ids=repr)
def test_modes_whose_workers_send_models_are_refused(mode) -> None:
    model = small()
    with pytest.raises(ValueError, match="is not for modes whose workers send models"):
        by_mode(model, clicks(model), mode, 2)


def test_the_command(capsys) -> None:
    command = ["train", "--model", "dlrm", "--rows", "100", "--epochs", "1", "--threads", "2"]
    assert main([*command, "--mode", "gba:m=2,divide_by_containing=1"]) == 0
    told = capsys.readouterr().out
    assert "GBA, m = 2" in told
    assert "row updates" in told
