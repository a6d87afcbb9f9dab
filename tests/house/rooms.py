"""The rooms of a Python package, and which imports which.

A room is a folder, or a module at the top; modules may be counted as one. An arrow is one room
importing another. Every import counts: one within a function (it looks up as well, only later), one
for types alone (it makes two files know each other that cannot be read apart), and one through the
package's ``__init__``, which runs before any of its files: whatever that imports when it runs,
every room imports.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

TOP = "__init__"


@dataclass(frozen=True)
class Package:
    """The package in ``folder``; ``native`` modules have no file that says what they import."""

    folder: Path
    native: tuple[str, ...] = ()

    @cached_property
    def files(self) -> dict[str, Path]:
        """By their names below the package: "rules", "cli.train", "cli" for cli/__init__.py."""
        return {self._name(path): path for path in sorted(self.folder.rglob("*.py"))}

    def _name(self, path: Path) -> str:
        parts = path.relative_to(self.folder).with_suffix("").parts
        return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == TOP else parts)

    @cached_property
    def at_the_top(self) -> list[str]:
        return [path.name for path in sorted(self.folder.glob("*.py"))]

    @cached_property
    def graph(self) -> dict[str, set[str]]:
        """What each file imports; a name that is no module counts as what has it."""
        return {
            name: self._imported(ast.walk(ast.parse(path.read_text())))
            for name, path in self.files.items()
        }

    def _imported(self, nodes: Collection[ast.AST]) -> set[str]:
        package, found = self.folder.name, set()
        for node in nodes:
            if isinstance(node, ast.Import):
                names = [alias.name.split(".", 1) for alias in node.names]
                found |= {name[1] if name[1:] else TOP for name in names if name[0] == package}
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, "imports are absolute"
                above, _, module = (node.module or "").partition(".")
                if above == package:
                    names = [f"{module}.{alias.name}".lstrip(".") for alias in node.names]
                    known = {*self.files, *self.native}
                    found |= {name if name in known else module or TOP for name in names}
        return found

    @cached_property
    def run_at_the_top(self) -> set[str]:
        """What the package's ``__init__`` imports when it runs, and so does whoever imports a file."""
        body = ast.parse(self.files[TOP].read_text()).body
        return self._imported(
            [
                node
                for statement in body
                if not (
                    isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
                )
                for node in ast.walk(statement)
            ]
        )

    def arrows(self, rooms: Mapping[str, str]) -> dict[tuple[str, str], set[str]]:
        """(room, room it imports): the files that do, and what each imports.

        Args:
            rooms: the rooms of modules at the top that are counted together.
        """
        found: dict[tuple[str, str], set[str]] = {}
        for name, others in self.graph.items():
            above = {other for other in self.run_at_the_top if others and name != TOP}
            for other in others | above:
                room, its = (rooms.get(n, n) for n in (room_of(name), room_of(other)))
                if room != its and other not in self.native:
                    through = "" if other in others else " (through __init__)"
                    found.setdefault((room, its), set()).add(f"{name} imports {other}{through}")
        return found


def room_of(module: str) -> str:
    return module.partition(".")[0]


def upwards(
    arrows: Mapping[tuple[str, str], set[str]], heights: Mapping[str, int]
) -> dict[tuple[str, str], set[str]]:
    """Those that do not go down; a room without a height is above all."""
    return {
        (room, other): files
        for (room, other), files in arrows.items()
        if heights.get(other, len(heights)) >= heights.get(room, -1)
    }
