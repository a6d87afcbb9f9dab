"""Switches between Sync and Async with the hyper-parameters of either, looked at within the day: gba,
Figure 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from leashed.base.table import MISSING, Table
from leashed.datasets import ClickDataset
from leashed.rules import Adagrad, Adam, Rule
from leashed.simulation.virtual_time import Simulation
from leashed.studies.intervals import difference, interval
from leashed.studies.study import GoOn, Part, Record, option
from leashed.studies.switching import STATES, Model, Shared, trained
from leashed.training.doubts import ends_are_told
from leashed.training.options import Observe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ARMS", "STILL", "SWEPT", "Sets", "after", "lines"]

STILL = "no switch"

ARMS: dict[str, tuple[tuple[str, str], ...]] = {
    "Sync": ((STILL, "S"), ("Sync", "S"), ("Async", "S"), ("Async", "A"), ("GBA", "S")),
    "Async": ((STILL, "A"), ("Async", "A"), ("Sync", "A"), ("Sync", "S"), ("GBA", "S")),
}
"""What each mode is followed by, and with which set: S, Sync's, or A, Async's."""

SWEPT = {
    "Sync": (0.00125, 0.0025, 0.005, 0.01, 0.02),
    "Async": (0.005, 0.01, 0.02, 0.04, 0.08),
}
"""Rates from scratch: Adam's of Sync and Adagrad's of Async."""

_OWN = {"Sync": "S", "Async": "A"}
_LOOKS = 10  # at least, in each half: every 5% of both
_STATE = "busy"
_JUDGED = 20_000
_NOTE = (
    "AUC of clicks that are never trained on, at every 5% of the two halves at least. The half before the "
    "switch has its mode's own set: S is Adam, A Adagrad, at the rates asked for. At half way the rule's state "
    "begins anew, but where there is no switch; rows keep theirs. At once: at the first look after half way; "
    "lowest: of the looks behind it. The cluster is busy."
)


@dataclass(frozen=True)
class Sets(Shared):
    """What ``leashed bench hyperparameters`` asks, as of ``switching.Setting``.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    NAME: ClassVar[str] = "hyperparameters"
    TITLE: ClassVar[str] = "Switches without tuning"
    HELP: ClassVar[str] = (
        "switches between Sync and Async with either's hyper-parameters: Figure 2 of the GBA paper"
    )
    DESCRIPTION: ClassVar[str] = (
        "Train half of the clicks by Sync or by Async, and the other half by Sync, Async or GBA with the "
        "hyper-parameters of either, in virtual time; and from scratch with other rates."
    )
    SIDE_BY_SIDE: ClassVar[bool] = True

    rows: int = option(100_000, "clicks of a half", full=400_000, short=50_000)

    @cached_property
    def clicks(self) -> list[ClickDataset]:
        """Of both halves, of the two together, and those that judge; nothing changes between them."""
        all_of_it, judges = self.days_of(2 * self.rows, 2)
        return [all_of_it[: self.rows], all_of_it[self.rows :], all_of_it, judges[:_JUDGED]]

    def settings(self) -> list[Record]:
        asked: list[Record] = [
            {"before": before, "mode": mode, "set": name}
            for before, arms in ARMS.items()
            for mode, name in arms
        ]
        asked += [{"mode": mode, "rate": rate} for mode, rates in SWEPT.items() for rate in rates]
        return [{"repeat": repeat, **one} for repeat in range(self.repeats) for one in asked]

    def measure(self, setting: Record, data: Any, go_on: GoOn) -> Any:  # noqa: ARG002
        seed = self.seed + setting["repeat"]
        going = Model(self.graph().init(seed), self.tables(seed))
        rule: Rule
        if "rate" in setting:
            mode, rate = setting["mode"], setting["rate"]
            rule = Adam(rate) if mode == "Sync" else Adagrad(rate)
            return {
                "auc": float(
                    self._half(going, mode, rule, 0, seed, go_on).result.validation_auc[-1]
                )
            }
        before, mode, rule = setting["before"], setting["mode"], self._rule(setting["set"])
        if mode == STILL:
            halves = [self._half(going, before, rule, 2, seed, go_on)]
        else:
            halves = [
                self._half(going, before, self._rule(_OWN[before]), 0, seed, go_on),
                self._half(going, mode, rule, 1, seed, go_on),
            ]
        return {
            "share": [list(half.result.updates / half.result.total_updates) for half in halves],
            "auc": [list(half.result.validation_auc) for half in halves],
        }

    def _rule(self, name: str) -> Rule:
        return Adam(self.lr) if name == "S" else Adagrad(self.async_lr)

    @ends_are_told()
    def _half(
        self, going: Model, mode: str, rule: Rule, half: int, seed: int, go_on: GoOn
    ) -> Simulation:
        gradients = self.rows / (self.workers * self.batch_size)  # of each worker
        least = gradients * self.compute * (1.0 + STATES[_STATE])
        clicks = (self.clicks[half], self.clicks[3])
        looks = Observe(go_on, every=least / _LOOKS, rows=1)
        return trained(self, going, mode, _STATE, clicks, seed + 1000 * (half == 1), looks, rule)

    def parts(self, records: Sequence[Record]) -> list[Part]:
        found = lines(records)

        def drawn() -> Figure:
            from leashed.studies.plots import switching  # noqa: PLC0415 (matplotlib is optional)

            return switching.halves(found)

        caption = "AUC over the clicks trained on (gba, Figure 2): means over seeds. The switch is at half way."
        return [
            Part("Switches without tuning (Figure 2)", _table(found), _NOTE, drawn, caption),
            Part("Rates from scratch", _swept(records, {"Sync": self.lr, "Async": self.async_lr})),
        ]


Lines = dict[tuple[str, str, str], list[tuple[NDArray[np.float64], NDArray[np.float64]]]]


def lines(records: Sequence[Record]) -> Lines:
    """Of each arm, mode before, mode and set, of each seed: shares of the clicks, and AUC there; the look
    at the switch is twice in it.
    """
    found: Lines = {}
    for record in records:
        setting, measured = record["setting"], record["measured"]
        if "rate" in setting:
            continue
        halves = len(measured["share"])
        shares = [(k + np.array(share)) / halves for k, share in enumerate(measured["share"])]
        series = np.concatenate(shares), np.concatenate([np.array(one) for one in measured["auc"]])
        found.setdefault((setting["before"], setting["mode"], setting["set"]), []).append(series)
    return found


def after(series: tuple[NDArray[np.float64], NDArray[np.float64]]) -> NDArray[np.float64]:
    """AUC of the looks behind the switch."""
    shares, aucs = series
    return aucs[shares > 0.5]


def _table(found: Lines) -> Table:
    rows = []
    for (before, mode, name), of_seeds in found.items():
        still = found[(before, *ARMS[before][0])]
        ends, of_still = ([after(one)[-1] for one in of] for of in (of_seeds, still))
        looks = [after(one) for one in of_seeds]
        rows.append(
            [
                _named(before, mode),
                name,
                f"{np.mean([np.interp(0.5, *one) for one in of_seeds]):.4f}",
                f"{np.mean([one[0] for one in looks]):.4f}",
                f"{np.mean([one.min() for one in looks]):.4f}",
                f"{np.mean(ends):.4f}",
                MISSING if of_seeds is still else difference(ends, of_still).text(),
            ]
        )
    header = ["switch", "set", "before", "at once", "lowest", "at the end", "above no switch"]
    return Table(header, rows)


def _named(before: str, mode: str) -> str:
    if mode == STILL:
        return f"{before}, {STILL}"
    return f"{before} to {mode}" if mode != before else f"{before}, its rule begun anew"


def _swept(records: Sequence[Record], taken: dict[str, float]) -> Table:
    rows = []
    for mode, rates in SWEPT.items():
        for rate in dict.fromkeys([*rates, taken[mode]]):
            aucs = [
                record["measured"]["auc"]
                for record in records
                if record["setting"].get("rate") == rate and record["setting"]["mode"] == mode
            ]
            if aucs:
                own = "yes" if rate == taken[mode] else ""
                rows.append([mode, f"{rate:g}", interval(aucs).text(), own])
    return Table(["mode", "rate", "AUC", "its set's"], rows)
