import math

import numpy as np
import pytest

import leashed as lsh
from leashed import scaling
from leashed.runs import ALGORITHMS
from leashed.scaling import PRESETS, Plan


@pytest.fixture(scope="module")
def data():
    return lsh.datasets.synthetic_digits(n=256, seed=0).train


def test_sequential_runs_with_one_thread_only():
    settings = Plan(threads=(2, 8), repeats=2).settings()
    assert [s.threads for s in settings if s.algorithm == "SEQ"] == [1, 1]
    assert len(settings) == 2 * (1 + 6 * 2)
    assert {s.algorithm for s in settings} == set(ALGORITHMS)


def test_repeats_are_the_outermost_loop():
    repeats = [s.repeat for s in Plan(repeats=3, lr=(0.1, 0.2)).settings()]
    assert repeats == sorted(repeats)


def test_disciplines_have_the_papers_names():
    assert tuple(scaling.DISCIPLINES) == ALGORITHMS
    assert scaling.DISCIPLINES["LSH_ps∞"] == lsh.Leashed(persistence=math.inf)


def test_presets_are_table_i():
    assert sorted(PRESETS) == ["S1", "S2", "S3", "S4", "S5"]
    assert {plan.repeats for plan in PRESETS.values()} == {11}
    assert {plan.batch_size for plan in PRESETS.values()} == {512}
    assert {plan.init for plan in PRESETS.values()} == {"normal"}
    assert (min(PRESETS["S1"].threads), max(PRESETS["S1"].threads)) == (1, 68)
    assert (min(PRESETS["S1"].lr), max(PRESETS["S1"].lr)) == (0.01, 0.09)
    assert PRESETS["S2"].epsilon == (0.5, 0.1, 0.05, 0.025)
    assert PRESETS["S3"].model == ("cnn",)
    assert PRESETS["S4"].threads == (24, 34, 68)
    assert PRESETS["S5"].model == ("mlp", "cnn")


def test_a_cap_tells_what_it_cuts():
    plan, cut = PRESETS["S1"].capped(16)
    assert plan.threads == (1, 2, 4, 8, 16)
    assert cut == (24, 34, 56, 68)
    with pytest.raises(ValueError, match="max_threads 16 cuts all"):
        PRESETS["S4"].capped(16)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"model": ()}, "model"),
        ({"model": ("transformer",)}, "model"),
        ({"threads": (0,)}, "threads"),
        ({"threads": (1.5,)}, "threads"),
        ({"epsilon": (1.0,)}, "epsilon"),
        ({"epsilon": (math.nan,)}, "epsilon"),
        ({"lr": (-0.1,)}, "lr"),
        ({"repeats": 0}, "repeats"),
        ({"batch_size": 0}, "batch_size"),
        ({"seconds": 0.0}, "seconds"),
        ({"seed": -1}, "seed"),
    ],
)
def test_a_wrong_plan_is_refused(changes, name):
    with pytest.raises((TypeError, ValueError), match=name):
        Plan(**changes)


def test_networks_are_built_for_the_data(data):
    assert scaling.build_model("mlp", data).dimension == 134_794
    assert scaling.build_model("cnn", data).dimension == 27_354
    assert scaling.build_model("lenet", data).name == "lenet"
    with pytest.raises(ValueError, match="model must be one of"):
        scaling.build_model("other", data)
    flat = lsh.Dataset.from_arrays(np.zeros((4, 9)), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="needs images"):
        scaling.build_model("cnn", flat)


def test_all_algorithms_run(data):
    plan = Plan(
        threads=(2,),
        epsilon=(0.9, 0.8),
        repeats=1,
        batch_size=16,
        seconds=20.0,
        init="he",
        evaluate_every=0.005,
    )
    started = []
    runs = list(scaling.run(plan, data, started=lambda k, s: started.append((k, s))))
    assert [run.algorithm for run in runs] == list(ALGORITHMS)
    assert [k for k, _ in started] == list(range(7))
    for run in runs:
        assert run.outcome(0.8) == "converged"
        assert run.fractions == (0.9, 0.8)
        assert run.result.parameters.size == 0
        assert run.threads == (1 if run.algorithm == "SEQ" else 2)
    ps0 = runs[-1].result
    assert ps0.staleness_schedule.max() == 0


def test_repeats_have_seeds_of_their_own(data):
    plan = Plan(threads=(1,), epsilon=(0.99,), repeats=2, batch_size=16, seconds=20.0, seed=5)
    seeds = {run.result.config["seed"] for run in scaling.run(plan, data)}
    assert seeds == {5, 6}
