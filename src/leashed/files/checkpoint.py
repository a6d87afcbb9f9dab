"""What was trained, saved and loaded: the file of a model, or the folder of one with its tables.

``load`` reads whatever leashed has written of a model, by one reader; to go on with a run,
``resuming`` stands on top of it.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed.base import checks
from leashed.datasets.columns import Columns
from leashed.files import folders, model_file
from leashed.files.model_file import *  # whose names have been here
from leashed.files.model_file import STATISTICS, BuiltIn, Content
from leashed.models import _columns
from leashed.models.external import Description, External
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import Graph
from leashed.models.network import Model
from leashed.models.tables import Table
from leashed.models.tables import check as check_tables

__all__ = ["Loaded", "Restored", "load", "load_statistics", "load_whole", "restore", "save"]

T = TypeVar("T")
M_co = TypeVar("M_co", bound="BuiltIn | External", covariant=True)
AnyModel = TypeVar("AnyModel", Model, FactorisationMachine, Graph, External)
_Array = NDArray[np.float32]


def save(
    path: str | os.PathLike[str],
    model: BuiltIn | External,
    parameters: ArrayLike,
    tables: Mapping[str, Table] | None = None,
    statistics: ArrayLike | None = None,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Write a model and its parameters [d] to ``path``, atomically.

    A reader finds the old file or the whole new one. Of an external model its description is
    written: name, dimension, features, y, variables and ids.

    Args:
        path: the file; with ``tables`` a folder, which is made where it is not there.
        model: from :mod:`leashed.models`.
        parameters: [d].
        tables: by name, all that the model reads: their rows and states are written too. Of a model
            that reads none they are left out.
        statistics: float32 [s], as ``TrainResult.statistics``, of a model with ``BatchNorm`` or
            ``DataNorm``.
        settings: what the training was asked for, as ``TrainResult.config``. Default: nobody knows.

    Raises:
        TypeError, ValueError: ``parameters``, ``tables`` or ``statistics`` does not fit the model,
            tables are missing, or a file cannot hold the model's description.
        OSError: the file cannot be written, or the folder has something else in it.
    """
    _require_model(model)
    tensors = model_file.parts(model, checks.vector("parameters", parameters, model.dimension))
    if statistics is not None and np.size(statistics):
        wanted = model.statistics if isinstance(model, Graph) else 0
        if not wanted:
            raise ValueError(f"statistics must be left out, since model {model.name} has none")
        tensors[STATISTICS] = checks.vector("statistics", statistics, wanted)
    told = model_file.columns_told(_columns.kept(parameters))
    if settings:
        told["settings"] = json.dumps(settings)
    if tables is None and tables_of(model):
        raise ValueError(
            f"tables must be given, since model {model.name} reads their rows: leashed.save(folder, "
            "model, result.parameters, result.tables, result.statistics)"
        )
    if tables is None:
        model_file.write(path, model, tensors, told)
        return
    folder, given = Path(path), _fitting(model, tables)
    folders.prepare(folder)
    folders.write(
        folder, given, lambda file: model_file.write(file, model, tensors, told), exact=True
    )


class Loaded(tuple[M_co, _Array], Generic[M_co]):
    """What was trained, whole. It unpacks into model and parameters: ``model, theta = leashed.load(path)``.

    Attributes:
        model: of :mod:`leashed.models`.
        parameters: float32 [d].
        tables: by name; empty where the model reads none.
        statistics: float32 [s], as ``TrainResult.statistics``; None of a model that does not
            normalise, and where the file has none.
        states: float32 [S, d], what the run's rule keeps beside the parameters; [0, d] of what
            ``save`` wrote.
        run: what the run was asked for, as ``TrainResult.config``, and its counters, such as
            ``updates`` and ``batches`` ("docs/checkpoints.md" has all); empty of what ``save`` wrote.
        exact: whether nobody changed the tables while they were written.
        columns: what is known of the data's columns.
        settings: what the training was asked for, as far as ``save`` was told.
    """

    tables: dict[str, Table]
    statistics: _Array | None
    states: _Array
    run: dict[str, Any]
    exact: bool
    columns: Columns
    settings: dict[str, Any]

    @property
    def model(self) -> M_co:
        """Of :mod:`leashed.models`."""
        return self[0]

    @property
    def parameters(self) -> _Array:
        """float32 [d]."""
        return self[1]

    @property
    def updates(self) -> int:
        """That the run had made; 0 of what ``save`` wrote."""
        return int(self.run.get("updates", 0))

    def __repr__(self) -> str:
        tables = f", tables={', '.join(self.tables)}" if self.tables else ""
        return f"Loaded(model={self.model.name}, d={len(self.parameters):,}{tables}, updates={self.updates:,})"


@overload
def load(
    path: str | os.PathLike[str], model: None = None, tables: Mapping[str, Table] | None = None
) -> Loaded[BuiltIn]: ...


@overload
def load(
    path: str | os.PathLike[str], model: AnyModel, tables: Mapping[str, Table] | None = None
) -> Loaded[AnyModel]: ...


def load(
    path: str | os.PathLike[str],
    model: BuiltIn | External | None = None,
    tables: Mapping[str, Table] | None = None,
) -> Loaded[Any]:
    """What ``leashed.load`` reads, which see: what is in the file or the folder, as it is."""

    def take(content: Content, folder: folders.Opened | None) -> Loaded[Any]:
        own, given = _model(path, content, model), {}
        if folder is not None:
            given = _fitting(own, folder.new_tables() if tables is None else tables)
            folder.fit(given)
            folder.require(given)
            folder.check()
            folder.load(given)
        return _loaded(path, own, content, given, folder is None or folder.exact)

    return reading(path, take, is_folder=tables is not None)


def load_whole(path: str | os.PathLike[str]) -> Loaded[BuiltIn]:
    """As ``load``, for who predicts with it: ValueError where the model reads tables and ``path`` is
    a file, as ``save`` wrote of its parameters before there were folders.
    """
    found = load(path)
    if tables_of(found.model) and not found.tables:
        raise ValueError(
            f"cannot load {path}: its model reads tables, which are not there; name the folder that "
            "was saved with tables"
        )
    return found


def _model(
    path: str | os.PathLike[str], content: Content, model: BuiltIn | External | None
) -> BuiltIn | External:
    if model is not None:
        _require_model(model)
        if wrong := model_file.mismatch(content.model, model):
            raise ValueError(f"cannot load {path}: {wrong}")
        return model
    if isinstance(content.model, Description):
        raise ValueError(  # noqa: TRY004 (a fault of the file)
            f"cannot load {path}: its model is external, and no file holds a gradient; give the "
            f"model: leashed.load(path, {content.model})"
        )
    return content.model


def _loaded(
    path: str | os.PathLike[str],
    model: BuiltIn | External,
    content: Content,
    tables: dict[str, Table],
    exact: bool,
) -> Loaded[Any]:
    try:
        columns, states, run = content.columns, content.states, content.run or {}
        settings = json.loads(content.metadata.get("settings", "{}"))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot load {path}: its run lacks or has a wrong {error}") from error
    found: Loaded[Any] = Loaded((model, _columns.keep(content.parameters, columns)))
    found.tables, found.exact, found.statistics = tables, exact, content.statistics
    found.columns, found.states, found.run, found.settings = columns, states, run, settings
    return found


def reading(
    path: str | os.PathLike[str],
    take: Callable[[Content, folders.Opened | None], T],
    *,
    is_folder: bool = False,
) -> T:
    """What ``take`` makes of a file, or of a folder with tables, all of it of one generation: where
    another one has come meanwhile, it is called again. Of a folder's files only the model's has been
    checked.

    Args:
        path: as of ``load``.
        take: is told what the model's file says, and the folder where it is one.
        is_folder: whether it has to be one.

    Raises:
        FileNotFoundError: there is no such file; IsADirectoryError: it is a folder without a model.
        ValueError: the file is truncated, altered, of another kind or of a newer version; what
            ``take`` raises.
        OSError: a new generation came each time before one was read.
    """
    place = Path(path)
    if place.is_dir() and not folders.is_one(place):
        place = model_file.inside(place) or place
    if is_folder or folders.is_one(place):
        return folders.read(place, lambda folder: take(model_file.read(folder.model), folder))
    return take(model_file.read(place), None)


def read_model(path: str | os.PathLike[str]) -> Content:
    """As ``read``; of a folder the model's file."""
    return reading(path, lambda content, _: content)


def tables_of(model: object) -> tuple[Any, ...]:
    """Described, those that a model reads."""
    return model.tables if isinstance(model, (Graph, External)) else ()


def _fitting(model: object, tables: Mapping[str, Table]) -> dict[str, Table]:
    """Those of a model, in its order."""
    described = tables_of(model)
    check_tables(described, tables)
    return {one.name: tables[one.name] for one in described}


def _require_model(model: object) -> None:
    if not isinstance(model, (Model, FactorisationMachine, Graph, External)):
        raise TypeError(f"model must come from leashed.models, got {type(model).__name__}")


class Restored(NamedTuple):
    """What ``restore`` gives; the same of what ``load`` gives."""

    model: BuiltIn
    parameters: _Array
    tables: dict[str, Table]
    statistics: _Array | None = None


def restore(path: str | os.PathLike[str]) -> Restored:
    """The old name of ``load``, whose value unpacks into four: model, parameters, tables, statistics.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError, OSError: as ``load``; ValueError also where the
            model reads tables that are not there.
    """
    _say("restore(path)", "leashed.load(path), which has model, parameters, tables and statistics")
    found = load_whole(path)
    return Restored(found.model, found.parameters, found.tables, found.statistics)


def load_statistics(path: str | os.PathLike[str]) -> NDArray[np.float32]:
    """The old name of ``load(path).statistics``: what a model with ``BatchNorm`` or ``DataNorm``
    normalises by, float32 [s].

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, as for ``load``, or holds none.
    """
    _say("load_statistics(path)", "leashed.load(path).statistics")
    statistics = read_model(path).statistics
    if statistics is None:
        raise ValueError(
            f"{path} holds no statistics; its model has none, or it was saved without them"
        )
    return statistics


def _say(old: str, new: str) -> None:
    warnings.warn(f"leashed.{old} is an old name; call {new}", DeprecationWarning, stacklevel=3)
