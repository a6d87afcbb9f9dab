"""Box plots in groups, one colour per algorithm, with how the runs ended counted above them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray

from leashed.training.histogram import TimeDistribution
from leashed.training.plots.style import colour, maybe_log

_GROUP = 0.84
_FEW = 5


@dataclass(frozen=True)
class Box:
    """What one box shows: the values, and how many runs have none, by how they ended.

    Attributes:
        values: float64 [n].
        unfinished: runs that were on their way when a cap ended them.
        diverged: runs that ended without reaching the precision, and were not on their way.
        crashed: runs that ended in NaN or Inf.
        interrupted: runs that the user ended.
    """

    values: NDArray[np.float64]
    unfinished: int = 0
    diverged: int = 0
    crashed: int = 0
    interrupted: int = 0


@dataclass(frozen=True)
class Boxes:
    """Groups of boxes side by side.

    Attributes:
        groups: names of the groups, left to right.
        algorithms: in the order in which they stand in each group.
        boxes: by (group, algorithm); what is missing leaves its place empty.
        group_label: what the groups are.
    """

    groups: Sequence[str]
    algorithms: Sequence[str]
    boxes: Mapping[tuple[str, str], Box] = field(default_factory=dict)
    group_label: str = ""

    @property
    def step(self) -> float:
        """Distance between neighbours in a group."""
        return _GROUP / len(self.algorithms)

    def position(self, group: str, algorithm: str) -> float:
        """Where a box stands."""
        k = self.algorithms.index(algorithm)
        return self.groups.index(group) + (k - (len(self.algorithms) - 1) / 2.0) * self.step

    def draw(self, axes: Axes, from_zero: bool = True, means: bool = False) -> None:
        """The boxes: quartiles, median, whiskers to 1.5 times their distance, outliers as +.

        Up to five values are shown one by one as well.

        Args:
            axes: where to draw.
            from_zero: begin the vertical axis at 0, unless it is logarithmic.
            means: mark the mean of each box with a diamond.
        """
        for (group, algorithm), box in self.boxes.items():
            if not box.values.size:
                continue
            x = self.position(group, algorithm)
            axes.boxplot(
                [box.values],
                positions=[x],
                widths=0.86 * self.step,
                sym="+",
                **_style(algorithm),
                flierprops={"markeredgecolor": colour(algorithm), "markersize": 4},
            )
            if box.values.size <= _FEW:
                _mark(axes, np.full(box.values.size, x), box.values, algorithm, "o", 3.2, 0.5)
            if means:
                _mark(axes, [x], [float(box.values.mean())], algorithm, "D", 4.5, 0.7)
        values = [float(v) for box in self.boxes.values() for v in box.values]
        if not maybe_log(axes, values) and from_zero:
            axes.set_ylim(bottom=0.0)
        self.label(axes)

    def draw_with_outcomes(
        self, figure: Figure | SubFigure, title: str, value_label: str
    ) -> tuple[Axes, Axes]:
        """The boxes below a strip that counts their runs by how they ended."""
        rows = self._outcomes()
        strip, axes = figure.subplots(2, 1, height_ratios=[0.065 * len(rows), 1.0])
        self.draw(axes)
        axes.set_ylabel(value_label)
        strip.set(title=title, xlim=axes.get_xlim(), ylim=(len(rows) - 0.5, -0.5))
        strip.set_yticks(range(len(rows)), list(rows), fontsize="small")
        strip.set_xticks([])
        strip.tick_params(length=0)
        strip.grid(visible=False)
        strip.spines[:].set_visible(False)
        column = 72.0 * figure.bbox.width / figure.dpi * self.step / (len(self.groups) + 0.5)
        size = min(8.0, 0.55 * column)  # points, so that two digits leave a gap
        for y, counts in enumerate(rows.values()):
            for (group, algorithm), count in counts.items():
                strip.text(
                    self.position(group, algorithm),
                    y,
                    str(count),
                    ha="center",
                    va="center",
                    fontsize=size,
                    color="black" if count else "#bbbbbb",
                    fontweight="bold" if count and y else "normal",
                )
        if not any(box.values.size for box in self.boxes.values()):
            axes.text(0.5, 0.5, "no run reached it", transform=axes.transAxes, ha="center")
        return strip, axes

    def _outcomes(self) -> dict[str, dict[tuple[str, str], int]]:
        """The rows of the strip; that of interrupted runs only where there are some."""
        rows = {
            "Converged": {key: box.values.size for key, box in self.boxes.items()},
            "Unfinished": {key: box.unfinished for key, box in self.boxes.items()},
            "Diverge": {key: box.diverged for key, box in self.boxes.items()},
            "Crash": {key: box.crashed for key, box in self.boxes.items()},
            "Interrupted": {key: box.interrupted for key, box in self.boxes.items()},
        }
        if not any(rows["Interrupted"].values()):
            del rows["Interrupted"]
        return rows

    def label(self, axes: Axes) -> None:
        """The horizontal axis with the groups' names."""
        axes.set_xticks(range(len(self.groups)), self.groups)
        axes.tick_params(axis="x", length=0)
        axes.set_xlim(-0.55, len(self.groups) - 0.45)
        axes.set_xlabel(self.group_label)
        axes.grid(visible=False, axis="x")
        for edge in np.arange(0.5, len(self.groups) - 1):
            axes.axvline(float(edge), color="#dddddd", linewidth=0.8, zorder=0)


def draw_distributions(
    axes: Axes,
    places: Boxes,
    distributions: Mapping[tuple[str, str], TimeDistribution],
    means: Mapping[tuple[str, str], float],
) -> None:
    """Boxes from distributions instead of values, and means as diamonds.

    A box has quartiles and median, and whiskers at 5% and 95%.

    Args:
        axes: where to draw.
        places: the groups; its own boxes are not drawn.
        distributions: by (group, algorithm).
        means: by (group, algorithm); NaN draws nothing.
    """
    drawn: list[float] = []
    for (group, algorithm), distribution in distributions.items():
        if not distribution.count:
            continue
        low, first, median, third, high = (
            distribution.quantile(q) for q in (0.05, 0.25, 0.5, 0.75, 0.95)
        )
        drawn += [low, high]
        axes.bxp(
            [{"whislo": low, "q1": first, "med": median, "q3": third, "whishi": high}],
            positions=[places.position(group, algorithm)],
            widths=0.86 * places.step,
            showfliers=False,
            **_style(algorithm),
        )
    for (group, algorithm), mean in means.items():
        if math.isnan(mean):
            continue
        drawn.append(mean)
        _mark(axes, [places.position(group, algorithm)], [mean], algorithm, "D", 4.5, 0.7)
    if not maybe_log(axes, drawn):
        axes.set_ylim(bottom=0.0)
    places.label(axes)


def _style(algorithm: str) -> dict[str, Any]:
    """How a box is drawn, whatever it is of."""
    return {
        "patch_artist": True,
        "manage_ticks": False,
        "boxprops": {"facecolor": colour(algorithm), "alpha": 0.75, "linewidth": 0.8},
        "medianprops": {"color": "black", "linewidth": 1.4},
        "whiskerprops": {"linewidth": 0.8},
        "capprops": {"linewidth": 0.8},
    }


def _mark(
    axes: Axes, x: Any, y: Any, algorithm: str, marker: str, size: float, edge: float
) -> None:
    """Single points in front of the boxes."""
    axes.plot(
        x,
        y,
        linestyle="",
        marker=marker,
        markersize=size,
        markerfacecolor=colour(algorithm),
        markeredgecolor="black",
        markeredgewidth=edge,
        zorder=4,
    )
