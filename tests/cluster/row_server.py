"""An embedding server without sockets, whose rows tell which pushes they have; as a program one that
pushes and writes snapshots until it is killed: ``python -m cluster.row_server FOLDER``.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from table_files import shard_of

import leashed as lsh
from leashed.cluster.row_files import Applied, RowFiles
from leashed.models import TableSpec, tables

CLIENTS = 5
DESCRIBED = [TableSpec("a", rows=3000, dim=4), TableSpec("b", rows=None, dim=2)]
RUN = "0123"


def spread(servers: int) -> list[list[bool]]:
    """The shards of each of so many servers."""
    return [[shard % servers == mine for shard in range(256)] for mine in range(servers)]


def made(server: int = 0, servers: int = 1) -> dict[str, lsh.Table]:
    """Tables whose rows are the sums of what was pushed."""
    mine = spread(servers)[server]
    return tables.of(
        DESCRIBED,
        rule=lsh.SGD(1.0),
        init=tables.zeros(),
        max_bytes=2**20,
        shards={one.name: mine for one in DESCRIBED},
    )


class Server:
    """Of client c a push adds 1 to rows of its own of each table."""

    def __init__(self, of: dict[str, lsh.Table]) -> None:
        self.tables = of
        self.numbers = [0] * CLIENTS
        self.pushes = 0
        self.lock = threading.Lock()
        self.own = [
            {
                name: [i for i in self.ids(name, table) if i % CLIENTS == client]
                for name, table in of.items()
            }
            for client in range(CLIENTS)
        ]

    @staticmethod
    def ids(name: str, table: lsh.Table) -> list[int]:
        if name == "a":
            return [int(i) for i in table.ids()]
        shards = table.shards or [True] * 256
        return [i for i in range(300) if shards[shard_of(i, grows=True)]]

    def push(self, client: int) -> None:
        with self.lock:
            for name, ids in self.own[client].items():
                dim = self.tables[name].dim
                self.tables[name].update(ids, np.full((len(ids), dim), -1.0, np.float32))
            self.numbers[client] += 1
            self.pushes += 1

    def counters(self) -> dict[str, Any]:
        return {"pushes": self.pushes, "apart": 0}

    def applied(self) -> Sequence[Applied]:
        return [
            (client, 7, number, client % 3, number, 16 * number)
            for client, number in enumerate(self.numbers)
        ]

    def restore(self, applied: list[Applied], pushes: int) -> None:
        for client, _, number, *rest in applied:
            assert rest == [client % 3, number, 16 * number]
            self.numbers[client] = number
        self.pushes = pushes

    def quiet(self, f: Callable[[], None]) -> None:
        with self.lock:
            f()
        time.sleep(0.002)  # in which others push

    def has_what_it_says(self) -> bool:
        """Whether the rows are those of as many pushes of each client."""
        return all(
            (self.tables[name].lookup(ids) == self.numbers[client]).all()
            for client in range(CLIENTS)
            for name, ids in self.own[client].items()
        )


def main(folder: Path) -> None:
    server = Server(made())
    files = RowFiles(server.tables, folder, RUN, 0, 0.02)
    files.restore()
    files.serve(server)
    print("ready", flush=True)

    def pushing() -> None:
        rng = np.random.default_rng()
        while True:
            server.push(int(rng.integers(CLIENTS)))

    threading.Thread(target=pushing, daemon=True).start()
    while True:
        files.keep()
        time.sleep(0.002)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
