"""A run by a mode on threads of this process: its master, and its policy server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster import inside
from cluster.inside import PATIENCE, Run, served

from leashed.cluster import policy_server
from leashed.cluster.session import Cluster
from leashed.training import request


class LedRun:
    """Of so many trainers, which the tests themselves are.

    Attributes:
        error: what the policy server has raised.
    """

    def __init__(
        self, run: Run, model: Any, data: Any, trainers: int, given: dict[str, Any]
    ) -> None:
        unsaid = {"discipline": None, "staleness": None, "seed": 0, "rule": None}
        place = policy_server.Trainers(trainers)
        asked = request.of(model, data, cluster=place, **{**unsaid, **given})
        self._run = run
        self._given = (model, data, given)
        self.led = asked.led(asked.source(1))
        self.error: OSError | ValueError | None = None
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        place = served(self._run._master.address, self._run.folder)
        try:
            policy_server.serve(self.led, 0, place, {})
        except (OSError, ValueError) as error:
            self.error = error

    def cluster(self, index: int = 0, **given: Any) -> Cluster:
        """The place of a trainer."""
        return self._run.cluster(index, policy_servers=1, **given)

    def report(self) -> dict[str, Any]:
        """At the end, which is waited for."""
        return self._run.report()

    def close(self) -> None:
        self._run.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def led(folder: Path, model: Any, data: Any, trainers: int = 1, **given: Any) -> Iterator[LedRun]:
    """Until its end, or this one's; ``given``: of ``lsh.train``, which trainers are to give as well."""
    size = given["batch_size"]
    batches = int(given["until"].rules(len(data), size)["batches"])
    terms = {"total": batches, "batch_size": size, "trainers": trainers, "policy_ps": 1}
    with inside.run(folder, model.dimension, **terms) as run:
        made = LedRun(run, model, data, trainers, given)
        try:
            yield made
        finally:
            made.close()
