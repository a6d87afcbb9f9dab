"""``leashed elp``."""

from __future__ import annotations

import json

import pytest

from leashed import cli
from leashed.studies.elp import TABLE_1, Parallelism

# shadowsync, Table 1, its last column.
PRINTED = {
    "ShadowSync": 96_000,
    "EASGD": 2048,
    "DC-ASGD": 2048,
    "BMUF": None,
    "DownpourSGD": None,
    "ADPSGD": 16_384,
    "LARS": 32_000,
    "SGP": 65_536,
}


def test_the_papers_rows_give_the_papers_last_column():
    assert {row.algorithm: row.elp for row in TABLE_1} == PRINTED
    assert {row.algorithm: row.batches for row in TABLE_1 if row.elp is None} == {
        "BMUF": 64,
        "DownpourSGD": 200,
    }


def test_yours_stands_above_the_papers(capsys):
    assert cli.main(["elp", "--batch-size", "128", "--threads", "8", "--trainers", "4"]) == 0
    header, _, first, *others = capsys.readouterr().out.splitlines()
    assert header.split()[:2] == ["algorithm", "batch"]
    assert first.split() == ["yours", "128", "8", "4", "4,096"]
    assert len(others) == len(TABLE_1)
    assert "64 × B" in others[3]


def test_json_has_the_same_rows_and_their_sources(capsys):
    assert cli.main(["elp", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["algorithm"] == "yours"
    assert rows[0]["elp"] == 64
    assert {row["algorithm"]: row["elp"] for row in rows[1:]} == PRINTED
    assert all("shadowsync" in row["source"] for row in rows[1:])


@pytest.mark.parametrize("option", ["--batch-size", "--threads", "--trainers"])
def test_numbers_are_checked(option, capsys):
    assert cli.main(["elp", option, "0"]) == 2
    assert "must be at least 1, got 0" in capsys.readouterr().err


def test_a_batch_size_may_be_unknown():
    assert Parallelism("a", None, 2, 3).elp is None
