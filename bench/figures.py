"""What the page says, computed from a file of results."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from bench.context import Record, only
from bench.turns import QUIET, quiet_median

Results = dict[str, Any]


def figures(results: Results, section: str) -> Any:
    """What a section measured; an empty list where it did not."""
    return results["sections"].get(section, {}).get("figures", [])


def part(results: Results, section: str, name: str) -> list[Record]:
    """A named part of what a section measured."""
    found = figures(results, section)
    records: list[Record] = found[name] if found else []
    return records


def threads(results: Results) -> int:
    """All threads of the machine."""
    count: int = results["machine"]["cores"]
    return count


def disturbed(results: Results) -> tuple[int, int]:
    """How many turns of whole threads got less of the processors than counts as quiet, of all."""
    shares = [
        share
        for records in (
            figures(results, "peers"),
            figures(results, "scaling"),
            part(results, "network", "training"),
            part(results, "disciplines", "one_thread"),
        )
        for record in records
        for share in record["cpu_share"]
    ]
    return sum(share < QUIET for share in shares), len(shares)


def eps(record: Record) -> float:
    """Examples per second of a record with turns."""
    return quiet_median(record["eps"], record["cpu_share"])


def training_ratio(record: Record) -> float:
    """What a training record reached of the ceiling measured beside it."""
    flops = record["flops_per_example"] * 1e-9
    return quiet_median(
        [e * flops / c for e, c in zip(record["eps"], record["ceiling"], strict=True)],
        record["cpu_share"],
        record["ceiling_cpu_share"],
    )


def best_training(
    results: Results, network: str, batch_size: int, of_threads: int
) -> Record | None:
    """The training record nearest to the ceiling."""
    found = only(
        part(results, "network", "training"),
        network=network,
        batch_size=batch_size,
        threads=of_threads,
    )
    return max(found, key=training_ratio, default=None)


def training_ceiling(results: Results, of_threads: int) -> float | None:
    """The highest multiply-add rate, GFLOP/s, that was measured beside training."""
    found = only(part(results, "network", "training"), threads=of_threads)
    return max((quiet_median(r["ceiling"], r["ceiling_cpu_share"]) for r in found), default=None)


def best_peer(results: Results, library: str, network: str, batch_size: int) -> Record | None:
    """A library's fastest setting."""
    found = only(figures(results, "peers"), library=library, network=network, batch_size=batch_size)
    return max(found, key=eps, default=None)


def peer_ratio(results: Results, library: str, network: str, batch_size: int) -> float | None:
    """Examples per second of leashed over a library's, each at its fastest setting."""
    ours = best_peer(results, "leashed", network, batch_size)
    theirs = best_peer(results, library, network, batch_size)
    return eps(ours) / eps(theirs) if ours and theirs else None


def flops(product: Record) -> float:
    """Of a matrix product, as often as the network has it."""
    return float(2 * product["m"] * product["n"] * product["k"] * product["count"])


def best_library(results: Results, product: Record) -> str | None:
    """The library that is fastest at a product."""
    libraries: list[str] = figures(results, "gemm")["libraries"]
    return min(libraries, key=lambda name: float(product[f"ratio to {name}"]), default=None)


def product_ratio(results: Results, product: Record) -> float:
    """Our speed at a product over the fastest library's."""
    library = best_library(results, product)
    return math.inf if library is None else float(product[f"ratio to {library}"])


def products(results: Results) -> list[Record]:
    """The matrix products, where libraries were there to compare with."""
    found = figures(results, "gemm")
    return list(found["products"]) if found and found["libraries"] else []


def weighted_ratio(results: Results) -> float | None:
    """The mean of our ratios to the fastest library at each product, by the product's FLOPs."""
    found = products(results)
    total = sum(map(flops, found))
    if not total:
        return None
    return sum(flops(p) * product_ratio(results, p) for p in found) / total


def discipline_ratio(record: Record) -> float:
    """A discipline's examples per second over Sequential's, turn by turn."""
    return quiet_median(
        [a / b for a, b in zip(record["eps"], record["sequential_eps"], strict=True)],
        record["cpu_share"],
        record["sequential_cpu_share"],
    )


def ceiling(results: Results, figure: str, kind: str, of_threads: int) -> float | None:
    """A ceiling: GFLOP/s (``fma``) or GB/s (``copy``)."""
    unit = "gflops" if figure == "fma" else "gbytes"
    found = only(figures(results, "ceilings"), figure=figure, kind=kind, threads=of_threads)
    return quiet_median(found[0][unit], found[0]["cpu_share"]) if found else None


def median_seconds(seconds: Sequence[float | None]) -> float:
    """Of times to a loss; a run that did not get there took infinitely long."""
    return statistics.median(math.inf if s is None else s for s in seconds)


def races(results: Results) -> list[Record]:
    """PyTorch's finals with their medians, the soonest first."""
    found = figures(results, "time_to_loss")
    if not found:
        return []
    return sorted(
        ({**entry, "median": median_seconds(entry["seconds"])} for entry in found["PyTorch"]),
        key=lambda entry: entry["median"],
    )


def returns(results: Results) -> list[Record]:
    """PyTorch's loops by the caller's clock, with their medians, the soonest first."""
    found = figures(results, "time_to_loss")
    entries = found.get("PyTorch loop", []) if found else []
    return sorted(
        ({**entry, "median": median_seconds(entry["returned"])} for entry in entries),
        key=lambda entry: entry["median"],
    )


def race_ratio(results: Results) -> float | None:
    """How many times sooner leashed is there than PyTorch's soonest."""
    theirs = races(results)
    if not theirs:
        return None
    ours = median_seconds(figures(results, "time_to_loss")["leashed"]["seconds"])
    return float(theirs[0]["median"] / ours)


def scaling_ratio(results: Results, network: str, discipline: str) -> float | None:
    """Examples per second of all threads over so many times one thread's."""
    found = only(figures(results, "scaling"), network=network, discipline=discipline)
    by_threads = {record["threads"]: eps(record) for record in found}
    if not by_threads:
        return None
    most = max(by_threads)
    return float(by_threads[most] / (most * by_threads[1]))
