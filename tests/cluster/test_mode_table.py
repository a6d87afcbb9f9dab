"""What is told of a run's policy servers."""

from __future__ import annotations

import io
from typing import Any

import pytest
from cluster import fakes

from leashed.cluster import mode_report, mode_row_table, mode_table, page, run_table

SERVED = {
    "grants": 90.0, "pushes": 88.0, "published": 80.0, "staleness": 40.0, "departures": 1.0,
    "lost": 64.0, "unused": 0.0, "lanes": 4.0, "serving_seconds": 0.5, "bytes_in": 2**20,
    "bytes_out": 2**21, "mode_updates": 20.0, "mode_exchanges": 0.0, "mode_applied": 4800.0,
    "mode_stale": 600.0, "mode_late": 64.0, "mode_straggler": 0.0, "mode_missing": 0.0,
    "mode_pushed": 5500.0, "mode_data_staleness": 60.0, "mode_data_gradients": 80.0,
    "mode_behind_0": 50.0, "mode_behind_1": 20.0, "mode_behind_4": 10.0, "mode_commands": 2.0,
    "mode_told": 0.0,
}  # fmt: skip


ROWS = {
    "rows": 500.0, "row_bytes": 2**20, "lookups": 90.0, "reads": 2.0, "looked_up": 2000.0, "row_updates": 1600.0,
    "row_staleness": 800.0, "row_moved": 2.0**21, "row_least": 2.0**20,
}  # fmt: skip


def report(**of_server: float) -> dict[str, Any]:
    told = fakes.report()
    told["members"].append(fakes.member(10, "policy-ps", 0, None, {**SERVED, **of_server}, 11.0))
    return told


def test_a_row_and_what_became_of_examples() -> None:
    told = report()
    (row,) = mode_table.servers(told).rows
    assert dict(zip(mode_table.servers(told).header, row, strict=True)) == {
        "policy server": "0", "workers": "4", "grants": "90", "pushes": "88", "updates": "20",
        "staleness": "0.500", "serving": "500 ms", "in": "1.00 MiB", "out": "2.00 MiB", "lives": "1",
    }  # fmt: skip
    facts = dict(mode_table.facts(told))
    assert facts["examples"] == (
        "4,800 in updates, 600 dropped as too stale, 64 dropped, being another's by then, 36 that waited for "
        "others at the end, or that the staleness policy left out"
    )
    assert facts["staleness of data"] == (
        "0.750 steps behind the token, in the mean; 0: 62.5%, 1: 25.0%, 4 to 7: 12.5%"
    )
    assert facts["commands"] == "2, the last to be sync"
    assert facts["workers"].startswith("1 that left or died, and 64 examples")
    assert "policy server" in run_table.render(told)
    assert "<h2>Policy servers</h2>" in page.render(told, [])
    assert mode_table.facts(fakes.report()) == []
    assert mode_table.servers(fakes.report()).rows == []


def test_gradients_that_waited_in_a_checkpoint_were_pushed_before() -> None:
    told = dict(mode_table.facts(report(mode_pushed=5400.0)))["examples"]
    assert told.endswith("64 of them or more of gradients that waited in the checkpoint")


def test_a_server_behind_the_first_has_its_own_examples() -> None:
    told = report()
    counts = {**SERVED, "mode_applied": 4700.0, "mode_missing": 100.0, "late_parts": 2.0}
    told["members"].append(fakes.member(11, "policy-ps", 1, None, counts, 11.0))
    assert len(mode_table.servers(told).rows) == 2
    facts = mode_table.facts(told)
    assert [name for name, _ in facts].count("examples") == 1
    assert dict(facts)["policy server 1"] == (
        "4,700 in updates of its part, 600 dropped as too stale, 64 dropped, being another's by then, 100 whose "
        "part was lost on the way, or not finite; 2 parts came when it had gone on without them"
    )
    told["members"][-1]["counters"]["mode_pushed"] -= 128.0
    assert (
        "not finite, 128 whose part never came; 2 parts"
        in dict(mode_table.facts(told))["policy server 1"]
    )
    told["members"][-2]["counters"]["mode_missing"] = 64.0
    assert (
        "64 whose part was lost on the way, or not finite"
        in dict(mode_table.facts(told))["examples"]
    )
    again = {"restarts": 2.0, "undone_pushes": 3.0, "undone_examples": 192.0}
    told["members"][-1]["counters"] |= again
    assert dict(mode_table.facts(told))["policy server 1"].endswith(
        "; started again 2 times, by which its parts of 3 pushes, of 192 examples, are lost"
    )
    told["members"][-1]["counters"]["mode_exchanges"] = 7.0
    assert dict(mode_table.facts(told))["policy server 1"].startswith("7 exchanges of its part")


def test_rows_of_tables_are_told_beside_the_least_bytes() -> None:
    told = report(**ROWS)
    (row,) = mode_row_table.servers(told).rows
    assert row == ["0", "500", "1.00 MiB", "90", "2,000", "1,600", "0.500", "2.00 MiB", "1.00 MiB"]
    assert mode_row_table.facts(told) == [
        (
            "bytes of rows",
            "381 bytes an example, 2.00 times the least, 191 (with 2 look-ups of evaluations)",
        )
    ]
    assert "rows of policy server" in run_table.render(told)
    assert "bytes of rows" in run_table.render(told)
    assert "<h2>Rows of policy servers</h2>" in page.render(told, [])
    assert mode_row_table.servers(report()).rows == mode_row_table.facts(report()) == []
    found = fakes.exported(told)
    assert found["leashed_policy_rows", "0"] == 500.0
    assert found["leashed_policy_looked_up_total", "0"] == 2000.0
    assert found["leashed_policy_row_moved_bytes_total", "0"] == 2.0**21
    assert found["leashed_policy_row_least_bytes_total", "0"] == 2.0**20
    assert "leashed_policy_rows" not in {name for name, *_ in fakes.exported(report())}


def test_octaves_of_what_is_counted_by_steps() -> None:
    assert mode_report._octaves([]) == {"mode_behind_0": 0.0}
    told = mode_report._octaves([5, 4, 3, 2, 0, 0, 0, 0, 1])
    assert told == {
        "mode_behind_0": 5.0, "mode_behind_1": 4.0, "mode_behind_2": 5.0, "mode_behind_8": 1.0,
    }  # fmt: skip
    assert mode_table.behind({**told, "grants": 3.0}) == {0: 5.0, 1: 4.0, 2: 5.0, 8: 1.0}


def test_the_view_has_policy_servers() -> None:
    console = pytest.importorskip("rich.console", reason="NOT TESTED: rich is not installed")
    from leashed.cluster.view import View  # noqa: PLC0415

    shown = {}
    every = (("rows", report(**ROWS)), ("with", report()), ("without", fakes.report()))
    for name, told in every:
        stream = io.StringIO()
        with View(console.Console(file=stream, force_terminal=True, width=120)) as view:
            view(told)
        shown[name] = stream.getvalue()
    lines = [one.split() for one in shown["with"].splitlines()]
    assert ["0", "4", "90", "88", "20", "0.500", "1.00", "MiB", "2.00", "MiB"] in lines
    assert "rows of policy server" not in shown["with"]
    assert "policy server" not in shown["without"]
    lines = [one.split() for one in shown["rows"].splitlines()]
    assert ["0", "500", "1.00", "MiB", "2,000", "0.500", "2.00", "MiB", "1.00", "MiB"] in lines


def test_metrics_have_policy_servers() -> None:
    found = fakes.exported(report())
    assert found["leashed_policy_grants_total", "0"] == 90.0
    assert found["leashed_policy_updates_total", "0"] == 20.0
    assert found["leashed_policy_commands_total", "0"] == 2.0
    assert found["leashed_policy_examples_total", "0", "stale"] == 600.0
    assert found["leashed_policy_examples_total", "0", "applied"] == 4800.0
    assert found["leashed_policy_behind_total", "0", "4"] == 10.0
    assert found["leashed_policy_workers", "0"] == 4.0
    assert found["leashed_policy_server_bytes_in_total", "0"] == 2.0**20
