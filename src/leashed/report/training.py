"""One HTML page of a training run (extra ``plot``)."""

from __future__ import annotations

import html
from pathlib import Path

from leashed.base.table import Table
from leashed.report import html_page
from leashed.report.facts import TABLES_NOTE, facts, tables
from leashed.training.plots.style import style
from leashed.training.result import TrainResult

__all__ = ["parts", "render", "write"]

_CAPTION = (
    "Loss, accuracy, AUC and normalised entropy as evaluated while the threads trained; throughput "
    "between two evaluations. Staleness τ: updates published between the read of the parameters and "
    "the update; of a row, those of that row by others, in bins that double."
)


def parts(result: TrainResult) -> list[str]:
    """What came of a run, over time, and its tables, as HTML."""
    with style():
        drawn = html_page.figure(f"{result.config['model']} over time", result.plot(), _CAPTION)
    body = [html_page.table(Table(["", ""], [list(fact) for fact in facts(result)])), drawn]
    counted = tables(result)
    if counted.rows:
        note = f'<p class="note">{html.escape(TABLES_NOTE)}</p>'
        body += ["<h3>Tables</h3>", html_page.table(counted), note]
    return body


def render(result: TrainResult) -> str:
    """The page as HTML without references to anything outside it.

    Args:
        result: of :func:`leashed.train`, or read from its JSON.
    """
    model = result.config["model"]
    body = [f"<h1>A training of {html.escape(model)}</h1>", *parts(result)]
    return html_page.document(f"leashed: {model}", body)


def write(result: TrainResult, path: Path) -> None:
    """Write the page to ``path``; OSError where that fails."""
    path.write_text(render(result), encoding="utf-8")
