"""``leashed cluster size``."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from leashed.base.table import columns, duration, mebibytes, number, percent, text
from leashed.cli.arguments import add_fields, given
from leashed.cluster.sizing import Costs, Line, Need, Wanted, measured, needed

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands


def add(actions: Commands) -> None:
    """Add the command."""
    parser = actions.add_parser(
        "size",
        help="how many embedding servers a run needs",
        description="Measure what rows cost on this machine: finding, copying and updating them at an "
        "embedding server, and their bytes over loopback; and say how many such servers a run needs by "
        "memory, by processor and by link.",
    )
    add_fields(parser, Wanted)
    parser.set_defaults(command=_size)


def _size(options: argparse.Namespace) -> int:
    wanted = Wanted(**given(options, Wanted))
    begin = time.monotonic()
    costs = measured(wanted)
    took = time.monotonic() - begin
    need = needed(wanted, costs)
    print(f"{_asked(wanted)}:\n")
    header = ["of an embedding server", "has", "used", "servers needed"]
    print(text(header, [_cells(line) for line in need.lines], columns()))
    print(f"\n{_said(wanted, need)}\n\n{_told(wanted, costs, took)}")
    return 0


def _asked(wanted: Wanted) -> str:
    grows = " that grow" if wanted.grow else ""
    return (
        f"{wanted.rows:,.0f} rows of {wanted.dim} floats in {wanted.features} tables{grows}, "
        f"{wanted.examples_per_second:,.0f} examples a second in batches of {wanted.batch_size:,}"
    )


def _cells(line: Line) -> list[str]:
    has = {
        "memory": f"{number(line.has / 2**30)} GiB",
        "processor": f"{line.has:.0f}",
    }.get(line.name, f"{number(line.has * 8e-9)} Gbit/s")
    return [line.name, has, percent(round(line.used / line.has, 3)), f"{line.servers:,}"]


def _said(wanted: Wanted, need: Need) -> str:
    return (
        f"embedding servers: {need.servers:,}, by {need.by}; used is what each then uses, "
        f"{percent(wanted.load)} at most (--load).\n"
        f"trainers: {number(need.asking)} processors in all to ask for rows, beside their gradients."
    )


def _told(wanted: Wanted, costs: Costs, took: float) -> str:
    batch, row = costs.serving
    bytes_in, bytes_out = costs.bytes_in, costs.bytes_out
    return (
        f"measured in {duration(took)}, by {wanted.rule} on {costs.measured_rows:,} rows "
        f"({mebibytes(costs.measured_rows * costs.row_bytes)}), with one trainer over loopback:\n"
        f"a row takes {number(costs.row_bytes)} bytes of memory; a batch, looked up and pushed, takes a "
        f"server {duration(batch)} and {duration(row)} for each row, {number(bytes_in.batch)} and "
        f"{number(bytes_in.row)} bytes in, {number(bytes_out.batch)} and {number(bytes_out.row)} out.\n"
        f"assumed: ids by Zipf's law of exponent {wanted.skew:g}, so that of a batch's "
        f"{wanted.features * wanted.batch_size:,} ids {costs.rows:,.0f} are different; rows spread evenly "
        "over servers like this machine, whose threads share the work evenly; links as in use at full "
        "speed; no snapshots."
    )
