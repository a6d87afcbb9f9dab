"""Tables that grow to a share of the machine's memory."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from warned import once

import leashed as lsh
from leashed.base import memory
from leashed.datasets import ClickDataset
from leashed.models import tables

MIB = 2**20
IDS = np.random.default_rng(0).integers(0, 5000, (3000, 2))
DATA = ClickDataset.from_arrays(None, IDS, IDS[:, 0] % 2)


def _machine(monkeypatch: pytest.MonkeyPatch, bytes_: int | None) -> None:
    monkeypatch.setattr(memory, "total", lambda: bytes_)


def _model() -> lsh.models.Graph:
    return lsh.models.wide_deep(None, 4, 0, hidden=(4,), categories=2)


def _most(made: dict[str, lsh.Table]) -> int:
    return sum(table.statistics()["most_bytes"] for table in made.values())


@pytest.mark.parametrize(("share", "part"), [(None, 0.25), (0.5, 0.5), (1, 1.0)])
def test_all_tables_of_a_model_take_that_share_together(
    share: float | None, part: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    _machine(monkeypatch, 64 * MIB)
    made = tables.of(_model().tables, share=share)
    assert 0.8 * part * 64 * MIB < _most(made) <= part * 64 * MIB
    capacities = [table.statistics()["capacity"] for table in made.values()]
    assert max(capacities) < 1.3 * min(capacities)  # though some have 4 floats and some 1


def test_a_training_that_is_told_nothing_takes_a_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, 64 * MIB)
    result = lsh.train(_model(), DATA, threads=1)
    assert sum(table.max_bytes or 0 for table in result.tables.values()) == pytest.approx(16 * MIB)


def test_where_nothing_tells_how_much_there_is_tables_are_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _machine(monkeypatch, None)
    assert {table.max_bytes for table in tables.of(_model().tables).values()} == {16 * MIB}


def test_a_large_share_of_few_ids_takes_little() -> None:
    made = tables.of(_model().tables)
    made["c0"].update([1, 2, 3], np.zeros((3, 4)))
    assert sum(table.statistics()["bytes"] for table in made.values()) < 8 * MIB


def test_wrong_shares_are_named() -> None:
    for share, message in ((0, "share must be"), (1.5, "share must be at most 1")):
        with pytest.raises(ValueError, match=message):
            tables.of(_model().tables, share=share)
    with pytest.raises(ValueError, match="share and max_bytes both"):
        tables.of(_model().tables, share=0.5, max_bytes=MIB)


def test_a_full_share_is_told_once_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, MIB // 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lsh.train(_model(), DATA, threads=1, until=lsh.until(epochs=3))
    told = [str(one.message) for one in caught if "is full" in str(one.message)]
    assert len(told) == 1
    assert "table c" in told[0] or "table w" in told[0]
    assert "raise share (0.25) of tables.of" in told[0]


def test_a_run_goes_on_with_its_tables_on_a_machine_of_another_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _machine(monkeypatch, 64 * MIB)
    given = {"threads": 1, "batch_size": 100}
    whole = lsh.train(_model(), DATA, until=lsh.until(updates=20), **given)
    lsh.train(_model(), DATA, until=lsh.until(updates=10), checkpoint=tmp_path / "run", **given)
    _machine(monkeypatch, 32 * MIB)
    with once("GiB, as when it was begun; a share of ") as told:
        on = lsh.train(
            _model(), DATA, until=lsh.until(updates=20), resume=tmp_path / "run", **given
        )
    assert "may grow to 0.0156 GiB" in str(told[0].message)
    assert "a share of 0.25 of the memory here would be 0.00781 GiB" in str(told[0].message)
    assert (on.parameters == whole.parameters).all()
    for name, table in on.tables.items():
        assert table.max_bytes == whole.tables[name].max_bytes
        ids = table.ids()
        assert (table.lookup(ids) == whole.tables[name].lookup(ids)).all()
    _machine(monkeypatch, 64 * MIB - 4096)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lsh.train(_model(), DATA, until=lsh.until(updates=20), resume=tmp_path / "run", **given)
    assert lsh.load(tmp_path / "run").tables["c0"].max_bytes == whole.tables["c0"].max_bytes


def test_tables_of_a_told_size_keep_it(tmp_path: Path) -> None:
    given = {"threads": 1, "batch_size": 100}
    sized = tables.of(_model().tables, max_bytes=MIB)
    lsh.train(
        _model(),
        DATA,
        until=lsh.until(updates=10),
        checkpoint=tmp_path / "run",
        init=lsh.Init(tables=sized),
        rule=lsh.Adagrad(0.01),
        **given,
    )
    other = tables.of(_model().tables, max_bytes=2 * MIB)
    with pytest.raises(ValueError, match=r"max_bytes of table \w+ was 1048576 and is 2097152"):
        lsh.load(tmp_path / "run", _model(), other)
    with pytest.raises(ValueError, match="stays so"):
        other["c0"].resize(MIB)


def test_a_copy_has_the_share() -> None:
    described = lsh.models.dlrm(None, dim=4, dense=1, categories=1).tables
    (table,) = tables.of(described, share=0.01).values()
    for other in (copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        assert other.share == 0.01
        other.resize(2**20)
        assert other.max_bytes == 2**20


def test_the_command_line_takes_a_share(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("clicked,item_id\n" + "".join(f"{i % 2},{i % 50}\n" for i in range(500)))
    command = [sys.executable, "-m", "leashed", "train", "--model", "dlrm", "--no-progress"]
    command += ["--data", str(path), "--label", "clicked", "--threads", "1"]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *words], capture_output=True, text=True, timeout=120, check=False
        )

    assert run("--table-share", "0.1", "--save", str(tmp_path / "saved")).returncode == 0
    size = lsh.load(tmp_path / "saved").tables["c0"].max_bytes
    assert size == pytest.approx(0.1 * (memory.total() or 0), rel=1e-6)
    for words, told in (
        (("--table-share", "2"), "--table-share must be above 0 and at most 1"),
        (("--table-share", "0.1", "--table-mib", "4"), "--table-mib and --table-share both"),
    ):
        done = run(*words)
        assert done.returncode == 2
        assert told in done.stderr
