"""Consistency disciplines: how worker threads read and write the shared parameters.

A new one is a class here and a line in ``__all__``, from which ``leashed``, ``leashed train``
and ``leashed bench combinations`` know it; docs/extending.md has an example, and its native part.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from leashed.base import checks, words
from leashed.base.value import Value

__all__ = [  # noqa: RUF022  in the order of this file
    "Discipline",
    "Sequential",
    "Synchronous",
    "Locked",
    "Hogwild",
    "Leashed",
]


@dataclass(frozen=True, eq=False, repr=False)
class Discipline(Value, ABC):
    """Base of the disciplines below; not one itself."""

    @abstractmethod
    def choice(self) -> tuple[str, dict[str, float]]:
        """The native discipline's name and numbers."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The name in tables and plots, after leashed-sgd, section V."""


@dataclass(frozen=True, eq=False, repr=False)
class Sequential(Discipline):
    """SEQ: one thread, plain SGD (leashed-sgd, eq. 1)."""

    def choice(self) -> tuple[str, dict[str, float]]:
        return "sequential", {}

    @property
    def label(self) -> str:
        return "SEQ"


@dataclass(frozen=True, eq=False, repr=False)
class Synchronous(Discipline):
    """SYNC: all threads compute a gradient on the same parameters; the mean of their gradients is
    one update. Statistically a batch ``threads`` times as large.
    """

    def choice(self) -> tuple[str, dict[str, float]]:
        return "synchronous", {}

    @property
    def label(self) -> str:
        return "SYNC"


@dataclass(frozen=True, eq=False, repr=False)
class Locked(Discipline):
    """ASYNC: asynchronous SGD with a lock around every copy and every update (leashed-sgd,
    Algorithm 2).
    """

    def choice(self) -> tuple[str, dict[str, float]]:
        return "locked", {}

    @property
    def label(self) -> str:
        return "ASYNC"


@dataclass(frozen=True, eq=False, repr=False)
class Hogwild(Discipline):
    """HOG: no synchronisation at all (leashed-sgd, Algorithm 4).

    Args:
        copy: compute gradients on a local copy of the parameters, as Algorithm 4 does (default);
            False: straight on the shared vector, which saves a pass over memory and may see the
            parameters change while it computes.

    Raises:
        TypeError: ``copy`` is not a bool.
    """

    copy: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.copy, bool):
            raise TypeError(f"copy must be True or False, got {self.copy!r}")

    def choice(self) -> tuple[str, dict[str, float]]:
        return "hogwild", {"copy": float(self.copy)}

    @property
    def label(self) -> str:
        return "HOG" if self.copy else "HOG_direct"


@dataclass(frozen=True, eq=False, repr=False)
class Leashed(Discipline):
    """LSH: lock-free and consistent (leashed-sgd, Algorithm 3): gradients are computed on a
    published vector without copying it, updates are published by compare-and-swap.

    Args:
        persistence: the persistence bound T_p: a gradient whose publication failed more than so
            many times is dropped. A whole number from 0, or ``math.inf`` (default): never.

    Raises:
        TypeError: ``persistence`` is not a whole number.
        ValueError: ``persistence`` is negative, NaN or beyond 2**53.
    """

    persistence: float = math.inf

    def __post_init__(self) -> None:
        if not (isinstance(self.persistence, float) and self.persistence == math.inf):
            persistence = self.persistence
            if isinstance(persistence, float):
                persistence = checks.real("persistence", persistence)
                if persistence != int(persistence):
                    raise TypeError(
                        f"persistence must be a whole number or math.inf, got {persistence:g}"
                    )
                persistence = int(persistence)
            object.__setattr__(
                self, "persistence", checks.whole("persistence", persistence, 0, 2**53)
            )

    def choice(self) -> tuple[str, dict[str, float]]:
        return "leashed", {"persistence": float(self.persistence)}

    @property
    def label(self) -> str:
        return "LSH_ps∞" if self.persistence == math.inf else f"LSH_ps{self.persistence}"


# Every discipline, by its word.
WORDS: Mapping[str, type[Discipline]] = {
    name.lower(): globals()[name] for name in __all__ if name != "Discipline"
}

# Each as it is by default.
DISCIPLINES: Mapping[str, Discipline] = {name: kind() for name, kind in WORDS.items()}


def of(discipline: Discipline | str) -> Discipline:
    """``discipline``, or what its word stands for: ``"hogwild"``, ``"leashed:persistence=1"``.

    Raises:
        TypeError: it is neither.
        ValueError: there is no such word; the message says which there are.
    """
    if isinstance(discipline, str):
        discipline = words.made(WORDS, "discipline", discipline)()
    if not isinstance(discipline, Discipline):
        raise TypeError(
            f"discipline must be Leashed() or another of leashed.disciplines, got {discipline!r}"
        )
    return discipline
