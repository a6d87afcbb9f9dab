"""Runs with rows at embedding servers and readers in which all roles are killed, stopped and cut off.

    python tests/cluster/row_faults.py [--faults 500] [--seed 0] [--mean 1.0] [--together]

Each run: a master, a sync server where there are any, two embedding servers, a reader (of CSV, packed CSV or
Parquet) and two trainers on loopback, and faults until it ends: kill -9, SIGSTOP for a while and SIGCONT, or a connection that ends, now and then
of two at once. Each example has an id of its own, and all have ids in common at each server; steps are
so small that rows stay what they began with, which tells whose they are. Then (``check``) beside what
``faults`` wants of any run: no row has another id's values; at each server all rows of a batch have as
many updates, and all batches together as many pushes as it says. A batch is at a server as often as
there were passes, less what is told as lost there, more what was trained twice.

Exact are these accounts where only trainers die, or only servers. Where no trainer dies pushes are what
trainers tell, and ``twice`` in the ledger is what they pushed beyond the run's batches. Of a server that
dies within moments of a trainer nobody knows how many of the trainer's pushes its last snapshot lacks:
what it counted is gone with it but for its last word (a quarter of a second before), and what the trainer
counted is gone too. So its own ``lost`` is the least that it lost, and the most are the batches that the
dead trainer had told (others are granted again). The rows tell here what lacks in truth
(``Stamps.lacks``); ``attempts`` prints it beside what is told.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from cluster import faults
from cluster.faults import Fault, Played
from cluster.processes import pids
from numpy.typing import NDArray

import leashed as lsh
from leashed import _core
from leashed.cluster import plan as plans
from leashed.cluster.measures import counted
from leashed.cluster.row_files import joined
from leashed.models import tables

SERVERS, TRAINERS, ROWS, BATCH = 2, 2, 1600, 32
COMMON = 24  # ids that all examples have: some at each server
RATE = 1e-9  # of Adagrad: a thousand steps do not reach what tells one row from another
SETTINGS = [("easgd", "background"), ("ma", {"iterations": 5}), ("bmuf", "background")]
NEAR, APART = 1e-5, 1e-4
FORMATS = ("csv", "csv.gz", "parquet")


def written(folder: Path, rows: int = ROWS, kind: str = "csv") -> dict[str, Any]:
    """The words that train on a file of that kind with examples with ids of their own, and in common."""
    columns = {
        "click": {"kind": "label"},
        "price": {"kind": "number"},
        "own": {"kind": "id"},
        "common": {"kind": "id", "between": " "},
    }
    folder.mkdir(parents=True, exist_ok=True)
    common = " ".join(map(str, range(COMMON)))
    values = [(k % 2, k % 7, k, common) for k in range(rows)]
    path = folder / f"rows.{kind}"
    if kind == "parquet":
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import parquet  # noqa: PLC0415

        by_column = dict(zip(columns, zip(*values, strict=True), strict=True))
        parquet.write_table(pa.table(by_column), path, row_group_size=rows // 4)
    else:
        lines = [",".join(map(str, each)) for each in [tuple(columns), *values]]
        text = "".join(f"{line}\n" for line in lines).encode()
        path.write_bytes(gzip.compress(text) if kind.endswith("gz") else text)
    (folder / "schema.json").write_text(json.dumps({"columns": columns}))
    file = str(path)
    return {
        "model": "dlrm", "data": file, "test": file, "schema": str(folder / "schema.json"),
        "table_mib": 1.0, "dim": 4, "rule": "adagrad", "lr": RATE, "batch_size": BATCH,
    }  # fmt: skip


def make_plan(
    folder: Path, epochs: float, train: Any = None, kind: str = "easgd", when: Any = "background",
    **given: Any,
) -> plans.Plan:  # fmt: skip
    """As of ``faults``, of such examples. ``train``: other words."""
    of = {
        "sync_ps": int(kind == "easgd"), "embedding_ps": SERVERS, "readers": 1, "timeout": 1.5, "snapshot_every": 0.1,
        "grace": 30.0,  # a master that is killed again and again is away for long on a busy machine
    }  # fmt: skip
    return faults.make_plan(
        folder, kind, when, epochs=epochs, trainers=TRAINERS,
        train=train or written(folder.parent / "rows"), **{**of, **given},
    )  # fmt: skip


def at_random(rng: random.Random, plan: plans.Plan, mean: float) -> Iterator[tuple[float, Fault]]:
    """As of ``faults``, of all roles; a third are connections that end, and of some there are two at once."""
    who = [faults.name_of(*each) for each in plan.cluster.processes()]
    first = True
    for after, fault in faults.at_random(rng, mean, who):
        if rng.random() < 1 / 3:
            fault.seconds, fault.cuts = 0.0, True
        yield (after if first or rng.random() < 0.75 else 0.0), fault
        first = False


def together(rng: random.Random, mean: float) -> Iterator[tuple[float, Fault]]:
    """A trainer and an embedding server are killed at once, again and again."""
    after = -rng.uniform(0.0, 2.0)
    while True:
        trainer = f"trainer-{rng.randrange(TRAINERS)}"
        yield after, Fault(trainer, None)
        yield 0.0, Fault(f"embedding-ps-{rng.randrange(SERVERS)}", None)
        after = 1.0 + rng.expovariate(1 / mean)


@dataclass
class Stamps:
    """What the rows that a run leaves tell.

    Attributes:
        applied: by server and batch of the file, how often it was.
        common: of each server, how many pushes its rows have.
        pushes: of each, how many it says.
    """

    applied: NDArray[np.int64]
    common: list[int]
    pushes: list[int]

    def lacks(self, epochs: int) -> int:
        """Parts of batches, of one server each, that would have been applied in so many passes."""
        return int(np.maximum(epochs - self.applied, 0).sum())

    def beyond(self, epochs: int) -> NDArray[np.int64]:
        """By server, how many were applied beyond these."""
        found: NDArray[np.int64] = np.maximum(self.applied - epochs, 0).sum(axis=1)
        return found


def stamps(played: Played) -> Stamps:
    """Read from the servers' files. AssertionError where a row has another id's values, or one of a batch, or
    of a server, another count.
    """
    plan = played.plan
    described = plan.problem().model.tables  # type: ignore[union-attr]
    found = joined(played.folder, described, SERVERS, played.report["run"])
    fresh = tables.of(described, rule=lsh.Adagrad(RATE), seed=plan.train.seed)
    shards = [k % SERVERS for k in range(256)]
    grows = [(each.rows is None, -1) for each in described]
    placement = _core.RowPlacement(grows, shards)
    applied, common = np.zeros((SERVERS, ROWS // BATCH), np.int64), []
    for number, one in enumerate(described):
        table, most = found.tables[one.name], COMMON if number else ROWS
        ids = np.asarray(table.ids(), np.int64)
        there = np.sort(ids[(ids >= 0) & (ids < most)])
        assert set(ids) - set(there) <= {-1}, f"{one.name} has ids that nobody sent"
        values, versions = table.lookup(there, versions=True)
        versions //= 2  # of each update there is one when it begins
        fresh[one.name].update(there, np.zeros_like(values))
        first = fresh[one.name].lookup(there)
        assert np.abs(values - first).max() < NEAR, f"a row of {one.name} has another's values"
        order = np.argsort(first[:, 0])
        assert np.abs(np.diff(first[order], axis=0)).max(axis=1).min() > APART
        own = np.zeros(most, np.int64)
        own[there] = versions
        for server in range(SERVERS):
            if number == 0:
                held = [placement.server(number, i) == server for i in range(ROWS)]
                of = np.where(held, own, -1).reshape(-1, BATCH)
                applied[server] = of.max(axis=1)
                alike = (of == applied[server][:, None]) | (of == -1)
                assert alike.all(), f"of a batch some rows of server {server} have other updates"
                continue
            mine = [placement.server(number, int(i)) == server for i in there]
            counts = set(versions[mine].tolist())
            assert len(counts) == 1, f"rows of server {server} have {counts} updates"
            common.append(counts.pop())
    return Stamps(applied, common, found.pushes)


def check(played: Played) -> Stamps:
    """That the end is as it should be. AssertionError says what is not."""
    report, plan = played.report, played.plan
    assert report["state"] == "ended", report["state"]
    faults.check_ledger(report)
    faults.check_members(played)
    faults.check_standstill(played)
    left = pids(plan.cluster.run)
    assert not left, f"processes are left: {left}"
    found = stamps(played)
    assert found.common == found.pushes == found.applied.sum(axis=1).tolist()
    ledger, epochs = report["ledger"], int(plan.train.epochs or 0)
    of = told(report)
    assert of["not_finite"] == of["unsettled"] == 0, of
    restarts = played.injector.supervisor.counts()
    died = sum(restarts[f"trainer-{k}"] for k in range(TRAINERS))
    rows_died = sum(restarts[f"embedding-ps-{k}"] for k in range(SERVERS))
    lost = servers_lost(report)
    # All that was ever applied, there or lost, is a batch of the run, or was granted once more.
    twice = ledger["again"] + ledger["lost"]
    assert (np.add(found.pushes, lost) <= ledger["total"] + twice).all(), (found, lost, ledger)
    lacks = found.lacks(epochs)
    if not died:
        twice = ledger["twice"] + ledger["lost"]
        assert of["used"] == of["pushes"] == ledger["total"] + twice, (of, ledger)
        assert of["settled"] == SERVERS * of["pushes"], of
        assert sum(found.pushes) == of["settled"] - of["lost"] - of["expired"], (found.pushes, of)
        assert lacks <= of["lost"] + of["expired"], (lacks, of)
    elif not rows_died:
        assert lacks <= of["expired"] + under_way(plan, died), (lacks, of)
    elif not restarts["master"]:
        # Of a dead trainer's batches those lack at most that it had told: others are granted again.
        told_of = sum(
            int(each["counters"].get("batches_used", 0))
            for each in report["members"]
            if each["role"] == "trainer" and not each["finished"]
        )
        most = told_of * sum(restarts[f"embedding-ps-{k}"] > 0 for k in range(SERVERS))
        assert unknown(played, found) <= most, (lacks, of, told_of)
    assert (found.beyond(epochs) <= twice).all(), (found, ledger)
    return found


def told(report: dict[str, Any]) -> Counter[str]:
    """What all trainers have told of their pushes: batches used and pushed, and of the parts of these what."""
    of: Counter[str] = Counter()
    for each in counted(report, "trainer").values():
        of["used"] += int(each.get("batches_used", 0))
        for name in ("pushes", "settled", "lost", "not_finite", "expired", "unsettled"):
            of[name] += int(each.get(f"row_{name}", 0))
    return of


def servers_lost(report: dict[str, Any]) -> list[int]:
    """Pushes that each server has counted as lost."""
    found = counted(report, "embedding-ps")
    return [int(found.get(index, {}).get("lost", 0)) for index in range(SERVERS)]


def under_way(plan: plans.Plan, died: int) -> int:
    """Parts that trainers may have had under way when they died: these are granted again, or are of their
    last batches.
    """
    return (1 + plan.cluster.ahead) * died * SERVERS


def unknown(played: Played, found: Stamps) -> int:
    """Parts that are lacking, of which no trainer tells: of those that died with servers."""
    plan, of = played.plan, told(played.report)
    died = sum(played.injector.supervisor.counts()[f"trainer-{k}"] for k in range(TRAINERS))
    known = of["lost"] + of["expired"] + under_way(plan, died)
    return max(0, found.lacks(int(plan.train.epochs or 0)) - known)


def attempts(
    wanted: int,
    seed: int,
    base: Path,
    mean: float,
    each: int = 12,
    *,
    pairs: bool = False,
    first: int = 0,
) -> int:
    """Runs until so many faults were injected; how many runs failed. ``pairs``: of two at once (``together``).
    ``first``: which of ``FORMATS`` the first run reads; the others follow.
    """
    done = failed = run = 0
    while done < wanted:
        rng = random.Random(f"{seed}.{run}")
        folder = base / str(run)
        few = min(each, wanted - done)
        kind, when = SETTINGS[run % len(SETTINGS)]
        file = FORMATS[(first + run + run // len(SETTINGS)) % len(FORMATS)]
        train = written(folder / "rows", kind=file)
        plan = make_plan(folder / "run", 20.0 + 40.0 * few * mean, train, kind=kind, when=when)
        drawn = together(rng, mean) if pairs else at_random(rng, plan, mean)
        planned = list(islice(drawn, few))
        begun, error, ledger, words = time.monotonic(), None, {}, ""
        try:
            with faults.nothing_left():
                played = faults.play(plan, planned)
            ledger = played.report["ledger"]
            found = check(played)
            lacks = f"{found.lacks(int(plan.train.epochs or 0))} parts lack"
            words = (
                f"pushes {found.pushes}, {lacks}, {unknown(played, found)} of them not told by trainers, "
                f"servers tell of {servers_lost(played.report)} lost "
            )
        except (AssertionError, OSError, ValueError) as caught:
            error = caught
        injected = [fault for _, fault in planned if fault.time]
        done += len(injected)
        print(
            f"{run:3} {kind:5} {file:7} {time.monotonic() - begun:6.1f} s  faults {done:3}  again "
            f"{ledger.get('again', '-')} of {ledger.get('total', '-')} {words}"
            f"{'; '.join(map(str, injected))}",
            flush=True,
        )
        if error is None:
            shutil.rmtree(folder)
        else:
            failed += 1
            print(f"    FAILED: {type(error).__name__}: {error}\n    see {folder}", flush=True)
        run += 1
    return failed


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mean", type=float, default=1.0, help="seconds between two faults")
    parser.add_argument(
        "--together", action="store_true", help="trainers and servers are killed, two at once"
    )
    options = parser.parse_args(argv)
    base = Path(tempfile.mkdtemp(prefix="leashed-row-faults-"))
    failed = attempts(options.faults, options.seed, base, options.mean, pairs=options.together)
    if not failed:
        shutil.rmtree(base)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
