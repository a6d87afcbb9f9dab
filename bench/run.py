"""Measures everything and writes one file of results for this kind of machine.

    python -m bench.run --build build/bench

``python -m bench.page`` makes ``docs/performance.md`` from it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import leashed
from bench import machine
from bench.context import Bench
from bench.section import names, section, sections
from leashed.base.machine import cores
from leashed.datasets import Dataset

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
_PEERS = (
    *("torch", "numpy", "mkl", "scipy-openblas32", "onednn"),
    *("numba", "scikit-learn", "vowpalwabbit"),
    *("polars", "pyarrow", "pandas", "lightgbm"),
)
_EXAMPLES = 10_000


def training_set() -> Dataset:
    """The first 10,000 images of MNIST where it lies beside the project or in $LEASHED_DATA, else
    as many synthetic digits.
    """
    folder = Path(os.environ.get("LEASHED_DATA", ROOT.parent / "shared" / "data")) / "mnist"
    if not folder.is_dir():
        return leashed.datasets.synthetic_digits(n=_EXAMPLES).train
    data = leashed.datasets.mnist(folder).train
    if len(data) <= _EXAMPLES:
        return data
    return Dataset.from_arrays(data.x[:_EXAMPLES], data.y[:_EXAMPLES], name=data.name)


def versions() -> dict[str, str]:
    """Of leashed and of the peers that are installed."""
    found = {"leashed": leashed.__version__}
    for name in _PEERS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def rounded(value: Any) -> Any:
    """The same with at most six significant digits, and null for what is no number."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    return value


def text(result: dict[str, Any]) -> str:
    """JSON with a record a line, so that what changed can be seen."""

    def lines(value: Any, indent: str) -> str:
        deeper = indent + " "
        if isinstance(value, dict) and any(isinstance(v, (dict, list)) for v in value.values()):
            if all(not _nested(v) for v in value.values()):
                return json.dumps(value, ensure_ascii=False)
            items = [f"{deeper}{json.dumps(k)}: {lines(v, deeper)}" for k, v in value.items()]
            return "{\n" + ",\n".join(items) + f"\n{indent}}}"
        if isinstance(value, list) and any(isinstance(v, dict) for v in value):
            return "[\n" + ",\n".join(deeper + lines(v, deeper) for v in value) + f"\n{indent}]"
        return json.dumps(value, ensure_ascii=False)

    return lines(result, "") + "\n"


def _nested(value: Any) -> bool:
    """Whether a value is more than a number, a word, or a list or mapping of them."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(isinstance(item, (dict, list)) for item in items)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build" / "bench", help="CMake's folder"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="less than 1: shorter, for a look (default: 1)"
    )
    parser.add_argument(
        "--only", nargs="+", choices=names(), help="measure these anew and keep the others"
    )
    parser.add_argument("--output", type=Path, default=RESULTS / f"{machine.slug()}.json")
    arguments = parser.parse_args()

    data = training_set()
    bench = Bench(data, arguments.build, cores(), arguments.scale)
    result: dict[str, Any] = {"sections": {}}
    if arguments.only and arguments.output.exists():
        result = json.loads(arguments.output.read_text("utf-8"))
    result |= {
        "machine": machine.describe(),
        "versions": {**result.get("versions", {}), **versions()},
        "data": {"name": data.name, "examples": len(data)},
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    print(", ".join(f"{name} {value}" for name, value in result["machine"].items()), flush=True)
    for name in arguments.only or sections():
        start, load = time.monotonic(), os.getloadavg()[0]
        print(f"{name} …", end=" ", flush=True)
        try:
            measured = section(name).measure(bench)
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] in {"leashed", "bench"}:
                raise
            print(f"not measured: {error}", flush=True)
            continue
        seconds = time.monotonic() - start
        print(f"{seconds:.0f} s", flush=True)
        result["sections"][name] = {
            "scale": bench.scale,
            "seconds": round(seconds, 1),
            "load_before": load,
            "figures": rounded(measured),
        }
        arguments.output.write_text(text(result), "utf-8")
    print(arguments.output)


if __name__ == "__main__":
    main()
