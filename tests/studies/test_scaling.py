import dataclasses
import math

import numpy as np
import pytest
from factories import make_run

import leashed as lsh
from leashed.studies import scaling, single
from leashed.studies.runs import ALGORITHMS, Run
from leashed.studies.scaling import PRESETS, SHORT, Plan, Setting


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
    assert {name: plan.preset for name, plan in PRESETS.items()} == {name: name for name in PRESETS}
    assert (min(PRESETS["S1"].threads), max(PRESETS["S1"].threads)) == (1, 68)
    assert PRESETS["S2"].epsilon == (0.5, 0.1, 0.05, 0.025)
    assert PRESETS["S3"].model == ("cnn",)
    assert PRESETS["S4"].threads == (24, 34, 68)
    assert PRESETS["S5"].model == ("mlp", "cnn")


def test_presets_run_in_the_regime_of_the_text():
    assert {plan.pixels for plan in PRESETS.values()} == {255}
    assert {PRESETS[name].lr for name in ("S2", "S3", "S4", "S5")} == {(0.005,)}
    assert {0.005, 0.01, 0.03, 0.05, 0.07, 0.09} <= set(PRESETS["S1"].lr)
    assert Plan().pixels == 1


def test_presets_leave_the_papers_own_times_room():
    assert PRESETS["S2"].seconds > 5 * 89
    assert PRESETS["S3"].seconds > 3 * 500


def test_memory_is_measured_with_a_process_for_each_run():
    assert [name for name, plan in PRESETS.items() if plan.isolated] == ["S5"]


def test_short_presets_are_parts_of_the_presets_and_end_within_ten_minutes():
    assert list(SHORT) == list(PRESETS)
    for name, short in SHORT.items():
        full = PRESETS[name]
        assert (short.preset, short.short) == (name, True)
        assert set(short.settings()) < set(full.settings())
        assert short.epsilon == full.epsilon
        assert len(short.settings()) * short.seconds <= 9 * 60


def test_a_plan_tells_in_what_it_departs_from_its_preset():
    assert PRESETS["S1"].departures() == []
    assert Plan().departures() == []
    assert SHORT["S1"].departures() == [
        "without SYNC",
        "without m = 1, 4, 24, 34, 56, 68",
        "without η = 0.001, 0.003, 0.007, 0.009, 0.03, 0.07, 0.09",
        "repeats 2 instead of 11",
        "at most 5.5 s a run instead of 120 s",
    ]
    changed = dataclasses.replace(PRESETS["S2"], lr=(0.02,), epsilon=(0.5,), pixels=1, seed=3)
    assert changed.departures() == [
        "without ε = 0.1, 0.05, 0.025",
        "without η = 0.005",
        "with η = 0.02",
        "seed 3 instead of 0",
        "pixels 1 instead of 255",
    ]


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
        ({"algorithm": ("HOGWILD",)}, "algorithm"),
        ({"pixels": 256}, "pixels"),
        ({"preset": "S6"}, "preset"),
        ({"short": True}, "preset"),
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
        seconds=200.0,
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


QUICK = Plan(
    algorithm=("SEQ",), threads=(1,), epsilon=(0.99,), repeats=1, batch_size=16, seconds=20.0
)


def test_the_config_tells_of_the_plan(data):
    plan = dataclasses.replace(QUICK, preset="S2", short=True, lr=(0.005,), pixels=255)
    (run,) = scaling.run(plan, data)
    config = run.result.config
    assert (run.preset, config["preset"], config["short"]) == ("S2", "S2", True)
    assert (config["pixels"], config["repeat"], config["isolated"]) == (255, 0, False)
    assert config["departures"] == plan.departures()
    assert config["examples"] == len(data)


@pytest.mark.filterwarnings("ignore:the loss began at:RuntimeWarning")
def test_pixels_are_those_of_the_plan(data):
    model = scaling.build_model("mlp", data)
    for pixels in (1, 255):
        plan = dataclasses.replace(QUICK, pixels=pixels)
        (run,) = scaling.run(plan, data)
        there = dataclasses.replace(data, x=data.x * np.float32(pixels))
        expected = lsh.train(model, there, until=lsh.until(updates=1), seed=0).initial_loss
        assert run.result.initial_loss == expected


def test_pixels_that_are_scaled_already_are_refused(data):
    there = dataclasses.replace(data, x=data.x * np.float32(255))
    with pytest.raises(ValueError, match="pixels 255 needs data from 0 to 1"):
        list(scaling.run(dataclasses.replace(QUICK, pixels=255), there))


def test_what_is_left_is_what_no_run_has_been(data):
    plan = dataclasses.replace(QUICK, repeats=3)
    runs = list(scaling.run(plan, data, settings=plan.settings()[:1]))
    assert scaling.left(plan, data, []) == plan.settings()
    assert scaling.left(plan, data, runs) == plan.settings()[1:]
    # The plan may have grown; what is done stays done.
    grown = dataclasses.replace(plan, repeats=4, threads=(1, 2), algorithm=("SEQ", "HOG"))
    assert set(scaling.left(grown, data, runs)) == set(grown.settings()) - {plan.settings()[0]}


def test_an_interrupted_run_is_left(data):
    (run,) = scaling.run(QUICK, data)
    stopped = dataclasses.replace(run.result, reason="interrupted", outcome="stopped")
    assert scaling.left(QUICK, data, [Run.of(stopped)]) == QUICK.settings()


@pytest.mark.parametrize(
    "changes",
    [
        {"preset": "S1"},
        {"pixels": 255},
        {"epsilon": (0.99, 0.9)},
        {"seconds": 19.0},
        {"batch_size": 17},
        {"seed": 1},
        {"init": "normal"},
        {"evaluate_every": 1.0},
        {"isolated": True},
    ],
)
def test_runs_of_another_plan_are_told_apart(data, changes):
    runs = list(scaling.run(QUICK, data))
    (name,) = changes
    with pytest.raises(ValueError, match=rf"under other conditions: {name} .* there, .* here"):
        scaling.left(dataclasses.replace(QUICK, **changes), data, runs)


def test_runs_on_other_data_are_told_apart(data):
    runs = list(scaling.run(QUICK, data))
    other = lsh.datasets.synthetic_digits(n=300, seed=0).train
    with pytest.raises(ValueError, match="other conditions: examples 256 there, 300 here"):
        scaling.left(QUICK, other, runs)


def test_runs_on_another_machine_are_told_apart(data):
    (run,) = scaling.run(QUICK, data)
    for name, value in (("cpu", "another"), ("cores", 0), ("isa", "another")):
        there = dataclasses.replace(run.result, config={**run.result.config, name: value})
        with pytest.raises(ValueError, match=f"other conditions: {name} {value} there"):
            scaling.left(QUICK, data, [Run.of(there)])


def test_runs_of_no_plan_are_told_apart(data):
    with pytest.raises(ValueError, match="pixels None there, 1 here"):
        scaling.left(QUICK, data, [make_run()])


def test_an_isolated_run_is_the_same_in_a_process_of_its_own(data, monkeypatch):
    weighted = dataclasses.replace(data, weights=np.linspace(0, 1, len(data), dtype=np.float32))
    plan = dataclasses.replace(QUICK, pixels=255, model=("cnn",), evaluate_every=100.0)
    (here,) = scaling.run(plan, weighted)
    monkeypatch.setattr(scaling, "train_setting", None)
    seen = []
    plan = dataclasses.replace(plan, isolated=True)
    (there,) = scaling.run(plan, weighted, progress=seen.append)
    assert there.result.initial_loss == here.result.initial_loss
    assert there.result.config == {**here.result.config, "isolated": True}
    assert there.fractions == here.fractions
    assert seen[0].loss == there.result.initial_loss
    assert seen[0].updates == 0


def test_an_error_in_a_process_of_its_own_is_told(data, monkeypatch):
    with single.Apart(QUICK, data) as apart:
        with pytest.raises(
            ChildProcessError, match=r"m=0 .*: ValueError: threads must be at least 1"
        ):
            apart(Setting("mlp", "HOG", 0, 0.05, 0))
        monkeypatch.setattr("sys.executable", "false")
        with pytest.raises(ChildProcessError, match="ended with status 1, without a result"):
            apart(QUICK.settings()[0])


def test_what_listens_to_a_process_of_its_own_can_stop_it(data):
    def stop(_):
        raise RuntimeError("enough")

    endless = dataclasses.replace(QUICK, epsilon=(1e-9,), seconds=600.0, isolated=True)
    with pytest.raises(RuntimeError, match="enough"):
        list(scaling.run(endless, data, progress=stop))


def test_in_virtual_time_a_runs_limit_is_its_own(data):
    plan = Plan(
        threads=(1, 4),
        algorithm=("HOG",),
        epsilon=(0.01,),
        repeats=1,
        batch_size=8,
        cap=6.0,
        costs=((0.5, 0.01, 0.0),),
    )
    few, many = scaling.run(plan, data)
    assert few.result.elapsed == many.result.elapsed == pytest.approx(3.0)
    assert many.result.total_updates > 3 * few.result.total_updates
    assert scaling.left(plan, data, [few, many]) == []
    longer = dataclasses.replace(plan, cap=7.0)
    with pytest.raises(ValueError, match=r"cap 6.0 there, 7.0 here"):
        scaling.left(longer, data, [few])
