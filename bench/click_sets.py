"""Sets of clicks that differ, each in the order of time: the first rows to train on, those behind them
to choose by, the last to test.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import leashed as lsh
from bench.sections.clicks import Codes, Rows, hashed
from leashed.datasets import Bags, ClickDataset, ClickSplit

HELD = 0.5  # of the training rows: so many are held out, half of them to choose by


class Held(NamedTuple):
    """A set, and what is held out of it."""

    train: ClickDataset
    held: ClickDataset

    @property
    def middle(self) -> int:
        """Rows that are held out to choose by; those behind them test."""
        return len(self.held) // 2

    def aucs(self, scores: Any) -> tuple[float | None, float | None]:
        """Of the rows to choose by, and of those to test; None of scores that are no numbers."""
        scores = np.ravel(scores)
        if not np.isfinite(scores).all():
            return None, None
        k, y = self.middle, self.held.y
        return lsh.metrics.auc(scores[:k], y[:k]), lsh.metrics.auc(scores[k:], y[k:])


@dataclasses.dataclass(frozen=True)
class ClickSet:
    """``rows`` as most models read them; ``shown``, where users have histories, as DIN's do."""

    rows: Held
    shown: Held | None = None

    def peers(self, threads: int, seed: int) -> Rows:
        """As others read them: numbers of mean 0 and deviation 1 over the training rows."""
        train, held = self.rows
        mean, deviation = train.x.mean(axis=0), train.x.std(axis=0)
        scale = np.where(deviation > 0, deviation, 1)
        split = ClickSplit(
            *(dataclasses.replace(part, x=(part.x - mean) / scale) for part in (train, held))
        )
        return Rows(split, self._codes, hashed(split), threads, seed)

    @cached_property
    def _codes(self) -> Codes:
        train, held = self.rows
        ids: list[NDArray[np.int64]] = []
        bags: list[NDArray[np.int64]] = []
        counts, bag_counts = [], []
        for first, last in zip(_columns(train), _columns(held), strict=True):
            if isinstance(first, Bags):
                both = np.concatenate([first.ids, last.ids])
                values, codes = np.unique(both, return_inverse=True)
                bags.append(_padded([first, last], codes.astype(np.int64) + 1))
                bag_counts.append(len(values) + 1)
            else:
                values, codes = np.unique(np.concatenate([first, last]), return_inverse=True)
                ids.append(codes.astype(np.int64))
                counts.append(len(values))
        n, table = len(train), np.stack(ids, axis=1)
        return Codes(
            table[:n], table[n:], counts, [b[:n] for b in bags], [b[n:] for b in bags], bag_counts
        )


def _columns(data: ClickDataset) -> Sequence[Any]:
    return data.ids if isinstance(data.ids, tuple) else list(data.ids.T)


def _padded(bags: Sequence[Bags], codes: NDArray[np.int64]) -> NDArray[np.int64]:
    lengths = np.concatenate([np.diff(each.offsets) for each in bags])
    padded = np.zeros((len(lengths), max(1, int(lengths.max()))), np.int64)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = codes
    return padded


def generated(rows: int, seed: int) -> ClickSet:
    """Criteo's shape: 13 numbers and 26 ids of 100,000, a quarter of the rows clicked."""
    whole = lsh.datasets.synthetic_clicks(rows + int(rows * HELD), seed, test=1).train
    return ClickSet(Held(whole[:rows], whole[rows:]))


_DAYS, _DAILY_DRIFT = 12, 0.3
_SIZES = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
_KEPT = 7 / 9  # of the rows without a click, so that 30% of a quarter's are clicked


def drifting(rows: int, seed: int) -> ClickSet:
    """13 numbers and 10 ids, 30% of the rows clicked; from day to day 30% of what the ids mean is drawn
    anew. 12 days, of which the last four are held out.
    """
    wanted = rows + int(rows * HELD)
    a_day = -(-wanted // _DAYS)
    split = lsh.datasets.synthetic_clicks(
        int(a_day * 1.25) + 100,
        seed,
        test=1,
        days=_DAYS,
        drift=_DAILY_DRIFT,
        cardinalities=_SIZES,
    )
    whole = lsh.datasets.downsample(split.train, _KEPT, seed)
    whole = whole.take(np.linspace(0, len(whole) - 1, wanted).astype(np.int64))
    return ClickSet(Held(whole[:rows], whole[rows:]))


_USERS, _ITEMS, _CATEGORIES, _TASTES, _LONGEST = 3_000, 1_000, 40, 6, 10


def shop(rows: int, seed: int) -> ClickSet:
    """Users with tastes, items with categories and prices, and what a user clicked before, as a
    DataFrame of pandas whose columns ``stream.infer`` finds out; a tenth of the rows clicked.
    """
    frame = _frame(rows + int(rows * HELD), seed)
    shown = frame.pop("category_code").to_numpy()
    first = lsh.stream.table(frame[:rows], label="clicked")
    train, held = first.read(), lsh.stream.table(frame[rows:], first.schema).read()
    whole = _shown(frame, shown)
    return ClickSet(Held(train, held), Held(whole[:rows], whole[rows:]))


def _frame(n: int, seed: int) -> Any:
    pd = importlib.import_module("pandas")
    rng = np.random.default_rng(seed)
    category = rng.integers(0, _CATEGORIES, _ITEMS)
    taste = rng.normal(size=(_USERS, _TASTES))
    kind = rng.normal(size=(_CATEGORIES, _TASTES))
    made = 0.8 * kind[category] + 0.6 * rng.normal(size=(_ITEMS, _TASTES))
    price, purse = np.exp(rng.normal(3, 1, _ITEMS)), rng.normal(3, 0.7, _USERS)
    user = np.minimum(rng.pareto(1.0, n) * 50, _USERS - 1).astype(np.int64)
    item = np.minimum(rng.pareto(1.0, n) * 20, _ITEMS - 1).astype(np.int64)
    paid = price[item] * rng.uniform(0.8, 1.2, n)
    device = rng.integers(0, 3, n)
    logits = 1.2 * (taste[user] * made[item]).sum(axis=1) / np.sqrt(_TASTES)
    logits += 0.5 * rng.normal(size=_ITEMS)[item] + np.array([0.3, 0.0, -0.3])[device]
    logits -= 0.7 * np.abs(np.log(paid) - purse[user])
    clicked = (rng.random(n) < 1 / (1 + np.exp(1.9 - logits))).astype(np.int64)
    paid[rng.random(n) < 0.03] = np.nan
    before = [deque[int](maxlen=_LONGEST) for _ in range(_USERS)]
    history = []
    for who, what, yes in zip(user.tolist(), item.tolist(), clicked.tolist(), strict=True):
        history.append(list(before[who]))
        if yes:
            before[who].append(what)
    start = pd.Timestamp("2026-01-01")
    return pd.DataFrame(
        {
            "user_id": user,
            "item_id": item,
            "category": np.array([f"kind {c}" for c in range(_CATEGORIES)])[category[item]],
            "category_code": category[item],
            "price": paid,
            "device": np.array(["phone", "tablet", "desktop"])[device],
            "shown_at": start + pd.to_timedelta(np.arange(n) * (86_400 * 14 / n), unit="s"),
            "history": history,
            "clicked": clicked,
        }
    )


def _shown(frame: Any, category: NDArray[np.int64]) -> ClickDataset:
    """The features that DIN reads, in its order, and the logarithm of the price."""
    of_item = np.zeros(_ITEMS, np.int64)
    of_item[frame["item_id"]] = category
    lengths = frame["history"].map(len).to_numpy()
    items = np.array([i for bag in frame["history"] for i in bag], np.int64)
    offsets = np.append(0, np.cumsum(lengths))
    price = np.log1p(frame["price"].to_numpy())
    return ClickDataset.from_arrays(
        np.nan_to_num(price, nan=float(np.nanmean(price)))[:, None],
        {
            "user": frame["user_id"].to_numpy(),
            "item": frame["item_id"].to_numpy(),
            "category": category,
            "items": Bags(items, offsets),
            "categories": Bags(of_item[items], offsets),
        },
        frame["clicked"].to_numpy(),
    )


SETS: dict[str, Callable[[int, int], ClickSet]] = {
    "generated": generated,
    "shop": shop,
    "drifting": drifting,
}


def criteo(folder: Path, seed: int, parts: int = 4) -> ClickSplit:
    """Criteo's sample; of its parts the one that the seed tells is to test."""
    data = lsh.datasets.criteo(folder / "criteo-sample" / "train.tiny.csv")
    place = np.arange(len(data)) * parts // len(data)
    return ClickSplit(
        data.take(np.flatnonzero(place != seed % parts)),
        data.take(np.flatnonzero(place == seed % parts)),
    )
