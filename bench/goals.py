"""The goals: what is measured, how much is asked for, and which profile explains a miss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench import (
    backend,
    clicks,
    counting,
    din,
    dlrm,
    figures,
    increments,
    modes,
    reading,
    recording,
    synchronisation,
    transport,
    virtual,
    youtube,
    zoo,
)
from bench.context import BATCHES, only
from bench.figures import Results
from bench.markdown import count
from bench.sections import scaling


@dataclass(frozen=True)
class Goal:
    """One line of the goal table.

    Attributes:
        work: what is measured.
        target: the number to reach.
        measure: the number reached; None where it was not measured.
        profile: what on the page tells where the time goes.
        least: whether the target is the least that will do; else it is the most.
        unit: of both numbers.
    """

    work: str
    target: float
    measure: Callable[[Results], float | None]
    profile: str
    least: bool = True
    unit: str = ""

    def met(self, value: float) -> bool:
        """Whether a number reaches the target."""
        return value >= self.target if self.least else value <= self.target


def _of_ceiling(network: str, batch_size: int, all_threads: bool, results: Results) -> float | None:
    threads = figures.threads(results) if all_threads else 1
    best = figures.best_training(results, network, batch_size, threads)
    return None if best is None else figures.training_ratio(best)


def _training(network: str, batch_size: int, target: float, target_all: float) -> list[Goal]:
    name = f"{network}, batch {batch_size}, training at the FMA ceiling"
    return [
        Goal(
            f"{name}, {who}",
            wanted,
            partial(_of_ceiling, network, batch_size, all_threads),
            network,
        )
        for who, wanted, all_threads in (
            ("1 thread", target, False),
            ("all threads", target_all, True),
        )
    ]


def _against_torch(network: str, batch_size: int, target: float) -> Goal:
    return Goal(
        f"{network}, batch {batch_size}, examples/s over PyTorch's best",
        target,
        lambda results: figures.peer_ratio(results, "PyTorch", network, batch_size),
        "peers",
        unit="×",
    )


def _least_product(results: Results) -> float | None:
    return min((figures.product_ratio(results, p) for p in figures.products(results)), default=None)


def _update(dimension: int, results: Results) -> float | None:
    found = only(figures.figures(results, "update"), figure="update", dimension=dimension)
    return float(found[0]["ratio"]) if found else None


def _read(results: Results) -> float | None:
    found = only(figures.figures(results, "update"), figure="read and release")
    return 1e9 * float(found[0]["seconds"]) if found else None


def _discipline(results: Results) -> float | None:
    records = figures.part(results, "disciplines", "one_thread")
    return min(map(figures.discipline_ratio, records), default=None)


def _live(results: Results) -> float | None:
    return max(
        (
            record["mean"] / record["baseline"]
            for record in figures.figures(results, "memory")
            if record["discipline"].startswith("LSH")
        ),
        default=None,
    )


def goals(results: Results) -> list[Goal]:
    """The goals for the machine of these results."""
    wide = results["machine"]["isa"] == "v4"
    small, medium, large = BATCHES
    return [
        *_training("MLP", large, 0.90, 0.95),
        *_training("MLP", medium, 0.80, 0.80),
        *_training("MLP", small, 0.60, 0.60),
        _against_torch("MLP", small, 4.0 if wide else 5.0),
        *_training("CNN", large, 0.60, 0.60),
        *(_against_torch("CNN", batch_size, 7.0) for batch_size in BATCHES),
        Goal("GEMM, every shape, over the fastest library at it", 0.97, _least_product, "gemm"),
        Goal(
            "GEMM, weighted by FLOPs, over the fastest library at each",
            1.0,
            figures.weighted_ratio,
            "gemm",
        ),
        *(
            Goal(
                f"T_u of Leashed, d = {dimension:,}, over one fused pass",
                1.15,
                partial(_update, dimension),
                "update",
                least=False,
            )
            for dimension in (134_794, 10_000_000)
        ),
        Goal("read and release", 100.0, _read, "update", least=False, unit=" ns"),
        Goal(
            "any discipline, 1 thread, batches 64 and 512, EPS over Sequential's",
            0.97,
            _discipline,
            "disciplines",
        ),
        Goal(
            "time to 10% of the initial loss, times sooner than PyTorch's best",
            2.0,
            figures.race_ratio,
            "time_to_loss",
            unit="×",
        ),
        Goal(
            "Leashed's mean live buffers, CNN, over 2m+1, largest over m and persistence",
            1.0,
            _live,
            "memory",
            least=False,
        ),
        *(
            Goal(
                f"{network}, {kind}: EPS of all threads over one thread's times their number",
                0.85,
                lambda results, n=network, k=kind: figures.scaling_ratio(results, n, k),  # type: ignore[misc]
                "scaling",
            )
            for network in ("MLP", "CNN")
            for kind in scaling.KINDS
        ),
        *_backend(results),
        Goal(
            "frames over TCP loopback, 540 KB and 100 MB, bytes/s over raw sockets', least",
            0.85,
            transport.least_rate,
            "net",
        ),
        Goal(
            "frames over TCP loopback, round trip of 64 bytes, time over raw sockets', most",
            1.5,
            transport.longest_trip,
            "net",
            least=False,
        ),
        Goal(
            "all-reduce over TCP loopback, 540 KB and 100 MB, 2 and 4 processes, over Gloo, least",
            1.0,
            partial(transport.against, "gloo", "all-reduce"),
            "net",
            unit="×",
        ),
        *(
            Goal(
                f"all-reduce through shared memory, the same work, over {name}, least",
                1.0,
                partial(transport.against, peer, "all-reduce, shared memory"),
                "net",
                unit="×",
            )
            for peer, name in (("gloo", "Gloo"), ("mpich", "MPICH"))
        ),
        Goal(
            "push and pull of 540 KB and 100 MB with a sync server, a processor each, bytes/s over a raw "
            "loop's, least",
            0.85,
            synchronisation.least_exchange,
            "synchronisation",
        ),
        Goal(
            "background synchronisation, loss of EPS, upper end of its interval",
            0.02,
            synchronisation.loss,
            "synchronisation",
            least=False,
        ),
        Goal(
            "a hung or slow sync server, change of EPS, farther end of its interval",
            0.02,
            synchronisation.faulty,
            "synchronisation",
            least=False,
        ),
    ]


def _backend(results: Results) -> list[Goal]:
    """Of the engine under gradients from elsewhere."""
    return [
        *(
            Goal(
                f"every rule's pass, {resident}, over the copy bandwidth for its bytes",
                0.90,
                partial(backend.pass_ratio, resident),
                "rules",
            )
            for resident in ("L2", "memory")
        ),
        Goal(
            "every rule's update, times as fast as PyTorch's fused optimizer",
            1.0,
            backend.rule_ratio,
            "rules",
            unit="×",
        ),
        *(
            Goal(
                f"Engine.{call} from Python, above the memory traffic, most of all lengths",
                2.0,
                partial(backend.above_traffic, call),
                "engine",
                least=False,
                unit=" µs",
            )
            for call in ("read", "push")
        ),
        *(
            Goal(
                f"Numba gradient, EPS over the built-in one's, {count(threads, 'thread')}",
                0.90,
                partial(backend.gradient_ratio, threads),
                "gradients",
            )
            for threads in sorted({1, figures.threads(results)})
        ),
        Goal(
            "PyTorch loop with leashed.torch.Optimizer over torch.optim's, fused or not, least",
            1.0,
            backend.optimizer_ratio,
            "torch",
        ),
        Goal(
            "leashed.torch.fit over PyTorch's multiprocessing Hogwild, least",
            1.0,
            backend.fit_ratio,
            "torch",
        ),
        *(
            Goal(
                f"sparse logistic regression, rows/s over {peer}",
                target,
                partial(backend.sparse_ratio, peer),
                "sparse",
                unit="×",
            )
            for peer, target in (
                ("scikit-learn", 2.0),
                ("vowpal-wabbit", 1.0),
                ("xlearn", 1.0),
                ("classical loop", 1.5),
            )
        ),
        *(
            Goal(
                f"factorisation machine, k = 8, {rule}, rows/s over the classical loop",
                2.0,
                partial(backend.factorisation_ratio, rule),
                "factorisation",
                unit="×",
            )
            for rule in backend.FACTORISATION_RULES
        ),
        Goal(
            "factorisation machine, loss over the classical loop's, most of both rules",
            1.02,
            backend.factorisation_loss,
            "factorisation",
            least=False,
        ),
        *(
            Goal(
                f"DLRM, batch {batch}, training at its ceiling, all threads",
                0.6,
                partial(clicks.of_ceiling, batch),
                "tables",
            )
            for batch in dlrm.BATCHES
        ),
        *(
            Goal(
                f"DLRM, batch {batch}, examples/s over PyTorch's best",
                target,
                partial(clicks.over_torch, batch),
                "tables",
                unit="×",
            )
            for batch, target in zip(dlrm.BATCHES, (6.0, 5.0, 4.0), strict=True)
        ),
        Goal(
            "DLRM, all threads over one, over what the ceiling gains, least",
            1.8 / 1.9,
            clicks.gain,
            "tables",
        ),
        Goal(
            "growing tables that know their ids, rows/s over fixed ones",
            0.8,
            clicks.growing,
            "tables",
        ),
        Goal(
            "a recorded update", 20.0, recording.nanoseconds, "recording", least=False, unit=" ns"
        ),
        Goal("bytes of it", 10.0, recording.size, "recording", least=False),
        Goal(
            "training with a record, d = 1,000, all threads, EPS over without",
            0.99,
            recording.rate,
            "recording",
        ),
        Goal(
            "DLRM with metrics while training, without GAUC, all threads, EPS over without",
            0.98,
            counting.rate,
            "counting",
        ),
        Goal(
            "Criteo's text into arrays, bytes/s over the fastest library's",
            1.5,
            reading.over_peers,
            "reading",
            unit="×",
        ),
        *(
            Goal(
                f"DLRM, batch {batch}, trained from text, examples/s over from memory",
                0.75,
                partial(reading.from_text, batch),
                "reading",
            )
            for batch in (128, 2048)
        ),
        Goal(
            "a push of 1 kB through the server, one thread, million a second, least of ASP, Sync, GBA",
            1.0,
            modes.least_rate,
            "modes",
        ),
        *(
            Goal(
                f"training with mode={mode}(), MLP, batch 64, all threads, EPS over {discipline}'s",
                0.9,
                partial(modes.ratio, mode),
                "modes",
            )
            for mode, discipline in (("ASP", "Hogwild"), ("Sync", "Synchronous"))
        ),
        Goal(
            "DLRM by 3,000 asynchronous workers in virtual time, EPS over the sequential loop's",
            0.8,
            virtual.rate,
            "virtual",
        ),
        Goal("memory of it", 2.0, virtual.gigabytes, "virtual", least=False, unit=" GB"),
        *(
            Goal(
                f"{zoo.TITLES[model]}, batch {batch}, examples/s over PyTorch's best",
                3.0,
                partial(zoo.over_torch, model, batch),
                "zoo",
                unit="×",
            )
            for model, sizes in (("youtube_dnn", youtube.BATCHES), ("din", din.BATCHES))
            for batch in sizes
        ),
        *(
            Goal(
                f"1% of the rows changed, {kind} table: {what}",
                3.0,
                partial(share, kind),
                "increments",
                least=False,
                unit="%",
            )
            for kind in increments.KINDS
            for what, share in (
                ("bytes of all rows'", increments.bytes_share),
                ("time of all rows', beside the scan", increments.time_share),
            )
        ),
    ]
