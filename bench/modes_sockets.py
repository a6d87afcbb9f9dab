"""Tables 2 and 3 and Figure 6 of gba and Figure 6 of shat, small, over real sockets, beside virtual time.

python -m bench.modes_sockets gba --output FILE [--seeds 3] [--small]
python -m bench.modes_sockets shat --output FILE [--seeds 3] [--small]

All processes share two processors here, so gradients are slowed by sleeps (``bench/slowed.py``). A gradient
itself takes less than a twentieth of that. The same sleeps, and what gradients, transfers and the server
took over sockets, are given to virtual time, which trains the same model on the same data.

What is tried, written down before it was run, and after a sketch with other seeds:

- **gba**: 8 workers, batches of 32 of 19,200 synthetic clicks a day, a small DeepFM. A sleep is 40 ms times
  1 + x, x exponentially distributed and drawn anew after 10 gradients of a worker, and 5% more or less. Day 0
  by each mode, day 1 by each after Sync, and by Sync after each: Adam at 0.005, Async Adagrad at 0.02, the
  best of five in virtual time with another seed. Rules begin anew each day.
- **shat**: 8 workers, 160 batches of 16, an MLP of eight layers alike and one whose last two layers have
  nine tenths, over 1, 2 and 4 servers, each behind a link of its own (``bench/links.py``). A sleep is
  100 ms, 5% more or less; a push takes a link 15 ms, or 90. What transfers take besides is measured by runs
  whose links have no limit. Throughput is of the gradients behind the first 24. Adam at 0.002, with which
  virtual time has learned something of both nets with another seed.

Writes a JSON line for each run; seeds that FILE has already are not run again. Prints what the claims come
to, as ``bench/papers/gba.py`` and ``shat.py`` judge them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import leashed as lsh
from bench.links import Links
from bench.markdown import table
from bench.slowed import WORKERS, Clicks, Crew, Net
from leashed.simulation import Cluster, Sharding, Simulation, layerwise, memorywise

SYNC = "Sync"
MODES = {
    "Async": "asp",
    SYNC: "sync",
    "Hop-BS": "hop_bs:b1=2",
    "BSP": "bsp:b2=2",
    "Hop-BW": "hop_bw:b3=2",
    "GBA": "gba:iota=4",
}
WAIT_FOR_NOBODY = ("Async", "BSP", "GBA")

SERVERS = (1, 2, 4)
SHARDS = {"layerwise": layerwise, "memorywise": memorywise}
NETS = {"equal layers": ([32] * 7, 0.015), "heavy layers": ([*[32] * 6, 1600], 0.09)}
"""Widths, and the seconds for which a push keeps one server's link."""

_LEAD = 24  # gradients before those of which the throughput is
_SHAT_RULE = "adam:lr=0.002"
_UNLIMITED = 1e12  # bytes per second


@dataclass(frozen=True)
class Size:
    """How much is tried: clicks of a day, seconds of a sleep with gba and with shat, batches with shat."""

    rows: int = 19_200
    sleep: float = 0.04
    shat_sleep: float = 0.1
    batches: int = 160


SMALL = Size(rows=1280, sleep=0.004, shat_sleep=0.02, batches=40)


@dataclass(frozen=True)
class Arm:
    """A day by a mode, after one by another, or the first."""

    mode: str
    before: str | None = None

    @property
    def day(self) -> int:
        """Which."""
        return 0 if self.before is None else 1


def careers(modes: Sequence[str] = tuple(MODES)) -> list[Arm]:
    """Days of gba, each after the one that it goes on from."""
    others = [mode for mode in modes if mode != SYNC]
    return [
        *(Arm(mode) for mode in modes),
        *(Arm(mode, SYNC) for mode in modes),
        *(Arm(SYNC, mode) for mode in others),
    ]


def busy(seed: int, sleep: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Sleeps of a cluster that others use too."""
    drawn = np.random.default_rng(seed)
    load = np.repeat(drawn.exponential(1.0, 200), 10)
    return sleep * (1.0 + load) * np.clip(drawn.normal(1.0, 0.05, len(load)), 0.5, None)


def even(seed: int, sleep: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Sleeps that are nearly the same."""
    return sleep * np.clip(np.random.default_rng(seed).normal(1.0, 0.05, 1000), 0.5, None)


def rule_of(mode: str) -> str:
    """Of set A or S."""
    return "adagrad:lr=0.02" if mode == "Async" else "adam:lr=0.005"


def slow_as(run: dict[str, Any], sleeps: Any) -> Any:
    """What gradients take in virtual time: the sleeps, and what they were longer."""
    return sleeps + run["overslept"] + run["gradient"]


def transfer(arm: Arm, runs: dict[Arm, dict[str, Any]]) -> float:
    """Of a push, and of a pull: half of what lies between two gradients of who waits for nobody but the
    server, in this run, or else in those of the same day.
    """
    alike = [one for one in runs if one.day == arm.day and one.mode in WAIT_FOR_NOBODY]
    free = [runs[one] for one in ([arm] if arm in alike else alike)]
    return statistics.median(max(0.0, run["between"] - run["update"]) / 2.0 for run in free)


def _played(clicks: Clicks, data: Any, cluster: Cluster, arm: Arm, seed: int) -> Simulation:
    model, rule = clicks.model(clicks), rule_of(arm.mode)
    rows = lsh.tables.of(model.tables, rule=rule, init=lsh.tables.zeros(), seed=seed)
    return lsh.simulate(
        model,
        data,
        mode=MODES[arm.mode],
        rule=rule,
        cluster=cluster,
        until=lsh.until(epochs=1),
        batch_size=32,
        seed=seed,
        init=lsh.Init(clicks.theta, rows),
        observe=lsh.Observe(rows=32),
    )


def gba(
    crew: Crew, folder: Path, seed: int, size: Size, arms: Sequence[Arm]
) -> Iterator[dict[str, Any]]:
    """The days of a seed: over sockets, and then in virtual time."""
    days, test = Clicks.days(size.rows, 2)
    sleeps = busy(seed, size.sleep)
    np.save(folder / "sleeps.npy", sleeps)
    new = Clicks.new(seed)
    new.save(folder / "new.npz")

    def saved(arm: Arm | None) -> Path:
        return folder / ("new.npz" if arm is None else f"{arm.before}-{arm.mode}.npz")

    def base(arm: Arm) -> Arm | None:
        return None if arm.before is None else Arm(arm.before)

    runs = {}
    for k, arm in enumerate(arms):
        runs[arm] = crew.run(
            {
                "folder": str(folder / str(k)),
                "mode": MODES[arm.mode],
                "rule": rule_of(arm.mode),
                "seed": seed,
                "rows": size.rows,
                "day": arm.day,
                "batch": 32,
                "base": str(saved(base(arm))),
                "save": str(saved(arm)),
                "trace": str(folder / "sleeps.npy"),
                "servers": 1,
                "shards": "memorywise",
                "ports": None,
                "links": {},
            }
        )
    models: dict[Arm | None, Clicks] = {None: new}
    for arm, run in runs.items():
        run["transfer"] = transfer(arm, runs)
        cluster = lsh.simulation.trace(
            crew.workers, slow_as(run, sleeps), update=run["update"], copy=run["transfer"]
        )
        before = models[base(arm)]
        played = _played(before, days[arm.day], cluster, arm, seed)
        models[arm] = before.after(played.result)
        counts = played.mode
        assert counts is not None
        gone = counts.stale + counts.straggler + counts.late
        virtual = {
            "seconds": played.result.elapsed,
            "auc": models[arm].auc(test),
            "staleness": float(played.result.staleness.mean()),
            "dropped": gone / size.rows,
        }
        run["auc"] = Clicks.load(saved(arm)).auc(test)
        yield {
            "mode": arm.mode,
            "before": arm.before,
            "seed": seed,
            "examples": size.rows,
            "sleep": float(sleeps.mean()),
            "load": os.getloadavg()[0],
            "sockets": {key: value for key, value in run.items() if key != "ends"},
            "virtual": virtual,
        }


def sharded() -> list[tuple[str, int, str]]:
    """Nets, numbers of servers and shardings of shat."""
    return [
        (net, servers, shards)
        for net in NETS
        for servers in SERVERS
        for shards in SHARDS
        if servers > 1 or shards == "memorywise"
    ]


def shat(
    crew: Crew, folder: Path, seed: int, size: Size, arms: Sequence[tuple[str, int, str]]
) -> Iterator[dict[str, Any]]:
    """The runs of a seed over sockets."""
    rows = 16 * size.batches
    _, test = Net.points(rows)
    sleeps = even(seed, size.shat_sleep)
    np.save(folder / "sleeps.npy", sleeps)
    jobs = itertools.count()

    def over(net: Net, bandwidth: float, servers: int, shards: str) -> dict[str, Any]:
        with Links(servers, bandwidth) as links:
            return crew.run(
                {
                    "folder": str(folder / str(next(jobs))),
                    "mode": "shat",
                    "rule": _SHAT_RULE,
                    "seed": seed,
                    "hidden": net.hidden,
                    "rows": rows,
                    "batch": 16,
                    "save": str(folder / "net.npy"),
                    "trace": str(folder / "sleeps.npy"),
                    "servers": servers,
                    "shards": shards,
                    "ports": links.ports,
                    "links": links.through,
                }
            )

    latencies: dict[tuple[str, int], float] = {}
    for name, servers, shards in arms:
        hidden, push = NETS[name]
        net = Net(hidden, seed)
        if (name, servers) not in latencies:
            free = over(net, _UNLIMITED, servers, "memorywise")
            latencies[name, servers] = max(0.0, (free["between"] - free["update"]) / 2.0)
        bandwidth = 4 * len(net.theta) / (push * size.shat_sleep / Size.shat_sleep)
        run = over(net, bandwidth, servers, shards)
        run["transfer"] = latencies[name, servers]
        accuracy = net.accuracy(np.load(folder / "net.npy"), test)
        ends = run.pop("ends")
        run["rate"] = (len(ends) - _LEAD) / (ends[-1] - ends[_LEAD - 1])
        yield {
            "net": name,
            "servers": servers,
            "shards": shards,
            "seed": seed,
            "sleep": float(sleeps.mean()),
            "bandwidth": bandwidth,
            "parameters": len(net.theta),
            "load": os.getloadavg()[0],
            "sockets": {**run, "accuracy": accuracy},
        }


def beside(
    records: Sequence[dict[str, Any]], size: Size, workers: int = WORKERS
) -> Iterator[dict[str, Any]]:
    """Runs of ``shat`` with what virtual time makes of them. What transfers take besides the links is the
    median over the seeds, since one run without limits may meet a busy moment.
    """
    data, test = Net.points(16 * size.batches)
    latencies: dict[tuple[str, int], list[float]] = {}
    for one in records:
        latencies.setdefault((one["net"], one["servers"]), []).append(one["sockets"]["transfer"])
    for one in records:
        net, run = Net(NETS[one["net"]][0], one["seed"]), one["sockets"]
        latency = statistics.median(latencies[one["net"], one["servers"]])
        cluster = lsh.simulation.trace(
            workers, slow_as(run, even(one["seed"], size.shat_sleep)), update=run["update"]
        ).over(lsh.simulation.Network(_UNLIMITED, latency, one["bandwidth"]))
        shards = SHARDS[one["shards"]](one["servers"])
        yield {**one, "virtual": _sharded(net, data, test, cluster, shards, one["seed"])}


def _sharded(
    net: Net, data: Any, test: Any, cluster: Cluster, shards: Sharding, seed: int
) -> dict[str, float]:
    """The same in virtual time."""

    def played(updates: int) -> Simulation:
        return lsh.simulate(
            net.model(net),
            data,
            mode="shat",
            rule=_SHAT_RULE,
            cluster=cluster,
            shards=shards,
            until=lsh.until(updates=updates),
            batch_size=16,
            seed=seed,
            init=net.theta,
            observe=lsh.Observe(rows=16),
        )

    batches = len(data) // 16
    lead, whole = played(_LEAD), played(batches)
    seconds = whole.result.elapsed - lead.result.elapsed
    return {
        "rate": (batches - _LEAD) / seconds,
        "seconds": whole.result.elapsed,
        "accuracy": net.accuracy(whole.result.parameters, test),
    }


def page(records: list[dict[str, Any]], paper: str) -> str:
    """What the claims come to that these results are of."""
    from bench.papers import gba as of_gba  # noqa: PLC0415 (they take the arms from here)
    from bench.papers import shat as of_shat  # noqa: PLC0415

    found = []
    for claim in {"gba": of_gba, "shat": of_shat}[paper].CLAIMS:
        if claim.results == f"{paper}-sockets" and (told := claim.tell(records)) is not None:
            rows = [] if told.table is None else [table(told.table.header, told.table.rows)]
            found.append("\n\n".join([f"{claim.at}: {told}. {told.words}".rstrip(), *rows]))
    return "\n\n".join(found)


Tried = Callable[[Crew, Path, int, Size], Iterator[dict[str, Any]]]

TRIALS: dict[str, Tried] = {
    "gba": lambda crew, folder, seed, size: gba(crew, folder, seed, size, careers()),
    "shat": lambda crew, folder, seed, size: shat(crew, folder, seed, size, sharded()),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("paper", choices=TRIALS)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="a look, no results to keep")
    options = parser.parse_args()
    records = []
    if options.output.exists():
        records = [json.loads(line) for line in options.output.read_text().splitlines()]
    size = SMALL if options.small else Size()
    missing = [seed for seed in range(options.seeds) if seed not in {r["seed"] for r in records}]
    if missing:
        with Crew() as crew:
            for seed in missing:
                with tempfile.TemporaryDirectory() as folder:
                    made = list(TRIALS[options.paper](crew, Path(folder), seed, size))
                records += made
                with options.output.open("a") as file:
                    file.writelines(f"{json.dumps(one)}\n" for one in made)
        if options.paper == "shat":
            records = list(beside(records, size))
            options.output.write_text("".join(f"{json.dumps(one)}\n" for one in records))
    print(page(records, options.paper))


if __name__ == "__main__":
    main()
