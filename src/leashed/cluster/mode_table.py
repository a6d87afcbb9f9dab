"""What a run's policy servers have done, in tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from leashed.base.table import Table, duration, number
from leashed.cluster.cells import count, size
from leashed.cluster.measures import Counters, Life, counted, lives
from leashed.training.led_mode import COMMANDS

__all__ = ["BEHIND", "FATES", "NOTE", "behind", "facts", "servers"]

NOTE = (
    "grants: leases of a batch with the parameters. updates: of the parameters. staleness: of a gradient, in "
    "updates between its grant and its own. serving: processor time."
)
_HEADER = (
    "policy server",
    "workers",
    "grants",
    "pushes",
    "updates",
    "staleness",
    "serving",
    "in",
    "out",
    "lives",
)
BEHIND = "mode_behind_"
"""Of counters of a policy server: gradients in updates, of this many steps behind the token of their data,
up to twice as many.
"""
_LOST = {
    "mode_stale": "dropped as too stale",
    "mode_straggler": "dropped behind their round",
    "mode_late": "dropped, being another's by then",
    "mode_missing": "that were not finite",
    "unused": "behind the end",
    "lost_examples": "whose updates are lost with all who had them",
}
"""Examples that are in no update, by the counter of a policy server."""
_LOST_OF_PART = {**_LOST, "mode_missing": "whose part was lost on the way, or not finite"}
"""Likewise, of one of several."""
FATES = ("applied", "stale", "straggler", "late", "missing")
"""What becomes of examples that are pushed, as a policy server counts them."""


def servers(report: Mapping[str, Any]) -> Table:
    """A row per policy server; none in a run without.

    Args:
        report: as in run.json.
    """
    processes = lives(report, "policy-ps")
    rows = [
        _server(index, each, processes[index])
        for index, each in counted(report, "policy-ps").items()
    ]
    return Table(list(_HEADER), rows)


def facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What became of examples in a run by a mode, by name; nothing of one without."""
    known = []
    all_servers = counted(report, "policy-ps")
    for index, here in all_servers.items():
        if index > 0:
            known.append((f"policy server {index}", _part(here, all_servers.get(0, {}))))
            if "row_bytes" in here:
                known.append((f"rows of policy server {index}", _rows(here)))
            continue
        told = f"{here.get('mode_applied', 0.0):,.0f} in updates"
        if moved := here.get("mode_exchanges", 0.0):
            told = f"{moved:,.0f} exchanges of models"
        fates = _LOST if len(all_servers) == 1 else _LOST_OF_PART
        for name, what in fates.items():
            if count := here.get(name, 0.0):
                told += f", {count:,.0f} {what}"
        others = 0.0 if moved else _others(here)
        if others > 0.0:
            told += f", {others:,.0f} that waited for others at the end, or that the staleness policy left out"
        elif others < 0.0:
            told += f", {-others:,.0f} of them or more of gradients that waited in the checkpoint"
        known.append(("examples", told))
        if sums := here.get("reduced", 0.0):
            homes = here.get("homes", 0.0)
            told = f"{sums:,.0f} updates of sums that workers made, whose parameters came {homes:,.0f} times"
            if updates := here.get("lost_updates", 0.0):
                told += f"; {updates:,.0f} of them are lost with all who had them"
            known.append(("all-reduce", told))
        if restarts := here.get("restarts", 0.0):
            again = _again if len(all_servers) == 1 else _parts_lost
            known.append(("policy server", again(restarts, here)))
        if commands := here.get("mode_commands", 0.0):
            last = COMMANDS[int(here["mode_told"])]
            known.append(("commands", f"{commands:,.0f}, the last to be {last}"))
        if "row_bytes" in here:
            known.append(("rows", _rows(here)))
        if gone := here.get("departures", 0.0):
            lost = f"{gone:,.0f} that left or died, and {here.get('lost', 0.0):,.0f} examples of their leases"
            known.append(("workers", f"{lost}, which others, or they again, were given"))
        if gradients := here.get("mode_data_gradients", 0.0):
            steps = here.get("mode_data_staleness", 0.0) / gradients
            shares = ", ".join(
                f"{first if first < 2 else f'{first} to {2 * first - 1}'}: {count / gradients:.1%}"
                for first, count in behind(here).items()
            )
            mean = f"{number(steps)} steps behind the token, in the mean; {shares}"
            known.append(("staleness of data", mean))
    return known


def _part(here: Counters, first: Counters) -> str:
    """What became of examples at a server behind the first, which has a part of each gradient."""
    told = f"{here.get('mode_applied', 0.0):,.0f} in updates of its part"
    if moved := here.get("mode_exchanges", 0.0):
        told = f"{moved:,.0f} exchanges of its part of models"
    for name, what in _LOST_OF_PART.items():
        if count := here.get(name, 0.0):
            told += f", {count:,.0f} {what}"
    # (Where servers decide alike these are missing.)
    if (never := _pushed_once(first) - _pushed_once(here)) > 0.0:
        told += f", {never:,.0f} whose part never came"
    if late := here.get("late_parts", 0.0):
        told += f"; {late:,.0f} parts came when it had gone on without them"
    if restarts := here.get("restarts", 0.0):
        told += f"; {_parts_lost(restarts, here)}"
    return told


def _parts_lost(restarts: float, here: Counters) -> str:
    """What it has cost that one of several was started again."""
    return (
        f"started again {_times(restarts)}, by which its parts of {here.get('undone_pushes', 0.0):,.0f} pushes, of "
        f"{here.get('undone_examples', 0.0):,.0f} examples, are lost"
    )


def _times(restarts: float) -> str:
    return "once" if restarts == 1.0 else f"{restarts:,.0f} times"


def _again(restarts: float, here: Counters) -> str:
    """What it has cost that a server was started again."""
    told = (
        f"started again {_times(restarts)}; {here.get('undone_examples', 0.0):,.0f} examples, pushed since what it went on "
        "from, were trained anew"
    )
    if commands := here.get("undone_commands", 0.0):
        told += f", and {commands:,.0f} commands of then are forgotten: tell the mode anew"
    return told


def _pushed_once(here: Counters) -> float:
    """Examples that were pushed, each once."""
    return here.get("mode_pushed", 0.0) - here.get("mode_late", 0.0)


def _rows(here: Counters) -> str:
    """Of tables whose rows a policy server has."""
    told = f"{here['rows']:,.0f} in {size(here, 'row_bytes')}, {here.get('looked_up', 0.0):,.0f} looked up"
    if updates := here.get("row_updates", 0.0):
        stale = number(here["row_staleness"] / updates)
        told += f", {updates:,.0f} updates of them, {stale} behind in the mean"
    lost = {
        "row_unadmitted": "of ids that had not come often enough",
        "row_refused": "of ids for which there was no room",
        "row_evicted": "evicted",
    }
    for name, what in lost.items():
        if count := here.get(name, 0.0):
            told += f", {count:,.0f} {what}"
    return told


def _others(here: Counters) -> float:
    """Examples that were pushed, and of which nothing else tells what became of them."""
    told = sum(here.get(f"mode_{fate}", 0.0) for fate in FATES) + here.get("lost_examples", 0.0)
    return here.get("mode_pushed", 0.0) - told


def behind(here: Counters) -> dict[int, float]:
    """Gradients in updates, by the steps that they were behind the token of their data, in octaves: those
    of 0, of 1, of 2 to 3, of 4 to 7, ..., by the first of each.
    """
    found = {
        int(name[len(BEHIND) :]): count for name, count in here.items() if name.startswith(BEHIND)
    }
    return dict(sorted(found.items()))


def _server(index: int, counters: Counters, several: list[Life]) -> list[str]:
    published = counters.get("published", 0.0)
    stale = counters.get("staleness", math.nan) / published if published else math.nan
    return [
        str(index),
        count(counters, "lanes"),
        count(counters, "grants"),
        count(counters, "pushes"),
        count(counters, "mode_updates"),
        number(stale),
        duration(counters.get("serving_seconds", math.nan)),
        size(counters, "bytes_in"),
        size(counters, "bytes_out"),
        str(len(several)),
    ]
