"""The commands and the code of docs/replay.md run, and do what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from leashed import cli

PAGE = (Path(__file__).parents[2] / "docs" / "replay.md").read_text(encoding="utf-8")


ALONE, OF_A_CLUSTER = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


def run(block: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What each command of a block says."""
    told = []
    for line in block.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "leashed"
        assert cli.main(arguments) == 0
        told.append(capsys.readouterr().out)
    return told


def test_the_pages_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    told = run(ALONE, capsys)
    assert "the recorded one, bit for bit" in told[1]
    assert re.search(r"updates +400\n", told[2])
    assert "6.weight change" in told[2]


@pytest.mark.process
def test_the_pages_commands_of_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("msgspec", reason="the cluster extra has msgspec")
    monkeypatch.chdir(tmp_path)
    assert "cluster up" in OF_A_CLUSTER
    shorter = OF_A_CLUSTER.replace("cluster up", "cluster up --epochs 2")
    assert "the recorded one, bit for bit" in run(shorter, capsys)[1]


def test_the_pages_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = "".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    names: dict[str, Any] = {}
    exec(compile(blocks, "docs/replay.md", "exec"), names)
    assert names["norms"].observed["gradient_norm"] > 0
