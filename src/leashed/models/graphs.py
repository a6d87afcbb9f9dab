"""Models as graphs over dense features and rows of embedding tables, written as a few lines.

>>> z = Input(13) >> Dense(64) >> ReLU() >> Dense(16) >> ReLU()
>>> e = [Embedding(TableSpec(f"c{i}", 16, 100_000)) for i in range(26)]
>>> dlrm = Graph(Concat(z, Dot(z, *e)) >> Dense(64) >> ReLU() >> Dense(1), loss="log_loss")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _core
from leashed.base import checks
from leashed.base.choice import Choice
from leashed.base.target import TargetWord
from leashed.datasets import ClickDataset, Dataset
from leashed.datasets.heads import heads_of
from leashed.models import _parameters
from leashed.models._columns import arranged, check_columns, standardised
from leashed.models._fits import check_fits, check_labels, examples
from leashed.models._reads import TableSpec, click_rows, distinct
from leashed.models.layers import ACTIVATIONS, NORMS, OF_GRAPHS, BatchNorm, Dense, Layer
from leashed.models.tables import Table
from leashed.models.tables import check as check_tables

__all__ = [
    "AUGRU",
    "FM",
    "GRU",
    "POOLINGS",
    "AttentionPool",
    "AttentionScores",
    "AttentionUnit",
    "Concat",
    "Cross",
    "Dot",
    "Embedding",
    "Evaluated",
    "Graph",
    "InBatchSoftmax",
    "Input",
    "Node",
    "Product",
    "SampledLogits",
    "Sum",
    "TableSpec",
    "Zip",
]

POOLINGS = ("sum", "mean", "max", "sequence")
SAMPLINGS = ("log_uniform", "uniform")

_SHOWN = 4  # tables at most where a graph is printed


class Evaluated(NamedTuple):
    """What a model comes to over a data set.

    Attributes:
        loss: mean.
        accuracy: share of examples that are classified right.
        auc: the area under the ROC curve from counts in bins of logits, which is off by at most what
            ``metrics.ClickMetrics`` tells as ``auc_error`` (``Trained.evaluate`` has it of all pairs, up to
            2²² rows, so the two differ by that); NaN where the model's outputs are no logits of one label,
            or all labels are the same. Of several labels the mean over those that have one
            (``Trained.evaluate`` has each).
        normalised_entropy: the mean log loss over the entropy of the share of label 1 (He et al.,
            2014); NaN likewise.
    """

    loss: float
    accuracy: float
    auc: float
    normalised_entropy: float


class Node:
    """Base of the nodes below; ``node >> layer`` is a node too, for ``Dense``, ``ReLU``,
    ``Tanh``, ``Sigmoid``, ``BatchNorm``, ``DataNorm`` and ``Dropout``.

    A node is what it is, not what it is equal to: where two read the same one, it is computed once.
    """

    NATIVE: ClassVar[str]

    inputs: tuple[Node, ...] = ()

    def __rshift__(self, layer: Layer) -> Node:
        return Applied(layer, self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.inputs)} inputs>"

    def choice(self) -> Choice:
        """The native node's name and sizes, without its inputs."""
        return self.NATIVE, {}


def _nodes(kind: str, inputs: tuple[object, ...], least: int) -> tuple[Node, ...]:
    for i, given in enumerate(inputs):
        if not isinstance(given, Node):
            hint = "; write node >> layer" if isinstance(given, Layer) else ""
            raise TypeError(f"{kind}'s input {i} must be a node, got {given!r}{hint}")
    if len(inputs) < least:
        raise ValueError(f"{kind} takes at least {least} inputs, got {len(inputs)}")
    return inputs  # type: ignore[return-value]


@dataclass(frozen=True, eq=False, repr=False)
class Input(Node):
    """The dense features of an example, float32 [features]; a graph has one input at most."""

    NATIVE: ClassVar[str] = "input"

    features: int

    def __post_init__(self) -> None:
        checks.size("features", self.features)

    def choice(self) -> Choice:
        return self.NATIVE, {"features": self.features}


@dataclass(frozen=True, eq=False, repr=False)
class Embedding(Node):
    """The rows that an example's ids of one feature stand for, float32 [dim], or [length · dim].

    Each row is multiplied by its id's weight, where there are weights. Of an example without ids
    the value is 0. Two embeddings of one table share its rows.

    Args:
        table: where the rows lie.
        pooling: ``"sum"``; ``"mean"``, the sum divided by the number of ids (not by that of their
            weights); ``"max"`` of each float; ``"sequence"``, the rows one after another.
        length: of a sequence; more ids than that are left out (not looked up, not counted), fewer
            are followed by zeros.
        feature: which feature of the data that is ids. By default those of a graph's embeddings are
            numbered as they come, in the order of its nodes.

    Raises:
        TypeError, ValueError: an argument is not such a value.
    """

    NATIVE: ClassVar[str] = "embedding"

    table: TableSpec
    pooling: str = "sum"
    length: int | None = None
    feature: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.table, TableSpec):
            raise TypeError(f"table must be a TableSpec, got {self.table!r}")
        if self.pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}, got {self.pooling!r}")
        if (self.length is not None) != (self.pooling == "sequence"):
            raise ValueError("length is given for pooling='sequence', and for no other")
        if self.length is not None:
            checks.size("length", self.length)
        if self.feature is not None:
            checks.size("feature", self.feature, 0)


class Choosing(Node):
    """Base of the nodes that judge what a user chose by u · row, and so can end a graph for
    ``leashed.retrieval``; not one itself.
    """

    user: Node
    table: TableSpec
    feature: int | None

    def _check(self) -> None:
        kind = type(self).__name__
        object.__setattr__(self, "inputs", _nodes(kind, (self.user,), 1))
        if not isinstance(self.table, TableSpec):
            raise TypeError(f"table must be a TableSpec, got {self.table!r}")
        if self.table.rows is None:
            raise ValueError(f"table {self.table.name} must have rows, which its ids are below")
        if self.feature is not None:
            checks.size("feature", self.feature, 0)


def _law(name: str, value: object) -> None:
    if value not in SAMPLINGS:
        raise ValueError(f"{name} must be one of {', '.join(SAMPLINGS)}, got {value!r}")


@dataclass(frozen=True, eq=False, repr=False)
class SampledLogits(Choosing):
    """The logits of ids that are drawn for each batch, u · row − log(how often the id is expected
    among them), and last that of the one that an example chose, u · row; [negatives + 1], for the
    loss ``"sampled_softmax"``. Where one that is drawn is the one chosen, its logit is as good as
    −∞. With that correction (importance sampling: Bengio and Senécal, 2008) the sum of e to the
    logits is on average that over all ids, so the loss approaches the softmax over all as
    ``negatives`` grow; without it frequent ids would be pushed down. The loss ``"bpr"``, the mean of
    log(1 + e^(logit − that of the chosen)) over those that are drawn, compares pairs (Bayesian
    personalised ranking: Rendle et al., 2009), and takes them without correction.

    Ids are drawn with repetition, from Philox(seed, batch), and are rows of the batch as others.

    Args:
        user: u, of the width of a row.
        table: of the ids; its ``rows`` tell what they are below.
        negatives: ids that are drawn for a batch.
        sampling: ``"log_uniform"``: P(id) = log((id + 2) / (id + 1)) / log(rows + 1), for ids that
            are numbered by falling frequency; ``"uniform"``.
        correction: whether logits of what is drawn are corrected.
        feature: which feature of the data that is ids tells what was chosen; it has one id a row. By
            default as of an ``Embedding``.

    Raises:
        TypeError, ValueError: an argument is not such a value, or the table grows.
    """

    NATIVE: ClassVar[str] = "sampled_logits"

    user: Node
    table: TableSpec
    negatives: int = 100
    sampling: str = "log_uniform"
    feature: int | None = None
    correction: bool = True

    def __post_init__(self) -> None:
        self._check()
        checks.size("negatives", self.negatives)
        _law("sampling", self.sampling)
        if not isinstance(self.correction, bool):
            raise TypeError(f"correction must be True or False, got {self.correction!r}")


@dataclass(frozen=True, eq=False, repr=False)
class InBatchSoftmax(Choosing):
    """The logarithm of the probability of what an example chose among what all examples of its batch
    chose, [1], for the loss ``"in_batch"``: a softmax over s_j = u · row_j − log q_j, where q is how
    often an item is chosen (Yi et al., "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item
    Recommendations", 2019, eqs. 4 and 5). Without q items would be pushed down for being chosen
    often. Where another example chose the same item, its s counts once. In evaluation a batch is 256
    examples, the last one the rest.

    Args:
        user: u, of the width of a row.
        table: of the ids; its ``rows`` tell what they are below.
        frequencies: q of an id: ``"log_uniform"``: log((id + 2) / (id + 1)) / log(rows + 1), for ids
            that are numbered by falling frequency; ``"uniform"``: all alike, which corrects nothing.
            (The paper estimates them from the stream.)
        feature: as of ``SampledLogits``.

    Raises:
        TypeError, ValueError: an argument is not such a value, or the table grows.
    """

    NATIVE: ClassVar[str] = "in_batch"

    user: Node
    table: TableSpec
    frequencies: str = "log_uniform"
    feature: int | None = None

    def __post_init__(self) -> None:
        self._check()
        _law("frequencies", self.frequencies)


@dataclass(frozen=True, eq=False, repr=False, init=False)
class _Joined(Node):
    """A node of several others."""

    LEAST: ClassVar[int]

    inputs: tuple[Node, ...]

    def __init__(self, *inputs: Node) -> None:
        object.__setattr__(self, "inputs", _nodes(type(self).__name__, inputs, self.LEAST))


class Concat(_Joined):
    """Its inputs side by side."""

    NATIVE: ClassVar[str] = "concat"
    LEAST: ClassVar[int] = 1


class Dot(_Joined):
    """DLRM's interaction (Naumov et al., 2019): the dot products of all pairs of its n inputs, which
    have one width, [n (n − 1) / 2], in the order (0, 1), (0, 2), (1, 2), (0, 3), ….
    """

    NATIVE: ClassVar[str] = "dot"
    LEAST: ClassVar[int] = 2


class FM(_Joined):
    """A factorisation machine's second-order term ½ Σ_k ((Σⱼ vⱼₖ)² − Σⱼ vⱼₖ²) of its inputs, which
    have one width (Rendle, 2010, lemma 3.1); [1].
    """

    NATIVE: ClassVar[str] = "fm"
    LEAST: ClassVar[int] = 2


class Sum(_Joined):
    """The sum of its inputs, which have one width, element by element."""

    NATIVE: ClassVar[str] = "sum"
    LEAST: ClassVar[int] = 1


class Product(_Joined):
    """The product of two inputs of one width, element by element."""

    NATIVE: ClassVar[str] = "product"
    LEAST: ClassVar[int] = 2

    def __init__(self, a: Node, b: Node) -> None:
        super().__init__(a, b)


class Zip(_Joined):
    """Sequences of one length side by side at each step, [length · (dim₁ + dim₂ + …)]: such as the
    items of a history and their categories. It has as many steps as the first of them.
    """

    NATIVE: ClassVar[str] = "zip"
    LEAST: ClassVar[int] = 1


class _Sized(_Joined):
    """A node of others that has sizes too."""

    def choice(self) -> Choice:
        return self.NATIVE, {name: float(value) for name, value in self.sizes().items()}

    def sizes(self) -> dict[str, Any]:
        """What it takes beside its inputs, by name."""
        return {item.name: getattr(self, item.name) for item in fields(self)[1:]}


@dataclass(frozen=True, eq=False, repr=False, init=False)
class AttentionUnit(_Sized):
    """DIN's activation unit (Zhou et al., "Deep Interest Network for Click-Through Rate Prediction",
    2018, section 4.3): what each step of a sequence means for a query, [length], a sequence too.

    An MLP with ReLU and one output, of [q, k, q − k, q∘k] for each key k. (The paper's unit leaves
    out one of q − k and q∘k, its authors' program has both; its activations are PReLU or Dice.)
    0 where the sequence has no step. Parameters: of each layer a weight [inputs, outputs] and a
    bias [outputs], ``"0.weight"``, ``"0.bias"``, ``"1.weight"``, ….

    Args:
        query: as wide as a key.
        keys: a sequence: an ``Embedding`` whose pooling is ``"sequence"``, or what is made of one.
        hidden: widths of the MLP, at least one, without the output's 1.
        softmax: whether scores are normalised over the steps; the paper's are not, so that their
            sum tells how strong an interest is.
    """

    NATIVE: ClassVar[str] = "attention_unit"
    LEAST: ClassVar[int] = 2

    hidden: tuple[int, ...]
    softmax: bool

    def __init__(
        self, query: Node, keys: Node, hidden: Sequence[int] = (80, 40), softmax: bool = False
    ) -> None:
        super().__init__(query, keys)
        if not isinstance(softmax, bool):
            raise TypeError(f"softmax must be True or False, got {softmax!r}")
        widths = tuple(checks.size("hidden", width) for width in hidden)
        if not widths:
            raise ValueError("hidden must have at least one width")
        object.__setattr__(self, "hidden", widths)
        object.__setattr__(self, "softmax", softmax)

    def choice(self) -> Choice:
        hidden = np.array(self.hidden, np.float64)
        return self.NATIVE, {"hidden": hidden, "softmax": float(self.softmax)}


class AttentionScores(_Joined):
    """softmax over the steps t of q·h_t, [length], a sequence too; 0 where there is no step: DIEN's
    attention (Zhou et al., "Deep Interest Evolution Network for Click-Through Rate Prediction",
    2019, eq. 14), with ``item >> Dense(units, bias=False)`` for the query.

    Args:
        query: as wide as a key.
        keys: a sequence, such as what ``GRU`` gives.
    """

    NATIVE: ClassVar[str] = "attention_scores"
    LEAST: ClassVar[int] = 2

    def __init__(self, query: Node, keys: Node) -> None:
        super().__init__(query, keys)


class AttentionPool(_Joined):
    """Σ_t a_t k_t over the steps of a sequence, [dim]: DIN's eq. 3.

    Args:
        scores: of the keys' steps, by ``AttentionUnit`` or ``AttentionScores``.
        keys: a sequence.
    """

    NATIVE: ClassVar[str] = "attention_pool"
    LEAST: ClassVar[int] = 2

    def __init__(self, scores: Node, keys: Node) -> None:
        super().__init__(scores, keys)


@dataclass(frozen=True, eq=False, repr=False, init=False)
class GRU(_Sized):
    """A gated recurrent unit over a sequence; its states, [length · units], are one too (DIEN, eqs.
    2 to 5): u = σ(i W_u + h U_u + b_u), r = σ(i W_r + h U_r + b_r),
    c = tanh(i W_c + r ∘ (h U_c) + b_c), h' = (1 − u) ∘ h + u ∘ c, from h = 0 on. Parameters: W [dim,
    3 units], with W_u, W_r and W_c side by side, as ``"weight"``, likewise U [units, 3 units] as
    ``"recurrent"``, then b [3 units] as ``"bias"``.

    Args:
        sequence: an ``Embedding`` whose pooling is ``"sequence"``, or what is made of one.
        units: floats of a state.
    """

    NATIVE: ClassVar[str] = "gru"
    LEAST: ClassVar[int] = 1

    units: int

    def __init__(self, sequence: Node, units: int) -> None:
        super().__init__(sequence)
        object.__setattr__(self, "units", checks.size("units", units))


@dataclass(frozen=True, eq=False, repr=False, init=False)
class AUGRU(_Sized):
    """DIEN's GRU with attentional update gate (eqs. 15 and 16): as ``GRU``, with a_t u for u at step
    t. Its value is the last state, [units]; 0 of a sequence without steps. Parameters as ``GRU``.

    Args:
        sequence: as for ``GRU``.
        scores: the a_t of its steps, by ``AttentionScores`` or ``AttentionUnit``.
        units: floats of a state.
    """

    NATIVE: ClassVar[str] = "augru"
    LEAST: ClassVar[int] = 2

    units: int

    def __init__(self, sequence: Node, scores: Node, units: int) -> None:
        super().__init__(sequence, scores)
        object.__setattr__(self, "units", checks.size("units", units))


class Cross(_Joined):
    """A cross layer x₀ (x·w) + b + x (Wang et al., "Deep & Cross Network for Ad Click Predictions",
    2017, eq. 3). Parameters: w [width, 1], then b [width].

    Args:
        x0: what all cross layers of a model begin with.
        x: what the one before gave; ``x0`` for the first.
    """

    NATIVE: ClassVar[str] = "cross"
    LEAST: ClassVar[int] = 2

    def __init__(self, x0: Node, x: Node) -> None:
        super().__init__(x0, x)


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Applied(Node):
    """A layer of a node: ``node >> layer``."""

    layer: Layer
    inputs: tuple[Node, ...]

    def __init__(self, layer: Layer, node: Node) -> None:
        if not isinstance(layer, (Dense, *ACTIVATIONS, *OF_GRAPHS)):
            raise TypeError(
                "a layer of a graph must be Dense, ReLU, Tanh, Sigmoid, BatchNorm, DataNorm or "
                f"Dropout, got {layer!r}"
            )
        object.__setattr__(self, "layer", layer)
        object.__setattr__(self, "inputs", _nodes(type(layer).__name__, (node,), 1))

    def choice(self) -> Choice:
        return self.layer.choice()


def _ordered(output: Node) -> tuple[Node, ...]:
    """All nodes that ``output`` is made of, each after its inputs."""
    found: dict[Node, None] = {}
    waiting = [(output, iter(output.inputs))]
    while waiting:
        node, inputs = waiting[-1]
        following = next((i for i in inputs if i not in found), None)
        if following is None:
            found[node] = None
            waiting.pop()
        else:
            waiting.append((following, iter(following.inputs)))
    return tuple(found)


MadeBy: TypeAlias = (
    "Callable[[int, Sequence[int | None], int | tuple[str, ...], Mapping[int, int]], Graph]"
)


def _histories(names: Sequence[str], known: Mapping[str, Any]) -> dict[int, int]:
    """By the places of features, which of them is a history of which."""
    told = {name: getattr(known.get(name), "history_of", None) for name in names}
    return {names.index(name): names.index(of) for name, of in told.items() if of in told}


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """A model as a graph of nodes, and a loss on the values of the last one.

    Its parameters are those of its layers; rows of tables lie outside.

    Args:
        output: the node whose values are judged.
        loss: as for ``Model``.
        name: what plots and reports call it.
        l2: λ of the penalty λ/2 |w|² over all weights in the parameters that are no biases. It is
            part of what is minimised, not of the losses that are reported.
        made_by: what makes it for so many dense features, for ids below such bounds (None: any), for
            so many classes (0: numbers) or labels of these names, and for features that are histories of others, where its shape
            follows from the data. Default: it is as it is.

    Raises:
        TypeError: ``output`` is no node, or ``name`` no str.
        ValueError: the nodes do not fit each other; the message names the node by its index in
            ``nodes``. Two tables have one name. Of some embeddings the feature is given, of others
            not.
    """

    output: Node
    loss: str = "log_loss"
    name: str = "graph"
    l2: float = 0.0
    made_by: MadeBy | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.output, Node):
            raise TypeError(f"output must be a node, got {self.output!r}")
        if not isinstance(self.name, str):
            raise TypeError(f"name must be a str, got {self.name!r}")
        object.__setattr__(self, "l2", checks.real("l2", self.l2, 0.0, allow=True))
        _ = self.native, self.id_features

    def __repr__(self) -> str:
        tables = ", ".join(
            f"{one.name} [{'grows' if one.rows is None else f'{one.rows:,}'}, {one.dim}]"
            for one in self.tables[:_SHOWN]
        )
        more = f", … {len(self.tables)} of them" if len(self.tables) > _SHOWN else ""
        told = f", tables={tables}{more}" if tables else ""
        return (
            f"Graph({self.name}: {len(self.nodes)} nodes, d={self.dimension:,}, {self.features} numbers, "
            f"loss={self.loss}{told})"
        )

    def __getstate__(self) -> dict[str, object]:
        return {item.name: getattr(self, item.name) for item in fields(self)}  # no native parts

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Its nodes, each after its inputs."""
        return _ordered(self.output)

    @cached_property
    def embeddings(self) -> tuple[Embedding, ...]:
        """Its embeddings."""
        return tuple(node for node in self.nodes if isinstance(node, Embedding))

    @cached_property
    def readers(self) -> tuple[Embedding | Choosing, ...]:
        """Those of its nodes that read tables."""
        return tuple(node for node in self.nodes if isinstance(node, (Embedding, Choosing)))

    @cached_property
    def tables(self) -> tuple[TableSpec, ...]:
        """The tables that it reads."""
        return distinct(node.table for node in self.readers)

    @cached_property
    def id_features(self) -> tuple[int, ...]:
        """Of each node that reads a table, which feature of the data that is ids it takes."""
        given = [node.feature for node in self.readers]
        if all(feature is None for feature in given):
            return tuple(range(len(given)))
        if any(feature is None for feature in given):
            raise ValueError("feature must be given for all embeddings of a graph, or for none")
        return tuple(feature for feature in given if feature is not None)

    @cached_property
    def poolings(self) -> tuple[str | None, ...]:
        """Of each feature of ids as the core has them, how its rows are pooled; None: they are read."""
        found: list[str | None] = []
        for node in self.readers:
            pooling = node.pooling if isinstance(node, Embedding) else None
            found.append(None if pooling == "sequence" else pooling)
            if isinstance(node, SampledLogits):  # reads those that are drawn too
                found.append(None)
        return tuple(found)

    @cached_property
    def native(self) -> _core.Graph:
        """The native graph."""
        return self.native_at(None)

    def native_at(self, isa: str | None) -> _core.Graph:
        """The native graph of an instruction-set level; None: of the one in use."""
        index = {node: i for i, node in enumerate(self.nodes)}
        table_of = {table: i for i, table in enumerate(self.tables)}
        nodes = []
        for node in self.nodes:
            name, settings = node.choice()
            if isinstance(node, Embedding):
                settings = {"table": table_of[node.table], "pooling": (node.pooling, {})}
                if node.length is not None:
                    settings["length"] = node.length
            if isinstance(node, SampledLogits):
                settings = {
                    "table": table_of[node.table],
                    "negatives": node.negatives,
                    "below": node.table.rows or 0,
                    "sampling": (node.sampling, {}),
                    "corrects": node.correction,
                }
            if isinstance(node, InBatchSoftmax):
                settings = {
                    "table": table_of[node.table],
                    "below": node.table.rows or 0,
                    "frequencies": (node.frequencies, {}),
                }
            nodes.append((name, settings, [index[i] for i in node.inputs]))
        tables = [(table.name, table.dim) for table in self.tables]
        return _core.Graph(nodes, tables, isa, loss=self.loss, l2=self.l2)

    def shaped(self, data: object) -> Graph:
        """This model for the shape of a data set or a stream: itself where it does not follow from it.

        model = lsh.models.dlrm().shaped(rows)
        """
        if self.made_by is None:
            return self
        bounds: Sequence[int | None]
        histories: Mapping[int, int] = {}
        told: int | tuple[str, ...] = getattr(data, "heads", ()) or getattr(data, "classes", 0)
        if isinstance(data, Dataset):
            numbers, bounds = data.features, ()
        elif isinstance(data, ClickDataset):
            known = {} if data.schema is None else data.schema.ids
            bounds = [known[name].bound if name in known else None for name in data.names]
            numbers = data.numbers
            histories = _histories(data.names, known)
        elif isinstance(getattr(data, "bounds", None), tuple):
            numbers, bounds = data.numbers, data.bounds  # type: ignore[attr-defined]
            histories = _histories(data.names, data.schema)  # type: ignore[attr-defined]
        else:
            return self
        made = self.made_by(numbers, bounds, told, histories)
        shape = (self.features, self.tables, self.outputs)
        if (made.features, made.tables, made.outputs) == shape:
            return self
        loss = made.loss if self.target == "classes" or made.heads != self.heads else self.loss
        return replace(made, loss=loss, name=self.name, l2=self.l2, made_by=self.made_by)

    @property
    def histories(self) -> dict[int, int]:
        """Features that are read as sequences: of which feature, that has their table, each is a history."""
        shown = {
            one.table.name: feature
            for feature, one in zip(self.id_features, self.embeddings, strict=True)
            if one.pooling != "sequence"
        }
        return {
            feature: shown[one.table.name]
            for feature, one in zip(self.id_features, self.embeddings, strict=True)
            if one.pooling == "sequence" and one.table.name in shown
        }

    @property
    def target(self) -> TargetWord | None:
        """What rows are to give: ``"click"``, ``"number"``, or one of so many classes; ``"classes"``: of as
        many as the data have; the names of several labels. None: what was chosen, among others.
        """
        asked: TargetWord | None = getattr(self.made_by, "target", None)
        if asked == "classes":
            return asked
        if isinstance(self.output, Choosing):
            return None
        if self.heads:
            return asked if isinstance(asked, tuple) else heads_of(None, self.heads)
        if self.classes == 0:
            return "number"
        return "click" if self.outputs == 1 else self.classes

    @property
    def dimension(self) -> int:
        """d, the number of parameters; rows of tables are none."""
        return self.native.dimension

    @property
    def features(self) -> int:
        """Dense values per example."""
        return self.native.features

    @property
    def classes(self) -> int:
        """Number of classes; 0 with a loss of values, such as ``"squared_error"``, or several heads."""
        return self.native.classes

    @property
    def heads(self) -> int:
        """Labels of a row, where each output is of one of its own; else 0."""
        return _parameters.heads(self.native)

    @property
    def outputs(self) -> int:
        """Values of the last node."""
        return self.native.outputs

    @property
    def flops_per_example(self) -> float:
        """Floating-point operations of one example's forward and backward pass."""
        return self.native.flops_per_example

    @property
    def sparse(self) -> _core.SparseModel:
        """No native model of sparse rows.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"model {self.name} takes no sparse rows; a ClickDataset has ids")

    def rows(self, data: object, name: str = "data") -> _core.ClickRows:
        """The native rows of a data set, with the features that the graph reads.

        Raises:
            TypeError: it is no ``ClickDataset``.
            ValueError: it lacks a feature, has another number of numbers, or an id that is no row
                of its table.
        """
        if not self.readers:
            raise TypeError(
                f"model {self.name} reads no tables: {name} must be a Dataset, got "
                f"{type(data).__name__}"
            )
        specs = [node.table for node in self.readers]
        lengths = [getattr(node, "length", None) for node in self.readers]
        drawn = [
            (f + 1, node.negatives, node.table.rows or 0, node.sampling == "log_uniform")
            for f, node in enumerate(self.readers)
            if isinstance(node, SampledLogits)
        ]
        found = click_rows(data, name, self.features, specs, self.id_features, lengths, drawn)
        for node, feature in zip(self.readers, self.id_features, strict=True):
            assert isinstance(data, ClickDataset)
            if isinstance(node, Choosing) and data.has_bags(feature):
                raise ValueError(
                    f"{name}'s {data.names[feature]} must have one id a row, what was chosen; it has "
                    "bags"
                )
        return found

    def evaluate(
        self,
        parameters: ArrayLike,
        data: ClickDataset | Dataset,
        tables: Mapping[str, Table] | None = None,
        threads: int | None = None,
        statistics: ArrayLike | None = None,
    ) -> Evaluated:
        """Loss and metrics over a data set; no id gets a row, and nothing is counted. The loss is
        NaN where an output is NaN or infinite; a training ends as ``crashed`` there.

        Args:
            parameters: [d].
            data: examples; a ``Dataset`` where the model reads no tables.
            tables: by name, as ``TrainResult.tables``; none where it reads none.
            threads: at most. Default: all processors, where that is worth it.
            statistics: what a model with ``BatchNorm`` or ``DataNorm`` normalises by, float32 [s],
                as ``TrainResult.statistics``; other models take none.

        Raises:
            TypeError, ValueError: an argument is wrong or does not fit the model, or the data have
                other columns than the parameters were trained on, or in another order.
        """
        return Evaluated(*self._evaluate(parameters, data, tables, threads, statistics))

    def logits(
        self,
        parameters: ArrayLike,
        data: ClickDataset | Dataset,
        tables: Mapping[str, Table] | None = None,
        threads: int | None = None,
        statistics: ArrayLike | None = None,
    ) -> NDArray[np.float32]:
        """ln(p / (1 − p)) of each example, float32 [n], of a model of one output with the loss
        ``"log_loss"``: what ``leashed.metrics.ClickMetrics`` takes. Of several heads [n, heads].

        Args:
            parameters, data, tables, threads, statistics: as for ``evaluate``.

        Raises:
            TypeError, ValueError: as ``evaluate``; or the model gives no such logits.
        """
        if not self.native.gives_logits:
            raise ValueError(
                f"logits are of models of one output with the loss log_loss, or of several heads, which "
                f"{self.name} is not; predict() gives what it says"
            )
        found = np.empty((len(data), self.heads) if self.heads else len(data), np.float32)
        self._evaluate(parameters, data, tables, threads, statistics, found)
        return found

    def _evaluate(
        self,
        parameters: ArrayLike,
        data: ClickDataset | Dataset,
        tables: Mapping[str, Table] | None,
        threads: int | None,
        statistics: ArrayLike | None,
        logits: NDArray[np.float32] | None = None,
    ) -> tuple[float, float, float, float]:
        theta = checks.vector("parameters", parameters, self.dimension)
        native = check_tables(self.tables, {} if tables is None and not self.readers else tables)
        if threads is not None:
            threads = checks.whole("threads", threads)
        data = standardised(parameters, arranged(parameters, self, data, "data"))
        rows: _core.ClickRows | NDArray[np.float32]
        if isinstance(data, Dataset) and not self.readers:
            check_fits(self, data, "data")
            rows = data.x
        else:
            rows = self.rows(data)
            if self.heads or data.heads:
                check_labels(self, data, "data")
        check_columns(parameters, self, data, "data")
        by = self.running(statistics)
        to = None if logits is None else logits.reshape(-1)
        return self.native.evaluate_rows(theta, rows, data.y, native, data.weights, threads, by, to)

    def predict(
        self,
        parameters: ArrayLike,
        x: ClickDataset | Dataset | ArrayLike,
        tables: Mapping[str, Table] | None = None,
        statistics: ArrayLike | None = None,
    ) -> NDArray[np.float32]:
        """What the model gives for each example, float32 [n, outputs]: with ``"log_loss"`` and one
        output the probability of label 1.

        Args:
            parameters: [d].
            x: examples; a ``Dataset`` or [n, features] where the model reads no tables.
            tables: as for ``evaluate``.
            statistics: likewise.

        Raises:
            TypeError, ValueError: as ``evaluate``.
        """
        theta = checks.vector("parameters", parameters, self.dimension)
        native = check_tables(self.tables, {} if tables is None and not self.readers else tables)
        by = self.running(statistics)
        x = arranged(parameters, self, x, "x")
        if self.readers:
            rows = self.rows(standardised(parameters, x), "x")
        else:
            dense = examples(x.x if isinstance(x, Dataset) else x, self)
            rows = standardised(parameters, dense)
        check_columns(parameters, self, x, "x", rows if isinstance(rows, np.ndarray) else None)
        return self.native.predict_rows(theta, rows, native, by)

    @property
    def statistics(self) -> int:
        """s, the number of running means and variances; 0 without ``BatchNorm`` and ``DataNorm``."""
        return sum(block.size for block in self.native.statistics)

    def running(self, given: ArrayLike | None) -> NDArray[np.float32] | None:
        """What is normalised by, float32 [s], checked; None: nothing is.

        Raises:
            TypeError, ValueError: it is lacking, or none that fits.
        """
        if given is None and self.statistics:
            raise ValueError(
                f"statistics must be given, since model {self.name} normalises by running means: "
                "TrainResult.statistics, or leashed.load(path).statistics"
            )
        if given is None or (not self.statistics and not np.size(given)):
            return None
        return checks.vector("statistics", given, self.statistics)

    def init(self, seed: int = 0, scheme: str = "glorot") -> NDArray[np.float32]:
        """Initial parameters, float32 [d], as ``Model.init`` has them by that scheme."""
        untrained = [
            f"{i}.bias"
            for i, node in enumerate(self.nodes)
            if isinstance(node, Applied) and isinstance(node.layer, Dense) and not node.layer.bias
        ]
        norms = {
            f"{i}.{part}": 0.0 if part == "shift" and isinstance(node.layer, BatchNorm) else 1.0
            for i, node in enumerate(self.nodes)
            if isinstance(node, Applied) and isinstance(node.layer, NORMS)
            for part in ("scale", "shift")
        }
        return _parameters.initial(self.native, seed, scheme, untrained, norms)

    def unflatten(self, parameters: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Views of the nodes' parts of ``parameters`` [d], by name: ``"1.weight"``, ``"1.bias"``, …,
        the number being the node's index in ``nodes``.
        """
        return _parameters.unflatten(self.native, parameters)
