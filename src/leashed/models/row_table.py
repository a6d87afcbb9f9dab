"""What tables of rows have in common that are looked up and updated by calls, wherever the rows are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed.base import checks

__all__ = ["RowTable", "RowUpdate"]


class RowUpdate(NamedTuple):
    """What became of the gradients of the distinct ids of an update: each is one of these.

    Attributes:
        applied: made an update of their row.
        late: lost, since the row was evicted between finding and updating it.
        excluded: left out by the staleness policy.
        unadmitted: of ids that have not come in enough updates yet.
        deferred: of ids that had no row when another thread was changing the index there.
        refused: of ids that had no row when there was no room.
    """

    applied: int
    late: int
    excluded: int
    unadmitted: int
    deferred: int
    refused: int


class RowTable(ABC):
    """Rows that are looked up and updated by calls: a ``Table`` of this process, or one whose rows
    embedding servers hold (``leashed.cluster.table``).

    Attributes:
        name: in messages.
        dim: floats of a row.
        rows: how many there are, ids from 0; None: it grows, and has any 64-bit id.
    """

    name: str
    dim: int
    rows: int | None

    @overload
    def lookup(
        self, ids: ArrayLike, *, versions: Literal[False] = False
    ) -> NDArray[np.float32]: ...
    @overload
    def lookup(
        self, ids: ArrayLike, *, versions: Literal[True]
    ) -> tuple[NDArray[np.float32], NDArray[np.uint32]]: ...

    @abstractmethod
    def lookup(
        self, ids: ArrayLike, *, versions: bool = False
    ) -> NDArray[np.float32] | tuple[NDArray[np.float32], NDArray[np.uint32]]:
        """The rows of ``ids``, copied; with ``versions`` also what tells ``update`` when that was."""

    @abstractmethod
    def update(
        self, ids: ArrayLike, gradients: ArrayLike, versions: NDArray[np.uint32] | None = None
    ) -> RowUpdate:
        """One step: the rule applied to the rows of ``ids``."""

    def check_ids(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Ids as calls take them, int64, of their shape; TypeError or IndexError where they are none."""
        found = np.asarray(ids)
        if not found.size:
            found = found.astype(np.int64)
        if found.dtype.kind not in "iu":
            raise TypeError(
                f"ids must be whole numbers, got dtype {found.dtype}; convert them with "
                ".astype(np.int64)"
            )
        rows = self.rows
        if rows is not None and found.size and (found.min() < 0 or found.max() >= rows):
            where = np.unravel_index(np.flatnonzero((found < 0) | (found >= rows))[0], found.shape)
            place = ", ".join(str(int(i)) for i in where)
            raise IndexError(
                f"ids{f'[{place}]' if place else ''} is {found[where]}, outside 0 to {rows - 1} of "
                f"{self.name}"
            )
        if found.dtype == np.uint64:
            return np.asarray(found, order="C").view(np.int64)
        return np.asarray(found, np.int64, order="C")

    def _gradients(self, ids: NDArray[np.int64], gradients: ArrayLike) -> NDArray[np.float32]:
        """Those of these ids, [n · dim]."""
        given = checks.numeric("gradients", gradients)
        if given.shape != (*ids.shape, self.dim):
            raise ValueError(
                f"gradients must have shape {(*ids.shape, self.dim)}, as ids have and dim, "
                f"got {given.shape}"
            )
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(given, np.float32).ravel()

    @staticmethod
    def _versions(
        ids: NDArray[np.int64], versions: NDArray[np.uint32] | None
    ) -> NDArray[np.uint32] | None:
        """Those of these ids, [n]."""
        if versions is None:
            return None
        versions = np.asarray(versions)
        if versions.dtype != np.uint32 or versions.shape != ids.shape:
            raise ValueError(
                f"versions must be uint32 of shape {ids.shape}, as lookup gives them, got "
                f"{versions.dtype} of shape {versions.shape}"
            )
        return np.ascontiguousarray(versions).ravel()
