"""A run's master and sync servers on threads of this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from cluster.handing import handed_in

from leashed.cluster import server
from leashed.cluster.master import Master
from leashed.cluster.opening import Key
from leashed.cluster.serving import Place
from leashed.cluster.session import Cluster
from leashed.cluster.state import Terms

KEY = Key(b"k" * 32, given=False)
PATIENCE = 60.0  # seconds after which something that should happen does not


def served(master: str, folder: Path, grace: float = 5.0) -> Place:
    """The place of a server."""
    return Place(master, KEY, "127.0.0.1", folder, grace, "tcp")


class Run:
    """Of so many trainers, which the tests themselves are: ``cluster(index)`` is a trainer's place."""

    def __init__(self, folder: Path, dimension: int, terms: dict[str, Any], servers: int) -> None:
        self.folder = folder
        self._dimension = dimension
        self._servers = int(servers)
        self._terms = Terms(
            **{
                "total": None, "batch_size": 1, "trainers": 1, "sync_ps": self._servers, "parameters": dimension,
                "beat": 0.05, "timeout": 60.0, "grace": 5.0, "gather": 0.02, "patience": 20.0, **terms,
            }
        )  # fmt: skip
        started: queue.SimpleQueue[Master] = queue.SimpleQueue()

        async def serve() -> None:
            master = Master(self._terms, host="127.0.0.1", port=0, key=KEY, folder=folder)
            self._loop = asyncio.get_running_loop()
            started.put(master)
            await master.serve()

        self._threads = [threading.Thread(target=lambda: asyncio.run(serve()))]
        self._threads[0].start()
        self._master = started.get(timeout=PATIENCE)
        self._threads += [
            threading.Thread(target=self._serve, args=(index,)) for index in range(self._servers)
        ]
        for thread in self._threads[1:]:
            thread.start()

    def _serve(self, index: int) -> None:
        server.serve(
            self._dimension, self._servers, index, served(self._master.address, self.folder)
        )

    def cluster(self, index: int = 0, **given: Any) -> Cluster:
        """The place of a trainer."""
        return Cluster(
            index=index, trainers=self._terms.trainers, master=self._master.address, key=KEY,
            **{
                "servers": self._servers, "timeout": 10.0, "grace": 5.0, "transport": "tcp", **given,
            },
        )  # fmt: skip

    def result(self, index: int) -> np.ndarray:
        """What a trainer has handed in."""
        return np.fromfile(handed_in(self.folder)[f"trainer-{index}"], "<f4")

    def until_joined(self, count: int) -> None:
        """Waits until so many are members."""
        deadline = time.monotonic() + PATIENCE
        while len(self._master._coordinator.state.membership.members) < count:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def report(self) -> dict[str, Any]:
        """At the end, which is waited for."""
        self._threads[0].join(PATIENCE)
        assert not self._threads[0].is_alive()
        report: dict[str, Any] = json.loads((self.folder / "run.json").read_text())
        return report

    def stop(self) -> None:
        if self._threads[0].is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._master.stop, "the test is over")
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


@contextlib.contextmanager
def run(folder: Path, dimension: int, servers: int = 0, **terms: Any) -> Iterator[Run]:
    """Until its end, or this one's."""
    made = Run(folder, dimension, terms, servers)
    try:
        yield made
    finally:
        made.stop()
