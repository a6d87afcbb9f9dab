"""Asynchronous SGD on every core, without locks: `train` a `Model` on a `Dataset`."""

from typing import TYPE_CHECKING

from leashed.base import moved
from leashed.base.room import offer

if TYPE_CHECKING:
    from leashed import cluster as cluster
    from leashed import (
        datasets,
        disciplines,
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
    )
    from leashed import sklearn as sklearn
    from leashed import torch as torch
    from leashed._core import __version__
    from leashed.datasets import ClickDataset, Dataset, SparseDataset
    from leashed.disciplines import *
    from leashed.engine.engine import Engine
    from leashed.engine.shared import SharedVector
    from leashed.engine.vector import ParameterVector, Update
    from leashed.files import export
    from leashed.files.checkpoint import load, load_statistics, restore, save
    from leashed.models import tables
    from leashed.models.external import get_include
    from leashed.models.network import Model
    from leashed.models.tables import Table
    from leashed.rules import *
    from leashed.simulation.virtual_time import simulate
    from leashed.stopping import Until, until
    from leashed.studies import analysis
    from leashed.studies.tune import Tuning, tune
    from leashed.training.continual import Continual, Day, continual
    from leashed.training.options import Checkpoint, Init, Observe
    from leashed.training.outcome import Progress
    from leashed.training.replaying import Replay, replay
    from leashed.training.result import Histogram, TimeDistribution, TrainResult
    from leashed.training.train import train

    __all__ = [
        "Checkpoint",
        "ClickDataset",
        "Continual",
        "Dataset",
        "Day",
        "Engine",
        "Histogram",
        "Init",
        "Model",
        "Observe",
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
    __all__ += disciplines.__all__
    __all__ += rules.__all__

moved.install()
offer(
    __name__,
    {
        "_core": "__version__",
        "datasets": "ClickDataset Dataset SparseDataset",
        "engine.engine": "Engine",
        "engine.shared": "SharedVector",
        "engine.vector": "ParameterVector Update",
        "files.checkpoint": "load load_statistics restore save",
        "models.external": "get_include",
        "models.network": "Model",
        "models.tables": "Table",
        "simulation.virtual_time": "simulate",
        "stopping": "Until until",
        "studies.tune": "Tuning tune",
        "training.continual": "Continual Day continual",
        "training.options": "Checkpoint Init Observe",
        "training.outcome": "Progress",
        "training.replaying": "Replay replay",
        "training.result": "Histogram TimeDistribution TrainResult",
        "training.train": "train",
    },
    modules="analysis datasets export gradients metrics models modes retrieval rules schedules "
    "simulation staleness stream sync tables",
    every=("disciplines", "rules"),
)
