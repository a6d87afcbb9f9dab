"""The figures and tables judged by their numbers, found from the results by NumPy alone.

Every check is also made on figures into which an error was planted, and has to fail there.
"""

import math
import re

import drawn
import numpy as np
import pytest
from factories import make_run

from leashed.report import figures, summary
from leashed.report.plots import boxes as boxes_module
from leashed.studies import comparison, shown
from leashed.studies.comparison import Cell, SectionIV
from leashed.studies.runs import Run
from leashed.training.histogram import Histogram, TimeDistribution

ALGORITHMS = ["SEQ", "SYNC", "ASYNC", "HOG", "LSH_ps∞", "LSH_ps0"]
ROWS = {
    "converged": "Converged",
    "unfinished": "Unfinished",
    "diverged": "Diverge",
    "crashed": "Crash",
    "interrupted": "Interrupted",
}
EPSILONS = (0.5, 0.25, 0.1)
BEST = 0.05


def make(algorithm, m, model, lr, repeat):
    """A run as another seed of its setting would give it; some fail, each in its own way."""
    code = ALGORITHMS.index(algorithm)
    rng = np.random.default_rng([repeat, m, code, round(1000 * lr), len(model)])
    count, updates, dropped = 10, int(rng.integers(50, 90)), int(rng.integers(5, 20))
    changes = {
        "rate": float(rng.lognormal(-2.0, 1.0)) * BEST / lr,
        "memory_bytes": rng.integers(100, 160, count) * 2**20,
        "live_vectors": rng.integers(1, 3 * m + 1, count),
        "elapsed": 2.0,
    }
    if repeat == 6 and m == 8:
        changes |= {"loss": np.linspace(2.0, 1.5, count), "reason": "seconds"}
    elif repeat == 7 and m == 8:
        changes |= {"loss": np.linspace(2.0, 1.99, count), "reason": "seconds"}
    elif repeat == 8 and m == 8:
        loss = np.array([2.0, 2.5, 30.0, *[math.nan] * (count - 3)])
        changes |= {"loss": loss, "outcome": "crashed"}
    elif repeat == 9 and m == 8:
        changes |= {"loss": np.linspace(2.0, 1.2, count), "reason": "interrupted"}
    if lr != BEST and repeat < 5:
        changes |= {"loss": np.full(count, 2.0), "reason": "divergence"}
    leashed = algorithm.startswith("LSH")
    run = make_run(
        algorithm,
        m,
        model=model,
        lr=lr,
        fractions=EPSILONS,
        evaluations=count,
        seconds=float(rng.uniform(0.5, 1.5)),
        updates=updates,
        dropped=dropped if algorithm == "LSH_ps0" else 0,
        staleness=0.0 if algorithm in {"SEQ", "SYNC"} else m - 1.0,
        # LSH_ps0 makes one attempt each; LSH_ps∞ a second one now and then.
        tries=Histogram(
            {"LSH_ps0": [updates, dropped], "LSH_ps∞": [updates - 5, 5]}.get(algorithm, [updates])
        ),
        seed=int(rng.integers(1000)),
        **({"accuracy": np.zeros(count)} | changes),
    )
    if leashed:
        object.__setattr__(run.result, "worker_updates", rng.integers(1, 50, m))
    return run


@pytest.fixture(scope="module")
def runs():
    return [
        make(algorithm, m, model, lr, repeat)
        for model in ("mlp", "cnn")
        for lr in (0.01, BEST)
        for algorithm in ALGORITHMS
        for m in ((1,) if algorithm == "SEQ" else (2, 8))
        for repeat in range(10)
    ]


# What should be there, from the results' series alone.


def of(runs, model="mlp", lr=BEST, m=None):
    """The runs of a setting: those with m threads and SEQ, or all; without a step, of all steps."""
    chosen = [run for run in runs if run.model == model and lr in {None, run.lr}]
    return [run for run in chosen if m is None or run.threads == m or run.algorithm == "SEQ"]


def grouped(runs, group=lambda run: str(run.threads)):
    found = {}
    for run in runs:
        found.setdefault((group(run), run.algorithm), []).append(run)
    return found


def reached(run, fraction):
    """The number of the evaluation that reached it."""
    loss = run.result.loss
    return next((k for k in range(len(loss)) if loss[k] <= fraction * loss[0]), None)


def ended(run, fraction):
    loss = run.result.loss
    if reached(run, fraction) is not None:
        return "converged"
    if not np.isfinite(loss).all():
        return "crashed"
    if run.result.reason == "interrupted":
        return "interrupted"
    return "unfinished" if loss[-1] / loss[0] < 0.95 else "diverged"


def values_at(runs, fraction, series):
    """The entries of a series at which the runs reached the precision."""
    found = ((run, reached(run, fraction)) for run in runs)
    return np.array([getattr(run.result, series)[k] for run, k in found if k is not None], float)


def same(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def check_box(box, values):
    q1, median, q3 = np.percentile(values, [25, 50, 75])
    reach = 1.5 * (q3 - q1)
    inside = values[(values >= q1 - reach) & (values <= q3 + reach)]
    same((box.first, box.median, box.third), (q1, median, q3))
    same((box.low, box.high), (inside.min(), inside.max()))
    same(box.fliers, sorted(set(values.tolist()) - set(inside.tolist())))
    if values.size <= 5:
        same(box.points, sorted(values.tolist()))


def check_boxes(axes, expected):
    """Every box, and no other one; `expected` has the values by (group, algorithm)."""
    found = drawn.boxes(axes)
    wanted = {key: np.asarray(values, float) for key, values in expected.items() if len(values)}
    assert found.keys() == wanted.keys()
    for key, values in wanted.items():
        check_box(found[key], values)
    low, high = axes.get_ylim()
    assert all(low <= v <= high for values in wanted.values() for v in values)


def check_outcomes(strip, axes, algorithms, expected):
    """`expected` has by (group, algorithm) the runs and the precision."""
    found = drawn.counts(strip, axes, algorithms)
    for (group, algorithm), (here, fraction) in expected.items():
        endings = [ended(run, fraction) for run in here]
        for ending, row in ROWS.items():
            assert found.get((row, group, algorithm), 0) == endings.count(ending)
    assert sum(found.values()) == sum(len(here) for here, _ in expected.values())


def check_title(text, *parts):
    assert all(part in text for part in (*parts, "batch 512"))


# Figures


def check_time_to_epsilon(runs):
    figure = figures.time_to_epsilon(runs)
    strip, axes = figure.axes
    groups = grouped(of(runs))
    check_title(strip.get_title(), "50%", "mlp", "η = 0.05")
    check_boxes(axes, {k: values_at(here, 0.5, "seconds") for k, here in groups.items()})
    check_outcomes(
        strip, axes, drawn.legend(figure), {k: (here, 0.5) for k, here in groups.items()}
    )


def check_computational_efficiency(runs):
    (axes,) = figures.computational_efficiency(runs).axes
    check_title(axes.get_title(), "mlp", "η = 0.05")
    per_update = {
        key: [1e3 * run.result.elapsed / run.result.total_updates for run in here]
        for key, here in grouped(of(runs)).items()
    }
    check_boxes(axes, per_update)


def check_precisions(strip, axes, algorithms, here):
    by_epsilon = {
        (f"{100 * fraction:g}%", algorithm): (together, fraction)
        for fraction in EPSILONS
        for (_, algorithm), together in grouped(here).items()
    }
    times = {key: values_at(*value, "seconds") for key, value in by_epsilon.items()}
    check_boxes(axes, times)
    check_outcomes(strip, axes, algorithms, by_epsilon)


def check_high_precision(runs):
    figure = figures.high_precision(runs)
    assert len(figure.axes) == 4
    for m, strip, axes in zip((2, 8), figure.axes[::2], figure.axes[1::2], strict=True):
        check_title(strip.get_title(), f"m = {m}", "mlp", "η = 0.05")
        check_precisions(strip, axes, drawn.legend(figure), of(runs, m=m))


def check_losses(axes, here):
    found = drawn.series(axes)
    assert found.keys() == {run.algorithm for run in here}
    for algorithm, lines in found.items():
        wanted = [
            np.array([run.result.seconds, run.result.loss]).T
            for run in here
            if run.algorithm == algorithm
        ]
        np.testing.assert_equal(lines, wanted)
    crosses = sorted(
        (line.get_xdata()[-1], line.get_ydata()[-1])
        for line in axes.lines
        if line.get_marker() == "X"
    )
    crashed = [run.result for run in here if not np.isfinite(run.result.loss).all()]
    same(crosses, sorted((r.seconds[-1], r.loss[np.isfinite(r.loss)][-1]) for r in crashed))
    initial = np.median([run.result.loss[0] for run in here])
    marks = {line.get_ydata()[0] for line in axes.lines if line.get_color() == "#999999"}
    same(sorted(marks), sorted(fraction * initial for fraction in EPSILONS))
    assert {text.get_text() for text in axes.texts} == {"50%", "25%", "10%"}
    losses = np.concatenate([run.result.loss for run in here])
    assert axes.get_ylim()[0] <= np.nanmin(losses)
    assert axes.get_ylim()[1] >= np.nanmax(losses)
    assert axes.get_xlim()[1] >= max(run.result.seconds[-1] for run in here)
    assert axes.get_xlim()[0] == 0.0


def check_loss_over_time(runs):
    figure = figures.loss_over_time(runs)
    for m, axes in zip((2, 8), figure.axes, strict=True):
        check_title(axes.get_title(), f"m = {m}", "η = 0.05")
        check_losses(axes, of(runs, m=m))


def check_histograms(axes, here):
    found = drawn.series(axes)
    assert found.keys() == {run.algorithm for run in here}
    for algorithm, (line,) in found.items():
        total = np.zeros(line.shape[0])
        for run in here:
            if run.algorithm == algorithm:
                total[: run.result.staleness.counts.size] += run.result.staleness.counts
        np.testing.assert_allclose(line[:, 0], np.arange(line.shape[0]))
        np.testing.assert_allclose(line[:, 1], 100.0 * total / total.sum())


def check_staleness(runs):
    figure = figures.staleness(runs)
    assert len(figure.axes) == 6
    for k, m in enumerate((2, 8)):
        distribution, over_time, rates = figure.axes[3 * k : 3 * k + 3]
        here = [
            run
            for run in of(runs)
            if run.threads == m and run.algorithm in {"ASYNC", "HOG", "LSH_ps∞", "LSH_ps0"}
        ]
        check_title(distribution.get_title(), f"m = {m}", "η = 0.05")
        check_histograms(distribution, here)
        for algorithm, lines in drawn.series(over_time).items():
            results = [run.result for run in here if run.algorithm == algorithm]
            for line, result in zip(lines, results, strict=True):
                rows = result.staleness_over_time[1:]
                means = rows @ np.arange(rows.shape[1]) / rows.sum(axis=1)
                np.testing.assert_allclose(line, np.array([result.seconds[1:], means]).T)
        labels = [label.get_text() for label in rates.get_xticklabels()]
        points = [line for line in rates.lines if len(line.get_ydata())]
        shown_rates = {}
        for line in points:
            key = labels[round(np.mean(line.get_xdata()))]
            assert drawn.algorithm(line.get_color()) == key
            shown_rates.setdefault(key, []).append(sorted(line.get_ydata()))
        assert shown_rates.keys() == {"LSH_ps∞", "LSH_ps0"}
        for algorithm, found in shown_rates.items():
            wanted = [run.result for run in here if run.algorithm == algorithm]
            same(np.array(found), np.array([np.sort(r.worker_updates) / 2.0 for r in wanted]))


def check_cnn(runs):
    figure = figures.cnn(runs)
    algorithms = [a for a in drawn.legend(figure) if a != "crash"]
    assert len(figure.axes) == 8
    for k, m in enumerate((2, 8)):
        strip, axes, losses, distribution = figure.axes[4 * k : 4 * k + 4]
        here = of(runs, model="cnn", m=m)
        for title in (strip, losses, distribution):
            check_title(title.get_title(), "cnn", f"m = {m}", "η = 0.05")
        check_precisions(strip, axes, algorithms, here)
        check_losses(losses, here)
        check_histograms(distribution, [run for run in here if run.result.staleness.max()])


def check_step_size(runs):
    for threads, m in ((None, 8), (2, 2)):
        figure = figures.step_size(runs, threads)
        strip, axes = figure.axes
        check_title(strip.get_title(), "50%", "mlp", f"m = {m}", "η = 0.05")
        groups = grouped(of(runs, lr=None, m=m), lambda run: f"{run.lr:g}")
        check_boxes(axes, {k: values_at(here, 0.5, "seconds") for k, here in groups.items()})
        expected = {k: (here, 0.5) for k, here in groups.items()}
        check_outcomes(strip, axes, drawn.legend(figure), expected)


def check_statistical_efficiency(runs):
    figure = figures.statistical_efficiency(runs)
    strip, axes = figure.axes
    check_title(strip.get_title(), "50%", "mlp", "η = 0.05")
    groups = grouped(of(runs))
    check_boxes(axes, {k: values_at(here, 0.5, "updates") for k, here in groups.items()})
    check_outcomes(
        strip, axes, drawn.legend(figure), {k: (here, 0.5) for k, here in groups.items()}
    )


def quantiles(distributions):
    """5%, 25%, 50%, 75% and 95% of durations counted in bins, straight in the logarithm."""
    counts = {}
    for distribution in distributions:
        for low, high, n in zip(
            distribution.edges, distribution.edges[1:], distribution.counts, strict=False
        ):
            counts[low, high] = counts.get((low, high), 0) + n
    bins = [(low, high, n) for (low, high), n in sorted(counts.items()) if n]
    total, found = sum(n for _, _, n in bins), []
    for q in (0.05, 0.25, 0.5, 0.75, 0.95):
        rank = q * total
        for low, high, n in bins:
            if rank <= n:
                found.append(math.exp(np.interp(rank / n, [0, 1], np.log([low, high]))))
                break
            rank -= n
    return found


def check_gradient_and_update_times(runs):
    panels = figures.gradient_and_update_times(runs).axes
    for k, model in enumerate(("mlp", "cnn")):
        groups = grouped(of(runs, model=model))
        gradient, update = panels[2 * k : 2 * k + 2]
        check_title(gradient.get_title(), "T_c", model, "η = 0.05")
        check_title(update.get_title(), "T_u of one attempt", model, "η = 0.05")
        check_durations(
            gradient,
            {key: [run.result.gradient_seconds for run in here] for key, here in groups.items()},
            {
                key: sum(run.result.gradient_seconds.total for run in here)
                / sum(run.result.gradients for run in here)
                for key, here in groups.items()
            },
        )
        check_durations(
            update,
            {key: [run.result.attempt_seconds for run in here] for key, here in groups.items()},
            {
                key: sum(run.result.attempt_seconds.total for run in here)
                / sum(run.result.attempt_seconds.counts.sum() for run in here)
                for key, here in groups.items()
            },
        )


def check_durations(axes, distributions, means):
    found = drawn.boxes(axes)
    assert found.keys() == distributions.keys()
    for key, together in distributions.items():
        box = found[key]
        same([box.low, box.first, box.median, box.third, box.high], quantiles(together))
    shown_means = drawn.diamonds(axes)
    assert shown_means.keys() == means.keys()
    for key, mean in means.items():
        same(shown_means[key], mean)


def while_working(runs, series):
    return np.concatenate([getattr(run.result, series)[1:-1] for run in runs]).astype(float)


def mean_saving(groups, series):
    """The mean over Leashed and m of 1 - Leashed's mean over the mean of ASYNC's and HOG's."""
    mean = {key: while_working(here, series).mean() for key, here in groups.items()}
    found = [
        1.0 - own / ((mean[m, "ASYNC"] + mean[m, "HOG"]) / 2.0)
        for (m, algorithm), own in mean.items()
        if algorithm.startswith("LSH")
    ]
    return sum(found) / len(found)


def check_memory(runs):
    panels = figures.memory(runs).axes
    for k, model in enumerate(("mlp", "cnn")):
        groups = grouped(of(runs, model=model))
        resident, vectors, over_time = panels[3 * k : 3 * k + 3]
        for axes, series, unit in (
            (resident, "memory_bytes", 2.0**20),
            (vectors, "live_vectors", 1.0),
        ):
            values = {key: while_working(here, series) / unit for key, here in groups.items()}
            check_boxes(axes, values)
            for key, mean in drawn.diamonds(axes).items():
                same(mean, values[key].mean())
            title = axes.get_title()
            check_title(title, model, "η = 0.05")
            (percentage,) = re.findall(r"Leashed (\S+)%", title)
            same(float(percentage), round(-100.0 * mean_saving(groups, series), 1))
        bounds = [ln.get_ydata()[0] for ln in vectors.lines if ln.get_linestyle() == "--"]
        assert bounds == [3, 5, 17]
        assert vectors.get_ylim()[1] >= 17
        check_title(over_time.get_title(), model, "m = 8", "η = 0.05")
        for algorithm, lines in drawn.series(over_time).items():
            here = groups["1" if algorithm == "SEQ" else "8", algorithm]
            for line, run in zip(lines, here, strict=True):
                result = run.result
                np.testing.assert_allclose(
                    line, np.array([result.seconds, result.memory_bytes / 2.0**20]).T
                )


def section_iv(runs):
    """T_c, T_u, γ, n measured, n*, n*_γ of runs taken together."""
    results = [run.result for run in runs]
    published = sum(r.total_updates for r in results)
    in_loop = sum(r.update_seconds.total for r in results)
    T_c = sum(r.gradient_seconds.total for r in results) / sum(r.gradients for r in results)
    T_u, gamma = in_loop / published, sum(r.dropped for r in results) / published
    m = runs[0].threads
    measured = in_loop / sum(r.elapsed for r in results)
    return T_c, T_u, gamma, measured, m / (T_c / T_u + 1), m / (T_c / T_u * (1 + gamma) + 1)


def check_loop_occupancy(runs):
    panels = figures.loop_occupancy(runs).axes
    for m, axes in zip((2, 8), panels, strict=True):
        check_title(axes.get_title(), "mlp", f"m = {m}", "η = 0.05")
        lines = drawn.series(axes)
        assert lines.keys() == {"LSH_ps∞", "LSH_ps0"}
        dashed = {
            drawn.algorithm(line.get_color()): line.get_ydata()[0]
            for line in axes.lines
            if line.get_linestyle() == "--"
        }
        shaded = {
            drawn.algorithm(patch.get_facecolor()): (patch.get_y(), patch.get_height())
            for patch in axes.patches
        }
        for algorithm, (line,) in lines.items():
            here = grouped(of(runs))[str(m), algorithm]
            T_c, T_u, gamma, measured, _, limit = section_iv(here)
            t = 1e-3 * line[:, 0]
            rate = 1 / T_c + (1 + gamma) / T_u
            np.testing.assert_allclose(line[:, 1], limit * (1 - np.exp(-rate * t)), atol=1e-12)
            same(dashed[algorithm], measured)
            each = [section_iv([run])[3] for run in here]
            same(shaded[algorithm], (min(each), max(each) - min(each)))


# Tables: what is printed has three digits.


def printed(text):
    """The numbers in a cell of a table, in seconds and without thousands' commas."""
    units = {"ms": 1e-3, "µs": 1e-6}
    unit = next((size for name, size in units.items() if text.endswith(name)), 1.0)
    return [unit * float(n.replace(",", "")) for n in re.findall(r"-?[\d.,]+(?:e-?\d+)?", text)]


def roughly(text, *values):
    assert printed(text) == pytest.approx(values, rel=6e-3, abs=1e-9)


def rows_of(table):
    return {(row[1], row[0]): dict(zip(table.header, row, strict=True)) for row in table.rows}


def spread(values):
    return (np.median(values), min(values), max(values))


def check_comparison_table(runs):
    title, group = summary.by_setting(of(runs))[0]
    assert "mlp" in title
    assert "η = 0.05, batch 512" in title
    rows, groups = rows_of(summary.comparison(group)), grouped(of(runs))
    assert rows.keys() == groups.keys()
    for key, here in groups.items():
        row, results = rows[key], [run.result for run in here]
        for fraction in EPSILONS:
            times = values_at(here, fraction, "seconds")
            cell, _, count = row[f"s to {100 * fraction:g}%"].partition(") ")
            if times.size > 1:
                roughly(cell.replace("–", " "), *spread(times))
            if len(times) < len(here):
                assert count == f"{len(times)}/{len(here)}"
        roughly(row["examples/s"], np.median([r.examples / r.elapsed for r in results]))
        T_c = sum(r.gradient_seconds.total for r in results) / sum(r.gradients for r in results)
        roughly(row["T_c"], T_c)
        assert int(row["vectors"]) == max(r.peak_vectors for r in results)
        staleness = sum(sum(k * n for k, n in enumerate(r.staleness.counts)) for r in results)
        roughly(
            row["τ"].split(" = ")[0], staleness / sum(r.staleness.counts.sum() for r in results)
        )


def check_section_iv_table(runs):
    ((_, group),) = summary.by_setting(of(runs))
    rows = rows_of(summary.section_iv(group))
    leashed = {key: here for key, here in grouped(of(runs)).items() if key[1].startswith("LSH")}
    assert rows.keys() == leashed.keys()
    for key, here in leashed.items():
        row = rows[key]
        T_c, T_u, gamma, _, _, _ = section_iv(here)
        roughly(row["T_c"], T_c)
        roughly(row["T_u"], T_u)
        roughly(row["γ"], gamma)
        roughly(row["settles in"], 1 / (1 / T_c + (1 + gamma) / T_u))
        each = np.array([section_iv([run]) for run in here])
        for column, name in ((3, "n measured"), (4, "n*"), (5, "n*_γ")):
            roughly(row[name].replace("–", " "), *spread(each[:, column]))
        schedule = [
            run.result.staleness_schedule.counts
            @ np.arange(run.result.staleness_schedule.counts.size)
            / run.result.staleness_schedule.counts.sum()
            for run in here
        ]
        roughly(row["τˢ measured"].replace("–", " "), *spread(schedule))


def check_memory_table(runs):
    tables = summary.memory(runs)
    for model, (title, table) in zip(("mlp", "cnn"), tables, strict=True):
        check_title(title, model, "η = 0.05")
        rows, groups = rows_of(table), grouped(of(runs, model=model))
        mean = {
            series: {k: while_working(here, series).mean() for k, here in groups.items()}
            for series in ("live_vectors", "memory_bytes")
        }
        for (m, algorithm), row in rows.items():
            vectors, memory = (mean[s][m, algorithm] for s in ("live_vectors", "memory_bytes"))
            base_vectors, base_memory = (
                (mean[s][m, "ASYNC"] + mean[s][m, "HOG"]) / 2 for s in mean
            )
            roughly(row["vectors"], vectors)
            roughly(row["resident"], memory / 2**20)
            bound = 2 * int(m) + 1
            assert int(row["2m + 1"]) == bound
            for name, change in (
                ("against 2m + 1", vectors / bound - 1),
                ("against ASYNC, HOG", vectors / base_vectors - 1),
                ("resident against ASYNC, HOG", memory / base_memory - 1),
            ):
                assert float(row[name].rstrip("%")) == pytest.approx(100 * change, abs=0.051)
        assert len(rows) == 4
    (line,) = summary.paper_saving(runs)
    groups = grouped(of(runs, model="cnn"))
    found = [float(n) for n in re.findall(r"([+-][\d.]+)%", line)]
    wanted = [-100 * mean_saving(groups, s) for s in ("live_vectors", "memory_bytes")]
    assert found == pytest.approx(wanted, abs=0.051)
    assert "it does not come out" in line


CHECKS = [
    check_time_to_epsilon,
    check_computational_efficiency,
    check_high_precision,
    check_loss_over_time,
    check_staleness,
    check_cnn,
    check_step_size,
    check_statistical_efficiency,
    check_gradient_and_update_times,
    check_memory,
    check_loop_occupancy,
    check_comparison_table,
    check_section_iv_table,
    check_memory_table,
]


@pytest.mark.parametrize("check", CHECKS)
def test_what_is_shown_is_what_was_measured(check, runs):
    check(runs)


def longer(original):
    """1% more than what a function returns."""
    return lambda *args, **kwargs: 1.01 * original(*args, **kwargs)


def longer_property(original):
    return property(longer(original.fget))


def first_only(original):
    """Only the first of the runs that a function returns, and SEQ's."""
    return lambda *args: original(*args)[:-1]


def forgetful(original):
    """Takes a crash for a divergence."""
    return lambda run, f: "diverged" if original(run, f) == "crashed" else original(run, f)


def optimistic(original):
    """Takes an unfinished run for a divergence, as was done once."""
    return lambda run, f: "diverged" if original(run, f) == "unfinished" else original(run, f)


def any_step(_):
    """The first step size instead of the best."""
    return lambda runs: [run for run in runs if run.lr == min(r.lr for r in runs)]


def cut(original):
    """Ends the time axis before the last run does."""
    return lambda axes, ends: (original(axes, ends), axes.set_xlim(0.0, 0.5 * max(ends)))


def mislabelled(original):
    """Takes the neighbour's place."""
    return lambda self, group, algorithm: original(self, group, algorithm) + self.step


def over_attempts(_):
    """T_u of one attempt, where it should be over gradients published."""
    return property(lambda cell: cell.attempt_seconds.mean())


def over_stays(_):
    """The time of all attempts, where it should be that of one."""
    return property(lambda cell: cell.update_seconds)


def beside_bound(_):
    """Vectors beside 2m + 1, where they should be beside those of ASYNC and HOG."""
    return property(lambda saving: saving.of_bound)


def nothing(_):
    """Draws nothing."""
    return lambda *_: None


def constant(_):
    """A tenth, whatever was measured."""
    return lambda *_: (0.1, 0.1, 0.1)


PLANTED = [
    (check_time_to_epsilon, Cell, "seconds_to", longer),
    (check_time_to_epsilon, Run, "outcome", forgetful),
    (check_time_to_epsilon, Run, "outcome", optimistic),
    (check_time_to_epsilon, boxes_module.Boxes, "position", mislabelled),
    (check_time_to_epsilon, shown, "yardstick", any_step),
    (check_computational_efficiency, Cell, "seconds_per_update", longer_property),
    (check_high_precision, Cell, "seconds_to", longer),
    (check_high_precision, Run, "outcome", optimistic),
    (check_high_precision, figures, "yardstick", any_step),
    (check_loss_over_time, figures, "_at", first_only),
    (check_loss_over_time, figures, "time_axis", cut),
    (check_loss_over_time, figures, "fractions", first_only),
    (check_loss_over_time, figures, "_mark_crash", nothing),
    (check_staleness, figures, "shares", longer),
    (check_staleness, Histogram, "mean", longer),
    (check_staleness, figures, "thread_rates", longer),
    (check_cnn, Cell, "seconds_to", longer),
    (check_cnn, figures, "_at", first_only),
    (check_cnn, figures, "shares", longer),
    (check_step_size, Cell, "seconds_to", longer),
    (check_step_size, Run, "outcome", forgetful),
    (check_statistical_efficiency, Cell, "updates_to", longer),
    (check_gradient_and_update_times, TimeDistribution, "quantile", longer),
    (check_gradient_and_update_times, TimeDistribution, "mean", longer),
    (check_gradient_and_update_times, Cell, "attempt_seconds", over_stays),
    (check_memory, Cell, "resident_bytes", longer_property),
    (check_memory, Cell, "vectors_in_use", longer_property),
    (check_memory, figures, "mean_savings", constant),
    (check_loop_occupancy, Cell, "in_loop", longer_property),
    (check_loop_occupancy, SectionIV, "occupancy", longer),
    (check_loop_occupancy, Cell, "published_seconds", over_attempts),
    (check_comparison_table, Cell, "seconds_to", longer),
    (check_comparison_table, Cell, "eps", longer_property),
    (check_comparison_table, Histogram, "mean", longer),
    (check_section_iv_table, Cell, "published_seconds", over_attempts),
    (check_section_iv_table, Cell, "in_loop", longer_property),
    (check_section_iv_table, SectionIV, "fixed_point", longer_property),
    (check_memory_table, Cell, "vectors_in_use", longer_property),
    (check_memory_table, comparison.Saving, "of_vectors", beside_bound),
]


@pytest.mark.parametrize(
    ("check", "where", "name", "error"),
    PLANTED,
    ids=[f"{check.__name__[6:]}-{name}-{error.__name__}" for check, _, name, error in PLANTED],
)
def test_an_error_that_is_planted_is_found(check, where, name, error, runs, monkeypatch):
    monkeypatch.setattr(where, name, error(getattr(where, name)))
    with pytest.raises(AssertionError):
        check(runs)


def test_every_check_has_an_error_planted():
    assert {check for check, *_ in PLANTED} == set(CHECKS)
