"""Training examples per second of leashed, PyTorch and NumPy, side by side.

For each network and batch size the contenders take turns, round after round, so that all see the
machine at its good and bad moments alike. Turns that other programs disturbed are played again in
moments when the processors are idle, as long as patience lasts, and of each the one with the largest
share of the processors counts.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict

from bench import figures
from bench.charts import Bars
from bench.contenders import Cell, Team, contenders
from bench.context import BATCHES, Bench, Record, only
from bench.figures import Results
from bench.markdown import number, paragraphs, table
from bench.networks import NETWORKS
from bench.section import Goal, Parts
from bench.sections.network import training_ceiling
from bench.turns import Turn, repeat_disturbed, shortened
from leashed.base.table import MISSING

PLACE, TITLE = 30, "Peers"

_SECONDS = 0.4
_ROUNDS = 5
_PATIENCE = 15.0  # seconds a cell


def measure(bench: Bench) -> list[Record]:
    """A record a network, batch size and contender, with the rate of every turn."""
    teams = {c.name: Team(c, bench.data) for c in contenders(bench.threads)}
    records: list[Record] = []
    for network, model in NETWORKS.items():
        for batch_size in BATCHES:
            turns = _turns(bench, teams, Cell(network, batch_size))
            records += [
                {
                    "network": network,
                    "batch_size": batch_size,
                    "contender": name,
                    **{
                        key: value
                        for key, value in asdict(teams[name].contender).items()
                        if key != "networks"
                    },
                    "flops_per_example": model.flops_per_example,
                    **shortened(played),
                }
                for name, played in turns.items()
            ]
    for team in teams.values():
        team.close()
    return records


def _turns(bench: Bench, teams: dict[str, Team], cell: Cell) -> dict[str, list[Turn]]:
    seconds = bench.seconds(_SECONDS, least=0.05)

    def play(name: str) -> Turn:
        return teams[name].turn(cell, seconds)

    turns: dict[str, list[Turn]] = {
        name: [] for name, team in teams.items() if cell.network in team.contender.networks
    }
    for _ in range(bench.times(_ROUNDS)):
        for name, played in turns.items():
            played.append(play(name))
    repeat_disturbed(turns, play, bench.seconds(_PATIENCE))
    return turns


def best_peer(results: Results, library: str, network: str, batch_size: int) -> Record | None:
    """A library's fastest setting."""
    found = only(
        figures.figures(results, "peers"), library=library, network=network, batch_size=batch_size
    )
    return max(found, key=figures.eps, default=None)


def peer_ratio(results: Results, library: str, network: str, batch_size: int) -> float | None:
    """Examples per second of leashed over a library's, each at its fastest setting."""
    ours = best_peer(results, "leashed", network, batch_size)
    theirs = best_peer(results, library, network, batch_size)
    return figures.eps(ours) / figures.eps(theirs) if ours and theirs else None


def words(results: Results) -> Parts:
    records = figures.figures(results, "peers")
    if not records:
        return ()
    cells = list(dict.fromkeys((r["network"], r["batch_size"]) for r in records))
    libraries = [name for name in dict.fromkeys(r["library"] for r in records) if name != "leashed"]
    names = [f"{network}, batch {batch_size}" for network, batch_size in cells]
    ratios = {
        library: [peer_ratio(results, library, *cell) for cell in cells] for library in libraries
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
        "peers",
        "Examples per second: leashed's best over each peer's best",
        names,
        {f"over {library}": ratio for library, ratio in ratios.items()},
        "ratio",
        line=(1.0, "as fast"),
    )
    shares = [statistics.median(record["cpu_share"]) for record in records]
    return (
        (
            "Training examples per second, × the threads or processes. Bold: the library's fastest "
            f"setting. The median turn got at least {min(shares):.2f} of the processors it asked for. "
            "NumPy has no CNN: its convolutions would be loops, or matrices unrolled by hand."
        ),
        chart,
        table(["", *names], rows),
    )


def _rate(results: Results, record: Record) -> str:
    best = best_peer(results, record["library"], record["network"], record["batch_size"])
    text = f"{figures.eps(record):,.0f}"
    return f"**{text}**" if best is record else text


def _against_torch(network: str, batch_size: int, target: float) -> Goal:
    return Goal(
        f"{network}, batch {batch_size}, examples/s over PyTorch's best",
        target,
        lambda results: peer_ratio(results, "PyTorch", network, batch_size),
        unit="×",
    )


def profile(results: Results) -> str:
    """How far both are from the ceiling, and so how far the ratio can go."""
    rows = []
    records = figures.figures(results, "peers")
    for network in dict.fromkeys(record["network"] for record in records):
        for batch_size in BATCHES:
            line = [f"{network}, batch {batch_size}"]
            for library in ("leashed", "PyTorch"):
                best = best_peer(results, library, network, batch_size)
                if best is None:
                    continue
                threads = best["threads"] * best["processes"]
                rate = figures.eps(best) * best["flops_per_example"] * 1e-9
                ceiling = training_ceiling(results, threads)
                line += [
                    best["contender"],
                    number(rate),
                    f"{rate / ceiling:.2f}" if ceiling else "",
                ]
            ratio = peer_ratio(results, "PyTorch", network, batch_size)
            most = ""
            if ratio is not None and line[3]:
                most = f"{ratio / float(line[3]):.1f}"
            rows.append([*line, "" if ratio is None else f"{ratio:.2f}", most])
    return paragraphs(
        "GFLOP/s of each library's best setting, and what the ratio would be were leashed at the "
        "multiply-add rate itself: a goal beyond that cannot be met on this machine.",
        table(
            [
                "",
                "leashed",
                "GFLOP/s",
                "of the ceiling",
                "PyTorch",
                "GFLOP/s",
                "of the ceiling",
                "ratio",
                "ratio at the ceiling",
            ],
            [row for row in rows if len(row) == 9],
        ),
    )


def goals(results: Results) -> list[Goal]:
    """What is asked of the small batch depends on the width of the vectors."""
    wide = results["machine"]["isa"] == "v4"
    return [
        _against_torch("MLP", BATCHES[0], 4.0 if wide else 5.0),
        *(_against_torch("CNN", batch_size, 7.0) for batch_size in BATCHES),
    ]


PROFILES = {"Against PyTorch": profile}
