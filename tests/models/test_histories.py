"""Models of users with histories learn what histories tell, and each example by itself."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

import leashed as lsh
from leashed.datasets import Bags, ClickDataset
from leashed.models import Graph

MODELS: dict[str, Callable[..., Graph]] = {
    "din": lsh.models.din,
    "dien": lsh.models.dien,
    "ecommerce": lsh.models.ecommerce,
}
SIZES = {"users": 500, "items": 500, "categories": 20}


@functools.cache
def split() -> lsh.datasets.ClickSplit:
    return lsh.datasets.synthetic_histories(40_000, 2, test=10_000, longest=8, **SIZES)


@functools.cache
def trained(name: str) -> tuple[Graph, lsh.TrainResult]:
    model = MODELS[name](**SIZES, dim=8, hidden=(32,), longest=8)
    result = lsh.train(
        model,
        split(),
        rule=lsh.Adagrad(0.05),
        until=lsh.until(epochs=3),
        batch_size=64,
        threads=1,
        init=lsh.Init(tables=lsh.tables.of(model.tables, rule=lsh.Adagrad(0.05), seed=1)),
    )
    return model, result


def without_histories(data: ClickDataset) -> ClickDataset:
    none = Bags(np.empty(0, np.uint64), np.zeros(len(data) + 1, np.int64))
    columns = dict(zip(data.names, data.ids, strict=True))
    return ClickDataset.from_arrays(data.x, columns | {"items": none, "categories": none}, data.y)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns_from_histories(name: str) -> None:
    model, result = trained(name)
    data = split().test
    auc = model.evaluate(result.parameters, data, result.tables).auc
    blind = model.evaluate(result.parameters, without_histories(data), result.tables).auc
    assert auc > blind + 0.015


@pytest.mark.parametrize("name", MODELS)
def test_an_example_is_predicted_as_it_is_alone(name: str) -> None:
    model, result = trained(name)
    data = split().test.head(150)
    together = model.predict(result.parameters, data, result.tables)
    alone = [
        model.predict(result.parameters, data.take(np.array([i])), result.tables)[0]
        for i in range(0, 150, 10)
    ]
    np.testing.assert_allclose(alone, together[::10], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_behind_the_longest_history_is_not_read(name: str) -> None:
    model, result = trained(name)
    data = split().test.head(50)
    columns = dict(zip(data.names, data.ids, strict=True))
    longer = {}
    for feature in ("items", "categories"):
        bags = columns[feature]
        rows = [bags.ids[a:b] for a, b in zip(bags.offsets[:-1], bags.offsets[1:], strict=True)]
        full = [row if len(row) < 8 else np.append(row, np.uint64(3)) for row in rows]
        offsets = np.append(0, np.cumsum([len(row) for row in full]))
        longer[feature] = Bags(np.concatenate(full), offsets)
    assert len(longer["items"].ids) > len(columns["items"].ids)
    more = ClickDataset.from_arrays(data.x, columns | longer, data.y)
    np.testing.assert_array_equal(
        model.predict(result.parameters, data, result.tables),
        model.predict(result.parameters, more, result.tables),
    )


def test_two_runs_of_one_thread_have_the_same_bits() -> None:
    model = lsh.models.dien(**SIZES, dim=4, hidden=(8,), longest=8)

    def run() -> lsh.TrainResult:
        return lsh.train(model, split(), until=lsh.until(updates=20), threads=1)

    np.testing.assert_array_equal(run().parameters, run().parameters)
