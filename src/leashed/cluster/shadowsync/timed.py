"""What ShadowSync's studies share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from leashed.studies.study import Study

__all__ = ["Timed"]


@dataclass(frozen=True, kw_only=True)
class Timed(Study):
    """A study that knows about how long it takes, and tells of whatever records there are."""

    repeats: int

    @abstractmethod
    def seconds(self) -> float:
        """How long all settings take, about."""

    def report(self, records: Sequence[Any]) -> str:
        """The old name of ``text``."""
        return self.text(records)

    def shown(self, records: Sequence[Any]) -> list[Any]:
        return list(records)
