"""Every update rule under every discipline with every staleness policy: does it train?

Each run ends when the training loss is half of the initial one, or after a while without. What a
pair cannot mean is an error before any run, and its message stands in the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from leashed import disciplines, staleness
from leashed.datasets import Split
from leashed.disciplines import Discipline, Leashed, Sequential
from leashed.rules import RULES as KINDS
from leashed.rules import SWAP, Rule, Stepping
from leashed.staleness import Policy
from leashed.stopping import Until
from leashed.studies.scaling import build_model
from leashed.training.doubts import ends_are_told
from leashed.training.train import train

__all__ = ["DISCIPLINES", "POLICIES", "RULES", "Outcome", "combinations", "merged", "page"]

FRACTION = 0.5
_SWAP_PERIOD = 10  # several within a run
_WITHOUT = "Pairs without a meaning"


def _plain(kind: type[Stepping]) -> Callable[[], Rule]:
    return lambda: kind(kind.SHARED_LR)


def _swapped(kind: type[Stepping]) -> Callable[[], Rule]:
    return lambda: SWAP(kind(kind.SHARED_LR), _SWAP_PERIOD)


# SWAP over each native rule, whether that has a meaning or not.
RULES: dict[str, Callable[[], Rule]] = {
    **{kind.__name__: _plain(kind) for kind in KINDS.values()},
    **{
        f"SWAP({kind.__name__})": _swapped(kind)
        for name, kind in KINDS.items()
        if name == kind.NATIVE
    },
}
DISCIPLINES: tuple[Discipline, ...] = (*disciplines.DISCIPLINES.values(), Leashed(1))
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
    f"{100 * FRACTION:g}% of the initial one, or two numbers between which it is where not every "
    "update's parameters were seen; *unfinished*, *diverged* or *crashed* where it never was. "
    f"SWAP's period is {_SWAP_PERIOD} updates. "
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
        updates: until then; NaN where it did not.
        above: after so many updates the loss was last seen above its half; NaN likewise.
        staleness: mean of the run's updates.
    """

    rule: str
    discipline: str
    policy: str
    outcome: str
    updates: float
    above: float
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
                with ends_are_told():
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
                updates = result.updates_to(FRACTION)
                yield Outcome(
                    name,
                    discipline.label,
                    policy.label,
                    result.outcome if result.reason != "interrupted" else "interrupted",
                    updates,
                    float(result.updates[result.updates < updates].max(initial=0)),
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
    lines += ["", _got_there(reached, len(outcomes)), ""]
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
    lines += [f"## {_WITHOUT}", "", "| pair | what it says |", "| --- | --- |"]
    lines += [f"| {name} | {message} |" for name, message in meaningless().items()]
    return "\n".join(lines) + "\n"


def _got_there(reached: int, runs: int) -> str:
    return f"{reached} of {runs} runs got there."


def merged(before: str, new: str) -> str:
    """Two pages as one: the rules of the new one in place of the same of the one before, or added.

    Raises:
        ValueError: they are of other data, threads or batches, or of another machine.
    """
    old_head, *old = before.split("\n## ")
    head, *fresh = new.split("\n## ")
    was, now = (text.split("\n")[2] for text in (old_head, head))
    if _without_version(was) != _without_version(now):
        raise ValueError(f"the page is of another run, {was!r} and not {now!r}; write a new one")
    sections = {part.split("\n")[0]: part.rstrip("\n") for part in (*old, *fresh)}
    without = sections.pop(_WITHOUT)
    rules = sorted(sections, key=list(RULES).index)
    cells = [
        cell.strip()
        for rule in rules
        for row in sections[rule].split("\n")[4:]
        for cell in row.strip("|").split("|")[1:]
    ]
    told = _got_there(sum(not cell.startswith("*") for cell in cells), len(cells))
    lines = old_head.rstrip("\n").split("\n")
    parts = ["\n".join([*lines[:-1], told]), *(sections[rule] for rule in rules), without]
    return "\n\n## ".join(parts) + "\n"


def _without_version(produced: str) -> str:
    return re.sub(r"leashed [^ ]*\. Written", "leashed. Written", produced)


def _cell(outcome: Outcome) -> str:
    if outcome.outcome != "converged":
        return f"*{outcome.outcome}*"
    least = outcome.above + 1
    return (
        f"{outcome.updates:,.0f}"
        if least == outcome.updates
        else f"{least:,.0f} to {outcome.updates:,.0f}"
    )
