"""Any Python callable as the gradient: what it is given, may keep, and must return."""

from __future__ import annotations

import gc
import threading
import traceback
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import leashed as lsh
from leashed import _core, staleness

D = 4
N = 120
Array = NDArray[np.float32]


def problem() -> tuple[Array, Array]:
    x = np.random.default_rng(0).standard_normal((N, D)).astype(np.float32)
    return x, x @ np.arange(1, D + 1).astype(np.float32)


def squares(theta: Array, x: Array, y: Array, out: Array) -> float:
    """½ mean (x·θ − y)² and its gradient."""
    error = x @ theta - y
    out[:] = error @ x / len(x)
    return float((error**2).mean() / 2)


def model(gradient: Any = squares, **arguments: Any) -> lsh.models.External:
    return lsh.models.external(
        gradient, **{"dimension": D, "features": D, "y": "float32", **arguments}
    )


def train(gradient: Any = squares, **arguments: Any) -> lsh.TrainResult:
    return lsh.train(
        model(gradient),
        problem(),
        **{"rule": lsh.SGD(0.1), "batch_size": 16, "threads": 2, "until": lsh.until(updates=20)}
        | arguments,
    )


def test_it_trains_under_every_discipline(discipline: lsh.Discipline) -> None:
    result = train(
        discipline=discipline,
        threads=1 if isinstance(discipline, lsh.Sequential) else 3,
        until=lsh.until(loss_fraction=1e-3, seconds=240),
    )
    assert result.outcome == "converged"
    # Who was held up since the start takes a tenth of the way back at the end, and two may have been.
    found, sought = result.parameters, np.arange(1, D + 1)
    assert np.linalg.norm(found - sought) < np.linalg.norm(sought) / 3


def test_rules_and_policies_apply() -> None:
    result = train(rule=lsh.Adam(0.1), staleness=staleness.inverse(), until=lsh.until(updates=100))
    assert result.total_updates == 100
    assert result.loss[-1] < result.loss[0] / 2


def test_one_thread_gives_the_same_bits_as_the_same_steps_by_hand() -> None:
    x, y = problem()
    result = train(threads=1, until=lsh.until(updates=7), seed=5)
    state = _core.RuleState(lsh.SGD(0.1).choice(), np.zeros(D, np.float32))
    gradient = np.empty(D, np.float32)
    for k in range(7):
        rows = _core.batch_rows(5, N, 16, k)
        squares(state.vector(0), x[rows], y[rows], gradient)
        state.update(gradient)
    np.testing.assert_array_equal(result.parameters, state.vector(0))


def test_what_it_is_given() -> None:
    seen: list[Any] = []

    def look(theta: Array, x: Array, y: Array, out: Array) -> float:
        seen.append((theta.shape, x.shape, y.shape, out.shape))
        assert theta.dtype == x.dtype == y.dtype == out.dtype == np.float32
        assert out.flags.writeable
        assert np.isnan(out).all()
        for array in (theta, x, y):
            with pytest.raises(ValueError, match="read-only"):
                array[:] = 0
            with pytest.raises(ValueError, match="WRITEABLE"):
                memoryview(array).obj.base.setflags(write=True) if array.base is not None else (
                    _raise("WRITEABLE")
                )
        out[:] = 0
        return 1.0

    train(look, threads=1, until=lsh.until(updates=3))
    assert ((D,), (16, D), (16,), (D,)) in seen


def _raise(message: str) -> None:
    raise ValueError(message)


def test_what_it_keeps_stays_as_it_was(concurrent: lsh.Discipline) -> None:
    kept: list[tuple[Any, ...]] = []
    lock = threading.Lock()

    def keep(theta: Array, x: Array, y: Array, out: Array) -> float:
        loss = squares(theta, x, y, out)
        with lock:
            kept.append((theta[1:], theta.copy(), x, x.copy(), y[::2], y.copy(), out, out.copy()))
        return loss

    train(keep, discipline=concurrent, until=lsh.until(updates=60))
    gc.collect()
    assert len(kept) > 60
    for theta, theta_was, x, x_was, y, y_was, out, out_was in kept:
        np.testing.assert_array_equal(theta, theta_was[1:])
        np.testing.assert_array_equal(x, x_was)
        np.testing.assert_array_equal(y, y_was[::2])
        np.testing.assert_array_equal(out, out_was)


def test_memory_serves_the_next_call_where_nothing_was_kept() -> None:
    addresses = set()

    def look(theta: Array, x: Array, y: Array, out: Array) -> float:
        addresses.add((theta.ctypes.data, x.ctypes.data, y.ctypes.data, out.ctypes.data))
        return squares(theta, x, y, out)

    train(look, threads=1, batch_size=N, until=lsh.until(updates=50))
    assert len(addresses) < 10


class Oops(Exception):
    pass


def fails(*_: Any) -> float:
    raise Oops("in the gradient")


def test_an_exception_stops_the_run_and_surfaces_with_its_traceback(
    discipline: lsh.Discipline,
) -> None:
    calls = 0

    def later(theta: Array, x: Array, y: Array, out: Array) -> float:
        nonlocal calls
        calls += 1
        return squares(theta, x, y, out) if calls < 10 else fails()

    with pytest.raises(Oops, match="in the gradient") as caught:
        train(
            later,
            discipline=discipline,
            threads=1 if isinstance(discipline, lsh.Sequential) else 3,
            until=lsh.until(updates=10**6),
        )
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][-2:] == [
        "later",
        "fails",
    ]


@pytest.mark.parametrize("bad", [None, "1", np.ones(2), 1j, [1.0]])
def test_a_result_that_is_no_number_is_named(bad: Any) -> None:
    def gradient(theta: Array, x: Array, y: Array, out: Array) -> Any:
        squares(theta, x, y, out)
        return bad

    kind = type(bad).__name__
    with pytest.raises(
        TypeError, match=f"must return the mean loss .* a number; it returned {kind}"
    ):
        train(gradient)


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    def gradient(theta: Array, x: Array, y: Array, out: Array) -> float:
        squares(theta, x, y, out)
        return float("nan") if len(x) == 16 else 1.0

    result = train(gradient)
    assert (result.outcome, result.reason) == ("crashed", "not_finite")
    assert result.total_updates == 0


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
def test_a_gradient_that_is_not_finite_ends_the_run() -> None:
    def gradient(theta: Array, x: Array, y: Array, out: Array) -> float:
        loss = squares(theta, x, y, out)
        if len(x) == 16:
            out[2] = np.inf
        return loss

    result = train(gradient)
    assert (result.outcome, result.reason) == ("crashed", "not_finite")
    assert result.total_updates == 0


def test_a_gradient_that_was_not_written_is_named() -> None:
    def forgets(theta: Array, x: Array, y: Array, out: Array) -> float:
        out[:2] = 0
        return 1.0

    with pytest.raises(ValueError, match=r"gradient has not written out\[2\]; it must fill"):
        train(forgets)


def test_a_gradient_of_another_shape_or_dtype_is_refused_by_numpy() -> None:
    def wrong(theta: Array, x: Array, y: Array, out: Array) -> float:
        out[:] = np.ones(D + 1)
        return 1.0

    with pytest.raises(ValueError, match="could not broadcast"):
        train(wrong)

    def text(theta: Array, x: Array, y: Array, out: Array) -> float:
        out[:] = np.array(["a"] * D)
        return 1.0

    with pytest.raises(ValueError, match="could not convert string to float"):
        train(text)


def test_a_loss_function_of_its_own_is_asked_for_evaluation() -> None:
    asked = []

    def loss(theta: Array, x: Array, y: Array) -> float:
        asked.append(len(x))
        return 3.0

    both = model(loss=loss)
    assert both.evaluate(np.zeros(D), problem()) == 3.0
    assert asked == [N]
    with pytest.raises(TypeError, match="loss must be a Python callable, as gradient is"):
        model(loss=lsh.gradients.c_type("float32")(lambda *_: 1.0))


def test_threads_of_the_run_have_one_thread_state_each() -> None:
    """So that what a callable keeps by threading.local lasts from call to call."""
    local = threading.local()
    counts: list[int] = []

    def gradient(theta: Array, x: Array, y: Array, out: Array) -> float:
        if len(x) == 16:
            local.calls = getattr(local, "calls", 0) + 1
            counts.append(local.calls)
        return squares(theta, x, y, out)

    train(gradient, until=lsh.until(updates=200))
    assert max(counts) > 50
