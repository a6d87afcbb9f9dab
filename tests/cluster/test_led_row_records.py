"""The record of a run by a mode over sockets whose model reads tables: made again by one thread, and in virtual
time, it has the run's bits, of rows too, whoever has died.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import made_clicks
import numpy as np
import pytest
from cluster.led import led
from cluster.processes import pids
from cluster.test_led_modes import begun, up
from cluster.test_led_tables import check_alike, clicks_of, given, join, rows_of, saved, trained
from cluster.test_up import PATIENCE

import leashed as lsh
from leashed import cli
from leashed.training import recordings

MODES = [
    "sync",
    "bsp:b2=3",
    "asp",
    "ssp:s=2",
    "dssp:lower=1,upper=3",
    "hop_bs:b1=2,m=3",
    "hop_bw:b3=1",
    "gba:m=3,iota=1",
    "switching:m=4",
    "automatic",
    "shat",
    "shat_root",
]
EVICTS = {"max_bytes": 1 << 15, "evict": "age"}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "run.trace"


def recorded(trace: Path, **more: Any) -> dict[str, Any]:
    """How it is trained."""
    return given(observe=lsh.Observe(record=trace, every=0.01), **more)


def check(trace: Path, model: Any, data: Any, parameters: Any, rows: Any) -> Any:
    """Both have the bits of the run's end."""
    made = lsh.replay(trace, model, data)
    assert made.ended
    assert made.difference == 0
    np.testing.assert_array_equal(made.parameters, parameters)
    played = lsh.simulation.recorded(trace, model, data, every=0.05)
    np.testing.assert_array_equal(played.result.parameters, parameters)
    assert played.result.total_updates == made.updates
    for tables in (made.tables, played.result.tables):
        check_alike(rows_of(tables), rows)
    return made


def alone(
    folder: Path, model: Any, data: Any, how: dict[str, Any], tables: dict[str, Any], **more: Any
) -> Any:
    """What the one trainer has come to, whose run may end before all examples are trained; and the rows."""
    with led(folder, model, data, tables=tables, **how, **more) as run:
        found = lsh.train(model, data, **how, cluster=run.cluster())
        rows = saved(run, model, run.report())
    assert run.error is None
    return found, rows


@pytest.mark.parametrize("kind", ["fixed", "growing", "evicting"])
@pytest.mark.parametrize("mode", MODES)
def test_several_trainers_have_their_bits(
    mode: str, kind: str, trace: Path, tmp_path: Path
) -> None:
    model = made_clicks.small(made_clicks.ROWS if kind == "fixed" else None)
    data = made_clicks.clicks(model, 800, rows=12 if kind == "fixed" else 5000)
    settings: dict[str, Any] = {}
    if kind == "growing":
        settings = {"max_bytes": 1 << 22, "admit_after": 2}
    if kind == "evicting":
        settings = EVICTS
    how = recorded(
        trace, mode=mode, threads=2, batch_size=16, validation=made_clicks.clicks(model, seed=1)
    )
    results, held, _ = trained(tmp_path / "run", model, data, how, 2, **settings)
    made = check(trace, model, data, results[0].parameters, held)
    assert made.config["threads"] == 4
    if kind == "evicting":
        assert sum(one.statistics()["evicted"] for one in made.tables.values()) > 0
    if kind == "growing":
        assert sum(one.statistics()["unadmitted"] for one in made.tables.values()) > 0


@pytest.mark.parametrize(
    "rule", [lsh.rules.SGD(0.1), lsh.rules.Adam(0.01), lsh.rules.FTRL(0.1)], ids=repr
)
@pytest.mark.parametrize("kind", ["bags", "weights"])
def test_rules_bags_and_shared_tables(kind: str, rule: Any, trace: Path, tmp_path: Path) -> None:
    model = made_clicks.shared()
    data = made_clicks.clicks(model, kind=kind)
    power = lsh.staleness.power(0.5)
    how = recorded(trace, mode="gba:iota=1", rule=rule, threads=2, staleness=power)
    results, held, _ = trained(tmp_path / "run", model, data, how, 2, weight_decay=0.01)
    check(trace, model, data, results[0].parameters, held)


@pytest.mark.filterwarnings("ignore:table .* is full:RuntimeWarning")
def test_tables_that_are_full(trace: Path, tmp_path: Path) -> None:
    """Which ids have got a row depends on who came first."""
    model = made_clicks.small(None)
    data = made_clicks.clicks(model, 2000, rows=5000)
    how = recorded(trace, mode="asp", threads=2)
    results, held, _ = trained(tmp_path / "run", model, data, how, 2, max_bytes=1 << 15)
    made = check(trace, model, data, results[0].parameters, held)
    assert sum(one.statistics()["refused"] for one in made.tables.values()) > 0


@pytest.mark.filterwarnings("ignore:table .* is full:RuntimeWarning")
@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        (lsh.modes.ASP(term=0.002), EVICTS),
        (lsh.modes.SHAT(term=0.002), EVICTS),
        (lsh.modes.HopBW(b3=1, term=0.002), {"max_bytes": 1 << 15, "admit_after": 2}),
    ],
    ids=["asp", "shat", "hop_bw"],
)
def test_leases_that_are_over_before_their_turn_to_be_computed(
    mode: Any, settings: dict[str, Any], trace: Path, tmp_path: Path
) -> None:
    """Rows are looked up under them too, and their batches by others."""
    model = made_clicks.small(None)
    data = made_clicks.clicks(model, 800, rows=5000)
    how = recorded(trace, mode=mode, batch_size=16)
    results, held, _ = trained(tmp_path / "run", model, data, how, 2, look_ahead=5, **settings)
    assert check(trace, model, data, results[0].parameters, held).config["threads"] == 12


@pytest.mark.parametrize("kind", ["fixed", "evicting"])
def test_so_many_updates_end_it(kind: str, trace: Path, tmp_path: Path) -> None:
    """What is looked up behind that has no part in it."""
    model = made_clicks.small(made_clicks.ROWS if kind == "fixed" else None)
    data = made_clicks.clicks(model, 2000, rows=12 if kind == "fixed" else 5000)
    how = recorded(trace, mode="asp", threads=3, until=lsh.until(updates=101))
    found, held = alone(tmp_path / "run", model, data, how, EVICTS if kind != "fixed" else {})
    assert check(trace, model, data, found.parameters, held).updates == 101


def test_beside_checkpoints_of_the_run(trace: Path, tmp_path: Path) -> None:
    model = made_clicks.small(None)
    data = made_clicks.clicks(model, 2000, rows=5000)
    how = recorded(trace, mode="gba:m=2", threads=2, until=lsh.until(epochs=20))
    folder = tmp_path / "run"
    found, held = alone(folder, model, data, how, EVICTS, checkpoint_every=0.05)
    assert (folder / "checkpoints").exists()
    check(trace, model, data, found.parameters, held)


def test_up_to_an_update(trace: Path, tmp_path: Path) -> None:
    model = made_clicks.small(None)
    data = made_clicks.clicks(model)
    how = recorded(trace, mode="asp")
    (found,), _, _ = trained(tmp_path / "run", model, data, how, max_bytes=1 << 22)
    before = lsh.train(
        model,
        data,
        **{**how, "observe": None, "until": lsh.until(updates=17)},
        init=lsh.Init(
            "glorot",
            lsh.tables.of(model.tables, rule=how["rule"], seed=how["seed"], max_bytes=1 << 22),
        ),
    )
    made = lsh.replay(trace, model, data, until=17)
    np.testing.assert_array_equal(made.parameters, before.parameters)
    check_alike(rows_of(made.tables), rows_of(before.tables))
    assert made.updates < found.total_updates


def test_its_format_is_newer_than_that_of_threads(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made_clicks.small()
    data = made_clicks.clicks(model)
    how = recorded(trace, mode="asp")
    trained(tmp_path / "run", model, data, how)
    text = json.loads(lsh._core.Trace(str(trace)).header)
    assert (text["version"], text["looks_up"]) == (3, True)
    lsh.train(model, data, **recorded(tmp_path / "threads.trace", mode="asp"))
    other = json.loads(lsh._core.Trace(str(tmp_path / "threads.trace")).header)
    assert other["version"] == 2
    # Rows of the grant are others: the one is not taken for the other.
    good = recordings.header(json.dumps(text).encode())
    monkeypatch.setattr(recordings, "header", lambda _: good._replace(looks_up=False))
    with pytest.raises(ValueError, match="contradict each other"):
        lsh.replay(trace, model, data)
    monkeypatch.undo()
    monkeypatch.setattr(recordings, "_VERSION", 2)
    with pytest.raises(ValueError, match=r"its format version is 3, this release reads 2; upgrade"):
        lsh.replay(trace, model, data)


def test_a_changed_byte_is_refused(trace: Path, tmp_path: Path) -> None:
    model = made_clicks.small()
    data = made_clicks.clicks(model)
    trained(tmp_path / "run", model, data, recorded(trace, mode="asp"))
    good = trace.read_bytes()
    random = np.random.default_rng(0)
    for place in random.integers(0, len(good), 10):
        bad = bytearray(good)
        bad[place] ^= 1
        trace.write_bytes(bad)
        with pytest.raises(ValueError, match=r"cannot replay .*(damaged|no trace)"):
            lsh.replay(trace, model, data)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"servers": 2}, "by modes whose servers decide by themselves"),
        ({"dense": "all-reduce", "mode": "sync"}, "rows are looked up once more"),
    ],
    ids=["several", "all-reduce"],
)
def test_what_is_not_recorded_is_refused_by_name(
    more: dict[str, Any], why: str, trace: Path, tmp_path: Path
) -> None:
    model = made_clicks.small()
    servers = more.pop("servers", 1)
    cluster = lsh.cluster.join(
        policy_servers=servers, rank=0, size=1, folder=tmp_path / "run", collect=True
    )
    with pytest.raises(ValueError, match=why):
        lsh.train(
            model,
            made_clicks.clicks(model),
            **{**recorded(trace, mode="asp"), **more},
            cluster=cluster,
        )
    assert not trace.exists()


@pytest.mark.process
def test_one_that_joins(trace: Path, tmp_path: Path) -> None:
    model = made_clicks.small(None, norm=lsh.models.BatchNorm())
    data = made_clicks.clicks(model, rows=5000)
    cluster = join(tmp_path / "run", tables=EVICTS, collect=True)
    found = lsh.train(model, data, **recorded(trace, mode="gba:m=2"), cluster=cluster)
    check(trace, model, data, found.parameters, rows_of(found.tables))


@pytest.mark.process(1)
@pytest.mark.parametrize("more", [[], ["--evict", "age"]], ids=["growing", "evicting"])
def test_trainers_that_die_or_hang(
    more: list[str], trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    data = clicks_of(tmp_path)
    process = up(folder, *data, *more, "--epochs", "200", "--record", str(trace))
    try:
        begun(folder, 200, process)
        there = pids(folder)
        os.kill(there["trainer-1"], signal.SIGKILL)
        os.kill(there["trainer-2"], signal.SIGSTOP)
        told, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, told
    of_data = data[data.index("--data") : data.index("--table-mib")]
    assert cli.main(["replay", str(trace), *of_data]) == 0
    assert "the recorded one, bit for bit" in capsys.readouterr().out


@pytest.mark.process
def test_as_far_as_its_policy_server_has_lived(trace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    data = clicks_of(tmp_path)
    process = up(folder, *data, "--epochs", "100000", "--record", str(trace))
    try:
        begun(folder, 100, process)
        os.kill(pids(folder)["policy-ps-0"], signal.SIGKILL)
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    of_data = data[data.index("--data") : data.index("--table-mib")]
    assert cli.main(["replay", str(trace), *of_data]) == 0
