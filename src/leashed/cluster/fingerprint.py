"""What all processes of a run must have alike: words by name, which the master compares when one joins.

Names that only one of two has are not compared: a sync server knows of no data.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from numbers import Real
from operator import methodcaller
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.base.choice import to_json
from leashed.cluster.roles import ROLES
from leashed.datasets import Bags, ClickDataset
from leashed.files import model_file
from leashed.models import TableSpec
from leashed.models.external import External
from leashed.rules import Rule
from leashed.staleness import Policy
from leashed.sync import Synchroniser, When
from leashed.training.led_mode import COMMANDS, LedMode

__all__ = [
    "Trained",
    "differing",
    "of_batches",
    "of_begin",
    "of_checkpoint",
    "of_data",
    "of_job",
    "of_mode",
    "of_model",
    "of_rows",
    "of_server",
    "of_servers",
    "of_specs",
    "of_tables",
    "of_trainer",
]

Fingerprint: TypeAlias = dict[str, str]
Trained: TypeAlias = "tuple[model_file.BuiltIn | External, Any, int]"

_LONGEST = 160  # characters that are told as they are
_SAMPLED = 4096  # rows of data that are looked at, at most
_READ = 16 << 20  # bytes of them
_DIGITS = 12  # of a digest
_OF_FILES = ("format", "version", "name")


def of_job(name: str) -> Fingerprint:
    """Of all processes of a run that has a name."""
    return {"name": _short(name)} if name else {}


def of_batches(total: int | None, batch_size: int) -> Fingerprint:
    """Of a trainer: how many there are in the run, and examples of one."""
    return {"batches": "no end" if total is None else f"{total:,}", "batch_size": f"{batch_size:,}"}


def of_begin(resumed: bool) -> Fingerprint:
    """Of a trainer: whether the run goes on from a checkpoint."""
    return {"resume": "a checkpoint" if resumed else "none"}


def of_checkpoint(run: str, number: int) -> Fingerprint:
    """Of a trainer whose run goes on from a checkpoint of a whole run: from which."""
    return {"checkpoint": f"{number} of run {run}"}


def of_servers(counts: Mapping[str, int]) -> Fingerprint:
    """Of a process that knows how many servers of these roles there are, by role."""
    return {f"{ROLES[role].words}s": f"{count:,}" for role, count in counts.items()}


def of_rows(rule: Rule, staleness: Policy, seed: int) -> Fingerprint:
    """Of who updates rows, or has them updated."""
    by = json.dumps([rule.choice(), staleness.choice()])
    return {"leashed": _core.__version__, "rows": _short(by), "seed": str(seed)}


def of_tables(settings: Mapping[str, Any]) -> Fingerprint:
    """Of an embedding server, and of who trains by it: what else is said of tables, JSON's own types."""
    told = json.dumps(settings, sort_keys=True, default=methodcaller("item"))  # NumPy's numbers too
    return {"settings of tables": _short(told)}


def of_specs(tables: Iterable[TableSpec]) -> Fingerprint:
    """Of who looks up and updates tables by calls: which there are."""
    return {"tables": _short(json.dumps([[one.name, one.dim, one.rows] for one in tables]))}


def of_mode(led: LedMode) -> Fingerprint:
    """Of who leads a mode, or trains by it."""
    by = [to_json(choice) for choice in (led.rule, led.staleness)]
    # (Who sums is to have the bits that others have.)
    ordered = (
        {}
        if led.order is None
        else {"columns": hashlib.sha256(led.order.tobytes()).hexdigest()[:_DIGITS]}
    )
    dense = f"all-reduce by {_core.default_isa()}" if led.reduces else "by the server"
    return {
        "dense": dense,
        "mode": _short(json.dumps(to_json(led.mode))),
        "mode.at": _short(json.dumps([[seconds, COMMANDS[to]] for seconds, to in led.commands])),
        "rule": _short(json.dumps(by)),
        "workers": f"{led.workers:,}",
        "until.updates": "any number" if led.updates is None else f"{led.updates:,}",
        **ordered,
    }


def of_server(dimension: int) -> Fingerprint:
    """Of a sync server."""
    return {"leashed": _core.__version__, "parameters": f"{dimension:,}"}


def of_trainer(
    dimension: int, synchroniser: Synchroniser | None, backend: str, trained: Trained | None
) -> Fingerprint:
    """Of a trainer.

    Args:
        dimension: length of the parameters.
        synchroniser: what it synchronises by.
        backend: what that sums with.
        trained: the model, the data and the seed, where these are known.
    """
    described = {}
    if trained is not None:
        model, data, seed = trained
        described = {**of_model(model), **of_data(data), "seed": str(seed)}
    settings = {"sync": "none"}
    if synchroniser is not None:
        settings = {"sync": type(synchroniser).__name__}
        for field in dataclasses.fields(synchroniser):
            value = getattr(synchroniser, field.name)
            if isinstance(value, When):
                settings[f"sync.{field.name}"] = _short(f"{value.kind} {dict(value.gaps)}")
            elif isinstance(value, str):
                settings[f"sync.{field.name}"] = _short(value)
            elif isinstance(value, Real):  # as float, int, bool or NumPy's
                settings[f"sync.{field.name}"] = f"{float(value)!r}"
    return {**of_server(dimension), **described, **settings, "backend": backend}


def of_model(model: model_file.BuiltIn | External) -> Fingerprint:
    """Of what is trained: each field as files describe it."""
    told = model_file.description(model)
    if (machine := told.pop("factorisation", None)) is not None:
        fields = json.loads(machine)
        told |= {key: json.dumps(value) for key, value in fields.items() if key != "k"}
        told["factors"] = str(fields["k"])
    own = {key: _short(word) for key, word in told.items() if key not in _OF_FILES}
    return {"model": _short(told["name"]), **own}


def of_data(data: Any) -> Fingerprint:
    """Of data in memory: how much there is, and a digest of at most 4,096 examples, or 16 MB of them,
    evenly spaced; of clicks of each feature's ids apart.
    """
    if (known := getattr(data, "digest", None)) is not None:  # of rows that readers read
        return {"data": known}
    digest = hashlib.sha256(f"{getattr(data, 'classes', None)}".encode())
    ids: Iterable[Any] = ()
    if hasattr(data, "indptr"):
        columns = f"{data.features:,} columns"
        arrays = [np.diff(data.indptr), data.indices, data.data]
    elif isinstance(data, ClickDataset):
        columns = f"{data.x.shape[1]:,} numbers and {len(data.names):,} features of ids"
        digest.update(f"{data.names}{data.number_names}{data.heads}".encode())
        arrays = [data.x]
        ids = data.ids if isinstance(data.ids, tuple) else (data.ids,)
    else:
        columns = f"examples of shape {data.x.shape[1:]}"
        arrays = [data.x]
    for array in (*arrays, *ids, data.y, getattr(data, "weights", None)):
        if isinstance(array, Bags):
            some = array.take(_spaced(len(array), _SAMPLED))
            digest.update(f"{len(array)} {len(array.ids)}".encode())
            for part in (some.offsets, some.ids, some.weights):
                digest.update(b"" if part is None else np.ascontiguousarray(part).tobytes())
        elif array is not None:
            digest.update(f"{array.dtype}{array.shape}".encode())
            if array.size:
                chosen = _spaced(len(array), max(1, _READ * len(array) // array.nbytes))
                digest.update(np.ascontiguousarray(array[chosen]).tobytes())
    return {"data": f"{len(data):,} examples, {columns}, {digest.hexdigest()[:_DIGITS]}"}


def _spaced(rows: int, most: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, rows - 1, min(_SAMPLED, most)).astype(np.int64))


def differing(run: Mapping[str, str], own: Mapping[str, str]) -> str | None:
    """How the one who joins differs from the run, in words; None: not at all."""
    unlike = [name for name in run if name in own and own[name] != run[name]]
    if not unlike:
        return None
    told = "; ".join(f"{name} is {own[name]} here, and {run[name]} in the run" for name in unlike)
    return f"it is not what the run is: {told}. Give all processes of a run the same"


def _short(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}… ({hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]})"
