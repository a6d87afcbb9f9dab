"""Training examples per second of leashed and of PyTorch, side by side in one run.

Every contender lives in processes of its own, which sleep while it is not its turn. For each
network and batch size the contenders take turns, round after round, so that all see the machine at
its good and bad moments alike; a figure is the median over the rounds. A turn also tells which
share of the processors that it asked for it was given: on a quiet machine it is near 1. Turns that
other programs disturbed are played again in moments when the processors are idle, as long as
patience lasts, and of each the one with the largest share counts.

    python bench/peers.py --data <MNIST folder>

prints the tables and writes bench/results/peers-<machine>.json with every round.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import machine
import torch
from torch_sgd import SHAPES, Trainer, parameters

import leashed
from leashed import table
from leashed.datasets import Dataset
from leashed.machine import cores

NETWORKS = {"mlp": leashed.models.mlp(784, [128] * 3, 10), "cnn": leashed.models.cnn()}
BATCHES = (16, 64, 512)
DISCIPLINES = {
    "SEQ": leashed.Sequential(),
    "SYNC": leashed.Synchronous(),
    "HOG": leashed.Hogwild(),
    "LSH_ps∞": leashed.Leashed(),
}
QUIET = 0.9
RESULTS = Path(__file__).parent / "results"

Turn = Callable[[str, int, float], float]  # network, batch size, seconds → examples per second


@dataclass(frozen=True)
class Contender:
    """One library at one setting, on ``processes`` processes of ``threads`` threads each."""

    library: str
    setting: str
    threads: int = 1
    processes: int = 1
    networks: tuple[str, ...] = tuple(NETWORKS)

    @property
    def width(self) -> int:
        """Threads that want to run at the same time."""
        return self.threads * self.processes

    @property
    def name(self) -> str:
        """The contender in tables."""
        return f"{self.library} {self.setting} ×{self.width}"


class Measured(NamedTuple):
    """One turn of one process."""

    eps: float
    cpu_share: float


def contenders(all_threads: int) -> list[Contender]:
    """All settings: both libraries with one thread and with all."""
    found = [Contender("leashed", "SEQ")]
    for threads in sorted({1, all_threads}):
        found += [Contender("leashed", name, threads) for name in DISCIPLINES if name != "SEQ"]
        found += [
            Contender("torch", "eager", threads),
            Contender("torch", "channels_last", threads, networks=("cnn",)),
        ]
    if all_threads > 1:
        found.append(Contender("torch", "Hogwild", processes=all_threads))
    return sorted(found, key=lambda c: c.library)


def leashed_turn(contender: Contender, data: Dataset) -> Turn:
    """Training with the monitor's evaluations out of the way; only the training is timed."""

    def turn(network: str, batch_size: int, seconds: float) -> float:
        return leashed.train(
            NETWORKS[network],
            data,
            until=leashed.until(seconds=seconds),
            discipline=DISCIPLINES[contender.setting],
            rule=leashed.SGD(0.01),
            threads=contender.threads,
            batch_size=batch_size,
            evaluate_every=1e6,
        ).mean_eps

    return turn


def torch_turn(contender: Contender, data: Dataset, weights: dict[str, list[torch.Tensor]]) -> Turn:
    """Eager training; a trainer is prepared and warmed up when first asked for."""
    torch.set_num_threads(contender.threads)
    trainers: dict[tuple[str, int], Trainer] = {}

    def turn(network: str, batch_size: int, seconds: float) -> float:
        if (network, batch_size) not in trainers:
            trainers[network, batch_size] = Trainer(
                network,
                data.x,
                data.y,
                batch_size,
                weights[network],
                contender.setting == "channels_last",
            )
        return 0.0 if seconds == 0.0 else trainers[network, batch_size].train(seconds)

    return turn


def serve(
    pipe: Connection, contender: Contender, data: Dataset, weights: dict[str, list[torch.Tensor]]
) -> None:
    """A contender's process: takes its turns until the other side hangs up."""
    turn = (
        leashed_turn(contender, data)
        if contender.library == "leashed"
        else torch_turn(contender, data, weights)
    )
    while (task := pipe.recv()) is not None:
        start, cpu = time.perf_counter(), time.process_time()
        eps = turn(*task)
        elapsed = time.perf_counter() - start
        pipe.send(Measured(eps, (time.process_time() - cpu) / elapsed / contender.threads))


class Team:
    """The processes of a contender."""

    def __init__(self, contender: Contender, data: Dataset) -> None:
        self.contender = contender
        weights = {network: parameters(network) for network in SHAPES}
        if contender.processes > 1:
            for block in weights.values():
                for w in block:
                    w.share_memory_()
        context = torch.multiprocessing.get_context("spawn")
        self.pipes = []
        for _ in range(contender.processes):
            here, there = context.Pipe()
            context.Process(
                target=serve, args=(there, contender, data, weights), daemon=True
            ).start()
            self.pipes.append(here)

    def turn(self, network: str, batch_size: int, seconds: float) -> Measured:
        """All processes at once: examples per second together, mean share of the processors."""
        for pipe in self.pipes:
            pipe.send((network, batch_size, seconds))
        turns = [pipe.recv() for pipe in self.pipes]
        return Measured(sum(t.eps for t in turns), statistics.mean(t.cpu_share for t in turns))

    def close(self) -> None:
        """Let the processes end."""
        for pipe in self.pipes:
            pipe.send(None)


def busy_share(seconds: float) -> float:
    """The share of the machine's processors that is in use over the next so many seconds."""

    def ticks() -> tuple[int, int]:
        first = Path("/proc/stat").read_text("ascii").split("\n", maxsplit=1)[0]
        user, nice, system, idle, waiting, *rest = map(int, first.split()[1:9])
        busy = user + nice + system + sum(rest)
        return busy, busy + idle + waiting

    busy, total = ticks()
    time.sleep(seconds)
    busy_after, total_after = ticks()
    return (busy_after - busy) / max(1, total_after - total)


def repeat_disturbed(
    turns: dict[str, list[Measured]], play: Callable[[str], Measured], patience: float
) -> None:
    """Replace disturbed turns by better ones, the least tried and most disturbed first."""
    tries = {(name, k): 0 for name, played in turns.items() for k in range(len(played))}
    end = time.monotonic() + patience
    while time.monotonic() < end:
        disturbed = [(n, turns[name][k].cpu_share, name, k) for (name, k), n in tries.items()]
        disturbed = [entry for entry in disturbed if entry[1] < QUIET]
        if not disturbed:
            return
        if busy_share(0.2) > 1.0 - QUIET:
            continue
        *_, name, k = min(disturbed)
        tries[name, k] += 1
        turns[name][k] = max(turns[name][k], play(name), key=lambda turn: turn.cpu_share)


def measure(
    teams: list[Team], network: str, batch_size: int, rounds: int, seconds: float, patience: float
) -> dict[str, Any]:
    """One cell: all contenders in turns, ``rounds`` times."""
    playing = {team.contender.name: team for team in teams if network in team.contender.networks}
    for team in playing.values():
        team.turn(network, batch_size, 0.0 if team.contender.library == "torch" else 0.1)

    def play(name: str) -> Measured:
        return playing[name].turn(network, batch_size, seconds)

    turns: dict[str, list[Measured]] = {name: [] for name in playing}
    for _ in range(rounds):
        for name in playing:
            turns[name].append(play(name))
    repeat_disturbed(turns, play, patience)
    return {
        "network": network,
        "batch_size": batch_size,
        "contenders": {
            name: {
                **asdict(team.contender),
                "eps": [round(t.eps, 1) for t in turns[name]],
                "cpu_share": [round(t.cpu_share, 3) for t in turns[name]],
            }
            for name, team in playing.items()
        },
    }


def best(cell: dict[str, Any], library: str) -> str:
    """The contender of a library with the highest median."""
    rates = {
        name: statistics.median(entry["eps"])
        for name, entry in cell["contenders"].items()
        if entry["library"] == library
    }
    return max(rates, key=lambda name: rates[name])


def ratio(cell: dict[str, Any]) -> float:
    """What leashed's best is over PyTorch's best: the median of the rounds' ratios."""
    ours, theirs = (
        cell["contenders"][best(cell, library)]["eps"] for library in ("leashed", "torch")
    )
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def report(cell: dict[str, Any]) -> str:
    """One cell's table."""
    rows = []
    for name, entry in cell["contenders"].items():
        mark = " *" if name in (best(cell, "leashed"), best(cell, "torch")) else ""
        rows.append(
            [
                name + mark,
                f"{statistics.median(entry['eps']):,.0f}",
                f"{min(entry['eps']):,.0f}–{max(entry['eps']):,.0f}",
                f"{statistics.median(entry['cpu_share']):.2f}",
            ]
        )
    head = [f"{cell['network']}, batch {cell['batch_size']}", "examples/s", "range", "CPU share"]
    return table.text(head, rows)


def summary(cells: list[dict[str, Any]]) -> str:
    """All cells: the best of each library and their ratio."""
    rows = []
    for cell in cells:
        row = [f"{cell['network']}, batch {cell['batch_size']}"]
        for library in ("leashed", "torch"):
            name = best(cell, library)
            row += [name, f"{statistics.median(cell['contenders'][name]['eps']):,.0f}"]
        rows.append([*row, f"{ratio(cell):.2f}"])
    head = ["", "leashed's best", "examples/s", "PyTorch's best", "examples/s", "ratio"]
    return table.text(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, help="MNIST folder; default: synthetic digits")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="per turn")
    parser.add_argument(
        "--patience", type=float, default=30.0, help="seconds per table for disturbed turns"
    )
    parser.add_argument("--output", type=Path, default=RESULTS / f"peers-{machine.slug()}.json")
    arguments = parser.parse_args()
    data = (
        leashed.datasets.mnist(arguments.data)
        if arguments.data
        else leashed.datasets.synthetic_digits()
    ).train
    teams = [Team(contender, data) for contender in contenders(cores())]
    result: dict[str, Any] = {
        "machine": machine.describe(),
        "versions": {"leashed": leashed.__version__, "torch": torch.__version__},
        "data": {"name": data.name, "examples": len(data)},
        "seconds_per_turn": arguments.seconds,
        "patience": arguments.patience,
        "load_before": os.getloadavg()[0],
        "cells": [],
    }
    print(", ".join(f"{name} {value}" for name, value in result["machine"].items()), flush=True)
    for network in NETWORKS:
        for batch_size in BATCHES:
            cell = measure(
                teams,
                network,
                batch_size,
                arguments.rounds,
                arguments.seconds,
                arguments.patience,
            )
            result["cells"].append(cell)
            print(f"\n{report(cell)}", flush=True)
    for team in teams:
        team.close()
    result["load_after"] = os.getloadavg()[0]
    ratios = [ratio(cell) for cell in result["cells"]]
    print(f"\n{summary(result['cells'])}")
    print(
        f"\nleast ratio {min(ratios):.2f} (goal 1), "
        f"geometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.2f}"
    )
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
