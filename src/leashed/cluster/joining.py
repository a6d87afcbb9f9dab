"""Taking part in a run whose processes somebody else has started: torchrun, mpirun, srun, or a
person.

Rank 0 starts the master and the servers as its children; of embedding servers one may be the child of
the first rank of each node. Whoever has started the trainers ends
or restarts them; nobody here does.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import methodcaller  # NumPy's numbers as Python's
from pathlib import Path
from typing import Any, Literal

import numpy as np

from leashed import _core
from leashed.base import checks
from leashed.base.warning import warn
from leashed.cluster import (
    bringing,
    collectives,
    fingerprint,
    joined_folder,
    joined_output,
    led_rows,
    node_servers,
    placing,
    sources,
)
from leashed.cluster.addressing import everywhere, is_local
from leashed.cluster.checkpoints import Checkpoint
from leashed.cluster.children import Children
from leashed.cluster.member import master_address
from leashed.cluster.opening import check_ports, format_address, make_key, read_key
from leashed.cluster.passed_rows import Attending
from leashed.cluster.remote_batches import SentSparse, SentStream
from leashed.cluster.row_index import kept_in
from leashed.cluster.serving import Place
from leashed.cluster.session import TRANSPORTS, Address, Cluster, Met, Output, Reached
from leashed.cluster.supervisor import OVER
from leashed.cluster.table_terms import TableTerms, check_settings, settings_json
from leashed.sync import Position, Synchroniser, check_synchroniser
from leashed.training import abilities
from leashed.training.led_mode import SHARDINGS, SHARDS, LedMode
from leashed.training.rows_read import POOLINGS, RowsRead

__all__ = ["join"]

_joins = itertools.count()  # of this process; the k-th of one meets the k-th of the others


def join(
    *,
    sync: Synchroniser | str | None = None,
    servers: int | None = None,
    embedding_servers: int | Literal["nodes"] = 0,
    tables: Mapping[str, Any] | None = None,
    look_ahead: int | None = None,
    pooling: str = "auto",
    collect: bool = False,
    readers: int | Literal["nodes"] = 0,
    policy_servers: int = 0,
    shards: str = SHARDS,
    rank: int | None = None,
    size: int | None = None,
    rendezvous: str | None = None,
    key: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    ports: int | None = None,
    transport: str = "auto",
    backend: str = collectives.OWN,
    timeout: float = 10.0,
    grace: float = 10.0,
    min_trainers: int = 1,
    require_sync: bool = False,
    patience: float = 300.0,
    checkpoint_every: float | None = None,
) -> Cluster:
    """This process's place among the trainers of a run, for ``train(cluster=...)``.

    Rank and size come from torchrun's, Open MPI's, MPICH's or Slurm's environment, or are given.
    Rank 0 starts the master and the servers when its training begins; they end with it, and
    with the thread that began it: call ``train`` on one that stays as long. All processes call this
    as often and with the same arguments, and train as often.

    Of a model that reads tables no trainer has any: embedding servers do (docs/cluster.md), or with a mode
    the policy server (docs/modes.md). At the end
    rank 0 writes the model, with its own parameters and with the tables of all servers, to the folder
    ``run-0/output`` in ``folder`` (of its next training ``run-1/output``, ...), for ``leashed.load``;
    ``config["cluster_output"]`` of its result names it.

    Args:
        sync: how this trainer's parameters are kept in sync with those of the others, from
            ``leashed.sync``, or a word, as ``"easgd:alpha=0.5"``. Default: not at all.
        servers: sync servers, for ``EASGD``; others have no use for them. Default: one, where the training
            is kept in sync by what needs one.
        embedding_servers: how many hold the rows of the model's tables, all on rank 0's machine; or
            "nodes": one on each node, started by its first rank, where all nodes have as many ranks,
            and numbers of one node follow each other.
        tables: of these tables what ``leashed.tables.of`` takes beside the training's rule, staleness
            and seed: ``init``, ``admit_after``, ``evict``, ``max_bytes`` or ``share``, and
            ``weight_decay``; ``max_bytes`` of each table on all servers together, ``share`` of each
            machine's memory.
        look_ahead: 1: rows of the next batch are asked for while one is computed; up to 5: of so many
            batches, where a network takes longer. 0: when they are needed, so that, with pooling
            ``"rows"``, one trainer with one thread has the bits of one process. With ``policy_servers``:
            so many batches beside the one that a thread computes are granted, sent or pushed meanwhile;
            to the mode each is a worker more, by which rounds are larger and staleness is more.
            Default: 1 with embedding servers, 0 with policy servers.
        pooling: where rows that the model reads pooled (sums, means, maxima) are: ``"servers"``:
            embedding servers do that, and send pools; ``"rows"``: trainers do; ``"auto"``: of each
            feature the one that takes fewer bytes, found from the first batches.
        collect: whether rank 0's result has the tables, as ``result.tables``, where they take at most
            half of the memory that is left.
        readers: processes that read the files of a stream, which all machines have, and send trainers the
            rows of their batches: so many on rank 0's machine, or "nodes": one on each node, as with
            embedding servers. 1 also for a stream of objects, such as tables, of which rank 0's process
            sends its own. Default 0: each trainer has all data in memory.
        policy_servers: 1, or more, for ``train(mode=...)``: a process of rank 0's leads the mode, whose
            workers are the threads of all trainers (docs/modes.md); it goes with no sync servers. Of
            several each has a part of the parameters, and of the rows of tables.
        shards: how these are spread over several policy servers, ``"layerwise"``, ``"memorywise"`` or
            ``"packed"``, as ``leashed.simulation`` has them.
        rank: of this trainer, from 0; with ``size``. Default: from the environment.
        size: how many trainers there are.
        rendezvous: where rank 0 can be reached, ``HOST`` or ``HOST:PORT``. Default: this machine,
            where all trainers are on one; else MASTER_ADDR, or the first host of Slurm's node list;
            port 28471.
        key: a file of mode 0600 with a secret of at least 32 bytes that all machines have; needed
            where there are several. Default: one made for this run.
        folder: where the master keeps its journal and the run's report, and servers their
            snapshots; one without a run. Needed with embedding servers, unless ``collect``, and with
            "nodes" on several: where a node's is none that rank 0 sees, its server's rows are sent there
            at the end. Default: a new one for temporary files, which rank 0
            removes, unless one of its children fails: its log is there; where rank 0 is killed the next
            run does, or ``leashed cluster clean``. (It is found by who has started the processes: two
            runs at once from one shell need a folder each.)
        ports: the first of the ports on which servers and trainers listen: sync servers in their order,
            then embedding servers, policy servers, readers, ranks: rank k on ``ports`` + all of these + k. Default: each on any that is free.
            Over several machines the master has rendezvous's port, and in each further training of
            this process the next.
        transport: between processes of one machine ``"shm"`` (shared memory), ``"tcp"``, or
            ``"auto"``: shared memory where it can be had.
        backend: what ``MA``, ``BMUF`` and the like sum with: ``"leashed"`` (the own ring),
            ``"direct"`` (all with all: fewer steps and more connections), ``"gloo"``
            (torch.distributed; extra ``torch``) or ``"mpi"`` (mpi4py, under mpirun; extra ``mpi``).
        timeout: seconds for a round of synchronisation, and for a connection; and of silence after
            which a trainer counts as dead.
        grace: seconds for which a master that is away is waited for.
        min_trainers: with how many trainers the run begins, at least, ``grace`` seconds after the
            first, and goes on; with fewer it fails. Rank 0's holds.
        require_sync: whether the run fails where a trainer is not synchronised for a minute in
            which two rounds of its pace were due, or was not at all at its end. Rank 0's holds.
        patience: seconds for which an embedding server that is away is waited for, a policy server, and readers; one of the first and the last that
            dies is started again, an embedding server from its last snapshot. Also how long rank 0 may take,
            before it begins, to read the checkpoint that a run goes on from, or to count rows for readers.
        checkpoint_every: seconds between two checkpoints of the whole run, of one moment each, in
            ``run-0/checkpoints`` in ``folder``, which is needed then; where machines have one each, rank
            0's has all parts, and is copied to all before a run goes on. ``train(resume=)`` of all trainers,
            that are as many or not, goes on from one, or from the newest of a folder ``run-0``, in a run
            whose ``folder`` is another. With several policy servers of modes whose servers decide alike.
            Default: none are taken.

    Raises:
        ImportError: what ``backend`` names is not installed.
        TypeError, ValueError: an argument is wrong, or nothing tells the rank; the message says what
            to give.
        OSError: the key cannot be read, or the folder not be written; or it has a run already.
        TimeoutError: rank 0 does not come.
    """
    sync = check_synchroniser(sync)
    # (A program may go to another folder before it trains.)
    folder = None if folder is None else Path(folder).absolute()
    key = None if key is None else Path(key).absolute()
    checks.whole("policy_servers", policy_servers, 0)
    if shards not in SHARDINGS:
        raise ValueError(f"shards must be one of {', '.join(SHARDINGS)}, got {shards!r}")
    if policy_servers < 2 and shards != SHARDS:
        raise ValueError(
            "shards is for several policy servers; give policy_servers, or leave it out"
        )
    as_needed = servers is None
    most = int(not policy_servers) if servers is None else checks.whole("servers", servers, 0)
    if most and policy_servers:
        raise ValueError(
            f"servers must be 0 with policy_servers, got {servers}: the policy server has the parameters, and "
            "nobody would come to sync servers; leave it out"
        )
    if look_ahead is not None:
        checks.whole("look_ahead", look_ahead, 0, _core.MOST_AHEAD)
    if pooling not in POOLINGS:
        raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}, got {pooling!r}")
    checks.flag("collect", collect)
    checks.real("patience", patience, 0.0)
    settings = check_settings("tables", {} if tables is None else tables)
    if transport not in TRANSPORTS:
        raise ValueError(f"transport must be one of {', '.join(TRANSPORTS)}, got {transport!r}")
    checks.real("timeout", timeout, 0.0)
    checks.real("grace", grace, 0.0)
    place = placing.find(os.environ, rank=rank, size=size, rendezvous=rendezvous)
    collectives.check(backend, place.size)
    if checkpoint_every is not None:
        checks.real("checkpoint_every", checkpoint_every, 0.0)
        if folder is None:
            raise ValueError(
                "folder must be given with checkpoint_every: checkpoints are left in run-0/checkpoints there"
            )
    rows_on = node_servers.rows_on(embedding_servers, place, folder, collect=collect)
    served = rows_on.servers
    read_by, mine_read = node_servers.placed("readers", readers, "reader", place, folder)
    if readers == "nodes":
        rows_on = replace(rows_on, node=placing.node(os.environ, place).number)
    given = {
        "tables": settings,
        "collect": collect,
        "look_ahead": look_ahead is not None,
        "pooling": pooling != "auto",
    }
    for name, one in given.items():
        also = name in _OF_POLICY_SERVERS
        if one and not served and not (policy_servers and also):
            raise ValueError(
                f"{name} is for embedding servers{' and policy servers' * also}; give embedding_servers"
                f"{' or policy_servers' * also}, or leave it out"
            )
    checks.whole("min_trainers", min_trainers, 1, place.size)
    checks.flag("require_sync", require_sync)
    local = is_local(format_address(place.host, place.port))

    before = most + served + policy_servers  # who have ports before readers and ranks

    def clear(master: int) -> None:
        if ports is not None:
            others = {} if local else {"rank 0's master": master}
            check_ports("ports", ports, before + read_by + place.size, others)

    clear(place.port)
    if not local and key is None:
        raise ValueError(
            f"key must be a file of mode 0600 that all machines have, since rank 0 is on "
            f"{place.host}; make one with: (umask 077; head -c 32 /dev/urandom > key)"
        )
    # Where there are several machines, all that others need of rank 0 is its address.
    note = (
        joined_folder.meeting(place.told_by, folder) / f"joined-{next(_joins)}.json"
        if local
        else None
    )
    base = Path()
    if place.rank == 0:
        base = joined_folder.fresh(folder, note)
    elif note is not None:
        base = joined_folder.published(note)
    if key is not None:
        secret = read_key(key)
    elif place.rank == 0 and not (base / "key").exists():
        secret = make_key(base / "key")
    else:
        secret = read_key(base / "key", given=False)
    if place.rank == 0 and note is not None:
        joined_folder.publish(note, base)
    host = "127.0.0.1" if local else everywhere(place.host)
    advertise = None if local or place.rank != 0 else place.host
    job = placing.job(os.environ)
    runs = itertools.count()

    def meet(
        dimension: int,
        total: int | None,
        batch_size: int,
        resumed: Position | None,
        told: dict[str, str],
        rows: RowsRead | None,
        begins: Checkpoint | None,
        sent: SentSparse | SentStream | None = None,
        led: LedMode | None = None,
        servers: int = 0,
    ) -> Met:
        if sent is not None and sent.index.once and (checkpoint_every or begins or resumed):
            raise ValueError(
                f"{sent.name} is a pipe, which can be read once, and a run that goes on from a checkpoint reads "
                "rows again: leave checkpoint_every and resume out, or write the rows into a file"
            )
        if rows is not None and rows.apart and (checkpoint_every is not None or begins):
            raise ValueError(
                "checkpoint_every is for leashed.train: a loop of one's own has no moment at which nothing is "
                "under way; leave it out (servers write snapshots, and all rows at the end)"
            )
        if led is not None and rows is not None:
            _check_led_rows(folder, collect=collect)
        if led is not None and checkpoint_every is not None:
            abilities.check(
                {
                    "checkpoints of the run": True,
                    "mode": True,
                    "policy servers": True,
                    "all-reduce": led.reduces,
                    "sparse rows": led.order is not None,
                }
            )
        run = next(runs)
        home = base / f"run-{run}"
        saves = None
        if checkpoint_every is not None:
            saves = (
                base if local or place.rank == 0 else Path(folder or base)
            ).absolute() / home.name
        mine = [] if rows is None else list(rows_on.mine)
        of_files = sent is not None and bool(sent.source.files)
        mine += mine_read if of_files else []
        # On one machine the master takes any port that is free, and writes down which.
        port = 0 if local else place.port + run
        clear(port)
        address: Address = master_address(home) if local else format_address(place.host, port)
        if place.rank != 0:
            if not mine:
                return Met(address, lambda _: None, saves)
            home = rows_on.home(Path(folder or base), run)
            _make(home)
        else:
            if begins is not None:
                begins.check()
            home.mkdir(mode=0o700)
        here = format_address("::1" if host == "::" else "127.0.0.1", port)
        if place.rank != 0:
            here = format_address(place.host, port)
        terms = {
            "dimension": dimension,
            "total": total,
            "batch_size": batch_size,
            "resumed": resumed,
            "fingerprint": told,
            "trainers": place.size,
            "servers": servers,
            "embedding_servers": served,
            "policy_servers": policy_servers,
            "mode": None if led is None else led.to_json(),
            "readers": read_by,
            "reading": sources.to_json(sent) if sent is not None and of_files else None,
            "tables": None
            if rows is None
            else TableTerms(rows, policy_servers, settings, policy_servers).to_json()
            if led is not None
            else TableTerms(rows, served, settings, len(rows_on.mine)).to_json(),
            "host": host,
            "advertise": advertise,
            "port": port,
            "ports": ports or 0,
            "master": None if local else here,
            "home": str((base / f"run-{run}").absolute()),
            "key": str(Path(key).absolute() if key is not None else base / "key"),
            "given": key is not None,
            "timeout": timeout,
            "grace": grace,
            "patience": patience,
            "min_trainers": min_trainers,
            "require_sync": require_sync,
            "transport": transport,
            "job": job,
            "checkpoint_every": checkpoint_every,
            "cuts": saves and str(saves),
            "begins": begins and str(begins.folder.absolute()),
            "cut": 0 if begins is None else begins.number,
        }
        (home / "terms.json").write_text(
            json.dumps(terms, default=methodcaller("item")) + "\n", encoding="utf-8"
        )
        if sent is not None:
            sent.index.keep(home)
        if led is not None:
            np.save(home / "theta.npy", led.theta, allow_pickle=False)
            if led.order is not None:
                np.save(home / "order.npy", led.order, allow_pickle=False)
        once = [("master", 0), *(("sync-ps", k) for k in range(servers))]
        once += [("policy-ps", k) for k in range(policy_servers)]
        children = Children(home, _command(home), once if place.rank == 0 else [], mine)
        reading = None
        if place.rank == 0 and isinstance(sent, SentStream) and not of_files:
            reading = Attending(
                sent.source,
                sent.index,
                Place(
                    master=master_address(home) if local else here,
                    key=secret,
                    host=host,
                    folder=home,
                    grace=grace,
                    transport=transport,
                    port=0 if ports is None else ports + before,
                    advertise=advertise,
                    job=job,
                ),
            )
        if place.rank != 0:

            def end_mine(reached: Reached | None) -> None:
                children.end(grace, None if reached is None else mine[0][0])
                rank_0s = Path(folder or base) / f"run-{run}"
                if reached is not None and not local and not joined_output.sees(rank_0s, reached):
                    for _, index in () if rows is None else rows_on.mine:
                        joined_output.send(home, index, reached, here, secret, timeout + grace)

            return Met(address, end_mine, saves)

        def master() -> str:
            if not children.running("master"):
                raise ChildProcessError(
                    f"the master has ended with status {children.statuses('master')[0]}"
                    f"{children.why('master')}"
                )
            return master_address(home)() if local else here

        leaderless = False  # which nothing mends

        def gone() -> str | None:
            nonlocal leaderless
            why = children.gone("policy-ps", "policy server")
            leaderless = why is not None
            return why

        def end(reached: Reached | None) -> Output | None:
            folders = rows_on.folders(home, run)
            if led is not None and rows is not None:
                folders = [led_rows.folder_of(home, k) for k in range(policy_servers)]
            unseen = {
                k: one
                for k, one in enumerate(folders)
                if one.parent != home and not one.parent.exists()
            }
            with contextlib.ExitStack() as ending:
                brought = None
                if rows is not None and reached is not None and unseen and not local:
                    brought = ending.enter_context(
                        bringing.Bringing(host, port, secret, reached.run, unseen, timeout)
                    )
                # (Other trainers may still evaluate, by what these servers have, or train on what is read.)
                used = rows is not None or sent is not None or led is not None
                # (One that hangs for good would be waited for as long.)
                heard = reached is not None and not reached.lost
                children.end(grace, "master" if used and heard and not leaderless else None)
                if reading is not None:
                    reading.close()
                if of_files and sent is not None and sent.index.once:
                    sent.index = kept_in(home)  # with what its reader has counted
                failed = (
                    joined_output.why_failed(home) if OVER in children.statuses("master") else None
                )
                output = None
                if failed is not None:
                    warn(f"the run has failed: {failed}; its report is in {home}")
                elif rows is not None and reached is not None:
                    if brought is not None:
                        brought.wait(patience)
                    output = joined_output.write(
                        folders, home, reached, patience, collect=collect, led=led
                    )
            kept = rows is not None and (output is None or not collect)
            if folder is None and failed is None and not (children.died or kept):
                shutil.rmtree(home, ignore_errors=True)
            return output

        return Met(master, end, saves, gone)

    return Cluster(
        index=place.rank,
        trainers=place.size,
        servers=most,
        servers_as_needed=as_needed,
        master="",
        key=secret,
        host=host,
        port=0 if ports is None else ports + before + read_by + place.rank,
        transport=transport,
        backend=backend,
        timeout=timeout,
        grace=grace,
        job=job,
        results=False,  # each has its own
        advertise=advertise,
        meet=meet,
        embedding_servers=served,
        policy_servers=policy_servers,
        shards=shards,
        look_ahead=look_ahead,
        readers=read_by,
        rows_in=joined_folder.counted_in(base, place, folder) if read_by else None,
        pooling=pooling,
        patience=patience,
        sync=sync,
        evict_or_wait=abilities.evict_or_wait(settings),
        words=fingerprint.of_tables(settings_json(settings)) if served or policy_servers else {},
    )


_OF_POLICY_SERVERS = ("tables", "collect", "look_ahead")
"""Of what is said of embedding servers what is for policy servers too."""


def _check_led_rows(folder: object, *, collect: bool) -> None:
    """ValueError where a policy server's tables would be lost."""
    if folder is None and not collect:
        raise ValueError(
            "folder must be given with policy_servers for a model that reads tables: that is where the "
            "tables are left, in run-0/output; or give collect=True, by which rank 0's result has them"
        )


def _make(home: Path) -> None:
    """A node's folder of one training."""
    try:
        home.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise FileExistsError(
            errno.EEXIST, "there is a run's already; give a new folder each time", str(home)
        ) from None


def _command(home: Path) -> Callable[[str, int], Sequence[str]]:
    def of(role: str, index: int) -> Sequence[str]:
        return [sys.executable, "-m", "leashed.cluster.child", role, str(home), str(index)]

    return of
