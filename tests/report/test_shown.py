"""What is seen of a page: panels with something in them, axes that no outlier stretches, tables that
fit a screen, colours by night. By the numbers in the SVG and the HTML.
"""

from __future__ import annotations

import base64
import html.parser
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from factories import make_result, make_run
from matplotlib.figure import Figure
from report.svg import Panel, panels

import leashed as lsh
from leashed.base.table import Table, fitting, pairs, text
from leashed.report import days_page, figures, html_page, page, training
from leashed.training.days import Day
from leashed.training.histogram import Histogram
from leashed.training.plots.style import finish, held, staleness_end
from leashed.training.result import TrainResult


def drawn(document: str) -> list[list[Panel]]:
    """The panels of each figure of a page."""
    return [
        panels(base64.b64decode(found))
        for found in re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", document)
    ]


def titled(result: TrainResult) -> dict[str, Panel]:
    """The panels of a run's page, by their titles."""
    (shown,) = drawn(training.render(result))
    titles = [axes.get_title().partition(" (")[0] for axes in result.plot().axes if axes.axison]
    assert len(titles) == len(shown)
    return dict(zip(titles, shown, strict=True))


@pytest.fixture(scope="module", params=[1, 2])
def short(request: pytest.FixtureRequest) -> TrainResult:
    """A run of clicks that was evaluated at its beginning and its end alone."""
    data = lsh.datasets.synthetic_clicks(1000, seed=2, cardinalities=50, test=300)
    return lsh.train(
        lsh.models.dlrm(dim=4, bottom=(4,), top=(4,)),
        data,
        threads=1,
        batch_size=100,
        until=lsh.until(epochs=request.param),
        observe=lsh.Observe(every=1e6, metrics=lsh.metrics.progressive()),
    )


def test_no_panel_of_a_short_run_is_empty(short: TrainResult) -> None:
    for name, panel in titled(short).items():
        assert len(set(panel.inside)) >= 1 or panel.texts, name


def test_a_run_without_an_update_says_what_it_has_nothing_of() -> None:
    result = make_result(
        evaluations=1,
        updates=0,
        staleness=0.0,
        config=make_run(more={"staleness": "none"}).result.config,
    )
    for name, panel in titled(result).items():
        assert panel.inside or panel.texts, name
    assert titled(result)["Throughput"].texts


def test_the_throughput_of_one_interval_is_a_level_line(short: TrainResult) -> None:
    panel = titled(short)["Throughput"]
    assert np.ptp([x for x, _ in panel.inside]) > 0.8 * panel.width


def outlying(**changes: np.ndarray) -> TrainResult:
    plain = make_run(more={"staleness": "none"}).result
    return make_result(evaluations=20, config=plain.config, **changes)


def test_one_slow_or_fast_interval_stretches_no_axis() -> None:
    eps = np.linspace(900.0, 1100.0, 20)
    eps[1] = 500_000.0
    found = titled(outlying(eps=eps))["Throughput"]
    plain = titled(outlying(eps=np.linspace(900.0, 1100.0, 20)))["Throughput"]
    assert found.middle > 0.9 * plain.middle > 0
    assert plain.texts == 0
    assert found.texts == 1  # which tells how many are beyond


@pytest.mark.parametrize("worst", [1e30, -1e30, 50.0])
def test_one_loss_out_of_all_proportion_stretches_no_axis(worst: float) -> None:
    loss = np.linspace(2.0, 1.0, 20)
    loss[12] = worst
    assert titled(outlying(loss=loss))["Loss"].middle > 0.3


def test_a_curve_that_falls_is_no_outlier() -> None:
    steps = np.arange(40)
    for loss in (2.3 * 0.8**steps, 2.3 / (1 + steps), np.r_[2.3, np.full(39, 0.7)]):
        ends = held(np.log10(loss)) if loss.max() > 20 * loss.min() else held(loss[:20])
        assert ends is None or ends[1] < 1.0  # but a single step is
    assert held(np.linspace(0.0, 1.0, 4)) is None


def test_one_stale_update_stretches_no_axis() -> None:
    counts = np.zeros(1001, np.int64)
    counts[:4] = (500, 300, 150, 49)
    counts[1000] = 1
    assert staleness_end(Histogram(counts)) == (4.0, 1)
    assert staleness_end(Histogram(counts[:4])) == (4.0, 0)
    counts = np.bincount([0] * 1000 + [3, 200])
    assert staleness_end(Histogram(counts)) == (4.0, 1)  # 3 is in sight
    found = titled(outlying(staleness=0.0))["Staleness"]
    assert found.inside


def test_a_comparison_tells_how_many_updates_are_beyond_its_axis_of_staleness() -> None:
    run = make_run(more={"staleness": "none"})
    counts = np.bincount([1] * 1000 + [3, 200])
    run = replace(run, result=replace(run.result, staleness=Histogram(counts)))
    axes = Figure().subplots()
    figures._draw_staleness(axes, [run])
    assert [told.get_text() for told in axes.texts] == ["▶ 1 beyond, to 200"]
    assert 3 < axes.get_xlim()[1] < 200


def test_an_axis_that_is_held_keeps_what_is_compared_with_in_sight() -> None:
    axes = Figure().subplots()
    axes.plot(np.r_[np.tile([1.0, 1.1], 10), 1e6])
    axes.axhline(7.0)
    finish(axes.figure)
    assert 7.0 <= axes.get_ylim()[1] < 100.0


def day(number: int, auc: float = math.nan) -> Day:
    scored = None if math.isnan(auc) else SimpleNamespace(**dict.fromkeys(SCORES, auc))
    return Day(
        name=f"day-{number}.tsv.gz",
        data="day",
        examples=10_000_000,
        bad=12,
        updates=100_000,
        loss=0.1234,
        yesterday=scored,  # type: ignore[arg-type]
        progressive=scored,  # type: ignore[arg-type]
        seconds=10.0,
        eps=1_000_000.0,
        rows=1_234_567,
        refused=0.01,
        observed={"gradient_norms": 2.5, "gradient_norms_most": 7.5},
    )


SCORES = ("auc", "auc_error", "normalised_entropy", "calibration", "gauc")


def test_the_page_of_days_fits_and_has_something_in_it(tmp_path: Path) -> None:
    for days in ([day(0)], [day(0), day(1, 0.7)], [day(k, 0.7 + 0.001 * k) for k in range(30)]):
        days_page.write(days, tmp_path / "days.html", "dlrm")
        document = (tmp_path / "days.html").read_text()
        check(document)
        assert all(panel.inside or panel.texts for panel in drawn(document)[0])


def test_one_bad_day_stretches_no_axis(tmp_path: Path) -> None:
    days = [day(k, 0.7 + 0.001 * k) for k in range(30)]
    days[11] = day(11, 90.0)
    days_page.write(days, tmp_path / "days.html", "dlrm")
    for panel in drawn((tmp_path / "days.html").read_text())[0]:
        assert panel.middle > 0.3
        assert panel.texts == 1


class Tables(html.parser.HTMLParser):
    """The tables of a page: of each its rows, of each cell its text and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[tuple[str, dict[str, str | None]]]]] = []
        self._within = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"th", "td"}:
            self.tables[-1][-1].append(("", dict(attrs)))
            self._within = True

    def handle_endtag(self, tag: str) -> None:
        self._within &= tag not in {"th", "td"}

    def handle_data(self, data: str) -> None:
        if self._within:
            text, attributes = self.tables[-1][-1][-1]
            self.tables[-1][-1][-1] = (text + data, attributes)


def tables_of(document: str) -> list[list[list[tuple[str, dict[str, str | None]]]]]:
    found = Tables()
    found.feed(document)
    assert found.tables
    return found.tables


PIXELS = 8.0  # of a digit of 14 pixels


def check(document: str) -> None:
    """That its tables fit 1,400 and 400 pixels, and no two columns have one name."""
    for header, *rows in tables_of(document):
        names = [name for name, _ in header if name]
        assert len(names) == len(set(names))
        width = 0.0
        for place, (name, _) in enumerate(header):
            words = [PIXELS * max(map(len, name.split()), default=0)]
            for row in rows:
                cell, about = row[place]
                # On a narrow screen a row is a list: each cell says which column it is of.
                assert about["data-name"] == name
                one_line = "class" not in about
                words.append(PIXELS * (len(cell) if one_line else max(map(len, cell.split()))))
            width += max(words) + 16.0
        assert width <= 1400 - 64 or len(header) == 2
    narrow = document.partition("@media (max-width: 48rem)")[2].partition("</style>")[0]
    for rule in ("thead { display: none; }", "content: attr(data-name)", "white-space: normal"):
        assert rule in narrow
    assert "overflow-wrap: anywhere" in narrow


def test_the_tables_of_a_run_fit(short: TrainResult) -> None:
    check(training.render(short))


def test_the_tables_of_a_comparison_fit() -> None:
    runs = [make_run(name, threads) for name in ("HOG", "LSH_ps1", "ASYNC") for threads in (1, 16)]
    check(page.render(runs)[0])


def test_a_wide_table_goes_on_below_itself_with_the_names_of_its_rows() -> None:
    header = ["day", *(f"column {k}" for k in range(40))]
    document = html_page.document(
        "", [html_page.table(Table(header, [["monday", *["1,000"] * 40]]))]
    )
    check(document)
    parts = tables_of(document)
    assert len(parts) > 1
    assert [part[0][0][0] for part in parts] == ["day"] * len(parts)
    assert [name for part in parts for name, _ in part[0][1:]] == header[1:]


def test_two_columns_of_one_name_are_told_apart() -> None:
    assert Table(["day", "AUC", "AUC"], []).header == ["day", "AUC", "AUC (2)"]
    assert Table(["", ""], [["loss", "0.5"]]).header == ["", ""]


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255.0 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def test_by_night_the_page_is_dark_and_can_be_read(short: TrainResult) -> None:
    document = training.render(short)
    light, dark = (
        dict(re.findall(r"--(\w+): (#\w{6})", part))
        for part in re.findall(r":root \{(.*?)\}", document, re.DOTALL)
    )
    assert light.keys() == dark.keys()
    for colours in (light, dark):
        for text_colour in ("text", "soft"):
            for behind in ("page", "stripe"):
                pair = sorted(luminance(colours[name]) for name in (text_colour, behind))
                assert (pair[1] + 0.05) / (pair[0] + 0.05) > 7.0
    assert luminance(dark["page"]) < 0.05
    # No colour is told elsewhere but for lines that are seen on both.
    body = document.partition("body {")[2].partition("</style>")[0]
    assert set(re.findall(r"#[0-9a-f]{3,6}\b", body)) <= {"#999999"}
    # Figures have no background of their own, and are turned over.
    assert "figure img { filter: invert(1)" in document
    svg = base64.b64decode(re.findall(r"base64,([\w+/=]+)", document)[0]).decode()
    assert not re.search(r"fill: #(?:fff|ffffff)\b", svg)


def test_a_table_fits_a_terminal_of_80_columns() -> None:
    rows = [["day-3.tsv.gz", *["1,234,567"] * 12]]
    header = ["day", *(f"column {k}" for k in range(12))]
    parts = text(header, rows, 80).split("\n\n")
    assert len(parts) == 2
    for part in parts:
        assert max(map(len, part.splitlines())) <= 80
        assert part.startswith("day ")
    assert len(text(header, rows).splitlines()) == 3
    assert fitting([100.0, 100.0, 100.0], 80.0) == [[0, 1], [0, 2]]


def test_facts_fit_a_terminal_of_80_columns() -> None:
    told = pairs([("model", "dlrm, d = 5"), ("progressive", "AUC 0.7 " * 30)], 80).splitlines()
    assert max(map(len, told)) <= 80
    assert all(line.startswith(" " * 13) for line in told[2:])
    assert told[0] == "model        dlrm, d = 5"
    assert pairs([("no value", ""), ("model", "dlrm")], 80) == "no value\nmodel     dlrm"


def test_on_a_terminal_tables_fit_it(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = Table(["day", *(f"column {k}" for k in range(12))], [["monday", *["1"] * 12]])
    assert "\n\n" not in str(wide)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert max(map(len, str(wide).splitlines())) <= 80
