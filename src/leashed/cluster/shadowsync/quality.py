"""What synchronisation does to the model: Table 2 of shadowsync, and the search for α, η and the
block momentum. One pass over the data with several trainers, and the losses of the first replica.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from leashed.base import checks
from leashed.base.table import MISSING, Table, number
from leashed.cluster.shadowsync.fleet import train_together
from leashed.cluster.shadowsync.servers import Servers
from leashed.cluster.shadowsync.timed import Timed, numbers
from leashed.datasets import Split
from leashed.disciplines import Hogwild
from leashed.rules import SGD
from leashed.stopping import Until, batches_in
from leashed.studies.intervals import interval
from leashed.studies.scaling import MODELS, build_model
from leashed.studies.study import GoOn, Part, Record
from leashed.sync import SYNCHRONISERS, Synchroniser, When, background, every
from leashed.training.options import Observe
from leashed.training.run import mean_loss

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ALONE", "Pass", "Sweep", "Table2", "synchroniser_of"]

_BYTES = 4  # of a parameter
ALONE = "none"
"""The arm of one trainer."""
_NEVER = 1e6  # seconds between evaluations
_AROUND = 1.0  # seconds of a run beside training
_RATE = 15_000.0  # examples per second, about, evaluations included, on two processors


@dataclass(frozen=True, kw_only=True)
class Pass(Timed):
    """One pass over the data with several trainers.

    Args:
        model: name of the network.
        trainers: how many.
        threads: worker threads of each.
        servers: sync servers.
        batch_size: examples per gradient.
        lr: step size.
        examples: of the digits that are drawn where no data are given.
        repeats: runs of each setting; the k-th has the seed ``seed + k``.
        seed: of the first.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    model: str = "mlp"
    trainers: int = 4
    threads: int = 2
    servers: int = 1
    batch_size: int = 16
    lr: float = 0.05
    examples: int = 60_000
    repeats: int = 5
    seed: int = 0

    NETWORKS: ClassVar[tuple[str, ...]] = tuple(MODELS)

    def __post_init__(self) -> None:
        if self.model not in self.NETWORKS:
            raise ValueError(f"model must be one of {', '.join(self.NETWORKS)}, got {self.model!r}")
        for name in ("trainers", "threads", "servers", "batch_size", "examples", "repeats"):
            checks.whole(name, getattr(self, name))
        checks.step("lr", self.lr)
        checks.whole("seed", self.seed, 0)

    def scaled(self, scale: float) -> Self:
        """With fewer examples."""
        examples = max(self.batch_size, round(self.examples * scale))
        return dataclasses.replace(self, examples=examples)

    @abstractmethod
    def arms(self) -> list[Record]:
        """The settings of a repeat: ``sync`` (kind, or ``"none"``), ``gap`` (None: in the
        background; a list: gaps in turn, each for an equal part of the pass) and ``settings`` of the
        synchroniser.
        """

    @classmethod
    def of(cls, records: Sequence[Record]) -> Self:
        gaps = dict.fromkeys(
            gap for record in records if isinstance(gap := record["setting"]["gap"], int)
        )
        return dataclasses.replace(super().of(records), gaps=tuple(gaps))  # type: ignore[call-arg]

    def iterations(self, examples: int) -> int:
        """How many each worker has in a pass over so many examples, on average; rounded down."""
        return batches_in(1.0, examples, self.batch_size) // (self.trainers * self.threads)

    def settings(self) -> list[Record]:
        return [
            {"repeat": repeat, **arm}
            for repeat, arm in itertools.product(range(self.repeats), self.arms())
        ]

    def seconds(self) -> float:
        return len(self.settings()) * (self.examples / _RATE + _AROUND)

    def measure(self, setting: Record, data: Split | None, go_on: GoOn) -> Record:  # noqa: ARG002
        assert data is not None
        model = build_model(self.model, data.train)
        sync = synchroniser_of(setting, self.iterations(len(data.train)))
        trainers = self.trainers if sync is not None else 1
        batches = batches_in(1.0, len(data.train), self.batch_size)
        needed = sync is not None and sync.SERVERS
        with Servers(model.dimension, self.servers) if needed else nullcontext() as servers:
            trained = train_together(
                model,
                data,
                trainers=trainers,
                threads=self.threads,
                sync=sync,
                servers=servers,
                batches=batches,
                seed=self.seed + setting["repeat"],
                until=Until(epochs=1.0),
                discipline=Hogwild(),
                rule=SGD(self.lr),
                batch_size=self.batch_size,
                observe=Observe(every=_NEVER, rows=None),
            )
            counted = {} if servers is None else servers.counters()
        first = trained.results[0]
        return {
            "train_loss": first.final_loss,
            "eval_loss": mean_loss(model, data.test, first.parameters, self.threads),
            "eval_accuracy": float(first.validation_accuracy[-1]),
            "eps": trained.eps,
            "gap": trained.sync_gap,
            "syncs": trained.syncs,
            **by_bytes(trained.gradients, counted, model.dimension),
            "failed": sum(each["failed"] for each in trained.counters),
        }


@dataclass(frozen=True, kw_only=True)
class Table2(Pass):
    """The sync gap's effect: in the background, at fixed rates in the foreground, and with a gap that
    varies over time, which section 4.1.1 conjectures to pay; and one trainer without any.

    Args:
        kinds: synchronisers, by their names in ``leashed.sync.SYNCHRONISERS``, with their defaults.
        gaps: iterations between two synchronisations in the foreground.
        varying: gaps in turn, each for an equal part of a worker's iterations; as they stand, from
            seldom to often and the reverse, for about as many synchronisations. A pass of fewer
            iterations than gaps leaves some out.
    """

    NAME: ClassVar[str] = "table2"
    TITLE: ClassVar[str] = "ShadowSync: losses by sync gap"
    LOSSES: ClassVar[dict[str, str]] = {
        "train loss": "train_loss",
        "eval loss": "eval_loss",
        "eval accuracy": "eval_accuracy",
    }
    """Columns, and what of a run is in them."""

    kinds: tuple[str, ...] = ("easgd", "ma", "bmuf")
    gaps: tuple[int, ...] = (5, 10, 30, 100)
    varying: tuple[tuple[int, ...], ...] = ((100, 30, 5), (5, 30, 100))

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_kinds(self.kinds)
        for gap in self.gaps:
            checks.whole("gaps", gap)
        for gaps in self.varying:
            if not isinstance(gaps, tuple) or len(gaps) < 2:
                raise ValueError(f"varying must have two gaps or more in turn, got {gaps!r}")
            for gap in gaps:
                checks.whole("varying", gap)

    def arms(self) -> list[Record]:
        return [
            {"sync": ALONE, "gap": None, "settings": {}},
            *(
                {"sync": kind, "gap": gap, "settings": numbers(kind)}
                for kind in self.kinds
                for gap in (None, *self.gaps, *map(list, self.varying))
            ),
        ]

    @property
    def told(self) -> str:
        """How it is measured, in words."""
        return (
            f"One pass by {self.trainers} trainers of {self.threads} Hogwild threads each "
            f"({ALONE}: by one trainer alone), batches of {self.batch_size}, η = {self.lr:g}; losses "
            "of the first replica, means ± half the 95% interval over the seeds. Syncs: of all "
            "trainers, means. Sync gap: eq. 2 by syncs, and by the servers' bytes each way."
        )

    def text(self, records: Sequence[Record]) -> str:
        (part,) = self.parts(records)
        return f"{part.note}\n\n{part.found}"

    def parts(self, records: Sequence[Record]) -> list[Part]:
        header = ["", "syncs", "sync gap", "by bytes in", "out", *self.LOSSES, "examples/s", "runs"]
        iterations = self.iterations(records[0]["conditions"]["examples"])
        rows = []
        varying: dict[str, str] = {}
        by_arm = _by_arm(records)
        alphas = {arm["settings"].get("alpha") for arm, _ in by_arm if arm["settings"]}
        for arm, runs in by_arm:
            sync = synchroniser_of(arm, iterations)
            cells = ["one trainer" if sync is None else sync.label]
            if sync is not None and len(alphas) > 1:
                cells[0] += f", α = {arm['settings']['alpha']:g}"
            if sync is not None and len(sync.when.gaps) > 1:
                varying[sync.when.label.removeprefix("FR-")] = _schedule(sync.when)
            for name in ("syncs", "gap", "gap_by_bytes_in", "gap_by_bytes_out"):
                cells.append(_mean([run[name] for run in runs]))
            for name in self.LOSSES.values():
                cells.append(_spread([run.get(name) for run in runs]))
            rows.append([*cells, _mean([run["eps"] for run in runs]), str(len(runs))])
        told = self.told
        for label, schedule in varying.items():
            told += f" {label}, by a worker's iterations: {schedule}."
        return [Part(self.TITLE, Table(header, rows), told)]


@dataclass(frozen=True, kw_only=True)
class Sweep(Pass):
    """A grid over the synchronisers' numbers, each in the background and at a fixed rate, MA as printed
    and by differences. The best have the least evaluation loss, on average over both and the seeds.

    Args:
        kinds: as for ``Table2``, of easgd, ma and bmuf.
        alpha: elastic parameters α.
        eta: of BMUF.
        momentum: of BMUF.
        gaps: iterations between two synchronisations in the foreground.
    """

    NAME: ClassVar[str] = "sweep"
    TITLE: ClassVar[str] = "ShadowSync: a grid over the synchronisers' numbers"

    kinds: tuple[str, ...] = ("easgd", "ma", "bmuf")
    alpha: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    eta: tuple[float, ...] = (0.5, 1.0)
    momentum: tuple[float, ...] = (0.0, 0.5, 0.9)
    gaps: tuple[int, ...] = (30,)
    examples: int = 20_000
    repeats: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_kinds(self.kinds)
        if "diloco" in self.kinds:
            raise ValueError("kinds: diloco has no α to look for; choose of easgd, ma, bmuf")
        for arm in self.arms():
            synchroniser_of(arm, self.iterations(self.examples))

    def arms(self) -> list[Record]:
        return [
            {"sync": kind, "gap": gap, "settings": settings}
            for kind in self.kinds
            for settings in self._grid(kind)
            for gap in (None, *self.gaps)
        ]

    @property
    def told(self) -> str:
        """How it is measured, in words."""
        return (
            f"Evaluation loss of the first replica after one pass over {self.examples:,} examples by "
            f"{self.trainers} trainers of {self.threads} threads each, means ± half the 95% interval "
            "over the seeds; the best of each kind first."
        )

    def _grid(self, kind: str) -> list[dict[str, float]]:
        if kind == "bmuf":
            return [
                {"alpha": alpha, "eta": eta, "momentum": momentum}
                for alpha, eta, momentum in itertools.product(self.alpha, self.eta, self.momentum)
            ]
        printed = [{"alpha": alpha} for alpha in self.alpha]
        return [*printed, *({**each, "difference": True} for each in printed if kind == "ma")]

    def best(self, records: Sequence[Record]) -> dict[str, dict[str, float]]:
        """By kind, the settings with the least mean evaluation loss."""
        return {kind: ranked[0][0] for kind, ranked in self._ranked(records).items()}

    def _ranked(
        self, records: Sequence[Record]
    ) -> dict[str, list[tuple[dict[str, float], list[Record]]]]:
        """By kind, settings with their runs: those with the most runs first, and of these the one
        with the least mean evaluation loss.
        """
        found: dict[str, list[tuple[dict[str, float], list[Record]]]] = {}
        for record in records:
            setting = record["setting"]
            entries = found.setdefault(setting["sync"], [])
            runs = next((r for s, r in entries if s == setting["settings"]), None)
            if runs is None:
                entries.append((setting["settings"], runs := []))
            runs.append(record)
        for entries in found.values():
            entries.sort(key=lambda entry: (-len(entry[1]), _mean_loss(entry[1])))
        return found

    def text(self, records: Sequence[Record]) -> str:
        (part,), best = self.parts(records), self._best(records)
        return "\n\n".join([self.told, str(part.found), "\n".join(best)])

    def parts(self, records: Sequence[Record]) -> list[Part]:
        modes = [None, *self.gaps]
        header = ["", *("background" if gap is None else f"gap {gap}" for gap in modes)]
        header += ["all", "runs"]
        rows = []
        for kind, ranked in self._ranked(records).items():
            for settings, runs in ranked:
                cells = [f"{kind} {_words(settings)}"]
                for gap in modes:
                    cells.append(
                        _spread(
                            [
                                run["measured"]["eval_loss"]
                                for run in runs
                                if run["setting"]["gap"] == gap
                            ]
                        )
                    )
                rows.append([*cells, number(_mean_loss(runs)), str(len(runs))])
        note = f"{self.told} {'; '.join(self._best(records))}."
        return [Part(self.TITLE, Table(header, rows), note)]

    def _best(self, records: Sequence[Record]) -> list[str]:
        return [f"best {kind}: {_words(settings)}" for kind, settings in self.best(records).items()]


def _check_kinds(kinds: Sequence[str]) -> None:
    if not kinds:
        raise ValueError("kinds must not be empty")
    for kind in kinds:
        if kind not in SYNCHRONISERS:
            raise ValueError(f"kinds must be of {', '.join(SYNCHRONISERS)}, got {kind!r}")


def synchroniser_of(setting: Mapping[str, Any], iterations: int) -> Synchroniser | None:
    """Of a setting, where each worker has so many iterations."""
    if setting["sync"] == ALONE:
        return None
    default = SYNCHRONISERS[setting["sync"]]()
    return dataclasses.replace(
        default, when=_when(setting["gap"], iterations), **setting["settings"]
    )


def _when(gap: int | Sequence[int] | None, iterations: int) -> When:
    if gap is None:
        return background()
    if isinstance(gap, int):
        return every(iterations=gap)
    if iterations < len(gap):
        raise ValueError(
            f"a gap that varies {len(gap)} times needs as many iterations of each worker, not "
            f"{iterations}; take more passes, or fewer threads"
        )
    return every(iterations={part * iterations // len(gap): each for part, each in enumerate(gap)})


def _schedule(when: When) -> str:
    return ", ".join(f"from {start:,} on {gap:g}" for start, gap in when.gaps.items())


def by_bytes(iterations: int, counted: Mapping[str, float], dimension: int) -> Record:
    """Eq. 2's second form, by the bytes that the servers have received and sent."""
    found: Record = {}
    for way in ("bytes_in", "bytes_out"):
        moved = counted.get(way, 0.0)
        found[f"gap_by_{way}"] = iterations * _BYTES * dimension / moved if moved else None
    return found


def _by_arm(records: Sequence[Record]) -> list[tuple[Record, list[Record]]]:
    """What was measured of each setting but for its repeat, in the order of the records."""
    found: list[tuple[Record, list[Record]]] = []
    for record in records:
        arm = {name: value for name, value in record["setting"].items() if name != "repeat"}
        runs = next((r for a, r in found if a == arm), None)
        if runs is None:
            found.append((arm, runs := []))
        runs.append(record["measured"])
    return found


def _mean_loss(runs: Sequence[Record]) -> float:
    """Of the evaluations; infinite where a run has none that is finite."""
    losses = [run["measured"]["eval_loss"] for run in runs]
    return math.fsum(math.inf if loss is None else loss for loss in losses) / len(losses)


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return number(math.fsum(known) / len(known)) if known else MISSING


def _spread(values: Sequence[float | None]) -> str:
    """Mean ± half the interval."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return MISSING
    return interval(known).text()


def _words(settings: Mapping[str, float]) -> str:
    """As ``--sync`` takes them."""
    return ", ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else f'{value:g}'}"
        for name, value in settings.items()
    )
