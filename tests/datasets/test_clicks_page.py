"""The code of docs/clicks.md runs, from the first line to the last."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "clicks.md").read_text(encoding="utf-8")


def test_the_pages_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names = ["Label", *(f"I{j + 1}" for j in range(13)), *(f"C{f + 1}" for f in range(26))]
    lines = [",".join(names)]
    for i in range(900):
        hashes = (f"{h:08x}" for h in rng.integers(0, 2**32, 26))
        lines.append(",".join([str(i % 4 // 3), *map(str, rng.integers(-2, 99, 13)), *hashes]))
    (tmp_path / "train.tiny.csv").write_text("\n".join(lines))
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 7
    exec(compile("\n".join(blocks), "docs/clicks.md", "exec"), {})
