"""Models of sparse rows by modes over several processes: in memory, and from readers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.led import led
from cluster.test_led_modes import together

import leashed as lsh
from leashed.cluster import policy_server
from leashed.cluster.led_leaving import parameters_left

FEATURES = 30


def lines(rows: int = 500) -> str:
    drawn = np.random.default_rng(5)
    found = []
    for _ in range(rows):
        # (Those with large numbers come most often.)
        columns = np.unique(FEATURES - drawn.geometric(0.2, 6).clip(1, FEATURES)) + 1
        label = int(columns[0] % 2)
        found.append(" ".join([str(label), *(f"{c}:{drawn.normal():.3f}" for c in columns)]))
    return "\n".join(found) + "\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.svm"
    path.write_text(lines())
    return path


def given(**more: Any) -> dict[str, Any]:
    """How it is trained; of two passes over 500 rows the last batch has fewer than others on a stream."""
    return {"until": lsh.until(epochs=2), "batch_size": 32, "threads": 1, "seed": 3, **more}


@pytest.mark.parametrize("mode", ["gba:m=2", "easgd:alpha=0.5"])
@pytest.mark.parametrize("kind", ["in memory", "from readers"])
@pytest.mark.parametrize(
    "model",
    [lsh.models.logistic_regression(FEATURES), lsh.models.fm(FEATURES, 3)],
    ids=["linear", "fm"],
)
def test_one_worker_has_the_bits_of_one_process(
    model: Any, kind: str, mode: str, file: Path, tmp_path: Path
) -> None:
    rows = lsh.stream.libsvm(file, FEATURES, classes=2)
    data, readers = (rows.read(), 0) if kind == "in memory" else (rows, 1)
    how = given(mode=mode, rule=lsh.rules.Adagrad(0.05))
    alone = lsh.train(model, data, **how)
    with led(tmp_path / "run", model, data, **how, readers=readers) as run:
        found = lsh.train(model, data, **how, cluster=run.cluster())
        report = run.report()
        run.ended()
    assert run.error is None
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    left = parameters_left(tmp_path / "run", report["run"], (), model.dimension, 0.0)
    assert left is not None
    np.testing.assert_array_equal(left.parameters, found.parameters)


@pytest.mark.parametrize("dense", ["server", "all-reduce"])
def test_several_trainers_come_to_the_same(dense: str, file: Path, tmp_path: Path) -> None:
    data = lsh.stream.libsvm(file, FEATURES, classes=2).read()
    model = lsh.models.logistic_regression(FEATURES)
    how = given(mode="sync", threads=2, dense=dense)
    with led(tmp_path / "run", model, data, trainers=2, **how) as run:
        first, second = together(run, how, 2, model, data)
        report = run.report()
    assert run.error is None
    np.testing.assert_array_equal(first.parameters, second.parameters)
    alone = lsh.train(model, data, **given(mode="sync", threads=4))
    np.testing.assert_array_equal(first.parameters, alone.parameters)
    assert report["ledger"]["complete"] == report["ledger"]["total"]


def test_who_has_the_columns_in_another_order_is_turned_away(file: Path, tmp_path: Path) -> None:
    data, model = lsh.stream.libsvm(file, FEATURES, classes=2).read(), lsh.models.fm(FEATURES, 3)
    other = replace(data, indices=FEATURES - 1 - data.indices)
    how = given(mode="gba")
    with led(tmp_path / "run", model, data, **how) as run:
        run.until_led()
        with pytest.raises(ValueError, match=r"columns is [0-9a-f]+ here"):
            lsh.train(model, other, **how, cluster=run.cluster())
        run.close()


def test_what_is_not_there_is_refused_by_name(file: Path, tmp_path: Path) -> None:
    data, model = lsh.stream.libsvm(file, FEATURES, classes=2).read(), lsh.models.fm(FEATURES, 3)

    def refused(match: str, servers: int = 1, **more: Any) -> None:
        place = policy_server.Trainers(1, servers)
        with pytest.raises(ValueError, match=match):
            lsh.train(model, data, **given(mode="gba"), cluster=place, **more)

    refused("take one policy server", servers=2)
    refused(
        "leave it out, or train on one machine", observe=lsh.Observe(record=tmp_path / "record")
    )
