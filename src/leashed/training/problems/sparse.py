"""Models of sparse rows that words describe, and the files that have such rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import Any, NamedTuple, cast

from numpy.typing import ArrayLike, NDArray

from leashed import datasets, models, stream
from leashed.base.options import option
from leashed.datasets import SparseDataset
from leashed.datasets.files import is_repeatable, name_of, paths_of
from leashed.models.factorisation import FactorisationMachine
from leashed.models.network import Model
from leashed.stream import SparseStream, Stream
from leashed.training.problems import files
from leashed.training.problems.files import FileWords, existing

__all__ = [
    "FORMATS",
    "GROUP",
    "MODELS",
    "TARGETED",
    "Rows",
    "SparseWords",
    "Streamed",
    "build",
    "format_of",
    "hashed_parts",
    "load",
    "named",
    "read",
    "refuse",
    "stream_of",
    "streamed",
]

MODELS = (
    "linear_regression",
    "logistic_regression",
    "linear_svm",
    "softmax_regression",
    "fm",
    "ffm",
)
TARGETED = ("fm", "ffm")  # which predict what --target says
FORMATS = ("libsvm", "libffm", "criteo", "csv")
_HASHED = ("criteo", "csv")  # files of clicks, whose ids are hashed

_ENDINGS = {
    ".svm": "libsvm",
    ".libsvm": "libsvm",
    ".svmlight": "libsvm",
    ".ffm": "libffm",
    ".libffm": "libffm",
    ".tsv": "criteo",
    ".csv": "criteo",
}
_PACKED = (".gz", ".zst")
GROUP = "models of sparse rows"
_TEST_SHARE = 5  # one row of so many is kept for testing
_BITS = 18


class Rows(NamedTuple):
    """What ``load`` gives: rows to train on and to test, and in libffm files each column's field."""

    train: SparseDataset
    test: SparseDataset
    fields: NDArray[Any] | None


class Streamed(NamedTuple):
    """What ``streamed`` gives: rows to train on while they are read, rows to test, if there are any,
    and in libffm files each column's field.
    """

    train: SparseStream
    test: SparseDataset | None
    fields: NDArray[Any] | None


@dataclass(frozen=True, kw_only=True)
class SparseWords(FileWords):
    """What is asked of models of sparse rows."""

    format: str | None = option(
        None,
        "of the files (default: csv with --schema, else by their names' ends: .svm, .libsvm; .ffm; "
        ".tsv, .csv of Criteo's)",
        group=GROUP,
        choices=FORMATS,
    )
    features: int | None = option(
        None,
        "libsvm with --stream: columns there are (default: as many as the files have, which are "
        "read once before for that)",
        group=GROUP,
        metavar="N",
    )
    zero_based: bool = option(False, "libsvm: columns are numbered from 0, not 1", group=GROUP)
    hash_bits: int | None = option(
        None,
        f"of Criteo's files and CSV: ids go into 2^B columns (default: {_BITS})",
        group=GROUP,
        metavar="B",
    )
    factors: int | None = option(None, "of fm (default: 8), ffm (4)", group=GROUP, metavar="K")
    l2: float | None = option(None, "penalty λ (default: 0)", group=GROUP)


def format_of(path: Path, given: str | None, schema: str | None) -> str:
    """The format of a file, or of the first that a pattern has; ValueError where nothing tells."""
    if schema is not None:
        if given not in (None, "csv"):
            raise ValueError(f"--schema is of --format csv, not of {given}; leave it out")
        return "csv"
    if given == "csv":
        raise ValueError("--format csv takes --schema FILE, which says what columns become")
    if given is not None:
        return given
    if has_magic(str(path)):
        path = cast("Path", paths_of(str(path))[0])
    name = path.with_suffix("") if path.suffix in _PACKED else path
    if name.suffix not in _ENDINGS:
        raise ValueError(f"the name of {name_of(path)} does not tell its format; give --format")
    return _ENDINGS[name.suffix]


def named(given: str) -> Path:
    """The path, or the pattern, of files; FileNotFoundError where nothing has that name."""
    return Path(given) if has_magic(given) else existing(given)


def _files_of(words: SparseWords) -> tuple[Path, str]:
    """What ``--data`` names, and its format."""
    if words.data is None:
        raise ValueError(f"--model {words.model} takes --data FILE of sparse rows")
    path = named(words.data) if words.stream else existing(words.data)
    if words.test is not None:
        existing(words.test)
    fmt = format_of(path, words.format, words.schema)
    if fmt not in _HASHED and words.hash_bits is not None:
        raise ValueError(f"--hash-bits goes with --format {' or '.join(_HASHED)}")
    if fmt != "libsvm" and words.zero_based:
        raise ValueError("--zero-based goes with --format libsvm")
    if words.features is not None and not (words.stream and fmt == "libsvm"):
        raise ValueError("--features goes with --stream and --format libsvm")
    return path, fmt


def _of_numbers(words: SparseWords) -> bool:
    """Whether numbers are predicted. ValueError where ``--target`` is not for the model."""
    if words.target is not None and words.model not in TARGETED:
        raise ValueError(
            f"--target goes with --model {', '.join(TARGETED)} of sparse rows, and with models of clicks; "
            f"{words.model} says itself what it predicts"
        )
    return words.model == "linear_regression" or files.target_of(words) == "number"


def load(words: SparseWords) -> Rows:
    """The rows of ``--data`` and ``--test``.

    Raises:
        OSError, ValueError: a file is missing or wrong, or there is none.
    """
    path, fmt = _files_of(words)
    if words.bad is not None and fmt not in _HASHED:
        raise ValueError(f"--bad goes with --stream, or --format {' or '.join(_HASHED)}")
    regression = _of_numbers(words)
    fields = None
    if fmt == "libffm":
        files = [path] if words.test is None else [path, words.test]
        found, fields = datasets.read_libffm(*files, regression=regression)
        train, *tests = found
    else:
        train = read(path, fmt, words, regression=regression)
        tests = []
        if words.test is not None:
            tests = [read(words.test, fmt, words, train.features, regression=regression)]
    if tests:
        return Rows(train, tests[0], fields)
    if len(train) < 2:
        raise ValueError(f"{path} has one row; it takes two, one to test")
    return Rows(*train.split(test=max(1, len(train) // _TEST_SHARE)), fields)


def streamed(words: SparseWords) -> Streamed:
    """The files that ``--data`` names, read while they are trained on, and the rows of ``--test``.

    Raises:
        OSError, ValueError: a file is missing or wrong, or ``--data`` names none, or none that can
            be read twice where that is needed.
    """
    path, fmt = _files_of(words)
    if fmt in _HASHED:
        raise ValueError(
            f"--stream of a file of the format {fmt} goes with models of clicks, not with "
            f"{words.model}; leave it out, or write libsvm or libffm"
        )
    regression = _of_numbers(words)
    features, fields, classes = words.features, None, 0 if regression else 2
    if features is None or words.model == "softmax_regression":
        if not is_repeatable(paths_of(str(path))):
            remedy = "--features N, or a file" if fmt == "libsvm" and features is None else "a file"
            raise ValueError(
                f"{name_of(path)} can be read once only, but its shape is found before; give {remedy}"
            )
        found = (
            stream.scan_libffm(str(path))
            if fmt == "libffm"
            else stream.scan_libsvm(str(path), zero_based=words.zero_based)
        )
        features = found.features if features is None else features
        fields = found.fields
        classes = classes and found.classes
        if not (regression or classes):
            raise ValueError(
                f"{path} has targets that are no labels; give --model linear_regression, or --model fm "
                "--target number"
            )
    rows = stream_of(path, fmt, words, features, classes, fields, shuffle=words.shuffle)
    test = None
    if words.test is not None:
        known = () if fields is None else tuple(fields.tolist())
        test = read(words.test, fmt, words, features, regression=regression, fields=known)
    return Streamed(rows, test, fields)


def stream_of(
    path: str | Path,
    fmt: str,
    words: SparseWords,
    features: int,
    classes: int,
    fields: ArrayLike | None,
    *,
    shuffle: int | None = None,
) -> SparseStream:
    """The rows of files of that format, libsvm or libffm; a pattern is its files by name."""
    given: dict[str, Any] = {"bad": "fail" if words.bad is None else words.bad}
    if shuffle is not None:
        given |= {"shuffle": shuffle, "seed": words.seed}
    if fmt == "libffm":
        known = features if fields is None else fields
        return stream.libffm(path, known, classes=classes, **given)
    return stream.libsvm(path, features, zero_based=words.zero_based, classes=classes, **given)


def read(
    path: str | Path,
    fmt: str,
    words: SparseWords,
    features: int | None = None,
    *,
    regression: bool = False,
    fields: tuple[int, ...] = (),
) -> SparseDataset:
    """The rows of a file, of so many columns where that is known."""
    if fmt in _HASHED:
        clicks = files.stream_of(path, words)
        if features is not None:
            bits = _bits(clicks, features)
        else:
            bits = _BITS if words.hash_bits is None else words.hash_bits
        return datasets.hashed(clicks.read(), bits)
    if fmt == "libffm":
        (rows,), _ = datasets.read_libffm(path, fields=fields or None, regression=regression)
        if features is None or rows.features >= features:
            return rows
        return dataclasses.replace(rows, features=features)  # whose last columns do not occur
    return datasets.read_svmlight(
        path, features, zero_based=words.zero_based, regression=regression
    )


def hashed_parts(
    path: str | Path, words: SparseWords, features: int, most: int | None
) -> Iterator[SparseDataset]:
    """The rows of files of clicks, or the first so many, for a model of so many columns."""
    rows = files.stream_of(str(path), words)
    bits = _bits(rows, features)
    return (datasets.hashed(part, bits) for part in files.parts_of(rows, most))


def _bits(rows: Stream, features: int) -> int:
    """Of the hashes that the ids of rows have in a model of so many columns."""
    bits = (features - rows.numbers).bit_length() - 1 if rows.names else _BITS
    if features != rows.numbers + (2**bits if rows.names else 0):
        raise ValueError(
            f"the model has {features} columns, which are no {rows.numbers} numbers"
            f"{' and 2^B hashes' if rows.names else ''}: it is not of {rows.name}'s columns"
        )
    return bits


def build(name: str, rows: Rows | Streamed, words: SparseWords) -> Model | FactorisationMachine:
    """The named model of these rows."""
    features, l2 = rows.train.features, 0.0 if words.l2 is None else words.l2
    if words.factors is not None and name not in ("fm", "ffm"):
        raise ValueError("--factors goes with --model fm or ffm")
    if name == "ffm":
        if rows.fields is None:
            raise ValueError("--model ffm takes files of the format libffm, which name fields")
        factors = 4 if words.factors is None else words.factors
        return models.ffm(rows.fields, factors, l2=l2, target=files.target_of(words))
    if name == "fm":
        factors = 8 if words.factors is None else words.factors
        return models.fm(features, factors, l2=l2, target=files.target_of(words))
    kind: Callable[..., Model] = getattr(models, name)
    if name == "linear_regression":
        return kind(features, l2=l2)
    tested = 2 if rows.test is None else rows.test.classes
    return kind(features, max(rows.train.classes, tested), l2=l2)


def refuse(words: SparseWords, *, test: bool = False) -> None:
    """ValueError where an argument is given that other models do not take; with ``test`` they take
    rows to test.
    """
    for name in ("format", "test", "features", "hash_bits", "factors", "l2"):
        if getattr(words, name) is None or (test and name == "test"):
            continue
        told = f"--{name.replace('_', '-')} goes with --model {', '.join(MODELS)}"
        if name == "test":
            told += (
                "; and of models of clicks with --stream, in a cluster with --readers: else they test by a "
                "part of --data"
            )
        raise ValueError(told)
    if words.zero_based:
        raise ValueError(f"--zero-based goes with --model {', '.join(MODELS)}")
