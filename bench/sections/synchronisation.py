"""What keeping trainers in sync costs one of them, and an exchange with a sync server.

Training runs take turns with and without a synchroniser, and what is told is the ratio of each pair,
with its 95% interval. The trainer is alone with its sync server, which has a process of its own,
behind a link of limited bandwidth where that is said (``leashed.cluster.shadowsync.servers``).
"""

from __future__ import annotations

import statistics
import time

import leashed as lsh
from bench import figures
from bench.context import Bench, Record
from bench.figures import Results
from bench.markdown import number, paragraphs, table
from bench.section import Goal
from leashed import sync
from leashed.base.table import MISSING
from leashed.cluster.shadowsync.fleet import Trained, train_together
from leashed.cluster.shadowsync.servers import Servers
from leashed.studies.intervals import ratio

PLACE, TITLE = 190, "Synchronisation"

_BATCH = 64
_SECONDS = 1.5  # of a run
_PAIRS = 20
_FAULTY_PAIRS = 10
_FAULTY_RUNS = 4  # of each side in one pair, in turns: two runs alone differ by more than 2%
_GAP = 20.0  # iterations between two synchronisations, about, over the limited link
_SLOW = 2e6  # bytes per second: an exchange of the MLP takes 0.3 s
_TIMEOUT = 1.0  # seconds after which a sync server is given up, and connected with anew
_EPOCHS = 10.0  # of a run in which all do the same work
_TURNS = 7
_EXCHANGES = 3.0  # seconds of each size


def measure(bench: Bench) -> list[Record]:
    """Records by figure: ``background``, ``hung`` and ``slow`` with the examples per second of each
    pair; ``same work`` with and without a free processor; ``exchange``.
    """
    found = [_background(bench), *_faulty(bench)]
    found += _same_work(bench)
    return found + bench.run("bench_exchange", bench.seconds(_EXCHANGES))


def _model(bench: Bench) -> lsh.models.Model:
    return lsh.models.mlp(bench.data.features, [128, 128, 128], bench.data.classes)


def _train(
    bench: Bench, synchroniser: sync.Synchroniser | None, servers: Servers | None
) -> Trained:
    """One trainer with one worker, for some time."""
    return train_together(
        _model(bench),
        bench.data,
        trainers=1,
        threads=1,
        sync=synchroniser,
        servers=servers,
        timeout=_TIMEOUT,
        until=lsh.until(seconds=bench.seconds(_SECONDS, least=0.2)),
        batch_size=_BATCH,
        observe=lsh.Observe(every=1e6),
    )


def _background(bench: Bench) -> Record:
    """With a core for the shadow thread and the server."""
    size = 4 * _model(bench).dimension
    per_second = _train(bench, None, None).eps / _BATCH
    with Servers(size // 4, 1, size * per_second / _GAP) as servers:
        record = _pairs(bench, servers, bench.times(_PAIRS, least=2))
    return {"figure": "background", **record}


def _faulty(bench: Bench) -> list[Record]:
    """A sync server that accepts and never answers, and one that is slow."""
    found = []
    for name, bandwidth in (("hung", 0.0), ("slow", _SLOW)):
        with Servers(_model(bench).dimension, 1, bandwidth) as servers:
            pairs = bench.times(_FAULTY_PAIRS, least=2)
            record = _pairs(bench, servers, pairs, runs=_FAULTY_RUNS)
        found.append({"figure": name, **record})
    return found


def _pairs(bench: Bench, servers: Servers, pairs: int, runs: int = 1) -> Record:
    """Pairs of ``runs`` with and as many without synchronisation, in turns, where the one that
    begins changes; a side's examples per second are the mean over its runs of the pair.
    """
    eps: dict[str, list[float]] = {"with": [], "without": []}
    gaps: list[float | None] = []
    failed = 0.0
    for pair in range(pairs):
        of_pair: dict[str, list[float]] = {name: [] for name in eps}
        for turn in range(runs):
            for name in sorted(eps, reverse=bool((pair + turn) % 2)):
                if name == "without":
                    of_pair[name].append(_train(bench, None, None).eps)
                    continue
                trained = _train(bench, sync.EASGD(), servers)
                of_pair[name].append(trained.eps)
                gaps.append(trained.sync_gap)
                failed += trained.counters[0]["failed"]
        for name, of_side in of_pair.items():
            eps[name].append(sum(of_side) / runs)
    mean, low, high = ratio(eps["with"], eps["without"])
    return {"eps": eps, "gaps": gaps, "failed": failed, "runs": runs, "ratio": [mean, low, high]}


def _same_work(bench: Bench) -> list[Record]:
    """All processors train, under Leashed with T_p = 0, over a link without limit: in the background
    as fast as it goes, then as often in the foreground, and not at all.
    """
    runs: dict[str, list[Record]] = {"background": [], "foreground": [], "none": []}
    with Servers(_model(bench).dimension, 1) as servers:
        for _ in range(bench.times(_TURNS, least=2)):
            runs["background"].append(_counted(bench, sync.EASGD(), servers))
            gap = max(1, round(runs["background"][-1]["gap"]))
            often = sync.EASGD(when=sync.every(iterations=gap))
            runs["foreground"].append(_counted(bench, often, servers))
            runs["none"].append(_counted(bench, None, servers))
    return [
        {
            "figure": "same work",
            "way": way,
            "threads": bench.threads,
            **{name: [run[name] for run in records] for name in records[0]},
        }
        for way, records in runs.items()
    ]


def _counted(bench: Bench, synchroniser: sync.Synchroniser | None, servers: Servers) -> Record:
    epochs = _EPOCHS * min(1.0, bench.scale)
    batches = max(1, int(epochs * len(bench.data)) // _BATCH)
    before, cpu = servers.counters()["cpu_seconds"], time.process_time()
    trained = train_together(
        _model(bench),
        bench.data,
        trainers=1,
        threads=bench.threads,
        sync=synchroniser,
        servers=servers,
        batches=batches,
        until=lsh.until(epochs=epochs),
        discipline=lsh.Leashed(persistence=0),
        batch_size=_BATCH,
        observe=lsh.Observe(every=1e6),
    )
    return {
        "eps": trained.eps,
        "cpu_seconds": time.process_time() - cpu,
        "server_cpu_seconds": servers.counters()["cpu_seconds"] - before,
        "gap": trained.sync_gap,
        "syncs": trained.syncs,
        "gradients": trained.gradients,
        "dropped": sum(result.dropped for result in trained.results),
        "dropped_for_sync": trained.dropped_for_sync,
    }


_NAMES = {
    "background": "in the background, link limited, a processor free for it",
    "hung": "a sync server that accepts and never answers",
    "slow": "a sync server behind 2 MB/s",
}


def _gap(gaps: list[float | None]) -> str:
    known = [gap for gap in gaps if gap is not None]
    return number(statistics.median(known)) if known else MISSING


def cost(results: Results) -> str:
    """Pairs of runs with and without it."""
    rows = []
    for figure, name in _NAMES.items():
        for record in figures.records(results, "synchronisation", figure=figure):
            mean, low, high = record["ratio"]
            pairs = len(record["eps"]["with"])
            rows.append(
                [name, str(pairs), f"{mean:.4f} ({low:.4f} to {high:.4f})", _gap(record["gaps"])]
            )
    if not rows:
        return ""
    return paragraphs(
        "One trainer with one worker and S-EASGD, beside the same without it: examples per second "
        "over those of the run next to it, mean of the pairs and its 95% interval.",
        table(["", "pairs", "EPS, ratio (95%)", "sync gap"], rows),
    )


def same_work(results: Results) -> str:
    """CPU seconds and what is dropped."""
    rows = []
    for record in figures.records(results, "synchronisation", figure="same work"):
        medians = [
            number(statistics.median(record[name]))
            for name in ("eps", "cpu_seconds", "server_cpu_seconds")
        ]
        dropped = sum(record["dropped"]) / sum(record["gradients"])
        lost = sum(record["dropped_for_sync"]) / sum(record["gradients"])
        rows.append([record["way"], *medians, _gap(record["gap"]), f"{dropped:.3%}", f"{lost:.3%}"])
    if not rows:
        return ""
    return paragraphs(
        "All processors train, and the link has no limit: the same batches under Leashed with T_p = 0, "
        "in the background as often as it goes, in the foreground as often, and without "
        "synchronisation. Medians of the turns.",
        table(
            [
                "",
                "examples/s",
                "CPU, s",
                "sync server's CPU, s",
                "sync gap",
                "gradients dropped",
                "for it",
            ],
            rows,
        ),
    )


def exchanges(results: Results) -> str:
    """Exchanges against a raw loop."""
    rows = [
        [
            f"{record['bytes'] / 1e6:g} MB",
            str(record["processors"]),
            number(1e3 * record["raw_seconds"]),
            number(1e3 * record["seconds"]),
            f"{record['ratio']:.2f}",
        ]
        for record in figures.records(results, "synchronisation", figure="exchange")
    ]
    if not rows:
        return ""
    return paragraphs(
        "A vector pushed to a sync server and pulled from it, mixed there, between two processes over "
        "TCP loopback, beside a raw loop in turns that moves as many bytes both ways.",
        table(["", "processors", "raw, ms", "exchange, ms", "bytes/s, ratio"], rows),
    )


def words(results: Results) -> str:
    """All of it."""
    return paragraphs(cost(results), same_work(results), exchanges(results))


def loss(results: Results) -> float | None:
    """Of examples per second by the background's synchronisation: the upper end of its interval."""
    found = figures.records(results, "synchronisation", figure="background")
    return 1.0 - float(found[0]["ratio"][1]) if found else None


def faulty(results: Results) -> float | None:
    """What a hung or slow sync server changes examples per second by, at most: the farther end of
    either interval.
    """
    found = [
        record
        for name in ("hung", "slow")
        for record in figures.records(results, "synchronisation", figure=name)
    ]
    return max((abs(end - 1.0) for r in found for end in r["ratio"][1:]), default=None)


def least_exchange(results: Results) -> float | None:
    """Bytes per second of exchanges over the raw loop's, each side with a processor: the least."""
    found = figures.records(results, "synchronisation", figure="exchange", processors=2)
    return min((record["ratio"] for record in found), default=None)


GOALS = (
    Goal(
        "push and pull of 540 KB and 100 MB with a sync server, a processor each, bytes/s over a raw "
        "loop's, least",
        0.85,
        least_exchange,
    ),
    Goal(
        "background synchronisation, loss of EPS, upper end of its interval",
        0.02,
        loss,
        least=False,
    ),
    Goal(
        "a hung or slow sync server, change of EPS, farther end of its interval",
        0.02,
        faulty,
        least=False,
    ),
)
