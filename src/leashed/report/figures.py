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

from leashed.base.table import change, percent
from leashed.report.plots.boxes import Box, Boxes, draw_distributions
from leashed.studies import shown
from leashed.studies.comparison import (
    Cell,
    algorithm_order,
    cells,
    fractions,
    mean_savings,
    model_order,
    overview_fraction,
    savings,
    thread_rates,
    yardstick,
)
from leashed.studies.runs import Run
from leashed.training.histogram import Histogram
from leashed.training.plots.style import (
    PLAIN,
    colour,
    dashes,
    lines,
    maybe_log,
    patches,
    shares,
    side_labels,
    staleness_end,
    style,
    tell_staleness_beyond,
    time_axis,
)
from leashed.training.result import TrainResult

_WIDTH = 13.0  # inches, of every figure: the page shows them all at its own width
_COLUMNS = 3
_PEAKED = 50.0  # percent of the updates at one staleness, from which the axis is logarithmic
_POINT = 0.01  # of a run's updates, at least in a point of staleness over time: few tell no mean
_PAPERS_THREADS = 16
_MIB = 2.0**20


class NoDataError(LookupError):
    """Nothing among the runs belongs into the figure; the message says what is missing."""


def main_model(runs: Sequence[Run]) -> str:
    """The model of the figures that show one: the paper's MLP, or else the first by name."""
    return _models(runs)[0]


def time_to_epsilon(runs: Sequence[Run]) -> Figure:
    """Figure 3, left: time to ε-convergence by threads and algorithm, and how the runs ended."""
    chosen = _overview(runs)
    fraction = _precision(chosen)
    boxes = _by_threads(chosen, lambda cell: _times(cell, fraction))
    title = f"Time to {percent(fraction)} of the initial loss ({shown.setting(chosen)})"
    return _one(boxes, title, "time [s]")


def computational_efficiency(runs: Sequence[Run]) -> Figure:
    """Figure 3, right: wall-clock time per update by threads and algorithm."""
    chosen = _overview(runs)
    boxes = _by_threads(chosen, lambda cell: Box(1e3 * cell.seconds_per_update))
    with style():
        figure = Figure(figsize=(_WIDTH, 4.2))
        axes = figure.subplots()
        boxes.draw(axes)
        axes.set(
            title=f"Computational efficiency ({shown.setting(chosen)})",
            ylabel="time per update [ms]",
        )
        _legend(figure, boxes.algorithms)
    return figure


def high_precision(runs: Sequence[Run]) -> Figure:
    """Figure 4: time to ε-convergence for every ε asked for, a panel per number of threads."""
    studies = [study for study in _studies(runs) if study[0].fractions]
    if not studies:
        _precision(runs)
    with style():
        figure, panels = _panels(studies, height=4.2, across=2)
        for part, title, here, _ in panels:
            _by_fraction(here).draw_with_outcomes(part, title, "time [s]")
        _legend(figure, _algorithms(run for study in studies for run in study))
    return figure


def loss_over_time(runs: Sequence[Run]) -> Figure:
    """Figure 5: the loss of every run over time, a panel per number of threads."""
    studies = _studies(runs)
    with style():
        figure, panels = _panels(studies, height=3.4)
        for part, title, here, _ in panels:
            axes = part.subplots()
            _draw_loss(axes, here)
            axes.set_title(title)
        _loss_legend(figure, [run for study in studies for run in study])
    return figure


def staleness(runs: Sequence[Run]) -> Figure:
    """Figure 6: staleness, its mean over time and the rates of the threads, per thread count."""
    studies = [stale for study in _studies(runs) if (stale := _stale(study))]
    if not studies:
        raise NoDataError(
            "the file has no asynchronous run with more than one thread: all staleness is 0"
        )
    together = [run for study in studies for run in study]
    rows = 3 if any(thread_rates(run).size for run in together) else 2
    with style():
        figure, panels = _panels(studies, height=2.7 * rows)
        for part, title, _, here in panels:
            distribution, over_time, *rates = part.subplots(rows, 1)
            _draw_staleness(distribution, here)
            distribution.set_title(title)
            _draw_staleness_over_time(over_time, here)
            for axes in rates:
                _draw_thread_rates(axes, here)
        _line_legend(figure, _algorithms(together))
    return figure


def cnn(runs: Sequence[Run]) -> Figure:
    """Figure 7: the CNN's time to each ε, loss over time and staleness, a row per thread count."""
    studies = [
        yardstick(study)
        for study in shown.studies([run for run in runs if run.model == "cnn"], "S3")
    ]
    if not studies:
        raise NoDataError("the file has no run of the CNN (model cnn)")
    parts = [(study, m) for study in studies for m in _threads(study)]
    with style():
        figure = Figure(figsize=(_WIDTH, 4.1 * len(parts) + 0.4))
        rows = np.atleast_1d(np.asarray(figure.subfigures(len(parts), 1), dtype=object))
        for (study, m), row in zip(parts, rows, strict=True):
            here = _at(study, m)
            title = _panel_title(study, studies, m)
            left, middle, right = row.subfigures(1, 3, width_ratios=[1.7, 1.0, 1.0])
            if fractions(here):
                _by_fraction(here).draw_with_outcomes(left, title, "time [s]")
            axes = middle.subplots()
            axes.set_title(f"loss over time\n{title}")
            _draw_loss(axes, here)
            axes = right.subplots()
            axes.set_title(f"staleness\n{title}")
            _draw_staleness(axes, [run for run in here if run.result.staleness.max() > 0])
        _loss_legend(figure, [run for study in studies for run in study])
    return figure


def step_size(runs: Sequence[Run], threads: int | None = None) -> Figure:
    """Figure 8, left: time to ε-convergence by step size, at one number of threads.

    Args:
        runs: of any steps.
        threads: the number of threads. None: that with the most step sizes; among equals the
            paper's 16, or else the largest.
    """
    study, m = _sweep(runs, threads)
    best = yardstick(study)[0]
    here = [run for run in _at(study, m) if run.batch_size == best.batch_size]
    fraction = _precision(here)
    groups = [f"{lr:g}" for lr in sorted({run.lr for run in here})]
    boxes = Boxes(
        groups,
        _algorithms(here),
        {(f"{c.lr:g}", c.algorithm): _times(c, fraction) for c in cells(here)},
        "step size η",
    )
    named = f"{best.preset}, " if best.preset else ""
    title = (
        f"Time to {percent(fraction)} of the initial loss by step size "
        f"({named}{best.model}, m = {m}, batch {best.batch_size}; "
        f"the other figures: η = {best.lr:g})"
    )
    return _one(boxes, title, "time [s]")


def statistical_efficiency(runs: Sequence[Run]) -> Figure:
    """Figure 8, right: updates to ε-convergence by threads and algorithm."""
    chosen = _overview(runs)
    fraction = _precision(chosen)

    def updates(cell: Cell) -> Box:
        return _counted(cell, fraction, cell.updates_to(fraction))

    title = f"Updates to {percent(fraction)} of the initial loss ({shown.setting(chosen)})"
    return _one(_by_threads(chosen, updates), title, "updates")


def gradient_and_update_times(runs: Sequence[Run]) -> Figure:
    """Figure 9: T_c, and T_u of one attempt, a row per model."""
    models = _models(runs)
    with style():
        figure = Figure(figsize=(_WIDTH, 3.8 * len(models)))
        panels = np.atleast_2d(figure.subplots(len(models), 2))
        for model, (left, right) in zip(models, panels, strict=True):
            chosen = shown.overview(run for run in runs if run.model == model)
            places = _by_threads(chosen, lambda _: Box(np.empty(0)))
            at = {(str(c.threads), c.algorithm): c for c in cells(chosen)}
            draw_distributions(
                left,
                places,
                {k: c.gradient_seconds for k, c in at.items()},
                {k: c.gradient_seconds.mean() for k, c in at.items()},
            )
            draw_distributions(
                right,
                places,
                {k: c.attempt_seconds for k, c in at.items()},
                {k: c.attempt_seconds.mean() for k, c in at.items() if c.attempt_seconds.count},
            )
            left.set(title=f"gradient computation T_c ({shown.setting(chosen)})", ylabel="time")
            right.set(title=f"T_u of one attempt ({shown.setting(chosen)})", ylabel="time")
            for axes in (left, right):
                axes.yaxis.set_major_formatter(EngFormatter("s"))
        _place_legend(figure, [*patches(_algorithms(runs)), _mean_handle()])
    return figure


def memory(runs: Sequence[Run]) -> Figure:
    """Figure 10: resident memory and vectors in use, a row per model.

    Runs that had a process each stand in another row than those that shared one.
    """
    groups = shown.memory(runs)
    if not groups:
        raise NoDataError("the file has no runs")
    with style():
        figure = Figure(figsize=(_WIDTH, 4.2 * len(groups) + 0.4))
        panels = figure.subplots(len(groups), 3, squeeze=False)
        for chosen, (resident, vectors, over_time) in zip(groups, panels, strict=True):
            process = "a process each" if shown.isolated(chosen[0]) else "one process for all runs"
            setting = shown.setting(chosen)
            _, in_use, taken = mean_savings(savings(cells(chosen)))
            boxes = _by_threads(chosen, lambda cell: Box(cell.resident_bytes / _MIB))
            boxes.draw(resident, from_zero=False, means=True)
            resident.set(
                title=f"resident memory, {process}\n{setting}{_against(taken)}",
                ylabel="process [MiB]",
            )
            boxes = _by_threads(chosen, lambda cell: Box(cell.vectors_in_use))
            for k, group in enumerate(boxes.groups):
                bound = 2 * int(group) + 1
                vectors.plot([k - 0.45, k + 0.45], [bound, bound], "k--", linewidth=1.0)
            boxes.draw(vectors, means=True)
            vectors.set(
                title=f"parameter vectors and gradients\n{setting}{_against(in_use)}",
                ylabel="in use",
            )
            m = _threads(chosen)[-1]
            for run in _at(chosen, m):
                over_time.plot(
                    run.result.seconds,
                    run.result.memory_bytes / _MIB,
                    color=colour(run.algorithm),
                    linestyle=dashes(run.algorithm),
                    alpha=_alpha(chosen),
                )
            time_axis(over_time, [float(run.result.seconds[-1]) for run in _at(chosen, m)])
            over_time.set(
                title=f"resident memory over time, {process}\n{shown.setting(chosen, m=m)}",
                xlabel="time [s]",
                ylabel="process [MiB]",
            )
        bound_line = Line2D([], [], color="black", linestyle="--", linewidth=1.0, label="2m + 1")
        _place_legend(figure, [*patches(_algorithms(runs)), _mean_handle(), bound_line])
    return figure


def loop_occupancy(runs: Sequence[Run]) -> Figure:
    """Section IV: n(t) by equations 4 to 7 and the measured mean number in the retry loop."""
    study = _overview(runs)
    chosen = [run for run in study if run.algorithm.startswith("LSH")]
    if not chosen:
        raise NoDataError("the file has no run of Leashed-SGD, which alone has the retry loop")
    with style():
        figure, panels = _panels([chosen], height=3.6)
        for part, title, _, here in panels:
            axes = part.subplots()
            axes.set(title=title, xlabel="time [ms]", ylabel="threads in the loop")
            found = [(cell, cell.section_iv) for cell in cells(here)]
            until = max((8.0 * iv.relaxation for _, iv in found if iv), default=0.0)
            t = np.linspace(0.0, until, 300)
            for cell, iv in found:
                if iv is None:
                    continue
                own = colour(cell.algorithm)
                each = [repeat.in_loop for repeat in cell.repeats]
                axes.plot(1e3 * t, iv.occupancy(t), color=own)
                axes.axhline(cell.in_loop, color=own, linestyle="--", linewidth=1.2)
                axes.axhspan(np.nanmin(each), np.nanmax(each), color=own, alpha=0.12, linewidth=0)
            axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.set_ylim(bottom=0.0)
            axes.set_xlim(left=0.0)
        _line_legend(figure, _algorithms(chosen))
    return figure


def _models(runs: Sequence[Run]) -> list[str]:
    if not runs:
        raise NoDataError("the file has no runs")
    return sorted({run.model for run in runs}, key=model_order)


def _of_main_model(runs: Sequence[Run]) -> list[Run]:
    model = main_model(runs)
    return [run for run in runs if run.model == model]


def _overview(runs: Sequence[Run]) -> list[Run]:
    return shown.overview(_of_main_model(runs), "S1")


def _studies(runs: Sequence[Run]) -> list[list[Run]]:
    """Each study of Figures 4 to 6 at its best step: S2 and S4, or else all."""
    return [yardstick(study) for study in shown.studies(_of_main_model(runs), "S2", "S4")]


def _precision(runs: Sequence[Run]) -> float:
    fraction = overview_fraction(runs)
    if fraction is None:
        raise NoDataError("no run in the file was asked for a precision ε (a fraction of the loss)")
    return fraction


def _sweep(runs: Sequence[Run], threads: int | None) -> tuple[list[Run], int]:
    """The study with the most step sizes at a number of threads, and this number."""
    best: tuple[tuple[int, bool, int], list[Run], int] | None = None
    for study in shown.studies([run for run in _of_main_model(runs) if run.fractions], "S1"):
        parallel = [run for run in study if run.algorithm != "SEQ"] or study
        for m in _threads(study) if threads is None else [threads]:
            steps = len({run.lr for run in parallel if run.threads == m})
            rank = (steps, m == _PAPERS_THREADS, m)
            if best is None or rank > best[0]:
                best = (rank, study, m)
    if best is None or best[0][0] < 2:
        where = "one number of threads" if threads is None else f"{threads} threads"
        raise NoDataError(f"the file has no two step sizes η at {where}: no sweep")
    return best[1], best[2]


def _panel_title(study: Sequence[Run], among: Sequence[Sequence[Run]], m: int) -> str:
    return shown.setting(study, shown.name(study, among), m)


def _stale(runs: Sequence[Run]) -> list[Run]:
    """The runs with some staleness: one thread, SEQ and SYNC have none by construction."""
    return [run for run in runs if run.threads > 1 and run.algorithm not in {"SEQ", "SYNC"}]


def _against(saving: float) -> str:
    return "" if math.isnan(saving) else f"\nLeashed {change(saving)} beside ASYNC, HOG"


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
    return Box(
        values,
        unfinished=outcomes["unfinished"],
        diverged=outcomes["diverged"],
        crashed=outcomes["crashed"],
        interrupted=outcomes["interrupted"],
    )


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
        for cell in cells(runs)
    }
    return Boxes([percent(f) for f in asked], _algorithms(runs), boxes, "precision ε")


def _one(boxes: Boxes, title: str, value_label: str) -> Figure:
    with style():
        figure = Figure(figsize=(_WIDTH, 5.0))
        boxes.draw_with_outcomes(figure, title, value_label)
        _legend(figure, boxes.algorithms)
    return figure


def _panels(
    studies: Sequence[Sequence[Run]], height: float, across: int = _COLUMNS
) -> tuple[Figure, list[tuple[SubFigure, str, list[Run], list[Run]]]]:
    """A figure with a part per study and thread count, up to ``across`` in a row.

    Returns:
        The figure, and for each part: where to draw, its title, its runs with SEQ beside them, and
        its runs without.
    """
    places = [(study, m) for study in studies for m in _threads(study)]
    columns = min(across, len(places))
    rows = -(-len(places) // columns)
    figure = Figure(figsize=(_WIDTH, height * rows + 0.4))
    parts = np.asarray(figure.subfigures(rows, columns, squeeze=False), dtype=object).ravel()
    return figure, [
        (
            part,
            _panel_title(study, studies, m),
            _at(study, m),
            [run for run in study if run.threads == m],
        )
        for part, (study, m) in zip(parts, places, strict=False)
    ]


def _legend(figure: Figure, algorithms: Sequence[str]) -> None:
    _place_legend(figure, patches(algorithms))


def _line_legend(figure: Figure, algorithms: Sequence[str]) -> None:
    _place_legend(figure, lines(algorithms))


def _loss_legend(figure: Figure, runs: Sequence[Run]) -> None:
    handles = lines(_algorithms(runs))
    if any(run.result.outcome == "crashed" for run in runs):
        handles.append(Line2D([], [], linestyle="", marker="X", color="#777777", label="crash"))
    _place_legend(figure, handles)


def _place_legend(figure: Figure, handles: Sequence[Patch | Line2D]) -> None:
    figure.legend(
        handles=list(handles), loc="outside lower center", ncols=len(handles), columnspacing=1.2
    )


def _mean_handle() -> Line2D:
    return Line2D([], [], linestyle="", marker="D", color="#777777", label="mean")


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
        if run.result.outcome == "crashed":
            _mark_crash(axes, run)
    initial = float(np.median([run.result.initial_loss for run in runs]))
    heights = {percent(fraction): fraction * initial for fraction in fractions(runs)}
    finite = [run.result.loss[np.isfinite(run.result.loss)] for run in runs]
    maybe_log(axes, [*heights.values(), *(float(v) for loss in finite for v in loss)])
    time_axis(axes, [float(run.result.seconds[-1]) for run in runs])
    axes.set(xlabel="time [s]", ylabel="mean training loss")
    side_labels(axes, heights)


def _mark_crash(axes: Axes, run: Run) -> None:
    """A cross at the time when the loss was no number any more, as high as it was last seen."""
    known = np.flatnonzero(np.isfinite(run.result.loss))
    if not known.size:
        return
    last = known[-1]
    axes.plot(
        [run.result.seconds[last], run.result.seconds[-1]],
        [run.result.loss[last], run.result.loss[last]],
        color=colour(run.algorithm),
        linestyle=":",
        linewidth=1.0,
        marker="X",
        markevery=[1],
        markersize=7.0,
        markeredgecolor="black",
        markeredgewidth=0.5,
        zorder=4,
    )


def _draw_staleness(axes: Axes, runs: Sequence[Run]) -> None:
    upper, most = 4.0, 0.0
    told = cells(runs)
    for cell in told:
        share = 100.0 * shares(cell.staleness)
        most = max(most, float(share.max(initial=0.0)))
        axes.plot(
            np.arange(share.size),
            share,
            color=colour(cell.algorithm),
            linestyle=dashes(cell.algorithm),
            drawstyle="steps-mid",
        )
        upper = max(upper, staleness_end(cell.staleness)[0])
    axes.set(xlabel="staleness τ [updates]", ylabel="share of the updates [%]")
    axes.set_xlim(-0.5, upper + 0.5)
    beyond = sum(int(cell.staleness.counts[int(upper) + 1 :].sum()) for cell in told)
    tell_staleness_beyond(axes, beyond, max((cell.staleness.max() for cell in told), default=0))
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
        ends, means = _staleness_means(run.result)
        axes.plot(
            ends,
            means,
            color=colour(run.algorithm),
            linestyle=dashes(run.algorithm),
            linewidth=1.3,
            alpha=_alpha(runs),
        )
    axes.set(xlabel="time [s]", ylabel="mean staleness τ")
    time_axis(axes, [float(run.result.seconds[-1]) for run in runs])
    axes.set_ylim(bottom=0.0)


def _staleness_means(result: TrainResult) -> tuple[NDArray[np.float64], list[float]]:
    """The mean staleness of successive parts of a run: intervals between evaluations, taken together
    until they hold enough updates, and the time at which each part ends. The rest is left out: at the
    end of a run it may be few updates, all of them late.
    """
    total = np.cumsum(result.staleness_over_time, axis=0)
    counts = total.sum(axis=1)
    ends = [0]
    for k, count in enumerate(counts):
        if count - counts[ends[-1]] >= max(1.0, _POINT * counts[-1]):
            ends.append(k)
    parts = np.diff(total[ends], axis=0)
    return result.seconds[ends[1:]], [Histogram(part).mean() for part in parts]


def _draw_thread_rates(axes: Axes, runs: Sequence[Run]) -> None:
    """A column of points per run, a point per thread."""
    algorithms = _algorithms(runs)
    for cell in cells(runs):
        k = algorithms.index(cell.algorithm)
        for repeat, run in enumerate(cell.runs):
            rates = thread_rates(run)
            at = k + 0.7 * ((repeat + 0.5) / len(cell.runs) - 0.5)
            axes.plot(
                np.full(rates.size, at),
                rates,
                linestyle="",
                marker="o",
                markersize=3.0,
                color=colour(cell.algorithm),
                alpha=0.7,
            )
    axes.set_xticks(range(len(algorithms)), algorithms)
    axes.set(xlabel="a column per run, a point per thread", ylabel="updates/s of a thread")
    axes.grid(visible=False, axis="x")
    axes.set_ylim(bottom=0.0)
