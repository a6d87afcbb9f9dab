"""Each warning that the package gives has a test that it comes once, by ``warned.once``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SAYS = 12  # letters: fewer tell nothing


def calls(folder: Path, *names: str) -> Iterator[tuple[Path, ast.Call]]:
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = node.func
                name = (
                    called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                )
                if name in names:
                    yield path, node


def words(message: ast.expr) -> list[str]:
    """What of a message is the same whatever it is about."""
    parts = message.values if isinstance(message, ast.JoinedStr) else [message]
    found = [part.value for part in parts if isinstance(part, ast.Constant)]
    return [str(part) for part in found if len(str(part)) >= _SAYS]


WARNINGS = {
    f"{path.relative_to(ROOT / 'src' / 'leashed')}:{call.lineno}": words(call.args[0])
    for path, call in calls(ROOT / "src" / "leashed", "warn")
    if path.name != "warning.py"
}
TRIED = [
    text
    for _, call in calls(ROOT / "tests", "once")
    for argument in call.args
    for text in words(argument)
]


@pytest.mark.parametrize("place", WARNINGS)
def test_a_warning_has_its_test(place: str) -> None:
    said = WARNINGS[place]
    assert said, "a message is to be written where it is given, not kept in a name before"
    assert any(text in part or part in text for part in said for text in TRIED), (
        f'no test says with once("…"), of tests/warned.py, any of {said}'
    )
