"""The contenders that train side by side: leashed, PyTorch and NumPy at their settings, each in
processes of its own, which sleep while it is not its turn.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

import numpy as np

import leashed
from bench.context import installed
from bench.networks import NETWORKS, Floats, aligned, from_torch, memory_floats, to_torch
from bench.turns import Turn, timed
from leashed.datasets import Dataset

DISCIPLINES = {
    discipline.label: discipline
    for discipline in (
        leashed.Sequential(),
        leashed.Synchronous(),
        leashed.Locked(),
        leashed.Hogwild(),
        leashed.Hogwild(copy=False),
        leashed.Leashed(),
        leashed.Leashed(1),
        leashed.Leashed(0),
    )
}
_LR = 0.01
_SNAPSHOT_INTERVAL = 0.001  # seconds
_SNAPSHOTS = 400


@dataclass(frozen=True)
class Contender:
    """One library at one setting, on ``processes`` processes of ``threads`` threads each."""

    library: str
    setting: str
    threads: int = 1
    processes: int = 1
    networks: tuple[str, ...] = tuple(NETWORKS)

    @property
    def name(self) -> str:
        """The contender in tables, with the threads that want to run at the same time."""
        return f"{self.library} {self.setting} ×{self.threads * self.processes}"


def torch_contenders(all_threads: int) -> list[Contender]:
    """PyTorch with one thread and with all, and Hogwild over processes; none where there is no
    PyTorch.
    """
    if not installed("torch"):
        return []
    found = []
    for threads in sorted({1, all_threads}):
        found += [
            Contender("PyTorch", "eager", threads),
            Contender("PyTorch", "channels_last", threads, networks=("CNN",)),
        ]
    if all_threads > 1:
        found.append(Contender("PyTorch", "Hogwild", processes=all_threads))
    return found


def contenders(all_threads: int) -> list[Contender]:
    """All libraries at all their settings."""
    found = [Contender("leashed", "SEQ")]
    for threads in sorted({1, all_threads}):
        found += [
            Contender("leashed", name, threads) for name in ("SYNC", "HOG", "HOG_direct", "LSH_ps∞")
        ]
    found += torch_contenders(all_threads)
    found += [
        Contender("NumPy", "BLAS", threads, networks=("MLP",))
        for threads in sorted({1, all_threads})
    ]
    return found


class Cell(NamedTuple):
    """What a turn is about."""

    network: str
    batch_size: int
    lr: float = _LR
    seed: int | None = None  # of the order of the examples; None: as they lie


class Player(Protocol):
    """A contender's side in its process."""

    def prepare(self, cell: Cell) -> None:
        """Get ready and warm."""

    def train(self, seconds: float, end: float | None) -> float:
        """Train so long, or until that moment; examples per second."""


class LeashedPlayer:
    """leashed; the monitor evaluates before and after the training that is timed."""

    def __init__(self, contender: Contender, data: Dataset, shared: dict[str, Floats]) -> None:
        self.contender, self.data, self.shared = contender, data, shared
        self.cell = Cell("MLP", 1)
        self.theta = {name: NETWORKS[name].init(0) for name in shared}

    def prepare(self, cell: Cell) -> None:
        if cell != self.cell:
            self.cell = cell
            self.train(0.05, None)

    def train(self, seconds: float, end: float | None) -> float:
        assert end is None
        return leashed.train(
            NETWORKS[self.cell.network],
            self.data,
            until=leashed.until(seconds=seconds),
            discipline=DISCIPLINES[self.contender.setting],
            rule=leashed.SGD(self.cell.lr),
            threads=self.contender.threads,
            batch_size=self.cell.batch_size,
            init=self.theta[self.cell.network],
            observe=leashed.Observe(every=1e6),
        ).mean_eps


class PeerPlayer:
    """PyTorch or NumPy; a trainer is built and warmed up when it is first asked for."""

    def __init__(self, contender: Contender, data: Dataset, shared: dict[str, Floats]) -> None:
        self.contender, self.data, self.shared = contender, data, shared
        if contender.library == "PyTorch":
            import torch  # noqa: PLC0415 (only in the processes of PyTorch)

            torch.set_num_threads(contender.threads)
        self.trainers: dict[Cell, Any] = {}
        self.trainer: Any = None

    def prepare(self, cell: Cell) -> None:
        if cell.seed is not None:
            self.trainers.clear()
        if cell not in self.trainers:
            self.trainers[cell] = self._build(cell)
        self.trainer = self.trainers[cell]

    def _build(self, cell: Cell) -> Any:
        parameters = self.shared[cell.network]
        if self.contender.library == "NumPy":
            from bench.numpy_sgd import Trainer as NumpyTrainer  # noqa: PLC0415

            return NumpyTrainer(self.data, cell.batch_size, parameters, cell.lr)
        from bench.torch_sgd import Trainer  # noqa: PLC0415

        order = None
        if cell.seed is not None:
            order = np.random.default_rng(cell.seed).permutation(len(self.data))
        channels_last = self.contender.setting == "channels_last"
        return Trainer(
            cell.network, self.data, cell.batch_size, parameters, cell.lr, channels_last, order
        )

    def train(self, seconds: float, end: float | None) -> float:
        rate: float = self.trainer.train(time.perf_counter() + seconds if end is None else end)
        return rate

    def finish(self, fraction: float, most: float) -> float:
        """Seconds in which a loop that ends at that share of the initial loss returns."""
        seconds: float = self.trainer.finish(fraction, most)
        return seconds


def _views(memory: dict[str, Any]) -> dict[str, Floats]:
    return {network: aligned(np.frombuffer(m, np.float32)) for network, m in memory.items()}


def _serve(pipe: Connection, contender: Contender, data: Dataset, shared: dict[str, Any]) -> None:
    """A contender's process: plays until the other side hangs up."""
    views = _views(shared)
    kind = LeashedPlayer if contender.library == "leashed" else PeerPlayer
    player: Player = kind(contender, data, views)
    while (cell := pipe.recv()) is not None:
        player.prepare(cell)
        pipe.send(None)
        method, *arguments = pipe.recv()
        if method == "finish":
            pipe.send(player.finish(*arguments))  # type: ignore[attr-defined]
        else:
            pipe.send(timed(partial(player.train, *arguments), contender.threads))


class Snapshot(NamedTuple):
    """The parameters at a moment of a race."""

    seconds: float
    theta: Floats  # in leashed's order


class Team:
    """The processes of a contender, with parameters in memory that they share."""

    def __init__(self, contender: Contender, data: Dataset) -> None:
        self.contender = contender
        context = multiprocessing.get_context("spawn")
        memory = {
            network: context.RawArray("f", memory_floats(network)) for network in contender.networks
        }
        self.shared = _views(memory)
        random = np.random.default_rng(0)
        for parameters in self.shared.values():
            parameters[...] = random.normal(0.0, 0.05, len(parameters))
        self.pipes: list[Connection] = []
        with _blas_threads(contender.threads):
            for _ in range(contender.processes):
                here, there = context.Pipe()
                context.Process(
                    target=_serve, args=(there, contender, data, memory), daemon=True
                ).start()
                self.pipes.append(here)

    def _prepare(self, cells: list[Cell]) -> None:
        for pipe, cell in zip(self.pipes, cells, strict=True):
            pipe.send(cell)
        for pipe in self.pipes:
            pipe.recv()

    def turn(self, cell: Cell, seconds: float) -> Turn:
        """All processes at once: examples per second together, mean share of the processors."""
        self._prepare([cell] * len(self.pipes))
        for pipe in self.pipes:
            pipe.send(("train", seconds, None))
        turns: list[Turn] = [pipe.recv() for pipe in self.pipes]
        return Turn(sum(t.eps for t in turns), statistics.mean(t.cpu_share for t in turns))

    def race(self, cell: Cell, theta: Floats, seconds: float) -> list[Snapshot]:
        """Training from ``theta`` for so long, every process with an order of the examples of its
        own; what the parameters were on the way, copied out of the shared memory beside it.
        """
        assert cell.seed is not None
        first = cell.seed * len(self.pipes)
        self._prepare([cell._replace(seed=first + k) for k in range(len(self.pipes))])
        memory = self.shared[cell.network]
        to_torch(cell.network, theta, memory)
        start = time.perf_counter()
        for pipe in self.pipes:
            pipe.send(("train", seconds, start + seconds))
        interval = max(_SNAPSHOT_INTERVAL, seconds / _SNAPSHOTS)
        seen = []
        while (now := time.perf_counter() - start) < seconds:
            seen.append((now, memory.copy()))
            time.sleep(max(0.0, min(len(seen) * interval, seconds) - now))
        for pipe in self.pipes:
            pipe.recv()
        return [Snapshot(at, from_torch(cell.network, copy)) for at, copy in seen]

    def finish(self, cell: Cell, theta: Floats, fraction: float, most: float) -> float:
        """Of one process: seconds in which its loop that wants that share of the loss returns."""
        self._prepare([cell])
        to_torch(cell.network, theta, self.shared[cell.network])
        self.pipes[0].send(("finish", fraction, most))
        seconds: float = self.pipes[0].recv()
        return seconds

    def close(self) -> None:
        """Let the processes end."""
        for pipe in self.pipes:
            pipe.send(None)


@contextmanager
def _blas_threads(threads: int) -> Iterator[None]:
    """Processes started meanwhile find so many threads for NumPy's BLAS, which looks when it is
    loaded.
    """
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _trainer(
    model: leashed.models.Graph, data: leashed.ClickDataset, lr: float, batch: int, threads: int
) -> Callable[[float], float]:
    """Trains for so many seconds; examples per second. Tables and parameters go on."""
    rule = leashed.Adagrad(lr)
    tables = leashed.tables.of(model.tables, rule=rule, versions=False)
    theta = model.init()

    def train(seconds: float) -> float:
        nonlocal theta
        result = leashed.train(
            model,
            data,
            until=leashed.until(seconds=seconds),
            discipline=leashed.Sequential() if threads == 1 else leashed.Hogwild(),
            rule=rule,
            threads=threads,
            batch_size=batch,
            init=leashed.Init(theta, tables=tables),
            observe=leashed.Observe(every=1e6),
        )
        theta = result.parameters
        return result.mean_eps

    return train


def _torch(arguments: Sequence[str], seconds: float) -> Turn:
    """A turn of PyTorch, in a process of its own."""
    command = [sys.executable, "-m", *arguments, str(seconds)]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    return Turn(**json.loads(told))


def recommenders(
    model: leashed.models.Graph,
    data: leashed.ClickDataset,
    lr: float,
    batch: int,
    threads: int,
    seconds: float,
    program: str,
    ways: Mapping[str, str],
) -> dict[str, Callable[[], Turn]]:
    """Leashed and PyTorch's program for a model, each way by its name, with one thread and with all."""
    found: dict[str, Callable[[], Turn]] = {}
    for team in sorted({1, threads}):
        train = _trainer(model, data, lr, batch, team)
        train(seconds / 2)
        found[f"leashed ×{team}"] = partial(timed, partial(train, seconds), team)
        for name, way in ways.items() if installed("torch") else ():
            arguments = [program, str(batch), str(team), *filter(None, [way])]
            found[f"{name} ×{team}"] = partial(_torch, arguments, seconds)
    return found
