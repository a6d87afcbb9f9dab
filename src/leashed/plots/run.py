"""The picture of one training run."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from leashed.histogram import Histogram
from leashed.plots.style import COLOURS, maybe_log, shares, style


def draw_run(
    seconds: NDArray[np.float64],
    loss: NDArray[np.float64],
    accuracy: NDArray[np.float64],
    validation_accuracy: NDArray[np.float64],
    eps: NDArray[np.float64],
    staleness: Histogram,
    title: str,
) -> Figure:
    """Loss, accuracy and examples per second of a run over time, and its staleness; what each is
    ``TrainResult`` tells.
    """
    with style():
        figure = Figure(figsize=(9.0, 6.0))
        (losses, accuracies), (rates, counts) = figure.subplots(2, 2)
        blue, orange = COLOURS["LSH_ps∞"], COLOURS["HOG"]

        losses.plot(seconds, loss, color=blue)
        losses.set(title="Loss", xlabel="time [s]", ylabel="mean training loss")
        maybe_log(losses, list(loss))

        accuracies.plot(seconds, 100.0 * accuracy, color=blue, label="training")
        if not np.isnan(validation_accuracy).all():
            accuracies.plot(
                seconds,
                100.0 * validation_accuracy,
                color=orange,
                linestyle="--",
                label="validation",
            )
            accuracies.legend()
        accuracies.set(title="Accuracy", xlabel="time [s]", ylabel="correct [%]")

        rates.plot(seconds[1:], eps[1:], color=blue, drawstyle="steps-pre")
        rates.set(title="Throughput", xlabel="time [s]", ylabel="examples per second")
        rates.set_ylim(bottom=0.0)

        share = shares(staleness)
        counts.bar(np.arange(share.size), 100.0 * share, color=blue, width=0.9)
        counts.set(
            title=f"Staleness (mean {staleness.mean():.2f})",
            xlabel="τ [updates]",
            ylabel="share of the updates [%]",
            xlim=(-0.6, max(4.0, _upper(staleness)) + 0.6),
        )
        for axes in (losses, accuracies, rates):
            axes.set_xlim(left=0.0)
        figure.suptitle(title)
    return figure


def _upper(histogram: Histogram) -> float:
    upper = histogram.quantile(0.999)
    return 0.0 if math.isnan(upper) else upper
