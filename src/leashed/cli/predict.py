"""``leashed predict`` and ``leashed evaluate``."""

from __future__ import annotations

import argparse
import io
import json
import math
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from leashed import metrics
from leashed.base import atomic, checks
from leashed.cli.arguments import add_fields, given
from leashed.datasets import ClickDataset, Dataset, SparseDataset
from leashed.files.checkpoint import load_whole
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import Graph
from leashed.training.given_examples import by_schema, of_files
from leashed.training.problems import clicks, files, sparse
from leashed.training.problems.problem import ProblemWords
from leashed.training.trained import Trained, is_of_clicks, judged

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands

_LINES = 1 << 16  # of text that are made at once
_CHUNK = 1 << 20  # bytes that are copied at once
_OF_FILES = ("schema", "bad")  # options of files of clicks
_OF_ROWS = ("format", "zero_based", *_OF_FILES)
_GENERATED = (None, clicks.WORD)  # what --data is where it names no file of clicks


def add(commands: Commands) -> None:
    """Add the commands."""
    predict = commands.add_parser(
        "predict",
        help="what a trained model says of examples",
        description="Write what a model says of each example, in their order: the probability of "
        "label 1, those of all classes, or the value.",
    )
    _add_model(predict)
    predict.add_argument(
        "--undo-downsampling",
        type=float,
        metavar="RATE",
        help="the model was trained on rows of which those that were not clicked were kept with "
        "this probability: write probabilities of rows of which none is left out",
    )
    predict.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="text, an example a line, or an array where the name ends in .npy (default: text to "
        "standard output)",
    )
    predict.set_defaults(command=_predict)
    evaluate = commands.add_parser(
        "evaluate",
        help="how good a trained model is",
        description="Loss and accuracy of a model over examples; of clicks also AUC, normalised "
        "entropy and calibration.",
    )
    _add_model(evaluate)
    evaluate.add_argument("--json", action="store_true", help="print JSON")
    evaluate.set_defaults(command=_evaluate)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        type=Path,
        help="what --save or --checkpoint of 'leashed train' wrote; of a model with tables a folder",
    )
    parser.add_argument(
        "--data",
        metavar="PATH",
        help="files, of which no length needs memory (a pattern in quotes is several), a folder of "
        f"MNIST's, whose test set is taken, or {clicks.WORD!r} from a seed "
        "(default: the test set that 'leashed train' has for such a model)",
    )
    add_fields(parser, ProblemWords, _OF_ROWS)
    parser.add_argument("--seed", type=int, help="of generated clicks (default: 0)")
    parser.add_argument("--rows", type=int, help="the first so many (default: all)")


def _parts(
    found: Trained, options: argparse.Namespace, *, labels: bool = True
) -> Iterator[Dataset | SparseDataset | ClickDataset]:
    """The examples that ``--data`` names, as the model takes them: of files part after part, so that no
    length needs memory; without ``labels`` what they are to give need not be there, of clicks.
    """
    model, most = found.model, options.rows
    if most is not None:
        most = checks.whole("--rows", most)
    of_clicks = isinstance(model, Graph) and bool(model.readers)
    if options.data == clicks.WORD and not of_clicks:
        raise ValueError(f"--data {clicks.WORD} goes with models of clicks, not with {model.name}")
    if of_clicks and options.data in _GENERATED:
        return iter([_generated(found, options, most)])
    if options.data is None and isinstance(model, FactorisationMachine):
        raise ValueError(f"{options.model} is of sparse rows; give --data FILE")
    if by_schema(found) and options.data is not None:
        _refuse(options, "a file of clicks", "format", "zero_based", "seed")
    elif options.data is None or sparse.named(options.data).is_dir():
        _refuse(options, "a folder of images, or none", *_OF_ROWS, "seed")
    else:
        fmt = sparse.format_of(sparse.named(options.data), options.format, options.schema)
        wrong = [] if fmt == "libsvm" else ["zero_based"]
        _refuse(options, f"a file of the format {fmt}", "seed", *wrong)
    return of_files(found, options.data, _words(options), most, labels=labels)


def _generated(found: Trained, options: argparse.Namespace, most: int | None) -> ClickDataset:
    _refuse(options, "generated clicks", *_OF_FILES, "format", "zero_based")
    if any(table.rows is None for table in found.model.tables):
        raise ValueError(f"{options.model} has tables that grow, of a file's ids; give --data FILE")
    rows, seed = 20_000 if most is None else most, 0 if options.seed is None else options.seed
    data = clicks.generate(found.model.name, 1, seed, test=rows).test
    return data if most is None else data.head(most)


def _words(options: argparse.Namespace) -> ProblemWords:
    """How files of rows are read."""
    found = given(options, ProblemWords)
    return ProblemWords(**{name: found[name] for name in _OF_ROWS if name in found})


def _refuse(options: argparse.Namespace, data: str, *names: str) -> None:
    """ValueError where an option is given that does nothing for such data."""
    for name in names:
        given = getattr(options, name)
        if given is not None and given is not False:
            raise ValueError(f"--{name.replace('_', '-')} does not go with {data}; leave it out")


def _predict(options: argparse.Namespace) -> int:
    checks.writable(options.output)
    read = files.read_for([options.model, options.data])
    if options.output is not None and options.output.resolve() in read:
        raise ValueError(f"--output {options.output} is read here; name another")
    kept = options.undo_downsampling
    if kept is not None and not 0 < kept <= 1:
        raise ValueError(f"--undo-downsampling must be above 0 and at most 1, got {kept:g}")
    found = Trained.loaded(load_whole(options.model))
    if kept is not None and not is_of_clicks(found.model):
        raise ValueError("--undo-downsampling goes with models of one probability")
    says = (found.predicted(part) for part in _parts(found, options, labels=False))
    if kept is not None:
        says = (metrics.undo_downsampling(p[:, 0], kept)[:, None].astype(np.float32) for p in says)
    if options.output is None:
        sys.stdout.writelines(_lines(says))
        sys.stdout.flush()
    else:
        _write(options.output, says)
    return 0


def _write(path: Path, says: Iterator[NDArray[np.float32]]) -> None:
    """The whole file or, where something fails, none."""
    content: Iterator[bytes | memoryview]
    if path.suffix == ".npy":
        content = _array(says, path.parent)
    else:
        content = (lines.encode() for lines in _lines(says))
    if path.exists() and not path.is_file():  # a pipe or a device: nothing may take its place
        with path.open("wb") as file:
            file.writelines(content)
    else:
        atomic.write(path, content)


def _array(says: Iterator[NDArray[np.float32]], folder: Path) -> Iterator[bytes | memoryview]:
    """As NumPy's format has them: how many there are stands before them, and is known behind them."""
    with tempfile.TemporaryFile(dir=folder) as kept:
        rows = outputs = 0
        for part in says:
            rows, outputs = rows + len(part), part.shape[1]
            kept.write(np.ascontiguousarray(part, "<f4").data)
        header = io.BytesIO()
        shape = {"descr": "<f4", "fortran_order": False, "shape": (rows, outputs)}
        np.lib.format.write_array_header_1_0(header, shape)
        yield header.getvalue()
        kept.seek(0)
        while chunk := kept.read(_CHUNK):
            yield chunk


def _lines(says: Iterator[NDArray[np.float32]]) -> Iterator[str]:
    """Digits that give each float32 back."""
    for part in says:
        for begin in range(0, len(part), _LINES):
            rows = part[begin : begin + _LINES]
            yield "".join(",".join(map(str, row)) + "\n" for row in rows)


def _evaluate(options: argparse.Namespace) -> int:
    found = Trained.loaded(load_whole(options.model))
    told = judged(found, _parts(found, options))
    print(json.dumps(told.to_json()) if options.json else told)
    return 0 if math.isfinite(told.loss) else 1
