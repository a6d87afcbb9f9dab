"""Pieces of an HTML page that needs nothing outside it."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from leashed.base.table import Table, fitting
from leashed.studies import gba
from leashed.studies.study import Part
from leashed.training.plots.style import finish, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LETTER = 8.0  # pixels, at most, of a character of a table on average
_GAP = 16.0  # of a cell, beside its text
_TABLE = 1336.0  # pixels that a table has on a screen of 1,400
_SHORT = 32  # characters, up to which a cell is one line
_CSS = """
:root { color-scheme: light dark;
        --text: #1a1a1a; --soft: #444444; --page: #ffffff; --stripe: #f4f4f4; --rule: #333333; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e6e6; --soft: #b8b8b8; --page: #161616; --stripe: #242424; --rule: #aaaaaa; }
  figure img { filter: invert(1) hue-rotate(180deg); }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
       max-width: 120rem; margin: 2rem auto; padding: 0 2rem; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
p, figcaption { max-width: 60rem; }
figure { margin: 1rem 0; } figure img { display: block; width: 100%; height: auto; }
figcaption, .note { color: var(--soft); font-size: 0.92rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums;
        margin-bottom: 1rem; }
th, td { padding: 0.2rem 8px; text-align: right; white-space: nowrap; vertical-align: bottom; }
th, td.long { white-space: normal; overflow-wrap: normal; } td.long { vertical-align: top; }
th:first-child, td:first-child, td.long { text-align: left; }
thead th { border-bottom: 2px solid var(--rule); } tbody tr:nth-child(even) { background: var(--stripe); }
.missing { background: var(--stripe); border-left: 4px solid #999999; padding: 0.5rem 1rem; }
@media (max-width: 48rem) {
  body { padding: 0 0.75rem; margin: 1rem auto; }
  figure img { width: 48rem; }
  thead { display: none; } table, tbody, tr, td { display: block; } tr { padding: 0.3rem 0; }
  td, td.long { display: flex; justify-content: space-between; gap: 1rem; white-space: normal;
                overflow-wrap: anywhere; }
  td::before { content: attr(data-name); color: var(--soft); text-align: left; }
  td:first-child { font-weight: bold; } td:first-child::before { content: none; }
}
"""


def document(title: str, body: Iterable[str]) -> str:
    """A page of that title, from the HTML of its parts."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


Section = Part


def study(path: Path, title: str, drawn: Figure, caption: str, found: Table, note: str) -> None:
    """Write the page of a study that is one figure, one table and a note on what they hold."""
    studies(path, title, [Part(title, found, note, lambda: drawn, caption)])


def studies(path: Path, title: str, parts: Sequence[Part]) -> None:
    """Write the page of a study of several such parts, each under its title."""
    body = [f"<h1>{html.escape(title)}</h1>"]
    with style():
        for part in parts:
            if len(parts) > 1 and part.title:
                body.append(f"<h2>{html.escape(part.title)}</h2>")
            if part.drawn is not None:
                body.append(figure(part.title, part.drawn(), part.caption))
            if part.found is not None:
                body.append(table(part.found))
            body += [f"<p>{html.escape(part.note)}</p>"] if part.note else []
    path.write_text(document(title, body), encoding="utf-8")


def write(path: Path, found: gba.Found) -> None:
    """Write the page of ``leashed bench switching``, of what is found already."""
    studies(path, gba.Switching.TITLE, gba.parts(found))


def figure(title: str, drawn: Figure, caption: str) -> str:
    """A figure within the page, with its caption. To be called within the style it was drawn in."""
    buffer = io.BytesIO()
    finish(drawn).savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    encoded = base64.b64encode(buffer.getvalue()).decode("ascii")
    return (
        f'<figure>\n<div class="scroll"><img alt="{html.escape(title)}" '
        f'src="data:image/svg+xml;base64,{encoded}"></div>\n'
        f"<figcaption>{html.escape(caption)}</figcaption>\n</figure>"
    )


def table(given: Table) -> str:
    """A table; one that is wider than a screen of 1,400 pixels in parts below each other, each with
    the first column. On a narrow screen each row is a list of its cells, with their columns' names.
    """
    words = [max(map(len, name.split()), default=0) for name in given.header]
    cells = zip(words, *([_letters(cell) for cell in row] for row in given.rows), strict=True)
    widths = [_GAP + _LETTER * max(column) for column in cells]
    parts = [_part(given, columns) for columns in fitting(widths, _TABLE)]
    return "\n".join(f'<div class="scroll"><table>\n{part}</table></div>' for part in parts)


def _letters(cell: str) -> int:
    """That stand in one line, whatever the width."""
    return len(cell) if len(cell) <= _SHORT else max(_SHORT, *map(len, cell.split()))


def _part(given: Table, columns: Sequence[int]) -> str:
    def cell(text: str, name: str) -> str:
        long = ' class="long"' if len(text) > _SHORT else ""
        return f'<td{long} data-name="{html.escape(name)}">{html.escape(text)}</td>'

    head = "".join(f'<th scope="col">{html.escape(given.header[k])}</th>' for k in columns)
    rows = "".join(
        "<tr>" + "".join(cell(row[k], given.header[k]) for k in columns) + "</tr>\n"
        for row in given.rows
    )
    return f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>"
