"""How trainings of a cluster end: each by its own rules, without a loss for the others."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cluster import inside
from warned import once

import leashed as lsh
from leashed.cluster import checkpoints, fingerprint
from leashed.cluster.member import Member, master_address
from leashed.cluster.messages import Account
from leashed.cluster.opening import Listener
from leashed.cluster.session import Cluster, Session
from leashed.files import checkpoint

DATA = lsh.datasets.synthetic_digits(n=200)
MODEL = lsh.models.mlp(784, [4], 10)
EPOCHS, BATCH = 60, 8
TOTAL = EPOCHS * 200 // BATCH
LONGER = 20
WHEN = {"background": lsh.sync.background(), "foreground": lsh.sync.every(iterations=5)}
KINDS: dict[str, Callable[..., lsh.sync.Synchroniser]] = {
    "easgd": lsh.sync.EASGD,
    "ma": lsh.sync.MA,
    "bmuf": lsh.sync.BMUF,
}


def train(place: Cluster, kind: str, when: str, **given: object) -> lsh.TrainResult:
    return lsh.train(
        MODEL,
        DATA.train,
        **{
            "until": lsh.until(epochs=EPOCHS), "batch_size": BATCH, "threads": 2,
            "rule": lsh.SGD(0.01), "observe": lsh.Observe(every=1e6),
            "cluster": dataclasses.replace(place, sync=KINDS[kind](when=WHEN[when])), **given,
        },
    )  # fmt: skip


@pytest.mark.parametrize("rule", ["updates", "seconds"])
@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("kind", KINDS)
def test_who_ends_by_a_rule_of_its_own_costs_the_others_no_round(
    kind: str, when: str, rule: str, tmp_path: Path
) -> None:
    """Though its last evaluation, or one that is under way, lasts until they have ended."""
    others_have_ended = threading.Event()
    evaluations = []

    def evaluated(progress: object) -> None:
        evaluations.append(progress)
        if len(evaluations) == 2:
            assert others_have_ended.wait(inside.PATIENCE)

    # So long that who stands still for a while does not find it over.
    epochs, total = LONGER * EPOCHS, LONGER * TOTAL
    until = {"updates": lsh.until(epochs=epochs, updates=200),
             "seconds": lsh.until(epochs=epochs, seconds=0.2)}[rule]  # fmt: skip
    every = {"updates": 0.01, "seconds": 1e6}[rule]
    # Longer than a broken ring is left alone before it is reported.
    terms = {"total": total, "batch_size": BATCH, "trainers": 2, "gather": 0.4}
    with inside.run(tmp_path, MODEL.dimension, 2 * (kind == "easgd"), **terms) as run:
        places = [run.cluster(index, timeout=inside.PATIENCE) for index in range(2)]

        def goes_on() -> lsh.TrainResult:
            try:
                return train(places[1], kind, when, until=lsh.until(epochs=epochs))
            finally:
                others_have_ended.set()

        with ThreadPoolExecutor(2) as pool:
            ends = pool.submit(
                train,
                places[0],
                kind,
                when,
                until=until,
                observe=lsh.Observe(evaluated, every=every),
            )
            other = pool.submit(goes_on).result()
            ended = ends.result()
        report = run.report()
    assert (ended.reason, other.reason) == (rule, "epochs")
    assert len(evaluations) >= 2
    ledger, told = report["ledger"], report["summaries"]
    assert (ledger["complete"], ledger["outstanding"], ledger["again"]) == (total, 0, 0)
    used = [told[f"trainer-{index}"]["batches_used"] for index in range(2)]
    assert used == [ended.gradients, other.gradients]
    assert sum(used) == total
    assert used[0] < total
    assert [told[f"trainer-{index}"]["sync_failed"] for index in range(2)] == [0, 0]
    assert report["epochs_broken"] == 0


@pytest.mark.parametrize("when", WHEN)
def test_a_server_that_accepts_and_never_answers_costs_no_round(when: str, tmp_path: Path) -> None:
    accepted = []
    with (
        inside.run(tmp_path, MODEL.dimension, total=TOTAL, batch_size=BATCH, sync_ps=1) as run,
        contextlib.closing(
            Listener("127.0.0.1", 0, inside.KEY, "sync-ps", lambda *link: accepted.append(link))
        ) as listener,
    ):
        place = run.cluster(servers=1, timeout=0.5)
        with Member(
            place.master, inside.KEY, role="sync-ps", index=0, listening=listener.address,
            heard=lambda _: None,
        ):  # fmt: skip
            result = train(place, "easgd", when)
            counted = run.report()["summaries"]["trainer-0"]
    assert result.reason == "epochs"
    assert counted["syncs"] == counted["sync_failed"] == 0
    for link, _ in accepted:
        link.close()


def test_most_rounds_without_some_parameters_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Session.metrics
    slow = {"syncs": 100.0, "sync_partial": 51.0, "sync_lag": 11.0}
    monkeypatch.setattr(Session, "metrics", lambda self: counted(self) | slow)
    with (
        inside.run(tmp_path, MODEL.dimension, 1, total=TOTAL, batch_size=BATCH) as run,
        once(" synchronisations came to their end, after timeout=") as told,
    ):
        train(run.cluster(), "easgd", "background")
    assert re.search("51 of 100 .* some wait for 11 by now", str(told[0].message))


TRAINER = """
import sys, time
import leashed as lsh
rank, folder, epochs, pause, kind, resume = sys.argv[1:]
checkpoint = f"checkpoint-{rank}.safetensors"
result = lsh.train(
    lsh.models.mlp(784, [4], 10),
    lsh.datasets.synthetic_digits(n=200).train,
    until=lsh.until(epochs=float(epochs)),
    rule=lsh.Adam(1e-3),
    batch_size=8,
    threads=1,
    observe=lsh.Observe(every=0.05),
    checkpoint=lsh.Checkpoint(checkpoint, every=float(pause)),
    resume=checkpoint if resume == "resume" else None,
    cluster=lsh.cluster.join(
        sync=getattr(lsh.sync, kind)(),
        rank=int(rank), size=2, servers=int(kind == "EASGD"), rendezvous="127.0.0.1", folder=folder,
        timeout=60.0,
    ),
)
print(int(result.config["cluster"]["batches_used"]), result.total_updates)
"""


def start(folder: Path, rank: int, epochs: float, kind: str, resume: str) -> subprocess.Popen[str]:
    arguments = [str(rank), str(folder), str(epochs), "0.1", kind, resume]
    return subprocess.Popen(
        [sys.executable, "-c", TRAINER, *arguments], cwd=folder.parent, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_all_trainers_go_on_or_none_does(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    until = lsh.until(updates=5)
    given = {"rule": lsh.SGD(0.01), "batch_size": BATCH, "until": until}
    lsh.train(MODEL, DATA.train, threads=1, checkpoint=path, **given)
    with (
        inside.run(tmp_path / "run", MODEL.dimension, batch_size=BATCH) as run,
        pytest.raises(ValueError, match="resume is a checkpoint here, and none in the run"),
    ):
        train(run.cluster(), "ma", "background", until=until, resume=path)
    begun = Account(5)
    terms = {"batch_size": BATCH, "begun": begun}
    with inside.run(tmp_path / "resumed", MODEL.dimension, **terms) as run:
        with pytest.raises(ValueError, match="resume is none here, and a checkpoint in the run"):
            train(run.cluster(), "ma", "background", until=until)
        until = lsh.until(updates=12)
        result = train(run.cluster(), "ma", "background", until=until, resume=path, threads=1)
        report = run.report()
    assert (result.total_updates, result.gradients) == (12, 7)
    assert (report["ledger"]["resumed"], report["ledger"]["complete"]) == (5, 12)


def test_all_trainers_go_on_from_the_same_checkpoint(tmp_path: Path) -> None:
    folder = checkpoints.place(tmp_path, 5)
    folder.mkdir(parents=True)
    (folder / "trainer-0.safetensors").write_bytes(b"x")
    saved = {"trainer-0": checkpoints.saved_of(folder, "trainer-0.safetensors")}
    checkpoints.write(folder, {"run": "before", "number": 5}, saved)
    told = fingerprint.of_checkpoint("before", 7)
    terms = {"batch_size": BATCH, "begun": Account(5), "fingerprint": told}
    with (
        inside.run(tmp_path / "run", MODEL.dimension, **terms) as run,
        pytest.raises(
            ValueError, match="checkpoint is 5 of run before here, and 7 of run before in"
        ),
    ):
        train(run.cluster(begins=folder), "ma", "background", until=lsh.until(updates=5))


def written(path: Path) -> dict[str, Any]:
    with contextlib.suppress(FileNotFoundError, ValueError):
        run: dict[str, Any] = json.loads(checkpoint.read(path)[2]["run"])
        return run
    return {"batches": 0, "open": []}


@pytest.mark.process(1)
@pytest.mark.parametrize("kind", ["EASGD", "MA"])
def test_a_run_goes_on_from_its_checkpoints_with_the_batches_that_are_left(
    kind: str, tmp_path: Path
) -> None:
    """All its processes killed in the middle, and started once more, as torchrun does it."""
    files = [tmp_path / f"checkpoint-{rank}.safetensors" for rank in range(2)]
    first = [start(tmp_path / "first", rank, 1e5, kind, "anew") for rank in range(2)]
    try:
        deadline = time.monotonic() + inside.PATIENCE
        while any(written(path)["batches"] < 500 for path in files):
            assert time.monotonic() < deadline
            assert all(process.poll() is None for process in first)
            time.sleep(0.1)
    finally:
        for process in first:
            process.kill()
            process.communicate()
    reached = [written(path) for path in files]
    used = reached[0]["batches"] - sum(count for _, count in reached[0]["open"])
    assert used > 0
    total = reached[0]["batches"] + 500
    second = [
        start(tmp_path / "second", rank, (total - 0.5) * 8 / 200, kind, "resume")
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=inside.PATIENCE) for process in second]
    assert [errors for _, errors in outputs if errors] == []
    ledger = json.loads((tmp_path / "second" / "run-0" / "run.json").read_text())["ledger"]
    assert (ledger["total"], ledger["complete"], ledger["outstanding"]) == (total, total, 0)
    assert ledger["resumed"] == used
    trained = [[int(word) for word in output.split()] for output, _ in outputs]
    assert sum(batches for batches, _ in trained) == total - used
    for (batches, updates), before, path in zip(trained, reached, files, strict=True):
        assert updates == before["updates"] + batches  # of Adam, whose state goes on with them
        after = written(path)
        assert (after["batches"], after["open"]) == (total, [])
        assert after["updates"] == updates


MASTER = """
import sys
from pathlib import Path
from leashed.cluster import master
from leashed.cluster.opening import Key
master.run(
    master.Terms(total=None, batch_size=8, trainers=2, parameters=int(sys.argv[1]), beat=0.1),
    host="127.0.0.1", port=0, key=Key(b"k" * 32, given=False), folder=Path(sys.argv[2]),
)
"""


@pytest.mark.process(1)
@pytest.mark.parametrize("kind", ["ma", "bmuf"])
def test_where_the_master_stays_away_all_trainers_return_what_they_have_reached(
    kind: str, tmp_path: Path
) -> None:
    reached: list[list[Any]] = [[], []]
    program = [sys.executable, "-c", MASTER, str(MODEL.dimension), str(tmp_path)]
    with subprocess.Popen(program) as master, ThreadPoolExecutor(2) as pool:

        def trainer(index: int) -> lsh.TrainResult:
            place = Cluster(
                index=index, trainers=2, servers=0, master=master_address(tmp_path),
                key=inside.KEY, timeout=1.0, grace=0.5,
            )  # fmt: skip
            return train(
                place, kind, "background", until=lsh.until(seconds=inside.PATIENCE),
                observe=lsh.Observe(reached[index].append, every=0.1), )  # fmt: skip

        try:
            both = [pool.submit(trainer, index) for index in range(2)]
            deadline = time.monotonic() + inside.PATIENCE
            while not all(any(now.updates > 100 for now in each) for each in reached):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            master.kill()
            with pytest.warns(
                RuntimeWarning, match=r"the master is away for more than 0\.5 s"
            ) as told:
                results = [each.result() for each in both]
        finally:
            master.kill()
    assert {warning.filename for warning in told} == {__file__}
    for result in results:
        assert result.loss[-1] < result.loss[0]
        assert result.seconds[-1] < inside.PATIENCE, result.config
        assert result.config["cluster_lost"]
        assert "the master is away" in result.config["cluster_ended"]
