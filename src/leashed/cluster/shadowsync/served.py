"""Tables 2 and 3 and Figures 6 to 8 of shadowsync in virtual time, with the rows of the paper's model at
embedding servers, as many as the paper has.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from leashed.cluster.shadowsync.panels import Panels, VirtualFigure6, VirtualFigure8
from leashed.cluster.shadowsync.played import DLRM, Played
from leashed.cluster.shadowsync.quality import ALONE
from leashed.cluster.shadowsync.timed import numbers
from leashed.cluster.shadowsync.virtual import VirtualTable2, VirtualTable2b
from leashed.datasets import Split
from leashed.simulation.embedding import EmbeddingServers
from leashed.studies.study import GoOn, Part, Record
from leashed.sync import EASGD, background, every

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["VirtualServed", "VirtualTable3"]

_SERVING = 0.22  # of a gradient's time: what its rows take servers, together
_THREADS = 24  # that serve, of each
_BANDWIDTH, _LATENCY = 5.6e7, 5e-5
_ROWS = 26  # of an example
_SLOWER = 1.6  # than without servers


class _Served:
    """A study that is played with embedding servers: by the number of trainers, or as many as these."""

    pace: float
    batch_size: int
    SERVERS: ClassVar[dict[int, int]] = {}

    def rows(self, trainers: int) -> EmbeddingServers:
        each = _SERVING * self.pace / (_ROWS * self.batch_size) / _THREADS
        return EmbeddingServers(
            self.SERVERS.get(trainers, trainers), _BANDWIDTH, _LATENCY, row=each
        )


class _Table2(_Served, VirtualTable2):
    SERVERS: ClassVar[dict[int, int]] = {11: 12}


class _Table2b(_Served, VirtualTable2b):
    SERVERS: ClassVar[dict[int, int]] = {20: 29}


class _Figure6(_Served, VirtualFigure6):
    """S-EASGD's runs are Table 3's."""

    def settings(self) -> list[Record]:
        return [setting for setting in super().settings() if setting["sync"] != "easgd"]


class _Figure8(_Served, VirtualFigure8):
    SERVERS: ClassVar[dict[int, int]] = {5: 4, 10: 6}


@dataclass(frozen=True, kw_only=True)
class VirtualTable3(_Served, Panels):
    """The losses' rise with the number of trainers, in the background and at fixed rates: Table 3.

    Args:
        trainers: numbers of trainers.
        threads: of each.
        gaps: in the foreground.
        bandwidth: of the sync server's link, as of ``VirtualFigure6``.
        examples, passes, lr, pace, batch_size, repeats, seed: as of ``Played``.
    """

    NAME: ClassVar[str] = "virtual-table3"
    TITLE: ClassVar[str] = "ShadowSync: losses over trainers"
    SYNCHRONISERS: ClassVar[tuple[str, ...]] = ("easgd",)
    ACROSS: ClassVar[str] = "trainers"
    FIGURE: ClassVar[str] = "Table 3"
    CAPTION: ClassVar[str] = "Losses over the number of trainers (shadowsync, Table 3)."

    trainers: tuple[int, ...] = VirtualFigure6.trainers
    threads: int = 24
    gaps: tuple[int, ...] = (5, 30)
    bandwidth: float = VirtualFigure6.bandwidth

    def settings(self) -> list[Record]:
        return [
            {
                "repeat": repeat,
                "trainers": n,
                "sync": "easgd",
                "gap": gap,
                "seconds": None,
                "settings": numbers("easgd"),
            }
            for repeat, n in itertools.product(range(self.repeats), self.trainers)
            for gap in (None, *self.gaps)
        ]

    def arm(self, setting: Record) -> str:
        return "S-EASGD" if setting["gap"] is None else f"FR-EASGD-{setting['gap']}"

    def measure(self, setting: Record, data: Split | None, go_on: GoOn) -> Record:  # noqa: ARG002
        assert data is not None
        gap = setting["gap"]
        sync = EASGD(when=background() if gap is None else every(iterations=gap))
        return self.play(
            data, setting["trainers"], 1, sync, setting["repeat"], threads=self.threads
        )

    @property
    def told(self) -> str:
        return (
            f"Virtual time: {self.passes:g} passes by trainers of {self.threads} threads each of "
            f"{self.trained}; α = {EASGD().alpha:g}."
        )


@dataclass(frozen=True, kw_only=True)
class VirtualServed(Played):
    """All of them, a panel each.

    Args:
        panel: which of them, by ``TABLE_2A`` to ``FIGURE_8``. Figures 6 and 7 take S-EASGD's runs from
            Table 3's.
        trainers: numbers of trainers, of Table 3 and Figures 6 and 7; Figure 8 has 5 and 10.
        threads: numbers of threads of a trainer, of Figure 8; elsewhere they are 24.
        gaps: of Table 2; Table 3's are 5 and 30.
        examples, passes, lr, pace, batch_size, repeats, seed: as of ``Played``.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    NAME: ClassVar[str] = "virtual-served"
    TITLE: ClassVar[str] = "ShadowSync: rows at embedding servers"
    TABLE_2A: ClassVar[str] = "Table 2(a)"
    TABLE_2B: ClassVar[str] = "Table 2(b)"
    TABLE_3: ClassVar[str] = "Table 3"
    FIGURE_6: ClassVar[str] = "Figures 6 and 7"
    FIGURE_8: ClassVar[str] = "Figure 8"

    model: str = DLRM
    examples: int = 80_000
    passes: float = 1.0
    repeats: int = 5
    panel: tuple[str, ...] = (TABLE_2A, TABLE_2B, TABLE_3, FIGURE_6, FIGURE_8)
    trainers: tuple[int, ...] = VirtualTable3.trainers
    threads: tuple[int, ...] = VirtualFigure8.threads
    gaps: tuple[int, ...] = (5, 10, 30)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model != DLRM:
            raise ValueError(f"model must be {DLRM}, whose rows servers hold, got {self.model}")
        known = tuple(self.panels())
        if not self.panel or set(self.panel) - set(known):
            raise ValueError(f"panel must be of {', '.join(known)}, got {', '.join(self.panel)!r}")
        if self.FIGURE_6 in self.panel and self.TABLE_3 not in self.panel:
            raise ValueError(
                f"panel must have {self.TABLE_3}, whose runs {self.FIGURE_6} shows too"
            )
        if not self.settings():
            raise ValueError("trainers, threads and gaps must not be empty")

    def panels(self) -> dict[str, VirtualTable2 | Panels]:
        """The studies that these are."""
        same = {
            name: getattr(self, name)
            for name in ("examples", "passes", "repeats", "lr", "pace", "batch_size", "seed")
        }
        alpha = (EASGD().alpha,)
        return {
            self.TABLE_2A: _Table2(gaps=self.gaps, alpha=alpha, **same),
            self.TABLE_2B: _Table2b(gaps=self.gaps, alpha=alpha, **same),
            self.TABLE_3: VirtualTable3(trainers=self.trainers, **same),
            self.FIGURE_6: _Figure6(trainers=self.trainers, **same),
            self.FIGURE_8: _Figure8(threads=self.threads, **same),
        }

    def settings(self) -> list[Record]:
        found = [
            {"panel": panel, **setting}
            for panel, study in self.panels().items()
            for setting in study.settings()
            if panel in self.panel and setting.get("sync") != ALONE
        ]
        return sorted(found, key=lambda setting: setting["repeat"])

    @classmethod
    def of(cls, records: Sequence[Record]) -> Self:
        there = {record["setting"]["panel"] for record in records}
        varied = [one for one in records if one["setting"]["panel"] == cls.TABLE_3] or records
        threads = [r["setting"]["threads"] for r in records if "threads" in r["setting"]]
        gaps = [r["setting"].get("gap") for r in records if r["setting"]["panel"] in cls.panel[:2]]
        return dataclasses.replace(
            super().of(varied),
            panel=tuple(panel for panel in cls.panel if panel in there),
            threads=tuple(dict.fromkeys(threads)) or cls.threads,
            gaps=tuple(dict.fromkeys(gap for gap in gaps if gap is not None)) or cls.gaps,
        )

    @classmethod
    def of_panel(cls, records: Sequence[Record], panel: str) -> list[Record]:
        """Those of one of the studies; with Figure 6 S-EASGD's, which are Table 3's."""
        return [
            record
            for record in records
            if (setting := record["setting"])["panel"] == panel
            or (panel == cls.FIGURE_6 and setting["panel"] == cls.TABLE_3 and not setting["gap"])
        ]

    def measure(self, setting: Record, data: Split | None, go_on: GoOn) -> Record:
        own = {name: value for name, value in setting.items() if name != "panel"}
        found: Record = self.panels()[setting["panel"]].measure(own, data, go_on)
        return found

    def seconds(self) -> float:
        return _SLOWER * super().seconds()

    def parts(self, records: Sequence[Record]) -> list[Part]:
        told = (
            f"Rows of DLRM's tables at embedding servers: 12 and 29 in Table 2, 4 and 6 in Figure 8, "
            f"elsewhere as many as trainers; each with a link of {_BANDWIDTH / 1e6:g} MB/s each way and "
            f"{_THREADS} threads, whom a batch's rows take {_SERVING:g} of its gradient's time in all. "
            "Look-ahead 1."
        )
        parts = [Part("", None, told)]
        for panel, study in self.panels().items():
            if found := self.of_panel(records, panel):
                first, *others = study.parts(found)
                parts += [first._replace(title=f"{panel}, rows at servers"), *others]
        return parts
