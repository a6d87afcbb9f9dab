"""The code of docs/metrics.md runs, from the first line to the last."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_pages_code_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    exec(compile("\n".join(blocks), "docs/metrics.md", "exec"), {})
