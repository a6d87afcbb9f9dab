"""The role ``policy-ps``: a server that leads a mode of training (docs/modes.md).

It holds the parameters, rows of tables where the model reads any, and the mode's data list: trainers pull
and push, and are told what to train on. Of several each has a part of the parameters and rows.
To the master it is who leases all batches, and tells how many of them its mode is done with.
"""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.cluster import commanding, fingerprint, led_record, parameter_shards
from leashed.cluster.addressing import is_local
from leashed.cluster.checkpoints import Checkpoint
from leashed.cluster.commanding import Commanded
from leashed.cluster.cut_tending import ServerCuts
from leashed.cluster.embedding_server import rows_read
from leashed.cluster.led_bringing import Sending
from leashed.cluster.led_checkpoint import begun, going_on, save
from leashed.cluster.led_commands import Commands
from leashed.cluster.led_cuts import LOOK, LedCuts
from leashed.cluster.led_first_keeping import FirstKeeping
from leashed.cluster.led_keeping import LedKeeping, keeps
from leashed.cluster.led_leaving import leaving, telling
from leashed.cluster.led_part_keeping import PartKeeping
from leashed.cluster.led_rows import LedRows
from leashed.cluster.lives import boot
from leashed.cluster.member import Member
from leashed.cluster.messages import Epoch, Lease, Saved, Welcome
from leashed.cluster.mode_report import heard, told_of
from leashed.cluster.opening import Peer
from leashed.cluster.policy_follower import TOLD, follow, let_go
from leashed.cluster.remote_batches import sent
from leashed.cluster.server_tending import POLICY
from leashed.cluster.serving import REPORT, Place, accepting, making, over
from leashed.cluster.table_terms import TableTerms
from leashed.models import TableSpec
from leashed.training import request
from leashed.training.led_mode import SHARDS, LedMode, numbered
from leashed.training.options import Observe
from leashed.training.problems.clicks import table_settings

if TYPE_CHECKING:
    from leashed.cluster.plan import Plan
    from leashed.sync import Cluster
    from leashed.training.recordings import AnyModel

__all__ = ["led_by", "run", "serve"]

_log = logging.getLogger(__name__)

_ENDLESS = 1 << 31  # batches, and the most that are asked for at once


def run(plan: Plan, index: int) -> None:
    """The role as a plan describes it, until the run has ended.

    Raises:
        OSError: the data cannot be read, or the master not be reached.
        ValueError: the run is another, or the mode can go on no more.
    """
    problem = plan.problem()
    led = led_by(plan, problem)
    if plan.cluster.resume is not None:
        led = going_on(led, Checkpoint(plan.cluster.resume))
    told = fingerprint.of_model(problem.model)
    tables = None
    if led.tables:
        servers = plan.cluster.policy_ps
        here = servers if is_local(plan.cluster.master) else 1
        tables = TableTerms(rows_read(plan, problem), servers, table_settings(plan.train), here)
    serve(led, index, Place.of(plan, "policy-ps", index), told, tables)


def led_by(plan: Plan, problem: Any) -> LedMode:
    """The mode of a plan's training, with the parameters that it begins with: of data that readers read no
    more is known than how many rows they are, and of which columns.

    Raises:
        OSError: a file of these cannot be read.
        TypeError, ValueError: the training asks for what does not go together.
    """
    train, cluster = plan.train, plan.cluster
    rows = plan.index(problem)
    asked = request.of(
        problem.model,
        problem.train if rows is None else sent(problem.train, rows, cluster.readers),
        until=train.until(None),
        **train.how(problem, rows),
        observe=Observe(record=train.record),
        cluster=cast(
            "Cluster",
            Trainers(
                cluster.trainers,
                cluster.policy_ps,
                cluster.shards,
                cluster.readers,
                cluster.ahead,
            ),
        ),
    )
    return asked.led(asked.source(1))


class Trainers:
    """Of a run by a mode what says how many workers and servers there are."""

    sync = None

    def __init__(
        self,
        trainers: int,
        servers: int = 1,
        shards: str = SHARDS,
        readers: int = 0,
        ahead: int = 0,
    ) -> None:
        self.trainers = trainers
        self.readers = readers
        self.ahead = ahead
        self.policy_servers = servers
        self.shards = shards

    def session(self) -> None:
        """Nobody takes part by this."""

    def spans(self, model: AnyModel) -> list[list[tuple[int, int]]]:
        """What each of several servers has."""
        return parameter_shards.spans(model, self.policy_servers, self.shards)

    def owners(self, tables: Sequence[TableSpec], features: Sequence[int]) -> list[int]:
        """Of each table which of several has its rows."""
        return parameter_shards.owners(tables, features, self.policy_servers)


def serve(
    led: LedMode, index: int, place: Place, told: dict[str, str], tables: TableTerms | None = None
) -> None:
    """Lead a mode until the run has ended; or have a part of the parameters, as a server behind the first.

    Args:
        led: which.
        index: of the server; the first leads.
        place: where it has its run.
        told: what else all of the run must have alike, as far as it is known.
        tables: whose rows it has too, or of several servers those that are its own. Default: none.

    Raises:
        ValueError: the run is another, no server leads the mode, or it can go on no more.
        OSError: the master cannot be reached (any more), or rows not be written.
    """
    rows = None if tables is None else LedRows(tables, led.placement, place.folder, index)
    words = {
        **({} if rows is None else rows.words),
        **told,
        **fingerprint.of_server(len(led.theta)),
        **fingerprint.of_mode(led),
        **fingerprint.of_servers({"policy-ps": led.servers}),
    }
    with contextlib.ExitStack() as ending:
        if index > 0:
            part = None
            if keeps(led, place):
                kept = PartKeeping(led, place, rows, index)
                part = ending.enter_context(contextlib.closing(kept))
            follow(led, index, place, words, rows, part)
            return
        keeping = None
        if keeps(led, place):
            of = FirstKeeping if led.servers > 1 else LedKeeping
            keeping = ending.enter_context(contextlib.closing(of(led, place, rows)))
        _lead(led, place, words, rows, keeping)


def _lead(
    led: LedMode,
    place: Place,
    words: dict[str, str],
    rows: LedRows | None,
    keeping: LedKeeping | None,
) -> None:
    """As ``serve``, of the first server; ``keeping``: goes on from what it has kept, and keeps it. None: nothing
    is kept.
    """
    index, kept = 0, None if keeping is None else keeping.offer()
    with making() as made:
        commanded = Commanded(made, led.is_done, keeping.commanded if keeping else lambda _: None)
        accepts = {
            POLICY: accepting(made, POLICY, place.transport),
            TOLD: accepting(made, TOLD, place.transport),
            commanding.PURPOSE: commanded.accept,
        }

        def accept(link: socket.socket, peer: Peer) -> None:
            accepts.get(peer.purpose, accepts[POLICY])(link, peer)

        joined = place.joined("policy-ps", index, accept, words, kept, returns=keeping is not None)
        with joined as (member, news), telling(member):
            name = member.welcome.run
            cut = None if place.resume is None else Checkpoint(place.resume)
            then = None
            if keeping is not None:
                then = keeping.begin(name)
            elif rows is not None:
                rows.begin()
            begins = None
            if cut is not None and then is None:
                begins = begun(led, cut)
                if rows is not None:
                    rows.load(cut)
            if begins is not None and begins.let_go is not None:
                _log.warning("%s", begins.let_go)
            if rows is not None and led.record is not None:
                led = replace(led, record=rows.recorded(led.record))
            state = None if begins is None else begins.state
            if then is not None:
                state = then.state, then.told["nodes"]
            server = led.server(
                numbered(name),
                keeping.boot if keeping else boot(),
                state,
                () if rows is None else rows.native,
                None if then is None else then.served,
                None if keeping is None else keeping.pushes,
                None if keeping is None else keeping.journal(then),
                0 if keeping is None else keeping.again,
            )
            pulls = server.counters()["pulls"]
            sending = Sending(place, index, name)
            done = led.done(server.standing()["done"])
            leases = Leased(member, led, done if keeping is None else keeping.known(done))
            commands = Commands(led, commanded)
            if keeping is not None:
                keeping.goes_on(then, server, commands)
                keeping.serve(server, lambda: (commands.reached, commands.told, commanded.last))
            made.set_result((name, server))

            def report() -> dict[str, float]:
                standing, counted = server.standing(), server.counters()
                if standing["failure"]:
                    raise ValueError(f"the mode can go on no more: {standing['failure']}")
                if keeping is not None:
                    keeping.keep(heard(counted), done=led.is_done(standing))
                commands.tell(server, began=counted["grants"] > 0)
                if keeping is not None:
                    keeping.scheduled(commands.told)
                    keeping.done(led.done(standing["done"]))
                metrics = {
                    **told_of(standing, counted),
                    **commanded.counters(),
                    **sending.counters(),
                }
                if keeping is not None:
                    metrics |= keeping.counters()
                if rows is not None:
                    metrics |= led_record.told_of(rows, server, led)
                member.report(metrics, leases.used(standing["done"]))
                return counted

            def put(folder: Path) -> list[Saved]:
                return save(folder, led, server, commands.passed, commands.left, rows, name)

            saves = ServerCuts(member, place.cuts or place.folder, place.resume, put)
            cuts = LedCuts(member, server, report, saves)
            # Seconds for which who was there may be absent.
            absent = math.inf if state is None else place.grace
            looked = time.monotonic()

            def pause() -> float:
                looks = cuts.under_way or (keeping is not None and keeping.waits)
                return LOOK if looks else REPORT

            def told_by_master(event: object) -> None:
                if isinstance(event, Lease):
                    leases.given(event)
                elif isinstance(event, Epoch):
                    let_go(server, event, led.trainers)
                elif isinstance(event, Welcome):
                    cuts.over()

            with (
                leaving(place.folder, index, member, InModel(server, led), rows, sending),
                keeping.left() if keeping else contextlib.nullcontext(),
            ):
                while not over(news, member, name, cuts, told_by_master, pause()):
                    if cuts.under_way:
                        cuts.tend()
                        continue
                    if keeping is not None and keeping.still(REPORT):
                        continue
                    pulled = report()["pulls"] > pulls
                    since, looked = looked, time.monotonic()
                    absent -= looked - since if pulled else 0.0
                    if absent <= 0.0:
                        server.let_go_absent()
                        absent = math.inf
                # Before rows are written: who reads them meanwhile keeps others from being evicted.
                led_record.end(server, led)


class InModel:
    """A policy server whose parameters are in the order of the model."""

    def __init__(self, server: _core.PolicyServer, led: LedMode) -> None:
        self._server, self._led = server, led
        self.standing, self.counters, self.quiet = server.standing, server.counters, server.quiet

    @property
    def parameters(self) -> NDArray[np.float32]:
        """A copy."""
        return self._led.in_model(self._server.parameters)


class Leased:
    """All batches of the run, which the master leases to whoever leads it.

    Args:
        member: asks for them.
        led: the mode.
        done: batches that were when the run began, which goes on.
    """

    def __init__(self, member: Member, led: LedMode, done: int) -> None:
        self._member = member
        self._led = led
        self._held: dict[int, int] = {}  # batches of leases that are not complete, by ticket
        self._told = done  # of those that are
        self._wanted = _ENDLESS if led.batches is None else led.batches - self._told
        self._want()

    def given(self, lease: Lease) -> None:
        """The master has granted it."""
        self._held[lease.ticket] = lease.count
        self._wanted -= lease.count
        self._want()

    def used(self, examples: int) -> list[tuple[int, int]]:
        """Of each lease that was not complete when this was called last, its ticket, and how many of its
        batches the mode is done with, where so many examples are.
        """
        # (Behind a power cut the journal may know of less than the master was told.)
        done, found = max(0, self._led.done(examples) - self._told), []
        for ticket, count in list(self._held.items()):
            used = min(count, done)
            found.append((ticket, used))
            done -= used
            if used == count:
                del self._held[ticket]
                self._told += count
        return found

    def _want(self) -> None:
        """What is still wanted; nothing, of one that was started again behind the end."""
        if self._wanted > 0:
            self._member.want(min(self._wanted, _ENDLESS))
