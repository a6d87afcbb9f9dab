"""Examples per second over the number of threads, where the machine has at least four processors:
two of a virtual machine may be one core.
"""

from __future__ import annotations

from functools import partial

from bench import figures
from bench.charts import Bars
from bench.contenders import Cell, Contender, Team
from bench.context import Bench, Record, only
from bench.figures import Results
from bench.markdown import count, table, thousands
from bench.networks import NETWORKS
from bench.section import Goal, Parts
from bench.sections.ceilings import ceiling
from bench.turns import Turn, repeat_disturbed, shortened

PLACE, TITLE = 90, "Scaling"

FEWEST = 4  # processors
BATCH_SIZE = 512
KINDS = ("HOG", "LSH_ps∞")
_SECONDS = 0.4
_ROUNDS = 5
_PATIENCE = 15.0


def measure(bench: Bench) -> list[Record]:
    """A record a network, discipline and number of threads; none where it says nothing."""
    if bench.threads < FEWEST:
        return []
    counts = sorted({*(2**k for k in range(bench.threads.bit_length())), bench.threads})
    records: list[Record] = []
    for network in NETWORKS:
        teams = {
            (kind, threads): Team(
                Contender("leashed", kind, threads, networks=(network,)), bench.data
            )
            for kind in KINDS
            for threads in counts
        }
        turns: dict[tuple[str, int], list[Turn]] = {key: [] for key in teams}

        def play(key: tuple[str, int], teams: dict[tuple[str, int], Team] = teams) -> Turn:
            return teams[key].turn(Cell(network, BATCH_SIZE), bench.seconds(_SECONDS, least=0.05))  # noqa: B023

        for _ in range(bench.times(_ROUNDS)):
            for key, played in turns.items():
                played.append(play(key))
        repeat_disturbed(turns, play, bench.seconds(_PATIENCE))
        for team in teams.values():
            team.close()
        records += [
            {
                "network": network,
                "discipline": kind,
                "threads": threads,
                "batch_size": BATCH_SIZE,
                **shortened(played),
            }
            for (kind, threads), played in turns.items()
        ]
    return records


def scaling_ratio(network: str, discipline: str, results: Results) -> float | None:
    """Examples per second of all threads over so many times one thread's."""
    found = only(figures.figures(results, "scaling"), network=network, discipline=discipline)
    by_threads = {record["threads"]: figures.eps(record) for record in found}
    if not by_threads:
        return None
    most = max(by_threads)
    return float(by_threads[most] / (most * by_threads[1]))


def words(results: Results) -> Parts:
    records = figures.figures(results, "scaling")
    if not records:
        return (
            f"Not measured: this machine has {count(figures.threads(results), 'processor')}, and it "
            f"takes {FEWEST} for more threads to tell more than the ceilings above do."
        )
    counts = list(dict.fromkeys(record["threads"] for record in records))
    rows, series = [], {}
    for network in dict.fromkeys(record["network"] for record in records):
        for kind in KINDS:
            found = [only(records, network=network, discipline=kind, threads=n)[0] for n in counts]
            rates = [figures.eps(record) for record in found]
            series[f"{network}, {kind}"] = [
                r / (n * rates[0]) for r, n in zip(rates, counts, strict=True)
            ]
            rows.append([f"{network}, {kind}", *(thousands(rate) for rate in rates)])
    chart = Bars(
        "scaling",
        "Examples per second over one thread's times the threads",
        [count(n, "thread") for n in counts],
        series,
        "efficiency",
        line=(1.0, "ideal"),
    )
    head = ["", *(count(n, "thread") for n in counts)]
    return chart, table(head, rows)


def profile(results: Results) -> str:
    """What several threads share."""
    isa, threads = results["machine"]["isa"], figures.threads(results)
    one, most = (ceiling(results, "fma", isa, n) for n in (1, threads))
    if not one or not most:
        return ""
    return (
        f"All threads together reach {most / one:.2f} times one thread's multiply-add rate "
        f"on this machine of {threads} processors."
    )


GOALS = [
    Goal(
        f"{network}, {kind}: EPS of all threads over one thread's times their number",
        0.85,
        partial(scaling_ratio, network, kind),
    )
    for network in NETWORKS
    for kind in KINDS
]
PROFILES = {"Scaling": profile}
