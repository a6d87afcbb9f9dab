"""docs/extending.md fits the code as it is; that it compiles and runs, check-extending tells."""

from __future__ import annotations

import shutil

import pytest
from house.extending import Page, parse
from house.order import ROOT

TEXT = (ROOT / "docs" / "extending.md").read_text()


@pytest.fixture(scope="module")
def page() -> Page:
    return parse(TEXT)


def test_every_kind_has_an_example(page):
    rooms = (
        "discipline",
        "update",
        "staleness",
        "model/losses",
        "network/layers",
        "engine/observers",
    )
    for room in rooms:
        assert any(name.startswith(f"cpp/leashed/{room}/") for name in page.files), room
    assert any(name.startswith("src/leashed/stream/") for name in page.files)


def test_what_it_adds_fits_the_files_that_are_there(page, tmp_path):
    for name in page.touched:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in page.files:
        assert not (ROOT / name).exists()
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    page.apply(tmp_path)
    for name in page.touched:
        if name.endswith(".py"):
            compile((tmp_path / name).read_text(), name, "exec")
    compile(page.program, "docs/extending.md", "exec")


def test_an_example_is_one_file_and_one_line(page):
    for name, hunks in page.lines:
        for hunk in hunks:
            # Below one line: what others add elsewhere does not get between.
            assert [line[0] for line in hunk.splitlines()] == [" ", "+"], name


def test_lines_that_do_not_fit_are_told(tmp_path):
    (tmp_path / "a").write_text("one\ntwo\n")
    Page(lines=[("a", [" one\n+and a half\n two\n"])]).apply(tmp_path)
    assert (tmp_path / "a").read_text() == "one\nand a half\ntwo\n"
    with pytest.raises(ValueError, match="a has 0 times, and not once"):
        Page(lines=[("a", [" one\n+and a half\n two\n"])]).apply(tmp_path)
