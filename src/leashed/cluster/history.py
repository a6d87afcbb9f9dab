"""How a run went over time: the master's reports, one line each, for the plots."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leashed.base.closing import Closing
from leashed.cluster.measures import counted

__all__ = ["FILE", "Recorder", "present", "read"]

FILE = "history.jsonl"
"""In the run's folder."""

_KEPT = ("examples", "batches_used", "syncs")


class Recorder(Closing):
    """Appends what the plots need of each report to the run's history.

    Args:
        folder: of the run. A master that is started again goes on with its file.
    """

    def __init__(self, folder: Path) -> None:
        self._file = (folder / FILE).open("a", encoding="utf-8")
        if self._file.tell():
            self._file.write("\n")  # the last line may be without its end

    def close(self) -> None:
        """Nothing is appended any more."""
        self._file.close()

    def __call__(self, report: Mapping[str, Any]) -> None:
        """Append a report, in the layout of run.json."""
        row = {
            "seconds": report["seconds"],
            "present": dict(present(report)),
            "batch_size": report["terms"]["batch_size"],
            "metrics": {
                f"trainer-{index}": {name: counters[name] for name in _KEPT if name in counters}
                for index, counters in counted(report, "trainer").items()
            },
        }
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()


def present(report: Mapping[str, Any]) -> Counter[str]:
    """How many members of each role there are at the time of a report."""
    return Counter(str(each["role"]) for each in report["members"] if each["gone"] is None)


def read(folder: Path) -> list[dict[str, Any]]:
    """The history of a run, oldest first; empty where there is none. A line that a killed master
    left half written is passed over.
    """
    try:
        lines = (folder / FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows
