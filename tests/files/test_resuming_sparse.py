"""Checkpoints of runs on sparse rows: in place or on whole vectors, with decay that is behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import TrainResult, models
from leashed.datasets import SparseDataset
from leashed.files import model_file

# More columns than the decay goes through at a time, and a last batch of 2 rows.
N, FEATURES, BATCH = 2000, 9000, 3
PASS = 667
CUT, END = 700, 1500  # in the second and third pass, neither where a run of batches ends
MODEL = models.logistic_regression(FEATURES, l2=0.001)
IN_PLACE = [lsh.Sequential(), lsh.Locked(), lsh.Hogwild(), lsh.Hogwild(copy=False)]
PLAIN = models.logistic_regression(FEATURES)
SCHEDULED = lsh.SGD(lsh.schedules.cosine(0.5, total=END))


@pytest.fixture(scope="module")
def rows() -> SparseDataset:
    return make(0)


def make(seed: int) -> SparseDataset:
    rng = np.random.default_rng(seed)
    planted = rng.normal(size=FEATURES)
    often = np.minimum(rng.zipf(1.3, (N, 5)) - 1, FEATURES - 1)
    indices = np.hstack([often, rng.integers(0, FEATURES, (N, 5))]).astype(np.int32)
    y = (planted[indices].sum(axis=1) > 0).astype(np.int32)
    indptr = np.arange(0, 10 * N + 1, 10, dtype=np.int64)
    return SparseDataset(indptr, indices.ravel(), np.ones(10 * N, np.float32), FEATURES, y, 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.safetensors"


def run(rows: SparseDataset, updates: int, **arguments: Any) -> TrainResult:
    arguments = {
        "rule": lsh.SGD(0.5),
        "discipline": lsh.Sequential(),
        "until": lsh.until(updates=updates),
        "batch_size": BATCH,
        "threads": 1,
        "seed": 3,
        **arguments,
    }
    return lsh.train(arguments.pop("model", MODEL), rows, **arguments)


def run_of(path: Path) -> dict[str, Any]:
    return json.loads(model_file.read(path)[2]["run"])


@pytest.mark.parametrize(
    "given", [*IN_PLACE, lsh.Synchronous(), lsh.Leashed()], ids=lambda d: d.label
)
@pytest.mark.parametrize(
    ("model", "rule"),
    [
        (PLAIN, lsh.SGD(0.5)),
        (MODEL, lsh.SGD(0.5)),
        (MODEL, SCHEDULED),
        (PLAIN, lsh.SGD(0.5, weight_decay=0.01)),
        (PLAIN, lsh.Adagrad(0.1, initial_accumulator=0.1)),
        (MODEL, lsh.Adagrad(0.1)),
        (models.softmax_regression(FEATURES, 3, l2=0.001), lsh.SGD(0.5)),
        (PLAIN, lsh.Adam(0.001)),
    ],
    ids=["sgd", "l2", "l2 schedule", "weight decay", "adagrad", "adagrad l2", "softmax l2", "adam"],
)
def test_a_resumed_run_is_the_uninterrupted_one(
    model: lsh.Model, rule: lsh.Rule, given: lsh.Discipline, rows: SparseDataset, path: Path
) -> None:
    if model.outputs == 3:
        rows = SparseDataset(rows.indptr, rows.indices, rows.data, FEATURES, rows.y, 3)
    arguments: dict[str, Any] = {"model": model, "rule": rule, "discipline": given}
    whole = run(rows, END, **arguments)
    half = run(rows, CUT, **arguments, checkpoint=path)
    loaded, theta = lsh.load(path)
    assert loaded == model
    np.testing.assert_array_equal(theta, half.parameters)
    twice = run(rows, CUT + 1, **arguments, resume=path, checkpoint=path)
    assert twice.gradients == 1
    resumed = run(rows, END, **arguments, resume=path)
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    assert resumed.total_updates == END
    assert resumed.gradients == END - CUT - 1
    assert resumed.loss[0] == twice.final_loss
    assert resumed.config["sparse_updates"] == whole.config["sparse_updates"]


def test_the_file_has_weights_with_all_their_decay_and_what_they_were(
    rows: SparseDataset, path: Path
) -> None:
    run(rows, CUT, checkpoint=path)
    _, tensors, _ = model_file.read(path)
    behind = tensors["behind.0.weight"]
    assert behind.shape == tensors["0.weight"].shape
    share = tensors["0.weight"][behind != 0] / behind[behind != 0]
    total, done, _ = run_of(path)["decay"]
    assert len(done) == 2
    missed = np.exp(total - np.array(done))
    assert missed.min() < 0.995
    factors = np.append(missed, 1)  # columns that do not occur are left alone
    np.testing.assert_allclose(np.abs(share[:, None] - factors).min(axis=1), 0, atol=1e-6)
    np.testing.assert_array_equal(tensors["behind.0.bias"], tensors["0.bias"])
    run(rows, CUT, model=PLAIN, checkpoint=path)
    assert not [name for name in model_file.read(path)[1] if name.startswith("behind")]


@pytest.mark.parametrize(
    "given", [lsh.Locked(), *IN_PLACE[2:], lsh.Leashed()], ids=lambda d: d.label
)
@pytest.mark.parametrize(
    "first", [lsh.Locked(), *IN_PLACE[2:], lsh.Leashed()], ids=lambda d: d.label
)
def test_threads_and_discipline_may_change(
    first: lsh.Discipline, given: lsh.Discipline, rows: SparseDataset, path: Path
) -> None:
    # The learning rate falls to 0: at a constant one the loss jumps with the last batches, and which
    # these are is the schedule's choice (one thread's, by its seed: 0.35 to 0.62).
    arguments: dict[str, Any] = {"rule": SCHEDULED, "checkpoint": path}
    run(rows, CUT, discipline=first, threads=3, **arguments)
    resumed = run(rows, END, discipline=given, threads=2, resume=path, **arguments)
    assert resumed.total_updates == END
    assert run_of(path)["batches"] == END
    whole = run(rows, END, rule=SCHEDULED)
    assert resumed.final_loss == pytest.approx(whole.final_loss, rel=0.07)
    assert np.linalg.norm(resumed.parameters) == pytest.approx(
        np.linalg.norm(whole.parameters), rel=0.2
    )


def test_one_thread_changes_its_discipline_without_a_trace(rows: SparseDataset, path: Path) -> None:
    whole = run(rows, END)
    for first, then in zip(IN_PLACE, [*IN_PLACE[1:], IN_PLACE[0]], strict=True):
        run(rows, CUT, discipline=first, checkpoint=path)
        resumed = run(rows, END, discipline=then, resume=path)
        np.testing.assert_array_equal(resumed.parameters, whole.parameters)


@pytest.mark.parametrize("discipline", [*IN_PLACE[:2], lsh.Leashed()], ids=lambda d: d.label)
def test_what_was_saved_while_training_resumes_to_the_same_bits(
    discipline: lsh.Discipline, rows: SparseDataset, path: Path
) -> None:
    class Enough(Exception):
        pass

    def stop(_: lsh.Progress) -> None:
        if path.exists() and run_of(path)["updates"] > 0:
            raise Enough

    arguments: dict[str, Any] = {"rule": lsh.SGD(0.1), "discipline": discipline}
    with pytest.raises(Enough):
        run(
            rows,
            1,
            **arguments,
            until=lsh.until(seconds=60),
            checkpoint=lsh.Checkpoint(path, every=0.002),
            observe=lsh.Observe(stop, every=0.02),
        )
    end = run_of(path)["updates"] + 50_000
    resumed = run(rows, end, **arguments, resume=path)
    np.testing.assert_array_equal(resumed.parameters, run(rows, end, **arguments).parameters)


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
def test_what_hogwild_saves_while_training_is_gone_on_from(
    copy: bool, threads: int, rows: SparseDataset, path: Path
) -> None:
    arguments: dict[str, Any] = {"discipline": lsh.Hogwild(copy=copy), "threads": threads}

    def stop(_: lsh.Progress) -> None:
        if path.exists() and run_of(path)["updates"] > 10_000:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        run(
            rows,
            1,
            **arguments,
            until=lsh.until(seconds=60),
            checkpoint=lsh.Checkpoint(path, every=0.01),
            observe=lsh.Observe(stop, every=0.01),
        )
    saved = run_of(path)
    resumed = run(rows, saved["updates"] + 1000, **arguments, resume=path)
    assert resumed.total_updates == saved["updates"] + 1000
    assert resumed.loss[0] < saved["initial_loss"]


@pytest.mark.parametrize("copy", [True, False])
def test_staleness_counts_from_where_the_run_goes_on(
    copy: bool, rows: SparseDataset, path: Path
) -> None:
    run(rows, 50_000, checkpoint=path)
    resumed = run(rows, 50_300, discipline=lsh.Hogwild(copy=copy), threads=2, resume=path)
    assert resumed.staleness.max() <= 300


def test_epochs_count_from_the_beginning(rows: SparseDataset, path: Path) -> None:
    whole = run(rows, 1, until=lsh.until(epochs=3))
    for threads in (1, 2):
        first = run(rows, 1, threads=threads, discipline=lsh.Hogwild(), until=lsh.until(epochs=1.5), checkpoint=path)  # fmt: skip
        assert first.total_updates == pytest.approx(1.5 * PASS, abs=1)
        resumed = run(rows, 1, until=lsh.until(epochs=3), resume=path)
        assert resumed.total_updates == whole.total_updates == 3 * PASS
        assert resumed.reason == "epochs"


def test_a_staleness_policy_of_stages_goes_on(rows: SparseDataset, path: Path) -> None:
    arguments: dict[str, Any] = {
        "staleness": lsh.staleness.stage_aware(lsh.staleness.inverse()),
        "discipline": lsh.Leashed(),
        "batch_size": 100,
    }
    whole = run(rows, 40, **arguments)
    run(rows, 20, **arguments, checkpoint=path)
    assert model_file.read(path)[1]["last_updates"].shape == (2,)
    resumed = run(rows, 40, **arguments, resume=path)
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)


def test_other_data_are_not_continued(rows: SparseDataset, path: Path) -> None:
    run(rows, 5, checkpoint=path)
    with pytest.raises(ValueError, match=r"examples in data was 2000 and is 1000"):
        run(rows.head(1000), 10, resume=path)
    dense = lsh.Dataset.from_arrays(np.ones((N, FEATURES), np.float32), rows.y)
    with pytest.raises(ValueError, match="whether data is sparse was True and is False"):
        run(dense, 10, resume=path)  # type: ignore[arg-type]
    few = SparseDataset(rows.indptr, rows.indices % 100, rows.data, FEATURES, rows.y, 2)
    with pytest.raises(ValueError, match="data has other columns than those of the run"):
        run(few, 10, resume=path)


def test_damaged_checkpoints_are_refused(rows: SparseDataset, path: Path) -> None:
    run(rows, 5, checkpoint=path)
    content = path.read_bytes()
    for altered in (content[:-100], content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]):
        path.write_bytes(altered)
        with pytest.raises(ValueError, match=rf"cannot load .*{path.name}"):
            run(rows, 10, resume=path)
