"""The parameter-server algorithms, each the plainest program that does what its paper says.

Written from the papers and docs/readings.md alone, without a look at the C++ machines, which
``compare.py`` holds against them. ``server.py`` says what all share. The docstring of each says what
its paper leaves open and how it is read here.
"""

from __future__ import annotations

import math
from typing import Any

from policies.server import Batch, Server

FRESH = math.inf  # as ι: no gradient is too stale


class Asp(Server):
    """Asynchronous parallel: every gradient is an update, nobody waits (SHAT 2.1; GBA's Async)."""

    def pushed(self, batch: Batch) -> None:
        self.hold(batch)
        self.apply_all()


class Bsp(Server):
    """BSP as in GBA 5.1: every b2 gradients are applied at once, whatever their versions."""

    def __init__(self, b2: int, **shared: int) -> None:
        super().__init__(**shared)
        self.b2 = b2

    def pushed(self, batch: Batch) -> None:
        self.hold(batch)
        if len(self.held) == self.b2:
            self.apply_all()


class HopBw(Server):
    """Hop-BW (GBA 5.1): each round ignores the gradients of the b3 slowest workers.

    A round is complete when at most b3 of the workers that are there have still to contribute, and
    one has. Not when n − b3 gradients have come: were it so, the gradient of a worker that has left
    since would stand for one that is awaited, and at b3 = 0 that one's would be dropped.

    A worker contributes once to a round, also if it leaves and comes back meanwhile. A gradient of
    a round that is over is dropped as a straggler's.
    """

    def __init__(self, b3: int, **shared: int) -> None:
        super().__init__(**shared)
        self.b3 = b3
        self.contributed: set[int] = set()

    def pushed(self, batch: Batch) -> None:
        if batch["version"] < self.version:
            self.actions.append({"kind": "drop", "ticket": batch["ticket"], "why": "straggler"})
            return
        self.hold(batch)
        self.contributed.add(batch["node"])

    def may_start(self, node: int) -> bool:
        return node not in self.contributed

    def close(self) -> None:
        awaited = [node for node in self.members if node not in self.contributed]
        if self.held and len(awaited) <= self.b3:
            self.apply_all()

    def apply_all(self) -> None:
        super().apply_all()
        self.contributed = set()


class Sync(HopBw):
    """The barrier (SHAT 3.1, Figure 2a): the mean over all workers that are there, staleness 0.

    The number of gradients in a mean follows the number of workers: the divisor is how many there
    are, and a barrier is one of those who are there.
    """

    def __init__(self, **shared: int) -> None:
        super().__init__(b3=0, **shared)


class Ssp(Server):
    """SSP(s): clocks are gradients pushed.

    Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server",
    NIPS 2013: a worker at clock c has seen all updates up to clock c − s − 1, so it may start when
    the slowest worker's clock is at least c − s. Only the abstract, and what public projects say of
    it, could be read here; the formula is as remembered. So whoever computes is at most s ahead,
    s = 0 is a barrier of clocks, and who has just pushed may be s + 1 ahead, and waits.

    A worker that comes, or comes back, starts at the slowest clock: from 0 it would stop all others.
    """

    def __init__(self, s: int, **shared: int) -> None:
        super().__init__(**shared)
        self.s = s
        self.clock = dict.fromkeys(self.members, 0)

    def slowest(self) -> int:
        return min(self.clock.values(), default=0)

    def ahead(self, node: int) -> int:
        return self.clock[node] - self.slowest()

    def pushed(self, batch: Batch) -> None:
        self.clock[batch["node"]] += 1
        self.hold(batch)
        self.apply_all()

    def may_start(self, node: int) -> bool:
        return self.ahead(node) <= self.s

    def joined(self, node: int) -> None:
        self.clock[node] = self.slowest()

    def left(self, node: int) -> None:
        del self.clock[node]


class HopBs(Ssp):
    """Hop-BS (GBA 5.1): the gap of clocks is at most b1, over a buffer of m gradients a step.

    The paper says the first alone. Its Table 3 has a staleness of 0.03 to 0.06, at most 2 = b1, in the
    unit in which GBA has 0.12 to 0.21: steps of many gradients, not updates of one each.
    """

    def __init__(self, b1: int, m: int, **shared: int) -> None:
        super().__init__(s=b1, **shared)
        self.m = m

    def pushed(self, batch: Batch) -> None:
        self.clock[batch["node"]] += 1
        self.hold(batch)
        if len(self.held) == self.m:
            self.apply_all()


class Dssp(Ssp):
    """DSSP(lower, upper): SSP whose bound is chosen anew, between two, from the times of pushes.

    Zhao, An, Liu and Chen, "Dynamic Stale Synchronous Parallel Distributed Training for Deep
    Learning", ICDCS 2019, Algorithms 1 and 2, from the abstract, a summary and an implementation in
    public repositories; the paper itself could not be read here, so this is not verified. At a push:

    1. Has the worker extra iterations left, one is used up, and it goes on.
    2. Else it goes on if it is at most ``lower`` ahead of the slowest.
    3. Else, if none is ahead of it, the controller chooses r*, how many extra iterations it gets;
       the first of them begins now.
    4. Else, or with r* = 0, it waits until it is at most ``lower`` ahead.

    The controller: with the worker's last interval between pushes I, its next pushes fall at
    now + r·I; those of the slowest at its last one + k·its last interval, k ≥ 1. r* is the r at
    which the worker is closest to one of these, the smaller of two equally close.

    Read here: r and k − 1 go to what is left up to ``upper``, so that it is never exceeded, also
    when the controller is asked again before anybody waited; of several slowest workers the lowest
    node is looked at; before either has pushed twice r* = 0.
    """

    def __init__(self, lower: int, upper: int, **shared: int) -> None:
        super().__init__(s=lower, **shared)
        self.upper = upper
        self.pushes: dict[int, list[int]] = {node: [] for node in self.members}
        self.extra = dict.fromkeys(self.members, 0)
        self.goes_on: set[int] = set()  # who may start whatever the clocks say

    def pushed(self, batch: Batch) -> None:
        super().pushed(batch)
        node = batch["node"]
        self.pushes[node].append(self.now_ns)
        self.goes_on.discard(node)
        if self.extra[node] > 0:
            self.extra[node] -= 1
            self.goes_on.add(node)
        elif self.ahead(node) > self.s and self.clock[node] == max(self.clock.values()):
            self.extra[node] = self.controller(node)
            if self.extra[node] > 0:
                self.extra[node] -= 1
                self.goes_on.add(node)

    def controller(self, node: int) -> int:
        slow = min(w for w in self.members if self.clock[w] == self.slowest())
        left = self.upper - self.ahead(node) + 1
        if left <= 0 or len(self.pushes[node]) < 2 or len(self.pushes[slow]) < 2:
            return 0
        before, last = self.pushes[node][-2:]
        own = [last + r * (last - before) for r in range(left + 1)]
        before, last = self.pushes[slow][-2:]
        its = [last + k * (last - before) for k in range(1, left + 2)]
        apart = [min(abs(mine - other) for other in its) for mine in own]
        return apart.index(min(apart))

    def may_start(self, node: int) -> bool:
        return node in self.goes_on or super().may_start(node)

    def joined(self, node: int) -> None:
        super().joined(node)
        self.pushes[node] = []
        self.extra[node] = 0

    def left(self, node: int) -> None:
        super().left(node)
        self.goes_on.discard(node)


class Gba(Server):
    """GBA (4.1, eq. 1): M gradients an update, those of tokens more than ι behind left out.

    Token of batch i: ⌊i/M⌋ (docs/readings.md#gba). k, the global step, counts full buffers, also those of
    which nothing is kept; these make no update, so k may be ahead of the version. The mean is over
    those kept, or, with ``divide_by_m``, their sum is divided by M, also by who leaves out more.
    """

    def __init__(self, m: int, iota: float, divide_by_m: bool = False, **shared: int) -> None:
        super().__init__(**shared)
        self.m = m
        self.iota = iota
        self.divide_by_m = divide_by_m
        self.k = 0

    def token(self) -> int:
        return self.number // self.m

    def step(self) -> int:
        return self.k

    def decay(self, token: int) -> int:
        """Eq. 1's f."""
        return 0 if self.k - token > self.iota else 1

    def pushed(self, batch: Batch) -> None:
        self.hold(batch)
        if len(self.held) == self.m:
            self.flush()

    def flush(self) -> None:
        kept = [batch for batch in self.held if self.decay(batch["token"]) == 1]
        for batch in self.held:
            if batch not in kept:
                self.actions.append({"kind": "drop", "ticket": batch["ticket"], "why": "stale"})
        if kept:
            self.apply(kept, self.m if self.divide_by_m else len(kept))
        self.held = []
        self.k += 1


class Shat(Server):
    """SHAT's server (Algorithm 1, lines 10 to 25), SHAT-root's and ENSEMBLE's alike.

    The reply to a push is sent at once (line 22): the new parameters, n, c of the sender before it
    is zeroed, and its next batch. The first batch is pulled, with c = 0, as is every worker's that
    comes. Who finds no batch is answered when there is one, or at the end of the data when there is
    none any more, with its c and the parameters of then: line 8 follows each push. What the worker makes of n and c is ``reference_servers.shat_alpha``.
    """

    def __init__(self, **shared: int) -> None:
        super().__init__(**shared)
        self.c = dict.fromkeys(self.members, 0)
        self.told = dict.fromkeys(self.members, 0)

    def pushed(self, batch: Batch) -> None:
        i = batch["node"]
        for k in self.c:
            if k != i:
                self.c[k] += 1
        self.hold(batch)
        self.apply_all()
        self.told[i] = self.c[i]
        self.c[i] = 0
        self.parked.append(i)

    def keeps_models(self) -> bool:
        return True

    def answer(self, node: int) -> dict[str, int]:
        return {"n": len(self.members), "c": self.told[node]}

    def joined(self, node: int) -> None:
        self.c[node] = 0
        self.told[node] = 0

    def left(self, node: int) -> None:
        del self.c[node]
        del self.told[node]


class Easgd(Server):
    """EASGD with a server (ShadowSync, Algorithm 2): a push exchanges models, and is answered at once.

    The reply is the server's model as this exchange has left it, with the sender's next batch. Who
    finds no batch is answered when there is one, or at the end, with the model of then. How many
    steps a batch is cut into is the worker's affair.
    """

    def __init__(self, alpha: float, gap: int, **shared: int) -> None:
        super().__init__(**shared)
        self.alpha = alpha
        self.gap = gap

    def pushed(self, batch: Batch) -> None:
        self.version += 1
        told = {"node": batch["node"], "ticket": batch["ticket"], "version": self.version}
        self.actions.append({"kind": "exchange", "alpha": self.alpha} | told)
        self.parked.append(batch["node"])

    def keeps_models(self) -> bool:
        return True


SYNC, GBA = 0, 1  # what the command asks for


class Switching(Gba):
    """Live switching (GBA, section 1) between Sync and GBA, over one list of data.

    ``batch`` is Sync's size of a batch, ``gba_batch`` GBA's; the global batch stays what it was
    where M·gba_batch = workers·batch. It begins in Sync.

    - To Sync: batches are granted only until held and out are together a multiple of M; so the last
      buffer closes full, with nothing out. Then Sync goes on where GBA stopped.
    - To GBA: the round of Sync that has begun is completed first. Tokens go on from k: of the j-th
      batch since then k + ⌊j/M⌋; the first of them are those that Sync got back and has not handed
      out again.
    - The other command in between calls it off.
    """

    def __init__(self, gba_batch: int, **gba: Any) -> None:
        super().__init__(**gba)
        self.sizes = {SYNC: self.batch, GBA: gba_batch}
        self.mode = self.wanted = SYNC
        self.contributed: set[int] = set()
        self.base = (0, 0)  # step and number at which GBA began

    def commanded(self, argument: int) -> None:
        self.wanted = argument

    def token(self) -> int:
        if self.mode == SYNC:
            return self.k
        step, number = self.base
        return step + (self.number - number) // self.m

    def pushed(self, batch: Batch) -> None:
        if self.mode == GBA:
            super().pushed(batch)
        else:
            self.hold(batch)
            self.contributed.add(batch["node"])

    def may_start(self, node: int) -> bool:
        if self.mode == SYNC:
            return node not in self.contributed
        return self.wanted == GBA or (len(self.held) + len(self.out)) % self.m != 0

    def close(self) -> None:
        if self.mode == SYNC and self.held and self.members <= self.contributed:
            self.flush()
        if self.mode != self.wanted and not self.held and not self.out:
            self.mode = self.wanted
            self.batch = self.sizes[self.mode]
            self.base = (self.k, self.number - len(self.returned))
            for j, batch in enumerate(self.returned):
                batch["token"] = self.k + j // self.m

    def flush(self) -> None:
        if self.mode == GBA:
            super().flush()
        else:
            self.apply_all()
            self.k += 1
            self.contributed = set()
