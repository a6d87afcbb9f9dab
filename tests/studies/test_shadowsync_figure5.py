"""Figure 5: what is predicted, and what is made of records."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from leashed.cluster.packing import FRAGMENT
from leashed.cluster.shadowsync.figure5 import Figure5, Paced
from leashed.cluster.shadowsync.scaling import demand, plateau
from leashed.studies.study import left

TINY = Figure5(
    trainers=(1, 2),
    servers=(1,),
    gaps=(5,),
    threads=1,
    batch_size=4,
    dimension=1000,
    pace=0.01,
    bandwidth=1e6,
    warm=0.1,
    window=3.0,
)


def record(sync: str, servers: int, trainers: int, eps: float, repeat: int = 0):
    return {
        "study": "figure5",
        "setting": {"repeat": repeat, "trainers": trainers, "sync": sync, "servers": servers},
        "conditions": {},
        "measured": {"eps": eps, "gap": 2.0, "gap_by_bytes_in": 2.5, "gap_by_bytes_out": None},
    }


def test_at_the_plateau_what_is_exchanged_is_what_the_links_carry() -> None:
    d, bandwidth, gap, batch_size = 4 * FRAGMENT, 12.5e6, 5, 64
    for servers in (1, 2, 4):
        eps = plateau(d, servers, bandwidth, gap, batch_size)
        assert demand(1, eps, d, gap, batch_size) == pytest.approx(servers * bandwidth)
    # trainers × threads × (iterations/s ÷ gap) × bytes = bandwidth, by hand:
    iterations = plateau(d, 1, bandwidth, gap, batch_size) / batch_size
    assert iterations / 5 * 4 * d == pytest.approx(12.5e6)
    assert plateau(d, 1, bandwidth, 30, 64) == pytest.approx(6 * plateau(d, 1, bandwidth, 5, 64))


def test_where_fragments_do_not_divide_the_fullest_server_decides() -> None:
    assert plateau(3 * FRAGMENT, 2, 1e6, 5, 1) == pytest.approx(plateau(2 * FRAGMENT, 1, 1e6, 5, 1))
    assert plateau(FRAGMENT, 4, 1e6, 5, 1) == plateau(FRAGMENT, 1, 1e6, 5, 1)


def test_every_arm_runs_with_every_number_of_trainers() -> None:
    study = Figure5(trainers=(1, 2), servers=(1, 2), gaps=(5, 30), repeats=2)
    settings = study.settings()
    assert len(settings) == 2 * 2 * 5
    assert [s["repeat"] for s in settings] == sorted(s["repeat"] for s in settings)
    arms = {(s["sync"], s["servers"]) for s in settings}
    assert arms == {
        ("none", 1), ("S-EASGD", 1), ("FR-EASGD-5", 1), ("FR-EASGD-30", 1), ("FR-EASGD-5", 2)
    }  # fmt: skip


def test_the_plateau_is_of_runs_with_enough_trainers() -> None:
    study = Figure5(servers=(1, 2), gaps=(5,))
    predicted = study.predicted(5, 1)
    alone = predicted / 2.0  # of one trainer: the knee is at 2
    records = [record("none", 1, n, n * alone) for n in (1, 2, 4)]
    records += [record("FR-EASGD-5", 1, n, eps) for n, eps in [(1, alone), (2, 0.8 * predicted)]]
    records += [record("FR-EASGD-5", 1, 4, 0.9 * predicted, repeat=k) for k in range(2)]
    records += [record("S-EASGD", 1, 4, 3.9 * alone)]
    (found,) = study.plateaus(records)
    assert found["knee"] == pytest.approx(2.0)
    assert found["ratio"] == pytest.approx(0.9)
    text = study.report(records)
    assert "0.900" in text
    assert "0.975" in text  # what S-EASGD keeps
    assert "paced" in text
    ways, servers, drawn = study.panels(records)
    assert set(ways) == {
        "no synchronisation",
        "FR-EASGD-5, 1 sync server",
        "S-EASGD, 1 sync server",
    }
    assert list(servers) == list(drawn) == ["FR-EASGD-5, 1 sync server"]


def test_of_nothing_there_is_a_report_too() -> None:
    assert "paced" in Figure5().report([])
    assert Figure5().plateaus([record("FR-EASGD-5", 1, 4, 1.0)]) == []


def test_a_paced_gradient_is_zero_and_counts_itself() -> None:
    paced, out = Paced(0.001), np.ones(3)
    assert paced(None, None, None, out) == 0.0
    assert not out.any()
    assert paced.done == 1


@pytest.mark.parametrize("arm", range(3))
def test_a_run_tells_what_it_measured(arm: int) -> None:
    setting = TINY.settings()[3 + arm]
    found = TINY.run(setting, None)
    assert left(TINY, None, [found]) == [s for s in TINY.settings() if s != setting]
    measured = found["measured"]
    assert measured["eps"] > 0
    if setting["sync"] == "none":
        assert measured["gap"] is None
        assert measured["bytes_in_per_second"] == 0
    else:
        assert measured["gap"] > 0


def test_other_conditions_are_refused() -> None:
    found = {**record("none", 1, 1, 1.0), "conditions": TINY.conditions(None)}
    with pytest.raises(ValueError, match=r"pace 0\.01 there, 0\.02 here"):
        left(dataclasses.replace(TINY, pace=0.02), None, [found])
    with pytest.raises(ValueError, match="table2"):
        left(TINY, None, [{**found, "study": "table2"}])


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"trainers": ()}, "trainers"),
        ({"servers": (0,)}, "servers"),
        ({"gaps": (0,)}, "gaps"),
        ({"pace": 0.0}, "pace"),
        ({"bandwidth": -1.0}, "bandwidth"),
        ({"threads": 0}, "threads"),
    ],
)
def test_wrong_arguments_are_named(changes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Figure5(**changes)
