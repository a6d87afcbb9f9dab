"""What a command trains: a model and its data, in memory or read while they are trained on."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NamedTuple

from leashed.cli import clicks, files, sparse
from leashed.cli.arguments import add_data, load_data
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import Graph
from leashed.models.network import Model
from leashed.studies.plan import MODELS, build_model

if TYPE_CHECKING:
    from leashed.cli.arguments import Arguments

__all__ = ["Problem", "add_files", "add_problem", "problem_of"]


class Problem(NamedTuple):
    """What ``problem_of`` gives.

    Attributes:
        model: that is trained.
        train: to train on.
        test: to test; None: there is nothing.
    """

    model: Model | FactorisationMachine | Graph
    train: Any
    test: Any


def add_problem(parser: Arguments) -> None:
    """The arguments ``--data`` and ``--model``."""
    add_data(parser)
    parser.add_argument(
        "--model",
        choices=(*MODELS, *clicks.MODELS, *sparse.MODELS),
        default="mlp",
        help="default: %(default)s",
    )


def add_files(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Those of models of clicks and of sparse rows, and of their files: the group of these."""
    clicks.add_clicks(
        parser.add_argument_group(
            "models of clicks",
            f"{', '.join(clicks.MODELS)}: with --data {clicks.WORD}, from the seed (default), or "
            "--data FILE in Criteo's format",
        )
    )
    read = parser.add_argument_group(
        "files of clicks and of sparse rows", "plain, or compressed by gzip or zstd"
    )
    files.add_files(read)
    read.add_argument(
        "--stream",
        action="store_true",
        help="train on --data while it is read, in order, once unless --epochs says more; it need not "
        "fit into memory, and may be a pattern of several files. --test FILE has rows to test",
    )
    sparse.add_sparse(
        parser.add_argument_group(
            "models of sparse rows",
            f"{', '.join(sparse.MODELS)}: --data FILE is in the libsvm or libffm format, or Criteo's; "
            "of the first two also with --stream",
        )
    )
    return read


def problem_of(options: argparse.Namespace) -> Problem:
    """What such arguments ask for.

    Raises:
        OSError, TypeError, ValueError: a file is missing or wrong, or arguments do not go together.
    """
    model: Model | FactorisationMachine | Graph
    data: Any
    if options.model in clicks.MODELS:
        sparse.refuse(options, test=options.stream)
        model = clicks.build(options.model, options)
        data = clicks.streamed(options) if options.stream else clicks.load(options)
    elif options.model in sparse.MODELS:
        clicks.refuse(options, files=True)
        data = sparse.streamed(options) if options.stream else sparse.load(options)
        model = sparse.build(options.model, data, options)
    else:
        clicks.refuse(options)
        sparse.refuse(options)
        data = load_data(options)
        model = build_model(options.model, data.train)
    return Problem(model, data.train, data.test)
