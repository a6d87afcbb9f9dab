"""What was trained, as one object: it predicts, is judged, saved, exported and trained further.

result = lsh.train(lsh.models.dlrm(), clicks)
result.model.save("clicks")

model = lsh.load("clicks")
model.predict(frame), model.evaluate("tomorrow.tsv.gz"), model.export("clicks.onnx")
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from leashed import _core, metrics, retrieval
from leashed.base.table import number, pairs
from leashed.datasets import ClickDataset, Dataset
from leashed.files import checkpoint
from leashed.files.checkpoint import AnyModel, Loaded, tables_of
from leashed.models._columns import kept
from leashed.models._running import Running
from leashed.models.external import External
from leashed.models.graphs import Graph
from leashed.models.tables import Table
from leashed.stream.batches import is_table
from leashed.training.options import Init

__all__ = ["Evaluation", "Trained", "load"]

_RANKED = 1 << 22  # rows at most whose AUC is that of all pairs, which are kept for it


@dataclass(frozen=True)
class Evaluation:
    """How good predictions are.

    Attributes:
        examples: that were judged.
        loss: mean, by weight; NaN where a prediction was no number.
        accuracy: share that is classified correctly, without weights; None of numbers.
        auc, normalised_entropy, calibration: as of ``leashed.metrics``, of models of one output with
            the loss ``log_loss``; else None. Of several labels the means over those that have one.
        mse, rmse, mae, r2: as of ``leashed.metrics``, of models of numbers, of several the
            means over them; else None.
        auc_error: how far ``auc`` may be off, where there are more than 2²² rows; else None.
        hidden_auc: of the probabilities from which generated labels were drawn; else None.
        heads: of several labels, of which ``loss`` is the sum, each one's, by its name; else empty. Its
            ``examples`` are those of which it is known.
    """

    examples: int
    loss: float
    accuracy: float | None = None
    auc: float | None = None
    auc_error: float | None = None
    normalised_entropy: float | None = None
    calibration: float | None = None
    hidden_auc: float | None = None
    mse: float | None = None
    rmse: float | None = None
    mae: float | None = None
    r2: float | None = None
    heads: dict[str, Evaluation] = field(default_factory=dict)

    def to_json(self) -> dict[str, float | None]:
        """What there is, as JSON's own types: NaN and infinities are None. Of several labels also each one's,
        as ``auc_NAME``.
        """
        told = {n: v for n, v in vars(self).items() if n != "heads" and v is not None}
        found = {name: v if math.isfinite(v) else None for name, v in told.items()}
        for head, one in self.heads.items():
            found |= {f"{name}_{head}": value for name, value in one.to_json().items()}
        return found

    def __str__(self) -> str:
        words = {
            "auc": "AUC",
            "auc_error": "± of it",
            "hidden_auc": "hidden model's AUC",
            "mse": "MSE",
            "rmse": "RMSE",
            "mae": "MAE",
            "r2": "R²",
        }
        rows = [
            (
                words.get(name, name.replace("_", " ")),
                f"{v:,}" if name == "examples" else number(v, 4),
            )
            for name, v in vars(self).items()
            if name != "heads" and v is not None
        ]
        for head, one in self.heads.items():
            rows += [
                (
                    f"{words.get(name, name.replace('_', ' '))} of {head}",
                    f"{v:,}" if name == "examples" else number(v, 4),
                )
                for name, v in vars(one).items()
                if name != "heads" and v is not None
            ]
        return pairs(rows)


class _Result(Protocol):
    """Of a training, or of days."""

    @property
    def parameters(self) -> NDArray[np.float32]: ...
    @property
    def tables(self) -> dict[str, Table]: ...
    @property
    def statistics(self) -> NDArray[np.float32]: ...


class Trained(Loaded[Any]):
    """What was trained, whole: ``result.model``, and what ``leashed.load(path)`` gives. It unpacks into
    its architecture and parameters: ``model, theta = leashed.load(path)``.

    **Data** may be, wherever they are given: an array [n, features]; a data frame of pandas, polars
    or pyarrow, whatever has ``__arrow_c_stream__``, or a dict of columns; a ``Dataset``,
    ``SparseDataset`` or ``ClickDataset``; a stream; a path, or a pattern, of files. Columns are known
    by the names that they had in training, whatever their order, and others are left out; one that
    is missing, or of another kind, is named.

    Attributes:
        model: the architecture, of :mod:`leashed.models`.
        parameters: float32 [d].
        tables: by name, with their rows; empty where the model reads none.
        statistics: float32 [s], what a model that normalises normalises by; else None.
        columns: what is known of the columns that it was trained on: names, kinds, schema.
        settings: what the training was asked for, as ``TrainResult.config``; empty where nobody knows.
        states: float32 [S, d], what the rule keeps beside the parameters, in a checkpoint; else [0, d].
        run: of a checkpoint the settings and counters, such as ``updates``; else empty.
        exact: whether nobody changed the tables while they were written.
    """

    settings: dict[str, Any]

    @classmethod
    def of(cls, model: Any, result: _Result, settings: dict[str, Any] | None = None) -> Trained:
        """What a training of that model with these settings came to."""
        made = cls((model, result.parameters))
        made.tables = result.tables
        made.statistics = result.statistics if result.statistics.size else None
        made.columns = kept(result.parameters)
        made.states = np.empty((0, len(result.parameters)), np.float32)
        made.run, made.exact, made.settings = {}, True, settings or {}
        return made

    @classmethod
    def loaded(cls, found: Loaded[Any]) -> Trained:
        """What ``leashed.files.checkpoint`` has read."""
        made = cls(found)
        vars(made).update(vars(found), settings=found.run or found.settings)
        return made

    def predict(self, data: Any) -> NDArray[np.float32]:
        """What the model says of each example: [n] where that is one number, such as the probability
        of label 1, else [n, outputs], of several labels in the order of ``columns.heads``. Of data without a
        row it is empty: [0] or [0, outputs].

        Args:
            data: as above; labels need not be there.

        Raises:
            OSError: a file cannot be read.
            TypeError, ValueError: they do not fit the model; the message names the column.
        """
        found = [self.predicted(part) for part in self._unlabelled(data)]
        whole = np.concatenate(found) if found else np.empty((0, self._outputs), np.float32)
        return whole[:, 0] if whole.shape[1] == 1 else whole

    def evaluate(self, data: Any) -> Evaluation:
        """How good the model is on examples. Its ``auc`` is that of all pairs; ``model.model.evaluate``, which
        trainings ask while they run, has it from counts in bins (``models.graphs.Evaluated``).

        Args:
            data: as above, with labels or targets; arrays and frames as a pair (x, y).

        Raises:
            OSError, TypeError, ValueError: as ``predict``; or there is no example.
        """
        return judged(self, self.parts(data))

    def top_items(self, data: Any, k: int = 10) -> NDArray[np.int64]:
        """The k best of all items for each example, the best first, int64 [n, k]: of a model whose
        output is ``SampledLogits``, such as ``models.youtube_dnn``; [0, k] of data without a row.

        Raises:
            TypeError, ValueError: the model is another one, or data do not fit it.
        """
        retrieval.items_of(self.model)  # for its errors
        found = [
            retrieval.retrieve(self.model, self.parameters, part, self.tables, k, self.statistics)
            for part in self._unlabelled(data)
        ]
        return np.concatenate(found) if found else np.empty((0, k), np.int64)

    def _unlabelled(self, data: Any) -> Iterator[Any]:
        """The parts of data whose labels need not be there; none where there is no row."""
        try:
            yield from self.parts(data, labels=False)
        except _core.NoRows:
            return

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of it, atomically: one file, or where the model reads tables one folder, which
        ``leashed.load`` reads again.

        Raises:
            OSError, ValueError: as ``leashed.save``.
        """
        tables = self.tables if tables_of(self.model) else None
        checkpoint.save(
            path, self.model, self.parameters, tables, self.statistics, settings=self.settings
        )

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write what programs without leashed read.

        Args:
            path: of an ONNX model where it ends in ``.onnx``, whose inputs are called as the columns are
                where these have names, and may have any number of ids where they had (docs/serving.md);
                of the rows of the tables as safetensors
                where it ends in ``.safetensors``; else of a folder of Arrow files with these.

        Raises:
            ImportError: a package is missing; the message says how to get it.
            OSError, TypeError, ValueError: as ``leashed.export``.
        """
        from leashed.files import export  # noqa: PLC0415 (seldom asked for)

        tables = self.tables or None
        if Path(path).suffix == ".onnx":
            bags = self.columns.read(getattr(self.model, "id_features", ())).bags
            export.onnx(
                path,
                self.model,
                self.parameters,
                tables,
                self.statistics,
                bags=bags,
                columns=self.columns,
            )
        elif tables is None:
            raise ValueError(
                f"path must end in .onnx for {self.model.name}, which has no tables, got {path}"
            )
        else:
            export.tables(path, tables)

    def train(self, data: Any, **choices: Any) -> Any:
        """Train on, from where it is: ``leashed.train(model, data, ...)`` with these parameters, rows and
        statistics, which tables are trained where they lie. The rule's state begins anew; ``resume=``
        goes on with a checkpoint's.

        Args:
            data: as of ``leashed.train``; columns are put in the order of before, and tables and files read
                as then, without ``label=`` or ``columns=``.
            **choices: of ``leashed.train``, but ``init``.

        Returns:
            A ``TrainResult``.

        Raises:
            TypeError, ValueError: as ``leashed.train``.
        """
        if "init" in choices:
            raise TypeError("init is what was trained so far; leave it out")
        # By its name, since what it returns has this.
        train = import_module("leashed.training.train").train
        model, known = self.model, self.columns.schema
        if isinstance(model, Graph):
            model = replace(model, made_by=None)  # its shape is what it is
        if known is not None and is_table(data) and "columns" not in choices:
            label = choices.pop("label", known.target)
            if (label if isinstance(label, str) else list(label)) != known.target:
                raise ValueError(
                    f"label was {known.target!r} and is {label!r}; give columns= to say otherwise"
                )
            choices["columns"] = known.columns
        init = Init(self.parameters, self.tables or None, self._running)
        return train(model, data, init=init, **choices)

    @property
    def _running(self) -> Running | None:
        """The statistics, to go on with; of how many batches, where nobody knows, of many."""
        told = {"batches": 1000, "near_zero": 0, **self.settings.get("statistics", {})}
        return None if self.statistics is None else Running(self.statistics, **told)

    def parts(self, data: Any, *, labels: bool = True) -> Iterator[Any]:
        """Examples as the model takes them, part after part, so that files of any length need no memory.

        Args:
            data: as above.
            labels: whether they have to be there.
        """
        from leashed.training.given_examples import parts_of  # noqa: PLC0415 (which knows all kinds)

        return parts_of(self, data, labels=labels)

    @property
    def _outputs(self) -> int:
        return cast("int", getattr(self.model, "outputs", 1))

    def predicted(self, data: Any) -> NDArray[np.float32]:
        """What the model says of one of ``parts``, [n, outputs]."""
        model, theta = self
        if isinstance(model, Graph):
            tables = self.tables if model.readers else None
            return model.predict(theta, data, tables, self.statistics)
        if isinstance(model, External):
            return model.predict(theta, data, self.tables)
        return cast("NDArray[np.float32]", model.predict(theta, data))

    def __repr__(self) -> str:
        tables = f", tables={', '.join(self.tables)}" if self.tables else ""
        heads = f", heads={', '.join(self.columns.heads)}" if self.columns.heads else ""
        updates = f", updates={self.updates:,}" if self.run else ""
        return (
            f"Trained(model={self.model.name}, d={len(self.parameters):,}{tables}{heads}{updates})"
        )


def load(
    path: str | os.PathLike[str],
    model: AnyModel | None = None,
    tables: Mapping[str, Table] | None = None,
) -> Trained:
    """Read what was trained, whole: what ``save`` or a checkpoint has written, with tables that have
    its rows.

        model = lsh.load("run")
        model.predict(frame)
        architecture, theta = lsh.load("model.safetensors")

    A run may go on writing checkpoints there: what is read is one of them. To go on with a run give
    its path to ``resume=``.

    Args:
        path: the file; of a model with tables the folder. Also the folder of ``continual``, of which
            this is the state that the last day has led to, and that of a cluster's run, of which it
            is what that came to.
        model: what the file must be of. An external model has to be given, since no file holds its
            gradient; others are in the file.
        tables: by name, all that the model reads: get the folder's rows and states in place of what
            is there. ``leashed.tables.of(model.tables, ...)`` makes new ones; nobody may use them
            meanwhile. Default: new ones with the rule that the folder tells, but without its schedule
            and staleness policy, to evaluate, predict and serve.

    Raises:
        FileNotFoundError: there is no such file; IsADirectoryError: it is a folder without a model.
        ValueError: the file is truncated, altered, of another kind, of a newer version, of another
            model or other tables than those given, or of an external model and none was given; the
            message has its description. No table has changed.
        OSError: of a folder in which a run writes checkpoints, the next one came each time before one
            was read; tables may have changed.
    """
    return Trained.loaded(checkpoint.load(path, model, tables))


def judged(trained: Trained, parts: Iterator[Any]) -> Evaluation:
    """What the model's predictions of all parts come to. ValueError where there is no example."""
    model: Any = trained.model
    given: dict[str, Any] = {"tables": trained.tables} if trained.tables else {}
    if isinstance(model, Graph):
        given["statistics"] = trained.statistics
    found, hidden = [], None
    scored: dict[str, _Scored] = {}
    errors: dict[int, metrics.NumberMetrics] = {}  # by target
    classes = 0
    for data in parts:
        if isinstance(model, External):
            loss, accuracy = model.evaluate(trained.parameters, data, *given.values()), 0.0
        else:
            loss, accuracy, *_ = model.evaluate(trained.parameters, data, **given)
            classes = data.classes
        heads = getattr(data, "heads", ())
        found.append((len(data), loss, accuracy))
        of_numbers = not isinstance(model, External) and not classes and not heads
        if of_numbers and math.isfinite(loss):
            said = trained.predicted(data).reshape(len(data), -1)
            for k, numbers in enumerate(data.y.reshape(len(data), -1).T):
                errors.setdefault(k, metrics.NumberMetrics()).add(said[:, k], numbers, data.weights)
        if (is_of_clicks(model) or heads) and math.isfinite(loss):
            logits = _logits(trained, data)
            of = (data.y,) if not heads else data.y.T
            for name, said, labels in zip(heads or ("",), logits.T, of, strict=True):
                scored.setdefault(name, _Scored()).add(said, labels, data.weights)
        if isinstance(data, ClickDataset) and data.hidden is not None:  # generated: in one part
            hidden = data.hidden_auc
    if not found:
        raise ValueError("data has no example; give one at least")
    rows, losses, accuracies = np.array(found, np.float64).T
    loss = float(rows @ losses / rows.sum())
    made = Evaluation(int(rows.sum()), loss, hidden_auc=hidden)
    if classes:
        made = replace(made, accuracy=float(rows @ accuracies / rows.sum()))
    if not math.isfinite(loss):
        return made
    if told := [of.values() for of in errors.values()]:
        names = ("mse", "rmse", "mae", "r2")
        means = {name: float(np.mean([getattr(each, name) for each in told])) for name in names}
        made = replace(made, **means)  # type: ignore[arg-type]
    if "" in scored:
        return replace(made, **scored[""].values())
    return replace(made, **_of_heads(scored)) if scored else made


def _of_heads(scored: dict[str, _Scored]) -> dict[str, Any]:
    """Of several labels: the means over those that have one, and each."""
    told = {name: one.values() for name, one in scored.items()}
    heads = {name: Evaluation(one.rows, one.log_loss, **told[name]) for name, one in scored.items()}
    means = {
        name: metrics.mean_of_known(values[name] for values in told.values())
        for name in ("auc", "normalised_entropy", "calibration")
    }
    return {**means, "heads": heads}


def is_of_clicks(model: Any) -> bool:
    """Whether it gives one probability."""
    external = isinstance(model, External)
    return not external and bool(model.loss == "log_loss" and model.outputs == 1)


def _logits(trained: Trained, data: Any) -> NDArray[np.float32]:
    """[n, 1], or of several labels [n, heads]. They tell rows apart whose probabilities are all 1 in float32."""
    model, theta = trained
    if isinstance(model, Graph):
        said = model.logits(theta, data, trained.tables or None, statistics=trained.statistics)
        return said.reshape(len(data), -1)
    # Which predicts the outputs themselves.
    values = replace(model, loss="hinge" if getattr(model, "heads", 0) else "squared_error")
    x, of = (data.x, values.native) if isinstance(data, Dataset) else (data.rows, values.sparse)
    return cast("NDArray[np.float32]", of.predict(theta, x))


class _Scored:
    """Metrics of logits, part after part; the AUC from all pairs, of very many rows from counts."""

    def __init__(self) -> None:
        self.rows = 0
        self._counted = metrics.ClickMetrics()
        self._kept: list[tuple[NDArray[np.float32], Any, Any]] = []

    def add(self, logits: NDArray[np.float32], labels: Any, weights: Any) -> None:
        if (unknown := np.isnan(labels)).any():
            logits, labels = logits[~unknown], labels[~unknown]
            weights = None if weights is None else weights[~unknown]
        self.rows += len(logits)
        self._counted.add(logits, labels, weights)
        if self.rows > _RANKED:
            self._kept.clear()
        else:
            self._kept.append((logits, labels, weights))

    @property
    def log_loss(self) -> float:
        return self._counted.values().log_loss

    def values(self) -> dict[str, Any]:
        told = self._counted.values()
        found = {"auc": told.auc, "auc_error": told.auc_error}
        if not self.rows:  # no label of this head is known
            del found["auc_error"]
        elif self._kept:
            logits, labels = (np.concatenate([part[i] for part in self._kept]) for i in (0, 1))
            given = [part[2] for part in self._kept]
            weights = None if given[0] is None else np.concatenate(given)
            found = {"auc": metrics.auc(logits, labels, weights)}
        return {
            **found,
            "normalised_entropy": told.normalised_entropy,
            "calibration": told.calibration,
        }
