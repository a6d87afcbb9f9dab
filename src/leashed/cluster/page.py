"""The report of a run as one HTML file (extra ``plot``)."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leashed.base.table import Table
from leashed.cluster import (
    history,
    mode_row_table,
    mode_table,
    outcome,
    row_table,
    run_table,
    traffic,
)
from leashed.cluster.measures import Pulse
from leashed.cluster.supervisor import REPORT
from leashed.report import html_page
from leashed.report.plots import cluster as plot
from leashed.training.plots.style import style

__all__ = ["render", "write"]

_CAPTION = (
    "Above: examples per second of each trainer. Middle: its iterations per synchronisation, where "
    "there was one. Both between two reports of the master, a second apart. Below: members by role."
)

Row = Mapping[str, Any]


def render(report: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """The report as HTML without references to anything outside it.

    Args:
        report: as in run.json.
        rows: the run's history.
    """
    body = [
        "<h1>A run of several trainers</h1>",
        html_page.table(Table(["", ""], [list(pair) for pair in run_table.facts(report)])),
        "<h2>Trainers</h2>",
        html_page.table(run_table.trainers(report)),
        f'<p class="note">{html.escape(run_table.NOTE)}</p>',
    ]
    servers = run_table.servers(report)
    if servers.rows:
        body += ["<h2>Sync servers</h2>", html_page.table(servers)]
    for title, told, note in (
        ("Embedding servers", row_table.servers(report), row_table.NOTE),
        ("Policy servers", mode_table.servers(report), mode_table.NOTE),
        ("Rows of policy servers", mode_row_table.servers(report), mode_row_table.NOTE),
        ("Bytes", traffic.table(report), traffic.NOTE),
    ):
        if told.rows:
            body += [
                f"<h2>{title}</h2>",
                html_page.table(told),
                f'<p class="note">{html.escape(note)}</p>',
            ]
    body.append("<h2>Over time</h2>")
    if len(rows) > 1:
        with style():
            body.append(html_page.figure("Over time", plot.draw(*_series(rows)), _CAPTION))
    else:
        body.append('<p class="missing">Not drawn: the run ended before its second report.</p>')
    body += ["<h2>Comings and goings</h2>", html_page.table(run_table.members(report))]
    return html_page.document("leashed: a run", body)


def write(folder: Path, path: Path) -> None:
    """Write the report of the run in ``folder`` to ``path``.

    Raises:
        OSError: there is no run in the folder, or ``path`` cannot be written.
        ValueError: its report is damaged.
    """
    report = outcome.read_report(folder)
    if report is None:
        raise FileNotFoundError(f"{folder} has no run: it lacks {REPORT}")
    path.write_text(render(report, history.read(folder)), encoding="utf-8")


def _series(
    rows: Sequence[Row],
) -> tuple[dict[str, plot.Series], dict[str, plot.Series], dict[str, plot.Series]]:
    """EPS and sync gap by trainer, and members by role."""
    eps: dict[str, tuple[list[float], list[float]]] = {}
    gap: dict[str, tuple[list[float], list[float]]] = {}
    pulse, looked = Pulse(), -math.inf
    for row in rows:
        if row["seconds"] <= looked:
            continue
        told = pulse(row["metrics"], row["seconds"], row["batch_size"])
        first, looked = looked == -math.inf, row["seconds"]
        if first:  # rates are between two reports
            continue
        for name, measures in told.items():
            for found, value in ((eps, measures.eps), (gap, measures.gap)):
                seconds, values = found.setdefault(name.replace("-", " "), ([], []))
                if math.isfinite(value):
                    seconds.append(row["seconds"])
                    values.append(value)
    roles = sorted({role for row in rows for role in row["present"]})
    seconds = [row["seconds"] for row in rows]
    members = {role: (seconds, [row["present"].get(role, 0) for row in rows]) for role in roles}
    return {**eps}, {**gap}, {**members}
