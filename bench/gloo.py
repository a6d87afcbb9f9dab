"""All-reduce by torch.distributed's Gloo between processes of this machine.

python -m bench.gloo MEMBERS BYTES ROUNDS

The first member prints the median time of a round, as bench_ring does.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

_TIMEOUT = timedelta(seconds=60)


def member(rank: int, members: int, size: int, rounds: int, meeting: str) -> None:
    """One process: the rounds, and their time where it is the first."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=members, timeout=_TIMEOUT
    )
    data = torch.ones(size // 4)
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        dist.all_reduce(data)
        seconds.append(time.perf_counter() - begin)
        assert data[0] == data[-1] == members
        data.fill_(1.0)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        print(json.dumps({"seconds": statistics.median(seconds[min(2, rounds - 1) :])}), flush=True)


def main() -> None:
    members, size, rounds = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(member, (members, size, rounds, f"{folder}/meeting"), nprocs=members)


if __name__ == "__main__":
    main()
