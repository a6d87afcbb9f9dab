"""What is known of days that are trained on one after another: a row for each that is done, and how
the one under way began. In a file that is there whole or not at all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

from leashed.base import atomic
from leashed.metrics import Classified, Errors, Values
from leashed.training.best import Best

__all__ = ["Day", "Journal", "LogFile", "Scores", "Today", "first_of", "log_files"]

Scores: TypeAlias = "Values | Errors | Classified"
"""Of clicks, numbers or classes."""

_FORMAT = "leashed.days"
_VERSION = 2
_READ = (1, _VERSION)  # of the first neither shares of clicks nor files are known


@dataclass(frozen=True)
class LogFile:
    """A file of a day, as it was when the day was begun.

    Attributes:
        path: absolute.
        bytes: of the file.
        modified: when it was, in nanoseconds since 1970.
    """

    path: str
    bytes: int
    modified: int

    @classmethod
    def at(cls, path: Path) -> LogFile:
        """As it is now. OSError where it is not there."""
        now = path.stat()
        return cls(str(path.resolve()), now.st_size, now.st_mtime_ns)

    @property
    def key(self) -> tuple[str, int, int]:
        """The same of files that may be the same, in whatever folder."""
        return Path(self.path).name, self.bytes, self.modified


def first_of(scores: Scores) -> tuple[str, float]:
    """The score that tells most in one number, and what it is called."""
    if isinstance(scores, Errors):
        return "RMSE", scores.rmse
    return ("accuracy", scores.accuracy) if isinstance(scores, Classified) else ("AUC", scores.auc)


def log_files(paths: Iterable[Path]) -> tuple[LogFile, ...]:
    """As they are now; of what is no file, such as a pipe, nothing is known."""
    return tuple(LogFile.at(path) for path in paths if path.is_file())


@dataclass(frozen=True)
class Day:
    """One day of ``leashed.continual``.

    Attributes:
        name: as it was given: its key, or its number from 0.
        data: what its data is called.
        examples: of the day.
        bad: lines that are no rows, and were left out.
        updates: made by its end, since the first day.
        loss: as ``TrainResult.final_loss`` has it: of a stream the mean over its rows, each as its
            batch was found just before it was trained on (of a day that was begun again, those
            since), of data in memory that of all of it afterwards. NaN where there was none: of a
            stream of which nothing was left to train on but to write this down, and of a day
            without a row.
        yesterday: of its rows, as the model of the day before predicts them: ``metrics.Values`` of clicks,
            ``metrics.Errors`` of numbers, ``metrics.Classified`` of classes; None of the first day,
            and where no batch before has told a model what to normalise by.
        progressive: of its rows, each before it was trained on, where ``metrics`` were asked for; of
            a day that was begun again, of those since.
        seconds: of training, since the day was begun, or begun again.
        eps: examples per second of that; NaN where none was trained on.
        rows: of all tables together that ids have at its end.
        click_share: of its rows, by weight, those that have label 1; NaN where that was not counted, and
            where what is predicted is no click.
        files: of a stream, as they were before the day was read.
        changed: whether these have been found to be others since, which a warning has said.
        refused: of the distinct ids of its batches the share that got no row for want of room; of a
            day that was begun again, of those since.
        observed: what those found that ``counting`` names, by name, as ``TrainResult.observed`` has it;
            of a day that was begun again, since.
        best: by ``until(patience=...)`` which of its states came of it, its passes counted since the day
            was begun, or begun again; else None.
    """

    name: str
    data: str
    examples: int
    bad: int
    updates: int
    loss: float
    yesterday: Scores | None
    progressive: Values | None
    seconds: float
    eps: float
    rows: int
    click_share: float = math.nan
    files: tuple[LogFile, ...] = ()
    changed: bool = False
    refused: float = 0.0  # (older files lack it, and the next)
    observed: dict[str, float] = field(default_factory=dict)
    best: Best | None = None


@dataclass(frozen=True)
class Today:
    """A day that is under way.

    Attributes:
        name: as of ``Day``.
        begun_at: updates that had been made before.
        yesterday, click_share, files: as of ``Day``.
    """

    name: str
    begun_at: int
    yesterday: Scores | None
    click_share: float = math.nan
    files: tuple[LogFile, ...] = ()


@dataclass
class Journal:
    """Days that are done, and the one under way, in a file.

    Args:
        path: the file; what is in it is read, where it is there.

    Attributes:
        done: in the order that they were trained on.
        today: the day under way, if there is one.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or of a newer version.
    """

    path: Path
    done: list[Day] = field(init=False, default_factory=list)
    today: Today | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return
        try:
            self._read(json.loads(content))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"cannot read {self.path}: {reason}") from error

    def _read(self, told: dict[str, Any]) -> None:
        if told["format"] != _FORMAT:
            raise ValueError("it tells of no days")
        if told["version"] not in _READ:
            raise ValueError(
                f"its format version is {told['version']}, this release reads up to {_VERSION}; "
                "upgrade leashed"
            )
        self.done = [Day(**_from_json(day)) for day in told["done"]]
        self.today = None if told["today"] is None else Today(**_from_json(told["today"]))

    def begin(self, today: Today) -> None:
        """This day is under way. OSError where that cannot be written."""
        self.today = today
        self._write()

    def finish(self, day: Day) -> None:
        """And is done. OSError as of ``begin``."""
        self.done.append(day)
        self.today = None
        self._write()

    def tell_changed(self, names: Collection[str]) -> None:
        """The files of these days, which are done, are others now. OSError as of ``begin``."""
        self.done = [replace(day, changed=True) if day.name in names else day for day in self.done]
        self._write()

    def _write(self) -> None:
        told = {
            "format": _FORMAT,
            "version": _VERSION,
            "done": [to_json(day) for day in self.done],
            "today": None if self.today is None else to_json(self.today),
        }
        text = json.dumps(told, indent=1, allow_nan=False) + "\n"
        atomic.write(self.path, [text.encode()])


def to_json(told: Day | Today) -> dict[str, Any]:
    """As JSON's own types: what is not finite is null."""
    return _without_nan(asdict(told))


def _without_nan(told: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without_nan(value)
        if isinstance(value, dict)
        else None
        if isinstance(value, float) and not math.isfinite(value)
        else value
        for name, value in told.items()
    }


_METRICS = ("yesterday", "progressive")


def _from_json(told: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = {
        name: _values(value) if name in _METRICS else math.nan if value is None else value
        for name, value in told.items()
        if name != "best"
    }
    if "observed" in read:
        read["observed"] = {k: math.nan if v is None else v for k, v in read["observed"].items()}
    if told.get("best") is not None:
        read["best"] = Best(**told["best"])
    return {**read, "files": tuple(LogFile(**file) for file in told.get("files", ()))}


def _values(told: dict[str, Any] | None) -> Scores | None:
    if told is None:
        return None
    values = _with_nan(told)
    if "auc" in told:
        return Values.of(values)
    kind: Any = Errors if "mse" in told else Classified
    return cast("Scores", kind(**values))


def _with_nan(told: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _with_nan(value) if isinstance(value, dict) else math.nan if value is None else value
        for name, value in told.items()
    }
