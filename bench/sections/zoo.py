"""Recommenders beside DLRM against PyTorch at its best.

Everybody trains on the same examples, batch after batch, with Adagrad; the contenders take turns,
PyTorch in processes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import leashed as lsh
from bench import din, figures, youtube
from bench.contenders import recommenders as contenders
from bench.context import Bench, Record
from bench.figures import Results
from bench.markdown import number, table, thousands
from bench.section import Goal
from bench.turns import record, take_turns

PLACE, TITLE = 250, "Recommenders"

_ROUNDS = 3
_SECONDS = 2.0  # of a turn


def youtube_dnn() -> tuple[lsh.models.Graph, lsh.ClickDataset]:
    """The model, and what it learns from."""
    ids, offsets, chosen = youtube.data()
    model = lsh.models.youtube_dnn(
        youtube.ITEMS, youtube.DIM, youtube.HIDDEN, negatives=youtube.NEGATIVES
    )
    data = lsh.ClickDataset.from_arrays(
        None,
        {"history": lsh.datasets.Bags(ids, offsets), "chosen": chosen},
        np.ones(len(chosen), np.int32),
    )
    return model, data


def deep_interest() -> tuple[lsh.models.Graph, lsh.ClickDataset]:
    """The model, and what it learns from."""
    model = lsh.models.din(
        din.USERS,
        din.ITEMS,
        din.CATEGORIES,
        din.DIM,
        attention=din.ATTENTION,
        hidden=din.HIDDEN,
        longest=din.LONGEST,
    )
    return model, din.data()


@dataclass(frozen=True)
class Contest:
    """A model at its sizes, and PyTorch's programs for it, by what tells them apart."""

    title: str
    made: Callable[[], tuple[lsh.models.Graph, lsh.ClickDataset]]
    lr: float
    sizes: Sequence[int]
    module: str
    ways: Mapping[str, str]


MODELS = {
    "youtube_dnn": Contest(
        "YouTubeDNN",
        youtube_dnn,
        youtube.LR,
        youtube.BATCHES,
        "bench.torch_youtube",
        {"PyTorch": ""},
    ),
    "din": Contest(
        "DIN",
        deep_interest,
        din.LR,
        din.BATCHES,
        "bench.torch_din",
        {"PyTorch, padded": "padded", "PyTorch, packed": "packed"},
    ),
}


def measure(bench: Bench) -> list[dict[str, Any]]:
    """A record of each model and batch size, with the turns of all contenders."""
    seconds = bench.seconds(_SECONDS, least=0.2)
    found: list[dict[str, Any]] = []
    for name, contest in MODELS.items():
        model, data = contest.made()
        for batch in contest.sizes:
            teams = contenders(
                model, data, contest.lr, batch, bench.threads, seconds, contest.module, contest.ways
            )
            turns = take_turns(teams, bench.times(_ROUNDS))
            found.append(
                {"figure": name, "batch": batch, "threads": bench.threads, **record(turns)}
            )
    return found


def _rates(record: Record) -> dict[str, float]:
    return {name: figures.rate(record, name) for name in record["rate"]}


def _over_torch(record: Record) -> float | None:
    rates = _rates(record)
    peers = [rate for name, rate in rates.items() if name.startswith("PyTorch")]
    return rates[f"leashed ×{record['threads']}"] / max(peers) if peers else None


def over_torch(model: str, batch: int, results: Results) -> float | None:
    """Examples per second over PyTorch's at its best number of threads."""
    found = figures.records(results, "zoo", figure=model, batch=batch)
    return _over_torch(found[0]) if found else None


def words(results: Results) -> str:
    """Examples per second of each model, by batch size."""
    rows = [
        [
            MODELS[record["figure"]].title,
            str(record["batch"]),
            ", ".join(f"{name} {thousands(rate)}" for name, rate in _rates(record).items()),
            "" if (ratio := _over_torch(record)) is None else f"{number(ratio)}×",
        ]
        for record in figures.records(results, "zoo")
    ]
    return table(["model", "batch", "examples/s", "over PyTorch's best"], rows) if rows else ""


GOALS = [
    Goal(
        f"{contest.title}, batch {batch}, examples/s over PyTorch's best",
        3.0,
        partial(over_torch, model, batch),
        unit="×",
    )
    for model, contest in MODELS.items()
    for batch in contest.sizes
]
