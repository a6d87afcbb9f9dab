"""Models of click-through rates, and of other targets over tables: a few dense features, many that are
ids, and of clicks and numbers one output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

from leashed.base import checks
from leashed.base.target import Asked, TargetWord, check_target, classes_of
from leashed.models.graphs import (
    AUGRU,
    FM,
    GRU,
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
from leashed.models.layers import BatchNorm, DataNorm, Dense, Dropout, ReLU

__all__ = ["dcn", "deepfm", "dien", "din", "dlrm", "ecommerce", "wide_deep", "youtube_dnn"]

Rows = int | Sequence[int | None] | None
Norm = BatchNorm | DataNorm


_DENSE, _CATEGORIES = 13, 26  # Criteo's
_RETRIEVAL = ("sampled_softmax", "bpr", "in_batch")


class _Shape(NamedTuple):
    """Dense features, and rows of each category's table."""

    dense: int
    counts: list[int | None]


def _shape(rows: Rows, dense: int | None, categories: int | None) -> _Shape:
    dense = checks.size("dense", _DENSE if dense is None else dense, 0)
    if rows is None or not isinstance(rows, Iterable):
        many = checks.size("categories", _CATEGORIES if categories is None else categories, 0)
        counts: list[int | None] = [rows] * many
    else:
        counts = list(rows)
        if not counts:
            raise ValueError("rows must name at least one table; categories=0 is without")
    if not dense and not counts:
        raise ValueError("dense and categories must not both be 0: there would be nothing to read")
    return _Shape(dense, counts)


class _Head(NamedTuple):
    """The last layer's outputs, and how they are judged."""

    outputs: int
    loss: str

    @classmethod
    def of(cls, target: Asked) -> _Head:
        """Of classes that the data are to tell two, until they do."""
        target = check_target(target)
        if target == "click":
            return cls(1, "log_loss")
        if isinstance(target, tuple):
            return cls(len(target), "binary_cross_entropy")
        classes = classes_of(target)
        return cls(1, "squared_error") if classes == 0 else cls(classes or 2, "softmax")


def _told(asked: TargetWord, by_data: int | tuple[str, ...]) -> TargetWord:
    """What rows are to give, of what was left to the data: how many classes, and whether a click is one
    label of several.
    """
    if isinstance(by_data, tuple):
        return by_data if asked == "click" else asked
    return (by_data or 2) if asked == "classes" else asked


@dataclass(frozen=True)
class _Open:
    """What makes a model for the data's shape, of which something was left open.

    Args:
        build: of rows, dense, categories and target.
        rows, dense, categories, target: as they were given.
    """

    build: Callable[..., Graph]
    rows: Rows
    dense: int | None
    categories: int | None
    target: TargetWord

    def __call__(
        self,
        numbers: int,
        bounds: Sequence[int | None],
        told: int | tuple[str, ...],
        histories: Mapping[int, int],  # noqa: ARG002  which are bags as others
    ) -> Graph:
        rows, dense = self.rows, numbers if self.dense is None else self.dense
        target = _told(self.target, told)
        if self.categories is None and (rows is None or not isinstance(rows, Iterable)):
            rows = [bound if rows is None else rows for bound in bounds]
            return self.build(rows or None, dense=dense, categories=len(bounds), target=target)
        return self.build(rows, dense=dense, categories=self.categories, target=target)


def _graph(
    output: Node,
    head: _Head,
    name: str,
    build: Callable[..., Graph],
    rows: Rows,
    dense: int | None,
    categories: int | None,
    target: Asked,
) -> Graph:
    checked = check_target(target)
    told = categories is not None or (rows is not None and isinstance(rows, Iterable))
    told = told and dense is not None and checked != "classes"
    made_by = None if told else _Open(build, rows, dense, categories, checked)
    return Graph(output, loss=head.loss, name=name, made_by=made_by)


def _input(shape: _Shape) -> list[Node]:
    """The dense features, if there are any."""
    return [Input(shape.dense)] if shape.dense else []


def _embeddings(counts: Sequence[int | None], dim: int, prefix: str) -> list[Embedding]:
    return [
        Embedding(TableSpec(f"{prefix}{i}", dim, count), feature=i)
        for i, count in enumerate(counts)
    ]


def _layers(node: Node, widths: Sequence[int], norm: Norm | None, dropout: float) -> Node:
    rate = checks.real("dropout", dropout, 0.0, allow=True)
    if rate >= 1:
        raise ValueError(f"dropout must be below 1, got {dropout!r}; 0 drops nothing")
    for width in widths:
        node = node >> Dense(width)
        if norm is not None:
            node = node >> norm
        node = node >> ReLU()
        if rate > 0:
            node = node >> Dropout(rate)
    return node


def dlrm(
    rows: Rows = None,
    dim: int = 16,
    dense: int | None = None,
    bottom: Sequence[int] | None = None,
    top: Sequence[int] = (64, 32),
    *,
    categories: int | None = None,
    target: Asked = "click",
    norm: Norm | None = None,
    dropout: float = 0.0,
    name: str = "dlrm",
) -> Graph:
    """DLRM (Naumov et al., "Deep Learning Recommendation Model for Personalization and
    Recommendation Systems", 2019): an MLP of the dense features, its dot products with the rows of
    all categories and theirs with each other, an MLP of both.

    Args:
        rows: of each category's table, ids being below it; one number for all of them; None: any id
            may come. By default a column of the data whose ids are known to be below some number has
            a table of so many.
        dim: floats of a row.
        dense: dense features; 0: none. Default: as many as the data have that it is trained on, for
            which ``leashed.train`` makes it anew (``result.model``), and until then Criteo's 13.
        bottom: widths of the MLP of the dense features, the last being ``dim``. Default: 64 and ``dim``.
        top: widths of the MLP behind the interaction, without the output's 1.
        categories: features that are ids, where ``rows`` does not tell. Default: as of ``dense``, 26.
        target: what rows are to give: a ``"click"``, 0 or 1, by one output with the loss ``log_loss``;
            a ``"number"``, by one with ``squared_error``; or one of so many classes, from 2, by a
            ``softmax`` over as many outputs. ``"classes"``: as many as the data have. The names of several
            labels, such as ``("clicked", "bought")``: each 0 or 1, by as many outputs (heads) with the
            loss ``binary_cross_entropy``; so is a click of data that have several labels, where the shape
            follows from data.
        norm: between each dense layer of the MLPs and its ReLU (extreme-scale-asgd, Algorithm 1).
            Default: nothing.
        dropout: share of values behind each ReLU of the MLPs that are 0 in training, as ``Dropout``
            has it; from 0 to below 1.
        name: what plots and reports call it.

    Raises:
        TypeError: a size is not a whole number.
        ValueError: a size is below 1, there is nothing to read, ``bottom`` does not end in ``dim``, or
            ``target`` is none.
    """
    bottom = (64, dim) if bottom is None else bottom
    if not bottom or bottom[-1] != dim:
        raise ValueError(f"bottom must end in dim, {dim}, got {tuple(bottom)}")
    shape = _shape(rows, dense, categories)
    vectors: list[Node] = [*_embeddings(shape.counts, dim, "c")]
    if shape.dense:
        vectors = [_layers(Input(shape.dense), bottom, norm, dropout), *vectors]
    # Without numbers, rows stand beside their products in place of what is made of these.
    beside = vectors[:1] if shape.dense else vectors
    joined = Concat(*beside, Dot(*vectors)) if len(vectors) > 1 else vectors[0]
    head = _Head.of(target)
    output = _layers(joined, top, norm, dropout) >> Dense(head.outputs)
    build = partial(dlrm, dim=dim, bottom=bottom, top=top, norm=norm, dropout=dropout, name=name)
    return _graph(output, head, name, build, rows, dense, categories, target)


def deepfm(
    rows: Rows = None,
    dim: int = 16,
    dense: int | None = None,
    hidden: Sequence[int] = (64, 32),
    *,
    categories: int | None = None,
    target: Asked = "click",
    norm: Norm | None = None,
    dropout: float = 0.0,
    name: str = "deepfm",
) -> Graph:
    """DeepFM (Guo et al., 2017): the sum of a linear model, a factorisation machine of the
    categories' rows, and an MLP of these and the dense features. Each category has two tables, one
    of ``dim`` and one of 1 float a row, for the linear model. Of several classes each has a linear model
    (whose rows have a float for each), and takes of the machine's sum as much as a layer says.

    Args:
        rows: as for ``dlrm``.
        dim: floats of a row.
        dense: as for ``dlrm``.
        hidden: widths of the MLP, without the output's 1.
        categories, target, norm, dropout: as for ``dlrm``.
        name: what plots and reports call it.

    Raises:
        TypeError, ValueError: a size is not a whole number from 1, or there is nothing to read.
    """
    shape = _shape(rows, dense, categories)
    x = _input(shape)
    embeddings = _embeddings(shape.counts, dim, "c")
    head = _Head.of(target)
    linear = _linear(x, shape.counts, head)
    deep = _layers(Concat(*x, *embeddings), hidden, norm, dropout) >> Dense(head.outputs)
    crossed: list[Node] = [FM(*embeddings)] if len(embeddings) > 1 else []
    if head.outputs > 1:
        crossed = [node >> Dense(head.outputs) for node in crossed]
    build = partial(deepfm, dim=dim, hidden=hidden, norm=norm, dropout=dropout, name=name)
    output = Sum(linear, *crossed, deep)
    return _graph(output, head, name, build, rows, dense, categories, target)


def _linear(x: Sequence[Node], counts: Sequence[int | None], head: _Head) -> Node:
    """A linear model of the dense features and of rows of their own."""
    wide = _embeddings(counts, head.outputs, "w")
    return Sum(*(node >> Dense(head.outputs) for node in x), *wide)


def wide_deep(
    rows: Rows = None,
    dim: int = 16,
    dense: int | None = None,
    hidden: Sequence[int] = (64, 32),
    *,
    categories: int | None = None,
    target: Asked = "click",
    norm: Norm | None = None,
    dropout: float = 0.0,
    name: str = "wide_deep",
) -> Graph:
    """Wide & Deep (Cheng et al., 2016): the sum of a linear model and an MLP. Each category has two
    tables, one of ``dim`` and one of 1 float a row, for the linear model, of several classes of as many.
    Arguments as for ``deepfm``.
    """
    shape = _shape(rows, dense, categories)
    x = _input(shape)
    head = _Head.of(target)
    wide = _linear(x, shape.counts, head)
    joined = Concat(*x, *_embeddings(shape.counts, dim, "c"))
    deep = _layers(joined, hidden, norm, dropout) >> Dense(head.outputs)
    build = partial(wide_deep, dim=dim, hidden=hidden, norm=norm, dropout=dropout, name=name)
    return _graph(Sum(wide, deep), head, name, build, rows, dense, categories, target)


def dcn(
    rows: Rows = None,
    dim: int = 16,
    dense: int | None = None,
    cross: int = 3,
    hidden: Sequence[int] = (64, 32),
    *,
    weights: Literal["vector", "matrix"] = "vector",
    categories: int | None = None,
    target: Asked = "click",
    norm: Norm | None = None,
    dropout: float = 0.0,
    name: str = "dcn",
) -> Graph:
    """Deep & Cross Network (Wang et al., 2017): cross layers and an MLP, both of the dense features
    and the categories' rows side by side, and a linear layer of what both give.

    Args:
        rows: as for ``dlrm``.
        dim: floats of a row.
        dense: as for ``dlrm``.
        cross: number of cross layers.
        hidden: widths of the MLP, at least one.
        weights: of a cross layer: a ``"vector"`` w, x₀ (x·w) + b + x, or as in DCN-V2 (Wang et al.,
            2021, eq. 1) a ``"matrix"`` W, x₀ ⊙ (W x + b) + x, with as many parameters as it has
            entries.
        categories, target, norm, dropout: as for ``dlrm``.
        name: what plots and reports call it.

    Raises:
        TypeError, ValueError: a size is not a whole number from 1, or ``weights`` no such word.
    """
    if not hidden:
        raise ValueError("hidden must have at least one width")
    if weights not in ("vector", "matrix"):
        raise ValueError(f'weights must be "vector" or "matrix", got {weights!r}')
    shape = _shape(rows, dense, categories)
    x0 = Concat(*_input(shape), *_embeddings(shape.counts, dim, "c"))
    width = shape.dense + dim * len(shape.counts)
    x: Node = x0
    for _ in range(checks.size("cross", cross)):
        x = Cross(x0, x) if weights == "vector" else Sum(Product(x0, x >> Dense(width)), x)
    head = _Head.of(target)
    output = Concat(x, _layers(x0, hidden, norm, dropout)) >> Dense(head.outputs)
    build = partial(
        dcn,
        dim=dim,
        cross=cross,
        hidden=hidden,
        weights=weights,
        norm=norm,
        dropout=dropout,
        name=name,
    )
    return _graph(output, head, name, build, rows, dense, categories, target)


def youtube_dnn(
    items: int,
    dim: int = 32,
    hidden: Sequence[int] = (64,),
    dense: int = 0,
    *,
    history: int = 0,
    chosen: int = 1,
    negatives: int = 100,
    sampling: str = "log_uniform",
    shared: bool = False,
    loss: Literal["sampled_softmax", "bpr", "in_batch"] = "sampled_softmax",
    norm: Norm | None = None,
    dropout: float = 0.0,
    name: str = "youtube_dnn",
) -> Graph:
    """YouTubeDNN, its candidate generation (Covington et al., "Deep Neural Networks for YouTube
    Recommendations", 2016; trained in gba, section 5): the mean of the rows of what a user chose
    before, and dense features if there are any, through an MLP, whose last ReLU gives the user's
    vector u; what was chosen next by u · row of all items, trained on sampled ones.
    ``datasets.next_items`` makes its data; ``retrieval`` finds the k best of all items, and
    evaluates over them all.

    Args:
        items: their number; ids are below it, by falling frequency where ``sampling`` is
            ``"log_uniform"``.
        dim: floats of an item's rows, and of the user's vector.
        hidden: widths of the MLP before that.
        dense: dense features.
        history: which feature of the data that is ids has what was chosen before.
        chosen: which has what was chosen.
        negatives, sampling: as for ``SampledLogits``.
        shared: whether the table of the history, ``items``, is that of what is chosen too, instead of
            one of its own, ``choices``.
        loss: ``"sampled_softmax"``; or ``"bpr"``, Bayesian personalised ranking (Rendle et al.,
            2009): that what was chosen is above each of what is drawn; or ``"in_batch"``, a softmax
            over what the batch's examples chose (``InBatchSoftmax``), for which ``sampling`` says how
            often items are chosen, and nothing is drawn.
        norm, dropout: as for ``dlrm``; nothing of the user's vector is dropped.
        name: what plots and reports call it.

    Raises:
        TypeError, ValueError: a size is not a whole number from 1, or ``sampling`` or ``loss`` no
            such word.
    """
    if loss not in _RETRIEVAL:
        raise ValueError(f"loss must be one of {', '.join(_RETRIEVAL)}, got {loss!r}")
    table = TableSpec("items", dim, items)
    seen: Node = Embedding(table, "mean", feature=history)
    if dense:
        seen = Concat(Input(dense), seen)
    choices = table if shared else TableSpec("choices", dim, items)
    user = _layers(_layers(seen, hidden, norm, dropout), (dim,), norm, 0.0)
    output: Node
    if loss == "in_batch":
        output = InBatchSoftmax(user, choices, sampling, feature=chosen)
    else:
        output = SampledLogits(user, choices, negatives, sampling, chosen, correction=loss != "bpr")
    return Graph(output, loss=loss, name=name)


class _Shown(NamedTuple):
    """What the models of histories read: ids of what is shown, of the user and of whatever else, and
    what the user chose before, from the oldest on, by the tables of what is shown.

    Attributes:
        others: of what is not shown.
        item: what is shown.
        history: a sequence of such.
        single: of each feature that is no history, its table's name and rows.
    """

    others: list[Node]
    item: Node
    history: Node
    single: dict[int, tuple[str, int | None]]

    @classmethod
    def of(
        cls,
        tables: Mapping[int, tuple[str, int | None]],
        histories: Mapping[int, int],
        dim: int,
        longest: int,
    ) -> _Shown:
        """By feature: the table of each that is no history, and of what each other one is a history."""
        specs = {feature: TableSpec(name, dim, rows) for feature, (name, rows) in tables.items()}
        shown = {of: feature for feature, of in histories.items()}
        others = [Embedding(spec, feature=i) for i, spec in specs.items() if i not in shown]
        item = [Embedding(specs[i], feature=i) for i in shown]
        seen = [Embedding(specs[i], "sequence", longest, feature=f) for i, f in shown.items()]
        return cls([*others], Concat(*item), Zip(*seen), dict(tables))


_LAYOUT = {
    3: 1,
    4: 2,
}  # of datasets.synthetic_histories: items and categories, of user, item, category


@dataclass(frozen=True)
class _Attending:
    """What makes a model of histories for the data's shape.

    Args:
        build: of what it reads, dense features and target.
        dim, longest, dense, target, name: as they were given.
    """

    build: Callable[[_Shown, int, TargetWord], Graph]
    dim: int
    longest: int
    dense: int | None
    target: TargetWord
    name: str

    def __call__(
        self,
        numbers: int,
        bounds: Sequence[int | None],
        told: int | tuple[str, ...],
        histories: Mapping[int, int],
    ) -> Graph:
        dense = numbers if self.dense is None else self.dense
        target = _told(self.target, told)
        if histories:
            tables = {i: (f"c{i}", rows) for i, rows in enumerate(bounds) if i not in histories}
            return self.build(_Shown.of(tables, histories, self.dim, self.longest), dense, target)
        if len(bounds) != len(_LAYOUT) + 3:
            raise ValueError(
                f"model {self.name} attends to what was chosen before, and no column of the data is that; "
                'give a schema whose column of such ids has history_of, as {"kind": "id", "between": " ", '
                '"history_of": "item"}'
            )
        return self.layout(None, None, None, dense, target)

    def layout(
        self,
        users: int | None,
        items: int | None,
        categories: int | None,
        dense: int,
        target: TargetWord,
    ) -> Graph:
        """For the features of ``datasets.synthetic_histories``."""
        tables = {0: ("users", users), 1: ("items", items), 2: ("categories", categories)}
        return self.build(_Shown.of(tables, _LAYOUT, self.dim, self.longest), dense, target)


def _attending(
    make: _Attending, users: int | None, items: int | None, categories: int | None
) -> Graph:
    dense = 1 if make.dense is None else checks.size("dense", make.dense, 0)
    is_open = users is items is categories is None
    if not is_open and make.target == "classes":
        raise ValueError("target must be how many classes there are, got 'classes'")
    model = make.layout(users, items, categories, dense, make.target)
    return replace(model, made_by=make) if is_open else model


def _beside(dense: int) -> list[Node]:
    return [Input(dense)] if dense else []


def din(
    users: int | None = None,
    items: int | None = None,
    categories: int | None = None,
    dim: int = 16,
    dense: int | None = None,
    attention: Sequence[int] = (80, 40),
    hidden: Sequence[int] = (200, 80),
    *,
    longest: int = 20,
    softmax: bool = False,
    target: Asked = "click",
    norm: Norm | None = None,
    dropout: float = 0.0,
    name: str = "din",
) -> Graph:
    """Deep Interest Network (Zhou et al., 2018): an MLP of the user, the item that is shown, and the
    user's history pooled by what each item of it means for the one shown (``AttentionUnit``).

    Reads what a schema says (``stream.Id(history_of="item")``): what is shown are the columns that
    have a history, and the user whatever else is an id. Of data that say nothing it reads the features
    of ``datasets.synthetic_histories``, in its order: user, item, category, the history's items and
    their categories. A history shares its table with what is shown. (The paper's MLPs have PReLU or
    Dice where these have ReLU, and mini-batch aware regularisation.)

    Args:
        users: rows of the users' table, ids being below it; None: any id may come. Where one of the
            three is given, the features are those of ``datasets.synthetic_histories``.
        items: likewise.
        categories: likewise.
        dim: floats of a row; an item with its category has twice as many.
        dense: dense features; 0: none. Default: as many as the data have, and until then 1.
        attention: widths of the attention unit's MLP, without its 1.
        hidden: widths of the MLP, without the output's 1.
        longest: items of a history that are read, its first ones.
        softmax: whether the scores of a history are normalised; the paper's are not.
        target: as for ``dlrm``; classes as a number, where ``users``, ``items`` or ``categories`` is given.
        norm, dropout: as for ``dlrm``.
        name: what plots and reports call it.

    Raises:
        TypeError, ValueError: a size is not a whole number from 1, or ``attention`` is empty.
    """
    build = partial(
        _din,
        attention=attention,
        hidden=hidden,
        softmax=softmax,
        norm=norm,
        dropout=dropout,
        name=name,
    )
    make = _Attending(build, dim, longest, dense, check_target(target), name)
    return _attending(make, users, items, categories)


def _din(
    read: _Shown,
    dense: int,
    target: TargetWord,
    *,
    attention: Sequence[int],
    hidden: Sequence[int],
    softmax: bool,
    norm: Norm | None,
    dropout: float,
    name: str,
) -> Graph:
    scores = AttentionUnit(read.item, read.history, attention, softmax)
    interest = AttentionPool(scores, read.history)
    joined = Concat(*_beside(dense), *read.others, read.item, interest)
    head = _Head.of(target)
    return Graph(
        _layers(joined, hidden, norm, dropout) >> Dense(head.outputs), loss=head.loss, name=name
    )


def dien(
    users: int | None = None,
    items: int | None = None,
    categories: int | None = None,
    dim: int = 16,
    dense: int | None = None,
    units: int | None = None,
    hidden: Sequence[int] = (200, 80),
    *,
    longest: int = 20,
    target: Asked = "click",
    norm: Norm | None = None,
    dropout: float = 0.0,
    name: str = "dien",
) -> Graph:
    """Deep Interest Evolution Network (Zhou et al., 2019): interests along the user's history by a
    ``GRU``, what they mean for the item shown by ``AttentionScores``, how those that matter evolve
    by an ``AUGRU``, and an MLP of its last state, the user and the item shown. The paper's auxiliary
    loss, which asks each state for the next item, is left out: a graph has one loss, of its last
    node.

    Args:
        users, items, categories, dim, dense, hidden, longest, target, norm, dropout, name: as for ``din``,
            with its features.
        units: floats of a state. Default: 2 ``dim``, as the paper has it.

    Raises:
        TypeError, ValueError: a size is not a whole number from 1.
    """
    units = 2 * dim if units is None else units
    build = partial(_dien, units=units, hidden=hidden, norm=norm, dropout=dropout, name=name)
    make = _Attending(build, dim, longest, dense, check_target(target), name)
    return _attending(make, users, items, categories)


def _dien(
    read: _Shown,
    dense: int,
    target: TargetWord,
    *,
    units: int,
    hidden: Sequence[int],
    norm: Norm | None,
    dropout: float,
    name: str,
) -> Graph:
    states = GRU(read.history, units)
    scores = AttentionScores(read.item >> Dense(units, bias=False), states)
    joined = Concat(*_beside(dense), *read.others, read.item, AUGRU(states, scores, units))
    head = _Head.of(target)
    return Graph(
        _layers(joined, hidden, norm, dropout) >> Dense(head.outputs), loss=head.loss, name=name
    )


def ecommerce(
    users: int | None = None,
    items: int | None = None,
    categories: int | None = None,
    dim: int = 16,
    dense: int | None = None,
    attention: Sequence[int] = (80, 40),
    hidden: Sequence[int] = (200, 80),
    *,
    longest: int = 20,
    target: Asked = "click",
    norm: Norm | None = None,
    dropout: float = 0.0,
    name: str = "ecommerce",
) -> Graph:
    """The e-commerce model of extreme-scale-asgd ("Experiments"), Wide & Deep "in which attention
    mechanism is applied", as far as its one sentence tells: the sum of a linear model of the user,
    the item and its category, and of an MLP of these and of the user's history, pooled by attention
    whose scores are normalised. Arguments and features as for ``din``; for the linear model each
    table has a second one of 1 float a row.
    """
    build = partial(
        _ecommerce, attention=attention, hidden=hidden, norm=norm, dropout=dropout, name=name
    )
    make = _Attending(build, dim, longest, dense, check_target(target), name)
    return _attending(make, users, items, categories)


def _ecommerce(
    read: _Shown,
    dense: int,
    target: TargetWord,
    *,
    attention: Sequence[int],
    hidden: Sequence[int],
    norm: Norm | None,
    dropout: float,
    name: str,
) -> Graph:
    x = _beside(dense)
    head = _Head.of(target)
    wide = [
        Embedding(TableSpec(f"wide_{table}", head.outputs, rows), feature=i)
        for i, (table, rows) in read.single.items()
    ]
    scores = AttentionUnit(read.item, read.history, attention, softmax=True)
    joined = Concat(*x, *read.others, read.item, AttentionPool(scores, read.history))
    deep = _layers(joined, hidden, norm, dropout) >> Dense(head.outputs)
    linear = [node >> Dense(head.outputs) for node in x]
    return Graph(Sum(*linear, *wide, deep), loss=head.loss, name=name)
