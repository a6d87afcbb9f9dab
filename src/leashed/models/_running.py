"""Running statistics: what trainings of models that normalise average beside the parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed import _core

__all__ = ["Running", "averaged", "check_batch", "mean", "running", "tracked"]


class Running(NamedTuple):
    """Means and variances, float32 [s], averaged over so many batches, and how often a mean counted
    as ±10⁻³.
    """

    values: NDArray[np.float32]
    batches: int
    near_zero: int

    def config(self) -> dict[str, int]:
        """What configurations and checkpoints tell beside the values."""
        return {"batches": self.batches, "near_zero": self.near_zero}


def tracked(
    native: _core.GradientSource, workers: int, begun: Running | None
) -> _core.GradientSource:
    """The source to train in place of ``native``, by so many workers who go on from ``begun``; itself
    where it has no statistics.
    """
    if not native.statistics:
        return native
    if begun is None:
        return _core.TrackedSource(native, workers)
    return _core.TrackedSource(native, workers, *begun)


def averaged(found: tuple[NDArray[np.float32], int, int] | None) -> Running | None:
    """What the core tells of; None: there was no batch, or nothing is averaged."""
    return Running(*found) if found is not None and found[1] else None


def mean(found: Iterable[Running | None]) -> Running | None:
    """Weighted by how many batches each is of; None: there was no batch."""
    known = [each for each in found if each is not None]
    if not known:
        return None
    batches = [each.batches for each in known]
    values = np.average([each.values.astype(np.float64) for each in known], 0, batches)
    near_zero = sum(each.near_zero for each in known)
    return Running(values.astype(np.float32), sum(batches), near_zero)


def running(source: _core.GradientSource) -> Running | None:
    """What a tracked source has by now; None: there was no batch, or it is none."""
    if not isinstance(source, _core.TrackedSource):
        return None
    return averaged(source.running())


def check_batch(model: Any, batch_size: int, examples: int) -> None:
    """``examples``: of the data; 0: that is not known. ValueError where batches are too small for a
    model that normalises by them, or chooses within them.
    """
    if batch_size >= 2:
        return
    if model.native.statistics:
        does = "normalises by what a batch comes to"
    elif getattr(model, "loss", None) == "in_batch":
        does = "chooses among what a batch has"
    else:
        return
    if examples == 1:
        raise ValueError(
            f"data has one example, and model {model.name} {does}, of 2 at least; add it to other data"
        )
    raise ValueError(
        f"batch_size must be at least 2 for model {model.name}, which {does}, got {batch_size}"
    )
