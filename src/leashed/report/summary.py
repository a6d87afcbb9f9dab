"""The paper's comparison in tables: what each algorithm reached, and section IV beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from leashed.base.table import (
    MISSING,
    Table,
    change,
    duration,
    mebibytes,
    number,
    percent,
    spread,
)
from leashed.studies import shown
from leashed.studies.comparison import Cell, cells, fractions, mean_savings, savings, study_key
from leashed.studies.runs import Run

COMPARISON_NOTE = (
    "time to ε: median (least–most) of the runs that reached it, and how many did where not all; "
    "found among evaluations and the copies of the parameters kept between them. "
    "examples/s: median. T_c, T_u: mean time of a gradient and of handing it over (with all "
    "attempts). τ: mean staleness, for Leashed τᶜ + τˢ. "
    "unfinished: runs that a limit ended without the smallest ε, at a loss below 0.95 of the "
    "initial one. diverged: not below it. crashed: in NaN or Inf. "
    "vectors: most parameter vectors and gradients in use. memory: most of the process."
)
_WHOLE = {"mnist/train": 60_000, "fashion_mnist/train": 60_000}  # as published

SECTION_IV_NOTE = (
    "T_u here: time in the retry loop over gradients published. γ: gradients dropped over "
    "published. n*, n*_γ: threads in the retry loop by section IV (below eq. 4, and eq. 7). "
    "n measured: time spent in the loop over time passed. τˢ measured: what n*_γ estimates. "
    "n*, n*_γ, n measured and τˢ: median (least–most) of the runs, each by its own T_c, T_u and γ; "
    "T_c, T_u and γ: of all runs together. "
    "settles in: 1/(1/T_c + (1 + γ)/T_u), the time constant of n(t) (eq. 5's continuous limit)."
)
MEMORY_NOTE = (
    "vectors: mean number of parameter vectors and gradients in use at the evaluations while the "
    "workers ran. resident: mean memory of the process then. against: how much less or more than "
    "the 2m + 1 vectors of Algorithms 2 and 4, and than the mean of ASYNC and HOG with as many "
    "threads, as measured."
)
_PAPERS_SAVING = 0.17  # S5: the CNN's memory with Leashed, on average


def comparison(group: Sequence[Cell]) -> Table:
    """One row per algorithm and number of threads."""
    asked = fractions(run for cell in group for run in cell.runs)
    header = ["algorithm", "m", *(f"s to {percent(f)}" for f in asked), "examples/s", "T_c", "T_u"]
    header += ["τ", "unfinished", "diverged", "crashed", "vectors", "memory"]
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
                *(
                    MISSING if failures is None else str(failures[outcome])
                    for outcome in ("unfinished", "diverged")
                ),
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
        repeats = [found for repeat in cell.repeats if (found := repeat.section_iv)]
        rows.append(
            [
                cell.algorithm,
                str(cell.threads),
                duration(analysis.T_c),
                duration(analysis.T_u),
                number(analysis.gamma),
                _spread(each.fixed_point for each in repeats),
                _spread(each.fixed_point_persistence for each in repeats),
                _spread(repeat.in_loop for repeat in cell.repeats),
                _spread(repeat.staleness_schedule.mean() for repeat in cell.repeats),
                duration(analysis.relaxation),
            ]
        )
    return Table(header, rows)


def memory(runs: Sequence[Run]) -> list[tuple[str, Table]]:
    """Figure 10 in numbers: a table for each of its columns that has Leashed, with its title."""
    header = ["algorithm", "m", "vectors", "2m + 1", "against 2m + 1", "against ASYNC, HOG"]
    header += ["resident", "resident against ASYNC, HOG"]
    tables = []
    for group in shown.memory(runs):
        rows = [
            [
                saving.cell.algorithm,
                str(saving.cell.threads),
                number(saving.vectors),
                str(2 * saving.cell.threads + 1),
                change(saving.of_bound),
                change(saving.of_vectors),
                mebibytes(saving.resident),
                change(saving.of_resident),
            ]
            for saving in savings(cells(group))
        ]
        if rows:
            title = f"Memory: {shown.setting(group)}, {_process(group)}"
            tables.append((title, Table(header, rows)))
    return tables


def paper_saving(runs: Sequence[Run]) -> list[str]:
    """Whether the paper's saving of memory for the CNN came out: a sentence per kind of process."""
    lines = []
    for group in shown.memory([run for run in runs if run.model == "cnn"]):
        _, vectors, resident = mean_savings(savings(cells(group)))
        if math.isnan(resident):
            continue
        verdicts = [
            f"{name} {change(saving)} ({_verdict(saving)})"
            for name, saving in (("vectors in use", vectors), ("resident memory", resident))
        ]
        lines.append(
            f"The paper's saving for the CNN is {percent(_PAPERS_SAVING)} on average. Here, "
            f"{_process(group)}, Leashed beside ASYNC and HOG: {', '.join(verdicts)}."
        )
    return lines


def _verdict(saving: float) -> str:
    if saving >= _PAPERS_SAVING:
        return "it comes out"
    return "less than the paper's" if saving >= 0.5 * _PAPERS_SAVING else "it does not come out"


def _process(group: Sequence[Run]) -> str:
    return "a process each" if shown.isolated(group[0]) else "one process for all runs"


def by_setting(runs: Sequence[Run]) -> list[tuple[str, list[Cell]]]:
    """The cells that share a study, a step size and a batch size, with a title for each group."""

    def setting(cell: Cell) -> tuple[object, ...]:
        return (*study_key(cell.runs[0]), cell.lr, cell.batch_size)

    studies = shown.studies(runs)
    groups = []
    for _, group in groupby(cells(runs), key=setting):
        together = list(group)
        first = together[0].runs[0]
        among = [study for study in studies if study[0].model == first.model]
        study = shown.name(together[0].runs, among)
        repeats = {len(cell.runs) for cell in together}
        each = f"{min(repeats)} to {max(repeats)}" if len(repeats) > 1 else f"{min(repeats)}"
        title = (
            f"{shown.setting(together[0].runs, study)} (d = {first.dimension:,}), "
            f"{each} runs per row"
        )
        groups.append((title, together))
    return groups


def conditions(runs: Sequence[Run]) -> str:
    """The machine and what all runs share, from what their results say."""
    configs = [run.result.config for run in runs]
    pauses = np.concatenate([np.diff(run.result.seconds) for run in runs])
    pause = float(np.median(pauses)) if pauses.size else math.nan
    sets = dict.fromkeys(_data_set(config) for config in configs)
    steps = sorted({run.lr for run in runs})
    apart = {bool(config.get("isolated")) for config in configs}
    processes = "a process for each run; " if apart == {True} else ""

    def all_of(name: str) -> str:
        values = dict.fromkeys(config[name] for config in configs if name in config)
        return ", ".join(f"{v:,}" if isinstance(v, int) else str(v) for v in values) or "unknown"

    return (
        f"{all_of('cpu')}, instruction set {all_of('isa')}, {all_of('cores')} cores; "
        f"leashed {all_of('version')}; data: {' and '.join(sets)}; "
        f"initialisation: {all_of('init')}; η: {', '.join(f'{lr:g}' for lr in steps)}; "
        f"batch: {all_of('batch_size')}; {''.join(f'{text}; ' for text in _presets(configs))}"
        f"{processes}{_virtual(configs)}loss evaluated every {duration(pause)} (median)"
    )


def data_set(name: str, examples: int) -> str:
    """A training set by name, and how much of it was used."""
    whole = _WHOLE.get(name, examples)
    part = "" if examples >= whole else f" of its {whole:,}"
    return f"{name}, {examples:,}{part} training examples"


def preset(name: str, short: bool, departures: Sequence[str]) -> str:
    """A step of Table I by name, and how a plan departs from it."""
    form = f"preset {name}, short form" if short else f"preset {name}"
    return f"{form} ({'; '.join(departures)})" if departures else form


def _data_set(config: dict[str, Any]) -> str:
    if "examples" not in config:
        return "unknown"
    pixels = f", pixels 0…{config['pixels']}" if "pixels" in config else ""
    return data_set(config.get("data", "unknown"), config["examples"]) + pixels


def _virtual(configs: Sequence[dict[str, Any]]) -> str:
    """Of runs in virtual time, what their work took."""
    costs = dict.fromkeys(
        f"{config['model']}: T_c {duration(played.get('mean', math.nan))}, "
        f"T_u {duration(played['update'])}, copy {duration(played['copy'])}"
        for config in configs
        if (played := config.get("virtual"))
    )
    if not costs:
        return ""
    return f"virtual time ({'; '.join(costs)}; that threads slow each other down is not played); "


def _presets(configs: Sequence[dict[str, Any]]) -> list[str]:
    """The presets that were run, each with what its last run says that it departs from."""
    last = {config["preset"]: config for config in configs if config.get("preset")}
    return [
        preset(name, config.get("short", False), config.get("departures", []))
        for name, config in last.items()
    ]


def report(runs: Sequence[Run]) -> str:
    """All tables as plain text."""
    parts = [conditions(runs)]
    for title, group in by_setting(runs):
        parts += [title, str(comparison(group))]
        table = section_iv(group)
        if table.rows:
            parts += ["Section IV: threads in the retry loop, predicted and measured", str(table)]
    parts += [*paper_saving(runs), COMPARISON_NOTE, SECTION_IV_NOTE]
    return "\n\n".join(parts)


def _spread(values: Iterable[float]) -> str:
    return spread([value for value in values if not math.isnan(value)])


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
