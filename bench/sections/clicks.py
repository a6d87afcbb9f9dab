"""Clicks predicted as well as by others, in how much less time: PyTorch, scikit-learn, Vowpal Wabbit
and LightGBM.

All learn from the same rows of the generator and are judged by the AUC of the same test rows. Each
has several settings. The bar is ``_NEAR`` below a library's best AUC: the quickest of its runs that
reach it counts, and beside it the quickest of leashed's that do: a linear model beside the linear
ones, DLRM beside the others. Seconds are of the call that trains, with all threads where a library has them: what makes
rows into what a library reads (hashes, text, bins) is done before. What is not installed is told as absent.
"""

from __future__ import annotations

import importlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import leashed as lsh
from bench import dlrm, figures
from bench.charts import Bars
from bench.context import Bench, Record
from bench.figures import Results
from bench.markdown import count, number, table
from bench.section import Parts
from leashed.base.table import MISSING

PLACE, TITLE = 25, "Clicks at equal quality"

_ROWS, _TEST, _BITS = 200_000, 20_000, 18
_ROUNDS = 3
_NEAR = 0.002

Settings = Mapping[str, Callable[[], tuple[float, Any]]]  # seconds, and the test rows' scores


@dataclass(frozen=True)
class Codes:
    """Ids of the features of which a row has one, int64 [n, features], below ``counts``; and of each
    other feature int64 [n, longest], from 1 and below its one of ``bag_counts``, zeros behind them.
    """

    train: NDArray[np.int64]
    test: NDArray[np.int64]
    counts: Sequence[int]
    train_bags: Sequence[NDArray[np.int64]] = ()
    test_bags: Sequence[NDArray[np.int64]] = ()
    bag_counts: Sequence[int] = ()


@dataclass(frozen=True)
class Rows:
    """Clicks as numbers and ids, the ids as codes, and all hashed into sparse columns."""

    dense: lsh.datasets.ClickSplit
    codes: Codes
    sparse: tuple[lsh.SparseDataset, lsh.SparseDataset]
    threads: int
    seed: int = 0

    def auc(self, scores: Any) -> float:
        return lsh.metrics.auc(np.ravel(scores), self.dense.test.y)


def rows_of(examples: int, threads: int) -> Rows:
    dense = lsh.datasets.synthetic_clicks(examples, 1, test=_TEST, cardinalities=dlrm.ROWS)
    ids = [np.asarray(part.ids).astype(np.int64) for part in dense]
    codes = Codes(ids[0], ids[1], (dlrm.ROWS,) * dlrm.TABLES)
    return Rows(dense, codes, hashed(dense), threads)


def hashed(split: lsh.datasets.ClickSplit) -> tuple[lsh.SparseDataset, lsh.SparseDataset]:
    return tuple(lsh.datasets.hashed(part, _BITS) for part in split)  # type: ignore[return-value]


def timed(train: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = train()
    return time.perf_counter() - start, found


def _leashed(
    rows: Rows, model: Any, data: Any, rules: Sequence[Any], batches: Sequence[int]
) -> Settings:
    test = rows.dense.test if data is rows.dense.train else rows.sparse[1]

    def run(rule: Any, batch: int, epochs: float) -> tuple[float, Any]:
        def train() -> Any:
            return lsh.train(
                model,
                data,
                until=lsh.until(epochs=epochs),
                discipline=lsh.Hogwild(),
                rule=rule,
                batch_size=batch,
                threads=rows.threads,
                observe=lsh.Observe(every=1e6),
            )

        seconds, result = timed(train)
        return seconds, result.model.predict(test)

    return {
        f"{type(rule).__name__}({rule.lr:g}), batch {batch}, epochs={epochs:g}": lambda r=rule, b=batch, e=epochs: (
            run(r, b, e)
        )  # type: ignore[misc]
        for rule in rules
        for batch in batches
        for epochs in (0.25, 0.5, 1.0, 2.0, 4.0)
    }


def leashed_linear(rows: Rows, folder: Path) -> Settings:  # noqa: ARG001
    data = rows.sparse[0]
    model = lsh.models.logistic_regression(data.features)
    return _leashed(rows, model, data, (lsh.SGD(0.02), lsh.SGD(0.04), lsh.Adagrad(0.02)), (8,))


def leashed_dlrm(rows: Rows, folder: Path) -> Settings:  # noqa: ARG001
    return _leashed(
        rows, dlrm.model(), rows.dense.train, (lsh.Adagrad(0.01), lsh.Adagrad(0.02)), (32, 128)
    )


def scikit_learn(rows: Rows, folder: Path) -> Settings:  # noqa: ARG001
    linear = importlib.import_module("sklearn.linear_model")
    train, test = (_matrix(part) for part in rows.sparse)
    y = rows.dense.train.y

    def run(eta0: float, passes: int) -> tuple[float, Any]:
        model = linear.SGDClassifier(
            loss="log_loss",
            penalty=None,
            learning_rate="constant",
            eta0=eta0,
            max_iter=passes,
            tol=None,
            random_state=rows.seed,
        )
        seconds, _ = timed(lambda: model.fit(train, y))
        return seconds, model.decision_function(test)

    return {
        f"SGDClassifier, eta0={eta0:g}, {passes} passes": lambda a=eta0, b=passes: run(a, b)  # type: ignore[misc]
        for eta0 in (0.001, 0.003, 0.01)
        for passes in (1, 3, 10)
    }


def _matrix(part: lsh.SparseDataset) -> Any:
    sparse = importlib.import_module("scipy.sparse")
    indices = np.asarray(part.indices).astype(np.int32)
    arrays = (np.asarray(part.data), indices, np.asarray(part.indptr).astype(np.int32))
    return sparse.csr_matrix(arrays, shape=(len(part), part.features))


def vowpal_wabbit(rows: Rows, folder: Path) -> Settings:
    workspace = importlib.import_module("vowpalwabbit").Workspace
    matrices = [_matrix(part) for part in rows.sparse]
    lines = [list(_vw(m, y)) for m, y in zip(matrices, (rows.dense.train.y, None), strict=True)]
    text = folder / "rows.vw"
    text.write_text("\n".join(lines[0]) + "\n", "ascii")

    def run(rate: float, passes: int) -> tuple[float, Any]:
        cache = folder / "rows.cache"
        options = f"--loss_function logistic -b {_BITS} -l {rate} --holdout_off --quiet"
        seconds, learner = timed(
            lambda: workspace(f"-d {text} --cache_file {cache} --passes {passes} {options}")
        )
        scores = [learner.predict(line) for line in lines[1]]
        learner.finish()
        return seconds, scores

    run(0.5, 1)  # writes the cache
    return {
        f"-l {rate:g} --passes {passes}": lambda a=rate, b=passes: run(a, b)  # type: ignore[misc]
        for rate in (0.05, 0.2, 0.5)
        for passes in (1, 3)
    }


def _vw(rows: Any, y: Any) -> Iterator[str]:
    for k in range(rows.shape[0]):
        part = slice(rows.indptr[k], rows.indptr[k + 1])
        pairs = zip(rows.indices[part], rows.data[part], strict=True)
        label = "" if y is None else f"{2 * int(y[k]) - 1} "
        yield f"{label}| {' '.join(f'{i}:{v:g}' for i, v in pairs)}"


def pytorch(rows: Rows, folder: Path) -> Settings:  # noqa: ARG001
    torch = importlib.import_module("torch")
    made = importlib.import_module("bench.torch_dlrm").Dlrm
    entropy = torch.nn.functional.binary_cross_entropy_with_logits
    codes = rows.codes
    offsets = np.cumsum([0, *codes.counts[:-1]])

    def arrays(part: lsh.ClickDataset, ids: Any, bags: Any) -> list[Any]:
        return [torch.from_numpy(np.asarray(a)) for a in (part.x, ids + offsets, *bags)]

    given = arrays(rows.dense.train, codes.train, codes.train_bags)
    held = arrays(rows.dense.test, codes.test, codes.test_bags)
    y = torch.from_numpy(rows.dense.train.y.astype(np.float32))

    def run(lr: float, batch: int) -> tuple[float, Any]:
        torch.set_num_threads(rows.threads)
        torch.manual_seed(rows.seed)
        model = made(True, given[0].shape[1], codes.counts, codes.bag_counts)
        for rows_of_ids in (*model.tables, *model.bags):
            torch.nn.init.normal_(rows_of_ids.weight, std=0.05)
        optimizer = torch.optim.Adagrad(model.parameters(), lr=lr)

        def train() -> None:
            for part in torch.randperm(len(y)).split(batch):
                loss = entropy(model(*(a[part] for a in given)), y[part])
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()

        seconds, _ = timed(train)
        with torch.no_grad():
            return seconds, model(*held).numpy()

    return {
        f"DLRM, Adagrad({lr:g}), batch {batch}, 1 epoch": lambda a=lr, b=batch: run(a, b)  # type: ignore[misc]
        for lr in (0.01, 0.02)
        for batch in (128, 512)
    }


def columns(rows: Rows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Numbers, then the ids of which a row has one, as trees take them."""
    pairs = ((rows.dense.train, rows.codes.train), (rows.dense.test, rows.codes.test))
    train, test = (np.hstack([part.x, ids.astype(np.float32)]) for part, ids in pairs)
    return train, test


def lightgbm(rows: Rows, folder: Path) -> Settings:  # noqa: ARG001
    library = importlib.import_module("lightgbm")
    train, test = columns(rows)
    ids = list(range(rows.dense.train.numbers, train.shape[1]))
    given = library.Dataset(
        train, rows.dense.train.y, categorical_feature=ids, free_raw_data=False
    ).construct()

    def run(leaves: int, trees: int) -> tuple[float, Any]:
        settings = {
            "objective": "binary",
            "num_leaves": leaves,
            "num_threads": rows.threads,
            "seed": rows.seed,
            "verbose": -1,
        }
        seconds, model = timed(lambda: library.train(settings, given, trees))
        return seconds, model.predict(test)

    return {
        f"num_leaves={leaves}, {trees} trees": lambda a=leaves, b=trees: run(a, b)  # type: ignore[misc]
        for leaves in (15, 63)
        for trees in (25, 100)
    }


PEERS = {
    "scikit-learn": (scikit_learn, "leashed, linear"),
    "Vowpal Wabbit": (vowpal_wabbit, "leashed, linear"),
    "PyTorch": (pytorch, "leashed, DLRM"),
    "LightGBM": (lightgbm, "leashed, DLRM"),
}
_OURS = {"leashed, linear": leashed_linear, "leashed, DLRM": leashed_dlrm}


def measure(bench: Bench) -> dict[str, Any]:
    """``runs``: a record a contender and setting; ``missing``: why others are not here."""
    rows = rows_of(bench.times(_ROWS, least=10_000), bench.threads)
    makers = {**_OURS, **{name: make for name, (make, _) in PEERS.items()}}
    runs: list[Record] = []
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, make in makers.items():
            try:
                settings = make(rows, Path(folder))
            except ImportError as error:
                missing[name] = str(error)
                continue
            for setting, run in settings.items():
                found = [run() for _ in range(bench.times(_ROUNDS))]
                seconds, aucs = [s for s, _ in found], [rows.auc(scores) for _, scores in found]
                middle = {"seconds": statistics.median(seconds), "auc": statistics.median(aucs)}
                runs.append({"contender": name, "setting": setting, **middle})
    about = {
        "rows": len(rows.dense.train),
        "threads": bench.threads,
        "hidden": rows.dense.test.hidden_auc,
    }
    return {**about, "runs": runs, "missing": missing}


def chosen(found: Record, peer: str) -> tuple[Record, Record | None] | None:
    """A peer's run that counts, and ours beside it; None where either is not there."""
    of_peer = [run for run in found["runs"] if run["contender"] == peer]
    if not of_peer:
        return None
    best = max(run["auc"] for run in of_peer)
    reached = [run for run in found["runs"] if run["auc"] >= best - _NEAR]
    theirs = min((r for r in reached if r["contender"] == peer), key=lambda r: r["seconds"])
    ours = [run for run in reached if run["contender"] == PEERS[peer][1]]
    return theirs, min(ours, key=lambda r: r["seconds"], default=None)


def words(results: Results) -> Parts:
    """The time that each takes, and ours to the same AUC."""
    found = figures.figures(results, "clicks")
    if not found:
        return ""
    rows, ratios = [], {}
    for peer in PEERS:
        pair = chosen(found, peer)
        if pair is None:
            ratios[f"{peer}: absent"] = None
            rows.append([peer, found["missing"].get(peer, "absent"), *[MISSING] * 6])
            continue
        theirs, ours = pair
        told = [peer, theirs["setting"], number(theirs["seconds"]), f"{theirs['auc']:.4f}"]
        if ours is None:
            ratios[f"{peer}: not reached"] = None
            rows.append([*told, MISSING, MISSING, "not reached", MISSING])
            continue
        ratio = theirs["seconds"] / ours["seconds"]
        ratios[peer] = ratio
        told += [
            number(ours["seconds"]),
            f"{ours['auc']:.4f}",
            f"{ours['contender']}, {ours['setting']}",
            f"{ratio:.1f}×",
        ]
        rows.append(told)
    head = [
        "",
        "setting",
        "seconds",
        "AUC",
        "leashed to it, seconds",
        "AUC of leashed",
        "setting of leashed",
        "sooner",
    ]
    chart = Bars(
        "clicks",
        "Seconds of training over leashed's to the same AUC",
        list(ratios),
        {"times leashed's": list(ratios.values())},
        "ratio",
        line=(1.0, "as fast"),
    )
    return (
        (
            f"{found['rows']:,} generated rows of {dlrm.DENSE} numbers and {dlrm.TABLES} ids, "
            f"{count(found['threads'], 'thread')}; the hidden model's own AUC of the test rows is "
            f"{found['hidden']:.4f}. Of each library's settings the quickest within {_NEAR:g} of its best "
            "AUC; beside it the quickest run of leashed that reaches the same bar. Seconds of the call that trains. By "
            '`make bench BENCH="--only clicks"`.'
        ),
        chart,
        table(head, rows),
    )
