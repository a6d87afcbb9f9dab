"""Checkpoints of a whole run at one cut, and runs that go on from them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cluster.processes import pids
from cluster.test_up import PATIENCE
from cluster.test_up_tables import check, given, in_one_process

import leashed as lsh
from leashed import _core, cli
from leashed.cluster import checkpoints, journal, server
from leashed.cluster import plan as plans
from leashed.cluster.checkpoints import Checkpoint, newest

ALONE = ("--trainers", "1", "--look-ahead", "0", "--sync", "none", "--discipline", "sequential")
EPOCHS, BATCHES = "150", 5625


@contextlib.contextmanager
def running(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A run with checkpoints, or that goes on, which is killed at the end, all of it."""
    every = [] if arguments[0] == "resume" else ["up", "--checkpoint-every", "0.3"]
    process = subprocess.Popen(
        [sys.executable, "-m", "leashed", "cluster", *every, *arguments, "--run", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()
            deadline = time.monotonic() + PATIENCE
            while there := pids(folder):
                for pid in there.values():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                assert time.monotonic() < deadline
            while journal.held(folder / "journal.jsonl"):  # until the last of them has ended
                assert time.monotonic() < deadline
                time.sleep(0.01)
            process.communicate()


def made(folder: Path, process: subprocess.Popen[str], count: int = 1) -> dict:
    """What is told of checkpoints, once there are so many more."""
    deadline = time.monotonic() + PATIENCE
    first = None
    while True:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        with contextlib.suppress(FileNotFoundError):
            told = json.loads((folder / "run.json").read_text())["checkpoints"]
            first = told["made"] if first is None else first
            if told["made"] >= first + count:
                return told
        time.sleep(0.02)


def killed(folder: Path, *arguments: str) -> Path:
    """The newest checkpoint of a run that was killed, all of it, as soon as one had some batches."""

    def begun() -> bool:
        try:
            return Checkpoint(newest(folder)).account.used > 200
        except FileNotFoundError:  # there is none, or it went for a newer one
            return False

    with running(folder, *arguments) as process:
        deadline = time.monotonic() + PATIENCE
        while not begun():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)
    return newest(folder)


def alike(one: lsh.Trained, other: lsh.Trained) -> None:
    np.testing.assert_array_equal(one.parameters, other.parameters)
    assert one.tables.keys() == other.tables.keys()
    for name, table in one.tables.items():
        ids = np.sort(table.ids())
        np.testing.assert_array_equal(np.sort(other.tables[name].ids()), ids)
        np.testing.assert_array_equal(other.tables[name].lookup(ids), table.lookup(ids))


@pytest.mark.process
def test_one_trainer_goes_on_to_the_bits_of_a_run_that_was_not_killed(tmp_path):
    """Over two servers, then three, then one."""
    told = [*ALONE, *given(tmp_path), "--epochs", EPOCHS]
    up = ["cluster", "up", "--embedding-servers", "2", *told]
    assert cli.main([*up, "--run", str(tmp_path / "whole")]) == 0
    folder = tmp_path / "run"
    killed(folder, "--embedding-servers", "2", *told)
    used = Checkpoint(newest(folder)).account.used
    assert 0 < used < BATCHES
    three = tmp_path / "three"
    shutil.copytree(folder, three)
    assert cli.main(["cluster", "resume", str(three), "--embedding-servers", "3"]) == 0
    report = check(three)
    assert report["ledger"]["resumed"] == used
    assert Checkpoint(newest(three)).account.used > used  # its own follow on that
    alike(lsh.load(tmp_path / "whole" / "output"), lsh.load(three / "output"))
    assert cli.main(["cluster", "resume", str(folder), "--embedding-servers", "1"]) == 0
    check(folder)
    alike(lsh.load(tmp_path / "whole" / "output"), lsh.load(folder / "output"))


@pytest.mark.process
@pytest.mark.long
def test_gaps_between_rounds_and_whose_turn_it_is_go_on(tmp_path):
    """A gap that changes, in two parts: an exchange is due at the iterations at which it would have been."""
    told = [
        *("--trainers", "1", "--look-ahead", "0", "--discipline", "sequential"),
        *("--pooling", "rows", "--sync"),
        *("easgd:alpha=0.5,parts=2", "--when", "every:iterations=7", "--embedding-servers", "1"),
        *given(tmp_path), "--epochs", EPOCHS,
    ]  # fmt: skip
    folder = tmp_path / "run"
    found = killed(folder, *told)
    assert cli.main(["cluster", "up", *told, "--run", str(tmp_path / "whole")]) == 0
    assert 0 < Checkpoint(found).account.used < BATCHES
    ((iterations, since, seconds, turn),) = Checkpoint(found).within(0)
    assert (iterations, since) == (Checkpoint(found).account.used, iterations % 7)
    assert seconds >= 0
    assert turn >= iterations // 7
    assert cli.main(["cluster", "resume", str(folder)]) == 0
    check(folder)
    alike(lsh.load(tmp_path / "whole" / "output"), lsh.load(folder / "output"))


@pytest.mark.process
@pytest.mark.long
def test_in_the_background_whose_turn_it_is_goes_on(tmp_path):
    told = [*ALONE[:4], "--sync", "easgd:parts=2", "--embedding-servers", "1", *given(tmp_path)]
    folder = tmp_path / "run"
    ((*gaps, turn),) = Checkpoint(killed(folder, *told, "--epochs", EPOCHS)).within(0)
    assert gaps == [0, 0, 0]
    assert turn > 2
    assert cli.main(["cluster", "resume", str(folder)]) == 0
    check(folder)


@pytest.mark.process
def test_a_checkpoint_is_read_and_trained_on_in_one_process(tmp_path):
    told = [*ALONE, *given(tmp_path), "--epochs", EPOCHS]
    folder = tmp_path / "run"
    found = killed(folder, "--embedding-servers", "2", *told)
    loaded = lsh.load(found)
    problem = plans.read(folder / "plan.toml").train.problem()
    assert loaded.evaluate(problem.test).auc > 0.6  # (its loss rises again: the rows are few)
    assert set(loaded.tables) == {one.name for one in problem.model.tables}
    up = ["cluster", "up", "--embedding-servers", "2", *told, "--run", str(tmp_path / "whole")]
    assert cli.main(up) == 0
    alone = in_one_process(problem, epochs=int(EPOCHS), resume=found)
    whole = lsh.load(tmp_path / "whole" / "output")
    np.testing.assert_array_equal(alone.parameters, whole.parameters)
    for name, table in alone.tables.items():
        ids = np.sort(table.ids())
        np.testing.assert_array_equal(whole.tables[name].lookup(ids), table.lookup(ids))


@pytest.mark.process(1)
@pytest.mark.parametrize(
    ("sync", "more"),
    [("easgd", ["--sync-ps", "2"]), ("bmuf:momentum=0.5", [])],
)
def test_trainers_may_be_more_or_fewer(sync, more, tmp_path):
    folder = tmp_path / "run"
    told = ["--sync", sync, *given(tmp_path), "--epochs", "200"]
    found = killed(folder, "--trainers", "2", "--embedding-servers", "2", *more, *told)
    assert Checkpoint(found).trainers == [0, 1]
    three = tmp_path / "three"
    shutil.copytree(folder, three)
    other = ["--trainers", "3", "--embedding-servers", "1"]
    if more:
        other += ["--sync-ps", "1"]
    assert cli.main(["cluster", "resume", str(three), *other]) == 0
    assert check(three)["train_loss"] < 0.5
    assert cli.main(["cluster", "resume", str(folder), "--trainers", "1"]) == 0
    assert check(folder)["train_loss"] < 0.5


@pytest.mark.process
def test_without_its_manifest_the_older_one_is_taken(tmp_path):
    folder = tmp_path / "run"
    told = [*ALONE, *given(tmp_path), "--epochs", EPOCHS]
    found = killed(folder, "--embedding-servers", "1", *told)
    later = found.parent / str(int(found.name) + 1)
    shutil.rmtree(later, ignore_errors=True)
    shutil.copytree(found, later)
    (later / "manifest.json").unlink()
    assert newest(folder) == found
    assert cli.main(["cluster", "resume", str(folder)]) == 0
    assert check(folder)["ledger"]["resumed"] == Checkpoint(found).account.used
    # It stays, since the run has begun with it.
    assert found.is_dir()


@pytest.mark.process(1)
@pytest.mark.parametrize("name", ["trainer-1", "embedding-ps-0", "master-0"])
def test_a_cut_that_somebody_does_not_live_to_see_is_given_up(name, tmp_path):
    """It is stopped, so that the cut is under way when it is killed; the next one is whole."""
    folder = tmp_path / "run"
    up = ["--trainers", "2", "--embedding-servers", "2", "--epochs", "3000", *given(tmp_path)]
    with running(folder, *up) as process:
        made(folder, process)
        victim = pids(folder)[name]
        os.kill(victim, signal.SIGSTOP)
        time.sleep(1.0)
        os.kill(victim, signal.SIGKILL)
        told = made(folder, process, 2)
    assert Checkpoint(newest(folder)).account.used > 0
    if name != "master-0":
        assert told["given_up"] >= 1
        assert name in told["why"]


@pytest.mark.process
def test_what_does_not_fit_is_refused_by_name(tmp_path, capsys):
    folder = tmp_path / "run"
    assert cli.main(["cluster", "resume", str(folder)]) == 2
    assert f"there is no folder {folder} of a run" in capsys.readouterr().err
    assert cli.main(["cluster", "resume", str(tmp_path)]) == 2
    assert "has no whole checkpoint" in capsys.readouterr().err
    told = [*ALONE, *given(tmp_path), "--epochs", EPOCHS]
    found = killed(folder, "--embedding-servers", "1", *told)
    text = (folder / "plan.toml").read_text()
    capsys.readouterr()
    for was, now, name in (
        ("dim = 4", "dim = 8", "tables"),
        ("batch_size = 64", "batch_size = 32", "batch_size was 64 and is 32"),
        ("seed = 0", "seed = 1", "seed was 0 and is 1"),
    ):
        assert was in text
        (folder / "plan.toml").write_text(text.replace(was, now))
        assert cli.main(["cluster", "resume", str(folder)]) == 2
        assert name in capsys.readouterr().err
    (folder / "plan.toml").write_text(text)
    path = found / "trainer-0.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert cli.main(["cluster", "resume", str(folder)]) == 2
    assert "trainer-0.safetensors is damaged" in capsys.readouterr().err
    assert (folder / "journal.jsonl").exists()  # nothing has been touched


def test_w_ps_is_of_any_number_of_servers(tmp_path):
    """Of the fragments that each has told to be its own."""
    dimension = 200_000
    cut = checkpoints.packing.fragments(dimension)
    wanted = np.arange(dimension, dtype=np.float32)
    folder = tmp_path / "1"
    folder.mkdir()
    saved = {}
    (folder / "trainer-0.safetensors").write_bytes(b"x")
    saved["trainer-0"] = checkpoints.saved_of(folder, "trainer-0.safetensors")
    for index, mine in enumerate((range(0, len(cut), 2), range(1, len(cut), 2))):
        values = np.concatenate([wanted[slice(*cut[k])] for k in mine])
        present = np.array([k != 0 for k in mine])
        path = folder / f"sync-ps-{index}.part"
        checkpoints.put_array(path, np.asarray(mine, "<u8"), present, values)
        saved[f"sync-ps-{index}"] = checkpoints.saved_of(folder, path.name)
    checkpoints.write(folder, {"number": 1, "next": 5, "open": [], "fingerprint": {}}, saved)
    values, known = Checkpoint(folder).w_ps(dimension)
    np.testing.assert_array_equal(values, wanted)
    assert known.tolist() == [k != 0 for k in range(len(cut))]


@pytest.mark.parametrize("servers", [1, 3])
def test_servers_go_on_with_w_ps_as_it_was(tmp_path, servers):
    """Of two, and one fragment that nobody had yet."""
    dimension = 200_000
    cut = checkpoints.packing.fragments(dimension)
    wanted = np.random.default_rng(0).normal(size=dimension).astype(np.float32)

    def saved(name: str, count: int, begins: Checkpoint | None) -> Checkpoint:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "trainer-0.safetensors").write_bytes(b"x")
        files = {"trainer-0": checkpoints.saved_of(folder, "trainer-0.safetensors")}
        for index in range(count):
            mine = tuple(range(index, len(cut), count))
            lengths = [cut[k][1] - cut[k][0] for k in mine]
            held = _core.SyncServer(list(zip(mine, lengths, strict=True)))
            if begins is None:
                values = np.concatenate([wanted[slice(*cut[k])] for k in mine])
                held.restore(values, [k != 1 for k in mine], 7)
            else:
                server._begin(held, begins, dimension, mine)
            files[f"sync-ps-{index}"] = server._cut(held, folder, f"sync-ps-{index}", mine)
        checkpoints.write(folder, {"number": 1, "next": 5, "open": [], "fingerprint": {}}, files)
        return Checkpoint(folder)

    before = saved("1", 2, None).w_ps(dimension)
    after = saved("2", servers, Checkpoint(tmp_path / "1")).w_ps(dimension)
    known = before[1]
    assert known.tolist() == after[1].tolist() == [k != 1 for k in range(len(cut))]
    for k in np.flatnonzero(known):
        np.testing.assert_array_equal(after[0][slice(*cut[k])], wanted[slice(*cut[k])])


def test_a_folder_of_runs_is_no_run_to_go_on_from(tmp_path):
    folder = tmp_path / "days"
    for name in ("run-9", "run-10", "run-of-mine"):
        (folder / name).mkdir(parents=True)
    with pytest.raises(ValueError, match=f"is the folder of 2 runs, .* such as {folder}/run-10$"):
        checkpoints.found(folder)
    labels = np.arange(90) % 2
    data = lsh.datasets.Dataset.from_arrays(np.ones((90, 3), np.float32), labels)
    alone = lsh.cluster.join(
        rank=0, size=1, servers=0, folder=tmp_path / "more", checkpoint_every=9
    )
    given = {"cluster": alone, "resume": folder, "until": lsh.until(epochs=1)}
    with pytest.raises(ValueError, match=r"such as .*run-10"):
        lsh.train(lsh.models.mlp(3, [8], 2), data, **given)
