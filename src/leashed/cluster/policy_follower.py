"""Policy servers behind the first of several: each has a part of the parameters, and rows of tables, and
connects to the first, which tells it what its mode has heard, or that all is over (docs/transport.md).
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from pathlib import Path
from typing import Protocol

from leashed import _core
from leashed.cluster import led_record
from leashed.cluster.addressing import is_local, within
from leashed.cluster.checkpoints import Checkpoint
from leashed.cluster.cut_tending import ServerCuts
from leashed.cluster.led_bringing import Sending
from leashed.cluster.led_checkpoint import begun, save_part
from leashed.cluster.led_cuts import LOOK, PartCuts
from leashed.cluster.led_leaving import leaving, telling
from leashed.cluster.led_part_keeping import PartKeeping
from leashed.cluster.led_rows import LedRows
from leashed.cluster.lives import SLOTS, boot
from leashed.cluster.member import Member
from leashed.cluster.messages import Epoch, Saved, Servers, Welcome
from leashed.cluster.mode_report import told_of
from leashed.cluster.opening import connect
from leashed.cluster.readiness import await_made
from leashed.cluster.server_tending import POLICY
from leashed.cluster.serving import REPORT, Place, accepting, making, over
from leashed.training.led_mode import LedMode, numbered

__all__ = ["TOLD", "follow", "let_go"]

TOLD = "told"
"""What a connection to the first is for."""

_PATIENCE = 5.0  # seconds for a connection to be made
_AGAIN = 0.2  # before it is tried again
_LOOK = 0.02  # between two looks, until there is one
_AWAY = 60.0  # for which the first is in the run and not reached, before this one gives up
_HOLDS = 1.0  # after which a connection is one: who is refused has none

_log = logging.getLogger(__name__)


class Leads(Protocol):
    """What of the core has connections of trainers' lanes."""

    def let_go(self, first: int, clients: int) -> None:
        """Those of a process that is gone, or hangs."""


def let_go(server: Leads, epoch: Epoch, trainers: int) -> None:
    """Whoever is no trainer of the run any more has no batches: he is gone, or hangs."""
    there = {seat.index for seat in epoch.members}
    for index in range(trainers):
        if index not in there:
            server.let_go(index * SLOTS, SLOTS)


def follow(
    led: LedMode,
    index: int,
    place: Place,
    words: dict[str, str],
    rows: LedRows | None = None,
    keeping: PartKeeping | None = None,
) -> None:
    """Have a part of the parameters of a mode until the run has ended.

    Args:
        led: the mode.
        index: of the server, from 1.
        place: where it has its run.
        words: what all of the run must have alike.
        rows: of tables, that it has too. Default: none.
        keeping: goes on from what it has kept, and keeps it. Default: nothing is kept.

    Raises:
        ValueError: the run is another, or the server can go on no more.
        OSError: the master cannot be reached (any more), or the first server not at all, or rows not be
            written.
    """
    with (
        making() as made,
        place.joined(
            "policy-ps",
            index,
            accepting(made, POLICY, place.transport),
            words,
            None if keeping is None else keeping.offer(),
            returns=keeping is not None,
        ) as (member, heard),
        telling(member),
    ):
        name = member.welcome.run
        server = _made(led, index, place, name, rows, keeping)
        following = Following(server, member, place)
        sending = Sending(place, index, name)

        def put(folder: Path) -> list[Saved]:
            return save_part(folder, index, server, rows, name)

        saves = ServerCuts(member, place.cuts or place.folder, place.resume, put)
        cuts = PartCuts(member, server, saves)
        told = 0.0

        def heed(event: object) -> None:
            if isinstance(event, Epoch):
                let_go(server, event, led.trainers)
            elif isinstance(event, Servers):
                following.told(event)
            elif isinstance(event, Welcome):
                cuts.over()

        def seconds() -> float:
            if cuts.under_way:
                return LOOK
            return REPORT if server.follows else _LOOK

        with (
            leaving(place.folder, index, member, server, rows, sending),
            keeping.left() if keeping else contextlib.nullcontext(),
        ):
            while not over(heard, member, name, cuts, heed, seconds()):
                following.tend()
                cuts.tend()
                # (One that was started again has to hear first what is done.)
                if not made.done() and not server.asks:
                    made.set_result((name, server))
                if time.monotonic() < told + REPORT:
                    continue
                told = time.monotonic()
                standing, counted = server.standing(), server.counters()
                if standing["failure"]:
                    raise ValueError(f"the mode can go on no more: {standing['failure']}")
                metrics = {**told_of(standing, counted), **sending.counters()}
                metrics["position"] = float(standing["position"])
                if keeping is not None:
                    keeping.keep(int(counted["pushes"]))
                    metrics |= keeping.counters()
                if rows is not None:
                    metrics |= led_record.told_of(rows, server, led)
                member.report(metrics)
            led_record.rest(server, led, following.tend)


def _made(
    led: LedMode,
    index: int,
    place: Place,
    run: str,
    rows: LedRows | None,
    keeping: PartKeeping | None,
) -> _core.PartServer:
    """The server of that index, of the run of that name, as it goes on or begins, and its rows; raises as
    ``follow``.
    """
    cut = None if place.resume is None else Checkpoint(place.resume)
    then = None
    if keeping is not None:
        then = keeping.begin(run)
    elif rows is not None:
        rows.begin()
    state, leads = None, False
    if then is not None:
        state = then.state, then.told["nodes"]
    elif cut is not None:
        begins = begun(led, cut, index)
        state, leads = begins.state, begins.leads
        if rows is not None:
            rows.load(cut)
    server = led.follower(
        index,
        numbered(run),
        keeping.boot if keeping else boot(),
        state,
        () if rows is None else rows.native,
        None if then is None else then.served,
        None if keeping is None else keeping.pushes,
        leads=leads,
        again=keeping is not None and keeping.again,
    )
    if keeping is not None:
        keeping.serve(server)
    return server


class Following:
    """The connection to the first server, made again whenever it has ended.

    Args:
        server: follows.
        member: of the run.
        place: where that is.
    """

    def __init__(self, server: _core.PartServer, member: Member, place: Place) -> None:
        self._server = server
        self._member = member
        self._place = place
        self._address: str | None = None
        self._thread: threading.Thread | None = None
        self._why = ""
        self._since = math.inf  # when it was there, and not yet reached
        self._followed = math.inf  # since when there is a connection

    def told(self, servers: Servers) -> None:
        """Which servers are there."""
        self._address = servers.addresses["policy-ps"].get(0)

    def tend(self) -> None:
        """Begins to make it, where there is none, and the first server is known.

        Raises:
            ConnectionError: it is in the run, and was not reached for too long.
        """
        now = time.monotonic()
        if self._address is None:
            self._since = math.inf
            return
        if self._server.follows:
            self._followed = min(self._followed, now)
            if now >= self._followed + _HOLDS:
                self._since = math.inf
            return
        if self._followed < math.inf:
            self._followed, self._why = math.inf, "it ends the connection, and its log may say why"
        self._since = min(self._since, now)
        if now >= self._since + _AWAY:
            raise ConnectionError(
                f"policy server 0 at {self._address} is not reached for {_AWAY:g} s: "
                f"{self._why or 'it does not answer'}; see that this machine reaches that address, where ports "
                "are not all open by ports= of join, or in a plan's [cluster]"
            )
        if self._thread is not None and self._thread.is_alive():
            return
        # (No daemon, as it would abort the process were it in the core when the interpreter ends.)
        self._thread = threading.Thread(target=self._connect, args=(self._address,), daemon=False)
        self._thread.start()

    def _makes(self) -> None:
        """The first says that it still makes its parameters, and is waited for."""
        self._since = math.inf

    def _connect(self, address: str) -> None:
        try:
            with connect(
                address,
                self._place.key,
                role="policy-ps",
                name=within(self._member.welcome.run, self._member.name),
                purpose=TOLD,
                deadline=_PATIENCE,
                expected="policy-ps",
            ) as link:
                await_made(link, _PATIENCE, self._makes)
                checked = not is_local(address)
                self._server.follow(link.detach(), checked, self._place.transport)
        except (OSError, ValueError) as error:
            if self._why != str(error):
                _log.info("policy server 0 at %s: %s", address, str(error))
            self._why = str(error)
            time.sleep(_AGAIN)
