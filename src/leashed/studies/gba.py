"""Section 5 of gba on a cluster of virtual time, as a study, and its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed import simulation
from leashed.base.table import MISSING, Table, number
from leashed.datasets import ClickDataset
from leashed.studies import gba_bound, switching
from leashed.studies.gba_bound import Bound
from leashed.studies.intervals import Interval, difference, interval, ratio
from leashed.studies.study import GoOn, Part, Record, revived
from leashed.studies.switching import (
    DAILY,
    MODES,
    PUSHES,
    SHARES,
    STALE,
    STALE_WORKERS,
    STATES,
    SYNC_OF_ALL,
    Career,
    Day,
    Hours,
    Rate,
    Setting,
    Shared,
    after_sync,
    plans,
    rated,
    to_sync,
)
from leashed.training.result import Histogram

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Found", "Part", "Switching", "parts", "tendencies"]

_DAY_NOTE = (
    "Examples per second, of the largest of all; Sync is an all-reduce among few fast workers, SwarmSGD "
    "and Prague are the paper's approaches of local all-reduce, and of Async and GBA the servers take "
    "each push. "
    "The load over the day is ours: the paper does not have its cluster's in numbers."
)
_PUSHES_NOTE = (
    "Throughput over Async's, seed by seed, ± half the 95% interval. Sync is an all-reduce among few fast "
    "workers, or among as many as Async has (Sync of all); Async's pushes are taken by the servers one "
    "after the other, in the time that stands first."
)
_STATES_NOTE = (
    "Days by Sync, then one by the mode; AUC of the day after. Global: examples per "
    "second, ± their standard deviation over windows of five seconds; local: of a worker, ± theirs "
    "over the workers. Staleness: updates between pull and application, of the gradients applied; of data: "
    "steps between the token of their batch and then. "
    "AUC − Sync's: seed by seed, mean ± half its 95% interval. Dense parameters by Adagrad in Async, by Adam "
    "in the others, each day from a fresh state; rows by Adagrad throughout."
)
_STALE_NOTE = (
    f"Of {STALE_WORKERS} workers, with the numbers of the paper's private task. Mean (largest) staleness, in "
    "updates, where gradients take so much of a worker's cycle, and fetching batches the rest."
)
_SWITCH_NOTE = (
    "AUC of the next day at the first day after the switch, at the last, and as the mean of all; "
    "'no switch' is Sync throughout. Difference: from it, mean over these days ± half its 95% "
    "interval, seed by seed. The cluster is busy."
)
_BOUND_NOTE = (
    "Change: E|∇F(w_k) − ∇F(w_{k−s})|² / E|∇F(w_k)|², s steps apart. p₀: share of the gradients kept "
    "whose token was not behind. ζ: the probability that two steps in turn update a parameter. γ: ζ times "
    "the change over the steps that gradients are behind (eq. 3). γ' = 1 − γ + p₀/2 (eq. 4)."
)


class Stale(NamedTuple):
    """Staleness of the gradients applied: updates between pull and application."""

    mean: float
    most: int


class Found(NamedTuple):
    """What ``leashed bench switching`` finds."""

    setting: Setting
    daily: list[Hours]
    rates: list[Rate]
    days: dict[Career, list[Day]]
    bounds: list[Bound]
    seeds: tuple[int, ...] = ()
    """Of the repeats; where there is none those of ``setting``."""
    stale: Mapping[tuple[str, str, float], list[Stale]] = MappingProxyType({})
    """By state, mode and share of a cycle."""


@dataclass(frozen=True)
class Switching(Shared):
    """What ``leashed bench switching`` asks, as of ``Setting``.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    NAME: ClassVar[str] = "switching"
    TITLE: ClassVar[str] = "Modes of training on a shared cluster"
    HELP: ClassVar[str] = (
        "modes on a shared cluster, and switches between them: section 5 of the GBA paper"
    )
    DESCRIPTION: ClassVar[str] = (
        "Compare modes of training in virtual time on a cluster that others use too: throughput over "
        "a day (Figure 1), throughput, accuracy, drops and staleness in three states of the cluster "
        "(Tables 2 and 3), accuracy after a switch from Sync and to it (Figure 6), and γ, ζ and p₀ of "
        "GBA's bound (eqs. 3 and 4)."
    )
    SIDE_BY_SIDE: ClassVar[bool] = True

    @cached_property
    def clicks(self) -> list[ClickDataset]:
        """Of the days of a career, and of the one after."""
        return self.days_of(self.rows, self.base + self.days + 1, self.drift)

    @cached_property
    def day(self) -> ClickDataset:
        """The clicks that the bound is measured on."""
        return self.days_of(self.rows, 1)[0]

    def settings(self) -> list[Record]:
        """Of Figure 1, which has no repeats, of Tables 2 and 3, of careers, and of the bound."""
        rates: list[Record] = [
            {"of": "rate", "state": state, "mode": mode, "charge": push}
            for state, mode, push in rated(self)
        ]
        rates += [
            {"of": "staleness", "state": state, "mode": mode, "share": share}
            for state, mode, share in product(STATES, STALE, SHARES)
        ]
        bounds: list[Record] = [
            {"of": "bound", "state": state, "share": share}
            for state, share in product(STATES, gba_bound.POINTS)
        ]
        asked = plans(self)
        return [
            *({"of": "day", "mode": mode} for mode in DAILY),
            *(
                {"repeat": repeat, **one}
                for repeat, seed in enumerate(self.seeds)
                for one in (
                    *rates,
                    *(
                        {"of": "career", "plan": [" ".join(day) for day in career.plan]}
                        for career in asked
                        if career.seed == seed
                    ),
                    *bounds,
                )
            ),
        ]

    def measure(self, setting: Record, data: Any, go_on: GoOn) -> Any:  # noqa: ARG002
        kind, seed = setting["of"], self.seed + setting.get("repeat", 0)
        if kind == "day":
            return switching.hour_by_hour(self, setting["mode"])
        if kind == "rate":
            charged = replace(self, push=setting["charge"])
            return switching.rate(charged, setting["state"], setting["mode"], [seed])
        if kind == "staleness":
            of = (setting["state"], setting["mode"], setting["share"])
            found = switching.staleness(self, *of, seed)
            return {"mean": found.mean(), "most": found.max()}
        if kind == "career":
            days = switching.career_of(self, _career(setting, seed), self.clicks, go_on)
            return [{**day._asdict(), **_counts(day)} for day in days]
        piece = gba_bound._Piece(setting["state"], seed, setting["share"])
        return gba_bound.measured(self, piece, self.day)

    def parts(self, records: Sequence[Record]) -> list[Part]:
        found = self.found(records)
        if not found.rates:
            return [_daily(found.daily)]
        return parts(found)

    def found(self, records: Sequence[Record]) -> Found:
        """What ``parts`` takes."""
        rates: dict[tuple[str, str, float], list[Rate]] = {}
        pieces: dict[str, list[gba_bound._Measured]] = {}
        stale: dict[tuple[str, str, float], list[Stale]] = {}
        daily, days, seeds = [], {}, []
        for record in records:
            setting, measured = record["setting"], record["measured"]
            kind, seed = setting["of"], self.seed + setting.get("repeat", 0)
            if kind == "day":
                daily.append(revived(Hours, measured))
            elif kind == "rate":
                seeds.append(seed)
                one = revived(Rate, measured)
                rates.setdefault(one[:3], []).append(one)
            elif kind == "staleness":
                of = (setting["state"], setting["mode"], setting["share"])
                stale.setdefault(of, []).append(Stale(**measured))
            elif kind == "career":
                days[_career(setting, seed)] = [_revived_day(day) for day in measured]
            else:
                piece = revived(gba_bound._Measured, measured)
                pieces.setdefault(setting["state"], []).append(piece)
        zeta = 0.0
        if pieces:
            zeta = gba_bound.both_updated(self.graph(), self.day, self.workers * self.batch_size)
        return Found(
            self,
            daily,
            [
                Rate(
                    *key,
                    *(
                        np.concatenate(values)
                        for values in zip(*(one[3:] for one in same), strict=True)
                    ),
                )
                for key, same in rates.items()
            ],
            days,
            [gba_bound.bound(state, of_state, zeta) for state, of_state in pieces.items()],
            tuple(dict.fromkeys(seeds)),
            stale,
        )


def _career(setting: Record, seed: int) -> Career:
    plan = tuple(day.partition(" ")[::2] for day in setting["plan"])
    return Career(seed, plan)


def _counts(day: Day) -> Record:
    return {"staleness": day.staleness.counts, "data_staleness": day.data_staleness.counts}


def _revived_day(measured: Record) -> Day:
    staleness, data_staleness = (
        Histogram(np.array(measured[name], np.int64)) for name in ("staleness", "data_staleness")
    )
    given = {**measured, "staleness": staleness, "data_staleness": data_staleness}
    return Day(**{**given, "auc": tuple(measured["auc"])})


def parts(found: Found) -> list[Part]:
    """Figure 1, in numbers too, what a push costs, Tables 2 and 3 in one, Figure 6, in numbers too, and
    the bound.
    """
    return [
        _daily(found.daily),
        _pushes(found.rates),
        _states(found),
        *([_stale(found.stale)] if found.stale else []),
        _switches(found),
        _bound(found.bounds),
    ]


def _daily(found: Sequence[Hours]) -> Part:
    def drawn() -> Figure:
        from leashed.studies.plots import switching  # noqa: PLC0415 (matplotlib is optional)

        load = np.asarray(simulation.day(1, 1.0).compute[1]["load"])
        return switching.day({one.mode: one.eps for one in found}, load)

    most = max(float(one.eps.max()) for one in found)
    header = ["mode", "night", "noon", "evening", "over the day", "least to most"]
    rows = [
        [
            one.mode,
            *(number(float(one.eps[hour]) / most) for hour in (3, 12, 18)),
            number(float(one.eps.mean()) / most),
            number(float(one.eps.min() / one.eps.max())),
        ]
        for one in found
    ]
    caption = "Throughput of the modes in each hour of a day (gba, Figure 1)."
    title = "Throughput over a day (Figure 1)"
    return Part(title, Table(header, rows), _DAY_NOTE, drawn, caption)


def _pushes(rates: Sequence[Rate]) -> Part:
    table = Table(
        ["push", "mode", *STATES],
        [
            [f"{1000 * push:g} ms", mode, *(worth(rates, mode, s, push).text(2) for s in STATES)]
            for push in PUSHES
            for mode in ("Sync", SYNC_OF_ALL)
        ],
    )
    return Part("Sync beside Async, by what a push costs the servers", table, _PUSHES_NOTE)


def worth(rates: Sequence[Rate], mode: str, state: str, push: float) -> Interval:
    """A mode's throughput over Async's, seed by seed."""
    ours, theirs = (
        next(one.eps.mean(axis=1) for one in rates if one[:3] == (state, name, push))
        for name in (mode, "Async")
    )
    return ratio(list(ours), list(theirs))


def _states(found: Found) -> Part:
    header = ["state", "mode", "global", "of Sync's", "local", "AUC", "AUC − Sync's", "dropped"]
    header += ["staleness", "most", "of data", "most of data"]
    setting = found.setting
    rates = [one for one in found.rates if one.push == setting.push and one.mode in MODES]
    sync = {one.state: float(one.eps.mean()) for one in rates if one.mode == "Sync"}
    of_sync: dict[str, list[Day]] = {}
    rows = []
    for one in rates:
        lengths = setting.days if one.state == "busy" else 1
        firsts = [
            found.days[after_sync(setting, seed, one.mode, one.state, lengths)][setting.base]
            for seed in _seeds(found)
        ]
        if one.mode == "Sync":
            of_sync[one.state] = firsts
        rows.append(
            [
                one.state,
                one.mode,
                f"{number(float(one.eps.mean()))} ± {number(float(one.eps.std()), 2)}",
                number(float(one.eps.mean()) / sync[one.state]),
                f"{number(float(one.local.mean()))} ± {number(float(one.local.std()), 2)}",
                f"{np.mean([day.auc[1] for day in firsts]):.4f}",
                MISSING if one.mode == "Sync" else ahead(firsts, of_sync[one.state]).text(),
                _share(firsts),
                *_staleness([day.staleness for day in firsts]),
                *_staleness([day.data_staleness for day in firsts]),
            ]
        )
    return Part("Three states of the cluster (Tables 2 and 3)", Table(header, rows), _STATES_NOTE)


def _stale(found: Mapping[tuple[str, str, float], Sequence[Stale]]) -> Part:
    def mean(state: str, mode: str, share: float) -> float:
        return float(np.mean([one.mean for one in found[state, mode, share]]))

    rows = [
        [
            f"{share:g}",
            state,
            *(
                f"{number(mean(state, mode, share))} "
                f"({max(one.most for one in found[state, mode, share])})"
                for mode in STALE
            ),
            number(mean(state, "BSP", share) / mean(state, "GBA", share)),
        ]
        for share, state in product(SHARES, STATES)
    ]
    header = ["share of a cycle", "state", *STALE, "BSP ÷ GBA"]
    return Part("Staleness (Table 3)", Table(header, rows), _STALE_NOTE)


def _seeds(found: Found) -> Sequence[int]:
    return found.seeds or found.setting.seeds


def ahead(days: Sequence[Day], others: Sequence[Day]) -> Interval:
    """The first days' AUC, less others' of the same seeds."""
    return difference((day.auc[1] for day in days), (day.auc[1] for day in others))


def _share(days: Sequence[Day]) -> str:
    dropped = sum(day.dropped for day in days)
    return f"{100 * dropped / sum(day.gradients for day in days):.2f}%" if dropped else "0"


def _staleness(found: Sequence[Histogram]) -> tuple[str, str]:
    total = sum(one.total for one in found)
    if not total:
        return MISSING, MISSING
    mean = sum(one.mean() * one.total for one in found if one.total) / total
    return number(mean), str(max(one.max() for one in found))


def _switches(found: Found) -> Part:
    header = ["switch", "mode", "first day", "last day", "mean", "difference"]
    rows, base = [], found.setting.base
    for title, lines in tendencies(found).items():
        still = lines["Sync"]
        for mode, by_seed in lines.items():
            after = by_seed[:, base:]
            differences = (after - still[:, base:]).mean(axis=1)
            rows.append(
                [
                    title,
                    "no switch" if mode == "Sync" else mode,
                    f"{after[:, 0].mean():.4f}",
                    f"{after[:, -1].mean():.4f}",
                    f"{after.mean():.4f}",
                    MISSING if mode == "Sync" else interval(list(differences)).text(),
                ]
            )

    def drawn() -> Figure:
        from leashed.studies.plots import switching  # noqa: PLC0415 (matplotlib is optional)

        lines = {
            plan: {mode: [interval(list(day)) for day in by_seed.T] for mode, by_seed in of.items()}
            for plan, of in tendencies(found).items()
        }
        return switching.switches(lines, base)

    caption = (
        "AUC of the next day (gba, Figure 6), with its 95% interval over the seeds; the switch is at "
        "the dotted line. A mode much worse than all others is below the axes."
    )
    return Part("Switches (Figure 6)", Table(header, rows), _SWITCH_NOTE, drawn, caption)


def tendencies(found: Found) -> dict[str, dict[str, NDArray[np.float64]]]:
    """AUC of the next day, float64 [repeats, days], by direction and mode."""
    setting = found.setting

    def series(plan: str, mode: str) -> NDArray[np.float64]:
        made = [
            after_sync(setting, seed, mode, "busy", setting.days)
            if plan == "from Sync" or mode == "Sync"
            else to_sync(setting, seed, mode)
            for seed in _seeds(found)
        ]
        return np.array([[day.auc[1] for day in found.days[career]] for career in made])

    return {plan: {mode: series(plan, mode) for mode in MODES} for plan in ("from Sync", "to Sync")}


def _bound(found: Sequence[Bound]) -> Part:
    header = [
        "state",
        "parameters",
        "p₀",
        *(f"change, s = {s}" for s in range(1, 5)),
        "ζ",
        "γ",
        "γ'",
    ]
    rows = [
        [
            one.state,
            name,
            number(one.p0),
            *(number(float(value)) for value in one.change[k, 1:]),
            number(one.zeta[k]),
            number(float(one.gamma[k])),
            number(float(one.gamma_prime[k])),
        ]
        for one in found
        for k, name in enumerate(("dense", "rows"))
    ]
    return Part("What the bound of GBA rests on (eqs. 3 and 4)", Table(header, rows), _BOUND_NOTE)
