"""Pieces of an HTML page that needs nothing outside it."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from leashed.base.table import Table
from leashed.studies import gba
from leashed.studies.study import Part
from leashed.training.plots.style import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CSS = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 120rem; margin: 2rem auto; padding: 0 2rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
p, figcaption { max-width: 60rem; }
figure { margin: 1rem 0; } figure img { display: block; width: 100%; height: auto; }
figcaption, .note { color: #444; font-size: 0.92rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.88rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.7rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 2px solid #333; } tbody tr:nth-child(even) { background: #f4f4f4; }
.missing { background: #f4f4f4; border-left: 4px solid #999; padding: 0.5rem 1rem; }
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
    drawn.savefig(buffer, format="svg", metadata={"Date": None})
    encoded = base64.b64encode(buffer.getvalue()).decode("ascii")
    return (
        f'<figure>\n<img alt="{html.escape(title)}" '
        f'src="data:image/svg+xml;base64,{encoded}">\n'
        f"<figcaption>{html.escape(caption)}</figcaption>\n</figure>"
    )


def table(given: Table) -> str:
    """A table."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in given.header)
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in given.rows
    )
    return (
        f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )
