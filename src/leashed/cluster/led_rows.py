"""The tables whose rows a policy server has, or of several servers its own of them: they are in its
memory, and at each cut and when the run is over in a folder of the run's, as an embedding server leaves
its (``row_files``).
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from leashed import _core
from leashed.cluster import checkpoints, fingerprint, row_files
from leashed.cluster.messages import Saved
from leashed.cluster.mode_report import heard
from leashed.cluster.table_terms import TableTerms, settings_json
from leashed.files import folders
from leashed.models.tables import Refusals
from leashed.training import recordings

__all__ = ["TOLD", "Beside", "LedRows", "Served", "folder_of", "last"]

_log = logging.getLogger(__name__)


def folder_of(run: Path, index: int = 0) -> Path:
    """Of a policy server, in its run's."""
    return run / f"policy-ps-{index}"


class Served(Protocol):
    """What the core's policy servers have of it."""

    def standing(self) -> dict[str, Any]:
        """``updates``: how many there are."""

    def counters(self) -> dict[str, Any]:
        """``pushes``: that have come."""

    def quiet(self, f: Callable[[], None], /) -> None:
        """Calls it while nobody is served."""


TOLD = "this was told to end while it wrote them"


def last(write: Callable[[], None], unsaved: str, *, told: bool) -> None:
    """Writes what is to be kept at an end. Who is told to end meanwhile, and has not been (``told``), as a run's
    processes are all at once, does so when it has written it, from the beginning.

    Raises:
        KeyboardInterrupt: it was told to end; once more where it had been, with ``unsaved`` in the log.
    """
    ended: KeyboardInterrupt | None = None
    heard: list[int] = []
    while True:
        try:
            with _deferred(told=told or ended is not None) as heard:
                write()
        except KeyboardInterrupt as error:  # (The first may have come just before.)
            if told or ended is not None or heard:
                _log.error("%s", unsaved)
                raise
            ended = error
        else:
            break
    if ended is not None:
        raise ended
    if heard:
        raise KeyboardInterrupt


@contextlib.contextmanager
def _deferred(*, told: bool) -> Iterator[list[int]]:
    """A first signal to end that comes within is only noted; a second one, or the first where it was ``told`` before,
    is an interrupt.
    """
    heard: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # which alone hears of them
        yield heard
        return

    def hear(number: int, _: object) -> None:
        heard.append(number)
        if told or len(heard) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Beside(Protocol):
    """What is kept beside rows, and is of the same moment."""

    def moment(self) -> None:
        """While nobody is served: it is taken."""

    def put(self) -> dict[str, Any]:
        """It is written; what is told of it with the rows. OSError where it cannot be."""

    def was_put(self, told: dict[str, Any], /) -> None:
        """The rows are there, with what was told."""


class LedRows:
    """Tables, which are new until the run begins.

    Args:
        terms: which, and by what rows are updated.
        placement: of several servers which one has which rows; None: there is one.
        run: the run's folder.
        index: of the server.

    Attributes:
        beside: is kept whenever rows are. None: nothing is.

    Raises:
        TypeError, ValueError: as ``tables.of``.
    """

    def __init__(
        self, terms: TableTerms, placement: _core.RowPlacement | None, run: Path, index: int = 0
    ) -> None:
        self._terms = terms
        self._folder = folder_of(run, index)
        self._tables = terms.whole() if placement is None else terms.parts(placement, index)
        self._refusals = Refusals(self._tables, since_made=True)
        self.beside: Beside | None = None

    @property
    def native(self) -> list[_core.Table]:
        """The core's, in the order of the model."""
        return [table.native for table in self._tables.values()]

    def recorded(self, record: tuple[str, str]) -> tuple[str, str]:
        """The file of a record, and its header, that has what the tables are made from too."""
        path, header = record
        whole = self._tables if self._terms.servers == 1 else self._terms.slices()
        return path, recordings.looking_up(header, whole)

    @property
    def words(self) -> dict[str, str]:
        """What all of the run must have alike of them."""
        read = self._terms.read
        return {
            **fingerprint.of_rows(read.rule, read.staleness, read.seed),
            **fingerprint.of_tables(settings_json(self._terms.settings)),
        }

    def report(self) -> dict[str, float]:
        """What is told of them, as ``row_files.counters`` has it; ids that were refused a row are warned of."""
        self._refusals.look()
        return row_files.counters(self._tables)

    def told(self) -> dict[str, Any] | None:
        """What was told with the rows that are in the folder; None: there are none."""
        try:
            return dict(folders.Rows(self._folder, hashed=False).told)
        except (OSError, ValueError):
            return None

    def restore(self, run: str) -> None:
        """Load the rows that are in the folder.

        Raises:
            ValueError: they are damaged, or of another run or other tables.
            OSError: a file cannot be read.
        """
        found = folders.Rows(
            self._folder, hashed=False
        )  # (as of an embedding server that is started again)
        if found.told["run"] != run:
            raise ValueError(f"{self._folder} is of another run; choose another folder")
        found.load(self._tables)

    def begin(self, begins: checkpoints.Checkpoint | None = None, *, anew: bool = False) -> None:
        """Make the folder; one in which nothing was trained yet is begun anew.

        Args:
            begins: whose rows the run goes on from. Default: it begins.
            anew: also where something may have been trained, of this run.

        Raises:
            ValueError: there are rows in it; or what the run goes on from is damaged, or of other tables.
            OSError: it cannot be made, or a file not be read.
        """
        try:
            self._folder.mkdir()
        except FileExistsError:
            if not anew and self._has_rows():
                raise ValueError(
                    f"{self._folder} is there, with rows that another policy server has left: begin another "
                    "run, in another folder"
                ) from None
            shutil.rmtree(self._folder)
            self._folder.mkdir()
        if begins is not None:
            self.load(begins)

    def load(self, begins: checkpoints.Checkpoint) -> None:
        """Rows that the run goes on from; raises as ``begin``."""
        folders.load_rows(begins.rows(), self._tables)

    def _has_rows(self) -> bool:
        """Whether something is in the folder that may have been trained."""
        if not any(self._folder.iterdir()):
            return False
        try:
            told = folders.Rows(self._folder, hashed=False).told
            counted = told["counters"]
            # (Behind the first, what workers sum is in no count of pushes.)
            pushed = int(told["pushes"]) + int(counted.get("summed", 0))
            return pushed > 0 or counted.get("row_updates", 0) > 0
        except (OSError, ValueError):
            return True

    @contextlib.contextmanager
    def kept(
        self, run: str, server: Served, beside: Callable[[], None] = lambda: None
    ) -> Iterator[None]:
        """Writes all rows behind what is done within, however that ends; ``beside`` is called at the moment
        that they are of.

        Raises:
            OSError: they cannot be written; where something else is raised within, that is, and this
                is logged.
        """

        def write() -> None:
            self.save(run, server, beside)

        unsaved = f"the rows are not saved: {TOLD}; {self._folder} has those of the last checkpoint, if there was one"
        try:
            yield
        except BaseException as ended:
            try:
                last(write, unsaved, told=isinstance(ended, KeyboardInterrupt))
            except OSError as error:
                _log.error("the rows are not saved: %s", str(error))
            raise
        last(write, unsaved, told=False)

    def cut(
        self, folder: Path, run: str, server: Served, beside: Callable[[], None]
    ) -> list[Saved]:
        """Its part of a checkpoint in that folder; else as ``save``."""
        self.save(run, server, beside)
        folders.link_rows(self._folder, folder / self._folder.name)
        return checkpoints.saved_of(folder, f"{self._folder.name}/{folders.MANIFEST}")

    def save(self, run: str, server: Served, beside: Callable[[], None] = lambda: None) -> None:
        """Write all rows of the run of that name, changes where it can be; ``beside`` is called at the moment
        that they are of.

        Raises:
            OSError: they cannot be written.
        """

        def told() -> dict[str, Any]:
            counted = {**server.counters(), **self.report()}
            return {"run": run, "pushes": heard(counted), "applied": [], "counters": counted}

        failed: list[BaseException] = []
        kept_too = self.beside

        def quiet(save: Callable[[], None]) -> None:
            def kept() -> None:
                try:
                    updates = server.standing()["updates"]
                    for table in self.native:
                        table.reach_steps(updates)
                    save()
                    if kept_too is not None:
                        kept_too.moment()
                    beside()
                except BaseException as error:  # noqa: BLE001 (raised below, not through the server)
                    failed.append(error)

            server.quiet(kept)
            if failed:
                raise failed[0]

        try:
            put = None if kept_too is None else kept_too.put
            found = folders.write_rows(self._folder, self._tables, told, quiet, put)
            if kept_too is not None:
                kept_too.was_put(found)
        except ValueError as error:  # as the core says it
            raise OSError(str(error)) from error
