"""``leashed elp``."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING

from leashed.base.table import MISSING, columns, text
from leashed.studies.elp import TABLE_1, Parallelism

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "elp",
        help="example level parallelism of a training, beside published ones",
        description="How many examples a training works on at one time: batch size × threads × "
        "replicas (Table 1 of the ShadowSync paper, whose rows are printed beside yours).",
    )
    parser.add_argument("--batch-size", type=int, default=64, help="default: %(default)s")
    parser.add_argument(
        "--threads", type=int, default=1, help="worker threads of a trainer; default: %(default)s"
    )
    parser.add_argument(
        "--trainers", type=int, default=1, help="replicas of the parameters; default: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=_elp)


def _elp(options: argparse.Namespace) -> int:
    yours = Parallelism("yours", options.batch_size, options.threads, options.trainers)
    rows = (yours, *TABLE_1)
    if options.json:
        print(json.dumps([{**dataclasses.asdict(row), "elp": row.elp} for row in rows], indent=2))
        return 0
    header = ["algorithm", "batch size", "threads", "replicas", "ELP", "source"]
    print(text(header, [_cells(row) for row in rows], columns()))
    return 0


def _cells(row: Parallelism) -> list[str]:
    return [
        row.algorithm,
        MISSING if row.batch_size is None else f"{row.batch_size:,}",
        str(row.threads),
        str(row.replicas),
        f"{row.batches} × B" if row.elp is None else f"{row.elp:,}",
        row.source,
    ]
