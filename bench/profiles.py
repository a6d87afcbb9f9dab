"""Profiles: what bounds the work behind a goal, in operations, bytes and instructions."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from bench import figures
from bench.context import BATCHES, Record, only
from bench.figures import Results
from bench.markdown import number, paragraphs, table, thousands
from bench.networks import NETWORKS
from bench.turns import quiet_median

_GROUPS = {
    "forward": "forward products",
    "dW": "dW products",
    "dX": "dX products",
    "db": "db, column sums",
    "transpose": "transposes of W",
}


def _copies(results: Results) -> str:
    """The copy ceilings of one thread, in words."""
    kinds = ("L2", "L3", "memory, through the caches", "memory, past the caches")
    rates = [(kind, figures.ceiling(results, "copy", kind, 1)) for kind in kinds]
    return "; ".join(f"{kind} {number(rate)} GB/s" for kind, rate in rates if rate is not None)


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
        f"{_copies(results)} (read and written).",
        *(_mlp_step(only(stages, batch_size=batch_size)) for batch_size in BATCHES),
        _together(results),
        _loops(results),
    )


def _together(results: Results) -> str:
    """What a step's parts take when all threads run, beside one thread alone."""
    records = figures.part(results, "disciplines", "all_threads")
    one, most = (figures.training_ceiling(results, n) for n in (1, figures.threads(results)))
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
        f"{_copies(results)}.",
        _work(rows, total, statistics.median(kernel["ceiling"] for kernel in kernels)),
    )


def _loops(results: Results) -> str:
    found = figures.figures(results, "gemm")
    loops = found["loops"] if found else []
    if not loops:
        return ""
    keys = ("instructions", "multiply_adds", "loads", "broadcasts", "stores", "prefetches")
    rows = [[f"`{loop['function']}`", *(str(loop[key]) for key in keys)] for loop in loops]
    head = ["inner loop", *(key.replace("_", "-") for key in keys)]
    return (
        "<details><summary>Instructions of the product's inner loops, per iteration</summary>\n\n"
        f"{table(head, rows)}\n\n</details>"
    )


def gemm(results: Results) -> str:
    """The shapes below their goal, with operations per byte and the inner loops."""
    found = figures.products(results)
    missed = sorted(
        (p for p in found if figures.product_ratio(results, p) < 1.0),
        key=lambda p: figures.product_ratio(results, p),
    )
    rows = []
    for product in missed:
        library = figures.best_library(results, product)
        m, n, k = product["m"], product["n"], product["k"]
        rows.append(
            [
                f"{product['network']} {product['kind']} {m}×{n}×{k}",
                number(product["leashed"]),
                f"{product['leashed'] / product['ceiling']:.2f}",
                str(library),
                f"{figures.product_ratio(results, product):.2f}",
                number(2e-3 * m * n * k),
                number(4e-3 * (m * k + k * n + m * n)),
                number(2.0 * m * n * k / (4.0 * (m * k + k * n + m * n))),
            ]
        )
    share = sum(map(figures.flops, missed)) / sum(map(figures.flops, found))
    return paragraphs(
        f"{len(missed)} of {len(found)} shapes are below the fastest library; they are "
        f"{share:.0%} of the FLOPs. Two things bound a small product: what a call does besides "
        "multiplying (packing, edges: few kFLOP), and narrow shapes, where a vector of C holds "
        "more columns than there are (N below the vector width).",
        table(
            [
                "shape (M×N×K)",
                "GFLOP/s",
                "of the ceiling",
                "fastest library",
                "ratio",
                "kFLOP",
                "kB",
                "FLOP/byte",
            ],
            rows,
        ),
        _loops(results),
    )


def update(results: Results) -> str:
    """Bytes an update moves, and how fast."""
    rows = []
    for record in only(figures.figures(results, "update"), figure="update"):
        moved = 12e-9 * record["dimension"]
        rows.append(
            [
                f"{record['dimension']:,}",
                number(record["update_seconds"] * 1e6),
                number(record["pass_seconds"] * 1e6),
                number(record["streaming_pass_seconds"] * 1e6),
                f"{record['ratio']:.3f}",
                number(moved * 1e3),
                number(moved / record["update_seconds"]),
            ]
        )
    return paragraphs(
        table(
            [
                "d",
                "T_u, µs",
                "one pass, µs",
                "streaming pass, µs",
                "ratio to the faster",
                "MB",
                "GB/s",
            ],
            rows,
        ),
        "Two loads, one store and one multiply-add a vector; 12 bytes a parameter. Copies here "
        f"reach: {_copies(results)}.",
        *(
            f"A read and its release take {number(record['seconds'] * 1e9)} ns: two atomic "
            "read-modify-writes."
            for record in only(figures.figures(results, "update"), figure="read and release")
        ),
    )


def disciplines(results: Results) -> str:
    """What a step costs beyond Sequential's."""
    rows = []
    for record in figures.part(results, "disciplines", "one_thread"):
        sequential = quiet_median(record["sequential_eps"], record["sequential_cpu_share"])
        ratio = figures.discipline_ratio(record)
        extra = record["batch_size"] / sequential * (1.0 / ratio - 1.0)
        rows.append(
            [
                f"{record['discipline']}, batch {record['batch_size']}",
                f"{ratio:.3f}",
                number(record["batch_size"] / sequential * 1e6),
                number(extra * 1e6),
            ]
        )
    d = NETWORKS["MLP"].dimension
    return paragraphs(
        table(["", "EPS over SEQ's", "SEQ's step, µs", "extra a step, µs"], rows),
        f"SEQ reads and writes θ in place: {number(12e-3 * d)} kB an update. ASYNC and HOG copy θ "
        f"before every gradient: {number(8e-3 * d)} kB more. Leashed writes a third buffer in "
        "place of θ: no byte more, but one buffer more to keep in the caches. Copies here reach: "
        f"{_copies(results)}.",
    )


def peers(results: Results) -> str:
    """How far both are from the ceiling, and so how far the ratio can go."""
    rows = []
    records = figures.figures(results, "peers")
    for network in dict.fromkeys(record["network"] for record in records):
        for batch_size in BATCHES:
            line = [f"{network}, batch {batch_size}"]
            for library in ("leashed", "PyTorch"):
                best = figures.best_peer(results, library, network, batch_size)
                if best is None:
                    continue
                threads = best["threads"] * best["processes"]
                rate = figures.eps(best) * best["flops_per_example"] * 1e-9
                ceiling = figures.training_ceiling(results, threads)
                line += [
                    best["contender"],
                    number(rate),
                    f"{rate / ceiling:.2f}" if ceiling else "",
                ]
            ratio = figures.peer_ratio(results, "PyTorch", network, batch_size)
            most = ""
            if ratio is not None and line[3]:
                most = f"{ratio / float(line[3]):.1f}"
            rows.append([*line, "" if ratio is None else f"{ratio:.2f}", most])
    return paragraphs(
        "GFLOP/s of each library's best setting, and what the ratio would be were leashed at the "
        "multiply-add rate itself: a goal beyond that cannot be met on this machine.",
        table(
            [
                "",
                "leashed",
                "GFLOP/s",
                "of the ceiling",
                "PyTorch",
                "GFLOP/s",
                "of the ceiling",
                "ratio",
                "ratio at the ceiling",
            ],
            [row for row in rows if len(row) == 9],
        ),
    )


def time_to_loss(results: Results) -> str:
    """Updates needed and time an update."""
    found = figures.figures(results, "time_to_loss")
    if not found:
        return ""
    ours = found["leashed"]
    seconds = figures.median_seconds(ours["seconds"])
    updates = statistics.median(ours["updates"])
    rate = figures.best_peer(results, "leashed", "MLP", ours["batch_size"])
    text = (
        f"leashed needed {number(updates)} updates of {ours['batch_size']} examples, "
        f"{number(updates * ours['batch_size'] / results['data']['examples'])} passes over the data, "
        f"in {number(seconds)} s: {thousands(updates * ours['batch_size'] / seconds)} examples/s"
    )
    if rate is not None:
        text += f", beside {thousands(figures.eps(rate))} examples/s of training without a loss to reach"
    theirs = figures.races(results)
    if theirs:
        text += (
            ". What bounds the ratio is theirs over ours in examples/s, times the examples that each "
            "needs."
        )
    return text


def memory(results: Results) -> str:
    """Where buffers are held."""
    return (
        "Live are the m gradients, the published vector, the older vectors that workers still "
        "compute on, and the drafts of updates under way: 2m where every worker computes on another "
        "vector, m + 1 where all compute on the published one, and one more for each draft."
        if figures.figures(results, "memory")
        else ""
    )


def scaling(results: Results) -> str:
    """What several threads share."""
    isa, threads = results["machine"]["isa"], figures.threads(results)
    one, most = (figures.ceiling(results, "fma", isa, n) for n in (1, threads))
    if not one or not most:
        return ""
    return (
        f"All threads together reach {most / one:.2f} times one thread's multiply-add rate "
        f"on this machine of {threads} processors."
    )


PROFILES: dict[str, tuple[str, Callable[[Results], str]]] = {
    "MLP": ("The MLP's step", mlp),
    "CNN": ("The CNN's step", cnn),
    "gemm": ("Matrix products", gemm),
    "update": ("Publishing", update),
    "disciplines": ("What a discipline costs", disciplines),
    "peers": ("Against PyTorch", peers),
    "time_to_loss": ("Time to a loss", time_to_loss),
    "memory": ("Live buffers", memory),
    "scaling": ("Scaling", scaling),
}
"""By the name that goals give: a heading and what is below it."""
