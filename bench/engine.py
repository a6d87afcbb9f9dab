"""Engine.read() and Engine.push() from Python, above the memory traffic they stand for.

    python -m bench.engine

The traffic is measured in the same turns: for a read NumPy's copy of the same length where the
discipline copies (nothing where it does not). For a push it is the update alone: in place by
``RuleState`` (less a property of the same extension module, for the call), and under ``Leashed``,
which writes another vector, NumPy's subtraction of the same three vectors, two of them in turn. Times are medians over interleaved turns;
one JSON object per line.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import numpy as np

import leashed as lsh
from bench import machine
from leashed import _core

LENGTHS = (8, 1_000, 27_354, 134_794, 1_000_000)
TURNS = 11
DISCIPLINES = (lsh.Leashed(), lsh.Hogwild(copy=False), lsh.Hogwild(), lsh.Locked())


def seconds_of(f: Callable[[], object], budget: float = 0.01) -> float:
    """Per call, over enough calls to fill the budget."""
    calls, elapsed = 1, 0.0
    while elapsed < budget:
        start = time.thread_time()  # of this thread alone: a turn in which it waits tells nothing
        for _ in range(calls):
            f()
        elapsed = time.thread_time() - start
        calls *= 1 if elapsed >= budget else 4
    return elapsed / calls


def contenders(d: int, discipline: lsh.Discipline) -> dict[str, Callable[[], object]]:
    """What takes turns."""
    engine = lsh.Engine(np.zeros(d), rule=lsh.SGD(1e-6), discipline=discipline, workers=1)
    state = _core.RuleState(lsh.SGD(1e-6).choice(), np.zeros(d, np.float32))
    gradient = np.ones(d, np.float32)
    target, source = np.empty(d, np.float32), np.ones(d, np.float32)

    def read() -> None:
        with engine.read():
            pass

    vectors = [source, target]

    def out_of_place() -> None:
        vectors.reverse()
        np.subtract(vectors[0], gradient, out=vectors[1])

    return {
        "read": read,
        "push": lambda: engine.push(gradient),
        "copy": lambda: np.copyto(target, source),
        "update": lambda: state.update(gradient),
        "pass": out_of_place,
        "call": lambda: engine.workers,
        "empty": lambda: None,
    }


def main() -> None:
    print(json.dumps({"machine": machine.describe(), "numpy": np.__version__}))
    for discipline in DISCIPLINES:
        for d in LENGTHS:
            functions = contenders(d, discipline)
            turns: dict[str, list[float]] = {name: [] for name in functions}
            for _ in range(TURNS):
                for name, f in functions.items():
                    turns[name].append(seconds_of(f))
            times = {name: statistics.median(values) for name, values in turns.items()}
            copies = isinstance(discipline, lsh.Locked) or discipline == lsh.Hogwild()
            traffic = {
                "read": times["copy"] if copies else 0.0,
                "push": times["pass"]
                if isinstance(discipline, lsh.Leashed)
                else times["update"] - (times["call"] - times["empty"]),
            }
            print(
                json.dumps(
                    {
                        "discipline": discipline.label,
                        "d": d,
                        **{f"{name}_us": round(1e6 * times[name], 3) for name in times},
                        **{
                            f"{name}_above_traffic_us": round(1e6 * (times[name] - cost), 3)
                            for name, cost in traffic.items()
                        },
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
