"""Figure 5 of shadowsync: examples per second over the number of trainers, where the sync servers'
links are limited.

What one trainer computes is not the question here, so trainers are paced: an iteration waits for a
given time instead of computing, and many trainers fit on few processors. All that goes between them
and the servers, and what the servers do, is as in any training.
"""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from leashed import models
from leashed.base import checks
from leashed.base.table import number
from leashed.cluster import packing
from leashed.cluster.shadowsync.fleet import train_together
from leashed.cluster.shadowsync.scaling import Scaling, synchroniser
from leashed.cluster.shadowsync.servers import Servers
from leashed.datasets import Split
from leashed.disciplines import Hogwild
from leashed.stopping import Until
from leashed.studies.study import GoOn, Record
from leashed.training.options import Observe

__all__ = ["Figure5", "Paced"]

_BYTES = 4  # of a parameter
_AROUND = 1.5  # seconds of a run beside what is asked for


@dataclass
class Paced:
    """A gradient of zeros that takes its time, and hardly a processor.

    The time is drawn evenly from 0 to twice its mean: threads in step with each other would all use
    the links at one time, and all leave them idle at another.

    Attributes:
        seconds: how long one takes on average.
        done: how many there were, on all threads.
    """

    seconds: float
    done: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, theta: object, x: object, y: object, out: Any) -> float:  # noqa: ARG002
        time.sleep(random.uniform(0.0, 2.0 * self.seconds))
        out[:] = 0.0
        with self._lock:
            self.done += 1
        return 0.0

    @staticmethod
    def loss(theta: object, x: object, y: object) -> float:  # noqa: ARG004
        """Nobody asks for it but the run's beginning and end."""
        return 0.0


@dataclass(frozen=True, kw_only=True)
class Figure5(Scaling):
    """The experiment.

    Args:
        dimension: length of the parameters.
        pace: seconds of an iteration, on average.
        warm: seconds before the measurement, of each run.
        window: seconds of the measurement.
        trainers, servers, gaps, threads, batch_size, bandwidth, repeats: as of ``Scaling``.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    NAME: ClassVar[str] = "figure5"

    trainers: tuple[int, ...] = (1, 2, 4, 6, 8, 12, 16, 24)
    servers: tuple[int, ...] = (1, 2, 4)
    gaps: tuple[int, ...] = (5, 30)
    threads: int = 4
    batch_size: int = 64
    dimension: int = 4 * packing.FRAGMENT
    pace: float = 0.07
    bandwidth: float = 12.5e6
    warm: float = 2.5
    window: float = 6.0
    repeats: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("dimension", self.dimension)
        for name in ("pace", "warm", "window"):
            checks.real(name, getattr(self, name), 0.0)

    @property
    def length(self) -> int:
        return self.dimension

    def scaled(self, scale: float) -> Figure5:
        """With shorter runs."""
        return dataclasses.replace(self, warm=self.warm * scale, window=self.window * scale)

    def seconds(self) -> float:
        return len(self.settings()) * (self.warm + self.window + _AROUND)

    def measure(self, setting: Record, data: Split | None, go_on: GoOn) -> Record:  # noqa: ARG002
        paced = Paced(self.pace)
        model = models.external(
            paced, loss=Paced.loss, dimension=self.dimension, features=1, name="paced"
        )
        rows = (np.zeros((self.batch_size, 1), np.float32), np.zeros(self.batch_size, np.int32))
        found: Record = {}
        with Servers(self.dimension, setting["servers"], self.bandwidth) as servers:

            def watch() -> None:
                time.sleep(self.warm)
                before, moved, start = paced.done, servers.counters(), time.monotonic()
                time.sleep(self.window)
                iterations, after = paced.done - before, servers.counters()
                elapsed = time.monotonic() - start
                bytes_in = after["bytes_in"] - moved["bytes_in"]
                bytes_out = after["bytes_out"] - moved["bytes_out"]
                size = _BYTES * self.dimension
                found.update(
                    eps=iterations * self.batch_size / elapsed,
                    bytes_in_per_second=bytes_in / elapsed,
                    bytes_out_per_second=bytes_out / elapsed,
                    gap_by_bytes_in=iterations / (bytes_in / size) if bytes_in else None,
                    gap_by_bytes_out=iterations / (bytes_out / size) if bytes_out else None,
                )

            trained = train_together(
                model,
                rows,
                trainers=setting["trainers"],
                threads=self.threads,
                sync=synchroniser(setting["sync"]),
                servers=servers,
                watch=watch,
                until=Until(seconds=self.warm + self.window + _AROUND / 2.0),
                discipline=Hogwild(),
                batch_size=self.batch_size,
                observe=Observe(every=1e6, rows=None),
            )
        return {**found, "gap": trained.sync_gap}

    @property
    def told(self) -> str:
        size = _BYTES * self.dimension
        return (
            f"Trainers are paced: an iteration of each of their {self.threads} threads waits "
            f"{1e3 * self.pace:g} ms on average in place of a gradient. Batches of {self.batch_size}, parameters "
            f"of {number(size / 1e3)} kB, each sync server behind a token bucket of "
            f"{number(self.bandwidth / 1e6)} MB/s each way."
        )
