"""``leashed bench scaling``."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leashed import scaling, summary
from leashed.arguments import add_data, listed, load_data
from leashed.models import INITIALISATIONS
from leashed.progress import Line, describe
from leashed.runs import Run
from leashed.table import number, percent
from leashed.train import Progress

if TYPE_CHECKING:
    from leashed.arguments import Commands

_PLAN = scaling.Plan()


def add(benchmarks: Commands) -> None:
    """Add the command."""
    parser = benchmarks.add_parser(
        "scaling",
        help="the paper's comparison of all algorithms over thread counts",
        description="Run SEQ, SYNC, ASYNC, HOG, LSH_ps∞, LSH_ps1 and LSH_ps0 over thread counts, "
        "step sizes and repeats, and print the comparison of the Leashed-SGD paper.",
    )
    add_data(parser)
    parser.add_argument(
        "--preset",
        choices=sorted(scaling.PRESETS),
        help="a step of the paper's Table I; other arguments override its settings",
    )
    plan = parser.add_argument_group("plan", "lists are separated by commas")
    plan.add_argument("--model", type=listed(str), help=_help(_PLAN.model))
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
    plan.add_argument("--seconds", type=float, help=f"most per run; {_help(_PLAN.seconds)}")
    plan.add_argument("--seed", type=int, help=_help(_PLAN.seed))
    plan.add_argument("--init", choices=INITIALISATIONS, help=_help(_PLAN.init))
    plan.add_argument(
        "--evaluate-every",
        type=float,
        metavar="SECONDS",
        help="between evaluations of the loss (default: so that they take a tenth of a thread)",
    )
    parser.add_argument("--output", type=Path, help="write each result to this file, as JSON lines")
    parser.add_argument(
        "--json-lines",
        action="store_true",
        help="print each result as a line of JSON; the tables go to standard error",
    )
    parser.set_defaults(command=_scaling)


def _help(default: object) -> str:
    shown = ",".join(str(v) for v in default) if isinstance(default, tuple) else str(default)
    return f"default: {shown}"


def _plan(options: argparse.Namespace) -> scaling.Plan:
    base = scaling.PRESETS[options.preset] if options.preset else _PLAN
    given: dict[str, Any] = {
        item.name: value
        for item in dataclasses.fields(scaling.Plan)
        if (value := getattr(options, item.name)) is not None
    }
    return dataclasses.replace(base, **given)


def _scaling(options: argparse.Namespace) -> int:
    plan = _plan(options)
    if options.max_threads is not None:
        plan, cut = plan.capped(options.max_threads)
        if cut:
            left_out = ", ".join(str(m) for m in cut)
            print(
                f"left out: m = {left_out} (more than --max-threads {options.max_threads})",
                file=sys.stderr,
            )
    data = load_data(options).train
    total = len(plan.settings())
    print(
        f"{total} runs of at most {plan.seconds:g} s each, "
        f"{number(total * plan.seconds / 60.0)} minutes at most",
        file=sys.stderr,
    )
    line = Line(sys.stderr)
    current = ""

    def started(done: int, setting: scaling.Setting) -> None:
        nonlocal current
        current = f"{done + 1}/{total} {setting}"
        line.show(current)

    def progress(now: Progress) -> None:
        line.show(f"{current}  {describe(now)}")

    finished: list[Run] = []
    interrupted = False
    with contextlib.ExitStack() as stack:
        output = None
        if options.output is not None:
            output = stack.enter_context(options.output.open("w", encoding="utf-8"))
        try:
            for run in scaling.run(plan, data, started=started, progress=progress):
                finished.append(run)
                interrupted = run.result.reason == "interrupted"
                line.clear()
                print(f"{current}: {_ended(run)}", file=sys.stderr)
                text = run.result.to_json()
                if output is not None:
                    output.write(text + "\n")
                    output.flush()
                if options.json_lines:
                    print(text, flush=True)
        except KeyboardInterrupt:  # between two runs
            interrupted = True
    line.clear()
    if finished:
        print(summary.report(finished), file=sys.stderr if options.json_lines else sys.stdout)
    return 130 if interrupted else 0


def _ended(run: Run) -> str:
    smallest = run.fractions[-1]
    seconds = run.result.seconds_to(smallest)
    outcome = run.outcome(smallest)
    if outcome == "converged":
        return f"{percent(smallest)} after {number(seconds)} s"
    return f"{outcome} after {number(run.result.elapsed)} s, loss {number(run.result.final_loss)}"
