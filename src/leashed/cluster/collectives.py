"""What trainers sum with under ``MA``, ``BMUF`` and the like, by name.

Another one is a module with ``check(trainers)``, which raises where it cannot be had, and
``meet(meeting)``, which returns a ``Collective`` (leashed/cluster/meeting.py); and a line in
``BACKENDS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from leashed.cluster import gloo, mpi
from leashed.cluster.meeting import Collective, Meeting
from leashed.sync import Synchroniser

__all__ = ["BACKENDS", "DIRECT", "OWN", "Backend", "check", "check_launcher", "check_synchroniser"]

OWN = "leashed"
"""The ring of the core."""

DIRECT = "direct"
"""The core's, over connections of all with all."""


@dataclass(frozen=True)
class Backend:
    """Somebody else's collectives.

    Attributes:
        check: whether so many trainers can have them in this process; raises ImportError or
            ValueError.
        meet: makes those of one epoch.
        launcher: by which alone trainers can have been started; None: by whatever.
    """

    check: Callable[[int], None]
    meet: Callable[[Meeting], Collective]
    launcher: str | None = None


# None: one of the core's.
BACKENDS: Mapping[str, Backend | None] = {
    OWN: None,
    DIRECT: None,
    "gloo": Backend(gloo.check, gloo.meet),
    "mpi": Backend(mpi.check, mpi.meet, launcher="mpirun"),
}


def check(name: str, trainers: int, synchroniser: Synchroniser | None = None) -> None:
    """Whether so many trainers can sum with it in this process, as far as it is known by now.

    Raises:
        ImportError: it is not installed.
        ValueError: there is none of that name, or it does not go with the synchroniser, or not here;
            the message says what to do instead.
    """
    _check_name("backend", name)
    if synchroniser is not None:
        check_synchroniser("backend", name, synchroniser)
    if (backend := BACKENDS[name]) is not None:
        backend.check(trainers)


def check_synchroniser(argument: str, name: str, synchroniser: Synchroniser) -> None:
    """Raises ValueError where it asks for what the own ring alone goes with."""
    if name == OWN:
        return
    if synchroniser.SERVERS:
        raise ValueError(
            f"{argument} {name!r} sums among trainers, and {type(synchroniser).__name__} exchanges "
            f"with sync servers: leave {argument} out, or take MA or BMUF"
        )
    if synchroniser.compression != "none":
        raise ValueError(
            f"{argument} {name!r} sends float32, so compression must be 'none', got "
            f"{synchroniser.compression!r}; with compression take {argument} {OWN!r}"
        )


def check_launcher(argument: str, name: str) -> None:
    """Raises ValueError where trainers that are started one by one cannot have it."""
    _check_name(argument, name)
    backend = BACKENDS[name]
    if backend is not None and backend.launcher is not None:
        raise ValueError(
            f"{argument} {name!r} needs trainers that {backend.launcher} has started: "
            f"leashed.cluster.join(backend={name!r}) in a program of yours"
        )


def _check_name(argument: str, name: str) -> None:
    if name not in tuple(BACKENDS):
        raise ValueError(f"{argument} must be one of {', '.join(BACKENDS)}, got {name!r}")
