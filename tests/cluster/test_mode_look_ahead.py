"""Trainers of a mode that look ahead: each batch that is under way beside the one that is computed is to the mode a
worker more, and no more gradients are computed at once than there are threads.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_clicks
import numpy as np
import pytest
from cluster import led_cuts
from cluster.led import led
from cluster.test_joined_readers import numbers
from cluster.test_led_modes import DATA, MODEL, MODES, command, given, together
from cluster.test_led_records import check, recorded
from cluster.test_led_tables import GROWING, check_alike, rows_of, trained
from cluster.test_led_tables import given as given_tables
from cluster.test_reduced_modes import summed
from interrupting import interrupt_after

import leashed as lsh
from leashed import cli
from leashed.cli.cluster import _as_then
from leashed.cluster import plan, policy_server
from leashed.cluster.checkpoints import Checkpoint
from leashed.cluster.measures import counted
from leashed.training import request


def squares(before: Callable[[], None]) -> Any:
    """A model of few parameters, of whose gradients each calls ``before``."""

    def gradient(theta: Any, x: Any, y: Any, out: Any) -> float:
        before()
        residual = x[:, :3] @ theta - y
        out[:] = x[:, :3].T @ residual / len(y)
        return float(residual @ residual) / len(y)

    def loss(theta: Any, x: Any, y: Any) -> float:
        residual = x[:, :3] @ theta - y
        return float(residual @ residual) / len(y)

    return lsh.models.external(gradient, dimension=3, features=784, loss=loss)


def join(folder: Path, **more: Any) -> lsh.cluster.Cluster:
    """This process's place, which has it for itself."""
    return lsh.cluster.join(**{"policy_servers": 1, "rank": 0, "size": 1, "folder": folder, **more})


class Within:
    """How many were in it at once, at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = self.most = 0

    def __call__(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(1e-4)  # others have the interpreter
        with self._lock:
            self._now -= 1


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: type(mode).__name__)
def test_every_mode_trains_each_example_once(mode, tmp_path):
    within = Within()
    model = squares(within)
    how = given(mode=mode, rule=lsh.rules.SGD(1e-3))
    with led(tmp_path, model, DATA, look_ahead=1, **how) as run:
        found = lsh.train(model, DATA, **how, cluster=run.cluster())
        report = run.report()
    assert run.error is None
    assert found.reason == "epochs"
    assert within.most == 1
    assert len(found.mode.worker_examples) == 2
    assert found.config["threads"] == 1
    assert found.config["look_ahead"] == 1
    assert found.config["mode"]["workers"] == 2
    assert report["ledger"]["complete"] == report["ledger"]["total"] == 157
    (server,) = counted(report, "policy-ps").values()
    assert server["lanes"] == 2
    told = [server[f"mode_{name}"] for name in ("applied", "stale", "late", "straggler")]
    assert sum(told) == 157 * 32 or server["mode_exchanges"] > 0


def test_two_threads_that_look_two_ahead_compute_two_at_once(tmp_path):
    within = Within()
    model = squares(within)
    how = given(mode="asp", rule=lsh.rules.SGD(1e-3), threads=2)
    with led(tmp_path, model, DATA, look_ahead=2, **how) as run:
        found = lsh.train(model, DATA, **how, cluster=run.cluster())
    assert run.error is None
    assert within.most <= 2
    assert len(found.mode.worker_examples) == 6


@pytest.mark.parametrize(("trainers", "servers"), [(1, 1), (2, 1), (1, 2)])
def test_sync_has_the_bits_of_as_many_threads_as_there_are_batches_under_way(
    trainers, servers, tmp_path
):
    how = given(mode="sync", rule=lsh.rules.Adam(0.01))
    alone = lsh.train(MODEL, DATA, **{**how, "threads": 2 * trainers})
    with led(tmp_path, MODEL, DATA, trainers, servers=servers, look_ahead=1, **how) as run:
        results = together(run, how, trainers)
    assert run.error is None
    for found in results:
        np.testing.assert_array_equal(found.parameters, alone.parameters)
        assert found.mode.applied == alone.mode.applied


def test_by_all_reduce_too(tmp_path):
    how = given(mode="sync", rule=lsh.rules.Adam(0.01))
    alone = lsh.train(MODEL, DATA, **{**how, "threads": 4})
    found, server, _ = summed({**how, "dense": "all-reduce"}, tmp_path, 2, look_ahead=1)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    assert server["pushes"] == 0 < server["reduced"]


def test_a_mode_that_goes_over_to_sums_and_back(tmp_path):
    mode = lsh.modes.Switching(m=4, at=((0.2, "gba"), (0.5, "sync")))
    how = given(mode=mode, until=lsh.until(epochs=3), dense="all-reduce")
    _, server, report = summed(how, tmp_path, 2, look_ahead=1)
    assert server["mode_applied"] + server["mode_stale"] == report["ledger"]["total"] * 32


def test_rows_of_tables(tmp_path):
    model = made_clicks.small()
    data = made_clicks.clicks(model)
    how = given_tables(mode="sync", staleness=lsh.staleness.power(0.5))
    alone = lsh.train(model, data, **{**how, "threads": 4})
    results, held, _ = trained(tmp_path, model, data, how, trainers=2, look_ahead=1)
    for found in results:
        np.testing.assert_array_equal(found.parameters, alone.parameters)
    check_alike(held, rows_of(alone.tables))


def test_rows_that_readers_send(tmp_path):
    rows = numbers(tmp_path)
    model = lsh.models.mlp(2, [4], 2)
    how = {"until": lsh.until(epochs=20), "batch_size": 64, "threads": 1, "mode": "local_sgd:h=2"}
    with led(tmp_path / "run", model, rows, 2, readers=1, look_ahead=2, **how) as run:
        results = together(run, how, 2, model, rows)
        report = run.report()
    assert run.error is None
    assert sum(one.examples for one in results) == 20_000
    assert report["ledger"]["complete"] == report["ledger"]["total"]


@pytest.mark.process
def test_models_that_normalise(tmp_path):
    model = made_clicks.small(None, norm=lsh.models.BatchNorm())
    data = made_clicks.clicks(model)
    how = given_tables(mode="gba:iota=4")
    cluster = join(tmp_path / "run", tables=GROWING, collect=True, look_ahead=1)
    found = lsh.train(model, data, **how, cluster=cluster)
    assert found.reason == "epochs"
    assert np.isfinite(found.statistics).all()
    batches = -(-3 * len(data) // 32)
    assert found.config["statistics"]["batches"] == batches


def test_a_record_has_the_bits_of_its_run(tmp_path):
    how = given(mode="gba:iota=2", rule=lsh.rules.Momentum(0.05), observe=recorded(tmp_path))
    with led(tmp_path / "run", MODEL, DATA, 2, look_ahead=1, **how) as run:
        first, _ = together(run, how, 2)
        run.report()
    assert run.error is None
    made = check(tmp_path, first.parameters)
    assert made.config["threads"] == 4
    assert "look_ahead" not in made.config


def test_a_run_goes_on_with_another_look_ahead(tmp_path):
    asked = given(mode="gba:m=4,iota=4", rule=lsh.rules.Momentum(0.05), until=lsh.until(epochs=15))
    begins, _ = led_cuts.caught(
        tmp_path / "run", tmp_path / "cut", MODEL, DATA, 1, asked, look_ahead=1
    )
    with led(tmp_path / "on", MODEL, DATA, resume=begins, look_ahead=2, **asked) as run:
        found = lsh.train(MODEL, DATA, **asked, cluster=run.cluster())
        report = run.report()
    assert run.error is None
    assert len(found.mode.worker_examples) == 3
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    alone = lsh.train(MODEL, DATA, **{**asked, "threads": 2}, resume=begins)
    assert alone.config["resumed_at"] > 0


class _OwnError(Exception):
    pass


def test_an_exception_in_a_gradient_ends_those_that_wait_for_their_turn(tmp_path):
    calls = iter(range(1000))

    def fails() -> None:
        time.sleep(0.01)  # the others have their leases
        if next(calls) == 5:
            raise _OwnError("no gradient")

    model = squares(fails)
    how = given(mode="asp", until=lsh.until(epochs=1e5))
    with led(tmp_path, model, DATA, look_ahead=3, **how) as run:
        with pytest.raises(_OwnError, match="no gradient"):
            lsh.train(model, DATA, **how, cluster=run.cluster())
        run.close()


def test_ctrl_c_ends_those_that_wait_for_their_turn(tmp_path):
    how = given(mode="asp", until=lsh.until(epochs=1e5), batch_size=512)
    with led(tmp_path, MODEL, DATA, look_ahead=3, **how) as run:
        with interrupt_after(0.5):
            found = lsh.train(MODEL, DATA, **how, cluster=run.cluster())
        run.close()
    assert found.reason == "interrupted"


def test_one_of_another_number_is_turned_away(tmp_path):
    how = given(mode="gba:m=4,iota=4")
    with led(tmp_path, MODEL, DATA, look_ahead=1, **how) as run:
        run.until_led()
        with pytest.raises(ValueError, match="workers is 3 here, and 2 in the run"):
            lsh.train(MODEL, DATA, **how, cluster=run.cluster(look_ahead=2))
        run.close()


def test_also_where_the_run_goes_on(tmp_path):
    asked = given(mode="gba:m=4,iota=4", rule=lsh.rules.Momentum(0.05), until=lsh.until(epochs=15))
    begins, _ = led_cuts.caught(tmp_path / "run", tmp_path / "cut", MODEL, DATA, 1, asked)
    with led(tmp_path / "on", MODEL, DATA, resume=begins, look_ahead=1, **asked) as run:
        run.until_led()
        with pytest.raises(ValueError, match="workers is 1 here, and 2 in the run"):
            lsh.train(MODEL, DATA, **asked, cluster=run.cluster(look_ahead=0))
        run.close()


@pytest.mark.parametrize(
    ("of", "match"),
    [
        ({"look_ahead": 6}, "look_ahead must be at most 5"),
        ({"look_ahead": -1}, "look_ahead must be at least 0"),
        ({"look_ahead": 1, "policy_servers": 0}, "give embedding_servers or policy_servers"),
    ],
)
def test_wrong_numbers_are_refused(of: dict[str, Any], match: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=match):
        join(tmp_path, **of)


def test_more_workers_than_a_process_may_have_are_refused():
    with pytest.raises(
        ValueError, match=r"threads must be at most 512 with look_ahead 1.* got 513"
    ):
        lsh.train(
            MODEL,
            DATA,
            **given(mode="asp", threads=513),
            cluster=policy_server.Trainers(1, ahead=1),
        )
    with pytest.raises(
        ValueError, match=r"train.threads must be at most 170 with cluster.look_ahead 5"
    ):
        plan.parse("[cluster]\nlook_ahead = 5\n[train]\nmode = 'asp'\nthreads = 171", Path())


def test_no_record_begins_that_no_replay_reads(tmp_path):
    how = given(mode="asp", threads=100, observe=recorded(tmp_path))
    unsaid = {"discipline": None, "staleness": None, "seed": 0, "rule": None}
    asked = request.of(MODEL, DATA, cluster=policy_server.Trainers(3, ahead=4), **{**unsaid, **how})
    match = "record is of at most 1024 workers .* there are 1500"
    with pytest.raises(ValueError, match=match):
        asked.led(asked.source(1))
    told = "[cluster]\ntrainers = 3\nlook_ahead = 4\n[train]\nmode = 'asp'\nthreads = 100\nrecord = 't'"
    with pytest.raises(ValueError, match=match):
        plan.parse(told, Path())


def test_no_all_reduce_begins_of_more_workers_than_it_connects():
    unsaid = {"discipline": None, "staleness": None, "seed": 0, "rule": None}
    how = given(mode="sync", threads=30, dense="all-reduce")
    asked = request.of(MODEL, DATA, cluster=policy_server.Trainers(3, ahead=2), **{**unsaid, **how})
    match = "all-reduce.* is of at most 256 workers .* there are 270"
    with pytest.raises(ValueError, match=match):
        asked.led(asked.source(1))
    told = "[cluster]\ntrainers = 3\nlook_ahead = 2\n[train]\nmode = 'sync'\nthreads = 30\ndense = 'all-reduce'"
    with pytest.raises(ValueError, match=match):
        plan.parse(told, Path())


def test_a_run_of_before_goes_on_as_it_was(tmp_path):
    """When its plan was written each had a look_ahead, which said nothing to a mode."""
    asked = given(mode="gba:m=4,iota=4", rule=lsh.rules.Momentum(0.05), until=lsh.until(epochs=15))
    begins, _ = led_cuts.caught(tmp_path / "run", tmp_path / "cut", MODEL, DATA, 1, asked)
    now = Checkpoint(begins)
    then = Checkpoint(begins)
    del then.told["fingerprint"]["workers"]
    said = plan.parse("[cluster]\nlook_ahead = 1\n[train]\nmode = 'asp'", Path())
    assert _as_then(said, now).cluster.ahead == 1
    assert _as_then(said, then).cluster.ahead == 0
    served = plan.parse(
        "[cluster]\nlook_ahead = 2\nembedding_ps = 1\n[train]\nmodel = 'dlrm'\ndata = 'clicks'",
        Path(),
    )
    assert _as_then(served, then).cluster.ahead == 2


def test_nobody_looks_ahead_unasked(tmp_path):
    made = plan.parse("[train]\nmode = 'asp'", Path())
    assert made.cluster.ahead == 0
    assert join(tmp_path).ahead == 0
    said = plan.parse("[cluster]\nlook_ahead = 1\n[train]\nmode = 'asp'", Path())
    assert said.cluster.ahead == plan.parse(said.text(), Path()).cluster.ahead == 1


@pytest.mark.process
def test_the_command(tmp_path, capsys):
    up = [*command(tables=True), "--trainers", "2", "--look-ahead", "1"]
    assert cli.main([*up, "--run", str(tmp_path / "run")]) == 0
    report = json.loads((tmp_path / "run" / "run.json").read_text())
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    assert report["test_auc"] > 0.6
    (server,) = counted(report, "policy-ps").values()
    assert server["lanes"] == 4
    assert "mode gba:iota=4" in capsys.readouterr().out
