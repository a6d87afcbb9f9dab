"""Factorisation machines on sparse rows."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _core
from leashed.base import checks
from leashed.datasets import Dataset, SparseDataset
from leashed.models._columns import check_columns
from leashed.models._fits import check_fits

__all__ = ["FactorisationMachine"]

_LOSSES = ("log_loss", "hinge", "squared_error")
_LARGEST_SIZE = 2**31 - 1
_LARGEST_FIELD = 2**16 - 1


@dataclass(frozen=True)
class FactorisationMachine:
    """o = b + Σ_j w_j x_j + Σ_{i<j} ⟨v_i, v_j⟩ x_i x_j (Rendle, "Factorization machines", 2010,
    eq. 1), with a loss on o; with ``fields`` ⟨v_i,f(j), v_j,f(i)⟩ in its place (Juan et al., 2016,
    eq. 4). Made by ``models.fm`` and ``models.ffm``, which say what the arguments are.

    Its parameters, float32 [d], are the columns' records [features, 1 + k], a weight and k factors
    each, then the intercept; with F fields [features, 1 + F · k], k factors for each field.
    """

    features: int
    k: int = 8
    name: str = "fm"
    loss: str = "log_loss"
    l2: float = 0.0
    sigma: float = 0.1
    fields: tuple[int, ...] | None = field(default=None, repr=False)

    flops_per_example = None  # as many as an example has values

    def __post_init__(self) -> None:
        for name in ("features", "k"):
            checks.whole(name, getattr(self, name), 1, _LARGEST_SIZE)
        if self.loss not in _LOSSES:
            raise ValueError(f"loss must be one of {', '.join(_LOSSES)}, got {self.loss!r}")
        object.__setattr__(self, "l2", checks.real("l2", self.l2, 0.0, allow=True))
        object.__setattr__(self, "sigma", checks.real("sigma", self.sigma, 0.0))
        if not 1e-30 <= self.sigma <= 1e30:  # in float32 the factors would be 0, or infinite
            raise ValueError(f"sigma must be from 1e-30 to 1e30, got {self.sigma:g}")
        if not isinstance(self.name, str):
            raise TypeError(f"name must be a str, got {self.name!r}")
        if self.fields is not None:
            object.__setattr__(self, "fields", _fields(self.fields, self.features))
        _ = self.sparse

    def __getstate__(self) -> dict[str, object]:
        names = (item.name for item in dataclasses.fields(self))
        return {name: getattr(self, name) for name in names}  # no native parts

    @cached_property
    def sparse(self) -> _core.FactorisationMachine | _core.FieldAwareMachine:
        """The native model."""
        if self.fields is None:
            return _core.FactorisationMachine(self.features, self.k, self.loss, self.l2)
        return _core.FieldAwareMachine(np.array(self.fields, np.uint16), self.k, self.loss, self.l2)

    @cached_property
    def factors(self) -> tuple[int, ...]:
        """The shape of a column's factors: (k,), or (F, k)."""
        return (self.k,) if self.fields is None else (1 + max(self.fields), self.k)

    @property
    def native(self) -> _core.GradientSource:
        """Of dense data there is none.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            f"model {self.name} takes sparse rows alone; make them with "
            "SparseDataset.from_csr(scipy.sparse.csr_array(x), y)"
        )

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the tensors that files hold, by name, in the order of the parameters."""
        return {"columns": (self.features, 1 + math.prod(self.factors)), "bias": (1,)}

    @property
    def dimension(self) -> int:
        """d, the number of parameters."""
        return self.sparse.dimension

    @property
    def outputs(self) -> int:
        """1."""
        return 1

    @property
    def classes(self) -> int:
        """2; 0 with the loss ``"squared_error"``."""
        return 0 if self.loss == "squared_error" else 2

    def init(self, seed: int = 0, scheme: str = "he") -> NDArray[np.float32]:
        """Initial parameters, float32 [d], a function of ``seed`` alone.

        Args:
            seed: whole number from 0.
            scheme: ``"he"`` or ``"glorot"``: factors N(0, sigma), weights and intercept 0;
                ``"normal"``: N(0, 0.01) over the whole vector, as for networks. (Factors that are
                all 0 would stay so: each one's gradient is a sum of the others.)

        Raises:
            TypeError: ``seed`` is not a whole number.
            ValueError: ``scheme`` is unknown or ``seed`` is negative.
        """
        random = np.random.Generator(np.random.Philox(checks.whole("seed", seed, 0)))
        if scheme == "normal":
            return random.normal(0.0, 0.01, self.dimension).astype(np.float32)
        if scheme not in ("he", "glorot"):
            raise ValueError(f"init must be one of normal, he, glorot, got {scheme!r}")
        theta = np.zeros(self.dimension, np.float32)
        factors = self.unflatten(theta)["factors"]
        factors[...] = random.normal(0.0, self.sigma, factors.shape)
        return theta

    def unflatten(self, parameters: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Views of the parts of ``parameters`` [d], by name: ``"weight"`` [features], ``"factors"``
        [features, k], or [features, F, k], and ``"bias"`` [1].
        """
        if parameters.shape != (self.dimension,):
            raise ValueError(
                f"parameters must have shape ({self.dimension},), got {parameters.shape}"
            )
        columns = parameters[:-1].reshape(self.shapes["columns"])
        factors = columns[:, 1:].reshape(self.features, *self.factors)
        return {"weight": columns[:, 0], "factors": factors, "bias": parameters[-1:]}

    def predict(self, parameters: ArrayLike, x: SparseDataset) -> NDArray[np.float32]:
        """What the model says of examples ``x``, float32 [n, 1]: the probability of class 1 with the
        loss ``"log_loss"``, o with the others.

        Args:
            parameters: float32 [d].
            x: the rows, whose labels are not read.

        Raises:
            TypeError: ``x`` is no SparseDataset.
            ValueError: ``x`` or ``parameters`` has the wrong shape or is not finite, or ``x`` has
                other columns than the parameters were trained on.
        """
        check_fits(self, x, "x")
        check_columns(parameters, self, x, "x")
        return self.sparse.predict(checks.vector("parameters", parameters, self.dimension), x.rows)

    def evaluate(self, parameters: ArrayLike, data: Dataset | SparseDataset) -> tuple[float, float]:
        """Mean loss and accuracy over a data set; 0 for the accuracy where there are no classes.
        Losses count with the examples' weights, accuracy without.

        Raises:
            TypeError: ``data`` is no data set, or ``parameters`` holds no real numbers.
            ValueError: ``parameters`` or ``data`` does not fit the model, or ``data`` has other
                columns than the parameters were trained on.
        """
        check_fits(self, data, "data")
        check_columns(parameters, self, data, "data")
        assert isinstance(data, SparseDataset)
        theta = checks.vector("parameters", parameters, self.dimension)
        return self.sparse.evaluate(theta, data.rows, data.y, data.weights)


def _fields(given: ArrayLike, features: int) -> tuple[int, ...]:
    """Each column's field, checked."""
    fields = checks.numeric("fields", given)
    if fields.dtype.kind not in "iu":
        raise TypeError(f"fields must be whole numbers, got {fields.dtype}")
    if fields.shape != (features,):
        raise ValueError(
            f"fields must be one for each column, shape ({features},), got {fields.shape}"
        )
    for value in (int(fields.min()), int(fields.max())):
        if not 0 <= value <= _LARGEST_FIELD:
            raise ValueError(f"fields must be from 0 to {_LARGEST_FIELD}, got {value}")
    return tuple(fields.tolist())
