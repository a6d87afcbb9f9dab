"""Links of given bandwidth in front of policy servers, for trials over sockets.

A server is reached by another port than its own. Behind that its link is: what comes, each way, from all
workers, is passed on when all bytes that came before it have had their time. So who finds the link taken
waits, first come, first served, as in virtual time. What is late because of the processors is not late
twice: a piece's time is counted from when it came.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from leashed.base.closing import Closing

T = TypeVar("T")

_PIECE = 1 << 16  # bytes
_SPARE = 64  # ports: of servers and of trainers
_FIRST, _LAST = 20_000, 60_000


class _Direction:
    """One way of a link; when the last byte is through."""

    def __init__(self, bandwidth: float) -> None:
        self._bandwidth = bandwidth
        self._through = 0.0

    def carry(self, size: int, now: float) -> float:
        """When so many bytes, which come now, are through."""
        self._through = max(self._through, now) + size / self._bandwidth
        return self._through


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Direction
) -> None:
    """Carries all that comes until its end."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def passed_on() -> None:
        while True:
            due, data = await pieces.get()
            await asyncio.sleep(due - loop.time())
            if not data:
                return
            writer.write(data)
            await writer.drain()

    passing = asyncio.ensure_future(passed_on())
    try:
        while True:
            data = await reader.read(_PIECE)
            await pieces.put((link.carry(len(data), loop.time()), data))
            if not data:
                break
        await passing
    finally:
        passing.cancel()


class Links(Closing):
    """Of so many servers, until ``close``.

    Args:
        servers: how many.
        bandwidth: bytes per second of each, each way.

    Attributes:
        ports: the first of the servers' own ports, for ``lsh.cluster.join``.
        through: by the servers' own ports, as text, those of their links.
    """

    def __init__(self, servers: int, bandwidth: float) -> None:
        self.ports = _free(_SPARE)
        self._listening: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.through = {
            str(self.ports + k): self._run(self._listen(self.ports + k, bandwidth))
            for k in range(servers)
        }

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _listen(self, port: int, bandwidth: float) -> int:
        up, down = _Direction(bandwidth), _Direction(bandwidth)

        async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                there, to_server = await asyncio.open_connection("127.0.0.1", port)
            except OSError:  # the worker tries again
                writer.close()
                return
            both = [
                asyncio.ensure_future(_pump(reader, to_server, up)),
                asyncio.ensure_future(_pump(there, writer, down)),
            ]
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            to_server.close()
            writer.close()

        server = await asyncio.start_server(met, "127.0.0.1", 0)
        self._listening.append(server)
        found: int = server.sockets[0].getsockname()[1]
        return found

    async def _end(self) -> None:
        for server in self._listening:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.0)  # until transports have closed their sockets

    def close(self) -> None:
        """Ends them."""
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _free(count: int) -> int:
    """The first of so many ports in a row that are free now."""
    for first in range(_FIRST, _LAST, count):
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + count):
                    one = held.enter_context(socket.socket())
                    one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise OSError(f"no {count} ports in a row are free")
