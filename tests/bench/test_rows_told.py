"""What docs/cluster.md says of readers and of restarts is what was measured."""

import json
from typing import Any

import pytest

from bench import restart_rows, sent_rows
from bench.run import ROOT


def measured(name: str) -> list[dict[str, Any]]:
    text = (ROOT / "bench" / "results" / f"{name}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def page() -> str:
    return (ROOT / "docs" / "cluster.md").read_text("utf-8")


def test_what_readers_reach_is_told(page: str) -> None:
    assert f"(`python -m bench.sent_rows`: {sent_rows.words(*measured('sent_rows'))}" in page


def test_how_long_restarts_take_is_told(page: str) -> None:
    assert restart_rows.words(*measured("restart_rows")) in page
