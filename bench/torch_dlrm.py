"""DLRM in PyTorch as fast as its eager mode goes, with sparse gradients of its tables.

python -m bench.torch_dlrm BATCH THREADS fused|tables SECONDS

Prints examples per second of a turn, and the share of its processors that it had.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F

from bench import dlrm

WARM_UP = 5


class Dlrm(torch.nn.Module):
    """Naumov et al., 2019; one table for each feature, or one for all with offsets. By default of the
    numbers and tables of ``bench.dlrm``, whose widths it has. ``bags``: rows of the tables of features
    of which an example has any number of ids, from 1, zeros behind them.
    """

    def __init__(
        self,
        fused: bool,
        dense: int = dlrm.DENSE,
        rows: Sequence[int] = (dlrm.ROWS,) * dlrm.TABLES,
        bags: Sequence[int] = (),
    ) -> None:
        super().__init__()
        vectors = 1 + len(rows) + len(bags)
        self.bottom = chain((dense, *dlrm.BOTTOM))
        self.top = chain((dlrm.DIM + vectors * (vectors - 1) // 2, *dlrm.TOP, 1))
        self.tables = torch.nn.ModuleList(
            torch.nn.Embedding(n, dlrm.DIM, sparse=True) for n in ([sum(rows)] if fused else rows)
        )
        self.bags = torch.nn.ModuleList(
            torch.nn.EmbeddingBag(n, dlrm.DIM, mode="sum", sparse=True, padding_idx=0) for n in bags
        )
        self.pairs = torch.tril_indices(vectors, vectors, -1)

    def forward(self, x: torch.Tensor, ids: torch.Tensor, *bags: torch.Tensor) -> torch.Tensor:
        z = F.relu(self.bottom(x))
        if len(self.tables) == 1:
            rows = self.tables[0](ids)
        else:
            columns = ids.unbind(1)
            rows = torch.stack([t(c) for t, c in zip(self.tables, columns, strict=True)], 1)
        sums = [bag(given).unsqueeze(1) for bag, given in zip(self.bags, bags, strict=True)]
        vectors = torch.cat([z.unsqueeze(1), rows, *sums], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        pairs = products[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([z, pairs], 1)).squeeze(1)


def chain(widths: tuple[int, ...]) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def main() -> None:
    batch, threads = map(int, sys.argv[1:3])
    fused, seconds = sys.argv[3] == "fused", float(sys.argv[4])
    torch.set_num_threads(threads)
    x, ids, y = dlrm.data()
    offsets = np.arange(dlrm.TABLES) * dlrm.ROWS if fused else 0
    parts = [
        torch.from_numpy(a).split(batch)
        for a in (x, (ids.astype(np.int64) + offsets), y.astype(np.float32))
    ]
    batches = itertools.cycle([b for b in zip(*parts, strict=True) if len(b[0]) == batch])
    model = Dlrm(fused)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=dlrm.LR)

    def step() -> None:
        examples, places, labels = next(batches)
        loss = F.binary_cross_entropy_with_logits(model(examples, places), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    for _ in range(WARM_UP):
        step()
    done, begin, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() < begin + seconds:
        step()
        done += batch
    elapsed = time.perf_counter() - begin
    share = (time.process_time() - used) / elapsed / threads
    print(json.dumps({"eps": done / elapsed, "cpu_share": share}))


if __name__ == "__main__":
    main()
