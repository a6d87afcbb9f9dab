"""Names that users know stay where they were, whatever room they lie in.

``public_names.txt`` lists, a line a module, what docs, README, examples, benchmarks and ``__all__``
named, and every class and function that could be pickled, before the package was made of rooms.
"""

import importlib.util
import pickle
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import leashed as lsh

TEXT = (Path(__file__).parent / "public_names.txt").read_text()
NAMES = dict(line.split(":") for line in TEXT.replace("\n    ", " ").splitlines())


OPTIONAL = ("PyTorch", "torch", "Ray", "ray", "mpi4py", "matplotlib", "sklearn", "msgspec")


def imported(module):
    """Skips the test where the module needs what is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        needs = f"{error.name} {error}"
        if any(re.search(rf"\b{package}\b", needs) for package in OPTIONAL):
            pytest.skip(str(error))
        raise


def found(module: str, name: str) -> object:
    """What a path led to; None where it leads nowhere."""
    thing = importlib.import_module(module)
    for part in name.split("."):
        try:
            thing = getattr(thing, part, None)
        except ImportError as error:  # of a file that needs what is not installed
            return error if "install" in str(error) else None
    return thing


@pytest.mark.parametrize("module", NAMES)
def test_a_module_is_where_it_was_and_so_is_all_in_it(module):
    there = imported(module)
    assert importlib.import_module(there.__name__) is there
    assert importlib.util.find_spec(there.__name__) is there.__spec__
    for name in NAMES[module].split():
        thing = found(module, name)
        assert thing is not None, name
        if isinstance(thing, type):  # what was pickled before is read
            assert pickle.loads(f"c{module}\n{name}\n.".encode()) is thing
            assert pickle.loads(pickle.dumps(thing)) is thing


HIDDEN = ("analysis", "continual", "export", "replay", "simulate", "tables", "train", "tune")
"""What ``leashed`` offers under these names stays, though modules are, or were, called so."""

BOTH_ORDERS = f"""
import importlib, sys, types
names, first = {HIDDEN}, sys.argv[1]
if first == "modules":
    for name in names:
        if name not in ("replay", "simulate"):
            importlib.import_module(f"leashed.{{name}}")
import leashed
offered = [getattr(leashed, name) for name in names]
for name in names:
    if name not in ("replay", "simulate"):
        importlib.import_module(f"leashed.{{name}}")
        exec(f"import leashed.{{name}}")
from leashed.train import mean_loss, train
from leashed.tune import tune
from leashed.continual import continual
import leashed.datasets.mnist, leashed.datasets.criteo, leashed.stream.arrow
assert [getattr(leashed, name) for name in names] == offered
assert leashed.train is train and leashed.tune is tune and leashed.continual is continual
for offer in (leashed.datasets.mnist, leashed.datasets.criteo, leashed.stream.arrow):
    assert isinstance(offer, types.FunctionType)
modules = [n for n, o in zip(names, offered) if isinstance(o, types.ModuleType)]
assert modules == ["analysis", "export", "tables"], modules
"""


def test_a_function_is_not_hidden_by_a_module_of_its_name():
    for first in ("modules", "offered"):
        subprocess.run([sys.executable, "-c", BOTH_ORDERS, first], check=True)


def test_a_moved_path_is_found_before_anything_else_is_imported():
    code = (
        "from leashed.tune import Trial, tune; from leashed.analysis import gamma, occupancy; "
        "import leashed; assert leashed.tune is tune and leashed.analysis.gamma is gamma"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_moved_path_can_be_run():
    code = "import runpy; runpy.run_module('leashed.analysis', run_name='other')"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_that_is_none_is_lacking():
    for name in ("nothing", "a.b", ".a", ""):
        assert not hasattr(lsh, name)


def test_everything_that_is_offered_is_there():
    for name in lsh.__all__:
        assert getattr(lsh, name) is not None
        assert isinstance(name, str)
    assert isinstance(lsh.tables, types.ModuleType)
