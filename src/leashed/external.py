"""Models whose gradients come from outside, and the data they are trained on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _check, _core, gradients
from leashed.datasets import Dataset

__all__ = ["External", "Samples", "external", "get_include"]

_MOST = 2**48


def get_include() -> str:
    """The folder of ``leashed.h`` and ``leashed.pxd``, for C and Cython."""
    return os.fspath(Path(__file__).parent / "include")


@dataclass(frozen=True, eq=False)
class Samples:
    """Examples x, float32 [n, features], with labels or targets y, int32 or float32 [n]."""

    x: NDArray[np.float32]
    y: NDArray[np.int32] | NDArray[np.float32]
    name: str = "arrays"

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Description:
    """What a file tells of an external model: all but its functions. As arguments of ``external``,
    which raises the same errors.
    """

    name: str
    dimension: int
    features: int
    y: str
    variables: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"name must be a str, got {self.name!r}")
        size = _check.whole("dimension", self.dimension, maximum=_MOST)
        features = _check.whole("features", self.features, maximum=2**31 - 1)
        gradients.check_y("y", self.y)
        lengths = tuple(_check.whole(f"variables[{i}]", n) for i, n in enumerate(self.variables))
        if lengths and sum(lengths) != size:
            raise ValueError(f"variables must add up to the {size} parameters, got {sum(lengths)}")
        for name, value in [("dimension", size), ("features", features), ("variables", lengths)]:
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        """The call that makes such a model."""
        variables = f", variables={self.variables}" if self.variables else ""
        return (
            f"leashed.models.external(gradient, dimension={self.dimension}, "
            f"features={self.features}, y={self.y!r}{variables}, name={self.name!r})"
        )


@dataclass(frozen=True, eq=False)
class External:
    """A model known by its gradient alone; made by ``external``."""

    gradient: Any
    dimension: int
    features: int
    loss: Any = None
    y: str = "int32"
    workspace_bytes: int = 0
    variables: tuple[int, ...] = ()
    name: str = "external"

    flops_per_example = None  # not known

    @property
    def description(self) -> Description:
        """What files hold of it."""
        return Description(self.name, self.dimension, self.features, self.y, self.variables)

    @cached_property
    def native(self) -> _core.GradientSource:
        """The native gradient source."""
        ends = list(accumulate(self.variables))
        targets = self.y == "float32"
        gradient = gradients.resolve("gradient", self.gradient, self.y)
        loss = None if self.loss is None else gradients.resolve("loss", self.loss, self.y)
        if gradient is None:
            if loss is not None:
                raise TypeError("loss must be a Python callable, as gradient is")
            return _core.PythonSource(
                self.gradient, self.loss, self.dimension, self.features, targets, ends
            )
        if self.loss is not None and loss is None:
            raise TypeError("loss must be a native function, as gradient is")
        return _core.ExternalSource(
            *gradient,
            *(loss or (0, 0)),
            self.dimension,
            self.features,
            self.workspace_bytes,
            targets,
            ends,
        )

    def init(self, seed: int = 0, scheme: str = "he") -> NDArray[np.float32]:
        """Zeros, since the layers are not known; for the scheme ``"normal"`` N(0, 0.01)."""
        random = np.random.Generator(np.random.Philox(_check.whole("seed", seed, 0)))
        if scheme == "normal":
            return random.normal(0.0, 0.01, self.dimension).astype(np.float32)
        if scheme not in ("he", "glorot"):
            raise ValueError(f"init must be one of normal, he, glorot, got {scheme!r}")
        return np.zeros(self.dimension, np.float32)

    def evaluate(self, parameters: ArrayLike, data: Any) -> float:
        """The mean loss over ``data``, a pair of arrays or a ``Dataset``."""
        samples = self.samples("data", data)
        theta = _check.vector("parameters", parameters, self.dimension)
        return _core.mean_loss(self.native, theta, samples.x, samples.y)

    def samples(self, name: str, data: Any) -> Samples:
        """``data`` as this model reads it: a ``Dataset`` or a pair (x, y) of arrays.

        Raises:
            TypeError, ValueError: it is neither, or of another shape; the message names it.
        """
        if isinstance(data, Samples):
            return data
        if isinstance(data, Dataset):
            if data.weights is not None:
                raise ValueError(
                    f"{name} has weights, which leashed does not hand to a gradient from outside; "
                    "make the data without them"
                )
            x, y, title = data.x, data.y, data.name
        elif isinstance(data, tuple) and len(data) == 2:
            x, y = (_check.numeric(f"{name}[{i}]", part) for i, part in enumerate(data))
            title = "arrays"
        else:
            raise TypeError(
                f"{name} must be a Dataset or a pair of arrays (x, y), got {type(data).__name__}"
            )
        if x.ndim < 2 or not x.size:
            raise ValueError(f"x of {name} must be [n, features], got shape {x.shape}")
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(x.reshape(len(x), -1), np.float32)
        if rows.shape[1] != self.features:
            raise ValueError(
                f"{name} has {rows.shape[1]} features, but the model takes {self.features}"
            )
        if not (np.isfinite(rows.min()) and np.isfinite(rows.max())):
            raise ValueError(f"x of {name} is NaN, infinite or beyond float32 somewhere")
        if y.shape != (len(rows),):
            raise ValueError(
                f"y of {name} must have one value per example, shape ({len(rows)},), got {y.shape}"
            )
        return Samples(rows, _as(f"y of {name}", y, self.y), title)


def _as(name: str, y: NDArray[Any], dtype: str) -> Any:
    if dtype == "float32":
        with np.errstate(over="ignore"):
            values = np.ascontiguousarray(y, np.float32)
        if not np.isfinite(values).all():
            raise ValueError(f"{name} is NaN, infinite or beyond float32 somewhere")
        return values
    if y.dtype.kind == "f" and not (np.isfinite(y) & (np.floor(y) == y)).all():
        raise ValueError(
            f'{name} must hold whole numbers; for real targets make the model with y="float32"'
        )
    if np.abs(y.astype(np.float64)).max() > 2**31 - 1:
        raise ValueError(f"{name} has a label beyond {2**31 - 1}")
    return np.ascontiguousarray(y, np.int32)


def external(
    gradient: Any,
    *,
    dimension: int,
    features: int,
    loss: Any = None,
    y: str = "int32",
    workspace_bytes: int = 0,
    variables: Sequence[int] | None = None,
    name: str = "external",
) -> External:
    """A model whose gradient is a function of yours, for ``leashed.train`` under any discipline,
    rule and staleness policy.

    ``gradient`` is either native (a Numba ``@cfunc``, a Cython or C function: see
    ``leashed.gradients``), called by all threads at once without the GIL, or any Python callable
    ``f(theta, x, y, out) -> loss``:

    - ``theta``, float32 [dimension], ``x``, float32 [batch, features], and ``y`` [batch] are
      read-only; the gradient of the batch's mean loss is written to ``out``, float32 [dimension],
      which holds NaN before, and the mean loss is returned.
    - All four are arrays of the call's own (``theta`` is a copy): what is kept of them stays as it
      is, and what is not serves the next call.
    - The GIL is taken for each call. An exception stops the run and is raised by ``train``; a NaN
      ends the run as ``crashed``.

    Args:
        gradient: the function.
        dimension: d, the number of parameters.
        features: values per example.
        loss: for evaluation, the mean loss alone: native, of the same contract, with a null
            ``gradient``; or a Python callable ``f(theta, x, y) -> loss``. Default: ``gradient`` is
            called and what it writes is dropped.
        y: what the function reads labels as: ``"int32"``, or ``"float32"`` for real targets.
        workspace_bytes: memory of its own that each thread hands to a native function, 64-byte
            aligned and zeroed before the first call.
        variables: the lengths of the variables that the parameters are made of, for stage-aware
            staleness. Default: one.
        name: what plots, reports and files call the model. A checkpoint holds it with dimension,
            features, y and variables, but no function; it is resumed with a model of the same.

    Returns:
        A model. ``train(init=...)`` takes initial parameters; the default is zeros, ``"normal"`` is
        N(0, 0.01). There is no accuracy: it is NaN.

    Raises:
        TypeError, ValueError: an argument is wrong, or a native function has another signature; the
            message names it.
    """
    given = Description(name, dimension, features, y, tuple(variables or ()))
    model = External(
        gradient,
        given.dimension,
        given.features,
        loss,
        given.y,
        _check.whole("workspace_bytes", workspace_bytes, 0, _MOST),
        given.variables,
        given.name,
    )
    _ = model.native
    return model
