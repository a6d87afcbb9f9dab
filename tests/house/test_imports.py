"""Python's imports go down only, and never in a circle.

Counted is every import, also one within a function (it looks up as well, only later) and one for
types alone (it makes two files know each other that cannot be read apart).
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from house.order import ROOT, circle, heights

PACKAGE = ROOT / "src" / "leashed"

# From below; those of one line do not know each other. A folder is a room; the files beside the
# rooms are what `import leashed` offers, and what that stands on.
FLOORS = (
    "_core _janitor _atomic",  # _atomic: files that are whole or not there; the native part, below all Python; what cleans up after killed processes
    "_check _warning choice machine threads",  # checks of arguments, the processor, what the core is told
    "disciplines gradients histogram membership metrics modes network schedules staleness stopping sync",
    "rules datasets plots",  # plots: pictures of arrays and histograms, for results and reports
    "stream",  # data that is read while it is used
    "spelled",  # what words of the command line and of plans stand for
    "_fits _parameters _running layers",  # what models are made of, and average in training
    "tables _reads",  # _reads: features that are ids, and what models say of their tables
    "external graphs result vector",
    "factorisation recommenders retrieval",
    "models engine shared _graph_json folders days",  # folders: of a model and its tables; days: what is known of each that is trained on
    "checkpoint sharding _onnx_graph",  # sharding: the parameters on several servers; _onnx_graph: models as another library's operations
    "resuming recordings restoring export",  # recordings: what a trace says of its run; restoring: a model and its tables, anew; export: for those who serve it
    "table_checkpoints",
    "train",
    "embeddings replaying simulation continual",  # a recorded run made again; trainings in virtual time
    "torch sklearn",
    "studies",  # many trainings, and what they tell together
    "report",  # tables, figures and the page of what studies found
    "cluster",  # several processes and machines: what trains in each, and who starts and watches them
    "shadowsync",  # the paper's experiments, on trainers and sync servers of this machine
    "cli",
    "__init__ __main__",  # what users see
)
HEIGHTS = heights(FLOORS)


def module_of(path: Path) -> str:
    """Its name below the package: "train", "cli.train", "datasets" for datasets/__init__.py."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


FILES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
MODULES = {*FILES, "_core"}


def room_of(module: str) -> str:
    return module.partition(".")[0]


def imported(path: Path) -> set[str]:
    """The modules of the package that a file imports; a name that is none counts as what has it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".", 1) for alias in node.names]
            found |= {name[1] if name[1:] else "__init__" for name in names if name[0] == "leashed"}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports relatively"
            package, _, module = (node.module or "").partition(".")
            if package == "leashed":
                names = [f"{module}.{alias.name}".lstrip(".") for alias in node.names]
                found |= {name if name in MODULES else module or "__init__" for name in names}
    return found


GRAPH = {module: imported(path) for module, path in FILES.items()}


def test_every_file_and_room_has_its_height():
    assert {room_of(module) for module in MODULES} == set(HEIGHTS), (
        "a new one has a place in FLOORS"
    )


@pytest.mark.parametrize("module", sorted(FILES))
def test_imports_go_down(module):
    room = room_of(module)
    wrong = {
        other
        for other in GRAPH[module]
        if room_of(other) != room and HEIGHTS.get(room_of(other), len(FLOORS)) >= HEIGHTS[room]
    }
    assert not wrong, f"{module} is not above {wrong}"


def test_files_import_each_other_in_no_circle():
    assert circle(GRAPH) == []
