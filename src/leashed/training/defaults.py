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

from leashed.datasets.clicks import ClickDataset
from leashed.models.graphs import Graph
from leashed.rules import SGD, Adagrad
from leashed.stopping import Until

__all__ = [
    "BATCH_SIZE",
    "LEAST_UPDATES",
    "MAX_SEED",
    "MAX_THREADS",
    "OFTEN",
    "RATES",
    "batch_size",
    "end",
    "init",
    "is_of_clicks",
    "often",
    "rule",
]

BATCH_SIZE = 64
LEAST_UPDATES = 2000
OFTEN = 10
RATES = {True: 0.04, False: 0.01, None: 0.02}  # where ids come often, seldom, nobody knows
MAX_THREADS = 1024
MAX_SEED = 2**63 - 1


def is_of_clicks(model: object) -> bool:
    """Whether it is a graph over tables, or could be one over tables of other data, that tells of a row
    whether it is clicked, or another target than which of all items comes next.
    """
    if not isinstance(model, Graph) or not (model.tables or model.made_by):
        return False
    return model.target is not None


def often(model: object, data: object) -> bool | None:
    """Whether there are ``OFTEN`` rows for each id that a model of clicks reads; None: nobody can count
    them, since the data are a stream, or the model is another.
    """
    if not (isinstance(data, ClickDataset) and is_of_clicks(model)):
        return None
    assert isinstance(model, Graph)
    return _come_often(data, model.id_features)


def rule(*, of_clicks: bool, often: bool | None = None) -> SGD | Adagrad:
    """Of models of clicks whose ids come ``often`` or not, and of others."""
    return Adagrad(RATES[often]) if of_clicks else SGD(0.05)


def init(model: object) -> str:
    """By what the parameters begin: of graphs √(2/(fan-in + fan-out)), as DLRM's authors have it. By
    √(2/fan-in) a few numbers through a wide layer would be as loud as all of the rows.
    """
    return "glorot" if isinstance(model, Graph) else "he"


def end(model: object, until: Until | None, data: object = None) -> Until | None:
    """Of models of clicks that are told none one pass, or two over data in memory whose ids come often.
    Other models are to be told.
    """
    if until is not None or not is_of_clicks(model):
        return until
    return Until(epochs=2 if often(model, data) else 1)


def _come_often(data: ClickDataset, features: Iterable[int]) -> bool:
    """Whether there are ``OFTEN`` rows for each id of these features; counted no farther than it takes
    to know.
    """
    left = len(data) // OFTEN
    for feature in dict.fromkeys(features):
        left -= data.distinct(feature)
        if left < 0:
            return False
    return True


def batch_size(model: object, examples: int, until: Until | None) -> int:
    """Where neither it nor the end is told, of models of clicks so small that the pass makes
    ``LEAST_UPDATES``, unless the model normalises by what is in a batch, or the data are a stream,
    whose rows nobody has counted (0 examples). Data may have fewer examples than it.
    """
    if until is not None or not is_of_clicks(model) or not examples:
        return BATCH_SIZE
    assert isinstance(model, Graph)
    return BATCH_SIZE if model.statistics else min(BATCH_SIZE, max(1, examples // LEAST_UPDATES))
