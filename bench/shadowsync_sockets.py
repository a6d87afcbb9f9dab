"""Tables 2 and 3 and Figures 6 to 8 of shadowsync, small, over real sockets, with rows at servers.

python -m bench.shadowsync_sockets --output FILE [--seeds 5]

What is tried, written down before it was run:

- **Data**: 100,000 synthetic clicks of DLRM's form, drawn by the seed, which also draws the parameters;
  one pass; everything else at the defaults of ``leashed cluster up``.
- **Arms**: 2 and 4 trainers of a thread, as many embedding servers; S-EASGD and FR-EASGD at gaps of 5
  and 30, with 2 trainers of 10 and 100 too (Tables 2 and 3); MA and BMUF in the background and at a gap
  of 2, about what the background's is here, BMUF of α = 0.6 too, none with momentum (Figures 6 and 7);
  S-EASGD by 2 trainers of 2 and 4 threads (Figure 8).
- **What is compared**: losses of what comes out, seed by seed. Examples a second are not, since all
  processes share a machine: ``bench/shadowsync_paced.py`` does that.

Writes a JSON line for each run; a run that FILE has already is not run again. Prints what each of the
paper's claims comes to, as ``bench/papers/shadowsync.py`` judges it.
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

RESULTS = "shadowsync-sockets"
TRAINERS = (2, 4)
GAPS = {2: (5, 10, 30, 100), 4: (5, 30)}
THREADS = (1, 2, 4)
S_EASGD = "S-EASGD"
MA, BMUF, WIDE = "MA", "BMUF, α = 0.3", "BMUF, α = 0.6"
SUMMED = {
    MA: "ma",
    BMUF: "bmuf:momentum=0",
    WIDE: "bmuf:momentum=0,alpha=0.6",
}
OFTEN = 2


def arms() -> dict[tuple[str, int, int], tuple[str, ...]]:
    """Words of each arm's synchroniser, by its name, trainers and threads."""
    found: dict[tuple[str, int, int], tuple[str, ...]] = {}
    for trainers in TRAINERS:
        found[S_EASGD, trainers, 1] = ("--sync", "easgd")
        for gap in GAPS[trainers]:
            when = ("--when", f"every:iterations={gap}")
            found[f"FR-EASGD-{gap}", trainers, 1] = ("--sync", "easgd", *when)
        for name, words in SUMMED.items():
            found[f"S-{name}", trainers, 1] = ("--sync", words)
            if name != WIDE:
                when = ("--when", f"every:iterations={OFTEN}")
                found[f"FR-{name}", trainers, 1] = ("--sync", words, *when)
    for threads in THREADS[1:]:
        found[S_EASGD, TRAINERS[0], threads] = ("--sync", "easgd")
    return found


def run(arm: tuple[str, int, int], seed: int) -> dict[str, Any]:
    """One run; what it says of losses, rounds and rows."""
    name, trainers, threads = arm
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder, "run")
        command = [
            *(sys.executable, "-m", "leashed", "cluster", "up"),
            *("--trainers", str(trainers), "--threads", str(threads)),
            *("--embedding-servers", str(trainers)),
            *("--model", "dlrm", "--data", "clicks", "--seed", str(seed)),
            *(*arms()[arm], "--run", str(where)),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        said = json.loads((where / "run.json").read_text())
    counted = [each["counters"] for each in said["members"] if each["role"] == "trainer"]
    total = {key: sum(each[key] for each in counted) for key in ("batches_used", "syncs")}
    bytes_of_rows = sum(each["row_bytes_out"] + each["row_bytes_in"] for each in counted)
    return {
        "arm": name,
        "trainers": trainers,
        "threads": threads,
        "seed": seed,
        "train_loss": said["train_loss"],
        "eval_loss": said["test_loss"],
        "test_auc": said["test_auc"],
        "gap": total["batches_used"] / total["syncs"],
        "row_bytes": bytes_of_rows / sum(each["row_least_bytes"] for each in counted),
    }


def page(records: list[dict[str, Any]], results: str = RESULTS) -> str:
    """What the claims come to that these results are of."""
    from bench.papers.shadowsync import CLAIMS  # noqa: PLC0415 (it takes the arms from here)

    found = []
    for claim in CLAIMS:
        if claim.results == results and (told := claim.tell(records)) is not None:
            rows = [] if told.table is None else [table(told.table.header, told.table.rows)]
            found.append("\n\n".join([f"{claim.at}: {told}. {told.words}".rstrip(), *rows]))
    return "\n\n".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    records = []
    if options.output.exists():
        records = [json.loads(line) for line in options.output.read_text().splitlines()]
    had = {(r["arm"], r["trainers"], r["threads"], r["seed"]) for r in records}
    for seed in range(options.seeds):
        for arm in arms():
            if (*arm, seed) in had:
                continue
            records.append(run(arm, seed))
            with options.output.open("a") as file:
                print(json.dumps(records[-1]), file=file)
    print(page(records))


if __name__ == "__main__":
    main()
