import contextlib
import dataclasses
import io
import itertools

import numpy as np
import pytest
from factories import make_comparison, make_run

from leashed.report import figures
from leashed.report.plots.boxes import Box, Boxes
from leashed.training.plots import style

ALL = [
    figures.time_to_epsilon,
    figures.computational_efficiency,
    figures.high_precision,
    figures.loss_over_time,
    figures.staleness,
    figures.cnn,
    figures.step_size,
    figures.statistical_efficiency,
    figures.gradient_and_update_times,
    figures.memory,
    figures.loop_occupancy,
]


def drawn(figure):
    with style.style():
        figure.savefig(io.BytesIO(), format="svg")
    return figure


@pytest.fixture(scope="module")
def complete():
    return make_comparison(threads=(1, 8), models=("mlp", "cnn"), steps=(0.01, 0.05), repeats=2)


@pytest.mark.parametrize("draw", ALL)
def test_every_figure_is_drawn_from_a_complete_comparison(draw, complete):
    assert drawn(draw(complete)).axes


@pytest.mark.parametrize("draw", ALL)
def test_axes_that_hold_data_are_labelled(draw, complete):
    for axes in draw(complete).axes:
        if axes.yaxis.get_ticklabels()[0].get_text() != "Converged":  # the strip of counts
            assert axes.get_xlabel()
            assert axes.get_ylabel()


@pytest.mark.parametrize("draw", ALL)
@pytest.mark.parametrize(
    "run", [make_run(), make_run("SEQ", 1, fractions=(), outcome="stopped")], ids=["ε", "no ε"]
)
def test_a_single_run_is_drawn_or_the_reason_given(draw, run):
    with contextlib.suppress(figures.NoDataError):
        drawn(draw([run]))


@pytest.mark.parametrize("draw", ALL)
def test_runs_that_all_failed_are_drawn(draw):
    runs = [
        make_run(algorithm, 8, lr=lr, model=model, outcome=outcome, updates=updates)
        for algorithm in ("HOG", "LSH_ps0")
        for lr in (0.05, 0.09)
        for model in ("mlp", "cnn")
        for outcome, updates in (("diverged", 10), ("crashed", 0))
    ]
    drawn(draw(runs))


@pytest.mark.parametrize("draw", ALL)
def test_no_runs_are_no_figure(draw):
    with pytest.raises(figures.NoDataError):
        draw([])


@pytest.mark.parametrize(
    ("draw", "reason"),
    [
        (figures.cnn, "CNN"),
        (figures.step_size, "two step sizes"),
        (figures.loop_occupancy, "retry loop"),
        (figures.staleness, "more than one thread"),
    ],
)
def test_what_is_missing_is_said(draw, reason):
    with pytest.raises(figures.NoDataError, match=reason):
        draw([make_run("HOG", 1)])


def test_without_a_precision_there_is_no_time_to_it():
    runs = [make_run(fractions=(), outcome="stopped")]
    for draw in (figures.time_to_epsilon, figures.high_precision, figures.statistical_efficiency):
        with pytest.raises(figures.NoDataError, match="precision"):
            draw(runs)


def test_the_main_model_is_the_mlp_where_there_is_one():
    assert figures.main_model([make_run(model="cnn"), make_run(model="mlp")]) == "mlp"
    assert figures.main_model([make_run(model="lenet"), make_run(model="cnn")]) == "cnn"


def test_boxes_of_a_group_stand_side_by_side():
    boxes = Boxes(["1", "2"], ["A", "B"], {("1", "A"): Box(np.ones(3))})
    assert boxes.position("1", "A") < boxes.position("1", "B") < boxes.position("2", "A")
    assert boxes.position("2", "A") - boxes.position("1", "A") == 1.0


def test_every_algorithm_has_a_colour_of_its_own():
    assert len(set(style.COLOURS.values())) == len(style.COLOURS) == 7


def titles(figure):
    return [axes.get_title() for axes in figure.axes if axes.get_title()]


def of_preset(name, runs):
    return [dataclasses.replace(run, preset=name) for run in runs]


@pytest.fixture(scope="module")
def table_one():
    """Runs of S1, S2 and S4, each at its own steps and precisions."""
    return [
        *of_preset("S1", make_comparison((2, 8), steps=(0.01, 0.05), repeats=1, fractions=(0.5,))),
        *of_preset("S2", make_comparison((8,), steps=(0.09,), repeats=1)),
        *of_preset("S4", make_comparison((16, 68), repeats=1, fractions=(0.75, 0.25))),
    ]


@pytest.mark.parametrize("draw", [figures.high_precision, figures.loss_over_time])
def test_presets_are_not_merged(draw, table_one):
    assert titles(draw(table_one)) == [
        "S2, mlp, m = 8, η = 0.09, batch 512",
        "S4, mlp, m = 16, η = 0.05, batch 512",
        "S4, mlp, m = 68, η = 0.05, batch 512",
    ]


def test_the_overview_is_of_the_preset_that_the_paper_shows(table_one):
    (title,) = titles(figures.time_to_epsilon(table_one))
    assert title == "Time to 50% of the initial loss (S1, mlp, η = 0.05, batch 512)"


def test_runs_asked_for_other_precisions_are_not_merged():
    runs = [make_run(fractions=(0.5,)), make_run(fractions=(0.5, 0.1)), make_run()]
    first, second = titles(figures.high_precision(runs))
    assert first.startswith("to 50%, mlp")
    assert second.startswith("to 50%, 10%, mlp")


@pytest.mark.parametrize("draw", ALL)
def test_every_title_names_the_batch_and_the_step(draw, complete):
    found = titles(draw(complete))
    assert found
    assert all("batch 512" in title and "η = 0.05" in title for title in found)


def test_figure_8_is_of_the_threads_asked_for(complete):
    def title(*threads):
        return titles(figures.step_size(complete, *threads))[0]

    assert "m = 8" in title()
    assert "m = 1," in title(1)
    with pytest.raises(figures.NoDataError, match="3 threads"):
        title(3)


def test_the_papers_sixteen_threads_are_figure_8s_first_choice():
    runs = [make_run(threads=m, lr=lr) for m in (8, 16, 24) for lr in (0.01, 0.05)]
    assert "m = 16" in titles(figures.step_size(runs))[0]


def ticks(axis):
    low, high = sorted(axis.get_view_interval())
    return [t for t in axis.get_majorticklocs() if low <= t <= high]


@pytest.mark.parametrize("span", [3.0, 25.0, 1e3, 1e6, 1e12, 1e30])
def test_labels_of_an_axis_stay_over_any_span(span):
    loss = np.geomspace(2.0, 2.0 * span, 20)
    (axes,) = drawn(figures.loss_over_time([make_run(loss=loss, outcome="diverged")])).axes
    assert 2 <= len(ticks(axes.yaxis)) <= 10
    assert all(label.get_text() for label in axes.yaxis.get_ticklabels())


@pytest.mark.parametrize("span", [3.0, 25.0, 1e3, 1e6])
def test_labels_of_times_stay_over_any_span(span):
    runs = [make_run(seconds=0.3), make_run(seconds=0.3 * span)]
    (axes,) = drawn(figures.loss_over_time(runs)).axes
    assert axes.get_xlim()[1] >= 0.3 * span
    assert 3 <= len(ticks(axes.xaxis)) <= 10
    lines = [line.get_xdata()[-1] for line in axes.lines if len(line.get_xdata()) > 2]
    assert axes.transData.transform((min(lines), 1.0))[0] > 80.0 + axes.bbox.x0


@pytest.mark.parametrize("fractions", [(0.5, 0.1, 0.05, 0.025, 0.02), (0.75, 0.5, 0.25, 0.1)])
def test_labels_of_precisions_do_not_cover_each_other(fractions):
    for outcome in ("converged", "diverged"):
        figure = drawn(figures.loss_over_time([make_run(fractions=fractions, outcome=outcome)]))
        (axes,) = figure.axes
        places = sorted((t.get_window_extent().y0, t.get_window_extent().y1) for t in axes.texts)
        assert len(places) == len(fractions)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(places))


def test_runs_with_a_process_each_have_a_row_of_their_own():
    shared, alone = make_run(), make_run()
    alone.result.config["isolated"] = True
    first, _, _, second, _, _ = titles(figures.memory([shared, alone]))
    assert "a process each" in first
    assert "one process for all runs" in second


def test_rates_of_threads_are_drawn_where_they_are_known():
    run = make_run("HOG", 4)
    assert len(figures.staleness([run]).axes) == 2
    object.__setattr__(run.result, "worker_updates", np.array([1, 2, 3, 4]))
    assert len(figures.staleness([run]).axes) == 3


@pytest.mark.parametrize("evaluations", [30, 101, 5000])
def test_staleness_over_time_is_drawn_of_any_number_of_evaluations(evaluations):
    run = make_run("HOG", 4, evaluations=evaluations)
    over_time = run.result.staleness_over_time
    over_time[-1] = 0
    over_time[-1, 60] = 1  # of the last updates, few and late
    (line,) = figures.staleness([run]).axes[1].lines
    times, means = line.get_data()
    if evaluations == 30:
        rows = over_time[1:-1]
        np.testing.assert_allclose(times, run.result.seconds[1:-1])
        np.testing.assert_allclose(means, rows @ np.arange(64) / rows.sum(axis=1))
    assert min(evaluations, 80) - 2 <= len(means) <= 100
    assert times[-1] > 0.95 * run.result.seconds[-1]
    assert np.all(np.abs(means - 1.5) < 0.7)


def test_an_update_in_a_run_is_its_staleness_over_time():
    run = make_run("HOG", 4)
    run.result.staleness_over_time[:] = 0
    run.result.staleness_over_time[5, 3] = 1
    (line,) = figures.staleness([run]).axes[1].lines
    assert line.get_data()[1].tolist() == [3.0]
    run.result.staleness_over_time[:] = 0
    (line,) = figures.staleness([run]).axes[1].lines
    assert not line.get_data()[1].size


def test_counts_of_two_digits_do_not_cover_each_other():
    runs = make_comparison((16, 34), repeats=11, fractions=(0.75, 0.5, 0.25, 0.1))
    strip, *_ = drawn(figures.high_precision(runs)).axes
    rows = {}
    for text in strip.texts:
        extent = text.get_window_extent()
        rows.setdefault(text.get_position()[1], []).append((extent.x0, extent.x1))
    for row in rows.values():
        assert all(one[1] < other[0] for one, other in itertools.pairwise(sorted(row)))
