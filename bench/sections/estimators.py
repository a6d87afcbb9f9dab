"""Our estimators against scikit-learn's of the same names, on small data, with one thread.

Both fit what they are given with their defaults, which stop by the same rule, and for 20 epochs. On
the digits it is a cross-validation of five folds, on the others a fit to the first half; accuracy and
log-loss are those of the examples held out, the objective is that of the rows trained on. Fits take turns, each several times; a turn counts with
the fastest of its fits, for what is asked is what a fit of milliseconds takes.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn import linear_model
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from bench.context import Bench
from leashed.sklearn import SGDClassifier

ROWS = 1000
EPOCHS = 20
LOSSES = ("log_loss", "hinge")
_ROUNDS = 5
_FITS = 3


@dataclass(frozen=True)
class Problem:
    """Rows, their labels, and which of them are trained on and held out, a pair for each fit."""

    name: str
    x: Any
    y: NDArray[Any]
    folds: list[tuple[NDArray[Any], NDArray[Any]]]


def problems() -> Iterator[Problem]:
    x, y = load_digits(return_X_y=True)
    for name, scaled in (("digits, as they are", x), ("digits", StandardScaler().fit_transform(x))):
        yield Problem(name, scaled, y, list(StratifiedKFold(5).split(x, y)))
    rng = np.random.default_rng(0)
    halves = [(np.arange(ROWS), np.arange(ROWS, 2 * ROWS))]
    for features in (20, 100, 1000):
        for classes in (2, 5):
            for entries in sorted({features, 20}, reverse=True):
                x = rng.normal(size=(2 * ROWS, features))
                if entries < features:
                    x[rng.random(x.shape) > entries / features] = 0
                planted = rng.normal(size=(features, classes)) / np.sqrt(entries)
                y = (x @ planted + 0.3 * rng.gumbel(size=(2 * ROWS, classes))).argmax(axis=1)
                kind = "dense" if entries == features else f"{entries} a row"
                rows = x if entries == features else sparse.csr_array(x)
                yield Problem(f"{features} features, {kind}, {classes} classes", rows, y, halves)


def _makers(loss: str, options: dict[str, Any]) -> dict[str, Any]:
    return {
        "leashed": lambda: SGDClassifier(loss, random_state=0, **options),
        "scikit-learn": lambda: linear_model.SGDClassifier(loss=loss, random_state=0, **options),
    }


def _fits(make: Any, problem: Problem, times: int) -> tuple[float, list[Any]]:
    """Seconds of all folds, the fastest of so many times."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        models = [make().fit(problem.x[rows], problem.y[rows]) for rows, _ in problem.folds]
        seconds.append(time.perf_counter() - start)
    return min(seconds), models


def _objective(model: Any, x: Any, y: NDArray[Any], loss: str) -> float:
    """What both minimise on their training set, penalty included."""
    outputs = x @ model.coef_.T + model.intercept_
    classes = model.classes_[-1:] if len(model.classes_) == 2 else model.classes_
    margins = np.where(y[:, None] == classes, outputs, -outputs)
    losses = np.logaddexp(0, -margins) if loss == "log_loss" else np.maximum(0, 1 - margins)
    return float(losses.mean(axis=0).sum() + 0.5 * model.alpha * np.square(model.coef_).sum())


def _quality(models: list[Any], problem: Problem, loss: str) -> dict[str, Any]:
    trained = [(problem.x[rows], problem.y[rows]) for rows, _ in problem.folds]
    held = [(problem.x[rows], problem.y[rows]) for _, rows in problem.folds]
    found: dict[str, Any] = {
        "epochs": float(np.mean([model.n_iter_ for model in models])),
        "objective": float(
            np.mean([_objective(m, *on, loss) for m, on in zip(models, trained, strict=True)])
        ),
        "accuracy": float(np.mean([m.score(*on) for m, on in zip(models, held, strict=True)])),
    }
    if loss == "log_loss":
        losses = [log_loss(y, m.predict_proba(x)) for m, (x, y) in zip(models, held, strict=True)]
        found["log_loss"] = float(np.mean(losses))
    return found


def _step(models: list[Any]) -> dict[str, float]:
    """The size of ours, where it is one for all that is fitted."""
    steps = [m._progress.lr for m in models if isinstance(m, SGDClassifier)]
    return {"lr": float(np.mean(steps))} if steps else {}


def measure(bench: Bench) -> list[dict[str, Any]]:
    """A record a problem, loss, setting and contender: ``seconds`` of its turns, and quality."""
    records = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that end after EPOCHS
        for problem in problems():
            for loss in LOSSES:
                for setting, options in (
                    ("defaults", {}),
                    ("epochs", {"max_iter": EPOCHS, "tol": None}),
                ):
                    makers = _makers(loss, options)
                    seconds: dict[str, list[float]] = {name: [] for name in makers}
                    models: dict[str, list[Any]] = {}
                    for _ in range(bench.times(_ROUNDS, least=2)):
                        for name, make in makers.items():
                            fastest, models[name] = _fits(make, problem, _FITS)
                            seconds[name].append(fastest)
                    records += [
                        {
                            "problem": problem.name,
                            "loss": loss,
                            "setting": setting,
                            "contender": name,
                            "seconds": seconds[name],
                            **_step(models[name]),
                            **_quality(models[name], problem, loss),
                        }
                        for name in makers
                    ]
    return records
