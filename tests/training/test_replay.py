"""Recorded runs are made again: bit for bit where that is promised, refused where they cannot be."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from continual_kills import write_days
from interrupting import interrupt_after, require_an_early_end
from warned import once

import leashed as lsh
from leashed import Dataset, Discipline, SparseDataset, TrainResult, _core, cli, staleness
from leashed.datasets import write_idx
from leashed.training import recordings

MODEL = lsh.models.mlp(784, [64], 10)
ROOT = Path(__file__).parents[2]
PAGE = 1 << 16


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "run.trace"


class NoCluster:
    def session(self, *_: Any, **__: Any) -> None: ...


def run(data: Any, trace: Path, **arguments: Any) -> TrainResult:
    arguments = {
        "until": lsh.until(updates=600),
        "batch_size": 8,
        "threads": 8,
        "seed": 3,
        "observe": lsh.Observe(every=0.1, record=trace),
        **arguments,
    }
    return lsh.train(arguments.pop("model", MODEL), data, **arguments)


def require_same(made: lsh.Replay, result: TrainResult) -> None:
    np.testing.assert_array_equal(made.parameters, result.parameters)
    assert made.updates == result.total_updates
    assert made.ended
    assert made.exact
    assert made.difference == 0
    assert made.counts["dropped"] == result.dropped
    assert made.counts["excluded"] == result.excluded


@pytest.mark.parametrize("persistence", [math.inf, 1, 0])
def test_eight_threads_of_leashed(persistence: float, trace: Path, digits: Dataset) -> None:
    dropped = 0
    for _ in range(10):
        result = run(
            digits,
            trace,
            discipline=lsh.Leashed(persistence),
            rule=lsh.Adam(lsh.schedules.cosine(0.001, total=500), clip_norm=1.0),
            staleness=staleness.tail_tau(warmup=50),
        )
        require_same(lsh.replay(trace, MODEL, digits), result)
        dropped += result.dropped
        if dropped or persistence > 0:
            break
    assert dropped or persistence > 0


@pytest.mark.parametrize(
    "discipline",
    [lsh.Locked(), lsh.Sequential(), lsh.Synchronous(), lsh.Leashed()],
    ids=lambda one: one.label,
)
@pytest.mark.parametrize(
    ("rule", "policy"),
    [
        (lsh.Momentum(0.01, weight_decay=0.01, clip_value=0.1), staleness.cutoff(2)),
        (lsh.SWAP(lsh.Adam(0.001), period=50), staleness.stage_aware(staleness.fleet())),
        (lsh.Adagrad(0.01, clip_norm=0.5), staleness.stage_aware(staleness.inverse())),
    ],
    ids=["cutoff", "stage_aware_adaptive", "stage_aware"],
)
def test_other_disciplines_rules_and_policies(
    discipline: Discipline, rule: lsh.Rule, policy: lsh.staleness.Policy, trace: Path, digits: Any
) -> None:
    threads = 1 if isinstance(discipline, lsh.Sequential) else 4
    result = run(
        digits,
        trace,
        discipline=discipline,
        rule=rule,
        staleness=policy,
        threads=threads,
        until=lsh.until(updates=200),
    )
    require_same(lsh.replay(trace, MODEL, digits), result)


def test_what_auto_tries_first_is_not_recorded(trace: Path, digits: Dataset) -> None:
    result = run(digits, trace, threads="auto", until=lsh.until(updates=100))
    require_same(lsh.replay(trace, MODEL, digits), result)


def test_a_graph_with_weighted_examples(trace: Path, digits: Dataset) -> None:
    hidden = lsh.models.Input(784) >> lsh.models.Dense(16) >> lsh.models.ReLU()
    model = lsh.models.Graph(hidden >> lsh.models.Dense(10), "softmax")
    data = Dataset.from_arrays(digits.x, digits.y, weights=np.linspace(0, 2, len(digits)))
    result = run(data, trace, model=model, threads=4, until=lsh.until(updates=100))
    require_same(lsh.replay(trace, data=data), result)
    with pytest.raises(ValueError, match="give the same"):
        lsh.replay(trace, data=digits)


def test_hogwild_is_the_run_that_its_counter_tells(trace: Path, digits: Dataset) -> None:
    result = run(digits, trace, discipline=lsh.Hogwild())
    made, again = lsh.replay(trace, MODEL, digits), lsh.replay(trace, MODEL, digits)
    np.testing.assert_array_equal(made.parameters, again.parameters)
    assert not made.exact
    assert made.ended
    assert made.difference == np.abs(made.parameters - result.parameters).max()
    assert made.difference < 1
    result = run(digits, trace, discipline=lsh.Hogwild(copy=False), threads=1)
    require_same(lsh.replay(trace, MODEL, digits), result)


def sparse_rows() -> SparseDataset:
    rng = np.random.default_rng(0)
    x = np.where(rng.random((300, 40)) < 0.1, rng.normal(size=(300, 40)), 0)
    counts = np.count_nonzero(x, axis=1)
    return SparseDataset(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.nonzero(x)[1].astype(np.int32),
        x[x != 0].astype(np.float32),
        40,
        rng.integers(0, 2, 300).astype(np.int32),
        2,
    )


@pytest.mark.parametrize(
    "model",
    [lsh.models.logistic_regression(40, 2, l2=1e-4), lsh.models.fm(40, 3)],
    ids=["linear", "fm"],
)
def test_sparse_rows_that_whole_vectors_are_published_of(model: Any, trace: Path) -> None:
    data = sparse_rows()
    result = run(data, trace, model=model, rule=lsh.Adam(0.01), threads=4)
    made = lsh.replay(trace, data=data)
    require_same(made, result)
    assert made.last is not None
    stopped = lsh.replay(trace, model, data, until=result.total_updates - 1)
    np.testing.assert_array_equal(stopped.parameters, made.before)


@pytest.mark.parametrize(
    ("discipline", "threads"),
    [
        (lsh.Sequential(), 1),
        (lsh.Locked(), 4),
        (lsh.Hogwild(), 1),
        (lsh.Hogwild(copy=False), 1),
    ],
    ids=["SEQ", "ASYNC", "HOG", "HOG without a copy"],
)
@pytest.mark.parametrize("rule", [lsh.SGD(lsh.schedules.cosine(0.1, total=200)), lsh.Adagrad(0.1)])
@pytest.mark.parametrize(
    "model",
    [lsh.models.logistic_regression(40, 2, l2=1e-3), lsh.models.fm(40, 3)],
    ids=["linear", "fm"],
)
def test_sparse_rows_that_are_updated_in_place(
    model: Any, rule: lsh.Rule, discipline: Discipline, threads: int, trace: Path, tmp_path: Path
) -> None:
    """Resumed in the middle of a run of updates, too; nothing that is trained changes."""
    data = sparse_rows()
    how: dict[str, Any] = {
        "model": model,
        "rule": rule,
        "discipline": discipline,
        "threads": threads,
    }
    result = run(data, trace, **how, until=lsh.until(updates=203), checkpoint=tmp_path / "half")
    made = lsh.replay(trace, data=data)
    require_same(made, result)
    stopped = lsh.replay(trace, data=data, until=202)
    np.testing.assert_array_equal(stopped.parameters, made.before)
    if threads == 1:
        plain = run(data, trace, **how, until=lsh.until(updates=203), observe=None)
        np.testing.assert_array_equal(plain.parameters, result.parameters)
    result = run(data, trace, **how, until=lsh.until(updates=300), resume=tmp_path / "half")
    require_same(lsh.replay(trace, data=data), result)


def test_sparse_rows_in_place_by_several_threads_of_hogwild(trace: Path) -> None:
    data = sparse_rows()
    result = run(data, trace, model=lsh.models.fm(40, 3), discipline=lsh.Hogwild(), threads=3)
    made, again = lsh.replay(trace, data=data), lsh.replay(trace, data=data)
    np.testing.assert_array_equal(made.parameters, again.parameters)
    assert made.updates == result.total_updates
    assert not made.exact
    assert np.isfinite(made.difference)  # threads have had copies of their own for a while


def test_a_gradient_of_ones_own(trace: Path) -> None:
    def gradient(theta: Any, x: Any, y: Any, out: Any) -> float:
        away = x @ theta - y
        out[:] = x.T @ away / len(y)
        return float(away @ away) / len(y)

    rng = np.random.default_rng(0)
    data = rng.normal(size=(100, 5)), rng.normal(size=100)
    model = lsh.models.external(gradient, dimension=5, features=5, y="float32")
    result = run(data, trace, model=model, rule=lsh.SGD(0.01), threads=4)
    require_same(lsh.replay(trace, model, data), result)
    with pytest.raises(ValueError, match=r"external.*give the model"):
        lsh.replay(trace, data=data)


def test_a_resumed_run_is_replayed_from_where_it_went_on(
    trace: Path, tmp_path: Path, digits: Dataset
) -> None:
    kept = tmp_path / "kept"
    choices = {
        "rule": lsh.Adam(0.001),
        "staleness": staleness.stage_aware(staleness.tail_tau(warmup=20)),
    }
    run(digits, trace, checkpoint=kept, until=lsh.until(updates=100), **choices)
    result = run(digits, trace, resume=kept, until=lsh.until(updates=300), **choices)
    made = lsh.replay(trace, MODEL, digits)
    require_same(made, result)
    assert made.counts["published"] == 200
    assert lsh.replay(trace, MODEL, digits, until=100).last is None
    with pytest.raises(ValueError, match=r"until is 99, .* begins after update 100"):
        lsh.replay(trace, MODEL, digits, until=99)


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
def test_a_run_that_crashed_is_made_again_up_to_there(trace: Path, digits: Dataset) -> None:
    result = run(digits, trace, rule=lsh.SGD(1e30), threads=2)
    assert result.outcome == "crashed"
    made = lsh.replay(trace, MODEL, digits)
    np.testing.assert_array_equal(made.parameters, result.parameters)
    assert made.difference == 0
    assert made.last is not None


KILLED = """
import sys
import leashed as lsh
data = lsh.datasets.synthetic_digits(n=1000, seed=0).train
lsh.train(lsh.models.mlp(784, [64], 10), data, discipline=lsh.Leashed(1), batch_size=8,
          rule=lsh.Adam(0.001, clip_norm=1.0), staleness=lsh.staleness.tail_tau(warmup=50),
          threads=8, until=lsh.until(seconds=120), observe=lsh.Observe(every=100, record=sys.argv[1]),
          checkpoint=lsh.Checkpoint(sys.argv[2], every=0.05))
"""


@pytest.mark.process
def test_what_a_killed_process_had_recorded(trace: Path, tmp_path: Path, digits: Dataset) -> None:
    kept = tmp_path / "kept"
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(trace), str(kept)])
    try:
        while not kept.exists():
            assert child.poll() is None
            time.sleep(0.01)
        content = kept.read_bytes()
        found = json.loads(content[8:].split(b"}}")[0].decode() + "}}")["__metadata__"]
        updates = json.loads(found["run"])["updates"]
        # A worker may stand still between its update and what it records of it.
        while lsh.replay(trace, MODEL, digits).updates < updates:
            assert child.poll() is None
    finally:
        child.kill()
        child.wait()
    copy = tmp_path / "copy"
    copy.write_bytes(content)
    _, theta = lsh.load(copy)
    made = lsh.replay(trace, MODEL, digits)
    assert made.updates >= updates > 0
    assert not made.ended
    assert math.isnan(made.difference)
    then = lsh.replay(trace, MODEL, digits, until=updates)
    np.testing.assert_array_equal(then.parameters, theta)


def test_until_and_inspect(trace: Path, digits: Dataset) -> None:
    result = run(digits, trace, rule=lsh.SGD(0.05), staleness=staleness.inverse())
    made = lsh.replay(trace, MODEL, digits, until=123)
    assert made.updates == 123
    assert not made.ended
    last = made.last
    assert last is not None
    assert last.read + last.staleness == 122
    assert last.staleness == last.staleness_compute + last.staleness_schedule
    assert last.factor == 1 / (1 + last.staleness)
    expected = made.before - np.float32(0.05 * last.factor) * made.gradient
    np.testing.assert_allclose(made.parameters, expected, rtol=1e-4, atol=1e-7)
    before = lsh.replay(trace, MODEL, digits, until=122)
    np.testing.assert_array_equal(before.parameters, made.before)
    by_name = {one.name: one for one in made.inspect("0")}
    assert list(by_name) == [
        f"0.{which} {what}"
        for which in ("weight", "bias")
        for what in ("value", "gradient", "change")
    ]
    weights = lsh.replay(trace, MODEL, digits, until=123).parameters[: 784 * 64]
    one = by_name["0.weight value"]
    assert one.norm == pytest.approx(np.linalg.norm(weights), rel=1e-6)
    assert (one.least, one.most) == (weights.min(), weights.max())
    assert one.not_finite == 0
    assert len(made.inspect("2.bias")) == 3
    with pytest.raises(ValueError, match=r"no variable '7'; choose one of 0\.weight"):
        made.inspect("7")
    with pytest.raises(ValueError, match=rf"goes to update {result.total_updates}; give at most"):
        lsh.replay(trace, MODEL, digits, until=10_000)
    beginning = lsh.replay(trace, MODEL, digits, until=0)
    assert beginning.last is None
    assert len(beginning.inspect("0")) == 2
    np.testing.assert_array_equal(beginning.parameters, MODEL.init(3))


def test_what_does_not_belong_to_the_trace_is_refused(
    trace: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(digits, trace, until=lsh.until(updates=50))
    other = lsh.datasets.synthetic_digits(n=1000, seed=1).train
    changed = Dataset(digits.x, (digits.y + 1) % 10, 10)
    for data in (other, changed):
        with pytest.raises(ValueError, match=r"its data was .* give the same"):
            lsh.replay(trace, MODEL, data)
    with pytest.raises(ValueError, match="1000 examples; give the same as data"):
        lsh.replay(trace)
    with pytest.raises(ValueError, match="of another model"):
        lsh.replay(trace, lsh.models.mlp(784, [65], 10), digits)
    with pytest.raises(TypeError, match="model must come from"):
        lsh.replay(trace, 7, digits)  # type: ignore[type-var]
    monkeypatch.setattr(_core, "default_isa", lambda: "v1")
    with pytest.raises(ValueError, match=r"instruction-set level .* and this is v1.*LEASHED_ISA="):
        lsh.replay(trace, MODEL, digits)


def test_another_instruction_set_level_is_refused(trace: Path) -> None:
    if len(_core.available_isas()) < 2:
        pytest.skip("this processor has one level")
    data = lsh.datasets.synthetic_digits()
    run(data.train, trace, until=lsh.until(updates=20))
    lowest = _core.available_isas()[0]
    done = subprocess.run(
        [sys.executable, "-m", "leashed", "replay", str(trace)],
        env={**os.environ, "LEASHED_ISA": lowest},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"and this is {lowest}" in done.stderr


def test_a_trace_cut_before_the_run_began_is_refused_by_name(trace: Path) -> None:
    wide = lsh.models.mlp(6, [20_000], 3)  # whose parameters are in several pages
    random = np.random.default_rng(0)
    data = Dataset.from_arrays(random.normal(size=(32, 6)), np.arange(32) % 3)
    lsh.train(
        wide,
        data,
        threads=1,
        batch_size=8,
        until=lsh.until(updates=2),
        observe=lsh.Observe(record=trace),
    )
    trace.write_bytes(trace.read_bytes()[: 2 * PAGE])
    with pytest.raises(
        ValueError, match=r"cannot replay .*run.trace: it ends before the run began"
    ):
        lsh.replay(trace, wide, data)


def test_a_changed_byte_is_refused(trace: Path, digits: Dataset) -> None:
    run(digits, trace, until=lsh.until(updates=50))
    good = trace.read_bytes()
    rng = np.random.default_rng(0)
    for place in (0, 9, 20, PAGE + 100, *rng.integers(0, len(good), 20)):
        bad = bytearray(good)
        bad[place] ^= 1
        trace.write_bytes(bad)
        with pytest.raises(ValueError, match=r"cannot replay .*(damaged|no trace)"):
            lsh.replay(trace, MODEL, digits)
    with pytest.raises(FileNotFoundError):
        lsh.replay(trace.with_name("none"), MODEL, digits)
    with pytest.raises(IsADirectoryError):
        lsh.replay(trace.parent, MODEL, digits)
    trace.write_bytes(b"")
    with pytest.raises(ValueError, match="no trace"):
        lsh.replay(trace, MODEL, digits)


@pytest.mark.parametrize(
    ("part", "key", "value", "message"),
    [
        ("config", "threads", 10**6, "threads must be at most 1024"),
        ("config", "threads", "2", "lacks or has a wrong threads must be a whole number"),
        ("config", "batch_size", 10**12, r"batch_size must be at most \d+"),
        ("config", "seed", -1, "seed must be at least 0"),
        ("config", "isa", None, "lacks or has a wrong 'isa'"),
        ("data", "fingerprint", None, "lacks or has a wrong 'fingerprint'"),
        ("start", "vectors", None, "lacks or has a wrong 'vectors'"),
    ],
)
def test_a_header_of_what_no_run_has_is_refused_by_name(
    part: str, key: str, value: Any, message: str, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is made of such a size; None: without it."""
    data = lsh.datasets.synthetic_digits(300).train
    model = lsh.models.logistic_regression(784, 10)
    lsh.train(
        model,
        data,
        until=lsh.until(updates=3),
        threads=1,
        discipline=lsh.Synchronous(),
        observe=lsh.Observe(record=trace),
    )
    told = json.loads(lsh._core.Trace(str(trace)).header)
    told[part] = {k: v for k, v in {**told[part], key: value}.items() if v is not None}
    read = recordings.header
    monkeypatch.setattr(recordings, "header", lambda _: read(json.dumps(told).encode()))
    with pytest.raises(ValueError, match=rf"cannot replay .*run\.trace: .*{message}"):
        lsh.replay(trace, model, data)


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version is 5, this release reads 4; upgrade"):
        lsh.recordings.header(json.dumps({"format": "leashed.trace", "version": 5}).encode())
    with pytest.raises(ValueError, match="lacks or has a wrong 'model'"):
        lsh.recordings.header(json.dumps({"format": "leashed.trace", "version": 1}).encode())


def test_a_path_that_cannot_be_written_is_an_error_before_training(
    tmp_path: Path, digits: Dataset
) -> None:
    with pytest.raises(FileNotFoundError, match="folder does not exist"):
        run(digits, tmp_path / "none" / "run.trace")
    with pytest.raises(IsADirectoryError):
        run(digits, tmp_path)
    with pytest.raises(FileExistsError, match="/dev/null"):
        run(digits, Path("/dev/null"))
    assert Path("/dev/null").exists()


def test_what_cannot_be_recorded_is_refused_by_name(trace: Path, digits: Dataset) -> None:
    with pytest.raises(
        ValueError, match=r"record is not for runs with sync, since .*; train alone"
    ):
        run(digits, trace, cluster=lsh.sync.Synced(NoCluster(), lsh.sync.MA()))
    assert not trace.exists()


@pytest.fixture
def small_disk() -> Any:
    """Files of at most 20 pages."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20 * PAGE, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_disk")
def test_a_disk_that_is_full_ends_the_record_and_not_the_run(trace: Path) -> None:
    data = Dataset.from_arrays(np.eye(4), [0, 1, 0, 1])
    model = lsh.models.logistic_regression(4, 2)
    with once("run.trace ends before the run: File too large"):
        result = run(data, trace, model=model, batch_size=1, until=lsh.until(updates=300_000))
    assert result.total_updates == 300_000
    made = lsh.replay(trace, model, data)
    assert 50_000 < made.updates < 300_000
    assert not made.ended


@pytest.mark.usefixtures("small_disk")
def test_a_disk_that_is_full_from_the_beginning_is_an_error(trace: Path) -> None:
    model = lsh.models.logistic_regression(500_000, 2)
    data = Dataset.from_arrays(np.ones((2, 500_000)), [0, 1])
    with pytest.raises(OSError, match="File too large"):
        run(data, trace, model=model, batch_size=1)


def test_a_record_takes_the_place_of_one_and_is_none_by_default(
    trace: Path, digits: Dataset
) -> None:
    run(digits, trace, until=lsh.until(updates=20))
    with trace.open("rb") as before:
        result = run(digits, trace, until=lsh.until(updates=30))
        assert not os.path.samestat(os.fstat(before.fileno()), trace.stat())
    require_same(lsh.replay(trace, MODEL, digits), result)
    assert [one.name for one in trace.parent.iterdir()] == ["run.trace"]
    trace.unlink()
    lsh.train(MODEL, digits, until=lsh.until(updates=5), threads=2)
    assert not any(trace.parent.iterdir())


def test_recording_changes_no_bit(trace: Path, digits: Dataset) -> None:
    arguments: dict[str, Any] = {
        "rule": lsh.Adam(0.001),
        "until": lsh.until(updates=40),
        "threads": 1,
    }
    recorded = lsh.train(MODEL, digits, observe=lsh.Observe(record=trace), **arguments)
    plain = lsh.train(MODEL, digits, **arguments)
    np.testing.assert_array_equal(recorded.parameters, plain.parameters)


def test_what_cannot_be_told_is_refused_before_anything_is_computed(trace: Path) -> None:
    calls = 0

    def counted(theta: Any, x: Any, y: Any, out: Any) -> float:
        nonlocal calls
        calls += 1
        out[:] = theta + x.mean() + y.mean()
        return 0.0

    data = np.ones((4, 1)), np.zeros(4)
    model = lsh.models.external(counted, dimension=1, features=1, y="float32")
    run(data, trace, model=model, batch_size=4, until=lsh.until(updates=20), threads=2)
    calls = 0
    with pytest.raises(ValueError, match="until is 21, but it goes to update 20; give at most"):
        lsh.replay(trace, model, data, until=21)
    with pytest.raises(ValueError, match="has no variable '7'; choose one of parameters"):
        lsh.replay(trace, model, data, inspect="7")
    assert calls == 0
    lsh.replay(trace, model, data, until=20, inspect="parameters")
    assert calls == 20


def test_ctrl_c_ends_a_replay(trace: Path, digits: Dataset) -> None:
    run(digits, trace, until=lsh.until(updates=100_000))
    require_an_early_end(lambda: lsh.replay(trace, MODEL, digits))


def test_a_run_that_is_interrupted_has_its_end(trace: Path, digits: Dataset) -> None:
    with interrupt_after(0.5):
        result = run(digits, trace, until=lsh.until(seconds=60))
    assert result.reason == "interrupted"
    require_same(lsh.replay(trace, MODEL, digits), result)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """100 images in MNIST's files."""
    rng = np.random.default_rng(0)
    for which in ("train", "t10k"):
        images = rng.integers(0, 256, (100, 28, 28)).astype(np.uint8)
        write_idx(tmp_path / f"{which}-images-idx3-ubyte", images)
        write_idx(tmp_path / f"{which}-labels-idx1-ubyte", (images[:, 0, 0] % 10).astype(np.uint8))
    return str(tmp_path)


def test_the_command_line(folder: str, trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replay = ["replay", str(trace), "--data", folder]
    train = ["train", "--data", folder, "--updates", "60", "--threads", "4"]
    train += ["--record", str(trace)]
    assert cli.main(train) == 0
    capsys.readouterr()
    assert cli.main([*replay, "--counting", "gradient_norms"]) == 0
    out = capsys.readouterr().out
    assert "the recorded one, bit for bit" in out
    assert re.search(r"^largest gradient norm +[0-9.]+$", out, re.MULTILINE)
    assert cli.main([*replay, "--until", "update=30", "--inspect", "0"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"updates +30\n", out)
    assert re.search(r"end +not reached\n", out)
    assert re.search(r"^0\.weight gradient \[784×128\]: norm ", out, re.MULTILINE)
    for wrong, message in [
        (["--until", "30"], "'30' is not update=N"),
        (["--until", "update=61"], "goes to update 60"),
        (["--inspect", "x"], "no variable 'x'"),
    ]:
        try:
            status = cli.main([*replay, *wrong])
        except SystemExit as error:
            status = int(str(error.code))
        assert status == 2
        assert message in capsys.readouterr().err
    assert cli.main([*train, "--discipline", "hogwild"]) == 0
    capsys.readouterr()
    assert cli.main(replay) == 0
    assert re.search(r"end +(max \|Δθ\| = |the recorded)", capsys.readouterr().out)


def test_the_command_line_reads_what_train_reads(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (clicks,) = write_days(tmp_path, 1, 60)
    rows = tmp_path / "rows.svm"
    rows.write_text("".join(f"{k % 2} {k % 5 + 1}:1 {k % 3 + 6}:0.5\n" for k in range(60)))
    linear, dlrm = ["--model", "logistic_regression"], ["--model", "dlrm", "--mode", "asp"]
    for model, data in [
        (linear, ["--data", rows]),
        (linear, ["--data", rows, "--test", rows]),
        (linear, ["--data", rows, "--stream"]),
        (linear, ["--data", clicks, "--format", "criteo", "--hash-bits", "6"]),
        (dlrm, ["--data", clicks]),
        (dlrm, ["--data", clicks, "--stream"]),
    ]:
        words = [str(each) for each in data]
        recorded = ["train", *model, *words, "--epochs", "1", "--batch-size", "8"]
        assert cli.main([*recorded, "--threads", "2", "--record", str(trace)]) == 0
        assert cli.main(["replay", str(trace), *words]) == 0
        assert "the recorded one, bit for bit" in capsys.readouterr().out
    recorded = ["train", *linear, "--data", str(rows), "--epochs", "1", "--stream"]
    assert cli.main([*recorded, "--record", str(trace)]) == 0
    capsys.readouterr()
    assert cli.main(["replay", str(trace), "--data", str(rows)]) == 2
    assert "rows.svm, a stream, and data is rows.svm, read whole" in capsys.readouterr().err
    recorded = ["train", *linear, "--data", str(rows), "--epochs", "1", "--record", str(trace)]
    assert cli.main(recorded) == 0
    for wrong, message in [
        ([], "--model logistic_regression takes --data FILE of sparse rows"),
        (["--data", str(rows), "--test", str(rows)], "48 examples with the fingerprint"),
        (["--data", str(rows), "--stream"], "rows.svm, a stream; give it as then"),
        (["--days", str(clicks)], "--days goes without --record"),
    ]:
        assert cli.main(["replay", str(trace), *wrong]) == 2
        assert message in capsys.readouterr().err
