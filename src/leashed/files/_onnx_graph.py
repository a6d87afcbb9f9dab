"""Graphs and networks as operations of ONNX: each kind of node in terms of the standard's own."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import singledispatchmethod
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leashed.datasets.columns import UNKNOWN, Columns
from leashed.datasets.fields import Number
from leashed.models import layers
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import (
    AUGRU,
    FM,
    GRU,
    Applied,
    AttentionPool,
    AttentionScores,
    AttentionUnit,
    Choosing,
    Concat,
    Cross,
    Dot,
    Embedding,
    Graph,
    Input,
    Node,
    Product,
    Sum,
    TableSpec,
    Zip,
)
from leashed.models.network import Model

OPSET, OPSET_ML, IR = 17, 4, 8

Floats = NDArray[np.float32]

_ACTIVATIONS = {layers.ReLU: "Relu", layers.Tanh: "Tanh", layers.Sigmoid: "Sigmoid"}


@dataclass(frozen=True)
class Rows:
    """A table's, as a model that is served reads them.

    Attributes:
        values: float32 [n, dim]; where it grows one more, the last, for ids that have none.
        ids: int64 [n] of a table that grows, the id of each row; None: row i is of id i.
    """

    values: Floats
    ids: NDArray[np.int64] | None = None


class Net:
    """Operations and constants in the making."""

    def __init__(self, onnx: Any, columns: Columns = UNKNOWN) -> None:
        self._onnx, self._columns = onnx, columns
        self.nodes: list[Any] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self.inputs: dict[str, Any] = {}
        self._kept: dict[object, str] = {}

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """An operation's one output."""
        name = f"/{kind}_{len(self.nodes)}"  # which no column is called
        made = self._onnx.helper.make_node(kind, inputs, [name], domain=domain, **attributes)
        self.nodes.append(made)
        return name

    def floats(self, values: Any, name: str | None = None) -> str:
        """A constant float32 array."""
        return self._constant(np.asarray(values, np.float32), name)

    def whole(self, values: Any) -> str:
        """A constant int64 array."""
        return self._constant(np.asarray(values, np.int64), None)

    def _constant(self, array: NDArray[Any], name: str | None) -> str:
        array = np.asarray(array, order="C")
        key = name or (array.dtype.str, array.shape, hashlib.sha256(array.data).digest())
        if key not in self._kept:
            self._kept[key] = f"/{name or len(self.constants)}"
            self.constants[self._kept[key]] = array
        return self._kept[key]

    def input(self, name: str, shape: list[int | str], kind: str) -> str:
        """An input of the model. ValueError where another one is called so."""
        of = getattr(self._onnx.TensorProto, kind)
        made = self._onnx.helper.make_tensor_value_info(name, of, shape)
        if self.inputs.setdefault(name, made) != made:
            raise ValueError(
                f"two inputs would be called {name!r}, and ONNX knows them by name; rename that column"
            )
        return name

    def numbers(self, name: str, count: int) -> str:
        """So many numbers an example, [n, count]: an input of that name, or where the columns have names
        one for each, [n], which is made of what stands in the data as their schema says.
        """
        return self._standardised(self._numbers(name, count))

    def _standardised(self, numbers: str) -> str:
        """Numbers [n, count] as the model reads them, in double precision as in training."""
        moments = self._columns.moments
        if moments is None:
            return numbers
        mean, factor = (self._constant(part, None) for part in moments.scales)
        made = self.op("Sub", self.op("Cast", numbers, to=self._onnx.TensorProto.DOUBLE), mean)
        made = self.op("Mul", made, factor)
        return self.op("Cast", made, to=self._onnx.TensorProto.FLOAT)

    def _numbers(self, name: str, count: int) -> str:
        names = self._columns.numbers
        if names is None or not names:
            return self.input(name, ["n", count], "FLOAT")
        schema = self._columns.schema
        columns = [self.input(one, ["n"], "FLOAT") for one in names]
        if schema is not None:
            made = [schema.columns.get(one) for one in names]
            columns = [
                self._number(x, of) if isinstance(of, Number) else x
                for x, of in zip(columns, made, strict=True)
            ]
        return self.op("Concat", *(self.lifted(x, 1) for x in columns), axis=1)

    def _number(self, x: str, of: Number) -> str:
        missing = self.op("IsNaN", x) if of.missing is not None else ""
        if of.log:
            x = self.op(
                "Log", self.op("Add", self.op("Max", x, self.floats(0.0)), self.floats(1.0))
            )
        return x if not missing else self.op("Where", missing, self.floats(of.missing), x)

    def ids(self, feature: int) -> tuple[str, str]:
        """What the inputs of a feature's ids, and of how many there are, are called."""
        names = self._columns.ids or ()
        name = names[feature] if feature < len(names) else None
        if name is None:
            return f"ids.{feature}", f"lengths.{feature}"
        return name, f"{name}.lengths"

    def lifted(self, value: str, axis: int) -> str:
        """With one more axis, of length 1."""
        return self.op("Unsqueeze", value, self.whole([axis]))

    def summed(self, value: str, axis: int, keep: bool = False) -> str:
        return self.op("ReduceSum", value, self.whole([axis]), keepdims=int(keep))

    def dense(self, value: str, weight: Floats, bias: Floats | None) -> str:
        """The product with W, and b, over the last axis."""
        found = self.op("MatMul", value, self.floats(weight))
        return found if bias is None else self.op("Add", found, self.floats(bias))


@dataclass(frozen=True)
class Value:
    """What a node has given.

    Attributes:
        name: [n, width]; of a sequence [n, length, dim].
        length: of a sequence, its most steps; 0: it is none.
        there: of a sequence, bool [n, length, 1]: the steps that there are.
    """

    name: str
    length: int = 0
    there: str = ""


class GraphOperations:
    """The operations of a graph's nodes."""

    def __init__(
        self,
        net: Net,
        graph: Graph,
        parts: Mapping[str, Floats],
        statistics: Mapping[str, Floats],
        tables: Mapping[TableSpec, Rows],
        bags: Collection[int],
    ) -> None:
        self._net = net
        self._graph = graph
        self._parts = parts
        self._statistics = statistics
        self._tables = tables
        self._bags = set(bags)
        self._feature = dict(zip(graph.readers, graph.id_features, strict=True))
        self._bags |= {
            feature
            for node, feature in self._feature.items()
            if isinstance(node, Embedding) and node.pooling == "sequence"
        }
        self._place = {node: i for i, node in enumerate(graph.nodes)}
        self._found: dict[Node, Value] = {}

    def output(self) -> str:
        """The last node's, [n, outputs]; of one that judges choices the user's vectors instead."""
        last = self._graph.output
        user = last.user if isinstance(last, Choosing) else last
        for node in self._graph.nodes:
            if node is not last or node is user:
                self._found[node] = self._value(node)
        return self._flat(user)

    def _part(self, node: Node, name: str) -> Floats:
        return self._parts[f"{self._place[node]}.{name}"]

    def _flat(self, node: Node) -> str:
        value = self._found[node]
        if not value.length:
            return value.name
        return self._net.op("Reshape", value.name, self._net.whole([0, -1]))

    def _sequence(self, node: Node, reader: Node) -> Value:
        value = self._found[node]
        if not value.length:
            raise ValueError(
                f"node {self._place[reader]}, {type(reader).__name__}, reads a sequence that "
                f"{type(node).__name__} gives, which cannot be exported"
            )
        return value

    def _masked(self, value: str, there: str) -> str:
        return self._net.op("Where", there, value, self._net.floats(0.0))

    @singledispatchmethod
    def _value(self, node: Node) -> Value:
        raise ValueError(f"nodes of kind {type(node).__name__} cannot be exported")

    @_value.register
    def _(self, node: Input) -> Value:
        return Value(self._net.numbers("dense", node.features))

    @_value.register
    def _(self, node: Embedding) -> Value:
        net, feature = self._net, self._feature[node]
        name, counted = net.ids(feature)
        if feature not in self._bags:
            ids = net.input(name, ["n"], "INT64")
            return Value(self._rows(node.table, ids))
        ids = net.input(name, ["n", f"m.{feature}"], "INT64")
        lengths = net.input(counted, ["n"], "INT64")
        if node.length is not None:
            behind = net.op("Mul", net.lifted(lengths, 1), net.whole([[0] * node.length]))
            ids = net.op("Concat", ids, behind, axis=1)
            ids = net.op("Slice", ids, net.whole([0]), net.whole([node.length]), net.whole([1]))
        there = net.op("Less", self._numbers(ids), net.lifted(lengths, 1))
        ids = net.op("Where", there, ids, net.whole(0))
        there = net.lifted(there, 2)
        rows = self._masked(self._rows(node.table, ids), there)
        if node.length is not None:
            return Value(rows, node.length, there)
        if node.pooling == "max":
            least = net.op("Where", there, rows, net.floats(-math.inf))
            most = net.op("ReduceMax", least, axes=[1], keepdims=0)
            some = net.lifted(net.op("Greater", lengths, net.whole(0)), 1)
            return Value(self._masked(most, some))
        pooled = net.summed(rows, 1)
        if node.pooling == "mean":
            count = net.op("Max", net.lifted(lengths, 1), net.whole([[1]]))
            pooled = net.op("Div", pooled, net.op("Cast", count, to=1))
        return Value(pooled)

    def _numbers(self, ids: str) -> str:
        """0, 1, 2, … as many as there are places for an example's ids."""
        net = self._net
        most = net.op("Gather", net.op("Shape", ids), net.whole(1), axis=0)
        return net.op("Range", net.whole(0), most, net.whole(1))

    def _rows(self, table: TableSpec, ids: str) -> str:
        net, rows = self._net, self._tables[table]
        if rows.ids is not None:
            unknown = len(rows.ids)
            if unknown:
                ids = net.op(
                    "LabelEncoder",
                    ids,
                    domain="ai.onnx.ml",
                    keys_int64s=rows.ids.tolist(),
                    values_int64s=list(range(unknown)),
                    default_int64=unknown,
                )
            else:
                ids = net.op("Mul", ids, net.whole(0))
        return net.op("Gather", net.floats(rows.values, f"table.{table.name}"), ids, axis=0)

    @_value.register
    def _(self, node: Concat) -> Value:
        return Value(self._net.op("Concat", *map(self._flat, node.inputs), axis=1))

    def _stacked(self, node: Node) -> str:
        """Its inputs one below the other, [n, inputs, width]."""
        one = [self._net.lifted(self._flat(given), 1) for given in node.inputs]
        return self._net.op("Concat", *one, axis=1)

    @_value.register
    def _(self, node: Dot) -> Value:
        net, count, all_ = self._net, len(node.inputs), self._stacked(node)
        products = net.op("MatMul", all_, net.op("Transpose", all_, perm=[0, 2, 1]))
        pairs = sorted(combinations(range(count), 2), key=lambda pair: pair[::-1])
        chosen = net.whole([i * count + j for i, j in pairs])
        flat = net.op("Reshape", products, net.whole([0, count * count]))
        return Value(net.op("Gather", flat, chosen, axis=1))

    @_value.register
    def _(self, node: FM) -> Value:
        net, all_ = self._net, self._stacked(node)
        total = net.summed(all_, 1)
        squares = net.summed(net.op("Mul", all_, all_), 1)
        twice = net.op("Sub", net.op("Mul", total, total), squares)
        return Value(net.op("Mul", net.summed(twice, 1, keep=True), net.floats(0.5)))

    @_value.register
    def _(self, node: Sum) -> Value:
        return Value(self._net.op("Sum", *map(self._flat, node.inputs)))

    @_value.register
    def _(self, node: Product) -> Value:
        return Value(self._net.op("Mul", *map(self._flat, node.inputs)))

    @_value.register
    def _(self, node: Cross) -> Value:
        x0, x = map(self._flat, node.inputs)
        along = self._net.op("MatMul", x, self._net.floats(self._part(node, "weight")))
        crossed = self._net.op("Mul", x0, along)
        bias = self._net.floats(self._part(node, "bias"))
        return Value(self._net.op("Sum", crossed, bias, x))

    @_value.register
    def _(self, node: Zip) -> Value:
        all_ = [self._sequence(given, node) for given in node.inputs]
        joined = self._net.op("Concat", *(value.name for value in all_), axis=2)
        return Value(self._masked(joined, all_[0].there), all_[0].length, all_[0].there)

    def _scores(self, scores: str, keys: Value, softmax: bool) -> Value:
        if softmax:
            net = self._net
            known = net.op("Where", keys.there, scores, net.floats(-math.inf))
            scores = net.op("Softmax", known, axis=1)  # of no step NaN, which is left out below
        return Value(self._masked(scores, keys.there), keys.length, keys.there)

    @_value.register
    def _(self, node: AttentionUnit) -> Value:
        net, keys = self._net, self._sequence(node.inputs[1], node)
        none = net.op("Mul", keys.name, net.floats(0.0))
        query = net.op("Add", net.lifted(self._flat(node.inputs[0]), 1), none)
        difference = net.op("Sub", query, keys.name)
        product = net.op("Mul", query, keys.name)
        x = net.op("Concat", query, keys.name, difference, product, axis=2)
        for i in range(len(node.hidden) + 1):
            x = net.dense(x, self._part(node, f"{i}.weight"), self._part(node, f"{i}.bias"))
            x = net.op("Relu", x) if i < len(node.hidden) else x
        return self._scores(x, keys, node.softmax)

    @_value.register
    def _(self, node: AttentionScores) -> Value:
        keys = self._sequence(node.inputs[1], node)
        query = self._net.lifted(self._flat(node.inputs[0]), 2)
        return self._scores(self._net.op("MatMul", keys.name, query), keys, softmax=True)

    @_value.register
    def _(self, node: AttentionPool) -> Value:
        scores, keys = (self._sequence(given, node) for given in node.inputs)
        return Value(self._net.summed(self._net.op("Mul", scores.name, keys.name), 1))

    @_value.register
    def _(self, node: GRU) -> Value:
        """By the standard's own, whose update gate keeps what ours replaces: 1 − σ(x) = σ(−x)."""
        net, value, units = self._net, self._sequence(node.inputs[0], node), node.units
        sign = np.repeat(np.array([-1, 1, 1], np.float32), units)
        weight = self._part(node, "weight") * sign
        recurrent = self._part(node, "recurrent") * sign
        bias = self._part(node, "bias") * sign
        steps = net.op("Transpose", value.name, perm=[1, 0, 2])
        states = net.op(
            "GRU",
            steps,
            net.floats(weight.T[None]),
            net.floats(recurrent.T[None]),
            net.floats(np.append(bias, np.zeros(3 * units))[None]),
            hidden_size=units,
            linear_before_reset=1,
        )
        states = net.op("Squeeze", states, net.whole([1]))
        states = net.op("Transpose", states, perm=[1, 0, 2])
        return Value(self._masked(states, value.there), value.length, value.there)

    @_value.register
    def _(self, node: AUGRU) -> Value:
        """Step by step: a step that there is not has no attention, and changes nothing."""
        net, units = self._net, node.units
        value, scores = (self._sequence(given, node) for given in node.inputs)
        inputs = net.dense(value.name, self._part(node, "weight"), self._part(node, "bias"))
        recurrent = self._part(node, "recurrent")
        first = net.op("Gather", scores.name, net.whole(0), axis=1)
        state = net.op("MatMul", net.op("Mul", first, net.floats(0.0)), net.floats([[0.0] * units]))
        gates, candidate = net.floats(recurrent[:, : 2 * units]), recurrent[:, 2 * units :]
        for step in range(value.length):
            given = net.op("Gather", inputs, net.whole(step), axis=1)
            of_gates = self._columns(given, 0, 2 * units)
            both = net.op("Sigmoid", net.op("Add", of_gates, net.op("MatMul", state, gates)))
            reset = self._columns(both, units, 2 * units)
            kept = net.op("Mul", reset, net.op("MatMul", state, net.floats(candidate)))
            new = net.op("Tanh", net.op("Add", self._columns(given, 2 * units, 3 * units), kept))
            attention = net.op("Gather", scores.name, net.whole(step), axis=1)
            update = net.op("Mul", attention, self._columns(both, 0, units))
            state = net.op("Add", state, net.op("Mul", update, net.op("Sub", new, state)))
        return Value(state)

    def _columns(self, value: str, begin: int, end: int) -> str:
        net = self._net
        return net.op("Slice", value, net.whole([begin]), net.whole([end]), net.whole([1]))

    @_value.register
    def _(self, node: Applied) -> Value:
        net, layer, x = self._net, node.layer, self._flat(node.inputs[0])
        if isinstance(layer, layers.Dropout):
            return Value(x)
        if isinstance(layer, layers.ACTIVATIONS):
            return Value(net.op(_ACTIVATIONS[type(layer)], x))
        if isinstance(layer, layers.Dense):
            return Value(net.dense(x, self._part(node, "weight"), self._part(node, "bias")))
        scale, shift = self._part(node, "scale"), self._part(node, "shift")
        place = self._place[node]
        mean = self._statistics[f"{place}.mean"]
        if isinstance(layer, layers.BatchNorm):
            variance = self._statistics[f"{place}.variance"]
            scale = scale / np.sqrt(variance + np.float32(layer.eps))
            x = net.op("Sub", x, net.floats(mean))
        else:
            near = np.abs(mean) < np.float32(1e-3)
            divisor = mean.copy()
            divisor[near] = np.copysign(1e-3, mean[near])
            scale = scale / divisor
            shift = -shift
        return Value(net.op("Add", net.op("Mul", x, net.floats(scale)), net.floats(shift)))


def of_network(net: Net, model: Model, parts: Mapping[str, Floats]) -> str:
    """A list of layers, [n, outputs]."""
    x = net.numbers("x", model.features)
    if any(isinstance(layer, (layers.Conv2d, layers.MaxPool)) for layer in model.layers):
        x = net.op("Reshape", x, net.whole([-1, *model.input_shape]))
    for i, layer in enumerate(model.layers):
        if isinstance(layer, layers.Dense):
            x = net.dense(net.op("Flatten", x), parts[f"{i}.weight"], parts[f"{i}.bias"])
        elif isinstance(layer, layers.ACTIVATIONS):
            x = net.op(_ACTIVATIONS[type(layer)], x)
        elif isinstance(layer, layers.Conv2d):
            weight, bias = (net.floats(parts[f"{i}.{name}"]) for name in ("weight", "bias"))
            strides, pads = [layer.stride] * 2, [layer.padding] * 4
            x = net.op("Conv", x, weight, bias, strides=strides, pads=pads)
        else:
            assert isinstance(layer, layers.MaxPool)
            stride = layer.stride or layer.size
            x = net.op("MaxPool", x, kernel_shape=[layer.size] * 2, strides=[stride] * 2)
    return net.op("Flatten", x)


def of_factors(net: Net, model: FactorisationMachine, parts: Mapping[str, Floats]) -> str:
    """A factorisation machine of dense rows, [n, 1]."""
    x = net.numbers("x", model.features)
    weight, factors = parts["columns"][:, :1], parts["columns"][:, 1:]
    total = net.op("MatMul", x, net.floats(factors))
    squares = net.op("MatMul", net.op("Mul", x, x), net.floats(factors * factors))
    twice = net.summed(net.op("Sub", net.op("Mul", total, total), squares), 1, keep=True)
    linear = net.dense(x, weight, parts["bias"])
    return net.op("Add", linear, net.op("Mul", twice, net.floats(0.5)))


# By loss, what a prediction is of the outputs; others: the outputs themselves.
PREDICTIONS: dict[str, Callable[[Net, str], str]] = {
    "log_loss": lambda net, x: net.op("Sigmoid", x),
    "binary_cross_entropy": lambda net, x: net.op("Sigmoid", x),
    "softmax": lambda net, x: net.op("Softmax", x, axis=1),
}
