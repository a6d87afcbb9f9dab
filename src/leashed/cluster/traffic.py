"""Bytes of parameters that each process has moved, by its own counters and by the kernel's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leashed.base.table import MISSING, Table, mebibytes, number
from leashed.cluster.measures import Counters, counted
from leashed.cluster.roles import ROLES

__all__ = ["NOTE", "Traffic", "figures", "table", "traffic"]

NOTE = (
    "kernel: bytes of the data connections that the other side has acknowledged, and that have come, "
    "as the kernel counts them for TCP (TCP_INFO); for shared memory it has no count. What a process "
    "sent last may not be acknowledged where it ended."
)


@dataclass(frozen=True)
class Traffic:
    """Of one process, over all its lives. NaN: there is no count.

    Attributes:
        out: bytes of frames sent.
        into: received.
        kernel_out: what the kernel says was acknowledged.
        kernel_in: received.
    """

    out: float
    into: float
    kernel_out: float
    kernel_in: float

    @classmethod
    def of(cls, counters: Counters) -> Traffic:
        """Of the counters of a process."""
        names = ("bytes_out", "bytes_in", "kernel_out", "kernel_in")
        return cls(*(counters.get(name, math.nan) for name in names))

    @property
    def ratio_out(self) -> float:
        """Own over the kernel's; NaN where there is no count, or nothing was sent."""
        return self.out / self.kernel_out if self.kernel_out else math.nan

    @property
    def ratio_in(self) -> float:
        """The same of what was received."""
        return self.into / self.kernel_in if self.kernel_in else math.nan


def traffic(report: Mapping[str, Any]) -> dict[str, Traffic]:
    """Of each process that moves parameters, by name.

    Args:
        report: as in run.json.
    """
    return {
        f"{role}-{index}": Traffic.of(counters)
        for role in reversed(ROLES)
        for index, counters in counted(report, role).items()
        if "bytes_out" in counters
    }


def figures(report: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """The same for run.json; None where there is no count."""
    names = ("out", "into", "kernel_out", "kernel_in", "ratio_out", "ratio_in")
    return {
        process: {
            name.replace("into", "in"): None if math.isnan(value := getattr(told, name)) else value
            for name in names
        }
        for process, told in traffic(report).items()
    }


def table(report: Mapping[str, Any]) -> Table:
    """A row per process."""
    header = [
        "bytes",
        "out",
        "in",
        "kernel out",
        "kernel in",
        "own / kernel out",
        "own / kernel in",
    ]
    rows = [
        [
            _in_words(name),
            *(_bytes(each) for each in (told.out, told.into, told.kernel_out, told.kernel_in)),
            number(told.ratio_out, 4),
            number(told.ratio_in, 4),
        ]
        for name, told in traffic(report).items()
    ]
    return Table(header, rows)


def _in_words(process: str) -> str:
    role, _, index = process.rpartition("-")
    return f"{ROLES[role].words} {index}"


def _bytes(value: float) -> str:
    return MISSING if math.isnan(value) else mebibytes(value)
