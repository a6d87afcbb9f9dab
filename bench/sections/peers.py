"""Training examples per second of leashed, PyTorch and NumPy, side by side.

For each network and batch size the contenders take turns, round after round, so that all see the
machine at its good and bad moments alike. Turns that other programs disturbed are played again in
moments when the processors are idle, as long as patience lasts, and of each the one with the largest
share of the processors counts.
"""

from __future__ import annotations

from dataclasses import asdict

from bench.contenders import Cell, Team, contenders
from bench.context import BATCHES, Bench, Record
from bench.networks import NETWORKS
from bench.turns import Turn, repeat_disturbed

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
                    "eps": [round(t.eps, 1) for t in played],
                    "cpu_share": [round(t.cpu_share, 3) for t in played],
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
