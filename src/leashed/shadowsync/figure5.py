"""Figure 5 of shadowsync: examples per second over the number of trainers, where the sync servers'
links are limited.

What one trainer computes is not the question here, so trainers are paced: an iteration waits for a
given time instead of computing, and many trainers fit on few processors. All that goes between them
and the servers, and what the servers do, is as in any training.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import statistics
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from leashed import _check, models
from leashed.cluster import packing
from leashed.datasets import Split
from leashed.disciplines import Hogwild
from leashed.report.table import MISSING, number, text
from leashed.shadowsync.fleet import train_together
from leashed.shadowsync.servers import Servers
from leashed.shadowsync.study import Record, Study
from leashed.stopping import Until
from leashed.sync import EASGD, Synchroniser, background, every

__all__ = ["Figure5", "Paced", "demand", "plateau"]

_BYTES = 4  # of a parameter
_BEYOND = 1.3  # times the predicted knee: from there on it is the plateau
_AROUND = 1.5  # seconds of a run beside what is asked for
_NONE = "none"


def plateau(dimension: int, servers: int, bandwidth: float, gap: int, batch_size: int) -> float:
    """Where FR-EASGD stops scaling, in examples per second: the links carry so many exchanges, and
    each is paid for by ``gap`` iterations of one thread.

    Solves trainers × threads × (iterations per second ÷ gap) × bytes = servers × bandwidth for the
    iterations, × batch size. The bytes are the parameters', one way; where fragments do not divide
    evenly, the server with most of them decides.
    """
    cut = packing.fragments(dimension)
    most = max(
        sum(cut[k][1] - cut[k][0] for k in mine)
        for mine in packing.packed(dimension, servers, packing.BY_LENGTH).servers
    )
    return bandwidth / (_BYTES * most) * gap * batch_size


def demand(trainers: int, eps: float, dimension: int, gap: int, batch_size: int) -> float:
    """Bytes per second, each way, that so many trainers of so many examples per second exchange."""
    return trainers * eps / batch_size / gap * _BYTES * dimension


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
class Figure5(Study):
    """The experiment.

    Args:
        trainers: numbers of trainers.
        servers: numbers of sync servers; FR-EASGD at the smallest gap runs with each, everything
            else with the first.
        gaps: sync gaps of FR-EASGD.
        threads: worker threads of each trainer.
        batch_size: examples per gradient.
        dimension: length of the parameters.
        pace: seconds of an iteration, on average.
        bandwidth: of each server's link, bytes per second each way.
        warm: seconds before the measurement, of each run.
        window: seconds of the measurement.
        repeats: runs of each setting.

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
        for name in ("trainers", "servers", "gaps"):
            values = getattr(self, name)
            if not values:
                raise ValueError(f"{name} must not be empty")
            for value in values:
                _check.whole(name, value)
        for name in ("threads", "batch_size", "dimension", "repeats"):
            _check.whole(name, getattr(self, name))
        for name in ("pace", "bandwidth", "warm", "window"):
            _check.real(name, getattr(self, name), 0.0)

    def scaled(self, scale: float) -> Figure5:
        """With shorter runs."""
        return dataclasses.replace(self, warm=self.warm * scale, window=self.window * scale)

    def settings(self) -> list[Record]:
        first, tightest = self.servers[0], min(self.gaps)
        arms = [(_NONE, first), ("S-EASGD", first)]
        arms += [(f"FR-EASGD-{gap}", first) for gap in self.gaps]
        arms += [(f"FR-EASGD-{tightest}", count) for count in self.servers[1:]]
        return [
            {"repeat": repeat, "trainers": n, "sync": arm, "servers": count}
            for repeat, n, (arm, count) in itertools.product(
                range(self.repeats), self.trainers, arms
            )
        ]

    def seconds(self) -> float:
        return len(self.settings()) * (self.warm + self.window + _AROUND)

    def measure(self, setting: Record, data: Split | None) -> Record:  # noqa: ARG002
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
                sync=_synchroniser(setting["sync"]),
                servers=servers,
                watch=watch,
                until=Until(seconds=self.warm + self.window + _AROUND / 2.0),
                discipline=Hogwild(),
                batch_size=self.batch_size,
                evaluate_every=1e6,
            )
        return {**found, "gap": trained.sync_gap}

    def predicted(self, gap: int, servers: int) -> float:
        """The plateau of FR-EASGD, in examples per second."""
        return plateau(self.dimension, servers, self.bandwidth, gap, self.batch_size)

    def knee(self, records: Sequence[Record], gap: int, servers: int) -> float | None:
        """The number of trainers at which FR-EASGD reaches it, if one trainer without
        synchronisation has been measured to have so many examples per second.
        """
        alone = [
            record["measured"]["eps"] / record["setting"]["trainers"]
            for record in records
            if record["setting"]["sync"] == _NONE
        ]
        return self.predicted(gap, servers) / statistics.fmean(alone) if alone else None

    def plateaus(self, records: Sequence[Record]) -> list[Record]:
        """The predicted plateau beside the measured one, for each gap and number of servers of
        which there are runs with enough trainers to be on it: 1.3 times as many as predicted.
        """
        found = []
        arms = dict.fromkeys((r["setting"]["sync"], r["setting"]["servers"]) for r in records)
        for arm, count in arms:
            if not arm.startswith("FR-"):
                continue
            gap = int(arm.rpartition("-")[2])
            knee = self.knee(records, gap, count)
            on_it = [
                eps
                for n, eps in self.curve(records, arm, count).items()
                if knee is not None and n >= _BEYOND * knee
            ]
            if not on_it:
                continue
            predicted, measured = self.predicted(gap, count), statistics.fmean(on_it)
            found.append(
                {
                    "sync": arm,
                    "servers": count,
                    "knee": knee,
                    "predicted": predicted,
                    "measured": measured,
                    "ratio": measured / predicted,
                }
            )
        return found

    def curve(self, records: Iterable[Record], arm: str, servers: int) -> dict[int, float]:
        """Examples per second by the number of trainers, means of the repeats."""
        values: dict[int, list[float]] = {}
        for record in records:
            setting = record["setting"]
            if (setting["sync"], setting["servers"]) == (arm, servers):
                values.setdefault(setting["trainers"], []).append(record["measured"]["eps"])
        return {n: statistics.fmean(values[n]) for n in sorted(values)}

    def panels(
        self, records: Sequence[Record]
    ) -> tuple[dict[str, dict[int, float]], dict[str, dict[int, float]], dict[str, float]]:
        """For a plot: the curves with the first number of servers, those of the smallest gap with
        each, and the predicted plateaus that the measured ones are held against, by their names.
        """
        first, tightest = self.servers[0], f"FR-EASGD-{min(self.gaps)}"
        arms = dict.fromkeys((r["setting"]["sync"], r["setting"]["servers"]) for r in records)
        curves = {arm: self.curve(records, *arm) for arm in arms}
        ways = {_named(*arm): curve for arm, curve in curves.items() if arm[1] == first}
        servers = {_named(*arm): curve for arm, curve in curves.items() if arm[0] == tightest}
        predicted = {
            _named(each["sync"], each["servers"]): float(each["predicted"])
            for each in self.plateaus(records)
        }
        return ways, servers, predicted

    @property
    def told(self) -> str:
        """How it is measured, in words."""
        size = _BYTES * self.dimension
        return (
            f"Trainers are paced: an iteration of each of their {self.threads} threads waits "
            f"{1e3 * self.pace:g} ms on average in place of a gradient. Batches of {self.batch_size}, parameters "
            f"of {number(size / 1e3)} kB, each sync server behind a token bucket of "
            f"{number(self.bandwidth / 1e6)} MB/s each way."
        )

    def report(self, records: Sequence[Record]) -> str:
        return "\n\n".join(
            [self.told, self._curves(records), self._kept(records), self._plateaus(records)]
        )

    def _curves(self, records: Sequence[Record]) -> str:
        arms = list(dict.fromkeys((r["setting"]["sync"], r["setting"]["servers"]) for r in records))
        curves = {arm: self.curve(records, *arm) for arm in arms}
        counts = sorted({n for curve in curves.values() for n in curve})
        header = ["examples/s, by trainers", *map(str, counts)]
        rows = [
            [
                _named(arm, count),
                *(number(curve[n]) if n in curve else MISSING for n in counts),
            ]
            for (arm, count), curve in curves.items()
        ]
        return text(header, rows)

    def _kept(self, records: Sequence[Record]) -> str:
        """What S-EASGD keeps of the examples per second without synchronisation, and its gap."""
        first = self.servers[0]
        alone = self.curve(records, _NONE, first)
        rows = []
        for n, eps in self.curve(records, "S-EASGD", first).items():
            gaps = [
                [r["measured"][name] for name in ("gap", "gap_by_bytes_in", "gap_by_bytes_out")]
                for r in records
                if r["setting"]["sync"] == "S-EASGD" and r["setting"]["trainers"] == n
            ]
            means = [
                MISSING if None in column else number(statistics.fmean(column))
                for column in zip(*gaps, strict=True)
            ]
            rows.append([str(n), f"{eps / alone[n]:.3f}" if n in alone else MISSING, *means])
        header = ["S-EASGD, trainers", "EPS over that without", "sync gap", "by bytes in", "out"]
        return text(header, rows)

    def _plateaus(self, records: Sequence[Record]) -> str:
        rows = [
            [
                _named(each["sync"], each["servers"]),
                number(each["knee"]),
                number(each["predicted"]),
                number(each["measured"]),
                f"{each['ratio']:.3f}",
            ]
            for each in self.plateaus(records)
        ]
        header = ["plateau", "from trainers", "predicted EPS", "measured EPS", "ratio"]
        return text(header, rows)


def _synchroniser(name: str) -> Synchroniser | None:
    if name == _NONE:
        return None
    if name == "S-EASGD":
        return EASGD(when=background())
    return EASGD(when=every(iterations=int(name.rpartition("-")[2])))


def _named(arm: str, servers: int) -> str:
    if arm == _NONE:
        return "no synchronisation"
    return f"{arm}, {servers} sync server{'s' if servers > 1 else ''}"
