"""Recommenders beside DLRM against PyTorch at its best.

Everybody trains on the same examples, batch after batch, with Adagrad; the contenders take turns,
PyTorch in processes of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import leashed as lsh
from bench import din, youtube
from bench.context import Bench, installed
from bench.turns import Turn, record, take_turns, timed

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


def trainer(
    model: lsh.models.Graph, data: lsh.ClickDataset, lr: float, batch: int, threads: int
) -> Callable[[float], float]:
    """Trains for so many seconds; examples per second. Tables and parameters go on."""
    rule = lsh.Adagrad(lr)
    tables = lsh.tables.of(model.tables, rule=rule, versions=False)
    theta = model.init()

    def train(seconds: float) -> float:
        nonlocal theta
        result = lsh.train(
            model,
            data,
            until=lsh.until(seconds=seconds),
            discipline=lsh.Sequential() if threads == 1 else lsh.Hogwild(),
            rule=rule,
            threads=threads,
            batch_size=batch,
            init=lsh.Init(theta, tables=tables),
            observe=lsh.Observe(every=1e6),
        )
        theta = result.parameters
        return result.mean_eps

    return train


def torch(arguments: Sequence[str], seconds: float) -> Turn:
    """A turn of PyTorch, in a process of its own."""
    command = [sys.executable, "-m", *arguments, str(seconds)]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    return Turn(**json.loads(told))


@dataclass(frozen=True)
class Contest:
    """A model at its sizes, and PyTorch's programs for it, by what tells them apart."""

    made: Callable[[], tuple[lsh.models.Graph, lsh.ClickDataset]]
    lr: float
    sizes: Sequence[int]
    module: str
    ways: Sequence[str] = ()


MODELS = {
    "youtube_dnn": Contest(youtube_dnn, youtube.LR, youtube.BATCHES, "bench.torch_youtube"),
    "din": Contest(deep_interest, din.LR, din.BATCHES, "bench.torch_din", ("padded", "packed")),
}


def measure(bench: Bench) -> list[dict[str, Any]]:
    """A record of each model and batch size, with the turns of all contenders."""
    seconds = bench.seconds(_SECONDS, least=0.2)
    found: list[dict[str, Any]] = []
    for name, contest in MODELS.items():
        model, data = contest.made()
        for batch in contest.sizes:
            contenders: dict[str, Callable[[], Turn]] = {}
            for team in sorted({1, bench.threads}):
                train = trainer(model, data, contest.lr, batch, team)
                train(seconds / 2)
                contenders[f"leashed ×{team}"] = partial(timed, partial(train, seconds), team)
                for way in (contest.ways or ("",)) if installed("torch") else ():
                    arguments = [contest.module, str(batch), str(team), *filter(None, [way])]
                    contenders[f"PyTorch{way and ', ' + way} ×{team}"] = partial(
                        torch, arguments, seconds
                    )
            turns = take_turns(contenders, bench.times(_ROUNDS))
            found.append(
                {"figure": name, "batch": batch, "threads": bench.threads, **record(turns)}
            )
    return found
