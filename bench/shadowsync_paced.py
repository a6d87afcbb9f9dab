"""Figure 6(b) of shadowsync, small, over real sockets, with rows at servers: examples a second.

python -m bench.shadowsync_paced --output FILE [--repeats 3]

All processes share two processors here, so a gradient waits in place of computing: 50 ms in the mean,
drawn evenly from 0 to twice that; it is zeros. All that goes between trainers, their shadows and the
embedding servers is as in any training: DLRM's parameters and tables, batches of 64 synthetic clicks.

What is tried, written down before it was run: 2 and 4 trainers of a thread, as many embedding servers; MA
and BMUF, without momentum, in the background and at a gap of 2, as Figure 6(a)'s over sockets. What is
counted are gradients that end within a window of 6 s, which begins 2 s after a trainer's first.

Writes a JSON line for each run; a run that FILE has already is not run again. Prints what the paper's
claim comes to.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import leashed as lsh
from bench.shadowsync_sockets import BMUF, MA, OFTEN, TRAINERS, page

RESULTS = "shadowsync-paced"
PACE = 0.05  # seconds of a gradient
WARM, WINDOW = 2.0, 6.0
BATCH = 64


def arms() -> dict[str, lsh.sync.Synchroniser]:
    """The synchroniser of each arm, by its name."""
    often = lsh.sync.every(iterations=OFTEN)
    return {
        f"S-{MA}": lsh.sync.MA(),
        f"FR-{MA}": lsh.sync.MA(when=often),
        f"S-{BMUF}": lsh.sync.BMUF(momentum=0.0),
        f"FR-{BMUF}": lsh.sync.BMUF(momentum=0.0, when=often),
    }


class Paced:
    """A gradient of zeros, in parameters and rows, that takes its time; when each has ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def __call__(self, theta: object, x: object, y: object, rows: object, out: Any) -> float:  # noqa: ARG002
        time.sleep(random.uniform(0.0, 2.0 * PACE))
        out[:] = 0.0
        self.ends.append(time.monotonic())
        return 0.0

    @staticmethod
    def loss(theta: object, x: object, y: object, rows: object) -> float:  # noqa: ARG004
        """For evaluations, which no trainer waits for."""
        return 0.0

    def eps(self) -> float:
        """Examples a second within the window."""
        begin = self.ends[0] + WARM
        return BATCH * sum(begin <= end < begin + WINDOW for end in self.ends) / WINDOW


def train(arm: str, rank: int, trainers: int, folder: Path) -> float:
    """One trainer's part of a run; its examples a second."""
    like = lsh.models.dlrm(100_000)
    paced = Paced()
    model = lsh.models.external(
        paced,
        loss=paced.loss,
        dimension=like.dimension,
        features=13,
        ids=like.tables,
        name="paced",
    )
    lsh.train(
        model,
        lsh.datasets.synthetic_clicks(20_000, seed=0).train,
        rule=lsh.Adagrad(0.05),
        until=lsh.until(seconds=WARM + WINDOW + 2.0),
        threads=1,
        batch_size=BATCH,
        cluster=lsh.cluster.join(
            sync=arms()[arm],
            embedding_servers=trainers,
            rendezvous="127.0.0.1",
            rank=rank,
            size=trainers,
            folder=folder,
        ),
    )
    return paced.eps()


def run(arm: str, trainers: int, repeat: int) -> dict[str, Any]:
    """One run; its trainers' examples a second together."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "bench.shadowsync_paced", "--output", folder, "--arm", arm]
        started = [
            subprocess.Popen(
                [*words, "--trainers", str(trainers), "--rank", str(rank)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(trainers)
        ]
        said = [each.communicate()[0] for each in started]
    for each in started:
        if each.returncode:
            raise subprocess.CalledProcessError(each.returncode, each.args)
    eps = sum(float(one.splitlines()[-1]) for one in said)
    return {"arm": arm, "trainers": trainers, "repeat": repeat, "eps": eps}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    for name, kind in (("arm", str), ("trainers", int), ("rank", int)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.arm is not None:
        print(train(options.arm, options.rank, options.trainers, options.output))
        return
    records = []
    if options.output.exists():
        records = [json.loads(line) for line in options.output.read_text().splitlines()]
    had = {(r["arm"], r["trainers"], r["repeat"]) for r in records}
    for repeat in range(options.repeats):
        for trainers in TRAINERS:
            for arm in arms():
                if (arm, trainers, repeat) in had:
                    continue
                records.append(run(arm, trainers, repeat))
                with options.output.open("a") as file:
                    print(json.dumps(records[-1]), file=file)
    print(page(records, RESULTS))


if __name__ == "__main__":
    main()
