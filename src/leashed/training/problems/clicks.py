"""Models of clicks that words describe: their data and their tables."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from leashed import datasets, models
from leashed.base import checks
from leashed.base.options import option
from leashed.datasets import ClickDataset, ClickSplit
from leashed.datasets.fields import Schema
from leashed.models import tables
from leashed.models.graphs import Graph
from leashed.models.layers import BatchNorm, DataNorm
from leashed.models.tables import Table
from leashed.rules import Rule
from leashed.staleness import Policy
from leashed.stream import Stream
from leashed.stream.batches import is_parquet
from leashed.training.problems.files import WHAT, FileWords, expanded, stream_of, target_of

__all__ = [
    "GROUP",
    "MODELS",
    "SHAPES",
    "WORD",
    "ClickWords",
    "Streamed",
    "build",
    "generate",
    "load",
    "make_tables",
    "read",
    "refuse",
    "shape_of",
    "shapes",
    "streamed",
    "table_settings",
]

_HISTORIES: dict[str, Callable[..., Graph]] = {
    "din": models.din,
    "dien": models.dien,
    "ecommerce": models.ecommerce,
}
_COLUMNS: dict[str, Callable[..., Graph]] = {
    "dlrm": models.dlrm,
    "deepfm": models.deepfm,
    "dcn": models.dcn,
    "wide_deep": models.wide_deep,
}
MODELS: dict[str, Callable[..., Graph]] = {**_COLUMNS, **_HISTORIES}
WORD = "clicks"
"""What ``--data`` calls the generator."""

GROUP = "models of clicks"
_TEST_SHARE = 5  # one row of so many of a file is kept for testing
_CARDINALITY = 100_000  # of every feature that is generated
_MEBIBYTE = 2**20
_SIZE = checks.size
NORMS = {"batch": BatchNorm, "data": DataNorm}
SHAPES = ("dim", "hidden", "bottom", "cross", "attention", "longest")
"""Options of a model's shape."""
_RENAMED = {("dlrm", "hidden"): "top"}


@dataclass(frozen=True, kw_only=True)
class ClickWords(FileWords):
    """What is asked of models of clicks."""

    rows: int | None = option(
        None, "training rows that are generated (default: 100000)", group=GROUP
    )
    table_mib: float | None = option(
        None,
        "memory of each table that grows, in MiB: those of ids from a file (default: as --table-share has "
        "it)",
        group=GROUP,
    )
    table_share: float | None = option(
        None,
        "share of this machine's memory, or of its control group's, for all tables that grow together "
        f"(default: {tables.SHARE:g})",
        group=GROUP,
    )
    admit_after: int | None = option(
        None, "updates that have an id before it gets a row (default: 1)", group=GROUP
    )
    table_weight_decay: float | None = option(
        None,
        "weight decay of the rows that an update has, added to their gradients (default: 0)",
        group=GROUP,
    )
    evict: str | None = option(
        None, "rows that make room (default: none do)", group=GROUP, choices=("age", "norm")
    )
    dropout: float | None = option(
        None,
        "share of values behind each ReLU that are 0 in training (default: 0)",
        group=GROUP,
        metavar="RATE",
    )
    norm: str | None = option(
        None,
        "normalisation before each ReLU of the MLPs, by what a batch comes to (default: none)",
        group=GROUP,
        choices=tuple(NORMS),
    )
    dim: int | None = option(None, "floats of a row (default: 16)", group=GROUP)
    hidden: tuple[int, ...] = option(
        (),
        "widths of the MLP, behind the interaction too, without the output's; of --model mlp those of "
        "its hidden layers (default: 128,128,128)",
        group=WHAT,
    )
    bottom: tuple[int, ...] = option(
        (), "widths of the MLP of the numbers, the last being --dim", group=GROUP
    )
    cross: int | None = option(None, "cross layers (default: 3)", group=GROUP)
    attention: tuple[int, ...] = option(
        (), "widths of the attention unit's MLP (default: 80,40)", group=GROUP
    )
    longest: int | None = option(
        None, "items of a history that are read, its first ones (default: 20)", group=GROUP
    )


def shapes(name: str) -> dict[str, str]:
    """The options of its shape that the named model has, and its arguments of each."""
    has = inspect.signature(MODELS[name]).parameters
    # DLRM's MLP behind the interaction has a name of its own.
    named = {word: _RENAMED.get((name, word), word) for word in SHAPES}
    return {word: argument for word, argument in named.items() if argument in has}


def shape_of(name: str, words: ClickWords) -> dict[str, Any]:
    """What is given of the named model's shape, as its arguments.

    Raises:
        ValueError: the model has no such option; the message says which it has.
    """
    known = shapes(name)
    asked = {word: getattr(words, word) for word in SHAPES}
    asked = {word: value for word, value in asked.items() if value not in (None, (), [])}
    if strange := [word for word in asked if word not in known]:
        has = ", ".join(f"--{one}" for one in known)
        raise ValueError(f"--{strange[0]} is not for --model {name}, which has {has}")
    return {known[word]: value for word, value in asked.items()}


class Loaded(NamedTuple):
    """Clicks in memory to train on, and to test, if there are any."""

    train: ClickDataset
    test: ClickDataset | None


def load(words: ClickWords) -> ClickSplit | Loaded:
    """Clicks from the seed, or the files that ``--data`` names, whose last fifth is for testing, in
    memory; of a day, which tests the model of the day before, none is.

    Raises:
        OSError, ValueError: the file is missing or wrong, or ``--rows`` is given with it.
    """
    if words.data in (None, WORD):
        rows = 100_000 if words.rows is None else words.rows
        return generate(words.model, rows, words.seed)
    if words.rows is not None:
        raise ValueError("--rows goes with --data clicks, not with a file")
    data = read(words.data, words)
    if words.days is not None:
        return Loaded(data, None)
    if len(data) < 2:
        raise ValueError(f"{words.data} has one row; it takes two, one to test")
    return data.split(test=max(1, len(data) // _TEST_SHARE))


class Streamed(NamedTuple):
    """Rows to train on while they are read, and rows to test, if there are any."""

    train: Stream
    test: ClickDataset | None


def streamed(words: ClickWords) -> Streamed:
    """The files that ``--data`` and ``--test`` name.

    Raises:
        OSError, ValueError: one is missing or wrong, or ``--data`` names none.
    """
    if words.data in (None, WORD):
        raise ValueError("--stream takes --data FILE; what is generated is in memory")
    if words.rows is not None:
        raise ValueError("--rows goes with --data clicks, not with a file")
    rows = stream_of(words.data, words, shuffle=words.shuffle)
    test = None
    if words.test is not None:
        test = read(words.test, words, known=Schema(rows.schema))
    return Streamed(rows, test)


def read(
    path: str, words: ClickWords, rows: int | None = None, known: Schema | None = None
) -> ClickDataset:
    """The rows of files in memory, all or the first so many; ``known`` as of ``stream_of``.

    Raises:
        OSError, ValueError, TypeError: a file is missing or wrong, or has no ids.
    """
    found = stream_of(path, words, known).read(rows)
    if not isinstance(found, ClickDataset):
        raise TypeError(f"{path} has no ids; the schema must name some for a model of clicks")
    return found


def generate(name: str, rows: int, seed: int, test: int = 20_000) -> ClickSplit:
    """Clicks as the named model reads them: with histories, or without."""
    if name in _HISTORIES:
        counts = {"users": _CARDINALITY, "items": _CARDINALITY}
        return datasets.synthetic_histories(rows, seed, test=test, **counts)
    return datasets.synthetic_clicks(rows, seed, test=test, cardinalities=_CARDINALITY)


def build(name: str, words: ClickWords, known: Schema | None = None) -> Graph:
    """The named model. Ids that are generated, or that a schema has below some number, are rows of
    fixed tables; the tables of others grow. ``known`` as of ``stream_of``.
    """
    generated = words.data in (None, WORD) and words.days is None
    settings: dict[str, Any] = {} if words.dropout is None else {"dropout": words.dropout}
    if words.norm is not None:
        settings["norm"] = NORMS[words.norm]()
    growing = (words.table_mib, words.table_share, words.admit_after, words.evict)
    if generated and any(option is not None for option in growing):
        raise ValueError(
            "--table-mib, --table-share, --admit-after and --evict are of tables that grow: those of a "
            "file's ids"
        )
    shape = shape_of(name, words)
    if generated:
        target_of(words)
        for option in ("schema", "label", "target"):
            if getattr(words, option) is not None:
                raise ValueError(f"--{option} goes with --data FILE, or --days")
        counts = (_CARDINALITY,) * (3 if name in _HISTORIES else 1)
        return MODELS[name](*counts, **shape, **settings)
    files = [*expanded(words.days).values()] if words.days else words.data
    assert files is not None
    model = MODELS[name](target=target_of(words), **shape, **settings)
    if words.schema is None and words.label is None and known is None and not is_parquet(files):
        if name in _HISTORIES:
            raise ValueError(
                f"--model {name} attends to what was chosen before, which files in Criteo's format do "
                "not have; give --schema FILE whose column of such ids has history_of"
            )
        return model  # Criteo's
    return model.shaped(stream_of(files, words, known))


def refuse(words: ClickWords, *, files: bool = False) -> None:
    """ValueError where an argument is given that other models do not take; with ``files`` they take
    files of rows, also while these are read.
    """
    if words.data == WORD:
        raise ValueError(f"--data {WORD} goes with --model {', '.join(MODELS)}")
    taken = ("bad", "schema", "stream", "target") if files else ()
    for name in (
        "rows",
        "table_mib",
        "table_share",
        "table_weight_decay",
        "admit_after",
        "evict",
        "dropout",
        "norm",
        "schema",
        "label",
        "target",
        *SHAPES,
        "bad",
        "days",
        "stream",
    ):
        if name not in taken and getattr(words, name) not in (None, False, (), []):
            those = ("mlp", *MODELS) if name == "hidden" else MODELS
            raise ValueError(f"--{name.replace('_', '-')} goes with --model {', '.join(those)}")


def make_tables(
    model: object,
    words: ClickWords,
    rule: Rule,
    staleness: Policy,
) -> dict[str, Table] | None:
    """New tables for it; None: it is no model of clicks."""
    if not isinstance(model, Graph):
        return None
    return tables.of(
        model.tables,
        rule=rule,
        staleness=staleness,
        seed=words.seed,
        **table_settings(words),
    )


def table_settings(words: ClickWords) -> dict[str, Any]:
    """Of ``tables.of`` what the words say of tables alone. ValueError where they make no sense."""
    each, share = words.table_mib, words.table_share
    if each is not None and share is not None:
        raise ValueError("--table-mib and --table-share both say how large tables grow; give one")
    if each is not None and not 0 < each < 2**40:
        raise ValueError(f"--table-mib must be above 0, got {each:g}")
    if share is not None and not 0 < share <= 1:
        raise ValueError(f"--table-share must be above 0 and at most 1, got {share:g}")
    return {
        "max_bytes": None if each is None else math.ceil(each * _MEBIBYTE),
        "share": share,
        "admit_after": 1 if words.admit_after is None else words.admit_after,
        "evict": words.evict,
        "weight_decay": 0.0 if words.table_weight_decay is None else words.table_weight_decay,
    }
