"""Every matrix product of the networks against MKL, OpenBLAS and oneDNN, by one thread."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from bench import figures
from bench.charts import Bars
from bench.context import Bench, Record
from bench.figures import Results
from bench.inner_loops import inner_loops
from bench.markdown import number, paragraphs, table
from bench.section import Goal, Parts
from leashed import _core

PLACE, TITLE = 40, "Matrix products"

_SECONDS = 0.2


def measure(bench: Bench) -> dict[str, Any]:
    """``products``: a record a shape with every library's GFLOP/s; ``loops``: the instructions of
    our kernels' inner loops; ``libraries``: those found.
    """
    found = libraries()
    arguments = [f"{name}={path}" for name, path in found.items()]
    return {
        "libraries": list(found),
        "products": bench.run("bench_gemm", bench.seconds(_SECONDS), *arguments),
        "loops": inner_loops(bench.build, "kernels/dense.cc", _core.default_isa()),
    }


def libraries() -> dict[str, Path]:
    """The shared libraries that pip installed, by name."""
    places = {
        "MKL": "lib/libmkl_rt.so.*",
        "OpenBLAS": "lib/python3*/site-packages/scipy_openblas32/lib/libscipy_openblas.so",
        "oneDNN": "lib/libdnnl.so.3",
    }
    found = {name: sorted(Path(sys.prefix).glob(place)) for name, place in places.items()}
    return {name: paths[-1] for name, paths in found.items() if paths}


def flops(product: Record) -> float:
    """Of a matrix product, as often as the network has it."""
    return float(2 * product["m"] * product["n"] * product["k"] * product["count"])


def best_library(results: Results, product: Record) -> str | None:
    """The library that is fastest at a product."""
    libraries: list[str] = figures.figures(results, "gemm")["libraries"]
    return min(libraries, key=lambda name: float(product[f"ratio to {name}"]), default=None)


def product_ratio(results: Results, product: Record) -> float:
    """Our speed at a product over the fastest library's."""
    library = best_library(results, product)
    return math.inf if library is None else float(product[f"ratio to {library}"])


def products(results: Results) -> list[Record]:
    """The matrix products, where libraries were there to compare with."""
    found = figures.figures(results, "gemm")
    return list(found["products"]) if found and found["libraries"] else []


def weighted_ratio(results: Results) -> float | None:
    """The mean of our ratios to the fastest library at each product, by the product's FLOPs."""
    found = products(results)
    total = sum(map(flops, found))
    if not total:
        return None
    return sum(flops(p) * product_ratio(results, p) for p in found) / total


def words(results: Results) -> Parts:
    found = products(results)
    if not found:
        return ()
    libraries = figures.figures(results, "gemm")["libraries"]
    names = [
        f"{p['network']} {p['batch_size']}: {p['kind']} {p['m']}×{p['n']}×{p['k']}" for p in found
    ]
    chart = Bars(
        "gemm",
        "Matrix products: leashed over the fastest library at each shape",
        names,
        {"leashed": [product_ratio(results, p) for p in found]},
        "ratio",
        line=(1.0, "as fast"),
    )
    rows = [
        [
            name,
            number(p["ceiling"]),
            number(p["leashed"]),
            *(number(p[library]) for library in libraries),
            f"{product_ratio(results, p):.2f}",
        ]
        for name, p in zip(names, found, strict=True)
    ]
    total = {
        name: sum(map(flops, found)) / sum(flops(p) / p[name] for p in found)
        for name in ("leashed", *libraries)
    }
    rows.append(
        [
            "**all of them, one after the other**",
            "",
            *(number(total[name]) for name in ("leashed", *libraries)),
            f"{total['leashed'] / max(total[name] for name in libraries):.2f}",
        ]
    )
    head = ["batch: product, M×N×K", "ceiling", "leashed", *libraries, "over the fastest"]
    return (
        (
            "One thread, GFLOP/s, in turns on the same buffers, which have the network's strides. "
            "DLRM: 13 numbers and 26 embeddings of 16, dense layers 13-64-32-16 and 367-64-32-1. The "
            f"ratio's mean by FLOPs is {weighted_ratio(results) or 0.0:.3f}."
        ),
        chart,
        f"<details><summary>All {len(found)} shapes</summary>\n\n{table(head, rows)}\n\n</details>",
    )


def _least_product(results: Results) -> float | None:
    return min((product_ratio(results, p) for p in products(results)), default=None)


def profile(results: Results) -> str:
    """The shapes below their goal, with operations per byte and the inner loops."""
    found = products(results)
    missed = sorted(
        (p for p in found if product_ratio(results, p) < 1.0),
        key=lambda p: product_ratio(results, p),
    )
    rows = []
    for product in missed:
        library = best_library(results, product)
        m, n, k = product["m"], product["n"], product["k"]
        rows.append(
            [
                f"{product['network']} {product['kind']} {m}×{n}×{k}",
                number(product["leashed"]),
                f"{product['leashed'] / product['ceiling']:.2f}",
                str(library),
                f"{product_ratio(results, product):.2f}",
                number(2e-3 * m * n * k),
                number(4e-3 * (m * k + k * n + m * n)),
                number(2.0 * m * n * k / (4.0 * (m * k + k * n + m * n))),
            ]
        )
    share = sum(map(flops, missed)) / sum(map(flops, found))
    return paragraphs(
        f"{len(missed)} of {len(found)} shapes are below the fastest library; they are "
        f"{share:.0%} of the FLOPs. Two things bound a small product: what a call does besides "
        "multiplying (packing, edges: few kFLOP), and narrow shapes, where a vector of C holds "
        "more columns than there are (N below the vector width).",
        table(
            [
                "shape (M×N×K)",
                "GFLOP/s",
                "of the ceiling",
                "fastest library",
                "ratio",
                "kFLOP",
                "kB",
                "FLOP/byte",
            ],
            rows,
        ),
        loops(results),
    )


def loops(results: Results) -> str:
    """Instructions of the inner loops."""
    found = figures.figures(results, "gemm")
    inner = found["loops"] if found else []
    if not inner:
        return ""
    keys = ("instructions", "multiply_adds", "loads", "broadcasts", "stores", "prefetches")
    rows = [[f"`{loop['function']}`", *(str(loop[key]) for key in keys)] for loop in inner]
    head = ["inner loop", *(key.replace("_", "-") for key in keys)]
    return (
        "<details><summary>Instructions of the product's inner loops, per iteration</summary>\n\n"
        f"{table(head, rows)}\n\n</details>"
    )


GOALS = (
    Goal("GEMM, every shape, over the fastest library at it", 0.97, _least_product),
    Goal("GEMM, weighted by FLOPs, over the fastest library at each", 1.0, weighted_ratio),
)
PROFILES = {"Matrix products": profile}
