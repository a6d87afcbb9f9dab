"""Tables: every rule step by step, threads, files, and what is refused."""

from __future__ import annotations

import dataclasses
import pickle
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from reference_rules import RULES, Reference
from table_files import shard_of

import leashed as lsh
from leashed.models import tables

ROWS, STEPS = 20, 50
TOLERANCE = 2e-5


def batches(dim: int, seed: int = 0, steps: int = STEPS) -> list[tuple[NDArray, NDArray]]:
    """Ids [6, 4] with duplicates, and gradients; the last one is short."""
    rng = np.random.default_rng(seed)
    made = []
    for step in range(steps):
        shape = (6, 4) if step < steps - 1 else (1, 4)
        ids = rng.integers(0, ROWS // 2 + step % (ROWS // 2), shape)
        made.append((ids, rng.standard_normal((*shape, dim)).astype(np.float32)))
    return made


def summed(ids: NDArray, gradients: NDArray) -> dict[int, NDArray]:
    sums: dict[int, NDArray] = {}
    for i, g in zip(ids.ravel(), gradients.reshape(ids.size, -1), strict=True):
        sums[int(i)] = sums.get(int(i), 0) + g.astype(np.float64)
    return sums


class PerRow:
    """A reference for each row, which steps when its row is touched; t counts all steps."""

    def __init__(self, rule: lsh.Rule, start: NDArray) -> None:
        self.rows = [Reference(rule, row) for row in start]
        self.t = 0

    def step(self, ids: NDArray, gradients: NDArray) -> None:
        for i, g in summed(ids, gradients).items():
            self.rows[i].t = self.t
            self.rows[i].step(g)
        self.t += 1

    def values(self) -> NDArray:
        return np.stack([row.theta for row in self.rows])


class Rowwise:
    def __init__(self, rule: lsh.tables.RowwiseAdagrad, start: NDArray) -> None:
        self.rule, self.theta = rule, start.astype(np.float64)
        self.v = np.full(len(start), rule.initial_accumulator)

    def step(self, ids: NDArray, gradients: NDArray) -> None:
        for i, g in summed(ids, gradients).items():
            self.v[i] += np.mean(g**2)
            self.theta[i] -= float(self.rule.lr) * g / (np.sqrt(self.v[i]) + self.rule.eps)

    def values(self) -> NDArray:
        return self.theta


ON_ROWS = {
    name: make
    for name, make in RULES.items()
    if not isinstance(make(), (lsh.Momentum, lsh.AdamW, lsh.SWAP))
    and not getattr(make(), "weight_decay", 0)
    and getattr(make(), "clip_norm", None) is None
}


def follow(table: lsh.Table, reference: PerRow | Rowwise, dim: int) -> None:
    everything = np.arange(ROWS)
    for ids, gradients in batches(dim):
        told = table.update(ids, gradients)
        assert told == (len(np.unique(ids)), 0, 0, 0, 0, 0)
        reference.step(ids, gradients)
        np.testing.assert_allclose(
            table.lookup(everything), reference.values(), atol=TOLERANCE, rtol=0
        )


@pytest.mark.parametrize("dim", [1, 10, 16])
@pytest.mark.parametrize("name", ON_ROWS)
def test_every_step_equals_the_reference_of_each_row(name: str, dim: int) -> None:
    rule = ON_ROWS[name]()
    table = lsh.Table(rows=ROWS, dim=dim, init=tables.normal(0.5), rule=rule, seed=1)
    follow(table, PerRow(rule, table.lookup(np.arange(ROWS))), dim)


def test_there_is_a_rule_of_each_kind_among_them() -> None:
    kinds = {type(make()) for make in ON_ROWS.values()}
    assert kinds == {lsh.SGD, lsh.Adagrad, lsh.RMSprop, lsh.Adam, lsh.FTRL}


@pytest.mark.parametrize("dim", [1, 10, 16])
def test_rowwise_adagrad_equals_its_formula(dim: int) -> None:
    rule = tables.RowwiseAdagrad(0.1, initial_accumulator=0.2)
    table = lsh.Table(rows=ROWS, dim=dim, init=tables.uniform(1.0), rule=rule)
    follow(table, Rowwise(rule, table.lookup(np.arange(ROWS))), dim)


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("dim", [10, 16])
@pytest.mark.parametrize(
    ("rule", "optimizer"),
    [(lsh.SGD(0.1), "SGD"), (lsh.Adagrad(0.1), "Adagrad"), (lsh.Adam(0.01), "SparseAdam")],
)
def test_every_step_equals_pytorch(rule: lsh.Rule, optimizer: str, dim: int, grows: bool) -> None:
    torch = pytest.importorskip("torch")
    size = {"max_bytes": 2**20} if grows else {"rows": ROWS}
    table = lsh.Table(dim=dim, rule=rule, init=tables.normal(1.0), **size)
    everything = np.arange(ROWS)
    embedding = torch.nn.Embedding.from_pretrained(
        torch.from_numpy(table.lookup(everything)), freeze=False, sparse=True
    )
    theirs = getattr(torch.optim, optimizer)(embedding.parameters(), lr=rule.lr)
    for ids, gradients in batches(dim):
        table.update(ids, gradients)
        theirs.zero_grad()
        with torch.sparse.check_sparse_tensor_invariants():
            embedding(torch.from_numpy(ids)).backward(torch.from_numpy(gradients))
            theirs.step()
        np.testing.assert_allclose(
            table.lookup(everything), embedding.weight.detach().numpy(), atol=TOLERANCE, rtol=0
        )


@pytest.mark.parametrize("inner", [lsh.Adagrad(0.1), lsh.RMSprop(0.01), lsh.Adam(0.01)])
def test_swap_that_waits_is_that_of_every_row_at_its_time(inner: lsh.Rule) -> None:
    """Rows left alone for three periods and more, beside v that is decayed whether touched or not."""
    period, decay, dim = 4, 0.5, 6
    rule = lsh.SWAP(inner, period, decay)
    table = lsh.Table(rows=ROWS, dim=dim, rule=rule)
    plain = PerRow(inner, table.lookup(np.arange(ROWS)))
    rng = np.random.default_rng(3)
    for t in range(60):
        if t and t % period == 0:
            for row in plain.rows:
                row.v *= decay
        ids = np.flatnonzero(t % (2 * np.arange(ROWS) + 1) == 0)  # the last: every 39 steps
        gradients = rng.standard_normal((len(ids), dim)).astype(np.float32)
        table.update(ids, gradients)
        plain.step(ids, gradients)
        np.testing.assert_allclose(
            table.lookup(np.arange(ROWS)), plain.values(), atol=TOLERANCE, rtol=0
        )


def test_schedules_go_by_the_steps_of_the_table() -> None:
    table = lsh.Table(
        rows=2,
        dim=1,
        init=tables.zeros(),
        rule=lsh.SGD(lsh.schedules.step(1.0, every=2, factor=0.5)),
    )
    for _ in range(4):
        table.update([1], [[-1.0]])
    assert table.lookup([0, 1]).tolist() == [[0], [3]]


def test_a_rate_of_0_moves_nothing() -> None:
    for rule in (lsh.Adagrad(0.0), lsh.FTRL(0.0, l1=1.0), tables.RowwiseAdagrad(0.0)):
        table = lsh.Table(rows=4, dim=10, rule=rule)
        before = table.lookup(range(4))
        for ids, gradients in batches(10, steps=5):
            table.update(ids % 4, gradients)
        np.testing.assert_array_equal(table.lookup(range(4)), before)


def test_staleness_is_counted_by_row_and_damps_it() -> None:
    table = lsh.Table(
        rows=4, dim=2, init=tables.zeros(), rule=lsh.SGD(1.0), staleness=lsh.staleness.inverse()
    )
    _, versions = table.lookup([[1, 2]], versions=True)
    table.update([1], [[-1.0, -1.0]])
    table.update([[1, 2]], np.full((1, 2, 2), -1.0), versions)
    assert table.lookup([1, 2]).tolist() == [[1.5, 1.5], [1, 1]]
    told = table.statistics()
    assert (told["staleness"], told["stalest"], told["applied"]) == (1, 1, 3)


def test_threads_share_a_table() -> None:
    table = lsh.Table(rows=100, dim=8, init=tables.zeros(), rule=lsh.SGD(1.0))

    def work(thread: int) -> None:
        for _ in range(500):
            table.update([0, 10 + thread], np.full((2, 8), -1.0, np.float32))
            assert (table.lookup([10 + thread]) > 0).all()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = table.statistics()
    assert told["applied"] == 8 * 500 * 2
    assert told["steps"] == 8 * 500
    np.testing.assert_array_equal(table.lookup(range(10, 18)), np.full((8, 8), 500))
    _, versions = table.lookup([0, 10, 99], versions=True)
    assert versions.tolist() == [2 * 8 * 500, 2 * 500, 0]


def test_a_growing_table_takes_any_id_and_stays_within_its_memory() -> None:
    table = lsh.Table(dim=4, max_bytes=200_000, evict="age", rule=lsh.SGD(1.0), seed=7)
    ids = np.array([-1, -(2**63), 2**63 - 1, 0, 5])
    before = table.lookup(ids)
    assert len(np.unique(before)) > 10
    np.testing.assert_array_equal(table.lookup(np.array([2**64 - 1, 2**63], np.uint64)), before[:2])
    assert table.update(ids, np.full((5, 4), -1.0)).applied == 5
    np.testing.assert_allclose(table.lookup(ids), before + 1, rtol=1e-6)
    for start in range(10, 50_000, 100):
        table.update(np.arange(start, start + 100), np.zeros((100, 4)))
    told = table.statistics()
    assert told["evicted"] > 0
    assert told["rows"] == told["admitted"] - told["evicted"] + 2 <= told["capacity"]
    assert told["bytes"] <= told["most_bytes"] <= 200_000
    np.testing.assert_array_equal(table.lookup([5]), before[4:])  # forgotten


def test_an_id_gets_its_row_after_so_many_updates() -> None:
    table = lsh.Table(dim=4, max_bytes=2**20, admit_after=3)
    outcomes = [table.update([77, 77], np.ones((2, 4))) for _ in range(4)]
    assert [told.unadmitted for told in outcomes] == [1, 1, 0, 0]
    assert [told.applied for told in outcomes] == [0, 0, 1, 1]
    assert table.statistics()["admitted"] == 1


@pytest.mark.parametrize("size", [{"rows": ROWS}, {"max_bytes": 2**20}])
def test_a_file_goes_on_to_the_same_bits(tmp_path: Path, size: dict[str, int]) -> None:
    def make(**changes: object) -> lsh.Table:
        settings = {"dim": 10, "rule": lsh.SWAP(lsh.Adam(0.01), 7), **size, **changes}
        return lsh.Table(**settings)  # type: ignore[arg-type]

    table, other = make(), make()
    steps = batches(10)
    for ids, gradients in steps[:30]:
        table.update(ids, gradients)
    table.save(tmp_path / "table")
    assert [path.name for path in tmp_path.iterdir()] == ["table"]
    other.load(tmp_path / "table")
    for ids, gradients in steps[30:]:
        table.update(ids, gradients)
        other.update(ids, gradients)
    for ours, theirs in zip(
        table.lookup(range(ROWS), versions=True),
        other.lookup(range(ROWS), versions=True),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)
    for changes in (
        {"dim": 5},
        {"rule": lsh.Adam(0.01)},
        {"rule": lsh.SWAP(lsh.Adam(0.01), 5)},
        {"seed": 1},
        {"init": tables.zeros()},
    ):
        wrong = make(**changes)
        with pytest.raises(ValueError, match="of another table"):
            wrong.load(tmp_path / "table")
        assert not wrong.statistics()["steps"]
    make(rule=lsh.SWAP(lsh.Adam(0.02), 7)).load(tmp_path / "table")  # other settings may change
    damaged = bytearray((tmp_path / "table").read_bytes())
    damaged[-30] ^= 4
    (tmp_path / "table").write_bytes(damaged)
    with pytest.raises(ValueError, match="damaged"):
        other.load(tmp_path / "table")
    with pytest.raises(ValueError, match="cannot be read"):
        other.load(tmp_path / "absent")
    with pytest.raises(ValueError, match="cannot be written"):
        other.save(tmp_path / "no" / "folder")


BAD: dict[str, tuple[Callable[[lsh.Table], object], type[Exception], str]] = {
    "negative": (lambda t: t.lookup([[0, 1], [2, -3]]), IndexError, r"ids\[1, 1\] is -3"),
    "too large": (lambda t: t.update([ROWS], np.ones((1, 4))), IndexError, "outside 0 to 19"),
    "scalar": (lambda t: t.lookup(ROWS), IndexError, "ids is 20"),
    "fractional": (lambda t: t.lookup([1.0]), TypeError, "whole numbers, got dtype float64"),
    "truth": (lambda t: t.lookup([True]), TypeError, "whole numbers, got dtype bool"),
    "shape": (lambda t: t.update([1, 2], np.ones((2, 5))), ValueError, r"shape \(2, 4\)"),
    "no numbers": (lambda t: t.update([1], [["a"] * 4]), TypeError, "gradients must hold"),
    "NaN": (lambda t: t.update([1, 2], [[1] * 4, [0, 0, np.nan, 0]]), ValueError, r"\[1, 2\]"),
    "infinite": (lambda t: t.update([1], [[1, 1, 1, 1e39]]), ValueError, "is inf"),
    "versions": (lambda t: t.update([1], [[1] * 4], np.zeros(1)), ValueError, "versions must be"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_told_and_changes_nothing(name: str) -> None:
    call, error, message = BAD[name]
    table = lsh.Table(rows=ROWS, dim=4)
    before = table.lookup(np.arange(ROWS))
    with pytest.raises(error, match=message):
        call(table)
    np.testing.assert_array_equal(table.lookup(np.arange(ROWS)), before)
    assert not table.statistics()["steps"]


MADE: dict[str, tuple[dict[str, object], type[Exception], str]] = {
    "no rows": ({"rows": 0}, ValueError, "rows must be at least 1"),
    "no dim": ({"dim": 0}, ValueError, "dim must be at least 1"),
    "no limit": ({"rows": None}, ValueError, "max_bytes is needed"),
    "little": ({"rows": None, "max_bytes": 100}, ValueError, "64 rows needs"),
    "less": ({"max_bytes": 100}, ValueError, "20 rows needs 640 bytes; max_bytes is 100"),
    "eviction": ({"evict": "best"}, ValueError, "evict must be"),
    "fixed": ({"evict": "age"}, ValueError, "leave rows out"),
    "sightings": ({"rows": None, "max_bytes": 10**6, "admit_after": 256}, ValueError, "at most"),
    "rule": ({"rule": 0.1}, TypeError, "rule must be"),
    "momentum": ({"rule": lsh.Momentum(0.1)}, TypeError, "Momentum would have to move rows"),
    "Nesterov": ({"rule": lsh.Nesterov(0.1)}, TypeError, "Nesterov would have to move rows"),
    "decay": ({"rule": lsh.SGD(0.1, weight_decay=0.1)}, ValueError, "weight_decay would"),
    "AdamW": ({"rule": lsh.AdamW(0.1)}, ValueError, "weight_decay would"),
    "norm": ({"rule": lsh.SWAP(lsh.Adam(0.1, clip_norm=1.0), 5)}, ValueError, "use clip_value"),
    "init": ({"init": 0.1}, TypeError, "init must be"),
    "no versions": ({"versions": 0}, TypeError, "versions must be True or False"),
    "growing without": (
        {"rows": None, "max_bytes": 10**6, "versions": False},
        ValueError,
        "leave it True",
    ),
    "SWAP without": (
        {"rule": lsh.SWAP(lsh.Adagrad(0.1), 5), "versions": False},
        ValueError,
        "leave it True",
    ),
    "stale without": (
        {"staleness": lsh.staleness.inverse(), "versions": False},
        ValueError,
        "leave it True",
    ),
    "seed": ({"seed": -1}, ValueError, "seed must be"),
}


@pytest.mark.parametrize("name", MADE)
def test_no_table_is_made_of_what_is_none(name: str) -> None:
    changes, error, message = MADE[name]
    settings = {"rows": ROWS, "dim": 4, "rule": lsh.SGD(0.1), **changes}
    with pytest.raises(error, match=message):
        lsh.Table(**settings)  # type: ignore[arg-type]


def test_rows_without_versions_are_shorter_and_otherwise_the_same() -> None:
    ids = np.array([3, 1, 3])
    found = []
    for versions in (True, False):
        table = lsh.Table(rows=ROWS, dim=16, rule=lsh.Adagrad(0.1), versions=versions)
        rng = np.random.default_rng(1)
        for _ in range(3):
            _, told = table.lookup(ids, versions=True)
            table.update(ids, rng.standard_normal((3, 16)), told)
        found.append((table.lookup(np.arange(ROWS)), told, table.statistics()["bytes_per_row"]))
    (counted, _, longer), (values, told, shorter) = found
    np.testing.assert_array_equal(values, counted)
    assert not told.any()
    assert (longer, shorter) == (144, 128)


def test_nothing_is_looked_up_and_updated() -> None:
    table = lsh.Table(rows=ROWS, dim=4)
    assert table.lookup([]).shape == (0, 4)
    assert table.lookup(np.zeros((3, 0), np.int32)).shape == (3, 0, 4)
    assert table.lookup(3).shape == (4,)
    assert table.update([], np.zeros((0, 4))).applied == 0


def test_a_pickle_has_rows_and_settings() -> None:
    table = lsh.Table(dim=4, max_bytes=2**20, rule=lsh.Adam(0.1), seed=3)
    for _ in range(2):
        table.update([5, -7], np.ones((2, 4), np.float32))
    other = pickle.loads(pickle.dumps(table))
    for each in (table, other):  # the states too
        each.update([5, 9], np.full((2, 4), 0.5, np.float32))
    np.testing.assert_array_equal(other.lookup([5, -7, 9, 1]), table.lookup([5, -7, 9, 1]))
    assert other.description == table.description


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_many_rows_at_once_stay_where_there_is_room(share: float) -> None:
    table = lsh.Table(dim=16, max_bytes=2**20, evict="age")
    n = int(share * table.statistics()["capacity"])
    assert table.update(np.arange(1, n + 1), np.ones((n, 16))).applied == n
    assert table.statistics()["rows"] == n + 2


def test_a_large_update_leaves_no_more_memory_than_the_table_has() -> None:
    table = lsh.Table(dim=16, max_bytes=2**24, evict="age")
    ids = np.arange(1, 300_001)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has no room for all of them
        table.update(np.concatenate([ids, ids[:1000]]), np.ones((301_000, 16), np.float32))
        assert table.statistics()["scratch"] <= 2**20
        table.update(ids[:1000], np.ones((1000, 16), np.float32))
        assert 0 < table.statistics()["scratch"] <= 2**20
        with pytest.raises(ValueError, match="add up"):
            table.update(np.ones(300_000, np.int64), np.full((300_000, 16), 3e38, np.float32))
    assert table.statistics()["scratch"] <= 2**20


def test_rowwise_adagrad_is_of_tables_alone() -> None:
    with pytest.raises(ValueError, match="rowwise_adagrad"):
        lsh.Engine(np.zeros(3), rule=tables.RowwiseAdagrad(0.1))


def decays() -> dict[str, tuple[lsh.Rule, lsh.Rule]]:
    """Rules of rows, and what they are with weight decay."""
    found: dict[str, tuple[lsh.Rule, lsh.Rule]] = {
        name: (make(), dataclasses.replace(make(), weight_decay=0.1))
        for name, make in ON_ROWS.items()
        if not isinstance(make(), lsh.SWAP)
    }
    found["SGD apart"] = (
        lsh.SGD(0.1, decoupled=True),
        lsh.SGD(0.1, decoupled=True, weight_decay=0.1),
    )
    found["AdamW"] = lsh.AdamW(0.01, weight_decay=0), lsh.AdamW(0.01, weight_decay=0.1)
    return found


@pytest.mark.parametrize("dim", [1, 10, 16])
@pytest.mark.parametrize("name", decays())
def test_rows_that_an_update_has_decay_and_no_others(name: str, dim: int) -> None:
    rule, decayed = decays()[name]
    table = lsh.Table(
        rows=ROWS, dim=dim, init=tables.normal(0.5), rule=rule, seed=1, weight_decay=0.1
    )
    follow(table, PerRow(decayed, table.lookup(np.arange(ROWS))), dim)


def test_rowwise_adagrad_decays_too() -> None:
    rule = tables.RowwiseAdagrad(0.1, initial_accumulator=0.2)
    table = lsh.Table(rows=ROWS, dim=10, init=tables.uniform(1.0), rule=rule, weight_decay=0.1)
    reference = Rowwise(rule, table.lookup(np.arange(ROWS)))
    everything = np.arange(ROWS)
    for ids, gradients in batches(10):
        table.update(ids, gradients)
        once = {i: g + 0.1 * reference.theta[i] for i, g in summed(ids, gradients).items()}
        reference.step(np.array(list(once)), np.stack(list(once.values())))
        np.testing.assert_allclose(
            table.lookup(everything), reference.values(), atol=TOLERANCE, rtol=0
        )


def test_swap_and_weight_decay_go_together() -> None:
    inner = lsh.Adagrad(0.1)
    table = lsh.Table(rows=ROWS, dim=4, rule=lsh.SWAP(inner, 10**6), weight_decay=0.1)
    plain = lsh.Table(rows=ROWS, dim=4, rule=inner, weight_decay=0.1)
    for ids, gradients in batches(4):
        table.update(ids, gradients)
        plain.update(ids, gradients)
    assert (table.lookup(np.arange(ROWS)) == plain.lookup(np.arange(ROWS))).all()


def test_weight_decay_is_trained_with_saved_and_told(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 30, (400, 2))
    data = lsh.ClickDataset.from_arrays(None, ids, ids[:, 0] % 2)
    model = lsh.models.dlrm(30, 4, 0, categories=2)

    def norm(weight_decay: float) -> float:
        made = tables.of(model.tables, rule=lsh.Adagrad(0.1), weight_decay=weight_decay)
        result = lsh.train(
            model,
            data,
            rule=lsh.Adagrad(0.1),
            until=lsh.until(epochs=5),
            init=lsh.Init(tables=made),
            threads=1,
        )
        result.model.save(tmp_path / "saved")
        assert lsh.load(tmp_path / "saved").tables["c0"].weight_decay == weight_decay
        return float(np.abs(result.tables["c0"].lookup(np.arange(30))).sum())

    assert norm(0.1) < 0.7 * norm(0.0)
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="weight_decay must"):
            lsh.Table(rows=3, dim=2, weight_decay=wrong)
    with pytest.raises(ValueError, match=r"leave it 0 \(AdamW\), and give it to the tables"):
        lsh.Table(rows=3, dim=2, rule=lsh.AdamW(0.1))


def evenly(servers: int) -> list[list[bool]]:
    """The shards of each of so many servers."""
    return [[shard % servers == mine for shard in range(256)] for mine in range(servers)]


def test_a_table_of_some_shards_has_the_rows_of_these_ids_alone() -> None:
    whole = lsh.Table(rows=700, dim=3, seed=4)
    for mine, shards in enumerate(evenly(3)):
        part = lsh.Table(rows=700, dim=3, seed=4, shards=shards)
        own = part.ids()
        assert own.tolist() == [i for i in range(700) if i % 256 % 3 == mine]
        np.testing.assert_array_equal(part.lookup(own), whole.lookup(own))
        assert part.statistics()["capacity"] == len(own)
        copied = pickle.loads(pickle.dumps(part))
        np.testing.assert_array_equal(copied.lookup(own), part.lookup(own))
        with pytest.raises(ValueError, match="has its row elsewhere"):
            part.lookup([i for i in range(700) if i not in own][:1])
    with pytest.raises(ValueError, match="shards must be 256, one for each, got 3"):
        lsh.Table(rows=700, dim=3, shards=[True] * 3)


def test_tables_of_a_server_are_those_of_which_it_has_shards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described = [
        lsh.models.TableSpec(name, rows=rows, dim=2)
        for name, rows in (("a", 300), ("b", 10), ("c", None))
    ]
    every, none, (first, second) = [True] * 256, [False] * 256, evenly(2)
    whole = tables.of(described, max_bytes=2**20, seed=3)
    mine = tables.of(
        described, max_bytes=2**20, seed=3, shards={"a": first, "b": none, "c": second}
    )
    assert list(mine) == ["a", "c"]
    assert [table.number for table in mine.values()] == [0, 2]
    np.testing.assert_array_equal(mine["c"].lookup([7, 8]), whole["c"].lookup([7, 8]))
    with pytest.raises(ValueError, match="shards must be given for each table, and not without b"):
        tables.of(described, max_bytes=2**20, shards={"a": first, "c": second})
    # What is to be there is its part.
    monkeypatch.setattr(tables.memory, "available", lambda: 200 * 24)
    tables.of(described[:1], shards={"a": first})
    with pytest.raises(ValueError, match="1 tables of 300 rows in all would take"):
        tables.of(described[:1], shards={"a": every})


def test_parts_are_loaded_into_the_whole_and_into_other_parts(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for rows, limit in ((700, {}), (None, {"max_bytes": 2**18})):
        size = {"rows": rows, "dim": 3, **limit}
        whole = lsh.Table(**size)
        ids = rng.integers(0, 700, 500)
        gradients = rng.standard_normal((500, 3)).astype(np.float32)
        servers = np.array([shard_of(int(i), grows=rows is None) % 3 for i in ids])
        parts = []
        for mine, shards in enumerate(evenly(3)):
            part = lsh.Table(**size, shards=shards)
            part.save_tracked(tmp_path / f"{mine}.all")
            part.update(ids[servers == mine], gradients[servers == mine])
            part.save_changes(tmp_path / f"{mine}.changes")
            parts.append(
                tables.Part(
                    tmp_path / f"{mine}.all",
                    [tmp_path / f"{mine}.changes"],
                    shards,
                    part.statistics()["capacity"],
                )
            )
        whole.update(ids, gradients)
        joined = lsh.Table(**{**size, "max_bytes": None if rows else 2**19})
        joined.load_parts(parts)
        np.testing.assert_array_equal(joined.lookup(ids), whole.lookup(ids))
        np.testing.assert_array_equal(joined.ids(), whole.ids())
        for shards in evenly(2):
            other = lsh.Table(**size, shards=shards)
            other.load_parts(parts)
            own = [i for i in np.unique(ids) if i in other.ids()]
            np.testing.assert_array_equal(other.lookup(own), whole.lookup(own))
        with pytest.raises(ValueError, match=r"no file has shards 1, 4, 7, 10 and 81 more of"):
            joined.load_parts([parts[0], parts[2]])
        another = lsh.Table(**size, seed=1)
        with pytest.raises(ValueError, match="is of another table than"):
            another.load_parts(parts)
