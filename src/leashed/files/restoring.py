"""What a folder of a trained model holds, made anew: the model, its parameters and its tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed import staleness
from leashed.base import choice
from leashed.files import checkpoint, folders
from leashed.files.checkpoint import STATISTICS, BuiltIn
from leashed.models._columns import keep
from leashed.models.external import Description
from leashed.models.tables import Initial, RowwiseAdagrad, Table
from leashed.models.tables import check as check_tables
from leashed.rules import RULES, SWAP, Rule, Stepping

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
    your own, since a schedule and a staleness policy are not made anew. A run may go on writing
    checkpoints there: what is read is one of them.

    Args:
        path: The file; of a model with tables its folder.

    Raises:
        FileNotFoundError: There is no such file; IsADirectoryError: It is a folder without a model.
        ValueError: A file is damaged or of a newer version, the model reads tables and ``path`` has
            none, or it is external: no file holds a gradient, so that ``leashed.load`` has to be
            given one.
        OSError: Of a folder in which a run writes checkpoints, the next one came each time before
            one was read.
    """
    if folders.is_one(path):
        return folders.read(path, lambda folder: _restored(path, folder))
    return _restored(path, None)


def _restored(path: str | os.PathLike[str], folder: folders.Opened | None) -> Restored:
    model, tensors, metadata = checkpoint.read(path if folder is None else folder.model)
    if isinstance(model, Description):
        raise ValueError(  # noqa: TRY004 (a fault of the file)
            f"cannot restore {path}: its model is external, and no file holds a gradient; give the "
            f"model: leashed.load(path, {model})"
        )
    tables: dict[str, Table] = {}
    if folder is not None:
        tables = {name: _table(name, told) for name, told in folder.described_tables.items()}
        check_tables(getattr(model, "tables", ()), tables)
        folder.check()
        folder.load(tables)
    elif getattr(model, "tables", ()):
        raise ValueError(
            f"cannot restore {path}: its model reads tables, which are not there; name the "
            "folder that was saved with tables"
        )
    theta = checkpoint.whole(model, tensors)
    keep(theta, checkpoint.columns_in(metadata))
    return Restored(model, theta, tables, tensors.get(STATISTICS))


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
