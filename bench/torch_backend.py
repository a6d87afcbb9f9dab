"""leashed.torch against PyTorch's own: the optimizer in one loop, and threads against processes.

    python -m bench.torch_backend

1. The same training loop with ``torch.optim``'s optimizer (as it comes, and with ``fused=True``)
   and with ``leashed.torch.Optimizer``: steps per second, in interleaved turns.
2. ``leashed.torch.fit`` with threads under Hogwild against PyTorch's multiprocessing Hogwild, its
   example's way: processes that share the module's memory, an optimizer each.

One JSON object per line; ratios are medians over the turns of leashed to PyTorch.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing as mp
from torch import nn

import leashed as lsh
import leashed.torch
from bench import machine
from leashed.machine import cores

TURNS = 7
SECONDS = 0.3
ROWS = 8192

RULES: dict[str, tuple[lsh.Rule, type, dict[str, Any]]] = {
    "sgd": (lsh.SGD(1e-3), torch.optim.SGD, {"lr": 1e-3}),
    "momentum": (lsh.Momentum(1e-3), torch.optim.SGD, {"lr": 1e-3, "momentum": 0.9}),
    "adam": (lsh.Adam(1e-3), torch.optim.Adam, {"lr": 1e-3}),
}


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


MODELS: dict[str, Callable[[], nn.Module]] = {"mlp": mlp, "cnn": cnn}


def data(model: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (ROWS, 784) if model == "mlp" else (ROWS, 28, 28)
    x = torch.randn(shape, generator=generator)
    return x, torch.randint(0, 10, (ROWS,), generator=generator)


class Loop:
    """The usual loop with one optimizer."""

    def __init__(self, model: str, batch: int, make: Callable[[Any], Any]) -> None:
        self.module = MODELS[model]()
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


def optimizers() -> None:
    torch.set_num_threads(1)
    for model in MODELS:
        for batch in (16, 64):
            for name, choice in RULES.items():
                rule, kind, settings = choice
                makers = {
                    "leashed": lambda p, rule=rule: lsh.torch.Optimizer(p, rule),
                    "torch": lambda p, kind=kind, s=settings: kind(p, **s),
                    "torch_fused": lambda p, kind=kind, s=settings: kind(p, fused=True, **s),
                }
                loops = {key: Loop(model, batch, make) for key, make in makers.items()}
                turns: dict[str, list[float]] = {key: [] for key in loops}
                for loop in loops.values():
                    loop.run(0.05)
                for _ in range(TURNS):
                    for key, loop in loops.items():
                        turns[key].append(loop.run(SECONDS / 3))
                report(
                    {"part": "optimizer", "model": model, "batch": batch, "rule": name},
                    turns,
                    "steps_per_second",
                )


def report(what: dict[str, Any], turns: dict[str, list[float]], unit: str) -> None:
    ours = turns["leashed"]
    print(
        json.dumps(
            {
                **what,
                **{f"{k}_{unit}": round(statistics.median(v), 1) for k, v in turns.items()},
                **{
                    f"leashed_to_{k}": round(
                        statistics.median(a / b for a, b in zip(ours, v, strict=True)), 3
                    )
                    for k, v in turns.items()
                    if k != "leashed"
                },
            }
        ),
        flush=True,
    )


def process(
    module: nn.Module, model: str, batch: int, seed: int, ready: Any, go: Any, out: Any
) -> None:
    """One of PyTorch's Hogwild processes: steps on the shared module when told to."""
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(module.parameters(), 1e-3)
    x, y = data(model)
    torch.manual_seed(seed)
    while True:
        ready.wait()
        seconds = go.value
        if seconds == 0:
            return
        start, steps, elapsed = time.perf_counter(), 0, 0.0
        while elapsed < seconds:
            rows = torch.randint(0, ROWS, (batch,))
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
            optimizer.step()
            steps += 1
            elapsed = time.perf_counter() - start
        out.put(steps / elapsed)
        ready.wait()


class Processes:
    """PyTorch's multiprocessing Hogwild, which takes turns with us."""

    def __init__(self, model: str, batch: int, workers: int) -> None:
        context = mp.get_context("spawn")
        self.workers = workers
        self.module = MODELS[model]()
        self.module.share_memory()
        self.ready, self.go = context.Barrier(workers + 1), context.Value("d", 0.1)
        self.out = context.Queue()
        self.processes = [
            context.Process(
                target=process, args=(self.module, model, batch, k, self.ready, self.go, self.out)
            )
            for k in range(workers)
        ]
        for p in self.processes:
            p.start()

    def run(self, seconds: float) -> float:
        self.go.value = seconds
        self.ready.wait()
        total = sum(self.out.get() for _ in self.processes)
        self.ready.wait()
        return float(total)

    def end(self) -> None:
        self.go.value = 0
        self.ready.wait()
        for p in self.processes:
            p.join()


class Threads:
    """leashed.torch.fit."""

    def __init__(self, model: str, batch: int, workers: int) -> None:
        self.module, self.pair = MODELS[model](), data(model)
        self.batch, self.workers = batch, workers

    def run(self, seconds: float) -> float:
        result = lsh.torch.fit(
            self.module, nn.functional.cross_entropy, self.pair, rule=lsh.SGD(1e-3),
            threads=self.workers, batch_size=self.batch, until=lsh.until(seconds=seconds),
        )  # fmt: skip
        return result.updates / result.seconds


def hogwild(workers: int) -> None:
    for model in MODELS:
        for batch in (16, 64):
            theirs, ours = Processes(model, batch, workers), Threads(model, batch, workers)
            theirs.run(0.2), ours.run(0.2)
            turns: dict[str, list[float]] = {"leashed": [], "torch_processes": []}
            for _ in range(TURNS):
                turns["leashed"].append(ours.run(SECONDS))
                turns["torch_processes"].append(theirs.run(SECONDS))
            theirs.end()
            report(
                {"part": "hogwild", "model": model, "batch": batch, "workers": workers},
                turns,
                "steps_per_second",
            )


def main() -> None:
    print(json.dumps({"machine": machine.describe(), "torch": torch.__version__}))
    optimizers()
    hogwild(cores())


if __name__ == "__main__":
    main()
