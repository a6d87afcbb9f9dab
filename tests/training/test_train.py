"""Training runs: what one thread must give, what a result must hold, how runs end."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import Dataset, Discipline, Progress, TrainResult

MLP = lsh.models.mlp(784, [32, 32], 10)
CNN = lsh.models.cnn()


def run(data: Dataset, model: lsh.Model = MLP, **arguments: Any) -> TrainResult:
    arguments.setdefault("until", lsh.until(updates=30))
    arguments.setdefault("rule", lsh.SGD(0.1))
    arguments.setdefault("batch_size", 16)
    return lsh.train(model, data, **arguments)


def native_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def at_most_so_many_threads(most: int) -> bool:
    """Soon: the system may count a thread for a moment after it has been joined."""
    end = time.monotonic() + 10
    while native_threads() > most and time.monotonic() < end:
        time.sleep(0.01)
    return native_threads() <= most


# One thread, and reproducibility.


@pytest.mark.parametrize(
    ("model", "batch_size"),
    [(MLP, 1), (MLP, 16), (MLP, 100), (CNN, 7), (CNN, 64)],
    ids=["mlp-1", "mlp-16", "mlp-100", "cnn-7", "cnn-64"],
)
def test_one_thread_equals_sequential(
    concurrent: Discipline, model: lsh.Model, batch_size: int, digits: Dataset
) -> None:
    one, sequential = (
        run(digits, model, discipline=d, threads=1, batch_size=batch_size, seed=5)
        for d in (concurrent, lsh.Sequential())
    )
    np.testing.assert_array_equal(one.parameters, sequential.parameters)
    assert one.final_loss == sequential.final_loss
    assert one.total_updates == sequential.total_updates == 30
    assert one.staleness.max() == 0


def test_runs_depend_on_the_seed_alone(digits: Dataset) -> None:
    first, again, other = (run(digits, seed=s, threads=1) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.parameters, again.parameters)
    assert (first.parameters != other.parameters).any()


def test_synchronous_runs_are_reproducible_with_several_threads(digits: Dataset) -> None:
    first, again = (
        run(digits, discipline=lsh.Synchronous(), threads=3, init="glorot") for _ in range(2)
    )
    np.testing.assert_array_equal(first.parameters, again.parameters)


def test_synchronous_averages_the_gradients(digits: Dataset) -> None:
    """Two threads with batches of 8 take the mean of two batches."""
    theta = MLP.init(3)
    together = run(
        digits, discipline=lsh.Synchronous(), threads=2, batch_size=8, seed=9, init=theta,
        until=lsh.until(updates=1),
    )  # fmt: skip
    gradients = []
    for k in range(2):
        rows = lsh._core.batch_rows(9, len(digits), 8, k)
        gradients.append(MLP.native.gradient(theta, digits.x[rows], digits.y[rows])[1])
    np.testing.assert_allclose(
        together.parameters, theta - np.float32(0.1) * np.mean(gradients, axis=0), atol=1e-7
    )


def test_training_starts_at_init_and_leaves_it_alone(digits: Dataset) -> None:
    theta = MLP.init(4, "glorot")
    kept = theta.copy()
    by_array, by_name = (
        run(digits, init=init, seed=4, threads=1) for init in (theta.astype(np.float64), "glorot")
    )
    np.testing.assert_array_equal(theta, kept)
    np.testing.assert_array_equal(by_array.parameters, by_name.parameters)
    assert by_array.initial_loss == pytest.approx(MLP.evaluate(theta, digits)[0], rel=1e-6)
    assert (by_array.config["init"], by_name.config["init"]) == ("array", "glorot")


def test_data_is_taken_in_every_form(digits: Dataset) -> None:
    arrays = (digits.x.reshape(-1, 28, 28).astype(np.float64), digits.y.astype(np.uint8))
    wanted = run(digits, threads=1)
    split = lsh.datasets.Split(digits, digits)
    for data in (arrays, split):
        result = run(data, threads=1)  # type: ignore[arg-type]
        np.testing.assert_array_equal(result.parameters, wanted.parameters)
    assert np.isnan(wanted.validation_accuracy).all()
    assert run(split, threads=1).validation_accuracy[-1] == wanted.accuracy[-1]  # type: ignore[arg-type]


# What a result holds.


@pytest.mark.parametrize("threads", [1, 3])
def test_a_result_is_consistent(discipline: Discipline, threads: int, digits: Dataset) -> None:
    if isinstance(discipline, lsh.Sequential) and threads > 1:
        pytest.skip("Sequential has one thread")
    result = run(
        digits, discipline=discipline, threads=threads, until=lsh.until(updates=300),
        observe=lsh.Observe(every=0.005), validation=digits, rule=lsh.SGD(0.02),
    )  # fmt: skip
    assert (result.outcome, result.reason) == ("stopped", "updates")
    assert result.total_updates == 300
    synchronous = isinstance(discipline, lsh.Synchronous)
    published = 300 * threads if synchronous else 300  # gradients that went into an update
    assert result.gradients == published + result.dropped
    assert result.examples == result.gradients * 16
    assert result.gamma == result.dropped / 300
    never = lsh.Sequential | lsh.Synchronous | lsh.Locked | lsh.Hogwild
    if isinstance(discipline, never) or discipline == lsh.Leashed():
        assert result.dropped == 0

    for histogram in (result.staleness, result.staleness_compute, result.staleness_schedule):
        assert histogram.total == published
    assert result.tries.total == result.gradients
    assert result.staleness.mean() == pytest.approx(
        result.staleness_compute.mean() + result.staleness_schedule.mean()
    )
    if threads == 1 or synchronous:
        assert result.staleness.max() == 0
    if discipline == lsh.Leashed(0):
        assert result.staleness_schedule.max() == 0
        assert result.tries.max() <= 1
    if discipline == lsh.Leashed(1):
        assert result.tries.max() <= 2
    if not isinstance(discipline, lsh.Leashed):
        assert result.tries.max() == 0

    evaluations = len(result.seconds)
    assert evaluations >= 2
    for name in (
        "updates", "loss", "accuracy", "validation_accuracy", "eps", "memory_bytes", "live_vectors",
        "staleness_over_time",
    ):  # fmt: skip
        assert len(getattr(result, name)) == evaluations, name
    assert result.seconds[0] == result.updates[0] == 0
    assert (np.diff(result.seconds) > 0).all()
    assert (np.diff(result.updates) >= 0).all()
    assert result.updates[-1] == 300
    assert result.elapsed == pytest.approx(result.seconds[-1])
    assert result.mean_eps == pytest.approx(result.examples / result.elapsed)
    assert math.isnan(result.eps[0])
    np.testing.assert_array_equal(result.accuracy, result.validation_accuracy)
    assert result.staleness_over_time.sum() == published
    assert not result.staleness_over_time[0].any()

    assert result.gradient_seconds.count == result.gradients
    assert result.update_seconds.count == result.gradients
    worked = result.gradient_seconds.total + result.update_seconds.total
    assert 0 < worked <= threads * result.elapsed * 1.01
    assert worked <= sum(result.breakdown.values()) <= threads * result.elapsed * 1.01
    assert min(result.breakdown.values()) >= 0.0

    loss, accuracy = MLP.evaluate(result.parameters, digits)
    assert result.final_loss == pytest.approx(loss, rel=1e-5)
    assert result.accuracy[-1] == pytest.approx(accuracy, abs=2e-3)
    assert result.final_loss < result.initial_loss
    assert result.config["discipline"] == discipline.label
    assert result.config["threads"] == threads
    assert TrainResult.from_json(result.to_json(parameters=True)).to_json(True) == (
        result.to_json(True)
    )


def test_memory_is_bounded_by_the_number_of_threads(
    concurrent: Discipline, digits: Dataset
) -> None:
    """Leashed: 2m vectors, m gradients, the monitor's; the others: m copies, m gradients, theta."""
    for threads in (1, 2, 8):
        result = run(
            digits, discipline=concurrent, threads=threads, until=lsh.until(updates=200),
            observe=lsh.Observe(every=0.002),
        )  # fmt: skip
        bound = (3 if isinstance(concurrent, lsh.Leashed) else 2) * threads + 1
        assert result.live_vectors.max() <= result.peak_vectors <= bound
        assert result.live_vectors.min() > threads
        assert result.peak_memory_bytes >= result.memory_bytes.max() > 0


def test_eps_counts_the_examples_between_evaluations(digits: Dataset) -> None:
    result = run(digits, threads=2, until=lsh.until(seconds=0.2), observe=lsh.Observe(every=0.02))
    examples = np.nansum(result.eps * np.diff(result.seconds, prepend=0.0))
    assert examples == pytest.approx(result.examples, rel=1e-6)


# Stop rules and outcomes.


def test_updates_are_exact(discipline: Discipline, digits: Dataset) -> None:
    threads = 1 if isinstance(discipline, lsh.Sequential) else 4
    for updates in (1, 3, 50):
        result = run(
            digits, discipline=discipline, threads=threads, until=lsh.until(updates=updates)
        )
        assert (result.outcome, result.reason) == ("stopped", "updates")
        assert result.total_updates == result.updates[-1] == updates


@pytest.mark.parametrize("epochs", [0.001, 0.5, 1, 2.3])
def test_epochs_draw_so_many_batches(
    discipline: Discipline, epochs: float, digits: Dataset
) -> None:
    threads = 1 if isinstance(discipline, lsh.Sequential) else 2
    result = run(digits, discipline=discipline, threads=threads, until=lsh.until(epochs=epochs))
    assert (result.outcome, result.reason) == ("stopped", "epochs")
    batches = max(1, math.ceil(epochs * 1000 / 16))
    if isinstance(discipline, lsh.Synchronous):
        assert batches <= result.gradients < batches + threads  # whole steps
    else:
        assert result.gradients == batches


def test_seconds_end_a_run(discipline: Discipline, digits: Dataset) -> None:
    threads = 1 if isinstance(discipline, lsh.Sequential) else 2
    begin = time.monotonic()
    result = run(digits, discipline=discipline, threads=threads, until=lsh.until(seconds=0.1))
    assert (result.outcome, result.reason) == ("stopped", "seconds")
    assert 0.1 <= result.elapsed <= time.monotonic() - begin


@pytest.mark.parametrize(("rule", "value"), [("loss_fraction", 0.5), ("loss", 1.2)])
def test_a_loss_rule_converges(
    discipline: Discipline, rule: str, value: float, digits: Dataset
) -> None:
    threads = 1 if isinstance(discipline, lsh.Sequential) else 2
    result = run(
        digits, discipline=discipline, threads=threads, observe=lsh.Observe(every=0.005),
        until=lsh.until(**{rule: value, "seconds": 240}),
    )  # fmt: skip
    assert (result.outcome, result.reason) == ("converged", rule)
    limit = value * result.initial_loss if rule == "loss_fraction" else value
    assert result.loss.min() <= limit
    if rule == "loss_fraction":
        assert 0 < result.seconds_to(0.5) <= result.elapsed


@pytest.mark.parametrize(("lr", "outcome"), [(0.02, "unfinished"), (1e-9, "diverged")])
def test_a_loss_rule_that_is_not_met(digits: Dataset, lr: float, outcome: str) -> None:
    rule = lsh.SGD(lr)
    result = run(digits, threads=2, rule=rule, until=lsh.until(loss_fraction=1e-6, updates=200))
    assert (result.outcome, result.reason) == (outcome, "updates")
    assert math.isnan(result.seconds_to(1e-6))
    result = run(digits, threads=2, rule=rule, until=lsh.until(loss=0.0, seconds=0.2))
    # Threads that have stood still for so long have left the loss where it was.
    outcome = "unfinished" if result.final_loss < 0.95 * result.initial_loss else "diverged"
    assert (result.outcome, result.reason) == (outcome, "seconds")


def test_losses_found_in_batches_end_a_run_without_the_next_evaluation(
    discipline: Discipline, digits: Dataset
) -> None:
    threads = 1 if isinstance(discipline, lsh.Sequential) else 2
    result = run(
        digits, discipline=discipline, threads=threads, observe=lsh.Observe(every=1e6),
        until=lsh.until(loss_fraction=0.3, seconds=240),
    )  # fmt: skip
    assert (result.outcome, result.reason) == ("converged", "loss_fraction")


def test_when_each_of_several_losses_was_reached(digits: Dataset) -> None:
    # With one thread the parameters after so many updates are known: each loss was reached between
    # the update at which it was found and the look before that one.
    shares = (0.2, 0.8, 0.5)
    result = run(
        digits, threads=1, rule=lsh.SGD(0.005), observe=lsh.Observe(every=1e6),
        until=lsh.until(loss_fraction=shares, seconds=240),
    )  # fmt: skip
    assert (result.outcome, result.reason) == ("converged", "loss_fraction")
    assert result.config["until"]["loss_fraction"] == (0.8, 0.5, 0.2)
    updates = [result.updates_to(share) for share in (0.8, 0.5, 0.2)]
    seconds = [result.seconds_to(share) for share in (0.8, 0.5, 0.2)]
    assert updates == sorted(updates)
    assert seconds == sorted(seconds)
    for share, reached in zip((0.8, 0.5, 0.2), updates, strict=True):
        there = run(digits, threads=1, rule=lsh.SGD(0.005), until=lsh.until(updates=int(reached)))
        assert there.final_loss <= share * result.initial_loss
        k = int(np.flatnonzero(result.updates == reached)[0])
        assert result.loss[k - 1] > share * result.initial_loss


def test_a_rule_met_by_the_initial_parameters_ends_at_once(digits: Dataset) -> None:
    result = run(digits, until=lsh.until(loss=100.0))
    assert (result.outcome, result.reason, result.total_updates) == ("converged", "loss", 0)
    assert result.elapsed == 0
    np.testing.assert_array_equal(result.parameters, MLP.init(0))
    assert math.isnan(result.mean_eps)


def test_divergence_ends_a_run(discipline: Discipline, digits: Dataset) -> None:
    linear = lsh.models.mlp(784, [], 10)  # its loss grows without bound, but not to NaN at once
    threads = 1 if isinstance(discipline, lsh.Sequential) else 2
    result = run(
        digits, linear, discipline=discipline, threads=threads, rule=lsh.SGD(1e3),
        until=lsh.until(divergence=10, seconds=240), observe=lsh.Observe(every=0.002),
    )  # fmt: skip
    assert (result.outcome, result.reason) == ("diverged", "divergence")
    assert result.loss.max() >= 10 * result.initial_loss
    assert np.isfinite(result.loss).all()


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
def test_a_huge_step_crashes(discipline: Discipline, digits: Dataset) -> None:
    threads = 1 if isinstance(discipline, lsh.Sequential) else 4
    before = native_threads()
    for until in (lsh.until(seconds=240), lsh.until(loss_fraction=0.5, seconds=240)):
        result = run(
            digits, discipline=discipline, threads=threads, rule=lsh.SGD(1e30), until=until
        )
        assert (result.outcome, result.reason) == ("crashed", "not_finite")
        assert result.total_updates >= 1
    assert at_most_so_many_threads(before)


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
def test_a_crash_at_the_last_update_is_a_crash(digits: Dataset) -> None:
    result = run(digits, rule=lsh.SGD(1e38), threads=1, until=lsh.until(updates=1))
    assert (result.outcome, result.reason) == ("crashed", "not_finite")
    assert not math.isfinite(result.final_loss)
    assert result.total_updates == 1


# Progress.


def test_progress_is_told_of_each_evaluation(discipline: Discipline, digits: Dataset) -> None:
    threads = 1 if isinstance(discipline, lsh.Sequential) else 2
    seen: list[Progress] = []
    callers = set()

    def progress(now: Progress) -> None:
        seen.append(now)
        callers.add(threading.get_ident())

    result = run(
        digits, discipline=discipline, threads=threads, until=lsh.until(seconds=0.1),
        observe=lsh.Observe(progress, every=0.02), validation=digits, )  # fmt: skip
    assert callers == {threading.get_ident()}
    for name in ("seconds", "updates", "loss", "accuracy", "validation_accuracy"):
        assert [getattr(p, name) for p in seen] == getattr(result, name).tolist()
    assert {p.initial_loss for p in seen} == {result.initial_loss}
    assert math.isnan(seen[0].eps)
    assert seen[-1].eps == pytest.approx(result.mean_eps)
    # Not a number where no update came in time.
    assert seen[-1].mean_staleness == pytest.approx(result.staleness.mean(), nan_ok=True)


@pytest.mark.parametrize("call", [0, 1, 3])
def test_an_exception_of_progress_ends_the_run(
    discipline: Discipline, call: int, digits: Dataset
) -> None:
    threads = 1 if isinstance(discipline, lsh.Sequential) else 2
    calls = []

    def a_broken_bar(now: Progress) -> None:
        if len(calls) == call:
            raise LookupError(f"at {now.updates} updates")
        calls.append(now)

    before = native_threads()
    with pytest.raises(LookupError, match=r"at [0-9]+ updates") as raised:
        run(
            digits, discipline=discipline, threads=threads, until=lsh.until(seconds=60),
            observe=lsh.Observe(a_broken_bar, every=0.005), )  # fmt: skip
    assert "a_broken_bar" in "".join(traceback.format_tb(raised.value.__traceback__))
    assert at_most_so_many_threads(before)


def test_validation_may_be_a_pair_of_arrays(digits: Dataset) -> None:
    plain, given = (run(digits, threads=1, validation=v) for v in (digits, (digits.x, digits.y)))
    assert given.validation_accuracy[-1] == plain.validation_accuracy[-1]
    assert given.validation_accuracy[-1] > 0.2


def test_a_keyboard_interrupt_within_progress_ends_the_run_as_any_other(digits: Dataset) -> None:
    def progress(now: Progress) -> None:
        if now.updates:
            signal.raise_signal(signal.SIGINT)

    result = run(digits, threads=2, until=lsh.until(seconds=60), observe=progress)
    assert (result.outcome, result.reason) == ("stopped", "interrupted")
    assert result.elapsed > 0


def test_a_keyboard_interrupt_in_the_final_evaluation_is_reported(digits: Dataset) -> None:
    def progress(now: Progress) -> None:
        if now.updates == 5:
            signal.raise_signal(signal.SIGINT)

    result = run(digits, threads=1, until=lsh.until(updates=5), observe=progress)
    assert (result.outcome, result.reason) == ("stopped", "interrupted")
    assert result.total_updates == 5


def test_training_works_in_the_child_of_a_fork(discipline: Discipline, digits: Dataset) -> None:
    threads = 1 if isinstance(discipline, lsh.Sequential) else 2
    run(digits, discipline=discipline, threads=threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork in a process with threads
        child = os.fork()
    if not child:
        result = run(digits, discipline=discipline, threads=threads)
        os._exit(0 if result.total_updates == 30 else 1)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 0


# Python's threads.


def test_training_works_on_another_thread(concurrent: Discipline, digits: Dataset) -> None:
    wanted = run(digits, discipline=concurrent, threads=1)
    with ThreadPoolExecutor(1) as pool:
        got = pool.submit(run, digits, discipline=concurrent, threads=1).result()
    np.testing.assert_array_equal(got.parameters, wanted.parameters)


# Room for no thread's stack: a limit on processes, which root has none of, does the same.
WITHOUT_THREADS = """
import resource, sys
import numpy as np
import leashed as lsh

rng = np.random.default_rng(0)
data = lsh.Dataset.from_arrays(rng.random((20_000, 64), np.float32), rng.integers(0, 10, 20_000))
model = lsh.models.mlp(64, [64], 10)
theta = model.init(0)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), resource.RLIM_INFINITY))
print(model.evaluate(theta, data))
for discipline in (lsh.Synchronous(), lsh.Leashed()):
    try:
        lsh.train(model, data, discipline=discipline, threads=2, until=lsh.until(updates=10))
    except ValueError as error:
        print(error)
"""


def test_a_process_that_may_start_no_thread_evaluates_and_says_so() -> None:
    child = subprocess.run(
        [sys.executable, "-c", WITHOUT_THREADS], capture_output=True, text=True, timeout=60,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    evaluated, *errors = child.stdout.splitlines()
    assert evaluated.startswith("(")
    assert len(errors) == 2
    for error in errors:
        assert error.startswith("threads is 2, more than the system lets start")


def test_two_runs_at_a_time_do_not_disturb_each_other(
    concurrent: Discipline, digits: Dataset
) -> None:
    wanted = [run(digits, discipline=concurrent, threads=1, seed=s) for s in range(4)]
    with ThreadPoolExecutor(2) as pool:
        got = list(
            pool.map(lambda s: run(digits, discipline=concurrent, threads=1, seed=s), range(4))
        )
        several = pool.map(
            lambda s: run(digits, discipline=concurrent, threads=3, seed=s), range(4)
        )
        assert all(result.total_updates == 30 for result in several)
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one.parameters, other.parameters)


def test_python_goes_on_while_training(discipline: Discipline, digits: Dataset) -> None:
    threads = 1 if isinstance(discipline, lsh.Sequential) else 2
    began, ended = threading.Event(), threading.Event()

    def tick() -> None:
        began.wait()
        for _ in range(50):
            if ended.wait(0.002):
                return
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        result = run(
            digits, discipline=discipline, threads=threads, until=lsh.until(seconds=60),
            observe=lsh.Observe(lambda _: began.set(), every=1e6), )  # fmt: skip
    finally:
        ended.set()
        began.set()
        thread.join()
    # Held for the whole run, the GIL would let no tick through.
    assert result.reason == "interrupted"


# Ctrl-C. The child says how long it had computed when `train` returned.

CHILD = """
import sys, time
import numpy as np
import leashed as lsh

discipline = eval(f"lsh.{sys.argv[1]}")
n, batch_size, width = map(int, sys.argv[2:5])
rng = np.random.default_rng(0)
data = lsh.Dataset.from_arrays(rng.random((n, 784), np.float32), rng.integers(0, 10, n))
model = lsh.models.mlp(784, [width] * 3, 10)
if batch_size > 0:
    ready = lambda now: print("ready", flush=True)
else:
    ready, batch_size = None, 64
theta, train = model.init(0), lsh.train  # what is imported for it is
if ready is None:
    print("ready", flush=True)
result = train(
    model, data, init=theta, discipline=discipline, threads=4, batch_size=batch_size, rule=lsh.SGD(1e-3),
    until=lsh.until(seconds=100), observe=lsh.Observe(ready, every=1000.0),
)
print(time.process_time(), result.outcome, result.reason, result.total_updates)
assert result.parameters.shape == (model.dimension,)
assert np.isfinite(result.parameters).all()
"""


def computed(pid: int) -> float:
    """Seconds of the processors that a process has had."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


DISCIPLINES = ("Synchronous()", "Locked()", "Hogwild()", "Hogwild(copy=False)", "Leashed()")


@pytest.mark.process
@pytest.mark.parametrize(
    ("discipline", "n", "batch_size", "width"),
    [
        *((discipline, 2_000, 64, 512) for discipline in DISCIPLINES),
        *((discipline, 4_000, 4_000, 1024) for discipline in ("Synchronous()", "Leashed()")),
        ("Leashed()", 60_000, 0, 1024),  # while the initial loss is evaluated
    ],
    ids=[*DISCIPLINES, "Synchronous() large batch", "Leashed() large batch", "before training"],
)
def test_ctrl_c_returns_the_state_reached(
    discipline: str, n: int, batch_size: int, width: int
) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, discipline, str(n), str(batch_size), str(width)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line == "ready\n", child.communicate()[1]
        begun = computed(child.pid)
        while computed(child.pid) < begun + 0.4:
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        sent = computed(child.pid)
        out, err = child.communicate(timeout=240)
    finally:
        child.kill()
    assert child.returncode == 0, err
    returned, outcome, reason, updates = out.splitlines()[-1].split()
    took = float(returned) - sent
    print(f"{took:.3f} s of computing from SIGINT to return, after {updates} updates")
    assert (outcome, reason) == ("stopped", "interrupted")
