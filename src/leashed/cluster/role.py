"""One process of a run: ``python -m leashed.cluster.role ROLE --plan plan.toml``, with a role of
``plan.ROLES``.

Whoever starts it (``leashed cluster up``, Ray, a person) starts this program. Ctrl-C and SIGTERM end it
alike, but a master that nobody here supervises: Ctrl-C ends the run, and after SIGTERM, as of a machine
that is shut down, it goes on with the next master.

Status 0: its work is done (of a master: the run has ended). 1: an error, with its traceback in the log.
2: the plan is wrong, or the key or the data are not there, or the training crashes; starting it again
mends nothing. 3: the run is
over, and not as it was to be: nor does it then. 75: the master is lost, a port is taken, a disk is full,
descriptors are used up; starting it again may mend it. 130: it was told to end.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leashed.cluster import plan as plans
from leashed.cluster.ending import LINE, OverError, logged, status_of
from leashed.cluster.limits import raise_descriptors
from leashed.cluster.plan import Plan
from leashed.cluster.roles import MASTER, ROLES
from leashed.cluster.supervisor import INTERRUPTED, name_of, tie

if TYPE_CHECKING:
    from leashed.cluster.checkpoints import Checkpoint
    from leashed.cluster.row_index import RowIndex
    from leashed.training.problems.problem import Problem

__all__ = ["add_arguments", "fitting", "main", "run"]

_log = logging.getLogger("leashed.cluster.role")  # also as a program


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``run`` takes."""
    parser.add_argument("role", choices=plans.ROLES)
    parser.add_argument(
        "--plan", type=Path, required=True, metavar="FILE", help="the plan, as TOML"
    )
    parser.add_argument(
        "--index",
        type=int,
        default=0,
        help="which of its role, from 0; default: %(default)s",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a role and return its exit status."""
    supervised = tie()
    parser = argparse.ArgumentParser(prog="python -m leashed.cluster.role", description=__doc__)
    add_arguments(parser)
    options = parser.parse_args(argv)
    return status(options.role, options.plan, options.index, supervised=supervised)


def status(role: str, path: Path, index: int, *, supervised: bool = False) -> int:
    """Run a role to its end; its exit status. What goes wrong is told in a line on standard error."""
    raise_descriptors()
    return status_of(name_of(role, index), lambda: run(role, path, index, supervised=supervised))


def run(role: str, path: Path, index: int, *, supervised: bool = False) -> int:
    """Run a role to its end.

    What it has to say goes to ``NAME.log`` in the run's folder. ``supervised``: by a ``Supervisor``, which
    starts no master again that was told to end.

    Returns:
        Its exit status: not 0 where the run has not ended as it was to.

    Raises:
        OSError, TypeError, ValueError: the plan cannot be read or is wrong, or has no such process.
        KeyboardInterrupt: Ctrl-C or SIGTERM.
    """
    plan = plans.read(path)
    if (role, index) not in plan.cluster.processes():
        count = sum(other == role for other, _ in plan.cluster.processes())
        raise ValueError(
            f"index must be less than {count}, as many as the plan has of {role}, got {index}"
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    name = name_of(role, index)
    plan.cluster.run.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(plan.cluster.run / f"{name}.log", encoding="utf-8")
    handler.setFormatter(LINE)
    top = logging.getLogger("leashed")
    top.addHandler(handler)
    top.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", RuntimeWarning)  # also what was said before
            warnings.showwarning = _logged_warning  # type: ignore[assignment]
            return logged(name, lambda: _play(role, plan, index, supervised))
    finally:
        top.removeHandler(handler)
        handler.close()


def _logged_warning(message: Warning | str, *_: object) -> None:
    _log.warning("%s", message)


def _play(role: str, plan: Plan, index: int, supervised: bool) -> int:
    # Imported here: each role needs but its own.
    if role == MASTER:
        standing = _master(plan, comes_back=not supervised)
        if (state := standing["state"]) not in ("ended", "running"):
            how = "has failed" if state == "failed" else f"is {state}"
            raise OverError(f"the run {how}: {standing['reason']}")
        return 0 if state == "ended" else INTERRUPTED
    module = importlib.import_module(f"leashed.cluster.{ROLES[role].module}")
    if (why := module.run(plan, index)) is not None:
        raise OverError(why)
    return 0


def fitting(plan: Plan, problem: Problem) -> tuple[dict[str, str], Checkpoint | None]:
    """The fingerprint of a plan's run, and the checkpoint from which it goes on; None: it begins.

    Raises:
        OSError, ValueError: the checkpoint from which it is to go on cannot be read, or is of another run.
    """
    from leashed.cluster import fingerprint  # noqa: PLC0415 (it needs the extra)
    from leashed.cluster.checkpoints import Checkpoint  # noqa: PLC0415

    cluster, train = plan.cluster, plan.train
    model, data, _ = problem
    rows = plan.index(problem)
    data = data if rows is None else rows
    words = {
        **fingerprint.of_trainer(
            model.dimension, plan.sync.synchroniser(), cluster.backend, (model, data, train.seed)
        ),
        **fingerprint.of_job(cluster.name),
    }
    if cluster.resume is None:
        return words, None
    checkpoint = Checkpoint(cluster.resume)
    batches = _batches(plan, problem, rows), _batch_size(plan, problem)
    checkpoint.require({**words, **fingerprint.of_batches(*batches)})
    if cluster.policy_ps:
        from leashed.cluster.led_checkpoint import going_on  # noqa: PLC0415
        from leashed.cluster.policy_server import led_by  # noqa: PLC0415

        going_on(led_by(plan, problem), checkpoint)
    elif checkpoint.led:
        checkpoint.file(0)
    return words, checkpoint


def _batches(plan: Plan, problem: Problem, rows: RowIndex | None) -> int | None:
    """Of the whole run; None: without end."""
    if rows is not None:
        return rows.batches(plan.train.epochs, plan.train.batch_size)
    return plan.train.batches(problem.train)


def _batch_size(plan: Plan, problem: Problem) -> int:
    """As trainers have it: of rows that readers send the last batch alone is smaller."""
    return plan.train.batch_size if plan.cluster.readers else plan.train.batch_of(problem.train)


def _master(plan: Plan, *, comes_back: bool) -> dict[str, Any]:
    from leashed.cluster import master  # noqa: PLC0415
    from leashed.cluster.embedding_server import row_terms  # noqa: PLC0415
    from leashed.cluster.history import Recorder  # noqa: PLC0415

    cluster = plan.cluster
    problem = plan.problem()
    index = plan.index(problem)
    words, begun = fitting(plan, problem)
    terms = master.Terms(
        total=_batches(plan, problem, index),
        batch_size=_batch_size(plan, problem),
        trainers=cluster.trainers,
        sync_ps=cluster.sync_ps,
        embedding_ps=cluster.embedding_ps,
        policy_ps=cluster.policy_ps,
        rows=row_terms(plan, problem) if cluster.embedding_ps else None,
        readers=cluster.readers,
        parameters=problem.model.dimension,
        statistics=getattr(problem.model, "statistics", 0),
        fingerprint=words,
        beat=cluster.beat,
        timeout=cluster.timeout,
        grace=cluster.grace,
        min_trainers=cluster.min_trainers,
        require_sync=cluster.require_sync,
        patience=cluster.patience,
        begun=None if begun is None else begun.begun,
        cut=0 if begun is None else begun.number,
        checkpoint_every=cluster.checkpoint_every,
        once=index is not None and index.once,
        to_end=index is not None and index.once and plan.train.epochs is not None,
    )
    host, port = cluster.address
    with contextlib.ExitStack() as stack:
        watchers: list[Callable[[dict[str, Any]], None]] = [
            stack.enter_context(Recorder(cluster.run))
        ]
        if (metrics := cluster.metrics_address) is not None:
            from leashed.cluster.prometheus import Exporter  # noqa: PLC0415 (an extra)

            watchers.append(stack.enter_context(Exporter(*metrics)))

        def watch(report: dict[str, Any]) -> None:
            for each in watchers:
                each(report)

        key = cluster.read_key()
        standing = master.run(
            terms,
            host=host,
            port=port,
            key=key,
            folder=cluster.run,
            transport=cluster.transport,
            watch=watch,
            comes_back=comes_back,
            begun=cluster.resume,
            cuts=cluster.cuts,
        )
    if cluster.policy_ps and standing["state"] != "running":
        from leashed.cluster.led_bringing import bring  # noqa: PLC0415

        # (Which the master's loop has had, and has left to the system.)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        comes = cluster.timeout + cluster.grace
        bring(standing, cluster.run, cluster.address, key, cluster.timeout, comes)
    return standing


if __name__ == "__main__":
    sys.exit(main())
