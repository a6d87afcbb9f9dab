#!/usr/bin/env python3
"""The tests of what a change touches, for ``make check``: paths for pytest, a line each.

A change is what differs from where this branch left main, committed or not. tests/house always
belongs to it. With ``--cpp``, the names of the C++ tests instead; none where no C++ changed.

    pytest $(tests/touched.py)
    ctest -R "^($(tests/touched.py --cpp | paste -sd '|'))$"

A folder of the package, of the core and of the tests have one name where they have one duty:
src/leashed/stream is tested by tests/stream, or by tests/test_stream.py, and cpp/leashed/table by
tests/cpp/table. What has no tests under its own name is tested by those that name it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

HOUSE = "tests/house"  # how everything fits together
# A bit of everything: of what is below nearly all of it, and of the core.
SMOKE = (
    "tests/engine/test_parameter_vector.py",
    "tests/models/test_core_arguments.py",
    "tests/training/test_bad_input.py",
    "tests/training/test_train.py",
)

WIDELY = 4  # rooms that use a file: tests of more than these are everybody's
INSTEAD = {
    "base": (*SMOKE, "tests/test_public_names.py"),  # below everything
    "disciplines": ("tests/engine",),  # every test has one
    "include": ("tests/gradients",),  # leashed.h, for gradients from outside
    "stopping": SMOKE,  # nearly every test has an `until`
}

# What is not the package, the core or a test, and has tests: by how its path begins, the first one.
ELSEWHERE = (
    ("bindings/", SMOKE),
    ("cmake/", SMOKE),
    ("CMakeLists.txt", SMOKE),
    ("bench/experiments/", ("tests/bench/test_papers.py",)),  # what was measured
    ("bench/results/", ()),
    ("bench/", ("tests/bench",)),
    ("docs/papers/", ("tests/bench/test_papers.py",)),
    ("examples/", ("tests/docs/test_examples.py",)),
    ("README.md", ("tests/docs/test_readme.py",)),
    ("tests/cpp/", ()),
    ("tests/packaging/", ()),  # runs by itself, not under pytest
    ("tests/house/", ()),
)


# Rooms that have tests in test_faults too (tests/cpp/CMakeLists.txt).
FAULTS = {"base", "cluster", "engine", "modes", "vector"}
# Whose tests also test a room: models run most kernels and losses.
ALSO = {"kernels": {"columns", "graph", "network"}, "model": {"graph", "network"}}


class NoTestsError(LookupError):
    """A file of the package or of the core that no test is found for."""


def touched(paths: Iterable[str], root: Path = ROOT) -> list[str]:
    """Paths of tests for changed files of the repository: tests/house first, then sorted.

    Raises:
        NoTestsError: A file of the package or of the core has none.
    """
    found = {HOUSE, *(test for path in paths for test in _tests(path, root))}
    inside = tuple(f"{test}/" for test in found if not test.endswith(".py"))
    return [HOUSE, *sorted(test for test in found - {HOUSE} if not test.startswith(inside))]


def touched_cpp(paths: Iterable[str], root: Path = ROOT) -> list[str]:
    """Names of C++ tests for changed files: of their rooms, or all where they belong to none.

    Raises:
        NoTestsError: A room of the core has none.
    """
    rooms = {path.parent.name for path in (root / "tests" / "cpp").glob("*/test_*.cc")}
    found: set[str] = set()
    for path in paths:
        match path.split("/"):
            case ["cpp", "leashed", room, _, *_]:
                if room not in rooms:
                    if not (root / path).exists():
                        continue  # the room is gone
                    raise NoTestsError(f"{path} has no tests: add tests/cpp/{room}/test_*.cc")
                found |= {room, *ALSO.get(room, ())}
            case ["tests", "cpp", room, _, *_] if room in rooms:
                found.add(room)
            case ["cpp" | "cmake", *_] | ["CMakeLists.txt"] | ["tests", "cpp", *_]:
                found |= rooms
    return sorted(found | ({"faults"} if found & FAULTS else set()))


def _tests(path: str, root: Path) -> list[str]:
    match path.split("/"):
        case ["src", "leashed", "__init__.py" | "__main__.py" | "_core.pyi" | "py.typed"]:
            return list(SMOKE)
        case ["src", "leashed", first, *_]:
            return _of_module(path, first.removesuffix(".py"), root)
        case ["cpp", *_]:
            return list(SMOKE)
        case ["docs", page] if page.endswith(".md"):
            return _having(rf"\b{re.escape(page)}\b", root)
        case ["models", model]:
            return _having(rf"\b{re.escape(Path(model).stem)}\b", root, "tests/protocols")
        case ["tests", *_] if not path.startswith(
            ("tests/cpp/", "tests/packaging/", "tests/house/")
        ):
            return _of_test(path, root)
    for beginning, tests in ELSEWHERE:
        if path.startswith(beginning):
            return list(tests)
    return []  # the build, the CI, what is read by people: tests/house


def _of_module(path: str, room: str, root: Path) -> list[str]:
    """Of a file in ``room`` of the package; a file at its top is a room of its own."""
    name = room if path.endswith("__init__.py") else Path(path).stem
    for known in (room, name):
        if known in INSTEAD:
            return list(INSTEAD[known])
    found = _about(room, root) if (root / "tests" / room).is_dir() else _about(name, root)
    if found or (found := _about(room, root)):
        return found
    users = _having(_module(name), root, "src/leashed", "*.py")
    rooms = {user.split("/")[2].removesuffix(".py") for user in users} - {room, "__init__"}
    if len(rooms) > WIDELY:
        return list(SMOKE)
    found = [test for user in rooms for test in _about(user, root)]
    if found or not (root / path).exists():  # what is deleted may have been the last one's
        return found
    raise NoTestsError(
        f"{path} has no tests: there is no tests/{room}, no test file has {name} in its name, and "
        "none imports it; add one"
    )


def _about(name: str, root: Path) -> list[str]:
    """The folder of that name; else the files that have it in their names; else those that use it."""
    if (root / "tests" / name).is_dir():
        return [f"tests/{name}"]
    word = re.compile(rf"_{name.lstrip('_')}(_|$)")
    named = [test for test in _texts(root, "tests", "test_*.py") if word.search(Path(test).stem)]
    return named or _having(_module(name), root)


def _module(name: str) -> str:
    """How a file names a module of the package."""
    return rf"\b(?:leashed|lsh)\.(?:\w+\.)*{name}\b|\bfrom leashed[\w.]* import .*\b{name}\b"


def _of_test(path: str, root: Path) -> list[str]:
    """A test is for itself; what tests share is for those that import it."""
    *folder, file = path.split("/")
    if file.startswith("test_"):
        return [path] if (root / path).exists() else []
    if file == "conftest.py" and len(folder) == 1:
        return ["tests"]
    if len(folder) > 1:
        return ["/".join(folder[:2])] if (root / folder[0] / folder[1]).exists() else []
    if not file.endswith(".py"):
        return _having(rf"\b{re.escape(file)}\b", root)
    return _having(rf"^\s*(?:import|from) {re.escape(Path(file).stem)}\b", root)


def _having(
    pattern: str, root: Path, below: str = "tests", files_like: str = "test_*.py"
) -> list[str]:
    """Files that have the pattern in them."""
    found = re.compile(pattern, re.MULTILINE)
    return [name for name, text in _texts(root, below, files_like).items() if found.search(text)]


@cache
def _texts(root: Path, below: str, files_like: str) -> dict[str, str]:
    files = sorted((root / below).rglob(files_like))
    return {str(file.relative_to(root)): file.read_text("utf-8") for file in files}


def changed() -> list[str]:
    """Files that differ from where this branch left main, committed or not."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(
            ("git", *words), cwd=ROOT, check=False, capture_output=True, text=True
        )
        return done.stdout.splitlines() if done.returncode == 0 else []

    if not git("rev-parse", "HEAD"):
        raise SystemExit("what has changed is known only in a git checkout: run make test instead")
    base = next(
        (found for main in ("main", "origin/main") for found in git("merge-base", "HEAD", main)),
        "HEAD",
    )
    return [
        *git("diff", "--name-only", "--no-renames", base),
        *git("ls-files", "--others", "--exclude-standard"),
    ]


def main(words: list[str]) -> int:
    if words not in ([], ["--cpp"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        found = touched_cpp(changed()) if words else touched(changed())
    except NoTestsError as error:
        print(error, file=sys.stderr)
        return 1
    for test in found:
        print(test)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
