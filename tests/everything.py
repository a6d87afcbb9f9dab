#!/usr/bin/env python3
"""What takes hours: as much of it as fits into a budget, what ran longest ago first.

    tests/everything.py --minutes 60 [--only long kills] [--list]

``make test-all MINUTES=60`` runs this after it has installed what it needs. docs/architecture.md says
when. Each part is one command; when it last ran is kept in build/everything.json. In the end every
part is named with what became of it, also those for which there was no time, with the minutes that
they need. Fails where a part failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RAN = ROOT / "build" / "everything.json"


@dataclass(frozen=True)
class Part:
    """One command.

    Attributes:
        minutes: what it takes on two idle cores, about.
        command: of a shell, in the repository, with the virtual environment's programs.
    """

    minutes: float
    command: str


PARTS = {
    "long": Part(30, "LEASHED_SCHEDULES=1000 LEASHED_FUZZ=100000 pytest -n 2 -m long"),
    "examples": Part(
        40,
        "LEASHED_EXAMPLES=20 LEASHED_SCHEDULES=100 LEASHED_FUZZ=100000 "
        "pytest -n 2 -m 'not process and not long'",
    ),
    "kills": Part(
        12,
        "python tests/shared_kills.py 200 && python tests/continual_kills.py --incremental && "
        "python tests/checkpoint_signals.py",
    ),
    "faults": Part(60, "python tests/cluster/faults.py --faults 200"),
    "row-faults": Part(
        25,
        "python tests/cluster/row_faults.py --faults 500 && "
        "python tests/cluster/row_faults.py --together --faults 100",
    ),
    "mode-faults": Part(50, "python tests/cluster/mode_faults.py --faults 500"),
    "cluster": Part(
        60,
        "LEASHED_SCHEDULES=30000 pytest -n 2 --timeout 0 -m 'not process' "
        "tests/cluster/test_schedules.py tests/cluster/test_lost_parameters.py && "
        "cmake -S . -B build/dev -DLEASHED_TESTS=ON && cmake --build build/dev --target test_cluster && "
        "LEASHED_SCHEDULES=100000 build/dev/tests/cpp/test_cluster -tc='whenever and however*' && "
        "LEASHED_SWITCHES=1000 build/dev/tests/cpp/test_cluster -tc='*live switches*' && "
        "LEASHED_SWITCHES=50 pytest -m process tests/cluster/test_live_switches.py",
    ),
    "rows": Part(
        90,
        "cmake -S . -B build/dev -DLEASHED_TESTS=ON && cmake --build build/dev --target test_cluster && "
        "LEASHED_SCHEDULES=100000 LEASHED_FUZZ=10000000 build/dev/tests/cpp/test_cluster "
        "-tc='whatever is cut*,pushes whose*,an embedding server refuses*,*closes what answers*' && "
        "LEASHED_FUZZ=10000000 pytest -n 2 --timeout 0 tests/cluster/test_reader_fuzz.py "
        "tests/cluster/test_opening.py -k 'refuses or mutated_claims'",
    ),
    "modes": Part(
        60,
        "cmake -S . -B build/dev -DLEASHED_TESTS=ON && cmake --build build/dev --target test_cluster && "
        "LEASHED_SCHEDULES=9000 LEASHED_FUZZ=2500000 build/dev/tests/cpp/test_cluster "
        "-sf='*test_part_schedules*' && "
        "LEASHED_FUZZ=10000000 build/dev/tests/cpp/test_cluster -tc='frames of any *'",
    ),
    "schedules": Part(30, "python tests/policies/compare.py --schedules 100000"),
    "levels": Part(15, "make test-levels-whole"),
    "aarch64": Part(60, "make test-aarch64-whole"),
    "thread": Part(40, "make test-thread-whole"),
    "address": Part(30, "make test-address-whole"),
    "pythons": Part(25, "make test-wheel wheels"),
    "stream": Part(60, "python tests/stream/little_memory.py --gigabytes 20 --memory 2"),
}


def _last_runs() -> dict[str, float]:
    return json.loads(RAN.read_text()) if RAN.exists() else {}


def _order(names: list[str], ran: dict[str, float]) -> list[str]:
    """What never ran first, then what ran longest ago."""
    return sorted(names, key=lambda name: ran.get(name, 0))


def run(names: list[str], minutes: float) -> int:
    """Runs those for which there is time; 1 where one failed."""
    end = time.monotonic() + 60 * minutes
    told, failed = [], False
    for name in _order(names, _last_runs()):
        part = PARTS[name]
        left = (end - time.monotonic()) / 60
        if part.minutes > left + 0.5:  # a budget has room for a part of just as much
            told.append(
                f"{name:10} not run: it takes {part.minutes:g} minutes, {left:.0f} were left"
            )
            continue
        print(f"=== {name}: {part.command}", flush=True)
        began = time.monotonic()
        status = subprocess.run(part.command, shell=True, cwd=ROOT, check=False).returncode
        took = (time.monotonic() - began) / 60
        told.append(f"{name:10} {'FAILED' if status else 'passed'} in {took:.1f} minutes")
        failed |= status != 0
        if not status:
            RAN.parent.mkdir(exist_ok=True)
            RAN.write_text(json.dumps({**_last_runs(), name: time.time()}, indent=1))
    print("", *told, sep="\n")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="the budget (default: 60)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--list", action="store_true", help="tell the parts, run nothing")
    arguments = parser.parse_args()
    if arguments.list:
        for name in _order(arguments.only, _last_runs()):
            print(f"{name:10} {PARTS[name].minutes:4g} minutes  {PARTS[name].command}")
        return 0
    return run(arguments.only, arguments.minutes)


if __name__ == "__main__":
    sys.exit(main())
