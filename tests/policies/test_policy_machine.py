"""Modes of training as values in Python: the page's code, copies, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leashed import _core

PAGE = (Path(__file__).parents[2] / "docs" / "modes.md").read_text(encoding="utf-8")
JOB = {"workers": 2, "batch": 4}


def test_the_pages_code_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/modes.md", "exec"), names)


def test_the_page_names_every_mode() -> None:
    with pytest.raises(ValueError, match="unknown mode") as error:
        _core.PolicyMachine("none", JOB)
    for name in str(error.value).rpartition(": ")[2].split(", "):
        assert f"`{name}`" in PAGE, name


def test_every_kind_of_action_has_its_fields() -> None:
    machine = _core.PolicyMachine("gba", {**JOB, "m": 1, "iota": 0, "examples": 8, "term_ns": 1000})
    grant, wake = machine.on("pull", 10, 0)
    assert grant == {
        "kind": "grant",
        "node": 0,
        "lease": (1, 0, 0, 4, 0),
        "version": 0,
        "n": 2,
        "c": 0,
    }
    assert wake == {"kind": "wake", "at": 1010}
    machine.on("pull", 10, 1)
    held, applied = machine.on("push", 20, 1, ticket=2, version=0)
    assert held == {"kind": "hold", "slot": 0}
    assert applied == {"kind": "apply", "slots": [(0, 1.0)], "divisor": 1.0, "version": 1}
    assert machine.on("push", 21, 0, 1)[1] == {"kind": "drop", "ticket": 1, "why": "stale"}
    assert machine.on("push", 22, 0, 1) == [{"kind": "drop", "ticket": 1, "why": "late"}]
    assert machine.on("pull", 22, 0) == [{"kind": "end", "node": 0}]

    peers = _core.PolicyMachine("swarm", {**JOB, "h": 1})
    peers.on("pull", 0, 0)
    assert peers.on("push", 1, 0, 1) == [{"kind": "meet", "nodes": [0, 1]}]

    elastic = _core.PolicyMachine("easgd", {**JOB, "alpha": 0.5})
    elastic.on("pull", 0, 0)
    exchange, reply = elastic.on("push", 1, 0, 1)
    assert exchange == {"kind": "exchange", "node": 0, "ticket": 1, "alpha": 0.5, "version": 1}
    assert (reply["kind"], reply["version"]) == ("grant", 1)


def test_a_copy_goes_its_own_way() -> None:
    machine = _core.PolicyMachine("sync", JOB)
    machine.on("pull", 0, 0)
    twin = machine.copy()
    assert machine.on("push", 1, 0, 1) == twin.on("push", 1, 0, 1)
    machine.on("pull", 1, 1)
    assert machine.on("push", 2, 1, 2)[-1]["kind"] == "apply"
    assert twin.on("push", 2, 1, 2) == [{"kind": "drop", "ticket": 2, "why": "late"}]


def test_what_workers_do_is_data() -> None:
    rule = _core.PolicyMachine("easgd", {**JOB, "alpha": 0.25, "gap": 8}).rule()
    assert (rule["model"], rule["local_steps"], rule["sends"]) == ("own", 8, "model")
    assert (rule["steps_own"], rule["takes"]) == (True, "mix")
    assert rule["mixing"] == {"kind": "fixed", "alpha": 0.25, "base": 0.0}
    shat = _core.PolicyMachine("shat", {**JOB, "base": 2}).rule()
    assert (shat["sends"], shat["mixing"]["kind"], shat["mixing"]["base"]) == (
        "gradient",
        "logarithm",
        2.0,
    )
    assert _core.PolicyMachine("gba", JOB).rule()["model"] == "pulled"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("ssp", JOB, "needs a value for 's'"),
        ("asp", {"batch": 1}, "needs a value for 'workers'"),
        (
            "asp",
            {**JOB, "gap": 2},
            "no argument 'gap'; it has: batch, examples, follows, term_ns, workers",
        ),
        ("gba", {**JOB, "iota": -1}, "'iota' must be from 0"),
        ("gba", {**JOB, "iota": float("nan")}, "'iota' must be"),
        ("dssp", {**JOB, "lower": 3, "upper": 2}, "'upper' must be from 3"),
        ("go_sgd", {**JOB, "p": 1.5}, "'p' must be from 0 to 1"),
    ],
)
def test_wrong_arguments_are_refused(name: str, arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _core.PolicyMachine(name, arguments)


def test_wrong_events_are_refused_and_change_nothing() -> None:
    machine = _core.PolicyMachine("asp", JOB)
    with pytest.raises(ValueError, match="there is no event 'pul'"):
        machine.on("pul", 0, 0)
    with pytest.raises(ValueError, match="node must be below"):
        machine.on("join", 0, 1 << 24)
    with pytest.raises(ValueError, match="no commands"):
        machine.on("command", 0, 0, argument=1)
    with pytest.raises(TypeError):
        machine.on("pull", 0, -1)
    assert machine.on("pull", 0, 0)[0]["lease"] == (1, 0, 0, 4, 0)
