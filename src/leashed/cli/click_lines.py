"""``leashed clicks``."""

from __future__ import annotations

import argparse
import gzip
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from leashed.base import atomic, checks
from leashed.datasets import synthetic_click_lines

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands

_LEVEL = 1  # of gzip: faster than lines are made by one thread


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "clicks",
        help="generated clicks as Criteo's text",
        description="Write clicks from a seed as lines of Criteo's text: label, 13 counts and 26 "
        "ids of 8 hexadecimal digits, apart by tabs. They are the rows of --data clicks, made as "
        "they are written.",
    )
    parser.add_argument("--rows", type=int, default=100_000, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--day", type=int, default=0, help="from 0 (default)")
    parser.add_argument(
        "--test", action="store_true", help="the day's rows for testing, not those for training"
    )
    parser.add_argument(
        "--drift",
        type=float,
        default=0.0,
        help="share of the hidden model that is drawn anew each day (default: 0)",
    )
    parser.add_argument(
        "--delay",
        type=float,
        default=0.0,
        help="mean time in days until a click is told; labels are those of the day's end (default: 0)",
    )
    parser.add_argument(
        "--cardinality", type=int, default=100_000, help="ids of each feature (default: 100000)"
    )
    parser.add_argument("--threads", type=int, help="default: one for each processor")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="default: standard output; compressed where its name ends in .gz",
    )
    parser.set_defaults(command=_clicks)


def _clicks(options: argparse.Namespace) -> int:
    checks.writable(options.output)
    lines = synthetic_click_lines(
        options.rows,
        options.seed,
        day=options.day,
        test=options.test,
        drift=options.drift,
        delay=options.delay,
        cardinalities=options.cardinality,
        threads=options.threads,
    )
    if options.output is None:
        sys.stdout.buffer.writelines(lines)
        sys.stdout.buffer.flush()
    else:
        _write(options.output, lines)
    return 0


def _write(path: Path, lines: Iterable[bytes]) -> None:
    """Whole, or not at all."""
    with atomic.opened(path) as file:
        if path.suffix == ".gz":
            # Without a name and a time in it: the same rows are the same bytes.
            packed = gzip.GzipFile("", "wb", _LEVEL, file, mtime=0)
            with packed:
                cast("IO[bytes]", packed).writelines(lines)
        else:
            file.writelines(lines)
