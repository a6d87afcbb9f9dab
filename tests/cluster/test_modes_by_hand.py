"""The plan that docs/modes.md has, by hand on three machines: namespaces with no loopback in common, each with a
folder of its own.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from cluster import namespaces
from cluster.test_launched_tables import end, environment

import leashed as lsh
from leashed.cluster import opening
from leashed.cluster.measures import counted
from leashed.cluster.supervisor import read_report

PAGE = (Path(__file__).parents[2] / "docs" / "modes.md").read_text(encoding="utf-8")
_, BY_HAND = PAGE.split("### By hand, over machines\n")
BY_HAND = BY_HAND.partition("\n### ")[0]
(PLAN,) = re.findall(r"```toml\n(.*?)```", BY_HAND, re.DOTALL)
*MACHINES, AFTER = [
    text.splitlines() for text in re.findall(r"```sh\n(.*?)```", BY_HAND, re.DOTALL)
]


def program(line: str) -> list[str]:
    """What a line of the page starts."""
    name, *words = shlex.split(line)
    assert name == "leashed"
    return [sys.executable, "-m", "leashed", *words]


# (Of a command that is started while they train they might be done before.)
AS_SOON_AS_IT_LEADS = """
import sys
from pathlib import Path
from cluster.test_commanding import served, until
from leashed import cli
until(lambda: served(Path("run")))
sys.exit(cli.main(sys.argv[1:]))
"""


def started(folder: Path, program: Sequence[str]) -> subprocess.Popen[str]:
    """On the machine whose folder has its name."""
    return subprocess.Popen(
        namespaces.inside(folder.name, program), cwd=folder, env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


@pytest.mark.process
@pytest.mark.skipif(namespaces.missing() is not None, reason=str(namespaces.missing()))
def test_the_plan_of_the_page(tmp_path: Path) -> None:
    opening.make_key(tmp_path / "key")
    with namespaces.switched(len(MACHINES)) as machines:
        master, *_ = machines
        folders = [tmp_path / name for name in machines.values()]
        for folder in folders:
            folder.mkdir()
            (folder / "plan.toml").write_text(PLAN.replace("10.0.0.1", master), encoding="utf-8")
            shutil.copy2(tmp_path / "key", folder / "key")  # with its mode
        home = folders[0]
        command, status, report_of = map(program, AFTER)
        each = [
            (folder, line)
            for folder, lines in zip(folders, MACHINES, strict=True)
            for line in lines
        ]
        serve = [started(folder, program(line)) for folder, line in each if "trainer" not in line]
        try:
            end(started(home, [sys.executable, "-c", AS_SOON_AS_IT_LEADS, *command[3:]]))
            train = [started(folder, program(line)) for folder, line in each if "trainer" in line]
            end(*serve, *train)
        finally:
            for process in serve:
                process.kill()
        end(started(home, status), started(home, report_of))
    # What the server on another machine has left is here, rows and parameters of one moment.
    assert {one.name for one in (home / "run").glob("policy-ps-1*")} == {
        "policy-ps-1",
        "policy-ps-1.npz",
    }
    assert lsh.load(home / "run" / "output").tables
    report = read_report(home / "run")
    assert report is not None
    assert report["state"] == "ended", report["reason"]
    assert report["ledger"]["complete"] == report["ledger"]["total"] > 0
    assert len(counted(report, "trainer")) == 3
    first, _ = counted(report, "policy-ps").values()
    assert first["mode_told"] == 1
