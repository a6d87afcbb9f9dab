"""What docs/cluster.md has for systemd, Slurm and Kubernetes is what these take."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
TOOLS = Path(sys.executable).parent


def block(kind: str) -> str:
    (found,) = re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(found)


def run(*command: object) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.process
@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed here"
)
def test_the_unit_is_one(tmp_path: Path) -> None:
    unit = block("ini")
    assert "RestartPreventExitStatus=2 3 130\n" in unit
    assert "`RestartPreventExitStatus=2 3 130`" in PAGE.read_text(encoding="utf-8")
    path = tmp_path / "leashed-trainer@.service"
    path.write_text(unit.replace("/opt/leashed/bin/leashed", str(TOOLS / "leashed")))
    assert "leashed-trainer" not in run("systemd-analyze", "verify", path)
    path.write_text(unit.replace("ExecStart=", "ExcStart="))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False
    )
    assert "leashed-trainer" in done.stderr  # or the test would show nothing


@pytest.mark.process
def test_the_batch_script_is_one(tmp_path: Path) -> None:
    script = block("bash")
    path = tmp_path / "job.sh"
    path.write_text(script)
    run(TOOLS / "shellcheck", path)
    first, *lines = script.splitlines()
    assert first == "#!/bin/bash"
    told = [line.startswith("#SBATCH ") for line in lines]
    assert sorted(told, reverse=True) == told, "what comes behind a command Slurm does not read"
    options = dict(
        line.removeprefix("#SBATCH --").partition("=")[::2]
        for line in lines
        if line.startswith("#SBATCH")
    )
    assert options.keys() == {
        "job-name", "nodes", "ntasks-per-node", "cpus-per-task", "time", "signal", "requeue",
        "open-mode",
    }  # fmt: skip
    assert re.fullmatch(r"[A-Z]+@\d+", options["signal"])
    assert re.fullmatch(r"(\d+-)?\d+:\d\d:\d\d", options["time"])
    assert options["ntasks-per-node"] == "1"


@pytest.mark.process
def test_the_manifest_is_one(tmp_path: Path) -> None:
    path = tmp_path / "leashed.yaml"
    path.write_text(block("yaml"))
    run(TOOLS / "kubernetes-validate", "--strict", path)
    path.write_text(block("yaml").replace("backoffLimit: 100", "backoffLimits: 100"))
    done = subprocess.run(
        [str(TOOLS / "kubernetes-validate"), "--strict", str(path)],
        capture_output=True,
        check=False,
    )
    assert done.returncode != 0  # or the test would show nothing
