"""How the parameters of a mode are spread over several servers (shat, section 3.3 and Figure 3)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from leashed import _core
from leashed.base import checks
from leashed.models.external import External
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import Graph
from leashed.models.network import Model
from leashed.training.recordings import AnyModel

__all__ = ["Sharding", "layerwise", "memorywise", "packed"]

MAX_SHARDS = 1024
_KINDS = ("layerwise", "memorywise", "packed")
_TABLES = ("hash", "whole")


@dataclass(frozen=True)
class Sharding:
    """What each of several servers holds; made by :func:`layerwise`, :func:`memorywise` and
    :func:`packed`.

    Args:
        kind: the name of one of these.
        shards: how many servers, 1 to 1,024. For whom no parameters are left takes no part.
        costs: of ``packed``: of each variable, in any unit; None: their numbers of parameters.
        tables: of a model that reads tables: ``"hash"``: each table's rows are spread by their ids
            in 256 shards, of which each server that has parameters has as many, or one more: by the
            remainder of the id in a fixed table, by a hash of it in one that grows. Of more than
            256 servers the first have one. ``"whole"``, or what each table costs, in any unit:
            whole tables, the dearest first, always to the server with the least so far. The default
            cost of a table is the floats of it that an example reads.
    """

    kind: str
    shards: int
    costs: tuple[float, ...] | None = None
    tables: str | tuple[float, ...] = "hash"

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"kind must be one of {', '.join(_KINDS)}, got {self.kind!r}")
        checks.whole("shards", self.shards, maximum=MAX_SHARDS)
        for k, cost in enumerate(self.costs or ()):
            checks.real(f"costs[{k}]", cost, 0.0, allow=True)
        if not isinstance(self.tables, str):
            for k, cost in enumerate(self.tables):
                checks.real(f"tables[{k}]", cost, 0.0, allow=True)
        elif self.tables not in _TABLES:
            raise ValueError(
                f"tables must be {' or '.join(_TABLES)}, or costs, got {self.tables!r}"
            )

    def spans(self, model: AnyModel) -> list[list[tuple[int, int]]]:
        """Of each shard the parameters of ``model`` that it holds, as [begin, end) of the vector.

        Raises:
            ValueError: there is not one of ``costs`` for each variable.
        """
        return self._made(model)[0]

    def servers_of_tables(self, model: AnyModel) -> list[int]:
        """Of each table of ``model`` the number of its server, from 0, among those that have parameters;
        empty where rows are spread.

        Raises:
            ValueError: there is not one cost for each table.
        """
        specs = () if isinstance(model, (Model, FactorisationMachine)) else model.tables
        if not isinstance(self.tables, str) and len(self.tables) != len(specs):
            raise ValueError(
                f"tables must be costs of each of the {len(specs)} tables of {model.name}, got "
                f"{len(self.tables)}"
            )
        if isinstance(model, (Model, FactorisationMachine)) or self.tables == "hash" or not specs:
            return []
        costs = reads(model) if isinstance(self.tables, str) else list(self.tables)
        servers = sum(1 for spans in self.spans(model) if spans)
        ends = list(range(1, len(specs) + 1))
        found = [0] * len(specs)
        for server, spans in enumerate(_core.sharding("packed", servers, ends, costs)[0]):
            for begin, end in spans:
                found[begin:end] = [server] * (end - begin)
        return found

    def imbalance(self, model: AnyModel) -> float:
        """The largest shard over what the largest has at least, however layers (variables, parameters)
        are spread: 1 at best. Counted in parameters; of ``packed`` in ``costs``.

        Raises:
            ValueError: as :meth:`spans`.
        """
        return self._made(model)[1]

    def _made(self, model: AnyModel) -> tuple[list[list[tuple[int, int]]], float]:
        ends = _variable_ends(model) if self.kind == "packed" else _layer_ends(model)
        if self.costs is not None and len(self.costs) != len(ends):
            raise ValueError(
                f"costs must be one for each of the {len(ends)} variables of {model.name}, got "
                f"{len(self.costs)}"
            )
        begins = [0, *ends[:-1]]
        sizes = [float(end - begin) for begin, end in zip(begins, ends, strict=True)]
        return _core.sharding(self.kind, self.shards, ends, list(self.costs or sizes))


def layerwise(shards: int, *, tables: str | Sequence[float] = "hash") -> Sharding:
    """As many layers for each server, in their order, however large they are. One server a layer where
    there are as many. ``tables``: as of ``Sharding``.
    """
    return Sharding("layerwise", shards, tables=_tables(tables))


def memorywise(shards: int, *, tables: str | Sequence[float] = "hash") -> Sharding:
    """As many parameters for each server, in their order, wherever that cuts layers. ``tables``: as of
    ``Sharding``.
    """
    return Sharding("memorywise", shards, tables=_tables(tables))


def packed(
    shards: int,
    costs: Sequence[float] | None = None,
    *,
    tables: str | Sequence[float] = "hash",
) -> Sharding:
    """Variables (weights and biases are one each) by what each costs a server, the dearest first, always
    to the server with the least so far (longest processing time first).

    Args:
        shards: as of ``Sharding``.
        costs: of each variable, as measured, in the order in which they lie in the vector; default:
            its number of parameters.
        tables: as of ``Sharding``.
    """
    return Sharding("packed", shards, None if costs is None else tuple(costs), _tables(tables))


def _tables(given: str | Sequence[float]) -> str | tuple[float, ...]:
    return given if isinstance(given, str) else tuple(given)


def reads(model: Graph | External) -> list[float]:
    """The floats of each table that an example reads, of bags one row."""
    of = model.ids if isinstance(model, External) else [node.table for node in model.embeddings]
    return [float(sum(spec.dim for spec in of if spec == table)) for table in model.tables]


def _variable_ends(model: AnyModel) -> list[int]:
    if isinstance(model, External):
        return list(itertools.accumulate(model.variables or (model.dimension,)))
    if isinstance(model, FactorisationMachine):
        return [model.dimension - model.outputs, model.dimension]  # the columns', the intercepts
    offsets = [block.offset for block in model.native.parameters]
    return [*offsets[1:], model.dimension]


def _layer_ends(model: AnyModel) -> list[int]:
    """Where layers end: a layer's weights and biases, named "<index>.…", lie side by side."""
    ends = _variable_ends(model)
    if isinstance(model, (External, FactorisationMachine)):
        return ends
    layers = [block.name.rpartition(".")[0] for block in model.native.parameters]
    last = [k + 1 == len(layers) or layers[k + 1] != layers[k] for k in range(len(layers))]
    return [end for end, is_last in zip(ends, last, strict=True) if is_last]
