"""Where the rows of files are: parts of some MiB, each with its number of rows, so that any rows can be
read by their numbers, by whoever has the files. Made once, kept beside the run.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leashed.cluster.row_groups import ParquetRows
from leashed.cluster.row_parts import File, Part, RowFiles
from leashed.cluster.row_text import TextRows
from leashed.cluster.supervisor import REPORT
from leashed.datasets.fields import Schema
from leashed.datasets.moments import Moments
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import Graph
from leashed.stream import BadLine, ReadCounts, Stream
from leashed.stream.parquet import ParquetStream
from leashed.training import defaults

if TYPE_CHECKING:
    from leashed.training.sets import AnyStream

__all__ = [
    "FILE",
    "RowIndex",
    "comes_once",
    "digest_of",
    "files_of",
    "index_of",
    "kept_in",
    "standardised_in",
]

FILE = "rows.index"
"""What it is called in a run's folder."""

_VERSION = 3


@dataclass(frozen=True)
class RowIndex:
    """Of files.

    Attributes:
        files: in order.
        parts: of all files, in order.
        counts: what was read to make it.
        how: a digest of what columns become.
        moments: what the numbers of all rows come to.
        often: as of ``defaults.Seen``, of the model that the run trains.
    """

    files: tuple[File, ...]
    parts: tuple[Part, ...]
    counts: ReadCounts
    how: str
    moments: Moments
    often: bool | None

    def __post_init__(self) -> None:
        ends = list(accumulate(part.rows for part in self.parts))
        object.__setattr__(self, "_ends", ends)

    @property
    def once(self) -> bool:
        """Whether rows come once, out of a pipe: nobody knows how many there are, nor anything of them."""
        return not self.files

    @property
    def rows(self) -> int:
        """Of all files; 0: that is not known."""
        return self.counts.rows

    @property
    def digest(self) -> str:
        """What all processes of a run must have alike."""
        if self.once:
            return f"rows that come once, {self.how}"
        files = [(f.size, f.ends) for f in self.files]
        told = json.dumps([files, [(p.offset, p.rows, p.check) for p in self.parts], self.how])
        return f"{self.rows:,} rows of files, {hashlib.sha256(told.encode()).hexdigest()[:12]}"

    def batches(self, epochs: float | None, batch_size: int) -> int | None:
        """Of so many passes; None: without end, or nobody knows."""
        return (
            None
            if epochs is None or self.once
            else max(1, -(-int(epochs) * self.rows // batch_size))
        )

    def spans(self, first: int, count: int) -> Iterator[tuple[int, int, int]]:
        """Rows [first, first + count) as (part, first, count) of each."""
        ends: list[int] = self._ends  # type: ignore[attr-defined]
        part = bisect_right(ends, first)
        while count > 0 and part < len(ends):
            begin = ends[part] - self.parts[part].rows
            taken = min(count, ends[part] - first)
            if taken:
                yield part, first - begin, taken
            first, count, part = first + taken, count - taken, part + 1

    def to_json(self) -> dict[str, Any]:
        """As JSON's own types."""
        return {
            "version": _VERSION,
            "files": [asdict(file) for file in self.files],
            "parts": [list(part) for part in self.parts],
            "counts": self.counts.config(),
            "how": self.how,
            "moments": self.moments.to_json(),
            "often": self.often,
        }

    def keep(self, folder: Path) -> None:
        """Writes it to a folder, for ``kept_in``."""
        path = folder / FILE
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(self.to_json()) + "\n", encoding="utf-8")
        beside.replace(path)

    @classmethod
    def from_json(cls, told: Any) -> RowIndex:
        """What ``to_json`` gave.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        if told["version"] != _VERSION:
            raise ValueError("it is of another version")
        counts = dict(told["counts"])
        counts["first_bad"] = tuple(BadLine(*bad) for bad in counts["first_bad"])
        return cls(
            tuple(File(**file) for file in told["files"]),
            tuple(Part(*part) for part in told["parts"]),
            ReadCounts(**counts),
            told["how"],
            Moments.from_json(told["moments"]),
            told["often"],
        )


def files_of(stream: AnyStream, model: object) -> RowFiles:
    """How a stream's files are read by their rows' numbers, for that model.

    Raises:
        ValueError: the stream is of no files of which that can be.
    """
    if stream.files and stream.repeatable:
        if isinstance(stream, ParquetStream):
            return ParquetRows(stream)
        if stream.text is not None:
            distinct = isinstance(model, FactorisationMachine)
            return TextRows(stream.text, stream.bad, distinct=distinct)
    why = "they read rows from any place, which there is none to find in such a file"
    if not stream.files:
        why = "its rows are objects of this process, which no other has"
    raise ValueError(
        f"{stream.name} is not read by readers, since {why}: write files of text in Criteo's format, CSV, "
        "libsvm or libffm, plain or packed, or Parquet, or train on stream.read(), without readers"
    )


def digest_of(told: list[Any]) -> str:
    """Of how rows are read, JSON's own types."""
    return hashlib.sha256(json.dumps(told, default=str).encode()).hexdigest()[:16]


def comes_once(stream: AnyStream) -> bool:
    """Whether its rows come out of a pipe."""
    return bool(stream.files) and not stream.repeatable


def standardised_in(stream: AnyStream, model: object) -> list[str]:
    """Its columns that a training of that model standardises by those of all rows."""
    if not isinstance(model, Graph) or not isinstance(stream, Stream):
        return []
    schema = Schema(stream.schema)
    return [name for name, scaled in zip(schema.numbers, schema.standard, strict=True) if scaled]


def _check_once(stream: AnyStream, model: object) -> None:
    """ValueError where its numbers are standardised by those of all rows, which nobody knows yet."""
    if own := standardised_in(stream, model):
        raise ValueError(
            f"{stream.name} comes once, and numbers are standardised by those of all rows, which readers cannot "
            f'know beforehand: give {", ".join(own[:3])}{", …" if own[3:] else ""} "scale": null in the schema, '
            "write the rows into a file, or train in one process: leashed train --stream"
        )


def _of_once(stream: AnyStream, folder: Path) -> RowIndex:
    """Under the folder's lock."""
    assert not isinstance(stream, ParquetStream)
    assert stream.text is not None
    how = digest_of([stream.name, stream.text.told, stream.bad])
    # (With what was counted, once all is read.)
    with contextlib.suppress(FileNotFoundError, ValueError):
        if (found := kept_in(folder)).once and found.how == how:
            return found
    made = RowIndex((), (), ReadCounts(0, 0, 0, (), 0), how, Moments.none([]), None)
    made.keep(folder)
    return made


def index_of(stream: AnyStream, model: object, folder: Path) -> RowIndex:
    """The index of a stream's files: the one in the folder where these are as they were, else a new one,
    which is kept there. Whoever comes while another makes it waits.

    Raises:
        OSError: a file cannot be read, or the folder not be written.
        ValueError: a line is bad and ``bad="fail"``; a file is damaged; there is no row; the stream
            is of no such files; or a run has begun in the folder with other ones.
    """
    rows = None
    if comes_once(stream):
        _check_once(stream, model)
    else:
        rows = files_of(stream, model)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{FILE}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if rows is None:
            return _of_once(stream, folder)
        files = [File.of(each) for each in stream.files]
        how = digest_of(rows.told)
        begun = False
        with contextlib.suppress(FileNotFoundError, ValueError):
            found = kept_in(folder)
            there = [(f.path, f.size, f.modified, f.ends) for f in found.files]
            if found.how == how and there == [(f.path, f.size, f.modified, f.ends) for f in files]:
                return found
            begun = (folder / REPORT).exists()
        if begun:  # its processes have the index that there is
            raise ValueError(
                f"{stream.name} has changed since its rows were counted; start the run anew, in another folder"
            )
        counted = rows.count(files)
        few = counted.counts.rows <= defaults.LOOKED_AT
        often = defaults.seen(model, stream).often if few else None
        made = RowIndex(*counted[:3], how, counted.moments, often)
        made.keep(folder)
        return made


def kept_in(folder: Path) -> RowIndex:
    """The index of a run, whatever its files are now.

    Raises:
        OSError, ValueError: there is none, or it is damaged.
    """
    try:
        return RowIndex.from_json(json.loads((folder / FILE).read_bytes()))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{folder / FILE} is no index of rows: {error}") from None
