"""leashed's training and gradients against the multiply-add rate, and where their time goes."""

from __future__ import annotations

from typing import Any

from bench.context import Bench

_RUN_SECONDS = 0.25
_RUNS = 7
_GRADIENT_SECONDS = 0.5
_SPATIAL_SECONDS = 0.15
_PROFILE_SECONDS = 2.0


def measure(bench: Bench) -> dict[str, Any]:
    """``training``: the engine's examples per second beside the ceiling of as many threads;
    ``gradients``: by one thread, for every instruction-set level; ``stages``: the MLP's gradient
    stage by stage; ``spatial``: the CNN's kernels.
    """
    return {
        "training": bench.run(
            "bench_training",
            bench.threads,
            bench.seconds(_RUN_SECONDS, least=0.1),
            bench.times(_RUNS),
        ),
        "gradients": bench.run("bench_network", bench.seconds(_GRADIENT_SECONDS)),
        "stages": bench.run("bench_profile", bench.seconds(_PROFILE_SECONDS)),
        "spatial": bench.run("bench_spatial", bench.seconds(_SPATIAL_SECONDS)),
    }
