"""Sums by MPI, through mpi4py: a communicator for each epoch."""

from __future__ import annotations

import importlib
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leashed.cluster.meeting import Collective, Meeting

__all__ = ["check", "meet"]

_PAUSE = 1e-5  # seconds between two looks at whether an operation is done

# Operations that were given up. MPI goes on with them, on the memory that they hold.
_given_up: list[Any] = []


def check(trainers: int) -> None:
    """Raises ImportError where it is not installed; ValueError where MPI does not have so many
    processes, or not the threads that are needed.
    """
    try:
        mpi = _library()
    except (ImportError, RuntimeError) as error:  # the latter where there is no library to load
        raise ImportError(
            "backend='mpi' needs mpi4py and an MPI library: pip install leashed[mpi], and mpich "
            "where the machine has no MPI of its own"
        ) from error
    world = mpi.COMM_WORLD.Get_size()
    if world < trainers:
        raise ValueError(
            f"backend='mpi' needs all {trainers} trainers in one MPI world, and this one has {world}: "
            "start them with mpirun, of the MPI library that mpi4py loads"
        )
    if mpi.Query_thread() != mpi.THREAD_MULTIPLE:
        raise ValueError(
            "backend='mpi' needs MPI_THREAD_MULTIPLE, since it is called from several threads, and "
            "this library, or whoever initialised it, does not provide it: leave mpi4py.rc.thread_level "
            "as it is, and take an MPI library that was built for threads"
        )


def meet(meeting: Meeting) -> Collective:
    """All members together make a communicator, whose tag is the epoch.

    Raises:
        OSError, mpi4py.MPI.Exception: a member is gone.
    """
    world = _library().COMM_WORLD
    ranks = [int(rank) for rank in meeting.gather(str(world.Get_rank()))]
    everybody = world.Get_group()
    members = everybody.Incl(ranks)
    most = world.Get_attr(_library().TAG_UB)
    try:
        return _Communicator(world.Create_group(members, meeting.epoch % (most + 1)))
    finally:
        members.Free()
        everybody.Free()


class _Communicator:
    """The members', ranked as in their ring."""

    def __init__(self, members: Any) -> None:
        self._members = members
        self._request: Any = None

    def sum(self, values: NDArray[np.float32]) -> None:
        self._request = self._members.Iallreduce(_library().IN_PLACE, values)

    def broadcast(self, values: NDArray[np.float32], root: int) -> None:
        self._request = self._members.Ibcast(values, root)

    def done(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not self._request.Test():
            if time.monotonic() >= end:
                return False
            time.sleep(_PAUSE)
        self._request = None
        return True

    def close(self) -> None:
        if self._request is None:
            self._members.Free()
        else:
            _given_up.append(self._request)


def _library() -> Any:
    """mpi4py's, which initialises MPI when it is first imported."""
    return importlib.import_module("mpi4py.MPI")
