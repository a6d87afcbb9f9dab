"""What ShadowSync's studies share."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from leashed.studies.study import Data, Record, Study
from leashed.sync import SYNCHRONISERS

__all__ = ["Timed", "numbers"]


@dataclass(frozen=True, kw_only=True)
class Timed(Study):
    """A study that knows about how long it takes, and tells of whatever records there are."""

    SYNCHRONISERS: ClassVar[tuple[str, ...]] = tuple(SYNCHRONISERS)
    """Those that its arms may have, whose numbers are conditions of its runs."""

    repeats: int

    @abstractmethod
    def seconds(self) -> float:
        """How long all settings take, about."""

    def conditions(self, data: Data) -> Record:
        """With the numbers of the synchronisers, as they are where a setting has no others."""
        given = {
            f"{kind}.{name}": value
            for kind in self.SYNCHRONISERS
            for name, value in numbers(kind).items()
        }
        return {**given, **super().conditions(data)}

    def report(self, records: Sequence[Any]) -> str:
        """The old name of ``text``."""
        return self.text(records)

    def shown(self, records: Sequence[Any]) -> list[Any]:
        return list(records)


def numbers(kind: str) -> Record:
    """What a synchroniser has by default beside when it takes place, by name."""
    made = SYNCHRONISERS[kind]()
    return {
        item.name: getattr(made, item.name)
        for item in dataclasses.fields(made)
        if item.name != "when"
    }
