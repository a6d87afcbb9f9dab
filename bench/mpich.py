"""All-reduce by MPICH, through mpi4py, between processes of this machine.

mpiexec -n MEMBERS python -m bench.mpich BYTES ROUNDS

The first member prints the median time of a round, as bench_ring does.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import numpy as np
from mpi4py import MPI


def main() -> None:
    size, rounds = map(int, sys.argv[1:])
    world = MPI.COMM_WORLD
    data = np.ones(size // 4, np.float32)
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        world.Allreduce(MPI.IN_PLACE, data)
        seconds.append(time.perf_counter() - begin)
        assert data[0] == data[-1] == world.size
        data.fill(1.0)
    if world.rank == 0:
        print(json.dumps({"seconds": statistics.median(seconds[min(2, rounds - 1) :])}), flush=True)


if __name__ == "__main__":
    main()
