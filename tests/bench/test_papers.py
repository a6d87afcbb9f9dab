"""The papers' pages: what the command makes of the results, and what it refuses."""

import gzip
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from bench.papers import leashed_sgd
from bench.papers.__main__ import differing
from bench.papers.claim import WORDS, Claim, End, Told
from bench.papers.page import EXPERIMENTS, NOT_RUN, PAGES, papers, text
from bench.papers.picture import saved
from leashed.base.table import Table
from leashed.studies.persistence import Cell, Ended

LARGEST = 60_000  # bytes of a figure
LONG = "word " * (WORDS + 1)


def claim(tell, **changes) -> Claim:
    given = {"at": "Figure 1", "claim": "More is better.", "trial": "Two arms, five seeds."}
    return Claim(**{**given, **changes}, tell=tell)


def page(*claims: Claim) -> SimpleNamespace:
    return SimpleNamespace(__doc__="A paper.\n\nBy somebody.\n", CLAIMS=claims)


def results(folder: Path, name: str, *measured: float) -> Path:
    (folder / "some-machine").mkdir(parents=True, exist_ok=True)
    path = folder / "some-machine" / f"{name}.jsonl.gz"
    lines = [
        json.dumps({"study": "s", "setting": {}, "conditions": {}, "measured": one})
        for one in measured
    ]
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    return path


def test_a_page_tells_what_its_records_do(tmp_path: Path) -> None:
    results(tmp_path / "bench/experiments", "more", 1.0, 2.0)

    def tell(records) -> Told:
        values = [record["measured"] for record in records]
        table = Table(["arm", "loss | end", "n"], [["a", f"{max(values)}", "2"]])
        return Told(End.COMES_OUT_UNDER, of="a load", words=f"Most: {max(values)}.", table=table)

    one = claim(tell, command="leashed bench more", results="more")
    made = text(page(one), tmp_path, tmp_path / "bench/experiments")
    assert made.startswith("# A paper\n")
    assert "By somebody." in made
    assert "| [Figure 1](#figure-1) | comes out under a load |" in made
    assert "**Trial.** Two arms, five seeds. By `leashed bench more`, kept as " in made
    assert "`bench/experiments/some-machine/more.jsonl.gz`." in made
    assert "**Comes out under a load.** Most: 2.0." in made
    assert "| a | 2.0 | 2 |" in made
    assert "| arm | loss \\| end | n |" in made


def test_a_trial_that_has_not_run_is_declared(tmp_path: Path) -> None:
    one = claim(lambda _: pytest.fail("there is nothing to tell"), command="c", results="none-yet")
    made = text(page(one), tmp_path)
    assert f"| [Figure 1](#figure-1) | {NOT_RUN} |" in made
    assert "**Declared, not run yet.**" in made


def test_arithmetic_needs_no_results_and_a_figure_stands_beside_theirs(tmp_path: Path) -> None:
    def tell(records) -> Told:
        assert records == []
        return Told(
            End.REFUTED,
            of="counting",
            words="Two are three.",
            picture=lambda folder: saved(Figure, folder, "a-paper-figure-1"),
            theirs="A line that rises.",
        )

    made = text(page(claim(tell)), tmp_path)
    assert "**Refuted by counting.** Two are three." in made
    assert "| ![Figure 1](a-paper-figure-1.png) | A line that rises. |" in made
    assert (tmp_path / "a-paper-figure-1.png").stat().st_size > 0


@pytest.mark.parametrize("part", ["claim", "trial"])
def test_more_than_eighty_words_are_refused(part: str) -> None:
    with pytest.raises(ValueError, match=f"{part} has 81 words, of at most 80"):
        claim(lambda _: Told(End.DRAWING), **{part: LONG})
    with pytest.raises(ValueError, match="words has 81 words"):
        Told(End.COMES_OUT, words=LONG)


def test_an_end_says_under_what_or_by_what_and_others_do_not() -> None:
    with pytest.raises(ValueError, match="of must say by what: refuted"):
        Told(End.REFUTED)
    with pytest.raises(ValueError, match="of must say under what"):
        Told(End.COMES_OUT_UNDER)
    with pytest.raises(ValueError, match="goes with no such end: comes out"):
        Told(End.COMES_OUT, of="luck")


def test_what_cannot_be_told_apart_is_refused(tmp_path: Path) -> None:
    drawing = claim(lambda _: Told(End.DRAWING))
    with pytest.raises(ValueError, match="more than one claim has this heading: Figure 1"):
        text(page(drawing, drawing), tmp_path)
    there = results(tmp_path, "more", 1.0)
    (tmp_path / "other-machine").mkdir()
    (tmp_path / "other-machine" / there.name).write_bytes(there.read_bytes())
    of_two = claim(lambda _: Told(End.COMES_OUT), command="c", results="more")
    with pytest.raises(ValueError, match="more is there of 2 machines"):
        text(page(of_two), tmp_path, tmp_path)


def test_a_page_that_is_not_what_the_results_make_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = page(claim(lambda _: Told(End.DRAWING)))
    monkeypatch.setattr("bench.papers.page.papers", lambda: {"a-paper": module})
    assert differing("a-paper", tmp_path) != []
    (tmp_path / "a-paper.md").write_text(text(module, tmp_path), "utf-8")
    assert differing("a-paper", tmp_path) == []
    (tmp_path / "a-paper.md").write_text("something else", "utf-8")
    assert differing("a-paper", tmp_path) != []


@pytest.mark.skipif(not EXPERIMENTS.exists(), reason="the results are not in a source archive")
@pytest.mark.parametrize("paper", papers())
def test_every_page_is_what_the_results_make(paper: str) -> None:
    assert differing(paper) == []


def test_every_page_is_of_a_paper_and_its_figures_are_small() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == {*papers()}
    large = {path.name: path.stat().st_size for path in PAGES.glob("*.png")}
    assert {name: size for name, size in large.items() if size > LARGEST} == {}
    told = "".join(path.read_text("utf-8") for path in PAGES.glob("*.md"))
    assert [name for name in large if f"({name})" not in told] == []


def ended(half: float, least: float) -> Ended:
    nothing = np.empty(0)
    return Ended(half, 10.0, least, least, 1.0, 0.0, 1.0, 1.0, nothing, nothing)


@pytest.mark.parametrize(
    ("bounded", "expected"),
    [
        ([(20.0, 0.5), (22.0, 0.5), (21.0, 0.5)], True),  # sooner than all without a bound
        ([(40.0, 0.5), (42.0, 0.5), (41.0, 0.5)], False),  # as soon as one of them
        ([(math.nan, 0.5), (math.nan, 0.5), (math.nan, 0.5)], False),
        ([(math.nan, 0.3), (math.nan, 0.31), (math.nan, 0.3)], True),  # lower than all
        ([(5.0, 0.5), (41.0, 0.5), (41.0, 0.5)], False),  # in one seed alone
    ],
)
def test_a_bound_pays_where_it_is_ahead_of_all_without_one(bounded, expected: bool) -> None:
    free = [(41.0, 0.5), (41.0, 0.5), (42.0, 0.5)]
    never = [(math.nan, 0.8), (math.nan, 0.81), (math.nan, 0.79)]
    runs = {"ASYNC": never, "HOG": free, "LSH_ps∞": never, "LSH_ps1": bounded, "LSH_ps0": never}
    place = {
        name: Cell(16, 15.0, 0.005, name, tuple(ended(*one) for one in of))
        for name, of in runs.items()
    }
    assert leashed_sgd.pays(place, limit=250.0) is expected
