"""``leashed predict`` and ``leashed evaluate``."""

from __future__ import annotations

import argparse
import io
import json
import math
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from leashed import metrics
from leashed.base import atomic, checks
from leashed.base.table import number, pairs
from leashed.cli.arguments import add_fields, given
from leashed.datasets import ClickDataset, Dataset, SparseDataset
from leashed.files.checkpoint import Loaded, load_whole
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import Graph
from leashed.models.network import Model
from leashed.training.problems import clicks, files, sparse
from leashed.training.problems.problem import ProblemWords
from leashed.training.spelled import data_of

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands

_LINES = 1 << 16  # of text that are made at once
_CHUNK = 1 << 20  # bytes that are copied at once
_RANKED = 1 << 22  # rows at most whose AUC is that of all pairs, which are kept for it
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
    found: Loaded[Any], options: argparse.Namespace, *, labelled: bool = True
) -> Iterator[Dataset | SparseDataset | ClickDataset]:
    """The examples that ``--data`` names, as the model takes them: of files of clicks and of sparse
    rows part after part, so that no length needs memory. Not ``labelled``: what they are to give need
    not be there, of clicks.
    """
    most = options.rows
    if most is not None:
        most = checks.whole("--rows", most)
    if isinstance(found.model, Graph) and found.model.readers and options.data not in _GENERATED:
        _refuse(options, "a file of clicks", "format", "zero_based", "seed")
        known = found.columns.schema
        return clicks.parts(options.data, _words(options), most, known, labelled=labelled)
    if _names_rows(found.model, options):
        return _sparse(found.model, options, most)
    data = _read(found, options, most)
    return iter([data if most is None else data.head(most)])


def _read(
    found: Loaded[Any], options: argparse.Namespace, most: int | None
) -> Dataset | ClickDataset:
    model = found.model
    if isinstance(model, Graph) and model.readers:
        _refuse(options, "generated clicks", *_OF_FILES, "format", "zero_based")
        if any(table.rows is None for table in model.tables):
            raise ValueError(
                f"{options.model} has tables that grow, of a file's ids; give --data FILE"
            )
        rows = 20_000 if most is None else most
        seed = 0 if options.seed is None else options.seed
        return clicks.generate(model.name, 1, seed, test=rows).test
    if options.data == clicks.WORD:
        raise ValueError(f"--data {clicks.WORD} goes with models of clicks, not with {model.name}")
    if options.data is None and isinstance(model, FactorisationMachine):
        raise ValueError(f"{options.model} is of sparse rows; give --data FILE")
    _refuse(options, "a folder of images, or none", *_OF_FILES, "format", "zero_based", "seed")
    return data_of(options.data).test


def _names_rows(model: Model | FactorisationMachine | Graph, options: argparse.Namespace) -> bool:
    """Whether ``--data`` names files of sparse rows."""
    if options.data in _GENERATED or (isinstance(model, Graph) and model.readers):
        return False
    return isinstance(model, FactorisationMachine) or not sparse.named(options.data).is_dir()


def _sparse(
    model: Model | FactorisationMachine | Graph, options: argparse.Namespace, most: int | None
) -> Iterator[SparseDataset]:
    path, words = sparse.named(options.data), _words(options)
    fmt = sparse.format_of(path, options.format, options.schema)
    wrong = [] if fmt == "libsvm" else ["zero_based"]
    _refuse(options, f"a file of the format {fmt}", "seed", *wrong)
    if fmt in ("criteo", "csv"):
        return sparse.hashed_parts(path, words, model.features, most)
    _ = model.sparse
    fields = model.fields if isinstance(model, FactorisationMachine) else None
    rows = sparse.stream_of(str(path), fmt, words, model.features, model.classes, fields)
    return files.parts_of(rows, most)


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


def _outputs(
    found: Loaded[Any], data: Dataset | SparseDataset | ClickDataset
) -> NDArray[np.float32]:
    model: Any = found.model
    if isinstance(model, Graph) and model.readers:
        return model.predict(found.parameters, data, found.tables, found.statistics)  # type: ignore[arg-type]
    x = data.x if isinstance(data, Dataset) else data
    if isinstance(model, Graph):
        return model.predict(found.parameters, x, statistics=found.statistics)  # type: ignore[arg-type]
    return model.predict(found.parameters, x)  # type: ignore[no-any-return]


def _predict(options: argparse.Namespace) -> int:
    checks.writable(options.output)
    read = files.read_for([options.model, options.data])
    if options.output is not None and options.output.resolve() in read:
        raise ValueError(f"--output {options.output} is read here; name another")
    kept = options.undo_downsampling
    if kept is not None and not 0 < kept <= 1:
        raise ValueError(f"--undo-downsampling must be above 0 and at most 1, got {kept:g}")
    found = load_whole(options.model)
    if kept is not None and not _clicked(found.model):
        raise ValueError("--undo-downsampling goes with models of one probability")
    says = (_outputs(found, part) for part in _parts(found, options, labelled=False))
    if kept is not None:
        says = (metrics.undo_downsampling(p[:, 0], kept)[:, None].astype(np.float32) for p in says)
    if options.output is None:
        sys.stdout.writelines(_lines(says))
        sys.stdout.flush()
    else:
        _write(options.output, says)
    return 0


def _clicked(model: Any) -> bool:
    """Whether it gives one probability."""
    return bool(model.loss == "log_loss" and model.outputs == 1)


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
    found = load_whole(options.model)
    values = _judged(found, _parts(found, options))
    if options.json:
        told = {key.replace(" ", "_"): value for key, value in values.items()}
        print(json.dumps({k: v if math.isfinite(v) else None for k, v in told.items()}))
    else:
        print(
            pairs([(k, f"{v:,}" if k == "examples" else number(v, 4)) for k, v in values.items()])
        )
    return 0 if math.isfinite(values["loss"]) else 1


def _judged(
    found: Loaded[Any], parts: Iterator[Dataset | SparseDataset | ClickDataset]
) -> dict[str, float]:
    """What the model's predictions of all parts come to."""
    model: Any = found.model
    given: dict[str, Any] = {"tables": found.tables} if found.tables else {}
    if isinstance(model, Graph):
        given["statistics"] = found.statistics
    judged = []
    scored = _Scored()
    for data in parts:
        loss, accuracy, *_ = model.evaluate(found.parameters, data, **given)
        judged.append((len(data), loss, accuracy))
        if _clicked(model) and math.isfinite(loss):
            scored.add(_logits(found, data), data.y, data.weights)
    rows, losses, accuracies = np.array(judged, np.float64).T
    values = {"examples": int(rows.sum()), "loss": float(rows @ losses / rows.sum())}
    if data.classes:
        values["accuracy"] = float(rows @ accuracies / rows.sum())
    if scored.rows and math.isfinite(values["loss"]):
        values |= scored.values()
    if isinstance(data, ClickDataset) and data.hidden is not None:  # generated: in one part
        values["hidden model's AUC"] = data.hidden_auc
    return values


def _logits(found: Loaded[Any], data: Any) -> NDArray[np.float32]:
    """They tell rows apart whose probabilities are all 1 in float32."""
    model: Any = found.model
    if isinstance(model, Graph):
        given = found.tables or None
        return model.logits(found.parameters, data, given, statistics=found.statistics)
    values = replace(model, loss="squared_error")  # which predicts the outputs themselves
    x, of = (data.x, values.native) if isinstance(data, Dataset) else (data.rows, values.sparse)
    return of.predict(found.parameters, x)[:, 0]  # type: ignore[no-any-return]


class _Scored:
    """Metrics of logits, part after part; the AUC from all pairs, of very many rows from counts."""

    def __init__(self) -> None:
        self.rows = 0
        self._counted = metrics.ClickMetrics()
        self._kept: list[tuple[NDArray[np.float32], Any, Any]] = []

    def add(self, logits: NDArray[np.float32], labels: Any, weights: Any) -> None:
        self.rows += len(logits)
        self._counted.add(logits, labels, weights)
        if self.rows > _RANKED:
            self._kept.clear()
        else:
            self._kept.append((logits, labels, weights))

    def values(self) -> dict[str, float]:
        told = self._counted.values()
        found = {"auc": told.auc, "auc error": told.auc_error}
        if self._kept:
            logits, labels = (np.concatenate([part[i] for part in self._kept]) for i in (0, 1))
            given = [part[2] for part in self._kept]
            weights = None if given[0] is None else np.concatenate(given)
            found = {"auc": metrics.auc(logits, labels, weights)}
        return {
            **found,
            "normalised entropy": told.normalised_entropy,
            "calibration": told.calibration,
        }
