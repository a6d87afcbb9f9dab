"""Box plots in groups, one colour per algorithm, with the runs that failed counted above them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray

from leashed.histogram import TimeDistribution
from leashed.plots.style import colour, maybe_log

_GROUP = 0.84
_FEW = 5


@dataclass(frozen=True)
class Box:
    """What one box shows: the values, and how many runs have none because they failed.

    Attributes:
        values: float64 [n].
        diverged: runs that ended without reaching the precision.
        crashed: runs that ended in NaN or Inf.
    """

    values: NDArray[np.float64]
    diverged: int = 0
    crashed: int = 0


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

    def draw(self, axes: Axes, from_zero: bool = True) -> None:
        """The boxes: quartiles, median, whiskers to 1.5 times their distance, outliers as +.

        Up to five values are shown one by one as well.

        Args:
            axes: where to draw.
            from_zero: begin the vertical axis at 0, unless it is logarithmic.
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
                patch_artist=True,
                manage_ticks=False,
                boxprops={"facecolor": colour(algorithm), "alpha": 0.75, "linewidth": 0.8},
                medianprops={"color": "black", "linewidth": 1.4},
                whiskerprops={"linewidth": 0.8},
                capprops={"linewidth": 0.8},
                flierprops={"markeredgecolor": colour(algorithm), "markersize": 4},
            )
            if box.values.size <= _FEW:
                axes.plot(
                    np.full(box.values.size, x),
                    box.values,
                    linestyle="",
                    marker="o",
                    markersize=3.2,
                    markerfacecolor=colour(algorithm),
                    markeredgecolor="black",
                    markeredgewidth=0.5,
                    zorder=4,
                )
        values = [float(v) for box in self.boxes.values() for v in box.values]
        if not maybe_log(axes, values) and from_zero:
            axes.set_ylim(bottom=0.0)
        self.label(axes)

    def draw_with_failures(
        self, figure: Figure | SubFigure, title: str, value_label: str
    ) -> tuple[Axes, Axes]:
        """The boxes below a strip with the counts of runs that diverged and crashed."""
        strip, axes = figure.subplots(2, 1, height_ratios=[0.13, 1.0])
        self.draw(axes)
        axes.set_ylabel(value_label)
        strip.set(title=title, xlim=axes.get_xlim(), ylim=(-0.5, 1.5))
        strip.set_yticks([0.0, 1.0], ["Crash", "Diverge"], fontsize="small")
        strip.set_xticks([])
        strip.tick_params(length=0)
        strip.grid(visible=False)
        strip.spines[:].set_visible(False)
        for (group, algorithm), box in self.boxes.items():
            for y, count in ((0.0, box.crashed), (1.0, box.diverged)):
                strip.text(
                    self.position(group, algorithm),
                    y,
                    str(count),
                    ha="center",
                    va="center",
                    fontsize="small" if self.step > 0.1 else "x-small",
                    color="black" if count else "#bbbbbb",
                    fontweight="bold" if count else "normal",
                )
        if not any(box.values.size for box in self.boxes.values()):
            axes.text(0.5, 0.5, "no run reached it", transform=axes.transAxes, ha="center")
        return strip, axes

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
    axes: Axes, places: Boxes, distributions: Mapping[tuple[str, str], TimeDistribution]
) -> None:
    """Boxes from distributions instead of values: quartiles, median, whiskers at 5% and 95%.

    Args:
        axes: where to draw.
        places: the groups; its own boxes are not drawn.
        distributions: by (group, algorithm).
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
            patch_artist=True,
            manage_ticks=False,
            boxprops={"facecolor": colour(algorithm), "alpha": 0.75, "linewidth": 0.8},
            medianprops={"color": "black", "linewidth": 1.4},
            whiskerprops={"linewidth": 0.8},
            capprops={"linewidth": 0.8},
        )
    if not maybe_log(axes, drawn):
        axes.set_ylim(bottom=0.0)
    places.label(axes)
