"""Whether models of clicks learn over embedding servers what they learn in one process.

python -m bench.embedding_servers --output FILE [--seeds 5] [--only MODEL …]

What is tried, written down before it was run:

- **Data**: 100,000 synthetic clicks of DLRM's form and histories of DIN's, drawn by the seed, which also
  draws the parameters; one pass; everything else at the defaults of ``leashed train`` and ``leashed
  cluster up``.
- **Arms**: two trainers of one thread, with 1, 2 and 3 embedding servers, the parameters beside the
  rows kept in sync by S-EASGD in the background and by FR-EASGD-5; beside them one process with two
  threads, and, to tell tables from synchronisation, one trainer of two threads with two servers, which
  has nobody to be in sync with (this arm was added when the first of the others had been seen).
- **What is compared**: the test AUC of what comes out. An arm is **within** where its mean lies in the
  95% interval of one process over the seeds, and **the same** where the interval of its differences from
  one process, seed by seed, has 0, which is the sharper question, since a seed's data are the same.
- **More seeds of DIN**: of five, S-EASGD with two servers was outside, and those with one and three were
  within. Ten more of all of DIN's arms were written down next, to tell whether the number of servers is
  what makes a difference: whether S-EASGD with two is below that with one, or with three.

Prints a table and writes a JSON line for each run. A run that FILE has already is not run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.markdown import table
from leashed.base.table import MISSING
from leashed.studies.intervals import difference, interval

MODELS = ("dlrm", "din")
SERVERS = (1, 2, 3)
SYNCS = {
    "S-EASGD": ("--sync", "easgd"),
    "FR-EASGD-5": ("--sync", "easgd", "--when", "every:iterations=5"),
}
PROCESS = "one process"
ARMS = {
    PROCESS: ("train", "--threads", "2", "--epochs", "1"),
    "one trainer, 2 servers": (
        *("cluster", "up", "--trainers", "1", "--threads", "2", "--embedding-servers", "2"),
        *("--sync", "none"),
    ),
    **{
        f"{sync}, {servers} server{'s' * (servers > 1)}": (
            *("cluster", "up", "--trainers", "2", "--embedding-servers", str(servers)),
            *words,
        )
        for sync, words in SYNCS.items()
        for servers in SERVERS
    },
}


def run(model: str, arm: str, seed: int) -> dict[str, Any]:
    """One run; what it says of the test set."""
    words = ["--model", model, "--data", "clicks", "--seed", str(seed)]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "run", "run.json")
        where = ["--output", str(report)] if arm == PROCESS else ["--run", str(report.parent)]
        report.parent.mkdir(exist_ok=arm == PROCESS)
        command = [sys.executable, "-m", "leashed", *ARMS[arm], *words, *where]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        said = json.loads(report.read_text())
    auc = said["validation_auc"][-1] if arm == PROCESS else said["test_auc"]
    return {"model": model, "arm": arm, "seed": seed, "test_auc": auc}


def page(records: list[dict[str, Any]]) -> str:
    """The table."""
    lines = []
    for model in MODELS:
        of = {
            arm: {
                r["seed"]: r["test_auc"] for r in records if (r["model"], r["arm"]) == (model, arm)
            }
            for arm in ARMS
        }
        for arm, by_seed in of.items():
            seeds = sorted(by_seed.keys() & of[PROCESS].keys())
            if not seeds:
                continue
            mean = interval([by_seed[s] for s in seeds])
            apart = difference([by_seed[s] for s in seeds], [of[PROCESS][s] for s in seeds])
            line = [f"{model}, {len(seeds)} seeds", arm, mean.text()]
            if arm == PROCESS:
                own, told = mean, [MISSING] * 3
            else:
                told = [
                    "yes" if own.low <= mean.mean <= own.high else "no",
                    apart.signed(),
                    "yes" if apart.low <= 0 <= apart.high else "no",
                ]
            lines.append(line + told)
    return table(["model", "", "test AUC", "within", "less one process's", "the same"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    options = parser.parse_args()
    records = []
    if options.output.exists():
        records = [json.loads(line) for line in options.output.read_text().splitlines()]
    had = {(r["model"], r["arm"], r["seed"]) for r in records}
    for seed in range(options.seeds):
        for model in options.only:
            for arm in ARMS:
                if (model, arm, seed) in had:
                    continue
                records.append(run(model, arm, seed))
                with options.output.open("a") as file:
                    print(json.dumps(records[-1]), file=file)
    print(page(records))


if __name__ == "__main__":
    main()
