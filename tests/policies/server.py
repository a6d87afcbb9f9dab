"""What the oracles of the parameter-server algorithms share: who is there, and whose batch is whose.

Plain lists, dicts and scans, written from GBA's section 4.1 (data list and token list) and from
docs/readings.md, to be compared with and not to be fast. An oracle takes one event at a time and
answers actions, all of them dicts with a ``kind``:

``grant`` {node, lease, version, n, c}, ``hold`` {slot}, ``apply`` {slots, divisor, version},
``drop`` {ticket, why}, ``exchange`` {node, ticket, alpha, version}, ``wake`` {at}, ``end`` {node}.

Readings of what no paper says, the same for every algorithm:

- Who may not start yet, or finds no batch, is parked. Whenever something has changed the parked are
  looked through, and each gets what it now may have: in the order in which they came, or in any
  other (``served_first``), since no paper cares.
- Every batch that is handed out gets a ticket of its own, also one that is handed out again. So a
  push with a ticket that is no longer out is ``late``, and counts for nothing.
- A lease ends ``term_ns`` after it was granted (0: never), when the wake-up of that time arrives;
  a push that arrives before the wake-up is in time. Its worker counts as gone until it pulls again.
- A worker that leaves gives back what it holds: to the front of the list, several in their order.
  Gradients that it has pushed stay. A batch that is handed out again is computed anew, so its token
  is then the step of that moment, where that is larger.
- The data are over when none is left to hand out, none was given back, and none is out. Then what
  the buffer holds is applied, though it is not full, and whoever is parked or pulls is told the end.
  Who keeps a model of its own and has not been answered since its last push is answered before, by
  a grant of no examples.
- ``version`` counts updates of the parameters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Action = dict[str, Any]
# number, first, count and token; once handed out also ticket, node, until and version, once held slot.
Batch = dict[str, int]


class Lease(NamedTuple):
    """What a grant hands out: batch ``number``, its examples, and the token that comes with it."""

    ticket: int
    number: int
    first: int
    count: int
    token: int


NOTHING = Lease(0, 0, 0, 0, 0)


class Server:
    """Hands out batches: batch i is the examples from i·batch, the last one may be short.

    Args:
        workers: nodes 0 to workers − 1 are there from the start.
        batch: examples of a batch.
        examples: of all the data; 0: they end with the event ``data_end``.
        term_ns: how long a lease lasts; 0: for ever.
    """

    def __init__(self, workers: int, batch: int, examples: int = 0, term_ns: int = 0) -> None:
        self.batch = batch
        self.examples = examples
        self.term_ns = term_ns
        self.members = set(range(workers))
        self.parked: list[int] = []
        self.unanswered: set[int] = set()  # whose last push was followed by no grant
        self.served_first: list[int] = []
        self.number = 0  # of the next batch that was never handed out
        self.first = 0  # its first example
        self.ended = False
        self.returned: list[Batch] = []
        self.out: dict[int, Batch] = {}  # by ticket; with node, until and version
        self.tickets = 0
        self.version = 0
        self.now_ns = 0
        self.held: list[Batch] = []  # with slot
        self.actions: list[Action] = []

    def on(
        self,
        kind: str,
        now_ns: int,
        node: int,
        ticket: int = 0,
        version: int = 0,  # noqa: ARG002 (it is what the grant said)
        argument: int = 0,
    ) -> list[Action]:
        """What is to be done about one event."""
        self.actions = []
        self.now_ns = now_ns
        if kind == "push":
            if ticket not in self.out:
                self.actions.append({"kind": "drop", "ticket": ticket, "why": "late"})
            else:
                self.unanswered.add(node)
                self.pushed(self.out.pop(ticket))
        elif kind == "leave":
            self.give_back([one for one in self.out.values() if one["node"] == node])
            self.gone(node)
        elif kind == "join":
            self.come(node)
        elif kind == "wake":
            over = [one for one in self.out.values() if self.term_ns and one["until"] <= now_ns]
            self.give_back(over)
            for one in over:
                self.gone(one["node"])
        elif kind == "command":
            self.commanded(argument)
        elif kind == "data_end":
            self.ended = True
        elif kind == "pull":
            self.come(node)
            owners = [one["node"] for one in self.out.values()]
            if node not in owners and node not in self.parked:
                self.parked.append(node)
        else:
            raise ValueError(kind)
        self.settle()
        return self.actions

    # What an algorithm decides.

    def pushed(self, batch: Batch) -> None:
        """The gradient of a batch that was out has come, from ``batch["node"]``."""
        raise NotImplementedError

    def may_start(self, _node: int) -> bool:
        """Whether a parked worker may have its next batch now."""
        return True

    def token(self) -> int:
        """Of the next batch that was never handed out."""
        return 0

    def step(self) -> int:
        """What tokens are compared with."""
        return self.version

    def keeps_models(self) -> bool:
        """Whether workers mix what is granted into models of their own."""
        return False

    def close(self) -> None:
        """After every event: a round may be complete."""

    def commanded(self, _argument: int) -> None:
        raise ValueError("nothing to command")

    def joined(self, node: int) -> None:
        """A worker has come, or come back."""

    def left(self, node: int) -> None:
        """A worker has gone."""

    def answer(self, _node: int) -> dict[str, int]:
        """What else a grant tells."""
        return {"n": len(self.members), "c": 0}

    # What all do alike.

    def come(self, node: int) -> None:
        if node not in self.members:
            self.members.add(node)
            self.joined(node)

    def gone(self, node: int) -> None:
        if node in self.members:
            self.members.remove(node)
            self.unanswered.discard(node)
            self.parked = [w for w in self.parked if w != node]
            self.left(node)

    def give_back(self, batches: list[Batch]) -> None:
        for batch in batches:
            del self.out[batch["ticket"]]
        self.returned = sorted(batches, key=lambda one: one["number"]) + self.returned

    def exhausted(self) -> bool:
        """No batch is left that was never handed out."""
        return self.ended or (self.examples > 0 and self.first >= self.examples)

    def take(self) -> Batch | None:
        """The next batch."""
        if self.returned:
            batch = self.returned.pop(0)
            batch["token"] = max(batch["token"], self.step())
            return batch
        if self.exhausted():
            return None
        count = self.batch
        if self.examples:
            count = min(count, self.examples - self.first)
        token = self.token()
        batch = {"number": self.number, "first": self.first, "count": count, "token": token}
        self.number += 1
        self.first += count
        return batch

    def grant(self, node: int, batch: Batch) -> None:
        self.tickets += 1
        self.parked.remove(node)
        self.unanswered.discard(node)
        handed = {"ticket": self.tickets, "node": node, "version": self.version}
        self.out[self.tickets] = batch | handed | {"until": self.now_ns + self.term_ns}
        lease = Lease(
            self.tickets, *(batch[name] for name in ("number", "first", "count", "token"))
        )
        self.actions.append(
            {"kind": "grant", "node": node, "lease": lease, "version": self.version}
            | self.answer(node)
        )
        if self.term_ns:
            self.actions.append({"kind": "wake", "at": self.now_ns + self.term_ns})

    def hold(self, batch: Batch) -> None:
        """Keep what was just pushed, in the first free slot."""
        slot = min(set(range(len(self.held) + 1)) - {kept["slot"] for kept in self.held})
        self.held.append(batch | {"slot": slot})
        self.actions.append({"kind": "hold", "slot": slot})

    def apply(self, kept: list[Batch], divisor: int) -> None:
        """One update of what is kept, summed in the order of the batches' numbers."""
        self.version += 1
        slots = [(batch["slot"], 1.0) for batch in sorted(kept, key=lambda one: one["number"])]
        self.actions.append(
            {"kind": "apply", "slots": slots, "divisor": float(divisor), "version": self.version}
        )

    def apply_all(self) -> None:
        """The mean of everything that is held."""
        self.apply(self.held, len(self.held))
        self.held = []

    def flush(self) -> None:
        """The data are over, and something is held."""
        self.apply_all()

    def settle(self) -> None:
        """Close what is complete, serve the parked, and see whether the data are over."""
        self.close()
        first = {node: i for i, node in enumerate(self.served_first)}
        for node in sorted(self.parked, key=lambda node: first.get(node, len(first))):
            if self.may_start(node) and (batch := self.take()) is not None:
                self.grant(node, batch)
        if self.exhausted() and not self.returned and not self.out:
            if self.held:
                self.flush()
            for node in self.parked:
                if self.keeps_models() and node in self.unanswered:
                    told = {"node": node, "lease": NOTHING, "version": self.version}
                    self.actions.append({"kind": "grant"} | told | self.answer(node))
                self.actions.append({"kind": "end", "node": node})
            self.unanswered -= set(self.parked)
            self.parked = []
