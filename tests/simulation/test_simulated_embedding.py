"""Trainers in virtual time whose rows embedding servers hold."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import simulation, sync
from leashed.simulation import EmbeddingServers

CARDINALITY, TABLES, DIM = 50, 26, 8
MODEL = lsh.models.dlrm([CARDINALITY] * TABLES, dim=DIM, bottom=(8,), top=(8,))
DATA = lsh.datasets.synthetic_clicks(1200, seed=1, cardinalities=CARDINALITY, test=100)
LINK = {"bandwidth": 1e8, "latency": 1e-4}
HEADER, SETTLED = 40, 368


def play(
    workers: int, trainers: int, rows: EmbeddingServers | None, *, time: float = 0.01, **given: Any
) -> simulation.Simulation:
    crew = simulation.exponential(workers, time, update=time / 20, copy=time / 20)
    return lsh.simulate(
        MODEL,
        DATA,
        cluster=crew.trainers(trainers, rows=rows, **LINK),
        batch_size=10,
        rule=lsh.Adagrad(0.05),
        **{"discipline": lsh.Hogwild(), "until": lsh.until(epochs=1), **given},
    )


@pytest.mark.parametrize("servers", [1, 3, 40])
def test_one_worker_without_look_ahead_has_the_bits_of_rows_at_hand(servers: int) -> None:
    alone = play(1, 1, None).result
    rows = EmbeddingServers(
        servers, bandwidth=1e7, latency=1e-3, batch=1e-4, row=1e-6, look_ahead=0
    )
    served = play(1, 1, rows)
    np.testing.assert_array_equal(served.result.parameters, alone.parameters)
    assert served.result.rows == alone.rows
    for name, table in alone.tables.items():
        ids = np.arange(CARDINALITY)
        np.testing.assert_array_equal(table.lookup(ids), served.result.tables[name].lookup(ids))


def test_rows_that_are_asked_for_ahead_miss_one_update() -> None:
    counted = play(1, 1, EmbeddingServers(2)).result.rows
    assert counted["stalest"] == 1
    assert 0 < counted["staleness"] < counted["applied"]
    assert counted["applied"] == play(1, 1, None).result.rows["applied"]


@pytest.mark.parametrize("look_ahead", [0, 1])
@pytest.mark.parametrize("workers", [1, 3])
def test_every_batch_is_trained_and_pushed_once(workers: int, look_ahead: int) -> None:
    rows = EmbeddingServers(3, bandwidth=1e7, latency=1e-3, batch=1e-3, look_ahead=look_ahead)
    played = play(workers, 2, rows, sync=sync.EASGD())
    assert played.trainers is not None
    assert played.trainers.iterations.sum() == 120
    assert played.result.rows["applied"] == play(workers, 2, None).result.rows["applied"]


def test_frames_have_the_bytes_of_the_wire() -> None:
    served = play(1, 1, EmbeddingServers(2, look_ahead=0))
    distinct, batches = served.result.rows["applied"], 120
    assert served.trainers is not None
    heads = HEADER + struct.calcsize("<4I14I") + HEADER + 16  # of 13 tables each
    assert served.trainers.row_bytes_out == 2 * batches * heads + distinct * (8 + 4 * DIM)
    answers = HEADER + HEADER + SETTLED
    assert served.trainers.row_bytes_in == 2 * batches * answers + distinct * 4 * DIM


def test_who_asks_late_waits_for_the_way_there_and_back() -> None:
    rows = EmbeddingServers(1, bandwidth=1e6, latency=0.002, batch=0.004, row=0.0, look_ahead=0)
    served = play(1, 1, rows, time=1.0)
    assert served.trainers is not None
    distinct, batches = served.result.rows["applied"], 120
    asked = HEADER + 8 + 26 * 4
    bytes_ = batches * (asked + HEADER) + distinct * (8 + 4 * DIM)
    least = batches * (2 * 0.002 + 0.004 / 2) + bytes_ / 1e6
    # Beside that, the pushes before it pass over the same link and through the same processor.
    assert served.trainers.row_seconds[0] == pytest.approx(least, rel=0.6)
    assert served.trainers.row_seconds[0] >= least - 1e-6
    ahead = EmbeddingServers(1, bandwidth=1e6, latency=0.002, batch=0.004)
    assert play(1, 1, ahead, time=1.0).trainers.row_seconds[0] < 0.1 * least  # type: ignore[union-attr]


def test_servers_that_are_too_few_are_what_a_run_waits_for() -> None:
    # Each batch takes a server 0.02 s, and workers half of that.
    played = play(4, 2, EmbeddingServers(1, batch=0.02), sync=sync.EASGD())
    assert played.result.elapsed == pytest.approx(120 * 0.02, rel=0.05)
    assert play(4, 2, EmbeddingServers(1), sync=sync.EASGD()).result.elapsed < 0.5


def test_updates_that_end_a_run_are_as_many_as_were_asked() -> None:
    for look_ahead in (0, 1):
        rows = EmbeddingServers(2, latency=1e-3, look_ahead=look_ahead)
        assert play(3, 2, rows, until=lsh.until(updates=17)).result.total_updates == 17


def test_the_same_seed_gives_the_same_bits() -> None:
    rows = EmbeddingServers(3, bandwidth=1e7, latency=1e-3, batch=1e-4, row=1e-6)
    one, other = (play(3, 2, rows, sync=sync.EASGD()).result for _ in range(2))
    np.testing.assert_array_equal(one.parameters, other.parameters)
    assert one.rows == other.rows


def test_waits_for_rows_with_measured_costs() -> None:
    """With a processor for each role, at 10 Gbit/s and 50 µs, and what one processor of an AMD EPYC (cpu
    family 26, model 2) took: ``simulation.measure`` for a batch's gradient and update, ``leashed cluster
    size`` for rows, which said how many servers (of 128 examples a gradient took it 0.14 ms, no more than
    the way there and back, and one batch ahead left 0.08 of that to wait).
    """
    batch, batches, trainers, rows, taken = 512, 200, 4, 10_000, 5.7e-4
    model = lsh.models.dlrm([rows] * TABLES, dim=16)
    data = lsh.datasets.synthetic_clicks(batches * batch, seed=1, cardinalities=rows).train
    waits = []
    for look_ahead in (0, 1):
        served = EmbeddingServers(
            3, bandwidth=1.25e9, latency=5e-5, batch=1.44e-5, row=4.4e-8, look_ahead=look_ahead
        )
        played = lsh.simulate(
            model,
            data,
            cluster=simulation.normal(1, taken, taken / 20).trainers(trainers, rows=served),
            batch_size=batch,
            discipline=lsh.Hogwild(),
            rule=lsh.Adagrad(0.05),
            until=lsh.until(epochs=1),
        )
        assert played.trainers is not None
        waits.append(played.trainers.row_seconds.sum() / (batches * taken))
    assert waits[1] <= 0.02 < waits[0]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"count": 0}, "count must be at least 1"),
        ({"bandwidth": 0.0}, "bandwidth must be greater than 0"),
        ({"row": -1.0}, "row must be at least 0"),
        ({"look_ahead": 2}, "look_ahead must be at most 1"),
    ],
)
def test_settings_are_checked(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        EmbeddingServers(**{"count": 1, **given})


def test_what_has_no_rows_at_servers_is_refused() -> None:
    crew = simulation.constant(1, 0.01).trainers(2, rows=EmbeddingServers(1))
    with pytest.raises(ValueError, match=r"rows: mlp.* reads no tables"):
        lsh.simulate(
            lsh.models.mlp(784, [2], 10),
            lsh.datasets.synthetic_digits(20),
            cluster=crew,
            until=lsh.until(epochs=1),
        )
    with pytest.raises(ValueError, match="rows: Synchronous"):
        play(2, 2, EmbeddingServers(1), discipline=lsh.Synchronous())
    with pytest.raises(TypeError, match="rows must be simulation"):
        play(2, 2, 3)  # type: ignore[arg-type]
