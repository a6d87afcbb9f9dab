"""C++ includes go down only: a room knows the rooms under it, never those above."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from house.order import ROOT, circle, heights

CORE = ROOT / "cpp" / "leashed"

# From below; rooms of one floor know nothing of each other.
FLOORS = (
    "base",
    "net",  # frames over sockets; what they mean is for rooms above
    "policy",  # algorithms that coordinate, as values: no sockets, threads or clocks
    "vector",  # slots and the published pointer; knows no rule
    "update",
    "staleness",
    "data",
    "kernels table",  # a model's arithmetic on plain arrays; rows that are found by an id
    "row_store sparse",  # where a batch's rows come from; one protocol for updates of sparse columns
    "discipline",  # reads a vector and publishes a rule's update of it, damped by a policy
    "model",  # the contract: pure functions of parameters and batches, with losses
    "columns network graph server",  # models that keep it; a mode's requests carried out on parameters
    "engine",  # the loop that drives all of them on threads
    "trace",  # a recorded training: written, read, made again
    "backend modes",  # engines for others' loops; trainings whose threads a mode directs
    "training cluster",  # put together from choices by name; trainings on several machines
    "simulation",  # the same parts, driven in virtual time
)
HEIGHTS = heights(FLOORS)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.MULTILINE)


def sources(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.suffix in {".h", ".cc"})


def included(path: Path) -> list[str]:
    """What a source includes of the project."""
    return [name for quote, name in INCLUDE.findall(path.read_text()) if quote == '"']


def test_every_room_has_its_height():
    rooms = {p.name for p in CORE.iterdir() if p.is_dir()}
    assert rooms == set(HEIGHTS), "a new room has a place in FLOORS, and a reason"


@pytest.mark.parametrize("room", HEIGHTS)
def test_a_room_includes_itself_and_rooms_under_it(room):
    wrong = [
        f"{path.relative_to(CORE)} includes {name}"
        for path in sources(CORE / room)
        for name in included(path)
        if not name.startswith("leashed/")
        or (
            name.split("/")[1] != room
            and HEIGHTS.get(name.split("/")[1], len(HEIGHTS)) >= HEIGHTS[room]
        )
    ]
    assert not wrong


def test_rooms_know_few_others(capsys):
    """An arrow is one room including another; what it counts is printed."""
    arrows = {
        (room, name.split("/")[1])
        for room in HEIGHTS
        for path in sources(CORE / room)
        for name in included(path)
        if name.split("/")[1] != room
    }
    with capsys.disabled():
        print(f"\ncpp/leashed: {len(HEIGHTS)} rooms, {len(arrows)} arrows")
    assert len(arrows) <= len(HEIGHTS) * 5, "a room knows few others"


def test_files_include_each_other_in_no_circle():
    graph = {f"leashed/{p.relative_to(CORE)}": included(p) for p in sources(CORE)}
    assert circle(graph) == []


def test_the_core_knows_nothing_of_python():
    wrong = [
        f"{path.relative_to(CORE)} includes {name}"
        for path in sources(CORE)
        for _, name in INCLUDE.findall(path.read_text())
        if name.startswith(("pybind11/", "Python.h"))
    ]
    assert not wrong


def test_bindings_include_nothing_but_themselves_and_the_core():
    own = {p.name for p in sources(ROOT / "bindings")}
    wrong = [
        f"{path.name} includes {name}"
        for path in sources(ROOT / "bindings")
        for name in included(path)
        if name not in own and not name.startswith("leashed/")
    ]
    assert not wrong


@pytest.mark.parametrize("room", ["cluster", "simulation"])
def test_names_of_synchronisers_and_of_modes_are_told_apart_in_full(room):
    # CI compiles several sources at once: where both are known the short name is of neither.
    named = re.compile(r"^(?:struct|class) (\w+)", re.MULTILINE)
    machines = [CORE / "policy" / name for name in ("machine.h", "server_machine.h")]
    one, other = (set(named.findall(path.read_text())) for path in machines)
    assert {"Event", "Action"} <= one & other
    wrong = [
        f"{path.relative_to(CORE)}: {line}"
        for path in sources(CORE / room)
        for line in path.read_text().splitlines()
        if (said := re.match(r"\s*using modes::(\w+);", line)) and said[1] in one & other
    ]
    assert not wrong
