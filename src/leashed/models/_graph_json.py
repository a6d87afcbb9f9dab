"""Graphs as JSON's own types: the nodes in order, each with the indices of its inputs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from leashed.models.graphs import (
    AUGRU,
    FM,
    GRU,
    Applied,
    AttentionPool,
    AttentionScores,
    AttentionUnit,
    Concat,
    Cross,
    Dot,
    Embedding,
    Graph,
    InBatchSoftmax,
    Input,
    Node,
    Product,
    SampledLogits,
    Sum,
    TableSpec,
    Zip,
)
from leashed.models.layers import ACTIVATIONS, OF_GRAPHS, Dense, Layer

__all__ = ["from_json", "to_json"]

_KINDS: tuple[type[Layer], ...] = (Dense, *ACTIVATIONS, *OF_GRAPHS)
_LAYERS: dict[str, Any] = {kind.__name__: kind for kind in _KINDS}
_CHOOSING: dict[str, Any] = {kind.__name__: kind for kind in (SampledLogits, InBatchSoftmax)}
_SIZED: tuple[Any, ...] = (AttentionUnit, GRU, AUGRU)
_JOINED: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        Concat,
        Dot,
        FM,
        Sum,
        Product,
        Cross,
        Zip,
        AttentionScores,
        AttentionPool,
        *_SIZED,
    )
}


def to_json(graph: Graph) -> dict[str, Any]:
    """The tables and nodes of a graph; not its name, loss and penalty."""
    place = {node: i for i, node in enumerate(graph.nodes)}
    table_of = {table: i for i, table in enumerate(graph.tables)}
    nodes = [
        {**_fields(node, table_of), "inputs": [place[i] for i in node.inputs]}
        for node in graph.nodes
    ]
    return {"tables": [asdict(table) for table in graph.tables], "nodes": nodes}


def _fields(node: Node, table_of: dict[TableSpec, int]) -> dict[str, Any]:
    if isinstance(node, Applied):
        return {"kind": type(node.layer).__name__, **asdict(node.layer)}
    if isinstance(node, Input):
        return {"kind": "Input", "features": node.features}
    if isinstance(node, Embedding):
        told = {"pooling": node.pooling, "length": node.length, "feature": node.feature}
        return {"kind": "Embedding", "table": table_of[node.table], **told}
    if isinstance(node, SampledLogits):
        drawn = {
            "negatives": node.negatives,
            "sampling": node.sampling,
            "correction": node.correction,
        }
        return {
            "kind": "SampledLogits",
            "table": table_of[node.table],
            **drawn,
            "feature": node.feature,
        }
    if isinstance(node, InBatchSoftmax):
        told = {"frequencies": node.frequencies, "feature": node.feature}
        return {"kind": "InBatchSoftmax", "table": table_of[node.table], **told}
    sizes = node.sizes() if isinstance(node, _SIZED) else {}
    return {"kind": type(node).__name__, **sizes}


def from_json(value: dict[str, Any], name: str, loss: str, l2: float) -> Graph:
    """The graph that ``to_json`` was given.

    Raises:
        KeyError, TypeError, AttributeError, ValueError: it is none.
    """
    tables = [TableSpec(**fields) for fields in value["tables"]]
    nodes: list[Node] = []
    for fields in value["nodes"]:
        settings = dict(fields)
        kind, inputs = settings.pop("kind"), settings.pop("inputs")
        nodes.append(_node(kind, settings, [_at(nodes, i) for i in inputs], tables))
    if not nodes:
        raise ValueError("it has no nodes")
    return Graph(nodes[-1], loss, name, l2)


def _at(nodes: list[Any], index: Any) -> Any:
    if not isinstance(index, int) or not 0 <= index < len(nodes):
        raise ValueError(f"it names number {index!r} of {len(nodes)}")
    return nodes[index]


def _node(kind: str, settings: dict[str, Any], inputs: list[Node], tables: list[TableSpec]) -> Node:
    if kind in _JOINED:
        joined: Node = _JOINED[kind](*inputs, **settings)
        return joined
    if kind in _LAYERS:
        (node,) = inputs
        return Applied(_LAYERS[kind](**settings), node)
    if kind in _CHOOSING:
        (node,) = inputs
        chosen: Node = _CHOOSING[kind](node, _at(tables, settings.pop("table")), **settings)
        return chosen
    if inputs:
        raise ValueError(f"{kind} has inputs")
    if kind == "Embedding":
        return Embedding(_at(tables, settings.pop("table")), **settings)
    if kind == "Input":
        return Input(**settings)
    raise ValueError(f"{kind!r} is no kind of node")
