"""Examples per second over the number of threads, where the machine has at least four processors:
two of a virtual machine may be one core.
"""

from __future__ import annotations

from bench.contenders import Cell, Contender, Team
from bench.context import Bench, Record
from bench.networks import NETWORKS
from bench.turns import Turn, repeat_disturbed

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
                "eps": [round(t.eps, 1) for t in played],
                "cpu_share": [round(t.cpu_share, 3) for t in played],
            }
            for (kind, threads), played in turns.items()
        ]
    return records
