"""What holds of every algorithm's answers, whoever gives them: no batch is lost or applied twice."""

from __future__ import annotations

from policies.schedules import Event
from policies.server import Action, Lease


class Audit:
    """Keeps the books of a run from its events and actions alone.

    Args:
        term_ns: how long leases last; 0: for ever.
    """

    def __init__(self, term_ns: int) -> None:
        self.term_ns = term_ns
        self.version = 0
        self.leases: dict[int, Lease] = {}  # by ticket, all that ever were
        self.state: dict[int, str] = {}  # of each batch: out, back, held, applied or dropped
        self.live: dict[int, int] = {}  # ticket → node that works on it
        self.until: dict[int, int] = {}  # ticket → when its lease ends
        self.slots: dict[int, int] = {}  # slot → batch
        self.pushed_on: dict[int, int] = {}  # batch → version of its gradient
        self.staleness: list[int] = []  # of every gradient that was applied
        self.late = 0

    def take(self, event: Event, actions: list[Action]) -> None:
        """One event and what was answered."""
        pushed = None
        if event.kind == "push" and event.ticket in self.live:
            pushed = self.leases[event.ticket].number
            del self.live[event.ticket]
            self.pushed_on[pushed] = event.version
        elif event.kind == "leave":
            self._back([t for t, node in self.live.items() if node == event.node])
        elif event.kind == "wake" and self.term_ns:
            self._back([t for t in self.live if self.until[t] <= event.now_ns])
        for action in actions:
            kind = action["kind"]
            if kind == "hold":
                assert pushed is not None, "holds what was not pushed"
                assert action["slot"] not in self.slots, "a slot that is not free"
                self.slots[action["slot"]] = pushed
                self.state[pushed] = "held"
            elif kind == "drop":
                self._drop(event, action, pushed)
            elif kind == "apply":
                self._apply(action)
            elif kind == "exchange":
                assert pushed is not None, "exchanges with who has not pushed"
                self.version += 1
                assert action["version"] == self.version, "an exchange makes one version"
                self.state[pushed] = "applied"
            elif kind == "grant":
                self._grant(event, action)
            elif kind == "end":
                assert action["node"] not in self.live.values(), "ends one that works"
        if pushed is not None:
            assert self.state[pushed] != "out", "a push of which nothing became"

    def _back(self, tickets: list[int]) -> None:
        for ticket in tickets:
            del self.live[ticket]
            self.state[self.leases[ticket].number] = "back"

    def _drop(self, event: Event, action: Action, pushed: int | None) -> None:
        if action["why"] == "late":
            assert event.kind == "push"
            assert pushed is None, "in time, and dropped as late"
            assert action["ticket"] == event.ticket
            self.late += 1
            return
        batch = self.leases[action["ticket"]].number
        assert self.state[batch] == "held" or batch == pushed
        self.state[batch] = "dropped"
        self.slots = {slot: held for slot, held in self.slots.items() if held != batch}

    def _apply(self, action: Action) -> None:
        self.version += 1
        assert action["version"] == self.version, "an update makes one version"
        assert action["divisor"] > 0
        batches = [self.slots.pop(slot) for slot, _ in action["slots"]]
        assert batches, "an update of nothing"
        assert batches == sorted(batches), "sums go in the order of batch numbers"
        for batch in batches:
            assert self.state[batch] == "held"
            self.state[batch] = "applied"
            self.staleness.append(self.version - 1 - self.pushed_on[batch])

    def _grant(self, event: Event, action: Action) -> None:
        lease = Lease(*action["lease"])
        assert action["version"] == self.version, "not the newest parameters"
        if not lease.count:  # the last answer to a push
            return
        assert action["node"] not in self.live.values(), "one batch at a time"
        assert lease.ticket not in self.leases, "tickets are not used again"
        assert self.state.get(lease.number, "back") == "back", "somebody has this batch"
        self.state[lease.number] = "out"
        self.leases[lease.ticket] = lease
        self.live[lease.ticket] = action["node"]
        self.until[lease.ticket] = event.now_ns + self.term_ns

    def finish(self, examples: int, *, over: bool) -> None:
        """At the end of a run; over: somebody was told that the data are over."""
        spans = {one.number: (one.first, one.count) for one in self.leases.values()}
        first = 0
        for number in range(len(spans)):
            assert spans[number][0] == first, "batches lie side by side"
            first += spans[number][1]
        assert not examples or first <= examples
        if over:
            assert not self.slots, "held for ever"
            assert set(self.state.values()) <= {"applied", "dropped"}
