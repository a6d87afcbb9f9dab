from factories import make_comparison, make_run

from leashed.report import summary


def test_every_algorithm_has_a_row_with_what_the_paper_compares():
    ((title, group),) = summary.by_setting(make_comparison(threads=(2, 8)))
    assert "d = 134,794" in title
    assert "η = 0.05" in title
    table = summary.comparison(group)
    assert [row[0] for row in table.rows[:3]] == ["SEQ", "SYNC", "SYNC"]
    assert {len(row) for row in table.rows} == {len(table.header)}
    row = next(dict(zip(table.header, r, strict=True)) for r in table.rows if r[:2] == ["HOG", "8"])
    assert (row["diverged"], row["crashed"]) == ("1", "1")
    assert row["s to 50%"].endswith("1/3")


def test_each_way_to_fail_has_its_column():
    outcomes = ["unfinished"] * 3 + ["diverged"] * 2 + ["crashed", "converged"]
    ((_, group),) = summary.by_setting([make_run(outcome=outcome) for outcome in outcomes])
    table = summary.comparison(group)
    row = dict(zip(table.header, table.rows[0], strict=True))
    assert [row[name] for name in ("unfinished", "diverged", "crashed")] == ["3", "2", "1"]


def test_the_staleness_of_leashed_comes_in_two_parts():
    ((_, group),) = summary.by_setting([make_run("LSH_ps1", 8), make_run("HOG", 8)])
    staleness = {row[0]: row[5] for row in summary.comparison(group).rows}
    table = summary.comparison(group)
    column = table.header.index("τ")
    staleness = {row[0]: row[column] for row in table.rows}
    assert "=" in staleness["LSH_ps1"]
    assert "=" not in staleness["HOG"]


def test_section_iv_stands_beside_what_was_measured():
    ((_, group),) = summary.by_setting(make_comparison(threads=(8,)))
    table = summary.section_iv(group)
    assert [row[0] for row in table.rows] == ["LSH_ps∞", "LSH_ps1", "LSH_ps0"]
    assert {"n*", "n*_γ", "n measured", "τˢ measured"} <= set(table.header)


def test_runs_without_a_precision_are_compared_too():
    ((_, group),) = summary.by_setting([make_run(fractions=(), outcome="stopped")])
    table = summary.comparison(group)
    assert not any(name.startswith("s to") for name in table.header)
    row = dict(zip(table.header, table.rows[0], strict=True))
    assert (row["unfinished"], row["diverged"]) == ("–", "–")


def test_settings_stand_apart():
    groups = summary.by_setting(make_comparison(steps=(0.01, 0.05), models=("mlp", "cnn")))
    assert len(groups) == 4


def test_the_text_names_the_machine_and_explains_its_columns():
    text = summary.report(make_comparison(threads=(2,)))
    assert text.startswith("a processor, instruction set v3, 2 cores")
    assert summary.COMPARISON_NOTE in text
    assert summary.SECTION_IV_NOTE in text


def test_the_conditions_tell_the_regime():
    run = make_run(lr=0.005, batch_size=64, more={"data": "mnist/train", "pixels": 255})
    text = summary.conditions([run, make_run(lr=0.05)])
    assert "mnist/train, 10,000 of its 60,000 training examples, pixels 0…255" in text
    assert "synthetic digits, 10,000 training examples;" in text
    assert "η: 0.005, 0.05; batch: 64, 512" in text
    assert "initialisation: normal" in text


def test_a_whole_training_set_is_told_as_such():
    run = make_run(more={"data": "mnist/train", "examples": 60_000})
    assert "data: mnist/train, 60,000 training examples;" in summary.conditions([run])


def test_the_conditions_tell_what_a_preset_left_out():
    short = {"preset": "S1", "short": True, "departures": ["without m = 68", "repeats 2 of 11"]}
    text = summary.conditions([make_run(more=short), make_run(more={"preset": "S2"})])
    assert "preset S1, short form (without m = 68; repeats 2 of 11); preset S2; " in text
    # A sweep in slices: what the first left out the last may have added.
    text = summary.conditions([make_run(more=short), make_run(more={**short, "departures": []})])
    assert "preset S1, short form; " in text


def test_the_conditions_tell_when_each_run_had_a_process():
    apart = make_run(more={"isolated": True})
    assert "a process for each run" in summary.conditions([apart])
    assert "a process for each run" not in summary.conditions([apart, make_run()])


def test_repeats_that_differ_are_told():
    runs = [make_run("SEQ", 1), make_run("SEQ", 1), make_run("HOG", 2)]
    ((title, _),) = summary.by_setting(runs)
    assert "1 to 2 runs per row" in title


def test_a_run_without_a_second_evaluation_is_shown_too():
    run = make_run(evaluations=1, seconds=0.001, updates=1)
    assert "loss evaluated every –" in summary.conditions([run])
