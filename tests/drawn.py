"""What a figure shows, read back from matplotlib's artists."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch

from leashed.training.plots.style import COLOURS

GROUP = 0.84  # of the distance between two groups, which the boxes of one take


@dataclass
class Box:
    """A box plot's numbers."""

    first: float
    median: float
    third: float
    low: float
    high: float
    fliers: list[float]
    points: list[float]
    mean: float | None


def algorithm(colour) -> str:
    """Whose colour it is."""
    (name,) = [name for name, own in COLOURS.items() if own.lower() == to_hex(colour)]
    return name


def legend(figure) -> list[str]:
    """The entries of the figure's legend, left to right."""
    (found,) = figure.legends
    return [text.get_text() for text in found.get_texts()]


def boxes(axes) -> dict[tuple[str, str], Box]:
    """All boxes by (group, algorithm): the group by its tick, the algorithm by its colour."""
    groups = [label.get_text() for label in axes.get_xticklabels()]
    found = {}
    for patch in axes.patches:
        if not isinstance(patch, PathPatch):
            continue
        x, y = patch.get_path().vertices.T
        middle, width = (x.min() + x.max()) / 2.0, x.max() - x.min()
        own = [line for line in axes.lines if _centre(line) == _near(middle)]
        flat = [np.asarray(line.get_ydata()) for line in own if _near(_width(line)) == _near(width)]
        upright = [
            line.get_ydata()
            for line in own
            if len(line.get_xdata()) == 2 and _width(line) == 0.0 and line.get_linestyle() == "-"
        ]
        (median,) = {float(ys[0]) for ys in flat}
        means = _marked(own, "D")
        key = (groups[round(middle)], algorithm(patch.get_facecolor()))
        assert key not in found
        found[key] = Box(
            first=float(y.min()),
            median=median,
            third=float(y.max()),
            low=float(np.min(upright)),
            high=float(np.max(upright)),
            fliers=_marked(own, "+"),
            points=_marked(own, "o"),
            mean=means[0] if means else None,
        )
    return found


def diamonds(axes) -> dict[tuple[str, str], float]:
    """The means drawn, by (group, algorithm)."""
    groups = [label.get_text() for label in axes.get_xticklabels()]
    return {
        (groups[round(line.get_xdata()[0])], algorithm(line.get_markerfacecolor())): float(
            line.get_ydata()[0]
        )
        for line in axes.lines
        if line.get_marker() == "D"
    }


def counts(strip, axes, algorithms) -> dict[tuple[str, str, str], int]:
    """The counts above the boxes, by (how the runs ended, group, algorithm)."""
    rows = [label.get_text() for label in strip.get_yticklabels()]
    groups = [label.get_text() for label in axes.get_xticklabels()]
    found = {}
    for text in strip.texts:
        x, y = text.get_position()
        rank = (x - round(x)) * len(algorithms) / GROUP + (len(algorithms) - 1) / 2.0
        assert 0 <= round(rank) < len(algorithms)
        found[rows[round(y)], groups[round(x)], algorithms[round(rank)]] = int(text.get_text())
    return found


def series(axes) -> dict[str, list[np.ndarray]]:
    """The lines of every algorithm, each [points, 2], without markers' and two-point lines."""
    found: dict[str, list[np.ndarray]] = {}
    for line in axes.lines:
        if line.get_marker() == "None" and len(line.get_xdata()) > 2:
            points = np.array([line.get_xdata(), line.get_ydata()], dtype=float).T
            found.setdefault(algorithm(line.get_color()), []).append(points)
    return found


def _near(value) -> float:
    return round(float(value), 9)


def _centre(line) -> float | None:
    x = np.asarray(line.get_xdata(), dtype=float)
    return _near((x.min() + x.max()) / 2.0) if x.size else None


def _width(line) -> float:
    x = np.asarray(line.get_xdata(), dtype=float)
    return float(np.ptp(x)) if x.size else 0.0


def _marked(lines, marker) -> list[float]:
    return sorted(float(y) for ln in lines if ln.get_marker() == marker for y in ln.get_ydata())
