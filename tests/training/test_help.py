"""``help(lsh.train)``: an example first, arguments in groups, each told once, on less than 80 lines."""

from __future__ import annotations

import inspect
import pydoc
import re

import leashed as lsh

PARAMETERS = [
    f"**{name}" if one.kind is one.VAR_KEYWORD else name
    for name, one in inspect.signature(lsh.train).parameters.items()
]
TEXT = inspect.getdoc(lsh.train) or ""
GROUPS = dict(re.findall(r"^(\w.*):\n((?:    .*\n|\n)+)", TEXT, re.MULTILINE))
del GROUPS["Returns"], GROUPS["Raises"]


def told(text: str) -> list[str]:
    """The arguments that an indented text tells of, in order."""
    return re.findall(r"^    (\*{0,2}\w+): ", text, re.MULTILINE)


def test_it_fits_a_screen_or_two() -> None:
    shown = pydoc.plain(pydoc.render_doc(lsh.train)).rstrip().splitlines()
    signature = next(line for line in shown if line.startswith("train("))
    # A Python from 3.13 on writes an argument a line, the others all in one.
    lines = len(shown) + (len(PARAMETERS) + 2 if "model" in signature else 0)
    assert lines < 80
    assert max(map(len, TEXT.splitlines())) <= 110


def test_an_example_comes_first() -> None:
    first = next(line for line in TEXT.splitlines()[1:] if line.strip())
    assert first.startswith("    data = lsh.")
    assert TEXT.index("lsh.train(") < TEXT.index("model: ")


def test_every_argument_is_told_once_in_its_order() -> None:
    of_groups = [name for text in GROUPS.values() for name in told(text)]
    assert of_groups == PARAMETERS


def test_what_is_for_researchers_comes_last() -> None:
    names = [name for name, text in GROUPS.items() if told(text)]
    assert len(names) >= 4
    last = ["cluster", "discipline", "staleness", "mode", "dense", "**old"]
    assert told(GROUPS[names[-1]]) == last
