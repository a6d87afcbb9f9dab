"""Checkpoints of runs by a mode on several policy servers of which each decides by itself: they rest at the same
leases; as many go on each with its own, others and one process with what all of them have.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import made_clicks
import numpy as np
import pytest
from cluster.led_cuts import caught
from cluster.test_checkpoints import killed
from cluster.test_led_modes import DATA, MODEL
from cluster.test_led_modes import given as given_digits
from cluster.test_led_tables import GROWING, check_alike, clicks_of, rows_of
from cluster.test_several_led_checkpoints import how, went_on
from warned import once

import leashed as lsh
from leashed import cli
from leashed.cluster import checkpoints, led_apart, led_part, led_parts
from leashed.cluster.checkpoints import Checkpoint
from leashed.cluster.lives import SLOTS
from leashed.files import folders, model_file
from leashed.training.led_mode import LedMode

MODES = [
    "asp",
    "bsp:b2=3",
    "gba:m=4,iota=4",
    "shat",
    "ssp:s=2",
    "dssp:lower=1,upper=3",
    "hop_bs:b1=2,m=3",
]
BLOWS = 5
HOLD = ("bsp", "gba", "hop_bs")  # gradients that wait for others


def digits(mode: str, **more: Any) -> dict[str, Any]:
    return given_digits(
        mode=mode, **{"rule": lsh.rules.Momentum(0.05), "until": lsh.until(epochs=15), **more}
    )


def waits(folder: Path) -> int:
    """How many gradients wait at the second server."""
    own = led_part.read_own(folder / led_part.own_of(1))
    return own.mode.size


def holds(mode: str) -> Any:
    """Whether gradients wait in a checkpoint, where the mode has any that do."""
    return lambda folder: not mode.startswith(HOLD) or waits(folder) > 0


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("mode", "servers"), [*((mode, 2) for mode in MODES), ("gba:m=4,iota=4", 3), ("ssp:s=2", 3)]
)
def test_one_worker_goes_on_to_the_bits_of_the_whole_run(
    mode: str, servers: int, tmp_path: Path
) -> None:
    asked = digits(mode)
    begins, whole = caught(
        tmp_path / "run", tmp_path / "cut", MODEL, DATA, 1, asked, holds(mode), servers=servers
    )
    alone = lsh.train(MODEL, DATA, **asked)
    np.testing.assert_array_equal(whole.parameters, alone.parameters)  # a cut changes nothing
    for others in (servers, 5 - servers, 1):
        found, _ = went_on(tmp_path / str(others), begins, MODEL, DATA, asked, others)
        np.testing.assert_array_equal(found.parameters, alone.parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is let go
        again = lsh.train(MODEL, DATA, **asked, resume=begins)
    np.testing.assert_array_equal(again.parameters, alone.parameters)


@pytest.mark.few(3)
@pytest.mark.parametrize("mode", MODES)
def test_with_tables_too(mode: str, tmp_path: Path) -> None:
    model = made_clicks.small(None)
    data = made_clicks.clicks(model)
    asked = how(mode)
    begins, whole = caught(
        tmp_path / "run", tmp_path / "cut", model, data, 1, asked, holds(mode), servers=2,
        tables=GROWING,
    )  # fmt: skip
    assert not list(begins.glob("*.part"))
    told = {"rule": asked["rule"], "seed": asked["seed"], **GROWING}
    init = lsh.Init("glorot", lsh.tables.of(model.tables, **told))
    alone = lsh.train(model, data, init=init, **asked, resume=begins)
    np.testing.assert_array_equal(alone.parameters, whole.parameters)
    for servers in (2, 3, 1):
        found, held = went_on(tmp_path / str(servers), begins, model, data, asked, servers)
        np.testing.assert_array_equal(found.parameters, whole.parameters)
        check_alike(held, rows_of(alone.tables))
    loaded = lsh.load(begins)
    assert np.isfinite(loaded.evaluate(data).loss)


@pytest.mark.parametrize("mode", ["bsp:b2=3", "hop_bs:b1=2,m=3", "easgd:alpha=0.5,gap=2"])
def test_one_servers_checkpoint_goes_on_on_several(mode: str, tmp_path: Path) -> None:
    asked = digits(mode)
    begins, whole = caught(tmp_path / "run", tmp_path / "cut", MODEL, DATA, 1, asked)
    found, _ = went_on(tmp_path / "on", begins, MODEL, DATA, asked, 3)
    if not mode.startswith("easgd"):  # whose workers' own models begin anew
        np.testing.assert_array_equal(found.parameters, whole.parameters)
    assert np.isfinite(found.parameters).all()


@pytest.mark.few(2)
@pytest.mark.parametrize("mode", ["gba:m=3,iota=2", "ssp:s=1", "easgd:alpha=0.5,gap=2", "shat"])
def test_other_numbers_of_trainers_go_on(mode: str, tmp_path: Path) -> None:
    asked = digits(mode, threads=2)
    begins, _ = caught(tmp_path / "run", tmp_path / "cut", MODEL, DATA, 2, asked, servers=2)
    for servers, trainers in ((2, 3), (3, 1), (1, 2)):
        folder = tmp_path / f"{servers}-{trainers}"
        found, _ = went_on(folder, begins, MODEL, DATA, asked, servers, trainers)
        assert np.isfinite(found.parameters).all()
    assert np.isfinite(lsh.load(begins).evaluate(DATA).loss)


def part(
    held: list[int], unfinished: Sequence[tuple[int, int]] = (), had: Sequence[tuple[int, int]] = ()
) -> led_part.Part:
    """Of two parameters and no tables; ``held``: numbers of batches by slot, each of 10 examples and its number;
    -1: it was lost on the way, -2: the slot is free.
    """
    slots = [[0, 0, 10 + k, 0 if k == -2 else 70 + k, 0, k == -1] for k in held]
    words = np.array([5, 6, *np.ravel(slots), 8, 9], np.uint64)
    end = 2 + 6 * len(held)
    whole = [k for k in held if k >= 0]
    return led_part.Part(
        np.zeros((1, 2), np.float32),
        words,
        np.array([[k, k] for k in whole] + [[99, 99]], np.float32).reshape(-1, 2),
        np.array([max(k, -1) + 1 for k in held], np.uint64),
        np.array(unfinished, np.uint64).reshape(-1, 2),
        np.array(had, np.uint64).reshape(-1, 2),
        3,
        4,
        1,
        (end, end),
        7,
        [],
    )


def test_what_all_have_is_kept_and_what_is_let_go_is_counted() -> None:
    """Batch 4 is lost at the first, 5 has not come to the second, 7 is applied at the first, 8 is to be trained
    again and waits at the second, and 9 is, and is in its parameters.
    """
    first = part([6, -1, 5, 3, -2], unfinished=[(8, 18), (9, 19), (10, 20)])
    second = part([3, 7, 8, 4, 6], had=[(0, 4), (6, 9)])
    (one, other), let_go = led_apart.shared([first, second])
    assert let_go == led_apart.LetGo(examples=15 + 17 + 14, again=19)
    assert one.words[2:32].reshape(5, 6)[:, 5].tolist() == [0, 1, 1, 0, 0]
    assert one.mode[:, 0].tolist() == other.mode[:, 0].tolist() == [6, 3, 99]
    assert one.words[[0, 1, -2, -1]].tolist() == [5, 6, 8, 9]
    assert first.words[2:32].reshape(5, 6)[:, 5].tolist() == [0, 1, 0, 0, 0]
    everything, nothing = led_apart.shared([first, first])
    assert nothing == led_apart.LetGo(0, 0)
    np.testing.assert_array_equal(everything[1].mode, first.mode)
    with pytest.raises(ValueError, match="waiting gradients is damaged"):
        led_apart.shared([first._replace(rows=(1, 1)), second])


def test_what_is_let_go_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked = digits("bsp:b2=3")
    begins, _ = caught(tmp_path / "run", tmp_path / "cut", MODEL, DATA, 1, asked, servers=2)
    file = begins / led_parts.JOINED
    begun = model_file.read(file)
    told = {
        **json.loads(begun.metadata["run"]),
        "let_go": {"examples": 64, "again": 32, "servers": 2},
    }
    model_file.write(file, begun.model, begun.tensors, {**begun.metadata, "run": json.dumps(told)})
    manifest = json.loads((begins / "manifest.json").read_text())
    (saved,) = checkpoints.saved_of(begins, led_parts.JOINED)
    for one in (manifest["model"], *manifest["files"]):
        if one["file"] == saved.name:
            one |= {"bytes": saved.bytes, "sha256": saved.sha256}
    folders.put_manifest(begins, manifest)
    said = "gradients of 64 examples .* let go, and batches of 32 examples are trained again"
    for servers in (3, 2):
        caplog.clear()
        went_on(tmp_path / str(servers), begins, MODEL, DATA, asked, servers)
        assert len(re.findall(said, caplog.text)) == (servers != 2)
    with once("what policy servers had apart of each other is let go"):
        lsh.train(MODEL, DATA, **asked, resume=begins)


@pytest.mark.parametrize("mode", ["gba:m=3,iota=2", "hop_bs:b1=2,m=3"])
def test_trainers_that_come_and_go_in_cuts_cost_no_example(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their connections end at random while cuts follow each other."""
    cores: list[Any] = []
    for name in ("server", "follower"):
        make = getattr(LedMode, name)

        def made(*given: Any, make: Any = make, **named: Any) -> Any:
            cores.append(make(*given, **named))
            return cores[-1]

        monkeypatch.setattr(LedMode, name, made)
    random = np.random.default_rng(1)
    blows = 0

    def blown(_: Path) -> bool:
        nonlocal blows
        if random.random() < 0.2:
            trainer = int(random.integers(0, 2))
            cores[random.integers(0, len(cores))].let_go(trainer * SLOTS, SLOTS)
            blows += 1
        return blows > BLOWS

    asked = digits(mode, threads=2, until=lsh.until(epochs=20))
    begins, first = caught(
        tmp_path / "run", tmp_path / "cut", MODEL, DATA, 2, asked, blown, servers=2
    )
    begun, counts = Checkpoint(begins), first.mode
    assert counts is not None
    size, total = asked["batch_size"], begun.told["total"]
    assert counts.applied + counts.stale == total * size
    dimension = sum(end - start for start, end in json.loads(told_of(begins))["shards"][0])
    waiting = led_part.read_own(begins / led_part.own_of(0)).mode.size // dimension
    found, _ = went_on(tmp_path / "2", begins, MODEL, DATA, asked, 2, trainers=2)
    left = (total - begun.account.used + waiting) * size
    assert found.mode.applied + found.mode.stale == left
    went_on(tmp_path / "3", begins, MODEL, DATA, asked, 3, trainers=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the servers had apart is let go
        lsh.train(MODEL, DATA, **{**asked, "threads": 4}, resume=begins)


def told_of(begins: Path) -> str:
    return (begins / led_parts.TOLD).read_text(encoding="utf-8")


@pytest.mark.process
def test_a_killed_run_goes_on_by_command(tmp_path: Path) -> None:
    folder, data = tmp_path / "run", clicks_of(tmp_path)
    more = ("--mode", "gba:m=4", *data, "--epochs", "100")
    begins = Checkpoint(killed(folder, "--trainers", "1", "--policy-servers", "2", *more))
    used = begins.account.used
    assert 0 < used < begins.told["total"]
    several = tmp_path / "several"
    shutil.copytree(folder, several)
    whole = tmp_path / "whole"
    assert cli.main(["cluster", "up", "--trainers", "1", *more, "--run", str(whole)]) == 0
    assert cli.main(["cluster", "resume", str(folder)]) == 0
    assert json.loads((folder / "run.json").read_text())["ledger"]["resumed"] == used
    one, on = (lsh.load(each / "output") for each in (whole, folder))
    np.testing.assert_array_equal(on.parameters, one.parameters)
    assert cli.main(["cluster", "resume", str(several), "--trainers", "3"]) == 0
    report = json.loads((several / "run.json").read_text())
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"]
