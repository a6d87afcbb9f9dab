"""A mode whose server is another process: what that is made from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.base.choice import Choice, from_json, to_json
from leashed.models.tables import SHARDS as OF_TABLES
from leashed.modes import COMMANDS
from leashed.training.defaults import MAX_THREADS
from leashed.training.recordings import Servers

__all__ = [
    "COMMANDS",
    "SHARDINGS",
    "SHARDS",
    "Journal",
    "LedMode",
    "check_recorded",
    "check_reduced",
    "lanes_of",
    "numbered",
]

SHARDINGS = ("layerwise", "memorywise", "packed")
"""How parameters are spread over several servers (``leashed.simulation.layerwise`` and the others)."""
SHARDS = "memorywise"
"""Which of these, where nobody says."""

_BITS = 64


class Journal(NamedTuple):
    """To which the first of several policy servers writes what it hears.

    Attributes:
        path: what the names of its files begin with.
        line: the first line that is not in what the server goes on from.
        again: how many processes of the server there were before; where there were any it goes on from the
            journal.
    """

    path: str
    line: int
    again: int


@dataclass(frozen=True, eq=False)
class LedMode:
    """A mode, for its policy server and for its trainers, who must have it alike.

    Attributes:
        mode: with workers, batch size and examples; for the core, as the next two.
        rule: by which its server makes updates.
        staleness: by which it damps gradients.
        theta: what the parameters begin with, float32 [d], as they are trained.
        block_ends: where their variables end.
        workers: of all trainers together, those by which threads look ahead among them.
        trainers: how many there are.
        batch_size: examples of a batch.
        batches: of the whole run; None: without end.
        commands: when, in seconds, and what the mode is told.
        model: what is trained, as files describe it.
        config: what a result says was asked for, as JSON's own types, with all workers as threads.
        passed: seconds of the commands' time that were over when the run began, which goes on.
        record: a file that takes what its server hears, and the header that it begins with; None: none.
        shards: of several servers the parameters that each has, as [begin, end) of the vector. Default: one
            has all.
        tables: whose rows its servers have too: of each name, floats of a row, and rows, or 0 where it grows.
        owners: of each of these the one of several servers that has all of it, or -1: its rows are spread.
            Default: one has all.
        reduces: whether workers sum among themselves while the mode is in Sync.
        updates: so many, of the first server, end the run. None: their number ends nothing.
        order: of a model of sparse rows, of each parameter as it is trained its place in the model. None: they
            are as the model has them.
    """

    mode: Choice
    rule: Choice
    staleness: Choice
    theta: NDArray[np.float32]
    block_ends: Sequence[int]
    workers: int
    trainers: int
    batch_size: int
    batches: int | None
    commands: Sequence[tuple[float, int]] = ()
    model: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    passed: float = 0.0
    record: tuple[str, str] | None = None
    tables: Sequence[tuple[str, int, int]] = ()
    owners: Sequence[int] = ()
    reduces: bool = False
    shards: Sequence[Sequence[tuple[int, int]]] = ()
    updates: int | None = None
    order: NDArray[np.int64] | None = None

    def in_model(self, parameters: NDArray[np.float32]) -> NDArray[np.float32]:
        """Parameters of one server as the model has them."""
        if self.order is None:
            return parameters
        found = np.empty_like(parameters)
        found[self.order] = parameters
        return found

    @property
    def examples(self) -> int:
        """Of all batches, of which the last may have fewer; 0: without end."""
        return int(cast(float, self.mode[1]["examples"]))

    @property
    def servers(self) -> int:
        """How many there are."""
        return max(1, len(self.shards))

    @property
    def alike(self) -> bool:
        """Whether all of several decide as the first, rather than each by itself."""
        return self.servers == 1 or _core.decide_alike(self.mode[0])

    def part(self, server: int) -> NDArray[np.float32]:
        """What the parameters of one server begin with."""
        if not self.shards:
            return self.theta
        return np.concatenate([self.theta[begin:end] for begin, end in self.shards[server]])

    @property
    def placement(self) -> _core.RowPlacement | None:
        """Which of several servers has which rows of tables; None: one has all, or there are none."""
        if not self.owners:
            return None
        shards = [shard % self.servers for shard in range(OF_TABLES)]
        grow = [rows == 0 for _, _, rows in self.tables]
        return _core.RowPlacement(list(zip(grow, self.owners, strict=True)), shards)

    @property
    def terms(self) -> int:
        """A digest of what server and trainers must have alike, but for the model, which is theirs by
        the run's fingerprint.
        """
        more = [one for one in (self.shards, self.tables, self.owners) if one]
        told = numbered(json.dumps(more)) if more else 0
        return _core.mode_terms(told, len(self.theta), self.mode, self.rule, self.staleness)

    def is_done(self, standing: Mapping[str, Any]) -> bool:
        """Whether all batches are, or as many updates as end the run, as a policy server stands."""
        if self.updates is not None and standing["updates"] >= self.updates:
            return True
        return self.batches is not None and standing["done"] >= self.examples

    def done(self, examples: int) -> int:
        """Batches that so many examples are; the last one may have fewer than others."""
        whole = self.batches is not None and examples >= self.examples
        return cast(int, self.batches) if whole else examples // self.batch_size

    def server(
        self,
        run: int,
        boot: int,
        begun: tuple[_core.Resumption, int] | None = None,
        tables: Sequence[_core.Table] = (),
        served: NDArray[np.uint64] | None = None,
        ever: NDArray[np.uint64] | None = None,
        journal: Journal | None = None,
        again: int = 0,
    ) -> _core.PolicyServer:
        """Its policy server; of several the first.

        Args:
            run: as trainers have it.
            boot: a number that no other server's process ever has.
            begun: the state that it goes on from, of several servers its part, and of how many workers that
                is. Default: it begins.
            tables: the core's, those of ``self.tables``; of several servers those of which it has rows.
            served: of one that is started again in its own run, which lanes there were, and what was counted,
                as ``keep`` has told it. Default: another run goes on, or it begins.
            ever: how many pushes its mode was ever told of, and of how many examples, uint64 [2], which it
                counts on. Default: nobody asks.
            journal: of the first of several. Default: it has none.
            again: how many processes of the server there were in its run before this one, where it has no
                journal, which tells it. Default: none.

        Raises:
            OSError: the record cannot be begun.
            ValueError: no server takes what the mode's workers have, or the state, or the journal, is damaged.
        """
        path, line, again = journal or (None, 0, again)
        return _core.PolicyServer(
            theta=self.part(0),
            block_ends=[] if self.shards else list(self.block_ends),
            mode=self.mode,
            rule=self.rule,
            staleness=self.staleness,
            workers=self.workers,
            run=run,
            terms=self.terms,
            boot=boot,
            record=self._recorded,
            begun=begun,
            tables=list(tables),
            reduces=self.reduces,
            followers=self.servers - 1,
            updates=self.updates,
            served=served,
            ever=ever,
            journal=path,
            line=line,
            again=again,
            shards=[list(shard) for shard in self.shards] if self.reduces else [],
        )

    @property
    def _recorded(self) -> tuple[str, str, NDArray[np.float32] | None, Any, Any] | None:
        """For the core: the record of all servers; None: there is none."""
        if self.record is None:
            return None
        servers = Servers(self.shards, self.owners)
        return *self.record, self.theta if self.shards else None, servers.shards, servers.native

    def follower(
        self,
        server: int,
        run: int,
        boot: int,
        begun: tuple[_core.Resumption, int] | None = None,
        tables: Sequence[_core.Table] = (),
        served: NDArray[np.uint64] | None = None,
        ever: NDArray[np.uint64] | None = None,
        *,
        leads: bool = False,
        again: bool = False,
    ) -> _core.PartServer:
        """The policy server of that number, from 1; ``run``, ``boot``, ``begun`` (its own part), ``tables``,
        ``served`` and ``ever`` as of ``server``; ``leads``: of servers that decide by themselves, ``begun`` has
        the first's mode; ``again``: it was started again in its own run.

        Raises:
            ValueError: no several servers train so, or the state is damaged.
        """
        return _core.PartServer(
            theta=self.part(server),
            mode=self.mode,
            rule=self.rule,
            staleness=self.staleness,
            workers=self.workers,
            run=run,
            terms=self.terms,
            boot=boot,
            server=server,
            begun=begun,
            tables=list(tables),
            served=served,
            ever=ever,
            leads=leads,
            again=again,
            reduces=self.reduces,
            recorded=self.record is not None,
        )

    def to_json(self) -> dict[str, Any]:
        """All but what the parameters begin with and their order, as JSON's own types."""
        return {
            "mode": to_json(self.mode),
            "rule": to_json(self.rule),
            "staleness": to_json(self.staleness),
            "block_ends": list(self.block_ends),
            "workers": self.workers,
            "trainers": self.trainers,
            "batch_size": self.batch_size,
            "batches": self.batches,
            "commands": [list(one) for one in self.commands],
            "model": dict(self.model),
            "config": dict(self.config),
            "passed": self.passed,
            "record": self.record,
            "shards": self.shards,
            "tables": [list(one) for one in self.tables],
            "owners": list(self.owners),
            "reduces": self.reduces,
            "updates": self.updates,
        }

    @classmethod
    def of_json(
        cls,
        told: Mapping[str, Any],
        theta: NDArray[np.float32],
        order: NDArray[np.int64] | None = None,
    ) -> LedMode:
        """What ``to_json`` was told of, with what the parameters begin with, and their order."""
        return cls(
            mode=from_json(told["mode"]),
            rule=from_json(told["rule"]),
            staleness=from_json(told["staleness"]),
            theta=theta,
            block_ends=told["block_ends"],
            workers=told["workers"],
            trainers=told["trainers"],
            batch_size=told["batch_size"],
            batches=told["batches"],
            commands=[(float(seconds), int(argument)) for seconds, argument in told["commands"]],
            model=told["model"],
            config=told["config"],
            passed=told["passed"],
            record=told["record"] and tuple(told["record"]),
            shards=_spans(told["shards"]),
            tables=[(str(name), int(dim), int(rows)) for name, dim, rows in told["tables"]],
            owners=told["owners"],
            reduces=told["reduces"],
            updates=told["updates"],
            order=order,
        )


def _spans(told: Sequence[Sequence[Sequence[int]]]) -> list[list[tuple[int, int]]]:
    return [[(int(begin), int(end)) for begin, end in shard] for shard in told]


def lanes_of(threads: int, ahead: int, name: str = "threads", of: str = "look_ahead") -> int:
    """Workers of a trainer with so many threads, each of which has so many batches under way beside the one that
    it computes: one for each.

    Raises:
        ValueError: more than a process is let have; ``name`` and ``of`` are what the two are called.
    """
    lanes = threads * (1 + ahead)
    if lanes > MAX_THREADS:
        raise ValueError(
            f"{name} must be at most {MAX_THREADS // (1 + ahead)} with {of} {ahead}, of which each is to a mode "
            f"as many workers more, got {threads}"
        )
    return lanes


def check_recorded(workers: int) -> None:
    """ValueError where all trainers together have more workers than a replay has threads."""
    if workers > MAX_THREADS:
        raise ValueError(
            f"record is of at most {MAX_THREADS} workers of all trainers together, as many as a replay has, and "
            f"there are {workers}; leave it out, or take fewer trainers or threads, or a smaller look_ahead"
        )


def check_reduced(workers: int) -> None:
    """ValueError where all trainers together have more workers than sum among themselves."""
    if workers > _core.MOST_MEMBERS:
        raise ValueError(
            f'dense="all-reduce" is of at most {_core.MOST_MEMBERS} workers of all trainers together, each '
            f"connected with each, and there are {workers}; leave it out, so that the policy server sums, or "
            "take fewer trainers or threads, or a smaller look_ahead"
        )


def numbered(run: str) -> int:
    """The number of a run that has that name, or of another text, for the core."""
    return int.from_bytes(hashlib.sha256(run.encode()).digest()[: _BITS // 8], "little")
