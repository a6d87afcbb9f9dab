"""One HTML file with the paper's figures and tables, drawn from one's own runs."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leashed import summary
from leashed.comparison import yardstick
from leashed.plots import figures
from leashed.plots.style import style
from leashed.runs import Run

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
        "ranges, outliers as +; up to five runs also as points. Runs that ended without it are "
        "in no box; they are counted above as Diverge, and as Crash where they met NaN or Inf.",
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
        "As Figure 3, left, for every ε that was asked for, one panel per number of threads, with "
        "SEQ (one thread) beside them.",
    ),
    Section(
        "Figure 5: loss over time",
        figures.loss_over_time,
        "Every run is a line; grey lines mark ε. The time axis ends at 1.5 times the longest time to "
        "the smallest ε.",
    ),
    Section(
        "Figure 6: staleness",
        figures.staleness,
        "Above: distribution of τ, the updates published between the read of the parameters and "
        "the application of the update (counted from 0), over all repeats. Below: mean τ between "
        "two evaluations, over time, without intervals that hold under 1% of a run's updates. SEQ "
        "and SYNC have none.",
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
        "Time to ε by step size, at the number of threads with the most step sizes.",
    ),
    Section(
        "Figure 8, right: statistical efficiency",
        figures.statistical_efficiency,
        "Updates until ε was reached.",
    ),
    Section(
        "Figure 9: T_c and T_u",
        figures.gradient_and_update_times,
        "Time to compute a gradient, and time to hand it over: for Leashed from entering the "
        "retry loop to leaving it, over all attempts; for ASYNC with the lock held, without the "
        "wait for it. Boxes: quartiles and median, whiskers at 5% and 95%.",
    ),
    Section(
        "Figure 10: memory",
        figures.memory,
        "Resident memory of the whole process, data set and interpreter included, the monitor's "
        "own copies of the parameters not, at every evaluation; parameter vectors and gradients in "
        "use at those moments; resident memory over time at the largest number of threads.",
    ),
    Section(
        "Section IV: threads in the retry loop",
        figures.loop_occupancy,
        "Lines: n(t) from the measured T_c, T_u per attempt and γ (equations 4 to 7, continuous "
        "limit), starting with all threads computing. Dashed: the measured mean, by Little's law "
        "the time that all threads spent in the loop over the time that passed.",
    ),
)

_CSS = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
p, figcaption { max-width: 48rem; }
figure { margin: 1rem 0; } figure img { max-width: 100%; height: auto; }
figcaption, .note { color: #444; font-size: 0.92rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.88rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.7rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 2px solid #333; } tbody tr:nth-child(even) { background: #f4f4f4; }
.missing { background: #f4f4f4; border-left: 4px solid #999; padding: 0.5rem 1rem; }
"""


def render(runs: Sequence[Run]) -> tuple[str, list[str]]:
    """The report as HTML without references to anything outside it.

    Args:
        runs: at least one.

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
        body += [f"<h3>{html.escape(title)}</h3>", _table(summary.comparison(group))]
    body.append(f'<p class="note">{html.escape(summary.COMPARISON_NOTE)}</p>')
    for section in SECTIONS:
        body.append(f"<h2>{html.escape(section.title)}</h2>")
        try:
            body.append(_figure(section, runs))
        except figures.NoDataError as error:
            body.append(f'<p class="missing">Not drawn: {html.escape(str(error))}.</p>')
            missing.append(f"{section.title}: {error}")
    for title, group in groups:
        table = summary.section_iv(group)
        if table.rows:
            body += [f"<h3>{html.escape(title)}</h3>", _table(table)]
    body.append(f'<p class="note">{html.escape(summary.SECTION_IV_NOTE)}</p>')
    document = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>leashed: comparison</title>\n<style>{_CSS}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )
    return document, missing


def write(runs: Sequence[Run], path: str | Path) -> list[str]:
    """Write the report to ``path``; what could not be drawn is returned as by :func:`render`."""
    document, missing = render(runs)
    Path(path).write_text(document, encoding="utf-8")
    return missing


def _held_fixed(runs: Sequence[Run]) -> str:
    """The step and batch size of the figures that hold them fixed, where there is a choice."""
    if len({(run.lr, run.batch_size) for run in runs}) == 1:
        return f"Step size η = {runs[0].lr:g}, batches of {runs[0].batch_size}."
    chosen = []
    for model in sorted({run.model for run in runs}):
        first = yardstick([run for run in runs if run.model == model])[0]
        chosen.append(f"{model}: η = {first.lr:g}, batches of {first.batch_size}")
    return (
        "All figures but the step-size sweep show, per model, the setting at which most runs "
        f"converged ({'; '.join(chosen)})."
    )


def _figure(section: Section, runs: Sequence[Run]) -> str:
    with style():
        drawn = section.draw(runs)
        buffer = io.BytesIO()
        drawn.savefig(buffer, format="svg", metadata={"Date": None})
    encoded = base64.b64encode(buffer.getvalue()).decode("ascii")
    return (
        f'<figure>\n<img alt="{html.escape(section.title)}" '
        f'src="data:image/svg+xml;base64,{encoded}">\n'
        f"<figcaption>{html.escape(section.caption)}</figcaption>\n</figure>"
    )


def _table(table: summary.Table) -> str:
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in table.header)
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    return (
        f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )
