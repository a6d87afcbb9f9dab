"""Random schedules through a machine and its oracle, which must take the same actions.

    python tests/policies/compare.py [--schedules 100000] [--seed 0] [--only gba]

Both hear the same events, made from what the oracle answers. What an algorithm leaves free is not
compared: the numbers of slots and tickets, the order of the actions of one step, who of several that
wait is served first (the oracle follows the machine), when a machine wants to be woken as long as no
lease ends without it, and tokens, n and c where nothing depends on them. Zero weights count as left
out. Each schedule's machine is replaced by its copy somewhere on the way,
after the original has gone on. The first schedule of each algorithm that fails is made smaller while
it fails, and printed with what happened.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parents[1]))

from policies.audit import Audit
from policies.schedules import ALGORITHMS, LONGEST, Cluster, Event, Schedule, draw
from policies.server import Action, Lease

import leashed._core as core

TRIES = 600  # to make a schedule smaller


class Machine(Protocol):
    """What is compared with an oracle."""

    def on(
        self, kind: str, now_ns: int, node: int, ticket: int, version: int, argument: int
    ) -> list[Action]: ...

    def copy(self) -> Machine: ...


Make = Callable[[str, dict[str, Any]], Machine]


class Side:
    """One side's actions in words that do not depend on its own numbers."""

    def __init__(self, algorithm: str) -> None:
        self.spec = ALGORITHMS[algorithm]
        self.batches: dict[int, int] = {}  # by ticket
        self.slots: dict[int, int] = {}
        self.tickets: dict[tuple[int, int], int] = {}  # by node and batch, the newest
        self.wakes: set[int] = set()

    def told(self, event: Event, actions: list[Action]) -> list[tuple[Any, ...]]:
        return [words for action in actions if (words := self._words(event, action))]

    def _words(self, event: Event, action: Action) -> tuple[Any, ...]:
        kind = action["kind"]
        if kind == "grant":
            lease = Lease(*action["lease"])
            if not lease.count:
                told = (f"{name} {action[name]}" for name in ("version", "n", "c"))
                return ("last answer", f"node {action['node']}", *told)
            self.batches[lease.ticket] = lease.number
            self.tickets[action["node"], lease.number] = lease.ticket
            more = {"number": lease.number, "first": lease.first, "count": lease.count}
            more["version"] = action["version"]
            if self.spec.tokens:
                more["token"] = lease.token
            if self.spec.replies:
                more |= {"n": action["n"], "c": action["c"]}
            return (kind, f"node {action['node']}", *(f"{k} {v}" for k, v in more.items()))
        if kind == "hold":
            self.slots[action["slot"]] = self.batches[event.ticket]
            return (kind, self.slots[action["slot"]])
        if kind == "apply":
            kept = [(self.slots[slot], weight) for slot, weight in action["slots"] if weight]
            return (kind, f"to version {action['version']}", f"/ {action['divisor']:g}", *kept)
        if kind == "exchange":
            told = f"node {action['node']}", f"to version {action['version']}"
            return (kind, self.batches[action["ticket"]], f"by {action['alpha']:g}", *told)
        if kind == "drop":
            return (kind, self.batches[action["ticket"]], action["why"])
        if kind == "wake":
            self.wakes.add(action["at"])
            return ()
        if kind == "end":
            return (kind, f"node {action['node']}")
        return (kind, *sorted(action.items()))


@dataclass
class Difference:
    """Where a machine and its oracle part, and how they came there."""

    schedule: Schedule
    events: list[str]
    why: str

    def __str__(self) -> str:
        return "\n".join([str(self.schedule), "", *self.events, "", self.why])


def play(schedule: Schedule, make: Make) -> Difference | None:
    """The first difference, or none."""
    events: list[str] = []
    try:
        why = next(_differences(schedule, make, events), None)
    except Exception as error:  # noqa: BLE001 (a machine may fail in any way)
        why = f"{type(error).__name__}: {error}"
    return None if why is None else Difference(schedule, events, why)


def _differences(schedule: Schedule, make: Make, events: list[str]) -> Iterator[str]:
    oracle, machine = schedule.oracle(), make(schedule.algorithm, dict(schedule.arguments))
    cluster, books = Cluster(schedule), Audit(schedule.arguments["term_ns"])
    ours, theirs = Side(schedule.algorithm), Side(schedule.algorithm)
    tickets = {0: 0}  # ours to theirs
    count = 0
    while (step := cluster.next()) and count < LONGEST:
        wanted, found = [], []
        told: list[tuple[Event, list[Action]]] = []
        due = False
        for event in step:
            count += 1
            events.append(str(event))
            if event.kind == "wake":
                due = any(batch["until"] <= event.now_ns for batch in oracle.out.values())
            if count % 16 == 9:
                copied = machine.copy()
                machine.on("leave", event.now_ns, 0, 0, 0, 0)  # of which the copy must not hear
                machine = copied
            translated = event._replace(ticket=tickets[event.ticket])
            told.append((translated, machine.on(*translated)))
            oracle.served_first = [a["node"] for a in told[-1][1] if a["kind"] == "grant"]
            answer = oracle.on(*event)
            cluster.take(event.now_ns, answer)
            wanted += ours.told(event, answer)
            found += theirs.told(*told[-1])
        events += (lines := _lines(wanted))
        if (others := _lines(found)) != lines:
            yield "\n".join(["but the machine", *(others or [" " * 10 + "nothing"])])
        if due and step[0].now_ns not in theirs.wakes:
            yield "but the machine did not ask to be woken now"
        for one in told:
            books.take(*one)
        for key, ticket in ours.tickets.items():
            tickets[ticket] = theirs.tickets[key]


def _lines(told: list[tuple[Any, ...]]) -> list[str]:
    """The actions of a step, in an order of their own."""
    return sorted(" " * 10 + " ".join(map(str, words)) for words in told)


def smaller(schedule: Schedule) -> Iterator[Schedule]:
    """Schedules with a little less in them."""
    happenings, durations = schedule.happenings, schedule.durations
    half = len(happenings) // 2
    needed = happenings[-1:] if not schedule.arguments["examples"] else ()
    for kept in (happenings[:half] + needed, happenings[half:]):
        if len(kept) < len(happenings):
            yield replace(schedule, happenings=kept)
    for i in range(len(happenings) - len(needed)):
        yield replace(schedule, happenings=happenings[:i] + happenings[i + 1 :])
    workers = schedule.arguments["workers"]
    used = max([workers, *(h.node + 1 for h in happenings)])
    if len(durations) > used:
        yield replace(schedule, durations=durations[:used])
    for name, value in schedule.arguments.items():
        least = {"workers": 1, "batch": 1, "b2": 1, "m": 1, "gba_batch": 1}.get(name, 0)
        for less in sorted({least, value // 2, value - 1}):
            changed = schedule.arguments | {name: less}
            possible = changed.get("lower", 0) <= changed.get("upper", 0) or "upper" not in changed
            if least <= less < value and possible and not (name == "examples" and less == 0):
                yield replace(schedule, arguments=changed)
    if schedule.latency:
        yield replace(schedule, latency=0)
    if schedule.ties:
        yield replace(schedule, ties=0)
    for i, own in enumerate(durations):
        for less in {own[:1], own[: len(own) // 2], (100,)} - {own, ()}:
            yield replace(schedule, durations=(*durations[:i], less, *durations[i + 1 :]))
    for sooner in (lambda at: at // 2, lambda at: max(0, at - 100)):
        if (moved := tuple(replace(h, at=sooner(h.at)) for h in happenings)) != happenings:
            yield replace(schedule, happenings=moved)
    for i, happening in enumerate(happenings):
        for at in {0, happening.at // 2, happening.at // 100 * 100} - {happening.at}:
            one = replace(happening, at=at)
            yield replace(schedule, happenings=(*happenings[:i], one, *happenings[i + 1 :]))


def shrink(difference: Difference, make: Make) -> Difference:
    """The same failure or another, of as small a schedule as is found."""
    tries = 0
    while True:
        for less in smaller(difference.schedule):
            tries += 1
            if found := play(less, make):
                difference = found
                break
            if tries > TRIES:
                return difference
        else:
            return difference


def compare(algorithm: str, seeds: range, seed: int, make: Make) -> Difference | None:
    """The first of the schedules that fails, made small."""
    for i in seeds:
        if found := play(draw(algorithm, f"{seed} {i}"), make):
            return shrink(found, make)
    return None


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedules", type=int, default=100_000, help="of all together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=ALGORITHMS, action="append")
    options = parser.parse_args()
    if not hasattr(core, "PolicyMachine"):
        print("leashed._core has no PolicyMachine: there is nothing to compare the oracles with")
        return 2
    failed = False
    algorithms = options.only or list(ALGORITHMS)
    each = range(-(-options.schedules // len(algorithms)))
    for algorithm in algorithms:
        began = time.monotonic()
        difference = compare(algorithm, each, options.seed, core.PolicyMachine)
        took = time.monotonic() - began
        failed |= difference is not None
        verdict = f"differs\n{difference}\n" if difference else "the same actions"
        print(f"{algorithm:<10} {len(each):>8} schedules {took:6.0f} s  {verdict}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
