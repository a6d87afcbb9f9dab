"""What the numbers of rows come to, and numbers standardised by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leashed import _core

__all__ = ["Moments"]

_MOST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Moments:
    """Of so many rows, by column.

    Attributes:
        rows: how many.
        mean: of each column; None: its numbers are left as they are.
        squares: the sums of the squared distances from the mean.
    """

    rows: int
    mean: tuple[float | None, ...]
    squares: tuple[float, ...]

    @classmethod
    def none(cls, which: Sequence[bool]) -> Moments:
        """Of no rows yet, of the columns that are to be standardised."""
        return cls(0, tuple(0.0 if one else None for one in which), (0.0,) * len(which))

    @property
    def which(self) -> list[bool]:
        """The columns that are standardised."""
        return [mean is not None for mean in self.mean]

    @property
    def native(self) -> tuple[int, list[float], list[float]]:
        """As the core takes them."""
        return self.rows, [mean or 0.0 for mean in self.mean], list(self.squares)

    def now(self, native: tuple[int, Sequence[float], Sequence[float]]) -> Moments:
        """Those that the core gives, of the same columns."""
        rows, mean, squares = native
        kept = [m if of else None for m, of in zip(mean, self.which, strict=True)]
        return Moments(rows, tuple(kept), tuple(squares))

    def merged(self, x: NDArray[np.float32]) -> Moments:
        """With more rows, [n, columns]."""
        return self.now(_core.number_moments(np.ascontiguousarray(x), self.native))

    def beside(self, numbers: Moments) -> Moments:
        """With more rows, of which it is known what all their columns come to."""
        rows = self.rows + numbers.rows
        if not self.rows or not numbers.rows:
            return self if not numbers.rows else self.now(numbers.native)
        share = numbers.rows / rows
        _, mean, squares = self.native
        apart = [there - here for here, there in zip(mean, numbers.native[1], strict=True)]
        means = [here + share * between for here, between in zip(mean, apart, strict=True)]
        sums = [
            one + other + between**2 * self.rows * share
            for one, other, between in zip(squares, numbers.squares, apart, strict=True)
        ]
        return self.now((rows, means, sums))

    @cached_property
    def scales(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The mean and 1/σ by which columns are standardised, float64 [columns]: of one that does not
        vary 1/σ is 1, of one that is left as it is the mean 0 too.
        """
        factor = np.ones(len(self.mean))
        mean = np.array([mean or 0.0 for mean in self.mean])
        if self.rows:
            deviation = np.sqrt(np.array(self.squares) / self.rows)
            varies = np.array(self.which) & (deviation > 0)
            factor[varies] = 1 / deviation[varies]
        return mean, factor

    def standardised(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """(x − mean) / σ of numbers [n, columns], float32; of another count of columns, which fit no
        model of these, as they are.
        """
        if x.ndim != 2 or x.shape[1] != len(self.mean):
            return x
        made = np.empty(x.shape, np.float32)
        for j, (mean, factor) in enumerate(zip(*self.scales, strict=True)):
            column = (x[:, j].astype(np.float64) - mean) * factor
            made[:, j] = np.clip(column, -_MOST, _MOST)
        return made

    def to_json(self) -> dict[str, Any]:
        """As JSON's own types."""
        return {"rows": self.rows, "mean": list(self.mean), "squares": list(self.squares)}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Moments:
        """Of what ``to_json`` gave."""
        return cls(told["rows"], tuple(told["mean"]), tuple(told["squares"]))
