"""What an embedding server must know of a model's tables: all of it JSON's own types, so that one can
be started for a model that is an object of somebody's program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leashed import _core, staleness
from leashed.base import choice
from leashed.cluster import row_packing
from leashed.cluster.messages import Welcome
from leashed.models import TableSpec
from leashed.models import tables as of_models
from leashed.models.tables import Initial, Table, rule_of
from leashed.training.rows_read import RowsRead

__all__ = ["SETTINGS", "TableTerms", "check_settings", "settings_json"]

SETTINGS = ("init", "admit_after", "evict", "max_bytes", "share", "weight_decay")
"""Of ``tables.of``, what may be said of the tables of embedding servers beside what a training says."""

_SMALL = 2**16  # bytes


@dataclass(frozen=True)
class TableTerms:
    """The tables that a training reads, of which so many servers have rows.

    Attributes:
        read: which, and by what their rows are updated.
        servers: how many there are.
        settings: of all of them, by the names of ``SETTINGS``.
        here: how many servers share a machine's memory.
    """

    read: RowsRead
    servers: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    here: int = 1

    def placed(self, welcome: Welcome) -> row_packing.Placed:
        """Where their rows are, by what the run's master tells."""
        return row_packing.told(self.read, self.servers, welcome)

    def parts(self, placement: _core.RowPlacement, index: int) -> dict[str, Table]:
        """A server's parts of them, new, by name.

        Raises:
            TypeError, ValueError: as ``tables.of``.
        """
        read, given = self.read, dict(self.settings)
        if given.get("max_bytes") is None:
            given["share"] = (given.get("share") or of_models.SHARE) / self.here
        else:
            given["max_bytes"] = math.ceil(given["max_bytes"] / self.servers)
        return of_models.of(
            read.tables,
            rule=read.rule,
            staleness=read.staleness,
            seed=read.seed,
            shards={one.name: placement.shards(t, index) for t, one in enumerate(read.tables)},
            **given,
        )

    def whole(self) -> dict[str, Table]:
        """All of them, new, by name, of the one server that there is.

        Raises:
            TypeError, ValueError: as ``tables.of``.
        """
        return self._made()

    def slices(self) -> dict[str, Table]:
        """As ``whole``, of one shard's rows alone: what is told of them is that of the whole, at a 256th of its
        memory.
        """
        one = [True] + [False] * (of_models.SHARDS - 1)
        return self._made(shards=dict.fromkeys((table.name for table in self.read.tables), one))

    def _made(self, **more: Any) -> dict[str, Table]:
        read = self.read
        return of_models.of(
            read.tables,
            rule=read.rule,
            staleness=read.staleness,
            seed=read.seed,
            **self.settings,
            **more,
        )

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        read = self.read
        return {
            "tables": [[one.name, one.dim, one.rows] for one in read.tables],
            "features": list(read.features),
            "rule": read.rule.config(),
            "staleness": [read.staleness.label, choice.to_json(read.staleness.choice())],
            "seed": read.seed,
            "servers": self.servers,
            "settings": settings_json(self.settings),
            "here": self.here,
        }

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> TableTerms:
        """That which ``to_json`` told."""
        label, policy = told["staleness"]
        given = dict(told["settings"])
        if given.get("init") is not None:
            native, settings = choice.from_json(given["init"])
            given["init"] = Initial(native, tuple(settings.items()))  # type: ignore[arg-type]
        read = RowsRead(
            [TableSpec(*one) for one in told["tables"]],
            told["features"],
            rule_of(told["rule"]),
            staleness.of_choice(label, choice.from_json(policy)),
            told["seed"],
        )
        return cls(read, told["servers"], given, told["here"])


def settings_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of tables as JSON's own types."""
    given = dict(settings)
    if given.get("init") is not None:
        given["init"] = choice.to_json(given["init"].choice())
    return given


def check_settings(name: str, given: object) -> dict[str, Any]:
    """Settings of tables as ``name`` gives them, of which there are enough for ``tables.of``.

    Raises:
        TypeError, ValueError: one is wrong, or none of ``SETTINGS``; the message names it.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} must map arguments of leashed.tables.of to values, got {given!r}")
    if unknown := [one for one in given if one not in SETTINGS]:
        raise ValueError(
            f"{name} may have {', '.join(SETTINGS)}, got {unknown[0]!r}; rule, staleness and seed are "
            "the training's"
        )
    tried = {"max_bytes": _SMALL, **given}
    if (share := tried.pop("share", None)) is not None:
        if "max_bytes" in given:
            raise ValueError(
                f"{name} has share and max_bytes, which both say how large tables grow"
            )
        of_models.check_share(share)
    of_models.of([TableSpec(name, 1)], **tried)
    return dict(given)
