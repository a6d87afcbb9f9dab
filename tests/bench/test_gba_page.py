"""What GBA's page tells of records, tried before the trials have run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.papers import gba
from bench.papers.claim import End
from leashed.studies import study
from leashed.studies.gba import Switching
from leashed.studies.global_batch import Batches
from leashed.studies.gradient_norms import Norms
from leashed.studies.hyperparameters import Sets
from leashed.studies.switching import PUSHES, SHARES, STATES

FEW: dict[str, Any] = {"workers": 2, "batch_size": 8, "sync_workers": 2, "rows": 160, "repeats": 1}
MADE = {
    "gba-switching": (Switching, FEW),
    "gba-hyperparameters": (Sets, FEW),
    "gba-global-batch": (Batches, {**FEW, "counts": (2, 4), "batches": (4, 8)}),
    "gba-gradient-norms": (Norms, {**FEW, "batches": (4, 8), "updates": 2}),
}


@pytest.fixture(scope="module", autouse=True)
def few_workers() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leashed.studies.switching.STALE_WORKERS", 4)
        yield


@pytest.mark.parametrize("name", MADE)
def test_every_claim_is_told_of_what_its_study_makes(name: str, tmp_path: Path) -> None:
    kind, asked = MADE[name]
    one = kind(**asked)
    records = one.shown(study.run(one).records)
    claims = [claim for claim in gba.CLAIMS if claim.results == name]
    assert claims
    for claim in claims:
        told = claim.tell(records)
        assert any(letter.isdigit() for letter in told.words)
        drawn = told.picture(tmp_path) if told.picture is not None else None
        assert (drawn is None) == (not told.theirs)
        if drawn is not None:
            assert drawn.stat().st_size < 60_000


def stale(of_share: dict[str, float]) -> list[dict[str, Any]]:
    """Records of staleness that is so many times the share of a cycle."""
    return [
        {
            "study": "switching",
            "setting": {"repeat": 0, "of": "staleness", "state": s, "mode": mode, "share": share},
            "conditions": {},
            "measured": {"mean": times * share, "most": 2},
        }
        for mode, times in of_share.items()
        for share in SHARES
        for s in STATES
    ]


def test_one_share_for_both_columns_is_told_from_two(monkeypatch: pytest.MonkeyPatch) -> None:
    part = study.Part("Staleness")
    monkeypatch.setattr(gba, "_part", lambda *_: part)
    apart = gba.table3_staleness(stale({"GBA": 1.0, "BSP": 8.0}))
    assert "a share of its own for each column: 0.15, 0.2" in str(apart)
    assert "0.25, 0.3 for BSP's" in str(apart)
    together = gba.table3_staleness(stale({"GBA": 1.0, "BSP": 13.0}))
    assert str(together).endswith("a share of 0.15, 0.2 of a cycle for both")
    assert gba.table3_staleness(stale({"GBA": 9.0, "BSP": 13.0})).end is End.REFUTED
    assert gba.table3_hop_bs(stale({"GBA": 1.0, "Hop-BS": 0.5})).end is End.COMES_OUT
    assert gba.table3_hop_bs(stale({"GBA": 1.0, "Hop-BS": 5.0})).end is End.REFUTED


@pytest.mark.parametrize(
    ("worth", "told"),
    [
        ({0.0: (1.1, 0.6)}, "comes out"),
        ({0.0015: (1.1, 0.6), 0.001: (1.1, 1.1)}, "comes out under servers that take 1.5 ms"),
        ({}, "refuted by pushes of up to 2 ms"),
    ],
)
def test_the_fastest_mode_is_told_by_what_a_push_costs(
    worth: dict[float, tuple[float, float]], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def records(push: float) -> list[dict[str, Any]]:
        vacant, other = worth.get(push, (0.9, 0.6))
        speeds = {
            "Async": dict.fromkeys(STATES, 1.0),
            "Sync": {state: vacant if state == "vacant" else other for state in STATES},
        }
        return [
            {
                "study": "switching",
                "setting": {"repeat": seed, "of": "rate", "state": s, "mode": m, "charge": push},
                "conditions": {},
                "measured": {
                    "state": s,
                    "mode": m,
                    "push": push,
                    "eps": [[speed * (1.0 + 1e-3 * seed)]],
                    "local": [[1.0]],
                },
            }
            for seed in range(2)
            for m, by_state in speeds.items()
            for s, speed in by_state.items()
        ]

    daily = [
        {
            "study": "switching",
            "setting": {"of": "day", "mode": mode},
            "conditions": {},
            "measured": {"mode": mode, "eps": np.ones(24).tolist()},
        }
        for mode in ("Sync", "Async")
    ]
    monkeypatch.setattr(gba, "_part", lambda *_: study.Part("what a push costs"))
    every = [*daily, *(one for push in PUSHES for one in records(push))]
    assert str(gba.vacant(every)).startswith(told)
