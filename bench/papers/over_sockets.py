"""What gba's and shat's tables and figures come to over sockets, small, and beside virtual time."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bench.modes_sockets import MODES, NETS, SERVERS, SYNC
from bench.papers.claim import Claim, End, Told
from bench.slowed import WORKERS
from leashed.base.table import MISSING, Table
from leashed.studies.intervals import Interval, difference, interval, ratio

__all__ = ["GBA", "SHAT"]

_ALIKE = 0.95  # of Async's throughput
_WITHIN = 0.1  # of virtual time's throughput
_HELPS, _KEEPS = (
    1.5,
    0.9,
)  # memorywise over layerwise, and layerwise over memorywise: as Figure 6 is judged

Record = dict[str, Any]
Value = Callable[[Record], float]


def _rate(record: Record, where: str = "sockets") -> float:
    """Examples applied in a second."""
    of = record[where]
    return float(record["examples"]) * (1.0 - of["dropped"]) / float(of["seconds"])


def _auc(record: Record) -> float:
    return float(record["sockets"]["auc"])


def _days(records: Sequence[Record], before: str | None) -> dict[str, list[Record]]:
    """Those after one by ``before``, by mode, seed by seed."""
    found: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda one: one["seed"]):
        if record["before"] == before:
            found.setdefault(record["mode"], []).append(record)
    return found


def _each(records: Iterable[Record], value: Value = _auc) -> list[float]:
    return [value(record) for record in records]


def _of(name: str) -> Value:
    return lambda record: float(record["sockets"][name])


def table2(records: Sequence[Record]) -> Told:
    """Throughput after a switch from Sync."""
    after = _days(records, SYNC)
    rates = {mode: _each(of, _rate) for mode, of in after.items()}
    to_async, to_sync = (ratio(rates["GBA"], rates[mode]) for mode in ("Async", SYNC))
    rows = [
        [
            mode,
            interval(rates[mode]).text(0),
            ratio(rates[mode], rates[SYNC]).text(2),
            interval([rate / WORKERS for rate in rates[mode]]).text(1),
        ]
        for mode in after
    ]
    out = to_async.mean > _ALIKE and to_sync.low > 1.0
    return Told.judged(
        out,
        f"a GBA that has {to_async.mean:.2f} of Async's and {to_sync.text(2)} of Sync's",
        words=f"GBA ÷ Async {to_async.text(2)}, GBA ÷ Sync {to_sync.text(2)}; of the paper's tasks GBA ÷ "
        "Sync is 2.26, 2.19 and 2.02. Sleeps are the same in all modes; what else a cycle took (gradients, transfers, "
        f"and sleeps that were too long) was {_besides(after['Async'])} ms with Async, {_besides(after['GBA'])} "
        "with GBA.",
        table=Table(["mode", "examples/s", "of Sync's", "of one worker"], rows),
    )


def _besides(records: Sequence[Record]) -> str:
    """Milliseconds of a cycle beside its sleep, of who waits for nobody; of each seed."""

    def took(record: Record) -> float:
        of = record["sockets"]
        return float(of["gradient"] + of["overslept"] + of["between"])

    return ", ".join(f"{1000 * one:.1f}" for one in _each(records, took))


def table3(records: Sequence[Record]) -> Told:
    """AUC, drops and staleness after a switch from Sync."""
    after = _days(records, SYNC)
    apart = {mode: difference(_each(of), _each(after[SYNC])) for mode, of in after.items()}
    dropped = {mode: interval(_each(of, _of("dropped"))).mean for mode, of in after.items()}
    stale = {mode: interval(_each(of, _of("staleness"))).mean for mode, of in after.items()}
    wrong = [
        words
        for words, is_wrong in (
            (f"GBA's AUC, {apart['GBA'].signed()} beside Sync's", apart["GBA"].high < 0.0),
            (f"GBA, which drops {100 * dropped['GBA']:.1f}%", dropped["GBA"] >= 0.01),
            (f"Hop-BW, which drops {100 * dropped['Hop-BW']:.1f}%", dropped["Hop-BW"] <= 0.1),
            ("BSP, which is not staler than GBA", stale["BSP"] <= stale["GBA"]),
        )
        if is_wrong
    ]
    rows = [
        [
            mode,
            interval(_each(of)).text(),
            MISSING if mode == SYNC else apart[mode].signed(),
            f"{100 * dropped[mode]:.2f}%",
            f"{stale[mode]:.2f}",
        ]
        for mode, of in after.items()
    ]
    return Told.judged(
        not wrong,
        "; ".join(wrong),
        words=f"GBA's AUC less Sync's {apart['GBA'].signed()}; dropped: GBA {100 * dropped['GBA']:.2f}%, Hop-BW "
        f"{100 * dropped['Hop-BW']:.1f}%; staleness: Hop-BS {stale['Hop-BS']:.2f}, GBA {stale['GBA']:.2f}, BSP "
        f"{stale['BSP']:.2f} updates. (Hop-BS's is not below GBA's, as in virtual time.)",
        table=Table(["mode", "AUC", "AUC − Sync's", "dropped", "staleness"], rows),
    )


def figure6(records: Sequence[Record]) -> Told:
    """AUC of the day after a switch, beside no switch and beside GBA."""
    still = _each(_days(records, SYNC)[SYNC])
    others = [mode for mode in MODES if mode != SYNC]
    plans = {
        "from Sync": {mode: _each(_days(records, SYNC)[mode]) for mode in others},
        "to Sync": {mode: _each(_days(records, mode)[SYNC]) for mode in others},
    }
    apart = {plan: {m: difference(of[m], still) for m in others} for plan, of in plans.items()}
    behind = [plan for plan, of in apart.items() if of["GBA"].high < 0.0]
    equal = [
        mode
        for mode in others
        if mode != "GBA"
        and not all(difference(of[mode], of["GBA"]).high < 0.0 for of in plans.values())
    ]
    rows = [
        [
            mode,
            *(
                cell
                for plan, of in plans.items()
                for cell in (interval(of[mode]).text(), apart[plan][mode].signed())
            ),
        ]
        for mode in others
    ]
    head = [cell for plan in plans for cell in (f"AUC, {plan}", f"− no switch, {plan}")]
    how: dict[str, Any] = {
        "words": f"No switch: {interval(still).text()}. GBA less that, "
        + ", ".join(f"{plan} {of['GBA'].signed()}" for plan, of in apart.items())
        + ".",
        "table": Table(["mode", *head], rows),
    }
    if behind:
        return Told(End.REFUTED, f"GBA, which is below no switch {' and '.join(behind)}", **how)
    if len(equal) == len(others) - 1:
        return Told(End.REFUTED, "the others, none of which is below GBA both ways", **how)
    if equal:
        least = f"the modes but {', '.join(equal)}, which are not below GBA both ways"
        return Told(End.COMES_OUT_UNDER, least, **how)
    return Told(End.COMES_OUT, **how)


def _beside(
    arms: dict[str, list[Record]], rate: Callable[..., float], key: str, known: str
) -> Told:
    """Sockets and virtual time, arm by arm."""
    quality = {"auc": "AUC"}.get(key, key)
    rows, far, outside, near = [], [], [], 0
    for name, of in arms.items():
        there, here = ([rate(one, where) for one in of] for where in ("sockets", "virtual"))
        faster = ratio(there, here)
        near += sum(abs(a / b - 1.0) <= _WITHIN for a, b in zip(there, here, strict=True))
        found = interval(_each(of, _of(key)))
        played = interval([float(one["virtual"][key]) for one in of])
        inside = found.low <= played.mean <= found.high
        far += [] if abs(faster.mean - 1.0) <= _WITHIN else [f"{name} ({faster.mean:.2f})"]
        outside += [] if inside else [name]
        rows.append(
            [
                name,
                interval(there).text(1),
                interval(here).text(1),
                faster.text(3),
                found.text(),
                played.text(),
                "yes" if inside else "no",
            ]
        )
    every = [one for of in arms.values() for one in of]
    shares = [100 * one["sockets"]["gradient"] / one["sleep"] for one in every]
    cores = max(one["sockets"]["cores"] for one in every)
    loads = [one["load"] for one in every]
    head = [
        "",
        "a second, sockets",
        "virtual time",
        "sockets ÷ virtual",
        f"{quality}, sockets",
        f"{quality}, virtual time",
        "inside",
    ]
    wrong = [f"the throughput of {', '.join(far)}"] if far else []
    wrong += [f"the {quality} of {', '.join(outside)}"] if outside else []
    return Told.judged(
        not wrong,
        " and ".join(wrong),
        words=f"Each by itself, {near} of {len(every)} runs have a throughput within 10%. A gradient took {statistics.median(shares):.1f}% of the mean sleep in the median run, "
        f"{max(shares):.1f}% at most, where it waited for processors; the eight workers took up to {cores:.2f} "
        "of a core. The machine was busy with other work: "
        f"its load was {min(loads):.0f} to {max(loads):.0f} on two processors. {known}",
        table=Table(head, rows),
    )


def gba_beside(records: Sequence[Record]) -> Told:
    """Gba's days."""
    arms: dict[str, list[Record]] = {}
    for one in sorted(records, key=lambda one: one["seed"]):
        name = one["mode"] if one["before"] is None else f"{one['before']}, then {one['mode']}"
        arms.setdefault(name, []).append(one)
    return _beside(
        arms,
        _rate,
        "auc",
        "Of who waits for nobody throughput agrees almost by construction; how long others wait is "
        "virtual time's.",
    )


def _sharded(records: Sequence[Record]) -> dict[tuple[str, int, str], list[Record]]:
    found: dict[tuple[str, int, str], list[Record]] = {}
    for one in sorted(records, key=lambda one: one["seed"]):
        found.setdefault((one["net"], one["servers"], one["shards"]), []).append(one)
    return found


def shat_figure6(records: Sequence[Record]) -> Told:
    """Throughput by servers and sharding."""
    rates = {key: _each(of, _of("rate")) for key, of in _sharded(records).items()}
    most = SERVERS[-1]

    def over(net: str, servers: int, shards: str) -> Interval:
        return ratio(rates[net, servers, shards], rates[net, 1, "memorywise"])

    rows = [
        [
            net,
            interval(rates[net, 1, "memorywise"]).text(1),
            *(over(net, n, s).text(2) for s in ("layerwise", "memorywise") for n in SERVERS[1:]),
        ]
        for net in NETS
    ]
    heavy = ratio(
        rates["heavy layers", most, "memorywise"], rates["heavy layers", most, "layerwise"]
    )
    alike = ratio(
        rates["equal layers", most, "layerwise"], rates["equal layers", most, "memorywise"]
    )
    head = [f"{s}, {n}" for s in ("layerwise", "memorywise") for n in SERVERS[1:]]
    return Told.judged(
        heavy.mean > _HELPS and alike.mean > _KEEPS,
        f"memorywise ÷ layerwise {heavy.text(2)} with heavy layers, layerwise ÷ memorywise {alike.text(2)} with "
        "equal ones",
        words=f"With {most} servers memorywise has {heavy.text(2)} of layerwise's throughput with heavy layers, "
        f"and layerwise {alike.text(2)} of memorywise's with equal ones. In the table: times one server's.",
        table=Table(["net", "one server, a second", *head], rows),
    )


def shat_beside(records: Sequence[Record]) -> Told:
    """Shat's runs."""
    arms = {
        f"{net}, {servers} {shards}" if servers > 1 else f"{net}, 1": of
        for (net, servers, shards), of in _sharded(records).items()
    }
    return _beside(arms, lambda one, where: float(one[where]["rate"]), "accuracy", "")


def _made(paper: str) -> dict[str, Any]:
    return {
        "command": f"python -m bench.modes_sockets {paper}",
        "results": f"{paper}-sockets",
        "parse": json.loads,
    }


_BESIDE = (
    "The sleeps of each worker, gradient by gradient, and what gradients, transfers and servers took over "
    "sockets are given to virtual time, which trains the same model. "
)

GBA = [
    Claim(
        at="Table 2, over sockets",
        claim="GBA is as fast as Async, and about twice as fast as Sync.",
        trial="Real processes and sockets: 8 trainers of a thread and a policy server, 19,200 clicks a day, batches "
        "of 32, a small DeepFM. A gradient waits 40 ms times 1 + x before it computes, x exponentially "
        "distributed, drawn anew after ten; Sync among the same workers. b1 = b2 = b3 = 2, three seeds. A day "
        "after one by Sync. Comes out if GBA has 0.95 of Async's throughput, and more than Sync's by more than "
        "the interval.",
        tell=table2,
        **_made("gba"),
    ),
    Claim(
        at="Table 3, over sockets",
        claim="GBA's AUC is Sync's; it drops few gradients and Hop-BW many; BSP is much staler than GBA.",
        trial="The same days. Comes out if GBA's AUC is not below Sync's by more than the interval of the "
        "differences, GBA drops less than 1% and Hop-BW more than 10%, and BSP's staleness is above GBA's.",
        tell=table3,
        **_made("gba"),
    ),
    Claim(
        at="Figure 6, over sockets",
        claim="After a switch from Sync, and after one to it, GBA is as good as no switch, and every other mode is "
        "worse.",
        trial="A day by one mode after a day by another, between which a tenth of the model drifts; rules begin "
        "anew each day, rows of tables go on. Comes out if GBA is neither way below no switch by more than the "
        "interval, under the modes that are below GBA by more than the interval both ways.",
        tell=figure6,
        **_made("gba"),
    ),
    Claim(
        at="Over sockets, beside virtual time",
        claim="Ours: virtual time tells what a cluster does.",
        trial=_BESIDE
        + "Each of its days goes on from its own. Comes out if the mean throughput over sockets is "
        "within 10% of virtual time's, and the mean AUC of virtual time within the interval of that over "
        "sockets, of every day.",
        tell=gba_beside,
        **_made("gba"),
    ),
]

SHAT = [
    Claim(
        at="Figure 6, over sockets",
        claim="As Figure 6.",
        trial="Real processes and sockets: 8 trainers of a thread, SHAT, 1, 2 and 4 policy servers, each behind a "
        "link of its own, which a push to one server keeps for 15 ms with equal layers and 90 ms with heavy ones. "
        "A gradient waits 100 ms before it computes. Comes out if with 4 servers memorywise is 1.5 times "
        "layerwise with heavy layers, and layerwise 0.9 of it with equal ones. Three seeds.",
        tell=shat_figure6,
        **_made("shat"),
    ),
    Claim(
        at="Figure 6, beside virtual time",
        claim="Ours: virtual time tells what servers do.",
        trial=_BESIDE
        + "What transfers take besides the links is that of runs whose links have no limit, their "
        "median over the seeds. Comes out if the mean throughput is within 10% of virtual time's, and virtual time's mean accuracy within the "
        "interval of that over sockets, of every net, sharding and number of servers.",
        tell=shat_beside,
        **_made("shat"),
    ),
]
