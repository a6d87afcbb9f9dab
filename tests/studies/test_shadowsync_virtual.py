"""Figure 5 and Table 2 in virtual time."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import pytest

import leashed as lsh
from leashed.cluster.shadowsync.panels import VirtualFigure6, VirtualFigure8
from leashed.cluster.shadowsync.served import VirtualServed
from leashed.cluster.shadowsync.virtual import (
    VirtualFigure5,
    VirtualSweep,
    VirtualTable2,
    VirtualTable2b,
)
from leashed.studies.study import left

DATA = lsh.datasets.synthetic_digits(320, seed=0, test=50)
CLICKS = lsh.datasets.synthetic_clicks(2_000, seed=0, test=200, cardinalities=1000)
SWEEP = Path(__file__).parents[2] / "bench/experiments/amd-epyc-v4-2-cores/virtual-sweep.jsonl.gz"
TINY = {"threads": 2, "batch_size": 4, "hidden": 4, "passes": 1.0, "examples": 320}
SMALL = {"batch_size": 4, "examples": 2_000}  # of clicks


def test_figure_5_has_the_papers_trainers_and_threads() -> None:
    study = VirtualFigure5()
    assert (min(study.trainers), max(study.trainers), study.threads) == (5, 20, 24)
    assert study.servers == (2, 4)
    alone = study.threads * study.batch_size / (1.1 * study.pace)  # of one trainer
    assert study.predicted(5, 2) / alone == pytest.approx(14, abs=0.2)  # section 4.1.2
    assert study.full().trainers == tuple(range(5, 21))
    assert study.seconds() < 600
    assert VirtualTable2().seconds() < 600


def test_figure_5_plays_each_arm() -> None:
    study = VirtualFigure5(trainers=(2, 3), servers=(1, 2), gaps=(5,), bandwidth=1e8, **TINY)
    settings = study.settings()
    assert len(settings) == 2 * 4
    records = [study.run(setting, DATA) for setting in settings]
    assert records[0] == study.run(settings[0], DATA)  # virtual time depends on nothing else
    assert not left(study, DATA, records)
    by_arm = {r["setting"]["sync"]: r["measured"] for r in records}
    assert by_arm["none"]["gap"] is None
    assert by_arm["FR-EASGD-5"]["gap"] >= 5
    assert by_arm["S-EASGD"]["eps"] > 0
    text = study.report(records)
    for words in ("Virtual time", "S-EASGD, 1 sync server", "train, no synchronisation"):
        assert words in text
    assert set(study.loss_panels(records)) == {"train loss", "eval loss"}


def test_table_2_has_the_papers_gaps_and_seeds() -> None:
    study = VirtualTable2(model="mlp", trainers=2, repeats=2, gaps=(2, 5), **TINY)
    records = [study.run(setting, DATA) for setting in study.settings()]
    assert [(r["setting"]["sync"], r["setting"]["gap"]) for r in records[:4]] == [
        ("none", None), ("easgd", None), ("easgd", 2), ("easgd", 5),
    ]  # fmt: skip
    text = study.report(records)
    for words in ("Virtual time", "one trainer", "S-EASGD", "FR-EASGD-5", "±"):
        assert words in text
    assert VirtualTable2().full().kinds == ("easgd", "ma", "bmuf")


@pytest.mark.parametrize(("kind", "gap"), [(VirtualTable2, 5.21), (VirtualTable2b, 1.008)])
def test_table_2_trains_the_papers_model_at_its_gap(kind, gap: float) -> None:
    study = kind(gaps=(5,), alpha=(0.3,), repeats=1, examples=60_000)
    data = lsh.datasets.synthetic_clicks(60_000, seed=0, test=200, cardinalities=1000)
    _, shadow, _ = study.settings()
    found = study.run(shadow, data)["measured"]
    assert found["gap"] == pytest.approx(gap, rel=0.15)  # in a short run
    assert study.model == "dlrm"
    assert (VirtualTable2().trainers, VirtualTable2b().trainers) == (11, 20)


def test_table_2_has_the_mean_and_the_best_replica_and_every_alpha() -> None:
    study = VirtualTable2(trainers=3, threads=2, gaps=(5,), repeats=1, **SMALL)
    records = [study.run(setting, CLICKS) for setting in study.settings()]
    assert [r["setting"]["settings"].get("alpha") for r in records] == [None, 0.3, 0.3, 0.9, 0.9]
    alone, first = records[0]["measured"], records[2]["measured"]
    assert alone["eval_loss"] == alone["eval_loss_mean"] == alone["eval_loss_best"]
    assert len({first["eval_loss"], first["eval_loss_mean"]}) == 2
    text = study.report(records)
    for words in ("mean of replicas", "best replica", "FR-EASGD-5, α = 0.9"):
        assert words in text
    assert VirtualTable2.of(json.loads(json.dumps(records))).model == "dlrm"


def test_figure_6_synchronises_as_often_at_the_fixed_rate() -> None:
    study = VirtualFigure6(trainers=(3,), threads=8, repeats=1, **SMALL)
    records = [study.run(setting, CLICKS) for setting in study.settings()]
    found = {study.arm(r["setting"]): r["measured"] for r in records}
    assert list(found) == [
        "S-EASGD", "S-MA", "FR-MA", "S-BMUF, α = 0.3", "FR-BMUF, α = 0.3", "S-BMUF, α = 0.6",
    ]  # fmt: skip
    for kind in ("MA", "BMUF, α = 0.3"):
        assert found[f"FR-{kind}"]["syncs"] == pytest.approx(found[f"S-{kind}"]["syncs"], rel=0.2)
    assert found["S-MA"]["eval_loss"] != found["S-BMUF, α = 0.3"]["eval_loss"]
    bmuf = study.settings()[3]["settings"]
    assert (bmuf["eta"], bmuf["momentum"]) == (0.75, 0.0)
    assert "eval loss, best replica, by trainers" in study.text(records)
    rounds = [VirtualFigure6().round(n) for n in (5, 20)]
    assert rounds[1] / rounds[0] == pytest.approx(2.5, rel=0.02)  # as the paper's BMUF
    pytest.importorskip("matplotlib")
    assert len(study.drawn(records).axes) == 3


def test_figure_8_ends_where_memory_does() -> None:
    study = VirtualFigure8(trainers=(2,), threads=(1, 4, 12), saturated=4.0, repeats=1, **SMALL)
    records = [study.run(setting, CLICKS) for setting in study.settings()]
    eps = study.curves(records, "eps")["2 trainers"]
    assert eps[4][0] == pytest.approx(4 * eps[1][0], rel=0.2)
    assert eps[12][0] == pytest.approx(eps[4][0], rel=0.2)
    assert VirtualFigure8().saturated == 24
    assert "examples/s, by threads" in study.text(records)


def test_the_sweep_has_the_same_result_whenever_it_is_made() -> None:
    study = VirtualSweep(
        kinds=("bmuf",), alpha=(0.5,), eta=(0.5, 1.0), gaps=(5,), repeats=2, **TINY
    )
    settings = study.settings()
    assert len(settings) == 2 * 2 * 3 * 2
    records = [study.run(setting, DATA) for setting in settings]
    assert records[3] == study.run(settings[3], DATA)
    assert set(study.best(records)["bmuf"]) == {"alpha", "eta", "momentum"}
    for words in ("Virtual time", "background", "gap 5", "best bmuf"):
        assert words in study.report(records)
    assert VirtualSweep().seconds() < 600


def test_bmufs_defaults_are_the_best_of_the_sweep_that_are_not_ma() -> None:
    with gzip.open(SWEEP, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    study = VirtualSweep()
    assert len(records) == len(study.settings())
    assert not left(study, None, [{**r, "conditions": study.conditions(None)} for r in records])
    steps = [r for r in records if r["setting"]["settings"].get("eta", 1.0) < 1.0]
    default = lsh.sync.BMUF()
    found = {"alpha": default.alpha, "eta": default.eta, "momentum": default.momentum}
    assert study.best(steps) == {"bmuf": found}
    assert default.momentum > 0


def test_bad_input_is_told() -> None:
    with pytest.raises(ValueError, match="model"):
        VirtualTable2(model="cnn")
    with pytest.raises(ValueError, match="passes"):
        VirtualFigure5(passes=0.0)
    for kind in (VirtualFigure5, VirtualFigure6, VirtualFigure8):
        with pytest.raises(ValueError, match="trainers"):
            kind(trainers=())
    with pytest.raises(ValueError, match="model must be mlp"):
        VirtualFigure5(model="dlrm")
    with pytest.raises(ValueError, match="alpha"):
        VirtualTable2(alpha=(2.0,))
    with pytest.raises(ValueError, match="alpha"):
        VirtualFigure6(alpha=(2.0,))
    with pytest.raises(ValueError, match="saturated"):
        VirtualFigure8(saturated=0.0)
    with pytest.raises(ValueError, match="reading"):
        VirtualTable2(reading=-1.0)


def test_rows_at_servers_are_played_with_the_papers_numbers_of_them() -> None:
    panels = VirtualServed().panels()
    asked = [
        ("Table 2(a)", 11, 12),
        ("Table 2(b)", 20, 29),
        ("Table 3", 10, 10),
        ("Table 3", 20, 20),
        ("Figure 8", 5, 4),
        ("Figure 8", 10, 6),
    ]
    for panel, trainers, servers in asked:
        assert panels[panel].rows(trainers).count == servers
    assert panels["Table 2(a)"].gaps == panels["Table 2(b)"].gaps == (5, 10, 30)
    assert panels["Table 3"].trainers == panels["Figures 6 and 7"].trainers == (5, 10, 15, 20)
    assert panels["Figure 8"].threads == (1, 12, 24, 32, 64)
    assert panels["Figures 6 and 7"].rows(15).count == 15
    assert VirtualFigure6().rows(15) is None
    study = VirtualServed(trainers=(2,), threads=(1,), gaps=(2,), repeats=1, **SMALL)
    settings = study.settings()
    assert len({study.words(setting) for setting in settings}) == len(settings) == 2 + 2 + 3 + 5 + 2
    records = [study.run(setting, CLICKS) for setting in settings]
    assert all(record["measured"]["row_bytes"] > 0 for record in records)
    assert not left(study, CLICKS, records)
    text = study.text(records)
    for panel in panels:
        assert f"{panel}, rows at servers" in text
    assert VirtualServed.of(records).settings() == settings
    for panel in ("Table 2(b)", "Table 3", "Figure 8"):
        some = [one for one in records if one["setting"]["panel"] == panel]
        alone = dataclasses.replace(study, panel=(panel,))
        assert VirtualServed.of(some).settings() == alone.settings()
        assert len(some) == len(alone.settings()) > 0
    with pytest.raises(ValueError, match=r"panel must be of Table 2\(a\), .*, got 'Figure 9'"):
        VirtualServed(panel=("Figure 9",))
    with pytest.raises(ValueError, match="panel must have Table 3, whose runs"):
        VirtualServed(panel=("Figures 6 and 7",))
    with pytest.raises(ValueError, match="model must be dlrm"):
        VirtualServed(model="mlp")
