"""Recommenders beside DLRM against PyTorch at its best.

Everybody trains on the same examples, batch after batch, with Adagrad; the contenders take turns,
PyTorch in processes of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import leashed as lsh
from bench import youtube
from bench.context import Bench, installed
from bench.turns import Turn, record, take_turns, timed

_ROUNDS = 3
_SECONDS = 2.0  # of a turn


def youtube_dnn(batch: int, threads: int) -> Callable[[float], float]:
    """Trains for so many seconds; examples per second. Tables and parameters go on."""
    ids, offsets, chosen = youtube.data()
    model = lsh.models.youtube_dnn(
        youtube.ITEMS, youtube.DIM, youtube.HIDDEN, negatives=youtube.NEGATIVES
    )
    data = lsh.ClickDataset.from_arrays(
        None,
        {"history": lsh.datasets.Bags(ids, offsets), "chosen": chosen},
        np.ones(len(chosen), np.int32),
    )
    rule = lsh.Adagrad(youtube.LR)
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
            init=theta,
            tables=tables,
            evaluate_every=1e6,
        )
        theta = result.parameters
        return result.mean_eps

    return train


def torch(module: str, batch: int, threads: int, seconds: float) -> Turn:
    """A turn of PyTorch, in a process of its own."""
    command = [sys.executable, "-m", module, str(batch), str(threads), str(seconds)]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    return Turn(**json.loads(told))


# By name: what trains, PyTorch's program, and the batch sizes.
MODELS = {"youtube_dnn": (youtube_dnn, "bench.torch_youtube", youtube.BATCHES)}


def measure(bench: Bench) -> list[dict[str, Any]]:
    """A record of each model and batch size, with the turns of all contenders."""
    seconds = bench.seconds(_SECONDS, least=0.2)
    found: list[dict[str, Any]] = []
    for name, (ours, module, sizes) in MODELS.items():
        for batch in sizes:
            contenders: dict[str, Callable[[], Turn]] = {}
            for team in sorted({1, bench.threads}):
                train = ours(batch, team)
                train(seconds / 2)
                contenders[f"leashed ×{team}"] = partial(timed, partial(train, seconds), team)
                if installed("torch"):
                    contenders[f"PyTorch ×{team}"] = partial(torch, module, batch, team, seconds)
            turns = take_turns(contenders, bench.times(_ROUNDS))
            found.append(
                {"figure": name, "batch": batch, "threads": bench.threads, **record(turns)}
            )
    return found
