"""Taking part in a run whose processes somebody else has started: torchrun, mpirun, srun, or a
person.

Rank 0 starts the master and the sync servers as its children. Whoever has started the trainers ends
or restarts them; nobody here does.
"""

from __future__ import annotations

import itertools
import json
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from leashed import _check
from leashed.cluster import placing
from leashed.cluster.member import master_address
from leashed.cluster.opening import Key, format_address, make_key, read_key
from leashed.cluster.session import TRANSPORTS, Address, Cluster, is_local
from leashed.cluster.supervisor import Supervisor

__all__ = ["join"]

_WAIT = 30.0  # seconds for rank 0 to make the key
_LOOK = 0.05
_EVERYWHERE = "0.0.0.0"  # noqa: S104  listened to only with a key that the user has given


def join(
    *,
    servers: int = 1,
    rank: int | None = None,
    size: int | None = None,
    rendezvous: str | None = None,
    key: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    transport: str = "auto",
    timeout: float = 10.0,
    grace: float = 10.0,
) -> Cluster:
    """This process's place among the trainers of a run, for ``train(cluster=...)``.

    Rank and size come from torchrun's, Open MPI's, MPICH's or Slurm's environment, or are given.
    Rank 0 starts the master and the sync servers when its training begins; they end with it. All
    processes call this with the same arguments, and train as often.

    Args:
        servers: sync servers, which ``EASGD`` needs; 0 for ``MA`` and ``BMUF``.
        rank: of this trainer, from 0; with ``size``. Default: from the environment.
        size: how many trainers there are.
        rendezvous: where rank 0 can be reached, ``HOST`` or ``HOST:PORT``. Default: this machine,
            where all trainers are on one; else MASTER_ADDR, or the first host of Slurm's node list;
            port 28471.
        key: a file of mode 0600 with a secret of at least 32 bytes that all machines have; needed
            where there are several. Default: one made for this run.
        folder: where the master keeps its journal and the run's report, and sync servers their
            snapshots. Default: a new one for temporary files.
        transport: between processes of one machine ``"shm"`` (shared memory), ``"tcp"``, or
            ``"auto"``: shared memory where it can be had.
        timeout: seconds for a round of synchronisation, and for a connection.
        grace: seconds for which a master that is away is waited for.

    Raises:
        TypeError, ValueError: an argument is wrong, or nothing tells the rank; the message says what
            to give.
        OSError: the key cannot be read, or the folder not be written.
    """
    _check.whole("servers", servers, 0)
    if transport not in TRANSPORTS:
        raise ValueError(f"transport must be one of {', '.join(TRANSPORTS)}, got {transport!r}")
    _check.real("timeout", timeout, 0.0)
    _check.real("grace", grace, 0.0)
    place = placing.find(os.environ, rank=rank, size=size, rendezvous=rendezvous)
    local = is_local(format_address(place.host, place.port))
    if not local and key is None:
        raise ValueError(
            f"key must be a file of mode 0600 that all machines have, since rank 0 is on "
            f"{place.host}; make one with: (umask 077; head -c 32 /dev/urandom > key)"
        )
    base = Path(folder) if folder is not None else _own_folder(place.told_by)
    if place.rank == 0:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
    secret = read_key(key) if key is not None else _run_key(base / "key", place.rank)
    runs = itertools.count()

    def meet(
        dimension: int, total: int | None, batch_size: int
    ) -> tuple[Address, Callable[[], None]]:
        run = next(runs)
        home = base / f"run-{run}"
        # On one machine the master takes any port that is free, and writes down which.
        port = 0 if local else place.port + run
        master: Address = (
            master_address(home) if local else format_address(place.host, place.port + run)
        )
        if place.rank != 0:
            return master, lambda: None
        home.mkdir(mode=0o700, exist_ok=True)
        terms = {
            "dimension": dimension,
            "total": total,
            "batch_size": batch_size,
            "trainers": place.size,
            "servers": servers,
            "host": "127.0.0.1" if local else _EVERYWHERE,
            "port": port,
            "master": None if local else format_address("127.0.0.1", port),
            "key": str(Path(key).absolute() if key is not None else base / "key"),
            "given": key is not None,
            "grace": grace,
            "transport": transport,
        }
        (home / "terms.json").write_text(json.dumps(terms) + "\n", encoding="utf-8")
        processes = [("master", 0), *(("sync-ps", k) for k in range(servers))]
        children = Supervisor(processes, _command(home), home)
        children.__enter__()

        def end() -> None:
            try:
                children.wait(grace)
            finally:
                children.__exit__(None, None, None)

        return master, end

    return Cluster(
        index=place.rank,
        trainers=place.size,
        servers=servers,
        master="",
        key=secret,
        host="127.0.0.1" if local else _EVERYWHERE,
        transport=transport,
        timeout=timeout,
        grace=grace,
        meet=meet,
    )


def _command(home: Path) -> Callable[[str, int], Sequence[str]]:
    def of(role: str, index: int) -> Sequence[str]:
        return [sys.executable, "-m", "leashed.cluster.child", role, str(home), str(index)]

    return of


def _own_folder(told_by: str) -> Path:
    """One that the processes with the same launcher find, and nobody else can enter."""
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    name = f"leashed-{os.geteuid()}-{told_by.replace(' ', '')}-{os.getppid()}-{attempt}"
    path = Path(tempfile.gettempdir()) / name
    if path.is_symlink() or (path.exists() and not _is_own(path)):
        raise PermissionError(f"{path} is somebody else's; give folder, one of your own")
    return path


def _is_own(path: Path) -> bool:
    about = path.stat()
    return about.st_uid == os.geteuid() and not stat.S_IMODE(about.st_mode) & 0o077


def _run_key(path: Path, rank: int) -> Key:
    """The key of this run alone, which rank 0 makes."""
    if rank == 0:
        path.unlink(missing_ok=True)
        beside = path.with_suffix(".new")
        beside.unlink(missing_ok=True)
        make_key(beside)
        beside.replace(path)
        return read_key(path, given=False)
    end = time.monotonic() + _WAIT
    while not path.exists():
        if time.monotonic() >= end:
            raise TimeoutError(
                f"rank 0 has made no key in {_WAIT:g} s at {path}; are all trainers on one machine, "
                "and did rank 0 start? Else give rendezvous, key and folder"
            )
        time.sleep(_LOOK)
    return read_key(path, given=False)
