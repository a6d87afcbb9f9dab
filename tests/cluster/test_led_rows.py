"""The rows that a policy server has: they begin once, and what is saved of them is of one moment."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import made_clicks
import pytest
from cluster.led import led
from cluster.test_led_tables import given

import leashed as lsh
from leashed import _core
from leashed.cluster import row_files
from leashed.cluster.led_rows import LedRows, folder_of
from leashed.cluster.table_terms import TableTerms
from leashed.training.rows_read import RowsRead

MODEL = made_clicks.small()


class Server:
    """That makes an update whenever it may, of what was pushed, or of what workers have ``summed``."""

    def __init__(self, *, summed: bool = False) -> None:
        self.updates = 2
        self._summed = summed

    def standing(self) -> dict[str, Any]:
        return {"updates": self.updates}

    def counters(self) -> dict[str, Any]:
        if self._summed:
            return {"pushes": 0, "summed": self.updates}
        return {"pushes": self.updates}

    def quiet(self, f: Callable[[], None]) -> None:
        self.updates += 1
        f()


def made(folder: Path) -> LedRows:
    read = RowsRead(MODEL.tables, [0] * 4, lsh.Adagrad(0.05), lsh.staleness.none(), 2)
    return LedRows(TableTerms(read, 1, {}), None, folder)


def native(server: Server) -> _core.PolicyServer:
    return cast("_core.PolicyServer", server)


def test_rows_are_saved_of_one_moment(tmp_path: Path) -> None:
    rows, server = made(tmp_path), Server()
    rows.begin()
    rows.save("run", native(server))
    found = row_files.joined_of([folder_of(tmp_path)], MODEL.tables, "run")
    assert found.pushes == [server.updates]
    assert {one.statistics()["steps"] for one in found.tables.values()} == {server.updates}


@pytest.mark.parametrize("summed", [False, True])
def test_rows_of_who_was_there_before_are_not_begun_anew(summed: bool, tmp_path: Path) -> None:
    """Where something was trained, or nobody can know."""
    server = Server(summed=summed)
    server.updates = -1
    for _ in range(2):  # who has saved that nothing was pushed has nothing to lose
        rows = made(tmp_path)
        rows.begin()
        rows.begin()
        rows.save("run", native(server))
        server.updates = -1
    rows = made(tmp_path)
    rows.begin()
    rows.save("run", native(Server(summed=summed)))
    with pytest.raises(ValueError, match="begin another run, in another folder"):
        made(tmp_path).begin()


def test_rows_of_sums_are_not_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of workers who sum among themselves nothing is pushed but gradients of rows, to one server or to several."""
    server = Server()
    monkeypatch.setattr(server, "counters", lambda: {"pushes": 0, "summed": server.updates})
    rows = made(tmp_path)
    rows.begin()
    rows.save("run", native(server))
    found = row_files.joined_of([folder_of(tmp_path)], MODEL.tables, "run")
    assert found.pushes == [server.updates]
    with pytest.raises(ValueError, match="begin another run, in another folder"):
        made(tmp_path).begin()

    behind = tmp_path / "behind"
    behind.mkdir()
    monkeypatch.setattr(server, "counters", lambda: {"pushes": 0})
    rows = made(behind)
    rows.begin()
    told = rows.report()
    monkeypatch.setattr(rows, "report", lambda: {**told, "row_updates": 3})
    rows.save("run", native(server))
    with pytest.raises(ValueError, match="begin another run, in another folder"):
        made(behind).begin()


def test_a_server_that_is_started_again_ends_and_leaves_what_is_there(tmp_path: Path) -> None:
    folder_of(tmp_path).mkdir()
    (folder_of(tmp_path) / "1.table0").touch()
    with led(tmp_path, MODEL, made_clicks.clicks(MODEL), tables={}, **given(mode="asp")) as run:
        run.ended()
    assert isinstance(run.error, ValueError)
    assert "begin another run" in str(run.error)
    assert [one.name for one in folder_of(tmp_path).iterdir()] == ["1.table0"]


def test_what_ended_a_server_is_told_though_its_rows_cannot_be_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = made(tmp_path)
    folder_of(tmp_path).write_text("no folder")
    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(ValueError, match="it can go on no more"),
        rows.kept("run", native(Server())),
    ):
        raise ValueError("it can go on no more")
    assert "the rows are not saved" in caplog.text
    with pytest.raises(OSError, match="policy-ps-0"), rows.kept("run", native(Server())):
        pass


def test_who_is_told_to_end_once_while_it_writes_has_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a run's processes are all told to end, and its master, the first, has ended the run."""
    rows, server = made(tmp_path), Server()
    rows.begin()
    quiet, told = server.quiet, []

    def stopped(f: Callable[[], None]) -> None:
        if not told:
            told.append(True)
            raise KeyboardInterrupt
        quiet(f)

    monkeypatch.setattr(server, "quiet", stopped)
    with pytest.raises(KeyboardInterrupt), rows.kept("run", native(server)):
        pass
    assert told
    assert row_files.rows_of(tmp_path / "policy-ps-0", 0)
    assert "not saved" not in caplog.text


def test_who_is_told_to_end_while_it_writes_says_what_is_not_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, server = made(tmp_path), Server()
    rows.begin()

    def stopped(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(server, "quiet", stopped)
    with pytest.raises(KeyboardInterrupt), rows.kept("run", native(server)):
        pass
    assert "the rows are not saved: this was told to end while it wrote them" in caplog.text
