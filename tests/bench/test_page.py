"""The page of results, from a recorded file of results cut down to a few records a section."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import figures, page, run
from bench.section import Goal, asked, names

RECORDED = Path(__file__).parent / "results.json"


@pytest.fixture
def results() -> figures.Results:
    return json.loads(RECORDED.read_text("utf-8"))


@pytest.fixture
def words_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts take most of the time that a page takes."""
    monkeypatch.setattr("bench.page.draw", lambda *_: None)


def _goals(results: figures.Results) -> list[Goal]:
    return [goal for _, goal in asked(results)]


def _goal_lines(text: str) -> list[str]:
    table = text.partition("## Goals")[2].partition("\n## ")[0]
    return [line for line in table.splitlines() if line.startswith("| ")][2:]


def test_the_page_shows_every_goal_and_every_chart(
    results: figures.Results, tmp_path: Path
) -> None:
    text = page.page(results, tmp_path)
    lines = _goal_lines(text)
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines] == [
        goal.work for goal in _goals(results)
    ]
    charts = re.findall(r"\]\((performance/\w+\.svg)\)", text)
    assert len(charts) >= 5
    assert all((tmp_path / chart).stat().st_size > 0 for chart in charts)


def test_a_page_can_be_made_again_without_a_change(
    results: figures.Results, tmp_path: Path
) -> None:
    first = page.page(results, tmp_path)
    charts = {path: path.read_bytes() for path in (tmp_path / "performance").iterdir()}
    assert page.page(results, tmp_path) == first
    assert {path: path.read_bytes() for path in charts} == charts


@pytest.mark.usefixtures("words_only")
def test_a_section_of_another_machine_tells_which(results: figures.Results, tmp_path: Path) -> None:
    name = next(name for name in results["sections"] if name != "ceilings")
    machine = {**results["machine"], "cpu": "Another", "cores": 3}
    other = {"machine": machine, "sections": {name: results["sections"][name]}}
    here, there = page.page(results, tmp_path), page.page(results, tmp_path, {name: other})
    assert there.replace("Measured on Another, 3 processors.\n\n", "", 1) == here != there


@pytest.mark.usefixtures("words_only")
def test_a_goal_is_met_or_missed_by_its_number(results: figures.Results, tmp_path: Path) -> None:
    goal = next(g for g in _goals(results) if g.work.startswith("T_u"))
    record = next(r for r in figures.figures(results, "update") if r["dimension"] == 134_794)

    record["ratio"] = goal.target
    line = next(x for x in _goal_lines(page.page(results, tmp_path)) if goal.work in x)
    assert "met" in line
    assert "missed" not in line

    record["ratio"] = goal.target + 0.01
    text = page.page(results, tmp_path)
    assert "missed" in next(x for x in _goal_lines(text) if goal.work in x)
    assert f"- {goal.work}: 1.16, goal 1.15" in text
    assert "## Profile: Publishing" in text


@pytest.mark.usefixtures("words_only")
@pytest.mark.parametrize("section", names())
def test_a_section_may_be_missing(results: figures.Results, section: str, tmp_path: Path) -> None:
    results["sections"].pop(section, None)
    assert "## Goals" in page.page(results, tmp_path)


@pytest.mark.usefixtures("words_only")
def test_where_no_peer_is_installed_their_goals_are_not_measured(
    results: figures.Results, tmp_path: Path
) -> None:
    peers = results["sections"]["peers"]
    peers["figures"] = [r for r in peers["figures"] if r["library"] == "leashed"]
    results["sections"]["gemm"]["figures"]["libraries"] = []
    results["sections"]["time_to_loss"]["figures"]["PyTorch"] = []
    for section in ("rules", "torch_backend"):
        results["sections"].pop(section)
    for record in results["sections"]["tables"]["figures"]:
        for peer in [name for name in record.get("rate", ()) if name.startswith("PyTorch")]:
            del record["rate"][peer]
    lines = _goal_lines(page.page(results, tmp_path))
    for word in ("PyTorch", "GEMM"):
        assert all("not measured" in line for line in lines if word in line)


@pytest.mark.usefixtures("words_only")
def test_rows_at_servers_are_judged_turn_by_turn(results: figures.Results, tmp_path: Path) -> None:
    def served(
        work: str, eps: list[float], cpu: list[float], **of: list[float]
    ) -> dict[str, object]:
        rates = {"examples_per_second": eps, "cpu_us_per_example": cpu}
        return {"figure": "served", "batch": 512, "work": work, **rates, **of}

    def training(work: str, *eps: float) -> dict[str, object]:
        return {"figure": "training", "batch": 512, "work": work, "eps": list(eps)}

    def waits(batch: int, work: str, *share: float) -> dict[str, object]:
        told = {"eps": [100.0] * len(share), "waits": list(share)}
        return {"figure": "waits", "batch": batch, "work": work, **told}

    results["sections"]["rows"] = {
        "scale": 1.0,
        "seconds": 1.0,
        "load_before": 0.0,
        "figures": [
            served("raw", [2e6, 2e6], [0.3, 0.3]),
            served("tcp", [8e5, 4e5], [1.2, 1.5], of_what_has_to_be_done=[0.9, 0.88]),
            served("torch.distributed.rpc", [8e4, 4e4], [11.0, 11.0]),
            training("one process", 100.0, 50.0),
            training("tcp", 80.0, 40.0),
            training("shm", 80.0, 40.0),
            waits(512, "1 ahead", 0.03, 0.05),
            waits(512, "2 ahead", 0.21, 0.23),
            waits(64, "1 ahead", 0.06, 0.08),
        ],
    }
    text = page.page(results, tmp_path)
    lines = [
        line
        for line in _goal_lines(text)
        if "rows at a server" in line or "embedding servers" in line
    ]
    assert len(lines) == 9
    assert sum("not measured" in line for line in lines) == 2  # of batch 128
    assert sum("| met |" in line for line in lines) == 6
    assert "2 ahead" in text
    assert "22.0%" in text
    (missed,) = [line for line in lines if "missed" in line]
    assert "shared memory" in missed
    assert "0.800" in missed
    assert any("10.0" in line for line in lines)


@pytest.mark.usefixtures("words_only")
def test_modes_over_processes_are_judged_turn_by_turn(
    results: figures.Results, tmp_path: Path
) -> None:
    def training(work: str, *eps: float) -> dict[str, object]:
        return {"figure": "training", "mode": "asp", "batch": 512, "work": work, "eps": list(eps)}

    results["sections"]["led"] = {
        "scale": 1.0,
        "seconds": 1.0,
        "load_before": 0.0,
        "figures": [
            training("one thread", 100.0, 50.0, 80.0),
            training("tcp", 90.0, 46.0, 70.0),
            training("shm", 80.0, 40.0, 64.0),
            {
                "figure": "pushes",
                "bytes": 1024,
                "lanes": 8,
                "of_its_processor_time": [2e5, 3e5, 1e5],
                "of_time": [1e4, 1e4, 1e4],
            },
        ],
    }
    lines = [
        line for line in _goal_lines(page.page(results, tmp_path)) if "server" in line.split("|")[1]
    ]
    told = [line for line in lines if "mode=" in line or "policy server" in line]
    assert len(told) == 9
    (tcp,) = [line for line in told if "mode=asp" in line and "TCP, MLP, batch 512" in line]
    assert "0.900" in tcp
    assert "| met |" in tcp
    (missed,) = [line for line in told if "missed" in line]
    assert "shared memory" in missed
    assert any("200" in line and "| met |" in line for line in told)


@pytest.mark.usefixtures("words_only")
def test_dlrm_is_judged_by_its_ceiling_and_by_the_best_peer(
    results: figures.Results, tmp_path: Path
) -> None:
    for record in results["sections"]["tables"]["figures"]:
        if record["figure"] == "rows":  # 197 kFLOP: 10 µs, and as many for the rows
            n = len(record["gflops"])
            record |= {"gflops": [19.6576] * n, "examples": [1e5] * n, "cpu_share": [1.0] * n}
        elif record["figure"] == "dlrm":
            rates = {name: 8000.0 if "PyTorch" in name else 40000.0 for name in record["rate"]}
            record["rate"] = {name: [rate] * 3 for name, rate in rates.items()}
            record["cpu_share"] = {name: [1.0] * 3 for name in rates}
        else:
            record |= {"fixed": [2.0, 2.0], "growing": [1.0, 1.2]}
    lines = [line for line in _goal_lines(page.page(results, tmp_path)) if "batch 512" in line]
    assert any("at its ceiling" in line and "0.800" in line and "| met |" in line for line in lines)
    assert any("PyTorch's best" in line and "5.00" in line and "| met |" in line for line in lines)
    assert "0.55 times as many" in page.page(results, tmp_path)


@pytest.mark.usefixtures("words_only")
def test_synchronisation_is_judged_by_the_ends_of_its_intervals(
    results: figures.Results, tmp_path: Path
) -> None:
    text = page.page(results, tmp_path)
    lines = _goal_lines(text)
    loss = next(line for line in lines if "background synchronisation" in line)
    assert "0.015" in loss
    assert "| met |" in loss
    faulty = next(line for line in lines if "hung or slow" in line)
    assert "0.03" in faulty
    assert "missed" in faulty
    assert "0.9900 (0.9850 to 0.9950)" in text


@pytest.mark.usefixtures("words_only")
def test_shortened_results_say_so(results: figures.Results, tmp_path: Path) -> None:
    for section in results["sections"].values():
        section["scale"] = 1.0
    assert "shortened" not in page.page(results, tmp_path)
    results["sections"]["update"]["scale"] = 0.5
    assert "shortened" in page.page(results, tmp_path)


def test_results_are_written_as_json_with_a_record_a_line(results: figures.Results) -> None:
    text = run.text(results)
    assert json.loads(text) == results
    assert max(map(len, text.splitlines())) < 1000


def test_what_is_no_number_is_written_as_null() -> None:
    assert run.rounded({"a": [float("nan"), float("inf"), 1.23456789]}) == {
        "a": [None, None, 1.23457]
    }


@pytest.mark.usefixtures("words_only")
def test_runs_that_returned_in_time_are_counted(results: figures.Results, tmp_path: Path) -> None:
    assert "1 of leashed's 2 runs returned within" in page.page(results, tmp_path)
    ours = results["sections"]["time_to_loss"]["figures"]["leashed"]
    ours["returned"] = [reached + 0.01 for reached in ours["seconds"]]
    assert "2 of leashed's 2 runs returned within" in page.page(results, tmp_path)


@pytest.mark.usefixtures("words_only")
@pytest.mark.parametrize(("seconds", "word"), [(2e-8, "met"), (2.1e-8, "**missed**")])
def test_recording_is_judged_by_its_time_bytes_and_rate(
    results: figures.Results, tmp_path: Path, seconds: float, word: str
) -> None:
    training = {"dimension": 1000, "threads": 2, "batch_size": 16, "eps": [1.0], "ratio": 0.99}
    records = [
        {"figure": "record", "seconds": seconds, "bytes": 6.25},
        {"figure": "training", **training},
    ]
    section = {"scale": 1, "seconds": 1.0, "load_before": 0.0, "figures": records}
    results["sections"]["recording"] = section
    text = page.page(results, tmp_path)
    (line,) = [line for line in _goal_lines(text) if "recorded update" in line]
    assert word in line
    assert "takes 6.25 bytes" in text
    assert "0.990 of the examples per second" in text
    assert ("## Profile: Recording" in text) == (word != "met")


@pytest.mark.usefixtures("words_only")
@pytest.mark.parametrize(("rate", "word"), [(1e6, "met"), (9.9e5, "**missed**")])
def test_modes_are_judged_by_the_slowest_push_and_the_median_of_the_turns(
    results: figures.Results, tmp_path: Path, rate: float, word: str
) -> None:
    records = [
        {"figure": "decision", "mode": mode, "workers": n, "rate": 1e7}
        for mode in ("asp", "sync", "shat")
        for n in (8, 3000)
    ]
    records += [
        {"figure": "push", "mode": mode, "workers": 8, "rate": of}
        for mode, of in (("asp", rate), ("sync", 5e6))
    ]
    records += [
        {
            "figure": "training",
            "mode": mode,
            "discipline": discipline,
            "threads": 2,
            "batch_size": 64,
            "rate": {"mode": turns, "discipline": [10.0, 20.0, 10.0]},
            "cpu_share": {"mode": [1.0] * 3, "discipline": [1.0] * 3},
        }
        for mode, discipline, turns in (
            ("ASP", "Hogwild", [9.0, 18.0, 1.0]),
            ("Sync", "Synchronous", [8.0, 18.0, 1.0]),
        )
    ]
    section = {"scale": 1, "seconds": 1.0, "load_before": 0.0, "figures": records}
    results["sections"]["modes"] = section
    text = page.page(results, tmp_path)
    lines = _goal_lines(text)
    assert word in next(line for line in lines if "push of 1 kB" in line)
    assert "| met |" in next(line for line in lines if "mode=ASP()" in line)
    assert "missed" in next(line for line in lines if "mode=Sync()" in line)
    assert "| shat | 100 | 100 |  |" in text
    assert "## Profile: Modes on threads" in text


@pytest.mark.usefixtures("words_only")
@pytest.mark.parametrize(("rate", "word"), [(8e4, "met"), (7.9e4, "**missed**")])
def test_virtual_time_is_judged_by_its_rate_and_memory(
    results: figures.Results, tmp_path: Path, rate: float, word: str
) -> None:
    asp = {
        "figure": "asp",
        "workers": 3000,
        "batch": 128,
        "rate": {"sequential": [1e5] * 3, "virtual": [rate] * 3},
        "cpu_share": {"sequential": [1.0] * 3, "virtual": [1.0] * 3},
        "rows": {"applied": 10, "staleness": 25},
        "peak_bytes": 1.5e9,
    }
    section = {"scale": 1, "seconds": 1.0, "load_before": 0.0, "figures": [asp]}
    results["sections"]["virtual"] = section
    text = page.page(results, tmp_path)
    (line,) = [line for line in _goal_lines(text) if "virtual time" in line]
    assert word in line
    assert "1.50 GB at most" in text
    assert "stale by 2.50 of its own" in text
    assert ("## Profile: Virtual time" in text) == (word != "met")


@pytest.mark.usefixtures("words_only")
@pytest.mark.parametrize(("rate", "word"), [(98.0, "met"), (97.0, "**missed**")])
def test_counting_is_judged_by_the_median_of_the_turns(
    results: figures.Results, tmp_path: Path, rate: float, word: str
) -> None:
    turns = {"without": [100.0, 50.0, 100.0], "with": [rate, 10.0, 100.0], "with GAUC": [90.0] * 3}
    records = [
        {
            "figure": name,
            "threads": 2,
            "rate": turns,
            "cpu_share": {key: [1.0] * 3 for key in turns},
        }
        for name in ("DLRM", "logistic regression")
    ]
    section = {"scale": 1, "seconds": 1.0, "load_before": 0.0, "figures": records}
    results["sections"]["counting"] = section
    text = page.page(results, tmp_path)
    (line,) = [line for line in _goal_lines(text) if "metrics while training" in line]
    assert word in line
    assert "| DLRM | " in text


@pytest.mark.usefixtures("words_only")
def test_the_page_tells_the_steps_of_fits_on_sparse_rows(
    results: figures.Results, tmp_path: Path
) -> None:
    """Of before the default was another; a measurement of now tells its own."""
    assert "the same steps, of 0.02 for each row" in page.page(results, tmp_path)
    note = "leashed's fits on sparse rows (20 a row) had steps of 1"
    assert note not in page.page(results, tmp_path)
    for record in figures.figures(results, "estimators"):
        record["problem"] = record["problem"].replace("20 features, dense", "20 features, 20 a row")
    assert note in page.page(results, tmp_path)
    for record in figures.figures(results, "estimators"):
        record["lr"] = 0.05
    assert note not in page.page(results, tmp_path)


def test_who_asks_for_one_section_imports_no_other() -> None:
    code = (
        "import sys; from bench.section import names, section; "
        "section(names()[0]); "
        "print(*[name for name in sys.modules if name.startswith('bench.sections.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=run.ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == [f"bench.sections.{names()[0]}"]
