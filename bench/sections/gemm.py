"""Every matrix product of the networks against MKL, OpenBLAS and oneDNN, by one thread."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench.context import Bench
from bench.inner_loops import inner_loops
from leashed import _core

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
