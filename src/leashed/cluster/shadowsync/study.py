"""What the experiments share: a plan leads to settings, each of which is run and leaves a record."""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from leashed import _core
from leashed.base.machine import cores, cpu_model
from leashed.datasets import Split

__all__ = ["Record", "Study", "left", "read"]

Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Study(ABC):
    """An experiment: its settings, and how each is run.

    Fields that are tuples are what it varies, and ``repeats`` how often; the others are conditions,
    which all of its records share.
    """

    NAME: ClassVar[str]

    repeats: int

    @abstractmethod
    def settings(self) -> list[Record]:
        """All runs, repeat by repeat, so that a machine that drifts treats all alike."""

    @abstractmethod
    def measure(self, setting: Record, data: Split | None) -> Record:
        """Runs one of them."""

    @abstractmethod
    def seconds(self) -> float:
        """How long all take, about."""

    @abstractmethod
    def report(self, records: Sequence[Record]) -> str:
        """What records tell, as tables."""

    def conditions(self, data: Split | None) -> Record:
        """What its records have in common, by name."""
        own = {
            item.name: value
            for item in dataclasses.fields(self)
            if item.name != "repeats" and not isinstance(value := getattr(self, item.name), tuple)
        }
        if data is not None:
            own |= {"data": data.train.name, "examples": len(data.train)}
        here = {"cpu": cpu_model(), "cores": cores(), "isa": _core.default_isa()}
        return {**own, **here, "version": _core.__version__}

    def run(self, setting: Record, data: Split | None) -> Record:
        """The record of one setting."""
        return {
            "study": self.NAME,
            "setting": setting,
            "conditions": self.conditions(data),
            "measured": self.measure(setting, data),
        }


def left(study: Study, data: Split | None, records: Iterable[Record]) -> list[Record]:
    """The settings of a study that are not among records of it.

    Raises:
        ValueError: a record is of another study, or made under other conditions.
    """
    asked = study.conditions(data)
    done = []
    for record in records:
        if record["study"] != study.NAME:
            raise ValueError(f"its records are of {record['study']}, not of {study.NAME}")
        there = record["conditions"]
        differing = [
            f"{name} {there.get(name)} there, {asked[name]} here"
            for name in asked
            if there.get(name) != asked[name]
        ]
        if differing:
            raise ValueError(f"its runs were made under other conditions: {'; '.join(differing)}")
        done.append(record["setting"])
    return [setting for setting in study.settings() if setting not in done]


def read(path: Path) -> tuple[list[Record], int]:
    """The records in a file, one line of JSON each, and how many of its bytes they are: a last line
    without an end is passed over.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line is no record; the message has its number.
    """
    content = path.read_bytes()
    size = content.rfind(b"\n") + 1
    records = []
    for number, line in enumerate(content[:size].decode("utf-8").splitlines(), start=1):
        try:
            record = json.loads(line)
            if not {"study", "setting", "conditions", "measured"} <= record.keys():
                raise ValueError("this is no record of leashed bench shadowsync")
        except (ValueError, AttributeError) as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
        records.append(record)
    return records, size
