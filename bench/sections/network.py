"""leashed's training and gradients against the multiply-add rate, and where their time goes."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

from bench import figures
from bench.charts import Bars
from bench.context import BATCHES, Bench, Record, only
from bench.figures import Results
from bench.markdown import count, number, paragraphs, table
from bench.section import Goal, Parts
from bench.sections.ceilings import copies, team
from bench.sections.gemm import loops
from bench.turns import quiet_median
from leashed.base.table import MISSING

PLACE, TITLE = 20, "Training and its ceiling"

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


def training_ratio(record: Record) -> float:
    """What a training record reached of the ceiling measured beside it."""
    flops = record["flops_per_example"] * 1e-9
    return quiet_median(
        [e * flops / c for e, c in zip(record["eps"], record["ceiling"], strict=True)],
        record["cpu_share"],
        record["ceiling_cpu_share"],
    )


def best_training(
    results: Results, network: str, batch_size: int, of_threads: int
) -> Record | None:
    """The training record nearest to the ceiling."""
    found = only(
        figures.part(results, "network", "training"),
        network=network,
        batch_size=batch_size,
        threads=of_threads,
    )
    return max(found, key=training_ratio, default=None)


def training_ceiling(results: Results, of_threads: int) -> float | None:
    """The highest multiply-add rate, GFLOP/s, that was measured beside training."""
    found = only(figures.part(results, "network", "training"), threads=of_threads)
    return max((quiet_median(r["ceiling"], r["ceiling_cpu_share"]) for r in found), default=None)


def words(results: Results) -> Parts:
    records = figures.part(results, "network", "training")
    if not records:
        return ()
    cells = [
        (network, batch_size, threads)
        for network in dict.fromkeys(record["network"] for record in records)
        for batch_size in BATCHES
        for threads in team(results)
    ]
    asked = {goal.work: goal.target for goal in GOALS}
    names, ratios, marks, rows = [], [], [], []
    for network, batch_size, threads in cells:
        best = best_training(results, network, batch_size, threads)
        if best is None:
            continue
        who = "1 thread" if threads == 1 else "all threads"
        ratio = training_ratio(best)
        mark = asked.get(f"{network}, batch {batch_size}, training at the FMA ceiling, {who}")
        names.append(f"{network}, batch {batch_size}, {count(threads, 'thread')}")
        ratios.append(ratio)
        marks.append(mark)
        rows.append(
            [
                names[-1],
                best["discipline"],
                f"{figures.eps(best):,.0f}",
                number(figures.eps(best) * best["flops_per_example"] * 1e-9),
                number(quiet_median(best["ceiling"], best["ceiling_cpu_share"])),
                f"{ratio:.2f}",
                f"{min(max(best['cpu_share']), 1.0):.2f}",
                MISSING if mark is None else f"{mark:.2f}",
            ]
        )
    flops = {record["network"]: record["flops_per_example"] for record in records}
    told = ", ".join(f"{name} {value / 1e3:,.1f} kFLOP" for name, value in flops.items())
    chart = Bars(
        "training",
        "Training at the multiply-add rate of as many threads",
        names,
        {"leashed": ratios},
        "share of the ceiling",
        marks=marks,
    )
    head = ["", "discipline", "examples/s", "GFLOP/s", "ceiling", "ratio", "CPU share", "goal"]
    return (
        (
            f"Whole training steps of the engine, sampling and update included. An example is {told}, "
            "forward and backward."
        ),
        chart,
        table(head, rows),
        _gradients(results),
    )


def _gradients(results: Results) -> str:
    """Gradients alone, for every level."""
    records = figures.part(results, "network", "gradients")
    levels = list(dict.fromkeys(record["isa"] for record in records))
    rows = []
    for network in dict.fromkeys(record["network"] for record in records):
        for batch_size in BATCHES:
            line = [f"{network}, batch {batch_size}"]
            for isa in levels:
                record = only(records, network=network, batch_size=batch_size, isa=isa)[0]
                line += [number(record["gflops"]), f"{record['ratio']:.2f}"]
            rows.append(line)
    head = ["gradient alone, 1 thread"]
    for isa in levels:
        head += [f"{isa}, GFLOP/s", "of its ceiling"]
    return table(head, rows)


def _of_ceiling(network: str, batch_size: int, all_threads: bool, results: Results) -> float | None:
    threads = figures.threads(results) if all_threads else 1
    best = best_training(results, network, batch_size, threads)
    return None if best is None else training_ratio(best)


def _goals(network: str, batch_size: int, target: float, target_all: float) -> list[Goal]:
    name = f"{network}, batch {batch_size}, training at the FMA ceiling"
    return [
        Goal(
            f"{name}, {who}",
            wanted,
            partial(_of_ceiling, network, batch_size, all_threads),
            profile=f"The {network}'s step",
        )
        for who, wanted, all_threads in (
            ("1 thread", target, False),
            ("all threads", target_all, True),
        )
    ]


_GROUPS = {
    "forward": "forward products",
    "dW": "dW products",
    "dX": "dX products",
    "db": "db, column sums",
    "transpose": "transposes of W",
}


def _by_group(stages: list[Record]) -> dict[str, Record]:
    """Stages of one kind together."""
    groups: dict[str, Record] = {}
    for stage in stages:
        name = next((v for k, v in _GROUPS.items() if stage["stage"].startswith(k)), stage["stage"])
        sums = groups.setdefault(name, {"seconds": 0.0, "flops": 0.0, "bytes": 0.0})
        for key in sums:
            sums[key] += stage[key]
    return groups


def _work(rows: list[tuple[str, Record]], total: float, ceiling: float) -> str:
    """A table of pieces of work: share of the time, operations and bytes and their rates."""
    head = ["", "µs", "share", "kFLOP", "GFLOP/s", "of the ceiling", "kB", "GB/s"]
    lines = []
    for name, work in rows:
        rate = work["flops"] / work["seconds"] * 1e-9
        lines.append(
            [
                name,
                number(work["seconds"] * 1e6),
                f"{work['seconds'] / total:.1%}",
                number(work["flops"] * 1e-3),
                number(rate),
                f"{rate / ceiling:.2f}",
                number(work["bytes"] * 1e-3),
                number(work["bytes"] / work["seconds"] * 1e-9),
            ]
        )
    return table(head, lines)


def mlp(results: Results) -> str:
    """The MLP's step, stage by stage, at each batch size."""
    stages = figures.part(results, "network", "stages")
    return paragraphs(
        "One thread's gradient and update, stage by stage: operations, and the bytes that a stage "
        "must read and write at least (most come from the caches). Copies here reach: "
        f"{copies(results)} (read and written).",
        *(_mlp_step(only(stages, batch_size=batch_size)) for batch_size in BATCHES),
        _together(results),
        loops(results),
    )


def _together(results: Results) -> str:
    """What a step's parts take when all threads run, beside one thread alone."""
    records = figures.part(results, "disciplines", "all_threads")
    one, most = (training_ceiling(results, n) for n in (1, figures.threads(results)))
    if not records or not one or not most:
        return ""
    rows = [
        [
            f"{record['discipline']} ×{record['threads']}, batch {record['batch_size']}",
            *(
                number(record["breakdown"][part] / record["gradients"] * 1e6)
                for part in ("gradient", "update", "read", "sampling", "waiting")
            ),
        ]
        for record in records
        if record["gradients"]
    ]
    return paragraphs(
        f"**All threads** reached at most {most / one:.2f} times one thread's multiply-add rate. What "
        "a step of one worker takes, alone (SEQ) and beside the others, in µs:",
        table(["", "gradient", "update", "read", "sampling", "waiting"], rows),
    )


def _mlp_step(stages: list[Record]) -> str:
    """The stages of one batch size."""
    rows = only(stages, figure="stage")
    if not rows:
        return ""
    whole = only(stages, figure="whole gradient")[0]
    ceiling = whole["ceiling"]
    total = sum(row["seconds"] for row in rows)
    groups = _by_group(rows)
    products = [work for name, work in groups.items() if name.endswith("products")]
    product_seconds = sum(work["seconds"] for work in products)
    bound = sum(work["flops"] for work in products) / product_seconds * 1e-9 / ceiling
    return paragraphs(
        f"**Batch {whole['batch_size']}**: {number(total * 1e6)} µs, ceiling {number(ceiling)} "
        f"GFLOP/s. The products take {product_seconds / total:.0%} of the time at {bound:.2f} of the "
        f"ceiling: so much the step would reach were all else free. With all else it reaches "
        f"{whole['flops'] * 1e-9 / total / ceiling:.2f}. (The network's own gradient took "
        f"{number(whole['seconds'] * 1e6)} µs; these stages, without the update, "
        f"{number((total - groups['update']['seconds']) * 1e6)} µs.)",
        _work(list(groups.items()), total, ceiling),
    )


def cnn(results: Results) -> str:
    """The CNN's kernels over images; its dense layers are among the products."""
    kernels = only(
        figures.part(results, "network", "spatial"),
        isa=results["machine"]["isa"],
        network="CNN",
        in_network=True,
    )
    if not kernels:
        return ""
    images = kernels[0]["images"]
    total = sum(kernel["seconds"] for kernel in kernels)
    rows = [(f"{kernel['layer']}: {kernel['kernel']}", kernel) for kernel in kernels]
    return paragraphs(
        f"One thread's kernels over images, a block of {images} at a time; operations are those "
        "of the dense convolution, whatever a kernel leaves out. Copies here reach: "
        f"{copies(results)}.",
        _work(rows, total, statistics.median(kernel["ceiling"] for kernel in kernels)),
    )


GOALS = (
    *_goals("MLP", 512, 0.90, 0.95),
    *_goals("MLP", 64, 0.80, 0.80),
    *_goals("MLP", 16, 0.60, 0.60),
    *_goals("CNN", 512, 0.60, 0.60),
)


PROFILES = {"The MLP's step": mlp, "The CNN's step": cnn}
