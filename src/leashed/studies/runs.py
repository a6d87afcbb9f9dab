"""Training runs beside each other, and the files they are kept in: one result per line."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from leashed.studies import study
from leashed.studies.packed import parsed, unpacked
from leashed.training.result import TrainResult

_PROGRESS = 0.95  # of the initial loss; what is not below it at its end has learnt nothing

ALGORITHMS = ("SEQ", "SYNC", "ASYNC", "HOG", "LSH_ps∞", "LSH_ps1", "LSH_ps0")
"""The paper's names of the disciplines that are compared, in its order."""


@dataclass(frozen=True, eq=False)
class Run:
    """One training run of a comparison: what was asked, as its result's ``config`` has it.

    Attributes:
        algorithm: the paper's name of the discipline, such as ``LSH_ps1``.
        model: name of the network, such as ``mlp``.
        threads: worker threads m.
        lr: step size η.
        batch_size: examples per gradient.
        fractions: the precisions ε asked for, as fractions of the initial loss, largest first;
            empty if the run had none.
        dimension: parameters d of the network.
        result: what came out.
        preset: the step of the paper's Table I that it belongs to, such as ``S2``; None without.
    """

    algorithm: str
    model: str
    threads: int
    lr: float
    batch_size: int
    fractions: tuple[float, ...]
    dimension: int
    result: TrainResult
    preset: str | None = None

    @classmethod
    def of(cls, result: TrainResult) -> Run:
        """The run that gave ``result``.

        Its precisions are ``config["fractions"]`` where a benchmark asked for several, or else
        those of its stop rule.

        Raises:
            ValueError: the result's ``config`` is not one that :func:`leashed.train` wrote.
        """
        config = result.config
        try:
            fractions = config.get("fractions", [])
            if not fractions and "loss_fraction" in config["until"]:
                asked = config["until"]["loss_fraction"]
                fractions = asked if isinstance(asked, (list, tuple)) else [asked]
            return cls(
                algorithm=str(config["discipline"]),
                model=str(config["model"]),
                threads=int(config["threads"]),
                lr=float(config["rule"]["lr"]),
                batch_size=int(config["batch_size"]),
                fractions=tuple(sorted((float(f) for f in fractions), reverse=True)),
                dimension=int(config["dimension"]),
                result=result,
                preset=config.get("preset"),
            )
        except KeyError as error:
            raise ValueError(f"config of the result lacks {error}") from None
        except (TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"config of the result is wrong: {error}") from None

    @classmethod
    def parsed(cls, line: str) -> Run:
        """The run of a result's line of JSON; ValueError where it is none."""
        return cls.of(TrainResult.from_json(line))

    def outcome(self, fraction: float) -> str:
        """How the run ended with regard to the precision ``fraction``.

        ``converged`` if it was reached, and otherwise ``crashed`` (NaN or Inf), ``interrupted`` (by
        the user, so it tells nothing), ``diverged`` (the loss rose past a bound, or is at the end
        not below 0.95 of the initial one) or ``unfinished`` (it is below: time or another limit
        ended the run before it got there).
        """
        result = self.result
        if not math.isnan(result.seconds_to(fraction)):
            return "converged"
        if result.outcome == "crashed":
            return "crashed"
        if result.reason == "interrupted":
            return "interrupted"
        learnt = result.final_loss < _PROGRESS * result.initial_loss
        return "unfinished" if learnt and result.reason != "divergence" else "diverged"


def read(path: str | Path) -> list[Run]:
    """Read a file of results, one line of JSON each, plain or packed by gzip (told by its content);
    empty lines are passed over.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line is wrong (the message has its number), there is none, or the file is
            corrupt as a gzip file.
    """
    runs = list(parsed(unpacked(Path(path)), path, Run.parsed))
    if not runs:
        raise ValueError(f"{path}: no runs")
    return runs


def read_to_append(path: str | Path) -> tuple[list[Run], int]:
    """Read a file of results that others are to be appended to.

    A last line without an end is what a process left that was killed while it wrote; it is passed
    over.

    Returns:
        The runs, and how many bytes of the file hold them.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line is wrong; the message has its number.
    """
    return study.read(Path(path), Run.parsed)
