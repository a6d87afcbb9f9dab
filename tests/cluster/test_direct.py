"""Trainers that sum over connections of all with all."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from cluster import alike, faults
from cluster.test_backends import SYNCHRONISERS, WHEN, come_and_go, summaries_of

import leashed as lsh
from leashed import cli
from leashed.cluster import collectives
from leashed.cluster import plan as plans
from leashed.cluster.messages import Epoch, Seat
from leashed.cluster.ring_tending import RingTending


@pytest.mark.parametrize(
    ("synchroniser", "parts"), [*((each, 1) for each in SYNCHRONISERS), ("ma", 3)]
)
def test_two_have_the_bits_of_the_ring(synchroniser, parts):
    """In the foreground, where all is determined; a sum of two has no other order."""
    given = {"parts": parts} if parts > 1 else {}
    made = [SYNCHRONISERS[synchroniser](when=WHEN["foreground"], **given) for _ in range(2)]
    own = alike.Run(list(made), epochs=1).train()
    over = alike.Run(list(made), epochs=1, direct=True).train()
    for mine, its in zip(own, over, strict=True):
        counted, of_ring = its.config["cluster"], mine.config["cluster"]
        assert counted["failed"] == 0
        assert counted["syncs"] == of_ring["syncs"] > 40
        assert counted["bytes_out"] == pytest.approx(of_ring["bytes_out"], rel=0.05)
        assert np.array_equal(its.parameters, mine.parameters)


@pytest.mark.parametrize("when", WHEN)
def test_three_become_alike(when):
    made = [lsh.sync.MA(when=WHEN[when])] * 3
    results = alike.Run(made, direct=True).train()
    for each in results:
        assert each.config["cluster"]["syncs"] > 0
        assert each.config["cluster"]["failed"] == 0


@pytest.mark.parametrize("when", WHEN)
def test_three_trainers_of_a_run_come_and_go(when, tmp_path):
    for counted in come_and_go(tmp_path, when, "direct"):
        assert counted["bytes_out"] > 0


@pytest.mark.parametrize(("backend", "waits"), [("leashed", 1), ("direct", 2)])
def test_who_was_long_in_connecting_is_called_for_as_long_as_ever(backend, waits):
    """Each of those who are to call has the whole time, however long others have taken."""
    waited = []

    class Calls:
        def wait(self, _, name, timeout):
            waited.append((name, timeout))
            if len(waited) == waits:
                raise TimeoutError(f"{name} has not called")
            return socket.socket()

    connecting = SimpleNamespace(
        timeout=5.0, run="run", closing=threading.Event(), connect=lambda *_: socket.socket()
    )
    broken = []
    member = SimpleNamespace(id=2, broken=broken.append)
    ring = RingTending(connecting, Calls(), member, backend, "tcp")
    seats = [Seat(k, k, f"127.0.0.1:{k + 1}", False) for k in range(3)]
    ring.epoch = epoch = Epoch(7, seats)
    ring._form(None, epoch)
    behind = ["trainer-1@run"] if backend == "leashed" else ["trainer-0@run", "trainer-1@run"]
    assert waited == [(name, connecting.timeout) for name in behind]
    assert broken == [7]


def test_servers_and_compression_are_refused_before_anything_starts(tmp_path, capsys):
    text = '[cluster]\nbackend = "direct"\n[sync]\nkind = "{}"\ncompression = "{}"\n'
    plans.parse(text.format("ma", "none"), tmp_path)
    with pytest.raises(
        ValueError, match=r"cluster\.backend 'direct' sums among trainers, and EASGD"
    ):
        plans.parse(text.format("easgd", "none"), tmp_path)
    with pytest.raises(ValueError, match=r"compression must be 'none', got 'int8'"):
        plans.parse(text.format("bmuf", "int8"), tmp_path)
    with pytest.raises(ValueError, match="leave backend out, or take MA or BMUF"):
        collectives.check("direct", 2, lsh.sync.EASGD())
    run = tmp_path / "run"
    arguments = ["--sync", "ma", "--compression", "int8", "--backend", "direct", "--run", str(run)]
    assert cli.main(["cluster", "up", *arguments]) == 2
    assert "compression must be 'none'" in capsys.readouterr().err
    assert not run.exists()


@pytest.mark.process
def test_processes_of_a_run_with_embedding_servers(tmp_path):
    folder, trainers = tmp_path / "run", 3
    arguments = ["--trainers", str(trainers), "--embedding-servers", "2", "--model", "dlrm"]
    arguments += ["--data", "clicks", "--sync", "ma", "--backend", "direct"]
    arguments += ["--when", "every:iterations=5", "--epochs", "1", "--run", str(folder)]
    assert cli.main(["cluster", "up", *arguments]) == 0
    for each in summaries_of(folder, trainers):
        assert each["bytes_out"] > 0
    assert 'backend = "direct"' in (folder / "plan.toml").read_text()


@pytest.mark.process
@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "when", ["background", {"iterations": 5}], ids=["background", "foreground"]
)
def test_one_is_killed_and_one_stopped_and_the_others_go_on(when, tmp_path):
    plan = faults.make_plan(
        tmp_path / "run", "bmuf", when, epochs=200.0, sync_ps=0, backend="direct"
    )
    stopped = faults.Fault("trainer-0", 1.7 * faults.TIMEOUT, after="trainer-1")
    planned = [(-0.3, faults.Fault("trainer-1", None)), (0.0, stopped)]
    played = faults.play(plan, planned)
    faults.check(played)
    assert len(played.injector.injected) == 2
    assert all(each["syncs"] > 0 for each in played.report["summaries"].values())
