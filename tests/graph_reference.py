"""A graph's values in PyTorch and double precision, by the definitions of its nodes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from leashed.models import (
    AUGRU,
    FM,
    GRU,
    AttentionPool,
    AttentionScores,
    AttentionUnit,
    BatchNorm,
    Concat,
    Cross,
    DataNorm,
    Dense,
    Dot,
    Embedding,
    Graph,
    Input,
    Product,
    ReLU,
    Sigmoid,
    Sum,
    Tanh,
    Zip,
)
from leashed.models.graphs import Applied

torch = pytest.importorskip("torch")

SEQUENTIAL = (AttentionUnit, AttentionScores, AttentionPool, GRU, AUGRU)
ROWS = 12  # few, so that ids repeat within a batch


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


def steps_of(node: Any, batch: Batch, columns: dict[Any, Column]) -> Any:
    """Of each example how many steps of a sequence there are, [size]."""
    while not isinstance(node, Embedding):
        keys = isinstance(node, (AttentionUnit, AttentionScores))
        node = node.inputs[1 if keys else 0]
    offsets = columns[node].offsets
    lengths = np.ones(len(batch.y)) if offsets is None else np.diff(offsets.astype(int))
    return torch.tensor(np.minimum(lengths, node.length))


def softmax(scores: Any, there: Any) -> Any:
    """Over the steps that are there; 0 where there is none."""
    given = torch.softmax(scores.masked_fill(~there, -1e30), 1)
    return given * there


def recurrent(steps: Any, lengths: Any, parts: dict[str, Any], i: int, scores: Any) -> Any:
    """DIEN's gated units: all states [size, length, units], 0 behind the sequence, and the last."""
    w, u, b = (parts[f"{i}.{name}"] for name in ("weight", "recurrent", "bias"))
    h = steps.new_zeros((len(steps), u.shape[0]))
    states = []
    for t in range(steps.shape[1]):
        given, hidden = (steps[:, t] @ w + b).chunk(3, 1), (h @ u).chunk(3, 1)
        update = torch.sigmoid(given[0] + hidden[0])
        if scores is not None:
            update = update * scores[:, t : t + 1]
        reset = torch.sigmoid(given[1] + hidden[1])
        candidate = torch.tanh(given[2] + reset * hidden[2])
        there = (t < lengths)[:, None]
        h = torch.where(there, (1 - update) * h + update * candidate, h)
        states.append(torch.where(there, h, torch.zeros_like(h)))
    return torch.stack(states, 1), h


def attention(node: Any, i: int, inputs: list[Any], parts: dict[str, Any], lengths: Any) -> Any:
    """The value of a node that reads a sequence."""
    size = len(lengths)
    if isinstance(node, (GRU, AUGRU)):
        scores = inputs[1] if isinstance(node, AUGRU) else None
        dim = parts[f"{i}.weight"].shape[0]
        states, last = recurrent(inputs[0].reshape(size, -1, dim), lengths, parts, i, scores)
        return last if isinstance(node, AUGRU) else states.reshape(size, -1)
    if isinstance(node, AttentionPool):
        keys = inputs[1].reshape(size, inputs[0].shape[1], -1)
        return (inputs[0][:, :, None] * keys).sum(1)
    q = inputs[0][:, None]
    keys = inputs[1].reshape(size, -1, q.shape[2])
    there = torch.arange(keys.shape[1]) < lengths[:, None]
    if isinstance(node, AttentionScores):
        return softmax((q * keys).sum(2), there)
    q = q.expand_as(keys)
    x = torch.cat([q, keys, q - keys, q * keys], 2)
    for k in range(len(node.hidden) + 1):
        x = x @ parts[f"{i}.{k}.weight"] + parts[f"{i}.{k}.bias"]
        x = torch.relu(x) if k < len(node.hidden) else x[:, :, 0]
    return softmax(x, there) if node.softmax else x * there


def zipped(node: Zip, inputs: list[Any]) -> Any:
    size = len(inputs[0])
    length = _length(node)
    return torch.cat([x.reshape(size, length, -1) for x in inputs], 2).reshape(size, -1)


def _length(node: Any) -> int:
    while not isinstance(node, Embedding):
        node = node.inputs[0]
    assert node.length is not None
    return node.length


def value(node: Any, i: int, inputs: list[Any], parts: dict[str, Any]) -> Any:
    """A node's value from its inputs', by its definition."""
    match node:
        case Applied(layer=Dense(bias=trained)):
            bias = parts[f"{i}.bias"]
            return inputs[0] @ parts[f"{i}.weight"] + (bias if trained else bias.detach())
        case Applied(layer=ReLU()):
            return torch.relu(inputs[0])
        case Applied(layer=Tanh()):
            return torch.tanh(inputs[0])
        case Applied(layer=Sigmoid()):
            return torch.sigmoid(inputs[0])
        case Applied(layer=BatchNorm(eps=eps)):
            scale, shift = parts[f"{i}.scale"], parts[f"{i}.shift"]
            return torch.nn.functional.batch_norm(
                inputs[0], None, None, scale, shift, training=True, eps=eps
            )
        case Applied(layer=DataNorm()):
            mean = inputs[0].mean(0)
            least = torch.where(mean < 0, -1e-3, 1e-3)
            mean = torch.where(mean.abs() < 1e-3, least, mean)
            return parts[f"{i}.scale"] * inputs[0] / mean - parts[f"{i}.shift"]
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


def outputs(
    graph: Graph, theta: Any, tables: list[Any], batch: Batch, masks: dict[Any, Any] | None = None
) -> Any:
    """``masks``: what dropout multiplies by, of each such node [size, width]."""
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
        if masks and node in masks:
            found[node] = found[node.inputs[0]] * torch.tensor(masks[node], dtype=torch.float64)
        elif isinstance(node, Input):
            found[node] = torch.tensor(batch.x, dtype=torch.float64)
        elif isinstance(node, Embedding):
            found[node] = pooled(node, table_of[node.table], columns[node], len(batch.y))
        elif isinstance(node, Zip):
            found[node] = zipped(node, [found[n] for n in node.inputs])
        elif isinstance(node, SEQUENTIAL):
            keys = node.inputs[0 if isinstance(node, (GRU, AUGRU)) else 1]
            lengths = steps_of(keys, batch, columns)
            found[node] = attention(node, i, [found[n] for n in node.inputs], parts, lengths)
        else:
            found[node] = value(node, i, [found[n] for n in node.inputs], parts)
    return found[graph.output]


def draw(graph: Graph, size: int, random: np.random.Generator, kind: str) -> Batch:
    """A batch; ``kind`` of the ids: one each, bags of 0 to 4 of them, or bags with weights."""
    columns = []
    for _ in graph.embeddings:
        offsets = weights = None
        entries = size
        if kind != "one":
            lengths = random.integers(0, 5, size)
            lengths[size // 2] = 0
            offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint32)
            entries = int(offsets[-1])
        if kind == "weights":
            weights = random.normal(1, 0.5, entries).astype(np.float32)
        columns.append(
            Column(random.integers(0, ROWS, entries).astype(np.uint64), offsets, weights)
        )
    x = random.normal(size=(size, graph.features)).astype(np.float32) if graph.features else None
    return Batch(x, random.integers(0, 2, size).astype(np.int32), columns)


def reference(
    graph: Graph, theta: Any, tables: list[Any], batch: Batch, masks: dict[Any, Any] | None = None
) -> tuple[Any, ...]:
    """Loss, gradient and row gradients; ``masks`` as for ``outputs``."""
    theta = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
    rows = [torch.tensor(t, dtype=torch.float64, requires_grad=True) for t in tables]
    o = outputs(graph, theta, rows, batch, masks)[:, 0]
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        o, torch.tensor(batch.y, dtype=torch.float64)
    )
    found = torch.autograd.grad(loss, [theta, *rows], allow_unused=True, materialize_grads=True)
    return loss.item(), found[0].numpy(), [g.numpy() for g in found[1:]]


def tables_of(graph: Graph, random: np.random.Generator) -> list[Any]:
    return [random.normal(0, 0.4, (ROWS, t.dim)).astype(np.float32) for t in graph.tables]
