"""gba and shat over sockets: slowed workers, what their runs tell, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from bench import modes_sockets as sockets
from bench.papers import gba, shat
from bench.papers.claim import End
from bench.slowed import Crew, Slowed, first_of


@pytest.mark.parametrize("seed", [0, 7])
def test_a_worker_sleeps_as_virtual_time_draws_it(seed: int) -> None:
    trace = np.arange(1.0, 1001.0)
    x = np.ones((4, 1), np.float32)
    played = lsh.simulate(
        lsh.models.logistic_regression(1),
        (x, np.arange(4) % 2),
        mode="asp",
        cluster=lsh.simulation.trace(1, trace),
        until=lsh.until(updates=2),
        batch_size=1,
        seed=seed,
    )
    first = first_of(seed, 0, len(trace))
    assert played.result.elapsed == trace[first] + trace[first + 1]


def test_a_slowed_gradient_tells_what_took_time() -> None:
    begun = []
    slowed = Slowed(lambda out: out, [0.001, 0.002], lambda: begun.append(1))
    assert [slowed(loss) for loss in (3.0, 4.0, 5.0)] == [3.0, 4.0, 5.0]
    told = slowed.told()
    assert begun == [1]
    assert [asleep for _, asleep, *_ in slowed.calls] == [0.001, 0.002, 0.001]
    assert len(told["ends"]) == 3
    assert min(told[name] for name in ("overslept", "gradient", "between")) >= 0.0


@pytest.mark.process
def test_runs_of_both_papers_are_told_beside_virtual_time(tmp_path: Path) -> None:
    size = sockets.Size(rows=640, sleep=0.001, shat_sleep=0.002, batches=30)
    for folder in (days := tmp_path / "gba", servers := tmp_path / "shat"):
        folder.mkdir()
    with Crew(2) as crew:
        (day,) = sockets.gba(crew, days, 0, size, [sockets.Arm("GBA")])
        runs = list(sockets.shat(crew, servers, 0, size, [("equal layers", 2, "layerwise")]))
    (sharded,) = sockets.beside(runs, size, workers=2)
    assert day["sockets"]["dropped"] == day["virtual"]["dropped"] == 0.0
    assert day["virtual"]["seconds"] > 0.0
    assert sharded["virtual"]["rate"] > 0.0
    assert 0.0 < sharded["sockets"]["accuracy"] <= 1.0


MEASURED = {
    "gradient": 0.001,
    "overslept": 0.0,
    "between": 0.002,
    "cores": 0.2,
    "dropped": 0.0,
    "staleness": 0.0,
}


def days(auc: Callable[[str, str | None], float], **seconds: float) -> list[dict[str, Any]]:
    """Records of gba with that AUC, of days that last so long, or a second."""
    left = {"Hop-BW": {"dropped": 0.2}, "BSP": {"staleness": 3.0}}
    return [
        {"mode": arm.mode, "before": arm.before, "seed": seed, "examples": 1000, "sleep": 0.1, "load": 1.0}
        | {where: {**MEASURED, **left.get(arm.mode, {}), "seconds": seconds.get(arm.mode, 1.0),
            "auc": auc(arm.mode, arm.before) + 0.001 * seed} for where in ("sockets", "virtual")}
        for seed in range(2)
        for arm in sockets.careers()
    ]  # fmt: skip


def ends(records: list[dict[str, Any]], module: Any, results: str) -> dict[str, End]:
    return {one.at: one.tell(records).end for one in module.CLAIMS if one.results == results}


def test_days_come_out_where_gba_is_as_fast_as_async_and_as_good_as_sync() -> None:
    def auc(mode: str, before: str | None) -> float:
        return 0.7 if {mode, before} <= {"GBA", "Sync", None} else 0.69

    records = days(auc, Sync=2.0)
    assert set(ends(records, gba, "gba-sockets").values()) == {End.COMES_OUT}
    assert sockets.page(records, "gba").count(": comes out.") == 4


def test_days_refute_a_slow_gba_that_is_below_sync_and_a_virtual_time_that_is_another() -> None:
    records = days(lambda mode, before: 0.6 if "GBA" in (mode, before) else 0.7, GBA=2.0)
    for record in records:
        record["virtual"] = {**record["virtual"], "seconds": 1.5, "auc": 0.5}
    assert set(ends(records, gba, "gba-sockets").values()) == {End.REFUTED}


@pytest.mark.parametrize(("layerwise", "end"), [(1.1, End.COMES_OUT), (3.9, End.REFUTED)])
def test_servers_come_out_where_heavy_layers_need_memorywise(layerwise: float, end: End) -> None:
    def rate(net: str, servers: int, shards: str) -> float:
        slow = servers > 1 and (net, shards) == ("heavy layers", "layerwise")
        return layerwise if slow else float(servers)

    records = [
        {"net": net, "servers": servers, "shards": shards, "seed": seed, "sleep": 0.1, "load": 1.0}
        | {where: {**MEASURED, "rate": rate(net, servers, shards), "accuracy": 0.5 + 0.01 * seed}
            for where in ("sockets", "virtual")}
        for net, servers, shards in sockets.sharded()
        for seed in range(2)
    ]  # fmt: skip
    assert ends(records, shat, "shat-sockets") == {
        "Figure 6, over sockets": end,
        "Figure 6, beside virtual time": End.COMES_OUT,
    }
