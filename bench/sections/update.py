"""T_u of Leashed against one fused pass over the same memory, and what a read costs."""

from __future__ import annotations

from functools import partial

from bench import figures
from bench.context import Bench, Record, only
from bench.figures import Results
from bench.markdown import number, paragraphs, table
from bench.section import Goal
from bench.sections.ceilings import copies

PLACE, TITLE = 60, "Publishing"

_SECONDS = 2.0


def measure(bench: Bench) -> list[Record]:
    """A record a length of the parameter vector, and one of read and release."""
    return bench.run("bench_update", bench.seconds(_SECONDS))


def _update(dimension: int, results: Results) -> float | None:
    found = only(figures.figures(results, "update"), figure="update", dimension=dimension)
    return float(found[0]["ratio"]) if found else None


def _read(results: Results) -> float | None:
    found = only(figures.figures(results, "update"), figure="read and release")
    return 1e9 * float(found[0]["seconds"]) if found else None


def words(results: Results) -> str:
    """Bytes an update moves, and how fast."""
    if not figures.figures(results, "update"):
        return ""
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
        f"reach: {copies(results)}.",
        *(
            f"A read and its release take {number(record['seconds'] * 1e9)} ns: two atomic "
            "read-modify-writes."
            for record in only(figures.figures(results, "update"), figure="read and release")
        ),
    )


GOALS = (
    *(
        Goal(
            f"T_u of Leashed, d = {dimension:,}, over one fused pass",
            1.15,
            partial(_update, dimension),
            least=False,
        )
        for dimension in (134_794, 10_000_000)
    ),
    Goal("read and release", 100.0, _read, least=False, unit=" ns"),
)
