"""The paper's comparison in tables: what each algorithm reached, and section IV beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from leashed.comparison import Cell, cells, fractions
from leashed.runs import Run
from leashed.table import MISSING, duration, mebibytes, number, percent, spread, text

COMPARISON_NOTE = (
    "time to ε: median (least–most) of the runs that reached it, and how many did where not all; "
    "as fine as the evaluations. "
    "examples/s: median. T_c, T_u: mean time of a gradient and of handing it over (with all "
    "attempts). τ: mean staleness, for Leashed τᶜ + τˢ. diverged: runs that ended without the "
    "smallest ε. crashed: in NaN or Inf. vectors: most parameter vectors and gradients in use. "
    "memory: most of the process."
)
SECTION_IV_NOTE = (
    "T_u here: mean time of one attempt to update and publish. γ: gradients dropped over "
    "published. n*, n*_γ: threads in the retry loop by section IV (below eq. 4, and eq. 7). "
    "settles in: 1/(1/T_c + (1 + γ)/T_u), the time constant of n(t) (eq. 5's continuous limit). "
    "n measured: time spent in the loop over time passed. τˢ measured: what n*_γ estimates."
)


class Table(NamedTuple):
    """A header and rows of as many columns."""

    header: list[str]
    rows: list[list[str]]

    def __str__(self) -> str:
        return text(self.header, self.rows)


def comparison(group: Sequence[Cell]) -> Table:
    """One row per algorithm and number of threads."""
    asked = fractions(run for cell in group for run in cell.runs)
    header = ["algorithm", "m", *(f"s to {percent(f)}" for f in asked), "examples/s", "T_c", "T_u"]
    header += ["τ", "diverged", "crashed", "vectors", "memory"]
    rows = []
    for cell in group:
        failures = cell.outcomes(asked[-1]) if asked else None
        rows.append(
            [
                cell.algorithm,
                str(cell.threads),
                *(_time(cell, fraction) for fraction in asked),
                f"{cell.eps:,.0f}",
                duration(cell.gradient_seconds.mean()),
                duration(cell.update_seconds.mean()),
                _staleness(cell),
                MISSING if failures is None else str(failures["diverged"]),
                str(cell.crashed),
                str(cell.peak_vectors),
                mebibytes(cell.peak_memory_bytes),
            ]
        )
    return Table(header, rows)


def section_iv(group: Sequence[Cell]) -> Table:
    """One row per Leashed algorithm and number of threads: predicted and measured."""
    header = ["algorithm", "m", "T_c", "T_u", "γ", "n*", "n*_γ", "n measured", "τˢ measured"]
    header += ["settles in"]
    rows = []
    for cell in group:
        analysis = cell.section_iv
        if not cell.leashed or analysis is None:
            continue
        rows.append(
            [
                cell.algorithm,
                str(cell.threads),
                duration(analysis.T_c),
                duration(analysis.T_u),
                number(analysis.gamma),
                number(analysis.fixed_point),
                number(analysis.fixed_point_persistence),
                number(cell.in_loop),
                number(cell.staleness_schedule.mean()),
                duration(analysis.relaxation),
            ]
        )
    return Table(header, rows)


def by_setting(runs: Sequence[Run]) -> list[tuple[str, list[Cell]]]:
    """The cells that share a model, a step size and a batch size, with a title for each group."""

    def setting(cell: Cell) -> tuple[str, float, int]:
        return (cell.model, cell.lr, cell.batch_size)

    groups = []
    for (model, lr, batch_size), group in groupby(cells(runs), key=setting):
        together = list(group)
        dimension = together[0].runs[0].dimension
        repeats = {len(cell.runs) for cell in together}
        each = f"{min(repeats)} to {max(repeats)}" if len(repeats) > 1 else f"{min(repeats)}"
        title = f"{model} (d = {dimension:,}), η = {lr:g}, batch {batch_size}, {each} runs per row"
        groups.append((title, together))
    return groups


def conditions(runs: Sequence[Run]) -> str:
    """The machine and what all runs share, from what their results say."""
    configs = [run.result.config for run in runs]
    pauses = np.concatenate([np.diff(run.result.seconds) for run in runs])
    pause = float(np.median(pauses)) if pauses.size else math.nan

    def all_of(name: str) -> str:
        values = dict.fromkeys(config[name] for config in configs if name in config)
        return ", ".join(f"{v:,}" if isinstance(v, int) else str(v) for v in values) or "unknown"

    return (
        f"{all_of('cpu')}, instruction set {all_of('isa')}, {all_of('cores')} cores; "
        f"leashed {all_of('version')}; data: {all_of('data')}, {all_of('examples')} examples; "
        f"initialisation: {all_of('init')}; "
        f"loss evaluated every {duration(pause)} (median)"
    )


def report(runs: Sequence[Run]) -> str:
    """All tables as plain text."""
    parts = [conditions(runs)]
    for title, group in by_setting(runs):
        parts += [title, str(comparison(group))]
        table = section_iv(group)
        if table.rows:
            parts += ["Section IV: threads in the retry loop, predicted and measured", str(table)]
    parts += [COMPARISON_NOTE, SECTION_IV_NOTE]
    return "\n\n".join(parts)


def _time(cell: Cell, fraction: float) -> str:
    times = [float(t) for t in cell.seconds_to(fraction)]
    reached = "" if len(times) == len(cell.runs) else f" {len(times)}/{len(cell.runs)}"
    return spread(times) + reached


def _staleness(cell: Cell) -> str:
    total = number(cell.staleness.mean())
    if not cell.leashed or cell.threads == 1:
        return total
    compute, schedule = cell.staleness_compute.mean(), cell.staleness_schedule.mean()
    return f"{total} = {number(compute)} + {number(schedule)}"
