"""The evaluation of the Leashed-SGD paper, drawn from one's own runs: its Figures 3 to 10."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator
from numpy.typing import NDArray

from leashed.comparison import (
    Cell,
    algorithm_order,
    cells,
    fractions,
    model_order,
    overview_fraction,
    yardstick,
)
from leashed.histogram import Histogram
from leashed.plots.boxes import Box, Boxes, draw_distributions
from leashed.plots.style import PLAIN, colour, dashes, lines, maybe_log, patches, shares, style
from leashed.runs import Run
from leashed.table import percent

_COLUMNS = 3
_PEAKED = 50.0  # percent of the updates at one staleness, from which the axis is logarithmic
_SHORTEST = 0.01  # of a run's updates; the last interval of a run may hold few, all of them late
_MIB = 2.0**20


class NoDataError(LookupError):
    """Nothing among the runs belongs into the figure; the message says what is missing."""


def main_model(runs: Sequence[Run]) -> str:
    """The model of the figures that show one: the paper's MLP, or else the first by name."""
    return _models(runs)[0]


def time_to_epsilon(runs: Sequence[Run]) -> Figure:
    """Figure 3, left: time to ε-convergence by threads and algorithm, and the runs that failed."""
    chosen = _main(runs)
    fraction = _overview(chosen)
    boxes = _by_threads(chosen, lambda cell: _times(cell, fraction))
    return _one(boxes, f"Time to {percent(fraction)} of the initial loss", "time [s]")


def computational_efficiency(runs: Sequence[Run]) -> Figure:
    """Figure 3, right: wall-clock time per update by threads and algorithm."""
    boxes = _by_threads(_main(runs), lambda cell: Box(1e3 * cell.seconds_per_update))
    with style():
        figure = Figure(figsize=(_width(boxes), 4.2))
        axes = figure.subplots()
        boxes.draw(axes)
        axes.set(title="Computational efficiency", ylabel="time per update [ms]")
        _legend(figure, boxes.algorithms)
    return figure


def high_precision(runs: Sequence[Run]) -> Figure:
    """Figure 4: time to ε-convergence for every ε asked for, one panel per number of threads."""
    chosen = _main(runs)
    _overview(chosen)
    with style():
        figure, parts = _parts(_threads(chosen), height=3.6)
        for m, part in parts:
            boxes = _by_fraction(_at(chosen, m))
            boxes.draw_with_failures(part, f"m = {m}", "time [s]")
        _legend(figure, _algorithms(chosen))
    return figure


def loss_over_time(runs: Sequence[Run]) -> Figure:
    """Figure 5: the loss of every run over time, one panel per number of threads."""
    chosen = _main(runs)
    with style():
        figure, parts = _parts(_threads(chosen), height=3.2)
        for m, part in parts:
            axes = part.subplots()
            _draw_loss(axes, _at(chosen, m))
            axes.set_title(f"m = {m}")
        _line_legend(figure, _algorithms(chosen))
    return figure


def staleness(runs: Sequence[Run]) -> Figure:
    """Figure 6: the distribution of staleness, and its mean over time, per number of threads."""
    chosen = _stale(_main(runs))
    with style():
        figure, parts = _parts(_threads(chosen), height=5.4)
        for m, part in parts:
            distribution, over_time = part.subplots(2, 1)
            here = [run for run in chosen if run.threads == m]
            _draw_staleness(distribution, here)
            distribution.set_title(f"m = {m}")
            _draw_staleness_over_time(over_time, here)
        _line_legend(figure, _algorithms(chosen))
    return figure


def cnn(runs: Sequence[Run]) -> Figure:
    """Figure 7: the CNN's time to each ε, loss over time and staleness, a row per thread count."""
    chosen = yardstick([run for run in runs if run.model == "cnn"])
    if not chosen:
        raise NoDataError("the file has no run of the CNN (model cnn)")
    counts = _threads(chosen)
    with style():
        figure = Figure(figsize=(13.0, 3.8 * len(counts)))
        rows = np.atleast_1d(np.asarray(figure.subfigures(len(counts), 1), dtype=object))
        for m, row in zip(counts, rows, strict=True):
            here = _at(chosen, m)
            left, middle, right = row.subfigures(1, 3)
            if fractions(here):
                _by_fraction(here).draw_with_failures(left, f"m = {m}", "time [s]")
            axes = middle.subplots()
            axes.set_title("loss over time")
            _draw_loss(axes, here)
            axes = right.subplots()
            axes.set_title("staleness")
            _draw_staleness(axes, [run for run in here if run.result.staleness.max() > 0])
        _legend(figure, _algorithms(chosen))
    return figure


def step_size(runs: Sequence[Run]) -> Figure:
    """Figure 8, left: time to ε-convergence by step size, at the thread count with most steps."""
    model = main_model(runs)
    chosen = [run for run in runs if run.model == model and run.fractions]
    parallel = [run for run in chosen if run.algorithm != "SEQ"] or chosen
    counts = {m: len({r.lr for r in parallel if r.threads == m}) for m in _threads(parallel)}
    if max(counts.values(), default=0) < 2:
        raise NoDataError("the file has no two step sizes η at one number of threads: no sweep")
    m = max(counts, key=lambda threads: (counts[threads], threads))
    here = _at(chosen, m)
    fraction = _overview(here)
    groups = [f"{lr:g}" for lr in sorted({run.lr for run in here})]
    boxes = Boxes(
        groups,
        _algorithms(here),
        {(f"{c.lr:g}", c.algorithm): _times(c, fraction) for c in cells(here)},
        "step size η",
    )
    return _one(boxes, f"Time to {percent(fraction)} by step size, m = {m}", "time [s]")


def statistical_efficiency(runs: Sequence[Run]) -> Figure:
    """Figure 8, right: updates to ε-convergence by threads and algorithm."""
    chosen = _main(runs)
    fraction = _overview(chosen)

    def updates(cell: Cell) -> Box:
        return _counted(cell, fraction, cell.updates_to(fraction))

    boxes = _by_threads(chosen, updates)
    return _one(boxes, f"Updates to {percent(fraction)} of the initial loss", "updates")


def gradient_and_update_times(runs: Sequence[Run]) -> Figure:
    """Figure 9: the distributions of T_c and T_u, a row per model."""
    models = _models(runs)
    with style():
        figure = Figure(figsize=(12.0, 3.6 * len(models)))
        panels = np.atleast_2d(figure.subplots(len(models), 2))
        for model, (left, right) in zip(models, panels, strict=True):
            chosen = yardstick([run for run in runs if run.model == model])
            places = _by_threads(chosen, lambda _: Box(np.empty(0)))
            at = {(str(c.threads), c.algorithm): c for c in cells(chosen)}
            draw_distributions(left, places, {k: c.gradient_seconds for k, c in at.items()})
            draw_distributions(right, places, {k: c.update_seconds for k, c in at.items()})
            left.set(title=f"{model}: gradient computation T_c", ylabel="time")
            right.set(title=f"{model}: update T_u", ylabel="time")
            for axes in (left, right):
                axes.yaxis.set_major_formatter(EngFormatter("s"))
        _legend(figure, _algorithms(runs))
    return figure


def memory(runs: Sequence[Run]) -> Figure:
    """Figure 10: resident memory and vectors in use, a column per model."""
    models = _models(runs)
    with style():
        figure = Figure(figsize=(6.5 * len(models) + 1.0, 9.0))
        panels = figure.subplots(3, len(models), squeeze=False)
        for model, (resident, vectors, over_time) in zip(models, panels.T, strict=True):
            chosen = yardstick([run for run in runs if run.model == model])
            _by_threads(chosen, _resident_memory).draw(resident, from_zero=False)
            resident.set(title=f"{model}: resident memory", ylabel="process [MiB]")
            _by_threads(chosen, _live_vectors).draw(vectors)
            vectors.set(title=f"{model}: parameter vectors and gradients", ylabel="in use")
            m = _threads(chosen)[-1]
            for run in _at(chosen, m):
                over_time.plot(
                    run.result.seconds,
                    run.result.memory_bytes / _MIB,
                    color=colour(run.algorithm),
                    linestyle=dashes(run.algorithm),
                    alpha=_alpha(chosen),
                )
            over_time.set(
                title=f"{model}: resident memory over time, m = {m}",
                xlabel="time [s]",
                ylabel="process [MiB]",
            )
        _legend(figure, _algorithms(runs))
    return figure


def loop_occupancy(runs: Sequence[Run]) -> Figure:
    """Section IV: n(t) by equations 4 to 7 and the measured mean number in the retry loop."""
    chosen = [run for run in _main(runs) if run.algorithm.startswith("LSH")]
    if not chosen:
        raise NoDataError("the file has no run of Leashed-SGD, which alone has the retry loop")
    with style():
        figure, parts = _parts(_threads(chosen), height=3.4)
        for m, part in parts:
            axes = part.subplots()
            axes.set(title=f"m = {m}", xlabel="time [ms]", ylabel="threads in the loop")
            here = [(c, c.section_iv) for c in cells(run for run in chosen if run.threads == m)]
            until = max((8.0 * found.relaxation for _, found in here if found), default=0.0)
            t = np.linspace(0.0, until, 300)
            for cell, found in here:
                if found is None:
                    continue
                axes.plot(1e3 * t, found.occupancy(t), color=colour(cell.algorithm))
                axes.axhline(
                    cell.in_loop, color=colour(cell.algorithm), linestyle="--", linewidth=1.2
                )
            axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.set_ylim(bottom=0.0)
            axes.set_xlim(left=0.0)
        _line_legend(figure, _algorithms(chosen))
    return figure


def _models(runs: Sequence[Run]) -> list[str]:
    if not runs:
        raise NoDataError("the file has no runs")
    return sorted({run.model for run in runs}, key=model_order)


def _main(runs: Sequence[Run]) -> list[Run]:
    model = main_model(runs)
    return yardstick([run for run in runs if run.model == model])


def _overview(runs: Sequence[Run]) -> float:
    fraction = overview_fraction(runs)
    if fraction is None:
        raise NoDataError("no run in the file was asked for a precision ε (a fraction of the loss)")
    return fraction


def _stale(runs: Sequence[Run]) -> list[Run]:
    """The runs with some staleness: one thread, SEQ and SYNC have none by construction."""
    chosen = [run for run in runs if run.threads > 1 and run.algorithm not in {"SEQ", "SYNC"}]
    if not chosen:
        raise NoDataError(
            "the file has no asynchronous run with more than one thread: all staleness is 0"
        )
    return chosen


def _algorithms(runs: Iterable[Run]) -> list[str]:
    return sorted({run.algorithm for run in runs}, key=algorithm_order)


def _threads(runs: Iterable[Run]) -> list[int]:
    """The thread counts, without the 1 of SEQ where other algorithms ran with more."""
    runs = list(runs)
    parallel = {run.threads for run in runs if run.algorithm != "SEQ"}
    return sorted(parallel or {run.threads for run in runs})


def _at(runs: Iterable[Run], m: int) -> list[Run]:
    """The runs with m threads, and SEQ beside them."""
    return [run for run in runs if run.threads == m or run.algorithm == "SEQ"]


def _counted(cell: Cell, fraction: float, values: NDArray[np.float64]) -> Box:
    outcomes = cell.outcomes(fraction)
    return Box(values, diverged=outcomes["diverged"], crashed=outcomes["crashed"])


def _times(cell: Cell, fraction: float) -> Box:
    return _counted(cell, fraction, cell.seconds_to(fraction))


def _by_threads(runs: Sequence[Run], box: Callable[[Cell], Box]) -> Boxes:
    groups = [str(m) for m in sorted({run.threads for run in runs})]
    boxes = {(str(cell.threads), cell.algorithm): box(cell) for cell in cells(runs)}
    return Boxes(groups, _algorithms(runs), boxes, "threads m")


def _by_fraction(runs: Sequence[Run]) -> Boxes:
    asked = fractions(runs)
    boxes = {
        (percent(fraction), cell.algorithm): _times(cell, fraction)
        for fraction in asked
        for cell in cells(run for run in runs if fraction in run.fractions)
    }
    return Boxes([percent(f) for f in asked], _algorithms(runs), boxes, "precision ε")


def _resident_memory(cell: Cell) -> Box:
    samples = np.concatenate([run.result.memory_bytes[1:] for run in cell.runs])
    return Box(samples / _MIB)


def _live_vectors(cell: Cell) -> Box:
    samples = np.concatenate([run.result.live_vectors[1:] for run in cell.runs])
    return Box(samples.astype(np.float64))


def _width(boxes: Boxes) -> float:
    return min(14.0, max(8.5, 1.5 + 0.2 * len(boxes.groups) * len(boxes.algorithms)))


def _one(boxes: Boxes, title: str, value_label: str) -> Figure:
    with style():
        figure = Figure(figsize=(_width(boxes), 4.6))
        boxes.draw_with_failures(figure, title, value_label)
        _legend(figure, boxes.algorithms)
    return figure


def _parts(counts: Sequence[int], height: float) -> tuple[Figure, list[tuple[int, SubFigure]]]:
    """A figure with one part per thread count, three in a row."""
    columns = min(_COLUMNS, len(counts))
    rows = -(-len(counts) // columns)
    figure = Figure(figsize=(max(8.5, 4.6 * columns), height * rows + 0.4))
    parts = np.asarray(figure.subfigures(rows, columns, squeeze=False), dtype=object).ravel()
    return figure, list(zip(counts, parts, strict=False))


def _legend(figure: Figure, algorithms: Sequence[str]) -> None:
    _place_legend(figure, patches(algorithms))


def _line_legend(figure: Figure, algorithms: Sequence[str]) -> None:
    _place_legend(figure, lines(algorithms))


def _place_legend(figure: Figure, handles: Sequence[Patch | Line2D]) -> None:
    figure.legend(
        handles=list(handles), loc="outside lower center", ncols=len(handles), columnspacing=1.2
    )


def _alpha(runs: Sequence[Run]) -> float:
    repeats = len(runs) / max(1, len(cells(runs)))
    return max(0.35, float(repeats**-0.5))


def _draw_loss(axes: Axes, runs: Sequence[Run]) -> None:
    for run in runs:
        axes.plot(
            run.result.seconds,
            run.result.loss,
            color=colour(run.algorithm),
            linestyle=dashes(run.algorithm),
            linewidth=1.3,
            alpha=_alpha(runs),
        )
    initial = float(np.median([run.result.initial_loss for run in runs]))
    for fraction in fractions(runs):
        axes.axhline(fraction * initial, color="#999999", linewidth=0.7, zorder=0)
        axes.annotate(
            percent(fraction),
            (1.0, fraction * initial),
            xycoords=("axes fraction", "data"),
            fontsize="x-small",
            color="#555555",
            ha="right",
            va="bottom",
        )
    finite = [run.result.loss[np.isfinite(run.result.loss)] for run in runs]
    maybe_log(axes, [float(v) for loss in finite for v in loss])
    ended = max(run.result.elapsed for run in runs)
    reached = [run.result.seconds_to(run.fractions[-1]) for run in runs if run.fractions]
    last = max((t for t in reached if not math.isnan(t)), default=ended)
    axes.set_xlim(0.0, min(ended, 1.5 * last))
    axes.set(xlabel="time [s]", ylabel="mean training loss")
    axes.xaxis.set_major_locator(MaxNLocator(5))


def _draw_staleness(axes: Axes, runs: Sequence[Run]) -> None:
    upper, most = 4.0, 0.0
    for cell in cells(runs):
        share = 100.0 * shares(cell.staleness)
        most = max(most, float(share.max(initial=0.0)))
        axes.plot(
            np.arange(share.size),
            share,
            color=colour(cell.algorithm),
            linestyle=dashes(cell.algorithm),
            drawstyle="steps-mid",
        )
        upper = max(upper, cell.staleness.quantile(0.995))
    axes.set(xlabel="staleness τ [updates]", ylabel="share of the updates [%]")
    axes.set_xlim(-0.5, upper + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if most > _PEAKED:
        axes.set_yscale("log")
        axes.set_ylim(0.01, 120.0)
        axes.yaxis.set_major_formatter(PLAIN)
    else:
        axes.set_ylim(bottom=0.0)
    if not runs:
        axes.text(0.5, 0.5, "all staleness is 0", transform=axes.transAxes, ha="center")


def _draw_staleness_over_time(axes: Axes, runs: Sequence[Run]) -> None:
    for run in runs:
        counts = run.result.staleness_over_time.sum(axis=1)
        long = np.flatnonzero(counts >= _SHORTEST * counts.sum())
        axes.plot(
            run.result.seconds[long],
            [Histogram(run.result.staleness_over_time[k]).mean() for k in long],
            color=colour(run.algorithm),
            linestyle=dashes(run.algorithm),
            linewidth=1.3,
            alpha=_alpha(runs),
        )
    axes.set(xlabel="time [s]", ylabel="mean staleness τ")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlim(left=0.0)
    axes.set_ylim(bottom=0.0)
