"""Text of which each line is a row, as the core reads it: what streams of such files and data in memory
have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.datasets.fields import Id, Label, Number, Schema
from leashed.datasets.files import is_repeatable, name_of, open_file

__all__ = ["CRITEO", "FIELD_SHIFT", "PART_BYTES", "PLACES", "Rows", "SparseText", "Text", "read"]

PLACES = 4  # parts, or slices, in memory beside those that threads make rows of
PART_BYTES = 1 << 20
FIELD_SHIFT = 32  # of ids that tell a field: where it stands above the column
_READ = 1 << 18  # rows taken at once


class Text(NamedTuple):
    """How files are written.

    Attributes:
        schema: what their columns become.
        separators: between fields, one, or several among which each file's is found.
        header: whether a line names the columns: ``"none"``, ``"present"`` or ``"detected"``.
        names: of all columns, where there is no header.
        quotes: whether a field may stand in double quotes.
    """

    schema: Schema
    separators: str
    header: str
    names: Sequence[str]
    quotes: bool

    @property
    def told(self) -> list[Any]:
        """All of it, as JSON's own types."""
        return [self.schema.to_json(), self.separators, self.header, list(self.names), self.quotes]

    def open(
        self,
        files: Sequence[Path | IO[bytes]],
        *,
        threads: int,
        skip: bool,
        part_bytes: int = PART_BYTES,
        passes: int = 1,
        shuffle: int = 0,
        seed: int = 0,
        named: Sequence[str] = (),
        labelled: bool = True,
    ) -> _core.RowStream:
        """The rows of files, not started yet; messages call these ``named``, by default by their paths.
        Not ``labelled``: without what rows are to give and weigh, which need not be there.
        """
        return _core.open_delimited(
            columns=self.schema.native(labelled=labelled),
            separators=self.separators,
            header=self.header,
            names=list(self.names),
            quotes=self.quotes,
            classes=self.schema.classes,
            files=list(named) or [name_of(file) for file in files],
            open=lambda n, stopped: open_file(files[n], stopped),
            again=is_repeatable(list(files)),
            part_bytes=part_bytes,
            threads=threads,
            places=threads + PLACES,
            passes=passes,
            skip_bad=skip,
            window=shuffle,
            seed=seed,
            target="" if labelled or self.schema.heads else str(self.schema.target),
        )


class SparseText(NamedTuple):
    """How files of sparse rows are written.

    Attributes:
        first: the number of the first column, which becomes 0.
        features: columns there are.
        fields: of libffm's files of each column its field, int32 [features]; [0]: lines may say any.
            None: they are svmlight's.
        classes: that labels are below, of two −1 is 0; 0: there are values.
    """

    first: int
    features: int
    fields: NDArray[np.int32] | None
    classes: int

    @property
    def told(self) -> list[Any]:
        """All of it, as JSON's own types; of fields a digest."""
        fields = None if self.fields is None else sha256(self.fields.tobytes()).hexdigest()
        return [self.first, self.features, fields, self.classes]

    def open(
        self,
        files: Sequence[Path | IO[bytes]],
        *,
        threads: int,
        skip: bool = False,
        part_bytes: int = PART_BYTES,
        passes: int = 1,
        shuffle: int = 0,
        seed: int = 0,
        named: Sequence[str] = (),
        distinct_columns: bool = False,
        tells_fields: bool = False,
    ) -> _core.RowStream:
        """The rows of files, not started yet; ``named`` as of ``Text.open``. With ``distinct_columns`` a column that comes again in a
        row is added to where it came first; with ``tells_fields`` ids of libffm files are
        field · 2³² + column.
        """
        return _core.open_svmlight(
            first=self.first,
            features=self.features,
            fields=self.fields,
            classes=self.classes,
            files=list(named) or [name_of(file) for file in files],
            open=lambda n, stopped: open_file(files[n], stopped),
            again=is_repeatable(list(files)),
            part_bytes=part_bytes,
            threads=threads,
            places=threads + PLACES,
            passes=passes,
            skip_bad=skip,
            window=shuffle,
            seed=seed,
            distinct_columns=distinct_columns,
            tells_fields=tells_fields,
        )


def _criteo() -> Text:
    columns: dict[str, Any] = {"Label": Label()}
    columns |= {f"I{j + 1}": Number(log=True, missing=0.0) for j in range(13)}
    columns |= {
        f"C{f}": Id(base=16, digits=8, offset=f << 33, missing=(f << 33) + (1 << 32))
        for f in range(1, 27)
    }
    return Text(Schema(columns), "\t,", "detected", tuple(columns), quotes=False)


CRITEO = _criteo()


def read(native: _core.RowStream, most: int | None = None, *, here: bool = False) -> Any:
    """All rows of a stream or the first so many, as it gives them, (x, ids, bags, y, weights); it ends.
    In memory are these, an eighth more while they grow, and 2¹⁸ rows that have just been taken. Where they
    are few, ``here``: this thread alone reads them all, of a stream of one pass, before it takes any.
    """
    native.read_here() if here else native.start()
    try:
        rows = Rows(native.take(_READ if most is None else min(_READ, most)))
        wanted = _READ
        while rows.count == wanted and (most is None or wanted < most):
            more = _READ if most is None else min(_READ, most - wanted)
            rows.add(native.take(more))
            wanted += more
        return rows.all()
    finally:
        native.end()


class Rows:
    """What has been taken so far."""

    def __init__(self, first: Any) -> None:
        x, ids, bags, y, weights = first
        self.count = len(y)
        self._rows = [_Growing(part) for part in (x, ids, y)]
        self._weights = None if weights is None else _Growing(weights)
        self._bags = [[_Growing(part) for part in bag] for bag in bags]

    def add(self, taken: Any) -> None:
        x, ids, bags, y, weights = taken
        self.count += len(y)
        for have, more in zip(self._rows, (x, ids, y), strict=True):
            have.add(more)
        if self._weights is not None:
            self._weights.add(weights)
        for bag, (entries, offsets, *of_entries) in zip(self._bags, bags, strict=True):
            known = bag[0].count
            for have, more in zip(bag, (entries, offsets[1:] + known, *of_entries), strict=True):
                have.add(more)

    def all(self) -> Any:
        x, ids, y = (part.all() for part in self._rows)
        bags = [tuple(part.all() for part in bag) for bag in self._bags]
        return x, ids, bags, y, None if self._weights is None else self._weights.all()


class _Growing:
    """An array behind which others are put. Where it grows, the system moves its pages, so that there
    are not two of it.
    """

    def __init__(self, first: NDArray[Any]) -> None:
        self._array, self.count = first, len(first)

    def add(self, more: NDArray[Any]) -> None:
        end = self.count + len(more)
        if end > len(self._array):
            shape = (end + end // 8, *self._array.shape[1:])
            if self._array.flags.owndata:
                self._array.resize(shape, refcheck=False)
            else:
                larger = np.empty(shape, self._array.dtype)
                larger[: self.count] = self._array[: self.count]
                self._array = larger
        self._array[self.count : end] = more
        self.count = end

    def all(self) -> NDArray[Any]:
        if self.count < len(self._array):
            self._array.resize((self.count, *self._array.shape[1:]), refcheck=False)
        return self._array
