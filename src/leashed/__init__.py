"""Asynchronous SGD on every core, without locks: `train` a `Model` on a `Dataset`."""

from typing import Any as _Any

from leashed import analysis, datasets, gradients, models, rules, schedules, staleness
from leashed._core import __version__
from leashed.checkpoint import load, save
from leashed.datasets import Dataset, SparseDataset
from leashed.disciplines import Discipline, Hogwild, Leashed, Locked, Sequential, Synchronous
from leashed.engine import Engine
from leashed.external import get_include
from leashed.models import Model
from leashed.result import Histogram, TimeDistribution, TrainResult
from leashed.rules import (
    SGD,
    SWAP,
    Adagrad,
    Adam,
    AdamW,
    Momentum,
    Nesterov,
    RMSprop,
    Rule,
)
from leashed.shared import SharedVector
from leashed.stopping import Until, until
from leashed.train import Progress, train
from leashed.tune import Tuning, tune
from leashed.vector import ParameterVector, Update

__all__ = [
    "SGD",
    "SWAP",
    "Adagrad",
    "Adam",
    "AdamW",
    "Dataset",
    "Discipline",
    "Engine",
    "Histogram",
    "Hogwild",
    "Leashed",
    "Locked",
    "Model",
    "Momentum",
    "Nesterov",
    "ParameterVector",
    "Progress",
    "RMSprop",
    "Rule",
    "Sequential",
    "SharedVector",
    "SparseDataset",
    "Synchronous",
    "TimeDistribution",
    "TrainResult",
    "Tuning",
    "Until",
    "Update",
    "__version__",
    "analysis",
    "datasets",
    "get_include",
    "gradients",
    "load",
    "models",
    "rules",
    "save",
    "schedules",
    "staleness",
    "train",
    "tune",
    "until",
]


def __getattr__(name: str) -> _Any:
    """``leashed.torch`` is imported when it is first asked for: PyTorch is an extra."""
    if name == "torch":
        import importlib  # noqa: PLC0415

        return importlib.import_module("leashed.torch")
    raise AttributeError(f"module 'leashed' has no attribute {name!r}")
