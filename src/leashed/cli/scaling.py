"""``leashed bench scaling``."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leashed import simulation
from leashed.base.table import duration, number, percent
from leashed.cli import study
from leashed.cli.arguments import add_data, listed, load_data
from leashed.models._parameters import INITIALISATIONS
from leashed.report import summary
from leashed.report.scaling import Scaling
from leashed.studies import scaling
from leashed.studies.plan import PIXELS
from leashed.studies.runs import Run
from leashed.training import spelled
from leashed.training.progress import tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leashed.cli.arguments import Commands
    from leashed.datasets import Dataset

_PLAN = scaling.Plan()
_WORDS = {label: spelled.word_of(made) for label, made in scaling.DISCIPLINES.items()}


def add(benchmarks: Commands) -> None:
    """Add the command."""
    parser = benchmarks.add_parser(
        "scaling",
        help="the paper's comparison of all algorithms over thread counts",
        description="Run SEQ, SYNC, ASYNC, HOG, LSH_ps∞, LSH_ps1 and LSH_ps0 over thread counts, "
        "step sizes and repeats, and print the comparison of the Leashed-SGD paper. "
        f"{study.STATUSES}",
    )
    add_data(parser)
    parser.add_argument(
        "--preset",
        choices=sorted(scaling.PRESETS),
        help="a step of the paper's Table I; other arguments override its settings",
    )
    parser.add_argument(
        "--short",
        action="store_true",
        default=None,
        help="the preset in ten minutes; what it leaves out is told",
    )
    plan = parser.add_argument_group("plan", "lists are separated by commas")
    plan.add_argument("--model", type=listed(str), help=_help(_PLAN.model))
    plan.add_argument(
        "--algorithm",
        type=_algorithms,
        metavar="NAME[:...],...",
        help=f"of {', '.join(_WORDS.values())}; default: all",
    )
    plan.add_argument("--threads", type=listed(int), help=_help(_PLAN.threads))
    plan.add_argument(
        "--max-threads", type=int, help="leave out thread counts above this, and say which"
    )
    plan.add_argument(
        "--epsilon",
        type=listed(float),
        help=f"precisions, as fractions of the initial loss; {_help(_PLAN.epsilon)}",
    )
    plan.add_argument("--lr", type=listed(float), help=_help(_PLAN.lr))
    plan.add_argument("--repeats", type=int, help=_help(_PLAN.repeats))
    plan.add_argument("--batch-size", type=int, help=_help(_PLAN.batch_size))
    plan.add_argument(
        "--seconds",
        type=float,
        help=f"most per run; what it ends is unfinished; {_help(_PLAN.seconds)}",
    )
    plan.add_argument(
        "--cap",
        type=float,
        metavar="T_C",
        help="with --virtual, most per run in times of a gradient, in place of --seconds; "
        f"{_help(_PLAN.cap)}",
    )
    plan.add_argument("--seed", type=int, help=_help(_PLAN.seed))
    plan.add_argument("--init", choices=INITIALISATIONS, help=_help(_PLAN.init))
    plan.add_argument(
        "--pixels",
        type=int,
        choices=PIXELS,
        help="what white is: 1, or 255 as in the presets; " + _help(_PLAN.pixels),
    )
    plan.add_argument(
        "--isolated",
        action=argparse.BooleanOptionalAction,
        help="each run in a process of its own, so that its memory is its own (default: in S5)",
    )
    plan.add_argument(
        "--evaluate-every",
        type=float,
        metavar="SECONDS",
        help="between evaluations of the loss (default: so that they take a tenth of a thread)",
    )
    plan.add_argument(
        "--virtual",
        action="store_true",
        help="in virtual time: real gradients and updates by one thread, of as many as --threads "
        "says, whose T_c and T_u are measured here with one thread, or given; "
        "each ends after --cap T_c",
    )
    plan.add_argument(
        "--costs",
        type=listed(float),
        metavar="T_C,T_U,COPY",
        help="with --virtual and one model: seconds of a gradient, an update and a copy",
    )
    study.add_arguments(parser)
    parser.set_defaults(command=_scaling)


def _help(default: object) -> str:
    shown = ",".join(str(v) for v in default) if isinstance(default, tuple) else str(default)
    return f"default: {shown}"


def _algorithms(text: str) -> tuple[str, ...]:
    """Their names in the paper, of disciplines as they are spelled everywhere, or of these names."""
    words = [_WORDS.get(one.replace("inf", "∞"), one) for one in spelled.listed(text)]
    if (now := ",".join(words)) != text.replace(" ", ""):
        tell(f"leashed: --algorithm {text} is spelled --algorithm {now} now")
    try:
        return tuple(spelled.discipline_of(one).label for one in words)
    except (TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("--discipline ")) from None


def _plan(options: argparse.Namespace) -> scaling.Plan:
    if options.short and options.preset is None:
        raise ValueError(f"--short goes with --preset, one of {', '.join(scaling.SHORT)}")
    presets = scaling.SHORT if options.short else scaling.PRESETS
    base = presets[options.preset] if options.preset else _PLAN
    given: dict[str, Any] = {
        item.name: value
        for item in dataclasses.fields(scaling.Plan)
        if item.name != "costs" and (value := getattr(options, item.name)) is not None
    }
    plan = dataclasses.replace(base, **given)
    if options.max_threads is not None:
        plan, cut = plan.capped(options.max_threads)
        if cut:
            left_out = ", ".join(str(m) for m in cut)
            tell(f"left out: m = {left_out} (more than --max-threads {options.max_threads})")
    return plan


def _scaling(options: argparse.Namespace) -> int:
    kept = study.kept_of(options, Scaling.parsed)
    if options.costs is not None and not options.virtual:
        raise ValueError("--costs goes with --virtual")
    if options.virtual and options.seconds is not None:
        raise ValueError("--seconds is of real threads; with --virtual --cap says how many T_c")
    if options.cap is not None and not options.virtual:
        raise ValueError("--cap goes with --virtual; --seconds is of real threads")
    plan, data = _plan(options), load_data(options).train
    if options.virtual:
        plan = _virtual(plan, data, options.costs, kept.records)
    return study.perform(
        Scaling(plan),
        options,
        kept,
        data,
        announced=lambda left: _announce(plan, data, left),
        ended=lambda run, name: tell(f"{name}: {_ended(run)}"),
        write=_write,
    )


def _write(path: Path, runs: Sequence[Run]) -> None:
    from leashed.report import page  # noqa: PLC0415 (matplotlib is optional)

    for line in page.write(runs, path):
        tell(f"not drawn: {line}")


def _virtual(
    plan: scaling.Plan,
    data: Dataset,
    given: tuple[float, ...] | None,
    runs: Sequence[Run],
) -> scaling.Plan:
    """The plan with its models' costs: those given, of the runs that are there, or measured."""
    if given is not None:
        if len(given) != 3 or len(plan.model) != 1:
            raise ValueError("costs must be three numbers of seconds, and --model one network")
        return dataclasses.replace(plan, costs=(given,))
    if runs:
        costs = runs[0].result.config.get("costs", ())
        if not costs:
            raise ValueError("--virtual: the runs that are there are of real threads")
        return dataclasses.replace(plan, costs=costs)
    measured = []
    for name in plan.model:
        costs = simulation.measure(
            scaling.build_model(name, data), data, batch_size=plan.batch_size
        )
        tell(
            f"{name}: T_c {duration(costs.compute)}, T_u {duration(costs.update)}, "
            f"copy {duration(costs.copy)}"
        )
        measured.append(dataclasses.astuple(costs))
    return dataclasses.replace(plan, costs=tuple(measured))


def _announce(plan: scaling.Plan, data: Dataset, left: int) -> None:
    """What is going to run, and for how long at most."""
    if plan.preset is not None:
        tell(summary.preset(plan.preset, plan.short, plan.departures()))
    steps = ", ".join(f"{lr:g}" for lr in plan.lr)
    tell(
        f"{summary.data_set(data.name, len(data))}, pixels 0…{plan.pixels}, batch "
        f"{plan.batch_size}, initialisation {plan.init}, η = {steps}"
    )
    total = len(plan.settings())
    runs = f"{total} runs" if left == total else f"{left} runs left of {total}"
    if plan.costs:
        tell(f"{runs}, in virtual time")
        return
    hours = left * plan.seconds / 3600.0
    longest = f"{number(hours)} hours" if hours >= 2.0 else f"{number(60.0 * hours)} minutes"
    tell(f"{runs}, of at most {plan.seconds:g} s each: {longest} at most")


def _ended(run: Run) -> str:
    smallest = run.fractions[-1]
    seconds = run.result.seconds_to(smallest)
    outcome = run.outcome(smallest)
    if outcome == "converged":
        return f"{percent(smallest)} after {number(seconds)} s"
    return f"{outcome} after {number(run.result.elapsed)} s, loss {number(run.result.final_loss)}"
