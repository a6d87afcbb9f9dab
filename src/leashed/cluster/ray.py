"""A run on the machines of a Ray cluster (extra ``ray``): an actor per process, which starts it there
and starts it again when it dies.

    import ray, leashed.cluster.plan, leashed.cluster.ray
    ray.init()
    plan = leashed.cluster.plan.read("plan.toml")
    report = leashed.cluster.ray.up(plan, options={"trainer": {"num_cpus": 4}})

Ray places the actors; it moves no parameters while they train. Between it and the processes go texts
and numbers alone: the plan, the run's key, addresses and reports. At the end, where embedding servers
were on other machines than the master, it copies the files of their rows to the master's; policy servers send
it theirs (``led_bringing``). The key thus passes through Ray, which encrypts
its connections only where TLS is set up. (Who may use the Ray cluster can run any program on its
machines, with or without that key.)
"""

from __future__ import annotations

import importlib
import json
import os
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from leashed.cluster import opening, outcome, row_index
from leashed.cluster import plan as plans
from leashed.cluster.plan import ROLES, Plan
from leashed.cluster.supervisor import INTERRUPTED, OVER, Supervisor, command, name_of

try:
    ray: Any = importlib.import_module("ray")
except ImportError as error:
    raise ImportError("leashed.cluster.ray needs Ray: pip install leashed[ray]") from error

__all__ = ["up"]

_LOOPBACK = "127.0.0.1"
_KEY = 32  # bytes
_LOOK = 0.05  # seconds between two looks of an actor at its process
_LONGEST_SAVE = 600.0  # seconds in which an embedding server writes its rows at the end
_PIECE = 1 << 26  # bytes of a file that go to another machine at once


def up(plan: Plan, options: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """Run a plan on the Ray cluster that this program is connected to.

    Each machine has the data at the same path. What a process writes lies on its machine, in a
    folder of its own within ``plan.cluster.run``; the report and the output model, with tables that are
    joined there, in the master's. Checkpoints of the whole run (``checkpoint_every``) lie in ``checkpoints``
    there, which the others send their parts, or in ``plan.cluster.checkpoints``, where all machines see that;
    a plan with ``resume``, that run's folder or one of them, which each machine reads, and another ``run``
    goes on from it, with the same or other numbers.

    Args:
        plan: ``cluster.master`` says at most a port; the host is the one where Ray puts the master.
            A key is made for the run, unless the plan names a file, on this machine, with one.
        options: by role what the actor's ``options`` take: resources, placement, ``max_restarts``
            for a machine that is lost (with ``max_task_retries``; not for the master).

    Returns:
        The run's report, as in run.json, with ``folder``, where it lies on the master's machine, and
        ``host``, that machine.

    Raises:
        ValueError: ``options`` has an unknown role.
        FileExistsError: the folder has a run that is over.
        ChildProcessError: the master, or all trainers, died once more than they are started again.
        OSError, ray.exceptions.RayError: a file or Ray failed.
    """
    given = {} if options is None else options
    for role in given:
        if role not in ROLES:
            raise ValueError(f"options has the unknown role {role!r}; it may have {ROLES}")
    key = (
        secrets.token_hex(_KEY)
        if plan.cluster.key is None
        else plan.cluster.read_key().secret.hex()
    )
    actor = ray.remote(_Process)
    actors = {
        (role, index): actor.options(**given.get(role, {})).remote(role, index)
        for role, index in plan.cluster.processes()
    }
    try:
        return _run(plan, key, actors)
    finally:
        for handle in actors.values():
            ray.kill(handle)  # and with it, by its tie, the process


def _run(plan: Plan, key: str, actors: Mapping[tuple[str, int], Any]) -> dict[str, Any]:
    cluster = plan.cluster
    hosts = dict(
        zip(actors, ray.get([each.host.remote() for each in actors.values()]), strict=True)
    )
    master = actors["master", 0]
    host = _LOOPBACK if len(set(hosts.values())) == 1 else hosts["master", 0]
    port = cluster.address[1] or ray.get(master.free_port.remote(host))
    run = cluster.run.absolute()
    where = replace(
        cluster,
        master=opening.format_address(host, port),
        run=run,
        key=None,
        checkpoints=cluster.cuts.absolute(),
        resume=cluster.resume
        and Path(ray.get(master.begins.remote(str(cluster.resume.absolute())))),
    )
    if (before := ray.get(master.over.remote(str(run)))) is not None:
        raise FileExistsError(
            f"{run} on {hosts['master', 0]} has a run already, which is over ({before}): choose another "
            "folder as cluster.run"
        )
    text = replace(plan, cluster=where).text()
    # (Where files are the same, as on one machine or a disk of all, nobody else has to read them for it.)
    counted = ray.get(actors["reader", 0].counted.remote(text)) if cluster.readers else None
    working = {each.run.remote(text, key, counted): process for process, each in actors.items()}
    left, restarts, given_up, failed, ended = list(working), {}, {}, 0, False
    holds = outcome.holder_of_rows(plan) if plan.train.of_clicks else None
    while left:
        # When the master has ended the others do so by themselves, or with their actors.
        saving = any(working[each][0] == holds for each in left)
        patience = _LONGEST_SAVE if saving else cluster.timeout
        done, left = ray.wait(left, timeout=patience if ended else None)
        if not done:
            break
        role, index = working[done[0]]
        name = name_of(role, index)
        status, restarts[name], cause = ray.get(done[0])
        how = f"ended with status {status} after {restarts[name]} restarts{cause}"
        ended = ended or role == "master"
        failed += role == "trainer" and status != 0
        lost = failed == cluster.trainers and not ended
        if lost and (masters := [each for each in left if working[each] == ("master", 0)]):
            lost = not ray.wait(masters, timeout=cluster.timeout)[0]  # it has no more to say
        if (role == "master" and status) or lost:
            raise ChildProcessError(f"{name} on {hosts[role, index]} {how}")
        if status not in (0, INTERRUPTED):
            given_up[name] = how
    told = json.dumps([restarts, given_up])
    places = _places(actors, hosts, run, holds)
    report: dict[str, Any] = json.loads(ray.get(master.conclude.remote(told, places)))
    return {**report, "folder": str(run / "master"), "host": hosts["master", 0]}


def _places(
    actors: Mapping[tuple[str, int], Any],
    hosts: Mapping[tuple[str, int], str],
    run: Path,
    holds: str | None,
) -> list[str]:
    """Where the rows of servers, whose role is ``holds``, are on the master's machine, in their order; those of
    others are copied there, from actor to actor.
    """
    master, found = actors["master", 0], []
    for (role, index), actor in sorted(actors.items()):
        if role != holds:
            continue
        name = name_of(role, index)
        home = run / name
        if ray.get(master.has.remote(name)):  # it was brought by who has left it
            home = run / "master"
        elif hosts[role, index] != hosts["master", 0]:
            home = run / "master"
            for file, size in ray.get(actor.rows.remote()):
                for first in range(0, max(size, 1), _PIECE):
                    piece = actor.piece.remote(file, first, _PIECE)
                    ray.get(master.put.remote(name, file, first, piece))
        found.append(str(home / name))
    return found


class _Process:
    """One process of a run, on the machine that Ray has chosen; an actor.

    Args:
        role: of the process.
        index: of the process.
    """

    def __init__(self, role: str, index: int) -> None:
        self._role = role
        self._index = index

    def host(self) -> str:
        """The address of this machine."""
        return str(ray.util.get_node_ip_address())

    def over(self, run: str) -> str | None:
        """How a run in that folder of this machine is over; None: there is none, or it goes on."""
        report = outcome.read_report(Path(run) / name_of(self._role, self._index))
        if report is None or report["state"] == "running":
            return None
        return f"{report['state']}: {report['reason']}"

    def begins(self, folder: str) -> str:
        """The checkpoint that is meant by the folder of one, or of a run of which it is the newest."""
        from leashed.cluster.checkpoints import found  # noqa: PLC0415

        checkpoint = found(folder)
        if checkpoint is None:
            raise FileNotFoundError(
                f"cluster.resume: {folder} is no checkpoint of a run, nor a run's folder"
            )
        checkpoint.check()
        return str(checkpoint.folder)

    def free_port(self, host: str) -> int:
        """A port that nobody listens on now."""
        with socket.create_server((host, 0)) as listening:
            return int(listening.getsockname()[1])

    def counted(self, text: str) -> str:
        """Where the rows of the plan's files are, as JSON.

        Raises:
            OSError, ValueError: as ``Plan.index``.
        """
        folder = self._planned(text).cluster.run
        self._plan.index(self._plan.problem())
        return (folder / row_index.FILE).read_text(encoding="utf-8")

    def _planned(self, text: str) -> Plan:
        """That plan, of this process."""
        plan = plans.parse(text, Path("/"))
        folder = plan.cluster.run / name_of(self._role, self._index)
        folder.mkdir(parents=True, exist_ok=True)
        cluster = replace(plan.cluster, run=folder, key=folder / "key")
        self._plan = replace(plan, cluster=cluster)
        return self._plan

    def run(self, text: str, key: str, counted: str | None = None) -> tuple[int, int, str]:
        """Run the process to its end.

        Args:
            text: the plan; its folder is that of all processes on this machine.
            key: as hexadecimal digits.
            counted: where the rows of files are that readers read. None: there are no readers.

        Returns:
            The status it has ended with, how often it was started again, and why it has died last, with
            its log.
        """
        plan = self._planned(text)
        folder = plan.cluster.run
        if counted is not None:
            (folder / row_index.FILE).write_text(counted, encoding="utf-8")
        secret = folder / "key"
        secret.unlink(missing_ok=True)  # left by an actor that was lost
        with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(bytes.fromhex(key))
        plans.write(folder / "plan.toml", plan)
        supervisor = Supervisor(
            [(self._role, self._index)],
            command(folder / "plan.toml"),
            folder,
            plan.cluster.restarts,
        )
        try:
            with supervisor:
                while supervisor.running(self._role):
                    supervisor.step()
                    time.sleep(_LOOK)
        finally:
            secret.unlink()
        (status,) = supervisor.statuses(self._role)
        if status == OVER:
            status = 0  # how it is the report tells
        name = name_of(self._role, self._index)
        return status, supervisor.counts()[name], supervisor.why(name)

    def has(self, server: str) -> bool:
        """Whether rows of a server are in this one's folder; for the master."""
        return (self._plan.cluster.run / server).is_dir()

    def rows(self) -> list[tuple[str, int]]:
        """The files of a server's rows, and their bytes; none of one that has never begun."""
        there = self._rows()
        paths = there.iterdir() if there.is_dir() else ()
        return [(path.name, path.stat().st_size) for path in paths]

    def piece(self, file: str, first: int, count: int) -> bytes:
        """Of one of them at most so many bytes from ``first`` on."""
        with (self._rows() / file).open("rb") as opened:
            opened.seek(first)
            return opened.read(count)

    def put(self, server: str, file: str, first: int, piece: bytes) -> None:
        """Such bytes of a server on another machine, in their order; for the master."""
        folder = self._plan.cluster.run / server
        folder.mkdir(exist_ok=True)
        with (folder / file).open("ab" if first else "wb") as opened:
            opened.write(piece)

    def _rows(self) -> Path:
        return self._plan.cluster.run / name_of(self._role, self._index)

    def conclude(self, ends: str, rows: list[str]) -> str:
        """The report of a run that has ended, with its output model, as JSON; for the master.

        Args:
            ends: restarts, and who was given up and why, by process, as JSON.
            rows: the folders of servers' rows, in their order.
        """
        folder = self._plan.cluster.run
        report = outcome.read_report(folder)
        if report is None:
            raise ChildProcessError(f"the master has reported nothing: see {folder / 'master.log'}")
        problem = self._plan.problem()
        places = [Path(each) for each in rows]
        restarts, given_up = json.loads(ends)
        whole = outcome.conclude(report, folder, self._plan, problem, restarts, given_up, places)
        return json.dumps(whole)
