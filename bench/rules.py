"""Update rules against PyTorch's fused CPU optimizers, one thread, in turns on the thread's clock.

    python bench/rules.py [--seconds 1] [--d 30000 134794 10000000]

Both sides update one float32 vector in place with the same gradient, from Python: what a call
costs is part of it. Prints a JSON object a line. `ratio` is PyTorch's time over ours: at least 1
means no slower. PyTorch has no fused momentum of its own name: its SGD with that setting is.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

import leashed as lsh
from leashed import _core

RULES: dict[str, tuple[lsh.Rule, Callable[..., torch.optim.Optimizer], dict[str, object]]] = {
    "SGD": (lsh.SGD(1e-6), torch.optim.SGD, {}),
    "Momentum": (lsh.Momentum(1e-6), torch.optim.SGD, {"momentum": 0.9}),
    "Nesterov": (lsh.Nesterov(1e-6), torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "Adagrad": (lsh.Adagrad(1e-6), torch.optim.Adagrad, {}),
    "RMSprop": (lsh.RMSprop(1e-6), torch.optim.RMSprop, {}),
    "Adam": (lsh.Adam(1e-6), torch.optim.Adam, {}),
    "AdamW": (lsh.AdamW(1e-6), torch.optim.AdamW, {}),
}


def optimizer(
    make: Callable[..., torch.optim.Optimizer], parameter: torch.Tensor, settings: dict[str, object]
) -> tuple[torch.optim.Optimizer, str]:
    """The fused one, or, where PyTorch has none, the faster-by-default of the others."""
    try:
        return make([parameter], lr=1e-6, fused=True, **settings), "fused"
    except (TypeError, RuntimeError):
        return make([parameter], lr=1e-6, **settings), "default"


def turn(work: Callable[[], object], repeats: int) -> float:
    """Seconds of one call on this thread's own clock."""
    begin = time.thread_time()
    for _ in range(repeats):
        work()
    return (time.thread_time() - begin) / repeats


def compare(name: str, d: int, seconds: float) -> dict[str, object]:
    rule, make, settings = RULES[name]
    rng = np.random.default_rng(0)
    theta, gradient = (rng.standard_normal(d).astype(np.float32) for _ in range(2))
    ours = _core.RuleState(rule.choice(), theta)
    parameter = torch.nn.Parameter(torch.from_numpy(theta.copy()))
    parameter.grad = torch.from_numpy(gradient.copy())
    theirs, kind = optimizer(make, parameter, settings)

    def update() -> None:
        ours.update(gradient)

    for work in (update, theirs.step):
        work()
    repeats = max(1, int(5e-3 / turn(update, 3)))
    here: list[float] = []
    there: list[float] = []
    begin = time.monotonic()
    while time.monotonic() - begin < seconds or len(here) < 5:
        here.append(turn(update, repeats))
        there.append(turn(theirs.step, repeats))
    ratios = [b / a for a, b in zip(here, there, strict=True)]
    return {
        "bench": "rules against torch",
        "rule": name,
        "d": d,
        "torch": torch.__version__,
        "torch_kind": kind,
        "seconds": statistics.median(here),
        "torch_seconds": statistics.median(there),
        "ratio": statistics.median(ratios),
        "turns": len(ratios),
        "isa": _core.default_isa(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="per figure")
    parser.add_argument("--d", type=int, nargs="+", default=[30_000, 134_794, 10_000_000])
    options = parser.parse_args()
    torch.set_num_threads(1)
    for d in options.d:
        for name in RULES:
            print(json.dumps(compare(name, d, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
