"""YouTubeDNN in PyTorch as fast as its eager mode goes, with sparse gradients of its tables.

python -m bench.torch_youtube BATCH THREADS SECONDS

Prints examples per second of a turn, and the share of its processors that it had.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import time

import torch
import torch.nn.functional as F

from bench import youtube

WARM_UP = 5


class YouTubeDNN(torch.nn.Module):
    """At the sizes of ``bench.youtube``: the loss of a batch, by as many negatives, drawn likewise and
    with the same correction.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen = torch.nn.EmbeddingBag(youtube.ITEMS, youtube.DIM, mode="mean", sparse=True)
        self.choices = torch.nn.Embedding(youtube.ITEMS, youtube.DIM, sparse=True)
        layers: list[torch.nn.Module] = []
        for inputs, outputs in itertools.pairwise((youtube.DIM, *youtube.HIDDEN, youtube.DIM)):
            layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
        self.user = torch.nn.Sequential(*layers)

    def forward(
        self, ids: torch.Tensor, offsets: torch.Tensor, chosen: torch.Tensor
    ) -> torch.Tensor:
        scale = math.log1p(youtube.ITEMS)
        drawn = torch.exp(torch.rand(youtube.NEGATIVES) * scale).sub_(1).long()
        expected = youtube.NEGATIVES * torch.log1p(1 / (drawn + 1.0)) / scale
        u = self.user(self.seen(ids, offsets))
        rows = self.choices(torch.cat([drawn, chosen]))
        negatives, own = rows.split([youtube.NEGATIVES, len(chosen)])
        logits = torch.addmm(-torch.log(expected), u, negatives.T)
        logits = logits.masked_fill(chosen[:, None] == drawn, -1e30)
        positive = (u * own).sum(1, keepdim=True)
        target = torch.full((len(chosen),), youtube.NEGATIVES)
        return F.cross_entropy(torch.cat([logits, positive], 1), target)


def main() -> None:
    batch, threads = map(int, sys.argv[1:3])
    seconds = float(sys.argv[3])
    torch.set_num_threads(threads)
    ids, offsets, chosen = (torch.from_numpy(a) for a in youtube.data())
    parts = []
    for first in range(0, len(chosen) - batch + 1, batch):
        begin = offsets[first : first + batch]
        end = int(offsets[first + batch])
        parts.append((ids[int(begin[0]) : end], begin - begin[0], chosen[first : first + batch]))
    batches = itertools.cycle(parts)
    model = YouTubeDNN()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=youtube.LR)

    def step() -> None:
        loss = model(*next(batches))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    for _ in range(WARM_UP):
        step()
    done, start, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() < start + seconds:
        step()
        done += batch
    elapsed = time.perf_counter() - start
    share = (time.process_time() - used) / elapsed / threads
    print(json.dumps({"eps": done / elapsed, "cpu_share": share}))


if __name__ == "__main__":
    main()
