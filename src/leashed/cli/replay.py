"""``leashed replay``."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leashed.base.table import columns, found, number, pairs
from leashed.cli.arguments import add_counting, add_fields, given
from leashed.training import recordings
from leashed.training.job import GROUPS
from leashed.training.options import Observe
from leashed.training.problems import clicks, sparse
from leashed.training.problems.problem import MODELS, ProblemWords, problem_of
from leashed.training.replaying import Applied, Replay, replay_of

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands


# What is trained is in the trace.
_OF_TRACE = (
    "model",
    "seed",
    "factors",
    "l2",
    "table_mib",
    "admit_after",
    "evict",
    "dropout",
    "norm",
)


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "replay",
        help="make a recorded run again",
        description="Make a run again, by one thread, that 'leashed train --record' has recorded: "
        "bit for bit, but under Hogwild. The data are told as 'leashed train' was told them. Exit "
        "status: 0; 1 if its end is not the recorded one; 2 for a wrong argument, or a trace that is "
        "damaged or of other data.",
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="the file that was recorded")
    parser.add_argument(
        "--model",
        choices=MODELS,
        help="as whose the data are read (default: that of the trace)",
    )
    add_fields(parser, ProblemWords, leave=_OF_TRACE, hidden=("days",), groups=GROUPS)
    parser.add_argument(
        "--until",
        type=_update,
        metavar="update=N",
        help="stop after the N-th update from the run's beginning (default: the last recorded)",
    )
    parser.add_argument(
        "--inspect",
        metavar="LAYER",
        help="tell of a layer, such as 0, or one of its variables, such as 0.weight: its values, "
        "the last gradient and what it changed",
    )
    add_counting(parser)
    parser.set_defaults(command=_replay)


def _update(text: str) -> int:
    name, _, value = text.partition("=")
    if name != "update" or not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not update=N")
    return int(value)


def _replay(options: argparse.Namespace) -> int:
    opened = recordings.opened(options.trace)
    made = replay_of(
        options.trace,
        opened,
        data=_data(options, opened[1].config),
        until=options.until,
        inspect=options.inspect,
        observe=Observe(counting=options.counting),
    )
    inspected = [] if options.inspect is None else made.inspect(options.inspect)
    print(pairs(_summary(made, options.until), columns()))
    for one in inspected:
        shape = "×".join(map(str, one.shape))
        told = [f"norm {number(one.norm)}", f"mean {number(one.mean)}"]
        told += [f"{number(one.least)} to {number(one.most)}"]
        if one.not_finite:
            told.append(f"{one.not_finite:,} not finite")
        print(f"{one.name} [{shape}]: {', '.join(told)}")
    return 1 if made.ended and made.exact and made.difference != 0 else 0


def _data(options: argparse.Namespace, config: Mapping[str, Any]) -> Any:
    """What was trained on; None: what ``replay`` takes then."""
    words = given(options, ProblemWords)
    if "days" in words:
        raise ValueError("--days goes without --record, so there is no trace of it; leave it out")
    name = config.get("model")
    if not words and name not in (*clicks.MODELS, *sparse.MODELS):
        return None
    of_trace = {"seed": config.get("seed", 0), **({"model": name} if name in MODELS else {})}
    return problem_of(ProblemWords(**{**of_trace, **words})).train


def _summary(made: Replay, until: int | None) -> list[tuple[str, str]]:
    config = made.config
    counts = made.counts
    rows = "" if config["examples"] is None else f", {config['examples']:,} examples"
    return [
        ("model", f"{config['model']}, d = {config['dimension']:,}"),
        ("data", f"{config['data']}{rows}"),
        ("algorithm", f"{config['discipline']}, m = {config['threads']}, {config['isa']}"),
        ("updates", f"{made.updates:,}"),
        ("left out", f"{counts['dropped']:,} gradients dropped, {counts['excluded']:,} too stale"),
        *((name.replace("_", " "), found(value)) for name, value in made.observed.items()),
        ("last", _last(made.applied)),
        ("end", _end(made, until)),
    ]


def _last(applied: tuple[Applied, ...]) -> str:
    if not applied:
        return "none"
    more = f"; and {len(applied) - 1} more" if len(applied) > 1 else ""
    return _applied(applied[0]) + more


def _applied(last: Applied) -> str:
    parts = f"τ = {last.staleness} (τᶜ {last.staleness_compute}, τˢ {last.staleness_schedule})"
    return (
        f"worker {last.worker}, batch {last.batch:,}, read version {last.read:,}, {parts}, "
        f"{last.tries} failed attempts, factor {last.factor:g}, loss {number(last.loss)}"
    )


def _end(made: Replay, until: int | None) -> str:
    if not made.ended and until is not None:
        return "not reached"
    if not made.ended:
        return "not recorded: the run was killed, failed or still goes on"
    if made.difference == 0:
        return "the recorded one, bit for bit"
    if math.isinf(made.difference):
        return "not the recorded one: rows of tables are others"
    return f"max |Δθ| = {made.difference:.3g} against the recorded one"
