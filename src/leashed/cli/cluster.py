"""``leashed cluster``: training by several processes."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leashed import _core
from leashed.base import leftovers
from leashed.cli import cluster_size
from leashed.cli.arguments import add_fields, given
from leashed.cluster import collectives, handed_data, opening, outcome, piped, role
from leashed.cluster import plan as plans
from leashed.cluster.ending import LINE
from leashed.cluster.plan import Cluster, Plan, Sync, Train
from leashed.cluster.roles import MASTER, ROLES
from leashed.cluster.run_table import line as told
from leashed.cluster.run_table import render
from leashed.cluster.supervisor import (
    AGAIN,
    FAILED,
    INTERRUPTED,
    REPORT,
    Supervisor,
    command,
    name_of,
    say,
    supervise,
)
from leashed.training.job import GROUPS
from leashed.training.led_mode import COMMANDS, SHARDINGS, SHARDS
from leashed.training.problems.problem import Problem
from leashed.training.progress import Line, bar
from leashed.training.rows_read import POOLINGS

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands
    from leashed.cluster.checkpoints import Checkpoint

_OF_PROCESSES = (
    *("journal.jsonl", "journal.new", REPORT, "history.jsonl", "master.address", "key"),
    *("*.snapshot*", "*.count", "*.kept", "results/", "embedding-ps-*/", "policy-ps-*/"),
    *("policy-ps-*.npz", "policy-ps-*.ever"),
)
_LOOK = 0.5  # seconds between two looks at the report
_FILE = "plan.toml"
_STATUSES = {"running": 0, "ended": 0, "incomplete": AGAIN, "interrupted": AGAIN, "failed": FAILED}
_ABOUT = {
    "status": "Say in a line how the run in a folder stands, and which of its processes are not in step. "
    "Exit status: 0 where it goes on or has ended; 75 where it is incomplete, or its master is gone "
    "without a word; 1 where it has failed.",
    "report": "Print the tables of a run that was started process by process, and write its model, as "
    "cluster up does at the end: of what trainers have handed in, or else of what it had reached, as "
    "sync servers' snapshots and trainers' files in the folder have it. Exit status: as of status.",
}

Show = Callable[[Mapping[str, Any]], object]


class _IncompleteError(ChildProcessError):
    """The run has left batches that were to be trained."""


def add(commands: Commands) -> None:
    """Add the commands."""
    parser = commands.add_parser("cluster", help="train by several processes")
    actions: Commands = parser.add_subparsers(required=True, metavar="ACTION")
    _add_up(actions)
    one = actions.add_parser(
        "role",
        help="run one process of a plan",
        description="Run one process of a plan, for whoever starts them by hand, one by one, on "
        "several machines. What it has to say goes to standard output, and to its log in the run's "
        "folder.",
    )
    role.add_arguments(one)
    one.set_defaults(command=_role)
    for name, action, about in (
        ("status", _status, "how a run stands"),
        ("report", _report, "the tables of a run that has ended, and its model"),
    ):
        of = actions.add_parser(name, help=about, description=_ABOUT[name])
        of.add_argument(
            "folder", type=Path, metavar="FOLDER", help="the run's, where its master is"
        )
        of.set_defaults(command=action)
        if name == "report":
            of.add_argument(
                "--plan", type=Path, metavar="FILE", help="default: plan.toml in the folder"
            )
    _add_command(actions)
    cluster_size.add(actions)
    _add_resume(actions)
    clean = actions.add_parser(
        "clean",
        help="remove what killed runs have left",
        description="Remove this user's temporary folders, with keys and logs, of runs whose processes "
        "were killed. (The next run that makes one does so, too.)",
    )
    clean.set_defaults(command=_clean)


def _role(options: argparse.Namespace) -> int:
    on_stdout = logging.StreamHandler(sys.stdout)
    on_stdout.setFormatter(LINE)
    logging.getLogger("leashed").addHandler(on_stdout)
    try:
        return role.status(options.role, options.plan, options.index)
    finally:
        logging.getLogger("leashed").removeHandler(on_stdout)


def _status(options: argparse.Namespace) -> int:
    report = _read(options.folder)
    state = _state(options.folder, report)
    print(f"{state}: {report['reason'] or told(report)}")
    for member in report["members"]:
        if member.get("trouble") and member["gone"] is None:
            print(f"{member['role']}-{member['index']}: {member['trouble']}")
    for name in _missing(report) if state == "running" else ():
        print(f"{name}: not there")
    return _STATUSES[state]


def _missing(report: Mapping[str, Any]) -> list[str]:
    """Who was to take part, and is not there or has not finished."""
    there = {
        (member["role"], member["index"])
        for member in report["members"]
        if member["gone"] is None or member["finished"]
    }
    terms = report["terms"]
    return [
        name_of(name, index)
        for name, role in ROLES.items()
        for index in range(terms.get(role.count, 0))
        if (name, index) not in there
    ]


def _report(options: argparse.Namespace) -> int:
    report = _read(options.folder)
    state = _state(options.folder, report)
    if state == "running":
        raise ValueError(
            f"the run in {options.folder} goes on; see how with: leashed cluster status"
        )
    plan = plans.read(options.folder / _FILE if options.plan is None else options.plan)
    problem = plan.problem()
    known = report.get("restarts", {}), report.get("given_up", {})
    # (A master that was killed may be started again, and the others read there whether it is over.)
    whole = outcome.conclude(report, options.folder, plan, problem, *known)
    print(render({**whole, "state": state}))
    if "output" in whole:
        print(f"its model is in {outcome.place(options.folder, problem.model)}")
    return _STATUSES[state]


def _read(folder: Path) -> dict[str, Any]:
    report = outcome.read_report(folder)
    if report is None:
        raise FileNotFoundError(f"{folder} has no {REPORT}: give the folder of a run's master")
    return report


def _state(folder: Path, report: Mapping[str, Any]) -> str:
    """As the report has it; where its master was killed, that it was."""
    from leashed.cluster import journal  # noqa: PLC0415 (it needs the extra)

    if report["state"] != "running" or journal.held(folder / "journal.jsonl"):
        return str(report["state"])
    return "interrupted"


def _add_command(actions: Commands) -> None:
    parser = actions.add_parser(
        "command",
        help="tell the mode of a run that goes on to be Sync, or GBA",
        description="Tell the mode of a run that goes on to be Sync, or GBA: of switching, gba and "
        "automatic. It changes when the step that is under way is over. Exit status: 0 where the mode was "
        "told; 2 where it was not.",
    )
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="the run's, where its master is"
    )
    parser.add_argument("to", choices=COMMANDS)
    parser.add_argument(
        "--key",
        type=Path,
        metavar="FILE",
        help="with the run's key (default: the one in the folder, or of its plan)",
    )
    parser.set_defaults(command=_command)


def _command(options: argparse.Namespace) -> int:
    from leashed.cluster.commanding import command as tell  # noqa: PLC0415 (it needs the extra)

    updates = tell(options.folder, options.to, key=options.key)
    print(
        f"policy server 0 was told to be {options.to}, at update {updates:,}: it changes when the step that "
        "is under way is over"
    )
    return 0


def _clean(_: argparse.Namespace) -> int:
    removed = leftovers.remove_stale()
    for folder in removed:
        print(f"removed {folder}")
    if not removed:
        print("nothing to remove")
    return 0


def _add_up(actions: Commands) -> None:
    parser = actions.add_parser(
        "up",
        help="start all processes on this machine, and train",
        description="Start a master, sync servers and trainers on this machine, let them train, "
        "start again what dies, and print what came of it. Exit status: 0; 75 if batches are left "
        "that were to be trained; 1 if the run failed; 2 for a wrong argument; 130 after Ctrl-C, which ends all processes.",
    )
    here = parser.add_argument_group("what is run")
    here.add_argument("--trainers", type=int, default=2, help="default: %(default)s")
    here.add_argument(
        "--sync-ps", type=int, help="sync servers (default: one, where the synchroniser needs one)"
    )
    here.add_argument(
        "--embedding-servers",
        type=int,
        default=0,
        metavar="N",
        help="servers that hold the rows of tables, for models that read some (default: none)",
    )
    here.add_argument(
        "--embedding-loops",
        type=int,
        metavar="N",
        help="threads with which each of them serves (default: of four processors of this machine one, "
        "shared by all servers)",
    )
    here.add_argument(
        "--embedding-mib",
        type=float,
        metavar="MIB",
        help="memory of each of them for tables that do not grow, which are placed so that they fit "
        "(default: as much as they need)",
    )
    here.add_argument(
        "--readers",
        type=int,
        default=0,
        metavar="N",
        help="processes that read the files of --data and send trainers their rows, in order, while they train; "
        "--test FILE has rows to test (default: none; all trainers have all rows in memory)",
    )
    here.add_argument(
        "--look-ahead",
        type=int,
        metavar="N",
        help="batches whose rows are asked for while one before them is computed, 0 to "
        f"{_core.MOST_AHEAD} (default: 1); with --mode batches of a thread that are granted, sent or pushed while "
        "it computes another, each of which is to the mode one worker more (default: 0)",
    )
    here.add_argument(
        "--pooling",
        default="auto",
        choices=POOLINGS,
        help="where rows are pooled that a model reads as sums, means or maxima: at embedding servers, which "
        "send the pools, or by trainers (rows); auto: of each feature where it is fewer bytes; "
        "default: %(default)s",
    )
    here.add_argument(
        "--policy-servers",
        type=int,
        metavar="N",
        help="servers that lead the mode of --mode, each with a part of the parameters and rows (default: one, where "
        "there is a mode)",
    )
    here.add_argument(
        "--shards",
        choices=SHARDINGS,
        default=SHARDS,
        help="how the parameters are spread over several --policy-servers (default: %(default)s)",
    )
    here.add_argument(
        "--sync",
        metavar="NAME[:...]",
        help="synchroniser and its settings, such as easgd:alpha=0.5, or none (default: easgd; with --mode none)",
    )
    here.add_argument(
        "--when",
        default="background",
        metavar="background|every:iterations=N|every:seconds=S",
        help="by a thread beside the workers, as fast as it goes, or by the workers themselves; "
        "default: %(default)s",
    )
    here.add_argument(
        "--compression",
        default="none",
        help="of what goes over the network: none, bfloat16 or int8; default: %(default)s",
    )
    here.add_argument(
        "--transport",
        default="auto",
        help="shm (shared memory), tcp, or auto: shared memory where it can be had; "
        "default: %(default)s",
    )
    here.add_argument(
        "--backend",
        default=collectives.OWN,
        help="what trainers sum with where there are no sync servers: leashed (the own ring), direct "
        "(all with all) or gloo (needs torch); default: %(default)s",
    )
    here.add_argument(
        "--ports",
        type=int,
        metavar="FIRST",
        help="the ports on which sync servers and then trainers listen, from this one on (default: "
        "any that are free)",
    )
    here.add_argument(
        "--checkpoint-every",
        type=float,
        metavar="SECONDS",
        help="between two checkpoints of the whole run, from which cluster resume goes on (default: "
        "none are taken)",
    )
    here.add_argument(
        "--prometheus",
        type=_port,
        metavar="PORT|HOST:PORT",
        help="offer metrics on this port of 127.0.0.1, or at this address",
    )
    add_fields(parser, Train, hidden=plans.ALONE, groups=GROUPS)
    parser.add_argument(
        "--run",
        type=Path,
        metavar="FOLDER",
        help="for logs, journal, report and models; a new one (default: a temporary one, which is "
        "removed after a run that succeeded)",
    )
    parser.add_argument("--keep", action="store_true", help="keep the temporary folder, too")
    parser.add_argument(
        "--plan",
        type=Path,
        metavar="FILE",
        help="take all that is run, and the folder, from this plan",
    )
    parser.add_argument(
        "--view", action="store_true", help="show all trainers while they train (needs rich)"
    )
    parser.set_defaults(command=_up, beside=lambda options: _beside(parser, options))


def _add_resume(actions: Commands) -> None:
    parser = actions.add_parser(
        "resume",
        help="go on with a run from its last checkpoint",
        description="Go on with a run of cluster up that has not ended, from its last whole checkpoint "
        "(up --checkpoint-every), in the same folder, with the same or other numbers of processes on "
        "this machine. What was trained since then is trained anew. Exit status: as of up.",
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--trainers", type=int, help="default: as many as before")
    parser.add_argument("--sync-ps", type=int, help="sync servers (default: as many as before)")
    parser.add_argument(
        "--embedding-servers",
        type=int,
        metavar="N",
        help="servers that hold the rows of tables (default: as many as before)",
    )
    parser.add_argument(
        "--policy-servers",
        type=int,
        metavar="N",
        help="servers that lead a mode (default: as many as before)",
    )
    parser.add_argument("--readers", type=int, metavar="N", help="default: as many as before")
    parser.add_argument(
        "--look-ahead", type=int, metavar="N", help="batches, as of up (default: as before)"
    )
    parser.add_argument(
        "--run",
        type=Path,
        metavar="FOLDER",
        help="go on in this one, which has no run (default: where the run was)",
    )
    parser.add_argument(
        "--view", action="store_true", help="show all trainers while they train (needs rich)"
    )
    parser.set_defaults(command=_resume)


def _resume(options: argparse.Namespace) -> int:
    from leashed.cluster.checkpoints import Checkpoint, newest, tidy  # noqa: PLC0415 (needs the extra)
    from leashed.cluster.row_index import FILE as ROWS  # noqa: PLC0415 (it takes a stream)

    folder = options.folder.absolute()
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder} of a run to go on from")
    _check_over(folder, "resumed")
    report = outcome.read_report(folder)
    if report is not None and report["state"] == "ended":
        raise ValueError(
            f"the run in {folder} has ended ({report['reason']}): nothing is left of it"
        )
    if not (folder / _FILE).exists():
        newest(folder)
    plan = plans.read(folder / _FILE)
    # (The folder may have been moved, or be a copy.)
    plan = replace(plan, cluster=replace(plan.cluster, run=folder))
    found = Checkpoint(newest(plan.cluster.cuts))
    plan = _as_then(plan, found)
    if found.complete:
        raise ValueError(
            f"all batches of the run in {folder} are used in {found.folder}: nothing is left of it; that is "
            "its model, for leashed.load and leashed evaluate"
        )
    counts: dict[str, Any] = {"trainers": options.trainers, "sync_ps": options.sync_ps}
    counts |= {"embedding_ps": options.embedding_servers, "policy_ps": options.policy_servers}
    counts |= {"readers": options.readers, "look_ahead": options.look_ahead}
    given = {name: count for name, count in counts.items() if count is not None}
    if options.policy_servers is not None and options.policy_servers < 2:
        given["shards"] = SHARDS  # how several have parts
    if options.readers is not None and bool(options.readers) != bool(plan.cluster.readers):
        raise ValueError(
            "--readers may be another number, but neither none nor the first: rows of a run come in the "
            "order of its readers, or of its seed; leave it out"
        )
    run = folder if options.run is None else options.run.absolute()
    if (record := plan.train.record) is not None:
        say(
            f"leashed: {record} stays as it is, up to where the run was: a record begins with its run"
        )
        plan = replace(plan, train=replace(plan.train, record=None))
    try:
        plan = replace(plan, cluster=replace(plan.cluster, run=run, resume=found.folder, **given))
    except (TypeError, ValueError) as error:
        told = re.sub(r"cluster\.([a-z_]+)", _option, str(error))
        for server in ("embedding", "policy"):
            told = told.replace(f"--{server}-ps", f"--{server}-servers")
        raise type(error)(told) from None
    _check_here(plan, view=options.view)
    if run != folder:
        if (run / REPORT).exists():
            raise FileExistsError(f"{run} has a run already: choose another folder")
        run.mkdir(parents=True, exist_ok=True)
        if plan.cluster.readers:
            shutil.copy(folder / ROWS, run / ROWS)  # so that nobody counts them again
    problem = plan.problem()
    role.fitting(plan, problem)
    found.check()
    if run == folder:
        _clear(folder)
        tidy(plan.cluster.cuts, None, [found.folder])
    return _ended(lambda: _train(plan, problem, view=options.view))


def _as_then(plan: Plan, found: Checkpoint) -> Plan:
    """A run's plan, where it was written when each had a ``look_ahead``, which said nothing to a mode: its
    checkpoints tell no workers.
    """
    if not plan.cluster.policy_ps or "workers" in found.told["fingerprint"]:
        return plan
    return replace(plan, cluster=replace(plan.cluster, look_ahead=None))


def _ended(run: Callable[[], int]) -> int:
    """The status of a run; one that fails says why."""
    try:
        return run()
    except ChildProcessError as error:
        print(f"leashed: error: {error}", file=sys.stderr)
        return AGAIN if isinstance(error, _IncompleteError) else FAILED


def _check_over(folder: Path, what: str) -> None:
    """ValueError where a run goes on in this folder, which has to end before it is what is said."""
    from leashed.cluster import journal  # noqa: PLC0415 (it needs the extra)

    if journal.held(folder / "journal.jsonl"):
        raise ValueError(f"the run in {folder} goes on: end it before it is {what}")


def _clear(folder: Path) -> None:
    """Removes what processes of a run have left for those in their place, but for checkpoints. ValueError
    where it goes on, as it may by now: files were read meanwhile, which takes long.
    """
    _check_over(folder, "begun again")
    for pattern in _OF_PROCESSES:
        for path in folder.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _beside(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    """The arguments beside ``--plan`` that it has an answer to."""
    own = {"plan", "keep", "view", "command", "beside"}
    return [
        "--" + name.replace("_", "-")
        for name, value in vars(options).items()
        if name not in own and value != parser.get_default(name)
    ]


def _check_tables(plan: Plan, problem: Problem) -> None:
    """Ask whether the servers have room for the tables; with readers the run's folder gets its index."""
    from leashed.cluster.embedding_server import row_terms  # noqa: PLC0415 (it needs the extra)

    plan.index(problem)
    if plan.cluster.embedding_ps:
        row_terms(plan, problem)


def _up(options: argparse.Namespace) -> int:
    if options.plan is not None and (others := options.beside(options)):
        raise ValueError(f"--plan has all that is run: leave out {', '.join(others)}")
    with _in_options(options):
        plan = _plan(options) if options.plan is None else plans.read(options.plan)
        _check_here(plan, view=options.view)
        piped.check(plan)
        if plan.train.days is not None:
            return _days(plan, options)
        pipes = piped.are_there(plan.train)
        found = None if pipes else plan.problem()
        if found is not None and not plan.cluster.readers:
            _check_tables(plan, found)

    def run() -> int:
        with _folder(plan, options) as folder:
            placed = replace(plan, cluster=replace(plan.cluster, run=folder))
            with _in_options(options):
                if pipes:
                    placed = piped.kept(placed)
                problem = placed.problem() if found is None else found
                if pipes or placed.cluster.readers:
                    _check_tables(placed, problem)
            status = _train(placed, problem, view=options.view)
            options.keep |= status == INTERRUPTED and outcome.place(folder, problem.model).exists()
            return status

    return _ended(run)


@contextmanager
def _in_options(options: argparse.Namespace) -> Generator[None, None, None]:
    """What is wrong with a plan that options have made is said of the options."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if options.plan is not None:
            raise
        told = str(error)
        for field, option in _OPTIONS.items():
            told = re.sub(rf"\b{re.escape(field)}\b", option, told)
        told = re.sub(r"\btrain\.([a-z_]+)", _option, told)
        told = re.sub(rf"\bcluster\.({'|'.join(vars(options))})\b", _option, told)
        raise type(error)(told) from None


_OPTIONS = {
    "cluster.embedding_ps": "--embedding-servers",
    "cluster.policy_ps": "--policy-servers",
    "cluster.shards": "--shards",
    "sync.kind": "--sync",
    "sync.when": "--when",
    "sync.compression": "--compression",
}
"""Of a plan's fields that are options of another name."""


def _days(plan: Plan, options: argparse.Namespace) -> int:
    """Day after day, each of which ``leashed cluster up`` would train alone."""
    from leashed.cli import cluster_days  # noqa: PLC0415 (it needs the extra)
    from leashed.cluster.checkpoints import FOLDER, Checkpoint, newest  # noqa: PLC0415

    if options.plan is None and options.run is None:
        raise ValueError("--days takes --run FOLDER, where the state lies between days")

    def day(of_day: Plan, problem: Problem) -> int:
        folder = of_day.cluster.run
        _check_over(folder, "begun again")
        with suppress(FileNotFoundError):
            found = Checkpoint(newest(folder))
            if not found.complete:
                found.check()
                of_day = replace(of_day, cluster=replace(of_day.cluster, resume=found.folder))
        role.fitting(of_day, problem)
        _clear(folder)
        if of_day.cluster.resume is None or folder not in of_day.cluster.resume.parents:
            shutil.rmtree(folder / FOLDER, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        return _train(of_day, problem, view=options.view)

    folder = plan.cluster.run if options.run is None else options.run.absolute()
    plan = replace(plan, cluster=replace(plan.cluster, run=folder))
    return _ended(lambda: cluster_days.train(plan, day))


def _option(field: re.Match[str]) -> str:
    """Of a plan's field that was an option."""
    return f"--{field[1].replace('_', '-')}"


def _check_here(plan: Plan, *, view: bool) -> None:
    """ImportError where something is not installed that the run would need, OSError where an address is
    not this machine's, or another program has a port.
    """
    try:
        importlib.import_module("msgspec")
    except ImportError as error:
        raise ImportError("a cluster needs msgspec: pip install leashed[cluster]") from error
    collectives.check(plan.cluster.backend, plan.cluster.trainers)
    if view:
        importlib.import_module("leashed.cluster.view")
    for name, index in plan.cluster.processes()[1:]:
        if port := plan.cluster.port(name, index):
            opening.check_listening(plan.cluster.host, port, name)
    if plan.cluster.known_master is not None:
        opening.check_listening(*plan.cluster.address, MASTER)
    if plan.cluster.metrics_address is not None:
        from leashed.cluster.prometheus import Exporter  # noqa: PLC0415 (an extra)

        Exporter(*plan.cluster.metrics_address).close()


def _train(plan: Plan, problem: Problem, *, view: bool) -> int:
    """Run a plan in its folder, and print what came of it."""
    cluster = plan.cluster
    with _shown(view) as (show, tell), _handed_on(plan, problem) as inherited:
        plans.write(cluster.run / _FILE, plan)
        start = command(cluster.run / _FILE)
        supervisor = Supervisor(
            cluster.processes(), start, cluster.run, cluster.restarts, tell, inherited
        )
        failed, interrupted = _supervised(supervisor, cluster, show)
    report = outcome.read_report(cluster.run)
    if report is not None:
        if report["state"] == "running":  # its master has not lived to say how it ended
            how = "incomplete" if failed is None else "failed"
            report |= {"state": how, "reason": str(failed or "told to end")}
        try:
            ends = supervisor.counts(), supervisor.given_up()
            whole = outcome.conclude(report, cluster.run, plan, problem, *ends)
            print(render(whole))
        except (OSError, ValueError) as error:
            if failed is None and not interrupted and report["state"] != "failed":
                raise
            say(f"leashed: its report is not complete: {error}")
    elif not interrupted and failed is None:
        failed = ChildProcessError("the master has reported nothing")
    if failed is not None:
        raise failed
    if interrupted:
        say("leashed: interrupted" + ("" if report else " before the master has reported anything"))
    elif report is not None:
        if report["state"] == "failed":
            raise ChildProcessError(f"the run failed: {report['reason']}")
        if report["state"] == "incomplete":
            raise _IncompleteError(f"the run is incomplete: {report['reason']}")
        if not report["summaries"]:
            raise ChildProcessError(f"no trainer has finished: {report['reason']}")
    return INTERRUPTED if interrupted else 0


@contextmanager
def _handed_on(plan: Plan, problem: Problem) -> Generator[Mapping[str, int], None, None]:
    """What processes inherit: the data, but for rows that readers read."""
    file = None
    if not plan.cluster.readers:
        try:
            file = handed_data.hand_on(plan.train, problem)
        except (MemoryError, OSError, RecursionError) as error:
            why = str(error) or "there is not enough memory"
            say(f"leashed: each process reads the data for itself: {why}")
    try:
        yield {} if file is None else {handed_data.VARIABLE: file}
    finally:
        if file is not None:
            os.close(file)


def _supervised(
    supervisor: Supervisor, cluster: Cluster, show: Show
) -> tuple[ChildProcessError | None, bool]:
    """Run it to its end: why it failed, if it did, and whether Ctrl-C or SIGTERM ended it."""
    if cluster.key is None:
        opening.make_key(cluster.key_file)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    next_look = 0.0

    def look() -> None:
        nonlocal next_look
        if time.monotonic() >= next_look:
            next_look = time.monotonic() + _LOOK
            report = outcome.read_report(cluster.run)
            if report is not None:
                show(report)

    try:
        with supervisor:
            supervise(supervisor, cluster.timeout, look, cluster.grace)
    except ChildProcessError as error:
        return error, False
    except KeyboardInterrupt:
        return None, True
    finally:
        signal.signal(signal.SIGTERM, before)
        if cluster.key is None:
            cluster.key_file.unlink()  # nothing opens connections with it any more
    return None, False


def _plan(options: argparse.Namespace) -> Plan:
    """The plan that the arguments describe."""
    train = given(options, Train)
    mode = train.get("mode")
    kind = plans.sync_beside(mode) if options.sync is None else {"kind": options.sync}
    words = Sync(**kind, when=options.when, compression=options.compression)
    if (days := train.get("days")) is not None:
        if "data" in train:
            raise ValueError("--data does not go with --days: --days names the files")
        train["days"] = tuple(str(Path(path).absolute()) for path in days)
    paths = {name: train[name] for name in plans.PATHS if name in train}
    train |= {
        name: str(Path(path).absolute())
        for name, path in paths.items()
        if path not in (plans.STDIN, *plans.WORDS)
    }
    return Plan(
        Cluster(
            trainers=options.trainers,
            sync_ps=plans.servers_of(words) if options.sync_ps is None else options.sync_ps,
            embedding_ps=options.embedding_servers,
            policy_ps=plans.leaders_of(mode)
            if options.policy_servers is None
            else options.policy_servers,
            shards=options.shards,
            embedding_loops=options.embedding_loops,
            embedding_mib=options.embedding_mib,
            readers=options.readers,
            look_ahead=options.look_ahead,
            pooling=options.pooling,
            transport=options.transport,
            backend=options.backend,
            ports=options.ports,
            prometheus=options.prometheus,
            checkpoint_every=options.checkpoint_every,
        ),
        words,
        Train(**train),
    )


def _port(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


@contextmanager
def _folder(plan: Plan, options: argparse.Namespace) -> Generator[Path, None, None]:
    """The run's folder, there and empty of other runs."""
    if options.plan is None and options.run is None:
        folder = leftovers.make()
        try:
            yield folder
            if options.keep:
                print(f"kept: {folder}", file=sys.stderr)
            else:
                shutil.rmtree(folder)
        except BaseException:
            if (folder / _FILE).exists() or piped.copies(folder):
                print(f"leashed: its logs are in {folder}", file=sys.stderr)
            else:  # nothing was started
                shutil.rmtree(folder)
            raise
        finally:
            leftovers.leave(folder)
        return
    folder = plan.cluster.run if options.run is None else options.run.absolute()
    if (folder / REPORT).exists():
        raise FileExistsError(f"{folder} has a run already: choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    yield folder


@contextmanager
def _shown(view: bool) -> Generator[tuple[Show, Callable[[str], object]], None, None]:
    """What shows the reports as they come: a table of all trainers, or a line; and what writes a line
    that stays.
    """
    if view:
        from leashed.cluster.view import View  # noqa: PLC0415 (rich is optional)

        with View() as shown:
            yield shown, say
        return
    line = Line(sys.stderr)

    def show(report: Mapping[str, Any]) -> None:
        ledger = report["ledger"]
        share = ledger["complete"] / ledger["total"] if ledger.get("total") else None
        of_all = "" if share is None else f"{bar(share)} {100.0 * share:3.0f}%  "
        line.show(f"{of_all}{told(report)}")

    def tell(text: str) -> None:
        line.clear()
        say(text)

    try:
        yield show, tell
    finally:
        line.clear()
