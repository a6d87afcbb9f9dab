"""How many embedding servers a run needs, by what rows cost on this machine.

Batches of one example and of many are looked up and pushed over loopback, at a server that is made for it, whose rows
do not fit into caches. What a batch costs a server is then a part that it costs each server, and one for
each of its rows, of which a server has its share: so with S servers a batch of R rows costs each
``a + b · R / S``, of processor time and of bytes in each direction.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.base import checks, words
from leashed.base.options import option
from leashed.models.tables import SHARDS, Table
from leashed.rules import RULES

__all__ = ["Costs", "Line", "Need", "Part", "Wanted", "line", "measured", "needed", "profiled"]

_GIB = 2**30
_MEASURED_BYTES = 2**28  # of rows, all tables together: more than caches hold
_FEWEST, _MOST = 16, 4096  # examples of the batch of many
_IDS = 2**19  # of all batches that are measured
_BATCHES = 32
_GROWN_AT_ONCE = 2**16  # rows
_MOST_ROWS = 2.0**63
_SCATTER = np.uint64(2654435761)  # a prime, so that ids that come often are not neighbours
_STEP = 0.01  # of the rule: it makes no difference to what an update costs


def _share(name: str, value: Any) -> float:
    found = checks.real(name, value, 0.0)
    if found > 1.0:
        raise ValueError(f"{name} must be at most 1, got {found:g}")
    return found


def _skew(name: str, value: Any) -> float:
    return checks.real(name, value, 0.0, allow=True)


def _features(name: str, value: Any) -> int:
    return checks.whole(name, value, 1, 1024)


def _rows(name: str, value: Any) -> float:
    found = checks.real(name, value, 0.0)
    if found > _MOST_ROWS:
        raise ValueError(f"{name} must be at most {_MOST_ROWS:.3g}, got {found:g}")
    return found


def _positive(name: str, value: Any) -> float:
    return checks.real(name, value, 0.0)


@dataclass(frozen=True)
class Wanted:
    """What is to be served, and by what.

    Raises:
        TypeError, ValueError: a number is none of those that are allowed; the message names it.
    """

    rows: float = option(1e9, "of all tables together", _rows, metavar="N")
    dim: int = option(16, "floats of a row", checks.size)
    examples_per_second: float = option(1e6, "of all trainers together", _positive, metavar="E")
    features: int = option(
        26, "of ids, one an example, each with a table of its own", _features, metavar="F"
    )
    batch_size: int = option(512, "examples", checks.size)
    skew: float = option(
        1.2, "exponent of Zipf's law, by which ids come; 0: each as often as the others", _skew
    )
    rule: str = option("adagrad", "by which rows are updated, NAME[:key=value,...]", metavar="NAME")
    grow: bool = option(False, "tables that grow, whose ids are found by hashing")
    memory_gib: float = option(64.0, "of a server, in GiB", _positive, metavar="M")
    threads: int = option(1, "that serve, of a server, each with a core", checks.size)
    link_gbit: float = option(10.0, "of a server's link each way, in Gbit/s", _positive)
    load: float = option(0.75, "the part of memory, processors and links that is used", _share)

    def __post_init__(self) -> None:
        for item in fields(self):
            if (check := item.metadata["check"]) is not None:
                check(item.name, getattr(self, item.name))
        if self.rows < self.features:
            raise ValueError(f"rows must be at least one for each feature, got {self.rows:g}")


class Part(NamedTuple):
    """What a batch costs each server, and each of its rows the one that has it."""

    batch: float
    row: float

    def of(self, rows: float, servers: float) -> float:
        """What a batch of so many rows costs each of so many servers."""
        return self.batch + self.row * rows / servers


@dataclass(frozen=True)
class Costs:
    """What was measured.

    Attributes:
        row_bytes: of memory for a row, with the rule's states, its version and its part of an index.
        rows: that a batch asks for, each once.
        serving: seconds of a server's processor time.
        asking: of a trainer's, for a batch.
        bytes_in, bytes_out: of a server.
        measured_rows: on which it was measured.
    """

    row_bytes: float
    rows: float
    serving: Part
    asking: float
    bytes_in: Part
    bytes_out: Part
    measured_rows: int


class Line(NamedTuple):
    """One of the things that servers have so much of.

    Attributes:
        has: of one server.
        used: of each, where there are as many as are needed.
        servers: that it takes for this alone.
    """

    name: str
    has: float
    used: float
    servers: int


class Need(NamedTuple):
    """How many servers there are to be, by the line that needs most."""

    servers: int
    by: str
    lines: tuple[Line, ...]
    asking: float


def needed(wanted: Wanted, costs: Costs) -> Need:
    """What follows of what was measured.

    Raises:
        ValueError: no number of servers does it, since batches alone, whatever their rows, fill each
            server, or it takes more than a table is spread over; the message says what would.
    """
    rate = wanted.examples_per_second / wanted.batch_size
    link = wanted.link_gbit * 1e9 / 8.0
    memory = Part(0.0, wanted.rows * costs.row_bytes / costs.rows / rate)
    parts = {
        "memory": (wanted.memory_gib * _GIB, memory),
        "processor": (float(wanted.threads), costs.serving),
        "link, in": (link, costs.bytes_in),
        "link, out": (link, costs.bytes_out),
    }
    least = {}
    for name, (has, part) in parts.items():
        left = has * wanted.load - rate * part.batch
        if left <= 0.0:
            raise ValueError(
                f"no number of servers does it: so many batches a second, each of which goes to every "
                f"server, take {rate * part.batch / has:.3g} of its {name}; give a larger --batch-size"
            )
        least[name] = max(1, math.ceil(rate * part.row * costs.rows / left))
    servers = max(least.values())
    lines = tuple(
        Line(name, has, rate * part.of(costs.rows, servers), least[name])
        for name, (has, part) in parts.items()
    )
    binding = max(lines, key=lambda line: (line.servers, line.used / line.has))
    if servers > SHARDS:
        raise ValueError(
            f"it takes {servers:,} servers, by {binding.name}, and a table is spread over {SHARDS} at most: give "
            "each server more (--memory-gib, --threads, --link-gbit)"
        )
    return Need(servers, binding.name, lines, rate * costs.asking)


def measured(wanted: Wanted) -> Costs:
    """Measure what rows cost, on this machine; that takes some seconds and 300 MB.

    Raises:
        ValueError: the rule is none, or none for rows.
        OSError: loopback cannot be had.
    """
    each = max(1, int(wanted.rows) // wanted.features)
    rule = words.made(RULES, "rule", wanted.rule)(lr=_STEP)

    def made(feature: int, **size: Any) -> Table:
        return Table(dim=wanted.dim, rule=rule, number=feature, name=f"feature {feature}", **size)

    one = made(0, rows=1).statistics()["bytes_per_row"]
    part = _MEASURED_BYTES // wanted.features
    if wanted.grow:
        tables = [made(f, max_bytes=max(part, 2**20)) for f in range(wanted.features)]
        told = tables[0].statistics()
        here = min(each, told["capacity"] * 9 // 10)
        row_bytes = told["most_bytes"] / told["capacity"]
        for table in tables:
            _fill(table, here)
    else:
        here = min(each, max(1, part // one))
        row_bytes = float(one)
        tables = [made(f, rows=here) for f in range(wanted.features)]

    rng = np.random.default_rng(0)
    large = min(max(wanted.batch_size, _FEWEST), _MOST)
    found = []
    for examples in (1, large):
        batches = max(2, min(_BATCHES, _IDS // (wanted.features * examples)))
        ids = _ids(rng, (batches, wanted.features, examples), each, wanted.skew)
        found.append(profiled(tables, ids * _SCATTER % np.uint64(here)))
    small, whole = found
    rows = _distinct(rng, wanted, each)
    asking = line(small, whole, "asking")
    return Costs(
        row_bytes=row_bytes,
        rows=rows,
        serving=line(small, whole, "serving"),
        asking=asking.of(rows, 1),
        bytes_in=line(small, whole, "bytes_in"),
        bytes_out=line(small, whole, "bytes_out"),
        measured_rows=here * wanted.features,
    )


def _fill(table: Table, rows: int) -> None:
    for begin in range(0, rows, _GROWN_AT_ONCE):
        ids = np.arange(begin, min(rows, begin + _GROWN_AT_ONCE))
        table.update(ids, np.zeros((len(ids), table.dim), np.float32))


def _ids(
    rng: np.random.Generator, shape: tuple[int, ...], rows: int, skew: float
) -> NDArray[np.uint64]:
    """By Zipf's law, as a law of real numbers has it that is cut to whole ones."""
    uniform = rng.random(shape)
    last = rows + 1.0
    if skew == 1.0:
        ranks = last**uniform
    else:
        ranks = (1.0 + uniform * (last ** (1.0 - skew) - 1.0)) ** (1.0 / (1.0 - skew))
    return np.minimum(ranks - 1.0, rows - 1.0).astype(np.uint64)


def _distinct(rng: np.random.Generator, wanted: Wanted, rows: int) -> float:
    """Rows that a batch asks for, in the mean of some tables."""
    tables = max(1, min(_IDS // wanted.batch_size, 4 * wanted.features))
    ids = _ids(rng, (tables, wanted.batch_size), rows, wanted.skew)
    ids.sort(axis=1)
    different = tables + np.count_nonzero(ids[:, 1:] != ids[:, :-1])
    return wanted.features * float(different) / tables


def profiled(tables: Sequence[Table], ids: NDArray[np.uint64]) -> dict[str, float]:
    """What a batch's rows of some tables cost, uint64 ids [batches, tables, examples], over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = socket.create_connection(listening.getsockname())
        there, _ = listening.accept()
    for each in (here, there):
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    natives = [table.native for table in tables]
    found: dict[str, float] = _core.profile_rows(
        here.detach(), there.detach(), "tcp", natives, ids.ravel(), ids.shape[2]
    )
    return found


def line(small: dict[str, float], whole: dict[str, float], name: str) -> Part:
    """Through what two batches have cost."""
    if (rows := whole["rows"] - small["rows"]) > 0.0:
        row = (whole[name] - small[name]) / rows
        batch = small[name] - row * small["rows"]
        if row > 0.0 and batch > 0.0:
            return Part(batch, row)
    return Part(0.0, whole[name] / whole["rows"])
