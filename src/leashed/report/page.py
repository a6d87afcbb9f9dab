"""One HTML file with the paper's figures and tables, drawn from one's own runs."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leashed.report import figures, html_page, summary, training
from leashed.studies import shown
from leashed.studies.comparison import yardstick
from leashed.studies.runs import Run
from leashed.training.plots.style import finish, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Section:
    """A figure of the report.

    Attributes:
        title: its number in the paper and its subject.
        draw: makes it from the runs, or raises ``NoDataError``.
        caption: how to read it and how it was measured.
    """

    title: str
    draw: Callable[[Sequence[Run]], Figure]
    caption: str


SECTIONS = (
    Section(
        "Figure 3, left: time to ε-convergence",
        figures.time_to_epsilon,
        "Wall-clock time until the mean loss over the training set was first seen at or below ε "
        "of its initial value. Boxes: quartiles, median, whiskers within 1.5 interquartile "
        "ranges, outliers as +; up to five runs also as points. Runs that ended without it are in "
        "no box. Counted above: Converged, the runs in the box; Unfinished, those on their way "
        "when a cap ended them (loss below 0.95 of the initial one); Diverge, the others that "
        "ended without it; Crash, those that met NaN or Inf; Interrupted, those that the user "
        "ended.",
    ),
    Section(
        "Figure 3, right: computational efficiency",
        figures.computational_efficiency,
        "Wall-clock time per published update, all threads together: time of the run over its "
        "updates. An update of SYNC is a step of all threads.",
    ),
    Section(
        "Figure 4: convergence to high precision",
        figures.high_precision,
        "As Figure 3, left, for every ε that was asked for, a panel per number of threads (and per "
        "preset, or set of ε, where the file has several), with SEQ (one thread) beside them.",
    ),
    Section(
        "Figure 5: loss over time",
        figures.loss_over_time,
        "Every run is a line, to its end; grey lines mark ε. A cross marks where a run crashed: when "
        "its loss was no number any more, as high as it was last seen. Where the longest run takes "
        "more than 20 times the shortest, time is logarithmic from half of the shortest on.",
    ),
    Section(
        "Figure 6: staleness",
        figures.staleness,
        "Above: distribution of τ, the updates published between the read of the parameters and "
        "the application of the update (counted from 0), over all repeats. Below it: mean τ "
        "between two evaluations, over time, without intervals that hold under 1% of a run's "
        "updates. Below that, where the results count updates per thread: the rate of each thread, "
        "over the whole run. SEQ and SYNC have no staleness.",
    ),
    Section(
        "Figure 7: the CNN",
        figures.cnn,
        "Time to each ε, loss over time and staleness of the convolutional network, a row per "
        "number of threads.",
    ),
    Section(
        "Figure 8, left: step size",
        figures.step_size,
        "Time to ε by step size, as Figure 3, left, at the number of threads given with --threads, "
        "or else the one with the most step sizes (among equals the paper's 16, or the largest).",
    ),
    Section(
        "Figure 8, right: statistical efficiency",
        figures.statistical_efficiency,
        "Updates until ε was reached.",
    ),
    Section(
        "Figure 9: T_c and T_u",
        figures.gradient_and_update_times,
        "Time to compute a gradient; time of one attempt to update and publish it, for ASYNC with "
        "the lock held, without the wait for it. Where a gradient made several attempts each counts "
        "as their mean. "
        "Diamonds: means (exact). Boxes: quartiles and median, whiskers at 5% and 95%.",
    ),
    Section(
        "Figure 10: memory",
        figures.memory,
        "At every evaluation while the workers ran: resident memory of the whole process, data set "
        "and interpreter included, the monitor's own copies of the parameters not; parameter "
        "vectors and gradients in use. Diamonds: means. Dashed: the 2m + 1 of ASYNC and HOG. The percentages "
        "compare the means of the Leashed algorithms with those of ASYNC and HOG, over all m > 1. "
        "Where runs shared a process, its memory carries the history of the runs before, which "
        "hides savings; runs with a process each stand apart. Right: resident memory over time at "
        "the largest number of threads.",
    ),
    Section(
        "Section IV: threads in the retry loop",
        figures.loop_occupancy,
        "Lines: n(t) from the measured T_c, T_u over published gradients and γ (equations 4 to 7, "
        "continuous limit), starting with all threads computing; it settles at n*_γ. Dashed: the "
        "measured mean, by Little's law the time that all threads spent in the loop over the time "
        "that passed; shaded: its least and most over the runs.",
    ),
)


def render(runs: Sequence[Run], threads: int | None = None) -> tuple[str, list[str]]:
    """The report as HTML without references to anything outside it.

    Args:
        runs: at least one.
        threads: of Figure 8's step sizes; None: as :func:`figures.step_size` chooses.

    Returns:
        The document, and for each figure that could not be drawn its title and why.

    Raises:
        ValueError: there are no runs.
    """
    if not runs:
        raise ValueError("runs must not be empty")
    missing: list[str] = []
    origin = (
        f"{len(runs)} runs. The figures follow Bäckström, Walulya, Papatriantafilou, Tsigas: "
        "Consistent Lock-free Parallel Stochastic Gradient Descent for Fast and Stable Convergence."
    )
    body = [
        "<h1>Consistency disciplines of asynchronous SGD, compared</h1>",
        f"<p>{html.escape(summary.conditions(runs))}.</p>",
        f"<p>{html.escape(origin)} {html.escape(_held_fixed(runs))}</p>",
        "<h2>The comparison</h2>",
    ]
    groups = summary.by_setting(runs)
    for title, group in groups:
        body += [f"<h3>{html.escape(title)}</h3>", html_page.table(summary.comparison(group))]
    body.append(f'<p class="note">{html.escape(summary.COMPARISON_NOTE)}</p>')
    for section in SECTIONS:
        body.append(f"<h2>{html.escape(section.title)}</h2>")
        try:
            body.append(_figure(section, runs, threads))
        except figures.NoDataError as error:
            body.append(f'<p class="missing">Not drawn: {html.escape(str(error))}.</p>')
            missing.append(f"{section.title}: {error}")
        if section.draw is figures.memory:
            body += _memory(runs)
    for title, group in groups:
        table = summary.section_iv(group)
        if table.rows:
            body += [f"<h3>{html.escape(title)}</h3>", html_page.table(table)]
    body.append(f'<p class="note">{html.escape(summary.SECTION_IV_NOTE)}</p>')
    for run in runs:
        if run.result.rows:
            title = f"{run.model} and its tables: {run.algorithm}, m = {run.threads}"
            body += [f"<h2>{html.escape(title)}</h2>", *training.parts(run.result)]
    return html_page.document("leashed: comparison", body), missing


def write(runs: Sequence[Run], path: str | Path, threads: int | None = None) -> list[str]:
    """Write the report to ``path``; arguments and what could not be drawn as for :func:`render`."""
    document, missing = render(runs, threads)
    Path(path).write_text(document, encoding="utf-8")
    return missing


def save_figures(runs: Sequence[Run], folder: str | Path, threads: int | None = None) -> None:
    """Write each figure that can be drawn to ``folder``, as PNG by its name in
    :mod:`leashed.report.figures`.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    for section in SECTIONS:
        with style(), contextlib.suppress(figures.NoDataError):
            finish(_draw(section, runs, threads)).savefig(
                Path(folder) / f"{section.draw.__name__}.png"
            )


def _held_fixed(runs: Sequence[Run]) -> str:
    """The step and batch size of the figures that hold them fixed, where there is a choice."""
    if len({(run.lr, run.batch_size) for run in runs}) == 1:
        return f"Step size η = {runs[0].lr:g}, batches of {runs[0].batch_size}."
    studies = shown.studies(runs)
    chosen = []
    for study in studies:
        best = yardstick(study)
        among = [other for other in studies if other[0].model == best[0].model]
        chosen.append(shown.setting(best, shown.name(best, among)))
    return (
        "All figures but the step-size sweep show the step size that performs best: at which most "
        "runs converged, then the one with the least median time "
        f"({'; '.join(chosen)})."
    )


def _memory(runs: Sequence[Run]) -> list[str]:
    """Figure 10 in numbers."""
    body = []
    for title, table in summary.memory(runs):
        body += [f"<h3>{html.escape(title)}</h3>", html_page.table(table)]
    if body:
        body += [f'<p class="note">{html.escape(summary.MEMORY_NOTE)}</p>']
    return body + [f"<p>{html.escape(line)}</p>" for line in summary.paper_saving(runs)]


def _draw(section: Section, runs: Sequence[Run], threads: int | None) -> Figure:
    if section.draw is figures.step_size:
        return figures.step_size(runs, threads)
    return section.draw(runs)


def _figure(section: Section, runs: Sequence[Run], threads: int | None) -> str:
    with style():
        drawn = _draw(section, runs, threads)
        return html_page.figure(section.title, drawn, section.caption)
