"""A graph's values in PyTorch and double precision, by the definitions of its nodes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from leashed.graphs import Applied
from leashed.models import (
    FM,
    Concat,
    Cross,
    Dense,
    Dot,
    Embedding,
    Graph,
    Input,
    Product,
    ReLU,
    Sum,
)

torch = pytest.importorskip("torch")


@dataclass
class Column:
    """The ids of one feature: [entries], with offsets [size + 1] and weights [entries] or none."""

    ids: Any
    offsets: Any
    weights: Any

    @property
    def native(self) -> tuple[Any, Any, Any]:
        return self.ids, self.offsets, self.weights


@dataclass
class Batch:
    x: Any
    y: Any
    columns: list[Column]


def pooled(node: Embedding, table: Any, column: Column, size: int) -> Any:
    dim = node.table.dim
    offsets = np.arange(size + 1) if column.offsets is None else column.offsets.astype(int)
    weights = np.ones(len(column.ids)) if column.weights is None else column.weights
    rows = table[column.ids.astype(int)] * torch.tensor(weights, dtype=table.dtype)[:, None]
    out = []
    for begin, end in itertools.pairwise(offsets):
        bag = rows[begin:end]
        if node.pooling == "sequence":
            assert node.length is not None
            bag = bag[: node.length]
            padding = table.new_zeros((node.length - len(bag), dim))
            out.append(torch.cat([bag, padding]).reshape(-1))
        elif not len(bag):
            out.append(table.new_zeros(dim))
        elif node.pooling == "max":
            out.append(bag.max(0).values)
        else:
            out.append(bag.sum(0) / (len(bag) if node.pooling == "mean" else 1))
    return torch.stack(out)


def value(node: Any, i: int, inputs: list[Any], parts: dict[str, Any]) -> Any:
    """A node's value from its inputs', by its definition."""
    match node:
        case Applied(layer=Dense(bias=trained)):
            bias = parts[f"{i}.bias"]
            return inputs[0] @ parts[f"{i}.weight"] + (bias if trained else bias.detach())
        case Applied(layer=ReLU()):
            return torch.relu(inputs[0])
        case Concat():
            return torch.cat(inputs, 1)
        case Dot():
            v = torch.stack(inputs, 1)
            products = v @ v.transpose(1, 2)
            j, k = np.tril_indices(len(inputs), -1)
            return products[:, j, k]
        case FM():
            v = torch.stack(inputs, 1)
            return 0.5 * (v.sum(1) ** 2 - (v**2).sum(1)).sum(1, keepdim=True)
        case Sum():
            return sum(inputs)
        case Product():
            return inputs[0] * inputs[1]
        case Cross():
            return inputs[0] * (inputs[1] @ parts[f"{i}.weight"]) + parts[f"{i}.bias"] + inputs[1]
        case _:
            raise AssertionError(node)


def outputs(graph: Graph, theta: Any, tables: list[Any], batch: Batch) -> Any:
    parts = {
        block.name: theta[block.offset : block.offset + int(np.prod(block.shape))].reshape(
            block.shape
        )
        for block in graph.native.parameters
    }
    columns = dict(zip(graph.embeddings, batch.columns, strict=True))
    table_of = dict(zip(graph.tables, tables, strict=True))
    found: dict[Any, Any] = {}
    for i, node in enumerate(graph.nodes):
        if isinstance(node, Input):
            found[node] = torch.tensor(batch.x, dtype=torch.float64)
        elif isinstance(node, Embedding):
            found[node] = pooled(node, table_of[node.table], columns[node], len(batch.y))
        else:
            found[node] = value(node, i, [found[n] for n in node.inputs], parts)
    return found[graph.output]
