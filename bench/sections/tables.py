"""DLRM against its ceiling and PyTorch, and growing tables against fixed ones.

The ceiling is what its products take at the FMA rate and its rows in a program of their own
(``bench_rows``), one after the other, measured in the same run. Everybody trains on the same
131,072 examples (``bench.dlrm``), batch after batch, with Adagrad, rows without versions as the
ceiling's and PyTorch's; the contenders take turns, PyTorch in processes of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import leashed as lsh
from bench import dlrm
from bench.context import Bench, installed
from bench.turns import Turn, record, take_turns, timed
from leashed import _core

_ROUNDS = 3
_SECONDS = 2.0  # of a turn
_CEILING_SECONDS = 6.0  # of a batch size
_GRADIENT_SECONDS = 2.0  # of a batch size
LAYOUTS = ("fused", "tables")


def leashed(batch: int, threads: int) -> Callable[[float], float]:
    """Trains for so many seconds; examples per second. Tables and parameters go on."""
    x, ids, y = dlrm.data()
    model = lsh.models.dlrm(
        dlrm.ROWS, dlrm.DIM, dlrm.DENSE, dlrm.BOTTOM, dlrm.TOP, categories=dlrm.TABLES
    )
    data = lsh.ClickDataset.from_arrays(x, ids, y)
    rule = lsh.Adagrad(dlrm.LR)
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


def torch(batch: int, threads: int, layout: str, seconds: float) -> Turn:
    """A turn of PyTorch, in a process of its own."""
    command = [sys.executable, "-m", "bench.torch_dlrm", str(batch), str(threads), layout]
    told = subprocess.run(
        [*command, str(seconds)], check=True, stdout=subprocess.PIPE, encoding="utf-8"
    ).stdout
    return Turn(**json.loads(told))


def contenders(batch: int, threads: int, seconds: float) -> dict[str, Callable[[], Turn]]:
    """By name, with the threads of each."""
    found: dict[str, Callable[[], Turn]] = {}
    for team in sorted({1, threads}):
        train = leashed(batch, team)
        train(seconds / 2)
        found[f"leashed ×{team}"] = partial(timed, partial(train, seconds), team)
        if installed("torch"):
            for layout in LAYOUTS:
                found[f"PyTorch {layout} ×{team}"] = partial(torch, batch, team, layout, seconds)
    return found


def measure(bench: Bench) -> list[dict[str, Any]]:
    """A record of each batch size, with the turns of all contenders, and the ceilings' figures."""
    seconds = bench.seconds(_SECONDS, least=0.2)
    found: list[dict[str, Any]] = []
    for batch in dlrm.BATCHES:
        found += bench.run(
            "bench_rows",
            bench.threads,
            bench.seconds(_CEILING_SECONDS),
            dlrm.TABLES,
            dlrm.ROWS,
            dlrm.EXPONENT,
            batch,
        )
        turns = take_turns(contenders(batch, bench.threads, seconds), bench.times(_ROUNDS))
        found.append(
            {
                "figure": "dlrm",
                "batch": batch,
                "threads": bench.threads,
                "flops": dlrm.FLOPS,
                **record(turns),
            }
        )
    found += bench.run("bench_graph", bench.seconds(_GRADIENT_SECONDS), _core.default_isa())
    found += bench.run(
        "bench_tables",
        bench.seconds(_CEILING_SECONDS),
        1,
        dlrm.TABLES,
        dlrm.ROWS,
        dlrm.DIM,
        dlrm.EXPONENT,
    )
    return found
