"""Leashed-SGD: what its figures claim.

K. Bäckström, I. Walulya, M. Papatriantafilou, P. Tsigas: *Consistent Lock-free Parallel Stochastic
Gradient Descent for Fast and Stable Convergence*. MNIST is its first 10,000 training images here,
pixels 0…255, from N(0, 0.01). LSH_ps0 and ps1 have a persistence bound T_p of 0 and 1, LSH_ps∞ none;
ASYNC (with a lock) and HOG are the paper's baselines. Virtual time plays all m threads at once, none
slowed by another. Of the trials in it, where a gradient takes T_c and an update T_u, `leashed bench
persistence` decides by one rule, **a bound pays**: for LSH_ps0 or ps1, paired by seed, the T_c to half
of the initial loss (the run's limit where it never came there) or the lowest share of the loss is below
that of each of ASYNC, HOG and LSH_ps∞, by more than half the 95% interval over the seeds. A run **came
there** if its loss was half. Sketched with one seed before that was declared: m = 34 at a ratio of 15, to
choose the batch, and m = 16 at 60 and 15; afterwards m = 68 at 8, when Figure 6 got its measure of clusters.
The runs of scaling were made before this page was begun.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.papers.claim import Claim, End, Told
from bench.papers.picture import saved
from leashed.base.table import MISSING, Table, duration, number, percent, spread
from leashed.studies.contention import Point
from leashed.studies.intervals import difference
from leashed.studies.persistence import ALGORITHMS, BOUNDED, Asked, Cell, cells
from leashed.studies.plots import persistence
from leashed.studies.runs import Run
from leashed.studies.study import revived

_BASELINES = ("ASYNC", "HOG")
_FREE = (*_BASELINES, "LSH_ps∞")
_NOTHING = 0.95  # of the initial loss: what does not end below it has learnt nothing

_MAP = "leashed bench persistence --data MNIST"
_STEPS = f"{_MAP} --threads 16 --ratio 15 --lr 0.005,0.01,0.02"
_THREADS = f"{_MAP} --threads 2,8,16,24 --ratio 60 --repeats 11"
_ALL = "ASYNC, HOG, LSH_ps∞, ps1, ps0; seeds 0 to {}; the paper's MLP"
_ARMS = _ALL.format(4)
_OURS = "Ours: batches of 128 for its 512, ratios in place of its machine"

Key = tuple[int, float, float]


def _places(found: Sequence[Cell]) -> dict[Key, dict[str, Cell]]:
    """Of each number of threads, ratio and step the cells by algorithm."""
    places: dict[Key, dict[str, Cell]] = {}
    for one in found:
        places.setdefault((one.threads, one.ratio, one.lr), {})[one.algorithm] = one
    return places


def _times(cell: Cell, limit: float) -> list[float]:
    return [limit if math.isnan(run.half) else run.half for run in cell.runs]


def pays(place: dict[str, Cell], limit: float) -> bool:
    """Whether a bound pays, as the page defines it."""
    measures: tuple[Callable[[Cell], list[float]], ...] = (
        lambda cell: _times(cell, limit),
        lambda cell: [run.least for run in cell.runs],
    )
    return any(
        all(_below(measure(place[bound]), measure(place[other])) for other in _FREE)
        for bound in BOUNDED
        for measure in measures
    )


def _below(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    return difference(ours, theirs).high < 0.0


def _count(cell: Cell) -> str:
    return f"{len(cell.reached)}"


def _best(place: dict[str, Cell], names: Sequence[str]) -> Cell:
    """Who came there most often, and of those soonest."""
    return min((place[name] for name in names), key=lambda one: (-len(one.reached), one.median))


def _named(keys: Sequence[Key]) -> str:
    """Ratios by threads, in words."""
    threads = dict.fromkeys(m for m, _, _ in keys)
    parts = [
        f"m = {m} at {', '.join(f'{ratio:g}' for n, ratio, _ in keys if n == m)}" for m in threads
    ]
    return "; ".join(parts)


def _table(places: dict[Key, dict[str, Cell]], cell: Callable[[Cell], str], *more: str) -> Table:
    varied = len({lr for _, _, lr in places}) > 1
    head = ["m", "T_c ÷ T_u", *(["η"] if varied else []), *ALGORITHMS, *more]
    return Table(
        head,
        [
            [f"{m}", f"{ratio:g}", *([f"{lr:g}"] if varied else [])]
            + [cell(place[name]) for name in ALGORITHMS]
            for (m, ratio, lr), place in places.items()
        ],
    )


def _came(cell: Cell) -> str:
    """How many came there and when, and the lowest share of the loss."""
    when = f", {number(statistics.median(cell.reached))}" if cell.reached else ""
    return f"{_count(cell)}{when}; {cell.least:.2f}"


def _map(records: Sequence[Any]) -> Told:
    places = _places(cells(records))
    limit = Asked.of(records).cap
    paid = [key for key, place in places.items() if pays(place, limit)]
    seeds = len(next(iter(next(iter(places.values())).values())).runs)
    table = _table(places, _came, "a bound pays")
    for row, key in zip(table.rows, places, strict=True):
        row.append("yes" if key in paid else "no")
    words = (
        f"A bound pays in {len(paid)} of {len(places)} places: {_named(paid) or 'none'}. In the table: how many "
        f"of {seeds} runs came to 50%, after how many T_c (median); the lowest share of the loss, a mean."
    )
    how: dict[str, Any] = {
        "words": words,
        "table": table,
        "picture": lambda folder: saved(
            lambda: persistence.paying(cells(records)), folder, "leashed-sgd-map"
        ),
        "theirs": "None: the paper has one machine, and so one ratio. Ours, of Figures 4 and 5.",
    }
    if not paid:
        return Told(End.REFUTED, of="the sweep: a bound pays nowhere in it", **how)
    if len(paid) == len(places):
        return Told(End.COMES_OUT, **how)
    return Told(End.COMES_OUT_UNDER, of=f"T_c ÷ T_u as follows: {_named(paid)}", **how)


def _high_parallelism(records: Sequence[Any]) -> Told:
    places = {key: place for key, place in _places(cells(records)).items() if key[0] > 16}
    good = [
        key
        for key, place in places.items()
        if len(_best(place, _BASELINES).reached) < len(_best(place, BOUNDED).reached)
    ]
    total = {
        name: sum(len(place[name].reached) for place in places.values()) for name in ALGORITHMS
    }
    runs = sum(len(place["HOG"].runs) for place in places.values())
    told = ", ".join(f"{name} {count}" for name, count in total.items())
    how: dict[str, Any] = {
        "words": f"Of {runs} runs each with 34 and 68 threads so many came there: {told}.",
        "table": _table(places, _count),
        "theirs": "Boxes of times to 75%, 50%, 25% and 10%, beside counts of runs that diverged; at "
        "m = 68 the baselines have no box at 50%.",
    }
    if not good:
        return Told(
            End.REFUTED, of="the sweep: with a bound no more runs come there than without", **how
        )
    return Told(End.COMES_OUT_UNDER, of=f"T_c ÷ T_u as follows: {_named(good)}", **how)


def _over_time(records: Sequence[Any]) -> Told:
    places = {key: place for key, place in _places(cells(records)).items() if key[0] == 68}

    def stuck(cell: Cell) -> int:
        return sum(not run.last < _NOTHING for run in cell.runs)

    good = [
        key
        for key, place in places.items()
        if all(2 * stuck(place[name]) > len(place[name].runs) for name in _BASELINES)
        and any(stuck(place[name]) == 0 for name in BOUNDED)
    ]

    def drawn(folder: Path) -> Path:
        some = [one for one in cells(records) if one.ratio == 15.0]
        few = [Cell(one.threads, one.ratio, one.lr, one.algorithm, one.runs[:1]) for one in some]
        return saved(lambda: persistence.over_time(few), folder, "leashed-sgd-figure-5")

    how: dict[str, Any] = {
        "words": "In the table: how many of the runs with 68 threads end at 95% of the initial loss or "
        "above, crashed ones among them. In the figure: seed 0, at 15.",
        "table": _table(places, lambda cell: str(stuck(cell))),
        "picture": drawn,
        "theirs": "Loss over seconds with 16, 34 and 68 threads: Leashed falls the fastest; with 68 the "
        "baselines go up and down about the initial loss.",
    }
    if not good:
        return Told(
            End.REFUTED, of="the sweep: at no ratio do baselines stay where a bound learns", **how
        )
    return Told(End.COMES_OUT_UNDER, of=f"T_c ÷ T_u as follows: {_named(good)}", **how)


def _mean(cell: Cell, name: str) -> float:
    return statistics.fmean(getattr(run, name) for run in cell.runs)


def _staleness(records: Sequence[Any]) -> Told:
    places = _places(cells(records))
    lower = [
        key
        for key, place in places.items()
        if _mean(place["LSH_ps0"], "staleness")
        < _mean(place["LSH_ps1"], "staleness")
        < _mean(place["LSH_ps∞"], "staleness")
    ]
    how: dict[str, Any] = {
        "words": f"T_p = 0 below T_p = 1 below no bound in {len(lower)} of {len(places)} places. Mean "
        "staleness in the table.",
        "table": _table(places, lambda cell: number(_mean(cell, "staleness"))),
        "theirs": "Distributions that the bound moves to the left, the more so with 68 threads.",
    }
    if len(lower) == len(places):
        return Told(End.COMES_OUT, **how)
    if not lower:
        return Told(End.REFUTED, of="the sweep", **how)
    return Told(End.COMES_OUT_UNDER, of=f"T_c ÷ T_u as follows: {_named(lower)}", **how)


_CLUSTERED = 2.0  # variance over mean


def _clusters(records: Sequence[Any]) -> Told:
    places = {key: place for key, place in _places(cells(records)).items() if key[0] == 68}
    most = max(
        _mean(place[name], "dispersion")
        for place in places.values()
        for name in ("LSH_ps∞", *BOUNDED)
    )
    how: dict[str, Any] = {
        "words": "Variance of the threads' updates over their mean: at most 1 where chance says whose each "
        f"is. Of Leashed it is at most {number(most)}.",
        "table": _table(places, lambda cell: number(_mean(cell, "dispersion"))),
    }
    if most > _CLUSTERED:
        return Told(End.COMES_OUT, **how)
    return Told(
        End.REFUTED,
        of="68 equal threads, of which none gets ahead: clusters are of the machine's making",
        **how,
    )


def _scalability(records: Sequence[Any]) -> Told:
    places = _places(cells(records))
    (best, _, _), _ = min(places.items(), key=lambda item: _best(item[1], _BASELINES).median)
    beyond = [key for key in places if key[0] >= best]
    limit = Asked.of(records).cap
    ahead = [key for key in beyond if pays(places[key], limit)]
    how: dict[str, Any] = {
        "words": f"The baselines are the fastest with {best} threads. In the table: how many came there, "
        "after how many T_c (median); the lowest share of the loss.",
        "table": _table(places, _came),
        "theirs": "Boxes of seconds to 50% from 1 to 68 threads: the baselines are best at 16 and fail "
        "above, Leashed stays level up to 56.",
    }
    if not ahead:
        how["words"] += (
            " Where more runs came there with a bound, the rule's interval over the seeds still holds no "
            "difference."
        )
        return Told(
            End.REFUTED,
            of=f"this sweep: at a ratio of 60 no bound pays with {best} threads or more",
            **how,
        )
    return Told(End.COMES_OUT_UNDER, of=f"T_c ÷ T_u as follows: {_named(ahead)}", **how)


def _efficiency(records: Sequence[Any]) -> Told:
    places = {key: place for key, place in _places(cells(records)).items() if key[1] == 60}
    longer = [
        m
        for (m, _, _), place in places.items()
        if all(_mean(place[name], "interval") > _mean(place["HOG"], "interval") for name in BOUNDED)
    ]
    how: dict[str, Any] = {
        "words": "T_c from one published update to the next, times m, at a ratio of 60: with a bound it "
        "is longer by the gradients that are dropped, and as long where none is.",
        "table": _table(places, lambda cell: number(_mean(cell, "interval"))),
        "theirs": "Time per update over threads: level for the baselines, rising for Leashed.",
    }
    if len(longer) == len(places):
        return Told(End.COMES_OUT, **how)
    if not longer:
        return Told(End.REFUTED, of="the sweep: it is longer nowhere", **how)
    return Told(End.COMES_OUT_UNDER, of=f"m = {', '.join(map(str, longer))}", **how)


def _steps(records: Sequence[Any]) -> Told:
    places = _places(cells(records))
    good = [
        lr
        for (_, _, lr), place in places.items()
        if lr > 0.005 and len(_best(place, BOUNDED).reached) > len(_best(place, _BASELINES).reached)
    ]
    how: dict[str, Any] = {
        "words": "How many came there, after how many T_c (median); the lowest share of the loss.",
        "table": _table(places, _came),
        "theirs": "Boxes of seconds to 50% over η: the baselines are best at 0.005, Leashed converges "
        "for larger ones too.",
    }
    if not good:
        return Told(
            End.REFUTED, of="the sweep: at a larger η with a bound no more runs come there", **how
        )
    told = ", ".join(f"{lr:g}" for lr in good)
    return Told(End.COMES_OUT_UNDER, of=f"η = {told}, at T_c ÷ T_u = 15 with 16 threads", **how)


def _fewest(records: Sequence[Any]) -> Told:
    places = {
        key: place
        for key, place in _places(cells(records)).items()
        if key[0] == 16 and any(place[name].reached for name in _BASELINES)
    }

    def updates(cell: Cell) -> list[float]:
        return [run.updates for run in cell.runs if not math.isnan(run.updates)]

    def median(cell: Cell) -> float:
        return statistics.median(updates(cell)) if updates(cell) else math.inf

    good = [
        key
        for key, place in places.items()
        if min(median(place[name]) for name in BOUNDED)
        < min(median(place[name]) for name in _BASELINES)
    ]
    how: dict[str, Any] = {
        "words": "Updates published until 50%, with 16 threads, of the runs that came there.",
        "table": _table(places, lambda cell: spread(updates(cell)) if updates(cell) else MISSING),
        "theirs": "Boxes of updates to 50% over threads: more with more threads, Leashed's the fewest.",
    }
    if len(good) == len(places) and good:
        return Told(End.COMES_OUT, **how)
    if not good:
        return Told(End.REFUTED, of="the sweep", **how)
    return Told(End.COMES_OUT_UNDER, of=f"T_c ÷ T_u as follows: {_named(good)}", **how)


def _precision(runs: Sequence[Run]) -> Told:
    names = ("SEQ", *ALGORITHMS)
    fractions = (0.5, 0.1, 0.05, 0.025)

    def cell(name: str, fraction: float) -> str:
        times = [run.result.seconds_to(fraction) for run in runs if run.algorithm == name]
        known = [one for one in times if not math.isnan(one)]
        return f"{len(known)}, {number(statistics.median(known))}" if known else "0"

    there = {
        name: sum(
            not math.isnan(run.result.seconds_to(0.1)) for run in runs if run.algorithm == name
        )
        for name in names
    }
    of = sum(run.algorithm == "HOG" for run in runs)
    how: dict[str, Any] = {
        "words": f"Of {of} runs of 16 threads to 10%: ASYNC {there['ASYNC']}, HOG {there['HOG']}, LSH_ps∞ "
        f"{there['LSH_ps∞']}, ps1 {there['LSH_ps1']}, ps0 {there['LSH_ps0']}. That ps∞ is ahead too, as "
        "the paper has it, does not. In the table: how many came to it, and their median virtual seconds.",
        "table": Table(
            ["", *map(percent, fractions)],
            [[name, *(cell(name, fraction) for fraction in fractions)] for name in names],
        ),
        "theirs": "Boxes of seconds to 50%, 10%, 5% and 2.5%: LSH_ps∞ 65 s to 2.5%, the baselines 80 and "
        "89 s.",
    }
    if max(there["LSH_ps0"], there["LSH_ps1"]) > max(there[name] for name in _FREE):
        return Told(End.COMES_OUT_UNDER, of="a persistence bound", **how)
    return Told(End.REFUTED, of="this trial: with a bound no more runs come there", **how)


def _two_cores(runs: Sequence[Run]) -> Told:
    threads = sorted({run.threads for run in runs if run.algorithm != "SEQ"})

    def median(name: str, m: int, fraction: float) -> float:
        times = [
            run.result.seconds_to(fraction)
            for run in runs
            if (run.algorithm, run.threads) == (name, m)
        ]
        return statistics.median(times) if times else math.nan

    def cell(name: str, m: int) -> str:
        both = [median(name, m, fraction) for fraction in (0.5, 0.1)]
        return MISSING if math.isnan(both[0]) else ", ".join(map(number, both))

    most = threads[-1]
    best = min(median(name, most, 0.5) for name in BOUNDED)
    ahead = best < min(median(name, most, 0.5) for name in _BASELINES)
    return Told.judged(
        ahead,
        "two cores, on which two of m threads run at a time",
        words=f"Every run got there, with one and two threads alike. With {most} threads HOG takes "
        f"{number(median('HOG', most, 0.5))} s to 50%, LSH_ps1 {number(median('LSH_ps1', most, 0.5))}. A "
        "third thread adds staleness and no speed. In the table: seconds to 50% and to 10%, medians.",
        table=Table(
            ["", *(f"m = {m}" for m in threads)],
            [[name, *(cell(name, m) for m in threads)] for name in ("SEQ", *ALGORITHMS)],
        ),
    )


_MLP = (3.06e-3, 50.4e-6)  # T_c, T_u in seconds of one thread, as measured when idle
_CNN = (1.78e-3, 11.7e-6)


def _cnn(runs: Sequence[Run]) -> Told:
    m, rows = 16, []
    for name, (compute, update) in (("MLP", _MLP), ("CNN", _CNN)):
        n = m / (compute / update + 1)
        rows.append(
            [name, duration(compute), duration(update), number(compute / update), number(n)]
        )
    times = {
        name: spread([run.result.seconds_to(0.1) for run in runs if run.algorithm == name])
        for name in ("SEQ", *ALGORITHMS)
    }
    n = m / (_CNN[0] / _CNN[1] + 1)
    return Told(
        End.REFUTED,
        of=f"arithmetic: at T_c ÷ T_u = 152, {number(n)} of 16 threads are in the loop",
        words='So a bound has next to nothing to regulate, in the paper\'s own words it "does not kick in". '
        f"Seconds to 10% here: HOG {times['HOG']}, ps∞ {times['LSH_ps∞']}, ps0 {times['LSH_ps0']}. Two "
        "runs far ahead of all others are no more than that.",
        table=Table(["", "T_c", "T_u", "T_c ÷ T_u", "n*, m = 16"], rows),
        theirs="Boxes of seconds to 75% … 10%: LSH_ps0 400 s, the baselines 500 s; two runs of Leashed "
        "below 100 s.",
    )


def _multiply_adds(layers: Sequence[tuple[int, int]]) -> int:
    """Of one image: the places of each layer times what is summed for one."""
    return sum(places * summed for places, summed in layers)


def _compute(runs: Sequence[Run]) -> Told:
    dense = _multiply_adds([(128, 784), (128, 128), (128, 128), (10, 128)])
    convolved = _multiply_adds(
        [(4 * 26 * 26, 9), (8 * 11 * 11, 4 * 9), (128, 8 * 5 * 5), (10, 128)]
    )
    alone = _alone(runs, "gradient_seconds")
    return Told.judged(
        alone["cnn"] > alone["mlp"],
        f"counting: the CNN has {number(convolved / dense)} times the MLP's multiply-adds",
        words=f"An image costs {dense:,} multiply-adds in the MLP, {convolved:,} in the CNN. With one "
        f"thread, batches of 512: T_c {duration(alone['mlp'])} and {duration(alone['cnn'])}. The paper's "
        "CNN is slow by its many small products, which are a library's.",
        theirs="Histograms: the CNN's T_c is the larger.",
    )


def _update(runs: Sequence[Run]) -> Told:
    alone = _alone(runs, "update_seconds")
    how: dict[str, Any] = {
        "words": f"With one thread: T_u {duration(alone['mlp'])} (d = 134,794) and "
        f"{duration(alone['cnn'])} (d = 27,354).",
        "theirs": "Histograms: the CNN's T_u is the smaller.",
    }
    if alone["cnn"] < alone["mlp"]:
        return Told(End.COMES_OUT, **how)
    return Told(End.REFUTED, of="what was measured", **how)


def _alone(runs: Sequence[Run], name: str) -> dict[str, float]:
    """Of each model, by one thread."""
    return {
        model: statistics.median(
            getattr(run.result, name).mean()
            for run in runs
            if (run.algorithm, run.model) == ("SEQ", model)
        )
        for model in ("mlp", "cnn")
    }


def _memory(_: Sequence[Any]) -> Told:
    images, dimension = 60_000 * 784 * 4, 27_354
    rows, shares = [], []
    for m in (16, 24, 34):
        vectors = (2 * m + 1) * dimension * 4
        shares.append(vectors / (images + vectors))
        rows.append([str(m), str(2 * m + 1), f"{vectors / 1e6:.2f} MB", f"{100 * shares[-1]:.1f}%"])
    return Told(
        End.REFUTED,
        of=f"arithmetic: all vectors of the baselines are {100 * shares[0]:.1f}% to "
        f"{100 * shares[-1]:.1f}% of images and vectors",
        words="So who had no vector at all would save as much, and not 17%. 60,000 images of 784 numbers of "
        "4 bytes are 188 MB, before any program is counted.",
        table=Table(["m", "vectors, 2m + 1", "they take", "of images and vectors"], rows),
        theirs="Histograms of resident memory for MLP and CNN; Leashed's is 17% less for the CNN.",
    )


def _points(records: Sequence[Any]) -> list[Point]:
    return [
        revived(
            Point, {**record["measured"], "persistence": float(record["measured"]["persistence"])}
        )
        for record in records
    ]


def _occupancy(records: Sequence[Any]) -> Told:
    found = {(point.threads, point.persistence): point for point in _points(records)}
    rows = [
        [
            str(m),
            number(found[m, 0.0].fixed_point),
            *(number(float(statistics.median(found[m, t].n))) for t in (0.0, 1.0, math.inf)),
        ]
        for m in sorted({m for m, _ in found})
    ]
    free = found[64, math.inf]
    return Told.judged(
        statistics.median(free.n) <= 2.0 * free.fixed_point,
        "counting: n* is the fixed point of T_p = 0, where whoever loses leaves",
        words="Eq. 3 lets each thread leave after T_u. Who loses without a bound stays, so from m T_u ≈ T_c "
        f"on updates queue up: {number(float(statistics.median(free.n)))} threads in the loop for n* = "
        f"{number(free.fixed_point)} at m = 64. In the table: n*, and what was counted by T_p (medians).",
        table=Table(["m", "n*", "T_p = 0", "T_p = 1", "no bound"], rows),
    )


def _waiting(records: Sequence[Any]) -> Told:
    bounded = [point for point in _points(records) if not math.isinf(point.persistence)]
    rows = [
        [
            f"{point.persistence:g}",
            str(point.threads),
            number(point.fixed_point_persistence),
            number(float(statistics.median(point.n))),
            number(float(statistics.median(point.staleness))),
        ]
        for point in bounded
        if point.threads >= 16
    ]
    above = all(
        statistics.median(point.n) > point.fixed_point_persistence
        for point in bounded
        if point.threads >= 16
    )
    return Told.judged(
        not above,
        "counting, and by the paper's own sentence that τˢ = 0 at T_p = 0, where n*_γ is above 0",
        words="Eq. 7 counts a departure by the bound twice, as an attempt's end and as γ: n is above n*_γ, "
        "the more the more threads. τˢ is 0 at T_p = 0 and stays at half at T_p = 1.",
        table=Table(["T_p", "m", "n*_γ", "n counted", "τˢ counted"], rows),
    )


CLAIMS = [
    Claim(
        at="Figures 1 and 2",
        claim="The processes, and who accesses the shared vector when.",
        trial="",
        tell=lambda _: Told(End.DRAWING),
    ),
    Claim(
        at="Figures 4 and 5, the map",
        claim="Leashed-SGD converges faster and more stably than the baselines, the more so the more "
        "threads there are.",
        trial=f"{_ARMS}, virtual time, η = 0.005, T_c ÷ T_u = 60, 30, 20, 15, 8, m = 16, 34, 68. A run "
        "ends at 50% of the loss, or after 300 T_c. It comes out "
        f"where a bound pays. {_OURS}.",
        command=_MAP,
        results="leashed-map",
        tell=_map,
    ),
    Claim(
        at="Figure 3, left",
        claim="The baselines are the fastest with 16 threads; above they are unstable, while Leashed is "
        "stable and fast up to 56.",
        trial=f"{_ALL.format(10)}, virtual time, T_c ÷ T_u = 60 as measured here, m = 2, 8, 16, "
        "24; a run's limit is 300 T_c. It comes out where, from the baselines' best m on, a bound pays. "
        f"(Declared with five seeds and 4,000 gradients; these did not tell.) {_OURS}.",
        command=_THREADS,
        results="leashed-threads",
        tell=_scalability,
    ),
    Claim(
        at="Figure 3, right",
        claim="The time per update is constant for the baselines; Leashed's grows moderately with threads.",
        trial="The runs of Figure 3, left. It comes out at an m where an update takes longer with either "
        "bound than with HOG. (Declared as: at every m.)",
        command=_THREADS,
        results="leashed-threads",
        tell=_efficiency,
    ),
    Claim(
        at="Figure 4, left",
        claim="With 16 threads Leashed reaches high precision first: 2.5% in 65 s, the baselines in 80 and "
        "89 s.",
        trial="SEQ and the five, seeds 0 to 7, the paper's MLP and batch of 512, η = 0.005, virtual time, "
        "T_c 3.06 ms, T_u 50.4 µs; a run's limit is 613 T_c. It comes out if more runs come to 10%.",
        command="leashed bench scaling --virtual --preset S2 --short --repeats 8",
        results="virtual-S2-short",
        parse=Run.parsed,
        tell=_precision,
    ),
    Claim(
        at="Figures 3 and 4, on two cores",
        claim="The same in seconds, with real threads: with 16 Leashed is ahead of the baselines.",
        trial="SEQ and the five, 11 seeds, the paper's MLP, batch and η = 0.005, for want of 36 cores on two.",
        command="leashed bench scaling --preset S1 --threads 1,2,8,16 --lr 0.005 --epsilon 0.5,0.1",
        results="order",
        parse=Run.parsed,
        tell=_two_cores,
    ),
    Claim(
        at="Figure 4, middle and right",
        claim="With 34 and 68 threads more runs of the baselines fail; with 68 none reaches 50%.",
        trial="The runs of the map. It comes out where more runs of LSH_ps0 or ps1 come to 50% than of "
        "either baseline.",
        command=_MAP,
        results="leashed-map",
        tell=_high_parallelism,
    ),
    Claim(
        at="Figure 5",
        claim="With 68 threads the baselines do not converge at all and oscillate about the initial point; "
        "Leashed converges.",
        trial="The runs of the map with m = 68. It comes out where most runs of both baselines end at 95% "
        "of the initial loss or above, and none of LSH_ps0, or of ps1.",
        command=_MAP,
        results="leashed-map",
        tell=_over_time,
    ),
    Claim(
        at="Figure 6",
        claim="The persistence bound lowers staleness.",
        trial="The runs of the map. It comes out where mean staleness is less with T_p = 0 than with 1, and "
        "less with 1 than without a bound.",
        command=_MAP,
        results="leashed-map",
        tell=_staleness,
    ),
    Claim(
        at="Figure 6, clusters",
        claim="With 68 threads Leashed has clusters of threads with a higher update rate.",
        trial="The runs of the map with m = 68, whose threads are equal. It comes out if the "
        "variance of their updates is more than twice the mean at a ratio, with any bound or none.",
        command=_MAP,
        results="leashed-map",
        tell=_clusters,
    ),
    Claim(
        at="Figure 7",
        claim="The CNN reaches 10% in 400 s with LSH_ps0, in 500 s with the baselines; two runs of Leashed "
        "take a quarter.",
        trial="T_c ÷ T_u and n* by what one idle thread takes. Beside it the five and SEQ on two cores, 16 "
        "threads, 11 seeds.",
        command="leashed bench scaling --preset S3 --short",
        results="S3-short",
        parse=Run.parsed,
        tell=_cnn,
    ),
    Claim(
        at="Figure 8, left",
        claim="The baselines are best at η = 0.005; Leashed converges for larger η too.",
        trial=f"{_ARMS}, virtual time, T_c ÷ T_u = 15, m = 16, η = 0.005, 0.01, 0.02, limits as above. It "
        "comes out at an η above 0.005 where more runs of LSH_ps0 or ps1 come there than of either "
        f"baseline. {_OURS}.",
        command=_STEPS,
        results="leashed-steps",
        tell=_steps,
    ),
    Claim(
        at="Figure 8, right",
        claim="Leashed takes the fewest updates to 50%.",
        trial="The runs of the map with m = 16. It comes out where LSH_ps0 or ps1 has a lower median than "
        "both baselines.",
        command=_MAP,
        results="leashed-map",
        tell=_fewest,
    ),
    Claim(
        at="Figure 9, left",
        claim="A gradient of the CNN takes longer than one of the MLP.",
        trial="Multiply-adds of an image counted; T_c of one thread, the median of two runs.",
        command="leashed bench scaling --preset S5 --short",
        results="S5-short",
        parse=Run.parsed,
        tell=_compute,
    ),
    Claim(
        at="Figure 9, right",
        claim="An update of the CNN's parameters takes less time than one of the MLP's.",
        trial="T_u of one thread, the median of two runs.",
        command="leashed bench scaling --preset S5 --short",
        results="S5-short",
        parse=Run.parsed,
        tell=_update,
    ),
    Claim(
        at="Figure 10",
        claim="Leashed-SGD takes 17% less memory for the CNN.",
        trial="What all vectors of the baselines take, beside the 60,000 images that each program holds.",
        tell=_memory,
    ),
    Claim(
        at="Section IV, n*",
        claim="n* = m ÷ (T_c ÷ T_u + 1) threads are in the retry loop, whatever the persistence bound.",
        trial="Threads in the loop counted in virtual time, T_c 4 ms (exponential), T_u 100 µs, m = 1 to "
        "256, for as long as 20 updates a thread take; the mean over a run, the median of seeds 0 to 4. "
        "(First until 20 updates a thread were counted: with the threads' leaving n was 5 to 8% lower "
        "from m = 64 on.) Refuted if n is above 2 n* without a bound at m = 64.",
        command="leashed bench contention --virtual --costs 0.004,0.0001",
        results="leashed-contention",
        tell=_occupancy,
    ),
    Claim(
        at="Section IV, scheduling",
        claim="With a bound n*_γ threads are in the loop (eq. 7), and E[τˢ] ≈ n*_γ.",
        trial="The same runs, with T_p = 0 and 1; n*_γ of their mean γ. Refuted if n is above it at every "
        "m from 16 on.",
        command="leashed bench contention --virtual --costs 0.004,0.0001",
        results="leashed-contention",
        tell=_waiting,
    ),
]
