"""Telling the mode of a run that goes on what to be: a connection to its policy server, which answers.

The connection proves the run's key. Then a word goes one way, and a line comes back: ``+`` and the updates
that the server has made, or ``-`` and why the mode was told nothing.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from leashed.base import checks
from leashed.cluster import plan as plans
from leashed.cluster.addressing import within
from leashed.cluster.opening import Peer, connect, read_key
from leashed.cluster.supervisor import read_report
from leashed.training.led_mode import COMMANDS

if TYPE_CHECKING:
    from leashed import _core
    from leashed.cluster.serving import Made

__all__ = ["PURPOSE", "Commanded", "command"]

PURPOSE = "command"
_PATIENCE = 5.0  # seconds for which the server waits for the word
_MOST = 1024  # bytes of a line

_log = logging.getLogger(__name__)


def command(
    folder: str | os.PathLike[str],
    to: str,
    *,
    key: str | os.PathLike[str] | None = None,
    timeout: float = 10.0,
) -> int:
    """Tell the mode of a run that goes on to be Sync, or GBA (docs/modes.md): of ``Switching``, ``GBA`` and
    ``Automatic``. It changes when the step that is under way is over.

    Args:
        folder: the run's, where its master is.
        to: ``"sync"`` or ``"gba"``.
        key: the file with the run's key. Default: that in the folder, or above it, or the one that its plan
            names.
        timeout: seconds that the policy server may take to be reached, and to answer.

    Returns:
        How many updates the server had made when the mode was told.

    Raises:
        FileNotFoundError: there is no run in the folder, or no key.
        TypeError, ValueError: ``to`` is neither, or ``timeout`` no time; the run is over, or has no policy
            server; all of its batches are done; its mode knows no commands.
        ConnectionError, TimeoutError: the policy server is not there, or does not answer.
        OSError: the report or the key cannot be read.
    """
    if to not in COMMANDS:
        raise ValueError(f"to must be {' or '.join(COMMANDS)}, got {to!r}")
    timeout = checks.seconds("timeout", timeout)
    folder = Path(folder)
    report = read_report(folder)
    if report is None:
        raise FileNotFoundError(f"{folder} has no run: give the folder of a run's master")
    if report["state"] != "running":
        raise ValueError(f"the run in {folder} is over: {report['reason']}")
    if not report["terms"].get("policy_ps", 0):
        raise ValueError(
            f"the run in {folder} has no policy server: only a run by a mode (--mode) can be told"
        )
    address = _address(report)
    with connect(
        address,
        read_key(_key_of(folder) if key is None else key),
        role=PURPOSE,
        name=within(report["run"], PURPOSE),
        purpose=PURPOSE,
        deadline=timeout,
        expected="policy-ps",
    ) as link:
        link.settimeout(timeout)
        try:
            link.sendall(f"{to}\n".encode())
            answer = _line(link)
        except TimeoutError:
            raise TimeoutError(
                f"policy server 0 at {address} does not answer within {timeout:g} s: whether its mode was "
                "told is in its log"
            ) from None
    if not answer:
        raise ConnectionResetError(
            f"policy server 0 at {address} has ended the connection: its log says why"
        )
    if answer[0] != "+":
        raise ValueError(answer[1:])
    return int(answer[1:])


def _address(report: dict[str, Any]) -> str:
    """Where the policy server of a run is reached; of several the first, which leads."""
    found = [
        member
        for member in report["members"]
        if member["role"] == "policy-ps" and member["index"] == 0
    ]
    for member in found:
        if member["gone"] is None:
            return str(member["address"])
    why = f"it has left ({found[-1]['why']})" if found else "it has not joined yet"
    raise ConnectionError(f"policy server 0 is not there: {why}")


def _key_of(folder: Path) -> Path:
    """The file with the key of the run in a folder. FileNotFoundError: that does not tell."""
    if (folder / "plan.toml").exists() and not (folder / "key").exists():
        return plans.read(folder / "plan.toml").cluster.key_file
    for each in (
        folder,
        folder.absolute().parent,
    ):  # (of trainers that have joined it is above their runs)
        if (each / "key").exists():
            return each / "key"
    raise FileNotFoundError(
        f"{folder} has no key, nor a plan that names one: give the key of the run's plan, as key= or "
        "--key FILE"
    )


def _line(link: socket.socket) -> str:
    """Up to its end, or the connection's."""
    with link.makefile("rb") as stream:
        return stream.readline(_MOST).decode("utf-8", "replace").rstrip("\n")


class Commanded:
    """Who tells a policy server's mode what to be, and how often it was told.

    Args:
        made: the server, once it is there.
        done: of the server's standing, whether all is trained, so that there is nothing to change.
        heed: called with 1 before the mode is told something that nobody tells it again, with -1 where it
            knows no such thing, and with 0 whenever it was told.
    """

    def __init__(
        self,
        made: Made,
        done: Callable[[dict[str, Any]], bool],
        heed: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._made = made
        self._done = done
        self._heed = heed
        self._lock = threading.Lock()
        self._count = 0
        self._last = 0

    def goes_on(self, count: int, last: int) -> None:
        """The mode was told so often before, and what last."""
        self._count, self._last = count, last

    def accept(self, link: socket.socket, peer: Peer) -> None:
        """What a listener calls with a connection for this purpose."""
        # (As a trainer's: no daemon, since it may be in the core when the interpreter ends.)
        threading.Thread(target=self._answer, args=(link, peer), daemon=False).start()

    def tell(
        self, server: _core.PolicyServer, argument: int, by: str, *, again: bool = False
    ) -> None:
        """Tell the mode; ``again``: it is told so once more, should it go back to before.

        Raises:
            ValueError: it knows no such command; then it was told nothing.
        """
        with self._lock:
            count = 0 if again else 1
            self._heed(count)
            try:
                server.command(argument)
            except BaseException:
                self._heed(-count)
                raise
            self._count += 1
            self._last = argument
            self._heed(0)
        _log.info("the mode was told to be %s, by %s", COMMANDS[argument], by)

    @property
    def last(self) -> int:
        """What it was told last; waits for nobody."""
        return self._last

    def counters(self) -> dict[str, float]:
        """How often it was told, and what last."""
        with self._lock:
            return {"mode_commands": float(self._count), "mode_told": float(self._last)}

    def _answer(self, link: socket.socket, peer: Peer) -> None:
        with link, contextlib.suppress(OSError):  # who has gone need not know
            link.settimeout(_PATIENCE)
            link.sendall(self._heard(link, peer).encode() + b"\n")

    def _heard(self, link: socket.socket, peer: Peer) -> str:
        try:
            run, made = self._made.result(_PATIENCE)
        except (concurrent.futures.CancelledError, concurrent.futures.TimeoutError):
            return "-the policy server is not ready, or ends"
        if not peer.name.endswith(within(run, "")):
            return f"-the policy server is of run {run}, not of that of {peer.name}"
        server = cast("_core.PolicyServer", made)
        to = _line(link)
        if to not in COMMANDS:
            return f"-a mode is told {' or '.join(COMMANDS)}, not {to!r}"
        standing = server.standing()
        if self._done(standing):
            return "-all batches of the run are done: there is nothing left to change"
        try:
            self.tell(server, COMMANDS.index(to), f"command from {peer.address}")
        except ValueError as error:
            return f"-{error}"
        return f"+{standing['updates']}"
