"""The role ``policy-ps``: a server that leads a mode of training (docs/modes.md).

It holds the parameters and the mode's data list: trainers pull and push, and are told what to train on.
To the master it is who leases all batches, and tells how many of them its mode is done with.
"""

from __future__ import annotations

import math
import socket
import time
from typing import TYPE_CHECKING, Any, cast

from leashed import _core
from leashed.cluster import commanding, fingerprint
from leashed.cluster.commanding import Commanded
from leashed.cluster.lives import SLOTS, boot
from leashed.cluster.member import Member
from leashed.cluster.messages import Epoch, Lease
from leashed.cluster.mode_table import BEHIND
from leashed.cluster.opening import Peer
from leashed.cluster.server_tending import POLICY
from leashed.cluster.serving import Place, accepting, making, over
from leashed.training import request
from leashed.training.led_mode import LedMode, numbered

if TYPE_CHECKING:
    from leashed.cluster.plan import Plan
    from leashed.sync import Cluster

__all__ = ["led_by", "run", "serve"]

_ENDLESS = 1 << 31  # batches, and the most that are asked for at once


def run(plan: Plan, index: int) -> None:
    """The role as a plan describes it, until the run has ended.

    Raises:
        OSError: the data cannot be read, or the master not be reached.
        ValueError: the run is another, or the mode can go on no more.
    """
    problem = plan.problem()
    led = led_by(plan, problem)
    told = fingerprint.of_model(problem.model)
    serve(led, index, Place.of(plan, "policy-ps", index), told)


def led_by(plan: Plan, problem: Any) -> LedMode:
    """The mode of a plan's training, with the parameters that it begins with.

    Raises:
        TypeError, ValueError: the training asks for what does not go together.
    """
    train = plan.train
    asked = request.of(
        problem.model,
        problem.train,
        until=train.until(None),
        **train.how(problem),
        cluster=cast("Cluster", Trainers(plan.cluster.trainers)),
    )
    return asked.led(asked.source(1))


class Trainers:
    """Of a run by a mode what says how many workers there are."""

    policy_servers = 1
    sync = None

    def __init__(self, trainers: int) -> None:
        self.trainers = trainers

    def session(self) -> None:
        """Nobody takes part by this."""


def serve(led: LedMode, index: int, place: Place, told: dict[str, str]) -> None:
    """Lead a mode until the run has ended.

    Args:
        led: which.
        index: of the server.
        place: where it has its run.
        told: what else all of the run must have alike, as far as it is known.

    Raises:
        ValueError: the run is another, no server leads the mode, or it can go on no more.
        OSError: the master cannot be reached (any more).
    """
    words = {
        **told,
        **fingerprint.of_server(len(led.theta)),
        **fingerprint.of_mode(led),
        **fingerprint.of_servers({"policy-ps": 1}),
    }
    with making() as made:
        trainers = accepting(made, POLICY, place.transport)
        commanded = Commanded(made, led.is_done)

        def accept(link: socket.socket, peer: Peer) -> None:
            (commanded.accept if peer.purpose == commanding.PURPOSE else trainers)(link, peer)

        with place.joined("policy-ps", index, accept, words) as (member, heard):
            name = member.welcome.run
            server = led.server(numbered(name), boot())
            made.set_result((name, server))
            leases, commands = Leased(member, led), Commands(led, commanded)

            def told_by_master(event: object) -> None:
                if isinstance(event, Lease):
                    leases.given(event)
                elif isinstance(event, Epoch):
                    _let_go(server, event, led.trainers)

            while not over(heard, member, name, other=told_by_master):
                standing = server.standing()
                if standing["failure"]:
                    raise ValueError(f"the mode can go on no more: {standing['failure']}")
                counted = server.counters()
                commands.tell(server, began=counted["grants"] > 0)
                metrics = {**_told(standing, counted), **commanded.counters()}
                member.report(metrics, leases.used(standing["done"]))


def _let_go(server: _core.PolicyServer, epoch: Epoch, trainers: int) -> None:
    """Whoever is no trainer of the run any more has no batches: he is gone, or hangs."""
    there = {seat.index for seat in epoch.members}
    for index in range(trainers):
        if index not in there:
            server.let_go(index * SLOTS, SLOTS)


def _told(standing: dict[str, Any], counted: dict[str, float]) -> dict[str, float]:
    """What the report of a run has of it."""
    names = ("applied", "stale", "late", "straggler", "missing", "exchanges", "updates")
    tokens = [int(count) for count in standing["data_staleness"]]
    return {
        **{name: float(value) for name, value in counted.items()},
        **{f"mode_{name}": float(standing[name]) for name in names},
        "mode_pushed": float(sum(map(int, standing["worker_examples"]))),
        "mode_data_staleness": float(sum(step * count for step, count in enumerate(tokens))),
        "mode_data_gradients": float(sum(tokens)),
        **_octaves(tokens),
    }


def _octaves(counts: list[int]) -> dict[str, float]:
    """Of counts by steps those of 0, 1, 2 to 3, 4 to 7, ..., where there are some, by the first of each."""
    found = {f"{BEHIND}0": float(sum(counts[:1]))}
    first = 1
    while first < len(counts):
        if some := sum(counts[first : 2 * first]):
            found[f"{BEHIND}{first}"] = float(some)
        first *= 2
    return found


class Leased:
    """All batches of the run, which the master leases to whoever leads it.

    Args:
        member: asks for them.
        led: the mode.
    """

    def __init__(self, member: Member, led: LedMode) -> None:
        self._member = member
        self._size = led.batch_size
        self._wanted = _ENDLESS if led.batches is None else led.batches
        self._held: dict[int, int] = {}  # batches of leases that are not complete, by ticket
        self._told = 0  # batches of those that are
        member.want(min(self._wanted, _ENDLESS))

    def given(self, lease: Lease) -> None:
        """The master has granted it."""
        self._held[lease.ticket] = lease.count
        self._wanted -= lease.count
        if self._wanted > 0:
            self._member.want(min(self._wanted, _ENDLESS))

    def used(self, examples: int) -> list[tuple[int, int]]:
        """Of each lease that was not complete when this was called last, its ticket, and how many of its
        batches the mode is done with, where so many examples are.
        """
        done, found = examples // self._size - self._told, []
        for ticket, count in list(self._held.items()):
            used = min(count, done)
            found.append((ticket, used))
            done -= used
            if used == count:
                del self._held[ticket]
                self._told += count
        return found


class Commands:
    """What the mode is told of itself, each once its time has come since the first grant.

    Args:
        led: the mode.
        commanded: tells it.
    """

    def __init__(self, led: LedMode, commanded: Commanded) -> None:
        self._commanded = commanded
        self._left = sorted(led.commands)
        self._began = math.nan

    def tell(self, server: _core.PolicyServer, *, began: bool) -> None:
        """Whatever is due; ``began``: whether there has been a grant."""
        if math.isnan(self._began) and began:
            self._began = time.monotonic()
        while self._left and time.monotonic() - self._began >= self._left[0][0]:
            _, argument = self._left.pop(0)
            self._commanded.tell(server, argument, "its own schedule")
