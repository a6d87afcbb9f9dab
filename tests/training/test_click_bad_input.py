"""Wrong arguments where a model reads tables: one exception that names them, nothing changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_clicks import ROWS, clicks, shared, small

import leashed as lsh
from leashed import _core
from leashed.datasets import Bags, ClickDataset
from leashed.models import tables

MODEL = small()
DATA = clicks(MODEL, 60)
PLAIN = lsh.models.mlp(3, [4], 2)
DENSE = lsh.Dataset.from_arrays(DATA.x, DATA.y)


def new(**changes: Any) -> dict[str, lsh.Table]:
    return {**tables.of(MODEL.tables, rule=lsh.SGD(0.1)), **changes}


def with_id(wrong: int) -> ClickDataset:
    ids = np.array(DATA.ids, np.int64)
    ids[30, 1] = wrong
    return ClickDataset.from_arrays(DATA.x, ids, DATA.y)


CASES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "an id above": (
        {"data": with_id(ROWS)},
        ValueError,
        f"data's C2 has id {ROWS}, outside 0 to {ROWS - 1} of table c1",
    ),
    "a negative id": ({"data": with_id(-1)}, ValueError, "data's C2 has id 18446744073709551615"),
    "a validation id": (
        {"validation": with_id(ROWS)},
        ValueError,
        f"validation's C2 has id {ROWS}",
    ),
    "a feature less": (
        {"data": ClickDataset.from_arrays(DATA.x, DATA.ids[:, :1], DATA.y)},
        ValueError,
        "data has 1 features that are ids, but the model reads number 1",
    ),
    "a number more": (
        {"data": ClickDataset.from_arrays(np.zeros((60, 4)), DATA.ids, DATA.y)},
        ValueError,
        "data has 4 numbers, but the model takes 3",
    ),
    "a Dataset": ({"data": DENSE}, TypeError, "data must be a ClickDataset where the model reads"),
    "a validation Dataset": ({"validation": DENSE}, TypeError, "validation must be a ClickDataset"),
    "clicks for none": ({"model": PLAIN}, TypeError, "data must be a Dataset"),
    "tables for none": (
        {"model": PLAIN, "data": DENSE, "init": lsh.Init(tables=new())},
        ValueError,
        "tables must be left out: the model reads none",
    ),
    "a table missing": (
        {"init": lsh.Init(tables={"c0": lsh.Table(dim=8, rows=ROWS)})},
        ValueError,
        "tables must be c0, c1; got c0",
    ),
    "a table more": (
        {"init": lsh.Init(tables=new(c2=lsh.Table(dim=8, rows=ROWS)))},
        ValueError,
        "tables must be c0, c1; got c0, c1, c2",
    ),
    "another dim": (
        {"init": lsh.Init(tables=new(c1=lsh.Table(dim=9, rows=ROWS)))},
        ValueError,
        r"tables\['c1'\] has dim 9 and rows 12, but the model reads dim 8 and rows 12",
    ),
    "other rows": (
        {"init": lsh.Init(tables=new(c1=lsh.Table(dim=8, rows=ROWS + 1)))},
        ValueError,
        r"tables\['c1'\] has dim 8 and rows 13",
    ),
    "one that grows": (
        {"init": lsh.Init(tables=new(c1=lsh.Table(dim=8, max_bytes=2**20)))},
        ValueError,
        r"tables\['c1'\] has dim 8 and rows None",
    ),
    "no table": (
        {"init": lsh.Init(tables=new(c1=np.zeros((ROWS, 8))))},
        TypeError,
        "tables must map names to",
    ),
    "no mapping": (
        {"init": lsh.Init(tables=list(new().values()))},
        TypeError,
        "tables must map names to",
    ),
    "a cluster": (
        {"cluster": object()},
        ValueError,
        "cluster without embedding servers is not for models that read tables",
    ),
    "Momentum": ({"rule": lsh.Momentum(0.1)}, TypeError, "Momentum would have to move rows"),
    "weight decay": (
        {"rule": lsh.SGD(0.1, weight_decay=0.1)},
        ValueError,
        "weight_decay would have to move rows",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_named(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def train(*_: object) -> None:
        pytest.fail("the native training loop was started")

    monkeypatch.setattr(_core, "train", train)
    monkeypatch.chdir(tmp_path)
    changes, error, message = CASES[name]
    given = changes.get("tables")
    known = (
        [t for t in given.values() if isinstance(t, lsh.Table)] if isinstance(given, dict) else []
    )
    before = [(t.statistics(), t.lookup(np.arange(ROWS)).tobytes()) for t in known]
    arguments = {"model": MODEL, "data": DATA, "until": lsh.until(updates=3), "batch_size": 8}
    with pytest.raises(error, match=message):
        lsh.train(**{**arguments, **changes})
    assert [(t.statistics(), t.lookup(np.arange(ROWS)).tobytes()) for t in known] == before
    assert not list(tmp_path.iterdir())


def test_momentum_is_for_parameters_where_tables_have_a_rule_of_their_own() -> None:
    result = lsh.train(
        MODEL,
        DATA,
        until=lsh.until(updates=3),
        rule=lsh.Momentum(0.1),
        init=lsh.Init(tables=new()),
        batch_size=8,
    )
    assert np.isfinite(result.loss[-1])


def test_one_table_under_two_names_is_refused() -> None:
    both = lsh.Table(dim=8, rows=ROWS, rule=lsh.SGD(0.1))
    with pytest.raises(ValueError, match="one Table under two names; let the embeddings share"):
        lsh.train(
            MODEL,
            DATA,
            until=lsh.until(updates=3),
            batch_size=8,
            init=lsh.Init(tables={"c0": both, "c1": both}),
        )
    assert both.statistics()["applied"] == 0


def test_evaluate_and_predict_name_what_is_wrong() -> None:
    theta = MODEL.init()
    wrong: list[tuple[Any, Any, Any, type[Exception], str]] = [
        (theta[:-1], DATA, new(), ValueError, "parameters"),
        (theta, DENSE, new(), TypeError, "ClickDataset"),
        (theta, with_id(ROWS), new(), ValueError, "has id 12"),
        (theta, DATA, {}, ValueError, "tables must be c0, c1; got none"),
        (theta, DATA, None, TypeError, "tables must map names to"),
        (theta, DATA, new(c0=lsh.Table(dim=3, rows=ROWS)), ValueError, "has dim 3"),
    ]
    for parameters, data, given, error, message in wrong:
        for call in (MODEL.evaluate, MODEL.predict):
            with pytest.raises(error, match=message):
                call(parameters, data, given)
    for threads in (0, 1.5):
        with pytest.raises((TypeError, ValueError), match="threads must be"):
            MODEL.evaluate(theta, DATA, new(), threads=threads)


def test_a_data_set_of_one_number_too_few_ids_in_a_bag_is_none() -> None:
    """Offsets that do not end where the ids do never become a data set."""
    with pytest.raises(ValueError, match="offsets end with 3"):
        Bags([1, 2], [0, 1, 3])


@pytest.mark.filterwarnings("ignore:model .* reads .* as sequence:RuntimeWarning")
def test_ids_that_change_afterwards_end_the_run_with_an_error() -> None:
    """A data set shares its arrays: what is found to be no row only then is told, too, by whoever
    meets it, and nobody waits for who has.
    """
    graph = shared()
    random = np.random.default_rng(0)
    ids = [random.integers(0, ROWS, 200).astype(np.uint64) for _ in range(5)]
    columns = {f"C{f + 1}": one for f, one in enumerate(ids)}
    data = ClickDataset.from_arrays(random.normal(size=(200, 3)), columns, np.arange(200) % 2)

    def progress(now: lsh.Progress) -> None:
        if not now.updates:
            ids[1][100:] = ROWS

    for discipline in (lsh.Synchronous(), lsh.Leashed(), lsh.Hogwild(), lsh.Locked()):
        for threads in (1, 3):
            ids[1][:] = 0
            given = tables.of(graph.tables)
            with pytest.raises(ValueError, match="id 12 is no row of table 'items'"):
                lsh.train(
                    graph,
                    data,
                    until=lsh.until(epochs=1000),
                    threads=threads,
                    batch_size=16,
                    discipline=discipline,
                    init=lsh.Init(tables=given),
                    observe=progress,
                )
            ids[1][:] = 0
            assert np.isfinite(graph.evaluate(graph.init(), data, given).loss)
