"""What a run has come to: tables, history, view, metrics, page."""

from __future__ import annotations

import io
import json
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from cluster import fakes
from cluster.handing import hand_in

import leashed as lsh
from leashed import cli
from leashed.cluster import history, outcome, run_table, traffic
from leashed.cluster.plan import Plan, Train
from leashed.training.problems.problem import Problem


def test_a_row_per_trainer_and_one_for_all():
    rows = {
        row[0]: dict(zip(run_table.trainers(REPORT).header, row, strict=True))
        for row in run_table.trainers(REPORT).rows
    }
    assert list(rows) == ["0", "1", "all"]
    assert rows["0"]["EPS"] == "300"  # 3,000 examples in the 10 s from its coming to its going
    assert rows["1"]["EPS"] == "250"
    assert (
        rows["all"]["EPS"] == "500"
    )  # 5,000 in the 10 s from the first's coming to the last's going
    assert rows["all"]["examples"] == "5,000"
    assert rows["0"]["sync gap"] == "10.0"
    assert rows["0"]["by bytes out"] == "10.0"
    assert rows["1"]["lives"] == "1"
    assert rows["all"]["lives"] == "2"
    assert rows["0"]["staleness"] == "1.50"
    assert rows["0"]["failed"] == "1"


REPORT = {**fakes.report(), "restarts": {"trainer-1": 2, "sync-ps-0": 1, "master": 0}}


def test_the_header_tells_each_direction():
    header = run_table.trainers(REPORT).header
    assert header[header.index("by bytes out") + 1] == "by bytes in"
    row = dict(zip(range(len(header)), run_table.trainers(REPORT).rows[0], strict=True))
    assert row[header.index("by bytes out") + 1] == "5.00"


def test_servers_ledger_members_and_output():
    whole = {**REPORT, "elp": 100, "output": "trainer 0", "train_loss": 0.25, "test_accuracy": 0.9}
    text = run_table.render(whole)
    assert run_table.servers(whole).rows == [
        ["0", "–", "–", "30", "10", "500 ms", "0.0381 MiB", "0.0763 MiB", "0", "1"]
    ]
    for words in (
        "total 100, complete 100, outstanding 0",
        "trainer-1 2, sync-ps-0 1",
        "100 examples worked on at one time",
        "90.00%",
        "0.2500",
        "ended (complete) after 11.0 s",
    ):
        assert words in text
    assert run_table.members(whole).rows[0] == ["trainer 0", "1.00 s", "11.0 s", "finished"]


def test_what_a_policy_server_has_of_a_run_without_an_end_is_no_number():
    endless = {**REPORT["ledger"], "total": None, "free": None, "outstanding": 2**31 - 100}
    told = dict(run_table.facts({**REPORT, "ledger": endless, "mode": "gba"}))["ledger"]
    assert "outstanding ∞, free ∞" in told


def test_restarts_are_told_where_whoever_starts_processes_has_counted_them():
    for given, told in ({}, None), ({"trainer-0": 0}, "none"), ({"trainer-0": 2}, "trainer-0 2"):
        assert dict(run_table.facts({**REPORT, "restarts": given})).get("restarts") == told


def test_snapshots_that_were_not_written_are_told_of():
    told = json.loads(json.dumps(REPORT))
    assert "snapshots" not in dict(run_table.facts(told))
    told["members"][2]["counters"]["snapshots_failed"] = 1234.0
    row = "1,234 of sync server 0 not written; its log says why"
    assert dict(run_table.facts(told))["snapshots"] == row


def test_values_that_are_not_finite_are_told_of():
    told = fakes.report()
    assert "not finite" not in dict(run_table.facts(told))
    zero, one, server = (each["counters"] for each in told["members"])
    zero["sync_not_finite"], one["sync_not_finite"] = 0.0, 4.0
    told["members"][2]["counters"] = {**server, "not_finite": 1.0}
    row = "trainer 1 4, sync server 0 1 (rounds and fragments that nobody has taken)"
    assert dict(run_table.facts(told))["not finite"] == row


def test_rounds_without_some_fragments_are_told_of():
    told = fakes.report()
    assert "partial" not in dict(run_table.facts(told))
    slow, quick = (each["counters"] for each in told["members"][:2])
    slow |= {"sync_partial": 1200.0, "sync_lag": 11.0, "syncs": 1500.0}
    quick |= {"sync_partial": 0.0, "sync_lag": 1.0}  # of the round that is under way
    row = "trainer 0 1,200 of 1,500, one waiting for 11 (rounds without some fragments)"
    assert dict(run_table.facts(told))["partial"] == row
    slow["sync_partial"] = 0.0
    row = row.replace("1,200 of", "0 of")
    assert dict(run_table.facts(told))["partial"] == row
    slow["sync_lag"] = 1.0
    assert "partial" not in dict(run_table.facts(told))


def test_an_endless_ledger_and_no_trainer_yet():
    empty = fakes.report(0.5, "running", summaries={}, members=[])
    empty["ledger"]["total"] = None
    assert "total ∞" in run_table.render(empty)
    assert run_table.line(empty) == "0.5 s  40 batches  0 EPS  sync gap –  0 members"


def test_a_trainer_that_came_back_is_timed_over_all_its_lives():
    report = fakes.report(20.0, "running")
    report["members"][0] |= {"gone": 5.0, "counted": 4.0, "why": "its connection closed"}
    again = fakes.member(4, "trainer", 0, None, fakes.trainer(900.0), 20.0, joined=10.0)
    report["members"].append(again)
    assert run_table.lived(report, 0) == 3.0 + 10.0
    assert run_table.lived(report) == 19.0
    row = dict(
        zip(run_table.trainers(report).header, run_table.trainers(report).rows[0], strict=True)
    )
    assert (row["examples"], row["EPS"], row["lives"]) == ("3,900", "300", "2")


def test_what_nobody_knows_of_is_said():
    report = fakes.report(20.0, "running")
    assert "not counted" not in run_table.render(report)
    report["members"].append(fakes.member(4, "trainer", 0, 6.0, joined=5.0))
    assert "trainer 0 (5.00 s to 6.00 s): gone before the master was told" in run_table.render(
        report
    )


def test_what_is_not_counted_is_in_the_examples_per_second_of_all():
    """The ledger has it: all died with the master at 5 s, and it was back at 9 s."""
    report = fakes.report(20.0, "running")
    for each in report["members"][:2]:
        each |= {"gone": 9.0, "counted": None, "counters": {}}
    again = fakes.member(4, "trainer", 0, None, fakes.trainer(1000.0), 20.0, joined=10.0)
    report["members"].append(again)
    report["ledger"] |= {"complete": 60, "resumed": 10, "lost": 26}
    assert run_table.lived(report) == 19.0
    row = dict(
        zip(run_table.trainers(report).header, run_table.trainers(report).rows[-1], strict=True)
    )
    assert (row["trainer"], row["examples"], row["EPS"]) == ("all", "1,000", "200")
    assert "200 EPS" in run_table.line(report)
    report["members"].pop()  # nobody is back yet
    assert run_table.lived(report) == 8.0
    assert f"{76 * 50 / 8:,.0f} EPS" in run_table.line(report)


def test_bytes_stand_beside_the_kernels_where_it_counts():
    whole = fakes.report()
    rows = {row[0]: row[1:] for row in traffic.table(whole).rows}
    assert list(rows) == ["trainer 0", "trainer 1", "sync server 0"]
    assert rows["trainer 0"][2:] == ["–"] * 4  # through shared memory
    assert rows["sync server 0"][4:] == ["1.013", "1.000"]
    figures = traffic.figures(whole)
    assert figures["sync-ps-0"]["ratio_out"] == 80e3 / 79e3
    assert figures["trainer-0"]["kernel_in"] is None
    assert figures["trainer-0"]["in"] == 48e3
    json.dumps(figures, allow_nan=False)
    assert "kernel out" in run_table.render(whole)


def test_the_load_of_servers_is_shown():
    packing = {
        "one": 1e-5, "whole": 5e-5, "bound": 1e-4, "imbalance": 1.25,
        "servers": [{"fragments": 2, "load": 1e-4}],
    }  # fmt: skip
    whole = fakes.report(packing=packing)
    row = dict(zip(run_table.servers(whole).header, run_table.servers(whole).rows[0], strict=True))
    assert (row["fragments"], row["load"], row["serving"]) == ("2", "100 µs", "500 ms")
    assert "1.250 times the least possible" in run_table.render(whole)


def test_the_line_tells_how_far_a_run_is():
    line = run_table.line(fakes.report(8.0, "running"))
    for words in ("8.0 s", "40 of 100 batches", "EPS", "sync gap 10.0", "3 members"):
        assert words in line


def test_history_goes_on_after_a_restart_and_survives_half_a_line(tmp_path):
    with history.Recorder(tmp_path) as record:
        record(fakes.report(1.0, "running"))
    with (tmp_path / history.FILE).open("a") as file:
        file.write('{"seconds": 1.5, "pre')
    with history.Recorder(tmp_path) as record:
        record(fakes.report(2.0))
    rows = history.read(tmp_path)
    assert [row["seconds"] for row in rows] == [1.0, 2.0]
    assert rows[0]["present"] == {"trainer": 2, "sync-ps": 1}
    assert rows[1]["present"] == {"sync-ps": 1}
    assert rows[1]["metrics"]["trainer-1"]["examples"] == 2000.0
    assert history.read(tmp_path / "elsewhere") == []


def test_the_report_page_needs_nothing_outside_it(tmp_path, capsys):
    with history.Recorder(tmp_path) as record:
        for second in range(1, 6):
            record(fakes.report(float(second), "running", 500.0 * second))
    (tmp_path / "run.json").write_text(json.dumps(REPORT))
    page = tmp_path / "page.html"
    assert cli.main(["report", str(tmp_path), "-o", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    text = page.read_text()
    assert text.count('<img alt="Over time" src="data:image/svg+xml;base64,') == 1
    for words in (
        "<h2>Trainers</h2>",
        "<h2>Sync servers</h2>",
        "<h2>Comings and goings</h2>",
        "finished",
    ):
        assert words in text
    assert "<script" not in text
    assert "http" not in text.replace("http://www.w3.org", "")


def test_what_was_plotted_is_what_was_measured():
    from leashed.cluster.page import _series  # noqa: PLC0415

    rows = [
        {
            "seconds": float(second),
            "present": {"trainer": 1},
            "batch_size": 50,
            "metrics": {"trainer-0": fakes.trainer(examples)},
        }
        for second, examples in ((1, 100.0), (2, 300.0), (2, 300.0), (3, 200.0), (4, 500.0))
    ]
    eps, gap, members = _series(rows)
    assert eps == {"trainer 0": ([2.0, 4.0], [200.0, 100.0])}  # of a master started again at 3
    assert gap == {"trainer 0": ([2.0, 4.0], [10.0, 10.0])}
    assert members == {"trainer": ([1.0, 2.0, 2.0, 3.0, 4.0], [1, 1, 1, 1, 1])}


def test_a_page_without_history_says_so(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(fakes.report(reason="<b>&")))
    page = tmp_path / "page.html"
    assert cli.main(["report", str(tmp_path), "-o", str(page)]) == 0
    assert "ended before its second report" in page.read_text()
    assert "<b>" not in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["{here}"], "has no run: it lacks run.json"),
        (["{here}", "{here}"], "stands alone"),
        (["{here}", "--threads", "2"], "stands alone"),
    ],
)
def test_what_is_no_run_is_told(arguments, complaint, tmp_path, capsys):
    assert cli.main(["report", *(a.format(here=tmp_path) for a in arguments)]) == 2
    assert complaint in capsys.readouterr().err


def test_a_damaged_report_is_told(tmp_path):
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run\.json"):
        outcome.read_report(tmp_path)


def test_a_run_without_results_has_no_model(tmp_path):
    data = lsh.datasets.synthetic_digits(n=256)
    plan = Plan(train=Train(batch_size=50, threads=2))
    problem = Problem(plan.train.problem().model, data.train, data.test)
    found = outcome.conclude(REPORT, tmp_path, plan, problem, {}, {})
    assert (found["model"], found["sync"]) == ("mlp", "S-EASGD")
    assert f"mlp on {data.train.name}, sync S-EASGD" in run_table.render(found)
    assert found["elp"] == 50 * 2 * 2
    assert "output" not in found
    assert json.loads((tmp_path / "run.json").read_text()) == found
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_who_was_given_up_is_named(tmp_path):
    data = lsh.datasets.synthetic_digits(n=256)
    plan = Plan(train=Train(batch_size=50))
    problem = Problem(plan.train.problem().model, data.train, data.test)
    given_up = {"trainer-1": "ended with status 75 after 3 restarts: no room"}
    found = outcome.conclude(REPORT, tmp_path, plan, problem, {"trainer-1": 3}, given_up)
    assert found["reason"] == f"{REPORT['reason']}; given up: trainer-1"
    assert "trainer-1 ended with status 75 after 3 restarts: no room" in run_table.render(found)
    again = outcome.conclude(found, tmp_path, plan, problem, found["restarts"], found["given_up"])
    assert again == found


def test_who_was_never_synchronised_is_not_in_the_output():
    found = {index: np.full(2, index, np.float32) for index in range(4)}
    summaries = {
        "trainer-0": {"batches_used": 3.0, "syncs": 0.0},  # came back shortly before the end
        "trainer-1": {"batches_used": 3.0, "syncs": 1.0},
        "trainer-2": {"batches_used": 0.0, "syncs": 0.0},  # with the result of its life before
    }
    assert list(outcome.together(found, summaries)) == [1, 2]  # 3 has not said its last word
    alone = {0: found[0]}
    assert outcome.together(alone, summaries) == alone
    assert outcome.together({}, {}) == {}


def test_a_result_of_another_length_is_told(tmp_path):
    hand_in(tmp_path, "trainer-0", np.zeros(3, "<f4"))
    with pytest.raises(ValueError, match="has 3 parameters, not 5"):
        outcome.replicas(tmp_path, "0123", 5)


def test_the_view_shows_rates_since_the_last_report():
    console = pytest.importorskip("rich.console", reason="NOT TESTED: rich is not installed")
    from leashed.cluster.view import View  # noqa: PLC0415

    stream = io.StringIO()
    with View(console.Console(file=stream, force_terminal=True, width=120)) as view:
        view(fakes.report(4.0, "running", 1000.0))
        view(fakes.report(6.0, "running", 9000.0))
        view(fakes.report(6.0, "running", 9000.0))
    text = stream.getvalue()
    assert "4,000" in text  # examples a second between the two, not 1,500 since the beginning
    assert "1,500" not in text
    assert "40 of 100 batches" in text
    assert "1 × sync-ps, 2 × trainer" in text


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_metrics_are_offered_at_an_address(host):
    pytest.importorskip(
        "prometheus_client", reason="NOT TESTED: prometheus-client is not installed"
    )
    from leashed.cluster.prometheus import Exporter  # noqa: PLC0415

    with Exporter(host, 0) as exporter:
        address = f"http://{host}:{exporter.port}/metrics"
        assert exporter._server.server_address[0] == host
        with pytest.raises(OSError, match=rf"offer metrics at {host}:\d+: .* in use; give another"):
            Exporter(host, exporter.port)

        def lines():
            with urllib.request.urlopen(address, timeout=10) as answer:
                return answer.read().decode().splitlines()

        assert not [line for line in lines() if line.startswith("leashed")]
        exporter(fakes.report(4.0, "running", 1000.0))
        exporter(fakes.report(6.0, "running"))
        found = lines()
    for line in (
        'leashed_examples_total{trainer="0"} 3000.0',
        'leashed_eps{trainer="0"} 1000.0',
        'leashed_sync_gap{trainer="0"} 10.0',
        'leashed_members{role="trainer"} 2.0',
        'leashed_members{role="sync-ps"} 1.0',
        'leashed_trainer_bytes_out_total{trainer="0"} 24000.0',
        'leashed_server_bytes_in_total{server="0"} 40000.0',
        "leashed_batches_complete 40.0",
    ):
        assert line in found, found
    with pytest.raises(OSError, match=r"refused|Connection"):
        urllib.request.urlopen(address, timeout=1)


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("msgspec", [], "cluster"),
        ("rich", ["--view"], "view"),
        ("prometheus_client", ["--prometheus", "9999"], "prometheus"),
    ],
)
def test_what_is_not_installed_is_told_before_anything_starts(
    module, arguments, extra, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("view", "prometheus"):
        monkeypatch.delitem(sys.modules, f"leashed.cluster.{name}", raising=False)
        monkeypatch.delattr(f"leashed.cluster.{name}", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    assert cli.main(["cluster", "up", *arguments]) == 2
    assert f"pip install leashed[{extra}]" in capsys.readouterr().err
    assert list(Path(tmp_path).iterdir()) == []
