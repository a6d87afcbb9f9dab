"""Engine.read() and Engine.push() from Python, above the memory traffic they stand for.

The traffic is measured in the same turns. For a read it is NumPy's copy of the same length where
the discipline copies, and nothing where it does not. For a push it is the rule's pass alone, over
the same memory: in place by ``RuleState`` (less a property of the same extension module, for the
call), and under ``Leashed``, which writes another vector, NumPy's subtraction of three vectors of
that length, two of which take turns. ``push`` looks for NaN, which is a pass over the gradient more:
NumPy's sum of that length is added. All on one thread's own clock.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import leashed as lsh
from bench import figures
from bench.context import Bench, Record, only
from bench.figures import Results
from bench.markdown import number, paragraphs, table
from bench.section import Goal
from leashed import _core

PLACE, TITLE = 110, "Engine"

_LENGTHS = (8, 1_000, 27_354, 134_794, 1_000_000)
_TURNS = 11
_SECONDS = 0.01  # a turn
_DISCIPLINES = (lsh.Leashed(), lsh.Hogwild(copy=False), lsh.Hogwild(), lsh.Locked())


def measure(bench: Bench) -> list[Record]:
    """A record a discipline and length: seconds of everything that took turns."""
    return [
        _record(discipline, d, bench.times(_TURNS, least=3))
        for discipline in _DISCIPLINES
        for d in _LENGTHS
    ]


def _record(discipline: lsh.Discipline, d: int, rounds: int) -> Record:
    functions = _functions(d, discipline)
    turns: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, f in functions.items():
            turns[name].append(_seconds(f))
    of = {name: np.array(values) for name, values in turns.items()}
    copies = isinstance(discipline, lsh.Locked) or discipline == lsh.Hogwild()
    update = (
        of["pass"]
        if isinstance(discipline, lsh.Leashed)
        else of["update"] - (of["call"] - of["empty"])
    )
    return {
        "discipline": discipline.label,
        "dimension": d,
        "seconds": {name: statistics.median(values) for name, values in turns.items()},
        # Medians of the turns' differences: from one turn to the next a pass over memory varies by
        # more than what is above it.
        "read_above": float(np.median(of["read"] - (of["copy"] if copies else 0.0))),
        "push_above": float(np.median(of["push"] - update)),
    }


def _seconds(f: Callable[[], object]) -> float:
    """Of one call, over enough of them."""
    calls, elapsed = 1, 0.0
    while elapsed < _SECONDS:
        start = time.thread_time()
        for _ in range(calls):
            f()
        elapsed = time.thread_time() - start
        calls *= 1 if elapsed >= _SECONDS else 4
    return elapsed / calls


def _functions(d: int, discipline: lsh.Discipline) -> dict[str, Callable[[], object]]:
    rule = lsh.SGD(1e-6)
    engine = lsh.Engine(
        np.zeros(d), rule=rule, discipline=discipline, workers=1, check_finite=False
    )
    checking = lsh.Engine(np.zeros(d), rule=rule, discipline=discipline, workers=1)
    with checking.read():
        pass
    state = _core.RuleState(rule.choice(), np.zeros(d, np.float32))
    gradient = np.ones(d, np.float32)
    target, source = np.empty(d, np.float32), np.ones(d, np.float32)
    vectors = [source, target]

    def read() -> None:
        with engine.read():
            pass

    def out_of_place() -> None:
        vectors.reverse()
        np.subtract(vectors[0], gradient, out=vectors[1])

    return {
        "read": read,
        "push": lambda: engine.push(gradient),
        "checked push": lambda: checking.push(gradient),
        "copy": lambda: np.copyto(target, source),
        "update": lambda: state.update(gradient),
        "pass": out_of_place,
        "call": lambda: engine.workers,
        "empty": lambda: None,
    }


def above_traffic(call: str, results: Results) -> float | None:
    """Microseconds that a call takes beyond its memory traffic, most of all."""
    found = figures.figures(results, "engine")
    return max((1e6 * record[f"{call}_above"] for record in found), default=None)


def words(results: Results) -> str:
    """Engine's calls."""
    records = figures.figures(results, "engine")
    if not records:
        return ""
    lengths = list(dict.fromkeys(record["dimension"] for record in records))
    rows = []
    for name in dict.fromkeys(record["discipline"] for record in records):
        for call in ("read", "push"):
            line = [f"{name}, {call}"]
            for d in lengths:
                record = only(records, discipline=name, dimension=d)[0]
                line.append(
                    f"{number(1e6 * record['seconds'][call])} "
                    f"({number(1e6 * record[f'{call}_above'])})"
                )
            rows.append(line)
        rows.append(
            [
                f"{name}, push that looks for NaN",
                *(
                    number(
                        1e6
                        * only(records, discipline=name, dimension=d)[0]["seconds"]["checked push"]
                    )
                    for d in lengths
                ),
            ]
        )
    return paragraphs(
        "From Python, one thread, plain SGD, µs a call; in brackets, what is beyond the memory "
        "traffic that the call stands for (a copy, or the rule's pass), measured in the same turns.",
        table(["", *(f"d = {d:,}" for d in lengths)], rows),
    )


def profile(results: Results) -> str:
    """Where a call takes longer than its traffic."""
    records = figures.figures(results, "engine")
    worst = max(records, key=lambda r: max(r["read_above"], r["push_above"]))
    below = max(max(r["read_above"], r["push_above"]) for r in records if r["dimension"] <= 134_794)
    return (
        f"Most beyond its traffic: {worst['discipline']}, d = {worst['dimension']:,}, whose push "
        f"takes {number(1e6 * worst['seconds']['push'])} µs, {number(1e6 * worst['push_above'])} more, "
        f"and whose read {number(1e6 * worst['seconds']['read'])} µs, "
        f"{number(1e6 * worst['read_above'])} more: there the goal is a small part of the traffic, "
        "which leaves the second-level cache and differs from one buffer to the next. Up to "
        f"d = 134,794 the most is {number(1e6 * below)} µs."
    )


GOALS = [
    Goal(
        f"Engine.{call} from Python, above the memory traffic, most of all lengths",
        2.0,
        partial(above_traffic, call),
        least=False,
        unit=" µs",
    )
    for call in ("read", "push")
]
PROFILES = {"Engine": profile}
