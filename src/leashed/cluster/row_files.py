"""The rows of embedding servers in files of the run's folder: snapshots from which a server goes on, and
the whole tables that the parts of all servers make.

A snapshot is a generation of a folder of its server's (``files.folders``): the rows, changes of those
before where it can be, and which pushes of which client these have, of one moment. Only what its
manifest names counts, which is renamed into its place last.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from leashed.cluster import checkpoints
from leashed.cluster.keeping import Counts, Keeping
from leashed.cluster.messages import Saved
from leashed.files import folders
from leashed.models.tables import Described, Table

__all__ = [
    "WRITTEN",
    "Applied",
    "Joined",
    "RowFiles",
    "RowServer",
    "counters",
    "folder_of",
    "joined",
    "joined_of",
    "rows_of",
    "updates",
]

_GRADIENTS = ("folded", "excluded")
"""Of what it tells of all tables, how many gradients of rows did not make updates of their own."""

_GROWTH = ("asked", "evicted", "refused", "deferred", "late", "unadmitted")
"""Of what ``Table.statistics`` tells of tables that grow."""

WRITTEN = 1 << 29
"""Bytes of rows a second, as a processor of an AMD EPYC writes and digests them."""

_log = logging.getLogger(__name__)


Applied: TypeAlias = "tuple[int, int, int, int, int, int]"
"""A client, its life, the number of the last push that was applied, what became of that and those before
it, as bits, how many of the life's pushes the rows have, and of how many examples these are."""


class RowServer(Protocol):
    """What ``_core.RowServer`` has of it."""

    def counters(self) -> dict[str, Any]:
        """``pushes``: that it has applied, with those of ``restore``; ``apart``: of these, since then, that
        were a step of one table alone, which has counted it.
        """

    def applied(self) -> Sequence[Applied]:
        """Of each client."""

    def restore(self, applied: list[Applied], pushes: int, /) -> None:
        """The tables have so many, before anybody is served."""

    def quiet(self, f: Callable[[], None], /) -> None:
        """Calls it while nobody is served."""


class RowFiles:
    """What an embedding server leaves to the one that is started in its place, and to the run's end.

    Its rows are loaded first (``restore``), then the server is made of the tables, and gets the rest
    (``serve``) before anybody is served.

    Args:
        tables: of the server, by name.
        folder: the run's.
        run: the run's name.
        index: which server it is.
        every: seconds between two snapshots, at least; writing them takes a tenth of the time at most.
        begins: the checkpoint that the run goes on from; None: it begins.
    """

    def __init__(
        self,
        tables: Mapping[str, Table],
        folder: Path,
        run: str,
        index: int,
        every: float,
        begins: checkpoints.Checkpoint | None = None,
    ) -> None:
        self._begins = begins
        self._tables = tables
        self._folder = folder_of(folder, index)
        self._run = run
        self._every = every
        self._applied: list[Applied] = []
        self._restored = 0
        self._steps: dict[str, int] = {}  # of tables, when they were loaded
        self._newest: int | None = None  # pushes of what was written last
        self._written = 0
        self._stalled = self._longest = 0.0
        self._of: tuple[RowServer, Keeping] | None = None

    def restore(self) -> int:
        """Loads the rows of the snapshot, if there is one; else those that the run begins with.

        Returns:
            How many pushes they have.

        Raises:
            ValueError: it is damaged, or of another run, or of other tables.
            OSError: the folder cannot be made, or something else is in it.
        """
        self._folder.mkdir(exist_ok=True)
        if (found := _rows(self._folder, hashed=False)) is not None:
            if found.told["run"] != self._run:
                raise ValueError(
                    f"{self._folder} is of another run; remove it and its .count, or choose another "
                    "folder"
                )
            if not found.counts_examples:
                raise ValueError(
                    f"{self._folder} is of an older release, which did not write of how many examples "
                    "the rows are; go on with that release, or from one of the run's checkpoints in "
                    "another folder"
                )
            found.load(self._tables)
            self._newest = self._restored = int(found.told["pushes"])
            self._applied = [tuple(each) for each in found.told["applied"]]
            _log.info("goes on from a snapshot with %d pushes", self._restored)
        elif self._begins is not None:
            folders.load_rows(self._begins.rows(), self._tables)
            _log.info("goes on from the rows in %s", self._begins.folder)
        self._steps = {name: table.statistics()["steps"] for name, table in self._tables.items()}
        return self._restored

    def serve(self, server: RowServer) -> None:
        """The rows are this one's from now on. OSError where the count of pushes cannot be read."""
        server.restore(self._applied, self._restored)
        counts = self._folder.with_suffix(".count")
        sizes = (table.statistics()["bytes"] for table in self._tables.values())
        first = 0.0 if self._newest is not None else sum(sizes) / WRITTEN  # all rows
        keeping = Keeping(
            lambda: _pushes(server),
            self._save,
            Counts(counts, self._run, self._restored),
            self._restored,
            self._every,
            first,
        )
        self._of = server, keeping

    def keep(self) -> None:
        """Writes a snapshot where one is due, and how many pushes there were."""
        self._kept.keep(_pushes(self._server))

    def end(self) -> None:
        """Nobody pushes any more: writes what has changed, and where nothing has, the rows as they are.

        Raises:
            OSError: the rows cannot be written.
        """
        self._kept.end()
        if self._newest != _pushes(self._server):
            self._save()

    def cut(self, folder: Path) -> list[Saved]:
        """Its part of a checkpoint in that folder: nobody pushes now.

        Raises:
            OSError: it cannot be written.
        """
        if self._newest != _pushes(self._server):
            self._save()
        folders.link_rows(self._folder, folder / self._folder.name)
        return checkpoints.saved_of(folder, f"{self._folder.name}/{folders.MANIFEST}")

    def counters(self) -> dict[str, float]:
        """What is reported of rows, as of the function of this name, and of files: pushes ``restored`` and
        ``lost`` by restarts; ``snapshots``, ``snapshots_failed``, and seconds for which they kept pushes
        waiting, in all (``stalled``) and at most at once (``stall``).
        """
        return {
            **counters(self._tables),
            "restored": self._restored,
            "snapshots": self._written,
            "stalled": self._stalled,
            "stall": self._longest,
            **self._kept.counters(),
        }

    @property
    def _kept(self) -> Keeping:
        assert self._of is not None, "serve() comes first"
        return self._of[1]

    @property
    def _server(self) -> RowServer:
        assert self._of is not None, "serve() comes first"
        return self._of[0]

    def _save(self) -> int:
        def told() -> dict[str, Any]:
            applied = [list(each) for each in self._server.applied()]
            return {
                "run": self._run,
                "pushes": _pushes(self._server),
                "applied": applied,
                "counters": {**self._server.counters(), **self.counters()},
            }

        try:
            pushes = int(
                folders.write_rows(self._folder, self._tables, told, self._quiet)["pushes"]
            )
        except ValueError as error:  # as the core says it
            raise OSError(str(error)) from error
        self._newest = pushes
        self._written += 1
        return pushes

    def _quiet(self, save: Callable[[], None]) -> None:
        seconds, failed = 0.0, None

        def timed() -> None:
            nonlocal seconds, failed
            begun = time.monotonic()
            try:
                counted = self._server.counters()
                of_all = int(counted["pushes"]) - self._restored - int(counted["apart"])
                for name, table in self._tables.items():
                    table.native.reach_steps(self._steps[name] + of_all)
                save()
            except BaseException as error:  # noqa: BLE001 (raised below, not through the server)
                failed = error
            seconds = time.monotonic() - begun

        self._server.quiet(timed)
        self._stalled += seconds
        self._longest = max(self._longest, seconds)
        if failed is not None:
            raise failed


def counters(tables: Mapping[str, Table]) -> dict[str, float]:
    """What is reported of a server's rows: ``rows`` and ``row_bytes`` now, ``row_updates`` and the sum of
    their ``row_staleness``, ``row_stalest``, gradients that went into others' updates (``row_folded``) or were
    left out as too stale (``row_excluded``); of tables that grow ids of pushes (``row_asked``),
    ``row_evicted`` ones, and gradients without a row since there was no room (``row_refused``), another
    thread changed the index there (``row_deferred``), the row had gone (``row_late``) or the id had not
    come often enough (``row_unadmitted``).
    """
    told = [table.statistics() for table in tables.values()]
    return {
        "rows": sum(each["rows"] for each in told),
        "row_bytes": sum(each["bytes"] for each in told),
        "row_updates": sum(each["applied"] for each in told),
        "row_staleness": sum(each["staleness"] for each in told),
        "row_stalest": max((each["stalest"] for each in told), default=0),
        **{f"row_{name}": sum(each[name] for each in told) for name in (*_GRADIENTS, *_GROWTH)},
    }


def updates(counters: Sequence[Mapping[str, float]]) -> dict[str, int]:
    """What became of the gradients of rows, as ``TrainResult.rows``, by what each server has counted."""

    def total(name: str) -> int:
        return sum(int(each.get(f"row_{name}", 0)) for each in counters)

    names = ("folded", "late", "excluded", "unadmitted", "deferred", "refused", "staleness")
    return {
        "applied": total("updates"),
        **{name: total(name) for name in names},
        "stalest": max((int(each.get("row_stalest", 0)) for each in counters), default=0),
    }


class Joined(NamedTuple):
    """What ``joined`` gives.

    Attributes:
        tables: whole, by name.
        pushes: that the rows of each server have, in their order.
        counters: of each, of when it saved.
    """

    tables: dict[str, Table]
    pushes: list[int]
    counters: list[dict[str, float]]


def joined(folder: Path, described: Iterable[Described], servers: int, run: str) -> Joined:
    """The whole tables of a model that the last files of all servers make, new.

    Args:
        folder: the run's.
        described: the model's tables.
        servers: how many embedding servers the run has had.
        run: the run's name.

    Raises:
        FileNotFoundError: a server has saved nothing.
        ValueError: a file is damaged, or of another run; or the rows are not all of the model's
            tables.
    """
    return joined_of([folder_of(folder, index) for index in range(servers)], described, run)


def joined_of(places: Sequence[Path], described: Iterable[Described], run: str) -> Joined:
    """As ``joined``, where the servers have saved in these folders, in their order."""
    found = []
    for index, place in enumerate(places):
        rows = rows_of(place, index)
        if rows.told["run"] != run:
            raise ValueError(f"{place} is of run {rows.told['run']}, and not of {run}")
        found.append(rows)
    made = folders.join_rows(found)
    names = [one.name for one in described]
    if missing := [name for name in names if name not in made]:
        raise ValueError(f"no server has saved table {', '.join(missing)} in {places[0].parent}")
    tables = {name: made[name] for name in names}
    return Joined(
        tables,
        [int(rows.told["pushes"]) for rows in found],
        [dict(rows.told["counters"]) for rows in found],
    )


def rows_of(place: Path, index: int) -> folders.Rows:
    """What an embedding server, or a policy server, has saved there, whose number is for the error alone.

    Raises:
        FileNotFoundError: nothing.
        ValueError: a file is damaged.
    """
    rows = _rows(place)
    if rows is None:
        why = "it ended before its first snapshot"
        if not place.is_dir():
            why = "it never began there; where it ran on another machine, copy that folder here"
        whose = "policy server" if place.name.startswith("policy") else "embedding server"
        raise FileNotFoundError(f"{whose} {index} has saved no rows in {place}: {why}")
    return rows


def _pushes(server: RowServer) -> int:
    return int(server.counters()["pushes"])


def folder_of(run: Path, index: int) -> Path:
    """Of an embedding server, in its run's."""
    return run / f"embedding-ps-{index}"


def _rows(folder: Path, *, hashed: bool = True) -> folders.Rows | None:
    try:
        return folders.Rows(folder, hashed=hashed)
    except FileNotFoundError:
        if folders.is_one(folder):
            raise
        return None
