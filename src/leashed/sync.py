"""How trainers keep their replicas of the parameters in sync (shadowsync, section 3.3).

    lsh.train(model, data, until=..., cluster=lsh.cluster.join(sync=lsh.sync.EASGD(alpha=0.5)))

A new one is a class here and a line in ``__all__``, from which ``leashed cluster up`` knows it; one
of your own is a subclass of ``Synchroniser`` with a method ``mix`` (docs/extending.md has both).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.base import checks, words
from leashed.base.choice import Choice

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

__all__ = [  # noqa: RUF022  in the order of this file
    "When",
    "background",
    "every",
    "Synchroniser",
    "EASGD",
    "MA",
    "BMUF",
    "diloco",
]

COMPRESSIONS = ("none", "bfloat16", "int8")

_MOST_PARTS = 1 << 20


@dataclass(frozen=True)
class When:
    """When synchronisation takes place; made by ``background`` and ``every``.

    Attributes:
        kind: ``"background"``, ``"iterations"`` or ``"seconds"``.
        gaps: the gap from an iteration of the worker's on: ``{0: gap}``, or several.
    """

    kind: str
    gaps: Mapping[int, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """As in tables: ``S`` for ShadowSync, ``FR-5`` for a fixed rate of 5 iterations."""
        if self.kind == "background":
            return "S"
        steps = "/".join(f"{gap:g}" for gap in self.gaps.values())
        return f"FR-{steps}" + ("s" if self.kind == "seconds" else "")


def background() -> When:
    """ShadowSync: a thread of its own synchronises without pause, as fast as it goes (shadowsync,
    Algorithm 1).
    """
    return When("background")


def every(
    iterations: int | Mapping[int, int] | None = None,
    seconds: float | Mapping[int, float] | None = None,
) -> When:
    """In the foreground, at a fixed rate; by the worker threads themselves.

    With sync servers each worker thread exchanges after so many iterations of its own. Between
    trainers (``MA``, ``BMUF``) one worker of each enters the round, and the others of its trainer
    stop at their next iteration until it is over.

    Args:
        iterations: the sync gap; or several, ``{0: 100, 2000: 30, 5000: 5}``: from the worker's
            iteration 0 on 100, from 2,000 on 30, then 5 (shadowsync, section 4.1.1, conjectures
            that a gap which varies over time pays).
        seconds: in place of that, so much time; likewise.

    Raises:
        TypeError, ValueError: neither or both are given, or something that is no such number.
    """
    if (iterations is None) == (seconds is None):
        raise ValueError("every() takes either iterations or seconds")
    kind = "iterations" if seconds is None else "seconds"
    given = iterations if seconds is None else seconds
    steps = dict(given) if isinstance(given, Mapping) else {0: given}
    if 0 not in steps:
        raise ValueError(f"{kind} must tell the gap from iteration 0 on, got {given!r}")
    gaps: dict[int, float] = {}
    for start in sorted(checks.whole(f"an iteration of {kind}", each, 0) for each in steps):
        gap = steps[start]
        gaps[start] = (
            checks.whole("iterations", gap)
            if kind == "iterations"
            else checks.real("seconds", gap, 0.0)
        )
    return When(kind, gaps)


@dataclass(frozen=True, kw_only=True)
class Synchroniser:
    """Base of the synchronisers below, and of your own.

    A subclass of your own has a method ``mix``; with ``SERVERS = True`` it gets what sync servers
    hold, which move towards this trainer's parameters by ``alpha`` with each exchange, else the mean
    over all trainers:

        class Halfway(lsh.sync.Synchroniser):
            def mix(self, theta, other, members):
                theta += 0.5 * (other - theta)

    ``mix(theta, other, members)`` changes ``theta``, float32 [d], in place; ``other``, float32 [d],
    is read-only. It is called on the synchronising thread with the GIL; what it has changed ``theta``
    by is added to what the parameters are by then. An exception stops the run and comes out of it.

    Args:
        when: ``background()`` (default) or ``every(...)``.
        parts: streaming: a round takes one of so many parts of the parameters in turn. Default: 1,
            all of them.
        compression: of what is sent: ``"none"`` (default; float32), ``"bfloat16"`` (half the bytes)
            or ``"int8"`` (a quarter, with a scale for each 256 values). What is sent is by how much
            values have changed since the others last knew them, and what encoding loses goes with
            the next round (error feedback): replicas agree ever better as training settles, not
            just as well as the format can tell numbers apart. Who begins or comes new gets exact
            values. All trainers of a run must have the same.

            It takes memory: 2 d floats in a trainer; with sync servers that much for each
            connection, here and there: in the foreground each worker thread has its own.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    SERVERS: ClassVar[bool] = False

    when: When = field(default_factory=background)
    parts: int = 1
    compression: str = "none"

    def __post_init__(self) -> None:
        if not isinstance(self.when, When):
            raise TypeError(f"when must be background() or every(...), got {self.when!r}")
        checks.whole("parts", self.parts, 1, _MOST_PARTS)
        if self.compression not in COMPRESSIONS:
            raise ValueError(
                f"compression must be one of {', '.join(COMPRESSIONS)}, got {self.compression!r}"
            )

    def choice(self) -> Choice:
        """The native synchroniser's name and numbers."""
        if self.SERVERS:
            return "custom_servers", {"alpha": _check_alpha(getattr(self, "alpha", 0.5))}
        return "custom_mean", {}

    def custom(self) -> Callable[[NDArray[np.float32], NDArray[np.float32], int], None] | None:
        """What a synchroniser of one's own does in a round; None: it is native."""
        mix = getattr(self, "mix", None)
        if not callable(mix):
            raise TypeError(
                f"{type(self).__name__} needs a method mix(self, theta, other, members)"
            )
        found: Callable[[NDArray[np.float32], NDArray[np.float32], int], None] = mix
        return found

    @property
    def label(self) -> str:
        """The name in tables, such as S-EASGD and FR-EASGD-5 (shadowsync, section 4)."""
        name, gap = type(self).__name__, self.when.label
        return f"S-{name}" if gap == "S" else f"FR-{name}-{gap.removeprefix('FR-')}"


@dataclass(frozen=True, kw_only=True)
class _Native(Synchroniser, ABC):
    """One that the core has."""

    @abstractmethod
    def choice(self) -> Choice: ...

    def custom(self) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class EASGD(_Native):
    """EASGD (shadowsync, Algorithm 2): w^PS ← (1 − α) w^PS + α θ on the sync servers, then
    θ ← (1 − α) θ + α w^PS.

    Args:
        alpha: the elastic parameter α, 0 to 1. Default 0.3. The paper publishes none; the default
            is the best of ``leashed bench shadowsync --sweep``, over both the background and a gap of
            30 (docs/papers/shadowsync.md): none suits every gap, the smaller it is the smaller α should be.
        symmetric: the classical one (Zhang, Choromanska and LeCun, 2015), where both move by the
            same difference: θ ← (1 − α) θ + α w^PS with w^PS as it was before.
        when: as for every synchroniser, with ``parts`` and ``compression``.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    SERVERS: ClassVar[bool] = True

    alpha: float = 0.3
    symmetric: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_alpha(self.alpha)
        checks.flag("symmetric", self.symmetric)

    def choice(self) -> Choice:
        return "easgd", {"alpha": float(self.alpha), "symmetric": float(self.symmetric)}


@dataclass(frozen=True, kw_only=True)
class MA(_Native):
    """Model averaging (shadowsync, Algorithm 3): θ ← (1 − α) θ + α · mean of all trainers' θ.

    Args:
        alpha: the elastic parameter α, 0 to 1. Default 0.3, as for ``EASGD``.
        difference: θ ← θ + α (mean − θ as it went into the mean) instead. What workers have trained
            while a round was under way, in the background, stays whole; as printed a share α of it
            goes. In the foreground both are the same.
        when: as for every synchroniser, with ``parts`` and ``compression``.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    alpha: float = 0.3
    difference: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_alpha(self.alpha)
        checks.flag("difference", self.difference)

    def choice(self) -> Choice:
        return "ma", {"alpha": float(self.alpha), "difference": float(self.difference)}


@dataclass(frozen=True, kw_only=True)
class BMUF(_Native):
    """BMUF (shadowsync, Algorithm 4): with g = mean of all trainers' θ − w^global,
    Δ ← momentum · Δ + η g, w^global ← w^global + Δ, then θ ← (1 − α) θ + α w^global.

    With η = 1 and no momentum w^global is the mean, and this is ``MA``. The paper's BMUF makes a step
    towards the mean rather than taking it, and publishes no numbers. The defaults are the best with η
    below 1 of ``leashed bench shadowsync --virtual --sweep`` (docs/papers/shadowsync.md), over both the
    background and a gap of 30; η = 1 with the same momentum did a little better still.

    Args:
        alpha: the elastic parameter α, 0 to 1. Default 0.3: the smaller the gap, the smaller α should
            be.
        eta: step size η. Default 0.75.
        momentum: block momentum, 0 to below 1. Default 0.9; 0 is the algorithm as printed.
        nesterov: w^global ← w^global + η g + momentum · Δ instead (Chen and Huo, 2016).
        difference: as for ``MA``, with w^global in place of the mean.
        when: as for every synchroniser, with ``parts`` and ``compression``.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    alpha: float = 0.3
    eta: float = 0.75
    momentum: float = 0.9
    nesterov: bool = False
    difference: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_alpha(self.alpha)
        checks.real("eta", self.eta, 0.0)
        if not 0 <= checks.real("momentum", self.momentum) < 1:
            raise ValueError(f"momentum must be from 0 to below 1, got {self.momentum:g}")
        checks.flag("nesterov", self.nesterov)
        checks.flag("difference", self.difference)

    def choice(self) -> Choice:
        return "bmuf", {
            "alpha": float(self.alpha),
            "eta": float(self.eta),
            "momentum": float(self.momentum),
            "nesterov": float(self.nesterov),
            "difference": float(self.difference),
        }


def diloco(
    *,
    iterations: int = 500,
    eta: float = 0.7,
    momentum: float = 0.9,
    parts: int = 1,
    compression: str = "none",
) -> BMUF:
    """DiLoCo's outer optimiser (Douillard et al., 2023) as a setting of ``BMUF``: every trainer
    begins again from w^global (α = 1), which moves by Nesterov momentum, after so many iterations.

    Args:
        iterations: between two rounds; the publication's H.
        eta: outer learning rate.
        momentum: outer Nesterov momentum.
        parts: as for every synchroniser (streaming DiLoCo, Douillard et al., 2025).
        compression: likewise.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """
    when = every(iterations=iterations)
    return BMUF(
        alpha=1.0,
        eta=eta,
        momentum=momentum,
        nesterov=True,
        when=when,
        parts=parts,
        compression=compression,
    )


class Position(NamedTuple):
    """How far a run has come.

    Attributes:
        batches: number of the first batch that nobody has been given yet.
        open: spans before it that are not known to be used, (first, count), by number.
        run: the run's name; empty: it is not known.
    """

    batches: int = 0
    open: Sequence[tuple[int, int]] = ()
    run: str = ""


class Session(Protocol):
    """A trainer's part in a run, while it trains; ``leashed.cluster.trainer_session`` has it."""

    @property
    def leases(self) -> _core.Leases | None: ...

    @property
    def native(self) -> _core.TrainerSync | None: ...

    @property
    def rows(self) -> _core.RemoteRows | None: ...

    @property
    def wants(self) -> bool:
        """Whether what is trained is to be saved now, for a checkpoint of the whole run."""
        ...

    def save(self, put: Callable[[Path, Position], None]) -> None:
        """Has it saved by ``put``, which is given the file, and how far the run is."""
        ...

    @property
    def goes_on(self) -> bool:
        """Whether what a process before this one has left is of this run."""
        ...

    @property
    def cut_short(self) -> str | None:
        """Why the run ended before its batches and this trainer's training did; None: it did not."""
        ...

    @property
    def lost(self) -> bool:
        """Whether the master has not heard of this training's end."""
        ...

    def follow(self) -> Callable[[], Position]:
        """What tells from now on how far the whole run has come, as far as is known here."""
        ...

    @property
    def output(self) -> Any:
        """Once it is closed: the output of the run, where this one makes it (``cluster.trainer_session``)."""

    def finish(
        self,
        parameters: NDArray[np.float32],
        counted: Mapping[str, float],
        statistics: Any = None,
    ) -> dict[str, float]:
        """The training has ended with these parameters, and the running statistics that its model
        normalises by, if it does; all that was counted, by name.
        """
        ...

    def metrics(self) -> dict[str, float]:
        """What was counted so far, by name."""
        ...

    def close(self) -> None:
        """Ends all that goes on; without ``finish`` the others take this trainer for dead."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Cluster(Protocol):
    """A trainer's place in a run; ``leashed.cluster.join`` makes it."""

    def session(
        self,
        dimension: int,
        synchroniser: Synchroniser | None,
        *,
        total: int | None,
        batch_size: int,
        workers: int,
        lockstep: bool,
        resumed: Position | None = None,
        left: Position | None = None,
        trained: tuple[Any, Any, int] | None = None,
        rows: Any = None,
    ) -> Session:
        """Takes part from here to the session's end. ``left``: where a process before this one has
        left what this one would begin with. ``trained``: model, data and seed. ``rows``: that
        embedding servers hold (``training.rows_read``).
        """
        ...


@dataclass(frozen=True)
class Synced:
    """A trainer's place in a run, and how it is kept in sync there."""

    cluster: Cluster
    sync: Synchroniser

    @property
    def embedding_servers(self) -> int:
        """The cluster's."""
        return int(getattr(self.cluster, "embedding_servers", 0))

    def resuming(self, given: Any) -> tuple[Synced, Any]:
        """As the cluster's."""
        if (resuming := getattr(self.cluster, "resuming", None)) is None:
            return self, given
        cluster, begun = resuming(given)
        return Synced(cluster, self.sync), begun

    @property
    def readers(self) -> int:
        """The cluster's."""
        return int(getattr(self.cluster, "readers", 0))

    def sending(self, *given: Any) -> Any:
        """As the cluster's."""
        return self.cluster.sending(*given)  # type: ignore[attr-defined]

    def session(self, *given: Any, **named: Any) -> Session:
        """The cluster's."""
        return self.cluster.session(*given, **named)


def check(sync: object, cluster: object) -> Synchroniser | None:
    """How the arguments of those names say that parameters are kept in sync; TypeError or ValueError
    where they are wrong.
    """
    if cluster is not None and not callable(getattr(cluster, "session", None)):
        raise TypeError(f"cluster must come from leashed.cluster.join(), got {cluster!r}")
    known: Synchroniser | None = getattr(cluster, "sync", None)
    if sync is None:
        return check_synchroniser(known)
    if cluster is None:
        raise ValueError("sync needs cluster, the trainers to be in sync with: cluster.join()")
    if known is not None:
        raise ValueError("sync is given by cluster too; leave one of the two out")
    return check_synchroniser(sync)


def check_synchroniser(sync: object) -> Synchroniser | None:
    """``sync``, or what its word stands for: ``"easgd:alpha=0.5"``; None may be given.

    Raises:
        TypeError: it is neither.
        ValueError: there is no such word; the message says which there are.
    """
    if isinstance(sync, str):
        return words.made(SYNCHRONISERS, "sync", sync)()
    if sync is not None and not isinstance(sync, Synchroniser):
        raise TypeError(f"sync must come from leashed.sync, got {sync!r}")
    return sync


def _check_alpha(alpha: float) -> float:
    if not 0 <= checks.real("alpha", alpha) <= 1:
        raise ValueError(f"alpha must be from 0 to 1, got {alpha:g}")
    return float(alpha)


# Every synchroniser as the command line makes it, by its name there.
SYNCHRONISERS: Mapping[str, Callable[..., Synchroniser]] = {
    name.lower(): globals()[name]
    for name in __all__
    if name not in ("When", "background", "every", "Synchroniser")
}
