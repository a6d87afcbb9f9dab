"""What the columns of text files become, read from a file of its own."""

from __future__ import annotations

import json
import os
from typing import Any

from leashed.base import checks
from leashed.datasets.fields import Schema

__all__ = ["schema"]

_KEYS = ("columns", "separator", "names")


def schema(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What tells :func:`csv` what columns become, from a file of JSON.

        {"columns": {"clicked": {"kind": "label"},
                     "price": {"kind": "number", "log": true, "missing": 0},
                     "city": {"kind": "hashed", "buckets": 100000}},
         "separator": ","}

        rows = lsh.stream.csv("clicks.csv", **lsh.stream.schema("schema.json"))

    Args:
        path: of a file with ``columns``, and where they are not csv's defaults ``separator`` and
            ``names``. A column's kind is ``label``, ``target``, ``weight``, ``number``, ``id``,
            ``hashed`` or ``vocabulary``; beside it stand the arguments of the class of that name.

    Raises:
        OSError: it cannot be read.
        TypeError: ``path`` is no path.
        ValueError: it is no such JSON; the message names the column.
    """
    file = checks.path(path)
    try:
        told = json.loads(file.read_bytes())
        if not isinstance(told, dict) or not isinstance(told.get("columns"), dict):
            raise TypeError('it must have {"columns": {name: {"kind": …}, …}}')
        if unknown := [key for key in told if key not in _KEYS]:
            raise ValueError(f"it has {unknown[0]!r}, and may have {', '.join(_KEYS)}")
        columns = Schema.from_json(told["columns"]).columns
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot read {path}: {error}") from error
    return {**told, "columns": columns}
