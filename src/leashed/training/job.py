"""What is trained, how, and until when, in words: a command's options, and the fields of a plan's file.

Each field of :class:`Job` is an option of ``leashed train``, ``simulate``, ``tune``, ``cluster up``, where it
goes with these, and a field of the table ``[train]`` of a plan. One that is added is one field.
"""

from __future__ import annotations

import shlex
from argparse import ArgumentTypeError
from dataclasses import dataclass, fields
from typing import Any

from leashed.base.options import option
from leashed.models._parameters import INITIALISATIONS
from leashed.rules import RULES, Rule
from leashed.staleness import POLICIES
from leashed.stopping import METRICS, Until
from leashed.training import defaults
from leashed.training.options import EVALUATED_ROWS
from leashed.training.problems import clicks, files, sparse
from leashed.training.problems.files import WHAT
from leashed.training.problems.problem import ProblemWords
from leashed.training.spelled import (
    DISCIPLINE_WORDS,
    MODE_WORDS,
    SCHEDULES,
    discipline_of,
    mode_of,
    rule_of,
    staleness_of,
)

__all__ = ["GROUPS", "LOOK", "RESEARCH", "RULE", "UNTIL", "WHAT", "Job", "threads_of"]

HOW = "threads and batches"
RULE = "update rule"
UNTIL = "stop rules"
LOOK = "while it goes on"
RESEARCH = "for research"

GROUPS = {
    WHAT: "",
    clicks.GROUP: f"{', '.join(clicks.MODELS)}: with --data {clicks.WORD}, from the seed (default), or "
    "--data FILE in Criteo's format",
    sparse.GROUP: "of files (--data) in the libsvm or libffm format, or Criteo's; of the first two also with "
    "--stream",
    files.FILES: "plain, or compressed by gzip or zstd",
    HOW: "",
    RULE: "NAME:key=value,... takes the arguments of the Python class or function",
    UNTIL: "the first to hold ends the run",
    LOOK: "",
    RESEARCH: "how threads share parameters, and what that costs; NAME:key=value,... as above",
}
"""What the help says of groups of options, in its order."""


def threads_of(text: str) -> int | str:
    """A number, or "auto"."""
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise ArgumentTypeError(f'must be a whole number, or "auto", got {text!r}') from None


def rows_of(text: str) -> int | str:
    """A number, or "all"."""
    try:
        return text if text == "all" else int(text)
    except ValueError:
        raise ArgumentTypeError(f'must be a whole number, or "all", got {text!r}') from None


@dataclass(frozen=True, kw_only=True)
class Job(ProblemWords):
    """A training in words, each of which ``leashed train --help`` explains."""

    discipline: str | None = option(
        None,
        f"how threads share the parameters: one of {', '.join(DISCIPLINE_WORDS)}; such as "
        "leashed:persistence=1, which drops a gradient after more than one failed attempt "
        "(default: leashed)",
        group=RESEARCH,
        metavar="NAME[:...]",
    )
    mode: str | None = option(
        None,
        "in place of a discipline: workers of a parameter server, or peers; of "
        f"{', '.join(MODE_WORDS)}, such as gba:m=8,iota=4; with term=SECONDS a batch that has not "
        "come back by then goes to another worker",
        group=RESEARCH,
        metavar="NAME[:...]",
    )
    threads: int | str | None = option(
        None,
        'a number, or "auto": as many as are fastest here (default: all processors)',
        group=HOW,
        type=threads_of,
    )
    batch_size: int | None = option(
        None,
        f"default: with --resume that of then; else {defaults.BATCH_SIZE}, or all rows of fewer; "
        "of models of clicks without a stop rule so few that the epoch makes "
        f"{defaults.LEAST_UPDATES:,} updates",
        group=HOW,
    )
    init: str | None = option(
        None,
        "initialisation (default: he; glorot of models of clicks)",
        choices=INITIALISATIONS,
        group=HOW,
    )
    evaluate_every: float | None = option(
        None,
        "between evaluations of the loss (default: so that they take a tenth of a thread)",
        group=LOOK,
        metavar="SECONDS",
    )
    evaluate_rows: int | str = option(
        EVALUATED_ROWS,
        "evaluations of the training set, and stop rules on its loss, are of at most so many of its rows, "
        'evenly over all; "all": of all',
        group=LOOK,
        metavar="N",
        type=rows_of,
    )
    rule: str | None = option(
        None,
        f"one of {', '.join(RULES)}; such as adam:beta1=0.8,clip_norm=1 (default: sgd; "
        "adagrad of models of clicks)",
        group=RULE,
        metavar="NAME[:...]",
    )
    lr: float | None = option(
        None,
        f"step size; default: {', '.join(f'{kind.LR:g} for {name}' for name, kind in RULES.items())}"
        f"; of models of clicks {defaults.RATES[False]:g}, {defaults.RATES[True]:g} if ids come often, "
        f"{defaults.RATES[None]:g} of days, and of what nobody has counted",
        group=RULE,
    )
    schedule: tuple[str, ...] = option(
        (),
        f"of the step size, one of {', '.join(SCHEDULES)}; such as cosine:total=1000. "
        "A second one, warmup or scaled, changes the first",
        group=RULE,
        metavar="NAME:...",
        action="append",
    )
    swap: str | None = option(
        None,
        "decay the accumulated squares of "
        f"{', '.join(name for name, kind in RULES.items() if kind.SQUARES)} every T updates",
        group=RESEARCH,
        metavar="period=T[,decay=L,as_printed=true]",
    )
    staleness: str = option(
        "none",
        "what a gradient is multiplied by for its staleness: one of "
        f"{', '.join(POLICIES)}; such as power:k=2",
        group=RESEARCH,
        metavar="NAME[:...]",
    )
    stage_aware: float | None = option(
        None,
        "count staleness by sigmoid(LAMBDA |last update|) of each variable, and of each row",
        group=RESEARCH,
        metavar="LAMBDA",
    )
    loss_fraction: float | None = option(None, "loss at most this times the initial", group=UNTIL)
    loss: float | None = option(None, "loss at most this", group=UNTIL)
    updates: int | None = option(None, "so many updates published", group=UNTIL)
    epochs: float | None = option(None, "so many passes over the training set", group=UNTIL)
    seconds: float | None = option(None, "so much time", group=UNTIL)
    divergence: float | None = option(None, "loss at least this times the initial", group=UNTIL)

    patience: int | None = option(
        None,
        "so many passes over the training set without a better --metric of the test set; what comes of it "
        "is the best state",
        group=UNTIL,
        metavar="PASSES",
    )
    metric: str | None = option(
        None,
        f"with --patience: one of {', '.join(METRICS)} that the model has (default: loss)",
        group=UNTIL,
        metavar="NAME",
    )

    @property
    def of_clicks(self) -> bool:
        """Whether it is a model of clicks, which has defaults of its own."""
        return self.model in clicks.MODELS

    def choices(self, before: str = "--") -> dict[str, Any]:
        """How it is trained, as arguments of ``lsh.train``.

        Raises:
            TypeError, ValueError: words stand for nothing; the message says which, with ``before``.
        """
        return {
            "discipline": self.discipline and discipline_of(self.discipline, before),
            "mode": self.mode and mode_of(self.mode, f"{before}mode"),
            "rule": rule_of(self, before, defaults.rule(of_clicks=self.of_clicks)),
            "staleness": staleness_of(self, before),
            **{name: getattr(self, name) for name in ("threads", "batch_size", "seed", "init")},
        }

    def rule_on(self, often: bool | None) -> Rule:
        """The rule by which a model is trained on rows whose ids come so (``defaults.Seen``)."""
        return rule_of(self, default=defaults.rule(of_clicks=self.of_clicks, often=often))

    def evaluations(self) -> dict[str, Any]:
        """How often, and of how many rows, as arguments of ``lsh.Observe``."""
        rows = None if self.evaluate_rows == "all" else self.evaluate_rows
        return {"every": self.evaluate_every, "rows": rows}

    def command(self) -> str:
        """``leashed train`` of it."""
        words = ["leashed", "train"]
        for item in fields(self):
            if (value := getattr(self, item.name)) != item.default:
                for one in value if isinstance(value, tuple) else (value,):
                    option = f"--{item.name.replace('_', '-')}"
                    words += [option] if one is True else [option, str(one)]
        return shlex.join(words)

    def until(self, epochs: float | None) -> Until | None:
        """When it ends; where no field says, after so many epochs, or as such models end (None)."""
        rules = {item.name: getattr(self, item.name) for item in fields(Until)}
        if all(value is None for value in rules.values()):
            if epochs is None:
                return None
            rules["epochs"] = epochs
        return Until(**rules)
