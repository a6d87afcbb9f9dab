"""When a training run ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from leashed.base import checks

__all__ = ["METRICS", "Until", "metrics_of", "until"]

_MOST_EPOCHS = 1e6
# Rules that are turned into others, or judged by whoever keeps the best state.
_NOT_OF_CORE = {"epochs", "loss_fraction", "patience", "metric"}


@dataclass(frozen=True)
class Metric:
    """What an evaluation of the validation set tells, by which states are compared.

    Attributes:
        larger: whether larger is better.
        value: of what the core tells of an evaluation.
        has: whether a model has it.
    """

    larger: bool
    value: Callable[[Mapping[str, Any]], float]
    has: Callable[[Any], bool]

    def better(self, value: float, than: float) -> bool:
        """Of NaN nothing is."""
        return value > than if self.larger else value < than


def _told(name: str) -> Callable[[Mapping[str, Any]], float]:
    return lambda now: float(now[f"validation_{name}"])


def _loss(*names: str) -> Callable[[Any], bool]:
    return lambda model: getattr(model, "loss", None) in names


def _classifies(model: Any) -> bool:
    # (Within a batch it is the share of more than half of the probability, which may stay 0.)
    return bool(getattr(model, "classes", 0)) and not _loss("in_batch")(model)


def _of_clicks(model: Any) -> bool:
    return (_loss("log_loss")(model) and model.outputs == 1) or bool(getattr(model, "heads", 0))


METRICS = {
    "loss": Metric(False, _told("loss"), lambda _: True),
    "log_loss": Metric(False, _told("loss"), _loss("log_loss", "softmax")),
    "accuracy": Metric(True, _told("accuracy"), _classifies),
    "auc": Metric(True, _told("auc"), _of_clicks),
    "normalised_entropy": Metric(False, _told("normalised_entropy"), _of_clicks),
    "rmse": Metric(False, lambda now: math.sqrt(2.0 * _told("loss")(now)), _loss("squared_error")),
}


_OF_HEADS = ("auc", "normalised_entropy")


def metrics_of(model: Any, heads: Sequence[str] = ()) -> dict[str, Metric]:
    """Those that a model has, by name; of several labels, whose names are given, each one's as
    ``auc_NAME`` beside their mean.
    """
    found = {name: one for name, one in METRICS.items() if one.has(model)}
    for name in _OF_HEADS:
        for k, head in enumerate(heads):
            found[f"{name}_{head}"] = replace(METRICS[name], value=_of_head(name, k))
    return found


def _of_head(name: str, head: int) -> Callable[[Mapping[str, Any]], float]:
    return lambda now: float(now["heads"][f"validation_{name}"][head])


@dataclass(frozen=True)
class Until:
    """Stop rules, of which the first to hold ends the run; at least one must be given.

    Losses are those of the training set, of its rows that ``Observe.rows`` has, evaluated from a
    snapshot while training runs.

    Args:
        loss_fraction: ε-convergence: the loss is at most this share of the initial loss (0 to 1).
            Of several, the smallest ends the run; when each was reached is found as exactly.
        loss: the loss is at most this.
        updates: exactly so many updates are published (with ``Synchronous``: steps).
        epochs: so many passes over the training set are drawn, rounded up to whole batches (with
            ``Synchronous``: to whole steps); fractions allowed.
        seconds: so much time has passed since the threads started.
        divergence: the loss is at least this many times the initial loss (greater than 1).
        patience: so many passes over the data one after another have not been better by ``metric`` than
            the best before. Each is judged at its end, while all workers wait, on ``validation``, which
            has to be given; so is what the run begins with, and what it ends with. The best state is
            what comes of the run (``TrainResult.best``), whichever rule ends it, after Ctrl-C too.
        metric: what tells which is better: ``"loss"`` (default), ``"log_loss"``, ``"accuracy"``,
            ``"auc"``, ``"normalised_entropy"`` or ``"rmse"``, where the model has it. Of several labels
            AUC and normalised entropy are means, and ``"auc_NAME"`` and ``"normalised_entropy_NAME"`` those
            of one.

    Raises:
        TypeError: a rule is not a number.
        ValueError: a rule is out of its range, or none is given.
    """

    loss_fraction: float | Sequence[float] | None = None
    loss: float | None = None
    updates: int | None = None
    epochs: float | None = None
    seconds: float | None = None
    divergence: float | None = None
    patience: int | None = None
    metric: str | None = None

    def __post_init__(self) -> None:
        names = [f.name for f in fields(self) if f.name != "metric"]
        if self.metric is not None and self.patience is None:
            raise ValueError("metric is what patience goes by; give patience too")
        if all(getattr(self, name) is None for name in names):
            raise ValueError(f"until needs at least one stop rule: {', '.join(names)}")
        if self.loss_fraction is not None:
            given = self.loss_fraction
            several = list(given) if isinstance(given, (list, tuple, np.ndarray)) else [given]
            if not several:
                raise ValueError("loss_fraction must hold at least one share of the initial loss")
            for share in several:
                if checks.real("loss_fraction", share, 0.0) >= 1.0:
                    raise ValueError(
                        "loss_fraction must be less than 1 (a share of the initial loss), "
                        f"got {share}"
                    )
            shares = sorted({float(share) for share in several}, reverse=True)  # type: ignore[arg-type]
            object.__setattr__(
                self, "loss_fraction", tuple(shares) if len(shares) > 1 else shares[0]
            )
        if self.loss is not None:
            checks.real("loss", self.loss)
        if self.updates is not None:
            checks.whole("updates", self.updates, maximum=2**53)
        if self.epochs is not None and checks.real("epochs", self.epochs, 0.0) > _MOST_EPOCHS:
            raise ValueError(f"epochs must be at most {_MOST_EPOCHS:g}, got {self.epochs:g}")
        if self.seconds is not None:
            checks.real("seconds", self.seconds, 0.0)
        if self.divergence is not None:
            checks.real("divergence", self.divergence, 1.0)
        if self.patience is not None:
            checks.whole("patience", self.patience)
            object.__setattr__(self, "metric", self.metric or "loss")
            of_head = str(self.metric).startswith(tuple(f"{name}_" for name in _OF_HEADS))
            if self.metric not in METRICS and not of_head:
                raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {self.metric!r}")

    @property
    def loss_fractions(self) -> tuple[float, ...]:
        """The shares of the initial loss asked for, largest first."""
        given = self.loss_fraction
        if given is None:
            return ()
        return tuple(given) if isinstance(given, Sequence) else (given,)

    @property
    def milestones(self) -> list[float]:
        """Those of them that do not end the run."""
        return [float(share) for share in self.loss_fractions[:-1]]

    def rules(self, examples: int, batch_size: int) -> dict[str, float]:
        """The rules that are given, with epochs turned into batches."""
        rules = {
            f.name: float(getattr(self, f.name))
            for f in fields(self)
            if getattr(self, f.name) is not None and f.name not in _NOT_OF_CORE
        }
        if self.loss_fractions:
            rules["loss_fraction"] = float(self.loss_fractions[-1])
        if self.epochs is not None:
            rules["batches"] = float(max(1, batches_in(self.epochs, examples, batch_size)))
        return rules


def batches_in(epochs: float, examples: int, batch_size: int) -> int:
    """How many batches so many passes over so many examples are, rounded up."""
    return math.ceil(epochs * examples / batch_size)


until = Until
