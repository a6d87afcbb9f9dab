"""Which of how many trainers this process is, and where they meet, as whoever started it tells.

torchrun, Open MPI, MPICH (and what shares its launcher, Hydra) and Slurm each say so in the
environment. Pure functions of that environment: nothing here looks at the machine or the network.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from leashed.base import checks

__all__ = ["PORT", "Node", "Place", "address", "find", "hosts", "job", "node"]

PORT = 28_471
"""Where trainers meet unless told otherwise. torchrun's own MASTER_PORT is taken by torchrun."""

_LOOPBACK = "127.0.0.1"
_MOST_HOSTS = 65_536


@dataclass(frozen=True)
class Place:
    """A trainer's place among others.

    Args:
        rank: its number, from 0.
        size: how many there are.
        host: where rank 0 listens; 127.0.0.1 where all of them are on one machine.
        port: where there.
        local_rank: its number among those on its machine, from 0.
        told_by: who said so, such as ``torchrun``.

    Raises:
        TypeError, ValueError: a number is out of its range; the message names it.
    """

    rank: int
    size: int
    host: str
    port: int
    local_rank: int
    told_by: str

    def __post_init__(self) -> None:
        checks.whole("size", self.size)
        checks.whole("rank", self.rank, 0, self.size - 1)
        checks.whole("local_rank", self.local_rank, 0, self.size - 1)
        checks.whole("port", self.port, 1, 65_535)


class Node(NamedTuple):
    """Which of how many a rank's node is.

    Attributes:
        number: from 0.
        nodes: how many there are.
    """

    number: int
    nodes: int


@dataclass(frozen=True)
class _Launcher:
    """The variables in which a launcher tells of its processes; of several names the first set."""

    name: str
    rank: tuple[str, ...]
    size: tuple[str, ...]
    local_rank: tuple[str, ...]
    local_size: tuple[str, ...]


# What runs inside another's allocation comes first: torchrun and mpirun are started by Slurm, too.
_LAUNCHERS = (
    _Launcher("torchrun", ("RANK",), ("WORLD_SIZE",), ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE",)),
    _Launcher(
        "Open MPI",
        ("OMPI_COMM_WORLD_RANK",),
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    ),
    _Launcher("MPICH", ("PMI_RANK",), ("PMI_SIZE",), ("MPI_LOCALRANKID",), ("MPI_LOCALNRANKS",)),
    # (A job's script, which no srun has started, has SLURM_PROCID and SLURM_NTASKS too.)
    _Launcher("Slurm", ("SLURM_PROCID",), ("SLURM_STEP_NUM_TASKS",), ("SLURM_LOCALID",), ()),
)


def find(
    environment: Mapping[str, str],
    *,
    rank: int | None = None,
    size: int | None = None,
    rendezvous: str | None = None,
) -> Place:
    """The place of this process.

    Args:
        environment: such as ``os.environ``.
        rank: instead of what the environment says; with ``size``.
        size: likewise.
        rendezvous: ``HOST`` or ``HOST:PORT`` of rank 0. Default: 127.0.0.1 where all are on one
            machine, else MASTER_ADDR, else the first host of Slurm's node list; and ``PORT``.

    Raises:
        TypeError, ValueError: nothing or too little is said, or something that makes no sense; the
            message tells what to give.
    """
    if (rank is None) != (size is None):
        raise ValueError("rank and size go together: give both, or neither")
    if rank is not None and size is not None:
        size = checks.whole("size", size)
        host, port = _meeting("rank and size", rendezvous, environment, alone=size == 1)
        return Place(rank, size, host, port, 0, "arguments")
    for launcher in _LAUNCHERS:
        found = _variable(environment, launcher.rank)
        if found is None or (launcher.name == "MPICH" and _by_srun(environment)):
            continue
        count = _variable(environment, launcher.size)
        if count is None:
            by = (
                "srun, and not by the job's script itself"
                if launcher.name == "Slurm"
                else launcher.name
            )
            raise ValueError(
                f"{launcher.rank[0]} is set, but not {launcher.size[0]}: was this started by {by}? Give "
                "rank and size"
            )
        local = _variable(environment, launcher.local_rank)
        here = _variable(environment, launcher.local_size)
        alone = count in (1, here) or _one_host(environment, launcher)
        host, port = _meeting(launcher.name, rendezvous, environment, alone=alone)
        return Place(found, count, host, port, 0 if local is None else local, launcher.name)
    raise ValueError(
        "nobody tells which of how many trainers this is: start it with torchrun, mpirun or srun, "
        "or give rank, size and rendezvous"
    )


def node(environment: Mapping[str, str], place: Place, name: str = "embedding_servers") -> Node:
    """The node of a place, where all have as many ranks, those of one in a row.

    Args:
        environment: such as ``os.environ``.
        place: as ``find`` tells of it.
        name: what is given "nodes".

    Raises:
        ValueError: nothing tells how many ranks a node has, or they are not so; the message tells what
            to give.
    """
    instead = f'give {name} a number in place of "nodes"'
    launcher = next((one for one in _LAUNCHERS if one.name == place.told_by), None)
    each = None if launcher is None else _variable(environment, launcher.local_size)
    if each is None and launcher is not None and launcher.name == "Slurm":
        nodes = _variable(environment, ("SLURM_STEP_NUM_NODES", "SLURM_NNODES"))
        each = place.size // nodes if nodes and place.size % nodes == 0 else None
        if nodes and each is None:
            raise ValueError(
                f"{place.size} ranks are not as many on each of {nodes} nodes; {instead}"
            )
    if each is None:
        raise ValueError(f"{place.told_by} does not tell how many ranks a node has; {instead}")
    if each < 1 or place.size % each or place.rank % each != place.local_rank:
        raise ValueError(
            f"rank {place.rank} of {place.size} is number {place.local_rank} of {each} on its node, so "
            f"nodes have not as many ranks, or not in a row; {instead}"
        )
    return Node(place.rank // each, place.size // each)


def address(text: str, default_port: int = PORT) -> tuple[str, int]:
    """Host and port of ``HOST``, ``HOST:PORT``, or with brackets where the host is of IPv6
    (``[::1]:PORT``).

    Raises:
        ValueError: ``text`` is something else.
    """
    match = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^\[\]:\s]+))(?::(\d{1,5}))?", text)
    port = default_port if match is None or match[3] is None else int(match[3])
    if match is None or not 0 < port < 65_536:
        raise ValueError(
            f"an address is HOST or HOST:PORT (of IPv6 [HOST]:PORT), ports up to 65535, not {text!r}"
        )
    return match[1] or match[2], port


def hosts(listed: str) -> list[str]:
    """The hosts of a list as Slurm writes it, such as ``node[01-03,7],other``, in its order.

    Raises:
        ValueError: it is no such list, or one of more than 65,536 hosts.
    """
    found: list[str] = []
    for item in _items(listed):
        # Every second part was within brackets.
        parts = re.split(r"\[([^\[\]]*)\]", item)
        choices = [_numbers(part, listed) if k % 2 else [part] for k, part in enumerate(parts)]
        if len(found) + math.prod(len(choice) for choice in choices) > _MOST_HOSTS:
            raise ValueError(f"a node list names at most {_MOST_HOSTS} hosts: {listed!r}")
        names = ["".join(name) for name in itertools.product(*choices)]
        if not all(re.fullmatch(r"[\w.-]+", name) for name in names):
            raise ValueError(f"this is no list of hosts such as node[01-03,7],other: {listed!r}")
        found += names
    return found


def _items(listed: str) -> list[str]:
    """The parts between the commas that are in no brackets."""
    return re.split(r",(?![^\[\]]*\])", listed.strip())


def _numbers(ranges: str, listed: str) -> list[str]:
    """The numbers of ``01-03,7``, with as many digits as they are written with."""
    found: list[str] = []
    for part in ranges.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise ValueError(f"brackets hold numbers and ranges of them, not {part!r}: {listed!r}")
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if last < first or last - first >= _MOST_HOSTS:
            raise ValueError(f"the range {part!r} is empty or too long: {listed!r}")
        found += [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
    return found


def _meeting(
    told_by: str, rendezvous: str | None, environment: Mapping[str, str], *, alone: bool
) -> tuple[str, int]:
    """Where the trainers meet; ``alone``: all of them are on one machine."""
    if rendezvous is not None:
        return address(rendezvous)
    if alone:
        return _LOOPBACK, PORT
    if environment.get("MASTER_ADDR"):
        return environment["MASTER_ADDR"], PORT
    listed = _slurm_list(environment)
    if listed is not None:
        return hosts(listed)[0], PORT
    raise ValueError(
        f"nothing tells where rank 0 is ({told_by} does not): give rendezvous, or set MASTER_ADDR, "
        "to its host"
    )


def _slurm_list(environment: Mapping[str, str]) -> str | None:
    return environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST") or None


def _one_host(environment: Mapping[str, str], launcher: _Launcher) -> bool:
    """Whether Slurm, which does not say how many processes a machine has, lists one machine."""
    listed = _slurm_list(environment)
    return launcher.name == "Slurm" and listed is not None and len(hosts(listed)) == 1


def _by_srun(environment: Mapping[str, str]) -> bool:
    """Whether Slurm has set MPICH's variables, as ``srun --mpi=pmi2`` does, but for those of a machine."""
    names = ("MPI_LOCALRANKID", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "PMI_RANK")
    local, tasks, rank, same = (environment.get(name) for name in names)
    return not local and bool(tasks) and rank == same


def _variable(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    """The number in the first of the variables that is set; None where none is."""
    for name in names:
        if environment.get(name):
            try:
                return int(environment[name])
            except ValueError:
                raise ValueError(
                    f"{name} must be a whole number, got {environment[name]!r}"
                ) from None
    return None


def job(environment: Mapping[str, str]) -> str:
    """What the launcher calls the job, of which all processes have the same; empty: nothing."""
    torchrun = environment.get("TORCHELASTIC_RUN_ID", "")
    return environment.get("SLURM_JOB_ID", "") if torchrun in ("", "none") else torchrun
