"""Embedding servers in threads of this process, and tables of theirs that are looked up by calls."""

from __future__ import annotations

import itertools
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from leashed import _core
from leashed.cluster.served_tables import ServedTables, asked
from leashed.models import TableSpec, tables
from leashed.models.tables import Table

PATIENCE = 60.0
_lives = itertools.count(1)


class Servers:
    """Of some tables, each of which is spread, or whole at one of them in turn."""

    def __init__(
        self,
        specs: Sequence[TableSpec],
        count: int,
        *,
        whole: bool = False,
        loops: int = 1,
        seed: int = 3,
        rule: Any = None,
        staleness: Any = None,
        made: Callable[[dict[str, Table]], None] = lambda _: None,
        **settings: Any,
    ) -> None:
        """``made`` is called with the tables of each before it serves them."""
        self.specs, self.count, self.seed = list(specs), count, seed
        self.rule, self.staleness = rule, staleness
        self.placement = _core.RowPlacement(
            [(one.rows is None, i % count if whole else -1) for i, one in enumerate(specs)],
            [shard % count for shard in range(256)],
        )
        self.tables, self.natives = [], []
        for server in range(count):
            mine = tables.of(
                specs,
                rule=rule,
                staleness=staleness,
                seed=seed,
                shards={s.name: self.placement.shards(i, server) for i, s in enumerate(specs)},
                **settings,
            )
            made(mine)
            numbers = [i for i, one in enumerate(specs) if one.name in mine]
            native = _core.RowServer(
                [mine[specs[i].name].native for i in numbers],
                numbers, self.placement, server, secrets.randbits(62), loops,
            )  # fmt: skip
            self.tables.append(mine)
            self.natives.append(native)

    def open(
        self, *, threads: int = 1, look_ahead: int = 0, patience: float = PATIENCE
    ) -> ServedTables:
        """Tables of a process that has joined."""
        read, model = asked(self.specs, self.rule, self.staleness, self.seed)
        life = next(_lives)
        rows = _core.RemoteRows(
            tables=[(one.name, one.dim, one.rows or 0) for one in self.specs],
            features=list(read.features),
            placement=self.placement,
            servers=self.count,
            workers=threads * len(self.specs),
            readers=0,
            client=life << 16,
            life=life,
            timeout=patience,
            patience=patience,
            look_ahead=look_ahead,
            apart=True,
        )
        session: Any = Session(self, rows)
        return ServedTables(session, read, model, threads, look_ahead)

    def values(self, name: str, ids: Sequence[int]) -> list[list[float]]:
        """The rows of ids, as the servers have them now."""
        number = next(i for i, one in enumerate(self.specs) if one.name == name)
        return [
            self.tables[self.placement.server(number, i)][name].lookup([i])[0].tolist()
            for i in (int(each) for each in ids)
        ]


class Session:
    """As much of a trainer's session as its tables need: it makes connections."""

    output = None
    cut_short: str | None = None

    def __init__(self, servers: Servers, rows: _core.RemoteRows) -> None:
        self.rows = rows
        self.paused = False
        self.adopted = 0
        self._servers = servers
        self._closing = threading.Event()
        self._tending = threading.Thread(target=self._tend)
        self._tending.start()

    def _tend(self) -> None:
        while not self._closing.is_set():
            for slot, server in [] if self.paused else self.rows.missing(self._servers.count):
                ours, theirs = socket.socketpair()
                self._servers.natives[server].adopt(theirs.detach(), True, "tcp")
                self.rows.adopt(slot, server, ours.detach(), True, "tcp")
                self.adopted += 1
            time.sleep(0.002)

    def metrics(self) -> dict[str, float]:
        return {f"row_{name}": float(n) for name, n in self.rows.counters().items()}

    def finish(self, *_: Any) -> dict[str, float]:
        return self.metrics()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._tending.join()
