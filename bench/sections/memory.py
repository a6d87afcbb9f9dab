"""Live buffers on the CNN (leashed-sgd, step S5): parameter vectors and gradients in use, looked at
while training runs, against the 2m+1 of the disciplines that copy.
"""

from __future__ import annotations

import statistics

import leashed
from bench.contenders import DISCIPLINES
from bench.context import Bench, Record
from bench.networks import NETWORKS
from leashed.datasets import Dataset

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
