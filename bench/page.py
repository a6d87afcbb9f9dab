"""Makes ``docs/performance.md`` and its charts from a file of results.

python -m bench.page [results.json]
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import (
    backend,
    clicks,
    counting,
    figures,
    increments,
    machine,
    modes,
    reading,
    recording,
    synchronisation,
    transport,
    virtual,
    zoo,
)
from bench.charts import Bars, draw
from bench.context import BATCHES, Record, only
from bench.figures import Results
from bench.goals import Goal, goals
from bench.markdown import count, number, paragraphs, table, thousands
from bench.profiles import PROFILES
from bench.run import RESULTS, ROOT
from bench.sections import scaling
from bench.turns import QUIET, quiet_median
from leashed.base.table import MISSING

DOCS = ROOT / "docs"
CHARTS = "performance"  # folder beside the page
_PARTS = ("gradient", "update", "read", "sampling", "waiting", "rest")

Section = Callable[[Results, Path], str]


def page(results: Results, docs: Path) -> str:
    """The page's text; its charts are saved below ``docs``."""
    (docs / CHARTS).mkdir(parents=True, exist_ok=True)
    text = paragraphs(
        "# Performance",
        "Made by `make bench-page` from the results of `make bench`; not written by hand. "
        "[bench/README.md](../bench/README.md) tells how everything is measured.",
        _machine(results),
        "## Goals",
        _goals(results),
        *(f"## {title}\n\n{text}" for title, text in _sections(results, docs) if text),
        *_misses(results),
    )
    return text + "\n"


def _sections(results: Results, docs: Path) -> Iterator[tuple[str, str]]:
    for title, section in (
        ("Ceilings", _ceilings),
        ("Training and its ceiling", _training),
        ("Peers", _peers),
        ("Matrix products", _gemm),
        ("Where the time goes", _disciplines),
        (
            "Publishing",
            lambda r, _: PROFILES["update"][1](r) if figures.figures(r, "update") else "",
        ),
        ("Time to a loss", _time_to_loss),
        ("Live buffers", _memory),
        ("Scaling", _scaling),
    ):
        yield title, section(results, docs)
    parts = (
        backend.SECTIONS
        | clicks.SECTIONS
        | transport.SECTIONS
        | synchronisation.SECTIONS
        | recording.SECTIONS
        | counting.SECTIONS
        | reading.SECTIONS
        | modes.SECTIONS
        | virtual.SECTIONS
        | zoo.SECTIONS
        | increments.SECTIONS
    )
    for title, words in parts.items():
        yield title, words(results)


def _machine(results: Results) -> str:
    told, data = results["machine"], results["data"]
    sections = results["sections"].values()
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    text = (
        f"{told['cpu']}, {count(told['cores'], 'processor')}, kernels for `{told['isa']}`. "
        f"Data: {data['name']}, {data['examples']:,} images. {versions}. Measured in "
        f"{number(sum(section['seconds'] for section in sections) / 60.0)} minutes; the load before "
        f"a section was at most {max(section['load_before'] for section in sections):.1f}."
    )
    disturbed, turns = figures.disturbed(results)
    if turns:
        text += (
            f" {disturbed} of {turns} turns of training got less than {QUIET} of the processors that "
            "they asked for: other programs ran."
        )
    if any(section["scale"] < 1.0 for section in sections):
        text += " **Some sections were measured with shortened turns: no results to keep.**"
    return text


def _value(goal: Goal, value: float) -> str:
    return f"{number(value)}{goal.unit}"


def _goals(results: Results) -> str:
    rows = []
    for goal in goals(results):
        value = goal.measure(results)
        rows.append(
            [
                goal.work,
                f"{'≥' if goal.least else '≤'} {_value(goal, goal.target)}",
                MISSING if value is None else _value(goal, value),
                "not measured" if value is None else "met" if goal.met(value) else "**missed**",
            ]
        )
    return table(["work", "goal", "measured", ""], rows)


def _misses(results: Results) -> Iterator[str]:
    """A profile for every kind of goal that is missed."""
    missed: dict[str, list[str]] = {}
    for goal in goals(results):
        value = goal.measure(results)
        if value is not None and not goal.met(value):
            missed.setdefault(goal.profile, []).append(
                f"- {goal.work}: {_value(goal, value)}, goal {_value(goal, goal.target)}"
            )
    if missed:
        yield "# Goals that are missed, and what bounds them"
    known = (
        PROFILES
        | backend.PROFILES
        | clicks.PROFILES
        | transport.PROFILES
        | synchronisation.PROFILES
        | recording.PROFILES
        | counting.PROFILES
        | reading.PROFILES
        | modes.PROFILES
        | virtual.PROFILES
        | zoo.PROFILES
        | increments.PROFILES
    )
    for name, lines in missed.items():
        title, profile = known[name]
        yield paragraphs(f"## Profile: {title}", "\n".join(lines), profile(results))


def _image(title: str, name: str) -> str:
    return f"![{title}]({CHARTS}/{name}.svg)"


def _chart(bars: Bars, docs: Path, name: str) -> str:
    if not bars.series:
        return ""
    draw(bars, docs / CHARTS / f"{name}.svg")
    return _image(bars.title, name)


def _team(results: Results) -> list[int]:
    return sorted({1, figures.threads(results)})


def _ceilings(results: Results, _: Path) -> str:
    records = figures.figures(results, "ceilings")
    rows = []
    for record in only(records, threads=1):
        line = [f"{record['figure']}, {record['kind']}"]
        told = (
            figures.ceiling(results, record["figure"], record["kind"], n) for n in _team(results)
        )
        rates = [rate for rate in told if rate is not None]
        line += [*map(number, rates), f"{rates[-1] / rates[0]:.2f}"]
        shares = [
            min(
                only(records, figure=record["figure"], kind=record["kind"], threads=n)[0][
                    "cpu_share"
                ]
            )
            for n in _team(results)
        ]
        rows.append([*line, f"{min(shares):.2f}"])
    head = ["", *(count(n, "thread") for n in _team(results)), "ratio", "least CPU share"]
    return (
        "Float32 multiply-adds in GFLOP/s by instruction-set level; copies in GB/s, read and "
        "written. These are the machine's at one moment: every figure below that is a share of a "
        "ceiling divides by one measured right beside it.\n\n" + table(head, rows)
    )


def _training(results: Results, docs: Path) -> str:
    records = figures.part(results, "network", "training")
    if not records:
        return ""
    cells = [
        (network, batch_size, threads)
        for network in dict.fromkeys(record["network"] for record in records)
        for batch_size in BATCHES
        for threads in _team(results)
    ]
    asked = {goal.work: goal.target for goal in goals(results)}
    names, ratios, marks, rows = [], [], [], []
    for network, batch_size, threads in cells:
        best = figures.best_training(results, network, batch_size, threads)
        if best is None:
            continue
        who = "1 thread" if threads == 1 else "all threads"
        ratio = figures.training_ratio(best)
        mark = asked.get(f"{network}, batch {batch_size}, training at the FMA ceiling, {who}")
        names.append(f"{network}, batch {batch_size}, {count(threads, 'thread')}")
        ratios.append(ratio)
        marks.append(mark)
        rows.append(
            [
                names[-1],
                best["discipline"],
                f"{figures.eps(best):,.0f}",
                number(figures.eps(best) * best["flops_per_example"] * 1e-9),
                number(quiet_median(best["ceiling"], best["ceiling_cpu_share"])),
                f"{ratio:.2f}",
                f"{min(max(best['cpu_share']), 1.0):.2f}",
                MISSING if mark is None else f"{mark:.2f}",
            ]
        )
    flops = {record["network"]: record["flops_per_example"] for record in records}
    told = ", ".join(f"{name} {value / 1e3:,.1f} kFLOP" for name, value in flops.items())
    chart = Bars(
        "Training at the multiply-add rate of as many threads",
        names,
        {"leashed": ratios},
        "share of the ceiling",
        marks=marks,
    )
    head = ["", "discipline", "examples/s", "GFLOP/s", "ceiling", "ratio", "CPU share", "goal"]
    return paragraphs(
        f"Whole training steps of the engine, sampling and update included. An example is {told}, "
        "forward and backward.",
        _chart(chart, docs, "training"),
        table(head, rows),
        _gradients(results),
    )


def _gradients(results: Results) -> str:
    """Gradients alone, for every level."""
    records = figures.part(results, "network", "gradients")
    levels = list(dict.fromkeys(record["isa"] for record in records))
    rows = []
    for network in dict.fromkeys(record["network"] for record in records):
        for batch_size in BATCHES:
            line = [f"{network}, batch {batch_size}"]
            for isa in levels:
                record = only(records, network=network, batch_size=batch_size, isa=isa)[0]
                line += [number(record["gflops"]), f"{record['ratio']:.2f}"]
            rows.append(line)
    head = ["gradient alone, 1 thread"]
    for isa in levels:
        head += [f"{isa}, GFLOP/s", "of its ceiling"]
    return table(head, rows)


def _peers(results: Results, docs: Path) -> str:
    records = figures.figures(results, "peers")
    if not records:
        return ""
    cells = list(dict.fromkeys((r["network"], r["batch_size"]) for r in records))
    libraries = [name for name in dict.fromkeys(r["library"] for r in records) if name != "leashed"]
    names = [f"{network}, batch {batch_size}" for network, batch_size in cells]
    ratios = {
        library: [figures.peer_ratio(results, library, *cell) for cell in cells]
        for library in libraries
    }
    contenders = list(dict.fromkeys(r["contender"] for r in records))
    rows = []
    for contender in contenders:
        line = [contender]
        for network, batch_size in cells:
            found = only(records, network=network, batch_size=batch_size, contender=contender)
            line.append(_rate(results, found[0]) if found else MISSING)
        rows.append(line)
    rows += [
        [f"**leashed's best over {library}'s**", *(f"{r:.2f}" if r else MISSING for r in ratio)]
        for library, ratio in ratios.items()
    ]
    chart = Bars(
        "Examples per second: leashed's best over each peer's best",
        names,
        {f"over {library}": ratio for library, ratio in ratios.items()},
        "ratio",
        line=(1.0, "as fast"),
    )
    shares = [statistics.median(record["cpu_share"]) for record in records]
    return paragraphs(
        "Training examples per second, × the threads or processes. Bold: the library's fastest "
        f"setting. The median turn got at least {min(shares):.2f} of the processors it asked for. "
        "NumPy has no CNN: its convolutions would be loops, or matrices unrolled by hand.",
        _chart(chart, docs, "peers"),
        table(["", *names], rows),
    )


def _rate(results: Results, record: Record) -> str:
    best = figures.best_peer(results, record["library"], record["network"], record["batch_size"])
    text = f"{figures.eps(record):,.0f}"
    return f"**{text}**" if best is record else text


def _gemm(results: Results, docs: Path) -> str:
    found = figures.products(results)
    if not found:
        return ""
    libraries = figures.figures(results, "gemm")["libraries"]
    names = [
        f"{p['network']} {p['batch_size']}: {p['kind']} {p['m']}×{p['n']}×{p['k']}" for p in found
    ]
    chart = Bars(
        "Matrix products: leashed over the fastest library at each shape",
        names,
        {"leashed": [figures.product_ratio(results, p) for p in found]},
        "ratio",
        line=(1.0, "as fast"),
    )
    rows = [
        [
            name,
            number(p["ceiling"]),
            number(p["leashed"]),
            *(number(p[library]) for library in libraries),
            f"{figures.product_ratio(results, p):.2f}",
        ]
        for name, p in zip(names, found, strict=True)
    ]
    total = {
        name: sum(map(figures.flops, found)) / sum(figures.flops(p) / p[name] for p in found)
        for name in ("leashed", *libraries)
    }
    rows.append(
        [
            "**all of them, one after the other**",
            "",
            *(number(total[name]) for name in ("leashed", *libraries)),
            f"{total['leashed'] / max(total[name] for name in libraries):.2f}",
        ]
    )
    head = ["batch: product, M×N×K", "ceiling", "leashed", *libraries, "over the fastest"]
    return paragraphs(
        "One thread, GFLOP/s, in turns on the same buffers, which have the network's strides. "
        "DLRM: 13 numbers and 26 embeddings of 16, dense layers 13-64-32-16 and 367-64-32-1. The "
        f"ratio's mean by FLOPs is {figures.weighted_ratio(results) or 0.0:.3f}.",
        _chart(chart, docs, "gemm"),
        f"<details><summary>All {len(found)} shapes</summary>\n\n{table(head, rows)}\n\n</details>",
    )


def _disciplines(results: Results, docs: Path) -> str:
    records = figures.part(results, "disciplines", "all_threads")
    if not records:
        return ""
    one = figures.part(results, "disciplines", "one_thread")
    names = [f"{r['discipline']}, batch {r['batch_size']}" for r in records]
    shares = {
        name: [r["breakdown"][name] / sum(r["breakdown"].values()) for r in records]
        for name in _PARTS
    }
    chart = Bars(
        f"Where the time goes, MLP, {count(figures.threads(results), 'thread')} (SEQ: 1)",
        names,
        shares,
        "share of all threads' time",
        stacked=True,
    )
    rows = []
    for k, record in enumerate(records):
        alone = only(one, discipline=record["discipline"], batch_size=record["batch_size"])
        rows.append(
            [
                names[k],
                f"{record['eps']:,.0f}",
                f"{record['cpu_share']:.2f}",
                *(f"{100.0 * shares[name][k]:.1f}" for name in _PARTS),
                number(record["staleness"]),
                f"{figures.discipline_ratio(alone[0]):.3f}" if alone else MISSING,
            ]
        )
    head = [
        "",
        "examples/s",
        "CPU share",
        *(f"{name}, %" for name in _PARTS),
        "staleness",
        "1 thread, over SEQ",
    ]
    return "\n\n".join([_chart(chart, docs, "disciplines"), table(head, rows)])


def _time_to_loss(results: Results, docs: Path) -> str:
    found = figures.figures(results, "time_to_loss")
    if not found:
        return ""
    ours = found["leashed"]
    mine = (
        f"leashed {ours['discipline']} ×{ours['threads']}, batch {ours['batch_size']}, "
        f"η = {ours['lr']:g}"
    )
    entries = [(mine, figures.median_seconds(ours["seconds"]), ours["seconds"])]
    entries += [
        (f"{e['contender']}, batch {e['batch_size']}, η = {e['lr']:g}", e["median"], e["seconds"])
        for e in figures.races(results)
    ]
    chart = Bars(
        f"Time to {found['loss_fraction']:.0%} of the initial loss, MLP",
        [name for name, _, _ in entries],
        {"median": [seconds for _, seconds, _ in entries]},
        "seconds",
    )
    rows = [
        [name, number(median), *(MISSING if s is None else number(s) for s in seconds)]
        for name, median, seconds in entries
    ]
    head = ["", "median, s", *(f"seed {k + 1}" for k in range(len(ours["seconds"])))]
    return paragraphs(
        f"Each seed gives all the same initial parameters (He). leashed was chosen by "
        f"`leashed.tune` in {number(ours['search_seconds'])} s and {ours['trials']} trials, "
        f"PyTorch's settings from {len(found['PyTorch trials'])} trials in "
        f"{number(found['PyTorch search_seconds'])} s, both with seed 0. A clock runs from the "
        "start of the threads to the copy of the parameters at which the loss was first reached; "
        "copies are kept about every 1 ms at first. PyTorch's are all evaluated after the run; leashed's "
        "monitor evaluates some beside the workers.",
        _chart(chart, docs, "time_to_loss"),
        table(head, rows),
        _returns(results, mine),
    )


def _returns(results: Results, mine: str) -> str:
    found = figures.figures(results, "time_to_loss")
    ours = found["leashed"]
    if "returned" not in ours:
        return ""
    entries = [(mine, figures.median_seconds(ours["returned"]), ours["returned"])]
    entries += [
        (
            f"{e['contender']}, batch {e['batch_size']}, η = {e['lr']:g}",
            e["median"],
            e["returned"],
        )
        for e in figures.returns(results)
    ]
    both = list(zip(ours["seconds"], ours["returned"], strict=True))
    slack = 4 * ours["evaluation_seconds"]
    within = sum(reached is not None and back <= 1.3 * reached + slack for reached, back in both)
    head = ["from call to return", "median, s", *(f"seed {k + 1}" for k in range(len(both)))]
    return paragraphs(
        "By the caller's clock, from the call to the return, with every evaluation; PyTorch's is a "
        "loop in one process that evaluates when the mean loss of its last five hundred examples says "
        f"so, as leashed does. An evaluation takes one thread "
        f"{number(ours['evaluation_seconds'])} s; {within} of leashed's {len(both)} runs returned "
        "within 1.3 times the time reached and four evaluations.",
        table(
            head,
            [
                [name, number(median), *(MISSING if s is None else number(s) for s in seconds)]
                for name, median, seconds in entries
            ],
        ),
    )


def _memory(results: Results, _: Path) -> str:
    records = figures.figures(results, "memory")
    if not records:
        return ""
    counts = list(dict.fromkeys(record["threads"] for record in records))
    rows = [["2m + 1", *(str(2 * m + 1) for m in counts)]]
    for name in dict.fromkeys(record["discipline"] for record in records):
        line = [name]
        for m in counts:
            record = only(records, discipline=name, threads=m)[0]
            line.append(f"{record['mean']:.1f} ({record['peak']})")
        rows.append(line)
    return (
        "CNN: parameter vectors and gradients in use, mean of looks while training runs (peak).\n\n"
        + table(["m threads", *(str(m) for m in counts)], rows)
    )


def _scaling(results: Results, docs: Path) -> str:
    records = figures.figures(results, "scaling")
    if not records:
        return (
            f"Not measured: this machine has {count(figures.threads(results), 'processor')}, and it "
            f"takes {scaling.FEWEST} for more threads to tell more than the ceilings above do."
        )
    counts = list(dict.fromkeys(record["threads"] for record in records))
    rows, series = [], {}
    for network in dict.fromkeys(record["network"] for record in records):
        for kind in scaling.KINDS:
            found = [only(records, network=network, discipline=kind, threads=n)[0] for n in counts]
            rates = [figures.eps(record) for record in found]
            series[f"{network}, {kind}"] = [
                r / (n * rates[0]) for r, n in zip(rates, counts, strict=True)
            ]
            rows.append([f"{network}, {kind}", *(thousands(rate) for rate in rates)])
    chart = Bars(
        "Examples per second over one thread's times the threads",
        [count(n, "thread") for n in counts],
        series,
        "efficiency",
        line=(1.0, "ideal"),
    )
    head = ["", *(count(n, "thread") for n in counts)]
    return "\n\n".join([_chart(chart, docs, "scaling"), table(head, rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument(
        "results", type=Path, nargs="?", help="default: those of this kind of machine"
    )
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the page goes")
    arguments = parser.parse_args()
    path = arguments.results or RESULTS / f"{machine.slug()}.json"
    results = json.loads(path.read_text("utf-8"))
    (arguments.docs / "performance.md").write_text(page(results, arguments.docs), "utf-8")
    print(arguments.docs / "performance.md")


if __name__ == "__main__":
    main()
