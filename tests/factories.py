"""Training results and comparisons made up for the tests of what reads them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from leashed.studies.runs import ALGORITHMS, Run
from leashed.training.histogram import Histogram, TimeDistribution
from leashed.training.result import TrainResult

EDGES = np.geomspace(1e-6, 1.0, 121)


def times(mean: float, count: int, seed: int = 0) -> TimeDistribution:
    """Log-normal durations around `mean`."""
    rng = np.random.default_rng(seed)
    values = mean * np.exp(0.2 * rng.standard_normal(count))
    bins = np.clip(np.searchsorted(EDGES, values, side="right") - 1, 0, EDGES.size - 2)
    counts = np.bincount(bins, minlength=EDGES.size - 1)
    return TimeDistribution(EDGES, counts, float(values.sum()))


def histogram(mean: float, count: int, seed: int = 0) -> Histogram:
    """Poisson counts around `mean`."""
    values = np.random.default_rng(seed).poisson(mean, count)
    return Histogram(np.bincount(values, minlength=1))


def make_result(
    *,
    outcome: str = "converged",
    evaluations: int = 20,
    rate: float = 0.4,
    seconds: float = 2.0,
    updates: int = 400,
    staleness: float = 1.5,
    dropped: int = 0,
    seed: int = 0,
    **changes: Any,
) -> TrainResult:
    """A plausible result; every field can be replaced by name."""
    t = np.linspace(0.0, seconds, evaluations)
    floor = {"converged": 0.05, "diverged": 2.25}.get(outcome, 1.9)
    loss = (2.3 - floor) * np.exp(-t / rate) + floor
    if outcome == "crashed":
        loss[-1] = math.nan
    gradients = updates + dropped
    rows = np.random.default_rng(seed).poisson(staleness, (evaluations, 50))
    over_time = np.stack([np.bincount(row, minlength=64)[:64] for row in rows])
    over_time[0] = 0
    reason = {"converged": "loss_fraction", "crashed": "not_finite"}.get(outcome, "seconds")
    values: dict[str, Any] = {
        "outcome": outcome,
        "reason": reason,
        "parameters": np.linspace(-1.0, 1.0, 10, dtype=np.float32),
        "seconds": t,
        "updates": np.linspace(0, updates, evaluations).astype(np.int64),
        "loss": loss,
        "accuracy": 1.0 - loss / 2.6,
        "validation_accuracy": np.full(evaluations, math.nan),
        "eps": np.full(evaluations, 512 * updates / seconds),
        "memory_bytes": np.full(evaluations, 120 * 2**20) + np.arange(evaluations) * 2**16,
        "live_vectors": 3 + np.arange(evaluations) % 3,
        "staleness_over_time": over_time,
        "elapsed": seconds,
        "examples": 512 * gradients,
        "total_updates": updates,
        "gradients": gradients,
        "dropped": dropped,
        "staleness": histogram(staleness, updates, seed),
        "staleness_compute": histogram(0.8 * staleness, updates, seed),
        "staleness_schedule": histogram(0.2 * staleness, updates, seed),
        "tries": histogram(0.1 * staleness, gradients, seed),
        "gradient_seconds": times(5e-3, gradients, seed),
        "update_seconds": times(5e-5, gradients, seed),
        "attempt_seconds": times(4e-5, gradients, seed + 1),
        "breakdown": {"gradient": 0.8 * seconds, "rest": 0.2 * seconds},
        "peak_vectors": 7,
        "peak_memory_bytes": 140 * 2**20,
        "config": {"seed": seed, "persistence": math.inf},
    }
    return TrainResult(**{**values, **changes})


def make_run(
    algorithm: str = "LSH_ps1",
    threads: int = 2,
    *,
    model: str = "mlp",
    lr: float = 0.05,
    batch_size: int = 512,
    fractions: tuple[float, ...] = (0.5, 0.1),
    more: dict[str, Any] | None = None,
    **changes: Any,
) -> Run:
    """One run of a comparison with `more` in its config; the rest goes to `make_result`."""
    config = {
        "discipline": algorithm,
        "rule": {"name": "SGD", "lr": lr},
        "threads": threads,
        "batch_size": batch_size,
        "seed": 0,
        "init": "normal",
        "until": {"loss_fraction": min(fractions), "seconds": 60.0} if fractions else {"epochs": 2},
        "fractions": list(fractions),
        "model": model,
        "dimension": {"mlp": 134_794, "cnn": 27_354}.get(model, 1_000),
        "data": "synthetic digits",
        "examples": 10_000,
        "isa": "v3",
        "cpu": "a processor",
        "cores": 2,
        "version": "0.1.0",
        **(more or {}),
    }
    return Run.of(make_result(config=config, **changes))


def make_comparison(
    threads: Iterable[int] = (1, 2, 8),
    models: Iterable[str] = ("mlp",),
    steps: Iterable[float] = (0.05,),
    repeats: int = 3,
    fractions: tuple[float, ...] = (0.5, 0.1),
) -> list[Run]:
    """Runs of all seven algorithms; some of HOG and ASYNC with many threads fail."""
    runs = []
    for model in models:
        for lr in steps:
            for a, algorithm in enumerate(ALGORITHMS):
                for m in (1,) if algorithm == "SEQ" else threads:
                    for repeat in range(repeats):
                        seed = repeat + 10 * a + 100 * m
                        noise = float(np.random.default_rng(seed).uniform(0.8, 1.3))
                        fails = algorithm in {"HOG", "ASYNC"} and m >= 8 and repeat < 2
                        outcome = ("crashed", "diverged")[repeat % 2] if fails else "converged"
                        still = algorithm in {"SEQ", "SYNC"} or m == 1
                        runs.append(
                            make_run(
                                algorithm,
                                m,
                                model=model,
                                lr=lr,
                                fractions=fractions,
                                outcome=outcome,
                                rate=noise * 0.02 / lr / m**0.5,
                                seconds=2.0 * noise,
                                updates=int(300 * m**0.5),
                                staleness=0.0 if still else (1.0 - 0.08 * a) * (m - 1),
                                dropped=20 * m if algorithm in {"LSH_ps0", "LSH_ps1"} else 0,
                                seed=seed,
                            )
                        )
    return runs
