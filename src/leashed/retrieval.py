"""The best of all items for each user, by a model that was trained on sampled ones.

Training judges what was chosen against some negatives, and so do ``Graph.evaluate`` and the loss that
the monitor tells (of negatives that are drawn for each 256 examples). Here every item counts: logits
are u · row, without a correction, since nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed.base import checks
from leashed.datasets import ClickDataset
from leashed.models._columns import arranged, check_columns
from leashed.models.graphs import Choosing, Graph
from leashed.models.tables import Table

__all__ = ["Retrieved", "evaluate", "retrieve", "user_vectors"]

_LOGITS = 2**24  # at most so many at a time


class Retrieved(NamedTuple):
    """How what was chosen stands among all items.

    Attributes:
        loss: mean of −log softmax over all items, of what was chosen.
        hit_rate: share of examples whose chosen item is among the k with the largest logits.
        rank: mean number of other items whose logit is not smaller.
    """

    loss: float
    hit_rate: float
    rank: float


def user_vectors(
    model: Graph,
    parameters: ArrayLike,
    data: ClickDataset,
    tables: Mapping[str, Table],
    statistics: ArrayLike | None = None,
) -> NDArray[np.float32]:
    """The vectors u of ``SampledLogits`` or ``InBatchSoftmax``, float32 [n, dim].

    Args:
        model: its output is one of these, as of ``models.youtube_dnn``.
        parameters: [d].
        data: examples.
        tables: by name, as ``TrainResult.tables``.
        statistics: as ``TrainResult.statistics``, of a model that normalises.

    Raises:
        TypeError, ValueError: an argument is wrong or does not fit the model.
    """
    # Its outputs are not judged: "hinge" gives them as they are.
    users = Graph(items_of(model).user, loss="hinge", name=model.name)
    own = {table.name: tables[table.name] for table in users.tables if table.name in tables}
    return users.predict(parameters, data, own, statistics)


def retrieve(
    model: Graph,
    parameters: ArrayLike,
    data: ClickDataset,
    tables: Mapping[str, Table],
    k: int = 10,
    statistics: ArrayLike | None = None,
) -> NDArray[np.int64]:
    """The k items with the largest logits for each example, the largest first, int64 [n, k].

    Args:
        k: from 1 to the number of items.
        model, parameters, data, tables, statistics: as for ``user_vectors``.

    Raises:
        TypeError, ValueError: an argument is wrong or does not fit the model.
    """
    items = items_of(model).table.rows
    assert items is not None
    k = checks.whole("k", k, 1, items)
    best = []
    for _, logits in _logits(model, parameters, data, tables, statistics):
        found = np.argpartition(-logits, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(logits, found, 1), axis=1, kind="stable")
        best.append(np.take_along_axis(found, order, 1))
    return np.concatenate(best).astype(np.int64)


def evaluate(
    model: Graph,
    parameters: ArrayLike,
    data: ClickDataset,
    tables: Mapping[str, Table],
    k: int = 10,
    statistics: ArrayLike | None = None,
) -> Retrieved:
    """The loss of the softmax over all items, and how what was chosen ranks among them.

    Arguments and errors as for ``retrieve``.
    """
    node = items_of(model)
    assert node.table.rows is not None
    k = checks.whole("k", k, 1, node.table.rows)
    feature = model.id_features[model.readers.index(node)]
    data = arranged(parameters, model, data, "data")
    model.rows(data)  # for its errors, as the next
    check_columns(parameters, model, data, "data")
    column = data.ids[feature] if isinstance(data.ids, tuple) else data.ids[:, feature]
    assert isinstance(column, np.ndarray)
    losses, ranks = [], []
    for first, logits in _logits(model, parameters, data, tables, statistics):
        chosen = np.asarray(column[first : first + len(logits)], np.int64)
        own = np.take_along_axis(logits, chosen[:, None], 1)
        top = logits.max(1, keepdims=True)
        total = np.exp((logits - top).astype(np.float64)).sum(1)
        losses.append(np.log(total) - (own - top)[:, 0])
        ranks.append((~(logits < own)).sum(1) - 1)  # ties and NaN speak against the model
    rank = np.concatenate(ranks)
    return Retrieved(
        float(np.concatenate(losses).mean()), float((rank < k).mean()), float(rank.mean())
    )


def items_of(model: Graph) -> Choosing:
    """The node that judges items. TypeError where the model has none."""
    if not isinstance(model, Graph) or not isinstance(model.output, Choosing):
        raise TypeError(
            f"model must be a graph whose output is SampledLogits or InBatchSoftmax, such as "
            f"models.youtube_dnn, got {model!r}"
        )
    return model.output


def _logits(
    model: Graph,
    parameters: ArrayLike,
    data: ClickDataset,
    tables: Mapping[str, Table],
    statistics: ArrayLike | None,
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """The number of an example, and the logits of all items for it and some that follow."""
    table = items_of(model).table
    if table.name not in tables:
        raise ValueError(f"tables must have {table.name}")
    users = user_vectors(model, parameters, data, tables, statistics)
    assert table.rows is not None
    rows = tables[table.name].lookup(np.arange(table.rows)).T
    part = max(1, _LOGITS // table.rows)
    for first in range(0, len(users), part):
        yield first, users[first : first + part] @ rows
