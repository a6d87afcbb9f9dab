"""Any two options beside each other on any problem: what only looks on changes no bit, and what does not
go together is refused by the table's sentence.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import matrix
import numpy as np
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import leashed as lsh
from leashed import modes, staleness
from leashed.training import abilities

# (All of one worker, so that a run is to the bit what it was.)
WAYS: dict[str, dict[str, Any]] = {
    "SEQ": {"discipline": lsh.Sequential()},
    "SYNC": {"discipline": lsh.Synchronous()},
    "ASYNC": {"discipline": lsh.Locked()},
    "HOG": {"discipline": lsh.Hogwild()},
    "HOG direct": {"discipline": lsh.Hogwild(copy=False)},
    "LSH": {"discipline": lsh.Leashed(persistence=1)},
    "asp": {"mode": modes.ASP()},
    "gba": {"mode": modes.GBA(m=2)},
    "shat": {"mode": modes.SHAT()},
    "easgd": {"mode": modes.EASGD(0.5, gap=2)},
    "swarm": {"mode": modes.Swarm(h=2)},
}
LOOKS_ON = (
    "checkpoint",
    "every",
    "updates",
    "record",
    "metrics",
    "progress",
    "resume",
    "auto",
    "term",
)
CHANGES: dict[str, dict[str, Any]] = {
    "stages": {"staleness": staleness.stage_aware(staleness.inverse())},
    "tail": {"staleness": staleness.tail_tau(warmup=5)},
    "swap": {"rule": lsh.SWAP(lsh.Adagrad(0.05), period=4)},
    "adam": {"rule": lsh.Adam(0.01)},
    "clipped": {"rule": lsh.SGD(0.05, clip_norm=0.5)},
    "schedule": {"rule": lsh.SGD(lsh.schedules.cosine(0.05, total=30))},
    "normal": {"init": "normal"},
    "small": {"batch_size": 7},
    "updates alone": {"until": lsh.until(updates=33)},
    "validated": {},
}


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return matrix.problems(tmp_path_factory.mktemp("problems"))


def asked(way: str, options: set[str], folder: Path) -> dict[str, Any]:
    """The arguments, but for what is resumed."""
    found: dict[str, Any] = {
        "until": lsh.until(epochs=2),
        "batch_size": matrix.BATCH,
        "rule": lsh.SGD(0.05),
        "threads": "auto" if "auto" in options else 1,
        **WAYS[way],
    }
    observe, kept = lsh.Observe(every=1e3), None
    for option in sorted(options):
        found |= CHANGES.get(option, {})
        match option:
            case "record":
                observe = dataclasses.replace(observe, record=folder / "record")
            case "metrics":
                observe = dataclasses.replace(observe, metrics=lsh.metrics.progressive())
            case "progress":
                observe = dataclasses.replace(observe, progress=str, every=1e-4)
            case "term" if "mode" in found:
                found["mode"] = dataclasses.replace(found["mode"], term=1e4)
            case "checkpoint" | "every" | "updates":
                kept = kept or lsh.Checkpoint(folder / "kept")
                when = {"every": {"every": 1e-4}, "updates": {"updates": 6}}.get(option, {})
                kept = dataclasses.replace(kept, **when)
    return {**found, "observe": observe, "checkpoint": kept}


def trained(problem: Any, way: str, options: set[str], folder: Path) -> lsh.TrainResult:
    model, data = problem()
    given = asked(way, options, folder)
    if "validated" in options:
        given["validation"] = data if isinstance(data, (lsh.Dataset, lsh.SparseDataset)) else None
    if "resume" in options:
        half = {**given, "until": lsh.until(updates=20), "checkpoint": folder / "half"}
        lsh.train(model, data, **{**half, "observe": None})
        model, data = problem()
        given["resume"] = folder / "half"
    return lsh.train(model, data, **given)


def bits(result: lsh.TrainResult) -> list[Any]:
    """Of parameters and rows."""
    rows = [table.lookup(np.arange(12)).tobytes() for table in result.tables.values()]
    return [result.parameters.tobytes(), result.total_updates, rows]


def refused(error: Exception) -> bool:
    sentences = [str(one) for one in (*abilities.REFUSED, *abilities.NEEDS)]
    return str(error) in sentences


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(
    problem=st.sampled_from([
        "dense", "sparse", "fm", "tables", "stream", "stream of clicks", "stream of sparse rows",
        "external",
    ]),
    way=st.sampled_from(sorted(WAYS)),
    two=st.sets(st.sampled_from([*LOOKS_ON, *CHANGES]), min_size=2, max_size=2),
)  # fmt: skip
def test_any_two_options_go_together(
    problems: dict[str, Any], problem: str, way: str, two: set[str]
) -> None:
    if way == "shat" and "stages" in two:
        return  # by staleness it mixes already
    if problem == "external" and "metrics" in two:
        return  # its outputs are no chances
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("leashed.training.run.fastest", lambda *_: 1)
                result = trained(problems[problem], way, two, folder)
        except (TypeError, ValueError) as error:
            if refused(error):
                return
            # Then what is no more than looked on with it has nothing to do with that.
            with pytest.raises(type(error)):
                trained(problems[problem], way, two - set(LOOKS_ON), folder)
            return
        assert np.isfinite(result.parameters).all()
        plain = trained(problems[problem], way, two - set(LOOKS_ON), folder)
        assert bits(result) == bits(plain)
        if "record" in two:
            model, data = problems[problem]()
            made = lsh.replay(folder / "record", model, data)
            np.testing.assert_array_equal(made.parameters, result.parameters)
        if {"checkpoint", "every", "updates"} & two:
            kept = lsh.load(
                folder / "kept", *([] if problem != "external" else [problems[problem]()[0]])
            )
            np.testing.assert_array_equal(kept.parameters, result.parameters)
