"""Modes of training with a parameter server, or peer to peer: who waits for whom.

Each is a value of a few numbers; what they do is in docs/modes.md. :func:`leashed.train` has them
carried out by threads, :func:`leashed.simulate` plays them in virtual time.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from leashed.base import checks, words
from leashed.base.choice import Setting
from leashed.base.value import Value

__all__ = [  # noqa: RUF022  in the order of this file
    "Mode",
    "ModeCounts",
    "Sync",
    "AllReduce",
    "BSP",
    "ASP",
    "SSP",
    "DSSP",
    "HopBS",
    "HopBW",
    "EASGD",
    "LocalSGD",
    "GBA",
    "Switching",
    "Automatic",
    "SHAT",
    "SHATRoot",
    "Ensemble",
    "Swarm",
    "GoSGD",
    "ADPSGD",
    "DPSGD",
    "Prague",
]


@dataclass(frozen=True, eq=False, repr=False)
class Mode(Value, ABC):
    """Base of the modes below; not one itself.

    Args:
        term: of the leases: seconds from a grant until the batch goes to another, and what its worker
            may still push is dropped as late. It has to be longer than most batches take, waiting for
            processors, transfers and queues included, or none comes home; on threads whoever is to be
            told may be told a thousandth of it later, or after an evaluation that lasts then. Default:
            never.
    """

    NAME: ClassVar[str]
    PUSHES_GRADIENTS: ClassVar[bool] = True
    """Whether workers push gradients; else they send models of their own."""
    term: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if type(self) is Mode:
            raise TypeError("Mode is no mode; take ASP() or another of leashed.modes")
        self._check()

    def _check(self, *without: str) -> None:
        """That numbers are numbers."""
        for name, value in self._given(*without).items():
            checks.real(name, float(value) if isinstance(value, bool) else value)
        if self.term is not None:
            checks.real("term", checks.seconds("term", self.term), 0.0)

    def _numbers(self, *without: str) -> dict[str, Setting]:
        return {name: float(value) for name, value in self._given(*without).items()}

    def _given(self, *without: str) -> dict[str, Any]:
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        left_out = {"term", *without}
        return {k: v for k, v in found.items() if v is not None and k not in left_out}

    def __repr__(self) -> str:
        told = [
            f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if self._told(one)
        ]
        return f"{type(self).__name__}({', '.join(told)})"

    def _told(self, one: Field[Any]) -> bool:
        return one.name != "term" or self.term is not None

    def choice(self) -> tuple[str, dict[str, Setting]]:
        """The native mode's name, and the numbers that are given."""
        return self.NAME, self._numbers()

    def commands(self) -> list[tuple[float, int]]:
        """When, in seconds, and what the native mode is told."""
        return []

    def machine(self, workers: int, batch: int, examples: float) -> tuple[str, dict[str, Setting]]:
        """The native mode with so many workers, examples of a lease and of all (0: endless)."""
        name, settings = self.choice()
        return name, {**settings, "workers": workers, "batch": batch, "examples": examples}


@dataclass(frozen=True, eq=False)
class ModeCounts:
    """What a mode decided about what was pushed.

    Attributes:
        applied: examples whose gradients, or models, were summed.
        late: examples dropped whose lease had gone to another.
        stale: examples dropped by GBA, eq. 1.
        straggler: examples dropped that came after their round (Hop-BW).
        lost: examples of leases whose workers were gone before they had pushed; others, or they again,
            were given them.
        departures: of workers that left or crashed.
        exchanges: of models with the server's.
        meetings: of peers.
        data_staleness: int64 [largest + 1]; gradients applied, by the steps between the token of their
            batch and then (gba, 4.1); empty where models are pushed.
        worker_examples: int64 [workers]; pushed by each.
    """

    applied: int
    late: int
    stale: int
    straggler: int
    lost: int
    departures: int
    exchanges: int
    meetings: int
    data_staleness: NDArray[np.int64] = field(repr=False)
    worker_examples: NDArray[np.int64] = field(repr=False)

    @classmethod
    def of(cls, counted: Mapping[str, Any]) -> ModeCounts:
        """From what a run tells, which may be more."""
        values: dict[str, Any] = {item.name: counted[item.name] for item in fields(cls)}
        counts = ("data_staleness", "worker_examples")
        return cls(**{**values, **{n: np.asarray(values[n]).astype(np.int64) for n in counts}})

    def to_dict(self) -> dict[str, Any]:
        """Of JSON's own types."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }


@dataclass(frozen=True, eq=False, repr=False)
class _Summing(Mode):
    """Whose updates are of several gradients."""

    divide_by_containing: bool = field(default=False, kw_only=True)

    def _told(self, one: Field[Any]) -> bool:
        return bool(getattr(self, one.name) != one.default)


@dataclass(frozen=True, eq=False, repr=False)
class Sync(_Summing):
    """The barrier: an update is the mean of a gradient of each worker, on the parameters before it.

    Args:
        divide_by_containing: of the rows of tables: a row's gradients are divided by the number of
            those batches that contain its id, not of all that are summed. Then an id that few batches
            have takes as large a step as a frequent one.
    """

    NAME: ClassVar[str] = "sync"


@dataclass(frozen=True, eq=False, repr=False)
class AllReduce(_Summing):
    """``Sync`` without a server: workers sum their gradients over a ring, and each makes the update. It
    has the bits of ``Sync``; what transfers take in virtual time is another thing, on threads nothing.

    Args:
        divide_by_containing: as of ``Sync``.
    """

    NAME: ClassVar[str] = "all_reduce"


@dataclass(frozen=True, eq=False, repr=False)
class BSP(_Summing):
    """An update of ``b2`` gradients (default: the workers), whatever they were taken on; nobody waits
    (gba, section 5.1).

    Args:
        divide_by_containing: as of ``Sync``.
    """

    NAME: ClassVar[str] = "bsp"
    b2: int | None = None


@dataclass(frozen=True, eq=False, repr=False)
class ASP(Mode):
    """Every gradient is an update, and nobody waits."""

    NAME: ClassVar[str] = "asp"


@dataclass(frozen=True, eq=False, repr=False)
class SSP(Mode):
    """Nobody begins who is more than ``s`` batches ahead of the slowest (Ho et al., 2013)."""

    NAME: ClassVar[str] = "ssp"
    s: int


@dataclass(frozen=True, eq=False, repr=False)
class DSSP(Mode):
    """SSP whose bound moves between ``lower`` and ``upper`` (Zhao et al., 2019)."""

    NAME: ClassVar[str] = "dssp"
    lower: int
    upper: int


@dataclass(frozen=True, eq=False, repr=False)
class HopBS(_Summing):
    """Nobody begins who is more than ``b1`` batches ahead of the slowest, and an update is of ``m``
    gradients (gba, section 5.1; docs/readings.md#gba).

    Args:
        m: gradients of an update, whatever they were taken on; default: the workers. 1 is ``SSP``.
        divide_by_containing: as of ``Sync``.
    """

    NAME: ClassVar[str] = "hop_bs"
    b1: int = 2
    m: int | None = None


@dataclass(frozen=True, eq=False, repr=False)
class HopBW(_Summing):
    """A round ends without the ``b3`` slowest, whose gradients of it are dropped (gba, section 5.1).

    Args:
        divide_by_containing: as of ``Sync``.
    """

    NAME: ClassVar[str] = "hop_bw"
    b3: int


@dataclass(frozen=True, eq=False, repr=False)
class EASGD(Mode):
    """Models of the workers' own, exchanged with the server's after ``gap`` steps, elastic parameter
    ``alpha`` (shadowsync, Algorithm 2).

    Args:
        alpha: 0 to 1.
        gap: steps between two exchanges. They share one batch: it is cut into ``gap`` parts as equal
            as can be, and each step's gradient is of one part, so of ``batch_size / gap`` examples;
            a batch of fewer examples has a step for each. For gradients of B examples take
            ``batch_size=gap * B``.
    """

    NAME: ClassVar[str] = "easgd"
    PUSHES_GRADIENTS: ClassVar[bool] = False
    alpha: float
    gap: int = 1


@dataclass(frozen=True, eq=False, repr=False)
class LocalSGD(Mode):
    """Models of the workers' own, whose mean all take after ``h`` steps.

    Args:
        h: steps between two means, which share one batch as those of ``EASGD`` do: each step's
            gradient is of ``batch_size / h`` examples.
    """

    NAME: ClassVar[str] = "local_sgd"
    PUSHES_GRADIENTS: ClassVar[bool] = False
    h: int


@dataclass(frozen=True, eq=False, repr=False)
class GBA(_Summing):
    """An update of ``m`` gradients (default: the workers), without those more than ``iota`` steps stale
    by their token (gba, eq. 1); nobody waits.

    Args:
        divide_by_m: the sum of those kept over m, not over their number. What a staleness policy
            leaves out besides, and the last buffer where it is not full, change nothing of that.
        divide_by_containing: as of ``Sync``; of rows it goes before ``divide_by_m``.
    """

    NAME: ClassVar[str] = "gba"
    m: int | None = None
    iota: int = 4
    divide_by_m: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Switching(GBA):
    """Sync at first, and ``GBA`` from a command on, and back: no number changes, and no example is lost
    or trained twice.

    Args:
        gba_batch: examples of a gradient while it is GBA; default: the batch size, which is Sync's.
        at: when to switch, in seconds, and to what: ``((10.0, "gba"), (20.0, "sync"))``. On threads
            an evaluation that lasts then puts it off.
    """

    NAME: ClassVar[str] = "switching"
    gba_batch: int | None = None
    at: tuple[tuple[float, str], ...] = ()

    def __post_init__(self) -> None:
        if not all(isinstance(one, tuple) and len(one) == 2 for one in self.at):
            raise TypeError(f'at must be pairs such as (10.0, "gba"), got {self.at!r}')
        for seconds, to in self.at:
            checks.real("at", seconds, 0.0, allow=True)
            if to not in COMMANDS:
                raise ValueError(f"at must say {' or '.join(COMMANDS)}, got {to!r}")
        self._check("at")

    def choice(self) -> tuple[str, dict[str, Setting]]:
        """The native mode's name, and the numbers that are given."""
        return self.NAME, self._numbers("at")

    def commands(self) -> list[tuple[float, int]]:
        """When, in seconds, and what the native mode is told."""
        return [(float(seconds), COMMANDS.index(to)) for seconds, to in self.at]


COMMANDS = ("sync", "gba")


def check_batches(mode: Mode, examples: int) -> None:
    """Raises ValueError where a batch of the mode's own is larger than the data."""
    batch = getattr(mode, "gba_batch", None)
    if batch is not None and batch > examples:
        raise ValueError(
            f"gba_batch must be at most the {examples} examples of the data, got {batch}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Automatic(GBA):
    """``Switching`` by itself, by the times that workers take.

    Args:
        gba_batch: as of ``Switching``.
        window: seconds of a measurement.
        windows: so many in a row must say the same.
        gain: a switch to GBA must promise so many times Sync's rate,
        h: and a switch back this share less: its hysteresis.
        capacity: examples a second that the servers can take, which bounds the rate that GBA
            promises; default: any number.
    """

    NAME: ClassVar[str] = "automatic"
    gba_batch: int | None = None
    window: float = 10.0
    windows: int = 3
    gain: float = 1.2
    h: float = 0.1
    capacity: float | None = None

    def __post_init__(self) -> None:
        self._check()
        if not 1e-9 <= self.window <= 9e6:
            raise ValueError(f"window must be from 1e-9 to 9e6 seconds, got {self.window:g}")
        if self.capacity is not None:
            checks.real("capacity", self.capacity, 0.0)

    def choice(self) -> tuple[str, dict[str, Setting]]:
        """The native mode's name, and the numbers that are given."""
        return self.NAME, {**self._numbers("window"), "window_ns": round(1e9 * self.window)}


@dataclass(frozen=True, eq=False, repr=False)
class SHAT(Mode):
    """Models of the workers' own, mixed with the server's by eq. 4 of shat after each push, also the
    last.

    Args:
        base: of its logarithm, above 1; default: the natural one.
    """

    NAME: ClassVar[str] = "shat"
    base: float | None = None

    def __post_init__(self) -> None:
        self._check("base")
        if self.base is not None:
            checks.real("base", self.base, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class SHATRoot(Mode):
    """SHAT with 1 - s/√n (shat, SHAT-root)."""

    NAME: ClassVar[str] = "shat_root"


@dataclass(frozen=True, eq=False, repr=False)
class Ensemble(Mode):
    """Models of the workers' own that never mix (shat, ENSEMBLE). What is evaluated is one model whose
    parameters are the mean of theirs, not the mean of what they predict.
    """

    NAME: ClassVar[str] = "ensemble"


@dataclass(frozen=True, eq=False, repr=False)
class Swarm(Mode):
    """SwarmSGD: after ``h`` steps the mean with a random other, who does not stop.

    Args:
        h: steps, which share one batch as those of ``EASGD`` do: each step's gradient is of
            ``batch_size / h`` examples.
        seed: of who meets whom.
    """

    NAME: ClassVar[str] = "swarm"
    PUSHES_GRADIENTS: ClassVar[bool] = False
    h: int
    seed: int = 0


@dataclass(frozen=True, eq=False, repr=False)
class GoSGD(Mode):
    """The same after each step, with probability ``p``."""

    NAME: ClassVar[str] = "go_sgd"
    PUSHES_GRADIENTS: ClassVar[bool] = False
    p: float
    seed: int = 0


@dataclass(frozen=True, eq=False, repr=False)
class ADPSGD(Mode):
    """AD-PSGD: the mean with one of two neighbours on a ring, after each step."""

    NAME: ClassVar[str] = "ad_psgd"
    PUSHES_GRADIENTS: ClassVar[bool] = False
    seed: int = 0


@dataclass(frozen=True, eq=False, repr=False)
class DPSGD(Mode):
    """D-PSGD: all wait for all, then neighbours on a ring meet in pairs."""

    NAME: ClassVar[str] = "d_psgd"
    PUSHES_GRADIENTS: ClassVar[bool] = False


@dataclass(frozen=True, eq=False, repr=False)
class Prague(Mode):
    """Random groups of those who are not too far behind; a group waits for its own.

    Args:
        group: workers of a group.
        lag: batches that who is in a group with another may be behind it.
        h: steps between two meetings, which share one batch as those of ``EASGD`` do: each step's
            gradient is of ``batch_size / h`` examples.
        seed: of who is in which group.
    """

    NAME: ClassVar[str] = "prague"
    PUSHES_GRADIENTS: ClassVar[bool] = False
    group: int = 4
    lag: int = 4
    h: int = 1
    seed: int = 0


# Every mode, by its word.
WORDS: Mapping[str, type[Mode]] = {
    kind.NAME: kind
    for name in __all__
    if issubclass(kind := globals()[name], Mode) and kind is not Mode
}


def of(mode: Mode | str) -> Mode:
    """``mode``, or what its word stands for: ``"asp"``, ``"gba:m=8,iota=4"``.

    Raises:
        TypeError: it is neither.
        ValueError: there is no such word; the message says which there are.
    """
    if isinstance(mode, str):
        mode = words.made(WORDS, "mode", mode)()
    if not isinstance(mode, Mode):
        raise TypeError(f"mode must be ASP() or another of leashed.modes, got {mode!r}")
    return mode
