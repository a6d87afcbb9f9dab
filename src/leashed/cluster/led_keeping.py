"""What a policy server leaves to the process that is started in its place: snapshots of all that its mode, its
rule and its tables have, whatever is under way meanwhile; and beside them how many pushes there ever were, in
a file that is written with each of them, so that a restart tells exactly what it has undone.

Where it is the only one the run goes on from its newest snapshot: leases of then are granted again, and what
was heard since is trained anew, as if it had never been. While workers sum among themselves they have the
parameters, which come home for a snapshot (``led_home``). Of several the first is ``led_first_keeping``'s, and
those behind it are ``led_part_keeping``'s.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import secrets
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.cluster.keeping import Keeping, replacing
from leashed.cluster.led_home import Homing
from leashed.cluster.led_leaving import Holds, forget
from leashed.cluster.led_rows import LedRows
from leashed.cluster.lives import boot
from leashed.cluster.messages import Kept
from leashed.cluster.mode_report import heard
from leashed.cluster.row_files import WRITTEN
from leashed.cluster.serving import Place
from leashed.training.led_mode import Journal, LedMode, numbered

if TYPE_CHECKING:
    from leashed.cluster.led_commands import Commands

__all__ = [
    "Ever",
    "LedKeeping",
    "ServerKeeping",
    "Snapshot",
    "head_of",
    "keeps",
    "read",
    "tell_lost",
    "write",
]

_WORDS = 8  # of the file beside snapshots
_RUN, _BOOT, _LIVES, _COMMANDS, _PUSHES, _EXAMPLES, _DONE, _SCHEDULED = range(_WORDS)
_COMES = 5.0  # seconds, at most, for which parameters are waited for at the end
_BAD = "damaged: remove it, and begin another run"

_log = logging.getLogger(__name__)


class Snapshot(NamedTuple):
    """What a server goes on from.

    Attributes:
        told: JSON's own types: ``run``; ``batches`` that were done (0, where another server leases them);
            ``pushes`` and ``examples`` that were heard; ``nodes``; and of who leads seconds that had ``passed``
            since the first grant, and ``elapsed`` of the mode's time, how many ``commands`` the mode was told,
            without those of its schedule, and how many of these (``scheduled``), what ``last``, and the first
            ``line`` of its journal that is not in it.
        state: of the mode and its rule.
        served: lanes and counts.
    """

    told: Mapping[str, Any]
    state: _core.Resumption
    served: NDArray[np.uint64]


def keeps(led: LedMode, place: Place) -> bool:
    """Whether a server leaves anything to the next one: where that is started at all. A record goes on over no
    restart, and of several servers whose workers sum none does.
    """
    alone = led.servers == 1 or not led.reduces
    return place.restarts and alone and led.record is None


def write(file: BinaryIO, kept: Snapshot) -> None:
    """Write one. OSError where it cannot be."""
    state = kept.state
    words, vectors = state.mode
    arrays: list[NDArray[Any]] = [
        np.asarray(state.vectors, np.float32),
        np.asarray(state.last_updates, np.float32),
        np.asarray(state.behind, np.float32),
        np.asarray(state.staleness, np.uint64),
        np.asarray(words, np.uint64),
        np.asarray(vectors, np.float32),
        kept.served,
    ]
    total, ends, shrunk = state.shrink
    head = {
        **kept.told,
        "updates": state.updates,
        "taken": state.batches,
        "shrink": [float(total).hex(), [float(each).hex() for each in ends], int(shrunk)],
        "sums": [zlib.crc32(np.ascontiguousarray(each).data) for each in arrays],
    }
    file.write(_line_of(head))
    for each in arrays:
        np.save(file, each, allow_pickle=False)
    file.flush()
    os.fsync(file.fileno())


def read(path: Path) -> Snapshot:
    """Read what ``write`` has written there.

    Raises:
        FileNotFoundError: nothing.
        ValueError: it is damaged.
    """
    with path.open("rb") as file:
        try:
            told = _head_in(file.readline())
            arrays = [np.load(file, allow_pickle=False) for _ in told["sums"]]
            sums = [zlib.crc32(each.data) for each in arrays]
            vectors, last_updates, behind, staleness, words, more, served = arrays
            total, ends, shrunk = told["shrink"]
        except (EOFError, KeyError, MemoryError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is {_BAD}: {error}") from error
    if sums != told["sums"]:
        raise ValueError(f"{path} is {_BAD}: its checksum is another")
    state = _core.Resumption(
        vectors=vectors,
        last_updates=last_updates,
        updates=told["updates"],
        batches=told["taken"],
        initial_loss=float("nan"),
        staleness=staleness.tolist(),
        behind=behind,
        shrink=(float.fromhex(total), [float.fromhex(each) for each in ends], shrunk),
        mode=(words, more),
    )
    return Snapshot(told, state, served)


def head_of(path: Path) -> dict[str, Any] | None:
    """What one tells without its state; None: there is none that can be read."""
    try:
        with path.open("rb") as file:
            return _head_in(file.readline())
    except (OSError, ValueError):
        return None


def _line_of(head: Mapping[str, Any]) -> bytes:
    """The line of a snapshot that tells all but its arrays, with a checksum."""
    return json.dumps({**head, "sum": _sum_of(head)}).encode() + b"\n"


def _head_in(line: bytes) -> dict[str, Any]:
    """What such a line tells. ValueError where it is damaged."""
    told = json.loads(line)
    if not isinstance(told, dict) or told.pop("sum", None) != _sum_of(told):
        raise ValueError("the checksum of its first line is another")
    return told


def _sum_of(head: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(head).encode())


class Ever:
    """Numbers of a run's policy server that outlive its process, in a file that all its lives write to, one
    at a time: pushes that its mode was told of, and their examples, counted by whoever is told, before it is;
    commands; lives; and what its clients know it by.

    Args:
        path: the file.

    Raises:
        BlockingIOError: another process has it.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b")
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BlockingIOError(
                    errno.EAGAIN,
                    "another policy server of the run still has it; end that one",
                    str(path),
                ) from None
            whole = 8 * _WORDS
            if path.stat().st_size != whole:
                self._file.truncate(0)
                self._file.write(bytes(whole))  # (Not by truncate, which finds no disk full.)
                self._file.flush()
            self._words = np.memmap(path, np.uint64, "r+", shape=(_WORDS,))
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Another process may have it. Who counts on must have ended."""
        self._file.close()

    def remove(self) -> None:
        """Nobody asks for it any more."""
        with contextlib.suppress(OSError):
            Path(self._file.name).unlink()

    def of(self, run: str) -> bool:
        """Whether a server of that run has begun to write to it."""
        return int(self._words[_RUN]) == numbered(run) and self.lives > 0

    def begin(self, run: str) -> None:
        """Another life of that run's; of another run all begins anew."""
        if not self.of(run):
            self._words[:] = 0
            self._words[_BOOT] = boot()
            self._words[_RUN] = numbered(run)
        self._words[_LIVES] += np.uint64(1)

    @property
    def boot(self) -> int:
        """By which clients know that it goes on from what it has kept."""
        return int(self._words[_BOOT])

    @property
    def lives(self) -> int:
        """How many processes there were."""
        return int(self._words[_LIVES])

    @property
    def pushes(self) -> NDArray[np.uint64]:
        """How many, and of how many examples, for who counts them."""
        return np.asarray(self._words[_PUSHES : _EXAMPLES + 1])

    @property
    def commands(self) -> int:
        """That were told."""
        return int(self._words[_COMMANDS])

    @commands.setter
    def commands(self, count: int) -> None:
        self._words[_COMMANDS] = count

    @property
    def done(self) -> int | None:
        """Batches that are, as the master was told; None: it was told nothing."""
        told = int(self._words[_DONE])
        return told - 1 if told else None

    @done.setter
    def done(self, batches: int) -> None:
        self._words[_DONE] = batches + 1

    @property
    def scheduled(self) -> int:
        """Commands of its own schedule that the mode was told."""
        return int(self._words[_SCHEDULED])

    @scheduled.setter
    def scheduled(self, count: int) -> None:
        self._words[_SCHEDULED] = count

    def flush(self) -> None:
        """What was counted is to outlast a power cut. OSError where it cannot."""
        self._words.flush()


class _Undone:
    """A ``Tally`` of examples; what there ever was is written by who counts it."""

    def __init__(self, ever: Ever, lost: int) -> None:
        self._ever = ever
        self.lost = lost

    def keep(self, _: int) -> None:
        pass

    def sync(self) -> None:
        self._ever.flush()


class ServerKeeping:
    """Goes on from what is kept, and keeps it, whichever server it is.

    Args:
        led: the mode.
        place: where it has its run.
        rows: of tables, which are kept with it. None: there are none.
        index: of the server.

    Raises:
        OSError: the run's folder cannot be written, or another process has this place.
    """

    def __init__(self, led: LedMode, place: Place, rows: LedRows | None, index: int = 0) -> None:
        self._led = led
        self._rows = rows
        self._index = index
        self._folder = place.folder
        self._path = place.folder / f"policy-ps-{index}.snapshot"
        self._every = place.snapshot_every
        place.folder.mkdir(parents=True, exist_ok=True)
        self._ever = Ever(place.folder / f"policy-ps-{index}.ever")
        self._run = ""
        self._serving: tuple[Holds, Keeping] | None = None
        self._taken: Snapshot | None = None
        self._pushes = 0  # of the newest snapshot
        self._undone = self._undone_pushes = 0
        self._restored = False
        self._named = self._path.name  # of the newest snapshot
        self._written = 0
        self._stalled = self._longest = 0.0

    def close(self) -> None:
        """Another process may have this place."""
        self._ever.close()

    def offer(self) -> Kept | None:
        """How many batches are done, of which run, where the next server goes on; None: there is nothing."""
        told = self._told()
        if told is None and self._ever.lives > 0:
            _log.warning(
                "nothing can be read of what a policy server before this one has kept in %s (%s): if it was of "
                "this run, that ends",
                self._folder,
                f"{self._path.name}*",
            )
        if told is None or not self._ever.of(told["run"]):
            return None
        return Kept(told["run"], told["batches"])

    def begin(self, run: str) -> Snapshot | None:
        """This process is the run's server now: makes the folder of rows, or loads those that are kept.

        Args:
            run: the run's name.

        Returns:
            What it goes on from; None: from where the run begins, which is yet to be read, and takes long:
            killed meanwhile, the next one begins anew.

        Raises:
            ValueError: that is damaged, or what is in the folder is another run's.
            OSError: it cannot be read, or nothing be written.
        """
        self._run = run
        told, again = self._told(), self._ever.of(run)
        kept = None
        if again:
            forget(self._folder, self._index)
        if again and told is not None and told["run"] == run and told["sums"]:
            kept = read(self._path.with_name(told["file"]))
            self._named, self._restored = told["file"], True
            if self._rows is not None:
                self._rows.restore(run)
        else:
            if self._rows is not None:
                self._rows.begin(anew=again)
            with replacing(self._path, ".snapshot-new") as file:
                file.write(_line_of(self._of_beginning(run)))
        self._ever.begin(run)
        then = self._of_beginning(run) if kept is None else kept.told
        self._undone_pushes = int(self._ever.pushes[0]) - then["pushes"]
        self._undone = int(self._ever.pushes[1]) - then["examples"]
        self._began(then, again=again)
        return kept

    def _began(self, then: Mapping[str, Any], *, again: bool) -> None:
        """It goes on from that; tells what is undone, where it was started ``again``."""
        raise NotImplementedError

    @property
    def boot(self) -> int:
        """As of ``LedMode.server``: that of the process before it."""
        return self._ever.boot

    @property
    def pushes(self) -> NDArray[np.uint64]:
        """Likewise."""
        return self._ever.pushes

    def _keeps(self, server: Holds) -> None:
        """Keeps that one from now on."""
        # All rows, where there is nothing yet of which changes would be written.
        anew = self._rows is not None and not self._restored
        sizes = self._rows.report()["row_bytes"] if self._rows is not None and anew else 0.0
        pushes = heard(server.counters())
        self._serving = (
            server,
            Keeping(
                lambda: heard(server.counters()),
                self._save,
                _Undone(self._ever, self._undone),
                pushes,
                self._every,
                sizes / WRITTEN,
            ),
        )
        if self._rows is not None:
            self._rows.beside = self

    @contextlib.contextmanager
    def left(self) -> Iterator[None]:
        """Where what is done within fails, or is told to end, all is kept for the next process; else the run
        is over, and nothing is left.
        """
        try:
            yield
        except BaseException:
            if self._rows is None:  # (Else with the rows.)
                self._served[1].hurry()
                self._served[1].end()
            raise
        if self._rows is not None:
            self._rows.beside = None
        self._tidy("")
        self._ever.remove()

    def moment(self) -> None:
        """While nobody is served: takes what is to be kept; nothing of a mode that can go on no more, whose state
        is whatever it has become.
        """
        begun = time.monotonic()
        server, _ = self._served
        standing, counted = server.standing(), server.counters()
        if standing["failure"]:
            self._taken = None
            return
        told, state, served = self._moment({**standing, **counted})
        told = {"run": self._run, "pushes": heard(counted), **told}
        self._taken = Snapshot(told, state, served)
        seconds = time.monotonic() - begun
        self._stalled += seconds
        self._longest = max(self._longest, seconds)

    def _moment(self, now: Mapping[str, Any]) -> Snapshot:
        """What is kept of the server, but for the run and its pushes; ``now``: how it stands, and has counted."""
        raise NotImplementedError

    def put(self) -> dict[str, Any]:
        """Writes what was taken last, beside rows of the same moment; what is told of it with these."""
        if self._taken is None:
            return {}  # nobody goes on from these
        newest = self._told()
        self._tidy(
            self._named if newest is None else newest["file"]
        )  # (Of one that failed behind this.)
        name = f"{self._path.name}.{self._taken.told['pushes']}-{secrets.token_hex(4)}"
        path = self._path.with_name(name)
        try:
            with path.open("wb") as file:
                write(file, self._taken)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return {"mode": name, "batches": self._taken.told["batches"]}

    def was_put(self, told: Mapping[str, Any]) -> None:
        """The rows are there, with what was told of that."""
        if self._taken is None:
            return
        self._was_written(self._taken)
        self._named = told["mode"]
        self._tidy(self._named)

    def counters(self) -> dict[str, float]:
        """What is reported of it: how often it was started again, pushes that were undone by that, and their
        examples, ``snapshots``, ``snapshots_failed``, and seconds for which they kept workers waiting, in all
        (``stalled``) and at most at once (``stall``).
        """
        _, keeping = self._served
        return {
            "restarts": self._ever.lives - 1.0,
            "undone_pushes": float(self._undone_pushes),
            "undone_examples": float(self._undone),
            "snapshots": float(self._written),
            "snapshots_failed": keeping.counters()["snapshots_failed"],
            "stalled": self._stalled,
            "stall": self._longest,
        }

    @property
    def _served(self) -> tuple[Holds, Keeping]:
        assert self._serving is not None, "nobody is kept yet"
        return self._serving

    def _save(self) -> int:
        server, _ = self._served
        if self._rows is not None:
            self._rows.save(self._run, server)
        else:
            server.quiet(self.moment)
            if self._taken is None:
                raise OSError("the mode can go on no more")
            with replacing(self._path, ".snapshot-new") as file:
                write(file, self._taken)
            self._was_written(self._taken)
        return self._pushes

    def _was_written(self, taken: Snapshot) -> None:
        self._pushes, self._taken = int(taken.told["pushes"]), None
        self._written += 1

    def _told(self) -> dict[str, Any] | None:
        """Of the newest snapshot, with its ``file``."""
        name: str | None = self._path.name
        if self._rows is not None and (told := self._rows.told()) is not None:
            name = told.get("mode")
        told = None if name is None else head_of(self._path.with_name(name))
        return None if told is None else {**told, "file": name}

    def _of_beginning(self, run: str) -> dict[str, Any]:
        """The head of a snapshot of no state: the run begins."""
        none = dict.fromkeys(("batches", "pushes", "examples", "commands", "line"), 0)
        return {"run": run, **none, "sums": []}

    def _tidy(self, but: str) -> None:
        """Removes all snapshots but that of this name."""
        for path in self._path.parent.glob(f"{self._path.name}*"):
            if path.name != but:
                with contextlib.suppress(OSError):
                    path.unlink()


def tell_lost(then: Mapping[str, Any], pushes: int, examples: int) -> None:
    """Of several servers one goes on from that, and so many pushes were lost for its part."""
    _log.warning(
        "started again: goes on from %s pushes; with all restarts %s pushes, of %s examples, are lost for its part "
        "of the parameters",
        f"{then['pushes']:,}",
        f"{pushes:,}",
        f"{examples:,}",
    )


class LedKeeping(ServerKeeping):
    """Of the only server of a run, which has all parameters.

    Args:
        led, place, rows: as of ``ServerKeeping``.

    Raises:
        OSError: the run's folder cannot be written, or another process has this place.
    """

    def __init__(self, led: LedMode, place: Place, rows: LedRows | None) -> None:
        super().__init__(led, place, rows)
        self._server: _core.PolicyServer | None = None
        self._home: Homing | None = None
        self._passed: Callable[[], tuple[float, int, int]] = lambda: (0.0, 0, 0)
        self._undone_commands = 0
        self._done = False

    def commanded(self, more: int) -> None:
        """The mode is to be told so many things more; 0: it was, which is kept soon, since nobody tells it again."""
        self._ever.commands += more
        if not more and self._serving is not None:
            self._serving[1].hurry()

    @property
    def again(self) -> int:
        """How many processes of the server there were in the run before this one, which has begun."""
        return self._ever.lives - 1

    def journal(self, then: Snapshot | None) -> Journal | None:  # noqa: ARG002 (the first of several has one)
        """Of a server that goes on from that; None: it has none."""
        return None

    def goes_on(
        self,
        then: Snapshot | None,
        server: _core.PolicyServer,  # noqa: ARG002 (the first of several asks it)
        commands: Commands,
    ) -> None:
        """The server goes on from that: what it was told, and is still to be told, is that of then."""
        if then is None:
            return
        told = then.told
        scheduled = told["scheduled"]
        commands.goes_on(told["passed"], scheduled, told["commands"] + scheduled, told["last"])

    def known(self, done: int) -> int:
        """Batches that the master knows to be done, where so many are when the server begins, or goes on."""
        return done

    def done(self, batches: int) -> None:
        """So many are, which the master is to be told."""

    def scheduled(self, commands: int) -> None:
        """So many of the mode's own it was told."""

    def serve(
        self, server: _core.PolicyServer, passed: Callable[[], tuple[float, int, int]]
    ) -> None:
        """Keeps that one from now on; ``passed``: seconds since the first grant, how many commands of its
        schedule the mode was told, and what last; must wait for nobody.
        """
        self._server, self._passed = server, passed
        self._home = Homing(server)
        self._keeps(server)

    @property
    def waits(self) -> bool:
        """Whether a snapshot is due for which workers are yet to send parameters; ``keep`` has asked for them."""
        return self._home is not None and self._home.waits

    def still(self, seconds: float) -> bool:
        """Whether ``keep`` has nothing to do but wait for them, for less than so long."""
        return self._home is not None and self._home.still(seconds)

    def keep(self, pushes: int, *, done: bool) -> None:
        """There were so many: writes what is due. ``done``: all is trained, which nobody is told before it is
        kept, if that can be.
        """
        assert self._server is not None, "serve() comes first"
        assert self._home is not None, "likewise"
        _, keeping = self._served
        ends = done and not self._done
        if ends:
            keeping.hurry()
        if keeping.due(pushes):
            if not self._home.come():
                return
            try:
                keeping.keep(pushes)
            finally:
                self._home.go()
        if ends:
            self._done = True
            self._server.let_end()

    @contextlib.contextmanager
    def left(self) -> Iterator[None]:
        """As of ``ServerKeeping``; parameters that workers have are waited for, but not for long."""
        with super().left():
            try:
                yield
            except BaseException:
                if self._home is not None:
                    self._home.await_(_COMES)
                raise

    def counters(self) -> dict[str, float]:
        """As of ``ServerKeeping``, and commands that were undone."""
        return {**super().counters(), "undone_commands": float(self._undone_commands)}

    def _began(self, then: Mapping[str, Any], *, again: bool) -> None:
        self._undone_commands = self._ever.commands - then["commands"]
        if again:
            _log.warning(
                "started again: goes on from %s batches; with all restarts %s pushed examples are trained anew",
                f"{then['batches']:,}",
                f"{self._undone:,}",
            )
        if self._undone_commands:
            _log.warning(
                "%d commands that the mode was told since are undone in all: tell it anew",
                self._undone_commands,
            )

    def _moment(self, now: Mapping[str, Any]) -> Snapshot:
        assert self._server is not None, "serve() comes first"
        if not self._server.is_home:
            raise OSError("workers have parameters that they have not sent")
        (state, nodes, *_), served, line = self._server.keep(self._led.batch_size)
        self._server.stay_home(False)
        passed, scheduled, last = self._passed()
        done = now["done"]
        whole = self._led.batches is not None and done >= self._led.examples
        told = {
            "batches": self._led.batches if whole else done // self._led.batch_size,
            "examples": now["pushed_examples"] + now["summed_examples"],
            "nodes": nodes,
            "passed": passed,
            "commands": now["commands"] - scheduled,
            "scheduled": scheduled,
            "last": last,
            "elapsed": now["elapsed"],
            "line": line,
        }
        return Snapshot(told, state, served)
