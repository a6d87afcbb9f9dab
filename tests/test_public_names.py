"""Names that users know stay where they were, whatever room they lie in.

``public_names.txt`` lists, a line a module, what docs, README, examples, benchmarks and ``__all__``
named, and every class and function that could be pickled, before the package was made of rooms.
"""

import importlib.util
import pickle
import subprocess
import sys
import types
from pathlib import Path

import leashed as lsh

TEXT = (Path(__file__).parent / "public_names.txt").read_text()
NAMES = dict(line.split(":") for line in TEXT.replace("\n    ", " ").splitlines())


def found(module: str, name: str) -> object:
    """What a path led to; None where it leads nowhere."""
    thing = importlib.import_module(module)
    for part in name.split("."):
        thing = getattr(thing, part, None)
    return thing


def test_every_name_is_where_it_was():
    lacking = [
        f"{module}.{name}"
        for module, names in NAMES.items()
        for name in names.split()
        if found(module, name) is None
    ]
    assert not lacking


def test_a_path_that_moved_leads_to_the_very_module():
    for module in NAMES:
        there = importlib.import_module(module)
        assert importlib.import_module(there.__name__) is there
        assert importlib.util.find_spec(there.__name__) is there.__spec__


def test_what_was_pickled_before_is_read():
    for module, names in NAMES.items():
        for name in names.split():
            if isinstance(kind := found(module, name), type):
                assert pickle.loads(f"c{module}\n{name}\n.".encode()) is kind
                assert pickle.loads(pickle.dumps(kind)) is kind


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


def test_everything_that_is_offered_is_there():
    for name in lsh.__all__:
        assert getattr(lsh, name) is not None
        assert isinstance(name, str)
    assert isinstance(lsh.tables, types.ModuleType)
