"""What a training run returns."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from leashed.base import checks
from leashed.datasets.columns import Columns
from leashed.metrics import Scored
from leashed.models._columns import keep
from leashed.models.tables import Table
from leashed.modes import ModeCounts
from leashed.training.best import Best
from leashed.training.histogram import Histogram, TimeDistribution

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from leashed.training.trained import Trained

__all__ = ["OUTCOMES", "REASONS", "Histogram", "TimeDistribution", "TrainResult"]

OUTCOMES = ("converged", "unfinished", "diverged", "crashed", "stopped")
REASONS = (
    "loss_fraction",
    "loss",
    "updates",
    "epochs",
    "seconds",
    "divergence",
    "patience",
    "not_finite",
    "interrupted",
)

_FORMAT = "leashed.TrainResult"
_VERSION = 1
OF_HEADS = ("auc", "normalised_entropy", "validation_auc", "validation_normalised_entropy")
QUALITY = (*OF_HEADS, "validation_loss")
_FLOAT_SERIES = ("seconds", "loss", "accuracy", "validation_accuracy", "eps", *QUALITY)
_INT_SERIES = ("updates", "memory_bytes", "live_vectors")
_HISTOGRAMS = ("staleness", "staleness_compute", "staleness_schedule", "tries")
_TIMES = ("gradient_seconds", "update_seconds", "attempt_seconds")
# Not in files written before them.
_LATER = (
    "excluded",
    "attempt_seconds",
    "worker_updates",
    "rows",
    "row_staleness",
    "mode",
    "statistics",
    "metrics",
    "observed",
    "best",
    "heads",
    *QUALITY,
)
_NOT_WRITTEN = ("tables", "architecture")
_INT_TOTALS = (
    "examples",
    "total_updates",
    "gradients",
    "dropped",
    "excluded",
    "peak_vectors",
    "peak_memory_bytes",
)


def gamma(dropped: int, published: int) -> float:
    """The relative increase of the departure rate by the persistence bound, as measured.

    Eq. 6 multiplies the departures from the loop by 1 + gamma; what leaves it without having
    published is a dropped gradient, so gamma is dropped over published.

    Args:
        dropped: gradients given up after too many failed attempts.
        published: gradients published.

    Returns:
        gamma; infinity if gradients were dropped and none was published, 0 if neither happened.

    Raises:
        TypeError, ValueError: a count is not whole, or is negative.
    """
    dropped, published = (
        checks.whole("dropped", dropped, 0),
        checks.whole("published", published, 0),
    )
    if published:
        return dropped / published
    return math.inf if dropped else 0.0


def refused_share(rows: dict[str, int]) -> float:
    """Of the distinct ids of batches those that were refused a row, by ``TrainResult.rows``."""
    asked = sum(n for name, n in rows.items() if name not in ("staleness", "stalest"))
    return rows.get("refused", 0) / asked if asked else 0.0


@dataclass(frozen=True, eq=False, repr=False)
class TrainResult:
    """The outcome of one call of :func:`leashed.train`.

    The arrays of length E hold one entry per evaluation by the monitor: the first is at t = 0,
    before training, the last is the final state (after Ctrl-C: the last that was evaluated, where
    evaluating the final one would take long).

    Attributes:
        outcome: ``converged`` (a loss rule was met), ``unfinished`` (a loss rule was given, and
            the run ended without it, but below 0.95 of the initial loss), ``diverged`` (it ended
            above that, or rose past ``until.divergence``), ``crashed`` (NaN or Inf) or ``stopped``
            (no loss rule given, or interrupted).
        reason: which rule ended the run: ``loss_fraction``, ``loss``, ``updates``, ``epochs``,
            ``seconds``, ``divergence``, ``patience``, ``not_finite`` or ``interrupted``.
        parameters: float32 [d]; the final parameters, with ``until.patience`` those of ``best``.
            Empty if read from JSON without them.
        seconds: float64 [E]; time since training began.
        updates: int64 [E]; updates published by then.
        loss: float64 [E]; mean loss over the training set, or its rows that ``Observe.rows`` has.
            Of a stream, whose rows are gone, the mean over the rows of its latest pass so far, each
            as its batch was found just before it was trained on, so that the last is of a whole
            pass (of one that was resumed in its middle, of the rows from there on); in a second
            pass the one before stands for the rows that are still to come. NaN before the first.
        accuracy: float64 [E]; share of the training set classified correctly.
        validation_accuracy: float64 [E]; the same of the validation set, NaN without one.
        eps: float64 [E]; examples per second since the previous evaluation.
        memory_bytes: int64 [E]; resident memory of the process, without the monitor's copies.
        live_vectors: int64 [E]; parameter vectors and gradients in use.
        staleness_over_time: int64 [E, bins]; updates of staleness 0, 1, … since the previous
            evaluation; bin 16,384 counts everything from it on.
        elapsed: seconds of training.
        examples: examples that went through a gradient.
        total_updates: updates published.
        gradients: gradients computed.
        dropped: gradients given up because of the persistence bound.
        excluded: gradients that the staleness policy left out.
        staleness: staleness tau of every gradient published, counted from 0 (``Synchronous``
            publishes one of each thread in an update).
        staleness_compute: its part tau_c, published while the gradient was computed.
        staleness_schedule: its part tau_s, published while the update waited in the retry loop.
        tries: failed attempts to publish, per gradient.
        gradient_seconds: T_c, the time to compute a gradient.
        update_seconds: T_u, the time to update a parameter vector, with all attempts.
        attempt_seconds: T_u of one attempt: of each update's, the mean.
        worker_updates: int64 [m]; updates published by each thread.
        breakdown: seconds of all threads together by what they did: ``gradient``, ``update``,
            ``sampling`` (choosing the batch), ``read`` (getting at the parameters), ``waiting``
            (for locks and barriers) and ``rest``; where the model reads tables, ``rows`` (updating
            theirs).
        peak_vectors: most parameter vectors and gradients ever allocated at once.
        peak_memory_bytes: most resident memory of the process.
        config: what was asked for and on what machine, as JSON's own types; where the model reads
            tables, ``config["tables"]`` has what each has counted by then. ``config["columns"]`` has
            what is known of the data's columns, which later data are compared with.
        auc: float64 [E]; area under the ROC curve of the training set, as near as
            ``metrics.ClickMetrics`` tells, NaN unless the model gives one logit for two labels.
        normalised_entropy: float64 [E]; the mean log loss of the training set over the entropy of
            its share of label 1, NaN likewise.
        validation_auc: float64 [E]; of the validation set, NaN without one.
        validation_normalised_entropy: float64 [E]; likewise.
        validation_loss: float64 [E]; mean loss over the validation set, NaN without one.
        heads: of several labels, of which the four above are means over those that have one, by name the
            same four of each, float64 [E]; else empty.
        rows: what became of the gradients of the rows of all tables in this run: of each distinct id
            of a batch and table one of ``applied``, ``folded``, ``late``, ``excluded``,
            ``unadmitted``, ``deferred`` and ``refused``, as ``Table.statistics`` has them;
            ``staleness``, the sum over what was applied, and ``stalest``, the largest. Empty where
            the model reads no tables.
        row_staleness: int64 [bins]; updates of rows by their staleness: of 0, 1, 2 to 3, 4 to 7, ….
        mode: what a mode of ``leashed.modes`` decided; None under a discipline.
        statistics: float32 [s]; what a model with ``BatchNorm`` or ``DataNorm`` normalises by in
            evaluation and prediction: the mean of the workers' averages, weighted by batches, in
            the order of ``model.native.statistics``. Empty of other models, and where there was no
            batch. ``config["statistics"]`` has how many ``batches`` it is of, and ``near_zero``,
            how often a mean counted as ±10⁻³.
        metrics: what ``Observe.metrics`` counted of rows before they were trained on; else None.
        observed: what those found that ``Observe.counting`` names, by name.
        best: with ``until.patience`` the evaluation of which ``parameters``, ``tables`` and
            ``statistics`` are: its ``metric``, ``value``, ``passes``, ``updates`` and ``seconds``. The
            series go on to the end of the run. None: those are of the end.
        tables: the tables that the model read, by name, as they are now; not written to JSON.
        architecture: the model without what it learned, which ``model`` has too; None where the result
            was read from JSON.

    Raises:
        ValueError: ``outcome`` or ``reason`` is unknown, or a series has another length than
            ``seconds``.
    """

    outcome: str
    reason: str
    parameters: NDArray[np.float32]
    seconds: NDArray[np.float64]
    updates: NDArray[np.int64]
    loss: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    validation_accuracy: NDArray[np.float64]
    eps: NDArray[np.float64]
    memory_bytes: NDArray[np.int64]
    live_vectors: NDArray[np.int64]
    staleness_over_time: NDArray[np.int64]
    elapsed: float
    examples: int
    total_updates: int
    gradients: int
    dropped: int
    staleness: Histogram
    staleness_compute: Histogram
    staleness_schedule: Histogram
    tries: Histogram
    gradient_seconds: TimeDistribution
    update_seconds: TimeDistribution
    breakdown: dict[str, float]
    peak_vectors: int
    peak_memory_bytes: int
    config: dict[str, Any] = field(default_factory=dict)
    excluded: int = 0
    attempt_seconds: TimeDistribution = field(default_factory=TimeDistribution.empty)
    worker_updates: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    auc: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    normalised_entropy: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    validation_auc: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    validation_normalised_entropy: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    validation_loss: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    rows: dict[str, int] = field(default_factory=dict)
    row_staleness: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    mode: ModeCounts | None = None
    statistics: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    metrics: Scored | None = None
    observed: dict[str, float] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    architecture: Any = None
    best: Best | None = None
    heads: dict[str, dict[str, NDArray[np.float64]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._keep_columns()
        for name in QUALITY:
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(len(self.seconds), math.nan))
        if self.outcome not in OUTCOMES:
            raise ValueError(f"outcome must be one of {', '.join(OUTCOMES)}, not {self.outcome!r}")
        if self.reason not in REASONS:
            raise ValueError(f"reason must be one of {', '.join(REASONS)}, not {self.reason!r}")
        if not len(self.seconds):
            raise ValueError("seconds must hold at least the evaluation before training")
        for name in (*_FLOAT_SERIES, *_INT_SERIES, "staleness_over_time"):
            if len(getattr(self, name)) != len(self.seconds):
                raise ValueError(
                    f"{name} has {len(getattr(self, name))} evaluations, "
                    f"seconds has {len(self.seconds)}"
                )

    def __setstate__(self, state: dict[str, Any]) -> None:
        # (What was pickled before has not all.)
        vars(self).update(
            {"observed": {}, "architecture": None, "best": None, "heads": {}, **state}
        )
        self._keep_columns()

    def __getstate__(self) -> dict[str, Any]:
        from leashed.models.external import External  # noqa: PLC0415 (seldom asked for)

        # What holds a function of the user's is left out, as it is of files.
        external = isinstance(self.architecture, External)
        return {**vars(self), "architecture": None if external else self.architecture}

    def _keep_columns(self) -> None:
        columns = Columns.from_json(self.config.get("columns", {}))
        object.__setattr__(self, "parameters", keep(self.parameters, columns))

    @property
    def model(self) -> Trained:
        """What was trained, as one object: it predicts, is judged, saved, exported and trained further.

        Raises:
            ValueError: the result was read from JSON, or copied by pickle from a model whose gradient is
                one's own, and has no model.
        """
        from leashed.training.trained import Trained  # noqa: PLC0415 (seldom asked for)

        if self.architecture is None:
            raise ValueError(
                "the result has no model, since it was read from JSON or is a copy of one with a gradient "
                "of one's own; leashed.load(path) has what result.model.save(path) wrote"
            )
        return Trained.of(self.architecture, self, self.config)

    @property
    def initial_loss(self) -> float:
        """The loss before training."""
        return float(self.loss[0])

    @property
    def final_loss(self) -> float:
        """That of ``parameters``: the last of ``loss``, or that of ``best``; of a stream the mean
        over its rows, each before it was trained on.
        """
        return float(self.loss[self.at])

    @property
    def at(self) -> int:
        """Which of the evaluations is that of ``parameters``: the last, or that of ``best``."""
        if self.best is None:
            return len(self.loss) - 1
        return int(np.searchsorted(self.seconds, self.best.seconds, side="right")) - 1

    def _each(self, kind: str) -> str:
        name = "auc" if kind == "AUC" else "validation_auc"
        told = [f"{head} {one[name][self.at]:.4f}" for head, one in self.heads.items()]
        return f" ({', '.join(told)})" if told else ""

    @property
    def mean_eps(self) -> float:
        """Examples per second over the whole run; NaN if no time passed."""
        return self.examples / self.elapsed if self.elapsed > 0.0 else math.nan

    @property
    def gamma(self) -> float:
        """Gradients dropped over gradients published: gamma of eqs. 6 and 7."""
        return gamma(self.dropped, self.total_updates)

    def seconds_to(self, fraction: float) -> float:
        """When the loss was first at or below a fraction of the initial loss: epsilon-convergence.

        Args:
            fraction: epsilon, such as 0.5 for half the initial loss.

        Returns:
            The time of the first such evaluation in seconds; NaN if there was none.
        """
        k = self._reached(fraction)
        return math.nan if k is None else float(self.seconds[k])

    def updates_to(self, fraction: float) -> float:
        """Like :meth:`seconds_to`, in updates: the statistical efficiency."""
        k = self._reached(fraction)
        return math.nan if k is None else float(self.updates[k])

    def _reached(self, fraction: float) -> int | None:
        if not (math.isfinite(fraction) and fraction > 0.0):
            raise ValueError(f"fraction must be positive and finite, not {fraction}")
        at = np.flatnonzero(self.loss <= fraction * self.initial_loss)
        return int(at[0]) if at.size else None

    def to_json(self, parameters: bool = False) -> str:
        """The result as one line of JSON.

        NaN is written as null and infinity as the string "inf" or "-inf", so that the text is
        JSON for every reader.

        Args:
            parameters: include the parameters, as the base64 of their little-endian bytes.

        Raises:
            ValueError: with ``parameters``, of a model that reads tables, whose rows no JSON holds.
        """
        if parameters and self.tables:
            raise ValueError(
                "the model reads tables, whose rows no JSON holds; leashed.save(folder, model, "
                "result.parameters, result.tables, result.statistics) writes the model, and "
                "result.to_json() what was measured"
            )
        document: dict[str, Any] = {"format": _FORMAT, "version": _VERSION}
        for item in fields(self):
            if item.name in _NOT_WRITTEN:
                continue
            value = getattr(self, item.name)
            if item.name == "parameters":
                document[item.name] = _encode_parameters(value) if parameters else None
            elif item.name == "staleness_over_time":
                document[item.name] = _encode_rows(value)
            elif isinstance(value, Histogram):
                document[item.name] = value.counts.tolist()
            elif isinstance(value, TimeDistribution):
                document[item.name] = value.to_dict()
            elif isinstance(value, np.ndarray):
                document[item.name] = _encode(value.tolist())
            elif isinstance(value, ModeCounts):
                document[item.name] = value.to_dict()
            elif isinstance(value, Best):
                document[item.name] = _encode(vars(value))
            elif item.name == "heads":
                document[item.name] = {
                    head: {name: _encode(series.tolist()) for name, series in told.items()}
                    for head, told in value.items()
                }
            elif isinstance(value, Scored):
                document[item.name] = _encode(value.windows())
            else:
                document[item.name] = _encode(value)
        return json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> TrainResult:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError: the text is not JSON, or not a result, or lacks a field; the message says
                which.
        """
        try:
            document = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"not JSON: {error}") from None
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            raise ValueError(f"not a training result: no format {_FORMAT!r}")
        if document.get("version") != _VERSION:
            raise ValueError(f"version {document.get('version')!r} of the format is unknown")
        values: dict[str, Any] = {}
        for item in fields(cls):
            if item.name in _NOT_WRITTEN or (item.name in _LATER and item.name not in document):
                continue
            if item.name not in document:
                raise ValueError(f"a training result without {item.name!r}")
            try:
                values[item.name] = _decode_field(item.name, document[item.name])
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                raise ValueError(f"{item.name!r} of a training result is wrong: {error}") from None
        return cls(**values)

    def save(self, path: str | Path) -> None:
        """Write the result, parameters included, as JSON to ``path``.

        Raises:
            ValueError: the model reads tables; the message says what writes them.
            OSError: the file cannot be written.
        """
        Path(path).write_text(self.to_json(parameters=True) + "\n", encoding="utf-8")

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw loss, accuracy, staleness and examples per second; of clicks also AUC and normalised
        entropy, those of progressive validation, and where the model reads tables the staleness of
        their rows.

        Args:
            path: where to save the picture too; its ending chooses the format.

        Raises:
            ImportError: matplotlib is not installed (``pip install 'leashed[plot]'``).
        """
        from leashed.training.plots import run  # noqa: PLC0415 (matplotlib is optional)

        series = run.Series(
            self.seconds,
            self.loss,
            run.Pair(self.accuracy, self.validation_accuracy),
            run.Pair(self.auc, self.validation_auc),
            run.Pair(self.normalised_entropy, self.validation_normalised_entropy),
            self.eps,
            self.staleness,
            self.row_staleness,
            reachable=float(self.config.get("hidden_auc", math.nan)),
            scored=self.metrics,
        )
        title = f"{self.outcome} ({self.reason}) after {self.elapsed:.3g} s"
        figure = run.draw_run(series, title)
        if path is not None:
            figure.savefig(path)
        return figure

    def __repr__(self) -> str:
        # Of a stream there is none before the first batch.
        begin = "" if math.isnan(self.initial_loss) else f"{self.initial_loss:.4g} to "
        parts = [
            f"loss {begin}{self.final_loss:.4g} in {self.elapsed:.3g} s",
            f"{self.total_updates} updates",
            f"{self.mean_eps:,.0f} examples/s",
            f"mean staleness {self.staleness.mean():.3g}",
        ]
        for kind, auc in (("AUC", self.auc), ("validation AUC", self.validation_auc)):
            if not math.isnan(auc[self.at]):
                parts.append(f"{kind} {auc[self.at]:.4f}{self._each(kind)}")
        if self.best is not None:
            parts.append(f"best {self.best}")
        if self.metrics is not None and self.metrics.total:
            parts.append(f"progressive AUC {self.metrics.total[-1].auc:.4f}")
        if self.rows:
            parts.append(f"{self.rows['applied']:,} updates of rows")
        if share := refused_share(self.rows):
            parts.append(f"{share:.2%} of the ids of batches refused a row")
        return f"TrainResult({self.outcome} by {self.reason}: {', '.join(parts)})"


def _encode(value: Any) -> Any:
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        return value
    if isinstance(value, dict):
        return {str(key): _encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode(item) for item in value]
    return value


def _decode_float(value: Any) -> float:
    return math.nan if value is None else float(value)


def _encode_parameters(parameters: NDArray[np.float32]) -> dict[str, Any]:
    from base64 import b64encode  # noqa: PLC0415 (seldom asked for)

    raw = np.ascontiguousarray(parameters, dtype="<f4").tobytes()
    return {"dtype": "<f4", "base64": b64encode(raw).decode("ascii")}


def _decode_parameters(value: Any) -> NDArray[np.float32]:
    if value is None:
        return np.empty(0, dtype=np.float32)
    from base64 import b64decode  # noqa: PLC0415 (seldom asked for)

    raw = b64decode(value["base64"], validate=True)
    return np.frombuffer(raw, dtype="<f4").astype(np.float32)


def _encode_rows(rows: NDArray[np.int64]) -> dict[str, Any]:
    """Rows of counts without their trailing zeros, which are most of them."""
    return {
        "bins": rows.shape[1],
        "rows": [np.trim_zeros(row, "b").tolist() for row in rows],
    }


def _decode_rows(value: Any) -> NDArray[np.int64]:
    rows = np.zeros((len(value["rows"]), value["bins"]), dtype=np.int64)
    for row, counts in zip(rows, value["rows"], strict=True):
        row[: len(counts)] = counts
    return rows


def _decode_scored(windows: list[dict[str, Any]]) -> Scored:
    def numbers(one: dict[str, Any]) -> dict[str, Any]:
        return {
            key: {head: numbers(told) for head, told in item.items()}
            if isinstance(item, dict)
            else item
            if isinstance(item, int)
            else _decode_float(item)
            for key, item in one.items()
        }

    return Scored.of(
        [
            {**one, "window": numbers(one["window"]), "total": numbers(one["total"])}
            for one in windows
        ]
    )


def _decode_field(name: str, value: Any) -> Any:
    if name == "parameters":
        return _decode_parameters(value)
    if name == "staleness_over_time":
        return _decode_rows(value)
    if name == "heads":
        return {
            head: {key: _decode_field(key, series) for key, series in told.items()}
            for head, told in value.items()
        }
    if name in _FLOAT_SERIES:
        return np.array([_decode_float(item) for item in value], dtype=np.float64)
    if name in _INT_SERIES or name in {"worker_updates", "row_staleness"}:
        return np.array(value, dtype=np.int64)
    if name == "statistics":
        return np.array([_decode_float(item) for item in value], dtype=np.float32)
    if name in _HISTOGRAMS:
        return Histogram(value)
    if name in _TIMES:
        return TimeDistribution(**value)
    if name in _INT_TOTALS:
        return int(value)
    if name == "elapsed":
        return _decode_float(value)
    if name in {"breakdown", "observed"}:
        return {str(key): _decode_float(item) for key, item in value.items()}
    if name == "rows":
        return {str(key): int(item) for key, item in value.items()}
    if name == "mode":
        return None if value is None else ModeCounts.of(value)
    if name == "best":
        return None if value is None else Best(**{**value, "value": _decode_float(value["value"])})
    if name == "metrics":
        return None if value is None else _decode_scored(value)
    if name == "config":
        Columns.from_json(value.get("columns", {}))  # for its errors
        return dict(value)
    return value
