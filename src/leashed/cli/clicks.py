"""Models of clicks on the command line: their data and their tables."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from leashed import datasets, models, tables
from leashed.cli.arguments import existing
from leashed.datasets import ClickSplit
from leashed.models import Graph
from leashed.rules import Rule
from leashed.staleness import Policy
from leashed.tables import Table

if TYPE_CHECKING:
    from leashed.cli.arguments import Arguments

__all__ = [
    "MODELS",
    "WORD",
    "add_clicks",
    "build",
    "generate",
    "load",
    "make_tables",
    "refuse",
]

_HISTORIES = {"din": models.din, "dien": models.dien, "ecommerce": models.ecommerce}
MODELS: dict[str, Callable[[int | None], Graph]] = {
    "dlrm": models.dlrm,
    "deepfm": models.deepfm,
    "dcn": models.dcn,
    "wide_deep": models.wide_deep,
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
    """Clicks from the seed, or the file that ``--data`` names, whose last fifth is for testing.

    Raises:
        OSError, ValueError: the file is missing or wrong, or ``--rows`` is given with it.
    """
    if options.data in (None, WORD):
        rows = 100_000 if options.rows is None else options.rows
        return generate(options.model, rows, options.seed)
    if options.rows is not None:
        raise ValueError("--rows goes with --data clicks, not with a file")
    data = datasets.criteo(existing(options.data))
    if len(data) < 2:
        raise ValueError(f"{options.data} has one row; it takes two, one to test")
    return data.split(test=max(1, len(data) // _TEST_SHARE))


def generate(name: str, rows: int, seed: int, test: int = 20_000) -> ClickSplit:
    """Clicks as the named model reads them: with histories, or without."""
    if name in _HISTORIES:
        counts = {"users": _CARDINALITY, "items": _CARDINALITY}
        return datasets.synthetic_histories(rows, seed, test=test, **counts)
    return datasets.synthetic_clicks(rows, seed, test=test, cardinalities=_CARDINALITY)


def build(name: str, options: argparse.Namespace) -> Graph:
    """The named model. Ids that are generated are rows of fixed tables; those of a file are hashes,
    whose tables grow.
    """
    generated = options.data in (None, WORD)
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
    return MODELS[name](_CARDINALITY if generated else None)


def refuse(options: argparse.Namespace) -> None:
    """ValueError where an argument is given that other models do not take."""
    if options.data == WORD:
        raise ValueError(f"--data {WORD} goes with --model {', '.join(MODELS)}")
    for name in ("rows", "table_mib", "admit_after", "evict"):
        if getattr(options, name) is not None:
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
