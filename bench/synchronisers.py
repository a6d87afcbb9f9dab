"""What each synchroniser comes to beside one trainer alone: `leashed cluster up` with each of them, in
the background and in the foreground, for as many passes as it takes to come within a hundredth of
the one trainer's test accuracy.

python -m bench.synchronisers --output FILE [--data FOLDER] [--passes 5,10,20,40] [--trainers 4]

Prints a table and writes a JSON line for each run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leashed.cluster.measures import counted, measure, total
from leashed.cluster.run_table import lived

_WITHIN = 0.01  # of the one trainer's accuracy
_KINDS = ("easgd", "ma", "bmuf")
_ALPHA = 0.5
_WHEN = ("background", "every:iterations=5", "every:iterations=30")
_HEADS = ("", "passes", "train loss", "test accuracy", "EPS", "sync gap", "MB out", "MB in")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--passes", default="5,10,20,40")
    parser.add_argument("--trainers", type=int, default=4)
    options = parser.parse_args()
    passes = [int(each) for each in options.passes.split(",")]
    data = [] if options.data is None else ["--data", str(options.data)]

    alone = _run("one trainer", ["--trainers", "1", "--sync", "none"], passes[0], data)
    rows = [alone]
    for kind in _KINDS:
        for when in _WHEN:
            servers = "2" if kind == "easgd" else "0"
            arguments = ["--trainers", str(options.trainers), "--sync-ps", servers]
            arguments += ["--sync", f"{kind}:alpha={_ALPHA}", "--when", when]
            for count in passes:
                row = _run(f"{kind}, {when.removeprefix('every:')}", arguments, count, data)
                row["reached"] = row["accuracy"] >= alone["accuracy"] - _WITHIN
                if row["reached"]:
                    break
            rows.append(row)
    with options.output.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
    print(table(rows))


def _run(name: str, arguments: Sequence[str], passes: int, data: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        up = [
            sys.executable,
            "-m",
            "leashed",
            "cluster",
            "up",
            "--run",
            str(run),
            "--transport",
            "tcp",
        ]
        subprocess.run(
            [*up, *arguments, "--epochs", str(passes), *data], check=True, capture_output=True
        )
        report = json.loads((run / "run.json").read_text(encoding="utf-8"))
    counters = total(counted(report, "trainer").values())
    measures = measure(counters, lived(report), report["terms"]["batch_size"])
    print(name, passes, report["test_accuracy"], file=sys.stderr, flush=True)
    return {
        "name": name,
        "arguments": list(arguments),
        "passes": passes,
        "loss": report["train_loss"],
        "accuracy": report["test_accuracy"],
        "eps": measures.eps,
        "gap": measures.gap if counters.get("syncs") else None,
        "bytes_out": counters.get("bytes_out", 0.0),
        "bytes_in": counters.get("bytes_in", 0.0),
        "reached": True,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """In Markdown; a run that did not come near enough says so."""
    lines = ["| " + " | ".join(_HEADS) + " |", "| --- " * len(_HEADS) + "|"]
    for row in rows:
        cells = [
            row["name"],
            f"{row['passes']}" + ("" if row["reached"] else ", not reached"),
            f"{row['loss']:.4f}",
            f"{row['accuracy']:.4f}",
            f"{row['eps']:,.0f}",
            "" if row["gap"] is None else f"{row['gap']:.2f}",
            f"{row['bytes_out'] / 1e6:,.0f}",
            f"{row['bytes_in'] / 1e6:,.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
