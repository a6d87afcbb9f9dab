"""How trainings of a cluster end: each by its own rules, without a loss for the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cluster import inside

import leashed as lsh

DATA = lsh.datasets.synthetic_digits(n=200)
MODEL = lsh.models.mlp(784, [4], 10)
EPOCHS, BATCH = 60, 8
TOTAL = EPOCHS * 200 // BATCH
WHEN = {"background": lsh.sync.background(), "foreground": lsh.sync.every(iterations=5)}
KINDS: dict[str, Callable[..., lsh.sync.Synchroniser]] = {
    "easgd": lsh.sync.EASGD,
    "ma": lsh.sync.MA,
    "bmuf": lsh.sync.BMUF,
}


def train(run: inside.Run, index: int, kind: str, when: str, **given: object) -> lsh.TrainResult:
    return lsh.train(
        MODEL,
        DATA.train,
        **{
            "until": lsh.until(epochs=EPOCHS), "batch_size": BATCH, "threads": 2,
            "rule": lsh.SGD(0.01), "evaluate_every": 1e6, "sync": KINDS[kind](when=WHEN[when]),
            "cluster": run.cluster(index, timeout=inside.PATIENCE), **given,
        },
    )  # fmt: skip


@pytest.mark.parametrize("rule", ["updates", "seconds"])
@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("kind", KINDS)
def test_who_ends_by_a_rule_of_its_own_costs_the_others_no_round(
    kind: str, when: str, rule: str, tmp_path: Path
) -> None:
    """Though its last evaluation, or one that is under way, lasts until they have ended."""
    others_have_ended = threading.Event()
    evaluations = []

    def evaluated(progress: object) -> None:
        evaluations.append(progress)
        if len(evaluations) == 2:
            assert others_have_ended.wait(inside.PATIENCE)

    until = {"updates": lsh.until(epochs=EPOCHS, updates=200),
             "seconds": lsh.until(epochs=EPOCHS, seconds=0.2)}[rule]  # fmt: skip
    every = {"updates": 0.01, "seconds": 1e6}[rule]
    terms = {"total": TOTAL, "batch_size": BATCH, "trainers": 2}
    with inside.run(tmp_path, MODEL.dimension, 2 * (kind == "easgd"), **terms) as run:

        def goes_on() -> lsh.TrainResult:
            try:
                return train(run, 1, kind, when)
            finally:
                others_have_ended.set()

        with ThreadPoolExecutor(2) as pool:
            ends = pool.submit(
                train, run, 0, kind, when, until=until, progress=evaluated, evaluate_every=every
            )
            other = pool.submit(goes_on).result()
            ended = ends.result()
        report = run.report()
    assert (ended.reason, other.reason) == (rule, "epochs")
    assert len(evaluations) >= 2
    ledger, told = report["ledger"], report["summaries"]
    assert (ledger["complete"], ledger["outstanding"], ledger["again"]) == (TOTAL, 0, 0)
    used = [told[f"trainer-{index}"]["batches_used"] for index in range(2)]
    assert used == [ended.gradients, other.gradients]
    assert sum(used) == TOTAL
    assert 0 < used[0] < TOTAL
    assert [told[f"trainer-{index}"]["sync_failed"] for index in range(2)] == [0, 0]
    assert report["epochs_broken"] == 0
