"""Processes that prove the key and are not who was looked for: of another role, run or job."""

from __future__ import annotations

import contextlib
import socket
from concurrent.futures import Future

import pytest

from leashed import _core
from leashed.cluster import addressing, placing, readiness, serving
from leashed.cluster.fingerprint import differing, of_job
from leashed.cluster.opening import Key, Listener, Refused, connect

KEY = Key(b"k" * 32, given=False)


def test_who_listens_in_another_role_is_refused():
    listener = Listener("127.0.0.1", 0, KEY, "trainer", lambda link, _: link.close())
    with contextlib.closing(listener):
        at = {"role": "trainer", "name": "trainer-0", "purpose": "exchange", "deadline": 30.0}
        connect(listener.address, KEY, **at, expected="trainer").close()
        with pytest.raises(Refused, match=r"a trainer listens at 127\.0\.0\.1:\d+, and no sync-ps"):
            connect(listener.address, KEY, **at, expected="sync-ps")


@pytest.mark.parametrize(("run", "taken"), [("0123", 1), ("4567", 0)])
def test_a_sync_server_takes_connections_of_its_run_alone(run, taken):
    native = _core.SyncServer([(0, 4)])
    made: Future = Future()
    made.set_result(("0123", native))
    mine, theirs = socket.socketpair()
    with mine:
        serving._adopt(made, theirs, addressing.within(run, "trainer-0"), False, "tcp")
        readiness.await_made(mine, 30, lambda: None)
        mine.settimeout(30)
        if not taken:
            assert mine.recv(1) == b""
        else:
            mine.settimeout(0.2)
            with pytest.raises(TimeoutError):
                mine.recv(1)


def test_jobs_that_have_names_are_compared():
    assert of_job("") == {}
    assert differing(of_job("a"), of_job("a")) is None
    told = differing(of_job("a"), of_job("b"))
    assert told is not None
    assert "what the run is: name is b here, and a in the run" in told
    assert placing.job({"TORCHELASTIC_RUN_ID": "none"}) == ""
    assert placing.job({"TORCHELASTIC_RUN_ID": "7", "SLURM_JOB_ID": "8"}) == "7"
    assert placing.job({"SLURM_JOB_ID": "8"}) == "8"
