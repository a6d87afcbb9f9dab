"""What the commands of studies share: their options, and how a study is run, kept and told.

``STUDIES`` has all of them: one is a class, and a line there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leashed.base import checks
from leashed.cli.arguments import add_data, add_fields, given, load_data
from leashed.cluster.shadowsync.figure5 import Figure5
from leashed.cluster.shadowsync.panels import VirtualFigure6, VirtualFigure8
from leashed.cluster.shadowsync.quality import Sweep, Table2
from leashed.cluster.shadowsync.served import VirtualServed
from leashed.cluster.shadowsync.virtual import (
    VirtualFigure5,
    VirtualSweep,
    VirtualTable2,
    VirtualTable2b,
)
from leashed.report.scaling import Scaling
from leashed.studies import damping, normalisation, persistence, shat, swap
from leashed.studies.combinations import Combinations
from leashed.studies.contention import Contention
from leashed.studies.gba import Switching
from leashed.studies.global_batch import Batches
from leashed.studies.gradient_norms import Norms
from leashed.studies.hyperparameters import Sets
from leashed.studies.packed import unpacked
from leashed.studies.stale import Counting
from leashed.studies.study import Data, Kept, Part, Ran, Record, Study, read, run
from leashed.studies.tune import Search
from leashed.training.progress import Line, describe, tell

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands

__all__ = [
    "STUDIES",
    "add",
    "add_arguments",
    "add_fields",
    "given",
    "has_records",
    "kept_of",
    "perform",
    "write_page",
]

STUDIES: tuple[type[Study], ...] = (
    Batches,
    Combinations,
    Contention,
    Counting,
    Figure5,
    Norms,
    Scaling,
    Search,
    Sets,
    Sweep,
    Switching,
    Table2,
    VirtualFigure5,
    VirtualFigure6,
    VirtualFigure8,
    VirtualServed,
    VirtualSweep,
    VirtualTable2,
    VirtualTable2b,
    damping.Asked,
    normalisation.Asked,
    persistence.Asked,
    shat.Asked,
    swap.Asked,
)
"""Of the fifteen, of which ShadowSync's is ten."""

RUNS_LEFT = 3
"""The exit status where ``--minutes`` has left runs."""

INTERRUPTED = 130
_NAMED = 8  # runs that are left


STATUSES = (
    "Exit status: 0; 2 for a wrong argument or file; 3 if --minutes left runs; 130 after Ctrl-C."
)


def add(commands: Commands) -> None:
    """Add the commands of the studies that need no more options than their fields."""
    for kind in STUDIES:
        if kind.DESCRIPTION:
            parser = commands.add_parser(
                kind.NAME, help=kind.HELP, description=f"{kind.DESCRIPTION} {STATUSES}"
            )
            if kind.DATA:
                add_data(parser)
            add_fields(parser, kind)
            add_arguments(parser)
            parser.set_defaults(command=_command, kind=kind)


def _command(options: argparse.Namespace) -> int:
    kind: type[Study] = options.kind
    kept, study = kept_of(options), kind(**given(options, kind))
    return perform(study, options, kept, load_data(options) if kind.DATA else None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that every study has."""
    group = parser.add_argument_group("runs")
    group.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write each run's record to this file as it ends, as JSON lines; 'leashed report' reads it",
    )
    group.add_argument(
        "--resume", action="store_true", help="add to the --output that is there what it lacks"
    )
    group.add_argument(
        "--minutes",
        type=float,
        help="begin no run, but the first, that would end later if it takes as long as those "
        "before on average; --resume goes on",
    )
    group.add_argument(
        "--report", type=Path, metavar="HTML", help="write a page with tables and figures there"
    )
    group.add_argument(
        "--json-lines",
        action="store_true",
        help="print each record as a line of JSON; the tables go to standard error",
    )


def kept_of(options: argparse.Namespace, parse: Callable[[str], Any] = Study.parsed) -> Kept:
    """What ``--output`` has; the options that every study has are checked."""
    if options.resume and options.output is None:
        raise ValueError("--resume goes with --output, the file to go on with")
    if options.minutes is not None:
        checks.real("minutes", options.minutes, 0.0)
    checks.writable(options.output)
    checks.drawable(options.report)
    written: dict[Path, str] = {}
    for name in ("output", "report", "page", "plot"):
        path: Path | None = getattr(options, name, None)
        if path is not None and (other := written.setdefault(path.resolve(), name)) != name:
            raise ValueError(f"--{name} {path} is what --{other} writes; name another file")
    return Kept(options.output, parse, resume=options.resume, told=tell)


def perform(
    study: Study,
    options: argparse.Namespace,
    kept: Kept,
    data: Data = None,
    *,
    announced: Callable[[int], object] | None = None,
    ended: Callable[[Any, str], object] = lambda *_: None,
    printed: Callable[[Sequence[Any]], str] | None = None,
    write: Callable[[Path, Sequence[Any]], object] | None = None,
) -> int:
    """Run what is left of a study, print what its records tell, and write the page; the command's
    exit status.

    Args:
        study: what to run.
        options: of ``add_arguments``.
        kept: of ``kept_of``.
        data: what to train on.
        announced: called with how many settings are left.
        printed: what is printed of the records that are shown. Default: the study's text.
        ended: called with each new record, and how the line of progress calls it.
        write: writes the page of the records that are shown. Default: that of the study's parts.
    """
    try:
        left = study.left(kept.records, data)
    except ValueError as error:
        if not kept.records:
            raise
        raise ValueError(
            f"{options.output}: {error}; give the same arguments, or another --output"
        ) from None
    todo = len(left)
    if announced is not None:
        announced(todo)
    elif kept.records:
        rest = study.rest(left, kept.records)
        tell(f"{options.output}: {len(kept.records)} records are there, {rest}")
    line, current = Line(sys.stderr), ""

    def begun(setting: Any, number: int) -> None:
        nonlocal current
        of = f"/{todo}" if todo > number else ""
        current = f"{number + 1}{of} {study.words(setting)}"
        line.show(current)

    def has_ended(record: Any) -> None:
        line.clear()
        ended(record, current)
        if options.json_lines:
            print(study.line(record), flush=True)

    ran = run(
        study,
        data,
        kept=kept,
        minutes=options.minutes,
        begun=begun,
        ended=has_ended,
        progress=lambda now: line.show(f"{current}  {describe(now)}"),
    )
    line.clear()
    shown = study.shown(ran.records)
    if shown:
        if text := (printed or study.text)(shown):
            print(text, file=sys.stderr if options.json_lines else sys.stdout)
        if options.report is not None:
            if write is None:
                _write(options.report, study.TITLE, study.parts(shown))
            else:
                write(options.report, shown)
    _tell_left(study, ran, options, len(shown))
    if ran.interrupted:
        return INTERRUPTED
    return RUNS_LEFT if ran.left else 0


def _tell_left(study: Study, ran: Ran, options: argparse.Namespace, shown: int) -> None:
    """What is left, by name, and what to do about it; nothing where nothing is."""
    if shown < len(ran.records):
        tell(
            f"{len(ran.records) - shown} records are in no table: of repeats that are not whole, or "
            "of settings that are not asked for"
        )
    left = ran.left
    if not left:
        return
    remedy = (
        "; with --output FILE runs are kept, and --resume goes on"
        if options.output is None
        else "; the same command with --resume goes on"
    )
    tell(f"{study.rest(left, ran.records)}{remedy}")
    more = f", and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    tell(f"left: {', '.join(map(study.words, left[:_NAMED]))}{more}")
    if not shown:
        tell("there are no tables yet" + ("" if options.report is None else ", nor a page"))


def _write(path: Path, title: str, parts: Sequence[Part]) -> None:
    from leashed.report import html_page  # noqa: PLC0415 (matplotlib is optional)

    html_page.studies(path, title, parts)


def has_records(path: Path) -> bool:
    """Whether a file begins with a record of a study, and not with a result of training."""
    first = unpacked(path).lstrip().partition(b"\n")[0]
    try:
        return "study" in json.loads(first)
    except (ValueError, TypeError):
        return False


def write_page(files: Sequence[Path], path: Path) -> int:
    """Write the page of the records in files; how many these are. What belongs to one study, under
    the same conditions, is told together; of repeats those that are whole.

    Raises:
        OSError: a file cannot be read.
        ValueError: a line is no record, or its study is unknown.
    """
    kinds = {kind.NAME: kind for kind in STUDIES}
    groups: dict[str, list[Record]] = {}
    for file in files:
        records: list[Record]
        records, size = read(file)
        if size < len(unpacked(file)):
            tell(f"{file}: its last line was not written to the end and is dropped")
        for record in records:
            if record["study"] not in kinds:
                raise ValueError(f"{file}: there is no study {record['study']}")
            key = json.dumps([record["study"], record["conditions"]])
            groups.setdefault(key, []).append(record)
    titles: list[str] = []
    parts: list[Part] = []
    for group in groups.values():
        study = kinds[group[0]["study"]].of(group)
        shown = study.shown(group)
        if len(shown) < len(group):
            tell(
                f"{study.NAME}: {len(group) - len(shown)} records are in no table: of repeats that "
                "are not whole, or there twice"
            )
        if shown:
            titles.append(study.TITLE)
            parts += study.parts(shown)
    if not parts:
        raise ValueError(
            "no repeat is whole, so there is nothing to tell; --resume goes on with runs"
        )
    _write(path, ", ".join(dict.fromkeys(titles)), parts)
    return sum(map(len, groups.values()))
