"""Training on several machines: master, sync servers and trainers, each a process of its own (extra
``cluster``).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leashed.cluster.commanding import command
    from leashed.cluster.joining import join
    from leashed.cluster.served_output import tables_of
    from leashed.cluster.served_tables import table
    from leashed.cluster.session import Cluster

__all__ = ["Cluster", "command", "join", "table", "tables_of"]

_PLACES = {
    "Cluster": "session",
    "command": "commanding",
    "join": "joining",
    "table": "served_tables",
    "tables_of": "served_output",
}


def __getattr__(name: str) -> Any:
    """Imported when first asked for: what needs no msgspec, such as plans, can be had without."""
    import importlib  # noqa: PLC0415

    if name not in __all__:
        raise AttributeError(f"module 'leashed.cluster' has no attribute {name!r}")
    try:
        module = importlib.import_module(f"leashed.cluster.{_PLACES[name]}")
    except ModuleNotFoundError as error:
        if error.name == "msgspec":
            raise ImportError("a cluster needs msgspec: pip install leashed[cluster]") from error
        raise
    return getattr(module, name)


class _Package(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        """An import sets each file as an attribute: not in place of what is offered by its name, as that
        by which ``table`` was imported when the run's table was called so.
        """
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
