"""Checkpoints of a run: taken beside training, resumed to the same bits, refused where they do not fit."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from warned import once

import leashed as lsh
from leashed import Dataset, Discipline, TrainResult, _core, cli, staleness
from leashed.files import model_file, resuming

MODEL = lsh.models.mlp(784, [16], 10)
RULES = [
    lsh.SGD(0.05, weight_decay=0.01, decoupled=True),
    lsh.Momentum(lsh.schedules.cosine(0.05, total=40)),
    lsh.Nesterov(lsh.schedules.warmup(lsh.schedules.step(0.05, every=9), steps=15)),
    lsh.Adagrad(0.01, initial_accumulator=0.1),
    lsh.RMSprop(0.001, clip_norm=1.0),
    lsh.Adam(0.001),
    lsh.AdamW(0.001),
    lsh.SWAP(lsh.Adam(0.001), period=7),
    lsh.Momentum(0.05, dampening=0.5, maximize=True, clip_norm=1.0),
    lsh.RMSprop(0.001, centered=True),
    lsh.Adam(0.001, amsgrad=True),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.safetensors"


def run(data: Dataset, updates: int, **arguments: Any) -> TrainResult:
    arguments = {
        "rule": lsh.Momentum(0.05),
        "until": lsh.until(updates=updates),
        "batch_size": 8,
        "threads": 1,
        "seed": 3,
        **arguments,
    }
    return lsh.train(arguments.pop("model", MODEL), data, **arguments)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_a_resumed_run_is_the_uninterrupted_one(
    rule: lsh.Rule, path: Path, digits: Dataset
) -> None:
    whole = run(digits, 40, rule=rule)
    half = run(digits, 20, rule=rule, checkpoint=path)
    resumed = run(digits, 40, rule=rule, resume=path)
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    assert resumed.total_updates == 40
    assert resumed.gradients == 20
    assert resumed.loss[0] == half.final_loss
    assert resumed.config["resumed_at"] == 20


@pytest.mark.parametrize(
    "policy",
    [
        staleness.stage_aware(staleness.inverse()),
        staleness.tail_tau(warmup=25),
        staleness.cutoff(2),
    ],
    ids=["stage_aware", "tail_tau", "cutoff"],
)
def test_the_staleness_policy_goes_on_too(
    policy: staleness.Policy, path: Path, digits: Dataset
) -> None:
    whole = run(digits, 40, staleness=policy)
    run(digits, 20, staleness=policy, checkpoint=path)
    resumed = run(digits, 40, staleness=policy, resume=path)
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)


def test_linear_models_resume(path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 5)).astype(np.float32)
    data = (x, (x.sum(axis=1) > 0).astype(int))
    model = lsh.models.logistic_regression(5, l2=0.01)
    whole, _, resumed = (
        lsh.train(
            model,
            data,
            rule=lsh.Adam(0.01),
            threads=1,
            until=lsh.until(updates=updates),
            checkpoint=checkpoint,
            resume=resume,
        )
        for updates, checkpoint, resume in [(40, None, None), (20, path, None), (40, None, path)]
    )
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    assert lsh.load(path)[0] == model


def test_every_discipline_resumes(discipline: Discipline, path: Path, digits: Dataset) -> None:
    whole = run(digits, 30, discipline=lsh.Sequential())
    run(digits, 20, discipline=discipline, checkpoint=path)
    resumed = run(digits, 30, discipline=discipline, resume=path)
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)


def test_several_threads_resume(concurrent: Discipline, path: Path, digits: Dataset) -> None:
    run(digits, 20, discipline=concurrent, threads=3, checkpoint=path)
    resumed = run(digits, 45, discipline=concurrent, threads=2, resume=path, checkpoint=path)
    assert resumed.total_updates == 45
    *_, metadata = model_file.read(path)
    batches = json.loads(metadata["run"])["batches"]
    lockstep = isinstance(concurrent, lsh.Synchronous)
    assert batches >= (20 * 3 + 25 * 2 if lockstep else 45)


def test_what_was_saved_while_training_resumes_to_the_same_bits(
    discipline: Discipline, path: Path, digits: Dataset
) -> None:
    """Each checkpoint of a run under way is one of its states exactly, batch counter and all."""
    if isinstance(discipline, lsh.Hogwild):
        pytest.skip("Hogwild's checkpoints while training are copies of what changes meanwhile")
    rule, kept = lsh.Adam(0.001), []

    class Enough(Exception):
        pass

    def keep(_: lsh.Progress) -> None:
        if path.exists():
            kept.append(path.read_bytes())
        if len(kept) > 5 and len(set(kept)) > 1:
            raise Enough

    with pytest.raises(Enough):
        run(
            digits,
            1,
            until=lsh.until(seconds=60),
            rule=rule,
            discipline=discipline,
            checkpoint=lsh.Checkpoint(path, every=0.002),
            observe=lsh.Observe(keep, every=0.02),
        )
    for content in (kept[0], kept[-1]):
        path.write_bytes(content)
        end = json.loads(model_file.read(path)[2]["run"])["updates"] + 500
        resumed = run(digits, end, rule=rule, discipline=discipline, resume=path)
        assert resumed.config["resumed_at"] == end - 500
        whole = run(digits, end, rule=rule, discipline=discipline)
        np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    assert list(path.parent.iterdir()) == [path]


class Every(resuming.Kept):
    """Keeps every checkpoint of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[_core.Resumption] = []

    def __call__(self, reached: _core.Resumption) -> None:
        super().__call__(reached)
        self.all.append(reached)


def test_an_adaptive_policy_goes_on_from_any_moment_to_the_same_bits(
    discipline: Discipline, digits: Dataset
) -> None:
    if isinstance(discipline, lsh.Hogwild):
        pytest.skip("Hogwild's checkpoints while training are copies of what changes meanwhile")
    # After the warm-up every gradient counts for more: one update sooner or later shows.
    arguments = {"discipline": discipline, "staleness": staleness.tail_tau(warmup=2500)}
    every = Every()
    while not every.all[1:]:  # who takes them may stand still for a whole run
        every = Every()
        whole = run(digits, 2600, checkpoint=lsh.Checkpoint(every, every=1e-4), **arguments)
    under_way = every.all[:-1]
    assert [c.staleness[0] for c in every.all] == [c.updates for c in every.all]
    for kept in under_way[:: max(1, len(under_way) // 20)]:
        begin = resuming.Kept()
        begin.reached = kept
        resumed = run(digits, 2600, resume=begin, **arguments)
        np.testing.assert_array_equal(resumed.parameters, whole.parameters)


def test_what_a_policy_has_gathered_is_of_the_moment_of_the_parameters(
    concurrent: Discipline, digits: Dataset
) -> None:
    policy = staleness.tail_tau(warmup=10)
    arguments = {"discipline": concurrent, "staleness": policy, "threads": 3}
    for updates in (1_500, 15_000, 150_000):  # where the machine has no time for checkpoints
        first = Every()
        run(digits, updates, checkpoint=lsh.Checkpoint(first, every=1e-4), **arguments)
        if len(first.all) > 2:
            break
    middle = resuming.Kept()
    middle.reached = first.all[len(first.all) // 2]
    second = Every()
    end = middle.reached.updates + 1_000
    run(digits, end, checkpoint=lsh.Checkpoint(second, every=1e-4), resume=middle, **arguments)
    kept = first.all + second.all
    assert len(kept) > 2
    for reached in kept:
        count, _, _, *bins = reached.staleness
        assert count == sum(bins) == reached.updates


def test_staleness_in_the_thousands_goes_on(path: Path, digits: Dataset) -> None:
    policy = staleness.tail_tau(0.9, warmup=1)
    run(digits, 20, staleness=policy, checkpoint=path)

    def stale(_: dict[str, str], saved: dict[str, Any]) -> None:
        # All updates so far had the staleness 4,000: octave 2, part 1,000.
        bins = [0] * (2 * 512 + 1000) + [20]
        saved["staleness_counts"] = [20, 20 * 4000, 20 * 4000**2, *bins]

    rewrite(path, stale)
    every = Every()
    run(digits, 21, staleness=policy, resume=path, checkpoint=every)
    assert every.reached is not None
    count, total, squares, *bins = every.reached.staleness
    assert (count, total, squares) == (21, 20 * 4000, 20 * 4000**2)
    assert {k: n for k, n in enumerate(bins) if n} == {0: 1, 2024: 20}


@pytest.mark.parametrize(
    "policy",
    [
        staleness.inverse(),
        staleness.fleet(threshold=4.0),
        staleness.mindthestep(mean=2.0),
        staleness.tau_normalized(1.0, 1.0, mean=2.0, deviation=1.0),
        staleness.tau_normalized_short(1.0, deviation=1.0),
    ],
    ids=lambda policy: policy.config(),
)
def test_a_policy_that_measures_nothing_has_gathered_nothing(
    policy: staleness.Policy, digits: Dataset
) -> None:
    every = Every()
    run(digits, 50, checkpoint=every, staleness=policy)
    assert every.reached is not None
    assert not any(every.reached.staleness)


def test_epochs_and_losses_count_from_the_beginning(path: Path, digits: Dataset) -> None:
    first = run(digits, 1, until=lsh.until(epochs=1), checkpoint=path)
    assert first.total_updates == 125
    resumed = run(digits, 1, until=lsh.until(epochs=3), resume=path)
    assert resumed.total_updates == 375
    seen: list[float] = []
    run(
        digits,
        1,
        until=lsh.until(epochs=20, loss_fraction=0.9),
        resume=path,
        observe=lambda now: seen.append(now.initial_loss),
    )
    assert set(seen) == {first.initial_loss}


def test_a_run_checkpoint_is_a_model_file(path: Path, digits: Dataset) -> None:
    result = run(digits, 20, rule=lsh.Adam(0.001), checkpoint=path)
    model, theta = lsh.load(path)
    assert model == MODEL
    np.testing.assert_array_equal(theta, result.parameters)
    _, tensors, metadata = model_file.read(path)
    assert tensors["state.2.0.weight"].shape == tensors["0.weight"].shape
    saved = json.loads(metadata["run"])
    assert (saved["updates"], saved["batches"], saved["version"]) == (20, 20, lsh.__version__)
    assert saved["discipline"] == "LSH_ps∞"
    assert saved["rule"] == {"name": "Adam", "lr": 0.001}


def test_no_thread_stops_while_a_checkpoint_is_written(
    path: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk hangs until the run has published what it should."""
    let_go = threading.Event()
    write = model_file.write

    def hang(*arguments: Any) -> None:
        assert let_go.wait(60)
        write(*arguments)

    monkeypatch.setattr(model_file, "write", hang)
    updates = []

    def watch(now: lsh.Progress) -> None:
        updates.append(now.updates)
        if now.updates == 3000:
            let_go.set()

    run(
        digits,
        3000,
        checkpoint=lsh.Checkpoint(path, every=0.001),
        observe=lsh.Observe(watch, every=0.01),
    )
    assert updates[-1] == 3000
    assert json.loads(model_file.read(path)[2]["run"])["updates"] == 3000


def test_a_disk_that_fails_stops_nothing(
    path: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(digits, 5, checkpoint=path)
    before = path.read_bytes()

    def fail(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with once(f"no checkpoint was written to {path}: no space left"):
        result = run(digits, 20, checkpoint=path)
    assert result.total_updates == 20
    assert path.read_bytes() == before


def test_an_exception_of_progress_leaves_what_was_saved(path: Path, digits: Dataset) -> None:
    def stop(_: lsh.Progress) -> None:
        if path.exists():
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        run(
            digits,
            1,
            until=lsh.until(seconds=30),
            checkpoint=lsh.Checkpoint(path, every=0.01),
            observe=lsh.Observe(stop, every=0.01),
        )
    resumed = run(digits, 10**6, until=lsh.until(seconds=0.05), resume=path)
    assert "resumed_at" in resumed.config
    assert not [t for t in threading.enumerate() if t.name.startswith("leashed-checkpoint")]


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
def test_a_crashed_run_keeps_its_last_good_checkpoint(path: Path, digits: Dataset) -> None:
    run(digits, 5, checkpoint=path)
    before = path.read_bytes()
    result = run(digits, 500, rule=lsh.SGD(1e30), checkpoint=path)
    assert result.outcome == "crashed"
    assert path.read_bytes() == before


# Their sums of squares leave float32's range where a gradient is 10²⁰.
SQUARES = [
    lsh.Adagrad(0.01),
    lsh.RMSprop(0.001),
    lsh.RMSprop(0.001, centered=True),
    lsh.Adam(0.001),
    lsh.Adam(0.001, amsgrad=True),
    lsh.FTRL(0.1, l1=0.1),
    lsh.SWAP(lsh.Adagrad(0.01), period=7),
]


@pytest.mark.filterwarnings("ignore:the loss began at:RuntimeWarning")
@pytest.mark.parametrize("rule", SQUARES, ids=lambda rule: type(rule).__name__)
def test_infinite_states_beside_finite_parameters_are_written_and_go_on(
    rule: lsh.Rule, path: Path
) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 5)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int)
    x[:, 2] *= 1e20

    def trained(updates: int, **given: Any) -> TrainResult:
        until = lsh.until(updates=updates)
        model = lsh.models.logistic_regression(5)
        return lsh.train(model, (x, y), rule=rule, threads=1, batch_size=8, until=until, **given)

    whole = trained(40)
    with once("parameters of logistic_regression stand still", "the loss began at ") as told:
        trained(20, checkpoint=path)
    assert "scale the features" in str(told[0].message)
    tensors = model_file.read(path)[1].items()
    assert not all(np.isfinite(tensor).all() for name, tensor in tensors if "state." in name)
    np.testing.assert_array_equal(trained(40, resume=path).parameters, whole.parameters)
    assert np.isfinite(lsh.load(path)[1]).all()


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
def test_parameters_that_are_not_finite_are_not_written_and_it_is_told(
    path: Path, tmp_path: Path
) -> None:
    """A stream's loss is that of batches before their updates."""
    rows = tmp_path / "rows.csv"
    rows.write_text("y,x\n" + "1,4\n" * 2)
    columns = {"y": lsh.stream.Label(), "x": lsh.stream.Number()}

    with pytest.warns(
        RuntimeWarning, match=f"no checkpoint.*{path.name}: 1 of 2 parameters are not"
    ):
        result = lsh.train(
            lsh.models.logistic_regression(1),
            lsh.stream.csv(rows, columns),
            rule=lsh.SGD(3e38),
            threads=1,
            batch_size=2,
            until=lsh.until(epochs=1),
            checkpoint=path,
        )
    assert not np.isfinite(result.parameters).all()
    assert not path.exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rule": lsh.Momentum(0.1)}, r"rule was Momentum\(lr=0.05\) and is Momentum\(lr=0.1\)"),
        ({"rule": lsh.Adam(0.05)}, r"rule was Momentum\(lr=0.05\) and is Adam\(lr=0.05\)"),
        ({"staleness": staleness.inverse()}, "staleness was"),
        ({"seed": 4}, "seed was 3 and is 4; give the same, or begin a new run"),
        ({"batch_size": 16}, "batch_size was 8 and is 16"),
        ({"model": lsh.models.mlp(784, [17], 10)}, "another model"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_run_is_not_continued(
    changed: dict[str, Any], message: str, path: Path, digits: Dataset
) -> None:
    run(digits, 5, checkpoint=path)
    with pytest.raises(ValueError, match=rf"(?s)cannot resume .*{path.name}: .*{message}"):
        run(digits, 10, resume=path, **changed)


def test_other_data_are_not_continued(path: Path, digits: Dataset) -> None:
    run(digits, 5, checkpoint=path)
    fewer = Dataset.from_arrays(digits.x[:500], digits.y[:500])
    with pytest.raises(ValueError, match="number of examples in data was 1000 and is 500"):
        run(fewer, 10, resume=path)


def test_files_that_hold_no_run_are_refused(path: Path, digits: Dataset) -> None:
    with pytest.raises(FileNotFoundError):
        run(digits, 10, resume=path)
    lsh.save(path, MODEL, MODEL.init())
    with pytest.raises(ValueError, match=r"parameters but no run.*init=leashed.load"):
        run(digits, 10, resume=path)
    for written in ("{}", "[]", '{"rule": 1}'):
        model_file.write(path, MODEL, MODEL.unflatten(MODEL.init()), {"run": written})
        with pytest.raises(ValueError, match=rf"cannot resume .*{path.name}"):
            run(digits, 10, resume=path)


def test_damaged_checkpoints_are_refused(path: Path, digits: Dataset) -> None:
    run(digits, 5, checkpoint=path)
    content = path.read_bytes()
    damaged = {
        "truncated": content[:-100],
        "checksum": content[:-3] + bytes([content[-3] ^ 1]) + content[-2:],
        "checksum ": content.replace(b'\\"updates\\": 5', b'\\"updates\\": 6'),
        "reads 1 to 8; upgrade": content.replace(b'"version": "8"', b'"version": "9"'),
    }
    for message, altered in damaged.items():
        assert altered != content
        path.write_bytes(altered)
        expected = "" if message == "truncated" else message.strip()
        with pytest.raises(ValueError, match=rf"cannot load .*{path.name}: .*{expected}"):
            run(digits, 10, resume=path)


def rewrite(path: Path, change: Callable[[dict[str, str], dict[str, Any]], None]) -> None:
    """Changes a checkpoint's metadata, and its run."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    metadata = header["__metadata__"]
    saved = json.loads(metadata["run"])
    change(metadata, saved)
    metadata["run"] = json.dumps(saved)
    metadata["checksum"] = model_file.checksum(header, [data])
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_checkpoints_of_the_second_version_are_resumed(path: Path, digits: Dataset) -> None:
    """They were of dense data."""
    whole = run(digits, 40)
    run(digits, 20, checkpoint=path)

    def second_version(metadata: dict[str, str], saved: dict[str, Any]) -> None:
        del saved["sparse"], saved["decay"]
        metadata["version"] = "2"

    rewrite(path, second_version)
    resumed = run(digits, 40, resume=path)
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)


def test_a_file_that_cannot_be_written_is_told_before_training(
    tmp_path: Path, digits: Dataset
) -> None:
    with pytest.raises(FileNotFoundError, match="folder does not exist"):
        run(digits, 10, checkpoint=tmp_path / "none" / "run")
    with pytest.raises(IsADirectoryError):
        run(digits, 10, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"checkpoint\.every must be greater than 0"):
        run(digits, 10, checkpoint=lsh.Checkpoint(tmp_path / "run", every=0.0))


def test_the_newest_state_is_written_last(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk skips states, but not the last."""
    written: list[int] = []

    def slowly(_: resuming.Checkpointer, reached: resuming.Reached) -> None:
        time.sleep(0.005)
        written.append(reached.training)  # type: ignore[arg-type]

    monkeypatch.setattr(resuming.Checkpointer, "_put", slowly)
    with resuming.Checkpointer(path, MODEL, {}) as checkpointer:
        for n in range(1, 101):
            checkpointer(n)  # type: ignore[arg-type]
    assert written[-1] == 100
    assert len(written) < 100
    assert written == sorted(written)


def test_the_command_line_resumes(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "--threads", "1", "--batch-size", "32", "--checkpoint", str(path)]
    assert cli.main([*command, "--updates", "10", "--checkpoint-every", "0.01"]) == 0
    assert cli.main([*command, "--updates", "20", "--resume", str(path)]) == 0
    assert json.loads(model_file.read(path)[2]["run"])["updates"] == 20
    capsys.readouterr()
    assert cli.main([*command, "--updates", "30", "--resume", str(path), "--seed", "1"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("leashed: error: cannot resume")
    assert "seed was 0 and is 1" in error


def test_what_a_process_has_left_is_gone_on_from_where_it_is_of_use(
    path: Path, digits: Dataset
) -> None:
    """As a cluster's trainers do, which are started again and again with the same arguments."""
    left = resuming.Left(path)
    whole = run(digits, 40)
    new = run(digits, 20, resume=left, checkpoint=path)
    assert "resumed_at" not in new.config
    resumed = run(digits, 40, resume=left)
    assert resumed.config["resumed_at"] == 20
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    with once("is of no use, so this trainer begins with initial parameters: ") as told:
        other = run(digits, 10, resume=left, seed=4)
    assert "seed was 3" in str(told[0].message)
    assert "resumed_at" not in other.config
    path.write_bytes(b"nothing")
    with pytest.warns(RuntimeWarning, match=r"is of no use, .*: cannot load .*truncated or not"):
        run(digits, 10, resume=left)
    with pytest.raises(ValueError, match=r"cannot load .*truncated or not"):
        run(digits, 10, resume=resuming.AnyFiles(path))
    with pytest.raises(FileNotFoundError):
        run(digits, 10, resume=resuming.OtherData(path.with_name("none")))
