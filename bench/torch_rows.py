"""DLRM's rows at a server of torch.distributed.rpc, as fast as it goes: one trainer asks for the distinct
rows of the next batch while it has one, and pushes gradients; the server looks up, and updates by Adagrad.
Nobody computes a batch. All tables are one, with offsets; a push has gradients alone.

python -m bench.torch_rows BATCH SECONDS

Prints examples per second, and microseconds of processor time of both processes an example.
"""

from __future__ import annotations

import json
import socket
import sys
import time

import numpy as np
import torch
import torch.multiprocessing
from torch.distributed import rpc

from bench import dlrm

WARM_UP = 20
_BATCHES = 64


class _Rows:
    """The server's."""

    table: torch.Tensor
    squares: torch.Tensor
    tickets: dict[int, torch.Tensor]


def _look(ticket: int, ids: torch.Tensor) -> torch.Tensor:
    _Rows.tickets[ticket] = ids
    return _Rows.table[ids]


def _push(ticket: int, gradients: torch.Tensor) -> None:
    ids = _Rows.tickets.pop(ticket)
    squares = _Rows.squares[ids].addcmul_(gradients, gradients)
    _Rows.squares[ids] = squares
    rows = _Rows.table[ids].addcdiv_(gradients, squares.sqrt_().add_(1e-10), value=-dlrm.LR)
    _Rows.table[ids] = rows


def _train(batch: int, seconds: float) -> dict[str, float]:
    _, ids, _ = dlrm.data()
    flat = torch.from_numpy(ids.astype(np.int64)) + torch.arange(dlrm.TABLES) * dlrm.ROWS
    batches = [flat[k * batch : (k + 1) * batch].reshape(-1) for k in range(_BATCHES)]

    def ask(k: int) -> torch.futures.Future[torch.Tensor]:
        distinct, _ = torch.unique(batches[k % _BATCHES], return_inverse=True)
        return rpc.rpc_async("server", _look, (k, distinct))

    def used() -> float:
        return time.process_time() + rpc.rpc_sync("server", time.process_time)

    asked, pushed = ask(0), None
    k, start, cpu = 0, 0.0, 0.0
    while k <= WARM_UP or time.perf_counter() - start < seconds:
        if k == WARM_UP:
            start, cpu = time.perf_counter(), used()
        ahead = ask(k + 1)
        rows = asked.wait()
        if pushed is not None:
            pushed.wait()
        pushed = rpc.rpc_async("server", _push, (k, torch.zeros_like(rows)))
        asked, k = ahead, k + 1
    assert pushed is not None
    pushed.wait()
    elapsed, examples = time.perf_counter() - start, (k - WARM_UP) * batch
    cpu = used() - cpu
    asked.wait()
    return {
        "examples_per_second": examples / elapsed,
        "cpu_us_per_example": 1e6 * cpu / examples,
    }


def _member(rank: int, port: int, batch: int, seconds: float) -> None:
    torch.set_num_threads(1)
    if rank == 1:
        _Rows.table = torch.randn(dlrm.TABLES * dlrm.ROWS, dlrm.DIM) * 0.01
        _Rows.squares = torch.zeros_like(_Rows.table)
        _Rows.tickets = {}
    rpc.init_rpc(
        ("trainer", "server")[rank],
        rank=rank,
        world_size=2,
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
            num_worker_threads=2, init_method=f"tcp://127.0.0.1:{port}", _transports=["uv"]
        ),
    )
    if rank == 0:
        print(json.dumps(_train(batch, seconds)), flush=True)
    rpc.shutdown()


def main() -> None:
    batch, seconds = int(sys.argv[1]), float(sys.argv[2])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(_member, (port, batch, seconds), nprocs=2)


if __name__ == "__main__":
    main()
