"""What models read beside numbers: features that are ids, and the tables whose rows these stand for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leashed import _core
from leashed.base import checks
from leashed.datasets import ClickDataset

if TYPE_CHECKING:
    from leashed.stream import Stream

__all__ = ["TableSpec", "check_stream", "click_rows", "distinct"]


@dataclass(frozen=True)
class TableSpec:
    """A table of embedding rows, which lie outside a model's parameters.

    Args:
        name: of the table; no two of a model have the same.
        dim: floats of a row.
        rows: ids are below it; None: any id may come.
    """

    name: str
    dim: int
    rows: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"name must be a str that is not empty, got {self.name!r}")
        checks.size("dim", self.dim)
        if self.rows is not None:
            checks.whole("rows", self.rows)


def distinct(specs: Iterable[TableSpec]) -> tuple[TableSpec, ...]:
    """Each table once; ValueError where two have one name."""
    tables = tuple(dict.fromkeys(specs))
    names = [table.name for table in tables]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"two tables are called {name!r}; give each its own name, or share one TableSpec"
            )
    return tables


def click_rows(
    data: object,
    name: str,
    numbers: int,
    specs: Sequence[TableSpec],
    features: Sequence[int],
    most: Sequence[int | None] = (),
    drawn: Sequence[tuple[int, int, int, bool]] = (),
) -> _core.ClickRows:
    """The native rows of a data set, with the features that a model reads and their tables, of each
    as many ids of a row as ``most`` says, by default all, and what is drawn for each batch.

    Raises:
        TypeError: it is no ``ClickDataset``.
        ValueError: it lacks a feature, has another number of numbers, or an id that is no row of
            its table.
    """
    if not isinstance(data, ClickDataset):
        raise TypeError(
            f"{name} must be a ClickDataset where the model reads tables, got {type(data).__name__}"
        )
    if data.numbers != numbers:
        raise ValueError(f"{name} has {data.numbers} numbers, but the model takes {numbers}")
    if max(features) >= data.features:
        raise ValueError(
            f"{name} has {data.features} features that are ids, but the model reads number "
            f"{max(features)}, counted from 0"
        )
    for spec, feature in zip(specs, features, strict=True):
        if spec.rows is not None and (largest := data.largest(feature)) >= spec.rows:
            raise ValueError(
                f"{name}'s {data.names[feature]} has id {largest}, outside 0 to {spec.rows - 1} of "
                f"table {spec.name}"
            )
    return data.rows_of(features, most, drawn)


def check_stream(
    stream: Stream,
    numbers: int,
    specs: Sequence[TableSpec],
    features: Sequence[int],
) -> None:
    """ValueError where a stream lacks a feature that a model reads, has another number of numbers, or
    ids that may be no row of their table.
    """
    if stream.numbers != numbers:
        raise ValueError(f"data has {stream.numbers} numbers, but the model takes {numbers}")
    if features and max(features) >= stream.features:
        raise ValueError(
            f"data has {stream.features} features that are ids, but the model reads number "
            f"{max(features)}, counted from 0"
        )
    for spec, feature in zip(specs, features, strict=True):
        bound = stream.bounds[feature]
        if spec.rows is not None and (bound is None or bound > spec.rows):
            below = "any id" if bound is None else f"ids up to {bound - 1}"
            raise ValueError(
                f"data's {stream.names[feature]} may have {below}, outside 0 to {spec.rows - 1} of "
                f"table {spec.name}; make the column stream.Hashed(buckets={spec.rows}), or the "
                "table one that grows"
            )
