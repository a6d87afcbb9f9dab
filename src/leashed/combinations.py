"""Every update rule under every discipline with every staleness policy: does it train?

Each run ends when the training loss is half of the initial one, or after a while without. What a
pair cannot mean is an error before any run, and its message stands in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from leashed import staleness
from leashed.datasets import Split
from leashed.disciplines import Discipline, Hogwild, Leashed, Locked, Sequential, Synchronous
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
from leashed.scaling import build_model
from leashed.staleness import Policy
from leashed.stopping import Until
from leashed.train import train

__all__ = ["DISCIPLINES", "POLICIES", "RULES", "Outcome", "combinations", "page"]

FRACTION = 0.5
_SWAP_PERIOD = 100

RULES: dict[str, Callable[[], Rule]] = {
    "SGD": lambda: SGD(0.05),
    "Momentum": lambda: Momentum(0.005),
    "Nesterov": lambda: Nesterov(0.005),
    "Adagrad": lambda: Adagrad(0.005),
    "RMSprop": lambda: RMSprop(0.0005),
    "Adam": lambda: Adam(0.001),
    "AdamW": lambda: AdamW(0.001),
    "SWAP(Adagrad)": lambda: SWAP(Adagrad(0.005), _SWAP_PERIOD),
    "SWAP(RMSprop)": lambda: SWAP(RMSprop(0.0005), _SWAP_PERIOD),
    "SWAP(Adam)": lambda: SWAP(Adam(0.001), _SWAP_PERIOD),
    "SWAP(SGD)": lambda: SWAP(SGD(0.05), _SWAP_PERIOD),
    "SWAP(Momentum)": lambda: SWAP(Momentum(0.005), _SWAP_PERIOD),
    "SWAP(Nesterov)": lambda: SWAP(Nesterov(0.005), _SWAP_PERIOD),
}
DISCIPLINES: tuple[Discipline, ...] = (
    Sequential(),
    Synchronous(),
    Locked(),
    Hogwild(),
    Leashed(),
    Leashed(1),
)
# The baseline cluster is a small one: with 1,000 workers nothing here would be stale.
POLICIES: tuple[Policy, ...] = (
    staleness.none(),
    staleness.inverse(),
    staleness.power(2),
    staleness.normalized(2, 2),
    staleness.normalized_as_printed(2, 2),
    staleness.tau_normalized(2, 1),
    staleness.tau_normalized_short(1),
    staleness.stage_aware(staleness.inverse()),
    staleness.cutoff(4),
    staleness.tail_tau(warmup=50),
    staleness.fleet(),
    staleness.mindthestep(),
    staleness.table([1.0, 0.9, 0.5, 0.25]),
)


_CELLS = (
    f"Each cell is the number of updates after which the training loss was at most "
    f"{100 * FRACTION:g}% of the initial one; *diverged* or *crashed* where it never was. "
    "Under `SYNC` one update takes a gradient of every thread, so it needs fewer."
)


@dataclass(frozen=True)
class Outcome:
    """Of one combination.

    Attributes:
        rule: its name in ``RULES``.
        discipline: its label.
        policy: its label.
        outcome: of the run; ``converged`` where the loss was halved.
        updates: until then, or in all.
        staleness: mean of the run's updates.
    """

    rule: str
    discipline: str
    policy: str
    outcome: str
    updates: float
    staleness: float


def meaningless() -> dict[str, str]:
    """The rules that cannot be made, and why."""
    found = {}
    for name, make in RULES.items():
        try:
            make()
        except (TypeError, ValueError) as error:
            found[name] = str(error)
    return found


def combinations(
    data: Split, threads: int, batch_size: int, seconds: float, rules: Sequence[str] | None = None
) -> Iterator[Outcome]:
    """Trains Table II's MLP with every combination that has a meaning, one after the other.

    Args:
        data: the data set; the test set is not used.
        threads: of all disciplines but ``Sequential``.
        batch_size: examples per gradient.
        seconds: most per run.
        rules: names of ``RULES``. Default: all.

    Raises:
        ValueError: an argument is out of range.
    """
    model = build_model("mlp", data.train)
    without = meaningless()
    for name in RULES if rules is None else rules:
        if name in without:
            continue
        for policy in POLICIES:
            for discipline in DISCIPLINES:
                result = train(
                    model,
                    data.train,
                    until=Until(loss_fraction=FRACTION, seconds=seconds),
                    discipline=discipline,
                    rule=RULES[name](),
                    staleness=policy,
                    threads=1 if isinstance(discipline, Sequential) else threads,
                    batch_size=batch_size,
                )
                yield Outcome(
                    name,
                    discipline.label,
                    policy.label,
                    result.outcome if result.reason != "interrupted" else "interrupted",
                    result.updates_to(FRACTION),
                    result.staleness.mean(),
                )
                if result.reason == "interrupted":
                    return


def page(outcomes: Sequence[Outcome], produced: str) -> str:
    """The table as Markdown.

    Args:
        outcomes: of ``combinations``.
        produced: a sentence that says how.
    """
    lines = [
        "# Update rules × disciplines × staleness policies",
        "",
        produced,
        "",
        _CELLS,
    ]
    reached = sum(o.outcome == "converged" for o in outcomes)
    lines += ["", f"{reached} of {len(outcomes)} runs got there.", ""]
    for rule in dict.fromkeys(o.rule for o in outcomes):
        here = [o for o in outcomes if o.rule == rule]
        columns = list(dict.fromkeys(o.discipline for o in here))
        lines += [f"## {rule}", "", "| policy | " + " | ".join(columns) + " |"]
        lines.append("| --- |" + " ---: |" * len(columns))
        for policy in dict.fromkeys(o.policy for o in here):
            cells = {o.discipline: _cell(o) for o in here if o.policy == policy}
            row = " | ".join(cells.get(column, "") for column in columns)
            lines.append(f"| {policy} | {row} |")
        lines.append("")
    lines += ["## Pairs without a meaning", "", "| pair | what it says |", "| --- | --- |"]
    lines += [f"| {name} | {message} |" for name, message in meaningless().items()]
    return "\n".join(lines) + "\n"


def _cell(outcome: Outcome) -> str:
    if outcome.outcome != "converged":
        return f"*{outcome.outcome}*"
    return f"{outcome.updates:,.0f}"
