"""The model that comes out of a run, and what is added to its report."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from leashed.cluster import traffic
from leashed.cluster.measures import counted
from leashed.cluster.mode_report import heard
from leashed.cluster.plan import Plan
from leashed.cluster.supervisor import REPORT, read_report
from leashed.files import checkpoint, resuming
from leashed.files.model_file import BuiltIn
from leashed.models._columns import keep
from leashed.models._running import Running, mean
from leashed.models.graphs import Graph
from leashed.models.tables import Table
from leashed.studies.elp import Parallelism
from leashed.training import standard
from leashed.training.problems.problem import Problem

if TYPE_CHECKING:
    from leashed.cluster import row_files
    from leashed.cluster.row_index import RowIndex

__all__ = [
    "MODEL",
    "Replica",
    "choose",
    "conclude",
    "holder_of_rows",
    "long_gone",
    "place",
    "read_report",
    "replicas",
    "together",
]

MODEL, WITH_TABLES = "output.safetensors", "output"
"""In the run's folder: the file of the model that comes out; the folder of one that reads tables."""

T = TypeVar("T")


def place(folder: Path, model: BuiltIn) -> Path:
    """Where the model that comes out of a run is written."""
    return folder / (WITH_TABLES if checkpoint.tables_of(model) else MODEL)


class Replica(NamedTuple):
    """What a trainer has come to.

    Attributes:
        parameters: [d].
        running: the statistics that it normalises by; None: there are none.
        written: when its file was, in seconds of the file system's clock.
    """

    parameters: NDArray[np.float32]
    running: Running | None = None
    written: float = 0.0


def replicas(
    folder: Path,
    run: str,
    dimension: int,
    statistics: int = 0,
    summaries: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> dict[int, Replica]:
    """What each trainer has handed in, by its index.

    Args:
        folder: the run's.
        run: its name.
        dimension: of the model.
        statistics: running ones that it normalises by.
        summaries: the trainers' last words, which have of how many batches these are.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: one is damaged, or has another length.
    """
    from leashed.cluster import results  # noqa: PLC0415 (it needs the extra)

    found = {}
    for name, path in results.named(folder, run).items():
        values = np.fromfile(path, "<f4").astype(np.float32, copy=False)
        if len(values) not in (dimension, dimension + statistics):
            raise ValueError(f"{path} has {len(values)} parameters, not {dimension}")
        running = None
        if behind := len(values) - dimension:
            said = summaries.get(name, {})
            batches = max(1, int(said.get("statistics_batches", 1)))
            near_zero = int(said.get("statistics_near_zero", 0))
            running = Running(values[-behind:], batches, near_zero)
        index = int(name.partition("-")[2])
        found[index] = Replica(values[:dimension], running, path.stat().st_mtime)
    return dict(sorted(found.items()))


def choose(
    output: str,
    found: Mapping[int, Replica],
    model: BuiltIn,
    test: Any,
    tables: Mapping[str, Table] | None = None,
) -> tuple[str, Replica]:
    """The output of a run, and in words which it is.

    Args:
        output: ``"first"`` (shadowsync, section 4), ``"average"``, or ``"best"`` on ``test``, whose
            AUC there, or accuracy, or loss where there are no classes, is then that of a choice among
            several.
        found: the trainers', at least one. Statistics are those of the trainer that is the output; of
            an average their mean, weighted by how many batches each is of.
        model: that was trained.
        test: the test set.
        tables: that the model reads, by name.
    """
    if output == "average":
        average = np.mean([each.parameters.astype(np.float64) for each in found.values()], axis=0)
        running = mean(each.running for each in found.values())
        replica = Replica(average.astype(np.float32), running)
        return f"average of {len(found)} trainers", replica
    if output == "best":

        def score(index: int) -> float:
            loss, accuracy, *clicks = _evaluated(model, found[index], test, tables)
            if clicks and not math.isnan(clicks[0]):
                return clicks[0]
            return accuracy if test.classes else -loss

        best = max(found, key=score)
        return f"trainer {best}, the best of {len(found)} on the test set", found[best]
    first = min(found)
    return f"trainer {first}", found[first]


def together(
    found: Mapping[int, T], summaries: Mapping[str, Mapping[str, float]]
) -> Mapping[int, T]:
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


def long_gone(found: Mapping[int, object], report: Mapping[str, Any], timeout: float) -> set[int]:
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
    rows: Sequence[Path] | None = None,
) -> dict[str, Any]:
    """The report of a run that has ended, with what was run, its output model, restarts, who was given up
    and why, ELP, and its bytes beside the kernel's counts; written, beside the model, to the run's
    folder. Without a result of any trainer that was there at the end the model is what the run had
    reached (``reached``), if that is known. Of a model that reads tables these are joined of what the
    embedding servers, or the policy server, have saved last, in this process's memory; pushes that one had told of and
    has not saved are said to be missing. ``rows``: where each of them has saved, by default in the
    run's folder.

    Raises:
        OSError: the folder cannot be written; or a result is missing, or an embedding server has saved
            nothing: then there is the report, and no model.
        ValueError: a result is damaged, or the servers' rows are not all of the tables: likewise.
    """
    whole = _ended(report, plan, problem, restarts, given_up)
    try:
        _add_output(whole, folder, plan, problem, rows)
    finally:
        _write(folder, whole)
    return whole


def _ended(
    report: Mapping[str, Any],
    plan: Plan,
    problem: Problem,
    restarts: Mapping[str, int],
    given_up: Mapping[str, str],
) -> dict[str, Any]:
    """The report with all that needs no file of the run's."""
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
    if train.mode is not None:
        whole["mode"] = train.mode
    if lost := sorted(given_up.keys() - report.get("given_up", {}).keys()):
        said = f"{report['reason']}; " if report["reason"] else ""
        whole["reason"] = f"{said}given up: {', '.join(lost)}"
    if trainers and isinstance(train.threads, int):  # not as many as are fastest at each
        whole["elp"] = Parallelism("", train.batch_size, train.threads, trainers).elp
    return whole


def _read(index: RowIndex, told: Mapping[str, Any] | None) -> dict[str, Any]:
    """What readers have read, and of rows that come once, how many were trained on; ``told``: of these, as
    in the report.
    """
    counts = index.counts.config()
    if not index.once:
        return counts
    there = told or {"rows": 0, "used": 0}
    return {**counts, "rows": max(counts["rows"], there["rows"]), "used": there["used"]}


def _add_output(
    whole: dict[str, Any],
    folder: Path,
    plan: Plan,
    problem: Problem,
    rows: Sequence[Path] | None,
) -> None:
    """Writes the model, and adds to the report what it comes to; what is raised: as of ``conclude``."""
    model = problem.model
    begun = None
    if plan.cluster.resume is not None:
        from leashed.cluster.checkpoints import Checkpoint  # noqa: PLC0415 (it needs the extra)

        begins = Checkpoint(plan.cluster.resume)
        begun = resuming.before(begins.folder if begins.led else begins.trainer(0))
    index = None
    if plan.cluster.readers:
        from leashed.cluster.row_index import kept_in  # noqa: PLC0415 (it takes a stream)

        index = kept_in(folder)  # by which trainers have standardised, whatever files are now
    all_rows = None if index is None else index.moments
    if index is not None:
        whole["reading"] = _read(index, whole.get("read"))
    columns = standard.known(model, problem.train, begun and begun.numbers, all_rows)
    run, summaries = whole["run"], whole["summaries"]
    handed_in = {
        index: each
        for index, each in replicas(
            folder, run, model.dimension, getattr(model, "statistics", 0), summaries
        ).items()
        if not summaries.get(f"trainer-{index}", {}).get("crashed")
    }
    found = together(handed_in, summaries)
    gone = long_gone(found, whole, plan.cluster.timeout)
    chosen: tuple[str, Replica] | None = None
    tables: dict[str, Table] | None = None
    if described := checkpoint.tables_of(model):
        from leashed.cluster import row_files  # noqa: PLC0415 (it needs the extra)

        holds = holder_of_rows(plan)
        servers = sum(role == holds for role, _ in plan.cluster.processes())
        places = [folder / f"{holds}-{k}" for k in range(servers)]
        joined = row_files.joined_of(rows or places, described, run)
        tables = joined.tables
        pushes = {k: heard(v) for k, v in counted(whole, holds).items()}
        behind = {k: pushes.get(k, 0) - there for k, there in enumerate(joined.pushes)}
        whole["rows_behind"] = {f"{holds}-{k}": n for k, n in behind.items() if n > 0}
        whole["members"] = _with_last_words(whole["members"], joined, holds)
    failed = ""
    if plan.train.mode is not None and whole["state"] == "failed":
        failed = ", and no trained model, since the run has failed"
    # (Rows are of their servers' end: of a run that is broken off trainers have parameters from before.)
    beside_rows = bool(described) and plan.train.mode is not None and whole["state"] != "ended"
    if found.keys() <= gone or beside_rows:
        from leashed.cluster import reached  # noqa: PLC0415 (it needs the extra)

        since = 0.0 if beside_rows else max((one.written for one in found.values()), default=0.0)
        if (there := reached.find(folder, plan, model, since)) is not None:
            what = there.what
            what += failed
            if found.keys() <= gone:
                others = f" but {_names(handed_in)}, gone before the end," if handed_in else ""
                what += f": no trainer{others} has handed in its parameters"
            running = there.running or next((each.running for each in found.values()), None)
            chosen = what, Replica(keep(there.parameters, columns), running)
    if chosen is None and found:
        found = {k: each for k, each in found.items() if k not in gone} or found
        found = {
            k: each._replace(parameters=keep(each.parameters, columns)) for k, each in found.items()
        }
        output, replica = choose(plan.train.output, found, model, problem.test, tables)
        if plan.train.mode is not None:
            output += f" (the policy server's parameters){failed}"
            if beside_rows:
                output += "; its rows are of the run's end, of whose parameters nothing is left"
        elif apart := handed_in.keys() - found.keys():
            output += f" (not of {_names(apart)}: not in step, or gone, at the end)"
        chosen = output, replica
    if chosen is None and plan.cluster.policy_ps:
        from leashed.cluster.led_bringing import not_here  # noqa: PLC0415 (it needs the extra)

        whole["no_output"] = not_here(whole, folder)
    if chosen is not None:
        output, replica = chosen
        if index is None:  # else rows are not in memory
            whole["train_loss"] = _evaluated(model, replica, problem.train, tables)[0]
        if problem.test is not None:
            whole["test_loss"], accuracy, *of_clicks = _evaluated(
                model, replica, problem.test, tables
            )
            if problem.test.classes:
                whole["test_accuracy"] = accuracy
            for name, value in zip(
                ("test_auc", "test_normalised_entropy"), of_clicks, strict=False
            ):
                if not math.isnan(value):
                    whole[name] = value
        statistics = None if replica.running is None else replica.running.values
        checkpoint.save(place(folder, model), model, replica.parameters, tables, statistics)
        whole["output"] = output  # now that it is there


def holder_of_rows(plan: Plan) -> str:
    """The role of those who have the rows of the tables that a plan's model reads, if it reads any."""
    return "embedding-ps" if plan.train.mode is None else "policy-ps"


def _evaluated(
    model: BuiltIn, replica: Replica, data: Any, tables: Mapping[str, Table] | None
) -> tuple[float, ...]:
    """Loss, accuracy; of clicks also AUC and normalised entropy."""
    if isinstance(model, Graph):
        by = None if replica.running is None else replica.running.values
        return tuple(model.evaluate(replica.parameters, data, tables, statistics=by))
    return tuple(model.evaluate(replica.parameters, data))


def _with_last_words(
    members: Iterable[Mapping[str, Any]], joined: row_files.Joined, role: str
) -> list[Mapping[str, Any]]:
    """What servers of that role had counted when they saved, where that is more than they had told."""
    last = {each["index"]: each["id"] for each in members if each["role"] == role}

    def words(member: Mapping[str, Any]) -> Mapping[str, Any]:
        if member["role"] != role or last[member["index"]] != member["id"]:
            return member
        saved = joined.counters[member["index"]]
        if member["counted"] is None or heard(saved) < heard(member["counters"]):
            return member
        told = member["counters"]
        newest = {name: max(value, told.get(name, value)) for name, value in saved.items()}
        return {**member, "counters": {**told, **newest}}

    return [words(member) for member in members]


def _write(folder: Path, report: Mapping[str, Any]) -> None:
    beside = folder / f"{REPORT}.new"
    beside.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    beside.replace(folder / REPORT)


def _names(trainers: Iterable[int]) -> str:
    return ", ".join(f"trainer {index}" for index in sorted(trainers))
