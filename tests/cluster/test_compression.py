"""Trainers whose synchronisation is compressed: they train alike, and send less."""

from __future__ import annotations

import json

import numpy as np
import pytest
from cluster import written
from cluster.alike import Run

import leashed as lsh
from leashed import _core, cli
from leashed.cluster.measures import counted, measure
from leashed.cluster.plan import Sync

FACTORS = {"none": 1.0, "bfloat16": 2.0, "int8": 4 * 256 / 258}
LOSSY = [name for name in FACTORS if name != "none"]


def loss(result: lsh.TrainResult) -> float:
    return float(result.loss[-1])


@pytest.mark.parametrize("compression", LOSSY)
@pytest.mark.parametrize("when", [lsh.sync.background(), lsh.sync.every(iterations=3)])
def test_alone_without_elasticity_it_has_the_bits_of_a_run_without(compression, when):
    (alone,) = Run([None]).train(lsh.Locked())
    synchroniser = lsh.sync.EASGD(alpha=0.0, when=when, compression=compression)
    syncs = 0.0
    while not syncs:  # a background that has had no turn has it in another run
        (result,) = Run([synchroniser]).train(lsh.Locked())
        assert np.array_equal(result.parameters, alone.parameters)
        syncs = result.config["cluster"]["syncs"]


@pytest.mark.parametrize(
    ("make", "count"), [(lsh.sync.EASGD, 3), (lsh.sync.MA, 2), (lsh.sync.BMUF, 3)]
)
def test_trainers_come_to_the_loss_that_they_come_to_without(make, count):
    when = lsh.sync.every(iterations=5)
    losses, sent = {}, {}
    for compression in FACTORS:
        synchronisers = [make(when=when, compression=compression) for _ in range(count)]
        results = Run(list(synchronisers)).train()
        losses[compression] = [loss(each) for each in results]
        counted = [each.config["cluster"] for each in results]
        assert all(each["failed"] == 0 for each in counted)
        sent[compression] = sum(each["bytes_out"] for each in counted) / sum(
            each["syncs"] for each in counted
        )
    start = np.log(10)
    for compression in LOSSY:
        assert max(losses[compression]) < max(losses["none"]) + 0.1 * start
        # The first round, with values as they are, is among them.
        assert 0.85 * FACTORS[compression] < sent["none"] / sent[compression]
        assert sent["none"] / sent[compression] <= FACTORS[compression] * 1.01


def test_a_server_has_trainers_with_and_without_compression():
    when = lsh.sync.every(iterations=5)
    run = Run([lsh.sync.EASGD(when=when, compression=each) for each in FACTORS])
    results = run.train()
    sent = [each.config["cluster"]["bytes_out"] for each in results]
    assert sent[0] > 1.8 * sent[1] > 3.2 * sent[2]
    assert all(loss(each) < 1.0 for each in results)
    counted = run.server.counters()
    assert counted["refused"] == 0
    assert counted["bytes_in"] == sum(sent)


@pytest.mark.parametrize("symmetric", [False, True])
def test_streaming_and_the_classical_exchange_are_compressed_as_well(symmetric):
    when = lsh.sync.every(iterations=2)
    synchroniser = lsh.sync.EASGD(symmetric=symmetric, when=when, parts=2, compression="int8")
    results = Run([synchroniser, synchroniser]).train()
    for each in results:
        counted = each.config["cluster"]
        assert counted["failed"] == 0
        assert 3.0 < 4 * counted["floats"] / counted["bytes_out"] < 4
        assert loss(each) < 1.0


def test_a_plan_names_it():
    assert Sync("ma", compression="int8").synchroniser() == lsh.sync.MA(compression="int8")
    assert Sync("diloco", compression="bfloat16").synchroniser() == lsh.sync.diloco(
        compression="bfloat16"
    )
    assert lsh.sync.EASGD().compression == "none"


def test_what_there_is_not_is_refused():
    with pytest.raises(
        ValueError, match=r"compression must be one of none, bfloat16, int8, got 'z"
    ):
        lsh.sync.BMUF(compression="zip")
    with pytest.raises(ValueError, match="compression must be one of"):
        _core.TrainerSync(
            machine=("ma", {"alpha": 0.5}),
            pace="background",
            starts=[],
            gaps=[],
            dimension=5,
            owner=[0],
            servers=0,
            parts=1,
            timeout=1.0,
            custom=None,
            workers=1,
            compression="zip",
        )


@pytest.mark.process
@pytest.mark.parametrize(
    ("sync", "compression"),
    [
        ("easgd", "bfloat16"),
        ("ma", "int8"),
        pytest.param("easgd", "int8", marks=pytest.mark.long),
        pytest.param("ma", "bfloat16", marks=pytest.mark.long),
    ],
)
def test_roles_of_a_run_send_less(sync, compression, tmp_path):
    folder = tmp_path / "run"
    arguments = ["--sync", sync, "--compression", compression, "--epochs", "8"]
    arguments += ["--data", str(written.digits(tmp_path / "digits")), "--run", str(folder)]
    assert cli.main(["cluster", "up", *arguments, "--transport", "tcp"]) == 0
    report = json.loads((folder / "run.json").read_text())
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    whole = 4 * report["terms"]["parameters"]
    for each in report["summaries"].values():
        rounds = each["syncs"] + each["sync_failed"]
        assert rounds > 0
        # In a ring of two that is half the parameters twice. A few times they go as they are.
        assert each["bytes_out"] < 1.05 * rounds * whole / FACTORS[compression] + 4 * whole
    # Both forms of eq. 2: by rounds and by bytes, of which the first transfers are no rounds.
    for index, counters in counted(report, "trainer").items():
        found = measure(counters, 1.0, report["terms"]["batch_size"])
        beside = 0.05 + 2.0 / counters["syncs"]
        assert found.gap_out == pytest.approx(found.gap, rel=beside), index
        assert found.gap_in == pytest.approx(found.gap, rel=beside), index
    moved = report["traffic"].values()
    assert len(moved) == 2 + (sync == "easgd")
    for each in moved:
        assert each["ratio_out"] == pytest.approx(1.0, abs=0.05)
        assert each["ratio_in"] == pytest.approx(1.0, abs=0.05)
