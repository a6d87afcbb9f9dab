"""Paths under which modules lay before the package was made of rooms.

``import leashed.tables``, ``from leashed.tables import of`` and what was pickled as
``leashed.result.TrainResult`` go on working: they find the very modules that lie elsewhere now.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from importlib.abc import Loader  # which imports tempfile, shutil, random and more

__all__ = ["MOVED", "install"]

MOVED = {
    "_reads": "models._reads",
    "_running": "models._running",
    "analysis": "studies.analysis",
    "checkpoint": "files.checkpoint",
    "choice": "base.choice",
    "cli.appending": "training.progress",
    "cli.clicks": "training.problems.clicks",
    "cli.damping": "cli.staleness",
    "cli.files": "training.problems.files",
    "cli.normalisation": "cli.study",
    "cli.problem": "training.problems.problem",
    "cli.progress": "training.progress",
    "cli.rule_arguments": "training.spelled",
    "cli.shat": "cli.study",
    "cli.sparse": "training.problems.sparse",
    "cli.swap": "cli.study",
    "cli.switching": "cli.study",
    "cluster.shadowsync.study": "studies.study",
    "cluster.table": "cluster.run_table",
    "continual": "training.continual",
    "days": "training.days",
    "embeddings": "torch.embeddings",
    "export": "files.export",
    "external": "models.external",
    "factorisation": "models.factorisation",
    "files.restoring": "files.checkpoint",
    "files.table_checkpoints": "files.resuming",
    "folders": "files.folders",
    "graphs": "models.graphs",
    "histogram": "training.histogram",
    "layers": "models.layers",
    "machine": "base.machine",
    "membership": "simulation.membership",
    "network": "simulation.network",
    "plots": "training.plots",
    "plots.boxes": "report.plots.boxes",
    "plots.cluster": "report.plots.cluster",
    "plots.contention": "studies.plots.contention",
    "plots.damping": "studies.plots.damping",
    "plots.days": "report.plots.days",
    "plots.normalisation": "studies.plots.normalisation",
    "plots.policies": "report.plots.policies",
    "plots.run": "training.plots.run",
    "plots.shadowsync": "report.plots.shadowsync",
    "plots.shat": "studies.plots.shat",
    "plots.stale": "studies.plots.stale",
    "plots.style": "training.plots.style",
    "plots.swap": "studies.plots.swap",
    "plots.switching": "studies.plots.switching",
    "recommenders": "models.recommenders",
    "recordings": "training.recordings",
    "replaying": "training.replaying",
    "report.plots.contention": "studies.plots.contention",
    "report.plots.damping": "studies.plots.damping",
    "report.plots.normalisation": "studies.plots.normalisation",
    "report.plots.shat": "studies.plots.shat",
    "report.plots.stale": "studies.plots.stale",
    "report.plots.swap": "studies.plots.swap",
    "report.plots.switching": "studies.plots.switching",
    "report.switching": "studies.gba",
    "report.switching_page": "report.html_page",
    "report.table": "base.table",
    "restoring": "files.checkpoint",
    "result": "training.result",
    "resuming": "files.resuming",
    "shadowsync": "cluster.shadowsync",
    "shadowsync.study": "studies.study",
    "sharding": "simulation.sharding",
    "shared": "engine.shared",
    "spelled": "training.spelled",
    "stream.columns": "datasets.fields",
    "stream.files": "datasets.files",
    "table_checkpoints": "files.resuming",
    "tables": "models.tables",
    "threads": "training.threads",
    "train": "training.train",
    "tune": "studies.tune",
    "vector": "engine.vector",
}
"""From the old path, below ``leashed``, to the one of now; a folder's files moved with it."""


def install() -> None:
    """Has imports find them. Nothing is imported until it is asked for."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        package, _, old = fullname.partition(".")
        if package != "leashed":
            return None
        new = MOVED.get(old)
        if new is None:
            folder, _, file = old.rpartition(".")
            if folder not in MOVED:
                return None
            new = f"{MOVED[folder]}.{file}"
        return ModuleSpec(fullname, cast("Loader", _Loader(f"leashed.{new}")))


class _Loader:
    """Loads nothing: the module is there, or imported by its own path."""

    def __init__(self, path: str) -> None:
        self._path = path

    def get_code(self, fullname: str) -> CodeType | None:  # noqa: ARG002
        """For ``python -m``."""
        spec = find_spec(self._path)
        return spec.loader.get_code(self._path) if spec and spec.loader else None  # type: ignore[attr-defined]

    def create_module(self, spec: ModuleSpec) -> ModuleType:  # noqa: ARG002
        module = import_module(self._path)
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own  # what imports has set the spec of the old path
