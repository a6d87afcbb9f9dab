"""The page of days that a model was trained on one after another (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from leashed.report import html_page
from leashed.report.days import NOTE, table
from leashed.report.plots.days import by_day
from leashed.training.days import Day

__all__ = ["write"]

_CAPTION = (
    "Each day's rows, predicted by the model of the day before, and each batch of them before it was "
    "trained on. A normalised entropy of 1 is what the best constant reaches."
)


def write(days: Sequence[Day], path: Path, model: str) -> None:
    """Write it to ``path``; OSError where that fails."""
    html_page.study(path, f"{model}, day by day", by_day(days), _CAPTION, table(days), NOTE)
