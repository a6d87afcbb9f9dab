"""The code of docs/extending.md: files, lines that are added to others, and a program."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEW_FILE = re.compile(r"(?:// |# )((?:cpp|src)/\S+)\n")
ABOVE = re.compile(r"# (src/\S+), above (\w+)\n")


@dataclass
class Page:
    """What the page adds.

    Attributes:
        files: new files, by path.
        pieces: (path, name, text): goes above the definition of that name and its comments.
        lines: (path, hunks): lines to be added and removed, between others.
        program: what shows that it works.
    """

    files: dict[str, str] = field(default_factory=dict)
    pieces: list[tuple[str, str, str]] = field(default_factory=list)
    lines: list[tuple[str, list[str]]] = field(default_factory=list)
    program: str = ""

    @property
    def touched(self) -> set[str]:
        """Files that are there, and are added to."""
        return {path for path, *_ in (*self.pieces, *self.lines)}

    def apply(self, root: Path) -> None:
        """Writes all of it into a copy of the repository. ValueError where it does not fit."""
        for name, text in self.files.items():
            if (root / name).exists():
                raise ValueError(f"{name} is there already")
            (root / name).write_text(text)
        for name, above, text in self.pieces:
            path = root / name
            path.write_text(_above(path.read_text(), above, text, name))
        for name, hunks in self.lines:
            path = root / name
            content = path.read_text()
            for hunk in hunks:
                content = _changed(content, hunk, name)
            path.write_text(content)


def parse(text: str) -> Page:
    page = Page()
    for language, block in BLOCK.findall(text):
        if file := NEW_FILE.match(block):
            page.files[file[1]] = block[file.end() :]
        elif piece := ABOVE.match(block):
            page.pieces.append((piece[1], piece[2], block[piece.end() :]))
        elif language == "diff":
            name, _, hunks = block.partition("\n")
            page.lines.append((name.removeprefix("+++ "), hunks.split("@@\n")))
        elif language == "python":
            page.program += block
        else:
            raise ValueError(f"a block of {language} is neither a file nor added to one:\n{block}")
    return page


def _above(content: str, name: str, text: str, path: str) -> str:
    """``content`` with ``text`` above the definition of ``name`` and the comments that belong to it."""
    found = re.search(rf"^(#.*\n)*{name}\b", content, re.MULTILINE)
    if not found:
        raise ValueError(f"{path} does not define {name}")
    return f"{content[: found.start()]}{text}\n\n{content[found.start() :]}"


def _changed(content: str, hunk: str, path: str) -> str:
    """``content`` with the lines of ``hunk`` that begin with + added, and those with - removed."""
    lines = hunk.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] in " -")
    after = "".join(line[1:] for line in lines if line[0] in " +")
    if content.count(before) != 1:
        raise ValueError(f"{path} has {content.count(before)} times, and not once:\n{before}")
    return content.replace(before, after)
