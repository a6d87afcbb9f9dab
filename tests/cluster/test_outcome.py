"""Which of the trainers' parameters are a run's model."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cluster import fakes, row_server
from cluster.handing import hand_in
from warned import once

import leashed as lsh
from leashed.cluster import joined_output, outcome, reached, results, run_table, trainer_session
from leashed.cluster.outcome import long_gone, together
from leashed.cluster.row_files import RowFiles
from leashed.files import folders
from leashed.models import tables
from leashed.models.layers import BatchNorm
from leashed.training.problems.problem import Problem

FOUND = {k: np.full(2, k, np.float32) for k in range(3)}
IN_STEP = {"batches_used": 9.0, "syncs": 3.0, "left_early": 0.0}
APART = {**IN_STEP, "syncs": 0.0}
EARLY = {**IN_STEP, "left_early": 1.0}
TOLD = {**EARLY, "interrupted": 1.0}


@pytest.mark.parametrize(
    ("summaries", "chosen"),
    [
        ([IN_STEP, IN_STEP, IN_STEP], [0, 1, 2]),
        ([EARLY, IN_STEP, IN_STEP], [1, 2]),
        ([APART, IN_STEP, EARLY], [1]),
        ([EARLY, EARLY, EARLY], [0, 1, 2]),
        ([TOLD, EARLY, EARLY], [1, 2]),  # all by stop rules of their own but the first
        ([APART, APART, APART], [0, 1, 2]),
        ([EARLY, APART, APART], [0]),  # these may have little more than what they began with
    ],
)
def test_who_was_in_step_at_the_end_comes_first(
    summaries: list[dict[str, float]], chosen: list[int]
) -> None:
    told = {f"trainer-{k}": each for k, each in enumerate(summaries)}
    assert list(together(FOUND, told)) == chosen


@pytest.mark.parametrize(
    ("left", "counted", "gone"),
    [
        ([10.0, None, None], [0.0, 70.0, 70.0], [0]),  # these were broken off
        ([66.0, None, None], [0.0, 70.0, 70.0], []),
        ([10.0, 70.0, None], [0.0, 0.0, 0.0], [0]),  # one after the other was told to end
        ([10.0, 12.0, None], [0.0, 0.0, 70.0], [0, 1]),
        ([None, None, None], [10.0, 70.0, 70.0], []),  # who of them has, nobody knows
    ],
)
def test_who_left_long_before_the_others_is_known(
    left: list[float | None], counted: list[float], gone: list[int]
) -> None:
    members = [
        fakes.member(k + 1, "trainer", k, left[k], {"batches_used": 9.0}, counted[k])
        for k in range(3)
    ]
    found = {k: each for k, each in FOUND.items() if left[k] is not None}
    for summary, expected in ((TOLD, gone), (IN_STEP, [])):
        told = {f"trainer-{k}": summary for k in found}
        report = {"members": members, "summaries": told}
        assert sorted(long_gone(found, report, 5.0)) == expected


def of_clicks() -> tuple[Problem, lsh.TrainResult]:
    """A small model that reads tables, and what one process trains of it."""
    split = lsh.datasets.synthetic_clicks(3000, test=1500, cardinalities=300, seed=1)
    model = lsh.models.dlrm(rows=300, dim=4, bottom=[4], top=[8])
    trained = lsh.train(
        model,
        split.train,
        discipline=lsh.Sequential(),
        threads=1,
        batch_size=32,
        until=lsh.until(epochs=2),
    )
    return Problem(model, split.train, split.test), trained


def saved(folder: Path, model: lsh.models.Graph, trained: lsh.TrainResult, servers: int) -> None:
    """The rows, as servers that had them would leave them."""
    every = trained.tables
    for index, mine in enumerate(row_server.spread(servers)):
        parts = tables.of(
            model.tables,
            rule=next(iter(every.values())).rule,
            seed=next(iter(every.values())).seed,
            shards=dict.fromkeys(every, mine),
        )
        for name, whole in every.items():
            whole.save(folder / "rows")
            parts[name].load(folder / "rows")
        files = RowFiles(parts, folder, "0123", index, 1.0)
        files.restore()
        files.serve(row_server.Server({}))
        files.end()


def plan_of(servers: int, output: str = "first") -> Any:
    processes = [("embedding-ps", index) for index in range(servers)]
    train = SimpleNamespace(model="dlrm", mode=None, threads=1, batch_size=32, output=output)
    cluster = SimpleNamespace(
        timeout=5.0, sync_ps=0, readers=0, resume=None, processes=lambda: processes
    )
    sync = SimpleNamespace(synchroniser=lambda: None)
    return SimpleNamespace(train=train, sync=sync, cluster=cluster)


@pytest.mark.parametrize("state", ["incomplete", "ended"])
def test_parameters_of_a_mode_that_is_broken_off_are_of_the_moment_of_its_rows(
    tmp_path: Path, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, trained = of_clicks()
    saved(tmp_path, problem.model, trained, 2)
    before = np.zeros_like(trained.parameters)
    hand_in(tmp_path, "trainer-0", before)
    plan = plan_of(2)
    plan.train.mode = "sync"
    left = reached.Reached("what was left", trained.parameters, None)
    monkeypatch.setattr(reached, "find", lambda *_: left)
    places = [tmp_path / f"embedding-ps-{k}" for k in range(2)]
    report = {**fakes.report(), "state": state}
    whole = outcome.conclude(report, tmp_path, plan, problem, {}, {}, places)
    over = state == "ended"
    assert whole["output"] == (
        "trainer 0 (the policy server's parameters)" if over else "what was left"
    )
    found = lsh.load(tmp_path / "output").parameters
    np.testing.assert_array_equal(found, before if over else trained.parameters)


def test_parameters_of_before_the_rows_and_of_a_run_that_has_failed_are_said_to_be_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where trainers have handed in, and policy servers have left none."""
    problem, trained = of_clicks()
    saved(tmp_path, problem.model, trained, 2)
    hand_in(tmp_path, "trainer-0", trained.parameters)
    plan = plan_of(2)
    plan.train.mode = "sync"
    monkeypatch.setattr(reached, "find", lambda *_: None)
    places = [tmp_path / f"embedding-ps-{k}" for k in range(2)]
    for state, words in (
        ("failed", ", and no trained model, since the run has failed"),
        ("incomplete", ""),
    ):
        report = {**fakes.report(), "state": state}
        whole = outcome.conclude(report, tmp_path, plan, problem, {}, {}, places)
        assert whole["output"] == (
            f"trainer 0 (the policy server's parameters){words}; its rows are of the run's end, of whose "
            "parameters nothing is left"
        )


def test_what_rank_0_writes_of_a_mode_is_of_the_moment_of_its_rows(tmp_path: Path) -> None:
    """It may have ended before others."""
    problem, trained = of_clicks()
    saved(tmp_path, problem.model, trained, 2)
    dimension, half = len(trained.parameters), len(trained.parameters) // 2
    spans = [[(0, half)], [(half, dimension)]]
    counts = {"updates": np.array(9), "reduced": np.array(0), "failed": np.array("")}
    for k, [(begin, end)] in enumerate(spans):
        part: Any = {"parameters": trained.parameters[begin:end], **counts}
        np.savez(tmp_path / f"policy-ps-{k}.npz", run=np.array("0123"), **part)
        (tmp_path / f"embedding-ps-{k}.saved").touch()
    before = trainer_session.Reached("0123", problem.model, np.zeros(dimension, np.float32), None)
    led: Any = SimpleNamespace(shards=spans, theta=before.parameters)
    places = [tmp_path / f"embedding-ps-{k}" for k in range(2)]
    for mode, expected in ((None, before.parameters), (led, trained.parameters)):
        output = joined_output.write(places, tmp_path, before, 1.0, collect=False, led=mode)
        assert output is not None
        np.testing.assert_array_equal(lsh.load(output.folder).parameters, expected)
        np.testing.assert_array_equal(output.parameters, expected)
    (tmp_path / "policy-ps-1.npz").unlink()
    with once("the parameters beside the tables are those of this trainer's end"):
        output = joined_output.write(places, tmp_path, before, 1.0, collect=False, led=led)
    assert output is not None
    np.testing.assert_array_equal(output.parameters, before.parameters)


@pytest.mark.parametrize("servers", [1, 3])
def test_the_output_of_a_run_with_tables_is_what_one_process_would_have(
    tmp_path: Path, servers: int
) -> None:
    problem, trained = of_clicks()
    saved(tmp_path, problem.model, trained, servers)
    hand_in(tmp_path, "trainer-0", trained.parameters)
    report = fakes.report()
    whole = outcome.conclude(report, tmp_path, plan_of(servers), problem, {}, {})
    expected = problem.model.evaluate(trained.parameters, problem.test, trained.tables)
    told = [whole[f"test_{name}"] for name in ("loss", "accuracy", "auc", "normalised_entropy")]
    assert told == pytest.approx(expected)  # threads sum in no order
    facts = dict(run_table.facts(whole))
    assert facts["test AUC"] == (
        f"{expected.auc:.4f}, normalised entropy {expected.normalised_entropy:.4g}"
    )
    for path in (tmp_path / "output", tmp_path):
        loaded = lsh.load(path)
        assert list(loaded.tables) == list(trained.tables)
        np.testing.assert_array_equal(loaded.parameters, trained.parameters)
        found = loaded.model.evaluate(loaded.parameters, problem.test, loaded.tables)
        assert found == pytest.approx(expected)
    assert outcome.read_report(tmp_path) == whole


def test_the_best_of_several_on_clicks_is_that_of_the_best_auc(tmp_path: Path) -> None:
    problem, trained = of_clicks()
    saved(tmp_path, problem.model, trained, 2)
    ranks = np.array(trained.parameters)
    ranks[-1] += 5.0  # all are clicked, as it says
    for index, theta in enumerate((problem.model.init(0), ranks)):
        hand_in(tmp_path, f"trainer-{index}", theta)
    whole = outcome.conclude(fakes.report(), tmp_path, plan_of(2, "best"), problem, {}, {})
    assert whole["output"] == "trainer 1, the best of 2 on the test set"


@pytest.mark.parametrize("output", ["first", "average", "best"])
def test_statistics_are_those_of_the_parameters_that_come_out(output: str, tmp_path: Path) -> None:
    """Of an average, weighted by how many batches each is of."""
    split = lsh.datasets.synthetic_clicks(3000, test=1500, cardinalities=300, seed=1)
    model = lsh.models.dlrm(rows=300, dim=4, bottom=[4], top=[8], norm=BatchNorm())
    trained = lsh.train(
        model, split.train, discipline=lsh.Sequential(), threads=1, batch_size=32,
        until=lsh.until(epochs=2),
    )  # fmt: skip
    saved(tmp_path, model, trained, 2)
    found, report = [trained.statistics, 2 * trained.statistics], fakes.report()
    for index, batches in enumerate((100.0, 300.0)):
        hand_in(tmp_path, f"trainer-{index}", trained.parameters, found[index])
        report["summaries"][f"trainer-{index}"] = {**IN_STEP, "statistics_batches": batches}
    problem = Problem(model, split.train, split.test)
    whole = outcome.conclude(report, tmp_path, plan_of(2, output), problem, {}, {})
    loaded = lsh.load(tmp_path / "output")
    expected = 1 + whole["output"].startswith("trainer 1") if output != "average" else 1.75
    np.testing.assert_allclose(loaded.statistics, expected * trained.statistics, rtol=1e-6)
    assert loaded.evaluate(split.test).loss == pytest.approx(whole["test_loss"])


def test_pushes_that_no_file_has_are_told(tmp_path: Path) -> None:
    problem, trained = of_clicks()
    saved(tmp_path, problem.model, trained, 2)
    hand_in(tmp_path, "trainer-0", trained.parameters)
    report = fakes.report()
    for index, pushes in enumerate((0.0, 1200.0)):
        counted = {"pushes": pushes, "rows": 1.0}
        report["members"].append(
            fakes.member(10 + index, "embedding-ps", index, None, counted, 11.0)
        )
    whole = outcome.conclude(report, tmp_path, plan_of(2), problem, {}, {})
    assert whole["rows_behind"] == {"embedding-ps-1": 1200}
    told = "pushes since the last snapshot: 1,200 of embedding-ps-1"
    assert dict(run_table.facts(whole))["not in the output"] == told


def test_what_a_server_counted_when_it_saved_is_told(tmp_path: Path) -> None:
    """Its last word may be of a moment before."""
    problem, trained = of_clicks()
    saved(tmp_path, problem.model, trained, 1)
    hand_in(tmp_path, "trainer-0", trained.parameters)
    report = fakes.report()
    counted = {"pushes": 0.0, "rows": 1.0, "lookups": 5.0}
    report["members"] += [
        fakes.member(10, "embedding-ps", 0, 2.0, {**counted, "pushes": 3.0}, 2.0),
        fakes.member(11, "embedding-ps", 0, None, counted, 11.0),
    ]
    whole = outcome.conclude(report, tmp_path, plan_of(1), problem, {}, {})
    first, last = (each["counters"] for each in whole["members"][-2:])
    assert (first["rows"], last["rows"], last["lookups"]) == (1.0, 26 * 300, 5.0)


def test_without_all_rows_there_is_a_report_and_no_model(tmp_path: Path) -> None:
    problem, trained = of_clicks()
    saved(tmp_path, problem.model, trained, 2)
    hand_in(tmp_path, "trainer-0", trained.parameters)
    with pytest.raises(FileNotFoundError, match="embedding server 2 has saved no rows in"):
        outcome.conclude(fakes.report(), tmp_path, plan_of(3), problem, {}, {})
    told = outcome.read_report(tmp_path)
    assert told is not None
    assert "output" not in told
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize("damage", ["missing", "another"])
def test_without_a_result_that_was_named_there_is_a_report_and_no_model(
    damage: str, tmp_path: Path
) -> None:
    problem, trained = of_clicks()
    saved(tmp_path, problem.model, trained, 1)
    hand_in(tmp_path, "trainer-0", trained.parameters)
    path = results.named(tmp_path, "0123")["trainer-0"]
    path.unlink() if damage == "missing" else path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises((FileNotFoundError, ValueError), match="manifest beside it"):
        outcome.conclude(
            fakes.report(),
            tmp_path,
            plan_of(1),
            problem,
            {"trainer-0": 2},
            {"trainer-1": "it died"},
        )
    told = outcome.read_report(tmp_path)
    assert told is not None
    assert told["restarts"] == {"trainer-0": 2}
    assert told["given_up"] == {"trainer-1": "it died"}
    assert "output" not in told


def test_a_model_that_cannot_be_written_is_not_told_as_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    problem, trained = of_clicks()
    saved(tmp_path, problem.model, trained, 1)
    hand_in(tmp_path, "trainer-0", trained.parameters)
    monkeypatch.setattr(outcome.checkpoint, "save", full)
    with pytest.raises(OSError, match="No space left"):
        outcome.conclude(fakes.report(), tmp_path, plan_of(1), problem, {}, {})
    told = outcome.read_report(tmp_path)
    assert told is not None
    assert "test_auc" in told
    assert "output" not in told


def test_results_are_read_once_also_where_what_the_run_had_reached_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, trained = of_clicks()
    saved(tmp_path, problem.model, trained, 1)
    hand_in(tmp_path, "trainer-0", trained.parameters)
    digests: list[Path] = []
    of = folders.digest_of

    def digest_of(path: Path) -> str:
        digests.append(path)
        return of(path)

    monkeypatch.setattr(folders, "digest_of", digest_of)
    looked_for: list[float] = []
    monkeypatch.setattr(outcome, "long_gone", lambda found, *_: set(found))
    monkeypatch.setattr(reached, "find", lambda *given: looked_for.append(given[-1]))
    outcome.conclude(fakes.report(), tmp_path, plan_of(1), problem, {}, {})
    (path,) = (one for one in digests if one.name.startswith("trainer-0"))
    assert looked_for == [path.stat().st_mtime]


def test_rows_that_no_rank_0_has_joined_make_the_tables_of_one_process(tmp_path: Path) -> None:
    problem, trained = of_clicks()
    model: Any = problem.model
    saved(tmp_path, model, trained, 3)
    places = [tmp_path / f"embedding-ps-{k}" for k in (2, 0, 1)]
    tables = lsh.cluster.tables_of(model, places)
    lsh.save(tmp_path / "output", model, trained.parameters, tables, trained.statistics)
    loaded = lsh.load(tmp_path / "output")
    found = model.evaluate(loaded.parameters, problem.test, loaded.tables)
    assert found == pytest.approx(
        model.evaluate(trained.parameters, problem.test, trained.tables)
    )  # threads sum in no order
    with pytest.raises(FileNotFoundError, match="embedding server 1 has saved no rows in"):
        lsh.cluster.tables_of(model, [places[0], tmp_path])
    with pytest.raises(ValueError, match="shard"):
        lsh.cluster.tables_of(model, places[:2])
    with pytest.raises(ValueError, match="folders must be those of all embedding servers"):
        lsh.cluster.tables_of(model, [])
    for one in (places[0], str(places[0])):
        with pytest.raises(TypeError, match="folders must be a list, with one of each server"):
            lsh.cluster.tables_of(model, one)
    without: Any = lsh.models.mlp(3, [8], 2)
    with pytest.raises(TypeError, match="model must be one that reads tables"):
        lsh.cluster.tables_of(without, places)
