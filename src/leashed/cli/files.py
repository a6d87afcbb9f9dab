"""Files of clicks on the command line: Criteo's format, or CSV by a schema."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leashed import stream
from leashed.cli.arguments import existing
from leashed.datasets.files import paths_of
from leashed.stream import SparseStream, Stream

if TYPE_CHECKING:
    from leashed.cli.arguments import Arguments

__all__ = ["add_files", "expanded", "parts_of", "read_for", "stream_of"]

_PART = 65_536  # rows that are in memory at once, where not all are


def add_files(parser: Arguments) -> None:
    """The arguments that ``stream_of`` reads."""
    parser.add_argument(
        "--schema",
        type=Path,
        metavar="FILE",
        help="what the columns of CSV files become, as JSON: "
        '{"columns": {"clicked": {"kind": "label"}, "city": {"kind": "hashed"}, …}} '
        "(default: files are in Criteo's format)",
    )
    parser.add_argument(
        "--bad",
        choices=("fail", "skip"),
        help="what to do about a line that is no row (default: fail)",
    )


def stream_of(paths: str | Path | Sequence[Path], options: argparse.Namespace) -> Stream:
    """The rows of files; a pattern is its files by name.

    Raises:
        FileNotFoundError: one is not there.
        OSError, ValueError: one cannot be read, or the schema is wrong.
    """
    if isinstance(paths, (str, Path)) and not has_magic(str(paths)):
        existing(paths)
    bad = "fail" if options.bad is None else options.bad
    if options.schema is None:
        return stream.criteo(paths, bad=bad)
    return stream.csv(paths, **stream.schema(options.schema), bad=bad)


def parts_of(stream: Stream | SparseStream, most: int | None) -> Iterator[Any]:
    """The rows of a stream, or the first so many, part after part."""
    left = math.inf if most is None else most
    for part in stream.parts(_PART if most is None else min(_PART, most)):
        taken = part if left >= len(part) else part.head(int(left))
        left -= len(taken)
        yield taken
        if left == 0:
            return


def read_for(given: Iterable[str | Path | None]) -> set[Path]:
    """The files there are of those names and patterns, which nothing is to be written in place of."""
    named = [str(each) for each in given if each is not None]
    found = [Path(file) for each in named for file in glob(each) or [each]]  # noqa: PTH207
    return {file.resolve() for file in found if file.is_file()}


def expanded(patterns: Sequence[str]) -> dict[str, Path]:
    """The files, each by its name, those of a pattern by name.

    Raises:
        FileNotFoundError: one is not there, or a pattern has none.
        ValueError: two have one name.
    """
    found: dict[str, Path] = {}
    for path in paths_of(patterns):
        assert isinstance(path, Path)
        if path.name in found:
            raise ValueError(f"two days are called {path.name}; give each file a name of its own")
        found[path.name] = path
    return found
