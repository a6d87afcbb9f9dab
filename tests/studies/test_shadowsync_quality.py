"""Table 2 and the sweep: their settings, and what is made of records."""

from __future__ import annotations

import json

import pytest

import leashed as lsh
from leashed.cluster.shadowsync.figure5 import Figure5
from leashed.cluster.shadowsync.quality import Sweep, Table2
from leashed.studies.study import left

DATA = lsh.datasets.synthetic_digits(320, seed=0, test=50)
TINY = {"trainers": 2, "threads": 1, "batch_size": 16, "examples": 320, "repeats": 2}


def record(study, setting, loss, **measured):
    found = {"train_loss": loss, "eval_loss": loss, "eval_accuracy": 0.5, "eps": 1.0, "failed": 0}
    found |= {"gap": None, "gap_by_bytes_in": None, "gap_by_bytes_out": None, "syncs": 0}
    return {
        "study": study.NAME,
        "setting": setting,
        "conditions": {"examples": study.examples},
        "measured": found | measured,
    }


def test_table_2_has_the_papers_columns_and_gaps_that_vary() -> None:
    study = Table2(kinds=("easgd",), **TINY)
    settings = study.settings()
    assert [(s["sync"], s["gap"]) for s in settings if s["repeat"] == 0] == [
        ("none", None), ("easgd", None), ("easgd", 5), ("easgd", 10), ("easgd", 30), ("easgd", 100),
        ("easgd", [100, 30, 5]), ("easgd", [5, 30, 100]),
    ]  # fmt: skip
    assert settings == json.loads(json.dumps(settings))  # so that --resume knows them
    records = [record(study, s, 0.5 + 0.1 * s["repeat"]) for s in settings]
    text = study.report(records)
    for name in ("one trainer", "S-EASGD", "FR-EASGD-5 ", "FR-EASGD-100 ", "FR-EASGD-100/30/5"):
        assert name in text
    assert "100/30/5, by a worker's iterations: from 0 on 100, from 3 on 30, from 6 on 5" in text
    assert "5/30/100, by a worker's iterations: from 0 on 5, from 3 on 30, from 6 on 100" in text
    assert "0.5500 ± 0.6353" in text  # t of one degree of freedom, 12.706, × 0.05


@pytest.mark.parametrize(
    ("kind", "gap"),
    [("none", None), ("easgd", None), ("easgd", 5), ("bmuf", 5), ("easgd", [5, 1]), ("ma", [5, 1])],
)
def test_a_run_passes_once_over_the_data(kind: str, gap: int | list[int] | None) -> None:
    study = Table2(gaps=(5,), **TINY)
    found = study.run({"repeat": 0, "sync": kind, "gap": gap, "settings": {}}, DATA)["measured"]
    assert found["train_loss"] > 0
    assert found["eval_loss"] > 0
    assert 0 <= found["eval_accuracy"] <= 1
    if (kind, gap) == ("easgd", 5):
        assert found["gap"] == 5
        assert found["gap_by_bytes_in"] == pytest.approx(20 / (4 + 2), rel=0.01)
    if (kind, gap) == ("easgd", [5, 1]):
        assert found["syncs"] == 2 * 6  # at a worker's iterations 5 to 10


def test_the_sweep_finds_the_least_mean_over_modes_and_seeds() -> None:
    study = Sweep(
        kinds=("easgd", "bmuf"), alpha=(0.1, 0.5), eta=(1.0,), momentum=(0.0, 0.5), **TINY
    )
    settings = study.settings()
    assert len(settings) == 2 * 2 * (2 + 4)
    records = [
        record(study, s, s["settings"]["alpha"] - s["settings"].get("momentum", 0.0) / 10)
        for s in settings
    ]
    assert study.best(records) == {
        "easgd": {"alpha": 0.1},
        "bmuf": {"alpha": 0.1, "eta": 1.0, "momentum": 0.5},
    }
    text = study.report(records)
    assert "best easgd: alpha=0.1" in text
    assert "best bmuf: alpha=0.1, eta=1, momentum=0.5" in text


def test_the_sweep_has_both_forms_of_ma() -> None:
    study = Sweep(kinds=("ma",), alpha=(0.1, 0.5), **TINY)
    assert [s["settings"] for s in study.settings() if s["gap"] is None and not s["repeat"]] == [
        {"alpha": 0.1},
        {"alpha": 0.5},
        {"alpha": 0.1, "difference": True},
        {"alpha": 0.5, "difference": True},
    ]
    records = [
        record(study, s, s["settings"]["alpha"] - len(s["settings"])) for s in study.settings()
    ]
    assert study.best(records) == {"ma": {"alpha": 0.1, "difference": True}}
    assert "best ma: alpha=0.1, difference=true" in study.report(records)


def test_a_run_that_crashed_is_not_the_best() -> None:
    study = Sweep(kinds=("ma",), alpha=(0.1, 0.5), **TINY)
    records = [
        record(study, s, None if s["settings"]["alpha"] == 0.1 and s["repeat"] else 1.0)
        for s in study.settings()
    ]
    assert study.best(records) == {"ma": {"alpha": 0.5}}
    study.report(records)


def test_shorter_runs_have_fewer_examples() -> None:
    assert Table2(examples=1000).scaled(0.1).examples == 100
    assert Table2(examples=1000, batch_size=16).scaled(1e-6).examples == 16
    assert Table2().seconds() > Table2().scaled(0.1).seconds()


@pytest.mark.parametrize(
    ("kind", "changes", "complaint"),
    [
        (Table2, {"kinds": ("bogus",)}, "kinds"),
        (Table2, {"kinds": ()}, "kinds"),
        (Table2, {"gaps": (0,)}, "gaps"),
        (Table2, {"varying": ((5, 0),)}, "varying"),
        (Table2, {"varying": ((5,),)}, "varying"),
        (Table2, {"varying": (5,)}, "varying"),
        (Table2, {"model": "bogus"}, "model"),
        (Table2, {"trainers": 0}, "trainers"),
        (Sweep, {"kinds": ("diloco",)}, "diloco"),
        (Sweep, {"alpha": (2.0,)}, "alpha"),
        (Sweep, {"momentum": (1.0,)}, "momentum"),
    ],
)
def test_wrong_arguments_are_named(kind, changes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        kind(**changes)


@pytest.mark.parametrize("study", [Table2(**TINY), Sweep(**TINY), Figure5()])
def test_runs_of_other_numbers_are_not_gone_on_with(study) -> None:
    conditions = study.conditions(None)
    here = [{"study": study.NAME, "setting": s, "conditions": conditions} for s in study.settings()]
    assert not left(study, None, json.loads(json.dumps(here)))
    other = {**conditions, "easgd.alpha": 0.5}
    with pytest.raises(ValueError, match=r"easgd.alpha 0.5 there, 0.3 here"):
        left(study, None, [{**here[0], "conditions": other}])
    del other["easgd.alpha"]  # as they were before they were kept
    with pytest.raises(ValueError, match=r"easgd.alpha None there"):
        left(study, None, [{**here[0], "conditions": other}])


def test_an_arm_of_table_2_has_its_synchronisers_numbers() -> None:
    found = {s["sync"]: s["settings"] for s in Table2(**TINY).settings()}
    assert found["none"] == {}
    bmuf = lsh.sync.BMUF()
    assert found["bmuf"] == {
        "alpha": bmuf.alpha,
        "eta": bmuf.eta,
        "momentum": bmuf.momentum,
        "nesterov": False,
        "difference": False,
        "parts": 1,
        "compression": "none",
    }
