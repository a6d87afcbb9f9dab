"""Figure 5 of shadowsync, whoever runs its trainers: its settings, what bytes over bandwidth predict,
and what is told of it.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from leashed.base import checks
from leashed.base.table import MISSING, Table, number
from leashed.cluster import packing
from leashed.cluster.shadowsync.timed import Timed
from leashed.studies.study import Part, Record
from leashed.sync import EASGD, Synchroniser, background, every

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from typing_extensions import Self

__all__ = ["NONE", "Scaling", "demand", "plateau", "synchroniser"]

NONE = "none"
"""The arm without synchronisation."""

_BYTES = 4  # of a parameter
_BEYOND = 1.3  # times the predicted knee: from there on it is the plateau


def plateau(dimension: int, servers: int, bandwidth: float, gap: int, batch_size: int) -> float:
    """Where FR-EASGD stops scaling, in examples per second: the links carry so many exchanges, and
    each is paid for by ``gap`` iterations of one thread.

    Solves trainers × threads × (iterations per second ÷ gap) × bytes = servers × bandwidth for the
    iterations, × batch size. The bytes are the parameters', one way; where fragments do not divide
    evenly, the server with most of them decides.
    """
    cut = packing.fragments(dimension)
    most = max(
        sum(cut[k][1] - cut[k][0] for k in mine)
        for mine in packing.packed(dimension, servers, packing.BY_LENGTH).servers
    )
    return bandwidth / (_BYTES * most) * gap * batch_size


def demand(trainers: int, eps: float, dimension: int, gap: int, batch_size: int) -> float:
    """Bytes per second, each way, that so many trainers of so many examples per second exchange."""
    return trainers * eps / batch_size / gap * _BYTES * dimension


@dataclass(frozen=True, kw_only=True)
class Scaling(Timed):
    """Examples per second over the number of trainers, where the sync servers' links are limited.

    Args:
        trainers: numbers of trainers.
        servers: numbers of sync servers; FR-EASGD at the smallest gap runs with each, everything
            else with the first.
        gaps: sync gaps of FR-EASGD.
        threads: worker threads of each trainer.
        batch_size: examples per gradient.
        bandwidth: of each server's link, bytes per second each way.
        repeats: runs of each setting.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    TITLE: ClassVar[str] = "ShadowSync: scaling"
    CAPTION: ClassVar[str] = (
        "Examples per second over the number of trainers (shadowsync, Figure 5); dashed: what bytes "
        "over bandwidth predict."
    )

    SYNCHRONISERS: ClassVar[tuple[str, ...]] = ("easgd",)

    trainers: tuple[int, ...]
    servers: tuple[int, ...]
    gaps: tuple[int, ...]
    threads: int
    batch_size: int
    bandwidth: float

    def __post_init__(self) -> None:
        for name in ("trainers", "servers", "gaps"):
            values = getattr(self, name)
            if not values:
                raise ValueError(f"{name} must not be empty")
            for value in values:
                checks.whole(name, value)
        for name in ("threads", "batch_size", "repeats"):
            checks.whole(name, getattr(self, name))
        checks.real("bandwidth", self.bandwidth, 0.0)

    @property
    @abstractmethod
    def length(self) -> int:
        """Of the parameters."""

    @property
    @abstractmethod
    def told(self) -> str:
        """How it is measured, in words."""

    def settings(self) -> list[Record]:
        first, tightest = self.servers[0], min(self.gaps)
        arms = [(NONE, first), ("S-EASGD", first)]
        arms += [(f"FR-EASGD-{gap}", first) for gap in self.gaps]
        arms += [(f"FR-EASGD-{tightest}", count) for count in self.servers[1:]]
        return [
            {"repeat": repeat, "trainers": n, "sync": arm, "servers": count}
            for repeat, n, (arm, count) in itertools.product(
                range(self.repeats), self.trainers, arms
            )
        ]

    def predicted(self, gap: int, servers: int) -> float:
        """The plateau of FR-EASGD, in examples per second."""
        return plateau(self.length, servers, self.bandwidth, gap, self.batch_size)

    def knee(self, records: Sequence[Record], gap: int, servers: int) -> float | None:
        """The number of trainers at which FR-EASGD reaches it, if one trainer without
        synchronisation has been measured to have so many examples per second.
        """
        alone = [
            record["measured"]["eps"] / record["setting"]["trainers"]
            for record in records
            if record["setting"]["sync"] == NONE
        ]
        return self.predicted(gap, servers) / statistics.fmean(alone) if alone else None

    def plateaus(self, records: Sequence[Record]) -> list[Record]:
        """The predicted plateau beside the measured one, for each gap and number of servers of
        which there are runs with enough trainers to be on it: 1.3 times as many as predicted.
        """
        found = []
        arms = dict.fromkeys((r["setting"]["sync"], r["setting"]["servers"]) for r in records)
        for arm, count in arms:
            if not arm.startswith("FR-"):
                continue
            gap = int(arm.rpartition("-")[2])
            knee = self.knee(records, gap, count)
            on_it = [
                eps
                for n, eps in self.curve(records, arm, count).items()
                if knee is not None and n >= _BEYOND * knee
            ]
            if not on_it:
                continue
            predicted, measured = self.predicted(gap, count), statistics.fmean(on_it)
            found.append(
                {
                    "sync": arm,
                    "servers": count,
                    "knee": knee,
                    "predicted": predicted,
                    "measured": measured,
                    "ratio": measured / predicted,
                }
            )
        return found

    def curve(self, records: Iterable[Record], arm: str, servers: int) -> dict[int, float]:
        """Examples per second by the number of trainers, means of the repeats."""
        values: dict[int, list[float]] = {}
        for record in records:
            setting = record["setting"]
            if (setting["sync"], setting["servers"]) == (arm, servers):
                values.setdefault(setting["trainers"], []).append(record["measured"]["eps"])
        return {n: statistics.fmean(values[n]) for n in sorted(values)}

    def panels(
        self, records: Sequence[Record]
    ) -> tuple[dict[str, dict[int, float]], dict[str, dict[int, float]], dict[str, float]]:
        """For a plot: the curves with the first number of servers, those of the smallest gap with
        each, and the predicted plateaus that the measured ones are held against, by their names.
        """
        first, tightest = self.servers[0], f"FR-EASGD-{min(self.gaps)}"
        arms = dict.fromkeys((r["setting"]["sync"], r["setting"]["servers"]) for r in records)
        curves = {arm: self.curve(records, *arm) for arm in arms}
        ways = {_named(*arm): curve for arm, curve in curves.items() if arm[1] == first}
        servers = {_named(*arm): curve for arm, curve in curves.items() if arm[0] == tightest}
        predicted = {
            _named(each["sync"], each["servers"]): float(each["predicted"])
            for each in self.plateaus(records)
        }
        return ways, servers, predicted

    def tables(self, records: Sequence[Record]) -> list[Table]:
        """What records tell, without what ``told`` says."""
        return [self._curves(records), self._kept(records), self._plateaus(records)]

    def text(self, records: Sequence[Record]) -> str:
        return "\n\n".join([self.told, *map(str, self.tables(records))])

    def parts(self, records: Sequence[Record]) -> list[Part]:
        first, *others = self.tables(records)
        return [
            Part("Figure 5", first, self.told, lambda: self.drawn(records), self.CAPTION),
            *(Part("", table) for table in others),
        ]

    def drawn(self, records: Sequence[Record]) -> Figure:
        """Its figure."""
        from leashed.report.plots import shadowsync  # noqa: PLC0415 (matplotlib is optional)

        return shadowsync.scaling(*self.panels(records), self.told, self.loss_panels(records))

    def loss_panels(self, records: Sequence[Record]) -> dict[str, dict[str, dict[int, float]]]:  # noqa: ARG002
        """For a plot: losses, by their names; nothing where none is measured."""
        return {}

    @classmethod
    def of(cls, records: Sequence[Record]) -> Self:
        settings = [record["setting"] for record in records]
        arms = dict.fromkeys(setting["sync"].rpartition("-") for setting in settings)
        gaps = tuple(int(gap) for way, _, gap in arms if way.startswith("FR-"))
        return dataclasses.replace(super().of(records), gaps=tuple(dict.fromkeys(gaps)) or (1,))

    def _curves(self, records: Sequence[Record]) -> Table:
        arms = list(dict.fromkeys((r["setting"]["sync"], r["setting"]["servers"]) for r in records))
        curves = {arm: self.curve(records, *arm) for arm in arms}
        counts = sorted({n for curve in curves.values() for n in curve})
        header = ["examples/s, by trainers", *map(str, counts)]
        rows = [
            [
                _named(arm, count),
                *(number(curve[n]) if n in curve else MISSING for n in counts),
            ]
            for (arm, count), curve in curves.items()
        ]
        return Table(header, rows)

    def _kept(self, records: Sequence[Record]) -> Table:
        """What S-EASGD keeps of the examples per second without synchronisation, and its gap."""
        first = self.servers[0]
        alone = self.curve(records, NONE, first)
        rows = []
        for n, eps in self.curve(records, "S-EASGD", first).items():
            gaps = [
                [r["measured"][name] for name in ("gap", "gap_by_bytes_in", "gap_by_bytes_out")]
                for r in records
                if r["setting"]["sync"] == "S-EASGD" and r["setting"]["trainers"] == n
            ]
            means = [
                MISSING if None in column else number(statistics.fmean(column))
                for column in zip(*gaps, strict=True)
            ]
            rows.append([str(n), f"{eps / alone[n]:.3f}" if n in alone else MISSING, *means])
        header = ["S-EASGD, trainers", "EPS over that without", "sync gap", "by bytes in", "out"]
        return Table(header, rows)

    def _plateaus(self, records: Sequence[Record]) -> Table:
        rows = [
            [
                _named(each["sync"], each["servers"]),
                number(each["knee"]),
                number(each["predicted"]),
                number(each["measured"]),
                f"{each['ratio']:.3f}",
            ]
            for each in self.plateaus(records)
        ]
        header = ["plateau", "from trainers", "predicted EPS", "measured EPS", "ratio"]
        return Table(header, rows)


def synchroniser(name: str) -> Synchroniser | None:
    """Of an arm."""
    if name == NONE:
        return None
    if name == "S-EASGD":
        return EASGD(when=background())
    return EASGD(when=every(iterations=int(name.rpartition("-")[2])))


def _named(arm: str, servers: int) -> str:
    if arm == NONE:
        return "no synchronisation"
    return f"{arm}, {servers} sync server{'s' if servers > 1 else ''}"
