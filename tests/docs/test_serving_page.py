"""The code and the commands of docs/serving.md run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from leashed.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")


def test_the_pages_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    given: dict[str, Any] = {}
    exec(compile(block, "docs/serving.md", "exec"), given)
    np.testing.assert_allclose(given["prediction"][:, 0], given["expected"], rtol=1e-4, atol=1e-6)


def test_the_pages_commands_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```\n(leashed.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines():
        assert main(shlex.split(line)[1:]) == 0, line
    assert (tmp_path / "dlrm.onnx").exists()
