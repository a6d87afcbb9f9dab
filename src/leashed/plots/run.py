"""The picture of one training run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from leashed.histogram import Histogram
from leashed.plots.style import COLOURS, maybe_log, shares, style

if TYPE_CHECKING:
    from leashed.result import TrainResult


def result_figure(result: TrainResult) -> Figure:
    """One run: loss, accuracy, examples per second over time, and the staleness distribution."""
    with style():
        figure = Figure(figsize=(9.0, 6.0))
        (loss, accuracy), (eps, staleness) = figure.subplots(2, 2)
        blue, orange = COLOURS["LSH_ps∞"], COLOURS["HOG"]

        loss.plot(result.seconds, result.loss, color=blue)
        loss.set(title="Loss", xlabel="time [s]", ylabel="mean training loss")
        maybe_log(loss, list(result.loss))

        accuracy.plot(result.seconds, 100.0 * result.accuracy, color=blue, label="training")
        if not np.isnan(result.validation_accuracy).all():
            accuracy.plot(
                result.seconds,
                100.0 * result.validation_accuracy,
                color=orange,
                linestyle="--",
                label="validation",
            )
            accuracy.legend()
        accuracy.set(title="Accuracy", xlabel="time [s]", ylabel="correct [%]")

        eps.plot(result.seconds[1:], result.eps[1:], color=blue, drawstyle="steps-pre")
        eps.set(title="Throughput", xlabel="time [s]", ylabel="examples per second")
        eps.set_ylim(bottom=0.0)

        share = shares(result.staleness)
        staleness.bar(np.arange(share.size), 100.0 * share, color=blue, width=0.9)
        staleness.set(
            title=f"Staleness (mean {result.staleness.mean():.2f})",
            xlabel="τ [updates]",
            ylabel="share of the updates [%]",
            xlim=(-0.6, max(4.0, _upper(result.staleness)) + 0.6),
        )
        for axes in (loss, accuracy, eps):
            axes.set_xlim(left=0.0)
        figure.suptitle(f"{result.outcome} ({result.reason}) after {result.elapsed:.3g} s")
    return figure


def _upper(histogram: Histogram) -> float:
    upper = histogram.quantile(0.999)
    return 0.0 if math.isnan(upper) else upper
