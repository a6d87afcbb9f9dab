"""Record batches that pyarrow makes: of Parquet and CSV files, and with parts of moments as columns."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from leashed.datasets.fields import PARTS, Id, Label, Number, Target, Weight
from leashed.datasets.files import Paths, paths_of, unpacked

__all__ = [
    "ParquetParts",
    "arrow",
    "csv_batches",
    "is_parquet",
    "is_table",
    "moments_of",
    "parquet_batches",
    "parquet_files",
    "parquet_whole",
    "separator_of",
    "with_lists",
    "with_parts",
]

_BATCH = 65_536  # rows in memory at once
_YEAR = 365.25 * 86400e6  # microseconds
_FIRST = 1_577_836_800_000_000  # 2020, in microseconds since 1970
_PARQUET = (".parquet", ".parq", ".pq")
_NUMBERS = (Number, Label, Target, Weight)


def arrow(what: str, module: str = "pyarrow") -> Any:
    """pyarrow, or a module of it. ImportError with the remedy where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{what} takes pyarrow: pip install 'leashed[parquet]'") from error


def is_table(source: object) -> bool:
    """Whether it is a table, or the path of one."""
    return isinstance(source, (str, os.PathLike)) or hasattr(source, "__arrow_c_stream__")


def is_parquet(path: object) -> bool:
    """Whether that names Parquet files: the first of several, a folder, or a pattern."""
    if isinstance(path, (list, tuple)) and path:
        return is_parquet(path[0])
    if not isinstance(path, (str, os.PathLike)):
        return False
    within = (file for kind in _PARQUET for file in Path(path).glob(f"**/*{kind}"))
    return Path(path).suffix.lower() in _PARQUET or any(within)


def parquet_files(path: Paths) -> list[Path]:
    """The files, in order: of a folder those in it, by name."""
    several: Any = [path] if isinstance(path, (str, os.PathLike)) else path
    found: list[Path] = []
    for each in several:
        if isinstance(each, (str, os.PathLike)) and Path(each).is_dir():
            within = sorted(f for kind in _PARQUET for f in Path(each).glob(f"**/*{kind}"))
            if not within:
                raise FileNotFoundError(f"there is no Parquet file in {each}")
            found += within
            continue
        for file in paths_of([each] if isinstance(each, (str, os.PathLike)) else each):
            if not isinstance(file, Path):
                raise TypeError("path must name Parquet files; pyarrow.parquet reads open ones")
            found.append(file)
    return found


def separator_of(file: Any) -> str:
    """What the names in a text file's first line are apart by; of what can be read once only, commas."""
    if not Path(file).is_file():
        return ","
    with unpacked(file) as text:
        header = text.readline().decode(errors="replace")
    return max(",\t;|", key=header.count)


def parquet_whole(files: Sequence[Path]) -> Any:
    """Files as one data set of pyarrow's, of columns whose types hold what any file has. Of folders
    named ``key=value``, as Hive and Spark write them, keys are columns too.
    """
    pa, dataset = arrow("Parquet"), arrow("Parquet", "pyarrow.dataset")
    paths, how = [str(file) for file in files], {"format": "parquet", "partitioning": "hive"}
    whole = dataset.dataset(paths, **how)
    schemas = [whole.schema, *(fragment.physical_schema for fragment in whole.get_fragments())]
    together = pa.unify_schemas(_alike(pa, schemas), promote_options="permissive")
    return dataset.dataset(paths, schema=together, **how)


def _alike(pa: Any, schemas: Sequence[Any]) -> list[Any]:
    """Of columns that are categories in some files and plain in others the values in all."""
    kinds: dict[str, set[Any]] = {}
    for field in (field for schema in schemas for field in schema):
        kinds.setdefault(field.name, set()).add(field.type)

    def plain(field: Any) -> Any:
        apart = len(kinds[field.name]) > 1 and pa.types.is_dictionary(field.type)
        return field.with_type(field.type.value_type) if apart else field

    return [pa.schema([plain(field) for field in schema]) for schema in schemas]


def _told_of(column: Any) -> tuple[Any, ...]:
    size, found = column.total_compressed_size, column.statistics
    if found is None or not found.has_min_max:
        return (size,)
    return size, found.min_raw, found.max_raw


class ParquetParts:
    """Batches of Parquet files, of columns whose types hold what any file has.

    Args:
        files: in order.
        names: of the columns that are read.

    Raises:
        OSError, ValueError: a file is none; the columns are not there.
    """

    def __init__(self, files: Sequence[Path], names: Sequence[str]) -> None:
        pa, self._dataset = arrow("Parquet"), arrow("Parquet", "pyarrow.dataset")
        whole = parquet_whole(files)
        if lacking := [name for name in names if name not in whole.schema.names]:
            raise ValueError(f"{files[0]} has no column {', '.join(lacking)}")
        fragments = {fragment.path: fragment for fragment in whole.get_fragments()}
        self._names, self._whole = list(names), whole.schema
        self._fragments = [fragments[str(file)] for file in files]
        self.schema = pa.schema([whole.schema.field(name) for name in names])

    def groups(self, file: int) -> list[int]:
        """Rows of each row group of a file, as its end tells them."""
        return [group.num_rows for group in self._fragments[file].row_groups]

    def told(self, file: int) -> list[str]:
        """What the end of a file tells of each row group's columns: bytes, least and greatest values, as they
        are written, which a value of Python or pandas is not for all types.
        """
        groups = [group.metadata for group in self._fragments[file].row_groups]
        return [repr([_told_of(g.column(k)) for k in range(g.num_columns)]) for g in groups]

    def of(self, file: int, group: int | None = None) -> Iterator[Any]:
        """Those of a file, or of one of its row groups. ValueError where it lacks a column."""
        fragment = self._fragments[file]
        keys = self._dataset.get_partition_keys(fragment.partition_expression)
        there = {*fragment.physical_schema.names, *keys}
        if lacking := [name for name in self._names if name not in there]:
            raise ValueError(f"{fragment.path} has no column {', '.join(lacking)}")
        part = fragment if group is None else fragment.subset(row_group_ids=[group])
        batches: Iterator[Any] = part.to_batches(
            schema=self._whole,
            columns=self._names,
            batch_size=_BATCH,
            batch_readahead=1,
            use_threads=False,
        )
        return batches


def parquet_batches(files: Sequence[Path], names: Sequence[str]) -> Any:
    """These columns of files, in order."""
    parts = ParquetParts(files, names)

    def batches() -> Iterator[Any]:
        for file in range(len(files)):
            yield from parts.of(file)

    return arrow("Parquet").RecordBatchReader.from_batches(parts.schema, batches())


def csv_batches(
    files: Sequence[Path], columns: Mapping[str, Any], separator: str, names: Sequence[str] | None
) -> Any:
    """Columns of text: what is a number as such."""
    pa, csv = arrow("a date in text"), arrow("a date in text", "pyarrow.csv")
    kinds = {
        name: pa.float64() if isinstance(column, _NUMBERS) else pa.string()
        for name, column in columns.items()
        if getattr(column, "of", None) is None
    }
    kinds |= {c.of: pa.string() for c in columns.values() if getattr(c, "of", None)}

    def opened(file: Path) -> Any:
        return csv.open_csv(
            unpacked(file),
            csv.ReadOptions(column_names=names),
            csv.ParseOptions(delimiter=separator),
            csv.ConvertOptions(
                column_types=kinds,
                include_columns=[*kinds],
                null_values=[""],
                strings_can_be_null=True,
            ),
        )

    def named(file: Path, error: Exception) -> ValueError:
        """With the column's name, where pyarrow tells its number."""
        told = re.search(r"column #(\d+): (.*)", str(error))
        if told is None:
            return ValueError(f"{file}: {error}")
        options = csv.ReadOptions(column_names=names), csv.ParseOptions(delimiter=separator)
        header = csv.open_csv(unpacked(file), *options).schema.names
        return ValueError(f"{file}: column {header[int(told[1])]}: {told[2]}")

    apart = {n: c.between for n, c in columns.items() if getattr(c, "between", None)}
    fields = [(n, pa.list_(kind) if n in apart else kind) for n, kind in kinds.items()]

    def batches() -> Iterator[Any]:
        pc = arrow("a date in text", "pyarrow.compute")
        for file in files:
            try:
                for batch in opened(file):
                    made = [
                        pc.split_pattern(column, apart[name]) if name in apart else column
                        for name, column in zip(kinds, batch.columns, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays(made, schema=schema)
            except pa.ArrowInvalid as error:
                raise named(file, error) from error

    schema = pa.schema(fields)
    return pa.RecordBatchReader.from_batches(schema, batches())


def with_lists(given: Any, apart: Mapping[str, str]) -> Any:
    """Of what has ``__arrow_c_stream__`` its columns, of which those named are lists where they are text
    with these between ids; as it is where pyarrow is missing.
    """
    try:
        pa, pc = arrow("a history in text"), arrow("a history in text", "pyarrow.compute")
    except ImportError:
        return given
    reader = pa.RecordBatchReader.from_stream(given)
    places = {
        place: apart[field.name]
        for place, field in enumerate(reader.schema)
        if field.name in apart and _is_text(pa, field.type)
    }
    if not places:
        return reader
    text, schema = pa.large_string(), reader.schema
    for place in places:
        schema = schema.set(place, pa.field(schema.field(place).name, pa.list_(text)))

    def batches() -> Iterator[Any]:
        for batch in reader:
            columns = batch.columns
            for place, between in places.items():
                column = columns[place].cast(text)
                there = pc.if_else(pc.equal(column, ""), pa.scalar(None, text), column)
                columns[place] = pc.split_pattern(there, between)
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _is_text(pa: Any, kind: Any) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def moments_of(column: Any) -> Any:
    """An array of text as timestamps, where all of it is what ISO 8601 has for dates and timestamps, as in
    CSV; what is empty is missing.

    Raises:
        ValueError: some is none.
    """
    pa, pc = arrow("a date in text"), arrow("a date in text", "pyarrow.compute")
    text = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    there = pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)
    first, *others = [pa.timestamp(unit, zone) for zone in (None, "UTC") for unit in ("us", "ns")]
    try:
        return there.cast(first)
    except pa.ArrowInvalid as error:
        for kind in others:
            with suppress(pa.ArrowInvalid):
                return there.cast(kind)
        raise error from None


def with_parts(given: Any, parts: Mapping[str, Number | Id]) -> Any:
    """Of what has ``__arrow_c_stream__`` its columns, and behind them parts of some.

    Raises:
        ValueError: it lacks a column, or one is no date and no timestamp, in text or as such.
    """
    pa = arrow("a part of a date")
    reader = pa.RecordBatchReader.from_stream(given)
    for name, column in parts.items():
        if column.of not in reader.schema.names:
            raise ValueError(f"it has no column {column.of}, of which {name} is the {column.part}")
        kind = reader.schema.field(column.of).type
        if _is_text(pa, kind):
            continue
        if not pa.types.is_timestamp(kind) and not pa.types.is_date(kind):
            raise ValueError(
                f"column {column.of} is of Arrow's type {kind}, of which {name} cannot be the "
                f"{column.part}; cast it to a timestamp or a date"
            )
        if column.zone is not None and getattr(kind, "tz", None) is None:
            raise ValueError(
                f"column {column.of} has no time zone, and {name} is the {column.part} in {column.zone}; "
                "give it its own"
            )
    places = {name: reader.schema.get_field_index(column.of) for name, column in parts.items()}
    fields = [
        pa.field(n, pa.int32() if PARTS[c.part or ""] else pa.float64()) for n, c in parts.items()
    ]
    schema = pa.schema([*reader.schema, *fields])

    def batches() -> Iterator[Any]:
        for batch in reader:
            made = [
                _part(batch.column(places[n]), c, f.type)
                for (n, c), f in zip(parts.items(), fields, strict=True)
            ]
            yield pa.RecordBatch.from_arrays([*batch.columns, *made], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _part(column: Any, asked: Number | Id, kind: Any) -> Any:
    pa, pc = arrow("a part of a date"), arrow("a part of a date", "pyarrow.compute")
    part = asked.part
    if _is_text(pa, column.type):
        try:
            column = moments_of(column)
        except pa.ArrowInvalid as error:
            raise ValueError(
                f"column {asked.of} is read as dates in text: {error}; mend it, or give columns= by which "
                "it is text"
            ) from error
    if asked.zone is not None:
        column = column.cast(pa.timestamp(column.type.unit, asked.zone))
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us" if pa.types.is_date32(column.type) else "ms"))
    if part == "years":
        micros = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
        return pc.divide(pc.cast(pc.subtract(micros, _FIRST), kind), _YEAR)
    if part == "weekday":
        return pc.day_of_week(column).cast(kind)
    return (
        pc.hour(column).cast(kind)
        if part == "hour"
        else pc.subtract(pc.month(column), 1).cast(kind)
    )
