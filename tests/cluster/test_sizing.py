"""How many embedding servers a run needs."""

from __future__ import annotations

import re
import socket
import struct
from dataclasses import replace

import numpy as np
import pytest

from leashed import _core, cli
from leashed.cluster.sizing import Costs, Part, Wanted, measured, needed
from leashed.models.tables import Table

HEADER = 40  # of a frame
SETTLED = 368
WANTED = Wanted(
    rows=1e6, dim=4, examples_per_second=1000.0, batch_size=10, features=2, memory_gib=1.0, load=0.5
)
COSTS = Costs(
    row_bytes=100.0,
    rows=20.0,
    serving=Part(1e-3, 1e-4),
    asking=2e-3,
    bytes_in=Part(100.0, 10.0),
    bytes_out=Part(200.0, 20.0),
    measured_rows=1,
)


def test_what_batches_cost_each_server_is_not_shared() -> None:
    # A hundred batches a second: each server has a tenth of its half for them, so that what is left
    # is 0.4, and their rows take 0.2.
    need = needed(WANTED, COSTS)
    assert (need.servers, need.by) == (1, "processor")
    lines = {line.name: line for line in need.lines}
    assert lines["processor"].used == pytest.approx(0.1 + 0.2)
    assert lines["memory"].used == pytest.approx(1e8)
    assert lines["link, in"].used == pytest.approx(100 * (100 + 10 * 20))
    assert lines["link, out"].used == pytest.approx(100 * (200 + 20 * 20))
    assert need.asking == pytest.approx(0.2)
    need = needed(replace(WANTED, examples_per_second=3500.0), COSTS)
    assert (need.servers, need.by) == (5, "processor")  # 0.7 of rows, in 0.15 that is left of each
    used = {line.name: line.used for line in need.lines}
    assert used["processor"] == pytest.approx(0.35 + 0.7 / 5)


@pytest.mark.parametrize(
    ("change", "servers", "by"),
    [
        ({"rows": 1e8}, 19, "memory"),
        ({"rows": 1e8, "load": 1.0}, 10, "memory"),
        ({"link_gbit": 0.0008}, 2, "link, out"),
        ({"examples_per_second": 4000.0, "threads": 2}, 2, "processor"),
        ({"examples_per_second": 400.0}, 1, "processor"),  # of which most is used
    ],
)
def test_the_line_that_needs_most_says_how_many(
    change: dict[str, float], servers: int, by: str
) -> None:
    need = needed(replace(WANTED, **change), COSTS)
    assert (need.servers, need.by) == (servers, by)
    assert max(line.servers for line in need.lines) == servers


def test_batches_that_fill_every_server_are_told() -> None:
    with pytest.raises(ValueError, match=r"take 0\.6 of its processor; give a larger --batch-size"):
        needed(replace(WANTED, examples_per_second=6000.0), COSTS)


def test_more_servers_than_a_table_is_spread_over_are_none() -> None:
    rows = 256 * 2**30 * WANTED.load / COSTS.row_bytes
    assert needed(replace(WANTED, rows=rows), COSTS).servers == 256
    with pytest.raises(
        ValueError, match=r"it takes 257 servers, by memory, .* 256 at most: .*--memory-gib"
    ):
        needed(replace(WANTED, rows=rows + 1.0), COSTS)


@pytest.mark.parametrize("batches", [1, 3])
def test_what_is_measured_is_what_the_wire_has(batches: int) -> None:
    tables = [Table(dim=4, rows=100, number=f, name=f"feature {f}") for f in range(3)]
    ids = np.arange(batches * 3 * 8, dtype=np.uint64).reshape(batches, 3, 8) % 100
    ids[:, :, 1] = ids[:, :, 0]  # which is asked for once
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = socket.create_connection(listening.getsockname())
        there, _ = listening.accept()
    natives = [table.native for table in tables]
    found = _core.profile_rows(here.detach(), there.detach(), "tcp", natives, ids.ravel(), 8)
    assert found["rows"] == 3 * 7
    asked = struct.calcsize("<4I4I") + 8 * 21
    hello = (HEADER + 24) / (10 * batches)
    assert found["bytes_in"] == HEADER + asked + HEADER + 16 + 16 * 21 + hello
    welcome = (HEADER + 40) / (10 * batches)
    assert found["bytes_out"] == HEADER + 16 * 21 + HEADER + SETTLED + welcome
    assert found["serving"] > 0.0
    assert found["asking"] > 0.0
    assert tables[0].statistics()["steps"] == 10 * batches


@pytest.mark.parametrize("grow", [False, True])
def test_a_row_costs_what_it_has(grow: bool) -> None:
    wanted = Wanted(rows=2e5, features=2, batch_size=64, skew=0.0, grow=grow)
    costs = measured(wanted)
    assert costs.rows == pytest.approx(2 * 64, rel=0.01)
    assert costs.bytes_in.row == pytest.approx(8 + 4 * 16, rel=0.02)
    assert costs.bytes_out.row == pytest.approx(4 * 16, rel=0.02)
    assert costs.row_bytes >= 2 * 4 * 16 + 8
    assert min(costs.serving) >= 0.0 < costs.asking


def test_ids_that_come_often_are_asked_for_once() -> None:
    found = [
        measured(Wanted(rows=1e5, features=1, batch_size=512, skew=skew)).rows
        for skew in (0.0, 1.0, 1.5)
    ]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 256 < found[0]


def test_of_one_row_there_is_an_answer() -> None:
    wanted = Wanted(rows=2, features=2)
    assert needed(wanted, measured(wanted)).servers >= 1


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--rows", "25", "rows must be at least one for each feature"),
        ("--rows", "1e19", "rows must be at most 9.22e+18, got 1e+19"),
        ("--examples-per-second", "0", "examples_per_second must be greater than 0"),
        ("--load", "1.5", "load must be at most 1, got 1.5"),
        ("--skew", "-1", "skew must be at least 0"),
        ("--features", "2000", "features must be at most 1024"),
        ("--dim", "0", "dim must be at least 1"),
        ("--rule", "none", "rule"),
        ("--rule", "momentum", "Momentum"),
    ],
)
def test_numbers_are_checked(
    option: str, value: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["cluster", "size", option, value]) == 2
    assert told in capsys.readouterr().err


def test_the_command_names_what_binds(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--rows", "1e6", "--features", "2", "--examples-per-second", "1000"]
    assert cli.main(["cluster", "size", *asked, "--memory-gib", "0.1"]) == 0
    printed = capsys.readouterr().out
    assert "1,000,000 rows of 16 floats in 2 tables, 1,000 examples a second" in printed
    assert "embedding servers: 2, by memory" in printed
    assert re.search(r"^memory +0\.100 GiB +67\.1% +2$", printed, re.MULTILINE)
    assert "measured in" in printed
    assert "assumed" in printed
