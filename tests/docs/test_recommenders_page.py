"""Every command of docs/recommenders.md runs, from the first to the last, and so does its code."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
PAGE = (Path(__file__).parents[2] / "docs" / "recommenders.md").read_text(encoding="utf-8")
COMMAND = "import sys; from leashed.cli import main; sys.exit(main())"


def write_parquet(folder: Path) -> None:
    """What the page has for logs of one's own."""
    draw = np.random.default_rng(0)
    (folder / "clicks").mkdir()
    for path in ("clicks/0.parquet", "clicks/1.parquet", "tomorrow.parquet"):
        users = draw.integers(0, 50, 1000)
        table = pyarrow.table(
            {
                "clicked": (draw.random(1000) < 0.1 + 0.8 * (users % 2)).astype(np.int64),
                "user_id": users,
                "price": draw.random(1000),
                "device": draw.choice(["phone", "tablet"], 1000),
            }
        )
        parquet.write_table(
            table.drop_columns(["clicked"]) if path == "tomorrow.parquet" else table, folder / path
        )


@pytest.mark.process
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # The command of the Python that runs the tests, installed or not.
    command = tmp_path / "bin" / "leashed"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{COMMAND}" "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    path = os.pathsep.join([str(command.parent), os.environ["PATH"]])
    blocks = re.findall(r"```(sh|python)\n(.*?)```", PAGE, re.DOTALL)
    assert [kind for kind, _ in blocks] == ["sh"] * 5 + [
        "python",
        "sh",
        "python",
        "sh",
        "python",
        "python",
        "python",
    ]
    write_parquet(tmp_path)
    known: dict[str, object] = {}
    for kind, block in blocks:
        if kind == "python":
            exec(compile(block, "docs/recommenders.md", "exec"), known)
            continue
        ended = subprocess.run(
            ["sh", "-ec", block],
            env={**os.environ, "PATH": path, "PYTHONWARNINGS": "error"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
    day = json.loads((tmp_path / "day-3.jsonl").read_text())
    assert day["name"] == "day-3.tsv.gz"
    assert 0.62 < day["yesterday"]["auc"] < day["yesterday"]["auc"] + 0.2 < 1
    assert len((tmp_path / "clicked.csv").read_text().splitlines()) == 20_000
    assert len((tmp_path / "tomorrow.csv").read_text().splitlines()) == 1000
    assert np.shape(known["clicked"]) == (1000,)
    assert "day-3.tsv.gz" in (tmp_path / "days.html").read_text()
