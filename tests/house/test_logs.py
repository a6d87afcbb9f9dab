"""A log has an error's words, never the error: who keeps its record would keep what was there where it
arose, connections too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from house.order import ROOT

SOURCES = sorted((ROOT / "src" / "leashed").rglob("*.py"))


def errors_logged(text: str) -> Iterator[int]:
    """The lines of calls of ``_log`` that are given an error itself."""
    for handler in ast.walk(ast.parse(text)):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None:
            continue
        for call in ast.walk(handler):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            of = call.func.value
            if isinstance(of, ast.Name) and of.id == "_log":
                given = (a.id for a in call.args if isinstance(a, ast.Name))
                if handler.name in given:
                    yield call.lineno


def test_an_error_that_is_logged_is_found() -> None:
    text = "try:\n    f()\nexcept OSError as e:\n    _log.info('%s', {})\n"
    assert list(errors_logged(text.format("e"))) == [4]
    assert list(errors_logged(text.format("str(e)"))) == []


@pytest.mark.parametrize("room", sorted({path.parent for path in SOURCES}), ids=lambda p: p.name)
def test_logs_keep_no_errors(room: object) -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in SOURCES
        if path.parent == room
        for line in errors_logged(path.read_text(encoding="utf-8"))
    }
    assert not found, "give the log str(error)"
