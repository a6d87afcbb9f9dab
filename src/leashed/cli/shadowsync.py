"""``leashed bench shadowsync``."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leashed.base import checks
from leashed.base.table import number
from leashed.cli import study
from leashed.cli.arguments import add_data, listed, load_data
from leashed.cluster.shadowsync.figure5 import Figure5
from leashed.cluster.shadowsync.panels import Panels, VirtualFigure6, VirtualFigure8
from leashed.cluster.shadowsync.played import DLRM
from leashed.cluster.shadowsync.quality import Sweep, Table2
from leashed.cluster.shadowsync.scaling import Scaling
from leashed.cluster.shadowsync.served import VirtualServed
from leashed.cluster.shadowsync.timed import Timed
from leashed.cluster.shadowsync.virtual import (
    VirtualFigure5,
    VirtualSweep,
    VirtualTable2,
    VirtualTable2b,
)
from leashed.datasets import ClickSplit, Split, synthetic_clicks, synthetic_digits
from leashed.studies.recommender import CARDINALITY
from leashed.studies.scaling import MODELS
from leashed.studies.study import Record, spelled
from leashed.training.progress import tell

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands

AnyStudy = (
    Figure5
    | Table2
    | Sweep
    | VirtualFigure5
    | VirtualTable2
    | VirtualSweep
    | VirtualFigure6
    | VirtualFigure8
    | VirtualServed
)

_STUDIES: dict[str, type[AnyStudy]] = {study.NAME: study for study in (Figure5, Table2, Sweep)}
_VIRTUAL: dict[str, type[AnyStudy]] = {
    "figure5": VirtualFigure5,
    "table2": VirtualTable2,
    "sweep": VirtualSweep,
    "table2b": VirtualTable2b,
    "figure6": VirtualFigure6,
    "figure8": VirtualFigure8,
    "embedding-servers": VirtualServed,
}
_SHORT = 400.0  # seconds, about, and what a run takes beside its examples
_TESTED = 40_000  # clicks


def add(benchmarks: Commands) -> None:
    """Add the command."""
    parser = benchmarks.add_parser(
        "shadowsync",
        help="the ShadowSync paper's experiments: scaling, sync gap and quality",
        description="Run several trainers and sync servers on this machine: by default Figure 5 of "
        "the ShadowSync paper, examples per second over trainers where the sync servers' links are "
        "limited, beside what bytes over bandwidth predict. "
        f"{study.STATUSES}",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--figure5",
        action="store_const",
        const="figure5",
        dest="study",
        help=f"examples per second over trainers; {_takes(Figure5())} (default)",
    )
    which.add_argument(
        "--table2",
        action="store_const",
        const="table2",
        dest="study",
        help="losses by sync gap, in the background and the foreground, also with a gap that varies "
        f"over time, after one pass; {_takes(Table2())}",
    )
    which.add_argument(
        "--sweep",
        action="store_const",
        const="sweep",
        dest="study",
        help=f"losses over a grid of α, η and momentum, and the best; {_takes(Sweep())}",
    )
    which.add_argument(
        "--table2b",
        action="store_const",
        const="table2b",
        dest="study",
        help=f"Table 2(b), in virtual time; {_takes(VirtualTable2b())}",
    )
    which.add_argument(
        "--figure6",
        "--figure7",
        action="store_const",
        const="figure6",
        dest="study",
        help="Figures 6 and 7, in virtual time: MA and BMUF in the background and at a fixed rate that "
        f"synchronises as often, beside EASGD; {_takes(VirtualFigure6())}",
    )
    which.add_argument(
        "--figure8",
        action="store_const",
        const="figure8",
        dest="study",
        help="Figure 8, in virtual time: losses and examples per second over the threads of a "
        f"trainer; {_takes(VirtualFigure8())}",
    )
    which.add_argument(
        "--embedding-servers",
        action="store_const",
        const="embedding-servers",
        dest="study",
        help="Tables 2 and 3 and Figures 6 to 8, in virtual time, with the rows of the model's tables at "
        f"embedding servers, as many as the paper has; {_takes(VirtualServed())}",
    )
    parser.add_argument(
        "--virtual",
        action="store_true",
        help="--figure5 or --table2 in virtual time, with the paper's numbers of trainers and "
        "threads and real gradients (docs/simulation.md), or --sweep, of which the machine's load is "
        f"then no part; {_takes(VirtualFigure5())}, {_takes(VirtualTable2())} or "
        f"{_takes(VirtualSweep())}",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="with --virtual: all numbers of trainers and five seeds "
        f"({_takes(VirtualFigure5().full())}), or all synchronisers and ten "
        f"({_takes(VirtualTable2().full())})",
    )
    parser.add_argument(
        "--short", action="store_true", help="shorter runs, so that all take ten minutes at most"
    )
    add_data(parser)
    both = parser.add_argument_group("all of them", "lists are separated by commas")
    both.add_argument(
        "--threads",
        type=listed(int),
        help=f"of each trainer, one number but with --figure8; {_default('threads')}",
    )
    both.add_argument("--gaps", type=listed(int), help=f"in the foreground; {_default('gaps')}")
    both.add_argument("--batch-size", type=int, help=_default("batch_size"))
    both.add_argument("--repeats", type=int, help=f"or seeds; {_default('repeats')}")
    both.add_argument(
        "--scale", type=float, help="less than 1: shorter runs, or fewer examples; default: 1"
    )
    scaling = parser.add_argument_group("--figure5")
    scaling.add_argument(
        "--trainers",
        type=listed(int),
        help=f"also, one number, of the others; {_default('trainers')}",
    )
    scaling.add_argument("--servers", type=listed(int), help=f"likewise; {_default('servers')}")
    scaling.add_argument(
        "--pace", type=float, metavar="SECONDS", help=f"of an iteration; {_default('pace')}"
    )
    scaling.add_argument(
        "--bandwidth",
        type=float,
        metavar="BYTES",
        help=f"of each server's link, a second each way; {_default('bandwidth')}",
    )
    scaling.add_argument(
        "--dimension", type=int, help=f"length of the parameters; {_default('dimension')}"
    )
    scaling.add_argument("--plot", type=Path, metavar="FILE", help="draw it (needs matplotlib)")
    quality = parser.add_argument_group("--table2 and --sweep")
    quality.add_argument(
        "--model",
        choices=(*MODELS, DLRM),
        help=f"{_default('model')}; in virtual time mlp, on digits, or {DLRM}, on clicks: default "
        f"there: {DLRM}, but mlp with --figure5 and --sweep",
    )
    quality.add_argument("--kinds", type=listed(str), help=f"synchronisers; {_default('kinds')}")
    quality.add_argument("--lr", type=float, help=_default("lr"))
    quality.add_argument(
        "--examples", type=int, help=f"to draw, without --data; {_default('examples')}"
    )
    quality.add_argument("--seed", type=int, help=f"the first; {_default('seed')}")
    served = parser.add_argument_group("--embedding-servers")
    served.add_argument(
        "--panel",
        type=listed(str),
        metavar="PANEL,...",
        help=f"which of {', '.join(VirtualServed.panel)}; default: all",
    )
    table = parser.add_argument_group("--table2")
    table.add_argument(
        "--varying",
        type=listed(_varying),
        metavar="GAP/GAP...,...",
        help=f"gaps in turn, each for an equal part of the pass; {_default('varying')}",
    )
    grid = parser.add_argument_group("--sweep; α also of --virtual --table2, η of --figure6")
    for name in ("alpha", "eta", "momentum"):
        grid.add_argument(f"--{name}", type=listed(float), help=_default(name))
    virtual = parser.add_argument_group("--virtual")
    virtual.add_argument(
        "--passes",
        type=float,
        help=f"over the data, by all trainers; default: {VirtualFigure5.passes:g}",
    )
    virtual.add_argument(
        "--latency",
        type=float,
        metavar="SECONDS",
        help=f"of a message; default: {VirtualFigure5.latency:g}",
    )
    study.add_arguments(parser)
    parser.set_defaults(command=_shadowsync, study="figure5")


def _takes(study: Timed) -> str:
    return f"about {number(study.seconds() / 60.0, 2)} minutes"


def _varying(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split("/"))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no list of gaps in turn such as 100/30/5"
        ) from None


def _default(name: str) -> str:
    """Of a setting, where it differs by study of each."""
    found: dict[str, str] = {}
    for word, kind in _STUDIES.items():
        for item in dataclasses.fields(kind):
            if item.name == name:
                value: Any = item.default
                shown = ",".join(map(spelled, value)) if isinstance(value, tuple) else str(value)
                found[word] = shown
    if len(set(found.values())) == 1:
        return f"default: {next(iter(found.values()))}"
    return "default: " + ", ".join(f"{value} with --{word}" for word, value in found.items())


def _study(options: argparse.Namespace) -> AnyStudy:
    if options.short and (options.full or options.scale is not None):
        raise ValueError("--short excludes --full and --scale; give one of them")
    virtual = options.virtual or options.study not in _STUDIES
    if options.full and not virtual:
        raise ValueError("--full goes with --virtual")
    if options.full and options.study in ("sweep", "figure6", "figure8", "embedding-servers"):
        raise ValueError(f"--full does not go with --{options.study}")
    kind: type[AnyStudy] = (_VIRTUAL if virtual else _STUDIES)[options.study]
    called = f"--{options.study}" if options.study not in ("table2", "figure5", "sweep") else ""
    called = called or ("--virtual" if virtual else f"--{options.study}")
    fields = {item.name: item for item in dataclasses.fields(kind)}
    kinds = (*_STUDIES.values(), *_VIRTUAL.values())
    known = {item.name for study in kinds for item in dataclasses.fields(study)}
    given: dict[str, Any] = {}
    for name in known:
        value = getattr(options, name, None)
        if value is None:
            continue
        if name not in fields:
            raise ValueError(f"--{name.replace('_', '-')} does not go with {called}")
        if isinstance(value, tuple) and not isinstance(fields[name].default, tuple):
            if len(value) != 1:
                raise ValueError(f"--{name} takes one number with --{options.study}")
            value = value[0]
        given[name] = value
    study = kind(**given)
    if options.full and isinstance(study, VirtualFigure5 | VirtualTable2):
        study = study.full()
    if options.short:
        return study.scaled(min(1.0, _SHORT / study.seconds()))
    if options.scale is None:
        return study
    return study.scaled(checks.real("scale", options.scale, 0.0))


def _data(options: argparse.Namespace, study: AnyStudy) -> Split | ClickSplit | None:
    if isinstance(study, Figure5):
        if options.data is not None:
            raise ValueError("--data does not go with --figure5, whose trainers are paced")
        return None
    if study.model == DLRM:
        if options.data is not None:
            raise ValueError(f"--data does not go with --model {DLRM}, whose clicks are drawn")
        return synthetic_clicks(study.examples, test=_TESTED, cardinalities=CARDINALITY)
    if options.data is None:
        return synthetic_digits(study.examples)
    if options.examples is not None:
        raise ValueError("--examples does not go with --data")
    return load_data(options)


def _shadowsync(options: argparse.Namespace) -> int:
    if options.plot is not None and not options.study.startswith("figure"):
        raise ValueError(f"--plot does not go with --{options.study}")
    kept, asked = study.kept_of(options), _study(options)
    checks.drawable(options.plot)
    total = len(asked.settings())

    def announced(left: int) -> None:
        runs = f"{total} runs" if left == total else f"{left} runs left of {total}"
        tell(f"{runs}, about {number(asked.seconds() / 60.0 * left / total, 2)} minutes")

    def printed(records: Sequence[Record]) -> str:
        if options.plot is not None and isinstance(asked, Scaling | Panels):
            asked.drawn(records).savefig(options.plot)
            tell(str(options.plot))
        return asked.text(records)

    data = _data(options, asked)
    return study.perform(asked, options, kept, data, announced=announced, printed=printed)
