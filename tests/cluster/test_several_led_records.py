"""The record of a run by a mode over several policy servers, which the first writes for all of them: made again
by one thread, and in virtual time, it has the bits of what they had together, of rows too.
"""

from __future__ import annotations

import dataclasses
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import made_clicks
import numpy as np
import pytest
from cluster import test_led_row_records, test_several_led_tables
from cluster.led import led
from cluster.processes import pids
from cluster.test_commanding import keyed, served, until
from cluster.test_led_modes import DATA, MODEL, begun, given, together, up, whole
from cluster.test_led_records import check, recorded
from warned import once

import leashed as lsh
from leashed import cli, models, staleness
from leashed.base import memory
from leashed.cluster import led_record, policy_server
from leashed.cluster import plan as plans
from leashed.cluster.table_terms import TableTerms
from leashed.training import recordings, request
from leashed.training.led_mode import SHARDINGS
from leashed.training.rows_read import RowsRead

ALIKE = [
    lsh.modes.Sync(),
    lsh.modes.HopBW(b3=1),
    lsh.modes.LocalSGD(h=2),
    lsh.modes.Switching(at=((0.05, "gba"), (0.2, "sync")), m=4),
    lsh.modes.Automatic(m=4),
]
APART = [
    "asp",
    "bsp:b2=3",
    "ssp:s=2",
    "dssp:lower=1,upper=3",
    "hop_bs:b1=2",
    "gba",
    "easgd:alpha=0.5",
    "shat",
]


@pytest.mark.parametrize("servers", [2, 3])
@pytest.mark.parametrize("mode", ALIKE, ids=lambda mode: type(mode).__name__)
def test_a_record_has_the_bits_of_all_servers(mode: Any, servers: int, tmp_path: Path) -> None:
    how = given(mode=mode, rule=lsh.rules.Momentum(0.05), threads=2, observe=recorded(tmp_path))
    with led(tmp_path / "run", MODEL, DATA, trainers=2, servers=servers, **how) as run:
        first, second = together(run, how, 2)
        run.report()
    assert run.error is None
    np.testing.assert_array_equal(first.parameters, second.parameters)
    made = check(tmp_path, first.parameters)
    assert made.config["threads"] == 4
    assert made.updates == first.total_updates


@pytest.mark.parametrize("shards", SHARDINGS)
def test_whatever_each_server_has(shards: str, tmp_path: Path) -> None:
    how = given(mode="sync", rule=lsh.rules.Adam(0.01), threads=2, observe=recorded(tmp_path))
    with led(tmp_path / "run", MODEL, DATA, servers=2, shards=shards, **how) as run:
        found = lsh.train(MODEL, DATA, **how, cluster=run.cluster())
        run.report()
    assert run.error is None
    made = check(tmp_path, found.parameters)
    middle = lsh.replay(tmp_path / "run.trace", MODEL, DATA, until=made.updates // 2)
    assert middle.updates == made.updates // 2
    assert len(middle.applied) == 2
    assert len(middle.gradient) == MODEL.dimension


def test_commands_are_in_it(tmp_path: Path) -> None:
    folder, key = tmp_path / "run", keyed(tmp_path / "key")
    how = given(mode="switching:m=4", threads=2, observe=recorded(tmp_path))
    with led(folder, MODEL, DATA, servers=2, **how) as run:
        until(lambda: served(folder))
        assert lsh.cluster.command(folder, "gba", key=key) == 0
        found = lsh.train(MODEL, DATA, **how, cluster=run.cluster())
        run.report()
    assert run.error is None
    check(tmp_path, found.parameters)


@pytest.mark.parametrize("kind", ["fixed", "growing"])
@pytest.mark.parametrize("servers", [2, 3])
@pytest.mark.parametrize("mode", ["sync", "hop_bw:b3=1"])
def test_rows_too(mode: str, servers: int, kind: str, tmp_path: Path) -> None:
    grows = kind == "growing"
    model = made_clicks.small(None) if grows else made_clicks.shared()
    data = made_clicks.clicks(model, 800, rows=5000) if grows else made_clicks.clicks(model)
    trace = tmp_path / "run.trace"
    how = test_led_row_records.recorded(trace, mode=mode, threads=2, batch_size=16)
    settings = {"max_bytes": 1 << 22} if grows else {}
    results, held, _ = test_several_led_tables.trained(
        tmp_path / "run", model, data, how, trainers=2, servers=servers, **settings
    )
    made = test_led_row_records.check(trace, model, data, results[0].parameters, held)
    assert made.updates == results[0].total_updates


@pytest.mark.filterwarnings("ignore:table .* is full:RuntimeWarning")
def test_tables_that_are_full_at_a_server_are_told_of(tmp_path: Path) -> None:
    model = made_clicks.small(None)
    data = made_clicks.clicks(model, 2000, rows=5000)
    trace = tmp_path / "run.trace"
    how = test_led_row_records.recorded(trace, mode="sync", threads=2)
    test_several_led_tables.trained(
        tmp_path / "run", model, data, how, servers=2, max_bytes=1 << 15
    )
    with once("which ids had no room is not in the record; give tables more max_bytes"):
        made = lsh.replay(trace, model, data)
    assert np.isinf(made.difference)


def test_one_whose_servers_have_not_said_what_they_had_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(led_record, "_until", lambda _: False)
    how = given(mode="sync", threads=2, observe=recorded(tmp_path))
    with led(tmp_path / "run", MODEL, DATA, servers=2, **how) as run:
        found = lsh.train(MODEL, DATA, **how, cluster=run.cluster())
        run.report()
    assert run.error is None
    assert "ends before the run: not all policy servers have said" in caplog.text
    unsaid = "has not what they said at the run's end"
    with once(f" is of several policy servers, and {unsaid}"):
        made = lsh.replay(tmp_path / "run.trace", MODEL, DATA)
    assert not made.ended
    np.testing.assert_array_equal(made.parameters, found.parameters)
    with pytest.warns(RuntimeWarning, match=unsaid):
        lsh.replay(tmp_path / "run.trace", MODEL, DATA, until=1)
    with pytest.warns(RuntimeWarning, match=unsaid):
        played = lsh.simulation.recorded(tmp_path / "run.trace", MODEL, DATA)
    np.testing.assert_array_equal(played.result.parameters, found.parameters)


class Server:
    """A first policy server whose log goes on when all have just said what they have."""

    def __init__(self, said: list[str | BaseException | None]) -> None:
        self.said = said
        self.asked: list[bool] = []

    def end_record(self, *, waits: bool) -> str | None:
        self.asked.append(waits)
        one = self.said.pop(0)
        if isinstance(one, BaseException):
            raise one
        return one


def of_record() -> Any:
    how: dict[str, Any] = {"discipline": None, "staleness": None, "seed": 0, "rule": None}
    how["mode"] = "sync"
    asked = request.of(MODEL, DATA, cluster=policy_server.Trainers(1, 2), **given(**how))
    return dataclasses.replace(asked.led(asked.source(1)), record=("there.trace", "{}"))


def test_the_end_is_waited_for_while_the_log_goes_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    led_ = of_record()
    server: Any = Server([None, None, ""])
    led_record.end(server, led_)
    assert server.asked == [True, True, True]
    assert not caplog.records
    server = Server([None, KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        led_record.end(server, led_)
    assert "there.trace has no end: this was told to end" in caplog.text
    monkeypatch.setattr(led_record, "_PATIENCE", 0.05)
    server = Server([None] * 99)
    server.end_record = lambda *, waits: None if waits else "nobody has said it"
    led_record.end(server, led_)
    assert "ends before the run: nobody has said it" in caplog.text


def test_one_that_is_not_let_go_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(led_record, "_PATIENCE", 0.05)
    looked: list[int] = []
    server: Any = SimpleNamespace(end_known=False)
    led_record.rest(server, of_record(), lambda: looked.append(1))
    assert len(looked) > 1
    assert "policy server 0 has not said for 0.05 s" in caplog.text


@pytest.mark.parametrize(
    ("shards", "owners", "why"),
    [
        ([[(0, 9)], [(4, 9)]], [], "of the parameters, each once"),
        ([[(0, 9)], [(11, 10)]], [], "begin before they end|of the parameters$"),
        ([[(0, 9)], [(9, 10)]], [], "all of the parameters"),
        ([[(0, 10**12)], [(9, 10)]], [], "of the parameters"),
        ([[(0, 9)], []], [], "no more than parts"),
        ([[(0, 9)], [(9, MODEL.dimension)]], [7], "of each table the server"),
    ],
)
def test_servers_that_had_not_all_of_the_parameters_are_refused(
    shards: Any, owners: Any, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lsh.train(MODEL, DATA, **given(mode="sync", observe=recorded(tmp_path)))
    told = recordings.Servers(shards, owners)
    monkeypatch.setattr(recordings, "_servers", lambda _: told)
    with pytest.raises(ValueError, match=why):
        lsh.replay(tmp_path / "run.trace", MODEL, DATA)
    if not owners:
        with pytest.raises(ValueError, match=why):
            lsh.simulation.recorded(tmp_path / "run.trace", MODEL, DATA)


def test_servers_that_decide_by_themselves_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lsh.train(MODEL, DATA, **given(mode="asp", observe=recorded(tmp_path)))
    told = recordings.Servers([[(0, 9)], [(9, MODEL.dimension)]], [])
    monkeypatch.setattr(recordings, "_servers", lambda _: told)
    with pytest.raises(ValueError, match="decide by themselves"):
        lsh.replay(tmp_path / "run.trace", MODEL, DATA)


@pytest.mark.parametrize("kind", ["fixed", "growing"])
def test_what_is_told_of_tables_takes_no_more_memory_than_a_part(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = None if kind == "growing" else 1 << 20
    read = RowsRead(
        [models.TableSpec("a", 16, rows), models.TableSpec("b", 8, rows and 100)],
        (0, 1),
        lsh.Adagrad(0.02),
        staleness.none(),
        seed=3,
    )
    terms = TableTerms(read, 2, {"weight_decay": 0.1})
    whole = recordings.looking_up('{"version": 4}', terms.whole())
    monkeypatch.setattr(memory, "available", lambda: 64 << 20)
    if rows is not None:
        with pytest.raises(ValueError, match="memory"):
            terms.whole()
    assert recordings.looking_up('{"version": 4}', terms.slices()) == whole


def refused(match: str, model: Any, data: Any, path: Path, **how: Any) -> None:
    place = policy_server.Trainers(1, 2)
    how = {"discipline": None, "staleness": None, "seed": 0, "rule": None, **how}
    with pytest.raises(ValueError, match=match):
        request.of(model, data, cluster=place, observe=recorded(path), **given(**how))


@pytest.mark.parametrize("mode", APART)
def test_modes_whose_servers_decide_by_themselves_are_refused(mode: str, tmp_path: Path) -> None:
    why = "record is not for .* several policy servers by modes whose .* take sync, hop_bw"
    refused(why, MODEL, DATA, tmp_path, mode=mode)
    with pytest.raises(ValueError, match=why):
        plans.Plan(
            plans.Cluster(sync_ps=0, policy_ps=2),
            plans.Sync("none"),
            plans.Train(mode=mode, record="there.trace"),
        )


def test_what_tables_do_by_each_servers_look_ups_is_refused(tmp_path: Path) -> None:
    model = made_clicks.small(None)
    data = made_clicks.clicks(model)
    for mode in ("switching", "automatic"):
        refused("by Switching and Automatic, since in GBA rows", model, data, tmp_path, mode=mode)
    for settings in ({"admit_after": 2}, {"evict": "age"}):
        cluster = lsh.cluster.join(
            policy_servers=2, rank=0, size=1, folder=tmp_path / "run", tables=settings, collect=True
        )
        how = test_led_row_records.recorded(tmp_path / "run.trace", mode="sync")
        with pytest.raises(ValueError, match="evict rows, or wait before they admit them"):
            lsh.train(model, data, **how, cluster=cluster)
    assert not (tmp_path / "run.trace").exists()
    with pytest.raises(ValueError, match="evict rows, or wait before they admit them"):
        plans.Plan(
            plans.Cluster(sync_ps=0, policy_ps=2),
            plans.Sync("none"),
            plans.Train(
                mode="sync", record="there.trace", model="dlrm", data="clicks", admit_after=2
            ),
        )


@pytest.mark.process(1)
@pytest.mark.parametrize("mode", ["sync", "local_sgd:h=2", "hop_bw:b3=1"])
def test_trainers_that_die_or_hang(
    mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    trace = tmp_path / "run.trace"
    more = ("--policy-servers", "3", "--epochs", "40", "--record", str(trace))
    process = up(folder, "--mode", mode, *more)
    try:
        begun(folder, 200, process)
        there = pids(folder)
        os.kill(there["trainer-1"], signal.SIGKILL)
        os.kill(there["trainer-2"], signal.SIGSTOP)
        whole(folder, process)
    finally:
        process.kill()
    assert cli.main(["replay", str(trace)]) == 0
    assert "the recorded one, bit for bit" in capsys.readouterr().out
    output = lsh.load(folder / "output.safetensors")
    played = lsh.simulation.recorded(trace)
    np.testing.assert_array_equal(played.result.parameters, output.parameters)
