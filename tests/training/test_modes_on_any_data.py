"""Modes on sparse rows, factorisation machines and streams, on threads and in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_clicks import clicks, shared
from simulation.test_simulated_modes import ALL, ALONE
from stream.test_training import everything, same, streamed

import leashed as lsh
from leashed import models, modes, simulation, stream
from leashed.datasets import SparseDataset

N, FEATURES, BATCH = 512, 60, 16
LINEAR = models.logistic_regression(FEATURES)
MACHINE = models.fm(FEATURES, 3)


def rows(n: int = N, *, values: bool = False, weights: bool = False) -> SparseDataset:
    rng = np.random.default_rng(0)
    planted = rng.normal(size=FEATURES)
    indices = np.minimum(rng.zipf(1.3, (n, 6)) - 1, FEATURES - 1).astype(np.int32)
    y = (planted[indices].sum(axis=1) > 0).astype(np.int32)
    indptr = np.arange(0, 6 * n + 1, 6, dtype=np.int64)
    data = rng.uniform(0.5, 1.5, 6 * n) if values else np.ones(6 * n)
    counts = rng.uniform(0.5, 2.0, n).astype(np.float32) if weights else None
    return SparseDataset(
        indptr, indices.ravel(), data.astype(np.float32), FEATURES, y, 2, weights=counts
    )


def text(path: Path, data: SparseDataset) -> Path:
    with path.open("w") as file:
        for i in range(len(data)):
            of = slice(data.indptr[i], data.indptr[i + 1])
            # Each column once, as the text has it.
            sums = {int(c): 0.0 for c in sorted(data.indices[of])}
            for c, v in zip(data.indices[of], data.data[of], strict=True):
                sums[int(c)] += float(v)
            file.write(f"{data.y[i]} " + " ".join(f"{c + 1}:{v!r}" for c, v in sums.items()) + "\n")
    return path


def train(model: Any, data: Any, **given: Any) -> lsh.TrainResult:
    settings = {
        "rule": lsh.Adam(0.02),
        "until": lsh.until(epochs=1),
        "batch_size": BATCH,
        "threads": 1,
    }
    return lsh.train(model, data, **{**settings, **given})


@pytest.mark.parametrize("mode", ALONE, ids=repr)
@pytest.mark.parametrize("model", [LINEAR, MACHINE], ids=["linear", "fm"])
def test_one_thread_has_the_bits_of_sequential_on_sparse_rows(model: Any, mode: modes.Mode) -> None:
    data = rows(values=True, weights=True)
    until = lsh.until(epochs=3)
    alone = train(model, data, discipline=lsh.Sequential(), until=until)
    result = train(model, data, mode=mode, until=until)
    np.testing.assert_array_equal(result.parameters, alone.parameters)
    assert result.loss[-1] == alone.loss[-1]
    assert result.config["sparse_updates"] is False


@pytest.mark.parametrize("mode", ALL, ids=repr)
@pytest.mark.parametrize("model", [LINEAR, MACHINE], ids=["linear", "fm"])
def test_every_mode_learns_sparse_rows(model: Any, mode: modes.Mode) -> None:
    data = rows(500)  # whose last batch reaches into the next pass
    result = train(
        model, data, mode=mode, threads=3, until=lsh.until(epochs=4), validation=rows(100)
    )
    assert result.final_loss < result.initial_loss
    assert result.mode.worker_examples.sum() == 4 * 500
    assert 0 <= result.validation_accuracy[-1] <= 1


@pytest.mark.parametrize("model", [LINEAR, MACHINE], ids=["linear", "fm"])
def test_a_batch_of_its_own_size_is_the_same_rows_for_every_executor(model: Any) -> None:
    """Spans of any length, over the ends of runs and passes."""
    data = rows(500, values=True, weights=True)
    given = {"rule": lsh.SGD(0.1), "until": lsh.until(epochs=3), "batch_size": 48}
    mode = modes.SHAT()
    on_threads = train(model, data, mode=mode, **given)
    played = lsh.simulate(model, data, cluster=simulation.constant(1, 1.0), mode=mode, **given)
    np.testing.assert_array_equal(on_threads.parameters, played.result.parameters)


@pytest.mark.parametrize(
    "choice",
    [{"discipline": lsh.Leashed()}, {"discipline": lsh.Locked()}, {"mode": modes.GBA(m=2)}],
    ids=["leashed", "locked", "gba"],
)
@pytest.mark.parametrize("model", [LINEAR, MACHINE], ids=["linear", "fm"])
def test_sparse_rows_in_virtual_time(model: Any, choice: dict[str, Any]) -> None:
    data = rows(500)
    given = {"rule": lsh.Adam(0.02), "until": lsh.until(epochs=2), "batch_size": BATCH, **choice}
    one = lsh.simulate(model, data, cluster=simulation.constant(4, 1.0, update=0.1), **given)
    two = lsh.simulate(model, data, cluster=simulation.constant(4, 1.0, update=0.1), **given)
    np.testing.assert_array_equal(one.result.parameters, two.result.parameters)
    assert one.result.final_loss < one.result.initial_loss
    assert one.result.staleness.mean() > 0
    assert one.result.config["sparse"] is True


def test_one_worker_of_virtual_time_has_the_bits_of_sequential() -> None:
    data = rows(500, values=True)
    given = {"rule": lsh.Adam(0.02), "until": lsh.until(epochs=3), "batch_size": BATCH}
    alone = train(MACHINE, data, discipline=lsh.Sequential(), **given)
    played = lsh.simulate(MACHINE, data, cluster=simulation.constant(1, 1.0), **given)
    np.testing.assert_array_equal(played.result.parameters, alone.parameters)
    assert played.result.total_updates == alone.total_updates


@pytest.mark.parametrize("shards", [simulation.packed(2), simulation.memorywise(3)], ids=repr)
@pytest.mark.parametrize("model", [LINEAR, MACHINE], ids=["linear", "fm"])
def test_several_servers_hold_what_they_would_of_dense_rows(
    model: Any, shards: simulation.Sharding
) -> None:
    """Though intercepts come first where sparse rows are trained on."""
    data = rows()
    given = {"cluster": simulation.constant(2, 1.0), "mode": modes.ASP(), "rule": lsh.SGD(0.1)}
    given |= {"until": lsh.until(epochs=1), "batch_size": BATCH}
    whole = lsh.simulate(model, data, **given)
    cut = lsh.simulate(model, data, shards=shards, **given)
    spans = [tuple(spans) for spans in shards.spans(model) if spans]
    assert [shard.spans for shard in cut.shards] == spans
    np.testing.assert_allclose(cut.result.parameters, whole.result.parameters, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", [modes.ASP(), modes.GBA(m=3), modes.SHAT()], ids=repr)
@pytest.mark.parametrize("model", [LINEAR, MACHINE], ids=["linear", "fm"])
def test_a_record_of_sparse_rows_by_a_mode_is_replayed_bit_for_bit(
    model: Any, mode: modes.Mode, tmp_path: Path
) -> None:
    data = rows(500)
    result = train(
        model, data, mode=mode, threads=3, observe=lsh.Observe(record=tmp_path / "trace")
    )
    again = lsh.replay(tmp_path / "trace", model, data)
    assert again.ended
    assert again.difference == 0
    np.testing.assert_array_equal(again.parameters, result.parameters)


STAGED = lsh.staleness.stage_aware(lsh.staleness.inverse(), 2.0)


@pytest.mark.parametrize(
    "mode", [m for m in ALONE if m.PUSHES_GRADIENTS and not isinstance(m, modes.SHAT)], ids=repr
)
def test_one_thread_has_the_bits_of_sequential_by_stages(mode: modes.Mode) -> None:
    data = rows(values=True)
    alone = train(MACHINE, data, discipline=lsh.Sequential(), staleness=STAGED)
    result = train(MACHINE, data, mode=mode, staleness=STAGED)
    np.testing.assert_array_equal(result.parameters, alone.parameters)


@pytest.mark.parametrize("mode", [modes.ASP(), modes.GBA(m=3), modes.BSP(b2=2)], ids=repr)
def test_each_variable_of_a_gradient_is_damped_by_its_own_factor(mode: modes.Mode) -> None:
    """It trains, and otherwise than by one factor for all of them."""

    def gradient(theta: Any, x: Any, y: Any, out: Any) -> float:
        error = x @ theta[:-1] + theta[-1] - y
        out[:-1], out[-1] = x.T @ error / len(y), error.mean()
        return float((error**2).mean() / 2)

    features = 3
    model = models.external(
        gradient, dimension=features + 1, features=features, y="float32", variables=(features, 1),
        loss=lambda theta, x, y: float(((x @ theta[:-1] + theta[-1] - y) ** 2).mean() / 2),
    )  # fmt: skip
    random = np.random.default_rng(1)
    x = random.normal(size=(64, features)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0, 0.5]) + 0.3).astype(np.float32)
    given = {
        "rule": lsh.SGD(0.1),
        "until": lsh.until(epochs=1),
        "batch_size": 4,
        "staleness": STAGED,
    }
    cluster = simulation.constant(3, 1.0)
    result = lsh.simulate(model, (x, y), cluster=cluster, mode=mode, **given).result
    plain = lsh.simulate(
        model, (x, y), cluster=cluster, mode=mode, **{**given, "staleness": lsh.staleness.inverse()}
    ).result
    assert result.final_loss < result.initial_loss
    assert result.total_updates == plain.total_updates
    if result.staleness.mean() > 0:
        assert not np.array_equal(result.parameters, plain.parameters)


def test_several_servers_refuse_a_policy_by_stages() -> None:
    with pytest.raises(ValueError, match="shards must be 1"):
        lsh.simulate(
            LINEAR, rows(), cluster=simulation.constant(2, 1.0), mode=modes.ASP(), staleness=STAGED,
            shards=simulation.memorywise(2), until=lsh.until(epochs=1),
        )  # fmt: skip


# Streams.


@pytest.mark.parametrize("mode", [m for m in ALONE if m.PUSHES_GRADIENTS], ids=repr)
@pytest.mark.parametrize("epochs", [1, 2])
def test_one_thread_has_the_bits_of_sequential_on_a_stream_of_clicks(
    mode: modes.Mode, epochs: int, tmp_path: Path
) -> None:
    model = shared()
    source = streamed(tmp_path / "rows.csv", clicks(model, 408, kind="bags"))
    until = lsh.until(epochs=epochs)
    alone = train(model, source, discipline=lsh.Sequential(), until=until)
    result = train(model, source, mode=mode, until=until)
    same(result, alone)
    assert result.final_loss == alone.final_loss
    assert result.reason == "epochs"
    assert result.mode.worker_examples.sum() == 408 * epochs
    assert result.config["reading"]["rows"] == 408


@pytest.mark.parametrize("mode", ALL, ids=repr)
def test_every_mode_learns_a_stream_of_sparse_rows(mode: modes.Mode, tmp_path: Path) -> None:
    data = rows(500)
    source = stream.libsvm(text(tmp_path / "rows.txt", data), FEATURES)
    result = train(LINEAR, source, mode=mode, threads=3, until=lsh.until(epochs=4), validation=data)
    assert result.reason == "epochs"
    assert result.mode.worker_examples.sum() == 4 * 500
    assert LINEAR.evaluate(result.parameters, data)[0] < np.log(2)


def test_a_stream_has_the_bits_of_its_rows_in_memory(tmp_path: Path) -> None:
    """By one thread, whose rows are in the order of the file."""
    data = rows(496)
    source = stream.libsvm(text(tmp_path / "rows.txt", data), FEATURES)
    alone = train(MACHINE, source, discipline=lsh.Sequential())
    result = train(MACHINE, source, mode=modes.ASP())
    np.testing.assert_array_equal(result.parameters, alone.parameters)
    assert result.final_loss == alone.final_loss


def test_a_lease_of_a_stream_that_goes_to_another_has_the_same_rows(tmp_path: Path) -> None:
    """Rows come once: they are kept until the batch has been pushed for."""
    model = shared()
    source = streamed(tmp_path / "rows.csv", clicks(model, 2000, kind="bags"))
    result = train(model, source, threads=3, mode=modes.ASP(term=1e-4))
    counts = result.mode
    assert counts.applied == 2000
    assert counts.worker_examples.sum() >= 2000
    assert np.isfinite(result.parameters).all()
    assert all(np.isfinite(part).all() for part in everything(result))


def test_a_stream_ends_for_a_mode_with_batches_of_two_sizes(tmp_path: Path) -> None:
    data = rows(500)
    source = stream.libsvm(text(tmp_path / "rows.txt", data), FEATURES)
    mode = modes.Switching(gba_batch=5, m=12, at=((0.0, "gba"),))
    result = train(LINEAR, source, mode=mode, threads=2, until=lsh.until(epochs=2))
    assert result.mode.worker_examples.sum() == 1000


def test_a_bad_line_stops_a_mode_and_is_named(tmp_path: Path) -> None:
    path = text(tmp_path / "rows.txt", rows(100))
    path.write_text(path.read_text() + "1 nonsense\n")
    source = stream.libsvm(path, FEATURES)
    with pytest.raises(ValueError, match="line 101"):
        train(LINEAR, source, mode=modes.GBA(m=2), threads=2)


def test_updates_end_a_mode_on_an_endless_stream(tmp_path: Path) -> None:
    source = stream.libsvm(text(tmp_path / "rows.txt", rows(100)), FEATURES)
    result = train(LINEAR, source, mode=modes.ASP(), threads=2, until=lsh.until(updates=100))
    assert (result.reason, result.total_updates) == ("updates", 100)


@pytest.mark.parametrize(
    "choice",
    [
        {"discipline": lsh.Leashed()},
        {"discipline": lsh.Hogwild()},
        {"mode": modes.Sync()},
        {"mode": modes.GBA(m=2)},
        {"mode": modes.SHAT()},
    ],
    ids=repr,
)
@pytest.mark.parametrize("workers", [1, 3])
def test_a_stream_in_virtual_time(choice: dict[str, Any], workers: int, tmp_path: Path) -> None:
    data = rows(500)
    source = stream.libsvm(text(tmp_path / "rows.txt", data), FEATURES)
    given = {"rule": lsh.Adam(0.02), "until": lsh.until(epochs=2), "batch_size": BATCH, **choice}
    cluster = simulation.constant(workers, 1.0, update=0.1)
    one = lsh.simulate(LINEAR, source, cluster=cluster, **given).result
    two = lsh.simulate(LINEAR, source, cluster=cluster, **given).result
    np.testing.assert_array_equal(one.parameters, two.parameters)
    assert one.reason == "epochs"
    assert one.config["examples"] is None
    assert one.config["reading"]["rows"] == 500
    assert LINEAR.evaluate(one.parameters, data)[0] < np.log(2)
    if workers == 1 and choice.get("mode") != modes.GBA(m=2):
        alone = train(LINEAR, source, discipline=lsh.Sequential(), until=given["until"])
        np.testing.assert_array_equal(one.parameters, alone.parameters)
        assert one.final_loss == alone.final_loss


def test_a_stream_of_clicks_in_virtual_time(tmp_path: Path) -> None:
    model = shared()
    source = streamed(tmp_path / "rows.csv", clicks(model, 408, kind="bags"))
    given = {"rule": lsh.Adagrad(0.1), "until": lsh.until(epochs=1), "batch_size": BATCH}
    for choice in ({}, {"mode": modes.ASP()}):
        played = lsh.simulate(model, source, cluster=simulation.constant(1, 1.0), **given, **choice)
        alone = train(model, source, **given, discipline=lsh.Sequential())
        same(played.result, alone)


def test_a_batch_of_a_stream_that_comes_back_has_its_rows(tmp_path: Path) -> None:
    """Of workers that crash, in virtual time."""
    data = rows(500)
    source = stream.libsvm(text(tmp_path / "rows.txt", data), FEATURES)
    cluster = simulation.constant(4, 1.0).members([(1.5, 1, "crash"), (7.2, 2, "crash")])
    played = lsh.simulate(
        LINEAR, source, cluster=cluster, mode=modes.ASP(), detection=0.5, rule=lsh.SGD(0.1),
        until=lsh.until(epochs=1), batch_size=BATCH,
    )  # fmt: skip
    assert played.mode is not None
    assert played.mode.departures == 2
    assert played.mode.applied == 500


@pytest.mark.parametrize(
    ("choice", "threads"),
    [
        ({"discipline": lsh.Sequential()}, 1),
        ({"discipline": lsh.Leashed(persistence=0)}, 3),
        ({"discipline": lsh.Locked()}, 3),
        ({"discipline": lsh.Synchronous()}, 2),
        ({"mode": modes.GBA(m=2)}, 3),
        ({"mode": modes.SHAT()}, 2),
    ],
    ids=repr,
)
def test_a_record_of_a_stream_is_replayed_bit_for_bit(
    choice: dict[str, Any], threads: int, tmp_path: Path
) -> None:
    data = rows(500)
    source = stream.libsvm(text(tmp_path / "rows.txt", data), FEATURES)
    until = lsh.until(epochs=2)
    result = train(
        LINEAR,
        source,
        threads=threads,
        until=until,
        observe=lsh.Observe(record=tmp_path / "trace"),
        **choice,
    )
    again = lsh.replay(tmp_path / "trace", data=source)
    assert again.ended
    assert again.difference == 0
    np.testing.assert_array_equal(again.parameters, result.parameters)
    half = lsh.replay(tmp_path / "trace", data=source, until=result.total_updates // 2)
    assert half.updates == result.total_updates // 2
    other = stream.libsvm(text(tmp_path / "other.txt", data), FEATURES)
    with pytest.raises(ValueError, match="its data was"):
        lsh.replay(tmp_path / "trace", data=other)


def test_who_is_late_with_a_batch_of_a_stream_finds_its_rows(tmp_path: Path) -> None:
    """Also where the other who got it has pushed meanwhile."""
    data = rows(2000)
    source = stream.libsvm(text(tmp_path / "rows.txt", data), FEATURES)
    played = lsh.simulate(
        LINEAR, source, cluster=simulation.exponential(4, 1.0), mode=modes.ASP(term=1.5),
        rule=lsh.SGD(0.1), until=lsh.until(epochs=1), batch_size=4,
    )  # fmt: skip
    assert played.mode is not None
    assert played.mode.applied == 2000
    assert played.mode.late > 0


def test_a_mode_hears_what_is_due_while_it_trains_on_a_stream(tmp_path: Path) -> None:
    """A switch, and terms that end: in the middle, not when the end has been read."""
    data = rows(2000)
    source = stream.libsvm(text(tmp_path / "rows.txt", data), FEATURES)
    until = lsh.until(seconds=1.0)
    result = train(LINEAR, source, threads=3, mode=modes.ASP(term=1e-6), until=until)
    assert result.mode.late > 0
    path = tmp_path / "trace"
    until = lsh.until(epochs=20)
    result = train(
        LINEAR,
        source,
        threads=3,
        mode=modes.ASP(term=1e-6),
        until=until,
        observe=lsh.Observe(record=path),
    )
    again = lsh.replay(path, data=source)
    assert again.difference == 0


def test_examples_are_counted_as_by_train() -> None:
    data = rows(500)
    given = {"rule": lsh.Adam(0.02), "until": lsh.until(epochs=2), "batch_size": BATCH}
    alone = train(LINEAR, data, discipline=lsh.Sequential(), **given)
    played = lsh.simulate(LINEAR, data, cluster=simulation.constant(1, 1.0), **given)
    assert played.result.examples == alone.examples == 1000
