"""The shared parameter vector itself, for loops of one's own."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from leashed import _core
from leashed.base import checks
from leashed.disciplines import Leashed

__all__ = ["ParameterVector", "Update"]


class Update(NamedTuple):
    """What became of a gradient.

    Attributes:
        published: False where the persistence bound dropped it.
        staleness: updates published between the read and this one; 0 where it was dropped.
        tries: failed attempts.
    """

    published: bool
    staleness: int
    tries: int


class ParameterVector:
    """One published vector that threads read without waiting or copying and replace by
    compare-and-swap (leashed-sgd, Algorithms 1 and 3).

        vector = ParameterVector(np.zeros(d, np.float32))
        with (view := vector.read()) as theta:    # read-only, never changes
            g = gradient(theta)
        vector.update(g, lr=0.1, t_read=view.t)

    An array obtained from ``read`` may be kept: its vector stays pinned, and counts as one of the
    ``readers``, until the last reference to it is gone.

    Args:
        theta: initial values [d], converted to float32 and copied.
        workers: threads that may call ``update`` at the same time.
        readers: views that may be alive at the same time.

    Raises:
        TypeError, ValueError: ``theta`` is not a finite vector, or a count is not from 1.
    """

    def __init__(self, theta: ArrayLike, *, workers: int = 1, readers: int = 8) -> None:
        self._native = _core.ParameterVector(
            checks.vector("theta", theta),
            checks.whole("workers", workers, maximum=4096),
            checks.whole("readers", readers, maximum=4096),
        )

    def read(self) -> _core.Read:
        """A context manager that pins the latest vector and gives it as a float32 [d] array, with
        its version in the attribute ``t``. Never waits.

        Raises (when entered):
            RuntimeError: ``readers`` views are alive already.
        """
        return self._native.read()

    def update(
        self,
        gradient: ArrayLike,
        lr: float,
        *,
        t_read: int | None = None,
        persistence: float = math.inf,
    ) -> Update:
        """Publish latest − lr · gradient; under contention retry, at most ``persistence`` times.

        Args:
            gradient: [d].
            lr: the step size.
            t_read: version that the gradient was computed on, for the staleness reported.
                Default: the latest.
            persistence: the persistence bound T_p.

        Raises:
            TypeError, ValueError: an argument is wrong; nothing has changed.
            RuntimeError: ``workers`` threads are updating already.
        """
        latest = self.t
        t_read = latest if t_read is None else checks.whole("t_read", t_read, 0, latest)
        return Update(
            *self._native.update(
                checks.vector("gradient", gradient, len(self)),
                checks.rate("lr", lr),
                float(Leashed(persistence).persistence),
                t_read,
            )
        )

    @property
    def t(self) -> int:
        """Version of the latest vector: updates published so far."""
        return self._native.t

    @property
    def live(self) -> int:
        """Vectors in use: the latest, those pinned, those about to be published."""
        return self._native.live

    @property
    def capacity(self) -> int:
        """The most that can be in use: 2 · workers + readers, and one for ``t``."""
        return self._native.capacity

    def __len__(self) -> int:
        return self._native.length

    def __repr__(self) -> str:
        return f"ParameterVector(d={len(self)}, t={self.t}, live={self.live})"

    def __reduce__(self) -> Any:
        raise TypeError("a ParameterVector lives in one process and cannot be pickled")
