"""Models whose gradients come from outside, and the data they are trained on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _core, gradients
from leashed.base import checks
from leashed.datasets import ClickDataset, Dataset
from leashed.datasets.columns import UNKNOWN, Columns
from leashed.models._columns import arranged, check_columns
from leashed.models._reads import TableSpec, click_rows, distinct
from leashed.models.tables import Table
from leashed.models.tables import check as check_tables

__all__ = ["BatchRows", "External", "Samples", "external", "get_include"]

_MOST = 2**48


def get_include() -> str:
    """The folder of ``leashed.h`` and ``leashed.pxd``, for C and Cython."""
    return os.fspath(Path(__file__).parents[1] / "include")


@dataclass(frozen=True, eq=False)
class Samples:
    """Examples x, float32 [n, features], with labels or targets y, int32 or float32 [n]."""

    x: NDArray[np.float32]
    y: NDArray[np.int32] | NDArray[np.float32]
    name: str = "arrays"
    columns: Columns = UNKNOWN

    def __len__(self) -> int:
        return len(self.x)


class BatchRows(NamedTuple):
    """What a batch reads of tables, as a Python callable gets it: of each feature that is ids its
    entries, one after another, and of each table its distinct rows.

    Attributes:
        values: of each table float32 [distinct, dim], read-only: copies of the rows.
        places: of each feature int64 [entries], read-only: the number of the entry's row among those
            of the feature's table.
        offsets: of each feature int64 [batch + 1], read-only: the entries of example i are from
            ``offsets[i]`` up to ``offsets[i + 1]``; there may be none.
        weights: of each feature float32 [entries], read-only: 1 where the data has none.
        gradients: of each table float32 [distinct, dim], 0 at first: the gradients of the batch's
            mean loss are added to them, as in ``numpy.add.at(gradients[t], places[f], g)``. For
            ``loss`` and ``logits`` they mean nothing.
    """

    values: tuple[NDArray[np.float32], ...]
    places: tuple[NDArray[np.int64], ...]
    offsets: tuple[NDArray[np.int64], ...]
    weights: tuple[NDArray[np.float32], ...]
    gradients: tuple[NDArray[np.float32], ...]


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
    ids: tuple[TableSpec, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"name must be a str, got {self.name!r}")
        for i, spec in enumerate(self.ids):
            if not isinstance(spec, TableSpec):
                raise TypeError(f"ids[{i}] must be a TableSpec, got {spec!r}")
        distinct(self.ids)
        size = checks.whole("dimension", self.dimension, maximum=_MOST)
        least = 0 if self.ids else 1
        features = checks.whole("features", self.features, least, maximum=2**31 - 1)
        gradients.check_y("y", self.y)
        if self.ids and self.y != "int32":
            raise ValueError(f'y must be "int32" with ids, whose data have labels, got {self.y!r}')
        lengths = tuple(checks.whole(f"variables[{i}]", n) for i, n in enumerate(self.variables))
        if lengths and sum(lengths) != size:
            raise ValueError(f"variables must add up to the {size} parameters, got {sum(lengths)}")
        for name, value in [("dimension", size), ("features", features), ("variables", lengths)]:
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        """The call that makes such a model."""
        variables = f", variables={self.variables}" if self.variables else ""
        specs = (
            f"leashed.models.TableSpec({spec.name!r}, {spec.dim}, {spec.rows})" for spec in self.ids
        )
        ids = f", ids=[{', '.join(specs)}]" if self.ids else ""
        return (
            f"leashed.models.external(gradient, dimension={self.dimension}, "
            f"features={self.features}, y={self.y!r}{variables}{ids}, name={self.name!r})"
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
    ids: tuple[TableSpec, ...] = ()
    logits: Any = None

    flops_per_example = None  # not known

    @property
    def description(self) -> Description:
        """What files hold of it."""
        return Description(
            self.name, self.dimension, self.features, self.y, self.variables, self.ids
        )

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """The tables that it reads."""
        return distinct(self.ids)

    @property
    def id_features(self) -> range:
        """Which features of the data that are ids it takes: the first ones."""
        return range(len(self.ids))

    @cached_property
    def native(self) -> _core.ExternalModel:
        """The native gradient source."""
        ends = list(accumulate(self.variables))
        targets = self.y == "float32"
        functions = {"gradient": self.gradient, "loss": self.loss, "logits": self.logits}
        found = {
            name: gradients.resolve(name, function, self.y, rows=bool(self.ids))
            for name, function in functions.items()
            if function is not None or name == "gradient"
        }
        plain = found["gradient"] is None
        for name, native in found.items():
            if (native is None) != plain:
                kind = "Python callable" if plain else "native function"
                raise TypeError(f"{name} must be a {kind}, as gradient is")
        of_tables = [self.tables.index(spec) for spec in self.ids]
        tables = [(table.name, table.dim) for table in self.tables]
        if plain:
            return _core.PythonSource(
                gradient=self.gradient,
                loss=self.loss,
                dimension=self.dimension,
                features=self.features,
                targets=targets,
                variable_ends=ends,
                logits=self.logits,
                tables=tables,
                features_of_tables=of_tables,
            )
        gradient, loss, logits = (found.get(name) or (0, 0) for name in functions)
        if not self.ids:
            return _core.ExternalSource(
                gradient=gradient[0],
                gradient_data=gradient[1],
                loss=loss[0],
                loss_data=loss[1],
                dimension=self.dimension,
                features=self.features,
                workspace_bytes=self.workspace_bytes,
                targets=targets,
                variable_ends=ends,
            )
        return _core.ExternalRowsSource(
            gradient=gradient,
            loss=loss,
            logits=logits,
            dimension=self.dimension,
            features=self.features,
            workspace_bytes=self.workspace_bytes,
            variable_ends=ends,
            tables=tables,
            features_of_tables=of_tables,
        )

    def init(self, seed: int = 0, scheme: str = "he") -> NDArray[np.float32]:
        """Zeros, since the layers are not known; for the scheme ``"normal"`` N(0, 0.01)."""
        random = np.random.Generator(np.random.Philox(checks.whole("seed", seed, 0)))
        if scheme == "normal":
            return random.normal(0.0, 0.01, self.dimension).astype(np.float32)
        if scheme not in ("he", "glorot"):
            raise ValueError(f"init must be one of normal, he, glorot, got {scheme!r}")
        return np.zeros(self.dimension, np.float32)

    def evaluate(
        self, parameters: ArrayLike, data: Any, tables: Mapping[str, Table] | None = None
    ) -> float:
        """The mean loss over ``data``, a pair of arrays or a ``Dataset``, where the model reads
        tables a ``ClickDataset``. No id gets a row, and nothing is counted.

        Args:
            parameters: [d].
            data: examples.
            tables: by name, as ``TrainResult.tables``.

        Raises:
            TypeError, ValueError: an argument is wrong or does not fit the model.
        """
        theta = checks.vector("parameters", parameters, self.dimension)
        if not self.ids:
            if tables is not None:
                check_tables((), tables)
            samples = self.samples("data", data)
            check_columns(parameters, self, samples, "data")
            return _core.mean_loss(self.native, theta, samples.x, samples.y)
        given: Any = tables  # None is told as what is no mapping
        native = check_tables(self.tables, given)
        data = arranged(parameters, self, data, "data")
        rows = self.rows(data)
        check_columns(parameters, self, data, "data")
        return _core.mean_loss(self.native, theta, rows, data.y, native)

    def predict(
        self, parameters: ArrayLike, data: ClickDataset, tables: Mapping[str, Table]
    ) -> NDArray[np.float32]:
        """The probability of label 1 for each example, float32 [n, 1], by ``logits``.

        Raises:
            TypeError, ValueError: an argument is wrong or does not fit the model, or this was made
                without ``logits``.
        """
        if self.logits is None:
            raise ValueError(
                f"model {self.name} predicts nothing; make it with logits=, a function that does"
            )
        theta = checks.vector("parameters", parameters, self.dimension)
        native = check_tables(self.tables, tables)
        data = arranged(parameters, self, data, "data")
        rows = self.rows(data)
        check_columns(parameters, self, data, "data")
        logits = self.native.logits(theta, rows, native)
        probabilities: NDArray[np.float32] = np.exp(-np.logaddexp(np.float32(0), -logits))
        return probabilities

    def rows(self, data: ClickDataset, name: str = "data") -> _core.ClickRows:
        """The native rows of a data set, with the features that the model reads: the first so many.

        Raises:
            TypeError, ValueError: it is no ``ClickDataset``, or not one that this model takes; the
                message names it.
        """
        if not self.ids:
            raise TypeError(f"model {self.name} reads no tables, and takes no rows with ids")
        found = click_rows(data, name, self.features, self.ids, self.id_features)
        _refuse_weights(name, data.weights)
        return found

    def samples(self, name: str, data: Any) -> Samples:
        """``data`` as this model reads it: a ``Dataset`` or a pair (x, y) of arrays.

        Raises:
            TypeError, ValueError: it is neither, or of another shape; the message names it.
        """
        if isinstance(data, Samples):
            return data
        if isinstance(data, Dataset):
            _refuse_weights(name, data.weights)
            x, y, title, known = data.x, data.y, data.name, data.columns
        elif isinstance(data, tuple) and len(data) == 2:
            x, y = (checks.numeric(f"{name}[{i}]", part) for i, part in enumerate(data))
            title, known = "arrays", Columns.of(data[0])
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
        return Samples(rows, _as(f"y of {name}", y, self.y), title, known)


def _refuse_weights(name: str, weights: NDArray[np.float32] | None) -> None:
    if weights is not None:
        raise ValueError(
            f"{name} has weights, which leashed does not hand to a gradient from outside; make the "
            "data without them"
        )


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
    ids: Sequence[TableSpec] = (),
    logits: Any = None,
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

    With ``ids`` the model reads rows of embedding tables too, and is trained on a ``ClickDataset``:
    a native function is then of the type ``leashed_gradient_rows``, a Python callable
    ``f(theta, x, y, rows, out) -> loss``, where ``rows`` are ``BatchRows``, to whose ``gradients``
    it adds. The tables' rows are updated as those of a ``Graph`` are.

    Args:
        gradient: the function.
        dimension: d, the number of parameters.
        features: values per example; with ``ids`` its numbers, which may be 0.
        loss: for evaluation, the mean loss alone: native, of the same contract, with a null
            ``gradient``; or a Python callable ``f(theta, x, y) -> loss``, with ``ids``
            ``f(theta, x, y, rows) -> loss``. Default: ``gradient`` is called and what it writes is
            dropped.
        y: what the function reads labels as: ``"int32"``, or ``"float32"`` for real targets.
        workspace_bytes: memory of its own that each thread hands to a native function, 64-byte
            aligned and zeroed before the first call.
        variables: the lengths of the variables that the parameters are made of, for stage-aware
            staleness. Default: one.
        name: what plots, reports and files call the model. A checkpoint holds it with dimension,
            features, y, variables and ids, but no function; it is resumed with a model of the same.
        ids: of each feature that is ids, in the data's order, the table whose rows they stand for.
            Features that share a table have the same ``TableSpec``. What else the data has behind
            them is not read.
        logits: with ``ids``, for ``predict``, AUC and normalised entropy, the logit of label 1 of
            each example: native, of the same type, with null labels and gradients; or a Python
            callable ``f(theta, x, rows) -> logits`` that returns numbers [batch].

    Returns:
        A model. ``train(init=...)`` takes initial parameters; the default is zeros, ``"normal"`` is
        N(0, 0.01). There is no accuracy: it is NaN.

    Raises:
        TypeError, ValueError: an argument is wrong, or a native function has another signature; the
            message names it.
    """
    if not isinstance(ids, Sequence):
        raise TypeError(f"ids must be a sequence of TableSpec, got {ids!r}")
    given = Description(name, dimension, features, y, tuple(variables or ()), tuple(ids))
    if logits is not None and not given.ids:
        raise ValueError("logits is for models that read tables; give ids, or leave it out")
    model = External(
        gradient,
        given.dimension,
        given.features,
        loss,
        given.y,
        checks.whole("workspace_bytes", workspace_bytes, 0, _MOST),
        given.variables,
        given.name,
        given.ids,
        logits,
    )
    _ = model.native
    return model
