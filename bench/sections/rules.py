"""Each update rule's fused pass: of the copy bandwidth for its bytes, and beside PyTorch's fused
CPU optimizer.

Both update one float32 vector in place with the same gradient, from Python, on one thread: what a
call costs is part of it. Where PyTorch has no fused one (RMSprop), its default is the peer.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import leashed as lsh
from bench import figures
from bench.context import Bench, Record, only
from bench.figures import Results
from bench.markdown import number, paragraphs, table
from bench.section import Goal
from leashed import _core

PLACE, TITLE = 100, "Update rules"

_SECONDS = 0.4  # a figure
_LENGTHS = (30_000, 134_794, 10_000_000)

_RULES: dict[str, tuple[lsh.Rule, str, dict[str, Any]]] = {  # with PyTorch's optimizer
    "SGD": (lsh.SGD(1e-6), "SGD", {}),
    "Momentum": (lsh.Momentum(1e-6), "SGD", {"momentum": 0.9}),
    "Nesterov": (lsh.Nesterov(1e-6), "SGD", {"momentum": 0.9, "nesterov": True}),
    "Adagrad": (lsh.Adagrad(1e-6), "Adagrad", {}),
    "RMSprop": (lsh.RMSprop(1e-6), "RMSprop", {}),
    "Adam": (lsh.Adam(1e-6), "Adam", {}),
    "AdamW": (lsh.AdamW(1e-6), "AdamW", {}),
}


def measure(bench: Bench) -> dict[str, list[Record]]:
    """``passes``: of copies; ``torch``: times beside PyTorch's, and the ratio."""
    import torch  # noqa: PLC0415

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
    make: Callable[..., Any], parameter: Any, settings: dict[str, Any]
) -> tuple[Any, str]:
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
    import torch  # noqa: PLC0415

    rule, optimizer, settings = _RULES[name]
    rng = np.random.default_rng(0)
    theta, gradient = (rng.standard_normal(d).astype(np.float32) for _ in range(2))
    ours = _core.RuleState(rule.choice(), theta)
    parameter = torch.nn.Parameter(torch.from_numpy(theta.copy()))
    parameter.grad = torch.from_numpy(gradient.copy())
    theirs, kind = _optimizer(getattr(torch.optim, optimizer), parameter, settings)

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


_BUFFERS = ("another buffer", "in place", "racy")


_RESIDENT = ("L2", "memory")


def pass_ratio(resident: str, results: Results) -> float | None:
    """The slowest rule's pass over the copy of as many bytes."""
    found = only(figures.part(results, "rules", "passes"), resident=resident)
    return min((record["ratio"] for record in found), default=None)


def rule_ratio(results: Results) -> float | None:
    """PyTorch's time for an update over ours, least of all rules and lengths."""
    return min((r["ratio"] for r in figures.part(results, "rules", "torch")), default=None)


def words(results: Results) -> str:
    """The passes of the rules."""
    passes = figures.part(results, "rules", "passes")
    if not passes:
        return ""
    rows = []
    for name in dict.fromkeys(record["rule"] for record in passes):
        line = [name]
        for resident in _RESIDENT:
            found = only(passes, rule=name, resident=resident)
            line += [
                *(f"{only(found, to=to)[0]['ratio']:.2f}" for to in _BUFFERS),
                number(statistics.median(record["copy_gbytes"] for record in found)),
            ]
        rows.append(line)
    head = ["over the copy"]
    for resident in _RESIDENT:
        head += [*(f"{resident}, {to}" for to in _BUFFERS), "copy, GB/s"]
    beside = figures.part(results, "rules", "torch")
    lengths = list(dict.fromkeys(record["dimension"] for record in beside))
    torch_rows = [
        [
            f"{name} ({only(beside, rule=name)[0]['torch_kind']})",
            *(
                f"{number(1e6 * r['seconds'])} ({r['ratio']:.2f}×)"
                for d in lengths
                for r in only(beside, rule=name, dimension=d)
            ),
        ]
        for name in dict.fromkeys(record["rule"] for record in beside)
    ]
    return paragraphs(
        "One thread's pass over parameters, gradient and state, against the fastest copy of half as "
        "many bytes, which moves as many: to another buffer as under `Leashed`, in place as under "
        "`Locked`, racy as under `Hogwild`.",
        table(head, rows),
        "Beside PyTorch's fused CPU optimizers (the default one where there is none), from Python, in "
        "µs an update; in brackets, how many times as long PyTorch's takes:",
        table(["", *(f"d = {d:,}" for d in lengths)], torch_rows),
    )


def profile(results: Results) -> str:
    """What the slowest passes do."""
    slow = sorted(
        only(figures.part(results, "rules", "passes"), resident="L2"), key=lambda r: r["ratio"]
    )[:3]
    told = "; ".join(
        f"{r['rule']}, {r['to']}: {number(r['gbytes'])} GB/s, "
        f"{number(1e9 * r['seconds'] / r['dimension'] * 16)} ns for 16 parameters"
        for r in slow
    )
    return (
        f"The slowest in L2: {told}. With √v in the step a vector takes about a dozen multiply-adds, "
        "a root's and an inverse's estimate with a Newton step each (instructions of division and "
        "root would take longer still): where AVX-512 runs at half rate, that is as long as the "
        "second-level cache needs for the bytes, or a little longer."
    )


GOALS = (
    *(
        Goal(
            f"every rule's pass, {resident}, over the copy bandwidth for its bytes",
            0.90,
            partial(pass_ratio, resident),
        )
        for resident in _RESIDENT
    ),
    Goal(
        "every rule's update, times as fast as PyTorch's fused optimizer", 1.0, rule_ratio, unit="×"
    ),
)
PROFILES = {"Update rules": profile}
