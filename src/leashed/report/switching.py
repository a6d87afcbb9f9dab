"""Section 5 of gba on a cluster of virtual time, in tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed.report.summary import Table
from leashed.report.table import MISSING, number
from leashed.studies.gba_bound import Bound
from leashed.studies.intervals import interval
from leashed.studies.recommender import NAME
from leashed.studies.switching import (
    MODES,
    Career,
    Day,
    Hours,
    Rate,
    Setting,
    after_sync,
    to_sync,
)
from leashed.training.result import Histogram

__all__ = ["Found", "Part", "parts", "tendencies"]

_DAY_NOTE = (
    "Examples per second, of the largest of all; SwarmSGD and Prague are the paper's approaches of "
    "local all-reduce, and Async, SwarmSGD and GBA, which wait for nobody, are as fast as each other. "
    "The load over the day is ours: the paper does not have its cluster's in numbers."
)
_STATES_NOTE = (
    f"Trained: {NAME}: days by Sync, then one by the mode; AUC of the day after. Global: examples per "
    "second, ± their standard deviation over windows of five seconds; local: of a worker, ± theirs "
    "over the workers. Staleness: updates between pull and application, of the gradients applied; of data: "
    "steps between the token of their batch and then. "
    "AUC − Sync's: seed by seed, mean ± half its 95% interval. Dense parameters by Adagrad in Async, by Adam "
    "in the others, each day from a fresh state; rows by Adagrad throughout."
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


class Found(NamedTuple):
    """Everything that ``leashed bench switching`` finds."""

    setting: Setting
    daily: list[Hours]
    rates: list[Rate]
    days: dict[Career, list[Day]]
    bounds: list[Bound]


class Part(NamedTuple):
    """A table under its title, with a note on what it holds."""

    title: str
    found: Table
    note: str


def parts(found: Found) -> list[Part]:
    """Figure 1 in numbers, Tables 2 and 3 in one, Figure 6 in numbers, and the bound."""
    return [_daily(found.daily), _states(found), _switches(found), _bound(found.bounds)]


def _daily(found: Sequence[Hours]) -> Part:
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
    return Part("Throughput over a day (Figure 1)", Table(header, rows), _DAY_NOTE)


def _states(found: Found) -> Part:
    header = ["state", "mode", "global", "of Sync's", "local", "AUC", "AUC − Sync's", "dropped"]
    header += ["staleness", "most", "of data", "most of data"]
    setting = found.setting
    sync = {one.state: float(one.eps.mean()) for one in found.rates if one.mode == "Sync"}
    of_sync: dict[str, list[Day]] = {}
    rows = []
    for one in found.rates:
        lengths = setting.days if one.state == "busy" else 1
        firsts = [
            found.days[after_sync(setting, seed, one.mode, one.state, lengths)][setting.base]
            for seed in setting.seeds
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
                MISSING
                if one.mode == "Sync"
                else interval(_above(firsts, of_sync[one.state])).text(),
                _share(firsts),
                *_staleness([day.staleness for day in firsts]),
                *_staleness([day.data_staleness for day in firsts]),
            ]
        )
    return Part("Three states of the cluster (Tables 2 and 3)", Table(header, rows), _STATES_NOTE)


def _above(days: Sequence[Day], others: Sequence[Day]) -> list[float]:
    return [day.auc[1] - other.auc[1] for day, other in zip(days, others, strict=True)]


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
    return Part("Switches (Figure 6)", Table(header, rows), _SWITCH_NOTE)


def tendencies(found: Found) -> dict[str, dict[str, NDArray[np.float64]]]:
    """AUC of the next day, float64 [repeats, days], by direction and mode."""
    setting = found.setting

    def series(plan: str, mode: str) -> NDArray[np.float64]:
        made = [
            after_sync(setting, seed, mode, "busy", setting.days)
            if plan == "from Sync" or mode == "Sync"
            else to_sync(setting, seed, mode)
            for seed in setting.seeds
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
