"""``leashed predict`` and ``leashed evaluate``."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from leashed import _check, datasets, metrics
from leashed.cli import clicks, sparse
from leashed.datasets import ClickDataset, Dataset, SparseDataset
from leashed.models import FactorisationMachine, Graph, Model
from leashed.report.table import number, pairs
from leashed.restoring import Restored, restore
from leashed.spelled import data_of

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands

_LINES = 1 << 16  # of text that are made at once


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
        help=f"a file, a folder of MNIST's, whose test set is taken, or {clicks.WORD!r} from a seed "
        "(default: the test set that 'leashed train' has for such a model)",
    )
    parser.add_argument("--format", choices=sparse.FORMATS, help="of a file, as of 'leashed train'")
    parser.add_argument(
        "--zero-based", action="store_true", help="libsvm: columns are numbered from 0, not 1"
    )
    parser.add_argument("--seed", type=int, default=0, help="of generated data (default: 0)")
    parser.add_argument("--rows", type=int, help="the first so many (default: all)")


def _examples(
    found: Restored, options: argparse.Namespace
) -> Dataset | SparseDataset | ClickDataset:
    """The examples that ``--data`` names, as the model takes them."""
    model, most = found.model, options.rows
    if most is not None:
        most = _check.whole("--rows", most)
    data: Dataset | SparseDataset | ClickDataset
    if isinstance(model, Graph) and model.readers:
        if options.data in (None, clicks.WORD):
            rows = 20_000 if most is None else most
            data = clicks.generate(model.name, 1, options.seed, test=rows).test
        else:
            data = datasets.criteo(options.data, most)
    elif isinstance(model, FactorisationMachine) or _is_file(options.data):
        if options.data is None:
            raise ValueError(f"{options.model} is of sparse rows; give --data FILE")
        path = Path(options.data)
        fmt = sparse.format_of(path, options.format)
        fields = model.fields if isinstance(model, FactorisationMachine) else None
        data = sparse.read(
            path,
            fmt,
            argparse.Namespace(hash_bits=None, zero_based=options.zero_based),
            model.features,
            regression=isinstance(model, Model) and model.loss == "squared_error",
            fields=fields or (),
        )
    else:
        data = data_of(options.data).test
    return data if most is None else data.head(most)


def _is_file(path: str | None) -> bool:
    return path is not None and Path(path).is_file()


def _outputs(found: Restored, data: Dataset | SparseDataset | ClickDataset) -> NDArray[np.float32]:
    model: Any = found.model
    if isinstance(model, Graph) and model.readers:
        return model.predict(found.parameters, data, found.tables, found.statistics)  # type: ignore[arg-type]
    x = data.x if isinstance(data, Dataset) else data
    if isinstance(model, Graph):
        return model.predict(found.parameters, x, statistics=found.statistics)  # type: ignore[arg-type]
    return model.predict(found.parameters, x)  # type: ignore[no-any-return]


def _predict(options: argparse.Namespace) -> int:
    _check.writable(options.output)
    found = restore(options.model)
    says: NDArray[Any] = _outputs(found, _examples(found, options))
    if options.undo_downsampling is not None:
        if found.model.loss != "log_loss" or says.shape[1] != 1:
            raise ValueError("--undo-downsampling goes with models of one probability")
        says = metrics.undo_downsampling(says[:, 0], options.undo_downsampling)[:, None]
        says = says.astype(np.float32)
    if options.output is None:
        _write(sys.stdout, says)
        sys.stdout.flush()
    elif options.output.suffix == ".npy":
        np.save(options.output, says)
    else:
        with options.output.open("w", encoding="utf-8") as file:
            _write(file, says)
    return 0


def _write(file: IO[str], says: NDArray[np.float32]) -> None:
    """Digits that give each float32 back."""
    for begin in range(0, len(says), _LINES):
        lines = (",".join(map(str, row)) for row in says[begin : begin + _LINES])
        file.write("\n".join(lines) + "\n")


def _evaluate(options: argparse.Namespace) -> int:
    found = restore(options.model)
    data = _examples(found, options)
    model: Any = found.model
    given: dict[str, Any] = {"tables": found.tables} if found.tables else {}
    if isinstance(model, Graph):
        given["statistics"] = found.statistics
    loss, accuracy, *_ = model.evaluate(found.parameters, data, **given)
    values: dict[str, float | int] = {"examples": len(data), "loss": loss}
    if data.classes:
        values["accuracy"] = accuracy
    if model.loss == "log_loss" and model.outputs == 1 and math.isfinite(loss):
        p = _outputs(found, data)[:, 0]
        values["auc"] = metrics.auc(p, data.y, data.weights)
        values["normalised entropy"] = metrics.normalised_entropy(p, data.y, data.weights)
        values["calibration"] = metrics.calibration(p, data.y, data.weights)
    if isinstance(data, ClickDataset) and data.hidden is not None:
        values["hidden model's AUC"] = data.hidden_auc
    if options.json:
        told = {key.replace(" ", "_"): value for key, value in values.items()}
        print(json.dumps({k: None if math.isnan(v) else v for k, v in told.items()}))
    else:
        print(
            pairs([(k, f"{v:,}" if k == "examples" else number(v, 4)) for k, v in values.items()])
        )
    return 0 if math.isfinite(loss) else 1
