"""Live buffers on the CNN (leashed-sgd, step S5): parameter vectors and gradients in use, looked at
while training runs, against the 2m+1 of the disciplines that copy.
"""

from __future__ import annotations

import statistics

import leashed
from bench import figures
from bench.contenders import DISCIPLINES
from bench.context import Bench, Record, only
from bench.figures import Results
from bench.markdown import table
from bench.networks import NETWORKS
from bench.section import Goal
from leashed.datasets import Dataset

PLACE, TITLE = 80, "Live buffers"

THREADS = (2, 4, 8, 16)
BATCH_SIZE = 64
_KINDS = ("ASYNC", "HOG", "LSH_ps∞", "LSH_ps1", "LSH_ps0")
_SECONDS = 1.0
_LOOK_EVERY = 0.01  # seconds
_EXAMPLES = 500  # so that looking, which evaluates the loss as well, takes a millisecond or two


def measure(bench: Bench) -> list[Record]:
    """A record a discipline and number of threads m: mean and peak."""
    data = Dataset.from_arrays(bench.data.x[:_EXAMPLES], bench.data.y[:_EXAMPLES])
    records = []
    for threads in THREADS:
        for name in _KINDS:
            result = leashed.train(
                NETWORKS["CNN"],
                data,
                until=leashed.until(seconds=bench.seconds(_SECONDS, least=0.2)),
                discipline=DISCIPLINES[name],
                rule=leashed.SGD(0.01),
                threads=threads,
                batch_size=BATCH_SIZE,
                observe=leashed.Observe(every=_LOOK_EVERY),
            )
            looks = result.live_vectors[1:-1].tolist()  # while all threads run
            records.append(
                {
                    "discipline": name,
                    "threads": threads,
                    "batch_size": BATCH_SIZE,
                    "looks": len(looks),
                    "mean": statistics.mean(looks),
                    "peak": result.peak_vectors,
                    "baseline": 2 * threads + 1,
                }
            )
    return records


def words(results: Results) -> str:
    records = figures.figures(results, "memory")
    if not records:
        return ""
    counts = list(dict.fromkeys(record["threads"] for record in records))
    rows = [["2m + 1", *(str(2 * m + 1) for m in counts)]]
    for name in dict.fromkeys(record["discipline"] for record in records):
        line = [name]
        for m in counts:
            record = only(records, discipline=name, threads=m)[0]
            line.append(f"{record['mean']:.1f} ({record['peak']})")
        rows.append(line)
    return (
        "CNN: parameter vectors and gradients in use, mean of looks while training runs (peak).\n\n"
        + table(["m threads", *(str(m) for m in counts)], rows)
    )


def _live(results: Results) -> float | None:
    return max(
        (
            record["mean"] / record["baseline"]
            for record in figures.figures(results, "memory")
            if record["discipline"].startswith("LSH")
        ),
        default=None,
    )


def profile(results: Results) -> str:
    """Where buffers are held."""
    return (
        "Live are the m gradients, the published vector, the older vectors that workers still "
        "compute on, and the drafts of updates under way: 2m where every worker computes on another "
        "vector, m + 1 where all compute on the published one, and one more for each draft."
        if figures.figures(results, "memory")
        else ""
    )


GOALS = (
    Goal(
        "Leashed's mean live buffers, CNN, over 2m+1, largest over m and persistence",
        1.0,
        _live,
        least=False,
    ),
)
PROFILES = {"Live buffers": profile}
