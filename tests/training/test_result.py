import dataclasses
import json
import math

import numpy as np
import pytest
from factories import make_result

from leashed.training.histogram import Histogram, TimeDistribution
from leashed.training.result import TrainResult


def same(one, other):
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(
            one, other, equal_nan=one.dtype.kind == "f"
        )
    if isinstance(one, Histogram):
        return np.array_equal(one.counts, other.counts)
    if isinstance(one, TimeDistribution):
        return (
            np.array_equal(one.edges, other.edges)
            and np.array_equal(one.counts, other.counts)
            and one.total == other.total
        )
    return one == other


@pytest.mark.parametrize("outcome", ["converged", "diverged", "unfinished", "crashed"])
def test_json_brings_everything_back(outcome):
    result = make_result(outcome=outcome, dropped=7, config={"lr": 0.05, "name": "LSH_ps∞"})
    back = TrainResult.from_json(result.to_json(parameters=True))
    for item in dataclasses.fields(TrainResult):
        assert same(getattr(result, item.name), getattr(back, item.name)), item.name


def test_json_is_one_line_that_any_reader_takes():
    result = make_result(outcome="crashed", config={"persistence": math.inf, "loss": math.nan})
    text = result.to_json()
    assert "\n" not in text

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    document = json.loads(text, parse_constant=refuse)
    assert document["loss"][-1] is None
    assert document["config"] == {"persistence": "inf", "loss": None}


def test_json_leaves_the_parameters_out_unless_asked():
    result = make_result()
    assert json.loads(result.to_json())["parameters"] is None
    assert TrainResult.from_json(result.to_json()).parameters.shape == (0,)


def test_parameters_keep_every_bit():
    parameters = np.array([np.nan, np.inf, -0.0, 1e-45, 3.4e38, 1 / 3], dtype=np.float32)
    back = TrainResult.from_json(make_result(parameters=parameters).to_json(parameters=True))
    assert back.parameters.tobytes() == parameters.tobytes()


def test_save_writes_a_file_that_from_json_reads(tmp_path):
    result = make_result()
    result.save(tmp_path / "result.json")
    back = TrainResult.from_json((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert same(result.parameters, back.parameters)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "not a training result"),
        ('{"format": "other"}', "not a training result"),
        ('{"format": "leashed.TrainResult", "version": 99}', "version 99"),
        ('{"format": "leashed.TrainResult", "version": 1}', "without 'outcome'"),
    ],
)
def test_what_is_no_result_is_refused(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        TrainResult.from_json(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("loss", "high"),
        ("loss", 3),
        ("staleness", [-1]),
        ("gradient_seconds", {"edges": [1.0]}),
        ("parameters", {"base64": "?"}),
        ("staleness_over_time", {"rows": [[1, 2, 3]], "bins": 2}),
        ("examples", None),
        ("config", 4),
        ("outcome", "fine"),
    ],
)
def test_a_wrong_field_is_named(name, value):
    document = json.loads(make_result().to_json())
    document[name] = value
    with pytest.raises(ValueError, match=name):
        TrainResult.from_json(json.dumps(document))


def test_time_to_a_fraction_is_the_first_evaluation_at_or_below_it():
    seconds, updates = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0, 10, 20, 30])
    result = make_result(evaluations=4, seconds=3.0, loss=np.array([2.0, 1.5, 1.0, 1.2]))
    result = dataclasses.replace(result, seconds=seconds, updates=updates)
    assert result.seconds_to(0.75) == 1.0
    assert result.updates_to(0.5) == 20.0
    assert math.isnan(result.seconds_to(0.4))
    assert math.isnan(result.updates_to(0.4))


@pytest.mark.parametrize("fraction", [0.0, -1.0, math.nan, math.inf])
def test_a_fraction_is_positive(fraction):
    with pytest.raises(ValueError, match="fraction"):
        make_result().seconds_to(fraction)


def test_a_loss_that_is_not_a_number_reaches_nothing():
    result = make_result(evaluations=2, loss=np.array([2.0, np.nan]))
    assert math.isnan(result.seconds_to(0.9))


def test_totals():
    result = make_result(updates=100, dropped=25, seconds=2.0)
    assert result.gamma == 0.25
    assert result.mean_eps == 512 * 125 / 2.0
    assert result.initial_loss == result.loss[0]
    assert result.final_loss == result.loss[-1]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"outcome": "finished"}, "outcome"),
        ({"reason": "bored"}, "reason"),
        ({"loss": np.zeros(3)}, "loss"),
        ({"memory_bytes": np.zeros(3, dtype=np.int64)}, "memory_bytes"),
        ({"staleness_over_time": np.zeros((3, 2), dtype=np.int64)}, "staleness_over_time"),
    ],
)
def test_a_result_that_does_not_fit_together_is_refused(changes, name):
    with pytest.raises(ValueError, match=name):
        make_result(**{"outcome": "converged", **changes})


def test_repr_is_short_and_tells_the_outcome():
    text = repr(make_result())
    assert len(text) < 160
    assert "converged" in text


def test_plot_draws_and_saves(tmp_path):
    figure = make_result(outcome="crashed").plot(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 1_000
    assert len(figure.axes) == 4
