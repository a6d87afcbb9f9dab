"""The shared vector in Python: zero-copy pinned views, gapless versions, clear refusals."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leashed import ParameterVector, Update

D = 1000


def make(**arguments: int) -> ParameterVector:
    return ParameterVector(np.zeros(D, np.float32), **arguments)


ONES = np.ones(D, np.float32)


def test_a_view_is_read_only_and_costs_no_copy() -> None:
    vector = ParameterVector(np.arange(D))
    with vector.read() as theta, vector.read() as again:
        assert theta.dtype == np.float32
        assert theta.shape == (D,)
        assert theta.ctypes.data == again.ctypes.data
        assert theta.ctypes.data % 64 == 0
        assert not theta.flags.owndata
        assert not theta.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            theta[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            theta.setflags(write=True)
        np.testing.assert_array_equal(theta, np.arange(D))


def test_the_initial_values_are_copied() -> None:
    theta = np.zeros(D, np.float32)
    vector = ParameterVector(theta)
    theta[:] = 5
    with vector.read() as view:
        assert not view.any()


def test_an_update_is_a_step() -> None:
    vector = ParameterVector([1.0, 2.0, 3.0])
    assert (vector.t, len(vector)) == (0, 3)
    assert vector.update([1, 0, -1], 0.5) == Update(published=True, staleness=0, tries=0)
    assert vector.t == 1
    with (view := vector.read()) as theta:
        assert view.t == 1
        np.testing.assert_array_equal(theta, [0.5, 2.0, 3.5])
    assert repr(vector) == "ParameterVector(d=3, t=1, live=1)"


def test_staleness_is_counted_from_the_version_read() -> None:
    vector = make()
    for _ in range(5):
        vector.update(ONES, 1)
    assert vector.update(ONES, 1, t_read=5).staleness == 0
    assert vector.update(ONES, 1, t_read=2).staleness == 4
    assert vector.update(ONES, 1, t_read=0, persistence=0) == Update(True, 7, 0)


def test_a_kept_view_never_changes() -> None:
    vector = make(readers=4)
    with (view := vector.read()) as theta:
        kept = theta[10:20]  # a view of the view holds on to it too
        whole = theta
    del theta
    address = whole.ctypes.data
    for step in range(1, 30):
        vector.update(ONES, 1)
        assert not whole.any()
        assert not kept.any()
        assert view.t == 0
        with vector.read() as latest:
            assert (latest == -step).all()
            assert latest.ctypes.data != address
    assert vector.live == 2
    del whole
    gc.collect()
    assert vector.live == 2
    del kept
    gc.collect()
    assert vector.live == 1


def test_a_view_outlives_its_vector() -> None:
    vector = ParameterVector(np.arange(D))
    with vector.read() as theta:
        pass
    del vector
    gc.collect()
    np.testing.assert_array_equal(theta, np.arange(D))


def test_too_many_views_are_refused_until_one_is_dropped() -> None:
    vector = make(readers=3)
    views = []
    for _ in range(3):
        with vector.read() as theta:
            views.append(theta)
        del theta
        vector.update(ONES, 1)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"too many views are alive.* drop some.* readers"):
            vector.read().__enter__()
    assert vector.update(ONES, 1).published  # readers never hold up an update
    assert vector.t == 4
    views.pop()
    with vector.read() as theta:
        assert (theta == -4).all()
    assert [view[0] for view in views] == [0, -1]


def test_a_read_is_entered_once_at_a_time() -> None:
    vector = make()
    read = vector.read()
    with read as first:
        assert not first.any()
        with pytest.raises(RuntimeError, match="already entered"):
            read.__enter__()
    del first
    vector.update(ONES, 1)
    with read as second:
        assert (second == -1).all()
        assert read.t == 1


def test_an_exception_releases_the_view() -> None:
    vector = make(readers=1)
    for _ in range(3):
        with pytest.raises(KeyError), vector.read():
            raise KeyError
    with vector.read():
        pass


@pytest.mark.parametrize(("workers", "readers"), [(1, 1), (2, 3), (8, 1)])
def test_the_vectors_in_use_are_bounded(workers: int, readers: int) -> None:
    vector = make(workers=workers, readers=readers)
    assert vector.live == 1
    assert vector.capacity == 2 * workers + readers + 1
    views = []
    for _ in range(readers):
        with vector.read() as theta:
            views.append(theta)
        for _ in range(5):
            vector.update(ONES, 1)
            assert vector.live <= vector.capacity
    assert vector.live == 1 + readers


@given(st.lists(st.sampled_from(["read", "drop", "update"]), max_size=60))
def test_any_order_of_reads_drops_and_updates_is_consistent(steps: list[str]) -> None:
    vector = ParameterVector(np.zeros(3), readers=4)
    t, views = 0, []
    for step in steps:
        if step == "read" and len(views) < 4:
            with (read := vector.read()) as theta:
                assert read.t == t
                views.append((t, theta))
            del theta
        elif step == "drop" and views:
            views.pop(len(views) // 2)
        elif step == "update":
            assert vector.update(np.ones(3), 1).published
            t += 1
        assert all((view == -version).all() for version, view in views)
        assert vector.t == t
        assert vector.live == len({version for version, _ in views} | {t})


@pytest.mark.parametrize("persistence", [math.inf, 1, 0])
def test_threads_see_whole_vectors_and_versions_without_gaps(persistence: float) -> None:
    """Every update takes 1 from every element, so version t must hold −t everywhere."""
    workers, readers, each = 3, 2, 150
    vector = make(workers=workers, readers=workers + readers)
    ended = threading.Event()

    def work(_: int) -> list[Update]:
        updates = []
        for _ in range(each):
            with (view := vector.read()) as theta:
                assert (theta == -view.t).all()
            del theta
            updates.append(vector.update(ONES, 1, t_read=view.t, persistence=persistence))
        return updates

    def watch(_: int) -> int:
        last = seen = 0
        kept = None
        while not ended.is_set():
            if kept is not None:
                t, theta = kept
                assert (theta == -t).all()
                del theta
            kept = None
            with (view := vector.read()) as theta:
                assert view.t >= last
                last = view.t
                assert (theta == -last).all()
                kept = (last, theta)
            del theta
            assert vector.live <= vector.capacity
            seen += 1
        return seen

    with ThreadPoolExecutor(workers + readers) as pool:
        watching = [pool.submit(watch, k) for k in range(readers)]
        try:
            updates = [u for done in pool.map(work, range(workers)) for u in done]
        finally:
            ended.set()
        assert all(future.result() > 0 for future in watching)

    published = sum(u.published for u in updates)
    assert vector.t == published
    if persistence == math.inf:
        assert published == workers * each
    assert all(u.tries <= persistence + 1 for u in updates)
    assert all(u.published or (u.staleness == 0 and u.tries == persistence + 1) for u in updates)
    with vector.read() as theta:
        assert (theta == -published).all()
    del theta, watching
    gc.collect()
    assert vector.live == 1


def test_too_many_updating_threads_are_refused_or_served() -> None:
    vector = ParameterVector(np.zeros(200_000), workers=1)
    gradient = np.ones(len(vector), np.float32)
    refusals = []

    def work(_: int) -> int:
        published = 0
        while published < 30:
            try:
                published += vector.update(gradient, 1).published
            except RuntimeError as error:
                refusals.append(str(error))
        return published

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(work, range(3))) == 90
    assert vector.t == 90
    assert all("too many threads update at once" in r and "more workers" in r for r in refusals)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"gradient": np.ones(D - 1)}, ValueError, f"gradient must have length {D}, got {D - 1}"),
        ({"gradient": np.ones((D, 1))}, ValueError, "gradient must be one-dimensional"),
        ({"gradient": np.full(D, math.nan)}, ValueError, r"gradient\[0\] is nan"),
        ({"gradient": np.ones(D, complex)}, TypeError, "gradient must hold real numbers"),
        ({"gradient": None}, TypeError, "gradient must hold real numbers"),
        ({"lr": -1.0}, ValueError, "lr must be at least 0"),
        ({"lr": math.nan}, ValueError, "lr must be finite"),
        ({"lr": 1e39}, ValueError, "lr must be at most"),
        ({"lr": "1"}, TypeError, "lr must be a number"),
        ({"t_read": -1}, ValueError, "t_read must be at least 0"),
        ({"t_read": 4}, ValueError, "t_read must be at most 3, got 4"),
        ({"t_read": 1.0}, TypeError, "t_read must be a whole number"),
        ({"persistence": -1}, ValueError, "persistence must be at least 0"),
        ({"persistence": 0.5}, TypeError, "persistence must be a whole number"),
        ({"persistence": math.nan}, ValueError, "persistence must be finite"),
    ],
)
def test_a_wrong_update_is_named_and_changes_nothing(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    vector = make()
    for _ in range(3):
        vector.update(ONES, 1)
    with pytest.raises(error, match=message):
        vector.update(**{"gradient": ONES, "lr": 0.1, **arguments})  # type: ignore[arg-type]
    assert vector.t == 3
    assert vector.live == 1
    with vector.read() as theta:
        assert (theta == -3).all()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"theta": []}, ValueError, "theta must not be empty"),
        ({"theta": 1.0}, ValueError, "theta must be one-dimensional"),
        ({"theta": np.zeros((2, 2))}, ValueError, "theta must be one-dimensional"),
        ({"theta": [0.0, math.inf]}, ValueError, r"theta\[1\] is inf"),
        ({"theta": ["a"]}, TypeError, "theta must hold real numbers"),
        ({"workers": 0}, ValueError, "workers must be at least 1"),
        ({"workers": 1.5}, TypeError, "workers must be a whole number"),
        ({"workers": 10**6}, ValueError, "workers must be at most 4096"),
        ({"readers": 0}, ValueError, "readers must be at least 1"),
        ({"readers": True}, TypeError, "readers must be a whole number"),
        ({"readers": 10**6}, ValueError, "readers must be at most 4096"),
    ],
)
def test_a_wrong_vector_is_named(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ParameterVector(**{"theta": ONES, **arguments})  # type: ignore[arg-type]


def test_pickling_and_copying_are_refused() -> None:
    vector = make()
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"ParameterVector .* cannot be pickled"):
            attempt(vector)
    with vector.read() as theta:
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(theta)), theta)
