"""The picture of one training run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from leashed.metrics import Scored
from leashed.training.histogram import Histogram, octaves
from leashed.training.plots.style import (
    COLOURS,
    PLAIN,
    finish,
    maybe_log,
    shares,
    staleness_end,
    style,
    tell_staleness_beyond,
)

_BLUE, _ORANGE = COLOURS["LSH_ps∞"], COLOURS["HOG"]
_SIZE = (4.5, 3.0)  # inches, of a panel
_PEAKED = 50.0  # percent of rows' updates in one bin, from which their axis is logarithmic


@dataclass(frozen=True, eq=False)
class Pair:
    """A measure of the training and of the validation set over time, NaN where there is none."""

    training: NDArray[np.float64]
    validation: NDArray[np.float64]

    def __bool__(self) -> bool:
        return not (np.isnan(self.training).all() and np.isnan(self.validation).all())


@dataclass(frozen=True, eq=False)
class Series:
    """What is drawn of a run; each is what ``TrainResult`` has.

    ``reachable`` is the AUC of the model that drew the validation set's labels, NaN where nobody
    knows.
    """

    seconds: NDArray[np.float64]
    loss: NDArray[np.float64]
    accuracy: Pair
    auc: Pair
    normalised_entropy: Pair
    eps: NDArray[np.float64]
    staleness: Histogram
    row_staleness: NDArray[np.int64]
    reachable: float
    scored: Scored | None = None


def draw_run(run: Series, title: str) -> Figure:
    """Loss, accuracy and examples per second of a run over time, and its staleness; of clicks AUC
    and normalised entropy, also of progressive validation, and where tables were read the staleness
    of their rows' updates.
    """
    panels = [_loss, _accuracy]
    if run.auc:
        panels.append(_auc)
    if run.normalised_entropy:
        panels.append(_normalised_entropy)
    if run.scored is not None and run.scored.total:
        panels += [_scored_auc, _scored_entropy]
    panels += [_throughput, _staleness]
    if run.row_staleness.sum():
        panels.append(_row_staleness)
    columns = 2 if len(panels) <= 4 else 3
    rows = -(-len(panels) // columns)
    with style():
        figure = Figure(figsize=(_SIZE[0] * columns, _SIZE[1] * rows))
        places = figure.subplots(rows, columns).ravel()
        for axes, draw in zip(places, panels, strict=False):
            draw(axes, run)
        for axes in places[len(panels) :]:
            axes.set_axis_off()
        figure.suptitle(title)
        return finish(figure)


def _over_time(axes: Axes, **labels: Any) -> None:
    axes.set(xlabel="time [s]", **labels)
    axes.set_xlim(left=0.0)


def _loss(axes: Axes, run: Series) -> None:
    axes.plot(run.seconds, run.loss, color=_BLUE)
    _over_time(axes, title="Loss", ylabel="mean training loss")
    maybe_log(axes, list(run.loss))


def _both(axes: Axes, run: Series, of: Pair) -> None:
    axes.plot(run.seconds, of.training, color=_BLUE, label="training")
    if not np.isnan(of.validation).all():
        axes.plot(run.seconds, of.validation, color=_ORANGE, linestyle="--", label="validation")
        axes.legend()


def _accuracy(axes: Axes, run: Series) -> None:
    accuracy = run.accuracy
    _both(axes, run, Pair(100.0 * accuracy.training, 100.0 * accuracy.validation))
    _over_time(axes, title="Accuracy", ylabel="correct [%]")


def _auc(axes: Axes, run: Series) -> None:
    if not math.isnan(run.reachable):
        axes.axhline(run.reachable, color="#777777", linestyle=":", label="hidden model")
    _both(axes, run, run.auc)
    _over_time(axes, title="AUC", ylabel="area under the ROC curve")


def _normalised_entropy(axes: Axes, run: Series) -> None:
    _both(axes, run, run.normalised_entropy)
    _over_time(axes, title="Normalised entropy", ylabel="log loss over entropy")


def _scored(axes: Axes, scored: Scored, name: str, label: str, colour: str) -> None:
    """Of each window, and since the beginning."""
    for values, line in ((scored.window, ":"), (scored.total, "-")):
        series = [getattr(one, name) for one in values]
        text = label if values is scored.total else f"{label}, window"
        axes.plot(scored.seconds, series, color=colour, linestyle=line, label=text)


def _scored_auc(axes: Axes, run: Series) -> None:
    assert run.scored is not None
    _scored(axes, run.scored, "auc", "AUC", _BLUE)
    if run.scored.total[-1].users:
        _scored(axes, run.scored, "gauc", "GAUC", _ORANGE)
    axes.legend()
    _over_time(axes, title="Before training on it", ylabel="area under the ROC curve")


def _scored_entropy(axes: Axes, run: Series) -> None:
    assert run.scored is not None
    _scored(axes, run.scored, "normalised_entropy", "since the start", _BLUE)
    axes.legend()
    _over_time(axes, title="Before training on it", ylabel="log loss over entropy")


def _throughput(axes: Axes, run: Series) -> None:
    # Each interval at its rate, the first from the beginning on.
    rates = np.concatenate([run.eps[1:2], run.eps[1:]])
    axes.plot(run.seconds[: rates.size], rates, color=_BLUE, drawstyle="steps-pre")
    _over_time(axes, title="Throughput", ylabel="examples per second")
    axes.set_ylim(bottom=0.0)


def _staleness(axes: Axes, run: Series) -> None:
    share = shares(run.staleness)
    if run.staleness.total:
        axes.bar(np.arange(share.size), 100.0 * share, color=_BLUE, width=0.9)
    end, beyond = staleness_end(run.staleness)
    tell_staleness_beyond(axes, beyond, run.staleness.max())
    mean = run.staleness.mean()
    axes.set(
        title="Staleness" if math.isnan(mean) else f"Staleness (mean {mean:.2f})",
        xlabel="τ [updates]",
        ylabel="share of the updates [%]",
        xlim=(-0.6, end + 0.6),
    )


def _row_staleness(axes: Axes, run: Series) -> None:
    share = 100.0 * run.row_staleness / run.row_staleness.sum()
    axes.bar(octaves(share.size), share, color=_BLUE, width=0.9)
    if share.max() > _PEAKED:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(PLAIN)
    axes.set(
        title="Staleness of rows",
        xlabel="τ [updates of the row]",
        ylabel="share of the rows' updates [%]",
    )
    if share.size > 5:
        axes.tick_params("x", labelrotation=60.0)
