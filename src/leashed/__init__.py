"""Asynchronous SGD on every core, without locks: `train` a `Model` on a `Dataset`."""

import sys as _sys
from typing import Any as _Any

from leashed import (
    datasets,
    disciplines,
    export,
    gradients,
    metrics,
    models,
    modes,
    retrieval,
    rules,
    schedules,
    simulation,
    staleness,
    stream,
    sync,
    tables,
)
from leashed._core import __version__
from leashed.checkpoint import load, load_statistics, save
from leashed.continual import Continual, Day, continual
from leashed.datasets import ClickDataset, Dataset, SparseDataset
from leashed.disciplines import *
from leashed.engine import Engine
from leashed.external import get_include
from leashed.models import Model
from leashed.replaying import Replay, replay
from leashed.restoring import restore
from leashed.result import Histogram, TimeDistribution, TrainResult
from leashed.rules import *
from leashed.shared import SharedVector
from leashed.simulation import simulate
from leashed.stopping import Until, until
from leashed.studies import analysis
from leashed.studies.tune import Tuning, tune
from leashed.tables import Table
from leashed.train import Progress, train
from leashed.vector import ParameterVector, Update

__all__ = [
    "ClickDataset",
    "Continual",
    "Dataset",
    "Day",
    "Engine",
    "Histogram",
    "Model",
    "ParameterVector",
    "Progress",
    "Replay",
    "SharedVector",
    "SparseDataset",
    "Table",
    "TimeDistribution",
    "TrainResult",
    "Tuning",
    "Until",
    "Update",
    "__version__",
    "analysis",
    "continual",
    "datasets",
    "export",
    "get_include",
    "gradients",
    "load",
    "load_statistics",
    "metrics",
    "models",
    "modes",
    "replay",
    "restore",
    "retrieval",
    "rules",
    "save",
    "schedules",
    "simulate",
    "simulation",
    "staleness",
    "stream",
    "sync",
    "tables",
    "train",
    "tune",
    "until",
]
__all__ += disciplines.__all__ + rules.__all__

# Their names from before they lay in a room: for `import leashed.analysis`, and for what is pickled.
_sys.modules["leashed.analysis"] = analysis
_sys.modules["leashed.tune"] = _sys.modules["leashed.studies.tune"]


def __getattr__(name: str) -> _Any:
    """``leashed.torch`` and ``leashed.cluster`` are imported when they are first asked for: PyTorch
    and msgspec are extras.
    """
    if name in ("torch", "cluster"):
        import importlib  # noqa: PLC0415

        return importlib.import_module(f"leashed.{name}")
    raise AttributeError(f"module 'leashed' has no attribute {name!r}")
