"""The master's process: sockets, clock, journal and files around a ``Coordinator``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from leashed.cluster import checkpoints, packing, row_costs, row_packing, sent_parts, wire
from leashed.cluster.coordinator import Coordinator
from leashed.cluster.journal import Journal, lines
from leashed.cluster.member import ADDRESS
from leashed.cluster.opening import Key, Listener, Peer
from leashed.cluster.outbox import Outbox
from leashed.cluster.results import Results, named
from leashed.cluster.results import Results as _Results  # noqa: F401 (its old name)
from leashed.cluster.state import (
    Began,
    Change,
    CutEnded,
    Ended,
    EpochMade,
    Joined,
    Removed,
    Snapshot,
    State,
    Terms,
)
from leashed.cluster.supervisor import REPORT, name_of
from leashed.cluster.switchboard import Close, Output, Send
from leashed.models import TableSpec

__all__ = ["Master", "Terms", "run"]

Standing = dict[str, Any]

_JOURNAL = "journal.jsonl"
_TELLS = 1.0  # seconds between two writings of run.json
_TELLING = 0.1  # of the time, at most, it is written: it grows with each process that came and went
_LAST_WORDS = 1.0  # seconds for them to go out
_LEAVING = (
    2.0  # seconds in which who is told to end with the master comes to hand in its parameters
)
_CHUNK = 1 << 16
_UNREAD = 8 << 20  # bytes that wait for a member that does not read, before it is cut off

_log = logging.getLogger(__name__)


def run(
    terms: Terms,
    *,
    host: str,
    port: int,
    key: Key,
    folder: Path,
    transport: str = "auto",
    watch: Callable[[Standing], None] | None = None,
    comes_back: bool = True,
    begun: Path | None = None,
    cuts: Path | None = None,
) -> Standing:
    """Be the master of a run until it is over. Ctrl-C ends it, and its members are told. SIGTERM, as of a
    machine that is shut down, ends this master alone, and the run goes on with the next one in the
    folder; where none ``comes_back``, it is as Ctrl-C. To be called on the main thread.

    Where the run in the folder is over already, its master was killed before it could say so, or is
    started once more: then nothing is done but to write run.json, if the end is not in it.

    Args and what else is raised: those of ``Master``.

    Returns:
        How the run stood at its end, as in run.json, or when this master left it (``running``).

    Raises:
        ValueError: the run in the folder, over or not, had other terms.
    """
    terms.check()
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / _JOURNAL)
    if journal.found is not None and journal.found[1].over is not None:
        journal.close()
        _check_terms(folder, journal.found[0].terms, terms)
        return _ended(folder, *journal.found)

    async def serve() -> Standing:
        master = Master(
            terms,
            host=host,
            port=port,
            key=key,
            folder=folder,
            transport=transport,
            watch=watch,
            journal=journal,
            begun=begun,
            cuts=cuts,
        )
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, master.stop, "stopped by SIGINT")
        if comes_back:
            loop.add_signal_handler(signal.SIGTERM, master.leave)
        else:
            loop.add_signal_handler(signal.SIGTERM, master.stop, "stopped by SIGTERM")
        return await master.serve()

    return asyncio.run(serve())


class Master:
    """The master of a run. A run whose master was killed goes on with a new one in its folder.

    Args:
        terms: what the run is.
        host: the address to listen on.
        port: 0 for a free one.
        key: what all processes of the run hold.
        folder: of the run; made where there is none. In it lie
            journal.jsonl: what a new master must know;
            master.address: where this one listens;
            run.json: how the run stands, written anew every second, less often where that takes more
                than a tenth of the time, and at its end;
            results: final parameters (``results``).
        transport: over which exchanges with sync servers are profiled, once in a run.
        watch: called with what goes into run.json, when it is written. It must not block.
        journal: that in the folder, where it is open already.
        begun: the checkpoint's folder that the run goes on from, which stays.
        cuts: the folder of its own checkpoints. Default: ``folder``.

    Raises:
        ValueError: an argument is wrong, the run in ``folder`` is over or had other terms, its journal is
            damaged, or the newest checkpoint in ``cuts`` is another run's.
        OSError: the folder cannot be written, another master has it, or the port is in use.
    """

    def __init__(
        self,
        terms: Terms,
        *,
        host: str,
        port: int,
        key: Key,
        folder: Path,
        transport: str = "auto",
        watch: Callable[[Standing], None] | None = None,
        journal: Journal | None = None,
        begun: Path | None = None,
        cuts: Path | None = None,
    ) -> None:
        terms.check()
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._begun = begun
        self._cuts = cuts or folder
        self._putting: asyncio.Task[None] | None = None  # a checkpoint's manifest
        self._parts = sent_parts.Parts(self._cuts, terms.timeout, begun)
        self._watch = watch
        self._connections = 0
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._error: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox()
        self._writer = ThreadPoolExecutor(1, "leashed-journal")
        self._writing: asyncio.Task[None] | None = None
        self._manifests = ThreadPoolExecutor(1, "leashed-checkpoint")
        self._since = math.inf  # when the disk was given a group
        self._told_slow = False
        self._told_to_leave = self._handed_in = 0.0  # when; and when somebody was at it last
        self._left: Standing | None = None  # how the run stood when this one left it
        with contextlib.ExitStack() as undo:
            undo.callback(self._over.set)
            if journal is not None:
                undo.callback(journal.close)
            # First, since a journal would pin the terms of a master that cannot listen.
            self._listener = undo.enter_context(Listener(host, port, key, "master", self._accept))
            self._journal = journal or undo.enter_context(
                contextlib.closing(Journal(folder / _JOURNAL))
            )
            began, state = self._journal.found or (None, State.of(terms))
            whole = _whole(self._cuts, None if began is None else began.run, begun)
            if began is None:
                costs = packing.profile(transport) if terms.sync_ps else None
                rows = None
                if terms.embedding_ps and terms.rows is not None:
                    rows = row_costs.profile(terms.rows.rule)
                began = Began(secrets.token_hex(8), time.time(), terms, costs, rows)
                self._journal.write(lines([began]))
            _check_same(folder, began.terms, terms, state)
            self._began = began
            self._results = Results(folder, began.run, terms)
            self._zero = time.monotonic() - max(time.time() - began.at, _latest(state))
            self._coordinator = Coordinator(
                terms, began.run, state, self._now(), began.by_role(), whole
            )
            self._shares = _shares(self._coordinator)
            undo.pop_all()
        if self._journal.found is not None:
            ledger = state.ledger
            _log.info(
                "goes on with the run in %s: %s batches are complete", folder, ledger.complete
            )

    @property
    def address(self) -> str:
        """Where it listens."""
        return self._listener.address

    async def serve(self) -> Standing:
        """Until the run is over; how it stood then.

        Raises:
            OSError: the journal could not be written (any more).
        """
        try:
            _replace(self._folder / ADDRESS, self.address + "\n")
            due = 0.0
            while not self._over.is_set():
                self._coordinator.tick(self._now())
                self._carry_out()
                self._watch_disk()
                self._leave_if_done()
                # (That it is over is told once it is on the disk.)
                begun = time.monotonic()
                if begun >= due and self._coordinator.over is None:
                    self._tell()
                    due = begun + max(_TELLS, (time.monotonic() - begun) / _TELLING)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._over.wait(), self._coordinator.terms.beat / 4)
            if not self._left:
                await self._last_words()
        finally:
            self._listener.close()
            self._results.close()
            self._parts.close()
            # Where the disk is full nobody closes them, and each task waits for that.
            for writer in self._writers.values():
                writer.transport.abort()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._writing is not None:
                await asyncio.wait([self._writing])
            if self._putting is not None:
                await asyncio.wait([self._putting])
            self._writer.shutdown()
            self._manifests.shutdown()
            self._journal.close()
        if self._error:
            raise self._error
        return self._left or self._tell()

    def stop(self, reason: str) -> None:
        """End the run now; all members are told."""
        self._coordinator.interrupt(reason, self._now())
        self._carry_out()

    def leave(self) -> None:
        """Go away, as one that is killed: members wait for the next, and what they say is for that. But
        trainers that are told to end at the same time, as where the machine is shut down, hand in
        their parameters before, for which they have ``grace`` seconds; told once more, go at once.
        """
        if self._coordinator.over is not None:
            return  # it ends by itself
        if self._coordinator.leaving:
            self._go()
            return
        _log.info("told to leave: the run goes on with the next master in this folder")
        self._coordinator.leaving = True
        self._told_to_leave = self._handed_in = time.monotonic()

    def _leave_if_done(self) -> None:
        now, coordinator = time.monotonic(), self._coordinator
        if not coordinator.leaving or coordinator.over is not None or self._left is not None:
            return
        if coordinator.handing_in or self._writing is not None:
            self._handed_in = now
        if now > min(self._handed_in + _LEAVING, self._told_to_leave + coordinator.terms.grace):
            self._go()

    def _go(self) -> None:
        self._left = self._standing()
        with contextlib.suppress(OSError):  # (the last one stays)
            _replace(self._folder / REPORT, json.dumps(self._left, indent=1) + "\n")
        self._over.set()

    def _now(self) -> float:
        """Seconds since the run began; rises with the monotonic clock, and goes on over restarts."""
        return time.monotonic() - self._zero

    def _accept(self, connection: socket.socket, peer: Peer) -> None:
        """On the listener's thread."""
        begin = {
            "control": self._begin,
            "result": self._take,
            sent_parts.PURPOSE: self._take_part,
        }.get(peer.purpose)
        if begin is None:
            raise ValueError(f"the master has no connections for {peer.purpose!r}")
        try:
            self._loop.call_soon_threadsafe(begin, connection, peer)
        except RuntimeError:  # the loop is closed: the run is over
            connection.close()

    def _take(self, connection: socket.socket, peer: Peer) -> None:
        self._results.take(connection, peer)

    def _take_part(self, connection: socket.socket, peer: Peer) -> None:
        self._parts.take(
            connection, peer, self._coordinator.cut, self._coordinator.state.cuts.whole
        )

    def _begin(self, connection: socket.socket, _: Peer) -> None:
        if self._over.is_set():
            connection.close()
            return
        self._connections += 1
        task = self._loop.create_task(self._converse(self._connections, connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _converse(self, number: int, connection: socket.socket) -> None:
        """Hear one member for as long as it has this connection."""
        try:
            stream, writer = await asyncio.open_connection(sock=connection)
        except BaseException:
            connection.close()
            raise
        self._writers[number] = writer
        self._coordinator.opened(number, self._now())
        reader = wire.to_master()
        try:
            while data := await stream.read(_CHUNK):
                for message in reader.feed(data):
                    self._coordinator.heard(number, message, self._now())
                self._carry_out()
        except wire.Malformed as error:
            _log.warning("a connection is closed: %s", str(error))
            self._coordinator.refuse(number, str(error), self._now())
        except OSError:
            pass  # reset: closed as well
        finally:
            self._coordinator.closed(number, self._now())
            self._carry_out(Close(number))  # once it has heard why
            try:
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
            finally:
                self._writers.pop(number, None)

    def _carry_out(self, *then: Close) -> None:
        """Do what the coordinator has decided: first the journal, then the messages."""
        if self._error or self._left:
            return
        changes, actions = self._coordinator.take()
        for change in changes:
            _say(change, self._coordinator.state)
            if isinstance(change, CutEnded):
                self._parts.over()
        self._do(self._outbox.put(Output(changes, [*actions, *then])))
        if self._writing is None:
            if self._outbox.due:
                self._since = time.monotonic()
                self._writing = self._loop.create_task(self._write())
            elif self._coordinator.over is not None:
                self._over.set()
        if self._coordinator.checkpoint is not None and self._putting is None:
            self._putting = self._loop.create_task(self._put_manifest())

    async def _put_manifest(self) -> None:
        """All have saved: the manifest makes it a checkpoint, and those before go."""
        found, coordinator = self._coordinator.checkpoint, self._coordinator
        if found is not None:
            number, saved = found
            account = coordinator.state.ledger.account
            told = {
                "run": coordinator.run,
                "number": number,
                "at": time.time(),
                "total": coordinator.terms.total,
                "batch_size": coordinator.terms.batch_size,
                "next": account.next,
                "open": account.open,
                "fingerprint": coordinator.state.fingerprint,
            }
            folder, why = checkpoints.place(self._cuts, number), ""
            try:
                write = partial(checkpoints.write, folder, told, saved)
                await self._loop.run_in_executor(self._manifests, write)
            except Exception as error:  # noqa: BLE001 (all wait until it is told)
                why = f"its manifest cannot be written: {str(error) or type(error).__name__}"
            coordinator.written(number, self._now(), why)
            if not why and coordinator.state.cuts.whole == number:
                keep = [] if self._begun is None else [self._begun]
                tidy = partial(checkpoints.tidy, self._cuts, number, keep)
                try:
                    await self._loop.run_in_executor(self._manifests, tidy)
                except OSError as error:
                    _log.warning("checkpoints before %d stay: %s", number, str(error))
        self._putting = None
        self._carry_out()

    async def _write(self) -> None:
        """Have a group written, by another thread, and those that come meanwhile."""
        try:
            while changes := self._outbox.group():
                self._since = time.monotonic()
                whole = None
                if (
                    self._journal.long and not self._left
                ):  # all that is decided by now is written, or in this group
                    whole = lines([self._began, Snapshot(self._coordinator.state)])
                write = partial(self._journal.write, lines(changes), whole)
                await self._loop.run_in_executor(self._writer, write)
                self._do(self._outbox.written())
        except Exception as error:  # noqa: BLE001 (serve raises it)
            self._error = error
        self._writing = None
        if self._error or self._coordinator.over is not None:
            self._over.set()

    def _watch_disk(self) -> None:
        """A disk that hangs is told of, once: members know but that the master lives."""
        took = time.monotonic() - self._since
        if self._writing and took > self._coordinator.terms.timeout and not self._told_slow:
            self._told_slow = True
            _log.warning(
                "the disk has not taken what goes into %s for %.1f s: nobody gets batches meanwhile; "
                "choose a folder on another disk for the run",
                self._folder / _JOURNAL,
                took,
            )

    def _do(self, actions: Iterable[Send | Close]) -> None:
        """Carry these out."""
        for action in actions:
            writer = self._writers.get(action.connection)
            if writer is None or writer.is_closing():
                continue
            if isinstance(action, Close):
                writer.close()
            elif writer.transport.get_write_buffer_size() > _UNREAD:
                writer.transport.abort()
            else:
                writer.write(wire.encode(action.message))

    async def _last_words(self) -> None:
        """Let what was written go out, as far as the members read it."""
        writers = list(self._writers.values())
        closed = asyncio.gather(*(w.wait_closed() for w in writers), return_exceptions=True)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(closed, _LAST_WORDS)
        for writer in writers:
            writer.transport.abort()

    def _standing(self) -> Standing:
        return _told(
            self._coordinator,
            self._now(),
            self._shares,
            self._results.names,
            address=self.address,
            refused=self._listener.refused,
        )

    def _tell(self) -> Standing:
        standing = self._standing()
        _replace(self._folder / REPORT, json.dumps(standing, indent=1) + "\n")
        if self._watch:
            self._watch(standing)
        return standing


def _whole(cuts: Path, run: str | None, begun: Path | None) -> int:
    """The number of the newest checkpoint in a folder of a run's, which has that name, or none yet; 0:
    there is none.

    Raises:
        ValueError: it is of another run, and not the one that this run goes on from.
    """
    try:
        found = checkpoints.Checkpoint(checkpoints.newest(cuts))
    except FileNotFoundError:
        return 0
    goes_on = begun is not None and begun.resolve() == found.folder.resolve()
    if found.told["run"] != run and not goes_on:
        raise ValueError(
            f"{found.folder} is a checkpoint of another run, for whose newest it would be taken; give this run "
            "another folder (checkpoints in [cluster]), or have it go on from that one (resume)"
        )
    return found.number


def _say(change: Change, state: State) -> None:
    """Who comes and goes, to the log."""
    membership = state.membership
    if isinstance(change, Joined):
        name, again = name_of(change.role, change.index), ", as before" if change.before else ""
        _log.info("%s joins from %s%s", name, change.address, again)
    elif isinstance(change, Removed):
        past = next((each for each in reversed(membership.past) if each.id == change.id), None)
        if past is not None:
            _log.info("%s is gone: %s", name_of(past.role, past.index), change.why)
    elif isinstance(change, EpochMade) and change.restored is not None:
        went, by = "begin again, since nobody has kept any of it", membership.members.get(change.by)
        if change.by:
            went = f"go on from what {by.name if by else 'one'} has kept"
        _log.warning(
            "all who had what was trained are gone: the trainers %s, with %s batches complete",
            went,
            change.restored.used,
        )
    elif isinstance(change, CutEnded):
        if change.whole:
            _log.info("checkpoint %d is whole", change.number)
        elif change.why:
            _log.warning("checkpoint %d is given up: %s", change.number, change.why)
    elif isinstance(change, Ended):
        _log.info("the run is over: %s", change.reason)


def _ended(folder: Path, began: Began, state: State) -> Standing:
    """How the run in a folder, which is over, stood at its end."""
    _log.info("the run is over: %s", state.over)
    path = folder / REPORT
    with contextlib.suppress(FileNotFoundError):
        standing: Standing = json.loads(path.read_text(encoding="utf-8"))
        if standing["state"] != "running":
            return standing
    coordinator = Coordinator(began.terms, began.run, state, state.ended, began.by_role())
    handed_in = sorted(named(folder, began.run))
    shares = _shares(coordinator)
    standing = _told(coordinator, state.ended, shares, handed_in, address="", refused=0)
    _replace(path, json.dumps(standing, indent=1) + "\n")
    return standing


def _told(
    coordinator: Coordinator,
    now: float,
    shares: dict[str, Any],
    results: list[str],
    *,
    address: str,
    refused: int,
) -> Standing:
    """What goes into run.json."""
    return {
        **coordinator.standing(now),
        **shares,
        "terms": msgspec.to_builtins(coordinator.terms),
        "address": address,
        "refused": refused,
        "results": results,
    }


def _shares(coordinator: Coordinator) -> dict[str, Any]:
    """How servers of each role share what they hold, which stays so for the run."""
    return {**_packing(coordinator), **_row_packing(coordinator)}


def _packing(coordinator: Coordinator) -> dict[str, Any]:
    """How the sync servers share the parameters; nothing where there are none."""
    terms, costs = coordinator.terms, coordinator.costs.get("sync-ps")
    if costs is None or terms.parameters is None:
        return {}
    found = packing.packed(terms.parameters, terms.sync_ps, costs)
    servers = [
        {"fragments": len(mine), "load": load}
        for mine, load in zip(found.servers, found.loads, strict=True)
    ]
    return {
        "packing": {
            "one": costs.one,
            "whole": costs.whole,
            "servers": servers,
            "bound": found.bound,
            "imbalance": found.imbalance,
        }
    }


def _row_packing(coordinator: Coordinator) -> dict[str, Any]:
    """How the embedding servers share the tables; nothing where there are none."""
    terms, costs = coordinator.terms, coordinator.costs.get("embedding-ps")
    if costs is None or terms.rows is None:
        return {}
    tables = [TableSpec(*one) for one in terms.rows.tables]
    found = row_packing.placed(
        tables,
        terms.rows.features,
        terms.embedding_ps,
        costs,
        terms.batch_size,
        row_bytes=terms.rows.row_bytes,
        room=terms.rows.room,
    )
    return {
        "row_packing": {
            "one": costs.one,
            "whole": costs.whole,
            "servers": [
                {"tables": len(found.numbers(server, len(tables))), "load": load}
                for server, load in enumerate(found.loads)
            ],
            "bound": found.bound,
            "imbalance": found.imbalance,
        }
    }


def _check_same(folder: Path, before: Terms, terms: Terms, state: State) -> None:
    """That the run found in a folder can go on by these terms."""
    if state.over is not None:
        raise ValueError(f"the run in {folder} is over ({state.over}); give another folder")
    _check_terms(folder, before, terms)


def _check_terms(folder: Path, before: Terms, terms: Terms) -> None:
    for name in terms.__struct_fields__:
        was, wanted = getattr(before, name), getattr(terms, name)
        if was != wanted:
            raise ValueError(
                f"the run in {folder} has {name}={was}, not {wanted}; start its master as before, "
                "or give another folder"
            )


def _latest(state: State) -> float:
    """The latest time known, in case the clock was put back."""
    membership = state.membership
    joined = [member.joined for member in membership.members.values()]
    return max([0.0, membership.now, *joined, *(past.gone for past in membership.past)])


def _replace(path: Path, text: str) -> None:
    """Write a file that is whole at every moment."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    fresh.replace(path)
