"""Sums by Gloo, through torch.distributed: a process group for each epoch."""

from __future__ import annotations

import contextlib
import importlib
import socket
import threading
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leashed.cluster.meeting import Collective, Meeting

__all__ = ["check", "meet"]


def check(trainers: int) -> None:  # noqa: ARG001
    """Raises ImportError where it is not installed."""
    try:
        dist = importlib.import_module("torch.distributed")
    except ImportError as error:
        raise ImportError("backend='gloo' needs PyTorch: pip install leashed[torch]") from error
    if not (dist.is_available() and dist.is_gloo_available()):
        raise ImportError(
            "backend='gloo' needs a PyTorch that was built with Gloo, as those of PyPI are"
        )


def meet(meeting: Meeting) -> Collective:
    """The first member has the store in which all find each other.

    Raises:
        OSError, RuntimeError: a member is gone, or does not come in time.
    """
    dist = importlib.import_module("torch.distributed")
    timeout = timedelta(seconds=meeting.timeout)
    with contextlib.ExitStack() as stack:
        own: dict[str, Any] = {}
        where = ""
        if meeting.rank == 0:
            family = socket.AF_INET6 if ":" in meeting.host else socket.AF_INET
            listening = stack.enter_context(
                socket.create_server((meeting.host, 0), family=family, backlog=meeting.members)
            )
            where = f"{meeting.host} {listening.getsockname()[1]}"
        host, _, port = meeting.gather(where)[0].partition(" ")
        if meeting.rank == 0:
            own = {"is_master": True, "master_listen_fd": listening.detach()}
        store = dist.TCPStore(
            host, int(port), meeting.members, timeout=timeout, wait_for_workers=False, **own
        )
    options = dist.ProcessGroupGloo._Options()  # (which has no other name)
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=meeting.host)]
    options._timeout = timeout
    options._threads = 1  # one operation after the other
    return _Group(dist.ProcessGroupGloo(store, meeting.rank, meeting.members, options), store)


class _Group:
    """A process group, and the store that it was made with."""

    def __init__(self, group: Any, store: Any) -> None:
        self._held = [group, store]
        self._work: Any = None

    def sum(self, values: NDArray[np.float32]) -> None:
        self._work = self._held[0].allreduce(_tensor(values))

    def broadcast(self, values: NDArray[np.float32], root: int) -> None:
        self._work = self._held[0].broadcast(_tensor(values), root)

    def done(self, seconds: float) -> bool:
        try:
            self._work.wait(timedelta(seconds=seconds))
        except RuntimeError:
            if not self._work.is_completed():
                return False
            self._work.wait()  # by now; raises what went wrong
        return True

    def close(self) -> None:
        # An operation that is under way ends by its own timeout, and its group not before that. (No
        # daemon, as a thread of the core's would make it: one that is in there when the interpreter
        # ends would abort the process.)
        held, self._held, self._work = self._held, [], None
        threading.Thread(target=held.clear, name="leashed-closing", daemon=False).start()


def _tensor(values: NDArray[np.float32]) -> Any:
    return importlib.import_module("torch").from_numpy(values)
