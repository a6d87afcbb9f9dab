"""ShadowSync: what its tables and figures claim.

Q. Zheng, B.-Y. Su, J. Yang and others: *ShadowSync: Performing Synchronization in the Background for
Highly Scalable Distributed Training* (2020). Its data and models are private; it names their kind,
DLRM, and publishes no α, η or step size. Trials are in virtual time ([simulation.md](../simulation.md)
tells what is played): on two cores eight workers exchanged at every third iteration or so, and held
each other back. Those on clicks were sketched with one seed, on a third to two thirds of the clicks,
before they were declared; at α = 0.9 too, after which it became an arm of Table 2. All seeds have the same
clicks. In those on clicks a gradient takes 20 ms in the mean, exponentially distributed, an update
and a copy of the parameters a millisecond each, and a link has 56 MB/s and 50 µs to one sync server;
DLRM has 26 tables of 1,000 rows of 8 floats, shared by all trainers, and layers of 16, 8 and 16 units;
η = 0.05, of rows too, and each trainer's Adagrad adds up its own squares. A loss is the first replica's,
on 20,000 other clicks.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bench import shadowsync_paced
from bench.papers.claim import Claim, End, Told
from bench.papers.picture import saved
from bench.shadowsync_sockets import (
    BMUF,
    GAPS,
    MA,
    RESULTS,
    S_EASGD,
    SUMMED,
    THREADS,
    TRAINERS,
    WIDE,
)
from leashed.base.table import MISSING, Table, number
from leashed.cluster.shadowsync.figure5 import Figure5
from leashed.cluster.shadowsync.panels import Panels, VirtualFigure6, VirtualFigure8
from leashed.cluster.shadowsync.served import VirtualServed, VirtualTable3
from leashed.cluster.shadowsync.virtual import (
    VirtualFigure5,
    VirtualSweep,
    VirtualTable2,
    VirtualTable2b,
)
from leashed.studies.elp import TABLE_1
from leashed.studies.intervals import Interval, difference, interval
from leashed.studies.study import Record

_MEMORY = (1.5, 1.1)  # least growth of EPS from 12 to 24 threads, most from 24 to 64
_LINEAR = 3.6  # least growth of EPS from 5 to 20 trainers
_PLATEAU = 0.1  # of EPS
_WORTH = 0.001  # of evaluation loss: Table 3's rises are of 0.001 to 0.003
_MILD = 0.01  # most growth of a loss from 12 to 64 threads

Losses = Mapping[int, float]  # by repeat


def _by(
    records: Sequence[Record], name: str, arm: Callable[[Record], Any]
) -> dict[Any, dict[int, float]]:
    """What was measured, by arm and repeat."""
    found: dict[Any, dict[int, float]] = {}
    for record in records:
        setting = record["setting"]
        found.setdefault(arm(setting), {})[setting["repeat"]] = record["measured"][name]
    return found


def _less(one: Losses, other: Losses) -> Interval:
    """One less the other, seed by seed."""
    return difference(one.values(), (other[repeat] for repeat in one))


def _mean(losses: Losses) -> float:
    return sum(losses.values()) / len(losses)


def _picture(study: Panels, records: Sequence[Record], name: str) -> Callable[[Path], Path]:
    return lambda folder: saved(lambda: study.drawn(records), folder, name)


def _elp(_: Sequence[Record]) -> Told:
    rows = [[one.algorithm, f"{one.elp:,}"] for one in TABLE_1 if one.elp is not None]
    return Told(
        End.COMES_OUT,
        words="Batch size × Hogwild threads × replicas is what the table has, row by row; the two rows "
        "without a batch size are not compared.",
        table=Table(["", "ELP"], rows),
    )


def _figure_5(records: Sequence[Record]) -> Told:
    study = Figure5.of(records)
    plateaus = study.plateaus(records)
    ratios = [each["ratio"] for each in plateaus]
    alone = study.curve(records, "none", study.servers[0])
    kept = [eps / alone[n] for n, eps in study.curve(records, "S-EASGD", study.servers[0]).items()]

    def drawn() -> Figure:
        figure = study.drawn(records)
        figure.set_size_inches(8.0, 4.0)
        return figure

    near = all(abs(ratio - 1.0) <= _PLATEAU for ratio in ratios) and min(kept) >= 1.0 - _PLATEAU
    return Told.judged(
        near,
        "plateaus that are elsewhere, or S-EASGD, which is slower",
        words=f"FR-EASGD-5 stops where bytes over bandwidth say (measured over predicted "
        f"{min(ratios):.3f} to {max(ratios):.3f}), and each doubling of the sync servers doubles "
        f"where. S-EASGD keeps {min(kept):.2f} to {max(kept):.2f} of the EPS without "
        "synchronisation; FR-EASGD-30 is linear as far as was run.",
        table=study.tables(records)[2],
        picture=lambda folder: saved(drawn, folder, "shadowsync-figure5"),
        theirs="EPS over 5 to 20 trainers: S-EASGD and FR-EASGD-30 are straight lines, FR-EASGD-5 "
        "is level from 14 on; with four sync servers it is straight too.",
    )


def _table_3(records: Sequence[Record]) -> Told:
    study = VirtualFigure5.of(records)
    curves = study.losses(records, "eval_loss")
    arms = [arm for arm in curves if arm != "no synchronisation"]
    counts = sorted(next(iter(curves.values())))
    rise = {arm: curves[arm][counts[-1]] / curves[arm][counts[0]] for arm in arms}
    told = ", ".join(f"{arm} {rise[arm]:.2f}" for arm in arms)
    least = min(rise, key=lambda arm: rise[arm])
    words = (
        f"Evaluation loss with {counts[-1]} trainers, times that with {counts[0]}: {told}. The "
        "paper's rises are fractions of a percent, of billions of examples; here 480 workers share "
        "120,000. One seed; an MLP on digits, since the parameters are to be of several servers."
    )
    table = study.tables(records)[-1]
    if least == "S-EASGD":
        return Told(End.COMES_OUT_UNDER, "one seed, on an MLP", words, table)
    return Told(End.REFUTED, f"{least}, whose loss rises less", words, table)


def _certain(shadow: Losses, fixed: Mapping[int, Losses]) -> list[int]:
    """The fixed gaps whose loss is above by more than the interval."""
    return [gap for gap, one in fixed.items() if _less(shadow, one).high < 0]


def _of_gaps(gaps: Sequence[int]) -> str:
    return f"of gaps of {', '.join(map(str, gaps))}"


def _table_2(kind: type[VirtualTable2]) -> Callable[[Sequence[Record]], Told]:
    """Both parts are read alike: whether S-EASGD is ahead of each fixed rate, by α."""
    b = kind is VirtualTable2b

    def arm(setting: Record) -> object:
        return setting["settings"].get("alpha"), setting["gap"], setting["sync"]

    def tell(records: Sequence[Record]) -> Told:
        losses = _by(records, "eval_loss", arm)
        gaps = _by(records, "gap", arm)
        under, pieces = [], []
        for alpha in sorted({key[0] for key in losses if key[0] is not None}):
            shadow = losses[alpha, None, "easgd"]
            fixed = {key[1]: one for key, one in losses.items() if key[0] == alpha and key[1]}
            best = min(fixed, key=lambda gap: _mean(fixed[gap]))
            gap = _mean(gaps[alpha, None, "easgd"])
            pieces.append(
                f"α = {alpha:g}: S-EASGD (gap {gap:.2f}) {interval(list(shadow.values())).text()}; "
                f"best fixed gap {best}, {interval(list(fixed[best].values())).text()}; S-EASGD less "
                f"that {_less(shadow, fixed[best]).text()}"
            )
            if b and _less(shadow, fixed[best]).low > 0 and best > min(fixed):
                under.append(f"α = {alpha:g}")
            if not b and (certain := _certain(shadow, fixed)):
                under.append(f"α = {alpha:g}, {_of_gaps(certain)}")
        words = ". ".join(pieces) + "."
        table = kind.of(records).parts(records)[0].found
        if under:
            return Told(End.COMES_OUT_UNDER, " and ".join(under), words, table)
        what = (
            "every α tried: the best gap is the smallest, or S-EASGD is ahead of all"
            if b
            else "fixed rates that are as good, at every α tried"
        )
        return Told(End.REFUTED, what, words, table)

    return tell


def _table_2_digits(records: Sequence[Record]) -> Told:
    losses = _by(records, "eval_loss", lambda setting: (setting["sync"], setting["gap"]))
    shadow = losses["easgd", None]
    fixed = {key[1]: one for key, one in losses.items() if key[0] == "easgd" and key[1] is not None}
    words = "S-EASGD less each fixed rate, evaluation loss, seed by seed: " + ", ".join(
        f"{_less(shadow, one).text()} of a gap of {gap}" for gap, one in fixed.items()
    )
    table = VirtualTable2.of(records).parts(records)[0].found
    if certain := _certain(shadow, fixed):
        under = f"α = 0.3 on an MLP, {_of_gaps(certain)}"
        return Told(End.COMES_OUT_UNDER, under, f"{words}.", table)
    return Told(End.REFUTED, "intervals that reach 0", f"{words}.", table)


def _outputs(records: Sequence[Record]) -> Told:
    kinds = ("eval_loss", "eval_loss_mean", "eval_loss_best")
    losses = {
        kind: _by(
            [each for each in records if each["setting"]["sync"] == "easgd"],
            kind,
            lambda s: (s["settings"]["alpha"], s["gap"]),
        )
        for kind in kinds
    }
    rows, least, better = [], dict.fromkeys(kinds, 0), []
    for arm, first in losses["eval_loss"].items():
        alpha, gap = arm
        least[min(kinds, key=lambda kind: _mean(losses[kind][arm]))] += 1
        apart = [_less(losses[kind][arm], first) for kind in kinds[1:]]
        name = f"α = {alpha:g}, {'background' if gap is None else f'gap {gap}'}"
        if any(each.mean < -_WORTH and each.high < 0 for each in apart):
            better.append(name)
        rows.append(
            [
                name,
                interval(list(first.values())).text(),
                *(each.text() for each in apart),
            ]
        )
    words = (
        f"Of {len(rows)} arms the first replica has the least mean evaluation loss in "
        f"{least['eval_loss']}, the mean in {least['eval_loss_mean']}, the best on other clicks in "
        f"{least['eval_loss_best']}. Better by more than {_WORTH:g} and the interval: "
        f"{'; '.join(better) or 'none'}."
    )
    table = Table(["", "first", "mean − first", "best − first"], rows)
    if not better:
        return Told(End.COMES_OUT, "", words, table)
    if len(better) == len(rows):
        return Told(End.REFUTED, "every arm", words, table)
    return Told(End.COMES_OUT_UNDER, f"all arms but {'; '.join(better)}", words, table)


def _figure_6(records: Sequence[Record]) -> Told:
    study = VirtualFigure6.of(records)
    pieces, behind = [], set()
    for kind in ("ma", "bmuf"):
        own = [
            r
            for r in records
            if r["setting"]["sync"] == kind
            and r["setting"]["settings"]["alpha"] == records[0]["setting"]["settings"]["alpha"]
        ]
        losses = _by(own, "eval_loss", lambda s: (s["trainers"], s["seconds"] is None))
        less = [_less(losses[n, True], losses[n, False]) for n in study.trainers]
        behind |= {n for n, each in zip(study.trainers, less, strict=True) if each.low > 0}
        pieces.append(f"{kind.upper()} {', '.join(each.text() for each in less)}")
    rates = _ratio_of_syncs(records)
    words = (
        f"S less FR, evaluation loss, with {', '.join(map(str, study.trainers))} trainers: "
        f"{'; '.join(pieces)}. Synchronisations of FR over those of S: {min(rates):.2f} to "
        f"{max(rates):.2f}."
    )
    table = study.tables(records)[1]
    picture = _picture(study, records, "shadowsync-figure6")
    theirs = (
        "Losses over 5 to 20 trainers: curves of S-BMUF and S-MA lie on or below those of FR-BMUF and "
        "FR-MA, all rising gently."
    )
    if not behind:
        return Told(End.COMES_OUT, "", words, table, picture, theirs)
    if held := [n for n in study.trainers if n not in behind]:
        return Told(End.COMES_OUT_UNDER, _counts(held), words, table, picture, theirs)
    return Told(
        End.REFUTED, "a fixed rate that synchronises as often", words, table, picture, theirs
    )


def _ratio_of_syncs(records: Sequence[Record]) -> list[float]:
    counted: dict[tuple[object, ...], float] = {}
    for record in records:
        setting = record["setting"]
        own = (
            setting["repeat"],
            setting["trainers"],
            setting["sync"],
            setting["settings"]["alpha"],
        )
        way = "S" if setting["seconds"] is None else "FR"
        counted[(*own, way)] = record["measured"]["syncs"]
    return [syncs / counted[(*key[:-1], "S")] for key, syncs in counted.items() if key[-1] == "FR"]


def _figure_6_scaling(records: Sequence[Record]) -> Told:
    study = VirtualFigure6.of(records)
    few, many = min(study.trainers), max(study.trainers)
    eps = _by(records, "eps", lambda s: (study.arm(s), s["trainers"]))
    arms = list(dict.fromkeys(study.arm(r["setting"]) for r in records))
    growth = {arm: _mean(eps[arm, many]) / _mean(eps[arm, few]) for arm in arms}
    beside = _mean(eps["FR-MA", many]) / _mean(eps["S-MA", many])
    words = (
        f"From {few} to {many} trainers EPS grows {min(growth.values()):.2f} to "
        f"{max(growth.values()):.2f} times. That FR is as fast as S cannot be where it synchronises "
        "as often: a shadow that never pauses trains for as long as a round takes, FR waits that long "
        f"too, and for its slowest worker. FR-MA has {beside:.2f} of S-MA's EPS at {many}."
    )
    table = study.tables(records)[4]
    if min(growth.values()) >= _LINEAR * many / few / 4.0:
        return Told(End.COMES_OUT, "", words, table)
    slow = min(growth, key=lambda arm: growth[arm])
    return Told(End.REFUTED, f"{slow}, which grows {growth[slow]:.2f} times", words, table)


def _figure_7(records: Sequence[Record]) -> Told:
    study = VirtualFigure6.of(records)
    shown = [record for record in records if record["setting"]["seconds"] is None]
    train = _by(shown, "train_loss", lambda s: (study.arm(s), s["trainers"]))
    tested = _by(shown, "eval_loss", lambda s: (study.arm(s), s["trainers"]))
    arms = list(dict.fromkeys(study.arm(r["setting"]) for r in shown))
    easgd, small, large = arms[0], *[arm for arm in arms if "BMUF" in arm]
    ranked = {n: sorted(arms, key=lambda arm: _mean(train[arm, n])) for n in study.trainers}
    leads = [n for n in study.trainers if ranked[n][:2] == [easgd, large]]
    helps = [n for n in study.trainers if _less(train[large, n], train[small, n]).mean < 0]
    best = {min(arms, key=lambda arm: _mean(tested[arm, n])) for n in study.trainers}
    words = (
        f"Training loss: S-EASGD, then S-BMUF of the larger α, with {_counts(leads)}; the larger α "
        f"improves S-BMUF with {_counts(helps)}. S-EASGD's training loss is the least with "
        f"{_counts([n for n in study.trainers if ranked[n][0] == easgd])}. Evaluation: the least has "
        f"{' or '.join(sorted(best))}, where the paper has a mixed picture."
    )
    told = (words, study.tables(records)[0], None, _SEVEN)  # Figure 6's has it
    if len(leads) == len(helps) == len(study.trainers):
        return Told(End.COMES_OUT, "", *told)
    both = [n for n in leads if n in helps]
    if both:
        return Told(End.COMES_OUT_UNDER, f"{_counts(both)}", *told)
    return Told(End.REFUTED, "the training losses, at every number of trainers", *told)


_SEVEN = (
    "Training and evaluation loss over 5 to 20 trainers: S-EASGD has the least training loss, then "
    "S-BMUF of the larger α; the evaluation curves cross."
)


def _counts(counts: Sequence[int]) -> str:
    return f"{', '.join(map(str, counts))} trainers" if counts else "no number of trainers"


def _figure_8(records: Sequence[Record]) -> Told:
    study = VirtualFigure8.of(records)
    eps = _by(records, "eps", lambda s: (s["trainers"], s["threads"]))
    losses = _by(records, "eval_loss", lambda s: (s["trainers"], s["threads"]))
    rise = {n: _mean(losses[n, 64]) / _mean(losses[n, 12]) - 1.0 for n in study.trainers}
    before = {n: _mean(eps[n, 24]) / _mean(eps[n, 12]) for n in study.trainers}
    after = {n: _mean(eps[n, 64]) / _mean(eps[n, 24]) for n in study.trainers}
    words = " ".join(
        f"{n} trainers: evaluation loss rises by {_rise(losses[n, 64], losses[n, 12])}% from 12 to 64 "
        "threads; EPS grows "
        f"{before[n]:.2f} times from 12 to 24 and {after[n]:.2f} from 24 to 64."
        for n in study.trainers
    )
    words += " EPS that ends at 24 is the setting; the losses are not."
    told = (words, study.tables(records)[1], _picture(study, records, "shadowsync-figure8"), _EIGHT)
    mild = all(value <= _MILD for value in rise.values())
    ends = min(before.values()) >= _MEMORY[0] and max(after.values()) <= _MEMORY[1]
    if mild and ends:
        return Told(End.COMES_OUT_UNDER, "a memory that 24 threads fill, a setting of ours", *told)
    return Told(End.REFUTED, "losses that rise more than mildly" if ends else "EPS", *told)


def _without_picture(
    tell: Callable[[Sequence[Record]], Told],
) -> Callable[[Sequence[Record]], Told]:
    """As it tells, of runs whose figure is another's."""
    return lambda records: dataclasses.replace(tell(records), picture=None, theirs="")


def _rise(last: Losses, first: Losses) -> str:
    """In percent, seed by seed."""
    return interval([100.0 * (last[one] / first[one] - 1.0) for one in first]).text(2)


_EIGHT = (
    "Losses rise gently with the number of threads, from 1 to 64; EPS rises up to 24 and is nearly "
    "level from there, with 5 and with 10 trainers."
)


def _numbers(records: Sequence[Record]) -> Told:
    study = VirtualSweep.of(records)
    best = study.best(records)
    told = "; ".join(
        f"{kind}: {', '.join(f'{name} {value:g}' for name, value in numbers.items())}"
        for kind, numbers in best.items()
    )
    table = study.parts(records)[0].found
    assert table is not None
    return Told(
        End.PRIVATE_DATA,
        words=f"The least mean of the background and the gap of 30: {told}. Our defaults are α = 0.3, "
        "of a first grid on threads, and for BMUF the best with η below 1. The smaller the gap, the "
        "smaller the best α: with it MA and EASGD in the background lose the more, the larger it is.",
        table=Table(table.header, [row for kind in best for row in _first(table.rows, kind)]),
    )


def _first(rows: list[list[str]], kind: str) -> list[list[str]]:
    """The best of a kind."""
    return [row for row in rows if row[0].startswith(f"{kind} ")][:_SHOWN]


_SHOWN = 6  # rows of each kind


def _served(
    panel: str, tell: Callable[[Sequence[Record]], Told]
) -> Callable[[Sequence[Record]], Told | None]:
    """What one of the studies tells whose rows are at embedding servers, and how long a batch waited
    for them; its figures are in its table.
    """

    def told(records: Sequence[Record]) -> Told | None:
        found = VirtualServed.of_panel(records, panel)
        # (Some numbers of trainers, and a gap, were run later.)
        own = sorted(
            found,
            key=lambda one: (one["setting"].get("trainers", 0), one["setting"].get("gap") or 0),
        )
        if all(record["setting"]["panel"] != panel for record in own):
            return None
        judged = tell(own)
        waits = [record["measured"]["row_wait"] for record in own]
        words = f"{judged.words} A batch waited {1e3 * min(waits):.2f} to {1e3 * max(waits):.2f} ms for rows."
        return dataclasses.replace(judged, words=words, picture=None, theirs="")

    return told


def _rises(records: Sequence[Record]) -> Told:
    """Of evaluation loss, from the fewest trainers to each other number of them."""
    study = VirtualTable3.of(records)
    few, *more = sorted(study.trainers)
    losses = _by(records, "eval_loss", lambda s: (study.arm(s), s["trainers"]))
    arms = list(dict.fromkeys(arm for arm, _ in losses))
    told, milder = [], []
    for many in more:
        rise = {
            arm: {
                one: losses[arm, many][one] / losses[arm, few][one] - 1.0
                for one in losses[arm, few].keys() & losses[arm, many].keys()
            }
            for arm in arms
        }
        each = ", ".join(f"{arm} {_rise(losses[arm, many], losses[arm, few])}%" for arm in arms)
        told.append(f"to {many} trainers {each}")
        shadow = rise.pop("S-EASGD")
        milder += [
            f"{arm} at {many} trainers" for arm, one in rise.items() if _less(shadow, one).high < 0
        ]
    words = f"Evaluation loss rises from {few}, seed by seed: {'; '.join(told)}."
    table = study.tables(records)[1]
    if len(milder) == len(more) * (len(arms) - 1):
        return Told(End.COMES_OUT, "", words, table)
    if milder:
        return Told(
            End.COMES_OUT_UNDER, f"the comparison with {' and '.join(milder)}", words, table
        )
    return Told(End.REFUTED, "rises that differ by less than their intervals", words, table)


def _sockets(records: Sequence[Record]) -> Told:
    """Test AUC of S-EASGD less that of FR-EASGD-5, over real sockets."""
    auc: dict[tuple[str, str], dict[int, float]] = {}
    for record in records:
        auc.setdefault((record["model"], record["arm"]), {})[record["seed"]] = record["test_auc"]
    rows, behind = [], []
    for (model, arm), shadow in auc.items():
        if not arm.startswith("S-EASGD"):
            continue
        fixed = auc[model, arm.replace("S-EASGD", "FR-EASGD-5")]
        less = _less(shadow, fixed)
        name = f"{model}, {arm.partition(', ')[2]}"
        rows.append(
            [name, *(interval(list(one.values())).text() for one in (shadow, fixed)), less.text()]
        )
        if less.high < 0:
            behind.append(name)
    words = f"Of {len(rows)} pairs S-EASGD is behind FR-EASGD-5 by more than the interval in {len(behind)}."
    table = Table(["", "S-EASGD", "FR-EASGD-5", "S − FR"], rows)
    return Told.judged(not behind, "; ".join(behind), words=words, table=table)


def _small(
    records: Sequence[Record], measure: str = "eval_loss"
) -> dict[tuple[str, int, int], dict[int, float]]:
    """Losses over sockets, by arm, trainers, threads and seed."""
    found: dict[tuple[str, int, int], dict[int, float]] = {}
    for r in records:
        found.setdefault((r["arm"], r["trainers"], r["threads"]), {})[r["seed"]] = r[measure]
    return found


def _gaps(records: Sequence[Record]) -> dict[tuple[str, int], float]:
    """Mean sync gaps over sockets, of trainers of a thread."""
    found: dict[tuple[str, int], dict[int, float]] = {}
    for r in records:
        if r["threads"] == 1:
            found.setdefault((r["arm"], r["trainers"]), {})[r["seed"]] = r["gap"]
    return {arm: _mean(one) for arm, one in found.items()}


def _small_table_2(records: Sequence[Record]) -> Told:
    losses, train, gaps = _small(records), _small(records, "train_loss"), _gaps(records)
    two = TRAINERS[0]
    shadow = losses[S_EASGD, two, 1]
    fixed = {gap: losses[f"FR-EASGD-{gap}", two, 1] for gap in GAPS[two]}
    certain = _certain(shadow, fixed)
    rows = [
        [
            arm,
            number(gaps[arm, two]),
            interval(list(train[arm, two, 1].values())).text(),
            interval(list(losses[arm, two, 1].values())).text(),
            MISSING if arm == S_EASGD else _less(shadow, losses[arm, two, 1]).text(),
        ]
        for arm in (S_EASGD, *(f"FR-EASGD-{gap}" for gap in fixed))
    ]
    table = Table(["", "sync gap", "train loss", "eval loss", "S-EASGD less that"], rows)
    words = f"S-EASGD's gap is {gaps[S_EASGD, two]:.2f}."
    if len(certain) == len(fixed):
        return Told(End.COMES_OUT, "", words, table)
    if certain:
        return Told(End.COMES_OUT_UNDER, f"two trainers, {_of_gaps(certain)}", words, table)
    return Told(End.REFUTED, "losses that differ by less than their intervals", words, table)


def _small_table_3(records: Sequence[Record]) -> Told:
    losses = _small(records)
    few, many = TRAINERS
    arms = (S_EASGD, *(f"FR-EASGD-{gap}" for gap in GAPS[many]))
    rise = {
        arm: {s: losses[arm, many, 1][s] / one - 1.0 for s, one in losses[arm, few, 1].items()}
        for arm in arms
    }
    milder = [arm for arm in arms[1:] if _less(rise[S_EASGD], rise[arm]).high < 0]
    rows = [
        [
            arm,
            *(interval(list(losses[arm, n, 1].values())).text() for n in TRAINERS),
            f"{_rise(losses[arm, many, 1], losses[arm, few, 1])}%",
        ]
        for arm in arms
    ]
    table = Table(["eval loss, by trainers", *map(str, TRAINERS), "rise"], rows)
    if len(milder) == len(arms) - 1:
        return Told(End.COMES_OUT, table=table)
    if milder:
        return Told(End.COMES_OUT_UNDER, f"the comparison with {milder[0]}", table=table)
    return Told(End.REFUTED, "rises that differ by less than their intervals", table=table)


def _small_figure_6(records: Sequence[Record]) -> Told:
    losses, gaps = _small(records), _gaps(records)
    rows, behind = [], []
    for name in (MA, BMUF):
        for n in TRAINERS:
            shadow, fixed = losses[f"S-{name}", n, 1], losses[f"FR-{name}", n, 1]
            less = _less(shadow, fixed)
            rows.append(
                [
                    f"{name}, {n} trainers",
                    *(number(gaps[f"{way}-{name}", n]) for way in ("S", "FR")),
                    *(interval(list(one.values())).text() for one in (shadow, fixed)),
                    less.text(),
                ]
            )
            if less.low > 0:
                behind.append(rows[-1][0])
    table = Table(
        ["eval loss", "gap of S", "of FR", "S, in the background", "FR, at a fixed rate", "S − FR"],
        rows,
    )
    return Told.judged(not behind, f"a fixed rate: {'; '.join(behind)}", table=table)


def _paced_figure_6(records: Sequence[Record]) -> Told:
    few, many = TRAINERS
    eps: dict[tuple[str, int], dict[int, float]] = {}
    for r in records:
        eps.setdefault((r["arm"], r["trainers"]), {})[r["repeat"]] = r["eps"]
    arms = dict.fromkeys(arm for arm, _ in eps)
    growth = {arm: _mean(eps[arm, many]) / _mean(eps[arm, few]) for arm in arms}
    rows = [
        [arm, *(interval(list(eps[arm, n].values())).text(0) for n in TRAINERS), f"{each:.2f}"]
        for arm, each in growth.items()
    ]
    table = Table(["examples/s, by trainers", *map(str, TRAINERS), "times"], rows)
    slow = min(growth, key=lambda arm: growth[arm])
    words = f"From {few} to {many} trainers EPS grows {growth[slow]:.2f} to {max(growth.values()):.2f} times."
    if growth[slow] >= _LINEAR * many / few / 4.0:
        return Told(End.COMES_OUT, "", words, table)
    return Told(End.REFUTED, f"{slow}, which grows {growth[slow]:.2f} times", words, table)


def _small_figure_7(records: Sequence[Record]) -> Told:
    train, tested = _small(records, "train_loss"), _small(records)
    arms = [S_EASGD, *(f"S-{name}" for name in SUMMED)]
    best, helps = [], []
    for n in TRAINERS:
        ranked = sorted(arms, key=lambda arm: _mean(train[arm, n, 1]))
        best += [n] * (ranked[:2] == [S_EASGD, f"S-{WIDE}"])
        helps += [n] * (_mean(train[f"S-{WIDE}", n, 1]) < _mean(train[f"S-{BMUF}", n, 1]))
    rows = [
        [
            arm,
            *(
                interval(list(of[arm, n, 1].values())).text()
                for of in (train, tested)
                for n in TRAINERS
            ),
        ]
        for arm in arms
    ]
    head = [f"{kind} loss, {n} trainers" for kind in ("train", "eval") for n in TRAINERS]
    words = (
        f"S-EASGD, then S-BMUF of the larger α, with {_counts(best)}; the larger α improves S-BMUF with "
        f"{_counts(helps)}."
    )
    table = Table(["", *head], rows)
    both = [n for n in best if n in helps]
    if len(both) == len(TRAINERS):
        return Told(End.COMES_OUT, "", words, table)
    if both:
        return Told(End.COMES_OUT_UNDER, _counts(both), words, table)
    return Told(End.REFUTED, "the training losses, with 2 and with 4 trainers", words, table)


def _small_figure_8(records: Sequence[Record]) -> Told:
    losses = _small(records)
    of = {threads: losses[S_EASGD, TRAINERS[0], threads] for threads in THREADS}
    first, last = of[THREADS[0]], of[THREADS[-1]]
    rows = [["2 trainers", *(interval(list(one.values())).text() for one in of.values())]]
    words = f"Evaluation loss rises by {_rise(last, first)}% from {THREADS[0]} to {THREADS[-1]} threads."
    table = Table(["eval loss, by threads", *map(str, THREADS)], rows)
    mild = _mean(last) / _mean(first) - 1.0 <= _MILD
    return Told.judged(mild, "losses that rise more than mildly", words=words, table=table)


_SMALL: dict[str, Any] = {
    "command": "python -m bench.shadowsync_sockets",
    "results": RESULTS,
    "parse": json.loads,
}

_SERVED = {
    "command": "leashed bench shadowsync --embedding-servers",
    "results": "shadowsync-embedding-servers",
}

_MORE = {
    "command": "leashed bench shadowsync --embedding-servers --panel 'Table 3,Figure 8' --examples 300000",
    "results": "shadowsync-embedding-servers-more",
}

CLAIMS = [
    Claim(
        at="Figures 1 to 4",
        claim="DLRM, the training system, its embedding servers and its shadow threads.",
        trial="",
        tell=lambda _: Told(End.DRAWING),
    ),
    Claim(
        at="Table 1",
        claim="ShadowSync's example level parallelism is 96,000, the highest of all.",
        trial="Arithmetic; `leashed elp` has all rows.",
        tell=_elp,
        command="leashed elp",
    ),
    Claim(
        at="Table 2(a)",
        claim="With 11 trainers, S-EASGD's gap is 5.21, and its training and evaluation losses are "
        "below those of FR-EASGD at gaps of 5, 10, 30 and 100, whose evaluation loss rises with the "
        "gap.",
        trial="A small DLRM with Adagrad, 300,000 clicks once, batches of 4, 24 threads; the link "
        "makes S-EASGD's gap 5.21. Arms: background and four gaps, at α = 0.3 and 0.9, paired by five "
        "seeds; one trainer. Ours: α, η, sizes. Comes out under an α and gaps of which S-EASGD's "
        "evaluation loss is below the fixed rate's by more than the interval. (Declared as: below each.)",
        tell=_table_2(VirtualTable2),
        command="leashed bench shadowsync --virtual --table2",
        results="shadowsync-table2a",
    ),
    Claim(
        at="Table 2(b)",
        claim="With 20 trainers whose reading is the bottleneck S-EASGD's gap is 1.008; the best fixed "
        "gap is then 30, and S-EASGD is slightly behind it: the best rate varies with the system.",
        trial="As 2(a), with 20 trainers, six times the bandwidth, and batches that are waited for, "
        "12 ms, which makes the gap 1.0. Comes out under an α where some fixed gap above 5 has the "
        "least mean evaluation loss and S-EASGD's is above it by more than the interval of five seeds. "
        "(Declared by means alone.)",
        tell=_table_2(VirtualTable2b),
        command="leashed bench shadowsync --table2b",
        results="shadowsync-table2b",
    ),
    Claim(
        at="Section 4, the output",
        claim="The first trainer's replica is what comes out, for simplicity; the average, or the best "
        "replica on a validation set, are alternatives.",
        trial="The arms of Table 2(b): evaluation loss of the first replica, of the mean of all, and of "
        "the best by 20,000 other clicks, all on the same 20,000. Comes out under arms where neither "
        "is below the first by more than 0.001 and the interval. (Declared as: none further than 0.01.)",
        tell=_outputs,
        command="leashed bench shadowsync --table2b",
        results="shadowsync-table2b",
    ),
    Claim(
        at="Table 2(a), on digits",
        claim="As Table 2(a).",
        trial="An MLP on digits by SGD, two passes of 60,000, 11 trainers of 24 threads, batches of 4, "
        "α = 0.3; five seeds; made before Table 2(a)'s trial on the paper's model, and judged as it is.",
        tell=_table_2_digits,
        command="leashed bench shadowsync --virtual --table2 --model mlp --examples 60000 --passes 2 "
        "--bandwidth 4e8 --alpha 0.3",
        results="virtual-table2",
    ),
    Claim(
        at="Figure 5, EPS",
        claim="S-EASGD's and FR-EASGD-30's examples per second grow linearly with the trainers; "
        "FR-EASGD-5's stop at 14, where the sync servers' links are full, and four servers solve it.",
        trial="Real threads and sockets, whose iterations wait in place of a gradient, each sync server "
        "behind a link of 12.5 MB/s; 1 to 24 trainers, one run of 6 s each. Pace, bandwidth and sizes "
        "are ours. Comes out if plateaus are within 10% of bytes over bandwidth, and S-EASGD keeps 0.9 of "
        "the EPS without synchronisation.",
        tell=_figure_5,
        command="leashed bench shadowsync --figure5",
        results="figure5",
    ),
    Claim(
        at="Figure 5, losses, and Table 3",
        claim="Losses rise with the number of trainers, mildest those of S-EASGD: by 0.18% of "
        "evaluation loss from 5 to 20, FR-EASGD-5's by 0.33%, FR-EASGD-30's by 0.25%.",
        trial="An MLP on digits, two passes of 60,000, 5 to 20 trainers of 24 threads, α = 0.3; one seed.",
        tell=_table_3,
        command="leashed bench shadowsync --virtual --figure5 --passes 2 --trainers 5,11,14,20",
        results="virtual-figure5",
    ),
    Claim(
        at="Figure 6(a)",
        claim="MA and BMUF are in the background as good as at a fixed rate, or better.",
        trial="Small DLRM, Adagrad, 300,000 clicks once, batches of 4; 5 to 20 trainers of 24 threads, "
        "α = 0.3, η = 0.75 without momentum. FR begins a round when as much was trained as in the "
        "background between two: 2 to 5 iterations a worker. α, η, rates, sizes are ours. Comes out under "
        "trainers at which S − FR of evaluation loss, paired by five seeds, has no interval above 0.",
        tell=_figure_6,
        command="leashed bench shadowsync --figure6",
        results="shadowsync-figure6",
    ),
    Claim(
        at="Figure 6(b)",
        claim="All four scale linearly: synchronisation is no bottleneck.",
        trial="The runs of Figure 6(a): examples per second with 20 trainers over those with 5. Comes "
        "out if each arm has at least 3.6 of 4.",
        tell=_figure_6_scaling,
        command="leashed bench shadowsync --figure6",
        results="shadowsync-figure6",
    ),
    Claim(
        at="Figure 7",
        claim="A larger α improves S-BMUF; S-EASGD has the best training loss, then S-BMUF of the larger "
        "α; of evaluation losses none leads everywhere.",
        trial="The runs of Figure 6(a) in the background: S-EASGD, S-MA, S-BMUF with α = 0.3 and 0.6. "
        "S-EASGD's gap is the paper's 12.5 with 20 trainers. Comes out if means of the training loss "
        "are in this order at every number of trainers.",
        tell=_figure_7,
        command="leashed bench shadowsync --figure7",
        results="shadowsync-figure6",
    ),
    Claim(
        at="Figure 8",
        claim="Losses rise mildly with the Hogwild threads of a trainer; EPS almost stops growing at 24, "
        "where memory's bandwidth is used up.",
        trial="Small DLRM as before, S-EASGD at α = 0.3, 5 and 10 trainers of 1, 12, 24, 32, 64 threads; "
        "beyond 24 a gradient takes as much longer, a setting of ours. Five seeds. Comes out if "
        "evaluation loss rises by at most 1% in the mean from 12 to 64 threads and EPS by at most 10% from 24.",
        tell=_figure_8,
        command="leashed bench shadowsync --figure8",
        results="shadowsync-figure8",
    ),
    Claim(
        at="Table 2(a), rows at servers",
        claim="As Table 2(a): 11 trainers, 12 embedding servers, one sync server.",
        trial="DLRM's rows at 12 embedding servers, each with a link of 56 MB/s and 24 threads, whom a "
        "batch's rows take 0.22 of its gradient's time (as measured over sockets); look-ahead 1. "
        "80,000 clicks once, α = 0.3, five seeds. Judged as Table 2(a) is. (A gap of 10 was added when "
        "5 and 30 had been run; 100 is more iterations than a worker has.)",
        tell=_served(VirtualServed.TABLE_2A, _table_2(VirtualTable2)),
        **_SERVED,
    ),
    Claim(
        at="Table 2(b), rows at servers",
        claim="As Table 2(b): 20 trainers, 29 embedding servers, six sync servers.",
        trial="As before, with 29 embedding servers, over which rows are spread by their ids. Judged as "
        "Table 2(b) is. (10 was added.)",
        tell=_served(VirtualServed.TABLE_2B, _table_2(VirtualTable2b)),
        **_SERVED,
    ),
    Claim(
        at="Table 3, rows at servers",
        claim="Evaluation loss rises from 5 to 10 trainers by 0.06% with S-EASGD, 0.09% with FR-EASGD-5 "
        "and 0.11% with FR-EASGD-30; to 20 by 0.18%, 0.33% and 0.25%.",
        trial="As before, 5 to 20 trainers, as many embedding servers. Comes out if S-EASGD's rise is "
        "below each fixed rate's by more than the interval of five seeds, to each number. (10, and then "
        "15, were added to a trial whose 5 and 20 had been run.)",
        tell=_served(VirtualServed.TABLE_3, _rises),
        **_SERVED,
    ),
    Claim(
        at="Figure 6(a), rows at servers",
        claim="As Figure 6(a).",
        trial="As before: 5 to 20 trainers, as many embedding servers. Judged as Figure 6(a) is. (10, and "
        "then 15, were added.)",
        tell=_served(VirtualServed.FIGURE_6, _figure_6),
        **_SERVED,
    ),
    Claim(
        at="Figure 6(b), rows at servers",
        claim="As Figure 6(b).",
        trial="The runs of Figure 6(a). Judged as Figure 6(b) is.",
        tell=_served(VirtualServed.FIGURE_6, _figure_6_scaling),
        **_SERVED,
    ),
    Claim(
        at="Figure 7, rows at servers",
        claim="As Figure 7.",
        trial="The runs of Figure 6(a) in the background. Judged as Figure 7 is.",
        tell=_served(VirtualServed.FIGURE_6, _figure_7),
        **_SERVED,
    ),
    Claim(
        at="Figure 8, rows at servers",
        claim="As Figure 8: with 5 trainers there are 4 embedding servers, with 10 there are 6.",
        trial="As before: 5 and 10 trainers of 1, 12, 24, 32 and 64 threads, 80,000 clicks where Figure 8's "
        "trial has 300,000. Judged as Figure 8 is. (5 trainers of 12, 24 and 64 had been run before the "
        "others were added.) What the rise is due to the next trial tells.",
        tell=_served(VirtualServed.FIGURE_8, _figure_8),
        **_SERVED,
    ),
    Claim(
        at="Figure 8, on fewer clicks",
        claim="As Figure 8.",
        trial="Whether the rise with rows at servers is theirs, or that of fewer clicks: Figure 8's trial on "
        "80,000 clicks, without servers, 12, 24 and 64 threads, five seeds. Judged as Figure 8 is. (Written "
        "down after it was run.)",
        tell=_without_picture(_figure_8),
        command="leashed bench shadowsync --figure8 --examples 80000 --threads 12,24,64",
        results="shadowsync-figure8-fewer",
    ),
    Claim(
        at="Table 3, rows at servers, more clicks",
        claim="As Table 3 with rows at servers.",
        trial="That trial on 300,000 clicks, since 80,000 give each worker of 20 trainers 41 batches. "
        "Declared before it was run; judged as that is.",
        tell=_served(VirtualServed.TABLE_3, _rises),
        **_MORE,
    ),
    Claim(
        at="Figure 8, rows at servers, more clicks",
        claim="As Figure 8.",
        trial="That of Figure 8 with rows at servers on 300,000 clicks, as many as Figure 8's own has. "
        "Declared before it was run; judged as that is.",
        tell=_served(VirtualServed.FIGURE_8, _figure_8),
        **_MORE,
    ),
    Claim(
        at="Section 4, over sockets",
        claim="S-EASGD is as good as FR-EASGD-5, or better.",
        trial="`leashed cluster up`, real processes and sockets: DLRM and DIN, two trainers of a thread, "
        "1, 2 and 3 embedding servers, 100,000 clicks once, five seeds of DLRM and fifteen of DIN. Made to "
        "compare them with one process ([cluster.md](../cluster.md#tables)), and read again here. Comes out "
        "if no test AUC of S-EASGD is below FR-EASGD-5's by more than the interval of the differences. (Ten "
        "seeds of DIN were added to five.)",
        tell=_sockets,
        command="python -m bench.embedding_servers",
        results="embedding-servers",
        parse=json.loads,
    ),
    Claim(
        at="Table 2, over sockets",
        claim="As Table 2(a).",
        trial="`leashed cluster up`, real processes and sockets on two processors: the default DLRM on "
        "100,000 clicks once, 2 trainers of a thread, 2 embedding servers, paired by five seeds. Comes out "
        "under gaps of which S-EASGD's evaluation loss is below the fixed rate's by more than the interval.",
        tell=_small_table_2,
        **_SMALL,
    ),
    Claim(
        at="Table 3, over sockets",
        claim="Losses rise with the number of trainers, mildest those of S-EASGD.",
        trial="As before, 2 and 4 trainers, as many embedding servers. Comes out if S-EASGD's rise is below "
        "FR-EASGD-5's and FR-EASGD-30's by more than the interval.",
        tell=_small_table_3,
        **_SMALL,
    ),
    Claim(
        at="Figure 6(a), over sockets",
        claim="As Figure 6(a).",
        trial="As before; a fixed rate of two iterations, which is about what the background's is here, and "
        "no momentum. Judged as Figure 6(a) is.",
        tell=_small_figure_6,
        **_SMALL,
    ),
    Claim(
        at="Figure 6(b), over sockets",
        claim="As Figure 6(b).",
        trial="Real processes and sockets, 2 and 4 trainers of a thread, as many embedding servers; DLRM's "
        "parameters and tables. All share two processors, so a gradient waits in place of computing, 50 ms "
        "in the mean. MA and BMUF in the background and at a gap of 2; three runs each, 6 s of each. Comes "
        "out if each arm has at least 1.8 of 2.",
        tell=_paced_figure_6,
        command="python -m bench.shadowsync_paced",
        results=shadowsync_paced.RESULTS,
        parse=json.loads,
    ),
    Claim(
        at="Figure 7, over sockets",
        claim="As Figure 7.",
        trial="Those of the runs before that are in the background, and S-BMUF of α = 0.6. Judged by "
        "training losses, as Figure 7 is.",
        tell=_small_figure_7,
        **_SMALL,
    ),
    Claim(
        at="Figure 8, over sockets",
        claim="Losses rise mildly with the number of threads.",
        trial="As Table 2's, over sockets, S-EASGD by 2 trainers of 1, 2 and 4 threads. Comes out if "
        "evaluation loss rises by at most 1% in the mean from 1 to 4.",
        tell=_small_figure_8,
        **_SMALL,
    ),
    Claim(
        at="α and η",
        claim="The same hyper-parameters, those of production, for all; none is published.",
        trial="A grid of α, η and block momentum, in virtual time, on digits: evaluation loss in the "
        "background and at a gap of 30, five seeds. Our defaults come from it.",
        tell=_numbers,
        command="leashed bench shadowsync --virtual --sweep",
        results="virtual-sweep",
    ),
]
