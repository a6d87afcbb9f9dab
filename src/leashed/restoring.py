"""What a folder of a trained model holds, made anew: the model, its parameters and its tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed import checkpoint, choice, folders, staleness
from leashed.checkpoint import BuiltIn
from leashed.rules import RULES, SWAP, Rule, Stepping
from leashed.tables import Initial, RowwiseAdagrad, Table

__all__ = ["Restored", "restore"]

_KINDS: list[type[Stepping]] = [*RULES.values(), RowwiseAdagrad]
_RULES = {kind.__name__: kind for kind in _KINDS}


class Restored(NamedTuple):
    """What ``restore`` gives.

    Attributes:
        model: Of ``leashed.models``.
        parameters: float32 [d].
        tables: By name; empty where the model reads none.
        statistics: float32 [s], as ``TrainResult.statistics``; None of a model that does not
            normalise, and where the file has none.
    """

    model: BuiltIn
    parameters: NDArray[np.float32]
    tables: dict[str, Table]
    statistics: NDArray[np.float32] | None = None


def restore(path: str | os.PathLike[str]) -> Restored:
    """Read what ``leashed.save`` or a checkpoint holds, with new tables that have its rows: to
    evaluate, predict and serve. To go on training give ``leashed.load`` or ``resume=`` tables of
    your own, since a schedule and a staleness policy are not made anew.

    Args:
        path: The file; of a model with tables its folder.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: As ``leashed.load``; or the model reads tables and ``path`` has none.
    """
    if not folders.is_one(path):
        model, parameters = checkpoint.load(path)
        if getattr(model, "tables", ()):
            raise ValueError(
                f"cannot restore {path}: its model reads tables, which are not there; name the "
                "folder that was saved with tables"
            )
        return Restored(model, parameters, {}, _statistics(path, model))
    tables = {
        name: _table(name, told) for name, told in folders.opened(path).described_tables.items()
    }
    model, parameters = checkpoint.load(path, None, tables)
    return Restored(model, parameters, tables, _statistics(path, model))


def _statistics(path: str | os.PathLike[str], model: BuiltIn) -> NDArray[np.float32] | None:
    return checkpoint.load_statistics(path) if getattr(model, "statistics", 0) else None


def _table(name: str, told: Mapping[str, Any]) -> Table:
    rows = told["rows"]
    init, settings = choice.from_json(rows["init"])
    # All that a policy leaves in a file: whether rows keep the norm of their last update.
    keeps = rows.get("last_update", False)
    return Table(
        dim=rows["dim"],
        rows=rows.get("rows"),
        max_bytes=rows.get("max_bytes"),
        init=Initial(init, tuple((key, float(value)) for key, value in settings.items())),  # type: ignore[arg-type]
        rule=_rule(told["run"]["rule"]),
        staleness=staleness.stage_aware(staleness.inverse()) if keeps else None,
        evict=rows["evict"],
        admit_after=rows["admit_after"],
        seed=rows["seed"],
        number=rows["number"],
        name=name,
    )


def _rule(config: Mapping[str, Any]) -> Rule:
    settings = {
        key: value for key, value in config.items() if key not in ("name", "schedule", "swap")
    }
    rule: Rule = _RULES[config["name"]](**settings)
    return SWAP(rule, **config["swap"]) if "swap" in config else rule
