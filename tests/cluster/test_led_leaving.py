"""Runs by a mode that are broken off by Ctrl-C: what they had reached is there."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cluster.inside import KEY
from cluster.led import led
from cluster.test_bringing import free_port
from cluster.test_led_modes import DATA, MODEL, begun, given, started
from cluster.test_up import PATIENCE

import leashed as lsh
from leashed.cluster import bringing, policy_follower, policy_server
from leashed.cluster.led_bringing import ELSEWHERE, Sending, bring, not_here
from leashed.cluster.led_leaving import leaving, parameters_left
from leashed.cluster.serving import Place
from leashed.files.folders import MANIFEST

WORDS = {
    "one server": ["--mode", "gba:m=2"],
    "two servers": ["--mode", "sync", "--policy-servers", "2"],
    "all-reduce": ["--mode", "sync", "--dense", "all-reduce"],
    "tables": ["--mode", "gba:m=2", "--model", "dlrm", "--data", "clicks"],
}


@pytest.mark.process(1)
@pytest.mark.parametrize("kind", WORDS)
def test_a_run_that_is_interrupted_has_its_output(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ["--trainers", "2", *WORDS[kind], "--epochs", "10000", "--lr", "0.2"]
    process = started(*words, "--run", str(folder))
    try:
        begun(folder, 1000 if kind == "tables" else 1500, process)
        process.send_signal(signal.SIGINT)
        told, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 130, told
    report = json.loads((folder / "run.json").read_text())
    assert report["state"] == "incomplete", report["reason"]
    assert "policy server" in report["output"]  # a trainer may have handed in what it has of it
    if kind == "tables":
        assert report["output"].startswith("what the policy server had at its end")  # as rows
        assert lsh.load(folder / "output").tables
        assert report["test_auc"] > 0.52  # untrained it is 0.5
        return
    found = lsh.load(folder / "output.safetensors")
    assert found.evaluate(lsh.datasets.synthetic_digits().test).accuracy > 0.5


def put(
    folder: Path,
    index: int,
    parameters: list[float],
    updates: int,
    reduced: int = 0,
    failed: str = "",
) -> None:
    np.savez(
        folder / f"policy-ps-{index}.npz",
        run=np.array("it"),
        parameters=np.array(parameters, np.float32),
        updates=np.array(updates),
        reduced=np.array(reduced),
        failed=np.array(failed),
    )


def test_what_is_left_is_whole_and_of_its_run(tmp_path: Path) -> None:
    spans = [[(0, 2), (4, 5)], [(2, 4)]]
    put(tmp_path, 0, [1, 2, 5], 7)
    assert parameters_left(tmp_path, "it", spans, 5, 0.0) is None  # the other has left nothing
    put(tmp_path, 1, [3, 4], 7)
    found = parameters_left(tmp_path, "it", spans, 5, 0.0)
    assert found is not None
    np.testing.assert_array_equal(found.parameters, [1, 2, 3, 4, 5])
    assert str(found) == "what the policy server had at its end"
    assert parameters_left(tmp_path, "another", spans, 5, 0.0) is None
    assert parameters_left(tmp_path, "it", spans, 5, 1e12) is None
    with pytest.raises(ValueError, match=r"policy-ps-0.npz has 3 parameters"):
        parameters_left(tmp_path, "it", [], 5, 0.0)
    put(tmp_path, 1, [3, np.nan], 7)
    assert parameters_left(tmp_path, "it", spans, 5, 0.0) is None


def test_what_is_left_of_other_moments_says_so(tmp_path: Path) -> None:
    put(tmp_path, 0, [1], 1200)
    put(tmp_path, 1, [2], 1198)
    found = parameters_left(tmp_path, "it", [[(0, 1)], [(1, 2)]], 2, 0.0)
    assert str(found) == "what the policy server had at its end, of 1,198 to 1,200 updates"
    put(tmp_path, 1, [2], 1200, failed="no room")
    found = parameters_left(tmp_path, "it", [[(0, 1)], [(1, 2)]], 2, 0.0)
    assert str(found) == "what the policy server had when it failed (policy server 1: no room)"
    put(tmp_path, 0, [1], 10, 5000)
    assert str(parameters_left(tmp_path, "it", [], 1, 0.0)) == (
        "what the policy server had at its end, without 5,000 updates of workers"
    )


class Reduces:
    """A policy server all of whose updates workers alone have; or but some."""

    def __init__(self, updates: int, reduced: int) -> None:
        self._standing = {"updates": updates, "reduced": reduced}
        self.parameters = np.zeros(1, np.float32)

    def standing(self) -> dict[str, Any]:
        return self._standing

    def counters(self) -> dict[str, Any]:
        return {}

    def quiet(self, f: Callable[[], None], /) -> None:
        f()


def test_parameters_that_workers_alone_have_trained_are_none(tmp_path: Path) -> None:
    member: Any = SimpleNamespace(welcome=SimpleNamespace(run="it"))
    with leaving(tmp_path, 0, member, Reduces(9, 9), None):
        pass
    assert parameters_left(tmp_path, "it", [], 1, 0.0) is None
    with leaving(tmp_path, 0, member, Reduces(9, 4), None):
        pass
    found = parameters_left(tmp_path, "it", [], 1, 0.0)
    assert found is not None
    assert (found.updates, found.reduced) == ([5], 4)


def test_who_is_told_to_end_while_it_writes_says_what_is_not_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", stopped)
    member: Any = SimpleNamespace(welcome=SimpleNamespace(run="it"), wait=lambda _: False)
    with pytest.raises(KeyboardInterrupt), leaving(tmp_path, 0, member, Reduces(9, 4), None):
        pass
    assert "the parameters are not saved: this was told to end while it" in caplog.text


@pytest.mark.parametrize("servers", [1, 2])
def test_a_server_that_fails_ends_its_run_by_its_reason(
    servers: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And what it has left says so. It may be the first of several, or another one."""
    module = policy_server if servers == 1 else policy_follower
    told = module.told_of

    def fails(standing: dict[str, Any], counted: dict[str, float]) -> dict[str, float]:
        if standing["updates"] > 0:
            raise ValueError("the mode can go on no more: it is a test")
        return told(standing, counted)

    monkeypatch.setattr(module, "told_of", fails)
    how = given(mode="asp", until=lsh.until(epochs=1e5))
    with led(tmp_path, MODEL, DATA, servers=servers, **how) as run:
        with pytest.warns(RuntimeWarning, match="the mode can go on no more: it is a test"):
            found = lsh.train(MODEL, DATA, **how, cluster=run.cluster())
        report = run.report()
        run.ended()
    assert found.reason == "interrupted"
    assert isinstance(run.error, ValueError)
    assert report["state"] == "failed"
    who = f"policy server {servers - 1} has failed: the mode can go on no more: it is a test;"
    assert report["reason"].startswith(who)
    left = parameters_left(tmp_path, report["run"], run.led.shards, MODEL.dimension, 0.0)
    assert "when it failed (" in str(left)
    assert "the mode can go on no more: it is a test)" in str(left)


@pytest.mark.parametrize("where", ["Sending", "told_of"])
def test_one_that_fails_before_it_has_counted_anything_does_so_too(
    where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As where it finds rows of another run; whether or not there are words of it."""

    def fails(*_: object) -> None:
        raise ValueError

    monkeypatch.setattr(policy_server, where, fails)
    how = given(mode="asp", until=lsh.until(epochs=1e5, seconds=PATIENCE))
    with led(tmp_path, MODEL, DATA, **how) as run:
        report = run.report()
    assert report["state"] == "failed"
    assert report["reason"].startswith("policy server 0 has failed: ValueError;")


def elsewhere(index: int) -> dict[str, Any]:
    """Of a report who has another folder than the master, and was there at its end."""
    return {
        "role": "policy-ps", "index": index, "gone": None, "address": f"10.0.0.{index}:7",
        "counters": {ELSEWHERE: 1.0},
    }  # fmt: skip


def report(*members: dict[str, Any]) -> dict[str, Any]:
    return {"run": "it", "members": members}


def test_what_servers_elsewhere_leave_is_brought(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there, there / "policy-ps-1"):
        folder.mkdir()
    port = free_port()
    sending = Sending(Place(f"127.0.0.1:{port}", KEY, "127.0.0.1", there, PATIENCE, "tcp"), 1, "it")
    assert sending.counters() == {ELSEWHERE: 1.0}
    member: Any = SimpleNamespace(welcome=SimpleNamespace(run="it"))

    def leave() -> None:
        sending.begin()  # (Who is told to end meanwhile does so twice.)
        with leaving(there, 1, member, Reduces(9, 4), None, sending):
            (there / "policy-ps-1" / MANIFEST).write_text("rows")

    sends = threading.Thread(target=leave)
    sends.start()
    bring(report(elsewhere(1)), here, ("127.0.0.1", port), KEY, PATIENCE, PATIENCE)
    sends.join()
    assert (here / "policy-ps-1" / MANIFEST).read_text() == "rows"
    assert {one.name for one in here.iterdir()} == {"policy-ps-1", "policy-ps-1.npz"}
    assert not_here(report(elsewhere(1)), here) is None


def test_who_has_left_nothing_is_not_waited_for(tmp_path: Path) -> None:
    port = free_port()
    place = Place(f"127.0.0.1:{port}", KEY, "127.0.0.1", tmp_path / "there", PATIENCE, "tcp")
    sending = Sending(place, 0, "it")
    sends = threading.Thread(target=lambda: (sending.begin(), sending.end()))
    sends.start()
    bring(report(elsewhere(0)), tmp_path, ("127.0.0.1", port), KEY, PATIENCE, PATIENCE)
    sends.join()
    assert not list(tmp_path.iterdir())


def test_a_master_that_is_told_to_end_meanwhile_says_what_has_not_come(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bringing.Bringing, "wait", stopped)
    with pytest.raises(KeyboardInterrupt):
        bring(report(elsewhere(1)), tmp_path, ("127.0.0.1", free_port()), KEY, 1.0, 1.0)
    *_, told = caplog.messages
    assert "what policy-ps-1 has left has not come: it is at 10.0.0.1, in its folder" in told


def test_what_is_not_brought_is_told_on_both_sides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    put(there, 1, [1], 3)
    port = free_port()
    sending = Sending(Place(f"127.0.0.1:{port}", KEY, "127.0.0.1", there, 0.1, "tcp"), 1, "it")
    sending.begin()
    sending.end()
    *_, told = caplog.messages
    assert f"it is here, in {there / 'policy-ps-1.npz'}: copy that to the folder of the" in told
    bring(report(elsewhere(1)), tmp_path, ("127.0.0.1", port), KEY, 0.1, 0.1)
    *_, told = caplog.messages
    assert "what policy-ps-1 has left has not come: it is at 10.0.0.1, in its folder" in told
    assert told == not_here(report(elsewhere(1)), tmp_path)
