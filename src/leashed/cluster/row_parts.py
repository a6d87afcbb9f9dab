"""Parts of files whose rows are read by their numbers: what every format of them has in common."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from leashed import _core
from leashed.base.machine import cores
from leashed.datasets.moments import Moments
from leashed.datasets.text import read
from leashed.stream import BadLine, ReadCounts

__all__ = ["Counted", "File", "Parsed", "Part", "RowFiles", "in_order", "judge", "parsed"]

_KEPT = 100  # bad lines that are told
_ENDS = 1 << 16  # bytes at each end of a file that are looked at

T = TypeVar("T")
R = TypeVar("R")


class Part(NamedTuple):
    """A part of a file.

    Attributes:
        file: which.
        offset: what comes before it in its file: bytes of what that unpacks to, of Parquet rows.
        size: what it has, in these.
        rows: in it, which bad ones are not.
        lines: before it: of its file; of Parquet rows, of all files.
        check: a checksum of what it has; of Parquet of what its file's end tells of it.
    """

    file: int
    offset: int
    size: int
    rows: int
    lines: int
    check: int = 0


@dataclass(frozen=True)
class File:
    """A file as it was when its rows were counted.

    Attributes:
        path: as it was named.
        size: bytes.
        modified: when it was written, in nanoseconds.
        ends: a digest of its first and its last bytes.
        head: the line that names its columns, with its end; empty: it has none.
        separator: what its fields are apart by, where nothing else says so; else empty.
    """

    path: str
    size: int
    modified: int
    ends: str
    head: str = ""
    separator: str = ""

    @classmethod
    def of(cls, path: Path) -> File:
        """As it is now.

        Raises:
            OSError: it cannot be read.
        """
        with path.open("rb") as file:
            told = os.fstat(file.fileno())
            digest = hashlib.sha256(file.read(_ENDS))
            file.seek(max(0, told.st_size - _ENDS))
            digest.update(file.read(_ENDS))
        return cls(str(path), told.st_size, told.st_mtime_ns, digest.hexdigest()[:16])

    def check(self) -> None:
        """ValueError where it has changed since."""
        try:
            told = Path(self.path).stat()
        except FileNotFoundError:
            raise ValueError(f"{self.path} is gone since its rows were counted") from None
        if (told.st_size, told.st_mtime_ns) != (self.size, self.modified):
            raise ValueError(
                f"{self.path} has changed since its rows were counted; start the run anew, in another folder"
            )


class Parsed(NamedTuple):
    """The rows of a part.

    Attributes:
        arrays: x, single ids, bags, y, weights, as the core gives them; None: there are none.
        rows: how many there are.
        lines: of the part.
        bad: lines that are no rows.
        first_bad: the first of these: its number in the part, from 1, and why.
    """

    arrays: Any
    rows: int
    lines: int
    bad: int
    first_bad: tuple[tuple[int, str], ...]


class Counted(NamedTuple):
    """What there is in files.

    Attributes:
        files: as they are, with what their beginnings tell.
        parts: of all files, in order.
        counts: what was read.
        moments: what the numbers of all rows come to.
    """

    files: tuple[File, ...]
    parts: tuple[Part, ...]
    counts: ReadCounts
    moments: Moments


class RowFiles(ABC):
    """Files of one format.

    Attributes:
        bad: ``"fail"`` or ``"skip"``: what is done about a line that is no row.
    """

    bad: str

    @property
    @abstractmethod
    def told(self) -> list[Any]:
        """What rows become, and how files are written, for a digest."""

    @abstractmethod
    def count(self, files: list[File]) -> Counted:
        """Where rows are.

        Raises:
            OSError: a file cannot be read.
            ValueError: a line is bad and ``bad="fail"``; a file is damaged; or there is no row.
        """

    @abstractmethod
    def open(self, number: int, file: File) -> Any:
        """What ``parse`` reads it by, from any thread; it has ``close()``.

        Raises:
            OSError, ValueError: it cannot be read.
        """

    @abstractmethod
    def parse(self, file: File, opened: Any, part: Part) -> Parsed:
        """The rows of a part.

        Raises:
            OSError, ValueError: it cannot be read.
        """


def parsed(native: _core.RowStream, before: int = 0) -> Parsed:
    """All rows of a native stream that skips bad ones, behind so many lines that are no part's."""
    try:
        arrays = read(native, here=True)
    except _core.NoRows:
        arrays = None
    counts = native.counts()
    bad = tuple((number - before, reason) for _, number, reason in counts["first_bad"])
    rows = 0 if arrays is None else len(arrays[3])
    return Parsed(arrays, rows, counts["lines"] - before, counts["bad"], bad)


def in_order(items: Iterable[T], work: Callable[[T], R]) -> Iterator[tuple[T, R]]:
    """What work makes of each, by as many threads as there are cores, and one more on its way."""
    given = iter(items)
    under_way: deque[tuple[T, Future[R]]] = deque()
    with ThreadPoolExecutor(cores(), "leashed-index") as pool:
        for item in given:
            under_way.append((item, pool.submit(work, item)))
            if len(under_way) > cores():
                first, made = under_way.popleft()
                yield first, made.result()
        while under_way:
            first, made = under_way.popleft()
            yield first, made.result()


def judge(
    found: Parsed, name: str, lines: int, unit: str, bad: str, first_bad: list[BadLine]
) -> None:
    """Keeps a part's first bad lines, behind so many lines.

    Raises:
        ValueError: there is one and ``bad="fail"``.
    """
    if not found.bad:
        return
    for number, reason in found.first_bad[: _KEPT - len(first_bad)]:
        first_bad.append(BadLine(name, lines + number, reason))
    if bad == "fail":
        number, reason = found.first_bad[0]
        raise ValueError(
            f'{name}: {unit} {lines + number}: {reason}; bad="skip" leaves such {unit}s out'
        )
