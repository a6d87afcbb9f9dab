"""The model that comes out of a run, and what is added to its report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leashed.cluster import traffic
from leashed.cluster.measures import counted
from leashed.cluster.plan import Plan
from leashed.cluster.supervisor import REPORT, read_report
from leashed.files import checkpoint
from leashed.files.model_file import BuiltIn
from leashed.studies.elp import Parallelism
from leashed.training.problems.problem import Problem

__all__ = ["MODEL", "choose", "conclude", "long_gone", "read_report", "replicas", "together"]

MODEL = "output.safetensors"
"""In the run's folder."""


def replicas(folder: Path, dimension: int) -> dict[int, NDArray[np.float32]]:
    """The final parameters [d] of each trainer that has handed them in, by its index.

    Raises:
        ValueError: a file has another length.
    """
    found = {}
    for path in folder.glob("trainer-*.f32"):
        parameters = np.fromfile(path, "<f4").astype(np.float32, copy=False)
        if len(parameters) != dimension:
            raise ValueError(f"{path} has {len(parameters)} parameters, not {dimension}")
        found[int(path.stem.partition("-")[2])] = parameters
    return dict(sorted(found.items()))


def choose(
    output: str, found: Mapping[int, NDArray[np.float32]], model: BuiltIn, test: Any
) -> tuple[str, NDArray[np.float32]]:
    """The output of a run, and in words which it is.

    Args:
        output: ``"first"`` (shadowsync, section 4), ``"average"``, or ``"best"`` on ``test``, whose
            accuracy there, or loss where there are no classes, is then that of a choice among several.
        found: the trainers' parameters, at least one.
        model: that was trained.
        test: the test set.
    """
    if output == "average":
        mean = np.mean([each.astype(np.float64) for each in found.values()], axis=0)
        return f"average of {len(found)} trainers", mean.astype(np.float32)
    if output == "best":
        told = {index: model.evaluate(each, test) for index, each in found.items()}
        best = max(found, key=lambda index: told[index][1] if test.classes else -told[index][0])
        return f"trainer {best}, the best of {len(found)} on the test set", found[best]
    first = min(found)
    return f"trainer {first}", found[first]


def together(
    found: Mapping[int, NDArray[np.float32]], summaries: Mapping[str, Mapping[str, float]]
) -> Mapping[int, NDArray[np.float32]]:
    """Of the trainers' parameters those of who has said its last word, of these those of who has been
    synchronised since it (re)started, of these those of who was not told to end (SIGTERM, Ctrl-C), and of
    these those of who was there when all batches were used; where a step would leave nobody, it leaves
    all.

    A trainer that came back while its sync servers were away, shortly before the end, has little more
    than what it began with; one that left early has what was known then.
    """

    def cut_off(summary: Mapping[str, float]) -> bool:
        return not summary

    def apart(summary: Mapping[str, float]) -> bool:
        return summary.get("batches_used", 0) > 0 and not summary.get("syncs")

    def interrupted(summary: Mapping[str, float]) -> bool:
        return bool(summary.get("interrupted"))

    def early(summary: Mapping[str, float]) -> bool:
        return bool(summary.get("left_early"))

    for others in (cut_off, apart, interrupted, early):
        left = {
            k: each for k, each in found.items() if not others(summaries.get(f"trainer-{k}", {}))
        }
        found = left or found
    return found


def long_gone(
    found: Mapping[int, NDArray[np.float32]], report: Mapping[str, Any], timeout: float
) -> set[int]:
    """Of the trainers with these parameters those who left before the last batch was used, and longer
    than ``timeout`` before others did, or had told of their training last.
    """
    trainers = [each for each in report["members"] if each["role"] == "trainer"]
    left = {each["index"]: each["gone"] for each in trainers if each["finished"]}
    trained = [
        each["counted"]
        for each in trainers
        if not each["finished"] and each["counters"].get("batches_used")
    ]
    last = max([*trained, *(left[k] for k in found if k in left)], default=0.0)
    summaries = report["summaries"]
    early = {k for k in found if summaries.get(f"trainer-{k}", {}).get("left_early")}
    return {k for k in early if left.get(k, last) + timeout < last}


def conclude(
    report: Mapping[str, Any],
    folder: Path,
    plan: Plan,
    problem: Problem,
    restarts: Mapping[str, int],
    given_up: Mapping[str, str],
) -> dict[str, Any]:
    """The report of a run that has ended, with what was run, its output model, restarts, who was given up
    and why, ELP, and its bytes beside the kernel's counts; written, beside the model, to the run's
    folder. Without a result of any trainer that was there at the end the model is what the run had
    reached (``reached``), if that is known.

    Raises:
        OSError: the folder cannot be written.
        ValueError: a result is damaged.
    """
    train, synchroniser = plan.train, plan.sync.synchroniser()
    trainers = len(counted(report, "trainer"))
    whole = {
        **report,
        "model": train.model,
        "data": problem.train.name,
        "sync": "none" if synchroniser is None else synchroniser.label,
        "restarts": dict(restarts),
        "given_up": dict(given_up),
        "traffic": traffic.figures(report),
    }
    if lost := sorted(given_up.keys() - report.get("given_up", {}).keys()):
        said = f"{report['reason']}; " if report["reason"] else ""
        whole["reason"] = f"{said}given up: {', '.join(lost)}"
    if trainers and isinstance(train.threads, int):  # not as many as are fastest at each
        whole["elp"] = Parallelism("", train.batch_size, train.threads, trainers).elp
    model = problem.model
    summaries = report["summaries"]
    handed_in = {
        index: each
        for index, each in replicas(folder, model.dimension).items()
        if not summaries.get(f"trainer-{index}", {}).get("crashed")
    }
    found = together(handed_in, summaries)
    gone = long_gone(found, report, plan.cluster.timeout)
    chosen: tuple[str, NDArray[np.float32]] | None = None
    if found.keys() <= gone:
        from leashed.cluster import reached  # noqa: PLC0415 (it needs the extra)

        since = max((_file(folder, k).stat().st_mtime for k in found), default=0.0)
        if (chosen := reached.find(folder, plan, model, since)) is not None:
            what, parameters = chosen
            others = f" but {_names(handed_in)}, gone before the end," if handed_in else ""
            chosen = f"{what}: no trainer{others} has handed in its parameters", parameters
    if chosen is None and found:
        found = {k: each for k, each in found.items() if k not in gone} or found
        output, parameters = choose(train.output, found, model, problem.test)
        if apart := handed_in.keys() - found.keys():
            output += f" (not of {_names(apart)}: not in step, or gone, at the end)"
        chosen = output, parameters
    if chosen is not None:
        whole["output"], parameters = chosen
        whole["train_loss"] = model.evaluate(parameters, problem.train)[0]
        whole["test_loss"], accuracy, *_ = model.evaluate(parameters, problem.test)
        if problem.test.classes:
            whole["test_accuracy"] = accuracy
        checkpoint.save(folder / MODEL, model, parameters)
    beside = folder / f"{REPORT}.new"
    beside.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    beside.replace(folder / REPORT)
    return whole


def _file(folder: Path, index: int) -> Path:
    return folder / f"trainer-{index}.f32"


def _names(trainers: Iterable[int]) -> str:
    return ", ".join(f"trainer {index}" for index in sorted(trainers))
