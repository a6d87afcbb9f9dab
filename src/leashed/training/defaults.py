"""The rule, the batches and the end of a training that is told none.

Models of clicks have their own. Most of their ids come seldom: by SGD's one step for all, a row that
comes ten times has hardly moved when one that comes a thousand times has moved enough; Adagrad's
steps are each row's own. And they see their rows once: in a second pass they learn them by heart, and
predict others worse than the share of clicks alone does. So where rows are few it is batches that
are smaller, for enough updates.
"""

from __future__ import annotations

from leashed.models.graphs import Graph
from leashed.rules import SGD, Adagrad
from leashed.stopping import Until

__all__ = ["BATCH_SIZE", "LEAST_UPDATES", "batches_and_end", "is_of_clicks", "rule"]

BATCH_SIZE = 64
LEAST_UPDATES = 2000


def is_of_clicks(model: object) -> bool:
    """Whether it is a graph over tables that gives one logit of a click."""
    if not isinstance(model, Graph) or not model.tables:
        return False
    return model.loss == "log_loss" and model.outputs == 1


def rule(*, of_clicks: bool) -> SGD | Adagrad:
    """Of models of clicks, and of others."""
    return Adagrad(0.02) if of_clicks else SGD(0.05)


def batches_and_end(
    model: object, examples: int, batch_size: int | None, until: Until | None
) -> tuple[int, Until | None]:
    """What is None of the size of batches and the end. Of models of clicks that is one pass, and where
    neither is told batches so small that it makes ``LEAST_UPDATES``, unless the model normalises by
    what is in a batch, or the data are a stream, whose rows nobody has counted (0 examples). Other
    models are to be told when to end.
    """
    if until is not None or not is_of_clicks(model):
        return BATCH_SIZE if batch_size is None else batch_size, until
    if batch_size is None:
        assert isinstance(model, Graph)
        most = examples if model.statistics else examples // LEAST_UPDATES
        batch_size = min(BATCH_SIZE, max(1, most)) if examples else BATCH_SIZE
    return batch_size, Until(epochs=1)
