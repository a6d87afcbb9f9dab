"""What one training run came to, in lines of a name and a text, and its tables."""

from __future__ import annotations

import json
import math
from typing import Any

from leashed.base.table import MISSING, Table, duration, found, mebibytes, number
from leashed.training.result import TrainResult, refused_share

TABLES_NOTE = (
    "Counted since each table was made, also by trainings before this one. rows: that ids have, and "
    "may have. bytes: of rows, index and filter, now and at most. hit rate: of distinct ids of "
    "batches, those that had a row. Of the gradient of each distinct id one: applied; folded, in "
    "lockstep, into another thread's of that id; late, its row evicted meanwhile; excluded by the "
    "staleness policy; unadmitted, not seen often enough; deferred, its place in the index being "
    "changed; refused, for want of room. τ: staleness of those applied, in updates of the row."
)
_OUTCOMES = ("applied", "folded", "late", "excluded", "unadmitted", "deferred", "refused")


def facts(result: TrainResult) -> list[tuple[str, str]]:
    """A run of :func:`leashed.train`: what was asked for, and what came of it."""
    observed = [(name.replace("_", " "), found(n)) for name, n in result.observed.items()]
    return _run(result) + _clicks(result) + _scored(result) + _rows(result) + observed


def tables(result: TrainResult) -> Table:
    """What each table has counted, and all together; without rows where the model reads none."""
    header = ["table", "dim", "rule", "rows", "capacity", "bytes", "most", "a row", "admitted"]
    header += ["evicted", "asked", "hit rate", *_OUTCOMES, "mean τ", "most τ"]
    counted: dict[str, dict[str, Any]] = result.config.get("tables", {})
    rows = [
        [name, str(one["dim"]), one["rule"]["name"], *_counts(one, f"{one['bytes_per_row']} B")]
        for name, one in counted.items()
    ]
    if len(counted) > 1:
        rows.append(["all", "", "", *_counts(_total(counted), "")])
    return Table(header, rows)


def _counts(one: dict[str, Any], row: str) -> list[str]:
    return [
        f"{one['rows']:,}",
        f"{one['capacity']:,}",
        mebibytes(one["bytes"]),
        mebibytes(one["most_bytes"]),
        row,
        f"{one['admitted']:,}",
        f"{one['evicted']:,}",
        f"{one['asked']:,}",
        _percentage(_share(one["found"], one["asked"])),
        *(f"{one.get(name, 0):,}" for name in _OUTCOMES),  # (older files lack some)
        number(_share(one["staleness"], one["applied"])),
        f"{one['stalest']:,}",
    ]


def _total(counted: dict[str, dict[str, Any]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counted.values():
        for name, n in one.items():
            if isinstance(n, int):
                total[name] = total.get(name, 0) + n
    total["stalest"] = max(one["stalest"] for one in counted.values())
    return total


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _run(result: TrainResult) -> list[tuple[str, str]]:
    config = result.config
    return [
        ("model", f"{config['model']}, d = {config['dimension']:,}"),
        ("data", f"{config['data']}, {_examples(config)}"),
        ("algorithm", f"{config['discipline']}, m = {config['threads']}"),
        ("rule", _rule(config["rule"])),
        ("step", f"η = {config['rule']['lr']:g}, batch {config['batch_size']}"),
        ("machine", f"{config['cpu']}, {config['isa']}, {config['cores']} cores"),
        ("outcome", f"{result.outcome} ({result.reason}) after {duration(result.elapsed)}"),
        *([("best", f"{result.best}, which was kept")] if result.best else []),
        ("loss", f"{number(result.initial_loss)} → {number(result.final_loss)}"),
        ("accuracy", f"{_percentage(result.accuracy[result.at])} of the training set"),
        ("validation", f"{_percentage(result.validation_accuracy[result.at])} of the test set"),
        ("updates", f"{result.total_updates:,} ({_left_out(result)})"),
        ("throughput", f"{result.mean_eps:,.0f} examples/s"),
        ("policy", config["staleness"]),
        ("staleness", f"mean {number(result.staleness.mean())}, most {result.staleness.max()}"),
        ("T_c", f"{duration(result.gradient_seconds.mean())} per gradient"),
        ("T_u", f"{duration(result.update_seconds.mean())} per update"),
        ("vectors", f"{result.peak_vectors} (parameters and gradients, most in use)"),
        ("memory", f"{mebibytes(result.peak_memory_bytes)} (of the process)"),
    ]


def _examples(config: dict[str, Any]) -> str:
    if config["examples"] is not None:
        return f"{config['examples']:,} examples"
    reading = config["reading"]
    bad = f", {reading['bad']:,} bad lines left out" if reading["bad"] else ""
    return f"{reading['rows']:,} rows read{bad}"


def _rule(config: dict[str, Any]) -> str:
    """The rule's name and whatever else was set but the step size."""
    settings = [
        f"{name} {value if isinstance(value, str) else json.dumps(value)}"
        for name, value in config.items()
        if name not in {"name", "lr"}
    ]
    return ", ".join([config["name"], *settings])


def _left_out(result: TrainResult) -> str:
    dropped = f"{result.dropped:,} gradients dropped"
    return dropped + (f", {result.excluded:,} too stale" if result.excluded else "")


def _percentage(share: float) -> str:
    return MISSING if math.isnan(share) else f"{100.0 * share:.2f}%"


def _clicks(result: TrainResult) -> list[tuple[str, str]]:
    """How good the predictions are, of a model of clicks."""
    if math.isnan(result.auc[result.at]) and math.isnan(result.validation_auc[result.at]):
        return []
    test = f"{number(result.validation_auc[result.at])} of the test set"
    if "hidden_auc" in result.config:
        hidden = result.config["hidden_auc"]
        below = number(hidden - result.validation_auc[result.at])
        test += f" (the hidden model's own: {number(hidden)}, {below} above)"
    entropy = (
        f"{number(result.normalised_entropy[result.at])} of the training set, "
        f"{number(result.validation_normalised_entropy[result.at])} of the test set"
    )
    told = [
        ("AUC", f"{number(result.auc[result.at])} of the training set, {test}"),
        ("norm. entropy", entropy),
    ]
    for head, one in result.heads.items():
        at = {name: number(series[result.at]) for name, series in one.items()}
        told.append(
            (
                f"AUC of {head}",
                f"{at['auc']} of the training set, {at['validation_auc']} of the test set",
            )
        )
    return told


def _scored(result: TrainResult) -> list[tuple[str, str]]:
    """Progressive validation."""
    if result.metrics is None or not result.metrics.total:
        return []
    all_rows = result.metrics.total[-1]
    scored = (
        f"AUC {number(all_rows.auc)} ± {all_rows.auc_error:.1e}, log loss {number(all_rows.log_loss)}, "
        f"norm. entropy {number(all_rows.normalised_entropy)}, calibration "
        f"{number(all_rows.calibration)}, over {all_rows.rows:,} rows before they were trained on"
    )
    told = [("progressive", scored)]
    if all_rows.user_share:
        error = "" if math.isnan(all_rows.gauc_error) else f" ± {all_rows.gauc_error:.1e} (95%)"
        users = f"{all_rows.users:,} users with clicks and others"
        share = "" if all_rows.user_share == 1 else f", of {all_rows.user_share:.3g} of all users"
        told.append(("GAUC", f"{number(all_rows.gauc)}{error} over {users}{share}"))
    return told


def _rows(result: TrainResult) -> list[tuple[str, str]]:
    """The tables, all together, and what the run did to their rows."""
    counted: dict[str, dict[str, Any]] = result.config.get("tables", {})
    if not counted:
        return []
    total, run = _total(counted), result.rows
    hit = _percentage(_share(total["found"], total["asked"]))
    lost = "".join(f", {run[name]:,} {name}" for name in _OUTCOMES[1:] if run[name])
    rows = f"{total['rows']:,} of {total['capacity']:,} rows"
    mean = number(_share(run["staleness"], run["applied"]))
    refused = _percentage(refused_share(run))
    no_room = f"{refused} of the ids of batches got no row: raise max_bytes, or evict"
    return [
        ("tables", f"{len(counted)}, {rows}, {mebibytes(total['bytes'])}"),
        ("admitted", f"{total['admitted']:,} rows, {total['evicted']:,} evicted"),
        ("hit rate", f"{hit} of {total['asked']:,} distinct ids of batches, since they were made"),
        ("row updates", f"{run['applied']:,} applied{lost}"),
        *([("refused", no_room)] if run["refused"] else []),
        ("row staleness", f"mean {mean}, most {run['stalest']:,}"),
    ]
