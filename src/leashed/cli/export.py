"""``leashed export``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from leashed.base import checks
from leashed.files import export
from leashed.files.checkpoint import load_whole
from leashed.training.trained import Trained

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "export",
        help="a trained model for programs that serve it without leashed",
        description="Write a model as ONNX, the rows of its tables with it, or these by themselves.",
    )
    parser.add_argument(
        "model",
        type=Path,
        help="what --save or --checkpoint of 'leashed train' wrote; of a model with tables a folder",
    )
    parser.add_argument("--onnx", type=Path, metavar="FILE", help="the whole model")
    parser.add_argument(
        "--tables",
        type=Path,
        metavar="PATH",
        help="the rows: a file where it ends in .safetensors, else a folder of Arrow files",
    )
    parser.add_argument(
        "--bags",
        metavar="F,F",
        help="features that have any number of ids an example, by number from 0 (default: those that had "
        "in training)",
    )
    parser.set_defaults(command=_export)


def _export(options: argparse.Namespace) -> int:
    if options.onnx is None and options.tables is None:
        raise ValueError("nothing to write; give --onnx FILE, --tables PATH or both")
    if options.bags is not None and options.onnx is None:
        raise ValueError("--bags goes with --onnx; leave it out")
    bags = _features(options.bags)
    checks.writable(options.onnx)
    if options.tables is not None:
        export.check_tables_path(options.tables)
        if options.onnx is not None and options.onnx.resolve() == options.tables.resolve():
            raise ValueError(f"--tables {options.tables} is what --onnx writes; name another")
    found = Trained.loaded(load_whole(options.model))
    if options.tables is not None and not found.tables:
        raise ValueError(f"{options.model} has no tables; leave --tables out")
    if options.onnx is not None:
        known = found.columns.read(getattr(found.model, "id_features", ()))
        export.onnx(
            options.onnx,
            found.model,
            found.parameters,
            found.tables or None,
            found.statistics,
            bags=bags or known.bags,
            columns=found.columns,
        )
        print(options.onnx)
    if options.tables is not None:
        export.tables(options.tables, found.tables)
        print(options.tables)
    return 0


def _features(text: str | None) -> list[int]:
    try:
        return [] if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"--bags must be numbers of features apart by commas, got {text!r}"
        ) from None
