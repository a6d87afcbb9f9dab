"""Models of sparse rows on the command line, and the files that have such rows."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from leashed import datasets, models
from leashed.cli.arguments import existing
from leashed.datasets import SparseDataset
from leashed.models import FactorisationMachine, Model

if TYPE_CHECKING:
    from leashed.cli.arguments import Arguments

__all__ = [
    "FORMATS",
    "MODELS",
    "Rows",
    "add_sparse",
    "build",
    "format_of",
    "load",
    "read",
    "refuse",
]

MODELS = (
    "linear_regression",
    "logistic_regression",
    "linear_svm",
    "softmax_regression",
    "fm",
    "ffm",
)
FORMATS = ("libsvm", "libffm", "criteo")

_ENDINGS = {
    ".svm": "libsvm",
    ".libsvm": "libsvm",
    ".svmlight": "libsvm",
    ".ffm": "libffm",
    ".libffm": "libffm",
    ".tsv": "criteo",
    ".csv": "criteo",
}
_TEST_SHARE = 5  # one row of so many is kept for testing
_BITS = 18


class Rows(NamedTuple):
    """What ``load`` gives: rows to train on and to test, and in libffm files each column's field."""

    train: SparseDataset
    test: SparseDataset
    fields: NDArray[Any] | None


def add_sparse(parser: Arguments) -> None:
    """The arguments of models of sparse rows."""
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="of the files (default: by their names' ends: .svm, .libsvm; .ffm; .tsv, .csv of Criteo's)",
    )
    parser.add_argument(
        "--test",
        type=Path,
        metavar="FILE",
        help="rows to test (default: the last fifth of --data)",
    )
    parser.add_argument(
        "--zero-based", action="store_true", help="libsvm: columns are numbered from 0, not 1"
    )
    parser.add_argument(
        "--hash-bits",
        type=int,
        metavar="B",
        help=f"of Criteo's files: ids go into 2^B columns (default: {_BITS})",
    )
    parser.add_argument("--factors", type=int, metavar="K", help="of fm (default: 8), ffm (4)")
    parser.add_argument("--l2", type=float, help="penalty λ (default: 0)")


def format_of(path: Path, given: str | None) -> str:
    """The format of a file; ValueError where nothing tells."""
    if given is not None:
        return given
    name = path.with_suffix("") if path.suffix == ".gz" else path
    if name.suffix not in _ENDINGS:
        raise ValueError(f"the name of {path} does not tell its format; give --format")
    return _ENDINGS[name.suffix]


def load(options: argparse.Namespace) -> Rows:
    """The rows of ``--data`` and ``--test``.

    Raises:
        OSError, ValueError: a file is missing or wrong, or there is none.
    """
    if options.data is None:
        raise ValueError(f"--model {options.model} takes --data FILE of sparse rows")
    path = existing(options.data)
    if options.test is not None:
        existing(options.test)
    fmt = format_of(path, options.format)
    if fmt != "criteo" and options.hash_bits is not None:
        raise ValueError("--hash-bits goes with --format criteo")
    if fmt != "libsvm" and options.zero_based:
        raise ValueError("--zero-based goes with --format libsvm")
    regression = options.model == "linear_regression"
    fields = None
    if fmt == "libffm":
        files = [path] if options.test is None else [path, options.test]
        found, fields = datasets.read_libffm(*files, regression=regression)
        train, *tests = found
    else:
        train = read(path, fmt, options, regression=regression)
        tests = []
        if options.test is not None:
            tests = [read(options.test, fmt, options, train.features, regression=regression)]
    if tests:
        return Rows(train, tests[0], fields)
    if len(train) < 2:
        raise ValueError(f"{path} has one row; it takes two, one to test")
    return Rows(*train.split(test=max(1, len(train) // _TEST_SHARE)), fields)


def read(
    path: Path,
    fmt: str,
    options: argparse.Namespace,
    features: int | None = None,
    *,
    regression: bool = False,
    fields: tuple[int, ...] = (),
) -> SparseDataset:
    """The rows of a file, of so many columns where that is known."""
    if fmt == "criteo":
        numbers = 13
        bits = _BITS if options.hash_bits is None else options.hash_bits
        if features is not None:
            bits = (features - numbers).bit_length() - 1
            if features != numbers + 2**bits:
                raise ValueError(
                    f"the model has {features} columns, which are no {numbers} numbers and 2^B "
                    f"hashes: it is not of Criteo's files"
                )
        return datasets.hashed(datasets.criteo(path), bits)
    if fmt == "libffm":
        (rows,), _ = datasets.read_libffm(path, fields=fields or None, regression=regression)
        if features is None or rows.features >= features:
            return rows
        return dataclasses.replace(rows, features=features)  # whose last columns do not occur
    return datasets.read_svmlight(
        path, features, zero_based=options.zero_based, regression=regression
    )


def build(name: str, rows: Rows, options: argparse.Namespace) -> Model | FactorisationMachine:
    """The named model of these rows."""
    features, l2 = rows.train.features, 0.0 if options.l2 is None else options.l2
    if options.factors is not None and name not in ("fm", "ffm"):
        raise ValueError("--factors goes with --model fm or ffm")
    if name == "ffm":
        if rows.fields is None:
            raise ValueError("--model ffm takes files of the format libffm, which name fields")
        return models.ffm(rows.fields, 4 if options.factors is None else options.factors, l2=l2)
    if name == "fm":
        return models.fm(features, 8 if options.factors is None else options.factors, l2=l2)
    kind: Callable[..., Model] = getattr(models, name)
    if name == "linear_regression":
        return kind(features, l2=l2)
    return kind(features, max(rows.train.classes, rows.test.classes), l2=l2)


def refuse(options: argparse.Namespace, *, test: bool = False) -> None:
    """ValueError where an argument is given that other models do not take; with ``test`` they take
    rows to test.
    """
    for name in ("format", "test", "hash_bits", "factors", "l2"):
        if getattr(options, name) is not None and not (test and name == "test"):
            raise ValueError(f"--{name.replace('_', '-')} goes with --model {', '.join(MODELS)}")
    if options.zero_based:
        raise ValueError(f"--zero-based goes with --model {', '.join(MODELS)}")
