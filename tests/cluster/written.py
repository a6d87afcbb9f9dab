"""Data as files: a process reads them sooner than it draws them."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np

from leashed.datasets import Split, synthetic_digits, write_idx


def digits(folder: Path) -> Path:
    """The folder, with the files in it; they are written where they are not there yet."""
    if folder.exists():
        return folder
    folder.mkdir()
    for name, data in zip(("train", "t10k"), _drawn(), strict=True):
        images = np.rint(data.x * 255).astype(np.uint8).reshape(-1, 28, 28)
        write_idx(folder / f"{name}-images-idx3-ubyte", images)
        write_idx(folder / f"{name}-labels-idx1-ubyte", data.y.astype(np.uint8))
    return folder


def rows(path: Path, seed: int, count: int = 400, columns: int = 30) -> None:
    """Sparse rows in the libsvm format, whose labels a plane and pairs of columns tell."""
    of = np.random.default_rng(7)
    plane, factors = of.normal(size=columns), of.normal(size=(columns, 2))
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        there = np.sort(rng.choice(columns, 6, replace=False))
        values = rng.normal(size=6)
        both = values @ factors[there]
        told = values @ plane[there] + 0.2 * (both @ both)
        named = " ".join(f"{k + 1}:{value:.4f}" for k, value in zip(there, values, strict=True))
        lines.append(f"{1 if told > 0 else -1} {named}\n")
    path.write_text("".join(lines), encoding="utf-8")


@functools.cache
def _drawn() -> Split:
    return synthetic_digits()


def clicks(folder: Path, rows: int = 3000, seed: int = 0) -> tuple[Path, Path]:
    """A file of clicks, and its schema: a number, a user, an item of 40 and the items of a history. What
    is clicked is told by the item, and by whether its kind was clicked before.
    """
    of = np.random.default_rng(7)
    tastes, kinds = of.normal(size=40), np.arange(40) % 4
    rng = np.random.default_rng(seed)
    lines = ["click,price,user,item,past\n"]
    for _ in range(rows):
        item, past = rng.integers(40), rng.integers(40, size=rng.integers(1, 6))
        price = rng.normal()
        score = 2 * tastes[item] + 2 * (kinds[past] == kinds[item]).mean() + 0.5 * price - 0.5
        clicked = int(rng.random() < 1 / (1 + np.exp(-score)))
        told = " ".join(map(str, past))
        lines.append(f"{clicked},{price:.3f},{rng.integers(60)},{item},{told}\n")
    (folder / "clicks.csv").write_text("".join(lines), encoding="utf-8")
    (folder / "schema.json").write_text(json.dumps({"columns": _COLUMNS}), encoding="utf-8")
    return folder / "clicks.csv", folder / "schema.json"


_COLUMNS = {
    "click": {"kind": "label"},
    "price": {"kind": "number"},
    "user": {"kind": "id"},
    "item": {"kind": "id"},
    "past": {"kind": "id", "between": " ", "history_of": "item"},
}
