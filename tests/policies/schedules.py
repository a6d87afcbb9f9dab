"""Random schedules of a virtual cluster, and the events that come of them.

A schedule says how fast each worker is and what befalls whom. Pushes and pulls are made from what
the algorithm answers: who is granted a batch pushes later, then pulls. Events of one moment come
in one order, pushes before pulls and both before what only time brings; who leaves, comes, commands or
ends the data is between pushes and pulls.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from policies import oracles
from policies.server import Action, Lease, Server

ORDER = ("push", "leave", "join", "command", "data_end", "pull", "wake")
LONGEST = 1500  # events of a schedule that does not end by itself: somebody's leases may always end


@dataclass(frozen=True)
class Algorithm:
    """An algorithm, and how its own arguments are drawn."""

    oracle: Callable[..., Server]
    own: Callable[[random.Random, int], dict[str, Any]]  # of the number of workers
    replies: bool = False  # a push is answered at once
    tokens: bool = False
    commands: bool = False


def _nothing(_rng: random.Random, _workers: int) -> dict[str, Any]:
    return {}


def _bound(name: str) -> Callable[[random.Random, int], dict[str, Any]]:
    return lambda rng, _: {name: rng.choice([0, 0, 1, 2, 3, 5])}


def _gba(rng: random.Random, workers: int) -> dict[str, Any]:
    return {
        "m": rng.choice([1, 2, 3, workers, workers, workers, 2 * workers]),
        "iota": rng.choice([0, 0, 1, 1, 2, 4, 1000]),
        "divide_by_m": rng.choice([0, 0, 1]),
    }


def _hop_bs(rng: random.Random, workers: int) -> dict[str, Any]:
    return _bound("b1")(rng, workers) | {"m": rng.choice([1, 2, 3, workers, workers, 2 * workers])}


def _dssp(rng: random.Random, _workers: int) -> dict[str, Any]:
    lower = rng.choice([0, 1, 2, 3])
    return {"lower": lower, "upper": lower + rng.choice([0, 1, 2, 4, 12])}


ALGORITHMS = {
    "sync": Algorithm(oracles.Sync, _nothing),
    "bsp": Algorithm(oracles.Bsp, lambda rng, workers: {"b2": rng.choice([1, 2, 3, workers])}),
    "asp": Algorithm(oracles.Asp, _nothing),
    "ssp": Algorithm(oracles.Ssp, _bound("s")),
    "dssp": Algorithm(oracles.Dssp, _dssp),
    "hop_bs": Algorithm(oracles.HopBs, _hop_bs),
    "hop_bw": Algorithm(oracles.HopBw, _bound("b3")),
    "gba": Algorithm(oracles.Gba, _gba, tokens=True),
    "shat": Algorithm(oracles.Shat, _nothing, replies=True),
    "shat_root": Algorithm(oracles.Shat, _nothing, replies=True),
    "ensemble": Algorithm(oracles.Shat, _nothing, replies=True),
    "easgd": Algorithm(
        oracles.Easgd,
        lambda rng, _: {"alpha": rng.choice([0.25, 0.5]), "gap": rng.choice([1, 3])},
        replies=True,
    ),
    "switching": Algorithm(
        oracles.Switching,
        lambda rng, workers: _gba(rng, workers) | {"gba_batch": rng.randint(1, 4)},
        tokens=True,
        commands=True,
    ),
}


class Event(NamedTuple):
    """As ``on`` takes it."""

    kind: str
    now_ns: int
    node: int
    ticket: int = 0
    version: int = 0
    argument: int = 0

    def __str__(self) -> str:
        told = {
            "push": f" ticket {self.ticket}, version {self.version}",
            "command": f" {self.argument}",
        }.get(self.kind, "")
        who = "" if self.kind in {"wake", "command", "data_end"} else f" by {self.node}"
        return f"{self.now_ns:>8} {self.kind}{who}{told}"


@dataclass(frozen=True)
class Happening:
    """What befalls a worker, or all.

    ``leave``: told at once, with its work lost; ``vanish``: told at once, but its push still comes;
    ``crash``: not told; ``return``: joins if it is not there; ``command`` and ``data_end``.
    """

    at: int
    kind: str
    node: int = 0
    argument: int = 0


@dataclass(frozen=True)
class Schedule:
    """All that makes a run what it is."""

    algorithm: str
    arguments: dict[str, Any]
    durations: tuple[tuple[int, ...], ...]  # of each node, over and over, from grant to push
    happenings: tuple[Happening, ...] = ()
    latency: int = 0  # from push to pull
    ties: int = 0  # seed of the order of equal events; 0: as they arose

    def oracle(self) -> Server:
        return ALGORITHMS[self.algorithm].oracle(**self.arguments)

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        lines = [f"{self.algorithm}({given})  latency {self.latency}, ties {self.ties}"]
        lines += [f"  node {i}: {', '.join(map(str, d))}" for i, d in enumerate(self.durations)]
        lines += [f"  {h.at:>8} {h.kind} {h.node} {h.argument}" for h in self.happenings]
        return "\n".join(lines)


@dataclass
class _Worker:
    life: int = 0  # counts its comings and goings; what an earlier life would have done is void
    there: bool = False
    silent: bool = False  # crashed, and nobody was told
    asks: bool = True  # it will pull next
    ended: bool = False
    batches: int = 0


class Cluster:
    """Plays a schedule: ``next`` gives the events of a step, ``take`` hears what was answered."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.spec = ALGORITHMS[schedule.algorithm]
        self.rng = random.Random(schedule.ties)
        self.workers = [_Worker() for _ in schedule.durations]
        self.heap: list[Any] = []
        self.count = 0
        self.adrift: set[int] = set()  # tickets of pushes that come though their worker has gone
        self.woken: set[int] = set()
        for node in range(schedule.arguments["workers"]):
            self.workers[node].there = True
            self._add(0, "pull", node)
        for happening in schedule.happenings:
            self._add(happening.at, happening.kind, happening.node, argument=happening.argument)

    def _add(self, at: int, kind: str, node: int, **told: int) -> None:
        life = told.pop("life", self.workers[node].life)
        order = ORDER.index({"vanish": "leave", "crash": "leave", "return": "join"}.get(kind, kind))
        tie = self.rng.random() if self.schedule.ties else 0
        self.count += 1
        heapq.heappush(self.heap, (at, order, tie, self.count, kind, node, life, told))

    def next(self) -> list[Event]:
        """The events of the next step; none when nothing will happen any more."""
        while self.heap:
            at, _, _, _, kind, node, life, told = heapq.heappop(self.heap)
            if step := self._step(at, kind, node, life, told):
                return step
        return []

    def _step(self, at: int, kind: str, node: int, life: int, told: dict[str, int]) -> list[Event]:
        worker = self.workers[node]
        if kind == "push":
            event = Event("push", at, node, told["ticket"], told["version"])
            if life != worker.life:
                return [event] if told["ticket"] in self.adrift else []
            if self.spec.replies:
                return [event, Event("pull", at, node)]
            worker.asks = True
            self._add(at + self.schedule.latency, "pull", node)
            return [event]
        if kind == "pull":
            if life != worker.life or not worker.there:
                return []
            worker.asks = False
            return [Event("pull", at, node)]
        if kind in {"leave", "vanish", "crash"}:
            return self._goes(at, kind, node)
        if kind == "return":
            return self._returns(at, node)
        return [Event(kind, at, 0, argument=told.get("argument", 0))]

    def _goes(self, at: int, kind: str, node: int) -> list[Event]:
        worker = self.workers[node]
        if kind == "leave" and worker.silent:
            worker.silent = False
            return [Event("leave", at, node)]
        if not worker.there or worker.ended:
            return []
        if kind == "vanish":
            self.adrift.update(
                told["ticket"]
                for _, _, _, _, what, whose, life, told in self.heap
                if what == "push" and whose == node and life == worker.life
            )
        # Who holds nothing and waits for nothing can only be missed by whoever tells of it.
        worker.silent = kind == "crash" and not worker.asks
        worker.there = False
        worker.life += 1
        return [] if worker.silent else [Event("leave", at, node)]

    def _returns(self, at: int, node: int) -> list[Event]:
        worker = self.workers[node]
        if worker.there:
            return []
        if worker.silent:
            self._add(at, "leave", node)
            self._add(at, "return", node)
            return []
        worker.life += 1
        worker.there, worker.ended, worker.asks = True, False, True
        self._add(at + self.schedule.latency, "pull", node)
        return [Event("join", at, node)]

    def take(self, now: int, actions: list[Action]) -> None:
        """Grants become pushes, wake-ups events."""
        for action in actions:
            if action["kind"] == "grant" and Lease(*action["lease"]).count:
                node = action["node"]
                worker = self.workers[node]
                durations = self.schedule.durations[node]
                lasts = durations[worker.batches % len(durations)]
                worker.batches += 1
                self._add(
                    now + lasts,
                    "push",
                    node,
                    ticket=Lease(*action["lease"]).ticket,
                    version=action["version"],
                    # A grant to one who is not there any more is lost.
                    life=worker.life if worker.there else -1,
                )
            elif action["kind"] == "wake" and action["at"] not in self.woken:
                self.woken.add(action["at"])
                self._add(action["at"], "wake", 0)
            elif action["kind"] == "end":
                self.workers[action["node"]].ended = True

    def waiting(self) -> list[int]:
        """Who is there and was not told the end."""
        return [i for i, worker in enumerate(self.workers) if worker.there and not worker.ended]


def _speeds(rng: random.Random, nodes: int) -> list[tuple[int, ...]]:
    """Equal, nearly equal, exponential, with a heavy tail, or with one that is slow."""
    kind = rng.choice(["equal", "few", "uniform", "exponential", "tail", "slow", "rates"])
    rates = [rng.uniform(0.3, 3) for _ in range(nodes)]

    def one(node: int) -> int:
        if kind == "equal":
            return 100
        if kind == "few":
            return 100 * rng.randint(1, 3)
        if kind == "uniform":
            return rng.randint(50, 150)
        if kind == "exponential":
            return 1 + int(rng.expovariate(0.01))
        if kind == "tail":
            return min(int(40 * rng.paretovariate(1.1)), 20_000)
        if kind == "slow":
            return 100 * (rng.choice([2, 10, 100]) if node == nodes - 1 else 1)
        return 1 + int(rng.expovariate(0.01) / rates[node])

    return [tuple(one(i) for _ in range(rng.randint(1, 10))) for i in range(nodes)]


def draw(algorithm: str, seed: str) -> Schedule:
    """A schedule by its seed."""
    rng = random.Random(f"{algorithm} {seed}")
    spec = ALGORITHMS[algorithm]
    workers = rng.choice([1, 2, 2, 3, 3, 4, 5, 6, 8])
    nodes = workers + rng.choice([0, 0, 1, 2])
    durations = _speeds(rng, nodes)
    mean = sum(map(sum, durations)) // sum(map(len, durations))
    batch = rng.randint(1, 4)
    batches = rng.randint(1, 15 * workers)
    endless = rng.random() < 0.5
    arguments = {
        "workers": workers,
        "batch": batch,
        "examples": 0 if endless else rng.randint((batches - 1) * batch + 1, batches * batch),
        "term_ns": rng.choice([0, 0, 1, 2, 5]) * mean,
    } | spec.own(rng, workers)
    horizon = max(100, mean * batches // workers)

    def moment() -> int:
        return (
            100 * rng.randint(0, horizon // 100) if rng.random() < 0.5 else rng.randint(0, horizon)
        )

    happenings = []
    kinds = ["leave", "vanish", "return", "return"] + ["crash"] * (arguments["term_ns"] > 0)
    for _ in range(rng.choice([0, 0, 1, 2, 4, 8])):
        happenings.append(Happening(moment(), rng.choice(kinds), rng.randrange(nodes)))
    if spec.commands:
        for _ in range(rng.randint(1, 6)):
            wanted = rng.choice([oracles.SYNC, oracles.GBA, oracles.GBA])
            happenings.append(Happening(moment(), "command", argument=wanted))
    if endless:
        happenings.append(Happening(horizon, "data_end"))
    elif rng.random() < 0.2:
        happenings.append(Happening(moment(), "data_end"))
    return Schedule(
        algorithm,
        arguments,
        tuple(durations),
        tuple(sorted(happenings, key=lambda h: h.at)),
        latency=rng.choice([0, 0, 0, 1, 30]),
        ties=rng.choice([0, rng.randint(1, 10**6)]),
    )
