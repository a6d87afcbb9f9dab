"""A paper's page: its claims, their trials, and what came out."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import bench.papers
from bench import markdown
from bench.papers.claim import Claim, Told
from bench.run import ROOT
from leashed.studies import study
from leashed.studies.packed import SUFFIX

EXPERIMENTS = ROOT / "bench" / "experiments"
PAGES = ROOT / "docs" / "papers"
NOT_RUN = "declared, not run yet"


def papers() -> dict[str, ModuleType]:
    """Those that have claims, by the names of their pages."""
    names = [one.name for one in pkgutil.iter_modules(bench.papers.__path__)]
    modules = {
        name.replace("_", "-"): importlib.import_module(f"bench.papers.{name}")
        for name in names
        if name != "__main__"
    }
    return {name: module for name, module in modules.items() if hasattr(module, "CLAIMS")}


def write(paper: str, folder: Path = PAGES) -> Path:
    """Write a paper's page and its figures; the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{paper}.md"
    path.write_text(text(papers()[paper], folder), "utf-8")
    return path


def text(module: Any, folder: Path, experiments: Path = EXPERIMENTS) -> str:
    """The page of a module with claims; its figures are saved in the folder.

    Raises:
        ValueError: two claims have one heading, results are of two machines, or a text is too long.
    """
    claims: Sequence[Claim] = module.CLAIMS
    twice = {one.at for one in claims if [other.at for other in claims].count(one.at) > 1}
    if twice:
        raise ValueError(f"more than one claim has this heading: {', '.join(sorted(twice))}")
    title, _, below = module.__doc__.partition("\n")
    files = [_file(one, experiments) for one in claims]
    told = [_told(*each) for each in zip(claims, files, strict=True)]
    ends = [
        [f"[{one.at}](#{_anchor(one.at)})", NOT_RUN if what is None else str(what)]
        for one, what in zip(claims, told, strict=True)
    ]
    sections = (
        _section(*each, folder, experiments) for each in zip(claims, told, files, strict=True)
    )
    return (
        markdown.paragraphs(
            f"# {title.rstrip('.')}",
            "Made by `python -m bench.papers` from the results in `bench/experiments/`; not written "
            "by hand. A trial stands here before it is run. [The paper's parts in the code]"
            "(../papers.md).",
            below.strip(),
            _table(["", "the claim"], ends),
            *sections,
        )
        + "\n"
    )


def _file(claim: Claim, experiments: Path) -> Path | None:
    if claim.results is None:
        return None
    found = sorted(experiments.glob(f"*/{claim.results}.jsonl{SUFFIX}"))
    if len(found) > 1:
        raise ValueError(f"{claim.at}: {claim.results} is there of {len(found)} machines")
    return found[0] if found else None


def _told(claim: Claim, file: Path | None) -> Told | None:
    """What came out; None where it has not been run."""
    if claim.results is None:
        return claim.tell([])
    return None if file is None else claim.tell(study.read(file, claim.parse)[0])


def _section(
    claim: Claim, told: Told | None, file: Path | None, folder: Path, experiments: Path
) -> str:
    made = f" By `{claim.command}`" if claim.command else ""
    if made and file is not None:
        made += f", kept as `{file.relative_to(experiments.parents[1]).as_posix()}`"
    trial = f"**Trial.** {claim.trial}{made}{'.' if made else ''}" if claim.trial or made else ""
    heading = [f"## {claim.at}", f"**Claim.** {claim.claim}" if claim.claim else "", trial]
    if told is None:
        return markdown.paragraphs(*heading, f"**{NOT_RUN.capitalize()}.**")
    end = str(told)
    return markdown.paragraphs(
        *heading,
        f"**{end[0].upper()}{end[1:].rstrip('.')}.** {told.words}".strip(),
        _table(told.table.header, told.table.rows) if told.table is not None else "",
        _beside(claim.at, told, folder),
    )


def _beside(at: str, told: Told, folder: Path) -> str:
    """Our figure beside what theirs shows."""
    drawn = told.picture(folder) if told.picture is not None else None
    if drawn is None:
        return f"The paper's: {told.theirs}" if told.theirs else ""
    return _table(["here", "the paper's"], [[f"![{at}]({drawn.name})", told.theirs]])


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
    if len(header) == 2:
        return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], ["---"] * 2, *lines[1:]])
    return markdown.table(lines[0], lines[1:])


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
