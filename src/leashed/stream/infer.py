"""What the columns of a table are to become, found in its first rows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from leashed.base import atomic, checks
from leashed.base.target import REMEDY, Labels, TargetWord, check_heads, check_target
from leashed.base.warning import warn
from leashed.datasets.fields import Column, Hashed, Id, Label, Number, Schema, Target, Vocabulary
from leashed.datasets.files import paths_of, unpacked
from leashed.stream.batches import (
    arrow,
    is_parquet,
    moments_of,
    parquet_files,
    parquet_whole,
    separator_of,
    with_parts,
)

__all__ = ["ID_WORDS", "Inferred", "infer"]

ID_WORDS = frozenset(
    {
        *("id", "ids", "uid", "uuid", "key", "code", "hash", "zip", "session", "user"),
        *("item", "product", "brand", "category", "ad", "advertiser", "campaign", "publisher"),
        *("creative", "channel", "site", "page", "store", "shop", "merchant", "seller"),
        *("city", "region", "country", "device", "browser", "model", "month", "weekday", "hour"),
    }
)
"""A column of whole numbers is of ids whose name ends in one of these words."""

_ROWS = 100_000
_BLOCK = 1 << 26  # bytes of text whose types are found
_FEW_WORDS = 32  # distinct texts that are a vocabulary
_FEW_NUMBERS = 12  # distinct whole numbers that are one
_LEAST = 100  # rows from which few are few
_OWN = 1000  # rows of which each with a value of its own tells nothing of others
_LARGE = 2**31  # whole numbers beyond are no numbers of anything
_WIDE = 10.0  # numbers from 0 to beyond are told by their logarithm
_APART = " |;"  # what ids in one field of text may be apart by
_MISSING = 2**64 - 1
_INDEX = re.compile(r"__index_level_\d+__")


class Inferred(Mapping[str, Column]):
    """A schema that was found: of each column that is read what it becomes, as ``stream.csv`` and
    others take it.

    Attributes:
        left_out: columns that are not read, and why.
        separator: between fields of text; None: it is of no text.
    """

    def __init__(
        self, columns: Mapping[str, Column], left_out: Mapping[str, str], separator: str | None
    ) -> None:
        self._columns = dict(columns)
        self.left_out, self.separator = dict(left_out), separator

    def to_json(self) -> dict[str, Any]:
        """As :func:`leashed.stream.schema` reads it from a file."""
        told: dict[str, Any] = {"columns": Schema(self._columns).to_json()}
        return told if self.separator in (None, ",") else {**told, "separator": self.separator}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write that, to be looked at and edited: ``leashed.stream.schema(path)`` reads it. OSError
        where it cannot be written.
        """
        lines = [
            f"  {json.dumps(name, ensure_ascii=False)}: {json.dumps(column, ensure_ascii=False)}"
            for name, column in self.to_json()["columns"].items()
        ]
        rest = {k: v for k, v in self.to_json().items() if k != "columns"}
        more = "".join(f",\n {json.dumps(key)}: {json.dumps(value)}" for key, value in rest.items())
        text = '{"columns": {\n' + ",\n".join(lines) + "\n }" + more + "}\n"
        atomic.write(Path(path), [text.encode()])

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        lines = [f"    {n!r}: {column}," for n, column in self.to_json()["columns"].items()]
        lines += [f"    # {name!r} is left out: {why}" for name, why in self.left_out.items()]
        return "\n".join(["{", *lines, "}"])


def infer(
    source: Any,
    *,
    label: Labels,
    rows: int = _ROWS,
    ids: bool = True,
    target: TargetWord | None = None,
) -> Inferred:
    """What the columns of a table are to become, as its first rows tell.

        columns = lsh.stream.infer("logs/*.parquet", label="clicked")
        columns.save("schema.json")                  # to be looked at, and edited
        rows = lsh.stream.parquet("logs/*.parquet", "schema.json")

    ======================== =====================================================================
    the label                as ``target`` says; without, ``Label()`` where it is 0 or 1, else ``Target()``
    real numbers, decimals   ``Number``; of whole ones with an id's name ``Id``
    booleans                 ``Number``
    whole numbers            ``Id`` where the last word of their name is one of ``ID_WORDS``, as in
                             ``user_id``, or one is beyond ±2³¹; ``Vocabulary`` where there are at most
                             12 different ones (of 100 rows or more); else ``Number``
    text                     ``Vocabulary`` where there are at most 32 different ones, else ``Hashed``
    lists, and text of whole ``Id`` or, of text, ``Hashed``, with ``between``
    numbers apart by `` |;``
    timestamps, dates        years since 2020 as a ``Number``; weekday and hour, each as an ``Id``;
                             also of text that is as ISO 8601 has them throughout
    ======================== =====================================================================

    A number is ``log`` where none is below 0 and one above 10; where it is missing it is the mean. An id
    that is missing is one of its own. Left out, in one ``RuntimeWarning`` with reasons, are columns
    without a value or with only one, those in which each row has its own, and types that no model
    takes. Looking at columns takes pyarrow (``pip install 'leashed[parquet]'``).

    Args:
        source: a DataFrame of pandas or polars, a table of pyarrow, anything with
            ``__arrow_c_stream__``, or a function that makes it; a path, a pattern, several, or a folder
            of Parquet; or of CSV, with a header.
        label: the column that tells what is to be predicted; or several, each 0 or 1, as
            ``["clicked", "bought"]``: heads of one model. What is missing of one of them is not known, and
            left out of its head's loss.
        rows: so many are looked at, the first ones.
        ids: False: for a model of numbers alone. Whole numbers and parts of moments are numbers then,
            and what is none is left out.
        target: what is to be predicted: a ``"click"``, 0 or 1; a ``"number"``; one of so many classes, or
            ``"classes"``: as many as the largest label in those rows tells. Of several labels ``"click"``, or
            their names.

    Raises:
        ImportError: pyarrow is not installed.
        OSError: a file cannot be read.
        TypeError, ValueError: an argument is wrong, there is no such column, nothing beside it can be
            used, or what the label has is no such target; the message tells the remedy.
    """
    labels = labels_of(label, target)
    table, separator = _sample(source, checks.size("rows", rows))
    names = table.column_names
    if lacking := [name for name in labels if name not in names]:
        raise ValueError(
            f"label must be a column, got {lacking[0]!r}; there are {', '.join(names)}"
        )
    if table.num_rows == 0:
        raise ValueError("source has no row; give one that has")
    # Several in the order in which they are named.
    found: dict[str, Column] = dict.fromkeys(labels, Label()) if len(labels) > 1 else {}
    left_out: dict[str, str] = {}
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            raise ValueError(f"source has column {name!r} more than once; rename one")
        values = _Values(name, table.column(name))
        if name in labels:
            found[name] = _label(values, target if len(labels) == 1 else "click")
            continue
        made = "is the table's index" if _INDEX.fullmatch(name) else _column(values, ids=ids)
        if isinstance(made, str):
            left_out[name] = made
        else:
            found |= {n: c for n, c in made.items() if n == name or n not in names}
    if len(found) == len(labels):
        reasons = "; ".join(f"{name} {why}" for name, why in left_out.items())
        beside = ", ".join(map(repr, labels))
        raise ValueError(f"source has no column to learn from beside {beside}: {reasons}")
    if left_out:
        reasons = "; ".join(f"{name} {why}" for name, why in left_out.items())
        warn(f"columns that are not read: {reasons}. columns= says otherwise")
    return Inferred(found, left_out, separator)


def labels_of(label: object, target: TargetWord | None = None) -> tuple[str, ...]:
    """The columns that tell what is to be predicted. TypeError or ValueError where they are none, or not
    what ``target`` says.
    """
    if not isinstance(label, (str, list, tuple)):
        raise TypeError(f"label must be the name of a column, or of several, got {label!r}")
    labels = (label,) if isinstance(label, str) else check_heads("label", label)
    several = len(labels) > 1
    target = tuple(target) if isinstance(target, list) else target
    if target not in (None, "click", labels) if several else isinstance(target, tuple):
        raise ValueError(
            f"label names {', '.join(labels)}, and target is {target!r}; of several labels each is a click, "
            "0 or 1: leave target out, or name them in the same order"
        )
    return labels


def _sample(source: Any, rows: int) -> tuple[Any, str | None]:
    """The first rows as a table, and of text what is between its fields."""
    pa = arrow("infer")
    if hasattr(source, "read_next_batch"):
        raise ValueError("source can be read once only; give a table or files, or say columns=")
    if hasattr(source, "__arrow_c_stream__") or callable(source):
        made = source if hasattr(source, "__arrow_c_stream__") else source()
        return _first(pa, pa.RecordBatchReader.from_stream(made), rows), None
    if is_parquet(source):
        whole = parquet_whole(parquet_files(source))
        return whole.head(rows, batch_readahead=1, fragment_readahead=1), None
    return _of_text(pa, paths_of(source), rows)


def _first(pa: Any, batches: Any, rows: int) -> Any:
    taken, left = [], rows
    for batch in batches:
        taken.append(batch.slice(0, left))
        left -= taken[-1].num_rows
        if left == 0:
            break
    return pa.Table.from_batches(taken, batches.schema)


def _of_text(pa: Any, files: list[Any], rows: int) -> tuple[Any, str]:
    if not isinstance(files[0], Path) or not files[0].is_file():
        raise ValueError("source can be read once only; give a file, or say columns=")
    csv, separator = arrow("infer", "pyarrow.csv"), separator_of(files[0])
    reader = csv.open_csv(
        unpacked(files[0]),
        csv.ReadOptions(block_size=_BLOCK),
        parse_options=csv.ParseOptions(delimiter=separator),
        convert_options=csv.ConvertOptions(
            null_values=[""], strings_can_be_null=True, true_values=[], false_values=[]
        ),
    )
    return _first(pa, reader, rows), separator


class _Values:
    """A column's sample."""

    def __init__(self, name: str, column: Any) -> None:
        pa, pc = arrow("infer"), arrow("infer", "pyarrow.compute")
        self.name = name
        column = column.combine_chunks()
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if pa.types.is_dictionary(column.type):
            column = _without_views(column.dictionary).take(column.indices)
        column = _moments_in(_without_views(column))
        self.type, self.rows = column.type, len(column)
        kinds = pa.types
        self.is_text = any(
            is_kind(self.type)
            for is_kind in (
                *(kinds.is_string, kinds.is_large_string, kinds.is_string_view),
                *(kinds.is_binary, kinds.is_large_binary),
            )
        )
        self.is_whole = kinds.is_integer(self.type)
        self.is_moment = kinds.is_timestamp(self.type) or kinds.is_date(self.type)
        self.is_list = any(
            is_kind(self.type)
            for is_kind in (
                *(kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list),
                *(kinds.is_list_view, kinds.is_large_list_view),
            )
        )
        self.is_number = (
            kinds.is_floating(self.type)
            or kinds.is_decimal(self.type)
            or kinds.is_boolean(self.type)
        )
        there = column.drop_null()
        if kinds.is_floating(self.type):
            there = there.filter(pc.is_finite(there))
        self.missing = len(there) < self.rows
        self.there = there

    def numbers(self) -> Any:
        """float64, what is there."""
        pa = arrow("infer")
        if pa.types.is_boolean(self.type):
            return self.there.cast(pa.int8()).to_numpy(zero_copy_only=False).astype(np.float64)
        return self.there.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)

    def different(self) -> Any:
        """Each value once."""
        return self.there.unique()


def _moments_in(column: Any) -> Any:
    """Text of dates as such; other columns as they are."""
    pa, there = arrow("infer"), column.drop_null()
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    try:
        moments_of(there[:1])  # (Most text is none.)
        found = moments_of(column)
    except pa.ArrowInvalid:
        return column
    return found if len(found.drop_null()) else column


def _without_views(column: Any) -> Any:
    """Text as most functions of pyarrow take it."""
    pa = arrow("infer")
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def _label(values: _Values, target: TargetWord | None) -> Column:
    name = values.name
    if not len(values.there):
        raise ValueError(f"label {name!r} has no value; name a column that has")
    if not (values.is_whole or values.is_number):
        shown = ", ".join(str(v) for v in values.different()[:3].to_pylist())
        raise ValueError(
            f"label {name!r} is of type {values.type}, with {shown}; make it a column of 0 and 1, or of "
            "numbers that are to be predicted"
        )
    numbers = values.numbers()
    clicks = np.isin(numbers, (0, 1))
    if target is None:
        return Label() if clicks.all() else Target()
    if check_target(target) == "number":
        return Target()
    assert not isinstance(target, tuple)  # whose labels are clicks
    if target == "click":
        if not clicks.all():
            other = numbers[np.argmin(clicks)]
            raise ValueError(f"label {name!r} has {other:g}, and a click is 0 or 1; {REMEDY}")
        return Label()
    bound = np.inf if target == "classes" else float(target)
    wrong = ~((numbers == np.trunc(numbers)) & (numbers >= 0) & (numbers < bound))
    if wrong.any():
        below = "" if target == "classes" else f" below {target}"
        raise ValueError(
            f"label {name!r} has {numbers[np.argmax(wrong)]:g}, and a class is a whole number from 0"
            f'{below}; target="number" is for numbers'
        )
    return Label(max(2, int(numbers.max()) + 1) if target == "classes" else int(target))


def _column(values: _Values, *, ids: bool) -> dict[str, Column] | str:
    """What becomes of a column; or why nothing does."""
    name, different = values.name, None
    if not len(values.there):
        return "has no value"
    if values.is_list:
        return _history(values) if ids else "is a list, and no number"
    if not (values.is_text or values.is_whole or values.is_number or values.is_moment):
        return f"is of type {values.type}; cast it to a number, to text or to a timestamp"
    different = values.different()
    if len(different) == 1 and (not values.missing or not values.is_text):
        return f"is {different[0].as_py()!s:.40} wherever it is there"
    own = len(different) == values.rows >= _OWN and not values.is_moment
    if values.is_moment:
        return _moment(values, ids=ids)
    if values.is_text:
        if not ids:
            return "is text, and no number"
        if own:
            return "has another value in each row"
        return {name: _words(values, different)}
    numbers = values.numbers()
    named = _last_word(name) in ID_WORDS
    whole = values.is_whole or (named and bool((numbers == np.trunc(numbers)).all()))
    if ids and whole:
        if named or (values.is_whole and float(np.abs(numbers).max()) > _LARGE):
            return "has another value in each row" if own else {name: Id(missing=_MISSING)}
        if values.rows >= _LEAST and len(different) <= _FEW_NUMBERS and values.is_whole:
            return {name: Vocabulary([str(v) for v in sorted(different.to_pylist())])}
    return {name: _number(numbers)}


def _last_word(name: str) -> str:
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return words[-1].lower() if words else ""


def _number(values: Any, log: bool | None = None) -> Number:
    if log is None:
        log = bool(values.min() >= 0 and values.max() > _WIDE)
    became = np.log1p(values) if log else values
    return Number(log=log, missing=float(f"{became.mean():.4g}"))


def _words(values: _Values, different: Any) -> Column:
    if between := _between(different.to_pylist()[:1000]):
        return Id(between=between)
    if values.rows >= _LEAST and len(different) <= _FEW_WORDS:
        words = different.to_pylist()
        if all(isinstance(word, str) for word in words):
            return Vocabulary(sorted(words))
    return Hashed()


def _between(words: list[str]) -> str | None:
    """What ids in one field are apart by; None: they are not several."""
    for apart in _APART:
        fields = [word.split(apart) for word in words if word]
        if (
            fields
            and max(map(len, fields)) > 1
            and all(id_.isdecimal() for field in fields for id_ in field)
        ):
            return apart
    return None


def _history(values: _Values) -> dict[str, Column] | str:
    kinds = arrow("infer").types
    inner = values.type.value_type
    inner = inner.value_type if kinds.is_dictionary(inner) else inner
    if kinds.is_integer(inner):
        return {values.name: Id(between=" ")}
    if kinds.is_string(inner) or kinds.is_large_string(inner) or kinds.is_string_view(inner):
        return {values.name: Hashed(between=" ")}
    return f"is a list of {inner}; make each value a column of its own, or the list one of ids"


def _moment(values: _Values, *, ids: bool) -> dict[str, Column] | str:
    """Those of its parts that are not always the same."""
    pa, name = arrow("infer"), values.name
    parts: dict[str, Column] = {}
    asked: list[tuple[str, Callable[..., Number | Id]]] = [
        ("years", Number),
        ("weekday", Id if ids else Number),
        ("hour", Id if ids else Number),
    ]
    for part, kind in asked:
        column = kind(of=name, part=part, zone=getattr(values.type, "tz", None))
        one = pa.table({name: values.there})
        made = with_parts(one, {part: column}).read_all().column(part).to_numpy()
        if (made == made[0]).all():
            continue
        if isinstance(column, Number):
            column = replace(column, missing=_number(made, log=False).missing)
        parts[f"{name}.{part}"] = column
    return parts or "is always of the same hour"
