"""What the commands' arguments share: their types, the data, and how errors are told."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from leashed.datasets import Split
from leashed.training.problems.files import existing
from leashed.training.progress import tell
from leashed.training.spelled import OBSERVERS, OLD, data_of, renew

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


def add_counting(parser: Arguments) -> None:
    """``--counting``, as ``leashed.Observe`` has it."""
    parser.add_argument(
        "--counting",
        action="append",
        default=[],
        metavar="NAME:KEY=VALUE,...",
        help="who looks on at the training's steps, told with what comes of it: "
        f"{', '.join(OBSERVERS)}; again for more",
    )


def add_fields(
    parser: Arguments,
    kind: type[Any],
    only: Sequence[str] = (),
    leave: Collection[str] = (),
    hidden: Collection[str] = (),
    groups: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Arguments]:
    """The options that fields of a dataclass are which are made by ``option``, and ``--full`` and
    ``--short`` where one has a value for it. What is not given is None: ``given`` has the others.

    Args:
        parser: that is given them.
        kind: the dataclass.
        only: these fields, in this order. Default: all.
        leave: but not these, ``"full"`` and ``"short"`` among them.
        hidden: what is never taken, so that whoever gives it is told why, and the help is not.
        groups: what the help says of each group, in the order of the help.

    Returns:
        The groups that there are, by name.
    """
    known = {item.name: item for item in dataclasses.fields(kind) if item.metadata}
    sizes: dict[str, list[str]] = {name: [] for name in _SIZES}
    made: dict[str, Arguments] = {"": parser}
    order = {name: place for place, name in enumerate(groups)}
    asked = [known[name] for name in only or known]
    for item in sorted(asked, key=lambda item: order.get(item.metadata["group"], -1)):
        about = item.metadata
        for name, changed in sizes.items():
            if about[name] is not None:
                changed.append(f"{item.name.replace('_', ' ')} {_shown(about[name])}")
        if not about["command"] or item.name in leave:
            continue
        shown = item.name not in hidden
        if (group := about["group"] if shown else "") not in made:
            made[group] = parser.add_argument_group(group, groups.get(group) or None)
        told = _help(item) if shown else argparse.SUPPRESS
        made[group].add_argument(f"--{item.name.replace('_', '-')}", help=told, **_argument(item))
    for name, changed in sizes.items():
        if changed and name not in leave:
            words = f"{', '.join(changed)}, {_SIZES[name]}"
            parser.add_argument(f"--{name}", action="store_true", help=words)
    for name, old in OLD.items():
        if old.name in known and old.name not in leave and (not only or old.name in only):
            parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    return made


_SIZES = {"full": "which takes long", "short": "within ten minutes on two cores"}
"""Options that change several fields at once, and what is told of them."""


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else f"{value:,}"


def _help(item: dataclasses.Field[Any]) -> str:
    """What is told of an option, and its default."""
    told, default = str(item.metadata["told"]), item.default
    if default is None or default is False or default == ():
        return told.replace("%", "%%")
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
    return f"{told}{' ' if told else ''}(default: {shown})".replace("%", "%%")


def _argument(item: dataclasses.Field[Any]) -> dict[str, Any]:
    """What argparse is told of a field besides."""
    about = item.metadata
    if item.default is False:
        return {"action": "store_true", "default": None}
    given = {"choices": about["choices"], **about["argument"]}
    if "type" not in given:
        kind = re.match(r"(tuple\[)?(\w+)", str(item.type))
        assert kind is not None
        one = _KINDS[kind[2]]
        several = kind[1] and not given.keys() & {"action", "nargs"}
        given["type"] = listed(one) if several else one
    return given


_KINDS: Mapping[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str, "Path": Path}


def given(options: argparse.Namespace, kind: type[Any]) -> dict[str, Any]:
    """The fields of a dataclass that options have, or ``--full`` or ``--short`` has, spelled as they
    are now: of others there is a line on standard error.

    Raises:
        ValueError: both are given.
    """
    asked = [name for name in _SIZES if getattr(options, name, False)]
    if len(asked) > 1:
        raise ValueError("--full and --short exclude each other; give one of them")
    found: dict[str, Any] = {}
    known = {item.name: item.metadata for item in dataclasses.fields(kind) if item.metadata}
    old = {name: {"command": True} for name, it in OLD.items() if hasattr(options, it.name)}
    for name, about in {**old, **known}.items():
        value = getattr(options, name, None) if about["command"] else None
        if value is None and asked:
            value = about.get(asked[0])
        if isinstance(value, list):
            value = tuple(value)
        elif isinstance(value, tuple):
            value = tuple(dict.fromkeys(value))
        if value is not None:
            found[name] = value
    if old:
        renew(found, lambda line: tell(f"leashed: {line}"), "--")
    return found


def add_data(parser: Arguments) -> None:
    """The argument ``--data``, of dense data."""
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


def _option_of(field: re.Match[str]) -> str:
    whole, part = field.groups()
    return f"--{'evaluate' if whole == 'observe' else whole}-{part} must be"


def explain(error: Exception) -> str:
    """One line for an exception: the file and the system's reason, or else its message, with the
    command line's remedy.
    """
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    text = " ".join(str(error).split())
    text = re.sub(r"stream\.lib\w+\(path, \.\.\., bad=\"skip\"\)", "--stream --bad skip", text)
    text = text.replace('bad="skip"', "--bad skip")
    text = re.sub(r"\b(observe|checkpoint)\.(\w+) must be", _option_of, text)
    return re.sub(r"bags=\[(.*?)\]", lambda bags: f"--bags {bags[1].replace(' ', '')}", text)
