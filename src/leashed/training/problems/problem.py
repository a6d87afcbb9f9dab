"""What words describe to be trained: a model and its data, in memory or read while they are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from leashed import models
from leashed.base.options import option
from leashed.datasets import Dataset
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import Graph
from leashed.models.network import Model
from leashed.training.problems import clicks, files, sparse
from leashed.training.problems.clicks import ClickWords
from leashed.training.problems.files import FILES, WHAT
from leashed.training.problems.sparse import SparseWords
from leashed.training.spelled import data_of

__all__ = [
    "MODELS",
    "NETWORKS",
    "Problem",
    "ProblemWords",
    "build_model",
    "problem_of",
    "strange_to",
]

NETWORKS = ("mlp", "cnn", "lenet")
_HIDDEN = (128, 128, 128)  # of Table II
MODELS = (*NETWORKS, *clicks.MODELS, *sparse.MODELS)


class Problem(NamedTuple):
    """What ``problem_of`` gives.

    Attributes:
        model: that is trained.
        train: to train on.
        test: to test; None: there is nothing.
    """

    model: Model | FactorisationMachine | Graph
    train: Any
    test: Any


@dataclass(frozen=True, kw_only=True)
class ProblemWords(SparseWords, ClickWords):
    """What ``problem_of`` reads."""

    model: str = option(
        "mlp", f"one of {', '.join(MODELS)}", choices=MODELS, group=WHAT, metavar="NAME"
    )


def strange_to(model: str | None) -> tuple[str, ...]:
    """The options that only other kinds of models take; None: those that only some kinds do."""
    groups = {clicks.GROUP, sparse.GROUP, FILES}
    only_clicks = ["label", "days", "target", *([] if model == "mlp" else ["hidden"])]
    if model in clicks.MODELS:
        groups, only_clicks = {sparse.GROUP}, []
        only_clicks += [name for name in clicks.SHAPES if name not in clicks.shapes(model)]
    elif model in sparse.MODELS:
        groups = {clicks.GROUP}
        only_clicks = [
            name for name in only_clicks if name != "target" or model not in sparse.TARGETED
        ]
    strange = [item.name for item in fields(ProblemWords) if item.metadata.get("group") in groups]
    return tuple(dict.fromkeys([*strange, *only_clicks]))


def problem_of(words: ProblemWords) -> Problem:
    """What such words ask for.

    Raises:
        OSError, TypeError, ValueError: a file is missing or wrong, or words do not go together.
    """
    model: Model | FactorisationMachine | Graph
    data: Any
    if words.shuffle is not None and not words.stream:
        raise ValueError(
            "--shuffle goes with --stream or --days; rows in memory are drawn in an order of the seed"
        )
    if words.model in clicks.MODELS:
        sparse.refuse(words, test=words.stream)
        model = clicks.build(words.model, words)
        data = clicks.streamed(words) if words.stream else clicks.load(words)
    elif words.model in sparse.MODELS:
        clicks.refuse(words, files=True)
        data = sparse.streamed(words) if words.stream else sparse.load(words)
        model = sparse.build(words.model, data, words)
    else:
        hidden = words.hidden if words.model == "mlp" else ()
        clicks.refuse(replace(words, hidden=()) if hidden else words)
        sparse.refuse(words)
        data = data_of(None if words.data is None else str(files.existing(words.data)))
        model = build_model(words.model, data.train, hidden or _HIDDEN)
    return Problem(model, data.train, data.test)


def build_model(name: str, data: Dataset, hidden: Sequence[int] = _HIDDEN) -> Model:
    """The named network for a data set: ``mlp`` (Table II) of such hidden layers, ``cnn`` (Table III)
    or ``lenet``.

    Raises:
        ValueError: the name is unknown, or the network needs images and ``data`` has none.
    """
    if name == "mlp":
        return models.mlp(data.features, hidden, data.classes)
    if name not in NETWORKS:
        raise ValueError(f"model must be one of {', '.join(NETWORKS)}, got {name!r}")
    if data.image_shape is None:
        raise ValueError(f"model {name} needs images, but {data.name} has no image_shape")
    build = models.cnn if name == "cnn" else models.lenet
    return build(data.image_shape, data.classes)
