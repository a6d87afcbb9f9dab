"""All-reduce over connections of all with all, beside the ring and beside Gloo, on one machine.

python -m bench.direct_reduce [--turns 9] [--build build/bench] > bench/results/direct_reduce.jsonl

Of 2 and 4 members, 110 KB and 540 KB, over TCP loopback and through shared memory. The ring and the direct
way take turns in the same processes; over TCP, which is all that it has, Gloo's are others, one after the
other with them, so that a busy machine is so for all. Prints as JSON lines medians of a round at the first member, and of
the turns' ratios (goals: 0.9 of the ring, 2 of Gloo). With more members than processors the time is that
of who waits for one; processor time tells more.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import machine
from leashed.base.table import MISSING

ROOT = Path(__file__).parents[1]

_MEMBERS = (2, 4)
_BYTES = (110_000, 540_000)
_ROUNDS = 1000


def _line(*command: object, **environment: str) -> dict[str, Any]:
    """The JSON that a program prints last."""
    out = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **environment},
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        cwd=ROOT,
    ).stdout
    line: dict[str, Any] = json.loads(out.splitlines()[-1])
    return line


def measure(build: Path, transport: str, members: int, size: int, turns: int) -> dict[str, Any]:
    """One size, so many turns."""
    program = build / "bench" / "cpp" / "bench_direct"
    work = (members, size, _ROUNDS)
    direct, gloo = [], []
    for _ in range(turns):
        direct.append(_line(program, members, size, 20, transport))
        if transport == "tcp":
            seconds = _line(sys.executable, "-m", "bench.gloo", *work, GLOO_SOCKET_IFNAME="lo")
            gloo.append(seconds["seconds"])

    def median(name: str) -> float:
        return float(statistics.median(record[name] for record in direct))

    record: dict[str, Any] = {
        "transport": transport,
        "members": members,
        "bytes": size,
        "turns": turns,
        "machine": machine.describe(),
        "load": round(os.getloadavg()[0], 1),
        "µs": 1e6 * median("seconds"),
        "µs of the ring": 1e6 * median("ring_seconds"),
        "over the ring": median("ratio"),
        "µs of a processor": 1e6 * median("processor_seconds"),
        "µs of a processor in the ring": 1e6 * median("ring_processor_seconds"),
    }
    if gloo:
        times = [g / line["seconds"] for g, line in zip(gloo, direct, strict=True)]
        record |= {
            "µs of Gloo": 1e6 * statistics.median(gloo),
            "over Gloo": statistics.median(times),
        }
    return record


def words(records: list[dict[str, Any]]) -> str:
    """The table of docs/transport.md."""
    names = {"tcp": "TCP loopback", "shm": "shared memory"}
    lines = [
        "|  | direct, µs | ring over direct | Gloo over direct | processor µs, direct and ring |",
        "| --- | --- | --- | --- | --- |",
    ]
    for record in records:
        what = f"{names[record['transport']]}, {record['members']} members, {record['bytes'] // 1000} KB"
        used = f"{record['µs of a processor']:.0f}, {record['µs of a processor in the ring']:.0f}"
        gloo = f"{record['over Gloo']:.2f}" if "over Gloo" in record else MISSING
        lines.append(
            f"| {what} | {record['µs']:.0f} | {record['over the ring']:.2f} | {gloo} | {used} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="All-reduce over connections of all with all.")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "bench")
    asked = parser.parse_args()
    for transport in ("tcp", "shm"):
        for members in _MEMBERS:
            for size in _BYTES:
                found = measure(asked.build.resolve(), transport, members, size, asked.turns)
                print(json.dumps(found, ensure_ascii=False), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
