"""The code of docs/simulation.md runs, from the first line to the last."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leashed.cli import main
from leashed.datasets import synthetic_digits

ROOT = Path(__file__).parents[2]
TRAINERS = "--trainers 2 --threads 2 --examples 160 --passes 1 --gaps 5"
CLICKS = "--trainers 2 --examples 160 --repeats 1"
DIGITS = synthetic_digits(320, test=50)
PAGE = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")


def test_the_pages_code_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    given: dict[str, object] = {}
    exec(compile("".join(blocks), "docs/simulation.md", "exec"), given)
    assert given["played"].result.reason == "epochs"  # type: ignore[attr-defined]


@pytest.mark.process
@pytest.mark.long
def test_its_commands_run(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ leashed (.*)$", PAGE, re.MULTILINE)
    smaller = {
        "bench contention": "--threads 1,16 --repeats 2 --virtual",
        "bench shadowsync --virtual --plot": f"{TRAINERS} --servers 1",
        "bench shadowsync --virtual --table2": f"{TRAINERS} --repeats 1",
        "bench shadowsync --figure6": f"{CLICKS} --threads 2",
        "bench shadowsync --figure8": f"{CLICKS} --threads 1,2",
        "bench shadowsync --embedding-servers": f"{CLICKS} --threads 1,2 --gaps 2",
        "bench shat": "--workers 2 --epochs 0.5 --repeats 1 --lr 0.001",
        "bench scaling": "--repeats 1 --threads 4 --cap 10 --costs 0.01,0.001,0.001",
        "bench staleness": "--workers 10,20 --updates 2000",
        "bench swap": "--days 1 --repeats 1",
        "report": "",
    }
    assert len(commands) == 13
    monkeypatch.setattr("leashed.cli.study.load_data", lambda _: DIGITS)
    for command in commands:
        (added,) = [words for name, words in smaller.items() if command.startswith(name)]
        assert main([*command.split(), *added.split()]) == 0
    assert (tmp_path / "contention.html").stat().st_size > 10_000
    assert (tmp_path / "shat.html").stat().st_size > 10_000
    assert (tmp_path / "staleness.html").stat().st_size > 10_000
    assert (tmp_path / "swap.html").read_bytes() == (tmp_path / "again.html").read_bytes()
    assert (tmp_path / "virtual.html").stat().st_size > 10_000
    assert "virtual time (mlp: T_c 10.0 ms, T_u 1.00 ms" in capsys.readouterr().out
