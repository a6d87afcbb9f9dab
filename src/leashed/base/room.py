"""Rooms: packages whose names are found when they are first asked for (PEP 562).

    offer(__name__, {"clicks": "Bags ClickDataset", "criteo": "criteo"})

in an ``__init__`` imports neither file. The first use of ``leashed.datasets.Bags`` imports
``leashed/datasets/clicks.py``, and then the name stands in the package as after an import.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["offer"]


def offer(
    package: str, names: Mapping[str, str], *, modules: str = "", every: Sequence[str] = ()
) -> None:
    """Has ``package`` offer names of its files.

    Args:
        package: its ``__name__``.
        names: of each file, by its path below the package, the names that are offered, between
            spaces.
        modules: files and folders of the package that are offered themselves, between spaces.
        every: files of which all is offered that stands in their ``__all__``, and, untold, what
            other classes and functions they define. They are asked in turn for what nothing else has.

    A name that lies in a file which needs a package that is not installed raises that file's
    ImportError.
    """
    room = sys.modules[package]
    room.__class__ = _Room
    vars(room)["_places"] = {name: file for file, some in names.items() for name in some.split()}
    vars(room)["_modules"] = modules.split()
    vars(room)["_every"] = tuple(every)


class _Room(ModuleType):
    _places: dict[str, str]
    _modules: list[str]
    _every: tuple[str, ...]

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return self._offered()
        if file := self._places.get(name):
            found = getattr(import_module(f"{self.__name__}.{file}"), name)
        elif name.startswith("__") or not name.isidentifier():
            raise self._lacking(name)
        else:
            found = self._file(name) or self._of_every(name)
        vars(self)[name] = found
        return found

    def _file(self, name: str) -> ModuleType | None:
        path = f"{self.__name__}.{name}"
        try:
            return import_module(path)
        except ModuleNotFoundError as error:
            if error.name != path:
                raise
            return None

    def _of_every(self, name: str) -> Any:
        for file in self._every:
            module = import_module(f"{self.__name__}.{file}")
            found = getattr(module, name, None)
            if name in module.__all__ or getattr(found, "__module__", None) == module.__name__:
                return found
        raise self._lacking(name)

    def _lacking(self, name: str) -> AttributeError:
        return AttributeError(
            f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self
        )

    def __setattr__(self, name: str, value: object) -> None:
        """An import sets each file as an attribute of its package: not in place of what the package
        offers by that name.
        """
        if not (name in self._places and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def _offered(self) -> list[str]:
        files = (import_module(f"{self.__name__}.{file}") for file in self._every)
        every = (name for file in files for name in file.__all__)
        return sorted({*self._places, *self._modules, *every})

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._offered()})
