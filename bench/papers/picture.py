"""The pages' figures: small, and in the style that all share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from leashed.training.plots.style import style

_DOTS = 70  # an inch


def saved(draw: Callable[[], Figure], folder: Path, name: str) -> Path:
    """A figure, drawn and saved in the shared style as ``<folder>/<name>.png``."""
    path = folder / f"{name}.png"
    with style():
        draw().savefig(path, dpi=_DOTS, metadata={"Software": None})
    return path
