"""A run of real processes whose mode is told to switch again and again, between workers who sum among
themselves and a server that does, while trainers are killed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cluster.processes import pids
from cluster.test_led_modes import begun, started, whole
from cluster.test_up import PATIENCE

import leashed as lsh
from leashed.cluster.measures import counted

# LEASHED_SWITCHES=50 makes it 50, as `make test-all` does.
SWITCHES = int(os.environ.get("LEASHED_SWITCHES", "10"))
BATCH = 64
# By data, of which the latter has rows at the server: what is trained, and epochs of a switch.
WORDS: dict[str, tuple[list[str], float]] = {
    "digits": ([], 6),
    "clicks": (["--model", "dlrm", "--data", "clicks"], 0.6),
}


def switch(folder: Path, to: str, process: subprocess.Popen[str]) -> None:
    """Tells the mode so, and waits until it is that: after one more update at most."""
    at = lsh.cluster.command(folder, to)
    deadline = time.monotonic() + PATIENCE
    while lsh.cluster.command(folder, to) < at + 3:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)


@pytest.mark.process
@pytest.mark.parametrize("model", WORDS)
def test_of_live_switches_with_deaths_each_example_is_once_in_it_or_counted(model, tmp_path):
    rng = random.Random(0)
    folder = tmp_path / "run"
    data, each = WORDS[model]
    words = ["--trainers", "3", "--mode", "switching", "--dense", "all-reduce", *data]
    process = started(*words, "--epochs", str(each * SWITCHES), "--run", str(folder))
    behind = set(rng.sample(range(SWITCHES), SWITCHES // 4))  # which switches somebody is killed
    killed = 0
    try:
        begun(folder, 50, process)
        for number in range(SWITCHES):
            switch(folder, "sync" if number % 2 else "gba", process)
            if number in behind:
                time.sleep(rng.uniform(0.0, 0.1))
                there = pids(folder)
                if trainers := sorted(name for name in there if name.startswith("trainer")):
                    os.kill(there[rng.choice(trainers)], signal.SIGKILL)
                    killed += 1
        report = whole(folder, process)
    finally:
        process.kill()
    ledger = report["ledger"]
    (server,) = counted(report, "policy-ps").values()
    assert killed > 0  # (also who had not said anything yet)
    assert server["mode_commands"] >= 2 * SWITCHES
    assert server["homes"] >= SWITCHES // 2  # the parameters, for each switch to the server
    assert min(server["reduced"], server["pushes"]) > 0
    used = server["mode_applied"] + server["mode_stale"] + server["lost_examples"]
    assert used == ledger["total"] * BATCH
    assert server["strange"] == 0
    if model == "digits":
        assert report["test_accuracy"] > 0.9
