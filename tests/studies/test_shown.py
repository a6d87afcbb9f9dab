import dataclasses

from factories import make_run

from leashed.studies import shown


def preset(name, **changes):
    return dataclasses.replace(make_run(**changes), preset=name)


def test_studies_differ_in_model_preset_or_precisions():
    runs = [make_run(), make_run(model="cnn"), make_run(fractions=(0.5,)), preset("S2"), make_run()]
    assert [len(study) for study in shown.studies(runs)] == [1, 2, 1, 1]
    assert shown.studies([]) == []


def test_the_presets_of_a_figure_are_shown_or_all():
    one, two, four = preset("S1"), preset("S2"), preset("S4")
    assert shown.studies([one, two, four], "S2", "S4") == [[two], [four]]
    assert shown.studies([one], "S2", "S4") == [[one]]


def test_the_overview_is_the_study_with_the_most_thread_counts_at_its_best_step():
    wide = [make_run(threads=m, lr=lr) for m in (1, 2, 8) for lr in (0.01, 0.05)]
    many = [make_run(fractions=(0.25,)) for _ in range(9)]
    without = [make_run(threads=m, fractions=()) for m in (1, 2, 4, 8)]
    overview = shown.overview([*many, *wide, *without])
    assert {run.threads for run in overview} == {1, 2, 8}
    assert len({run.lr for run in overview}) == 1
    assert shown.overview([]) == []


def test_a_study_is_named_as_far_as_needed():
    first, second = [preset("S2")], [preset("S2", fractions=(0.25,))]
    plain = [make_run()]
    assert shown.name(first, [first, plain]) == "S2"
    assert shown.name(second, [first, second]) == "S2 to 25%"
    assert shown.name(plain, [plain]) == ""
    assert shown.name(plain, [plain, [make_run(fractions=())]]) == "to 50%, 10%"
    assert shown.setting(first) == "S2, mlp, η = 0.05, batch 512"
    assert shown.setting(plain, "to 50%", 8) == "to 50%, mlp, m = 8, η = 0.05, batch 512"


def test_runs_with_a_process_each_stand_apart():
    shared, alone = make_run(), make_run(model="cnn")
    alone.result.config["isolated"] = True
    assert shown.isolated(alone)
    assert not shown.isolated(shared)
    cnn = make_run(model="cnn")
    assert shown.memory([cnn, alone, shared]) == [[shared], [alone], [cnn]]
