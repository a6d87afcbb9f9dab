"""The code of docs/tables.md runs, from the first line to the last."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import leashed as lsh

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_pages_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = [block for block in BLOCKS if "torch" not in block]
    assert len(blocks) >= 2
    given = {"ids": np.array([3, 7, 3]), "gradients": np.ones((3, 16), np.float32)}
    exec(compile("\n".join(blocks), "docs/tables.md", "exec"), given)


def test_its_pytorch_code_runs() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional extra")
    (block,) = [block for block in BLOCKS if "torch" in block]
    ids = torch.tensor([3, 7, 3])
    model = torch.nn.Sequential(lsh.torch.Embedding(10, 16), torch.nn.Linear(16, 1))
    before = model[0].table.lookup([3])
    given = {
        "lsh": lsh,
        "torch": torch,
        "table": lsh.Table(rows=10, dim=16),
        "weight": torch.ones(10, 16),
        "model": model,
        "batches": [(ids, torch.ones(3, 1))],
        "loss_fn": torch.nn.functional.mse_loss,
    }
    exec(compile(block, "docs/tables.md", "exec"), given)
    assert (model[0].table.lookup([3]) != before).all()
