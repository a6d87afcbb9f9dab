"""Asynchronous SGD on every core, without locks: `train` a `Model` on a `Dataset`."""

from leashed import analysis, datasets, models, rules, schedules, staleness
from leashed._core import __version__
from leashed.checkpoint import load, save
from leashed.datasets import Dataset, SparseDataset
from leashed.disciplines import Discipline, Hogwild, Leashed, Locked, Sequential, Synchronous
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
