"""What the record of a run says of the run: which model, data and choices it was made with."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.base import checks, choice
from leashed.datasets import Dataset, SparseDataset
from leashed.files import model_file
from leashed.models.external import Description, External, Samples
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import Graph
from leashed.models.network import Model
from leashed.models.tables import Initial, Table
from leashed.rules import Rule
from leashed.staleness import of_choice
from leashed.training import defaults

__all__ = [
    "Header",
    "Servers",
    "fingerprint",
    "header",
    "looking_up",
    "new_tables",
    "opened",
    "recording",
]

AnyModel: TypeAlias = "Model | FactorisationMachine | Graph | External"
Choices: TypeAlias = "tuple[choice.Choice, choice.Choice, choice.Choice]"
_FORMAT = "leashed.trace"
# Of several policy servers; of models with tables whose rows workers look up some time after their grant 3, of
# others with tables 2, without 1.
_VERSION = 4
_LOOKED_UP = 3


class Servers(NamedTuple):
    """Several policy servers that lead a mode alike.

    Attributes:
        shards: the parameters that each has, as [begin, end) of the vector.
        owners: of each table the one that has all of it, or -1: its rows are spread.
    """

    shards: Sequence[Sequence[tuple[int, int]]]
    owners: Sequence[int]

    @property
    def native(self) -> list[int]:
        """The owners, for the core."""
        return [owner % 2**32 for owner in self.owners]


def fingerprint(data: Any) -> str:
    """SHA-256 of the examples and what they are to give, in hexadecimal: of a ``Dataset``, a
    ``SparseDataset`` or an external model's ``Samples``; of a stream, whose rows nobody has, of its
    files' names and sizes and their order.
    """
    from hashlib import sha256  # noqa: PLC0415 (seldom asked for)

    digest = sha256()
    if (described := getattr(data, "described", None)) is not None:
        files = [[Path(file["path"]).name, file["bytes"]] for file in described["files"]]
        digest.update(json.dumps([files, described["order"]]).encode())
        return digest.hexdigest()
    arrays: list[NDArray[Any] | None]
    if isinstance(data, SparseDataset):
        arrays = [data.indptr, data.indices, data.data, np.array(data.features), data.y]
    else:
        arrays = [data.x, data.y, *getattr(data, "id_arrays", ())]
    for array in (*arrays, getattr(data, "weights", None)):
        if array is not None:
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def recording(
    path: str | os.PathLike[str],
    model: AnyModel,
    data: Dataset | SparseDataset | Samples | Any,
    choices: Choices,
    config: dict[str, Any],
    theta: NDArray[np.float32],
    resumed: _core.Resumption | None,
    *,
    tables: Mapping[str, Table],
    mode: bool = False,
    servers: Servers | None = None,
) -> tuple[str, str, NDArray[np.float32]]:
    """For the core: the file, its header, and the parameters and states that the run begins with.

    Args:
        path: the file; a link's target is written.
        model: what is trained.
        data: the training set.
        choices: for the core, the discipline or the mode, the rule and the staleness policy.
        config: what ``leashed.train`` was asked for, as JSON's own types.
        theta: to begin with [d], unless it is ``resumed``.
        resumed: what the run goes on from, if it does.
        tables: that the model reads, which nobody has trained.
        mode: whether it is a mode.
        servers: several that lead it alike. Default: one.
    """
    discipline, rule, staleness = choices
    start = theta
    if resumed is not None:
        start = np.concatenate([resumed.vectors.reshape(-1), resumed.last_updates, resumed.behind])
    text = {
        "format": _FORMAT,
        "version": _VERSION if servers else 2 if tables else 1,
        "model": model_file.description(model),
        "data": {
            "name": data.name,
            "examples": len(data),
            "fingerprint": fingerprint(data),
        },
        "mode" if mode else "discipline": choice.to_json(discipline),
        "rule": choice.to_json(rule),
        "staleness": choice.to_json(staleness),
        "start": {
            "resumed": resumed is not None,
            "updates": 0 if resumed is None else resumed.updates,
            "batches": 0 if resumed is None else resumed.batches,
            "vectors": 1 if resumed is None else len(resumed.vectors),
            **({} if resumed is None else {"decay": resumed.shrink}),
        },
        "config": config,
        "tables": {name: _told(table) for name, table in tables.items()},
    }
    if servers is not None:
        text["servers"] = servers._asdict()
    return os.path.realpath(path), json.dumps(text), start


def looking_up(text: str, tables: Mapping[str, Table]) -> str:
    """The header that ``recording`` made without tables, of a run whose server has these, which nobody has
    trained: its workers look up the rows of a lease some time after it was granted.
    """
    told = {name: _told(table) for name, table in tables.items()}
    found = json.loads(text)
    version = max(found["version"], _LOOKED_UP)
    return json.dumps({**found, "version": version, "tables": told, "looks_up": True})


def _told(table: Table) -> dict[str, Any]:
    """What another is made from, as JSON's own types."""
    return {
        **{name: getattr(table, name) for name in _SETTINGS},
        **({} if table.evict is None else {"evict": table.evict}),
        "init": choice.to_json(table.init.choice()),
        "rule": [
            choice.to_json(table.decaying_rule.choice()),
            table.rule.config(),
            table.rule.state_names,
        ],
        "staleness": [choice.to_json(table.staleness.choice()), table.staleness.label],
    }


_SETTINGS = ("dim", "rows", "admit_after", "max_bytes", "seed", "number", "versions")


@dataclass(frozen=True)
class _Rule(Rule):
    """That of a recorded run."""

    told: list[Any]

    def choice(self) -> choice.Choice:
        return choice.from_json(self.told[0])

    def config(self) -> dict[str, Any]:
        return dict(self.told[1])

    @property
    def state_names(self) -> tuple[str, ...]:
        return tuple(self.told[2])


def new_tables(told: Mapping[str, Any]) -> dict[str, Table]:
    """As the run's were when it began.

    Raises:
        ValueError: what is told of one is not what ``recording`` writes.
    """
    try:
        return {name: _new_table(name, one) for name, one in told.items()}
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"of its tables its header lacks or has a wrong {error}") from error


def _new_table(name: str, one: Mapping[str, Any]) -> Table:
    native, settings = choice.from_json(one["init"])
    policy, label = one["staleness"]
    return Table(
        **{key: one[key] for key in _SETTINGS},
        evict=one.get("evict"),
        init=Initial(native, tuple(settings.items())),  # type: ignore[arg-type]
        rule=_Rule(one["rule"]),
        staleness=of_choice(label, choice.from_json(policy)),
        name=name,
    )


class Header(NamedTuple):
    """What a trace says of its run.

    Attributes:
        model: what was trained.
        data: name, number of examples and fingerprint of the training set.
        discipline: for the core, as are rule and staleness; or the mode.
        mode: whether it is a mode.
        rule: the update rule.
        staleness: the staleness policy.
        start: whether the run went on from a checkpoint; updates and batches before; vectors in
            the trace, parameters and states; how far weight decay had come that waits.
        config: what ``leashed.train`` was asked for, and on which machine.
        tables: what those that the model reads are made from, by name.
        looks_up: whether the record has when their rows were looked up, which were not those of the grant.
        servers: of several policy servers; of one, and of threads, without any of either.
    """

    model: Model | FactorisationMachine | Graph | Description
    data: dict[str, Any]
    discipline: choice.Choice
    mode: bool
    rule: choice.Choice
    staleness: choice.Choice
    start: dict[str, Any]
    config: dict[str, Any]
    tables: dict[str, Any]
    looks_up: bool
    servers: Servers


def opened(trace: str | os.PathLike[str]) -> tuple[_core.Trace, Header]:
    """A trace, and what it says of its run.

    Raises:
        OSError: it cannot be read.
        ValueError: it is none, damaged, or of a newer version.
    """
    path = os.fspath(trace)
    Path(path).open("rb").close()  # for its errors
    try:
        native = _core.Trace(path)
        return native, header(native.header)
    except ValueError as error:
        raise ValueError(f"cannot replay {path}: {error}") from error


_READ = {
    "config": ("discipline", "until", "model", "dimension", "data", "examples", "isa"),
    "data": ("name", "examples", "fingerprint"),
    "start": ("resumed", "updates", "batches", "vectors"),
}


def header(text: bytes) -> Header:
    """The header that ``recording`` wrote.

    Raises:
        ValueError: it is none, of a newer version, or of what no run is.
    """
    try:
        found = json.loads(text)
        if found["format"] != _FORMAT:
            raise ValueError("it is no trace")
        if found["version"] > _VERSION:
            raise ValueError(
                f"its format version is {found['version']}, this release reads {_VERSION}; "
                "upgrade leashed"
            )
        mode = "mode" in found
        made = Header(
            model_file.described(found["model"]),
            found["data"],
            choice.from_json(found["mode" if mode else "discipline"]),
            mode,
            choice.from_json(found["rule"]),
            choice.from_json(found["staleness"]),
            found["start"],
            found["config"],
            tables := {name: {**one} for name, one in found.get("tables", {}).items()},
            bool(tables) and found.get("looks_up") is True,
            _servers(found.get("servers")),
        )
        for part, keys in _READ.items():
            for key in keys:
                found[part][key]  # says which is missing
        config = found["config"]
        checks.whole("threads", config["threads"], maximum=defaults.MAX_THREADS)
        checks.size("batch_size", config["batch_size"])
        checks.whole("seed", config["seed"], 0, defaults.MAX_SEED)
        return made
    except json.JSONDecodeError as error:
        raise ValueError("its header is cut off") from error
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"its header lacks or has a wrong {error}") from error


def _servers(told: Mapping[str, Any] | None) -> Servers:
    if told is None:
        return Servers((), ())
    shards = [[(int(begin), int(end)) for begin, end in shard] for shard in told["shards"]]
    return Servers(shards, [int(one) for one in told["owners"]])
