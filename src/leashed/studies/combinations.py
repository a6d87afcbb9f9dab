"""Every update rule under every discipline with every staleness policy: does it train?

Each run ends when the training loss is half of the initial one, or after a while without. What a
pair cannot mean is an error before any run, and its message stands in the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from leashed import disciplines, staleness
from leashed.base import checks
from leashed.base.table import Table
from leashed.datasets import Split
from leashed.disciplines import Discipline, Leashed, Sequential
from leashed.rules import RULES as KINDS
from leashed.rules import SWAP, Rule, Stepping
from leashed.staleness import Policy
from leashed.stopping import Until
from leashed.studies.plan import build_model
from leashed.studies.study import GoOn, Part, Record, Study, option, revived, unbroken
from leashed.training.doubts import ends_are_told
from leashed.training.train import train

__all__ = [
    "DISCIPLINES",
    "POLICIES",
    "RULES",
    "Combinations",
    "Outcome",
    "combinations",
    "merged",
    "page",
]

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


def _known(name: str, rule: str) -> None:
    if rule not in RULES:
        raise ValueError(f"{name}: {rule!r} is unknown; choose of {', '.join(RULES)}")


@dataclass(frozen=True)
class Combinations(Study):
    """Table II's MLP, trained with every combination that has a meaning.

    Args:
        rules: names of ``RULES``.
        threads: of all disciplines but ``Sequential``.
        batch_size: examples per gradient.
        seconds: most per run.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    NAME: ClassVar[str] = "combinations"
    TITLE: ClassVar[str] = "Update rules × disciplines × staleness policies"

    rules: tuple[str, ...] = option(tuple(RULES), f"of {', '.join(RULES)}", _known)
    threads: int = option(4, "of all disciplines but SEQ", checks.whole)
    batch_size: int = option(64, "examples of a gradient", checks.whole)
    seconds: float = option(20.0, "most per run", checks.seconds)

    def settings(self) -> list[Record]:
        without = meaningless()
        return [
            {"rule": rule, "policy": policy.label, "discipline": discipline.label}
            for rule in self.rules
            if rule not in without
            for policy in POLICIES
            for discipline in DISCIPLINES
        ]

    @classmethod
    def of(cls, records: Sequence[Record]) -> Combinations:
        rules = tuple(dict.fromkeys(record["setting"]["rule"] for record in records))
        conditions = records[0]["conditions"]
        return cls(rules, *(conditions[name] for name in ("threads", "batch_size", "seconds")))

    @ends_are_told()
    def measure(self, setting: Record, data: Split, go_on: GoOn) -> Outcome:  # noqa: ARG002
        discipline = next(one for one in DISCIPLINES if one.label == setting["discipline"])
        result = unbroken(
            train(
                build_model("mlp", data.train),
                data.train,
                until=Until(loss_fraction=FRACTION, seconds=self.seconds),
                discipline=discipline,
                rule=RULES[setting["rule"]](),
                staleness=next(one for one in POLICIES if one.label == setting["policy"]),
                threads=1 if isinstance(discipline, Sequential) else self.threads,
                batch_size=self.batch_size,
            )
        )
        updates = result.updates_to(FRACTION)
        return Outcome(
            setting["rule"],
            setting["discipline"],
            setting["policy"],
            result.outcome,
            updates,
            float(result.updates[result.updates < updates].max(initial=0)),
            result.staleness.mean(),
        )

    def parts(self, records: Sequence[Record]) -> list[Part]:
        outcomes = _outcomes(records)
        said = [[name, message] for name, message in meaningless().items()]
        reached = sum(o.outcome == "converged" for o in outcomes)
        return [
            Part("", None, f"{produced(records)} {_CELLS} {_got_there(reached, len(outcomes))}"),
            *(Part(rule, _table(outcomes, rule)) for rule in self.rules if _has(outcomes, rule)),
            Part(_WITHOUT, Table(["pair", "what it says"], said)),
        ]

    def text(self, records: Sequence[Record]) -> str:
        """The page as Markdown."""
        return page(_outcomes(records), produced(records)).rstrip("\n")


def _outcomes(records: Sequence[Record]) -> list[Outcome]:
    return [revived(Outcome, record["measured"]) for record in records]


def produced(records: Sequence[Record]) -> str:
    """How records were made, in a sentence."""
    made = records[0]["conditions"]
    option = "" if made["data"].startswith("synthetic") else " --data <folder of MNIST>"
    return (
        f"Table II's MLP on {made['data']}, {made['examples']:,} examples, batches of "
        f"{made['batch_size']}, {made['threads']} threads (`SEQ`: 1), on {made['cpu']} "
        f"({made['cores']} cores), leashed {made['version']}. Written by `leashed bench combinations"
        f"{option} --threads {made['threads']} --batch-size {made['batch_size']}`, not typed."
    )


def combinations(
    data: Split, threads: int, batch_size: int, seconds: float, rules: Sequence[str] | None = None
) -> Iterator[Outcome]:
    """Trains with every combination that has a meaning, one after the other.

    Args:
        data: the data set; the test set is not used.
        threads: of all disciplines but ``Sequential``.
        batch_size: examples per gradient.
        seconds: most per run.
        rules: names of ``RULES``. Default: all.

    Raises:
        ValueError: an argument is out of range.
    """
    asked = tuple(RULES) if rules is None else tuple(rules)
    study = Combinations(asked, threads, batch_size, seconds)
    for setting in study.settings():
        yield study.measure(setting, data, lambda _: None)


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
        table = _table(outcomes, rule)
        lines += [f"## {rule}", "", f"| {' | '.join(table.header)} |"]
        lines.append("| --- |" + " ---: |" * (len(table.header) - 1))
        lines += [f"| {' | '.join(row)} |" for row in table.rows]
        lines.append("")
    lines += [f"## {_WITHOUT}", "", "| pair | what it says |", "| --- | --- |"]
    lines += [f"| {name} | {message} |" for name, message in meaningless().items()]
    return "\n".join(lines) + "\n"


def _has(outcomes: Sequence[Outcome], rule: str) -> bool:
    return any(o.rule == rule for o in outcomes)


def _table(outcomes: Sequence[Outcome], rule: str) -> Table:
    here = [o for o in outcomes if o.rule == rule]
    columns = list(dict.fromkeys(o.discipline for o in here))
    rows = []
    for policy in dict.fromkeys(o.policy for o in here):
        cells = {o.discipline: _cell(o) for o in here if o.policy == policy}
        rows.append([policy, *(cells.get(column, "") for column in columns)])
    return Table(["policy", *columns], rows)


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
        if cell.strip()
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
