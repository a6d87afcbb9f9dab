"""Engines and ``torch.fit`` of several trainers: in sync, with each batch trained by one of them."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from cluster import inside
from cluster.handing import handed_in
from numpy.typing import NDArray

import leashed as lsh
from leashed import _core
from leashed.cluster.session import Cluster

D = 3000
GOAL = np.random.default_rng(0).standard_normal(D).astype(np.float32)
ZEROS = np.zeros(D, np.float32)
WHEN = {"background": lsh.sync.background(), "foreground": lsh.sync.every(iterations=5)}
KINDS: dict[str, Callable[..., lsh.sync.Synchroniser]] = {
    "easgd": lsh.sync.EASGD,
    "ma": lsh.sync.MA,
    "bmuf": lsh.sync.BMUF,
}
DISCIPLINES = (
    lsh.Sequential(),
    lsh.Locked(),
    lsh.Hogwild(),
    lsh.Hogwild(copy=False),
    lsh.Leashed(),
)
MANY = 40  # batches, among which a trainer of two workers has a gap's end
FOREVER = 3600.0  # seconds: what waits for so long fails by the tests' own limit
torch_needed = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="NOTHING OF torch.fit WAS TESTED IN A CLUSTER: PyTorch is not installed",
)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + inside.PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def both(work: Callable[[int], object]) -> list[object]:
    """``work`` of two trainers, at the same time."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, range(2)))


def train(engine: lsh.Engine, threads: int = 2) -> list[int]:
    """All numbers that the engine's batches have, by so many threads."""
    seen: list[int] = []

    def loop() -> None:
        for k in engine.batches():
            with engine.read() as theta:
                gradient = theta - GOAL
            engine.push(gradient)
            seen.append(k)

    if threads == 1:
        loop()
    else:
        with ThreadPoolExecutor(threads) as pool:
            for each in [pool.submit(loop) for _ in range(threads)]:
                each.result()
    return seen


def distance(engine: lsh.Engine) -> float:
    """From the goal; 1 at the beginning."""
    return float(np.linalg.norm(engine.parameters() - GOAL) / np.linalg.norm(GOAL))


def step(engine: lsh.Engine) -> None:
    with engine.read() as theta:
        gradient = theta - GOAL
    engine.push(gradient)


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("kind", KINDS)
def test_every_batch_is_one_trainers_and_the_engines_come_together(kind, when, tmp_path):
    total, servers = 600, 2 * (kind == "easgd")
    with inside.run(tmp_path, D, servers, total=total, batch_size=8, trainers=2) as run:

        def trainer(index):
            with lsh.Engine(
                ZEROS,
                rule=lsh.SGD(0.05),
                workers=2,
                sync=KINDS[kind](when=WHEN[when]),
                cluster=run.cluster(index),
                batches=total,
                batch_size=8,
            ) as engine:
                seen = train(engine)
                assert 0 <= engine.cluster["batches_used"] <= len(seen)
                if when == "background":  # which may not have had its turn yet
                    until(lambda: engine.cluster["syncs"] > 0)
            return engine, seen

        trainers = both(trainer)
        report = run.report()
    assert sorted(trainers[0][1] + trainers[1][1]) == list(range(total))
    ledger = report["ledger"]
    assert (ledger["complete"], ledger["outstanding"], ledger["again"]) == (total, 0, 0)
    for index, (engine, seen) in enumerate(trainers):
        counted = engine.cluster
        assert counted == report["summaries"][f"trainer-{index}"]
        if when == "background" or len(seen) > MANY:
            assert counted["syncs"] > 0
            assert min(counted["bytes_out"], counted["bytes_in"]) > 0
        assert counted["updates"] == engine.t == len(seen) == counted["batches_used"]
        assert counted["examples"] == 8 * len(seen)
        assert counted["staleness_mean"] >= 0
        np.testing.assert_array_equal(run.result(index), engine.parameters())
    # One of them has trained half of the batches or more.
    assert min(distance(engine) for engine, _ in trainers) < 0.5


@pytest.mark.parametrize("discipline", DISCIPLINES, ids=lambda d: d.label)
@pytest.mark.parametrize("kind", KINDS)
def test_alpha_0_in_the_foreground_has_the_bits_of_none(kind, discipline, tmp_path):
    check_bits(kind, lsh.sync.every(iterations=3), discipline, tmp_path)


@pytest.mark.parametrize("discipline", [lsh.Locked(), lsh.Leashed()], ids=lambda d: d.label)
@pytest.mark.parametrize("kind", KINDS)
def test_alpha_0_in_the_background_has_the_bits_of_none(kind, discipline, tmp_path):
    check_bits(kind, lsh.sync.background(), discipline, tmp_path)


def check_bits(kind, when, discipline, tmp_path):
    def parameters(**given):
        with lsh.Engine(
            ZEROS, rule=lsh.Adam(0.01), discipline=discipline, workers=1, batches=200, **given
        ) as engine:
            train(engine, 1)
            if given:  # a background that has not had its turn yet has it before the end
                until(lambda: engine.cluster["syncs"] > 0)
        return engine.parameters()

    with inside.run(tmp_path, D, kind == "easgd", total=200) as run:
        sync = KINDS[kind](alpha=0.0, when=when)
        found = parameters(sync=sync, cluster=run.cluster())
    np.testing.assert_array_equal(found, parameters())


def test_connections_are_closed_when_a_training_is_over_though_its_session_is_kept(
    tmp_path, monkeypatch
):
    kept = []
    begin = Cluster.session

    def session(self, *given, **named):
        kept.append(begin(self, *given, **named))
        return kept[-1]

    monkeypatch.setattr(Cluster, "session", session)
    with inside.run(tmp_path, D, servers=1, total=50) as run:
        sync = lsh.sync.EASGD(when=WHEN["background"])
        with lsh.Engine(ZEROS, sync=sync, cluster=run.cluster(), batches=50) as engine:
            train(engine, 1)
            assert kept[0].native is not None
        # Nobody else has the core's half of the session: with it its sockets are closed.
        assert kept[0].native is None


def test_a_ledger_without_synchronisation(tmp_path):
    with inside.run(tmp_path, D, total=100, trainers=2) as run:

        def trainer(index):
            with lsh.Engine(ZEROS, cluster=run.cluster(index), batches=100) as engine:
                return train(engine)

        seen = both(trainer)
        assert sorted(seen[0] + seen[1]) == list(range(100))
        assert run.report()["reason"] == "all trainers have finished"


@pytest.mark.parametrize("when", WHEN)
def test_loops_that_choose_their_batches_themselves(when, tmp_path):
    with inside.run(tmp_path, D, trainers=2) as run:

        def trainer(index):
            sync = lsh.sync.MA(when=WHEN[when])
            with lsh.Engine(ZEROS, rule=lsh.SGD(0.05), sync=sync, cluster=run.cluster(index)) as e:
                until(lambda: (e.cluster["syncs"] > 0 and distance(e) < 0.5) or step(e))
            return e

        engines = both(trainer)
        assert run.report()["reason"] == "all trainers have finished"
        for index, engine in enumerate(engines):
            assert engine.cluster["updates"] == engine.t > 0
            np.testing.assert_array_equal(run.result(index), engine.parameters())


WIDE = 2 * _core.FRAGMENT + 300


@pytest.mark.parametrize(("compression", "near"), [("none", 1e-5), ("bfloat16", 1e-2)])
def test_by_differences_no_push_is_lost_over_a_ring(compression, near, tmp_path):
    """The sum of the replicas moves by what is pushed, and by nothing else."""
    sync = lsh.sync.MA(alpha=0.5, difference=True, compression=compression)
    zeros, ones = np.zeros(WIDE, np.float32), np.ones(WIDE, np.float32)
    together = threading.Barrier(2, timeout=inside.PATIENCE)
    engines: list = [None, None]
    counted = [0, 0]
    with inside.run(tmp_path, WIDE, trainers=2) as run:

        def trainer(index: int) -> None:
            rule = lsh.SGD(1.0)
            with lsh.Engine(zeros, rule=rule, sync=sync, cluster=run.cluster(index)) as engine:
                engines[index] = engine

                def push(gradient: NDArray[np.float32]) -> None:
                    with engine.read():
                        pass
                    engine.push(gradient)

                def rounds() -> int:
                    return engine.cluster["syncs"]

                until(lambda: rounds() > 0 or push(zeros))  # then both have the same parameters
                together.wait()
                before, pushed = rounds(), 0
                while pushed < 40 or rounds() < before + 5:
                    push(ones)
                    pushed += 1
                counted[index] = pushed
                together.wait()

                def whole() -> bool:
                    moved = -sum(each.parameters() for each in engines)
                    return np.abs(moved / sum(counted) - 1).max() < near

                until(whole)  # between the mixes of a round it is not
                together.wait()

        both(trainer)


def test_what_is_not_said_to_be_used_is_given_to_another(tmp_path):
    with inside.run(tmp_path, D, total=20, trainers=2) as run:
        with lsh.Engine(ZEROS, cluster=run.cluster(0), batches=20) as engine:
            numbers = engine.batches()
            first, second = next(numbers), next(numbers)
            third = next(engine.batches())
            numbers.used()
            numbers.used()
        with lsh.Engine(ZEROS, cluster=run.cluster(1), batches=20) as other:
            rest = train(other)
        assert (first, second, third) == (0, 1, 2)
        assert sorted(rest) == list(range(2, 20))
        assert run.report()["ledger"]["again"] == 0  # it was given back, not lost


def test_batches_on_one_machine():
    engine = lsh.Engine(ZEROS, workers=3, batches=100)
    assert engine.cluster == {}
    assert sorted(train(engine, 3)) == list(range(100))
    engine.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(engine.batches())


def test_who_leaves_by_an_exception_counts_as_dead(tmp_path):
    with inside.run(tmp_path, D, total=20, trainers=2) as run:
        engine = lsh.Engine(ZEROS, cluster=run.cluster(0), batches=20)
        with pytest.raises(ZeroDivisionError), engine:
            raise ZeroDivisionError(next(engine.batches()))
        engine.close()  # once more
        with lsh.Engine(ZEROS, cluster=run.cluster(1), batches=20) as other:
            assert sorted(train(other)) == list(range(20))
        assert list(handed_in(run.folder)) == ["trainer-1"]
        run.stop()
        report = run.report()
    assert report["ledger"]["again"] > 0
    assert [m["finished"] for m in report["members"]] == [False, True]


@pytest.mark.parametrize("when", WHEN)
def test_an_engine_that_is_dropped_leaves_the_run(when, tmp_path):
    with inside.run(tmp_path, D, trainers=1) as run:
        engine = lsh.Engine(ZEROS, sync=lsh.sync.MA(when=WHEN[when]), cluster=run.cluster())
        with engine.read() as theta:
            pass
        step(engine)
        del engine
        gc.collect()
        assert (theta == 0).all()
        del theta
        until(lambda: [each for each in members(run) if each["gone"] is not None])


def members(run: inside.Run) -> list[dict]:
    with contextlib.suppress(FileNotFoundError):
        return json.loads((run.folder / "run.json").read_text())["members"]
    return []


class Halfway(lsh.sync.Synchroniser):
    calls = 0

    def mix(self, theta, other, members):
        assert theta.shape == other.shape == (D,)
        assert not other.flags.writeable
        assert members == 1
        Halfway.calls += 1
        theta += 0.5 * (other - theta)


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("servers", [False, True])
def test_a_synchroniser_of_ones_own(servers, when, tmp_path):
    class Mine(Halfway):
        SERVERS = servers

    Halfway.calls = 0
    with inside.run(tmp_path, D, servers) as run:
        sync = Mine(when=WHEN[when])
        with lsh.Engine(ZEROS, rule=lsh.SGD(0.05), sync=sync, cluster=run.cluster()) as engine:
            until(lambda: Halfway.calls > 3 or step(engine))
            until(lambda: distance(engine) < 0.1 or step(engine))


class Broken(lsh.sync.Synchroniser):
    calls = 0

    def mix(self, *_):
        Broken.calls += 1
        raise ZeroDivisionError("of my own")


@pytest.mark.parametrize("when", WHEN)
def test_an_exception_of_ones_own_comes_out_once(when, tmp_path):
    with inside.run(tmp_path, D) as run:
        engine = lsh.Engine(ZEROS, sync=Broken(when=WHEN[when]), cluster=run.cluster())
        with pytest.raises(ZeroDivisionError, match="of my own"):
            until(lambda: step(engine))
        for call in (lambda: engine.read().__enter__(), lambda: engine.push(ZEROS, t=0)):
            with pytest.raises(RuntimeError, match=r"synchronisation has failed.*close it"):
                call()
        with pytest.raises(RuntimeError, match="synchronisation has failed"):
            next(engine.batches())
        engine.close()
        assert not handed_in(run.folder) or engine.cluster


def test_an_exception_that_nobody_has_got_comes_out_of_close(tmp_path):
    with inside.run(tmp_path, D) as run:
        Broken.calls = 0
        engine = lsh.Engine(ZEROS, sync=Broken(), cluster=run.cluster())
        engine.push(ZEROS, t=0)
        until(lambda: Broken.calls)
        with pytest.raises(ZeroDivisionError, match="of my own"):
            engine.close()
        engine.close()
        assert np.array_equal(engine.parameters(), ZEROS)


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("does", ["push", "close"])
def test_a_synchroniser_may_not_use_its_engine(does, when, tmp_path):
    class Greedy(lsh.sync.Synchroniser):
        def mix(self, *_):
            if engines:
                engines[0].push(ZEROS, t=0) if does == "push" else engines[0].close()

    engines: list[lsh.Engine] = []
    with inside.run(tmp_path, D) as run:
        engines.append(lsh.Engine(ZEROS, sync=Greedy(when=WHEN[when]), cluster=run.cluster()))
        with pytest.raises(RuntimeError, match=f"mix must not {does}"):
            until(lambda: step(engines[0]))
        engines[0].close()


SERVER = """
import sys
from pathlib import Path
from leashed.cluster import server
from leashed.cluster.opening import Key
from leashed.cluster.serving import Place
place = Place(sys.argv[2], Key(b"k" * 32, given=False), "127.0.0.1", Path(sys.argv[3]), 5.0, "tcp")
server.serve(int(sys.argv[1]), 1, 0, place)
"""


@contextlib.contextmanager
def server(run: inside.Run, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A sync server that is a process, and can be stopped."""
    address = run.cluster().master
    program = [sys.executable, "-c", SERVER, str(D), str(address), str(folder)]
    with subprocess.Popen(program) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.process
@pytest.mark.parametrize("when", WHEN)
def test_close_does_not_wait_for_a_server_that_hangs(when, tmp_path):
    with (
        inside.run(tmp_path, D, sync_ps=1, timeout=FOREVER, beat=1.0) as run,
        server(run, tmp_path) as process,
    ):
        cluster = run.cluster(servers=1, timeout=FOREVER)
        engine = lsh.Engine(ZEROS, workers=3, sync=lsh.sync.EASGD(when=WHEN[when]), cluster=cluster)
        until(lambda: engine.cluster["syncs"] > 3 or step(engine))
        os.kill(process.pid, signal.SIGSTOP)
        pushed: list[int] = []

        def push() -> None:
            with contextlib.suppress(RuntimeError):  # it is closed
                while True:
                    step(engine)
                    pushed.append(1)

        threads = [threading.Thread(target=push) for _ in range(2)]
        for thread in threads:
            thread.start()
        if when == "background":
            before = len(pushed)
            until(lambda: len(pushed) > before + 100)  # nobody waits for the server
        else:
            until(lambda: len(pushed) >= 8)  # 4 each: the next waits for the server
            time.sleep(0.2)
        engine.close()
        for thread in threads:
            thread.join(inside.PATIENCE)
            assert not thread.is_alive()
        assert engine.cluster["updates"] == engine.t


def test_a_thread_that_does_other_things_holds_no_round_up_for_long(tmp_path):
    with inside.run(tmp_path, D) as run:
        sync = lsh.sync.MA(when=lsh.sync.every(iterations=2))
        with lsh.Engine(ZEROS, sync=sync, cluster=run.cluster(timeout=0.5)) as engine:
            until(lambda: engine.cluster["syncs"] > 0 or step(engine))  # this one waits from now on

            def loop() -> None:
                before = engine.cluster["syncs"]
                until(lambda: engine.cluster["syncs"] > before + 5 or step(engine))

            with ThreadPoolExecutor(1) as pool:
                pool.submit(loop).result()
            step(engine)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"sync": lsh.sync.MA()}, ValueError, "sync needs cluster"),
        ({"sync": 1, "cluster": "here"}, TypeError, "sync must come from leashed.sync"),
        ({"sync": lsh.sync.EASGD(), "cluster": "here"}, ValueError, "EASGD needs sync servers"),
        ({"cluster": "nowhere"}, TypeError, "cluster must come from leashed.cluster.join"),
        ({"batches": 0}, ValueError, "batches must be at least 1"),
        ({"batches": 1.5}, TypeError, "batches must be a whole number"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"batches": 9, "cluster": "here"}, ValueError, "batches is 9 here, and 20 in the run"),
        ({"cluster": "here"}, ValueError, "batches is no end here, and 20 in"),
        ({"batches": 20, "batch_size": 2, "cluster": "here"}, ValueError, "batch_size is 2 here"),
        (
            {"batches": 20, "sync": lsh.sync.EASGD(), "cluster": "more"},
            ValueError,
            "sync servers is 3 here, and 0 in the run",
        ),
    ],
)
def test_wrong_arguments(given, error, message, tmp_path):
    threads = threading.active_count()
    with inside.run(tmp_path, D, total=20) as run:
        if given.get("cluster") == "here":
            given = {**given, "cluster": run.cluster()}
        if given.get("cluster") == "more":
            given = {**given, "cluster": run.cluster(servers=3)}
        with pytest.raises(error, match=message):
            lsh.Engine(ZEROS, **given)
    assert threading.active_count() <= threads  # of a test before one may have ended meanwhile
    with pytest.raises(ValueError, match=r"batches\(\) needs Engine\(batches="):
        lsh.Engine(ZEROS).batches()


PROGRAM = """
import sys
import numpy as np
import leashed as lsh

goal = np.arange(1000, dtype=np.float32)
cluster = lsh.cluster.join(rank=int(sys.argv[1]), size=2, servers=1, folder=sys.argv[2],
                           rendezvous="127.0.0.1")
with lsh.Engine(np.zeros(1000), rule=lsh.SGD(0.1), sync=lsh.sync.EASGD(), cluster=cluster,
                batches=400) as engine:
    for k in engine.batches():
        with engine.read() as theta:
            gradient = theta - goal
        engine.push(gradient)
distance = np.linalg.norm(engine.parameters() - goal) / np.linalg.norm(goal)
print(int(engine.cluster["batches_used"]), distance)
"""


@pytest.mark.process
def test_two_processes(tmp_path):
    def process(rank):
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, str(rank), str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )

    ended = both(process)
    assert [each.stderr for each in ended if each.returncode] == []
    told = [each.stdout.split() for each in ended]
    assert sum(int(batches) for batches, _ in told) == 400
    # One of them has trained half of the batches or more.
    assert min(float(distance) for _, distance in told) < 0.5


UNCLOSED = """
import sys
import numpy as np
import leashed as lsh

class Mine(lsh.sync.Synchroniser):
    def mix(self, theta, other, members):
        pass

cluster = lsh.cluster.join(rank=0, size=1, servers=0, folder=sys.argv[1], grace=0.5)
engine = lsh.Engine(np.zeros(1000), sync=Mine(), cluster=cluster)
with engine.read() as theta:
    engine.push(theta)
print("over")
"""


@pytest.mark.process
def test_an_interpreter_ends_with_an_engine_that_is_not_closed(tmp_path):
    program = [sys.executable, "-c", UNCLOSED, str(tmp_path)]
    ended = subprocess.run(program, capture_output=True, text=True, check=False, timeout=200)
    assert (ended.returncode, ended.stdout) == (0, "over\n"), ended.stderr


ROWS = 640


def rows() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((ROWS, 10)).astype(np.float32)
    return x, x @ rng.standard_normal((10, 1)).astype(np.float32)


def fit(until_: lsh.Until, **given):
    """On a small regression; module and result."""
    import torch  # noqa: PLC0415

    torch.manual_seed(0)
    module = torch.nn.Linear(10, 1)
    dataset = tuple(torch.from_numpy(each) for each in rows())
    result = lsh.torch.fit(
        module, torch.nn.functional.mse_loss, dataset, until=until_, batch_size=16, **given
    )
    return module, result


@torch_needed
@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("kind", KINDS)
def test_fit_trains_every_batch_once(kind, when, tmp_path):
    terms = {"total": 200, "batch_size": 16, "trainers": 2}
    with inside.run(tmp_path, 11, kind == "easgd", **terms) as run:

        def trainer(index):
            return fit(
                lsh.until(epochs=5),
                rule=lsh.SGD(0.05),
                threads=2,
                sync=KINDS[kind](when=WHEN[when]),
                cluster=run.cluster(index),
            )

        trainers = both(trainer)
        report = run.report()
    assert report["ledger"]["complete"] == 200
    assert sum(len(result.losses) for _, result in trainers) == 200
    for index, (module, result) in enumerate(trainers):
        assert result.examples == 16 * len(result.losses) == result.cluster["examples"]
        assert result.updates == result.cluster["updates"]
        if when == "foreground" and len(result.losses) > MANY:
            assert result.cluster["syncs"] > 0
            assert result.losses[-1] < 0.1 * result.losses[0]
        mine = np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])
        np.testing.assert_array_equal(run.result(index), mine)


@torch_needed
@pytest.mark.parametrize("discipline", DISCIPLINES, ids=lambda d: d.label)
def test_fit_with_alpha_0_has_the_bits_of_none(discipline, tmp_path):
    alone = fit(lsh.until(epochs=2), threads=1, discipline=discipline)
    with inside.run(tmp_path, 11, 1, total=80, batch_size=16) as run:
        synced = fit(
            lsh.until(epochs=2),
            threads=1,
            discipline=discipline,
            sync=lsh.sync.EASGD(alpha=0.0, when=lsh.sync.every(iterations=3)),
            cluster=run.cluster(),
        )
    np.testing.assert_array_equal(alone[1].losses, synced[1].losses)
    for one, other in zip(alone[0].parameters(), synced[0].parameters(), strict=True):
        assert (one == other).all()
    assert alone[1].cluster == {}


@torch_needed
def test_fit_has_stop_rules_of_its_own(tmp_path):
    with inside.run(tmp_path, 11, total=200, batch_size=16, trainers=2) as run:
        _, first = fit(lsh.until(epochs=5, updates=30), threads=2, cluster=run.cluster(0))
        assert first.updates == 30
        # Another holds what is left of the batches, and does not train it: it may come back.
        with lsh.Engine(np.zeros(11), cluster=run.cluster(1), batches=200, batch_size=16) as other:
            numbers = [next(other.batches()) for _ in range(170)]
            assert len(set(numbers)) == 170


@torch_needed
def test_fit_stops_in_time_where_it_waits_for_a_batch(tmp_path):
    with inside.run(tmp_path, 11, total=40, batch_size=16, trainers=2) as run:
        other = lsh.Engine(np.zeros(11), cluster=run.cluster(1), batches=40, batch_size=16)
        held = [next(other.batches())]
        _, result = fit(lsh.until(epochs=1, seconds=1.0), threads=2, cluster=run.cluster(0))
        assert len(result.losses) < 40
        held.append(next(other.batches()))
        other.close()


@torch_needed
def test_fit_raises_what_a_synchroniser_has_raised(tmp_path):
    with (
        inside.run(tmp_path, 11, total=200, batch_size=16) as run,
        pytest.raises(ZeroDivisionError, match="of my own"),
    ):
        fit(
            lsh.until(epochs=5),
            threads=2,
            sync=Broken(when=lsh.sync.every(iterations=2)),
            cluster=run.cluster(),
        )


@torch_needed
def test_fit_checks_its_arguments(tmp_path):
    with pytest.raises(ValueError, match="sync needs cluster"):
        fit(lsh.until(epochs=1), sync=lsh.sync.MA())
    with pytest.raises(TypeError, match="cluster must come from"):
        fit(lsh.until(epochs=1), cluster=3)
    with (
        inside.run(tmp_path, 11, total=40, batch_size=16) as run,
        pytest.raises(ValueError, match="batches is 80 here, and 40 in the run"),
    ):
        fit(lsh.until(epochs=2), cluster=run.cluster())
