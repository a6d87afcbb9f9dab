"""What is told of a run's embedding servers."""

from __future__ import annotations

import io
from typing import Any

import pytest
from cluster import fakes

from leashed.cluster import page, row_table, run_table
from leashed.cluster.packing import BY_ROW_BYTES, FRAGMENT

ASKED = {
    "row_least_bytes": 80e3, "row_lookups": 40.0, "row_rows": 900.0, "row_seconds": 0.3, "row_settling": 0.1, "row_pushes": 40.0,
    "row_settled": 40.0, "row_lost": 0.0, "row_lost_examples": 0.0,
    "row_bytes_out": 60e3, "row_bytes_in": 50e3, "row_kernel_out": 60e3, "row_kernel_in": 50e3,
}  # fmt: skip
SERVED = {
    "lookups": 80.0, "looked_up": 950.0, "pushes": 80.0, "pushed": 900.0, "not_finite": 0.0,
    "refused": 0.0, "serving_seconds": 0.5, "bytes_out": 2**20, "bytes_in": 2**21,
    "rows": 1000.0, "row_bytes": 2**20, "row_updates": 800.0, "row_staleness": 400.0,
    "row_stalest": 7.0, "restored": 0.0, "lost": 0.0, "snapshots": 3.0, "snapshots_failed": 0.0,
    "stalled": 0.02, "stall": 0.01,
}  # fmt: skip


def report(**of_second: float) -> dict[str, Any]:
    """Of two trainers and two embedding servers."""
    told = fakes.report()
    for member in told["members"][:2]:
        member["counters"] = {**member["counters"], **ASKED}
    told["members"] += [
        fakes.member(10, "embedding-ps", 0, None, SERVED, 11.0),
        fakes.member(11, "embedding-ps", 1, None, {**SERVED, **of_second}, 11.0),
    ]
    return told


def test_a_row_per_embedding_server() -> None:
    told = row_table.servers(report(row_updates=0.0, lost=12.0))
    rows = [dict(zip(told.header, row, strict=True)) for row in told.rows]
    assert rows[0] == {
        "embedding server": "0", "rows": "1,000", "load": "–", "memory": "1.00 MiB", "lookups": "80",
        "looked up": "950", "pushes": "80", "updates of rows": "800", "staleness": "0.500",
        "serving": "500 ms", "in": "2.00 MiB", "out": "1.00 MiB", "stall": "20.0 ms, 10.0 ms",
        "lost": "0", "lives": "1",
    }  # fmt: skip
    assert (rows[1]["staleness"], rows[1]["lost"]) == ("–", "12")


def test_the_packing_is_told_beside_the_least_possible() -> None:
    told = report()
    servers = [{"tables": 3, "load": 1e-5}, {"tables": 2, "load": 2e-5}]
    told["row_packing"] = {
        "one": 4e-8, "whole": 4e-8 + 1e-9 * (FRAGMENT - 1), "servers": servers, "bound": 1.6e-5,
        "imbalance": 1.25,
    }  # fmt: skip
    rows = [
        dict(zip(row_table.servers(told).header, row, strict=True))
        for row in row_table.servers(told).rows
    ]
    assert [row["load"] for row in rows] == ["10.0 µs", "20.0 µs"]
    said = dict(row_table.facts(told))["packing of rows"]
    assert said.startswith("the most loaded server has 1.250 times the least possible; a row costs")
    told["row_packing"] |= {"one": BY_ROW_BYTES.one, "whole": BY_ROW_BYTES.whole}
    assert dict(row_table.facts(told))["packing of rows"].endswith("possible, by bytes")
    assert row_table.servers(told).rows[0][2] == "–"  # bytes are no seconds


def test_it_is_told_which_features_servers_pool() -> None:
    told = report()
    assert "pools of rows" not in dict(row_table.facts(told))
    for member in told["members"][:2]:
        member["counters"] |= {"row_pooled_0": 0.0, "row_pooled_1": 0.0}
    said = dict(row_table.facts(told))["pools of rows"]
    assert said == "by trainers, of all 2 features of ids, which are read as rows"
    told["members"][0]["counters"] |= {"row_pooled_0": 1.0, "row_pooled_1": 1.0}
    said = dict(row_table.facts(told))["pools of rows"]
    assert said == (
        "by servers of 2 of 2 features of ids (from 0: 0 for trainer 0 alone, 1 for trainer 0 alone)"
    )
    told["members"][0]["counters"] |= {"row_pooled_0": 0.0, "row_all_rows_bytes": 240e3}
    told["members"][1]["counters"] |= {"row_pooled_1": 1.0, "row_all_rows_bytes": 240e3}
    said = dict(row_table.facts(told))["pools of rows"]
    assert said.startswith(
        "by servers of 1 of 2 features of ids (from 0: 1); the least bytes are 0.333"
    )


def test_counts_go_on_over_the_lives_of_a_server() -> None:
    told = report(lost=5.0)
    again = fakes.member(12, "embedding-ps", 1, None, {**SERVED, "lost": 9.0}, 11.0, before=11)
    told["members"][-1] |= {"gone": 5.0}
    again["before"] = 0
    told["members"].append(again)
    row = dict(zip(row_table.servers(told).header, row_table.servers(told).rows[1], strict=True))
    assert (row["lookups"], row["updates of rows"], row["lives"]) == ("160", "1,600", "2")
    # Of what a snapshot has, and what was lost so far, the last one knows all.
    assert (row["pushes"], row["rows"], row["lost"]) == ("80", "1,000", "9")


def test_bytes_an_example_are_told_beside_the_least() -> None:
    """5,000 examples: 2 × 110,000 bytes, and 2 × 80,000."""
    facts = dict(row_table.facts(report()))
    assert facts["rows"] == "44 bytes an example, 1.38 times the least, 32"
    told = report()
    told["members"][0]["counters"] |= {"row_reads": 7.0}
    told["members"][1]["counters"] |= {"row_reads": 0.0}
    assert dict(row_table.facts(told))["rows"].endswith("32 (with 7 look-ups of evaluations)")
    assert facts["waits for rows"] == "600 ms of all workers, 6.00 ms a batch"
    assert facts["waits for pushes"] == "200 ms of all workers, 2.00 ms a batch"
    assert facts["pushes of rows"] == "80 made, 80 settled"
    assert facts["balance of rows"] == "the busiest embedding server has served 1.00 times the mean"


def test_what_is_lost_and_refused_is_told() -> None:
    told = report(serving_seconds=1.5)
    told["members"][0]["counters"] |= {"row_lost": 3.0, "row_lost_examples": 150.0}
    for member in told["members"][:2]:
        member["counters"] |= {"row_not_finite": 1.0, "row_expired": 0.0, "row_unsettled": 2.0}
    facts = dict(run_table.facts(told))
    assert facts["pushes of rows"] == (
        "80 made, 80 settled, 3 lost with 150 examples, 2 with gradients that were not finite, 4 of "
        "which nobody knows at the end"
    )
    assert facts["balance of rows"].endswith("served 1.50 times the mean")


def test_ids_without_a_row_are_told() -> None:
    told = report()
    for member in told["members"][-2:]:
        member["counters"] |= {"row_asked": 500.0, "row_evicted": 0.0, "row_refused": 0.0}
    assert "growth of tables" not in dict(row_table.facts(told))
    for member in told["members"][-2:]:
        member["counters"] |= {"row_evicted": 30.0, "row_refused": 5.0, "row_unadmitted": 2.0}
    assert dict(row_table.facts(told))["growth of tables"] == (
        "60 rows evicted; of 1,000 ids of pushes 10 had no room (--table-mib, --evict), 4 had not come "
        "often enough, and learnt nothing then"
    )


def test_bad_lines_that_readers_have_left_out_are_told() -> None:
    told = report()
    assert "rows read" not in dict(run_table.facts(told))
    told["reading"] = {"rows": 1200, "bad": 0, "first_bad": []}
    assert dict(run_table.facts(told))["rows read"] == "1,200"
    told["reading"] |= {
        "bad": 3,
        "first_bad": [["day.tsv", 1, "no number: x"], ["day.tsv", 9, "?"]],
    }
    assert dict(run_table.facts(told))["rows read"] == (
        "1,200; 3 bad lines left out, the first of them 1 of day.tsv: no number: x"
    )


def test_rows_of_a_pipe_that_nobody_has_trained_on_are_told() -> None:
    told = report()
    told["reading"] = {"rows": 1200, "bad": 0, "first_bad": [], "used": 1200}
    assert dict(run_table.facts(told))["rows read"] == "1,200"
    told["reading"]["used"] = 200
    assert dict(run_table.facts(told))["rows read"] == (
        "1,200; 1,000 of them not trained on, and the pipe has them no more"
    )


def test_a_run_without_embedding_servers_tells_nothing_of_rows() -> None:
    plain = fakes.report()
    assert row_table.servers(plain).rows == []
    assert row_table.facts(plain) == []
    for text in (run_table.render(plain), page.render(plain, [])):
        assert "mbedding" not in text


def test_the_report_and_its_page_have_the_table() -> None:
    told = report()
    assert "embedding server" in run_table.render(told)
    told["members"] = told["members"][:2]  # before any has told what it counts
    assert "embedding server" not in run_table.render(told)
    text = page.render(report(), [])
    assert "<h2>Embedding servers</h2>" in text
    assert "44 bytes an example" in text


def test_the_view_has_embedding_servers() -> None:
    console = pytest.importorskip("rich.console", reason="NOT TESTED: rich is not installed")
    from leashed.cluster.view import View  # noqa: PLC0415

    shown = {}
    for name, told in (
        ("with", report(lost=4.0)),
        ("without", fakes.report(4.0, "running", 1000.0)),
    ):
        stream = io.StringIO()
        with View(console.Console(file=stream, force_terminal=True, width=120)) as view:
            view(told)
        shown[name] = stream.getvalue()
    lines = {
        tuple(one.split()) for one in shown["with"].splitlines()
    }  # also as it was drawn before
    (line,) = (one for one in lines if one[:2] == ("1", "1,000"))
    assert line[-1] == "4"
    assert "embedding server" in shown["with"]
    assert "embedding server" not in shown["without"]


def test_metrics_have_rows() -> None:
    found = fakes.exported(report(lost=4.0))
    assert found["leashed_row_seconds_total", "1"] == 0.3
    assert found["leashed_row_settling_seconds_total", "1"] == 0.1
    assert found["leashed_row_bytes_out_total", "0"] == 60e3
    assert found["leashed_embedding_rows", "0"] == 1000.0
    assert found["leashed_embedding_lost_total", "1"] == 4.0
    assert found["leashed_embedding_server_bytes_in_total", "0"] == 2.0**21
