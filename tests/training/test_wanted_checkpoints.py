"""A checkpoint that is asked for from outside, as by a cut of a cluster's run, waits for no evaluation."""

from __future__ import annotations

import time

import numpy as np
import pytest

import leashed as lsh
from leashed import _core
from leashed.training import request
from leashed.training.sets import head_of

CHUNKS = 40  # of 256 rows


@pytest.mark.parametrize("discipline", ["leashed", "hogwild", "locked"])
def test_an_evaluation_under_way_is_not_waited_for_and_is_of_one_moment(discipline: str) -> None:
    rows = CHUNKS * 256
    data = lsh.datasets.Dataset.from_arrays(
        np.zeros((rows, 1), np.float32), np.zeros(rows, np.int32), classes=2
    )
    trained, evaluated, chunks, taken = False, 0, [], []

    def gradient(*given):
        nonlocal trained
        trained = True
        given[-1][:] = -1
        return 1.0

    def loss(theta, *_):
        nonlocal evaluated
        if not trained:
            return 1.0
        if len(chunks) == CHUNKS:
            chunks.clear()
            evaluated += 1
        chunks.append(theta[0])
        assert len(set(chunks)) == 1
        time.sleep(0.002)  # so that it is asked many times meanwhile whether to go on
        return 1.0

    asked = request.of(
        lsh.models.external(gradient, dimension=1, features=1, loss=loss),
        data,
        until=lsh.until(seconds=600),
        discipline=discipline,
        threads=1,
        rule=None,
        staleness=None,
        seed=0,
        observe=lsh.Observe(every=0.001, rows=None),
    )

    def checkpoint(reached):
        taken.append((len(chunks), reached.vectors[0, 0], chunks[-1] if chunks else None))

    watch = _core.Watch(
        until=asked.rules,
        evaluate_every=0.001,
        wanted=lambda: not taken and 2 < len(chunks) < CHUNKS,
        checkpoint=checkpoint,
        progress=lambda *_: stop(),
    )

    def stop():
        if taken:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        _core.train(asked.training(asked.source(1), head_of(asked.train_set), 1), watch)
    inside, saved, seen = taken[0]
    assert 2 < inside < CHUNKS
    assert saved >= seen
