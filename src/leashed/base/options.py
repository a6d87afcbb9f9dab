"""Fields of a dataclass that are a command's options too: of a study, and of what a training is asked.

threads: int = option(4, "of all disciplines but SEQ", checks.whole)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["option"]

Check = Callable[[str, Any], object]


def option(
    default: Any,
    told: str,
    check: Check | None = None,
    *,
    full: Any = None,
    short: Any = None,
    choices: Iterable[str] | None = None,
    command: bool = True,
    group: str = "",
    **argument: Any,
) -> Any:
    """A field, and the option of that name.

    Args:
        default: its value; of a tuple the option takes several, separated by commas.
        told: in the command's help.
        check: is called with its name and value, of a tuple with each, and raises TypeError or
            ValueError where it is wrong.
        full: its value with ``--full``. Default: ``default``.
        short: its value with ``--short``. Default: ``default``.
        choices: what it may be. Default: anything that ``check`` takes.
        command: whether the command has it, too.
        group: of the help, in which it stands.
        argument: what ``argparse`` is told besides, such as ``metavar``.
    """
    about = {"told": told, "check": check, "choices": choices, "command": command, "group": group}
    sizes = {"full": full, "short": short}
    return dataclasses.field(default=default, metadata={**about, **sizes, "argument": argument})
