"""Names that users know stay where they were, whatever room they lie in."""

import importlib
import pickle
import subprocess
import sys

import pytest

import leashed as lsh


@pytest.mark.parametrize("name", ["tune", "analysis"])
def test_a_module_keeps_the_name_it_had_outside_its_room(name):
    module = importlib.import_module(f"leashed.studies.{name}")
    assert importlib.import_module(f"leashed.{name}") is module


def test_they_are_found_before_anything_else_is_imported():
    code = (
        "from leashed.tune import Trial, tune; from leashed.analysis import gamma, occupancy; "
        "import leashed; assert leashed.tune is tune and leashed.analysis.gamma is gamma"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_was_pickled_before_is_read():
    candidate = pickle.loads(b"cleashed.tune\nCandidate\n.")
    assert candidate is importlib.import_module("leashed.studies.tune").Candidate


def test_everything_that_is_offered_is_there():
    for name in lsh.__all__:
        assert getattr(lsh, name) is not None
