"""Ids that a full table refuses are told of: once in a run, and in all that tells of it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from warned import once

import leashed as lsh
from leashed.datasets import ClickDataset
from leashed.report import days as report
from leashed.report import facts
from leashed.training.days import Journal

LIMIT = 20_000  # bytes, of some 200 rows


def model() -> lsh.models.Graph:
    return lsh.models.dlrm(None, 4, dense=1, categories=2, bottom=(4,), top=(4,))


def clicks(n: int = 2000, seed: int = 0, *, distinct: int = 10**9) -> ClickDataset:
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, distinct, (n, 2))
    ids[:, 1] %= 40  # which all have a row
    return ClickDataset.from_arrays(
        rng.standard_normal((n, 1)).astype(np.float32), ids, (rng.random(n) < 0.4).astype(np.int32)
    )


def made(**settings: Any) -> dict[str, lsh.Table]:
    return lsh.tables.of(model().tables, max_bytes=LIMIT, rule=lsh.SGD(0.1), **settings)


def told(call: Callable[[], Any]) -> tuple[Any, list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        return call(), found


def run(data: ClickDataset, **changes: Any) -> lsh.TrainResult:
    settings: dict[str, Any] = {
        "rule": lsh.SGD(0.1),
        "threads": 1,
        "batch_size": 50,
        "until": lsh.until(epochs=1),
        "init": lsh.Init(tables=made()),
    }
    return lsh.train(model(), data, **{**settings, **changes})


KINDS: dict[str, Callable[[ClickDataset], lsh.TrainResult]] = {
    "threads": lambda data: run(data, threads=2),
    "mode": lambda data: run(data, mode=lsh.modes.ASP()),
    "virtual time": lambda data: (
        lsh.simulate(
            model(),
            data,
            cluster=lsh.simulation.constant(2, 1.0),
            rule=lsh.SGD(0.1),
            init=lsh.Init(tables=made()),
            batch_size=50,
            until=lsh.until(epochs=1),
        ).result
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_tells_once(kind: str) -> None:
    result, warned = told(lambda: KINDS[kind](clicks()))
    (one,) = warned
    assert one.category is RuntimeWarning
    assert one.filename == __file__
    name = next(iter(result.tables))
    share = r"table {} is full: of the ids of batches [\d.]+% so far were refused a row"
    assert re.match(share.format(name), str(one.message))
    assert f"raise max_bytes ({LIMIT:,})" in str(one.message)
    assert "evict is None" in str(one.message)
    refused = result.rows["refused"] / sum(t.statistics()["asked"] for t in result.tables.values())
    assert refused > 0.4
    assert f"{refused:.2%} of the ids of batches refused a row" in repr(result)
    again = lsh.TrainResult.from_json(result.to_json())
    (line,) = (text for what, text in facts.facts(again) if what == "refused")
    assert line.startswith(f"{refused:.2%} of the ids of batches got no row: raise max_bytes")


def test_where_all_have_room_nothing_is_told() -> None:
    result, warned = told(lambda: run(clicks(distinct=100)))
    assert not warned
    assert "refused" not in repr(result)
    assert "refused" not in dict(facts.facts(result))


def test_it_is_told_when_it_is_seen_and_not_at_the_end() -> None:
    with pytest.raises(RuntimeWarning, match="is full"):  # which pytest makes of a warning
        run(clicks(20_000), until=lsh.until(epochs=10**6), observe=lsh.Observe(every=0.001))


def test_another_run_on_the_same_tables_tells_again_and_of_itself() -> None:
    tables = made()
    told(lambda: run(clicks(), init=lsh.Init(tables=tables)))
    counted = next(iter(tables.values())).statistics()
    _, warned = told(lambda: run(clicks(seed=1), init=lsh.Init(tables=tables)))
    (one,) = warned
    now = next(iter(tables.values())).statistics()
    share = (now["refused"] - counted["refused"]) / (now["asked"] - counted["asked"])
    found = re.search(r"([\d.]+)% so far", str(one.message))
    assert found
    assert float(found[1]) == pytest.approx(100 * share, abs=25)


def test_a_table_by_itself_tells_once() -> None:
    table = lsh.Table(dim=4, max_bytes=LIMIT, name="words")

    def update() -> None:
        for k in range(40):
            table.update(np.arange(20) + 20 * k, np.zeros((20, 4)))

    with once("table words is full: of the ids of batches "):
        update()


def test_one_that_evicts_is_told_what_helps() -> None:
    table = lsh.Table(dim=4, max_bytes=LIMIT, evict="age")
    _, warned = told(lambda: table.update(np.arange(5000), np.zeros((5000, 4))))
    (one,) = warned
    assert "take smaller batches or fewer threads" in str(one.message)
    assert "evict is 'age'" in str(one.message)


def test_days_tell_once_and_stand_in_their_table(tmp_path: Path) -> None:
    days = {str(k): clicks(seed=k, distinct=100 if k == 0 else 10**9) for k in range(3)}
    result, warned = told(
        lambda: lsh.continual(
            model(),
            days,
            folder=tmp_path / "run",
            rule=lsh.SGD(0.1),
            threads=1,
            batch_size=50,
            init=lsh.Init(tables=made()),
        )
    )
    (one,) = warned
    assert "is full" in str(one.message)
    shares = [day.refused for day in result.days]
    assert shares[0] == 0
    assert min(shares[1:]) > 0.4
    table = report.table(result.days)
    assert table.header[-1] == "ids refused"
    assert [row[-1] for row in table.rows] == [f"{share:.2%}" for share in shares]
    assert f"{shares[1]:.2%} of ids refused a row" in report.line(result.days[1])
    assert "refused" not in report.line(result.days[0])
    assert report.table(result.days[:1]).header[-1] == "table rows"
    assert Journal(tmp_path / "run" / "days.json").done == list(result.days)
