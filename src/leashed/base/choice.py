"""How choices reach the native core: a name, and numbers, tables or further choices by name."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Choice", "Setting", "from_json", "to_json"]

Setting: TypeAlias = "float | NDArray[np.float64] | tuple[str, dict[str, Setting]]"
Choice: TypeAlias = "tuple[str, dict[str, Setting]]"


def to_json(choice: Choice) -> list[Any]:
    """A choice as JSON's own types."""
    name, settings = choice
    return [name, {key: _to_json(value) for key, value in settings.items()}]


def _to_json(value: Setting) -> Any:
    if isinstance(value, tuple):
        return to_json(value)
    return {"table": value.tolist()} if isinstance(value, np.ndarray) else value


def from_json(value: list[Any]) -> Choice:
    """The choice that ``to_json`` was given."""
    name, settings = value
    return name, {key: _from_json(setting) for key, setting in settings.items()}


def _from_json(value: Any) -> Setting:
    if isinstance(value, list):
        return from_json(value)
    return np.array(value["table"]) if isinstance(value, dict) else float(value)
