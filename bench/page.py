"""Makes ``docs/performance.md`` and its charts from a file of results.

python -m bench.page [results.json] [--section NAME results.json ...]

A section that was measured anew on another machine tells which.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from bench import figures, machine
from bench.charts import Bars, draw
from bench.figures import Results
from bench.markdown import count, number, paragraphs, table
from bench.run import RESULTS, ROOT
from bench.section import Goal, Parts, asked, sections
from bench.turns import QUIET
from leashed.base.table import MISSING

DOCS = ROOT / "docs"
CHARTS = "performance"  # folder beside the page


def page(results: Results, docs: Path, others: Mapping[str, Results] = MappingProxyType({})) -> str:
    """The page's text; its charts are saved below ``docs``.

    Args:
        others: the results of which a section is, in place of these.
    """
    (docs / CHARTS).mkdir(parents=True, exist_ok=True)
    replaced = {name: other["sections"][name] for name, other in others.items()}
    results = {**results, "sections": {**results["sections"], **replaced}}
    told = {}
    for name, section in sections().items():
        text = _drawn(section.words(results), docs)
        if name in others:
            where = others[name]["machine"]
            text = paragraphs(
                f"Measured on {where['cpu']}, {count(where['cores'], 'processor')}.", text
            )
        told[section.title] = text
    text = paragraphs(
        "# Performance",
        "Made by `make bench-page` from the results of `make bench`; not written by hand. "
        "[bench/README.md](../bench/README.md) tells how everything is measured.",
        _machine(results),
        "## Goals",
        _goals(results),
        *(f"## {title}\n\n{text}" for title, text in told.items() if text),
        *_misses(results, docs),
    )
    return text + "\n"


def _drawn(parts: Parts, docs: Path) -> str:
    """The text, with charts in it; one without a bar is left out."""
    if isinstance(parts, str):
        return parts
    lines = []
    for part in parts:
        if isinstance(part, Bars):
            if part.series:
                draw(part, docs / CHARTS / f"{part.name}.svg")
                lines.append(f"![{part.title}]({CHARTS}/{part.name}.svg)")
        else:
            lines.append(part)
    return paragraphs(*lines)


def _machine(results: Results) -> str:
    told, data = results["machine"], results["data"]
    measured = results["sections"].values()
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    text = (
        f"{told['cpu']}, {count(told['cores'], 'processor')}, kernels for `{told['isa']}`. "
        f"Data: {data['name']}, {data['examples']:,} images. {versions}. Measured in "
        f"{number(sum(section['seconds'] for section in measured) / 60.0)} minutes; the load before "
        f"a section was at most {max(section['load_before'] for section in measured):.1f}."
    )
    disturbed, turns = figures.disturbed(results)
    if turns:
        text += (
            f" {disturbed} of {turns} turns of training got less than {QUIET} of the processors that "
            "they asked for: other programs ran."
        )
    if any(section["scale"] < 1.0 for section in measured):
        text += " **Some sections were measured with shortened turns: no results to keep.**"
    return text


def _value(goal: Goal, value: float) -> str:
    return f"{number(value)}{goal.unit}"


def _goals(results: Results) -> str:
    rows = []
    for _, goal in asked(results):
        value = goal.measure(results)
        rows.append(
            [
                goal.work,
                f"{'≥' if goal.least else '≤'} {_value(goal, goal.target)}",
                MISSING if value is None else _value(goal, value),
                "not measured" if value is None else "met" if goal.met(value) else "**missed**",
            ]
        )
    return table(["work", "goal", "measured", ""], rows)


def _misses(results: Results, docs: Path) -> Iterator[str]:
    """A profile for every kind of goal that is missed."""
    missed: dict[str, list[str]] = {}
    profiles = {}
    for section, goal in asked(results):
        value = goal.measure(results)
        if value is not None and not goal.met(value):
            heading = goal.profile or next(iter(section.profiles))
            profiles[heading] = section.profiles[heading]
            missed.setdefault(heading, []).append(
                f"- {goal.work}: {_value(goal, value)}, goal {_value(goal, goal.target)}"
            )
    if missed:
        yield "# Goals that are missed, and what bounds them"
    for heading, lines in missed.items():
        told = _drawn(profiles[heading](results), docs)
        yield paragraphs(f"## Profile: {heading}", "\n".join(lines), told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument(
        "results", type=Path, nargs="?", help="default: those of this kind of machine"
    )
    parser.add_argument(
        "--section",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "RESULTS"),
        help="a section of another machine's results, in place of these",
    )
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the page goes")
    arguments = parser.parse_args()
    path = arguments.results or RESULTS / f"{machine.slug()}.json"
    results = json.loads(path.read_text("utf-8"))
    others = {name: json.loads(Path(file).read_text("utf-8")) for name, file in arguments.section}
    text = page(results, arguments.docs, others)
    (arguments.docs / "performance.md").write_text(text, "utf-8")
    print(arguments.docs / "performance.md")


if __name__ == "__main__":
    main()
