"""Figures 6, 7 and 8 of shadowsync in virtual time, on the paper's model."""

from __future__ import annotations

import dataclasses
import itertools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from leashed.base import checks
from leashed.base.table import MISSING, Table, number
from leashed.cluster.shadowsync.played import DLRM, Played
from leashed.cluster.shadowsync.timed import numbers
from leashed.datasets import Split
from leashed.studies.intervals import interval
from leashed.studies.recommender import MODELS
from leashed.studies.study import GoOn, Part, Record
from leashed.sync import EASGD, SYNCHRONISERS, Synchroniser, background, every

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from typing_extensions import Self

__all__ = ["Panels", "VirtualFigure6", "VirtualFigure8"]

_BYTES = 4  # of a parameter
_LEAST = 1e-6  # seconds between two rounds


@dataclass(frozen=True, kw_only=True)
class Panels(Played):
    """Losses and examples per second over a number that varies, for several arms."""

    ACROSS: ClassVar[str]
    """That number, by its name in settings."""
    FIGURE: ClassVar[str]
    CAPTION: ClassVar[str]
    SHOWN: ClassVar[dict[str, str]] = {
        "train loss": "train_loss",
        "eval loss": "eval_loss",
        "eval loss, mean of replicas": "eval_loss_mean",
        "eval loss, best replica": "eval_loss_best",
        "examples/s": "eps",
        "sync gap": "gap",
    }
    """Tables, and what of a run is in them."""

    model: str = DLRM
    examples: int = 300_000
    passes: float = 1.0
    repeats: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("repeats", self.repeats)
        checks.whole("batch_size", self.batch_size)

    @abstractmethod
    def arm(self, setting: Record) -> str:
        """Its curve."""

    @property
    @abstractmethod
    def told(self) -> str:
        """How it is measured, in words."""

    def curves(
        self, records: Sequence[Record], name: str
    ) -> dict[str, dict[int, list[float | None]]]:
        """What was measured, by arm and by what varies, of each repeat."""
        found: dict[str, dict[int, list[float | None]]] = {}
        for record in records:
            setting = record["setting"]
            curve = found.setdefault(self.arm(setting), {})
            curve.setdefault(setting[self.ACROSS], []).append(record["measured"].get(name))
        return found

    def tables(self, records: Sequence[Record]) -> list[Table]:
        """One for each of what is shown."""
        counts = sorted({record["setting"][self.ACROSS] for record in records})
        return [
            Table(
                [f"{title}, by {self.ACROSS}", *map(str, counts)],
                [
                    [arm, *(_cell(curve.get(count, [None]), name) for count in counts)]
                    for arm, curve in self.curves(records, name).items()
                ],
            )
            for title, name in self.SHOWN.items()
        ]

    def text(self, records: Sequence[Record]) -> str:
        return "\n\n".join([self.told, *map(str, self.tables(records))])

    def parts(self, records: Sequence[Record]) -> list[Part]:
        first, *others = self.tables(records)
        return [
            Part(self.FIGURE, first, self.told, lambda: self.drawn(records), self.CAPTION),
            *(Part("", table) for table in others),
        ]

    def drawn(self, records: Sequence[Record]) -> Figure:
        """Its figure: training loss, evaluation loss and examples per second."""
        from leashed.report.plots import shadowsync  # noqa: PLC0415 (matplotlib is optional)

        shown = {
            title: {
                arm: {count: _mean(values) for count, values in sorted(curve.items())}
                for arm, curve in self.curves(records, name).items()
            }
            for title, name in self.SHOWN.items()
            if title in ("train loss", "eval loss", "examples/s")
        }
        return shadowsync.panels(shown, self.ACROSS)


@dataclass(frozen=True, kw_only=True)
class VirtualFigure6(Panels):
    """MA and BMUF in the background and at a fixed rate that synchronises as often, and beside them
    S-EASGD, and S-BMUF of a larger α: Figures 6 and 7.

    Args:
        trainers: numbers of trainers.
        threads: of each.
        alpha: elastic parameters: the first is all synchronisers', with the last S-BMUF has an arm
            more.
        eta: of BMUF, which has no momentum, as printed.
        bandwidth: of EASGD's sync server; by default what makes S-EASGD's gap with 20 trainers the
            paper's 12.48.
        ring_bandwidth, ring_latency: of each trainer's link, where MA and BMUF reduce. By default
            rounds take 2 to 5 iterations of a worker with 5 to 20 trainers: 2.5 times as long with
            four times as many, as in the paper (2.0 to 0.8 a minute of BMUF, 2.9 to 1.0 of MA).
        examples, passes, lr, pace, batch_size, repeats, seed: as of ``Played``.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    NAME: ClassVar[str] = "virtual-figure6"
    TITLE: ClassVar[str] = "ShadowSync: MA and BMUF in the background and at a fixed rate"
    ACROSS: ClassVar[str] = "trainers"
    FIGURE: ClassVar[str] = "Figures 6 and 7"
    CAPTION: ClassVar[str] = (
        "Losses of the first replica and examples per second over the number of trainers (shadowsync, "
        "Figures 6 and 7)."
    )

    trainers: tuple[int, ...] = (5, 10, 15, 20)
    threads: int = 24
    alpha: tuple[float, ...] = (0.3, 0.6)
    eta: float = 0.75
    bandwidth: float = 4.29e7
    ring_bandwidth: float = 1.41e6
    ring_latency: float = 2.03e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("trainers", "alpha"):
            if not getattr(self, name):
                raise ValueError(f"{name} must not be empty")
        if len(set(self.alpha)) < len(self.alpha):
            raise ValueError(f"alpha must have each number once, got {self.alpha}")
        if self.model != DLRM:
            raise ValueError(f"model must be {DLRM}, whose rounds these are, got {self.model}")
        for count in self.trainers:
            checks.whole("trainers", count, 2)
        checks.whole("threads", self.threads)
        for name in ("ring_bandwidth", "ring_latency"):
            checks.real(name, getattr(self, name), 0.0)
        for setting in self.settings():
            synchroniser_of(setting)

    @classmethod
    def of(cls, records: Sequence[Record]) -> Self:
        alpha = dict.fromkeys(record["setting"]["settings"]["alpha"] for record in records)
        return dataclasses.replace(super().of(records), alpha=tuple(alpha))

    def round(self, trainers: int) -> float:
        """Seconds of a round of MA and BMUF, a ring's."""
        size = _BYTES * MODELS[DLRM].graph().dimension
        return 2 * (trainers - 1) * (self.ring_latency + size / trainers / self.ring_bandwidth)

    def settings(self) -> list[Record]:
        return [
            {"repeat": repeat, "trainers": n, **arm}
            for repeat, n in itertools.product(range(self.repeats), self.trainers)
            for arm in self._arms(n)
        ]

    def _arms(self, trainers: int) -> list[Record]:
        """In the background without pause; at a fixed rate after as much time as a round takes, less
        an iteration, which a trainer's other workers still have before it begins: so as much is
        trained between two rounds as in the background.
        """
        gap = max(self.round(trainers) - self.iteration, _LEAST)
        shadow, fixed = {"seconds": None}, {"seconds": gap}
        first, *more = self.alpha

        def of(kind: str, when: Record, alpha: float) -> Record:
            given = {**numbers(kind), "alpha": alpha}
            if kind == "bmuf":
                given |= {"eta": self.eta, "momentum": 0.0}
            return {"sync": kind, **when, "settings": given}

        return [
            of("easgd", shadow, first),
            *(of(kind, when, first) for kind in ("ma", "bmuf") for when in (shadow, fixed)),
            *(of("bmuf", shadow, alpha) for alpha in more),
        ]

    def arm(self, setting: Record) -> str:
        way = "S" if setting["seconds"] is None else "FR"
        name = f"{way}-{setting['sync'].upper()}"
        if setting["sync"] != "bmuf":
            return name
        return f"{name}, α = {setting['settings']['alpha']:g}"

    def measure(self, setting: Record, data: Split | None, go_on: GoOn) -> Record:  # noqa: ARG002
        assert data is not None
        sync = synchroniser_of(setting)
        ring = {"bandwidth": self.ring_bandwidth, "latency": self.ring_latency}
        return self.play(
            data,
            setting["trainers"],
            1,
            sync,
            setting["repeat"],
            threads=self.threads,
            **({} if sync.SERVERS else ring),
        )

    @property
    def told(self) -> str:
        rounds = ", ".join(
            f"{number(self.round(n) / self.iteration)} with {n}" for n in self.trainers
        )
        return (
            f"Virtual time: {self.passes:g} passes by trainers of {self.threads} Hogwild threads each "
            f"of {self.trained}; α = {self.alpha[0]:g} where nothing else is said, BMUF's η = "
            f"{self.eta:g} without momentum. A round of MA and BMUF takes so many iterations of a "
            f"worker: {rounds} trainers; at a fixed rate as much is trained between two. "
            f"S-EASGD's sync server has a link of {number(self.bandwidth / 1e6)} MB/s each way. Losses "
            "of the first replica where nothing else is said, means ± half the 95% interval over the "
            "seeds; sync gap: iterations of a trainer to a synchronisation of its own."
        )


@dataclass(frozen=True, kw_only=True)
class VirtualFigure8(Panels):
    """S-EASGD by the number of threads, of 5 and of 10 trainers: Figure 8.

    Args:
        trainers: numbers of trainers.
        threads: numbers of threads.
        saturated: threads at which the bandwidth of a trainer's memory is used up; a setting of ours,
            by the paper's "EPS almost stops growing when 24 or more threads are used".
        bandwidth: of the sync server's link.
        examples, passes, lr, pace, batch_size, repeats, seed: as of ``Played``.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    NAME: ClassVar[str] = "virtual-figure8"
    TITLE: ClassVar[str] = "ShadowSync: Hogwild threads of a trainer"
    SYNCHRONISERS: ClassVar[tuple[str, ...]] = ("easgd",)
    ACROSS: ClassVar[str] = "threads"
    FIGURE: ClassVar[str] = "Figure 8"
    CAPTION: ClassVar[str] = (
        "Losses of the first replica and examples per second over the threads of a trainer (shadowsync, "
        "Figure 8)."
    )

    trainers: tuple[int, ...] = (5, 10)
    threads: tuple[int, ...] = (1, 12, 24, 32, 64)
    saturated: float = 24.0
    bandwidth: float = 5.6e7

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("trainers", "threads"):
            if not getattr(self, name):
                raise ValueError(f"{name} must not be empty")
            for count in getattr(self, name):
                checks.whole(name, count)
        checks.real("saturated", self.saturated, 1.0, allow=True)

    def settings(self) -> list[Record]:
        return [
            {"repeat": repeat, "trainers": n, "threads": m}
            for repeat, n, m in itertools.product(range(self.repeats), self.trainers, self.threads)
        ]

    def arm(self, setting: Record) -> str:
        return f"{setting['trainers']} trainers"

    def measure(self, setting: Record, data: Split | None, go_on: GoOn) -> Record:  # noqa: ARG002
        assert data is not None
        return self.play(
            data,
            setting["trainers"],
            1,
            EASGD(when=background()),
            setting["repeat"],
            threads=setting["threads"],
            saturated=self.saturated,
        )

    @property
    def told(self) -> str:
        return (
            f"Virtual time: {self.passes:g} passes by trainers of {self.trained}. With m times "
            f"{self.saturated:g} threads a gradient takes m times as long, as memory's bandwidth is "
            f"used up. S-EASGD, α = {EASGD().alpha:g}, one sync server behind a link of "
            f"{number(self.bandwidth / 1e6)} MB/s each way. Losses of the first replica where nothing "
            "else is said, means ± half the 95% interval over the seeds."
        )


def synchroniser_of(setting: Record) -> Synchroniser:
    """Of a setting of ``VirtualFigure6``."""
    when = background() if setting["seconds"] is None else every(seconds=setting["seconds"])
    return dataclasses.replace(SYNCHRONISERS[setting["sync"]](), when=when, **setting["settings"])


def _cell(values: Sequence[float | None], name: str) -> str:
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return MISSING
    return interval(known).text() if "loss" in name else number(_mean(known))


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else float("nan")
