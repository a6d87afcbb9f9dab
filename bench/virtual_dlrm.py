"""DLRM by thousands of asynchronous workers in virtual time beside the plain sequential loop, in a
process of its own, whose memory is looked at: one JSON object.

    python -m bench.virtual_dlrm WORKERS SECONDS ROUNDS
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial

import numpy as np

import leashed as lsh
from bench import dlrm
from bench.turns import Turn, record, take_turns, timed

ROWS, BATCH = 10_000, 128
_EXAMPLES = 1 << 16
_PROBE = 0.5  # seconds of the loop, to know how many updates are so long


def _data() -> lsh.ClickDataset:
    x, ids, y = dlrm.data()
    return lsh.ClickDataset.from_arrays(
        x[:_EXAMPLES], ids[:_EXAMPLES] % np.uint64(ROWS), y[:_EXAMPLES]
    )


def main() -> None:
    workers, seconds, rounds = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    data, rule = _data(), lsh.Adagrad(dlrm.LR)
    model = lsh.models.dlrm(
        ROWS, dlrm.DIM, dlrm.DENSE, dlrm.BOTTOM, dlrm.TOP, categories=dlrm.TABLES
    )

    def loop(seconds: float) -> float:
        """Examples per second of the sequential loop."""
        return lsh.train(
            model,
            data,
            until=lsh.until(seconds=seconds),
            discipline=lsh.Sequential(),
            rule=rule,
            threads=1,
            batch_size=BATCH,
            observe=lsh.Observe(every=1e6),
        ).mean_eps

    found = {"rows": {}, "peak_bytes": 0}

    def played(updates: int) -> float:
        """Seconds of so many, with what a run takes before and behind them."""
        start = time.perf_counter()
        result = lsh.simulate(
            model,
            data,
            cluster=lsh.simulation.exponential(workers, 1.0),
            mode=lsh.modes.ASP(),
            until=lsh.until(updates=updates),
            rule=rule,
            batch_size=BATCH,
        ).result
        found["rows"] = result.rows
        found["peak_bytes"] = result.peak_memory_bytes
        return time.perf_counter() - start

    loop(_PROBE)
    before = 2 * workers  # updates, by which everybody has memory of its own
    more = max(1, round(seconds * loop(_PROBE) / BATCH))

    def simulated() -> float:
        return more * BATCH / (played(before + more) - played(before))

    turns: dict[str, list[Turn]] = take_turns(
        {
            "sequential": partial(timed, partial(loop, seconds), 1),
            "virtual": partial(timed, simulated, 1),
        },
        rounds,
    )
    print(
        json.dumps({"figure": "asp", "workers": workers, "batch": BATCH, **record(turns), **found})
    )


if __name__ == "__main__":
    main()
