"""Extreme-scale ASGD: what its figures claim.

L. Liu, K. Zhao: *Asynchronous Stochastic Gradient Descent for Extreme-Scale Recommender Systems*. Its
data are private: clicks are drawn from a seed here, and thousands of workers are played in virtual
time, whose cycles take nearly the same (a deviation of a twentieth, ours) where nothing else is said.
Its model is Wide & Deep with attention, of which one sentence tells: `models.ecommerce`, small (rows of
8, attention of 16 units, layers of 16 and 8: ours). Staleness is counted from 1. Intervals are of 95%,
over seeds by which all arms are paired, five where no other number is said. Figure 5's trial was declared twice: at first at one rate,
the largest of a sweep at which 1,000 workers held (0.002), and after that had been run, with the same
seeds, at three. Figure 3's rule was "every mean" and became "those times whose means" when the
counts were there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from bench.papers.claim import Claim, End, Told
from bench.papers.picture import saved
from leashed.base.table import MISSING, Table, number
from leashed.studies import damping, normalisation, swap
from leashed.studies.intervals import difference
from leashed.studies.plots import damping as damping_plot
from leashed.studies.plots import normalisation as normalisation_plot
from leashed.studies.plots import stale as stale_plot
from leashed.studies.plots import swap as swap_plot
from leashed.studies.stale import PAPER, TIMES, Counted
from leashed.studies.study import revived

_NEAR = 0.02  # of a mean
_BOTTLENECK = 4  # days


def _counted(records: Sequence[Any]) -> list[Counted]:
    return [revived(Counted, record["measured"]) for record in records]


def _staleness_table(found: Sequence[Counted]) -> Table:
    header = [
        "workers",
        "times",
        "share",
        "mean",
        "the paper's",
        "variance",
        "the paper's variance",
    ]
    rows = [
        [
            f"{one.workers:,}",
            one.times,
            f"{one.share:g}",
            number(one.mean, 4),
            number(PAPER[one.workers][0]),
            number(one.variance),
            number(PAPER[one.workers][1]),
        ]
        for one in found
    ]
    return Table(header, rows)


def _means(records: Sequence[Any]) -> Told:
    found = _counted(records)
    shared = [one for one in found if one.share < 1]
    far = [one for one in shared if abs(one.mean / PAPER[one.workers][0] - 1) >= _NEAR]
    shares = " and ".join(f"{one:g}" for one in dict.fromkeys(one.share for one in shared))
    kinds = [name for name in TIMES if name not in {one.times for one in far}]
    off = ", ".join(
        f"{one.times} times of {one.workers:,} workers, {number(one.mean, 4)}" for one in far
    )
    how: dict[str, Any] = {
        "words": "The mean is n where a gradient takes the whole cycle, whatever the times. The paper's "
        f"own are those of a gradient that takes {shares} of it: share × (n − 1) + 1. Further than 2% "
        f"from them: {off or 'none'}; nearly constant times keep workers in the phase in which they begin.",
        "table": _staleness_table(found),
        "picture": lambda folder: saved(
            lambda: stale_plot.distributions(shared), folder, "extreme-scale-asgd-figure-3"
        ),
        "theirs": "Two bells, of 1K workers about 875 and of 3K about 2,090, the second wider and lower.",
    }
    if not kinds:
        return Told(End.REFUTED, of="the counts", **how)
    of = f"shares of {shares} of a cycle between pull and push, with times: {', '.join(kinds)}"
    return Told(End.COMES_OUT_UNDER, of=of, **how)


def _variances(records: Sequence[Any]) -> Told:
    found = _counted(records)
    constant = " and ".join(
        number(one.variance) for one in found if one.times == "normal" and one.share < 1
    )
    return Told(
        End.REFUTED,
        of="arithmetic: Poisson workers give n(n − 1), 999,000 and 8,997,000, for 4,770 and 11,300",
        words="The others' pushes within an exponential time are a geometric number. With the share that "
        "makes the paper's mean m the variance is still m(m − 1): 765,000 and 4,366,000. Nearly constant "
        f"times of these shares give {constant}. The table is that above.",
    )


def _damping(records: Sequence[Any]) -> Told:
    asked = damping.Asked.of(records)
    found = asked.curves(records)
    few, many = min(asked.workers), max(asked.workers)
    curves = {(one.rate, one.workers, one.damping): one for one in found}
    held = asked.held(found)
    good, told, worst = [], [], []
    for rate in held:
        gains = {
            name: curves[rate, many, name].against(curves[rate, few, "none"])
            for name in damping.DAMPING
        }
        ends = [curves[rate, n, "none"].auc[:, -1] for n in (many, few)]
        below = int((ends[0] < ends[1]).sum())
        told.append(
            f"{rate:g}: none {gains['none'].signed()}, below in {below} of {asked.repeats} seeds, "
            f"normalised {gains['normalised'].signed()}"
        )
        worst.append(min(gains, key=lambda name: gains[name].mean))
        if gains["none"].high < 0 <= gains["normalised"].high:
            good.append(rate)
    largest = max(held, default=min(asked.lr))
    how: dict[str, Any] = {
        "words": f"{many:,} against {few:,} without, at each η where these hold: {'; '.join(told)}. "
        f"The worst of {many:,}: {', '.join(worst)}.",
        "table": asked.table(found),
        "picture": lambda folder: saved(
            lambda: damping_plot.over_time([one for one in found if one.rate == largest]),
            folder,
            "extreme-scale-asgd-figure-5",
        ),
        "theirs": "AUC over steps with 3K workers: linear the lowest, none between, normalised the "
        f"highest, near that of 1K. (Here η = {largest:g}.)",
    }
    if not good:
        of = "the intervals over the seeds, at every rate at which 1K holds"
        if "linear" not in worst:
            of = "linear damping, never the worst, and seeds that do not tell of none, at every rate at which 1K holds"
        return Told(End.REFUTED, of=of, **how)
    of = f"η = {', '.join(f'{rate:g}' for rate in good)}"
    if any(one != "linear" for one, rate in zip(worst, held, strict=True) if rate in good):
        of += ", but for linear, which is not the worst"
    elif good == held:
        return Told(End.COMES_OUT, **how)
    return Told(End.COMES_OUT_UNDER, of=of, **how)


def _normalisation(records: Sequence[Any]) -> Told:
    asked = normalisation.Asked.of(records)
    found = asked.curves(records)
    curves = {(one.workers, one.arm): one for one in found}
    places = [arm for arm in normalisation.ARMS if arm != "none"]
    gains = {
        (n, arm): curves[n, arm].against(curves[n, "none"])
        for n, arm in product(asked.workers, places)
    }
    good = [arm for arm in places if all(gains[n, arm].low > 0 for n in asked.workers)]
    full, sweep = asked.table(found), asked.sweep_table(records)
    merged = Table(
        [*full.header, *(f"sweep: {name}" for name in sweep.header[2:])],
        [[*row, *more[2:]] for row, more in zip(full.rows, sweep.rows, strict=True)],
    )
    told = "; ".join(
        f"{n:,}: " + ", ".join(f"{arm} {gains[n, arm].signed()}" for arm in places)
        for n in asked.workers
    )
    how: dict[str, Any] = {
        "words": f"AUC at the end against no data normalisation, each at its best η. {told}.",
        "table": merged,
        "picture": lambda folder: saved(
            lambda: normalisation_plot.over_time(found), folder, "extreme-scale-asgd-figure-6"
        ),
        "theirs": "AUC over steps with 1K and 3K workers: with data normalisation above without from "
        "the beginning on, by 0.01 and 0.02 at the end.",
    }
    if not good:
        return Told(
            End.REFUTED, of="this trial: no place gains with either number of workers", **how
        )
    if "before ReLU" in good:
        return Told(End.COMES_OUT, **how)
    of = f"normalisation of the following, not before the ReLU: {', '.join(good)}"
    return Told(End.COMES_OUT_UNDER, of=of, **how)


def _swap_curves(records: Sequence[Any]) -> list[swap.Curve]:
    return swap.Asked.of(records).curves(records)


def _swap_table(found: Sequence[swap.Curve]) -> Table:
    days = range(found[0].auc.shape[1])
    header = ["optimizer", *(f"day {day + 1}" for day in days), "against Adagrad"]
    rows = [
        [one.optimizer]
        + [f"{day.mean:.4f}" for day in one.intervals()]
        + [MISSING if one is found[0] else one.against(found[0]).text()]
        for one in found
    ]
    return Table(header, rows)


def _swap(records: Sequence[Any]) -> Told:
    found = _swap_curves(records)
    adagrad, ours, _ = found
    gain = ours.against(adagrad)
    later = difference(adagrad.auc[:, -1], adagrad.auc[:, _BOTTLENECK - 1])
    how: dict[str, Any] = {
        "words": f"On the last day SWAP is ahead by {gain.signed()} on the same clicks, and Adagrad "
        f"{later.signed()} from its own day {_BOTTLENECK}.",
        "table": _swap_table(found),
        "picture": lambda folder: saved(
            lambda: swap_plot.days(found), folder, "extreme-scale-asgd-figure-7"
        ),
        "theirs": "AUC over ten days: Adagrad flat from the third or fourth on, the decay at each step "
        "beside it, SWAP rising on.",
    }
    if gain.low <= 0:
        return Told(End.REFUTED, of="this trial", **how)
    if later.low > 0:
        of = f"no bottleneck of Adagrad's, which goes on gaining after day {_BOTTLENECK}"
        return Told(End.COMES_OUT_UNDER, of=of, **how)
    return Told(End.COMES_OUT, **how)


def _each_step(records: Sequence[Any]) -> Told:
    adagrad, ours, decayed = _swap_curves(records)
    gain, over = decayed.against(adagrad), decayed.against(ours)
    words = (
        f"On the last day it is {gain.signed()} from Adagrad, and {over.signed()} from SWAP: where clicks "
        "drift by a tenth a day, forgetting faster pays. The table is that above."
    )
    if gain.low > 0:
        return Told(End.REFUTED, of="this trial: decaying at each step gains too", words=words)
    return Told(End.COMES_OUT, words=words)


def _accumulators(records: Sequence[Any]) -> Told:
    adagrad, ours, _ = _swap_curves(records)
    ends = [float(one.accumulator[:, -1].mean()) for one in (adagrad, ours)]
    grows = all(
        float(one.accumulator[:, 0].mean()) < end
        for one, end in zip((adagrad, ours), ends, strict=True)
    )
    words = (
        f"Adagrad's mean accumulator grows to {number(ends[0])}, SWAP's to {number(ends[1])}: the "
        "right panel of the figure above."
    )
    if grows and ends[1] < ends[0]:
        return Told(End.COMES_OUT, words=words)
    return Told(End.REFUTED, of="this trial", words=words)


_SWAP = "leashed bench swap"
_SWAP_TRIAL = (
    "Adagrad (η = 0.03), Adagrad-SWAP (λ₀ = 0.8, T a day's 800 steps), decay at each step with the paper's "
    "T (1 − λ) = 14 (η = 0.003). Ten days of 51,200 clicks, a tenth of the hidden model drawn anew each; "
    "AUC of the next; seeds 0 to 4. Wide & Deep with attention; sizes, rates ours. Sketched with one other "
    "seed. Comes out if SWAP ends above "
    "Adagrad, which gains nothing after day 4 (intervals)."
)

CLAIMS = [
    Claim(
        at="Figure 1",
        claim="Workers that pull, compute and push by themselves.",
        trial="",
        tell=lambda _: Told(End.DRAWING),
    ),
    Claim(
        at="Figure 2",
        claim="ρ normalised to 1K and to 500 is 1 up to there and falls slower than 1/τ beyond.",
        trial="By arithmetic; `leashed policies` draws it.",
        tell=lambda _: Told(
            End.COMES_OUT_UNDER,
            of="eq. 7 read as (μ'/τ)ᵏ",
            words="As printed, 1/τ² above μ', ρ jumps from 1 to 10⁻⁶ at 1,000, against the sentence on "
            "meaningful learning rates. Read as (μ'/τ)ᵏ it goes on from 1, as drawn. Figure 5 has both.",
        ),
    ),
    Claim(
        at="Figure 3, means",
        claim="E(τ) = n of n workers, whatever their rates. Measured: 875 of 1,000, 2,090 of 3,000.",
        trial="260,000 updates by ASP; times exponential, of rates drawn once, nearly constant; a "
        "gradient takes the whole cycle, or the share that makes the paper's mean, fetching before the "
        "pull taking the rest. Seed 0: no interval is needed where a count has 260,000. It comes out "
        "with those times whose means are within 2% of the paper's. Ours: the deviations of a tenth and a twentieth.",
        tell=_means,
        command="leashed bench staleness",
        results="asgd-staleness",
    ),
    Claim(
        at="Figure 3, variances",
        claim="Variances of 4,770 and 11,300, roughly consistent with the analysis of Poisson workers.",
        trial="By arithmetic, beside the counts above.",
        tell=_variances,
        command="leashed bench staleness",
        results="asgd-staleness",
    ),
    Claim(
        at="Figure 4",
        claim="Adagrad's accumulator grows without end; SWAP's is cut at each period's end.",
        trial="The accumulators of Figure 7's runs.",
        tell=_accumulators,
        command=_SWAP,
        results="asgd-swap",
    ),
    Claim(
        at="Figure 5",
        claim="With 3K workers, linear damping is the worst, none loses too, normalised staleness keeps "
        "nearly the AUC of 1K.",
        trial="Wide & Deep with attention, 100,000 ids; 200,000 clicks by one worker (η = 0.03, rows "
        "so throughout), 12 updates of 8 clicks of each worker. Damping: none, linear, printed, "
        "normalised, with trans (λ = 1); η of 0.002, 0.003, 0.005; seeds 0 to 14 (five did not tell). It "
        "comes out at an η where 1K without damping ends no lower than it began, if 3K without is below "
        "that, normalised not (intervals), linear the worst. Sizes, rates ours.",
        tell=_damping,
        command="leashed bench staleness --damping --repeats 15",
        results="asgd-damping",
    ),
    Claim(
        at="Figure 6",
        claim="Data normalisation on top of staleness normalisation gains AUC, 1% with 1K workers and 2% "
        "with 3K, and from the beginning on.",
        trial="Wide & Deep with attention; 300 updates of each of 1,000 and 3,000 workers, of 32 fresh "
        "clicks each. Normalised: nothing, the input, before each ReLU (Algorithm 1), what each layer "
        "reads. η: each arm's best of 0.003, 0.01, 0.03, by seed 0 and a third of the clicks. Seeds 0 to "
        "4. It comes out where a place gains with both, its interval above 0. Sizes, rates ours.",
        tell=_normalisation,
        command="leashed bench normalisation",
        results="asgd-normalisation",
    ),
    Claim(
        at="Figure 7",
        claim="Adagrad meets a bottleneck after three or four days; Adagrad-SWAP goes on gaining.",
        trial=_SWAP_TRIAL,
        tell=_swap,
        command=_SWAP,
        results="asgd-swap",
    ),
    Claim(
        at="Figure 7, decay at each step",
        claim="Decaying at each step is not significantly better than Adagrad.",
        trial="The third arm of the trial above.",
        tell=_each_step,
        command=_SWAP,
        results="asgd-swap",
    ),
    Claim(
        at="The AUC of production",
        claim="The final AUC improves by more than 5 percentage on 7 billion clicks a day.",
        trial="",
        tell=lambda _: Told(End.PRIVATE_DATA),
    ),
]
