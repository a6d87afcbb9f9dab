"""Carries an oracle's actions out on NumPy vectors: what a server and its workers do with floats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from policies.schedules import LONGEST, Cluster, Event, Schedule
from policies.server import Action, Lease
from reference_servers import shat_step

Array = NDArray[np.float64]
Gradient = Callable[[Array, int, int], Array]  # of the parameters, on `count` examples from `first`


class Executor:
    """Plays a schedule with SGD on the server, and keeps every version of the parameters.

    Args:
        schedule: whose oracle decides.
        gradient: of a batch.
        theta: the first parameters.
        eta: learning rate, of the server and of workers with models of their own.
        alpha: of n and c, for the SHAT family, whose workers keep a model, step it by their own
            gradient and mix it with the reply (SHAT, eq. 3); none: gradients are computed on what
            was pulled.
    """

    def __init__(
        self,
        schedule: Schedule,
        gradient: Gradient,
        theta: Array,
        eta: float,
        alpha: Callable[[int, int], float] | None = None,
    ) -> None:
        self.gradient, self.eta, self.alpha = gradient, eta, alpha
        self.versions = [theta]
        self.own: dict[int, Array] = {}  # node → its model
        self.computed: dict[int, Array] = {}  # ticket → gradient
        self.slots: dict[int, Array] = {}
        oracle, cluster = schedule.oracle(), Cluster(schedule)
        count = 0
        while (step := cluster.next()) and count < LONGEST:
            for event in step:
                count += 1
                actions = oracle.on(*event)
                cluster.take(event.now_ns, actions)
                for action in actions:
                    self._carry_out(event, action)

    def _carry_out(self, event: Event, action: Action) -> None:
        if action["kind"] == "hold":
            self.slots[action["slot"]] = self.computed.pop(event.ticket)
        elif action["kind"] == "apply":
            total = np.zeros_like(self.versions[0])
            for slot, weight in action["slots"]:
                total = total + weight * self.slots.pop(slot)
            self.versions.append(self.versions[-1] - self.eta * (total / action["divisor"]))
            assert len(self.versions) - 1 == action["version"]
        elif action["kind"] == "grant":
            self._compute(action)

    def _compute(self, action: Action) -> None:
        lease, node = Lease(*action["lease"]), action["node"]
        pulled = self.versions[action["version"]]
        if self.alpha is None:
            self.computed[lease.ticket] = self.gradient(pulled, lease.first, lease.count)
            return
        alpha = self.alpha(action["n"], action["c"])
        own = self.own.get(node, pulled)
        mixed = shat_step(own, np.zeros_like(own), pulled, self.eta, alpha)
        if not lease.count:  # the answer to the last push
            self.own[node] = mixed
            return
        g = self.gradient(mixed, lease.first, lease.count)
        self.computed[lease.ticket] = g
        self.own[node] = mixed - self.eta * g
