"""The command line: ``leashed train``, ``leashed bench scaling``, ``leashed report``, ``leashed tune``.

Little is imported before ``main``, which says in one line that Ctrl-C has come, also while it imports the rest.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from leashed.cli import arguments

_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as every other error of the command line does."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"leashed: error: {message} (see '{self.prog} --help')\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the arguments; default: those of the process.

    Returns:
        The exit status: 0; 1 if training ended without its loss, or crashed; 2 for a wrong
        argument, a file that cannot be used, or too little memory, after one line on standard
        error; 3 if a sweep ended with runs left; 130 after Ctrl-C.
    """
    given = sys.argv[1:] if argv is None else list(argv)
    before, warnings.formatwarning = warnings.formatwarning, _in_one_line
    try:
        options = _parser(_model_of(given)).parse_args(given)
        command: Callable[[argparse.Namespace], int] = options.command
        return command(options)
    except KeyboardInterrupt:
        print("leashed: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, ValueError, TypeError, ImportError) as error:
        print(f"leashed: error: {_explained(error)}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"leashed: error: out of memory: {_explained(error)}", file=sys.stderr)
        return 2
    finally:
        warnings.formatwarning = before


def _explained(error: Exception) -> str:
    from leashed.cli.arguments import explain  # noqa: PLC0415 (as in _parser)

    return explain(error)


def _in_one_line(message: Warning | str, *_: object, **__: object) -> str:
    """Where it comes from is a line of the program that called ``main``, which tells nobody anything."""
    return f"leashed: warning: {message}\n"


def _model_of(argv: Sequence[str]) -> str | None:
    """The model that arguments name, whose options a help is to tell."""
    found = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    found.add_argument("--model")
    try:
        model: str | None = found.parse_known_args(argv)[0].model
    except argparse.ArgumentError:  # which the command tells of
        return None
    return model


def _parser(model: str | None = None) -> argparse.ArgumentParser:
    from leashed._core import __version__  # noqa: PLC0415 (within main)
    from leashed.cli import (  # noqa: PLC0415
        click_lines,
        cluster,
        combinations,
        contention,
        elp,
        export,
        policies,
        predict,
        replay,
        report,
        scaling,
        shadowsync,
        shm,
        simulate,
        staleness,
        study,
        train,
        tune,
    )

    parser: argparse.ArgumentParser = _Parser(
        prog="leashed", description="Asynchronous SGD on every core, without locks."
    )
    parser.add_argument("--version", action="version", version=f"leashed {__version__}")
    commands: arguments.Commands = parser.add_subparsers(required=True, metavar="COMMAND")
    train.add(commands, model)
    predict.add(commands)
    export.add(commands)
    bench = commands.add_parser("bench", help="benchmarks")
    benchmarks: arguments.Commands = bench.add_subparsers(required=True, metavar="BENCHMARK")
    scaling.add(benchmarks)
    combinations.add(benchmarks)
    contention.add(benchmarks)
    shadowsync.add(benchmarks)
    staleness.add(benchmarks)
    study.add(benchmarks)
    report.add(commands)
    policies.add(commands)
    replay.add(commands)
    tune.add(commands)
    shm.add(commands)
    simulate.add(commands)
    elp.add(commands)
    click_lines.add(commands)
    cluster.add(commands)
    return parser
