"""The code of docs/reading.md runs, from the first line to the last, and so do its commands."""

from __future__ import annotations

import gzip
import random
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from leashed import cli
from leashed.datasets import synthetic_click_lines

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
PAGE = (Path(__file__).parents[2] / "docs" / "reading.md").read_text(encoding="utf-8")
CSV = """clicked,price,city,device,seen
1,12.5,Göteborg,phone,17 4
0,,Uppsala,tablet,
"""


def write_files(folder: Path) -> None:
    """Those that the page names."""
    for day in range(2):
        lines = b"".join(synthetic_click_lines(300, day, cardinalities=50))
        (folder / f"day-{day}.tsv.gz").write_bytes(gzip.compress(lines))
    (folder / "clicks.csv").write_text(CSV, encoding="utf-8")
    (folder / "logs").mkdir()
    table = pyarrow.table({"clicked": [0, 1] * 100, "user_id": [*range(50)] * 4})
    parquet.write_table(table, folder / "logs" / "0.parquet")
    draw = random.Random(0)
    rows = [(draw.randrange(2), sorted(draw.sample(range(30), 4))) for _ in range(400)]
    text = "\n".join(f"{y} " + " ".join(f"{c + 1}:1" for c in row) for y, row in rows)
    for part in range(2):
        (folder / f"clicks-{part}.svm.gz").write_bytes(gzip.compress(text.encode()))
    fields = "\n".join(f"{y} " + " ".join(f"{c % 3}:{c}:1" for c in row) for y, row in rows)
    (folder / "clicks.ffm").write_text(fields)


def test_the_pages_code_and_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) >= 5
    exec(compile("\n".join(blocks), "docs/reading.md", "exec"), {})
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for command in commands.splitlines():
        program, *arguments = shlex.split(command)
        assert program == "leashed"
        assert cli.main(arguments) == 0, capsys.readouterr().err
    assert np.load(tmp_path / "said.npy").shape == (400, 1)
