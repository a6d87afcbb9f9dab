"""The page's part on DLRM and tables, and the figures that goals ask for."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from bench import dlrm, figures
from bench.context import Record, only
from bench.figures import Results
from bench.markdown import count, number, paragraphs, table, thousands
from bench.turns import quiet_median
from leashed.base.table import MISSING


def _records(results: Results, figure: str) -> list[Record]:
    return only(figures.figures(results, "tables") or [], figure=figure)


def _rate(record: Record, name: str) -> float:
    return quiet_median(record["rate"][name], record["cpu_share"][name])


def _ceiling(results: Results, batch: int, threads: int) -> tuple[float, float, float] | None:
    """Seconds of an example, all threads together: of its products, of its rows, and both."""
    found = only(_records(results, "rows"), batch=batch, threads=threads)
    if not found:
        return None
    record = found[0]
    products = dlrm.FLOPS / (1e9 * quiet_median(record["gflops"], record["cpu_share"]))
    rows = 1.0 / quiet_median(record["examples"], record["cpu_share"])
    return products, rows, products + rows


def of_ceiling(batch: int, results: Results) -> float | None:
    """Of the ceiling's rate on all threads, what is reached."""
    found = only(_records(results, "dlrm"), batch=batch)
    if not found:
        return None
    threads = found[0]["threads"]
    ceiling = _ceiling(results, batch, threads)
    return None if ceiling is None else _rate(found[0], f"leashed ×{threads}") * ceiling[2]


def over_torch(batch: int, results: Results) -> float | None:
    """Examples per second over PyTorch's at its best setting."""
    found = only(_records(results, "dlrm"), batch=batch)
    rates = [
        _rate(record, name)
        for record in found
        for name in record["rate"]
        if name.startswith("PyTorch")
    ]
    if not rates:
        return None
    return _rate(found[0], f"leashed ×{found[0]['threads']}") / max(rates)


def _gain(results: Results, batch: int) -> tuple[float, float] | None:
    """How many times as fast all threads are as one, and in the ceiling's program on the rows."""
    found = only(_records(results, "dlrm"), batch=batch)
    if not found or found[0]["threads"] < 2:
        return None
    record, threads = found[0], found[0]["threads"]
    one, all_threads = (_ceiling(results, batch, n) for n in (1, threads))
    if one is None or all_threads is None:
        return None
    own = _rate(record, f"leashed ×{threads}") / _rate(record, "leashed ×1")
    return own, one[2] / all_threads[2]


def gain(results: Results) -> float | None:
    """Least of all batches: what all threads gain, over what the ceiling does."""
    found = [_gain(results, batch) for batch in dlrm.BATCHES]
    return min((own / ceiling for own, ceiling in filter(None, found)), default=None)


def growing(results: Results) -> float | None:
    """Rows per second of growing tables over fixed ones', in the same turns."""
    found = _records(results, "growing")
    if not found:
        return None
    pairs = zip(found[0]["growing"], found[0]["fixed"], strict=True)
    return statistics.median(grows / fixed for grows, fixed in pairs)


def tables(results: Results) -> str:
    """DLRM, and tables."""
    found = _records(results, "dlrm")
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
            [[name, *(thousands(_rate(r, name)) for r in found)] for name in names],
        ),
        _ceilings(results),
        _growing(results),
    )


def _ceilings(results: Results) -> str:
    rows = []
    for record in _records(results, "dlrm"):
        for threads in sorted({1, record["threads"]}):
            ceiling = _ceiling(results, record["batch"], threads)
            if ceiling is None:
                continue
            products, of_rows, both = ceiling
            rows.append(
                [
                    f"batch {record['batch']}, {count(threads, 'thread')}",
                    number(1e6 * products),
                    number(1e6 * of_rows),
                    thousands(1.0 / both),
                    f"{_rate(record, f'leashed ×{threads}') * both:.2f}",
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
    rate = _records(results, "growing")
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
    for gradient in _records(results, "dlrm_gradient"):
        batch = gradient["batch_size"]
        found = only(_records(results, "dlrm"), batch=batch)
        ceiling = _ceiling(results, batch, 1)
        if not found or ceiling is None:
            continue
        step, alone = 1.0 / _rate(found[0], "leashed ×1"), 1.0 / gradient["examples_per_second"]
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


SECTIONS: dict[str, Callable[[Results], str]] = {"DLRM and tables": tables}
PROFILES = {"tables": ("DLRM and tables", profile)}
"""By the name that goals give: a heading and what is below it."""
