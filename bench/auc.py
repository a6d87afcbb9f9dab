"""DLRM on generated clicks, here and in PyTorch: the AUC of the test rows after the same passes.

python -m bench.auc --output FILE [--seeds 5] [--rows 100000] [--epochs 1] [--lr 0.02] [--batch 128]

Both begin with the same parameters and rows and train with Adagrad; PyTorch walks over the rows in an
order of its own, which is drawn from the seed. Prints a table and writes a JSON line for each run.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import leashed as lsh
from bench import dlrm
from bench.markdown import table
from bench.torch_dlrm import Dlrm
from leashed.datasets import ClickSplit
from leashed.models import Graph

_T = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}


def here(data: ClickSplit, model: Graph, seed: int, threads: int, options: Any) -> float:
    """The AUC of the test rows."""
    result = lsh.train(
        model,
        data,
        until=lsh.until(epochs=options.epochs),
        discipline=lsh.Sequential() if threads == 1 else lsh.Hogwild(),
        rule=lsh.Adagrad(options.lr),
        threads=threads,
        batch_size=options.batch,
        seed=seed,
        observe=lsh.Observe(every=1e6),
    )
    return float(result.validation_auc[-1])


def there(data: ClickSplit, model: Graph, seed: int, options: Any) -> float:
    """The same in PyTorch, with one table for all features."""
    tables = lsh.tables.of(model.tables, rule=lsh.Adagrad(options.lr), seed=seed)
    peer = Dlrm(fused=True)
    _begin_alike(peer, model, tables, seed)
    optimizer = torch.optim.Adagrad(peer.parameters(), lr=options.lr)
    offsets = np.arange(dlrm.TABLES) * dlrm.ROWS

    def arrays(part: lsh.ClickDataset) -> list[torch.Tensor]:
        ids = np.asarray(part.ids).astype(np.int64) + offsets
        return [torch.from_numpy(a) for a in (part.x, ids, part.y.astype(np.float32))]

    x, ids, y = arrays(data.train)
    rng = np.random.default_rng(seed)
    for _ in range(options.epochs):
        for rows in torch.from_numpy(rng.permutation(len(y))).split(options.batch):
            if len(rows) < options.batch:
                continue
            loss = F.binary_cross_entropy_with_logits(peer(x[rows], ids[rows]), y[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        x, ids, _ = arrays(data.test)
        scores = peer(x, ids).numpy()
    return lsh.metrics.auc(scores, data.test.y)


def _begin_alike(peer: Dlrm, model: Graph, tables: dict[str, lsh.Table], seed: int) -> None:
    parts = list(model.unflatten(model.init(seed)).values())
    layers = [m for m in peer.modules() if isinstance(m, torch.nn.Linear)]
    with torch.no_grad():
        for layer, weight, bias in zip(layers, parts[::2], parts[1::2], strict=True):
            layer.weight.copy_(torch.from_numpy(weight.T.copy()))
            layer.bias.copy_(torch.from_numpy(bias.copy()))
        rows = [table.lookup(np.arange(dlrm.ROWS)) for table in tables.values()]
        peer.tables[0].weight.copy_(torch.from_numpy(np.concatenate(rows)))


def _mean(values: list[float]) -> str:
    half = _T[len(values)] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.mean(values):.4f} ± {half:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5, choices=sorted(_T))
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--batch", type=int, default=128)
    options = parser.parse_args()
    model = lsh.models.dlrm(dlrm.ROWS)
    found = []
    for seed in range(options.seeds):
        data = lsh.datasets.synthetic_clicks(options.rows, seed, cardinalities=dlrm.ROWS)
        found.append(
            {
                "seed": seed,
                "leashed, 1 thread": here(data, model, seed, 1, options),
                "leashed, 2 threads": here(data, model, seed, 2, options),
                "PyTorch": there(data, model, seed, options),
                "hidden model": data.test.hidden_auc,
            }
        )
        print(json.dumps(found[-1]), flush=True)
    options.output.write_text("".join(json.dumps(each) + "\n" for each in found), "utf-8")
    names = list(found[0])[1:]
    hidden = [each["hidden model"] for each in found]
    rows = []
    for name in names:
        values = [each[name] for each in found]
        away = [h - v for h, v in zip(hidden, values, strict=True)]
        over = [v - each["PyTorch"] for v, each in zip(values, found, strict=True)]
        rows.append([name, _mean(values), _mean(over), _mean(away)])
    print(table(["", "AUC", "over PyTorch's", "below the hidden model's"], rows))


if __name__ == "__main__":
    main()
