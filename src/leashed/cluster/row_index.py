"""Where the rows of text files are: parts of some MiB, each with its number of rows, so that any rows can be
read by their numbers, by whoever has the files. Made once, kept beside the run.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from leashed import _core
from leashed.base.machine import cores
from leashed.cluster.supervisor import REPORT
from leashed.datasets.files import name_of
from leashed.datasets.moments import Moments
from leashed.datasets.text import Text, read
from leashed.datasets.unpacked import Unpacked
from leashed.stream import BadLine, ReadCounts, Stream
from leashed.training import defaults

__all__ = ["FILE", "File", "Parsed", "Part", "RowIndex", "index_of", "kept_in", "parse"]

FILE = "rows.index"
"""What it is called in a run's folder."""

_VERSION = 1
_PART = 4 << 20  # bytes of text
_LONGEST_LINE = 64 << 20
_ENDS = 1 << 16  # bytes at each end of a file that are looked at
_KEPT = 100  # bad lines that are told
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Part(NamedTuple):
    """A part of a file.

    Attributes:
        file: which.
        offset: bytes of what the file unpacks to that come before it.
        size: its bytes.
        rows: in it.
        lines: before it in its file.
    """

    file: int
    offset: int
    size: int
    rows: int
    lines: int


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


def parse(text: Text, file: File, content: bytes) -> Parsed:
    """The rows in whole lines of a file.

    Raises:
        ValueError: the header lacks a column.
    """
    head = file.head.encode("utf-8", "surrogateescape")
    if file.separator:
        text = text._replace(separators=file.separator, header="none")
    given = head + content
    native = text.open(
        [io.BytesIO(given)], threads=1, skip=True, part_bytes=len(given) + 1, named=[file.path]
    )
    try:
        arrays = read(native)
    except _core.NoRows:
        arrays = None
    counts = native.counts()
    before = int(bool(head))
    bad = tuple((number - before, reason) for _, number, reason in counts["first_bad"])
    rows = 0 if arrays is None else len(arrays[3])
    return Parsed(arrays, rows, counts["lines"] - before, counts["bad"], bad)


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
    def rows(self) -> int:
        """Of all files."""
        return self.counts.rows

    @property
    def digest(self) -> str:
        """What all processes of a run must have alike."""
        files = [(f.size, f.ends) for f in self.files]
        told = json.dumps([files, [(p.offset, p.rows) for p in self.parts], self.how])
        return f"{self.rows:,} rows of files, {hashlib.sha256(told.encode()).hexdigest()[:12]}"

    def batches(self, epochs: float | None, batch_size: int) -> int | None:
        """Of so many passes; None: without end."""
        return None if epochs is None else max(1, -(-int(epochs) * self.rows // batch_size))

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


def index_of(stream: Stream, model: object, folder: Path) -> RowIndex:
    """The index of a stream's files: the one in the folder where these are as they were, else a new one,
    which is kept there. Whoever comes while another makes it waits.

    Raises:
        OSError: a file cannot be read, or the folder not be written.
        ValueError: a line is bad and ``bad="fail"``; a file is damaged; there is no row; the stream
            is of no such files; or a run has begun in the folder with other ones.
    """
    text, paths = stream.text, stream.files
    if text is None or not paths or not stream.repeatable:
        raise ValueError(
            f"{stream.name} is not read by readers, which read files of text in Criteo's format or CSV, "
            "plain or packed; train without readers"
        )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    with (folder / f"{FILE}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        files = [File.of(each) for each in paths]
        how, begun = _how(text, stream.bad), False
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
        made = _made(files, text, how, stream.bad)
        often = defaults.seen(model, stream).often if made.rows <= defaults.LOOKED_AT else None
        made = replace(made, often=often)
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(made.to_json()) + "\n", encoding="utf-8")
        beside.replace(path)
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


def _how(text: Text, bad: str) -> str:
    told = [text.schema.to_json(), text.separators, text.header, list(text.names), text.quotes, bad]
    return hashlib.sha256(json.dumps(told, default=str).encode()).hexdigest()[:16]


def _made(files: list[File], text: Text, how: str, bad: str) -> RowIndex:
    known: list[File] = []
    parts: list[Part] = []
    moments = Moments.none([True] * len(text.schema.numbers))
    counts = [0, 0, 0]  # lines, bad lines, bytes
    first_bad: list[BadLine] = []
    with ThreadPoolExecutor(cores(), "leashed-index") as pool:
        for number, found in enumerate(files):
            with contextlib.closing(Unpacked(Path(found.path))) as opened:
                file, offset, lines = _begun(text, found, opened)
                known.append(file)
                counts[0] += lines
                counts[2] += offset
                under_way: deque[tuple[int, int, Future[Parsed]]] = deque()
                pieces = _lines(opened, offset, file.path)
                ended = False
                while not ended or under_way:
                    while not ended and len(under_way) < cores() + 1:
                        if (piece := next(pieces, None)) is None:
                            ended = True
                            break
                        work = pool.submit(parse, text, file, piece[1])
                        under_way.append((piece[0], len(piece[1]), work))
                    if not under_way:
                        break
                    at, size, work = under_way.popleft()
                    parsed = work.result()
                    if parsed.bad:
                        _judge(parsed, file, lines, bad, first_bad)
                    if parsed.rows:
                        moments = moments.merged(parsed.arrays[0])
                    parts.append(Part(number, at, size, parsed.rows, lines))
                    lines += parsed.lines
                    counts[0] += parsed.lines
                    counts[1] += parsed.bad
                    counts[2] += size
    rows = sum(part.rows for part in parts)
    if not rows:
        raise _core.NoRows(f"{files[0].path}: there is no row in it")
    told = ReadCounts(rows, counts[0], counts[1], tuple(first_bad), counts[2])
    return RowIndex(tuple(known), tuple(parts), told, how, moments, None)


def _judge(parsed: Parsed, file: File, lines: int, bad: str, first_bad: list[BadLine]) -> None:
    """Of a part's bad lines, behind so many lines of its file."""
    name = name_of(Path(file.path))
    for number, reason in parsed.first_bad[: _KEPT - len(first_bad)]:
        first_bad.append(BadLine(name, lines + number, reason))
    if bad == "fail":
        number, reason = parsed.first_bad[0]
        raise ValueError(
            f'{name}: line {lines + number}: {reason}; bad="skip" leaves such lines out'
        )


def _begun(text: Text, file: File, opened: Unpacked) -> tuple[File, int, int]:
    """What is known of a file by its first line, where its rows begin, and lines before."""
    content = opened.read(0, _PART)
    while b"\n" not in content.lstrip(b"\r\n") and len(content) < _LONGEST_LINE:
        more = opened.read(len(content), _PART)
        if not more:
            break
        content += more
    mark = len(_BYTE_ORDER_MARK) if content.startswith(_BYTE_ORDER_MARK) else 0
    begin = mark
    while content[begin : begin + 1] in (b"\r", b"\n"):
        begin += 1
    blank = content.count(b"\n", 0, begin)
    end = content.find(b"\n", begin) + 1 or len(content)
    line = content[begin:end]
    if text.header == "none" or not line:
        return file, begin, blank
    told = line if line.endswith(b"\n") else line + b"\n"
    alone = parse(text, file, told)
    if not alone.rows and not alone.bad:  # it names the columns
        head = told.decode("utf-8", "surrogateescape")
        return replace(file, head=head), end, blank + 1
    return replace(file, separator=_separator_of(line, text)), begin, blank


def _separator_of(line: bytes, text: Text) -> str:
    """As the core finds it by a file's first line: the one that it has as many of as there are names, or
    has most of.
    """
    counts = {separator: line.count(separator.encode()) for separator in text.separators}
    fits = (one for one, count in counts.items() if count == len(text.names) - 1)
    return next(fits, max(counts, key=lambda one: counts[one]))


def _lines(opened: Unpacked, offset: int, name: str) -> Iterator[tuple[int, bytes]]:
    """Parts of whole lines from there on, each with its offset."""
    size = _PART
    while content := opened.read(offset, size):
        end = len(content) if len(content) < size else content.rfind(b"\n") + 1
        if end == 0:
            if size >= _LONGEST_LINE:
                raise ValueError(
                    f"{name}: a line is longer than {_LONGEST_LINE >> 20} MiB; is it a text file?"
                )
            size *= 2
            continue
        yield offset, content[:end]
        offset, size = offset + end, _PART
