"""What the commands' arguments share: their types, the data, and how errors are told."""

from __future__ import annotations

import argparse
import errno
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from leashed.datasets import Split
from leashed.training.spelled import DISCIPLINE_WORDS, data_of

T = TypeVar("T")

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
    Arguments = argparse._ActionsContainer  # a parser, or a group of its arguments


def listed(kind: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """An argument type: several values of ``kind``, separated by commas."""

    def parse(text: str) -> tuple[T, ...]:
        try:
            return tuple(kind(part.strip()) for part in text.split(","))
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no list of {kind.__name__} values separated by commas"
            ) from None

    return parse


def add_data(parser: Arguments) -> None:
    """The argument ``--data``."""
    parser.add_argument(
        "--data",
        metavar="FOLDER",
        help="folder with the four IDX files of MNIST or Fashion-MNIST, plain or .gz "
        "(default: synthetic digits)",
    )


def load_data(options: argparse.Namespace) -> Split:
    """The data set that ``--data`` names.

    Raises:
        OSError, ValueError: the folder or a file in it is missing or wrong.
    """
    return data_of(None if options.data is None else str(existing(options.data)))


def existing(path: str | os.PathLike[str]) -> Path:
    """FileNotFoundError where nothing has that name."""
    found = Path(path)
    if not found.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return found


def add_discipline(parser: Arguments) -> None:
    """The arguments that ``spelled.discipline_of`` takes."""
    parser.add_argument(
        "--discipline",
        choices=list(DISCIPLINE_WORDS),
        default="leashed",
        help="default: %(default)s",
    )
    parser.add_argument(
        "--persistence",
        type=persistence,
        metavar="inf|K",
        help="with leashed: drop a gradient after more than K failed attempts (default: inf)",
    )


def persistence(value: str) -> float:
    """An argument type: a bound T_p."""
    if value == "inf":
        return math.inf
    try:
        return int(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is neither inf nor a whole number") from None


def explain(error: Exception) -> str:
    """One line for an exception: the file and the system's reason, or else its message, with the
    command line's remedy.
    """
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    text = " ".join(str(error).split()).replace('bad="skip"', "--bad skip")
    return re.sub(r"bags=\[(.*?)\]", lambda bags: f"--bags {bags[1].replace(' ', '')}", text)
