"""Training on several machines: master, sync servers and trainers, each a process of its own (extra
``cluster``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leashed.cluster.commanding import command
    from leashed.cluster.joining import join
    from leashed.cluster.served_output import tables_of
    from leashed.cluster.session import Cluster

__all__ = ["Cluster", "command", "join", "tables_of"]

_PLACES = {
    "Cluster": "session",
    "command": "commanding",
    "join": "joining",
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
