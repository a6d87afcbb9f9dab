import html.parser
import re

import pytest
from factories import make_comparison, make_run

from leashed import report


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
    text, missing = report.render(runs)
    assert missing == []
    return text


def test_the_report_has_every_figure(document):
    assert parsed(document).images == len(report.SECTIONS)
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
    text, missing = report.render([make_run("HOG", 1)])
    assert len(missing) == text.count('<p class="missing">') > 0
    assert "the file has no run of the CNN" in text
    parsed(text)


def test_names_from_the_file_are_escaped():
    text, _ = report.render([make_run("<script>alert(1)</script>", model="<b>&")])
    assert "<script" not in text
    parsed(text)


def test_the_same_runs_give_the_same_report():
    runs = make_comparison(threads=(2,), repeats=1)
    assert report.render(runs) == report.render(runs)


def test_no_runs_are_refused():
    with pytest.raises(ValueError, match="runs"):
        report.render([])


def test_write_writes_the_file(tmp_path):
    missing = report.write([make_run()], tmp_path / "report.html")
    assert missing
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
