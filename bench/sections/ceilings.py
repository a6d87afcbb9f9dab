"""What the machine can do at most: multiply-adds and copies, by one thread and by all."""

from __future__ import annotations

from bench import figures
from bench.context import Bench, Record, only
from bench.figures import Results
from bench.markdown import count, number, table
from bench.turns import quiet_median

PLACE, TITLE = 10, "Ceilings"

_SECONDS = 1.0


def measure(bench: Bench) -> list[Record]:
    """A record a ceiling and number of threads, with the rate of every turn."""
    return bench.run("bench_ceilings", bench.threads, bench.seconds(_SECONDS))


def ceiling(results: Results, figure: str, kind: str, of_threads: int) -> float | None:
    """A ceiling: GFLOP/s (``fma``) or GB/s (``copy``)."""
    unit = "gflops" if figure == "fma" else "gbytes"
    found = only(figures.figures(results, "ceilings"), figure=figure, kind=kind, threads=of_threads)
    return quiet_median(found[0][unit], found[0]["cpu_share"]) if found else None


def copies(results: Results) -> str:
    """The copy ceilings of one thread, in words."""
    kinds = ("L2", "L3", "memory, through the caches", "memory, past the caches")
    rates = [(kind, ceiling(results, "copy", kind, 1)) for kind in kinds]
    return "; ".join(f"{kind} {number(rate)} GB/s" for kind, rate in rates if rate is not None)


def team(results: Results) -> list[int]:
    return sorted({1, figures.threads(results)})


def words(results: Results) -> str:
    records = figures.figures(results, "ceilings")
    rows = []
    for record in only(records, threads=1):
        line = [f"{record['figure']}, {record['kind']}"]
        told = (ceiling(results, record["figure"], record["kind"], n) for n in team(results))
        rates = [rate for rate in told if rate is not None]
        line += [*map(number, rates), f"{rates[-1] / rates[0]:.2f}"]
        shares = [
            min(
                only(records, figure=record["figure"], kind=record["kind"], threads=n)[0][
                    "cpu_share"
                ]
            )
            for n in team(results)
        ]
        rows.append([*line, f"{min(shares):.2f}"])
    head = ["", *(count(n, "thread") for n in team(results)), "ratio", "least CPU share"]
    return (
        "Float32 multiply-adds in GFLOP/s by instruction-set level; copies in GB/s, read and "
        "written. These are the machine's at one moment: every figure below that is a share of a "
        "ceiling divides by one measured right beside it.\n\n" + table(head, rows)
    )
