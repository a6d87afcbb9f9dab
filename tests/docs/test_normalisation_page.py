"""The code of docs/normalisation.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "normalisation.md"


def test_the_pages_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    first, second, third = blocks
    given: dict[str, object] = {}
    exec(compile(first, "docs/normalisation.md", "exec"), given)
    result = given["result"]
    np.testing.assert_array_equal(given["statistics"], result.statistics)  # type: ignore[attr-defined]
    exec(compile(second, "docs/normalisation.md", "exec"), given)
    model = given["result"].model  # type: ignore[attr-defined]
    assert model.columns.moments.rows == 2000
    assert model.predict("prices.csv").shape == (2000,)
    exec(compile(third, "docs/normalisation.md", "exec"), given)
    assert given["result"].outcome == "stopped"  # type: ignore[attr-defined]
