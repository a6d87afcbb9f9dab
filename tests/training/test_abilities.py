"""What does not go together is refused by the table's own sentence, before anything has begun."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import matrix
import numpy as np
import pytest
from made_clicks import small

import leashed as lsh
from leashed import modes, simulation, staleness, stream
from leashed.training import abilities

PAGE = Path(__file__).parents[2] / "docs" / "combinations.md"
STAGES = staleness.stage_aware(staleness.inverse())
TRAINERS = simulation.constant(2, 1.0).trainers(2)
FAILING = simulation.constant(2, 1.0).failing(10.0, 1.0)


class Place:
    """In a run."""

    def __init__(
        self,
        sync: lsh.sync.Synchroniser | None = None,
        embedding_servers: int = 0,
        readers: int = 0,
        policy_servers: int = 0,
        begins: object = None,
        evict_or_wait: bool = False,
    ) -> None:
        self.sync, self.embedding_servers, self.readers = sync, embedding_servers, readers
        self.policy_servers, self.begins = policy_servers, begins
        self.evict_or_wait = evict_or_wait

    def session(self, *_: Any, **__: Any) -> None: ...


def asked(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """By what the table calls it, the arguments that ask for it."""
    return {
        "discipline": {"discipline": lsh.Leashed()},
        "unordered": {"discipline": lsh.Hogwild()},
        "trained rows": {"init": lsh.Init(tables=made(trained=True))},
        "evict": {"init": lsh.Init(tables=made(rows=None, evict="age"))},
        "mode": {"mode": modes.ASP()},
        "models": {"mode": modes.LocalSGD(h=2)},
        "mixing": {"mode": modes.SHAT()},
        "staleness by stages": {"staleness": STAGES},
        "sync": {"cluster": Place(lsh.sync.MA())},
        "cluster": {"cluster": Place()},
        "cluster without embedding servers": {"cluster": Place()},
        "embedding servers": {"cluster": Place(embedding_servers=2)},
        "readers": {"cluster": Place(readers=2)},
        "cluster without a policy server": {"cluster": Place()},
        "policy servers": {"cluster": Place(policy_servers=1)},
        "several policy servers": {"cluster": Place(policy_servers=2)},
        "evict or wait": {"cluster": Place(policy_servers=2, evict_or_wait=True)},
        "servers by themselves": {"mode": modes.ASP()},
        "modes that switch": {"mode": modes.Switching()},
        "modes without a server": {"mode": modes.Swarm(h=1)},
        "all-reduce": {"dense": "all-reduce"},
        "modes without rounds": {"mode": modes.ASP()},
        "a staleness policy": {"staleness": "power:k=2"},
        "checkpoints of the run": {"cluster": Place(policy_servers=1, begins="there")},
        "checkpoint": {"checkpoint": tmp_path / "kept"},
        "until.updates": {"until": lsh.until(epochs=1, updates=9)},
        "init.tables": {"init": lsh.Init(tables=made())},
        "lockstep": {"discipline": lsh.Synchronous()},
        'threads="auto"': {"threads": "auto"},
        "record": {"observe": lsh.Observe(record=tmp_path / "record")},
        "resume": {"resume": tmp_path / "run"},
        "until.loss": {"until": lsh.until(epochs=1, loss=0.1)},
        "until.loss_fraction": {"until": lsh.until(epochs=1, loss_fraction=0.1)},
        "until.divergence": {"until": lsh.until(epochs=1, divergence=9.0)},
        "until.patience": {"until": lsh.until(patience=2)},
        "metrics": {"observe": lsh.Observe(metrics=lsh.metrics.progressive())},
        "checkpoint.every": {"every": 1.0},
        "checkpoint.updates": {"updates": 9},
        "checkpoint.incremental": {"incremental": True},
    }


VIRTUAL: dict[str, dict[str, Any]] = {
    "virtual time": {"cluster": simulation.constant(2, 1.0)},
    "cluster of trainers": {"cluster": TRAINERS},
    "detection": {"detection": 1.0},
    "network": {"cluster": simulation.constant(2, 1.0).over(simulation.Network(1e6))},
    "failing": {"cluster": FAILING},
    "members": {"cluster": simulation.constant(2, 1.0).members([(1.0, 0, "crash")])},
    "shards": {"shards": simulation.memorywise(2)},
}
DATA = {"stream": "stream", "stream here": "stream", "sparse rows": "sparse"}
DATA |= dict.fromkeys(
    ("tables", "trained rows", "evict", "init.tables", "embedding servers"), "tables"
)


def made(rows: int | None = 12, *, trained: bool = False, **given: Any) -> dict[str, lsh.Table]:
    found = lsh.models.tables.of(small(rows).tables, **given)
    if trained:
        next(iter(found.values())).update([1], np.ones((1, 8)))
    return found


@pytest.fixture
def arguments(tmp_path: Path) -> Any:
    problems = matrix.problems(tmp_path)
    _, clicked = problems["tables"]()
    problems["normalised"] = lambda: (small(norm=lsh.models.BatchNorm()), clicked)

    def of(parts: tuple[str, ...], lacks: str = "") -> tuple[Any, Any, dict[str, Any]]:
        read = [DATA[part] for part in parts if part in DATA and DATA[part] != lacks]
        data = next(iter(read), "dense")
        given: dict[str, Any] = {"until": lsh.until(epochs=1), "batch_size": 16}
        for part in parts:
            given |= VIRTUAL.get(part, asked(tmp_path).get(part, {}))
        if {"embedding servers", "policy servers"} <= set(parts):
            given["cluster"] = Place(embedding_servers=2, policy_servers=1)
        if "rows that come once" in parts:
            pipe, columns = tmp_path / "pipe", {"y": stream.Label(), "a": stream.Number()}
            os.mkfifo(pipe)
            piped = lsh.models.logistic_regression(1), stream.csv(pipe, columns)
            problems["once"], data = lambda: piped, "once"
            given["mode"] = modes.ASP()
            given["cluster"] = lsh.cluster.join(
                rank=0, size=1, policy_servers=1, readers=1, folder=tmp_path / "there"
            )
        kept = {k: given.pop(k) for k in ("every", "updates", "incremental") if k in given}
        if kept:
            given["checkpoint"] = lsh.Checkpoint(tmp_path / "kept", **kept)
        return (*problems[data](), given)

    return of


@pytest.mark.parametrize("refused", abilities.REFUSED, ids=str)
def test_what_does_not_go_together_is_refused_with_its_reason(
    refused: abilities.Refused, arguments: Any
) -> None:
    model, data, given = arguments((*refused.beside, refused.asked))
    call = lsh.simulate if {refused.asked, *refused.beside} & VIRTUAL.keys() else lsh.train
    with pytest.raises(ValueError) as raised:  # noqa: PT011 (compared whole)
        call(model, data, **given)
    assert str(raised.value) == str(refused)


@pytest.mark.parametrize("needs", abilities.NEEDS, ids=str)
def test_what_means_nothing_by_itself_is_refused(needs: abilities.Needs, arguments: Any) -> None:
    model, data, given = arguments((needs.asked,), needs.needs)
    call = lsh.simulate if needs.asked in VIRTUAL else lsh.train
    if call is lsh.simulate:
        given = {"cluster": simulation.constant(2, 1.0), **given}
    with pytest.raises(ValueError) as raised:  # noqa: PT011 (compared whole)
        call(model, data, **given)
    assert str(raised.value) == str(needs)


def test_the_page_is_the_table() -> None:
    assert PAGE.read_text() == abilities.page()


def test_every_refused_pair_has_one_reason() -> None:
    pairs = [(refused.asked, refused.beside) for refused in abilities.REFUSED]
    assert len(set(pairs)) == len(pairs)
    named = {part for refused in abilities.REFUSED for part in refused.beside}
    named |= {needs.needs for needs in abilities.NEEDS}
    assert named == set(abilities.TOLD)
    assert np.all([refused.why and refused.instead for refused in abilities.REFUSED])
