"""DIN in PyTorch as fast as its eager mode goes, with sparse gradients of its tables.

python -m bench.torch_din BATCH THREADS padded|packed SECONDS

``padded``: all histories of a batch as long as its longest, masked; ``packed``: the steps that there
are, of all examples, one after another. Prints examples per second of a turn, and the share of its
processors that it had.
"""

from __future__ import annotations

import itertools
import json
import sys
import time

import torch
import torch.nn.functional as F

from bench import din
from bench.torch_dlrm import chain

WARM_UP = 5


class Din(torch.nn.Module):
    """Zhou et al., 2018, as ``lsh.models.din`` has it, at the sizes of ``bench.din``."""

    def __init__(self, packed: bool) -> None:
        super().__init__()
        self.packed = packed
        self.users, self.items, self.categories = (
            torch.nn.Embedding(rows, din.DIM, sparse=True)
            for rows in (din.USERS, din.ITEMS, din.CATEGORIES)
        )
        self.unit = chain((8 * din.DIM, *din.ATTENTION, 1))
        self.mlp = chain((1 + 5 * din.DIM, *din.HIDDEN, 1))

    def item(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.items(ids), self.categories(ids % din.CATEGORIES)], -1)

    def scores(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return self.unit(torch.cat([q, k, q - k, q * k], -1))

    def forward(
        self,
        x: torch.Tensor,
        users: torch.Tensor,
        items: torch.Tensor,
        histories: torch.Tensor,
        lengths: torch.Tensor,
    ) -> torch.Tensor:
        shown = self.item(items)
        histories = histories[:, : int(lengths.max())]
        there = torch.arange(histories.shape[1]) < lengths[:, None]
        if self.packed:
            of = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
            keys = self.item(histories[there])
            weighed = self.scores(shown[of], keys) * keys
            interest = torch.zeros_like(shown).index_add(0, of, weighed)
        else:
            keys = self.item(histories)
            scores = self.scores(shown[:, None].expand_as(keys), keys)
            interest = torch.bmm((scores * there[:, :, None]).transpose(1, 2), keys).squeeze(1)
        return self.mlp(torch.cat([x, self.users(users), shown, interest], 1)).squeeze(1)


def main() -> None:
    batch, threads = map(int, sys.argv[1:3])
    packed, seconds = sys.argv[3] == "packed", float(sys.argv[4])
    torch.set_num_threads(threads)
    data = din.data()
    histories, lengths = din.padded()
    columns = [data.ids[f].astype("int64") for f in (0, 1)]
    parts = [
        torch.from_numpy(a).split(batch)
        for a in (data.x, *columns, histories, lengths, data.y.astype("float32"))
    ]
    batches = itertools.cycle([b for b in zip(*parts, strict=True) if len(b[0]) == batch])
    model = Din(packed)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=din.LR)

    def step() -> None:
        *examples, labels = next(batches)
        loss = F.binary_cross_entropy_with_logits(model(*examples), labels)
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
