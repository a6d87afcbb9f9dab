"""GBA: what its figures and tables claim.

W. Su, Y. Zhang and others: *GBA: A Tuning-free Approach to Switch between Synchronous and Asynchronous
Training for Recommendation Models*. In virtual time, with clicks and a cluster of our own: 100 workers
with batches of 16, a gradient every 0.1 s on a vacant cluster, loads of 0.05 (vacant), 0.3 (busy) and 1.0
(strained) of other work, unevenly spread. **Sync** is an all-reduce among 25 workers, four times as fast,
with batches of 64, as Table 1 has few of them; the servers of the other modes take 1.5 ms for a push
unless a trial says otherwise (0.5 ms for Figures 7 and 8). The model is a small **DeepFM**, the paper's of Criteo (26 tables of 1,000
rows of 8 floats, and of 1), whatever the figure's task where none is named; `--model dien` and `youtube_dnn`
take the papers of Alimama and of the private task, on clicks with histories. Figure 1 and Table 3's staleness
are of times alone. Tables keep their rows and Adagrad's sums over every switch and every day. Set S is Adam at 0.005, set A Adagrad at 0.04, the best of five rates from scratch, or within the
seeds' noise of it, with seeds 100 to 102, which no trial has; rows are trained by Adagrad at 0.02 throughout.
Intervals are of 95% over seeds 0 to 4, arms paired by them; all seeds
have the same clicks. Sketched before they were declared: Figure 1's
ratios (seed 0), and every study with seeds 100 and 101 and half the clicks, but for Figures 7 and 8; of
8 an earlier sketch with DLRM had AUC lower at 6,400 clicks alone.
What is told over sockets is of real processes, on a cluster of their own, eight workers
(`bench/modes_sockets.py`); it was sketched with another seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bench.papers import over_sockets
from bench.papers.claim import Claim, End, Told
from bench.papers.picture import saved
from leashed.studies.gba import Found, Stale, Switching, ahead, tendencies, worth
from leashed.studies.global_batch import Batches, aucs, throughput
from leashed.studies.gradient_norms import Norms, norms
from leashed.studies.hyperparameters import ARMS, Lines, Sets, after, lines
from leashed.studies.intervals import Interval, difference, interval
from leashed.studies.study import Part, Study
from leashed.studies.switching import MODES, PUSHES, SHARES, STATES, SYNC_OF_ALL, after_sync

_ALIKE = 0.001  # of AUC: half of what the paper calls significant
_PAPER_GBA, _PAPER_BSP = (0.12, 0.21), (1.62, 2.61)  # Table 3's staleness
_PRINTED = "12.4 to 13.5"  # Table 3, BSP ÷ GBA: 2.61/0.21, 1.92/0.15, 1.62/0.12
_SPEEDUP = 2.4
_WIDTH = 8.0  # inches


def _part(kind: type[Study], records: Sequence[Any], title: str) -> Part:
    return next(one for one in kind.of(records).parts(records) if title in one.title)


def _drawn(part: Part, name: str) -> Callable[[Path], Path | None] | None:
    return None if part.drawn is None else partial(_saved, part.drawn, name)


def _saved(draw: Callable[[], Figure], name: str, folder: Path) -> Path:
    def fitted() -> Figure:
        figure = draw()
        width, height = figure.get_size_inches()
        figure.set_size_inches(min(width, _WIDTH), height * min(1.0, _WIDTH / width))
        return figure

    return saved(fitted, folder, f"gba-{name}")


def _found(records: Sequence[Any], *kinds: str) -> Found:
    asked = Switching.of(records)
    return asked.found([one for one in records if one["setting"]["of"] in kinds])


def _named(values: Sequence[float], word: str = "{:g}") -> str:
    return ", ".join(word.format(one) for one in values)


def vacant(records: Sequence[Any]) -> Told:
    """Figure 1."""
    found = _found(records, "day", "rate")
    at = {push: {s: worth(found.rates, "Sync", s, push) for s in STATES} for push in PUSHES}
    outs = [
        push
        for push, of in at.items()
        if of["vacant"].low > 1.0 and of["busy"].high < 1.0 and of["strained"].high < 1.0
    ]
    part = _part(Switching, records, "Figure 1")
    shown = at[outs[0]] if outs else at[PUSHES[-1]]
    night = {one.mode: float(one.eps[2:6].mean()) for one in found.daily}
    evening = {one.mode: float(one.eps[16:20].mean()) for one in found.daily}
    words = (
        f"Sync ÷ Async at {1000 * (outs or PUSHES[-1:])[0]:g} ms a push: "
        + ", ".join(f"{state} {of.text(2)}" for state, of in shown.items())
        + f"; with free pushes {', '.join(of.text(2) for of in at[0.0].values())}. "
        f"Over the day at 1.5 ms Sync has {night['Sync'] / night['Async']:.2f} of Async's at night, "
        f"{evening['Sync'] / evening['Async']:.2f} in the evening."
    )
    end, of = End.REFUTED, f"pushes of up to {1000 * PUSHES[-1]:g} ms"
    if outs:
        end, of = (
            End.COMES_OUT_UNDER,
            (
                f"servers that take {_named([1000 * push for push in outs])} ms for a push, so that a "
                "hundred workers keep them busy"
            ),
        )
    if 0.0 in outs:
        end, of = End.COMES_OUT, ""
    return Told(
        end,
        of,
        words,
        _part(Switching, records, "what a push costs").found,
        _drawn(part, "figure-1"),
        "Normalised throughput of four modes over a day: Sync above Async while utilisation is low, far "
        "below it while it is high; two local all-reduces between them.",
    )


def table2(records: Sequence[Any]) -> Told:
    """GBA beside Async and Sync."""
    found = _found(records, "rate")
    push = found.setting.push
    gba = {state: worth(found.rates, "GBA", state, push) for state in STATES}
    few, many = (worth(found.rates, mode, "strained", push).mean for mode in ("Sync", SYNC_OF_ALL))
    few, many = gba["strained"].mean / few, gba["strained"].mean / many
    alike = all(abs(one.mean - 1.0) < 0.02 for one in gba.values())
    words = (
        f"GBA ÷ Async: {_named([one.mean for one in gba.values()], '{:.3f}')}. GBA ÷ Sync where it is "
        f"strained: {few:.2f} beside few fast workers, {many:.2f} beside as many as GBA's. The paper's own "
        "Table 2 has 2.26, 2.19 and 2.02."
    )
    end, of = End.REFUTED, "a GBA that is not as fast as Async"
    if alike and min(few, many) > _SPEEDUP:
        end, of = End.COMES_OUT, ""
    elif alike and max(few, many) > _SPEEDUP:
        end, of = (
            End.COMES_OUT_UNDER,
            "a Sync with as many workers as GBA; with few fast ones it is less",
        )
    elif alike:
        end, of = End.COMES_OUT_UNDER, f"{max(few, many):.1f} times Sync in place of 2.4"
    return Told(end, of, words, _part(Switching, records, "Tables 2 and 3").found)


def _firsts(found: Found, mode: str, state: str) -> list[Any]:
    setting = found.setting
    lengths = setting.days if state == "busy" else 1
    return [
        found.days[after_sync(setting, seed, mode, state, lengths)][setting.base]
        for seed in setting.seeds
    ]


def table3_auc(records: Sequence[Any]) -> Told:
    """GBA's AUC beside Sync's."""
    found = _found(records, "career")
    above = {
        state: ahead(_firsts(found, "GBA", state), _firsts(found, "Sync", state))
        for state in STATES
    }
    words = "GBA − Sync: " + ", ".join(f"{state} {one.text()}" for state, one in above.items())
    worst = max(abs(one.mean) for one in above.values())
    told = _OUT if worst < _ALIKE else (End.REFUTED, f"a difference of {worst:.4f}")
    return Told(*told, words + ".")


_OUT = (End.COMES_OUT, "")


def table3_drops(records: Sequence[Any]) -> Told:
    """What GBA and Hop-BW leave out."""
    found = _found(records, "career")

    def share(mode: str, state: str) -> float:
        days = _firsts(found, mode, state)
        return sum(day.dropped for day in days) / sum(day.gradients for day in days)

    shares = {mode: [share(mode, state) for state in STATES] for mode in ("GBA", "Hop-BW")}
    out = max(shares["GBA"]) < 0.01 and min(shares["Hop-BW"]) > 0.1
    words = "; ".join(
        f"{mode} {_named([100 * one for one in of], '{:.2f}')}%" for mode, of in shares.items()
    )
    refuted = End.REFUTED, f"a share of {100 * max(shares['GBA']):.1f}% of GBA's"
    return Told(*(_OUT if out else refuted), f"Dropped, by state: {words}.")


def _stale(records: Sequence[Any]) -> dict[tuple[str, float], float]:
    """Mean staleness over states and seeds, by mode and share."""
    found: dict[tuple[str, float], list[float]] = {}
    for record in records:
        setting = record["setting"]
        if setting["of"] == "staleness":
            one = Stale(**record["measured"])
            found.setdefault((setting["mode"], setting["share"]), []).append(one.mean)
    return {key: float(np.mean(of)) for key, of in found.items()}


def table3_staleness(records: Sequence[Any]) -> Told:
    """GBA's and BSP's staleness by the share of a cycle."""
    found = _stale(records)
    makes = {
        mode: [share for share in SHARES if low <= found[mode, share] <= high]
        for mode, (low, high) in (("GBA", _PAPER_GBA), ("BSP", _PAPER_BSP))
    }
    ratios = [found["BSP", share] / found["GBA", share] for share in SHARES]
    both = set(makes["GBA"]) & set(makes["BSP"])
    words = (
        f"BSP ÷ GBA is {min(ratios):.2f} to {max(ratios):.2f} at every share, n ÷ b2 = 8; printed are "
        f"{_PRINTED}. With the whole cycle between pull and push GBA has {found['GBA', 1.0]:.2f}, BSP "
        f"{found['BSP', 1.0]:.2f}."
    )
    table = _part(Switching, records, "Staleness").found
    if both:
        told = End.COMES_OUT_UNDER, f"a share of {_named(sorted(both))} of a cycle for both"
    elif makes["GBA"] and makes["BSP"]:
        told = (
            End.COMES_OUT_UNDER,
            (
                f"a share of its own for each column: {_named(sorted(makes['GBA']))} of a cycle for GBA's, "
                f"{_named(sorted(makes['BSP']))} for BSP's; one for both cannot be"
            ),
        )
    else:
        told = End.REFUTED, "every share of a cycle tried"
    return Told(*told, words, table)


def table3_hop_bs(records: Sequence[Any]) -> Told:
    """Hop-BS beside GBA."""
    found = _stale(records)
    low, high = (of(found["Hop-BS", share] for share in SHARES) for of in (min, max))
    below = [share for share in SHARES if found["Hop-BS", share] < found["GBA", share]]
    words = (
        f"Gated, over a buffer of n gradients, {low:.2f} to {high:.2f} on average over the states; GBA's is "
        f"its share of the cycle. Below GBA's at shares of {_named(below) or 'none'}. Who waits at the gate "
        "has pulled before: what the paper counted otherwise it does not say."
    )
    if low <= 0.06:
        return Told(End.COMES_OUT, words=words)
    return Told(End.REFUTED, f"{low:.2f} as the least of all shares", words)


def _differences(found: Found, plan: str) -> dict[str, tuple[Interval, Interval]]:
    """From no switch: of the first day after it, and of the mean of all."""
    base, of = found.setting.base, tendencies(found)[plan]
    still = of["Sync"][:, base:]
    return {
        mode: (
            interval(list((of[mode][:, base:] - still)[:, 0])),
            interval(list((of[mode][:, base:] - still).mean(axis=1))),
        )
        for mode in MODES
        if mode != "Sync"
    }


_PLANS = ("from Sync", "to Sync")


def figure6_gba(records: Sequence[Any]) -> Told:
    """GBA after and before Sync."""
    found = _found(records, "career")
    gba = {plan: _differences(found, plan)["GBA"] for plan in _PLANS}
    part = _part(Switching, records, "Figure 6")
    least = min(one.mean for of in gba.values() for one in of)
    words = "; ".join(
        f"{plan}: first day {first.text()}, all {mean.text()}"
        for plan, (first, mean) in gba.items()
    )
    return Told(
        *(_OUT if least > -_ALIKE else (End.REFUTED, f"a difference of {least:.4f}")),
        f"GBA − no switch, {words}.",
        part.found,
        _drawn(part, "figure-6"),
        "AUC by day of three tasks after switching from Sync and to it: GBA with Sync throughout, the other "
        "modes below.",
    )


def figure6_others(records: Sequence[Any]) -> Told:
    """The others beside GBA."""
    found = _found(records, "career")
    base, series = found.setting.base, tendencies(found)
    below: dict[str, list[str]] = {}
    words = []
    for plan in _PLANS:
        of = series[plan]
        for mode in MODES:
            if mode in ("Sync", "GBA"):
                continue
            one = interval(list((of[mode] - of["GBA"])[:, base:].mean(axis=1)))
            words.append(f"{mode} {one.text()}")
            below.setdefault(mode, []).extend([plan] if one.high < 0.0 else [])
    equal = [mode for mode, plans in below.items() if len(plans) < len(_PLANS)]
    cut = len(words) // 2
    told = f"Above GBA, from Sync: {', '.join(words[:cut])}; to Sync: {', '.join(words[cut:])}."
    if not equal:
        return Told(End.COMES_OUT, words=told)
    if len(equal) < len(below):
        of_which = f"the modes but {' and '.join(equal)}, which GBA is not above both ways"
        return Told(End.COMES_OUT_UNDER, of_which, told)
    return Told(End.REFUTED, "every other mode, which GBA is not above both ways", told)


def _drops(found: Lines, before: str) -> dict[tuple[str, str], Interval]:
    """AUC at the first look after the switch, less that at the switch."""
    return {
        (mode, name): interval(
            [float(after(one)[0] - np.interp(0.5, *one)) for one in found[before, mode, name]]
        )
        for mode, name in ARMS[before]
    }


def _ends(found: Lines, before: str, mode: str, name: str) -> Interval:
    """AUC at the end, above no switch."""
    arms = found[before, mode, name], found[(before, *ARMS[before][0])]
    return difference(*([aucs[-1] for _, aucs in arm] for arm in arms))


_THEIRS_2 = (
    "AUC by every 5% of progress, switched at 50%: from Sync to Async it falls at once, with Sync's set to 0.5; "
    "the other way it falls as well."
)


def figure2(before: str, other: str, records: Sequence[Any]) -> Told:
    """One direction of it."""
    found = lines(records)
    drops = _drops(found, before)
    falls = [name for name in ("S", "A") if drops[other, name].high < 0.0]
    lowest = min(
        float(np.mean([after(one).min() for one in found[before, other, name]])) for name in "SA"
    )
    words = (
        "First look after the switch, less AUC at it: "
        + ", ".join(f"{mode}, set {name} {one.text()}" for (mode, name), one in drops.items())
        + f". Lowest {lowest:.4f}. At the end, above no switch: "
        + ", ".join(
            f"{mode}, set {name} {_ends(found, before, mode, name).text()}"
            for mode, name in ARMS[before][1:]
        )
        + "."
    )
    if not falls:
        told = End.REFUTED, "both sets, with which it does not fall"
    elif before == "Sync" and lowest > 0.51:
        told = (
            End.COMES_OUT_UNDER,
            f"set {' and '.join(falls)}; it falls to {lowest:.3f}, not to 0.5",
        )
    elif len(falls) == 1:
        told = End.COMES_OUT_UNDER, f"set {falls[0]}"
    else:
        told = _OUT
    part = _part(Sets, records, "Figure 2")
    picture = _drawn(part, "figure-2") if before == "Sync" else None
    theirs = _THEIRS_2 if before == "Sync" else ""
    return Told(*told, words, part.found if before == "Sync" else None, picture, theirs)


def figure3(records: Sequence[Any]) -> Told:
    """Norms by the clicks of an update."""
    found = norms(records)
    own = found["Sync", None]
    others = {batch: one for (_, batch), one in found.items() if batch is not None}
    asked = Norms.of(records)
    nearest = [
        min(others, key=lambda batch: abs(of(others[batch]) - of(own))) for of in (np.mean, np.std)
    ]
    means = [float(others[batch].mean()) for batch in sorted(others)]
    same = asked.batch_size
    falls = all(later < one for one, later in itertools.pairwise(means))
    words = (
        f"Mean norm of Sync {own.mean():.4f}; of BSP with batches of {_named(sorted(others))}: "
        f"{_named(means, '{:.4f}')}. Nearest to Sync in mean and deviation: BSP-{nearest[0]} and "
        f"BSP-{nearest[1]}; BSP-{same} has as many clicks an update."
    )
    part = _part(Norms, records, "Figure 3")
    if falls and nearest == [same, same]:
        told = _OUT
    elif falls and same in nearest:
        told = End.COMES_OUT_UNDER, f"its {'mean' if nearest[0] == same else 'deviation'} alone"
    else:
        told = End.REFUTED, "BSP with other batches, which is nearer to Sync"
    return Told(
        *told,
        words,
        part.found,
        _drawn(part, "figure-3"),
        "Distributions of the norm: the smaller BSP's batches, the farther right and the wider; BSP-4K lies on "
        "Sync's.",
    )


def figure4(records: Sequence[Any]) -> Told:
    """Ids by the batches that they are in."""
    part = _part(Norms, records, "Figure 4")
    assert part.found is not None
    smallest = min(
        (record for record in records if "ids" in record["setting"]),
        key=lambda record: record["setting"]["ids"],
    )
    rare = sum(smallest["measured"]["shares"][:3])
    words = (
        f"{100 * rare:.1f}% of the ids are in at most a tenth of the batches of "
        f"{smallest['setting']['ids']} clicks."
    )
    told = End.COMES_OUT_UNDER, "Zipf's law, by which our clicks draw their ids (exponent 1.2)"
    if rare < 0.9:
        told = End.REFUTED, f"a share of {100 * rare:.1f}%"
    return Told(*told, words, part.found)


def figure7(records: Sequence[Any]) -> Told:
    """More workers, the same global batch."""
    asked, eps = Batches.of(records), throughput(records)
    found = aucs(asked, records)
    step, own = asked.workers * asked.batch_size, (asked.workers, asked.batch_size)
    counts = sorted(n for n, batch in found if n * batch == step)
    above = [difference(found[n, step // n], found[own]) for n in counts if n != asked.workers]
    worst = max(abs(one.mean) for one in above)
    grows = {
        push: eps[counts[-1], push] / eps[counts[0], push] for push in sorted({p for _, p in eps})
    }
    words = (
        f"Differences from {asked.workers} workers: {', '.join(one.text(5) for one in above)}. Throughput of "
        f"{counts[-1]} workers over {counts[0]}'s: "
        + ", ".join(f"{ratio:.1f} at {1000 * push:g} ms a push" for push, ratio in grows.items())
        + "."
    )
    faster = grows[0.0] > 2.0
    part = _part(Batches, records, "same global batch")
    if not faster or any(one.low > _ALIKE or one.high < -_ALIKE for one in above):
        told = End.REFUTED, f"a difference of {worst:.4f}" if faster else "no more throughput"
    elif worst < 1e-4:
        told = _OUT
    else:
        told = End.COMES_OUT_UNDER, f"differences of up to {worst:.5f} in place of 10⁻⁴"
    return Told(*told, words, part.found)


def figure8(records: Sequence[Any]) -> Told:
    """Other global batches."""
    asked = Batches.of(records)
    found = aucs(asked, records)
    own = (asked.workers, asked.batch_size)
    above = {
        n * batch: difference(of, found[own])
        for (n, batch), of in sorted(found.items())
        if n == asked.workers and (n, batch) != own
    }
    lower = [step for step, one in above.items() if one.high < 0.0]
    higher = [f"{step:,}" for step, one in above.items() if one.low > 0.0]
    words = "Above Sync's global batch: " + ", ".join(
        f"{step:,} clicks {one.text()}" for step, one in above.items()
    )
    if len(lower) == len(above):
        told = _OUT
    elif lower:
        told = (
            End.COMES_OUT_UNDER,
            f"global batches of {', '.join(f'{one:,}' for one in lower)} clicks"
            + (f", while with {' and '.join(higher)} it is higher" if higher else ""),
        )
    else:
        told = End.REFUTED, "no global batch with a lower AUC"
    part = _part(Batches, records, "Figure 8")
    return Told(
        *told,
        words + ".",
        part.found,
        _drawn(part, "figure-8"),
        "Range of AUC by the local batch of 400 workers: highest where the global batch is Sync's.",
    )


def bound(records: Sequence[Any]) -> Told:
    """γ of eq. 3."""
    found = _found(records, "bound").bounds
    out = all(one.gamma[1] < one.gamma[0] < 0.1 for one in found)
    largest = max(float(one.gamma.max()) for one in found)
    words = "γ of dense parameters and of rows: " + ", ".join(
        f"{one.state} {one.gamma[0]:.2g} and {one.gamma[1]:.2g} (p₀ {one.p0:.3f})" for one in found
    )
    table = _part(Switching, records, "eqs. 3 and 4").found
    return Told(*(_OUT if out else (End.REFUTED, f"a γ of {largest:.2g}")), words + ".", table)


_SWITCHING = {"command": "leashed bench switching", "results": "gba-switching"}
_SETS = {"command": "leashed bench hyperparameters", "results": "gba-hyperparameters"}
_NORMS = {"command": "leashed bench gradient-norms", "results": "gba-gradient-norms"}
_BATCHES = {"command": "leashed bench global-batch", "results": "gba-global-batch"}

CLAIMS = [
    Claim(
        at="Figure 1",
        claim="While the cluster is vacant Sync is the fastest, and while it is busy Async is much faster.",
        trial="Sync by all-reduce among few fast workers, and among all; Async at servers whose push takes 0 to "
        "2 ms (ours, all in the table); transfers of 2 ms. Throughput in three states and over a day, at "
        "1.5% of a gradient's time a push. Comes out at a push where the interval of Sync ÷ Async is above "
        "1 where it is vacant and below 1 in the other states.",
        tell=vacant,
        **_SWITCHING,
    ),
    Claim(
        at="Figure 2, from Sync to Async",
        claim="Right after the switch AUC drops, with Sync's hyper-parameters or with Async's, even to 0.5.",
        trial="100,000 clicks by Sync with set S, as many by Async with S or A, or by GBA with S; no drift. AUC of "
        "20,000 other clicks at every 5%. The rule begins anew at a switch (ours): one arm does that without "
        "a switch. Comes out if the first look is lower than at the switch by more than the interval with both "
        "sets, and the lowest is at most 0.51.",
        tell=partial(figure2, "Sync", "Async"),
        **_SETS,
    ),
    Claim(
        at="Figure 2, from Async to Sync",
        claim="AUC drops at the opposite switch too.",
        trial="The same with Async and set A first, then Sync with A or S. Comes out if the first look is "
        "lower than at the switch by more than the interval, with both sets.",
        tell=partial(figure2, "Async", "Sync"),
        **_SETS,
    ),
    Claim(
        at="Figure 3",
        claim="The L2 norms of BSP's aggregated gradients are distributed as Sync's where as many clicks are in an "
        "update, and farther out the fewer there are.",
        trial="From a DeepFM of one day by Sync, 40 updates of Sync (25 × 64) and of BSP (K = 100) with batches "
        "of 4 to 32, by SGD; dense parameters. Comes out if the mean falls with the batch and BSP of as many "
        "clicks is of all BSP nearest to Sync in mean and in deviation.",
        tell=figure3,
        **_NORMS,
    ),
    Claim(
        at="Figure 4",
        claim="Most ids are in few batches.",
        trial="The share of a day's batches that each id is in, for batches of 4 to 1,600. Comes out if nine "
        "ids of ten are in at most a tenth of the smallest batches. Our clicks are synthetic, the paper's its "
        "own.",
        tell=figure4,
        **_NORMS,
    ),
    Claim(
        at="Figure 5",
        claim="Workers, servers, tokens and the gradient buffer.",
        trial="",
        tell=lambda _: Told(End.DRAWING),
    ),
    Claim(
        at="Figure 6, GBA",
        claim="After a switch from Sync GBA is as good at once, and after one to Sync its models are as good "
        "as Sync's own.",
        trial="Two days by one mode, three by the other, 100,000 clicks a day, a tenth of the model drifts "
        "between days; busy cluster; AUC of the next day, less that without a switch. Comes out if GBA's is "
        "above −0.001 on the first day and in the mean, both ways.",
        tell=figure6_gba,
        **_SWITCHING,
    ),
    Claim(
        at="Figure 6, the others",
        claim="Every other mode is below GBA, from Sync and to it; of them Hop-BS is accurate, Hop-BW the worst.",
        trial="The same days: Async, Hop-BS (b1 = 2, over a buffer of n), BSP (b2 = 20), Hop-BW (a quarter left "
        "out). Comes out for a mode whose mean over the days after the switch is below GBA's by more than the "
        "interval, both ways.",
        tell=figure6_others,
        **_SWITCHING,
    ),
    Claim(
        at="Figure 7",
        claim="With 100 to 800 workers and one global batch AUC differs by less than 10⁻⁴, and throughput grows.",
        trial="25 to 200 workers of GBA after two days by Sync, global batch 1,600, three days; a gradient takes "
        "time by its clicks. Throughput by pushes of 0 to 1.5 ms. Comes out if AUC's mean differences from 100 "
        "workers are below 10⁻⁴ and throughput more than doubles with free pushes; refuted if an "
        "interval lies beyond 0.001.",
        tell=figure7,
        **_BATCHES,
    ),
    Claim(
        at="Figure 8",
        claim="With another global batch than Sync's AUC is lower after the switch to GBA, without tuning.",
        trial="The same with 100 workers and batches of 4, 8, 16 (Sync's global batch), 32 and 64. Comes out for a "
        "batch whose difference lies below 0 with its interval.",
        tell=figure8,
        **_BATCHES,
    ),
    Claim(
        at="Table 1",
        claim="Settings of three tasks.",
        trial="",
        tell=lambda _: Told(End.PRIVATE_DATA),
    ),
    Claim(
        at="Table 2",
        claim="GBA is as fast as Async, and where the cluster is strained at least 2.4 times as fast as Sync.",
        trial="Throughput of a model of two parameters, since it does not depend on gradients, in windows of 5 s, "
        "pushes of 1.5 ms. Comes out if GBA is within 2% of Async in every state, and above 2.4 times Sync where "
        "it is strained, beside few fast workers and beside as many as its own.",
        tell=table2,
        **_SWITCHING,
    ),
    Claim(
        at="Table 3, AUC",
        claim="GBA's AUC is Sync's in every state of the cluster.",
        trial="A day by GBA or Sync after two by Sync, AUC of the next. Comes out if the mean difference is below "
        "0.001, half of what the paper calls significant, in every state.",
        tell=table3_auc,
        **_SWITCHING,
    ),
    Claim(
        at="Table 3, dropped gradients",
        claim="GBA drops few (0.8 to 1.5 thousand), Hop-BW many (300 thousand).",
        trial="The same days, ι = 4, b3 a quarter of the workers. Comes out if GBA drops less than 1% and Hop-BW "
        "more than 10% in every state.",
        tell=table3_drops,
        **_SWITCHING,
    ),
    Claim(
        at="Table 3, staleness of GBA and BSP",
        claim="Gradients of GBA are 0.12 to 0.21 updates stale on average, BSP's 1.62 to 2.61.",
        trial="400 workers, b2 = 50, ι = 4, as the paper's private task; a share of 0.1 to 1 of a worker's cycle "
        "between its pull and its push, the rest before it; nothing else takes time. Comes out under the "
        "shares at which a column has the paper's size.",
        tell=table3_staleness,
        **_SWITCHING,
    ),
    Claim(
        at="Table 3, staleness of Hop-BS",
        claim="It is 0.03 to 0.06 on average, below GBA's, and at most 2.",
        trial="The same, b1 = 2: nobody begins who is more than two batches ahead, an update is of n "
        "gradients. Comes out if the mean is at most 0.06 at a share.",
        tell=table3_hop_bs,
        **_SWITCHING,
    ),
    Claim(
        at="Eqs. 3 and 4",
        claim="γ is small, and smaller for embeddings, so GBA converges as Sync does.",
        trial="E|∇F(w_k) − ∇F(w_{k−s})|² ÷ E|∇F(w_k)|² at three moments of a day by GBA, weighted by how far behind "
        "the kept gradients were, times ζ. Comes out if γ of rows is below that of dense parameters, and that "
        "below 0.1, in every state.",
        tell=bound,
        **_SWITCHING,
    ),
    *over_sockets.GBA,
]
