"""Python processes train one vector in shared memory; in each round one of them is killed.

    python tests/shared_kills.py [ROUNDS]

Each round: four forked processes, a kill -9 at a random moment (from before the victim has attached
to the middle of an update), another process in the dead one's place; then every view must be of one
version, t what the processes have counted or one more, one slot in use, and the name gone.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

import leashed as lsh

LENGTH = 5000
PROCESSES = 4


def fork(work: Callable[[], None]) -> int:
    """A child that does the work and ends."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
        os._exit(0)
    except BaseException:  # noqa: BLE001 (a child of fork must not return)
        traceback.print_exc()
    os._exit(1)


def train(name: str, counts: np.ndarray, me: int) -> None:
    """Until counts[-1] says stop; counts[me] is how many updates were published."""
    gradient = np.ones(LENGTH, np.float32)
    with lsh.SharedVector.attach(name) as vector:
        while not counts[-1]:
            with (view := vector.read()) as theta:
                assert (theta == -view.t).all(), "a view of more than one version"
            assert vector.push(gradient).published
            counts[me] += 1


def play(name: str, rng: random.Random) -> None:
    """One round."""
    counts = np.frombuffer(mmap.mmap(-1, 8 * (PROCESSES + 2)), np.int64)
    with lsh.SharedVector.create(
        name, np.zeros(LENGTH), rule=lsh.SGD(1.0), participants=PROCESSES + 1
    ) as vector:
        pids = [fork(lambda me=me: train(name, counts, me)) for me in range(PROCESSES)]  # type: ignore[misc]
        time.sleep(rng.uniform(0.0, 0.08))
        victim = pids.pop(rng.randrange(PROCESSES))
        os.kill(victim, signal.SIGKILL)
        assert os.waitpid(victim, 0)[1] == signal.SIGKILL
        then = vector.t
        pids.append(fork(lambda: train(name, counts, PROCESSES)))
        end = time.monotonic() + 60
        while vector.t < then + 20 or not counts[PROCESSES]:
            assert time.monotonic() < end, "the others do not go on"
            time.sleep(0.001)
        counts[-1] = 1
        for pid in pids:
            assert os.waitpid(pid, 0)[1] == 0
        state, t = vector.state()
        assert (state == -t).all()
        assert counts[:-1].sum() <= t <= counts[:-1].sum() + 1
        vector.reap()
        assert vector.pids == [os.getpid()]
        assert vector.live == 1
    assert not Path(f"/dev/shm/leashed.{name}").exists()


def main(rounds: int) -> None:
    """So many rounds."""
    rng = random.Random()
    for done in range(rounds):
        play(f"kills.{os.getpid()}", rng)
        print(f"\r{done + 1} of {rounds}", end="", flush=True)
    print()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
