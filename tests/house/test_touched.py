"""``make check`` finds the tests of what a change touches."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from house.order import ROOT
from touched import FAULTS, HOUSE, SMOKE, NoTestsError, touched, touched_cpp


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with a room of each kind."""
    for name, text in {
        "src/leashed/__init__.py": "from leashed.spice import Salt\n",
        "src/leashed/kitchen/oven.py": "",
        "src/leashed/spice.py": "",
        "src/leashed/pans.py": "",
        "src/leashed/drawer/knife.py": "",
        "src/leashed/drawer/spoon.py": "from leashed.drawer import knife\n",
        "src/leashed/cellar/rack.py": "",
        "src/leashed/attic.py": "",
        "tests/kitchen/test_oven.py": "from leashed.drawer.spoon import Spoon\n",
        "tests/kitchen/test_bread.py": "import dough\n\nlsh.cellar.rack.lift()\n",
        "tests/test_spice.py": "",
        "tests/test_frying.py": "from leashed import pans\n\nPAGE = 'frying.md'\n",
        "tests/dough.py": "",
        "tests/cpp/kitchen/test_oven.cc": "",
        "tests/cpp/drawer/test_knife.cc": "",
        "cpp/leashed/attic/dust.cc": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("src/leashed/kitchen/oven.py", ["tests/kitchen"]),
        ("src/leashed/spice.py", ["tests/test_spice.py"]),
        ("src/leashed/pans.py", ["tests/test_frying.py"]),
        ("src/leashed/cellar/rack.py", ["tests/kitchen/test_bread.py"]),
        ("src/leashed/drawer/knife.py", ["tests/kitchen/test_oven.py"]),  # through the spoon
        ("src/leashed/__init__.py", list(SMOKE)),
        ("cpp/leashed/kitchen/oven.cc", list(SMOKE)),
        ("bindings/oven.cc", list(SMOKE)),
        ("docs/frying.md", ["tests/test_frying.py"]),
        ("docs/prose.md", []),
        ("tests/kitchen/test_oven.py", ["tests/kitchen/test_oven.py"]),
        ("tests/kitchen/shared.py", ["tests/kitchen"]),
        ("tests/dough.py", ["tests/kitchen/test_bread.py"]),
        ("tests/kitchen/test_gone.py", []),
        ("tests/conftest.py", ["tests"]),
        ("pyproject.toml", []),
        ("src/leashed/gone.py", []),
    ],
)
def test_a_file_has_the_tests_of_its_room(tree, path, tests):
    assert touched([path], tree) == [HOUSE, *sorted(tests)]


def test_a_folder_stands_for_the_files_in_it(tree):
    paths = ["tests/kitchen/test_oven.py", "src/leashed/kitchen/oven.py", "tests/test_spice.py"]
    assert touched(paths, tree) == [HOUSE, "tests/kitchen", "tests/test_spice.py"]


def test_a_file_without_tests_is_told(tree):
    with pytest.raises(NoTestsError, match=r"src/leashed/attic\.py has no tests: .* add one"):
        touched(["src/leashed/attic.py"], tree)
    with pytest.raises(NoTestsError, match=r"add tests/cpp/attic/test_\*\.cc"):
        touched_cpp(["cpp/leashed/attic/dust.cc"], tree)


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["src/leashed/spice.py", "bindings/oven.cc", "docs/frying.md"], []),
        (["cpp/leashed/kitchen/oven.cc", "tests/cpp/kitchen/test_oven.cc"], ["kitchen"]),
        (["cpp/leashed/gone/dust.cc"], []),
        (["CMakeLists.txt"], ["drawer", "kitchen"]),
        (["tests/cpp/main.cc"], ["drawer", "kitchen"]),
    ],
)
def test_a_room_of_the_core_has_its_test(tree, paths, names):
    assert touched_cpp(paths, tree) == names


def test_every_file_of_this_repository_has_tests():
    sources = [
        str(path.relative_to(ROOT))
        for folder in ("src/leashed", "cpp/leashed", "bindings")
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in {".py", ".pyi", ".h", ".cc"}
    ]
    for path in sources:
        assert all((ROOT / test).exists() for test in touched([path])), path
    touched_cpp(sources)


def test_rooms_with_faults_are_those_of_the_build():
    text = (ROOT / "tests" / "cpp" / "CMakeLists.txt").read_text()
    listed = re.search(r"set\(FAULT_TESTS([^)]*)\)", text)[1].split()
    assert {Path(test).parent.name for test in listed} == FAULTS
