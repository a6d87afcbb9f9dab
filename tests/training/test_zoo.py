"""Every model is the same one in another process, whatever is asked of it there."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zoo

import leashed as lsh


def test_every_model_is_in_it() -> None:
    functions = {name for name, _ in inspect.getmembers(lsh.models, inspect.isfunction)} - {"offer"}
    assert {name.split(",")[0] for name in zoo.MADE} == functions


@pytest.mark.process
def test_what_is_saved_is_all_of_it_in_another_process(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the test extra has onnxruntime")
    here = {}
    for name in zoo.MADE:
        found, data, test = zoo.trained(name)
        found.model.save(tmp_path / name)
        here[name] = zoo.says(found.model, data, test, tmp_path / f"{name}.onnx")
    program = [sys.executable, "-W", "error", zoo.__file__, tmp_path]
    subprocess.run(program, check=True, timeout=120)
    for name, said in here.items():
        there = np.load(tmp_path / f"{name}.npz")
        assert set(there) == set(said), name
        for what, found in said.items():
            np.testing.assert_array_equal(there[what], found, err_msg=f"{name}: {what}")
        if "exported" in said and "best" not in said:  # there vectors of users are exported
            exported = said["exported"].reshape(said["predicted"].shape)
            np.testing.assert_allclose(exported, said["predicted"], atol=1e-5, err_msg=name)
