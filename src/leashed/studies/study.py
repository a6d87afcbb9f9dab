"""A study is a value: what is asked, the settings that come of it, how each is run, and what the
records of the runs tell. A new one is a class here and a line in ``leashed.cli.study``.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TextIO, TypeAlias, TypeVar

import numpy as np

from leashed import _core
from leashed.base.machine import cores, cpu_model
from leashed.base.options import option
from leashed.base.table import Table
from leashed.datasets import ClickSplit, Dataset, Split
from leashed.studies.packed import SUFFIX, is_packed, parsed, unpacked
from leashed.studies.side_by_side import as_they_end
from leashed.training.problems.problem import Problem
from leashed.training.recordings import fingerprint
from leashed.training.result import TrainResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from typing_extensions import Self

__all__ = [
    "Kept",
    "Part",
    "Ran",
    "Record",
    "Study",
    "differing",
    "digest",
    "left",
    "option",
    "read",
    "revived",
    "run",
    "spelled",
    "unbroken",
]

T = TypeVar("T")
_LOOKED_AT = 1024  # examples
Record = dict[str, Any]
Data: TypeAlias = Split | ClickSplit | Dataset | Problem | None
GoOn = Callable[[object], None]
"""What a run calls now and then: raises KeyboardInterrupt when others have ended it."""


class Part(NamedTuple):
    """A part of what a study tells.

    Attributes:
        title: of the part; nothing where the note is of all parts.
        found: the table, if it has one.
        note: on what it holds.
        drawn: draws its figure, if it has one; matplotlib is imported then.
        caption: what that shows.
    """

    title: str
    found: Table | None = None
    note: str = ""
    drawn: Callable[[], Figure] | None = None
    caption: str = ""


class Study(ABC):
    """What a study is; a frozen dataclass, whose fields say what is asked.

    Fields that are tuples are what it varies, and ``repeats`` how often: a file of records may be
    gone on with by more of them. The others are conditions, which all of its records share. A
    setting is a dict that JSON has; what is measured becomes JSON by :func:`plain`.
    """

    NAME: ClassVar[str]
    TITLE: ClassVar[str]
    """Of its page."""
    HELP: ClassVar[str] = ""
    """In the list of commands."""
    DESCRIPTION: ClassVar[str] = ""
    """In the help of its command."""
    DATA: ClassVar[bool] = False
    """Whether its command takes data."""
    SIDE_BY_SIDE: ClassVar[bool] = False
    """Whether as many settings are run at once as there are processors: in virtual time."""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):  # type: ignore[arg-type]
            if (check := item.metadata.get("check")) is not None:
                value = getattr(self, item.name)
                for one in value if isinstance(value, tuple) else (value,):
                    check(item.name, one)
            choices = item.metadata.get("choices")
            if choices and getattr(self, item.name) not in (*choices, item.default):
                raise ValueError(f"{item.name} must be one of {', '.join(choices)}")

    @abstractmethod
    def settings(self) -> list[Any]:
        """All runs, repeat by repeat, so that a machine that drifts treats all alike."""

    def measure(self, setting: Any, data: Any, go_on: GoOn) -> Any:
        """Run one of them, where a study has no ``runs`` of its own.

        Args:
            setting: of ``settings``.
            data: what to train on, where the study takes data.
            go_on: for ``progress=`` of a simulation: raises KeyboardInterrupt when others ended.
        """
        raise NotImplementedError

    @abstractmethod
    def parts(self, records: Sequence[Any]) -> list[Part]:
        """What records tell: tables, notes and figures. They are as ``shown`` gives them."""

    def conditions(self, data: Data) -> Record:
        """What its records have in common, by name."""
        own = {
            item.name: value
            for item in dataclasses.fields(self)  # type: ignore[arg-type]
            if item.name != "repeats" and not isinstance(value := getattr(self, item.name), tuple)
        }
        if data is not None:
            train = data if isinstance(data, Dataset) else data.train
            own |= {"data": train.name, "examples": len(train), "digest": digest(train)}
        here = {"cpu": cpu_model(), "cores": cores(), "isa": _core.default_isa()}
        return {**own, **here, "version": _core.__version__}

    @classmethod
    def of(cls, records: Sequence[Any]) -> Self:
        """The study that led to records, which share their conditions."""
        conditions, settings = records[0]["conditions"], [record["setting"] for record in records]
        given: Record = {}
        for item in dataclasses.fields(cls):  # type: ignore[arg-type]
            if item.name == "repeats" and "repeats" not in conditions:
                given["repeats"] = 1 + max(setting.get("repeat", 0) for setting in settings)
            elif any(item.name in setting for setting in settings):
                values = [setting[item.name] for setting in settings if item.name in setting]
                given[item.name] = tuple(dict.fromkeys(values))
            elif item.name in conditions:
                value = conditions[item.name]
                given[item.name] = tuple(value) if isinstance(value, list) else value
        return cls(**given)

    def words(self, setting: Any) -> str:
        """A setting by its name, which no other has."""
        return " ".join(
            f"{name}={spelled(value)}" for name, value in setting.items() if value is not None
        )

    def run(self, setting: Any, data: Any) -> Any:
        """The record of one setting."""
        return self.record(setting, data, self.measure(setting, data, lambda _: None))

    def record(self, setting: Any, data: Any, measured: Any) -> Any:
        """What is kept of a run: a dict that JSON has."""
        return {
            "study": self.NAME,
            "setting": setting,
            "conditions": plain(self.conditions(data)),
            "measured": plain(measured),
        }

    def runs(
        self,
        records: Sequence[Any],
        data: Any,
        begin: Callable[[Any], bool],
        progress: Callable[[Any], object],  # noqa: ARG002 (for those that tell of each evaluation)
    ) -> Iterator[Any]:
        """The records of what is left, as they end.

        Args:
            records: what is there.
            data: what to train on.
            begin: is asked before each setting; where it says no, nothing more is begun.
            progress: may be called with :class:`leashed.training.train.Progress` during a run.
        """
        settings = takewhile(begin, self.left(records, data))
        if not self.SIDE_BY_SIDE:
            for setting in settings:
                yield self.run(setting, data)
            return
        for setting, measured in as_they_end(
            lambda setting, go_on: self.measure(setting, data, go_on), settings
        ):
            yield self.record(setting, data, measured)

    def left(self, records: Iterable[Any], data: Data) -> list[Any]:
        """The settings without a record; ValueError as of :func:`left`."""
        return left(self, data, records)

    def shown(self, records: Sequence[Any]) -> list[Any]:
        """The records that tables are made of: of the settings that are asked for, in their order,
        without those of repeats that are not whole yet.
        """
        there = {self.words(record["setting"]): record for record in records}
        asked = [(setting.get("repeat"), self.words(setting)) for setting in self.settings()]
        torn = {repeat for repeat, words in asked if words not in there and repeat is not None}
        return [there[words] for repeat, words in asked if words in there and repeat not in torn]

    def rest(self, left: Sequence[Any], records: Sequence[Any]) -> str:  # noqa: ARG002
        """How much is left beside records, in words."""
        return f"{len(left)} of {len(self.settings())} runs are left"

    def all(self, data: Data = None) -> list[Any]:
        """The records of all settings, in their order, run here and kept nowhere."""
        return self.shown(run(self, data).records)

    def text(self, records: Sequence[Any]) -> str:
        """What records tell, as text; they are as ``shown`` gives them."""
        parts = self.parts(records)
        pieces = [
            piece
            for part in parts
            for piece in (part.title if len(parts) > 1 else "", part.found, part.note)
            if piece
        ]
        return "\n\n".join(map(str, pieces))

    @classmethod
    def parsed(cls, line: str) -> Any:
        """A record from its line of a file.

        Raises:
            ValueError: it is none.
        """
        record = json.loads(line)
        if not isinstance(record, dict) or not record.keys() >= _KEYS:
            raise ValueError("this is no record of a study")
        return record

    def line(self, record: Any) -> str:
        """A record's line."""
        return json.dumps(record, ensure_ascii=False, allow_nan=False)

    def setting_of(self, record: Any) -> Any:
        """The setting that a record is of."""
        return record["setting"]


_KEYS = {"study", "setting", "conditions", "measured"}


def digest(data: Any) -> str:
    """Of the first examples: data sets of one name and size may be others."""
    return fingerprint(data.head(_LOOKED_AT))[:12]


def differing(there: Record, asked: Record) -> None:
    """ValueError where the conditions of a record are not those asked for. What was kept before
    there were digests has none.
    """
    unlike = [
        f"{name} {there.get(name)} there, {asked.get(name)} here"
        for name in {**asked, **there}
        if there.get(name) != asked.get(name) and not (name == "digest" and there.get(name) is None)
    ]
    if unlike:
        raise ValueError(f"its runs were made under other conditions: {'; '.join(unlike)}")


def left(study: Study, data: Data, records: Iterable[Record]) -> list[Any]:
    """The settings of a study that are not among records of it.

    Raises:
        ValueError: a record is of another study, or made under other conditions.
    """
    asked = plain(study.conditions(data))
    done = set()
    for record in records:
        if record["study"] != study.NAME:
            raise ValueError(f"its records are of {record['study']}, not of {study.NAME}")
        differing(record["conditions"], asked)
        done.add(study.words(record["setting"]))
    return [setting for setting in study.settings() if study.words(setting) not in done]


class Kept:
    """The records that a file has, and is given.

    Args:
        path: of the file, JSON lines; None keeps them nowhere.
        parse: a record from its line.
        resume: whether to add to what is there.
        told: is called with a line about what is dropped.

    Attributes:
        records: what was there when it was opened, and what has come to it.

    Raises:
        FileExistsError: there is something, and it is not to be added to.
        OSError: the file cannot be read.
        ValueError: a line is no record, or the file is packed, or named as one that is.
    """

    def __init__(
        self,
        path: Path | None,
        parse: Callable[[str], Any] = Study.parsed,
        *,
        resume: bool = False,
        told: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.path = path
        self.records: list[Any] = []
        self._size = self._found = 0  # bytes, of records and of all
        self._file: TextIO | None = None
        if path is None:
            return
        if path.suffix == SUFFIX:
            raise ValueError(
                f"{path}: results are written as text, line by line: name a file without {SUFFIX}, "
                f"and pack it afterwards"
            )
        if not path.exists() or not path.stat().st_size:
            return
        self._found = path.stat().st_size
        if not resume:
            raise FileExistsError(
                f"{path} has results already: --resume adds what is missing, another --output "
                "starts anew"
            )
        if is_packed(path):
            raise ValueError(f"{path} is packed by gzip, nothing can be appended: unpack it first")
        self.records, self._size = read(path, parse)
        if self._size < self._found:
            told(f"{path}: its last line was not written to the end and is dropped")

    def open(self) -> None:
        """Open the file, until it is closed for nobody else.

        Raises:
            ValueError: another process has it open, or has written to it since it was read.
        """
        if self.path is None:
            return
        self._file = self.path.open("a", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{self.path}: another process writes to it; wait for its end, or name another file"
            ) from None
        if self.path.stat().st_size != self._found:
            raise ValueError(f"{self.path} has changed since it was read; give the command again")
        self._file.truncate(self._size)

    def append(self, line: str) -> None:
        """Write a record's line, so that a process that is killed loses none that ended."""
        if self.path is not None:
            assert self._file is not None, "open it first"
            self._file.write(line + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def read(path: Path, parse: Callable[[str], T] = Study.parsed) -> tuple[list[T], int]:
    """The records in a file, plain or packed by gzip, one line of JSON each, and how many of its
    bytes, unpacked, they are: a last line without an end, as a process leaves it that was killed
    while it wrote, is passed over.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line is no record; the message has its number.
    """
    content = unpacked(path)
    size = content.rfind(b"\n") + 1
    return list(parsed(content[:size], path, parse)), size


class Ran(NamedTuple):
    """How far a study has come.

    Attributes:
        records: what was there, and what was run.
        left: the settings without a record.
        interrupted: whether Ctrl-C has ended it.
    """

    records: list[Any]
    left: list[Any]
    interrupted: bool


def run(
    study: Study,
    data: Data = None,
    *,
    kept: Kept | None = None,
    minutes: float | None = None,
    begun: Callable[[Any, int], object] = lambda *_: None,
    ended: Callable[[Any], object] = lambda _: None,
    progress: Callable[[Any], object] = lambda _: None,
) -> Ran:
    """Run what is left of a study, and keep each record as its run ends.

    Args:
        study: what to run.
        data: what to train on, where it takes data.
        kept: what is there, and where records go. Default: nothing, nowhere.
        minutes: no setting is begun that would end later, where it takes as long as those before
            took on average; the first is begun in any case. Default: all are.
        begun: called with each setting and how many began before it.
        ended: called with each record.
        progress: called after evaluations of a run, where the study tells of them.

    Raises:
        ValueError: what is there is of another study, or made under other conditions, or another
            process writes there.
    """
    kept = Kept(None) if kept is None else kept
    records = kept.records
    study.left(records, data)  # or ValueError, before anything is run
    start = time.monotonic()
    began: dict[str, float] = {}
    took: list[float] = []

    def begin(setting: Any) -> bool:
        now = time.monotonic()
        expected = sum(took) / len(took) if took else 0.0
        if minutes is not None and began and now - start + expected > 60.0 * minutes:
            return False
        begun(setting, len(began))
        began[study.words(setting)] = now
        return True

    interrupted = False
    with closing(kept), closing(study.runs(records, data, begin, progress)) as running:  # type: ignore[type-var]
        kept.open()
        try:
            for record in running:
                kept.append(study.line(record))
                records.append(record)
                took.append(time.monotonic() - began[study.words(study.setting_of(record))])
                ended(record)
        except KeyboardInterrupt:
            interrupted = True
    return Ran(records, study.left(records, data), interrupted)


def unbroken(result: TrainResult) -> TrainResult:
    """A result; KeyboardInterrupt where Ctrl-C has ended its training."""
    if result.reason == "interrupted":
        raise KeyboardInterrupt
    return result


def plain(value: Any) -> Any:
    """As JSON has it: arrays and tuples as lists, dataclasses and named tuples as dicts, NaN and
    infinities as None.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    elif isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def revived(kind: Callable[..., T], measured: Record) -> T:
    """What ``plain`` made a dict of: lists are arrays, and None is NaN."""
    return kind(**{name: _revived(value) for name, value in measured.items()})


def _revived(value: Any) -> Any:
    if value is None:
        return math.nan
    if not isinstance(value, list):
        return value
    found = np.array(value)
    return found.astype(np.float64) if found.dtype == object or not found.size else found


def spelled(value: Any) -> str:
    """A value in words: of several, such as gaps in turn, all."""
    return "/".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
