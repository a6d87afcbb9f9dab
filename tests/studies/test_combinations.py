import pytest

import leashed as lsh
from leashed.cli import main
from leashed.studies import combinations
from leashed.studies.combinations import Outcome


def test_a_cell_tells_how_exactly_its_updates_are_known():
    outcomes = [
        Outcome("SGD", "SEQ", "none", "converged", 29.0, 28.0, 0.0),
        Outcome("SGD", "HOG", "none", "converged", 1204.0, 1199.0, 1.5),
        Outcome("SGD", "LSH_ps1", "none", "crashed", float("nan"), 0.0, 1.5),
    ]
    text = combinations.page(outcomes, "Made so.")
    assert "| none | 29 | 1,200 to 1,204 | *crashed* |" in text
    assert "2 of 3 runs got there." in text


def test_a_rule_is_merged_into_the_page_of_the_others():
    def run(rule, updates, outcome="converged"):
        return Outcome(rule, "SEQ", "none", outcome, updates, updates - 1, 0.0)

    made = "Made so, leashed 0.1.0. Written by hand."
    old = [run("SGD", 29.0), run("Adam", 7.0), run("SWAP(Adam)", 5.0)]
    new = [run("FTRL", 10.0, "unfinished"), run("Adam", 8.0)]
    page = combinations.page(old, made)
    found = combinations.merged(page, combinations.page(new, made.replace("0.1.0", "0.2.0")))
    assert found == combinations.page([old[0], new[1], new[0], old[2]], made)
    assert combinations.merged(page, combinations.page([], made)) == page
    with pytest.raises(ValueError, match="the page is of another run"):
        combinations.merged(page, combinations.page(new, "Made otherwise."))


def test_what_has_not_been_run_has_not_got_there():
    def run(discipline, policy):
        return Outcome("SGD", discipline, policy, "converged", 29.0, 28.0, 0.0)

    torn = [run("SEQ", "none"), run("HOG", "none"), run("SEQ", "inverse")]
    page = combinations.page(torn, "Made so.")
    assert "3 of 3 runs got there." in combinations.merged(page, combinations.page([], "Made so."))


def test_rules_that_are_not_whole_stay_out_of_a_page_with_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(combinations, "DISCIPLINES", (lsh.Sequential(), lsh.Hogwild()))
    monkeypatch.setattr(combinations, "POLICIES", (lsh.staleness.none(),))
    data = lsh.datasets.synthetic_digits(96, seed=0, test=32)
    monkeypatch.setattr("leashed.cli.combinations.load_data", lambda _: data)
    page = tmp_path / "page.md"
    command = ["bench", "combinations", "--rules", "SGD", "--threads", "1", "--page", str(page)]
    assert main(command) == 0
    whole = page.read_text()
    assert main([*command, "--merge", "--minutes", "1e-9"]) == 3
    assert page.read_text() == whole
    assert "SGD is not whole and stays as it is in the page" in capsys.readouterr().err


@pytest.mark.parametrize("rule", ["SGD", "SWAP(Adagrad)"])
def test_runs_are_counted_to_the_update(rule, monkeypatch):
    # One thread's parameters after so many updates are known.
    monkeypatch.setattr(combinations, "DISCIPLINES", (lsh.Sequential(),))
    monkeypatch.setattr(combinations, "POLICIES", (lsh.staleness.none(),))
    data = lsh.datasets.synthetic_digits(n=600, seed=0)
    (outcome,) = combinations.combinations(data, 1, 64, 60.0, [rule])
    assert outcome.outcome == "converged"
    assert outcome.above < outcome.updates

    def losses(updates):
        return lsh.train(
            lsh.models.mlp(784, [128, 128, 128], 10), data.train, discipline=lsh.Sequential(),
            rule=combinations.RULES[rule](), until=lsh.until(updates=updates),
        ).loss  # fmt: skip

    reached = losses(int(outcome.updates))
    # Where the machine had no time to look before, it was last above its half at the beginning.
    before = losses(int(outcome.above)) if outcome.above else reached[:1]
    assert reached[-1] <= 0.5 * reached[0] < before[-1]
