"""Which step size ``leashed.sklearn.SGDClassifier`` should have by default on sparse rows: the AUC of
rows held out, on sparse data of several kinds, beside scikit-learn's.

python -m bench.sparse_defaults --output FILE [--data FOLDER] [--seeds 6] [--only SET …]

What is tried, written down before it was run:

- **Sets**: ``SETS``. Real ones are Criteo's sample and mushrooms, in FOLDER (``shared/data`` beside the
  project, or $LEASHED_DATA); the others are drawn by the seed. A seed draws the rows, or which are
  held out, and the order of the examples.
- **Arms**: ``ARMS``, each with both losses, one thread, and the other arguments at their defaults.
  |x|² is the mean over the rows trained on. Peers are scikit-learn's ``SGDClassifier`` and
  ``LogisticRegression`` with the penalties ``ALPHAS`` and ``INVERSE``, the first being its default;
  of the others the table has the one that is best on the rows held out, which favours it.
- **The choice**, by the first half of the seeds: of the arms that are a step size with nothing beside
  (one for fits and ``partial_fit`` of any length), and whose AUC is on no set and with neither loss
  more than ``SHORT`` below scikit-learn's ``SGDClassifier`` with its defaults and the same loss, the
  one with the highest mean over sets and losses. The second half of the seeds says what it comes to on
  others than those that chose it.
- **What was known before**: constant steps, steps over 1 + |x|² and cosines had been looked at on sets
  like these with seeds 0 to 2, which is where the arms come from; seeds from 3 on had not.

Prints tables and writes a JSON line for each fit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn import linear_model
from sklearn.datasets import load_svmlight_files
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import leashed as lsh
from bench.markdown import paragraphs, table
from leashed.sklearn import SGDClassifier

LOSSES = ("log_loss", "hinge")
ALPHAS = (1e-4, 1e-5, 1e-3, 1e-2)
INVERSE = (1.0, 1e-3, 1e-2, 1e-1, 10.0)  # C
SHORT = 0.005
_EPOCHS = 20  # of a cosine
_BATCH = 16  # the default
_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


class Rows(NamedTuple):
    """CSR matrices and labels of 0 and 1."""

    x: Any
    y: NDArray[Any]
    held_x: Any
    held_y: NDArray[Any]


def _rows(x: Any, y: NDArray[Any], held_x: Any, held_y: NDArray[Any]) -> Rows:
    def csr(parts: Any) -> Any:
        matrix = sparse.csr_matrix(sparse.hstack(parts) if isinstance(parts, list) else parts)
        matrix.indices, matrix.indptr = (
            a.astype(np.int32) for a in (matrix.indices, matrix.indptr)
        )
        return matrix

    return Rows(csr(x), y, csr(held_x), held_y)


def _encoded(
    numbers: NDArray[Any] | None, ids: NDArray[Any], y: NDArray[Any], train: Any, held: Any
) -> Rows:
    """Numbers scaled, each id a column: as the rows trained on have them."""
    one_hot = OneHotEncoder(handle_unknown="ignore").fit(ids[train])
    parts = [[one_hot.transform(ids[part])] for part in (train, held)]
    if numbers is not None:
        scaler = StandardScaler().fit(numbers[train])
        for part, rows in zip(parts, (train, held), strict=True):
            part.insert(0, sparse.csr_matrix(scaler.transform(numbers[rows])))
    return _rows(parts[0], y[train], parts[1], y[held])


def _criteo(folder: Path, seed: int, *, numbers: bool) -> Rows:
    data = lsh.datasets.criteo(folder / "criteo-sample" / "train.tiny.csv")
    y = np.asarray(data.y)
    train, held = train_test_split(np.arange(len(y)), random_state=seed, stratify=y)
    return _encoded(np.asarray(data.x) if numbers else None, np.asarray(data.ids), y, train, held)


def _mushroom(folder: Path, seed: int) -> Rows:  # noqa: ARG001 (the order alone)
    files = [folder / "mushroom" / f"agaricus_{part}.txt" for part in ("train", "test")]
    x, y, held_x, held_y = load_svmlight_files(list(map(str, files)))
    return _rows(x, y.astype(int), held_x, held_y.astype(int))


def _mixed(folder: Path, seed: int, rows: int = 10_000, held: int = 5_000) -> Rows:  # noqa: ARG001
    """20 numbers N(0, 1) and 6 features of ids by Zipf's law; the labels' logits are linear."""
    rng, n = np.random.default_rng(seed), rows + held
    x = rng.normal(size=(n, 20))
    sizes = (10, 30, 100, 300, 1000, 3000)
    ids = np.stack([np.minimum(rng.zipf(1.3, n), size) - 1 for size in sizes], axis=1)
    logits = 0.1 * x @ rng.normal(size=20) - 1
    for feature, size in enumerate(sizes):
        logits += 0.2 * rng.normal(size=size)[ids[:, feature]]
    y = (rng.random(n) < 1 / (1 + np.exp(-logits))).astype(int)
    return _encoded(x, ids, y, np.arange(rows), np.arange(rows, n))


def _clicks(folder: Path, seed: int) -> Rows:  # noqa: ARG001
    data = lsh.datasets.synthetic_clicks(10_000, seed, test=10_000, cardinalities=1000)
    x, ids, y = (
        np.concatenate([np.asarray(getattr(part, name)) for part in (data.train, data.test)])
        for name in ("x", "ids", "y")
    )
    return _encoded(x, ids, y, np.arange(10_000), np.arange(10_000, 20_000))


def _text(
    folder: Path,  # noqa: ARG001
    seed: int,
    *,
    weighed: bool,
    rows: int = 4_000,
    words: int = 20_000,
) -> Rows:
    """Counts of words by Zipf's law, of two topics, in texts of 5 to some hundred words; `weighed`:
    by tf-idf, rows of length 1.
    """
    rng = np.random.default_rng(seed)
    common = 1 / (np.arange(words) + 10.0) ** 1.1
    lean = 0.25 * rng.normal(size=words)
    topics = [common * np.exp(side * lean) for side in (-1, 1)]
    y = rng.integers(0, 2, 2 * rows)
    lengths = np.maximum(5, rng.lognormal(4, 0.8, 2 * rows).astype(int))
    drawn = [
        np.unique(rng.choice(words, length, p=topics[k] / topics[k].sum()), return_counts=True)
        for k, length in zip(y, lengths, strict=True)
    ]
    entries = np.concatenate([counts.astype(float) for _, counts in drawn])
    columns = np.concatenate([found for found, _ in drawn])
    ends = np.cumsum([0, *(len(found) for found, _ in drawn)])
    x = sparse.csr_matrix((entries, columns, ends), shape=(2 * rows, words))
    if weighed:
        x = TfidfTransformer().fit(x[:rows]).transform(x)
    return _rows(x[:rows], y[:rows], x[rows:], y[rows:])


def _normal(folder: Path, seed: int, rows: int = 2_000, columns: int = 1_000) -> Rows:  # noqa: ARG001
    """20 numbers N(0, 1) a row, in any of the columns."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2 * rows, columns))
    x[rng.random(x.shape) > 20 / columns] = 0
    logits = 2 * x @ rng.normal(size=columns) / np.sqrt(20)
    y = (rng.random(2 * rows) < 1 / (1 + np.exp(-logits))).astype(int)
    return _rows(x[:rows], y[:rows], x[rows:], y[rows:])


SETS: dict[str, Callable[[Path, int], Rows]] = {
    "Criteo, ids": lambda folder, seed: _criteo(folder, seed, numbers=False),
    "Criteo, numbers and ids": lambda folder, seed: _criteo(folder, seed, numbers=True),
    "mushroom": _mushroom,
    "20 numbers and ids": _mixed,
    "clicks": _clicks,
    "words": lambda folder, seed: _text(folder, seed, weighed=False),
    "words, tf-idf": lambda folder, seed: _text(folder, seed, weighed=True),
    "numbers, 20 a row": _normal,
}


def _square(x: Any) -> float:
    """The mean of the rows' |x|²."""
    return float(x.multiply(x).sum() / x.shape[0])


def _cosine(lr: float, x: Any) -> Any:
    return lsh.schedules.cosine(lr, total=_EPOCHS * -(-x.shape[0] // _BATCH))


_CONSTANT = (1.0, 0.3, 0.1, 0.03, 0.01)
_OVER = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_ADAGRAD = (0.02, 0.05, 0.1, 0.3)
STEPS: dict[str, Callable[[Any], dict[str, Any]]] = {
    **{f"{lr:g}": lambda _, lr=lr: {"lr": lr} for lr in _CONSTANT},
    **{f"{c:g} / (1 + \\|x\\|²)": lambda x, c=c: {"lr": c / (1 + _square(x))} for c in _OVER},
}
ARMS: dict[str, Callable[[Any], dict[str, Any]]] = {
    **STEPS,
    "1 / (1 + \\|x\\|²), batches of 4": lambda x: {"lr": 1 / (1 + _square(x)), "batch_size": 4},
    "1 / (1 + \\|x\\|²), batches of 64": lambda x: {"lr": 1 / (1 + _square(x)), "batch_size": 64},
    f"cosine from 1 over {_EPOCHS} epochs": lambda x: {"lr": _cosine(1, x)},
    f"cosine from 0.1 over {_EPOCHS} epochs": lambda x: {"lr": _cosine(0.1, x)},
    f"cosine from 10 / (1 + \\|x\\|²) over {_EPOCHS} epochs": lambda x: {
        "lr": _cosine(10 / (1 + _square(x)), x)
    },
    **{
        # With the penalty, Adagrad makes updates of whole vectors.
        f"Adagrad({lr:g}), no penalty": lambda _, lr=lr: {"rule": lsh.Adagrad(lr), "penalty": None}
        for lr in _ADAGRAD
    },
}


def contenders(loss: str, seed: int, x: Any) -> dict[tuple[str, str], Any]:
    """By name and setting."""
    return {
        **{
            ("leashed", name): SGDClassifier(loss, random_state=seed, **arm(x))
            for name, arm in ARMS.items()
        },
        **{
            ("SGDClassifier", f"alpha={alpha:g}"): linear_model.SGDClassifier(
                loss=loss, alpha=alpha, random_state=seed
            )
            for alpha in ALPHAS
        },
        **{
            ("LogisticRegression", f"C={c:g}"): linear_model.LogisticRegression(C=c, max_iter=1000)
            for c in INVERSE
            if loss == "log_loss"
        },
    }


def measure(name: str, folder: Path, seed: int) -> list[dict[str, Any]]:
    """A record for each fit to that set."""
    rows = SETS[name](folder, seed)
    records = []
    for loss in LOSSES:
        for (who, setting), model in contenders(loss, seed, rows.x).items():
            start = time.perf_counter()
            model.fit(rows.x, rows.y)
            seconds = time.perf_counter() - start
            auc = lsh.metrics.auc(model.decision_function(rows.held_x), rows.held_y)
            epochs = int(np.max(model.n_iter_))
            record = {"set": name, "seed": seed, "loss": loss, "who": who, "setting": setting}
            objective = _objective(model, rows, loss)
            found = {"auc": auc, "objective": objective, "epochs": epochs, "seconds": seconds}
            records.append(record | found)
    return records


def _objective(model: Any, rows: Rows, loss: str) -> float:
    """What the default penalty has fits minimise, on the rows trained on."""
    margins = np.where(rows.y == 1, 1, -1) * model.decision_function(rows.x)
    losses = np.logaddexp(0, -margins) if loss == "log_loss" else np.maximum(0, 1 - margins)
    return float(losses.mean() + 0.5 * ALPHAS[0] * np.square(model.coef_).sum())


def mean(records: Sequence[dict[str, Any]], what: str = "auc", **wanted: Any) -> float:
    """Over the records that have all of these."""
    return statistics.mean(
        float(each[what]) for each in records if all(each[k] == v for k, v in wanted.items())
    )


def choose(records: Sequence[dict[str, Any]], sets: Sequence[str]) -> str | None:
    """The arm, as the head of this file has it; None: each falls short somewhere."""

    def found(arm: str) -> list[tuple[float, float]]:
        default = {"who": "SGDClassifier", "setting": f"alpha={ALPHAS[0]:g}"}
        return [
            (
                mean(records, set=each, loss=loss, who="leashed", setting=arm),
                mean(records, set=each, loss=loss, **default),
            )
            for each in sets
            for loss in LOSSES
        ]

    means = {
        arm: statistics.mean(ours for ours, _ in found(arm))
        for arm in STEPS
        if all(ours >= theirs - SHORT for ours, theirs in found(arm))
    }
    return max(means, key=means.__getitem__, default=None)


def tables(records: Sequence[dict[str, Any]], sets: Sequence[str]) -> str:
    """One for each loss: AUC by arm and set, and the means of them, of the objective and of epochs."""
    parts = []
    for loss in LOSSES:
        of_loss = [each for each in records if each["loss"] == loss]
        settings: dict[str, list[str]] = {}
        for each in of_loss:
            if each["setting"] not in settings.setdefault(each["who"], []):
                settings[each["who"]].append(each["setting"])
        lines = []
        for who, its in settings.items():
            for setting in its if who == "leashed" else its[:1]:
                each_set = [mean(of_loss, set=s, who=who, setting=setting) for s in sets]
                lines.append(
                    [
                        setting if who == "leashed" else f"{who}, {setting}",
                        *(f"{auc:.4f}" for auc in (*each_set, statistics.mean(each_set))),
                        f"{mean(of_loss, 'objective', who=who, setting=setting):.3f}",
                        f"{mean(of_loss, 'epochs', who=who, setting=setting):.0f}",
                    ]
                )
            if who != "leashed":
                best = [max(mean(of_loss, set=s, who=who, setting=k) for k in its) for s in sets]
                cells = [f"{auc:.4f}" for auc in (*best, statistics.mean(best))]
                lines.append([f"{who}, the best for each", *cells, "", ""])
        parts.append(f"`{loss}`:")
        parts.append(table(["", *sets, "mean", "objective", "epochs"], lines))
    return paragraphs(*parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("LEASHED_DATA", _DATA)))
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--only", nargs="+", choices=list(SETS), default=list(SETS))
    options = parser.parse_args()
    half = max(1, options.seeds // 2)
    records = []
    with options.output.open("w", encoding="utf-8") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that have not converged
        for name in options.only:
            for seed in range(options.seeds):
                records += (found := measure(name, options.data, seed))
                file.writelines(json.dumps(record) + "\n" for record in found)
            print(name, flush=True)
    for what, seeds in (("choosing", range(half)), ("others", range(half, options.seeds))):
        part = [record for record in records if record["seed"] in seeds]
        if part:
            print(f"\nSeeds {', '.join(map(str, seeds))} ({what}):\n\n{tables(part, options.only)}")
            print(f"\nThe best that falls short nowhere: {choose(part, options.only)}")


if __name__ == "__main__":
    main()
