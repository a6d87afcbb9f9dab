"""What the page says of the engine under gradients from elsewhere: update rules, Engine, functions
from outside, PyTorch, sparse rows and factorisation machines on them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from bench import figures
from bench.context import Record, only
from bench.figures import Results
from bench.markdown import MISSING, count, number, paragraphs, table, thousands
from bench.turns import quiet_median

_BUFFERS = ("another buffer", "in place", "racy")
_RESIDENT = ("L2", "memory")
FACTORISATION_RULES = ("sgd", "adagrad")


def rate(record: Record, contender: str) -> float:
    """What a contender did per second."""
    return quiet_median(record["rate"][contender], record["cpu_share"][contender])


def ratio(record: Record, ours: str, theirs: str) -> float:
    """Ours over theirs, turn by turn."""
    return quiet_median(
        [a / b for a, b in zip(record["rate"][ours], record["rate"][theirs], strict=True)],
        record["cpu_share"][ours],
        record["cpu_share"][theirs],
    )


def _fastest(record: Record, library: str) -> str:
    return max(
        (name for name in record["rate"] if name.split(",")[0] == library),
        key=partial(rate, record),
    )


def pass_ratio(resident: str, results: Results) -> float | None:
    """The slowest rule's pass over the copy of as many bytes."""
    found = only(figures.part(results, "rules", "passes"), resident=resident)
    return min((record["ratio"] for record in found), default=None)


def rule_ratio(results: Results) -> float | None:
    """PyTorch's time for an update over ours, least of all rules and lengths."""
    return min((r["ratio"] for r in figures.part(results, "rules", "torch")), default=None)


def above_traffic(call: str, results: Results) -> float | None:
    """Microseconds that a call takes beyond its memory traffic, most of all."""
    found = figures.figures(results, "engine")
    return max((1e6 * record[f"{call}_above"] for record in found), default=None)


def gradient_ratio(threads: int, results: Results) -> float | None:
    """The Numba function's examples per second over the engine's own, least of the sizes."""
    found = only(figures.figures(results, "gradients"), threads=threads)
    return min((ratio(record, "Numba", "built-in") for record in found), default=None)


def optimizer_ratio(results: Results) -> float | None:
    """Steps per second of a loop over those with PyTorch's faster optimizer, least of all."""
    found = figures.part(results, "torch_backend", "optimizer")
    return min((min(record["ratio"].values()) for record in found), default=None)


def fit_ratio(results: Results) -> float | None:
    """``leashed.torch.fit`` over PyTorch's processes, each at its best, least of all."""
    found = figures.part(results, "torch_backend", "hogwild")
    return min(
        (ratio(r, _fastest(r, "leashed"), _fastest(r, "torch")) for r in found), default=None
    )


def sparse_ratio(peer: str, results: Results) -> float | None:
    """Rows per second over a peer's at its fastest setting."""
    found = figures.figures(results, "sparse")
    if not found or peer in found["missing"]:
        return None
    return ratio(found, "leashed", _fastest(found, peer))


def _loops(found: Record, rule: str) -> list[str]:
    """The classical loop's settings for a rule, on all threads."""
    wanted = f"classical loop, {rule}, -"
    return [name for name in found["rate"] if name.startswith(wanted)]


def factorisation_ratio(rule: str, results: Results) -> float | None:
    """Rows per second over the classical loop's, compiled to be fastest."""
    found = figures.figures(results, "factorisation")
    if not found:
        return None
    loop = max(_loops(found, rule), key=partial(rate, found))
    return ratio(found, f"leashed, {rule}", loop)


def factorisation_loss(results: Results) -> float | None:
    """The loss over the classical loop's, most of both rules."""
    found = figures.figures(results, "factorisation")
    if not found:
        return None
    return max(
        statistics.median(found["loss"][f"leashed, {rule}"])
        / min(statistics.median(found["loss"][loop]) for loop in _loops(found, rule))
        for rule in FACTORISATION_RULES
    )


def rules(results: Results) -> str:
    """The passes of the rules."""
    passes = figures.part(results, "rules", "passes")
    if not passes:
        return ""
    rows = []
    for name in dict.fromkeys(record["rule"] for record in passes):
        line = [name]
        for resident in _RESIDENT:
            found = only(passes, rule=name, resident=resident)
            line += [
                *(f"{only(found, to=to)[0]['ratio']:.2f}" for to in _BUFFERS),
                number(statistics.median(record["copy_gbytes"] for record in found)),
            ]
        rows.append(line)
    head = ["over the copy"]
    for resident in _RESIDENT:
        head += [*(f"{resident}, {to}" for to in _BUFFERS), "copy, GB/s"]
    beside = figures.part(results, "rules", "torch")
    lengths = list(dict.fromkeys(record["dimension"] for record in beside))
    torch_rows = [
        [
            f"{name} ({only(beside, rule=name)[0]['torch_kind']})",
            *(
                f"{number(1e6 * r['seconds'])} ({r['ratio']:.2f}×)"
                for d in lengths
                for r in only(beside, rule=name, dimension=d)
            ),
        ]
        for name in dict.fromkeys(record["rule"] for record in beside)
    ]
    return paragraphs(
        "One thread's pass over parameters, gradient and state, against the fastest copy of half as "
        "many bytes, which moves as many: to another buffer as under `Leashed`, in place as under "
        "`Locked`, racy as under `Hogwild`.",
        table(head, rows),
        "Beside PyTorch's fused CPU optimizers (the default one where there is none), from Python, in "
        "µs an update; in brackets, how many times as long PyTorch's takes:",
        table(["", *(f"d = {d:,}" for d in lengths)], torch_rows),
    )


def rules_profile(results: Results) -> str:
    """What the slowest passes do."""
    slow = sorted(
        only(figures.part(results, "rules", "passes"), resident="L2"), key=lambda r: r["ratio"]
    )[:3]
    told = "; ".join(
        f"{r['rule']}, {r['to']}: {number(r['gbytes'])} GB/s, "
        f"{number(1e9 * r['seconds'] / r['dimension'] * 16)} ns for 16 parameters"
        for r in slow
    )
    return (
        f"The slowest in L2: {told}. With √v in the step a vector takes about a dozen multiply-adds, "
        "a root's and an inverse's estimate with a Newton step each (instructions of division and "
        "root would take longer still): where AVX-512 runs at half rate, that is as long as the "
        "second-level cache needs for the bytes, or a little longer."
    )


def engine(results: Results) -> str:
    """Engine's calls."""
    records = figures.figures(results, "engine")
    if not records:
        return ""
    lengths = list(dict.fromkeys(record["dimension"] for record in records))
    rows = []
    for name in dict.fromkeys(record["discipline"] for record in records):
        for call in ("read", "push"):
            line = [f"{name}, {call}"]
            for d in lengths:
                record = only(records, discipline=name, dimension=d)[0]
                line.append(
                    f"{number(1e6 * record['seconds'][call])} "
                    f"({number(1e6 * record[f'{call}_above'])})"
                )
            rows.append(line)
        rows.append(
            [
                f"{name}, push that looks for NaN",
                *(
                    number(
                        1e6
                        * only(records, discipline=name, dimension=d)[0]["seconds"]["checked push"]
                    )
                    for d in lengths
                ),
            ]
        )
    return paragraphs(
        "From Python, one thread, plain SGD, µs a call; in brackets, what is beyond the memory "
        "traffic that the call stands for (a copy, or the rule's pass), measured in the same turns.",
        table(["", *(f"d = {d:,}" for d in lengths)], rows),
    )


def engine_profile(results: Results) -> str:
    """Where a call takes longer than its traffic."""
    records = figures.figures(results, "engine")
    worst = max(records, key=lambda r: max(r["read_above"], r["push_above"]))
    below = max(max(r["read_above"], r["push_above"]) for r in records if r["dimension"] <= 134_794)
    return (
        f"Most beyond its traffic: {worst['discipline']}, d = {worst['dimension']:,}, whose push "
        f"takes {number(1e6 * worst['seconds']['push'])} µs, {number(1e6 * worst['push_above'])} more, "
        f"and whose read {number(1e6 * worst['seconds']['read'])} µs, "
        f"{number(1e6 * worst['read_above'])} more: there the goal is a small part of the traffic, "
        "which leaves the second-level cache and differs from one buffer to the next. Up to "
        f"d = 134,794 the most is {number(1e6 * below)} µs."
    )


def gradients(results: Results) -> str:
    """Functions from outside."""
    records = figures.figures(results, "gradients")
    if not records:
        return ""
    names = list(records[0]["rate"])
    rows = [
        [
            f"{record['features']} features, {count(record['threads'], 'thread')}",
            *(thousands(rate(record, name)) for name in names),
            *(f"{ratio(record, name, 'built-in'):.2f}" for name in names[1:]),
        ]
        for record in records
    ]
    head = ["examples/s", *names, *(f"{name}, over built-in" for name in names[1:])]
    return paragraphs(
        "Logistic regression on dense rows, batches of 64, HOG_direct: the gradient of "
        "`examples/numba_logistic_regression.py`, which takes four rows at a time, and the same "
        "written row by row.",
        table(head, rows),
    )


def gradients_profile(_: Results) -> str:
    """What makes a function from outside slow."""
    return (
        "The engine calls the function with pointers to its own memory, once a batch: what it takes "
        "is its own loops, as the compiler made them."
    )


def torch(results: Results) -> str:
    """PyTorch on the engine's memory."""
    loops = figures.part(results, "torch_backend", "optimizer")
    if not loops:
        return ""
    kinds = list(loops[0]["ratio"])
    rows = [
        [
            f"{r['model']}, batch {r['batch_size']}, {r['rule']}",
            *(f"{value:,.0f}" for value in r["steps_per_second"].values()),
            *(f"{r['ratio'][kind]:.3f}" for kind in kinds),
        ]
        for r in loops
    ]
    head = ["steps/s", *loops[0]["steps_per_second"], *(f"over {kind}" for kind in kinds)]
    teams = figures.part(results, "torch_backend", "hogwild")
    names = list(teams[0]["rate"]) if teams else []
    team_rows = []
    for r in teams:
        top = _fastest(r, "leashed"), _fastest(r, "torch")
        team_rows.append(
            [
                f"{r['model']}, batch {r['batch_size']}, {r['workers']} workers",
                *(
                    f"**{rate(r, name):,.0f}**" if name in top else f"{rate(r, name):,.0f}"
                    for name in names
                ),
                f"{ratio(r, 'leashed', 'torch'):.2f}",
                f"{ratio(r, *top):.2f}",
            ]
        )
    return paragraphs(
        "The same training loop on one thread, with `leashed.torch.Optimizer` and with `torch.optim`'s "
        "optimizer, as it comes and fused:",
        table(head, rows),
        "`leashed.torch.fit` with threads and PyTorch's multiprocessing Hogwild with as many "
        "processes, steps per second of all; *traced*: the module is a graph of `torch.jit.trace`, "
        "which runs without the GIL. Bold: the fastest of each.",
        table(["steps/s", *names, "neither traced", "best over best"], team_rows),
    )


def torch_profile(results: Results) -> str:
    """What an optimizer's step is of a loop, and what threads share."""
    loops = figures.part(results, "torch_backend", "optimizer")
    worst = min(loops, key=lambda r: min(r["ratio"].values()))
    step = 1e6 / worst["steps_per_second"]["leashed"]
    lost = step * (1.0 - min(worst["ratio"].values()))
    return (
        f"Of the loops, {worst['model']} with {worst['rule']} at batch {worst['batch_size']} has the "
        f"least ratio: {number(lost)} of {number(step)} µs a step. Of the threads: they share the GIL. "
        "After every small operation a thread must have it again, and one that has to wait for it "
        "sleeps; processes do not meet. A traced module asks for it five times a step instead of a "
        "dozen."
    )


def _rate_and_loss(found: Record, name: str) -> list[str]:
    """A contender's cells: million rows per second, its processors, and the losses it came to."""
    losses = found["loss"][name]
    return [
        name,
        f"{rate(found, name) / 1e6:.2f}",
        f"{statistics.median(found['cpu_share'][name]):.2f}",
        f"{statistics.median(losses):.4f}",
        f"{min(losses):.4f} to {max(losses):.4f}",
    ]


def sparse(results: Results) -> str:
    """Sparse logistic regression."""
    found = figures.figures(results, "sparse")
    if not found:
        return ""
    rows = [
        [
            *_rate_and_loss(found, name),
            "" if name == "leashed" else f"{ratio(found, 'leashed', name):.2f}",
        ]
        for name in found["rate"]
    ]
    rows += [[name, "–", "–", "–", "–", reason] for name, reason in found["missing"].items()]
    return paragraphs(
        f"{found['rows']:,} rows of {found['features']} hashed categories, "
        f"{found['dimensions']:,} dimensions, Zipf ids; {count(found['threads'], 'thread')} where "
        f"nothing else is said (scikit-learn has one). Losses after 6 passes with the same "
        f"steps, of {found['lr']:g} for each row.",
        table(["", "M rows/s", "CPU share", "loss, median", "its runs", "leashed over it"], rows),
    )


def factorisation(results: Results) -> str:
    """Factorisation machines."""
    found = figures.figures(results, "factorisation")
    if not found:
        return ""
    rows = [_rate_and_loss(found, name) for name in found["rate"]]
    return paragraphs(
        f"`models.fm` with k = {found['k']} on rows as above; {count(found['threads'], 'thread')} "
        "where nothing else is said. The loop (`bench/hogwild_fm.cc`) is compiled with "
        "`-march=native`, at two levels. Losses after 6 passes with the same step for every example.",
        table(["", "M rows/s", "CPU share", "loss, median", "its runs"], rows),
    )


def estimator_rows(results: Results) -> list[dict[str, Any]]:
    """A record a problem, loss and setting: both contenders', and the ratio of their times."""
    records = figures.figures(results, "estimators") or []
    cells = dict.fromkeys((r["problem"], r["loss"], r["setting"]) for r in records)
    rows = []
    for problem, loss, setting in cells:
        ours, theirs = (
            only(records, problem=problem, loss=loss, setting=setting, contender=contender)[0]
            for contender in ("leashed", "scikit-learn")
        )
        times = [statistics.median(r["seconds"]) for r in (ours, theirs)]
        rows.append(
            {
                "problem": problem,
                "loss": loss,
                "setting": setting,
                "leashed": ours,
                "scikit-learn": theirs,
                "ratio": times[0] / times[1],
            }
        )
    return rows


def estimators(results: Results) -> str:
    """Our estimators against scikit-learn's, on small data."""
    rows = estimator_rows(results)
    if not rows:
        return ""

    def both(row: dict[str, Any], name: str, digits: int) -> str:
        values = [row[contender].get(name) for contender in ("leashed", "scikit-learn")]
        return " / ".join(MISSING if v is None else f"{v:.{digits}f}" for v in values)

    lines = [
        [
            row["problem"],
            row["loss"],
            "defaults" if row["setting"] == "defaults" else "20 epochs",
            f"{row['ratio']:.2f}",
            both(row, "epochs", 0),
            both(row, "objective", 3),
            both(row, "accuracy", 3),
            both(row, "log_loss", 3),
        ]
        for row in rows
    ]
    # Records of before the default was another do not tell it.
    steps_of_1 = [r for r in rows if "a row" in r["problem"] and "lr" not in r["leashed"]]
    note = " leashed's fits on sparse rows (20 a row) had steps of 1, which was the default then."
    return paragraphs(
        "`leashed.sklearn.SGDClassifier` with one thread and scikit-learn's, on 1,000 rows and on the "
        "digits (1,797 rows of 64, five folds; scaled to unit variance where nothing else is said): "
        "the ratio of the times of their fits, and, leashed's first, epochs, what both minimise, "
        "penalty included, where the fits end, and what they reach on examples held out."
        + note
        * bool(steps_of_1),
        table(
            ["", "loss", "", "time, ratio", "epochs", "objective", "accuracy", "log-loss"], lines
        ),
    )


def sparse_profile(results: Results) -> str:
    """How both scale."""
    found = figures.figures(results, "sparse")
    ours, theirs = (
        ratio(found, name, f"{name}, 1 thread") for name in ("leashed", "classical loop")
    )
    alone = ratio(found, "leashed, 1 thread", "classical loop, 1 thread")
    return (
        f"One thread is {alone:.2f} times as fast as the classical loop's. All threads are "
        f"{ours:.2f} times as fast as one here, the classical loop's {theirs:.2f} times."
    )


def factorisation_profile(results: Results) -> str:
    """How both scale."""
    found = figures.figures(results, "factorisation")
    lines = []
    for rule in FACTORISATION_RULES:
        loop = max(_loops(found, rule), key=partial(rate, found))
        alone = loop.replace(", -", ", 1 thread, -")
        lines.append(
            f"{rule}: one thread is {ratio(found, f'leashed, {rule}, 1 thread', alone):.2f} times as "
            "fast as the classical loop's; all threads are "
            f"{ratio(found, f'leashed, {rule}', f'leashed, {rule}, 1 thread'):.2f} times as fast as "
            f"one here, the classical loop's {ratio(found, loop, alone):.2f} times."
        )
    return " ".join(lines)


SECTIONS: dict[str, Callable[[Results], str]] = {
    "Update rules": rules,
    "Engine": engine,
    "Gradients from outside": gradients,
    "PyTorch on the engine": torch,
    "Sparse rows": sparse,
    "Factorisation machines": factorisation,
    "Estimators": estimators,
}
PROFILES: dict[str, tuple[str, Callable[[Results], str]]] = {
    "rules": ("Update rules", rules_profile),
    "engine": ("Engine", engine_profile),
    "gradients": ("Gradients from outside", gradients_profile),
    "torch": ("PyTorch on the engine", torch_profile),
    "sparse": ("Sparse rows", sparse_profile),
    "factorisation": ("Factorisation machines", factorisation_profile),
}
