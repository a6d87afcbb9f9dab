"""``Synchronous`` in virtual time: what its threads do, bit by bit, and who waits for whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_clicks import clicks, shared
from simulation.test_simulated_tables import everything
from simulation.test_simulation import DATA, MODEL
from stream.test_training import streamed
from training.test_modes_on_any_data import FEATURES, LINEAR, MACHINE, rows, text

import leashed as lsh
from leashed import simulation, stream, sync

EXACT: list[dict[str, Any]] = [
    {},
    {"rule": lsh.Adam(0.01)},
    {"rule": lsh.SWAP(lsh.Adagrad(0.05), 10)},
    {"rule": lsh.SGD(0.1, clip_norm=0.5, weight_decay=1e-3)},
    {"staleness": lsh.staleness.stage_aware(lsh.staleness.inverse())},
    {"staleness": lsh.staleness.tail_tau()},
]


def both(
    model: Any, data: Any, workers: int, /, **given: Any
) -> tuple[lsh.TrainResult, lsh.TrainResult]:
    """In virtual time and on threads."""
    settings = {
        "until": lsh.until(epochs=2),
        "batch_size": 16,
        "discipline": lsh.Synchronous(),
    } | given
    cluster = simulation.exponential(workers, 1e-3, update=1e-4)
    played = lsh.simulate(model, data, cluster=cluster, **settings).result
    return played, lsh.train(model, data, threads=workers, **settings)


def same(played: lsh.TrainResult, real: lsh.TrainResult) -> None:
    np.testing.assert_array_equal(played.parameters, real.parameters)
    assert played.total_updates == real.total_updates > 0
    assert played.gradients == real.gradients
    assert played.final_loss == pytest.approx(real.final_loss, rel=1e-12)
    assert played.reason == real.reason
    assert played.staleness.max() == 0


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("given", EXACT, ids=str)
@pytest.mark.parametrize("until", [lsh.until(epochs=1), lsh.until(updates=7)], ids=str)
def test_the_bits_are_those_of_threads(workers: int, given: dict[str, Any], until: Any) -> None:
    """Also where the last step reaches beyond the epoch."""
    same(*both(MODEL, DATA, workers, until=until, **given))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("model", [LINEAR, MACHINE], ids=["linear", "fm"])
def test_so_they_are_on_sparse_rows(model: Any, workers: int) -> None:
    data = rows(500, values=True, weights=True)
    same(*both(model, data, workers, rule=lsh.Adam(0.02)))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("kind", ["weights", "bags"])
@pytest.mark.parametrize(
    "rule", [lsh.SGD(0.1), lsh.Adam(0.01), lsh.SWAP(lsh.Adagrad(0.1), period=3)], ids=str
)
def test_so_they_are_on_tables(rule: Any, kind: str, workers: int) -> None:
    """Whose rows get one update of what all workers have for them."""
    model = shared()
    played, real = both(model, clicks(model, 400, kind=kind), workers, rule=rule)
    same(played, real)
    for got, wanted in zip(everything(played), everything(real), strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert played.rows == real.rows
    assert (played.rows["folded"] > 0) == (workers > 1)


@pytest.mark.parametrize("workers", [1, 3])
def test_so_they_are_on_a_stream_of_clicks(workers: int, tmp_path: Path) -> None:
    model = shared()
    source = streamed(tmp_path / "rows.csv", clicks(model, 408, kind="bags"))
    played, real = both(model, source, workers, until=lsh.until(epochs=1))
    same(played, real)
    for got, wanted in zip(everything(played), everything(real), strict=True):
        np.testing.assert_array_equal(got, wanted)
    # 26 batches, of which the last is small: whole steps.
    assert played.gradients == 26 // workers * workers
    assert played.config["reading"]["rows"] == 408


@pytest.mark.parametrize("workers", [1, 3])
def test_so_they_are_on_a_stream_of_sparse_rows(workers: int, tmp_path: Path) -> None:
    source = stream.libsvm(text(tmp_path / "rows.txt", rows(500)), FEATURES)
    same(*both(MACHINE, source, workers, rule=lsh.Adam(0.02)))


def test_a_step_waits_for_the_slowest() -> None:
    cluster = simulation.constant(3, 1.0, update=0.25).slower([3])
    result = lsh.simulate(
        MODEL,
        DATA,
        cluster=cluster,
        until=lsh.until(updates=4),
        discipline=lsh.Synchronous(),
        batch_size=16,
    ).result
    assert result.elapsed == 4 * 3.25
    assert result.gradients == 12
    assert result.worker_updates.tolist() == [4, 4, 4]
    assert result.breakdown["gradient"] == pytest.approx(4 * (3 + 1 + 1))
    assert result.breakdown["waiting"] == pytest.approx(4 * (2 + 2))
    assert result.breakdown["update"] == pytest.approx(4 * 3 * 0.25)
    assert result.breakdown["rest"] == pytest.approx(0)


def test_a_step_under_way_when_time_is_up_is_given_up() -> None:
    cluster = simulation.constant(2, 1.0, update=0.25)
    given: dict[str, Any] = {"cluster": cluster, "batch_size": 16, "discipline": lsh.Synchronous()}
    long = lsh.simulate(MODEL, DATA, until=lsh.until(seconds=2.4), **given).result
    short = lsh.simulate(MODEL, DATA, until=lsh.until(updates=1), **given).result
    assert (long.reason, long.total_updates) == ("seconds", 1)
    np.testing.assert_array_equal(long.parameters, short.parameters)


@pytest.mark.parametrize(
    "how",
    [
        None,
        sync.EASGD(),
        sync.MA(),
        sync.EASGD(when=sync.every(iterations=3)),
        sync.MA(when=sync.every(iterations=3)),
        sync.BMUF(when=sync.every(seconds=4e-3)),
    ],
    ids=str,
)
def test_each_trainer_takes_its_own_steps(how: Any) -> None:
    cluster = simulation.exponential(3, 1e-3, update=1e-4).trainers(2, latency=1e-4)
    played = lsh.simulate(
        MODEL,
        DATA,
        cluster=cluster,
        sync=how,
        until=lsh.until(epochs=2),
        discipline=lsh.Synchronous(),
        batch_size=16,
    )
    assert played.trainers is not None
    assert played.result.reason == "epochs"
    # 75 batches, in whole steps.
    assert played.result.gradients == played.trainers.iterations.sum() == 75
    assert (played.trainers.iterations % 3 == 0).all()
    assert played.result.total_updates == 25
    assert (played.trainers.syncs > 0).all() == (how is not None)


def test_a_trainer_alone_has_the_bits_of_a_run_without() -> None:
    crew = simulation.exponential(4, 1e-3, update=1e-4)
    given: dict[str, Any] = {
        "until": lsh.until(epochs=1),
        "batch_size": 16,
        "discipline": lsh.Synchronous(),
    }
    plain = lsh.simulate(MODEL, DATA, cluster=crew, **given).result
    alone = lsh.simulate(MODEL, DATA, cluster=crew.trainers(1), **given).result
    np.testing.assert_array_equal(plain.parameters, alone.parameters)
    assert plain.elapsed == alone.elapsed
