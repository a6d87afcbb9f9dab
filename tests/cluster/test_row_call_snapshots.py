"""Snapshots of embedding servers whose tables are updated by calls, each as steps of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.served import Servers
from cluster.test_row_calls import DIM, pair

import leashed as lsh
from leashed.cluster import keeping
from leashed.cluster.row_files import RowFiles
from leashed.models import tables

RULE = lsh.Adam(0.1)  # whose steps are seen


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "_WRITING", 1e9)


def gradients(k: int, name: str) -> Any:
    dim = DIM if name == "a" else DIM - 2
    return np.random.default_rng(k).normal(size=(2, dim)).astype(np.float32)


def lives(folder: Path, count: int, rows: int | None, **given: Any) -> Iterator[Any]:
    """Tables of a server that is started again, with its files, after each use."""
    for _ in range(count):
        made: list[RowFiles] = []

        def restore(mine: dict[str, lsh.Table], made: list[RowFiles] = made) -> None:
            made.append(RowFiles(mine, folder, "0123", 0, 0.0))
            made[0].restore()

        servers = Servers(pair(rows), 1, rule=RULE, made=restore, **given)
        files = made[0]
        files.serve(servers.natives[0])
        with servers.open() as served:
            yield served, files, servers.tables[0]
            served.settle()
            files.keep()


@pytest.mark.parametrize("rows", [100, None], ids=["fixed", "growing"])
def test_a_table_goes_on_with_its_own_steps(rows: int | None, tmp_path: Path) -> None:
    given: dict[str, Any] = {} if rows else {"max_bytes": 1 << 20}
    local = tables.of(pair(rows), rule=RULE, seed=3, **given)
    k = 0
    for served, files, there in lives(tmp_path, 4, rows, **given):
        steps = {name: table.statistics()["steps"] for name, table in local.items()}
        assert {n: t.statistics()["steps"] for n, t in there.items()} == steps
        for name, times in (("a", 3), ("b", 1), ("a", 1)):
            for _ in range(times):
                k += 1
                for of in (served[name], local[name]):
                    of.update([k % 5, 7], gradients(k, name))
            served.settle()
            files.keep()
        # One without rows is a step, of which a snapshot knows though no row has changed.
        for of in (served["b"], local["b"]):
            of.update([], np.zeros((0, DIM - 2)))
        for name, table in local.items():
            np.testing.assert_array_equal(
                served[name].lookup(np.arange(10)), table.lookup(np.arange(10))
            )
