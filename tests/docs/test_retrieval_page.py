"""The code of docs/retrieval.md runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "retrieval.md"


def test_the_pages_code_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    given: dict[str, Any] = {}
    exec(compile(block, "docs/retrieval.md", "exec"), given)
    assert given["best"].shape == (500, 10)
