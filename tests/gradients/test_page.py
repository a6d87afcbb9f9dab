"""The code of docs/gradients.md on rows of tables runs, and its C is what leashed.h has."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh

PAGE = (Path(__file__).parents[2] / "docs" / "gradients.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def run() -> dict[str, Any]:
    (block,) = [block for block in blocks("python") if "synthetic_clicks" in block]
    given: dict[str, Any] = {}
    exec(compile(block, "docs/gradients.md", "exec"), given)
    return given


def test_its_rows_in_python_run() -> None:
    given = run()
    assert given["result"].auc[-1] > given["result"].auc[0] + 0.02


def test_its_rows_in_numba_run() -> None:
    pytest.importorskip("numba", reason="Numba is optional")
    given = run()
    (block,) = [block for block in blocks("python") if "import numba" in block]
    exec(compile(block, "docs/gradients.md", "exec"), given)
    # Two threads or more: about the same.
    assert given["again"].loss[-1] == pytest.approx(given["result"].loss[-1], abs=0.02)
    new = lsh.tables.of([given["users"], given["items"]])
    theta = np.linspace(-0.1, 0.1, 14)
    losses = [given[name].evaluate(theta, given["data"], new) for name in ("model", "native")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_its_c_is_the_headers(tmp_path: Path) -> None:
    dense, rows = blocks("c")
    source = '#include "leashed.h"\n'
    for block, types in ((dense, ["leashed_gradient"]), (rows, ["leashed_gradient_rows"])):
        name = f"f_{types[0]}"
        source += block.replace("float gradient(", f"float {name}(", 1)
        source += "".join(f"{kind} checked_{kind} = {name};\n" for kind in types)
    (tmp_path / "page.c").write_text(source)
    command = ["cc", "-Werror", f"-I{lsh.get_include()}", "-c", "page.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
