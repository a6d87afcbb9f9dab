"""Staleness of rows: every policy step by step, the stage-aware ones by the norm of a row's last
update, and what is told of it.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference_rules import Reference

import leashed as lsh
from leashed import staleness
from leashed.models import tables

ROWS, STEPS = 12, 120
Factor = Callable[[int, float, list[int]], float]


def staged(norm: float, lam: float = 1.0) -> float:
    return 1 / (1 + math.exp(-lam * norm))


def tail(tau: int, seen: list[int]) -> float:
    return 1 + 0.5 * (1 - 2 * sum(s < tau for s in seen) / len(seen)) if len(seen) >= 50 else 1.0


def mean_of(seen: list[int]) -> float:
    return sum(seen) / len(seen) if seen else 0.0


def short(tau: int, seen: list[int]) -> float:
    deviation = float(np.std(seen)) if seen else 0.0
    return 1 / max(1.0, 2 * (tau + 1) / deviation) if deviation > 0 else 1.0


# ρ from τ, the norm of the row's last update, and what staleness was seen before.
POLICIES: dict[str, tuple[staleness.Policy, Factor]] = {
    "none": (staleness.none(), lambda _tau, _last, _seen: 1),
    "inverse": (staleness.inverse(), lambda tau, _last, _seen: 1 / (tau + 1)),
    "normalized": (
        staleness.normalized(3, 2),
        lambda tau, _last, _seen: min(1.0, 3 / (tau + 1)) ** 2,
    ),
    "cutoff": (staleness.cutoff(2), lambda tau, _last, _seen: float(tau <= 2)),
    "table": (staleness.table([1, 0.5, 0]), lambda tau, _last, _seen: [1, 0.5, 0][min(tau, 2)]),
    "tau_normalized_short": (
        staleness.tau_normalized_short(2.0),
        lambda tau, _last, seen: short(tau, seen),
    ),
    "tail_tau": (staleness.tail_tau(0.5, warmup=50), lambda tau, _last, seen: tail(tau, seen)),
    "mindthestep": (
        staleness.mindthestep(2.0, 0.0, bound=5.0),
        lambda tau, _last, _seen: min(math.factorial(tau) / 2.0**tau, 5.0),
    ),
    "stage_aware": (
        staleness.stage_aware(staleness.inverse(), 4.0),
        lambda tau, last, _seen: 1 / (tau * staged(last, 4.0) + 1),
    ),
    "stage_aware_as_printed": (
        staleness.stage_aware_as_printed(staleness.power(2)),
        lambda tau, last, _seen: ((tau + 1) * staged(last)) ** -2,
    ),
    "stage_aware cutoff": (
        staleness.stage_aware(staleness.cutoff(1)),
        lambda tau, last, _seen: float(tau * staged(last) <= 1),
    ),
    "stage_aware tail_tau": (
        staleness.stage_aware(staleness.tail_tau(0.5, warmup=50)),
        lambda tau, last, seen: tail(math.ceil(tau * staged(last)), seen),
    ),
}


class Row:
    """A row beside the rule's reference: its updates, and how far the last one moved it."""

    def __init__(self, rule: lsh.Rule, start: np.ndarray) -> None:
        self.reference = Reference(rule, start)
        self.updates, self.last = 0, 0.0

    def step(self, gradient: np.ndarray, t: int) -> None:
        before = self.reference.theta.copy()
        self.reference.t = t
        self.reference.step(gradient)
        self.last = float(np.linalg.norm(self.reference.theta - before))
        self.updates += 1


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("rule", [lsh.SGD(0.3), lsh.Adagrad(0.5), lsh.Adam(0.1)])
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_applied_to_each_row(name: str, rule: lsh.Rule, grows: bool) -> None:
    policy, factor = POLICIES[name]
    dim = 10
    size = {"max_bytes": 2**20} if grows else {"rows": ROWS}
    table = lsh.Table(dim=dim, rule=rule, staleness=policy, init=tables.normal(1.0), **size)
    everything = np.arange(ROWS)
    rows = [Row(rule, start) for start in table.lookup(everything)]
    rng = np.random.default_rng(5)
    read = deque([[0] * ROWS], maxlen=6)
    seen: list[int] = []
    excluded = 0
    for t in range(STEPS):
        ids = rng.choice(ROWS, rng.integers(1, ROWS), replace=False)
        gradients = rng.standard_normal((len(ids), dim)).astype(np.float32)
        ago = read[rng.integers(len(read))]
        taus = [rows[i].updates - ago[i] for i in ids]
        factors = [factor(tau, rows[i].last, seen) for i, tau in zip(ids, taus, strict=True)]
        told = table.update(ids, gradients, np.array([2 * ago[i] for i in ids], np.uint32))
        for i, g, tau, rho in zip(ids, gradients, taus, factors, strict=True):
            if rho == 0:
                excluded += 1
                continue
            rows[i].step(g.astype(np.float64) * rho, t)
            seen.append(tau)
        assert told.excluded == sum(rho == 0 for rho in factors)
        read.append([row.updates for row in rows])
        np.testing.assert_allclose(
            table.lookup(everything), [row.reference.theta for row in rows], atol=1e-4, rtol=0
        )
    counted = table.statistics()
    assert (counted["applied"], counted["excluded"]) == (len(seen), excluded)
    assert (counted["staleness"], counted["stalest"]) == (sum(seen), max(seen))
    wanted = np.bincount([tau.bit_length() for tau in seen])
    np.testing.assert_array_equal(table.row_staleness(), wanted)


def test_the_norm_of_the_last_update_is_the_rows_own_and_is_kept_in_files(tmp_path: Path) -> None:
    def make(policy: staleness.Policy) -> lsh.Table:
        return lsh.Table(rows=3, dim=5, rule=lsh.SGD(0.5), staleness=policy, init=tables.zeros())

    linear = staleness.table([1, 0])  # 1 − τ up to 1
    table, again = make(staleness.stage_aware(linear)), make(staleness.stage_aware(linear))
    table.update([0], np.full((1, 5), 100.0))  # then its staleness counts whole
    table.update([1], np.zeros((1, 5)))  # by half
    table.save(tmp_path / "table")
    again.load(tmp_path / "table")
    for one in (table, again):
        before = one.lookup([0, 1, 2])
        told = one.update([0, 1, 2], np.full((3, 5), -2.0), np.zeros(3, np.uint32))
        assert (told.applied, told.excluded) == (2, 1)
        assert (one.lookup([0, 1, 2]) - before)[:, 0].tolist() == [0, 0.5, 1]
    with pytest.raises(ValueError, match="of another table"):
        make(linear).load(tmp_path / "table")


def test_a_row_at_rest_counts_half_its_staleness() -> None:
    table = lsh.Table(
        rows=1,
        dim=4,
        init=tables.zeros(),
        rule=lsh.SGD(0.0),
        staleness=staleness.stage_aware(staleness.cutoff(1)),
    )
    for _ in range(2):
        table.update([0], np.ones((1, 4)))
    assert table.update([0], np.ones((1, 4)), np.zeros(1, np.uint32)).applied == 1  # τ = 2
    assert table.update([0], np.ones((1, 4)), np.zeros(1, np.uint32)).excluded == 1  # τ = 3


def test_a_row_takes_4_bytes_more_where_the_policy_needs_the_norm() -> None:
    def bytes_per_row(dim: int, policy: staleness.Policy) -> int:
        table = lsh.Table(rows=2, dim=dim, rule=lsh.SGD(0.1), staleness=policy)
        return table.statistics()["bytes_per_row"]

    aware = staleness.stage_aware(staleness.inverse())
    assert bytes_per_row(1, aware) == bytes_per_row(1, staleness.inverse()) == 16
    assert (bytes_per_row(2, staleness.none()), bytes_per_row(2, aware)) == (16, 32)


def test_staleness_in_the_thousands() -> None:
    table = lsh.Table(
        rows=1,
        dim=2,
        init=tables.zeros(),
        rule=lsh.SGD(1.0),
        staleness=staleness.stage_aware(staleness.inverse()),
    )
    for _ in range(5000):
        table.update([0], [[0.0, 0.0]])
    table.update([0], [[-2501.0, 0.0]], np.zeros(1, np.uint32))
    np.testing.assert_allclose(table.lookup([0]), [[1, 0]])
    assert table.row_staleness().tolist() == [5000, *[0] * 12, 1]


def test_threads_share_a_table_with_a_stage_aware_policy() -> None:
    table = lsh.Table(
        rows=50,
        dim=8,
        init=tables.zeros(),
        rule=lsh.SGD(0.01),
        staleness=staleness.stage_aware(staleness.inverse()),
    )

    def work(thread: int) -> None:
        for _ in range(300):
            ids = np.array([0, 10 + thread])
            _, versions = table.lookup(ids, versions=True)
            table.update(ids, np.full((2, 8), -1.0, np.float32), versions)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(table.lookup(range(10, 14)), np.full((4, 8), 3.0), rtol=1e-4)
    assert table.row_staleness().sum() == table.statistics()["applied"] == 4 * 300 * 2
    assert 0 < table.lookup([0])[0, 0] <= 12.001


@pytest.mark.parametrize("discipline", [lsh.Leashed(), lsh.Synchronous()])
def test_a_training_tells_what_became_of_its_rows(discipline: Any) -> None:
    data = lsh.datasets.synthetic_clicks(1000, seed=2, cardinalities=[50] * 26, test=100)
    model = lsh.models.dlrm(50, dim=4, bottom=(4,), top=(8,))
    result = lsh.train(
        model,
        data,
        discipline=discipline,
        rule=lsh.SGD(0.05),
        staleness=staleness.stage_aware(staleness.inverse()),
        threads=2,
        batch_size=50,
        until=lsh.until(updates=30),
    )
    counted = [table.statistics() for table in result.tables.values()]
    for name, n in result.rows.items():
        if name == "stalest":
            assert n == max(table[name] for table in counted)
        else:
            assert n == sum(table[name] for table in counted), name
    became = sum(n for name, n in result.rows.items() if name not in {"staleness", "stalest"})
    if isinstance(discipline, lsh.Synchronous):
        assert became == sum(table["asked"] for table in counted)
        assert result.rows["folded"] > 0
    assert result.row_staleness.sum() == result.rows["applied"] > 0
    again = lsh.TrainResult.from_json(result.to_json())
    assert again.rows == result.rows
    np.testing.assert_array_equal(again.row_staleness, result.row_staleness)


@pytest.mark.parametrize("exact", [staleness.tail_tau(0.9, warmup=40), staleness.fleet()])
@pytest.mark.parametrize("aware", [False, True])
def test_a_file_has_what_an_adaptive_policy_has_gathered(
    exact: staleness.Policy, aware: bool, tmp_path: Path
) -> None:
    policy = staleness.stage_aware(exact) if aware else exact

    def make(policy: staleness.Policy) -> lsh.Table:
        return lsh.Table(rows=ROWS, dim=4, rule=lsh.SGD(0.1), staleness=policy)

    def train(table: lsh.Table, steps: int, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        for _ in range(steps):
            ids = rng.choice(ROWS, 5, replace=False)
            now = table.lookup(ids, versions=True)[1].astype(np.int64)
            read = np.maximum(0, now - 2 * rng.integers(0, 5, 5)).astype(np.uint32)
            table.update(ids, rng.standard_normal((5, 4)), read)
        return table.lookup(np.arange(ROWS))

    table, again, other = make(policy), make(policy), make(policy)
    train(table, 30, 1)
    train(other, 90, 2)  # which load takes back
    table.save(tmp_path / "table")
    for loaded in (again, other):
        loaded.load(tmp_path / "table")
    wanted = train(table, 30, 3)
    for loaded in (again, other):
        np.testing.assert_array_equal(train(loaded, 30, 3), wanted)
    if not aware:
        make(staleness.none()).load(tmp_path / "table")  # which gathers nothing


@pytest.mark.parametrize(
    "policy", [staleness.tail_tau(0.9, warmup=40), staleness.stage_aware(staleness.tail_tau())]
)
def test_a_run_resumed_goes_on_to_the_same_bits(policy: staleness.Policy, tmp_path: Path) -> None:
    data = lsh.datasets.synthetic_clicks(500, seed=2, cardinalities=40, test=50)
    model = lsh.models.dlrm(40, dim=4, bottom=(4,), top=(8,))

    def run(updates: int, **more: Any) -> lsh.TrainResult:
        return lsh.train(
            model,
            data,
            rule=lsh.Adagrad(0.05),
            staleness=policy,
            threads=1,
            batch_size=25,
            until=lsh.until(updates=updates),
            **more,
        )

    whole = run(30)
    run(13, checkpoint=tmp_path / "run")
    resumed = run(30, resume=tmp_path / "run")
    np.testing.assert_array_equal(whole.parameters, resumed.parameters)
    for name, table in whole.tables.items():
        ids = np.arange(40)
        np.testing.assert_array_equal(table.lookup(ids), resumed.tables[name].lookup(ids))
