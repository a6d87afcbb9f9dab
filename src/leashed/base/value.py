"""Values: frozen dataclasses of which the core has many kinds."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

__all__ = ["Value"]


class Value:
    """Base of frozen dataclasses that are equal, hashed and shown by their fields.

    ``@dataclass`` compiles a method for each of that, for each class, whenever its module is imported.
    These are compiled once, so such a class is a ``@dataclass(frozen=True, eq=False, repr=False)``.
    """

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        names = (one.name for one in fields(cast("Any", self)) if one.repr)
        told = (f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({', '.join(told)})"


def _values(of: object) -> tuple[Any, ...]:
    return tuple(getattr(of, one.name) for one in fields(cast("Any", of)) if one.compare)
