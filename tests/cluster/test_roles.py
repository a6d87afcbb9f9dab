"""A role is one line of ``roles.ROLES``."""

from __future__ import annotations

import subprocess
import sys

from leashed.cluster.roles import ROLES

PROGRAM = """
from leashed.cluster import roles

scorer = roles.Role("scorer", "scorer", "scorer", "sync_ps", "scorers", serves=True)
roles.ROLES = {"scorer": scorer, **roles.ROLES}

from cluster import fakes
from leashed.cli.cluster import _missing
from leashed.cluster import plan, run_table, traffic, wire
from leashed.cluster.messages import Join
from leashed.cluster.prometheus import Exporter
from leashed.cluster.state import Joined, State, Terms

data = wire.encode(Join("scorer", 1, "a:1"))
(join,) = wire.to_master().feed(data)
assert join.role == "scorer"

terms = Terms(total=None, batch_size=1, trainers=1, sync_ps=2)
state = State.of(terms.check())
state.apply(Joined(1, "scorer", 1, "a:1", 0.0))
state.apply(Joined(2, "sync-ps", 0, "b:1", 0.0))
assert state.membership.servers().addresses == {"scorer": {1: "a:1"}, "sync-ps": {0: "b:1"}, "embedding-ps": {}, "policy-ps": {}, "reader": {}}
assert state.membership.servers_number == 2
assert state.membership.ring() == []

assert plan.ROLES == ("master", "scorer", "sync-ps", "embedding-ps", "policy-ps", "reader", "trainer")
cluster = plan.Cluster(trainers=2, sync_ps=2, ports=4000)
names = [name for name, _ in cluster.processes()]
assert names == ["master", "scorer", "scorer", "sync-ps", "sync-ps", "trainer", "trainer"]
ports = [cluster.port(*each) for each in cluster.processes()[1:]]
assert ports == list(range(4000, 4006))

counted = {**fakes.SERVER, "bytes_out": 5.0, "bytes_in": 7.0, "snapshots_failed": 2.0}
report = fakes.report(terms={**fakes.TERMS, "sync_ps": 2, "trainers": 0})
report["members"] = [fakes.member(1, "scorer", 0, None, counted, 9.0)]
assert _missing(report) == ["scorer-1", "sync-ps-0", "sync-ps-1"]
assert [row[0] for row in traffic.table(report).rows] == ["scorer 0"]
assert dict(run_table.facts(report))["snapshots"].startswith("2 of scorer 0")
with Exporter("127.0.0.1", 0) as exporter:
    exporter(report)
    told = {s.name: s.value for f in exporter.collect() for s in f.samples if "scorer" in str(s)}
assert told["leashed_members"] == 1.0
assert told["leashed_scorer_bytes_out_total"] == 5.0
"""


def test_who_adds_a_line_has_a_role_everywhere() -> None:
    """In a process of its own: what is made of the table is made as modules are imported."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, cwd="tests")


def test_names_fit_a_handshake_and_tell_processes_apart() -> None:
    for name, role in ROLES.items():
        assert name == role.name
        assert len(name) <= 16
        assert name != "master"
    counts = [role.count for role in ROLES.values()]
    assert len(set(counts)) == len(counts)
