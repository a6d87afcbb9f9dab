import contextlib
import io

import numpy as np
import pytest
from factories import make_comparison, make_run

from leashed.plots import figures, style
from leashed.plots.boxes import Box, Boxes

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
        if axes.get_ylim() != (-0.5, 1.5):  # the strip of counts
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


def test_failures_are_counted_above_their_box():
    runs = [make_run("HOG", 8), make_run("HOG", 8, outcome="diverged")]
    strip, _ = figures.time_to_epsilon(runs).axes
    assert sorted(text.get_text() for text in strip.texts) == ["0", "1"]


def test_the_main_model_is_the_mlp_where_there_is_one():
    assert figures.main_model([make_run(model="cnn"), make_run(model="mlp")]) == "mlp"
    assert figures.main_model([make_run(model="lenet"), make_run(model="cnn")]) == "cnn"


def test_boxes_of_a_group_stand_side_by_side():
    boxes = Boxes(["1", "2"], ["A", "B"], {("1", "A"): Box(np.ones(3))})
    assert boxes.position("1", "A") < boxes.position("1", "B") < boxes.position("2", "A")
    assert boxes.position("2", "A") - boxes.position("1", "A") == 1.0


def test_every_algorithm_has_a_colour_of_its_own():
    assert len(set(style.COLOURS.values())) == len(style.COLOURS) == 7
