"""The data of a run that whoever starts its processes has read, for them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leashed.cluster import fingerprint, handed_data
from leashed.cluster import plan as plans
from leashed.cluster.plan import Train
from leashed.cluster.supervisor import Supervisor, supervise

ROWS = "label,a,b\n" + "".join(f"{k % 2},w{k % 5},{k / 7}\n" for k in range(40))
SVM = "".join(f"{k % 2} {k % 5 + 1}:1 {k % 3 + 6}:0.5\n" for k in range(40))


@pytest.fixture(autouse=True)
def asked_again() -> Iterator[None]:
    handed_data._inherited.cache_clear()
    yield
    handed_data._inherited.cache_clear()


def arrays(found: Any) -> dict[str, np.ndarray]:
    """What a set holds, by name."""
    held: dict[str, np.ndarray] = {}
    for field in fields(found) if hasattr(found, "__dataclass_fields__") else ():
        value = getattr(found, field.name)
        parts = value if isinstance(value, tuple) else (value,)
        for k, part in enumerate(parts):
            if isinstance(part, np.ndarray):
                held[f"{field.name}{k}"] = part
            else:
                held |= {f"{field.name}{k}.{name}": one for name, one in arrays(part).items()}
    return held


def words(kind: str, folder: Path) -> Train:
    (folder / "rows.csv").write_text(ROWS)
    (folder / "rows.svm").write_text(SVM)
    return {
        "digits": Train(),
        "clicks": Train(model="din", data="clicks"),
        "rows": Train(model="deepfm", data=str(folder / "rows.csv"), label="label", batch_size=4),
        "svm": Train(model="fm", data=str(folder / "rows.svm"), batch_size=4),
    }[kind]


@pytest.mark.parametrize("kind", ["digits", "clicks", "rows", "svm"])
def test_it_is_what_was_read_and_lies_where_all_see_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = words(kind, tmp_path)
    read = train.problem()
    file = handed_data.hand_on(train, read)
    try:
        monkeypatch.setenv(handed_data.VARIABLE, str(file))
        taken = handed_data.taken(train)
        assert handed_data.taken(replace(train, seed=1)) is None  # another's
    finally:
        os.close(file)
    assert taken is not None
    assert handed_data.VARIABLE not in os.environ  # for who is started by this process
    assert fingerprint.of_model(taken.model) == fingerprint.of_model(read.model)
    np.testing.assert_array_equal(taken.model.init(3), read.model.init(3))
    for was, here in zip(read[1:], taken[1:], strict=True):
        assert type(was) is type(here)
        held, there = arrays(was), arrays(here)
        assert held.keys() == there.keys()
        assert bool(held) == (was is not None)
        for name, array in held.items():
            np.testing.assert_array_equal(array, there[name])
            assert array.dtype == there[name].dtype
            assert not there[name].flags.owndata, name
            assert not there[name].flags.writeable, name


def test_without_it_everybody_reads() -> None:
    assert handed_data.taken(Train()) is None


def test_processes_have_what_is_no_file_any_more(tmp_path: Path) -> None:
    train = words("rows", tmp_path)
    plan = plans.Plan(plans.Cluster(run=tmp_path, embedding_ps=1), plans.Sync(), train)
    plans.write(tmp_path / "plan.toml", plan)
    read = train.problem()
    file = handed_data.hand_on(train, read)
    (tmp_path / "rows.csv").unlink()
    source = (
        "import sys; from pathlib import Path; from leashed.cluster import plan\n"
        "print(len(plan.read(Path(sys.argv[1])).problem().train))"
    )
    program = [sys.executable, "-c", source, str(tmp_path / "plan.toml")]
    try:
        inherited = {handed_data.VARIABLE: file}
        with Supervisor(
            [("master", 0)], lambda *_: program, tmp_path, inherited=inherited
        ) as supervisor:
            supervise(supervisor, 60.0, lambda: None)
    finally:
        os.close(file)
    assert (tmp_path / "master.log").read_text().splitlines()[-1] == str(len(read.train))


def test_python_need_not_know_such_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of uv and conda, which is built for older systems."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    os.close(handed_data.hand_on(Train(), Train().problem()))


def test_it_is_none_of_the_descriptors_that_processes_have_of_their_own() -> None:
    """Of a program whose standard input is closed the first file has its number."""
    source = """
from leashed.cluster import handed_data
from leashed.cluster.plan import Train
print(handed_data.hand_on(Train(), Train().problem()))
"""
    closed = ["sh", "-c", 'exec "$0" -c "$1" <&-', sys.executable, source]
    assert int(subprocess.run(closed, check=True, capture_output=True).stdout) > 2
