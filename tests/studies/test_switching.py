"""Modes on a cluster that others use too, and switches between them: gba, section 5."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leashed.base.table import MISSING
from leashed.cli import main
from leashed.studies import recommender
from leashed.studies.gba import Found, Switching, _staleness, parts, tendencies
from leashed.studies.gba_bound import both_updated, bounds
from leashed.studies.switching import (
    DAILY,
    MODES,
    PUSHES,
    STATES,
    SYNC_OF_ALL,
    Setting,
    after_sync,
    careers,
    hours,
    plans,
    rate,
    rates,
    staleness,
    to_sync,
)
from leashed.training.result import Histogram

SMALL = Setting(workers=4, batch_size=8, sync_workers=2, rows=500, base=1, days=2, repeats=2)


def test_a_slow_worker_holds_up_who_waits_for_it() -> None:
    found = {
        one.mode: one.eps
        for one in hours(replace(SMALL, workers=20, sync_workers=20), compute=60.0)
    }
    assert set(found) == set(DAILY)
    night, evening = (slice(2, 6), slice(16, 20))
    for eps in found.values():
        assert eps.shape == (24,)
        assert eps[night].mean() > eps[evening].mean()
    assert found["Sync"][night].mean() > 0.7 * found["GBA"][night].mean()
    assert found["Sync"][evening].mean() < 0.5 * found["GBA"][evening].mean()
    assert found["GBA"].sum() == pytest.approx(found["Async"].sum(), rel=0.01)


def test_the_more_strained_the_cluster_the_more_gba_is_worth() -> None:
    setting = replace(SMALL, workers=20, sync_workers=20)
    found = {one[:2]: one for one in rates(setting) if one.push == setting.push}
    assert set(found) == {(s, mode) for s in STATES for mode in (*MODES, SYNC_OF_ALL)}
    worth = [found[state, "GBA"].eps.mean() / found[state, "Sync"].eps.mean() for state in STATES]
    assert 1 < worth[0] < worth[1] < worth[2]
    one = found["busy", "GBA"]
    assert one.local.shape == (SMALL.repeats, 20)
    assert one.local.sum(axis=1).mean() == pytest.approx(one.eps.mean(), rel=0.1)


def test_where_servers_are_full_a_barrier_without_them_is_the_faster() -> None:
    def worth(push: float, state: str) -> float:
        setting = replace(SMALL, workers=20, sync_workers=5, push=push)
        sync, asynchronous = (rate(setting, state, mode, [0]) for mode in ("Sync", "Async"))
        return float(sync.eps.mean() / asynchronous.eps.mean())

    # Twenty workers at a tenth of a second: the servers are full from 5 ms a push on.
    assert worth(0.0, "vacant") < 1.0 < worth(0.01, "vacant")
    assert worth(0.0, "strained") < worth(0.0, "vacant")
    assert worth(0.01, "strained") < worth(0.01, "vacant")


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_gradients_are_as_stale_as_their_share_of_a_cycle(share: float) -> None:
    gba, bsp = (staleness(SMALL, "vacant", mode, share, 0).mean() for mode in ("GBA", "BSP"))
    assert gba == pytest.approx(share, rel=0.05)
    assert bsp == pytest.approx(8 * share, rel=0.05)  # n/b2


def test_a_career_is_its_days() -> None:
    asked = [after_sync(SMALL, 0, "Sync", "busy", 2), after_sync(SMALL, 0, "GBA", "busy", 2)]
    asked.append(to_sync(SMALL, 0, "Async"))
    still, gba, back = careers(SMALL, asked)
    assert [day.mode for day in gba] == ["Sync", "GBA", "GBA"]
    assert [day.mode for day in back] == ["Async", "Sync", "Sync"]
    assert still[0].auc == gba[0].auc
    assert still[1].auc != gba[1].auc
    for days in (still, gba, back):
        assert all(day.gradients == (32 if day.mode == "Sync" else 63) for day in days)
        assert all(0.4 < auc < 0.9 for day in days for auc in day.auc)
    assert all(day.staleness.total + day.dropped == day.gradients for day in gba)
    assert all(day.data_staleness.total == day.staleness.total for day in gba)


def test_a_model_is_one_of_those_named() -> None:
    with pytest.raises(ValueError, match="model must be one of deepfm, dlrm"):
        Switching(model="cnn")


@pytest.mark.parametrize("model", recommender.MODELS)
def test_a_model_and_its_clicks_go_together(model: str) -> None:
    asked = replace(SMALL, model=model)
    career = to_sync(asked, 0, "GBA")
    days = next(careers(asked, [career]))
    assert [day.mode for day in days] == ["GBA", "Sync", "Sync"]
    assert all(0.2 < value < 0.8 for day in days for value in day.auc)
    assert all(np.isfinite(one.change).all() for one in bounds(replace(asked, repeats=1)))
    still, moved = (asked.days_of(300, 2, drift) for drift in (0.0, 0.5))
    assert (still[0].hidden == moved[0].hidden).all()
    assert (still[1].hidden != moved[1].hidden).any()


def test_rows_of_histories_are_counted_by_table() -> None:
    made = recommender.MODELS["dien"]
    graph, (day,) = made.graph(), made.days(60, 1, 0, 0.0)
    seen = [
        [np.concatenate([ids[click // 30 == step] for ids, click in of]) for step in (0, 1)]
        for columns in [recommender.columns(day)]
        for of in ([columns[0]], [columns[1], columns[3]], [columns[2], columns[4]])
    ]
    both = sum(len(set(a.tolist()) & set(b.tolist())) for a, b in seen)
    assert both_updated(graph, day, 30) == pytest.approx(both / sum(t.rows for t in graph.tables))


def test_two_steps_update_the_ids_that_both_have() -> None:
    made = recommender.MODELS["deepfm"]
    (day,) = made.days(200, 1, 0, 0.0)
    ids = np.asarray(day.ids)
    both = [set(ids[:100, f].tolist()) & set(ids[100:, f].tolist()) for f in range(ids.shape[1])]
    share = sum(map(len, both)) / (ids.shape[1] * recommender.CARDINALITY)
    assert both_updated(made.graph(), day, 100) == pytest.approx(share)


def test_the_bound_is_of_what_was_measured() -> None:
    for one in bounds(replace(SMALL, repeats=1)):
        assert one.change.shape == (2, 5)
        assert (one.change[:, 0] == 0).all()
        assert (one.change[:, 4] > 0).all()
        assert one.behind.sum() == pytest.approx(1)
        assert one.zeta[0] == 1
        assert 0 < one.zeta[1] < 1
        np.testing.assert_allclose(one.gamma_prime, 1 - one.gamma + one.p0 / 2)


def test_tables_have_every_mode_and_state() -> None:
    asked = plans(SMALL)
    assert len(set(asked)) == len(asked)
    days = dict(zip(asked, careers(SMALL, asked), strict=True))
    found = Found(SMALL, list(hours(SMALL)), list(rates(SMALL)), days, list(bounds(SMALL)))
    daily, pushes, states, switches, bound = parts(found)
    assert len(daily.found.rows) == len(DAILY)
    assert len(pushes.found.rows) == 2 * len(PUSHES)
    assert len(states.found.rows) == len(STATES) * len(MODES)
    assert len(switches.found.rows) == 2 * len(MODES)
    assert len(bound.found.rows) == 2 * len(STATES)
    assert all(
        lines[mode].shape == (2, 3) for lines in tendencies(found).values() for mode in MODES
    )


def test_a_mode_that_keeps_no_gradient_has_no_staleness() -> None:
    none, some = Histogram(np.zeros(1, np.int64)), Histogram(np.array([0, 2]))
    assert _staleness([none]) == (MISSING, MISSING)
    assert _staleness([none, some]) == ("1.00", "1")


def test_a_crash_names_the_rates() -> None:
    asked = [after_sync(SMALL, 0, "Async", "busy", 1)]
    with pytest.raises(ValueError, match=r"by Sync on a busy .* crashed.* smaller --lr or --rows"):
        list(careers(replace(SMALL, lr=1e38), asked))
    with pytest.raises(ValueError, match=r"by Async on a busy .* crashed.* smaller --async-lr"):
        list(careers(replace(SMALL, async_lr=1e38), asked))
    with pytest.raises(ValueError, match=r"by GBA on a vacant .* crashed"):
        list(bounds(replace(SMALL, lr=1e38)))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "switching.html"
    arguments = ["--workers", "4", "--batch-size", "8", "--sync-workers", "2", "--rows", "400"]
    arguments += ["--repeats", "1"]
    assert main(["bench", "switching", *arguments, "--report", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "strained" in shown
    assert "no switch" in shown
    assert page.stat().st_size > 30_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "1"], "workers must be at least 2"),
        (["--rows", "100"], "rows must be at least 16000"),
        (["--sync-workers", "3"], "sync_workers must divide the 1600 clicks of a global batch"),
        (["--lr", "-1"], "lr must be greater than 0"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str, capsys) -> None:
    assert main(["bench", "switching", *arguments]) == 2
    assert message in capsys.readouterr().err
