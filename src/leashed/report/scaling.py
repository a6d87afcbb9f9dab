"""The scaling benchmark as a study, whose records are the results of its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, ClassVar

from leashed.datasets import Dataset
from leashed.report import summary
from leashed.studies import scaling
from leashed.studies.plan import Plan, Setting
from leashed.studies.runs import Run
from leashed.studies.study import Part, Record, Study

__all__ = ["Scaling"]


@dataclass(frozen=True)
class Scaling(Study):
    """Runs of a plan.

    Args:
        plan: what to run.
    """

    NAME: ClassVar[str] = "scaling"
    TITLE: ClassVar[str] = "Consistency disciplines of asynchronous SGD, compared"

    plan: Plan

    def settings(self) -> list[Setting]:
        return self.plan.settings()

    def words(self, setting: Setting) -> str:
        return str(setting)

    def conditions(self, data: Any) -> Record:
        return self.plan.conditions(data)

    def left(self, records: Iterable[Run], data: Any) -> list[Setting]:
        return scaling.left(self.plan, data, records)

    def runs(
        self,
        records: Sequence[Run],
        data: Dataset,
        begin: Callable[[Setting], bool],
        progress: Callable[[Any], object],
    ) -> Iterator[Run]:
        settings = takewhile(begin, self.left(records, data))
        for run in scaling.run(self.plan, data, settings=settings, progress=progress):
            if run.result.reason == "interrupted":
                raise KeyboardInterrupt
            yield run

    def shown(self, records: Sequence[Run]) -> list[Run]:
        return list(records)

    def parts(self, records: Sequence[Run]) -> list[Part]:
        return [
            Part(title, summary.comparison(group), summary.COMPARISON_NOTE)
            for title, group in summary.by_setting(records)
        ]

    def text(self, records: Sequence[Run]) -> str:
        return summary.report(records)

    @classmethod
    def parsed(cls, line: str) -> Run:
        return Run.parsed(line)

    def line(self, record: Run) -> str:
        return record.result.to_json()

    def setting_of(self, record: Run) -> Setting:
        return Setting.of(record)
