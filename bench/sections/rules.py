"""Each update rule's fused pass: of the copy bandwidth for its bytes, and beside PyTorch's fused
CPU optimizer.

Both update one float32 vector in place with the same gradient, from Python, on one thread: what a
call costs is part of it. Where PyTorch has no fused one (RMSprop), its default is the peer.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import leashed as lsh
from bench.context import Bench, Record
from leashed import _core

_SECONDS = 0.4  # a figure
_LENGTHS = (30_000, 134_794, 10_000_000)

_RULES: dict[str, tuple[lsh.Rule, Callable[..., torch.optim.Optimizer], dict[str, Any]]] = {
    "SGD": (lsh.SGD(1e-6), torch.optim.SGD, {}),
    "Momentum": (lsh.Momentum(1e-6), torch.optim.SGD, {"momentum": 0.9}),
    "Nesterov": (lsh.Nesterov(1e-6), torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "Adagrad": (lsh.Adagrad(1e-6), torch.optim.Adagrad, {}),
    "RMSprop": (lsh.RMSprop(1e-6), torch.optim.RMSprop, {}),
    "Adam": (lsh.Adam(1e-6), torch.optim.Adam, {}),
    "AdamW": (lsh.AdamW(1e-6), torch.optim.AdamW, {}),
}


def measure(bench: Bench) -> dict[str, list[Record]]:
    """``passes``: of copies; ``torch``: times beside PyTorch's, and the ratio."""
    passes = bench.run("bench_rules", bench.seconds(_SECONDS))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        beside = [
            _beside_torch(name, d, bench.seconds(_SECONDS)) for d in _LENGTHS for name in _RULES
        ]
    finally:
        torch.set_num_threads(threads)
    return {"passes": passes, "torch": beside}


def _optimizer(
    make: Callable[..., torch.optim.Optimizer], parameter: torch.Tensor, settings: dict[str, Any]
) -> tuple[torch.optim.Optimizer, str]:
    try:
        return make([parameter], lr=1e-6, fused=True, **settings), "fused"
    except (TypeError, RuntimeError):
        return make([parameter], lr=1e-6, **settings), "default"


def _seconds(work: Callable[[], object], repeats: int) -> float:
    """Of one call, on this thread's own clock."""
    begin = time.thread_time()
    for _ in range(repeats):
        work()
    return (time.thread_time() - begin) / repeats


def _beside_torch(name: str, d: int, seconds: float) -> Record:
    rule, make, settings = _RULES[name]
    rng = np.random.default_rng(0)
    theta, gradient = (rng.standard_normal(d).astype(np.float32) for _ in range(2))
    ours = _core.RuleState(rule.choice(), theta)
    parameter = torch.nn.Parameter(torch.from_numpy(theta.copy()))
    parameter.grad = torch.from_numpy(gradient.copy())
    theirs, kind = _optimizer(make, parameter, settings)

    def update() -> None:
        ours.update(gradient)

    for work in (update, theirs.step):
        work()
    repeats = max(1, int(5e-3 / _seconds(update, 3)))
    turns: list[tuple[float, float]] = []
    begin = time.monotonic()
    while time.monotonic() - begin < seconds or len(turns) < 5:
        turns.append((_seconds(update, repeats), _seconds(theirs.step, repeats)))
    return {
        "rule": name,
        "dimension": d,
        "torch_kind": kind,
        "seconds": statistics.median(mine for mine, _ in turns),
        "torch_seconds": statistics.median(other for _, other in turns),
        "ratio": statistics.median(other / mine for mine, other in turns),
    }
