"""The loops and processes of ``bench.sections.torch_backend``."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing as mp
from torch import nn

import leashed as lsh
import leashed.torch
from bench.context import Bench, Record
from bench.turns import Turn, record, take_turns, timed

_BATCHES = (16, 64)
_ROWS = 8192
_LOOP_TURNS, _LOOP_SECONDS = 41, 0.025
_ROUNDS, _SECONDS = 7, 0.4

_RULES: dict[str, tuple[lsh.Rule, Callable[..., torch.optim.Optimizer], dict[str, Any]]] = {
    "SGD": (lsh.SGD(1e-3), torch.optim.SGD, {"lr": 1e-3}),
    "Momentum": (lsh.Momentum(1e-3), torch.optim.SGD, {"lr": 1e-3, "momentum": 0.9}),
    "Adam": (lsh.Adam(1e-3), torch.optim.Adam, {"lr": 1e-3}),
}


def measure(bench: Bench) -> dict[str, list[Record]]:
    """``optimizer``: steps per second and ratios; ``hogwild``: steps per second of every turn."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {
            "optimizer": [
                _optimizers(bench, model, batch, rule)
                for model in _MODELS
                for batch in _BATCHES
                for rule in _RULES
            ],
            "hogwild": [_hogwild(bench, model, batch) for model in _MODELS for batch in _BATCHES],
        }
    finally:
        torch.set_num_threads(threads)


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
        nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def cnn() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(200, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


_MODELS: dict[str, Callable[[], nn.Module]] = {"MLP": mlp, "CNN": cnn}


def data(model: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Random examples."""
    generator = torch.Generator().manual_seed(0)
    shape = (_ROWS, 784) if model == "MLP" else (_ROWS, 28, 28)
    x = torch.randn(shape, generator=generator)
    return x, torch.randint(0, 10, (_ROWS,), generator=generator)


def traced(module: nn.Module, model: str, batch: int) -> Any:
    """The module as a graph."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.trace(module, data(model)[0][:batch])


class Loop:
    """The usual loop with one optimizer."""

    def __init__(self, model: str, batch: int, make: Callable[[Any], Any]) -> None:
        self.module = _MODELS[model]()
        self.optimizer = make(self.module.parameters())
        x, y = data(model)
        self.batches = list(zip(x.split(batch), y.split(batch), strict=True))
        self.next = 0

    def run(self, seconds: float) -> float:
        """Steps per second of this thread's own time: backward runs on it too."""
        start, steps, elapsed = time.thread_time(), 0, 0.0
        while elapsed < seconds:
            x, y = self.batches[self.next % len(self.batches)]
            self.next += 1
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.module(x), y).backward()
            self.optimizer.step()
            steps += 1
            elapsed = time.thread_time() - start
        return steps / elapsed


def _optimizers(bench: Bench, model: str, batch: int, name: str) -> Record:
    rule, kind, settings = _RULES[name]
    makers: dict[str, Callable[[Any], Any]] = {
        "leashed": lambda p: lsh.torch.Optimizer(p, rule),
        "torch": lambda p: kind(p, **settings),
        "torch, fused": lambda p: kind(p, fused=True, **settings),
    }
    loops = {key: Loop(model, batch, make) for key, make in makers.items()}
    turns: dict[str, list[float]] = {key: [] for key in loops}
    for loop in loops.values():
        loop.run(0.05)
    for _ in range(bench.times(_LOOP_TURNS, least=3)):
        for key, loop in loops.items():
            turns[key].append(loop.run(_LOOP_SECONDS))
    return {
        "model": model,
        "batch_size": batch,
        "rule": name,
        "steps_per_second": {key: statistics.median(rates) for key, rates in turns.items()},
        "ratio": {
            key: statistics.median(a / b for a, b in zip(turns["leashed"], rates, strict=True))
            for key, rates in turns.items()
            if key != "leashed"
        },
    }


def process(
    module: nn.Module, model: str, batch: int, trace: bool, seed: int, ready: Any, go: Any, out: Any
) -> None:
    """One of PyTorch's Hogwild processes: steps on the shared module when told to."""
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(module.parameters(), 1e-3, fused=True)
    forward = traced(module, model, batch) if trace else module
    x, y = data(model)
    torch.manual_seed(seed)
    while True:
        ready.wait()
        seconds = go.value
        if seconds == 0:
            return
        start, cpu, steps, elapsed = time.perf_counter(), time.process_time(), 0, 0.0
        while elapsed < seconds:
            rows = torch.randint(0, _ROWS, (batch,))
            optimizer.zero_grad()
            nn.functional.cross_entropy(
                forward(x.index_select(0, rows)), y.index_select(0, rows)
            ).backward()
            optimizer.step()
            steps += 1
            elapsed = time.perf_counter() - start
        out.put((steps / elapsed, (time.process_time() - cpu) / elapsed))
        ready.wait()


class Processes:
    """PyTorch's multiprocessing Hogwild, which takes turns with us."""

    def __init__(self, model: str, batch: int, workers: int, trace: bool) -> None:
        context = mp.get_context("spawn")
        self.module = _MODELS[model]()
        self.module.share_memory()
        self.ready, self.go = context.Barrier(workers + 1), context.Value("d", 0.1)
        self.out = context.Queue()
        self.processes = [
            context.Process(
                target=process,
                args=(self.module, model, batch, trace, k, self.ready, self.go, self.out),
            )
            for k in range(workers)
        ]
        for p in self.processes:
            p.start()

    def run(self, seconds: float) -> Turn:
        """A turn: steps per second of all of them."""
        self.go.value = seconds
        self.ready.wait()
        told = [self.out.get() for _ in self.processes]
        self.ready.wait()
        return Turn(sum(rate for rate, _ in told), statistics.mean(share for _, share in told))

    def end(self) -> None:
        """Stop the processes."""
        self.go.value = 0
        self.ready.wait()
        for p in self.processes:
            p.join()


def _hogwild(bench: Bench, model: str, batch: int) -> Record:
    seconds, workers = bench.seconds(_SECONDS, least=0.05), bench.threads
    pair = data(model)

    def threads(module: Any) -> Callable[[], Turn]:
        def fit() -> float:
            result = lsh.torch.fit(
                module, nn.functional.cross_entropy, pair, rule=lsh.SGD(1e-3),
                threads=workers, batch_size=batch, until=lsh.until(seconds=seconds),
            )  # fmt: skip
            return result.updates / result.seconds

        return lambda: timed(fit, workers)

    theirs = {trace: Processes(model, batch, workers, trace) for trace in (False, True)}
    contenders: dict[str, Callable[[], Turn]] = {
        "leashed": threads(_MODELS[model]()),
        "leashed, traced": threads(traced(_MODELS[model](), model, batch)),
        "torch": lambda: theirs[False].run(seconds),
        "torch, traced": lambda: theirs[True].run(seconds),
    }
    for play in contenders.values():
        play()
    turns = take_turns(contenders, bench.times(_ROUNDS, least=3))
    for team in theirs.values():
        team.end()
    return {"model": model, "batch_size": batch, "workers": workers, **record(turns)}
