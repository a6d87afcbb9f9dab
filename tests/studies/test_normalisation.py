"""Normalisation among many workers: extreme-scale-asgd, Figure 6."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leashed.cli import main, study
from leashed.models.graphs import Applied, Graph, Input
from leashed.models.layers import DataNorm, Dense, ReLU
from leashed.studies.many_workers import MODELS
from leashed.studies.normalisation import ARMS, Asked, curves, normalised
from leashed.studies.plots.normalisation import over_time
from leashed.studies.study import run

SMALL = Asked(workers=(4,), updates=8, repeats=2, batch_size=8, lr=(0.01, 0.1), ids=100)


def places(graph: Graph) -> list[tuple[type, type | None]]:
    """Of each normalising layer, what it reads, and what reads it if one alone does."""
    kinds = {one: type(one.layer if isinstance(one, Applied) else one) for one in graph.nodes}
    readers = {
        one: [kinds[other] for other in graph.nodes if one in other.inputs] for one in graph.nodes
    }
    return [
        (kinds[one.inputs[0]], readers[one][0] if len(readers[one]) == 1 else None)
        for one in graph.nodes
        if kinds[one] is DataNorm
    ]


@pytest.mark.parametrize("name", MODELS)
def test_data_are_normalised_where_an_arm_says(name: str) -> None:
    graph = MODELS[name].graph(10)
    found = {name: normalised(graph, arm) for name, arm in ARMS.items()}
    assert places(found["none"]) == []
    assert [of for of, _ in places(found["input"])] == [Input]
    before = places(found["before ReLU"])
    assert set(before) == {(Dense, ReLU)}
    behind = [of for of, _ in places(found["each layer"])]
    assert sorted(map(str, behind)) == sorted(map(str, [Input, *([ReLU] * len(before))]))
    assert found["none"].dimension == graph.dimension
    assert {one.name for one in found["input"].tables} == {one.name for one in graph.tables}


def test_arms_differ_by_where_they_normalise() -> None:
    found = {one.arm: one for one in curves(SMALL)}
    assert list(found) == list(ARMS)
    for one in found.values():
        assert one.auc.shape == (2, len(one.done))
        assert ((one.auc > 0) & (one.auc < 1)).all()
        assert one.intervals()[-1].mean == pytest.approx(one.auc[:, -1].mean())
        assert 0 <= one.near_zero <= 1
        assert one.rate in SMALL.lr
    plain, data = found["none"], found["input"]
    assert len({tuple(one.auc[:, -1]) for one in found.values()}) == len(ARMS)
    assert plain.near_zero == 0
    assert data.against(plain).mean == pytest.approx((data.auc[:, -1] - plain.auc[:, -1]).mean())


def test_each_arm_is_run_at_its_best_rate_of_the_sweep() -> None:
    records = run(SMALL).records
    swept = [one for one in records if "lr" in one["setting"]]
    assert len(swept) == len(ARMS) * len(SMALL.lr)
    assert records[: len(swept)] == swept
    for arm in ARMS:
        ends = {
            one["setting"]["lr"]: one["measured"]["auc"][-1]
            for one in swept
            if one["setting"]["arm"] == arm
        }
        rates = {
            one["measured"]["rate"]
            for one in records
            if one["setting"]["arm"] == arm and "lr" not in one["setting"]
        }
        assert rates == {max(ends, key=lambda lr, ends=ends: ends[lr])}
    table = str(SMALL.sweep_table(SMALL.shown(records)))
    assert "η = 0.01" in table


def test_a_sweep_that_is_cut_short_begins_no_trial() -> None:
    begun: list[dict] = []

    def begin(setting: dict) -> bool:
        begun.append(setting)
        return len(begun) < 4

    assert len(list(SMALL.runs([], None, begin, print))) == 3
    assert all("lr" in one for one in begun)


def test_runs_that_crash_have_a_curve_and_a_figure_all_the_same() -> None:
    found = list(curves(replace(SMALL, lr=(1e30,))))
    assert any(np.isnan(one.auc[:, -1]).all() for one in found)
    assert over_time(found).axes
    nothing = replace(found[0], auc=np.full_like(found[0].auc, np.nan))
    assert over_time([nothing]).axes


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(
        "leashed.cli.study.given",
        lambda *of, given=study.given: {**given(*of), "updates": 8, "ids": 100},
    )
    page = tmp_path / "normalisation.html"
    arguments = ["--workers", "3,5", "--batch-size", "8", "--repeats", "2", "--lr", "0.01"]
    assert main(["bench", "normalisation", *arguments, "--report", str(page)]) == 0
    told = capsys.readouterr().out
    for word in (*ARMS, "means near 0", "one running average"):
        assert word in told
    assert page.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "0"], "workers must be at least 1"),
        (["--batch-size", "1"], "batch_size must be at least 2"),
        (["--lr", "0"], "lr must be greater than 0"),
        (["--repeats", "0"], "repeats must be at least 1"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str, capsys) -> None:
    assert main(["bench", "normalisation", *arguments]) == 2
    assert message in capsys.readouterr().err
