"""A master and its members without sockets, threads or clocks: a seeded schedule of everything that
can go wrong.

Real are ``Coordinator``, ``Outbox`` and ``Standing``. Messages on a connection are delayed, and, if the schedule
says so, lost, doubled and overtaken by others; connections break, at one end or both; processes are
killed, stopped and started, all trainers at once and the master too, which then has only what was on
its disk, which is slow; and some that join are other things than the run is.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

import leashed as lsh
from leashed.cluster import wire
from leashed.cluster.coordinator import Close, Coordinator, Send
from leashed.cluster.fingerprint import differing, of_job, of_server, of_trainer
from leashed.cluster.journal import lines
from leashed.cluster.ledger import Ledger
from leashed.cluster.messages import (
    Account,
    Bye,
    End,
    Epoch,
    FromMaster,
    Gone,
    Join,
    Lease,
    Servers,
    ToMaster,
    Welcome,
)
from leashed.cluster.outbox import Outbox
from leashed.cluster.standing import Standing
from leashed.cluster.state import Began, Change, Entry, Joined, Snapshot, State, Terms
from leashed.cluster.supervisor import name_of


@dataclass(frozen=True)
class Chances:
    """How bad it is. Each a probability per message, or per second and process."""

    lost: float = 0.0
    doubled: float = 0.0
    overtaken: float = 0.0
    cut: float = 0.0
    killed: float = 0.0
    all_killed: float = 0.0  # all trainers, and now and then the master with them
    shut_down: float = 0.0  # the master's machine, on which are most trainers: they are told to end
    unlike: float = 0.0  # one begins that is another thing; also of those that begin anyhow
    stopped: float = 0.0
    master_killed: float = 0.0
    master_stopped: float = 0.0
    round_fails: float = 0.0
    disk: float = 0.0  # seconds, at most, until what is written is on it
    troubles_end: float = 30.0  # seconds, after which everything works


def told(**given: Any) -> dict[str, str]:
    """What a trainer has that all of a run must have alike."""
    model = given.get("model", lsh.models.mlp(16, [4], 3))
    x = np.linspace(0, 1, 8 * 16, dtype=np.float32).reshape(8, 16)
    data = lsh.Dataset.from_arrays(given.get("x", x), np.arange(8, dtype=np.int32) % 3)
    trained = model, data, given.get("seed", 0)
    sync, backend = given.get("sync", lsh.sync.MA(alpha=0.5)), given.get("backend", "leashed")
    own = of_trainer(model.dimension, sync, backend, trained)
    return {**of_job(given.get("job", "mine")), **own}


RUN = told()
UNLIKE = [
    {"leashed": "0.0.1"},
    told(model=lsh.models.mlp(16, [5], 3)),
    told(model=lsh.models.mlp(16, [4], 3, name="other")),
    told(sync=lsh.sync.EASGD()),
    told(sync=lsh.sync.MA(alpha=0.25)),
    told(sync=lsh.sync.MA(alpha=0.5, when=lsh.sync.every(iterations=5))),
    told(x=np.ones((8, 16), np.float32), seed=1),
    told(backend="gloo"),
    told(job="another"),
]


def words_of(role: str, words: dict[str, str]) -> dict[str, str]:
    """As much of it as a process of that role has."""
    known = {**of_job("mine"), **of_server(1)}
    return {name: word for name, word in words.items() if role == "trainer" or name in known}


class Line:
    """A connection: either end may believe that it is open when the other does not."""

    def __init__(self, number: int, process: Process) -> None:
        self.number = number
        self.process = process
        self.at_master = True
        self.at_member = True
        self.last = {"up": 0.0, "down": 0.0}  # when the latest message of a direction arrives


@dataclass(eq=False)
class Process:
    """A trainer or sync server; training is counting."""

    name: int
    role: str
    index: int
    standing: Standing
    words: dict[str, str]  # its fingerprint
    started: float
    more: bool = False  # its place has been given to another, as far as whoever starts it knows
    line: Line | None = None
    welcomed: bool = False
    heard: float = 0.0
    why: str = ""  # it was turned away, being another thing
    alive: bool = True
    stopped_until: float = 0.0
    leases: dict[int, list[int]] = field(default_factory=dict)  # ticket: first, count, used
    backlog: list[Callable[[], None]] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    finishing: bool = False
    newest: int = 0
    used: int = 0  # batches, since it was started
    content: set[int] = field(default_factory=set)  # batches that are in its parameters
    under: dict[int, int] = field(default_factory=dict)  # batch: of which lease it trained it last


class World:
    """Runs a schedule.

    Args:
        seed: of everything.
        terms: of the run.
        chances: how bad it is.
        servers: sync servers.
    """

    def __init__(self, seed: int, terms: Terms, chances: Chances, servers: int = 1) -> None:
        self.random = random.Random(seed)
        self.terms = terms
        self.chances = chances
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._processes = 0
        self._lines = 0
        self.written: list[bytes] = []
        self.outbox = Outbox()
        self.writing: tuple[list[bytes], bytes | None] | None = None  # entries, or all anew
        self.master: Coordinator | None = None
        self.master_stopped_until = 0.0
        self.master_backlog: list[Callable[[], None]] = []
        self.lines: dict[int, Line] = {}
        self.processes: list[Process] = []
        self.told_to_end: list[Process] = []  # with the master
        self.everybody: dict[str, Process] = {}  # by address
        self.agreed: dict[str, str] = {}  # what all that were members have told
        self.over: str | None = None
        self.trained: Counter[int] = Counter()  # batch: how often
        self.epochs: dict[int, Epoch] = {}
        self.happened: Counter[str] = Counter()
        self.start_master()
        for role, count in (("trainer", terms.trainers), ("sync-ps", servers)):
            for index in range(count):
                self.start(role, index)
        self.trouble()

    # Time.

    def after(self, delay: float, what: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (self.now + delay, self._order, what))

    def run(self, until: float) -> None:
        """To the run's end, or until then."""
        while self._events and self._events[0][0] <= until and self.over is None:
            self.now, _, what = heapq.heappop(self._events)
            what()

    # What goes wrong.

    def troubled(self, chance: float) -> bool:
        return self.now < self.chances.troubles_end and self.random.random() < chance

    def trouble(self) -> None:
        """Once in a tenth of a second."""
        chances, tenth = self.chances, 0.1
        if self.troubled(chances.all_killed * tenth):
            self.kill_all()
        if self.master and self.troubled(chances.shut_down * tenth):
            self.shut_down(self.master)
        if self.troubled(chances.unlike * tenth):
            place = self.random.choice(
                [(p.role, p.index) for p in self.processes] or [("trainer", 0)]
            )
            self.start(*place, more=True)
        if self.master and self.troubled(chances.master_killed * tenth):
            self.kill_master()
        if self.master and self.troubled(chances.master_stopped * tenth):
            self.happened["master stopped"] += 1
            self.master_stopped_until = self.now + self.random.uniform(0.5, 12.0)
            self.after(self.master_stopped_until - self.now, self.wake_master)
        for process in list(self.processes):
            if self.troubled(chances.killed * tenth):
                self.happened["killed"] += 1
                self.kill(process)
            elif self.troubled(chances.stopped * tenth):
                self.happened["stopped"] += 1
                process.stopped_until = self.now + self.random.uniform(0.5, 12.0)
                self.after(process.stopped_until - self.now, lambda p=process: self.wake(p))
            elif process.line and self.troubled(chances.cut * tenth):
                self.happened["cut"] += 1
                self.cut(process.line)
        self.after(tenth, self.trouble)

    def kill(self, process: Process) -> None:
        """Its place is taken again, sooner or later."""
        self.end(process)
        if not process.more:
            self.after(self.random.uniform(0.05, 8.0), lambda: self.again(process, process.words))

    def end(self, process: Process) -> None:
        process.alive = False
        self.processes.remove(process)
        if process.line:
            self.cut(process.line)

    def kill_all(self) -> None:
        """All trainers, and now and then the master at the same moment."""
        self.happened["all killed"] += 1
        for process in list(self.processes):
            if process.role == "trainer":
                self.kill(process)
        if self.master and self.random.random() < 0.3:
            self.kill_master()

    def shut_down(self, master: Coordinator) -> None:
        """It goes some seconds later, and what is on its machine by then."""
        self.happened["shut down"] += 1
        master.leaving = True
        trainers = [each for each in self.processes if each.role == "trainer"]
        self.told_to_end += [each for each in trainers if self.random.random() < 0.8]

        def off() -> None:
            if self.master is master and master.over is None:
                self.kill_master()

        self.after(self.random.uniform(0.5, 6.0), off)

    def kill_master(self) -> None:
        self.happened["master killed"] += 1
        self.master = None
        told, self.told_to_end = self.told_to_end, []
        for process in told:
            if process in self.processes:
                self.kill(process)
            elif process.alive:  # it has handed in
                self.happened["handed in before"] += 1
                back = self.random.uniform(0.05, 8.0)
                self.after(back, lambda process=process: self.again(process, process.words))
        if self.writing and self.random.random() < 0.5:
            self.on_disk(*self.writing)
        self.master_backlog.clear()
        for line in self.lines.values():
            line.at_master = False
            self.reliably(line, lambda line=line: self.hang_up(line))
        self.after(self.random.uniform(0.05, 3.0), self.start_master)

    def cut(self, line: Line) -> None:
        """Each end hears of it, or is left to find out."""
        for end in (self.hang_up, self.master_hears_end):
            if self.random.random() < 0.7:
                self.after(self.random.uniform(0.0, 1.0), lambda end=end: end(line))
        line.last["up"] = line.last["down"] = float("inf")  # nothing arrives any more

    # Processes.

    def start(
        self, role: str, index: int, words: dict[str, str] | None = None, *, more: bool = False
    ) -> None:
        """A process; ``more``: beside whoever is in its place."""
        words = words_of(role, words or RUN)
        if more or self.troubled(self.chances.unlike):
            words |= words_of(role, self.random.choice(UNLIKE))
        self._processes += 1
        address = f"10.0.0.{index}:{self._processes}"
        begun = self.begun_with(role, index)
        standing = Standing(role, index, address, words, **begun)  # type: ignore[arg-type]
        standing.asks = role == "trainer"
        process = Process(self._processes, role, index, standing, words, self.now, more)
        self.processes.append(process)
        self.everybody[address] = process
        self.live(process)

    def again(self, process: Process, words: dict[str, str]) -> None:
        """Unless another has its place."""
        if all(other.more for other in self.of_place(process)):
            self.start(process.role, process.index, words)

    def of_place(self, process: Process) -> list[Process]:
        place = process.role, process.index
        return [p for p in self.processes if (p.role, p.index) == place and p is not process]

    def turned_away(self, process: Process, why: str) -> None:
        """It is another thing than the run, and whoever has started it makes it the same."""
        assert not process.ids, "of a member"
        process.why = why
        self.happened["turned away"] += 1
        self.end(process)
        if process.more:
            return

        def mended() -> None:
            known = self.master.state.fingerprint if self.master else {}
            self.again(process, {n: known.get(n, word) for n, word in process.words.items()})

        self.after(self.random.uniform(0.05, 3.0), mended)

    def taken_in(self, process: Process) -> None:
        """As a member."""
        for name, word in process.words.items():
            assert self.agreed.setdefault(name, word) == word, "members that differ"
        if process.more:
            process.more = False
            for other in self.of_place(process):
                self.end(other)

    def begun_with(self, role: str, index: int) -> dict[str, Any]:  # noqa: ARG002
        """What a process has of those before it, as ``Standing`` takes it."""
        return {}

    def awake(self, process: Process) -> bool:
        return process.alive and self.now >= process.stopped_until

    def live(self, process: Process) -> None:
        """What its thread does once in a beat."""
        if not process.alive or process.standing.over is not None:
            return
        if self.awake(process):
            if process.line and self.now - process.heard > self.terms.timeout:
                self.hang_up(process.line)
            if process.line is None:
                self.connect(process)
            self.train(process)
            self.speak(process)
        self.after(self.terms.beat * self.random.uniform(0.9, 1.1), lambda: self.live(process))

    def wake(self, process: Process) -> None:
        if self.awake(process):
            backlog, process.backlog = process.backlog, []
            for what in backlog:
                what()

    def connect(self, process: Process) -> None:
        if self.master is None or self.now < self.master_stopped_until:
            return  # nobody proves anything
        self._lines += 1
        line = self.lines[self._lines] = process.line = Line(self._lines, process)
        process.welcomed, process.heard = False, self.now
        self.to_master_now(lambda: self.master and self.master.opened(line.number, self.now))

    def speak(self, process: Process) -> None:
        if process.line:
            standing = process.standing
            word = standing.report() if process.welcomed else standing.hello()
            self.carry(process.line, "up", wire.encode(word))

    def train(self, process: Process) -> None:
        """Use some batches, tell of some, and ask for more."""
        standing = process.standing
        if process.role != "trainer" or process.finishing:
            return
        for ticket, held in process.leases.items():
            step = min(self.random.randint(0, 6), held[1] - held[2])
            for batch in range(held[0] + held[2], held[0] + held[2] + step):
                self.trained[batch] += 1
                process.content.add(batch)
                process.under[batch] = ticket
            held[2] += step
            process.used += step
        counters = {"batches_used": float(process.used)}
        standing.tell(counters, [(ticket, held[2]) for ticket, held in process.leases.items()])
        if all(held[1] == held[2] for held in process.leases.values()):
            standing.want(self.random.randint(1, 20))
        if standing.epoch and standing.welcome:
            if self.troubled(self.chances.round_fails):
                standing.broken(standing.epoch.number)
            elif standing.welcome.id in [seat.id for seat in standing.epoch.members]:
                self.settle(process, standing.epoch)
        told = process in self.told_to_end
        ends = told or (standing.ended and self.may_end(process))
        if ends and self.random.random() < 0.5:
            process.finishing = True
            standing.left = True
            standing.summary = {"loss": 1.0, "interrupted": float(told), **counters}

    def settle(self, process: Process, epoch: Epoch) -> None:
        """It has an epoch in which it is."""
        process.standing.settled(epoch.number)

    def may_end(self, process: Process) -> bool:  # noqa: ARG002
        """Whether it has nothing more to do than to say so."""
        return True

    def hear(self, process: Process, line: Line, data: bytes) -> None:
        if process.line is not line or not process.alive or process.standing.over is not None:
            return
        process.heard = self.now
        (message,) = wire.from_master().feed(data)
        if isinstance(message, Gone) and (message.unlike or process.more):
            if message.unlike:
                self.turned_away(process, message.reason)
            else:
                self.end(process)
            return
        if isinstance(message, Welcome | Gone):
            process.welcomed = isinstance(message, Welcome)
        news = process.standing.hear(message)
        if isinstance(news, Welcome):
            assert news.id not in process.ids, "an id comes twice"
            process.ids.append(news.id)
            self.taken_in(process)
            process.newest = 0
            process.leases.clear()
        elif isinstance(news, Lease):
            assert news.ticket not in process.leases
            process.leases[news.ticket] = [news.first, news.count, 0]
        elif isinstance(news, Bye):
            self.hang_up(line)
            if process in self.processes:
                self.processes.remove(process)
        elif isinstance(news, Epoch | Servers | End):
            assert process.role == "trainer"
            if isinstance(news, Epoch):
                assert news.number > process.newest, "back to an older epoch"
                process.newest = news.number
        if isinstance(message, Welcome):
            self.speak(process)

    def hang_up(self, line: Line) -> None:
        """The member's end is closed; the master may hear of it."""
        process = line.process
        if process.line is line:
            process.line = None
            if self.random.random() < 0.9:
                self.after(0.01, lambda: self.master_hears_end(line))

    # The lines.

    def carry(self, line: Line, way: str, data: bytes) -> None:
        if line.last[way] == float("inf") or self.troubled(self.chances.lost):
            return
        for _ in range(2 if self.troubled(self.chances.doubled) else 1):
            arrives = self.now + self.random.uniform(0.001, 0.1)
            if self.troubled(self.chances.overtaken):
                arrives += self.random.uniform(0.0, 2.0)
            else:
                arrives = line.last[way] = max(arrives, line.last[way])
            self.after(arrives - self.now, lambda: self.deliver(line, way, data))

    def reliably(self, line: Line, what: Callable[[], None]) -> None:
        """After what is on its way down already."""
        last = line.last["down"]
        if last < float("inf"):
            self.after(max(0.0, last - self.now) + 0.001, what)

    def deliver(self, line: Line, way: str, data: bytes) -> None:
        if way == "up":
            if line.at_master:
                self.to_master_now(lambda: self.master_hears(line, data))
            return
        process = line.process
        if self.awake(process):
            self.hear(process, line, data)
        elif process.alive:
            process.backlog.append(lambda: self.hear(process, line, data))

    # The master.

    def start_master(self) -> None:
        """From what was written."""
        state = self.replay(self.written)
        self.outbox, self.writing = Outbox(), None
        self.lines.clear()
        self.master = Coordinator(self.terms, "run", state, self.now)
        self.master_stopped_until = 0.0
        self.tick(self.master)

    def tick(self, master: Coordinator) -> None:
        if self.master is not master:
            return
        if self.now >= self.master_stopped_until:
            master.tick(self.now)
            self.carry_out()
        self.after(self.terms.beat / 4, lambda: self.tick(master))

    def wake_master(self) -> None:
        if self.master and self.now >= self.master_stopped_until:
            backlog, self.master_backlog = self.master_backlog, []
            for what in backlog:
                self.to_master_now(what)

    def to_master_now(self, what: Callable[[], object]) -> None:
        if self.master is None:
            return
        if self.now < self.master_stopped_until:
            self.master_backlog.append(what)  # type: ignore[arg-type]
        else:
            what()
            self.carry_out()

    def master_hears(self, line: Line, data: bytes) -> None:
        if self.master and line.at_master:
            (message,) = wire.to_master().feed(data)
            if isinstance(message, Join):
                self.joins(self.master, line, message)
            else:
                self.master.heard(line.number, message, self.now)

    def joins(self, master: Coordinator, line: Line, join: Join) -> None:
        """Who differs is told in what, and changes nothing else."""
        run = dict(master.state.fingerprint)
        unlike = {n for n, word in join.fingerprint.items() if run.get(n, word) != word}
        for _ in range(2 * bool(unlike)):  # what is due now is not its doing
            master.tick(self.now)
        if not unlike or line.number not in master.board.lines or master.over is not None:
            master.heard(line.number, join, self.now)
            return
        before = [
            msgspec.json.encode(master.state),
            dict(master._granting.waiting),
            list(master.board.changes),
        ]
        told = len(master.board.actions)
        master.heard(line.number, join, self.now)
        assert before == [
            msgspec.json.encode(master.state),
            master._granting.waiting,
            master.board.changes,
        ]
        ((to, answer),) = master.board.actions[told:]
        assert to == line.number
        assert isinstance(answer, Gone)
        assert answer.unlike
        assert answer.reason.count(" here, and ") == len(unlike)
        for name in unlike:
            assert f"{name} is {join.fingerprint[name]} here, and {run[name]} in" in answer.reason
        named = master.standing(self.now)["unlike"]
        assert named[name_of(join.role, join.index)] == answer.reason

    def master_hears_end(self, line: Line) -> None:
        def end() -> None:
            if self.master and line.at_master:
                line.at_master = False
                self.master.closed(line.number, self.now)

        self.to_master_now(end)

    def carry_out(self) -> None:
        assert self.master is not None
        self.check()
        output = self.master.take()
        for change in output.changes:
            self.recorded(change)
        self.do(self.outbox.put(output))
        if self.writing is None:
            self.write()

    def recorded(self, change: Change) -> None:
        """The master has decided so."""
        if isinstance(change, Joined):
            assert self.master is not None
            words = self.everybody[change.address].words
            assert differing(self.master.state.fingerprint, words) is None

    def write(self) -> None:
        """What is next, and after it what comes meanwhile."""
        master = self.master
        assert master is not None
        if not (changes := self.outbox.group()):
            self.over = master.over
            return
        entries = [lines([change]) for change in changes]
        anew = lines([Snapshot(master.state)]) if self.random.random() < 0.02 else None
        self.writing = entries, anew
        if not self.chances.disk or self.now >= self.chances.troubles_end:
            self.wrote(master)
            return
        delay = self.random.uniform(0.0, self.chances.disk)
        self.after(delay, lambda: self.to_master_now(lambda: self.wrote(master)))

    def wrote(self, master: Coordinator) -> None:
        if self.master is master and self.writing is not None:
            self.on_disk(*self.writing)
            self.writing = None
            self.do(self.outbox.written())
            self.write()

    def on_disk(self, entries: list[bytes], anew: bytes | None) -> None:
        self.written = [*self.written, *entries] if anew is None else [anew]

    def do(self, actions: list[Send | Close]) -> None:
        for action in actions:
            line = self.lines[action.connection]
            if isinstance(action, Close):
                line.at_master = False
                self.reliably(line, lambda line=line: self.hang_up(line))
            elif line.at_master:
                self.note(action.message)
                self.carry(line, "down", wire.encode(action.message))

    def note(self, message: FromMaster | ToMaster) -> None:
        if isinstance(message, Account):
            spans = (range(first, first + count) for first, count in message.open)
            used = set(range(message.next)).difference(*spans)
            assert len(used) == message.used
            assert used <= self.trained.keys(), "used by nobody"
        if isinstance(message, Epoch):
            before = self.epochs.setdefault(message.number, message)
            assert before == message, "two epochs of one number"

    # What must hold, always.

    def check(self) -> None:
        assert self.master is not None
        check_ledger(self.master.state.ledger)
        members = self.master.state.membership.members.values()
        places = {(member.role, member.index) for member in members}
        assert len(places) == len(members), "two in one place"

    def replayed(self) -> State:
        """What a new master would know, were all written that is decided."""
        entries, anew = self.writing or ([], None)
        before = [*self.written, *entries] if anew is None else [anew]
        return self.replay([*before, *(lines([change]) for change in self.outbox._changes)])

    def replay(self, written: list[bytes]) -> State:
        state = State.of(self.terms)
        for line in written:
            entry = msgspec.json.decode(line, type=Entry)
            assert not isinstance(entry, Began)
            if isinstance(entry, Snapshot):
                state = entry.state
            else:
                state.apply(entry)
        return state


def check_ledger(ledger: Ledger) -> None:
    """Every batch is complete, outstanding or free, and no two of these."""
    free, total = ledger.free, ledger.total
    if free is not None:
        assert ledger.complete + ledger.outstanding + free == total
    spans = [(held.first + held.used, held.count - held.used) for held in ledger.held.values()]
    spans = sorted([*spans, *ledger.back])
    for (first, count), (after, _) in pairwise(spans):
        assert first + count <= after, "a batch is in two places"
    for first, count in spans:
        assert count > 0
        assert first + count <= ledger.next
    assert ledger.complete == ledger.next - sum(count for _, count in spans)
