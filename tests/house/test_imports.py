"""Python's imports go down only, from room to room, and never in a circle from file to file."""

from __future__ import annotations

import pytest
from house.order import ROOT, circle, heights
from house.rooms import TOP, Package, room_of, upwards

LEASHED = Package(ROOT / "src" / "leashed", native=("_core",))

# From below; those of one line do not know each other.
FLOORS = (
    "base",  # what all stand on: checks, warnings, the machine, names found when asked for
    "disciplines gradients metrics modes schedules staleness stopping sync",
    "rules datasets",
    "stream",  # data that is read while it is trained on
    "models",  # and the tables whose rows they read
    "engine files retrieval",  # parameters for loops of one's own; what is written and read again
    "training",
    "simulation sklearn torch",
    "studies",  # many trainings, and what they tell together
    "report",  # tables, figures and the page of what studies found
    "cluster",  # several processes and machines
    "cli",
    f"{TOP} __main__",  # what users see
)
HEIGHTS = heights(FLOORS)

# What a paper varies is one room, though it lies at the top, where users import it.
CHOICES = dict.fromkeys(
    ("disciplines", "modes", "rules", "schedules", "staleness", "stopping", "sync"), "choices"
)
DOORS = {TOP, "__main__"}


def test_every_file_and_room_has_its_height():
    assert {room_of(module) for module in LEASHED.files} == set(HEIGHTS), "FLOORS has all rooms"


def test_imports_go_down():
    wrong = upwards(LEASHED.arrows({}), HEIGHTS)
    assert not wrong, "\n".join(sorted(line for files in wrong.values() for line in files))


def test_the_house_is_small(record_property, capsys):
    """Fewer is easier to know: who needs more has a reason to give here."""
    one_by_one = {arrow for arrow in LEASHED.arrows({}) if arrow[0] not in DOORS}
    arrows = {arrow for arrow in LEASHED.arrows(CHOICES) if arrow[0] not in DOORS}
    rooms = {CHOICES.get(room, room) for room in HEIGHTS} - DOORS
    files = LEASHED.at_the_top
    told = (
        f"src/leashed: {len(files)} files at the top; {len(rooms)} rooms, {len(arrows)} arrows "
        f"(with each choice by itself {len(HEIGHTS) - len(DOORS)} and {len(one_by_one)}); "
        f"{len(upwards(LEASHED.arrows({}), HEIGHTS))} upwards"
    )
    record_property("house", told)
    with capsys.disabled():
        print(f"\n{told}")
    assert len(files) <= 12
    assert len(rooms) <= 20
    assert len(one_by_one) <= 121  # (one from cluster to stream: readers read them)


def test_files_import_each_other_in_no_circle():
    assert circle(LEASHED.graph) == []


def package(folder, **files):
    for name, text in files.items():
        path = folder / "small" / f"{name.replace('__in__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Package(folder / "small")


BELOW = {
    "__init__": "if TYPE_CHECKING:\n    from small.upper import two",
    "lower__in____init__": "",
    "lower__in__one": "",
    "upper": "from small.lower.one import x\nimport small.lower",
}
SMALL = {"lower": 0, "upper": 1, TOP: 2}


def test_arrows_are_counted_room_by_room(tmp_path):
    arrows = package(tmp_path, **BELOW).arrows({})
    assert set(arrows) == {("upper", "lower"), (TOP, "upper")}
    assert arrows["upper", "lower"] == {"upper imports lower.one", "upper imports lower"}
    assert not upwards(arrows, SMALL)


@pytest.mark.parametrize(
    "line",
    [
        "from small.upper import x",
        "import small.upper",
        "from small import upper",
        "def f():\n    from small.upper import x",
        "if TYPE_CHECKING:\n    from small.upper import x",
    ],
)
def test_an_arrow_upwards_is_found(tmp_path, line):
    arrows = package(tmp_path, **{**BELOW, "lower__in__one": line}).arrows({})
    assert upwards(arrows, SMALL) == {("lower", "upper"): {"lower.one imports upper"}}


def test_an_arrow_upwards_through_init_is_found(tmp_path):
    files = {**BELOW, "lower__in__two": "import small.lower.one", "__init__": "import small.upper"}
    arrows = package(tmp_path, **files).arrows({})
    assert upwards(arrows, SMALL) == {
        ("lower", "upper"): {"lower.two imports upper (through __init__)"}
    }


def test_a_name_of_the_package_is_imported_from_above(tmp_path):
    arrows = package(tmp_path, **{**BELOW, "lower__in__one": "from small import train"}).arrows({})
    assert list(upwards(arrows, SMALL)) == [("lower", TOP)]


def test_a_room_without_a_height_is_found(tmp_path):
    arrows = package(tmp_path, **BELOW).arrows({})
    assert upwards(arrows, {"lower": 0, TOP: 2}) == {
        arrow: arrows[arrow] for arrow in [("upper", "lower"), (TOP, "upper")]
    }
