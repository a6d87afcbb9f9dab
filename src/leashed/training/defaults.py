"""The rule, the batches, the beginning and the end of a training that is told none; and how much it
may be told.

Models of clicks have their own. Most of their ids come seldom: by SGD's one step for all, a row that
comes ten times has hardly moved when one that comes a thousand times has moved enough; Adagrad's
steps are each row's own. And they see their rows once: in a second pass they learn them by heart, and
predict others worse than the share of clicks alone does. So where rows are few it is batches that
are smaller, for enough updates, and steps: halved they lose nothing, and learn less of a thousand rows by
heart. Where each id comes often there is nothing to learn by heart, and a second pass and longer steps
are worth more than anything else that could be told (docs/defaults.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from leashed.datasets.clicks import ClickDataset
from leashed.models.graphs import Graph
from leashed.rules import SGD, Adagrad
from leashed.stopping import Until
from leashed.stream import Stream

__all__ = [
    "BATCH_SIZE",
    "LEAST_UPDATES",
    "LOOKED_AT",
    "MAX_SEED",
    "MAX_THREADS",
    "OFTEN",
    "RATES",
    "Seen",
    "batch_size",
    "end",
    "init",
    "is_of_clicks",
    "rule",
    "seen",
]

BATCH_SIZE = 64
LEAST_UPDATES = 2000
OFTEN = 10
RATES = {True: 0.04, False: 0.01, None: 0.02}  # where ids come often, seldom, nobody knows
LOOKED_AT = 1 << 20
MAX_THREADS = 1024
MAX_SEED = 2**63 - 1


def is_of_clicks(model: object) -> bool:
    """Whether it is a graph over tables, or could be one over tables of other data, that tells of a row
    whether it is clicked, or another target than which of all items comes next.
    """
    if not isinstance(model, Graph) or not (model.tables or model.made_by):
        return False
    return model.target is not None


def rule(*, of_clicks: bool, often: bool | None = None) -> SGD | Adagrad:
    """Of models of clicks whose ids come ``often`` or not, and of others."""
    return Adagrad(RATES[often]) if of_clicks else SGD(0.05)


def init(model: object) -> str:
    """By what the parameters begin: of graphs √(2/(fan-in + fan-out)), as DLRM's authors have it. By
    √(2/fan-in) a few numbers through a wide layer would be as loud as all of the rows.
    """
    return "glorot" if isinstance(model, Graph) else "he"


class Seen(NamedTuple):
    """What is known of data before they are trained on.

    Attributes:
        rows: how many there are; 0: nobody has counted.
        often: whether there are ``OFTEN`` of them for each id that a model of clicks reads; None: nobody has
            counted, or it is another model.
    """

    rows: int = 0
    often: bool | None = None


def seen(model: object, data: object, examples: int = 0) -> Seen:
    """What defaults follow from, of so many examples in memory. A stream that can be read again is looked
    at up to ``LOOKED_AT`` rows: of more nothing is known.
    """
    if not is_of_clicks(model):
        return Seen(examples)
    assert isinstance(model, Graph)
    features = tuple(dict.fromkeys(model.id_features))
    data = getattr(data, "source", data)  # of rows that others send
    if isinstance(data, Stream) and data.repeatable:
        return _look(data, features)
    return Seen(examples, _come_often(data, features) if isinstance(data, ClickDataset) else None)


def end(model: object, until: Until | None, often: bool | None = None) -> Until | None:
    """Of models of clicks that are told none one pass, or two over data whose ids come often. Other models
    are to be told.
    """
    if until is not None or not is_of_clicks(model):
        return until
    return Until(epochs=2 if often else 1)


def _come_often(data: ClickDataset, features: Iterable[int]) -> bool:
    """Counted no farther than it takes to know."""
    left = len(data) // OFTEN
    for feature in features:
        left -= data.distinct(feature)
        if left < 0:
            return False
    return True


def _look(stream: Stream, features: Iterable[int]) -> Seen:
    ids = {feature: np.empty(0, np.uint64) for feature in features}
    rows = distinct = 0
    try:
        for part in stream.parts():
            rows += len(part)
            if rows > LOOKED_AT:
                return Seen()
            if distinct > LOOKED_AT // OFTEN or not isinstance(part, ClickDataset):
                continue
            for feature, known in ids.items():
                ids[feature] = np.union1d(known, part.ids_of(feature))
            distinct = sum(map(len, ids.values()))
    except (OSError, ValueError):  # which whoever trains is told
        return Seen()
    return Seen(rows, distinct <= rows // OFTEN if stream.features else None)


def batch_size(model: object, until: Until | None, rows: int) -> int:
    """Where neither it nor the end is told, of models of clicks so small that the pass makes
    ``LEAST_UPDATES``, unless the model normalises by what is in a batch, or nobody knows how many rows
    there are (0). Data may have fewer examples than it.
    """
    if until is not None or not is_of_clicks(model) or not rows:
        return BATCH_SIZE
    assert isinstance(model, Graph)
    return BATCH_SIZE if model.statistics else min(BATCH_SIZE, max(1, rows // LEAST_UPDATES))
