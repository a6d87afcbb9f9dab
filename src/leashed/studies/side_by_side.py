"""Independent runs, as many at once as there are processors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

from leashed.base.machine import cores

__all__ = ["as_they_end", "side_by_side"]

A = TypeVar("A")
R = TypeVar("R")


def side_by_side(run: Callable[[A], R], asked: Iterable[A]) -> Iterator[R]:
    """What ``run`` makes of each, in their order, each on a thread of Python's: virtual time holds no
    lock of the interpreter's. After an exception or Ctrl-C those that have begun end first.
    """
    with ThreadPoolExecutor(max_workers=cores()) as pool:
        try:
            yield from pool.map(run, asked)
        finally:
            pool.shutdown(cancel_futures=True)


def as_they_end(
    run: Callable[[A, Callable[[object], None]], R], asked: Iterable[A]
) -> Iterator[tuple[A, R]]:
    """What ``run`` makes of each, as they end, each on a thread of Python's.

    Args:
        run: takes one of ``asked``, and what is to be called now and then with anything: after an
            exception or Ctrl-C it raises KeyboardInterrupt.
        asked: is drawn from when a processor is free.

    After Ctrl-C those that have begun and come to their ends are yielded still, before
    KeyboardInterrupt is raised; after another exception they end, and nothing more is yielded.
    """
    stopped = threading.Event()

    def go_on(_: object) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt

    rest = iter(asked)
    under_way: dict[Future[R], A] = {}
    with ThreadPoolExecutor(max_workers=cores()) as pool:
        try:
            while True:
                for one in islice(rest, cores() - len(under_way)):
                    under_way[pool.submit(run, one, go_on)] = one
                if not under_way:
                    return
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    yield under_way.pop(future), future.result()
        except KeyboardInterrupt:
            stopped.set()
            for future in wait(under_way).done:
                if future.exception() is None:
                    yield under_way[future], future.result()
            raise
        finally:
            stopped.set()
