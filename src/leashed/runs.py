"""Files of training runs: one result per line, each with what the benchmark asked of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from leashed.result import TrainResult

ALGORITHMS = ("SEQ", "SYNC", "ASYNC", "HOG", "LSH_ps∞", "LSH_ps1", "LSH_ps0")
"""The paper's names of the disciplines that are compared, in its order."""

_KEY = "run"


@dataclass(frozen=True, eq=False)
class Run:
    """One training run of a comparison.

    Attributes:
        algorithm: the paper's name of the discipline, such as ``LSH_ps1``.
        model: name of the network, such as ``mlp``.
        threads: worker threads m.
        lr: step size η.
        batch_size: examples per gradient.
        fractions: the precisions ε asked for, as fractions of the initial loss, largest first;
            empty if the run had none.
        repeat: which repetition of the same setting, from 0.
        dimension: parameters d of the network.
        result: what came out.
    """

    algorithm: str
    model: str
    threads: int
    lr: float
    batch_size: int
    fractions: tuple[float, ...]
    repeat: int
    dimension: int
    result: TrainResult

    def outcome(self, fraction: float) -> str:
        """How the run ended with regard to the precision ``fraction``.

        ``converged`` if it was reached, and otherwise ``crashed``, ``interrupted`` (by the user,
        so it tells nothing) or ``diverged``.
        """
        if not math.isnan(self.result.seconds_to(fraction)):
            return "converged"
        if self.result.outcome == "crashed":
            return "crashed"
        return "interrupted" if self.result.reason == "interrupted" else "diverged"

    def to_json(self) -> str:
        """The result as one line of JSON, with the run's other fields under ``config["run"]``."""
        described = {
            item.name: getattr(self, item.name)
            for item in dataclasses.fields(self)
            if item.name != "result"
        }
        config = {**self.result.config, _KEY: described}
        return dataclasses.replace(self.result, config=config).to_json()

    @classmethod
    def from_json(cls, text: str) -> Run:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError: it is no training result, or one that does not say what run it was.
        """
        result = TrainResult.from_json(text)
        if _KEY not in result.config:
            raise ValueError(
                "the result does not say what run it was; "
                "write it with 'leashed train --output' or 'leashed bench scaling --output'"
            )
        described = result.config[_KEY]
        try:
            return cls(**{**described, "fractions": tuple(described["fractions"])}, result=result)
        except (TypeError, KeyError) as error:
            raise ValueError(f"config[{_KEY!r}] is wrong: {error}") from None


def write(runs: Iterable[Run], path: str | Path) -> None:
    """Write runs to a file, one line of JSON each."""
    with Path(path).open("w", encoding="utf-8") as file:
        file.writelines(run.to_json() + "\n" for run in runs)


def read(path: str | Path) -> list[Run]:
    """Read a file of runs, one line of JSON each; empty lines are passed over.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line is wrong (the message has its number), or there is none.
    """
    with Path(path).open(encoding="utf-8") as file:
        runs = list(_parsed(file, str(path)))
    if not runs:
        raise ValueError(f"{path}: no runs")
    return runs


def _parsed(lines: Iterable[str], path: str) -> Iterator[Run]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield Run.from_json(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
