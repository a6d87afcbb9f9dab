"""Trainers of one process, each of which trains all batches, without a master."""

from __future__ import annotations

import contextlib
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import leashed as lsh
from leashed import _core
from leashed.cluster.collectives import BACKENDS
from leashed.cluster.meeting import Collective, Meeting, all_gather
from leashed.sync import Synchroniser

DATA = lsh.datasets.synthetic_digits(n=2000, seed=0).train
MODEL = lsh.models.mlp(784, [64, 64], 10)
D = MODEL.dimension
LENGTHS = [min(D - at, _core.FRAGMENT) for at in range(0, D, _core.FRAGMENT)]


def ring(members: int) -> list[tuple[socket.socket, socket.socket]]:
    """Each member's connections with the one before it and the one behind."""
    pairs = [socket.socketpair() for _ in range(members)]
    return [(pairs[rank - 1][1], pairs[rank][0]) for rank in range(members)]


def all_with_all(members: int) -> list[list[int]]:
    """Each member's sockets with all others, by rank, and -1 in its own place."""
    links = [[-1] * members for _ in range(members)]
    for one in range(members):
        for other in range(one):
            pair = socket.socketpair()
            links[one][other], links[other][one] = (each.detach() for each in pair)
    return links


def meet(backend: str, members: int, epoch: int = 1, timeout: float = 20.0) -> list[Collective]:
    """Each member's collectives of one epoch."""

    def one(rank: int, behind: socket.socket, ahead: socket.socket) -> Collective:
        with behind, ahead:
            gather = partial(all_gather, behind, ahead, rank=rank, members=members, timeout=timeout)
            return BACKENDS[backend].meet(
                Meeting(rank, members, epoch, "127.0.0.1", timeout, gather)
            )

    with ThreadPoolExecutor(members) as pool:
        links = ring(members)
        return list(pool.map(one, range(members), *zip(*links, strict=True)))


@dataclass
class Run:
    """In the place of a cluster."""

    synchronisers: list[Synchroniser | None]
    server: _core.SyncServer = field(
        default_factory=lambda: _core.SyncServer(list(enumerate(LENGTHS)))
    )
    natives: list[_core.TrainerSync | None] = field(default_factory=list)
    collectives: list[Collective] | None = None  # in place of the own ring
    direct: bool = False  # in place of the own ring
    timeout: float = 60.0
    epochs: int = 4

    def train(self, discipline: lsh.Discipline | None = None) -> list[lsh.TrainResult]:
        self.natives = [self._native(each) for each in self.synchronisers]
        if not any(each is None or each.SERVERS for each in self.synchronisers):
            self._form_ring()
        results: list[lsh.TrainResult | None] = [None] * len(self.natives)

        def work(index: int) -> None:
            results[index] = lsh.train(
                MODEL,
                DATA,
                until=lsh.Until(epochs=self.epochs),
                discipline=discipline or lsh.Leashed(),
                rule=lsh.SGD(0.05),
                batch_size=16,
                threads=1,
                seed=index,
                cluster=Place(self, index, self.synchronisers[index]),
            )

        threads = [threading.Thread(target=work, args=(k,)) for k in range(len(results))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [each for each in results if each is not None]

    def _native(self, synchroniser: Synchroniser | None) -> _core.TrainerSync | None:
        if synchroniser is None:
            return None
        gaps = synchroniser.when.gaps
        native = _core.TrainerSync(
            machine=synchroniser.choice(),
            pace=synchroniser.when.kind,
            starts=list(gaps),
            gaps=list(gaps.values()),
            dimension=D,
            owner=[0] * len(LENGTHS),
            servers=1,
            parts=synchroniser.parts,
            timeout=self.timeout,
            custom=synchroniser.custom(),
            workers=1,
            compression=synchroniser.compression,
        )
        for slot in range(native.slots):
            here, there = socket.socketpair()
            ends = [threading.Thread(target=self.server.adopt, args=(there.detach(), False, "tcp"))]
            ends[0].start()
            native.adopt(slot, 0, here.detach(), False, "tcp")
            ends[0].join()
        return native

    def _form_ring(self) -> None:
        count = len(self.natives)
        if self.collectives is not None:
            for rank, collective in enumerate(self.collectives):
                self.natives[rank].form_over(1, rank, [True] * count, collective)
            return
        if self.direct:
            for rank, links in enumerate(all_with_all(count)):
                self.natives[rank].form_direct(1, rank, [True] * count, links, False, "tcp")
            return
        for rank, (behind, ahead) in enumerate(ring(count)):
            links = behind.detach(), ahead.detach()
            self.natives[rank].form(1, rank, [True] * count, *links, False, "tcp")


@dataclass
class Place(contextlib.AbstractContextManager):
    """A trainer's in a ``Run``, and its session."""

    run: Run
    index: int
    sync: Synchroniser | None = None
    cut_short: str | None = None
    rows: None = None
    wants: bool = False
    output: None = None

    def session(self, *_: object, total: int | None, **__: object) -> Place:
        assert total is not None
        self.leases = _core.Leases()
        self.leases.give(1, 0, total)
        self.leases.end(total)
        self.native = self.run.natives[self.index]
        return self

    def finish(self, *_: object) -> dict[str, float]:
        return self.metrics()

    def metrics(self) -> dict[str, float]:
        return {} if self.native is None else self.native.counters()

    def close(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass
