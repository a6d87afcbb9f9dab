"""Our estimators against scikit-learn's of the same names, on small data, with one thread.

Both fit what they are given with their defaults, which stop by the same rule, and for 20 epochs. On
the digits it is a cross-validation of five folds, on the others a fit to the first half; accuracy and
log-loss are those of the examples held out, the objective is that of the rows trained on. Fits take turns, each several times; a turn counts with
the fastest of its fits, for what is asked is what a fit of milliseconds takes.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import figures
from bench.context import Bench, only
from bench.figures import Results
from bench.markdown import paragraphs, table
from leashed.base.table import MISSING

PLACE, TITLE = 160, "Estimators"

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
    from scipy import sparse  # noqa: PLC0415
    from sklearn.datasets import load_digits  # noqa: PLC0415
    from sklearn.model_selection import StratifiedKFold  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

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
    from sklearn import linear_model  # noqa: PLC0415

    from leashed.sklearn import SGDClassifier  # noqa: PLC0415

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
    from sklearn.metrics import log_loss  # noqa: PLC0415

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
    steps = [m._progress.lr for m in models if hasattr(m, "_progress")]
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


def estimator_rows(results: Results) -> list[dict[str, Any]]:
    """A record a problem, loss and setting: both contenders', and the ratio of their times."""
    records = figures.figures(results, "estimators") or []
    cells = dict.fromkeys((r["problem"], r["loss"], r["setting"]) for r in records)
    rows = []
    for problem, loss, setting in cells:
        ours, theirs = (
            only(records, problem=problem, loss=loss, setting=setting, contender=contender)[0]
            for contender in ("leashed", "scikit-learn")
        )
        times = [statistics.median(r["seconds"]) for r in (ours, theirs)]
        rows.append(
            {
                "problem": problem,
                "loss": loss,
                "setting": setting,
                "leashed": ours,
                "scikit-learn": theirs,
                "ratio": times[0] / times[1],
            }
        )
    return rows


def words(results: Results) -> str:
    """Our estimators against scikit-learn's, on small data."""
    rows = estimator_rows(results)
    if not rows:
        return ""

    def both(row: dict[str, Any], name: str, digits: int) -> str:
        values = [row[contender].get(name) for contender in ("leashed", "scikit-learn")]
        return " / ".join(MISSING if v is None else f"{v:.{digits}f}" for v in values)

    lines = [
        [
            row["problem"],
            row["loss"],
            "defaults" if row["setting"] == "defaults" else "20 epochs",
            f"{row['ratio']:.2f}",
            both(row, "epochs", 0),
            both(row, "objective", 3),
            both(row, "accuracy", 3),
            both(row, "log_loss", 3),
        ]
        for row in rows
    ]
    # Records of before the default was another do not tell it.
    steps_of_1 = [r for r in rows if "a row" in r["problem"] and "lr" not in r["leashed"]]
    note = " leashed's fits on sparse rows (20 a row) had steps of 1, which was the default then."
    return paragraphs(
        "`leashed.sklearn.SGDClassifier` with one thread and scikit-learn's, on 1,000 rows and on the "
        "digits (1,797 rows of 64, five folds; scaled to unit variance where nothing else is said): "
        "the ratio of the times of their fits, and, leashed's first, epochs, what both minimise, "
        "penalty included, where the fits end, and what they reach on examples held out."
        + note
        * bool(steps_of_1),
        table(
            ["", "loss", "", "time, ratio", "epochs", "objective", "accuracy", "log-loss"], lines
        ),
    )
