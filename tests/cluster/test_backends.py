"""Trainers that sum with a library instead of over the own ring."""

from __future__ import annotations

import functools
import gc
import importlib.util
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from cluster import alike, faults, inside
from cluster.launchers import mpiexec

import leashed as lsh
from leashed import cli
from leashed.cluster import collectives, gloo, mpi
from leashed.cluster import plan as plans

WHEN = {"background": lsh.sync.background(), "foreground": lsh.sync.every(iterations=3)}
SOON = 30.0  # seconds that a loaded machine takes for what takes none
gloo_needed = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="NOTHING WAS TESTED OVER GLOO: PyTorch is not installed",
)


class Halfway(lsh.sync.Synchroniser):
    def mix(self, theta, other, members):
        assert members > 1
        theta += 0.5 * (other - theta)


SYNCHRONISERS = {
    "ma": lsh.sync.MA,
    "bmuf": lambda **given: lsh.sync.BMUF(momentum=0.5, **given),
    "own": Halfway,
}


# Gloo by itself, all members in this process.


def until(condition):
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.001)


def finish(members):
    for member in members:
        until(lambda done=member.done: done(0.02))


@gloo_needed
@pytest.mark.parametrize("members", [2, 3])
@pytest.mark.parametrize("length", [1, 7, 100_003])
def test_gloo_sums_and_broadcasts(members, length):
    rng = np.random.default_rng(length)
    made = alike.meet("gloo", members)
    for root in range(members):
        values = [rng.standard_normal(length).astype(np.float32) for _ in made]
        total, first = np.sum(values, axis=0, dtype=np.float64), values[root].copy()
        copies = [each.copy() for each in values]
        for member, each in zip(made, values, strict=True):
            member.sum(each)
        finish(made)
        for member, each in zip(made, copies, strict=True):
            member.broadcast(each, root)
        finish(made)
        for summed, copied in zip(values, copies, strict=True):
            np.testing.assert_allclose(summed, total, rtol=1e-5, atol=1e-5)
            assert np.array_equal(copied, first)
    for member in made:
        member.close()


@gloo_needed
def test_gloo_waits_as_long_as_it_is_told_and_can_be_closed_meanwhile():
    made = alike.meet("gloo", 3, timeout=3600.0)  # who waits for its end fails by the test's limit
    made[0].sum(np.ones(5, np.float32))
    assert not made[0].done(0.05)
    made[2].sum(np.ones(5, np.float32))
    # In the middle of it, by a thread as those of the core are; what goes on is waited for at the end.
    thread = threading.Thread(target=made[0].close, daemon=True)
    thread.start()
    thread.join()
    (left,) = closing()
    assert not left.daemon
    made[1].close()  # who has not come, and nobody waits for
    with pytest.raises(RuntimeError):
        finish(made[2:])
    made[2].close()
    for member in (again := alike.meet("gloo", 2, epoch=2)):
        member.sum(np.ones(5, np.float32))
    finish(again)
    for member in again:
        member.close()


@gloo_needed
def test_gloo_leaves_nothing_open_of_rounds_that_broke():
    """Though a member of each stays silent, as one that is stopped does."""
    for member in alike.meet("gloo", 2):  # what it opens once for all
        member.close()
    until(lambda: not closing())
    before = descriptors()
    silent = []
    for epoch in range(2, 6):
        *others, last = alike.meet("gloo", 3, epoch=epoch, timeout=5.0)
        silent.append(last)
        for member in others:
            member.sum(np.ones(5, np.float32))
            assert not member.done(0.02)
            member.close()
    until(lambda: not closing())  # by their own timeout
    assert descriptors() - before < MOST_OF_SILENT * len(silent)
    for member in silent:
        member.close()
    until(lambda: not closing())
    assert descriptors() <= before


MOST_OF_SILENT = 12  # descriptors of a group of three; all three have 31


def closing():
    return [each for each in threading.enumerate() if each.name == "leashed-closing"]


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


@gloo_needed
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("synchroniser", SYNCHRONISERS)
def test_replicas_become_those_of_the_own_ring(synchroniser, count):
    """In the foreground, where all is determined but the order of sums (whose rounding grows as they
    train, so not for long).
    """
    made = [SYNCHRONISERS[synchroniser](when=WHEN["foreground"]) for _ in range(count)]
    own = alike.Run(list(made), epochs=1).train()
    over = alike.Run(list(made), epochs=1, collectives=alike.meet("gloo", count)).train()
    for mine, its in zip(own, over, strict=True):
        counted = its.config["cluster"]
        assert counted["failed"] == 0
        assert counted["syncs"] == mine.config["cluster"]["syncs"] > 40
        assert counted["bytes_out"] == 0 < mine.config["cluster"]["bytes_out"]
        np.testing.assert_allclose(its.parameters, mine.parameters, rtol=1e-4, atol=1e-5)


@gloo_needed
def test_parts_of_the_parameters_in_turn_come_over_gloo_as_well():
    made = [lsh.sync.MA(alpha=1.0, parts=3, when=WHEN["foreground"]) for _ in range(2)]
    own = alike.Run(list(made), epochs=1).train()
    over = alike.Run(list(made), epochs=1, collectives=alike.meet("gloo", 2)).train()
    for mine, its in zip(own, over, strict=True):
        np.testing.assert_allclose(its.parameters, mine.parameters, rtol=1e-4, atol=1e-5)


# What is given to the core, by what it is asked.


@dataclass
class Given:
    """A member's; with the others' in the same process."""

    together: threading.Barrier
    shared: dict
    rank: int
    fails: bool = False
    hangs: bool = False
    closed: int = 0
    work: object = None
    asked: list = field(default_factory=list)

    def sum(self, values):
        self._begin("sum", values, lambda all_of_it: np.sum(all_of_it, axis=0))

    def broadcast(self, values, root):
        self._begin("broadcast", values, lambda all_of_it: all_of_it[root])

    def _begin(self, name, values, of):
        assert values.dtype == np.float32
        assert values.flags.writeable
        self.asked.append(name)
        self.work = values, of

    def done(self, seconds):
        assert 0 < seconds < 1
        if len(self.asked) > 1:  # at the first sum, which who leaves makes in any case
            if self.fails:
                raise OSError("it is gone")
            if self.hangs:
                time.sleep(seconds)
                return False
        values, of = self.work
        self.shared[self.rank] = values.copy()
        self.together.wait()
        found = of([self.shared[rank] for rank in range(self.together.parties)])
        self.together.wait()
        values[:] = found
        return True

    def close(self):
        self.closed += 1


def given(count, **settings):
    together, shared = threading.Barrier(count), {}
    return [Given(together, shared, rank, **settings) for rank in range(count)]


@pytest.mark.parametrize("when", WHEN)
def test_what_is_given_sums_and_is_closed_at_the_end(when):
    made = given(2)
    results = alike.Run([lsh.sync.MA(when=WHEN[when])] * 2, collectives=made).train()
    for each, result in zip(made, results, strict=True):
        assert each.asked[0] == "broadcast"
        assert set(each.asked[1:]) == {"sum"}
        assert result.config["cluster"]["syncs"] == len(each.asked) - 1
        assert each.closed == 1


@pytest.mark.parametrize("when", WHEN)
def test_what_fails_breaks_the_round_and_the_trainers_go_on(when):
    made = given(2, fails=True)
    results = alike.Run([lsh.sync.MA(when=WHEN[when])] * 2, collectives=made).train()
    for each, result in zip(made, results, strict=True):
        assert result.config["cluster"]["failed"] == 1
        assert len(each.asked) == 2
        assert each.closed == 1


@pytest.mark.parametrize("when", WHEN)
def test_what_hangs_is_given_up_at_the_deadline(when):
    made = given(2, hangs=True)
    run = alike.Run([lsh.sync.MA(when=WHEN[when])] * 2, collectives=made, timeout=1.0)
    results = run.train()
    assert all(len(each.asked) == 2 and each.closed == 1 for each in made)
    assert all(result.config["cluster"]["failed"] == 1 for result in results)


def test_it_ends_in_the_middle_of_a_sum():
    """Its last round is waited for no longer than the deadline, whoever has the GIL."""
    made = given(2, hangs=True)
    run = alike.Run([lsh.sync.MA()] * 2, collectives=made, timeout=2.0)
    begun = time.monotonic()
    run.train()
    assert time.monotonic() - begun < SOON
    assert all(each.closed == 1 for each in made)


def test_a_ring_that_nobody_comes_to_begin_is_closed():
    run = alike.Run([lsh.sync.MA()], collectives=[])
    run.natives = [run._native(lsh.sync.MA())]
    made = given(2)
    for epoch, each in enumerate(made, 1):
        run.natives[0].form_over(epoch, 0, [True, True], each)
    assert [each.closed for each in made] == [1, 0]
    run.natives.clear()
    assert [each.closed for each in made] == [1, 1]


class Meanwhile(Given):
    """While it sums, its trainer trains."""

    def train(self):
        pass

    def done(self, seconds):
        if self.asked[-1] == "sum":
            self.train()
        return super().done(seconds)


@pytest.mark.parametrize(
    "discipline",
    [lsh.Sequential(), lsh.Locked(), lsh.Hogwild(), lsh.Hogwild(copy=False), lsh.Leashed()],
    ids=repr,
)
@pytest.mark.parametrize(
    ("synchroniser", "whole"),
    [
        (lsh.sync.MA(alpha=0.25), False),
        (lsh.sync.MA(alpha=0.25, difference=True), True),
        (lsh.sync.MA(alpha=0.25, difference=True, parts=3), True),
        (lsh.sync.BMUF(alpha=0.25, eta=1.0, momentum=0.0), False),
        (lsh.sync.BMUF(alpha=0.25, eta=1.0, momentum=0.0, difference=True), True),
    ],
    ids=["ma", "ma-difference", "ma-difference-parts", "bmuf", "bmuf-difference"],
)
def test_what_is_trained_while_a_round_is_under_way_stays_by_differences(
    synchroniser, whole, discipline
):
    together, shared = threading.Barrier(2), {}
    made = [Meanwhile(together, shared, rank) for rank in range(2)]
    run = alike.Run([synchroniser] * 2, collectives=made)
    run.natives = [run._native(synchroniser) for _ in made]
    run._form_ring()

    def engine(index):
        return lsh.Engine(
            np.zeros(alike.D, np.float32), rule=lsh.SGD(1.0), discipline=discipline, workers=1,
            sync=synchroniser, cluster=alike.Place(run, index), batches=1, batch_size=1,
        )  # fmt: skip

    workers = [ThreadPoolExecutor(1) for _ in made]  # who mixes may not push
    joining = [worker.submit(engine, index) for index, worker in enumerate(workers)]
    engines = [each.result() for each in joining]
    ones, meanwhile = np.ones(alike.D, np.float32), [0, 0]

    def step(index):
        with engines[index].read():
            pass
        engines[index].push(ones)

    def train(index):
        if meanwhile[index] < 12:
            workers[index].submit(step, index).result()
            meanwhile[index] += 1

    for index in range(2):
        workers[index].submit(step, index).result()
    for index, each in enumerate(made):
        each.train = functools.partial(train, index)
    until(lambda: meanwhile == [12, 12])

    def moved():  # by both; what they have of each other's cancels out between two rounds
        return -sum(each.parameters() for each in engines)

    if whole:
        until(lambda: np.allclose(moved(), 26.0, rtol=1e-5))
    else:  # a quarter of what is trained in a round goes, but for rounds that had nothing to mix
        until(lambda: moved().max() < 22.0)
    for each, worker in zip(engines, workers, strict=True):
        each.close()
        worker.shutdown()


class Collects(Given):
    """The sum of two is this one's own; on the way garbage is collected."""

    def done(self, seconds):
        gc.collect()
        return seconds > 0


def test_an_engine_that_is_collected_while_it_sums_ends():
    (collects,) = given(1)
    collects = Collects(collects.together, collects.shared, 0)
    run = alike.Run([lsh.sync.MA()])
    run.natives = [run._native(lsh.sync.MA())]
    run.natives[0].form_over(1, 0, [False, False], collects)
    engine = lsh.Engine(
        np.zeros(alike.D, np.float32),
        workers=1,
        sync=lsh.sync.MA(),
        cluster=alike.Place(run, 0),
        batches=1,
        batch_size=1,
    )
    until(lambda: len(collects.asked) > 3)
    box = [engine]
    box.append(box)
    del engine, box
    until(lambda: collects.closed == 1)


# Runs.


def trained(run, index, synchroniser, total, backend="gloo"):
    """A trainer of a run in this process, by an engine."""
    dimension = 1000
    with lsh.Engine(
        np.zeros(dimension, np.float32),
        rule=lsh.SGD(0.1),
        workers=1,
        sync=synchroniser,
        cluster=run.cluster(index, backend=backend),
        batches=total,
        batch_size=4,
    ) as engine:
        for _ in engine.batches():
            with engine.read() as theta:
                gradient = theta - 1
            engine.push(gradient)
            time.sleep(0.001)
        counted = engine.cluster
    return engine.parameters(), counted


def come_and_go(folder, when, backend):
    """Of three trainers of a run, which come one after another and leave at a round's edge, what each has
    counted.
    """
    total, count = 1500, 3
    with inside.run(folder, 1000, total=total, batch_size=4, trainers=count) as run:

        def trainer(index):
            time.sleep(0.3 * index)
            return trained(run, index, lsh.sync.MA(when=WHEN[when]), total, backend)

        with ThreadPoolExecutor(count) as pool:
            results = list(pool.map(trainer, range(count)))
        report = run.report()
    assert report["ledger"]["complete"] == total
    assert report["ledger"]["again"] == 0
    for parameters, counted in results:
        assert counted["syncs"] > 0
        assert np.linalg.norm(parameters - 1) < 0.5 * np.sqrt(1000)
    return [counted for _, counted in results]


@gloo_needed
@pytest.mark.parametrize("when", WHEN)
def test_three_trainers_of_a_run_come_and_go(when, tmp_path):
    for counted in come_and_go(tmp_path, when, "gloo"):
        assert "bytes_out" not in counted


def summaries_of(folder, trainers):
    """Of a run of ``cluster up`` in which all was trained, nobody started again, and each has synchronised."""
    report = json.loads((folder / "run.json").read_text())
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    assert sum(report["restarts"].values()) == 0
    assert len(report["summaries"]) == trainers
    for each in report["summaries"].values():
        assert each["syncs"] > 0
    return list(report["summaries"].values())


@pytest.mark.process
@gloo_needed
def test_processes_of_a_run(tmp_path, capsys):
    """Two in the background: tests/cluster/test_docs.py."""
    folder, trainers = tmp_path / "run", 3
    arguments = ["--sync", "ma", "--backend", "gloo", "--when", "every:iterations=5"]
    arguments += ["--trainers", str(trainers), "--epochs", "1", "--run", str(folder)]
    assert cli.main(["cluster", "up", *arguments]) == 0
    for each in summaries_of(folder, trainers):
        assert not {"bytes_out", "bytes_in"} & each.keys()
    assert "–" in capsys.readouterr().out
    assert 'backend = "gloo"' in (folder / "plan.toml").read_text()


@pytest.mark.process
@pytest.mark.timeout(1200)
@gloo_needed
@pytest.mark.parametrize(
    "when",
    ["background", pytest.param({"iterations": 5}, marks=pytest.mark.long)],
    ids=["background", "foreground"],
)
def test_one_is_killed_and_one_stopped_and_the_others_go_on(when, tmp_path):
    # So long that the killed one has come back before the others are through: it imports PyTorch anew.
    plan = faults.make_plan(tmp_path / "run", "bmuf", when, epochs=400.0, sync_ps=0, backend="gloo")
    stopped = faults.Fault("trainer-0", 1.7 * faults.TIMEOUT, after="trainer-1")
    planned = [(-0.3, faults.Fault("trainer-1", None)), (0.0, stopped)]
    played = faults.play(plan, planned)
    faults.check(played)
    assert len(played.injector.injected) == 2
    assert all(each["syncs"] > 0 for each in played.report["summaries"].values())


JOINED = """
import sys
import leashed as lsh

when = lsh.sync.every(iterations=5) if sys.argv[3] == "foreground" else lsh.sync.background()
cluster = lsh.cluster.join(
    sync=lsh.sync.MA(when=when), servers=0, backend="gloo", rank=int(sys.argv[1]), size=2, rendezvous="127.0.0.1", folder=sys.argv[2],
    timeout=60.0,
)
lsh.train(
    lsh.models.mlp(784, [16], 10),
    lsh.datasets.synthetic_digits(n=2000, seed=0),
    until=lsh.until(epochs=2),
    batch_size=16,
    threads=1,
    cluster=cluster,
)
"""


@pytest.mark.process(1)
@gloo_needed
@pytest.mark.parametrize("when", WHEN)
def test_processes_that_join_end_in_peace(when, tmp_path):
    program = [sys.executable, "-c", JOINED]
    processes = [
        subprocess.Popen([*program, str(rank), str(tmp_path), when], stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    told = [each.communicate(timeout=200)[1].decode() for each in processes]
    assert [each.returncode for each in processes] == [0, 0], told
    assert told == ["", ""]


PROGRAM = """
import json, sys, time
import numpy as np
import leashed as lsh
from mpi4py import MPI
from leashed.cluster import mpi
from leashed.cluster.meeting import Meeting

world = MPI.COMM_WORLD

def finish(member):
    while not member.done(0.02):
        pass

def sums(ranks, epoch):
    # Of these ranks of the world, in this order.
    rank = ranks.index(world.rank)
    meeting = Meeting(rank, len(ranks), epoch, "127.0.0.1", 30.0, lambda _: map(str, ranks))
    member = mpi.meet(meeting)
    for root in range(len(ranks)):
        values = np.arange(1e5, dtype=np.float32) + world.rank
        member.sum(values)
        finish(member)
        assert np.array_equal(values, len(ranks) * np.arange(1e5, dtype=np.float32) + sum(ranks))
        values[:] = world.rank
        member.broadcast(values, root)
        finish(member)
        assert (values == ranks[root]).all()
    return member

everybody = list(range(world.size))
sums(everybody, 1).close()
last = sums(everybody[::-1], 2)
if world.rank > 0:
    sums(everybody[1:], 3).close()
# The first comes late; who waits is told so, and may give up.
if world.rank > 0:
    last.sum(np.ones(10, np.float32))
    assert not last.done(0.05)
    last.close()
    world.Barrier()
else:
    world.Barrier()
    last.sum(np.ones(10, np.float32))
    finish(last)
    last.close()
sums(everybody, 4).close()

when = lsh.sync.every(iterations=5) if sys.argv[2] == "foreground" else lsh.sync.background()
cluster = lsh.cluster.join(sync=lsh.sync.MA(when=when), servers=0, backend="mpi", timeout=60.0)
try:
    lsh.cluster.join(servers=0, backend="mpi", rank=world.rank, size=world.size + 1, rendezvous="127.0.0.1")
    raise SystemExit("it was not refused")
except ValueError as error:
    assert "in one MPI world" in str(error)
result = lsh.train(
    lsh.models.mlp(784, [16], 10),
    lsh.datasets.synthetic_digits(n=2000, seed=0),
    until=lsh.until(epochs=4),
    batch_size=16,
    threads=1,
    cluster=cluster,
)
with open(f"{sys.argv[1]}/{cluster.index}", "w") as file:
    json.dump({**result.config["cluster"], "loss": float(result.loss[-1])}, file)
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("members", "when"),
    [
        (2, "background"),
        (3, "foreground"),
        pytest.param(2, "foreground", marks=pytest.mark.long),
        pytest.param(3, "background", marks=pytest.mark.long),
    ],
)
def test_processes_of_mpirun(members, when, tmp_path):
    mpirun = mpiexec()
    if mpirun is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip(
            "NOTHING WAS TESTED OVER MPI: no mpiexec or no mpi4py (pip install mpich mpi4py)"
        )
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    out = tmp_path / "out"
    out.mkdir()
    ended = subprocess.run(
        [mpirun, "-n", str(members), sys.executable, str(program), str(out), when],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert ended.returncode == 0, ended.stderr
    found = [json.loads((out / str(index)).read_text()) for index in range(members)]
    assert sum(each["batches_used"] for each in found) == 500  # 4 · 2,000 / 16
    for each in found:
        assert each["syncs"] > 0
        assert each["sync_failed"] == 0
        assert each["loss"] < 1.5
        assert "bytes_out" not in each


# What is refused before anything starts.


def join(**given):
    return lsh.cluster.join(rank=0, size=2, rendezvous="127.0.0.1", servers=0, **given)


@pytest.mark.parametrize("name", ["nccl", "", None, ["gloo"]])
def test_an_unknown_one_is_refused(name):
    with pytest.raises(ValueError, match="backend must be one of leashed, direct, gloo, mpi, got"):
        join(backend=name)
    with pytest.raises(
        ValueError, match=r"cluster\.backend must be one of leashed, direct, gloo, mpi, got"
    ):
        plans.Cluster(backend=name)


def test_one_that_is_not_installed_is_refused(monkeypatch, capsys):
    for module in ("torch.distributed", "mpi4py.MPI"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        ImportError, match=r"backend='gloo' needs PyTorch: pip install leashed\[torch"
    ):
        join(backend="gloo")
    with pytest.raises(
        ImportError,
        match=r"backend='mpi' needs mpi4py and an MPI library: pip install leashed\[mpi",
    ):
        join(backend="mpi")
    assert cli.main(["cluster", "up", "--sync", "ma", "--backend", "gloo"]) == 2
    assert "backend='gloo' needs PyTorch" in capsys.readouterr().err


class World:
    """In the place of mpi4py's MPI."""

    THREAD_MULTIPLE = 3

    def __init__(self, size, level):
        self.COMM_WORLD = self
        self.Get_size = lambda: size
        self.Query_thread = lambda: level


def test_mpi_outside_of_mpirun_is_refused(monkeypatch):
    monkeypatch.setattr(mpi, "_library", lambda: World(1, World.THREAD_MULTIPLE))
    with pytest.raises(
        ValueError, match=r"all 2 trainers in one MPI world, and this one has 1: .*mpirun"
    ):
        join(backend="mpi")
    mpi.check(1)


def test_mpi_without_threads_is_refused(monkeypatch):
    monkeypatch.setattr(mpi, "_library", lambda: World(2, 2))
    with pytest.raises(ValueError, match="backend='mpi' needs MPI_THREAD_MULTIPLE"):
        join(backend="mpi")


def test_mpi_is_not_for_trainers_that_are_started_one_by_one(capsys):
    with pytest.raises(
        ValueError, match=r"cluster\.backend 'mpi' needs .* mpirun .*join\(backend='mpi'"
    ):
        plans.parse('[cluster]\nbackend = "mpi"\n', Path("/"))
    assert cli.main(["cluster", "up", "--sync", "ma", "--backend", "mpi"]) == 2
    assert "mpirun" in capsys.readouterr().err


@gloo_needed
def test_servers_and_compression_are_refused(tmp_path):
    text = '[cluster]\nbackend = "gloo"\n[sync]\nkind = "{}"\ncompression = "{}"\n'
    plans.parse(text.format("ma", "none"), tmp_path)
    with pytest.raises(ValueError, match=r"cluster\.backend 'gloo' sums among trainers, and EASGD"):
        plans.parse(text.format("easgd", "none"), tmp_path)
    with pytest.raises(ValueError, match="so compression must be 'none', got 'int8'"):
        plans.parse(text.format("bmuf", "int8"), tmp_path)
    cluster = lsh.cluster.join(rank=0, size=1, backend="gloo", folder=tmp_path)
    for synchroniser, words in (
        (lsh.sync.EASGD(), "backend 'gloo' sums among trainers, and EASGD exchanges"),
        (lsh.sync.MA(compression="bfloat16"), "so compression must be 'none', got 'bfloat16'"),
    ):
        with pytest.raises(ValueError, match=words):
            lsh.Engine(
                np.zeros(5, np.float32), workers=1, sync=synchroniser, cluster=cluster,
                batches=1, batch_size=1,
            )  # fmt: skip
    assert not list(tmp_path.glob("run-*"))


def test_each_is_a_line_in_a_table():
    assert collectives.BACKENDS["gloo"] == collectives.Backend(gloo.check, gloo.meet)
    assert next(iter(collectives.BACKENDS)) == collectives.OWN
