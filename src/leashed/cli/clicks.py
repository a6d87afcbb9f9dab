"""Models of clicks on the command line: their data and their tables."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from leashed import datasets, models, stream
from leashed.cli.files import parts_of, stream_of
from leashed.datasets import ClickDataset, ClickSplit
from leashed.datasets.fields import Schema
from leashed.models import tables
from leashed.models.graphs import Graph
from leashed.models.tables import Table
from leashed.rules import Rule
from leashed.staleness import Policy
from leashed.stream import Stream

if TYPE_CHECKING:
    from leashed.cli.arguments import Arguments

__all__ = [
    "MODELS",
    "WORD",
    "Streamed",
    "add_clicks",
    "build",
    "generate",
    "load",
    "make_tables",
    "parts",
    "read",
    "refuse",
    "streamed",
]

_HISTORIES = {"din": models.din, "dien": models.dien, "ecommerce": models.ecommerce}
_COLUMNS: dict[str, Callable[..., Graph]] = {
    "dlrm": models.dlrm,
    "deepfm": models.deepfm,
    "dcn": models.dcn,
    "wide_deep": models.wide_deep,
}
MODELS: dict[str, Callable[[int | None], Graph]] = {
    **_COLUMNS,
    **{
        name: lambda rows, make=make: make(rows, rows, rows)  # type: ignore[misc]
        for name, make in _HISTORIES.items()
    },
}
WORD = "clicks"
"""What ``--data`` calls the generator."""

_TEST_SHARE = 5  # one row of so many of a file is kept for testing
_CARDINALITY = 100_000  # of every feature that is generated
_MEBIBYTE = 2**20


def add_clicks(parser: Arguments) -> None:
    """The arguments of models of clicks."""
    parser.add_argument(
        "--rows", type=int, help="training rows that are generated (default: 100000)"
    )
    parser.add_argument(
        "--table-mib",
        type=float,
        help="memory of each table that grows, in MiB: those of ids from a file (default: 16)",
    )
    parser.add_argument(
        "--admit-after", type=int, help="updates that have an id before it gets a row (default: 1)"
    )
    parser.add_argument(
        "--evict", choices=("age", "norm"), help="rows that make room (default: none do)"
    )


def load(options: argparse.Namespace) -> ClickSplit:
    """Clicks from the seed, or the files that ``--data`` names, whose last fifth is for testing, in
    memory.

    Raises:
        OSError, ValueError: the file is missing or wrong, or ``--rows`` is given with it.
    """
    if options.data in (None, WORD):
        rows = 100_000 if options.rows is None else options.rows
        return generate(options.model, rows, options.seed)
    if options.rows is not None:
        raise ValueError("--rows goes with --data clicks, not with a file")
    data = read(options.data, options)
    if len(data) < 2:
        raise ValueError(f"{options.data} has one row; it takes two, one to test")
    return data.split(test=max(1, len(data) // _TEST_SHARE))


class Streamed(NamedTuple):
    """Rows to train on while they are read, and rows to test, if there are any."""

    train: Stream
    test: ClickDataset | None


def streamed(options: argparse.Namespace) -> Streamed:
    """The files that ``--data`` and ``--test`` name.

    Raises:
        OSError, ValueError: one is missing or wrong, or ``--data`` names none.
    """
    if options.data in (None, WORD):
        raise ValueError("--stream takes --data FILE; what is generated is in memory")
    if options.rows is not None:
        raise ValueError("--rows goes with --data clicks, not with a file")
    test = None if options.test is None else read(str(options.test), options)
    return Streamed(stream_of(options.data, options), test)


def read(path: str, options: argparse.Namespace, rows: int | None = None) -> ClickDataset:
    """The rows of files in memory, all or the first so many.

    Raises:
        OSError, ValueError, TypeError: a file is missing or wrong, or has no ids.
    """
    found = stream_of(path, options).read(rows)
    if not isinstance(found, ClickDataset):
        raise TypeError(f"{path} has no ids; the schema must name some for a model of clicks")
    return found


def parts(path: str, options: argparse.Namespace, most: int | None) -> Iterator[ClickDataset]:
    """The rows of files, or the first so many, part after part.

    Raises:
        OSError, ValueError, TypeError: as ``read``.
    """
    given = stream_of(path, options)
    if not given.features:
        raise TypeError(f"{path} has no ids; the schema must name some for a model of clicks")
    return parts_of(given, most)


def generate(name: str, rows: int, seed: int, test: int = 20_000) -> ClickSplit:
    """Clicks as the named model reads them: with histories, or without."""
    if name in _HISTORIES:
        counts = {"users": _CARDINALITY, "items": _CARDINALITY}
        return datasets.synthetic_histories(rows, seed, test=test, **counts)
    return datasets.synthetic_clicks(rows, seed, test=test, cardinalities=_CARDINALITY)


def build(name: str, options: argparse.Namespace) -> Graph:
    """The named model. Ids that are generated, or that a schema has below some number, are rows of
    fixed tables; the tables of others grow.
    """
    generated = options.data in (None, WORD) and options.days is None
    growing = (options.table_mib, options.admit_after, options.evict)
    if generated and any(option is not None for option in growing):
        raise ValueError(
            "--table-mib, --admit-after and --evict are of tables that grow: those of a file's ids"
        )
    if name in _HISTORIES and not generated:
        raise ValueError(
            f"--model {name} reads histories, which files in Criteo's format have none of; leave "
            "--data out, or train from Python"
        )
    if options.schema is not None:
        if generated:
            raise ValueError("--schema goes with --data FILE, or --days")
        return _of_schema(name, options.schema)
    return MODELS[name](_CARDINALITY if generated else None)


def _of_schema(name: str, path: Path) -> Graph:
    columns = Schema(stream.schema(path)["columns"])
    if not (columns.numbers and columns.ids):
        raise ValueError(f"{path} must have numbers and ids for a model of clicks")
    bounds = [column.bound for column in columns.ids.values()]
    return _COLUMNS[name](bounds, dense=len(columns.numbers))


def refuse(options: argparse.Namespace, *, files: bool = False) -> None:
    """ValueError where an argument is given that other models do not take; with ``files`` they take
    files of rows, also while these are read.
    """
    if options.data == WORD:
        raise ValueError(f"--data {WORD} goes with --model {', '.join(MODELS)}")
    for name in ("rows", "table_mib", "admit_after", "evict", "schema", "bad", "days", "stream"):
        if files and name in ("bad", "schema", "stream"):
            continue
        if getattr(options, name) not in (None, False):
            raise ValueError(f"--{name.replace('_', '-')} goes with --model {', '.join(MODELS)}")


def make_tables(
    model: Graph, options: argparse.Namespace, rule: Rule, staleness: Policy
) -> dict[str, Table]:
    """New tables for it."""
    mebibytes_each = 16.0 if options.table_mib is None else options.table_mib
    if not 0 < mebibytes_each < 2**40:
        raise ValueError(f"--table-mib must be above 0, got {mebibytes_each:g}")
    return tables.of(
        model.tables,
        rule=rule,
        staleness=staleness,
        seed=options.seed,
        max_bytes=math.ceil(mebibytes_each * _MEBIBYTE),
        admit_after=1 if options.admit_after is None else options.admit_after,
        evict=options.evict,
    )
