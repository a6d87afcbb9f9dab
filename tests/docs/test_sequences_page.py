"""The code of docs/sequences.md runs."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "sequences.md"


def test_the_pages_code_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    given: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/sequences.md", "exec"), given)
    assert given["both"].dimension > given["model"].features  # type: ignore[attr-defined]
