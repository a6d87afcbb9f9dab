"""Asynchronous SGD on every core, without locks: `train` a `Model` on a `Dataset`."""

from typing import TYPE_CHECKING

from leashed.base import moved
from leashed.base.room import offer

if TYPE_CHECKING:
    from leashed import cluster as cluster
    from leashed import datasets as datasets
    from leashed import disciplines as disciplines
    from leashed import gradients as gradients
    from leashed import metrics as metrics
    from leashed import models as models
    from leashed import modes as modes
    from leashed import retrieval as retrieval
    from leashed import rules as rules
    from leashed import schedules as schedules
    from leashed import simulation as simulation
    from leashed import sklearn as sklearn
    from leashed import staleness as staleness
    from leashed import stream as stream
    from leashed import sync as sync
    from leashed import torch as torch
    from leashed._core import __version__ as __version__
    from leashed.datasets import ClickDataset as ClickDataset
    from leashed.datasets import Dataset as Dataset
    from leashed.datasets import SparseDataset as SparseDataset
    from leashed.disciplines import *
    from leashed.engine.engine import Engine as Engine
    from leashed.engine.shared import SharedVector as SharedVector
    from leashed.engine.vector import *
    from leashed.files import export as export
    from leashed.files.checkpoint import load_statistics as load_statistics
    from leashed.files.checkpoint import restore as restore
    from leashed.files.checkpoint import save as save
    from leashed.models import tables as tables
    from leashed.models.external import get_include as get_include
    from leashed.models.network import Model as Model
    from leashed.models.tables import Table as Table
    from leashed.rules import *
    from leashed.simulation.virtual_time import simulate as simulate
    from leashed.stopping import *
    from leashed.studies import analysis as analysis
    from leashed.studies.tune import Tuning as Tuning
    from leashed.studies.tune import tune as tune
    from leashed.training.continual import *
    from leashed.training.options import Checkpoint as Checkpoint
    from leashed.training.options import Init as Init
    from leashed.training.options import Observe as Observe
    from leashed.training.outcome import Progress as Progress
    from leashed.training.replaying import Replay as Replay
    from leashed.training.replaying import replay as replay
    from leashed.training.result import Histogram as Histogram
    from leashed.training.result import TimeDistribution as TimeDistribution
    from leashed.training.result import TrainResult as TrainResult
    from leashed.training.train import train as train
    from leashed.training.trained import Evaluation as Evaluation
    from leashed.training.trained import Trained as Trained
    from leashed.training.trained import load as load

moved.install()
offer(
    __name__,
    {
        "_core": "__version__",
        "datasets": "ClickDataset Dataset SparseDataset",
        "engine.engine": "Engine",
        "engine.shared": "SharedVector",
        "engine.vector": "ParameterVector Update",
        "files.checkpoint": "load_statistics restore save",
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
        "training.trained": "Evaluation Trained load",
    },
    modules="analysis datasets export gradients metrics models modes retrieval rules schedules "
    "simulation staleness stream sync tables",
    every=("disciplines", "rules"),
)
