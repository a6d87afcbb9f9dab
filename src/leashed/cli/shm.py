"""``leashed shm``: vectors in shared memory."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from leashed.engine import shared

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser("shm", help="vectors in shared memory")
    actions: Commands = parser.add_subparsers(required=True, metavar="ACTION")
    clean = actions.add_parser(
        "clean",
        help="remove what nobody uses any more",
        description="Remove the shared vectors that nobody uses any more: what is left where every "
        "process that used one was killed, and the one that waits for their end too.",
    )
    clean.set_defaults(command=_clean)


def _clean(_: argparse.Namespace) -> int:
    removed, used = shared.clean()
    for name in removed:
        print(f"removed {name}")
    for name in used:
        print(f"in use  {name}")
    if not removed:
        print("nothing to remove")
    return 0
