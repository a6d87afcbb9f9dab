"""The roles of a run's processes, a line each. A role is registered here alone: who may join, how many
there are, where they listen, what starts one and what is told of it are made from this table.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MASTER", "ROLES", "Role"]

MASTER = "master"
"""The one that is no member, and whom all members know."""


@dataclass(frozen=True)
class Role:
    """What a kind of member is.

    Attributes:
        name: in a plan's commands and in names of processes (``sync-ps-0``); at most 16 letters.
        words: what people call one, such as "sync server".
        metric: what metrics for Prometheus call one.
        count: the field of a plan's ``[cluster]``, and of ``Terms``, that says how many there are.
        module: of ``leashed.cluster``; its ``run(plan, index)`` is the role, and returns why the run
            ended before its time, or None.
        least: how many there are, at least.
        serves: trainers are told the addresses of all that are there; they lease nothing, and are in
            no ring.
        results: it hands in parameters at its end.
        saves: it has something that checkpoints of the run hold.
        leads: it leases all batches, and says which of them its mode is done with; without it there is no
            run.
    """

    name: str
    words: str
    metric: str
    count: str
    module: str
    least: int = 0
    serves: bool = False
    results: bool = False
    saves: bool = True
    leads: bool = False


ROLES = {
    role.name: role
    for role in (
        Role("sync-ps", "sync server", "server", "sync_ps", "server", serves=True),
        Role(
            "embedding-ps",
            "embedding server",
            "embedding_server",
            "embedding_ps",
            "embedding_server",
            serves=True,
        ),
        Role(
            "policy-ps",
            "policy server",
            "policy_server",
            "policy_ps",
            "policy_server",
            serves=True,
            leads=True,
        ),
        Role("reader", "reader", "reader", "readers", "reader", serves=True, saves=False),
        Role("trainer", "trainer", "trainer", "trainers", "trainer", least=1, results=True),
    )
}
"""By name, in the order in which they are started and get their ports."""
