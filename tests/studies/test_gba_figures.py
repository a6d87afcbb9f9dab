"""Figures 2, 3, 4, 7 and 8 of gba as studies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from leashed.cli import main
from leashed.datasets import ClickDataset
from leashed.studies import study
from leashed.studies.global_batch import Batches, aucs, throughput
from leashed.studies.gradient_norms import Norms, norms, occurrences
from leashed.studies.hyperparameters import ARMS, STILL, SWEPT, Sets, after, lines

FEW: dict[str, Any] = {"workers": 4, "batch_size": 8, "sync_workers": 2, "repeats": 2}


def records(asked: Any) -> list[dict[str, Any]]:
    ran = study.run(asked)
    assert not ran.left
    return list(asked.shown(ran.records))


def test_every_arm_is_looked_at_from_the_first_click_to_the_last() -> None:
    asked = Sets(**{**FEW, "repeats": 1}, rows=640)
    found = records(asked)
    series = lines(found)
    assert set(series) == {(before, *arm) for before, arms in ARMS.items() for arm in arms}
    for (before, mode, _), of_seeds in series.items():
        own, first = series[(before, *ARMS[before][1])], of_seeds[0]
        for shares, looks in of_seeds:
            assert len(looks) == len(shares) > 20
            assert (np.diff(shares) >= 0).all()
            assert (shares[0], shares[-1]) == (0.0, 1.0)
            assert 0.3 < looks.min() < looks.max() < 0.8
        half = first[0] < 0.5
        if mode != STILL:  # until the switch nothing is another
            np.testing.assert_array_equal(first[1][half], own[0][1][own[0][0] < 0.5])
        assert len(after(first)) >= 10
    switches, rates = asked.parts(found)
    assert len(switches.found.rows) == sum(map(len, ARMS.values()))
    assert sum(row[-1] == "yes" for row in rates.found.rows) == len(SWEPT)


def test_crews_of_one_global_batch_begin_with_one_model() -> None:
    asked = Batches(**FEW, rows=640, base=1, days=2, counts=(2, 4, 8), batches=(4, 8, 16))
    found = records(asked)
    of_crews = aucs(asked, found)
    assert set(of_crews) == {(2, 16), (4, 8), (8, 4), (4, 4), (4, 16)}
    assert all(len(one) == 2 for one in of_crews.values())
    eps = throughput(found)
    # A gradient takes as long a click whoever computes it, until the servers are full.
    assert eps[8, 0.0] / eps[2, 0.0] == pytest.approx(4.0, rel=0.25)
    assert eps[8, 0.0015] <= eps[8, 0.0]
    figure7, rates, figure8 = asked.parts(found)
    assert [row[0] for row in figure7.found.rows] == ["2", "4", "8"]
    assert len(rates.found.rows) == 4
    assert [row[2] for row in figure8.found.rows] == ["16", "32", "64"]


def test_larger_batches_have_smaller_gradients() -> None:
    asked = Norms(**FEW, rows=640, batches=(2, 8, 32), updates=4)
    found = records(asked)
    of_modes = norms(found)
    assert all(one.shape == (2, 4) for one in of_modes.values())
    means = {key: one.mean() for key, one in of_modes.items()}
    assert means["BSP", 2] > means["BSP", 8] > means["BSP", 32]
    # The first update of BSP is of as many clicks on the same model.
    assert means["BSP", 8] == pytest.approx(means["Sync", None], rel=0.5)
    gradients, ids = asked.parts(found)
    assert [row[1] for row in gradients.found.rows] == ["32", "8", "32", "128"]
    assert len(ids.found.rows) == 3


def test_an_id_is_in_a_share_of_the_batches() -> None:
    ids = np.array([[0, 5], [0, 6], [1, 5], [2, 5], [0, 5], [1, 5], [7, 7]], np.uint64)
    clicks = ClickDataset.from_arrays(np.zeros((7, 1), np.float32), ids, np.arange(7) % 2)
    # Three batches of two: 0 is in two, 1 in two, 2 in one; 5 in all, 6 in one. What is left is none.
    assert sorted(occurrences(clicks, 2)) == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3, 1.0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["global-batch", "--counts", "3"], "counts must divide the 1600 clicks of a global batch"),
        (["global-batch", "--counts", "1"], "counts must be at least 2"),
        (["gradient-norms", "--updates", "0"], "updates must be at least 1"),
        (["hyperparameters", "--rows", "100"], "rows must be at least 16000"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str, capsys) -> None:
    assert main(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err
