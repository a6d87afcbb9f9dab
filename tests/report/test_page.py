import html.parser
import re

import pytest
from factories import make_comparison, make_run

from leashed.report import page


class Checker(html.parser.HTMLParser):
    """Collects what a document refers to, and that its tags are balanced."""

    VOID = frozenset({"meta", "img", "br"})

    def __init__(self):
        super().__init__()
        self.open = []
        self.references = []
        self.images = 0

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        self.images += tag == "img"
        values = dict(attrs)
        self.references += [values[name] for name in ("src", "href") if name in values]
        if tag == "img":
            assert values["alt"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(document):
    checker = Checker()
    checker.feed(document)
    assert not checker.open
    return checker


@pytest.fixture(scope="module")
def document():
    runs = make_comparison(threads=(1, 8), models=("mlp", "cnn"), steps=(0.01, 0.05), repeats=1)
    text, missing = page.render(runs)
    assert missing == []
    return text


def test_the_report_has_every_figure(document):
    assert parsed(document).images == len(page.SECTIONS)
    for number in range(3, 11):
        assert f"<h2>Figure {number}" in document


def test_the_report_needs_nothing_outside_it(document):
    references = parsed(document).references
    assert all(reference.startswith("data:image/svg+xml;base64,") for reference in references)
    assert not re.search(r"url\(|@import|<script|<link", document)


def test_the_report_has_the_tables(document):
    assert "n*_γ" in document
    assert "LSH_ps∞" in document
    assert "a processor, instruction set v3" in document


def test_a_figure_without_data_says_so():
    text, missing = page.render([make_run("HOG", 1)])
    assert len(missing) == text.count('<p class="missing">') > 0
    assert "the file has no run of the CNN" in text
    parsed(text)


def test_names_from_the_file_are_escaped():
    text, _ = page.render([make_run("<script>alert(1)</script>", model="<b>&")])
    assert "<script" not in text
    parsed(text)


def test_the_same_runs_give_the_same_report():
    runs = make_comparison(threads=(2,), repeats=1)
    assert page.render(runs) == page.render(runs)


def test_no_runs_are_refused():
    with pytest.raises(ValueError, match="runs"):
        page.render([])


def test_write_writes_the_file(tmp_path):
    missing = page.write([make_run()], tmp_path / "report.html")
    assert missing
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_figure_8_is_of_the_threads_asked_for():
    runs = [make_run(threads=m, lr=lr) for m in (2, 8) for lr in (0.01, 0.05)]
    _, missing = page.render(runs, threads=3)
    assert any("Figure 8" in line and "3 threads" in line for line in missing)
    _, missing = page.render(runs, threads=2)
    assert not any("Figure 8" in line for line in missing)


def test_figure_10_stands_in_numbers_too(document):
    assert "against ASYNC, HOG" in document
    assert "The paper&#x27;s saving for the CNN is 17% on average" in document


def test_figures_are_written_as_pictures_where_they_can_be_drawn(tmp_path):
    page.save_figures([make_run("HOG", 2), make_run("LSH_ps1", 2)], tmp_path / "new")
    names = {path.name for path in (tmp_path / "new").iterdir()}
    assert {"time_to_epsilon.png", "memory.png"} <= names
    assert "cnn.png" not in names
    assert (tmp_path / "new" / "memory.png").read_bytes().startswith(b"\x89PNG")
