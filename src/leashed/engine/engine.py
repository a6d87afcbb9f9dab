"""The engine under a training loop of one's own."""

from __future__ import annotations

import atexit
import math
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import accumulate
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _core, disciplines, rules
from leashed import staleness as policies
from leashed.base import checks
from leashed.base.machine import cores
from leashed.disciplines import Discipline, Leashed, Sequential, Synchronous
from leashed.rules import SGD, Rule
from leashed.staleness import Policy
from leashed.sync import Cluster, Session, Synchroniser
from leashed.sync import check as check_synchronised

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Batches", "Engine"]

MOST = 4096
MOST_BATCHES = 2**53
_LOOK = 0.02  # seconds of waiting for a batch between two looks at signals


class Engine(_core.Engine):
    """Parameters that threads of your own read and update, with gradients from anywhere.

        with lsh.Engine(theta, rule=lsh.Adam(1e-3), discipline=lsh.Hogwild()) as engine:
            # in each of your threads, again and again:
            with engine.read() as theta:
                g = gradient(theta)
            engine.push(g)

    ``read()`` gives a read-only float32 [d] array and costs no copy under ``Leashed`` (a pinned
    published vector, which never changes), under ``Hogwild(copy=False)`` and ``Sequential`` (the
    vector itself, which goes on changing). Under ``Hogwild()`` and ``Locked`` it is a copy, as
    their algorithms say. An array may be kept: what it shows stays for as long as anyone refers to
    it, and counts as one of the ``readers`` meanwhile.

    ``push(gradient)`` applies a gradient: a contiguous float32 [d] array, which is not converted.
    One with NaN or infinity is refused before anything is changed. Its staleness τ is counted from
    the calling thread's last read, or from ``t=``, the version of the view it was computed on. It
    returns ``Update(published, staleness, tries)``; ``published`` is False where the persistence
    bound dropped the gradient or the staleness policy left it out.

    ``push_sparse(indices, values)`` under ``Hogwild`` touches only the parameters it names
    (int64 [n], ascending, and float32 [n]); the rule must be ``SGD`` or ``Adagrad`` without weight
    decay, which leave a parameter with no gradient as it is.

    A thread becomes one of the ``workers`` by its first push, until it ends. Leaving the ``with``
    closes the engine: reads and pushes raise from then on, arrays and ``parameters()`` remain.

    With ``sync`` and ``cluster`` the parameters are kept in sync with those of other trainers until
    then: by a thread of the engine's own, or, with ``every(...)``, by your threads after a push,
    which then takes as long as an exchange. ``batches()`` gives numbers of batches, each to one
    thread of one trainer:

        for k in engine.batches():  # in each of your threads
            with engine.read() as theta:
                g = gradient(theta, examples[k])
            engine.push(g)

    Args:
        theta: initial parameters [d], converted to float32 and copied.
        rule: the update rule, from ``leashed.rules``. Default: ``SGD(lr=0.05)``.
        discipline: how threads share the parameters. Default: ``Leashed()``. Not ``Synchronous``:
            it takes all its threads through every step together.
        staleness: from ``leashed.staleness``. Default: ``none()``.
        workers: threads that may push. Default: the processors this process may use (1 with
            ``Sequential``).
        readers: views that may be alive at once. Default: two for each worker (the one in hand
            and the one that a variable still names) and eight more.
        variables: the lengths of the variables that ``theta`` is made of, for stage-aware
            staleness. Default: it is one.
        check_finite: search each gradient for NaN and infinity before it is applied: one more pass
            over it, without the GIL where it is long. False trusts the caller; one NaN then spreads
            to whatever is computed from the parameters.
        sync: from ``leashed.sync``; needs ``cluster``. Default: that of ``cluster``.
        cluster: the run in which this process is one of several trainers, from
            ``leashed.cluster.join()``. Closing the engine ends its part in that: the master gets
            the parameters, with a RuntimeWarning where the run ended before its batches and this.
            Where the ``with`` is left by an exception, the others take this trainer for dead.
            ``workers``, ``readers`` and ``check_finite`` may differ between trainers.
        batches: how many ``batches()`` gives in all, to all trainers together. Default: no end.
        batch_size: examples of each, for what is counted.
        begun: the rule's state vectors, each float32 [d], and t, of an engine that this one goes on
            from: its ``state`` and ``t``. Default: none has been.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it. Or the cluster's run has
            other batches, or no sync server where ``sync`` needs one.
        OSError: the cluster's master cannot be reached.
        ValueError (``push``, ``push_sparse``): a value is NaN or infinite; the message tells the
            first one's index. Parameters, state and t are unchanged.
        RuntimeError (``read``, ``push``): the engine is closed, or more views or threads than
            there may be; (``push``) this thread has read nothing and ``t`` is not given.
        Exception: what a synchroniser of your own has raised comes out of the next read or push of
            any thread, or of ``close``; from every later one a RuntimeError. The gradient of the
            push that raises it was applied.
    """

    def __init__(
        self,
        theta: ArrayLike,
        *,
        rule: Rule | str | None = None,
        discipline: Discipline | str | None = None,
        staleness: Policy | str | None = None,
        workers: int | None = None,
        readers: int | None = None,
        variables: Sequence[int] | None = None,
        check_finite: bool = True,
        sync: Synchroniser | str | None = None,
        cluster: Cluster | None = None,
        batches: int | None = None,
        batch_size: int = 1,
        begun: tuple[Sequence[NDArray[np.float32]], int] = ((), 0),
    ) -> None:
        start = checks.vector("theta", theta)
        self.discipline = check_discipline(discipline)
        self.rule = check_rule(rule)
        self.staleness = policies.of("staleness", staleness or policies.none())
        if workers is None:
            workers = 1 if isinstance(self.discipline, Sequential) else cores()
        workers = checks.whole("workers", workers, maximum=MOST)
        if isinstance(self.discipline, Sequential) and workers != 1:
            raise ValueError(
                f"workers must be 1 with Sequential, got {workers}; choose another discipline"
            )
        if not isinstance(check_finite, bool):
            raise TypeError(f"check_finite must be True or False, got {check_finite!r}")
        readers = 2 * workers + 8 if readers is None else readers
        readers = checks.whole("readers", readers, maximum=4 * MOST)
        ends = _ends(variables, len(start))
        sync = check_synchronised(sync, cluster)
        if batches is not None:
            batches = checks.whole("batches", batches, maximum=MOST_BATCHES)
        batch_size = checks.whole("batch_size", batch_size)
        self._session: Session | None = None
        self._counted: dict[str, float] = {}
        with ExitStack() as parts:
            if cluster is not None:
                session = cluster.session(
                    len(start),
                    sync,
                    total=batches,
                    batch_size=batch_size,
                    workers=workers,
                    lockstep=False,
                )
                self._session = parts.enter_context(session)
            super().__init__(
                start,
                self.discipline.choice(),
                self.rule.choice(),
                self.staleness.choice(),
                workers,
                readers,
                ends,
                check_finite,
                list(begun[0]),
                begun[1],
                None if self._session is None else self._session.native,
            )
            parts.callback(super().close)
            self._begin()
            parts.pop_all()
        self._leases = _leases(self._session, batches)
        self._closing = threading.Lock()
        self._began = time.monotonic()
        if self._session is not None:
            _in_runs.add(self)
            self._unused = weakref.finalize(self, _close_later, self._session)
            self._unused.atexit = False

    def parameters(self) -> NDArray[np.float32]:
        """A copy of the latest parameters, float32 [d]."""
        theta: NDArray[np.float32] = self._state()[0]
        return theta

    @property
    def state(self) -> list[NDArray[np.float32]]:
        """Copies of the rule's state vectors, each float32 [d]; Adam's are the first and the second
        moment.
        """
        states: list[NDArray[np.float32]] = self._state()[1]
        return states

    def batches(self) -> Batches:
        """Numbers from 0 for the calling thread, each given to one thread of one trainer. Where a
        trainer dies, what it has not said to be used is given once more, to others.

        Raises:
            ValueError: there is no cluster, and ``batches`` was not given.
        """
        if self._leases is None:
            raise ValueError("batches() needs Engine(batches=...), how many there are, or cluster")
        return Batches(self, self._leases)

    @property
    def cluster(self) -> dict[str, float]:
        """What was counted so far in a cluster, by name, such as ``syncs``; empty without one."""
        if self._session is None or self._counted:
            return dict(self._counted)
        return self._session.metrics()

    @property
    def cut_short(self) -> str | None:
        """Why the cluster's run ended before its batches and this training did; None: it did not. A
        program that is started again where it ends so, by whoever started it, ends with status 75:
        ``sys.exit(75 if engine.cut_short else 0)``.
        """
        return None if self._session is None else self._session.cut_short

    def close(self) -> None:
        """Refuse reads and pushes from here on; views stay valid. In a cluster: end the
        synchronisation, which waits for no sync server, and hand in the parameters. Where the
        master stays away, there is a RuntimeWarning instead.

        Raises:
            Exception: what a synchroniser of your own has raised, where no read or push has.
        """
        self._close(finished=True)

    def _close(self, *, finished: bool) -> None:
        if self._session is None:
            super().close()
            return
        self._may_close()  # who may not must not wait for who does
        with self._closing:
            if not self._unused.detach():  # it is closed
                return
            _in_runs.discard(self)
            seconds = time.monotonic() - self._began
            with self._session as session:
                super().close()
                self._counted = session.metrics()
                if finished:
                    self._counted = session.finish(self.parameters(), self._told(seconds))

    def _told(self, seconds: float) -> dict[str, float]:
        """What the cluster's report tells of this engine."""
        counters = self._counters()
        published = counters["published"]
        return {
            "updates": float(self.t),
            "seconds": seconds,
            "dropped_for_sync": float(counters["lost"]),
            "staleness_mean": counters["staleness"] / published if published else math.nan,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._close(finished=error is None)

    def __len__(self) -> int:
        return self.dimension

    def __repr__(self) -> str:
        return (
            f"Engine(d={self.dimension}, t={self.t}, rule={self.rule!r}, "
            f"discipline={self.discipline!r}, workers={self.workers})"
        )

    def __reduce__(self) -> Any:
        raise TypeError("an Engine lives in one process and cannot be pickled")


class Batches:
    """Numbers of batches for one thread; ``Engine.batches`` makes it.

    Asking for the next one says that the last one's batch was trained. Waits where there may be more
    later: batches that others hold come back if these die.
    """

    def __init__(self, engine: Engine, leases: _core.Leases) -> None:
        self._engine = engine
        self._leases = leases
        self._place: int | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> int:
        while (number := self.next_within(_LOOK)) is None:
            pass
        return number

    def next_within(self, seconds: float) -> int | None:
        """The next, or None where there is none yet after so many seconds.

        Raises:
            StopIteration: there are no more.
            RuntimeError: the engine is closed.
        """
        self.used()
        found: tuple[int, int] | None = self._engine._take(self._leases, seconds)
        if found is None:
            return None
        self._place, number = found
        return number

    def used(self) -> None:
        """The last one's batch was trained."""
        if self._place is not None:
            place, self._place = self._place, None
            self._leases.use(place)


_in_runs: weakref.WeakSet[Engine] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Before the interpreter goes, which threads of engines may want."""
    for engine in list(_in_runs):
        with suppress(Exception):  # nobody is there to hear of it
            engine._close(finished=False)


def _close_later(session: Session) -> None:
    """Where an engine was not closed; on a thread of its own, since garbage is collected on any."""
    threading.Thread(target=session.close, name="leashed-closing", daemon=True).start()


def _leases(session: Session | None, batches: int | None) -> _core.Leases | None:
    """Where numbers of batches come from; None: nowhere."""
    if session is not None:
        return session.leases
    if batches is None:
        return None
    leases = _core.Leases()
    leases.give(0, 0, batches)
    leases.end(batches)
    return leases


def check_discipline(discipline: Discipline | str | None) -> Discipline:
    """``discipline``, or the default; an error where threads cannot come and go under it."""
    discipline = Leashed() if discipline is None else disciplines.of(discipline)
    if isinstance(discipline, Synchronous):
        raise ValueError(  # noqa: TRY004  it is a discipline, but not one for this
            "discipline must not be Synchronous, which takes all its threads through every step "
            "together; choose Leashed(), Hogwild(), Locked() or Sequential()"
        )
    return discipline


def check_rule(rule: Rule | str | None) -> Rule:
    """``rule``, or the default; TypeError where it is none."""
    return SGD(0.05) if rule is None else rules.check_rule(rule)


def _ends(variables: Sequence[int] | None, dimension: int) -> list[int]:
    if variables is None:
        return []
    lengths = [checks.whole(f"variables[{i}]", n) for i, n in enumerate(variables)]
    if sum(lengths) != dimension:
        raise ValueError(f"variables must add up to the {dimension} parameters, got {sum(lengths)}")
    return list(accumulate(lengths))
