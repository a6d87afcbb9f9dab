"""Compares this tree with another one of the same project, turn by turn, on the goals of the page.

    python -m bench.compare ../before --turns 3 --scale 0.3 --only update disciplines

Both trees must be built with ``cmake -S . -B build/bench -DLEASHED_PYTHON=ON -DLEASHED_BENCH=ON``,
the extension module copied beside ``src/leashed``. Sections take turns, one tree after the other,
so that a machine that slows down slows both; each tree runs its own benchmark of its own code. A
figure is called worse where every turn of this tree is worse than every turn of the other.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import machine
from bench.run import ROOT, rounded, text
from bench.section import asked, names

# Without those that measure peers alone or nothing on few processors.
_COMPARED = tuple(s for s in names() if s not in {"ceilings", "scaling"})


def measure(tree: Path, section: str, scale: float, output: Path) -> None:
    """One turn of one section in a tree, into a file of results."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}"}
    environment.setdefault("LEASHED_DATA", str(ROOT.parent / "shared" / "data"))
    subprocess.run(
        [
            *(sys.executable, "-m", "bench.run", "--only", section),
            *("--scale", str(scale), "--output", str(output)),
        ],
        cwd=tree,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def reached(results: Path) -> dict[str, float]:
    """What a file of results reached of each goal that it has figures for."""
    content = json.loads(results.read_text("utf-8"))
    found = {}
    for _, goal in asked(content):
        value = goal.measure(content)
        if value is not None:
            found[goal.work] = value
    return found


def verdict(before: list[float], after: list[float], least: bool) -> str:
    """In a word, of all turns."""
    if least:
        before, after = [-x for x in before], [-x for x in after]
    if min(after) > max(before):
        return "worse"
    return "better" if max(after) < min(before) else "the same within its noise"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("other", type=Path, help="the other tree, built")
    parser.add_argument(
        "--turns", type=int, default=3, help="of each section and tree (default: 3)"
    )
    parser.add_argument("--scale", type=float, default=0.3, help="of each turn (default: 0.3)")
    parser.add_argument("--only", nargs="+", choices=names(), default=_COMPARED)
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "bench" / "compared" / f"{machine.slug()}.json",
    )
    arguments = parser.parse_args()
    trees = {"before": arguments.other.resolve(), "after": ROOT}
    turns: dict[str, dict[str, list[float]]] = {}
    lower = {}
    with tempfile.TemporaryDirectory() as folder:
        for section in arguments.only:
            for turn in range(arguments.turns):
                order = list(trees) if turn % 2 == 0 else list(trees)[::-1]
                for name in order:
                    output = Path(folder) / f"{section}-{turn}-{name}.json"
                    measure(trees[name], section, arguments.scale, output)
                    for _, goal in asked(json.loads(output.read_text("utf-8"))):
                        lower[goal.work] = not goal.least
                    for work, value in reached(output).items():
                        turns.setdefault(work, {n: [] for n in trees})[name].append(value)
            print(f"{section}: {arguments.turns} turns of each", flush=True)
    rows = []
    for work, values in turns.items():
        if not all(values.values()):
            continue
        middle = {name: statistics.median(v) for name, v in values.items()}
        rows.append(
            {
                "work": work,
                **values,
                "after_over_before": middle["after"] / middle["before"],
                "verdict": verdict(values["before"], values["after"], not lower[work]),
            }
        )
    for row in rows:
        spans = [f"{min(row[n]):.3g} to {max(row[n]):.3g}" for n in trees]
        print(
            f"{row['after_over_before']:6.3f}  {row['verdict']:<26} {row['work']}: "
            + " | ".join(spans)
        )
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(
        text(
            rounded(
                {
                    "machine": machine.describe(),
                    "scale": arguments.scale,
                    "turns": arguments.turns,
                    "goals": rows,
                }
            )
        ),
        "utf-8",
    )
    print(arguments.output)


if __name__ == "__main__":
    main()
