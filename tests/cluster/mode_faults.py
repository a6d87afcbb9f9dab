"""Runs by a mode over policy servers of which processes are killed, stopped and cut off at random moments.

    python tests/cluster/mode_faults.py [--faults 200] [--seed 0] [--only sync:2]

Each run: a master, one or two policy servers and three trainers on loopback, and faults until it ends: of
trainers and the master kill -9, SIGSTOP for a while and SIGCONT, or a connection that ends; of policy
servers the last two, for less than they are taken for dead, and of those that are started again (``returns``)
kill -9 as well. One run in four ends by a policy server that is killed and does not
come back, or hangs for longer. Then (``check``) it has ended by itself: either all batches are complete, and
of each server what became of their examples adds up; or a policy server that was killed, or hung, is named.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster import faults, written
from cluster.faults import Fault, Played
from cluster.processes import pids

from leashed.cluster import plan as plans
from leashed.cluster.measures import Counters, counted
from leashed.cluster.supervisor import read_report

TRAINERS, BATCH, TIMEOUT = 3, 32, 1.5
SETTINGS = [
    ("sync", 1, "server"),
    ("gba:m=3,iota=2", 2, "server"),
    ("sync", 1, "all-reduce"),
    ("sync", 2, "server"),
    ("switching:m=3", 1, "all-reduce"),
    ("asp", 2, "server"),
    ("gba:m=3,iota=2", 1, "server"),
    ("automatic:m=3", 1, "all-reduce"),
    ("switching:m=3", 2, "server"),
    ("hop_bw:b3=1", 2, "server"),
    ("ssp:s=2", 2, "server"),
    ("local_sgd:h=2", 2, "server"),
    ("shat", 2, "server"),
    ("bsp:b2=2", 2, "server"),
    ("easgd:alpha=0.5", 2, "server"),
    ("dssp:lower=1,upper=4", 2, "server"),
    ("automatic:m=3", 2, "server"),
    ("hop_bs:b1=2,m=2", 2, "server"),
    ("local_sgd:h=2", 1, "server"),
    ("shat", 1, "server"),
    ("easgd:alpha=0.5", 1, "server"),
    ("ssp:s=2", 1, "server"),
    ("bsp:b2=2", 1, "server"),
    ("hop_bw:b3=1", 1, "server"),
]
# Of several servers these carry out the first's log.
_ALIKE = ("sync", "switching", "automatic", "hop_bw", "local_sgd")
_SHOWN = ("restarts", "undone_examples")
_FATES = ("mode_applied", "mode_stale", "mode_straggler", "mode_missing", "lost_examples")


def make_plan(folder: Path, mode: str, servers: int, dense: str, epochs: float) -> plans.Plan:
    """As of ``faults``, of that mode."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    train = {
        "data": str(written.digits(folder.parent / "digits")), "mode": mode, "dense": dense, "batch_size": BATCH,
        "lr": 0.05,
    }  # fmt: skip
    return faults.make_plan(
        folder, "none", "background", epochs=epochs, trainers=TRAINERS, train=train, sync_ps=0,
        policy_ps=servers, timeout=TIMEOUT,
        grace=90.0,  # a master that is killed again and again is away for long on a busy machine
    )  # fmt: skip


def begun(folder: Path, _: str) -> bool:
    """Whether batches are done, all of which the policy server has leased."""
    report = read_report(folder)
    return report is not None and report["ledger"]["complete"] > 0


def returns(servers: int, dense: str) -> set[str]:
    """The policy servers that go on from what they have kept where they are killed."""
    return {f"policy-ps-{k}" for k in range(servers) if dense == "server" or servers == 1}


def at_random(
    rng: random.Random, mean: float, servers: int, again: set[str]
) -> Iterator[tuple[float, Fault]]:
    """As of ``faults``, of all roles; a third are connections that end. No policy server is away for as long
    as it is taken for dead; those of ``again`` are killed too.
    """
    who = ["master", *(f"trainer-{k}" for k in range(TRAINERS))]
    who += [f"policy-ps-{k}" for k in range(servers)]
    for after, fault in faults.at_random(rng, mean, who):
        leads = fault.name.startswith("policy-ps")
        dies = leads and fault.seconds is None and fault.name not in again
        if rng.random() < 1 / 3 or dies:
            fault.seconds, fault.cuts = 0.0, True
        elif leads and fault.seconds is not None:
            fault.seconds = rng.uniform(0.02, 0.5) * TIMEOUT
        yield after, fault


def last(rng: random.Random, servers: int, again: set[str]) -> Fault:
    """A policy server hangs, or, where it does not come back ``again``, is killed."""
    name = f"policy-ps-{rng.randrange(servers)}"
    return Fault(name, None if rng.random() < 0.5 and name not in again else 4.0 * TIMEOUT)


def deadly(injected: list[Fault], again: set[str]) -> set[str]:
    """Policy servers that were killed and do not come back ``again``, or hung for as long as they are taken for
    dead.
    """
    return {
        fault.name
        for fault in injected
        if fault.name.startswith("policy-ps")
        and (fault.name not in again if fault.seconds is None else fault.seconds > TIMEOUT)
    }


def check(played: Played) -> str:
    """That the end is as it should be; how it was, in words. AssertionError says what is not."""
    report, plan = played.report, played.plan
    left = pids(plan.cluster.run)
    assert not left, f"processes are left: {left}"
    faults.check_standstill(played)
    again = returns(plan.cluster.policy_ps, plan.train.dense)
    injected = played.injector.injected
    gone = deadly(injected, again)
    if report["state"] != "ended":
        assert report["state"] == "failed", report["state"]
        named = {f"policy server {name[-1]} is lost" for name in gone}
        # (A machine that has no time for one for so long is as one that hangs.)
        starved = "is lost (silent for" in report["reason"]
        assert starved or any(name in report["reason"] for name in named), (report["reason"], gone)
        return str(report["reason"])
    faults.check_members(played)
    ledger = report["ledger"]
    assert ledger["complete"] == ledger["total"], ledger
    assert ledger["outstanding"] == ledger["free"] == 0, ledger
    servers = counted(report, "policy-ps")
    assert len(servers) == plan.cluster.policy_ps
    examples, alike = ledger["total"] * BATCH, str(plan.train.mode).startswith(_ALIKE)
    for index, server in servers.items():
        used = _used(server)
        if index == 0 or alike:
            assert used == examples, (index, used, examples, server)
        else:  # who decides by itself has not heard of what never came, nor waited for it
            assert used <= examples, (index, used, examples, server)
        if len(servers) > 1:
            killed = sum(f.name == f"policy-ps-{index}" and f.seconds is None for f in injected)
            assert server["restarts"] <= killed, server  # (One may come before it is a member.)
            assert killed or server["undone_pushes"] == server["undone_examples"] == 0, server
        assert server["strange"] == 0, server
    kills = sum(f.name == "policy-ps-0" and f.seconds is None for f in injected)
    if "policy-ps-0" in again and (len(servers) > 1 or not kills):
        assert ledger["undone"] == 0, ledger
    return f"{examples:,} examples, " + ", ".join(
        f"{name} {count:,.0f}"
        for name, count in servers[0].items()
        if name in (*_FATES, *_SHOWN) and count
    )


def _used(server: Counters) -> float:
    """Examples of which a policy server says what became of them; of EASGD it has exchanged after each batch."""
    return sum(server.get(name, 0.0) for name in _FATES) + BATCH * server["mode_exchanges"]


def attempts(
    wanted: int, seed: int, base: Path, mean: float, *, first: int = 0, only: str | None = None
) -> int:
    """Runs until so many faults were injected; how many runs failed. ``first``: which of ``SETTINGS`` the
    first run has; the others follow. ``only``: those of MODE:SERVERS.
    """
    settings = [s for s in SETTINGS if only is None or only == f"{s[0].split(':')[0]}:{s[1]}"]
    done = failed = run = 0
    while done < wanted:
        rng = random.Random(f"{seed}.{run}")
        mode, servers, dense = settings[(first + run) % len(settings)]
        folder = base / str(run)
        few = min(12, wanted - done)
        plan = make_plan(folder / "run", mode, servers, dense, 20.0 + 15.0 * few * mean)
        again = returns(servers, dense)
        planned = list(islice(at_random(rng, mean, servers, again), few))
        if rng.random() < 0.25:
            planned.append((rng.expovariate(1 / mean), last(rng, servers, again)))
        start, error, words = time.monotonic(), None, ""
        try:
            with faults.nothing_left():
                played = faults.play(plan, planned, begun)
            words = check(played)
        except (AssertionError, OSError, ValueError) as caught:
            error = caught
        injected = [fault for _, fault in planned if fault.time]
        done += max(1, len(injected))
        print(
            f"{run:3} {mode:14} {servers} {dense:10} {time.monotonic() - start:6.1f} s  faults {done:3}  {words} "
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
    parser.add_argument("--only", help="MODE:SERVERS")
    options = parser.parse_args(argv)
    base = Path(tempfile.mkdtemp(prefix="leashed-mode-faults-"))
    failed = attempts(options.faults, options.seed, base, options.mean, only=options.only)
    if not failed:
        shutil.rmtree(base)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
