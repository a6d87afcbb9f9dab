"""What the extreme-scale paper's page tells of records, tried on some that are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from bench.papers import extreme_scale_asgd as page
from bench.papers.claim import End
from leashed.studies import damping, normalisation
from leashed.studies.stale import TIMES, Counting, shares

LARGEST = 60_000  # bytes of a figure


def course(end: float, repeat: int) -> list[float]:
    """An AUC from 0.7 on, apart by seed."""
    return [0.7 + 0.01 * repeat + (end - 0.7) * tenth / 10 for tenth in range(11)]


def figure_5(ends: dict) -> list[dict]:
    """Of each rate, number of workers and damping the end; others end at 0.71."""
    asked = damping.Asked()
    return [
        {
            "study": asked.NAME,
            "setting": one,
            "conditions": asked.conditions(None),
            "measured": {
                "auc": course(
                    ends.get((one["lr"], one["workers"], one["damping"]), 0.71)
                    + 1e-4 * (one["repeat"] % 2),
                    one["repeat"],
                ),
                "staleness": 900.0,
            },
        }
        for one in asked.settings()
    ]


@pytest.mark.parametrize(
    ("ends", "end", "of"),
    [
        ({}, End.REFUTED, "every rate at which 1K holds"),
        ({(0.003, 3000, "none"): 0.6}, End.COMES_OUT_UNDER, "η = 0.003, but for linear"),
        (
            {(0.003, 3000, "none"): 0.6, (0.003, 3000, "linear"): 0.5},
            End.COMES_OUT_UNDER,
            "η = 0.003",
        ),
        (
            {(lr, 3000, name): 0.6 - 0.1 * (name == "linear")
             for lr in (0.002, 0.003, 0.005) for name in ("none", "linear")},
            End.COMES_OUT,
            "",
        ),
        (
            {(0.003, 3000, "none"): 0.6, (0.003, 3000, "normalised"): 0.6},
            End.REFUTED,
            "every rate at which 1K holds",
        ),
        # Where 1,000 workers do not hold either, nothing is shown.
        ({(0.005, 3000, "none"): 0.6, (0.005, 1000, "none"): 0.65}, End.REFUTED, "every rate"),
    ],
)  # fmt: skip
def test_figure_5(ends: dict, end: End, of: str, tmp_path: Path) -> None:
    told = page._damping(figure_5(ends))
    assert told.end is end
    assert of in told.of
    assert told.of.endswith("not the worst") == ("linear" in of)
    assert told.picture(tmp_path).stat().st_size < LARGEST


def figure_6(gains: dict) -> list[dict]:
    asked = normalisation.Asked()
    return [
        {
            "study": asked.NAME,
            "setting": one,
            "conditions": asked.conditions(None),
            "measured": {
                "auc": course(
                    0.71
                    + gains.get((one["workers"], one["arm"]), 0.0)
                    + 1e-4 * (one["repeat"] % 2) * (one["arm"] != "none"),
                    one["repeat"],
                ),
                "near_zero": 0.0,
                "rate": 0.01,
            },
        }
        for one in asked.settings()
    ]


@pytest.mark.parametrize(
    ("gains", "end", "of"),
    [
        ({}, End.REFUTED, "no place gains"),
        ({(3000, "input"): 0.02}, End.REFUTED, "no place gains"),
        ({(1000, "input"): 0.01, (3000, "input"): 0.02}, End.COMES_OUT_UNDER, "the ReLU: input"),
        ({(1000, "before ReLU"): 0.01, (3000, "before ReLU"): 0.02}, End.COMES_OUT, ""),
    ],
)
def test_figure_6(gains: dict, end: End, of: str, tmp_path: Path) -> None:
    told = page._normalisation(figure_6(gains))
    assert told.end is end
    assert of in told.of
    assert "sweep: η = 0.003" in told.table.header
    assert told.picture(tmp_path).stat().st_size < LARGEST


def test_figure_3() -> None:
    def records(off: float) -> list[dict]:
        found = []
        for workers in (1000, 3000):
            for share in shares(workers):
                mean = round(1 + share * (workers - 1))
                for times in TIMES:
                    at = round(mean * (off if times == "normal" and share < 1 else 1.0))
                    counts = [0] * at + [9]
                    setting = {"workers": workers, "times": times, "share": share}
                    found.append({"measured": {**setting, "counts": counts}, "setting": setting})
        return found

    assert len(records(1.0)) == len(Counting().settings())
    of = page._means(records(1.0)).of
    assert "0.8749 and 0.6966" in of
    assert of.endswith("exponential, rates, normal")
    told = page._means(records(0.9))
    assert told.of.endswith("exponential, rates")
    assert "normal times of 3,000" in told.words
    assert page._variances(records(1.0)).end is End.REFUTED
