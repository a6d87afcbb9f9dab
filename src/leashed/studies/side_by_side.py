"""Independent runs, as many at once as there are processors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from leashed.base.machine import cores

__all__ = ["side_by_side"]

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
