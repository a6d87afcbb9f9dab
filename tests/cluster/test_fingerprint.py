"""What all processes of a run must have alike is compared before one takes part."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster import inside
from cluster.test_ends import BATCH, DATA, MODEL

import leashed as lsh
from leashed.cluster import server
from leashed.cluster.fingerprint import (
    differing,
    of_data,
    of_model,
    of_rows,
    of_server,
    of_tables,
    of_trainer,
)

TRAIN = DATA.train
SPARSE = lsh.SparseDataset(
    np.array([0, 1, 3]), np.array([0, 1, 2], np.int32), np.ones(3, np.float32), 4,
    np.array([0, 1], np.int32), 2,
)  # fmt: skip


def fingerprint(**given: Any) -> dict[str, str]:
    words = {
        "sync": lsh.sync.EASGD(),
        "backend": "leashed",
        "model": MODEL,
        "data": TRAIN,
        "seed": 0,
    }
    words |= given
    trained = words["model"], words["data"], words["seed"]
    return of_trainer(words["model"].dimension, words["sync"], words["backend"], trained)


def changed(data: lsh.Dataset, **given: Any) -> lsh.Dataset:
    x, y = data.x.copy(), data.y.copy()
    x[-1, -1] += given.get("by", 0.0)
    y[0] = (y[0] + given.get("label", 0)) % 10
    return lsh.Dataset.from_arrays(x[: given.get("rows", len(x))], y[: given.get("rows", len(x))])


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, []),
        ({"model": lsh.models.mlp(784, [5], 10)}, ["parameters", "layers"]),
        ({"model": lsh.models.mlp(784, [4], 10, name="other")}, ["model"]),
        ({"seed": 1}, ["seed"]),
        ({"sync": lsh.sync.MA()}, ["sync"]),
        ({"sync": None}, ["sync"]),
        ({"sync": lsh.sync.EASGD(alpha=0.25)}, ["sync.alpha"]),
        ({"sync": lsh.sync.EASGD(symmetric=False)}, []),
        ({"sync": lsh.sync.EASGD(compression="int8")}, ["sync.compression"]),
        ({"sync": lsh.sync.EASGD(parts=2)}, ["sync.parts"]),
        ({"sync": lsh.sync.EASGD(when=lsh.sync.every(iterations=5))}, ["sync.when"]),
        ({"backend": "gloo"}, ["backend"]),
        ({"data": changed(TRAIN)}, []),
        ({"data": changed(TRAIN, rows=150)}, ["data"]),
        ({"data": changed(TRAIN, by=1e-3)}, ["data"]),
        ({"data": changed(TRAIN, label=1)}, ["data"]),
    ],
)
def test_whatever_differs_is_told_by_name_with_both_values(
    given: dict[str, Any], names: list[str]
) -> None:
    run, own = fingerprint(), fingerprint(**given)
    told = differing(run, own)
    assert (told is None) == (not names)
    for name in names:
        assert f"{name} is {own[name]} here, and {run[name]} in the run" in str(told)


@pytest.mark.parametrize("kind", [lsh.sync.MA, lsh.sync.BMUF])
def test_the_form_of_the_mix_is_compared(kind: Any) -> None:
    run, own = fingerprint(sync=kind()), fingerprint(sync=kind(difference=True))
    assert "sync.difference is 1.0 here, and 0.0 in the run" in str(differing(run, own))
    assert differing(run, fingerprint(sync=kind(difference=False))) is None


def test_who_has_other_batches_is_never_a_member(tmp_path: Path) -> None:
    """Who joined, found out and left was the last trainer of a run that had not begun."""
    terms = {"total": 20, "batch_size": BATCH}
    with inside.run(tmp_path, MODEL.dimension, **terms) as run:
        for size, epochs, why in (
            (2 * BATCH, 40 * BATCH / len(TRAIN), f"batch_size is {2 * BATCH} here, and {BATCH} in"),
            (BATCH, 30 * BATCH / len(TRAIN), "batches is 30 here, and 20 in the run"),
        ):
            with pytest.raises(ValueError, match=why):
                lsh.train(
                    MODEL, TRAIN, until=lsh.until(epochs=epochs), batch_size=size, threads=1,
                    cluster=run.cluster(0),
                )  # fmt: skip
        run.stop()
        assert run.report()["members"] == []


def test_a_sync_server_of_more_than_the_run_has_is_never_a_member(tmp_path: Path) -> None:
    """It would hold other fragments than trainers look for there."""
    with inside.run(tmp_path, MODEL.dimension, servers=1) as run:
        place = inside.served(str(run.cluster().master), tmp_path)
        with pytest.raises(ValueError, match="sync servers is 2 here, and 1 in the run"):
            server.serve(MODEL.dimension, 2, 1, place)
        run.until_joined(1)
        run.stop()
        assert [each["index"] for each in run.report()["members"]] == [0]


def test_who_knows_less_compares_less() -> None:
    assert differing(fingerprint(), of_server(MODEL.dimension)) is None
    assert "parameters is 7 here, and 3,190 in the run" in str(
        differing(fingerprint(), of_server(7))
    )
    assert differing({}, fingerprint()) is None
    version = differing({"leashed": "0.0.1"}, of_server(7))
    assert version is not None
    assert version.endswith("and 0.0.1 in the run. Give all processes of a run the same")


@pytest.mark.parametrize(
    ("model", "other", "names"),
    [
        (lsh.models.fm(9, 2), lsh.models.fm(9, 3), ["factors is 3 here, and 2 in the run"]),
        (lsh.models.fm(9), lsh.models.fm(9, l2=0.5), ["l2 is 0.5 here, and 0.0 in the run"]),
        (lsh.models.fm(9), lsh.models.fm(8), ["features is 8 here, and 9 in the run"]),
        (
            lsh.models.logistic_regression(9, l2=0.5),
            lsh.models.logistic_regression(9),
            ["l2 is 0.0 here, and 0.5 in the run"],
        ),
        (
            lsh.models.linear_svm(9),
            lsh.models.fm(9),
            ["model is fm here, and linear_svm in the run"],
        ),
    ],
)
def test_which_field_of_a_model_differs(model: Any, other: Any, names: list[str]) -> None:
    told = str(differing(of_model(model), of_model(other)))
    for name in names:
        assert name in told
    assert differing(of_model(model), of_model(model)) is None


def test_words_are_short_enough_to_be_told() -> None:
    deep = lsh.models.mlp(784, [8] * 200, 10)
    told = {**of_model(deep), **of_data(TRAIN), **of_data(SPARSE)}
    assert max(map(len, told.values())) <= 400
    assert of_model(deep) != of_model(lsh.models.mlp(784, [*[8] * 199, 9], 10))


@pytest.mark.parametrize("turned", [False, True])
def test_who_is_another_thing_than_the_run_is_turned_away_and_the_run_goes_on(
    turned: bool, tmp_path: Path
) -> None:
    """The run is what the first of two is that came."""
    given = [{"sync": lsh.sync.EASGD(alpha=0.5), "seed": 3}, {"sync": lsh.sync.EASGD(alpha=0.25)}]
    first, second = reversed(given) if turned else given
    terms = {"total": 100 * 200 // BATCH, "batch_size": BATCH, "trainers": 2, "grace": 1.0}
    refused = []

    with inside.run(tmp_path, MODEL.dimension, servers=1, **terms) as run:

        def train(index: int, sync: lsh.sync.Synchroniser, **given: Any) -> lsh.TrainResult:
            return lsh.train(
                MODEL, TRAIN, until=lsh.until(epochs=100), batch_size=BATCH, threads=1,
                rule=lsh.SGD(0.01), cluster=dataclasses.replace(run.cluster(index), sync=sync), **given,
            )  # fmt: skip

        def progress(_: object) -> None:
            if not refused:
                with pytest.raises(ValueError, match=r"trainer-1 cannot join: .*seed is") as told:
                    train(1, **second)
                refused.append(str(told.value))

        result = train(0, observe=lsh.Observe(progress, every=1e-3), **first)
        report = run.report()
    assert len(refused) == 1
    assert "sync.alpha is 0.25 here" in refused[0] or "sync.alpha is 0.5 here" in refused[0]
    assert report["unlike"]["trainer-1"] in refused[0]
    assert result.reason == "epochs"
    assert report["state"] == "ended"


def clicks(**given: Any) -> lsh.datasets.ClickDataset:
    """Numbers, a feature of one id and one of bags."""
    rng = np.random.default_rng(0)
    words: dict[str, Any] = {
        "x": rng.random((50, 3), np.float32),
        "one": rng.integers(0, 90, 50),
        "bags": rng.integers(0, 90, 100),
        "weights": np.ones(100, np.float32),
        "y": rng.integers(0, 2, 50),
        "name": "second",
        **given,
    }
    bags = lsh.datasets.Bags(words["bags"], np.arange(0, 101, 2), words["weights"])
    ids = {"first": words["one"], words["name"]: bags}
    return lsh.datasets.ClickDataset.from_arrays(words["x"], ids, words["y"])


def test_clicks_are_told_apart_by_each_of_their_parts() -> None:
    told = of_data(clicks())["data"]
    assert told.startswith("50 examples, 3 numbers and 2 features of ids, ")
    assert of_data(clicks()) == of_data(clicks())
    base = clicks()
    assert isinstance(base.ids, tuple)
    for name, value in {
        "x": 1 - base.x,
        "one": base.ids[0][::-1],
        "bags": np.arange(100),
        "weights": np.full(100, 0.5, np.float32),
        "y": 1 - base.y,
        "name": "other",
    }.items():
        assert of_data(clicks(**{name: value}))["data"] != told, name
    whole = lsh.datasets.ClickDataset.from_arrays(None, np.arange(100).reshape(50, 2), base.y)
    assert of_data(whole)["data"].startswith("50 examples, 0 numbers and 2 features of ids, ")
    other = lsh.datasets.ClickDataset.from_arrays(None, np.arange(100)[::-1].reshape(50, 2), base.y)
    assert of_data(whole) != of_data(other)


def test_rows_are_updated_by_one_rule_in_a_run() -> None:
    none = lsh.staleness.none()
    told = of_rows(lsh.Adagrad(0.01), none, 0)
    assert told == of_rows(lsh.Adagrad(0.01), none, 0)
    for other in (
        of_rows(lsh.Adagrad(0.02), none, 0),
        of_rows(lsh.SGD(0.01), none, 0),
        of_rows(lsh.Adagrad(0.01), lsh.staleness.power(2), 0),
        of_rows(lsh.Adagrad(0.01), none, 1),
    ):
        assert differing(told, other)


def test_tables_have_the_same_settings_at_all_servers_of_a_run() -> None:
    given = {
        "max_bytes": 1 << 20,
        "share": None,
        "admit_after": 1,
        "evict": None,
        "weight_decay": 0.0,
    }
    told = of_tables(given)
    assert told == of_tables(dict(reversed(given.items())))
    for name, value in (
        ("max_bytes", 1 << 21),
        ("share", 0.5),
        ("admit_after", 2),
        ("evict", "age"),
        ("weight_decay", 0.1),
    ):
        assert "settings of tables is" in str(differing(told, of_tables({**given, name: value})))
