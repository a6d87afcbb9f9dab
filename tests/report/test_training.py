"""The page of one training run."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from factories import make_result, make_run
from report.test_page import parsed

import leashed as lsh
from leashed import staleness
from leashed.report import page, training
from leashed.report.facts import facts, tables
from leashed.studies.runs import Run
from leashed.training.result import TrainResult

pytestmark = pytest.mark.filterwarnings("ignore:table .* is full:RuntimeWarning")


@pytest.fixture(scope="module", params=[lsh.Hogwild(), lsh.Synchronous()], ids=["hogwild", "sync"])
def result(request: pytest.FixtureRequest) -> TrainResult:
    """Of two epochs, with tables that grow and evict."""
    data = lsh.datasets.synthetic_clicks(2000, seed=2, cardinalities=300, test=300)
    model = lsh.models.dlrm(dim=4, bottom=(4,), top=(8,))
    made = lsh.tables.of(
        model.tables, rule=lsh.Adagrad(0.05), max_bytes=20_000, evict="age", admit_after=2
    )
    found = lsh.train(
        model,
        data,
        discipline=request.param,
        rule=lsh.Adagrad(0.05),
        staleness=staleness.inverse(),
        init=lsh.Init(tables=made),
        threads=2,
        batch_size=50,
        until=lsh.until(epochs=2),
    )
    found.config["hidden_auc"] = data.test.hidden_auc
    return TrainResult.from_json(found.to_json())


def test_the_page_stands_alone(result: TrainResult) -> None:
    document = training.render(result)
    checker = parsed(document)
    assert checker.images == 1
    assert all(
        reference.startswith("data:image/svg+xml;base64,") for reference in checker.references
    )
    assert not re.search(r"url\(|@import|<script|<link", document)
    for name in result.config["tables"]:
        assert f">{name}</td>" in document


def test_a_comparison_tells_of_the_tables_of_its_runs(result: TrainResult) -> None:
    document, _ = page.render([make_run(), Run.of(result)])
    assert document.count("<h3>Tables</h3>") == 1
    assert "<h2>dlrm and its tables: " in document
    parsed(document)


def test_its_tables_are_what_was_counted(result: TrainResult) -> None:
    header, rows = tables(result)
    counted = result.config["tables"]
    assert [row[0] for row in rows] == [*counted, "all"]
    place = {name: i for i, name in enumerate(header)}

    def number(row: list[str], name: str) -> int:
        return int(row[place[name]].replace(",", ""))

    outcomes = ("applied", "folded", "late", "excluded", "unadmitted", "deferred", "refused")
    for row in rows[:-1]:
        one = counted[row[0]]
        for name in ("rows", "capacity", "admitted", "evicted", "asked", *outcomes):
            assert number(row, name) == one[name]
        assert row[place["hit rate"]] == f"{100 * one['found'] / one['asked']:.2f}%"
        assert number(row, "most τ") == one["stalest"]
    for name in ("admitted", "evicted", "asked", *outcomes):
        assert number(rows[-1], name) == sum(one[name] for one in counted.values())
    assert number(rows[-1], "evicted") > 0
    for name in outcomes:  # this run was the tables' first
        assert number(rows[-1], name) == result.rows[name]


def test_its_facts_say_how_near_the_hidden_model_it_came(result: TrainResult) -> None:
    told = dict(facts(result))
    below = result.config["hidden_auc"] - result.validation_auc[-1]
    assert f"{below:.3f} above" in told["AUC"]
    assert f"{result.rows['applied']:,} applied" in told["row updates"]
    assert ("folded" in told["row updates"]) == ("SYNC" in result.config["discipline"])


def test_its_picture_has_what_is_known(result: TrainResult) -> None:
    titles = [axes.get_title() for axes in result.plot().axes if axes.axison]
    assert [title.partition(" (")[0] for title in titles] == [
        "Loss",
        "Accuracy",
        "AUC",
        "Normalised entropy",
        "Throughput",
        "Staleness",
        "Staleness of rows",
    ]
    auc, rows = result.plot().axes[2], result.plot().axes[6]
    drawn = [np.asarray(line.get_ydata(), np.float64) for line in auc.lines]
    assert set(drawn[0]) == {result.config["hidden_auc"]}
    np.testing.assert_array_equal(drawn[1], result.auc)
    np.testing.assert_array_equal(drawn[2], result.validation_auc)
    heights: list[Any] = [bar.get_height() for bar in rows.patches]
    np.testing.assert_allclose(heights, 100 * result.row_staleness / result.row_staleness.sum())


def test_a_network_s_page_has_neither_tables_nor_auc() -> None:
    result = make_run(more={"staleness": "none"}).result
    document = training.render(result)
    assert parsed(document).images == 1
    assert "Tables" not in document
    assert not {"AUC", "tables", "rows"} & {name for name, _ in facts(result)}
    assert [axes.get_title().split()[0] for axes in result.plot().axes] == [
        "Loss",
        "Accuracy",
        "Throughput",
        "Staleness",
    ]


def test_a_crashed_run_and_one_without_any_update_are_drawn() -> None:
    more = {"staleness": "none"}
    crashed = make_run(more=more, outcome="crashed").result
    assert "crashed" in training.render(crashed)
    nothing = make_result(
        evaluations=1, updates=0, config=crashed.config, staleness=0.0, auc=np.array([0.5])
    )
    assert math.isnan(nothing.validation_auc[0])
    assert "AUC" in dict(facts(nothing))
    training.render(nothing)
