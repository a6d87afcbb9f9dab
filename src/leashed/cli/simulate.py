"""``leashed simulate``."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leashed import simulation
from leashed.base import checks
from leashed.base.options import option
from leashed.base.table import MISSING, columns, duration, number, text
from leashed.cli.arguments import add_fields, given
from leashed.modes import Mode
from leashed.simulation.network import Network
from leashed.simulation.sharding import Sharding
from leashed.simulation.virtual_time import Cluster, Simulation, check_shards, simulate
from leashed.stopping import Until
from leashed.training import defaults
from leashed.training.doubts import ends_are_told
from leashed.training.job import GROUPS, Job
from leashed.training.options import Init
from leashed.training.problems import clicks
from leashed.training.problems.problem import problem_of
from leashed.training.progress import Line, tell
from leashed.training.result import TrainResult
from leashed.training.spelled import MODE_WORDS, listed, mode_of, renew

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands

_GRADIENTS = "sync,hop_bw:b3=1,bsp,asp,ssp:s=2,gba,shat"  # of models over tables
_SERVED = f"{_GRADIENTS},local_sgd:h=4,easgd:alpha=0.5"  # by several servers too
_DEFAULT = f"{_SERVED},swarm:h=1"
_SHARDS = {
    "memorywise": simulation.memorywise,
    "layerwise": simulation.layerwise,
    "packed": simulation.packed,
}
_HEADER = ["mode", "time", "examples/s", "slowest worker's", "updates", "staleness"]
_HEADER += ["at most", "dropped", "lost", "waiting", "loss"]
_SERVERS_NOTE = (
    " Of several servers: updates and staleness of all, the rest as the first has counted it."
)
_NOTE = (
    "Time is virtual. Staleness: updates between a pull and the push that is applied (of modes whose "
    "gradients are summed). Dropped: of the examples pushed. Lost: with workers that crashed, of all "
    "that were begun; others were given them. Waiting: of the workers' time. Loss of the training set, "
    "accuracy or AUC of the test set, at the end."
)


@dataclass(frozen=True, kw_only=True)
class _Asked(Job):
    """What is asked of each mode."""

    batch_size: int = option(32, "examples of a gradient")
    epochs: float = option(1.0, "passes over the training set")


# Of a training on threads, or in place of which there are --modes.
_LEFT_OUT = (
    *("days", "discipline", "mode", "threads", "init", "evaluate_every", "evaluate_rows"),
    *("loss_fraction", "loss", "updates", "seconds", "divergence", "patience", "metric"),
)


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "simulate",
        help="modes of training on a cluster of yours, in virtual time",
        description="Train with each mode on a cluster that is only described: how many workers, what "
        "a gradient takes them, how many are slow. Gradients are real, time is virtual; the table "
        "has throughput, staleness, drops and what was learnt.",
    )
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument("--workers", type=int, default=16, help="default: %(default)s")
    cluster.add_argument(
        "--times",
        choices=("constant", "exponential", "rates", "heavy_tail"),
        default="exponential",
        help="how a gradient's times are distributed (default: %(default)s)",
    )
    cluster.add_argument(
        "--compute",
        type=float,
        default=0.1,
        metavar="SECONDS",
        help="a gradient's mean time (default: %(default)s)",
    )
    cluster.add_argument(
        "--transfer",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="of parameters or a gradient, each way (default: %(default)s)",
    )
    cluster.add_argument(
        "--fetch",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="until a worker has its batch and pulls, in the mean (default: %(default)s)",
    )
    cluster.add_argument(
        "--slow",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="of the workers that are slower (default: none)",
    )
    cluster.add_argument(
        "--slower", type=float, default=10.0, help="how many times (default: %(default)s)"
    )
    _add_network(parser)
    _add_servers(parser)
    _add_members(parser)
    parser.add_argument(
        "--modes",
        metavar="NAME[:...],...",
        help=f"of {', '.join(MODE_WORDS)}, such as gba:m=8,iota=4,ssp:s=2; with term=SECONDS a batch "
        "that has not come back by then goes to another worker (default: "
        f"{_DEFAULT}; with several servers those that have any: {_SERVED}; of models of clicks those "
        f"that push gradients: {_GRADIENTS})",
    )
    parser.add_argument("--term", help=argparse.SUPPRESS)
    add_fields(parser, _Asked, leave=_LEFT_OUT, groups=GROUPS)
    parser.set_defaults(command=_simulate)


def _add_network(parser: argparse.ArgumentParser) -> None:
    network = parser.add_argument_group("network", "links, in place of --transfer")
    network.add_argument(
        "--bandwidth",
        type=float,
        metavar="BYTES/S",
        help="of each worker's link, each way (default: without bounds)",
    )
    network.add_argument(
        "--server-bandwidth",
        type=float,
        metavar="BYTES/S",
        help="of the server's (default: as a worker's)",
    )
    network.add_argument("--latency", type=float, metavar="SECONDS", help="default: none")


def _add_servers(parser: argparse.ArgumentParser) -> None:
    servers = parser.add_argument_group("servers", "that the parameters are spread over")
    servers.add_argument("--servers", type=int, default=1, help="default: %(default)s")
    servers.add_argument(
        "--shards",
        choices=_SHARDS,
        help="as many parameters for each, as many layers, or whole variables, the largest first "
        "(default: memorywise)",
    )


def _add_members(parser: argparse.ArgumentParser) -> None:
    members = parser.add_argument_group("failures")
    members.add_argument(
        "--fail",
        type=float,
        metavar="SECONDS",
        help="a worker's mean time until it crashes (default: never)",
    )
    members.add_argument(
        "--down",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="its mean time until it is back (default: %(default)s)",
    )
    members.add_argument(
        "--detection",
        type=float,
        metavar="SECONDS",
        help="until the server knows of a crash (default: the time of a gradient)",
    )


def parse_modes(words: str) -> list[Mode]:
    """The modes that such words stand for: ``gba:m=8,iota=2,asp``.

    Raises:
        ValueError: a name or a number is wrong; the message names it.
    """
    return [mode_of(word, "--modes") for word in listed(words)]


def _sharding(options: argparse.Namespace) -> Sharding | None:
    servers = checks.whole("servers", options.servers)
    if servers > 1:
        return _SHARDS[options.shards or "memorywise"](servers)
    if options.shards is not None:
        raise ValueError("--shards goes with several --servers; give these too, or leave it out")
    return None


def _cluster(options: argparse.Namespace) -> Cluster:
    share = checks.real("slow", options.slow, 0.0, allow=True)
    if share > 1:
        raise ValueError(f"slow must be at most 1, a share of the workers, got {share:g}")
    mean, workers = options.compute, checks.whole("workers", options.workers)
    rest = {"copy": options.transfer, "fetch": options.fetch}
    made = {
        "constant": lambda: simulation.constant(workers, mean, **rest),
        "exponential": lambda: simulation.exponential(workers, mean, **rest),
        "rates": lambda: simulation.rates(workers, mean, 0.3, **rest),
        "heavy_tail": lambda: simulation.heavy_tail(workers, mean, **rest),
    }[options.times]()
    slow = round(share * workers)
    slower = made.slower([options.slower] * max(1, slow))  # also where nobody is: it is checked
    if slow:
        made = slower
    links = (options.bandwidth, options.server_bandwidth, options.latency)
    if any(one is not None for one in links):
        made = made.over(
            Network(
                math.inf if options.bandwidth is None else options.bandwidth,
                options.latency or 0.0,
                options.server_bandwidth,
            )
        )
    failing = made.failing(1.0 if options.fail is None else options.fail, options.down)  # as above
    return made if options.fail is None else failing


def _simulate(options: argparse.Namespace) -> int:
    job = _Asked(**given(options, _Asked))
    shards = _sharding(options)
    default = _GRADIENTS if job.of_clicks else _DEFAULT if shards is None else _SERVED
    words = {"modes": options.modes or default, "term": options.term}
    renew(words, lambda line: tell(f"leashed: {line}"), "--")
    several = listed(words["modes"])
    chosen = [mode_of(one, "--modes") for one in several]
    for mode in chosen:
        check_shards(shards, mode)
    cluster = _cluster(options)
    choices = job.choices()
    problem = problem_of(job)
    choices["rule"] = job.rule_on(defaults.seen(problem.model, problem.train).often)
    how = {name: choices[name] for name in ("rule", "staleness", "batch_size", "seed")}
    detection = options.compute if options.detection is None else options.detection
    line, rows = Line(sys.stderr), []
    for number_of, mode in enumerate(chosen):
        line.show(repr(mode))
        if job.stream and number_of:
            problem = problem_of(job)  # whose rows are read anew
        with ends_are_told():
            played = simulate(
                problem.model,
                problem.train,
                validation=problem.test,
                cluster=cluster,
                mode=mode,
                until=Until(epochs=job.epochs),
                **how,
                detection=detection,
                shards=shards,
                init=Init(
                    tables=clicks.make_tables(problem.model, job, how["rule"], how["staleness"])
                ),
            )
        rows.append(_row(mode, played))
        if played.result.reason == "interrupted":
            break
    line.clear()
    print(text([*_HEADER, "AUC" if job.of_clicks else "accuracy"], rows, columns()))
    print(f"\n{_NOTE}{_SERVERS_NOTE if shards else ''}")
    return 130 if played.result.reason == "interrupted" else 0


def _row(mode: Mode, played: Simulation) -> list[str]:
    result, counts = played.result, played.mode
    assert counts is not None
    pushed = int(counts.worker_examples.sum())
    dropped = counts.late + counts.stale + counts.straggler
    workers = max(1, len(counts.worker_examples))
    stale = result.staleness.total > 0
    return [
        repr(mode),
        duration(result.elapsed),
        number(pushed / result.elapsed) if result.elapsed else MISSING,
        number(counts.worker_examples.min() / result.elapsed)
        if pushed and result.elapsed
        else MISSING,
        f"{result.total_updates:,}",
        number(result.staleness.mean()) if stale else MISSING,
        str(result.staleness.max()) if stale else MISSING,
        _percent(dropped / pushed) if pushed else MISSING,
        _percent(counts.lost / (pushed + counts.lost)) if counts.departures else MISSING,
        _percent(result.breakdown["waiting"] / (workers * result.elapsed))
        if result.elapsed
        else MISSING,
        number(result.final_loss),
        _quality(result),
    ]


def _quality(result: TrainResult) -> str:
    """Of the test set, where there is one."""
    found = float((result.validation_auc if result.tables else result.validation_accuracy)[-1])
    if math.isnan(found):
        return MISSING
    return f"{found:.4f}" if result.tables else _percent(found)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"
