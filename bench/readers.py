"""Criteo's text as arrays: numbers float32 [n, 13], the categories' 32 bits as uint64 [n, 26] and
labels int32 [n], by the libraries that are compared; and a file to read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import dlrm
from bench.context import installed
from leashed import stream

Arrays = tuple[NDArray[np.float32], NDArray[np.uint64], NDArray[np.int32]]

NUMBERS = [f"I{j}" for j in range(1, 14)]
CATEGORIES = [f"C{f}" for f in range(1, 27)]
NAMES = ["Label", *NUMBERS, *CATEGORIES]
_MISSING = 1 << 32  # the id of a category that is missing

_DIGITS = np.zeros(256, np.uint64)
for _i, _c in enumerate("0123456789abcdef"):
    _DIGITS[[ord(_c), ord(_c.upper())]] = _i


def write(path: Path, rows: int) -> None:
    """A file of so many rows, of which some fields are empty, as in the published ones."""
    x, ids, y = dlrm.data()
    rng = np.random.default_rng(2)
    counts = np.maximum(np.exp(np.abs(x[:rows]) * 3).astype(np.int64) - 2, -1)
    hashes = (ids[:rows] + np.uint64(1)) * np.uint64(2654435761) % np.uint64(2**32)
    empty = rng.random((rows, 39)) < 0.1
    with path.open("w") as file:
        for label, numbers, categories, none in zip(y, counts, hashes, empty, strict=False):
            fields = [str(label)]
            fields += ["" if n else str(v) for n, v in zip(none, numbers, strict=False)]
            fields += ["" if n else f"{v:08x}" for n, v in zip(none[13:], categories, strict=True)]
            file.write("\t".join(fields) + "\n")


def columns(buckets: int | None = None) -> dict[str, stream.Column]:
    """What they become: as by :func:`stream.criteo`, but without the features' offsets; or hashed."""
    ids: stream.Hashed | stream.Id = stream.Id(base=16, digits=8, missing=_MISSING)
    if buckets is not None:
        ids = stream.Hashed(buckets)
    return {
        "Label": stream.Label(),
        **{name: stream.Number(log=True, missing=0.0) for name in NUMBERS},
        **dict.fromkeys(CATEGORIES, ids),
    }


def opened(path: Path, threads: int, buckets: int | None = None) -> stream.Stream:
    """The file as a stream."""
    return stream.csv(path, columns(buckets), separator="\t", names=NAMES, threads=threads)


def leashed(path: Path, threads: int) -> Arrays:
    data: Any = opened(path, threads).read()
    return data.x, data.ids, data.y


def polars(path: Path, threads: int) -> Arrays:
    """By as many threads as there are processors."""
    import polars as pl  # noqa: PLC0415

    assert threads == pl.thread_pool_size()
    types: dict[str, Any] = {"Label": pl.Int32, **dict.fromkeys(NUMBERS, pl.Float64)}
    types |= dict.fromkeys(CATEGORIES, pl.String)
    frame = pl.read_csv(path, separator="\t", has_header=False, new_columns=NAMES, schema=types)
    frame = frame.select(
        pl.col("Label"),
        pl.col(NUMBERS).clip(0).log1p().fill_null(0).cast(pl.Float32),
        pl.col(CATEGORIES).str.to_integer(base=16, dtype=pl.UInt64).fill_null(_MISSING),
    )
    return (
        frame.select(NUMBERS).to_numpy(),
        frame.select(CATEGORIES).to_numpy(),
        frame["Label"].to_numpy(),
    )


def pyarrow(path: Path, threads: int) -> Arrays:
    """Hexadecimal digits by NumPy: it has no such conversion."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415
    from pyarrow import csv  # noqa: PLC0415

    pa.set_cpu_count(threads)
    types = {"Label": pa.int32(), **dict.fromkeys(NUMBERS, pa.float64())}
    types |= dict.fromkeys(CATEGORIES, pa.string())
    table = csv.read_csv(
        path,
        csv.ReadOptions(column_names=NAMES),
        csv.ParseOptions(delimiter="\t", quote_char=False),
        csv.ConvertOptions(column_types=types, strings_can_be_null=True),
    )
    x, ids = _empty(len(table))
    for j, name in enumerate(NUMBERS):
        x[:, j] = np.log1p(np.maximum(pc.fill_null(table[name], 0).to_numpy(), 0))
    for f, name in enumerate(CATEGORIES):
        column = pc.fill_null(table[name], "00000000").combine_chunks()
        missing = table[name].is_null().to_numpy()
        text = np.frombuffer(column.buffers()[2], np.uint8, 8 * len(column), 8 * column.offset)
        ids[:, f] = _numbers_of(text, missing)
    return x, ids, table["Label"].to_numpy()


def pandas(path: Path, threads: int) -> Arrays:
    """By one thread, hexadecimal digits by NumPy."""
    import pandas as pd  # noqa: PLC0415

    assert threads
    types: Any = {"Label": np.int32, **dict.fromkeys(NUMBERS, np.float64)}
    types |= dict.fromkeys(CATEGORIES, object)
    frame = pd.read_csv(path, sep="\t", header=None, names=NAMES, dtype=types)
    x, ids = _empty(len(frame))
    x[:] = np.log1p(np.maximum(frame[NUMBERS].fillna(0).to_numpy(), 0))
    for f, name in enumerate(CATEGORIES):
        missing = frame[name].isna().to_numpy()
        text = frame[name].fillna("00000000").to_numpy().astype("S8").view(np.uint8)
        ids[:, f] = _numbers_of(text, missing)
    return x, ids, frame["Label"].to_numpy()


def _empty(rows: int) -> tuple[NDArray[np.float32], NDArray[np.uint64]]:
    return np.empty((rows, 13), np.float32), np.empty((rows, 26), np.uint64)


def _numbers_of(text: NDArray[np.uint8], missing: NDArray[np.bool_]) -> NDArray[np.uint64]:
    digits = _DIGITS[text].reshape(-1, 8)
    powers = np.uint64(16) ** np.arange(7, -1, -1, dtype=np.uint64)
    return np.where(missing, np.uint64(_MISSING), digits @ powers)


PEERS: dict[str, Callable[[Path, int], Arrays]] = {
    "polars": polars,
    "pyarrow": pyarrow,
    "pandas": pandas,
}


def contenders() -> dict[str, Callable[[Path, int], Arrays]]:
    """By name, those that are installed."""
    return {"leashed": leashed, **{n: read for n, read in PEERS.items() if installed(n)}}
