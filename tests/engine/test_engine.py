"""Engine: a loop of the user's own under every discipline, rule and staleness policy."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray
from reference_rules import RULES, Reference

import leashed as lsh
from leashed import staleness

D = 83
STEPS = 200
TOLERANCE = 2e-5
DISCIPLINES = (
    lsh.Sequential(),
    lsh.Locked(),
    lsh.Hogwild(),
    lsh.Hogwild(copy=False),
    lsh.Leashed(),
    lsh.Leashed(0),
)
LIVE = (lsh.Sequential(), lsh.Hogwild(copy=False))
ONES = np.ones(D, np.float32)


def label(discipline: lsh.Discipline) -> str:
    return discipline.label


@pytest.fixture(params=DISCIPLINES, ids=label)
def kind(request: pytest.FixtureRequest) -> lsh.Discipline:
    return request.param


@pytest.fixture(params=[k for k in DISCIPLINES if not isinstance(k, lsh.Sequential)], ids=label)
def shared(request: pytest.FixtureRequest) -> lsh.Discipline:
    return request.param


def make(kind: lsh.Discipline | None = None, **arguments: object) -> lsh.Engine:
    return lsh.Engine(
        np.zeros(D),
        **{"rule": lsh.SGD(1.0), "discipline": kind, **arguments},  # type: ignore[arg-type]
    )


def noise(seed: int = 1) -> Iterator[NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    while True:
        yield (0.3 * rng.standard_normal(D)).astype(np.float32)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_follows_the_reference(name: str, kind: lsh.Discipline) -> None:
    rule = RULES[name]()
    rng = np.random.default_rng(0)
    start, goal = rng.standard_normal((2, D)).astype(np.float32)
    reference = Reference(rule, start)
    with lsh.Engine(start, rule=rule, discipline=kind) as engine:
        for step, extra in zip(range(STEPS), noise(), strict=False):
            with engine.read() as theta:
                gradient = theta - goal + extra
            assert engine.push(gradient) == lsh.Update(True, 0, 0)
            reference.step(gradient)
            np.testing.assert_allclose(
                engine.parameters(), reference.theta, atol=TOLERANCE, rtol=0, err_msg=str(step)
            )
        assert engine.t == STEPS
        assert len(engine.state) == rule.state_vectors


TORCH = {
    "SGD": (lsh.SGD(0.05, weight_decay=0.1), "SGD", {"lr": 0.05, "weight_decay": 0.1}),
    "Momentum": (lsh.Momentum(0.02, 0.9), "SGD", {"lr": 0.02, "momentum": 0.9}),
    "Nesterov": (
        lsh.Nesterov(0.02, 0.9),
        "SGD",
        {"lr": 0.02, "momentum": 0.9, "nesterov": True},
    ),
    "Adagrad": (lsh.Adagrad(0.05), "Adagrad", {"lr": 0.05}),
    "RMSprop": (lsh.RMSprop(0.01), "RMSprop", {"lr": 0.01}),
    "Adam": (lsh.Adam(0.01, weight_decay=0.1), "Adam", {"lr": 0.01, "weight_decay": 0.1}),
    "AdamW": (lsh.AdamW(0.01), "AdamW", {"lr": 0.01}),
}


@pytest.mark.parametrize("name", TORCH)
def test_every_rule_follows_pytorch(name: str, kind: lsh.Discipline) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional extra")
    torch.set_num_threads(1)
    rule, optimizer, settings = TORCH[name]
    rng = np.random.default_rng(0)
    start, goal = rng.standard_normal((2, D)).astype(np.float32)
    parameter = torch.nn.Parameter(torch.from_numpy(start.copy()))
    theirs = getattr(torch.optim, optimizer)([parameter], **settings)
    with lsh.Engine(start, rule=rule, discipline=kind) as engine:
        for _, extra in zip(range(STEPS), noise(), strict=False):
            with engine.read() as theta:
                gradient = theta - goal + extra
            engine.push(gradient)
            parameter.grad = torch.from_numpy(gradient)
            theirs.step()
            np.testing.assert_allclose(
                engine.parameters(), parameter.detach().numpy(), atol=TOLERANCE, rtol=0
            )


def test_a_view_is_read_only_and_as_cheap_as_its_discipline_allows(kind: lsh.Discipline) -> None:
    engine = make(kind)
    with (view := engine.read()) as theta:
        assert (theta.dtype, theta.shape, view.t) == (np.float32, (D,), 0)
        assert theta.ctypes.data % 64 == 0
        with pytest.raises(ValueError, match="read-only"):
            theta[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            theta.setflags(write=True)
        with engine.read() as again:
            same = theta.ctypes.data == again.ctypes.data
    assert same == (kind in LIVE or isinstance(kind, lsh.Leashed))


def test_a_kept_view_never_changes_unless_it_is_the_vector_itself(kind: lsh.Discipline) -> None:
    engine = make(kind, readers=4)
    with engine.read() as theta:
        kept = theta[10:20]
    del theta
    for step in range(1, 30):
        with engine.read() as latest:
            assert (latest == 1 - step).all()
        engine.push(ONES)
        assert (kept == (-step if kind in LIVE else 0)).all()
    del engine, latest
    gc.collect()
    assert (kept == (-29 if kind in LIVE else 0)).all()


def test_views_are_counted_and_one_too_many_is_refused(kind: lsh.Discipline) -> None:
    engine = make(kind, readers=2)
    views = []
    for _ in range(2):
        with engine.read() as theta:
            views.append(theta)
        del theta
        engine.push(ONES)
    with pytest.raises(RuntimeError, match=r"too many views are alive.* Engine with more readers"):
        engine.read().__enter__()
    assert engine.push(ONES).published
    assert engine.t == 3
    views.pop()
    with engine.read():
        pass


def test_staleness_is_counted_from_this_threads_last_read(shared: lsh.Discipline) -> None:
    engine = make(shared, workers=2)
    with engine.read():
        pass

    def other() -> None:
        for _ in range(3):
            with engine.read():
                pass
            assert engine.push(ONES).staleness == 0

    with ThreadPoolExecutor(1) as pool:
        pool.submit(other).result()
    assert engine.push(ONES).staleness == 3
    assert engine.push(ONES).staleness == 4
    assert engine.push(ONES, t=5).staleness == 0
    with (view := engine.read()):
        assert view.t == 6
    assert engine.push(ONES).staleness == 0
    assert (engine.parameters() == -7).all()


def test_the_staleness_policy_damps_and_leaves_out(shared: lsh.Discipline) -> None:
    engine = make(shared, staleness=staleness.inverse())
    with engine.read():
        pass
    for tau in range(3):
        assert engine.push(ONES).staleness == tau
    np.testing.assert_allclose(engine.parameters(), -(1 + 1 / 2 + 1 / 3), rtol=1e-6)
    engine = make(shared, staleness=staleness.cutoff(1))
    with engine.read():
        pass
    assert [engine.push(ONES).published for _ in range(4)] == [True, True, False, False]
    assert engine.t == 2


def test_variables_have_norms_of_their_own() -> None:
    policy = staleness.stage_aware(staleness.power(1))
    engine = make(lsh.Locked(), staleness=policy, variables=[40, D - 40])
    with engine.read():
        pass
    g = np.concatenate([np.zeros(40), np.ones(D - 40)]).astype(np.float32)
    for _ in range(2):
        engine.push(g)
    moved = engine.parameters()
    assert not moved[:40].any()
    assert (moved[40:] < -1).all()


def test_sparse_pushes_touch_only_what_they_name() -> None:
    for rule in (lsh.SGD(0.5), lsh.Adagrad(0.5)):
        sparse = make(lsh.Hogwild(copy=False), rule=rule)
        dense = make(lsh.Hogwild(copy=False), rule=rule)
        rng = np.random.default_rng(3)
        for _ in range(50):
            indices = np.sort(rng.choice(D, 7, replace=False)).astype(np.int64)
            values = rng.standard_normal(7).astype(np.float32)
            gradient = np.zeros(D, np.float32)
            gradient[indices] = values
            for engine in (sparse, dense):
                with engine.read():
                    pass
            assert sparse.push_sparse(indices, values) == lsh.Update(True, 0, 0)
            dense.push(gradient)
            np.testing.assert_allclose(sparse.parameters(), dense.parameters(), rtol=1e-6)
        for ours, theirs in zip(sparse.state, dense.state, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("kind", [lsh.Hogwild(), lsh.Hogwild(copy=False)], ids=label)
@pytest.mark.parametrize("make_rule", [lsh.SGD, lsh.Adagrad])
@pytest.mark.parametrize(
    "clipping",
    [{"clip_value": 0.5}, {"clip_norm": 1.0}, {"clip_value": 0.8, "clip_norm": 1.5}],
    ids=str,
)
def test_sparse_pushes_are_clipped_as_the_reference_clips(
    clipping: dict[str, float], make_rule: type[lsh.SGD | lsh.Adagrad], kind: lsh.Discipline
) -> None:
    rng = np.random.default_rng(5)
    start = rng.standard_normal(D).astype(np.float32)
    rule = make_rule(0.1, **clipping)
    reference = Reference(rule, start)
    engine = lsh.Engine(start, rule=rule, discipline=kind)
    for step in range(STEPS):
        # Long and short ones, with and without enough values to be above the norm.
        n = int(rng.integers(1, D))
        indices = np.sort(rng.choice(D, n, replace=False)).astype(np.int64)
        values = (10 ** rng.uniform(-2, 1) * rng.standard_normal(n)).astype(np.float32)
        gradient = np.zeros(D, np.float32)
        gradient[indices] = values
        before = engine.parameters()
        engine.push_sparse(indices, values, t=step)
        reference.step(gradient)
        after = engine.parameters()
        np.testing.assert_allclose(after, reference.theta, atol=TOLERANCE, rtol=0)
        untouched = np.delete(np.arange(D), indices)
        np.testing.assert_array_equal(after[untouched], before[untouched])
    if engine.state:
        np.testing.assert_allclose(engine.state[0], reference.v, rtol=1e-4)


def test_a_sparse_push_where_it_means_nothing_is_refused() -> None:
    i, v = np.array([1, 2]), np.ones(2, np.float32)
    for kind in (lsh.Leashed(), lsh.Locked(), lsh.Sequential()):
        with pytest.raises(ValueError, match="under Hogwild only"):
            make(kind).push_sparse(i, v, t=0)
    for rule in (lsh.Adam(0.1), lsh.Momentum(0.1), lsh.SGD(0.1, weight_decay=0.1)):
        with pytest.raises(ValueError, match="also changes parameters whose gradient is zero"):
            make(lsh.Hogwild(), rule=rule).push_sparse(i, v, t=0)
    with pytest.raises(ValueError, match="stage-aware"):
        make(lsh.Hogwild(), staleness=staleness.stage_aware(staleness.inverse())).push_sparse(
            i, v, t=0
        )
    engine = make(lsh.Hogwild())
    for indices, error, message in (
        ([1, D], IndexError, rf"indices\[1\] is {D}, outside 0 to {D - 1}"),
        ([-1, 2], IndexError, r"indices\[0\] is -1, outside"),
        ([2, 1], ValueError, r"indices\[1\] is 1, after 2; they must ascend"),
        ([2, 2], ValueError, r"indices\[1\] is 2, after 2"),
        ([1], ValueError, "values must have length 1, as indices, got 2"),
        ([1.0, 2.0], TypeError, "indices must have dtype int64, got float64"),
    ):
        with pytest.raises(error, match=message):
            engine.push_sparse(np.array(indices), v, t=0)
    assert engine.t == 0


def test_threads_lose_nothing_where_the_discipline_promises_it(shared: lsh.Discipline) -> None:
    threads, each = 3, 200
    engine = make(shared, workers=threads)
    if shared == lsh.Leashed(0):
        pytest.skip("it may drop gradients; the next test counts them")

    def work(_: int) -> int:
        published = 0
        for _ in range(each):
            with (view := engine.read()) as theta:
                if isinstance(shared, lsh.Leashed | lsh.Locked):
                    assert (theta == -view.t).all()
            published += engine.push(ONES).published
        return published

    with ThreadPoolExecutor(threads) as pool:
        assert sum(pool.map(work, range(threads))) == threads * each
    assert engine.t == threads * each
    if not isinstance(shared, lsh.Hogwild):
        assert (engine.parameters() == -threads * each).all()


def test_dropped_gradients_are_told() -> None:
    d = 300_000
    engine = lsh.Engine(
        np.zeros(d), rule=lsh.SGD(1.0), discipline=lsh.Leashed(persistence=0), workers=3
    )
    gradient = np.ones(d, np.float32)

    def work(_: int) -> list[lsh.Update]:
        updates = []
        for _ in range(40):
            with engine.read():
                pass
            updates.append(engine.push(gradient))
        return updates

    with ThreadPoolExecutor(3) as pool:
        updates = [u for done in pool.map(work, range(3)) for u in done]
    assert engine.t == sum(u.published for u in updates)
    assert all(u.tries == (0 if u.published else 1) for u in updates)
    assert (engine.parameters() == -engine.t).all()


def test_a_thread_too_many_is_refused_and_one_that_ended_makes_room(kind: lsh.Discipline) -> None:
    engine = make(kind, workers=1)

    def push() -> None:
        with engine.read():
            pass
        engine.push(ONES)

    for _ in range(5):
        thread = threading.Thread(target=push)
        thread.start()
        thread.join()
    assert engine.t == 5
    push()
    with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="more workers"):
        pool.submit(push).result()
    assert engine.t == 6


def test_a_thread_that_waits_for_a_place_lets_others_go_on(kind: lsh.Discipline) -> None:
    engine = make(kind, workers=1)
    with engine.read():
        pass
    engine.push(ONES)  # this thread has the only place
    ticks: list[int] = []

    def push() -> None:
        started.set()
        with pytest.raises(RuntimeError, match="more workers"):
            engine.push(ONES, t=0)

    while len(ticks) < 6:  # of 200 or so; this one may stand still for as long as the other waits
        ticks.clear()
        started = threading.Event()
        thread = threading.Thread(target=push)
        thread.start()
        started.wait()
        while thread.is_alive():
            ticks.append(engine.t)
            thread.join(0.001)


def test_one_read_entered_by_many_threads_is_refused_to_all_but_one() -> None:
    """In a process of its own: none may wait for another that waits for the GIL."""
    code = """
import sys, threading
import numpy as np
import leashed as lsh
sys.setswitchinterval(1e-6)
engine = lsh.Engine(np.zeros(300_000), discipline=lsh.Locked())  # copied without the GIL
for _ in range(50):
    read = engine.read()
    refused, barrier = [], threading.Barrier(4)
    def enter():
        barrier.wait()
        try:
            read.__enter__()
        except RuntimeError as error:
            assert "already entered" in str(error), error
            refused.append(1)
    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert len(refused) == 3, refused
    read.__exit__(None, None, None)
    with read as theta:
        pass
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_a_thread_works_with_many_engines() -> None:
    engines = [make() for _ in range(10)]
    for _ in range(3):
        for engine in engines:
            with engine.read():
                pass
        for engine in engines:
            assert engine.push(ONES).staleness == 0
    del engines[3:], engine
    assert [engine.push(ONES).staleness for engine in engines] == [1, 1, 1]


def test_a_closed_engine_refuses_and_its_views_stay(kind: lsh.Discipline) -> None:
    with make(kind) as engine:
        with engine.read() as theta:
            pass
        engine.push(ONES)
    with pytest.raises(RuntimeError, match="engine is closed"):
        engine.push(ONES)
    with pytest.raises(RuntimeError, match="engine is closed"):
        engine.read().__enter__()
    assert (engine.parameters() == -1).all()
    assert (theta == (-1 if kind in LIVE else 0)).all()


def test_state_is_published_with_the_parameters() -> None:
    """Under Leashed both come from one update: momentum's b is the sum of the gradients."""
    rule = lsh.Momentum(1e-3, 0.0)
    engine = lsh.Engine(np.zeros(D), rule=rule, discipline=lsh.Leashed(), workers=2)
    ended = threading.Event()

    def work() -> None:
        value = 0.0
        while not ended.is_set():
            value += 1
            with engine.read():
                pass
            engine.push(np.full(D, value, np.float32))

    with ThreadPoolExecutor(2) as pool:
        working = [pool.submit(work) for _ in range(2)]
        for _ in range(200):
            (b,) = engine.state
            assert (b == b[0]).all()
        ended.set()
        for future in working:
            future.result()


@pytest.mark.parametrize(
    ("gradient", "error", "message"),
    [
        (np.ones(D), TypeError, r"gradient must have dtype float32, got float64; .*astype"),
        (np.ones(D, ">f4"), TypeError, "gradient must have dtype float32, got >f4"),
        (np.ones(D, np.int32), TypeError, "gradient must have dtype float32, got int32"),
        (np.ones(D - 1, "f"), ValueError, f"gradient must have length {D}, got {D - 1}"),
        (
            np.ones((D, 1), "f"),
            ValueError,
            r"gradient must be one-dimensional, got shape \(83, 1\)",
        ),
        (np.ones(2 * D, "f")[::2], ValueError, r"gradient must be contiguous, got strides \(8,\)"),
        ([1.0] * D, TypeError, "gradient must be a NumPy array of dtype float32, got list"),
        (None, TypeError, "gradient must be a NumPy array of dtype float32, got NoneType"),
    ],
)
def test_a_wrong_gradient_is_named_and_changes_nothing(
    gradient: object, error: type[Exception], message: str, kind: lsh.Discipline
) -> None:
    engine = make(kind)
    with engine.read():
        pass
    with pytest.raises(error, match=message):
        engine.push(gradient)  # type: ignore[arg-type]
    assert engine.t == 0


BAD = pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])


@BAD
def test_a_gradient_that_is_not_finite_changes_nothing(bad: float, kind: lsh.Discipline) -> None:
    for d in (1, 2, 15, 16, 17, 63, 64, 70, 20_000):
        rng = np.random.default_rng(d)
        start, good = rng.standard_normal((2, d)).astype(np.float32)
        engine = lsh.Engine(start, rule=lsh.Adam(0.1), discipline=kind)
        twin = lsh.Engine(start, rule=lsh.Adam(0.1), discipline=kind)
        for e in (engine, twin):
            e.push(good, t=0)
        theta, state = engine.parameters(), engine.state
        for index in {0, d // 2, d - 1}:
            for offset in (0, 1, 3):  # floats of any alignment
                g = np.ones(d + 4, np.float32)[offset : offset + d]
                g[index:] = bad
                message = rf"gradient\[{index}\] is {bad}; .*parameters are unchanged.*Leave"
                with pytest.raises(ValueError, match=message):
                    engine.push(g, t=1)
        assert engine.t == 1
        np.testing.assert_array_equal(engine.parameters(), theta)
        np.testing.assert_array_equal(engine.state, state)
        for e in (engine, twin):
            assert e.push(good, t=1) == lsh.Update(True, 0, 0)
        np.testing.assert_array_equal(engine.parameters(), twin.parameters())


@BAD
def test_a_sparse_gradient_that_is_not_finite_changes_nothing(bad: float) -> None:
    engine = make(lsh.Hogwild(), rule=lsh.Adagrad(0.5, clip_norm=1.0))
    indices, values = np.array([3, 5, 80]), np.array([1, bad, bad], np.float32)
    message = rf"values\[1\], of the gradient at index 5, is {bad}; .*parameters are unchanged"
    with pytest.raises(ValueError, match=message):
        engine.push_sparse(indices, values, t=0)
    assert engine.t == 0
    assert not engine.parameters().any()
    assert not engine.state[0].any()
    assert engine.push_sparse(indices, np.ones(3, np.float32), t=0).published


def test_threads_go_on_beside_one_whose_gradients_are_refused(shared: lsh.Discipline) -> None:
    each = 200
    engine = make(shared, workers=2)

    def work(gradient: NDArray[np.float32]) -> int:
        done = 0
        for _ in range(each):
            with engine.read() as theta:
                assert np.isfinite(theta).all()
            try:
                done += engine.push(gradient).published
            except ValueError:
                continue
        return done

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, (ONES, np.full(D, math.nan, np.float32)))) == [each, 0]
    assert (engine.parameters() == -each).all()


def test_what_is_not_checked_is_applied() -> None:
    engine = make(lsh.Hogwild(), check_finite=False)
    engine.push(np.array([1, math.nan, *[2] * (D - 2)], np.float32), t=0)
    engine.push_sparse(np.array([5]), np.array([-math.inf], np.float32), t=0)
    np.testing.assert_array_equal(engine.parameters()[:6], [-1, math.nan, -2, -2, -2, math.inf])
    assert engine.t == 2


def test_a_gradient_on_a_device_is_named() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional extra")
    with pytest.raises(TypeError, match=r"got Tensor on device meta; .*cpu\(\).numpy\(\)"):
        make().push(torch.ones(D, device="meta"), t=0)


def test_a_push_without_a_read_is_refused() -> None:
    engine = make()
    with pytest.raises(RuntimeError, match=r"this thread has read nothing.* pass the t"):
        engine.push(ONES)
    assert engine.push(ONES, t=0).published
    with pytest.raises(ValueError, match="t is 5, but the version is only 1"):
        engine.push(ONES, t=5)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"theta": []}, ValueError, "theta must not be empty"),
        ({"theta": [math.nan]}, ValueError, r"theta\[0\] is nan"),
        ({"theta": np.zeros((2, 2))}, ValueError, "theta must be one-dimensional"),
        ({"rule": 0.1}, TypeError, "rule must be SGD"),
        ({"discipline": "pigwild"}, ValueError, "discipline 'pigwild' is unknown"),
        ({"discipline": lsh.Synchronous()}, ValueError, "discipline must not be Synchronous"),
        ({"staleness": "obverse"}, ValueError, "staleness 'obverse' is unknown"),
        ({"workers": 0}, ValueError, "workers must be at least 1"),
        ({"workers": 2, "discipline": lsh.Sequential()}, ValueError, "workers must be 1 with"),
        ({"readers": 0}, ValueError, "readers must be at least 1"),
        ({"check_finite": 1}, TypeError, "check_finite must be True or False, got 1"),
        ({"variables": [1, 2]}, ValueError, f"variables must add up to the {D} parameters, got 3"),
        ({"variables": [0, D]}, ValueError, r"variables\[0\] must be at least 1"),
    ],
)
def test_a_wrong_engine_is_named(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        lsh.Engine(**{"theta": ONES, **arguments})  # type: ignore[arg-type]


def test_pickling_and_copying_are_refused() -> None:
    engine = make()
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"Engine .* cannot be pickled"):
            attempt(engine)
    assert repr(engine).startswith(f"Engine(d={D}, t=0, rule=SGD(")
