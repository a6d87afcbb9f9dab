"""DLRM against its ceiling and PyTorch, and growing tables against fixed ones.

The ceiling is what its products take at the FMA rate and its rows in a program of their own
(``bench_rows``), one after the other, measured in the same run. Everybody trains on the same
131,072 examples (``bench.dlrm``), batch after batch, with Adagrad, rows without versions as the
ceiling's and PyTorch's; the contenders take turns, PyTorch in processes of its own.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

import leashed as lsh
from bench import dlrm, figures
from bench.contenders import recommenders as contenders
from bench.context import Bench, only
from bench.figures import Results
from bench.markdown import count, number, paragraphs, table, thousands
from bench.section import Goal
from bench.turns import quiet_median, record, take_turns
from leashed import _core
from leashed.base.table import MISSING

PLACE, TITLE = 170, "DLRM and tables"

_ROUNDS = 3
_SECONDS = 2.0  # of a turn
_CEILING_SECONDS = 6.0  # of a batch size
_GRADIENT_SECONDS = 2.0  # of a batch size
_WAYS = {f"PyTorch {layout}": layout for layout in ("fused", "tables")}


def measure(bench: Bench) -> list[dict[str, Any]]:
    """A record of each batch size, with the turns of all contenders, and the ceilings' figures."""
    seconds = bench.seconds(_SECONDS, least=0.2)
    found: list[dict[str, Any]] = []
    x, ids, y = dlrm.data()
    model, data = dlrm.model(), lsh.ClickDataset.from_arrays(x, ids, y)
    for batch in dlrm.BATCHES:
        found += bench.run(
            "bench_rows",
            bench.threads,
            bench.seconds(_CEILING_SECONDS),
            dlrm.TABLES,
            dlrm.ROWS,
            dlrm.EXPONENT,
            batch,
        )
        teams = contenders(
            model, data, dlrm.LR, batch, bench.threads, seconds, "bench.torch_dlrm", _WAYS
        )
        turns = take_turns(teams, bench.times(_ROUNDS))
        found.append(
            {
                "figure": "dlrm",
                "batch": batch,
                "threads": bench.threads,
                "flops": dlrm.FLOPS,
                **record(turns),
            }
        )
    found += bench.run("bench_graph", bench.seconds(_GRADIENT_SECONDS), _core.default_isa())
    found += bench.run(
        "bench_tables",
        bench.seconds(_CEILING_SECONDS),
        1,
        dlrm.TABLES,
        dlrm.ROWS,
        dlrm.DIM,
        dlrm.EXPONENT,
    )
    return found


def _ceiling(results: Results, batch: int, threads: int) -> tuple[float, float, float] | None:
    """Seconds of an example, all threads together: of its products, of its rows, and both."""
    found = only(figures.records(results, "tables", figure="rows"), batch=batch, threads=threads)
    if not found:
        return None
    record = found[0]
    products = dlrm.FLOPS / (1e9 * quiet_median(record["gflops"], record["cpu_share"]))
    rows = 1.0 / quiet_median(record["examples"], record["cpu_share"])
    return products, rows, products + rows


def of_ceiling(batch: int, results: Results) -> float | None:
    """Of the ceiling's rate on all threads, what is reached."""
    found = only(figures.records(results, "tables", figure="dlrm"), batch=batch)
    if not found:
        return None
    threads = found[0]["threads"]
    ceiling = _ceiling(results, batch, threads)
    return None if ceiling is None else figures.rate(found[0], f"leashed ×{threads}") * ceiling[2]


def over_torch(batch: int, results: Results) -> float | None:
    """Examples per second over PyTorch's at its best setting."""
    found = only(figures.records(results, "tables", figure="dlrm"), batch=batch)
    rates = [
        figures.rate(record, name)
        for record in found
        for name in record["rate"]
        if name.startswith("PyTorch")
    ]
    if not rates:
        return None
    return figures.rate(found[0], f"leashed ×{found[0]['threads']}") / max(rates)


def _gain(results: Results, batch: int) -> tuple[float, float] | None:
    """How many times as fast all threads are as one, and in the ceiling's program on the rows."""
    found = only(figures.records(results, "tables", figure="dlrm"), batch=batch)
    if not found or found[0]["threads"] < 2:
        return None
    record, threads = found[0], found[0]["threads"]
    one, all_threads = (_ceiling(results, batch, n) for n in (1, threads))
    if one is None or all_threads is None:
        return None
    own = figures.rate(record, f"leashed ×{threads}") / figures.rate(record, "leashed ×1")
    return own, one[2] / all_threads[2]


def gain(results: Results) -> float | None:
    """Least of all batches: what all threads gain, over what the ceiling does."""
    found = [_gain(results, batch) for batch in dlrm.BATCHES]
    return min((own / ceiling for own, ceiling in filter(None, found)), default=None)


def growing(results: Results) -> float | None:
    """Rows per second of growing tables over fixed ones', in the same turns."""
    found = figures.records(results, "tables", figure="growing")
    if not found:
        return None
    pairs = zip(found[0]["growing"], found[0]["fixed"], strict=True)
    return statistics.median(grows / fixed for grows, fixed in pairs)


def words(results: Results) -> str:
    """DLRM, and tables."""
    found = figures.records(results, "tables", figure="dlrm")
    if not found:
        return ""
    names = list(found[0]["rate"])
    return paragraphs(
        f"DLRM: {dlrm.DENSE} numbers, {dlrm.TABLES} tables of {dlrm.ROWS:,} × {dlrm.DIM}, "
        f"{dlrm.FLOPS / 1e3:.0f} kFLOP an example, Adagrad, ids by Zipf's law with exponent "
        f"{dlrm.EXPONENT}; thousand examples per second, medians of the turns. Rows have no versions "
        "(`versions=False`), as the others' have none. PyTorch has a table for each feature, or one "
        "for all with offsets (fused), and sparse gradients.",
        table(
            ["", *(f"batch {record['batch']}" for record in found)],
            [[name, *(thousands(figures.rate(r, name)) for r in found)] for name in names],
        ),
        _ceilings(results),
        _growing(results),
    )


def _ceilings(results: Results) -> str:
    rows = []
    for found in figures.records(results, "tables", figure="dlrm"):
        for threads in sorted({1, found["threads"]}):
            ceiling = _ceiling(results, found["batch"], threads)
            if ceiling is None:
                continue
            products, of_rows, both = ceiling
            rows.append(
                [
                    f"batch {found['batch']}, {count(threads, 'thread')}",
                    number(1e6 * products),
                    number(1e6 * of_rows),
                    thousands(1.0 / both),
                    f"{figures.rate(found, f'leashed ×{threads}') * both:.2f}",
                ]
            )
    return paragraphs(
        "Its ceiling: the products at the FMA rate, and after them the rows, read and updated by a "
        "program of its own that has them in 128 bytes without a header.",
        table(
            ["", "products, µs", "rows, µs", "thousand examples/s", "reached"],
            rows,
        ),
    )


def _growing(results: Results) -> str:
    value = growing(results)
    rate = figures.records(results, "tables", figure="growing")
    fixed = MISSING if not rate else number(statistics.median(rate[0]["fixed"]) / 1e6)
    return (
        f"Rows of batches of {rate[0]['batch'] if rate else MISSING} examples, found and updated by "
        f"one thread: {fixed} million distinct rows per second in fixed tables, "
        f"{MISSING if value is None else f'{value:.2f}'} times as many in growing ones that know all "
        "their ids."
    )


def profile(results: Results) -> str:
    """What all threads gain."""
    lines = []
    for batch in dlrm.BATCHES:
        found = _gain(results, batch)
        if found is not None:
            lines.append(
                f"Batch {batch}: all threads are {found[0]:.2f} times as fast as one, in the ceiling "
                f"{found[1]:.2f} times."
            )
    return paragraphs(" ".join(lines), _ceilings(results), _steps(results))


def _steps(results: Results) -> str:
    """What an example's step of one thread is made of."""
    rows = []
    for gradient in figures.records(results, "tables", figure="dlrm_gradient"):
        batch = gradient["batch_size"]
        found = only(figures.records(results, "tables", figure="dlrm"), batch=batch)
        ceiling = _ceiling(results, batch, 1)
        if not found or ceiling is None:
            continue
        step, alone = (
            1.0 / figures.rate(found[0], "leashed ×1"),
            1.0 / gradient["examples_per_second"],
        )
        parts = (step, alone, ceiling[0], step - alone, ceiling[1])
        rows.append([f"batch {batch}", *(number(1e6 * part) for part in parts)])
    if not rows:
        return ""
    return paragraphs(
        "An example's step by one thread, in µs: the gradient by itself, on rows that have been "
        "copied (`bench_graph`), which besides products is the interaction and copies between layers; "
        "and what is left, the finding, copying and updating of rows and the update of the dense part.",
        table(
            ["", "step", "gradient", "products at the FMA rate", "the rest", "rows in the ceiling"],
            rows,
        ),
    )


GOALS = (
    *(
        Goal(
            f"DLRM, batch {batch}, training at its ceiling, all threads",
            0.6,
            partial(of_ceiling, batch),
        )
        for batch in dlrm.BATCHES
    ),
    *(
        Goal(
            f"DLRM, batch {batch}, examples/s over PyTorch's best",
            target,
            partial(over_torch, batch),
            unit="×",
        )
        for batch, target in zip(dlrm.BATCHES, (6.0, 5.0, 4.0), strict=True)
    ),
    Goal("DLRM, all threads over one, over what the ceiling gains, least", 1.8 / 1.9, gain),
    Goal("growing tables that know their ids, rows/s over fixed ones", 0.8, growing),
)
PROFILES = {"DLRM and tables": profile}
