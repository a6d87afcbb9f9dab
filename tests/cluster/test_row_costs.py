"""What a row costs an embedding server, as a run's master profiles it."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

import leashed as lsh
from leashed.cluster import row_costs, sizing
from leashed.cluster.packing import BY_ROW_BYTES
from leashed.cluster.row_costs import RowTerms, profile
from leashed.models import TableSpec
from leashed.training.rows_read import RowsRead

RULE = json.dumps(lsh.Adagrad(0.1).config())


def test_more_floats_cost_more_but_not_in_proportion() -> None:
    found = profile(RULE)
    assert 1e-9 < found.of(4) < found.of(64) < 1e-4
    assert found.of(64) < 16 * found.of(4)


def test_costs_are_those_of_a_row_beside_what_a_batch_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def profiled(tables: list[Any], ids: Any) -> dict[str, float]:
        rows = ids.shape[2]
        return {"rows": rows, "serving": 1e-3 + rows * (2e-6 + 1e-7 * tables[0].dim)}

    monkeypatch.setattr(sizing, "profiled", profiled)
    found = profile(RULE)
    for dim in (1, 16, 100):
        assert found.of(dim) == pytest.approx(2e-6 + 1e-7 * dim)


def test_where_nothing_can_be_measured_it_is_by_bytes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none(*_: object) -> dict[str, float]:
        raise OSError("no loopback")

    monkeypatch.setattr(row_costs.sizing, "profiled", none)
    with caplog.at_level(logging.WARNING):
        assert profile(RULE) == BY_ROW_BYTES
    assert "no loopback" in caplog.text
    monkeypatch.setattr(sizing, "profiled", lambda _, ids: {"rows": ids.shape[2], "serving": 1e-3})
    assert profile(RULE) == BY_ROW_BYTES  # more floats cost no more: a clock of milliseconds
    assert BY_ROW_BYTES.of(16) == pytest.approx(8 + 8 * 16)


def test_a_master_knows_tables_features_and_the_rule() -> None:
    rule = lsh.SWAP(lsh.Adagrad(0.1), 8)
    read = RowsRead(
        [TableSpec("a", 4, 9), TableSpec("b", 2)], [0, 1, 1], rule, lsh.staleness.none(), 1
    )
    told = RowTerms.of(read)
    assert told.tables == [("a", 4, 9), ("b", 2, None)]
    assert told.features == [0, 1, 1]
    assert profile(told.rule).one > 0
