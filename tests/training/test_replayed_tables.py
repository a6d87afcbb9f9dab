"""Recorded runs of models that read tables are made again with their rows: what Python adds to
tests/cpp/modes/test_policy_rows.cc.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import killed
import matrix
import numpy as np
import pytest
from made_clicks import ROWS, clicks, shared, small
from rows_models import external, python_gradient, python_loss
from simulation.test_simulated_tables import PUSHING

import leashed as lsh
from leashed import cli, modes, rules, schedules, staleness
from leashed.models import tables
from leashed.training import recordings

SYNC: dict[str, Any] = {"discipline": lsh.Synchronous(), "threads": 3}
SEQ: dict[str, Any] = {"discipline": lsh.Sequential(), "threads": 1}
WAYS = [SEQ, SYNC, *({"mode": mode, "threads": 3} for mode in PUSHING)]
PAGE = 1 << 16


def name(way: Any) -> str | None:
    return repr(way.get("mode", way.get("discipline"))) if isinstance(way, dict) else None


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "run.trace"


def run(model: Any, data: Any, trace: Path | None, **given: Any) -> lsh.TrainResult:
    settings: dict[str, Any] = {
        "until": lsh.until(epochs=3),
        "rule": lsh.Adagrad(0.05),
        "batch_size": 8,
        "seed": 5,
        "observe": lsh.Observe(every=0.002, record=trace),
        **given,
    }
    return lsh.train(model, data, **settings)


def same_rows(made: Any, result: Any) -> None:
    assert list(made.tables) == list(result.tables)
    for got, wanted in zip(made.tables.values(), result.tables.values(), strict=True):
        ids = wanted.ids()
        np.testing.assert_array_equal(got.ids(), ids)
        rows = zip(got.lookup(ids, versions=True), wanted.lookup(ids, versions=True), strict=True)
        for one, other in rows:
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(got.row_staleness(), wanted.row_staleness())
        found, then = got.statistics(), wanted.statistics()
        for key in ("asked", "rows", "steps", *tables.RowUpdate._fields):
            assert found[key] == then[key], key


def require_same(made: lsh.Replay, result: lsh.TrainResult) -> None:
    np.testing.assert_array_equal(made.parameters, result.parameters)
    assert made.updates == result.total_updates > 0
    assert made.ended
    assert made.exact
    assert made.difference == 0
    same_rows(made, result)


@pytest.mark.parametrize("way", WAYS, ids=name)
def test_rows_of_several_threads(way: dict[str, Any], trace: Path) -> None:
    model = shared()
    data = clicks(model, 800, kind="weights")
    result = run(model, data, trace, **way)
    require_same(lsh.replay(trace, model, data), result)
    half = result.total_updates // 2
    then, again = (lsh.replay(trace, data=data, until=half) for _ in range(2))
    assert then.updates == half
    assert not then.ended
    same_rows(then, again)
    last = next(iter(then.tables.values())).statistics()["applied"]
    assert 0 < last < next(iter(result.tables.values())).statistics()["applied"]


@pytest.mark.parametrize("way", [SEQ, {"mode": modes.ASP(), "threads": 1}], ids=name)
def test_until_an_update_is_a_run_of_so_many(way: dict[str, Any], trace: Path) -> None:
    model = shared()
    data = clicks(model, kind="bags")
    run(model, data, trace, **way)
    then = lsh.replay(trace, model, data, until=37)
    plain = run(model, data, None, **{**way, "until": lsh.until(updates=37)})
    np.testing.assert_array_equal(then.parameters, plain.parameters)
    for got, wanted in zip(then.tables.values(), plain.tables.values(), strict=True):
        np.testing.assert_array_equal(got.lookup(np.arange(ROWS)), wanted.lookup(np.arange(ROWS)))


@pytest.mark.parametrize("way", [SEQ, SYNC, {"mode": modes.GBA(m=2), "threads": 3}], ids=name)
def test_recording_changes_no_bit(way: dict[str, Any], trace: Path) -> None:
    model = shared()
    data = clicks(model, kind="bags")
    if "mode" in way:
        way = {**way, "threads": 1}
    result, plain = run(model, data, trace, **way), run(model, data, None, **way)
    np.testing.assert_array_equal(result.parameters, plain.parameters)
    same_rows(result, plain)


ORDERED = [SEQ, SYNC, {"mode": modes.ASP(), "threads": 3}, {"mode": modes.GBA(m=2), "threads": 3}]


@pytest.mark.parametrize("way", ORDERED, ids=name)
@pytest.mark.parametrize(
    ("rule", "policy"),
    [
        (rules.SWAP(lsh.Adagrad(0.05), period=5), staleness.tail_tau(warmup=20)),
        (lsh.Adam(schedules.cosine(0.02, total=100)), staleness.stage_aware(staleness.inverse())),
        (tables.RowwiseAdagrad(0.05), staleness.cutoff(1)),
        (lsh.SGD(0.05), staleness.table([1.0, 0.5, 0.25])),
    ],
    ids=["swap, tail_tau", "schedule, stages", "cutoff", "table"],
)
def test_rules_and_policies_of_rows(
    way: dict[str, Any], rule: Any, policy: Any, trace: Path
) -> None:
    """Which differ from those of the parameters; and tables that grow and admit."""
    model = shared(rows=None)
    data = clicks(model, 800, kind="bags", rows=40)
    new = tables.of(
        model.tables, rule=rule, staleness=policy, admit_after=3, seed=7, init=tables.uniform(0.3)
    )
    policy = staleness.none() if isinstance(way.get("mode"), modes.SHAT) else policy
    result = run(model, data, trace, **way, init=lsh.Init(tables=new), staleness=policy)
    require_same(lsh.replay(trace, model, data), result)
    assert sum(table.statistics()["unadmitted"] for table in new.values()) > 0


@pytest.mark.filterwarnings("ignore:table .* is full:RuntimeWarning")
@pytest.mark.parametrize("way", ORDERED, ids=name)
def test_tables_that_are_full(way: dict[str, Any], trace: Path) -> None:
    """Which ids have got a row depends on who came first."""
    model = shared(rows=None)
    data = clicks(model, 2000, kind="bags", rows=5000)
    new = tables.of(model.tables, max_bytes=2**16, admit_after=2)
    result = run(model, data, trace, **way, init=lsh.Init(tables=new))
    require_same(lsh.replay(trace, model, data), result)
    assert any(table.statistics()["refused"] > 0 for table in new.values())


def test_weight_decay_of_rows(trace: Path) -> None:
    model = small()
    data = clicks(model)
    for rule in (lsh.rules.SGD(0.05, decoupled=True), rules.SWAP(rules.Adam(0.01), period=20)):
        new = tables.of(model.tables, rule=rule, weight_decay=0.1)
        result = run(model, data, trace, mode=modes.ASP(), threads=2, init=lsh.Init(tables=new))
        require_same(lsh.replay(trace, model, data), result)


def test_tables_without_versions(trace: Path) -> None:
    model = small()
    data = clicks(model)
    new = tables.of(model.tables, versions=False)
    result = run(model, data, trace, mode=modes.ASP(), threads=2, init=lsh.Init(tables=new))
    require_same(lsh.replay(trace, model, data), result)


@pytest.mark.parametrize("way", ORDERED, ids=name)
def test_histories_and_gradients_of_ones_own(way: dict[str, Any], trace: Path) -> None:
    histories = lsh.datasets.synthetic_histories(rows=600, seed=1).train
    reads = lsh.models.din(None, None, None, 4, histories.x.shape[1], (8,), (8,), longest=6)
    result = run(reads, histories, trace, **way, until=lsh.until(epochs=1))
    require_same(lsh.replay(trace, data=histories), result)
    own = external(python_gradient, loss=python_loss)
    data = clicks(small(), 200, kind="one")
    data = lsh.datasets.ClickDataset.from_arrays(
        data.x, np.column_stack([data.ids, data.ids[:, 0]]), data.y
    )
    result = run(own, data, trace, **way)
    require_same(lsh.replay(trace, own, data), result)
    with pytest.raises(ValueError, match="its model is external"):
        lsh.replay(trace, data=data)


@pytest.mark.parametrize("way", ORDERED, ids=name)
def test_streams_of_clicks(way: dict[str, Any], trace: Path, tmp_path: Path) -> None:
    problem = matrix.problems(tmp_path)["stream of clicks"]
    result = run(*problem(), trace, **way)
    require_same(lsh.replay(trace, *problem()), result)
    then = lsh.replay(trace, *problem(), until=11)
    assert then.updates == 11


def test_beside_checkpoints_and_metrics(trace: Path, tmp_path: Path) -> None:
    model = small()
    data = clicks(model, 800)
    for way in ORDERED:
        result = run(
            model,
            lsh.datasets.ClickSplit(data, clicks(model, seed=1)),
            trace,
            **way,
            checkpoint=lsh.Checkpoint(tmp_path / "kept", updates=20),
            observe=lsh.Observe(every=0.002, record=trace, metrics=lsh.metrics.progressive()),
        )
        require_same(lsh.replay(trace, model, data), result)


def test_what_ends_a_run(trace: Path) -> None:
    model = shared(rows=None)
    data = clicks(model, 2000, kind="bags")
    for way in ORDERED:
        result = run(model, data, trace, **way, until=lsh.until(seconds=0.05))
        assert result.reason == "seconds"
        made = lsh.replay(trace, model, data)
        assert made.ended
        assert made.difference == 0
        np.testing.assert_array_equal(made.parameters, result.parameters)


KILLED = """
import sys
import leashed as lsh
from leashed import modes
from made_clicks import clicks, small
model = small()
lsh.train(model, clicks(model, 800), rule=lsh.Adagrad(0.05), batch_size=8, threads=3,
          until=lsh.until(seconds=120), **eval(sys.argv[1]),
          observe=lsh.Observe(lambda now: print(now.updates, float(now.loss).hex(), flush=True),
                              every=0.05, record=sys.argv[2]))
"""


@pytest.mark.process(1)
@pytest.mark.parametrize("word", ["asp", "gba", "sync"])
def test_what_a_killed_process_had_recorded(word: str, trace: Path) -> None:
    """Under Synchronous too, whose rows at an evaluation are of no one moment, and of whose last step
    some thread may have recorded nothing yet.
    """
    ways = {"asp": "dict(mode=modes.ASP())", "gba": "dict(mode=modes.GBA(m=4))"}
    how = ways.get(word, "dict(discipline=lsh.Synchronous())")
    told = killed.told_by(KILLED, how, str(trace))
    updates, expected = told[-2] if word == "sync" else told[-1]
    model = small()
    data = clicks(model, 800)
    then = lsh.replay(trace, model, data, until=updates)
    loss = model.evaluate(then.parameters, data, tables=then.tables)[0]
    # It read rows one after the other, and threads went on updating them.
    assert loss == pytest.approx(expected, rel=0.2)
    made = lsh.replay(trace, model, data)
    assert made.updates >= updates > 0
    assert not made.ended
    assert np.isnan(made.difference)


def test_a_changed_byte_is_refused(trace: Path) -> None:
    model = small()
    data = clicks(model)
    run(model, data, trace, mode=modes.GBA(m=2), threads=2)
    good = trace.read_bytes()
    ends = [at for at in range(0, len(good), PAGE) if good[at + 8 : at + 12] == b"\1\0\0\x80"]
    size = int.from_bytes(good[ends[-1] : ends[-1] + 4], "little")
    random = np.random.default_rng(0)
    for place in (ends[-1] + 16 + size - 1, *random.integers(0, len(good), 20)):
        bad = bytearray(good)
        bad[place] ^= 1
        trace.write_bytes(bad)
        with pytest.raises(ValueError, match=r"cannot replay .*(damaged|no trace)"):
            lsh.replay(trace, model, data)


def test_other_data_are_refused(trace: Path) -> None:
    model = shared()
    data = clicks(model, kind="weights")
    run(model, data, trace, **SEQ)
    arrays = [data.ids[0], *data.ids[1:]]
    arrays[0] = arrays[0] ^ np.uint64(1)
    other = lsh.datasets.ClickDataset.from_arrays(
        data.x, dict(zip(data.names, arrays, strict=True)), data.y
    )
    with pytest.raises(ValueError, match=r"its data was .* give the same"):
        lsh.replay(trace, model, other)


def test_other_rows_are_told(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = small()
    data = clicks(model)
    run(model, data, trace, **SEQ)
    made = recordings.new_tables

    def others(told: Any) -> Any:
        return made({name: {**one, "seed": 6} for name, one in told.items()})

    monkeypatch.setattr(recordings, "new_tables", others)
    found = lsh.replay(trace, model, data)
    assert found.ended
    assert found.difference == np.inf
    monkeypatch.setattr("leashed.cli.replay.replay_of", lambda *_, **__: found)
    assert cli.main(["replay", str(trace)]) == 1
    assert "not the recorded one: rows of tables are others" in capsys.readouterr().out


def test_a_header_without_what_tables_are_made_from_is_refused_by_name(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small()
    data = clicks(model)
    run(model, data, trace, **SEQ)
    good = recordings.header(lsh._core.Trace(str(trace)).header)
    first, told = next(iter(good.tables.items()))
    wrong: list[tuple[dict[str, Any], str]] = []
    for key in told:
        less = {k: value for k, value in told.items() if k != key}
        wrong.append(({**good.tables, first: less}, f"of its tables .*'{key}'"))
    for others in ({}, {"x": told}, {**good.tables, "x": told}):
        names, reads = ", ".join(others) or "none", ", ".join(good.tables)
        wrong.append((others, f"its tables are {names}, but model .* reads {reads};"))
    for key, value in (("dim", 1), ("rows", ROWS + 1)):
        other = {**good.tables, first: {**told, key: value}}
        wrong.append((other, f"its table '{first}' has dim .* but model .* reads dim"))
    for tables_, message in wrong:
        header = good._replace(tables=tables_)
        monkeypatch.setattr(recordings, "header", lambda _, header=header: header)
        with pytest.raises(ValueError, match=rf"cannot replay .*run\.trace: {message}"):
            lsh.replay(trace, model, data)


def test_only_what_has_tables_is_of_the_newer_version(trace: Path) -> None:
    model = small()
    run(model, clicks(model), trace, **SEQ)
    assert b'"version": 2' in trace.read_bytes()
    dense = lsh.datasets.synthetic_digits(100).train
    run(lsh.models.logistic_regression(784, 10), dense, trace, **SEQ)
    assert b'"version": 1' in trace.read_bytes()


def test_the_tables_may_be_saved_and_trained_on(trace: Path, tmp_path: Path) -> None:
    model = small()
    data = clicks(model)
    run(model, data, trace, **SEQ, rule=lsh.Adam(schedules.cosine(0.02, total=100)))
    made = lsh.replay(trace, model, data)
    lsh.save(tmp_path / "saved", model, made.parameters, made.tables)
    found = lsh.load(tmp_path / "saved")
    for name_, table in found.tables.items():
        np.testing.assert_array_equal(
            table.lookup(np.arange(ROWS)), made.tables[name_].lookup(np.arange(ROWS))
        )
    more = run(model, data, None, **SEQ, init=lsh.Init(made.parameters, made.tables))
    assert more.final_loss < more.initial_loss


def test_the_command_line_refuses_what_the_library_does(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = ["train", "--model", "dlrm", "--data", "clicks", "--updates", "5"]
    assert cli.main([*train, "--record", str(trace)]) == 2
    assert "is not for models that read tables under Locked, Hogwild" in capsys.readouterr().err
    assert not trace.exists()
    assert cli.main([*train, "--mode", "asp", "--threads", "2", "--record", str(trace)]) == 0
