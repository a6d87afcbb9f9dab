"""Numbers of models of clicks, standardised by what the rows before came to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from leashed.datasets import Dataset, SparseDataset
from leashed.datasets.columns import Columns
from leashed.datasets.moments import Moments
from leashed.models._columns import columns_of
from leashed.models.graphs import Graph
from leashed.training.recordings import AnyModel
from leashed.training.sets import Clicks, Set, Streamed

__all__ = ["known", "standardised", "unread"]


def unread(model: AnyModel, columns: Columns) -> Moments | None:
    """What a training begins with, on data of these columns; None: their numbers stay as they are, as
    those of arrays do.
    """
    if not isinstance(model, Graph) or columns.schema is None:
        return None
    of = dict(zip(columns.schema.numbers, columns.schema.standard, strict=True))
    which = [of.get(name, False) for name in columns.numbers or ()]
    return Moments.none(which) if any(which) else None


def known(
    model: AnyModel, data: Any, begun: Moments | None = None, all_rows: Moments | None = None
) -> Columns:
    """What a training on these data, in memory, knows of their columns, whose numbers came to ``begun``
    before, None: from the beginning; or on a stream, whose numbers come to ``all_rows``.
    """
    columns = columns_of(model, data)
    if (moments := unread(model, columns)) is None:
        return columns
    assert not isinstance(data, SparseDataset)
    if all_rows is not None:
        return replace(columns, moments=(begun or moments).beside(all_rows))
    return replace(columns, moments=(begun or moments).merged(data.x))


def standardised(
    train_set: Set, test_set: Set | None, begun: Moments | None
) -> tuple[Set, Set | None, Moments | None]:
    """Data as they are trained on, and what they come to with what rows before did: of a stream, whose
    rows are still to come, what these did.
    """
    if begun is None:
        return train_set, test_set, None
    if isinstance(train_set, Streamed) and train_set.sent is not None:
        all_rows = begun.beside(train_set.sent.index.moments)
        train_set.fixed = train_set.sent.standard = all_rows
        assert test_set is None or isinstance(test_set, (Clicks, Dataset))
        return train_set, None if test_set is None else test_set.standardised(all_rows), all_rows
    if isinstance(train_set, Streamed):
        train_set.begun = begun
        return train_set, test_set, begun
    assert isinstance(train_set, (Clicks, Dataset))
    assert test_set is None or isinstance(test_set, (Clicks, Dataset))
    moments = begun.merged(train_set.x)
    tested = None if test_set is None else test_set.standardised(moments)
    return train_set.standardised(moments), tested, moments
