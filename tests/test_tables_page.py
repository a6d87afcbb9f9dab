"""The code of docs/tables.md runs, from the first line to the last."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")


def test_the_pages_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) >= 2
    given = {"ids": np.array([3, 7, 3]), "gradients": np.ones((3, 16), np.float32)}
    exec(compile("\n".join(blocks), "docs/tables.md", "exec"), given)
