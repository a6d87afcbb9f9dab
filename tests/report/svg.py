"""What is drawn within the panels of a figure of matplotlib, by the numbers in its SVG."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.etree import ElementTree as ET

import numpy as np

_SVG = "{http://www.w3.org/2000/svg}"
_USE = f"{_SVG}use"
_NUMBERS = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


@dataclass
class Panel:
    """A panel: its box, and the points that data are drawn at, on the page.

    ``texts``: how many stand in it, beside those of its axes.
    """

    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0
    points: list[tuple[float, float]] = field(default_factory=list)
    texts: int = 0

    @property
    def inside(self) -> list[tuple[float, float]]:
        """The points that are seen."""
        return [
            (x, y)
            for x, y in self.points
            if -0.5 <= x - self.x <= self.width + 0.5 and -0.5 <= y - self.y <= self.height + 0.5
        ]

    @property
    def spread(self) -> float:
        """The share of the height that the points seen are spread over."""
        heights = [y for _, y in self.inside]
        return float(np.ptp(heights)) / self.height if heights else 0.0

    @property
    def middle(self) -> float:
        """The same of the middle half of all points, which no outlier moves."""
        low, high = np.quantile([y for _, y in self.points], (0.25, 0.75))
        return float(high - low) / self.height


def panels(svg: str | bytes) -> list[Panel]:
    return [
        _panel(group)
        for group in ET.fromstring(svg).iter(f"{_SVG}g")
        if group.attrib.get("id", "").startswith("axes_") and group.find(f"{_SVG}g") is not None
    ]


def _panel(axes: ET.Element) -> Panel:
    texts, points = [], []
    for element in _data(axes):
        if element.tag == f"{_SVG}g":
            places = re.findall(r"translate\((\S+?)[ ,]+(\S+?)\)", ET.tostring(element, "unicode"))
            texts += [(float(x), float(y)) for x, y in places[:1]]
        else:
            points += _points(element)
            points += [(float(u.attrib["x"]), float(u.attrib["y"])) for u in element.iter(_USE)]
    background = next(g for g in axes if g.attrib.get("id", "").startswith("patch_"))
    corners = [point for path in background.iter(f"{_SVG}path") for point in _points(path)]
    (x, y), (right, bottom) = np.min(corners, axis=0), np.max(corners, axis=0)
    found = Panel(float(x), float(y), float(right - x), float(bottom - y), points)
    found.texts = sum(x <= at <= right and y <= height <= bottom for at, height in texts)
    return found


def _points(path: ET.Element) -> list[tuple[float, float]]:
    numbers = [float(n) for n in _NUMBERS.findall(path.attrib.get("d", ""))]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _data(element: ET.Element) -> Iterator[ET.Element]:
    """What is clipped, and texts, that are no part of an axis or a legend."""
    for child in element:
        name = child.attrib.get("id", "")
        if name.startswith(("matplotlib.axis", "legend_")):
            continue
        if name.startswith(("text_", "beyond")) or "clip-path" in child.attrib:
            yield child
        else:
            yield from _data(child)
