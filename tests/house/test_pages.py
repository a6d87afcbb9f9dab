"""What the pages name is there: files, folders, links and their anchors; so are the pages that the
code names. A move cannot leave them behind.

A path in backquotes may be short: `engine/worker.cc` is any file whose path ends so. `stop.*` and
`{monitor,history}.h` stand for all that they match, `studies/analysis.recurrence` for a name in a
file; `tests/<room>` names none.
"""

from __future__ import annotations

import itertools
import pkgutil
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from house.order import ROOT

import leashed as lsh
from leashed.base.moved import MOVED

FOLDERS = ("bench", "bindings", "cmake", "cpp", "docs", "examples", "models", "src", "tests")
FILES = [
    path
    for path in (*ROOT.iterdir(), *itertools.chain(*((ROOT / f).rglob("*") for f in FOLDERS)))
    if path.is_file() and "__pycache__" not in path.parts
]
NAMES = [path.relative_to(ROOT).as_posix() for path in FILES]
PATHS = {*NAMES, *(parent.as_posix() for name in NAMES for parent in Path(name).parents)}
# All that end so, by what they end with: "train.py", "training/train.py", …
ENDS = {"/".join(path.split("/")[i:]) for path in PATHS for i in range(path.count("/") + 1)}

SOURCES = {".cc", ".h", ".py", ".pyi", ".pml", ".toml"}
OF_USERS = {"run/state"}  # files that a program makes

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "bench" / "README.md"]
PAGES += sorted((ROOT / "docs").rglob("*.md"))

QUOTED = re.compile(r"`([^`\n]+)`")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SOURCE = re.compile(r"[\w./*{},-]+\.(?:h|cc|py|pyi|pml|cmake|\*|jsonl\.gz)")
FOLDER = re.compile(r"(?:[\w-]+/)+")
STEM = re.compile(r"(?:[\w-]+/)+[\w-]+")  # a file without its ending, or a folder
NAME_IN_FILE = re.compile(r"((?:\w+/)+\w+)\.(\w+)(?:\.\w+)*")
LINK = re.compile(r"\]\(([^()\s:#]*)(?:#([^()\s]*))?\)")
MODULE = re.compile(r"leashed((?:\.(?!(?:h|cc|pxd)$)\w+)+)")
NAMED_IN_CODE = re.compile(r"\bdocs/(\w+\.md)(?:#([\w-]+))?(?:,[\s/#]+decision (\d+))?")


def spelled_out(name: str) -> list[str]:
    """``a/{b,c}.h`` as ``a/b.h`` and ``a/c.h``."""
    found = re.fullmatch(r"(.*)\{(.*)\}(.*)", name)
    if not found:
        return [name]
    before, choices, after = found.groups()
    return [before + choice + after for choice in choices.split(",")]


def is_there(name: str) -> bool:
    if "*" in name:
        return any(fnmatchcase(end, name) for end in ENDS if end.count("/") == name.count("/"))
    return name.strip("/") in ENDS


def defines(name: str, attribute: str) -> bool:
    """Whether a Python file whose path ends with ``name`` has the attribute."""
    files = [ROOT / path for path in NAMES if f"/{path}".endswith(f"/{name}.py")]
    return any(re.search(rf"\b{attribute}\b", path.read_text("utf-8")) for path in files)


def missing(text: str) -> list[str]:
    """The names in backquotes that nothing has."""
    found = []
    for quoted in QUOTED.findall(FENCED.sub("", text)):
        if "<" in quoted:
            continue
        if SOURCE.fullmatch(quoted) or FOLDER.fullmatch(quoted):
            found += [name for name in spelled_out(quoted) if not is_there(name)]
        elif (named := NAME_IN_FILE.fullmatch(quoted)) and is_there(f"{named[1]}.py"):
            if not defines(named[1], named[2]):
                found.append(quoted)
        elif STEM.fullmatch(quoted) and quoted not in OF_USERS:
            found += [quoted] if not is_there(quoted) and not is_there(f"{quoted}.*") else []
    return found


def anchors(page: Path) -> set[str]:
    """The anchors of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text("utf-8")), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page):
    assert missing(page.read_text("utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page):
    wrong = []
    for target, anchor in LINK.findall(FENCED.sub("", page.read_text("utf-8"))):
        there = (page.parent / target).resolve() if target else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            wrong.append(f"{target}#{anchor}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_of_the_package_lead_somewhere(page):
    if page.name == "CHANGELOG.md":  # which names what there was
        return
    wrong = []
    for quoted in QUOTED.findall(FENCED.sub("", page.read_text("utf-8"))):
        if not (named := MODULE.fullmatch(quoted)):
            continue
        name = named[1][1:]
        if name.partition(".")[0] in MOVED.keys() - set(lsh.__all__) or not leads(name):
            wrong.append(quoted)
    assert wrong == []


def leads(name: str) -> bool:
    """Whether the package has it; what needs a package that is not installed counts as there."""
    try:
        pkgutil.resolve_name(f"leashed.{name}")
    except AttributeError:
        return False
    except ImportError as error:
        return not str(error.name).startswith("leashed")
    return True


def test_pages_that_the_code_names_are_there():
    decisions = re.findall(
        r"^(\d+)\. ", (ROOT / "docs" / "architecture.md").read_text("utf-8"), re.MULTILINE
    )
    wrong, named = [], 0
    for path in FILES:  # but those beside this one, which make names up
        if path.suffix not in SOURCES or path.parent == Path(__file__).parent:
            continue
        for name, anchor, decision in NAMED_IN_CODE.findall(path.read_text("utf-8")):
            named += 1
            page = ROOT / "docs" / name
            if (
                not page.exists()
                or (anchor and anchor not in anchors(page))
                or (decision and decision not in decisions)
            ):
                wrong.append(f"{path.relative_to(ROOT)}: {name}#{anchor} {decision}")
    assert wrong == []
    assert named > 50


@pytest.mark.parametrize(
    "name",
    [
        "engine/no_such_worker.cc",
        "src/leashed/nowhere/",
        "nothing_like_it.*",
        "{order,no_such_order}.py",
        "studies/analysis.no_such_name",
        "cpp/leashed/no_such_room",
        "no_such_room/worker",
    ],
)
def test_a_name_that_nothing_has_is_told(name):
    assert missing(f"see `{name}` there") != []
    assert missing("see `house/order.py`, `house/{order,extending}.py`, `tests/house/`") == []
