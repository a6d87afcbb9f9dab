"""What the core tells of a training, as users get it: while it goes on, and at its end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.datasets.moments import Moments
from leashed.metrics import Scored, Values
from leashed.models._running import Running
from leashed.models.tables import Table
from leashed.modes import ModeCounts
from leashed.training.best import Best
from leashed.training.histogram import Histogram, TimeDistribution
from leashed.training.result import OF_HEADS, QUALITY, TrainResult
from leashed.training.sets import Streamed

__all__ = ["Progress", "counted", "progress_of", "result_of", "told_by"]


@dataclass(frozen=True)
class Progress:
    """The state of a run at one evaluation by the monitor.

    Attributes:
        seconds: since the threads started.
        updates: updates published.
        loss: mean loss over the training set, or its rows that ``Observe.rows`` has; of a stream as
            ``TrainResult.loss`` has it.
        accuracy: on the training set.
        validation_accuracy: on the validation set; NaN without one.
        eps: examples per second since the start.
        mean_staleness: of the updates so far.
        initial_loss: the loss before training.
        auc: of the training set; NaN unless the model gives one logit for two labels.
        normalised_entropy: likewise.
        validation_auc: of the validation set; NaN likewise.
        validation_normalised_entropy: likewise.
        validation_loss: mean, of the validation set; NaN without one.
        heads: of several labels, of which the four above are means, those of each, by its name and theirs;
            else empty.
        window: of the rows counted by ``Observe.metrics`` since the evaluation before; None where
            there is none.
        total: of all rows counted so far; likewise.
        observed: what those have found by then that ``Observe.counting`` names, by name.
    """

    seconds: float
    updates: int
    loss: float
    accuracy: float
    validation_accuracy: float
    eps: float
    mean_staleness: float
    initial_loss: float
    auc: float = math.nan
    normalised_entropy: float = math.nan
    validation_auc: float = math.nan
    validation_normalised_entropy: float = math.nan
    validation_loss: float = math.nan
    window: Values | None = None
    total: Values | None = None
    observed: dict[str, float] = field(default_factory=dict)
    heads: dict[str, dict[str, float]] = field(default_factory=dict)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(
            {"observed": {}, "heads": {}, "validation_loss": math.nan, **state}
        )  # which what was pickled before has not


def _values(scored: dict[str, Any] | None, part: str, heads: Sequence[str]) -> Values | None:
    return None if scored is None else Values.of(scored[part], heads)


def _of_heads(now: Mapping[str, Any], heads: Sequence[str]) -> dict[str, dict[str, float]]:
    return {
        head: {name: told[k] if told else math.nan for name, told in now["heads"].items()}
        for k, head in enumerate(heads)
    }


def progress_of(
    now: dict[str, Any], initial_loss: float, batch_size: float, heads: Sequence[str] = ()
) -> Progress:
    """Of what the core tells after an evaluation; ``heads``: the names of several labels."""
    seconds = now["seconds"]
    return Progress(
        seconds=seconds,
        updates=now["updates"],
        loss=now["loss"],
        accuracy=now["accuracy"],
        validation_accuracy=now["validation_accuracy"],
        eps=now["gradients"] * batch_size / seconds if seconds > 0 else math.nan,
        mean_staleness=Histogram(now["staleness"]).mean(),
        initial_loss=initial_loss,
        **{name: now[name] for name in QUALITY},
        window=_values(now["scored"], "window", heads),
        total=_values(now["scored"], "total", heads),
        observed=now["observed"],
        heads=_of_heads(now, heads),
    )


def _staleness_over_time(evaluations: list[dict[str, Any]]) -> NDArray[np.int64]:
    bins = max(len(e["staleness"]) for e in evaluations)
    table = np.zeros((len(evaluations), bins), np.int64)
    for row, evaluation in zip(table, evaluations, strict=True):
        row[: len(evaluation["staleness"])] = evaluation["staleness"]
    return np.diff(table, axis=0, prepend=np.zeros((1, bins), np.int64))


def _breakdown(outcome: dict[str, Any]) -> dict[str, float]:
    parts = {
        "gradient": outcome["gradient_seconds_total"],
        "update": outcome["update_seconds_total"],
        "sampling": outcome["sampling_seconds"],
        "read": outcome["read_seconds"],
        "waiting": outcome["waiting_seconds"],
    }
    if outcome["data_seconds"]:
        parts["data"] = outcome["data_seconds"]
        parts["sampling"] = max(0.0, parts["sampling"] - parts["data"])
    if outcome["row_seconds"]:
        parts["rows"] = outcome["row_seconds"]
    return {**parts, "rest": max(0.0, outcome["running_seconds"] - sum(parts.values()))}


def counted(outcome: dict[str, Any]) -> dict[str, float]:
    """What a cluster's report tells of a training."""
    return {
        "updates": float(outcome["updates"]),
        "dropped_for_sync": float(outcome["lost_to_synchronisation"]),
        "crashed": float(outcome["outcome"] == "crashed"),
        "interrupted": float(outcome["reason"] == "interrupted"),
        "loss": float(outcome["evaluations"][-1]["loss"]),
        "seconds": float(outcome["elapsed"]),
        "staleness_mean": Histogram(outcome["staleness"].astype(np.int64)).mean(),
    }


def told_by(tables: Mapping[str, Table]) -> dict[str, Any]:
    """What a result's configuration says of each."""
    return {
        name: {
            "dim": table.dim,
            "rule": table.rule.config(),
            **table.statistics(),
            "row_staleness": table.row_staleness().tolist(),
        }
        for name, table in tables.items()
    }


def result_of(
    outcome: dict[str, Any],
    batch_size: float,
    config: dict[str, Any],
    tables: dict[str, Table],
    statistics: Running | None = None,
    scored: bool = False,
    streamed: Streamed | None = None,
    architecture: Any = None,
    best: Best | None = None,
    moments: Moments | None = None,
) -> TrainResult:
    """Of what the core tells at the end; ``moments``: what numbers of a stream come to, where the state is
    not the last one.
    """
    evaluations = outcome["evaluations"]
    heads = config.get("columns", {}).get("heads", ())
    of_heads = [_of_heads(now, heads) for now in evaluations]
    if statistics is not None:
        config["statistics"] = statistics.config()
    if streamed is None:
        config["evaluated_rows"] = evaluations[-1]["rows"]

    def series(name: str, dtype: type[np.generic]) -> NDArray[Any]:
        return np.array([e[name] for e in evaluations], dtype)

    seconds = series("seconds", np.float64)
    examples = series("gradients", np.int64) * batch_size
    with np.errstate(invalid="ignore", divide="ignore"):
        eps = np.diff(examples, prepend=0) / np.diff(seconds, prepend=0.0)
    eps[~np.isfinite(eps)] = np.nan
    edges = _core.time_bin_edges()
    rows = dict(outcome["rows"])
    row_staleness = rows.pop("octaves").astype(np.int64)

    def times(name: str) -> TimeDistribution:
        return TimeDistribution(edges, outcome[name].astype(np.int64), outcome[f"{name}_total"])

    def counts(name: str) -> Histogram:
        return Histogram(outcome[name].astype(np.int64))

    mode = ModeCounts.of(outcome) if "worker_examples" in outcome else None
    # A mode's gradients may be of other numbers of examples.
    seen = outcome["gradients"] * batch_size if mode is None else mode.worker_examples.sum()
    if streamed is not None and moments is None:
        moments = streamed.moments(None if mode is not None else streamed.used + round(seen))
    if moments is not None:
        config["columns"] = {**config["columns"], "moments": moments.to_json()}
    if streamed is not None and streamed.passes:
        seen = min(seen, streamed.counts.rows * streamed.passes)  # the last batch may be smaller
    return TrainResult(
        outcome=outcome["outcome"],
        reason=outcome["reason"],
        parameters=outcome["parameters"],
        statistics=np.empty(0, np.float32) if statistics is None else statistics.values,
        seconds=seconds,
        updates=series("updates", np.int64),
        loss=series("loss", np.float64),
        accuracy=series("accuracy", np.float64),
        validation_accuracy=series("validation_accuracy", np.float64),
        eps=eps,
        **{name: series(name, np.float64) for name in QUALITY},
        heads={
            head: {name: np.array([now[head][name] for now in of_heads]) for name in OF_HEADS}
            for head in heads
        },
        tables=tables,
        rows={name: int(n) for name, n in rows.items()} if tables else {},
        row_staleness=row_staleness,
        memory_bytes=series("memory_bytes", np.int64),
        live_vectors=series("live_vectors", np.int64),
        staleness_over_time=_staleness_over_time(evaluations),
        elapsed=outcome["elapsed"],
        examples=round(float(seen)),
        total_updates=outcome["updates"],
        gradients=outcome["gradients"],
        dropped=outcome["dropped"],
        excluded=outcome["excluded"],
        staleness=counts("staleness"),
        staleness_compute=counts("staleness_compute"),
        staleness_schedule=counts("staleness_schedule"),
        tries=counts("tries"),
        gradient_seconds=times("gradient_seconds"),
        update_seconds=times("update_seconds"),
        attempt_seconds=times("attempt_seconds"),
        worker_updates=outcome["worker_updates"].astype(np.int64),
        breakdown=_breakdown(outcome),
        peak_vectors=outcome["peak_vectors"],
        peak_memory_bytes=outcome["peak_memory_bytes"],
        config=config,
        mode=mode,
        metrics=Scored.of(outcome["scored"], heads) if scored else None,
        observed=outcome["observed"],
        architecture=architecture,
        best=best,
    )
