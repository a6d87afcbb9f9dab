"""Files that words name: of clicks, in Criteo's format or CSV by a schema, and of sparse rows."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from leashed import stream
from leashed.base.options import option
from leashed.base.target import TargetWord, of_text
from leashed.datasets.fields import Schema
from leashed.datasets.files import paths_of
from leashed.datasets.text import CRITEO
from leashed.stream import SparseStream, Stream
from leashed.stream.batches import is_parquet, separator_of

__all__ = [
    "FILES",
    "WHAT",
    "FileWords",
    "existing",
    "expanded",
    "parts_of",
    "read_for",
    "stream_of",
    "target_of",
]

WHAT = "what is trained, and on what"
FILES = "files of clicks and of sparse rows"

_PART = 65_536  # rows that are in memory at once, where not all are


@dataclass(frozen=True, kw_only=True)
class FileWords:
    """What is read, and how."""

    data: str | None = option(
        None,
        "folder with the four IDX files of MNIST or Fashion-MNIST, plain or .gz, or a file of rows "
        "(default: synthetic digits)",
        group=WHAT,
        metavar="PATH",
    )
    model: str = option("mlp", "")
    schema: str | None = option(
        None,
        "what the columns of CSV files become, as JSON: "
        '{"columns": {"clicked": {"kind": "label"}, "city": {"kind": "hashed"}, …}} '
        "(default: files are in Criteo's format)",
        group=FILES,
        metavar="FILE",
    )
    label: str | None = option(
        None,
        "the column that is to be predicted, or several, clicked,bought, each 0 or 1, of Parquet or CSV "
        "files without --schema: what the others become is found in the first rows (see "
        "leashed.stream.infer)",
        group=FILES,
        metavar="COLUMN[,COLUMN]",
    )
    target: str | None = option(
        None,
        "what is predicted: a click, 0 or 1, a number, or one of several classes, numbered from 0, as many "
        "as there are or classes=N (default: click)",
        group=FILES,
        metavar="click|number|classes[=N]",
    )
    bad: str | None = option(
        None,
        "what to do about a line that is no row (default: fail)",
        group=FILES,
        choices=("fail", "skip"),
    )
    stream: bool = option(
        False,
        "train on --data while it is read, in order, once unless --epochs says more; it need not "
        "fit into memory, and may be a pattern of several files. --test FILE has rows to test",
        group=FILES,
    )
    days: tuple[str, ...] | None = option(
        None,
        "in place of --data: train on one file after the other, those of a pattern by name, each "
        "once unless --epochs says more, after the model of the file before has predicted it. --checkpoint FOLDER has the state: "
        "the same command goes on, also after a kill, and with files that have come since",
        group=FILES,
        metavar="FILES",
        nargs="+",
    )
    shuffle: int | None = option(
        None,
        "with --stream and --days: each ROWS rows in an order drawn from the seed, instead of that of the "
        "files; so many rows are in memory then (default: as they come)",
        group=FILES,
        metavar="ROWS",
    )
    test: str | None = option(
        None,
        "rows to test (default: the last fifth of --data; with --stream none)",
        group=FILES,
        metavar="FILE",
    )
    seed: int = option(0, "of the parameters, of batches, and of what is generated", group=WHAT)


def existing(path: str | os.PathLike[str]) -> Path:
    """FileNotFoundError where nothing has that name."""
    found = Path(path)
    if not found.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return found


def stream_of(
    paths: str | Path | Sequence[Path],
    words: FileWords,
    known: Schema | None = None,
    *,
    shuffle: int | None = None,
) -> Stream:
    """The rows of files; a pattern is its files by name, a folder the Parquet files in it.

    Args:
        known: what columns become where no word says it: of the model that is to read them.
        shuffle: as of ``stream.csv``. Default: rows come in their order.

    Raises:
        FileNotFoundError: one is not there.
        OSError, ValueError: one cannot be read, or the schema is wrong.
    """
    if isinstance(paths, (str, Path)) and not has_magic(str(paths)):
        existing(paths)
    given: dict[str, Any] = {"bad": "fail" if words.bad is None else words.bad}
    if shuffle is not None:
        given |= {"shuffle": shuffle, "seed": words.seed}
    if words.schema is not None and words.label is not None:
        raise ValueError(
            "--label goes without --schema, which says what the label is; give one of them"
        )
    parquet = is_parquet(paths)
    columns: Any = {} if words.schema is None else stream.schema(words.schema)
    if not columns and known is not None and known != CRITEO.schema:
        if words.label is not None and label_of(words.label) != known.target:
            of_model = ",".join(known.heads) or known.target
            raise ValueError(f"--label is {of_model} of the model, got {words.label}")
        columns = {"columns": known.columns}
        if not parquet:
            columns["separator"] = separator_of(paths_of(paths)[0])
    elif words.label is not None:
        target = target_of(words)
        columns = _inferred(_hashable(words.days or paths), words.label, target)
    if parquet:
        if not columns:
            raise ValueError(f"{paths} is Parquet; say --label COLUMN, or --schema FILE")
        return stream.parquet(paths, columns["columns"], **given)
    return stream.csv(paths, **columns, **given) if columns else stream.criteo(paths, **given)


def target_of(words: FileWords) -> TargetWord:
    """What rows are to give. ValueError where ``--target`` is no such word."""
    return "click" if words.target is None else of_text(words.target)


def label_of(text: str) -> str | list[str]:
    """The column, or those apart by commas."""
    names = text.split(",")
    return names if len(names) > 1 else text


def _hashable(paths: Any) -> str | tuple[str, ...]:
    return str(paths) if isinstance(paths, (str, Path)) else tuple(map(str, paths))


@lru_cache
def _inferred(paths: str | tuple[str, ...], label: str, target: TargetWord) -> dict[str, Any]:
    """What the columns of files become, looked at once."""
    several = paths if isinstance(paths, str) else list(paths)
    found = stream.infer(several, label=label_of(label), target=target)
    return {
        "columns": found,
        **({} if found.separator is None else {"separator": found.separator}),
    }


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
