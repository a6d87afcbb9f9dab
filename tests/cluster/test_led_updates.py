"""Runs by modes that end by their number of updates, which are the policy server's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.led import led
from cluster.test_led_modes import DATA, MODEL, MODES, together

import leashed as lsh
from leashed.cluster.measures import counted

UPDATES = 7


def given(**more: Any) -> dict[str, Any]:
    """How it is trained."""
    return {"until": lsh.until(updates=UPDATES), "batch_size": 32, "threads": 1, **more}


@pytest.mark.few(8)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: type(mode).__name__)
def test_one_worker_has_the_bits_of_one_process(mode: Any, tmp_path: Path) -> None:
    how = given(mode=mode, rule=lsh.rules.Momentum(0.05))
    alone = lsh.train(MODEL, DATA, **how)
    with led(tmp_path, MODEL, DATA, **how) as run:
        found = lsh.train(MODEL, DATA, **how, cluster=run.cluster())
        report = run.report()
    assert run.error is None
    assert found.reason == alone.reason == "updates"
    assert found.total_updates == alone.total_updates == UPDATES
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    assert report["state"] == "ended"
    assert found.mode.applied == alone.mode.applied


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("mode", ["asp", "sync"])
def test_no_update_is_made_behind_that(mode: str, servers: int, tmp_path: Path) -> None:
    """By whichever trainer: also where passes would go on."""
    until = lsh.until(updates=UPDATES, epochs=50)
    how = given(mode=mode, until=until, threads=2)
    with led(tmp_path, MODEL, DATA, trainers=2, servers=servers, **how) as run:
        results = together(run, how, 2)
        report = run.report()
    assert run.error is None
    assert [result.reason for result in results] == ["updates", "updates"]
    assert [result.total_updates for result in results] == [UPDATES, UPDATES]
    first, second = results
    if servers == 1 or mode == "sync":
        np.testing.assert_array_equal(first.parameters, second.parameters)
    assert report["state"] == "ended"
    assert counted(report, "policy-ps")[0]["mode_applied"] == UPDATES * (
        32 if mode == "asp" else 128
    )


def test_who_ends_by_another_number_is_turned_away(tmp_path: Path) -> None:
    how = given(mode="gba")
    with led(tmp_path, MODEL, DATA, **how) as run:
        run.until_led()
        with pytest.raises(ValueError, match=r"until.updates is 8 here, and 7 in the run"):
            lsh.train(
                MODEL, DATA, **given(mode="gba", until=lsh.until(updates=8)), cluster=run.cluster()
            )
        run.close()
