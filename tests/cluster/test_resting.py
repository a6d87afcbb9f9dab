"""What is saved at a cut of a run is of the cut, and a run of which nothing is left is not trained again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cluster import inside
from cluster.test_checkpoints import made, running
from cluster.test_up_tables import given

import leashed as lsh
from leashed import cli
from leashed.cluster import checkpoints, journal, messages, tended
from leashed.cluster.checkpoints import Checkpoint, newest
from leashed.cluster.cut_tending import TrainerCuts
from leashed.cluster.messages import Cut
from leashed.sync import Position
from leashed.training import run as training_run


class Member:
    """Keeps what is told of cuts."""

    welcome = SimpleNamespace(run="0123")

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def cut(self, *told: Any, **failed: Any) -> None:
        self.told.append((*told, failed) if failed else told)

    def send_part(self, *part: Any) -> None:
        """The master sees it."""


def test_a_trainer_saves_at_the_stage_of_saving_alone(tmp_path: Path) -> None:
    """Before it the ledger of the cut is not known: a file would be older than that."""
    member, put = Member(), []
    leases = SimpleNamespace(resting=1)
    cuts = TrainerCuts(member, "trainer-0", tmp_path, None, 1, leases, lambda: None)  # type: ignore[arg-type]

    def write(path: Path, position: Any) -> None:
        put.append(position)
        path.write_bytes(b"x")

    for stage in (messages.REST, messages.STILL):
        cuts.told(Cut(3, stage), None)
        cuts.save(write, None)
        assert not cuts.wants
        assert not put
    cuts.told(Cut(3, messages.SAVED, 7, [(2, 1)]), None)
    assert cuts.wants
    cuts.save(write, None)
    (position,) = put
    assert (position.batches, position.open) == (7, [(2, 1)])
    cuts.save(write, None)  # once
    assert len(put) == 1
    assert member.told[-1][:2] == (3, messages.SAVED)


def test_a_state_that_was_copied_before_it_was_wanted_is_not_saved() -> None:
    saved: list[Any] = []
    session = SimpleNamespace(wants=False, save=saved.append)
    asked = SimpleNamespace(model=None, told={})
    cutting = training_run._Cutting(asked, session, None)  # type: ignore[arg-type]
    cutting.look()
    session.wants = True
    cutting(None)  # type: ignore[arg-type]
    assert not saved
    cutting.look()
    cutting(None)  # type: ignore[arg-type]
    assert len(saved) == 1


class StoppedError(Exception):
    """As far as a test looks."""


@pytest.mark.parametrize("left", [None, Position(3, [(1, 1)], "0123")])
def test_who_goes_on_from_what_was_kept_takes_no_velocity_of_the_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: Position | None
) -> None:
    """As after the deaths of all trainers: what they had kept is of later than the checkpoint."""
    begins = tmp_path / "begins"
    begins.mkdir()
    (begins / "trainer-0.safetensors").write_bytes(b"x")
    checkpoints.put_array(begins / "trainer-0.states", np.arange(4, dtype=np.float32))
    files = checkpoints.saved_of(begins, "trainer-0.safetensors", "trainer-0.states")
    told = {"run": "r", "number": 1, "next": 5, "open": [], "total": 10, "restored": 0}
    told["fingerprint"] = {}
    checkpoints.write(begins, told, {"trainer-0": files})
    found: list[Any] = []

    def native(*_: object, states: Any, **__: object) -> Any:
        found.append(states)
        raise StoppedError

    monkeypatch.setattr(tended, "native", native)
    terms = {"total": 10, "begun": Checkpoint(begins).begun, "cut": 1}
    with inside.run(tmp_path / "run", 4, **terms) as run, pytest.raises(StoppedError):
        run.cluster(begins=begins).session(
            4, lsh.sync.BMUF(), total=10, batch_size=1, workers=1, lockstep=False, left=left
        )
    (states,) = found
    assert (states is None) == (left is not None)


@pytest.mark.process
def test_trainers_that_synchronise_in_the_background_come_to_rest_at_every_cut(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    up = ["--trainers", "2", "--embedding-servers", "1", "--sync", "easgd", "--sync-ps", "1"]
    with running(folder, *up, "--epochs", "100000", *given(tmp_path)) as process:
        told = made(folder, process, 5)
    assert told["given_up"] <= 1  # (of one for which the machine had no time)


@pytest.mark.process
def test_a_run_of_which_nothing_is_left_is_not_trained_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where all of it died before its end was written down."""
    folder = tmp_path / "run"
    up = ["cluster", "up", "--trainers", "1", "--embedding-servers", "1", "--sync", "none"]
    up += ["--checkpoint-every", "100", *given(tmp_path), "--run", str(folder)]
    assert cli.main(up) == 0
    assert Checkpoint(newest(folder)).complete
    for name in ("", "run.json", "journal.jsonl"):
        if name:
            (folder / name).unlink()
        before = sorted(path.stat().st_mtime_ns for path in folder.rglob("*"))
        capsys.readouterr()
        assert cli.main(["cluster", "resume", str(folder)]) == 2
        assert "nothing is left of it" in capsys.readouterr().err
        assert sorted(path.stat().st_mtime_ns for path in folder.rglob("*")) == before


@pytest.mark.process
def test_a_run_that_goes_on_is_not_begun_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    up = ["--trainers", "1", "--embedding-servers", "1", "--sync", "none", "--epochs", "100000"]
    with running(folder, *up, *given(tmp_path)) as process:
        made(folder, process)
        assert journal.held(folder / "journal.jsonl")
        assert cli.main(["cluster", "resume", str(folder)]) == 2
        assert "goes on" in capsys.readouterr().err
        assert process.poll() is None
