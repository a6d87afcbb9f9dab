"""SHAT: what its tables and figures claim.

Y. Ko, S.-W. Kim: *SHAT: A Novel Asynchronous Training Algorithm That Provides Fast Model Convergence in
Distributed Deep Learning*. All in virtual time, but for what is told over sockets (`bench/modes_sockets.py`); accuracies are of MNIST's 10,000 test images after three
passes over 10,000 training images, batches of 32. Where a network is trained it is a small one with two
convolutions, each with batch normalisation as ResNet-50 has it, in place of ResNet-50 and VGG-16 on
CIFAR-10. Momentum 0.9, weight decay, warm-up and the tenth of η are the paper's; of its η = 0.01 n
each method has the best of five, 0.0001 to 0.01 times n, by its mean accuracy. Network, data and steps
are ours. In evaluation values are normalised by what the evaluated images come to. Sketched with one seed
before the trials were declared: n = 4, four of the methods at three steps.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.papers import over_sockets
from bench.papers.claim import Claim, End, Told
from bench.papers.picture import saved
from leashed.base.table import Table, number
from leashed.studies import shat
from leashed.studies.intervals import Interval, difference, interval
from leashed.studies.plots import shat as plots
from leashed.studies.study import revived

_COMMAND = "leashed bench shat --data MNIST"
_RESULTS = "shat"
_SEEDS = "seeds 0 to 4, paired"

Runs = Sequence[shat.Trained]


def _swept(records: Sequence[Any]) -> list[shat.Trained]:
    return [
        revived(shat.Trained, record["measured"])
        for record in records
        if "method" in record["setting"]
    ]


def _of(runs: Runs, method: str, workers: int, cluster: str = "HO") -> list[shat.Trained]:
    chosen = [
        run for run in runs if (run.method, run.workers, run.cluster) == (method, workers, cluster)
    ]
    return sorted(chosen, key=lambda run: run.seed)


def _accuracy(run: shat.Trained) -> float:
    """0 where the run met NaN."""
    return 0.0 if math.isnan(run.accuracy) else run.accuracy


def _apart(
    ours: Runs, theirs: Runs, value: Callable[[shat.Trained], float] = _accuracy
) -> Interval:
    """The difference, of the same seeds."""
    return difference(map(value, ours), map(value, theirs))


def _numbers(runs: Runs) -> list[int]:
    """Of workers, of all methods."""
    return sorted({run.workers for run in runs if run.method == "ENSEMBLE"})


def _above(records: Sequence[Any], method: str, other: str) -> Told:
    """Whether a method is above another, each at its best step."""
    swept = _swept(records)
    runs, numbers = shat.best(swept), _numbers(swept)
    apart = {n: _apart(_of(runs, method, n), _of(runs, other, n)) for n in numbers}
    rows = []
    for n in numbers:
        for lr in sorted({run.lr for run in swept}):
            here = [run for run in swept if run.lr == lr]
            cells = [_shown(_of(here, name, n)) for name in shat.METHODS]
            pair = _apart(_of(here, method, n), _of(here, other, n))
            rows.append([f"{n}", f"{lr:g}", *cells, pair.signed()])
        cells = [_shown(_of(runs, name, n)) for name in shat.METHODS]
        rows.append([f"{n}", "best", *cells, apart[n].signed()])
    told = "; ".join(f"n = {n}: {found.signed()}" for n, found in apart.items())
    how: dict[str, Any] = {
        "words": f"{method} − {other}, each at its best step: {told}. In the table: every step that was "
        "tried, and each method's best.",
        "table": Table(["n", "η/n", *shat.METHODS, f"{method} − {other}"], rows),
    }
    good = [n for n, found in apart.items() if found.low > 0.0]
    if len(good) == len(numbers):
        return Told(End.COMES_OUT, **how)
    if good:
        return Told(End.COMES_OUT_UNDER, of=f"n = {', '.join(map(str, good))}", **how)
    return Told(
        End.REFUTED,
        of="a sweep of η for each method: at its best step it is not above, at any n",
        **how,
    )


def _shown(runs: Runs) -> str:
    return interval([_accuracy(run) for run in runs]).text()


def _two(_: Sequence[Any]) -> Told:
    rows = [
        [
            f"{c}",
            f"{2 / c:.2f}",
            *(f"{max(0.0, 1 - 2 / c / log):.3f}" for log in (math.log(2), 1.0)),
        ]
        for c in (1, 2, 3)
    ]
    return Told(
        End.REFUTED,
        of="arithmetic: with two equal workers α = 0, with the natural logarithm and with the binary one",
        words="α = 1 − s ÷ log n, s = n ÷ c, where c others' updates came between: of two equal workers 1, "
        "at most 2. α below 0 is 0. So SHAT's workers are ENSEMBLE's, bit for bit, beside a server whose "
        "model nobody takes.",
        table=Table(["c", "s", "α, ln", "α, log₂"], rows),
    )


def _ensemble(records: Sequence[Any]) -> Told:
    runs = shat.best(_swept(records))
    few, many = _numbers(runs)[0], _numbers(runs)[-1]
    apart = _apart(_of(runs, "ENSEMBLE", many), _of(runs, "ENSEMBLE", few))
    how: dict[str, Any] = {
        "words": f"ENSEMBLE with {many} workers − with {few}: {apart.signed()}. Each worker has its share of "
        "the batches, so more workers have less each.",
        "table": Table(
            ["n", "ENSEMBLE", "a worker's own"],
            [
                [
                    f"{n}",
                    _shown(of),
                    interval([run.own_accuracy for run in of]).text(),
                ]
                for n in _numbers(runs)
                for of in [_of(runs, "ENSEMBLE", n)]
            ],
        ),
    }
    if apart.high < 0.0:
        return Told(End.COMES_OUT, **how)
    return Told(End.REFUTED, of="this trial", **how)


def _area(run: shat.Trained) -> float:
    """The mean accuracy over the passes."""
    values = np.nan_to_num(run.over_time)
    width = float(run.epochs[-1] - run.epochs[0])
    return float(np.sum(np.diff(run.epochs) * (values[1:] + values[:-1]) / 2)) / width


def _over_epochs(records: Sequence[Any]) -> Told:
    runs = shat.best(_swept(records))
    numbers = _numbers(runs)
    apart = {n: _apart(_of(runs, "SHAT", n), _of(runs, "ASP", n), _area) for n in numbers}
    told = "; ".join(f"n = {n}: {found.signed()}" for n, found in apart.items())
    compared = [run for run in runs if run.method in shat.HETEROGENEOUS]
    how: dict[str, Any] = {
        "words": f"Mean accuracy over the passes, SHAT − ASP, each at its best step: {told}.",
        "picture": lambda folder: saved(
            lambda: plots.over_epochs(compared), folder, "shat-figure-4"
        ),
        "theirs": "Accuracy over 250 epochs for ASP and for SHAT, a line for 2, 4, 8 and 16 workers: SHAT's "
        "lines stay together, ASP's fall with more workers.",
    }
    good = [n for n, found in apart.items() if found.low > 0.0]
    if len(good) == len(numbers):
        return Told(End.COMES_OUT, **how)
    if good:
        return Told(End.COMES_OUT_UNDER, of=f"n = {', '.join(map(str, good))}", **how)
    return Told(End.REFUTED, of="the same sweep: at no n is it ahead over the passes", **how)


_BEARABLE = 0.01  # of accuracy


def _slow(records: Sequence[Any]) -> Told:
    runs = shat.best(_swept(records))
    n = max(run.workers for run in runs if run.cluster != "HO")
    apart = {
        (method, cluster): _apart(_of(runs, method, n, cluster), _of(runs, method, n))
        for method in shat.HETEROGENEOUS
        for cluster in shat.CLUSTERS
        if cluster != "HO"
    }
    lost = {cluster: found for (method, cluster), found in apart.items() if method == "SHAT"}

    def drawn(folder: Path) -> Path:
        chosen = [run for run in runs if run.workers == n and run.method in shat.HETEROGENEOUS]
        return saved(lambda: plots.over_time(chosen), folder, "shat-figure-5")

    how: dict[str, Any] = {
        "words": f"SHAT's accuracy beside that with equal workers: "
        f"{'; '.join(f'{name} {found.signed()}' for name, found in lost.items())}. ASP's is in the table.",
        "table": Table(
            ["", "HO", *(f"{name} − HO" for name in lost)],
            [
                [method, _shown(_of(runs, method, n))]
                + [apart[method, name].signed() for name in lost]
                for method in shat.HETEROGENEOUS
            ],
        ),
        "picture": drawn,
        "theirs": "Accuracy over time, a line for each cluster: they lie on each other.",
    }
    held = [name for name, found in lost.items() if found.low > -_BEARABLE]
    if len(held) == len(lost):
        return Told(End.COMES_OUT, **how)
    if held:
        return Told(End.COMES_OUT_UNDER, of=", ".join(held), **how)
    return Told(End.REFUTED, of="this trial: SHAT loses more", **how)


def _sharding(records: Sequence[Any]) -> Told:
    rates: dict[tuple[str, str, int], list[float]] = {}
    for record in records:
        if "net" in (setting := record["setting"]):
            key = (setting["net"], setting["sharding"], setting["n"])
            rates.setdefault(key, []).append(record["measured"]["rate"])
    most = max(n for _, _, n in rates)
    nets = list(dict.fromkeys(net for net, _, _ in rates))
    names = list(dict.fromkeys(name for _, name, _ in rates))
    speed = {
        (net, name): statistics.fmean(rates[net, name, most])
        / statistics.fmean(rates[net, "no", 1])
        for net in nets
        for name in names
    }
    found = [
        shat.Throughput(net, name, n, np.array(values)) for (net, name, n), values in rates.items()
    ]
    equal, heavy = nets
    how: dict[str, Any] = {
        "words": f"With {most} workers and heavy layers: memorywise {number(speed[heavy, 'memorywise'])} "
        f"times one worker's throughput, layerwise {number(speed[heavy, 'layerwise'])}, without sharding "
        f"{number(speed[heavy, 'no'])}. With equal layers: {number(speed[equal, 'memorywise'])}, "
        f"{number(speed[equal, 'layerwise'])}, {number(speed[equal, 'no'])}.",
        "table": Table(
            ["net", *names],
            [[net, *(number(speed[net, name]) for name in names)] for net in nets],
        ),
        "picture": lambda folder: saved(lambda: plots.speedups(found), folder, "shat-figure-6"),
        "theirs": "Speedup over workers: for ResNet-50 both shardings help, for VGG-16 the memorywise one "
        "alone.",
    }
    helps = speed[heavy, "memorywise"] > 1.5 * speed[heavy, "layerwise"]
    alike = speed[equal, "layerwise"] > 0.9 * speed[equal, "memorywise"]
    if helps and alike:
        return Told(End.COMES_OUT, **how)
    return Told(End.REFUTED, of="this trial", **how)


_ARMS = f"Six methods, n = 4, 8 and 16, η/n = 0.0001, 0.0003, 0.001, 0.003, 0.01, {_SEEDS}"

CLAIMS = [
    Claim(
        at="Figures 1 to 3",
        claim="Servers and workers, the ways of training, and shardings.",
        trial="",
        tell=lambda _: Told(End.DRAWING),
    ),
    Claim(
        at="Table 2",
        claim="SHAT's models are more accurate than ASP's, the more the more workers there are: by "
        "0.006 to 0.007 with 4, by 0.013 to 0.016 with 8, by 0.029 to 0.052 with 16.",
        trial=f"{_ARMS}; accuracy at the end. It comes out at an n where SHAT at its best step is above ASP "
        "at its best by more than half the 95% interval of the pairs.",
        command=_COMMAND,
        results=_RESULTS,
        tell=lambda records: _above(records, "SHAT", "ASP"),
    ),
    Claim(
        at="Table 2, SHAT-root",
        claim="SHAT is above SHAT-root but for one of eight cells.",
        trial=f"{_ARMS}; it comes out as above.",
        command=_COMMAND,
        results=_RESULTS,
        tell=lambda records: _above(records, "SHAT", "SHAT-root"),
    ),
    Claim(
        at="Table 2, n = 2",
        claim="With two workers SHAT mixes, and is above ENSEMBLE and ASP.",
        trial="Eq. 4 at n = 2.",
        tell=_two,
    ),
    Claim(
        at="Table 2, ENSEMBLE",
        claim="Without mixing accuracy falls the more workers there are.",
        trial=f"{_ARMS}; ENSEMBLE is judged by the mean of its models' probabilities. It comes out if 16 "
        "workers are below 4 by more than half the interval.",
        command=_COMMAND,
        results=_RESULTS,
        tell=_ensemble,
    ),
    Claim(
        at="Figure 4",
        claim="SHAT is always ahead of ASP over the epochs, the more the more workers there are.",
        trial=f"{_ARMS}; mean accuracy of the global model over the passes, by the first 2,000 test images. "
        "It comes out as Table 2 does.",
        command=_COMMAND,
        results=_RESULTS,
        tell=_over_epochs,
    ),
    Claim(
        at="Figure 5",
        claim="SHAT is robust to a worker that is 2, 10 or 100 times as slow (HE0, HE1, HE2).",
        trial=f"SHAT and ASP, n = 8, each at its best step of equal workers (HO), {_SEEDS}. It comes out if "
        "SHAT's accuracy is with 95% less than 0.01 below that of equal workers.",
        command=_COMMAND,
        results=_RESULTS,
        tell=_slow,
    ),
    Claim(
        at="Figure 6",
        claim="Memorywise sharding scales for both nets; layerwise sharding does for ResNet-50, whose layers "
        "are alike, and hardly for VGG-16.",
        trial="Four servers, n = 1 to 16, SHAT; a net of equal layers and one whose last two hold nine "
        "tenths; a push takes one server 0.15 and 0.9 of a gradient's time. It comes out if memorywise is "
        "1.5 times layerwise with heavy layers, and layerwise 0.9 of it with equal ones.",
        command=_COMMAND,
        results=_RESULTS,
        tell=_sharding,
    ),
    *over_sockets.SHAT,
]
